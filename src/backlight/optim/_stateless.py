"""An optimizer's step on other parameters and another state."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING

from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from .optimizer import Optimizer

__all__ = ["swap_in_optimizer_params_and_state"]

_NAME = "swap_in_optimizer_params_and_state"


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Within `with`, the optimizer has other parameters, in its own order, and the state of a `state_dict()`.

    In-place changes reach the tensors given; new entries in the state do not reach the dict. Afterwards
    the optimizer is as it was. RuntimeError where parameters or state don't fit, or where the optimizer has no
    state yet.
    """
    state = _checked_state(optimizer, swapin_optim_state)
    groups = swapin_optim_state["param_groups"]
    parameters = _distributed(optimizer, swapin_parameters, groups)
    known = {number for group in groups for number in group["params"]}
    unknown = [key for key in state if key not in known]
    if unknown:
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from "
            f"param_groups[*]['params']; got extra keys {unknown!r}."
        )
    own_state, own_groups = optimizer.state, [dict(group) for group in optimizer.param_groups]
    try:
        new_state: defaultdict[Tensor, Any] = defaultdict(dict)
        for own, new, tensors in zip(optimizer.param_groups, groups, parameters, strict=True):
            own.update(new)
            own["params"] = tensors
            for tensor, number in zip(tensors, new["params"], strict=True):
                new_state[tensor] = dict(state.get(number, {}))
        optimizer.state = new_state
        yield
    finally:
        for own, group in zip(optimizer.param_groups, own_groups, strict=True):
            own.clear()
            own.update(group)
        optimizer.state = own_state


def _checked_state(optimizer: Optimizer, state_dict: Any) -> dict[Any, Any]:
    """The state by parameter number. RuntimeError where the two parts of the state_dict aren't what they should be."""
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    if not isinstance(state_dict, dict):
        raise RuntimeError(f"{_NAME} requires a DCP-style optimizer state_dict.")
    state, groups = state_dict.get("state"), state_dict.get("param_groups")
    if not isinstance(state, dict):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids to per-param state "
            f"dicts, got {type(state).__name__}."
        )
    if any(isinstance(key, Tensor) for key in state):
        raise RuntimeError(f"{_NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids.")
    if any(isinstance(key, int) and not isinstance(value, dict) for key, value in state.items()):
        raise RuntimeError(f"{_NAME} requires per-parameter optimizer state entries to be dictionaries.")
    if not isinstance(groups, list):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, "
            f"got {type(groups).__name__}."
        )
    if len(optimizer.param_groups) != len(groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    return state


def _distributed(optimizer: Optimizer, parameters: dict[str, Tensor], groups: list) -> list[list[Tensor]]:
    """The parameters of each group, in order. RuntimeError where a group doesn't fit the optimizer's."""
    tensors, start, result = list(parameters.values()), 0, []
    for index, (own, group) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        if not isinstance(group, dict):
            raise RuntimeError(f"{_NAME} requires each optimizer param group to be a dictionary.")
        numbers = group.get("params")
        if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
            raise RuntimeError(
                f"{_NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed parameter ids."
            )
        if len(own["params"]) != len(numbers):
            raise RuntimeError(
                f"swapin_optim_state param group {index} has a different number of params than the live optimizer param group."
            )
        only_new, only_own = [key for key in group if key not in own], [key for key in own if key not in group]
        if only_new or only_own:
            raise RuntimeError(
                f"{_NAME} requires optimizer.state_dict()-style param group keys to exactly match the live optimizer "
                f"group keys for group {index}. Keys only in swap-in: {only_new}. Keys only in live: {only_own}."
            )
        if start + len(numbers) > len(tensors):
            raise RuntimeError(f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering.")
        result.append(tensors[start : start + len(numbers)])
        start += len(numbers)
    return result
