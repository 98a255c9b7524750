"""`torch.distributed.autograd`: backward across workers that call each other by `torch.distributed.rpc`.

with dist_autograd.context() as context_id:
    loss = rpc.rpc_sync("worker1", forward, args=(x,)).sum()
    dist_autograd.backward(context_id, [loss])
    optimizer.step(context_id)  # a torch.distributed.optim.DistributedOptimizer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rpc import agent as _rpc
from . import graph as _graph
from .graph import Context as DistAutogradContext
from .passes import backward

if TYPE_CHECKING:
    from ...tensor import Tensor

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]

_new_context = _graph.new_context
_release_context = _graph.release
_retrieve_context = _graph.retrieve
_current_context = _graph.current_context


class context:
    """Has all messages that this thread sends, and the calls that they make elsewhere, noted for one `backward`; gives the context's id.

    The context and its gradients are forgotten on all workers at the end of the block. Contexts of one thread don't nest.
    """

    def __enter__(self) -> int:
        self.autograd_context = _new_context()
        return self.autograd_context._context_id()

    def __exit__(self, *_exception: object) -> None:
        _release_context(self.autograd_context._context_id())


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """The gradients that backward passes of a context left on this worker: {leaf: gradient}.

    RuntimeError if there is no such context, or no longer."""
    gradients = _graph.retrieve(context_id).gradients
    return {leaf.variable: held.grad for leaf, held in list(gradients.items()) if held.grad is not None}


def is_available() -> bool:
    """Whether distributed autograd can be used: mpi4py is installed."""
    from .. import mpi

    return mpi.is_available()


def _init(worker_id: int) -> None:
    """PyTorch's private beginning: init_rpc does what is to do."""


def _get_max_id() -> int:
    return (_rpc.current().rank << 48) + (1 << 48) - 1


def _get_debug_info() -> dict[str, int]:
    return {"num_current_backward_passes": _graph.running_passes(), "num_autograd_contexts": _graph.count()}


def _is_valid_context(worker_id: int) -> bool:
    return worker_id in _graph._contexts
