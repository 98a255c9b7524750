"""`torch.accelerator`: programs ask for one, and there is none."""

from __future__ import annotations

__all__ = ["AcceleratorError", "OutOfMemoryError", "current_accelerator", "device_count", "is_available"]


class OutOfMemoryError(RuntimeError):
    """A device's memory is full: never raised here, so that programs which catch it run."""


class AcceleratorError(RuntimeError):
    """A device failed: never raised here, so that programs which catch it run."""


def is_available() -> bool:
    """False: Backlight computes on the CPU."""
    return False


def current_accelerator(check_available: bool = False) -> None:
    """None: Backlight computes on the CPU."""


def device_count() -> int:
    """0."""
    return 0
