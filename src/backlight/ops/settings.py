"""Settings that programs make. Most change nothing here: every operation is deterministic, and in full precision."""

from __future__ import annotations

from typing import Any

from .. import kernels
from ..op import public
from ..state import state

_settings: dict[str, Any] = {"deterministic": 0, "precision": "highest", "warn_always": False}


@public(method=False)
def use_deterministic_algorithms(mode, *, warn_only=False) -> None:
    """Remembers the mode. All operations are deterministic here anyway."""
    _settings["deterministic"] = (1 if warn_only else 2) if mode else 0


@public(method=False)
def are_deterministic_algorithms_enabled() -> bool:
    """Whether use_deterministic_algorithms was switched on."""
    return _settings["deterministic"] > 0


@public(method=False)
def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether use_deterministic_algorithms was switched on with warn_only."""
    return _settings["deterministic"] == 1


@public(method=False)
def set_deterministic_debug_mode(debug_mode) -> None:
    """Remembers the mode: 0 or "default", 1 or "warn", 2 or "error"."""
    modes = ("default", "warn", "error")
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in modes:
            raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}")
        debug_mode = modes.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    _settings["deterministic"] = debug_mode


@public(method=False)
def get_deterministic_debug_mode() -> int:
    """The mode that set_deterministic_debug_mode remembers."""
    return _settings["deterministic"]


@public(method=False)
def set_float32_matmul_precision(precision) -> None:
    """Remembers "highest", "high" or "medium". Products are always computed in full precision here."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"{precision} is not one of 'highest', 'high', or 'medium'; the current precision is unchanged")
    _settings["precision"] = precision


@public(method=False)
def get_float32_matmul_precision() -> str:
    """The precision that set_float32_matmul_precision remembers."""
    return _settings["precision"]


@public(method=False)
def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on: see autograd.detect_anomaly."""
    return state.anomaly is not None


@public(method=False)
def is_anomaly_check_nan_enabled() -> bool:
    """Whether NaN gradients are errors in anomaly mode."""
    from ..autograd import anomaly_mode

    return anomaly_mode._check_nan[0]


@public(method=False)
def set_anomaly_enabled(enabled, check_nan=True) -> None:
    """Turns anomaly mode on or off: see autograd.set_detect_anomaly."""
    from ..autograd import anomaly_mode

    anomaly_mode.set_detect_anomaly(enabled, check_nan)


@public(method=False)
def set_warn_always(b) -> None:
    """Remembers the switch. Warnings follow Python's own filters here."""
    _settings["warn_always"] = bool(b)


@public(method=False)
def is_warn_always_enabled() -> bool:
    """The switch that set_warn_always remembers."""
    return _settings["warn_always"]


def _check_threads(name, num):
    if not isinstance(num, int) or isinstance(num, bool):
        raise TypeError(f"{name} expects an int, but got {type(num).__name__}")
    if num <= 0:
        raise RuntimeError(f"{name} expects a positive integer")


@public(method=False)
def set_num_threads(num) -> None:
    """Sets how many threads work on a large array: in kernels, and in BLAS if the package threadpoolctl is installed.

    Without that package OMP_NUM_THREADS decides for BLAS, when the program starts. RuntimeError for a number that isn't positive.
    """
    _check_threads("set_num_threads", num)
    kernels.threads.set_threads(num)
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return
    threadpool_limits(num, user_api="blas")


@public(method=False)
def get_num_threads() -> int:
    """How many threads work on a large array; at first as many as OMP_NUM_THREADS or the processors allow."""
    return kernels.threads.get_threads()


@public(method=False)
def set_num_interop_threads(num) -> None:
    """Checks the number: operations run one after the other here."""
    _check_threads("set_num_interop_threads", num)


@public(method=False)
def get_num_interop_threads() -> int:
    """1: operations run one after the other."""
    return 1


@public(method=False)
def set_flush_denormal(_mode) -> bool:
    """False: NumPy can't treat denormal numbers as zeros."""
    return False


@public(method=False)
def set_default_tensor_type(t) -> None:
    """Makes the dtype of a tensor type such as FloatTensor (or its name) the default dtype."""
    from .. import dtypes

    if isinstance(t, str):
        name = t.removeprefix("torch.").removesuffix("Tensor")
        found = next((d for d in dtypes.ALL if dtypes.scalar_type_name(d) == name), None)
        if found is None:
            raise TypeError(f"invalid type name: '{t}'")
        t = found
    dtypes.set_default_dtype(t if isinstance(t, dtypes.dtype) else t.dtype)
