"""What optimizers share that update each element by itself: the loop over parameters, state, complex numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import float32, float64, get_default_dtype, kernels, no_grad, tensor
from ..kernels import FUSED, NEVER
from ..tensor import Tensor
from ..views import bump
from .optimizer import Optimizer, factor_type, loss_of, real_parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

__all__ = ["ElementwiseOptimizer", "scalar_state"]


class ElementwiseOptimizer(Optimizer):
    """An optimizer whose update of an element depends on this element's history only, and on the number of the step.

    A subclass says what the state of a parameter is (`_start`), which of it `_update` takes (`_names`), and which
    numbers it needs (`_factors`). Numbers are 0-d arrays in the precision of the computation: NumPy is fastest with
    these. They are computed once for all parameters of a group that are at the same step.
    """

    _scalars: tuple[str, ...] = ()  # state besides the step that is one number per parameter and goes to `_factors`

    def _start(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """The state of a parameter before its first step, beginning with "step"."""
        raise NotImplementedError

    def _names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Names of the state that `_update` takes."""
        raise NotImplementedError

    def _factors(self, group: dict[str, Any], count: float, dtype: type, *scalars: np.ndarray) -> tuple:
        """Whatever `_update` needs in step `count` (from 1), in `dtype`."""
        raise NotImplementedError

    @staticmethod
    def _update(g, p, *arrays_and_factors) -> None:
        """One step of the real array `p` with gradient `g`, in place: (g, p, *state, work, work2, factors).

        `work` and `work2` are to be overwritten, `g` is not.
        """
        raise NotImplementedError

    # The same without work arrays, by a kernel, for arrays that are large and dense; None if there is none.
    _update_large: Callable[..., None] | None = None

    def _advance(self, state: dict[str, Tensor], group: dict[str, Any], count: float) -> None:
        """Brings the state's scalars to the next step, where a class has such."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. Returns what `closure`, if given, returns."""
        loss = loss_of(closure)
        scratch, update, scalars, states = self._scratch, self._update, self._scalars, self.state
        from_size = NEVER if self._update_large is None else FUSED
        for group in self.param_groups:
            names = self._names(group)
            made_for = factors = None
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                state = states[parameter]
                if not state:
                    with no_grad():
                        state.update(self._start(parameter, group))
                step = state["step"].array
                step += 1
                p = parameter.array
                dtype, count = p.dtype, step.item()
                key = (count, dtype, *[state[name].item() for name in scalars]) if scalars else (count, dtype)
                if key != made_for:
                    made_for = key
                    factors = self._factors(group, count, factor_type(dtype), *[state[name].array for name in scalars])
                arrays = [grad.array, p, *[state[name].array for name in names]]
                if dtype.kind == "c":
                    for parts in real_parts(*arrays):
                        update(*parts, *scratch[parts[0].shape, parts[0].dtype], factors)  # pyright: ignore[reportOptionalMemberAccess]
                elif p.size >= from_size and kernels.optim.dense(*arrays):
                    self._update_large(*arrays, factors)  # pyright: ignore[reportOptionalCall]
                else:
                    update(*arrays, *scratch[p.shape, dtype], factors)
                if scalars:
                    self._advance(state, group, count)
                bump(parameter)
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        numbers_to_tensors(self.state, ("step", *self._scalars))


def numbers_to_tensors(state: dict[Any, Any], names: tuple[str, ...]) -> None:
    """Makes tensors of the numbers in every parameter's state: what old versions saved is still loaded."""
    for own in state.values():
        for name in names:
            if name in own and not isinstance(own[name], Tensor):
                own[name] = scalar_state(float(own[name]))


def scalar_state(value: float, fused: bool | None = None) -> Tensor:
    """One number of a parameter's state, as a tensor: in double precision only if that is the default dtype."""
    wide = get_default_dtype() == float64 and not fused
    return tensor(value, dtype=float64 if wide else float32)
