"""The backward engine: the graph's nodes, the loop that runs them, grad modes.

A forward operation leaves a `Node`: `edges` point to the nodes of its inputs (None where no gradient is
wanted), `saved` holds what its gradient formula needs. A tensor that requires grad *has* a node; that of a
leaf is an `AccumulateGrad`, which owns `.grad`. So references run Tensor -> Node -> earlier Nodes, never
back, and reference counting alone frees a graph.

`sweep` is the whole of backward: find the nodes, sort them newest first, run each once.
"""

from __future__ import annotations

import sys
import weakref
from bisect import bisect_left
from operator import attrgetter
from typing import Any

import numpy as np

from . import dtypes
from .hooks import hooks_of, register, run_post_hooks, run_pre_hooks, run_retain_grad, run_tensor_hooks
from .state import clock, lock, modes, set_grad_mode, set_recorder, set_saved_hooks, state  # noqa: F401  (set_recorder is its face)
from .sweeps import Sweep, current_sweep, in_thread, ready_queue_order, running_sweeps  # noqa: F401
from .versions import version_of

# tensor.py puts its class here: the engine builds tensors only for `.grad`, hooks and recorded gradients.
Tensor: Any = None


class Node:
    """A step of the backward pass. Its subclasses are made by op.py, one per operation.

    `next_functions` and `_saved_*` show the graph as PyTorch does; `metadata` is a dict for the user.
    """

    # Operations add the slots they need: "saved" tensors and output, "output_version", "parameters", "shapes".
    __slots__ = ("__weakref__", "edges", "extra", "hooks", "seq")
    outputs = 1
    runs_on_none = False  # whether it runs although no gradient arrived
    differentiable: Any = None  # which inputs can have a gradient, None for all

    def name(self) -> str:
        """The name of the operation, for example "MulBackward0"."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    @property
    def next_functions(self) -> tuple:
        """For every input that can have a gradient: the node that made it and its output number, or (None, 0)."""
        kept = self.edges if self.differentiable is None else [e for e, k in zip(self.edges, self.differentiable) if k]
        return tuple((None, 0) if edge is None else node_and_number(edge) for edge in kept)

    @property
    def metadata(self) -> dict:
        """A dictionary for the user's own notes on this node."""
        return self._extra("metadata", dict)

    def _extra(self, key, make):
        """What few nodes have lies in one dictionary, made when first needed."""
        if getattr(self, "extra", None) is None:
            self.extra = {}
        if key not in self.extra:
            self.extra[key] = make()
        return self.extra[key]

    @property
    def requires_grad(self) -> bool:
        return True

    def _sequence_nr(self) -> int:
        return self._extra("sequence_nr", lambda: self.seq)

    def _set_sequence_nr(self, number) -> None:
        self._extra("sequence_nr", lambda: number)  # beside `seq`, which also says what was written since
        self.extra["sequence_nr"], state.renumbered = number, True

    def register_hook(self, hook):
        """Calls `hook(grad_inputs, grad_outputs)` after this node ran; it may return new grad_inputs."""
        return register(hooks_of(self).post, hook, "posthook", self)

    def register_prehook(self, hook):
        """Calls `hook(grad_outputs)` before this node runs; it may return new grad_outputs."""
        return register(hooks_of(self).pre, hook, "prehook", self)

    def run(self, g, edges, keep):
        """The gradients of the inputs, arrays in and arrays out. Frees what the node saved unless `keep`."""
        raise NotImplementedError(f"{self.name()} has no array formula")

    def record(self, g, edges, keep):
        """The same with tensors: what runs is recorded, so it can be differentiated again."""
        raise NotImplementedError(f"{self.name()} has no recorded formula")

    def __call__(self, *grads):
        """Runs this one step by hand: gradients of its outputs in, gradients of its inputs out."""
        if len(grads) != self.outputs:
            raise TypeError(f"expected {self.outputs} arguments, got {len(grads)} instead")
        ports = self.outputs != 1 or getattr(getattr(self, "op", None), "outputs", 1) != 1
        out = self.record(list(grads) if ports else grads[0], self.edges, True)
        return out[0] if len(out) == 1 else tuple(out)


class AccumulateGrad(Node):
    """The node of a leaf: adds what arrives to the leaf's `.grad`, which it owns."""

    __slots__ = ("array", "grad", "variable_ref")
    edges = ()
    seq = (1 << 64) - 1

    def __init__(self, tensor):
        self.grad = None
        self.hooks = None
        # Weak: Tensor -> AccumulateGrad is the strong direction, so a leaf is freed without the cycle collector.
        self.variable_ref = weakref.ref(tensor)
        self.array = tensor.array

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    @property
    def variable(self):
        """The leaf tensor (a new object for the same memory if the program dropped its own)."""
        tensor = self.variable_ref()
        if tensor is None:
            tensor = Tensor._from(self.array)
            tensor.node = self
            self.variable_ref = weakref.ref(tensor)
        return tensor

    def run(self, g, edges, keep):
        array = self.array
        if array is None:  # the leaf no longer requires grad
            return edges
        if type(g) is not np.ndarray:
            g = np.asarray(g)
        if g.dtype is not array.dtype and g.dtype != array.dtype:
            g = cast(g, array.dtype)
        owner = self if modes.distributed is None else modes.distributed.gradient(self)
        with lock:
            grad = owner.grad
            if grad is None:
                owner.grad = grad = object.__new__(Tensor)
                grad.array = g if _owned(g) else g.copy()
                grad.node = grad.version = grad.base = None
            else:
                grad.array += g
                version_of(grad).tick()
        return edges

    def record(self, g, edges, keep):
        if self.array is None:
            return edges
        if g.array.dtype != self.array.dtype:
            g = g.to(dtypes.from_array_type(self.array.dtype))
        if self.grad is not None:
            self.grad = self.grad + g
        elif not modes.grad:
            self.grad = Tensor._from(g.array.copy())
        elif 0 in self.array.strides:  # expanded
            self.grad = g.clone()
        else:
            self.grad = Tensor._from(np.empty_like(self.array)).copy_(g)  # as PyTorch does, for the leaf's memory layout
        return edges


class Port(Node):
    """Output number `number` of a node with several outputs; it hands its gradient to that node."""

    __slots__ = ("number", "parent")

    def __init__(self, parent, number):
        self.parent, self.number = parent, number
        self.edges = (parent,)
        self.seq = parent.seq + 0.5  # just before its parent
        self.hooks = None


def node_and_number(node):
    """The real node and the output number behind what a tensor holds."""
    return (node.parent, node.number) if type(node) is Port else (node, 0)


def cast(array, array_type):
    if array.dtype.kind == "c" and array_type.kind != "c":
        array = array.real
    return array.astype(array_type)


def sum_to(g, shape):
    """Sums an array over the dimensions that broadcasting added or stretched."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    if g.shape[extra:] == shape:
        return np.add.reduce(g, 0 if extra == 1 else tuple(range(extra)))
    dims = tuple(range(extra)) + tuple([extra + i for i, n in enumerate(shape) if n == 1 and g.shape[extra + i] != 1])
    return np.add.reduce(g, dims, keepdims=True).reshape(shape)


def unbroadcast(node, grads):
    """The gradients in the shapes and types of the inputs; only nodes whose inputs differ have `shapes`."""
    out = []
    for g, target in zip(grads, node.shapes, strict=True):
        if g is not None and target is not None:
            shape, array_type = target
            if not isinstance(g, Tensor):
                g = sum_to(np.asarray(g), shape)
                if g.dtype != array_type:
                    g = cast(g, array_type)
            else:
                g = g.sum_to_size(shape)
                if g.array.dtype != array_type:
                    t = dtypes.from_array_type(array_type)
                    g = (g.real if g.dtype.is_complex and not t.is_complex else g).to(t)
        out.append(g)
    return out


_by_seq = attrgetter("seq")


def _discover(roots):
    """All nodes behind the roots in the order in which they run, each leaf directly after its last contribution.

    Returns (node -> None for every node, the order, whether there are ports)."""
    start = Node()
    start.edges, start.seq = roots, float("inf")
    buffers = {}
    order, last_user, ports = [start], {}, False
    for node in order:  # grows while it is walked: no recursion
        for parent in node.edges:
            if parent is not None:
                if parent not in buffers:
                    buffers[parent] = None
                    kind = type(parent)
                    if kind is AccumulateGrad:
                        last_user[parent] = node
                    else:
                        order.append(parent)
                        if kind is Port:
                            ports = True
                elif parent in last_user and node.seq < last_user[parent].seq:
                    last_user[parent] = node
    order.sort(key=_by_seq, reverse=True)
    ready_after: dict = {}
    for leaf, user in last_user.items():
        ready_after.setdefault(user, []).append(leaf)
    if state.renumbered or any(len(leaves) > 2 for leaves in ready_after.values()):
        return buffers, ready_queue_order(start, order), ports
    steps: list = []
    if 8 * len(ready_after) > len(order):
        for node in order:
            steps.append(node)
            if node in ready_after:
                steps += sorted(ready_after[node], key=node.edges.index)
    else:  # few leaves: splice them in
        done = 0
        for user in sorted(ready_after, key=_by_seq, reverse=True):
            position = bisect_left(order, -user.seq, done, key=_minus_seq) + 1
            steps += order[done:position] + sorted(ready_after[user], key=user.edges.index)
            done = position
        steps += order[done:]
    del steps[0]
    return buffers, steps, ports


def _minus_seq(node):
    return -node.seq


def sweep(roots, gradients, keep=False, create_graph=False, targets=None, capture=False):
    """Runs backward from `roots` (nodes or ports) with their gradients, arrays (tensors with create_graph or in transforms).

    keep: don't free saved tensors. targets: {node: {output number: positions}} restricts the sweep to what leads
    there; with `capture` the gradients of the targets are returned as {position: gradient}, nothing is accumulated.
    """
    running = running_sweeps()
    depth = len(running)
    if depth % 40 == 39:  # deeply nested (backward inside hooks inside backward ...): a thread brings a fresh Python stack
        return in_thread(sweep, roots, gradients, keep, create_graph, targets, capture)
    buffers, steps, ports = _discover(roots)
    for node, g in zip(roots, gradients):
        buffers[node] = g if buffers[node] is None else buffers[node] + g
    captured: dict = {}
    tensors = create_graph or bool(modes.levels)
    if targets is not None:
        needed = set(targets)
        for node in reversed(steps):
            if not needed.isdisjoint(node.edges):
                needed.add(node)
        steps = [node for node in steps if node in needed]
        buffers = {node: g for node, g in buffers.items() if node in needed}
    recorder = state.recorder
    plain = recorder is None and targets is None and state.anomaly is None
    surely_plain = plain and not (ports or state.hooked)
    summed = set()  # nodes whose buffer the sweep itself made, so it may be added to in place
    was_enabled, saved_hooks = modes.grad, modes.saved_hooks
    set_grad_mode(create_graph)
    this = Sweep(buffers, steps, targets, keep, capture)
    running.append(this)
    if recorder is not None:
        recorder.sweep(True)
    try:
        for node in steps:
            edges = node.edges
            if surely_plain or (plain and node.hooks is None and type(node) is not Port):
                g = buffers.pop(node)
                if g is None and not node.runs_on_none:
                    continue
                grads = node.record(g, edges, keep) if tensors else node.run(g, edges, keep)
            else:
                if targets is not None:
                    edges = tuple([edge if edge in buffers else None for edge in edges])
                grads = _careful_step(node, edges, keep, tensors, buffers, targets, capture, captured)
                if grads is None:
                    continue
            g = None
            i = 0  # counting by hand: zip() here costs a seventh of the loop (benchmarks: chain)
            for parent in edges:
                if parent is not None:
                    grad = grads[i]
                    if grad is not None:
                        total = buffers[parent]
                        if total is None:
                            buffers[parent] = grad
                        elif parent in summed:
                            total += grad
                            buffers[parent] = total
                        else:
                            buffers[parent] = total + grad
                            if not tensors:
                                summed.add(parent)
                i += 1  # noqa: SIM113
            grads = grad = None  # or they would look like a second owner of what a leaf receives next
        for callback in this.callbacks:  # grows while it is walked, if callbacks queue others
            callback()
    finally:
        set_grad_mode(was_enabled)
        set_saved_hooks(saved_hooks)  # what hooks entered and did not leave ends with the sweep
        del running[depth:]
        if recorder is not None:
            recorder.sweep(False)
    return captured


def _careful_step(node, edges, keep, tensors, buffers, targets, capture, captured):
    """One step where there may be ports, hooks, targets or a recorder. None: there is nothing to pass on."""
    g = buffers.pop(node)  # here, so that this frame alone refers to it, as the sweep's does in a plain step
    if type(node) is Port:
        if g is not None:
            _deposit(node, g, buffers)
        return None
    if node.hooks is not None:
        g = run_tensor_hooks(node, g)
        run_retain_grad(node, g)
    if targets is not None:
        for number, positions in targets.get(node, {}).items():
            for position in positions:
                captured[position] = g[number] if type(g) is list else g
        leaf = type(node) is AccumulateGrad
        if capture and (leaf or edges.count(None) == len(edges)):
            return None
    if node.hooks is not None:
        g = run_pre_hooks(node, g)
    if g is None and not node.runs_on_none:
        return None
    recorder = state.recorder
    if recorder is not None:
        recorder.before(node, g)
    step = node.record if tensors else node.run
    grads = step(g, edges, keep) if state.anomaly is None else state.anomaly(node, step, g, edges, keep)
    if node.hooks is not None:
        grads = run_post_hooks(node, grads, g)
    if recorder is not None:
        recorder.after(node, g, grads)
    return grads


def _deposit(port, g, buffers):
    parent = port.parent
    if parent in buffers:
        slots = buffers[parent]
        if slots is None:
            slots = buffers[parent] = [None] * parent.outputs
        total = slots[port.number]
        slots[port.number] = g if total is None else total + g


# A gradient array may become `.grad` without a copy when nobody else can see its memory. Reference counts say so; the
# counts that "nobody" shows are measured once, by a sweep over a probe, because they differ between interpreters.
_unique = {"array": 0, "base": 0}


def _owned(g) -> bool:
    base = g.base
    if base is None:
        return sys.getrefcount(g) <= _unique["array"]
    return (
        sys.getrefcount(g) <= _unique["array"]
        and sys.getrefcount(base) <= _unique["base"]
        and g.flags.c_contiguous
        and g.flags.writeable
        and type(base) is np.ndarray
        and base.size == g.size
    )


def _measure_unique_counts():
    class Source(Node):
        __slots__ = ()

        def run(self, g, edges, keep):
            return ((np.ones((2, 2)) * 2).T,)

    class Probe(Node):
        __slots__ = ()

        def run(self, g, edges, keep):
            with lock:
                self.look(g)
            return edges

        def look(self, g):
            base = g.base
            _unique["array"], _unique["base"] = sys.getrefcount(g), sys.getrefcount(base)

    probe, source = Probe(), Source()
    probe.edges, probe.seq, probe.hooks = (), 1, None
    source.edges, source.seq, source.hooks = (probe,), 2, None
    sweep([source], [np.ones(2)])


_measure_unique_counts()
