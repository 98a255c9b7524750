"""Convolution, pooling and resampling, in one, two and three dimensions."""

from __future__ import annotations

import builtins
import math
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided as _strides

from .. import dtypes
from ..op import op, public, twin
from .index import _ungather
from .shape import pad, reshape, squeeze, unsqueeze

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


# Convolution: three operations, each bilinear, each the gradient of the others. im2col and one matrix product per group.


def _windows(x, kernel, stride, padding, dilation):
    """(N, C, *S) -> a read-only view (N, C, *K, *O) of all windows of the padded input."""
    n = len(kernel)
    if any(padding):
        x = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
    out = tuple((x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(n))
    steps = x.strides[2:]
    return _strides(x, (*x.shape[:2], *kernel, *out),
                    (*x.strides[:2], *(s * d for s, d in zip(steps, dilation)), *(s * t for s, t in zip(steps, stride))), writeable=False)  # fmt: skip


def _columns(x, kernel, stride, padding, dilation, groups):
    """The windows as matrices (N, groups, C/groups * prod K, prod O), and O."""
    w = _windows(x, kernel, stride, padding, dilation)
    out = w.shape[2 + len(kernel) :]
    return w.reshape(x.shape[0], groups, x.shape[1] // groups * math.prod(kernel), math.prod(out)), out


def _conv_arrays(x, weight, bias, stride, padding, dilation, groups):
    columns, out = _columns(x, weight.shape[2:], stride, padding, dilation, groups)
    w = weight.reshape(groups, weight.shape[0] // groups, -1)
    y = np.matmul(w, columns).reshape(x.shape[0], weight.shape[0], *out)
    if bias is not None:
        y += bias.reshape(-1, *(1,) * len(out))
    return y


def _conv_input_arrays(g, weight, spatial, stride, padding, dilation, groups):
    n, kernel = g.shape[0], weight.shape[2:]
    w = weight.reshape(groups, weight.shape[0] // groups, -1)
    columns = np.matmul(w.swapaxes(1, 2), g.reshape(n, groups, -1, math.prod(g.shape[2:])))
    columns = columns.reshape(n, weight.shape[1] * groups, *kernel, *g.shape[2:])
    padded = np.zeros((n, weight.shape[1] * groups, *(s + 2 * p for s, p in zip(spatial, padding))), columns.dtype)
    for place in np.ndindex(*kernel):
        where = tuple(slice(k * d, k * d + s * (o - 1) + 1, s) for k, d, s, o in zip(place, dilation, stride, g.shape[2:]))
        padded[(slice(None), slice(None), *where)] += columns[(slice(None), slice(None), *place)]
    return padded[(slice(None), slice(None), *(slice(p, p + s) for p, s in zip(padding, spatial)))]


def _conv_weight_arrays(g, x, kernel, stride, padding, dilation, groups):
    columns, _out = _columns(x, kernel, stride, padding, dilation, groups)
    products = np.matmul(g.reshape(g.shape[0], groups, g.shape[1] // groups, -1), columns.swapaxes(2, 3))
    return np.add.reduce(products, 0).reshape(g.shape[1], x.shape[1] // groups, *kernel)


@twin(lambda g: np.add.reduce(g, (0, *range(2, g.ndim))))
def over_channels(g):
    """(N, C, *S) -> (C): the gradient of a bias."""
    return g.sum((0, *range(2, g.array.ndim)))


_conv = op("convolution", _conv_arrays,
    lambda g, input_shape, weight, _bias, _out, stride, padding, dilation, groups:
        _conv_input(g, weight, input_shape[2:], stride, padding, dilation, groups),
    lambda g, input, weight_shape, _bias, _out, stride, padding, dilation, groups:
        _conv_weight(g, input, weight_shape[2:], stride, padding, dilation, groups),
    lambda g, _input, _weight, _bias, _out, _stride, _padding, _dilation, _groups: over_channels(g),
    optional=("bias",))  # fmt: skip
_conv_input = op("convolution_input", _conv_input_arrays,
    lambda g, _input, weight, _out, _spatial, stride, padding, dilation, groups:
        conv_plain(g, weight, stride, padding, dilation, groups),
    lambda g, input, weight_shape, _out, _spatial, stride, padding, dilation, groups:
        _conv_weight(input, g, weight_shape[2:], stride, padding, dilation, groups),
    node="ConvolutionBackward0")  # fmt: skip
_conv_weight = op("convolution_weight", _conv_weight_arrays,
    lambda g, _input, x, _out, _kernel, stride, padding, dilation, groups: conv_plain(x, g, stride, padding, dilation, groups),
    lambda g, input, x_shape, _out, _kernel, stride, padding, dilation, groups:
        _conv_input(input, g, x_shape[2:], stride, padding, dilation, groups),
    node="ConvolutionBackward0")  # fmt: skip


@twin(lambda x, w, stride, padding, dilation, groups: _conv_arrays(x, w, None, stride, padding, dilation, groups))
def conv_plain(x, weight, stride, padding, dilation, groups):
    """Convolution without bias."""
    return _conv(x, weight, None, stride, padding, dilation, groups)


def _check_conv(name, n, input, weight, bias, stride, dilation, groups):
    x, w = input.array, weight.array
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of size: {list(x.shape)}")
    if w.ndim != n + 2:
        raise RuntimeError(f"weight should have at least three dimensions, but got weight of size {list(w.shape)}")
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError("dilation should be greater than zero")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if bias is not None and bias.array.ndim != 1:
        raise RuntimeError(f"expected bias to be 1-dimensional, but got a {bias.array.ndim}-dimensional bias")
    types = [v.dtype for v in (input, weight, bias) if v is not None]
    if len(set(types)) > 1:
        if types[0] is not types[1]:
            raise RuntimeError(f"Input type ({input.type().removeprefix('torch.')}) and weight type "
                               f"({weight.type().removeprefix('torch.')}) should be the same")  # fmt: skip
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
            raise RuntimeError(f"Given groups={groups}, weight of size {list(w.array.shape)}, expected input{list(input.array.shape)} to have "
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
        result = _conv(x, w, bias, stride, padding, dilation, groups)
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

    function.__doc__ = (
        f"The transpose of conv{n}d: what its gradient computes. (N, C, *S), (C, O/groups, *K) -> (N, O, *S').\nDifferentiable in all."
    )
    public(method=False, name=name)(function)
    return public(name=name, **functional)(function)


conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_conv_transpose_face, (1, 2, 3))

# Pooling. A table (outputs, K) lists for every output the flat positions of its window, -1 for padding.


def _output_size(size, kernel, stride, padding, dilation, ceil_mode):
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= size + padding:
        out -= 1
    return out


@lru_cache(maxsize=256)
def _table(spatial, kernel, stride, padding, dilation, ceil_mode):
    """(table, output sizes) for windows that slide."""
    return _combine([
        (_starts(s, k, t, p, d, ceil_mode), k, d) for s, k, t, p, d in zip(spatial, kernel, stride, padding, dilation)
    ], spatial)  # fmt: skip


def _starts(size, kernel, stride, padding, dilation, ceil_mode):
    out = _output_size(size, kernel, stride, padding, dilation, ceil_mode)
    return np.arange(out)[:, None] * stride - padding + np.arange(kernel) * dilation


def _combine(axes, spatial):
    table, outside, shape = np.zeros((1, 1), np.int64), np.zeros((1, 1), bool), []
    for (places, *_rest), size in zip(axes, spatial):
        bad = (places < 0) | (places >= size)
        table = (table[:, None, :, None] * size + np.where(bad, 0, places)[None, :, None, :]).reshape(
            table.shape[0] * places.shape[0], -1
        )
        outside = (outside[:, None, :, None] | bad[None, :, None, :]).reshape(table.shape)
        shape.append(places.shape[0])
    return np.where(outside, -1, table), tuple(shape)


@lru_cache(maxsize=256)
def _adaptive_table(spatial, sizes):
    axes = []
    for s, o in zip(spatial, sizes):
        first = np.arange(o) * s // o
        last = -((-(np.arange(o) + 1) * s) // o)
        width = builtins.max(int((last - first).max()), 1) if o else 1
        places = first[:, None] + np.arange(width)
        axes.append((np.where(places < last[:, None], places, -1), None, None))
    return _combine(axes, spatial)


def _max_pool_arrays(x, table, out):
    flat = x.reshape(*x.shape[: x.ndim - len(out)], -1)
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = np.concatenate([flat, np.full((*flat.shape[:-1], 1), lowest, x.dtype)], -1)
    window = padded[..., table]
    choice = window.argmax(-1)
    if x.dtype.kind == "f" and np.isnan(x).any():
        nan = np.isnan(window)
        choice = np.where(nan.any(-1), table.shape[1] - 1 - np.flip(nan, -1).argmax(-1), choice)
    where = np.take_along_axis(np.broadcast_to(table, window.shape), choice[..., None], -1)[..., 0]
    values = np.take_along_axis(flat, np.maximum(where, 0), -1)
    shape = (*x.shape[: x.ndim - len(out)], *out)
    return values.reshape(shape), where.reshape(shape)


def _max_pool_op(node):
    return op(node, _max_pool_arrays, lambda g, input_shape, out, _table, sizes: unpool(g, input_shape, out, sizes),
              nondifferentiable=(1,), promote="keep", node=node)  # fmt: skip


@twin(lambda g, shape, out, sizes: _unpool_arrays(g, shape, out, sizes))
def unpool(g, shape, out, sizes):
    """g added at the positions of the maxima."""
    lead = shape[: len(shape) - len(sizes)]
    index = reshape(out[1].detach(), (*lead, -1))
    n = math.prod(shape[len(lead) :])
    return reshape(_ungather(reshape(g, (*lead, -1)), index, (*lead, n), len(lead)), shape)


def _unpool_arrays(g, shape, out, sizes):
    lead = shape[: len(shape) - len(sizes)]
    rows = math.prod(lead)
    n = math.prod(shape[len(lead) :])
    flat = out[1].reshape(rows, -1) + np.arange(rows)[:, None] * n
    total = np.zeros(rows * n, g.dtype)
    np.add.at(total, flat.reshape(-1), g.reshape(-1))
    return total.reshape(shape)


_max_pools = {
    1: _max_pool_op("MaxPool2DWithIndicesBackward0"),
    3: _max_pool_op("MaxPool3DWithIndicesBackward0"),
}
_max_pools[2] = _max_pools[1]
_adaptive_max_pools = {2: _max_pool_op("AdaptiveMaxPool2DBackward0"), 3: _max_pool_op("AdaptiveMaxPool3DBackward0")}
_adaptive_max_pools[1] = _adaptive_max_pools[2]


def _check_pool(name, n, input, kernel, stride, padding, dilation, ceil_mode):
    x = input.array
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D tensor, but got {x.ndim}D: non-empty {n + 1}D or {n + 2}D (batch mode) "
                           "tensor expected for input")  # fmt: skip
    if any(s == 0 for s in x.shape[1:]):
        raise RuntimeError(f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got: "
                           f"{list(x.shape)}")  # fmt: skip
    if any(s <= 0 for s in stride):
        raise RuntimeError("stride should be greater than zero, but got " + ", ".join(f"dH: {s}" for s in stride))
    if any(k <= 0 for k in kernel):
        raise RuntimeError("kernel size should be greater than zero, but got " + ", ".join(f"kH: {k}" for k in kernel))
    for k, p in zip(kernel, padding):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > k // 2:
            raise RuntimeError(f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation=1")
    sizes = [_output_size(*v, ceil_mode) for v in zip(x.shape[x.ndim - n :], kernel, stride, padding, dilation)]
    if any(s < 1 for s in sizes):
        raise RuntimeError(f"Given input size: ({'x'.join(map(str, x.shape[x.ndim - n - 1 :]))}). Calculated output size: "
                           f"({'x'.join(map(str, (x.shape[x.ndim - n - 1], *sizes)))}). Output size is too small")  # fmt: skip


def _max_pool_face(n):
    name = f"max_pool{n}d"

    def with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        kernel = per_dimension(kernel_size, n, "kernel_size")
        stride = kernel if stride is None or stride == [] or stride == () else per_dimension(stride, n, "stride")
        padding, dilation = per_dimension(padding, n, "padding"), per_dimension(dilation, n, "dilation")
        _check_pool(name, n, input, kernel, stride, padding, dilation, ceil_mode)
        table, out = _table(input.array.shape[input.array.ndim - n :], kernel, stride, padding, dilation, ceil_mode)
        values, indices = _max_pools[n](input, table, out)
        return (values, indices) if return_indices else values

    with_indices.__doc__ = (
        f"The maximum of every window of {n} dimension(s). (N, C, *S) or (C, *S) -> the same with pooled sizes;\n"
        "with return_indices also the flat position of each maximum. Differentiable."
    )
    public(method=False, name=name)(with_indices)
    public(name=f"{name}_with_indices", **functional)(
        lambda *args, **kwargs: with_indices(*args, **{**kwargs, "return_indices": True})
    )
    return public(name=name, **functional)(with_indices)


max_pool1d, max_pool2d, max_pool3d = map(_max_pool_face, (1, 2, 3))


def _avg_arrays(x, table, out, divisor):
    flat = x.reshape(*x.shape[: x.ndim - len(out)], -1)
    padded = np.concatenate([flat, np.zeros((*flat.shape[:-1], 1), x.dtype)], -1)
    total = np.add.reduce(padded[..., table], -1)
    return (total / divisor.astype(x.dtype)).reshape(*x.shape[: x.ndim - len(out)], *out)


def _avg_back_arrays(g, shape, table, out, divisor):
    lead = shape[: len(shape) - len(out)]
    g = g.reshape(*lead, -1) / divisor.astype(g.dtype)
    total = np.zeros((*lead, math.prod(shape[len(lead) :]) + 1), g.dtype)
    np.add.at(total, (..., table), g[..., None])
    return total[..., :-1].reshape(shape)


def _avg_pool_op(node):
    return op(node, _avg_arrays, lambda g, input_shape, _out, table, sizes, divisor: avg_back(g, input_shape, table, sizes, divisor),
              node=node)  # fmt: skip


avg_back = op("avg_pool_backward", _avg_back_arrays, lambda g, _input, _out, _shape, table, sizes, divisor: avg_again(g, table, sizes, divisor))


@twin(_avg_arrays)
def avg_again(g, table, sizes, divisor):
    """Average pooling is linear: the gradient of its gradient is the pooling itself."""
    return _avg_pools[2](g, table, sizes, divisor)


_avg_pools = {1: _avg_pool_op("AvgPool2DBackward0"), 3: _avg_pool_op("AvgPool3DBackward0")}
_avg_pools[2] = _avg_pools[1]
_adaptive_avg_pools = {2: _avg_pool_op("AdaptiveAvgPool2DBackward0"), 3: _avg_pool_op("AdaptiveAvgPool3DBackward0")}
_adaptive_avg_pools[1] = _adaptive_avg_pools[2]


def _divisor(spatial, kernel, stride, padding, table, out, count_include_pad, override):
    if override is not None:
        if override == 0:
            raise RuntimeError("divisor must be not zero")
        return np.full(table.shape[0], float(override))
    if not count_include_pad:
        return (table >= 0).sum(1).astype(float)
    lengths = []
    for s, k, t, p, o in zip(spatial, kernel, stride, padding, out):
        start = np.arange(o) * t - p
        lengths.append(np.minimum(start + k, s + p) - start)
    total = np.ones(1)
    for n in lengths:
        total = (total[:, None] * n).reshape(-1)
    return total


def _avg_pool_face(n):
    name = f"avg_pool{n}d"

    def function(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
        kernel = per_dimension(kernel_size, n, "kernel_size")
        stride = kernel if stride is None or stride == [] or stride == () else per_dimension(stride, n, "stride")
        padding, one = per_dimension(padding, n, "padding"), (1,) * n
        _check_pool(name, n, input, kernel, stride, padding, one, ceil_mode)
        spatial = input.array.shape[input.array.ndim - n :]
        table, out = _table(spatial, kernel, stride, padding, one, ceil_mode)
        divisor = _divisor(spatial, kernel, stride, padding, table, out, count_include_pad, divisor_override)
        return _avg_pools[n](input, table, out, divisor)

    function.__doc__ = f"The mean of every window of {n} dimension(s). (N, C, *S) or (C, *S) -> pooled sizes. Differentiable."
    public(method=False, name=name)(function)
    return public(name=name, **functional)(function)


avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pool_face, (1, 2, 3))


def _adaptive_sizes(name, n, input, output_size):
    x = input.array
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(x.shape)}")
    spatial = x.shape[x.ndim - n :]
    sizes = (output_size,) * n if isinstance(output_size, int) or output_size is None else tuple(output_size)
    if len(sizes) != n:
        raise RuntimeError(f"{name}: output_size must be {n}")
    if any(s == 0 for s in x.shape[1:]):
        raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(x.shape)} "
                           "with dimension being empty")  # fmt: skip
    return spatial, tuple(s if o is None else o for s, o in zip(spatial, sizes))


def _adaptive_avg_face(n):
    name = f"adaptive_avg_pool{n}d"

    def function(input, output_size):
        spatial, sizes = _adaptive_sizes(name, n, input, output_size)
        if n > 1 and all(s == 1 for s in sizes):
            return input.mean(tuple(range(-n, 0)), keepdim=True)
        table, out = _adaptive_table(spatial, sizes)
        return _adaptive_avg_pools[n](input, table, out, (table >= 0).sum(1).astype(float))

    function.__doc__ = f"Means of windows chosen so that the result has output_size, in {n} dimension(s). Differentiable."
    public(method=False, name=name)(function)
    return public(name=name, **functional)(function)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_adaptive_avg_face, (1, 2, 3))


def _adaptive_max_face(n):
    name = f"adaptive_max_pool{n}d"

    def function(input, output_size, return_indices=False):
        spatial, sizes = _adaptive_sizes(name, n, input, output_size)
        table, out = _adaptive_table(spatial, sizes)
        values, indices = _adaptive_max_pools[n](input, table, out)
        return (values, indices) if return_indices else values

    function.__doc__ = f"Maxima of windows chosen so that the result has output_size, in {n} dimension(s). Differentiable."
    public(method=False, name=name)(function)
    return public(name=name, **functional)(function)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_max_face, (1, 2, 3))

# Resampling: along every dimension an output is a weighted sum of a few inputs ("taps")


def _resample_arrays(x, taps, _sizes):
    for i, (index, weight) in enumerate(taps):
        axis = x.ndim - len(taps) + i
        shape = [1] * x.ndim
        shape[axis] = -1
        parts = [np.take(x, index[t], axis) if weight is None else np.take(x, index[t], axis) * weight[t].astype(x.dtype).reshape(shape)
                 for t in range(len(index))]  # fmt: skip
        x = parts[0] if len(parts) == 1 else np.add.reduce(parts)
    return x


def _resample_back_arrays(g, taps, sizes):
    for i, (index, weight) in enumerate(taps):
        axis = g.ndim - len(taps) + i
        shape = [1] * g.ndim
        shape[axis] = -1
        out = np.zeros((*g.shape[:axis], sizes[i], *g.shape[axis + 1 :]), g.dtype)
        for t in range(len(index)):
            part = g if weight is None else g * weight[t].astype(g.dtype).reshape(shape)
            np.add.at(out, (slice(None),) * axis + (index[t],), part)
        g = out
    return g


def _resample_op(node):
    return op(node, _resample_arrays, lambda g, _input, _out, taps, sizes: resample_back(g, taps, sizes), node=node)


resample_back = op("resample_backward", _resample_back_arrays, lambda g, _input, _out, taps, sizes: resample(g, taps, sizes))
resample = _resample_op("ResampleBackward0")
_upsamples = {
    ("nearest", 1): _resample_op("UpsampleNearest1DBackward0"), ("nearest", 2): _resample_op("UpsampleNearest2DBackward0"),
    ("nearest", 3): _resample_op("UpsampleNearest3DBackward0"), ("linear", 1): _resample_op("UpsampleLinear1DBackward0"),
    ("bilinear", 2): _resample_op("UpsampleBilinear2DBackward0"), ("trilinear", 3): _resample_op("UpsampleTrilinear3DBackward0"),
    ("bicubic", 2): _resample_op("UpsampleBicubic2DBackward0"), ("nearest-exact", 1): _resample_op("UpsampleNearestExact1DBackward0"),
    ("nearest-exact", 2): _resample_op("UpsampleNearestExact2DBackward0"),
    ("nearest-exact", 3): _resample_op("UpsampleNearestExact3DBackward0"),
}  # fmt: skip


def _taps(mode, size, out, scale, align_corners):
    """(indices, weights) of one dimension."""
    i = np.arange(out)
    step = 1 / scale if scale else size / out
    if mode == "nearest":
        return np.minimum(np.floor(i * np.float32(step)), size - 1).astype(np.int64)[None], None
    if mode == "nearest-exact":
        return np.minimum(np.floor((i + 0.5) * np.float32(step)), size - 1).astype(np.int64)[None], None
    if align_corners:
        place = i * ((size - 1) / (out - 1)) if out > 1 else i * 0.0
    else:
        place = (i + 0.5) * step - 0.5
    if mode == "bicubic":
        low = np.floor(place)
        t = place - low
        a = -0.75

        def near(x):
            return ((a + 2) * x - (a + 3)) * x * x + 1

        def far(x):
            return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

        weights = np.stack([far(t + 1), near(t), near(1 - t), far(2 - t)])
        return np.clip(low + np.arange(-1, 3)[:, None], 0, size - 1).astype(np.int64), weights
    place = np.maximum(place, 0)
    low = np.minimum(np.floor(place).astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    t = np.minimum(place - low, 1.0)
    return np.stack([low, high]), np.stack([1 - t, t])


@public(**functional)
def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    """Resizes (N, C, *S) to `size` or by `scale_factor`: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, area.

    Differentiable. ValueError for a mode that doesn't fit the number of dimensions.
    """
    n = input.array.ndim - 2
    if antialias:
        raise NotImplementedError("interpolate(antialias=True) is not there yet in Backlight")
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    else:
        align_corners = bool(align_corners)
    spatial = input.array.shape[2:]
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        sizes, scales = per_dimension(size, n, "size"), (None,) * n
    elif scale_factor is not None:
        scales = (scale_factor,) * n if isinstance(scale_factor, (int, float)) else tuple(scale_factor)
        if len(scales) != n:
            raise ValueError(f"Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions "
                             f"of {list(spatial)} and scale_factor of shape {list(scales)}.")  # fmt: skip
        sizes = tuple(math.floor(s * float(f)) for s, f in zip(spatial, scales))
        if recompute_scale_factor:
            scales = (None,) * n
    else:
        raise ValueError("either size or scale_factor should be defined")
    if any(s <= 0 for s in (*sizes, *spatial)):
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input (H: {spatial[0]}, W: {spatial[-1]}) output "
                           f"(H: {sizes[0]}, W: {sizes[-1]})")  # fmt: skip
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[n - 1](input, sizes)
    if (mode, n) not in _upsamples:
        raise NotImplementedError(f"Got {n + 2}D input, but {mode} mode needs another number of dimensions")
    taps = tuple(_taps(mode, s, o, f, align_corners) for s, o, f in zip(spatial, sizes, scales))
    return _upsamples[mode, n](input, taps, spatial)


@public(**functional)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate, by its old name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


# Windows as columns


def _unfold_arrays(x, kernel, dilation, padding, stride):
    w = _windows(x, kernel, stride, padding, dilation)
    return w.reshape(x.shape[0], x.shape[1] * math.prod(kernel), -1)


_im2col = op("im2col", _unfold_arrays,
    lambda g, input_shape, _out, kernel, dilation, padding, stride: _col2im(g, input_shape, kernel, dilation, padding, stride))  # fmt: skip


def _fold_arrays(g, shape, kernel, dilation, padding, stride):
    n, c, *spatial = shape
    out = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, p, d, k, t in zip(spatial, padding, dilation, kernel, stride)]
    identity = np.eye(c * math.prod(kernel), dtype=g.dtype).reshape(c * math.prod(kernel), c, *kernel)
    return _conv_input_arrays(g.reshape(n, c * math.prod(kernel), *out), identity, spatial, stride, padding, dilation, 1)


_col2im = op("col2im", _fold_arrays,
    lambda g, _input, _out, _shape, kernel, dilation, padding, stride: _im2col(g, kernel, dilation, padding, stride))  # fmt: skip


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


@public(method=False)
def pixel_shuffle(input, upscale_factor):
    """(*, C r^2, H, W) -> (*, C, H r, W r). Differentiable."""
    *lead, c, h, w = input.array.shape
    r = upscale_factor
    if c % (r * r):
        raise RuntimeError(f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
                           f"input.size(-3)={c} is not divisible by {r * r}")  # fmt: skip
    k = len(lead)
    x = reshape(input, (*lead, c // (r * r), r, r, h, w))
    x = x.permute(*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return reshape(x, (*lead, c // (r * r), h * r, w * r))


public(name="pixel_shuffle", **functional)(pixel_shuffle)


@public(method=False)
def pixel_unshuffle(input, downscale_factor):
    """(*, C, H r, W r) -> (*, C r^2, H, W). Differentiable."""
    *lead, c, h, w = input.array.shape
    r = downscale_factor
    k = len(lead)
    x = reshape(input, (*lead, c, h // r, r, w // r, r)).permute(*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return reshape(x, (*lead, c * r * r, h // r, w // r))


public(name="pixel_unshuffle", **functional)(pixel_unshuffle)
