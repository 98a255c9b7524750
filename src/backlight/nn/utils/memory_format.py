"""Conversions of the memory format of convolutions, which Backlight has one of."""

from __future__ import annotations

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def convert_conv2d_weight_memory_format(module, memory_format):  # noqa: ARG001
    """Returns the module: memory formats change the speed in PyTorch, not the numbers, and there is one here."""
    return module


convert_conv3d_weight_memory_format = convert_conv2d_weight_memory_format
