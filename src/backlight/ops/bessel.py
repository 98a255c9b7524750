"""Bessel functions of orders 0 and 1, of all four kinds, and the Airy function: power series near 0, one integral beyond.

The integral is K_v(w) = int_0^inf exp(-w cosh t) cosh(v t) dt (DLMF 10.32.9). With u = sqrt(2w) sinh(t / 2) it becomes

    exp(w) K_v(w) = 2 int_0^inf exp(-u^2) cosh(2 v asinh(u / sqrt(2w))) / sqrt(2w + u^2) du

for which the trapezoidal rule converges exponentially (L. Trefethen, J. Weideman, "The exponentially convergent trapezoidal
rule", 2014): 27 nodes reach double precision where the singularities +-i sqrt(2w) are 2 away from the real axis. It holds for
complex w too, and the Hankel functions are K on the imaginary axis (DLMF 10.27.8): so it gives J and Y, and Ai (9.6.2).
"""

from __future__ import annotations

import numpy as np

from ..op import face, op, twin, unary
from .check import not_implemented
from .choose import where
from .pointwise import abs, reciprocal, sgn

STEP, NODES, EULER = 0.25, 27, 0.5772156649015329


def _integral(w, order=0.0):
    """exp(w) K_order(w), for real w >= 2 and imaginary w beyond 4i in size."""
    total = np.zeros_like(w)
    for i in range(NODES):
        u = i * STEP
        weight = np.exp(-u * u) * (1 if i == 0 else 2)
        if order == 1:
            weight = weight * (1 + u * u / w)
        elif order:
            weight = weight * np.cosh(2 * order * np.arcsinh(u / np.sqrt(2 * w)))
        total += weight / np.sqrt(2 * w + u * u)
    return total * STEP


def _series(x, order, sign, logarithmic=False):
    """sum of (sign x^2 / 4)^k / (k! (k + order)!), each term times H_k + H_(k + order) if logarithmic (DLMF 10.2.2, 10.8.1)."""
    term, harmonic = np.ones_like(x), float(order)
    total = term * harmonic if logarithmic else term.copy()
    q = sign * x * x / 4
    for k in range(1, 70):
        term = term * q / (k * (k + order))
        harmonic += 1 / k + 1 / (k + order)
        total += term * harmonic if logarithmic else term
        if not (np.abs(term) > 1e-18 * (np.abs(total) + 1e-2)).any():
            break
    return total


def _in_parts(limit, near, far):
    """A function of |x| in float64: `near` up to the limit, `far` beyond, each on its own elements."""

    def arrays(input):
        z = input.astype(np.float64)
        size = np.abs(z)
        out = np.full(z.shape, np.nan)
        for mask, part in ((size <= limit, near), (size > limit, far)):
            if mask.any():
                out[mask] = part(z[mask])
        return out.astype(input.dtype)

    return arrays


# Modified functions of the first kind: the series has no cancellation, the asymptotic series (DLMF 10.40.1) serves from 20 on


def _asymptotic(x, order):
    """exp(-|x|) I_order(x) for large |x|."""
    x = np.abs(x)
    term, total = np.ones_like(x), np.ones_like(x)
    for k in range(1, 25):
        term = term * -(4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)
        total += term
    return total / np.sqrt(2 * np.pi * x)


def _large(scaled, x):
    half = np.exp(np.abs(x) / 2)  # in two steps, as exp(|x|) overflows before the product does
    return half * scaled * half


_i0_arrays = _in_parts(20, lambda x: _series(x, 0, 1), lambda x: _large(_asymptotic(x, 0), x))
_i0e_arrays = _in_parts(20, lambda x: _series(x, 0, 1) * np.exp(-np.abs(x)), lambda x: _asymptotic(x, 0))
_i1_arrays = _in_parts(20, lambda x: x / 2 * _series(x, 1, 1), lambda x: np.sign(x) * _large(_asymptotic(x, 1), x))
_i1e_arrays = _in_parts(20, lambda x: x / 2 * _series(x, 1, 1) * np.exp(-np.abs(x)), lambda x: np.sign(x) * _asymptotic(x, 1))


def no_complex(kernel):
    """The check of an operation that complex numbers don't have."""

    def check(input):
        if input.dtype.is_complex:
            raise not_implemented(kernel, input)

    return check


def only_wide(kernel):
    """The check of an operation that neither complex nor half types have."""

    def check(*inputs):
        for x in inputs:
            if x.dtype.is_complex or (x.array.dtype.itemsize == 2 and x.array.dtype.kind in "fV"):
                raise not_implemented(kernel, x)

    return check


@twin(lambda x: np.where(np.abs(x) > np.finfo(x.dtype).eps, x, np.finfo(x.dtype).eps))
def not_tiny(x):
    """x, with a small number in place of what is nearly 0."""
    eps = float(np.finfo(x.array.dtype).eps)
    return where(abs(x) > eps, x, eps)


@twin(lambda x, value: np.where(np.abs(x) > np.finfo(x.dtype).eps, value, x.dtype.type(0.5)))
def half_at_zero(x, value):
    """The slope 1/2 that i1 and i1e have at 0, the value elsewhere."""
    return where(abs(x) > float(np.finfo(x.array.dtype).eps), value, 0.5)


i0 = unary("i0", _i0_arrays, lambda g, input, _out: g * i1(input), check=no_complex("i0_vml_cpu"),
    doc="The modified Bessel function I0. (*S) -> (*S). Differentiable.")  # fmt: skip
i0e = op("special_i0e", _i0e_arrays, lambda g, input, out: g * (i1e(input) - sgn(input) * out), promote="float",
    node="SpecialI0EBackward0", check=no_complex("i0e_cpu"), batch="elementwise",
    doc="exp(-|input|) I0(input). (*S) -> (*S). Differentiable.")  # fmt: skip
i1 = op("special_i1", _i1_arrays,
    lambda g, input, out: g * half_at_zero(input, i0(not_tiny(input)) - out * reciprocal(not_tiny(input))), promote="float",
    check=no_complex("i1_cpu"), batch="elementwise", doc="The modified Bessel function I1. (*S) -> (*S). Differentiable.")  # fmt: skip
i1e = op("special_i1e", _i1e_arrays,
    lambda g, input, out:
        g * half_at_zero(input, i0e(not_tiny(input)) - out * (sgn(not_tiny(input)) + reciprocal(not_tiny(input)))),
    promote="float", node="SpecialI1EBackward0", check=no_complex("i1e_cpu"), batch="elementwise",
    doc="exp(-|input|) I1(input). (*S) -> (*S). Differentiable.")  # fmt: skip
for _function, _name in ((i0, "i0"), (i0e, "i0e"), (i1, "i1"), (i1e, "i1e")):
    face(_function, name=_name, module="special", method=False)


# The functions without gradient


def _declare(name, arrays, doc):
    function = op(f"special_{name}", arrays, None, promote="float", check=only_wide(f"{name}_cpu"), batch="elementwise",
                  doc=f"{doc} (*S) -> (*S). No gradient.")  # fmt: skip
    face(function, name=name, module="special", method=False)


def _j(order):
    def near(x):
        return _series(x, 0, -1) if order == 0 else x / 2 * _series(x, 1, -1)

    def far(x):
        result = _hankel(np.abs(x), order).real
        return result if order == 0 else np.copysign(1, x) * result

    return _in_parts(4, near, far)


def _hankel(x, order):
    """H^(1)_order(x) = 2 / (pi i) exp(-order pi i / 2) K_order(-i x) for x > 4."""
    w = -1j * x
    return 2 / (np.pi * 1j) * (-1j if order else 1) * _integral(w, order) * np.exp(-w)


def _y(order):
    """DLMF 10.8.1 near 0: the logarithm times J, and a series; -inf at 0, NaN for negative numbers."""

    def near(x):
        logarithm = 2 / np.pi * (np.log(x / 2) + EULER)
        if order == 0:
            value = logarithm * _series(x, 0, -1) - _series(x, 0, -1, True) / np.pi
        else:
            value = -2 / (np.pi * x) + x / 2 * (logarithm * _series(x, 1, -1) - _series(x, 1, -1, True) / np.pi)
        return np.where(x == 0, -np.inf, value)

    return _in_parts(4, near, lambda x: np.where(x < 0, np.nan, _hankel(np.abs(x), order).imag))


def _k(order, scaled):
    """DLMF 10.31.1 up to 2, the integral beyond; inf at 0, NaN for negative numbers."""

    def near(x):
        logarithm = np.log(x / 2) + EULER
        if order == 0:
            value = -logarithm * _series(x, 0, 1) + _series(x, 0, 1, True) / 2
        else:
            value = 1 / x + x / 2 * (logarithm * _series(x, 1, 1) - _series(x, 1, 1, True) / 2)
        return np.where(x == 0, np.inf, value * np.exp(x) if scaled else value)

    def far(x):
        value = _integral(np.abs(x), order)
        return np.where(x < 0, np.nan, value if scaled else value * np.exp(-np.abs(x)))

    return _in_parts(2, near, far)


def _airy_near(x):
    """The Maclaurin series (DLMF 9.4.1)."""
    f, g = np.ones_like(x), x.copy()
    even, odd, cube = f, g, x**3
    for k in range(1, 30):
        even = even * cube / ((3 * k - 1) * (3 * k))
        odd = odd * cube / ((3 * k) * (3 * k + 1))
        f, g = f + even, g + odd
    return 0.355028053887817239 * f - 0.258819403792806798 * g


def _airy_far(x):
    """DLMF 9.6.2; for negative numbers 9.2.11 turns it onto the rays where that holds."""
    size = np.abs(x)
    zeta = 2 / 3 * size**1.5
    positive = x > 0
    w = np.where(positive, zeta, 1j * zeta)
    ray = np.where(positive, 1, np.exp(1j * np.pi / 3))
    value = np.sqrt(size * ray / 3) / np.pi * _integral(w, 1 / 3) * np.exp(-w)
    return np.where(positive, value.real, 2 * (ray * value).real)


def _airy_arrays(x):
    z = x.astype(np.float64)
    out = np.full(z.shape, np.nan)
    middle = (z > -3.6) & (z < 2.1)
    for mask, part in ((middle, _airy_near), (~middle & ~np.isnan(z), _airy_far)):
        if mask.any():
            out[mask] = part(z[mask])
    return out.astype(x.dtype)


def _spherical_j0(x):
    z = x.astype(np.float64)
    result = np.where(z == 0, 1, np.sin(z) / np.where(z == 0, 1, z))
    return np.where(np.isinf(z), 0, result).astype(x.dtype)


for _order in (0, 1):
    _declare(f"bessel_j{_order}", _j(_order), f"The Bessel function of the first kind J{_order}.")
    _declare(f"bessel_y{_order}", _y(_order), f"The Bessel function of the second kind Y{_order}.")
    _declare(f"modified_bessel_i{_order}", (_i0_arrays, _i1_arrays)[_order], f"The modified Bessel function I{_order}.")
    _declare(f"modified_bessel_k{_order}", _k(_order, False), f"The modified Bessel function K{_order}.")
    _declare(
        f"scaled_modified_bessel_k{_order}", _k(_order, True), f"exp(x) K{_order}(x), the scaled modified Bessel function."
    )
_declare("airy_ai", _airy_arrays, "The Airy function Ai.")
_declare("spherical_bessel_j0", _spherical_j0, "The spherical Bessel function of order 0, sin(x) / x.")
