"""Resampling: interpolate, in one, two and three dimensions."""

from __future__ import annotations

import math

import numpy as np

from ..op import op, public
from .conv import functional, per_dimension
from .pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

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
    return op(node, _resample_arrays, lambda g, _input, _out, taps, sizes: resample_back(g, taps, sizes), node=node,
              batch="leading")  # fmt: skip


resample_back = op(
    "resample_backward", _resample_back_arrays, lambda g, _input, _out, taps, sizes: resample(g, taps, sizes), batch="leading"
)
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
def interpolate(
    input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False
):
    """Resizes (N, C, *S) to `size` or by `scale_factor`: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, area.

    Differentiable. ValueError for a mode that doesn't fit the number of dimensions.
    """
    n = input.array.ndim - 2
    if antialias:
        raise NotImplementedError("interpolate(antialias=True) is not there yet in Backlight")
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
            )
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
                             f"of {list(spatial)} and scale_factor of shape {scales}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and "
                             "scale_factor in (s1, s2, ...,sK) format.")  # fmt: skip
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
        need = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}.get(mode)
        if need is None:
            raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {n + 2}D) for the modes: nearest | "
                                      f"linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})")  # fmt: skip
        raise NotImplementedError(f"Got {n + 2}D input, but {mode} mode needs {need}D input")
    taps = tuple(_taps(mode, s, o, f, align_corners) for s, o, f in zip(spatial, sizes, scales))
    return _upsamples[mode, n](input, taps, spatial)


@public(**functional)
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """interpolate, by its old name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


@public(**functional)
def upsample_nearest(input, size=None, scale_factor=None):
    """interpolate by the nearest neighbour, by its old name."""
    return interpolate(input, size, scale_factor, "nearest")


@public(**functional)
def upsample_bilinear(input, size=None, scale_factor=None):
    """interpolate with mode="bilinear" and align_corners=True, by its old name."""
    return interpolate(input, size, scale_factor, "bilinear", True)
