"""Which engine a program's tensors and modules belong to: Backlight, or PyTorch if somebody has imported it."""

from __future__ import annotations

import sys
from typing import Any


def imported_engines() -> list[str]:
    """The engines that can have run."""
    return ["backlight", "torch"] if getattr(sys.modules.get("torch"), "__name__", None) == "torch" else ["backlight"]


def engine_of(tensor: Any) -> str:
    """The name of the engine whose tensor this is. TypeError for anything else."""
    for engine in reversed(imported_engines()):
        if isinstance(tensor, sys.modules[engine].Tensor):
            return engine
    raise TypeError(f"expected a tensor of Backlight or PyTorch, not {type(tensor).__name__}")


def engine_of_model(model: Any) -> str:
    """The name of the engine whose module this is."""
    parameter = next(iter(model.parameters()), None)
    if parameter is not None:
        return engine_of(parameter)
    return "torch" if "torch" in imported_engines() and isinstance(model, sys.modules["torch"].nn.Module) else "backlight"


def package_of(tensor: Any) -> Any:
    """The package, `backlight` or `torch`, whose tensor this is."""
    return sys.modules[engine_of(tensor)]
