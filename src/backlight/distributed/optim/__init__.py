"""`torch.distributed.optim`: optimizers of parameters on several processes."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = {"DistributedOptimizer": "distributed", "ZeroRedundancyOptimizer": "zero"}

__all__ = ["DistributedOptimizer", "ZeroRedundancyOptimizer"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'backlight.distributed.optim' has no attribute '{name}'", name=name)
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
