"""`python -m benchmarks`: Backlight against PyTorch in one run."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version

from . import compare, footprint, report, workloads

ROWS = {row.__name__: row for row in workloads.ROWS}
OTHERS = ("overhead", "tape", "import", "size")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures Backlight against PyTorch by turns.")
    parser.add_argument("--rounds", type=int, default=25, help="turns of each package for each row (25)")
    parser.add_argument("--threads", default="1,all", help="numbers of threads, separated by commas (1,all)")
    parser.add_argument("--json", metavar="FILE", help="write everything measured to this file")
    parser.add_argument("--readme", action="store_true", help="put the table into README.md")
    parser.add_argument("-k", metavar="NAME", help=f"only rows with NAME in them, of {', '.join([*ROWS, *OTHERS])}")
    arguments = parser.parse_args()
    wanted = [name for name in (*ROWS, *OTHERS) if not arguments.k or arguments.k in name]
    if not wanted:
        parser.error(f"no row has {arguments.k!r} in its name")
    if arguments.readme and arguments.k:
        parser.error("--readme wants the whole table: leave -k out")
    result = measure(wanted, arguments.threads.split(","), arguments.rounds)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    if arguments.readme:
        report.write_readme(result)


def measure(wanted: list[str], threads: list[str], rounds: int) -> dict:
    result: dict = {"machine": machine(), "rounds": rounds, "timed": {}}
    before = _cpu_seconds()
    rows = [name for name in wanted if name in ROWS]
    for n in threads if rows else ():
        print(f"threads: {n:9} backlight     torch   ratio (middle half)", flush=True)
        result["timed"][n] = {}
        with compare.Workers(n) as workers:
            for name in rows:
                few = name in ("deep_backward", "digits_epoch")  # a single run takes a whole turn or more
                found = compare.compare(workers, name, max(3, rounds // 3) if few else rounds)
                result["timed"][n][name] = found
                print(report.line(name, found), flush=True)
    if "overhead" in wanted:
        with compare.Workers("1") as workers:
            result["overhead"] = compare.overhead(workers["backlight"], rounds)
        print(*report.overhead_lines(result["overhead"]), sep="\n", flush=True)
    if "tape" in wanted:  # fresh processes: memory that was used and freed before would hide the growth
        with compare.Workers("1") as workers:
            result["tape"] = {package: worker.ask("tape", None) for package, worker in workers.items()}
        print(*report.tape_lines(result["tape"]), sep="\n", flush=True)
    if "import" in wanted:
        result["import"] = footprint.import_times(max(3, rounds // 3))
        print(*report.import_lines(result["import"]), sep="\n", flush=True)
    if "size" in wanted:
        result["size"] = footprint.install_sizes()
        print(*report.size_lines(result["size"]), sep="\n", flush=True)
    result["others"] = _share_of_others(before)
    if result["others"] > 0.05:
        print(
            f"benchmarks: other processes took {result['others']:.0%} of the machine meanwhile. Turns make up for that with one "
            "thread; with several, PyTorch waits for threads that others keep from running, so repeat it on a quiet machine.",
            file=sys.stderr,
        )
    return result


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


def _cpu_seconds() -> tuple[float, float, float]:
    """CPU seconds so far: of all processes, of our own, and those that passed on all cores."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:]]
    except OSError:
        return 0.0, 0.0, 0.0
    user, nice, system, idle, waiting = ticks[:5]
    ours = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    tick = os.sysconf("SC_CLK_TCK")
    busy = (user + nice + system) / tick
    return busy, sum(use.ru_utime + use.ru_stime for use in ours), busy + (idle + waiting) / tick


def _share_of_others(before: tuple[float, float, float]) -> float:
    everyone, ours, total = (now - then for now, then in zip(_cpu_seconds(), before))
    return max(0.0, everyone - ours) / total if total else 0.0


if __name__ == "__main__":
    main()
