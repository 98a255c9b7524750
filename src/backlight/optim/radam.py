"""RAdam."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import add, divide, multiply, negative, sqrt, subtract

from .. import zeros_like
from .elementwise import ElementwiseOptimizer, scalar_state
from .optimizer import check_betas, check_not_negative, check_options, number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["RAdam"]


class RAdam(ElementwiseOptimizer):
    """Adam that trusts its running mean of squares only once enough gradients went into it.

    Until then (the estimate's length `rho` is at most 5) p -= lr * m, after that the step is Adam's times a factor
    that rises to 1. `weight_decay` is added to the gradient, or with `decoupled_weight_decay` shrinks p by itself.
    `maximize` climbs instead. Liu et al., 2020.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr, foreach=foreach, differentiable=differentiable, capturable=capturable)
        check_not_negative(lr=lr, eps=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        del group
        return {"step": scalar_state(0.0), "exp_avg": zeros_like(parameter), "exp_avg_sq": zeros_like(parameter)}

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        del group
        return "exp_avg", "exp_avg_sq"

    def _factors(self, group: dict[str, Any], count: float, dtype: type) -> tuple:
        lr, (beta1, beta2) = number(group["lr"]), group["betas"]
        decay = group["weight_decay"] or None
        shrink = None
        if decay is not None and group["decoupled_weight_decay"]:
            decay, shrink = None, np.array(1 - lr * decay, dtype)
        rate = lr / (1 - beta1**count)
        correction = 1 - beta2**count
        most = 2 / (1 - beta2) - 1
        rho = most - 2 * count * beta2**count / correction
        adaptive = rho > 5.0
        if adaptive:
            rectified = (rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)
            rate *= (correction * rectified) ** 0.5
        return (
            None if decay is None else np.array(decay, dtype),
            shrink,
            np.array(1 - beta1, dtype),
            np.array(beta2, dtype),
            np.array(1 - beta2, dtype),
            np.array(group["eps"], dtype) if adaptive else None,
            np.array(rate, dtype),
            group["maximize"],
        )

    @staticmethod
    def _update(g, p, mean, square, work, work2, factors) -> None:
        decay, shrink, weight, keep, weight_square, eps, rate, maximize = factors
        if maximize:
            g = negative(g, work)
        if decay is not None:
            g = add(g, multiply(p, decay, work2), work)
        elif shrink is not None:
            multiply(p, shrink, p)
        subtract(g, mean, work2)
        add(mean, multiply(work2, weight, work2), mean)
        multiply(square, keep, square)
        multiply(g, weight_square, work2)
        add(square, multiply(work2, g, work2), square)
        multiply(mean, rate, work)
        if eps is not None:
            divide(work, add(sqrt(square, work2), eps, work2), work)
        subtract(p, work, p)
