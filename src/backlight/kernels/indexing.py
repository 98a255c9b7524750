"""Picking slices by index, and adding slices to where an index points: embeddings, index_add, scatter_add, gather.

Arrays are seen as (outer, n, inner), the index pointing along the middle. Where slices are added, threads share the inner
numbers and each goes through the whole index in order, so results don't depend on how many there are. Indices were checked by the
operation; one that was changed since, behind autograd's back, is an IndexError and touches no memory.
"""

from __future__ import annotations

import numpy as np

from . import threads
from .compiling import kernel, take

CHUNK = 1 << 14  # elements
NARROWEST = 16  # inner numbers for each thread


@kernel
def _take(x, index, out, step, wrong, queue):
    outer, count, inner = out.shape
    while True:
        chunk = take(queue)
        start = chunk * step
        if start >= outer * count:
            return
        for k in range(start, min(start + step, outer * count)):
            o, place = k // count, index[k % count]
            place += x.shape[1] if place < 0 else 0
            if not 0 <= place < x.shape[1]:
                wrong[0] = 1
                continue
            row, result = x[o, place], out[o, k % count]
            for i in range(result.size):
                result[i] = row[i]


@kernel
def _add(out, index, source, width, wrong, queue):
    outer, n, inner = out.shape
    parts = -(-inner // width)
    while True:
        chunk = take(queue)
        if chunk >= outer * parts:
            return
        o, start = chunk // parts, chunk % parts * width
        stop = min(start + width, inner)
        for k in range(index.size):
            place = index[k] + (n if index[k] < 0 else 0)
            if not 0 <= place < n:
                wrong[0] = 1
                continue
            row, more = out[o, place, start:stop], source[o, k, start:stop]
            for i in range(row.size):
                row[i] += more[i]


@kernel
def _take_each(x, index, out, step, wrong, queue):
    outer, count, inner = index.shape
    while True:
        start = take(queue) * step
        if start >= outer * count:
            return
        for k in range(start, min(start + step, outer * count)):
            o = k // count
            places, result = index[o, k % count], out[o, k % count]
            for i in range(inner):
                if 0 <= places[i] < x.shape[1]:
                    result[i] = x[o, places[i], i]
                else:
                    wrong[0] = 1


@kernel
def _add_each(out, index, source, width, wrong, queue):
    outer, count, inner = index.shape
    parts = -(-inner // width)
    while True:
        chunk = take(queue)
        if chunk >= outer * parts:
            return
        o, start = chunk // parts, chunk % parts * width
        for k in range(count):
            places, more = index[o, k], source[o, k]
            for i in range(start, min(start + width, inner)):
                if 0 <= places[i] < out.shape[1]:
                    out[o, places[i], i] += more[i]
                else:
                    wrong[0] = 1


def _slices(x, dim, inner_dims=1):
    """x as a dense (outer, n, inner): dimensions before `dim`, the `inner_dims` from `dim` on, and those behind."""
    shape = x.shape
    outer, count = int(np.prod(shape[:dim])), int(np.prod(shape[dim : dim + inner_dims]))
    return np.ascontiguousarray(x).reshape(outer, count, int(np.prod(shape[dim + inner_dims :])))


def _run(kernel, chunks, *arguments, **options):
    wrong = np.zeros(1, np.int64)
    threads.run(kernel, chunks, *arguments, wrong, **options)
    if wrong[0]:
        raise IndexError("index out of range: it was in range when the operation was called, and has been changed since")


def _run_by_columns(kernel, target, *arguments):
    """Runs a kernel that adds to `target` (outer, n, inner), of which a thread takes some inner numbers at a time."""
    outer, _n, inner = target.shape
    width = max(NARROWEST, -(-inner // threads.get_threads()))
    _run(kernel, outer * -(-inner // width), target, *arguments, width, least=1)


def as_vector(index, dim):
    """An index that is the same for all other dimensions (expanded) as a vector along `dim`; None for others."""
    if index.ndim > 1 and all(s == 0 or n == 1 for d, (s, n) in enumerate(zip(index.strides, index.shape)) if d != dim):
        return index[tuple([slice(None) if d == dim else 0 for d in range(index.ndim)])]
    return None


def take_slices(x, index, dim):
    """x[..., index, ...] with an index of any shape in place of dimension `dim`."""
    out = np.empty((*x.shape[:dim], *index.shape, *x.shape[dim + 1 :]), x.dtype)
    result = _slices(out, dim, index.ndim)
    step = max(1, CHUNK // max(1, result.shape[2]))
    chunks = -(-result.shape[0] * result.shape[1] // step)
    _run(_take, chunks, _slices(x, dim), np.ascontiguousarray(index).reshape(-1), result, step)
    return out


def add_slices(out, index, source, dim):
    """Adds source's slices to those of a dense `out` that the index, of any shape, names along `dim`, in place."""
    _run_by_columns(_add, _slices(out, dim), np.ascontiguousarray(index).reshape(-1), _slices(source, dim, index.ndim))


def take_each(x, index, dim):
    """gather: x's elements that the index, of x's shape but for `dim`, names along `dim`."""
    out = np.empty(index.shape, x.dtype)
    result = _slices(out, dim)
    step = max(1, CHUNK // max(1, result.shape[2]))
    _run(_take_each, -(-result.shape[0] * result.shape[1] // step), _slices(x, dim), _slices(index, dim), result, step)
    return out


def add_each(out, index, source, dim):
    """scatter_add: adds source to the elements of a dense `out` that the index names along `dim`, in place."""
    _run_by_columns(_add_each, _slices(out, dim), _slices(index, dim), _slices(source, dim))
