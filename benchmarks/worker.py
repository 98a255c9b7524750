"""A process that holds one package and runs its workloads when told to: `python -m benchmarks.worker torch`.

It reads lines of JSON from stdin, {"workload": name, "seconds": s}, and answers each with one line.
"""

from __future__ import annotations

import importlib
import json
import sys
from time import perf_counter

from . import workloads


def turn(run, seconds: float) -> dict[str, float]:
    """The least seconds of each part, in runs that take about `seconds` together.

    At least five runs, where they are short enough: the least of them is one that no other process interrupted. The first
    run finds cold caches and doesn't count, unless it is the only one.
    """
    start = perf_counter()
    runs = [run()]
    while (spent := perf_counter() - start) < seconds or (len(runs) <= 5 and spent < 10 * seconds):
        runs.append(run())
    return {part: min(r[part] for r in runs[1:] or runs) for part in runs[0]}


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
