"""Lazy layers: their first input tells them the number of their input features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import int64, no_grad, tensor
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyModuleMixin:
    """What makes a module lazy: parameters without shape, and a hook that completes them before the first call.

    A subclass derives from this and from the module, makes `UninitializedParameter`s and defines `initialize_parameters(*args)`,
    which gets the arguments of the first call. Afterwards the module becomes a `cls_to_become`.
    """

    cls_to_become: Any = None

    def __init__(self: Any, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _lazy_load_hook(self: Any, state_dict, prefix, *_rest) -> None:
        """Gives parameters the shapes of those that are loaded."""
        for name, current in [*self._parameters.items(), *self._buffers.items()]:
            loaded = state_dict.get(prefix + name)
            if is_lazy(current) and loaded is not None and not is_lazy(loaded):
                with no_grad():
                    current.materialize(loaded.shape)

    def initialize_parameters(self, *_args, **_kwargs) -> None:
        """Completes the parameters, from the arguments of the first call."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self: Any) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        return any(map(is_lazy, [*self._parameters.values(), *self._buffers.values()]))

    def _infer_parameters(self: Any, module, args, kwargs=None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


class _LazyLayer(LazyModuleMixin):
    """A layer whose parameters' shapes follow from the number of input features."""

    features: str  # the name of the attribute that holds this number

    def _features_of(self, input: Tensor) -> int:
        raise NotImplementedError

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        raise NotImplementedError

    def reset_parameters(self: Any) -> None:
        """Draws new parameters, once their shapes are known."""
        if not self.has_uninitialized_params() and getattr(self, self.features) != 0:
            super().reset_parameters()  # pyright: ignore

    def initialize_parameters(self: Any, input: Tensor) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        n = self._features_of(input)
        if not self.has_uninitialized_params():
            setattr(self, self.features, n)
            return
        setattr(self, self.features, n)
        with no_grad():
            for name, shape in self._shapes().items():
                if is_lazy(getattr(self, name)):
                    getattr(self, name).materialize(shape)
            self.reset_parameters()


class LazyLinear(_LazyLayer, Linear):
    """A Linear that takes `in_features` from its first input.

    >>> import backlight as torch
    >>> layer = torch.nn.LazyLinear(2)
    >>> layer(torch.ones(4, 3)).shape, layer
    (torch.Size([4, 2]), Linear(in_features=3, out_features=2, bias=True))
    """

    features, cls_to_become = "in_features", Linear

    def __init__(self, out_features: int, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _features_of(self, input: Tensor) -> int:
        n = int(input.shape[-1])
        if not is_lazy(self.weight) and n != self.weight.shape[-1]:
            raise AssertionError(
                f"The in_features inferred from input: {n} is not equal to in_features from self.weight: "
                f"{self.weight.shape[-1]}"
            )
        return n

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.out_features, self.in_features), "bias": (self.out_features,)}


class _LazyConv(_LazyLayer):
    features = "in_channels"

    def __init__(self: Any, out_channels, kernel_size, *args, bias=True, device=None, dtype=None, **kwargs) -> None:
        super().__init__(0, 0, kernel_size, *args, bias=False, **kwargs)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def _features_of(self: Any, input: Tensor) -> int:
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise RuntimeError(
                f"Expected {self.dims + 1}D (unbatched) or {self.dims + 2}D (batched) input to {type(self).__name__}, but got "
                f"input of size: {input.shape}"
            )
        n = input.shape[input.dim() - self.dims - 1]
        if n % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        return n

    def _shapes(self: Any) -> dict[str, tuple[int, ...]]:
        n, m = self.in_channels, self.out_channels
        channels = (n, m // self.groups) if self.transposed else (m, n // self.groups)
        return {"weight": (*channels, *self.kernel_size), "bias": (m,)}


class _LazyForward(_LazyConv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device=None,
        dtype=None,
    ) -> None:
        super().__init__(
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            padding_mode=padding_mode,
            bias=bias,
            device=device,
            dtype=dtype,
        )


class _LazyTransposed(_LazyConv):
    def __init__(
        self,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
        padding_mode: str = "zeros",
        device=None,
        dtype=None,
    ) -> None:
        super().__init__(
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            dilation=dilation,
            padding_mode=padding_mode,
            bias=bias,
            device=device,
            dtype=dtype,
        )


class LazyConv1d(_LazyForward, Conv1d):
    """A Conv1d that takes `in_channels` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """A Conv2d that takes `in_channels` from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """A Conv3d that takes `in_channels` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """A ConvTranspose1d that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d):
    """A ConvTranspose2d that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """A ConvTranspose3d that takes `in_channels` from its first input."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(_LazyLayer):
    features = "num_features"

    def __init__(
        self: Any,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device=None,
        dtype=None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=int64)

    def _features_of(self, input: Tensor) -> int:
        return int(input.shape[1])

    def _shapes(self: Any) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (self.num_features,))


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d that takes `num_features` from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d that takes `num_features` from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d that takes `num_features` from its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d that takes `num_features` from its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d that takes `num_features` from its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d that takes `num_features` from its first input."""

    cls_to_become = InstanceNorm3d
