"""`torch.overrides`: functions for classes that define `__torch_function__`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["handle_torch_function", "has_torch_function", "is_tensor_like", "is_tensor_method_or_property"]


def _overrides(value: Any) -> bool:
    method = getattr(type(value), "__torch_function__", None)
    return method is not None and getattr(method, "__func__", method) is not getattr(
        getattr(Tensor, "__torch_function__", None), "__func__", None
    )


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments has a `__torch_function__` of its own."""
    return any(map(_overrides, relevant_args))


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the `__torch_function__` of the arguments, subclasses first, until one doesn't return NotImplemented."""
    own: list[Any] = []
    for value in relevant_args:
        if _overrides(value) and type(value) not in map(type, own):
            place = next((i for i, other in enumerate(own) if issubclass(type(value), type(other))), len(own))
            own.insert(place, value)
    types = tuple(type(value) for value in own)
    for value in own:
        result = type(value).__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"no implementation found for '{public_api.__module__}.{public_api.__name__}' on types that implement "
        f"__torch_function__: {list(types)}"
    )


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or of a type that defines `__torch_function__`."""
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func: Callable) -> bool:
    """Whether a function is one of Tensor's."""
    return any(func is value or getattr(value, "fget", None) is func for value in vars(Tensor).values())
