"""Convolutions: Conv1d/2d/3d and ConvTranspose1d/2d/3d."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .. import empty
from ..tensor import Parameter
from . import functional as F
from . import init
from .module import Module

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


def to_tuple(value, n: int) -> tuple:
    """`value` repeated n times, or as a tuple if it is a sequence already."""
    return tuple(value) if hasattr(value, "__iter__") else (value,) * n


class _ConvNd(Module):
    dims: int
    transposed = False

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        dilation,
        output_padding,
        groups,
        bias,
        padding_mode,
        device,
        dtype,
    ) -> None:
        super().__init__()
        dims = self.dims
        kernel_size, stride, dilation = to_tuple(kernel_size, dims), to_tuple(stride, dims), to_tuple(dilation, dims)
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string '{padding}', should be one of {{'valid', 'same'}}")
            if padding == "same" and any(step != 1 for step in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        else:
            padding = to_tuple(padding, dims)
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(
                "padding_mode must be one of {'zeros', 'reflect', 'replicate', 'circular'}, "
                f"but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        # What F.pad takes for the modes that F.conv does not know: (left, right) of the last dimension first.
        sides = []
        for i, size in enumerate(kernel_size[:dims]):
            if padding == "same":
                total = dilation[i] * (size - 1)
                sides = [total // 2, total - total // 2, *sides]
            else:
                pad = 0 if padding == "valid" else padding[i]
                sides = [pad, pad, *sides]
        self._reversed_padding_repeated_twice = sides
        channels = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(empty((*channels, *kernel_size), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters, uniform in +-1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _fan_out = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _padded(self, input: Tensor):
        """(input, padding) as F.conv takes them: modes other than zeros are padded beforehand."""
        if self.padding_mode == "zeros":
            return input, self.padding
        return F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), (0,) * self.dims

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device=None,
        dtype=None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            (0,) * self.dims,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )


class Conv1d(_Conv):
    """Convolution over one dimension: (N, in_channels, L) or (in_channels, L) -> the same with out_channels.

    `padding` may be "same" or "valid"; `padding_mode` zeros, reflect, replicate or circular.
    """

    dims = 1

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv1d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """Convolution over two dimensions: (N, in_channels, H, W) or without N -> the same with out_channels.

    `padding` may be "same" or "valid"; `padding_mode` zeros, reflect, replicate or circular.
    """

    dims = 2

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv2d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """Convolution over three dimensions: (N, in_channels, D, H, W) or without N -> the same with out_channels.

    `padding` may be "same" or "valid"; `padding_mode` zeros, reflect, replicate or circular.
    """

    dims = 3

    def forward(self, input: Tensor) -> Tensor:
        input, padding = self._padded(input)
        return F.conv3d(input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class _ConvTranspose(_ConvNd):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
        padding_mode: str = "zeros",
        device=None,
        dtype=None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            to_tuple(output_padding, self.dims),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding(self, input: Tensor, output_size) -> tuple[int, ...]:
        """The output padding that gives `output_size`. ValueError if the stride can't."""
        if output_size is None:
            return self.output_padding
        dims = self.dims
        leading = 2 if input.dim() == dims + 2 else 1
        if len(output_size) == leading + dims:
            output_size = output_size[leading:]
        if len(output_size) != dims:
            raise ValueError(
                f"ConvTranspose{dims}D: for {input.dim()}D input, output_size must have {dims} or {leading + dims} "
                f"elements (got {len(output_size)})"
            )
        smallest = [
            (input.size(leading + i) - 1) * self.stride[i]
            - 2 * self.padding[i]
            + self.dilation[i] * (self.kernel_size[i] - 1)
            + 1
            for i in range(dims)
        ]
        largest = [low + step - 1 for low, step in zip(smallest, self.stride, strict=True)]
        if any(not low <= size <= high for low, size, high in zip(smallest, output_size, largest, strict=True)):
            raise ValueError(
                f"requested an output size of {output_size}, but valid sizes range from {smallest} to {largest} "
                f"(for an input of {input.size()[2:]})"
            )
        return tuple(size - low for size, low in zip(output_size, smallest, strict=True))


class ConvTranspose1d(_ConvTranspose):
    """The gradient of Conv1d as a layer: (N, in_channels, L) -> (N, out_channels, longer).

    `output_size` picks one of the sizes that the stride allows.
    """

    dims = 1

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        padding = self._output_padding(input, output_size)
        return F.conv_transpose1d(input, self.weight, self.bias, self.stride, self.padding, padding, self.groups, self.dilation)


class ConvTranspose2d(_ConvTranspose):
    """The gradient of Conv2d as a layer: (N, in_channels, H, W) -> (N, out_channels, larger).

    `output_size` picks one of the sizes that the stride allows.
    """

    dims = 2

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        padding = self._output_padding(input, output_size)
        return F.conv_transpose2d(input, self.weight, self.bias, self.stride, self.padding, padding, self.groups, self.dilation)


class ConvTranspose3d(_ConvTranspose):
    """The gradient of Conv3d as a layer: (N, in_channels, D, H, W) -> (N, out_channels, larger)."""

    dims = 3

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        padding = self._output_padding(input, output_size)
        return F.conv_transpose3d(input, self.weight, self.bias, self.stride, self.padding, padding, self.groups, self.dilation)
