"""Connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

import numpy as np

from .. import batching, dtypes
from ..op import op, public
from ..tensor import Tensor
from .choose import clamp, masked_fill
from .conv import functional
from .pointwise import not_differentiable
from .reduce import mean, sum
from .shape import reshape, squeeze, unsqueeze

# A path through time spells the target with blanks before, between and after its labels: the states 0..2S of a sample.
# Everything below has the shape (batch, states); a state whose label doesn't exist has probability zero, log -inf.


def _states(targets, lengths, blank):
    """(labels of the states, states that exist, states that may be entered from two states before)."""
    n, s = targets.shape
    labels = np.full((n, 2 * s + 1), blank, np.int64)
    labels[:, 1::2] = targets
    exists = np.arange(2 * s + 1) < 2 * lengths[:, None] + 1
    skips = np.zeros(labels.shape, bool)
    skips[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    return np.where(exists, labels, blank), exists, skips


def _shifted(x, count):
    """x moved by some states (to the right if count > 0), -inf coming in."""
    out = np.full_like(x, -np.inf)
    if count > 0:
        out[:, count:] = x[:, :-count]
    else:
        out[:, :count] = x[:, -count:]
    return out


def _log_sum(*terms):
    top = np.maximum.reduce(terms)
    top = np.where(np.isneginf(top), 0, top)
    return np.log(np.add.reduce([np.exp(t - top) for t in terms])) + top


def _forward(emitted, exists, skips):
    """alpha[t, n, s]: the log probability of all beginnings that are in state s at time t."""
    alpha = np.full_like(emitted, -np.inf)
    alpha[0, :, :2] = emitted[0, :, :2]
    for t in range(1, len(emitted)):
        before = alpha[t - 1]
        two = np.where(skips, _shifted(before, 2), -np.inf)
        alpha[t] = _log_sum(before, _shifted(before, 1), two) + emitted[t]
    return np.where(exists, alpha, -np.inf)


def _backward(emitted, exists, skips, times, lengths):
    """beta[t, n, s]: likewise of all endings from state s at time t."""
    beta = np.full_like(emitted, -np.inf)
    states = np.arange(emitted.shape[2])
    final = (states >= 2 * lengths[:, None] - 1) & exists
    enters = np.zeros_like(skips)  # from two states before
    enters[:, :-2] = skips[:, 2:]
    for t in range(len(emitted) - 1, -1, -1):
        if t + 1 < len(emitted):
            after = np.where(exists, beta[t + 1], -np.inf)
            two = np.where(enters, _shifted(after, -2), -np.inf)
            beta[t] = _log_sum(after, _shifted(after, -1), two) + emitted[t]
        ends = (times == t + 1)[:, None]
        beta[t] = np.where(ends, np.where(final, emitted[t], -np.inf), beta[t])
    return np.where(exists, beta, -np.inf)


def _ctc_arrays(log_probs, targets, times, lengths, blank):
    labels, exists, skips = _states(targets, lengths, blank)
    emitted = np.take_along_axis(log_probs, np.broadcast_to(labels, (len(log_probs), *labels.shape)), 2)
    alpha = _forward(emitted, exists, skips) if len(log_probs) else np.empty((0, *labels.shape), log_probs.dtype)
    n = np.arange(len(times))
    last = alpha[times - 1, n]
    end = last[n, 2 * lengths]
    inner = np.where(lengths > 0, last[n, np.maximum(2 * lengths - 1, 0)], -np.inf)
    loss = -_log_sum(end, inner)
    return np.where(times > 0, loss, np.where(lengths > 0, np.inf, 0)).astype(log_probs.dtype)


def _ctc_gradient_arrays(g, log_probs, targets, times, lengths, loss, blank, zero_infinity):
    """What remains to be explained: the probabilities minus those of the states given the target.

    This is the gradient through a log_softmax before, as PyTorch has it.
    """
    labels, exists, skips = _states(targets, lengths, blank)
    labels_in_time = np.broadcast_to(labels, (len(log_probs), *labels.shape))
    emitted = np.take_along_axis(log_probs, labels_in_time, 2)
    both = _forward(emitted, exists, skips) + _backward(emitted, exists, skips, times, lengths)
    share = np.exp(np.where(exists, both + loss[:, None] - emitted, -np.inf))
    total = np.zeros_like(log_probs)
    rows, columns = np.ogrid[: total.shape[0], : total.shape[1]]
    np.add.at(total, (rows[..., None], columns[..., None], labels_in_time), share)
    result = (np.exp(log_probs) - total) * g[:, None]
    if zero_infinity:
        result = np.where(np.isinf(loss)[:, None], 0, result)
    return np.where((np.arange(len(log_probs))[:, None] < times)[..., None], result, 0).astype(log_probs.dtype)


_ctc = op("ctc_loss", lambda log_probs, targets, times, lengths, blank, _zero_infinity:
        _ctc_arrays(log_probs, targets, times, lengths, blank),
    lambda g, log_probs, targets, times, lengths, out, blank, zero_infinity:
        _ctc_gradient(g, log_probs, targets, times, lengths, out, blank, zero_infinity),
    None, None, None, promote="keep")  # fmt: skip
_ctc_gradient = op("ctc_loss_gradient", _ctc_gradient_arrays,
    lambda _g, _grad, _log_probs, _targets, _times, _lengths, _loss, _out, _blank, _zero: not_differentiable("_ctc_loss_backward"),
    lambda _g, _grad, _log_probs, _targets, _times, _lengths, _loss, _out, _blank, _zero: not_differentiable("_ctc_loss_backward"),
    None, None, None, None, promote="keep")  # fmt: skip


def _lengths_of(name, value):
    if isinstance(value, Tensor):
        if not (value.dtype.category < 2):
            raise RuntimeError(f"{name} must be integral")
        return value.array.reshape(-1).astype(np.int64)
    return np.asarray(value, np.int64).reshape(-1)


def _rows_of(targets, lengths):
    """Targets that are given one after the other, as rows."""
    rows = np.zeros((len(lengths), int(lengths.max(initial=0))), np.int64)
    start = 0
    for row, length in zip(rows, lengths):
        row[:length] = targets[start : start + length]
        start += length
    return rows


@public(method=False)
@batching.in_loop
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """-log of the probability that the frames spell the target (Graves et al. 2006). Differentiable in log_probs, once.

    log_probs (T, N, C), the output of log_softmax; targets (N, S) or all in one row; "mean" divides by the target's length
    first. zero_infinity: no loss and no gradient where the frames are too few.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    single = log_probs.array.ndim == 2
    x = unsqueeze(log_probs, 1) if single else log_probs
    if x.array.dtype not in (np.float32, np.float64):
        raise NotImplementedError(f"\"ctc_loss_cpu\" not implemented for '{dtypes.scalar_type_name(x.dtype)}'")
    frames, batch, classes = x.array.shape
    times, lengths = _lengths_of("input_lengths", input_lengths), _lengths_of("target_lengths", target_lengths)
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    if targets.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(
            f"Expected tensor for argument #2 'targets' to have scalar type Long or Int, but got {targets.type()}"
        )
    for name, values in (("input_lengths", times), ("target_lengths", lengths)):
        if len(values) != batch:
            raise RuntimeError(f"{name} must be of size batch_size")
        if values.size and values.min() < 0:
            raise RuntimeError(f"{name} must be non-negative")
    if times.size and times.max() > frames:
        i = int(np.argmax(times > frames))
        raise RuntimeError(f"Expected input_lengths to have value at most {frames}, but got value {times[i]} (while checking arguments for "
                           "ctc_loss_cpu)")  # fmt: skip
    if targets.array.ndim == 1:
        if lengths.sum() != targets.array.size:
            raise RuntimeError(f"Expected tensor to have size {lengths.sum()} at dimension 0, but got size {targets.array.size} for argument #2 "
                               "'targets' (while checking arguments for ctc_loss_cpu)")  # fmt: skip
        rows = _rows_of(targets.array, lengths)
    else:
        if targets.array.shape[0] != batch or (lengths.size and targets.array.shape[1] < lengths.max()):
            raise RuntimeError(f"Expected tensor to have size at least {lengths.max(initial=0)} at dimension 1, but got size "
                               f"{list(targets.array.shape)} for argument #2 'targets' (while checking arguments for ctc_loss_cpu)")  # fmt: skip
        rows = targets.array.astype(np.int64)
    rows = np.where(np.arange(rows.shape[1]) < lengths[:, None], rows, blank)
    loss = _ctc(x, *map(Tensor._from, (rows, times, lengths)), blank, zero_infinity)
    if zero_infinity:
        loss = masked_fill(loss, loss == np.inf, 0)
    if reduction == "mean":
        return mean(loss / clamp(Tensor._from(lengths.astype(x.array.dtype)), min=1))
    if reduction == "sum":
        return sum(loss)
    return squeeze(loss, 0) if single else reshape(loss, (batch,))


public(name="ctc_loss", **functional)(ctc_loss)
