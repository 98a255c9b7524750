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


def __getattr__(name):
    raise AttributeError(f"backlight.autograd.{name} is not there yet in Backlight")
