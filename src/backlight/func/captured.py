"""Tensors that a function transformed by grad, vjp or jvp has from outside: writing them in place is an error, as in PyTorch.

Found are those that the function (or one that it wraps) names: its own variables from outside, and the buffers of modules among
them. What it reaches in other ways, in a list or through a function that it calls, can be written.
"""

from __future__ import annotations

import functools
from types import CodeType, FunctionType, MethodType

from ..batching import Batched
from ..state import modes
from ..tensor import Tensor

INPLACE = (
    "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation (aten::{}) that would "
    "mutate a captured Tensor. This is not supported; please rewrite the function being transformed to explicitly accept the mutated "
    "Tensor(s) as inputs."
)


class captured:
    """While a transform runs `func`: what it captured. arguments: tensors that it gets, which it may write."""

    def __init__(self, func, arguments):
        self.found: dict = {}
        self._look_at(func)
        if self.found:
            for x in arguments:
                self.found.pop(id(x), None)
                if isinstance(x, Tensor) and x.base is not None:
                    self.found.pop(id(x.base.root), None)

    def __enter__(self):
        self.before = modes.captured
        if self.found:
            modes.captured = (*self.before, self.found)

    def __exit__(self, *_exception):
        modes.captured = self.before

    def _look_at(self, x, seen=()):
        """Notes a tensor, a module's buffers, or what a function captured."""
        if isinstance(x, Tensor):
            self.found[id(x)] = x  # which keeps it alive, and its id its own
        elif isinstance(x, FunctionType):
            if x not in seen:
                self._look_into(x, (*seen, x))
        elif isinstance(x, functools.partial):
            for each in (x.func, *x.args, *x.keywords.values()):
                self._look_at(each, seen)
        elif isinstance(x, MethodType):
            self._look_at(x.__self__, seen)
            self._look_at(x.__func__, seen)
        elif hasattr(type(x), "register_buffer"):
            for module in _tree(x):
                for name in module._buffer_names:
                    buffer = module.__dict__[name]
                    if buffer is not None:
                        self.found[id(buffer)] = buffer

    def _look_into(self, function, seen):
        own = function.__module__ is not None and function.__module__.split(".")[0] == __name__.split(".")[0]
        for cell in function.__closure__ or ():
            try:
                x = cell.cell_contents
            except ValueError:  # not bound yet
                continue
            if not own or isinstance(x, (FunctionType, functools.partial, MethodType)) or hasattr(type(x), "register_buffer"):
                self._look_at(x, seen)
        if not own:
            for name in _names(function.__code__):
                x = function.__globals__.get(name)
                if isinstance(x, Tensor) or hasattr(type(x), "register_buffer"):
                    self._look_at(x)


def _tree(module):
    """A module and all below it. As module.modules(), but a transform looks whenever it runs (benchmarks: jacobian)."""
    found, stack = {module: True}, [module]
    for module in stack:  # grows while it is walked
        for name in module._module_names:
            child = module.__dict__[name]
            if child is not None and child not in found:
                found[child] = True
                stack.append(child)
    return stack


@functools.lru_cache(maxsize=1024)
def _names(code):
    """The global names in a function and in those that it defines."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return frozenset((*code.co_names, *inner))


_OVERLOADS = dict.fromkeys(("add_", "sub_", "mul_", "div_"), ".Tensor")


def refuse_captured(tensor, name) -> None:
    """RuntimeError if the tensor, or what it is a view or a sample of, was captured. name: of the operation, as in `mul_`."""
    while True:
        root = tensor if tensor.base is None else tensor.base.root
        shared = None if type(root) is Batched else root.version  # with what `detach` made of it
        if any(
            id(root) in found
            or id(tensor) in found
            or (shared is not None and any(x.version is shared for x in found.values()))
            for found in modes.captured
        ):
            raise RuntimeError(INPLACE.format(name + _OVERLOADS.get(name, "")))
        if type(root) is not Batched:
            return
        tensor = root.value
