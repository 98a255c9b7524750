"""Direct convolution in one and two dimensions, and its gradients.

A block of the padded input is copied to a buffer in the second-level cache, where the pixels of a strided convolution
are sorted by their remainders (phases), so that each place of the kernel sees one contiguous picture. The results of a
block are then sums of terms, weight times shifted picture: one offset for each channel and place of the kernel, and no
copy of each window (im2col). Results are computed for whole rows of the buffer; those that belong to no window are left
out when results are written.

The gradient of the input is such a sum too, with one set of terms for each phase. The gradient of the weight is the dot
products of the output's gradient with the shifted pictures.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from . import threads, winograd
from .conv_loops import correlation_kernel, weight_kernel
from .tiles import lanes

BUFFER = 384 << 10  # bytes of input in a block: together with weights and results it fits into 1 MB
PLACES = 1024  # results in one row of a block: rows of several terms fit into the first-level cache
PARTS = 8  # parts of the batch whose weight gradients are added last: fixed, so that sums don't depend on threads
PART_BYTES = 32 << 20  # of all parts together

# (rows, vectors, relative speed): 24 sums in registers, or as many as few rows allow.
PRODUCT_TILES = ((8, 3, 1.0), (6, 4, 1.0), (4, 6, 1.0), (2, 8, 0.9), (1, 8, 0.6))
# (rows, terms, relative speed)
DOT_TILES = ((4, 6, 1.0), (6, 4, 1.0), (3, 8, 1.0), (2, 9, 0.8), (1, 9, 0.45))


def forward(x, weight, bias, stride, padding, dilation, groups, sizes):
    """(N, C, *S), (O, C/groups, *K), (O) -> (N, O, *sizes)."""
    if winograd.takes(x.shape[1], weight.shape[0], weight.shape[2:], stride, dilation, groups, sizes):
        y = winograd.forward(x, weight, bias, padding, sizes)
        if y is not None:
            return y
    x, weight, n = _as_pictures(x), _as_pictures(weight), x.ndim
    plan = _forward_plan(
        x.shape, weight.shape, *_pairs(n, stride, padding, dilation, sizes), groups, x.dtype, threads.get_threads()
    )
    y = plan.run(x, weight, bias)
    return y if n == 4 else y[:, :, 0]


def input_gradient(g, weight, spatial, stride, padding, dilation, groups):
    """(N, O, *S'), (O, C/groups, *K) -> (N, C, *spatial)."""
    if winograd.takes(g.shape[1], weight.shape[1], weight.shape[2:], stride, dilation, groups, spatial):
        x = winograd.input_gradient(g, weight, spatial, padding)
        if x is not None:
            return x
    g, weight, n = _as_pictures(g), _as_pictures(weight), g.ndim
    plan = _input_plan(
        g.shape, weight.shape, *_pairs(n, stride, padding, dilation, spatial), groups, g.dtype, threads.get_threads()
    )
    x = plan.run(g, weight, None)
    return x if n == 4 else x[:, :, 0]


def weight_gradient(g, x, sizes, stride, padding, dilation, groups):
    """(N, O, *S'), (N, C, *S) -> (O, C/groups, *sizes); None if it isn't finite: NaN and infinities may come from outside
    of the windows, where they meet zeros."""
    if winograd.takes(x.shape[1], g.shape[1], sizes, stride, dilation, groups, g.shape[2:]):
        return winograd.weight_gradient(g, x, padding)
    shape = (g.shape[1], x.shape[1] // groups, *sizes)
    g, x, n = _as_pictures(g), _as_pictures(x), g.ndim
    plan = _weight_plan(g.shape, x.shape, *_pairs(n, stride, padding, dilation, sizes), groups, x.dtype)
    total = plan.run(g, x)
    return total.reshape(shape) if np.isfinite(total).all() else None


def _as_pictures(array):
    """(A, B, L) -> (A, B, 1, L); contiguous."""
    return np.ascontiguousarray(array if array.ndim == 4 else array[:, :, None])


def _pairs(n, stride, padding, dilation, sizes):
    return (stride, padding, dilation, sizes) if n == 4 else ((1, *stride), (0, *padding), (1, *dilation), (1, *sizes))


# Plans: what depends on shapes only


class _Axis(NamedTuple):
    """One of the two dimensions: result i of the sum's tap k is the product with pixel (i + shift) * step + phase + start."""

    taps: tuple  # (phase, shift) for each place of the kernel
    results: int
    step: int
    start: int

    def pictures(self, expanded):
        """(the pictures' first pixels, (picture, offset) for each tap, how much longer than the results pictures are).

        There is a picture for each phase; expanded, for each tap: more to copy, but nothing is computed in vain."""
        kinds = sorted(set(self.taps)) if expanded else sorted({(phase, 0) for phase, _shift in self.taps})
        first = [self.start + phase + shift * self.step for phase, shift in kinds]
        if expanded:
            return first, [(kinds.index(tap), 0) for tap in self.taps], 0
        return (
            first,
            [(kinds.index((phase, 0)), shift) for phase, shift in self.taps],
            max(shift for _phase, shift in self.taps),
        )


def _forward_axes(kernel_sizes, stride, padding, dilation, sizes):
    return [
        _Axis(tuple((k * d % s, k * d // s) for k in range(size)), results, s, -p)
        for size, s, p, d, results in zip(kernel_sizes, stride, padding, dilation, sizes)
    ]


class _Layout:
    """How a block of pictures lies in the buffer: (channels, pictures, images, rows, columns)."""

    def __init__(self, axes, expanded, images, rows):
        row_axis, column_axis = axes
        tops, self.row_taps, halo_rows = row_axis.pictures(expanded > 1)
        lefts, self.column_taps, halo_columns = column_axis.pictures(expanded > 0)
        self.pictures = np.array([(top, left) for top in tops for left in lefts], np.int64)
        self.lefts = len(lefts)
        self.images, self.result_rows, self.result_columns = images, rows, column_axis.results
        self.rows, self.columns = rows + halo_rows, column_axis.results + halo_columns
        self.plane = images * self.rows * self.columns
        self.places = (self.images * self.rows - halo_rows - 1) * self.columns + self.result_columns

    def offsets(self, channels, kernel_rows, kernel_columns):
        """Where the pictures of the terms (channel, row and column of the kernel) begin in the buffer."""
        offsets = []
        for c in range(channels):
            for r in kernel_rows:
                top, down = self.row_taps[r]
                for s in kernel_columns:
                    left, right = self.column_taps[s]
                    picture = c * len(self.pictures) + top * self.lefts + left
                    offsets.append(picture * self.plane + down * self.columns + right)
        return offsets

    def cost(self, channels, dtype):
        """Of copying the pictures, in multiply-adds of vectors."""
        return channels * len(self.pictures) * self.images * self.rows * (10 + 6 * -(-self.columns // lanes(dtype)))


def _best_layout(axes, n, channels, dtype, wanted, cost):
    """The layout with the least cost per result that fits into the buffer and makes about `wanted` blocks or more."""
    best, results = None, axes[0].results
    for expanded in range(3):
        one = _Layout(axes, expanded, 1, 1)
        fitting = min(BUFFER // dtype.itemsize // (channels * len(one.pictures)), PLACES) // one.columns - one.rows + 1
        whole = _Layout(axes, expanded, 1, results)
        at_once = fitting // whole.rows
        if at_once and n >= wanted:
            choices = [(images, results) for images in range(1, min(at_once, n // wanted, 32) + 1)]
        else:
            blocks = -(-wanted // n)
            choices = [(1, max(1, min(-(-results // blocks), fitting)))]
        for images, rows in choices:
            layout = _Layout(axes, expanded, images, rows)
            price = (layout.cost(channels, dtype) + cost(layout)) / (images * rows)
            if best is None or price < best[0]:
                best = price, layout
    return best[1]  # pyright: ignore[reportOptionalSubscript]


def _product_cost(tile, out_channels, terms, places, dtype):
    """Of sums by this tile, in multiply-adds of vectors."""
    rows, vectors, speed = tile
    tiles, rest = divmod(-(-places // lanes(dtype)), vectors)
    return -(-out_channels // rows) * rows * terms * (tiles * vectors / speed + rest / min(speed, 0.7))


class _Correlation:
    """Sums of weights times shifted pictures.

    phases: for each phase of the output (rows of the kernel, columns of the kernel, shift of rows, shift of columns); its
    result r is the output's row r * out_step + shift. distances: in the weight, between groups, channels of the output,
    channels of the input, rows and columns of the kernel.
    """

    def __init__(self, channels, out_shape, groups, axes, out_steps, phases, distances, dtype, workers):
        n, out_channels = out_shape[0], out_shape[1] // groups
        terms = channels * sum(len(rows) * len(columns) for rows, columns, *_shift in phases)

        def cost(layout, tile=None):
            tiles = PRODUCT_TILES if tile is None else [tile]
            return min(_product_cost(each, out_channels, terms, layout.places, dtype) for each in tiles)

        layout = _best_layout(axes, n, channels, dtype, 4 * workers if workers > 1 else 1, cost)
        rows, vectors, _speed = min(PRODUCT_TILES, key=lambda tile: cost(layout, tile))
        offsets, table, term_places = [], [], []
        for kernel_rows, kernel_columns, *shift in phases:
            first = len(offsets)
            offsets += layout.offsets(channels, kernel_rows, kernel_columns)
            term_places += [
                c * distances[2] + r * distances[3] + s * distances[4]
                for c in range(channels) for r in kernel_rows for s in kernel_columns
            ]  # fmt: skip
            table.append((first, len(offsets), *shift))
        self.out_shape, self.dtype = out_shape, dtype
        self.tables = layout.pictures, np.array([*term_places, 0]), np.array([*offsets, 0]), np.array(table)
        self.geometry = (
            distances[1], distances[0], groups, layout.images, layout.result_rows, layout.rows, layout.columns, axes[0].results,
            axes[1].results, axes[0].step, axes[1].step, *out_steps
        )  # fmt: skip
        self.chunks = -(-n // layout.images) * -(-axes[0].results // layout.result_rows)
        self.kernel = correlation_kernel(rows, vectors, dtype)

    def run(self, x, weight, bias):
        """x, weight, bias (O) or None -> the output."""
        bias = np.zeros(self.out_shape[1], self.dtype) if bias is None else np.ascontiguousarray(bias)
        y = np.empty(self.out_shape, self.dtype)
        threads.run(self.kernel, self.chunks, x, weight.reshape(-1), bias, *self.tables, *self.geometry, y)
        return y


@lru_cache(maxsize=256)
def _forward_plan(x_shape, w_shape, stride, padding, dilation, sizes, groups, dtype, workers):
    axes = _forward_axes(w_shape[2:], stride, padding, dilation, sizes)
    phases = [(range(w_shape[2]), range(w_shape[3]), 0, 0)]
    size = w_shape[2] * w_shape[3]
    distances = (w_shape[0] // groups * w_shape[1] * size, w_shape[1] * size, size, w_shape[3], 1)
    out_shape = (x_shape[0], w_shape[0], *sizes)
    return _Correlation(w_shape[1], out_shape, groups, axes, (1, 1), phases, distances, dtype, workers)


@lru_cache(maxsize=256)
def _input_plan(g_shape, w_shape, stride, padding, dilation, spatial, groups, dtype, workers):
    # Output o and place k of the kernel meet at the padded input's pixel q = o stride + k dilation. So in the phase q % stride
    # of the input are the terms with the same k dilation % stride, and o = q // stride - k dilation // stride.
    axes, choices = [], []
    for size, s, p, d, results in zip(w_shape[2:], stride, padding, dilation, spatial):
        first = p // s
        axes.append(_Axis(tuple((0, (size - 1) * d // s - k * d // s) for k in range(size)), (results - 1 + p) // s - first + 1, 1,
                          first - (size - 1) * d // s))  # fmt: skip
        choices.append([([k for k in range(size) if k * d % s == phase], first * s + phase - p) for phase in range(s)])
    phases = [(rows, columns, down, right) for rows, down in choices[0] for columns, right in choices[1]]
    size = w_shape[2] * w_shape[3]
    distances = (w_shape[0] // groups * w_shape[1] * size, size, w_shape[1] * size, w_shape[3], 1)
    out_shape = (g_shape[0], w_shape[1] * groups, *spatial)
    return _Correlation(w_shape[0] // groups, out_shape, groups, axes, stride, phases, distances, dtype, workers)


class _WeightGradient:
    """Dot products of the output's gradient with the shifted pictures of the input, each part of the batch by itself."""

    def __init__(self, n, channels, out_channels, groups, axes, kernel_sizes, dtype):
        terms = channels * kernel_sizes[0] * kernel_sizes[1]

        def cost(layout, tile=None):
            tiles, vectors = DOT_TILES if tile is None else [tile], -(-layout.places // lanes(dtype)) + 5
            return min(-(-out_channels // r) * r * -(-terms // t) * t * vectors / speed for r, t, speed in tiles)

        layout = _best_layout(axes, n, channels, dtype, min(2, n), cost)
        self.rows, self.terms, _speed = min(DOT_TILES, key=lambda tile: cost(layout, tile))
        blocks, padded_terms = -(-out_channels // self.rows), -(-terms // self.terms) * self.terms
        part_bytes = groups * blocks * self.rows * padded_terms * dtype.itemsize
        parts = max(1, min(PARTS, -(-n // layout.images), PART_BYTES // part_bytes))
        # A few channels of the output at a time where parts and groups alone don't keep the threads busy
        split = -(-blocks // min(blocks, -(-PARTS // (parts * groups))))
        self.shape, self.used = (parts, groups, blocks * self.rows, padded_terms), (out_channels, terms)
        offsets = layout.offsets(channels, range(kernel_sizes[0]), range(kernel_sizes[1]))
        self.tables = layout.pictures, np.array(offsets + [0] * (padded_terms - terms))
        self.geometry = (
            channels, out_channels, split, layout.images, layout.result_rows, layout.rows, layout.columns, axes[0].results,
            axes[1].results, axes[0].step, axes[1].step
        )  # fmt: skip
        self.chunks = parts * groups * -(-blocks // split)
        self.kernel = weight_kernel(self.rows, self.terms, dtype)

    def run(self, g, x):
        totals = np.zeros(self.shape, x.dtype)
        threads.run(self.kernel, self.chunks, g, x, *self.tables, *self.geometry, totals)
        total = np.add.reduce(totals, 0) if len(totals) > 1 else totals[0]
        return total[:, : self.used[0], : self.used[1]]


@lru_cache(maxsize=256)
def _weight_plan(g_shape, x_shape, stride, padding, dilation, sizes, groups, dtype):
    axes = _forward_axes(sizes, stride, padding, dilation, g_shape[2:])
    return _WeightGradient(x_shape[0], x_shape[1] // groups, g_shape[1] // groups, groups, axes, sizes, dtype)
