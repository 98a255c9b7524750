"""Padding: by zeros, a constant, reflection, the edge, or circularly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import functional as F
from .conv import to_tuple
from .module import Module

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    dims: int
    mode: str

    def __init__(self, padding: int | tuple[int, ...]) -> None:
        super().__init__()
        self.padding = to_tuple(padding, 2 * self.dims)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: int | tuple[int, ...], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPad):
    """Pads the last dimension by (left, right) with `value`."""

    dims = 1


class ConstantPad2d(_ConstantPad):
    """Pads the last two dimensions by (left, right, top, bottom) with `value`."""

    dims = 2


class ConstantPad3d(_ConstantPad):
    """Pads the last three dimensions by (left, right, top, bottom, front, back) with `value`."""

    dims = 3


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: int | tuple[int, ...]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad):
    """Pads the last dimension by (left, right) with zeros."""

    dims = 1


class ZeroPad2d(_ZeroPad):
    """Pads the last two dimensions by (left, right, top, bottom) with zeros."""

    dims = 2


class ZeroPad3d(_ZeroPad):
    """Pads the last three dimensions by (left, right, top, bottom, front, back) with zeros."""

    dims = 3


class ReflectionPad1d(_Pad):
    """Pads the last dimension with its reflection, the edge itself not repeated."""

    dims, mode = 1, "reflect"


class ReflectionPad2d(_Pad):
    """Pads the last two dimensions with their reflection, the edges themselves not repeated."""

    dims, mode = 2, "reflect"


class ReflectionPad3d(_Pad):
    """Pads the last three dimensions with their reflection, the edges themselves not repeated."""

    dims, mode = 3, "reflect"


class ReplicationPad1d(_Pad):
    """Pads the last dimension with copies of its edge."""

    dims, mode = 1, "replicate"


class ReplicationPad2d(_Pad):
    """Pads the last two dimensions with copies of their edges."""

    dims, mode = 2, "replicate"


class ReplicationPad3d(_Pad):
    """Pads the last three dimensions with copies of their edges."""

    dims, mode = 3, "replicate"


class _CircularPad(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise ValueError(f"expected {self.dims + 1}D or {self.dims + 2}D input (got {input.dim()}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPad):
    """Pads the last dimension as if it were a ring."""

    dims = 1


class CircularPad2d(_CircularPad):
    """Pads the last two dimensions as if they were rings."""

    dims = 2


class CircularPad3d(_CircularPad):
    """Pads the last three dimensions as if they were rings."""

    dims = 3
