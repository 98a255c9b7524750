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
from types import FunctionType
from typing import NamedTuple

import numpy as np

from . import threads
from .compiling import inlined, kernel, take
from .tiles import dot_tile, lanes, product_tile

BUFFER = 384 << 10  # bytes of input in a block: together with weights and results it fits into 1 MB
PLACES = 2048  # results in one row of a block
PARTS = 8  # parts of the batch whose weight gradients are added last: fixed, so that sums don't depend on threads
PART_BYTES = 32 << 20  # of all parts together

# (rows, vectors, relative speed): 24 sums in registers, or as many as few rows allow.
PRODUCT_TILES = ((8, 3, 1.0), (6, 4, 1.0), (4, 6, 1.0), (2, 8, 0.9), (1, 8, 0.6))
# (rows, terms, relative speed)
DOT_TILES = ((4, 6, 1.0), (6, 4, 1.0), (3, 8, 1.0), (2, 9, 0.8), (1, 9, 0.45))


def forward(x, weight, bias, stride, padding, dilation, groups, sizes):
    """(N, C, *S), (O, C/groups, *K), (O) -> (N, O, *sizes)."""
    x, weight, n = _as_pictures(x), _as_pictures(weight), x.ndim
    plan = _forward_plan(
        x.shape, weight.shape, *_pairs(n, stride, padding, dilation, sizes), groups, x.dtype, threads.get_threads()
    )
    y = plan.run(x, weight.reshape(groups, -1, *weight.shape[1:]), bias)
    return y if n == 4 else y[:, :, 0]


def input_gradient(g, weight, spatial, stride, padding, dilation, groups):
    """(N, O, *S'), (O, C/groups, *K) -> (N, C, *spatial)."""
    g, weight, n = _as_pictures(g), _as_pictures(weight), g.ndim
    plan = _input_plan(
        g.shape, weight.shape, *_pairs(n, stride, padding, dilation, spatial), groups, g.dtype, threads.get_threads()
    )
    x = plan.run(g, weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2), None)
    return x if n == 4 else x[:, :, 0]


def weight_gradient(g, x, sizes, stride, padding, dilation, groups):
    """(N, O, *S'), (N, C, *S) -> (O, C/groups, *sizes); None if it isn't finite: NaN and infinities may come from outside
    of the windows, where they meet zeros."""
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


class _Grid(NamedTuple):
    """How the input lies in the buffer, and which results are computed."""

    rows: int  # of results of one image and phase
    columns: int
    halo_rows: int  # further rows of input that the results need
    halo_columns: int
    top: int  # the input's row in the buffer's first
    left: int
    step_rows: int  # stride: the buffer has step_rows * step_columns phases
    step_columns: int


class _Correlation:
    """Sums of weights times shifted pictures.

    phases: for each phase of the output (rows of the kernel, columns of the kernel, shift of rows, shift of columns); its
    result r is the output's row r * out_step + shift. place: a function (row of the kernel, column, size of a plane, of a
    row) -> offset in the buffer.
    """

    def __init__(self, n, channels, out_shape, groups, grid, out_steps, phases, place, dtype, workers):
        self.out_shape, self.out_channels, self.dtype = out_shape, out_shape[1] // groups, dtype
        planes, columns = grid.step_rows * grid.step_columns, grid.columns + grid.halo_columns
        images, rows = _block(n, channels * planes * columns * dtype.itemsize, grid, 4 * workers)
        plane = images * (rows + grid.halo_rows) * columns
        places = plane - (grid.halo_rows + 1) * columns + grid.columns
        self.rows, vectors = self._tile(places)
        self.blocks = -(-self.out_channels // self.rows)
        offsets, table, self.phases, start = [], [], [], 0
        for kernel_rows, kernel_columns, *shift in phases:
            first = len(offsets)
            offsets += [
                c * planes * plane + place(r, s, plane, columns)
                for c in range(channels) for r in kernel_rows for s in kernel_columns
            ]  # fmt: skip
            table.append((first, len(offsets), start, *shift))
            start += groups * self.blocks * self.rows * (len(offsets) - first)
            self.phases.append((kernel_rows, kernel_columns))
        self.offsets, self.table = np.array([*offsets, 0], np.int64), np.array(table, np.int64)
        self.geometry = (groups, images, rows, *grid, *out_steps)
        self.chunks = -(-n // images) * -(-grid.rows // rows)
        self.kernel = _correlation_kernel(self.rows, vectors, dtype)

    def _tile(self, places):
        """The tile (rows, vectors) that computes least in vain."""

        def cost(tile):
            rows, vectors, speed = tile
            width = vectors * lanes(self.dtype)
            return -(-self.out_channels // rows) * rows * -(-places // width) * width / speed

        return min(PRODUCT_TILES, key=cost)[:2]

    def run(self, x, weight, bias):
        """x, weight (groups, O, C, KH, KW), bias (O) or None -> the output."""
        parts = []
        for rows, columns in self.phases:
            part = weight if len(self.phases) == 1 else weight[:, :, :, rows][..., columns]
            parts.append(self._packed(part.reshape(*weight.shape[:2], -1)))
        panels = parts[0] if len(parts) == 1 else np.concatenate(parts)
        bias = np.zeros(self.out_shape[1], self.dtype) if bias is None else np.ascontiguousarray(bias)
        y = np.empty(self.out_shape, self.dtype)
        threads.run(self.kernel, self.chunks, x, panels, self.offsets, self.table, bias, *self.geometry, y)
        return y

    def _packed(self, weight):
        """(groups, O, terms) -> (groups, blocks of O, terms, rows of a tile), in one dimension."""
        groups, out, terms = weight.shape
        full = weight
        if out != self.blocks * self.rows:
            full = np.zeros((groups, self.blocks * self.rows, terms), weight.dtype)
            full[:, :out] = weight
        return full.reshape(groups, self.blocks, self.rows, terms).swapaxes(2, 3).reshape(-1)


def _block(n, row_bytes, grid, wanted):
    """(images, rows) of a block of results: what fits into the buffer, and few enough that there are `wanted` blocks."""
    full = grid.rows + grid.halo_rows
    columns = grid.columns + grid.halo_columns
    fitting = min(BUFFER // row_bytes, PLACES // columns)
    if n >= wanted and full <= fitting:
        return max(1, min(fitting // full, n // wanted)), grid.rows
    split = -(-wanted // n)
    return 1, max(1, min(-(-grid.rows // split), fitting - grid.halo_rows))


@lru_cache(maxsize=256)
def _forward_plan(x_shape, w_shape, stride, padding, dilation, sizes, groups, dtype, workers):
    grid, place = _grid(w_shape, stride, padding, dilation, sizes)
    phases = [(range(w_shape[2]), range(w_shape[3]), 0, 0)]
    out_shape = (x_shape[0], w_shape[0], *sizes)
    return _Correlation(x_shape[0], w_shape[1], out_shape, groups, grid, (1, 1), phases, place, dtype, workers)


def _grid(w_shape, stride, padding, dilation, sizes):
    """The forward pass's grid, and the offset of each place of the kernel: the pixel q of the padded input is in phase
    q % stride at q // stride."""
    halo = [(k - 1) * d // s for k, d, s in zip(w_shape[2:], dilation, stride)]

    def place(r, s, plane, columns):
        r, s = r * dilation[0], s * dilation[1]
        phase = r % stride[0] * stride[1] + s % stride[1]
        return phase * plane + r // stride[0] * columns + s // stride[1]

    return _Grid(*sizes, *halo, -padding[0], -padding[1], *stride), place


@lru_cache(maxsize=256)
def _input_plan(g_shape, w_shape, stride, padding, dilation, spatial, groups, dtype, workers):
    # Output o and place k of the kernel meet at the padded input's pixel q = o stride + k dilation. So in the phase q % stride
    # of the input are the terms with the same k dilation % stride, and o = q // stride - k dilation // stride.
    halo = [(k - 1) * d // s for k, d, s in zip(w_shape[2:], dilation, stride)]
    first = [p // s for p, s in zip(padding, stride)]
    rows = [(n - 1 + p) // s - f + 1 for n, p, s, f in zip(spatial, padding, stride, first)]
    axes = [
        [([k for k in range(size) if k * d % s == phase], f * s + phase - p) for phase in range(s)]
        for size, d, s, f, p in zip(w_shape[2:], dilation, stride, first, padding)
    ]
    phases = [(r, c, r_shift, c_shift) for r, r_shift in axes[0] for c, c_shift in axes[1]]

    def place(r, s, _plane, columns):
        return (halo[0] - r * dilation[0] // stride[0]) * columns + halo[1] - s * dilation[1] // stride[1]

    grid = _Grid(*rows, *halo, first[0] - halo[0], first[1] - halo[1], 1, 1)
    out_shape = (g_shape[0], w_shape[1] * groups, *spatial)
    return _Correlation(g_shape[0], w_shape[0] // groups, out_shape, groups, grid, stride, phases, place, dtype, workers)


class _WeightGradient:
    """Dot products of the output's gradient with the shifted pictures of the input, each part of the batch by itself."""

    def __init__(self, n, channels, out_channels, w_shape, groups, grid, place, dtype):
        self.dtype, self.channels, self.out_channels, self.size = dtype, channels, out_channels, w_shape[2] * w_shape[3]
        planes, columns = grid.step_rows * grid.step_columns, grid.columns + grid.halo_columns
        images, rows = _block(n, (channels * planes + out_channels) * columns * dtype.itemsize, grid, 1)
        plane = images * (rows + grid.halo_rows) * columns
        terms = channels * self.size
        self.rows, self.terms = min(DOT_TILES, key=lambda t: -(-out_channels // t[0]) * t[0] * -(-terms // t[1]) * t[1] / t[2])[
            :2
        ]
        blocks = -(-out_channels // self.rows)
        padded_terms = -(-terms // self.terms) * self.terms
        weight_bytes = groups * blocks * self.rows * padded_terms * dtype.itemsize
        parts = max(1, min(PARTS, -(-n // images), PART_BYTES // weight_bytes))
        # A few channels of the output at a time where parts and groups alone don't keep the threads busy
        split = min(blocks, -(-PARTS // (parts * groups)))
        self.shape = (parts, groups, blocks * self.rows, padded_terms)
        offsets = [c * planes * plane + place(r, s, plane, columns)
                   for c in range(channels) for r in range(w_shape[2]) for s in range(w_shape[3])]  # fmt: skip
        self.offsets = np.array(offsets + [0] * (padded_terms - terms), np.int64)
        self.geometry = (channels, out_channels, images, rows, -(-blocks // split), *grid)
        self.chunks = parts * groups * split
        self.kernel = _weight_kernel(self.rows, self.terms, dtype)

    def run(self, g, x):
        totals = np.zeros(self.shape, self.dtype)
        threads.run(self.kernel, self.chunks, g, x, self.offsets, *self.geometry, totals)
        total = np.add.reduce(totals, 0) if len(totals) > 1 else totals[0]
        return total[:, : self.out_channels, : self.channels * self.size]


@lru_cache(maxsize=256)
def _weight_plan(g_shape, x_shape, stride, padding, dilation, sizes, groups, dtype):
    channels, out_channels = x_shape[1] // groups, g_shape[1] // groups
    w_shape = (out_channels, channels, *sizes)
    grid, place = _grid(w_shape, stride, padding, dilation, g_shape[2:])
    return _WeightGradient(x_shape[0], channels, out_channels, w_shape, groups, grid, place, dtype)


# Loops. ROWS, WIDTH, TERMS, LANES and tile are bound for each tile (_specialized).


def _specialized(function, name, **names):
    """A kernel from a function's text with the given tiles."""
    return kernel(FunctionType(function.__code__, {**globals(), **names}, name), name)


@lru_cache(maxsize=None)
def _correlation_kernel(rows, vectors, dtype):
    tile = product_tile(rows, vectors, dtype)
    return _specialized(_correlate, f"correlate_{rows}x{vectors}_{dtype}", ROWS=rows, WIDTH=vectors * lanes(dtype), tile=tile)


@lru_cache(maxsize=None)
def _weight_kernel(rows, terms, dtype):
    tile = dot_tile(rows, terms, dtype)
    return _specialized(
        _correlate_weight, f"correlate_weight_{rows}x{terms}_{dtype}", ROWS=rows, TERMS=terms, LANES=lanes(dtype), tile=tile
    )


@inlined
def _copy_row(x, start, size, first, step, buffer, place, columns):
    """buffer[place + j] = x[start + first + j step] for j in range(columns), and 0 where that isn't in range(size)."""
    low = min(max(-(first // step), 0), columns)
    high = min(max((size - first + step - 1) // step, low), columns)
    buffer[place : place + low] = 0
    to = buffer[place + low : place + high]
    if step == 1:
        source = x[start + first + low : start + first + high]
        for j in range(to.size):
            to[j] = source[j]
    else:
        source = x[start + first + low * step : start + size]
        for j in range(to.size):
            to[j] = source[j * step]
    buffer[place + high : place + columns] = 0


@inlined
def _copy_pictures(x, shape, images, channels, rows, columns, top, left, step_rows, step_columns, buffer, buffer_images):
    """The pictures of some images and channels of x, an array of this shape, in phases: (channels, phases, images, rows, columns).

    images, channels: (first, number). top, left: the place in x of the buffer's first pixel; there are zeros outside of x."""
    place = 0
    _n, all_channels, height, width = shape
    for c in range(channels[0], channels[0] + channels[1]):
        for phase in range(step_rows * step_columns):
            for i in range(images[0], images[0] + images[1]):
                for r in range(rows):
                    row = r * step_rows + phase // step_columns + top
                    if 0 <= row < height:
                        start = ((i * all_channels + c) * height + row) * width
                        _copy_row(x, start, width, left + phase % step_columns, step_columns, buffer, place, columns)
                    else:
                        buffer[place : place + columns] = 0
                    place += columns
            place += (buffer_images - images[1]) * rows * columns


def _correlate(
    x, panels, offsets, phases, bias, groups, block_images, block_rows, out_rows, out_columns, halo_rows, halo_columns, top, left,
    step_rows, step_columns, out_step_rows, out_step_columns, y, queue
):  # fmt: skip
    channels, out_channels = x.shape[1] // groups, y.shape[1] // groups
    height, width = y.shape[2:]
    row_blocks = -(-out_rows // block_rows)
    rows, columns = block_rows + halo_rows, out_columns + halo_columns
    plane = block_images * rows * columns
    buffer = np.zeros(channels * step_rows * step_columns * plane + WIDTH, x.dtype)  # a tile may reach beyond the last plane
    length = -(-plane // WIDTH) * WIDTH
    result = np.empty(ROWS * length, x.dtype)
    flat_x, flat_y = x.reshape(-1), y.reshape(-1)
    while True:
        block = take(queue)
        first_image, first_row = block // row_blocks * block_images, block % row_blocks * block_rows
        if first_image >= x.shape[0]:
            return
        images, used_rows = min(block_images, x.shape[0] - first_image), min(block_rows, out_rows - first_row)
        places = ((images - 1) * rows + used_rows - 1) * columns + out_columns
        for group in range(groups):
            _copy_pictures(
                flat_x, x.shape, (first_image, images), (group * channels, channels), rows, columns,
                first_row * step_rows + top, left, step_rows, step_columns, buffer, block_images
            )  # fmt: skip
            for phase in range(phases.shape[0]):
                first, last, start, shift_rows, shift_columns = phases[phase]
                for o in range(0, out_channels, ROWS):
                    panel = start + (group * -(-out_channels // ROWS) + o // ROWS) * ROWS * (last - first)
                    for p in range(0, places, WIDTH):
                        tile(panels, panel, buffer, p, offsets, first, last, result, p, length)
                    low = min(max(-(shift_columns // out_step_columns), 0), out_columns)
                    high = min(max((width - shift_columns + out_step_columns - 1) // out_step_columns, low), out_columns)
                    for i in range(images * used_rows):
                        row = (first_row + i % used_rows) * out_step_rows + shift_rows
                        if not 0 <= row < height:
                            continue
                        place = (i // used_rows * rows + i % used_rows) * columns
                        for m in range(min(ROWS, out_channels - o)):
                            channel = group * out_channels + o + m
                            at = (
                                ((first_image + i // used_rows) * y.shape[1] + channel) * height + row
                            ) * width + shift_columns
                            source = result[m * length + place + low : m * length + place + high]
                            added = bias[channel]
                            if out_step_columns == 1:
                                to = flat_y[at + low : at + high]
                                for j in range(to.size):
                                    to[j] = source[j] + added
                            else:
                                to = flat_y[at + low * out_step_columns : at - shift_columns + width]
                                for j in range(source.size):
                                    to[j * out_step_columns] = source[j] + added


def _correlate_weight(
    g, x, offsets, channels, out_channels, block_images, block_rows, split_blocks, out_rows, out_columns, halo_rows, halo_columns,
    top, left, step_rows, step_columns, totals, queue
):  # fmt: skip
    parts, groups, _padded_channels, terms = totals.shape
    split_channels = split_blocks * ROWS
    splits = -(-out_channels // split_channels)
    rows, columns = block_rows + halo_rows, out_columns + halo_columns
    plane = block_images * rows * columns
    length = plane + LANES
    buffer = np.zeros(channels * step_rows * step_columns * plane + LANES, x.dtype)
    gradient = np.zeros(split_channels * length, x.dtype)
    flat_x, flat_g, flat_totals = x.reshape(-1), g.reshape(-1), totals.reshape(-1)
    while True:
        chunk = take(queue)
        part, group, first_channel = chunk // (splits * groups), chunk // splits % groups, chunk % splits * split_channels
        if part >= parts:
            return
        out = min(split_channels, out_channels - first_channel)
        total = ((part * groups + group) * totals.shape[2] + first_channel) * terms
        end = x.shape[0] * (part + 1) // parts
        for first_image in range(x.shape[0] * part // parts, end, block_images):
            images = min(block_images, end - first_image)
            for first_row in range(0, out_rows, block_rows):
                used_rows = min(block_rows, out_rows - first_row)
                places = ((images - 1) * rows + used_rows - 1) * columns + out_columns
                _copy_pictures(
                    flat_x, x.shape, (first_image, images), (group * channels, channels), rows, columns,
                    first_row * step_rows + top, left, step_rows, step_columns, buffer, block_images
                )  # fmt: skip
                for m in range(out):
                    # Zeros stand where the buffer's places belong to no window
                    channel, place = group * out_channels + first_channel + m, m * length
                    for i in range(first_image, first_image + images):
                        for r in range(rows):
                            row = first_row + r if r < used_rows else out_rows
                            if row < out_rows:
                                start = ((i * g.shape[1] + channel) * out_rows + row) * out_columns
                                _copy_row(flat_g, start, out_columns, 0, 1, gradient, place, columns)
                            else:
                                gradient[place : place + columns] = 0
                            place += columns
                    gradient[place : (m + 1) * length] = 0
                for t in range(0, terms, TERMS):
                    for m in range(0, out, ROWS):
                        tile(
                            gradient,
                            m * length,
                            length,
                            buffer,
                            0,
                            offsets,
                            t,
                            places,
                            flat_totals,
                            total + m * terms + t,
                            terms,
                        )
