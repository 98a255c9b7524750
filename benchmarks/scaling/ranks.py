"""What is measured on each of several ranks; run by measure.py under `backlight launch`. Rank 0 prints the results as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

import backlight as torch
from backlight import distributed, nn
from backlight.distributed import rpc

if TYPE_CHECKING:
    from collections.abc import Callable

world = MPI.COMM_WORLD
rank, size = world.rank, world.size

SIZES = (8, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24)  # bytes
LAYERS, WIDTH, BATCH = 6, 512, 256  # of the network whose training steps are timed


def median(call: Callable[[], object], times: int) -> float:
    """The median time of a call that all ranks make together; of the slowest rank each time."""
    taken = []
    for _ in range(times + 2):
        world.Barrier()
        start = time.perf_counter()
        call()
        taken.append(world.allreduce(time.perf_counter() - start, op=MPI.MAX))
    return statistics.median(taken[2:])


def ping_pong(bytes_: int, times: int) -> float:
    """Half the time of a message to the other rank and back."""
    buffer = np.zeros(bytes_, np.uint8)

    def call():
        for _ in range(times):
            if rank == 0:
                world.Send(buffer, 1)
                world.Recv(buffer, 1)
            else:
                world.Recv(buffer, 0)
                world.Send(buffer, 0)

    return median(call, 5) / times / 2


def addition(bytes_: int) -> float:
    """Seconds per byte to add one array to another."""
    a, b = np.ones(bytes_ // 4, np.float32), np.ones(bytes_ // 4, np.float32)
    return median(lambda: np.add(a, b, out=a), 15) / bytes_


def allreduce(bytes_: int) -> float:
    given, result = np.ones(max(1, bytes_ // 4), np.float32), np.empty(max(1, bytes_ // 4), np.float32)
    return median(lambda: world.Allreduce(given, result), 60 if bytes_ < 1 << 20 else 15)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])


def training_step(module: nn.Module) -> Callable[[], object]:
    x = torch.randn(BATCH, WIDTH)

    def call():
        module.zero_grad()
        module(x).sum().backward()

    return call


def answer(x):
    """What the other rank runs."""
    return x


def remote_calls() -> dict[str, float]:
    """Seconds for a call of a function on the other rank and its answer, by the bytes of the tensor that goes and comes back."""
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
    found = {}
    for bytes_ in SIZES:
        x = torch.zeros(max(1, bytes_ // 4))
        if rank == 0:
            taken = []
            for _ in range(30):
                start = time.perf_counter()
                rpc.rpc_sync("worker1", answer, args=(x,))
                taken.append(time.perf_counter() - start)
            found[str(bytes_)] = statistics.median(taken[3:])
    rpc.shutdown()
    return found


def main() -> None:
    result: dict = {"ranks": size}
    if size == 2:
        result["messages"] = {n: ping_pong(n, 100 if n < 1 << 20 else 10) for n in SIZES}
        result["addition"] = addition(1 << 22)
    if size > 1:
        result["allreduce"] = {n: allreduce(n) for n in SIZES}
    module = network()
    result["gradients"] = sum(p.numel() * 4 for p in module.parameters())
    result["alone"] = median(training_step(module), 15)
    if size > 1:
        distributed.init_process_group()
        result["ddp"] = median(training_step(nn.parallel.DistributedDataParallel(module)), 15)
        distributed.destroy_process_group()
    if size == 2:
        result["rpc"] = remote_calls()
    if rank == 0:
        json.dump(result, sys.stdout)
        print()


if __name__ == "__main__":
    main()
