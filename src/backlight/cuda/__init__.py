"""`torch.cuda` where there is no CUDA: it says so, and what scripts call without asking does nothing."""

from __future__ import annotations

from .. import dtypes
from ..accelerator import OutOfMemoryError as OutOfMemoryError


def is_available() -> bool:
    """False: Backlight computes on the CPU."""
    return False


def device_count() -> int:
    """0: Backlight computes on the CPU."""
    return 0


def manual_seed(seed) -> None:
    """Does nothing: there is no CUDA random stream."""


manual_seed_all = manual_seed


def empty_cache() -> None:
    """Does nothing: there is no CUDA memory."""


def is_initialized() -> bool:
    """False."""
    return False


def current_device():
    """Raises, as PyTorch does without CUDA."""
    dtypes.check_device("cuda")


synchronize = get_device_name = set_device = lambda *_args, **_kwargs: dtypes.check_device("cuda")

is_bf16_supported = is_available


def memory_allocated(_device=None) -> int:
    """0: there is no CUDA memory."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(_device=None) -> None:
    """Does nothing: there is no CUDA memory."""


reset_max_memory_allocated = reset_peak_memory_stats


def ipc_collect() -> None:
    """Does nothing: there is no CUDA memory."""


def __getattr__(name: str):
    if name == "amp":
        from importlib import import_module

        return import_module(f"{__name__}.amp")
    raise AttributeError(f"module 'backlight.cuda' has no attribute '{name}': Backlight computes on the CPU")
