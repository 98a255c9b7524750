"""`torch.xpu`: there are no GPUs of Intel's."""

from .accelerator import device_count, is_available

__all__ = ["device_count", "is_available"]
