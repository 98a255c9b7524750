"""Normal random numbers from uniform ones, with PyTorch's bits: random.py's `_box_muller32` in one pass.

The logarithm, sine and cosine are those of the Cephes library, as PyTorch's vectorised code rounds them: nothing may be
contracted here but where it says so.
"""

from __future__ import annotations

import numpy as np

from . import threads
from .compiling import jit, kernel, multiply_add, single_bits, single_from_bits, take

CHUNK = 256  # blocks of 16 numbers
f, i = np.float32, np.int32
exactly = jit(error_model="numpy", forceinline=True)


@exactly
def _log(x):
    """The natural logarithm of a positive normal number."""
    exponent = (single_bits(x) - i(0x3F3504F3)) >> i(23)  # so that the mantissa lies in [sqrt(1/2), sqrt(2))
    t = single_from_bits(single_bits(x) - (exponent << i(23))) - f(1)
    e, square = f(exponent), t * t
    p = multiply_add(f(7.0376836292e-2), t, f(-1.1514610310e-1))
    p = multiply_add(p, t, f(1.1676998740e-1))
    p = multiply_add(p, t, f(-1.2420140846e-1))
    p = multiply_add(p, t, f(1.4249322787e-1))
    p = multiply_add(p, t, f(-1.6668057665e-1))
    p = multiply_add(p, t, f(2.0000714765e-1))
    p = multiply_add(p, t, f(-2.4999993993e-1))
    p = multiply_add(p, t, f(3.3333331174e-1))
    result = multiply_add(p * t, square, e * f(-2.12194440e-4)) - f(0.5) * square
    return (result + t) + e * f(0.693359375)


@exactly
def _sine_and_cosine(x):
    """Of a number in [0, 2 pi]."""
    octant = (i(x * f(1.2732395447351628)) + i(1)) & ~i(1)
    wide = f(octant)
    rest = multiply_add(wide, f(-0.78515625), x)
    rest = multiply_add(wide, f(-2.4187564849853515625e-4), rest)
    rest = multiply_add(wide, f(-3.77489497744594108e-8), rest)
    square = rest * rest
    p = multiply_add(f(2.443315711809948e-5), square, f(-1.388731625493765e-3))
    p = multiply_add(p, square, f(4.166664568298827e-2)) * square
    cosine = multiply_add(p, square, square * f(-0.5)) + f(1)
    p = multiply_add(f(-1.9515295891e-4), square, f(8.3321608736e-3))
    p = multiply_add(p, square, f(-1.6666654611e-1)) * square
    sine = multiply_add(p, rest, rest)
    swap = (octant & i(2)) != 0
    a, b = cosine if swap else sine, sine if swap else cosine
    a = -a if octant & i(4) else a
    return a, -b if (octant + i(2)) & i(4) else b


def _box_muller(unit, out, queue):
    """In each block of 16, number j and number j + 8 are one pair."""
    blocks = unit.size // 16
    while True:
        start = take(queue) * CHUNK
        if start >= blocks:
            return
        for block in range(start, min(start + CHUNK, blocks)):
            first, second = unit[16 * block : 16 * block + 8], unit[16 * block + 8 : 16 * block + 16]
            cosines, sines = out[16 * block : 16 * block + 8], out[16 * block + 8 : 16 * block + 16]
            for j in range(8):
                radius = np.sqrt(_log(f(1) - first[j]) * f(-2))
                sine, cosine = _sine_and_cosine(second[j] * f(6.283185307179586))
                cosines[j] = cosine * radius
                sines[j] = sine * radius


_box_muller = kernel(_box_muller, exact=True)


def box_muller(unit):
    """Standard normal numbers from uniform float32 numbers in [0, 1), of which there are a multiple of 16."""
    out = np.empty(unit.shape, np.float32)
    threads.run(_box_muller, -(-unit.size // (16 * CHUNK)), np.ascontiguousarray(unit).reshape(-1), out.reshape(-1))
    return out
