"""embedding_bag: sums, means and maxima of embeddings, without a tensor of all embeddings in the graph."""

from __future__ import annotations

import numpy as np

from .. import dtypes
from ..batching import in_loop
from ..op import public
from ..tensor import Tensor
from .cast import to
from .choose import masked_fill
from .composite import composite
from .gather import index_add
from .nn import _embedding, functional, limit_norms
from .reduce import max
from .shape import reshape, unsqueeze


def _bag_tensors(weight, index, bags, factors, count, mode, padding):
    """bags: the number of the bag of each index, in order."""
    if weight.dtype.itemsize == 2:  # added up in float32 and rounded once
        wide = None if factors is None else to(factors, dtypes.float32)
        return to(_bag_tensors(to(weight, dtypes.float32), index, bags, wide, count, mode, padding), weight.dtype)
    rows = _embedding(weight, index, padding)
    return _combined(rows, index.array != padding, bags.array, factors, count, mode)


def _combined(rows, used, bags, factors, count, mode):
    """The sums, means or maxima of each bag's rows, of those that are used."""
    if not used.all():
        place = Tensor._from(np.flatnonzero(used))
        rows, bags = rows[place], bags[used]
        factors = None if factors is None else factors[place]
    sizes = np.bincount(bags, minlength=count)
    if mode == "max":
        return _largest(rows, bags, sizes)
    if factors is not None:
        rows = rows * unsqueeze(factors, 1)
    total = Tensor._from(np.zeros((count, rows.array.shape[1]), rows.array.dtype))
    total = index_add(total, 0, Tensor._from(bags), rows)
    return total / Tensor._from(np.maximum(sizes, 1).astype(rows.array.dtype)[:, None]) if mode == "mean" else total


def _largest(rows, bags, sizes):
    """The maxima of each bag's rows; zeros for an empty bag."""
    width = int(sizes.max(initial=0))
    if not width:
        return Tensor._from(np.zeros((len(sizes), rows.array.shape[1]), rows.array.dtype))
    place = np.zeros((len(sizes), width), np.int64)
    filled = np.arange(width) < sizes[:, None]
    place[filled] = np.arange(len(bags))
    padded = masked_fill(rows[Tensor._from(place)], Tensor._from(~filled[:, :, None]), -np.inf)
    return masked_fill(max(padded, 1)[0], Tensor._from(sizes[:, None] == 0), 0)


_bag = composite("embedding_bag", _bag_tensors, 4, optional=("factors",), promote="keep")


def _scaled_by_frequency(index):
    """One over how often each index occurs."""
    _values, inverse, counts = np.unique(index, return_inverse=True, return_counts=True)
    return 1 / counts[inverse.reshape(index.shape)]


def _frequency_bag_tensors(weight, index, bags, factors, count, mode, padding):
    """As _bag_tensors, whose gradient for the weight is divided by how often the index occurs."""
    scale = Tensor._from(_scaled_by_frequency(index.array).astype(weight.array.dtype)[:, None])
    rows = _embedding(weight, index, padding)
    rows = rows.detach() + (rows - rows.detach()) * scale
    return _combined(rows, index.array != padding, bags.array, factors, count, mode)


_frequency_bag = composite("embedding_bag_frequency", _frequency_bag_tensors, 4, optional=("factors",), promote="keep",
                           node="EmbeddingBagBackward0")  # fmt: skip


@public(**functional)
@in_loop
def embedding_bag(
    input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=None,
):  # fmt: skip
    """Sums, means or maxima of the embeddings of bags of indices. -> (bags, E). Differentiable in both weights.

    input (B, N): bags of N indices; or (N) with offsets (B), where each bag begins. padding_idx isn't counted.
    """
    weight, input = (input, weight) if weight.dtype is dtypes.int64 and input.dtype.is_floating_point else (weight, input)
    if per_sample_weights is not None and per_sample_weights.array.shape != input.array.shape:
        raise ValueError(f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the same shape as "
                         f"the input ({input.shape})")  # fmt: skip
    if weight.array.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.array.ndim}")
    if input.array.ndim == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. "
                             f"However, found offsets of type {type(offsets)}")  # fmt: skip
        count, width = input.array.shape
        starts = np.arange(count) * width
        input = reshape(input, -1)
        if per_sample_weights is not None:
            per_sample_weights = reshape(per_sample_weights, -1)
    elif input.array.ndim == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.array.ndim != 1:
            raise ValueError("offsets has to be a 1D Tensor")
        starts = offsets.array.astype(np.int64)
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.array.ndim}")
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and (sparse or scale_grad_by_freq):
        raise ValueError(f"max mode does not support {'sparse weights' if sparse else 'scaling the gradient by the frequency'}")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
                                  f"mode='{mode}'). Please open a feature request on GitHub.")  # fmt: skip
    if sparse and weight.requires_grad:
        raise NotImplementedError("embedding_bag(sparse=True): sparse gradients are out of Backlight's scope")
    if input.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError("Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
                           f"{input.type()} instead (while checking arguments for embedding_bag)")  # fmt: skip
    if per_sample_weights is not None and per_sample_weights.dtype is not weight.dtype:
        raise RuntimeError(f"Expected tensor for argument #1 'weight' to have the same type as tensor for argument #2 'per_sample_weights'; but "
                           f"type {weight.type()} does not equal {per_sample_weights.type()} (while checking arguments for embedding_bag)")  # fmt: skip
    index, n, length = input.array, weight.array.shape[0], len(input.array)
    if include_last_offset:
        starts = starts[:-1]
    if len(starts) and starts[0] != 0:
        raise RuntimeError("offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got "
                           f"{starts[0]}")  # fmt: skip
    if len(starts) and starts[-1] > length:
        raise RuntimeError(f"offsets[-1] can not be greater than input's length {length} but got offsets[-1] of {starts[-1]}")
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            raise RuntimeError(
                f"padding_idx must be within the number of embeddings, {-n} through {n - 1}, but got {padding_idx}"
            )
        padding_idx %= n
    wrong = (index < 0) | (index >= n)
    if wrong.any():
        i = int(wrong.argmax())
        raise RuntimeError(f"Index {i} of input takes value {index[i]} which is not in the valid range [0, {n})")
    if max_norm is not None:
        limit_norms(weight, index, max_norm, norm_type)
    bags = np.searchsorted(starts, np.arange(length), "right") - 1
    bag = _frequency_bag if scale_grad_by_freq else _bag
    padding = -1 if padding_idx is None else padding_idx
    return bag(weight, input, Tensor._from(bags), per_sample_weights, len(starts), mode, padding)
