"""Adagrad."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import add, divide, multiply, negative, sqrt, subtract

from .. import full_like, no_grad
from .elementwise import ElementwiseOptimizer, scalar_state
from .optimizer import check_not_negative, check_options, number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["Adagrad"]


class Adagrad(ElementwiseOptimizer):
    """p -= lr * g / (sqrt(sum) + eps), where the sum is that of all squared gradients, from `initial_accumulator_value`.

    The learning rate falls as lr / (1 + lr_decay * (step - 1)). `weight_decay` is added to the gradient, `maximize`
    climbs instead. The state exists from the start. Duchi, Hazan and Singer, 2011.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_options(lr, foreach=foreach, fused=fused, differentiable=differentiable)
        check_not_negative(
            lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, eps=eps
        )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        with no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    self.state[parameter] = self._start(parameter, group)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        value = self.defaults["initial_accumulator_value"]
        value = complex(value, value) if parameter.is_complex() else value
        return {"step": scalar_state(0.0, group["fused"]), "sum": full_like(parameter, value)}

    def share_memory(self) -> None:
        """Moves the sums to shared memory."""
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["sum"].share_memory_()

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        del group
        return ("sum",)

    def _factors(self, group: dict[str, Any], count: float, dtype: type) -> tuple:
        return (
            np.array(number(group["lr"]) / (1 + (count - 1) * group["lr_decay"]), dtype),
            np.array(group["eps"], dtype),
            np.array(group["weight_decay"], dtype) if group["weight_decay"] else None,
            group["maximize"],
        )

    @staticmethod
    def _update(g, p, total, work, work2, factors) -> None:
        rate, eps, decay, maximize = factors
        if maximize:
            g = negative(g, work)
        if decay is not None:
            g = add(g, multiply(p, decay, work2), work)
        add(total, multiply(g, g, work2), total)
        add(sqrt(total, work2), eps, work2)
        subtract(p, divide(multiply(g, rate, work), work2, work), p)
