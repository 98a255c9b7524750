"""The compiled loops of conv.py: a block's pictures are copied to a buffer, and tiles of results computed from it."""

from __future__ import annotations

from functools import cache

import numpy as np

from .compiling import inlined, specialized, take
from .tiles import dot_tile, lanes, place_row, product_tile, store_row

# What the loops are compiled for: a tile's functions and its size, in results and, for weights, in terms
ROWS = WIDTH = LANES = TERMS = 0
tile = narrow = lambda *_arguments: None


@cache
def correlation_kernel(rows, vectors, dtype):
    """_correlate with tiles of so many rows and vectors."""
    names = {"ROWS": rows, "WIDTH": vectors * lanes(dtype), "LANES": lanes(dtype)}
    tiles = {"tile": product_tile(rows, vectors), "narrow": product_tile(rows, 1)}
    return specialized(_correlate, f"correlate_{rows}x{vectors}_{dtype}", **names, **tiles)


@cache
def weight_kernel(rows, terms, dtype):
    """_correlate_weight with tiles of so many rows and terms."""
    names = {"ROWS": rows, "TERMS": terms, "LANES": lanes(dtype), "tile": dot_tile(rows, terms)}
    return specialized(_correlate_weight, f"correlate_weight_{rows}x{terms}_{dtype}", **names)


@inlined
def _copy_row(x, start, low, high, step, buffer, place, columns):
    """buffer[place + j] = x[start + j step] where low <= j < high and 0 elsewhere, for j up to columns or beyond."""
    if step == 1:
        place_row(x, start, low, high, buffer, place, columns)
    else:
        for j in range(low):
            buffer[place + j] = 0
        to = buffer[place + low : place + max(low, high)]
        source = x[start + low * step : start + low * step + to.size * step]
        for j in range(to.size):
            to[j] = source[j * step]
        for j in range(max(low, high), columns):
            buffer[place + j] = 0


@inlined
def _copy_pictures(x, shape, first_image, images, first_channel, channels, pictures, first_row, step_rows, step_columns, buffer,
                   buffer_images, rows, columns):  # fmt: skip
    """Pictures of some images and channels of x, an array of this shape, with zeros outside of it.

    -> buffer (channels, pictures, images, rows, columns); pictures holds each one's first row and column in x."""
    place = 0
    height, width = shape[2:]
    for c in range(first_channel, first_channel + channels):
        for picture in range(pictures.shape[0]):
            top, left = pictures[picture]
            low = min(max(-(left // step_columns), 0), columns)
            high = min(max((width - left + step_columns - 1) // step_columns, low), columns)
            for i in range(first_image, first_image + images):
                for r in range(rows):
                    row = (first_row + r) * step_rows + top
                    inside = high if 0 <= row < height else 0
                    _copy_row(
                        x, ((i * shape[1] + c) * height + row) * width + left, low, inside, step_columns, buffer, place, columns
                    )
                    place += columns
            place += (buffer_images - images) * rows * columns


def _correlate(
    x, weight, bias, pictures, term_places, offsets, phases, row_distance, group_distance, groups, block_images, block_rows, rows,
    columns, out_rows, out_columns, step_rows, step_columns, out_step_rows, out_step_columns, y, queue
):  # fmt: skip
    channels, out_channels = x.shape[1] // groups, y.shape[1] // groups
    height, width = y.shape[2:]
    row_blocks = -(-out_rows // block_rows)
    plane = block_images * rows * columns
    buffer = np.zeros(channels * pictures.shape[0] * plane + columns + WIDTH, x.dtype)  # tiles and vectors reach beyond
    length = plane + WIDTH
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
                flat_x, x.shape, first_image, images, group * channels, channels, pictures, first_row, step_rows, step_columns,
                buffer, block_images, rows, columns
            )  # fmt: skip
            for phase in range(phases.shape[0]):
                first, last, shift_rows, shift_columns = phases[phase]
                low = min(max(-(shift_columns // out_step_columns), 0), out_columns)
                high = min(max((width - shift_columns + out_step_columns - 1) // out_step_columns, low), out_columns)
                for o in range(0, out_channels, ROWS):
                    existing, start = min(ROWS, out_channels - o), group * group_distance + o * row_distance
                    p = 0
                    while p < places:
                        if p + WIDTH - LANES < places:
                            tile(
                                weight, start, row_distance, existing, term_places, buffer, p, offsets, first, last, result, p, length
                            )  # fmt: skip
                            p += WIDTH
                        else:
                            narrow(
                                weight, start, row_distance, existing, term_places, buffer, p, offsets, first, last, result, p, length
                            )  # fmt: skip
                            p += LANES
                    for m in range(existing):
                        channel = group * out_channels + o + m
                        for i in range(images):
                            picture = ((first_image + i) * y.shape[1] + channel) * height
                            for r in range(used_rows):
                                row = (first_row + r) * out_step_rows + shift_rows
                                if 0 <= row < height:
                                    source = m * length + (i * rows + r) * columns + low
                                    to = (picture + row) * width + low * out_step_columns + shift_columns
                                    _store_row(result, source, high - low, bias[channel], flat_y, to, out_step_columns)


@inlined
def _store_row(result, source, count, added, y, to, step):
    """y[to + j step] = result[source + j] + added for j in range(count)."""
    if step == 1:
        store_row(result, source, count, added, y, to)
    else:
        values, out = result[source : source + count], y[to : to + count * step]
        for j in range(values.size):
            out[j * step] = values[j] + added


def _correlate_weight(
    g, x, pictures, offsets, channels, out_channels, split, block_images, block_rows, rows, columns, out_rows, out_columns,
    step_rows, step_columns, totals, queue
):  # fmt: skip
    parts, groups, _padded_channels, terms = totals.shape
    split_channels = split * ROWS
    splits = -(-out_channels // split_channels)
    plane = block_images * rows * columns
    length = plane + LANES
    buffer = np.zeros(channels * pictures.shape[0] * plane + columns + 2 * LANES, x.dtype)
    gradient = np.zeros(split_channels * length + columns + LANES, x.dtype)
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
                    flat_x, x.shape, first_image, images, group * channels, channels, pictures, first_row, step_rows, step_columns,
                    buffer, block_images, rows, columns
                )  # fmt: skip
                for m in range(out):  # zeros stand where the buffer's places belong to no window
                    channel, place = group * out_channels + first_channel + m, m * length
                    for i in range(first_image, first_image + images):
                        start = ((i * g.shape[1] + channel) * out_rows + first_row) * out_columns
                        for r in range(rows):
                            size = out_columns if r < used_rows else 0
                            place_row(flat_g, start + r * out_columns, 0, size, gradient, place, columns)
                            place += columns
                    gradient[place : (m + 1) * length] = 0
                for t in range(0, terms, TERMS):
                    for m in range(0, out, ROWS):
                        tile(
                            gradient, m * length, length, buffer, 0, offsets, t, places, flat_totals, total + m * terms + t, terms
                        )  # fmt: skip
