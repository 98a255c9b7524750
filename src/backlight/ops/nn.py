"""Dropout, embedding, bilinear forms, attention."""

from __future__ import annotations

import math

import numpy as np

from .. import batching, dtypes, kernels, random
from ..kernels import FUSED
from ..op import op, public, twin
from ..state import modes
from ..tensor import Tensor
from ..views import bump
from .activation import functional, write_if
from .choose import masked_fill
from .einsum import einsum
from .linalg import matmul
from .reduce import softmax
from .shape import transpose

# Dropout. The mask is drawn as PyTorch's CPU code draws it, so the random stream stays in step.


def _check_probability(p):
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _dropout_mask(shape, dtype, p, scaled=True, like=None):
    """Zeros and ones (or 1 / (1 - p) in their place, if scaled) as a tensor, drawn in the order of `like`'s memory."""

    def draw(shape):
        array = np.empty(shape, dtype) if like is None or modes.levels or like.shape != shape else np.empty_like(like)
        mask = random.bernoulli_(array, 1 - p)
        if scaled:
            mask /= dtype.type(1 - p)
        return mask

    return batching.sampled(draw, shape) if modes.levels else Tensor._from(draw(shape))


@public(method=False)
def dropout(input, p=0.5, training=True, inplace=False):
    """Zeroes elements with probability p and scales the rest by 1 / (1 - p), when training. Differentiable."""
    _check_probability(p)
    if not training or p == 0 or not input.array.size:
        return input
    if p == 1:
        zero = Tensor._from(np.zeros((), input.array.dtype))
        return write_if(inplace, input, lambda x: x * zero)
    mask = _dropout_mask(input.array.shape, input.array.dtype, p, like=input.array)
    return write_if(inplace, input, lambda x: x * mask)


public(name="dropout", **functional)(dropout)


def _feature_dropout(name, minimum):
    def function(input, p=0.5, training=True, inplace=False):
        _check_probability(p)
        if input.array.ndim < minimum - 1 or input.array.ndim < 2:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
        x = input
        if not training or p == 0:
            return x
        single = input.array.ndim == minimum - 1 != 3  # dropout2d takes three dimensions for (N, C, L)
        shape = (1, input.array.shape[0]) if single else input.array.shape[:2]
        if p == 1:
            return write_if(inplace, input, lambda y: y * 0)
        mask = _dropout_mask(shape + (1,) * (minimum - 2), input.array.dtype, p)
        mask = mask[0] if single else mask.reshape(shape + (1,) * (input.array.ndim - 2))
        return write_if(inplace, input, lambda y: y * mask)

    function.__doc__ = "Zeroes whole channels with probability p and scales the rest, when training. Differentiable."
    return public(name=name, **functional)(function)


dropout1d, dropout2d, dropout3d = (_feature_dropout(f"dropout{n}d", n + 2) for n in (1, 2, 3))


@public(**functional)
def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance of selu networks (Klambauer et al. 2017). Differentiable."""
    _check_probability(p)
    if not training or p == 0:
        return input
    return _alpha_dropout(input, p, inplace, input.array.shape)


@public(**functional)
def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of whole channels. (N, C, *) -> the same. Differentiable."""
    _check_probability(p)
    if not training or p == 0:
        return input
    if input.array.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return _alpha_dropout(input, p, inplace, input.array.shape[:2] + (1,) * (input.array.ndim - 2))


def _alpha_dropout(input, p, inplace, mask_shape):
    alpha = 1.7580993408473766
    if p == 1:
        return write_if(inplace, input, lambda x: x * 0)
    mask = _dropout_mask(mask_shape, input.array.dtype, p, scaled=False, like=input.array)
    a = 1 / math.sqrt((alpha * alpha * p + 1) * (1 - p))
    shift = (mask - 1) * (alpha * a) + alpha * a * p
    keep = mask * a
    return write_if(inplace, input, lambda x: x * keep + shift)


# Embedding


def _embedding_arrays(w, index, _padding):
    if index.dtype == np.int64 and index.size * w.shape[-1] >= FUSED and kernels.compute(1, w):
        return kernels.indexing.take_slices(w, index, 0)
    return w[index]


_embedding = op("embedding", _embedding_arrays,
    lambda g, input_shape, index, _out, padding: embedding_gradient(g, index, input_shape, padding), None,
    promote="keep", node="EmbeddingBackward0", batch=batching.embedding_rule)  # fmt: skip


def _embedding_gradient_arrays(g, index, shape, padding):
    out = np.zeros(shape, g.dtype)
    if padding >= 0:
        keep = index != padding
        index, g = index[keep], g[keep]
    if index.dtype == np.int64 and kernels.compute(FUSED, g):
        kernels.indexing.add_slices(out, index, g, 0)
    else:
        np.add.at(out, index, g)
    return out


embedding_gradient = op("embedding_gradient", _embedding_gradient_arrays,
    lambda g, _input, index, _out, _shape, padding: masked_rows(_embedding(g, index, padding), index, padding), None,
    promote="keep")  # fmt: skip


@twin(lambda g, index, padding: g if padding < 0 else np.where((index == padding)[..., None], np.zeros((), g.dtype), g))
def masked_rows(g, index, padding):
    """g with zeros in the rows of the padding index."""
    return g if padding < 0 else masked_fill(g, (index == padding).unsqueeze(-1), 0)


def limit_norms(weight, index, max_norm, norm_type):
    """Rescales, in place, the rows of the weight that are used and have a greater norm."""
    used = np.unique(index)
    rows = weight.array[used]
    norms = (np.abs(rows) ** norm_type).sum(1, keepdims=True) ** (1 / norm_type)
    weight.array[used] = np.where(norms > max_norm, rows * (max_norm / (norms + 1e-7)), rows)
    bump(weight)


@public(**functional)
def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """The rows of `weight` at the indices. (*S) int64, (N, E) -> (*S, E). Differentiable in weight.

    padding_idx gets no gradient; max_norm rescales the rows that are used, in place.
    """
    if sparse and weight.requires_grad:
        raise NotImplementedError("embedding(sparse=True): sparse gradients are out of Backlight's scope")
    if input.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError("Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
                           f"{input.type()} instead (while checking arguments for embedding)")  # fmt: skip
    if weight.array.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    n = weight.array.shape[0]
    if padding_idx is not None:
        if not -n <= padding_idx < n:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= n
    index = batching.all_values(input)
    if index.size and (index.min() < 0 or index.max() >= n):
        raise IndexError("index out of range in self")
    if max_norm is not None:
        limit_norms(weight, index, max_norm, norm_type)
    if scale_grad_by_freq:
        _values, inverse, counts = np.unique(index, return_inverse=True, return_counts=True)
        return _scaled_embedding(
            weight, input, Tensor._from((1 / counts[inverse.reshape(index.shape)]).astype(weight.array.dtype))
        )
    return _embedding(weight, input, -1 if padding_idx is None else padding_idx)


_scaled_embedding = op("scaled_embedding", lambda w, index, _scale: w[index],
    lambda g, input_shape, index, scale, _out: embedding_gradient(g * scale.reshape(scale.shape + (1,)), index, input_shape, -1), None, None,
    promote="keep", node="EmbeddingBackward0")  # fmt: skip


@public(**functional)
def bilinear(input1, input2, weight, bias=None):
    """x1 @ W[k] @ x2 for every output k. (*, I), (*, J), (O, I, J) -> (*, O). Differentiable in all."""
    for i, (x, n) in enumerate(((input1, weight.array.shape[1]), (input2, weight.array.shape[2])), 1):
        if x.array.shape[-1] != n:
            raise RuntimeError(
                f"bilinear(): input{i} size does not match weight size: got {x.array.shape[-1]} but expected {n}"
            )
    result = einsum("...i,oij,...j->...o", input1, weight, input2)
    return result if bias is None else result + bias


# Attention


def _attention_arrays(q, k, v, scale, causal):
    """(output, logarithms of the softmax's denominators)."""
    if kernels.compute(FUSED, q, k, v) and kernels.attention.has_kernel(q, v):
        return kernels.attention.forward(q, k, v, scale, causal)
    scores = np.matmul(q * q.dtype.type(scale), k.swapaxes(-2, -1))
    if causal:
        scores[..., ~np.tril(np.ones(scores.shape[-2:], bool))] = -math.inf
    most = np.maximum.reduce(scores, -1, keepdims=True)
    weights = np.exp(scores - most)
    total = np.add.reduce(weights, -1, keepdims=True)
    return np.matmul(weights / total, v), (most + np.log(total))[..., 0]


def _attention_gradient_arrays(grads, q, k, v, out, scale, causal):
    out, logarithms = out
    g = grads[0]
    if kernels.compute(FUSED, q, k, v, g) and kernels.attention.has_kernel(q, v):
        return kernels.attention.backward(g, q, k, v, out, logarithms, scale, causal)
    scaled = q * q.dtype.type(scale)
    weights = np.exp(np.matmul(scaled, k.swapaxes(-2, -1)) - logarithms[..., None])
    if causal:
        weights *= np.tril(np.ones(weights.shape[-2:], bool))
    slopes = weights * (np.matmul(g, v.swapaxes(-2, -1)) - np.add.reduce(g * out, -1, keepdims=True))
    gk = np.matmul(slopes.swapaxes(-2, -1), scaled)
    return np.matmul(slopes, k) * q.dtype.type(scale), gk, np.matmul(weights.swapaxes(-2, -1), g)


@twin(_attention_gradient_arrays)
def attention_gradient(grads, q, k, v, _out, scale, causal):
    """The gradients of q, k and v, as operations."""
    from .. import autograd

    inputs = [x if x.requires_grad else x.detach().requires_grad_() for x in (q, k, v)]
    result = _attention(*inputs, None, 0.0, causal, scale)
    return autograd.grad(result, inputs, grads[0], create_graph=True)


_fused_attention = op("_scaled_dot_product_flash_attention_for_cpu", _attention_arrays, outputs=2, nondifferentiable=(1,),
    joint=lambda g, query, key, value, out, scale, causal: attention_gradient(g, query, key, value, out, scale, causal))  # fmt: skip


@public(**functional)
def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """softmax(query @ key^T * scale + mask) @ value. (..., L, E), (..., S, E), (..., S, V) -> (..., L, V). Differentiable.

    attn_mask: bool (True: attend) or additive; is_causal: position i attends to j <= i (Vaswani et al. 2017).
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    q, k, v = query.array, key.array, value.array
    # As in PyTorch one operation computes the common case, whose second derivatives are those of the steps below.
    if (attn_mask is None and not dropout_p and not modes.levels and q.ndim == 4 and q.size and k.size and v.size
            and q.dtype.char in "fd" and q.dtype is k.dtype is v.dtype
            and q.shape[:2] == k.shape[:2] == v.shape[:2] and q.shape[3] == k.shape[3] == v.shape[3] and k.shape[2] == v.shape[2]):  # fmt: skip
        return _fused_attention(query, key, value, 1 / math.sqrt(q.shape[3]) if scale is None else scale, is_causal)[0]
    return _attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa=False):
    """scaled_dot_product_attention step by step."""
    length, source = query.array.shape[-2], key.array.shape[-2]
    factor = math.sqrt(scale if scale is not None else 1 / math.sqrt(query.array.shape[-1]))
    if enable_gqa:
        times = query.array.shape[-3] // key.array.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    scores = matmul(query * factor, transpose(key, -2, -1) * factor)
    mask = None
    if is_causal:
        mask = Tensor._from(np.tril(np.ones((length, source), bool)))
    elif attn_mask is not None:
        mask = attn_mask
    if mask is not None:
        if mask.dtype is dtypes.bool_:
            scores = masked_fill(scores, ~mask, -math.inf)
        else:
            scores = scores + mask
    weights = softmax(scores, -1)
    if mask is not None:
        weights = masked_fill(weights, (scores == -math.inf).all(-1, keepdim=True), 0)
    return matmul(dropout(weights, dropout_p) if dropout_p else weights, value)
