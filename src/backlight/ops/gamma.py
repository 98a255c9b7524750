"""Relatives of the gamma function: Hurwitz's zeta function, the incomplete gamma functions, the multivariate gamma function."""

from __future__ import annotations

import math

import numpy as np

from ..op import face, op, public, write_out
from ..tensor import Tensor
from .bessel import only_wide
from .check import not_implemented, not_tensor
from .pointwise import exp, log
from .special import digamma, lgamma, zeta_arrays

_zeta = op("special_zeta", zeta_arrays,
    lambda _g, _input, _other, _out: _missing("zeta"),
    lambda g, input, other, _out: g * -input * _zeta(input + 1, other),
    promote="float", check=lambda a, b: _check_zeta(a, b), batch="elementwise",
    doc="Hurwitz's zeta function, the sum of (k + other)^-input over k = 0, 1, ... Differentiable in other.")  # fmt: skip


def _check_zeta(*inputs):
    if not any(isinstance(x, Tensor) for x in inputs):
        raise not_tensor("special_zeta", input=inputs[0])
    only_wide("zeta_cpu")(*(x for x in inputs if isinstance(x, Tensor)))


def _missing(name):
    raise NotImplementedError(f"the derivative for '{name}' is not implemented.")


face(_zeta, name="zeta", module="special", method=False)


# The incomplete gamma functions: the series DLMF 8.7.1 for P where x < a + 1, the continued fraction 8.9.2 for Q beyond, by
# Lentz's method (W. Press et al., "Numerical Recipes", section 6.2)

MOST, TINY = 10000, 1e-300


def _power(a, x):
    """x^a e^-x / gamma(a)."""
    return np.exp(a * np.log(x) - x - lgamma.arrays(a))


def _lower_series(a, x):
    term = 1 / a
    total = term
    for n in range(1, MOST):
        term = term * x / (a + n)
        total = total + term
        if not (np.abs(term) > np.abs(total) * 1e-17).any():
            break
    return total * _power(a, x)


def _upper_fraction(a, x):
    b = x + 1 - a
    c, d = np.full_like(x, 1 / TINY), 1 / b
    h = d
    for n in range(1, MOST):
        factor = -n * (n - a)
        b = b + 2
        d = factor * d + b
        d = 1 / np.where(d == 0, TINY, d)
        c = b + factor / c
        c = np.where(c == 0, TINY, c)
        h = h * (c * d)
        if not (np.abs(c * d - 1) > 1e-16).any():
            break
    return h * _power(a, x)


def _incomplete(a, x, upper):
    t = a.dtype
    a, x = np.broadcast_arrays(a.astype(np.float64), x.astype(np.float64))
    out = np.full(a.shape, np.nan)  # for negative numbers, and 0 or infinity twice
    fine = (a >= 0) & (x >= 0)
    out[fine & ((x == 0) & (a > 0) | np.isinf(a) & ~np.isinf(x))] = upper
    out[fine & ((a == 0) & (x > 0) | np.isinf(x) & ~np.isinf(a))] = 1 - upper
    inside = fine & (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    for mask, part, is_upper in ((inside & (x < a + 1), _lower_series, 0), (inside & (x >= a + 1), _upper_fraction, 1)):
        if mask.any():
            value = part(a[mask], x[mask])
            out[mask] = value if is_upper == upper else 1 - value
    return out.astype(t)


def _declare(name, upper, alias, words):
    slope = (lambda g, input, other, _out: g * -_density(input, other)) if upper else \
        (lambda g, input, other, _out: g * _density(input, other))  # fmt: skip
    missing = _no_input_gradient[upper]
    primitive = op(name, lambda a, x: _incomplete(a, x, upper), missing, slope, promote="arith", batch="elementwise")

    def function(input, other, *, out=None):
        if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
            raise not_tensor(name, input=input, other=other)
        for x in (input, other):
            if x.dtype.is_complex or (input.dtype.category < 2 and other.dtype.category < 2):
                raise not_implemented(f"{name}_cpu", x)
        result = primitive(input, other)
        return result if out is None else write_out(out, result, name)

    function.__name__, function.__doc__ = name, f"{words} (*S), (*T) -> broadcast. Differentiable in other."
    face(function, name=name, inplace=True)
    face(function, name=alias, module="special", method=False)


_no_input_gradient = (
    lambda _g, _input, _other, _out: _missing("igamma: input"),
    lambda _g, _input, _other, _out: _missing("igammac: input"),
)


def _density(a, x):
    """The slope of igamma in x: x^(a - 1) e^-x / gamma(a)."""
    return exp((a - 1) * log(x) - x - lgamma(a))


_declare("igamma", 0, "gammainc", "The lower incomplete gamma function, divided by gamma(input).")
_declare("igammac", 1, "gammaincc", "The upper incomplete gamma function, divided by gamma(input).")


def _mvlgamma_arrays(x, p):
    return sum(lgamma.arrays(x - x.dtype.type(j / 2)) for j in range(p)) + x.dtype.type(p * (p - 1) / 4 * math.log(math.pi))


def _mvlgamma_slope(x, p):
    total = digamma(x)
    for j in range(1, p):
        total = total + digamma(x - j / 2)
    return total


_mvlgamma = op("mvlgamma", _mvlgamma_arrays, lambda g, input, _out, p: g * _mvlgamma_slope(input, p), promote="float",
               batch="elementwise")  # fmt: skip


@public(inplace=True)
def mvlgamma(input, p, *, out=None):
    """The logarithm of the multivariate gamma function of dimension p. (*S) -> (*S). Differentiable.

    RuntimeError for p < 1.
    """
    if isinstance(p, bool) or not isinstance(p, int):
        raise TypeError(f"mvlgamma(): argument 'p' (position 2) must be int, not {type(p).__name__}")
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    if input.dtype.is_complex:
        raise not_implemented("mvlgamma_cpu", input)
    result = _mvlgamma(input, p)
    return result if out is None else write_out(out, result)


face(mvlgamma, name="multigammaln", module="special", method=False)
