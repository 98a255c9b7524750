"""Counting into bins: histogram, histogramdd. No gradients."""

from __future__ import annotations

import numpy as np

from ..batching import in_loop
from ..creation import _linspace
from ..op import public, write_out
from ..return_types import return_type
from ..tensor import Tensor
from .check import not_implemented

HISTOGRAM = return_type("histogram", "hist", "bin_edges")
HISTOGRAMDD = return_type("histogramdd", "hist", "bin_edges")


def _edges(name, points, bins, limits):
    """The edges of the bins of each column of points."""
    if isinstance(bins[0], Tensor):
        for i, b in enumerate(bins):
            if b.array.ndim != 1:
                raise RuntimeError(f"{name}(): bins tensor should have one dimension, but got {b.array.ndim} dimensions in the bins tensor for "
                                   f"dimension {i}")  # fmt: skip
            if not b.array.size:
                raise RuntimeError(f"{name}(): bins tensor should have at least 1 element, but got 0 elements in the bins tensor for "
                                   f"dimension {i}")  # fmt: skip
        return [b.array for b in bins]
    for i, b in enumerate(bins):
        if b <= 0:
            raise RuntimeError(f"{name}(): bins must be > 0, but got {b} for dimension {i}")
    found = []
    for i, (b, column) in enumerate(zip(bins, points.T)):
        if limits is not None:
            low, high = limits[2 * i : 2 * i + 2]
        else:
            low, high = (column.min(), column.max()) if column.size else (0, 1)
        if not (np.isfinite(low) and np.isfinite(high)):
            raise RuntimeError(f"torch.histogramdd: dimension {i}'s range [{low}, {high}] is not finite")
        if low > high:
            raise RuntimeError(
                f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for dimension {i}"
            )
        if low == high:
            low, high = low - 0.5, high + 0.5
        found.append(_linspace(low, high, b + 1, Tensor._from(points).dtype))
    return found


def _counts(points, edges, weight, density):
    """How many points (or how much weight) fall into each cell; the last bin of a dimension includes its right edge."""
    shape = tuple(len(e) - 1 for e in edges)
    inside, cell = np.ones(len(points), bool), np.zeros(len(points), np.int64)
    for e, column, n in zip(edges, points.T, shape):
        inside &= (column >= e[0]) & (column <= e[-1])
        cell = cell * n + np.clip(np.searchsorted(e, column, "right") - 1, 0, max(n - 1, 0))
    hist = np.zeros(shape, points.dtype)
    if hist.size:
        np.add.at(hist.reshape(-1), cell[inside], 1 if weight is None else weight[inside])
    if density:
        hist = hist / hist.sum()
        for i, e in enumerate(edges):
            hist = hist / np.diff(e).reshape([-1 if k == i else 1 for k in range(len(shape))])
    return hist.astype(points.dtype, copy=False)


def _check_weight(name, weight, shape, input):
    if weight is None:
        return None
    if weight.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got "
                           f"input({input.dtype}), and weight({weight.dtype})")  # fmt: skip
    if weight.array.shape != shape:
        raise RuntimeError(f"{name}(): if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
                           f"dimension, but got input with shape {list(input.array.shape)} and weight with shape {list(weight.array.shape)}")  # fmt: skip
    return weight.array.reshape(-1)


@public()
@in_loop
def histogram(input, bins, *, range=None, weight=None, density=False, out=None):
    """(hist, bin_edges): how many elements fall into each bin. bins: their number, or a vector of increasing edges.

    range: the ends of equal bins (the data's if None). weight: what each element counts. density: as densities.

    >>> import backlight as torch
    >>> torch.histogram(torch.tensor([1., 2., 1.]), 2).hist
    tensor([2., 1.])
    """
    x = input.array
    if x.dtype not in (np.float32, np.float64):
        raise not_implemented("histogramdd", input)
    if isinstance(bins, Tensor) and bins.dtype is not input.dtype:
        raise RuntimeError(f"torch.histogram(): input tensor and bins tensor should have the same dtype, but got input({input.dtype}) and "
                           f"bins({bins.dtype})")  # fmt: skip
    weight = _check_weight("torch.histogram", weight, x.shape, input)
    edges = _edges("torch.histogram", x.reshape(-1, 1), [bins], range)
    result = Tensor._from(_counts(x.reshape(-1, 1), edges, weight, density)), Tensor._from(edges[0])
    return HISTOGRAM(*(result if out is None else write_out(out, result, exact=True)))


@public(method=False)
@in_loop
def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """(hist, bin_edges) of points with N coordinates: (*, N) -> N-dimensional counts and N vectors of edges.

    bins: how many in each dimension (or all), or a list of vectors of edges; range: low, high of each dimension, flat.
    """
    x = input.array
    if x.ndim < 2:
        raise RuntimeError(f"torch.histogramdd: input tensor should have at least 2 dimensions, but got {x.ndim}")
    if x.dtype not in (np.float32, np.float64):
        raise not_implemented("histogramdd", input)
    n = x.shape[-1]
    bins = [bins] * n if isinstance(bins, int) else list(bins)
    if len(bins) != n:
        raise RuntimeError(
            f"torch.histogramdd: expected {n} sequences of bin edges for a {n}-dimensional histogram but got {len(bins)}"
        )
    weight = _check_weight("torch.histogramdd", weight, x.shape[:-1], input)
    points = x.reshape(-1, n)
    edges = _edges("torch.histogramdd", points, bins, range)
    hist = _counts(points, edges, weight, density)
    return HISTOGRAMDD(Tensor._from(hist), tuple(Tensor._from(e) for e in edges))
