"""L-BFGS: a quasi-Newton method with limited memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import cat, enable_grad, no_grad, view_as_real
from ..tensor import Tensor
from .optimizer import Optimizer, check_not_negative, check_options, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """p += t * d, where d is the gradient times an estimate of the inverse Hessian, from the last `history_size` steps.

    `step` takes up to `max_iter` such steps and calls the closure, which computes loss and gradients anew, up to
    `max_eval` times (by default 1.25 * max_iter). t is lr, or with `line_search_fn="strong_wolfe"` it is searched for
    from there. It ends early when no gradient is larger than `tolerance_grad`, or when p or the loss changes by less
    than `tolerance_change`. There can be one parameter group only. Liu and Nocedal, 1989.

    >>> import backlight as torch
    >>> x = torch.nn.Parameter(torch.tensor([3.0, -1.0]))
    >>> optimizer = torch.optim.LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((x - 2) ** 4).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure)
    tensor(82., grad_fn=<SumBackward0>)
    >>> bool(closure() < 1e-6)
    True
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_options(lr)
        check_not_negative(lr=lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _flat_gradient(self) -> Tensor:
        """All gradients in one vector; zeros for parameters without, real and imaginary parts for complex ones."""
        pieces = []
        for parameter in self._params:
            grad = parameter.new_zeros(parameter.shape) if parameter.grad is None else parameter.grad
            pieces.append((view_as_real(grad) if grad.is_complex() else grad).reshape(-1))
        return cat(pieces)

    def _move(self, step: float | Tensor, direction: Tensor) -> None:
        """Adds `step` times its piece of `direction` to every parameter."""
        start = 0
        for parameter in self._params:
            parts = view_as_real(parameter) if parameter.is_complex() else parameter
            parts.add_(direction[start : start + parts.numel()].view(parts.shape), alpha=number(step))
            start += parts.numel()

    @no_grad()
    def step(self, closure: Callable[[], Any]) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Takes up to `max_iter` steps. Returns what the first call of `closure` returned."""
        closure = enable_grad()(closure)
        group = self.param_groups[0]
        lr, max_iter, max_eval = group["lr"], group["max_iter"], group["max_eval"]
        if isinstance(lr, Tensor):
            lr = lr.squeeze()  # stays a tensor, as the state's step sizes then are
        tolerance_change, history_size = group["tolerance_change"], group["history_size"]
        # All state is global; it lies with the first parameter so that load_state_dict converts it to its dtype.
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        first_loss = closure()
        loss = float(first_loss)
        state["func_evals"] += 1
        evaluations = 1
        gradient = self._flat_gradient()
        if gradient.abs().max() <= group["tolerance_grad"]:
            return first_loss

        direction, step = state.get("d"), state.get("t")
        # changes of the gradient and of the parameters in past steps, and 1 over their products
        changes, moves, inverse = state.get("old_dirs"), state.get("old_stps"), state.get("ro")
        scale, previous = state.get("H_diag"), state.get("prev_flat_grad")
        previous_loss = state.get("prev_loss")

        for iteration in range(1, max_iter + 1):
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction = gradient.neg()
                changes, moves, inverse, scale = [], [], [], 1
                step = min(1.0, 1.0 / gradient.abs().sum()) * lr
            else:
                change, move = gradient.sub(previous), direction.mul(step)
                curvature = change.dot(move)
                if curvature > 1e-10:
                    if len(changes) == history_size:
                        for history in (changes, moves, inverse):
                            history.pop(0)
                    changes.append(change)
                    moves.append(move)
                    inverse.append(1.0 / curvature)
                    scale = curvature / change.dot(change)
                weights = state.setdefault("al", [None] * history_size)
                direction = _newton_direction(gradient, changes, moves, inverse, scale, weights)
                step = lr
            if previous is None:
                previous = gradient.clone()
            else:
                previous.copy_(gradient)
            previous_loss = loss

            slope = gradient.dot(direction)
            if slope > -tolerance_change:
                break
            calls = 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start = [parameter.clone() for parameter in self._params]
                evaluate = _Evaluations(self, closure, start, direction)
                found = _strong_wolfe(
                    evaluate, _Point(0, loss, gradient, slope), step, direction.abs().max(), max_eval - evaluations
                )
                step, loss, gradient, calls = found.step, found.value, found.gradient, evaluate.count
                self._move(step, direction)
            else:
                self._move(step, direction)
                if iteration != max_iter:  # after the last step nobody would use them
                    loss = float(closure())
                    gradient = self._flat_gradient()
                    calls = 1
            evaluations += calls
            state["func_evals"] += calls
            if (
                iteration == max_iter
                or evaluations >= max_eval
                or gradient.abs().max() <= group["tolerance_grad"]
                or direction.mul(step).abs().max() <= tolerance_change
                or abs(loss - previous_loss) < tolerance_change
            ):
                break

        state["d"] = direction
        state["t"] = step
        state["old_dirs"] = changes
        state["old_stps"] = moves
        state["ro"] = inverse
        state["H_diag"] = scale
        state["prev_flat_grad"] = previous
        state["prev_loss"] = previous_loss
        return first_loss


def _newton_direction(gradient, changes, moves, inverse, scale, weights) -> Tensor:
    """Minus the inverse Hessian, as the history tells it, times the gradient (the two-loop recursion)."""
    direction = gradient.neg()
    d = direction.array  # the loops work on arrays: they are most of what a step costs
    work = np.empty_like(d)
    for i in reversed(range(len(changes))):
        weight = np.asarray(np.dot(moves[i].array, d) * inverse[i].array)
        d -= np.multiply(changes[i].array, weight, work)
        weights[i] = Tensor._from(weight)
    d *= number(scale)
    for i in range(len(changes)):
        back = np.dot(changes[i].array, d) * inverse[i].array
        d += np.multiply(moves[i].array, weights[i].array - back, work)
    return direction


class _Point(NamedTuple):
    """The loss at some step along the direction: its value, its gradient, and its slope along the direction."""

    step: float | Tensor
    value: float
    gradient: Tensor
    slope: Tensor


class _Evaluations:
    """Computes a `_Point` by moving the parameters, calling the closure and moving them back. Counts the calls."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any], start: list[Tensor], direction: Tensor) -> None:
        self.optimizer, self.closure, self.start, self.direction = optimizer, closure, start, direction
        self.count = 0

    def __call__(self, step: float | Tensor) -> _Point:
        self.count += 1
        self.optimizer._move(step, self.direction)
        value = float(self.closure())
        gradient = self.optimizer._flat_gradient()
        for parameter, values in zip(self.optimizer._params, self.start, strict=True):
            parameter.copy_(values)
        return _Point(step, value, gradient, gradient.dot(self.direction))


def _strong_wolfe(evaluate, start: _Point, step, length: Tensor, most: int) -> _Point:
    """A point that satisfies the strong Wolfe conditions, or the best after `most` further evaluations.

    They say that the loss fell by at least c1 = 1e-4 of what the slope promised, and that the slope is down to
    c2 = 0.9 of what it was. First the step grows until such a point is bracketed, then the bracket shrinks.
    Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6.
    """
    c1, c2, tolerance_change = 1e-4, 0.9, 1e-9
    previous, point = start, evaluate(step)
    tried = 0
    while tried < most:
        too_high = point.value > start.value + c1 * point.step * start.slope
        if too_high or (tried > 1 and point.value >= previous.value):
            break
        if abs(point.slope) <= -c2 * start.slope:
            return point
        if point.slope >= 0:
            break
        bounds = point.step + 0.01 * (point.step - previous.step), point.step * 10
        previous, point = point, evaluate(_cubic_minimum(previous, point, bounds))
        tried += 1
    bracket = [start if tried == most else previous, point]
    low = 0 if bracket[0].value <= bracket[1].value else 1
    near_an_end = False
    while tried < most:
        ends = [end.step for end in bracket]
        if abs(ends[1] - ends[0]) * length < tolerance_change:
            break
        step = _cubic_minimum(*bracket, bounds=(min(ends), max(ends)))
        # Close to an end twice, or at one: a tenth of the bracket away from it, or the bracket may stop shrinking.
        margin = 0.1 * (max(ends) - min(ends))
        if min(max(ends) - step, step - min(ends)) < margin:
            if near_an_end or step >= max(ends) or step <= min(ends):
                step = max(ends) - margin if abs(step - max(ends)) < abs(step - min(ends)) else min(ends) + margin
                near_an_end = False
            else:
                near_an_end = True
        else:
            near_an_end = False
        point = evaluate(step)
        tried += 1
        if point.value > start.value + c1 * point.step * start.slope or point.value >= bracket[low].value:
            bracket[1 - low] = point
            low = 0 if bracket[0].value <= bracket[1].value else 1
            continue
        done = abs(point.slope) <= -c2 * start.slope
        if not done and point.slope * (bracket[1 - low].step - bracket[low].step) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = point
        if done:
            break
    return bracket[low]


def _cubic_minimum(a: _Point, b: _Point, bounds: tuple) -> float | Tensor:
    """Where the cubic through two points with their slopes is least within `bounds`; their middle if it has no minimum."""
    least, most = bounds
    if a.step > b.step:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.step - b.step)
    square = d1**2 - a.slope * b.slope
    if square >= 0:
        d2 = square.sqrt()
        step = b.step - (b.step - a.step) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
        return min(max(step, least), most)
    return (least + most) / 2.0
