"""New tensors: from data, filled with numbers, like other tensors; and back to NumPy, Python and other libraries."""

from __future__ import annotations

import math
import operator

import numpy as np

from . import dtypes, views
from .batching import in_loop
from .codegen import named
from .dtypes import Size
from .engine import AccumulateGrad, modes, state
from .op import REGISTRY, public, twin, write_out
from .tensor import InferenceTensor, Tensor, as_subclass


def _finish(array, dtype=None, device=None, requires_grad=False, out=None, layout=None, pin_memory=False):
    """The array as a new tensor with the options that every creating function takes."""
    del layout, pin_memory
    if device is not None:
        dtypes.check_device(device)
    if requires_grad and (array.dtype if dtype is None else dtype.array_type).kind in "biu":
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    if dtype is not None and array.dtype != dtype.array_type:
        array = array.astype(dtype.array_type)
    if out is not None:
        if array.dtype != out.array.dtype:
            names = [dtypes.scalar_type_name(dtypes.from_array_type(a.dtype)) for a in (array, out.array)]
            raise RuntimeError(f"dtype {names[0]} does not match dtype of out parameter ({names[1]})")
        return write_out(out, Tensor._from(array))
    result = Tensor._from(array)
    if modes.inference:
        result.version, result.__class__ = views.InferenceVersion(), InferenceTensor
    if requires_grad:
        result.requires_grad_()
    return result


def check_dtype(function, dtype):
    """TypeError unless it is a dtype. The types bool, int, float and complex stand for theirs."""
    if isinstance(dtype, dtypes.dtype):
        return dtype
    if dtype in dtypes.PYTHON_TYPES:
        return dtypes.PYTHON_TYPES[dtype] if dtype is not float else dtypes.float64
    raise TypeError(f"{function}(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")


def _default():
    return dtypes.get_default_dtype().array_type


# From data


def _nested_shape(data):
    shape = []
    while isinstance(data, (list, tuple)):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return shape


def _check_nested(data, shape, dim=0):
    if isinstance(data, Tensor):
        return
    is_sequence = isinstance(data, (list, tuple))
    if is_sequence != (dim < len(shape)):
        if is_sequence:
            raise TypeError(f"'{type(data).__name__}' object cannot be interpreted as an integer")
        raise TypeError(f"expected sequence object with len >= 0 or a buffer, but got {type(data).__name__} at dim {dim}")
    if is_sequence:
        if len(data) != shape[dim]:
            raise ValueError(f"expected sequence of length {shape[dim]} at dim {dim} (got {len(data)})")
        for item in data:
            _check_nested(item, shape, dim + 1)


def _array_of(data, dtype=None):
    """New array from nested sequences, numbers, arrays or tensors, in the type that PyTorch infers."""
    if isinstance(data, Tensor):
        return data.array.copy()
    if isinstance(data, (np.ndarray, np.generic)):
        dtypes.from_array_type(data.dtype)
        return np.array(data)
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return np.array(data.__array__())
    t = dtypes.number_type(data)
    if t is not None:
        return np.array(data, t.array_type if dtype is None else dtype.array_type)
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if not isinstance(data, (list, tuple)):
        if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
            data = [data[i] for i in range(len(data))]
        else:
            raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
    if not data:
        return np.empty((0,), _default())
    flat = data
    try:
        array = np.array(flat if not _has_tensors(data) else _plain(data))
    except ValueError:
        array = None
    if array is None or array.dtype == object or array.dtype.kind in "US":
        _check_nested(data, _nested_shape(data))
        leaf = data
        while isinstance(leaf, (list, tuple)):
            leaf = leaf[0]
        if isinstance(leaf, str):
            raise ValueError("too many dimensions 'str'")
        raise RuntimeError(f"Could not infer dtype of {type(leaf).__name__}")
    if array.dtype.kind == "f" and array.dtype == np.float64 and not _holds_arrays(data):
        array = array.astype(_default()) if dtype is None else array
    elif array.dtype.kind == "c" and not _holds_arrays(data):
        array = array.astype(dtypes.PYTHON_TYPES[complex].array_type) if dtype is None else array
    elif not array.size and array.dtype == np.float64:
        array = array.astype(_default())
    return array


def _has_tensors(data):
    return any(isinstance(x, Tensor) or (isinstance(x, (list, tuple)) and _has_tensors(x)) for x in data)


def _plain(data):
    return [_plain(x) if isinstance(x, (list, tuple)) else x.array if isinstance(x, Tensor) else x for x in data]


def _holds_arrays(data):
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, (np.ndarray, np.generic, Tensor))


@public(method=False)
def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A new leaf tensor with a copy of the data: numbers, nested sequences, arrays or tensors.

    Python floats become the default dtype (float32), ints int64. Raises TypeError or ValueError for ragged data.

    >>> import backlight as torch
    >>> torch.tensor([[1., 2.], [3., 4.]])
    tensor([[1., 2.],
            [3., 4.]])
    """
    del pin_memory
    if isinstance(data, Tensor):
        import warnings

        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
    if dtype is not None:
        dtype = check_dtype("tensor", dtype)
    return _finish(_array_of(data, dtype), dtype, device, requires_grad)


@public(method=False, aliases=("asarray",))
def as_tensor(data, dtype=None, device=None):
    """The data as a tensor, sharing memory with an array or tensor where the type allows."""
    dtypes.check_device(device)
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    if isinstance(data, np.ndarray):
        return from_numpy(data) if dtype is None else from_numpy(data).to(dtype)
    return tensor(data, dtype=dtype)


@public(method=False)
def from_numpy(array):
    """A tensor that shares the array's memory. TypeError for types without a PyTorch equivalent."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    dtypes.from_array_type(array.dtype)
    if any(s < 0 for s in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently "
            "supported. (You can probably work around this by making a copy of your array  with array.copy().) "
        )
    if not array.flags.writeable:
        import warnings

        warnings.warn("The given NumPy array is not writable, and PyTorch does not support non-writable tensors.", UserWarning,
                      stacklevel=2)  # fmt: skip
    return Tensor._from(array)


def legacy_array(data, dtype=None):
    """What `Tensor(...)` holds: sizes give uninitialised memory, one sequence or array its values as float32."""
    array_type = (dtype or dtypes.get_default_dtype()).array_type
    if len(data) == 1 and isinstance(data[0], (Size, tuple, list, np.ndarray, Tensor)):
        if isinstance(data[0], Size):
            return np.zeros(data[0], array_type)
        if isinstance(data[0], Tensor):
            return data[0].array.astype(array_type, copy=False)
        return _array_of(data[0]).astype(array_type)
    if len(data) == 1 and not hasattr(data[0], "__index__"):
        if isinstance(data[0], (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type(data[0]).__name__}'")
        raise TypeError(f"new(): data must be a sequence (got {type(data[0]).__name__})")
    return np.zeros(_shape("new", data) or (0,), array_type)


class _TypedTensor(type):
    """The type of FloatTensor, LongTensor, ...: constructors of old, whose instances are tensors of one dtype."""

    def __call__(cls, *data, device=None):
        dtypes.check_device(device)
        if len(data) == 1 and isinstance(data[0], (tuple, list)) and cls.dtype.category < 2:
            for item in data[0]:
                if isinstance(item, str):
                    raise TypeError("'str' object cannot be interpreted as an integer")
        return Tensor._from(legacy_array(data, cls.dtype))

    def __instancecheck__(cls, instance):
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype


for _dtype in dtypes.ALL:
    _name = f"{dtypes.scalar_type_name(_dtype)}Tensor"
    REGISTRY[_name] = _TypedTensor(_name, (), {"dtype": _dtype, "__module__": "torch"})

# Filled


def _shape(function, size):
    """A shape given as `f(2, 3)` or `f((2, 3))`, as a tuple of ints that aren't negative."""
    if len(size) == 1 and not hasattr(size[0], "__index__"):
        if not isinstance(size[0], (tuple, list, Tensor)):
            raise TypeError(f"{function}(): argument 'size' (position 1) must be tuple of ints, not {type(size[0]).__name__}")
        size = size[0]
    elif len(size) == 1 and isinstance(size[0], Tensor) and size[0].array.ndim:
        size = size[0]
    try:
        shape = tuple([n.__index__() for n in size])
    except (AttributeError, TypeError):
        place, wrong = next((i, n) for i, n in enumerate(size, 1) if not hasattr(n, "__index__") or isinstance(n, Tensor))
        raise TypeError(
            f"{function}(): argument 'size' failed to unpack the object at pos {place} with error "
            f'"type must be tuple of ints,but got {type(wrong).__name__}"'
        ) from None
    if shape and min(shape) < 0:
        if function in ("zeros",):
            raise RuntimeError(f"{function}: Dimension size must be non-negative.")
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    return shape


def _filled(name, make, words):
    def function(*size, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
                 memory_format=None, **kwargs):  # fmt: skip
        del layout, pin_memory, memory_format
        size = _shape(name, size or (kwargs.pop("size", ()),))
        if kwargs:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
        if out is not None and dtype is None:
            dtype = out.dtype
        if dtype is not None:
            dtype = check_dtype(name, dtype)
        return _finish(make(size, (dtype or dtypes.get_default_dtype()).array_type), None, device, requires_grad, out)

    named(function, name)
    function.__doc__ = f"A tensor of {words}: {name}(2, 3) or {name}((2, 3)). -> (*size)."

    def like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
        del layout
        if not isinstance(input, Tensor):
            kind = type(input).__name__
            raise TypeError(f"{name}_like(): argument 'input' (position 1) must be Tensor, not {kind}")
        if hasattr(input, "mapped"):  # under vmap: zeros for every sample
            return input.mapped(lambda x: like(x, dtype=dtype, device=device, memory_format=memory_format))
        array_type = input.array.dtype if dtype is None else dtype.array_type
        order = "C" if memory_format is dtypes.contiguous_format else "K"
        array = np.empty_like(input.array, array_type, order=order)
        if name != "empty":
            array[...] = 1 if name == "ones" else 0
        return _finish(array, None, device, requires_grad)

    named(like, f"{name}_like")
    like.__doc__ = f"A tensor of {words} with the shape and type of `input`. (*S) -> (*S)."

    def new(self, *size, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False, **kwargs):
        del layout, pin_memory
        size = _shape(f"new_{name}", size or (kwargs.pop("size", ()),))
        if hasattr(self, "mapped"):
            return self.mapped(lambda x, size: new(x, size, dtype=dtype, device=device), size)
        return _finish(make(size, self.array.dtype if dtype is None else dtype.array_type), None, device, requires_grad)

    named(new, f"new_{name}")
    new.__doc__ = f"A tensor of {words} with this tensor's type. -> (*size)."
    public(method=False)(function)
    public(method=False)(like)
    public(module="")(new)
    return function, like


zeros, zeros_like = _filled("zeros", np.zeros, "zeros")
ones, ones_like = _filled("ones", np.ones, "ones")
empty, empty_like = _filled("empty", np.zeros, "undefined values (zeros here)")


def _laid_out(size, stride, array_type):
    """Zeros with the given strides, in elements."""
    size, stride = tuple(size), tuple(stride)
    if len(size) != len(stride):
        raise RuntimeError(f"dimensionality of sizes ({len(size)}) must match dimensionality of strides ({len(stride)})")
    span = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
    array_type = np.dtype(array_type)
    return np.lib.stride_tricks.as_strided(np.zeros(span, array_type), size, [s * array_type.itemsize for s in stride])


@public(method=False)
def empty_strided(size, stride, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A tensor of undefined values (zeros here) with the given strides, in elements. -> size."""
    del layout, pin_memory
    t = dtype or dtypes.get_default_dtype()
    return _finish(_laid_out(_shape("empty_strided", (size,)), stride, t.array_type), None, device, requires_grad)


@public(module="")
def new_empty_strided(self, size, stride, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A tensor of undefined values (zeros here) with the given strides and this tensor's type. -> size."""
    del layout, pin_memory
    t = dtype or self.dtype
    return _finish(_laid_out(_shape("new_empty_strided", (size,)), stride, t.array_type), None, device, requires_grad)


@public(method=False)
def empty_permuted(size, physical_layout, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A tensor of undefined values (zeros here) whose dimensions lie in memory in the given order. -> size."""
    del layout, pin_memory
    size, order = _shape("empty_permuted", (size,)), tuple(physical_layout)
    if len(order) != len(size):
        raise RuntimeError("Number of dimensions in size does not match the length of the physical_layout; "
                           f"i.e. len(size) = {len(size)} is not equal to len(physical_layout) = {len(order)}")  # fmt: skip
    if sorted(order) != list(range(len(size))):
        raise RuntimeError(f"physical_layout must be a permutation of the dimensions, but got {list(order)}")
    t = dtype or dtypes.get_default_dtype()
    array = np.zeros([size[d] for d in order], t.array_type).transpose(np.argsort(order) if order else ())
    return _finish(array, None, device, requires_grad)


@public(method=False)
def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """A vector that shares the memory of an object with the buffer protocol. -> (count)."""
    size = dtype.array_type.itemsize
    length = memoryview(buffer).nbytes
    if length == 0:
        raise ValueError("both buffer length (0) and count (-1) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} bytes) - 1")
    if count > 0 and offset + count * size > length:
        raise ValueError(f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than actual "
                         f"buffer length ({length} bytes)")  # fmt: skip
    if count < 0 and (length - offset) % size:
        raise ValueError(
            f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a multiple of element size ({size})"
        )
    return _finish(np.frombuffer(buffer, dtype.array_type, count, offset), None, None, requires_grad)


def _fill_value(function, value):
    if isinstance(value, Tensor):
        return value.item()
    if dtypes.number_type(value) is None:
        raise TypeError(f"{function}(): argument 'fill_value' (position 2) must be Number, not {type(value).__name__}")
    return value


@public(method=False)
def full(size, fill_value, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A tensor filled with one number, in the number's type unless dtype is given. -> (*size)."""
    del layout, pin_memory
    fill_value = _fill_value("full", fill_value)
    if isinstance(size, int):
        raise TypeError("full(): argument 'size' (position 1) must be tuple of ints, not int")
    t = dtype or (out.dtype if out is not None else dtypes.number_type(fill_value))
    size = _shape("full", (size,))
    return _finish(np.full(size, fill_value, t.array_type), None, device, requires_grad, out)


@public(method=False)
def full_like(input, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
    """A tensor filled with one number, with the shape and type of `input`."""
    del layout, memory_format
    array_type = input.array.dtype if dtype is None else dtype.array_type
    fill_value = _fill_value("full_like", fill_value)
    if hasattr(input, "mapped"):
        return input.mapped(lambda x: full_like(x, fill_value, dtype=dtype, device=device))
    return _finish(np.full_like(input.array, fill_value, array_type), None, device, requires_grad)


@public(module="")
def new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A tensor filled with one number, with this tensor's type."""
    del layout, pin_memory
    t = self.dtype if dtype is None else dtype
    return _finish(np.full(_shape("new_full", (size,)), fill_value, t.array_type), None, device, requires_grad)


@public(module="")
def new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """A new tensor with a copy of the data and this tensor's type."""
    return _finish(_array_of(data), dtype or self.dtype, device, requires_grad)


def _numbers(values, dtype):
    """The dtype of a range: int64 for ints, the default type as soon as one number is a float."""
    if dtype is not None:
        return dtype
    found = [v.dtype if isinstance(v, Tensor) else dtypes.number_type(v) for v in values]
    return dtypes.int64 if all(t.category < 2 for t in found) else dtypes.get_default_dtype()


@public(method=False)
def arange(*args, start=None, end=None, step=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
           pin_memory=False):  # fmt: skip
    """Numbers from start (0) up to, not including, end, in steps (1). -> (ceil((end - start) / step))."""
    del layout, pin_memory
    if len(args) == 1 and end is None:
        end = args[0]
    elif len(args) == 1:
        start = args[0]
    elif args:
        start, end, step = args if len(args) == 3 else (*args, step)
    if end is None:
        raise TypeError("arange() received an invalid combination of arguments - got ()")
    start, step = 0 if start is None else start, 1 if step is None else step
    if out is not None and dtype is None:
        dtype = out.dtype
    t = _numbers((start, end, step), dtype)
    start, end, step = (v.item() if isinstance(v, Tensor) else v for v in (start, end, step))
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if t.category == 3:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{dtypes.scalar_type_name(t)}'")
    if not all(math.isfinite(v) for v in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if t.category == 1:
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError("step must be nonzero")
        array = np.arange(start, end, step, np.int64)
    else:
        count = math.ceil((end - start) / step)
        array = start + np.arange(count, dtype=np.float64) * step
    with np.errstate(all="ignore"):
        return _finish(array.astype(t.array_type), None, device, requires_grad, out)


@public(method=False)
@in_loop
def linspace(start, end, steps=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """`steps` numbers evenly spaced from start to end, both included. -> (steps)."""
    del layout, pin_memory
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, Tensor) and value.array.ndim:
            raise RuntimeError("linspace only supports 0-dimensional start and end tensors, but got "
                               f"{name} with {value.array.ndim} dimension(s).")  # fmt: skip
    kinds = [v.dtype if isinstance(v, Tensor) else dtypes.number_type(v) for v in (start, end)]
    start, end = (v.item() if isinstance(v, Tensor) else v for v in (start, end))
    if steps is None:
        kinds = ", ".join(type(v).__name__ for v in (start, end))
        raise TypeError(f"linspace() received an invalid combination of arguments - got ({kinds})")
    steps = operator.index(steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    if out is not None and dtype is None:
        dtype = out.dtype
    complex_ends = any(t.category == 3 for t in kinds)
    t = dtype or (dtypes.PYTHON_TYPES[complex] if complex_ends else dtypes.get_default_dtype())
    if complex_ends and t.category < 3:
        raise RuntimeError(
            f"torch.linspace(): inferred dtype {dtypes.PYTHON_TYPES[complex]} can't be safely cast to passed dtype {t}"
        )
    return _finish(_linspace(start, end, steps, t), None, device, requires_grad, out)


def _linspace(start, end, steps, t):
    """From both ends towards the middle, in the result's own precision, as PyTorch's CPU code does."""
    if steps == 1:
        return np.array([start]).astype(t.array_type)
    work = t.array_type
    if t.category == 1:
        start, end = (int(np.int64(int(v)).astype(t.array_type)) for v in (start, end))
        work = np.dtype(np.float64)
    # Products and sums are fused there (rounded once); a wider type does that here.
    wide = {"f4": np.float64, "f8": np.longdouble}.get(work.str[1:], work.type)
    start, end = work.type(start), work.type(end)
    step = wide((end - start) / work.type(max(steps - 1, 1)))
    i = np.arange(steps)
    up, down = start + step * i.astype(wide), end - step * (steps - 1 - i).astype(wide)
    return np.where(i < steps // 2, up, down).astype(work).astype(t.array_type)


@public(method=False)
@in_loop
def logspace(
    start, end, steps, base=10.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """base ** linspace(start, end, steps)."""
    del layout, pin_memory
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, Tensor) and value.array.ndim:
            raise RuntimeError("logspace only supports 0-dimensional start and end tensors, but got "
                               f"{name} with {value.array.ndim} dimension(s).")  # fmt: skip
    start, end = (v.item() if isinstance(v, Tensor) else v for v in (start, end))
    steps = operator.index(steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    t = dtype or (out.dtype if out is not None else dtypes.get_default_dtype())
    if isinstance(start, complex) or isinstance(end, complex):
        if dtype is None and out is None:
            t = dtypes.PYTHON_TYPES[complex]
        elif t.category < 3:
            raise RuntimeError(
                f"torch.logspace(): inferred dtype {dtypes.PYTHON_TYPES[complex]} can't be safely cast to passed dtype {t}"
            )
    if t.category == 1:
        start, end = float(int(start)), float(int(end))
    elif t.itemsize == 2:
        start, end = (float(np.asarray(v).astype(t.array_type)) for v in (start, end))
    work = dtypes.complex128 if t.category == 3 else dtypes.float64
    exponents = _linspace(start, end, steps, work)
    return _finish(np.power(work.array_type.type(base), exponents).astype(t.array_type), None, device, requires_grad, out)


@public(method=False)
def eye(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """The identity matrix, or the first m columns of it. -> (n, m)."""
    del layout, pin_memory
    for k in (n, m):
        if k is not None and k < 0:
            raise RuntimeError(f"{'n' if k is n else 'm'} must be greater or equal to 0, got {k}")
    t = dtype or (out.dtype if out is not None else dtypes.get_default_dtype())
    return _finish(np.eye(n, m, dtype=t.array_type), None, device, requires_grad, out)


@public(method=False)
def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False):
    """A 0-d tensor of a number, in the default dtype."""
    return _finish(np.array(s, (dtype or dtypes.get_default_dtype()).array_type), None, device, requires_grad)


def _check_sides(row, col):
    for name, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{name} must be non-negative, got{n}")


@public(method=False)
def tril_indices(row, col, offset=0, *, dtype=dtypes.int64, device=None, layout=None):
    """The coordinates of a matrix's lower triangle. -> (2, count)."""
    _check_sides(row, col)
    return _finish(np.stack(np.tril_indices(row, offset, col)), dtype, device, layout=layout)


@public(method=False)
def triu_indices(row, col, offset=0, *, dtype=dtypes.int64, device=None, layout=None):
    """The coordinates of a matrix's upper triangle. -> (2, count)."""
    _check_sides(row, col)
    return _finish(np.stack(np.triu_indices(row, offset, col)), dtype, device, layout=layout)


@public(method=False)
def result_type(tensor1, tensor2):
    """The dtype of an operation on two tensors or numbers."""
    tensors = [v.array for v in (tensor1, tensor2) if isinstance(v, Tensor)]
    return dtypes.promote(tensors, [v for v in (tensor1, tensor2) if not isinstance(v, Tensor)])


@twin(np.zeros_like)
def no_gradient(g):
    """Zeros in the shape of g: the gradient of what is constant."""
    return Tensor._from(np.zeros(g.array.shape, g.array.dtype))  # of one sample, under vmap


# In-place fills


def _fill(name):
    from .op import inplace, op

    primitive = op(name, lambda x, value: np.full_like(x, value), lambda g, _input, _out, _value: no_gradient(g),
                   node="FillBackward2" if name == "fill" else "ZeroBackward0", promote="keep", batch="elementwise")  # fmt: skip

    def write(self, value=0):
        if not isinstance(value, Tensor) and dtypes.number_type(value) is None:
            raise TypeError(f"{name}_() received an invalid combination of arguments - got ({type(value).__name__})")
        if isinstance(value, Tensor):
            if value.array.ndim:
                raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.array.ndim} "
                                   "dimensions.")  # fmt: skip
            if value.node is not None:
                return self.copy_(value)
            value = value.array.item()
        return inplace(primitive, self, (value,), fills=True)

    return write


Tensor.fill_ = _fill("fill")
_zero = _fill("zero")
Tensor.zero_ = lambda self: _zero(self)
Tensor.fill_.__doc__ = "Writes one number into all elements."
Tensor.zero_.__doc__ = "Writes zeros into all elements."


def _resize_(self, *size, memory_format=None):
    """Changes this tensor's shape, keeping the elements in memory order; new ones are undefined. Not differentiable."""
    del memory_format
    if self.requires_grad and modes.grad:
        raise RuntimeError("cannot resize variables that require grad")
    shape = _shape("resize_", size)
    if shape == self.array.shape:
        return self
    flat = self.array.reshape(-1)
    count = math.prod(shape)
    grown = np.zeros(count, self.array.dtype)
    grown[: min(count, flat.size)] = flat[:count]
    self.array = (flat[:count] if count <= flat.size else grown).reshape(shape)
    views.bump(self)
    return self


Tensor.resize_ = _resize_


@public(inplace=False, name="resize_as_")
def _resize_as_(input, the_template, *, memory_format=None):
    """resize_ to the shape of another tensor."""
    return _resize_(input, the_template.array.shape, memory_format=memory_format)


Tensor.resize = lambda self, *sizes: self.reshape(*sizes)
Tensor.resize_as = lambda self, tensor: self.reshape(tensor.array.shape)


def _set_(self, source=None):
    """Makes this tensor share the other's memory. What was recorded with the old memory no longer leads to it."""
    if type(self.node) is AccumulateGrad:
        self.node = AccumulateGrad(self)
    self.array = np.empty(0, self.array.dtype) if source is None else source.array
    views.bump(self)
    return self


Tensor.set_ = _set_

# To NumPy, Python and other libraries


def _numpy(self, *, force=False):
    """The array that holds this tensor: no copy. RuntimeError for tensors that require grad, unless force."""
    if self.requires_grad and modes.grad and not force:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if self.array.dtype.kind == "V" or self.array.dtype.name == "bfloat16":
        raise TypeError("Got unsupported ScalarType BFloat16")
    if state.recorder is not None:
        state.recorder.called("numpy", self)
    return self.array


def _array(self, dtype=None, copy=None):
    array = _numpy(self)
    if dtype is not None:
        array = array.astype(dtype, copy=bool(copy))
    return array.copy() if copy else array


def _array_wrap(_self, array, _context=None, _return_scalar=False):
    """A NumPy function's result as a tensor; bool as uint8, as in PyTorch."""
    array = np.asarray(array)
    return Tensor._from(array.astype(np.uint8) if array.dtype == bool else array)


def _tolist(self):
    """Nested lists of Python numbers (a number for a 0-d tensor)."""
    if state.recorder is not None:
        state.recorder.called("tolist", self)
    if self.array.dtype.name == "bfloat16":
        return self.array.astype(np.float32).tolist()
    return self.array.tolist()


Tensor.numpy, Tensor.__array__, Tensor.__array_wrap__, Tensor.tolist = _numpy, _array, _array_wrap, _tolist


def _dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """The tensor for another library by the DLPack protocol, without a copy."""
    del stream, dl_device
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    return self.array.__dlpack__(max_version=max_version, copy=copy)


Tensor.__dlpack__ = _dlpack
Tensor.__dlpack_device__ = lambda self: (1, 0)


@public(method=False)
def from_dlpack(ext_tensor):
    """A tensor that shares the memory of any object with `__dlpack__`."""
    if isinstance(ext_tensor, Tensor):
        return ext_tensor.detach()
    if type(ext_tensor).__name__ == "PyCapsule" and '"dltensor"' in repr(ext_tensor):
        ext_tensor = _Capsule(ext_tensor)
    if not hasattr(ext_tensor, "__dlpack__"):
        raise RuntimeError(
            "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you might have "
            f"already constructed a tensor from it once.\nA {type(ext_tensor).__name__} has no __dlpack__ method."
        )
    return Tensor._from(np.from_dlpack(ext_tensor))


class _Capsule:
    """A DLPack capsule as an object, which is what NumPy takes."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_options):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0  # the CPU


def _rebuild(cls, array, requires_grad, attributes):
    result = Tensor._from(array) if cls is Tensor else as_subclass(Tensor._from(array), cls)
    result.__dict__.update(attributes)
    if requires_grad:
        result.requires_grad_()
    return result


def _own_attributes(self):
    return {k: v for k, v in self.__dict__.items() if k not in ("_leaf", "_grad")}


def _reduce_ex(self, _protocol):
    if type(self.node) is not AccumulateGrad and self.node is not None:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the pickle protocol at the moment."
        )
    return _rebuild, (type(self), self.array, self.requires_grad, _own_attributes(self))


def _deepcopy(self, memo):
    if id(self) in memo:
        return memo[id(self)]
    if self.node is not None and type(self.node) is not AccumulateGrad:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If you "
            "were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see "
            "https://github.com/pytorch/pytorch/pull/103001"
        )
    import copy

    result = _rebuild(type(self), self.array.copy(order="K"), self.requires_grad, {})
    memo[id(self)] = result
    result.__dict__.update(copy.deepcopy(_own_attributes(self), memo))
    if (self.node is not None or "_grad" in self.__dict__) and self.grad is not None:
        result.grad = copy.deepcopy(self.grad, memo)
    return result


Tensor.__reduce_ex__, Tensor.__deepcopy__ = _reduce_ex, _deepcopy
Tensor.__copy__ = lambda self: _rebuild(type(self), self.array, self.requires_grad, _own_attributes(self))

# What a tensor says of itself, beyond tensor.py

Tensor.is_contiguous = lambda self, memory_format=None: bool(self.array.flags.c_contiguous)
Tensor.is_contiguous.__doc__ = "Whether the memory is in row-major order without gaps."
Tensor.data_ptr = lambda self: self.array.__array_interface__["data"][0] if self.array.size else 0
Tensor.element_size = lambda self: self.array.itemsize
Tensor.itemsize = property(lambda self: self.array.itemsize)
Tensor.nbytes = property(lambda self: self.array.nbytes)
Tensor.device = property(lambda self: dtypes.CPU)
Tensor.layout = property(lambda self: dtypes.strided)
Tensor.is_floating_point = lambda self: self.dtype.is_floating_point
Tensor.is_complex = lambda self: self.dtype.is_complex
Tensor.is_signed = lambda self: self.dtype.is_signed
Tensor.is_conj = Tensor.is_neg = lambda self: False
Tensor.resolve_neg = lambda self: self
Tensor.cpu = lambda self, memory_format=None: self
Tensor.get_device = lambda self: -1
Tensor.is_pinned = lambda self: False
Tensor.pin_memory = lambda self: self
Tensor.is_same_size = lambda self, other: self.array.shape == other.array.shape
Tensor.as_subclass = as_subclass
Tensor.element_size.__doc__ = "Bytes per element."
for _name in ("is_cuda", "is_sparse", "is_quantized", "is_meta", "is_mps", "is_xpu", "is_nested", "is_mkldnn"):
    setattr(Tensor, _name, False)


def _cuda(self, device=None, non_blocking=False, memory_format=None):
    """Raises: there is no CUDA device here."""
    del device, non_blocking, memory_format
    dtypes.check_device("cuda")
    return self


Tensor.cuda = _cuda


def _share_memory(self):
    """Moves the tensor's memory to where processes that are forked from now on share it, and returns the tensor.

    Views of the tensor keep the old memory.
    """
    from .storage import shared_copy

    if not self.is_shared():
        self.array = shared_copy(self.array)
    return self


def _is_shared(self):
    """Whether `share_memory_` was called on the tensor, or on one that it is a view of."""
    from .storage import is_shared

    return is_shared(self.array)


Tensor.share_memory_, Tensor.is_shared = _share_memory, _is_shared


def _storage_offset(self):
    """Elements between the start of the memory and this tensor's first element."""
    from .storage import owner_of

    first = owner_of(self.array).__array_interface__["data"][0]
    return (self.array.__array_interface__["data"][0] - first) // self.array.itemsize if self.array.size else 0


Tensor.storage_offset = _storage_offset


def _storage(self):
    """The memory behind this tensor, as elements of its type."""
    from .storage import TypedStorage

    return TypedStorage(self.array)


def _untyped_storage(self):
    """The memory behind this tensor, as bytes."""
    from .storage import UntypedStorage

    return UntypedStorage(self.array)


Tensor.storage, Tensor.untyped_storage = _storage, _untyped_storage


def _format_tensor(self, *, tensor_contents=None):
    from .printing import tensor_repr

    name = tangent = None
    try:
        node = views.current_node(self)
        if node is not None and type(node) is not AccumulateGrad:
            name = type(self.grad_fn).__name__
    except RuntimeError:  # a view of what was written since, which autograd can't follow
        node, name = None, "Invalid"
    if modes.levels:
        from .forward import forward_levels, tangent_of

        tangents = [tangent_of(self, level) for level in forward_levels()]
        tangent = next((repr(t) for t in tangents if t is not None), None)
    return tensor_repr(self.array, self.dtype.name, default_dtype_name=dtypes.get_default_dtype().name,
                       requires_grad=self.requires_grad and name is None, grad_fn_name=name,
                       tensor_contents=tensor_contents, tangent=tangent)  # fmt: skip


Tensor.__repr__ = _format_tensor


def _asking(name, words):
    method = getattr(Tensor, name)

    def function(input):
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
        return method(input)

    function.__doc__ = words
    public(method=False, name=name)(function)


_asking("is_floating_point", "Whether the elements are floating point numbers.")
_asking("is_complex", "Whether the elements are complex numbers.")
_asking("is_signed", "Whether the elements can be negative.")
_asking("is_conj", "False: conj() computes at once here.")
_asking("numel", "The number of elements.")


@public(method=False)
def is_tensor(obj) -> bool:
    """Whether obj is a tensor."""
    return isinstance(obj, Tensor)
