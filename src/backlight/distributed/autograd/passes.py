"""The backward pass across workers.

Every worker that takes part runs one sweep of its own graph, the ordinary one of `engine.py`, from its roots and from the
`SendRpcBackward` nodes of the context. Such a node, when its turn comes, waits until its gradients have arrived. Nodes run newest first
and a message is received after it was sent, so what a worker waits for always comes from a later step of the forward pass: waiting
can't go in a circle. The first gradients that reach a worker start its sweep, and are answered when it is done, so the answer
that the root waits for says that all have finished.

Which nodes wait? PyTorch's FAST rule, the default: all that were sent in the context, so everything sent must take part in the loss. The
SMART rule asks first: a walk over the graphs of all workers marks the messages that the roots depend on.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine import sweep
from ...futures import Future
from ...state import modes
from ...tensor import Tensor
from ...views import current_node
from .. import mpi
from ..rpc import agent as rpc
from . import graph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .graph import Context, RecvRpcBackward, SendRpcBackward

_numbers = itertools.count()


class Pass:
    """One worker's part of a backward pass. `number`: (the root's rank, its count). `keep`: buffers stay for another pass."""

    def __init__(self, context: Context, number: tuple, keep: bool):
        self.context, self.number, self.keep = context, number, keep
        self.shown = {"context": context.number, "number": list(number)}  # in a record
        self.mailboxes: dict[int, Future] = {}
        self.sent: list[Future] = []  # the gradients that were sent to others: done when those have finished
        self.marked: set[int] | None = None  # by the SMART rule: the messages whose gradients will come
        self.seen: set = set()  # nodes that its walk met
        self.started = False

    def gradient(self, leaf: Any) -> Any:
        """Where the engine accumulates a leaf's gradient."""
        return self.context.gradient(leaf)

    def mailbox(self, number: int) -> Future:
        """The future gradients of a message."""
        with self.context.lock:
            if number not in self.mailboxes:
                box: Future = Future()
                box._help = rpc.current().help
                self.mailboxes[number] = box
                if self.number in self.context.failed:
                    box._complete(None, self.context.failed[self.number])
            return self.mailboxes[number]

    def wait_for_gradients(self, node: SendRpcBackward) -> list:
        """The gradients of the tensors of a message, when they have come."""
        agent = rpc.current()
        box = self.mailbox(node.number)
        if not box._await(agent.timeout or None):
            here, there = agent.workers[agent.rank], agent.workers[node.to]
            raise mpi.DistributedTimeoutError(
                f"Rank {agent.rank} ({here.name}): the backward pass of context {self.context.number} waited {agent.timeout:g} s for the gradients of "
                f"what was sent to rank {node.to} ({there.name}) with {node.what}.\nEither that worker is still busy, or the loss doesn't depend on "
                "this message: backward's FAST rule expects gradients for everything that was sent in the context. Then leave it out of "
                "the context, send it under no_grad or detached, or use backward(..., smart=True)."
            )
        return [tensor.array for tensor in box.value()]

    def send_gradients(self, node: RecvRpcBackward, grads: list, keep: bool) -> None:
        """Sends the gradients of the tensors of a message to where they came from."""
        agent = rpc.current()
        tensors = [Tensor._from(g) for g in grads]
        arguments = (self.context.number, self.number, node.number, tensors, keep)
        if node.source == self.number[0]:  # the root's sweep runs, waits for them, and has no end to tell of
            agent.note(node.source, deliver_gradients, *arguments)
            return
        future = agent.call(agent.workers[node.source], take_gradients, arguments, in_context=False, kind=rpc.DELIVERY)
        self.sent.append(future)
        future._call_when_done(self._note_failure)

    def _note_failure(self, future: Future) -> None:
        if future._error is not None:
            self.fail(future._error)

    def fail(self, error: BaseException) -> None:
        """Ends the pass here: what waits for gradients raises."""
        with self.context.lock:
            self.context.failed.setdefault(self.number, error)
            boxes = list(self.mailboxes.values())
        for box in boxes:
            box._complete(None, error)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """What happens inside is this pass: whatever it raises ends it here, for the root on all workers, and then it is forgotten."""
        try:
            yield
        except Exception as error:
            error = _with_node(error)
            if self.number[0] == rpc.current().rank:
                _fail(self.context, self.number, error, str(error))
            else:
                self.fail(error)
            raise error from error.__cause__
        finally:
            with self.context.lock:
                self.context.passes.pop(self.number, None)

    def run(self, roots: list, gradients: list) -> None:
        """Runs this worker's sweep, and waits until those whose sweeps it started have finished."""
        context = self.context
        with context.lock:
            sends = [node for number, node in context.sends.items() if self.marked is None or number in self.marked]
        modes.distributed = self
        try:
            sweep([*roots, *sends], [*gradients, *[None] * len(sends)], self.keep)
        finally:
            modes.distributed = None
        for future in self.sent:
            future.wait()
        if self.number in context.failed:
            raise context.failed[self.number]

    def mark(self, roots: list) -> list[Future]:
        """The SMART rule's walk: marks what the nodes depend on, here and, by calls whose futures are returned, on other workers."""
        agent = rpc.current()
        nodes, reached = list(roots), []
        with self.context.lock:
            for node in nodes:  # grows while it is walked
                if node is not None and node not in self.seen:
                    self.seen.add(node)
                    nodes += node.edges
                    if isinstance(node, graph.RecvRpcBackward):
                        reached.append(node)
        return [
            agent.call(
                agent.workers[node.source],
                mark_message,
                (self.context.number, self.number, node.number, self.keep),
                in_context=False,
            )
            for node in reached
        ]


def backward(context_id: int, roots: list, retain_graph: bool = False, *, smart: bool = False) -> None:
    """Runs backward from the roots across all workers that took part in a context; gradients add up there, not in `.grad`.

    roots: scalar tensors that require grad. retain_graph: keeps buffers, so that another backward can follow. smart: asks all workers first
    which messages the roots depend on, instead of expecting gradients for everything that was sent in the context (PyTorch's FAST
    rule, the default). That costs a round of calls, and unused messages no longer make the pass wait for ever.

    RuntimeError: no such context, a root that isn't a scalar or doesn't require grad, and any exception of any worker's pass. A worker
    that waits longer than the rpc timeout raises DistributedTimeoutError, which names what it waited for.

        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", torch.add, args=(t1, t2)).sum()
            dist_autograd.backward(context_id, [loss])
            grads = dist_autograd.get_gradients(context_id)
    """
    if isinstance(context_id, bool) or not isinstance(context_id, int) or not isinstance(roots, (list, tuple)):
        raise TypeError(
            "backward(): incompatible function arguments. The following argument types are supported:\n    1. (contextId: typing.SupportsInt | "
            "typing.SupportsIndex, roots: collections.abc.Sequence[torch.Tensor], retain_graph: bool = False) -> None\n\n"
            f"Invoked with: {context_id!r}, {roots!r}"
        )
    context = graph.retrieve(context_id)
    _check_roots(roots)
    nodes = [current_node(root) for root in roots]
    this = _pass(context, (rpc.current().rank, next(_numbers)), retain_graph)
    this.started = True
    with this.ending():
        if smart:
            this.marked = set()
            for future in this.mark(nodes):
                future.wait()
        this.run(nodes, [np.ones_like(root.array) for root in roots])


def _check_roots(roots: Any) -> None:
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    for root in roots:
        if not isinstance(root, Tensor):
            raise TypeError(f"backward(): roots must be tensors, not {type(root).__name__}")
        if not root.requires_grad:
            raise RuntimeError("requires_grad not set on root")
        if root.is_leaf and root.array.size == 1:
            raise RuntimeError(" does not have a valid gradient function.\nA root is a leaf: nothing was computed from it.")
        if root.array.size != 1:
            raise RuntimeError(f" is not a scalar, all roots need to be scalar\nA root has the shape {list(root.shape)}.")


# What workers ask of each other


def take_gradients(context_id: int, number: tuple, message: int, gradients: list, keep: bool) -> None:
    """Gradients for a message that was sent from here. The first ones of a pass start this worker's sweep, and are answered when it is done."""
    context = graph.retrieve(context_id)
    if number in context.failed:
        raise context.failed[number]
    this = _pass(context, number, keep)
    with context.lock:
        starts, this.started = not this.started, True
    this.mailbox(message)._complete(gradients, None)
    if starts:
        with this.ending():
            this.run([], [])


def deliver_gradients(context_id: int, number: tuple, message: int, gradients: list, keep: bool) -> bool:  # noqa: ARG001
    """The same where this worker's sweep runs already: it waits for them, or will."""
    context = graph._contexts.get(context_id)
    this = None if context is None else context.passes.get(number)
    if this is None or not this.started:
        return False
    this.mailbox(message)._complete(gradients, None)
    return True


rpc.delivered_by(take_gradients, deliver_gradients)


def mark_message(context_id: int, number: tuple, message: int, keep: bool) -> None:
    """A pass depends on a message that was sent from here; returns when all that this one depends on is marked, too."""
    context = graph.retrieve(context_id)
    this = _pass(context, number, keep)
    with context.lock:
        if this.marked is None:
            this.marked = set()
        this.marked.add(message)
        node = context.sends[message]
    for future in this.mark([node]):
        future.wait()


def _pass(context: Context, number: tuple, keep: bool) -> Pass:
    with context.lock:
        if number not in context.passes:
            context.passes[number] = Pass(context, number, keep)
        return context.passes[number]


def _with_node(error: Exception) -> Exception:
    """An error of a backward pass, which says on which worker it happened; errors that came from others say it already."""
    if isinstance(error, (mpi.DistributedTimeoutError, mpi.WorkerDied)) or str(error).startswith(
        ("On WorkerInfo", "Error on Node")
    ):
        return error
    named = RuntimeError(f"Error on Node {rpc.current().rank}: {error}")
    named.__cause__ = error
    return named


def _fail(context: Context, number: tuple, error: BaseException, text: str) -> None:
    """Ends a pass here, and on the workers that were told of the context from here: they might wait for gradients that won't come."""
    with context.lock:
        context.failed.setdefault(number, error)
        this = context.passes.get(number)
        if this is not None and not this.started:
            del context.passes[number]
    if this is not None:
        this.fail(error)
    for worker in context.known:
        rpc.current().note_later(worker, fail_here, context.number, number, text)


def fail_here(context_id: int, number: tuple, text: str) -> None:
    """A pass has failed elsewhere."""
    context = graph._contexts.get(context_id)
    if context is not None and number not in context.failed:
        _fail(context, number, RuntimeError(f"The backward pass failed on another worker: {text}"), text)
