"""`torch.masked`: reductions and normalisations of the elements where a mask holds (True: the element counts).

Composites of public operations: what the mask leaves out is replaced by a number that changes nothing.

>>> import backlight as torch
>>> torch.masked.sum(torch.tensor([1., 2., 4.]), 0, mask=torch.tensor([True, False, True]))
tensor(5.)
"""

from __future__ import annotations

import builtins

import numpy as np

import backlight as torch

from . import dtypes
from .tensor import dimension

__all__ = ["amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median", "norm",
           "normalize", "prod", "softmax", "softmin", "std", "sum", "var"]  # fmt: skip


def _whole_mask(input, mask):
    """The mask as bools in the input's shape."""
    if mask is None:
        return None
    if mask.array.ndim > input.array.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    if mask.array.shape != input.array.shape:
        mask = mask.broadcast_to(input.array.shape)
    return mask if mask.dtype is dtypes.bool_ else mask.bool()


def _dims(input, dim):
    """The dimensions as a sorted tuple; all of them for None or ()."""
    n = input.array.ndim
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(n))
    dims = [dimension(d, n) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))]
    for d in dims:
        if dims.count(d) > 1:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
    return tuple(sorted(dims)) if n else ()


def _neutral(reduction, t):
    """The number that changes nothing in a reduction of elements of this type."""
    if reduction in ("sum", "prod"):
        return 0 if reduction == "sum" else 1
    lowest = reduction == "max"
    if t.category == 2:
        return -np.inf if lowest else np.inf
    if t.category == 0:
        return not lowest
    if t.category == 3:
        return complex(-np.inf if lowest else np.inf)
    return np.iinfo(t.array_type).min if lowest else np.iinfo(t.array_type).max


def _filled(input, mask, reduction):
    """The input with the neutral number where the mask doesn't hold."""
    mask = _whole_mask(input, mask)
    return (
        input if mask is None else torch.where(mask, input, torch.tensor(_neutral(reduction, input.dtype), dtype=input.dtype))
    )


def _typed(input, dtype, integers=True):
    """The input as dtype. Small integers are summed as int64, if that is wanted."""
    if dtype is None:
        dtype = dtypes.int64 if integers and input.dtype.category < 2 else input.dtype
    return input.to(dtype)


def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The sum of the elements where the mask holds, over `dim` (all if None). Differentiable."""
    input = _typed(input, dtype)
    dims = _dims(input, dim)
    return torch.sum(_filled(input, mask, "sum"), dims, keepdim)


def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The product of the elements where the mask holds, over `dim` (all if None). Differentiable."""
    input = _typed(input, dtype)
    result = _filled(input, mask, "prod")
    for d in reversed(_dims(input, dim)):
        result = torch.prod(result, d, keepdim)
    return result


def cumsum(input, dim, *, dtype=None, mask=None):
    """Running sums along `dim` of the elements where the mask holds. Differentiable."""
    input = _typed(input, dtype)
    (d,) = _dims(input, dim) or (0,)
    return torch.cumsum(_filled(input, mask, "sum"), d)


def cumprod(input, dim, *, dtype=None, mask=None):
    """Running products along `dim` of the elements where the mask holds. Differentiable."""
    input = _typed(input, dtype)
    (d,) = _dims(input, dim) or (0,)
    return torch.cumprod(_filled(input, mask, "prod"), d)


def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The greatest element where the mask holds, over `dim` (all if None). Differentiable."""
    input = _typed(input, dtype, False)
    dims = _dims(input, dim)
    return torch.amax(_filled(input, mask, "max"), dims, keepdim)


def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The smallest element where the mask holds, over `dim` (all if None). Differentiable."""
    input = _typed(input, dtype, False)
    dims = _dims(input, dim)
    return torch.amin(_filled(input, mask, "min"), dims, keepdim)


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The place of the greatest element where the mask holds, in the input's type. No gradient."""
    dtype = input.dtype if dtype is None else dtype
    return torch.argmax(_filled(input, mask, "max"), dim, builtins.bool(keepdim)).to(dtype)


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The place of the smallest element where the mask holds, in the input's type. No gradient."""
    dtype = input.dtype if dtype is None else dtype
    return torch.argmin(_filled(input, mask, "min"), dim, builtins.bool(keepdim)).to(dtype)


def _count(input, dims, keepdim, mask):
    """How many elements count, in the input's type."""
    whole = torch.ones(input.array.shape, dtype=dtypes.int64)
    return sum(whole, dims, keepdim=keepdim, mask=mask)


def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The mean of the elements where the mask holds, over `dim` (all if None); NaN where none does. Differentiable."""
    if dtype is None and input.dtype.category < 2:
        raise ValueError("mean(): Could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
                         f"{input.dtype}")  # fmt: skip
    input = _typed(input, dtype, False)
    dims = _dims(input, dim)
    if mask is None:
        return torch.mean(input, dims, keepdim)
    return sum(input, dims, keepdim=keepdim, mask=mask) / _count(input, dims, keepdim, mask)


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """The lower median of the elements where the mask holds, along `dim`. Differentiable."""
    input = _typed(input, dtype, False)
    d = dimension(dim, input.array.ndim)
    mask = _whole_mask(input, mask)
    if mask is None:
        return torch.median(input, d, keepdim).values
    if not input.dtype.is_floating_point:
        if not mask.array.any(d).all():
            raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
        wide = torch.where(mask, input.double(), torch.tensor(np.nan, dtype=dtypes.float64))
        return torch.nanmedian(wide, d, keepdim).values.to(input.dtype)
    return torch.nanmedian(torch.where(mask, input, torch.tensor(np.nan, dtype=input.dtype)), d, keepdim).values


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """log(sum(exp(x))) over the elements where the mask holds. Differentiable."""
    dtype = input.dtype if dtype is None else dtype
    input = input.to(dtype)
    dims = _dims(input, dim)
    return torch.logsumexp(_filled(input, mask, "max"), dims, keepdim).to(dtype)


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(exp(input) + exp(other)), where an element that its mask leaves out counts as -inf. Differentiable in both."""
    dtype = input.dtype if dtype is None else dtype
    input, other = input.to(dtype), other.to(dtype)
    return torch.logaddexp(_filled(input, input_mask, "max"), _filled(other, other_mask, "max"))


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The p-norm (p = ord) of the elements where the mask holds, over `dim` (all if None). Differentiable."""
    input = _typed(input, dtype, False)
    dims = _dims(input, dim)
    return torch.linalg.vector_norm(_filled(input, mask, "min" if ord == -np.inf else "sum"), ord, dims, keepdim)


def _moments(input, dim, unbiased, correction, keepdim, dtype, mask, root):
    if unbiased is not None and correction is not None:
        raise ValueError("Only one of unbiased and correction may be given")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    if dtype is None and input.dtype.category < 2:
        dtype = dtypes.get_default_dtype()
    input = _typed(input, dtype, False)
    dims = _dims(input, dim)
    count = _count(input, dims, True, mask)
    centred = input - sum(input, dims, keepdim=True, mask=mask) / count
    squares = centred * centred.conj() if input.dtype.is_complex else centred * centred
    total = sum(squares, dims, keepdim=keepdim, mask=mask)
    left = count if keepdim else count.reshape(total.array.shape)
    result = (total / torch.clamp(left - correction, min=0) if correction else total / left).to(input.dtype)
    return torch.sqrt(result) if root else result


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The variance of the elements where the mask holds, over `dim` (all if None). Differentiable."""
    return _moments(input, dim, unbiased, correction, keepdim, dtype, mask, False)


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The standard deviation of the elements where the mask holds, over `dim` (all if None). Differentiable."""
    return _moments(input, dim, unbiased, correction, keepdim, dtype, mask, True)


def softmax(input, dim, *, dtype=None, mask=None):
    """softmax along `dim` over the elements where the mask holds, 0 elsewhere. Differentiable."""
    input = _typed(input, dtype, False)
    return torch.nn.functional.softmax(_filled(input, mask, "max"), dimension(dim, input.array.ndim))


def log_softmax(input, dim, *, dtype=None, mask=None):
    """log_softmax along `dim` over the elements where the mask holds, -inf elsewhere. Differentiable."""
    input = _typed(input, dtype, False)
    return torch.nn.functional.log_softmax(_filled(input, mask, "max"), dimension(dim, input.array.ndim))


def softmin(input, dim, *, dtype=None, mask=None):
    """softmin along `dim` over the elements where the mask holds, 0 elsewhere. Differentiable."""
    input = _typed(input, dtype, False)
    return torch.nn.functional.softmin(_filled(input, mask, "min"), dimension(dim, input.array.ndim))


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """The input divided by the p-norm (p = ord) along `dim` of the elements where the mask holds, 0 elsewhere. Differentiable."""
    input = _typed(input, dtype, False)
    size = norm(input, ord, dim, keepdim=True, mask=mask)
    return _filled(input, mask, "sum") / torch.maximum(size, torch.full_like(size, eps))
