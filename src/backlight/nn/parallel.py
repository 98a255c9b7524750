"""DataParallel, which without GPUs calls its module, and DistributedDataParallel, which needs a process group."""

from __future__ import annotations

from typing import Any, NoReturn

from .module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """Calls `module`: as in PyTorch on a machine without GPUs. Its parameters are named `module.*`."""

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0) -> None:  # noqa: ARG002
        super().__init__()
        self.module = module
        self.device_ids: list = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(Module):
    """Raises, as in PyTorch without a process group: programs import it beside what they do in one process."""

    def __init__(self, module: Module, *_args: Any, **_options: Any) -> NoReturn:  # noqa: ARG002
        from ..distributed import needs_process_group

        needs_process_group()
