"""`python -m benchmarks`: Backlight against PyTorch in one run."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from . import chart, compare, footprint, memory, peers, recording, report, workloads

if TYPE_CHECKING:
    from collections.abc import Callable

OTHERS = ("overhead", "tape", "import", "size", "recording")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures Backlight against PyTorch by turns.")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each package for each row (15)")
    parser.add_argument("--threads", default="1,all", help="numbers of threads, separated by commas (1,all)")
    parser.add_argument("--json", metavar="FILE", help="write everything measured to this file")
    parser.add_argument("--from", metavar="FILE", dest="earlier", help="report what --json wrote, instead of measuring")
    parser.add_argument(
        "--readme",
        action="store_true",
        help="put the tables into README.md, the chart into docs/; that of --peers into benchmarks/README.md",
    )
    parser.add_argument("--peers", action="store_true", help="measure other libraries on a few rows instead")
    names = (*workloads.ROWS, *OTHERS)
    parser.add_argument("-k", metavar="NAME,...", help=f"only what has a NAME in its name, of {', '.join(names)}")
    arguments = parser.parse_args()
    wanted = [name for name in names if not arguments.k or any(part in name for part in arguments.k.split(","))]
    if not wanted:
        parser.error(f"nothing has {arguments.k!r} in its name")
    if arguments.readme and arguments.k:
        parser.error("--readme wants the whole table: leave -k out")
    if arguments.readme and not arguments.peers and not find_spec("matplotlib"):
        parser.error("--readme draws a chart: pip install matplotlib")
    if arguments.earlier:
        with open(arguments.earlier, encoding="utf-8") as file:
            result = json.load(file)
        print(report.peers_tables(result) if "peers" in result else report.tables(result))
    elif arguments.peers:
        result = measure_peers(wanted, arguments.threads.split(","), arguments.rounds)
        print(report.peers_tables(result))
    else:
        result = measure(wanted, arguments.threads.split(","), arguments.rounds)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    if arguments.readme and "peers" in result:
        report.write_peers(result)
    elif arguments.readme:
        report.write_readme(result)
        chart.write(result)


def measure(wanted: list[str], threads: list[str], rounds: int) -> dict:
    result: dict = {"machine": machine(), "rounds": rounds, "timed": {}, "memory": {}}
    rows = [name for name in wanted if name in workloads.ROWS]
    if rows and memory.AVAILABLE:
        print(f"memory of {len(rows)} rows", flush=True)
        with compare.Workers("1") as workers:
            result["memory"] = {name: compare.peaks(workers, name) for name in rows}
    for n in threads if rows else ():
        result["timed"][n] = time_rows(rows, n, rounds, result["memory"])
    if "overhead" in wanted:
        with compare.Workers("1") as workers:
            result["overhead"] = compare.overhead(workers, rounds)
        print(*report.overhead_lines(result["overhead"]), sep="\n", flush=True)
    if "tape" in wanted and memory.AVAILABLE:  # fresh processes: memory that was used and freed before would hide the growth
        with compare.Workers("1") as workers:
            result["tape"] = {package: workers[package].ask("tape") for package in compare.PACKAGES}
        print(*report.tape_lines(result["tape"]), sep="\n", flush=True)
    if "import" in wanted:
        result["import"] = footprint.import_times(max(3, rounds // 2))
        print(*report.import_lines(result["import"]), sep="\n", flush=True)
    if "recording" in wanted:
        result["recording"] = recording.measure(max(5, rounds // 2))
        print(*report.recording_lines(result["recording"]), sep="\n", flush=True)
    if "size" in wanted:
        result["size"] = footprint.install_sizes()
        print(*report.size_lines(result["size"]), sep="\n", flush=True)
    return result


def time_rows(rows: list[str], threads: str, rounds: int, peaks: dict) -> dict[str, dict]:
    """Each row's comparison by its name. Rows that found the machine busy are measured again at the end, then given up."""
    print(f"threads: {threads}\n{report.HEADER}", flush=True)
    timed: dict[str, dict] = {}
    with compare.Workers(threads) as workers:
        for attempt in (1, 2):
            for name in rows:
                if name in timed:
                    continue
                found, quiet = when_quiet(threads, partial(compare.compare, workers, name, rounds), patience=5 * attempt)
                print(report.line(name, found, peaks.get(name)) + ("" if quiet else "   (busy machine)"), flush=True)
                if quiet:
                    timed[name] = found
    if timed:
        print(report.mean_line(timed), flush=True)
    return {name: timed[name] for name in rows if name in timed}


def measure_peers(wanted: list[str], threads: list[str], rounds: int) -> dict:
    """The medians of all libraries that are installed: {threads: {row: {library: seconds}}}, and the others' names."""
    installed = [library for library in peers.LIBRARIES if find_spec(peers.MODULES[library])]
    missing = [library for library in peers.LIBRARIES if library not in installed]
    versions = {library: version(peers.MODULES[library]) for library in installed}
    result: dict = {"machine": machine(), "rounds": rounds, "versions": versions, "missing": missing, "peers": {}}
    for n in threads:
        result["peers"][n] = {}
        with compare.Workers(n, (*compare.PACKAGES, *installed)) as workers:
            for name in peers.ROWS:
                if name in wanted:
                    found, quiet = when_quiet(n, partial(compare.compare_peers, workers, name, rounds), patience=20)
                    if quiet:
                        result["peers"][n][name] = found
    return result


def when_quiet(threads: str, measure: Callable[[], dict], patience: float) -> tuple[dict, bool]:
    """What `measure` returns, and whether the machine was quiet before and after; with one thread it needn't be."""
    quiet = threads == "1" or wait_until_quiet(patience)
    found = measure()
    return found, quiet and (threads == "1" or wait_until_quiet(patience=0.1))


def wait_until_quiet(patience: float = 20, share: float = 0.05) -> bool:
    """Waits until other processes take less than this share of the machine for half a second; False if they don't.

    With one thread, turns are enough: a busy machine slows both packages. With several, PyTorch waits at every operation for
    threads that others keep from running, a thousand times longer than the operation takes.
    """
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before = _ticks()
        time.sleep(0.5)
        busy, total = (now - then for now, then in zip(_ticks(), before))
        if busy <= share * total:
            return True
    return False


def _ticks() -> tuple[int, int]:
    """The machine's clock ticks so far: busy ones, and all. The workers are stopped while nobody asks them."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:]]
    except OSError:
        return 0, 0
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def machine() -> dict:
    try:
        with open("/proc/cpuinfo") as file:
            cpu = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    try:
        versions = {name: version(name).partition("+")[0] for name in ("backlight", "numpy", "torch")}
    except PackageNotFoundError as error:
        raise SystemExit(
            f"benchmarks: {error.name} isn't installed; pip install -e '.[test]' installs all that is needed"
        ) from None
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), **versions}


if __name__ == "__main__":
    main()
