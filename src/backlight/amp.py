"""Automatic mixed precision: `autocast`, `GradScaler`, and the decorators for custom Functions.

While autocast is on, matrix products and convolutions take bfloat16 (or float16) inputs, losses and what else needs the range take
float32. On this engine it is for trying out what lower precision does to a model: NumPy computes such types slower.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from . import dtypes
from .op import REGISTRY
from .ops.random import Generator as _Generator  # noqa: F401  (loads the operations)
from .tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from .optim import Optimizer

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

# PyTorch's lists for the CPU (torch 2.13): what computes in the lower precision, and what in float32.
LOWER = """conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d bmm mm baddbmm addmm addbmm matmul einsum
linalg.matmul linalg.vecdot prelu nn.functional.linear nn.functional.prelu nn.functional.scaled_dot_product_attention lstm gru
rnn_tanh rnn_relu""".split()
FLOAT32 = """bilinear adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d max_pool3d cdist cholesky cholesky_inverse cholesky_solve ctc_loss geqrf
grid_sampler inverse lu_solve nanquantile orgqr ormqr pinverse polar prod qr quantile stft svd trace triangular_solve
view_as_complex fft.fft fft.fft2 fft.fftn fft.hfft fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.irfft fft.irfft2 fft.irfftn fft.rfft
fft.rfft2 fft.rfftn linalg.cholesky linalg.cholesky_ex linalg.cond linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh
linalg.householder_product linalg.inv linalg.inv_ex linalg.lstsq linalg.matrix_rank linalg.qr linalg.solve linalg.svd linalg.svdvals
linalg.tensorinv linalg.tensorsolve""".split()
FLOAT32 += [
    f"nn.functional.{name}"
    for name in """bilinear avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d max_pool3d binary_cross_entropy
    binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy ctc_loss fractional_max_pool2d fractional_max_pool3d
    grid_sample hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss max_unpool2d max_unpool3d mse_loss
    multi_margin_loss multilabel_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
    triplet_margin_loss""".split()
]


class _Mode(threading.local):
    """What autocast is in this thread."""

    def __init__(self) -> None:
        self.enabled = {"cpu": False, "cuda": False}
        self.dtype = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}
        self.cache_enabled = True
        self.depth = 0
        self.cache: dict[int, tuple[Tensor, Tensor]] = {}  # of leaves, so that a weight is converted once: {id: (it, as lower)}


_mode = _Mode()
_lock = threading.RLock()
_threads = 0  # for which autocast is on: then the functions of the lists have other code
_swapped: list[tuple[FunctionType, Any, Any, Any]] = []


def _lower(tensor: Tensor, dtype: dtypes.dtype) -> Tensor:
    if not tensor.is_floating_point() or tensor.dtype in (dtype, dtypes.float64):
        return tensor
    cached = _mode.cache_enabled and dtype is _mode.dtype["cpu"] and tensor.is_leaf and tensor.requires_grad
    if not cached:
        return tensor.to(dtype)
    if id(tensor) not in _mode.cache:
        _mode.cache[id(tensor)] = tensor, tensor.to(dtype)
    return _mode.cache[id(tensor)][1]


def _converted(value: Any, dtype: dtypes.dtype) -> Any:
    """`value` with all floating point tensors in it, but those of float64, in `dtype`."""
    if isinstance(value, Tensor):
        return _lower(value, dtype)
    if type(value) in (list, tuple):
        return type(value)(_converted(item, dtype) for item in value)
    return value


def _casting(function: Callable, lower: bool) -> Callable:
    """`function` with its inputs converted, where autocast is on in the calling thread."""

    def call(args: tuple, kwargs: dict) -> Any:
        if not _mode.enabled["cpu"]:
            return function(*args, **kwargs)
        dtype = _mode.dtype["cpu"] if lower else dtypes.float32
        args = tuple(_converted(value, dtype) for value in args)
        kwargs = {name: value if name == "out" else _converted(value, dtype) for name, value in kwargs.items()}
        if lower:
            return function(*args, **kwargs)
        _mode.enabled["cpu"] = False  # what it calls computes in float32 too
        try:
            return function(*args, **kwargs)
        finally:
            _mode.enabled["cpu"] = True

    return call


def _trampoline(*args, _call=None, **kwargs):
    return _call(args, kwargs)  # pyright: ignore[reportOptionalCall]


def _swap_in() -> None:
    """Gives the functions of the lists code that converts their inputs. So they cost nothing more while autocast is off."""
    from .ops import later, neural  # noqa: F401

    later.load()
    for names, lower in ((LOWER, True), (FLOAT32, False)):
        for function in {id(REGISTRY[name]): REGISTRY[name] for name in names}.values():
            code, defaults, keywords = function.__code__, function.__defaults__, function.__kwdefaults__
            original = FunctionType(code, function.__globals__, function.__name__, defaults, function.__closure__)
            original.__kwdefaults__ = keywords
            _swapped.append((function, code, defaults, keywords))
            function.__defaults__ = None
            function.__code__ = _trampoline.__code__.replace(co_freevars=code.co_freevars)
            function.__kwdefaults__ = {"_call": _casting(original, lower)}


def _swap_out() -> None:
    for function, code, defaults, keywords in _swapped:
        function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, keywords
    _swapped.clear()


def _set_enabled(device_type: str, enabled: bool) -> None:
    global _threads
    before, _mode.enabled[device_type] = _mode.enabled.get(device_type, False), enabled
    if device_type != "cpu" or before is enabled:
        return
    with _lock:
        _threads += 1 if enabled else -1
        if _threads == (1 if enabled else 0):
            _swap_in() if enabled else _swap_out()


# -- what programs ask and set ------------------------------------------------------------------------------------------


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast can be used for a device: for the CPU."""
    return dtypes.device(device_type).type == "cpu"


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a device, in this thread."""
    return _mode.enabled.get(device_type, False)


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switches autocast on or off."""
    if enabled is None:
        device_type, enabled = "cuda", bool(device_type)
    _set_enabled(str(device_type), enabled)


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """The lower precision of autocast for a device."""
    return _mode.dtype.get(device_type, dtypes.float16)


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Sets the lower precision of autocast."""
    _mode.dtype[device_type] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether a weight that is used several times is converted once."""
    return _mode.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Sets whether a weight that is used several times is converted once."""
    _mode.cache_enabled = enabled


def clear_autocast_cache() -> None:
    """Forgets converted weights."""
    _mode.cache.clear()


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"torch.{name}() is deprecated. Please use torch.{instead} instead.", DeprecationWarning, stacklevel=3)


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled("cpu")`."""
    _deprecated("is_autocast_cpu_enabled", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled("cpu", enabled)`."""
    _deprecated("set_autocast_cpu_enabled", "set_autocast_enabled('cpu', enabled)")
    _set_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> dtypes.dtype:
    """`get_autocast_dtype("cpu")`."""
    _deprecated("get_autocast_cpu_dtype", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: dtypes.dtype) -> None:
    """`set_autocast_dtype("cpu", dtype)`."""
    _deprecated("set_autocast_cpu_dtype", "set_autocast_dtype('cpu', dtype)")
    set_autocast_dtype("cpu", dtype)


class autocast:
    """Lower precision inside the block, or in the decorated function.

    device_type: "cpu"; for "cuda" there is a warning, and it stays off. dtype: bfloat16 (the default) or float16.

    >>> import backlight as torch
    >>> with torch.autocast("cpu"):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.bfloat16
    """

    def __init__(
        self, device_type: str, dtype: dtypes.dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = dtypes.device(device_type).type
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtype
        self._enabled = enabled
        self._cache_enabled = _mode.cache_enabled if cache_enabled is None else cache_enabled
        if self.device == "cuda" and enabled:
            warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=2)
            self._enabled = False
        elif self.device == "cpu" and enabled and self.fast_dtype not in (dtypes.bfloat16, dtypes.float16):
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
                stacklevel=2,
            )
            self._enabled = False
        elif self.device not in ("cpu", "cuda"):
            self._enabled = False

    def __enter__(self) -> autocast:
        self._before = is_autocast_enabled(self.device), get_autocast_dtype(self.device), _mode.cache_enabled
        _mode.depth += 1
        _mode.dtype[self.device], _mode.cache_enabled = self.fast_dtype, self._cache_enabled
        _set_enabled(self.device, self._enabled)
        return self

    def __exit__(self, *_error) -> None:
        _mode.depth -= 1
        if not _mode.depth:
            clear_autocast_cache()
        enabled, _mode.dtype[self.device], _mode.cache_enabled = self._before
        _set_enabled(self.device, enabled)

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def decorated(*args, **kwargs):
            with self:
                return func(*args, **kwargs)

        return decorated


def _check_device(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")


def _inputs_as(value: Any, dtype: dtypes.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dtype is not dtypes.float64 else value
    if isinstance(value, dict):
        return {_inputs_as(key, dtype): _inputs_as(item, dtype) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_inputs_as(item, dtype) for item in value)
    return value


def custom_fwd(fwd: Callable | None = None, *, device_type: str, cast_inputs: dtypes.dtype | None = None) -> Callable:
    """Decorates `forward` of a custom Function: under autocast its inputs are cast to `cast_inputs`, and it runs without."""
    _check_device(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args, **kwargs):
        context, on = args[0], is_autocast_enabled(device_type)
        context._dtype = get_autocast_dtype(device_type)
        context._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_inputs_as(args, cast_inputs), **_inputs_as(kwargs, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable | None = None, *, device_type: str) -> Callable:
    """Decorates `backward` of a custom Function: it runs with autocast as `forward` did."""
    _check_device(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args, **kwargs):
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorated


# -- GradScaler ---------------------------------------------------------------------------------------------------------

_READY, _UNSCALED, _STEPPED = range(3)


class GradScaler:
    """Multiplies the loss, so that small gradients don't vanish in float16, and divides the gradients before the step.

    A step whose gradients aren't finite is left out, and the scale is reduced; after `growth_interval` good steps it grows. For
    "cuda" (the default) there is a warning, and all methods do nothing or pass on what they are given.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled:
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Any = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._forget()

    def _forget(self) -> None:
        self._stage: dict[int, int] = defaultdict(lambda: _READY)
        self._finite: dict[int, bool] = {}

    def _needs_scale(self, what: str) -> None:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {what} but _scale is None.  This may indicate your script did not use scaler.scale(loss or outputs) "
                "earlier in the iteration."
            )

    def scale(self, outputs: Any) -> Any:
        """The tensor, or the tensors of an iterable, times the scale. Differentiable."""
        if not self._enabled:
            return outputs
        if self._scale is None:
            self._scale = float(self._init_scale)
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if not isinstance(outputs, Iterable):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = [self.scale(output) for output in outputs]
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled  # pyright: ignore

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients of the optimizer's parameters by the scale, in place."""
        if not self._enabled:
            return
        self._needs_scale("unscale_")
        stage = self._stage[id(optimizer)]
        if stage == _UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage == _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        finite = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    finite = finite and bool(parameter.grad.isfinite().all())
                    parameter.grad.detach().mul_(1.0 / self._scale)
        self._finite[id(optimizer)] = finite
        self._stage[id(optimizer)] = _UNSCALED

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step()`, unless the gradients have infinities or NaN. Unscales first, if that wasn't done."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._needs_scale("step")
        if self._stage[id(optimizer)] == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if self._stage[id(optimizer)] == _READY:
            self.unscale_(optimizer)
        result = optimizer.step(*args, **kwargs) if self._finite[id(optimizer)] else None
        self._stage[id(optimizer)] = _STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapts the scale, after the steps of all optimizers; or sets it."""
        if not self._enabled:
            return
        self._needs_scale("update")
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            if not self._finite:
                raise AssertionError("No inf checks were recorded prior to update.")
            if not all(self._finite.values()):
                self._scale *= self._backoff_factor
                self._growth_tracker = 0
            else:
                self._growth_tracker += 1
                if self._growth_tracker == self._growth_interval:
                    self._scale *= self._growth_factor
                    self._growth_tracker = 0
        self._forget()

    def get_scale(self) -> float:
        """The scale; 1 if this scaler is disabled."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by to grow."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets what the scale is multiplied by to grow."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by to shrink."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets what the scale is multiplied by to shrink."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets after how many good steps the scale grows."""
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether this scaler does anything."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The scale and what changes it; empty if this scaler is disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale = float(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = state_dict["_growth_tracker"]
