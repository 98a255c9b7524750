"""Scans and order: cumsum, cumprod, sort, topk, median."""

from __future__ import annotations

import builtins

import numpy as np

from .. import dtypes
from ..op import face, op, public, twin, write_out
from ..tensor import Tensor, dimension
from .cast import clone, to
from .check import not_implemented
from .choose import masked_fill
from .gather import _ungather
from .join import cat
from .logic import logical_xor
from .pointwise import _logaddexp_arrays, exp
from .reduce import Pair, _others, _others_arrays, _scalar_pick, picked, sum
from .shape import constant_pad, narrow, unsqueeze

# Scans

_cumsum = op("cumsum", lambda x, dim: np.cumsum(x, dim, x.dtype),
    lambda g, _input, _out, dim: reverse_cumsum(g, dim), batch="leading")  # fmt: skip


@twin(lambda g, dim: np.flip(np.cumsum(np.flip(g, dim), dim), dim))
def reverse_cumsum(g, dim):
    """The cumulative sum from the end."""
    return cumsum(g.flip(dim), dim).flip(dim)


def _of_number(name):
    """A scan of a 0-d tensor: the number itself."""
    node = "".join(part.capitalize() for part in name.split("_")) + "Backward0"
    return op(f"{name}_of_number", lambda x: x.copy(), lambda g, _input, _out: g, node=node, batch="elementwise")


def _scan(name, primitive, doc):
    of_number = _of_number(name)

    def function(input, dim, *, dtype=None, out=None):
        if dtype is None:
            dtype = out.dtype if out is not None else dtypes.int64 if input.array.dtype.kind in "biu" else input.dtype
        if dtype is not input.dtype:
            input = to(input, dtype)
        if dtype is dtypes.bool_:
            raise not_implemented(f"{name}_out_cpu", input)
        d = dimension(dim, input.array.ndim)
        result = primitive(input, d) if input.array.ndim else of_number(input)
        return result if out is None else write_out(out, result, name, exact=True)

    function.__name__, function.__doc__ = name, doc
    return face(function, name=name, inplace=True)


cumsum = _scan("cumsum", _cumsum, "Running sums along `dim`. Differentiable.")


def _cumprod_gradient(g, input, _out, dim):
    """sum over k >= j of g[k] * prod(x[i], i <= k, i != j): quadratic in the length, but right through zeros."""
    n = input.shape[dim]
    if not n:
        return g * input
    total = None
    for k in range(n):
        head = input.narrow(dim, 0, k + 1)
        part = g.narrow(dim, k, 1) * _others(head, dim)
        part = pad_after(part, dim, n - k - 1)
        total = part if total is None else total + part
    return total


def pad_after(x, dim, count):
    widths = [0] * (2 * x.ndim)
    widths[2 * (x.ndim - 1 - dim) + 1] = count
    return constant_pad(x, tuple(widths), 0)


def _cumprod_gradient_arrays(g, x, out, dim):
    if (x != 0).all():
        return reverse_cumsum.arrays(g * out, dim) / x
    total = np.zeros_like(x)
    head = [slice(None)] * x.ndim
    here = list(head)
    for k in range(x.shape[dim]):
        head[dim], here[dim] = slice(0, k + 1), slice(k, k + 1)
        total[tuple(head)] += g[tuple(here)] * _others_arrays(x[tuple(head)], dim)
    return total


cumprod_gradient = twin(_cumprod_gradient_arrays)(_cumprod_gradient)
_cumprod = op("cumprod", lambda x, dim: np.cumprod(x, dim, x.dtype),
    lambda g, input, out, dim: cumprod_gradient(g, input, out, dim), batch="leading")  # fmt: skip


cumprod = _scan("cumprod", _cumprod, "Running products along `dim`. Differentiable, also through zeros.")

# Sorting


def _order(x, dim, descending, stable=True):
    if x.dtype.kind == "V":  # bfloat16, whose own comparison doesn't put NaN last
        x = x.astype(np.float32)
    if descending:
        kind = np.flip(np.argsort(np.flip(x, dim), dim, kind="stable"), dim)
        return x.shape[dim] - 1 - kind
    del stable
    return np.argsort(x, dim, kind="stable")


def _sort_arrays(x, dim, descending):
    indices = np.ascontiguousarray(_order(x, dim, descending))
    return np.take_along_axis(x, indices, dim), indices


_sort = op("sort", _sort_arrays,
    lambda g, input_shape, out, dim, _descending: picked(g, input_shape, out, dim, True),
    nondifferentiable=(1,), promote="keep", batch="leading")  # fmt: skip


@public()
def sort(input, dim=-1, descending=False, stable=False, *, out=None):
    """(values, indices) in ascending order along `dim`; always stable. Differentiable in the values."""
    del stable
    if isinstance(dim, bool):
        dim, descending = -1, dim
    if input.dtype.is_complex:
        raise RuntimeError("Sort does not support complex dtypes on CPU")
    d = dimension(dim, input.array.ndim)
    values, indices = _sort(input, d, bool(descending)) if input.array.ndim else _scalar_pick(input, "sort")
    if out is not None:
        values, indices = write_out(out, (values, indices), exact=True)
    return Pair["sort"](values, indices)


@public()
def argsort(input, dim=-1, descending=False, stable=False):
    """The indices that sort the tensor along `dim`."""
    return sort(input, dim, descending, stable).indices


@public()
def msort(input, *, out=None):
    """The tensor with its first dimension sorted in ascending order. Differentiable."""
    result = sort(input, 0).values
    return result if out is None else write_out(out, result, exact=True)


def _topk_arrays(x, k, dim, largest):
    indices = np.ascontiguousarray(_order(x, dim, largest)[(slice(None),) * dim + (slice(0, k),)])
    return np.take_along_axis(x, indices, dim), indices


_topk = op("topk", _topk_arrays,
    lambda g, input_shape, out, _k, dim, _largest: picked(g, input_shape, out, dim, True),
    nondifferentiable=(1,), promote="keep", batch="leading")  # fmt: skip


@public()
def topk(input, k, dim=-1, largest=True, sorted=True, *, out=None):
    """(values, indices) of the k largest (or smallest) elements along `dim`, in order. Differentiable in the values."""
    del sorted
    d = dimension(dim, input.array.ndim)
    n = input.array.shape[d] if input.array.ndim else 1
    if not 0 <= k <= n:
        raise RuntimeError("selected index k out of range")
    values, indices = _topk(input, k, d, largest) if input.array.ndim else _scalar_pick(input, "topk")
    if out is not None:
        values, indices = write_out(out, (values, indices), exact=True)
    return Pair["topk"](values, indices)


# Running extremes


def _running(name, better):
    def arrays(x, dim):
        moved = np.moveaxis(x, dim, 0)
        indices = np.zeros(moved.shape, np.int64)
        best = moved[:1].copy()
        for i in range(1, moved.shape[0]):
            newer = better(moved[i], best[0]) | np.isnan(moved[i])
            indices[i] = np.where(newer, i, indices[i - 1])
            best[0] = np.where(newer, moved[i], best[0])
        indices = np.ascontiguousarray(np.moveaxis(indices, 0, dim))
        return np.take_along_axis(x, indices, dim), indices

    primitive = op(name, arrays, lambda g, input, out, dim: add_picked(g, input.shape, out, dim),
                   nondifferentiable=(1,), promote="keep", batch="leading")  # fmt: skip

    def function(input, dim, *, out=None):
        d = dimension(dim, input.array.ndim)
        values, indices = primitive(input, d) if input.array.ndim else _scalar_pick(input, name)
        if out is not None:
            values, indices = write_out(out, (values, indices), exact=True)
        return Pair[name](values, indices)

    function.__doc__ = f"(values, indices) of the {name[3:]}imum so far, along `dim`. Differentiable in the values."
    return face(function, name=name)


@twin(lambda g, shape, out, dim: _ungather.arrays(g, out[1], shape, dim))
def add_picked(g, shape, out, dim):
    """g added at out's indices of `dim` (an element may have been picked several times)."""
    return _ungather(g, out[1].detach(), shape, dim)


cummax, cummin = _running("cummax", np.greater_equal), _running("cummin", np.less_equal)


def _logcumsumexp_arrays(x, dim):
    if x.dtype.kind == "c":
        moved = np.moveaxis(x, dim, 0)
        result = moved.copy()
        for i in range(1, len(moved)):
            result[i] = _logaddexp_arrays(result[i - 1], moved[i])
        return np.moveaxis(result, 0, dim)
    return np.logaddexp.accumulate(x, dim)


_logcumsumexp = op("logcumsumexp", _logcumsumexp_arrays,
    lambda g, input, out, dim: logcumsumexp_gradient(g, input, out, dim), batch="leading")  # fmt: skip


_logcumsumexp_of_number = _of_number("logcumsumexp")


def _logcumsumexp_gradient_arrays(g, x, out, dim):
    """exp(x) * reverse_cumsum(g * exp(-out)), by logarithms, so that nothing overflows."""
    if g.dtype.kind == "c":
        return _exp_of_sums(np.log(g) - out, x, dim)
    return _exp_of_sums(_log_or_lowest(g) - out, x, dim) - _exp_of_sums(_log_or_lowest(-g) - out, x, dim)


def _exp_of_sums(terms, x, dim):
    return np.exp(np.flip(_logcumsumexp_arrays(np.flip(terms, dim), dim), dim) + x)


def _log_or_lowest(g):
    return np.where(g > 0, np.log(np.where(g > 0, g, np.ones((), g.dtype))), np.finfo(g.dtype).min)


@twin(_logcumsumexp_gradient_arrays)
def logcumsumexp_gradient(g, input, out, dim):
    """As operations: sum over i >= j of g[i] * exp(input[j] - out[i]), pair by pair, which is linear in g."""
    n = input.shape[dim]
    pairs = exp(unsqueeze(input, dim + 1) - unsqueeze(out, dim))
    later = np.tri(n, dtype=bool).T.reshape([n if d in (dim, dim + 1) else 1 for d in range(input.ndim + 1)])
    pairs = masked_fill(pairs, Tensor._from(np.broadcast_to(~later, pairs.shape)), 0)
    return sum(pairs * unsqueeze(g, dim), dim + 1)


@public()
def logcumsumexp(input, dim, *, out=None):
    """log(cumsum(exp(input))) along `dim`. Differentiable."""
    d = dimension(dim, input.array.ndim)
    result = _logcumsumexp(input, d) if input.array.ndim and input.array.size else _logcumsumexp_of_number(input)
    return result if out is None else write_out(out, result, exact=True)


@public()
def diff(input, n=1, dim=-1, prepend=None, append=None, *, out=None):
    """The n-th differences of neighbours along `dim`. Differentiable."""
    if not input.array.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    d = dimension(dim, input.array.ndim)
    if not n:
        return clone(input) if out is None else write_out(out, clone(input), exact=True)
    parts = [x for x in (prepend, input, append) if x is not None]
    result = cat(parts, d) if len(parts) > 1 else input
    for _ in range(builtins.min(n, result.array.shape[d])):
        size = result.array.shape[d]
        late, early = narrow(result, d, 1, size - 1), narrow(result, d, 0, size - 1)
        result = logical_xor(late, early) if result.dtype is dtypes.bool_ else late - early
    return result if out is None else write_out(out, result, "logical_xor" if result.dtype is dtypes.bool_ else "sub")
