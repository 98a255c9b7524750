"""Sampling images at given points: grid_sample, affine_grid (Jaderberg et al. 2015)."""

from __future__ import annotations

import itertools
import math

import numpy as np

from ..batching import merged_rule
from ..creation import _linspace
from ..op import public
from ..tensor import Tensor
from .choose import where, where_zero
from .composite import composite
from .conv import functional
from .gather import gather
from .linalg import matmul
from .shape import expand, reshape, select, transpose

# Where a grid's coordinate (-1 is one end of the image, 1 the other) lies among the pixels


def _unnormalized(coordinate, size, align_corners, fused):
    """The place in pixels. The ends are centres of the outermost pixels (align_corners), or their outer edges."""
    shifted = coordinate + 1
    if align_corners:
        return shifted * ((size - 1) / 2)
    if not fused:
        return (shifted * size - 1) / 2
    place = shifted * (size / 2) - 0.5
    # PyTorch's kernel for images rounds the product and the difference once, and on which side of a pixel's centre a place
    # lies, which decides about its slope, is a matter of rounding. A wider type does that here.
    wide = np.float64 if place.array.dtype == np.float32 else np.longdouble
    place.array[...] = shifted.array.astype(wide) * wide(size / 2) - wide(0.5)
    return place


def _clipped(place, size):
    """Limited to the image; without gradient at and beyond its ends."""
    inside = Tensor._from((place.array > 0) & (place.array < size - 1))
    ends = Tensor._from(np.nan_to_num(np.clip(place.array, 0, size - 1)))
    return where(inside, place, ends)


def _reflected(place, size, align_corners):
    """Mirrored at the image's ends until it lies inside."""
    low, span = (0, size - 1) if align_corners else (-0.5, size)
    if not span:
        return place * 0
    far = (place - low).abs()
    turns = np.floor(far.array / span)
    rest = far - Tensor._from(np.asarray(turns * span, far.array.dtype))
    return where(Tensor._from(np.asarray(turns % 2 == 0)), rest, span - rest) + low


def _padded(place, size, padding, align_corners):
    if padding == "border":
        place = _clipped(place, size)
    elif padding == "reflection":
        place = _clipped(_reflected(place, size, align_corners), size)
    return place


def _whole(array):
    """Places as int64; what no image reaches is put aside."""
    with np.errstate(all="ignore"):
        return np.where(np.abs(array) < 2**31, array, -100).astype(np.int64)


def _pixels(input, corner):
    """The pixels at one place per output, zeros outside. corner: one index array (N, P) for each spatial dimension."""
    spatial = input.array.shape[2:]
    index, outside = 0, False
    for places, size in zip(corner, spatial):
        wrong = (places < 0) | (places >= size)
        outside = outside | wrong
        index = index * size + np.where(wrong, 0, places)
    n, c = input.array.shape[:2]
    flat = reshape(input, (n, c, math.prod(spatial)))
    picked = gather(flat, 2, Tensor._from(np.broadcast_to(index[:, None], (n, c, index.shape[1]))))
    return (
        where_zero(Tensor._from(np.broadcast_to(outside[:, None], picked.array.shape)), picked) if np.any(outside) else picked
    )


def _cubic_weights(t):
    """The weights of four neighbours at distances 1 + t, t, 1 - t, 2 - t (cubic convolution with a = -0.75)."""
    a = -0.75

    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return far(t + 1), near(t), near(1 - t), far(2 - t)


def _taps(place, size, mode, padding, align_corners):
    """For one dimension the neighbours of each place: (index array, weight) pairs."""
    if mode == "nearest":
        return [(_whole(np.rint(_padded(place, size, padding, align_corners).array)), None)]
    if mode == "bicubic":
        low = np.floor(place.array)
        weights = _cubic_weights(place - Tensor._from(low))
        found = (_padded(Tensor._from(low + k), size, padding, align_corners) for k in (-1, 0, 1, 2))
        return [(_whole(p.array), w) for p, w in zip(found, weights)]
    place = _padded(place, size, padding, align_corners)
    low = np.floor(place.array)
    t = place - Tensor._from(low)
    return [(_whole(low), 1 - t), (_whole(low) + 1, t)]


def _grid_sample_tensors(input, grid, mode, padding, align_corners):
    n, c, *spatial = input.array.shape
    out = grid.array.shape[1:-1]
    taps = []
    for d, size in enumerate(spatial):
        column = select(grid, -1, len(spatial) - 1 - d)  # the grid's last dimension is x, y, z; the image's z, y, x
        place = _unnormalized(reshape(column, (n, -1)), size, align_corners, fused=len(spatial) == 2)
        taps.append(_taps(place, size, mode, padding, align_corners))
    total = None
    for corner in itertools.product(*taps):
        part = _pixels(input, [index for index, _weight in corner])
        for _index, weight in corner:
            if weight is not None:
                part = part * reshape(weight, (n, 1, -1))
        total = part if total is None else total + part
    return reshape(total, (n, c, *out))


_samplers = {
    2: composite("grid_sampler_2d", _grid_sample_tensors, 2, node="GridSampler2DBackward0", batch=merged_rule),
    3: composite("grid_sampler_3d", _grid_sample_tensors, 2, node="GridSampler3DBackward0", batch=merged_rule),
}


@public(**functional)
def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """The pixels of images at the places that a grid tells, between -1 and 1. Differentiable in input and grid.

    (N, C, H, W), (N, H', W', 2) -> (N, C, H', W'), likewise with a depth and 3. mode: "bilinear", "nearest", "bicubic";
    padding_mode: "zeros", "border", "reflection".
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
                         f"'{padding_mode}'")  # fmt: skip
    if align_corners is None:
        _warn_align("grid_sample", "align_corners=True")
        align_corners = False
    x, y = input.array, grid.array
    if x.dtype != y.dtype:
        raise RuntimeError("grid_sampler(): expected input and grid to have same dtype, but input has "
                           f"{input.dtype.name} and grid has {grid.dtype.name}")  # fmt: skip
    if x.shape[:1] != y.shape[:1]:
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes {list(x.shape)} and "
                           f"grid with sizes {list(y.shape)}")  # fmt: skip
    if y.shape[-1] != x.ndim - 2:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {x.ndim - 2} in last dimension, but got grid with sizes "
                           f"{list(y.shape)}")  # fmt: skip
    if any(s == 0 for s in x.shape[2:]):
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {list(x.shape)} with "
                           "dimension being empty")  # fmt: skip
    if x.ndim not in (4, 5) or x.ndim != y.ndim:
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
                           f"{list(x.shape)} and grid with sizes {list(y.shape)}")  # fmt: skip
    if mode == "bicubic" and x.ndim == 5:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    return _samplers[x.ndim - 2](input, grid, mode, padding_mode, bool(align_corners))


def _warn_align(name, old):
    import warnings

    warnings.warn(f"Default {name} and affine_grid behavior has changed to align_corners=False since 1.3.0. Please specify {old} if the "
                  f"old behavior is desired. See the documentation of {name} for details.", stacklevel=3)  # fmt: skip


# Grids of affine maps


def _affine_grid_tensors(theta, sizes, align_corners):
    axes = []
    for size in sizes:
        line = _linspace(-1, 1, size, theta.dtype) if size > 1 else np.zeros(1, theta.array.dtype)
        axes.append(line if align_corners else line * (size - 1) / size)
    points = np.meshgrid(*axes, indexing="ij")[::-1]  # x first
    base = np.stack([*points, np.ones(sizes, theta.array.dtype)], -1).reshape(1, -1, len(sizes) + 1)
    n = theta.array.shape[0]
    result = matmul(expand(Tensor._from(base), (n, *base.shape[1:])), transpose(theta, 1, 2))
    return reshape(result, (n, *sizes, len(sizes)))


_affine_grid = composite("affine_grid_generator", _affine_grid_tensors)


@public(**functional)
def affine_grid(theta, size, align_corners=None):
    """The grid for grid_sample that maps an image of the given size by affine matrices. Differentiable in theta.

    theta (N, 2, 3), size (N, C, H, W) -> (N, H, W, 2); theta (N, 3, 4), size (N, C, D, H, W) -> (N, D, H, W, 3).
    """
    if align_corners is None:
        _warn_align("grid_sample", "align_corners=True")
        align_corners = False
    if not theta.dtype.is_floating_point:
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    size = tuple(size)
    for n, kind in ((4, "2D"), (5, "3D")):
        if len(size) == n:
            rows = n - 2
            if theta.array.ndim != 3 or theta.array.shape[-2:] != (rows, rows + 1):
                raise ValueError(f"Expected a batch of {kind} affine matrices of shape Nx{rows}x{rows + 1} for size {list(size)}. Got "
                                 f"{theta.array.shape}.")  # fmt: skip
            break
    else:
        raise NotImplementedError("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size "
                                  f"{list(size)}.")  # fmt: skip
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {list(size)}")
    return _affine_grid(theta, size[2:], bool(align_corners))
