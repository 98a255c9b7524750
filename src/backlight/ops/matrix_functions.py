"""Functions of matrices built on the decompositions: determinant, pseudo-inverse, least squares, exponential, powers, products."""

from __future__ import annotations

import math
from builtins import min as least
from typing import TYPE_CHECKING

import numpy as np

from .. import dtypes
from ..batching import Batched, in_loop, vdot_rule
from ..op import face, op, public, twin, write_out
from ..return_types import return_type
from ..tensor import Tensor
from .arrange import diagonal
from .cast import to
from .check import invalid_combination, not_tensor
from .choose import where
from .decompositions import _no_convergence, linalg_svd
from .join import cat
from .linalg import check_dot
from .matrix import (
    adjoint,
    broadcast_batches,
    check_floating,
    check_matrix,
    check_square,
    check_wide,
    conjugate,
    identity,
    join,
    named,
    or_zeros,
    ports,
)
from .pointwise import log
from .reduce import _others, _others_arrays, sum
from .shape import movedim, reshape, squeeze, unsqueeze
from .solve import _inv, inv, solve
from .sort import cumprod

if TYPE_CHECKING:
    from typing import Any

# Determinants. Jacobi's formula; for singular matrices the adjugate comes from the singular values (N. Higham, "What is the
# adjugate of a matrix?", 2020).


def _cofactor_arrays(a, det):
    if det.all():
        return np.conj(det)[..., None, None] * adjoint.arrays(np.linalg.inv(a))
    u, s, vh = np.linalg.svd(a)
    sign = np.conj(np.linalg.det(u) * np.linalg.det(vh))
    return (u * (sign[..., None] * _others_arrays(s, s.ndim - 1))[..., None, :]) @ vh


@twin(_cofactor_arrays)
def cofactors(a, det):
    """The conjugates of the cofactors: det(A)^* A^-H."""
    if det.array.all():
        return unsqueeze(unsqueeze(conjugate(det), -1), -1) * adjoint(_inv(a, "linalg.inv")[0])
    u, s, vh = linalg_svd(a)
    sign = conjugate(linalg_det(u) * linalg_det(vh))
    return (u * unsqueeze(unsqueeze(sign, -1) * _others(s, s.ndim - 1), -2)) @ vh


def det_gradient(g, a, det):
    g = g[..., None, None]
    return g if a.shape[-1] == 1 else g * cofactors(a, det)


_det = op("linalg_det", lambda a: np.asarray(np.linalg.det(a), a.dtype),
    lambda g, input, out: det_gradient(g, input, out), holomorphic=False, batch="leading")  # fmt: skip


@public(method=False, module="linalg", name="det")
def linalg_det(A, *, out=None):
    """The determinant of square matrices. (*, N, N) -> (*). Differentiable, also for singular matrices.

    >>> import backlight as torch
    >>> torch.linalg.det(torch.tensor([[2., 1.], [0., 3.]]))
    tensor(6.)
    """
    check_square(A, "linalg.det")
    check_floating(A, "linalg.det")
    check_wide(A, "lu_cpu")
    result = _det(A)
    return result if out is None else write_out(out, result)


@public()
def det(input):
    """linalg.det."""
    return linalg_det(input)


def _slogdet_arrays(a):
    sign, logarithm = np.linalg.slogdet(a)
    return np.asarray(sign, a.dtype), np.asarray(logarithm, a.real.dtype)


def slogdet_gradient(g, a, out):
    """(g_log + i Im(sign^* g_sign)) A^-H; the sign of a real determinant has no gradient."""
    total = or_zeros(g[1], out[1])
    if g[0] is not None:
        total = total + phase_part(conjugate(out[0]) * g[0])
    return total[..., None, None] * adjoint(_inv(a, None)[0])


@twin(lambda z: 1j * z.imag if z.dtype.kind == "c" else np.zeros_like(z))
def phase_part(z):
    """The imaginary part, times i."""
    return z - to(z.real, z.dtype) if z.dtype.is_complex else z * 0


_slogdet = op("linalg_slogdet", _slogdet_arrays, lambda g, input, out: slogdet_gradient(g, input, ports(out)), outputs=2,
              holomorphic=False, batch="leading")  # fmt: skip
LinalgSlogdet = return_type("linalg_slogdet", "sign", "logabsdet")
Slogdet = return_type("slogdet", "sign", "logabsdet")


def _checked_slogdet(a, name, function=None):
    check_square(a, name, function=function)
    check_floating(a, name, low=False)
    return _slogdet(a)


@public(method=False, module="linalg", name="slogdet")
def linalg_slogdet(A, *, out=None) -> Any:
    """(sign, logabsdet): the determinant's sign (or phase) and the logarithm of its absolute value. (*, N, N). Differentiable."""
    return named(LinalgSlogdet, _checked_slogdet(A, "linalg.slogdet"), out)


@public()
def slogdet(input, *, out=None) -> Any:
    """linalg.slogdet."""
    return named(Slogdet, _checked_slogdet(input, "linalg.slogdet"), out)


@public()
def logdet(input):
    """The logarithm of the determinant; NaN where it is negative. (*, N, N) -> (*). Differentiable."""
    sign, logarithm = _checked_slogdet(input, "logdet")
    if input.dtype.is_complex:
        return log(sign) + logarithm
    return where(sign == -1.0, float("nan"), logarithm)


# The pseudo-inverse and least squares. Gradient: G. Golub and V. Pereyra, "The differentiation of pseudo-inverses" (1973), eq. 4.12.


def _cutoff(s, shape, atol, rtol):
    """Singular values up to this count as zero."""
    if rtol is None:
        rtol = np.finfo(s.dtype).eps * max(shape[-2:]) if atol is None or not np.any(atol) else 0.0
    largest = s.max(-1, initial=0)
    return np.maximum(0.0 if atol is None else atol, np.asarray(rtol, s.dtype) * largest)


def _svd(a):
    try:
        return np.linalg.svd(a, full_matrices=False)
    except np.linalg.LinAlgError:
        raise _no_convergence(a) from None


def _pinv_arrays(a, atol, rtol, hermitian):
    if not a.size:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        s, u = np.linalg.eigh(a)
        size, vh = np.abs(s), adjoint.arrays(u)
    else:
        u, s, vh = _svd(a)
        size = s
    kept = size > _cutoff(size, a.shape, atol, rtol)[..., None]
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
    return (adjoint.arrays(vh) * inverse[..., None, :]) @ adjoint.arrays(u)


def pinv_gradient(g, a, p):
    """-P^H G P^H + (1 - A P) G^H P P^H + P^H P G^H (1 - P A)."""
    ph, gh = adjoint(p), adjoint(g)
    left, right = gh @ (p @ ph), (ph @ p) @ gh
    return left - a @ (p @ left) + right - (right @ p) @ a - ph @ g @ ph


_pinv = op("linalg_pinv", _pinv_arrays, lambda g, input, out, _atol, _rtol, _hermitian: pinv_gradient(g, input, out),
           holomorphic=False, batch="leading")  # fmt: skip


def _tolerance(value):
    return value.array if isinstance(value, Tensor) else value


def _both(function, first, atol, rtol):
    """The older positional tolerance as rtol."""
    if first is not None and (atol is not None or rtol is not None):
        raise TypeError(
            f"{function}() received an invalid combination of arguments - got (Tensor, {type(first).__name__}, ...)"
        )


@public(method=False, module="linalg")
def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None, out=None):
    """The pseudo-inverse (Moore and Penrose). (*, M, N) -> (*, N, M). Differentiable while the rank doesn't change.

    Singular values up to max(atol, rtol * the largest) count as zero; rtol is max(M, N) * eps unless one is given.

    >>> import backlight as torch
    >>> torch.linalg.pinv(torch.tensor([[2., 0.], [0., 0.]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    if not isinstance(A, Tensor):
        raise invalid_combination("linalg_pinv", A)
    _both("linalg_pinv", rcond, atol, rtol)
    if any(isinstance(v, Batched) for v in (rcond, atol, rtol)):
        return in_loop(pinv)(A, rcond, hermitian, atol=atol, rtol=rtol)
    if A.array.ndim < 2 or A.array.dtype.char not in "fdFD":
        raise RuntimeError(f"linalg.pinv({dtypes.scalar_type_name(A.dtype)}{{{list(A.array.shape)}}}): expected a tensor with 2 or "
                           "more dimensions of float, double, cfloat or cdouble types")  # fmt: skip
    if hermitian:
        check_square(A, "linalg.eigh")
    result = _pinv(A, _tolerance(atol), _tolerance(rtol if rcond is None else rcond), hermitian)
    return result if out is None else write_out(out, result)


@public()
def pinverse(input, rcond=1e-15):
    """linalg.pinv under its older name."""
    return pinv(input, rcond)


def _lstsq_arrays(a, b, vector, rcond, driver):
    if vector:
        x, *rest = _lstsq_arrays(a, b[..., None], False, rcond, driver)
        return (x[..., 0], *rest)
    m, n = a.shape[-2:]
    u, s, vh = _svd(a)
    rtol = np.finfo(s.dtype).eps * max(m, n) if rcond is None else rcond
    kept = s > rtol * s.max(-1, initial=0)[..., None]
    if driver == "gels":
        kept = np.ones_like(kept)
    inverse = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
    x = adjoint.arrays(vh) @ (inverse[..., None] * (adjoint.arrays(u) @ b))
    none, rank = np.empty((0,), s.dtype), np.asarray(kept.sum(-1))
    residuals = none
    if m > n and driver != "gelsy" and (driver == "gels" or kept.all()):
        residuals = (np.abs(b - a @ x) ** 2).sum(-2)
    if driver == "gels":
        return x, residuals, np.empty((0,), np.int64), none
    return x, residuals, rank, none if driver == "gelsy" else s


def lstsq_gradient(g, a, b, out, vector):
    """X = pinv(A) B, so it goes through pinv; the residuals |AX - B|^2 don't change with X to first order."""
    x = out[0]
    gx, gr = g[0], g[1]
    if vector:
        b, x, gx = b[..., None], x[..., None], None if gx is None else gx[..., None]
    ga = gb = 0
    if gx is not None:
        p = _pinv(a, None, None, False)
        ga, gb = pinv_gradient(gx @ adjoint(b), a, p), adjoint(p) @ gx
    if gr is not None and out[1].shape != (0,):
        error = 2 * (a @ x - b) * gr[..., None, :]
        ga, gb = ga + error @ adjoint(x), gb - error
    return ga, gb[..., 0] if vector else gb


_lstsq = op("linalg_lstsq", _lstsq_arrays,
    joint=lambda g, input, b, out, vector, _rcond, _driver: lstsq_gradient(g, input, b, ports(out), vector),
    outputs=4, nondifferentiable=(2, 3), holomorphic=False)  # fmt: skip
Lstsq = return_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


@public(method=False, module="linalg")
def lstsq(A, B, rcond=None, *, driver=None, out=None) -> Any:
    """(solution, residuals, rank, singular_values) of least squares: the X that makes |A X - B| smallest. Differentiable.

    (*, M, N), (*, M, K) or (*, M). driver: "gelsy" (the default: no residuals), "gels", "gelsd" or "gelss".
    """
    name = "torch.linalg.lstsq"
    if not (isinstance(A, Tensor) and isinstance(B, Tensor)):
        raise not_tensor("linalg_lstsq", A=A, b=B)
    a, b = A.array, B.array
    if a.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if b.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if a.dtype.char not in "fdFD":
        raise RuntimeError("This function doesn't handle types other than float and double")
    if a.dtype != b.dtype:
        kinds = [dtypes.scalar_type_name(x.dtype) for x in (A, B)]
        raise RuntimeError(f"{name}: Expected input and other to have the same dtype, but got input's dtype {kinds[0]} and other's "
                           f"dtype {kinds[1]}")  # fmt: skip
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    side = -1 if vector else -2
    if a.shape[-2] != b.shape[side]:
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({side})")
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    if not vector:
        A, B = broadcast_batches(A, B)
    elif a.ndim > 2 and b.ndim == 1:
        A, B = broadcast_batches(A, unsqueeze(B, -1))
        B = squeeze(B, -1)
    return named(Lstsq, _lstsq(A, B, vector, rcond, driver or "gelsy"), out)


def _rank_arrays(a, atol, rtol, hermitian):
    if not a.size:
        return np.zeros(a.shape[:-2], np.int64)
    try:
        s = np.abs(np.linalg.eigvalsh(a)) if hermitian else np.linalg.svd(a, compute_uv=False)
    except np.linalg.LinAlgError:
        raise _no_convergence(a) from None
    return np.asarray((s > _cutoff(s, a.shape, atol, rtol)[..., None]).sum(-1))


_rank = op("linalg_matrix_rank", _rank_arrays, None, batch="leading")


@public(method=False, module="linalg")
def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None, out=None):
    """How many singular values are larger than max(atol, rtol * the largest). (*, M, N) -> (*) int64. No gradient."""
    if not isinstance(A, Tensor):
        raise invalid_combination("linalg_matrix_rank", A)
    _both("linalg_matrix_rank", tol, atol, rtol)
    if any(isinstance(v, Batched) for v in (tol, atol, rtol)):
        return in_loop(matrix_rank)(A, tol, hermitian, atol=atol, rtol=rtol)
    check_matrix(A, "torch.linalg.matrix_rank", "input")
    if A.array.dtype.char not in "fdFD":
        raise RuntimeError("This function doesn't handle types other than float and double")
    if hermitian:
        check_square(A, "linalg.eigh")
    atol = atol if tol is None else tol
    result = _rank(A.detach(), _tolerance(atol), 0.0 if tol is not None else _tolerance(rtol), hermitian)
    return result if out is None else write_out(out, result)


# The exponential: N. Higham, "The scaling and squaring method for the matrix exponential revisited" (2005), algorithm 2.3
# with the Pade approximation of degree 13 throughout

PADE = (64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
        670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0)  # fmt: skip
LARGEST = 5.371920351148152  # the norm up to which that approximation is exact to double precision


def _matrix_exp_arrays(a):
    if a.dtype.itemsize == 2:
        return _matrix_exp_arrays(a.astype(np.float32)).astype(a.dtype)
    if not a.size:
        return a.copy()
    norm = np.abs(a).sum(-2).max(-1)
    halvings = np.ceil(np.log2(np.maximum(np.where(np.isfinite(norm), norm, 1) / LARGEST, 1))).astype(int)
    x = a * (0.5**halvings).astype(a.real.dtype)[..., None, None]
    one = np.eye(a.shape[-1], dtype=a.dtype)
    x2 = x @ x
    x4, b = x2 @ x2, PADE
    x6 = x4 @ x2
    odd = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one)
    even = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    result = np.linalg.solve(even - odd, even + odd)
    for i in range(halvings.max()):
        result = np.where((i < halvings)[..., None, None], result @ result, result)
    return result


def matrix_exp_gradient(g, a):
    """The upper right block of exp([[A^H, g], [0, A^H]]) (N. Higham, "Functions of Matrices", 2008, eq. 3.16)."""
    n, ah = a.shape[-1], adjoint(a)
    block = join((join((ah, g), -1), join((ah * 0, ah), -1)), -2)
    return _matrix_exp(block)[..., :n, n:]


_matrix_exp = op("linalg_matrix_exp", _matrix_exp_arrays, lambda g, input, _out: matrix_exp_gradient(g, input),
                 holomorphic=False, batch="leading")  # fmt: skip


@public()
def matrix_exp(input):
    """The exponential of square matrices, 1 + A + A^2 / 2 + ... (*, N, N) -> (*, N, N). Differentiable.

    >>> import backlight as torch
    >>> torch.matrix_exp(torch.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    check_square(input, "linalg.matrix_exp", parameter="input")
    check_floating(input, "linalg.matrix_exp")
    return _matrix_exp(input)


@public()
def matrix_power(input, n, *, out=None):
    """The n-th power of square matrices; of the inverse if n is negative. Differentiable.

    >>> import backlight as torch
    >>> torch.matrix_power(torch.tensor([[1, 1], [0, 1]]), 5)
    tensor([[1, 5],
            [0, 1]])
    """
    check_square(input, "linalg.matrix_power")
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"linalg_matrix_power(): argument 'n' (position 2) must be int, not {type(n).__name__}")
    result = _power(input if n >= 0 else inv(input), n if n >= 0 else -n)
    return result if out is None else write_out(out, result)


def _power(x, n):
    if n == 0 and x.array.size:
        return x.clone(memory_format=dtypes.contiguous_format).copy_(identity(x, x.array.shape[-1], x.array.shape[-1]))
    if n == 1 or not x.array.size:
        return x.clone()
    if n == 3:
        return (x @ x) @ x
    result = None
    while n:  # binary powering
        if n & 1:
            result = x if result is None else result @ x
        n >>= 1
        if n:
            x = x @ x
    return result


for _function in (matrix_exp, matrix_power):
    face(_function, name=_function.__name__, module="linalg", method=False)


# Products and systems of tensors


def _chain(tensors, dims):
    """The product in the cheapest order (T. Cormen et al., "Introduction to Algorithms", section 15.2)."""
    n = len(tensors)
    cost, split = [[0] * n for _ in range(n)], [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], split[i][j] = least(
                (cost[i][k] + cost[k + 1][j] + dims[i] * dims[k + 1] * dims[j + 1], k) for k in range(i, j)
            )

    def product(i, j):
        return tensors[i] if i == j else product(i, split[i][j]) @ product(split[i][j] + 1, j)

    return product(0, n - 1)


@public(method=False, module="linalg")
def multi_dot(tensors, *, out=None):
    """The product of several matrices, in the cheapest order; the first and the last may be vectors. Differentiable in all."""
    if not isinstance(tensors, (tuple, list)):
        raise TypeError("linalg_multi_dot(): argument 'tensors' (position 1) must be tuple of Tensors, not "
                        f"{type(tensors).__name__}")  # fmt: skip
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    first, last = tensors[0], tensors[-1]
    for i, x in enumerate(tensors):
        if x.array.ndim != 2 and not (x.array.ndim == 1 and i in (0, len(tensors) - 1)):
            need = "1D or 2D" if i in (0, len(tensors) - 1) else "2D"
            raise RuntimeError(f"multi_dot(): tensor {i} must be {need} but got {x.array.ndim}D")
        if x.array.dtype != first.array.dtype:
            kinds = [dtypes.scalar_type_name(v.dtype).lower() for v in (first, x)]
            raise RuntimeError(f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {kinds[0]} and tensor {i} "
                               f"{kinds[1]}")  # fmt: skip
    shape = first.array.shape[:-1] + last.array.shape[1:]
    matrices = list(tensors)
    matrices[0] = unsqueeze(first, 0) if first.array.ndim == 1 else first
    matrices[-1] = unsqueeze(last, -1) if last.array.ndim == 1 else last
    for i, (x, y) in enumerate(zip(matrices[:-1], matrices[1:], strict=True)):
        if x.array.shape[-1] != y.array.shape[0]:
            raise RuntimeError(f"multi_dot(): tensors {i} and {i + 1} with shapes {list(x.array.shape)} and {list(y.array.shape)} "
                               "cannot be multiplied")  # fmt: skip
    result = _chain(matrices, [x.array.shape[0] for x in matrices] + [matrices[-1].array.shape[1]]).view(shape)
    return result if out is None else write_out(out, result)


@public(method=False)
def chain_matmul(*matrices, out=None):
    """linalg.multi_dot of the arguments, under its older name."""
    for x in matrices:
        if x.array.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {x.array.ndim}, expected 2 instead.")
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices, out=out)


@public(method=False, module="linalg")
def tensorinv(A, ind=2, *, out=None):
    """The inverse of tensordot(A, ., ind): A's first `ind` dimensions have the size of the others. Differentiable."""
    if not isinstance(A, Tensor):
        raise not_tensor("linalg_tensorinv", input=A)
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    shape = A.array.shape
    if ind > len(shape):
        raise RuntimeError(f"ArrayRef: invalid slice, N = {ind}; size = {len(shape)}")
    rows, columns = math.prod(shape[:ind]), math.prod(shape[ind:])
    if rows != columns:
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
                           f"{columns} != {rows}")  # fmt: skip
    result = reshape(inv(reshape(A, (rows, columns))), shape[ind:] + shape[:ind])
    return result if out is None else write_out(out, result)


@public(method=False, module="linalg")
def tensorsolve(A, B, dims=None, *, out=None):
    """X with tensordot(A, X, X.ndim) = B; `dims` of A are moved to its end first. Differentiable in both."""
    if not (isinstance(A, Tensor) and isinstance(B, Tensor)):
        raise not_tensor("linalg_tensorsolve", input=A, other=B)
    if dims is not None:
        n = A.array.ndim
        A = movedim(A, tuple(dims), tuple(range(n - len(dims), n)))
    shape = A.array.shape[B.array.ndim :]
    if math.prod(shape) != B.array.size or A.array.size != B.array.size**2:
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
                           f"but got {math.prod(shape)} != {B.array.size}")  # fmt: skip
    result = reshape(solve(reshape(A, (math.prod(shape),) * 2), reshape(B, (-1,))), shape)
    return result if out is None else write_out(out, result)


@public(method=False, module="linalg")
def vander(x, N=None):
    """Rows of the powers 1, x, x^2, ..., x^(N-1); N is the number of elements if None. (*, M) -> (*, M, N). Differentiable.

    >>> import backlight as torch
    >>> torch.linalg.vander(torch.tensor([2, 3]), N=3)
    tensor([[1, 2, 4],
            [1, 3, 9]])
    """
    if not isinstance(x, Tensor):
        raise not_tensor("linalg_vander", x=x)
    if x.array.dtype.kind == "b" or x.array.dtype.itemsize == 2 and x.array.dtype.kind in "fV":
        raise RuntimeError("linalg.vander supports floating point, complex, and integer tensors, but got "
                           f"{dtypes.scalar_type_name(x.dtype)}")  # fmt: skip
    n = N if N is not None else x.array.shape[-1] if x.array.ndim else 0
    if n <= 1:
        raise RuntimeError("N must be greater than 1.")
    x = unsqueeze(x, -1)
    powers = cumprod(x.expand(*(x.array.shape[:-1] or (1,)), n - 1), -1)
    return cat([powers.new_ones((*powers.array.shape[:-1], 1)), powers], -1)


@public(method=False, module="linalg")
def vecdot(x, y, *, dim=-1, out=None):
    """The sum of conj(x) * y along `dim`, with broadcasting. Differentiable in both."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor)):
        raise not_tensor("linalg_vecdot", x=x, y=y)
    check_floating(x, "linalg.vecdot")
    if x.array.dtype != y.array.dtype:
        kinds = [dtypes.scalar_type_name(v.dtype) for v in (x, y)]
        raise RuntimeError(f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {kinds[0]} and y of type "
                           f"{kinds[1]} instead")  # fmt: skip
    result = sum(conjugate(x) * y, dim)
    return result if out is None else write_out(out, result)


@public(method=False, module="linalg", name="diagonal")
def linalg_diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    """The diagonals of matrices, a view. (*, M, N) -> (*, K). Differentiable."""
    if not isinstance(A, Tensor):
        raise not_tensor("linalg_diagonal", A=A)
    return diagonal(A, offset, dim1, dim2)


_vdot = op("vdot", lambda a, b: np.asarray(np.vdot(a, b)),
    lambda g, _input, other, _out: conjugate(g) * other,
    lambda g, input, _other, _out: g * input, holomorphic=False, batch=vdot_rule)  # fmt: skip


@public()
def vdot(input, other, *, out=None):
    """The sum of conj(input) * other for two vectors. (N), (N) -> (). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("vdot", input=input, other=other)
    check_dot(input, other, "vdot")
    result = _vdot(input, other)
    return result if out is None else write_out(out, result)
