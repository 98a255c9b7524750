"""A process that holds one package and runs its workloads when told to: `python -m benchmarks.worker torch`.

It reads lines of JSON from stdin, {"workload": name, "seconds": s}, and answers each with one line.
"""

from __future__ import annotations

import importlib
import json
import sys
from statistics import median
from time import perf_counter

from . import workloads


def turn(run, seconds: float) -> dict[str, float]:
    """The median seconds of each part in runs that take about `seconds` together. The first run, on cold caches, doesn't
    count, unless it took that long alone."""
    end = perf_counter() + seconds
    first = run()
    runs = []
    while perf_counter() < end:
        runs.append(run())
    return {part: median(r[part] for r in runs or [first]) for part in first}


def main() -> None:
    package = importlib.import_module(sys.argv[1])
    made: dict = {}
    for line in sys.stdin:
        request = json.loads(line)
        workload = getattr(workloads, request["workload"])
        if request["seconds"] is None:
            answer = workload(package)
        else:
            if workload not in made:
                made[workload] = workload(package)
                made[workload]()
            answer = turn(made[workload], request["seconds"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
