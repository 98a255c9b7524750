"""Copies of transposed arrays, in blocks that stay in the cache. NumPy goes along the result, and so across the source's cache lines."""

from __future__ import annotations

import numpy as np

from . import threads
from .compiling import kernel, take

TILE = 16  # rows and columns of a block that is transposed: a cache line of float32 numbers
OUTER = 4  # dimensions beside rows and columns


@kernel
def _transpose(source, steps, out, out_steps, shape, rows, row_step, columns, column_step, queue):
    """out[..., r, c] = source[..., r, c] where rows of the source, and columns of the result, are dense: column_step, row_step apart."""
    count = shape[0] * shape[1] * shape[2] * shape[3]
    blocks = -(-rows // TILE)
    while True:
        chunk = take(queue)
        if chunk >= count * blocks:
            return
        block, rest = chunk % blocks * TILE, chunk // blocks
        i3, rest = rest % shape[3], rest // shape[3]
        i2, rest = rest % shape[2], rest // shape[2]
        i1, i0 = rest % shape[1], rest // shape[1]
        begin = i0 * steps[0] + i1 * steps[1] + i2 * steps[2] + i3 * steps[3]
        place = i0 * out_steps[0] + i1 * out_steps[1] + i2 * out_steps[2] + i3 * out_steps[3]
        for first in range(0, columns, TILE):
            last = min(first + TILE, columns)
            for r in range(block, min(block + TILE, rows)):
                to = out[place + r * row_step + first : place + r * row_step + last]
                for c in range(to.size):
                    to[c] = source[begin + r + (first + c) * column_step]


def _merged(shape, steps):
    """(size, step) of as few dimensions as hold the same elements in the same order, without those of size 1."""
    merged: list[tuple[int, int]] = []
    for n, step in zip(shape, steps):
        if merged and n > 1 and merged[-1][1] == step * n:
            merged[-1] = merged[-1][0] * n, step
        elif n > 1:
            merged.append((n, step))
    return merged


def _flat(x):
    """x's memory from its first element to its last, as a flat array."""
    span = sum((n - 1) * s for n, s in zip(x.shape, x.strides)) // x.itemsize + 1
    return np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,))


def contiguous(x):
    """x in C order: x itself if it is so already. NumPy copies what is no transpose, which it does well."""
    if x.flags.c_contiguous:
        return x
    dims = _merged(x.shape, [s // x.itemsize for s in x.strides])
    dense = next((k for k, (_, step) in enumerate(dims) if step == 1), len(dims))
    if dense >= len(dims) - 1 or len(dims) - 2 > OUTER or any(step < 0 for _, step in dims):
        return np.ascontiguousarray(x)
    out = np.empty(x.shape, x.dtype)
    steps = [1] * len(dims)  # those of the result
    for k in range(len(dims) - 2, -1, -1):
        steps[k] = steps[k + 1] * dims[k + 1][0]
    (columns, column_step), outer = dims[-1], [(n, step, own) for (n, step), own in zip(dims[:-1], steps)]
    rows, _one, row_step = outer.pop(dense)
    shape, strides, own = (tuple(values) for values in zip(*[(1, 0, 0)] * (OUTER - len(outer)), *outer))
    chunks = int(np.prod(shape)) * -(-rows // TILE)
    threads.run(_transpose, chunks, _flat(x), strides, out.reshape(-1), own, shape, rows, row_step, columns, column_step)
    return out
