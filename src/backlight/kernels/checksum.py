"""CRC-32, the checksum of zip archives, at the speed of memory: torch.load verifies what it reads (benchmarks: load).

64 bytes at a time are multiplied, as polynomials over two elements, by powers of x that don't change the remainder, and added to
the next 64; zlib finishes with the 16 bytes that are left (Gopal et al. 2009, "Fast CRC computation for generic polynomials").
"""

from __future__ import annotations

import zlib

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from .compiling import intrinsic, kernel

AVAILABLE = bool(llvm.get_host_cpu_features().get("pclmul"))
BLOCK = 64  # bytes: four registers
# x^(4 * 128 + 32), x^(4 * 128 - 32) and x^(128 + 32), x^(128 - 32) modulo the CRC's polynomial, bits reversed
_FOUR_REGISTERS, _ONE_REGISTER = (0x154442BD4, 0x1C6E41596), (0x1751997D0, 0x0CCAA009E)


@intrinsic
def _fold(_typing, data, _blocks, state):
    """state (16 bytes) = what is left of the first so many blocks of data. `state` holds what is added to the first register."""

    def code(context, builder, signature, arguments):
        vector, byte = ir.VectorType(ir.IntType(64), 2), ir.IntType(8)
        source, target = (context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (0, 2))
        multiply = builder.module.declare_intrinsic("llvm.x86.pclmulqdq", (), ir.FunctionType(vector, [vector, vector, byte]))

        def load(base, place):
            address = builder.gep(base, [place])
            return builder.load(builder.bitcast(address, vector.as_pointer()), align=1)

        def folded(register, constants, more):
            factor = ir.Constant(vector, list(constants))
            low, high = (builder.call(multiply, [register, factor, ir.Constant(byte, half)]) for half in (0x00, 0x11))
            return builder.xor(builder.xor(low, high), more)

        def place(block, register):
            start = builder.mul(block, context.get_constant(types.intp, BLOCK))
            return builder.add(start, context.get_constant(types.intp, 16 * register))

        zero, one = context.get_constant(types.intp, 0), context.get_constant(types.intp, 1)
        registers = [cgutils.alloca_once(builder, vector) for _ in range(4)]
        for i, register in enumerate(registers):
            first = load(source, place(zero, i))
            builder.store(builder.xor(first, load(target, zero)) if i == 0 else first, register)
        with cgutils.for_range(builder, builder.sub(arguments[1], one)) as loop:
            for i, register in enumerate(registers):
                more = load(source, place(builder.add(loop.index, one), i))
                builder.store(folded(builder.load(register), _FOUR_REGISTERS, more), register)
        total = builder.load(registers[0])
        for register in registers[1:]:
            total = folded(total, _ONE_REGISTER, builder.load(register))
        builder.store(total, builder.bitcast(target, vector.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.intp, state), code


@kernel
def _fold_blocks(data, blocks, state):
    _fold(data, blocks, state)


def crc32(data: np.ndarray) -> int:
    """zlib.crc32 of an array of bytes."""
    blocks = data.size // BLOCK
    if not AVAILABLE or blocks < 2:
        return zlib.crc32(data.data)
    state = np.zeros(16, np.uint8)
    state[:4] = 0xFF  # a CRC begins with ones
    _fold_blocks(data, blocks, state)
    return zlib.crc32(data[blocks * BLOCK :].data, zlib.crc32(state.data, 0xFFFFFFFF))
