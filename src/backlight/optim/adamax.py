"""Adamax."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import absolute, add, divide, maximum, multiply, negative, subtract

from .. import zeros_like
from .elementwise import ElementwiseOptimizer, scalar_state
from .optimizer import check_betas, check_not_negative, check_options, number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["Adamax"]


class Adamax(ElementwiseOptimizer):
    """p -= lr / (1 - beta1**step) * m / u: Adam with a running maximum u = max(beta2 * u, |g| + eps) of the gradient.

    m is the running mean of the gradient. `weight_decay` is added to the gradient, `maximize` climbs instead.
    Kingma and Ba, 2015.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
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
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        del group
        return {"step": scalar_state(0.0), "exp_avg": zeros_like(parameter), "exp_inf": zeros_like(parameter)}

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        del group
        return "exp_avg", "exp_inf"

    def _factors(self, group: dict[str, Any], count: float, dtype: type) -> tuple:
        beta1, beta2 = group["betas"]
        return (
            np.array(1 - beta1, dtype),
            np.array(beta2, dtype),
            np.array(group["eps"], dtype),
            np.array(number(group["lr"]) / (1 - beta1**count), dtype),
            np.array(group["weight_decay"], dtype) if group["weight_decay"] else None,
            group["maximize"],
        )

    @staticmethod
    def _update(g, p, mean, largest, work, work2, factors) -> None:
        weight, keep, eps, rate, decay, maximize = factors
        if maximize:
            g = negative(g, work)
        if decay is not None:
            g = add(g, multiply(p, decay, work2), work)
        subtract(g, mean, work2)
        add(mean, multiply(work2, weight, work2), mean)
        add(absolute(g, work), eps, work)
        maximum(multiply(largest, keep, largest), work, out=largest)
        subtract(p, divide(multiply(mean, rate, work), largest, work), p)
