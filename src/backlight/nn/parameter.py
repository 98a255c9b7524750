"""Parameter and Buffer: tensors that a module registers when they are assigned to an attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import empty
from ..tensor import Parameter, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class _BufferType(type(Tensor)):
    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferType):
    """A tensor that becomes a buffer of the module it is assigned to: part of its state, not a parameter.

    `persistent=False` keeps it out of the `state_dict`. The result is a plain tensor that shares the memory of `data`.
    """

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Tensor:
        if data is None:
            data = empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent  # pyright: ignore[reportAttributeAccessIssue]
        buffer._is_buffer = True  # pyright: ignore[reportAttributeAccessIssue]
        return buffer

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        """All is done by `__new__`, which returns a plain tensor."""


class _Uninitialized:
    """What uninitialized parameters and buffers share: they have a dtype, and no shape until `materialize` is called."""

    __slots__ = ()

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` to "
            "initialize the parameters before accessing their attributes."
        )

    def materialize(self: Any, shape, device=None, dtype=None) -> None:
        """Becomes an ordinary tensor of this shape (the same object), with undefined values."""
        self.array = empty(shape, device=device, dtype=self.dtype if dtype is None else dtype).array
        self.__class__ = self.cls_to_become

    def detach(self):
        return self

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before "
            "calling `module.share_memory()`."
        )

    def __deepcopy__(self: Any, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, dtype=self.dtype)
        return memo[id(self)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self: Any, _protocol):
        return type(self), (self.requires_grad,)


def _refuse(cls, func, _types, args=(), kwargs=None):
    name = getattr(func, "op", func).name if hasattr(func, "op") else func.__name__
    if name in _ALLOWED:
        return func(Tensor._from(args[0].array), *args[1:], **(kwargs or {}))
    raise ValueError(
        f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a `LazyModule` or "
        f"explicitly manipulating `torch.nn.parameter.{cls.__name__}` objects. When using LazyModules Call `forward` with a "
        "dummy batch to initialize the parameters before calling torch functions"
    )


# Conversions work before there is a shape: `lazy_module.double()`.
_ALLOWED = {"to", "to_copy", "clone", "contiguous"}


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter whose shape is found out later, as in lazy modules. `materialize` gives it one."""

    __slots__ = ()
    cls_to_become = Parameter
    __torch_function__ = classmethod(_refuse)

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        return Parameter.__new__(cls, empty(0, device=device, dtype=dtype), requires_grad)


class UninitializedBuffer(_Uninitialized, Tensor):
    """A buffer whose shape is found out later, as in lazy modules. `materialize` gives it one."""

    __slots__ = ()
    cls_to_become = Tensor
    __torch_function__ = classmethod(_refuse)

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        from ..tensor import as_subclass

        buffer = as_subclass(empty(0, device=device, dtype=dtype).requires_grad_(requires_grad), cls)
        buffer.persistent = persistent  # pyright: ignore[reportAttributeAccessIssue]
        buffer._is_buffer = True  # pyright: ignore[reportAttributeAccessIssue]
        return buffer


def is_lazy(param) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, _Uninitialized)


def clear_grads(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Sets the parameters' `grad` to None, or detaches and fills it with zeros."""
    for parameter in parameters:
        grad = parameter.grad
        if grad is None:
            continue
        if set_to_none:
            parameter.grad = None
            continue
        if grad.grad_fn is not None:
            grad.detach_()
        else:
            grad.requires_grad_(False)
        grad.zero_()
