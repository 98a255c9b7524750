"""Data types, PyTorch's type promotion, `Size` and `device`.

NumPy holds the numbers, but the rules are PyTorch's: an int64 tensor plus a Python float is float32
(NumPy would say float64), because a tensor's *category* (bool < int < float < complex) decides first
and dimensioned tensors outrank 0-d tensors, which outrank Python numbers.
"""

from __future__ import annotations

import numbers as _numbers
from typing import Any

import numpy as np

__all__ = ["Size", "device", "dtype", "finfo", "iinfo", "layout", "memory_format"]


class dtype:
    """A tensor's element type, for example `torch.float32`. Instances are singletons."""

    __slots__ = ("_array_type", "category", "itemsize", "name")

    def __init__(self, name: str, array_type: str, category: int, itemsize: int):
        self.name = name
        self._array_type = array_type
        self.category = category  # 0 bool, 1 integer, 2 floating point, 3 complex
        self.itemsize = itemsize

    @property
    def array_type(self) -> np.dtype:
        """The NumPy dtype that stores this type (bfloat16 is imported from ml_dtypes when first needed)."""
        if type(self._array_type) is str:
            if self.name == "bfloat16":
                import ml_dtypes

                self._array_type = np.dtype(ml_dtypes.bfloat16)
            else:
                self._array_type = np.dtype(self._array_type)
            FROM_ARRAY_TYPE[self._array_type] = self
        return self._array_type  # pyright: ignore[reportReturnType]

    @property
    def is_floating_point(self) -> bool:
        return self.category == 2

    @property
    def is_complex(self) -> bool:
        return self.category == 3

    @property
    def is_signed(self) -> bool:
        return self.name != "bool" and not self.name.startswith("u")

    def to_real(self) -> dtype:
        """The type of the real part: complex128 -> float64."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def to_complex(self) -> dtype:
        """The complex type whose parts have this type: float64 -> complex128."""
        return {"float32": complex64, "float64": complex128}.get(self.name, self if self.category == 3 else complex64)

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return "bool_" if self.name == "bool" else self.name  # the name here, where bool is Python's

    def __copy__(self):
        return self

    def __deepcopy__(self, _memo):
        return self


FROM_ARRAY_TYPE: dict[np.dtype, dtype] = {}

bool_ = dtype("bool", "?", 0, 1)
uint8 = dtype("uint8", "u1", 1, 1)
int8 = dtype("int8", "i1", 1, 1)
int16 = dtype("int16", "i2", 1, 2)
int32 = dtype("int32", "i4", 1, 4)
int64 = dtype("int64", "i8", 1, 8)
uint16 = dtype("uint16", "u2", 1, 2)
uint32 = dtype("uint32", "u4", 1, 4)
uint64 = dtype("uint64", "u8", 1, 8)
float16 = dtype("float16", "f2", 2, 2)
bfloat16 = dtype("bfloat16", "bfloat16", 2, 2)
float32 = dtype("float32", "f4", 2, 4)
float64 = dtype("float64", "f8", 2, 8)
complex64 = dtype("complex64", "c8", 3, 8)
complex128 = dtype("complex128", "c16", 3, 16)

ALL = (bool_, uint8, int8, int16, int32, int64, uint16, uint32, uint64, float16, bfloat16, float32, float64)
ALL = (*ALL, complex64, complex128)
for _dtype in ALL:
    if _dtype is not bfloat16:
        _dtype.array_type  # noqa: B018

# PyTorch's C++ names, used in its error texts.
SCALAR_TYPE_NAMES = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "float16": "Half", "bfloat16": "BFloat16",
    "float32": "Float", "float64": "Double", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip

PYTHON_TYPES = {bool: bool_, int: int64, float: float32, complex: complex64}
_default = float32


def scalar_type_name(t: dtype) -> str:
    return SCALAR_TYPE_NAMES[t.name]


def from_array_type(array_type: np.dtype) -> dtype:
    """The dtype whose arrays have this NumPy type. TypeError where PyTorch has none."""
    found = FROM_ARRAY_TYPE.get(array_type)
    if found is None:
        if array_type.name == "bfloat16":
            bfloat16.array_type  # noqa: B018
            return bfloat16
        if array_type.byteorder not in "=|" and array_type.newbyteorder("=") in FROM_ARRAY_TYPE:
            raise ValueError("given numpy array has byte order different from the native byte order. Conversion "
                             "between byte orders is currently not supported.")  # fmt: skip
        raise TypeError(
            f"can't convert np.ndarray of type {array_type.type.__module__}.{array_type.type.__name__}. The only "
            "supported types are: float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, "
            "uint32, uint16, uint8, and bool."
        )
    return found


def get_default_dtype() -> dtype:
    """The floating point type of new tensors: float32 until `set_default_dtype` is called."""
    return _default


def set_default_dtype(d: dtype) -> None:
    """Makes `d` the floating point type of new tensors. TypeError for types that aren't floating point."""
    global _default
    if not isinstance(d, dtype):
        raise TypeError("invalid dtype object: only floating-point types are supported as the default type")
    if d.category != 2:
        raise TypeError("only floating-point types are supported as the default type")
    _default = d
    PYTHON_TYPES[float] = d
    PYTHON_TYPES[complex] = d.to_complex()


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest type that holds both: `promote_types(uint8, int8)` is int16, of int64 and float16 float16."""
    if type1 is type2:
        return type1
    low, high = sorted((type1, type2), key=lambda t: (t.category, t.itemsize))
    if high.category != low.category:
        if high.category == 3 and low is float64:
            return complex128
        return high
    if high.category == 1 and high.is_signed != low.is_signed:
        unsigned, signed = (high, low) if low.is_signed else (low, high)
        if unsigned.name in ("uint16", "uint32", "uint64"):
            raise RuntimeError(f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
                               f"{scalar_type_name(type1)} and {scalar_type_name(type2)}")  # fmt: skip
        return int16 if signed is int8 else signed
    if {low, high} == {float16, bfloat16}:
        return float32
    return high


def number_type(value) -> dtype | None:
    """The dtype that PyTorch gives a Python number; None for anything that isn't a number."""
    found = PYTHON_TYPES.get(type(value))
    if found is None:
        if isinstance(value, (bool, np.bool_)):
            return bool_
        if isinstance(value, _numbers.Integral):
            return int64
        if isinstance(value, _numbers.Real):
            return PYTHON_TYPES[float]
        if isinstance(value, _numbers.Complex):
            return PYTHON_TYPES[complex]
    return found


def promote(arrays, scalars=()) -> dtype:
    """The result type of an operation on these arrays and Python numbers, by PyTorch's three ranks."""
    ranks: list[dtype | None] = [None, None, None]  # with dimensions, 0-d, Python numbers
    for array in arrays:
        t = from_array_type(array.dtype)
        rank = 0 if array.ndim else 1
        previous = ranks[rank]
        ranks[rank] = t if previous is None else promote_types(previous, t)
    for scalar in scalars:
        t = number_type(scalar)
        previous = ranks[2]
        ranks[2] = t if previous is None else promote_types(previous, t)  # pyright: ignore[reportArgumentType]
    result = None
    for t in ranks:
        if t is None:
            continue
        if result is None:
            result = t
        elif t.category > result.category:
            result = promote_types(result, t) if t.category == 3 and result.category == 2 else t
    if result is None:
        raise TypeError("promote() needs at least one array or number")
    if result.category == 3 and ranks[0] is not None and ranks[0].category == 2:
        return ranks[0].to_complex()
    return result


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether in-place operations may store a result of type `from_` in a tensor of type `to`."""
    return from_.category <= to.category or (from_.category == 0)


class Size(tuple):
    """A tensor's shape: a tuple that prints as `torch.Size([2, 3])`.

    >>> Size((2, 3)).numel()
    6
    """

    __slots__ = ()

    def __new__(cls, sizes=()):
        if type(sizes) is tuple:
            return tuple.__new__(cls, sizes)
        sizes = tuple(sizes)
        for i, size in enumerate(sizes):
            if not hasattr(size, "__index__"):
                raise TypeError(f"torch.Size() takes an iterable of 'int' (item {i} is '{type(size).__name__}')")
        return tuple.__new__(cls, (size.__index__() for size in sizes))

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        total = 1
        for size in self:
            total *= size
        return total

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index) -> Any:
        picked = tuple.__getitem__(self, index)
        return Size(picked) if isinstance(index, slice) else picked

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, other):
        return Size(tuple.__mul__(self, other))

    __rmul__ = __mul__

    def __reduce__(self):
        return Size, (tuple(self),)


class device:
    """Where a tensor lives. Backlight computes on the CPU; other devices can be named, not used."""

    __slots__ = ("index", "type")
    KNOWN = ("cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla",
             "lazy", "vulkan", "mps", "meta", "hpu", "mtia", "privateuseone")  # fmt: skip

    def __init__(self, type="cpu", index=None):
        if isinstance(type, device):
            type, index = type.type, type.index
        if isinstance(type, int):
            type, index = "cuda", type
        if not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str, not {type.__class__.__name__}")
        name, colon, number = type.partition(":")
        if name not in self.KNOWN:
            raise RuntimeError(
                "Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, "
                f"vulkan, mps, meta, hpu, mtia, privateuseone device type at start of device string: {name}"
            )
        if colon:
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: '{type}'")
            index = int(number)
        self.type = name
        self.index = index

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + ("" if self.index is None else f", index={self.index}") + ")"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other):
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))

    def __reduce__(self):
        return device, (self.type, self.index)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        return None


CPU = device("cpu")


def check_device(where) -> None:
    """Raises what PyTorch raises where that device is missing."""
    if where is None or where is CPU:
        return
    where = device(where)
    if where.type == "cpu":
        return
    if where.type == "cuda":
        raise AssertionError("Torch not compiled with CUDA enabled")
    raise RuntimeError(f"PyTorch is not linked with support for {where.type} devices: Backlight computes on the CPU only")


class layout:
    """How elements are laid out; only `strided` exists here."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return self.name


class memory_format(layout):
    """`contiguous_format`, `preserve_format`, `channels_last` or `channels_last_3d`."""

    __slots__ = ()


strided = layout("strided")
sparse_coo = layout("sparse_coo")
contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last")
channels_last_3d = memory_format("channels_last_3d")


class finfo:
    """Limits of a floating point type: `finfo(torch.float32).eps`."""

    def __init__(self, type: dtype | None = None):
        self._dtype = type or _default
        if self._dtype.category < 2:
            # That it names itself in place of the type is PyTorch's own slip.
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'\n"
                            f"The type is {self._dtype}.")  # fmt: skip
        real = self._dtype.to_real()
        if real is bfloat16:
            import ml_dtypes

            info = ml_dtypes.finfo(real.array_type)
        else:
            info = np.finfo(real.array_type)
        self.bits = info.bits
        self.dtype = real.name
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(info.resolution)

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, dtype={self.dtype})")  # fmt: skip


class iinfo:
    """Limits of an integer type: `iinfo(torch.int8).max`."""

    def __init__(self, type: dtype):
        if type.category != 1:
            if type is bool_:
                raise TypeError("torch.bool is not supported by torch.iinfo")
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'\n"
                            f"The type is {type}.")  # fmt: skip
        info = np.iinfo(type.array_type)
        self.bits, self.max, self.min, self.dtype = info.bits, int(info.max), int(info.min), type.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"
