"""Reductions: sum, mean, var, prod, max, argmax, any, norms, softmax, logsumexp."""

from __future__ import annotations

import builtins
import functools

import numpy as np

from .. import batching, dtypes, kernels
from ..kernels import FUSED, ONE_PASS
from ..op import OPS, face, op, public, twin, write_out
from ..return_types import return_type
from ..tensor import Tensor, dimension
from .cast import to
from .check import invalid_combination, not_implemented, not_tensor
from .choose import masked_fill, maximum, minimum, where_zero
from .logic import isnan
from .pointwise import exp
from .shape import broadcast, expand, reshape, unsqueeze

ALL_DIMS = tuple([tuple(range(n)) for n in range(65)])  # by the number of dimensions, of which NumPy has up to 64


def dims_of(dim, ndim, *, empty_is_all=True):
    """A `dim` argument (None, int or tuple) as a sorted tuple of dimensions counted from the front."""
    if type(dim) is int and -ndim <= dim < ndim:
        return (dim % ndim,)
    if dim is None or (empty_is_all and isinstance(dim, (tuple, list)) and not len(dim)):
        return ALL_DIMS[ndim]
    if isinstance(dim, str):
        raise invalid_combination("reduction", dim)
    if isinstance(dim, (tuple, list)):
        dims = [dimension(d, ndim) for d in dim]
        if len(set(dims)) != len(dims):
            again = next(d for d in dims if dims.count(d) > 1)
            raise RuntimeError(f"dim {again} appears multiple times in the list of dims")
        return tuple(sorted(dims)) if ndim else ()
    d = dimension(dim, ndim)
    return (d,) if ndim else ()


def _kept(shape, dims):
    return tuple([1 if i in dims else n for i, n in enumerate(shape)])


@twin(lambda g, shape, dims: broadcast(g.reshape(_kept(shape, dims)) if g.ndim else g, shape))
def spread(g, shape, dims):
    """Expands the gradient of a reduction over `dims` to the input's shape."""
    return expand(reshape(g, _kept(shape, dims)) if g.array.ndim else g, shape)


@twin(lambda x, shape, dims: x.reshape(_kept(shape, dims)))
def keep_dims(x, shape, dims):
    """The reduced tensor with its reduced dimensions put back as ones."""
    return reshape(x, _kept(shape, dims))


def _sum_arrays(x, dims, keepdim):
    if (
        x.size >= ONE_PASS
        and x.dtype.char in "fd"
        and len(dims) < x.ndim
        and dims[-1:] == (x.ndim - 1,) == (dims[0] + len(dims) - 1,)
        and x.flags.c_contiguous
    ):
        return kernels.rows.row_sums(x, _count(x.shape, dims)).reshape(_kept(x.shape, dims) if keepdim else x.shape[: dims[0]])
    return np.add.reduce(x, dims, x.dtype, None, keepdim)


def _count(shape, dims):
    total = 1
    for d in dims:
        total *= shape[d]
    return total


def kept_sums(x, dims):
    """The sums over `dims`, which are kept. Many short rows are added by BLAS, in a fifth of NumPy's time."""
    many = dims == (x.ndim - 1,) and MANY * x.shape[-1] <= x.size <= SMALL
    if many and x.dtype.char in "fd" and x.flags.c_contiguous:
        ones = _ones(x.shape[-1], x.dtype.char)
        return x.dot(ones) if x.ndim == 2 else x.reshape(-1, len(ones)).dot(ones).reshape((*x.shape[:-1], 1))
    return np.add.reduce(x, dims, keepdims=True)


MANY = 16  # rows, from which on NumPy's loop over them takes longer than the additions
SMALL = 1 << 13  # elements, up to which rows are so short that BLAS's sums are as accurate as NumPy's


@functools.lru_cache(maxsize=64)
def _ones(n, array_type):
    return np.ones((n, 1), array_type)


def _total(x, dims, keepdim):
    """The sum of all elements; short float arrays are added in PyTorch's order, so that losses print the same digits."""
    size, lanes = x.size, 32 // x.itemsize
    if 4 < size < 4 * lanes and x.dtype.kind == "f" and lanes < 16 and x.flags.c_contiguous:
        flat = x.reshape(-1)
        full = size - size % lanes
        if full:  # the rest first, then one lane of the vector registers after the other
            parts = flat[:lanes]
            for i in range(lanes, full, lanes):
                parts = parts + flat[i : i + lanes]
        else:  # four accumulators, the first of which takes the rest
            parts = np.concatenate([flat[:1], flat[4:], flat[1:4]])
        if full and full < size:
            total = np.add.reduce(flat[full:])
            for part in parts.tolist():
                total = total + part
        else:
            total = np.add.accumulate(parts)[-1] + 0  # -0.0 as 0.0
        return total.reshape((1,) * x.ndim) if keepdim else total
    if x.size >= ONE_PASS and kernels.compute(ONE_PASS, x) and (x.flags.c_contiguous or x.flags.f_contiguous):
        total = kernels.rows.total(x)
        return total.reshape((1,) * x.ndim) if keepdim else total
    return np.add.reduce(x, dims, x.dtype, None, keepdim)


_sum_all = op("sum_all", _total, lambda g, input_shape, _out, dims, _keepdim: spread(g, input_shape, dims),
              node="SumBackward0", batch=batching.over_all("sum_dims"))  # fmt: skip
_sum_dims = op("sum_dims", _sum_arrays, lambda g, input_shape, _out, dims, _keepdim: spread(g, input_shape, dims),
               node="SumBackward1", batch="leading")  # fmt: skip


def _mean_arrays(x, dims, keepdim):
    return _sum_arrays(x, dims, keepdim) / x.real.dtype.type(_count(x.shape, dims))


_mean_all = op("mean_all", lambda x, dims, keepdim: _total(x, dims, keepdim) / x.real.dtype.type(x.size),
    lambda g, input_shape, _out, dims, _keepdim: spread(g / _count(input_shape, dims), input_shape, dims),
    node="MeanBackward0", batch=batching.over_all("mean_dims"))  # fmt: skip
_mean_dims = op("mean_dims", _mean_arrays,
    lambda g, input_shape, _out, dims, _keepdim: spread(g / _count(input_shape, dims), input_shape, dims),
    node="MeanBackward1", batch="leading")  # fmt: skip


@public()
def sum(input, dim=None, keepdim=False, *, dtype=None, out=None):
    """The sum over `dim` (all dimensions if None). (*S) -> S without those dims. Integers sum as int64. Differentiable.

    >>> import backlight as torch
    >>> torch.ones(2, 3).sum(1)
    tensor([3., 3.])
    """
    try:
        kind = input.array.dtype.kind
    except AttributeError:
        raise not_tensor("sum", input=input) from None
    if kind == "f" and dim is dtype is out is None:
        return _sum_all(input, ALL_DIMS[input.array.ndim], keepdim)
    if dtype is None and out is not None:
        dtype = out.dtype
    elif dtype is None and kind in "biu" and input.array.dtype.itemsize < 8:
        dtype = dtypes.int64
    if dtype is not None:
        input = to(input, dtype)
    if dim is None:
        result = _sum_all(input, ALL_DIMS[input.array.ndim], keepdim)
    else:
        result = _sum_dims(input, dims_of(dim, input.array.ndim), keepdim)
    return result if out is None else write_out(out, result, exact=True)


@public()
def mean(input, dim=None, keepdim=False, *, dtype=None, out=None):
    """The mean over `dim` (all dimensions if None). RuntimeError for integers. Differentiable."""
    if dtype is not None:
        input = to(input, dtype)
    if input.array.dtype.kind in "biu":
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
            f"{dtypes.scalar_type_name(input.dtype)}"
        )
    if dim is None:
        result = _mean_all(input, ALL_DIMS[input.array.ndim], keepdim)
    else:
        result = _mean_dims(input, dims_of(dim, input.array.ndim), keepdim)
    return result if out is None else write_out(out, result)


sum.arrays = lambda x, dim=None, keepdim=False: np.add.reduce(x, dim, keepdims=keepdim)
mean.arrays = lambda x, dim=None, keepdim=False: np.mean(x, dim, keepdims=keepdim)


_nansum = op("nansum", lambda x, dims, keepdim: _sum_arrays(where_zero.arrays(np.isnan(x), x), dims, keepdim),
    lambda g, input, _out, dims, _keepdim: where_zero(is_nan(input), spread(g, input.shape, dims)),
    batch=batching.some_dims)  # fmt: skip


@twin(np.isnan)
def is_nan(x):
    """Where x is NaN."""
    return isnan(x)


@public()
def nansum(input, dim=None, keepdim=False, *, dtype=None, out=None):
    """The sum in which NaN counts as zero. Differentiable."""
    if input.dtype.category < 2 and (dtype is None or dtype.category < 2):
        return sum(input, dim, keepdim, dtype=dtype, out=out)
    if input.dtype.is_complex:
        raise RuntimeError("nansum does not support complex inputs")
    result = _nansum(input if dtype is None else to(input, dtype), dims_of(dim, input.array.ndim), keepdim)
    return result if out is None else write_out(out, result)


@public()
def nanmean(input, dim=None, keepdim=False, *, dtype=None, out=None):
    """The mean of the elements that aren't NaN. Differentiable."""
    total = nansum(input, dim, keepdim, dtype=dtype)
    result = total / to(sum(~isnan(input), dim, keepdim), total.dtype)
    return result if out is None else write_out(out, result)


# Variance


def _var_arrays(x, dims, correction, keepdim):
    centred = x - _mean_arrays(x, dims, True)
    squares = centred.real**2 + centred.imag**2 if x.dtype.kind == "c" else centred * centred
    left = builtins.max(_count(x.shape, dims) - correction, 0)
    return np.true_divide(_sum_arrays(squares, dims, keepdim), squares.dtype.type(left))


_var = op("var", _var_arrays,
    lambda g, input, _out, dims, correction, _keepdim:
        spread(g * 2, input.shape, dims) * (input - mean(input, dims, True)) / left_over(input.shape, dims, correction),
    holomorphic=False, batch=batching.some_dims)  # fmt: skip
_std = op("std", lambda x, dims, correction, keepdim: np.sqrt(_var_arrays(x, dims, correction, keepdim)),
    lambda g, input, out, dims, correction, _keepdim:
        spread(where_zero(out == 0, g / out), input.shape, dims) * (input - mean(input, dims, True))
        / left_over(input.shape, dims, correction),
    holomorphic=False, batch=batching.some_dims)  # fmt: skip


def left_over(shape, dims, correction):
    """Degrees of freedom; zero or less gives infinity through the division."""
    left = _count(shape, dims) - correction
    return left if left > 0 else float("nan")


def _moments(primitive, name):
    def function(input, dim=None, unbiased=None, keepdim=False, *, correction=None, out=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if input.array.dtype.kind in "biu":
            raise RuntimeError("std and var only support floating point and complex dtypes")
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        result = primitive(input, dims_of(dim, input.array.ndim), correction, keepdim)
        return result if out is None else write_out(out, result)

    function.__doc__ = f"The {name} over `dim` (all if None), with Bessel's correction unless correction=0. Differentiable."
    return face(function, name=name)


var = _moments(_var, "var")
std = _moments(_std, "std")


def _moments_pair(name, moment, arrays):
    """var_mean and std_mean: two outputs of one node."""
    primitive = op(f"{name}_mean", lambda x, dims, correction, keepdim: (
            arrays(x, dims, correction, keepdim), _mean_arrays(x, dims, keepdim)),
        lambda g, input, _out, dims, correction, _keepdim: moments_gradient(g, input, dims, correction, name == "std"),
        outputs=2, holomorphic=False, batch=batching.some_dims)  # fmt: skip

    def function(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        if input.array.dtype.kind in "biu":
            raise RuntimeError(f"{name}_mean only support floating point and complex dtypes")
        if correction is None:
            correction = 1 if unbiased is None or unbiased else 0
        return primitive(input, dims_of(dim, input.array.ndim), correction, keepdim)

    function.__doc__ = f"({moment}, mean) over `dim` (all if None). Differentiable."
    return face(function, name=f"{name}_mean", method=False)


def moments_gradient(g, x, dims, correction, root):
    """The gradient of a variance or standard deviation and of the mean beside it."""
    total = None
    if g[0] is not None:
        slope = spread(g[0], x.shape, dims)
        if root:
            deviation = _std(x, dims, correction, True)
            slope = where_zero(deviation == 0, slope / deviation)
        else:
            slope = slope * 2
        total = slope * (x - mean(x, dims, True)) / left_over(x.shape, dims, correction)
    if g[1] is not None:
        part = spread(g[1] / _count(x.shape, dims), x.shape, dims)
        total = part if total is None else total + part
    return total


var_mean = _moments_pair("var", "variance", _var_arrays)
std_mean = _moments_pair("std", "standard deviation",
    lambda x, dims, correction, keepdim: np.sqrt(_var_arrays(x, dims, correction, keepdim)))  # fmt: skip


# Products


def _others_arrays(x, dim):
    """For every element the product of the others along `dim` (no division, so zeros are fine)."""
    before = np.ones_like(x)
    after = np.ones_like(x)
    head = [slice(None)] * x.ndim
    tail = list(head)
    head[dim], tail[dim] = slice(None, -1), slice(1, None)
    before[tuple(tail)] = np.cumprod(x[tuple(head)], dim)
    after[tuple(head)] = np.flip(np.cumprod(np.flip(x[tuple(tail)], dim), dim), dim)
    return before * after


@twin(_others_arrays)
def _others(x, dim):
    n = x.array.shape[dim]
    moved = x.movedim(dim, -1).unsqueeze(-2).expand(*[*_without(x.array.shape, dim), n, n])
    return masked_fill(moved, Tensor._from(np.eye(n, dtype=bool)), 1).prod(-1).movedim(-1, dim)


def _without(shape, dim):
    return [n for i, n in enumerate(shape) if i != dim]


_prod = op("prod_dim", lambda x, dim, keepdim: np.multiply.reduce(x, dim, x.dtype, keepdims=keepdim),
    lambda g, input, out, dim, _keepdim: spread(g, input.shape, (dim,)) * factors_along(input, out, dim),
    node="ProdBackward1", batch="leading")  # fmt: skip
_prod_all = op("prod", lambda x: np.multiply.reduce(x, None, x.dtype),
    lambda g, input, out: prod_gradient(g, input, out), node="ProdBackward0", batch=batching.prod_rule)  # fmt: skip


def _factors_along_arrays(x, product, dim):
    if np.all(x != 0):
        return np.reshape(product, _kept(x.shape, (dim,))) / x
    return _others_arrays(x, dim)


@twin(_factors_along_arrays)
def factors_along(x, _product, dim):
    """For each element the product of the others along `dim`."""
    return _others(x, dim)


def _prod_gradient_arrays(g, x, product):
    if np.all(x != 0):
        return g * product / x
    others = _others_arrays(x.reshape(-1), 0).reshape(x.shape)
    return where_zero.arrays(others == 0, g * others)  # zero also if g is NaN, as in PyTorch


@twin(_prod_gradient_arrays)
def prod_gradient(g, x, _product):
    """For each element the product of all others, times g."""
    return g * reshape(_others(reshape(x, (-1,)), 0), x.shape)


@public()
def prod(input, dim=None, keepdim=False, *, dtype=None, out=None):
    """The product over `dim` (all elements if None). Differentiable, also through zeros."""
    if dtype is None and out is not None:
        dtype = out.dtype
    elif dtype is None and input.array.dtype.kind in "biu":
        dtype = dtypes.int64
    if dtype is not None:
        input = to(input, dtype)
    if dim is None:
        result = _prod_all(input)
    elif not input.array.ndim:
        dimension(dim, 0)
        result = _prod_all(input)
    else:
        result = _prod(input, dimension(dim, input.array.ndim), keepdim)
    return result if out is None else write_out(out, result, exact=True)


# Extremes


_PAIRS = ("max", "min", "sort", "topk", "median", "nanmedian", "mode", "kthvalue", "cummax", "cummin")
Pair = {name: return_type(name, "values", "indices") for name in _PAIRS}
AMINMAX = return_type("aminmax", "min", "max")


def _take(x, indices, dim):
    return np.take_along_axis(x, indices, dim)


@twin(lambda g, shape, indices, dim: _put_arrays(g, shape, indices, dim))
def _put(g, shape, indices, dim):
    """Zeros of the shape, with g at the indices of `dim`."""
    return _put_op(g, Tensor._from(indices) if isinstance(indices, np.ndarray) else indices, shape, dim)


def _put_arrays(g, shape, indices, dim):
    out = np.zeros(shape, g.dtype)
    if out.size:
        np.put_along_axis(out, indices, g, dim)
    return out


_put_op = op("put_along", lambda g, indices, shape, dim: _put_arrays(g, shape, indices, dim),
    lambda g, _input, indices, _out, _shape, dim: pick(g, indices, dim), None, promote="keep", batch="leading")  # fmt: skip


@twin(np.take_along_axis)
def pick(g, indices, dim):
    """The elements of g at the indices of `dim`."""
    return g.gather(dim, indices)


def _extreme_arrays(ufunc, arg):
    def arrays(x, dim, keepdim):  # NaN wins in both, and of equal elements the first
        return ufunc.reduce(x, dim, None, None, keepdim), arg(x, dim, None, keepdims=keepdim)

    return arrays


@twin(lambda g, input_shape, out, dim, keepdim: _put_arrays(
    g if keepdim else np.expand_dims(g, dim), input_shape, out[1] if keepdim else np.expand_dims(out[1], dim), dim))  # fmt: skip
def picked(g, input_shape, out, dim, keepdim):
    """The gradient of values picked along `dim` by out's indices."""
    indices = out[1].detach()
    return _put(g if keepdim else unsqueeze(g, dim), input_shape, indices if keepdim else unsqueeze(indices, dim), dim)


def _extreme(name, ufunc, arg):
    return op(f"{name}_dim", _extreme_arrays(ufunc, arg),
        lambda g, input_shape, out, dim, keepdim: picked(g, input_shape, out, dim, keepdim),
        nondifferentiable=(1,), promote="keep", node=f"{name.capitalize()}Backward0", batch="leading")  # fmt: skip


_max_dim = _extreme("max", np.maximum, np.ndarray.argmax)
_min_dim = _extreme("min", np.minimum, np.ndarray.argmin)


def _ties_arrays(x, out, dims):
    mask = x == np.reshape(out, _kept(x.shape, dims))
    if x.dtype.kind == "f":
        mask = mask | (np.isnan(x) & np.isnan(np.reshape(out, _kept(x.shape, dims))))
    return mask


@twin(_ties_arrays)
def ties(x, out, dims):
    """Where an extreme over `dims` is attained."""
    mask = x == keep_dims(out, x.shape, dims)
    if x.dtype.is_floating_point and bool(np.isnan(batching.all_values(out)).any()):
        mask = mask | x.isnan()
    return mask


def _share_arrays(g, x, out, dims):
    mask = _ties_arrays(x, out, dims)
    return mask * (np.reshape(g, _kept(x.shape, dims)) / np.add.reduce(mask, dims, keepdims=True).astype(x.dtype))


@twin(_share_arrays)
def share(g, x, out, dims):
    """The gradient of an extreme, shared evenly among the elements that attain it."""
    mask = ties(x, out, dims).to(x.dtype)
    return mask * (spread(g, x.shape, dims) / sum(mask, dims, True))


def _evenly_arrays(g, x, out, dims):
    mask = _ties_arrays(x, out, dims)
    part = np.reshape(g, _kept(x.shape, dims)) / np.add.reduce(mask, dims, keepdims=True).astype(x.dtype)
    return where_zero.arrays(~mask, part)


@twin(_evenly_arrays)
def evenly(g, x, out, dims):
    """As `share`, but zero elsewhere even if the gradient is NaN or infinite."""
    mask = ties(x, out, dims)
    return where_zero(~mask, spread(g, x.shape, dims) / sum(mask.to(x.dtype), dims, True))


def _amax_op(name, ufunc, node, batch="leading"):
    return op(name, lambda x, dims, keepdim: ufunc.reduce(x, dims, None, None, keepdim),
        lambda g, input, out, dims, _keepdim: share(g, input, out, dims), node=node, batch=batch)  # fmt: skip


_max_all = _amax_op("max_all", np.maximum, "MaxBackward1", batching.over_all("amax"))
_min_all = _amax_op("min_all", np.minimum, "MinBackward1", batching.over_all("amin"))
_amax, _amin = _amax_op("amax", np.maximum, "AmaxBackward0"), _amax_op("amin", np.minimum, "AminBackward0")


def _extreme_face(name, by_dim, over_all, elementwise):
    def function(input, dim=None, keepdim=False, *, other=None, out=None):
        if not isinstance(input, Tensor):
            raise invalid_combination(name, *(v for v in (input, dim) if v is not None))
        if isinstance(dim, Tensor) or other is not None:
            return elementwise(input, dim if other is None else other, out=out)
        if input.array.dtype.kind == "c":
            raise not_implemented(f"{name}_all" if dim is None else f"{name}_values_cpu", input)
        if dim is None:
            if not input.array.size:
                raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                                   "reduction dim with the 'dim' argument.")  # fmt: skip
            result = over_all(input, ALL_DIMS[input.array.ndim], False)
            return result if out is None else write_out(out, result)
        d = dimension(dim, input.array.ndim)
        if input.array.ndim and not input.array.shape[d]:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")
        if not input.array.ndim:
            values, indices = _scalar_pick(input, f"{name}_dim")
        else:
            values, indices = by_dim(input, d, keepdim)
        if out is not None:
            values, indices = write_out(out, (values, indices), exact=True)
        return Pair[name](values, indices)

    function.__doc__ = (
        f"{name}(input): the {name}imum of all elements. {name}(input, dim): (values, indices) along a dimension. "
        f"{name}(input, other): elementwise. Differentiable."
    )
    return face(function, name=name)


def _scalar_pick(input, name):
    """What an operation that picks along a dimension makes of a number: itself and index 0."""
    made = _number_picks.get(name)
    if made is None:
        made = _number_picks[name] = op(f"{name}_of_number", lambda x: (x.copy(), np.zeros(x.shape, np.int64)), lambda g, _input, _out: g,
                                        nondifferentiable=(1,), promote="keep", node=OPS[name].node_name,
                                        batch=batching.elementwise_rule)  # fmt: skip
    return made(input)


_number_picks: dict = {}


max = _extreme_face("max", _max_dim, _max_all, maximum)
min = _extreme_face("min", _min_dim, _min_all, minimum)


def _amax_face(name, primitive):
    def function(input, dim=(), keepdim=False, *, out=None):
        dims = dims_of(dim, input.array.ndim)
        if not input.array.size and dim == ():
            raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                               "dim with the 'dim' argument.")  # fmt: skip
        for d in dims:
            if not input.array.shape[d]:
                raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")
        result = primitive(input, dims, keepdim)
        return result if out is None else write_out(out, result, exact=True)

    function.__doc__ = f"The {name[1:]}imum over dims; ties share the gradient evenly. Differentiable."
    return face(function, name=name)


amax, amin = _amax_face("amax", _amax), _amax_face("amin", _amin)


_aminmax = op("aminmax", lambda x, dims, keepdim: (
        np.minimum.reduce(x, dims, keepdims=keepdim), np.maximum.reduce(x, dims, keepdims=keepdim)),
    lambda g, input, out, dims, _keepdim: _aminmax_gradient(g, input, out, dims), outputs=2,
    batch=batching.some_dims)  # fmt: skip


def _aminmax_gradient(g, x, out, dims):
    parts = [evenly(h, x, o, dims) for h, o in zip(g, out) if h is not None]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@public()
def aminmax(input, *, dim=None, keepdim=False):
    """(min, max) over `dim` (all elements if None). Ties share the gradient evenly. Differentiable."""
    if dim is None and not input.array.size:
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    dims = dims_of(dim, input.array.ndim)
    for d in dims:
        if not input.array.shape[d]:
            raise IndexError(f"aminmax(): Expected reduction dim {d} to have non-zero size.")
    if input.dtype.is_complex:
        raise not_implemented("aminmax", input)
    return AMINMAX(*_aminmax(input, dims, keepdim))


def _arg_face(name, arg):
    def arrays(x, dim, keepdim):
        return arg(x, dim, None, keepdims=keepdim)

    primitive = op(name, arrays, None, promote="keep", batch="leading")

    def function(input, dim=None, keepdim=False, *, out=None):
        x = input.array
        if x.dtype.kind in "bc":
            raise RuntimeError(f"{name}(): does not support {'bool' if x.dtype.kind == 'b' else 'complex'} input")
        if not x.size and (dim is None or (x.ndim and not x.shape[dimension(dim, x.ndim)])):
            raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                             "reduction dim with the 'dim' argument." if dim is None
                             else f"{name}(): Expected reduction dim {dim} to have non-zero size.")  # fmt: skip
        d = dimension(dim or 0, x.ndim)
        if dim is None and x.ndim > 1:
            result = primitive(reshape(input, -1), -1, False)
            result = reshape(result, (1,) * x.ndim) if keepdim else result
        else:
            result = primitive(input, d - x.ndim, keepdim) if x.ndim else reshape(primitive(reshape(input, 1), -1, False), ())
        return result if out is None else write_out(out, result, exact=True)

    function.__doc__ = f"The index of the first {name[3:]}imum along `dim` (of the flat tensor if None): int64, no gradient."
    return face(function, name=name)


argmax, argmin = _arg_face("argmax", np.ndarray.argmax), _arg_face("argmin", np.ndarray.argmin)


def _logic_face(name, ufunc):
    def arrays(x, dims, keepdim):
        result = np.asarray(ufunc.reduce(x != 0, dims, keepdims=keepdim))
        return result.astype(np.uint8) if x.dtype == np.uint8 else result

    primitive = op(name, arrays, None, promote="keep", batch=batching.some_dims)

    def function(input, dim=None, keepdim=False, *, out=None):
        dims = dims_of(dim, input.array.ndim, empty_is_all=False) if dim is not None else None
        result = primitive(input, dims, keepdim)
        return (
            result
            if out is None
            else write_out(out, to(result, out.dtype) if out.dtype is dtypes.uint8 else result, exact=True)
        )

    function.__doc__ = f"Whether {name} elements (along `dim`) are non-zero: a bool tensor."
    return face(function, name=name)


all = _logic_face("all", np.logical_and)
any = _logic_face("any", np.logical_or)


@public()
def count_nonzero(input, dim=None):
    """The number of non-zero elements (along dim)."""
    dims = dims_of(dim, input.array.ndim) if dim is not None else None
    return _count_nonzero(input, dims)


_count_nonzero = op("count_nonzero", lambda x, dims: np.asarray(np.count_nonzero(x, dims), np.int64), None,
                    promote="keep", batch=batching.some_dims)  # fmt: skip


# Softmax and its relatives


def _has_row_kernel(dim, *arrays):
    """Whether kernels work along `dim` of these arrays of one shape: it is the last one."""
    return dim == arrays[0].ndim - 1 and kernels.compute(FUSED, *arrays)


def _top(x, dim):
    """The maxima along `dim`, which is kept. For many short rows reduceat takes half of reduce's time."""
    if dim == x.ndim - 1 and x.size >= MANY * x.shape[dim] and x.flags.c_contiguous:
        starts = np.arange(0, x.size, x.shape[dim])
        return np.maximum.reduceat(x.reshape(-1), starts).reshape((*x.shape[:-1], 1))
    return np.maximum.reduce(x, dim, keepdims=True)


def _softmax_arrays(x, dim):
    if not x.size:
        return x.copy()
    if _has_row_kernel(dim, x):
        return kernels.rows.softmax(x)
    e = np.exp(x - _top(x, dim))
    e /= kept_sums(e, (dim,))
    return e


def _log_softmax_arrays(x, dim):
    if not x.size:
        return x.copy()
    if _has_row_kernel(dim, x):
        return kernels.rows.log_softmax(x)
    shifted = x - _top(x, dim)
    shifted -= np.log(kept_sums(np.exp(shifted), (dim,)))
    return shifted


_softmax = op("softmax", _softmax_arrays,
    lambda g, _input, out, dim: softmax_gradient(g, out, dim), batch="leading")  # fmt: skip
_log_softmax = op("log_softmax", _log_softmax_arrays,
    lambda g, _input, out, dim: log_softmax_gradient(g, out, dim), batch="leading")  # fmt: skip


def _softmax_gradient_arrays(g, out, dim):
    if _has_row_kernel(dim, out, g):
        return kernels.rows.softmax_gradient(g, out)
    return out * (g - kept_sums(g * out, (dim,)))


@twin(_softmax_gradient_arrays)
def softmax_gradient(g, out, dim):
    """The gradient of softmax from its output."""
    return out * (g - sum(g * out, dim, True))


def _log_softmax_gradient_arrays(g, out, dim):
    if _has_row_kernel(dim, out, g):
        return kernels.rows.log_softmax_gradient(g, out)
    e = np.exp(out)
    e *= kept_sums(g, (dim,))
    return np.subtract(g, e, e)


@twin(_log_softmax_gradient_arrays)
def log_softmax_gradient(g, out, dim):
    """The gradient of log_softmax from its output."""
    return g - exp(out) * sum(g, dim, True)


_softmax_of_number = op(
    "softmax_of_number", np.ones_like, lambda g, _input, _out: g * 0, node="SoftmaxBackward0", batch="elementwise"
)
_log_softmax_of_number = op("log_softmax_of_number", np.zeros_like, lambda g, _input, _out: g * 0,
                            node="LogSoftmaxBackward0", batch="elementwise")  # fmt: skip


def _softmax_face(name, primitive, of_number, module):
    def function(input, dim=None, _stacklevel=3, dtype=None, *, out=None):
        if isinstance(_stacklevel, dtypes.dtype):
            dtype = _stacklevel
        if dim is None:
            if module != "nn.functional":
                raise TypeError(f'{name}() missing 1 required positional arguments: "dim"')
            import warnings

            warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an "
                          "argument.", stacklevel=3)  # fmt: skip
            dim = 0 if input.array.ndim in (0, 1, 3) else 1
        if dtype is not None:
            input = to(input, dtype)
        if input.array.dtype.kind in "biuc":
            raise not_implemented(f"{name}_lastdim_kernel_impl", input)
        d = dimension(dim, input.array.ndim)
        result = primitive(input, d) if input.array.ndim else of_number(input)
        return result if out is None else write_out(out, result, exact=True)

    words = "exp(input) / sum(exp(input))" if name == "softmax" else "log(softmax(input))"
    function.__doc__ = f"{words} along `dim`. (*S) -> (*S). Differentiable."
    return face(function, name=name, module=module, method=module == "torch")


softmax = _softmax_face("softmax", _softmax, _softmax_of_number, "torch")
log_softmax = _softmax_face("log_softmax", _log_softmax, _log_softmax_of_number, "torch")
for _module in ("nn.functional", "special"):
    _softmax_face("softmax", _softmax, _softmax_of_number, _module)
    _softmax_face("log_softmax", _log_softmax, _log_softmax_of_number, _module)


@public(method=False, module="nn.functional")
def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """softmax(-input)."""
    return softmax(-input, dim, dtype=dtype)


def _logsumexp_arrays(x, dims, keepdim):
    if not x.size:
        return np.log(np.add.reduce(np.exp(x), dims, keepdims=keepdim))
    top = np.maximum.reduce(x.real if x.dtype.kind == "c" else x, dims, keepdims=True)
    top = np.where(np.isfinite(top), top, 0).astype(top.dtype)
    result = np.log(np.add.reduce(np.exp(x - top), dims, keepdims=True)) + top
    return result if keepdim else np.squeeze(result, dims)


_logsumexp = op("logsumexp", _logsumexp_arrays,
    lambda g, input, out, dims, _keepdim:
        spread(g, input.shape, dims) * exp(input - keep_dims(out, input.shape, dims)), batch="leading")  # fmt: skip


@public()
def logsumexp(input, dim, keepdim=False, *, out=None):
    """log(sum(exp(input))) over `dim`, without overflow. Differentiable."""
    if input.array.dtype.kind in "biu":
        input = to(input, dtypes.get_default_dtype())
    result = _logsumexp(input, dims_of(dim, input.array.ndim), keepdim)
    return result if out is None else write_out(out, result)
