"""`torch.utils.hooks`: the handle that every registration of a hook returns."""

from ..autograd.hooks import RemovableHandle

__all__ = ["RemovableHandle"]
