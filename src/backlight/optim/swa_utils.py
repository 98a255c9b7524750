"""Averages of weights: stochastic weight averaging and exponential moving averages."""

from __future__ import annotations

import itertools
import math
from copy import deepcopy
from typing import TYPE_CHECKING

from .. import int64, no_grad, tensor
from ..nn import Module
from ..tensor import Tensor
from .lr_scheduler.scheduler import LRScheduler, per_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal

    from .optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _has_fractions(tensors) -> bool:
    return tensors[0].is_floating_point() or tensors[0].is_complex()


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable:
    """A `multi_avg_fn`: average = decay * average + (1 - decay) * current, in place, for lists of tensors."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param_list, current_param_list, _num_averaged) -> None:
        fractions = _has_fractions(ema_param_list)
        for average, current in zip(ema_param_list, current_param_list, strict=True):
            if fractions:
                average.lerp_(current, 1 - decay)
            else:
                average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable:
    """A `multi_avg_fn`: the mean of all models so far, in place, for lists of tensors.

    As in PyTorch, whole numbers can't be averaged: RuntimeError.
    """

    @no_grad()
    def swa_update(averaged_param_list, current_param_list, num_averaged) -> None:
        fractions = _has_fractions(averaged_param_list)
        for average, current in zip(averaged_param_list, current_param_list, strict=True):
            if fractions:
                average.lerp_(current, 1 / (num_averaged + 1))
            elif isinstance(num_averaged, Tensor):
                average.addcdiv_(current - average, num_averaged + 1)
            else:
                average.add_(current - average, alpha=1.0 / (num_averaged + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """An `avg_fn`: decay * average + (1 - decay) * current."""
    _check_decay(decay)

    @no_grad()
    def ema_update(ema_param: Tensor, current_param: Tensor, _num_averaged) -> Tensor:
        return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """An `avg_fn`: the mean of all models so far."""

    @no_grad()
    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged) -> Tensor:
        return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of a model whose parameters are averages over those the model had at each `update_parameters`.

    `avg_fn(average, current, number)` returns a tensor's new average, `multi_avg_fn` does the same in place for all
    tensors of a dtype in one call; by default it is the mean. Buffers are copied, or averaged with `use_buffers`.
    Izmailov et al., 2018.

    >>> import backlight as torch
    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> average = torch.optim.swa_utils.AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = torch.nn.init.constant_(model.weight, value)
    ...     average.update_parameters(model)
    >>> average.module.weight.item()
    3.0
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
        multi_avg_fn: Callable | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args, **kwargs):
        """What the averaged model computes."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Takes the model's present parameters into the averages."""
        averages, currents = ([value.detach() for value in _values(owner, self.use_buffers)] for owner in (self.module, model))
        if self.n_averaged == 0:
            for average, current in zip(averages, currents, strict=False):
                average.copy_(current)
        elif self.multi_avg_fn is not None:
            pairs: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
            for average, current in zip(averages, currents, strict=True):
                of_its_type = pairs.setdefault(average.dtype, ([], []))
                of_its_type[0].append(average)
                of_its_type[1].append(current)
            for of_its_type in pairs.values():
                self.multi_avg_fn(*of_its_type, self.n_averaged)
        else:
            function = self.avg_fn or get_swa_avg_fn()
            for average, current in zip(averages, currents, strict=True):
                average.copy_(function(average, current, self.n_averaged))
        if not self.use_buffers:
            for own, current in zip(self.module.buffers(), model.buffers(), strict=True):
                own.detach().copy_(current.detach())
        self.n_averaged += 1


def _values(model: Module, use_buffers: bool):
    return itertools.chain(model.parameters(), model.buffers()) if use_buffers else model.parameters()


@no_grad()
def update_bn(loader: Iterable, model: Module, device: Any = None) -> None:
    """Computes the running statistics of all batch norms anew, as means over the batches of `loader`.

    Of a batch that is a list or tuple, the first entry is the input. Does nothing for a model without batch norms.
    """
    from ..nn.norm import _BatchNorm

    momenta = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None  # a cumulative mean
    for batch in loader:
        if isinstance(batch, (list, tuple)):
            batch = batch[0]
        model(batch if device is None else batch.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """lr goes from where it is to `swa_lr` in `anneal_epochs` steps and stays there.

    The way is half a cosine or a line (`anneal_strategy`).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        for value, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = value
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_strategy = anneal_strategy
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def anneal_func(self, t: float) -> float:
        """How much of the way is done at the share `t` of the time."""
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def _done(self, step: int) -> float:
        return self.anneal_func(max(0, min(1, step / max(1, self.anneal_epochs))))

    def get_lr(self) -> list[float | Tensor]:
        """The learning rates at this step."""
        self._check_called_by_step()
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._done(step - 1), self._done(step)
        values = []
        for group in self.optimizer.param_groups:
            goal = group["swa_lr"]
            start = goal if before == 1 else (group["lr"] - before * goal) / (1 - before)
            values.append(goal * now + start * (1 - now))
        return values
