"""Normalisation layers of `nn.functional`: batch, layer, group, instance, RMS and local response norm."""

from __future__ import annotations

import builtins

import numpy as np

from .. import batching, dtypes, engine, kernels
from ..kernels import CHANNEL, FUSED
from ..op import op, public, twin
from ..state import modes
from ..tensor import Tensor
from ..views import bump
from .activation import functional
from .arrange import pad
from .cast import to
from .pointwise import sqrt
from .reduce import ALL_DIMS, _count, kept_sums, mean, sum
from .shape import reshape, sum_to_size


def _moments_of(x, dims):
    count = x.dtype.type(_count(x.shape, dims))
    mean_ = kept_sums(x, dims) / count
    centred = x - mean_
    return mean_, centred, kept_sums(centred * centred, dims) / count


def _normalized(x, dims, eps):
    _mean, centred, variance = _moments_of(x, dims)
    scale = np.reciprocal(np.sqrt(variance + x.dtype.type(eps)))
    return np.multiply(centred, scale, centred), scale


def _affine_arrays(x, weight, bias, dims, shape, eps):
    if isinstance(eps, float) and kernels.compute(FUSED, x, weight, bias) and dims[-1] == x.ndim - 1 == dims[0] + len(dims) - 1:
        return kernels.rows.layer_norm(x, weight, bias, _count(x.shape, dims), eps)
    y, _scale = _normalized(x, dims, eps)
    if weight is not None:
        y *= weight.reshape(shape)
    if bias is not None:
        y += bias.reshape(shape)
    return y


def _affine_gradient_arrays(g, x, weight, bias_shape, dims, shape, eps):
    if isinstance(eps, float) and kernels.compute(FUSED, x, g, weight) and dims[-1] == x.ndim - 1 == dims[0] + len(dims) - 1:
        gx, gw, gb = kernels.rows.layer_norm_gradient(g, x, weight, _count(x.shape, dims), eps)
        return gx, None if weight is None else gw.reshape(weight.shape), None if bias_shape is None else gb.reshape(bias_shape)
    y, scale = _normalized(x, dims, eps)
    inner = g if weight is None else g * weight.reshape(shape)
    n = x.dtype.type(_count(x.shape, dims))
    mean_g = kept_sums(inner, dims) / n
    mean_gy = kept_sums(inner * y, dims) / n
    gx = (inner - mean_g - y * mean_gy) * scale
    gw = None if weight is None else engine.sum_to(g * y, shape).reshape(weight.shape)
    gb = None if bias_shape is None else engine.sum_to(g, shape).reshape(bias_shape)
    return gx, gw, gb


@twin(_affine_gradient_arrays)
def affine_gradient(g, x, weight, bias_shape, dims, shape, eps):
    """Gradients of normalise-then-scale (x over dims; weight and bias seen in `shape`), as operations."""
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
    optional=("weight", "bias"), batch=batching.normalise_rule)  # fmt: skip
_batch_norm_train = op("native_batch_norm", lambda *arguments: _batch_arrays(*arguments),
    joint=lambda g, input, weight, bias_shape, _out, dims, shape, eps, moments:
        batch_gradient(g, input, weight, bias_shape, dims, shape, eps, moments),
    optional=("weight", "bias"), batch=batching.normalise_rule)  # fmt: skip
_group_norm = op("native_group_norm",
    lambda x, weight, bias, groups, eps: _group_arrays(x, weight, bias, groups, eps),
    joint=lambda g, input, weight, bias_shape, _out, groups, eps: group_gradient(g, input, weight, bias_shape, groups, eps),
    optional=("weight", "bias"), batch=batching.group_norm_rule)  # fmt: skip


def _by_channels(x, *others):
    """Whether kernels compute with these arrays channel by channel."""
    return x.ndim > 2 and x.size and x.size >= x.shape[0] * x.shape[1] * CHANNEL and kernels.compute(FUSED, x, *others)


def _scale(variance, eps):
    return 1 / np.sqrt(variance + variance.dtype.type(eps))


def _channel_moments(x, dims):
    """The mean and the variance of each channel, flat."""
    if _by_channels(x):
        return kernels.channels.moments(x)
    mean_, _centred, variance = _moments_of(x, dims)
    return mean_.reshape(-1), variance.reshape(-1)


def _batch_arrays(x, weight, bias, dims, shape, eps, moments):
    """moments: what _channel_moments found; None under function transforms, where a batch of samples has its own."""
    if moments is None:
        return _affine_arrays(x, weight, bias, dims, shape, eps)
    mean_, scale = moments[0], _scale(moments[1], eps)
    if _by_channels(x, weight, bias):
        return kernels.channels.normalize(x, mean_, scale, weight, bias)
    y = (x - mean_.reshape(shape)) * scale.reshape(shape)
    if weight is not None:
        y *= weight.reshape(shape)
    if bias is not None:
        y += bias.reshape(shape)
    return y


def _batch_gradient_arrays(g, x, weight, bias_shape, dims, shape, eps, moments):
    if moments is None or not _by_channels(x, g, weight):
        return _affine_gradient_arrays(g, x, weight, bias_shape, dims, shape, eps)
    gx, gw, gb = kernels.channels.gradient(g, x, moments[0], _scale(moments[1], eps), weight)
    return gx, None if weight is None else gw, None if bias_shape is None else gb


@twin(_batch_gradient_arrays)
def batch_gradient(g, x, weight, bias_shape, dims, shape, eps, _moments):
    """Gradients of batch norm in training, as operations."""
    return affine_gradient(g, x, weight, bias_shape, dims, shape, eps)


def _channel_shape(ndim):
    return (1, -1) + (1,) * (ndim - 2)


def _group_shape(shape, groups):
    """(N, groups, elements of a group)."""
    total = 1
    for n in shape[1:]:
        total *= n
    return (shape[0], groups, total // groups)


def _group_arrays(x, weight, bias, groups, eps):
    if _by_channels(x, weight, bias):
        return kernels.channels.group_norm(x, weight, bias, groups, eps)
    y, _scale = _normalized(x.reshape(_group_shape(x.shape, groups)), (2,), eps)
    y = y.reshape(x.shape)
    if weight is not None:
        y = y * weight.reshape(_channel_shape(x.ndim))
    return y if bias is None else y + bias.reshape(_channel_shape(x.ndim))


def _group_gradient_arrays(g, x, weight, bias_shape, groups, eps):
    if _by_channels(x, g, weight):
        gx, gw, gb = kernels.channels.group_norm_gradient(g, x, weight, groups, eps)
        return gx, None if weight is None else gw, None if bias_shape is None else gb
    inner = g if weight is None else g * weight.reshape(_channel_shape(x.ndim))
    flat = _group_shape(x.shape, groups)
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
    flat = _group_shape(shape, groups)
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
    have = input.array.shape
    first = len(have) - len(shape)
    fits = have[first:] == shape and shape and (weight is None or weight.array.shape == shape)
    if not (fits and (bias is None or bias.array.shape == shape)):
        _refuse_shapes(have, shape, weight, bias)
    return _layer_norm(input, weight, bias, ALL_DIMS[len(have)][first:], (1,) * first + shape, eps)


def _refuse_shapes(have, shape, weight, bias):
    """RuntimeError that says what in the arguments of layer_norm doesn't fit."""
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
                           "normalized_shape = []")  # fmt: skip
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and v.array.shape != shape:
            raise RuntimeError(f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                               f"{list(v.array.shape)} and normalized_shape = {list(shape)}")  # fmt: skip
    raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [*, {', '.join(map(str, shape))}], but got "
                       f"input of size{list(have)}")  # fmt: skip


public(name="layer_norm", **functional)(layer_norm)


@public(method=False)
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    """Zero mean and unit variance over groups of channels, then weight and bias per channel. Differentiable in all."""
    del cudnn_enabled
    if input.array.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.array.ndim}")
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    channels = input.array.shape[1]
    if channels % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{list(input.array.shape)} and num_groups={num_groups}")  # fmt: skip
    for name, v in (("weight", weight), ("bias", bias)):
        if v is not None and v.array.shape != (channels,):
            raise RuntimeError(f"Expected {name} to be a vector of size equal to the number of channels in input, but got {name} of "
                               f"shape {list(v.array.shape)} and input of shape {list(input.array.shape)}")  # fmt: skip
    return _group_norm(input, weight, bias, num_groups, eps)


public(name="group_norm", **functional)(group_norm)


@public(method=False)
def rms_norm(input, normalized_shape, weight=None, eps=None):
    """input / sqrt(mean(input^2) + eps) over the last dimensions, times weight. Differentiable (Zhang and Sennrich 2019)."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got "
                           "normalized_shape = []")  # fmt: skip
    if input.array.shape[input.array.ndim - len(shape) :] != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape [*{', '.join(map(str, shape))}], but got "
                           f"input of size{list(input.array.shape)}")  # fmt: skip
    dims = tuple(range(input.array.ndim - len(shape), input.array.ndim))
    eps = dtypes.finfo(input.dtype).eps if eps is None else eps
    wide = to(input, dtypes.float32) if input.dtype.itemsize == 2 else input  # the squares of half numbers overflow
    result = to(wide * (mean(wide**2, dims, True) + eps).rsqrt(), input.dtype)
    return result if weight is None else result * weight


public(name="rms_norm", **functional)(rms_norm)


@public(method=False)
def batch_norm(
    input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, cudnn_enabled=True
):
    """Zero mean and unit variance per channel (dimension 1), then weight and bias. Differentiable in all.

    training: uses the batch's statistics and moves the running ones; else uses the running ones (Ioffe, Szegedy 2015).
    """
    del cudnn_enabled
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
        if running_mean is not None and modes.levels:
            _move_statistics(input.detach(), running_mean, running_var, momentum, dims)
        if not x.size:
            return input * 1
        moments = None if modes.levels else _channel_moments(x, dims)
        if running_mean is not None and moments is not None:
            n = _count(x.shape, dims)
            for running, new in ((running_mean, moments[0]), (running_var, moments[1] * (n / builtins.max(n - 1, 1)))):
                running.array *= running.array.dtype.type(1 - momentum)
                running.array += (momentum * new).astype(running.array.dtype)
                bump(running)
        return _batch_norm_train(input, weight, bias, dims, shape, eps, moments)
    if modes.levels:
        scale = reshape((running_var.detach() + eps).rsqrt(), shape)
        return _batch_norm_eval(input, weight, bias, reshape(running_mean.detach(), shape), scale, shape)
    scale = Tensor._from((1 / np.sqrt(running_var.array + running_var.array.dtype.type(eps))).reshape(shape))
    return _batch_norm_eval(input, weight, bias, Tensor._from(running_mean.array.reshape(shape)), scale, shape)


def _move_statistics(x, running_mean, running_var, momentum, dims):
    """The update of running statistics as operations, for function transforms."""
    if any(type(x) is not Tensor and type(r) is Tensor for r in (running_mean, running_var)):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in place, were not "
            "batched.\nIf you are using a module and do not need eval mode, please set `track_running_stats` to be False."
        )
    for running, new in ((running_mean, x.detach().mean(dims)), (running_var, x.detach().var(dims))):
        new = new if new.array.ndim == 1 else new.mean(0)  # instance norm has statistics for each sample
        running.mul_(1 - momentum).add_(new * momentum)


def _batch_norm_eval_arrays(x, weight, bias, mean_, scale, shape):
    if mean_.size == scale.size == x.shape[1] and _by_channels(x, weight, bias, mean_, scale):
        return kernels.channels.normalize(x, mean_.reshape(-1), scale.reshape(-1), weight, bias)
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
    return reshape(sum_to_size(g, shape), final)


_batch_norm_eval = op("batch_norm_eval", _batch_norm_eval_arrays,
    joint=lambda g, input, weight, bias_shape, mean_, scale, _out, shape:
        _batch_norm_eval_gradient(g, input, weight, bias_shape, mean_, scale, shape),
    optional=("weight", "bias"), node="NativeBatchNormBackward0", batch=batching.normalise_rule)  # fmt: skip


@public(name="batch_norm", **functional)
def functional_batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """batch_norm, which refuses an `eps` that isn't positive when training. Differentiable in input, weight and bias."""
    if training and eps <= 0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@public(method=False)
def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5,
                  cudnn_enabled=True):  # fmt: skip
    """Zero mean and unit variance per sample and channel, then weight and bias. Differentiable in all."""
    del cudnn_enabled
    x = input.array
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    n, c = x.shape[:2]
    if x.size == n * c:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    if running_mean is not None and modes.levels:
        _move_statistics(input, running_mean, running_var, momentum, tuple(range(2, x.ndim)))
    elif running_mean is not None:
        dims = tuple(range(2, x.ndim))
        mean_, _centred, variance = _moments_of(x, dims)
        count = _count(x.shape, dims)
        for running, new in ((running_mean, mean_), (running_var, variance * (count / builtins.max(count - 1, 1)))):
            running.array *= running.array.dtype.type(1 - momentum)
            running.array += momentum * new.reshape(n, c).mean(0)
            bump(running)
    return group_norm(input, c, weight, bias, eps)


public(name="instance_norm", **functional)(instance_norm)


@public(**functional)
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """input / (k + alpha * mean of squares over `size` neighbouring channels)^beta. Differentiable."""
    if input.array.ndim < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality                          input (got {input.array.ndim} dimensions)"
        )
    if not input.array.size:
        return input
    squares = input * input
    widths = [0, 0] * (input.array.ndim - 2) + [size // 2, (size - 1) // 2]
    padded = pad(squares, widths)
    total = None
    for i in range(size):
        part = padded.narrow(1, i, input.array.shape[1])
        total = part if total is None else total + part
    return input / (total / size * alpha + k) ** beta


# Weight norm (Salimans, Kingma 2016)


def weight_norm_gradient(g, v, scale, dims):
    """The gradients of v and of scale, for v * scale / |v|."""
    length = sqrt(sum(v * v, dims, True))
    along = sum(g * v, dims, True) / length
    return (g - v * (along / length)) * (scale / length), along.reshape(scale.shape)


_scaled_direction = op("_weight_norm_interface", lambda v, scale, dims: v * (scale / np.sqrt((v * v).sum(dims, keepdims=True))),
    joint=lambda g, input, other, _out, dims: weight_norm_gradient(g, input, other, dims))  # fmt: skip


@public(method=False)
def _weight_norm(v, g, dim=0):
    """v * g / |v|, the norm being taken over all dimensions but `dim` (-1: over all). Differentiable in both."""
    return _scaled_direction(v, g, tuple(d for d in range(v.array.ndim) if d != dim))
