"""`torch.fft`: the functions that the files in ops/ declared for it."""

from __future__ import annotations

from .ops.later import publish as _publish

_publish(globals(), "fft")


def __getattr__(name):
    raise AttributeError(f"module 'backlight.fft' has no attribute '{name}': it isn't there yet in Backlight")
