"""Writing results into existing tensors: `out=` and the in-place forms `name_`."""

from __future__ import annotations

import contextlib
import sys
import weakref

import numpy as np

from . import dtypes, views
from .codegen import named
from .engine import AccumulateGrad
from .state import modes, state
from .tensor import Tensor

VMAPPED = (
    "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has more elements "
    "than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over in a vmap. Please try to use "
    "out-of-place operators instead of inplace arithmetic. If said operator is being called inside the PyTorch framework, please file a bug "
    "report instead."
)


def write_out(out, result, name=None, exact=False):
    """Stores a result in the tensor given as `out=`, resizing it if needed. RuntimeError where the types don't fit.

    exact: whether the types must be equal, as some operations want it; else a type that holds the result will do.
    """
    if isinstance(result, (tuple, list)):
        if len(out) != len(result):
            raise TypeError(f"argument 'out' must be a tuple of {len(result)} tensors, not {len(out)}")
        return type(result)([write_out(o, r, name, exact) for o, r in zip(out, result)])
    if not isinstance(out, Tensor):
        raise TypeError(f"argument 'out' must be Tensor, not {type(out).__name__}")
    if modes.levels:
        from .forward import forbid_out

        forbid_out(out, result, name)
    if modes.grad and (result.node is not None or out.node is not None):
        name = name or sys._getframe(1).f_code.co_name
        raise RuntimeError(
            f"{name.strip('_')}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if result.dtype is not out.dtype:
        _check_out_type(result.dtype, out.dtype, exact, name)
    views.check_writable(out)
    if modes.before_write is not None:
        modes.before_write(out)
    if out.array.shape == result.array.shape:
        check_overlap(out.array)
        out.array[...] = result.array
    else:
        if out.array.size:
            _warn_resized(out, result)
        out.array = result.array.astype(out.array.dtype)
    views.bump(out)
    return out


_CPP_NAMES = {
    "float64": "double", "float32": "float", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int", "int32": "int",
    "int16": "short int", "int8": "signed char", "uint8": "unsigned char", "complex128": "c10::complex<double>",
    "complex64": "c10::complex<float>",
}  # fmt: skip
# Operations on real numbers whose results PyTorch doesn't store in complex tensors.
_REAL = frozenset("abs ceil floor frac heaviside neg round round_decimals sgn_real sign trunc".split())


def _check_out_type(found, wanted, exact, name):
    if exact:
        names = [_CPP_NAMES.get(t.name, t.name) for t in (found, wanted)]
        raise RuntimeError(f"Expected out tensor to have dtype {names[0]}, but got {names[1]} instead")
    names = dtypes.scalar_type_name(found), dtypes.scalar_type_name(wanted)
    if name in _REAL and wanted.is_complex:
        raise RuntimeError(f"Found dtype {names[1]} but expected {names[0]}")
    if not dtypes.can_cast(found, wanted):
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")


def check_overlap(array):
    """RuntimeError for a tensor that shows one element in several places, as expand makes it."""
    strided = 0 in array.strides and array.size and any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides))
    if not strided and not array.flags.writeable:
        with contextlib.suppress(ValueError):
            array.flags.writeable = True  # one element of an expanded tensor, which NumPy made read-only as a whole
    if strided or not array.flags.writeable:
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def _steps(array):
    return [s for s, n in zip(array.strides, array.shape) if n != 1]


def _is_dense(array) -> bool:
    """Whether the elements fill a piece of memory, in whatever order of the dimensions."""
    step = array.itemsize
    for stride, n in sorted((s, n) for s, n in zip(array.strides, array.shape) if n != 1):
        if stride != step:
            return False
        step *= n
    return True


def check_partial_overlap(written, read):
    """RuntimeError if the written elements are some of those read, in other places: each write would change what is read next."""
    same_start = written.__array_interface__["data"][0] == read.__array_interface__["data"][0]
    if same_start and written.ndim == read.ndim and _steps(written) == _steps(read):
        return
    if _is_dense(written) and _is_dense(read) and np.may_share_memory(written, read):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def _warn_resized(out, result):
    import warnings

    warnings.warn(
        f"An output with one or more elements was resized since it had shape {list(out.array.shape)}, which does not match the "
        f"required output shape {list(result.array.shape)}. This behavior is deprecated, and in a future PyTorch release outputs "
        "will not be resized unless they have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to "
        "zero elements with t.resize_(0).",
        UserWarning,
        stacklevel=4,
    )


def as_wrong_argument(error, function, name, args, kwargs):
    """The TypeError for the argument whose missing attribute raised an AttributeError; else the error itself."""
    names = function.__code__.co_varnames
    for i, (key, value) in enumerate([*zip(names, args), *kwargs.items()]):
        if value is error.obj and not isinstance(value, Tensor):
            return TypeError(f"{name}(): argument '{key}' (position {i + 1}) must be Tensor, not {type(value).__name__}")
    return error


def with_out(function, name, exact=False):
    """`function` with an `out=` argument."""

    def with_out(*args, out=None, **kwargs):
        try:
            result = function(*args, **kwargs)
        except AttributeError as error:
            raise as_wrong_argument(error, function, name, args, kwargs) from None
        return result if out is None else write_out(out, result, name, exact)

    named(with_out, name)
    with_out.__doc__, with_out.__module__, with_out.__wrapped__ = function.__doc__, function.__module__, function
    with_out.takes_out = True  # for the type stubs
    return with_out


def inplace_method(function, name):
    composite = not hasattr(function, "op")

    def method(self, *args, **kwargs):
        if not isinstance(self, Tensor):  # torch.abs_(2)
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(self).__name__}")
        return inplace(function, self, args, kwargs, composite=composite)

    named(method, name)
    method.__doc__ = f"In-place form of {name[:-1]}: writes the result into this tensor and returns it."
    return method


def check_captured(tensor, name) -> None:
    """RuntimeError for a tensor that the function in a running transform has from outside."""
    from .func.captured import refuse_captured

    refuse_captured(tensor, name.strip("_") + "_")


def inplace(function, tensor, args=(), kwargs=None, reads=True, fills=False, composite=False):
    """Runs `function`, writes its result into `tensor`, and makes the result's node the origin of the new contents.

    args: what else `function` takes after the tensor; with reads=False only named here, because it must not overlap.
    fills: whether all elements become the same, so that an expanded tensor may be written. composite: whether `function` is
    made of operations, of which one may save a view of the old contents."""
    if modes.captured:
        check_captured(tensor, "copy" if function.__name__ == "<lambda>" else function.__name__)  # mostly x[...] = y
    adds_gradient = any(isinstance(x, Tensor) and x.requires_grad for x in args)
    views.check_writable(tensor, adds_gradient)
    if not fills:
        check_overlap(tensor.array)
    elif not tensor.array.flags.writeable:
        tensor.array.flags.writeable = True  # expanded, which NumPy makes read-only
    for x in () if hasattr(tensor, "write") else args:  # a tensor under vmap checks when it writes its batch
        if isinstance(x, Tensor) and (x.array.base is not None or tensor.array.base is not None):
            check_partial_overlap(tensor.array, x.array)
    # Enters the graph in the tensor's place, and keeps the old contents if saved; hooks must never see the new ones.
    node = views.current_node(tensor)
    copies = modes.saved_hooks or (composite and modes.grad and (adds_gradient or node is not None))
    stand_in = Tensor._from(tensor.array.copy() if copies else tensor.array)
    stand_in.node = node
    if state.recorder is not None:
        state.recorder.stands_in(stand_in, tensor)
    if modes.levels:
        if hasattr(tensor, "write"):  # a tensor under vmap writes its whole batch
            return tensor.write(function(tensor, *(args if reads else ()), **(kwargs or {})))
        from .forward import carry_tangents

        carry_tangents(tensor, stand_in)
    result = function(stand_in, *args, **(kwargs or {})) if reads else function(stand_in)
    views.check_writable(tensor, result.node is not None)
    array = tensor.array
    if modes.levels and hasattr(result, "write"):
        raise RuntimeError(VMAPPED)
    if result.array.shape != array.shape:
        raise RuntimeError(
            f"output with shape {list(array.shape)} doesn't match the broadcast shape {list(result.array.shape)}"
        )
    if not dtypes.can_cast(result.dtype, tensor.dtype):
        names = dtypes.scalar_type_name(result.dtype), dtypes.scalar_type_name(tensor.dtype)
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    if modes.before_write is not None:
        modes.before_write(tensor)
    node = result.node if type(result.node) is not AccumulateGrad else None
    if stand_in.array is array and sys.getrefcount(stand_in) > 2:  # some node saved it: it keeps the old contents
        stand_in.array = array.copy()
    with np.errstate(all="ignore"):
        array[...] = result.array
    if node is not None and hasattr(type(node), "saves_output"):
        node.saved = tuple(array if s is result.array else s for s in node.saved)
        if modes.saved_hooks:
            node.saved[-1].moved(result.array, array)
    views.rebase(tensor, node)
    if modes.levels:
        from .forward import write_tangents

        write_tangents(tensor, result)
    if node is not None and hasattr(type(node), "saves_output"):
        node.output_version = (tensor.version, tensor.version.count)
        if tensor.base is not None:
            node._extra("output_of", lambda: weakref.ref(tensor.node))  # the written view's, for the error about it
    return tensor
