"""A process that holds one library and runs its workloads when told to: `python -m benchmarks.worker torch`.

It reads lines of JSON from stdin, {"do": a method of Holder, its arguments}, and answers each with one line.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from functools import partial
from time import perf_counter

if sys.argv[1:2] in (["backlight"], ["torch"]):  # before NumPy, as where a program imports it first
    importlib.import_module(sys.argv[1])

from . import floors, memory, peers, workloads


def run(parts) -> dict[str, float]:
    """The seconds of each part, run once. What a part returns is freed after its successor's time was taken."""
    seconds, results = {}, ()
    for part in parts:
        start = perf_counter()
        result = part(*results)
        seconds[part.__name__] = perf_counter() - start
        results = (result,)
    seconds.pop("prepare", None)
    return seconds


def turn(parts, seconds: float) -> dict[str, float]:
    """The least seconds of each part, in runs that take about `seconds` together.

    At least five runs, where they are short enough: the least of them is one that no other process interrupted. The first
    run finds cold caches and doesn't count, unless it is the only one.
    """
    start = perf_counter()
    runs = [run(parts)]
    while (spent := perf_counter() - start) < seconds or (len(runs) <= 5 and spent < 10 * seconds):
        runs.append(run(parts))
    return {part: min(r[part] for r in runs[1:] or runs) for part in runs[0]}


class Holder:
    """The library's workloads by name, and those that were made. The public methods answer requests."""

    def __init__(self, library: str):
        if library in peers.LIBRARIES:
            self._workloads = peers.LIBRARIES[library]()
        else:
            self._package = importlib.import_module(library)
            self._workloads = {name: partial(workload, self._package) for name, workload in workloads.ALL.items()}
        self._made: dict = {}

    def names(self) -> list[str]:
        """Of the workloads that the library can do."""
        return [name for name, workload in self._workloads.items() if workload]

    def start(self, workload: str) -> dict[str, float]:
        """Makes the workload and runs it twice, since the first run may compile: the seconds of the second."""
        self._made[workload] = self._workloads[workload]()
        run(self._made[workload])
        return run(self._made[workload])

    def turn(self, workload: str, seconds: float) -> dict[str, float]:
        return turn(self._made[workload], seconds)

    def release(self) -> None:
        """Frees the memory of the workloads."""
        self._made.clear()
        gc.collect()

    def floor(self, workload: str) -> dict:
        return floors.measure(workloads.ROWS[workload].floor)

    def peak(self, workload: str) -> int:
        return memory.peak_growth(self._workloads[workload], run)

    def tape(self) -> dict[str, float]:
        return memory.tape(self._package)


def main() -> None:
    holder = Holder(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(holder, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
