"""Gamma and Dirichlet numbers on PyTorch's stream, and how they move with their parameters (implicit reparametrisation).

A gamma number has no formula in which its concentration could be differentiated, as its draw rejects. But the derivative of
the identity cdf(x; concentration) = u gives dx/dconcentration = -(dcdf/dconcentration) / pdf (M. Figurnov et al., "Implicit
Reparameterization Gradients", 2018). That quotient has no closed form either: it is approximated piecewise, with PyTorch's
pieces and coefficients.
"""

from __future__ import annotations

import math

import numpy as np

from .. import batching, dtypes, random
from ..op import op, public
from ..state import modes
from .check import not_implemented
from .discrete import _uniform
from .gather import no_derivative, not_differentiable
from .special import digamma

WIDE = (dtypes.float32, dtypes.float64)
# PyTorch rounds these two to single precision
THIRD, SQUEEZE = float(np.float32(1) / np.float32(3)), float(np.float32(0.0331))


def _normal(generator, uniform):
    """Draws single standard normal numbers, in pairs: the second waits in the generator for the next call."""

    def draw():
        spare = generator._spare_normal
        if spare is not None:
            generator._spare_normal = None
            return spare
        angle, radius = 2 * math.pi * uniform(), math.sqrt(-2 * math.log1p(-uniform()))
        generator._spare_normal = radius * math.sin(angle)
        return radius * math.cos(angle)

    return draw


def _gamma_number(d, scale, uniform, normal):
    """scale times a gamma number of concentration d + 1/3 >= 1 (G. Marsaglia and W. Tsang, "A Simple Method for Generating
    Gamma Variables", 2000)."""
    if not d > 0:
        return math.nan  # PyTorch rejects for ever
    c = 1 / math.sqrt(9 * d)
    while True:
        x = normal()
        y = 1 + c * x
        if y <= 0:
            continue
        v = y * y * y
        u = 1 - uniform()
        square = x * x
        if u < 1 - SQUEEZE * square * square or math.log(u) < 0.5 * square + d * (1 - v + math.log(v)):
            return scale * d * v


def _gamma_numbers(concentration, generator):
    """A float64 array of gamma numbers with the concentrations in an array, which counts in its own precision.

    One with a concentration below 1 is one with 1 more, times u^(1 / concentration).
    """
    generator = generator or random.default_generator
    uniform = _uniform(generator)
    normal = _normal(generator, uniform)
    boosted = concentration < 1
    exponents = np.where(boosted, 1 / concentration, 0)
    shifted = concentration + boosted - concentration.dtype.type(THIRD)
    values = []
    for exponent, d in zip(exponents.reshape(-1).tolist(), shifted.reshape(-1).tolist()):
        if exponent == 0:
            values.append(_gamma_number(d, 1.0, uniform, normal))
        elif exponent == math.inf:
            values.append(0.0)
        else:
            scale = float(np.power(1 - uniform(), exponent))  # inf where Python's power raises
            values.append(_gamma_number(d, scale, uniform, normal))
    return np.array(values, np.float64).reshape(concentration.shape)


def _standard_gamma_arrays(x, generator):
    return np.fmax(_gamma_numbers(x, generator).astype(x.dtype), np.finfo(x.dtype).tiny)


def _dirichlet_arrays(x, generator):
    values = _gamma_numbers(x.astype(np.float64), generator)
    shares = values / values.sum(-1, keepdims=True)
    return np.clip(shares.astype(x.dtype), np.finfo(x.dtype).tiny, np.nextafter(x.dtype.type(1), x.dtype.type(0)))


# How a gamma number moves with its concentration


def _piecewise(shape, pieces, default, *arguments):
    """`function(*arguments)` on each piece [(mask, function), ...], the first that holds, and `default` on the rest."""
    flat = [np.broadcast_to(a, shape).reshape(-1).astype(np.float64) for a in arguments]
    out, rest = np.empty(flat[0].size), np.ones(flat[0].size, bool)
    for mask, function in (*pieces, (np.ones(shape, bool), default)):
        chosen = rest & mask.reshape(-1)
        if chosen.any():
            out[chosen] = function(*(a[chosen] for a in flat))
            rest &= ~chosen
    return out.reshape(shape)


def _polynomial(coefficients, x):
    """The polynomial with the coefficients, the constant one first, at x."""
    result = coefficients[-1]
    for c in coefficients[-2::-1]:
        result = c + x * result
    return result


def _gamma_slope_small(a, x):
    """By the Taylor series of the cdf, for small x."""
    term, n = np.ones_like(x), a.copy()
    series, squares = 1 / n, 1 / (n * n)
    for i in range(1, 6):
        term = term * (-x / i)
        n = n + 1
        series = series + term / n
        squares = squares + term / (n * n)
    power = x**a
    moved = (np.log(x) - digamma.arrays(a)) * power * series - power * squares
    result = -moved / (x ** (a - 1) * np.exp(-x))
    return np.where(np.isnan(result), 0, result)


def _gamma_slope_middle(a, x):
    """Rice's saddle point expansion, close to its singularity at x = a."""
    first = 1 + 24 * a * (1 + 12 * a)
    second = 1440 * a * a + 6 * x * (53 - 120 * x) - 65 * x * x / a + a * (107 + 3600 * x)
    return first * second / (1244160 * a**4)


def _gamma_slope_large(a, x):
    """Rice's saddle point expansion, for a > 8."""
    root, ratio = np.sqrt(8 * a), np.log(x / a)
    base = (x - a - a * ratio) ** -1.5
    inner = root / (a - x) + np.where(x < a, -base, base)
    outer = ratio * inner - np.sqrt(2 / a) * (a + x) / (a - x) ** 2
    return -(1 + 1 / (12 * a) * (1 + 1 / (24 * a))) * x * outer / root


# coefficients[k][i] of log(x / a)^k * log(a)^(i mod 4), in the numerator for i < 4 and in the denominator above
GAMMA_SLOPE = np.array([
    [0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084],
    [0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623],
    [0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367, -1.5247877e-07],
])  # fmt: skip


def _gamma_slope_between(a, x):
    """A rational approximation of its logarithm in log(x / a) and log(a)."""
    u, v = np.log(x / a), np.log(a)
    c = [_polynomial(column, u) for column in GAMMA_SLOPE.T]
    return np.exp(_polynomial(c[:4], v) / _polynomial(c[4:], v))


def _gamma_slope(a, x):
    shape, large = np.broadcast_shapes(a.shape, x.shape), a > 8
    near = large & (0.9 * a <= x) & (x <= 1.1 * a)
    small = x < np.float32(0.8)
    pieces = ((small, _gamma_slope_small), (near, _gamma_slope_middle), (large, _gamma_slope_large))
    pieces = [(np.broadcast_to(mask, shape), function) for mask, function in pieces]
    return _piecewise(shape, pieces, _gamma_slope_between, a, x).astype(x.dtype)


# How a beta number moves with its first concentration a, divided by 1 - x; b = total - a


def _beta_slope_small(x, a, total):
    """By the Taylor series of the cdf in x, for x close to 0."""
    b = total - a
    factor = digamma.arrays(a) - digamma.arrays(total) - np.log(x)
    term = np.ones_like(x)
    series = 1 / a * (factor + 1 / a)
    for i in range(1, 11):
        term = term * ((i - b) * x / i)
        series = series + term / (a + i) * (factor + 1 / (a + i))
    result = x * (1 - x) ** -b * series
    return np.where(np.isnan(result), 0, result)


def _beta_slope_one(x, a, total):
    """The same for x close to 1, where 1 - x is a beta number of the concentrations b and a."""
    x, a, b = 1 - x, total - a, a
    factor = digamma.arrays(total) - digamma.arrays(b)
    term, product, slope, series = np.ones_like(x), np.ones_like(x), np.zeros_like(x), factor / a
    for i in range(1, 9):
        term = term * (-x / i)
        slope = slope * (b - i) + product
        product = product * (b - i)
        series = series + term / (a + i) * (slope + factor * product)
    result = (1 - x) ** (1 - b) * series
    return np.where(np.isnan(result), 0, result)


def _beta_slope_middle(x, a, total):
    """Rice's saddle point expansion, for large concentrations; a polynomial close to its singularity at the mean."""
    b = total - a
    mean = a / total
    deviation = np.sqrt(a * b / (total + 1)) / total
    polynomial = _polynomial((
        47 * x * b**4,
        (43 + 20 * (16 + 27 * b) * x) * b**3,
        3 * (59 + 180 * b - 90 * x) * b**2,
        (453 + 1620 * b * (1 - x) - 455 * x) * b,
        8 * (1 - x) * (135 * b - 11),
    ), a)  # fmt: skip
    scale = (1 + 12 * a) * (1 + 12 * b) / total**2 / (1 - x)
    near = scale * polynomial / (12960 * a**3 * b**2 * (1 + 12 * total))

    def stirling(n):
        return 1 + 1 / (12 * n) + 1 / (288 * n * n)

    distance = a * (x - 1) + b * x
    first = (2 * a * a * (x - 1) + a * b * (x - 1) - x * b * b) / (np.sqrt(2 * a / b) * total**1.5 * distance**2)
    base = (b * np.log(b / (total * (1 - x))) + a * np.log(a / (total * x))) ** -1.5
    inner = np.sqrt(8 * a * b / total) / distance + np.where(x < mean, base, -base)
    far = first + 0.5 * np.log(a / (total * x)) * inner
    far = far * stirling(a) * stirling(b) / stirling(total) * -x / np.sqrt(2 * a * b / total)
    return np.where((mean - 0.1 * deviation <= x) & (x <= mean + 0.1 * deviation), near, far)


# coefficients[numerator or denominator][i][j][k] of log(x)^i * log(a / x)^j * b^k
BETA_SLOPE = np.array([
    [[[1.003668233, -0.01061107488, -0.0657888334, 0.01201642863],
      [0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033],
      [-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013]],
     [[0.221950385, -0.3187676331, 0.01799915743, 0.01074823814],
      [-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057],
      [0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05]],
     [[-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565],
      [0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181],
      [0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05]]],
    [[[1, -0.02924021934, -0.04438342661, 0.007285809825],
      [0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521],
      [-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149]],
     [[0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273],
      [0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956],
      [-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05]],
     [[0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05],
      [0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05],
      [-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06]]],
])  # fmt: skip


def _beta_slope_between(x, a, total):
    """An approximation times a rational correction in log(x), log(a / x) and log(total) - log(a / x)."""
    u = np.log(x)
    v = np.log(a) - u
    w = np.log(total) - v
    # PyTorch's powers, each 0 to 2: of u along the first axis, of v along the second; of w, 0 to 3, along the last
    powers = (np.stack([y**i for i in range(n)]) for y, n in ((u, 3), (v, 3), (w, 4)))
    numerator, denominator = np.einsum("nijk,iz,jz,kz->nz", BETA_SLOPE, *powers)
    return numerator / denominator * x * (digamma.arrays(total) - digamma.arrays(a)) / (total - a)


def _beta_slope(x, a, total):
    shape = np.broadcast_shapes(x.shape, a.shape, total.shape)
    b, edge = total - a, total * x * (1 - x)
    pieces = [
        ((x <= 0.5) & (edge < 2.5), _beta_slope_small),
        ((x >= 0.5) & (edge < 0.75), _beta_slope_one),
        ((a > 6) & (b > 6), _beta_slope_middle),
    ]
    pieces = [(np.broadcast_to(mask, shape), function) for mask, function in pieces]
    return _piecewise(shape, pieces, _beta_slope_between, x, a, total).astype(x.dtype)


_gamma_grad = op("_standard_gamma_grad", _gamma_slope,
    lambda _g, _input, _output, _out: no_derivative("_standard_gamma_grad"),
    lambda _g, _input, _output, _out: no_derivative("_standard_gamma_grad"), batch="elementwise")  # fmt: skip
_gamma = op("_standard_gamma", _standard_gamma_arrays,
    lambda g, input, out, _generator: g * _gamma_grad(input, out), batch=batching.random_rule)  # fmt: skip
_dirichlet = op("_sample_dirichlet", _dirichlet_arrays,
    lambda _g, _input, _out, _generator: not_differentiable("_sample_dirichlet"),
    node="NotImplemented", batch=batching.random_rule)  # fmt: skip
_beta_grad = op("_dirichlet_grad", _beta_slope,
    lambda _g, _x, _alpha, _total, _out: not_differentiable("_dirichlet_grad"),
    lambda _g, _x, _alpha, _total, _out: not_differentiable("_dirichlet_grad"),
    lambda _g, _x, _alpha, _total, _out: not_differentiable("_dirichlet_grad"),
    node="NotImplemented", batch="elementwise")  # fmt: skip


def _check(kernel, *tensors):
    """Only float32 and float64, and all of one type."""
    if tensors[0].dtype not in WIDE:
        raise not_implemented(kernel, tensors[0])
    for x in tensors[1:]:
        if x.dtype is not tensors[0].dtype:
            raise RuntimeError(f"Found dtype {x.dtype} but expected {tensors[0].dtype}")


@public(method=False)
def _standard_gamma(input, generator=None):
    """Gamma numbers of rate 1 with the concentrations in `input`. (*S) -> (*S). Differentiable once."""
    _check("gamma_cpu", input)
    return _gamma(batching.drawn_from(input) if modes.levels else input, generator)


@public(method=False)
def _standard_gamma_grad(input, output):
    """The derivative of the gamma numbers `output` in their concentrations `input`. (*S), (*S) -> (*S). Not differentiable."""
    _check("_standard_gamma_grad_cpu", input, output)
    return _gamma_grad(input, output)


@public(method=False)
def _sample_dirichlet(input, generator=None):
    """Dirichlet numbers with the concentrations in the last dimension of `input`. (*S, N) -> (*S, N). Not differentiable."""
    _check("dirichlet", input)
    return _dirichlet(batching.drawn_from(input) if modes.levels else input, generator)


@public(method=False)
def _dirichlet_grad(x, alpha, total):
    """The derivative of x, a beta number of alpha and total - alpha, in alpha, over 1 - x. (*S) three times -> (*S).

    Not differentiable.
    """
    _check("_dirichlet_grad_cpu", x, alpha, total)
    return _beta_grad(x, alpha, total)
