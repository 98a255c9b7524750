"""SparseAdam, which is not there: it needs sparse gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .optimizer import Optimizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..tensor import Tensor

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam for sparse gradients, which Backlight does not have: constructing it raises NotImplementedError.

    For dense gradients, which PyTorch's SparseAdam refuses, there is Adam.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        del params, lr, betas, eps, maximize
        raise NotImplementedError(
            "SparseAdam is not supported: it takes sparse gradients only, and there are none here. "
            "Use Adam, with nn.Embedding(..., sparse=False)."
        )
