"""Operations on one number, for use in compiled loops: LLVM turns them into vector code, which it can't do to the C library's.

Accuracy in units of the last place, float32 and float64 (tests/test_kernels.py): exp 1 and 1, log 1 and 1, log1p 1.5 and 1.5,
expm1 1.5 and 2, tanh 2.5 and 3, sigmoid 2.5 and 4, erf 1.5 and 3, softplus and log_sigmoid 2 and 3. NaN, infinities and signed zeros are
those of the C library. Polynomials are Chebyshev interpolants; ranges are reduced in two steps (Cody and Waite 1980).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from .compiling import INLINED, double_bits, double_from_bits, inlined, overload, single_bits, single_from_bits

f, i = np.float32, np.int32


def _by_type(single, double=None):
    """A function of one number, `single` for float32 and `double` for float64."""

    def function(x) -> Any:
        raise NotImplementedError

    @overload(function, jit_options=INLINED)
    def choose(x):
        return single if x == types.float32 else double if x == types.float64 else None

    function.__name__ = single.__name__.strip("_").removesuffix("_single")
    function.overloaded = True
    return function


# e^x = 2^n e^r with |r| <= ln(2)/2. Both give (2^(n/2), 2^(n - n/2), e^r - 1): in two factors, 2^n neither overflows nor
# becomes zero too early.


@inlined
def _parts_single(x):
    n = np.floor(x * f(1.4426950408889634) + f(0.5))
    r = (x - n * f(0.693359375)) + n * f(2.12194440e-4)
    p = f(0.166666667) + r * (f(0.0416665503) + r * (f(0.00833332039) + r * (f(0.00139269266) + r * f(0.000198835235))))
    k = i(n)
    half = k >> i(1)
    return (
        single_from_bits((half + i(127)) << i(23)),
        single_from_bits((k - half + i(127)) << i(23)),
        r + r * r * (f(0.5) + r * p),
    )


@inlined
def _parts_double(x):
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10
    p = 2.75572664186123e-06 + r * (2.755728151175639e-07 + r * (2.510134692835034e-08 + r * 2.091192320685759e-09))
    p = 0.001388888888888636 + r * (0.00019841269864380513 + r * (2.4801587318092064e-05 + r * p))
    p = 0.16666666666666669 + r * (0.041666666666666664 + r * (0.008333333333329793 + r * p))
    k = np.int64(n)
    half = k >> 1
    return double_from_bits((half + 1023) << 52), double_from_bits((k - half + 1023) << 52), r + r * r * (0.5 + r * p)


def _exp_single(x):
    a, b, p = _parts_single(min(max(x, f(-104)), f(89)))
    result = (f(1) + p) * a * b
    return x if x != x else result


def _exp_double(x):
    a, b, p = _parts_double(min(max(x, -746.0), 710.0))
    result = (1.0 + p) * a * b
    return x if x != x else result


exp = _by_type(_exp_single, _exp_double)


def _expm1_single(x):
    a, b, p = _parts_single(min(max(x, f(-104)), f(89)))
    result = (p * a) * b + (a * b - f(1))
    return x if x != x or x == f(0) else result


def _expm1_double(x):
    a, b, p = _parts_double(min(max(x, -746.0), 710.0))
    result = (p * a) * b + (a * b - 1.0)
    return x if x != x or x == 0.0 else result


expm1 = _by_type(_expm1_single, _expm1_double)


# log(m 2^e) with sqrt(1/2) <= m < sqrt(2): log(1 + t) = t - t^2/2 + s (t^2/2 + R(s^2)) where s = t / (2 + t).


@inlined
def _log_of(x, tail, _unused):
    """log(x) + tail / x, for x > 0 that isn't tiny: `tail` is what rounding took from x."""
    k = (single_bits(x) - i(0x3F3504F3)) >> i(23)
    m = single_from_bits(single_bits(x) - (k << i(23)))
    t = (m - f(1)) + tail * single_from_bits((i(127) - min(k, i(126))) << i(23))  # numbers above 2^126 have no tail
    s = t / (f(2) + t)
    z = s * s
    r = z * (f(0.666666665) + z * (f(0.400001294) + z * (f(0.285499686) + z * f(0.233534276))))
    half = f(0.5) * t * t
    e = f(k)
    return e * f(0.693359375) + (t - (half - (s * (half + r) - e * f(2.12194440e-4))))


def _log_single(x):
    tiny = x < f(1.17549435e-38)
    y = x * f(8388608) if tiny else x
    result = _log_of(y, f(0), 0)
    result = result - f(15.942385) if tiny else result
    result = f(-np.inf) if x == f(0) else result
    result = x if x == f(np.inf) else result
    return f(np.nan) if not x >= f(0) else result


def _log_double(x):
    tiny = x < 2.2250738585072014e-308
    y = x * 18014398509481984.0 if tiny else x
    k = (double_bits(y) - np.int64(0x3FE6A09E667F3BCD)) >> 52
    t = double_from_bits(double_bits(y) - (k << 52)) - 1.0
    s = t / (2.0 + t)
    z = s * s
    r = 0.18181793732111753 + z * (0.15386342449645143 + z * (0.13266048812203002 + z * 0.131148348695975))
    r = z * (0.6666666666666666 + z * (0.40000000000001007 + z * (0.2857142857072325 + z * (0.22222222409750114 + z * r))))
    half = 0.5 * t * t
    e = float(k - 54 if tiny else k)
    result = e * 0.6931471803691238 + (t - (half - (s * (half + r) + e * 1.9082149292705877e-10)))
    result = -np.inf if x == 0.0 else result
    result = x if x == np.inf else result
    return np.nan if not x >= 0.0 else result


log = _by_type(_log_single, _log_double)


def _log1p_single(x):
    u = f(1) + x
    result = _log_of(max(u, f(1e-30)), x - (u - f(1)) if x < f(1e7) else f(0), 0)
    result = f(-np.inf) if x == f(-1) else result
    result = x if x == f(np.inf) or x == f(0) else result
    return f(np.nan) if not x >= f(-1) else result


def _log1p_double(x):
    u = 1.0 + x
    tail = x - (u - 1.0)
    result = log(u) + (tail / u if u > 0.0 and u < 1e16 else 0.0)
    return x if x == 0.0 else result


log1p = _by_type(_log1p_single, _log1p_double)


def _tanh_single(x):
    size = min(abs(x), f(10))
    a, b, p = _parts_single(size + size)
    e = (p * a) * b + (a * b - f(1))
    return math.copysign(e / (e + f(2)), x) if x == x else x


def _tanh_double(x):
    size = min(abs(x), 22.0)
    a, b, p = _parts_double(size + size)
    e = (p * a) * b + (a * b - 1.0)
    return math.copysign(e / (e + 2.0), x) if x == x else x


tanh = _by_type(_tanh_single, _tanh_double)


def _sigmoid_single(x):
    return f(1) / (f(1) + exp(-x))


def _sigmoid_double(x):
    return 1.0 / (1.0 + exp(-x))


sigmoid = _by_type(_sigmoid_single, _sigmoid_double)


@inlined
def _exp_of_negative(x):
    """e^x for -60 < x <= 0, to 2 units of the last place: enough for what is taken from 1."""
    n = np.floor(x * f(1.4426950408889634) + f(0.5))
    r = x - n * f(0.6931471805599453)
    p = f(0.166666294) + r * (f(0.0416666201) + r * (f(0.00835768059) + r * f(0.00139193139)))
    p = f(1) + r * (f(1) + r * (f(0.5) + r * p))
    return single_from_bits(single_bits(p) + (i(n) << i(23)))


def _erf_single(x):
    """x + x P(x^2) below 1, 1 - e^-Q(x) above."""
    size = abs(x)
    z = size * size
    p = f(0.0051890874) + z * (f(-0.000801686429) + z * f(7.87587506e-05))
    near = x + x * (f(0.128379166) + z * (f(-0.376126267) + z * (f(0.112835947) + z * (f(-0.0268542122) + z * p))))
    y = min(size, f(4))
    q = f(0.0047595963) + y * (f(-0.000596805626) + y * (f(4.60580427e-05) + y * f(-1.63715141e-06)))
    q = f(-0.00032013805) + y * (f(1.13023343) + y * (f(0.631826052) + y * (f(0.110080083) + y * (f(-0.026421136) + y * q))))
    far = math.copysign(f(1) - _exp_of_negative(-q), x)
    return near if size < f(1) else far if x == x else x


@inlined
def _erf_near(z):
    p = 5.957176147748911e-11
    p = 1.6461000484121368e-06 + z * (
        -1.6350312701054695e-07 + z * (1.4659775274047436e-08 + z * (-1.1372848856791674e-09 + z * p))
    )
    p = 0.0052239776248180145 + z * (
        -0.000854832698083379 + z * (0.0001205533111164271 + z * (-1.4925595266831182e-05 + z * p))
    )
    p = 0.1283791670955126 + z * (-0.3761263890318375 + z * (0.11283791670954879 + z * (-0.026866170645076792 + z * p)))
    return p


@inlined
def _erf_middle(t):
    p = 2.3277038136332004e-08 + t * (-2.1388734139098666e-09 + t * -4.753577564408917e-10)
    p = -8.274994233367849e-07 + t * (
        -8.90599907125567e-07 + t * (4.0184226780745874e-07 + t * (-1.137150854207207e-07 + t * p))
    )
    p = -0.00462493049875452 + t * (0.000964098656039142 + t * (-0.00017452306690897307 + t * (2.3741403400647493e-05 + t * p)))
    p = 4.317863525433222 + t * (3.959610900813421 + t * (0.9099401664967347 + t * (0.02053884038127406 + t * p)))
    return p


@inlined
def _erf_far(t):
    p = -4.748336994105607e-11 + t * (-3.4849322229945125e-13 + t * 9.517672093522239e-13)
    p = -2.302058609263518e-07 + t * (
        3.151307871027572e-08 + t * (-4.044216157657127e-09 + t * (4.825066139095297e-10 + t * p))
    )
    p = -0.00048052875808155546 + t * (
        7.23798084416285e-05 + t * (-1.0879245968736854e-05 + t * (1.6067725576529295e-06 + t * p))
    )
    p = 20.107769901469705 + t * (8.723775715521306 + t * (0.9760845763970181 + t * (0.0032637442868974696 + t * p)))
    return p


def _erf_double(x):
    size = abs(x)
    y = min(size, 6.0)
    near = x + x * _erf_near(min(size * size, 1.0))
    q = _erf_middle(y - 1.75) if y < 2.5 else _erf_far(y - 4.25)
    far = math.copysign(1.0 - exp(-q), x)
    return near if size < 1.0 else far if x == x else x


erf = _by_type(_erf_single, _erf_double)


# The operations of the formulas in ops/, by their names there


def like(_x, _value) -> Any:
    """A number in the type of x."""
    raise NotImplementedError


like.overloaded = True


@overload(like, jit_options=INLINED)
def _like(_x, _value):
    made = f if _x == types.float32 else np.float64
    return lambda _x, _value: made(_value)


@inlined
def where(condition, a, b):
    return a if condition else b


@inlined
def where_zero(condition, x):
    return like(x, 0) if condition else x


@inlined
def kept_where(x, condition):
    return x if condition else like(x, 0)


@inlined
def masked_fill(x, condition, value):
    return like(x, value) if condition else x


@inlined
def clamp(x, low, high):
    return min(max(x, low), high) if x == x else x


@inlined
def clamp_min(x, low):
    return x if x > low or x != x else low


@inlined
def clamp_max(x, high):
    return x if x < high or x != x else high


@inlined
def relu_(x):
    return like(x, 0) if x < 0 else x


@inlined
def leaky_relu(x, slope):
    return x if x > 0 else x * slope


@inlined
def sgn(x):
    return like(x, x > 0) - like(x, x < 0)


@inlined
def neg(x):
    return -x


@inlined
def abs_(x):
    return abs(x)


@inlined
def sqrt(x):
    return np.sqrt(x)


@inlined
def square(x):
    return x * x


@inlined
def reciprocal(x):
    return like(x, 1) / x


@inlined
def mul(x, y):
    return x * y


@inlined
def add(x, y):
    return x + y


@inlined
def sub(x, y):
    return x - y


@inlined
def rsub(x, y):
    return y - x


@inlined
def div(x, y):
    return x / y


@inlined
def silu(x):
    return x / (like(x, 1) + exp(-x))


@inlined
def log_sigmoid(x):
    return (x if x < 0 else like(x, 0)) - log1p(exp(-abs(x)))


@inlined
def gelu_erf(x):
    return like(x, 0.5) * x * (like(x, 1) + erf(x * like(x, 0.7071067811865476)))


@inlined
def gelu_tanh(x):
    inner = like(x, 0.7978845608028654) * (x + like(x, 0.044715) * x * x * x)
    return like(x, 0.5) * x * (like(x, 1) + tanh(inner))


@inlined
def elu(x, alpha, scale, rate):
    return x * scale if x > 0 else expm1(min(x, like(x, 0)) * rate) * alpha * scale


@inlined
def power(x, exponent):
    """x ** exponent for float32 numbers, computed in float64: the product with the logarithm keeps the bits it needs."""
    wide, y = np.float64(x), np.float64(exponent)
    size = exp(y * log(abs(wide)))
    whole = np.floor(y) == y
    odd = whole and np.floor(y * 0.5) * 2.0 != y
    result = (-size if odd else size) if wide < 0.0 else size
    result = np.nan if wide < 0.0 and not whole and wide != -np.inf else result
    result = math.copysign(result, wide) if odd and wide == 0.0 else result
    return like(x, 1.0 if y == 0.0 or wide == 1.0 or (wide == -1.0 and abs(y) == np.inf) else result)


@inlined
def softplus(x, beta, threshold):
    return x if x * beta > threshold else log1p(exp(min(x * beta, threshold))) / beta


@inlined
def mish(x):
    return x * tanh(softplus(x, like(x, 1), like(x, 20)))


@inlined
def hardtanh(x, low, high):
    return clamp(x, low, high)


@inlined
def slope_where(x, positive, negative):
    return positive if x > 0 else negative


@inlined
def elu_slope(x, alpha, scale, rate):
    return scale if x > 0 else alpha * scale * rate * exp(min(x, like(x, 0)) * rate)


@inlined
def mish_slope(x):
    s, t = sigmoid(x), tanh(softplus(x, like(x, 1), like(x, 20)))
    return t + x * s * (like(x, 1) - t * t)


rsub_tensor, celu = rsub, elu


# Losses


@inlined
def squared_error(x, target):
    return (x - target) * (x - target)


@inlined
def squared_error_gradient(g, x, target, factor):
    return g * (x - target) * factor


@inlined
def bce(x, target):
    a, b = log(x), log1p(-x)
    a, b = like(x, -100) if a < -100 else a, like(x, -100) if b < -100 else b  # NaN stays
    return (target - like(x, 1)) * b - target * a


@inlined
def bce_gradient(share, x, target):
    slope = (like(x, 1) - x) * x
    return share * (x - target) / (like(x, 1e-12) if slope < like(x, 1e-12) else slope)


@inlined
def bce_logits(x, target):
    return (like(x, 0) if x < 0 else x) - x * target + log1p(exp(-abs(x)))


@inlined
def bce_logits_gradient(share, x, target):
    return share * (sigmoid(x) - target)
