"""RMSprop."""

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

__all__ = ["RMSprop"]


class RMSprop(ElementwiseOptimizer):
    """p -= lr * g / (sqrt(v) + eps), where v is the running mean of the squared gradient, which keeps `alpha`.

    `centered` takes the square of the gradient's running mean from v, so that it is a variance. With `momentum` p
    moves by lr times a buffer that keeps this share of itself and adds each step. `weight_decay` is added to the
    gradient, `maximize` climbs instead. Tieleman and Hinton, 2012; centered: Graves, 2013.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_options(lr, foreach=foreach, differentiable=differentiable, capturable=capturable)
        check_not_negative(lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"step": scalar_state(0.0), **{name: zeros_like(parameter) for name in self._names(group)}}

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return tuple(names)

    def _factors(self, group: dict[str, Any], count: float, dtype: type) -> tuple:
        del count
        return (
            np.array(number(group["lr"]), dtype),
            np.array(group["alpha"], dtype),
            np.array(1 - group["alpha"], dtype),
            np.array(group["eps"], dtype),
            np.array(group["momentum"], dtype) if group["momentum"] > 0 else None,
            group["centered"],
            np.array(group["weight_decay"], dtype) if group["weight_decay"] else None,
            group["maximize"],
        )

    @staticmethod
    def _update(g, p, square, *rest) -> None:
        *arrays, work, work2, factors = rest
        lr, alpha, weight, eps, momentum, centered, decay, maximize = factors
        buffer, mean = arrays[0] if arrays else square, arrays[-1] if centered else None
        if maximize:
            g = negative(g, work)
        if decay is not None:
            g = add(g, multiply(p, decay, work2), work)
        multiply(square, alpha, square)
        multiply(g, g, work2)
        add(square, multiply(work2, weight, work2), square)
        if mean is None:
            sqrt(square, work2)
        else:
            subtract(g, mean, work2)
            add(mean, multiply(work2, weight, work2), mean)
            sqrt(subtract(square, multiply(mean, mean, work2), work2), work2)
        divide(g, add(work2, eps, work2), work)
        if momentum is not None:
            multiply(buffer, momentum, buffer)
            work = add(buffer, work, buffer)
        subtract(p, multiply(work, lr, work2), p)
