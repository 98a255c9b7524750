"""Writing into copies: scatter_reduce, index_reduce, put, fill, and the `*_scatter` counterparts of views."""

from __future__ import annotations

import numpy as np

from .. import batching, dtypes
from ..creation import no_gradient
from ..op import inplace, op, public, twin
from ..tensor import Tensor, dimension
from .arrange import _diagonal, _diagonal_arrays
from .cast import to
from .check import not_tensor
from .choose import masked_fill, sum_all, where_one, where_zero
from .gather import _check_gather, _check_index_source, _gather, _scatter_value, _used, _where_along, fit
from .index import zero_of
from .shape import (
    _element_strides,
    _select,
    _slice,
    _span,
    _strided_set,
    as_strided,
    expand,
    reshape,
    select,
    sizes,
    strided_get,
    strided_set,
)

# Combining all that is scattered to one place. `index` has the shape of the source, or less in some dimensions.

_COMBINE = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _neutral(reduce, array_type):
    """What changes nothing when it is combined with a number."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    lowest = reduce == "amax"
    if array_type.kind in "fV":
        return -np.inf if lowest else np.inf
    if array_type.kind == "b":
        return not lowest
    return np.iinfo(array_type).min if lowest else np.iinfo(array_type).max


def _scatter_reduce_arrays(x, index, src, dim, reduce, include_self):
    out = np.array(x)
    if not index.size:
        return out
    place, src = _where_along(index, dim), _used(src, index)
    if not include_self:
        out[place] = _neutral(reduce, x.dtype)
    _COMBINE[reduce].at(out, place, src)
    if reduce == "mean":
        count = _group_sizes_arrays(index, x, dim, include_self)
        return (np.floor_divide if x.dtype.kind in "iu" else np.divide)(out, count).astype(x.dtype)
    return out


def _group_sizes_arrays(index, x, dim, include_self):
    count = np.full(x.shape, int(include_self), x.dtype)
    if index.size:
        np.add.at(count, _where_along(index, dim), np.ones((), x.dtype))
    return np.maximum(count, np.ones((), x.dtype))


@twin(_group_sizes_arrays)
def _group_sizes(index, x, dim, include_self):
    """How many numbers are combined in each place (at least 1)."""
    return Tensor._from(_group_sizes_arrays(index.array, x.array, dim, include_self))


def _zeros_among_arrays(x, index, src, dim, include_self):
    count = ((x == 0) & include_self).astype(x.real.dtype)
    np.add.at(count, _where_along(index, dim), (_used(src, index) == 0).astype(x.real.dtype))
    return count


@twin(_zeros_among_arrays)
def _zeros_among(x, index, src, dim, include_self):
    """How many zeros are combined in each place."""
    return Tensor._from(_zeros_among_arrays(x.array, index.array, src.array, dim, include_self))


@twin(lambda condition, like: condition.astype(like.dtype))
def _as_number(condition, like):
    """Ones where the condition holds, in the type of `like`."""
    return to(condition, like.dtype)


def _product_gradient(g, x, index, src, out, dim, include_self):
    """An element's gradient is the product of the others: out / element, or at a zero the product of what isn't zero."""
    part = _used(src, index)
    rest = g * _scatter_reduce(where_one(x), index, where_one(src), dim, "prod", include_self)
    zeros = _zeros_among(x, index, src, dim, include_self)
    whole = g * out
    total = _scatter_reduce(where_zero(x != 0, x), index, where_zero(src != 0, src), dim, "sum", include_self)
    gx = where_zero(x == 0, whole / where_one(x)) + where_zero(x != 0, _at_zero(rest, zeros, total - x))
    rest, zeros, total = (_gather(v, index, dim) for v in (rest, zeros, total))
    gsrc = where_zero(part == 0, _gather(whole, index, dim) / where_one(part))
    return gx, gsrc + where_zero(part != 0, _at_zero(rest, zeros, total - part))


def _at_zero(rest, zeros, others):
    """A zero's gradient: `rest` if it is the only zero; beside another zero nothing, but that has a gradient again."""
    return where_zero(zeros != 1, rest) + where_zero(zeros != 2, rest * others)


def _extreme_gradient(g, x, index, src, out, dim):
    """Everything that attains the extreme shares the gradient evenly."""
    hits = _as_number(_used(src, index) == _gather(out, index, dim), g)
    mine = _as_number(x == out, g)
    share = g / _scatter_reduce(mine, index, hits, dim, "sum", True)
    return mine * share, hits * _gather(share, index, dim)


def _scatter_reduce_gradient(g, x, index, src, out, dim, reduce, include_self):
    if reduce == "prod":
        gx, gsrc = _product_gradient(g, x, index, src, out, dim, include_self)
    elif reduce in ("amax", "amin"):
        gx, gsrc = _extreme_gradient(g, x, index, src, out, dim)
    else:
        gx = g / _group_sizes(index, x, dim, include_self) if reduce == "mean" else g
        gsrc = _gather(gx, index, dim)
    return gx if include_self else _scatter_value(gx, index, dim, 0), None, fit(gsrc, tuple(src.shape))


def _reducing(name):
    return op(name, _scatter_reduce_arrays,
        joint=lambda g, input, index, src, out, dim, reduce, include_self:
            _scatter_reduce_gradient(g, input, index, src, out, dim, reduce, include_self),
        promote="keep", batch="leading")  # fmt: skip


_scatter_reduce, _index_reduce = _reducing("scatter_reduce"), _reducing("index_reduce")


@public(inplace=True)
def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """A copy of input in which src is combined where the index points along `dim`. Differentiable in input and src.

    reduce: "sum", "prod", "mean", "amax" or "amin"; include_self: whether the old element is one of the combined.
    """
    d = dimension(dim, input.array.ndim)
    if reduce not in _COMBINE:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    _check_gather("scatter", input, d, index, src)
    index = to(index, dtypes.int64)
    if not input.array.ndim or not src.array.ndim or not index.array.ndim:
        flat = (v if v.array.ndim else reshape(v.clone(), 1) for v in (input, index, src))  # a copy, which may be saved
        return reshape(_scatter_reduce(*flat, 0, reduce, include_self), input.array.shape)
    return _scatter_reduce(input, index, src, d, reduce, include_self)


@public(inplace=True)
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """A copy of input in which slices of source are combined with the slices of `dim` named by a vector of indices.

    reduce: "prod", "mean", "amax" or "amin". Differentiable in input and source.
    """
    d = dimension(dim, input.array.ndim)
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either prod, mean, amax or amin, got {reduce}.")
    _check_index_source("index_reduce_", input, d, index, source)
    whole, source = (v if v.array.ndim else reshape(v.clone(), 1) for v in (input, source))
    shape = [-1 if i == d else 1 for i in range(source.array.ndim)]
    index = expand(reshape(to(index, dtypes.int64), shape), source.array.shape)
    result = _index_reduce(whole, index, source, d, reduce, include_self)
    return result if input.array.ndim else reshape(result, ())


# By index into the flat tensor


def _put_arrays(x, index, source, accumulate):
    out = np.array(x)
    flat = out.reshape(-1)
    if accumulate:
        np.add.at(flat, index.reshape(-1), source.reshape(-1))
    else:
        flat[index.reshape(-1)] = source.reshape(-1)
    return out


_put = op("put", _put_arrays,
    lambda g, _input, index, _source, _out, accumulate: g if accumulate else _put(g, index, zero_of(g), False), None,
    lambda g, _input, index, source_shape, _out, _accumulate: reshape(_take(g, index), source_shape), promote="keep",
    batch=batching.put_rule)  # fmt: skip
_take = op("take", lambda x, index: x.reshape(-1)[index],
    lambda g, input_shape, index, _out: _untake(g, index, input_shape), None, promote="keep", batch=batching.take_rule)  # fmt: skip
_untake = op("untake", lambda g, index, shape: _put_arrays(np.zeros(shape, g.dtype), index, g, True),
    lambda g, _input, index, _out, _shape: _take(g, index), None, promote="keep")  # fmt: skip


def _check_index_type(name, index):
    if index.dtype is not dtypes.int64:
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {dtypes.scalar_type_name(index.dtype)}")


def _check_places(name, input, index):
    """RuntimeError or IndexError unless the index holds int64 places of the flat input."""
    _check_index_type(name, index)
    n, index = input.array.size, batching.all_values(index)
    if index.size and not n:
        raise IndexError(
            f"{name}(): {'tried to take from' if name == 'take' else 'Tried to put elements into'} an empty tensor"
        )
    wrong = (index < -n) | (index >= n)
    if wrong.any():
        raise IndexError(f"out of range: tried to access index {index[wrong][0]} on a tensor of {n} elements.")


@public(inplace=True)
def put(input, index, source, accumulate=False):
    """A copy of input with source written (or added) at indices into the flat tensor. Differentiable in both."""
    if source.dtype is not input.dtype:
        raise RuntimeError(f"put_(): self and source expected to have the same dtype, but got self.dtype = "
                           f"{dtypes.scalar_type_name(input.dtype)} and source.dtype = {dtypes.scalar_type_name(source.dtype)}")  # fmt: skip
    _check_index_type("put_", index)
    if source.array.size != index.array.size:
        raise IndexError("put_(): Expected source and index to have the same number of elements, but got source.numel() = "
                         f"{source.array.size}, index.numel() = {index.array.size}")  # fmt: skip
    _check_places("put_", input, index)
    return _put(input, index, source, accumulate)


@public()
def take(input, index):
    """The elements of the flat tensor at the indices, in the index's shape. Differentiable in input."""
    _check_places("take", input, index)
    return _take(input, index)


# Counterparts of views: a copy in which the view's place is overwritten


def _written(x, src, place):
    out = np.array(x)
    out[place] = src
    return out


def _diagonal_written(x, src, offset, dim1, dim2):
    out = np.array(x)
    _diagonal_arrays(out, offset, dim1, dim2)[...] = src
    return out


_select_scatter = op("select_scatter", _written,
    lambda g, _input, _src, _out, place: _select_scatter(g, zero_of(g), place),
    lambda g, _input, _src, _out, place: _select(g, place), batch=batching.index_rule)  # fmt: skip
_slice_scatter = op("slice_scatter", _written,
    lambda g, _input, _src, _out, place: _slice_scatter(g, zero_of(g), place),
    lambda g, _input, _src, _out, place: _slice(g, place), batch=batching.index_rule)  # fmt: skip
_diagonal_scatter = op("diagonal_scatter", _diagonal_written,
    lambda g, _input, _src, _out, offset, dim1, dim2: _diagonal_scatter(g, zero_of(g), offset, dim1, dim2),
    lambda g, _input, _src, _out, offset, dim1, dim2: _diagonal(g, offset, dim1, dim2), batch="leading")  # fmt: skip
_as_strided_scatter = op("as_strided_scatter", _strided_set,
    lambda g, _input, _src, _out, root_shape, root_strides, shape, strides, offset:
        strided_set(g, zero_of(g), root_shape, root_strides, shape, strides, offset),
    lambda g, _input, _src, _out, root_shape, root_strides, shape, strides, offset:
        strided_get(g, root_shape, root_strides, shape, strides, offset))  # fmt: skip


def _check_source(src, shape):
    if src.array.shape != tuple(shape):
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src.array.shape)}, slice size = "
                           f"{list(shape)}")  # fmt: skip


@public()
def select_scatter(input, src, dim, index):
    """A copy of input with src written where `select(input, dim, index)` looks. Differentiable in both."""
    _check_source(src, select(input.detach(), dim, index).array.shape)
    d = dimension(dim, input.array.ndim)
    return _select_scatter(input, to(src, input.dtype), (slice(None),) * d + (int(index) % input.array.shape[d],))


@public()
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """A copy of input with src written where the slice start:end:step of `dim` looks. Differentiable in both."""
    if not input.array.ndim:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    d = dimension(dim, input.array.ndim)
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    place = (slice(None),) * d + (slice(start, end, step),)
    _check_source(src, _slice(input.detach(), place).array.shape)
    return _slice_scatter(input, to(src, input.dtype), place)


@public()
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """A copy of input with src written to the diagonal of two dimensions. Differentiable in both."""
    dim1, dim2 = dimension(dim1, input.array.ndim), dimension(dim2, input.array.ndim)
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    _check_source(src, _diagonal(input.detach(), offset, dim1, dim2).array.shape)
    return _diagonal_scatter(input, to(src, input.dtype), offset, dim1, dim2)


@public()
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """A copy of input with src written where `as_strided(size, stride)` looks. Differentiable in both."""
    size, stride = sizes((size,)), sizes((stride,))
    shape, strides = input.array.shape, _element_strides(input.array)
    offset = storage_offset or 0
    if _span(size, stride) + offset > _span(shape, strides):
        as_strided(input.detach(), size, stride, storage_offset)  # says what doesn't fit
    _check_source(src, size)
    return _as_strided_scatter(input, to(src, input.dtype), shape, strides, size, stride, offset)


# Filling

_fill = op("fill", lambda x, value: np.full_like(x, value), lambda g, _input, _out, _value: no_gradient(g),
           node="FillBackward0", promote="keep", batch="leading")  # fmt: skip
_fill_tensor = op("fill_tensor", lambda x, value: np.full_like(x, value),
    lambda g, _input, _value, _out: no_gradient(g),
    lambda g, _input, value, _out: _like(sum_all(g), value),
    node="FillBackward1", promote="keep")  # fmt: skip


@twin(lambda g, x: (g if x.dtype.kind == "c" else g.real).astype(x.dtype))
def _like(g, x):
    """g in the type of x."""
    return to(g if x.dtype.is_complex or not g.dtype.is_complex else g.real, x.dtype)


def _filled(input, value):
    if isinstance(value, Tensor):
        if value.array.ndim:
            raise RuntimeError(
                f"fill only supports 0-dimension value tensor but got tensor with {value.array.ndim} dimensions."
            )
        return _fill_tensor(input, value) if value.dtype.category <= input.dtype.category else _fill(input, value.item())
    if dtypes.number_type(value) is None:
        raise TypeError(f"fill(): argument 'value' (position 2) must be Number, not {type(value).__name__}")
    return _fill(input, value)


@public(method=False)
def fill(input, value):
    """A tensor like input with one number (or 0-d tensor) everywhere. Differentiable in a tensor value."""
    if not isinstance(input, Tensor):
        raise not_tensor("fill", input=input)
    return _filled(input, value)


def _fill_diagonal_(self, fill_value, wrap=False):
    """Writes one number to the main diagonal; wrap: again below a tall matrix, after one empty row. Not differentiable."""
    x = self.array
    if x.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    mask = np.zeros(x.shape, bool)
    np.fill_diagonal(mask, True, wrap)
    return inplace(lambda old: masked_fill(old, Tensor._from(mask), fill_value), self)


Tensor.fill_diagonal_ = _fill_diagonal_
