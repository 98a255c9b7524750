"""What a row can't do without, and how long this machine takes for just that."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import NamedTuple

import numpy as np


class Floor(NamedTuple):
    """Matrix products (count, m, k, n), bytes read or written, and calls of NumPy that a workload needs at least."""

    gemms: tuple[tuple[int, int, int, int], ...] = ()
    moved: int = 0
    calls: int = 0


def measure(floor: Floor) -> dict:
    """The seconds of the floor on this machine, with the threads that NumPy has here, and which of the three binds."""
    found = {
        "matrix products": sum(count * gemm_seconds(m, k, n) for count, m, k, n in floor.gemms),
        "memory": copy_seconds(floor.moved // 2),
        "calls": floor.calls * call_seconds() if floor.calls else 0.0,
    }
    binding = max(found, key=found.__getitem__)
    return {"seconds": found[binding], "binding": binding, "all": found}


def gemm_seconds(m: int, k: int, n: int) -> float:
    """The least time of NumPy's product of m x k and k x n float32 matrices."""
    a, b, out = np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.empty((m, n), np.float32)
    return _least(lambda: np.matmul(a, b, out=out))


def copy_seconds(size: int) -> float:
    """The least time to copy so many bytes, which reads and writes them, with as many threads as NumPy may use."""
    if not size:
        return 0.0
    threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    source, target = np.ones(size, np.uint8), np.empty(size, np.uint8)
    alone = _least(lambda: np.copyto(target, source))
    if threads == 1:
        return alone
    slices = list(zip(np.array_split(target, threads), np.array_split(source, threads)))
    with ThreadPoolExecutor(threads) as pool:  # for small arrays, handing over the work takes longer than doing it
        return min(alone, _least(lambda: list(pool.map(lambda pair: np.copyto(*pair), slices))))


def call_seconds() -> float:
    """The least time per call of NumPy's 8x8 addition."""
    a = np.ones((8, 8), np.float32)

    def calls():
        for _ in range(1000):
            a + a

    return _least(calls) / 1000


def _least(function, seconds: float = 0.01) -> float:
    """The least time of several runs: at least three, and `seconds` together."""
    function()
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)
