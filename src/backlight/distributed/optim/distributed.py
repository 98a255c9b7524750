"""`DistributedOptimizer`: one optimizer on each worker that owns parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...futures import Future
from .. import autograd, rpc

_stepping = threading.Lock()  # .grad holds one pass's gradients at a time


class _LocalOptimizer:
    """The optimizer of one worker's parameters, for the gradients of a context."""

    def __init__(self, optimizer_class: Callable, references: list, args: tuple, kwargs: dict):
        self.parameters = [reference.local_value() for reference in references]
        self.optimizer = optimizer_class(self.parameters, *args, **kwargs)

    def step(self, context_id: int) -> None:
        gradients = autograd.get_gradients(context_id)
        with _stepping:
            before = [parameter.grad for parameter in self.parameters]
            for parameter in self.parameters:
                parameter.grad = gradients.get(parameter)
            try:
                self.optimizer.step()
            finally:
                for parameter, grad in zip(self.parameters, before):
                    parameter.grad = grad


def _make(optimizer_class: Callable, references: list, args: tuple, kwargs: dict) -> Any:
    return rpc.RRef(_LocalOptimizer(optimizer_class, references, args, kwargs))


def _step(optimizer: Any, context_id: int) -> None:
    optimizer.local_value().step(context_id)


def _results(futures: list[Future]) -> list:
    """The futures' values, when all are done; then the first exception among them, if there is one."""
    for future in futures:
        future._await()
    return [future.wait() for future in futures]


class DistributedOptimizer:
    """Applies an optimizer to parameters on any workers, with the gradients of a distributed autograd context.

    optimizer_class: a class of `torch.optim`. params_rref: RRefs to leaf tensors. args, kwargs: the optimizer's own, the same on each worker.
    Every worker that owns some of the parameters gets an optimizer for those. `.grad` is as before after a step. Steps that several
    programs ask for at once are done one after the other on each worker, in no particular order.

        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", forward, args=(x,)).sum()
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)
    """

    def __init__(self, optimizer_class: Callable, params_rref: Sequence, *args: Any, **kwargs: Any) -> None:
        by_owner: dict = {}
        for reference in params_rref:
            if not isinstance(reference, rpc.RRef):
                raise TypeError(
                    f"DistributedOptimizer takes RRefs to parameters, not {type(reference).__name__}: rpc.RRef(parameter)"
                )
            by_owner.setdefault(reference.owner(), []).append(reference)
        if not by_owner:
            raise ValueError("optimizer got an empty parameter list")
        made = [rpc.rpc_async(owner, _make, args=(optimizer_class, mine, args, kwargs)) for owner, mine in by_owner.items()]
        self.remote_optimizers = _results(made)

    def step(self, context_id: int) -> None:
        """One step on every worker that owns parameters; returns when all have done it. RuntimeError if there is no such context."""
        autograd._retrieve_context(context_id)
        _results([rpc.rpc_async(x.owner(), _step, args=(x, context_id)) for x in self.remote_optimizers])
