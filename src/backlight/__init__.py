"""Backlight: PyTorch's autograd rebuilt in readable Python over NumPy, and an inspector that explains it.

>>> import backlight as torch
>>> x = torch.tensor([1., 2., 3.], requires_grad=True)
>>> (x ** 2).sum().backward()
>>> x.grad
tensor([2., 4., 6.])

PYTEST_DONT_REWRITE: or pytest warns, as it does about any package with a plugin, where Backlight was imported before it.
"""

import builtins as _builtins
import os as _os
import sys as _sys
import warnings as _warnings

# OpenBLAS's threads wait for their next product by spinning, up to a thirtieth of a second, on the processors that kernels
# could use meanwhile: a GPT step on two threads takes a fifth longer (benchmarks: gpt_step). It reads this when NumPy is loaded.
if "numpy" not in _sys.modules:
    _os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "14")  # 2^14 clock ticks

import numpy as _np

# PyTorch computes inf and nan without a word, and so do we: in this thread by NumPy's own switch, which costs nothing;
# other threads start with NumPy's warnings, of which ours are filtered out.
_np.seterr(all="ignore")
_warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"backlight(\.|$)")

from . import attributes, creation, dtypes, ops
from . import autograd as autograd
from .autograd.modes import enable_grad, inference_mode, is_inference_mode_enabled, no_grad, set_grad_enabled
from .dtypes import (
    Size,
    bfloat16,
    can_cast,
    channels_last,
    channels_last_3d,
    complex64,
    complex128,
    contiguous_format,
    device,
    dtype,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    layout,
    memory_format,
    preserve_format,
    promote_types,
    set_default_dtype,
    sparse_coo,
    strided,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from .op import REGISTRY as _REGISTRY
from .ops.random import Generator
from .random import default_generator
from .state import is_grad_enabled
from .tensor import Tensor
from .version import torch_version as __version__

for _name, _function in _REGISTRY.items():
    if "." not in _name:
        globals()[_name] = _function

bool = dtypes.bool_
half, float, double, short, int, long = float16, float32, float64, int16, int32, int64
cfloat, cdouble, chalf = complex64, complex128, complex64
pi, e, inf, nan, newaxis = 3.141592653589793, 2.718281828459045, _np.inf, _np.nan, None

_LAZY = (
    "_C",
    "__config__",
    "_vmap_internals",
    "accelerator",
    "amp",
    "backends",
    "compiler",
    "cpu",
    "cuda",
    "distributed",
    "distributions",
    "fft",
    "futures",
    "func",
    "hub",
    "inspect",
    "jit",
    "linalg",
    "masked",
    "mps",
    "multiprocessing",
    "nn",
    "onnx",
    "optim",
    "overrides",
    "printing",
    "profiler",
    "random",
    "return_types",
    "serialization",
    "signal",
    "special",
    "storage",
    "testing",
    "types",
    "utils",
    "version",
    "xpu",
)


# Functions and classes that live in a lazy module: {name: module}.
_ELSEWHERE = {
    "AcceleratorError": "accelerator",
    "OutOfMemoryError": "accelerator",
    "GradScaler": "amp",
    "autocast": "amp",
    "clear_autocast_cache": "amp",
    "get_autocast_cpu_dtype": "amp",
    "get_autocast_dtype": "amp",
    "is_autocast_cache_enabled": "amp",
    "is_autocast_cpu_enabled": "amp",
    "is_autocast_enabled": "amp",
    "set_autocast_cache_enabled": "amp",
    "set_autocast_cpu_dtype": "amp",
    "set_autocast_cpu_enabled": "amp",
    "set_autocast_dtype": "amp",
    "set_autocast_enabled": "amp",
    "get_printoptions": "printing",
    "set_printoptions": "printing",
    "load": "serialization",
    "save": "serialization",
    "TypedStorage": "storage",
    "UntypedStorage": "storage",
}


def __getattr__(name):
    import importlib

    if name in _LAZY:
        return importlib.import_module(f"{__package__}.{name}")
    if name in _ELSEWHERE:
        globals()[name] = getattr(importlib.import_module(f"{__package__}.{_ELSEWHERE[name]}"), name)
        return globals()[name]
    from .ops import later, neural

    if name not in _REGISTRY:
        later.load()
    if name in _REGISTRY:
        globals()[name] = _REGISTRY[name]
        return globals()[name]
    raise AttributeError(f"module 'backlight' has no attribute '{name}': it isn't part of Backlight, or not there yet")


def __dir__():
    from .ops import later, neural

    later.load()
    return sorted({*globals(), *_LAZY, *_ELSEWHERE, *(name for name in _REGISTRY if "." not in name)})


def set_default_device(where=None) -> None:
    """Accepts "cpu" (or None), the only device."""
    dtypes.check_device(where)


def get_default_device():
    """The CPU."""
    return dtypes.CPU


_said: set[str] = set()


def compile(model=None, **_options):
    """Returns the function or module as it is, and says so once: Backlight runs eagerly."""
    if not _said:
        _said.add("compile")
        _warnings.warn("torch.compile returns its argument unchanged: Backlight runs eagerly", stacklevel=2)
    return model if model is not None else lambda f: f


def is_storage(_obj):
    """False: storages have no object of their own here."""
    return False


def typename(obj) -> str:
    """The name of an object's type, with its module."""
    if isinstance(obj, Tensor):
        return obj.type()
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def is_inference(input) -> _builtins.bool:
    """Whether the tensor was made in inference mode."""
    return input.is_inference()
