"""Muon."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .. import bfloat16, no_grad, zeros_like
from ..views import bump
from .optimizer import Optimizer, Scratch, check_options, factor_type, loss_of, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..tensor import Tensor

__all__ = ["Muon"]


class Muon(Optimizer):
    """p -= lr * U: for matrices. U is the momentum with its singular values brought near 1 (orthogonalised).

    The buffer keeps `momentum` of itself and takes the rest from the gradient; `nesterov` mixes the gradient in once
    more. `ns_steps` Newton-Schulz iterations with `ns_coefficients`, in bfloat16, orthogonalise. `adjust_lr_fn` scales
    lr: "original" (as None) by sqrt(max(1, rows / columns)), "match_rms_adamw" by 0.2 * sqrt(max(rows, columns)).
    `weight_decay` shrinks p by itself. ValueError for parameters that aren't matrices, RuntimeError for complex ones.
    Jordan et al., 2024.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_options(lr)
        if not lr >= 0.0:
            raise ValueError(f"Learning rate should be >= 0 but is: {lr}")
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {parameter.size()}"
                    )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. Returns what `closure`, if given, returns."""
        loss = loss_of(closure)
        for group in self.param_groups:
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            if any(parameter.is_complex() for parameter in trained):
                raise RuntimeError("Muon does not support complex parameters")
            lr, momentum = number(group["lr"]), group["momentum"]
            for parameter in trained:
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    with no_grad():
                        state["momentum_buffer"] = zeros_like(parameter.grad)
                p, g, buffer = parameter.array, parameter.grad.array, state["momentum_buffer"].array
                if g.ndim != 2:
                    raise ValueError("Param gradient must be a 2D matrix")
                kind = factor_type(p.dtype)
                buffer[...] = _between(buffer, g, 1 - momentum)
                update = _between(g, buffer, momentum) if group["nesterov"] else buffer
                tall = p.shape[0] > p.shape[1]
                matrix = _Bfloat16Matrix(update.T if tall else update, self._scratch)
                matrix.normalize(group["eps"])
                if update is buffer and parameter.dtype is bfloat16:  # PyTorch scales the buffer itself here
                    buffer[...] = matrix.values.T if tall else matrix.values
                matrix.orthogonalize(group["ns_coefficients"], group["ns_steps"])
                update = matrix.values.T if tall else matrix.values
                p *= kind(1 - lr * group["weight_decay"])
                p -= kind(_adjusted(lr, group["adjust_lr_fn"], *p.shape)) * update.astype(kind, copy=False)
                bump(parameter)
        return loss


def _adjusted(lr: float, function: str | None, rows: int, columns: int) -> float:
    if function == "match_rms_adamw":
        return lr * 0.2 * math.sqrt(max(rows, columns))
    return lr * math.sqrt(max(1, rows / columns))


def _between(start: np.ndarray, end: np.ndarray, share: float) -> np.ndarray:
    """start + share * (end - start), rounded once, as PyTorch's fused multiply-add does: bfloat16 follows."""
    kind = factor_type(start.dtype)
    difference = np.subtract(end, start, dtype=kind).astype(np.float64)
    if share < 0.5:
        difference *= float(kind(share))
        difference += start
    else:
        difference *= -float(kind(1) - kind(share))
        difference += end
    return difference.astype(start.dtype)


class _Bfloat16Matrix:
    """A matrix in single precision that holds bfloat16 values, in arrays that all matrices of one shape share."""

    def __init__(self, matrix: np.ndarray, scratch: Scratch) -> None:
        single = np.dtype(np.float32)
        rows = matrix.shape[0]
        self.values, self.other = scratch[matrix.shape, single]
        self.gram, self.polynomial = (
            scratch[(rows, rows), single] if rows != matrix.shape[1] else np.empty((2, rows, rows), single)
        )
        self.bits = scratch[matrix.shape, np.dtype(np.uint32)][0]
        self.values[...] = matrix
        self._round(self.values)

    def _round(self, array: np.ndarray) -> None:
        """To nearest, ties to even: bfloat16 is the upper half of a number's bits."""
        bits, work = array.view(np.uint32), self.bits[: array.shape[0], : array.shape[1]]
        np.right_shift(bits, 16, out=work)
        work &= 1
        work += 0x7FFF
        bits += work
        bits &= 0xFFFF0000

    def normalize(self, eps: float) -> None:
        """Divides by the Frobenius norm, which counts as at least `eps`."""
        norm = np.array([[np.linalg.norm(self.values)]], np.float32)
        self._round(norm)
        self.values /= np.maximum(norm, np.float32(eps))
        self._round(self.values)

    def orthogonalize(self, coefficients: tuple[float, float, float], steps: int) -> None:
        """Brings the singular values near 1, by x = a * x + (b * x x' + c * (x x')**2) x."""
        if steps >= 100:
            raise ValueError("Number of steps must be less than 100 for computational efficiency")
        if len(coefficients) != 3:
            raise ValueError("Coefficients must be a tuple of exactly 3 values")
        a, b, c = map(np.float32, coefficients)
        gram, polynomial = self.gram, self.polynomial
        for _ in range(steps):
            x = self.values
            self._round(np.matmul(x, x.T, out=gram))
            np.matmul(gram, gram, out=polynomial)
            polynomial *= c
            gram *= b
            polynomial += gram
            self._round(polynomial)
            product = np.matmul(polynomial, x, out=self.other)
            x *= a
            product += x
            self._round(product)
            self.values, self.other = product, x
