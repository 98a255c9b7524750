"""`torch.utils.dlpack`: tensors to and from other libraries without a copy."""

from .. import from_dlpack
from ..tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor):
    """The tensor's memory as a DLPack capsule."""
    return tensor.__dlpack__()
