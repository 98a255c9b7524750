"""The backward engine: the graph's nodes, the loop that runs them, grad modes.

A forward operation leaves a `Node`: `edges` point to the nodes of its inputs (None where no gradient is
wanted), `saved` holds what its gradient formula needs. A tensor that requires grad *has* a node; that of a
leaf is an `AccumulateGrad`, which owns `.grad`. So references run Tensor -> Node -> earlier Nodes, never
back, and reference counting alone frees a graph.

`sweep` is the whole of backward: find the nodes, sort them newest first, run each once.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections import OrderedDict
from operator import attrgetter

import numpy as np

from . import dtypes

# tensor.py puts its class here: the engine builds tensors only for `.grad`, hooks and recorded gradients.
Tensor = None

# One clock orders everything: a node's sequence number and the time of an in-place write are its ticks,
# so "was this saved tensor written after it was saved?" is one comparison (see views.py).
clock = itertools.count(1)


class State:
    """What the generated code tests: how many threads have grad mode off, how many unusual features are on."""

    __slots__ = ("grad_off", "recorder", "unusual")


state = State()
state.grad_off = 0
state.unusual = 0
state.recorder = None  # the one slot for an observer; see set_recorder


class _ThreadModes(threading.local):
    grad = True
    inference = False


modes = _ThreadModes()
_lock = threading.RLock()


def is_grad_enabled() -> bool:
    """Whether operations are being recorded in this thread."""
    return modes.grad


def set_grad_mode(on: bool) -> None:
    if modes.grad is not on:
        modes.grad = on
        with _lock:
            state.grad_off += -1 if on else 1


def set_inference(on: bool) -> None:
    if modes.inference is not on:
        modes.inference = on
        with _lock:
            state.unusual += 1 if on else -1


def set_recorder(recorder) -> None:
    """Plugs in an observer (None unplugs it): `created(op, node, result, inputs)` after every recorded
    operation, `written(tensor)` after in-place writes, and `before(node, gradients)` / `after(node, gradients,
    input_gradients)` around every step of a sweep, `sweep(begin)` at its start and end."""
    state.unusual += (recorder is not None) - (state.recorder is not None)
    state.recorder = recorder


class Hooks:
    """The hooks of one node. `tensor` and `retain` are keyed by output number."""

    __slots__ = ("post", "post_accumulate", "pre", "retain", "tensor")

    def __init__(self):
        self.tensor: dict[int, OrderedDict] = {}
        self.retain: dict = {}
        self.pre = OrderedDict()
        self.post = OrderedDict()
        self.post_accumulate = OrderedDict()


class Node:
    """A step of the backward pass. Its subclasses are made by op.py, one per operation.

    `next_functions` and `_saved_*` show the graph as PyTorch does; `metadata` is a dict for the user.
    """

    __slots__ = ("__weakref__", "edges", "extra", "hooks", "output_version", "parameters", "saved", "seq", "shapes")
    outputs = 1
    runs_on_none = False  # whether it runs although no gradient arrived

    def name(self) -> str:
        """The name of the operation, for example "MulBackward0"."""
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    @property
    def next_functions(self) -> tuple:
        """For every input: the node that made it and its output number, or (None, 0)."""
        return tuple(
            (None, 0) if edge is None else (edge.parent, edge.number) if type(edge) is Port else (edge, 0)
            for edge in self.edges
        )

    @property
    def metadata(self) -> dict:
        return self._extra("metadata", dict)

    @property
    def requires_grad(self) -> bool:
        return True

    def _extra(self, key, make):
        """The per-node attributes that few programs use live in one dictionary."""
        if getattr(self, "extra", None) is None:
            self.extra = {}
        if key not in self.extra:
            self.extra[key] = make()
        return self.extra[key]

    @property
    def _input_metadata(self) -> list:
        return [] if getattr(self, "extra", None) is None else self.extra.get("input_metadata", [])

    def _sequence_nr(self) -> int:
        return self.seq

    def register_hook(self, hook):
        """Calls `hook(grad_inputs, grad_outputs)` after this node ran; it may return new grad_inputs."""
        return _register(hooks_of(self).post, hook)

    def register_prehook(self, hook):
        """Calls `hook(grad_outputs)` before this node runs; it may return new grad_outputs."""
        return _register(hooks_of(self).pre, hook)

    def run(self, g, edges):
        """The gradients of the inputs, arrays in and arrays out."""
        raise NotImplementedError(f"{self.name()} has no array formula")

    def record(self, g, edges):
        """The same with tensors: what runs is recorded, so it can be differentiated again."""
        raise NotImplementedError(f"{self.name()} has no recorded formula")


class AccumulateGrad(Node):
    """The node of a leaf: adds what arrives to the leaf's `.grad`, which it owns."""

    __slots__ = ("grad", "shape", "variable_ref")
    edges = ()
    seq = (1 << 64) - 1

    def __init__(self, tensor):
        self.grad = None
        self.hooks = None
        # Weak: Tensor -> AccumulateGrad is the strong direction, so a leaf is freed without the cycle collector.
        self.variable_ref = weakref.ref(tensor)
        self.shape = tensor.array

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    @property
    def variable(self):
        """The leaf tensor (a new object for the same memory if the program dropped its own)."""
        tensor = self.variable_ref()
        if tensor is None:
            tensor = Tensor._from(self.shape)
            tensor.node = self
            self.variable_ref = weakref.ref(tensor)
        return tensor

    def run(self, g, edges):
        array = self.shape
        if g.__class__ is not np.ndarray:
            g = np.asarray(g)
        if g.dtype is not array.dtype and g.dtype != array.dtype:
            g = cast(g, array.dtype)
        with _lock:
            if self.grad is None:
                if not _owned(g):
                    g = g.copy()
                self.grad = Tensor._from(g)
            elif modes.grad:
                self.grad = self.grad + Tensor._from(g)
            else:
                grad = self.grad
                grad.array += g
                if grad.version is not None:
                    grad.version.tick()
        return edges

    def record(self, g, edges):
        if g.array.dtype != self.shape.dtype:
            g = g.to(dtypes.from_array_type(self.shape.dtype))
        if self.grad is None:
            self.grad = g.clone() if g.node is not None else Tensor._from(g.array.copy())
        else:
            self.grad = self.grad + g
        return edges


class Port(Node):
    """Output number `number` of a node with several outputs; it hands its gradient to that node."""

    __slots__ = ("number", "parent")

    def __init__(self, parent, number):
        self.parent = parent
        self.number = number
        self.edges = (parent,)
        self.seq = parent.seq + 0.5  # just before its parent
        self.hooks = PORT


PORT = Hooks()


def node_and_number(node):
    """The real node and the output number behind what a tensor holds."""
    return (node.parent, node.number) if type(node) is Port else (node, 0)


def hooks_of(node) -> Hooks:
    if node.hooks is None:
        node.hooks = Hooks()
    return node.hooks


def _register(hooks: OrderedDict, hook):
    from .autograd.hooks import RemovableHandle

    if not callable(hook):
        raise TypeError(f"hook must be callable, not {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def cast(array, array_type):
    if array.dtype.kind == "c" and array_type.kind != "c":
        array = array.real
    return array.astype(array_type)


def sum_to(g, shape):
    """Sums an array over the dimensions that broadcasting added or stretched."""
    if g.shape == shape:
        return g
    extra = g.ndim - len(shape)
    dims = tuple(range(extra)) + tuple(extra + i for i, n in enumerate(shape) if n == 1 and g.shape[extra + i] != 1)
    return np.add.reduce(g, dims, keepdims=True).reshape(shape)


def unbroadcast(node, grads):
    """The gradients in the shapes and types of the inputs; only nodes whose inputs differ have `shapes`."""
    out = []
    for g, target in zip(grads, node.shapes, strict=True):
        if g is not None and target is not None:
            shape, array_type = target
            if type(g) is not Tensor:
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


FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved "
    "tensors after calling backward."
)


def freed(node) -> RuntimeError:
    return RuntimeError(f"{FREED}\nThe saved tensors of {node.name()} were freed by an earlier backward pass.")


_by_seq = attrgetter("seq")


def _discover(roots):
    """All nodes behind the roots in the order in which they run, each leaf directly after its last contribution."""
    buffers = {}  # node -> gradient so far; also the set of the nodes that were seen
    order, last_user = [], {}
    for node in roots:
        if node not in buffers:
            buffers[node] = None
            if type(node) is AccumulateGrad:
                last_user[node] = None
            else:
                order.append(node)
    for node in order:  # grows while it is walked: no recursion
        for parent in node.edges:
            if parent is None:
                continue
            if parent not in buffers:
                buffers[parent] = None
                if type(parent) is AccumulateGrad:
                    last_user[parent] = node
                else:
                    order.append(parent)
            elif parent in last_user:
                user = last_user[parent]
                if user is None or node.seq < user.seq:
                    last_user[parent] = node
    order.sort(key=_by_seq, reverse=True)
    ready_after: dict = {}
    for leaf, user in last_user.items():
        ready_after.setdefault(user, []).append(leaf)
    if any([len(leaves) > 2 for leaves in ready_after.values()]):
        return buffers, ready_queue_order(roots, order)
    steps = ready_after.pop(None, [])
    for node in order:
        steps.append(node)
        if node in ready_after:
            leaves = ready_after[node]
            steps += leaves if len(leaves) == 1 else sorted(leaves, key=node.edges.index)
    return buffers, steps


def ready_queue_order(roots, nodes):
    """The order of PyTorch's ready queue, a binary heap whose ties (several leaves ready at once) fall as the
    C++ library's heap lets them fall. The sorted order is the same but for three or more tied leaves."""
    waiting = dict.fromkeys(nodes, 0)
    for node in nodes:
        for parent in node.edges:
            if parent is not None:
                waiting[parent] = waiting.get(parent, 0) + 1
    heap, order = [], []

    def sift_up(i, node):
        while i and heap[(i - 1) // 2].seq < node.seq:
            heap[i] = heap[(i - 1) // 2]
            i = (i - 1) // 2
        heap[i] = node

    def push(node):
        heap.append(node)
        sift_up(len(heap) - 1, node)

    def pop():
        top, node = heap[0], heap.pop()
        if heap:
            hole, child = 0, 2
            while child < len(heap):
                if heap[child].seq < heap[child - 1].seq:
                    child -= 1
                heap[hole] = heap[child]
                hole, child = child, 2 * child + 2
            if child == len(heap):
                heap[hole] = heap[child - 1]
                hole = child - 1
            sift_up(hole, node)
        return top

    for node in dict.fromkeys(roots):
        if not waiting.get(node, 0):
            push(node)
    while heap:
        node = pop()
        order.append(node)
        for parent in node.edges:
            if parent is not None:
                waiting[parent] -= 1
                if not waiting[parent]:
                    push(parent)
    return order


def sweep(roots, gradients, keep_graph=False, create_graph=False, targets=None, capture=False):
    """Runs backward from `roots` (nodes or ports) with their gradients.

    targets: {node: {output number: position}} restricts the sweep to what leads there; with `capture` the
    gradients of the targets are returned as {position: gradient} and nothing is accumulated.
    """
    buffers, steps = _discover(roots)
    for node, g in zip(roots, gradients):
        buffers[node] = g if buffers[node] is None else buffers[node] + g
    captured: dict = {}
    if targets is not None:
        needed = set(targets)
        for node in reversed(steps):
            if not needed.isdisjoint(node.edges):
                needed.add(node)
        steps = [node for node in steps if node in needed]
        buffers = {node: g for node, g in buffers.items() if node in needed}
    recorder = state.recorder
    plain = recorder is None and targets is None
    summed = set()  # nodes whose buffer the sweep itself made, so it may be added to in place
    was_enabled = modes.grad
    set_grad_mode(create_graph)
    if recorder is not None:
        recorder.sweep(True)
    sweep_depth = _begin_sweep(buffers)
    try:
        for node in steps:
            g = buffers.pop(node)
            edges = node.edges
            if plain and node.hooks is None:
                if g is None and not node.runs_on_none:
                    continue
                grads = node.record(g, edges) if create_graph else node.run(g, edges)
            else:
                if targets is not None:
                    edges = tuple([edge if edge in buffers else None for edge in edges])
                grads = _unusual_step(node, g, edges, buffers, create_graph, targets, capture, captured, recorder)
                if grads is None:
                    continue
            if not keep_graph:
                node.saved = None
            g = None
            for parent, grad in zip(edges, grads):
                if parent is not None and grad is not None:
                    total = buffers[parent]
                    if total is None:
                        buffers[parent] = grad
                    elif parent in summed:
                        total += grad
                        buffers[parent] = total
                    else:
                        buffers[parent] = total + grad
                        if not create_graph:
                            summed.add(parent)
            grads = grad = None  # or they would look like a second owner of what a leaf receives next
    finally:
        set_grad_mode(was_enabled)
        _end_sweep(sweep_depth)
        if recorder is not None:
            recorder.sweep(False)
    return captured


def _unusual_step(node, g, edges, buffers, create_graph, targets, capture, captured, recorder):
    """One step with hooks, captured gradients or a recorder. None: there is nothing to pass on."""
    if node.hooks is PORT:
        if g is not None:
            _deposit(node, g, buffers)
        return None
    if node.hooks is not None:
        g = _run_pre_hooks(node, g)
    if targets is not None:
        for number, position in targets.get(node, {}).items():
            captured[position] = g if node.outputs == 1 else g and g[number]
        leaf = type(node) is AccumulateGrad
        if (leaf and capture) or (not leaf and all([edge is None for edge in edges])):
            return None
    if g is None and not node.runs_on_none:
        return None
    if recorder is not None:
        recorder.before(node, g)
    grads = node.record(g, edges) if create_graph else node.run(g, edges)
    if node.hooks is not None:
        grads = _run_post_hooks(node, grads, g)
    if recorder is not None:
        recorder.after(node, g, grads)
    return grads


# What multi-tensor hooks ask of the sweep that calls them

_sweeps = threading.local()


def _begin_sweep(buffers):
    running = _sweeps.__dict__.setdefault("running", [])
    running.append(buffers)
    return len(running) - 1


def _end_sweep(depth):
    del _sweeps.running[depth:]


def current_sweep() -> int:
    """A number that identifies the sweep in which a hook was called."""
    return id(_sweeps.running[-1])


def reachable(node) -> bool:
    """Whether the running sweep has still to run this node."""
    return node in _sweeps.running[-1]


def _deposit(port, g, buffers):
    parent = port.parent
    if parent in buffers:
        slots = buffers[parent]
        if slots is None:
            slots = buffers[parent] = [None] * parent.outputs
        total = slots[port.number]
        slots[port.number] = g if total is None else total + g


def as_tensor(g):
    return g if g is None or isinstance(g, Tensor) else Tensor._from(np.asarray(g))


def _like(g, before):
    """A gradient that a hook returned, as this sweep passes them (an array, unless gradients are recorded)."""
    if before is not None and not isinstance(before, Tensor):
        return g.array
    return g


def _checked(result, g, what):
    if not isinstance(result, Tensor):
        raise TypeError(f"{what} should return None or a Tensor, but returned {type(result).__name__}")
    if g is not None and result.array.shape != g.array.shape:
        raise RuntimeError(
            f"hook '{what}' has changed the size of value: {tuple(g.array.shape)} to {tuple(result.array.shape)}"
        )
    return result


def _run_pre_hooks(node, g):
    """Tensor hooks in the order of registration, then retain_grad, then the node's own pre-hooks."""
    hooks = node.hooks
    single = node.outputs == 1
    grads = [g] if single else list(g or [None] * node.outputs)
    sample = next((x for x in grads if x is not None), None)
    for number, fns in list(hooks.tensor.items()):
        value = as_tensor(grads[number])
        for hook in list(fns.values()):
            result = hook(value)
            if result is not None:
                value = _checked(result, value, getattr(hook, "__name__", "hook"))
                grads[number] = _like(value, sample)
    for number, reference in list(hooks.retain.items()):
        tensor = reference()
        if tensor is not None and grads[number] is not None:
            value = as_tensor(grads[number])
            tensor.__dict__["_grad"] = value if value.node is not None else Tensor._from(value.array.copy())
    for hook in list(hooks.pre.values()):
        outputs = tuple(map(as_tensor, grads))
        result = hook(outputs)
        if result is not None:
            if not isinstance(result, tuple):
                raise TypeError(f"expected Tensor or tuple of Tensors from a pre-hook, got {type(result).__name__}")
            if len(result) != len(grads):
                raise RuntimeError(f"hook has changed the number of grad_outputs: {len(grads)} to {len(result)}")
            grads = [None if r is None else _like(r, sample) for r in result]
    return grads[0] if single else (None if all(x is None for x in grads) else grads)


def _run_post_hooks(node, grads, g):
    hooks = node.hooks
    if hooks.post_accumulate:
        variable = node.variable
        for hook in list(hooks.post_accumulate.values()):
            if hook(variable) is not None:
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")
    sample = next((x for x in (g if type(g) is list else [g]) if x is not None), None)
    for hook in list(hooks.post.values()):
        outputs = tuple(map(as_tensor, g)) if type(g) is list else (as_tensor(g),)
        inputs = () if type(node) is AccumulateGrad else tuple(map(as_tensor, grads))
        result = hook(inputs, outputs)
        if result is not None and type(node) is not AccumulateGrad:
            result = result if isinstance(result, tuple) else (result,)
            if len(result) != len(inputs):
                raise RuntimeError(f"hook has changed the number of grad_inputs: {len(inputs)} to {len(result)}")
            grads = [None if r is None else _like(r, sample) for r in result]
    return grads


# A gradient array may become `.grad` without a copy when nobody else can see it. Reference counts say so; the
# count that "nobody" shows is measured once, by a sweep over a probe, because it differs between interpreters.
_unique_count = 0


def _owned(g) -> bool:
    return g.base is None and sys.getrefcount(g) <= _unique_count and g.flags.writeable


def _measure_unique_count():
    global _unique_count

    class Source(Node):
        __slots__ = ()

        def run(self, g, edges):
            return (np.ones(2) * 2,)

    class Probe(Node):
        __slots__ = ()

        def run(self, g, edges):
            with _lock:
                Probe.count = self.counted(g)
            return edges

        def counted(self, g):
            return sys.getrefcount(g)

    probe, source = Probe(), Source()
    probe.edges, probe.seq, probe.hooks = (), 1, None
    source.edges, source.seq, source.hooks = (probe,), 2, None
    sweep([source], [np.ones(2)])
    _unique_count = Probe.count


_measure_unique_count()


def _implicit_gradient(tensor):
    if tensor.array.size != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if tensor.array.dtype.kind == "c":
        raise RuntimeError(
            "grad can be implicitly created only for real scalar outputs but got "
            f"{dtypes.from_array_type(tensor.array.dtype)}"
        )
    return np.ones(tensor.array.shape, tensor.array.dtype)


def _roots(tensors, gradients, create_graph):
    """The nodes and gradients that a sweep starts from, checked as PyTorch checks them."""
    from .views import current_node

    if len(tensors) != len(gradients):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    nodes, seeds = [], []
    for i, (tensor, g) in enumerate(zip(tensors, gradients, strict=True)):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(tensor).__name__}")
        node = current_node(tensor)
        if g is None and node is not None:
            g = _implicit_gradient(tensor)
            if create_graph:
                g = Tensor._from(g)
        elif g is not None:
            if not isinstance(g, Tensor):
                raise TypeError(
                    f"gradients can be either Tensors or None, but got {type(g).__module__}.{type(g).__name__}"
                    if type(g).__module__ != "builtins"
                    else f"gradients can be either Tensors or None, but got {type(g).__name__}"
                )
            if g.array.shape != tensor.array.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of "
                    f"{tensor.shape}."
                )
            if (g.array.dtype.kind == "c") != (tensor.array.dtype.kind == "c"):
                raise RuntimeError(
                    "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                    f"dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of {tensor.dtype}."
                )
            if g.array.dtype != tensor.array.dtype:
                g = g.to(tensor.dtype)
            if not create_graph:
                g = g.array
        if node is None:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        nodes.append(node)
        seeds.append(g)
    return nodes, seeds


def _targets(inputs):
    """{node: {output number: position}}; a second mention of the same input is resolved by the caller."""
    from .views import current_node

    targets: dict = {}
    for position, tensor in enumerate(inputs):
        node = current_node(tensor)
        if node is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        node, number = node_and_number(node)
        targets.setdefault(node, {}).setdefault(number, position)
    return targets


def _as_sequence(value):
    return (value,) if isinstance(value, Tensor) else tuple(value)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Adds the gradients of `tensors` with respect to the graph's leaves to their `.grad`.

    grad_tensors: the gradient of each tensor, of its shape (None: 1.0 for a tensor with one element).
    retain_graph: keep the saved tensors, so that backward can run again (default: as create_graph).
    create_graph: record the backward pass itself, for derivatives of higher order.
    inputs: accumulate into these tensors only.

    >>> import backlight as torch
    >>> x = torch.tensor([1., 2.], requires_grad=True)
    >>> torch.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only "
                "use `grad_tensors`."
            )
        grad_tensors = grad_variables
    tensors = _as_sequence(tensors)
    gradients = (None,) * len(tensors) if grad_tensors is None else _as_sequence(grad_tensors)
    nodes, seeds = _roots(tensors, gradients, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        sweep(nodes, seeds, keep, create_graph)
        return
    inputs = _as_sequence(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    found = sweep(nodes, seeds, keep, create_graph, _targets(inputs))
    for position, g in found.items():  # leaves have accumulated already; other tensors keep theirs here
        tensor = inputs[position]
        if g is not None and not tensor.is_leaf:
            g = as_tensor(g)
            before = tensor.__dict__.get("_grad")
            tensor.__dict__["_grad"] = g if before is None else before + g


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
) -> tuple:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; no `.grad` is touched.

    allow_unused: None instead of an error for an input that the outputs don't depend on.
    materialize_grads: zeros instead of None for such an input.

    >>> import backlight as torch
    >>> x = torch.tensor(3., requires_grad=True)
    >>> torch.autograd.grad(x ** 2, x)
    (tensor(6.),)
    """
    if is_grads_batched:
        raise NotImplementedError("autograd.grad(is_grads_batched=True) is not there yet in Backlight")
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    del only_inputs  # accepted and ignored, as in PyTorch
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    outputs, inputs = _as_sequence(outputs), _as_sequence(inputs)
    gradients = (None,) * len(outputs) if grad_outputs is None else _as_sequence(grad_outputs)
    if not inputs:
        raise ValueError("grad requires non-empty inputs.")
    targets = _targets(inputs)
    nodes, seeds = _roots(outputs, gradients, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    found = sweep(nodes, seeds, keep, create_graph, targets, capture=True)
    results = []
    for tensor in inputs:
        node, number = node_and_number(tensor.node)
        g = as_tensor(found.get(targets[node][number]))
        if g is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True "
                "if this is the desired behavior."
            )
        if g is None and materialize_grads:
            g = Tensor._from(np.zeros_like(tensor.array))
        if g is not None and not create_graph:
            g = Tensor._from(g.array.copy() if g.array.base is not None or not g.array.flags.writeable else g.array)
        results.append(g)
    return tuple(results)
