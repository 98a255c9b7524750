"""Kernels that work on rows: softmax and its relatives, layer norm, sums.

A row is what one result or one statistic depends on. It stays in the processor's cache while a kernel goes over it two or three
times, so memory is read once. Sums are added up in vector lanes (64 or more partial sums a row) and across chunks in
float64: closer to the exact sum than one running total (Higham 2002, ch. 4).
"""

from __future__ import annotations

import numpy as np

from . import threads
from .compiling import kernel, larger, summing, take
from .scalar import exp, like, log

CHUNK = 1 << 14  # elements
LANES = 64  # partial sums in a loop that adds up; what is left of a long row is added up by itself, not onto the large sum


def as_rows(x: np.ndarray, length: int) -> np.ndarray:
    """x as a dense matrix whose rows have `length` elements; copied only where it isn't dense."""
    return np.ascontiguousarray(x).reshape(-1, length)


def shared(rows: int, length: int) -> tuple[int, int]:
    """(rows that a thread takes at once, number of such chunks)."""
    step = max(1, CHUNK // length)
    return step, -(-rows // step)


@summing
def row_sum(x):
    whole = x.size - x.size % LANES if x.size >= 2 * LANES else x.size
    total, rest = like(x[0], 0), like(x[0], 0)
    for i in range(whole):
        total += x[i]
    for i in range(whole, x.size):
        rest += x[i]
    return total + rest


@summing
def row_product(x, y):
    """The sum of x * y."""
    total = like(x[0], 0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@summing
def row_deviation(x, mean):
    """The sum of (x - mean)^2."""
    total = like(x[0], 0)
    for i in range(x.size):
        total += (x[i] - mean) * (x[i] - mean)
    return total


@summing
def row_maximum(x):
    """The largest element; anything if one is NaN."""
    found = x[0]
    for i in range(x.size):
        found = larger(found, x[i])
    return found


@summing
def row_exponentials(x, most, out):
    """out = exp(x - most), and its sum."""
    total = like(most, 0)
    for i in range(x.size):
        e = exp(x[i] - most)
        out[i] = e
        total += e
    return total


@summing
def row_exponential_sum(x, most):
    """The sum of exp(x - most)."""
    total = like(most, 0)
    for i in range(x.size):
        total += exp(x[i] - most)
    return total


# Softmax: (rows, n) -> (rows, n)


@kernel
def _softmax(x, out, step, queue):
    while True:
        start = take(queue) * step
        if start >= x.shape[0]:
            return
        for r in range(start, min(start + step, x.shape[0])):
            row, result = x[r], out[r]
            scale = like(row[0], 1) / row_exponentials(row, row_maximum(row), result)
            for i in range(result.size):
                result[i] *= scale


@kernel
def _softmax_gradient(g, out, result, step, queue):
    while True:
        start = take(queue) * step
        if start >= g.shape[0]:
            return
        for r in range(start, min(start + step, g.shape[0])):
            gradient, y, target = g[r], out[r], result[r]
            along = row_product(gradient, y)
            for i in range(target.size):
                target[i] = y[i] * (gradient[i] - along)


@kernel
def _log_softmax(x, out, step, queue):
    while True:
        start = take(queue) * step
        if start >= x.shape[0]:
            return
        for r in range(start, min(start + step, x.shape[0])):
            row, result = x[r], out[r]
            most = row_maximum(row)
            shift = log(row_exponential_sum(row, most))
            for i in range(result.size):
                result[i] = (row[i] - most) - shift


@kernel
def _log_softmax_gradient(g, out, result, step, queue):
    while True:
        start = take(queue) * step
        if start >= g.shape[0]:
            return
        for r in range(start, min(start + step, g.shape[0])):
            gradient, y, target = g[r], out[r], result[r]
            total = row_sum(gradient)
            for i in range(target.size):
                target[i] = gradient[i] - exp(y[i]) * total


def _row_operation(compiled):
    """The array function of a kernel over (*inputs, result), all of the inputs' shape, along the last dimension."""

    def function(*inputs):
        result = np.empty(inputs[-1].shape, inputs[-1].dtype)
        length = result.shape[-1]
        step, chunks = shared(result.size // length, length)
        threads.run(compiled, chunks, *[as_rows(x, length) for x in inputs], result.reshape(-1, length), step)
        return result

    return function


softmax, softmax_gradient = _row_operation(_softmax), _row_operation(_softmax_gradient)
log_softmax, log_softmax_gradient = _row_operation(_log_softmax), _row_operation(_log_softmax_gradient)


# Layer norm: (rows, n) -> (rows, n), with weight and bias (n)


@kernel
def _layer_norm(x, weight, bias, eps, out, step, queue):
    while True:
        start = take(queue) * step
        if start >= x.shape[0]:
            return
        for r in range(start, min(start + step, x.shape[0])):
            row, result = x[r], out[r]
            mean = row_sum(row) / like(eps, row.size)
            scale = like(eps, 1) / np.sqrt(row_deviation(row, mean) / like(eps, row.size) + eps)
            for i in range(result.size):
                result[i] = (row[i] - mean) * scale * weight[i] + bias[i]


@summing
def _normalized_sums(row, gradient, weight, mean, scale):
    """The sums of g * weight and of g * weight * y, where y is the normalised row."""
    plain, along = like(mean, 0), like(mean, 0)
    for i in range(row.size):
        inner = gradient[i] * weight[i]
        plain += inner
        along += inner * ((row[i] - mean) * scale)
    return plain, along


@kernel
def _layer_norm_gradient(g, x, weight, eps, out, sums, step, queue):
    """sums[chunk] takes the chunk's part of the gradients of weight and bias."""
    while True:
        chunk = take(queue)
        if chunk >= sums.shape[0]:
            return
        start = chunk * step
        of_weight, of_bias = sums[chunk, 0], sums[chunk, 1]
        for r in range(start, min(start + step, x.shape[0])):
            row, gradient, result = x[r], g[r], out[r]
            n = like(eps, row.size)
            mean = row_sum(row) / n
            scale = like(eps, 1) / np.sqrt(row_deviation(row, mean) / n + eps)
            plain, along = _normalized_sums(row, gradient, weight, mean, scale)
            plain, along = plain / n, along / n
            for i in range(result.size):
                y = (row[i] - mean) * scale
                result[i] = (gradient[i] * weight[i] - plain - y * along) * scale
                of_weight[i] += gradient[i] * y
                of_bias[i] += gradient[i]


def layer_norm(x, weight, bias, length, eps):
    """The array function of native_layer_norm over the last `length` elements."""
    dtype = x.dtype
    weight = np.ones(length, dtype) if weight is None else as_rows(weight, length)[0]
    bias = np.zeros(length, dtype) if bias is None else as_rows(bias, length)[0]
    out = np.empty(x.shape, dtype)
    step, chunks = shared(x.size // length, length)
    threads.run(_layer_norm, chunks, as_rows(x, length), weight, bias, dtype.type(eps), out.reshape(-1, length), step)
    return out


def layer_norm_gradient(g, x, weight, length, eps):
    """The gradients of x, weight and bias (these two flat)."""
    dtype = x.dtype
    weight = np.ones(length, dtype) if weight is None else as_rows(weight, length)[0]
    out = np.empty(x.shape, dtype)
    rows = x.size // length
    step = max(1, CHUNK // length, -(-rows // 64))  # every chunk has sums of its own to write
    sums = np.zeros((-(-rows // step), 2, length), dtype)
    arguments = as_rows(g, length), as_rows(x, length), weight, dtype.type(eps), out.reshape(-1, length), sums, step
    threads.run(_layer_norm_gradient, len(sums), *arguments)
    of_weight, of_bias = np.add.reduce(sums, 0)
    return out, of_weight, of_bias


# Sums


@kernel
def _partial_sums(x, parts, queue):
    while True:
        chunk = take(queue)
        if chunk >= parts.size:
            return
        parts[chunk] = row_sum(x[chunk * CHUNK : (chunk + 1) * CHUNK])


def total(x):
    """The sum of all elements of a dense array, as a 0-d array."""
    parts = np.empty(-(-x.size // CHUNK), x.dtype)
    threads.run(_partial_sums, parts.size, x.reshape(-1, order="A"), parts)
    return np.asarray(np.add.reduce(parts, dtype=np.float64), x.dtype)


@kernel
def _row_sums(x, out, step, queue):
    while True:
        start = take(queue) * step
        if start >= x.shape[0]:
            return
        for r in range(start, min(start + step, x.shape[0])):
            out[r] = row_sum(x[r])


def row_sums(x, length):
    """The sums over the last `length` elements, flat."""
    rows = as_rows(x, length)
    out = np.empty(len(rows), x.dtype)
    step, chunks = shared(len(rows), length)
    threads.run(_row_sums, chunks, rows, out, step)
    return out
