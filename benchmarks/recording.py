"""What recording costs: the same training step plain, recorded, and in PyTorch's anomaly mode, by turns in one process per engine.

`python -m benchmarks.recording backlight` prints the times of one engine as JSON; `python -m benchmarks -k recording` runs both.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
import warnings

STEPS = 20  # recorded in one recording: beginning and ending one is not what a step costs


def cost(package: str, rounds: int = 15) -> dict[str, list[float]]:
    """Seconds per step of a 20-layer network, 256 wide, batch 64, with SGD: {way: one time per round}."""
    if package == "torch":
        import torch

        torch.set_num_threads(1)
    else:
        import backlight as torch
    from backlight import inspect

    torch.manual_seed(0)
    layers = [layer for _ in range(20) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    net = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    x = torch.randn(64, 256)

    def step() -> None:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()

    def steps() -> float:
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        return (time.perf_counter() - start) / STEPS

    def recorded(policy: str) -> float:
        with inspect.record(policy, engine=package):
            return steps()

    def anomaly() -> float:
        with torch.autograd.detect_anomaly(check_nan=True):
            return steps()

    warnings.simplefilter("ignore")  # anomaly mode says that it is slow
    ways = {"plain": steps, "shapes": lambda: recorded("shapes"), "norms": lambda: recorded("norms"), "anomaly": anomaly}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds + 2):
        for way, run in ways.items():
            times[way].append(run())
    return {way: found[2:] for way, found in times.items()}


def ratios(times: dict[str, list[float]]) -> dict[str, float]:
    """The median over the rounds of each way's time over the plain step's."""
    return {way: statistics.median(a / b for a, b in zip(found, times["plain"])) for way, found in times.items()}


def measure(rounds: int = 15) -> dict[str, dict]:
    """Both engines, each in a fresh process with one thread: {package: {"seconds": plain step, "ratios": {way: ratio}}}."""
    result = {}
    for package in ("backlight", "torch"):
        command = [sys.executable, "-m", "benchmarks.recording", package, str(rounds)]
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        out = subprocess.run(command, env={**os.environ, **threads}, capture_output=True, text=True, check=True).stdout
        times = json.loads(out)
        result[package] = {"seconds": statistics.median(times["plain"]), "ratios": ratios(times)}
    return result


if __name__ == "__main__":
    print(json.dumps(cost(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15)))
