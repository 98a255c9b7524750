"""`torch.jit`: programs run eagerly here, so what compiles in PyTorch returns its function or module as it is.

>>> import backlight as torch
>>> @torch.jit.script
... def double(x):
...     return 2 * x
>>> double(torch.ones(2))
tensor([2., 2.])
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .nn.module import Module as ScriptModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Attribute",
    "Error",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "freeze",
    "fuser",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "save",
    "script",
    "script_if_tracing",
    "set_fusion_strategy",
    "trace",
    "trace_module",
    "unused",
]

_isinstance = isinstance
ScriptFunction = type(lambda: None)


class Error(RuntimeError):
    """What PyTorch's interpreter raises; nothing here does."""


class Attribute(NamedTuple):
    """A value with the type that a script gives it."""

    value: Any
    type: Any


def script(obj: Any, *_args: Any, **_options: Any) -> Any:
    """Returns the function, class or module as it is."""
    return obj


def trace(func: Any, example_inputs: Any = None, *_args: Any, example_kwarg_inputs: dict | None = None, **_options: Any) -> Any:
    """Calls the function or module once with the example inputs, as PyTorch's does, and returns it as it is."""
    from .tensor import Tensor

    if example_inputs is not None or example_kwarg_inputs is not None:
        inputs = (example_inputs,) if _isinstance(example_inputs, Tensor) else tuple(example_inputs or ())
        func(*inputs, **(example_kwarg_inputs or {}))
    return func


def trace_module(mod: Any, inputs: dict[str, Any], *_args: Any, **_options: Any) -> Any:
    """Calls the named methods once with their example inputs, and returns the module as it is."""
    for name, example in inputs.items():
        getattr(mod, name)(*(example if _isinstance(example, tuple) else (example,)))
    return mod


def script_if_tracing(fn: Callable) -> Callable:
    """Returns the function as it is."""
    return fn


def freeze(mod: Any, *_args: Any, **_options: Any) -> Any:
    """Returns the module, which must be in evaluation mode."""
    if _isinstance(mod, ScriptModule) and mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module."
        )
    return mod


def optimize_for_inference(mod: Any, *_args: Any, **_options: Any) -> Any:
    """Returns the module as it is."""
    return mod


def export(fn: Callable) -> Callable:
    """Returns the method as it is."""
    return fn


unused = interface = export


def ignore(drop: Any = False, **_options: Any) -> Any:
    """Returns the method as it is; also with arguments, as a decorator."""
    return drop if callable(drop) else export


def annotate(_the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether the object has the type, which may be one like `list[int]`: then only the outer type counts."""
    types = target_type if _isinstance(target_type, tuple) else (target_type,)
    return _isinstance(obj, tuple(getattr(t, "__origin__", t) for t in types))


def is_scripting() -> bool:
    """False: nothing is compiled."""
    return False


def is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def save(m: Any, f: Any, **_options: Any) -> None:
    """Raises: TorchScript files hold compiled programs."""
    raise NotImplementedError(
        "torch.jit.save writes compiled programs, which Backlight has none of: use torch.save(m.state_dict(), f)"
    )


def load(f: Any, **_options: Any) -> Any:
    """Raises: TorchScript files hold compiled programs."""
    raise NotImplementedError(
        f"torch.jit.load({f!r}): TorchScript files hold compiled programs, which Backlight doesn't run. With PyTorch, "
        "torch.save(torch.jit.load(f).state_dict(), path) writes the weights to a file that loads here."
    )


@contextmanager
def fuser(_name: str) -> Iterator[None]:
    """A block in which nothing is different."""
    yield


@contextmanager
def optimized_execution(_should_optimize: bool) -> Iterator[None]:
    """A block in which nothing is different."""
    yield


def enable_onednn_fusion(_enabled: bool) -> None:
    """Does nothing."""


def onednn_fusion_enabled() -> bool:
    """False."""
    return False


def set_fusion_strategy(_strategy: list) -> list:
    """Does nothing, and returns that there was no strategy before."""
    return []
