"""`torch.linalg`: the functions that the files in ops/ declared for it."""

from __future__ import annotations

from .ops.later import publish as _publish
from .ops.matrix import LinAlgError as LinAlgError

_publish(globals(), "linalg")


def __getattr__(name):
    raise AttributeError(f"module 'backlight.linalg' has no attribute '{name}': it isn't there yet in Backlight")
