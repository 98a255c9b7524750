"""`torch.cuda.amp`: deprecated names of `torch.amp`, which without CUDA are switched off with a warning."""

from __future__ import annotations

import functools
import warnings

from .. import amp, dtypes

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """`torch.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype=dtypes.float16, cache_enabled: bool = True) -> None:
        warnings.warn(
            "`torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """`torch.amp.GradScaler("cuda", ...)`."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        warnings.warn(
            "`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")
