"""`torch.compiler`: nothing is compiled, so its switches change nothing."""

from __future__ import annotations

from typing import Any

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "list_backends",
    "reset",
    "set_stance",
]


def compile(*args: Any, **options: Any) -> Any:
    """`torch.compile`."""
    from . import compile

    return compile(*args, **options)


def disable(fn: Any = None, recursive: bool = True, **_options: Any) -> Any:  # noqa: ARG001
    """Returns the function as it is; without one, a decorator that does."""
    return fn if fn is not None else lambda f: f


def allow_in_graph(fn: Any) -> Any:
    """Returns the function as it is."""
    return fn


assume_constant_result = allow_in_graph


def is_compiling() -> bool:
    """False."""
    return False


is_dynamo_compiling = is_compiling


def list_backends(*_args: Any) -> list[str]:
    """No backends."""
    return []


def reset() -> None:
    """Does nothing."""


cudagraph_mark_step_begin = reset


def set_stance(*_args: Any, **_options: Any) -> None:
    """Does nothing."""
