"""NAdam."""

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

__all__ = ["NAdam"]


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov's momentum: p moves by a weighted sum of the gradient and of its running mean, over sqrt(v).

    The momentum mu = beta1 * (1 - 0.96**(step * momentum_decay) / 2) grows to beta1; the state's `mu_product` is the
    product of all mu so far. `weight_decay` is added to the gradient, or with `decoupled_weight_decay` shrinks p by
    itself. `maximize` climbs instead. Dozat, 2016.
    """

    _scalars = ("mu_product",)

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check_not_negative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        del group
        return {
            "step": scalar_state(0.0),
            "mu_product": scalar_state(1.0),
            "exp_avg": zeros_like(parameter),
            "exp_avg_sq": zeros_like(parameter),
        }

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        del group
        return "exp_avg", "exp_avg_sq"

    def _factors(self, group: dict[str, Any], count: float, dtype: type, mu_product: np.ndarray) -> tuple:
        lr, (beta1, beta2) = number(group["lr"]), group["betas"]
        mu, next_mu = _momentum(group, count), _momentum(group, count + 1)
        product = float(mu_product * mu)
        decay = group["weight_decay"] or None
        shrink = None
        if decay is not None and group["decoupled_weight_decay"]:
            decay, shrink = None, np.array(1 - lr * decay, dtype)
        return (
            None if decay is None else np.array(decay, dtype),
            shrink,
            np.array(1 - beta1, dtype),
            np.array(beta2, dtype),
            np.array(1 - beta2, dtype),
            np.array(1 - beta2**count, dtype),
            np.array(group["eps"], dtype),
            np.array(lr * (1.0 - mu) / (1.0 - product), dtype),
            np.array(lr * next_mu / (1.0 - product * next_mu), dtype),
            group["maximize"],
        )

    def _advance(self, state: dict[str, Tensor], group: dict[str, Any], count: float) -> None:
        product = state["mu_product"].array
        product *= _momentum(group, count)

    @staticmethod
    def _update(g, p, mean, square, work, work2, factors) -> None:
        decay, shrink, weight, keep, weight_square, correction, eps, rate, mean_rate, maximize = factors
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
        multiply(g, rate, work)
        add(work, multiply(mean, mean_rate, work2), work)
        add(sqrt(divide(square, correction, work2), work2), eps, work2)
        subtract(p, divide(work, work2, work), p)


def _momentum(group: dict[str, Any], count: float) -> float:
    return group["betas"][0] * (1.0 - 0.5 * 0.96 ** (count * group["momentum_decay"]))
