"""Runs the workloads of both packages by turns of a few milliseconds, so that a busy machine slows both.

Each package has a process of its own with its own thread pool. Idle pool threads spin for a while before they sleep, so the
process whose turn it isn't is stopped (SIGSTOP): there is never a second pool that spins. With one thread, both packages take
their turns of a round on the same processor, because processors aren't equally fast when what they share is in use.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from statistics import median, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("backlight", "torch")
TURN = 0.006  # seconds
SLOW = 0.2  # seconds of both packages: slower workloads have fewer rounds
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Worker:
    """A worker process; it runs only while it works on a request."""

    def __init__(self, library: str, threads: str):
        environment = {k: v for k, v in os.environ.items() if k not in THREAD_VARIABLES}
        if threads != "all":
            environment.update(dict.fromkeys(THREAD_VARIABLES, threads))
        command = [sys.executable, "-m", "benchmarks.worker", library]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )
        self.library = library

    def run_on(self, processor: int) -> None:
        os.sched_setaffinity(self.process.pid, {processor})

    def ask(self, what: str, **arguments):
        """The answer of this method of `worker.Holder`."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"benchmarks: the {self.library} process ended in {what} {arguments}")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def turn(self, workload: str) -> dict[str, float]:
        """The seconds of each part of a started workload, in a turn."""
        return self.ask("turn", workload=workload, seconds=TURN)

    def close(self) -> None:
        """Lets the process end by itself, so that it removes its files."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Workers:
    """One worker for each library, by its name, as a context."""

    def __init__(self, threads: str, libraries: tuple[str, ...] = PACKAGES):
        self.threads = threads
        self.libraries = libraries
        self.processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def __enter__(self) -> Workers:
        self.workers = {library: Worker(library, self.threads) for library in self.libraries}
        if self.threads == "1" and self.processors:  # before a library makes threads, which stay there
            for worker in self.workers.values():
                worker.run_on(self.processors[0])
        return self

    def __getitem__(self, package: str) -> Worker:
        return self.workers[package]

    def rounds(self, n: int, move: bool = True) -> Iterator[tuple[Worker, ...]]:
        """n times the workers, in alternating order; one-threaded ones move from processor to processor together."""
        for i in range(n):
            if move and self.threads == "1" and self.processors:
                for worker in self.workers.values():
                    worker.run_on(self.processors[i // 2 % len(self.processors)])
            workers = tuple(self.workers.values())
            yield workers if i % 2 else workers[::-1]

    def __exit__(self, *_exception) -> None:
        for worker in self.workers.values():
            worker.close()


def compare(workers: Workers, workload: str, rounds: int) -> dict:
    """Seconds of each package, and the ratio backlight / torch: its median over the rounds and its middle half.

    Slow workloads have fewer rounds, but five: a round of a second tells more than one of a few milliseconds. With it comes
    the floor of the row under the same conditions.
    """
    for both in workers.rounds(1):
        slow = sum(sum(worker.ask("start", workload=workload).values()) for worker in both)
    rounds = _fewer(rounds, slow)
    parts: dict[str, list[dict[str, float]]] = {package: [] for package in PACKAGES}
    for both in workers.rounds(rounds):
        for worker in both:
            parts[worker.library].append(worker.turn(workload))
    times = {package: [sum(turn.values()) for turn in turns] for package, turns in parts.items()}
    ratios = [ours / theirs for ours, theirs in zip(times["backlight"], times["torch"])]
    found = {**{p: median(t) for p, t in times.items()}, "ratio": median(ratios), "spread": spread(ratios), "rounds": rounds}
    found["parts"] = {p: {part: median(turn[part] for turn in turns) for part in turns[0]} for p, turns in parts.items()}
    found["floor"] = workers["backlight"].ask("floor", workload=workload)
    for both in workers.rounds(1):
        for worker in both:
            worker.ask("release")
    return found


def _fewer(rounds: int, seconds: float) -> int:
    """How many rounds of so many seconds are worth their time."""
    return max(min(rounds, 5), min(rounds, int(rounds * SLOW / seconds)))


def compare_peers(workers: Workers, workload: str, rounds: int) -> dict[str, float]:
    """Median seconds of each library that can do the workload. They stay on one processor: some have threads of their own."""
    able = [worker for worker in workers.workers.values() if workload in worker.ask("names")]
    rounds = _fewer(rounds, sum(sum(worker.ask("start", workload=workload).values()) for worker in able))
    times: dict[str, list[float]] = {worker.library: [] for worker in able}
    for everyone in workers.rounds(rounds, move=False):
        for worker in everyone:
            if worker in able:
                times[worker.library].append(sum(worker.turn(workload).values()))
    for worker in able:
        worker.ask("release")
    return {library: median(found) for library, found in times.items()}


def peaks(workers: Workers, workload: str) -> dict[str, int]:
    """Bytes by which each package's memory grows in a run of the workload."""
    return {package: workers[package].ask("peak", workload=workload) for package in PACKAGES}


def spread(values: list[float]) -> list[float]:
    """The lower and upper quartile."""
    if len(values) < 2:
        return [values[0], values[0]]
    low, _middle, high = quantiles(values, n=4)
    return [low, high]


def overhead(workers: Workers, rounds: int) -> dict:
    """Microseconds per operation that the 8x8 chain costs over the same arithmetic in NumPy."""
    from .workloads import OPS

    ours = workers["backlight"]
    for workload in ("chain", "numpy_chain"):
        ours.ask("start", workload=workload)
    found: dict[str, list[float]] = {"add": [], "forward": [], "backward": []}
    for _ in workers.rounds(rounds):
        chain, plain = ours.turn("chain"), ours.turn("numpy_chain")
        found["add"].append(plain["add"])
        for part in ("forward", "backward"):
            found[part].append(chain[part] - plain[part])
    ours.ask("release")
    return {part: {"us": median(v) / OPS * 1e6, "spread": [s / OPS * 1e6 for s in spread(v)]} for part, v in found.items()}
