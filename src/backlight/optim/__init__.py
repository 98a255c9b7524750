"""Optimizers: they update parameters from their gradients."""

from typing import TYPE_CHECKING

from . import adam, optimizer, sgd
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

if TYPE_CHECKING:
    from . import lr_scheduler, swa_utils
    from ._adafactor import Adafactor
    from ._muon import Muon
    from ._stateless import swap_in_optimizer_params_and_state
    from .adadelta import Adadelta
    from .adagrad import Adagrad
    from .adamax import Adamax
    from .asgd import ASGD
    from .lbfgs import LBFGS
    from .nadam import NAdam
    from .radam import RAdam
    from .rmsprop import RMSprop
    from .rprop import Rprop
    from .sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "adam",
    "lr_scheduler",
    "optimizer",
    "sgd",
    "swa_utils",
    "swap_in_optimizer_params_and_state",
]

# Loaded when they are first used: the module of each name.
_LAZY = {
    "ASGD": "asgd",
    "Adadelta": "adadelta",
    "Adafactor": "_adafactor",
    "Adagrad": "adagrad",
    "Adamax": "adamax",
    "LBFGS": "lbfgs",
    "Muon": "_muon",
    "NAdam": "nadam",
    "RAdam": "radam",
    "RMSprop": "rmsprop",
    "Rprop": "rprop",
    "SparseAdam": "sparse_adam",
    "lr_scheduler": "lr_scheduler",
    "swa_utils": "swa_utils",
    "swap_in_optimizer_params_and_state": "_stateless",
}


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'backlight.optim' has no attribute '{name}'")
    import importlib

    module = importlib.import_module(f"{__name__}.{_LAZY[name]}")
    value = module if name == _LAZY[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
