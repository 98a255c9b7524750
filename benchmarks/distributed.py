"""`python -m benchmarks.distributed`: two processes of Backlight against two of PyTorch (gloo), each with one thread.

A round launches each package once, in alternating order; a launch goes through all rows. The ratio of a row is the median over the
rounds of Backlight's time by PyTorch's. A row is a generator function: it prepares, yields the step that all ranks run, and clears up.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from backlight.distributed.launch import find_mpirun

from .report import README, _write_between

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGES = "backlight", "torch"
RANKS = 2
SECONDS = 1.5  # of a row in a launch
MARK = "MEASURED "


def _ddp(torch):
    parallel = importlib.import_module(f"{torch.__name__}.nn.parallel")
    return parallel.DistributedDataParallel


def ddp_mlp(torch) -> Iterator[Callable]:
    """DDP training step of 784-512-256-10: batch 128 per rank, Adam"""
    from .workloads.networks import mlp_adam

    (step,) = mlp_adam(torch, _ddp(torch))
    yield step


def ddp_gpt(torch) -> Iterator[Callable]:
    """DDP training step of a small GPT: 4 layers, 128 wide, 16x128 tokens per rank, AdamW"""
    from .workloads.networks import gpt_step

    (step,) = gpt_step(torch, _ddp(torch))
    yield step


def _all_reduce(torch, elements: int) -> Callable:
    tensor = torch.full((elements,), 1e-30)
    return lambda: torch.distributed.all_reduce(tensor)


def all_reduce_large(torch) -> Iterator[Callable]:
    """all_reduce of 64 MB"""
    yield _all_reduce(torch, 16_000_000)


def all_reduce_small(torch) -> Iterator[Callable]:
    """all_reduce of 4 KB"""
    yield _all_reduce(torch, 1000)


def _echo(x):
    return x


def _length(x) -> int:
    return x.numel()


_ports = itertools.count(1)  # above the one of the process group


def _rpc(torch, make_step: Callable) -> Iterator[Callable]:
    """Rank 0 calls rank 1, which has nothing else to do."""
    rpc = importlib.import_module(f"{torch.__name__}.distributed.rpc")
    rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"]) + next(_ports)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}")
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=RANKS, rpc_backend_options=options)
    yield make_step(rpc) if rank == 0 else lambda: None
    rpc.shutdown()


def rpc_small(torch) -> Iterator[Callable]:
    """rpc round trip with 1 KB each way"""
    x = torch.zeros(256)
    yield from _rpc(torch, lambda rpc: lambda: rpc.rpc_sync("worker1", _echo, args=(x,)))


def rpc_large(torch) -> Iterator[Callable]:
    """rpc with a tensor of 64 MB, one way"""
    x = torch.zeros(16_000_000)
    yield from _rpc(torch, lambda rpc: lambda: rpc.rpc_sync("worker1", _length, args=(x,)))


def distributed_backward(torch) -> Iterator[Callable]:
    """forward and backward through a call of the other rank, 64x64"""
    autograd = importlib.import_module(f"{torch.__name__}.distributed.autograd")
    x, y = (torch.ones(64, 64).requires_grad_() for _ in range(2))

    def make_step(rpc) -> Callable:
        def step() -> None:
            with autograd.context() as context_id:
                autograd.backward(context_id, [(rpc.rpc_sync("worker1", torch.add, args=(x, y)) * x).sum()])

        return step

    yield from _rpc(torch, make_step)


_ROWS = ddp_mlp, ddp_gpt, all_reduce_large, all_reduce_small, rpc_small, rpc_large, distributed_backward
ROWS: dict[str, Callable] = {row.__name__: row for row in _ROWS}


def worker(package: str, rows: list[str], port: int) -> None:
    """One rank of one package: measures the rows, and rank 0 prints the median seconds of a step of each."""
    torch = importlib.import_module(package)
    distributed = importlib.import_module(f"{package}.distributed")
    torch.set_num_threads(1)
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    os.environ |= {"RANK": str(rank), "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    found = {}
    for name in rows:
        row = ROWS[name](torch)
        step = next(row)
        for _ in range(3):  # kernels are compiled, buckets made
            step()
        steps = _agreed(torch, distributed, step)
        times = []
        for _ in range(steps):
            start = perf_counter()
            step()
            times.append(perf_counter() - start)
        found[name] = median(times)
        for _ in row:  # lets it clear up
            pass
        distributed.barrier()
    if rank == 0:
        print(MARK + json.dumps(found), flush=True)
    distributed.destroy_process_group()


def _agreed(torch, distributed, step: Callable) -> int:
    """How many steps take about SECONDS: all ranks must run the same number."""
    start = perf_counter()
    step()
    number = torch.tensor([max(5, min(1000, int(SECONDS / (perf_counter() - start))))])
    distributed.broadcast(number, 0)
    return int(number.item())


def launch(package: str, rows: list[str]) -> dict[str, float]:
    """Seconds of each row, by a launch of RANKS processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [find_mpirun(), "--oversubscribe", "--bind-to", "none", "--timeout", "300", "-n", str(RANKS), sys.executable]
    command += ["-m", "benchmarks.distributed", "--worker", package, "--port", str(port), "-k", ",".join(rows)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=330)
    lines = [line.removeprefix(MARK) for line in result.stdout.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise SystemExit(f"the processes of {package} failed:\n{result.stdout}{result.stderr}")
    return json.loads(lines[0])


def measure(rows: list[str], rounds: int) -> dict:
    """{row: seconds of both packages in each round, their medians, the median ratio and its middle half}."""
    times: dict[str, dict[str, list[float]]] = {row: {package: [] for package in PACKAGES} for row in rows}
    for i in range(rounds):
        for package in PACKAGES if i % 2 else PACKAGES[::-1]:
            for row, seconds in launch(package, rows).items():
                times[row][package].append(seconds)
    found = {}
    for row, both in times.items():
        ratios = sorted(ours / theirs for ours, theirs in zip(both["backlight"], both["torch"]))
        middle = ratios[len(ratios) // 4 : len(ratios) - len(ratios) // 4]
        found[row] = {
            "title": ROWS[row].__doc__,
            **{package: median(values) for package, values in both.items()},
            "ratio": median(ratios),
            "spread": [middle[0], middle[-1]],
            "rounds": both,
        }
    return found


def table(found: dict) -> str:
    """The rows as a Markdown table."""
    lines = ["| row | Backlight | PyTorch | ratio | middle half |", "|---|---:|---:|---:|---:|"]
    for row in found.values():
        low, high = row["spread"]
        lines.append(
            f"| {row['title']} | {_shown(row['backlight'])} | {_shown(row['torch'])} | {row['ratio']:.2f} | {low:.2f}-{high:.2f} |"
        )
    return "\n".join(lines)


def write_readme(found: dict, rounds: int, readme: Path = README) -> None:
    """Puts the table between the markers in README.md, with the circumstances."""
    note = f"{RANKS} processes with one thread each on one machine with {os.cpu_count()} processors. Medians of {rounds} rounds; PyTorch uses gloo."
    _write_between(readme, "processes", f"{table(found)}\n\n{note}")


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds > 1e-3 else f"{seconds * 1e6:.1f} µs"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.distributed", description="Two processes of each package, by turns."
    )
    parser.add_argument("--rounds", type=int, default=7, help="launches of each package (7)")
    parser.add_argument("--json", metavar="FILE", help="write everything measured to this file")
    parser.add_argument("--readme", action="store_true", help="put the table between the markers in README.md")
    parser.add_argument("-k", metavar="NAME,...", help=f"only what has a NAME in its name, of {', '.join(ROWS)}")
    parser.add_argument("--worker", choices=PACKAGES, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rows = [name for name in ROWS if not arguments.k or any(part in name for part in arguments.k.split(","))]
    if not rows:
        parser.error(f"nothing has {arguments.k!r} in its name")
    if arguments.worker:
        worker(arguments.worker, rows, arguments.port)
        return
    found = measure(rows, arguments.rounds)
    print(table(found))
    if arguments.readme:
        write_readme(found, arguments.rounds)
    if arguments.json:
        result = {"ranks": RANKS, "threads": 1, "processors": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "rows": found}
        Path(arguments.json).write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
