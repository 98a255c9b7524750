"""Order statistics and moments: median, quantile, mode, kthvalue, histc, cov, corrcoef."""

from __future__ import annotations

import numpy as np

from .. import batching, dtypes
from ..op import op, public, write_out
from ..tensor import Tensor, dimension
from .arrange import diagonal
from .cast import conj, to
from .choose import clamp, masked_fill
from .gather import gather
from .linalg import matmul
from .pointwise import ceil, floor, lerp, round, sqrt
from .reduce import Pair, _scalar_pick, evenly, picked, sum
from .shape import expand, movedim, reshape, squeeze, transpose, unsqueeze
from .sort import _order, sort

_median = op("median_dim", lambda x, dim, keepdim: _median_arrays(x, dim, keepdim),
    lambda g, input_shape, out, dim, keepdim: picked(g, input_shape, out, dim, keepdim),
    nondifferentiable=(1,), promote="keep", node="MedianBackward1", batch="leading")  # fmt: skip


_median_all = op("median", lambda x: _median_arrays(x.reshape(-1), 0, False)[0],
    lambda g, input, out: evenly(g, input, out, tuple(range(len(input.shape)))))  # fmt: skip


def _median_arrays(x, dim, keepdim):
    middle = (x.shape[dim] - 1) // 2
    indices = np.take(_order(x, dim, False), [middle], dim)
    if x.dtype.kind in "fV":
        nan = np.isnan(x)
        has = nan.any(dim, keepdims=True)
        indices = np.where(has, np.expand_dims(nan.argmax(dim), dim), indices)
    values = np.take_along_axis(x, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@public()
def median(input, dim=None, keepdim=False):
    """The lower median of all elements, or (values, indices) along `dim`. Differentiable."""
    if dim is None:
        return _median_all(input)
    if not input.array.ndim:
        return Pair["median"](*_scalar_pick(input, "median_dim"))
    return Pair["median"](*_median(input, dimension(dim, input.array.ndim), keepdim))


def _nanmedian_arrays(x, dim, keepdim):
    count = (~np.isnan(x)).sum(dim, keepdims=True) if x.dtype.kind in "fV" else np.full(_one_in(x.shape, dim), x.shape[dim])
    place = np.maximum(count - 1, 0) // 2
    indices = np.take_along_axis(_order(x, dim, False), place, dim)  # NaN sorts last
    values = np.take_along_axis(x, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _one_in(shape, dim):
    return [1 if i == dim else n for i, n in enumerate(shape)]


def _picking(name, arrays, node):
    """An operation whose values are elements of the input: values and indices along a dimension."""
    return op(name, arrays, lambda g, input_shape, out, dim, keepdim: picked(g, input_shape, out, dim, keepdim),
              nondifferentiable=(1,), promote="keep", node=node, batch="leading")  # fmt: skip


_nanmedian = _picking("nanmedian_dim", _nanmedian_arrays, "NanmedianBackward1")


_nanmedian_all = op("nanmedian", lambda x: _nanmedian_arrays(x.reshape(-1), 0, False)[0],
    lambda g, input, out: evenly(g, input, out, tuple(range(len(input.shape)))))  # fmt: skip


@public()
def nanmedian(input, dim=None, keepdim=False):
    """The lower median of the elements that aren't NaN, or (values, indices) along `dim`. Differentiable."""
    if dim is None:
        return _nanmedian_all(input)
    if not input.array.ndim:
        return Pair["nanmedian"](*_scalar_pick(input, "nanmedian_dim"))
    return Pair["nanmedian"](*_nanmedian(input, dimension(dim, input.array.ndim), keepdim))


def _mode_arrays(x, dim, keepdim):
    """The most frequent value (the smallest of equals) and the last index where it stands."""
    moved = np.moveaxis(x, dim, -1)
    rows = moved.reshape(-1, moved.shape[-1])
    indices = np.empty(len(rows), np.int64)
    for i, row in enumerate(rows):
        found, counts = np.unique(row, return_counts=True)
        indices[i] = np.flatnonzero(row == found[counts.argmax()])[-1]
    indices = np.expand_dims(indices.reshape(moved.shape[:-1]), dim)
    values = np.take_along_axis(x, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


_mode = _picking("mode", _mode_arrays, "ModeBackward0")


@public()
def mode(input, dim=-1, keepdim=False):
    """(values, indices) of the most frequent element along `dim`. Differentiable in the values."""
    if not input.array.ndim:
        return Pair["mode"](*_scalar_pick(input, "mode"))
    return Pair["mode"](*_mode(input, dimension(dim, input.array.ndim), keepdim))


_kthvalue = op("kthvalue", lambda x, k, dim, keepdim: _kthvalue_arrays(x, k, dim, keepdim),
    lambda g, input_shape, out, _k, dim, keepdim: picked(g, input_shape, out, dim, keepdim),
    nondifferentiable=(1,), promote="keep", batch="leading")  # fmt: skip


def _kthvalue_arrays(x, k, dim, keepdim):
    indices = np.take(_order(x, dim, False), [k - 1], dim)
    values = np.take_along_axis(x, indices, dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


@public()
def kthvalue(input, k, dim=-1, keepdim=False):
    """(values, indices) of the k-th smallest element along `dim`. Differentiable in the values."""
    d = dimension(dim, input.array.ndim)
    if not 1 <= k <= (input.array.shape[d] if input.array.ndim else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {d}")
    if not input.array.ndim:
        return Pair["kthvalue"](*_scalar_pick(input, "kthvalue"))
    return Pair["kthvalue"](*_kthvalue(input, k, d, keepdim))


def _quantile(name, input, q, dim, keepdim, interpolation, skip_nan):
    x = input.array
    if x.dtype not in (np.float32, np.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if not isinstance(q, Tensor):
        q = Tensor._from(np.array(q, x.dtype))
    if q.array.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    limits = batching.all_values(q)
    if not ((limits >= 0) & (limits <= 1)).all():
        raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {limits.max():g}" if not q.array.ndim else
                           f"{name}() q values must be in the range [0, 1]")  # fmt: skip
    if not x.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    flat = dim is None
    d = 0 if flat else dimension(dim, x.ndim)
    ordered = sort(reshape(input, -1) if flat or not x.ndim else movedim(input, d, 0), 0).values  # NaN comes last
    n, count = ordered.array.shape[0], (ordered == ordered).sum(0)
    place = reshape(q, (-1,) + (1,) * (ordered.array.ndim - 1))
    place = expand(place, (*place.array.shape[:1], *ordered.array.shape[1:]))
    if skip_nan:
        place = place * to(clamp(count - 1, 0), input.dtype)
    else:  # a NaN anywhere makes the quantile NaN: take it from the end
        place = masked_fill(place * (n - 1), count < n, n - 1)
    if interpolation in ("lower", "higher", "nearest"):
        place = {"lower": floor, "higher": ceil, "nearest": round}[interpolation](place)
    low = floor(place.detach())
    result = gather(ordered, 0, to(low, dtypes.int64))
    if interpolation in ("linear", "midpoint"):
        weight = place - low if interpolation == "linear" else low * 0 + 0.5
        high = gather(ordered, 0, to(ceil(place.detach()), dtypes.int64))
        result = lerp(result, high, weight)
    if keepdim:
        shape = (1,) * x.ndim if flat else None
        result = reshape(result, (-1, *shape)) if flat else unsqueeze(result, d + 1) if x.ndim else result
    return result if q.array.ndim else squeeze(result, 0)


@public()
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear", out=None):
    """The q-th quantiles (0 to 1) over `dim` (all elements if None). Differentiable in input."""
    result = _quantile("quantile", input, q, dim, keepdim, interpolation, False)
    return result if out is None else write_out(out, result, exact=True)


@public()
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear", out=None):
    """The q-th quantiles of the elements that aren't NaN. Differentiable in input."""
    result = _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)
    return result if out is None else write_out(out, result, exact=True)


@public()
@batching.in_loop
def histc(input, bins=100, min=0, max=0, *, out=None):
    """How many elements fall into each of `bins` equal intervals from min to max (the data's range if both are 0)."""
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    x = input.array.reshape(-1)
    low, high = (float(x.min()), float(x.max())) if min == max and x.size else (min, max)
    if low == high:
        low, high = low - 1, high + 1
    if low > high:
        raise RuntimeError("max must be larger than min")
    counts = np.histogram(x, bins, (low, high))[0]
    result = Tensor._from(counts.astype(x.dtype))
    return result if out is None else write_out(out, result, exact=True)


def _check_weights(name, weights, x, kind):
    """RuntimeError unless the weights fit the observations."""
    if weights is None:
        return
    w, n = weights.array, x.array.shape[1]
    if w.ndim > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {w.ndim} dimensions")
    if (kind == "integral") != (weights.dtype.category < 2) or weights.dtype.is_complex:
        raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with "
                           f"{dtypes.scalar_type_name(weights.dtype)} dtype")  # fmt: skip
    if w.size != n:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got {w.size} != {n}"
        )
    if w.size and w.min() < 0:
        raise RuntimeError(f"cov(): {name} cannot be negative")


@public()
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of variables in rows, observations in columns. Differentiable in input."""
    if input.array.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input.array.ndim} dimensions"
        )
    x = input if input.array.ndim == 2 else reshape(input, 1, -1)
    _check_weights("fweights", fweights, x, "integral")
    _check_weights("aweights", aweights, x, "floating point")
    weights = None
    for w in (fweights, aweights):
        if w is not None:
            w = w if w.array.ndim else reshape(w, 1)
            weights = w if weights is None else weights * w
    total = x.array.shape[1] if weights is None else sum(weights)
    rest = total - correction
    if aweights is not None and correction:
        rest = total - correction * (sum(weights * aweights) / total)
    rest = clamp(rest, min=0) if isinstance(rest, Tensor) else max(rest, 0)
    centred = x - (sum(x if weights is None else x * weights, 1, True) / total)
    right = centred if weights is None else centred * weights
    right = transpose(right, 0, 1)
    product = matmul(centred, conj(right) if right.dtype.is_complex else right)
    return squeeze(product / rest)


@public()
def corrcoef(input):
    """The correlation coefficients of variables in rows. Differentiable."""
    if input.array.ndim > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.array.ndim} "
                           "dimensions")  # fmt: skip
    c = cov(input)
    if not c.array.ndim:
        return c / c
    deviation = sqrt(diagonal(c))
    return c / unsqueeze(deviation, 1) / unsqueeze(deviation, 0)
