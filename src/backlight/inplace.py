"""Writing results into existing tensors: `out=` and the in-place forms `name_`."""

from __future__ import annotations

import sys

import numpy as np

from . import dtypes, views
from .engine import AccumulateGrad
from .state import modes
from .tensor import Tensor


def write_out(out, result, name=None):
    """Stores a result in the tensor given as `out=`, resizing it if needed."""
    if isinstance(out, (tuple, list)):
        return type(out)([write_out(o, r, name) for o, r in zip(out, result, strict=True)])
    if not isinstance(out, Tensor):
        raise TypeError(f"argument 'out' must be Tensor, not {type(out).__name__}")
    if modes.grad and (result.node is not None or out.node is not None):
        name = name or sys._getframe(1).f_code.co_name
        raise RuntimeError(
            f"{name.strip('_')}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if not dtypes.can_cast(result.dtype, out.dtype):
        names = dtypes.scalar_type_name(result.dtype), dtypes.scalar_type_name(out.dtype)
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    if out.array.shape == result.array.shape:
        out.array[...] = result.array
    else:
        out.array = result.array.astype(out.array.dtype)
    views.bump(out)
    return out


def inplace_method(function, name):
    def method(self, *args, **kwargs):
        return inplace(function, self, args, kwargs)

    method.__name__ = name
    method.__doc__ = f"In-place form of {name[:-1]}: writes the result into this tensor and returns it."
    return method


def inplace(function, tensor, args=(), kwargs=None):
    """Runs `function`, writes its result into `tensor`, and makes the result's node the origin of the new contents."""
    views.check_writable(tensor)
    stand_in = Tensor._from(tensor.array)  # enters the graph in the tensor's place, and keeps the old contents if saved
    stand_in.node = views.current_node(tensor)
    if modes.levels:
        if hasattr(tensor, "write"):  # a tensor under vmap writes its whole batch
            return tensor.write(function(tensor, *args, **(kwargs or {})))
        from .forward import carry_tangents

        carry_tangents(tensor, stand_in)
    result = function(stand_in, *args, **(kwargs or {}))
    views.check_writable(tensor, result.node is not None)
    array = tensor.array
    if result.array.shape != array.shape:
        raise RuntimeError(
            f"output with shape {list(array.shape)} doesn't match the broadcast shape {list(result.array.shape)}"
        )
    if not dtypes.can_cast(result.dtype, tensor.dtype):
        names = dtypes.scalar_type_name(result.dtype), dtypes.scalar_type_name(tensor.dtype)
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    if (
        not array.flags.writeable
        or 0 in array.strides
        and any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True))
    ):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    node = result.node if type(result.node) is not AccumulateGrad else None
    if sys.getrefcount(stand_in) > 2:  # some node saved it: it keeps the old contents
        stand_in.array = array.copy()
    with np.errstate(all="ignore"):
        array[...] = result.array
    if node is not None and hasattr(type(node), "saves_output"):
        node.saved = tuple(array if s is result.array else s for s in node.saved)
    views.rebase(tensor, node)
    if modes.levels:
        from .forward import write_tangents

        write_tangents(tensor, result)
    if node is not None and hasattr(type(node), "saves_output"):
        node.output_version = (tensor.version, tensor.version.count)
    return tensor
