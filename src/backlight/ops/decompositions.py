"""Matrix decompositions: Cholesky, singular values, eigenvalues, QR. LU is in solve.py, LDL in ldl.py, reflectors in householder.py.

LAPACK is reached through numpy.linalg. The gradients are written for complex matrices, as PyTorch defines them: with
adjoints, so that one formula serves real and complex numbers. Sources are named at each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import dtypes
from ..op import REGISTRY, op, public, twin, write_out
from ..return_types import return_type
from .matrix import (
    LinAlgError,
    adjoint,
    check_floating,
    check_matrix,
    check_square,
    check_wide,
    conjugate,
    diagonal_matrix,
    first_failure,
    identity,
    join,
    lower,
    main_diagonal,
    match_real,
    named,
    or_zeros,
    ports,
    real_part,
)
from .solve import solve_square, triangular

if TYPE_CHECKING:
    from typing import Any

# Cholesky. Gradient: I. Murray, "Differentiation of the Cholesky decomposition" (2016), eq. 10.


def _leading_minor(a):
    """The Cholesky factor of one matrix as far as it exists, and the order of the first minor that isn't positive."""
    a = np.tril(a)
    for j in range(len(a)):
        pivot = a[j, j].real
        if not pivot > 0:
            return a, j + 1
        a[j, j] = np.sqrt(pivot)
        a[j + 1 :, j] /= a[j, j]
        a[j + 1 :, j + 1 :] -= np.tril(np.outer(a[j + 1 :, j], a[j + 1 :, j].conj()))
    return a, 0


def _cholesky_arrays(a, upper, name):
    a = adjoint.arrays(a) if upper else a
    info = np.zeros(a.shape[:-2], np.int32)
    try:
        factor = np.linalg.cholesky(a)
        failed = not np.diagonal(factor, 0, -2, -1).real.sum() >= 0  # NaN passes through LAPACK
    except np.linalg.LinAlgError:
        failed = True
    if failed:
        factor = np.empty(a.shape, a.dtype)
        for index in np.ndindex(info.shape):
            factor[index], info[index] = _leading_minor(a[index])
    if name and (failure := first_failure(info)):
        raise LinAlgError(f"{name}: {failure[0]}The factorization could not be completed because the input is not "
                          f"positive-definite (the leading minor of order {failure[1]} is not positive-definite).")  # fmt: skip
    return adjoint.arrays(factor) if upper else factor, info


def cholesky_gradient(g, factor, upper):
    """Through A = L L^H: L^-H phi L^-1 / 2, where phi is L^H g with the lower half mirrored."""
    if upper:
        g, factor = adjoint(g), adjoint(factor)
    phi = adjoint(factor) @ g
    phi = lower(phi) + adjoint(lower(phi, -1))
    half = triangular(adjoint(factor), phi, True, True, False)
    return 0.5 * triangular(factor, half, False, False, False)


def _cholesky_op(name):
    return op(name, _cholesky_arrays,
        lambda g, _input, out, upper, _name: cholesky_gradient(g, out[0], upper),
        nondifferentiable=(1,), holomorphic=False, batch="leading")  # fmt: skip


_cholesky_ex, _cholesky = _cholesky_op("linalg_cholesky_ex"), _cholesky_op("cholesky")
CholeskyEx = return_type("linalg_cholesky_ex", "L", "info")


@public(method=False, module="linalg", name="cholesky")
def linalg_cholesky(input, *, upper=False, out=None):
    """The lower triangular L with L L^H = input (or the upper U with U^H U). (*, N, N) -> (*, N, N). Differentiable.

    LinAlgError unless input is positive definite. Only one triangle of it is read.

    >>> import backlight as torch
    >>> torch.linalg.cholesky(torch.tensor([[4., 2.], [2., 5.]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    result = _checked_cholesky(input, upper, "linalg_cholesky", "linalg.cholesky")[0]
    return result if out is None else write_out(out, result)


@public(method=False, module="linalg")
def cholesky_ex(input, *, upper=False, check_errors=False, out=None) -> Any:
    """(L, info): cholesky without its error; info is 0, or the order of the first minor that isn't positive. Differentiable."""
    result = _checked_cholesky(input, upper, "linalg_cholesky_ex", "linalg.cholesky" if check_errors else None)
    return named(CholeskyEx, result, out)


def _checked_cholesky(input, upper, function, name):
    check_square(input, "linalg.cholesky", function=function, parameter="input")
    check_floating(input, "linalg.cholesky")
    check_wide(input, "cholesky_cpu")
    return _cholesky_ex(input, upper, name)


@public()
def cholesky(input, upper=False, *, out=None):
    """linalg.cholesky under its older name. Differentiable."""
    check_square(input, "cholesky", parameter="input")
    check_wide(input, "cholesky_cpu")
    result = _cholesky(input, upper, "cholesky")[0]
    return result if out is None else write_out(out, result)


# QR. Gradient: D. and J. Roberts, "QR and LQ decomposition matrix backpropagation algorithms" (2020), section 3.


def _qr_arrays(a, mode):
    if mode == "r":
        return np.empty((0,), a.dtype), np.linalg.qr(a, "r")
    q, r = np.linalg.qr(a, mode)
    return q, r


def qr_gradient(g, out, mode):
    """With M = R gR^H - gQ^H Q: (gQ + Q copyltu(M)) R^-H; columns beyond a square matrix add to gQ first."""
    q, r = out
    if mode == "r":
        raise RuntimeError("The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
                           "linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr.")  # fmt: skip
    m, n = q.shape[-2], r.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    gq, gr = or_zeros(g[0], q), or_zeros(g[1], r)
    if m >= n:
        return _qr_core(gq, gr, q, r)
    square, rest, grest = r[..., :m], r[..., m:], gr[..., m:]
    return join((_qr_core(gq + q @ (rest @ adjoint(grest)), gr[..., :m], q, square), q @ grest), -1)


def _qr_core(gq, gr, q, r):
    m = r @ adjoint(gr) - adjoint(gq) @ q
    copied = lower(m, -1)
    copied = copied + adjoint(copied) + diagonal_matrix(real_part(main_diagonal(m)))
    return triangular(adjoint(r), gq + q @ copied, False, False, False)


_qr = op("linalg_qr", _qr_arrays, lambda g, _input, out, mode: qr_gradient(g, ports(out), mode), outputs=2, holomorphic=False,
         batch="leading")  # fmt: skip
LinalgQR, QR = return_type("linalg_qr", "Q", "R"), return_type("qr", "Q", "R")


@public(method=False, module="linalg", name="qr")
def linalg_qr(A, mode="reduced", *, out=None) -> Any:
    """(Q, R): orthonormal columns times an upper triangular matrix. (*, M, N). Differentiable (not mode "r").

    mode: "reduced" (K = min(M, N) columns in Q), "complete" (M columns) or "r" (only R; Q is empty).

    >>> import backlight as torch
    >>> torch.linalg.qr(torch.tensor([[3., 1.], [4., 2.]])).R
    tensor([[-5.0000, -2.2000],
            [ 0.0000,  0.4000]])
    """
    return named(LinalgQR, _checked_qr(A, mode), out)


def _checked_qr(a, mode):
    check_matrix(a, "linalg.qr")
    check_floating(a, "linalg.qr")
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    check_wide(a, "geqrf_cpu")
    return _qr(a, mode)


@public()
def qr(input, some=True, *, out=None) -> Any:
    """linalg.qr under its older name: some=False is mode "complete". Differentiable."""
    return named(QR, _checked_qr(input, "reduced" if some else "complete"), out)


# Singular values. Gradient: J. Townsend, "Differentiating the singular value decomposition" (2016), and for complex
# matrices Z.-Q. Wan and S.-X. Zhang, "Automatic differentiation for complex valued SVD" (2019).


def _svd_arrays(a, full):
    try:
        return np.linalg.svd(a, full)
    except np.linalg.LinAlgError:
        raise _no_convergence(a) from None


def _no_convergence(a):
    bad = ~np.isfinite(a).all((-1, -2))
    words = f"(Batch element {np.flatnonzero(bad)[0]}): " if bad.ndim and bad.any() else ""
    why = "the input matrix contained non-finite values" if bad.any() else \
        "the input matrix is ill-conditioned or has too many repeated singular values"  # fmt: skip
    return LinAlgError(f"linalg.svd: {words}The algorithm failed to converge because {why}.")


def apart(x, squares):
    """1 / (x_j - x_i) (of their squares if `squares`) for i != j, and zeros on the diagonal."""
    row, column = x[..., None, :], x[..., :, None]
    one = identity(x, x.shape[-1], x.shape[-1])
    return (1 - one) / ((row - column) * (row + column) + one if squares else row - column + one)


def svd_gradient(g, out):
    """The gradient of A from those of U, S and V^H. Undefined where singular values are equal, or zero beside U and V."""
    (gu, gs, gvh), (u, s, vh) = g, out
    m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
    gs = or_zeros(gs, s)
    u, vh = u[..., :k], vh[..., :k, :]
    if gu is None and gvh is None:
        return (u * gs[..., None, :]) @ vh
    inner = diagonal_matrix(gs)
    phase = 0
    if gu is not None:
        gu = gu[..., :k]
        turn = adjoint(u) @ gu
        inner = inner + (turn - adjoint(turn)) * apart(s, True) * s[..., None, :]
        phase = phase + main_diagonal(turn)
        phase_u = main_diagonal(turn)
    if gvh is not None:
        gv, v = adjoint(gvh[..., :k, :]), adjoint(vh)
        turn_v = adjoint(v) @ gv
        inner = inner + (turn_v - adjoint(turn_v)) * apart(s, True) * s[..., :, None]
        phase = phase + main_diagonal(turn_v)
    check_phase(phase, "svd_backward", "singular vectors", "phase term, making it", "ill-defined")
    if gu is not None:
        inner = inner + diagonal_matrix((phase_u - real_part(phase_u)) / s)
    result = u @ inner @ vh
    if gu is not None and m > k:
        result = result + ((gu - u @ turn) / s[..., None, :]) @ vh
    if gvh is not None and n > k:
        result = result + (u / s[..., None, :]) @ adjoint(gv - v @ turn_v)
    return result


def _check_phase_arrays(phase, function, what, depends, end):
    if phase.dtype.kind == "c" and not np.allclose(phase.imag, 0, rtol=1e-2, atol=1e-2):
        raise RuntimeError(f"{function}: The {what} in the complex case are specified up to multiplication by e^{{i phi}}. The "
                           f"specified loss function depends on this {depends} {end}.")  # fmt: skip


@twin(_check_phase_arrays)
def check_phase(phase, function, what, depends, end):
    """RuntimeError if a loss depends on the phases of complex vectors, which are arbitrary."""
    _check_phase_arrays(phase.array, function, what, depends, end)


_svd = op("linalg_svd", _svd_arrays, lambda g, _input, out, _full: svd_gradient(g, ports(out)), outputs=3, holomorphic=False,
          batch="leading")  # fmt: skip


def _svdvals_arrays(a):
    try:
        return np.linalg.svd(a, compute_uv=False)
    except np.linalg.LinAlgError:
        raise _no_convergence(a) from None


def svdvals_gradient(g, a):
    u, _s, vh = _svd(a, False)
    return (u * g[..., None, :]) @ vh


_svdvals = op("linalg_svdvals", _svdvals_arrays, lambda g, input, _out: svdvals_gradient(g, input), node="LinalgSvdBackward0",
              holomorphic=False, batch="leading")  # fmt: skip
LinalgSVD, SVD = return_type("linalg_svd", "U", "S", "Vh"), return_type("svd", "U", "S", "V")


def _check_svd(a, function, driver=None):
    check_matrix(a, "linalg.svd", function=function)
    check_floating(a, "linalg.svd")
    if driver is not None:
        raise RuntimeError(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
        )
    check_wide(a, "linalg_svd_cpu")


@public(method=False, module="linalg", name="svd")
def linalg_svd(A, full_matrices=True, *, driver=None, out=None) -> Any:
    """(U, S, Vh) with A = U diag(S) Vh, the singular values S in descending order. (*, M, N). Differentiable.

    The gradient exists for the reduced vectors where the singular values differ; LinAlgError for NaN and infinity.

    >>> import backlight as torch
    >>> torch.linalg.svd(torch.tensor([[0., 2.], [1., 0.]])).S
    tensor([2., 1.])
    """
    _check_svd(A, "linalg_svd", driver)
    return named(LinalgSVD, _svd(A, full_matrices), out)


@public(method=False, module="linalg")
def svdvals(A, *, driver=None, out=None):
    """The singular values in descending order. (*, M, N) -> (*, min(M, N)). Differentiable."""
    _check_svd(A, "linalg_svdvals", driver)
    result = _svdvals(A)
    return result if out is None else write_out(out, result)


@public()
def svd(input, some=True, compute_uv=True, *, out=None) -> Any:
    """(U, S, V) with input = U diag(S) V^H. linalg.svd in its older form: `some` asks for the reduced vectors. Differentiable."""
    if input.array.ndim < 2:
        raise RuntimeError(
            f"linalg.svd: input should have at least 2 dimensions, but has {input.array.ndim} dimensions instead"
        )
    _check_svd(input, "svd")
    if not compute_uv:
        m, n = input.array.shape[-2:]
        vectors = [input.detach().new_zeros((*input.array.shape[:-2], k, k)) for k in (m, n)]
        return named(SVD, (vectors[0], _svdvals(input.detach()), vectors[1]), out)
    u, s, vh = _svd(input, not some)
    return named(SVD, (u, s, adjoint(vh)), out)


def _low_rank(a, q, niter, m):
    """N. Halko, P. Martinsson, J. Tropp, "Finding structure with randomness" (2009), algorithms 4.4 and 5.1."""
    q = 6 if q is None else q
    rows, columns = a.array.shape[-2:]
    if rows < columns:
        a = adjoint(a)
        m = None if m is None else adjoint(m)
    a = a if m is None else a - m
    basis = linalg_qr(a @ REGISTRY["randn"](a.array.shape[-1], q, dtype=a.dtype)).Q
    for _ in range(niter):
        basis = linalg_qr(adjoint(a) @ basis).Q
        basis = linalg_qr(a @ basis).Q
    u, s, vh = _svd(adjoint(basis) @ a, False)
    u, v = basis @ u, adjoint(vh)
    return (v, s, u) if rows < columns else (u, s, v)


@public(method=False)
def svd_lowrank(A, q=6, niter=2, M=None) -> Any:
    """(U, S, V): about the q largest singular values of A - M, by random projection. Differentiable."""
    return _low_rank(A, q, niter, M)


@public(method=False)
def pca_lowrank(A, q=None, center=True, niter=2) -> Any:
    """(U, S, V): about the q first principal components of the rows of A. Differentiable."""
    m, n = A.array.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if not niter >= 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return _low_rank(A - A.mean(-2, True) if center else A, q, niter, None)


# Eigenvalues. Gradients: M. Giles, "Collected matrix derivative results" (2008), section 3.1, with the eigenvectors' norm
# fixed as in C. Boeddeker et al., "On the computation of complex-valued gradients" (2017), section 4.15.


def eigh_gradient(g, out):
    """V (diag(gL) + skew(V^H gV) / (l_j - l_i)) V^H, the Hermitian one of the gradients that fit."""
    (gl, gv), (values, v) = g, out
    gl = or_zeros(gl, values)
    if gv is None:
        return (v * gl[..., None, :]) @ adjoint(v)
    turn = adjoint(v) @ gv
    check_phase(main_diagonal(turn), "linalg_eigh_backward", "eigenvectors", "quantity, so it is", "ill-defined")
    return v @ (0.5 * (turn - adjoint(turn)) * apart(values, False) + diagonal_matrix(gl)) @ adjoint(v)


def eig_gradient(g, input, out):
    """V^-H (diag(gL) + (V^H gV - V^H V Re diag(V^H gV)) / conj(l_j - l_i)) V^H."""
    (gl, gv), (values, v) = g, out
    inner = diagonal_matrix(or_zeros(gl, values))
    if gv is not None:
        turn = adjoint(v) @ gv
        check_phase(main_diagonal(turn), "linalg_eig_backward", "eigenvectors", "quantity, so it is", "ill-defined")
        turn = turn - (adjoint(v) @ v) * real_part(main_diagonal(turn))[..., None, :]
        inner = inner + turn * apart(conjugate(values), False)
    return match_real(solve_square(adjoint(v), inner @ adjoint(v)), input)


_eigh = op("linalg_eigh", lambda a, uplo: tuple(np.linalg.eigh(a, uplo)), lambda g, _input, out, _uplo: eigh_gradient(g, ports(out)),
           outputs=2, holomorphic=False, batch="leading")  # fmt: skip


def eigvalsh_gradient(g, a, uplo):
    _values, v = _eigh(a, uplo)
    return (v * g[..., None, :]) @ adjoint(v)


_eigvalsh = op("linalg_eigvalsh", lambda a, uplo: np.linalg.eigvalsh(a, uplo),
    lambda g, input, _out, uplo: eigvalsh_gradient(g, input, uplo), node="LinalgEighBackward0", holomorphic=False,
    batch="leading")  # fmt: skip


def _eig_arrays(a):
    if not np.isfinite(a).all():
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    target = np.complex64 if a.dtype in (np.float32, np.complex64) else np.complex128
    values, vectors = np.linalg.eig(a)
    return values.astype(target, copy=False), vectors.astype(target, copy=False)


_eig = op("linalg_eig", _eig_arrays, lambda g, input, out: eig_gradient(g, input, ports(out)), outputs=2, holomorphic=False,
          batch="leading")  # fmt: skip
Eigh = return_type("linalg_eigh", "eigenvalues", "eigenvectors")
Eig = return_type("linalg_eig", "eigenvalues", "eigenvectors")


def _check_eigh(a, uplo, function):
    check_square(a, "linalg.eigh", function=function, parameter="input")
    if uplo.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {uplo}")
    check_wide(a, "linalg_eigh_cpu")
    return a, uplo.upper()


@public(method=False, module="linalg")
def eigh(A, UPLO="L", *, out=None) -> Any:
    """(eigenvalues, eigenvectors) of symmetric or Hermitian matrices, ascending. (*, N, N) -> (*, N), (*, N, N).

    Differentiable where the eigenvalues differ. Only the triangle UPLO is read.

    >>> import backlight as torch
    >>> torch.linalg.eigh(torch.tensor([[2., 0.], [0., 1.]])).eigenvalues
    tensor([1., 2.])
    """
    return named(Eigh, _eigh(*_check_eigh(A, UPLO, "linalg_eigh")), out)


@public(method=False, module="linalg")
def eigvalsh(A, UPLO="L", *, out=None):
    """The eigenvalues of symmetric or Hermitian matrices, ascending. (*, N, N) -> (*, N). Differentiable."""
    result = _eigvalsh(*_check_eigh(A, UPLO, "linalg_eigvalsh"))
    return result if out is None else write_out(out, result)


def _checked_eig(a, name):
    check_square(a, name, parameter="input")
    if a.dtype.category < 2:
        raise RuntimeError(f"Unknown Complex ScalarType for {dtypes.scalar_type_name(a.dtype)}")
    check_wide(a, "linalg_eig_out_cpu")
    return _eig(a)


@public(method=False, module="linalg")
def eig(A, *, out=None) -> Any:
    """(eigenvalues, eigenvectors) of square matrices, complex, in no order. (*, N, N) -> (*, N), (*, N, N). Differentiable.

    RuntimeError for NaN and infinity. The eigenvectors have norm 1; a loss must not depend on their phases.
    """
    return named(Eig, _checked_eig(A, "linalg.eig"), out)


@public(method=False, module="linalg")
def eigvals(A, *, out=None):
    """The eigenvalues of square matrices, complex, in no order. (*, N, N) -> (*, N). Differentiable."""
    result = _checked_eig(A, "linalg.eigvals")[0]
    return result if out is None else write_out(out, result)
