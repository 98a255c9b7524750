"""The LDL decomposition of symmetric and Hermitian matrices that needn't be positive definite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import dtypes
from ..batching import all_values
from ..op import op, public, write_out
from ..return_types import return_type
from ..tensor import Tensor
from .check import not_tensor
from .matrix import broadcast_batches, check_floating, check_square, check_wide, first_failure, named
from .shape import squeeze, unsqueeze

if TYPE_CHECKING:
    from typing import Any

# J. Bunch and L. Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems" (1977), in the
# storage of LAPACK's sytf2 and hetf2: L below the diagonal of D, whose blocks are 1x1 (pivot > 0) or 2x2 (two equal pivots < 0).

ALPHA = (1 + 17**0.5) / 8  # balances the growth of elements between the two kinds of blocks


def _size(x):
    return np.abs(x.real) + np.abs(x.imag)


def _conj(x, hermitian):
    return x.conj() if hermitian else x


def _pivot(a, k):
    """The row to exchange with and the size of the block at k; (None, 1) for a column of zeros."""
    here, below = _size(a[k, k]), _size(a[k + 1 :, k])
    largest = below.max(initial=0)
    if not max(here, largest) > 0:
        return None, 1
    if here >= ALPHA * largest:
        return k, 1
    i = k + 1 + int(below.argmax())
    row = max(_size(a[i, k:i]).max(initial=0), _size(a[i + 1 :, i]).max(initial=0))
    if here >= ALPHA * largest * (largest / row):
        return k, 1
    return i, 1 if _size(a[i, i]) >= ALPHA * row else 2


def _exchange(a, p, q, k, hermitian):
    """Exchanges rows and columns p < q of the lower triangle from column k on."""
    a[q + 1 :, [p, q]] = a[q + 1 :, [q, p]]
    middle = a[p + 1 : q, p].copy()
    a[p + 1 : q, p], a[q, p + 1 : q] = _conj(a[q, p + 1 : q], hermitian), _conj(middle, hermitian)
    if hermitian:
        a[q, p] = a[q, p].conj()
    a[p, p], a[q, q] = a[q, q], a[p, p]
    if p > k:
        a[p, k], a[q, k] = a[q, k], a[p, k]


def _factor(a, hermitian):
    """LDL of one matrix: (L and D, pivots, info)."""
    a, n = np.tril(a), len(a)
    pivots, info, k = np.zeros(n, np.int32), 0, 0
    while k < n:
        if hermitian:
            a[k, k] = a[k, k].real
        p, width = _pivot(a, k)
        if p is None:
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        last, rest = k + width - 1, slice(k + width, n)
        if p != last:
            _exchange(a, last, p, k, hermitian)
        block = _block(a, k, width, hermitian)
        columns = a[rest, k : k + width].copy()
        scaled = columns @ np.linalg.inv(block) if width == 2 else columns / block[0, 0]
        a[rest, rest] -= np.tril(scaled @ _conj(columns, hermitian).T)
        a[rest, k : k + width] = scaled
        pivots[k : k + width] = p + 1 if width == 1 else -(p + 1)
        k += width
    return a, pivots, info


def _block(a, k, width, hermitian):
    """The block of D at k in full."""
    if width == 1:
        return np.array([[a[k, k].real if hermitian else a[k, k]]], a.dtype)
    below = a[k + 1, k]
    block = np.array([[a[k, k], _conj(below, hermitian)], [below, a[k + 1, k + 1]]], a.dtype)
    if hermitian:
        np.fill_diagonal(block, block.diagonal().real)
    return block


def _factor_arrays(a, hermitian):
    batch, n = a.shape[:-2], a.shape[-1]
    ld, pivots, info = np.empty(a.shape, a.dtype), np.empty((*batch, n), np.int32), np.empty(batch, np.int32)
    for index in np.ndindex(batch):
        ld[index], pivots[index], info[index] = _factor(a[index], hermitian)
    return ld, pivots, info


def _no_derivative(name):
    raise RuntimeError(f"derivative for aten::{name} is not implemented")


_ldl_factor = op("linalg_ldl_factor_ex", _factor_arrays,
    lambda _g, _input, _out, _hermitian: _no_derivative("linalg_ldl_factor_ex"), nondifferentiable=(1, 2),
    node="NotImplemented", batch="leading")  # fmt: skip
LDLFactor = return_type("linalg_ldl_factor", "LD", "pivots")
LDLFactorEx = return_type("linalg_ldl_factor_ex", "LD", "pivots", "info")


def _checked_factor(a, hermitian, function):
    name = "torch.linalg.ldl_factor_ex"
    check_square(a, name, function=function, parameter="input")
    check_floating(a, name)
    check_wide(a, "ldl_factor_kernel_cpu")
    return _ldl_factor(a, hermitian and a.dtype.is_complex)


@public(method=False, module="linalg")
def ldl_factor(A, *, hermitian=False, out=None) -> Any:
    """(LD, pivots): L D L^T (L D L^H if hermitian) of symmetric matrices, for ldl_solve. (*, N, N). No gradient.

    RuntimeError if D is singular.
    """
    ld, pivots, info = _checked_factor(A, hermitian, "linalg_ldl_factor")
    if failure := first_failure(all_values(info)):
        raise RuntimeError(f"torch.linalg.ldl_factor: {failure[0]}The diagonal element {failure[1]} of D is zero")
    return named(LDLFactor, (ld, pivots), out)


@public(method=False, module="linalg")
def ldl_factor_ex(A, *, hermitian=False, check_errors=False, out=None) -> Any:
    """(LD, pivots, info): ldl_factor without its error; info is 0 or the number of the first zero on D's diagonal."""
    ld, pivots, info = _checked_factor(A, hermitian, "linalg_ldl_factor_ex")
    if check_errors and (failure := first_failure(all_values(info))):
        raise RuntimeError(f"torch.linalg.ldl_factor_ex: {failure[0]}The diagonal element {failure[1]} of D is zero")
    return named(LDLFactorEx, (ld, pivots, info), out)


def _blocks(pivots):
    """(k, width, the row that was exchanged with the block's last one) from the first block to the last."""
    k = 0
    while k < len(pivots):
        width = 1 if pivots[k] > 0 else 2
        yield k, width, abs(int(pivots[k])) - 1
        k += width


def _solve_one(ld, pivots, b, hermitian):
    b, blocks = b.copy(), list(_blocks(pivots))
    for k, width, p in blocks:
        last, rest, here = k + width - 1, slice(k + width, None), slice(k, k + width)
        b[[last, p]] = b[[p, last]]
        b[rest] -= ld[rest, here] @ b[here]
        b[here] = np.linalg.solve(_block(ld, k, width, hermitian), b[here])
    for k, width, p in reversed(blocks):
        last, rest, here = k + width - 1, slice(k + width, None), slice(k, k + width)
        b[here] -= _conj(ld[rest, here], hermitian).T @ b[rest]
        b[[last, p]] = b[[p, last]]
    return b


def _solve_arrays(ld, pivots, b, hermitian):
    x = np.empty(b.shape, b.dtype)
    for index in np.ndindex(b.shape[:-2]):
        x[index] = _solve_one(ld[index], pivots[index], b[index], hermitian)
    return x


_ldl_solve = op("linalg_ldl_solve", _solve_arrays,
    lambda _g, _LD, _pivots, _B, _out, _hermitian: _no_derivative("linalg_ldl_solve"), None,
    lambda _g, _LD, _pivots, _B, _out, _hermitian: _no_derivative("linalg_ldl_solve"),
    node="NotImplemented", promote="keep", batch="leading")  # fmt: skip


@public(method=False, module="linalg")
def ldl_solve(LD, pivots, B, *, hermitian=False, out=None):
    """X with A X = B, from ldl_factor(A). (*, N, N), (*, N), (*, N, K) -> (*, N, K). No gradient."""
    name = "torch.linalg.ldl_solve"
    for argument, x in (("LD", LD), ("pivots", pivots), ("B", B)):
        if not isinstance(x, Tensor):
            raise not_tensor("linalg_ldl_solve", **{argument: x})
    check_square(LD, name, "LD")
    if B.array.ndim < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got -2)")
    if LD.array.shape[-1] != B.array.shape[-2]:
        n, (rows, columns) = LD.array.shape[-1], B.array.shape[-2:]
        raise RuntimeError(f"Incompatible matrix sizes for {name}: each A matrix is {n} by {n} but each b matrix is {rows} by "
                           f"{columns}")  # fmt: skip
    if pivots.array.dtype.kind not in "iu":
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {dtypes.scalar_type_name(pivots.dtype)}")
    if LD.array.dtype != B.array.dtype:
        raise RuntimeError(f"{name}: LD and B must have the same dtype")
    check_wide(LD, "ldl_solve_kernel_cpu")
    LD, B, pivots = broadcast_batches(LD, B, unsqueeze(pivots, -1))
    result = _ldl_solve(LD, squeeze(pivots, -1), B, hermitian and LD.dtype.is_complex)
    return result if out is None else write_out(out, result)
