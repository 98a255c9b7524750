"""Scaled dot product attention without the matrix of scores, and its gradients.

A vector register holds one number of each of LANES queries: the scores of these queries with one key, say. A panel of queries is
worked on as a whole in the processor's cache: scores with all keys, softmax, weighted sum of values. The backward pass computes a
block's scores again from the queries and the logarithms of the softmax's denominators (Dao et al. 2022).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from . import threads
from .compiling import bound, called, inlined, larger, specialized, take
from .rows import row_product
from .scalar import add, exp, like, log
from .tiles import lanes, product_tile, spaced

PANEL = 16  # rows of a product of which one factor lies in the lanes
BLOCK = 64  # queries that are worked on before the gradients of keys and values take their share

# What the loops are compiled for: a vector's size and the tiles' functions
LANES = 0
TILE: Any = None
SUMS = PRODUCTS = WEIGHTED = TILE


@called
def _into_lanes(x, start, distance, existing, width, factor, lanes, out):
    """out (width, lanes), flat: rows of x times a factor; rows that don't exist are zero."""
    for lane in range(lanes):
        if lane < existing:
            row = x[start + lane * distance : start + lane * distance + width]
            for d in range(row.size):
                out[d * lanes + lane] = row[d] * factor
        else:
            for d in range(width):
                out[d * lanes + lane] = 0


@inlined
def _start(strides, b, h):
    return b * strides[0] + h * strides[1]


@inlined
def _over_keys(combine, x, n, lanes, halves):
    """halves[lane] = the n rows of x (n, lanes) combined: first one half with the other, and so on."""
    source = x
    while True:
        half = (n + 1) // 2
        a, b, to = source[: n // 2 * lanes], source[half * lanes : n * lanes], halves[: n // 2 * lanes]
        for i in range(to.size):
            to[i] = combine(a[i], b[i])
        if n % 2 and source is x:
            halves[(half - 1) * lanes : half * lanes] = x[(half - 1) * lanes : half * lanes]
        if half == 1:
            return
        source, n = halves, half


def _products(rows, start, distance, width, places, first, last, in_lanes, offsets, out):
    """out[j - first, lane] = row j times the row in a lane, for j from first to last."""
    for j in range(first, last, PANEL):
        TILE(
            rows,
            start + j * distance,
            distance,
            min(PANEL, last - j),
            places,
            in_lanes,
            0,
            offsets,
            0,
            width,
            out,
            (j - first) * LANES,
            LANES,
        )


def _weighted_rows(weights, place, distance, count, places, first, last, rows, start, offsets, columns, result):
    """result (count, columns): the sums over terms t from first to last of weights[place + i distance + places[t]] rows[t]."""
    for p in range(0, columns, LANES):
        SUMS(weights, place, distance, count, places, rows, start + p, offsets, first, last, result, p, columns)


def _forward(q, q_at, k, k_at, v, v_at, sizes, scale, causal, out, out_at, logarithms, queue):
    batch, heads, length, source, width, depth = sizes
    blocks = -(-length // BLOCK)
    places, score_places = spaced(width, 1), spaced(source, LANES)
    width_steps, rows_steps = spaced(width, LANES), spaced(source, v_at[2])
    queries, scores = np.empty(width * LANES, q.dtype), np.empty((source + PANEL) * LANES, q.dtype)
    halves = np.empty((source // 2 + 1) * LANES, q.dtype)
    most, result = np.empty(LANES, q.dtype), np.empty(PANEL * depth, q.dtype)
    while True:
        chunk = take(queue)
        if chunk >= batch * heads * blocks:
            return
        head, block = chunk // blocks, chunk % blocks
        b, h = head // heads, head % heads
        q0, k0, v0, out0 = _start(q_at, b, h), _start(k_at, b, h), _start(v_at, b, h), _start(out_at, b, h)
        for first in range(block * BLOCK, min((block + 1) * BLOCK, length), LANES):
            existing = min(LANES, length - first)
            seen = min(first + LANES, source) if causal else source
            _into_lanes(q, q0 + first * q_at[2], q_at[2], existing, width, scale, LANES, queries)
            PRODUCTS(k, k0, k_at[2], width, places, 0, seen, queries, width_steps, scores)
            if causal:
                for j in range(first + 1, seen):
                    for lane in range(min(j - first, LANES)):
                        scores[j * LANES + lane] = -np.inf
            _over_keys(larger, scores, seen, LANES, halves)
            most[:] = halves[:LANES]
            for j in range(seen):
                row = scores[j * LANES : (j + 1) * LANES]
                for lane in range(LANES):
                    row[lane] = exp(row[lane] - most[lane])
            _over_keys(add, scores, seen, LANES, halves)
            WEIGHTED(scores, 0, 1, LANES, score_places, 0, seen, v, v0, rows_steps, depth, result)
            for lane in range(existing):
                logarithms[(head * length) + first + lane] = most[lane] + log(halves[lane])
                factor = like(scale, 1) / halves[lane]
                start = out0 + (first + lane) * out_at[2]
                to, source_row = out[start : start + depth], result[lane * depth : (lane + 1) * depth]
                for d in range(to.size):
                    to[d] = source_row[d] * factor


def _backward(
    g, g_at, q, q_at, k, k_at, v, v_at, out, out_at, logarithms, sizes, scale, causal, gq, gq_at, gk, gk_at, gv, gv_at, queue
):
    batch, heads, length, source, width, depth = sizes
    one, most = like(scale, 1), max(width, depth)
    panel = (source + PANEL) * LANES  # one panel's scores
    places, steps, score_places = spaced(most, 1), spaced(most, LANES), spaced(source, LANES)
    query_places = spaced(BLOCK, 1)  # where the scores of a block's queries with one key lie
    for i in range(BLOCK):
        query_places[i] = i // LANES * panel + i % LANES
    k_steps, q_steps, g_steps = spaced(source, k_at[2]), spaced(BLOCK, q_at[2]), spaced(BLOCK, g_at[2])
    weights, slopes = np.empty(BLOCK // LANES * panel, q.dtype), np.empty(BLOCK // LANES * panel, q.dtype)
    queries, gradients = np.empty(width * LANES, q.dtype), np.empty(depth * LANES, q.dtype)
    result, along, logs = np.empty(PANEL * most, q.dtype), np.zeros(LANES, q.dtype), np.zeros(LANES, q.dtype)
    while True:
        head = take(queue)
        if head >= batch * heads:
            return
        b, h = head // heads, head % heads
        q0, k0, v0, out0 = _start(q_at, b, h), _start(k_at, b, h), _start(v_at, b, h), _start(out_at, b, h)
        g0, gq0, gk0, gv0 = _start(g_at, b, h), _start(gq_at, b, h), _start(gk_at, b, h), _start(gv_at, b, h)
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            for first in range(begin, end, LANES):
                existing = min(LANES, length - first)
                seen = min(first + LANES, source) if causal else source
                for lane in range(existing):
                    logs[lane], along[lane] = logarithms[head * length + first + lane], 0
                    there, here = out0 + (first + lane) * out_at[2], g0 + (first + lane) * g_at[2]
                    along[lane] = row_product(out[there : there + depth], g[here : here + depth])
                _into_lanes(q, q0 + first * q_at[2], q_at[2], existing, width, scale, LANES, queries)
                _into_lanes(g, g0 + first * g_at[2], g_at[2], existing, depth, one, LANES, gradients)
                place = (first - begin) // LANES * panel
                weight, slope = weights[place : place + panel], slopes[place : place + panel]
                PRODUCTS(k, k0, k_at[2], width, places, 0, seen, queries, steps, weight)
                PRODUCTS(v, v0, v_at[2], depth, places, 0, seen, gradients, steps, slope)
                for j in range(seen):
                    w, s = weight[j * LANES : (j + 1) * LANES], slope[j * LANES : (j + 1) * LANES]
                    for lane in range(LANES):
                        w[lane] = exp(w[lane] - logs[lane])
                    for lane in range(LANES):
                        s[lane] = w[lane] * (s[lane] - along[lane]) * scale
                if causal:
                    for j in range(first + 1, seen):
                        for lane in range(min(j - first, LANES)):
                            weight[j * LANES + lane] = 0
                            slope[j * LANES + lane] = 0
                    weight[seen * LANES :] = 0  # later keys, which other panels of this block see
                    slope[seen * LANES :] = 0
                WEIGHTED(slope, 0, 1, LANES, score_places, 0, seen, k, k0, k_steps, width, result)
                for lane in range(existing):
                    start = gq0 + (first + lane) * gq_at[2]
                    to, row = gq[start : start + width], result[lane * width : (lane + 1) * width]
                    for d in range(to.size):
                        to[d] = row[d]
            for j in range(0, min(end, source) if causal else source, PANEL):
                existing = min(PANEL, source - j)
                for factors, rows, start, row_steps, size, target, target0, distance in (
                    (weights, g, g0 + begin * g_at[2], g_steps, depth, gv, gv0, gv_at[2]),
                    (slopes, q, q0 + begin * q_at[2], q_steps, width, gk, gk0, gk_at[2]),
                ):
                    WEIGHTED(
                        factors, j * LANES, LANES, existing, query_places, 0, end - begin, rows, start, row_steps, size, result
                    )
                    for r in range(existing):
                        at = target0 + (j + r) * distance
                        to, row = target[at : at + size], result[r * size : (r + 1) * size]
                        for d in range(to.size):
                            to[d] += row[d]


@cache
def _compiled(function, dtype):
    """A kernel whose inner loops are tiles for this type's vectors."""
    names = {"LANES": lanes(dtype), "TILE": product_tile(PANEL, 1), "SUMS": product_tile(PANEL, 1)}
    for name, loop in (("PRODUCTS", _products), ("WEIGHTED", _weighted_rows)):
        names[name] = called(bound(loop, **names))
    return specialized(function, f"attention{function.__name__}_{dtype}", **names)


def forward(q, k, v, scale, causal):
    """(output, logarithms of the softmax's denominators): (N, H, L, E), (N, H, S, E), (N, H, S, V) -> (N, H, L, V), (N, H, L)."""
    out = _like(q, v.shape[3])
    logarithms = np.empty(q.shape[:3], q.dtype)
    inputs = [part for x in (q, k, v) for part in _rows(x)]
    sizes, chunks = (*q.shape[:3], *k.shape[2:], v.shape[3]), q.shape[0] * q.shape[1] * -(-q.shape[2] // BLOCK)
    threads.run(
        _compiled(_forward, q.dtype), chunks, *inputs, sizes, q.dtype.type(scale), causal, *_rows(out), logarithms.reshape(-1)
    )
    return out, logarithms


def backward(g, q, k, v, out, logarithms, scale, causal):
    """The gradients of q, k and v."""
    gradients = _like_slices(q, k, v) or [_like(x, x.shape[3]) for x in (q, k, v)]
    for x in gradients[1:]:
        x[...] = 0
    inputs = [part for x in (g, q, k, v, out) for part in _rows(x)]
    outputs = [part for x in gradients for part in _rows(x)]
    sizes = (*q.shape[:3], *k.shape[2:], v.shape[3])
    numbers = logarithms.reshape(-1), sizes, q.dtype.type(scale), causal
    threads.run(_compiled(_backward, q.dtype), q.shape[0] * q.shape[1], *inputs, *numbers, *outputs, least=1)
    return gradients


def _like_slices(q, k, v):
    """Where q, k and v are slices of one array, as one product makes them: slices of a new one, which `stack` needs not copy."""
    if not (q.base is k.base is v.base is not None and q.strides == k.strides == v.strides and q.shape == k.shape == v.shape):
        return None
    first, second, third = (x.__array_interface__["data"][0] for x in (q, k, v))
    step = second - first
    dims = sorted([(step, 3), *zip(q.strides, q.shape)])
    apart = all(s > 0 and s % q.itemsize == 0 for s, _ in dims) and all(s * n <= t for (s, n), (t, _) in zip(dims, dims[1:]))
    if not apart or third - second != step:
        return None
    memory = np.empty(sum((n - 1) * s for s, n in dims) // q.itemsize + 1, q.dtype)
    return [np.ndarray(q.shape, q.dtype, memory, i * step, q.strides) for i in range(3)]


def has_kernel(q, v) -> bool:
    """Whether the rows of these arrays fill whole vector registers."""
    n = lanes(q.dtype)
    return q.shape[3] % n == 0 and v.shape[3] % n == 0


def _like(x, width):
    """An empty array whose rows have `width` elements and lie in x's order, if x's rows are dense."""
    out = np.empty_like(x, shape=(*x.shape[:3], width))
    return out if out.strides[3] == out.itemsize else np.empty(out.shape, out.dtype)


def _rows(x):
    """(the memory of an array as a flat array from its first element on, distances in elements between its first three indices).

    Rows must be dense: others are copied."""
    if x.strides[3] != x.itemsize or not x.flags.aligned or any(s < 0 or s % x.itemsize for s in x.strides):
        x = np.array(x, order="C")
    strides = tuple(s // x.itemsize for s in x.strides[:3])
    last = sum((n - 1) * s for n, s in zip(x.shape, strides)) + x.shape[3]
    return np.lib.stride_tricks.as_strided(x, (last,), (x.itemsize,)), strides
