"""Automatic differentiation: backward, grad, grad modes, and custom functions."""

from ..engine import AccumulateGrad, Node
from ..tensor import Tensor
from . import graph
from .backward import backward, grad
from .function import Function, NestedIOFunction
from .modes import enable_grad, inference_mode, no_grad, set_grad_enabled, set_multithreading_enabled
from .variable import Variable

__all__ = [
    "AccumulateGrad", "Function", "NestedIOFunction", "Node", "Tensor", "Variable", "backward", "enable_grad", "grad", "graph",
    "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip


_LAZY = ("anomaly_mode", "forward_ad", "functional", "gradcheck", "profiler")
_LAZY_NAMES = {"detect_anomaly": "anomaly_mode", "set_detect_anomaly": "anomaly_mode", "gradgradcheck": "gradcheck"}


def __getattr__(name):
    import importlib

    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module 'backlight.autograd' has no attribute '{name}'")
