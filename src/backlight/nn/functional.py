"""`torch.nn.functional`: the functions that the files in ops/ declared for it."""

from __future__ import annotations

from ..op import REGISTRY as _REGISTRY
from ..ops import neural as _neural  # noqa: F401  (declares them)

for _name, _function in _REGISTRY.items():
    if _name.rpartition(".")[0] == "nn.functional":
        globals()[_name.rpartition(".")[2]] = _function


def __getattr__(name):
    raise AttributeError(f"module 'backlight.nn.functional' has no attribute '{name}': it isn't there yet in Backlight")
