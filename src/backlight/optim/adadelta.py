"""Adadelta."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import add, divide, multiply, negative, sqrt, subtract

from .. import zeros_like
from .elementwise import ElementwiseOptimizer, scalar_state
from .optimizer import check_not_negative, check_options, number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["Adadelta"]


class Adadelta(ElementwiseOptimizer):
    """p -= lr * d, where d is the gradient times the ratio of two root mean squares: of past d and of past gradients.

    Both running means keep a share of `rho`; `eps` is added under both roots. `weight_decay` is added to the gradient,
    `maximize` climbs instead. Zeiler, 2012.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr, foreach=foreach, differentiable=differentiable, capturable=capturable)
        check_not_negative(lr=lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_not_negative(eps=eps, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "capturable": capturable,
            "foreach": foreach,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        del group
        return {"step": scalar_state(0.0), "square_avg": zeros_like(parameter), "acc_delta": zeros_like(parameter)}

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        del group
        return "square_avg", "acc_delta"

    def _factors(self, group: dict[str, Any], count: float, dtype: type) -> tuple:
        del count
        return (
            np.array(number(group["lr"]), dtype),
            np.array(group["rho"], dtype),
            np.array(1 - group["rho"], dtype),
            np.array(group["eps"], dtype),
            np.array(group["weight_decay"], dtype) if group["weight_decay"] else None,
            group["maximize"],
        )

    @staticmethod
    def _update(g, p, square, deltas, work, work2, factors) -> None:
        lr, rho, weight, eps, decay, maximize = factors
        if maximize:
            g = negative(g, work)
        if decay is not None:
            g = add(g, multiply(p, decay, work2), work)
        multiply(square, rho, square)
        multiply(g, g, work2)
        add(square, multiply(work2, weight, work2), square)
        # delta = g * sqrt(deltas + eps) / sqrt(square + eps)
        delta = divide(g, sqrt(add(square, eps, work2), work2), work)
        multiply(delta, sqrt(add(deltas, eps, work2), work2), delta)
        multiply(deltas, rho, deltas)
        multiply(delta, delta, work2)
        add(deltas, multiply(work2, weight, work2), deltas)
        subtract(p, multiply(delta, lr, delta), p)
