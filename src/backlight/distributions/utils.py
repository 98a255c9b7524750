"""What distributions share: broadcasting parameters, probabilities and logits, triangles as vectors, attributes made on demand."""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING

from .. import Size, arange, broadcast_tensors, empty, finfo, get_default_dtype, tensor
from ..autograd.modes import enable_grad
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = [
    "broadcast_all",
    "logits_to_probs",
    "clamp_probs",
    "probs_to_logits",
    "lazy_property",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

NUMBER = (int, float, bool)
euler_constant = 0.57721566490153286060


def broadcast_all(*values: Tensor | float) -> tuple[Tensor, ...]:
    """Tensors of one shape; numbers become tensors of the first tensor's type, or of the default type if there is none.

    ValueError for anything else.
    """
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not all(isinstance(value, (Tensor, *NUMBER)) for value in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    dtype = tensors[0].dtype if tensors else get_default_dtype()
    return tuple(broadcast_tensors(*[v if isinstance(v, Tensor) else tensor(v, dtype=dtype) for v in values]))


def standard_normal(shape, dtype) -> Tensor:
    """Standard normal numbers."""
    return empty(shape, dtype=dtype).normal_()


def sum_rightmost(value: Tensor, count: int) -> Tensor:
    """The sum over the last `count` dimensions."""
    return value if count == 0 else value.reshape(value.shape[:-count] + (-1,)).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities from log odds (is_binary) or from unnormalised log probabilities along the last dimension."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities that are neither 0 nor 1, by the type's precision."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds (is_binary) or log probabilities, finite also for 0 and 1."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """A property that is computed at its first use, with gradients whatever the mode, and is an attribute from then on."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # pyright: ignore[reportArgumentType]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def _triangle(n: int, diag: int) -> Tensor:
    """Where an (n, n) matrix is on or below the diagonal number `diag`."""
    column = arange(n)
    return column < column.view(-1, 1) + (diag + 1)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangle of (*, n, n) matrices, up to the diagonal `diag`, row by row. -> (*, m)."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _triangle(n, diag)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The inverse of tril_matrix_to_vec: (*, m) -> (*, n, n), zero above. ValueError if no n fits m."""
    shift = 1 + 2 * diag
    n = (-shift + (shift**2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if round(n) - n > finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {vec.shape[-1]} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    n = round(n)
    mat = vec.new_zeros(vec.shape[:-1] + Size((n, n)))
    mat[..., _triangle(n, diag)] = vec
    return mat


_standard_normal, _sum_rightmost = standard_normal, sum_rightmost  # as PyTorch calls them
