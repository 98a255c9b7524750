"""Resilient backpropagation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy import clip, copyto, multiply, negative, sign, subtract

from .. import full_like, zeros_like
from .elementwise import ElementwiseOptimizer, scalar_state
from .optimizer import check_not_negative, check_options, number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["Rprop"]


class Rprop(ElementwiseOptimizer):
    """Each element moves by a step size of its own against the sign of its gradient, whose size does not matter.

    Where the sign stayed, the step size is multiplied by `etas[1]`; where it changed, by `etas[0]`, and the element
    waits for one step. Step sizes start at lr and stay within `step_sizes`. `maximize` climbs instead.
    For whole data sets, not for batches. Riedmiller and Braun, 1993.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr, foreach=foreach, differentiable=differentiable, capturable=capturable)
        check_not_negative(lr=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        lr = number(group["lr"])
        size = complex(lr, lr) if parameter.is_complex() else lr
        return {"step": scalar_state(0.0), "prev": zeros_like(parameter), "step_size": full_like(parameter, size)}

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        del group
        return "prev", "step_size"

    def _factors(self, group: dict[str, Any], count: float, dtype: type) -> tuple:
        del count, dtype
        return *group["etas"], *group["step_sizes"], group["maximize"]

    @staticmethod
    def _update(g, p, previous, step_size, work, work2, factors) -> None:
        shrink, grow, least, most, maximize = factors
        if maximize:
            g = negative(g, work)
        change = multiply(g, previous, work2)
        same, turned = change > 0, change < 0
        copyto(change, 1)
        copyto(change, grow, where=same)
        copyto(change, shrink, where=turned)
        multiply(step_size, change, step_size)
        clip(step_size, least, most, out=step_size)
        copyto(previous, g)
        copyto(previous, 0, where=turned)
        sign(previous, work)
        copyto(work, 0, where=work != work)  # PyTorch's sign of NaN
        subtract(p, multiply(work, step_size, work), p)
