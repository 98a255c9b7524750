"""Clipping of gradients: by the norm of them all, or element by element."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import numpy as np

from ... import tensor
from ...tensor import Tensor
from ...views import bump

if TYPE_CHECKING:
    from collections.abc import Iterable

_NON_FINITE = (
    "The total norm of order {} for gradients from `parameters` is non-finite, so it cannot be clipped. To disable "
    "this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`"
)


def _as_list(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _grads(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in _as_list(parameters) if parameter.grad is not None]


def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,  # noqa: ARG001
) -> Tensor:
    """The norm of all tensors taken as one vector: a scalar. `foreach` is accepted and makes no difference.

    RuntimeError if the norm is not finite and `error_if_nonfinite`.
    """
    tensors = _as_list(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return tensor(0.0)
    total = _norm(np.array([_norm(t.array, norm_type) for t in tensors]), norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(_NON_FINITE.format(norm_type))
    dtypes = {t.dtype for t in tensors}
    half = len(dtypes) == 1 and tensors[0].array.dtype.itemsize < 4
    return tensor(total, dtype=tensors[0].dtype if half else None)


def _norm(array: np.ndarray, p: float):
    """The p-norm of all elements; half precision is computed, and returned, in single precision."""
    if array.dtype.itemsize < 4:
        array = array.astype(np.float32)
    flat = array.ravel()
    if p == 2:
        return np.sqrt(np.vdot(flat, flat).real)
    return np.linalg.norm(flat, p)


def clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,  # noqa: ARG001
) -> None:
    """Scales the gradients in place by max_norm / total_norm, if that is less than 1."""
    scale = np.minimum(float(max_norm) / (total_norm.array + 1e-6), 1.0)
    for grad in _grads(parameters):
        np.multiply(grad.array, scale, grad.array, casting="unsafe")
        bump(grad)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales all gradients in place so that their joint norm is at most `max_norm`; returns the norm before.

    >>> import backlight as torch
    >>> w = torch.nn.Parameter(torch.tensor([0.0, 0.0]))
    >>> w.grad = torch.tensor([3.0, 4.0])
    >>> torch.nn.utils.clip_grad_norm_(w, 1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    parameters = _as_list(parameters)
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(*args, **kwargs) -> Tensor:
    """The old name of `clip_grad_norm_`."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(*args, **kwargs)


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor],
    clip_value: float,
    foreach: bool | None = None,  # noqa: ARG001
) -> None:
    """Limits every element of every gradient to [-clip_value, clip_value], in place."""
    clip_value = float(clip_value)
    for grad in _grads(parameters):
        np.clip(grad.array, -clip_value, clip_value, out=grad.array)
        bump(grad)
