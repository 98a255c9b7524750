"""The inner loops of matrix products and convolutions: a tile of results that stays in vector registers.

LLVM doesn't keep a tile of sums in registers by itself, so these are written in its own language, with vector types. Both read
x through a table of offsets, one for each term of the sum. A matrix product has rows there; a convolution has its
channels and its kernel's places, and so needs no copy of every window (im2col).
"""

from __future__ import annotations

from functools import lru_cache

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FEATURES = llvm.get_host_cpu_features()
VECTOR_BYTES = 64 if _FEATURES.get("avx512f") else 32 if _FEATURES.get("avx") else 16
_CONTRACT = ("contract",)


def lanes(dtype) -> int:
    """How many numbers of a type a vector register holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


class _Emitter:
    """Loads, stores and multiply-adds of vectors in one function's code."""

    def __init__(self, context, builder, signature, arguments, dtype):
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments
        self.number = ir.FloatType() if dtype == np.float32 else ir.DoubleType()
        self.bytes, self.lanes = np.dtype(dtype).itemsize, lanes(dtype)
        self.vector = ir.VectorType(self.number, self.lanes)

    def array(self, i):
        """The address of the first element of argument i, an array."""
        return self.context.make_array(self.signature.args[i])(self.context, self.builder, self.arguments[i]).data

    def integer(self, i):
        return self.context.cast(self.builder, self.arguments[i], self.signature.args[i], types.intp)

    def constant(self, value):
        return self.context.get_constant(types.intp, value)

    def add(self, a, b):
        return self.builder.add(a, b)

    def mul(self, a, b):
        return self.builder.mul(a, self.constant(b) if isinstance(b, int) else b)

    def load(self, base, place):
        return self.builder.load(self.builder.gep(base, [place]), align=self.bytes)

    def load_vector(self, base, place):
        address = self.builder.bitcast(self.builder.gep(base, [place]), self.vector.as_pointer())
        return self.builder.load(address, align=self.bytes)

    def store_vector(self, value, base, place):
        address = self.builder.bitcast(self.builder.gep(base, [place]), self.vector.as_pointer())
        self.builder.store(value, address, align=self.bytes)

    def spread(self, number):
        """A vector of equal numbers."""
        one = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(one, ir.Constant(self.vector, ir.Undefined), zeros)

    def variables(self, count):
        """Vectors that start as zero and change in a loop."""
        made = [cgutils.alloca_once(self.builder, self.vector) for _ in range(count)]
        for each in made:
            self.builder.store(ir.Constant(self.vector, [0.0] * self.lanes), each)
        return made

    def multiply_add(self, a, b, variable):
        product = self.builder.fmul(a, b, flags=_CONTRACT)
        self.builder.store(self.builder.fadd(product, self.builder.load(variable), flags=_CONTRACT), variable)

    def total(self, vector):
        """The sum of a vector's elements, in halves."""
        width = self.lanes
        while width > 1:
            width //= 2
            halves = [ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(k, k + width))) for k in (0, width)]
            low, high = (self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), half) for half in halves)
            vector = self.builder.fadd(low, high)
        return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


@lru_cache(maxsize=None)
def product_tile(rows: int, vectors: int, dtype):
    """out[r, p] = sum of weights[t, r] x[offsets[t] + p] over terms t, for `rows` rows and `vectors` vectors of places p.

    Called with (weights, its start, x, its start, offsets, first term, last term, out, its start, out's distance between rows).
    """

    @intrinsic
    def tile(_typing, weights, weights_start, x, x_start, offsets, first, last, out, out_start, stride):
        def code(context, builder, signature, arguments):
            e = _Emitter(context, builder, signature, arguments, dtype)
            weights, x, offsets, out = e.array(0), e.array(2), e.array(4), e.array(7)
            weights_start, x_start, first, last = e.integer(1), e.integer(3), e.integer(5), e.integer(6)
            sums = e.variables(rows * vectors)
            with cgutils.for_range(builder, builder.sub(last, first)) as loop:
                place = e.add(x_start, e.load(offsets, e.add(first, loop.index)))
                columns = [e.load_vector(x, e.add(place, e.constant(v * e.lanes))) for v in range(vectors)]
                term = e.add(weights_start, e.mul(loop.index, rows))
                for r in range(rows):
                    weight = e.spread(e.load(weights, e.add(term, e.constant(r))))
                    for v in range(vectors):
                        e.multiply_add(weight, columns[v], sums[r * vectors + v])
            for r in range(rows):
                row = e.add(e.integer(8), e.mul(e.integer(9), r))
                for v in range(vectors):
                    e.store_vector(builder.load(sums[r * vectors + v]), out, e.add(row, e.constant(v * e.lanes)))
            return context.get_dummy_value()

        return types.void(weights, weights_start, x, x_start, offsets, first, last, out, out_start, stride), code

    return tile


@lru_cache(maxsize=None)
def dot_tile(rows: int, terms: int, dtype):
    """out[r, t] += sum of g[r, p] x[offsets[t] + p] over `count` places p, for `rows` rows and `terms` terms.

    Called with (g, its start, g's distance between rows, x, its start, offsets, first term, count, out, its start,
    out's distance between rows). count is rounded up to whole vectors.
    """

    @intrinsic
    def tile(_typing, g, g_start, g_stride, x, x_start, offsets, first, count, out, out_start, stride):
        def code(context, builder, signature, arguments):
            e = _Emitter(context, builder, signature, arguments, dtype)
            g, x, offsets, out = e.array(0), e.array(3), e.array(5), e.array(8)
            first = e.integer(6)
            g_rows = [e.add(e.integer(1), e.mul(e.integer(2), r)) for r in range(rows)]
            x_rows = [e.add(e.integer(4), e.load(offsets, e.add(first, e.constant(t)))) for t in range(terms)]
            sums = e.variables(rows * terms)
            steps = builder.sdiv(e.add(e.integer(7), e.constant(e.lanes - 1)), e.constant(e.lanes))
            with cgutils.for_range(builder, steps) as loop:
                p = e.mul(loop.index, e.lanes)
                factors = [e.load_vector(g, e.add(row, p)) for row in g_rows]
                for t in range(terms):
                    column = e.load_vector(x, e.add(x_rows[t], p))
                    for r in range(rows):
                        e.multiply_add(factors[r], column, sums[r * terms + t])
            for r in range(rows):
                row = e.add(e.integer(9), e.mul(e.integer(10), r))
                for t in range(terms):
                    address = builder.gep(out, [e.add(row, e.constant(t))])
                    total = e.total(builder.load(sums[r * terms + t]))
                    builder.store(builder.fadd(builder.load(address), total), address)
            return context.get_dummy_value()

        return types.void(g, g_start, g_stride, x, x_start, offsets, first, count, out, out_start, stride), code

    return tile
