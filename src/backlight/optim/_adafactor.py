"""Adafactor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .. import finfo, no_grad, zeros_like
from ..views import bump
from .elementwise import numbers_to_tensors, scalar_state
from .optimizer import Optimizer, check_options, factor_type, loss_of, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """p -= alpha * g / sqrt(v), scaled down to a root mean square of `d`; a matrix keeps v as one row and one column.

    v is the running mean of the squared gradient, to which step t adds a share of t**beta2_decay. For parameters of
    two or more dimensions it is the outer product of its row and column means (of the last two dimensions), so the
    state is small. alpha is the root mean square of p (at least `eps[1]`) times min(lr, 1 / sqrt(t)); v is at least
    the square of `eps[0]`, by default the dtype's eps. `weight_decay` shrinks p by itself, `maximize` climbs instead.
    RuntimeError for complex parameters. Shazeer and Stern, 2018.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_options(lr)
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        defaults = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        numbers_to_tensors(self.state, ("step",))

    def _state_of(self, parameter: Tensor, grad: Tensor) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            with no_grad():
                state["step"] = scalar_state(0.0)
                if grad.dim() > 1:
                    *outer, rows, columns = grad.shape
                    state["row_var"] = grad.new_zeros([*outer, rows, 1])
                    state["col_var"] = grad.new_zeros([*outer, 1, columns])
                else:
                    state["variance"] = zeros_like(grad)
        return state

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. Returns what `closure`, if given, returns."""
        loss = loss_of(closure)
        for group in self.param_groups:
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            if any(parameter.is_complex() for parameter in trained):
                raise RuntimeError("Adafactor does not support complex parameters")
            smallest = group["eps"][0]
            for parameter in trained:
                if smallest is None:  # PyTorch takes that of the group's first parameter for the whole group
                    smallest = finfo(parameter.dtype).eps
                state = self._state_of(parameter, parameter.grad)
                step = state["step"].array
                step += 1
                _update(parameter.array, parameter.grad.array, state, group, smallest)
                bump(parameter)
        return loss


def _update(p: np.ndarray, g: np.ndarray, state: dict[str, Tensor], group: dict[str, Any], smallest: float) -> None:
    """One step of the array `p` with gradient `g`, in place."""
    kind = factor_type(p.dtype)
    g = g.astype(kind, copy=False)
    if group["maximize"]:
        g = -g
    lr, count = number(group["lr"]), state["step"].item()
    share = kind(count ** group["beta2_decay"])
    alpha = max(group["eps"][1], _root_mean_square(p.astype(kind, copy=False))) * min(lr, count**-0.5)
    if group["weight_decay"]:
        p *= kind(1 - lr * group["weight_decay"])
    square = g * g
    if g.ndim > 1:
        rows, columns = state["row_var"].array, state["col_var"].array
        rows += share * (square.mean(-1, keepdims=True) - rows)
        columns += share * (square.mean(-2, keepdims=True) - columns)
        variance = rows * columns.astype(kind, copy=False)
        variance /= np.maximum(rows.mean(-2, keepdims=True, dtype=kind), kind(smallest))
    else:
        kept = state["variance"].array
        kept += share * (square - kept)
        variance = kept.astype(kind)
    np.maximum(variance, kind(smallest * smallest), out=variance)
    update = np.divide(g, np.sqrt(variance, out=variance), out=variance)
    update *= kind(alpha / max(1.0, _root_mean_square(update) / group["d"]))
    p -= update


def _root_mean_square(array: np.ndarray) -> float:
    """sqrt(mean(array**2)), 0-dimensional arrays included."""
    flat = array.ravel()
    return (float(np.dot(flat, flat)) / flat.size) ** 0.5
