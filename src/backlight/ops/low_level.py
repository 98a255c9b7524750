"""Functions of the package itself that stand behind nn.functional's, with PyTorch's own order of arguments."""

from __future__ import annotations

import numpy as np

from ..op import op, public
from ..tensor import Tensor
from .conv import conv1d
from .grid import grid_sample
from .linalg import norm
from .loss import pairwise_distance
from .nn import _check_probability, _dropout_mask, alpha_dropout, bilinear, dropout, feature_alpha_dropout
from .nn import embedding as _embedding_by_index
from .pool import adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d, max_pool1d
from .shape import permute

for _name, _function in (("bilinear", bilinear), ("pairwise_distance", pairwise_distance)):
    public(name=_name, method=False)(_function)


@public(method=False)
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """The rows of `weight` at the indices: nn.functional.embedding with the arguments exchanged. Differentiable in weight."""
    padding = padding_idx if padding_idx >= 0 else None
    return _embedding_by_index(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def _dropouts(name, function):
    def out_of_place(input, p, train):
        return function(input, p, train)

    def in_place(input, p, train):
        return function(input, p, train, True)

    out_of_place.__doc__ = f"nn.functional.{name}. Differentiable."
    in_place.__doc__ = f"nn.functional.{name}, written into the input."
    if name != "dropout":
        public(name=name, method=False)(out_of_place)
    public(name=f"{name}_", method=False)(in_place)


def _feature_dropout(input, p, train, inplace=False):
    """Zeroes whole channels with probability p and scales the rest. (N, C, *) -> the same."""
    _check_probability(p)
    if not train or p == 0:
        return input
    if input.array.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    if p == 1:
        return input.mul_(0) if inplace else input * 0
    mask = _dropout_mask(input.array.shape[:2] + (1,) * (input.array.ndim - 2), input.array.dtype, p)
    return input.mul_(mask) if inplace else input * mask


for _name, _function in (
    ("dropout", dropout), ("alpha_dropout", alpha_dropout), ("feature_alpha_dropout", feature_alpha_dropout),
    ("feature_dropout", _feature_dropout),
):  # fmt: skip
    _dropouts(_name, _function)

_native_dropout = op("native_dropout", lambda x, mask, scale: x * mask * x.dtype.type(scale),
    lambda g, _input, mask, _out, scale: g * mask * scale, None, promote="keep")  # fmt: skip


@public(method=False)
def native_dropout(input, p, train):
    """(input with elements zeroed with probability p and the rest scaled, the bool mask of what was kept). Differentiable."""
    _check_probability(p)
    if train is False:
        return input * 1, Tensor._from(np.ones(input.array.shape, bool))
    mask = _dropout_mask(input.array.shape, input.array.dtype, p, scaled=False, like=input.array).bool()
    return _native_dropout(input, mask, 0.0 if p == 1 else 1 / (1 - p)), mask


_MODES, _PADDING = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@public(method=False)
def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """nn.functional.grid_sample with its modes as numbers, in the order of that function's documentation. Differentiable."""
    return grid_sample(input, grid, _MODES[interpolation_mode], _PADDING[padding_mode], align_corners)


for _name in ("grid_sampler_2d", "grid_sampler_3d"):
    public(name=_name, method=False)(grid_sampler)


@public(method=False)
def conv_tbc(input, weight, bias, pad=0):
    """One-dimensional convolution of (time, batch, channel) tensors. (T, B, C), (K, C, O), (O) -> (T', B, O). Differentiable."""
    for name, x, n in (("Input", input, 3), ("Weight tensor", weight, 3), ("Bias", bias, 1)):
        if x.array.ndim != n:
            raise RuntimeError(f"{name} must have {n} dims" + (": time, batch, in_channel" if name == "Input" else ""))
    result = conv1d(permute(input, 1, 2, 0), permute(weight, 2, 1, 0), bias, 1, pad)
    return permute(result, 2, 0, 1)


public(name="conv_tbc", method=False, module="nn.functional")(conv_tbc)


@public(method=False)
def nuclear_norm(input, dim=None, keepdim=False):
    """The sum of the singular values of matrices in two dimensions. Differentiable."""
    return norm(input, "nuc", dim, keepdim)


def _indexed(name, function, module):
    def with_indices(*args, **kwargs):
        return function(*args, **{**kwargs, "return_indices": True})

    with_indices.__doc__ = f"{name} with return_indices=True."
    public(name=f"{name}_with_indices", method=False, module=module)(with_indices)


for _n, _function in enumerate((adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d), 1):
    _indexed(f"adaptive_max_pool{_n}d", _function, "nn.functional")
_indexed("max_pool1d", max_pool1d, "torch")
