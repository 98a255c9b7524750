"""Types: real and imaginary parts, casts, copies."""

from __future__ import annotations

import numpy as np

from .. import dtypes, engine, kernels
from ..codegen import named
from ..creation import no_gradient
from ..kernels import ONE_PASS
from ..op import binary, face, op, public, twin, write_out
from ..tensor import Tensor
from .check import not_tensor


def _conj(x):
    return np.conjugate(x) if x.dtype.kind == "c" else x


# Complex numbers


conj = op("conj", _conj, lambda g, _input, _out: conj(g), holomorphic=False, promote="keep",
          doc="The complex conjugate; a real tensor is returned as it is. (*S) -> (*S).", batch="leading")  # fmt: skip
conj_physical = face(conj, name="conj_physical", inplace=True)
face(conj, name="conj")
Tensor.resolve_conj = lambda self: self  # conj() computes at once here, so there is nothing left to resolve


def _real(x):
    return x.real if x.dtype.kind == "c" else x


_real_op = op(
    "real",
    lambda x: x.real,
    lambda g, _input, _out: to_complex(g),
    holomorphic=False,
    view=True,
    promote="keep",
    batch="leading",
)
_imag_op = op("imag", lambda x: x.imag, lambda g, _input, _out: to_complex(g) * 1j, holomorphic=False, view=True,
              promote="keep", batch="leading")  # fmt: skip
to_complex = op("to_complex", lambda x: x.astype(np.complex64 if x.dtype == np.float32 else np.complex128),
                lambda g, _input, _out: real(g), holomorphic=False, promote="keep", node="ToCopyBackward0", batch="leading")  # fmt: skip


@public(method=False)
def real(input):
    """The real part, a view for complex tensors. (*S) -> (*S). Differentiable."""
    if not isinstance(input, Tensor):
        raise not_tensor("real", input=input)
    return _real_op(input) if input.dtype.is_complex else input


real.arrays = _real


@public(method=False)
def imag(input):
    """The imaginary part, a view. (*S) complex -> (*S) real. RuntimeError for real tensors. Differentiable."""
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return _imag_op(input)


Tensor.real = property(real, doc="The real part, a view for complex tensors.")
Tensor.imag = property(imag, doc="The imaginary part of a complex tensor, a view.")


_complex = binary("complex", lambda a, b: a + np.multiply(b, 1j, dtype=np.complex64 if a.dtype == np.float32 else np.complex128),
    lambda g, _input, _other, _out: real(g),
    lambda g, _input, _other, _out: real(g * -1j), public=False, holomorphic=False)  # fmt: skip


@public(method=False)
def complex(real, imag, *, out=None):
    """A complex tensor from its parts. Differentiable in both."""
    if not (isinstance(real, Tensor) and isinstance(imag, Tensor)):
        raise not_tensor("complex", real=real, imag=imag)
    if real.dtype is not imag.dtype:
        raise RuntimeError(f"Expected object of scalar type {dtypes.scalar_type_name(real.dtype)} but got scalar type "
                           f"{dtypes.scalar_type_name(imag.dtype)} for second argument")  # fmt: skip
    if real.dtype not in (dtypes.float32, dtypes.float64, dtypes.float16):
        raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got "
                           f"{dtypes.scalar_type_name(real.dtype)} and {dtypes.scalar_type_name(imag.dtype)}")  # fmt: skip
    result = _complex(real, imag)
    if out is not None and out.dtype is not result.dtype:
        names = dtypes.scalar_type_name(result.dtype), dtypes.scalar_type_name(out.dtype)
        raise RuntimeError(f"Expected object of scalar type {names[0]} but got scalar type {names[1]} for argument 'out'")
    return result if out is None else write_out(out, result)


# Casts and copies


def _cast_arrays(x, target, _source):
    return engine.cast(x, target)


_cast = op("to_copy", _cast_arrays, lambda g, _input, _out, target, source: _cast_back(g, source, target),
           promote="keep", node="ToCopyBackward0", holomorphic=False, batch="leading")  # fmt: skip

_cast_to_integer = op("to_integer", _cast_arrays, None, promote="keep", batch="leading")


@twin(lambda g, source, _target: engine.cast(g, source))
def _cast_back(g, source, _target):
    if g.dtype.is_complex and source.kind != "c":
        g = real(g)
    return _cast(g, source, g.array.dtype) if g.array.dtype != source else g


def to(input, dtype):
    """The tensor as another type; the tensor itself if it has that type already."""
    if input.dtype is dtype:
        return input
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"to(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    cast = _cast if dtype.category > 1 else _cast_to_integer
    return cast(input, dtype.array_type, input.array.dtype)


def _to_method(self, *args, dtype=None, device=None, copy=False, non_blocking=False, memory_format=None, other=None):
    """The tensor with another dtype (the only device is the CPU). Returns itself if nothing changes and not copy.

    Takes `to(dtype)`, `to(device, dtype)` or `to(other)`. Differentiable.
    """
    del non_blocking
    for i, value in enumerate(args):
        if isinstance(value, dtypes.dtype):
            dtype = value
        elif isinstance(value, Tensor):
            dtype = value.dtype
        elif isinstance(value, (str, int, dtypes.device)) and not isinstance(value, bool):
            device = value
        elif isinstance(value, bool):
            copy = value if i == len(args) - 1 and len(args) > 2 else copy
        elif value is not None:
            raise TypeError(f"to() received an invalid combination of arguments - got ({type(value).__name__})")
    if other is not None:
        dtype = other.dtype
    dtypes.check_device(device)
    if dtype is not None and dtype is not self.dtype:
        return to(self, dtype)
    if memory_format is dtypes.contiguous_format and not self.array.flags.c_contiguous:
        return clone(self, memory_format=memory_format)
    return _cast(self, self.array.dtype, self.array.dtype) if copy else self


Tensor.to = _to_method


def _cast_method(name, target):
    def method(self, memory_format=None):
        del memory_format
        return to(self, target)

    named(method, name)
    method.__doc__ = f"The tensor as {target.name}. Differentiable between floating point and complex types."
    setattr(Tensor, name, method)


for _name, _target in (
    ("bool", dtypes.bool_), ("byte", dtypes.uint8), ("char", dtypes.int8), ("short", dtypes.int16), ("int", dtypes.int32),
    ("long", dtypes.int64), ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16), ("float", dtypes.float32),
    ("double", dtypes.float64), ("cfloat", dtypes.complex64), ("cdouble", dtypes.complex128),
):  # fmt: skip
    _cast_method(_name, _target)


def _type_method(self, dtype=None):
    """The name of the tensor's type ("torch.FloatTensor"), or the tensor as another: a dtype, or a type or its name."""
    if dtype is None:
        return f"torch.{dtypes.scalar_type_name(self.dtype)}Tensor"
    if isinstance(dtype, str):
        found = next((t for t in dtypes.ALL if dtype == f"torch.{dtypes.scalar_type_name(t)}Tensor"), None)
        if found is None:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = found
    elif isinstance(dtype, type):
        dtype = dtypes.get_default_dtype() if dtype is Tensor else getattr(dtype, "dtype", None)
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError("dtype must be a type, str, or dtype object")
    return to(self, dtype)


Tensor.type = _type_method


def _type_as(self, other):
    """The tensor as the type of `other`."""
    return to(self, other.dtype)


Tensor.type_as = _type_as


def _clone_arrays(x, order):
    if order == "C" and x.size >= ONE_PASS and not x.flags.c_contiguous and kernels.compute(ONE_PASS, x):
        return kernels.copies.contiguous(x)
    return x.copy(order=order)


_clone = op("clone", _clone_arrays, lambda g, _input, _out, _order: g, promote="keep", batch="leading")


@public()
def clone(input, *, memory_format=None):
    """A copy with its own memory. (*S) -> (*S). Differentiable."""
    return _clone(input, "C" if memory_format is dtypes.contiguous_format else "K")


clone.arrays = np.copy

# Complex numbers from and as other things

_angle = op("angle", lambda x: np.angle(x) if x.dtype.kind == "c" else np.where(np.isnan(x), x, np.where(x < 0, np.pi, 0)).astype(x.dtype),
    lambda g, input, _out: angle_gradient(g, input), holomorphic=False, batch="leading")  # fmt: skip


@twin(
    lambda g, x: (
        np.zeros_like(g)
        if x.dtype.kind != "c"
        else np.where(x == 0, 0, g * 1j * x / np.where(x == 0, 1, x.real**2 + x.imag**2))
    )
)
def angle_gradient(g, x):
    """The gradient of the angle: zero for real numbers and at 0."""
    if not x.dtype.is_complex:
        return no_gradient(g)
    size = x.abs()
    return (to_complex(g) * 1j * (x / (size * size))).masked_fill(x == 0, 0)


@public()
def angle(input, *, out=None):
    """The angle of complex numbers in radians; 0 or pi for real ones. Differentiable."""
    result = _angle(input if input.dtype.category > 1 else to(input, dtypes.get_default_dtype()))
    return result if out is None else write_out(out, result)


_polar = op("polar", lambda size, angle: size * np.exp(np.multiply(angle, 1j, dtype=_complex_type(angle))),
    lambda g, _size, angle, _out: real(g * _direction(-angle)),
    lambda g, size, angle, _out: real(g * _direction(-angle) * -1j) * size, promote="arith", holomorphic=False, batch="elementwise")  # fmt: skip


def _complex_type(x):
    return np.complex64 if x.dtype == np.float32 else np.complex128


@twin(lambda angle: np.exp(np.multiply(angle, 1j, dtype=_complex_type(angle))))
def _direction(angle):
    return _complex(angle.cos(), angle.sin())


@public(method=False)
def polar(abs, angle, *, out=None):
    """abs * exp(i * angle), complex. Differentiable in both."""
    if not (isinstance(abs, Tensor) and isinstance(angle, Tensor)):
        raise not_tensor("polar", abs=abs, angle=angle)
    if abs.dtype is not angle.dtype:
        raise RuntimeError(f"Expected object of scalar type {dtypes.scalar_type_name(abs.dtype)} but got scalar type "
                           f"{dtypes.scalar_type_name(angle.dtype)} for second argument")  # fmt: skip
    result = _polar(abs, angle)
    return result if out is None else write_out(out, result)


def _as_real_arrays(x):
    return x[..., None].view(x.real.dtype)


def _as_complex_arrays(x):
    return x.view(np.complex64 if x.dtype == np.float32 else np.complex128)[..., 0]


_as_real = op(
    "view_as_real",
    _as_real_arrays,
    lambda g, _input, _out: as_complex(g),
    view=True,
    promote="keep",
    holomorphic=False,
    batch="leading",
)
_as_complex = op("view_as_complex", _as_complex_arrays, lambda g, _input, _out: as_real(g), view=True, promote="keep",
                 holomorphic=False, batch="leading")  # fmt: skip


@twin(lambda x: _as_complex_arrays(np.ascontiguousarray(x)))
def as_complex(x):
    """Pairs of real numbers as complex numbers."""
    return _as_complex(x.contiguous())


@twin(lambda x: _as_real_arrays(np.asarray(x)))
def as_real(x):
    """Complex numbers as pairs of real numbers."""
    return _as_real(x)


@public(method=False)
def view_as_real(input):
    """Complex numbers as pairs of real ones, a view. (*S) -> (*S, 2). Differentiable."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return _as_real(input)


@public(method=False)
def view_as_complex(input):
    """Pairs of real numbers as complex ones, a view. (*S, 2) -> (*S). Differentiable."""
    x = input.array
    if x.dtype not in (np.float32, np.float64):
        raise RuntimeError(f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
                           f"{dtypes.scalar_type_name(input.dtype)}")  # fmt: skip
    if not x.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if x.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if x.strides[-1] != x.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    return _as_complex(input)
