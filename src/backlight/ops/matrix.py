"""What the files of linear algebra share: named results, errors in PyTorch's words, matrix functions for formulas."""

from __future__ import annotations

import numpy as np

from .. import dtypes
from ..engine import Port
from ..op import check_broadcast, op, twin, write_out
from ..tensor import Tensor
from .arrange import diag_embed, diagonal, tril, triu
from .cast import real
from .check import not_implemented, not_tensor
from .join import cat
from .shape import expand

# Results


def named(kind, tensors, out=None):
    """The tensors as a named result, written to the tensors of `out` if it is given."""
    if out is not None:
        tensors = [write_out(o, t, kind.__name__) for o, t in zip(out, tensors, strict=True)]
    return kind(*tensors)


# Errors


class LinAlgError(RuntimeError):
    """A decomposition that doesn't exist: a singular matrix, one that isn't positive definite, no convergence."""


LinAlgError.__module__, LinAlgError.__name__, LinAlgError.__qualname__ = "torch._C", "_LinAlgError", "_LinAlgError"
WIDE = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


def check_matrix(x, name, argument="A", function=None, parameter=None):
    """RuntimeError for fewer than two dimensions, TypeError for what is no tensor."""
    if not isinstance(x, Tensor):
        raise not_tensor(function or name.replace(".", "_"), **{parameter or argument: x})
    if x.array.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {argument} must have at least 2 dimensions.")


def check_square(x, name, argument="A", function=None, parameter=None):
    """RuntimeError unless the last two dimensions are equal."""
    check_matrix(x, name, argument, function, parameter)
    m, n = x.array.shape[-2:]
    if m != n:
        raise RuntimeError(f"{name}: {argument} must be batches of square matrices, but they are {m} by {n} matrices")


def check_floating(x, name, low=True):
    """RuntimeError for integers, and for half types unless low."""
    if x.dtype.category < 2:
        kind = dtypes.scalar_type_name(x.dtype)
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {kind}")
    if not low and x.dtype not in WIDE:
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {dtypes.scalar_type_name(x.dtype)}")


def check_wide(x, kernel):
    """NotImplementedError for integers and half types, which LAPACK doesn't have."""
    if x.dtype not in WIDE:
        raise not_implemented(kernel, x)


def first_failure(info):
    """Where a factorization failed first: (the words for the batch element, the code), or None."""
    bad = np.flatnonzero(info)
    if not bad.size:
        return None
    return ("" if info.ndim == 0 else f"(Batch element {bad[0]}): "), int(info.reshape(-1)[bad[0]])


def check_singular(info, name):
    """LinAlgError if a matrix that was inverted is singular."""
    if name and (failure := first_failure(info)):
        raise LinAlgError(f"{name}: {failure[0]}The diagonal element {failure[1]} is zero, the inversion could not be "
                          "completed because the input matrix is singular.")  # fmt: skip


def broadcast_batches(*tensors):
    """The tensors with their leading dimensions expanded to a common shape, as far as they have any to expand."""
    batch = ()
    for x in tensors:
        check_broadcast(batch, x.array.shape[:-2])
        batch = np.broadcast_shapes(batch, x.array.shape[:-2])
    return [x if x.array.shape[:-2] == batch else expand(x, (*batch, *x.array.shape[-2:])) for x in tensors]


# Parts of formulas


@twin(lambda out: out)
def ports(out):
    """The saved outputs of an operation with several, each at its place in the graph."""
    for i, x in enumerate(out):
        if x.dtype.category < 2:
            x.node = None
        elif x.node is not None and type(x.node) is not Port:
            x.node = Port(x.node, i)
    return out


# Functions over the last two dimensions, for formulas


def _adjoint(x):
    x = x.swapaxes(-1, -2)
    return np.conjugate(x) if x.dtype.kind == "c" else x


@twin(_adjoint)
def adjoint(x):
    """The conjugate transpose."""
    return x.mH


@twin(lambda x: np.conjugate(x) if x.dtype.kind == "c" else x)
def conjugate(x):
    """The complex conjugate; real numbers as they are."""
    return x.conj() if x.dtype.is_complex else x


@twin(lambda x: np.diagonal(x, 0, -2, -1))
def main_diagonal(x):
    """The main diagonals of matrices."""
    return diagonal(x, 0, -2, -1)


@twin(lambda d: d[..., None] * np.eye(d.shape[-1], dtype=d.dtype))
def diagonal_matrix(d):
    """Vectors as diagonal matrices."""
    return diag_embed(d)


@twin(lambda like, m, n: np.eye(m, n, dtype=like.dtype))
def identity(like, m, n):
    """The m by n identity in the type of `like`."""
    return Tensor._from(np.eye(m, n, dtype=like.array.dtype))


@twin(lambda x: x.real if x.dtype.kind == "c" else x)
def real_part(x):
    """The real part."""
    return real(x)


@twin(lambda x, like: x.real if x.dtype.kind == "c" and like.dtype.kind != "c" else x)
def match_real(x, like):
    """The real part of a gradient whose tensor is real."""
    return real(x) if x.dtype.is_complex and not like.dtype.is_complex else x


@twin(lambda parts, dim: np.concatenate(parts, dim))
def join(parts, dim):
    """cat."""
    return cat(parts, dim)


@twin(lambda x, like: np.zeros_like(like) if x is None else x)
def or_zeros(x, like):
    """A gradient, or zeros where an output had none."""
    return Tensor._from(np.zeros_like(like.array)) if x is None else x


def lower(x, diagonal=0):
    """The lower triangle."""
    return tril(x, diagonal)


def upper(x, diagonal=0):
    """The upper triangle."""
    return triu(x, diagonal)


def hermitian(x):
    """x + its adjoint."""
    return x + adjoint(x)


def _padded(x, shape):
    out = np.zeros((*x.shape[:-2], *shape), x.dtype)
    out[..., : x.shape[-2], : x.shape[-1]] = x
    return out


padded = op("padded", _padded, lambda g, input_shape, _out, _shape: g[..., : input_shape[-2], : input_shape[-1]],
            node="ConstantPadNdBackward0", batch="leading")  # fmt: skip
