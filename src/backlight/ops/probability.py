"""Functions of the normal distribution, and the entropy of numbers: ndtr, log_ndtr, ndtri, erfcx, entr."""

from __future__ import annotations

import math

import numpy as np

from ..op import face, op, public, write_out
from ..tensor import Tensor
from .bessel import no_complex, only_wide
from .check import not_implemented, not_tensor
from .pointwise import exp, log
from .reduce import logsumexp
from .special import _erfc, erf

ROOT_2, ROOT_PI = math.sqrt(2), math.sqrt(math.pi)


def _erfcx_arrays(x):
    """exp(x^2) erfc(x); from 5 on by its continued fraction (DLMF 7.9.1)."""
    z = x.astype(np.float64)
    near = np.minimum(z, 5)
    result = np.asarray(np.exp(near * near) * _erfc(near))
    if (large := z > 5).any():
        y = z[large]
        fraction = y
        for k in range(24, 0, -1):
            fraction = y + k / 2 / fraction
        result[large] = 1 / (ROOT_PI * fraction)
    return result.astype(x.dtype)


erfcx = op("special_erfcx", _erfcx_arrays, lambda g, input, out: g * (2 * input * out - 2 / ROOT_PI), promote="float",
    check=only_wide("erfcx_cpu"), batch="elementwise",
    doc="exp(input^2) erfc(input), which doesn't underflow. (*S) -> (*S). Differentiable.")  # fmt: skip


@public(method=False, module="special")
def ndtr(input, *, out=None):
    """The probability that a standard normal variable is below input. (*S) -> (*S). Differentiable.

    >>> import backlight as torch
    >>> torch.special.ndtr(torch.tensor([0., 2.]))
    tensor([0.5000, 0.9772])
    """
    if not isinstance(input, Tensor):
        raise not_tensor("special_ndtr", input=input)
    if input.dtype.is_complex:
        raise not_implemented("erf_vml_cpu", input)
    result = (1 + erf(input * math.sqrt(0.5))) * 0.5
    return result if out is None else write_out(out, result)


def _log_ndtr_arrays(x):
    z = x.astype(np.float64)
    tail = np.log(_erfcx_arrays(np.maximum(-z, 0) / ROOT_2) / 2) - z * z / 2
    return np.where(z < -1, tail, np.log1p(-_erfc(z / ROOT_2) / 2)).astype(x.dtype)


log_ndtr = op("special_log_ndtr", _log_ndtr_arrays,
    lambda g, input, _out: g / erfcx(input * (-1 / ROOT_2)) * math.sqrt(2 / math.pi), promote="float",
    check=only_wide("log_ndtr_cpu"), batch="elementwise",
    doc="The logarithm of ndtr, exact far below 0. (*S) -> (*S). Differentiable.")  # fmt: skip


def _ndtri_arrays(p):
    """Newton's method on log_ndtr, which is concave, from its asymptotic inverse; by symmetry above 1/2."""
    z = p.astype(np.float64)
    upper = z > 0.5
    q = np.where(upper, 1 - z, z)
    inside = (q > 0) & (q <= 0.5)
    target = np.log(np.where(inside, q, 0.5))
    r = np.sqrt(-2 * target)
    x = -np.maximum(r - (np.log(r) + 0.9189385332046727) / r, 0)
    for _ in range(8):
        slope = math.sqrt(2 / math.pi) / _erfcx_arrays(-x / ROOT_2)
        step = (_log_ndtr_arrays(x) - target) / slope
        x = x - step
        if not (np.abs(step) > 1e-9 * np.abs(x)).any():  # as the next one would be its square
            break
    x = np.where(inside, np.where(q == 0.5, 0, x), np.where(q == 0, -np.inf, np.nan))
    return np.where(upper, -x, x).astype(p.dtype)


ndtri = op("special_ndtri", _ndtri_arrays, lambda g, _input, out: g * (math.sqrt(2 * math.pi) * exp(0.5 * (out * out))),
    promote="float", check=only_wide("ndtri_cpu"), batch="elementwise",
    doc="The inverse of ndtr: where a standard normal variable is below with probability input. Differentiable.")  # fmt: skip


def _entr_arrays(x):
    safe = np.where(x > 0, x, 1)
    result = np.where(x > 0, -x * np.log(safe), np.where(x == 0, 0, -np.inf))
    return np.where(np.isnan(x), x, result).astype(x.dtype)


entr = op("special_entr", _entr_arrays, lambda g, input, _out: g * (-1 - log(input)), promote="float",
    check=no_complex("entr_cpu"), batch="elementwise",
    doc="-input log(input), 0 at 0 and -inf below. (*S) -> (*S). Differentiable.")  # fmt: skip
for _name, _function in (("erfcx", erfcx), ("log_ndtr", log_ndtr), ("ndtri", ndtri), ("entr", entr), ("logsumexp", logsumexp)):
    face(_function, name=_name, module="special", method=False)
