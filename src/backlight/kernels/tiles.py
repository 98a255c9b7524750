"""The inner loops of convolutions: a tile of sums that stays in vector registers, and rows moved by whole vectors.

LLVM doesn't keep a tile of sums in registers by itself, so these functions for kernels are written in its own language, with
vector types. They take (array, place in it) as C takes addresses. Both tiles read x through a table of offsets, one for each
term of the sum: a matrix product has its rows there, a convolution its channels and places of its kernel.
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from .compiling import called, intrinsic

_FEATURES = llvm.get_host_cpu_features()
VECTOR_BYTES = 64 if _FEATURES.get("avx512f") else 32 if _FEATURES.get("avx") else 16
CONTRACT = ("contract",)  # a product and a sum may become one multiply-add
INDEX = ir.IntType(32)
TERMS = 128  # added at once: longer sums lose more to rounding than sums of sums


@called
def spaced(n, step):
    """The places 0, step, 2 step, ... of n terms of a sum."""
    out = np.empty(n, np.int64)
    for i in range(n):
        out[i] = i * step
    return out


def lanes(dtype) -> int:
    """How many numbers of a type a vector register holds."""
    return VECTOR_BYTES // np.dtype(dtype).itemsize


class Emitter:
    """Writes the code of one call: its arguments, and loads, stores and multiply-adds of vectors of an array's type."""

    def __init__(self, context, builder, signature, arguments, like):
        self.context, self.builder, self.signature, self.arguments = context, builder, signature, arguments
        self.number = context.get_data_type(signature.args[like].dtype)
        self.bytes = 4 if self.number == ir.FloatType() else 8
        self.lanes = VECTOR_BYTES // self.bytes
        self.vector = ir.VectorType(self.number, self.lanes)
        self.none, self.zero = ir.Constant(self.vector, ir.Undefined), ir.Constant(self.vector, [0.0] * self.lanes)

    def address(self, i):
        """The address of argument i's first element."""
        return self.context.make_array(self.signature.args[i])(self.context, self.builder, self.arguments[i]).data

    def integer(self, i):
        return self.context.cast(self.builder, self.arguments[i], self.signature.args[i], types.intp)

    def constant(self, value):
        return self.context.get_constant(types.intp, value)

    def plus(self, a, b):
        return self.builder.add(a, self.constant(b) if isinstance(b, int) else b)

    def times(self, a, b):
        return self.builder.mul(a, self.constant(b) if isinstance(b, int) else b)

    def load(self, base, place):
        return self.builder.load(self.builder.gep(base, [place]), align=self.bytes)

    def vector_address(self, base, place):
        return self.builder.bitcast(self.builder.gep(base, [place]), self.vector.as_pointer())

    def load_vector(self, base, place):
        return self.builder.load(self.vector_address(base, place), align=self.bytes)

    def store_vector(self, value, base, place):
        self.builder.store(value, self.vector_address(base, place), align=self.bytes)

    def shuffle(self, a, b, places):
        """The elements of a and b, one after the other, at these places."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INDEX, len(places)), list(places)))

    def spread(self, number):
        """A vector of equal numbers."""
        return self.shuffle(self.builder.insert_element(self.none, number, INDEX(0)), self.none, [0] * self.lanes)

    def between(self, start, low, high):
        """Which of the places start, start + 1, ... of a vector are in range(low, high)."""
        wide = ir.VectorType(ir.IntType(64), self.lanes)
        none = ir.Constant(wide, ir.Undefined)

        def spread(value):
            return self.shuffle(self.builder.insert_element(none, value, INDEX(0)), none, [0] * self.lanes)

        places = self.builder.add(spread(start), ir.Constant(wide, list(range(self.lanes))))
        above = self.builder.icmp_signed(">=", places, spread(low))
        return self.builder.and_(above, self.builder.icmp_signed("<", places, spread(high)))

    def masked(self, operation, result, *arguments):
        """A load or store of some of a vector's elements: arguments as LLVM's llvm.masked.load and .store have them."""
        name = f"llvm.masked.{operation}.v{self.lanes}f{8 * self.bytes}.p0"
        kind = ir.FunctionType(result, [a.type for a in arguments])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), arguments)

    def vectors(self, count):
        """How many vectors hold `count` numbers."""
        return self.builder.sdiv(self.plus(count, self.lanes - 1), self.constant(self.lanes))

    def variables(self, count):
        """Vectors that start as zero and change in a loop."""
        made = [cgutils.alloca_once(self.builder, self.vector) for _ in range(count)]
        for each in made:
            self.builder.store(self.zero, each)
        return made

    def multiply_add(self, a, b, variable):
        product = self.builder.fmul(a, b, flags=CONTRACT)
        self.builder.store(self.builder.fadd(product, self.builder.load(variable), flags=CONTRACT), variable)

    def totals(self, vectors):
        """The sum of each vector's elements, in vectors of such sums. One addition adds halves of two vectors."""
        made = []
        for first in range(0, len(vectors), self.lanes):
            level, width = vectors[first : first + self.lanes], self.lanes
            while width > 1:  # a vector holds lanes / width vectors' partial sums, `width` of each
                low = [k for k in range(2 * self.lanes) if k % width < width // 2]
                high = [k + width // 2 for k in low]
                pairs = zip(level[::2], [*level[1::2], *level[-1:]])
                level = [self.builder.fadd(self.shuffle(a, b, low), self.shuffle(a, b, high)) for a, b in pairs]
                width //= 2
            made += level
        return made


@cache
def product_tile(rows: int, vectors: int):
    """out[r, p] = sum of weights[r, t] x[offsets[t] + p] over terms t, for `rows` rows and `vectors` vectors of places p.

    Called with (weights, place of the first row, distance between rows, number of rows that exist, places of the terms in
    a row, x, place, offsets, first term, last term, out, place, distance between rows). Rows that don't exist repeat the last.
    """

    @intrinsic
    def tile(
        _typing, weights, start, distance, existing, term_places, x, x_start, offsets, first, last, out, out_start, out_distance
    ):
        def code(context, builder, signature, arguments):
            e = Emitter(context, builder, signature, arguments, 0)
            weights, term_places, x, offsets, out = (e.address(i) for i in (0, 4, 5, 7, 10))
            final = e.plus(e.integer(3), -1)
            starts = []
            for r in range(rows):
                row = builder.select(builder.icmp_signed(">", e.constant(r), final), final, e.constant(r))
                starts.append(e.plus(e.integer(1), e.times(e.integer(2), row)))
            sums, totals = e.variables(rows * vectors), e.variables(rows * vectors)
            with cgutils.for_range_slice(builder, e.integer(8), e.integer(9), e.constant(TERMS), inc=True) as (block, _count):
                beyond = builder.icmp_signed(">", e.plus(block, TERMS), e.integer(9))
                end = builder.select(beyond, e.integer(9), e.plus(block, TERMS))
                with cgutils.for_range(builder, builder.sub(end, block)) as loop:
                    t = e.plus(block, loop.index)
                    place, term = e.plus(e.integer(6), e.load(offsets, t)), e.load(term_places, t)
                    columns = [e.load_vector(x, e.plus(place, v * e.lanes)) for v in range(vectors)]
                    for r in range(rows):
                        weight = e.spread(e.load(weights, e.plus(starts[r], term)))
                        for v in range(vectors):
                            e.multiply_add(weight, columns[v], sums[r * vectors + v])
                for one, total in zip(sums, totals):
                    builder.store(builder.fadd(builder.load(total), builder.load(one)), total)
                    builder.store(e.zero, one)
            for r in range(rows):
                row = e.plus(e.integer(11), e.times(e.integer(12), r))
                for v in range(vectors):
                    e.store_vector(builder.load(totals[r * vectors + v]), out, e.plus(row, v * e.lanes))
            return context.get_dummy_value()

        given = (
            weights,
            start,
            distance,
            existing,
            term_places,
            x,
            x_start,
            offsets,
            first,
            last,
            out,
            out_start,
            out_distance,
        )
        return types.void(*given), code

    return tile


@cache
def dot_tile(rows: int, terms: int):
    """out[r, t] += sum of g[r, p] x[offsets[t] + p] over `count` places p, for `rows` rows and `terms` terms.

    Called with (g, place, distance between rows, x, place, offsets, first term, count, out, place, distance between rows).
    count is rounded up to whole vectors.
    """

    @intrinsic
    def tile(_typing, g, g_start, g_distance, x, x_start, offsets, first, count, out, out_start, out_distance):
        def code(context, builder, signature, arguments):
            e = Emitter(context, builder, signature, arguments, 0)
            g, x, offsets, out = (e.address(i) for i in (0, 3, 5, 8))
            g_rows = [e.plus(e.integer(1), e.times(e.integer(2), r)) for r in range(rows)]
            x_rows = [e.plus(e.integer(4), e.load(offsets, e.plus(e.integer(6), t))) for t in range(terms)]
            sums = e.variables(rows * terms)
            steps = e.vectors(e.integer(7))
            with cgutils.for_range(builder, steps) as loop:
                p = e.times(loop.index, e.lanes)
                factors = [e.load_vector(g, e.plus(row, p)) for row in g_rows]
                for t in range(terms):
                    column = e.load_vector(x, e.plus(x_rows[t], p))
                    for r in range(rows):
                        e.multiply_add(factors[r], column, sums[r * terms + t])
            totals = e.totals([builder.load(each) for each in sums])
            for r in range(rows):
                row = e.plus(e.integer(9), e.times(e.integer(10), r))
                for t in range(terms):
                    address, i = builder.gep(out, [e.plus(row, t)]), r * terms + t
                    total = builder.extract_element(totals[i // e.lanes], INDEX(i % e.lanes))
                    builder.store(builder.fadd(builder.load(address), total), address)
            return context.get_dummy_value()

        return types.void(g, g_start, g_distance, x, x_start, offsets, first, count, out, out_start, out_distance), code

    return tile


@intrinsic
def place_row(_typing, x, start, low, high, out, out_start, count):
    """out[out_start + j] = x[start + j] where low <= j < high and 0 elsewhere, for j up to count and to a whole vector."""

    def code(context, builder, signature, arguments):
        e = Emitter(context, builder, signature, arguments, 0)
        x, out = e.address(0), e.address(4)
        steps = e.vectors(e.integer(6))
        with cgutils.for_range(builder, steps) as loop:
            j = e.times(loop.index, e.lanes)
            mask = e.between(j, e.integer(2), e.integer(3))
            row = e.vector_address(x, e.plus(e.integer(1), j))
            e.store_vector(e.masked("load", e.vector, row, INDEX(e.bytes), mask, e.zero), out, e.plus(e.integer(5), j))
        return context.get_dummy_value()

    return types.void(x, start, low, high, out, out_start, count), code


@intrinsic
def store_row(_typing, x, start, count, added, out, out_start):
    """out[out_start + j] = x[start + j] + added for j in range(count). x is read up to a whole vector."""

    def code(context, builder, signature, arguments):
        e = Emitter(context, builder, signature, arguments, 0)
        x, out = e.address(0), e.address(4)
        added = e.spread(arguments[3])
        steps = e.vectors(e.integer(2))
        with cgutils.for_range(builder, steps) as loop:
            j = e.times(loop.index, e.lanes)
            value = builder.fadd(e.load_vector(x, e.plus(e.integer(1), j)), added)
            to = e.vector_address(out, e.plus(e.integer(5), j))
            e.masked("store", ir.VoidType(), value, to, INDEX(e.bytes), e.between(j, e.constant(0), e.integer(2)))
        return context.get_dummy_value()

    return types.void(x, start, count, added, out, out_start), code


@intrinsic
def select(_typing, condition, a, b):
    """`a if condition else b` without a branch, for conditions that can't be predicted."""

    def code(_context, builder, _signature, arguments):
        condition, a, b = arguments
        return builder.select(builder.icmp_unsigned("!=", condition, condition.type(0)), a, b)

    return (a(condition, a, b), code) if a == b else None
