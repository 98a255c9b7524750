"""PyTorch's module path of AdamW, which lies beside Adam."""

from .adam import AdamW

__all__ = ["AdamW"]
