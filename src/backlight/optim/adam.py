"""Adam, and AdamW with its decoupled weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import add, divide, maximum, multiply, negative, sqrt, subtract

from .. import kernels, zeros_like
from ..tensor import Tensor
from .elementwise import ElementwiseOptimizer, scalar_state
from .optimizer import check_betas, check_not_negative, check_options, number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

__all__ = ["Adam", "AdamW"]


class Adam(ElementwiseOptimizer):
    """p -= lr * m / (sqrt(v) + eps), m and v being running means of the gradient and of its square.

    Both start at zero and are scaled up to make good for it.
    `weight_decay` is added to the gradient, or with `decoupled_weight_decay` shrinks p by itself (AdamW). `amsgrad`
    divides by the largest v so far. `maximize` climbs instead. Kingma and Ba, 2015.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and foreach:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        check_options(lr, foreach=foreach, fused=fused, differentiable=differentiable, capturable=capturable)
        check_not_negative(lr=lr, eps=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        if not any(all(isinstance(beta, kind) for beta in betas) for kind in (float, Tensor)):
            raise ValueError("betas must be either both floats or both Tensors")
        if isinstance(betas[0], Tensor):
            for index, beta in enumerate(betas):
                if foreach:
                    raise ValueError(f"betas[{index}] as a Tensor is not supported for capturable=False and foreach=True")
                if beta.numel() != 1:  # pyright: ignore[reportAttributeAccessIssue]
                    raise ValueError(f"Tensor betas[{index}] must be 1-element")
            betas = betas[0].squeeze(), betas[1].squeeze()  # pyright: ignore[reportAttributeAccessIssue]
        betas = betas[0], betas[1]
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        names = self._names(group)
        return {"step": scalar_state(0.0, group["fused"]), **{name: zeros_like(parameter) for name in names}}

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def _factors(self, group: dict[str, Any], count: float, dtype: type) -> tuple:
        lr, beta1, beta2 = number(group["lr"]), *map(number, group["betas"])
        decay = group["weight_decay"]
        shrink = None
        if decay == 0:
            decay = None
        elif group["decoupled_weight_decay"]:
            decay, shrink = None, np.array(1 - lr * decay, dtype)
        else:
            decay = np.array(decay, dtype)
        return (
            decay,
            shrink,
            np.array(1 - beta1, dtype),
            np.array(beta2, dtype),
            np.array(1 - beta2, dtype),
            np.array((1 - beta2**count) ** 0.5, dtype),
            np.array(group["eps"], dtype),
            np.array(lr / (1 - beta1**count), dtype),
            group["maximize"],
        )

    @staticmethod
    def _update_large(g, p, mean, square, *rest) -> None:
        *largest, factors = rest
        kernels.optim.adam(g, p, mean, square, largest[0] if largest else None, factors)

    @staticmethod
    def _update(g, p, mean, square, *rest) -> None:
        *largest, work, work2, factors = rest
        decay, shrink, weight, keep, weight_square, correction, eps, rate, maximize = factors
        if maximize:
            g = negative(g, work)
        if decay is not None:
            g = add(g, multiply(p, decay, work2), work)
        elif shrink is not None:
            multiply(p, shrink, p)
        # mean += (1 - beta1) * (g - mean);  square = beta2 * square + (1 - beta2) * g * g
        subtract(g, mean, work2)
        add(mean, multiply(work2, weight, work2), mean)
        multiply(square, keep, square)
        multiply(g, weight_square, work2)
        add(square, multiply(work2, g, work2), square)
        if largest:
            square = maximum(largest[0], square, out=largest[0])
        sqrt(square, work)
        divide(work, correction, work)
        add(work, eps, work)
        multiply(mean, rate, work2)
        subtract(p, divide(work2, work, work2), p)


class AdamW(Adam):
    """Adam with decoupled weight decay: p shrinks by lr * weight_decay * p, which m and v never see.

    Loshchilov and Hutter, 2019.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
