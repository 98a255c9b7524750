"""Numerical calculus on samples: gradient, trapezoid; and distances within one tensor: pdist, renorm."""

from __future__ import annotations

import math

import numpy as np

from ..op import public
from ..tensor import Tensor, dimension
from .cast import real
from .check import invalid_combination
from .choose import where
from .composite import composite
from .gather import _index_select
from .join import cat
from .linalg import vector_norm
from .reduce import sum
from .shape import narrow, reshape, select
from .sort import cumsum

# Integrals


def _neighbours(y, dim):
    """The samples without the last, and without the first."""
    n = y.array.shape[dim]
    return narrow(y, dim, 0, n - 1), narrow(y, dim, 1, n - 1)


def _widths(x, y, dim):
    """The distances between sample points, in a shape that broadcasts against the intervals of y."""
    if x.array.ndim == 1:
        if x.array.shape[0] != y.array.shape[dim]:
            raise RuntimeError("trapezoid: There must be one `x` value for each sample point")
        early, late = _neighbours(x, 0)
        return reshape(late - early, [-1 if i == dim else 1 for i in range(y.array.ndim)])
    # as PyTorch has it, a coordinate tensor of fewer dimensions gets its missing ones in front
    x = reshape(x, (1,) * (y.array.ndim - x.array.ndim) + x.array.shape)
    early, late = _neighbours(x, dim)
    return late - early


def _spacing(name, x, dx):
    if x is not None and dx is not None:
        raise invalid_combination(name, x, dx=dx)
    if isinstance(x, (int, float)):
        x, dx = None, x
    return x, 1 if dx is None else dx


def _check_samples(y, dim):
    if not y.array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return dimension(dim, y.array.ndim)


@public(method=False)
def trapezoid(y, x=None, *, dx=None, dim=-1):
    """The integral of samples along `dim` by the trapezoidal rule: at the points x, or dx (1) apart. Differentiable."""
    x, dx = _spacing("trapezoid", x, dx)
    d = _check_samples(y, dim)
    n = y.array.shape[d]
    if not n:
        return sum(y * 1.0, d)
    if x is None:
        return (sum(y, d) - (select(y, d, 0) + select(y, d, n - 1)) * 0.5) * dx
    if not x.array.ndim:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    left, right = _neighbours(y, d)
    return sum(_widths(x, y, d) * (left + right), d) / 2.0


@public(method=False)
def trapz(y, x=None, *, dx=None, dim=-1):
    """trapezoid, by its old name."""
    return trapezoid(y, x, dx=dx, dim=dim)


@public(method=False)
def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """The integrals up to each sample but the first along `dim`, by the trapezoidal rule. Differentiable."""
    x, dx = _spacing("cumulative_trapezoid", x, dx)
    d = _check_samples(y, dim)
    left, right = _neighbours(y, d)
    if x is None:
        return cumsum((dx / 2.0) * (left + right), d)
    return cumsum(_widths(x, y, d) * (left + right), d) / 2.0


# Derivatives


@public(method=False)
def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Estimates derivatives along each dimension from central differences: a tuple of tensors. Differentiable.

    spacing: the distance of samples, a number for all dimensions or one for each, or coordinate vectors.
    edge_order: of the one-sided differences at both ends, 1 or 2.
    """
    n = input.array.ndim
    dims = list(range(n)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [dimension(d, n) for d in dims]
    if len(set(dims)) != len(dims):
        again = next(d for d in dims if dims.count(d) > 1)
        raise RuntimeError(f"dim {again} appears multiple times in the list of dims")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if spacing is None:
        spacing = 1
    if isinstance(spacing, (int, float, complex)):
        spacing = [spacing] * len(dims)
    elif isinstance(spacing, Tensor):
        spacing = [spacing]
    if len(spacing) != len(dims):
        raise RuntimeError(f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
                           f"{n}', since dim argument was not given, but got a list of length {len(spacing)}" if dim is None else
                           f"torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to have the same "
                           f"length, but got a spacing argument of length {len(spacing)} and a dim argument of length {len(dims)}.")  # fmt: skip
    for d, h in zip(dims, spacing):
        if input.array.shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
        if isinstance(h, Tensor) and h.array.ndim != 1:
            raise RuntimeError("torch.gradient expected each element of spacing to have one dimension, but got an element with "
                               f"{h.array.ndim} dimensions!")  # fmt: skip
    return tuple(_derivative(input, d, h, edge_order) for d, h in zip(dims, spacing))


def _derivative(x, dim, h, edge_order):
    n = x.array.shape[dim]

    def at(i, count=1):
        return narrow(x, dim, i % n, count)

    if isinstance(h, Tensor):
        early, late = _neighbours(h, 0)
        steps = reshape(late - early, [-1 if i == dim else 1 for i in range(x.array.ndim)])
        a, b = _neighbours(steps, dim)  # the distances to both sides of each inner sample
        first, second, third = -b / (a * (a + b)), (b - a) / (a * b), a / (b * (a + b))
        inner = first * at(0, n - 2) + second * at(1, n - 2) + third * at(2, n - 2)
        h0, h1 = (narrow(steps, dim, i, 1) for i in (0, n - 2))
    else:
        inner = (at(2, n - 2) - at(0, n - 2)) / (2.0 * h)
        h0 = h1 = h
    if edge_order == 1:
        return cat([(at(1) - at(0)) / h0, inner, (at(-1) - at(-2)) / h1], dim)
    if not isinstance(h, Tensor):
        start = (-1.5 * at(0) + 2 * at(1) - 0.5 * at(2)) / h
        return cat([start, inner, (0.5 * at(-3) - 2 * at(-2) + 1.5 * at(-1)) / h], dim)
    a, b = (narrow(steps, dim, i, 1) for i in (0, 1))
    start = -(2.0 * a + b) / (a * (a + b)) * at(0) + (a + b) / (a * b) * at(1) - a / (b * (a + b)) * at(2)
    a, b = (narrow(steps, dim, i, 1) for i in (n - 3, n - 2))
    end = b / (a * (a + b)) * at(-3) - (b + a) / (a * b) * at(-2) + (2.0 * b + a) / (b * (a + b)) * at(-1)
    return cat([start, inner, end], dim)


# Norms


def _renorm_tensors(input, p, dim, maxnorm):
    size = vector_norm(input, p, [d for d in range(input.array.ndim) if d != dim], True)
    return input * where(real(size) > maxnorm, maxnorm / (size + 1e-7), 1.0)


_renorm = composite("renorm", _renorm_tensors)


@public(inplace=True)
def renorm(input, p, dim, maxnorm):
    """Scales the slices of `dim` whose p-norm exceeds maxnorm down to it. (*S) -> (*S). Differentiable."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if input.array.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.array.ndim} dimensions")
    return _renorm(input, float(p), dimension(dim, input.array.ndim), maxnorm)


def _pdist_tensors(input, p):
    first, second = (Tensor._from(i) for i in np.triu_indices(input.array.shape[0], 1))
    return vector_norm(_index_select(input, first, 0) - _index_select(input, second, 0), p, -1)


_pdist = composite("pdist", _pdist_tensors)


@public(method=False)
def pdist(input, p=2.0):
    """The p-norm distances between all pairs of rows. (N, M) -> (N * (N - 1) / 2). Differentiable."""
    if input.array.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.array.ndim}D")
    if not input.dtype.is_floating_point:
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0 or math.isnan(p):
        raise RuntimeError("pdist only supports non-negative p values")
    return _pdist(input, float(p))


public(name="pdist", method=False, module="nn.functional")(pdist)
