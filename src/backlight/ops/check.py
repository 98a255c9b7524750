"""Errors in PyTorch's words for arguments of the wrong type."""

from __future__ import annotations

from .. import dtypes
from ..tensor import Tensor


def not_tensor(function, **arguments) -> TypeError:
    """The error for the first of the arguments that isn't a tensor."""
    for position, (name, value) in enumerate(arguments.items(), 1):
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            return TypeError(f"{function}(): argument '{name}' (position {position}) must be Tensor, not {kind}")
    return TypeError(f"{function}(): arguments of the wrong type")


def two_tensors(function, name, second="other"):
    """`function` of two tensors, which refuses numbers."""

    def checked(input, other, *, out=None):
        if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
            raise not_tensor(name, **{"input": input, second: other})
        return function(input, other, out)

    checked.__name__, checked.__doc__, checked.op, checked.arrays = name, function.__doc__, function.op, function.arrays
    return checked


def not_implemented(kernel, tensor) -> NotImplementedError:
    """The error for a type that a function isn't defined for."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_type_name(tensor.dtype)}'")


def invalid_combination(function, *arguments, **named) -> TypeError:
    """The error for arguments that fit none of a function's forms (PyTorch goes on to list the forms)."""
    given = [type(a).__name__ for a in arguments] + [f"{k}={type(v).__name__}" for k, v in named.items()]
    return TypeError(f"{function}() received an invalid combination of arguments - got ({', '.join(given)})")


def scalar_name(tensor):
    """The C++ name of a tensor's type, for error texts."""
    name = dtypes.scalar_type_name(tensor.dtype)
    return {"Half": "c10::Half", "BFloat16": "c10::BFloat16"}.get(name, name.lower())
