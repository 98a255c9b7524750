"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import add, multiply, negative, subtract

from .. import kernels
from ..kernels import FUSED
from ..views import bump
from .optimizer import Optimizer, check_options, factor_type, loss_of, number, real_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["SGD"]


class SGD(Optimizer):
    """p -= lr * d, where d is the gradient plus weight_decay * p, smoothed by momentum.

    With momentum, `buffer = momentum * buffer + (1 - dampening) * d` (at first just d) takes the place of d, or with
    `nesterov` `d + momentum * buffer` does. `maximize` climbs instead.

    >>> import backlight as torch
    >>> w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> optimizer = torch.optim.SGD([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.8000, 1.6000])
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_options(lr, foreach=foreach, fused=fused, differentiable=differentiable)
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. Returns what `closure`, if given, returns."""
        loss = loss_of(closure)
        scratch = self._scratch
        for group in self.param_groups:
            has_momentum = group["momentum"] != 0
            plain = not (has_momentum or group["weight_decay"] or group["maximize"])
            dtype = buffer = None
            first = False
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                p, g = parameter.array, grad.array
                if p.dtype is not dtype:
                    dtype = p.dtype
                    lr = np.array(number(group["lr"]), factor_type(dtype))
                    factors = None if plain else _factors(group, lr)
                if p.size >= FUSED and not has_momentum and kernels.optim.dense(g, p):
                    kernels.optim.sgd(g, p, None, _factors(group, lr) if factors is None else factors)
                    bump(parameter)
                    continue
                if plain:  # the commonest case, without a call
                    subtract(p, multiply(g, lr, scratch[p.shape, dtype][0]), p)
                    bump(parameter)
                    continue
                if has_momentum:
                    state = self.state[parameter]
                    buffer = state.get("momentum_buffer")
                    first = buffer is None
                    if first:
                        buffer = state["momentum_buffer"] = parameter.detach().clone()
                    buffer = buffer.array
                if p.size >= FUSED and not first and kernels.optim.dense(g, p, buffer):
                    kernels.optim.sgd(g, p, buffer, factors)
                elif dtype.kind == "c":  # pyright: ignore[reportOptionalMemberAccess]
                    for parts in real_parts(g, p, buffer):
                        _update(*parts, first, *scratch[parts[0].shape, parts[0].dtype], factors)  # pyright: ignore[reportCallIssue, reportOptionalMemberAccess]
                else:
                    _update(g, p, buffer, first, *scratch[p.shape, dtype], factors)  # pyright: ignore[reportCallIssue]
                bump(parameter)
        return loss


def _factors(group: dict, lr: np.ndarray) -> tuple:
    """A group's options for `_update`, None for a factor without effect. NumPy is fastest with 0-d arrays."""

    def factor(value, neutral):
        return None if value == neutral else np.array(value, lr.dtype)

    return (
        lr,
        factor(group["momentum"], 0),
        factor(1 - group["dampening"], 1),
        factor(number(group["weight_decay"]), 0),
        group["nesterov"],
        group["maximize"],
    )


def _update(g, p, buffer, first, work, work2, factors) -> None:
    """One step of the real array `p` with gradient `g`, in place. `work` and `work2` are overwritten."""
    lr, momentum, keep, decay, nesterov, maximize = factors
    if maximize:
        g = negative(g, work)
    if decay is not None:
        g = add(g, multiply(p, decay, work2), work)
    if buffer is not None:
        if first:
            buffer[...] = g
        else:
            multiply(buffer, momentum, buffer)
            add(buffer, g if keep is None else multiply(g, keep, work2), buffer)
        g = add(g, multiply(buffer, momentum, work2), work) if nesterov else buffer
    subtract(p, multiply(g, lr, work), p)
