"""`torch.mps`: there are no GPUs of Apple's."""

from __future__ import annotations

from . import dtypes

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "seed", "synchronize"]


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def manual_seed(seed: int) -> None:
    """Does nothing."""


def seed() -> None:
    """Does nothing."""


def empty_cache() -> None:
    """Does nothing."""


def synchronize() -> None:
    """Raises, as there is no such device."""
    dtypes.check_device("mps")
