"""The compiled loops of winograd.py: tiles are transformed, multiplied as 16 matrices, and transformed back."""

from __future__ import annotations

from functools import cache

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from .compiling import inlined, intrinsic, kernel, specialized, take
from .tiles import INDEX, Emitter, dot_tile, lanes, product_tile

ROWS, VECTORS = 8, 3  # of the tiles in which matrix products are computed
DOT = 4, 6  # rows and terms of those for the gradient of the weight

# Transforms of a row of tiles, a vector of tiles at a time. Elements of a tile: 4 x 4, rows first.


def _input_transform(builder, a, b, c, d):
    """B' of four vectors."""
    return builder.fsub(a, c), builder.fadd(b, c), builder.fsub(c, b), builder.fsub(b, d)


def _output_transform(builder, a, b, c, d):
    """A' of four vectors."""
    return builder.fadd(builder.fadd(a, b), c), builder.fsub(builder.fsub(b, c), d)


def _gradient_transform(builder, a, b):
    """A of two vectors."""
    return a, builder.fadd(a, b), builder.fsub(a, b), builder.fneg(b)


def _pixels(e, x, starts, inside, j, low, high, vectors):
    """Pixels 2 t, 2 t + 1, ... of rows of x for the tiles t = j, j + 1, ... of a vector: for each row, 2 `vectors` vectors.

    Zeros stand where a pixel isn't in range(low, high), and in the rows that aren't `inside`."""
    builder, nothing = e.builder, ir.Constant(ir.VectorType(ir.IntType(1), e.lanes), [0] * e.lanes)
    places = [e.plus(e.times(j, 2), 2 * shift + half * e.lanes) for shift in range(vectors) for half in range(2)]
    masks = [e.between(place, low, high) for place in places]
    for start, valid in zip(starts, inside):
        parts = []
        for place, mask in zip(places, masks):
            address = e.vector_address(x, e.plus(start, place))
            parts.append(e.masked("load", e.vector, address, INDEX(e.bytes), builder.select(valid, mask, nothing), e.zero))
        yield [
            e.shuffle(*parts[2 * shift : 2 * shift + 2], range(i, 2 * e.lanes, 2)) for shift in range(vectors) for i in range(2)
        ]


def _tiles_of_pixels(pixel_rows, vectors, transform):
    """out[element, t] = the transform, along both dimensions, of tile t's pixels in `pixel_rows` rows of x.

    Called with (x, place of the first row's first pixel, distance between rows, the first and the last row, low, high, out,
    place, distance between elements, number of tiles). Rows and pixels before the first and from the last on are zero."""

    @intrinsic
    def tiles(_typing, x, start, distance, first, last, low, high, out, out_start, out_distance, count):
        def code(context, builder, signature, arguments):
            e = Emitter(context, builder, signature, arguments, 0)
            x, out = e.address(0), e.address(7)
            starts = [e.plus(e.integer(1), e.times(e.integer(2), i)) for i in range(pixel_rows)]
            inside = [
                builder.and_(
                    builder.icmp_signed(">=", e.constant(i), e.integer(3)),
                    builder.icmp_signed("<", e.constant(i), e.integer(4)),
                )
                for i in range(pixel_rows)
            ]
            with cgutils.for_range(builder, e.vectors(e.integer(10))) as loop:
                j = e.times(loop.index, e.lanes)
                pixels = _pixels(e, x, starts, inside, j, e.integer(5), e.integer(6), vectors)
                rows = [transform(builder, *row) for row in pixels]
                for column, elements in enumerate(zip(*rows)):
                    for row, value in enumerate(transform(builder, *elements)):
                        place = e.plus(e.plus(e.integer(8), e.times(e.integer(9), 4 * row + column)), j)
                        e.store_vector(value, out, place)
            return context.get_dummy_value()

        return types.void(x, start, distance, first, last, low, high, out, out_start, out_distance, count), code

    return tiles


_tiles_of_input = _tiles_of_pixels(4, 2, _input_transform)
_tiles_of_gradient = _tiles_of_pixels(2, 1, _gradient_transform)


@intrinsic
def _pixels_of_tiles(_typing, x, start, distance, count, added, out, out_start, width, rows):
    """The 2 x 2 results of tiles from x[element, t], plus a number, in two rows of out (in one if rows is 1).

    Called with (x, place, distance between elements, number of tiles, the number, out, place, width of a row, rows)."""

    def code(context, builder, signature, arguments):
        e = Emitter(context, builder, signature, arguments, 0)
        x, out, added = e.address(0), e.address(5), e.spread(arguments[4])
        order = [k // 2 + k % 2 * e.lanes for k in range(2 * e.lanes)]
        second = builder.icmp_signed(">", e.integer(8), e.constant(1))
        with cgutils.for_range(builder, e.vectors(e.integer(3))) as loop:
            j = e.times(loop.index, e.lanes)
            elements = [e.load_vector(x, e.plus(e.plus(e.integer(1), e.times(e.integer(2), i)), j)) for i in range(16)]
            columns = [_output_transform(builder, *elements[column::4]) for column in range(4)]
            rows = [[builder.fadd(v, added) for v in _output_transform(builder, *row)] for row in zip(*columns)]
            halves = [e.plus(e.times(j, 2), half * e.lanes) for half in range(2)]
            masks = [e.between(k, e.constant(0), e.integer(7)) for k in halves]
            nothing = ir.Constant(masks[0].type, [0] * e.lanes)
            for i, row in enumerate(rows):
                for half, (k, mask) in enumerate(zip(halves, masks)):
                    value = e.shuffle(row[0], row[1], order[half * e.lanes : (half + 1) * e.lanes])
                    to = e.vector_address(out, e.plus(e.plus(e.integer(6), e.times(e.integer(7), i)), k))
                    where = builder.select(second, mask, nothing) if i else mask
                    e.masked("store", ir.VoidType(), value, to, INDEX(e.bytes), where)
        return context.get_dummy_value()

    return types.void(x, start, distance, count, added, out, out_start, width, rows), code


# Loops


@inlined
def _transform_input(x, shape, first, rows, tile_rows, tile_columns, pad_rows, pad_columns, out, length):
    """Some rows of tiles, counted through the batch. x (N, C, H, W) -> out (16, C, length)."""
    _images, channels, height, width = shape
    for c in range(channels):
        for block_row in range(rows):
            image, row = (first + block_row) // tile_rows, (first + block_row) % tile_rows * 2 - pad_rows
            start = ((image * channels + c) * height + row) * width - pad_columns
            to = c * length + block_row * tile_columns
            _tiles_of_input(
                x, start, width, -row, height - row, pad_columns, width + pad_columns, out, to, channels * length, tile_columns
            )  # fmt: skip


@kernel
def transform_weight(weight, matrix, out, queue):
    """(O, C, 3, 3), matrix (16, 9) -> (16, O, C)."""
    taps = np.empty((9, weight.shape[1]), weight.dtype)
    while True:
        o = take(queue)
        if o >= weight.shape[0]:
            return
        for c in range(weight.shape[1]):
            for k in range(9):
                taps[k, c] = weight[o, c, k // 3, k % 3]
        for element in range(16):
            to = out[element, o]
            to[:] = 0
            for k in range(9):
                factor, tap = matrix[element, k], taps[k]
                if factor != 0:
                    for c in range(to.size):
                        to[c] += factor * tap[c]


@kernel
def transform_totals(totals, matrix, out, queue):
    """(parts, 16, O or more, C or more) -> (O, C, 3, 3): G' total G of the sum of the parts."""
    total, taps = np.empty(out.shape[1], totals.dtype), np.empty((9, out.shape[1]), totals.dtype)
    while True:
        o = take(queue)
        if o >= out.shape[0]:
            return
        taps[:] = 0
        for element in range(16):
            total[:] = 0
            for part in range(totals.shape[0]):
                row = totals[part, element, o]
                for c in range(total.size):
                    total[c] += row[c]
            for k in range(9):
                factor, tap = matrix[element, k], taps[k]
                if factor != 0:
                    for c in range(total.size):
                        tap[c] += factor * total[c]
        for c in range(total.size):
            for k in range(9):
                out[o, c, k // 3, k % 3] = taps[k, c]


@cache
def winograd_kernel(dtype):
    """_winograd for a type."""
    names = {"tile": product_tile(ROWS, VECTORS), "narrow": product_tile(ROWS, 1), "LANES": lanes(dtype)}
    return specialized(_winograd, f"winograd_{dtype}", **names)


tile = narrow = lambda *_arguments: None
LANES = 0


def _winograd(
    x, weight, bias, block_rows, block_channels, pad_rows, pad_columns, failed, y, queue
):  # fmt: skip
    count, out_channels, height, width = y.shape
    channels = x.shape[1]
    tile_rows, tile_columns = (height + 1) // 2, (width + 1) // 2
    splits = -(-out_channels // block_channels)
    length = block_rows * tile_columns + 2 * LANES
    pictures, products = np.zeros(16 * channels * length, x.dtype), np.zeros(16 * ROWS * length, x.dtype)
    terms = np.arange(channels)
    offsets = terms * length
    flat_x, flat_y = x.reshape(-1), y.reshape(-1)
    while True:
        block = take(queue)
        first, first_channel = block // splits * block_rows, block % splits * block_channels
        if first >= count * tile_rows:
            return
        rows = min(block_rows, count * tile_rows - first)
        places = rows * tile_columns
        _transform_input(flat_x, x.shape, first, rows, tile_rows, tile_columns, pad_rows, pad_columns, pictures, length)
        for o in range(first_channel, min(first_channel + block_channels, out_channels), ROWS):
            existing = min(ROWS, out_channels - o)
            for element in range(16):
                start = (element * out_channels + o) * channels
                p, picture, to = 0, element * channels * length, element * ROWS * length
                while p < places:
                    if p + (VECTORS - 1) * LANES < places:
                        tile(weight, start, channels, existing, terms, pictures, picture + p, offsets, 0, channels,
                             products, to + p, length)  # fmt: skip
                        p += VECTORS * LANES
                    else:
                        narrow(weight, start, channels, existing, terms, pictures, picture + p, offsets, 0, channels,
                               products, to + p, length)  # fmt: skip
                        p += LANES
            if o == 0:  # what isn't finite in x is in all channels of the output
                check = products[0] * 0
                for element in range(16):
                    for p in range(places):
                        check += products[element * ROWS * length + p] * 0
                if check != 0:
                    failed[0] = 1
            for m in range(existing):
                for block_row in range(rows):
                    image, tile_row = (first + block_row) // tile_rows, (first + block_row) % tile_rows
                    to = ((image * out_channels + o + m) * height + 2 * tile_row) * width
                    _pixels_of_tiles(
                        products, m * length + block_row * tile_columns, ROWS * length, tile_columns, bias[o + m], flat_y, to, width,
                        height - 2 * tile_row
                    )  # fmt: skip


@cache
def weight_kernel(dtype):
    """_winograd_weight for a type."""
    names = {"tile": dot_tile(*DOT), "LANES": lanes(dtype)}
    return specialized(_winograd_weight, f"winograd_weight_{dtype}", **names)


def _winograd_weight(g, x, channel_offsets, block_rows, split, pad_rows, pad_columns, totals, queue):
    count, out_channels, height, width = g.shape
    channels, parts, padded_out, terms = x.shape[1], totals.shape[0], totals.shape[2], totals.shape[3]
    tile_rows, tile_columns = (height + 1) // 2, (width + 1) // 2
    length = block_rows * tile_columns + 2 * LANES
    split_channels = split * DOT[0]
    splits = -(-out_channels // split_channels)
    pictures, gradient = np.zeros(16 * channels * length, x.dtype), np.zeros(16 * split_channels * length, x.dtype)
    offsets = channel_offsets * length
    flat_x, flat_g, flat_totals = x.reshape(-1), g.reshape(-1), totals.reshape(-1)
    while True:
        chunk = take(queue)
        part, first_channel = chunk // splits, chunk % splits * split_channels
        if part >= parts:
            return
        out = min(split_channels, out_channels - first_channel)
        end = count * tile_rows * (part + 1) // parts
        for first in range(count * tile_rows * part // parts, end, block_rows):
            rows = min(block_rows, end - first)
            places = rows * tile_columns
            _transform_input(flat_x, x.shape, first, rows, tile_rows, tile_columns, pad_rows, pad_columns, pictures, length)
            for m in range(out):
                for block_row in range(rows):
                    image, row = (first + block_row) // tile_rows, (first + block_row) % tile_rows * 2
                    start = ((image * out_channels + first_channel + m) * height + row) * width
                    to = m * length + block_row * tile_columns
                    _tiles_of_gradient(
                        flat_g, start, width, 0, height - row, 0, width, gradient, to, split_channels * length, tile_columns
                    )  # fmt: skip
            for row in range(16 * split_channels):
                gradient[row * length + places : (row + 1) * length] = 0
            for element in range(16):
                total = ((part * 16 + element) * padded_out + first_channel) * terms
                for t in range(0, terms, DOT[1]):
                    for m in range(0, out, DOT[0]):
                        tile(
                            gradient, (element * split_channels + m) * length, length, pictures, element * channels * length,
                            offsets, t, places, flat_totals, total + m * terms + t, terms
                        )  # fmt: skip
