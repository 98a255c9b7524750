"""ZeroRedundancyOptimizer: every rank keeps the optimizer's state of a part of the parameters, and steps for all with it."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np

from ...optim.optimizer import Optimizer
from ...tensor import Tensor
from ...versions import bump
from .. import groups, objects, work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer of class `optimizer_class` whose state is shared out over the ranks: each holds that of its own parameters.

    All ranks have all parameters, with the same values and averaged gradients, as DistributedDataParallel leaves them. In `step` each
    updates its part and sends it to the others. Parts are about equal in elements: the largest parameter goes to the rank that has
    the least so far.

    params: tensors or groups, as for other optimizers; defaults: options of `optimizer_class`. process_group: by default that of all
    ranks. parameters_as_bucket_view changes nothing here. NotImplementedError for overlap_with_ddp, ValueError for parameters of
    different dtypes.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,  # noqa: ARG002  (it saves PyTorch memory)
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer: overlap_with_ddp isn't there in Backlight; leave it out")
        if isinstance(params, Tensor):
            raise TypeError(f"`params` argument should be an iterable of Tensors, but got {params.type()}")
        given = list(params)
        if not given:
            raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
        if not all(isinstance(entry, (Tensor, dict, tuple)) for entry in given):
            raise TypeError("`params` argument should be an iterable of Tensors or dicts")
        self.process_group = groups.resolve(process_group)
        self.rank, self.world_size = self.process_group.rank(), self.process_group.size()
        self.parts: list[list[list[Tensor]]] = [
            [] for _ in range(self.world_size)
        ]  # of each rank: its parameters in each group
        self._sizes = [0] * self.world_size
        self._consolidated: list[dict] | None = None
        self.optim: Any = None
        super().__init__(given, defaults)
        own = [{**_options(group), "params": part} for group, part in zip(self.param_groups, self.parts[self.rank])]
        self.optim = optimizer_class(own, **defaults)
        self._copy_options(self.optim.param_groups, self.param_groups)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters, and shares it out as well."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        types = list(dict.fromkeys(parameter.type() for one in self.param_groups for parameter in one["params"]))
        if len(types) > 1:
            del self.param_groups[-1]
            raise ValueError(
                f"ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got both {types[0]} and {types[1]}"
            )
        for parts in self.parts:
            parts.append([])
        for parameter in sorted(group["params"], key=lambda p: -p.numel()):
            rank = self._sizes.index(min(self._sizes))
            self._sizes[rank] += parameter.numel()
            self.parts[rank][-1].append(parameter)
        if self.optim is not None:
            self.optim.add_param_group({**_options(group), "params": self.parts[self.rank][-1]})
            self._copy_options(self.optim.param_groups, self.param_groups)

    @staticmethod
    def _copy_options(source: list[dict], target: list[dict]) -> None:
        for one, other in zip(source, target):
            other.update(_options(one))

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Updates this rank's part of the parameters, then gets the other parts from their ranks. All ranks must call it.

        Returns what `closure` does, if one is given."""
        self._copy_options(self.param_groups, self.optim.param_groups)  # a scheduler may have written there
        result = self.optim.step(**kwargs) if closure is None else self.optim.step(closure=closure, **kwargs)
        self._exchange()
        self._copy_options(self.optim.param_groups, self.param_groups)
        return result

    def _exchange(self) -> None:
        if self.world_size == 1:
            return
        communicator = self.process_group.communicator
        parts = [[parameter for group in part for parameter in group] for part in self.parts]
        others = [parameter for rank, part in enumerate(parts) if rank != self.rank for parameter in part]

        def run() -> None:
            for rank, part in enumerate(parts):
                if not part:
                    continue
                arrays = [parameter.array for parameter in part]
                ends = np.cumsum([array.size for array in arrays]).tolist()
                flat = np.empty(ends[-1], arrays[0].dtype)
                places = [flat[a:b].reshape(array.shape) for a, b, array in zip([0, *ends], ends, arrays)]
                for place, array in zip(places, arrays) if rank == self.rank else ():
                    place[...] = array
                work.broadcast_bytes(communicator, flat, rank)
                for place, array in zip(places, arrays) if rank != self.rank else ():
                    array[...] = place

        for parameter in others:
            bump(parameter)
        what = "ZeroRedundancyOptimizer.step", "", None, f"of {sum(self._sizes)} elements"
        work.execute(self.process_group, what, run, [], False)

    # State

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collects the state of all ranks on global rank `to`, for `state_dict` there. All ranks must call it."""
        self._copy_options(self.param_groups, self.optim.param_groups)
        root = groups.root_in(self.process_group, "dst", to, None)
        collected: list | None = [None] * self.world_size if self.rank == root else None
        objects.gather_object(self.optim.state_dict(), collected, group=self.process_group, group_dst=root)
        self._consolidated = collected

    def _numbers(self) -> dict[int, int]:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        return {id(parameter): i for i, parameter in enumerate(parameters)}

    def state_dict(self) -> dict[str, Any]:
        """The state of all ranks, as one optimizer would have it: on the rank where `consolidate_state_dict` has collected it last.

        RuntimeError on other ranks, and before."""
        if self._consolidated is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call "
                f"`consolidate_state_dict(to={self.rank})` on all ranks beforehand if you meant to save the global state."
            )
        result = super().state_dict()
        numbers = self._numbers()
        for part, local in zip(self.parts, self._consolidated):
            order = [numbers[id(parameter)] for group in part for parameter in group]
            result["state"].update((order[i], state) for i, state in local["state"].items())
        result["state"] = dict(sorted(result["state"].items()))
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what `state_dict` returned, or an ordinary optimizer's: each rank keeps its part."""
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(one["params"]) != len(group["params"]) for one, group in zip(saved, self.param_groups)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        numbers = self._numbers()
        state, own_groups, count = {}, [], 0
        for one, group, part in zip(saved, self.param_groups, self.parts[self.rank]):
            saved_number = dict(zip(map(id, group["params"]), one["params"]))
            indices = []
            for parameter in part:
                found = state_dict["state"].get(saved_number.get(id(parameter), numbers[id(parameter)]))
                if found is not None:
                    state[count] = found
                indices.append(count)
                count += 1
            own_groups.append({**_options(one), "params": indices})
        self.optim.load_state_dict({"state": deepcopy(state), "param_groups": own_groups})
        self._copy_options(self.optim.param_groups, self.param_groups)
        self._consolidated = None


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}
