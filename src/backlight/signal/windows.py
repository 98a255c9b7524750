"""`torch.signal.windows`: the functions that the files in ops/ declared for it."""

from __future__ import annotations

from ..ops.later import publish as _publish

_publish(globals(), "signal.windows")


def __getattr__(name):
    raise AttributeError(f"module 'backlight.signal.windows' has no attribute '{name}': it isn't there yet in Backlight")
