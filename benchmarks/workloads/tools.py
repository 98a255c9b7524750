"""What the workloads share: input arrays, networks, and the declaration of a row's floor."""

from __future__ import annotations

import numpy as np

from ..floors import Floor


def floor(gemms=(), arrays: int = 0, calls: int = 0):
    """Declares what a workload can't do without: matrix products, 4-byte elements read or written, calls of NumPy."""

    def declare(workload):
        workload.floor = Floor(tuple(gemms), 4 * arrays, calls)
        return workload

    return declare


def linear(m: int, k: int, n: int, count: int = 1, input_gradient: bool = True) -> list[tuple[int, int, int, int]]:
    """The matrix products (count, m, k, n) of an m x k input times k x n weights: forward, weights' and input's gradient."""
    return [(count, m, k, n), (count, k, m, n)] + [(count, m, n, k)] * input_gradient


def dense(batch: int, *sizes: int, input_gradient: bool = False) -> list[tuple[int, int, int, int]]:
    """The matrix products of a training step of linear layers."""
    products = []
    for i, (k, n) in enumerate(zip(sizes, sizes[1:])):
        products += linear(batch, k, n, input_gradient=input_gradient or i > 0)
    return products


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def integers(high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(high, size=shape)


def mlp(torch, *sizes: int, activation: str = "ReLU"):
    """Linear layers with an activation between them, the same initial weights in both packages."""
    torch.manual_seed(0)
    layers = []
    for n, m in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(n, m), getattr(torch.nn, activation)()]
    return torch.nn.Sequential(*layers[:-1])


def training(optimizer, loss):
    """A step: the function `loss` is evaluated, differentiated and the parameters moved."""

    def step():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value

    return step
