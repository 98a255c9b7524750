"""The tables of docs/scaling.md, made from stored measurements, the formulas and the simulation."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path

from . import costs, measure, simulation
from .costs import Network, Workload

PAGE = Path(__file__).parent.parent.parent / "docs" / "scaling.md"

# Assumed, not measured: what such networks have, and what a processor adds per second.
ETHERNET = Network("10 Gbit/s Ethernet", latency=25e-6, byte=0.8e-9, addition=0.1e-9)
FABRIC = Network("100 Gbit/s fabric", latency=2e-6, byte=0.08e-9, addition=0.1e-9)
NETWORKS = (ETHERNET, FABRIC)
SMALL = Workload("1 M parameters", forward=0.005, backward=0.010, gradients=4e6)
MEDIUM = Workload("25 M parameters", forward=0.1, backward=0.2, gradients=100e6)
LARGE = Workload("1 B parameters", forward=2.0, backward=4.0, gradients=4e9)
WORKLOADS = (SMALL, MEDIUM, LARGE)
RANKS = (8, 64, 512, 4096, 10_000)
BUCKET = 25 * 2**20
SPREAD = 0.05  # of a rank's times for a step, as a part of their mean
STEPS = 20  # simulated of each


def measured_table(measured: dict) -> str:
    """Allreduce and a training step, as measured and as the formulas have it."""
    network, work = measure.fit(measured), measure.workload(measured)
    rows = [["", *(f"{n} ranks" for n in (2, 3, 4))]]
    for size in measured["2"]["allreduce"]:
        row = [f"allreduce of {_bytes(int(size))}"]
        row += [_compared(measured[str(n)]["allreduce"][size], costs.allreduce(n, int(size), network)) for n in (2, 3, 4)]
        rows.append(row)
    for key, name, size in (("alone", "training step, nothing sent", 0.0), ("ddp", "training step with DDP", work.gradients)):
        row = [name]
        for n in (2, 3, 4):
            row.append(_compared(measured[str(n)][key], costs.crowded_step(n, replace(work, gradients=size), network, BUCKET)))
        rows.append(row)
    return _table(rows)


def constants(measured: dict) -> str:
    """What the formulas were given, in one line each."""
    network, (latency, byte) = measure.fit(measured), measure.remote(measured)
    rows = [
        ["constant", "value", "from"],
        ["latency", _time(network.latency), "allreduce of 8 bytes, 2 ranks"],
        ["time per byte", f"{network.byte * 1e9:.3f} ns", "allreduce of 1 to 16 MiB, 2 ranks"],
        ["time per byte added", f"{network.addition * 1e9:.3f} ns", "NumPy's add, 4 MiB, both ranks at once"],
        ["added latency of messages over 4 KiB", _time(network.handshake), "allreduce of 16 KiB, 2 ranks"],
        ["added latency, more ranks than processors", _time(network.switch), "allreduce of 8 bytes, 3 ranks"],
        ["latency of rpc, one way", _time(latency), "a call and its answer with 8 bytes, 2 ranks"],
        ["time per byte of rpc, one way", f"{byte * 1e9:.3f} ns", "the same with 16 MiB"],
    ]
    return _table(rows)


@cache
def simulated(ranks: int, work: Workload, network: Network, spread: float, algorithm: str = "best") -> float:
    return simulation.ddp_step(ranks, work, network, BUCKET, spread, STEPS if ranks > 1 else 1000, algorithm)


def efficiency(ranks: int, work: Workload, network: Network, spread: float = SPREAD, algorithm: str = "best") -> float:
    """The part of the ranks' time in which they compute, each on a batch of its own."""
    return (work.forward + work.backward) / simulated(ranks, work, network, spread, algorithm)


def efficiency_table() -> str:
    rows = [["network", "model", "allreduce", *(f"{n:,}" for n in RANKS)]]
    for network in NETWORKS:
        for work in WORKLOADS:
            for algorithm in ("best", "ring"):
                values = [f"{efficiency(n, work, network, algorithm=algorithm):.0%}" for n in RANKS]
                rows.append([network.name, work.name, algorithm, *values])
    return _table(rows)


def stragglers_table() -> str:
    """What unequal ranks cost apart from all communication."""
    nothing = Network("none", 0.0, 0.0, 0.0)
    rows = [["ranks", *(f"spread {spread:.0%}" for spread in (0.01, 0.05, 0.1)), "σ·E[max]", "σ·√(2 ln n)"]]
    for n in RANKS:
        row = [f"{n:,}"]
        for spread in (0.01, 0.05, 0.1):
            row.append(f"+{1 / efficiency(n, MEDIUM, nothing, spread) - 1:.1%}")
        row += [f"+{0.05 * costs.expected_maximum(n):.1%}", f"+{0.05 * (2 * log(n)) ** 0.5:.1%}"]
        rows.append(row)
    return _table(rows)


def limits_table(measured: dict) -> str:
    """Where each design stops paying."""
    rows = [["design", "stops paying when", *(network.name for network in NETWORKS)]]

    def row(design: str, when: str, value) -> None:
        rows.append([design, when, *(f"{value(network):,.0f} ranks" for network in NETWORKS)])

    for size in (2**20, BUCKET):
        row(
            f"ring allreduce, {_bytes(size)}",
            "messages cost more than their bytes",
            lambda network, size=size: (
                size * network.byte / network.latency
            ),  # n where 2 (n - 1) latency = 2 (n - 1) / n size byte
        )
        row(
            f"ring allreduce, {_bytes(size)}",
            "Rabenseifner's takes half the time",
            lambda network, size=size: _ring_loses(size, network),
        )
    for work in WORKLOADS:
        row(
            f"DDP, {work.name}, batch divided among the ranks",
            "a step takes twice its share of the computing",
            lambda network, work=work: _divided(work, network, 2.0),
        )
    for work in WORKLOADS:
        row(
            f"one parameter server, {work.name}",
            "the server is always busy",
            lambda network, work=work: costs.server_limit(
                work.forward + work.backward, work.gradients, python_over(network, measured)
            ),
        )
    for microbatches in (8, 64):
        row(
            f"pipeline, {MEDIUM.name}, {microbatches} microbatches, 1 MiB between stages",
            "another stage makes the step longer",
            lambda network, m=microbatches: costs.pipeline_limit(m, MEDIUM, 2**20, python_over(network, measured)),
        )
        row(
            f"pipeline, {MEDIUM.name}, {microbatches} microbatches, 1 MiB between stages",
            "half the workers' time is lost",
            lambda network, m=microbatches: _half_lost(m, python_over(network, measured)),
        )
    return _table(rows)


def python_over(network: Network, measured: dict) -> Network:
    """A network as rpc has it: with the time that Python takes here to make, send and answer a message."""
    here, (latency, byte) = measure.fit(measured), measure.remote(measured)
    return replace(
        network,
        name=f"rpc over {network.name}",
        latency=network.latency + latency - here.latency,
        byte=network.byte + max(0.0, byte - here.byte),
    )


def _ring_loses(size: float, network: Network) -> int:
    n = 2
    while costs.ring(n, size, network) < 2 * costs.rabenseifner(n, size, network):
        n += 1
    return n


def _divided(work: Workload, network: Network, factor: float) -> int:
    """The first number of ranks at which dividing one batch gives a step that takes `factor` times the computing's share."""
    n = 1
    while True:
        part = replace(work, forward=work.forward / n, backward=work.backward / n)
        if costs.ddp_step(n, part, network, BUCKET) >= factor * (part.forward + part.backward):
            return n
        n += 1


def _half_lost(microbatches: int, network: Network) -> int:
    stages, compute = 1, microbatches * (MEDIUM.forward + MEDIUM.backward)
    while costs.pipeline_step(stages, microbatches, MEDIUM, 2**20, network) * stages < 2 * compute:
        stages += 1
    return stages


def tables(measured: dict) -> dict[str, str]:
    """Every table of the page by its name there."""
    return {
        "constants": constants(measured),
        "measured": measured_table(measured),
        "efficiency": efficiency_table(),
        "stragglers": stragglers_table(),
        "limits": limits_table(measured),
    }


def filled(page: str, measured: dict) -> str:
    """The page with its tables: each stands between `<!-- table NAME -->` and `<!-- end -->`."""
    for name, text in tables(measured).items():
        begin, end = f"<!-- table {name} -->\n", "<!-- end -->"
        page, count = re.subn(re.escape(begin) + ".*?" + end, lambda _: begin + text + "\n" + end, page, flags=re.S)  # noqa: B023
        if count != 1:
            raise ValueError(f"{PAGE} has {count} places for the table '{name}', not one")
    return page


def _compared(found: float, expected: float) -> str:
    return f"{_time(found)}, {_time(expected)} ({expected / found - 1:+.0%})"


def _table(rows: list[list[str]]) -> str:
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def _time(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def _bytes(size: int) -> str:
    for factor, unit in ((2**20, "MiB"), (2**10, "KiB")):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} bytes"
