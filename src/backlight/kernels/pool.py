"""Pooling: maxima and means of windows, and their gradients.

As in ops/pool.py, a table lists the flat positions of each window, -1 for padding; here with the window's positions in
front, (K, outputs), so that the inner loops go along the outputs. A chunk is some planes (a channel of an image each).
"""

from __future__ import annotations

import math

import numpy as np

from . import threads
from .compiling import kernel, take
from .tiles import select

CHUNK = 1 << 14  # elements


def max_pool(x, table, out):
    """(*, *S), table (outputs, K) -> maxima and their flat positions, (*, *out). The first of equals, the last NaN."""
    shape = (*x.shape[: x.ndim - len(out)], *out)
    values, where = np.empty(shape, x.dtype), np.empty(shape, np.int64)
    planes, per_chunk = _planes(x, len(out)), max(1, CHUNK // table.size)
    arguments = planes, np.ascontiguousarray(table.T), per_chunk, _planes(values, len(out)), _planes(where, len(out))
    threads.run(_max_pool, -(-len(planes) // per_chunk), *arguments)
    return values, where


def max_pool_gradient(g, where, shape, dimensions):
    """g added at the positions of the maxima. (*, *out) -> shape, (*, *S), where S has so many dimensions."""
    total = np.zeros(shape, g.dtype)
    planes = _planes(total, dimensions)
    per_chunk = max(1, CHUNK // planes.shape[1])
    threads.run(
        _max_pool_gradient, -(-len(planes) // per_chunk), _planes(g, dimensions), _planes(where, dimensions), per_chunk, planes
    )
    return total


def average_pool(x, table, out, divisor):
    """(*, *S), table (outputs, K), divisor (outputs) -> sums of windows over the divisor, (*, *out)."""
    y = np.empty((*x.shape[: x.ndim - len(out)], *out), x.dtype)
    per_chunk, divisor = max(1, CHUNK // table.size), divisor.astype(x.dtype)
    planes = _planes(y, len(out))
    arguments = _planes(x, len(out)), np.ascontiguousarray(table.T), divisor, per_chunk, planes
    threads.run(_average_pool, -(-len(planes) // per_chunk), *arguments)
    return y


def average_pool_gradient(g, shape, table, out, divisor):
    """g over the divisor, added at each position of its window. (*, *out) -> shape."""
    total = np.zeros(shape, g.dtype)
    per_chunk, divisor = max(1, CHUNK // table.size), divisor.astype(g.dtype)
    planes = _planes(total, len(out))
    arguments = _planes(g, len(out)), np.ascontiguousarray(table.T), divisor, per_chunk, planes
    threads.run(_average_pool_gradient, -(-len(planes) // per_chunk), *arguments)
    return total


def _planes(array, dimensions):
    """(*, *S) -> (planes, prod S), contiguous; a view where it can be one."""
    spatial = array.shape[array.ndim - dimensions :]
    return np.ascontiguousarray(array).reshape(-1, math.prod(spatial))


@kernel
def _max_pool(x, table, per_chunk, values, where, queue):
    while True:
        first = take(queue) * per_chunk
        if first >= x.shape[0]:
            return
        for n in range(first, min(first + per_chunk, x.shape[0])):
            plane, maxima, found = x[n], values[n], where[n]
            places = table[0]
            for j in range(maxima.size):
                maxima[j], found[j] = plane[max(places[j], 0)], places[j]
            for k in range(1, table.shape[0]):
                places = table[k]
                for j in range(maxima.size):
                    place, at, best = places[j], found[j], maxima[j]
                    value = plane[max(place, 0)]
                    better = (place >= 0) & ((value > best) | (value != value) | (at < 0))
                    maxima[j], found[j] = select(better, value, best), select(better, place, at)


@kernel
def _max_pool_gradient(g, where, per_chunk, total, queue):
    while True:
        first = take(queue) * per_chunk
        if first >= g.shape[0]:
            return
        for n in range(first, min(first + per_chunk, g.shape[0])):
            gradient, places, plane = g[n], where[n], total[n]
            for j in range(gradient.size):
                if places[j] >= 0:
                    plane[places[j]] += gradient[j]


@kernel
def _average_pool(x, table, divisor, per_chunk, y, queue):
    while True:
        first = take(queue) * per_chunk
        if first >= x.shape[0]:
            return
        for n in range(first, min(first + per_chunk, x.shape[0])):
            plane, sums = x[n], y[n]
            sums[:] = 0
            for k in range(table.shape[0]):
                places = table[k]
                for j in range(sums.size):
                    value = plane[max(places[j], 0)]
                    sums[j] = sums[j] + value if places[j] >= 0 else sums[j]
            for j in range(sums.size):
                sums[j] /= divisor[j]


@kernel
def _average_pool_gradient(g, table, divisor, per_chunk, total, queue):
    while True:
        first = take(queue) * per_chunk
        if first >= g.shape[0]:
            return
        for n in range(first, min(first + per_chunk, g.shape[0])):
            gradient, plane = g[n], total[n]
            for k in range(table.shape[0]):
                places = table[k]
                for j in range(gradient.size):
                    if places[j] >= 0:
                        plane[places[j]] += gradient[j] / divisor[j]
