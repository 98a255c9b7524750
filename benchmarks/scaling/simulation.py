"""The same by simulation: message by message, rank by rank, with ranks that aren't equally fast. Seeded, so the numbers are always the same."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import numpy as np

from . import costs

if TYPE_CHECKING:
    from .costs import Network, Workload


def ring(ready: np.ndarray, size: float, network: Network) -> np.ndarray:
    """When each rank has the result of an allreduce, if it comes to it at `ready`: every round waits for the left neighbour."""
    clock, n = ready.astype(float), len(ready)
    for turn in range(2 * (n - 1)):
        added = size / n * network.addition if turn < n - 1 else 0.0
        clock = np.maximum(clock, np.roll(clock, 1)) + costs.message(size / n, network) + added
    return clock


def recursive_doubling(ready: np.ndarray, size: float, network: Network) -> np.ndarray:
    """The same for recursive doubling among a power of two of ranks."""
    clock, n = ready.astype(float), len(ready)
    for turn in range(int(math.log2(n))):
        partner = np.arange(n) ^ (1 << turn)
        clock = np.maximum(clock, clock[partner]) + costs.message(size, network) + size * network.addition
    return clock


def rabenseifner(ready: np.ndarray, size: float, network: Network) -> np.ndarray:
    """The same for Rabenseifner's algorithm among a power of two of ranks."""
    clock, n = ready.astype(float), len(ready)
    rounds = int(math.log2(n))
    for turn in [*range(rounds), *reversed(range(rounds))]:
        partner = np.arange(n) ^ (1 << turn)
        clock = np.maximum(clock, clock[partner])
        clock += costs.message(size / 2 ** (turn + 1), network)
    return clock + (n - 1) / n * size * network.addition  # the sums of the first half; each rank's take equally long


def ddp_step(
    ranks: int,
    work: Workload,
    network: Network,
    bucket: float,
    spread: float,
    steps: int,
    algorithm: str = "best",
    seed: int = 0,
) -> float:
    """The mean of so many steps of DistributedDataParallel, whose ranks' times vary by `spread` (the standard deviation of a step's time).

    A bucket's allreduce begins when the last rank has filled it and the one before is done, and ends for all at once: in `ring` and the others
    no rank is done before a late one has begun, and the last is done exactly the formula's time after that (tests/test_scaling.py)."""
    random = np.random.default_rng(seed)
    k = costs.buckets(work.gradients, bucket)
    c = costs.allreduce(ranks, work.gradients / k, network, algorithm)
    network = network.shared_by(ranks)
    parts = np.array([work.forward, *[work.backward / k] * k])
    deviations = (
        spread * (work.forward + work.backward) * np.sqrt(parts / parts.sum())
    )  # of independent parts, which add up to spread
    total = 0.0
    for _ in range(steps):
        times = np.maximum(parts + deviations * random.standard_normal((ranks, k + 1)), 0.1 * parts)
        full = times.cumsum(1).max(0)[1:]  # when the last rank has filled each bucket
        end = 0.0
        for moment in full:
            end = max(end, moment) + c
        total += end
    return total / steps


def server_step(workers: int, compute: float, size: float, network: Network, spread: float, steps: int, seed: int = 0) -> float:
    """The mean time of a step of workers that compute, then wait for a server that serves one after the other."""
    random = np.random.default_rng(seed)
    service = 2 * size * network.byte + size * network.addition
    times = np.maximum(compute * (1 + spread * random.standard_normal((steps, workers))), 0.1 * compute)
    waiting = [(times[0, worker] + network.latency, worker, 0) for worker in range(workers)]
    heapq.heapify(waiting)
    free, done = 0.0, np.zeros((steps, workers))
    while waiting:
        arrives, worker, step = heapq.heappop(waiting)
        free = max(free, arrives) + service
        done[step, worker] = free + network.latency
        if step + 1 < steps:
            heapq.heappush(waiting, (done[step, worker] + times[step + 1, worker] + network.latency, worker, step + 1))
    half = steps // 2  # the beginning, when all come at once, is left out
    return float((done[-1] - done[half]).mean() / (steps - 1 - half))


def pipeline_step(
    stages: int, microbatches: int, work: Workload, size: float, network: Network, spread: float, steps: int, seed: int = 0
) -> float:
    """The mean time of a step through a pipeline: a stage begins when the one before has sent, and it is done with the last microbatch."""
    random = np.random.default_rng(seed)
    hop = costs.message(size, network)
    total = 0.0
    for _ in range(steps):
        clock = np.zeros(microbatches)  # when each microbatch is done with the stage before
        for seconds, barrier in ((work.forward, False), (work.backward, True)):
            if barrier:
                clock = np.full(microbatches, clock[-1])  # the backward pass begins with the whole loss
            for stage in range(stages):
                times = np.maximum(
                    seconds / stages * (1 + spread * random.standard_normal(microbatches)), 0.1 * seconds / stages
                )
                arrived = clock + hop if stage else clock
                begun = np.concatenate([[0.0], times.cumsum()])
                # done[i] = max(arrived[i], done[i - 1]) + times[i], for all i at once
                clock = np.maximum.accumulate(arrived - begun[:-1]) + begun[1:]
        total += clock[-1]
    return total / steps
