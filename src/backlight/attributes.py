"""What a tensor says of itself, and its conversions to Python numbers. Importing this binds the methods."""

from __future__ import annotations

from collections import OrderedDict

from . import dtypes
from .dtypes import Size
from .engine import node_and_number
from .hooks import hooks_of
from .state import state
from .tensor import Tensor, dimension


def shape(self) -> Size:
    """The sizes of the dimensions."""
    return tuple.__new__(Size, self.array.shape)


def size(self, dim=None):
    """The shape, or the size of one dimension."""
    if dim is None:
        return tuple.__new__(Size, self.array.shape)
    if not hasattr(dim, "__index__"):
        raise TypeError(f"size(): argument 'dim' (position 1) must be int, not {type(dim).__name__}")
    return self.array.shape[dimension(dim, self.array.ndim)]


def dim(self) -> int:
    """The number of dimensions."""
    return self.array.ndim


def numel(self) -> int:
    """The number of elements."""
    return self.array.size


def dtype(self) -> dtypes.dtype:
    """The type of the elements."""
    return dtypes.from_array_type(self.array.dtype)


def stride(self, dim=None):
    """Steps between neighbours in each dimension, in elements."""
    array = self.array
    strides = tuple(s // array.itemsize for s in array.strides)
    if 0 in array.shape or 1 in array.shape:
        strides = _regular_strides(array, strides)
    return strides if dim is None else strides[dimension(dim, array.ndim)]


def __len__(self) -> int:
    if not self.array.ndim:
        raise TypeError("len() of a 0-d tensor")
    return len(self.array)


def _cdata(self) -> int:
    """A number that no other tensor has: programs ask with it whether two are the same."""
    return id(self)


def volatile(_self) -> bool:
    """False: volatile was removed from PyTorch in version 0.4."""
    import warnings

    warnings.warn("volatile was removed (Variable.volatile is always False)", UserWarning, stacklevel=2)
    return False


def __contains__(self, item) -> bool:
    if not isinstance(item, (Tensor, int, float, complex)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(item)}.")
    return bool((self == item).any())


def item(self):
    """The value of a one-element tensor as a Python number."""
    if self.array.size != 1:
        raise RuntimeError(f"a Tensor with {self.array.size} elements cannot be converted to Scalar")
    if state.recorder is not None:
        state.recorder.called("item", self)
    value = self.array.item()
    return float(value) if self.array.dtype.kind == "V" else value


def __bool__(self) -> bool:
    if self.array.size != 1:
        if not self.array.size:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(self.array.item())


def _number(self):
    if self.array.size != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    if state.recorder is not None:
        state.recorder.called("item", self)
    return self.array.item()


def __float__(self) -> float:
    return float(_number(self))


def __int__(self) -> int:
    return int(_number(self))


def __complex__(self) -> complex:
    return complex(_number(self))


def __index__(self) -> int:
    if self.array.size != 1 or self.array.dtype.kind not in "iub":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(self.array.item())


def __format__(self, spec: str) -> str:
    if not self.array.ndim and type(self) is Tensor:
        return self.item().__format__(spec)
    return object.__format__(self, spec)


def _regular_strides(array, strides):
    """NumPy leaves the strides of empty and one-element dimensions open; PyTorch defines them."""
    if array.flags.c_contiguous:
        out, step = [], 1
        for n in reversed(array.shape):
            out.append(step)
            step *= max(n, 1)
        return tuple(reversed(out))
    return strides


def _backward_hooks(self):
    """The tensor's hooks by number, None if it has none."""
    if self.node is None:
        return self.__dict__.get("_backward_hooks")
    node, number = node_and_number(self.node)
    return None if node.hooks is None else node.hooks.tensor.get(number)


def _set_backward_hooks(self, hooks):
    """Replaces the tensor's hooks; those of a tensor that doesn't require grad are never called."""
    if self.node is None:
        self.__dict__["_backward_hooks"] = hooks
    else:
        node, number = node_and_number(self.node)
        hooks_of(node).tensor[number] = OrderedDict() if hooks is None else hooks


def _keep_backward_hooks(_self):
    raise RuntimeError("Deletion of _backwards_hooks not allowed!")


def _keep_grad_fn(_self):
    raise RuntimeError("Deletion of _grad_fn not allowed. Detach tensor instead!")


for _name, _property in (
    ("shape", property(shape)),
    ("ndim", property(dim)),
    ("dtype", property(dtype)),
    ("volatile", property(volatile)),
    ("_cdata", property(_cdata)),
    ("_backward_hooks", property(_backward_hooks, _set_backward_hooks, fdel=_keep_backward_hooks)),
    ("_grad_fn", property(lambda self: self.grad_fn, fdel=_keep_grad_fn)),
):
    setattr(Tensor, _name, _property)
Tensor.ndimension, Tensor.nelement = dim, numel
for _function in (
    size,
    dim,
    numel,
    stride,
    __len__,
    __contains__,
    item,
    __bool__,
    __float__,
    __int__,
    __complex__,
    __index__,
    __format__,
):
    setattr(Tensor, _function.__name__, _function)
