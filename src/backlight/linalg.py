"""`torch.linalg`: the functions that the files in ops/ declared for it."""

from __future__ import annotations

from .op import REGISTRY as _REGISTRY

for _name, _function in _REGISTRY.items():
    if _name.rpartition(".")[0] == "linalg":
        globals()[_name.rpartition(".")[2]] = _function


def __getattr__(name):
    raise AttributeError(f"module 'backlight.linalg' has no attribute '{name}': it isn't there yet in Backlight")
