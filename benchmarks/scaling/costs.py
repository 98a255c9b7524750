"""The cost of communication and of training steps, as formulas.

A message of m bytes takes `latency + m * byte` seconds (and a handshake, if it is long), and adding m bytes to m others `m * addition`. Allreduce's formulas are those of
Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, section 4.5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

EAGER = 4096  # bytes that MPI libraries send at once, without asking whether the receiver has a place for them


@dataclass(frozen=True)
class Network:
    """What connects the ranks. All in seconds, per message or per byte."""

    name: str
    latency: float
    byte: float
    addition: float
    processors: int = 0  # 0: each rank has a machine of its own; else all share one, with so many processors
    handshake: float = 0.0  # added to the latency of a message of more than EAGER bytes: the receiver is asked first
    switch: float = 0.0  # added to the latency where ranks share processors: until the one that has to answer is running

    def shared_by(self, ranks: int) -> Network:
        """The network as one of so many ranks sees it. On one machine messages are copies, and processors make them: ranks that share a
        processor wait for each other, with everything."""
        if not self.processors or ranks <= self.processors:
            return self
        crowd = math.ceil(ranks / self.processors)  # all wait for those that share one with most others
        return replace(self, latency=self.latency + self.switch, byte=self.byte * crowd, addition=self.addition * crowd)


@dataclass(frozen=True)
class Workload:
    """A training step of one rank."""

    name: str
    forward: float  # seconds
    backward: float
    gradients: float  # bytes


def start(size: float, network: Network) -> float:
    """Seconds until the bytes of a message begin to flow."""
    return network.latency + (network.handshake if size > EAGER else 0.0)


def message(size: float, network: Network) -> float:
    return start(size, network) + size * network.byte


def ring(ranks: int, size: float, network: Network) -> float:
    """Allreduce as reduce-scatter and allgather around a ring: moves the fewest bytes, with the most messages in a row."""
    share = (ranks - 1) / ranks * size
    return 2 * (ranks - 1) * start(size / ranks, network) + 2 * share * network.byte + share * network.addition


def recursive_doubling(ranks: int, size: float, network: Network) -> float:
    """Allreduce by exchanging everything with ever farther partners: the fewest messages, the most bytes."""
    rounds = math.ceil(math.log2(ranks))
    return rounds * (message(size, network) + size * network.addition)


def rabenseifner(ranks: int, size: float, network: Network) -> float:
    """Allreduce as reduce-scatter by halving and allgather by doubling: few messages and few bytes (for powers of two; else a little more)."""
    rounds, share = math.ceil(math.log2(ranks)), (ranks - 1) / ranks * size
    starts = 2 * sum(start(size / 2 ** (turn + 1), network) for turn in range(rounds))
    return starts + 2 * share * network.byte + share * network.addition


ALGORITHMS = {"ring": ring, "recursive doubling": recursive_doubling, "Rabenseifner": rabenseifner}


def allreduce(ranks: int, size: float, network: Network, algorithm: str = "best") -> float:
    """Seconds for one allreduce; by default with the algorithm that is best for this size, as MPI libraries choose."""
    if ranks == 1:
        return 0.0
    network = network.shared_by(ranks)
    if algorithm != "best":
        return ALGORITHMS[algorithm](ranks, size, network)
    return min(formula(ranks, size, network) for formula in ALGORITHMS.values())


def buckets(gradients: float, bucket: float) -> int:
    """Into how many buckets gradients are divided."""
    return max(1, round(gradients / bucket))


def ddp_step(ranks: int, work: Workload, network: Network, bucket: float, algorithm: str = "best") -> float:
    """Seconds for a step of DistributedDataParallel, all ranks equally fast, k buckets that fill at equal distances.

    A bucket's allreduce (c seconds) begins when the bucket is full and the one before is done: either computing sets the pace and the last
    bucket's allreduce comes on top, or communication does, which begins with the first bucket (Li et al., "PyTorch Distributed", 2020)."""
    k = buckets(work.gradients, bucket)
    c = allreduce(ranks, work.gradients / k, network, algorithm)
    return work.forward + max(work.backward + c, work.backward / k + k * c)


def crowded_step(ranks: int, work: Workload, network: Network, bucket: float) -> float:
    """The same on one machine whose processors the ranks share: nothing overlaps, because communicating takes a processor, too."""
    crowd = math.ceil(ranks / network.processors)
    k = buckets(work.gradients, bucket)
    return (work.forward + work.backward) * crowd + k * allreduce(ranks, work.gradients / k, network)


def server_step(workers: int, compute: float, size: float, network: Network) -> float:
    """Seconds for a step of each worker with one parameter server, which hands out `size` bytes of parameters and takes as many of gradients.

    A worker is alone until the server has no time left between the workers' requests; from then on they stand in a queue."""
    service = 2 * size * network.byte + size * network.addition
    return max(compute + 2 * network.latency + service, workers * service)


def server_limit(compute: float, size: float, network: Network) -> float:
    """The number of workers at which one server is busy all the time."""
    service = 2 * size * network.byte + size * network.addition
    return (compute + 2 * network.latency + service) / service


def pipeline_step(stages: int, microbatches: int, work: Workload, size: float, network: Network) -> float:
    """Seconds for a step of a model whose layers are spread over `stages` workers, in microbatches (Huang et al., "GPipe", 2019).

    `work` is that of one microbatch on one worker, `size` the bytes of what goes from stage to stage, once forward and once backward."""
    hop = message(size, network)
    return (microbatches + stages - 1) * (work.forward + work.backward) / stages + 2 * (stages - 1) * hop


def pipeline_limit(microbatches: int, work: Workload, size: float, network: Network) -> float:
    """The number of stages beyond which another one makes the step longer: what it saves is less than its two hops."""
    return math.sqrt((microbatches - 1) * (work.forward + work.backward) / (2 * message(size, network)))


@cache
def expected_maximum(ranks: int) -> float:
    """The expected maximum of so many standard normal numbers: how far, in standard deviations, the slowest rank is behind the mean.

    About sqrt(2 ln n), which is a tenth too high at 10,000; this integrates 1 - F(x)**n, with the part below 0 subtracted."""
    steps, low, high = 4000, -9.0, 9.0
    width = (high - low) / steps
    total = 0.0
    for i in range(steps):
        x = low + (i + 0.5) * width
        below = (0.5 * math.erfc(-x / math.sqrt(2))) ** ranks
        total += width * (1 - below if x > 0 else -below)
    return total
