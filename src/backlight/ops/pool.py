"""Pooling, in one, two and three dimensions: maxima and means of windows."""

from __future__ import annotations

import builtins
import math
from functools import lru_cache

import numpy as np

from .. import kernels
from ..codegen import named
from ..op import op, public, twin, write_out
from ..tensor import Tensor, dimension
from .check import not_tensor
from .conv import functional, per_dimension
from .gather import _ungather
from .pointwise import _trunc_divide
from .shape import reshape

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
    return np.asfortranarray(np.where(outside, -1, table)), tuple(shape)  # columns contiguous: kernels go along outputs


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


def _flat(x, n):
    """x with its last n dimensions merged (also where others are empty)."""
    return x.reshape(*x.shape[: x.ndim - n], math.prod(x.shape[x.ndim - n :]))


KERNEL_FROM = kernels.FUSED  # results: from here on kernels/pool.py is faster


def _in_kernels(x, size):
    """Whether kernels compute so many results of x."""
    return size >= KERNEL_FROM and x.dtype in (np.float32, np.float64) and x.size > 0


def _max_pool_arrays(x, table, out):
    if _in_kernels(x, math.prod(x.shape[: x.ndim - len(out)]) * len(table)):
        return kernels.pool.max_pool(x, table, out)
    flat = _flat(x, len(out))
    lowest = -np.inf if x.dtype.kind in "fV" else np.iinfo(x.dtype).min
    padded = np.concatenate([flat, np.full((*flat.shape[:-1], 1), lowest, x.dtype)], -1)
    window = np.take(padded, table, -1)
    choice = window.argmax(-1)
    if x.dtype.kind in "fV" and np.isnan(x).any():
        nan = np.isnan(window)
        choice = np.where(nan.any(-1), table.shape[1] - 1 - np.flip(nan, -1).argmax(-1), choice)
    where = np.take_along_axis(np.broadcast_to(table, window.shape), choice[..., None], -1)[..., 0]
    values = np.take_along_axis(flat, np.maximum(where, 0), -1)
    shape = (*x.shape[: x.ndim - len(out)], *out)
    return values.reshape(shape), where.reshape(shape)


def _max_pool_op(node):
    return op(node, _max_pool_arrays, lambda g, input_shape, out, _table, sizes: unpool(g, input_shape, out, sizes),
              nondifferentiable=(1,), promote="keep", node=node, batch="leading")  # fmt: skip


@twin(lambda g, shape, out, sizes: _unpool_arrays(g, shape, out, sizes))
def unpool(g, shape, out, sizes):
    """g added at the positions of the maxima."""
    lead = shape[: len(shape) - len(sizes)]
    index = reshape(out[1].detach(), (*lead, math.prod(sizes)))
    n = math.prod(shape[len(lead) :])
    return reshape(_ungather(reshape(g, (*lead, math.prod(sizes))), index, (*lead, n), len(lead)), shape)


def _unpool_arrays(g, shape, out, sizes):
    if _in_kernels(g, g.size):
        return kernels.pool.max_pool_gradient(g, out[1], shape, len(sizes))
    lead = shape[: len(shape) - len(sizes)]
    rows = math.prod(lead)
    n = math.prod(shape[len(lead) :])
    flat = out[1].reshape(rows, math.prod(sizes)) + np.arange(rows)[:, None] * n
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
    if not isinstance(input, Tensor):
        raise not_tensor(name, input=input)
    x = input.array
    if name.startswith("avg") and n < 3:
        dimension(-n - 1, x.ndim)
    if any(d <= 0 for d in dilation):
        raise RuntimeError(f"{name}() dilation must be greater than zero, but got {dilation[0] if n == 1 else list(dilation)}")
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input\n"
                           f"{name} got a tensor of {x.ndim} dimensions.")  # fmt: skip
    if any(s == 0 for s in x.shape[1 if x.ndim == n + 2 else 0 :]):
        raise RuntimeError(f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got: "
                           f"{list(x.shape)}")  # fmt: skip
    if any(s == 0 for s in stride):
        raise RuntimeError("stride should not be zero")
    if any(s < 0 for s in stride):
        raise RuntimeError("stride should be greater than zero, but got " + ", ".join(f"dH: {s}" for s in stride))
    if any(k <= 0 for k in kernel):
        raise RuntimeError("kernel size should be greater than zero, but got " + ", ".join(f"kH: {k}" for k in kernel))
    for k, p in zip(kernel, padding):
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > k // 2:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation=1"
            )
    sizes = [_output_size(*v, ceil_mode) for v in zip(x.shape[x.ndim - n :], kernel, stride, padding, dilation)]
    if name == "max_pool1d" and sizes[0] < 1:
        raise RuntimeError(f"max_pool1d() Invalid computed output size: {sizes[0]}")
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
    if _in_kernels(x, math.prod(x.shape[: x.ndim - len(out)]) * len(table)):
        return kernels.pool.average_pool(x, table, out, divisor)
    flat = _flat(x, len(out))
    padded = np.concatenate([flat, np.zeros((*flat.shape[:-1], 1), x.dtype)], -1)
    total = np.add.reduce(np.take(padded, table, -1), -1)
    total = (_trunc_divide if x.dtype.kind in "iu" else np.divide)(total, divisor.astype(x.dtype))
    return total.reshape(*x.shape[: x.ndim - len(out)], *out)


def _avg_back_arrays(g, shape, table, out, divisor):
    if _in_kernels(g, g.size):
        return kernels.pool.average_pool_gradient(g, shape, table, out, divisor)
    lead = shape[: len(shape) - len(out)]
    g = _flat(g, len(out)) / divisor.astype(g.dtype)
    total = np.zeros((*lead, math.prod(shape[len(lead) :]) + 1), g.dtype)
    np.add.at(total, (..., table), g[..., None])
    return total[..., :-1].reshape(shape)


def _avg_pool_op(node):
    return op(node, _avg_arrays, lambda g, input_shape, _out, table, sizes, divisor: avg_back(g, input_shape, table, sizes, divisor),
              node=node, batch="leading")  # fmt: skip


avg_back = op(
    "avg_pool_backward",
    _avg_back_arrays,
    lambda g, _input, _out, _shape, table, sizes, divisor: avg_again(g, table, sizes, divisor),
    batch="leading",
)


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

    def function(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, *,
                 out=None):  # fmt: skip
        kernel = per_dimension(kernel_size, n, "kernel_size")
        stride = kernel if stride is None or stride == [] or stride == () else per_dimension(stride, n, "stride")
        padding, one = per_dimension(padding, n, "padding"), (1,) * n
        _check_pool(name, n, input, kernel, stride, padding, one, ceil_mode)
        spatial = input.array.shape[input.array.ndim - n :]
        table, sizes = _table(spatial, kernel, stride, padding, one, ceil_mode)
        divisor = _divisor(spatial, kernel, stride, padding, table, sizes, count_include_pad, divisor_override)
        result = _avg_pools[n](input, table, sizes, divisor)
        return result if out is None else write_out(out, result, name, exact=True)

    if n == 1:  # has no `out`
        whole = function

        def function(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
            return whole(input, kernel_size, stride, padding, ceil_mode, count_include_pad)

    named(function, name)
    function.__doc__ = f"The mean of every window of {n} dimension(s). (N, C, *S) or (C, *S) -> pooled sizes. Differentiable."
    public(method=False, name=name)(function)
    return public(name=name, **functional)(function)


avg_pool1d, avg_pool2d, avg_pool3d = map(_avg_pool_face, (1, 2, 3))


def _adaptive_sizes(name, n, input, output_size):
    if not isinstance(input, Tensor):
        raise not_tensor(name, input=input)
    x = input.array
    if name.startswith("avg"):
        dimension(-n - 1, x.ndim)
    if n > 1 and x.ndim <= n and not isinstance(output_size, int):
        raise ValueError(f"Input dimension should be at least {n + 1}")
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(x.shape)}")
    spatial = x.shape[x.ndim - n :]
    sizes = (output_size,) * n if isinstance(output_size, int) or output_size is None else tuple(output_size)
    if len(sizes) != n:
        raise RuntimeError(f"{name}: output_size must be {n}")
    if any(o is not None and o < 0 for o in sizes):
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received {list(sizes)}")
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

    named(function, name)
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
