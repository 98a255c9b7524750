"""How the recorder for PyTorch sees backward passes: each node's prehook runs before the node, and its hook after it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from .. import schema
from ..recorder import Running
from .torch_hooks import HookRecorder
from .torch_tensors import count_modes, place_of, push_mode, unobserved

if TYPE_CHECKING:
    from collections.abc import Callable


# Nodes that pass on the elements that arrived, in another shape, mostly without a copy.
VIEWS = frozenset(
    f"{name}Backward0" for name in "T Transpose Permute View ReshapeAlias UnsafeView Squeeze Unsqueeze Alias Numpy_T".split()
)


class PassRecorder(HookRecorder):
    """The part of `TorchRecorder` that records passes and their steps."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._latest: list[Running | None] = []  # the passes that run in the thread that began one last

    def _tensor_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        def read(tensor, gradient=None, retain_graph=None, create_graph=False, inputs=None):  # noqa: ARG001
            return (tensor,), inputs, retain_graph, create_graph

        return self._run_pass("backward", read, func, args, kwargs)

    def _autograd_backward(self, func: Any, args: Any, kwargs: Any) -> Any:
        def read(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):  # noqa: ARG001
            return tensors, inputs, retain_graph, create_graph

        return self._run_pass("backward", read, func, args, kwargs)

    def _autograd_grad(self, func: Any, args: Any, kwargs: Any) -> Any:
        def read(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, **_options):  # noqa: ARG001
            return outputs, inputs, retain_graph, create_graph

        return self._run_pass("grad", read, func, args, kwargs)

    def _run_pass(self, call: str, read: Callable, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs `backward` or `grad` and records the pass. `read` gives names to the arguments."""
        if "inputs" in kwargs and not isinstance(kwargs["inputs"], (torch.Tensor, GradientEdge, Mapping, type(None))):
            kwargs = kwargs | {"inputs": tuple(kwargs["inputs"])}  # it could be a generator, which can be read once
        try:
            roots, inputs, retain_graph, create_graph = read(*args, **kwargs)
        except TypeError:  # wrong arguments: PyTorch says so
            return func(*args, **kwargs)
        retain_graph = bool(create_graph if retain_graph is None else retain_graph)
        self._latest = self.thread.running
        with unobserved():
            running = self._begin(call, _sequence(roots), _sequence(inputs), bool(create_graph), retain_graph)
        profiling = self._begin_profile()
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._end(running, error, profiling)
            raise
        self._end(running, None, profiling)
        return result

    def _begin(self, call: str, roots: list, inputs: list, create_graph: bool, retain_graph: bool) -> Running | None:
        tensors = [t for t in roots if isinstance(t, torch.Tensor)]
        lines = [self._used(t) for t in tensors]
        wanted = [self.tensor(t) for t in inputs if isinstance(t, torch.Tensor)]
        running = self.begin_pass(call, lines, wanted, create_graph, retain_graph)
        if running is None:
            return None
        line = running.to
        edges = [get_gradient_edge(x) if isinstance(x, torch.Tensor) and x.requires_grad else x for x in roots]
        running.saved = starts = [(edge.node, edge.output_nr) for edge in edges if isinstance(edge, GradientEdge)]
        line.root_edges = [schema.Edge(self.node(node), number) for node, number in starts]
        if self.policy != "shapes":
            line.losses = [self.statistics(t) for t in tensors]
        if create_graph or self.policy != "shapes":
            walked = _walk([node for node, _ in starts])
            nodes = [self.node(node) for node in walked]
            running.nodes = {its_line.number: node for its_line, node in zip(nodes, walked)}
            self.look_at_losses(line, lambda: [(its_line, self._saved_arrays(node)) for its_line, node in zip(nodes, walked)])
        else:
            nodes = _reachable([edge.node for edge in line.root_edges])
        line.nodes = len(nodes)
        saved = {s.storage: s.bytes for node in nodes if node.freed_by is None for s in node.saved}
        line.bytes = sum(saved.values())
        if create_graph and self.policy == "shapes":  # nodes that steps create are found in what they pass on
            running.handles = [running.nodes[x.number].register_hook(partial(self._after, x)) for x in nodes]
        return running

    def _end(self, running: Running | None, error: BaseException | None, profiling: bool) -> None:
        if profiling:
            sys.setprofile(None)
        with unobserved():
            if running is not None:
                if error is None:
                    self._finish_step(running)
                for handle in running.handles:
                    handle.remove()
                running.nodes.clear()
                running.saved = None  # kept the node of a root that is a leaf alive
            self.end_pass(error, 3)

    def _unexpected_pass(self, line: schema.Node) -> Running | None:
        """A pass whose beginning wasn't seen, because it runs in another thread. PyTorch tells when it ends, unless it raises."""
        if self._latest and sys._getframe(1).f_back is None:  # a thread of PyTorch's, for a GPU: it runs the latest pass
            self.thread.running = self._latest
            return self._latest[-1]
        running = self.begin_pass("backward", [], [], torch.is_grad_enabled(), None)  # pyright: ignore[reportArgumentType]
        if running is not None:
            running.to.root_edges = [schema.Edge(line, 0)]
            running.to.roots = [] if line.op is None else [x for x in line.op.outputs if x.node is line]
        torch.autograd.Variable._execution_engine.queue_callback(lambda: self._end(running, None, False))
        return running

    def _before(self, line: schema.Node, gradients: Any) -> None:
        """A node's prehook: the node is about to run."""
        if not self.active:
            return
        stack = self.thread.running
        running = stack[-1] if stack else self._unexpected_pass(line)
        if count_modes():
            if running is not None:
                with unobserved():
                    self._begin_step(running, line, gradients)
            self._push_mode()
            return
        if running is not None:
            self._begin_step(running, line, gradients)
        push_mode(self.mode)  # PyTorch turns it off again when the node and its hooks have run

    def _begin_step(self, running: Running, line: schema.Node, gradients: Any) -> None:
        if running.step is not None:
            self._finish_step(running)
        if running.to.create_graph:
            self._look_for_nodes(running, line, gradients)
        shapes = self.policy == "shapes"
        if shapes:
            arrived: list = [None if gradient is None else self._shape(gradient) for gradient in gradients]
        else:
            arrived = [None if x is None else self._measure_arrived(running, line, i, x) for i, x in enumerate(gradients)]
        if self._retainers and line.number in self._retainers:
            self._retained(running, line, arrived)
        step = self.begin_step(line, arrived)
        running.arguments = id(gradients)
        if running.pending_hooks:
            self._hooks_before_step(running, step)
        if line.leaf is not None:
            leaf = self.live(line.leaf)
            before = None if leaf is None else leaf.grad
            running.write = step, line.leaf, "created" if before is None else "added to"
            running.before_write = None if shapes or before is None else self.statistics(before)

    def _measure_arrived(self, running: Running, line: schema.Node, output: int, gradient: Any) -> schema.Statistics:
        """What arrived at an output of a node, which isn't measured again if it is what another node passed on."""
        known = running.known.pop((line.number, output), None)
        return known[0] if known is not None and known[1] == place_of(gradient) else self._measure(gradient)

    def _after(self, line: schema.Node, passed: Any, arrived: Any) -> None:
        """A node's hook: the node has run."""
        now = perf_counter()
        running = self.thread.running[-1] if self.thread.running else None
        if not self.active or running is None or running.step is None or running.step.node is not line:
            return
        step = running.step
        step.seconds = now - running.started
        with unobserved():
            if running.to.create_graph:
                for gradient in passed:
                    if gradient is not None and gradient.grad_fn is not None:
                        self.node(gradient.grad_fn)
            if self.policy != "shapes":
                self._note_passed(running, step, passed, arrived)

    def _note_passed(self, running: Running, step: schema.Step, passed: Any, arrived: Any) -> None:
        line, view = step.node, step.node.name in VIEWS
        for edge, gradient in zip(line.edges, passed):
            if edge is None or gradient is None:
                step.passed.append(None)
                continue
            value = self._same_elements(step, gradient, arrived) if view else None
            value = value or self._measure(gradient)
            step.passed.append(value)
            if value.norm is not None:
                running.known[edge.node.number, edge.output] = value, place_of(gradient)
        if self.is_remarkable(step) and (node := running.nodes.get(line.number)) is not None:
            arrays: list[list] = [[], []]
            if any(x is not None and x.nonfinite for x in step.passed):
                arrays = [[None if g is None else self._array_if_any(g) for g in x] for x in (arrived, passed)]
            self.look_closer(step, lambda: self._saved_arrays(node), *arrays)

    def _saved_arrays(self, node: Any) -> dict[str, Any]:
        """What a node saved, as arrays."""
        kind = self._node_types[type(node)]
        return {name: array for name, tensor in kind.saved_tensors(node) if (array := self._array_if_any(tensor)) is not None}

    def _same_elements(self, step: schema.Step, gradient: Any, arrived: Any) -> schema.Statistics | None:
        """The numbers of a gradient that is what arrived in another shape."""
        known, before = step.arrived[0], arrived[0]
        if known is None or known.nonfinite != 0 or self.policy == "full" or before is None:
            return None
        if gradient.data_ptr() != before.data_ptr() or gradient.numel() != before.numel():
            return None
        return schema.Statistics(tuple(gradient.shape), known.dtype, known.norm, known.min, known.max, known.zeros, 0)

    def _finish_step(self, running: Running) -> None:
        """A step and its hooks have run: the gradient lies in `.grad`, and what the node saved is gone."""
        step, running.step = running.step, None
        if step is None:
            return
        if step.seconds is None:
            step.seconds = perf_counter() - running.started
        if running.write is not None:
            self._write_gradient(running)
        node = step.node
        if node.saved and running.to.retain_graph is False:
            step.freed = sum([saved.bytes for saved in node.saved])
            node.freed_by = step

    def _write_gradient(self, running: Running) -> None:
        """The write into `.grad`, once per step, in its place among the hooks."""
        if running.write is None:
            return
        (step, leaf, how), before = running.write, running.before_write
        running.write = running.before_write = None
        value = None
        tensor = None if self.policy == "shapes" else self.live(leaf)
        gradient = None if tensor is None else tensor.grad
        if gradient is not None:
            value = step.arrived[0] if how == "created" else self._measure(gradient)
            if value is not None:
                self._remember(gradient, value)
        self.add(self.record.gradient_writes, schema.GradientWrite, leaf, how, None, step, value, before)

    def _look_for_nodes(self, running: Running, line: schema.Node, gradients: Any) -> None:
        """Nodes of the second-level graph that the engine made when it added up gradients belong to the step that passed the last one."""
        for gradient in gradients:
            grad_fn = None if gradient is None else gradient.grad_fn
            if grad_fn is not None and self.known_node(grad_fn) is None:
                steps = reversed(running.to.steps)
                running.step = next((s for s in steps if any(e is not None and e.node is line for e in s.node.edges)), None)
                self.node(grad_fn)
                running.step = None


def _sequence(values: Any) -> list:
    """The tensors and edges that `backward` and `grad` take one, several, or a dictionary of."""
    if values is None:
        return []
    if isinstance(values, (torch.Tensor, GradientEdge)):
        return [values]
    return list(values.values() if isinstance(values, Mapping) else values)


def _reachable(nodes: list[schema.Node]) -> list[schema.Node]:
    """The lines of nodes that can be reached from these."""
    seen = set(nodes)
    todo = list(seen)
    for node in todo:  # grows while it is walked
        for edge in node.edges:
            if edge is not None and edge.node not in seen:
                seen.add(edge.node)
                todo.append(edge.node)
    return todo


def _walk(nodes: list) -> list:
    """PyTorch's nodes that can be reached from these."""
    seen = set(nodes)
    todo = list(seen)
    for node in todo:  # grows while it is walked
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return todo
