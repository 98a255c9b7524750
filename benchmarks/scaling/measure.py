"""Measures communication and training steps on 1 to 4 ranks, and takes the constants of the formulas from 2 of them."""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from . import costs

MEASURED = Path(__file__).parent / "measured.json"
RANKS = (1, 2, 3, 4)
ROUNDS = (
    6  # launches of each number of ranks, by turns; of each time the least counts, from the launch that others disturbed least
)


def measure() -> dict:
    """{"processors": how many, "python": its version, "1": what benchmarks/scaling/ranks.py printed on one rank, ...}."""
    found: dict[str, list[dict]] = {str(n): [] for n in RANKS}
    for _ in range(ROUNDS):
        for n in RANKS:
            command = [sys.executable, "-m", "backlight", "launch", "-n", str(n), "--threads", "1", "--timeout", "300"]
            result = subprocess.run([*command, "-m", "benchmarks.scaling.ranks"], stdout=subprocess.PIPE, text=True, check=True)
            found[str(n)].append(json.loads(result.stdout))
    from backlight.distributed.launched import processors

    return {
        "processors": processors(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{n: _least(results) for n, results in found.items()},
    }


def _least(values: list):
    if isinstance(values[0], dict):
        return {key: _least([value[key] for value in values]) for key in values[0]}
    return min(values)


def load(path: Path = MEASURED) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def fit(measured: dict) -> costs.Network:
    """The constants of this machine: all from two ranks, but `switch`, which needs more ranks than processors and comes from three.

    Of both messages and allreduce it is allreduce that counts: there all ranks copy at once, and share the memory's bandwidth."""
    two, smallest = measured["2"], "8"
    latency, addition = two["allreduce"][smallest], two["addition"]
    large = [size for size in two["allreduce"] if int(size) >= 1 << 20]
    byte = statistics.median((two["allreduce"][size] - 2 * latency) / int(size) - addition / 2 for size in large)
    medium = "16384"
    handshake = two["allreduce"][medium] - latency - int(medium) * (byte + addition)
    rounds = 2  # of recursive doubling among three
    switch = max(0.0, measured["3"]["allreduce"][smallest] / rounds - latency)
    return costs.Network("this machine", latency, byte, addition, measured["processors"], max(0.0, handshake), switch)


def workload(measured: dict) -> costs.Workload:
    """The training step of ranks.py, on one rank; forward is a third of it, as for linear layers."""
    one = measured["1"]
    return costs.Workload("measured here", one["alone"] / 3, one["alone"] * 2 / 3, one["gradients"])


def remote(measured: dict) -> tuple[float, float]:
    """What rpc takes for a message, one way: seconds, and seconds per byte."""
    times = measured["2"]["rpc"]
    smallest, largest = min(times, key=int), max(times, key=int)
    byte = (times[largest] - times[smallest]) / int(largest) / 2
    return times[smallest] / 2, byte
