"""Activations of `nn.functional`."""

from __future__ import annotations

from functools import partial

import numpy as np

from .. import batching, dtypes, random
from ..op import binary, op, public, twin, unary, write_out
from ..op import inplace as write_in_place
from ..state import modes
from ..tensor import Tensor, dimension
from .check import not_implemented, not_tensor
from .choose import clamp, clamp_arrays, kept_where, masked_fill, select, where, where_zero
from .pointwise import exp, sigmoid, tanh
from .shape import reshape
from .special import erf

functional = {"method": False, "module": "nn.functional"}

relu_ = unary("relu", partial(clamp_arrays, min=0, max=None), lambda g, _input, out: kept_where(g, out != 0), promote="arith",
              doc="max(input, 0). (*S) -> (*S). Differentiable (0 at 0).")  # fmt: skip


@public(**functional)
def relu(input, inplace=False):
    """max(input, 0). (*S) -> (*S). Differentiable (0 at 0)."""
    if isinstance(input, Tensor) and input.array.dtype.kind in "bc":
        if input.array.dtype.kind == "c":
            raise NotImplementedError("clamp is not supported for complex types")
        raise RuntimeError("Boolean inputs not supported for relu")
    return input.relu_() if inplace else relu_(input)


def _leaky_arrays(x, slope):
    return select(x > 0, x, x * x.dtype.type(slope))


_leaky_relu = op("leaky_relu", _leaky_arrays,
    lambda g, input, _out, negative_slope: g * slope_where(input, 1, negative_slope), promote="arith", batch="elementwise")  # fmt: skip


@twin(lambda x, positive, negative: select(x > 0, x.dtype.type(positive), x.dtype.type(negative)))
def slope_where(x, positive, negative):
    """One number where x > 0, another elsewhere."""
    return Tensor._from(np.where(x.array > 0, x.array.dtype.type(positive), x.array.dtype.type(negative)))


@public(**functional)
def leaky_relu(input, negative_slope=0.01, inplace=False):
    """input where positive, else negative_slope * input. Differentiable."""
    if input.array.dtype.kind in "biuc":
        raise not_implemented("leaky_relu_cpu", input)
    return write_if(inplace, input, lambda x: _leaky_relu(x, negative_slope))


def _check_float(kernel, input):
    if not isinstance(input, Tensor):
        raise not_tensor(kernel.removesuffix("_cpu"), input=input)
    if input.array.dtype.kind in "biu":
        raise not_implemented(kernel, input)


def write_if(inplace, input, function):
    if not inplace:
        return function(input)
    return write_in_place(function, input)


def _elu_arrays(x, alpha, scale, rate):
    below = np.expm1(np.minimum(0, x) * x.dtype.type(rate)) * x.dtype.type(alpha * scale)
    return select(x > 0, x * x.dtype.type(scale), below)


_elu = op("elu", _elu_arrays,
    lambda g, input, _out, alpha, scale, rate: g * elu_slope(input, alpha, scale, rate), promote="arith", batch="elementwise")  # fmt: skip
_celu = op("celu", _elu_arrays,
    lambda g, input, _out, alpha, scale, rate: g * elu_slope(input, alpha, scale, rate), promote="arith", batch="elementwise")  # fmt: skip


@twin(lambda x, alpha, scale, rate: select(x > 0, x.dtype.type(scale),
                                             x.dtype.type(alpha * scale * rate) * np.exp(np.minimum(x, 0) * x.dtype.type(rate))))  # fmt: skip
def elu_slope(x, alpha, scale, rate):
    """The derivative of elu."""
    return where(x > 0, scale, alpha * scale * rate * exp(clamp(x, max=0) * rate))


@public(**functional)
def elu(input, alpha=1.0, inplace=False):
    """input where positive, else alpha * (exp(input) - 1). Differentiable."""
    _check_float("elu_cpu", input)
    return write_if(inplace, input, lambda x: _elu(x, alpha, 1.0, 1.0))


@public(**functional)
def celu(input, alpha=1.0, inplace=False):
    """input where positive, else alpha * (exp(input / alpha) - 1). Differentiable."""
    _check_float("elu_cpu", input)
    return write_if(inplace, input, lambda x: _celu(x, alpha, 1.0, 1.0 / alpha))


@public(method=False)
def selu(input, inplace=False):
    """The self-normalising elu (Klambauer et al. 2017). Differentiable."""
    return write_if(inplace, input, lambda x: _elu(x, 1.6732632423543772, 1.0507009873554805, 1.0))


public(name="selu", **functional)(selu)


def _gelu_arrays(x):
    half = x.dtype.type(0.5)
    return half * x * (1 + erf.arrays(x * x.dtype.type(0.7071067811865476)))


def _gelu_tanh_arrays(x):
    k = x.dtype.type(0.7978845608028654)
    return x.dtype.type(0.5) * x * (1 + np.tanh(k * (x + x.dtype.type(0.044715) * x * x * x)))


_gelu = unary("gelu_erf", _gelu_arrays,
    lambda g, input, _out: g * (0.5 * (1 + erf_scaled(input)) + input * (0.3989422804014327 * exp(-0.5 * input * input))),
    public=False, promote="arith", node="GeluBackward0")  # fmt: skip


@twin(lambda x: erf.arrays(x * x.dtype.type(0.7071067811865476)))
def erf_scaled(x):
    """erf(x / sqrt(2))."""
    return erf(x * 0.7071067811865476)


def _gelu_tanh_gradient(g, input, _out):
    inner = tanh(0.7978845608028654 * (input + 0.044715 * input * input * input))
    slope = 0.7978845608028654 * (1 + 0.134145 * input * input)
    return g * (0.5 * (1 + inner) + 0.5 * input * (1 - inner * inner) * slope)


_gelu_tanh = unary("gelu_tanh", _gelu_tanh_arrays, _gelu_tanh_gradient, public=False, promote="arith", node="GeluBackward0")


@public(**functional)
def gelu(input, approximate="none", *, out=None):
    """input * P(X <= input) for a standard normal X, by erf or (approximate="tanh") by tanh. Differentiable."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    if input.array.dtype.kind not in "fV":
        raise NotImplementedError(f"\"GeluKernelImpl\" not implemented for '{dtypes.scalar_type_name(input.dtype)}'")
    result = (_gelu if approximate == "none" else _gelu_tanh)(input)
    return result if out is None else write_out(out, result, exact=True)


_silu = unary("silu", lambda x: x * sigmoid.arrays(x),
    lambda g, input, _out: g * silu_slope(input), public=False)  # fmt: skip


@twin(lambda x: _silu_slope(x, sigmoid.arrays(x)))
def silu_slope(x):
    """The derivative of silu."""
    return _silu_slope(x, sigmoid(x))


def _silu_slope(x, s):
    return s * (1 + x * (1 - s))


@public(**functional)
def silu(input, inplace=False):
    """input * sigmoid(input). Differentiable."""
    _check_float("silu_cpu", input)
    return write_if(inplace, input, _silu)


def _softplus_arrays(x, beta, threshold):
    z = x * x.dtype.type(beta)
    return select(z > threshold, x, np.log1p(np.exp(np.minimum(z, threshold))) / x.dtype.type(beta))


_softplus = op("softplus", _softplus_arrays,
    lambda g, input, _out, beta, threshold: g * softplus_slope(input, beta, threshold), promote="arith", batch="elementwise")  # fmt: skip


@twin(lambda x, beta, threshold: select(x * beta > threshold, x.dtype.type(1), sigmoid.arrays(x * x.dtype.type(beta))))
def softplus_slope(x, beta, threshold):
    """The derivative of softplus."""
    return masked_fill(sigmoid(x * beta), x * beta > threshold, 1)


@public(**functional)
def softplus(input, beta=1, threshold=20, *, out=None):
    """log(1 + exp(beta * input)) / beta, linear beyond the threshold. Differentiable."""
    _check_float("softplus_cpu", input)
    result = _softplus(input, beta, threshold)
    return result if out is None else write_out(out, result)


@public(**functional)
def mish(input, inplace=False):
    """input * tanh(softplus(input)). Differentiable."""
    return write_if(inplace, input, lambda x: _mish(x))


_mish = unary("mish", lambda x: x * np.tanh(_softplus_arrays(x, 1, 20)),
    lambda g, input, _out: g * mish_slope(input), public=False)  # fmt: skip


@twin(lambda x: _mish_slope(x, np.tanh(_softplus_arrays(x, 1, 20)), sigmoid.arrays(x)))
def mish_slope(x):
    """The derivative of mish."""
    return _mish_slope(x, tanh(softplus(x)), sigmoid(x))


def _mish_slope(x, t, s):
    return t + x * s * (1 - t * t)


_log_sigmoid = unary("log_sigmoid", lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    lambda g, input, _out: g * sigmoid(-input), public=False)  # fmt: skip


@public(**functional)
def logsigmoid(input, *, out=None):
    """log(sigmoid(input)), without overflow. Differentiable."""
    return _log_sigmoid(input) if out is None else write_out(out, _log_sigmoid(input), exact=True)


_hardtanh = op("hardtanh", lambda x, low, high: np.clip(x, x.dtype.type(low), x.dtype.type(high)),
    lambda g, input, _out, low, high: kept_where(g, (input > low) & (input < high)), promote="arith", batch="elementwise")  # fmt: skip


@public(**functional)
def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """input limited to [min_val, max_val]. Differentiable."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return write_if(inplace, input, lambda x: _hardtanh(x, min_val, max_val))


@public(**functional)
def relu6(input, inplace=False):
    """input limited to [0, 6]. Differentiable."""
    return hardtanh(input, 0.0, 6.0, inplace)


_hardsigmoid = unary("hardsigmoid", lambda x: np.clip(x / 6 + x.dtype.type(0.5), 0, 1),
    lambda g, input, _out: kept_where(g, (input > -3) & (input < 3)) / 6, public=False)  # fmt: skip
_hardswish = unary("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6,
    lambda g, input, _out: kept_where(g, input >= 3) + kept_where(g * (input / 3 + 0.5), ~((input >= 3) | (input <= -3))), public=False)  # fmt: skip


@public(**functional)
def hardsigmoid(input, inplace=False):
    """input / 6 + 1/2 limited to [0, 1]. Differentiable."""
    return write_if(inplace, input, _hardsigmoid)


@public(**functional)
def hardswish(input, inplace=False):
    """input * hardsigmoid(input). Differentiable."""
    return write_if(inplace, input, _hardswish)


_hardshrink = op("hardshrink", lambda x, lambd: select(np.abs(x) <= lambd, x.dtype.type(0), x),
    lambda g, input, _out, lambd: kept_where(g, (input > lambd) | (input < -lambd)), promote="arith", batch="elementwise")  # fmt: skip
_softshrink = op("softshrink", lambda x, lambd: select(x > lambd, x - x.dtype.type(lambd), np.where(x < -lambd, x + x.dtype.type(lambd), x * 0)),
    lambda g, input, _out, lambd: kept_where(g, (input > lambd) | (input < -lambd)), promote="arith", batch="elementwise")  # fmt: skip


@public(**functional)
def hardshrink(input, lambd=0.5, *, out=None):
    """input where |input| > lambd, else 0. Differentiable."""
    result = _hardshrink(input, lambd)
    return result if out is None else write_out(out, result)


@public(**functional)
def softshrink(input, lambd=0.5, *, out=None):
    """input moved towards 0 by lambd, 0 in between. Differentiable."""
    if lambd < 0:
        kind = dtypes.scalar_type_name(input.dtype)
        raise RuntimeError(
            f"lambda must be in range [0, {dtypes.finfo(input.dtype).max:g}] for input dtype {kind}, but found {lambd}"
        )
    result = _softshrink(input, lambd)
    return result if out is None else write_out(out, result)


@public(**functional)
def tanhshrink(input):
    """input - tanh(input). Differentiable."""
    return input - tanh(input)


@public(**functional)
def softsign(input):
    """input / (1 + |input|). Differentiable."""
    return input / (input.abs() + 1)


_threshold = op("threshold", lambda x, threshold, value: select(x <= threshold, x.dtype.type(value), x),
    lambda g, input, _out, threshold, _value: kept_where(g, ~(input <= threshold)), promote="arith", batch="elementwise")  # fmt: skip


@public(**functional)
def threshold(input, threshold, value, inplace=False):
    """input where it exceeds the threshold, else value. Differentiable."""
    if input.dtype is dtypes.bool_:
        raise not_implemented("threshold_cpu", input)
    return write_if(inplace, input, lambda x: _threshold(x, threshold, value))


@twin(lambda x, dim: np.split(x, 2, dim))
def _halves(x, dim):
    return x.chunk(2, dim)


@twin(lambda a, b, dim: np.concatenate([a, b], dim))
def _joined(a, b, dim):
    from .join import cat

    return cat([a, b], dim)


def _glu_gradient(g, x, dim):
    a, b = _halves(x, dim)
    s = sigmoid(b)
    return _joined(g * s, g * a * s * (1 - s), dim)


def _glu_arrays(x, dim):
    a, b = np.split(x, 2, dim)
    return a * sigmoid.arrays(b)


_glu = op("glu", _glu_arrays, lambda g, input, _out, dim: _glu_gradient(g, input, dim), batch="leading")


@public(**functional)
def glu(input, dim=-1):
    """The first half of `dim` times the sigmoid of the second. Differentiable."""
    if not input.array.ndim:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    d = dimension(dim, input.array.ndim)
    if input.array.shape[d] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {d} is size {input.array.shape[d]}")
    return _glu(input, d)


_prelu = binary("prelu", lambda x, w: select(x > 0, x, w * x),
    lambda g, input, weight, _out: where_keep(input > 0, g, weight * g),
    lambda g, input, _weight, _out: where_zero(input > 0, input * g),
    public=False, node="PreluKernelBackward0")  # fmt: skip


@twin(np.where)
def where_keep(condition, a, b):
    """a where the condition holds, else b."""
    return where(condition, a, b)


@public(**functional)
def prelu(input, weight):
    """input where positive, else weight * input; one weight or one per channel (dimension 1). Differentiable in both."""
    if weight.array.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.array.ndim}")
    if weight.array.size != 1:
        if input.array.ndim < 1:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.array.shape[1] if input.array.ndim > 1 else 1
        if channels != weight.array.size:
            raise RuntimeError(f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                               f"{weight.array.size} and channel size = {channels}.")  # fmt: skip
    shape = [1] * input.array.ndim
    if input.array.ndim > 1:
        shape[1] = -1
    elif input.array.ndim == 1:
        shape[0] = -1
    return _prelu(input, reshape(weight, shape))


_rrelu = op("rrelu_with_noise", lambda x, noise, _lower, _upper, _training: x * noise,
    lambda g, _input, noise, _out, _lower, _upper, _training: g * noise, None)  # fmt: skip


def _rrelu_slopes(x, lower, upper, training):
    """The slope for each element: 1 where positive; else drawn anew, one number for each in order, or the middle one."""
    if not training:
        return np.where(x > 0, x.dtype.type(1), x.dtype.type((lower + upper) / 2))
    slopes, below = np.ones_like(x, order="C"), x <= 0
    slopes[below] = random.uniform((int(below.sum()),), np.dtype("f8"), lower, upper)
    return slopes


@public(method=False)
def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """input where positive, else input times a random slope from [lower, upper] (the middle if not training). Differentiable."""
    _check_float("leaky_relu_cpu", input)
    if not lower <= upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if modes.levels and batching.vmap_levels():
        raise RuntimeError("vmap: we do not yet support aten::rrelu. Please file an issue")
    slopes = Tensor._from(_rrelu_slopes(input.array, lower, upper, training))
    return write_if(inplace, input, lambda x: _rrelu(x, slopes, lower, upper, training))


public(name="rrelu", **functional)(rrelu)


@public(**functional)
def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample from the Gumbel-softmax distribution (Jang et al. 2017); hard: one-hot, with the soft one's gradient."""
    del eps
    if isinstance(logits, batching.Batched):
        noise = logits.detach().clone()
    else:
        noise = Tensor._from(np.empty_like(logits.array, order="C"))
    noise = noise.exponential_().log()
    soft = ((logits - noise) / tau).softmax(dim)
    if not hard:
        return soft
    d = dimension(dim, soft.array.ndim)
    chosen = (soft.detach() * 0).scatter(d, soft.argmax(d, True), 1.0)
    return chosen - soft.detach() + soft


for _name, _function in (("sigmoid", sigmoid), ("tanh", tanh)):
    public(name=_name, **functional)(_function)
for _name, _function in (
    ("elu_", elu), ("leaky_relu_", leaky_relu), ("relu_", relu), ("hardtanh_", hardtanh), ("selu_", selu), ("celu_", celu),
    ("threshold_", threshold), ("rrelu_", rrelu),
):  # fmt: skip
    public(name=_name, **functional)(
        lambda input, *args, _function=_function, **kwargs: _function(input, *args, inplace=True, **kwargs)
    )
