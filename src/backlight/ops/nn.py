"""What neural networks are made of: activations, losses, normalisation, dropout, embedding, attention."""

from __future__ import annotations

import builtins
import math

import numpy as np

from .. import dtypes, engine
from ..op import binary, op, public, twin, unary
from ..tensor import Tensor, dimension
from .index import _index_add_zero, _index_select, to
from .linalg import matmul
from .pointwise import clamp, exp, log, masked_fill, sgn, sigmoid, sqrt, tanh, where, where_zero  # noqa: F401
from .reduce import log_softmax, mean, spread, sum, vector_norm  # noqa: F401
from .shape import expand, reshape, transpose

functional = {"method": False, "module": "nn.functional"}

# Activations


relu_ = unary("relu", lambda x: np.maximum(x, 0), lambda g, _input, out: g * (out > 0), promote="arith",
              doc="max(input, 0). (*S) -> (*S). Differentiable (0 at 0).")  # fmt: skip


@public(**functional)
def relu(input, inplace=False):
    """max(input, 0). (*S) -> (*S). Differentiable (0 at 0)."""
    return input.relu_() if inplace else relu_(input)


def _leaky_arrays(x, slope):
    return np.where(x > 0, x, x * x.dtype.type(slope))


_leaky_relu = op("leaky_relu", _leaky_arrays,
    lambda g, input, _out, negative_slope: g * slope_where(input, 1, negative_slope), promote="arith")  # fmt: skip


@twin(lambda x, positive, negative: np.where(x > 0, x.dtype.type(positive), x.dtype.type(negative)))
def slope_where(x, positive, negative):
    """One number where x > 0, another elsewhere."""
    return Tensor._from(np.where(x.array > 0, x.array.dtype.type(positive), x.array.dtype.type(negative)))


@public(**functional)
def leaky_relu(input, negative_slope=0.01, inplace=False):
    """input where positive, else negative_slope * input. Differentiable."""
    return _write_if(inplace, input, lambda x: _leaky_relu(x, negative_slope))


def _write_if(inplace, input, function):
    if not inplace:
        return function(input)
    from ..op import inplace as write

    return write(function, "activation_", input, (), {})


_elu = op("elu", lambda x, alpha, scale, rate: np.where(x > 0, x * x.dtype.type(scale),
                                                       np.expm1(np.minimum(x, 0) * x.dtype.type(rate)) * x.dtype.type(alpha * scale)),
    lambda g, input, _out, alpha, scale, rate: g * elu_slope(input, alpha, scale, rate), promote="arith")  # fmt: skip


@twin(lambda x, alpha, scale, rate: np.where(x > 0, x.dtype.type(scale),
                                             x.dtype.type(alpha * scale * rate) * np.exp(np.minimum(x, 0) * x.dtype.type(rate))))  # fmt: skip
def elu_slope(x, alpha, scale, rate):
    """The derivative of elu."""
    return where(x > 0, scale, alpha * scale * rate * exp(clamp(x, max=0) * rate))


@public(**functional)
def elu(input, alpha=1.0, inplace=False):
    """input where positive, else alpha * (exp(input) - 1). Differentiable."""
    return _write_if(inplace, input, lambda x: _elu(x, alpha, 1.0, 1.0))


@public(**functional)
def celu(input, alpha=1.0, inplace=False):
    """input where positive, else alpha * (exp(input / alpha) - 1). Differentiable."""
    return _write_if(inplace, input, lambda x: _elu(x, alpha, 1.0, 1.0 / alpha))


@public(method=False)
def selu(input, inplace=False):
    """The self-normalising elu (Klambauer et al. 2017). Differentiable."""
    return _write_if(inplace, input, lambda x: _elu(x, 1.6732632423543772, 1.0507009873554805, 1.0))


public(name="selu", **functional)(selu)


def _erf_arrays(x):
    from .pointwise import _erf

    return _erf(x)


def _gelu_arrays(x):
    half = x.dtype.type(0.5)
    return half * x * (1 + _erf_arrays(x * x.dtype.type(0.7071067811865476)))


def _gelu_tanh_arrays(x):
    k = x.dtype.type(0.7978845608028654)
    return x.dtype.type(0.5) * x * (1 + np.tanh(k * (x + x.dtype.type(0.044715) * x * x * x)))


_gelu = unary("gelu_erf", _gelu_arrays,
    lambda g, input, _out: g * (0.5 * (1 + erf_scaled(input)) + input * (0.3989422804014327 * exp(-0.5 * input * input))),
    public=False, promote="arith", node="GeluBackward0")  # fmt: skip


@twin(lambda x: _erf_arrays(x * x.dtype.type(0.7071067811865476)))
def erf_scaled(x):
    """erf(x / sqrt(2))."""
    from .pointwise import erf

    return erf(x * 0.7071067811865476)


def _gelu_tanh_gradient(g, input, _out):
    inner = tanh(0.7978845608028654 * (input + 0.044715 * input * input * input))
    slope = 0.7978845608028654 * (1 + 0.134145 * input * input)
    return g * (0.5 * (1 + inner) + 0.5 * input * (1 - inner * inner) * slope)


_gelu_tanh = unary("gelu_tanh", _gelu_tanh_arrays, _gelu_tanh_gradient, public=False, promote="arith", node="GeluBackward0")


@public(**functional)
def gelu(input, approximate="none"):
    """input * P(X <= input) for a standard normal X, by erf or (approximate="tanh") by tanh. Differentiable."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    if input.array.dtype.kind not in "fV":
        raise NotImplementedError(f'"GeluKernelImpl" not implemented for \'{dtypes.scalar_type_name(input.dtype)}\'')
    return (_gelu if approximate == "none" else _gelu_tanh)(input)


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
    return _write_if(inplace, input, _silu)


def _softplus_arrays(x, beta, threshold):
    z = x * x.dtype.type(beta)
    return np.where(z > threshold, x, np.log1p(np.exp(np.minimum(z, threshold))) / x.dtype.type(beta))


_softplus = op("softplus", _softplus_arrays,
    lambda g, input, _out, beta, threshold: g * softplus_slope(input, beta, threshold), promote="arith")  # fmt: skip


@twin(lambda x, beta, threshold: np.where(x * beta > threshold, x.dtype.type(1), sigmoid.arrays(x * x.dtype.type(beta))))
def softplus_slope(x, beta, threshold):
    """The derivative of softplus."""
    return masked_fill(sigmoid(x * beta), x * beta > threshold, 1)


@public(**functional)
def softplus(input, beta=1, threshold=20):
    """log(1 + exp(beta * input)) / beta, linear beyond the threshold. Differentiable."""
    return _softplus(input, beta, threshold)


@public(**functional)
def mish(input, inplace=False):
    """input * tanh(softplus(input)). Differentiable."""
    return _write_if(inplace, input, lambda x: _mish(x))


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
def logsigmoid(input):
    """log(sigmoid(input)), without overflow. Differentiable."""
    return _log_sigmoid(input)


_hardtanh = op("hardtanh", lambda x, low, high: np.clip(x, low, high),
    lambda g, input, _out, low, high: g * ((input > low) & (input < high)), promote="arith")  # fmt: skip


@public(**functional)
def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """input limited to [min_val, max_val]. Differentiable."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _write_if(inplace, input, lambda x: _hardtanh(x, min_val, max_val))


@public(**functional)
def relu6(input, inplace=False):
    """input limited to [0, 6]. Differentiable."""
    return hardtanh(input, 0.0, 6.0, inplace)


_hardsigmoid = unary("hardsigmoid", lambda x: np.clip(x / 6 + x.dtype.type(0.5), 0, 1),
    lambda g, input, _out: g * ((input > -3) & (input < 3)) / 6, public=False)  # fmt: skip
_hardswish = unary("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6,
    lambda g, input, _out: g * ((input >= 3) + ((input > -3) & (input < 3)) * (input / 3 + 0.5)), public=False)  # fmt: skip


@public(**functional)
def hardsigmoid(input, inplace=False):
    """input / 6 + 1/2 limited to [0, 1]. Differentiable."""
    return _write_if(inplace, input, _hardsigmoid)


@public(**functional)
def hardswish(input, inplace=False):
    """input * hardsigmoid(input). Differentiable."""
    return _write_if(inplace, input, _hardswish)


_hardshrink = op("hardshrink", lambda x, lambd: np.where(np.abs(x) > lambd, x, x.dtype.type(0)),
    lambda g, input, _out, lambd: g * ((input > lambd) | (input < -lambd)), promote="arith")  # fmt: skip
_softshrink = op("softshrink", lambda x, lambd: np.where(x > lambd, x - x.dtype.type(lambd), np.where(x < -lambd, x + x.dtype.type(lambd), x * 0)),
    lambda g, input, _out, lambd: g * ((input > lambd) | (input < -lambd)), promote="arith")  # fmt: skip


@public(**functional)
def hardshrink(input, lambd=0.5):
    """input where |input| > lambd, else 0. Differentiable."""
    return _hardshrink(input, lambd)


@public(**functional)
def softshrink(input, lambd=0.5):
    """input moved towards 0 by lambd, 0 in between. Differentiable."""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return _softshrink(input, lambd)


@public(**functional)
def tanhshrink(input):
    """input - tanh(input). Differentiable."""
    return input - tanh(input)


@public(**functional)
def softsign(input):
    """input / (1 + |input|). Differentiable."""
    return input / (input.abs() + 1)


_threshold = op("threshold", lambda x, threshold, value: np.where(x > threshold, x, x.dtype.type(value)),
    lambda g, input, _out, threshold, _value: g * (input > threshold), promote="arith")  # fmt: skip


@public(**functional)
def threshold(input, threshold, value, inplace=False):
    """input where it exceeds the threshold, else value. Differentiable."""
    return _write_if(inplace, input, lambda x: _threshold(x, threshold, value))


@public(**functional)
def glu(input, dim=-1):
    """The first half of `dim` times the sigmoid of the second. Differentiable."""
    d = dimension(dim, input.array.ndim)
    if not input.array.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    if input.array.shape[d] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {d} is size {input.array.shape[d]}")
    a, b = input.chunk(2, d)
    return a * sigmoid(b)


_prelu = binary("prelu", lambda x, w: np.where(x > 0, x, w * x),
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


for _name, _function in (("sigmoid", sigmoid), ("tanh", tanh)):
    public(name=_name, **functional)(_function)
for _name, _function in (
    ("elu_", elu), ("leaky_relu_", leaky_relu), ("relu_", relu), ("hardtanh_", hardtanh), ("selu_", selu), ("celu_", celu),
    ("threshold_", threshold),
):  # fmt: skip
    public(name=_name, **functional)(
        lambda input, *args, _function=_function, **kwargs: _function(input, *args, inplace=True, **kwargs)
    )

# Losses


def _reduction(size_average, reduce, reduction):
    if size_average is not None or reduce is not None:
        import warnings

        reduce = True if reduce is None else reduce
        size_average = True if size_average is None else size_average
        reduction = "mean" if size_average and reduce else "sum" if reduce else "none"
        warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.", stacklevel=3)
    return _check_reduction(reduction)


def _check_reduction(reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def _reduced(loss, reduction):
    return mean(loss) if reduction == "mean" else sum(loss) if reduction == "sum" else loss


def _mean_scale(reduction, count):
    return 1.0 / count if reduction == "mean" and count else float("nan") if reduction == "mean" else 1.0


def count_of(x):
    total = 1
    for n in x.shape:
        total *= n
    return total


def _broadcast_pair(input, target):
    if input.array.shape != target.array.shape:
        import warnings

        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely lead "
            "to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=3,
        )
        shape = np.broadcast_shapes(input.array.shape, target.array.shape) if _broadcasts(input, target) else None
        if shape is None:
            from ..op import check_broadcast

            check_broadcast(input.array.shape, target.array.shape)
        input, target = expand(input, shape), expand(target, shape)
    t = dtypes.promote([input.array, target.array])
    return to(input, t), to(target, t)


def _broadcasts(a, b):
    try:
        np.broadcast_shapes(a.array.shape, b.array.shape)
    except ValueError:
        return False
    return True


def _loss_arrays(loss):
    def arrays(x, target, reduction, parameter):
        values = loss(x - target, parameter)
        return values if reduction == "none" else np.add.reduce(values, None) * x.dtype.type(_mean_scale(reduction, values.size))

    return arrays


_mse = op("mse_loss", lambda x, target, reduction: _loss_arrays(lambda d, _p: d * d)(x, target, reduction, None),
    lambda g, input, target, _out, reduction: g * (input - target) * (2.0 * _mean_scale(reduction, count_of(input))),
    lambda g, input, target, _out, reduction: g * (target - input) * (2.0 * _mean_scale(reduction, count_of(input))))  # fmt: skip


def _huber_arrays(d, delta):
    size = np.abs(d)
    return np.where(size <= delta, d.dtype.type(0.5) * d * d, d.dtype.type(delta) * (size - d.dtype.type(0.5 * delta)))


def _smooth_arrays(d, beta):
    if beta == 0:
        return np.abs(d)
    size = np.abs(d)
    return np.where(size < beta, d.dtype.type(0.5 / beta) * d * d, size - d.dtype.type(0.5 * beta))


_huber = op("huber_loss", _loss_arrays(_huber_arrays),
    lambda g, input, target, _out, reduction, delta: g * clamp(input - target, -delta, delta) * _mean_scale(reduction, count_of(input)),
    lambda g, input, target, _out, reduction, delta: g * clamp(target - input, -delta, delta) * _mean_scale(reduction, count_of(input)))  # fmt: skip
_smooth_l1 = op("smooth_l1_loss", _loss_arrays(_smooth_arrays),
    lambda g, input, target, _out, reduction, beta: g * smooth_slope(input - target, beta) * _mean_scale(reduction, count_of(input)),
    lambda g, input, target, _out, reduction, beta: g * smooth_slope(target - input, beta) * _mean_scale(reduction, count_of(input)))  # fmt: skip


@twin(lambda d, beta: np.sign(d) if beta == 0 else np.clip(d / beta, -1, 1))
def smooth_slope(d, beta):
    """The derivative of smooth_l1."""
    return sgn(d) if beta == 0 else clamp(d / beta, -1, 1)


clamp.arrays = lambda x, min=None, max=None: np.clip(x, min, max)


@public(**functional)
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """The squared error, averaged (or summed, or elementwise). Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    input, target = _broadcast_pair(input, target)
    if weight is not None:
        return _reduced(weight * _mse(input, target, "none"), "sum" if reduction == "sum" else "none") if reduction != "mean" else \
            sum(weight * _mse(input, target, "none")) / sum(weight)  # fmt: skip
    return _mse(input, target, reduction)


@public(**functional)
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """The absolute error, averaged (or summed, or elementwise). Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    input, target = _broadcast_pair(input, target)
    loss = (input - target).abs()
    if weight is not None:
        loss = loss * weight
        if reduction == "mean":
            return sum(loss) / sum(weight)
    return _reduced(loss, reduction)


@public(**functional)
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Squared below beta, absolute above (Girshick 2015). Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    input, target = _broadcast_pair(input, target)
    return _smooth_l1(input, target, reduction, beta)


@public(**functional)
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Squared below delta, linear above (Huber 1964). Differentiable in both."""
    _check_reduction(reduction)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    input, target = _broadcast_pair(input, target)
    if weight is None:
        return _huber(input, target, reduction, delta)
    loss = _huber(input, target, "none", delta) * weight
    return sum(loss) / sum(weight) if reduction == "mean" else _reduced(loss, reduction)


# Negative log likelihood: input (N, C, *D), target (N, *D)


def _picked(x, target):
    """x[n, target[n, d], d] and the mask of valid targets."""
    return np.take_along_axis(x, np.expand_dims(target, 1), 1).squeeze(1)


def _nll_arrays(x, target, weight, reduction, ignore):
    valid = target != ignore
    safe = np.where(valid, target, 0)
    w = np.ones(target.shape, x.dtype) if weight is None else weight[safe]
    w = w * valid
    loss = -_picked(x, safe) * w if x.size else np.zeros(target.shape, x.dtype)
    loss = np.where(valid, loss, loss.dtype.type(0))
    if reduction == "none":
        return loss
    total = np.add.reduce(loss, None)
    return total if reduction == "sum" else total / np.add.reduce(w, None)


def _nll_gradient_arrays(g, shape, target, weight, reduction, ignore):
    valid = target != ignore
    safe = np.where(valid, target, 0)
    w = valid.astype(g.dtype) if weight is None else weight[safe] * valid
    w = w.astype(g.dtype, copy=False)
    if reduction == "mean":
        w = w / np.add.reduce(w, None)
    out = np.zeros(shape, g.dtype)
    if out.size:
        np.put_along_axis(out, np.expand_dims(safe, 1), np.expand_dims(-w * g, 1), 1)
    return out


_nll = op("nll_loss", _nll_arrays,
    lambda g, input_shape, target, weight, _out, reduction, ignore: nll_gradient(g, target, weight, input_shape, reduction, ignore),
    None, None, promote="keep", optional=("weight",))  # fmt: skip
nll_gradient = op("nll_gradient", lambda g, target, weight, shape, reduction, ignore:
        _nll_gradient_arrays(g, shape, target, weight, reduction, ignore),
    lambda g, _input, target, weight, _out, _shape, reduction, ignore: nll_back(g, target, weight, reduction, ignore),
    None, None, promote="keep", optional=("weight",))  # fmt: skip


@twin(lambda g, target, weight, reduction, ignore: _nll_arrays(g, target, weight, reduction, ignore))
def nll_back(g, target, weight, reduction, ignore):
    """The loss is linear in its input, so the gradient of its gradient is the loss itself."""
    return _nll(g, target, weight, reduction, ignore)


@public(**functional)
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-input[n, target[n]], weighted by class and averaged over the weights. (N, C, *), (N, *) -> (). Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    x = input.array
    if x.ndim < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {x.ndim})")
    if target.dtype is dtypes.uint8:
        target = to(target, dtypes.int64)
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_type_name(target.dtype)}")
    if x.ndim == 1:
        if target.array.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        result = nll_loss(reshape(input, 1, -1), reshape(target, 1), weight, ignore_index=ignore_index, reduction=reduction)
        return reshape(result, target.array.shape) if reduction == "none" else result
    if x.ndim == 2 and target.array.ndim != 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if x.shape[0] != target.array.shape[0]:
        raise ValueError(f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({target.array.shape[0]}).")
    if x.shape[2:] != target.array.shape[1:]:
        raise RuntimeError(f"Expected target size {list((x.shape[0], *x.shape[2:]))}, got {list(target.array.shape)}")
    classes = x.shape[1]
    if weight is not None and weight.array.shape != (classes,):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of "
                           f"shape: {list(weight.array.shape)}")  # fmt: skip
    t = target.array
    wrong = (t != ignore_index) & ((t < 0) | (t >= classes))
    if wrong.any():
        raise IndexError(f"Target {t[wrong].reshape(-1)[0]} is out of bounds.")
    return _nll(input, target, weight, reduction, ignore_index)


@public(**functional)
def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    """nll_loss of log_softmax(input). target: class indices (N, *) or probabilities (N, C, *). Differentiable.

    >>> import backlight as torch
    >>> torch.nn.functional.cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    """
    reduction = _reduction(size_average, reduce, reduction)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    dim = 0 if input.array.ndim == 1 else 1
    if target.dtype.is_floating_point:
        if input.array.shape != target.array.shape:
            raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_type_name(target.dtype)}")
        return _soft_cross_entropy(log_softmax(input, dim), target, weight, reduction, label_smoothing, dim)
    scores = log_softmax(input, dim)
    if not label_smoothing:
        return nll_loss(scores, target, weight, ignore_index=ignore_index, reduction=reduction)
    hard = nll_loss(scores, target, weight, ignore_index=ignore_index, reduction=reduction)
    classes = input.array.shape[dim]
    shape = [1] * input.array.ndim
    shape[dim] = -1
    smooth = -sum(scores if weight is None else scores * reshape(weight, shape), dim)
    ignored = Tensor._from(target.array == ignore_index)
    smooth = masked_fill(smooth, ignored, 0)
    if reduction == "mean":
        if weight is None:
            smooth = sum(smooth) / float((~ignored.array).sum())
        else:
            safe = np.where(ignored.array, 0, target.array)
            smooth = sum(smooth) / sum(masked_fill(reshape(_index_select(weight, Tensor._from(safe.reshape(-1)), 0), safe.shape), ignored, 0))
    elif reduction == "sum":
        smooth = sum(smooth)
    return (1 - label_smoothing) * hard + label_smoothing / classes * smooth


def _soft_cross_entropy(scores, target, weight, reduction, label_smoothing, dim):
    classes = scores.array.shape[dim]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    product = scores * target
    if weight is not None:
        shape = [1] * scores.array.ndim
        shape[dim] = -1
        product = product * reshape(weight, shape)
    if reduction == "none":
        return -sum(product, dim)
    batch = scores.array.size // classes if classes else 0
    return -sum(product) / batch if reduction == "mean" else -sum(product)


@public(**functional)
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target * (log(target) - input), elementwise or reduced ("batchmean" divides by the batch). Differentiable."""
    if reduction == "batchmean":
        return kl_div(input, target, reduction="sum", log_target=log_target) / input.array.shape[0]
    reduction = _reduction(size_average, reduce, reduction)
    loss = exp(target) * (target - input) if log_target else xlogy(target, target) - target * input
    return _reduced(loss, reduction)


xlogy = binary("xlogy", lambda x, y: np.where((x == 0) & ~np.isnan(y), x.dtype.type(0), x * np.log(np.where(x == 0, np.ones((), y.dtype), y))),
    lambda g, input, other, _out: where_zero((input == 0) & (other <= 0), g * log(other)),
    lambda g, input, other, _out: g * (input / other),
    promote="float", doc="input * log(other), 0 where input is 0. Differentiable in both.")  # fmt: skip


def _bce_arrays(x, target):
    a = np.maximum(np.log(x), -100)
    b = np.maximum(np.log1p(-x), -100)
    return (target - 1) * b - target * a


_bce = op("binary_cross_entropy", _bce_arrays,
    lambda g, input, target, _out: g * (input - target) / clamp((1 - input) * input, 1e-12),
    lambda g, input, _target, _out: g * (log(1 - input) - log(input)))  # fmt: skip


@public(**functional)
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-(t log p + (1 - t) log(1 - p)) with logarithms limited to -100. p = input in [0, 1]. Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    if input.array.shape != target.array.shape:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
                         "Please ensure they have the same size.")  # fmt: skip
    if input.array.size and (input.array.min() < 0 or input.array.max() > 1):
        raise RuntimeError("all elements of input should be between 0 and 1")
    if input.dtype is not target.dtype:
        raise RuntimeError(f"Found dtype {dtypes.scalar_type_name(target.dtype)} but expected {dtypes.scalar_type_name(input.dtype)}")
    loss = _bce(input, target)
    return _reduced(loss if weight is None else loss * weight, reduction)


_bce_logits = op("binary_cross_entropy_with_logits",
    lambda x, target: np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x))),
    lambda g, input, target, _out: g * (sigmoid(input) - target),
    lambda g, input, _target, _out: -g * input)  # fmt: skip


@public(**functional)
def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
    """binary_cross_entropy of sigmoid(input), without overflow. Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    if input.array.shape != target.array.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    t = dtypes.promote([input.array, target.array])
    input, target = to(input, t), to(target, t)
    if pos_weight is None:
        loss = _bce_logits(input, target)
    else:
        loss = (1 - target) * input - (1 + (pos_weight - 1) * target) * logsigmoid(input)
    return _reduced(loss if weight is None else loss * weight, reduction)


@public(**functional)
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """input where target is 1, max(0, margin - input) where it is -1. Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    near = where(target == -1, 0.0 * input, input)
    far = where(target == 1, 0.0 * input, clamp(margin - input, min=0))
    return _reduced(near + far, reduction)


@public(**functional)
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """max(0, -target * (input1 - input2) + margin). Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    return _reduced(clamp(-target * (input1 - input2) + margin, min=0), reduction)


@public(**functional)
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target * input)). Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    return _reduced(softplus(-target * input, 1, 1e30), reduction)


@public(**functional)
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    """The negative log likelihood of counts. Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    loss = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        stirling = target * log(target) - target + 0.5 * log(2 * math.pi * target)
        loss = loss + masked_fill(stirling, target <= 1, 0)
    return _reduced(loss, reduction)


@public(**functional)
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """The negative log likelihood of normal variables with mean `input` and variance `var`. Differentiable."""
    _check_reduction(reduction)
    if not isinstance(var, Tensor):
        var = Tensor._from(np.full(input.array.shape, var, input.array.dtype))
    if (var.array < 0).any():
        raise ValueError("var has negative entry/entries")
    if var.array.shape != input.array.shape:
        var = reshape(var, (*var.array.shape, 1)) if input.array.shape[:-1] == var.array.shape else var
    clamped = masked_fill(var, var < eps, eps)
    loss = 0.5 * (log(clamped) + (input - target) ** 2 / clamped)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


@public(method=False)
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along `dim`. Differentiable in both."""
    t = dtypes.promote([x1.array, x2.array])
    x1, x2 = to(x1, t), to(x2, t)
    n1, n2 = vector_norm(x1, 2, dim, True), vector_norm(x2, 2, dim, True)
    return sum((x1 / clamp(n1, min=eps)) * (x2 / clamp(n2, min=eps)), dim)


public(name="cosine_similarity", **functional)(cosine_similarity)


@public(**functional)
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1. Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    cos = cosine_similarity(input1, input2, input1.array.ndim - 1)
    zero = cos * 0
    return _reduced(where(target == 1, 1 - cos, zero) + where(target == -1, clamp(cos - margin, min=0), zero), reduction)


@public(**functional)
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension. Differentiable."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@public(**functional)
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin). Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        from .pointwise import minimum

        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced(clamp(margin + near - far, min=0), reduction)


@public(**functional)
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """sum over i != t of max(0, margin - x[t] + x[i])^p / C. Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    single = input.array.ndim < 2
    x, t = (reshape(input, 1, -1), reshape(target, 1)) if single else (input, target)
    right = x.gather(1, reshape(t, -1, 1))
    z = clamp(margin - right + x, min=0)
    z = z if p == 1 else z * z
    if weight is not None:
        z = z * reshape(_index_select(weight, t, 0), -1, 1)
    mask = np.arange(x.array.shape[1])[None] == t.array[:, None]
    loss = sum(masked_fill(z, Tensor._from(mask), 0), 1) / x.array.shape[1]
    return _reduced(reshape(loss, ()) if single and reduction == "none" else loss, reduction)


@public(**functional)
def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """input divided by its p-norm along `dim` (at least eps). Differentiable."""
    from ..op import write_out

    result = input / clamp(vector_norm(input, p, dim, True), min=eps).expand_as(input)
    return result if out is None else write_out(out, result)


# Normalisation


def _moments_of(x, dims):
    mean_ = np.add.reduce(x, dims, keepdims=True) / x.dtype.type(_size(x.shape, dims))
    centred = x - mean_
    return mean_, centred, np.add.reduce(centred * centred, dims, keepdims=True) / x.dtype.type(_size(x.shape, dims))


def _size(shape, dims):
    total = 1
    for d in dims:
        total *= shape[d]
    return total


def _normalized(x, dims, eps):
    _mean, centred, variance = _moments_of(x, dims)
    scale = 1 / np.sqrt(variance + x.dtype.type(eps))
    return centred * scale, scale


def _affine_arrays(x, weight, bias, dims, shape, eps):
    y, _scale = _normalized(x, dims, eps)
    if weight is not None:
        y *= weight.reshape(shape)
    if bias is not None:
        y += bias.reshape(shape)
    return y


def _affine_gradient_arrays(g, x, weight, bias_shape, dims, shape, eps):
    y, scale = _normalized(x, dims, eps)
    inner = g if weight is None else g * weight.reshape(shape)
    n = x.dtype.type(_size(x.shape, dims))
    mean_g = np.add.reduce(inner, dims, keepdims=True) / n
    mean_gy = np.add.reduce(inner * y, dims, keepdims=True) / n
    gx = (inner - mean_g - y * mean_gy) * scale
    gw = None if weight is None else engine.sum_to(g * y, shape).reshape(weight.shape)
    gb = None if bias_shape is None else engine.sum_to(g, shape).reshape(bias_shape)
    return gx, gw, gb


@twin(_affine_gradient_arrays)
def affine_gradient(g, x, weight, bias_shape, dims, shape, eps):
    """Gradients of normalise-then-scale (x over dims; weight and bias seen in `shape`), as operations."""
    from .shape import sum_to_size

    centred = x - mean(x, dims, True)
    scale = (mean(centred * centred, dims, True) + eps).rsqrt()
    y = centred * scale
    inner = g if weight is None else g * reshape(weight, shape)
    gx = (inner - mean(inner, dims, True) - y * mean(inner * y, dims, True)) * scale
    gw = None if weight is None else reshape(sum_to_size(g * y, shape), weight.array.shape)
    gb = None if bias_shape is None else reshape(sum_to_size(g, shape), bias_shape)
    return gx, gw, gb


_layer_norm = op("native_layer_norm", _affine_arrays,
    joint=lambda g, input, weight, bias_shape, _out, dims, shape, eps: affine_gradient(g, input, weight, bias_shape, dims, shape, eps),
    optional=("weight", "bias"))  # fmt: skip
_batch_norm_train = op("native_batch_norm", _affine_arrays,
    joint=lambda g, input, weight, bias_shape, _out, dims, shape, eps: affine_gradient(g, input, weight, bias_shape, dims, shape, eps),
    optional=("weight", "bias"))  # fmt: skip
_group_norm = op("native_group_norm",
    lambda x, weight, bias, groups, eps: _group_arrays(x, weight, bias, groups, eps),
    joint=lambda g, input, weight, bias_shape, _out, groups, eps: group_gradient(g, input, weight, bias_shape, groups, eps),
    optional=("weight", "bias"))  # fmt: skip


def _channel_shape(ndim):
    return (1, -1) + (1,) * (ndim - 2)


def _group_arrays(x, weight, bias, groups, eps):
    y, _scale = _normalized(x.reshape(x.shape[0], groups, -1), (2,), eps)
    y = y.reshape(x.shape)
    if weight is not None:
        y = y * weight.reshape(_channel_shape(x.ndim))
    return y if bias is None else y + bias.reshape(_channel_shape(x.ndim))


def _group_gradient_arrays(g, x, weight, bias_shape, groups, eps):
    inner = g if weight is None else g * weight.reshape(_channel_shape(x.ndim))
    flat = (x.shape[0], groups, -1)
    gx = _affine_gradient_arrays(inner.reshape(flat), x.reshape(flat), None, None, (2,), None, eps)[0].reshape(x.shape)
    rest = (0, *range(2, x.ndim))
    gw = None
    if weight is not None:
        y, _scale = _normalized(x.reshape(flat), (2,), eps)
        gw = np.add.reduce(g * y.reshape(x.shape), rest)
    return gx, gw, None if bias_shape is None else np.add.reduce(g, rest)


@twin(_group_gradient_arrays)
def group_gradient(g, x, weight, bias_shape, groups, eps):
    """Gradients of group_norm, as operations."""
    shape = x.array.shape
    inner = g if weight is None else g * reshape(weight, _channel_shape(len(shape)))
    flat = (shape[0], groups, -1)
    xs = reshape(x, flat)
    gx = reshape(affine_gradient(reshape(inner, flat), xs, None, None, (2,), None, eps)[0], shape)
    rest = (0, *range(2, len(shape)))
    gw = None
    if weight is not None:
        centred = xs - mean(xs, 2, True)
        y = reshape(centred * (mean(centred * centred, 2, True) + eps).rsqrt(), shape)
        gw = sum(g * y, rest)
    return gx, gw, None if bias_shape is None else sum(g, rest)


@public(method=False)
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    """Zero mean and unit variance over the last dimensions, then weight and bias. Differentiable in all.

    (*, *normalized_shape) -> the same (Ba et al. 2016).
    """
    del cudnn_enable
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    x = input.array
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
                           "normalized_shape = []")  # fmt: skip
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and v.array.shape != shape:
            raise RuntimeError(f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                               f"{list(v.array.shape)} and normalized_shape = {list(shape)}")  # fmt: skip
    if x.shape[x.ndim - len(shape) :] != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], but got "
                           f"input of size{list(x.shape)}")  # fmt: skip
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    return _layer_norm(input, weight, bias, dims, (1,) * (x.ndim - len(shape)) + shape, eps)


public(name="layer_norm", **functional)(layer_norm)


@public(method=False)
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """Zero mean and unit variance over groups of channels, then weight and bias per channel. Differentiable in all."""
    del cudnn_enabled
    channels = input.array.shape[1]
    if channels % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{list(input.array.shape)} and num_groups={num_groups}")  # fmt: skip
    if not input.array.size:
        return input * 1
    return _group_norm(input, weight, bias, num_groups, eps)


public(name="group_norm", **functional)(group_norm)


@public(method=False)
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """input / sqrt(mean(input^2) + eps) over the last dimensions, times weight. Differentiable (Zhang and Sennrich 2019)."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if input.array.shape[input.array.ndim - len(shape) :] != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], but got "
                           f"input of size{list(input.array.shape)}")  # fmt: skip
    dims = tuple(range(input.array.ndim - len(shape), input.array.ndim))
    eps = dtypes.finfo(input.dtype).eps if eps is None else eps
    result = input * (mean(input**2, dims, True) + eps).rsqrt()
    return result if weight is None else result * weight


public(name="rms_norm", **functional)(rms_norm)


@public(method=False)
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Zero mean and unit variance per channel (dimension 1), then weight and bias. Differentiable in all.

    training: uses the batch's statistics and moves the running ones; else uses the running ones (Ioffe, Szegedy 2015).
    """
    x = input.array
    if x.ndim < 2:
        if x.size:
            raise RuntimeError(f"batch_norm expects an input with at least 2 dimensions, got {list(x.shape)}")
        return input * 1
    if training:
        count = x.size // x.shape[1] if x.shape[1] else 0
        if count == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    elif running_mean is None or running_var is None:
        raise RuntimeError("running_mean must be defined in evaluation mode")
    channels = x.shape[1]
    for name, v in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if v is not None and v.array.size != channels:
            raise RuntimeError(f"{name} should contain {channels} elements not {v.array.size}")
    dims = (0, *range(2, x.ndim))
    shape = (1, channels) + (1,) * (x.ndim - 2)
    if training:
        from ..views import bump

        if running_mean is not None and x.size:
            mean_, _centred, variance = _moments_of(x, dims)
            n = _size(x.shape, dims)
            for running, new in ((running_mean, mean_), (running_var, variance * (n / builtins.max(n - 1, 1)))):
                running.array *= running.array.dtype.type(1 - momentum)
                running.array += (momentum * new.reshape(-1)).astype(running.array.dtype)
                bump(running)
        if not x.size:
            return input * 1
        return _batch_norm_train(input, weight, bias, dims, shape, eps)
    scale = Tensor._from((1 / np.sqrt(running_var.array + running_var.array.dtype.type(eps))).reshape(shape))
    return _batch_norm_eval(input, weight, bias, Tensor._from(running_mean.array.reshape(shape)), scale, shape)


def _batch_norm_eval_arrays(x, weight, bias, mean_, scale, shape):
    y = (x - mean_) * scale
    if weight is not None:
        y = y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _batch_norm_eval_gradient(g, x, weight, bias_shape, mean_, scale, shape):
    gx = g * scale if weight is None else g * (scale * reshape(weight, shape))
    gw = None if weight is None else to_channels(g * ((x - mean_) * scale), shape, weight.shape)
    return gx, gw, None if bias_shape is None else to_channels(g, shape, bias_shape), None, None


@twin(lambda g, shape, final: engine.sum_to(g, shape).reshape(final))
def to_channels(g, shape, final):
    """g summed to one value per channel."""
    from .shape import sum_to_size

    return reshape(sum_to_size(g, shape), final)


_batch_norm_eval = op("batch_norm_eval", _batch_norm_eval_arrays,
    joint=lambda g, input, weight, bias_shape, mean_, scale, _out, shape:
        _batch_norm_eval_gradient(g, input, weight, bias_shape, mean_, scale, shape),
    optional=("weight", "bias"), node="NativeBatchNormBackward0")  # fmt: skip
public(name="batch_norm", **functional)(batch_norm)


@public(method=False)
def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5,
                  cudnn_enabled=True):  # fmt: skip
    """Zero mean and unit variance per sample and channel, then weight and bias. Differentiable in all."""
    del cudnn_enabled
    x = input.array
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    n, c = x.shape[:2]
    if running_mean is not None:
        from ..views import bump

        dims = tuple(range(2, x.ndim))
        mean_, _centred, variance = _moments_of(x, dims)
        count = _size(x.shape, dims)
        for running, new in ((running_mean, mean_), (running_var, variance * (count / builtins.max(count - 1, 1)))):
            running.array *= running.array.dtype.type(1 - momentum)
            running.array += momentum * new.reshape(n, c).mean(0)
            bump(running)
    return group_norm(input, c, weight, bias, eps)


public(name="instance_norm", **functional)(instance_norm)


@public(**functional)
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """input / (k + alpha * mean of squares over `size` neighbouring channels)^beta. Differentiable."""
    from .shape import pad

    squares = input * input
    widths = [0, 0] * (input.array.ndim - 2) + [size // 2, (size - 1) // 2]
    padded = pad(squares, widths)
    total = None
    for i in range(size):
        part = padded.narrow(1, i, input.array.shape[1])
        total = part if total is None else total + part
    return input / (total / size * alpha + k) ** beta


# Dropout. The mask is drawn as PyTorch's CPU code draws it, so the random stream stays in step.


def _check_probability(p):
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropout_mask(shape, dtype, p):
    from .. import random

    return random.bernoulli_(np.empty(shape, dtype), 1 - p)


@public(method=False)
def dropout(input, p=0.5, training=True, inplace=False):
    """Zeroes elements with probability p and scales the rest by 1 / (1 - p), when training. Differentiable."""
    _check_probability(p)
    if not training or p == 0 or not input.array.size:
        return input
    if p == 1:
        zero = Tensor._from(np.zeros((), input.array.dtype))
        return _write_if(inplace, input, lambda x: x * zero)
    mask = _dropout_mask(input.array.shape, input.array.dtype, p)
    mask /= input.array.dtype.type(1 - p)
    mask = Tensor._from(mask)
    return _write_if(inplace, input, lambda x: x * mask)


public(name="dropout", **functional)(dropout)


def _feature_dropout(name, minimum):
    def function(input, p=0.5, training=True, inplace=False):
        _check_probability(p)
        if input.array.ndim < minimum - 1 or input.array.ndim < 2:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
        x = input
        if not training or p == 0:
            return x
        single = input.array.ndim == minimum - 1
        shape = (1, input.array.shape[0]) if single else input.array.shape[:2]
        if p == 1:
            return x * 0
        mask = _dropout_mask(shape + (1,) * (minimum - 2), input.array.dtype, p)
        mask /= input.array.dtype.type(1 - p)
        mask = Tensor._from(mask[0] if single else mask.reshape(shape + (1,) * (input.array.ndim - 2)))
        return _write_if(inplace, input, lambda y: y * mask)

    function.__doc__ = "Zeroes whole channels with probability p and scales the rest, when training. Differentiable."
    return public(name=name, **functional)(function)


dropout1d, dropout2d, dropout3d = (_feature_dropout(f"dropout{n}d", n + 2) for n in (1, 2, 3))


@public(**functional)
def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance of selu networks (Klambauer et al. 2017). Differentiable."""
    _check_probability(p)
    if not training or p == 0:
        return input
    alpha = 1.7580993408473766
    if p == 1:
        return _write_if(inplace, input, lambda x: x * 0)
    mask = _dropout_mask(input.array.shape, input.array.dtype, p)
    a = 1 / math.sqrt((alpha * alpha * p + 1) * (1 - p))
    shift = Tensor._from(((mask - 1) * (alpha * a) + alpha * a * p).astype(input.array.dtype))
    keep = Tensor._from((mask * a).astype(input.array.dtype))
    return _write_if(inplace, input, lambda x: x * keep + shift)


# Embedding


_embedding = op("embedding", lambda w, index, _padding: w[index],
    lambda g, input_shape, index, _out, padding: embedding_gradient(g, index, input_shape, padding), None,
    promote="keep", node="EmbeddingBackward0")  # fmt: skip


def _embedding_gradient_arrays(g, index, shape, padding):
    out = np.zeros(shape, g.dtype)
    if padding >= 0:
        keep = index != padding
        index, g = index[keep], g[keep]
    np.add.at(out, index, g)
    return out


embedding_gradient = op("embedding_gradient", _embedding_gradient_arrays,
    lambda g, _input, index, _out, _shape, padding: masked_rows(_embedding(g, index, padding), index, padding), None,
    promote="keep")  # fmt: skip


@twin(lambda g, index, padding: g if padding < 0 else np.where((index == padding)[..., None], np.zeros((), g.dtype), g))
def masked_rows(g, index, padding):
    """g with zeros in the rows of the padding index."""
    return g if padding < 0 else masked_fill(g, (index == padding).unsqueeze(-1), 0)


@public(**functional)
def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """The rows of `weight` at the indices. (*S) int64, (N, E) -> (*S, E). Differentiable in weight.

    padding_idx gets no gradient; max_norm rescales the rows that are used, in place.
    """
    if sparse:
        raise NotImplementedError("embedding(sparse=True): sparse gradients are out of Backlight's scope")
    if input.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError("Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
                           f"{input.type()} instead (while checking arguments for embedding)")  # fmt: skip
    n = weight.array.shape[0]
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= n
    index = input.array
    if index.size and (index.min() < 0 or index.max() >= n):
        raise IndexError("index out of range in self")
    if max_norm is not None:
        from ..views import bump

        used = np.unique(index)
        rows = weight.array[used]
        norms = (np.abs(rows) ** norm_type).sum(1, keepdims=True) ** (1 / norm_type)
        weight.array[used] = np.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)
        bump(weight)
    if scale_grad_by_freq:
        _values, inverse, counts = np.unique(index, return_inverse=True, return_counts=True)
        return _scaled_embedding(weight, input, Tensor._from((1 / counts[inverse.reshape(index.shape)]).astype(weight.array.dtype)))
    return _embedding(weight, input, -1 if padding_idx is None else padding_idx)


_scaled_embedding = op("scaled_embedding", lambda w, index, _scale: w[index],
    lambda g, input_shape, index, scale, _out: embedding_gradient(g * scale.reshape(scale.shape + (1,)), index, input_shape, -1), None, None,
    promote="keep", node="EmbeddingBackward0")  # fmt: skip


@public(**functional)
def bilinear(input1, input2, weight, bias=None):
    """x1 @ W[k] @ x2 for every output k. (*, I), (*, J), (O, I, J) -> (*, O). Differentiable in all."""
    from .linalg import einsum

    result = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


# Attention


@public(**functional)
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """softmax(query @ key^T * scale + mask) @ value. (..., L, E), (..., S, E), (..., S, V) -> (..., L, V). Differentiable.

    attn_mask: bool (True: attend) or additive; is_causal: position i attends to j <= i (Vaswani et al. 2017).
    """
    from .reduce import softmax

    length, source = query.array.shape[-2], key.array.shape[-2]
    if is_causal and attn_mask is not None:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    factor = math.sqrt(scale if scale is not None else 1 / math.sqrt(query.array.shape[-1]))
    if enable_gqa:
        times = query.array.shape[-3] // key.array.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    scores = matmul(query * factor, transpose(key, -2, -1) * factor)
    mask = None
    if is_causal:
        mask = Tensor._from(np.tril(np.ones((length, source), bool)))
    elif attn_mask is not None:
        mask = attn_mask
    if mask is not None:
        if mask.dtype is dtypes.bool_:
            scores = masked_fill(scores, ~mask, -math.inf)
        else:
            scores = scores + mask
    weights = softmax(scores, -1)
    if mask is not None:
        weights = masked_fill(weights, Tensor._from(np.isneginf(scores.array).all(-1, keepdims=True)), 0)
    return matmul(dropout(weights, dropout_p) if dropout_p else weights, value)
