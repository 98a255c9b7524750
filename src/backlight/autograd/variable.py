"""`Variable`, the old name of Tensor."""

from __future__ import annotations

from ..engine import current_sweep
from ..tensor import Tensor


class _ExecutionEngine:
    """The engine's face in PyTorch's private API."""

    def queue_callback(self, callback) -> None:
        """Calls `callback()` when the running backward pass has ended."""
        sweep = current_sweep()
        if sweep is None:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        sweep.callbacks.append(callback)


class _VariableType(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableType):
    """The tensor itself, as `Variable(tensor, requires_grad=False)` returned before PyTorch 0.4."""

    _execution_engine = _ExecutionEngine()

    def __new__(cls, data=None, requires_grad=False, volatile=None):
        if volatile is not None:
            raise ValueError("volatile was removed; use torch.no_grad() instead")
        if data is None:
            data = Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        result = data.detach() if data.requires_grad is not requires_grad else Tensor._from(data.array)
        return result.requires_grad_() if requires_grad else result
