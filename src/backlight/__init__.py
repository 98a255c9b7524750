"""Backlight: PyTorch's autograd rebuilt in readable Python over NumPy, and an inspector that explains it.

>>> import backlight as torch
>>> x = torch.tensor([1., 2., 3.], requires_grad=True)
>>> (x ** 2).sum().backward()
>>> x.grad
tensor([2., 4., 6.])
"""

import numpy as _np

# PyTorch computes inf and nan without a word, and so do we.
_np.seterr(all="ignore")

from . import creation, dtypes, ops  # noqa: E402
from . import autograd as autograd  # noqa: E402
from .autograd.modes import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: E402
from .dtypes import (  # noqa: E402
    Size, bfloat16, can_cast, channels_last, channels_last_3d, complex64, complex128, contiguous_format, device, dtype, finfo,
    float16, float32, float64, get_default_dtype, iinfo, int8, int16, int32, int64, layout, memory_format, preserve_format,
    promote_types, set_default_dtype, sparse_coo, strided, uint8, uint16, uint32, uint64,
)  # fmt: skip
from .engine import is_grad_enabled  # noqa: E402
from .op import REGISTRY as _REGISTRY  # noqa: E402
from .tensor import Tensor  # noqa: E402

__version__ = "0.1.0"

for _name, _function in _REGISTRY.items():
    if "." not in _name:
        globals()[_name] = _function

bool = dtypes.bool_
half, float, double, short, int, long = float16, float32, float64, int16, int32, int64
cfloat, cdouble, chalf = complex64, complex128, complex64
pi, e, inf, nan, newaxis = 3.141592653589793, 2.718281828459045, _np.inf, _np.nan, None

_LAZY = {"nn", "optim", "utils", "random", "inspect", "printing", "cuda", "backends", "linalg", "special", "types", "version"}
_PRINTING = {"set_printoptions", "get_printoptions"}


def __getattr__(name):
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name in _PRINTING:
        from . import printing

        return getattr(printing, name)
    raise AttributeError(f"module 'backlight' has no attribute '{name}': it isn't part of Backlight, or not there yet")
