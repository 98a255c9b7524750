"""Parameter and Buffer: tensors that a module registers when they are assigned to an attribute."""

from __future__ import annotations

from ..tensor import Parameter, Tensor

__all__ = ["Buffer", "Parameter"]


class _BufferType(type(Tensor)):
    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferType):
    """A tensor that becomes a buffer of the module it is assigned to: part of its state, not a parameter.

    `persistent=False` keeps it out of the `state_dict`. The result is a plain tensor that shares the memory of `data`.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Tensor:
        if data is None:
            from .. import empty

            data = empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent  # pyright: ignore[reportAttributeAccessIssue]
        buffer._is_buffer = True  # pyright: ignore[reportAttributeAccessIssue]
        return buffer

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        """All is done by `__new__`, which returns a plain tensor."""
