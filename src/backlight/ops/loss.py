"""Loss functions of `nn.functional`, and the distances they use."""

from __future__ import annotations

import builtins
import math
from functools import lru_cache

import numpy as np

from .. import batching, dtypes, kernels
from ..op import OPS, check_broadcast, op, public, twin, write_out
from ..tensor import Tensor
from .activation import functional, logsigmoid
from .cast import to
from .check import not_implemented, not_tensor
from .choose import clamp, clamp_min, masked_fill, minimum, select, where
from .composite import composite
from .gather import _index_select
from .linalg import vector_norm
from .pointwise import exp, log, sgn, sigmoid, sqrt
from .reduce import log_softmax, mean, sum
from .shape import expand, reshape
from .special import xlogy


def _reduction(size_average, reduce, reduction):
    if size_average is not None or reduce is not None:
        import warnings

        reduce = True if reduce is None else reduce
        size_average = True if size_average is None else size_average
        reduction = "mean" if size_average and reduce else "sum" if reduce else "none"
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.", stacklevel=3
        )
    return _check_reduction(reduction)


def _check_reduction(reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def _reduced(loss, reduction):
    return mean(loss) if reduction == "mean" else sum(loss) if reduction == "sum" else loss


def _mean_scale(reduction, count):
    return 1.0 / count if reduction == "mean" and count else float("nan") if reduction == "mean" else 1.0


def count_of(x):
    total = 1
    for n in x.shape:
        total *= n
    return total


def _broadcast_pair(input, target):
    if input.array.shape != target.array.shape:
        import warnings

        warnings.warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely lead "
            "to incorrect results due to broadcasting. Please ensure they have the same size.",
            stacklevel=3,
        )
        shape = np.broadcast_shapes(input.array.shape, target.array.shape) if _broadcasts(input, target) else None
        if shape is None:
            check_broadcast(input.array.shape, target.array.shape)
        input, target = expand(input, shape), expand(target, shape)
    t = dtypes.promote([input.array, target.array])
    return to(input, t), to(target, t)


def _broadcasts(a, b):
    try:
        np.broadcast_shapes(a.array.shape, b.array.shape)
    except ValueError:
        return False
    return True


def _reduced_arrays(values, weight, reduction):
    """Elementwise losses, weighted and reduced."""
    if weight is not None:
        values = values * weight
    return (
        values if reduction == "none" else np.add.reduce(values, None) * values.dtype.type(_mean_scale(reduction, values.size))
    )


def _loss_arrays(loss):
    return lambda x, target, reduction, parameter: _reduced_arrays(loss(x - target, parameter), None, reduction)


def _squares(x, target):
    d = x - target
    return d * d


_squared_error = kernels.fused("squared_error", _squares, 2)


@twin(kernels.fused("squared_error_gradient", lambda g, x, target, factor: g * (x - target) * x.dtype.type(factor), 3))
def squared_error_gradient(g, x, target, factor):
    """The gradient of a squared error; `factor` is 2, divided by how many errors are averaged."""
    return g * (x - target) * factor


_mse = op("mse_loss", lambda x, target, reduction: _reduced_arrays(_squared_error(x, target), None, reduction),
    lambda g, input, target, _out, reduction: squared_error_gradient(g, input, target, 2.0 * _mean_scale(reduction, count_of(input))),
    lambda g, input, target, _out, reduction: squared_error_gradient(g, target, input, 2.0 * _mean_scale(reduction, count_of(input))),
    batch=batching.reduced)  # fmt: skip


def _huber_arrays(d, delta):
    size = np.abs(d)
    return select(size <= delta, d.dtype.type(0.5) * d * d, d.dtype.type(delta) * (size - d.dtype.type(0.5 * delta)))


def _smooth_arrays(d, beta):
    if beta == 0:
        return np.abs(d)
    size = np.abs(d)
    return select(size < beta, d.dtype.type(0.5 / beta) * d * d, size - d.dtype.type(0.5 * beta))


_huber = op("huber_loss", _loss_arrays(_huber_arrays),
    lambda g, input, target, _out, reduction, delta: g * clamp(input - target, -delta, delta) * _mean_scale(reduction, count_of(input)),
    lambda g, input, target, _out, reduction, delta: g * clamp(target - input, -delta, delta) * _mean_scale(reduction, count_of(input)), batch=batching.reduced)  # fmt: skip
_smooth_l1 = op("smooth_l1_loss", _loss_arrays(_smooth_arrays),
    lambda g, input, target, _out, reduction, beta: g * smooth_slope(input - target, beta) * _mean_scale(reduction, count_of(input)),
    lambda g, input, target, _out, reduction, beta: g * smooth_slope(target - input, beta) * _mean_scale(reduction, count_of(input)), batch=batching.reduced)  # fmt: skip


@twin(lambda d, beta: np.sign(d) if beta == 0 else np.clip(d / beta, -1, 1))
def smooth_slope(d, beta):
    """The derivative of smooth_l1."""
    return sgn(d) if beta == 0 else clamp(d / beta, -1, 1)


clamp.arrays = lambda x, min=None, max=None: np.clip(x, min, max)


@public(**functional)
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """The squared error, averaged (or summed, or elementwise). Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    input, target = _broadcast_pair(input, target)
    if input.array.dtype.kind in "biu":
        raise not_implemented("mse_cpu", input)
    if weight is not None:
        return _reduced(weight * _mse(input, target, "none"), "sum" if reduction == "sum" else "none") if reduction != "mean" else \
            sum(weight * _mse(input, target, "none")) / sum(weight)  # fmt: skip
    return _mse(input, target, reduction)


@public(**functional)
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """The absolute error, averaged (or summed, or elementwise). Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    input, target = _broadcast_pair(input, target)
    loss = (input - target).abs()
    if weight is not None:
        loss = loss * weight
        if reduction == "mean":
            return sum(loss) / sum(weight)
    return _reduced(loss, reduction)


@public(**functional)
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """Squared below beta, absolute above (Girshick 2015). Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    input, target = _broadcast_pair(input, target)
    return _smooth_l1(input, target, reduction, beta)


@public(**functional)
def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """Squared below delta, linear above (Huber 1964). Differentiable in both."""
    _check_reduction(reduction)
    if isinstance(delta, complex):
        raise TypeError("huber_loss(): argument 'delta' (position 4) must be float, not complex")
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    input, target = _broadcast_pair(input, target)
    if weight is None:
        return _huber(input, target, reduction, delta)
    loss = _huber(input, target, "none", delta) * weight
    return sum(loss) / sum(weight) if reduction == "mean" else _reduced(loss, reduction)


# Negative log likelihood: input (N, C, *D), target (N, *D)


def _picked(x, target):
    """x[n, target[n, d], d] and the mask of valid targets."""
    return np.take_along_axis(x, np.expand_dims(target, 1), 1).squeeze(1)


def _nll_arrays(x, target, weight, reduction, ignore):
    valid = target != ignore
    safe = np.where(valid, target, 0)
    w = np.ones(target.shape, x.dtype) if weight is None else weight[safe]
    w = w * valid
    loss = -_picked(x, safe) * w if x.size else np.zeros(target.shape, x.dtype)
    loss = np.where(valid, loss, loss.dtype.type(0))
    if reduction == "none":
        return loss
    total = np.add.reduce(loss, None)
    return total if reduction == "sum" else total / np.add.reduce(w, None)


def _nll_gradient_arrays(g, shape, target, weight, reduction, ignore):
    out = np.zeros(shape, g.dtype)
    if not out.size:
        return out
    valid = target != ignore
    safe = np.where(valid, target, 0)
    w = valid.astype(g.dtype) if weight is None else weight[safe] * valid
    w = w.astype(g.dtype, copy=False)
    if reduction == "mean":
        w = w / np.add.reduce(w, None)
    np.put_along_axis(out, np.expand_dims(safe, 1), np.expand_dims(-w * g, 1), 1)
    return out


_nll = op("nll_loss", _nll_arrays,
    lambda g, input_shape, target, weight, _out, reduction, ignore: nll_gradient(g, target, weight, input_shape, reduction, ignore),
    None, None, promote="keep", optional=("weight",), batch=batching.nll_rule)  # fmt: skip
_nll2d = op("nll_loss2d", _nll_arrays,
    lambda g, input_shape, target, weight, _out, reduction, ignore: nll_gradient(g, target, weight, input_shape, reduction, ignore),
    None, None, promote="keep", optional=("weight",), node="NllLoss2DBackward0", batch=OPS["nll_loss"].batch)  # fmt: skip
nll_gradient = op("nll_gradient", lambda g, target, weight, shape, reduction, ignore:
        _nll_gradient_arrays(g, shape, target, weight, reduction, ignore),
    lambda g, _input, target, weight, _out, _shape, reduction, ignore: nll_back(g, target, weight, reduction, ignore),
    None, None, promote="keep", optional=("weight",), batch=batching.nll_gradient_rule)  # fmt: skip


@twin(lambda g, target, weight, reduction, ignore: _nll_arrays(g, target, weight, reduction, ignore))
def nll_back(g, target, weight, reduction, ignore):
    """The loss is linear in its input, so the gradient of its gradient is the loss itself."""
    return _nll(g, target, weight, reduction, ignore)


# The common case apart: one class index per row, no weights, nothing ignored


@lru_cache(maxsize=64)
def _rows(count):
    return np.arange(count)


def _plain_arrays(x, target, reduction):
    picked = x[_rows(len(target)), target]
    if reduction == "none":
        return -picked
    total = np.add.reduce(picked)
    return -total if reduction == "sum" else total / x.dtype.type(-len(target))


def _plain_gradient_arrays(g, target, shape, reduction):
    out = np.zeros(shape, g.dtype)
    out[_rows(len(target)), target] = g / g.dtype.type(-len(target)) if reduction == "mean" else -g
    return out


_nll_plain = op("nll_loss_plain", _plain_arrays,
    lambda g, input_shape, target, _out, reduction: _nll_plain_gradient(g, target, input_shape, reduction),
    None, promote="keep", node="NllLossBackward0", batch=batching.nll_rule)  # fmt: skip
_nll_plain_gradient = op("nll_loss_plain_gradient", _plain_gradient_arrays,
    lambda g, _input, target, _out, _shape, reduction: _nll_plain(g, target, reduction), None, promote="keep",
    batch=batching.nll_gradient_rule)  # fmt: skip


def _is_plain(x, t, ndim, ignore_index):
    if x.ndim != 2 or ndim != 1 or t.dtype != np.int64 or t.shape[-1] != len(x) or not len(x):
        return False
    # As unsigned numbers negative indices are huge, so one maximum checks both ends.
    return np.maximum.reduce(t.view(np.uint64), None) < x.shape[1] and not 0 <= ignore_index < x.shape[1]


@public(**functional)
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-input[n, target[n]], weighted by class and averaged over the weights. (N, C, *), (N, *) -> (). Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    x = input.array
    if weight is None and _is_plain(x, batching.all_values(target), target.array.ndim, ignore_index):
        return _nll_plain(input, target, reduction)
    if x.ndim < 1:
        raise ValueError(f"Expected 1 or more dimensions (got {x.ndim})")
    if target.dtype is dtypes.uint8:
        target = to(target, dtypes.int64)
    if x.ndim == 1:
        if target.array.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        result = nll_loss(reshape(input, 1, -1), reshape(target, 1), weight, ignore_index=ignore_index, reduction=reduction)
        return reshape(result, target.array.shape) if reduction == "none" else result
    if x.ndim == 2 and target.array.ndim != 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if x.shape[0] != target.array.shape[0]:
        raise ValueError(f"Expected input batch_size ({x.shape[0]}) to match target batch_size ({target.array.shape[0]}).")
    if x.shape[2:] != target.array.shape[1:]:
        raise RuntimeError(f"Expected target size {[x.shape[0], *x.shape[2:]]}, got {list(target.array.shape)}")
    classes = x.shape[1]
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"expected target dtype to be Long or Byte, but got {dtypes.scalar_type_name(target.dtype)}")
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(
            f"expected scalar type {dtypes.scalar_type_name(input.dtype)} but found {dtypes.scalar_type_name(weight.dtype)}"
        )
    if weight is not None and weight.array.shape != (classes,):
        raise RuntimeError(f"weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of "
                           f"shape: {list(weight.array.shape)}")  # fmt: skip
    t = batching.all_values(target)
    if (t.view(np.uint64) >= classes).any():  # also what is negative
        wrong = (t != ignore_index) & ((t < 0) | (t >= classes))
        if wrong.any():
            raise IndexError(f"Target {t[wrong].reshape(-1)[0]} is out of bounds.")
    return (_nll if x.ndim == 2 else _nll2d)(input, target, weight, reduction, ignore_index)


@public(**functional)
def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
):
    """nll_loss of log_softmax(input). target: class indices (N, *) or probabilities (N, C, *). Differentiable.

    >>> import backlight as torch
    >>> torch.nn.functional.cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]))
    tensor(1.3863)
    """
    reduction = _reduction(size_average, reduce, reduction)
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if not isinstance(target, Tensor):
        raise not_tensor("cross_entropy_loss", input=input, target=target)
    dim = 0 if input.array.ndim == 1 else 1
    if input.array.shape == target.array.shape:
        if not target.dtype.is_floating_point:
            raise RuntimeError("Expected floating point type for target with class probabilities, got "
                               f"{dtypes.scalar_type_name(target.dtype)}")  # fmt: skip
        if ignore_index >= 0:
            raise RuntimeError("ignore_index is not supported for floating point target")
        return _soft_cross_entropy(log_softmax(input, dim), target, weight, reduction, label_smoothing, dim)
    scores = log_softmax(input, dim)
    if not label_smoothing:
        return nll_loss(scores, target, weight, ignore_index=ignore_index, reduction=reduction)
    hard = nll_loss(scores, target, weight, ignore_index=ignore_index, reduction=reduction)
    classes = input.array.shape[dim]
    shape = [1] * input.array.ndim
    shape[dim] = -1
    smooth = -sum(scores if weight is None else scores * reshape(weight, shape), dim)
    ignored = target == ignore_index
    smooth = masked_fill(smooth, ignored, 0)
    if reduction == "mean":
        if weight is None:
            smooth = sum(smooth) / sum(~ignored)
        else:
            safe = masked_fill(target, ignored, 0)
            each = reshape(_index_select(weight, reshape(safe, -1), 0), target.array.shape)
            smooth = sum(smooth) / sum(masked_fill(each, ignored, 0))
    elif reduction == "sum":
        smooth = sum(smooth)
    return (1 - label_smoothing) * hard + label_smoothing / classes * smooth


def _soft_cross_entropy(scores, target, weight, reduction, label_smoothing, dim):
    classes = scores.array.shape[dim]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    product = scores * target
    if weight is not None:
        shape = [1] * scores.array.ndim
        shape[dim] = -1
        product = product * reshape(weight, shape)
    if reduction == "none":
        return -sum(product, dim)
    batch = scores.array.size // classes if classes else 0
    return -sum(product) / batch if reduction == "mean" else -sum(product)


@public(**functional)
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target * (log(target) - input), elementwise or reduced ("batchmean" divides by the batch). Differentiable."""
    if reduction == "batchmean":
        total = kl_div(input, target, reduction="sum", log_target=log_target)
        return total / input.array.shape[0] if input.array.ndim else total
    reduction = _reduction(size_average, reduce, reduction)
    loss = exp(target) * (target - input) if log_target else xlogy(target, target) - target * input
    return _reduced(loss, reduction)


def _share(g, input, weight, reduction):
    """The gradient of each elementwise loss."""
    g = g * _mean_scale(reduction, count_of(input))
    return g if weight is None else g * weight


def _bce_values(x, target):
    a, b = np.maximum(np.log(x), -100), np.maximum(np.log1p(-x), -100)
    return (target - 1) * b - target * a


_bce_fused = kernels.fused("bce", _bce_values, 2)


def _bce_arrays(x, target, weight, reduction):
    return _reduced_arrays(_bce_fused(x, target), weight, reduction)


@twin(
    kernels.fused(
        "bce_gradient", lambda share, x, target: share * (x - target) / np.maximum((1 - x) * x, x.dtype.type(1e-12)), 3
    )
)
def bce_gradient(share, x, target):
    """The gradient of binary cross entropy in its input."""
    return share * (x - target) / clamp((1 - x) * x, 1e-12)


_bce = op("binary_cross_entropy", _bce_arrays,
    lambda g, input, target, weight, _out, reduction:
        bce_gradient(_share(g, input, weight, reduction), input, target),
    lambda g, input, _target, weight, _out, reduction:
        _share(g, input, weight, reduction) * (log(1 - input) - log(input)),
    None, optional=("weight",), batch=batching.reduced)  # fmt: skip


@public(**functional)
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-(t log p + (1 - t) log(1 - p)) with logarithms limited to -100. p = input in [0, 1]. Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    if input.array.shape != target.array.shape:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
                         "Please ensure they have the same size.")  # fmt: skip
    values = batching.all_values(input)
    if values.size and (values.min() < 0 or values.max() > 1):
        raise RuntimeError("all elements of input should be between 0 and 1")
    if input.dtype is not target.dtype:
        raise RuntimeError(
            f"Found dtype {dtypes.scalar_type_name(target.dtype)} but expected {dtypes.scalar_type_name(input.dtype)}"
        )
    return _bce(input, target, None if weight is None else expand(weight, input.array.shape), reduction)


_bce_logits_values = kernels.fused(
    "bce_logits", lambda x, target: np.maximum(x, 0) - x * target + np.log1p(np.exp(-np.abs(x))), 2
)


def _bce_logits_arrays(x, target, weight, pos_weight, reduction):
    if pos_weight is None:
        return _reduced_arrays(_bce_logits_values(x, target), weight, reduction)
    far = np.log1p(np.exp(-np.abs(x)))
    losses = (1 - target) * x + ((pos_weight - 1) * target + 1) * (far + np.maximum(-x, 0))
    return _reduced_arrays(losses, weight, reduction)


@twin(kernels.fused("bce_logits_gradient", lambda share, x, target: share * (sigmoid.arrays(x) - target), 3))
def bce_logits_gradient(share, x, target):
    """The gradient of binary cross entropy with logits in its input."""
    return share * (sigmoid(x) - target)


def _bce_logits_input_gradient(share, x, target, pos_weight):
    if pos_weight is None:
        return bce_logits_gradient(share, x, target)
    return share * ((1 - target) - ((pos_weight - 1) * target + 1) * sigmoid(-x))


def _bce_logits_target_slope(x, pos_weight):
    return -x if pos_weight is None else (pos_weight - 1) * softplus_(-x) - x


@twin(lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))
def softplus_(x):
    """log(1 + exp(x)), without overflow."""
    return -logsigmoid(-x)


_bce_logits = op("binary_cross_entropy_with_logits", _bce_logits_arrays,
    lambda g, input, target, weight, pos_weight, _out, reduction:
        _bce_logits_input_gradient(_share(g, input, weight, reduction), input, target, pos_weight),
    lambda g, input, _target, weight, pos_weight, _out, reduction:
        _share(g, input, weight, reduction) * _bce_logits_target_slope(input, pos_weight),
    None, None, optional=("weight", "pos_weight"), batch=batching.reduced)  # fmt: skip


@public(**functional)
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """binary_cross_entropy of sigmoid(input), without overflow. Differentiable in both."""
    reduction = _reduction(size_average, reduce, reduction)
    if input.array.shape != target.array.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    t = dtypes.promote([input.array, target.array])
    input, target = to(input, t), to(target, t)
    shape = input.array.shape
    weight = None if weight is None else expand(weight, shape)
    pos_weight = None if pos_weight is None else expand(to(pos_weight, t), shape)
    return _bce_logits(input, target, weight, pos_weight, reduction)


@public(**functional)
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """input where target is 1, max(0, margin - input) where it is -1. Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    near = where(target == -1, 0.0 * input, input)
    far = where(target == 1, 0.0 * input, clamp_min(margin - input, 0))
    return _reduced(near + far, reduction)


@public(**functional)
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """max(0, -target * (input1 - input2) + margin). Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    return _reduced(clamp_min(-target * (input1 - input2) + margin, 0), reduction)


@public(**functional)
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target * input)). Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    check_broadcast(input.array.shape, target.array.shape)
    if input.array.shape != target.array.shape:
        shape = np.broadcast_shapes(input.array.shape, target.array.shape)
        input, target = expand(input, shape), expand(target, shape)
    return _soft_margin(input, target, reduction)


_soft_margin = op("soft_margin_loss", lambda x, target, reduction: _reduced_arrays(np.log1p(np.exp(-target * x)), None, reduction),
    lambda g, input, target, _out, reduction: -_share(g, input, None, reduction) * target * sigmoid(-target * input),
    None, batch=batching.reduced)  # fmt: skip


@public(**functional)
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    """The negative log likelihood of counts. Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    loss = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        stirling = target * log(target) - target + 0.5 * log(2 * math.pi * target)
        loss = loss + masked_fill(stirling, target <= 1, 0)
    return _reduced(loss, reduction)


@public(**functional)
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """The negative log likelihood of normal variables with mean `input` and variance `var`. Differentiable."""
    _check_reduction(reduction)
    if not isinstance(var, Tensor):
        var = Tensor._from(np.full(input.array.shape, var, input.array.dtype))
    if (batching.all_values(var) < 0).any():
        raise ValueError("var has negative entry/entries")
    if var.array.shape != input.array.shape:
        if input.array.shape[:-1] == var.array.shape:
            var = reshape(var, (*var.array.shape, 1))
        elif (
            input.array.ndim != var.array.ndim
            or builtins.sum(v != n for v, n in zip(var.array.shape, input.array.shape)) != 1
            or not all(v in (n, 1) for v, n in zip(var.array.shape, input.array.shape))
        ):
            raise ValueError("var is of incorrect size")
    clamped = masked_fill(var, var < eps, eps)
    loss = 0.5 * (log(clamped) + (input - target) ** 2 / clamped)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, reduction)


@public(method=False)
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along `dim`. Differentiable in both."""
    t = dtypes.promote([x1.array, x2.array])
    if t.category < 2:
        raise RuntimeError("expected common dtype to be floating point, yet common dtype is " + dtypes.scalar_type_name(t))
    x1, x2 = to(x1, t), to(x2, t)
    if x1.array.shape != x2.array.shape:
        check_broadcast(x1.array.shape, x2.array.shape)
        shape = np.broadcast_shapes(x1.array.shape, x2.array.shape)
        x1, x2 = expand(x1, shape), expand(x2, shape)
    n1, n2 = vector_norm(x1, 2, dim, True), vector_norm(x2, 2, dim, True)
    return sum((x1 / clamp(n1, min=eps)) * (x2 / clamp(n2, min=eps)), dim)


public(name="cosine_similarity", **functional)(cosine_similarity)


@public(**functional)
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1. Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    rows = target.array.ndim
    if rows > 1:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.array.ndim != rows + 1 or input2.array.ndim != rows + 1:
        raise RuntimeError(f"{rows}D target tensor expects {rows + 1}D input tensors, but found inputs with sizes {list(input1.array.shape)} "
                           f"and {list(input2.array.shape)}.")  # fmt: skip
    sizes = (sum(input1 * input1, rows) + 1e-12) * (sum(input2 * input2, rows) + 1e-12)
    cos = sum(input1 * input2, rows) / sqrt(sizes)
    zero = cos * 0
    near, far = 1 - cos, clamp_min(cos - margin, 0)
    return _reduced(where(target == 1, near, zero) + where(target == -1, far, zero), reduction)


@public(**functional)
def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension. Differentiable."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@public(**functional)
def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"
):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin). Differentiable."""
    reduction = _reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return _reduced(clamp_min(margin + near - far, 0), reduction)


def _multi_margin_tensors(input, target, weight, p, margin, reduction):
    right = input.gather(1, reshape(target, -1, 1))
    z = clamp(margin - right + input, min=0)
    z = z if p == 1 else z * z
    if weight is not None:
        z = z * reshape(_index_select(weight, target, 0), -1, 1)
    mask = Tensor._from(np.arange(input.array.shape[1])) == reshape(target, -1, 1)
    return _reduced(sum(masked_fill(z, mask, 0), 1) / input.array.shape[1], reduction)


_multi_margin = composite("multi_margin_loss", _multi_margin_tensors, 3, optional=("weight",), promote="keep",
                          batch=batching.rows_rule)  # fmt: skip


@public(**functional)
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """sum over i != t of max(0, margin - x[t] + x[i])^p / C. Differentiable in input."""
    reduction = _reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.array.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    shape = input.array.shape
    if len(shape) > 2 or 0 in shape[-1:]:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(shape)}")
    single = len(shape) < 2
    x, t = (reshape(input, 1, -1), reshape(target, 1)) if single and target.array.size == 1 else (input, target)
    if x.array.ndim != 2 or t.array.shape != x.array.shape[:1]:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size). Expected "
            f"target size [{1 if single else shape[0]}], but got {list(target.array.shape)}. Input has shape {list(shape)}."
        )
    if weight is not None and weight.array.size != x.array.shape[1]:
        raise RuntimeError(f"inconsistent weight size, expected {x.array.shape[1]} but got {list(weight.array.shape)}")
    if t.dtype is not dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_type_name(t.dtype)}")
    classes = batching.all_values(t)
    if classes.size and (classes.min() < 0 or classes.max() >= x.array.shape[1]):
        raise RuntimeError("target out of range")
    result = _multi_margin(x, t, None if weight is None else weight.detach(), p, margin, reduction)
    return reshape(result, ()) if single and reduction == "none" else result


@public(**functional)
def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """input divided by its p-norm along `dim` (at least eps). Differentiable."""
    result = input / clamp(vector_norm(input, p, dim, True), min=eps).expand_as(input)
    return result if out is None else write_out(out, result)
