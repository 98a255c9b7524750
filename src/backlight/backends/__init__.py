"""`torch.backends`: what programs ask and set about the libraries behind PyTorch. There is none of them here but BLAS.

>>> import backlight as torch
>>> torch.backends.cudnn.is_available(), torch.backends.mps.is_available()
(False, False)
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Any

__all__ = ["cpu", "cuda", "cudnn", "mha", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum", "quantized"]


def _backend(name: str, doc: str, **members: Any) -> ModuleType:
    module = ModuleType(f"{__name__}.{name}", doc)
    vars(module).update(members)
    sys.modules[module.__name__] = module
    return module


def _no() -> bool:
    return False


def _yes() -> bool:
    return True


@contextmanager
def _flags(**_settings: Any):
    yield


cudnn = _backend(
    "cudnn",
    "Settings of cuDNN: they can be set, and change nothing.",
    is_available=_no,
    version=lambda: None,
    flags=_flags,
    enabled=True,
    benchmark=False,
    benchmark_limit=10,
    deterministic=False,
    allow_tf32=True,
)
mps = _backend("mps", "Apple's GPUs: none.", is_available=_no, is_built=_no, is_macos_or_newer=lambda *_version: False)
mkl = _backend("mkl", "Intel's MKL: none.", is_available=_no)
mkldnn = _backend(
    "mkldnn",
    "Intel's oneDNN: none. Its settings change nothing.",
    is_available=_no,
    flags=_flags,
    enabled=False,
    deterministic=False,
)
openmp = _backend("openmp", "OpenMP: as BLAS has it.", is_available=_yes)
nnpack = _backend("nnpack", "NNPACK: none.", is_available=_no, flags=_flags)


class _Precision:
    """Attributes that programs set, such as `allow_tf32`."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    fp32_precision = "none"


cuda = _backend(
    "cuda",
    "Settings of CUDA: they can be set, and change nothing.",
    is_built=_no,
    matmul=_Precision(),
    flash_sdp_enabled=_yes,
    mem_efficient_sdp_enabled=_yes,
    math_sdp_enabled=_yes,
    cudnn_sdp_enabled=_yes,
    enable_flash_sdp=lambda _enabled: None,
    enable_mem_efficient_sdp=lambda _enabled: None,
    enable_math_sdp=lambda _enabled: None,
    enable_cudnn_sdp=lambda _enabled: None,
    sdp_kernel=_flags,
)


def _cpu_capability() -> str:
    """What PyTorch calls the instructions that NumPy uses."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as features  # pyright: ignore
    except ImportError:
        return "DEFAULT"
    return "AVX512" if features.get("AVX512F") else "AVX2" if features.get("AVX2") else "DEFAULT"


cpu = _backend("cpu", "The processor.", get_cpu_capability=_cpu_capability)
_fast_path = [True]
mha = _backend(
    "mha",
    "The fast path of MultiheadAttention: there is none, and results don't depend on the setting.",
    get_fastpath_enabled=lambda: _fast_path[0],
    set_fastpath_enabled=lambda value: _fast_path.__setitem__(0, value),
)
opt_einsum = _backend(
    "opt_einsum",
    "opt_einsum: einsum goes from left to right.",
    is_available=_no,
    enabled=False,
    strategy=None,
    get_opt_einsum=lambda: None,
)
quantized = _backend("quantized", "Quantised operations: none.", engine="none", supported_engines=["none"])
