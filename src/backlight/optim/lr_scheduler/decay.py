"""Schedules that go one way: by steps, by a function, along a line, a power, a polynomial or a cosine."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

from .scheduler import LRScheduler, attributes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ...tensor import Tensor
    from ..optimizer import Optimizer

    Functions = Callable[[int], float] | list[Callable[[int], float]]


class _FunctionLR(LRScheduler):
    """A schedule by one function of the epoch, or by one function per group."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Functions, last_epoch: int = -1) -> None:
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        functions = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(functions) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(functions)}")
        self.lr_lambdas = functions
        self._check()
        super().__init__(optimizer, last_epoch)

    def _check(self) -> None:
        """Raises where the functions can't be used."""

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer; of the functions, those that are objects give their attributes."""
        state = {key: value for key, value in vars(self).items() if key not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [attributes_of(function) for function in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the attributes over from what `state_dict` returned; functions stay this schedule's own."""
        vars(self).update({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for function, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=False):
            if attributes is not None:
                vars(function).update(attributes)


class LambdaLR(_FunctionLR):
    """lr = initial_lr * lr_lambda(epoch). A list holds one function per group."""

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        return [base * function(self.last_epoch) for function, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_FunctionLR):
    """lr = last lr * lr_lambda(epoch). A list holds one function per group."""

    def _check(self) -> None:
        for function in self.lr_lambdas:
            if not callable(function):
                raise TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        if self._is_initial:
            return self._current()
        groups = self.optimizer.param_groups
        return [group["lr"] * function(self.last_epoch) for function, group in zip(self.lr_lambdas, groups, strict=True)]


class StepLR(LRScheduler):
    """lr = last lr * gamma at every `step_size`-th epoch."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._current()
        return self._current_times(self.gamma)

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        return self._base_times(self.gamma ** (self.last_epoch // self.step_size))


class MultiStepLR(LRScheduler):
    """lr = last lr * gamma at every epoch in `milestones`; at one that is listed twice, by gamma twice."""

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        if self.last_epoch not in self.milestones:
            return self._current()
        return self._current_times(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return self._base_times(self.gamma**passed)


class ConstantLR(LRScheduler):
    """lr = initial_lr * factor until epoch `total_iters`, then initial_lr."""

    def __init__(self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        if self.last_epoch == 0:
            return self._current_times(self.factor)
        if self.last_epoch != self.total_iters:
            return self._current()
        return self._current_times(1.0 / self.factor)

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        return self._base_times(self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor))


class LinearLR(LRScheduler):
    """lr = initial_lr times a factor that goes from `start_factor` to `end_factor` in `total_iters` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        if self.last_epoch == 0:
            return self._current_times(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return self._current_times(1.0 + rise / before)

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        rise = self.end_factor - self.start_factor
        return self._base_times(self.start_factor + rise * min(self.total_iters, self.last_epoch) / self.total_iters)


class ExponentialLR(LRScheduler):
    """lr = last lr * gamma at every epoch."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        return self._current() if self._is_initial else self._current_times(self.gamma)

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        return self._base_times(self.gamma**self.last_epoch)


class PolynomialLR(LRScheduler):
    """lr = initial_lr * (1 - epoch / total_iters)**power, and 0 after `total_iters` epochs."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._current()
        left, left_before = (1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
        return self._current_times((left / left_before) ** self.power)

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base_lr * left**self.power for base_lr in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """lr goes along a cosine from initial_lr to `eta_min` in `T_max` epochs, and back. Loshchilov and Hutter, 2017."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`."""
        self._check_called_by_step()
        if self._is_initial:
            return self._current()
        epoch, length, least = self.last_epoch, self.T_max, self.eta_min
        if self._step_count == 1 and epoch > 0:
            return self._get_closed_form_lr()
        groups = self.optimizer.param_groups
        if (epoch - 1 - length) % (2 * length) == 0:  # up from the minimum, where the ratio below is 0 / 0
            rise = 1 - math.cos(math.pi / length)
            return [group["lr"] + (base_lr - least) * rise / 2 for base_lr, group in zip(self.base_lrs, groups, strict=True)]
        ratio = (1 + math.cos(math.pi * epoch / length)) / (1 + math.cos(math.pi * (epoch - 1) / length))
        return [ratio * (group["lr"] - least) + least for group in groups]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        height = 1 + math.cos(math.pi * self.last_epoch / self.T_max)
        return [self.eta_min + (base_lr - self.eta_min) * height / 2 for base_lr in self.base_lrs]
