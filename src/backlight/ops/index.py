"""Indexing and what moves elements by index: x[...], gather, scatter, index_select, masked_select, nonzero."""

from __future__ import annotations

import builtins

import numpy as np

from .. import dtypes
from ..op import check_broadcast, op, public, write_out
from ..tensor import Tensor, dimension
from .pointwise import to
from .shape import _select, _slice, alias, expand, flatten, movedim, reshape, unsqueeze

# Advanced indexing. The index is a tuple of slices, ints and int64/bool arrays as NumPy takes it.


def _index_arrays(x, index):
    return x[index]


def _unindex_arrays(g, shape, index):
    out = np.zeros(shape, g.dtype)
    np.add.at(out, index, g)
    return out


_index = op("index", _index_arrays, lambda g, input_shape, _out, index: _unindex(g, input_shape, index))
_unindex = op("unindex", _unindex_arrays, lambda g, _input, _out, _shape, index: _index(g, index))


def _parse(index):
    return index if isinstance(index, tuple) else (index,)


def _as_integer(item):
    """A 0-d integer tensor or NumPy integer as an int; anything else as it is."""
    if isinstance(item, (bool, np.bool_)):
        return Tensor._from(np.asarray(item))
    if isinstance(item, np.integer):
        return int(item)
    return item


def _getitem(self, index):
    if type(index) is int and self.array.ndim:
        return _select_first(self, index)
    result, advanced = _basic(self, index)
    return result if advanced is None else _index(result, advanced)


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
    if not isinstance(index, tuple) and isinstance(index, list):
        items = [_tensor_index(index)]
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
    for item in items:
        if isinstance(item, int):
            n = x.array.shape[dim]
            if not -n <= item < n:
                raise IndexError(f"index {item} is out of bounds for dimension {dim} with size {n}")
            x = _select(x, (slice(None),) * dim + (item % n, ...))
            changed = True
        elif isinstance(item, slice):
            item = slice(*(v if v is None else v.__index__() for v in (item.start, item.stop, item.step)))
            if item.step is not None and item.step <= 0:
                raise ValueError("step must be greater than zero")
            if item != slice(None):
                x = _slice(x, (slice(None),) * dim + (item,))
                changed = True
            elif len(items) == 1:
                x = _slice(x, (slice(None),))
                changed = True
            dim += 1
        elif item is Ellipsis:
            dim += x.array.ndim - dim - _later(items, item)
        elif item is None:
            x = unsqueeze(x, dim)
            changed = True
            dim += 1
        elif isinstance(item, Tensor):
            if item.array.dtype.kind not in "biu":
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
                advanced[dim] = _checked_index(item.array, x.array.shape[dim], dim)
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


def _checked_index(index, n, dim):
    if index.size and (index.min() < -n or index.max() >= n):
        bad = index.reshape(-1)[np.flatnonzero((index < -n) | (index >= n))[0]]
        raise IndexError(f"index {bad} is out of bounds for dimension {dim} with size {n}")
    return index if index.dtype == np.int64 else index.astype(np.int64)


Tensor.__getitem__ = _getitem


def _setitem(self, index, value):
    """x[index] = value: writes in place, and the graph follows (CopySlices)."""
    target, advanced = _basic(self, index)
    if not isinstance(value, Tensor):
        from ..creation import tensor

        if dtypes.number_type(value) is None:
            if isinstance(value, (str, bytes)):
                raise TypeError(f"can't assign a {type(value).__name__} to a {self.type()}")
            value = tensor(value)
        else:
            value = Tensor._from(np.asarray(value).astype(self.array.dtype))
    if advanced is None:
        copy_(target, value)
        return
    _put_(target, advanced, value)


Tensor.__setitem__ = _setitem


def _copy_arrays(_old, value, array_type, shape):
    value = value if value.dtype == array_type else _real_cast(value, array_type)
    return np.broadcast_to(value, shape)


def _real_cast(value, array_type):
    from ..engine import cast

    with np.errstate(all="ignore"):
        return cast(value, array_type)


_copy = op("copy", _copy_arrays,
    lambda g, _input, _src, _out, _array_type, _shape: g * 0,
    lambda g, _input, src, _out, _array_type, _shape: _uncopy(g, src), promote="keep", node="CopyBackwards")  # fmt: skip


def _uncopy_arrays(g, src):
    from ..engine import cast, sum_to

    return cast(sum_to(g, src.shape), src.dtype)


def _uncopy(g, src):
    from .shape import sum_to_size

    g = sum_to_size(g, src.array.shape)
    return g if g.dtype is src.dtype else (g.real if g.dtype.is_complex and not src.dtype.is_complex else g).to(src.dtype)


_uncopy.arrays = _uncopy_arrays


def copy_(self, src, non_blocking=False):
    """Copies `src` (broadcast, any type) into this tensor and returns it. Differentiable in src."""
    del non_blocking
    if not isinstance(src, Tensor):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}")
    shape = self.array.shape
    extra = src.array.ndim - len(shape)
    if extra > 0 and builtins.all(n == 1 for n in src.array.shape[:extra]):
        src = reshape(src, src.array.shape[extra:])
    try:
        np.broadcast_to(src.array, shape)
    except ValueError:
        raise RuntimeError(_no_broadcast(src.array.shape, shape)) from None
    from ..op import inplace

    return inplace(lambda old: _copy(old, src, self.array.dtype, shape), "copy_", self, (), {})


def _no_broadcast(have, want):
    extra = len(want) - len(have)
    if extra < 0:
        return f"expand(torch.FloatTensor{{{list(have)}}}, size={list(want)}): the number of sizes provided ({len(want)}) must " \
               f"be greater or equal to the number of dimensions in the tensor ({len(have)})"  # fmt: skip
    i = next(i for i in range(len(have) - 1, -1, -1) if have[i] not in (1, want[extra + i]))
    return (f"The expanded size of the tensor ({want[extra + i]}) must match the existing size ({have[i]}) at non-singleton "
            f"dimension {extra + i}.  Target sizes: {list(want)}.  Tensor sizes: {list(have)}")  # fmt: skip


Tensor.copy_ = copy_


def _index_put_arrays(x, value, index, accumulate):
    out = x.copy()
    if accumulate:
        np.add.at(out, index, value)
    else:
        out[index] = value
    return out


_index_put = op("index_put", _index_put_arrays,
    lambda g, _input, _value, _out, index, accumulate: g if accumulate else _index_put(g, zero_like_part(g, index), index, False),
    lambda g, _input, value_shape, _out, index, _accumulate: _to_shape(_index(g, index), value_shape))  # fmt: skip


def _zero_like_part(g, index):
    return np.zeros((), g.dtype)


def zero_like_part(g, index):
    """A zero to write where the index points."""
    return Tensor._from(_zero_like_part(g.array, index))


zero_like_part.arrays = _zero_like_part


def _to_shape(g, shape):
    from .shape import sum_to_size

    return sum_to_size(g, shape)


def _to_shape_arrays(g, shape):
    from ..engine import sum_to

    extra = len(shape) - g.ndim
    return sum_to(g, shape[extra:] if extra > 0 else shape).reshape(shape)


_to_shape.arrays = _to_shape_arrays


def _put_(x, index, value, accumulate=False):
    from ..op import inplace

    part = x.array[index].shape
    value = to(value, x.dtype)
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
    return inplace(lambda old: _index_put(old, value, index, accumulate), "index_put_", x, (), {})


def _numpy_index(x, indices):
    items = tuple(slice(None) if i is None else i for i in indices)
    view, advanced = _basic(x, items)
    return view, advanced if advanced is not None else (Ellipsis,)


@public()
def index_put(input, indices, values, accumulate=False):
    """A copy of the tensor with `values` written (or added) at `indices`, a tuple of index tensors. Differentiable."""
    view, index = _numpy_index(input, indices)
    return _index_put(view, to(values, input.dtype), index, accumulate)


def _index_put_method(self, indices, values, accumulate=False):
    view, index = _numpy_index(self, indices)
    del view
    return _put_(self, index, values, accumulate)


Tensor.index_put_ = _index_put_method

# By index along one dimension


def _check_gather(name, x, dim, index):
    if index.dtype not in (dtypes.int64, dtypes.int32) and index.array.size:
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    if not index.array.size:
        return
    if builtins.max(x.array.ndim, 1) != builtins.max(index.array.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor"
                           if name == "gather" else "Index tensor must have the same number of dimensions as self tensor")  # fmt: skip
    shape = x.array.shape or (1,)
    for d, n in enumerate(index.array.shape or (1,)):
        if d != dim and n > shape[d]:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.array.shape)} to be no larger than self "
                f"{list(x.array.shape)} apart from dimension {dim}"
            )
    if index.array.size and (index.array.min() < 0 or index.array.max() >= shape[dim]):
        bad = index.array.reshape(-1)[np.flatnonzero((index.array < 0) | (index.array >= shape[dim]))[0]]
        raise RuntimeError(f"index {bad} is out of bounds for dimension {dim} with size {shape[dim]}")


def _where_along(index, dim):
    """The full index tuple that picks along `dim`; other dimensions run as far as the index does."""
    return tuple(index if d == dim else np.arange(n).reshape([-1 if k == d else 1 for k in range(index.ndim)])
                 for d, n in enumerate(index.shape))  # fmt: skip


def _gather_arrays(x, index, dim):
    return x[_where_along(index, dim)] if x.ndim else x.reshape(1)[index].reshape(index.shape)


def _scatter_add_arrays(x, index, src, dim):
    out = x.copy()
    if index.size:
        src = src[tuple(slice(0, n) for n in index.shape)]
        np.add.at(out.reshape(1) if not out.ndim else out, _where_along(index, dim) if index.ndim else (index,), src)
    return out


def _scatter_arrays(x, index, src, dim):
    out = x.copy()
    if index.size:
        src = src[tuple(slice(0, n) for n in index.shape)] if src.ndim else src
        (out.reshape(1) if not out.ndim else out)[_where_along(index, dim) if index.ndim else (index,)] = src
    return out


def _ungather_arrays(g, index, shape, dim):
    return _scatter_add_arrays(np.zeros(shape, g.dtype), index, g, dim)


_gather = op("gather", _gather_arrays,
    lambda g, input_shape, index, _out, dim: _ungather(g, index, input_shape, dim), None, promote="keep")  # fmt: skip
_ungather = op("ungather", _ungather_arrays,
    lambda g, _input, index, _out, _shape, dim: _gather(g, index, dim), None, promote="keep")  # fmt: skip


@public()
def gather(input, dim, index, *, sparse_grad=False, out=None):
    """out[i][j] = input[index[i][j]][j] (for dim 0). The result has the index's shape. Differentiable in input."""
    del sparse_grad
    d = dimension(dim, input.array.ndim)
    _check_gather("gather", input, d, index)
    result = _gather(input, to(index, dtypes.int64), d)
    return result if out is None else write_out(out, result)


_scatter_add = op("scatter_add", _scatter_add_arrays,
    lambda g, _input, _index, _src, _out, _dim: g, None,
    lambda g, _input, index, src_shape, _out, dim: fit(_gather(g, index, dim), src_shape), promote="keep")  # fmt: skip
_scatter = op("scatter", _scatter_arrays,
    lambda g, _input, index, _src, _out, dim: _scatter(g, index, zero_like_part(g, index), dim), None,
    lambda g, _input, index, src_shape, _out, dim: fit(_gather(g, index, dim), src_shape), promote="keep")  # fmt: skip


def _fit_arrays(g, shape):
    return g if g.shape == shape else np.pad(g, [(0, n - m) for n, m in zip(shape, g.shape, strict=True)])


def fit(g, shape):
    """g with zeros appended up to the shape (a scatter may use only part of its source)."""
    if g.array.shape == shape:
        return g
    from .shape import constant_pad

    widths = [w for n, m in zip(reversed(shape), reversed(g.array.shape), strict=True) for w in (0, n - m)]
    return constant_pad(g, tuple(widths), 0)


fit.arrays = _fit_arrays


@public(inplace=True)
def scatter_add(input, dim, index, src):
    """Adds the elements of src to a copy of input where the index points along `dim`. Differentiable in both."""
    d = dimension(dim, input.array.ndim)
    _check_gather("scatter_add", input, d, index)
    if input.dtype is not src.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    return _scatter_add(input, to(index, dtypes.int64), src, d)


@public(inplace=True)
def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """A copy of input with src (or a number) written where the index points along `dim`. Differentiable in both."""
    if reduce is not None:
        raise NotImplementedError("scatter(reduce=...) is not there yet in Backlight; use scatter_add")
    d = dimension(dim, input.array.ndim)
    _check_gather("scatter", input, d, index)
    src = value if src is None else src
    if not isinstance(src, Tensor):
        src = Tensor._from(np.asarray(src, input.array.dtype))
    elif src.dtype is not input.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    return _scatter(input, to(index, dtypes.int64), src, d)


def _select_index(index, dim):
    return (slice(None),) * dim + (index,)


def _check_vector_index(name, index, n):
    if index.array.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector")
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"{name}(): Expected dtype int32 or int64 for index")
    if index.array.size and (index.array.min() < 0 or index.array.max() >= n):
        raise IndexError("index out of range in self")


_index_select = op("index_select", lambda x, index, dim: np.take(x, index, dim),
    lambda g, input_shape, index, _out, dim: _index_add_zero(g, index, input_shape, dim), None, promote="keep")  # fmt: skip
_index_add_zero = op("index_add_zero",
    lambda g, index, shape, dim: _index_add_arrays(np.zeros(shape, g.dtype), index, g, dim),
    lambda g, _input, index, _out, _shape, dim: _index_select(g, index, dim), None, promote="keep")  # fmt: skip


def _index_add_arrays(x, index, src, dim):
    out = x.copy()
    np.add.at(out, _select_index(index, dim), src)
    return out


@public()
def index_select(input, dim, index, *, out=None):
    """The slices of `dim` at the places in a vector of indices. Differentiable in input."""
    d = dimension(dim, input.array.ndim)
    _check_vector_index("index_select", index, input.array.shape[d] if input.array.ndim else 1)
    if not input.array.ndim:
        result = _index_select(reshape(input, 1), reshape(index, -1), 0)
        result = reshape(result, ())
    else:
        result = _index_select(input, reshape(index, -1), d)
    return result if out is None else write_out(out, result)


_index_add = op("index_add", _index_add_arrays,
    lambda g, _input, _index, _src, _out, _dim: g, None,
    lambda g, _input, index, _src, _out, dim: _index_select(g, index, dim), promote="keep")  # fmt: skip


@public(inplace=True)
def index_add(input, dim, index, source, *, alpha=1):
    """A copy of input with alpha * source added to the slices of `dim` named by the index. Differentiable in both."""
    d = dimension(dim, input.array.ndim)
    _check_vector_index("index_add", index, input.array.shape[d] if input.array.ndim else 1)
    if source.array.shape[d] != index.array.size:
        raise RuntimeError(f"index_add_(): Number of indices ({index.array.size}) should be equal to source.size(dim): "
                           f"({source.array.shape[d]}), for dim: {d}")  # fmt: skip
    if source.dtype is not input.dtype:
        raise RuntimeError("index_add_(): self and source expected to have the same dtype, but got (self) "
                           f"{dtypes.scalar_type_name(input.dtype)} and (source) {dtypes.scalar_type_name(source.dtype)}")  # fmt: skip
    return _index_add(input, reshape(index, -1), source if alpha == 1 else source * alpha, d)


@public(inplace=True)
def index_fill(input, dim, index, value):
    """A copy of input with a number written to the slices of `dim` named by the index. Differentiable."""
    d = dimension(dim, input.array.ndim)
    mask = np.zeros(input.array.shape[d], bool)
    mask[index.array] = True
    shape = [1] * input.array.ndim
    shape[d] = -1
    return input.masked_fill(Tensor._from(mask.reshape(shape)), value)


@public(inplace=True)
def index_copy(input, dim, index, source):
    """A copy of input with the slices of `dim` named by the index replaced by those of source. Differentiable."""
    d = dimension(dim, input.array.ndim)
    return _index_put(input, source, _select_index(index.array, d), False)


@public()
def take_along_dim(input, indices, dim=None):
    """gather with broadcasting (over the flat tensor if dim is None). Differentiable in input."""
    if dim is None:
        return gather(flatten(input), 0, flatten(indices))
    d = dimension(dim, input.array.ndim)
    shape = np.broadcast_shapes(
        _one_at(input.array.shape, d), _one_at(indices.array.shape, d)
    )
    full = [*shape]
    full[d] = input.array.shape[d]
    picks = [*shape]
    picks[d] = indices.array.shape[d]
    return gather(expand(input, full), d, expand(indices, picks))


def _one_at(shape, d):
    return tuple(1 if i == d else n for i, n in enumerate(shape))


@public()
def take(input, index):
    """The elements of the flat tensor at the indices. Differentiable in input."""
    return reshape(_index(flatten(input) if input.array.ndim != 1 else input,
                          (_checked_index(index.array, input.array.size, 0),)), index.array.shape)  # fmt: skip


@public()
def masked_select(input, mask, *, out=None):
    """The elements where the mask holds, as a vector. Differentiable in input."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    check_broadcast(input.array.shape, mask.array.shape)
    shape = np.broadcast_shapes(input.array.shape, mask.array.shape)
    result = _index(expand(input, shape), np.nonzero(np.broadcast_to(mask.array, shape)) or (np.zeros(0, np.int64),))
    return result if out is None else write_out(out, result)


@public(inplace=True)
def masked_scatter(input, mask, source):
    """A copy of input whose elements where the mask holds come from source, in order. Differentiable in both."""
    index = np.nonzero(np.broadcast_to(mask.array, input.array.shape))
    return _index_put(input, flatten(source)[: index[0].size], index, False)


@public()
def nonzero(input, *, out=None, as_tuple=False):
    """The indices of the elements that aren't zero: (count, ndim), or a tuple of vectors."""
    if as_tuple:
        array = input.array if input.array.ndim else input.array.reshape(1)
        return tuple(Tensor._from(i) for i in np.nonzero(array))
    found = np.nonzero(input.array) if input.array.ndim else ()
    count = found[0].size if found else int(bool(input.array))
    result = Tensor._from(np.stack(found, 1) if found else np.zeros((count, 0), np.int64))
    return result if out is None else write_out(out, result)


Tensor.argwhere = lambda self: nonzero(self)


@public()
def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    """Repeats each element (or slice of `dim`) `repeats` times in place. Differentiable in input."""
    del output_size
    if dim is None:
        input, dim = flatten(input) if input.array.ndim != 1 else input, 0
    d = dimension(dim, input.array.ndim)
    counts = repeats.array if isinstance(repeats, Tensor) else np.asarray(repeats)
    index = np.repeat(np.arange(input.array.shape[d]), counts)
    return _index_select(input, Tensor._from(index), d)


@public()
def unfold(input, dimension_, size, step):
    """Windows of `size` elements along a dimension, every `step`; the window becomes the last dimension. A copy."""
    d = dimension(dimension_, input.array.ndim)
    n = input.array.shape[d]
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    starts = np.arange(0, n - size + 1, step)
    index = starts[:, None] + np.arange(size)
    result = _index(input, _select_index(index, d))
    return movedim(result, d + 1, -1)


@public(method=False)
def searchsorted(sorted_sequence, input, *, right=False, side=None, out_int32=False):
    """Where each value would be inserted into a sorted sequence: int64, no gradient."""
    side = side or ("right" if right else "left")
    values = input.array if isinstance(input, Tensor) else np.asarray(input)
    if sorted_sequence.array.ndim == 1:
        found = np.searchsorted(sorted_sequence.array, values, side)
    else:
        rows = sorted_sequence.array.reshape(-1, sorted_sequence.array.shape[-1])
        found = np.stack([np.searchsorted(r, v, side) for r, v in zip(rows, values.reshape(len(rows), -1), strict=True)])
        found = found.reshape(values.shape)
    return Tensor._from(np.asarray(found, np.int32 if out_int32 else np.int64))


@public()
def bincount(input, weights=None, minlength=0):
    """How often each small non-negative integer occurs (or the sum of its weights)."""
    if weights is not None:
        counts = np.bincount(input.array, weights.array, minlength)
        return Tensor._from(counts.astype(weights.array.dtype if weights.array.dtype.kind == "f" else np.float64))
    return Tensor._from(np.bincount(input.array, None, minlength).astype(np.int64))


@public()
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements (or slices of `dim`), sorted; with their inverse indices and counts if asked for."""
    del sorted
    found = np.unique(input.array, False, return_inverse, return_counts, dim)
    if not isinstance(found, tuple):
        return Tensor._from(found)
    parts = [Tensor._from(np.asarray(f)) for f in found]
    if return_inverse and dim is None:
        parts[1] = reshape(parts[1], input.array.shape)
    return tuple(parts)


@public(method=False, module="nn.functional")
def one_hot(tensor, num_classes=-1):
    """Rows of zeros with a one at each index. (*S) int64 -> (*S, num_classes) int64."""
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    index = tensor.array
    if index.size and index.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        if not index.size:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(index.max()) + 1
    if index.size and index.max() >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    out = np.zeros((*index.shape, num_classes), np.int64)
    np.put_along_axis(out, index[..., None], 1, -1)
    return Tensor._from(out)


def pad_by_index(x, pad, mode):
    """Pads by repeating elements of x: "reflect", "replicate" or "circular"."""
    n = x.array.ndim
    if len(pad) // 2 > n - 1:
        raise NotImplementedError(f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now (mode '{mode}')")
    for i in range(len(pad) // 2):
        dim, (left, right) = n - 1 - i, pad[2 * i : 2 * i + 2]
        size = x.array.shape[dim]
        if mode == "reflect" and (left >= size or right >= size):
            raise RuntimeError(
                f"Argument #4: Padding size should be less than the corresponding input dimension, but got: padding ({left}, "
                f"{right}) at dimension {dim} of input {list(x.array.shape)}"
            )
        if mode == "circular" and (left > size or right > size):
            raise RuntimeError("Padding value causes wrapping around more than once.")
        place = np.arange(-left, size + right)
        if mode == "reflect":
            place = np.abs(place)
            place = np.where(place >= size, 2 * (size - 1) - place, place)
        elif mode == "replicate":
            place = np.clip(place, 0, size - 1)
        elif mode == "circular":
            place = place % size
        else:
            raise NotImplementedError(f"Unrecognised padding mode {mode}")
        x = _index_select(x, Tensor._from(place), dim)
    return x

