"""`torch.distributed` where there is none: programs that ask are told so."""

from __future__ import annotations

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def __getattr__(name: str):
    raise AttributeError(
        f"module 'backlight.distributed' has no attribute '{name}': distributed training isn't there yet", name=name
    )
