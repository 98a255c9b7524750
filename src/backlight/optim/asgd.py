"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import add, multiply, negative, subtract

from .. import zeros_like
from .elementwise import ElementwiseOptimizer, scalar_state
from .optimizer import check_not_negative, check_options, number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["ASGD"]


class ASGD(ElementwiseOptimizer):
    """p = (1 - lambd * eta) * p - eta * g, with the average of all p since step `t0` in the state's `ax`.

    eta = lr / (1 + lambd * lr * step)**alpha, and `ax` moves to p by a share of mu = 1 / max(1, step - t0).
    `weight_decay` is added to the gradient, `maximize` climbs instead. Polyak and Juditsky, 1992.
    """

    _scalars = ("eta", "mu")

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_options(lr, foreach=foreach, differentiable=differentiable, capturable=capturable)
        check_not_negative(lr=lr, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {
            "step": scalar_state(0.0),
            "eta": scalar_state(number(group["lr"])),
            "mu": scalar_state(1.0),
            "ax": zeros_like(parameter),
        }

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        del group
        return ("ax",)

    def _factors(self, group: dict[str, Any], count: float, dtype: type, eta: np.ndarray, mu: np.ndarray) -> tuple:
        del count
        return (
            np.array(1 - group["lambd"] * eta.item(), dtype),
            np.array(eta, dtype),
            np.array(mu, dtype) if mu != 1 else None,
            np.array(group["weight_decay"], dtype) if group["weight_decay"] else None,
            group["maximize"],
        )

    def _advance(self, state: dict[str, Tensor], group: dict[str, Any], count: float) -> None:
        lr = number(group["lr"])
        state["eta"].array[...] = lr / (1 + group["lambd"] * lr * count) ** group["alpha"]
        state["mu"].array[...] = 1 / max(1, count - group["t0"])

    @staticmethod
    def _update(g, p, average, work, work2, factors) -> None:
        shrink, eta, mu, decay, maximize = factors
        if maximize:
            g = negative(g, work)
        if decay is not None:
            g = add(g, multiply(p, decay, work2), work)
        multiply(p, shrink, p)
        subtract(p, multiply(g, eta, work), p)
        if mu is None:
            average[...] = p
        else:
            subtract(p, average, work)
            add(average, multiply(work, mu, work), average)
