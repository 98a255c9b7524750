"""Shared memory: version counters, views, and the graph's changes under in-place writes.

A view has `base`, a `View` that names the root tensor whose memory it shows. Tensors that share memory share
one `Version`. Writing in place ticks the version with the engine's clock, so a node can tell that what it
saved was written after the node was made. A write with gradient also *rebases* the graph: the written tensor's
node becomes that of the operation; if it is a view, the root gets a `CopySlices` node and the views of that
root fetch new nodes when they are next used (`current_node`).
"""

from __future__ import annotations

from . import engine
from .engine import AccumulateGrad, Node, node_and_number
from .errors import INFERENCE_UPDATE, ambiguous, freed
from .hooks import hooks_of
from .state import modes, state
from .versions import InferenceVersion, Version, bump, version_of  # noqa: F401  (their face is here)


class View:
    """What makes a tensor a view: its root, how often that had been written when the view's node was made, where it was made."""

    __slots__ = ("count", "made", "root")

    def __init__(self, root, made):
        self.root, self.count = root, root.version.count
        self.made = made  # "", "no_grad", "multiple outputs" or "custom function": decides what in-place may do


def view_of(result, source, made="") -> None:
    """Makes `result` a view of `source`'s root. Their arrays already share memory."""
    base = source.base
    root = source if base is None else base.root
    version = result.version = root.version or version_of(root)
    if type(version) is InferenceVersion:
        result.__class__ = type(source)  # inference tensors have no views that autograd would have to follow
        return
    made = made or ("" if base is None else base.made)
    view = result.base = View.__new__(View)  # without its __init__, because views are many (benchmarks: mlp_step)
    view.root, view.count = root, version.count
    view.made = made if modes.grad else "inference" if modes.inference else "no_grad"


def current_node(tensor):
    """The tensor's node; a view whose root was rebased since gets a new one first."""
    view = tensor.base
    if view is None or view.count == view.root.version.count:
        return tensor.node
    if view.root.node is not None or (tensor.node is not None and type(tensor.node) is not AccumulateGrad):
        if view.made and not modes.inference:
            raise ambiguous(view, tensor.node, "its base or another view of its base has been modified inplace")
        view.count = view.root.version.count
        from .ops.shape import as_strided_node

        before, tensor.node = tensor.node, as_strided_node(view.root, tensor)
        _move_retain_grad(tensor, before, tensor.node)
    return tensor.node


class Nowhere(Exception):
    """Raised for views that were made in no_grad mode: like their root they require grad, but they pass none on."""


def edge_of(tensor):
    """Where operations on the tensor lead: its current_node. Raises Nowhere."""
    view = tensor.base
    if view is None:
        return tensor.node
    node = tensor.node if view.count == view.root.version.count else current_node(tensor)
    if node is None and view.root.node is not None and modes.grad:
        raise Nowhere
    return node


def edges_of(inputs, wanted=None):
    """(the edges of a node on these inputs, which of them lead nowhere): None where nothing is wanted."""
    edges, nowhere = [], set()
    for i, x in enumerate(inputs):
        edge = None
        if isinstance(x, engine.Tensor) and (wanted is None or wanted[i]):
            try:
                edge = edge_of(x)
            except Nowhere:
                nowhere.add(i)
        edges.append(edge)
    return edges, nowhere


LEAVES: set[type] = {AccumulateGrad}  # and the inputs of a transform's function


def check_writable(tensor, adds_gradient=False) -> None:
    """RuntimeError where PyTorch forbids an in-place write (adds_gradient: the written value requires grad)."""
    if type(tensor.version) is InferenceVersion and not modes.inference and tensor.base is None:
        raise RuntimeError(INFERENCE_UPDATE)
    if not modes.grad:
        return
    view = tensor.base
    if view is not None and view.made and (adds_gradient or tensor.requires_grad):
        raise ambiguous(view, tensor.node, "is being modified inplace")
    node = current_node(tensor)
    if node is None and not adds_gradient and (view is None or view.root.node is None):
        return
    if view is None:
        if type(node) in LEAVES:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        return
    root_node = view.root.node
    if type(root_node) in LEAVES or (root_node is None and node is not None):
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")


class CopySlices(Node):
    """The node of a root that was written through a view: `fn`'s gradient for the view's part, the rest as it was."""

    __slots__ = ("differentiable", "fn", "geometry", "kinds")

    def __init__(self, root, view, fn):
        from .ops.shape import geometry, kinds

        self.fn, self.differentiable = fn, fn.differentiable
        self.geometry, self.kinds = geometry(root, view), kinds(root, view)
        self.edges = (root.node, *fn.edges[1:])
        self.seq = fn.seq
        self.hooks = None

    def name(self) -> str:
        return "torch::autograd::CopySlices"

    def run(self, g, edges, keep):
        from .ops.shape import part_of, with_part

        return self._run(g, edges, keep, part_of.arrays, with_part.arrays, "run")

    def record(self, g, edges, keep):
        from .ops.shape import part_node, part_of, with_part

        fn = self.fn
        if fn is None or not hasattr(type(fn), "saves_output"):
            return self._run(g, edges, keep, part_of, with_part, "record")
        # What fn saved as its output is a part of the root: its gradient goes through this node, not to fn once more.
        fn._extra("output_node", lambda: part_node(self, self.geometry, self.kinds))
        try:
            return self._run(g, edges, keep, part_of, with_part, "record")
        finally:
            del fn.extra["output_node"]  # it leads back here: a cycle

    def _run(self, g, edges, keep, get, put, method):
        fn = self.fn
        if fn is None:
            raise freed(self)
        part = get(g, self.geometry, self.kinds)
        grads = getattr(fn, method)(part, (edges[0] if edges[0] is not None else fn.edges[0], *edges[1:]), keep)
        if not keep:
            self.fn = None
        inner = grads[0] if grads[0] is not None else part * 0
        return (put(g, inner, self.geometry, self.kinds) if edges[0] is not None else None, *grads[1:])


def rebase(tensor, node) -> None:
    """Makes `node` the origin of `tensor`'s new contents, after an in-place write."""
    view = tensor.base
    version = version_of(tensor)
    version.tick()
    if node is not None:
        if view is None:
            _move_retain_grad(tensor, tensor.node, node)
            tensor.node = node
        else:
            root = view.root
            before, root.node = root.node, CopySlices(root, tensor, node)
            _move_retain_grad(root, before, root.node)
        current_node(tensor)
    if state.recorder is not None:
        state.recorder.tensor_written(tensor)


def _move_retain_grad(tensor, before, after):
    """retain_grad follows the tensor to its new node; tensor hooks stay where they were registered."""
    if before is None or type(before) is AccumulateGrad:
        return
    before, number = node_and_number(before)
    if before.hooks is not None and number in before.hooks.retain and before.hooks.retain[number]() is tensor:
        after, target = node_and_number(after)
        hooks_of(after).retain[target] = before.hooks.retain.pop(number)
