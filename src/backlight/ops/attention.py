"""multi_head_attention_forward: what nn.MultiheadAttention computes (Vaswani et al. 2017)."""

from __future__ import annotations

import math
import warnings

import numpy as np

from .. import dtypes
from ..op import public
from ..tensor import Tensor
from .activation import functional
from .arrange import pad
from .join import cat
from .linalg import baddbmm, bmm, linear
from .nn import dropout, scaled_dot_product_attention
from .reduce import mean, softmax
from .shape import expand, narrow, repeat, reshape, squeeze, transpose, unsqueeze


def _check_ranks(query, key, value, key_padding_mask, attn_mask, heads):
    """Whether the inputs are a batch; AssertionError where they don't fit each other."""
    n = query.array.ndim
    if n not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {n}-D query tensor")
    start = "For batched (3-D) `query`" if n == 3 else "For unbatched (2-D) `query`"
    if key.array.ndim != n or value.array.ndim != n:
        raise AssertionError(f"{start}, expected `key` and `value` to be {n}-D but found {key.array.ndim}-D and {value.array.ndim}-D tensors "
                             "respectively")  # fmt: skip
    if key_padding_mask is not None and key_padding_mask.array.ndim != n - 1:
        raise AssertionError(f"{start}, expected `key_padding_mask` to be `None` or {n - 1}-D but found {key_padding_mask.array.ndim}-D tensor "
                             "instead")  # fmt: skip
    if attn_mask is not None:
        if attn_mask.array.ndim not in (2, 3):
            raise AssertionError(
                f"{start}, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.array.ndim}-D tensor instead"
            )
        wanted = (heads, query.array.shape[0], key.array.shape[0])
        if n == 2 and attn_mask.array.ndim == 3 and attn_mask.array.shape != wanted:
            raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {attn_mask.shape}")
    return n == 3


def additive_mask(mask, name, dtype, other=None, other_name=""):
    """A bool mask (True: don't look) as numbers to be added to the scores; numbers as they are."""
    if mask is None:
        return None
    if mask.dtype is not dtypes.bool_ and not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and other.dtype is not mask.dtype:
        warnings.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.", stacklevel=4
        )
    if mask.dtype is dtypes.bool_:
        return Tensor._from(np.where(mask.array, -math.inf, 0).astype(dtype.array_type))
    return mask


def _project(query, key, value, weight, bias):
    """Queries, keys and values by one weight (3E, E), in as few products as the inputs allow."""
    e = query.array.shape[-1]
    if key is value:
        if query is key:
            joined = linear(query, weight, bias)
            return tuple(narrow(joined, -1, i * e, e) for i in range(3))
        q = linear(query, narrow(weight, 0, 0, e), None if bias is None else narrow(bias, 0, 0, e))
        joined = linear(key, narrow(weight, 0, e, 2 * e), None if bias is None else narrow(bias, 0, e, 2 * e))
        return q, narrow(joined, -1, 0, e), narrow(joined, -1, e, e)
    return tuple(
        linear(x, narrow(weight, 0, i * e, e), None if bias is None else narrow(bias, 0, i * e, e))
        for i, x in enumerate((query, key, value))
    )


def _wider(mask):
    """The mask with a column more, for a key that may always be looked at."""
    return None if mask is None else pad(mask, (0, 1))


@public(**functional)
def multi_head_attention_forward(
    query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p,
    out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True, attn_mask=None,
    use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None,
    average_attn_weights=True, is_causal=False,
):  # fmt: skip
    """(attention output, attention weights or None) of projected queries, keys and values. Differentiable in all.

    query (L, N, E), key and value (S, N, E), or without N -> (L, N, E) and (N, L, S); masks are bool (True: don't look) or
    additive. AssertionError or RuntimeError for shapes that don't fit.
    """
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_kv, same_qk = key is value, query is key
        query, key = unsqueeze(query, 1), unsqueeze(key, 1)
        value = key if same_kv else unsqueeze(value, 1)
        key = query if same_qk else key
        value = key if same_kv else value
        if key_padding_mask is not None:
            key_padding_mask = unsqueeze(key_padding_mask, 0)
    length, batch, e = query.array.shape
    key_padding_mask = additive_mask(key_padding_mask, "key_padding_mask", query.dtype, attn_mask, "attn_mask")
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
                           "`generate_square_subsequent_mask` to create this mask.")  # fmt: skip
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # is_causal says it all
    else:
        attn_mask = additive_mask(attn_mask, "attn_mask", query.dtype)
        is_causal = False
    if e != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {e}")
    head = e // num_heads
    if head * num_heads != e:
        raise AssertionError(f"embed_dim {e} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        if key.array.shape[:2] != value.array.shape[:2]:
            raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
        for name, w in (("q", q_proj_weight), ("k", k_proj_weight), ("v", v_proj_weight)):
            if w is None:
                raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
        biases = (None,) * 3 if in_proj_bias is None else tuple(narrow(in_proj_bias, 0, i * e, e) for i in range(3))
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
    else:
        if key.array.shape != value.array.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)
    source = k.array.shape[0]
    if attn_mask is not None:
        wanted = (length, source) if attn_mask.array.ndim == 2 else (batch * num_heads, length, source)
        if attn_mask.array.shape != wanted:
            raise RuntimeError(
                f"The shape of the {attn_mask.array.ndim}D attn_mask is {attn_mask.shape}, but should be {wanted}."
            )
        if attn_mask.array.ndim == 2:
            attn_mask = unsqueeze(attn_mask, 0)
    if (bias_k is None) != (bias_v is None):
        names = ("bias_v", "bias_k") if bias_k is None else ("bias_k", "bias_v")
        raise AssertionError(f"{names[0]} is set but {names[1]} is None")
    if bias_k is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value")
        k, v = cat([k, repeat(bias_k, 1, batch, 1)], 0), cat([v, repeat(bias_v, 1, batch, 1)], 0)
        attn_mask, key_padding_mask = _wider(attn_mask), _wider(key_padding_mask)

    def by_head(x):
        return transpose(reshape(x, (x.array.shape[0], batch * num_heads, head)), 0, 1)

    q = by_head(q)
    k = by_head(k) if static_k is None else _checked_static("static_k", static_k, batch * num_heads, head)
    v = by_head(v) if static_v is None else _checked_static("static_v", static_v, batch * num_heads, head)
    if add_zero_attn:
        zeros = Tensor._from(np.zeros((batch * num_heads, 1, head), k.array.dtype))
        k, v = cat([k, zeros], 1), cat([v, zeros], 1)
        attn_mask, key_padding_mask = _wider(attn_mask), _wider(key_padding_mask)
    source = k.array.shape[1]
    if key_padding_mask is not None:
        if key_padding_mask.array.shape[0] != batch or key_padding_mask.array.shape[1] != source:
            i = 0 if key_padding_mask.array.shape[0] != batch else 1
            raise AssertionError(
                f"Expected key_padded_mask.shape[{i}] to be {(batch, source)[i]}, but got {key_padding_mask.array.shape[i]}"
            )
        hidden = reshape(expand(reshape(key_padding_mask, (batch, 1, 1, source)), (batch, num_heads, 1, source)),
                         (batch * num_heads, 1, source))  # fmt: skip
        attn_mask = hidden if attn_mask is None else attn_mask + hidden
    dropout_p = dropout_p if training else 0.0
    if need_weights:
        q = q * math.sqrt(1.0 / head)
        if attn_mask is not None:
            weights = softmax(baddbmm(attn_mask, q, transpose(k, -2, -1)), -1)
        else:
            weights = softmax(bmm(q, transpose(k, -2, -1)), -1)
        if dropout_p > 0.0:
            weights = dropout(weights, dropout_p)
        output = bmm(weights, v)
    else:
        weights = None
        if attn_mask is not None:
            if attn_mask.array.shape[0] == 1:
                attn_mask = unsqueeze(attn_mask, 0)
            else:
                attn_mask = reshape(attn_mask, (batch, num_heads, -1, source))
        q, k, v = (reshape(x, (batch, num_heads, x.array.shape[1], head)) for x in (q, k, v))
        output = reshape(
            scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal), (batch * num_heads, length, head)
        )
    output = reshape(transpose(output, 0, 1), (length * batch, e))
    output = linear(output, out_proj_weight, out_proj_bias)
    output = reshape(output, (length, batch, output.array.shape[1]))
    if weights is not None:
        weights = reshape(weights, (batch, num_heads, length, source))
        weights = mean(weights, 1) if average_attn_weights else weights
    if not batched:
        output = squeeze(output, 1)
        weights = None if weights is None else squeeze(weights, 0)
    return output, weights


def _checked_static(name, x, heads, head):
    for i, n in ((0, heads), (2, head)):
        if x.array.shape[i] != n:
            raise AssertionError(f"expecting {name}.size({i}) of {n}, but got {x.array.shape[i]}")
    return x
