"""More pooling: fractional windows, power means, and the partial inverse of max pooling."""

from __future__ import annotations

import math

import numpy as np

from .. import random
from ..op import op, public
from ..tensor import Tensor
from .conv import functional, per_dimension
from .gather import _gather
from .pointwise import abs, pow, sign
from .pool import avg_pool1d, avg_pool2d, avg_pool3d, unpool
from .shape import reshape, squeeze, unsqueeze

# max_unpool: values go back to where their maxima stood, as the indices of max pooling (flat in a plane) tell


def _max_unpool_arrays(x, indices, sizes):
    lead = x.shape[: x.ndim - len(sizes)]
    volume = math.prod(sizes)
    wrong = (indices < 0) | (indices >= volume)
    if wrong.any():
        raise RuntimeError(
            f"Found an invalid max index: {indices[wrong][0]} (output volumes are of size {'x'.join(map(str, sizes))}"
        )
    out = np.zeros((math.prod(lead), volume), x.dtype)
    rows = (len(out), math.prod(x.shape[len(lead) :]))
    np.put_along_axis(out, indices.reshape(rows), x.reshape(rows), 1)
    return out.reshape(*lead, *sizes)


def _back_at(g, indices, n):
    """The elements of g at the indices of each plane."""
    shape = tuple(indices.shape)
    lead = shape[: len(shape) - n]
    flat = reshape(g, (*lead, math.prod(g.shape[len(lead) :])))
    return reshape(_gather(flat, reshape(indices, (*lead, math.prod(shape[len(lead) :]))), len(lead)), shape)


def _max_unpool_op(n):
    return op(f"max_unpool{n}d", _max_unpool_arrays,
        lambda g, _input, indices, _out, sizes: _back_at(g, indices, len(sizes)), None,
        promote="keep", node=f"MaxUnpool{n}DBackward0")  # fmt: skip


_max_unpools = {2: _max_unpool_op(2), 3: _max_unpool_op(3)}


def _unpooled_sizes(input, kernel, stride, padding, output_size):
    n = len(kernel)
    default = [(s - 1) * t - 2 * p + k for s, t, p, k in zip(input.array.shape[-n:], stride, padding, kernel)]
    if output_size is None:
        return tuple(default)
    sizes = tuple(output_size)
    if len(sizes) == n + 2:
        sizes = sizes[2:]
    if len(sizes) != n:
        raise ValueError(
            f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of '{len(sizes)}'"
        )
    for d, (size, middle, t) in enumerate(zip(sizes, default, stride)):
        if not middle - t < size < middle + t:
            raise ValueError(f'invalid output_size "{sizes}" (dim {d} must be between {middle - t} and {middle + t})')
    return sizes


def _max_unpool_face(n):
    def function(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        kernel = per_dimension(kernel_size, n, "kernel_size")
        stride = per_dimension(stride, n, "stride") if stride is not None else kernel
        sizes = _unpooled_sizes(input, kernel, stride, per_dimension(padding, n, "padding"), output_size)
        if indices.dtype.name != "int64":
            raise RuntimeError(f"elements in indices should be type int64 but got: {indices.type().removeprefix('torch.')}")
        if input.array.ndim not in (n + 1, n + 2):
            raise RuntimeError(f"Input to max_unpooling{n}d should be a {n + 1}d or {n + 2}d Tensor, but got a tensor with "
                               f"{input.array.ndim} dimensions.")  # fmt: skip
        if input.array.shape != indices.array.shape:
            raise RuntimeError(f"Expected shape of indices to be same as that of the input tensor ({list(input.array.shape)}) but got indices "
                               f"tensor with shape: {list(indices.array.shape)}")  # fmt: skip
        if n == 3 and any(t <= 0 for t in stride):
            raise RuntimeError(f"strides should be greater than zero, but got stride: {list(stride)}")
        if n == 1:
            return squeeze(_max_unpools[2](unsqueeze(input, -1), unsqueeze(indices, -1), (*sizes, 1)), -1)
        return _max_unpools[n](input, indices, sizes)

    function.__doc__ = (
        f"Puts pooled values back to the places of their maxima, zeros elsewhere, in {n} dimension(s). Differentiable.\n\n"
        "indices: what max pooling returned; output_size: which of the possible sizes."
    )
    return public(name=f"max_unpool{n}d", **functional)(function)


max_unpool1d, max_unpool2d, max_unpool3d = map(_max_unpool_face, (1, 2, 3))

# Fractional max pooling (Graham 2014): windows whose distances vary pseudo-randomly


def _starts(samples, size, out, kernel):
    """Where the windows of one dimension start, for every plane. samples: (planes)."""
    if out == 1:
        return np.full((len(samples), 1), size - kernel)
    step = samples.dtype.type(size - kernel) / samples.dtype.type(out - 1)
    i = np.arange(out - 1, dtype=samples.dtype)
    starts = ((i + samples[:, None]) * step).astype(np.int64) - (samples[:, None] * step).astype(np.int64)
    return np.concatenate([starts, np.full((len(samples), 1), size - kernel)], 1)


def _fractional_arrays(x, samples, kernel, sizes):
    n = len(kernel)
    spatial, lead = x.shape[-n:], x.shape[:-n]
    planes = math.prod(lead)
    samples = samples.reshape(planes, n)
    table = np.zeros((planes, 1, 1), np.int64)
    for d, (size, k, out) in enumerate(zip(spatial, kernel, sizes)):
        column = samples[:, d if n == 3 else n - 1 - d]  # in two dimensions the width comes first
        places = _starts(column, size, out, k)[:, :, None] + np.arange(k)
        table = table[:, :, None, :, None] * size + places[:, None, :, None, :]
        table = table.reshape(planes, table.shape[1] * out, table.shape[3] * k)
    flat = x.reshape(planes, math.prod(spatial))
    window = flat[np.arange(planes)[:, None, None], table]
    choice = window.argmax(-1)[..., None]
    where = np.take_along_axis(table, choice, -1)[..., 0]
    values = np.take_along_axis(flat, where, 1)
    return values.reshape(*lead, *sizes), where.reshape(*lead, *sizes)


def _fractional_op(n):
    return op(f"fractional_max_pool{n}d", _fractional_arrays,
        lambda g, input_shape, _samples, out, _kernel, sizes: unpool(g, input_shape, out, sizes), None,
        nondifferentiable=(1,), promote="keep", node=f"FractionalMaxPool{n}DBackward0")  # fmt: skip


_fractional_pools = {2: _fractional_op(2), 3: _fractional_op(3)}


def _fractional_face(n):
    name = f"fractional_max_pool{n}d"

    def with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        x = input.array
        if x.ndim not in (n + 1, n + 2):
            raise RuntimeError(f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got: {list(x.shape)}")
        if any(s == 0 for s in x.shape[1 if x.ndim == n + 2 else 0 :]):
            raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got {list(x.shape)} with "
                               "dimension being empty.")  # fmt: skip
        kernel = per_dimension(kernel_size, n, "kernel_size")
        if output_size is None:
            ratios = (output_ratio,) * n if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
            sizes = tuple(int(s * r) for s, r in zip(x.shape[-n:], ratios))
        else:
            sizes = per_dimension(output_size, n, "output_size")
        for s, k, o, axis in zip(x.shape[-n:], kernel, sizes, ("time", "height", "width")[-n:]):
            if k <= 0:
                raise RuntimeError(f"kernel_size must be greater than zero, but got {list(kernel)}")
            if o + k - 1 > s:
                raise RuntimeError(f"{name}(): pool {axis} {k} too large relative to input {axis} {s}")
        planes = (1, x.shape[0]) if x.ndim == n + 1 else x.shape[:2]
        if _random_samples is None:
            _random_samples = Tensor._from(random.uniform((*planes, n), x.dtype))
        elif _random_samples.dtype is not input.dtype:
            raise RuntimeError("Expect _random_samples to have the same dtype as input")
        elif _random_samples.array.ndim != 3:
            raise RuntimeError(f"Expect _random_samples to have 3 dimensions got {_random_samples.array.ndim}")
        elif _random_samples.array.shape[0] < planes[0] or _random_samples.array.shape[1:] != (planes[1], n):
            raise RuntimeError(
                f"Expect _random_samples to have shape {[*planes, n]}, but got {list(_random_samples.array.shape)}"
            )
        values, indices = _fractional_pools[n](input, _random_samples[: planes[0]], kernel, sizes)
        return (values, indices) if return_indices else values

    with_indices.__doc__ = (
        f"Maxima of windows at pseudo-random distances (Graham 2014), in {n} dimensions. Differentiable.\n\n"
        "(N, C, *S) or (C, *S) -> output_size, or output_ratio * S; with return_indices also the flat positions of the maxima."
    )
    public(name=f"{name}_with_indices", **functional)(
        lambda *args, **kwargs: with_indices(*args, **{**kwargs, "return_indices": True})
    )
    return public(name=name, **functional)(with_indices)


fractional_max_pool2d, fractional_max_pool3d = map(_fractional_face, (2, 3))

# Power means of windows


def _lp_pool_face(n):
    average = (avg_pool1d, avg_pool2d, avg_pool3d)[n - 1]

    def function(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        count = math.prod(per_dimension(kernel_size, n, "kernel_size"))
        total = average(pow(input, norm_type), kernel_size, stride, 0, ceil_mode)
        return pow(sign(total) * abs(total) * count, 1.0 / norm_type)

    function.__doc__ = f"The p-norm (p = norm_type) of every window of {n} dimension(s). Differentiable."
    return public(name=f"lp_pool{n}d", **functional)(function)


lp_pool1d, lp_pool2d, lp_pool3d = map(_lp_pool_face, (1, 2, 3))
