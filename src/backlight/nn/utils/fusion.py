"""Batch norm folded into the layer before it, for evaluation."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

from ... import ones_like, rsqrt, zeros_like
from ...tensor import Parameter

if TYPE_CHECKING:
    from ...tensor import Tensor
    from ..module import Module

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

M = TypeVar("M", bound="Module")


def _copy_for(layer: M, bn: Module) -> M:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    return copy.deepcopy(layer)


def _statistics(bn: Module) -> Any:
    return bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias


def _fused(weight, bias, mean, var, eps, scale, shift, shape) -> tuple[Parameter, Parameter]:
    """weight and bias of the layer that computes what the layer and the batch norm did; `shape` is the channels' in weight."""
    bias_type = weight.dtype if bias is None else bias.dtype
    bias = zeros_like(mean) if bias is None else bias
    factor = (ones_like(mean) if scale is None else scale) * rsqrt(var + eps)
    shift = zeros_like(mean) if shift is None else shift
    new_weight = (weight * factor.reshape(shape)).to(dtype=weight.dtype)
    new_bias = ((bias - mean) * factor + shift).to(dtype=bias_type)
    return Parameter(new_weight, weight.requires_grad), Parameter(new_bias, bias.requires_grad)


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A copy of a convolution that also does what the batch norm after it does in evaluation."""
    fused = _copy_for(conv, bn)
    fused.weight, fused.bias = fuse_conv_bn_weights(fused.weight, fused.bias, *_statistics(bn), transpose=transpose)
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of `fuse_conv_bn_eval`, from those of the convolution and the batch norm's statistics."""
    channels = [1, -1] if transpose else [-1, 1]
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, channels + [1] * (conv_w.dim() - 2))


def fuse_linear_bn_eval(linear: M, bn: Module) -> M:
    """A copy of a Linear that also does what the batch norm after it does in evaluation."""
    fused = _copy_for(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got linear.out_features="
            f"{linear.out_features} and bn.num_features={bn.num_features}"
        )
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, *_statistics(bn))
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float, bn_w: Tensor, bn_b: Tensor
) -> tuple[Parameter, Parameter]:
    """Weight and bias of `fuse_linear_bn_eval`, from those of the Linear and the batch norm's statistics."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])
