"""DataParallel, which without GPUs calls its module."""

from __future__ import annotations

from typing import Any

from .module import Module

__all__ = ["DataParallel"]


class DataParallel(Module):
    """Calls `module`: as in PyTorch on a machine without GPUs. Its parameters are named `module.*`."""

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0) -> None:  # noqa: ARG002
        super().__init__()
        self.module = module
        self.device_ids: list = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
