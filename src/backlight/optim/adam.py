"""Adam, and AdamW with its decoupled weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import add, divide, maximum, multiply, negative, sqrt, subtract

from .. import float32, float64, get_default_dtype, no_grad, tensor, zeros_like
from ..tensor import Tensor
from ..views import bump
from .optimizer import Optimizer, check_options, factor_type, loss_of, number, real_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
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
        if not lr >= 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps >= 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        for index, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {index}: {beta}")
        if not weight_decay >= 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
            raise ValueError("betas must be either both floats or both Tensors")
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

    def _state_of(self, parameter: Tensor, amsgrad: bool) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            with no_grad():
                state["step"] = tensor(0.0, dtype=float64 if get_default_dtype() == float64 else float32)
                state["exp_avg"] = zeros_like(parameter)
                state["exp_avg_sq"] = zeros_like(parameter)
                if amsgrad:
                    state["max_exp_avg_sq"] = zeros_like(parameter)
        return state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. Returns what `closure`, if given, returns."""
        loss = loss_of(closure)
        scratch = self._scratch
        for group in self.param_groups:
            amsgrad = group["amsgrad"]
            dtype = count = None
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                state = self._state_of(parameter, amsgrad)
                step = state["step"].array
                step += 1
                p, g = parameter.array, grad.array
                mean, square = state["exp_avg"].array, state["exp_avg_sq"].array
                largest = state["max_exp_avg_sq"].array if amsgrad else None
                if p.dtype is not dtype or step != count:
                    dtype, count = p.dtype, float(step)
                    factors = _factors(group, count, factor_type(dtype))
                if dtype.kind == "c":  # pyright: ignore[reportOptionalMemberAccess]
                    for parts in real_parts(g, p, mean, square, largest):
                        _update(*parts, *scratch[parts[0].shape, parts[0].dtype], factors)  # pyright: ignore[reportCallIssue, reportOptionalMemberAccess]
                else:
                    _update(g, p, mean, square, largest, *scratch[p.shape, dtype], factors)  # pyright: ignore[reportCallIssue]
                bump(parameter)
        return loss


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


def _factors(group: dict, count: float, dtype: type) -> tuple:
    """A group's options at step `count`, for `_update`. Factors are 0-d arrays: NumPy is fastest with these."""
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


def _update(g, p, mean, square, largest, work, work2, factors) -> None:
    """One step of the real array `p` with gradient `g`, in place. `work` and `work2` are overwritten."""
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
    if largest is not None:
        square = maximum(largest, square, out=largest)
    sqrt(square, work)
    divide(work, correction, work)
    add(work, eps, work)
    multiply(mean, rate, work2)
    subtract(p, divide(work2, work, work2), p)
