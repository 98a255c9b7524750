"""Optimizer: parameter groups, state per parameter, state_dict, hooks. A subclass adds `step`."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import enable_grad
from ..autograd.hooks import RemovableHandle, add_hook
from ..nn.parameter import clear_grads
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Optimizer"]

ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]  # what an optimizer is made of

_global_optimizer_pre_hooks: OrderedDict = OrderedDict()
_global_optimizer_post_hooks: OrderedDict = OrderedDict()


class _Required:
    """The default of an option that every group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` runs before every `step` of every optimizer."""
    return add_hook(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """`hook(optimizer, args, kwargs)` runs after every `step` of every optimizer."""
    return add_hook(_global_optimizer_post_hooks, hook)


def _with_hooks(step):
    """`step`, with the hooks around it."""

    @functools.wraps(step)
    def hooked(self, *args, **kwargs):
        before, after = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
        if not (before or after or _global_optimizer_pre_hooks or _global_optimizer_post_hooks):
            return step(self, *args, **kwargs)
        args = (self, *args)
        for hook in chain(_global_optimizer_pre_hooks.values(), list(before.values())):
            new = hook(self, args, kwargs)
            if new is None:
                continue
            if not (isinstance(new, tuple) and len(new) == 2):
                raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got {new}.")
            args, kwargs = new
        result = step(*args, **kwargs)
        for hook in chain(list(after.values()), _global_optimizer_post_hooks.values()):
            hook(self, args, kwargs)
        return result

    return hooked


class Optimizer:
    """Base class of optimizers: it holds the parameters in groups, each a dict of options, and state per parameter.

    `params` is an iterable of tensors, of (name, tensor), or of dicts with the key "params" and options that differ
    from `defaults`.
    """

    def __init_subclass__(cls, **kwargs) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = _with_hooks(cls.step)

    def __init__(self, params: Iterable, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_tables()
        if isinstance(params, Tensor):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {params.type()}"
            )
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_tables(self) -> None:
        self._optimizer_step_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_step_post_hooks: OrderedDict = OrderedDict()
        self._optimizer_state_dict_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_state_dict_post_hooks: OrderedDict = OrderedDict()
        self._optimizer_load_state_dict_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_load_state_dict_post_hooks: OrderedDict = OrderedDict()
        self._scratch = Scratch()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates the parameters from their gradients. `closure` computes the loss anew and is returned by `step`."""
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters: to None, or to zeros in place."""
        for group in self.param_groups:
            clear_grads(group["params"], set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters, with options that may differ from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        params = list(params)
        named = [isinstance(entry, tuple) for entry in params]
        if any(named):
            if not all(named):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = [name for name, _parameter in params]
            params = [parameter for _name, parameter in params]
        param_group["params"] = params
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(parameter).__name__}")
            if not (parameter.is_leaf or parameter.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(set(map(id, params))) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        with_names = "param_names" in param_group
        if any(with_names != ("param_names" in group) for group in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with names' if with_names else 'without names'} to the optimizer"
            )
        taken = {id(parameter) for group in self.param_groups for parameter in group["params"]}
        if not taken.isdisjoint(map(id, params)):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    # -- state --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """`{"state": {number: state}, "param_groups": [...]}`, parameters being numbered through all groups."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [numbers[id(parameter)] for parameter in group["params"]]
            groups.append(packed)
        state = {(numbers[id(key)] if isinstance(key, Tensor) else key): value for key, value in self.state.items()}
        state_dict = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            new = hook(self, state_dict)
            if new is not None:
                state_dict = new
        return state_dict

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned. The groups must have as many parameters as this optimizer's.

        State that belongs to a floating point parameter is converted to its dtype, but for the step count.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            new = hook(self, state_dict)
            if new is not None:
                state_dict = new
        groups = self.param_groups
        saved_groups = deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for group, saved in zip(groups, saved_groups, strict=True):
            if len(group["params"]) != len(saved["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
                )
        saved_numbers = chain.from_iterable(group["params"] for group in saved_groups)
        parameters = chain.from_iterable(group["params"] for group in groups)
        parameter_of = dict(zip(saved_numbers, parameters, strict=True))
        state = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in parameter_of:
                parameter = parameter_of[key]
                state[parameter] = _fitting(parameter, value)
            else:
                state[key] = value
        for group, saved in zip(groups, saved_groups, strict=True):
            saved["params"] = group["params"]
            if "param_names" in group:
                saved["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_optimizer_step_pre_hooks" not in self.__dict__:
            self._make_tables()
        for group in self.param_groups:  # options that did not exist when the state was saved
            for name, default in self.defaults.items():
                if default is not required:
                    group.setdefault(name, default)

    # -- hooks --------------------------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` runs before `step`; it may return new `(args, kwargs)`."""
        return add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(optimizer, args, kwargs)` runs after `step`."""
        return add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` runs before the state_dict is taken."""
        return add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend=prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` runs afterwards; it may return another state_dict."""
        return add_hook(self._optimizer_state_dict_post_hooks, hook, prepend=prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer, state_dict)` runs before loading; it may return another state_dict."""
        return add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend=prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(optimizer)` runs after loading."""
        return add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend=prepend)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines += [f"Parameter Group {number}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
            lines += [""]
        lines[-1] = ")"
        return "\n".join(lines)


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """What `closure` returns, computed with gradients on; None without a closure."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def number(value: float | Tensor) -> float:
    """An option that may be given as a tensor, as a number."""
    return value.item() if isinstance(value, Tensor) else value


def check_options(lr, *, foreach=None, fused=None, differentiable=False, capturable=False) -> None:
    """Raises where the options of a constructor don't go together, or can't be had here.

    `foreach` and `fused` choose among implementations that PyTorch has and this library does not need.
    """
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if fused:
        if differentiable:
            raise RuntimeError("`fused` does not support `differentiable`")
        if foreach:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if differentiable:
        raise NotImplementedError(
            "differentiable=True is not supported: steps work on arrays and are not recorded. "
            "Write the update with tensor operations to differentiate through it."
        )
    if capturable:
        raise NotImplementedError("capturable=True is not supported: it is for CUDA graphs.")


_OPTION_WORDS = {"lr": "learning rate", "eps": "epsilon value"}


def check_not_negative(**options) -> None:
    """ValueError for the first option that is negative, or NaN."""
    for name, value in options.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {_OPTION_WORDS.get(name, f'{name} value')}: {value}")


def check_betas(betas) -> None:
    """ValueError for the first of two or more decay rates that isn't in [0, 1)."""
    for index in range(max(2, len(betas))):
        if not 0.0 <= betas[index] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {betas[index]}")


class Scratch(dict):
    """Two arrays to compute in, by (shape, dtype): all parameters that are alike use the same two."""

    def __missing__(self, key: tuple) -> tuple[np.ndarray, np.ndarray]:
        self[key] = arrays = np.empty(*key), np.empty(*key)
        return arrays


def factor_type(dtype: np.dtype) -> type:
    """The dtype of the factors for parameters of `dtype`: single precision (also for half), or double for double."""
    return np.float64 if dtype.char in "dD" else np.float32


def real_parts(*arrays: np.ndarray | None):
    """The real parts of complex arrays, then their imaginary parts: a complex parameter is trained as two real ones."""
    yield [None if array is None else array.real for array in arrays]  # pyright: ignore[reportAttributeAccessIssue]
    yield [None if array is None else array.imag for array in arrays]  # pyright: ignore[reportAttributeAccessIssue]


def _fitting(parameter: Tensor, value):
    """Saved state as it suits `parameter`: a new container of the same tensors, converted where dtypes differ."""
    if isinstance(value, dict):
        return {
            key: entry if key == "step" and isinstance(entry, Tensor) else _fitting(parameter, entry)
            for key, entry in value.items()
        }
    if isinstance(value, Tensor):
        return value.to(parameter.dtype) if parameter.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(_fitting(parameter, entry) for entry in value)
    return value
