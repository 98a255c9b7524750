"""Indexing: x[...] and x[...] = value, copy_, index_put."""

from __future__ import annotations

import builtins

import numpy as np

from .. import batching, dtypes, kernels, views
from ..creation import no_gradient
from ..engine import cast, sum_to
from ..inplace import check_overlap, check_partial_overlap
from ..kernels import FUSED, ROWS
from ..op import check_broadcast, inplace, op, public, twin
from ..state import modes, state
from ..tensor import Tensor
from ..versions import bump
from ..views import view_of
from .cast import to
from .shape import _select, _slice, alias, expand, reshape, sum_to_size, unseen, unsqueeze

# Advanced indexing. The index is a tuple of slices, ints and int64/bool arrays as NumPy takes it.


def _index_arrays(x, index):
    if x.ndim and _names_rows(index, len(x)) and index[0].size * x.size >= FUSED * len(x) and kernels.compute(1, x):
        return kernels.indexing.take_slices(x, index[0], 0)
    picked = x[index]  # NumPy puts the picked dimensions first in memory
    return np.ascontiguousarray(picked) if x.flags.c_contiguous else picked


def _names_rows(index, count):
    """Whether an index names rows that exist, and nothing else: one array of integers, large enough that looking at it is cheap."""
    if len(index) != 1 or not isinstance(index[0], np.ndarray) or index[0].dtype != np.int64 or index[0].size < ROWS:
        return False
    return index[0].min() >= -count and index[0].max() < count


def _unindex_arrays(g, shape, index):
    out = np.zeros(shape, g.dtype)
    if kernels.compute(FUSED, g) and _names_rows(index, shape[0]):
        kernels.indexing.add_slices(out, index[0], g, 0)
        return out
    np.add.at(out, index, g)
    return out


_index = op(
    "index",
    _index_arrays,
    lambda g, input_shape, _out, index: _unindex(g, input_shape, index),
    frees=True,
    batch=batching.index_rule,
)
_unindex = op("unindex", _unindex_arrays, lambda g, _input, _out, _shape, index: _index(g, index), batch=batching.index_rule)


INDEX_TYPES = (dtypes.int64, dtypes.int32, dtypes.uint8, dtypes.bool_)


def _parse(index):
    if isinstance(index, list) and builtins.any(
        isinstance(i, (Tensor, list, tuple, slice)) or i is None or i is ... for i in index
    ):
        import warnings

        warnings.warn("Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] instead of x[seq].",
                      UserWarning, stacklevel=4)  # fmt: skip
        return tuple(index)
    return index if isinstance(index, tuple) else (index,)


def _as_integer(item):
    """A 0-d integer tensor or NumPy integer as an int; anything else as it is."""
    if isinstance(item, (bool, np.bool_)):
        return Tensor._from(np.asarray(item))
    if isinstance(item, np.integer):
        return int(item)
    if isinstance(item, Tensor) and not item.array.ndim and item.array.dtype.kind in "iu" and item.array.dtype != np.uint8:
        return int(item.array)
    return item


def _getitem(self, index):
    if type(index) is int and self.array.ndim:
        return _select_first(self, index)
    if type(index) is slice and self.array.ndim and index.step is None and _plain(index.start) and _plain(index.stop):
        return _slice(self, (index,))
    if type(index) is tuple and unseen(self) and len(index) <= self.array.ndim and builtins.all(map(_simple, index)):
        try:
            array = self.array[(*index, ...)]
        except IndexError:
            pass  # said below, in PyTorch's words
        else:
            result = Tensor._from(array)
            view_of(result, self)
            return result
    if modes.levels:
        index, stand_ins = _without_batches(index)
        result, advanced = _basic(self, index)
        if advanced is not None and stand_ins:
            return batching.indexed(result, advanced, stand_ins)
    else:
        result, advanced = _basic(self, index)
    return result if advanced is None else _index(result, advanced)


def _without_batches(index):
    """The index with zeros in place of tensors under vmap, and {id of the zeros: tensor}."""
    items, stand_ins = [], {}
    for item in _parse(index):
        if type(item) is batching.Batched:
            if item.dtype in (dtypes.bool_, dtypes.uint8):
                raise RuntimeError(
                    "vmap: We do not support batching operators that can support dynamic shape. Attempting to batch over indexing with a "
                    "boolean mask."
                )
            zeros = np.zeros(item.array.shape or (1,), np.int64)
            stand_ins[id(zeros)] = item
            item = Tensor._from(zeros)
        items.append(item)
    return (tuple(items) if stand_ins else index), stand_ins


def _plain(bound):
    return bound is None or type(bound) is int


def _simple(item):
    """Whether an item of an index is an int or a slice between ints."""
    return type(item) is int or (type(item) is slice and item.step is None and _plain(item.start) and _plain(item.stop))


def _select_first(x, i):
    n = x.array.shape[0]
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of bounds for dimension 0 with size {n}")
    return _select(x, (i % n, ...))


def _basic(x, index):
    """Applies ints, slices, None and ... as views, one operation each as PyTorch records them.

    Returns the view and the index of what is left for advanced indexing (None if nothing)."""
    items = [_as_integer(item) for item in _parse(index)]
    if builtins.any(isinstance(item, str) for item in items):
        raise TypeError("new(): invalid data type 'str'")
    items = [_tensor_index(item) if isinstance(item, (list, tuple, np.ndarray)) else item for item in items]
    used = 0
    for item in items:
        if isinstance(item, Tensor) and item.dtype in (dtypes.bool_, dtypes.uint8):
            used += item.array.ndim
        elif item is not None and item is not Ellipsis:
            used += 1
    if used > x.array.ndim:
        if not x.array.ndim and builtins.all(isinstance(i, (int, slice)) for i in items):
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                             "convert a 0-dim tensor to a number" if isinstance(items[0], int)
                             else "slice() cannot be applied to a 0-dim tensor.")  # fmt: skip
        raise IndexError(f"too many indices for tensor of dimension {x.array.ndim}")
    dim, advanced = 0, {}
    changed = False
    for position, item in enumerate(items):
        if isinstance(item, int):
            n = x.array.shape[dim]
            if not -n <= item < n:
                place = dim + builtins.sum(isinstance(i, int) for i in items[:position])
                raise IndexError(f"index {item} is out of bounds for dimension {place} with size {n}")
            x = _select(x, (slice(None),) * dim + (item % n, ...))
            changed = True
        elif isinstance(item, slice):
            item = slice(*(v if v is None else v.__index__() for v in (item.start, item.stop, item.step)))
            if item.step == 0:
                raise ValueError("slice step cannot be zero")
            if item.step is not None and item.step < 0:
                raise ValueError("step must be greater than zero")
            n = x.array.shape[dim]
            whole = item.start in (None, 0) and (item.stop is None or item.stop >= n) and item.step in (None, 1)
            if not whole:
                x = _slice(x, (slice(None),) * dim + (item,))
                changed = True
            dim += 1
        elif item is Ellipsis:
            dim += x.array.ndim - dim - _later(items, item)
        elif item is None:
            x = unsqueeze(x, dim)
            changed = True
            dim += 1
        elif isinstance(item, Tensor):
            if item.dtype not in INDEX_TYPES:
                raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
            if item.dtype in (dtypes.bool_, dtypes.uint8):
                mask = item.array.astype(bool, copy=False)
                if not mask.ndim:
                    x = unsqueeze(x, dim)
                    advanced[dim] = np.flatnonzero(mask)[:1] * 0
                    dim += 1
                    continue
                for k, n in enumerate(mask.shape):
                    if n != x.array.shape[dim + k]:
                        raise IndexError(
                            f"The shape of the mask {list(mask.shape)} at index {k} does not match the shape of the indexed "
                            f"tensor {list(x.array.shape)} at index {dim + k}"
                        )
                for found in np.nonzero(mask):
                    advanced[dim] = found
                    dim += 1
            else:
                advanced[dim] = _checked_index(item.array, x.array.shape[dim], dim, x.array.size == 0)
                dim += 1
        else:
            raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices "
                             f"(got {type(item).__name__})")  # fmt: skip
    if not advanced:
        return (x if changed else alias(x)), None
    try:
        np.broadcast_shapes(*(i.shape for i in advanced.values()))
    except ValueError:
        shapes = ", ".join(str(list(i.shape)) for i in advanced.values())
        raise IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}") from None
    return x, tuple(advanced.get(d, slice(None)) for d in range(max(advanced) + 1))


def _later(items, ellipsis):
    """How many dimensions of the tensor the items after the ellipsis take."""
    after = items[[item is ellipsis for item in items].index(True) + 1 :]
    return builtins.sum(
        item.array.ndim if isinstance(item, Tensor) and item.dtype in (dtypes.bool_, dtypes.uint8) else item is not None
        for item in after
    )


def _tensor_index(item):
    array = np.asarray([v.array if isinstance(v, Tensor) else v for v in item] if isinstance(item, (list, tuple)) else item)
    return Tensor._from(array.astype(np.int64) if not array.size else array)


def _checked_index(index, n, dim, empty=False):
    if index.size and (index.min() < -n or index.max() >= n):
        if empty and n:  # nothing will be read, so PyTorch doesn't look
            return np.zeros_like(index, np.int64)
        bad = index.reshape(-1)[np.flatnonzero((index < -n) | (index >= n))[0]]
        raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {n}")
    return index if index.dtype == np.int64 else index.astype(np.int64)


Tensor.__getitem__ = _getitem


def _is_mask(index):
    """Whether the index is one mask and no indices: then a number is filled in, whatever its type."""
    masks = [i for i in _parse(index) if isinstance(i, (Tensor, np.ndarray, list))]
    if len(masks) != 1:
        return False
    mask = masks[0] if isinstance(masks[0], Tensor) else _tensor_index(masks[0])
    return mask.dtype is dtypes.bool_ and mask.array.ndim > 0


def _is_place(index):
    """Whether an index is a number, `...` or a slice of numbers, which NumPy and PyTorch take in the same way."""
    kind = type(index)
    return (
        kind is int
        or index is Ellipsis
        or (kind is slice and index.step is None and _plain(index.start) and _plain(index.stop))
    )


def _is_plain_write(x, index, value):
    """Whether nobody needs to know of a write but the version counter: no gradients, modes, or conversions."""
    if type(x) is not Tensor or x.node is not None or not x.array.flags.c_contiguous or not x.array.ndim:
        return False
    if (x.base is not None and x.base.root.node is not None) or state.unusual or state.recorder is not None:
        return False
    if (
        modes.levels
        or modes.captured
        or not (_is_place(index) or (type(index) is tuple and builtins.all(map(_is_place, index))))
    ):
        return False
    if type(value) is Tensor:
        array = value.array
        overlaps = array.base is not None or x.array.base is array
        return value.node is None and array.dtype is x.array.dtype and not overlaps
    kind = x.array.dtype.kind
    return (kind == "f" and type(value) in (int, float, bool)) or (kind in "biu" and type(value) in (int, bool))


def _setitem(self, index, value):
    """x[index] = value: writes in place, and the graph follows (CopySlices)."""
    if _is_plain_write(self, index, value):
        try:
            self.array[index] = value.array if type(value) is Tensor else value
        except (IndexError, ValueError, OverflowError):
            pass  # said below, in PyTorch's words
        else:
            bump(self)
            return
    stand_ins = {}
    if modes.levels:
        index, stand_ins = _without_batches(index)
    target, advanced = _basic(self, index) if index is not True else (unsqueeze(self, 0), None)
    if not isinstance(value, Tensor):
        if dtypes.number_type(value) is None:
            kind = type(value)
            name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
            raise TypeError(f"can't assign a {name} to a {self.type()}")
        value = Tensor._from(np.asarray(value).astype(self.array.dtype))
    if stand_ins:
        inplace(lambda old: batching.indexed(old, advanced, stand_ins, value), target)
        return
    if index is False:
        return
    if advanced is None:
        shape = target.array.shape
        if value.array.ndim and value.array.shape != shape:
            ones = next((i for i, n in enumerate(value.array.shape) if n != 1), value.array.ndim)
            value = reshape(value, value.array.shape[ones:])
            _check_fits(value, shape)
            value = value if value.array.shape == shape else expand(value, shape)
        _store(target, value)
        return
    if value.dtype is not self.dtype and not (value.array.ndim == 0 and _is_mask(index)):
        names = dtypes.scalar_type_name(self.dtype), dtypes.scalar_type_name(value.dtype)
        raise RuntimeError(f"Index put requires the source and destination dtypes match, got {names[0]} for the destination and "
                           f"{names[1]} for the source.")  # fmt: skip
    _put_(target, advanced, value)


Tensor.__setitem__ = _setitem


def _copy_arrays(_old, value, array_type, shape, _source):
    value = value if value.dtype == array_type else _real_cast(value, array_type)
    return np.broadcast_to(value, shape)


def _real_cast(value, array_type):
    with np.errstate(all="ignore"):
        return cast(value, array_type)


_copy = op("copy", _copy_arrays,
    lambda g, _input, _src, _out, _array_type, _shape, _source: no_gradient(g),
    lambda g, _input, src_shape, _out, _array_type, _shape, source: _uncopy(g, src_shape, source),
    promote="keep", node="CopyBackwards", batch=batching.copy_rule)  # fmt: skip


@twin(lambda g, shape, source: cast(sum_to(g, shape), source))
def _uncopy(g, shape, source):
    """The gradient of a copy, in the source's shape and type."""
    g = sum_to_size(g, shape)
    if g.array.dtype.kind == "c" and source.kind != "c":
        g = g.real
    return g if g.array.dtype == source else g.to(dtypes.from_array_type(source))


def copy_(self, src, non_blocking=False):
    """Copies `src` (broadcast, any type) into this tensor and returns it. Differentiable in src."""
    del non_blocking
    if not isinstance(src, Tensor):
        if dtypes.number_type(src) is None:
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}")
        src = Tensor._from(np.asarray(src))
    shape = self.array.shape
    views.check_writable(self, src.requires_grad)
    if self.array.base is not None or src.array.base is not None:
        check_overlap(self.array)
        check_partial_overlap(self.array, src.array)
    check_broadcast(shape, src.array.shape)
    both = np.broadcast_shapes(shape, src.array.shape)
    if both != shape:
        raise RuntimeError(f"output with shape {list(shape)} doesn't match the broadcast shape {list(both)}")
    _store(self, src)
    return self


def _store(self, src):
    return inplace(lambda old: _copy(old, src, self.array.dtype, self.array.shape, src.array.dtype), self, (src,), reads=False)


def _check_fits(src, shape):
    try:
        if np.broadcast_shapes(src.array.shape, shape) != shape:
            raise ValueError
    except ValueError:
        raise RuntimeError(_no_broadcast(src, shape)) from None


def _no_broadcast(src, want):
    have = src.array.shape
    extra = len(want) - len(have)
    if extra < 0:
        return f"expand({src.type()}{{{list(have)}}}, size={list(want)}): the number of sizes provided ({len(want)}) must " \
               f"be greater or equal to the number of dimensions in the tensor ({len(have)})"  # fmt: skip
    i = next(i for i in range(len(have) - 1, -1, -1) if have[i] not in (1, want[extra + i]))
    return (f"The expanded size of the tensor ({want[extra + i]}) must match the existing size ({have[i]}) at non-singleton "
            f"dimension {extra + i}.  Target sizes: {list(want)}.  Tensor sizes: {list(have)}")  # fmt: skip


Tensor.copy_ = copy_


def _index_put_arrays(x, value, index, accumulate):
    out = np.array(x)
    if accumulate:
        np.add.at(out, index, value)
    else:
        out[index] = value
    return out


_index_put = op("index_put", _index_put_arrays,
    lambda g, _input, _value, _out, index, accumulate: g if accumulate else _index_put(g, zero_of(g), index, False),
    lambda g, _input, value_shape, _out, index, _accumulate: _to_shape(_index(g, index), value_shape), batch=batching.index_put_rule)  # fmt: skip


@twin(lambda g: np.zeros((), g.dtype))
def zero_of(g):
    """The number 0 in the type of g."""
    return Tensor._from(np.zeros((), g.array.dtype))


def _to_shape(g, shape):
    return sum_to_size(g, shape)


def _to_shape_arrays(g, shape):
    extra = len(shape) - g.ndim
    return sum_to(g, shape[extra:] if extra > 0 else shape).reshape(shape)


_to_shape.arrays = _to_shape_arrays


def _fitted(value, part):
    """The value, without surplus dimensions of size 1; RuntimeError unless it broadcasts to the shape."""
    extra = value.array.ndim - len(part)
    if extra > 0 and builtins.all(n == 1 for n in value.array.shape[:extra]):
        value = reshape(value, value.array.shape[extra:])
    try:
        np.broadcast_to(value.array, part)
    except ValueError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.array.shape)} cannot be broadcast to indexing result of shape "
            f"{list(part)}"
        ) from None
    return value


def _put_(x, index, value, accumulate=False):
    value = _fitted(to(value, x.dtype), x.array[index].shape)
    return inplace(lambda old: _index_put(old, value, index, accumulate), x)


def _check_put(input, values):
    if input.dtype is not values.dtype:
        raise RuntimeError("Index put requires the source and destination dtypes match, got "
                           f"{dtypes.scalar_type_name(input.dtype)} for the destination and {dtypes.scalar_type_name(values.dtype)} "
                           "for the source.")  # fmt: skip


def _numpy_index(x, indices):
    # A 0-d index is a vector of one here: an integer would select a view, and the result is to be the whole tensor.
    items = tuple(
        slice(None) if i is None else i.reshape(1) if isinstance(i, Tensor) and not i.array.ndim else i for i in indices
    )
    view, advanced = _basic(x, items)
    return view, advanced if advanced is not None else (Ellipsis,)


@public()
def index_put(input, indices, values, accumulate=False):
    """A copy of the tensor with `values` written (or added) at `indices`, a tuple of index tensors. Differentiable."""
    _check_put(input, values)
    indices, stand_ins = _without_batches(tuple(indices)) if modes.levels else (indices, {})
    view, index = _numpy_index(input, indices)
    if stand_ins:
        return batching.indexed(view, index, stand_ins, values, accumulate)
    if not modes.levels:
        values = _fitted(values, view.array[index].shape)
    return _index_put(view, values, index, accumulate)


def _index_put_method(self, indices, values, accumulate=False):
    if modes.levels and _without_batches(tuple(indices))[1]:
        return inplace(index_put, self, (indices, values, accumulate))
    view, index = _numpy_index(self, indices)
    del view
    _check_put(self, values)
    return _put_(self, index, values, accumulate)


Tensor.index_put_ = _index_put_method
