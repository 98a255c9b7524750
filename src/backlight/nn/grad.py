"""Gradients of convolutions as functions: `torch.nn.grad.conv2d_input` and its like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..autograd import enable_grad
from ..autograd import grad as _grad
from ..tensor import Tensor
from . import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradient(function: Callable, size: Sequence[int], grad_output: Tensor) -> Tensor:
    """The gradient of a linear function at zeros of this size."""
    with enable_grad():
        zeros = grad_output.new_zeros(tuple(size)).requires_grad_()
        return _grad(function(zeros), zeros, grad_output)[0]


def _pair(n: int) -> tuple[Callable, Callable]:
    convolution = getattr(F, f"conv{n}d")

    def of_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1) -> Tensor:
        settings = stride, padding, dilation, groups
        return _gradient(lambda x: convolution(x, weight, None, *settings), input_size, grad_output)

    def of_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1) -> Tensor:
        settings = stride, padding, dilation, groups
        return _gradient(lambda w: convolution(input, w, None, *settings), weight_size, grad_output)

    of_input.__name__, of_weight.__name__ = f"conv{n}d_input", f"conv{n}d_weight"
    of_input.__doc__ = f"The gradient of conv{n}d with respect to its input of `input_size`, from that of its output."
    of_weight.__doc__ = f"The gradient of conv{n}d with respect to its weight of `weight_size`, from that of its output."
    return of_input, of_weight


conv1d_input, conv1d_weight = _pair(1)
conv2d_input, conv2d_weight = _pair(2)
conv3d_input, conv3d_weight = _pair(3)
