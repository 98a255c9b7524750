"""Convolution, in one, two and three dimensions; its windows as columns; pixel shuffling."""

from __future__ import annotations

import builtins
import math

import numpy as np
from numpy.lib.stride_tricks import as_strided as _strides

from .. import batching, dtypes, kernels
from ..op import op, public, twin
from ..tensor import Tensor
from .arrange import pad
from .check import not_tensor
from .shape import reshape, squeeze, unsqueeze

functional = {"method": False, "module": "nn.functional"}


def per_dimension(value, n, name):
    """An int or a sequence of n ints (or one) as a tuple of n."""
    if isinstance(value, int):
        return (value,) * n
    value = tuple(value)
    if len(value) == 1:
        return value * n
    if len(value) != n:
        raise RuntimeError(f"expected {name} to be a single integer value or a list of {n} values to match the convolution dimensions, "
                           f"but got {name}={list(value)}")  # fmt: skip
    return value


# Convolution: three operations, each bilinear, each the gradient of the others. With NumPy, im2col and one matrix product per
# group; large ones in one and two dimensions are done by kernels/conv.py.

KERNEL_FROM = kernels.FUSED  # multiply-adds: from here on the kernels are faster


def _in_kernels(g_shape, x, weight_shape):
    """Whether kernels take a convolution whose output has g_shape."""
    return (
        math.prod(g_shape) * math.prod(weight_shape[1:]) >= KERNEL_FROM
        and x.dtype in (np.float32, np.float64)
        and x.ndim <= 4
        and 0 not in (*g_shape, *x.shape, *weight_shape)
    )


def _windows(x, kernel, stride, padding, dilation, out=None):
    """(N, C, *S) -> a read-only view (N, C, *K, *O) of the windows of the padded input: all, or the first `out`."""
    n = len(kernel)
    if any(padding):
        x = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
    out = out or tuple((x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(n))
    steps = x.strides[2:]
    return _strides(x, (*x.shape[:2], *kernel, *out),
                    (*x.strides[:2], *(s * d for s, d in zip(steps, dilation)), *(s * t for s, t in zip(steps, stride))), writeable=False)  # fmt: skip


def _columns(x, kernel, stride, padding, dilation, groups, out=None):
    """The windows as matrices (N, groups, C/groups * prod K, prod O), and O."""
    w = _windows(x, kernel, stride, padding, dilation, out)
    out = w.shape[2 + len(kernel) :]
    return w.reshape(x.shape[0], groups, x.shape[1] // groups * math.prod(kernel), math.prod(out)), out


def _conv_arrays(x, weight, bias, stride, padding, dilation, groups, sizes=None):
    geometry = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation)
    out = sizes or tuple((s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, p, d in geometry)
    if _in_kernels((x.shape[0], weight.shape[0], *out), x, weight.shape):
        return kernels.conv.forward(x, weight, bias, stride, padding, dilation, groups, out)
    columns, out = _columns(x, weight.shape[2:], stride, padding, dilation, groups, sizes)
    w = weight.reshape(groups, weight.shape[0] // groups, math.prod(weight.shape[1:]))
    y = np.matmul(w, columns).reshape(x.shape[0], weight.shape[0], *out)
    if bias is not None:
        y += bias.reshape(-1, *(1,) * len(out))
    return y


def _conv_input_arrays(g, weight, spatial, stride, padding, dilation, groups):
    if _in_kernels(g.shape, g, weight.shape):
        return kernels.conv.input_gradient(g, weight, tuple(spatial), stride, padding, dilation, groups)
    n, kernel = g.shape[0], weight.shape[2:]
    w = weight.reshape(groups, weight.shape[0] // groups, math.prod(weight.shape[1:]))
    columns = np.matmul(w.swapaxes(1, 2), g.reshape(n, groups, g.shape[1] // groups, math.prod(g.shape[2:])))
    columns = columns.reshape(n, weight.shape[1] * groups, *kernel, *g.shape[2:])
    padded = np.zeros((n, weight.shape[1] * groups, *(s + 2 * p for s, p in zip(spatial, padding))), columns.dtype)
    for place in np.ndindex(*kernel):
        where = tuple(slice(k * d, k * d + s * (o - 1) + 1, s) for k, d, s, o in zip(place, dilation, stride, g.shape[2:]))
        padded[(slice(None), slice(None), *where)] += columns[(slice(None), slice(None), *place)]
    inner = (slice(None), slice(None), *(slice(p, p + s) for p, s in zip(padding, spatial)))
    return np.ascontiguousarray(padded[inner])


def _conv_weight_arrays(g, x, kernel, stride, padding, dilation, groups):
    if _in_kernels(g.shape, x, (g.shape[1], x.shape[1] // groups, *kernel)):
        total = kernels.conv.weight_gradient(g, x, tuple(kernel), stride, padding, dilation, groups)
        if total is not None:
            return total
    columns, _out = _columns(x, kernel, stride, padding, dilation, groups, g.shape[2:])
    products = np.matmul(g.reshape(g.shape[0], groups, g.shape[1] // groups, math.prod(g.shape[2:])), columns.swapaxes(2, 3))
    return np.add.reduce(products, 0).reshape(g.shape[1], x.shape[1] // groups, *kernel)


@twin(lambda g: np.add.reduce(g, (0, *range(2, g.ndim))))
def over_channels(g):
    """(N, C, *S) -> (C): the gradient of a bias."""
    return g.sum((0, *range(2, g.array.ndim)))


_conv = op("convolution", _conv_arrays,
    lambda g, input_shape, weight, _bias, _out, stride, padding, dilation, groups, _sizes:
        _conv_input(g, weight, input_shape[2:], stride, padding, dilation, groups),
    lambda g, input, weight_shape, _bias, _out, stride, padding, dilation, groups, _sizes:
        _conv_weight(g, input, weight_shape[2:], stride, padding, dilation, groups),
    lambda g, _input, _weight, _bias, _out, _stride, _padding, _dilation, _groups, _sizes: over_channels(g),
    optional=("bias",), batch=batching.convolution_rule)  # fmt: skip
_conv_input = op("convolution_input", _conv_input_arrays,
    lambda g, input_shape, weight, _out, _spatial, stride, padding, dilation, groups:
        conv_plain(g, weight, stride, padding, dilation, groups, input_shape[2:]),
    lambda g, input, weight_shape, _out, _spatial, stride, padding, dilation, groups:
        _conv_weight(input, g, weight_shape[2:], stride, padding, dilation, groups),
    node="ConvolutionBackward0", batch=batching.convolution_rule)  # fmt: skip
_conv_weight = op("convolution_weight", _conv_weight_arrays,
    lambda g, input_shape, x, _out, _kernel, stride, padding, dilation, groups:
        conv_plain(x, g, stride, padding, dilation, groups, input_shape[2:]),
    lambda g, input, x_shape, _out, _kernel, stride, padding, dilation, groups:
        _conv_input(input, g, x_shape[2:], stride, padding, dilation, groups),
    node="ConvolutionBackward0", batch=batching.convolution_weight_rule)  # fmt: skip


@twin(lambda x, w, *geometry: _conv_arrays(x, w, None, *geometry))
def conv_plain(x, weight, stride, padding, dilation, groups, sizes):
    """Convolution without bias whose output has the given sizes (what lies beyond is left out)."""
    return _conv(x, weight, None, stride, padding, dilation, groups, sizes)


def _check_conv(name, n, input, weight, bias, stride, dilation, groups):
    if not (isinstance(input, Tensor) and isinstance(weight, Tensor)):
        raise not_tensor(name, input=input, weight=weight)
    x, w = input.array, weight.array
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: {list(x.shape)}"
        )
    if w.ndim != n + 2:
        raise RuntimeError(f"weight should have at least three dimensions, but got weight of size {list(w.shape)}")
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if bias is not None and bias.array.ndim != 1:
        raise RuntimeError(f"expected bias to be 1-dimensional, but got a {bias.array.ndim}-dimensional bias")
    types = [v.dtype for v in (input, weight, bias) if v is not None]
    if len(set(types)) > 1:
        if types[0] is not types[1]:
            raise RuntimeError(
                f"expected scalar type {dtypes.scalar_type_name(types[0])} but found {dtypes.scalar_type_name(types[1])}"
            )
        raise RuntimeError(f"Input type ({dtypes.scalar_type_name(types[0]).lower()}) and bias type "
                           f"({dtypes.scalar_type_name(types[2]).lower()}) should be the same")  # fmt: skip


def _conv_face(n):
    name = f"conv{n}d"

    def function(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        stride, dilation = per_dimension(stride, n, "stride"), per_dimension(dilation, n, "dilation")
        _check_conv(name, n, input, weight, bias, stride, dilation, groups)
        x, w = input, weight
        single = x.array.ndim == n + 1
        if single:
            x = unsqueeze(x, 0)
        kernel = w.array.shape[2:]
        if isinstance(padding, str):
            if padding == "valid":
                padding = (0,) * n
            elif padding == "same":
                if any(s != 1 for s in stride):
                    raise RuntimeError("padding='same' is not supported for strided convolutions")
                total = [d * (k - 1) for d, k in zip(dilation, kernel)]
                extra = [t % 2 for t in total]
                if any(extra):
                    x = pad(x, [v for e in reversed(extra) for v in (0, e)])
                padding = tuple(t // 2 for t in total)
            else:
                raise RuntimeError(f"Invalid padding string: '{padding}'")
        padding = per_dimension(padding, n, "padding")
        if any(p < 0 for p in padding):
            raise RuntimeError("negative padding is not supported")
        if w.array.shape[0] % groups:
            raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size "
                               f"{list(w.array.shape)} instead")  # fmt: skip
        if x.array.shape[1] != w.array.shape[1] * groups:
            raise RuntimeError(f"Given groups={groups}, weight of size {list(w.array.shape)}, expected input{list(x.array.shape)} to have "
                               f"{w.array.shape[1] * groups} channels, but got {x.array.shape[1]} channels instead")  # fmt: skip
        if bias is not None and bias.array.shape != (w.array.shape[0],):
            raise RuntimeError(f"Given weight of size {list(w.array.shape)}, expected bias to be 1-dimensional with {w.array.shape[0]} "
                               f"elements, but got bias of size {list(bias.array.shape)} instead")  # fmt: skip
        spatial = x.array.shape[2:]
        if any(s + 2 * p < d * (k - 1) + 1 for s, p, d, k in zip(spatial, padding, dilation, kernel)):
            padded = " x ".join(str(s + 2 * p) for s, p in zip(spatial, padding))
            needed = " x ".join(str(d * (k - 1) + 1) for d, k in zip(dilation, kernel))
            raise RuntimeError(f"Calculated padded input size per channel: ({padded}). Kernel size: ({needed}). Kernel size can't be greater "
                               "than actual input size")  # fmt: skip
        result = _conv(x, w, bias, stride, padding, dilation, groups, None)
        return squeeze(result, 0) if single else result

    function.__doc__ = (
        f"{n}-dimensional convolution (correlation). (N, C, *S), (O, C/groups, *K), (O) -> (N, O, *S'), where\n"
        "S' = (S + 2 padding - dilation (K - 1) - 1) // stride + 1. padding may be 'valid' or 'same'. Differentiable in all."
    )
    public(method=False, name=name)(function)
    return public(name=name, **functional)(function)


conv1d, conv2d, conv3d = map(_conv_face, (1, 2, 3))


def _conv_transpose_face(n):
    name = f"conv_transpose{n}d"

    def function(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        stride, dilation = per_dimension(stride, n, "stride"), per_dimension(dilation, n, "dilation")
        padding, extra = per_dimension(padding, n, "padding"), per_dimension(output_padding, n, "output_padding")
        _check_conv(name, n, input, weight, bias, stride, dilation, groups)
        for e, s, d in zip(extra, stride, dilation):
            if e >= builtins.max(s, d):
                raise RuntimeError("output padding must be smaller than either stride or dilation, but got output_padding_height: "
                                   f"{extra[0]} output_padding_width: {extra[-1]}")  # fmt: skip
        x = input
        single = x.array.ndim == n + 1
        if single:
            x = unsqueeze(x, 0)
        if x.array.shape[1] != weight.array.shape[0]:
            raise RuntimeError(f"Given transposed=1, weight of size {list(weight.array.shape)}, expected input{list(input.array.shape)} to "
                               f"have {weight.array.shape[0]} channels, but got {x.array.shape[1]} channels instead")  # fmt: skip
        spatial = tuple((s - 1) * t - 2 * p + d * (k - 1) + e + 1 for s, t, p, d, k, e in
                        zip(x.array.shape[2:], stride, padding, dilation, weight.array.shape[2:], extra))  # fmt: skip
        result = _conv_input(x, weight, spatial, stride, padding, dilation, groups)
        if bias is not None:
            result = result + reshape(bias, (-1, *(1,) * n))
        return squeeze(result, 0) if single else result

    function.__doc__ = f"The transpose of conv{n}d: what its gradient computes. (N, C, *S), (C, O/groups, *K) -> (N, O, *S').\nDifferentiable in all."
    public(method=False, name=name)(function)
    return public(name=name, **functional)(function)


conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_conv_transpose_face, (1, 2, 3))


# Windows as columns


def _unfold_arrays(x, kernel, dilation, padding, stride):
    w = _windows(x, kernel, stride, padding, dilation)
    return w.reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(w.shape[2 + len(kernel) :]))


_im2col = op("im2col", _unfold_arrays,
    lambda g, input_shape, _out, kernel, dilation, padding, stride: _col2im(g, input_shape, kernel, dilation, padding, stride),
    node="Im2ColBackward0", batch=batching.merged_rule)  # fmt: skip


def _fold_arrays(g, shape, kernel, dilation, padding, stride):
    n, c, *spatial = shape
    out = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, p, d, k, t in zip(spatial, padding, dilation, kernel, stride)]
    identity = np.eye(c * math.prod(kernel), dtype=g.dtype).reshape(c * math.prod(kernel), c, *kernel)
    return _conv_input_arrays(g.reshape(n, c * math.prod(kernel), *out), identity, spatial, stride, padding, dilation, 1)


_col2im = op("col2im", _fold_arrays,
    lambda g, _input, _out, _shape, kernel, dilation, padding, stride: _im2col(g, kernel, dilation, padding, stride),
    node="Col2ImBackward0", batch=batching.merged_rule)  # fmt: skip


@public(name="unfold", **functional)
def unfold_windows(input, kernel_size, dilation=1, padding=0, stride=1):
    """The windows of a convolution as columns. (N, C, H, W) -> (N, C * KH * KW, windows). Differentiable."""
    single = input.array.ndim == 3
    x = unsqueeze(input, 0) if single else input
    result = _im2col(x, *(per_dimension(v, 2, "size") for v in (kernel_size, dilation, padding, stride)))
    return squeeze(result, 0) if single else result


@public(**functional)
def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Adds columns back to their windows' places: the transpose of unfold. Differentiable."""
    kernel, dilation, padding, stride, size = (
        per_dimension(v, 2, "size") for v in (kernel_size, dilation, padding, stride, output_size)
    )
    single = input.array.ndim == 2
    x = unsqueeze(input, 0) if single else input
    shape = (x.array.shape[0], x.array.shape[1] // math.prod(kernel), *size)
    result = _col2im(x, shape, kernel, dilation, padding, stride)
    return squeeze(result, 0) if single else result


def _spread_pixels(x, r):
    *lead, c, h, w = x.shape
    k = len(lead)
    x = x.reshape(*lead, c // (r * r), r, r, h, w).transpose(*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return x.reshape(*lead, c // (r * r), h * r, w * r)


def _gathered_pixels(x, r):
    *lead, c, h, w = x.shape
    k = len(lead)
    x = x.reshape(*lead, c, h // r, r, w // r, r).transpose(*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return x.reshape(*lead, c * r * r, h // r, w // r)


_pixel_shuffle = op("pixel_shuffle", _spread_pixels, lambda g, _input, _out, r: _pixel_unshuffle(g, r), batch="leading")
_pixel_unshuffle = op("pixel_unshuffle", _gathered_pixels, lambda g, _input, _out, r: _pixel_shuffle(g, r), batch="leading")


@public(method=False)
def pixel_shuffle(input, upscale_factor):
    """(*, C r^2, H, W) -> (*, C, H r, W r). Differentiable."""
    if input.array.ndim < 3:
        raise RuntimeError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.array.ndim} dimension(s)"
        )
    c, r = input.array.shape[-3], upscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    if c % (r * r):
        raise RuntimeError(f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
                           f"input.size(-3)={c} is not divisible by {r * r}")  # fmt: skip
    return _pixel_shuffle(input, r)


public(name="pixel_shuffle", **functional)(pixel_shuffle)


@public(method=False)
def pixel_unshuffle(input, downscale_factor):
    """(*, C, H r, W r) -> (*, C r^2, H, W). Differentiable."""
    if input.array.ndim < 3:
        raise RuntimeError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.array.ndim} dimension(s)"
        )
    h, w = input.array.shape[-2:]
    r = downscale_factor
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    for size, name in ((h, "height"), (w, "width")):
        if size % r:
            raise RuntimeError(f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({-2 if name == 'height' else -1})"
                               f"={size} is not divisible by {r}")  # fmt: skip
    return _pixel_unshuffle(input, r)


public(name="pixel_unshuffle", **functional)(pixel_unshuffle)


_channel_shuffle = op("channel_shuffle", lambda x, groups: _shuffled(x, groups),
    lambda g, input_shape, _out, groups: _channel_shuffle(g, input_shape[1] // groups), batch=batching.merged_rule)  # fmt: skip


def _shuffled(x, groups):
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)


@public(method=False)
def channel_shuffle(input, groups):
    """Deals the channels of the groups out in turn. (N, C, *) -> the same. Differentiable (Zhang et al. 2018)."""
    x = input.array
    if x.ndim <= 2:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(x.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if x.shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {x.shape[1]} channels and {groups} groups.")
    return _channel_shuffle(input, groups)


for _name in ("channel_shuffle", "native_channel_shuffle"):
    public(name=_name, **functional)(channel_shuffle)
public(name="native_channel_shuffle", method=False)(channel_shuffle)
