"""Looking at and hooking into the graph: Node, GradientEdge, multi-tensor hooks."""

from __future__ import annotations

import threading
from collections import namedtuple

from .. import engine, views
from ..engine import node_and_number
from ..state import modes, set_saved_hooks
from ..tensor import Tensor
from .hooks import RemovableHandle

__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge", "increment_version",
    "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks",
]  # fmt: skip


class _NodeType(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, engine.Node)

    def __subclasscheck__(cls, subclass):
        return subclass is cls or issubclass(subclass, engine.Node)


class Node(metaclass=_NodeType):
    """What every step of the graph is an instance of: `isinstance(tensor.grad_fn, Node)`."""

    def __new__(cls):
        raise TypeError("Node is the type of the graph's steps; operations make them")


class GradientEdge(namedtuple("GradientEdge", ["node", "output_nr", "ownership_token"], defaults=[None])):
    """Where a tensor's gradient arrives: output `output_nr` of `node`."""

    like = None  # an array of the tensor's shape and type, if it is known


def get_gradient_edge(tensor) -> GradientEdge:
    """The edge at which the gradient of this tensor arrives. RuntimeError if it requires none."""
    node = views.current_node(tensor)
    if node is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    edge = GradientEdge(*node_and_number(node))
    edge.like = tensor.array
    return edge


def increment_version(tensor) -> None:
    """Tells autograd that the tensor (or each of several) was written without its knowledge."""
    for one in (tensor,) if isinstance(tensor, Tensor) else tensor:
        views.bump(one)


class _MultiHandle(RemovableHandle):
    """The handles of a hook on several tensors, removed together."""

    def __init__(self, handles):
        self.handles = tuple(handles)

    def remove(self):
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(tensors, fn, *, mode="all"):
    """Calls `fn` when gradients of several tensors were computed: with all of them (None for those without), or,
    with mode="any", with the first. Returns a removable handle.

    >>> import backlight as torch
    >>> a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> handle = torch.autograd.graph.register_multi_grad_hook((a, b), lambda grads: print(len(grads)))
    >>> (a * b).sum().backward()
    2
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    from ..engine import current_sweep

    tensors = tuple(tensors)
    nodes = [views.current_node(t) for t in tensors]
    if None in nodes:
        raise AssertionError("Expected gradient function to be set")
    lock = threading.Lock()
    seen: dict = {}  # sweep -> (gradients so far, positions that are still to come)

    def hook_of(position):
        def hook(grad):
            running = current_sweep()
            assert running is not None  # hooks run in sweeps
            sweep = running.number
            with lock:
                if sweep not in seen:
                    while len(seen) > 256:
                        del seen[next(iter(seen))]
                    coming = {i for i, node in enumerate(nodes) if node is not None and node in running.buffers}
                    seen[sweep] = ([None] * len(tensors), coming | {position})
                    first = True
                else:
                    first = False
                grads, coming = seen[sweep]
                grads[position] = grad
                coming.discard(position)
                last = not coming
            if first if mode == "any" else last:
                fn(grad if mode == "any" else grads)

        return hook

    return _MultiHandle([t.register_hook(hook_of(i)) for i, t in enumerate(tensors)])


class saved_tensors_hooks:
    """A block in which saved tensors pass through hooks: `pack_hook(tensor)` when they are saved, `unpack_hook(packed)` when used.

    The unpacked tensor must have the values that were packed. Of nested blocks the innermost counts.

    >>> import backlight as torch
    >>> x = torch.tensor(3., requires_grad=True)
    >>> with torch.autograd.graph.saved_tensors_hooks(lambda t: t.tolist(), lambda value: torch.tensor(value)):
    ...     y = x * x
    >>> torch.autograd.grad(y, x)
    (tensor(6.),)
    """

    def __init__(self, pack_hook, unpack_hook):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self):
        if not callable(self.pack_hook) or not callable(self.unpack_hook):
            raise TypeError(
                "_push_saved_tensors_default_hooks(): incompatible function arguments. The following argument types are supported:\n"
                "    1. (arg0: collections.abc.Callable, arg1: collections.abc.Callable) -> None\n\n"
                f"Invoked with: {self.pack_hook!r}, {self.unpack_hook!r}"
            )
        if modes.hooks_disabled is not None:
            raise RuntimeError(modes.hooks_disabled)
        set_saved_hooks((*modes.saved_hooks, (self.pack_hook, self.unpack_hook)))

    def __exit__(self, *_exception):
        set_saved_hooks(modes.saved_hooks[:-1])


class save_on_cpu(saved_tensors_hooks):
    """A block in which saved tensors are kept on the CPU (where all of Backlight's are): each is kept as a copy."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        del pin_memory, device_type
        super().__init__(lambda tensor: tensor.detach().clone(), lambda packed: packed)


class disable_saved_tensors_hooks:
    """A block (or function) in which saved_tensors_hooks raise a RuntimeError with this message."""

    def __init__(self, error_message: str):
        self.error_message = error_message
        self.before: list = []

    def __enter__(self):
        if modes.saved_hooks:
            raise RuntimeError(self.error_message)
        self.before.append(modes.hooks_disabled)
        modes.hooks_disabled = self.error_message

    def __exit__(self, *_exception):
        modes.hooks_disabled = self.before.pop()

    def __call__(self, function):
        from .modes import _wrap

        return _wrap(lambda: disable_saved_tensors_hooks(self.error_message), function)


class _Handle:
    """Stands for one version of a tensor while some node holds it as packed."""

    __slots__ = ("__weakref__",)


class _MutationContext:
    """What `allow_mutation_on_saved_tensors` keeps: the handles of saved tensors, and the copies made before writes."""

    def __init__(self):
        from weakref import WeakKeyDictionary, WeakValueDictionary

        self.cloned = WeakKeyDictionary()  # handle -> copy
        self.original = WeakKeyDictionary()  # handle -> the tensor, while it is unchanged
        self.tid_to_weakhandle = WeakValueDictionary()  # (address, id, version) -> handle
        self.sid_to_tid: dict = {}  # memory -> keys of what was saved in it

    def clear(self):
        self.cloned.clear()
        self.original.clear()
        self.tid_to_weakhandle.clear()
        self.sid_to_tid.clear()

    def before_write(self, tensor) -> None:
        """Copies what was saved of the memory that is about to be written."""
        for key in list(self.sid_to_tid.get(_memory(tensor), ())):
            handle = self.tid_to_weakhandle.get(key)
            if handle is not None and handle not in self.cloned:
                self.cloned[handle] = self.original.pop(handle).clone()
            self.sid_to_tid[_memory(tensor)].discard(key)


def _memory(tensor) -> int:
    array = tensor.array
    while array.base is not None:
        array = array.base
    return id(array)


class allow_mutation_on_saved_tensors:
    """A block in which tensors saved for backward may be written in place: they are copied just before. Can't be nested.

    >>> import backlight as torch
    >>> with torch.autograd.graph.allow_mutation_on_saved_tensors():
    ...     x = torch.ones(2, requires_grad=True).clone()
    ...     y = (x ** 2).sum()
    ...     _ = x.sin_()
    ...     y.backward()
    """

    def __enter__(self):
        if modes.before_write is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        self.context = context = _MutationContext()

        def pack(tensor):
            key = (tensor.array.__array_interface__["data"][0], id(tensor), views.version_of(tensor).count)
            handle = context.tid_to_weakhandle.get(key)
            if handle is None:
                handle = _Handle()
                context.tid_to_weakhandle[key] = handle
                context.original[handle] = tensor
                context.sid_to_tid.setdefault(_memory(tensor), set()).add(key)
            return handle

        def unpack(handle):
            if modes.before_write != context.before_write:
                raise AssertionError("Trying to backward outside of the 'allow_mutation_on_saved_tensors' contextin which the graph was "
                                     "originally recorded.")  # fmt: skip
            return context.cloned[handle] if handle in context.cloned else context.original[handle]

        self.hooks = saved_tensors_hooks(pack, unpack)
        self.hooks.__enter__()
        modes.before_write = context.before_write
        return context

    def __exit__(self, *_exception):
        modes.before_write = None
        self.hooks.__exit__()
        self.context.clear()
