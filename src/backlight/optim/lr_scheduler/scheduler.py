"""LRScheduler: what all schedules share."""

from __future__ import annotations

import functools
import types
import warnings
import weakref
from typing import TYPE_CHECKING

from ...tensor import Tensor
from ..optimizer import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed form "
    "is used instead of the new chainable form, where available. Please open an issue if you are unable to replicate your "
    "use case: https://github.com/pytorch/pytorch/issues/new/choose."
)
_DETAILS = "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


class LRScheduler:
    """Base class of schedules: `step` sets each group's "lr" to what `get_lr` computes from `last_epoch`.

    The first learning rates are kept in the groups as "initial_lr". To resume with a `last_epoch`, the groups must have
    these. A subclass defines `get_lr`, and `_get_closed_form_lr` if there is a formula that needs no step before.

    >>> import backlight as torch
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0)
    >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for epoch in range(4):
    ...     optimizer.step()
    ...     print(scheduler.get_last_lr())
    ...     scheduler.step()
    [1.0]
    [1.0]
    [0.5]
    [0.5]
    """

    _get_lr_called_within_step = False
    _is_initial = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for index, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{index}] when resuming scheduler with "
                    "last_epoch >= 0.\nThis typically happens when:\n1. You're trying to resume training from a checkpoint "
                    "but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 for a fresh training "
                    "run (not recommended)"
                )
        self.base_lrs: list[float | Tensor] = values_of(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _note_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the attributes over from what `state_dict` returned."""
        vars(self).update(state_dict)

    def get_last_lr(self) -> list[float | Tensor]:
        """The learning rates that the last step set, one per group."""
        return self._last_lr

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at `last_epoch`, one per group. For `step`; elsewhere `get_last_lr` tells them."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Goes on to the next epoch, or to a given one (deprecated), and sets the learning rates."""
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                warnings.warn(
                    "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. Please, "
                    f"make sure to call `optimizer.step()` before `lr_scheduler.step()`. {_DETAILS}",
                    UserWarning,
                    stacklevel=2,
                )
            elif not getattr(self.optimizer, "_opt_called", False):
                warnings.warn(
                    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch 1.1.0 and later, you should "
                    "call them in the opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to do this "
                    f"will result in PyTorch skipping the first value of the learning rate schedule. {_DETAILS}",
                    UserWarning,
                    stacklevel=2,
                )
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                values = getattr(self, "_get_closed_form_lr", self.get_lr)()
        finally:
            self._get_lr_called_within_step = False
        self._set(values)

    def _set(self, values: list[float | Tensor]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            set_value(group, "lr", value)
        self._last_lr = values_of(self.optimizer, "lr")

    def _check_called_by_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                UserWarning,
                stacklevel=3,
            )

    def _current(self) -> list[float | Tensor]:
        return values_of(self.optimizer, "lr")

    def _current_times(self, factor: float) -> list[float | Tensor]:
        return [group["lr"] * factor for group in self.optimizer.param_groups]

    def _base_times(self, factor: float) -> list[float | Tensor]:
        return [base_lr * factor for base_lr in self.base_lrs]


class _LRScheduler(LRScheduler):
    """The class's name in older programs."""


def check_optimizer(optimizer: Optimizer) -> None:
    """TypeError for anything else."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def _note_steps(optimizer: Optimizer) -> None:
    """Lets `optimizer.step` note that it was called, for the warning about the order of calls."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    step, owner = optimizer.step.__func__, weakref.ref(optimizer)

    @functools.wraps(step)
    def noted(*args, **kwargs):
        optimizer = owner()
        vars(optimizer)["_opt_called"] = True
        return step(optimizer, *args, **kwargs)

    vars(noted)["_wrapped_by_lr_sched"] = True
    optimizer.step = noted  # pyright: ignore[reportAttributeAccessIssue]


def copied(value):
    """A tensor's copy; other values as they are."""
    return value.clone() if isinstance(value, Tensor) else value


def values_of(optimizer: Optimizer, key: str) -> list[Any]:
    """An option of every group; tensors are copied."""
    return [copied(group[key]) for group in optimizer.param_groups]


def set_value(group: dict[str, Any], key: str, value: float | Tensor) -> None:
    """Sets an option of a group; a tensor is written into."""
    if isinstance(group[key], Tensor):
        group[key].fill_(value.squeeze() if isinstance(value, Tensor) and value.dim() else value)
    else:
        group[key] = value


def per_group(name: str, optimizer: Optimizer, value) -> list[Any]:
    """One value per group, from such a list or from one value for all. ValueError for a list of another length."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        value = [value] * groups
    elif len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, "
            f"param_groups has {groups}."
        )
    return [copied(entry) for entry in value]


def attributes_of(function: Callable) -> dict[str, Any] | None:
    """What a state_dict keeps of a callable: the attributes of an object, nothing of a function."""
    return None if isinstance(function, types.FunctionType) else vars(function).copy()
