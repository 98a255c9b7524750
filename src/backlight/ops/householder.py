"""Householder reflectors: H_i = 1 - tau_i v_i v_i^H, as LAPACK stores them: v_i below its one on the diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import dtypes
from ..op import arrays_form, face, op, public, write_out
from ..return_types import return_type
from .matrix import adjoint, check_wide, conjugate, identity, join, lower, named

if TYPE_CHECKING:
    from typing import Any


def _geqrf_arrays(a):
    if not a.size:
        return np.zeros(a.shape, a.dtype), np.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    h, tau = np.linalg.qr(a, "raw")
    return np.ascontiguousarray(h.swapaxes(-1, -2)), tau


_geqrf = op("geqrf", _geqrf_arrays, None, outputs=2, batch="leading")
Geqrf = return_type("geqrf", "a", "tau")


@public()
def geqrf(input, *, out=None) -> Any:
    """(a, tau): the QR decomposition as LAPACK leaves it, R above and Householder vectors below the diagonal."""
    if input.array.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    check_wide(input, "geqrf_cpu")
    return named(Geqrf, _geqrf(input), out)


def reflectors(v):
    """The vectors below the diagonal, each with its one on it."""
    return lower(v, -1) + identity(v, v.shape[-2], v.shape[-1])


def _order(k, backwards):
    return range(k) if backwards else range(k - 1, -1, -1)


def reflect(v, tau, c, transpose):
    """H_1 ... H_k C, or H_k^H ... H_1^H C if transpose."""
    v = reflectors(v)
    for i in _order(tau.shape[-1], transpose):
        u, t = v[..., i : i + 1], tau[..., i : i + 1, None]
        c = c - (conjugate(t) if transpose else t) * (u @ (adjoint(u) @ c))
    return c


def reflect_gradient(g, v, tau, c, transpose):
    """Gradients of reflect: through one reflector after the other, with the matrices between them computed again."""
    u, k = reflectors(v), tau.shape[-1]
    if not k:
        return v * 0, tau * 0, g
    order, between = list(_order(k, transpose)), [c]
    for i in order[:-1]:
        x, t = u[..., i : i + 1], tau[..., i : i + 1, None]
        between.append(between[-1] - (conjugate(t) if transpose else t) * (x @ (adjoint(x) @ between[-1])))
    vectors, scales = [x * 0 for x in (v[..., i : i + 1] for i in range(v.shape[-1]))], [None] * k
    for i, c in zip(order[::-1], between[::-1], strict=True):
        x, t = u[..., i : i + 1], tau[..., i : i + 1, None]
        t = conjugate(t) if transpose else t
        w, z = adjoint(x) @ c, adjoint(x) @ g
        scale = -(z @ adjoint(w))
        scales[i] = (conjugate(scale) if transpose else scale)[..., 0]
        vectors[i] = -(conjugate(t) * (g @ adjoint(w)) + t * (c @ adjoint(z)))
        g = g - conjugate(t) * (x @ z)
    return lower(join(vectors, -1), -1), join(scales, -1), g


_reflect_arrays = arrays_form(reflect)
_householder = op("linalg_householder_product",
    lambda v, tau: _reflect_arrays(v, tau, np.broadcast_to(identity.arrays(v, *v.shape[-2:]), v.shape), False),
    joint=lambda g, input, tau, _out:
        reflect_gradient(g, input, tau, identity(input, input.shape[-2], input.shape[-1]), False)[:2],
    holomorphic=False, batch="leading")  # fmt: skip
_ormqr = op("ormqr", lambda v, tau, c, transpose: _reflect_arrays(v, tau, c, transpose),
    joint=lambda g, input, tau, other, _out, transpose: reflect_gradient(g, input, tau, other, transpose),
    holomorphic=False, batch="leading")  # fmt: skip


def _check_reflectors(input, tau, name):
    x, t = input.array, tau.array
    if x.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if x.ndim - t.ndim != 1:
        raise RuntimeError(f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to {t.ndim} and "
                           f"input.ndim is equal to {x.ndim}")  # fmt: skip
    if t.shape[:-1] != x.shape[:-2]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(t.shape[:-1])}"
        )
    if t.dtype != x.dtype:
        kinds = [dtypes.scalar_type_name(v.dtype) for v in (tau, input)]
        raise RuntimeError(f"{name}: tau dtype {kinds[0]} does not match input dtype {kinds[1]}")


@public(method=False, module="linalg")
def householder_product(A, tau, *, out=None):
    """The first N columns of H_1 H_2 ... H_K, from Householder vectors below the diagonal. Differentiable in both.

    (*, M, N) with M >= N, (*, K) with K <= N -> (*, M, N). With geqrf this gives the Q of linalg.qr.
    """
    name = "torch.linalg.householder_product"
    if A.array.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if A.array.shape[-2] < A.array.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if tau.array.ndim and A.array.shape[-1] < tau.array.shape[-1]:
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    _check_reflectors(A, tau, name)
    check_wide(A, "orgqr_cpu")
    result = _householder(A, tau)
    return result if out is None else write_out(out, result)


face(householder_product, name="orgqr")


@public()
def ormqr(input, tau, other, left=True, transpose=False, *, out=None):
    """Q @ other (or other @ Q if not left), with Q = H_1 ... H_K in full; its adjoint if transpose. Differentiable in all.

    input, tau: as geqrf gives them.
    """
    name = "torch.ormqr"
    if input.array.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if other.array.ndim < 2:
        raise RuntimeError(f"{name}: other must have at least 2 dimensions.")
    side = -2 if left else -1
    if tau.array.shape[-1] != min(other.array.shape[side], input.array.shape[-1]):
        raise RuntimeError(f"{name}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])")
    if input.array.shape[-2] != other.array.shape[side]:
        raise RuntimeError(f"{name}: input.shape[-2] must be equal to other.shape[{side}]")
    _check_reflectors(input, tau, name)
    check_wide(input, "ormqr_cpu")
    if left:
        result = _ormqr(input, tau, other, transpose)
    else:
        result = adjoint(_ormqr(input, tau, adjoint(other), not transpose))
    return result if out is None else write_out(out, result)
