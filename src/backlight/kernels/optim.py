"""Steps of optimizers: parameter, gradient and state are read and written once, where NumPy goes over them a dozen times.

The arithmetic is that of `_update` in optim/, in the same order.
"""

from __future__ import annotations

import numpy as np

from . import threads
from .compiling import kernel, take

CHUNK = 1 << 13  # elements: five arrays' parts lie in the second-level cache


def dense(*arrays) -> bool:
    """Whether the arrays have one type that kernels compute in and one contiguous layout, so that they can be seen flat."""
    first = arrays[0]
    return first.dtype.char in "fd" and all(
        a is None or (a.dtype is first.dtype and a.shape == first.shape and a.flags.c_contiguous) for a in arrays
    )


@kernel
def _adam(g, p, mean, square, largest, amsgrad, sign, decay, shrink, weight, keep, weight_square, correction, eps, rate, queue):
    while True:
        start = take(queue) * CHUNK
        if start >= p.size:
            return
        gs, ps, means = g[start : start + CHUNK], p[start : start + CHUNK], mean[start : start + CHUNK]
        squares, most = square[start : start + CHUNK], largest[start : start + CHUNK]
        for i in range(ps.size):
            x = ps[i]
            d = sign * gs[i]
            if decay != 0:  # also where x is infinite, no decay means no change
                d += decay * x
            m = means[i] + weight * (d - means[i])
            v = squares[i] * keep + weight_square * d * d
            means[i], squares[i] = m, v
            if amsgrad:
                v = most[i] if most[i] > v else v
                most[i] = v
            ps[i] = x * shrink - rate * m / (np.sqrt(v) / correction + eps)


def adam(g, p, mean, square, largest, factors) -> None:
    """One step of Adam, in place. `factors` are those of optim.Adam; `largest` is None without amsgrad."""
    decay, shrink, weight, keep, weight_square, correction, eps, rate, maximize = factors
    number = p.dtype.type
    numbers = [
        -1 if maximize else 1,
        decay or 0,
        1 if shrink is None else shrink,
        weight,
        keep,
        weight_square,
        correction,
        eps,
        rate,
    ]
    flat = [a.reshape(-1) for a in (g, p, mean, square, square if largest is None else largest)]
    threads.run(_adam, -(-p.size // CHUNK), *flat, largest is not None, *map(number, numbers))


@kernel
def _sgd(g, p, sign, decay, rate, queue):
    while True:
        start = take(queue) * CHUNK
        if start >= p.size:
            return
        gs, ps = g[start : start + CHUNK], p[start : start + CHUNK]
        for i in range(ps.size):
            d = sign * gs[i]
            if decay != 0:
                d += decay * ps[i]
            ps[i] -= rate * d


@kernel
def _sgd_momentum(g, p, buffer, nesterov, sign, decay, momentum, keep, rate, queue):
    while True:
        start = take(queue) * CHUNK
        if start >= p.size:
            return
        gs, ps, buffers = g[start : start + CHUNK], p[start : start + CHUNK], buffer[start : start + CHUNK]
        for i in range(ps.size):
            d = sign * gs[i]
            if decay != 0:
                d += decay * ps[i]
            b = buffers[i] * momentum + keep * d
            buffers[i] = b
            ps[i] -= rate * (d + momentum * b if nesterov else b)


def sgd(g, p, buffer, factors) -> None:
    """One step of stochastic gradient descent, in place. `factors` are those of optim.SGD; no momentum without a buffer."""
    rate, momentum, keep, decay, nesterov, maximize = factors
    number = p.dtype.type
    numbers = [number(-1 if maximize else 1), number(0 if decay is None else decay)]
    chunks, flat = -(-p.size // CHUNK), [g.reshape(-1), p.reshape(-1)]
    if buffer is None:
        threads.run(_sgd, chunks, *flat, *numbers, number(rate))
    else:
        numbers += [number(momentum), number(1 if keep is None else keep), number(rate)]
        threads.run(_sgd_momentum, chunks, *flat, buffer.reshape(-1), nesterov, *numbers)
