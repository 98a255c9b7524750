"""Contexts of distributed autograd, and the two nodes that connect the graphs of two workers.

A tensor that requires grad and is sent within a context leaves a `SendRpcBackward` on the sender, whose edges lead to what made the tensor, and
arrives with a `RecvRpcBackward`, which has none. In backward the second sends the gradient to the first.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...engine import Node, Port
from ...state import clock, modes
from ...views import current_node
from ..rpc import agent as rpc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..rpc.messages import Message
    from .passes import Pass

_OUTSIDE = (
    "{} can only run in torch.distributed.autograd.backward(context_id, roots).\nHere tensor.backward() or torch.autograd.grad() reached a tensor "
    "that came from another worker: its gradient has to go there."
)


class SendRpcBackward(Node):
    """The tensors of a message, on the worker that sent them: gets their gradients from there, for what made them."""

    __slots__ = ("number", "outputs", "to", "what")
    runs_on_none = True

    @property
    def parameters(self) -> dict[str, Any]:
        """What a record shows of it."""
        return {"message": self.number, "rank": self.to, "call": self.what}

    def __init__(self, tensors: list, number: int, to: int, what: str):
        self.edges = tuple([current_node(tensor) for tensor in tensors])
        self.seq, self.hooks, self.outputs = next(clock), None, len(tensors)
        self.number, self.to, self.what = number, to, what

    def name(self) -> str:
        return "torch::distributed::autograd::SendRpcBackward"

    def run(self, g: Any, edges: tuple, keep: bool) -> list:  # noqa: ARG002
        if modes.distributed is None:
            raise RuntimeError(_OUTSIDE.format("SendRpcBackward"))
        return modes.distributed.wait_for_gradients(self)


class RecvRpcBackward(Node):
    """The tensors of a message, on the worker that received them: sends their gradients to where they came from."""

    __slots__ = ("context", "number", "outputs", "shapes", "source")
    runs_on_none = True

    @property
    def parameters(self) -> dict[str, Any]:
        """What a record shows of it."""
        return {"message": self.number, "rank": self.source}

    def __init__(self, tensors: list, number: int, source: int):
        self.edges = ()
        self.seq, self.hooks, self.outputs = next(clock), None, len(tensors)
        self.number, self.source = number, source
        self.shapes = [(tensor.array.shape, tensor.array.dtype) for tensor in tensors]
        for i, tensor in enumerate(tensors):
            tensor.node = self if self.outputs == 1 else Port(self, i)

    def name(self) -> str:
        return "torch::distributed::autograd::RecvRpcBackward"

    def run(self, g: Any, edges: tuple, keep: bool) -> tuple:
        if modes.distributed is None:
            raise RuntimeError(_OUTSIDE.format("RecvRpcBackward"))
        grads = g if type(g) is list else [g]
        whole = [np.zeros(*like) if x is None else np.asarray(x, like[1]) for x, like in zip(grads, self.shapes)]
        modes.distributed.send_gradients(self, whole, keep)
        return edges


class _Gradient:
    """A leaf's gradient in one context."""

    __slots__ = ("grad",)

    def __init__(self) -> None:
        self.grad: Any = None


class Context:
    """What one worker knows of a context: the messages within it, its gradients, its running passes."""

    def __init__(self, number: int):
        self.number = number
        self.sends: dict[int, SendRpcBackward] = {}
        self.receives: dict[int, RecvRpcBackward] = {}
        self.known: set[int] = set()  # workers that were told of it from here
        self.gradients: dict[Any, _Gradient] = {}  # by the leaf's node
        self.passes: dict[tuple, Pass] = {}
        self.failed: dict[tuple, BaseException] = {}  # passes that failed, for what arrives of them later
        self.lock = threading.RLock()

    def gradient(self, leaf: Any) -> _Gradient:
        """Where the gradient of a leaf is kept."""
        found = self.gradients.get(leaf)
        if found is None:
            found = self.gradients.setdefault(leaf, _Gradient())
        return found

    def _context_id(self) -> int:
        return self.number

    def _send_functions(self) -> dict[int, SendRpcBackward]:
        return dict(self.sends)

    def _recv_functions(self) -> dict[int, RecvRpcBackward]:
        return dict(self.receives)

    def _known_worker_ids(self) -> set[int]:
        return set(self.known)


_contexts: dict[int, Context] = {}
_released: deque[int] = deque(maxlen=1000)  # lately: a message that was on its way brings none of them back
_lock = threading.Lock()
_counter = itertools.count()
_messages = itertools.count()
_this_thread = threading.local()

_NONE_HERE = (
    "Current thread doesn't have a valid autograd context. Please wrap your code using: `with torch.distributed.autograd.context() as "
    "context_id` to generate a valid context"
)


def new_context() -> Context:
    """A context of this thread, which is released by `release`."""
    if not rpc.is_set():
        raise RuntimeError(
            "Need to initialize distributed autograd using torch.distributed.autograd.init()\ntorch.distributed.rpc.init_rpc does it."
        )
    if current_id() >= 0:
        raise RuntimeError(
            "Already have an autograd context id for this thread: nested contexts aren't supported. The context "
            f"{current_id()} ends with its `with` block."
        )
    context = Context((rpc.current().rank << 48) + next(_counter))
    with _lock:
        _contexts[context.number] = context
    _this_thread.context = context.number
    return context


def current_id() -> int:
    """The id of this thread's context, -1 if there is none."""
    return getattr(_this_thread, "context", -1)


def current_context() -> Context:
    """This thread's context. RuntimeError if there is none."""
    if current_id() < 0:
        raise RuntimeError(_NONE_HERE)
    return retrieve(current_id())


def retrieve(number: int) -> Context:
    """The context with an id. RuntimeError if there is none: it was never here, or has been released."""
    context = _contexts.get(number)
    if context is None:
        raise RuntimeError(f"Could not find autograd context with id: {number}")
    return context


def release(number: int) -> None:
    """Forgets a context here and on all workers that know of it."""
    retrieve(number)
    if current_id() == number:
        _this_thread.context = -1
    release_here(number)


def release_here(number: int) -> None:
    """Forgets a context, and tells those that were told of it from here. A context that isn't there is none to forget."""
    with _lock:
        context = _contexts.pop(number, None)
        _released.append(number)
    if context is None:
        return
    for running in list(context.passes.values()):
        running.fail(RuntimeError(f"The autograd context with id {number} was released while its backward pass ran."))
    if rpc.is_set():
        for worker in context.known:
            rpc.current().note_later(worker, release_here, number)


def count() -> int:
    """How many contexts there are here."""
    return len(_contexts)


def running_passes() -> int:
    """How many backward passes run here."""
    return sum(len(context.passes) for context in list(_contexts.values()))


@contextmanager
def in_context(number: int) -> Iterator[None]:
    """Has this thread work in a context, which another thread or worker opened; -1 for none."""
    before = current_id()
    _this_thread.context = number
    try:
        yield
    finally:
        _this_thread.context = before


# Messages


def sending(message: Message, tensors: list, to: int, what: str) -> None:
    """Notes a message that is sent in this thread's context: its tensors that require grad get a node that waits for their gradients."""
    number = current_id()
    context = _contexts.get(number)
    if context is None:
        return
    message.context = number
    if message.kind == rpc.CALL:
        context.known.add(to)
    tensors = [tensor for tensor in tensors if tensor.requires_grad]
    if tensors:
        message.autograd = (rpc.current().rank << 48) + next(_messages)
        node = SendRpcBackward(tensors, message.autograd, to, what)
        with context.lock:
            context.sends[message.autograd] = node


def received(message: Message) -> None:
    """The same on the other side: the message's tensors that require grad get a node that sends their gradients back."""
    if message.context < 0:
        return
    with _lock:
        context = _contexts.get(message.context)
        if context is None and message.kind == rpc.CALL and message.context not in _released:
            context = _contexts[message.context] = Context(message.context)
    if context is None or message.autograd < 0:
        return
    tensors = [tensor for tensor in message.tensors if tensor.requires_grad]
    with context.lock:
        context.receives[message.autograd] = RecvRpcBackward(tensors, message.autograd, message.source)
