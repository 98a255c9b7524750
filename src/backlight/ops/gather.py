"""What moves elements by index: gather, scatter, index_select, masked_select, nonzero, unfold, unique."""

from __future__ import annotations

import builtins

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .. import batching, dtypes, kernels
from ..engine import modes
from ..kernels import FUSED
from ..op import check_broadcast, op, public, write_out
from ..tensor import Tensor, dimension
from .cast import to
from .check import not_implemented
from .index import _checked_index, _index, _index_put, _index_put_arrays, _unindex, zero_of
from .shape import constant_pad, expand, flatten, narrow, reshape

# By index along one dimension


def _check_gather(name, x, dim, index, src=None):
    """RuntimeError or IndexError for a type, shape or value that gather, or scatter with its source, doesn't take."""
    if index.dtype not in (dtypes.int64, dtypes.int32) and index.array.size:
        raise RuntimeError(f"{name.removesuffix('_add')}(): Expected dtype int32/int64 for index")
    if src is not None and src.dtype is not x.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if not index.array.size:
        return
    if builtins.max(x.array.ndim, 1) != builtins.max(index.array.ndim, 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor"
                           if name == "gather" else "Index tensor must have the same number of dimensions as self tensor")  # fmt: skip
    shape, picks = x.array.shape or (1,), index.array.shape or (1,)
    large = next((d for d, n in enumerate(picks) if d != dim and n > shape[d]), None)
    if src is not None:
        if large is None:
            own = src.array.shape or (1,) * len(picks)
            large = next((d for d, n in enumerate(picks) if n > own[dimension(d, len(own))]), None)
        if builtins.max(src.array.ndim, 1) != len(picks):
            raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if large is not None:
        start = f"Size does not match at dimension {large} expected index" if name == "gather" else "Expected index"
        end = "" if src is None else f" and to be no larger size than src {list(src.array.shape)}"
        raise RuntimeError(
            f"{start} {list(index.array.shape)} to be no larger than self {list(x.array.shape)} apart from dimension {dim}{end}"
        )
    places = batching.all_values(index)
    if 0 in places.strides:  # expanded: each index is looked at once
        places = places[tuple([slice(None) if step else slice(1) for step in places.strides])]
    if places.size and (places.min() < 0 or places.max() >= shape[dim]):
        bad = places.reshape(-1)[np.flatnonzero((places < 0) | (places >= shape[dim]))[0]]
        raise RuntimeError(f"index {bad} is out of bounds for dimension {dim} with size {shape[dim]}")


def _where_along(index, dim):
    """The full index tuple that picks along `dim`; other dimensions run as far as the index does."""
    return tuple(index if d == dim else np.arange(n).reshape([-1 if k == d else 1 for k in range(index.ndim)])
                 for d, n in enumerate(index.shape))  # fmt: skip


def _has_index_kernel(x, index, *others):
    """Whether kernels pick from, or add to, this array by index."""
    return (
        index.size
        and index.dtype == np.int64
        and x.ndim
        and index.ndim
        and kernels.compute(1, x, *others)
        and builtins.max(x.size, index.size) >= FUSED
    )


def _fits(x, index, dim):
    """Whether an index has x's shape in all dimensions but `dim`."""
    return x.ndim == index.ndim and x.shape[:dim] == index.shape[:dim] and x.shape[dim + 1 :] == index.shape[dim + 1 :]


def _gather_arrays(x, index, dim):
    if not index.size:
        return np.empty(index.shape, x.dtype)
    if _has_index_kernel(x, index) and _fits(x, index, dim):
        vector = kernels.indexing.as_vector(index, dim)
        return kernels.indexing.take_each(x, index, dim) if vector is None else kernels.indexing.take_slices(x, vector, dim)
    return x[_where_along(index, dim)] if x.ndim and index.ndim else x.reshape(-1)[index]


def _used(src, index):
    """The part of the source that the index covers."""
    if not src.ndim or not index.ndim:  # one of them is a number, and the other may be a vector of one
        return src.reshape(-1)[0]
    return src[tuple([slice(0, n) for n in index.shape])]


def _scatter_add_arrays(x, index, src, dim):
    out = np.array(x, order="C")
    if _has_index_kernel(x, index, src) and _fits(x, index, dim):
        vector = kernels.indexing.as_vector(index, dim)
        if vector is None:
            kernels.indexing.add_each(out, index, _used(src, index), dim)
        else:
            kernels.indexing.add_slices(out, vector, _used(src, index), dim)
    elif index.size:
        np.add.at(
            out.reshape(1) if not out.ndim else out, _where_along(index, dim) if index.ndim else (index,), _used(src, index)
        )
    return out


def _scatter_arrays(x, index, src, dim):
    out = np.array(x)
    if index.size:
        (out.reshape(1) if not out.ndim else out)[_where_along(index, dim) if index.ndim else (index,)] = _used(src, index)
    return out


def _ungather_arrays(g, index, shape, dim):
    return _scatter_add_arrays(np.zeros(shape, g.dtype), index, g, dim)


_gather = op("gather", _gather_arrays,
    lambda g, input_shape, index, _out, dim: _ungather(g, index, input_shape, dim), None, promote="keep", batch="leading")  # fmt: skip
_ungather = op("ungather", _ungather_arrays,
    lambda g, _input, index, _out, _shape, dim: _gather(g, index, dim), None, promote="keep", batch="leading")  # fmt: skip


@public()
def gather(input, dim, index, *, sparse_grad=False, out=None):
    """out[i][j] = input[index[i][j]][j] (for dim 0). The result has the index's shape. Differentiable in input."""
    del sparse_grad
    d = dimension(dim, input.array.ndim)
    _check_gather("gather", input, d, index)
    index = to(index, dtypes.int64)
    if modes.levels and input.array.ndim != index.array.ndim:  # one of them is a number
        result = reshape(_gather(reshape(input, -1), reshape(index, -1), 0), index.array.shape)
    else:
        result = _gather(input, index, d)
    return result if out is None else write_out(out, result, exact=True)


_scatter_add = op("scatter_add", _scatter_add_arrays,
    lambda g, _input, _index, _src, _out, _dim: g, None,
    lambda g, _input, index, src_shape, _out, dim: fit(_gather(g, index, dim), src_shape), promote="keep", batch="leading")  # fmt: skip
_scatter = op("scatter", _scatter_arrays,
    lambda g, _input, index, _src, _out, dim: _scatter_value(g, index, dim, 0), None,
    lambda g, _input, index, src_shape, _out, dim: fit(_gather(g, index, dim), src_shape), promote="keep", batch="leading")  # fmt: skip


_scatter_value = op("scatter_value", lambda x, index, dim, value: _scatter_arrays(x, index, np.asarray(value, x.dtype), dim),
    lambda g, _input, index, _out, dim, _value: _scatter_value(g, index, dim, 0), None,
    promote="keep", node="ScatterBackward1", batch="leading")  # fmt: skip


def _fit_arrays(g, shape):
    if g.ndim != len(shape):
        g = g.reshape((1,) * len(shape)) if g.size else np.zeros(shape, g.dtype)
    return g if g.shape == shape else np.pad(g, [(0, n - m) for n, m in zip(shape, g.shape, strict=True)])


def fit(g, shape):
    """g with zeros appended up to the shape (a scatter may use only part of its source)."""
    if g.array.ndim != len(shape):  # a number and a vector of one, or an empty index
        g = reshape(g, (1,) * len(shape)) if g.array.size else Tensor._from(np.zeros(shape, g.array.dtype))
    if g.array.shape == shape:
        return g
    widths = [w for n, m in zip(reversed(shape), reversed(g.array.shape), strict=True) for w in (0, n - m)]
    return constant_pad(g, tuple(widths), 0)


fit.arrays = _fit_arrays


def _of_one_rank(function, inputs, *parameters):
    """function of the inputs, under vmap: a number among vectors of one becomes one of them, for samples add a dimension to each."""
    if len({v.array.ndim for v in inputs}) == 1:
        return function(*inputs, *parameters)
    vectors = [v if v.array.ndim else reshape(v, 1) for v in inputs]
    return reshape(function(*vectors, *parameters), inputs[0].array.shape)


@public(inplace=True)
def scatter_add(input, dim, index, src):
    """Adds the elements of src to a copy of input where the index points along `dim`. Differentiable in both."""
    d = dimension(dim, input.array.ndim)
    _check_gather("scatter_add", input, d, index, src)
    if modes.levels:
        return _of_one_rank(_scatter_add, (input, to(index, dtypes.int64), src), d)
    return _scatter_add(input, to(index, dtypes.int64), src, d)


@public(inplace=True)
def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """A copy of input with src (or a number) written where the index points along `dim`. Differentiable in both."""
    if reduce is not None:
        return _scatter_reduced(input, dim, index, value if src is None else src, reduce)
    d = dimension(dim, input.array.ndim)
    src = value if src is None else src
    _check_gather("scatter", input, d, index, src if isinstance(src, Tensor) else None)
    if not isinstance(src, Tensor):
        if modes.levels:
            return _of_one_rank(_scatter_value, (input, to(index, dtypes.int64)), d, src)
        return _scatter_value(input, to(index, dtypes.int64), d, src)
    if modes.levels:
        return _of_one_rank(_scatter, (input, to(index, dtypes.int64), src), d)
    return _scatter(input, to(index, dtypes.int64), src, d)


def _scatter_reduced(input, dim, index, src, reduce):
    """scatter with reduce="add" or "multiply": the results of several sources for one place are combined."""
    if not isinstance(src, Tensor):
        src = Tensor._from(np.full(index.array.shape, src, input.array.dtype))
    if reduce == "add":
        return scatter_add(input, dim, index, src)
    if reduce != "multiply":
        raise RuntimeError("reduce argument must be either add or multiply.")
    if modes.grad and (input.requires_grad or src.requires_grad):
        raise RuntimeError("scatter(reduce='multiply') isn't differentiable; use scatter_reduce")
    d = dimension(dim, input.array.ndim)
    _check_gather("scatter", input, d, index, src)
    return _scatter_multiply(input, to(index, dtypes.int64), src, d)


def _scatter_multiply_arrays(input, index, src, dim):
    out = np.array(input)
    if index.size:
        np.multiply.at(
            out.reshape(1) if not out.ndim else out, _where_along(index, dim) if index.ndim else (index,), _used(src, index)
        )
    return out


_scatter_multiply = op("scatter_multiply", _scatter_multiply_arrays, None, None, None, promote="keep", batch="leading")


def _select_index(index, dim):
    return (slice(None),) * dim + (index,)


def _check_vector_index(name, index, n=None, several=False):
    """IndexError or RuntimeError unless the index is a vector of integers, which lie below n (several: of a matrix or more)."""
    if index.array.ndim > 1:
        got = "" if name == "index_select" else (
            f", but got dim: {index.array.ndim} with type: {dtypes.scalar_type_name(index.dtype)} and size: {list(index.array.shape)}")  # fmt: skip
        raise IndexError(f"{name}(): Index is supposed to be a vector{got}")
    if index.dtype not in (dtypes.int64, dtypes.int32):
        got = (
            " or int64 for index"
            if name == "index_select"
            else f"/int64 for index but got: {dtypes.scalar_type_name(index.dtype)}"
        )
        raise RuntimeError(f"{name}(): Expected dtype int32{got}")
    if n is None:
        return
    places = batching.all_values(index)
    if places.size and (places.min() < 0 or places.max() >= n):
        if name == "index_add_" and several:
            bad = places[(places < 0) | (places >= n)][0]
            raise RuntimeError(f"index {bad} is out of bounds for dimension 0 with size {n}")
        raise IndexError("index out of range in self")


def _select_arrays(x, index, dim):
    if _has_index_kernel(x, index) and index.size * x.size >= FUSED * x.shape[dim]:
        return kernels.indexing.take_slices(x, index, dim)
    return np.take(x, index, dim)


_index_select = op("index_select", _select_arrays,
    lambda g, input_shape, index, _out, dim: _index_add_zero(g, index, input_shape, dim), None, promote="keep", batch=batching.index_select_rule)  # fmt: skip
_index_add_zero = op("index_add_zero",
    lambda g, index, shape, dim: _index_add_arrays(np.zeros(shape, g.dtype), index, g, dim),
    lambda g, _input, index, _out, _shape, dim: _index_select(g, index, dim), None, promote="keep", batch=batching.index_select_rule)  # fmt: skip


def _index_add_arrays(x, index, src, dim):
    out = np.array(x, order="C")
    if _has_index_kernel(x, index, src):
        kernels.indexing.add_slices(out, index, src, dim)
        return out
    np.add.at(out, _select_index(index, dim), src)
    return out


@public()
def index_select(input, dim, index, *, out=None):
    """The slices of `dim` at the places in a vector of indices. Differentiable in input."""
    d = dimension(dim, input.array.ndim)
    if not input.array.ndim and index.array.ndim < 2 and index.array.size != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.array.size} value(s)")
    _check_vector_index("index_select", index, input.array.shape[d] if input.array.ndim else 1)
    if not input.array.ndim:
        result = _index_select(reshape(input, 1), reshape(index, -1), 0)
        result = reshape(result, ())
    else:
        result = _index_select(input, reshape(index, -1), d)
    return result if out is None else write_out(out, result, exact=True)


_index_add = op("index_add", _index_add_arrays,
    lambda g, _input, _index, _src, _out, _dim: g, None,
    lambda g, _input, index, _src, _out, dim: _index_select(g, index, dim), promote="keep", batch=batching.index_select_rule)  # fmt: skip


def _check_index_source(name, input, dim, index, source):
    """RuntimeError or IndexError unless `index` names slices of the input, and the source has one for each."""
    _check_vector_index(name, index)
    if source.dtype is not input.dtype:
        raise RuntimeError(f"{name}(): self ({dtypes.scalar_type_name(input.dtype)}) and source ("
                           f"{dtypes.scalar_type_name(source.dtype)}) must have the same scalar type")  # fmt: skip
    a, b = input.array.shape, source.array.shape
    if dim and dim >= len(b):
        raise RuntimeError(f"{name}(): Indexing dim {dim} is out of bounds of the source tensor with dim {len(b)}")
    if index.array.size != (b[dim] if b else 1):
        if not b:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        raise RuntimeError(
            f"{name}(): Number of indices ({index.array.size}) should be equal to source.size(dim): ({b[dim]}), for dim: {dim}"
        )
    if (a[:dim] + a[dim + 1 :] != b[:dim] + b[dim + 1 :]) if a and b else a != b:
        raise RuntimeError("source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
                           f"{list(a)} source.shape = {list(b)}")  # fmt: skip
    _check_vector_index(name, index, a[dim] if a else 1, several=len(a) > 1)


@public(inplace=True)
def index_add(input, dim, index, source, *, alpha=1):
    """A copy of input with alpha * source added to the slices of `dim` named by the index. Differentiable in both."""
    d = dimension(dim, input.array.ndim)
    _check_index_source("index_add_", input, d, index, source)
    if not input.array.ndim:
        return reshape(index_add(reshape(input, 1), 0, index, reshape(source, 1), alpha=alpha), ())
    return _index_add(input, reshape(index, -1), source if alpha == 1 else source * alpha, d)


_index_copy = op("index_copy", lambda x, source, place: _index_put_arrays(x, source, place, False),
    lambda g, _input, _source, _out, place: _index_put(g, zero_of(g), place, False),
    lambda g, _input, _source, _out, place: _index(g, place), batch=batching.index_put_rule)  # fmt: skip
_index_fill = op("index_fill", lambda x, place, value: _index_put_arrays(x, value, place, False),
    lambda g, _input, _out, place, _value: _index_put(g, zero_of(g), place, False), batch=batching.index_rule)  # fmt: skip


def _index_mask_arrays(index, size):
    mask = np.zeros((*index.shape[:-1], size), bool)
    np.put_along_axis(mask, index, True, -1)
    return mask


_index_mask = op("index_mask", _index_mask_arrays, None, promote="keep", batch="leading")


@public(inplace=True)
def index_fill(input, dim, index, value):
    """A copy of input with a number written to the slices of `dim` named by the index. Differentiable."""
    d = dimension(dim, input.array.ndim)
    if isinstance(value, Tensor) and value.array.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.array.ndim} dimension(s)."
        )
    if index.dtype is not dtypes.int64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if index.array.ndim > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    _checked_index(batching.all_values(index), input.array.shape[d] if input.array.ndim else 1, 0)
    if not input.array.ndim:
        return input.masked_fill(Tensor._from(np.asarray(index.array.size > 0)), value)
    if isinstance(index, batching.Batched) or (isinstance(value, Tensor) and (value.requires_grad or modes.levels)):
        mask = _index_mask(reshape(index, -1), input.array.shape[d])
        return input.masked_fill(reshape(mask, [-1 if i == d else 1 for i in range(input.array.ndim)]), value)
    if isinstance(value, Tensor):
        value = value.item()
    return _index_fill(input, _select_index(index.array, d), value)


def _check_index_copy(input, dim, index, source):
    n, a, b = index.array.size, input.array.shape, source.array.shape
    if index.array.ndim > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.array.ndim})")
    if not b and n != 1:
        raise IndexError(f"index_copy_(): When source is scalar, index should have one element (got {n})")
    if a and b and len(a) != len(b):
        raise IndexError(
            "index_copy_(): When source and destination are not scalars, their dimensionality must match. Source dimensionality "
            f"({len(b)}), destination dimensionality ({len(a)})"
        )
    if index.dtype is not dtypes.int64:
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {dtypes.scalar_type_name(index.dtype)}")
    if source.dtype is not input.dtype:
        raise RuntimeError("index_copy_(): self and source expected to have the same dtype, but got (self) "
                           f"{dtypes.scalar_type_name(input.dtype)} and (source) {dtypes.scalar_type_name(source.dtype)}")  # fmt: skip
    slices = [" ".join(map(str, s[:dim] + s[dim + 1 :])) for s in (a, b)]
    if slices[0] != slices[1]:
        raise RuntimeError(
            f"index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: {slices[0]} at dimension "
            f"{dim} and source slice shape: {slices[1]} at dimension 0."
        )
    if b and n != b[dim]:
        raise IndexError(f"index_copy_(): Number of indices ({n}) should be equal to source.size(dim) ({b[dim]})")
    size, places = a[dim] if a else 1, batching.all_values(index)
    wrong = places[(places < 0) | (places >= size)]
    if wrong.size:
        raise IndexError(f"index_copy_(): index {wrong[0]} is out of bounds for dimension {dim} with size {size}")


@public(inplace=True)
def index_copy(input, dim, index, source):
    """A copy of input with the slices of `dim` named by the index replaced by those of source. Differentiable."""
    d = dimension(dim, input.array.ndim)
    _check_index_copy(input, d, index, source)
    if isinstance(index, batching.Batched):
        x, source = (v if v.array.ndim else reshape(v, 1) for v in (input, source))
        along = expand(reshape(index, [-1 if i == d else 1 for i in range(x.array.ndim)]), source.array.shape)
        return reshape(scatter(x, d, along, source), input.array.shape)
    if not input.array.ndim:
        return reshape(_index_put(reshape(input, 1), reshape(source, -1), (index.array.reshape(-1),), False), ())
    return _index_copy(input, source if source.array.ndim else reshape(source, 1), _select_index(index.array.reshape(-1), d))


@public()
def take_along_dim(input, indices, dim=None):
    """gather with broadcasting (over the flat tensor if dim is None). Differentiable in input."""
    if dim is None:
        return gather(flatten(input), 0, flatten(indices))
    if input.array.ndim != indices.array.ndim:
        raise RuntimeError("torch.take_along_dim(): input and indices should have the same number of dimensions, but got "
                           f"{input.array.ndim} dimensions for input, and {indices.array.ndim} dimensions for indices")  # fmt: skip
    if indices.dtype is not dtypes.int64:
        raise RuntimeError(
            f"torch.take_along_dim(): dtype of indices should be Long but got {dtypes.scalar_type_name(indices.dtype)}"
        )
    d = dimension(dim, input.array.ndim)
    if not input.array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    check_broadcast(_one_at(input.array.shape, d), _one_at(indices.array.shape, d))
    shape = np.broadcast_shapes(_one_at(input.array.shape, d), _one_at(indices.array.shape, d))
    full = [*shape]
    full[d] = input.array.shape[d]
    picks = [*shape]
    picks[d] = indices.array.shape[d]
    return gather(expand(input, full), d, _from_start(expand(indices, picks), full[d]))


_from_start = op("from_start", lambda index, size: np.remainder(index, size), None, promote="keep", batch="elementwise")


def _one_at(shape, d):
    return tuple(1 if i == d else n for i, n in enumerate(shape))


_masked_select = op("masked_select", lambda x, place: x[place],
    lambda g, input_shape, _out, place: _unindex(g, input_shape, place))  # fmt: skip


@public()
def masked_select(input, mask, *, out=None):
    """The elements where the mask holds, as a vector. Differentiable in input."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    if isinstance(mask, batching.Batched):
        raise RuntimeError(
            "vmap: Attempted to vmap over `mask` in torch.masked_select(self, mask) We cannot support this because for each batch this "
            "would return a differently shaped Tensor. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this "
            "feature."
        )
    check_broadcast(mask.array.shape, input.array.shape)
    shape = np.broadcast_shapes(input.array.shape, mask.array.shape) or (1,)
    result = _masked_select(expand(input, shape), np.nonzero(np.broadcast_to(mask.array, shape)))
    return result if out is None else write_out(out, result, exact=True)


_masked_scatter = op("masked_scatter", lambda x, source, place: _index_put_arrays(x, source, place, False),
    lambda g, _input, _source, _out, place: _index_put(g, zero_of(g), place, False),
    lambda g, _input, _source, _out, place: _index(g, place), batch=batching.index_put_rule)  # fmt: skip


@public(inplace=True)
def masked_scatter(input, mask, source):
    """A copy of input whose elements where the mask holds come from source, in order. Differentiable in both."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {dtypes.scalar_type_name(mask.dtype)}"
        )
    if input.dtype is not source.dtype:
        raise RuntimeError(f"masked_scatter: expected self and source to have same dtypes but got "
                           f"{dtypes.scalar_type_name(input.dtype)} and {dtypes.scalar_type_name(source.dtype)}")  # fmt: skip
    check_broadcast(input.array.shape, mask.array.shape)
    shape = np.broadcast_shapes(input.array.shape, mask.array.shape)
    if isinstance(mask, batching.Batched):
        return _masked_scatter_samples(expand(input, shape), expand(mask, shape), source)
    index = np.nonzero(np.atleast_1d(np.broadcast_to(mask.array, shape)))
    if index[0].size > source.array.size:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    whole = expand(input, shape or (1,))
    result = _masked_scatter(whole, narrow(flatten(source), 0, 0, index[0].size), index)
    return result if shape else reshape(result, shape)


def _masked_scatter_samples(input, mask, source):
    """masked_scatter under vmap, where the number of ones differs from sample to sample."""
    place = mask.flatten().cumsum(0)
    if batching.all_values(place).max(initial=0) > source.array.size:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    if not source.array.size:
        return input.clone()
    picked = gather(flatten(source), 0, (place - 1).clamp(0))
    return reshape(picked, input.array.shape).where(mask, input)


@public()
def nonzero(input, *, out=None, as_tuple=False):
    """The indices of the elements that aren't zero: (count, ndim), or a tuple of vectors."""
    if as_tuple:
        batching.refuse_fallback("nonzero_numpy", input)
        array = input.array if input.array.ndim else input.array.reshape(1)
        return tuple(Tensor._from(i) for i in np.nonzero(array))
    batching.refuse_samples("nonzero", input)
    found = np.nonzero(input.array) if input.array.ndim else ()
    count = found[0].size if found else int(bool(input.array))
    result = Tensor._from(np.ascontiguousarray(np.stack(found, 1)) if found else np.zeros((count, 0), np.int64))
    return result if out is None else write_out(out, result, exact=True)


@public()
def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    """Repeats each element (or slice of `dim`) `repeats` times in place. Differentiable in input."""
    del output_size
    if isinstance(repeats, batching.Batched):
        return batching.in_loop(repeat_interleave)(input, repeats, dim)
    if dim is None:
        input, dim = flatten(input) if input.array.ndim != 1 else input, 0
    counts = repeats.array if isinstance(repeats, Tensor) else np.asarray(repeats)
    if counts.ndim > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    if not input.array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    d = dimension(dim, input.array.ndim)
    if counts.ndim and counts.size not in (1, input.array.shape[d]):
        raise RuntimeError(f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts.size} and "
                           f"input.size({d}) = {input.array.shape[d]}")  # fmt: skip
    if isinstance(repeats, Tensor) and repeats.dtype not in (dtypes.int64, dtypes.int32):
        raise not_implemented("repeat_interleave_cpu", repeats)
    if counts.size and counts.min() < 0:
        raise RuntimeError("repeats can not be negative" if isinstance(repeats, Tensor) else "Repeats must be non-negative")
    index = np.repeat(np.arange(input.array.shape[d]), counts)
    return _index_select(input, Tensor._from(index), d)


def _unfold_arrays(x, dim, size, step):
    return sliding_window_view(x, size, dim, writeable=True)[(slice(None),) * dim + (slice(None, None, step),)]


def _refold_arrays(g, shape, dim, size, step):
    out = np.zeros(shape, g.dtype)
    for k in range(size):
        out[(slice(None),) * dim + (slice(k, k + step * (g.shape[dim] - 1) + 1, step),)] += g[..., k]
    return out


_unfold = op("unfold", _unfold_arrays, lambda g, input_shape, _out, dim, size, step: _refold(g, input_shape, dim, size, step),
             view=True, batch="leading")  # fmt: skip
_refold = op(
    "unfold_backward",
    _refold_arrays,
    lambda g, _input, _out, _shape, dim, size, step: _unfold(g, dim, size, step),
    batch="leading",
)


@public()
def unfold(input, dimension_, size, step):
    """Windows of `size` elements along a dimension, every `step`; the window is the last dimension. A view. Differentiable."""
    d = dimension(dimension_, input.array.ndim)
    if not input.array.ndim:
        return narrow(reshape(input, 1), 0, 0, size)
    n = input.array.shape[d]
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {n} but size is {size}")
    return _unfold(input, d, size, step)


def _searchsorted_arrays(edges, values, side, array_type):
    found = np.empty(values.shape, array_type)
    for row in np.ndindex(edges.shape[:-1]):
        found[row] = np.searchsorted(edges[row], values[row], side)
    return found


_searchsorted = op("searchsorted", _searchsorted_arrays, None, None, promote="keep", batch="leading")


@public(method=False)
def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None, out=None):
    """Where each value would be inserted into a sorted sequence: int64, no gradient.

    sorter: the indices that sort the sequence, if it isn't sorted.
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if right and side == "left":
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    side = "right" if right or side == "right" else "left"
    input = input if isinstance(input, Tensor) else Tensor._from(np.asarray(input))
    if sorter is not None:
        sorted_sequence = gather(sorted_sequence.detach(), -1, sorter)
    edges, values = sorted_sequence.array.shape, input.array.shape
    if len(edges) > 1 and edges[:-1] != values[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
            f"and input value tensor must match, but we got boundaries tensor {list(edges)} and input value tensor {list(values)}"
        )
    result = _searchsorted(sorted_sequence, input, side, np.int32 if out_int32 else np.int64)
    return result if out is None else write_out(out, result, exact=True)


@public()
def bucketize(input, boundaries, *, out_int32=False, right=False, out=None):
    """The number of the interval between sorted boundaries that each element falls into: int64, no gradient."""
    if boundaries.array.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.array.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


@public()
@batching.in_loop
def bincount(input, weights=None, minlength=0):
    """How often each small non-negative integer occurs (or the sum of its weights)."""
    if input.array.dtype.kind in "fVc":
        raise not_implemented("bincount_cpu", input)
    if input.array.ndim != 1 or (input.array.size and input.array.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None:
        counts = np.bincount(input.array, weights.array, minlength)
        return Tensor._from(counts.astype(weights.array.dtype if weights.array.dtype.kind == "f" else np.float64))
    return Tensor._from(np.bincount(input.array, None, minlength).astype(np.int64))


@public()
def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct elements (or slices of `dim`), sorted; with their inverse indices and counts if asked for."""
    del sorted
    batching.refuse_samples("_unique2" if dim is None else "unique_dim", input)
    parts = (_unique2 if dim is None else _unique_dim)(input, return_inverse, return_counts, dim)
    return parts if len(parts) > 1 else parts[0]


def _unique_arrays(x, return_inverse, return_counts, dim):
    found = np.unique(x, False, return_inverse, return_counts, dim, equal_nan=False)
    parts = [np.asarray(f) for f in (found if isinstance(found, tuple) else (found,))]
    if return_inverse and dim is None:
        parts[1] = parts[1].reshape(x.shape)
    return tuple(parts)


# The values require grad where the input does, and backward says that there is no derivative.
_unique2 = op("unique2", _unique_arrays, lambda _g, _input, _out, _inverse, _counts, _dim: no_derivative("_unique2"),
    nondifferentiable=(1, 2), promote="keep")  # fmt: skip
_unique_dim = op("unique_dim", _unique_arrays, lambda _g, _input, _out, _inverse, _counts, _dim: no_derivative("unique_dim"),
    nondifferentiable=(1, 2), promote="keep")  # fmt: skip


def _unique_consecutive_arrays(x, dim):
    """(what differs from its predecessor, the number of the run that each element belongs to, the runs' lengths)."""
    moved = x.reshape(-1) if dim is None else np.moveaxis(x, dim, 0)
    rows = moved.reshape(len(moved), moved[:1].size)
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:] != rows[:-1]).any(1)
    starts = np.flatnonzero(fresh)
    inverse = np.cumsum(fresh) - 1
    values = moved[starts] if dim is None else np.moveaxis(moved[starts], 0, dim)
    counts = np.diff(np.append(starts, len(rows)))
    return values, inverse.reshape(x.shape) if dim is None else inverse, counts


_unique_consecutive = op("unique_consecutive", _unique_consecutive_arrays,
    lambda _g, _input, _out, _dim: no_derivative("unique_consecutive"), nondifferentiable=(1, 2), promote="keep")  # fmt: skip


def no_derivative(name):
    """Raises what PyTorch raises where a derivative could be, but nobody wrote it."""
    raise NotImplementedError(f"the derivative for '{name}' is not implemented.")


def not_differentiable(name):
    """Raises what PyTorch raises where a derivative is missing."""
    raise RuntimeError(f"derivative for aten::{name} is not implemented")


@public()
def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements (or slices of `dim`) without repetitions of their predecessor; with inverse indices and counts if asked for.

    >>> import backlight as torch
    >>> torch.unique_consecutive(torch.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    batching.refuse_samples("unique_consecutive", input)
    found = _unique_consecutive(input, None if dim is None else dimension(dim, input.array.ndim))
    parts = [x for x, wanted in zip(found, (True, return_inverse, return_counts)) if wanted]
    return tuple(parts) if len(parts) > 1 else parts[0]


@public(method=False)
def unravel_index(indices, shape):
    """The coordinates of indices into a flat tensor of the given shape: a tuple of tensors, one for each dimension."""
    if not isinstance(indices, Tensor):
        raise AttributeError(f"'{type(indices).__name__}' object has no attribute 'is_complex'")
    if indices.dtype.category != 1:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if not isinstance(shape, (int, tuple, list)) or (
        not isinstance(shape, int) and builtins.any(not isinstance(n, int) for n in shape)
    ):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if builtins.any(n < 0 for n in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {shape}")
    found, rest = [], indices
    for n in reversed(shape):
        found.append(rest % n)
        rest = rest // n
    return tuple(reversed(found))


@public()
@batching.in_loop
def argwhere(input):
    """The indices of the elements that aren't zero: (count, ndim) int64."""
    return nonzero(input)


@public()
@batching.in_loop
def nonzero_static(input, *, size, fill_value=-1):
    """nonzero with a fixed number of rows: cut off, or filled up with fill_value. -> (size, ndim) int64."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, but got {size}")
    found = nonzero(input).array[:size]
    out = np.full((size, input.array.ndim), fill_value, np.int64)
    out[: len(found)] = found
    return Tensor._from(out)


@public(method=False, module="nn.functional")
def one_hot(tensor, num_classes=-1):
    """Rows of zeros with a one at each index. (*S) int64 -> (*S, num_classes) int64."""
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    index = batching.all_values(tensor)
    if index.size and index.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        if isinstance(tensor, batching.Batched):
            raise RuntimeError(
                "When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes argument."
            )
        if not index.size:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(index.max()) + 1
    if index.size and index.max() >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return _one_hot(tensor, num_classes)


def _one_hot_arrays(index, num_classes):
    out = np.zeros((*index.shape, num_classes), np.int64)
    np.put_along_axis(out, index[..., None], 1, -1)
    return out


_one_hot = op("one_hot", _one_hot_arrays, None, promote="keep", batch="leading")
