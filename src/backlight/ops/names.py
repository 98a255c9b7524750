"""Further names and forms that PyTorch has for operations: functions that write in place, copies of views, `out=`."""

from __future__ import annotations

import builtins
import warnings
from types import FunctionType

import numpy as np

from .. import dtypes
from ..codegen import named
from ..inplace import as_wrong_argument, with_out, write_out
from ..op import REGISTRY, face, public
from ..tensor import Tensor
from .activation import celu, hardshrink, prelu, relu, rrelu, selu, threshold
from .arrange import diagonal
from .cast import clone, view_as_complex, view_as_real
from .check import not_tensor, two_tensors
from .gather import unfold
from .join import chunk, split, split_with_sizes, unbind
from .linalg import vector_norm
from .pointwise import acosh, asinh, atanh
from .shape import (
    alias,
    as_strided,
    constant_pad,
    expand,
    narrow,
    permute,
    select,
    squeeze,
    t,
    transpose,
    unsqueeze,
    view,
)

# Functions that write in place: torch.sin_(x) is x.sin_()

_IN_PLACE = """abs acos acosh addmv arccos arccosh arcsin arcsinh arctan arctanh as_strided asin asinh atan atanh ceil clamp clamp_max
clamp_min clip conj_physical cos cosh deg2rad detach erf erfc exp exp2 expm1 fill fix floor frac gcd index_put lcm ldexp log log10
log1p log2 logit nan_to_num neg negative rad2deg reciprocal resize_as round rsqrt sigmoid sin sinc sinh sqrt square tan tanh trunc
xlogy zero i0"""
for _name, _function in (("arccosh", acosh), ("arcsinh", asinh), ("arctanh", atanh)):
    face(_function, name=_name, inplace=True)


def _as_strided_(self, size, stride, storage_offset=None):
    """Shows other places of the same memory: see as_strided. RuntimeError if the tensor requires grad."""
    if self.requires_grad:
        raise RuntimeError(
            "as_strided_(): tensors that require grad can't be given other strides in place here; use as_strided"
        )
    self.array = as_strided(self, size, stride, storage_offset).array
    return self


Tensor.as_strided_ = _as_strided_
for _name in _IN_PLACE.split():
    if hasattr(Tensor, f"{_name}_"):
        REGISTRY[f"{_name}_"] = getattr(Tensor, f"{_name}_")
for _name, _function in (("relu_", relu), ("selu_", selu), ("celu_", celu), ("rrelu_", rrelu), ("threshold_", threshold)):
    public(name=_name, method=False)(
        lambda input, *args, _function=_function, **kwargs: _function(input, *args, inplace=True, **kwargs)
    )

# Activations that `torch` has beside nn.functional

for _name, _function in (("prelu", prelu), ("hardshrink", hardshrink)):
    face(_function, name=_name)
for _name, _function in (("celu", celu), ("threshold", threshold)):
    face(_function, name=_name, method=False)

# Copies of views


def _copied(name, function):
    def copied(*args, out=None, **kwargs):
        try:
            result = function(*args, **kwargs)
        except AttributeError as error:
            raise as_wrong_argument(error, function, f"{name}_copy", args, kwargs) from None
        if out is not None:
            return write_out(out, result, f"{name}_copy", exact=True)
        return tuple(map(clone, result)) if isinstance(result, tuple) else clone(result)

    copied.__doc__ = f"A copy of what {name} shows. Differentiable."
    return face(copied, name=f"{name}_copy", method=name == "narrow")


for _name, _function in (
    ("alias", alias), ("as_strided", as_strided), ("detach", Tensor.detach), ("diagonal", diagonal), ("expand", expand),
    ("narrow", narrow), ("permute", permute), ("select", select), ("split", split), ("split_with_sizes", split_with_sizes),
    ("squeeze", squeeze), ("t", t), ("transpose", transpose), ("unbind", unbind), ("unfold", unfold), ("unsqueeze", unsqueeze),
    ("view", view), ("view_as_complex", view_as_complex), ("view_as_real", view_as_real),
):  # fmt: skip
    _copied(_name, _function)


@public(method=False)
def slice_copy(input, dim=0, start=None, end=None, step=1):
    """A copy of the slice start:end:step of a dimension. Differentiable."""
    return clone(input[(slice(None),) * (dim % max(input.array.ndim, 1)) + (slice(start, end, step),)])


def _unsafe(name, function):
    def unsafe(input, *args, **kwargs):
        if not isinstance(input, Tensor):
            raise not_tensor(f"unsafe_{name}", input=input)
        return tuple(map(clone, function(input, *args, **kwargs)))

    unsafe.__doc__ = f"{name} into copies, so that the parts may be written in place. Differentiable."
    face(unsafe, name=f"unsafe_{name}")


for _name, _function in (("chunk", chunk), ("split", split), ("split_with_sizes", split_with_sizes)):
    _unsafe(_name, _function)

# Functions of what a tensor knows of itself

face(Tensor.detach, name="detach", method=False)
face(Tensor.resolve_conj, name="resolve_conj", method=False)
face(Tensor.resolve_neg, name="resolve_neg", method=False)
face(Tensor.is_neg, name="is_neg", method=False)
face(Tensor.get_device, name="get_device", method=False)
face(Tensor.is_same_size, name="is_same_size", method=False)


@public()
def is_nonzero(input) -> bool:
    """Whether the only element isn't zero. RuntimeError unless there is exactly one."""
    if not isinstance(input, Tensor):
        raise not_tensor("is_nonzero", input=input)
    return bool(input)


@public(method=False)
def is_distributed(_input) -> bool:
    """False."""
    return False


def _is_set_to(self, tensor) -> bool:
    """Whether both show the same memory in the same way."""
    a, b = self.array, tensor.array
    return a.shape == b.shape and a.strides == b.strides and self.data_ptr() == tensor.data_ptr()


def _dim_order(self):
    """The dimensions, from the one with the longest steps in memory to that with the shortest."""
    strides = self.stride()
    return tuple(sorted(builtins.range(self.array.ndim), key=lambda d: -strides[d]))


def _apply_(self, callable):
    """Replaces each element x by callable(x), one after the other. Not differentiable."""
    for place in np.ndindex(self.array.shape):
        self.array[place] = callable(self.array[place].item())
    return self


def _map_(self, tensor, callable):
    """Replaces each element x by callable(x, y), y from another tensor. Not differentiable."""
    other = np.broadcast_to(tensor.array, self.array.shape)
    for place in np.ndindex(self.array.shape):
        self.array[place] = callable(self.array[place].item(), other[place].item())
    return self


def _map2_(self, x, y, callable):
    """Replaces each element e by callable(e, a, b), a and b from other tensors. Not differentiable."""
    a, b = (np.broadcast_to(v.array, self.array.shape) for v in (x, y))
    for place in np.ndindex(self.array.shape):
        self.array[place] = callable(self.array[place].item(), a[place].item(), b[place].item())
    return self


def _new(self, *data, device=None):
    """A tensor of this tensor's type: new(2, 3) uninitialised, new([1, 2]) from data."""
    from ..creation import legacy_array

    dtypes.check_device(device)
    return Tensor._from(legacy_array(data, self.dtype))


def _reversed(self):
    return self.flip(tuple(builtins.range(self.array.ndim))) if self.array.ndim else self


def _delitem(_self, _index):
    raise TypeError("Tensor does not support deleting items")


Tensor.is_set_to, Tensor.dim_order, Tensor.apply_, Tensor.map_, Tensor.map2_, Tensor.new = (
    _is_set_to, _dim_order, _apply_, _map_, _map2_, _new,
)  # fmt: skip
Tensor.__reversed__, Tensor.__delitem__ = _reversed, _delitem
Tensor.__div__, Tensor.__idiv__, Tensor.__nonzero__, Tensor.__long__ = (
    Tensor.__truediv__, Tensor.__itruediv__, Tensor.__bool__, Tensor.__int__,
)  # fmt: skip
Tensor.is_cpu = True
Tensor.name = property(lambda _self: None, doc="None: tensors have no names here.")
for _name in ("is_ipu", "is_maia", "is_mtia", "is_sparse_csr", "is_vulkan", "is_xla"):
    setattr(Tensor, _name, False)
Tensor.is_distributed = lambda _self: False
Tensor.dense_dim, Tensor.sparse_dim, Tensor.to_dense = (lambda self: self.array.ndim), (lambda _self: 0), (lambda self: self)
Tensor.const_data_ptr = Tensor.data_ptr
for _name, _function in vars(Tensor).items():
    if isinstance(_function, FunctionType) and not _name.startswith("_") and _function.__name__[:1] in "_<":
        named(_function, _name)


@public(method=False)
def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """func.vmap: the function, mapped over a dimension of its inputs."""
    from ..func import vmap

    return vmap(func, in_dims, out_dims, randomness, chunk_size=chunk_size)


# Norms by other names


@public(method=False)
def norm_except_dim(v, pow=2, dim=0):
    """The p-norms (p = pow) of the slices of a dimension, that dimension kept. Differentiable."""
    if dim == -1:
        return vector_norm(v, pow)
    return vector_norm(v, pow, tuple(d for d in builtins.range(v.array.ndim) if d != dim % v.array.ndim), True)


@public(method=False)
def frobenius_norm(input, dim, keepdim=False):
    """The root of the sum of squares over `dim`. Differentiable."""
    return vector_norm(input, 2, dim if dim != () else None, keepdim)


@public(method=False)
def constant_pad_nd(input, pad, value=0):
    """nn.functional.pad with a constant. Differentiable."""
    return constant_pad(input, tuple(pad), value)


@public(method=False)
def range(start=0, end=None, step=1, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """Numbers from start up to and including end, in steps, as floating point. Deprecated: see arange."""
    from ..creation import _finish

    warnings.warn("torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with Python's "
                  "range builtin. Instead, use torch.arange, which produces values in [start, end).", UserWarning, stacklevel=2)  # fmt: skip
    del layout
    if end is None:
        start, end = 0, start
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    kind = dtype or dtypes.get_default_dtype()
    count = int((end - start) / step + 1)
    values = np.array([start + step * i for i in builtins.range(count)], np.float64)
    return _finish(values.astype(kind.array_type), None, device, requires_grad, out)


@public()
def vander(x, N=None, increasing=False):
    """Powers of the elements of a vector, one in each column, falling from the left. (S) -> (S, N). Differentiable."""
    if x.array.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.array.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    powers = Tensor._from(np.arange(n) if increasing else np.arange(n)[::-1].copy())
    return unsqueeze(x, -1) ** powers


# Functions of two tensors, where PyTorch takes no number for either

for _name in "fmax fmin logaddexp logaddexp2 logical_and logical_or logical_xor heaviside hypot gcd lcm".split():
    face(two_tensors(REGISTRY[_name], _name, "values" if _name == "heaviside" else "other"), name=_name)


# `out=` for functions that don't take it themselves. Methods have none. True: only of the result's own type.

_WITH_OUT = {
    **dict.fromkeys("clamp_max clamp_min bitwise_not isposinf isneginf renorm kron polygamma hstack vstack row_stack dstack column_stack "
                    "index_add".split(), False),
    **dict.fromkeys("conj_physical diag kthvalue aminmax mode median nanmedian slice_scatter index_copy index_reduce take take_along_dim "
                    "scatter scatter_add scatter_reduce tensordot".split(), True),
}  # fmt: skip
for _name, _exact in _WITH_OUT.items():
    REGISTRY[_name] = with_out(REGISTRY[_name], _name, _exact)
