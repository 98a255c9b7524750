"""Automatic differentiation: backward, grad, grad modes, and custom functions."""

from ..engine import AccumulateGrad, Node
from ..tensor import Tensor
from . import graph
from .backward import backward, grad
from .function import Function, NestedIOFunction
from .gradcheck import gradcheck, gradgradcheck
from .modes import (
    enable_grad,
    inference_mode,
    is_multithreading_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .variable import Variable

__all__ = [
    "AccumulateGrad", "Function", "NestedIOFunction", "Node", "Tensor", "Variable", "backward", "enable_grad", "grad", "gradcheck", "gradgradcheck", "graph",
    "inference_mode", "is_multithreading_enabled", "no_grad", "set_grad_enabled", "set_multithreading_enabled",
]  # fmt: skip


_LAZY = ("anomaly_mode", "forward_ad", "functional", "profiler", "profiler_util", "_functions")
_LAZY_NAMES = {
    "_profiler_enabled": "profiler", "kineto_available": "profiler", "detect_anomaly": "anomaly_mode", "set_detect_anomaly": "anomaly_mode",
    "_unsafe_preserve_version_counter": "modes",
}  # fmt: skip


def __getattr__(name):
    import importlib

    if name in _LAZY_NAMES:
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_LAZY_NAMES[name]}"), name)
        return value
    if name == "grad_mode":
        return importlib.import_module(f"{__name__}.modes")
    if name == "torch":
        return importlib.import_module(__name__.rpartition(".")[0])
    if name == "SavedTensor":
        from ..saved import SavedTensor

        return SavedTensor
    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'backlight.autograd' has no attribute '{name}'")
