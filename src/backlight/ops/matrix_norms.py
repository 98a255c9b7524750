"""Norms and condition numbers of matrices."""

from __future__ import annotations

import math

from .. import dtypes
from ..op import public, write_out
from ..tensor import Tensor, dimension
from .cast import to
from .check import not_tensor
from .choose import nan_to_num, where
from .decompositions import svdvals
from .linalg import vector_norm
from .matrix import check_floating, check_matrix, check_square
from .reduce import amax, amin, sum
from .shape import movedim, squeeze, unsqueeze
from .solve import inv_ex


def _check_norm_type(x, name, dtype):
    if dtype is not None and dtype.category < 2:
        raise RuntimeError(f"{name}: dtype should be floating point or complex, but got {dtypes.scalar_type_name(dtype)}")
    if dtype is not None and x.dtype.is_complex and not dtype.is_complex:
        raise RuntimeError(f"{name}: dtype should be complex for complex inputs, but got {dtypes.scalar_type_name(dtype)}")


@public(method=False, module="linalg")
def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None):
    """A norm of the matrices in two dimensions. Differentiable (a subgradient where it isn't unique).

    ord: "fro", "nuc" (the sum of the singular values), 2 and -2 (the largest and the smallest one), 1 and -1 (of the sums over
    columns), inf and -inf (over rows).
    """
    name = "linalg.matrix_norm"
    check_matrix(A, name, function="linalg_matrix_norm", parameter="input")
    check_floating(A, name)
    if len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    first, second = (dimension(d, A.array.ndim) for d in dim)
    if first == second:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    if (isinstance(ord, str) and ord not in ("fro", "nuc")) or (
        not isinstance(ord, str) and float(ord) not in (1, -1, 2, -2, math.inf, -math.inf)
    ):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    _check_norm_type(A, name, dtype)
    A = A if dtype is None else to(A, dtype)
    if ord == "fro":
        result = vector_norm(A, 2, (first, second), keepdim)
    elif ord == "nuc" or float(ord) in (2, -2):
        values = svdvals(movedim(A, (first, second), (-2, -1)))
        result = sum(values, -1) if ord == "nuc" else _extreme(values, -1, False, ord)
        if keepdim:
            for d in sorted((first, second)):
                result = unsqueeze(result, d)
    else:
        if float(ord) in (math.inf, -math.inf):
            first, second = second, first
        sums = vector_norm(A, 1, first, keepdim)
        result = _extreme(sums, second - (second > first and not keepdim), keepdim, ord)
    return result if out is None else write_out(out, result)


def _extreme(values, dim, keepdim, ord):
    """The largest value, or the smallest if ord is negative; 0 for the norm of an empty matrix."""
    if not values.array.shape[dim] and ord > 0:
        return sum(values, dim, keepdim)
    return (amax if ord > 0 else amin)(values, dim, keepdim)


@public(method=False, module="linalg", name="norm")
def linalg_norm(A, ord=None, dim=None, keepdim=False, *, out=None, dtype=None):
    """A vector norm, or (2 dimensions and an `ord`) a matrix norm; of all elements if neither is given. Differentiable."""
    if not isinstance(A, Tensor):
        raise not_tensor("linalg_norm", input=A)
    dim = (dim,) if isinstance(dim, int) else dim
    if ord is not None:
        if dim is not None and len(dim) not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
        if dim is None and A.array.ndim not in (1, 2):
            raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                               f"{A.array.ndim}D.")  # fmt: skip
        if isinstance(ord, str) or (A.array.ndim if dim is None else len(dim)) == 2:
            result = matrix_norm(A, ord, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
            return result if out is None else write_out(out, result)
    check_floating(A, "linalg.vector_norm")
    _check_norm_type(A, "linalg.vector_norm", dtype)
    result = vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
    return result if out is None else write_out(out, result)


@public(method=False, module="linalg")
def cond(A, p=None, *, out=None):
    """The condition number |A| |A^-1| in the matrix norm p (the ratio of singular values if None). (*, N, N) -> (*). Differentiable."""
    if not isinstance(A, Tensor):
        raise not_tensor("linalg_cond", input=A)
    if A.array.ndim < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if p is not None and (p not in ("fro", "nuc") if isinstance(p, str) else p not in (1, -1, 2, -2, math.inf, -math.inf)):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if not A.array.size and 0 in A.array.shape[-2:]:
        result = A.new_zeros(A.array.shape[:-2], dtype=A.dtype.to_real())
    elif p in (None, 2, -2):
        s = svdvals(A)
        largest, smallest = s[..., :1], s[..., -1:]
        result = squeeze(largest / smallest if p != -2 else smallest / largest, -1)
    else:
        check_square(A, f"linalg.cond({p})")
        inverse, info = inv_ex(A)
        if p == "nuc":
            result = svdvals(A).sum(-1) * svdvals(inverse).sum(-1)
        else:
            inverse = where(unsqueeze(unsqueeze(info == 0, -1), -1), inverse, float("inf")) if info.array.any() else inverse
            result = nan_to_num(matrix_norm(A, p) * matrix_norm(inverse, p), float("inf"), float("inf"), -float("inf"))
    return result if out is None else write_out(out, result)
