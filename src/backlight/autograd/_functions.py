"""A differentiable operation that PyTorch keeps as a custom Function."""

from __future__ import annotations

from .function import Function


class Resize(Function):
    """The tensor with another shape of as many elements."""

    @staticmethod
    def forward(ctx, tensor, sizes):
        ctx.sizes = tensor.shape
        numel = 1
        for n in sizes:
            numel *= n
        if numel != tensor.numel():
            raise RuntimeError(
                f"requested resize to {'x'.join(map(str, sizes))} ({numel} elements in total), but the given tensor has a size of "
                f"{'x'.join(map(str, tensor.shape))} ({tensor.numel()} elements). autograd's resize can only change the shape of a given "
                "tensor, while preserving the number of elements. "
            )
        return tensor.contiguous().view(*sizes) if tensor.numel() else tensor.new_zeros(sizes)

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous().view(ctx.sizes), None
