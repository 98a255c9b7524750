"""3x3 convolution with 2.25 times fewer multiplications (Winograd's F(2x2, 3x3); Lavin and Gray 2016), and its gradients.

A tile of 2x2 results comes from 4x4 pixels d: y = A'[(G w G') * (B' d B)]A, where * multiplies elements. Summed over input
channels, each of the 16 elements is a matrix product of its own. B' and A' only add and subtract, so errors stay about
those of direct sums. Larger tiles save more multiplications, but lose accuracy.

The gradient of the input is a convolution with the kernel turned around. The gradient of the weight is that formula's derivative,
G'[(A g A') * (B' d B)]G, summed over tiles.

Transforms go along a row of tiles. x's even and odd pixels are separated first, so that a tile's four pixels in a row are
even[t], odd[t], even[t + 1] and odd[t + 1].
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from . import threads
from .tiles import lanes
from .winograd_loops import DOT, ROWS, VECTORS, transform_totals, transform_weight, weight_kernel, winograd_kernel

BUFFER = 640 << 10  # bytes of transformed input in a block
LEAST = 48  # tiles of a block, however many channels there are
DOT_TILES = 256  # tiles of a block there
PARTS = 8  # parts of the batch whose weight gradients are added last: fixed, so that sums don't depend on threads
PART_BYTES = 32 << 20  # of all parts together
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
GG = {np.dtype(t): np.kron(G, G).astype(t) for t in (np.float32, np.float64)}


def takes(channels, out_channels, sizes, stride, dilation, groups, results):
    """Whether this is a convolution that is faster here."""
    return (
        sizes == (3, 3) and stride == (1, 1) and dilation == (1, 1) and groups == 1
        and channels >= 16 and out_channels >= 16 and min(results) >= 4
    )  # fmt: skip


def forward(x, weight, bias, padding, sizes):
    """(N, C, H, W), (O, C, 3, 3), (O) -> (N, O, *sizes); None if x or the weight isn't finite, which would spread to whole tiles."""
    return _convolve(x, _transformed(weight, GG[x.dtype]), bias, padding, sizes)


def input_gradient(g, weight, spatial, padding):
    """(N, O, *S'), (O, C, 3, 3) -> (N, C, *spatial), or None as above."""
    transformed = _transformed(weight.swapaxes(0, 1), GG[g.dtype][:, ::-1])
    return _convolve(g, transformed, None, (2 - padding[0], 2 - padding[1]), spatial)


def _transformed(weight, matrix):
    """(O, C, 3, 3) -> (16, O, C): G w G'. Not by BLAS, whose threads go on spinning for a while."""
    out = np.empty((16, *weight.shape[:2]), weight.dtype)
    threads.run(transform_weight, len(weight), weight, np.ascontiguousarray(matrix), out)
    return out


def weight_gradient(g, x, padding):
    """(N, O, *S'), (N, C, H, W) -> (O, C, 3, 3), or None if it isn't finite."""
    plan = _weight_plan(g.shape, x.shape[1], x.dtype)
    totals = np.zeros(plan.totals, x.dtype)
    arguments = np.ascontiguousarray(g), np.ascontiguousarray(x), plan.offsets, plan.block_rows, plan.split, *padding, totals
    threads.run(weight_kernel(x.dtype), plan.chunks, *arguments)
    weight = np.empty((g.shape[1], x.shape[1], 3, 3), x.dtype)
    threads.run(transform_totals, len(weight), totals, GG[x.dtype], weight)
    return weight if np.isfinite(weight).all() else None


def _convolve(x, transformed, bias, padding, sizes):
    out_shape = (x.shape[0], transformed.shape[1], *sizes)
    if not np.isfinite(transformed).all():
        return None
    block_rows, block_channels, chunks = _blocks(x.shape[1], out_shape, x.dtype, threads.get_threads())
    y, failed = np.empty(out_shape, x.dtype), np.zeros(1, np.int64)
    bias = np.zeros(out_shape[1], x.dtype) if bias is None else np.ascontiguousarray(bias)
    arguments = (
        np.ascontiguousarray(x),
        transformed.reshape(-1),
        bias,
        block_rows,
        block_channels,
        *padding,
        failed,
        y,
    )
    threads.run(winograd_kernel(x.dtype), chunks, *arguments)
    return None if failed[0] else y


@lru_cache(maxsize=256)
def _blocks(channels, out_shape, dtype, workers):
    """(rows of tiles in a block, output channels in a block, blocks)."""
    n, out_channels, height, width = out_shape
    rows, columns = n * -(-height // 2), -(-width // 2)
    wanted = 4 * workers if workers > 1 else 1
    most = max(1, max(BUFFER // (16 * channels * dtype.itemsize), LEAST) // columns)
    # Rather than blocks of few tiles, which read all weights each, some that share their tiles: they transform them again
    splits = min(-(-wanted * most // rows), max(1, out_channels // 64))
    most = max(1, min(most, rows * splits // wanted))

    def cost(block):
        tiles, rest = divmod(-(-block * columns // lanes(dtype)), VECTORS)
        return (tiles * VECTORS + rest / 0.7 + 1) / block

    best = min(range(1, most + 1), key=cost)
    block_channels = -(-out_channels // (splits * ROWS)) * ROWS
    return best, block_channels, -(-rows // best) * -(-out_channels // block_channels)


class _WeightPlan(NamedTuple):
    block_rows: int
    split: int  # blocks of output channels that are computed together
    offsets: np.ndarray  # of the input channels in the buffer, in units of a channel's length there
    totals: tuple  # (parts, 16, output channels, input channels), the channels rounded up to whole tiles
    chunks: int


@lru_cache(maxsize=256)
def _weight_plan(g_shape, channels, dtype):
    n, out_channels, height, width = g_shape
    rows, columns = n * -(-height // 2), -(-width // 2)
    blocks, terms = -(-out_channels // DOT[0]), -(-channels // DOT[1]) * DOT[1]
    block_rows = max(1, min(DOT_TILES // columns, rows))
    parts = max(1, min(PARTS, rows // block_rows, PART_BYTES // (16 * blocks * DOT[0] * terms * dtype.itemsize)))
    split = -(-blocks // min(blocks, -(-PARTS // parts)))
    offsets = np.array([*range(channels), *[0] * (terms - channels)])
    return _WeightPlan(block_rows, split, offsets, (parts, 16, blocks * DOT[0], terms), parts * -(-blocks // split))
