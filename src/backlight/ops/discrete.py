"""Counts drawn at random, on PyTorch's stream: poisson, binomial. One number of the stream after the other, as it is used."""

from __future__ import annotations

import math

import numpy as np

from .. import batching, random
from ..creation import no_gradient
from ..op import check_broadcast, op, public
from ..state import modes
from ..tensor import Tensor
from .check import not_implemented, not_tensor
from .pointwise import not_differentiable


def _uniform(generator):
    """Draws single numbers from [0, 1)."""
    double = np.dtype("f8")
    return lambda: float(random.uniform((), double, generator=generator))


def _poisson_count(rate, draw):
    """One Poisson number: by the waiting times' product, or for large rates by transformed rejection (Hörmann 1993, PTRS)."""
    if rate < 10:
        if rate == 0:
            return 0
        count, product, limit = 0, 1.0, math.exp(-rate)
        while True:
            product *= draw()
            if product <= limit:
                return count
            count += 1
    root = math.sqrt(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    squeeze = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = draw() - 0.5, draw()
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= squeeze:
            return k
        if k < 0 or (us < 0.013 and v > us):
            continue
        bound = -rate + k * math.log(rate) - math.lgamma(k + 1)
        if math.log(v) + math.log(inverse_alpha) - math.log(a / (us * us) + b) <= bound:
            return k


def _binomial_count(n, p, draw):
    """One binomial number: by geometric gaps, or for many successes by transformed rejection (Hörmann 1993, BTRS)."""
    if n <= 0 or p <= 0:
        return 0
    if p >= 1:
        return n
    if p > 0.5:
        return n - _binomial_count(n, 1 - p, draw)
    if math.isnan(p):
        return math.nan
    return _many_of(n, p, draw) if n * p >= 10 else _few_of(n, p, draw)


def _few_of(n, p, draw):
    total, count, slope = 0.0, 0, math.log1p(-p)
    while True:
        u = draw()
        total += math.ceil(math.log(u) / slope) if u > 0 else math.inf
        if total > n:
            return count
        count += 1


_STIRLING = (0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
             0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287)  # fmt: skip


def _stirling_rest(k):
    """log(k!) minus Stirling's approximation."""
    if k <= 9:
        return _STIRLING[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _many_of(n, p, draw):
    deviation = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    squeeze = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = math.floor((n + 1) * p)
    while True:
        u, v = draw() - 0.5, draw()
        us = 0.5 - abs(u)
        k = math.floor((2 * a / us + b) * u + c)
        if us >= 0.07 and v <= squeeze:
            return k
        if k < 0 or k > n:
            continue
        v = math.log(v * alpha / (a / (us * us) + b))
        bound = (
            (m + 0.5) * math.log((m + 1) / (r * (n - m + 1)))
            + (n + 1) * math.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * math.log(r * (n - k + 1) / (k + 1))
            + _stirling_rest(m) + _stirling_rest(n - m) - _stirling_rest(k) - _stirling_rest(n - k)
        )  # fmt: skip
        if v <= bound:
            return k


def _poisson_arrays(x, generator):
    draw = _uniform(generator)
    return np.array([_poisson_count(float(rate), draw) for rate in x.reshape(-1)], np.float64).reshape(x.shape).astype(x.dtype)


def _binomial_arrays(count, prob, generator):
    draw = _uniform(generator)
    pairs = zip(count.reshape(-1).tolist(), prob.reshape(-1).tolist())
    return np.array([_binomial_count(n, p, draw) for n, p in pairs], np.float64).reshape(count.shape).astype(count.dtype)


_poisson = op("poisson", _poisson_arrays, lambda g, _input, _out, _generator: no_gradient(g), batch=batching.random_rule)
_binomial = op("binomial", _binomial_arrays,
    lambda _g, _count, _prob, _out, _generator: not_differentiable("binomial"),
    lambda _g, _count, _prob, _out, _generator: not_differentiable("binomial"), node="NotImplemented")  # fmt: skip


@public(method=False)
def poisson(input, generator=None):
    """Poisson numbers with the rates in `input`, in its type. (*S) -> (*S). Its gradient is zero."""
    if not input.dtype.is_floating_point:
        raise not_implemented("poisson_cpu", input)
    rates = batching.all_values(input)
    if rates.size and rates.min() < 0:
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    return _poisson(batching.drawn_from(input) if modes.levels else input, generator)


@public(method=False)
def binomial(count, prob, generator=None):
    """Numbers of successes in `count` trials of probability `prob`. (*S), (*S) -> (*S). Not differentiable."""
    if not (isinstance(count, Tensor) and isinstance(prob, Tensor)):
        raise not_tensor("binomial", count=count, prob=prob)
    if not count.dtype.is_floating_point or count.dtype is not prob.dtype:
        raise RuntimeError(f"Found dtype {prob.dtype} but expected {count.dtype}")
    check_broadcast(count.array.shape, prob.array.shape)
    shape = np.broadcast_shapes(count.array.shape, prob.array.shape)
    return _binomial(count.expand(shape), prob.expand(shape), generator)
