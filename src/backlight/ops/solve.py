"""Linear systems by elimination: triangular systems, LU, solve, inverse, and systems with a Cholesky factor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .. import batching, dtypes
from ..op import op, public, twin, write_out
from ..return_types import return_type
from ..tensor import Tensor
from .check import not_tensor
from .matrix import (
    LinAlgError,
    adjoint,
    broadcast_batches,
    check_floating,
    check_matrix,
    check_singular,
    check_square,
    check_wide,
    first_failure,
    hermitian,
    identity,
    join,
    lower,
    named,
    or_zeros,
    padded,
    ports,
    upper,
)
from .shape import squeeze, unsqueeze

if TYPE_CHECKING:
    from typing import Any

# Triangular systems


def _swap(x):
    return x.swapaxes(-1, -2)


@twin(_swap)
def swapped(x):
    """The transpose."""
    return x.mT


def _triangular_arrays(a, b, upper, left, unit):
    """Back substitution. NumPy's solve does it, because eliminating below an upper triangular matrix changes nothing."""
    if not left:
        return _swap(_triangular_arrays(_swap(a), _swap(b), not upper, True, unit))
    if not upper:
        turned = _triangular_arrays(a[..., ::-1, ::-1], b[..., ::-1, :], True, True, unit)
        return np.ascontiguousarray(turned[..., ::-1, :])
    a = np.triu(a, 1) + np.eye(a.shape[-1], dtype=a.dtype) if unit else np.triu(a)
    diagonal = np.diagonal(a, 0, -2, -1)
    if diagonal.all():
        return np.linalg.solve(a, b)
    x = np.array(np.broadcast_to(b, np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + b.shape[-2:]))
    for i in range(a.shape[-1] - 1, -1, -1):  # with zeros on the diagonal, the quotients are infinite
        x[..., i, :] /= diagonal[..., i, None]
        x[..., :i, :] -= a[..., :i, i, None] * x[..., None, i, :]
    return x


def triangular_gradient(g, a, out, upper_, left, unit):
    """(gA, gB) of A X = B (or X A = B): gB solves with the adjoint, gA is the triangle of -gB X^H (or -X^H gB)."""
    gb = triangular(adjoint(a), g, not upper_, left, unit)
    ga = -(gb @ adjoint(out)) if left else -(adjoint(out) @ gb)
    return upper(ga, int(unit)) if upper_ else lower(ga, -int(unit)), gb


triangular = op("linalg_solve_triangular", _triangular_arrays,
    joint=lambda g, input, _B, out, upper, left, unitriangular: triangular_gradient(g, input, out, upper, left, unitriangular),
    holomorphic=False, batch="leading")  # fmt: skip


def check_system(a, b, left, name):
    """RuntimeError unless A X = B (or X A = B) fits."""
    m, n = b.array.shape[-2:]
    if a.array.shape[-1] != (m if left else n):
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {equation} "
                           f"({a.array.shape[-2]}x{a.array.shape[-1]} and {m}x{n})")  # fmt: skip


@public(method=False, module="linalg")
def solve_triangular(A, B, *, upper, left=True, unitriangular=False, out=None):
    """X with A X = B (X A = B if not left) for triangular A. (*, N, N), (*, N, K) -> (*, N, K). Differentiable in both.

    unitriangular: the diagonal counts as ones. Zeros on the diagonal give infinities.

    >>> import backlight as torch
    >>> torch.linalg.solve_triangular(torch.tensor([[2., 0.], [1., 1.]]), torch.tensor([[2.], [3.]]), upper=False)
    tensor([[1.],
            [2.]])
    """
    name = "linalg.solve_triangular"
    if not (isinstance(A, Tensor) and isinstance(B, Tensor)):
        raise not_tensor("linalg_solve_triangular", A=A, B=B)
    check_square(A, name)
    check_matrix(B, name, "B")
    check_system(A, B, left, name)
    check_wide(A, "triangular_solve_cpu")
    B, A = broadcast_batches(B, A)
    result = triangular(A, B, upper, left, unitriangular)
    return result if out is None else write_out(out, result)


_triangular_solve = op("triangular_solve",
    lambda b, a, upper, transpose, unit: (_triangular_arrays(*_turned(a, b, upper, transpose), True, unit), a.copy()),
    joint=lambda g, _input, A, out, upper, transpose, unitriangular:
        triangular_solve_gradient(g, A, ports(out)[0], upper, transpose, unitriangular),
    outputs=2, holomorphic=False, batch="leading")  # fmt: skip
TriangularSolve = return_type("triangular_solve", "solution", "cloned_coefficient")


def _turned(a, b, upper, transpose):
    return (_swap(a), b, not upper) if transpose else (a, b, upper)


def triangular_solve_gradient(g, a, x, upper_, transpose, unit):
    """Gradients of the older triangular_solve, whose second output is a copy of A."""
    if g[0] is None:
        return x * 0, g[1]
    turned = swapped(a) if transpose else a
    ga, gb = triangular_gradient(g[0], turned, x, upper_ != transpose, True, unit)
    ga = swapped(ga) if transpose else ga
    return gb, ga if g[1] is None else ga + g[1]


def _check_older(b, a, name):
    """The checks of the functions that take b first."""
    for x, argument in ((b, "b"), (a, "A")):
        if x.array.ndim < 2:
            where = "torch.triangular_solve: Expected " if name == "triangular_solve" else ""
            have = "to have at least 2 dimensions, but it has" if where else "should have at least 2 dimensions, but has"
            raise RuntimeError(f"{where}{argument} {have} {x.array.ndim} dimensions instead")
    if a.array.dtype != b.array.dtype:
        kinds = [dtypes.scalar_type_name(x.dtype) for x in (b, a)]
        raise RuntimeError(f"Expected b and A to have the same dtype, but found b of type {kinds[0]} and A of type {kinds[1]} "
                           "instead.")  # fmt: skip
    (m, n), (rows, columns) = a.array.shape[-2:], b.array.shape[-2:]
    if m != n:
        raise RuntimeError(f"A must be batches of square matrices, but they are {m} by {n} matrices")
    if m != rows:
        raise RuntimeError(f"Incompatible matrix sizes for {name}: each A matrix is {m} by {m} but each b matrix is {rows} by "
                           f"{columns}")  # fmt: skip
    check_wide(a, f"{name}_cpu")
    return broadcast_batches(b, a)


@public()
def triangular_solve(input, A, upper=True, transpose=False, unitriangular=False, *, out=None) -> Any:
    """(solution, copy of A): linalg.solve_triangular in its older form, the right side first. Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(A, Tensor)):
        raise not_tensor("triangular_solve", input=input, A=A)
    input, A = _check_older(input, A, "triangular_solve")
    return named(TriangularSolve, _triangular_solve(input, A, upper, transpose, unitriangular), out)


# LU with row exchanges (G. Golub and C. Van Loan, "Matrix Computations", algorithm 3.4.1), for a batch at once


def lu_arrays(a):
    """(L and U in one matrix, LAPACK's pivots, info): info is 0 or the number of the first zero pivot."""
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    lu, k = a.reshape(math.prod(batch), m, n).copy(), min(m, n)
    rows = np.arange(len(lu))
    pivots, info = np.empty((len(lu), k), np.int32), np.zeros(len(lu), np.int32)
    for j in range(k):
        column = lu[:, j:, j]
        size = np.abs(column.real) + np.abs(column.imag) if a.dtype.kind == "c" else np.abs(column)
        p = j + size.argmax(1)
        pivots[:, j] = p + 1
        lu[rows, p], lu[:, j] = lu[:, j].copy(), lu[rows, p]
        pivot = lu[:, j, j]
        zero = pivot == 0
        info[zero & (info == 0)] = j + 1
        lu[:, j + 1 :, j] *= (1 / np.where(zero, 1, pivot))[:, None]
        lu[:, j + 1 :, j + 1 :] -= lu[:, j + 1 :, j, None] * lu[:, None, j, j + 1 :]
    return lu.reshape(a.shape), pivots.reshape(*batch, k), info.reshape(batch)


def _rows(pivots, m):
    """The order of the rows after the exchanges: A[rows] = L U."""
    batch = pivots.shape[:-1]
    flat = pivots.reshape(math.prod(batch), pivots.shape[-1])
    order, each = np.tile(np.arange(m), (len(flat), 1)), np.arange(len(flat))
    for j in range(flat.shape[1]):
        p = flat[:, j] - 1
        order[each, p], order[:, j] = order[:, j].copy(), order[each, p]
    return order.reshape(*batch, m)


def _permutation_arrays(pivots, like):
    m = like.shape[-2]
    return _swap(np.eye(m, dtype=like.dtype)[_rows(pivots, m)])


@twin(_permutation_arrays)
def permutation(pivots, like):
    """P of A = P L U from LAPACK's pivots, in the type of `like`."""
    return Tensor._from(_permutation_arrays(pivots.array, like.array))


def _unpack(lu):
    """L and U of a packed matrix."""
    m, n = lu.shape[-2:]
    k = min(m, n)
    return lower(lu[..., :, :k], -1) + identity(lu, m, k), upper(lu[..., :k, :])


def lu_gradient(gl, gu, p, l, u):  # noqa: E741  (L is its name)
    """F. de Hoog, R. Anderssen, M. Lukas, "Differentiation of matrix functionals using triangular factorization" (2011)."""
    m, n = l.shape[-2], u.shape[-1]
    k = min(m, n)
    l1, u1 = l[..., :k, :], u[..., :, :k]
    inner_l, inner_u = adjoint(l1) @ gl[..., :k, :], gu[..., :, :k] @ adjoint(u1)
    if n > m:
        inner_l = inner_l - gu[..., k:] @ adjoint(u[..., k:])
    elif m > n:
        inner_u = inner_u - adjoint(l[..., k:, :]) @ gl[..., k:, :]
    inner = triangular(adjoint(u1), lower(inner_l, -1) + upper(inner_u), False, False, False)
    if n > m:
        ga = triangular(adjoint(l1), join((inner, gu[..., k:]), -1), True, True, True)
    else:
        ga = triangular(adjoint(l1), inner, True, True, True)
        if m > n:
            ga = join((ga, triangular(adjoint(u1), gl[..., k:, :], False, False, False)), -2)
    return p @ ga


def _lu_factor_gradient(g, out):
    lu, pivots = out[0], out[1]
    k = min(lu.shape[-2], lu.shape[-1])
    l, u = _unpack(lu)  # noqa: E741
    return lu_gradient(lower(g, -1)[..., :, :k], upper(g)[..., :k, :], permutation(pivots, lu), l, u)


def _lu_factor_arrays(a, check):
    lu, pivots, info = lu_arrays(a)
    if check and (failure := first_failure(info)):
        raise RuntimeError(
            f"torch.linalg.lu_factor: {failure[0]}U[{failure[1]},{failure[1]}] is zero and using it on lu_solve would result in a "
            "division by zero. If you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
            "linalg.lu_factor_ex(A, pivot)"
        )
    return lu, pivots, info


_lu_factor_ex = op("linalg_lu_factor_ex", _lu_factor_arrays, lambda g, _input, out, _check: _lu_factor_gradient(g, out),
                   nondifferentiable=(1, 2), holomorphic=False, batch="leading")  # fmt: skip


def _plu_arrays(a):
    lu, pivots, _info = lu_arrays(a)
    return (_permutation_arrays(pivots, a), *arrays_unpack(lu))


def arrays_unpack(lu):
    """_unpack over arrays."""
    k = min(lu.shape[-2:])
    return np.tril(lu[..., :, :k], -1) + np.eye(lu.shape[-2], k, dtype=lu.dtype), np.triu(lu[..., :k, :])


def _lu_gradient(g, out):
    return lu_gradient(or_zeros(g[1], out[1]), or_zeros(g[2], out[2]), *out)


_lu = op("linalg_lu", _plu_arrays,
    lambda g, _input, out: _lu_gradient(g, ports(out)),
    outputs=3, nondifferentiable=(0,), holomorphic=False, batch="leading")  # fmt: skip
LUFactor = return_type("linalg_lu_factor", "LU", "pivots")
LUFactorEx = return_type("linalg_lu_factor_ex", "LU", "pivots", "info")
PLU, Unpacked = return_type("linalg_lu", "P", "L", "U"), return_type("lu_unpack", "P", "L", "U")
LUWithInfo = return_type("_lu_with_info", "LU", "pivots", "info")


def _checked_lu(a, pivot, name, function):
    if not isinstance(a, Tensor):
        raise not_tensor(function, A=a)
    if a.array.ndim < 2:
        raise RuntimeError(f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(a.array.shape)} instead")
    check_wide(a, "lu_cpu")
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return a


@public(method=False, module="linalg")
def lu_factor(A, *, pivot=True, out=None) -> Any:
    """(LU, pivots): both factors in one matrix and the row exchanges, for lu_solve. (*, M, N). Differentiable.

    RuntimeError if a pivot is zero.
    """
    A = _checked_lu(A, pivot, "torch.lu_factor", "linalg_lu_factor")
    return named(LUFactor, _lu_factor_ex(A, True)[:2], out)


@public(method=False, module="linalg")
def lu_factor_ex(A, *, pivot=True, check_errors=False, out=None) -> Any:
    """(LU, pivots, info): lu_factor without its error; info is 0 or the number of the first zero pivot. Differentiable."""
    A = _checked_lu(A, pivot, "torch.lu_factor", "linalg_lu_factor_ex")
    return named(LUFactorEx, _lu_factor_ex(A, check_errors), out)


@public(method=False, module="linalg", name="lu")
def linalg_lu(A, *, pivot=True, out=None) -> Any:
    """(P, L, U) with A = P L U. (*, M, N) -> (*, M, M), (*, M, K), (*, K, N) with K = min(M, N). Differentiable.

    >>> import backlight as torch
    >>> torch.linalg.lu(torch.tensor([[1., 2.], [2., 2.]])).U
    tensor([[2., 2.],
            [0., 1.]])
    """
    return named(PLU, _lu(_checked_lu(A, pivot, "linalg.lu", "linalg_lu")), out)


@public(name="lu")
def lu(A, pivot=True, get_infos=False, out=None) -> Any:
    """(LU, pivots), and info if get_infos: lu_factor in its older form. Differentiable."""
    result = _lu_factor_ex(_checked_lu(A, pivot, "torch.lu_factor", "lu"), False)
    if get_infos:
        return named(LUWithInfo, result, out)
    return result[:2] if out is None else write_out(out, result[:2])


_lu_unpack = op("lu_unpack", lambda lu, pivots: (_permutation_arrays(pivots, lu), *arrays_unpack(lu)),
    lambda g, input, _pivots, _out: _packed_gradient(g, input), None,
    outputs=3, nondifferentiable=(0,), holomorphic=False, promote="keep", batch="leading")  # fmt: skip


def _packed_gradient(g, lu):
    total = lu * 0
    if g[1] is not None:
        total = total + padded(lower(g[1], -1), (lu.shape[-2], lu.shape[-1]))
    if g[2] is not None:
        total = total + padded(upper(g[2]), (lu.shape[-2], lu.shape[-1]))
    return total


@public(method=False)
def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True, *, out=None) -> Any:
    """(P, L, U) from what lu_factor gives; empty tensors for what isn't asked for. Differentiable."""
    pivots = batching.all_values(LU_pivots)
    if unpack_pivots and pivots.dtype != np.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\nNote: this function is "
            "intended to be used with the output produced by torch.linalg.lu_factor"
        )
    if unpack_pivots and pivots.size and not (pivots.min() >= 1 and pivots.max() <= LU_data.array.shape[-2]):
        raise RuntimeError("pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                           "Did you properly pass the result of lu_factor?")  # fmt: skip
    if not unpack_pivots:
        LU_pivots = Tensor._from(np.ones((*LU_data.array.shape[:-2], min(LU_data.array.shape[-2:])), np.int32))
    p, l, u = _lu_unpack(LU_data, LU_pivots)  # noqa: E741
    none = LU_data.detach().new_empty((0,))
    return named(Unpacked, (p if unpack_pivots else none, *((l, u) if unpack_data else (none, none))), out)


def _lu_solve_arrays(lu, pivots, b, left, adjoint_):
    if not left:  # X A = B is A^H X^H = B^H
        return adjoint.arrays(_lu_solve_arrays(lu, pivots, adjoint.arrays(b), True, not adjoint_))
    rows = _rows(pivots, lu.shape[-1])[..., None]
    if adjoint_:
        x = _triangular_arrays(_triangular_form(lu), b, False, True, False)
        x = _triangular_arrays(adjoint.arrays(lu), x, True, True, True)
        return np.take_along_axis(x, np.argsort(rows, -2), -2)
    x = _triangular_arrays(lu, np.take_along_axis(b, rows, -2), False, True, True)
    return _triangular_arrays(lu, x, True, True, False)


def _triangular_form(lu):
    return adjoint.arrays(np.triu(lu))


def lu_solve_gradient(g, lu, pivots, out, left, adjoint_):
    """(gLU, gB): gB solves with the adjoint; gA = -gB X^H (its adjoint, or the other order) goes on to L and U."""
    gb = _lu_solve(lu, pivots, g, left, not adjoint_)
    if left:
        ga = out @ adjoint(gb) if adjoint_ else gb @ adjoint(out)
    else:
        ga = adjoint(gb) @ out if adjoint_ else adjoint(out) @ gb
    l, u = _unpack(lu)  # noqa: E741
    ga = adjoint(permutation(pivots, lu)) @ ga
    return -(lower(ga @ adjoint(u), -1) + upper(adjoint(l) @ ga)), None, gb


_lu_solve = op("linalg_lu_solve", _lu_solve_arrays,
    joint=lambda g, input, pivots, _B, out, left, adjoint: lu_solve_gradient(g, input, pivots, out, left, adjoint),
    holomorphic=False, promote="keep", batch="leading")  # fmt: skip


@public(method=False, module="linalg", name="lu_solve")
def linalg_lu_solve(LU, pivots, B, *, left=True, adjoint=False, out=None):
    """X with A X = B (X A = B if not left; A^H if adjoint), from lu_factor(A). Differentiable in LU and B."""
    name = "linalg.lu_solve"
    if LU.array.dtype != B.array.dtype:
        kinds = [dtypes.scalar_type_name(x.dtype) for x in (LU, B)]
        raise RuntimeError(f"{name}: Expected LU and B to have the same dtype, but found LU of type {kinds[0]} and B of type "
                           f"{kinds[1]} instead")  # fmt: skip
    if pivots.array.dtype != np.int32:
        raise RuntimeError(f"{name}: pivots should be a Tensor of scalar type torch.int32")
    check_square(LU, name)
    check_matrix(B, name, "B")
    check_system(LU, B, left, name)
    if LU.array.shape[-1] != pivots.array.shape[-1]:
        raise RuntimeError(f"{name}: Number of pivots per batch should be same as the dimension of the matrix")
    if LU.array.shape[:-1] != pivots.array.shape:
        raise RuntimeError(f"{name}: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
                           f"{list(pivots.array.shape)} instead")  # fmt: skip
    check_wide(LU, "lu_solve_cpu")
    LU, B, pivots = broadcast_batches(LU, B, unsqueeze(pivots, -1))
    result = _lu_solve(LU, squeeze(pivots, -1), B, left, adjoint)
    return result if out is None else write_out(out, result)


@public()
def lu_solve(b, LU_data, LU_pivots, *, out=None):
    """linalg.lu_solve in its older form, the right side first. Differentiable in b and LU_data."""
    return linalg_lu_solve(LU_data, LU_pivots, b, out=out)


# General systems and the inverse


def _solve_arrays(a, b, left, vector, name):
    if vector:
        x, info = _solve_arrays(a, b[..., None], left, False, name)
        return x[..., 0], info
    if not left:
        x, info = _solve_arrays(_swap(a), _swap(b), True, False, name)
        return _swap(x), info
    try:
        return np.linalg.solve(a, b), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        lu, pivots, info = lu_arrays(a)
    if name and (failure := first_failure(info)):
        raise LinAlgError(f"{name}: {failure[0]}The solver failed because the input matrix is singular.")
    return _lu_solve_arrays(lu, pivots, b, True, False), info


def solve_gradient(g, a, x, left, vector):
    """(gA, gB) of A X = B (or X A = B): gB = A^-H g, and gA = -gB X^H (or -X^H gB)."""
    gb = _solve(adjoint(a), g, left, vector, "torch.linalg.solve")[0]
    y = gb
    if vector:
        y, x = y[..., None], x[..., None]
    return -(y @ adjoint(x)) if left else -(adjoint(x) @ y), gb


_solve = op("linalg_solve_ex", _solve_arrays,
    joint=lambda g, input, _B, out, left, vector, _name: solve_gradient(g, input, out[0], left, vector),
    nondifferentiable=(1,), holomorphic=False, batch="leading")  # fmt: skip
SolveEx = return_type("linalg_solve_ex", "result", "info")


def solve_square(a, b):
    """X with A X = B, for formulas."""
    return _solve(a, b, True, False, "torch.linalg.solve")[0]


def _checked_solve(a, b, left, name, function):
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        raise not_tensor(function, A=a, B=b)
    check_square(a, "linalg.solve")
    check_floating(a, "linalg.solve")
    if a.array.dtype != b.array.dtype:
        kinds = [dtypes.scalar_type_name(x.dtype) for x in (a, b)]
        raise RuntimeError(f"linalg.solve: Expected A and B to have the same dtype, but found A of type {kinds[0]} and B of type "
                           f"{kinds[1]} instead")  # fmt: skip
    vector = b.array.ndim == 1 or (a.array.ndim - 1 == b.array.ndim and b.array.shape == a.array.shape[:-1])
    if vector and not left:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case "
                           "linalg.solve is equivalent to B / A.squeeze(-1)")  # fmt: skip
    if vector:
        check_system(a, unsqueeze(b, -1), left, "linalg.solve")
        check_wide(a, "lu_cpu")
        if b.array.ndim == 1 and a.array.ndim > 2:
            a, b = broadcast_batches(a, unsqueeze(b, -1))
            b = squeeze(b, -1)
        return _solve(a, b, True, True, name)
    check_system(a, b, left, "linalg.solve")
    check_wide(a, "lu_cpu")
    b, a = broadcast_batches(b, a)
    return _solve(a, b, left, False, name)


@public(method=False, module="linalg")
def solve(A, B, *, left=True, out=None):
    """X with A X = B (X A = B if not left). (*, N, N), (*, N, K) or (*, N) -> like B. Differentiable in both.

    LinAlgError if A is singular.

    >>> import backlight as torch
    >>> torch.linalg.solve(torch.tensor([[2., 0.], [0., 4.]]), torch.tensor([2., 2.]))
    tensor([1.0000, 0.5000])
    """
    result = _checked_solve(A, B, left, "torch.linalg.solve", "linalg_solve")[0]
    return result if out is None else write_out(out, result)


@public(method=False, module="linalg")
def solve_ex(A, B, *, left=True, check_errors=False, out=None) -> Any:
    """(result, info): solve without its error; info is 0 or the number of the first zero pivot. Differentiable in both."""
    return named(SolveEx, _checked_solve(A, B, left, "torch.linalg.solve" if check_errors else None, "linalg_solve_ex"), out)


def _inv_arrays(a, name):
    try:
        return np.linalg.inv(a), np.zeros(a.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        lu, pivots, info = lu_arrays(a)
    check_singular(info, name)
    unit = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return _lu_solve_arrays(lu, pivots, unit, True, False), info


_inv = op("linalg_inv_ex", _inv_arrays,
    lambda g, _input, out, _name: -(adjoint(out[0]) @ g @ adjoint(out[0])),
    nondifferentiable=(1,), holomorphic=False, batch="leading")  # fmt: skip
InvEx = return_type("linalg_inv_ex", "inverse", "info")


def _checked_inv(a, name, function):
    check_square(a, "linalg.inv", function=function)
    check_floating(a, "linalg.inv", low=False)
    return _inv(a, name)


@public(method=False, module="linalg")
def inv(A, *, out=None):
    """The inverse of square matrices. (*, N, N) -> (*, N, N). LinAlgError if one is singular. Differentiable."""
    result = _checked_inv(A, "linalg.inv", "linalg_inv")[0]
    return result if out is None else write_out(out, result)


@public()
def inverse(input, *, out=None):
    """linalg.inv under its older name."""
    return inv(input, out=out)


@public(method=False, module="linalg")
def inv_ex(A, *, check_errors=False, out=None) -> Any:
    """(inverse, info): inv without its error; info is 0 or the number of the first zero pivot. Differentiable."""
    return named(InvEx, _checked_inv(A, "linalg.inv" if check_errors else None, "linalg_inv_ex"), out)


# Systems whose matrix is given by its Cholesky factor


def _cholesky_solve_arrays(b, factor, upper):
    factor = adjoint.arrays(factor) if upper else factor
    y = _triangular_arrays(factor, b, False, True, False)
    return _triangular_arrays(adjoint.arrays(factor), y, True, True, False)


def cholesky_solve_gradient(g, factor, out, upper):
    """(gB, gL) of L L^H X = B: gB solves again, and gL = -(gB X^H + X gB^H) L."""
    gb = _cholesky_solve(g, factor, upper)
    both = hermitian(gb @ adjoint(out))
    return gb, -(factor @ both) if upper else -(both @ factor)


_cholesky_solve = op("cholesky_solve", _cholesky_solve_arrays,
    joint=lambda g, _input, input2, out, upper: cholesky_solve_gradient(g, input2, out, upper),
    holomorphic=False, batch="leading")  # fmt: skip


@public()
def cholesky_solve(input, L, upper=False, *, out=None):
    """X with A X = input, from the Cholesky factor L of A. (*, N, K), (*, N, N) -> (*, N, K). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(L, Tensor)):
        raise not_tensor("cholesky_solve", input=input, L=L)
    input, L = _check_older(input, L, "cholesky_solve")
    result = _cholesky_solve(input, L, upper)
    return result if out is None else write_out(out, result)


def _cholesky_inverse_arrays(factor, upper):
    if not (diagonal := np.diagonal(factor, 0, -2, -1)).all():
        check_singular(np.where((diagonal == 0).any(-1), (diagonal == 0).argmax(-1) + 1, 0), "cholesky_inverse")
    return _cholesky_solve_arrays(np.broadcast_to(np.eye(factor.shape[-1], dtype=factor.dtype), factor.shape), factor, upper)


def _cholesky_inverse_gradient(g, factor, out, upper):
    both = out @ hermitian(g) @ out
    return -(factor @ both) if upper else -(both @ factor)


_cholesky_inverse = op("cholesky_inverse", _cholesky_inverse_arrays,
    lambda g, input, out, upper: _cholesky_inverse_gradient(g, input, out, upper),
    holomorphic=False, batch="leading")  # fmt: skip


@public()
def cholesky_inverse(input, upper=False, *, out=None):
    """The inverse of A from its Cholesky factor. (*, N, N) -> (*, N, N). Differentiable. LinAlgError if A is singular."""
    check_square(input, "cholesky_inverse", parameter="input")
    check_wide(input, "cholesky_inverse_out_cpu")
    result = _cholesky_inverse(input, upper)
    return result if out is None else write_out(out, result)
