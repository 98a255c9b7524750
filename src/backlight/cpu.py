"""`torch.cpu`: the one device."""

from __future__ import annotations

__all__ = ["current_device", "device_count", "is_available", "synchronize"]


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """ "cpu"."""
    return "cpu"


def synchronize(device=None) -> None:
    """Does nothing: operations are complete when they return."""
