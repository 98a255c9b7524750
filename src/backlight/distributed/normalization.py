"""Batch norm whose batch is that of all ranks together, for `SyncBatchNorm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import no_grad, rsqrt
from ..autograd import Function
from .collectives import all_reduce
from .groups import ProcessGroup, is_initialized, resolve

if TYPE_CHECKING:
    from ..tensor import Tensor


class _SumOverRanks(Function):
    """The sum of the ranks' tensors. Each rank's loss depends on all of them, so the gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx, tensor, group):
        ctx.group = group
        total = tensor.clone()
        all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, *gradients):
        total = gradients[0].clone()
        all_reduce(total, group=ctx.group)
        return total, None


def group_of(process_group: Any) -> ProcessGroup | None:
    """The group over which a layer normalises; None where there is only this process."""
    if process_group is None and not is_initialized():
        return None
    group = resolve(process_group)
    return group if group.size() > 1 else None


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, momentum: float, eps: float, group: ProcessGroup
) -> Tensor:
    """(N, C, *) -> (N, C, *): normalised by mean and variance of each channel over the inputs of all ranks, whose N may differ.

    Moves the running statistics towards them, with the unbiased variance. Differentiable in input, weight and bias.
    ValueError if all ranks together have one value per channel."""
    dims = [0, *range(2, input.dim())]
    shape = [1, -1] + [1] * (input.dim() - 2)
    channels = input.size(1)
    wide = input.float() if input.dtype.itemsize == 2 else input
    sums: Any = _SumOverRanks.apply(_with_count(wide.sum(dims), input.numel() // channels), group)
    count = float(sums[-1])
    if count <= 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.size()} on each rank")
    mean = sums[:-1] / count
    centred = wide - mean.view(shape)
    squares: Any = _SumOverRanks.apply((centred * centred).sum(dims), group)
    variance = squares / count
    if running_mean is not None:
        with no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_((squares / (count - 1)).to(running_var.dtype), momentum)
    output = centred * rsqrt(variance + eps).view(shape)
    if weight is not None:
        output = output * weight.view(shape)
    if bias is not None:
        output = output + bias.view(shape)
    return output.to(input.dtype)


def _with_count(sums: Any, count: int) -> Any:
    """The sums of this rank's values, and how many there are."""
    from .. import cat

    return cat([sums, sums.new_tensor([float(count)])])
