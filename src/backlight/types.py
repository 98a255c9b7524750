"""Types that annotations of PyTorch programs name."""

from __future__ import annotations

import builtins
from typing import Any

from .dtypes import Size, device, dtype, layout
from .storage import UntypedStorage
from .tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Storage"]

Number = builtins.int | builtins.float | builtins.bool
Device = device | builtins.str | builtins.int | None
FileLike = Any
Storage = UntypedStorage
_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_dtype, _device, _layout, _size = dtype, device, layout, Size | list[builtins.int] | tuple[builtins.int, ...]
_TensorOrTensors = Tensor | tuple[Tensor, ...]
