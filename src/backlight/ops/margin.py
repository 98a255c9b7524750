"""Losses for several labels, triplets with any distance, and a linear layer joined to its cross entropy."""

from __future__ import annotations

import numpy as np

from .. import dtypes
from ..batching import all_values, rows_rule
from ..op import public
from ..tensor import Tensor
from .activation import functional, logsigmoid
from .choose import clamp, minimum, where_zero
from .composite import composite
from .gather import gather
from .linalg import linear
from .loss import _check_reduction, _reduced, _reduction, cross_entropy, pairwise_distance
from .reduce import sum
from .shape import flatten, reshape, unsqueeze


def _multilabel_margin_tensors(input, target, reduction):
    x, t = input.array, target.array
    listed = np.logical_and.accumulate(t >= 0, 1)  # a row's labels end at its first -1
    is_label = np.zeros(x.shape, bool)
    rows, columns = np.nonzero(listed)
    is_label[rows, t[rows, columns]] = True
    right = gather(input, 1, Tensor._from(np.where(listed, t, 0)))
    z = clamp(1 - unsqueeze(right, 2) + unsqueeze(input, 1), min=0)
    z = where_zero(Tensor._from(~listed[:, :, None] | is_label[:, None]), z)
    return _reduced(sum(z, (1, 2)) / x.shape[1], reduction)


_multilabel_margin = composite("multilabel_margin_loss", _multilabel_margin_tensors, 2, promote="keep", batch=rows_rule)


@public(**functional)
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """sum of max(0, 1 - (x[label] - x[other])) / C over a sample's labels and the other classes. Differentiable in input.

    input (N, C) or (C), target the same shape, int64: a row lists its labels and ends at the first -1.
    """
    reduction = _reduction(size_average, reduce, reduction)
    shape = input.array.shape
    if len(shape) > 2 or 0 in shape[-1:]:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(shape)}")
    if target.array.shape != shape:
        raise RuntimeError(f"inconsistent target size: {list(target.array.shape)} for input of size: {list(shape)}")
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_type_name(target.dtype)}")
    labels = all_values(target)
    if labels.size and (labels.min() < -1 or labels.max() >= (shape or (1,))[-1]):
        raise RuntimeError("argument #2 'target' is out of range")
    if len(shape) < 2:
        input, target = reshape(input, (1, -1)), reshape(target, (1, -1))
    if len(shape) == 2:
        return _multilabel_margin(input, target, reduction)
    return reshape(_multilabel_margin(input, target, reduction), ())


@public(**functional)
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The binary cross entropy with logits, averaged over the classes. (N, C), (N, C) -> (). Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduced(sum(loss, input.array.ndim - 1) / input.array.shape[-1], reduction)


@public(**functional)
def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance (pairwise_distance). Differentiable."""
    _check_reduction(reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function or pairwise_distance
    ndim = anchor.array.ndim
    if positive.array.ndim != ndim or negative.array.ndim != ndim:
        raise RuntimeError(
            f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor "
            f"{ndim}D, positive {positive.array.ndim}D, and negative {negative.array.ndim}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return _reduced(clamp(margin + near - far, min=0), reduction)


@public(**functional)
def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None,
                         label_smoothing=0.0, options=None):  # fmt: skip
    """cross_entropy(linear(input, linear_weight, linear_bias), target). (N, I), (C, *D, I), (N, *D) -> (). Differentiable.

    options tells PyTorch to save memory by computing in pieces. The result is the same, so it is ignored here.
    """
    del options
    _check_reduction(reduction)
    w = linear_weight.array
    if w.ndim < 2:
        raise RuntimeError(f"expected linear_weight with 2 or more dimensions, got {w.ndim}")
    if input.array.shape[-1:] != w.shape[-1:]:
        raise RuntimeError(f"expected equal input and linear_weight last dimensions (in_features), got {input.array.shape[-1]} and "
                           f"{w.shape[-1]}, respectively")  # fmt: skip
    if w.ndim > 2 and input.array.ndim < 2:
        raise RuntimeError(f"K-dimensional loss defined by linear_weight shape {tuple(w.shape)} requires batched input, (N, {w.shape[-1]}), got "
                           f"unbatched input with shape {tuple(input.array.shape)}")  # fmt: skip
    if input.array.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.array.ndim}")
    n = input.array.shape[0]
    if input.array.ndim > 1 and target.array.ndim and target.array.shape[0] != n:
        raise ValueError(f"Expected input batch_size ({n}) to match target batch_size ({target.array.shape[0]}).")
    if ignore_index is not None and target.dtype.is_floating_point:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    scores = linear(input, flatten(linear_weight, 0, -2), None if linear_bias is None else flatten(linear_bias))
    if w.ndim > 2:
        scores = reshape(scores, (*input.array.shape[:-1], *w.shape[:-1]))
    options = {} if ignore_index is None else {"ignore_index": ignore_index}
    return cross_entropy(scores, target, weight, reduction=reduction, label_smoothing=label_smoothing, **options)
