"""Neural networks: Module, containers, layers, losses, initialisation, and `functional`.

>>> import backlight as torch
>>> torch.manual_seed(0)  # doctest: +ELLIPSIS
<...Generator object at ...>
>>> torch.nn.Linear(2, 1)(torch.ones(1, 2)).shape
torch.Size([1, 1])
"""

# ruff: noqa: F401, F403

from . import functional, init, utils
from .activation import *
from .adaptive import *
from .attention import *
from .containers import *
from .conv import *
from .distance import *
from .dropout import *
from .lazy import *
from .linear import *
from .loss import *
from .module import Module
from .norm import *
from .padding import *
from .parallel import DataParallel
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from .pooling import *
from .recurrent import *
from .shape import *
from .sparse import *
from .transformer import *

from . import modules  # isort: skip


def __getattr__(name: str):
    if name in ("common_types", "grad"):  # what few programs need
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'backlight.nn' has no attribute '{name}'")
