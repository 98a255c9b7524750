"""Looking at and hooking into the graph: Node, GradientEdge, multi-tensor hooks."""

from __future__ import annotations

import threading
from collections import namedtuple

from .. import views
from ..engine import Node, node_and_number
from ..tensor import Tensor
from .hooks import RemovableHandle

__all__ = ["GradientEdge", "Node", "get_gradient_edge", "increment_version", "register_multi_grad_hook"]

GradientEdge = namedtuple("GradientEdge", ["node", "output_nr", "ownership_token"], defaults=[None])
GradientEdge.__doc__ = "Where a tensor's gradient arrives: output `output_nr` of `node`."


def get_gradient_edge(tensor) -> GradientEdge:
    """The edge at which the gradient of this tensor arrives. RuntimeError if it requires none."""
    node = views.current_node(tensor)
    if node is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*node_and_number(node))


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
    from ..engine import current_sweep, reachable

    tensors = tuple(tensors)
    nodes = [views.current_node(t) for t in tensors]
    lock = threading.Lock()
    seen: dict = {}  # sweep -> (gradients so far, positions that are still to come)

    def hook_of(position):
        def hook(grad):
            sweep = current_sweep()
            with lock:
                if sweep not in seen:
                    while len(seen) > 256:
                        del seen[next(iter(seen))]
                    coming = {i for i, node in enumerate(nodes) if node is not None and reachable(node)}
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
