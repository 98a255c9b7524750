"""Names of PyTorch's private module `_C` that programs use: its error classes, the running backward pass, test nodes."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

from .dtypes import device, dtype
from .engine import AccumulateGrad, Node, current_sweep
from .ops.matrix import LinAlgError as _LinAlgError
from .random import Generator
from .saved import SavedTensor
from .state import clock, is_grad_enabled, modes
from .tensor import Tensor
from .views import current_node, version_of

__all__ = ["Generator", "_LinAlgError", "device", "dtype", "is_grad_enabled"]
has_lapack = True


def _get_tracing_state() -> None:
    """The TorchScript trace being recorded: always None, there is none here."""


def _log_api_usage_once(_name: str) -> None:
    """PyTorch's count of uses: nothing is counted here."""


def _current_graph_task_id() -> int:
    """The number of the running backward pass, -1 outside of one."""
    sweep = current_sweep()
    return -1 if sweep is None else sweep.number


def _needs_backward(name):
    sweep = current_sweep()
    if sweep is None:
        raise RuntimeError(f"{name} should only be called during the backward pass")
    return sweep


def _current_graph_task_execution_order() -> list:
    """The nodes of the running backward pass in the order in which they run."""
    sweep = _needs_backward("_current_graph_task_execution_order")
    if modes.multithreading:
        raise RuntimeError(
            "_current_graph_task_execution_order expects the current backward to be executed with multithreading disabled, e.g. by "
            "running:\n\nwith torch.autograd.set_multithreading_enabled(False):\n    ..."
        )
    return [node for node in sweep.steps if not hasattr(node, "parent")]


def _will_engine_execute_node(node) -> bool:
    """Whether the running backward pass runs (or has run) this node."""
    if not isinstance(node, Node):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    sweep = _needs_backward("_get_should_execute_node")
    if sweep.capture and node in sweep.targets and not node.edges:
        raise RuntimeError(
            "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This is currently not "
            "supported."
        )
    return node in sweep.steps


class _WeakTensorRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor):
        self._reference = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the tensor is gone."""
        return self._reference() is None


def _set_fwd_grad_enabled(enabled: bool) -> None:
    modes.forward_grad = enabled


def _is_fwd_grad_enabled() -> bool:
    return modes.forward_grad


class _TestNode(Node):
    __slots__ = ("message",)

    def __init__(self, tensor):
        self.edges, self.seq, self.hooks = (current_node(tensor),), next(clock), None


class _UndefinedGradBackward(_TestNode):
    __slots__ = ()
    runs_on_none = True

    def run(self, g, edges, keep):  # noqa: ARG002
        return (None,)

    record = run


class _DelayedErrorBackward(_TestNode):
    __slots__ = ()

    def run(self, g, edges, keep):  # noqa: ARG002
        raise RuntimeError(self.message)

    record = run


_UndefinedGradBackward.__name__, _DelayedErrorBackward.__name__ = "UndefinedGrad", "Error"


def _behind(node_class, tensor):
    result = Tensor._from(tensor.array)
    if tensor.requires_grad:
        result.node = node_class(tensor)
    return result


class UndefinedGrad:
    """A function that returns its input; backward passes no gradient on."""

    def __call__(self, tensor):
        return _behind(_UndefinedGradBackward, tensor)


class DelayedError:
    """A function that returns its input(s); backward raises a RuntimeError with the message."""

    def __init__(self, message, num_inputs=1):
        self.message, self.num_inputs = message, num_inputs

    def __call__(self, *tensors):
        results = [_behind(_DelayedErrorBackward, x) for x in tensors]
        for x in results:
            if x.node is not None:
                x.node.message = self.message
        return results[0] if len(results) == 1 else tuple(results)


def _saved_tensors_hooks_is_enabled() -> bool:
    return modes.hooks_disabled is None


def _get_current_graph_task_keep_graph() -> bool:
    return _needs_backward("_get_current_graph_task_keep_graph").keep


def _unsafe_set_version_counter(tensors, versions) -> None:
    """Sets what `_version` says, without writing anything."""
    for x, count in zip(
        tensors if isinstance(tensors, tuple) else (tensors,), versions if isinstance(versions, tuple) else (versions,)
    ):
        version_of(x).count = count


_functions = SimpleNamespace(AccumulateGrad=AccumulateGrad, UndefinedGrad=UndefinedGrad, DelayedError=DelayedError)
_autograd = SimpleNamespace(
    SavedTensor=SavedTensor,
    _saved_tensors_hooks_is_enabled=_saved_tensors_hooks_is_enabled,
    _get_current_graph_task_keep_graph=_get_current_graph_task_keep_graph,
    _unsafe_set_version_counter=_unsafe_set_version_counter,
)
