"""Records a program that runs on Backlight: what sits in the engine's slot (the protocol is at `state.set_recorder`)."""

from __future__ import annotations

import sys
import weakref
from time import perf_counter
from typing import Any

import numpy as np

from ... import engine
from ...engine import AccumulateGrad, Node, Port, node_and_number
from ...saved import Packed
from ...state import modes, set_recorder, state
from ...sweeps import current_sweep
from ...tensor import Parameter, Tensor
from ...version import __version__
from .. import schema
from ..recorder import Recorder, Running
from ..statistics import _type_name as type_name
from ..statistics import measure


class BacklightRecorder(Recorder):
    """Fills a record from the engine's slot."""

    engine = "backlight"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record.engine_version = __version__
        self._storages: dict[int, tuple[weakref.ref, int]] = {}
        self._storage_count = 0
        self._handles: list = []
        self._registered: dict[int, schema.Registration] = {}

    def start(self) -> None:
        if state.recorder is not None:
            raise RuntimeError("another recording is going on, and the engine has room for one")
        from ...nn.module import register_module_forward_hook, register_module_forward_pre_hook
        from ...optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self.active = True
        set_recorder(self)
        self._handles = [
            register_module_forward_pre_hook(lambda module, _args: self.enter_module(module)),
            register_module_forward_hook(lambda *_args: self.leave_module(), always_call=True),
            register_optimizer_step_pre_hook(self.before_optimizer),
            register_optimizer_step_post_hook(self.after_optimizer),
        ]

    def stop(self) -> None:
        if not self.active:
            return
        self.active = False
        if state.recorder is self:
            set_recorder(None)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.thread.modules.clear()
        self.name_tensors(sys._getframe(1), final=True)

    # Tensors

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.array

    def gradient(self, tensor: Any) -> Any:
        node = tensor.node
        if type(node) is AccumulateGrad:
            return node.grad
        if (leaf := tensor.__dict__.get("_leaf")) is not None:
            return leaf.grad
        return tensor.__dict__.get("_grad")

    def version(self, tensor: Any) -> int | None:
        return 0 if tensor.version is None else tensor.version.count

    def module_class(self) -> type | None:
        module = sys.modules.get(f"{engine.__package__}.nn.module")
        return None if module is None else module.Module

    def describe(self, tensor: Any) -> schema.Tensor:
        array, node = tensor.array, tensor.node
        leaf = node is None or type(node) is AccumulateGrad
        requires_grad = tensor.requires_grad
        role = (
            "parameter" if isinstance(tensor, Parameter) else "result" if not leaf else "leaf" if requires_grad else "constant"
        )
        base = None if tensor.base is None else self.tensor(tensor.base.root)
        line = schema.Tensor(
            0, array.shape, type_name(array.dtype), requires_grad, leaf, role, None, None, 0, None, base,
            self.storage(array), array.nbytes, self.version(tensor),
        )  # fmt: skip
        if node is not None and not leaf:
            real, number = node_and_number(node)
            line.node, line.output = self.node(real), number
            line.op = line.node.op
        return line

    def storage(self, array: np.ndarray) -> int:
        """A number for the memory of an array; arrays that share memory have the same."""
        owner = array
        while type(owner.base) is np.ndarray:
            owner = owner.base
        found = self._storages.get(id(owner))
        if found is None or found[0]() is not owner:
            self._storage_count += 1
            found = self._storages[id(owner)] = weakref.ref(owner), self._storage_count
        return found[1]

    # Nodes

    def known_node(self, node: Any) -> schema.Node | None:
        """The line of a node, if this recording has one."""
        extra = getattr(node, "extra", None)
        line = None if extra is None else extra.get("recorded")
        nodes = self.record.nodes
        return line if line is not None and line.number < len(nodes) and nodes[line.number] is line else None

    def node(self, node: Node, op: schema.Op | None = None) -> schema.Node:
        """The line of a node. Nodes behind it that are still unknown, made before recording began, are written down, too."""
        line = self.known_node(node)
        if line is not None:
            return line
        line = self._new_node(node, op)
        todo = [(node, line)]
        for current, its_line in todo:  # grows while it is walked: no recursion
            kept = type(current).differentiable if hasattr(type(current), "differentiable") else None
            kept = getattr(current, "differentiable", kept)
            for i, edge in enumerate(current.edges):
                if kept is not None and i < len(kept) and not kept[i]:
                    continue
                if edge is None:
                    its_line.edges.append(None)
                    continue
                parent, number = (edge.parent, edge.number) if type(edge) is Port else (edge, 0)
                parent_line = self.known_node(parent)
                if parent_line is None:
                    parent_line = self._new_node(parent, None)
                    todo.append((parent, parent_line))
                its_line.edges.append(schema.Edge(parent_line, number))
        return line

    def _new_node(self, node: Node, op: schema.Op | None) -> schema.Node:
        with self.lock:
            line = schema.Node(
                len(self.record.nodes), type(node).__name__, node._sequence_nr() if state.renumbered else node.seq, op
            )  # pyright: ignore[reportAttributeAccessIssue]
            self.record.nodes.append(line)
        if type(node) is AccumulateGrad:
            line.leaf = self.tensor(node.variable)
            line.leaf.node = None
        else:
            self._add_saved(line, node)
        running = self.thread.running[-1] if self.thread.running else None
        if running is not None and op is not None:
            line.made_by = running.step
        if getattr(node, "extra", None) is None:
            node.extra = {}
        node.extra["recorded"] = line
        return line

    def _add_saved(self, line: schema.Node, node: Any) -> None:
        op = getattr(type(node), "op", None)
        if op is None:
            for i, value in enumerate(getattr(node, "to_save", None) or ()):
                self._add_one(line, node, f"tensor {i}", value)
            return
        for name, value in zip((*op.inputs, "result"), getattr(node, "saved", None) or ()):
            for one in value if type(value) is tuple else (value,):
                self._add_one(line, node, "self" if name == "input" else name, one)
        if hasattr(node, "parameters"):
            shapes = [f"{name}_sym_sizes" for name, (_users, shape_users) in zip(op.inputs, op.saves) if shape_users]
            for name, value in zip((*shapes, *op.parameters), node.parameters):
                if _is_plain(value) or self.policy == "full":
                    line.parameters["self" + name[5:] if name.startswith("input") else name] = value

    def _add_one(self, line: schema.Node, node: Any, name: str, value: Any) -> None:
        if value is None or type(value) is Packed:
            return
        array = value if isinstance(value, np.ndarray) else getattr(value, "array", None)
        if array is None:
            return
        tensor = None if value is array else self.known_tensor(value)
        saved = schema.Saved(name, tensor, array.shape, type_name(array.dtype), array.nbytes, self.storage(array))
        saved.version = (node.output_version[1] if node.output_version else 0) if value is array else self.version(value)
        if self.policy == "full":
            saved.values = array.copy()
        line.saved.append(saved)

    # The slot: operations

    def operation(self, function: str, node: Any, results: list, inputs: Any, parameters: Any = ()) -> None:
        """An operation ran. `node` is None where no gradient is wanted."""
        if self.thread.quiet:
            return
        lines, arguments = [], [p for p in parameters if _is_plain(p)]
        for x in inputs:
            if isinstance(x, Tensor):
                lines.append(self.tensor(x))
            elif isinstance(x, (list, tuple)):
                lines += [self.tensor(y) for y in x if isinstance(y, Tensor)]
            elif _is_plain(x):
                arguments.append(x)
        op = self.op(function.strip("_"), lines, arguments, modes.grad)
        line = None if node is None else self.node(node, op)
        for i, result in enumerate(results):
            if not isinstance(result, Tensor):
                continue
            known = self.known_tensor(result)
            if known is not None:
                op.outputs.append(known)
                continue
            known = self.tensor(result)
            known.op, known.output, known.node = op, i, line if result.node is not None else None
            if known.role != "parameter":
                known.role = "result"
            op.outputs.append(known)
        op.cut = self.cut_of(op)

    def tensor_written(self, tensor: Any) -> None:
        """A tensor was written in place: by the operation before this, or directly."""
        if self.thread.quiet:
            return
        line, after = self.tensor(tensor), self.version(tensor) or 0
        op = self.thread.last_op
        stand_in = None if op is None else next((x for x in op.inputs if self._is_stand_in(x, line)), None)
        if op is None or stand_in is None:
            op = self.op("write", [line], [], modes.grad)
            op.function = op.via or op.function
            op.outputs = [line]
        else:
            op.inputs = [line if x is stand_in else x for x in op.inputs]
            op.outputs, op.function = [line], op.function + "_"
            op.cut = None
        root = tensor if tensor.base is None else tensor.base.root
        for one in (root, tensor):  # the root first: the view's new node leads to it
            if one.node is not None and type(one.node) is not AccumulateGrad:
                real, number = node_and_number(one.node)
                its_line = self.node(real, op)
                known = self.tensor(one)
                known.node, known.output, known.requires_grad = its_line, number, True
        self.written(line, op, after - 1, after)

    def _is_stand_in(self, candidate: schema.Tensor, written: schema.Tensor) -> bool:
        """In-place operations run on a stand-in for the tensor, of the same memory."""
        return candidate is written or (candidate.storage == written.storage and candidate.shape == written.shape)

    def called(self, function: str, tensor: Any, result: Any = None) -> None:
        """A method that takes a tensor out of the graph (detach, data, numpy, tolist, item), or `.grad` of a result was read."""
        if self.thread.quiet:
            return
        line = self.tensor(tensor)
        op = self.op(function, [line], [], modes.grad)
        if isinstance(result, Tensor):
            known = self.tensor(result)
            known.op, known.output, known.role = op, 0, "result"
            op.outputs.append(known)
        op.cut = None if function == "grad" else self.cut_of(op)

    def switched(self, mode: str, enabled: bool, tensor: Any = None) -> None:
        """A mode was switched, or a tensor's requires_grad."""
        line = None if tensor is None else self.known_tensor(tensor)
        if tensor is not None:
            line = self.tensor(tensor)
            line.requires_grad, line.leaf = enabled, True
            if line.role in ("constant", "leaf"):
                line.role = "leaf" if enabled else "constant"
        self.add(self.record.modes, schema.Mode, mode, enabled, self.site(2)[0], line)

    def gradient_set(self, tensor: Any, value: Any) -> None:
        """The program assigned to `.grad`."""
        site, via = self.site(2)
        how = "cleared" if value is None else "assigned"
        if via == "zero_grad" and self._last_optimizer_call() != site:
            self.add(self.record.optimizers, schema.Optimizer, -1, "", "zero_grad", site)
        measured = None if value is None else measure(value.array, self.policy)
        self.add(self.record.gradient_writes, schema.GradientWrite, self.tensor(tensor), how, site, None, measured)

    def _last_optimizer_call(self) -> schema.Site | None:
        last = self.record.events[-1] if self.record.events else None
        return last.site if isinstance(last, (schema.GradientWrite, schema.Optimizer)) else None

    def gradient_written(self, gradient: Any) -> None:
        """Somebody wrote into a tensor that is a leaf's `.grad`."""

    # The slot: passes

    def refused(self, error: BaseException, tensor: Any) -> None:
        """`backward` or `grad` can't start from this tensor."""
        call = sys._getframe(2).f_code.co_name
        if self.begin_pass(call, [self.tensor(tensor)], [], False, False) is None:
            self.thread.running.pop()
            return
        self._end(error)

    def sweep(self, begin: bool) -> None:
        if not begin:
            self._end(sys.exc_info()[1])
            return
        sweep = current_sweep()
        assert sweep is not None
        call = sys._getframe(2).f_code.co_name
        roots = [node for node, g in sweep.buffers.items() if g is not None]
        create_graph = modes.grad
        running = self.begin_pass(call, [], [], create_graph, bool(sweep.keep))
        if running is None:
            return
        line, targets = running.to, sweep.targets
        for root in roots:
            real, number = node_and_number(root)
            known = self.node(real)
            line.root_edges.append(schema.Edge(known, number))
            if (tensor := _output(known, number)) is not None:
                line.roots.append(tensor)
                root_value = self.live(tensor)
                if self.policy != "shapes" and root_value is not None:
                    line.losses.append(measure(root_value.array, self.policy))
        for target, numbers in (targets or {}).items():
            known = self.node(node_and_number(target)[0])
            line.inputs += [tensor for number in numbers if (tensor := _output(known, number)) is not None]
        nodes = [node for node in sweep.steps if type(node) is not Port]
        line.nodes, line.bytes = len(nodes), 0
        incoming = running.incoming
        storages: set[int | None] = set()
        for node in nodes:
            its_line = self.node(node)
            for edge in its_line.edges:
                if edge is not None:
                    incoming[edge.node.number] = incoming.get(edge.node.number, 0) + 1
            for saved in its_line.saved:
                if saved.storage not in storages and getattr(node, "saved", True) is not None:
                    storages.add(saved.storage)
                    line.bytes += saved.bytes
        for edge in line.root_edges:
            incoming[edge.node.number] = incoming.get(edge.node.number, 0) + 1

    def _end(self, error: BaseException | None) -> None:
        running = self.thread.running[-1] if self.thread.running else None
        if running is not None:
            running.saved = None
        errors_before = len(self.record.errors)
        self.end_pass(error, 3)
        if error is not None and len(self.record.errors) > errors_before:
            self._add_finding(error)

    def _add_finding(self, error: BaseException) -> None:
        """What led to the exception, below PyTorch's message."""
        from ..explain.ask import explain

        for finding in explain(error, self):
            error.add_note(f"\n{finding}")

    def before(self, node: Any, g: Any) -> None:
        running = self.thread.running[-1] if self.thread.running else None
        if running is None:
            return
        line = self.known_node(node)
        if line is None:  # made after the pass began, or recorded by another thread's recording
            line = self.node(node)
        grads = g if type(g) is list else [g]
        received, policy = running.received, self.policy
        arrived = []
        for i, x in enumerate(grads):
            if x is None:
                arrived.append(None)
                continue
            known = received.pop((line.number, i), None) if node.hooks is None else None
            arrived.append(known if known is not None else measure(_array(x), policy))
        step = self.begin_step(line, arrived)
        for hook in running.pending_hooks:
            hook.step, hook.node = step, hook.node or line
        running.pending_hooks.clear()
        if type(node) is AccumulateGrad:
            running.write = step, node, "created" if node.grad is None else "added to"
            if policy != "shapes" and node.grad is not None:
                running.before_write = measure(node.grad.array, policy)
        elif policy != "shapes":
            running.saved = getattr(node, "saved", None)
        running.started = perf_counter()

    def after(self, node: Any, g: Any, grads: Any) -> None:
        now = perf_counter()
        running = self.thread.running[-1] if self.thread.running else None
        if running is None or running.step is None:
            return
        step = running.step
        step.seconds = now - running.started
        if type(node) is AccumulateGrad:
            self._write_gradient(running)
            running.step = None
            return
        line, policy, incoming = step.node, self.policy, g
        kept = getattr(node, "differentiable", None)
        position, passed = 0, []
        for i, (edge, g) in enumerate(zip(node.edges, grads)):
            if kept is not None and i < len(kept) and not kept[i]:
                continue
            to = line.edges[position] if position < len(line.edges) else None
            position += 1
            if edge is None or g is None or to is None:
                step.passed.append(None)
                passed.append(None)
                continue
            passed.append(_array(g))
            value = measure(passed[-1], policy)
            step.passed.append(value)
            if running.incoming.get(to.node.number) == 1:
                running.received[to.node.number, to.output] = value
        if getattr(node, "saved", True) is None:
            step.freed = sum(saved.bytes for saved in line.saved)
            line.freed_by = step
        if policy != "shapes":
            arrived = [None if x is None else _array(x) for x in (incoming if type(incoming) is list else [incoming])]
            self.look_closer(step, lambda: _saved_arrays(node, running.saved), arrived, passed)
            running.saved = None
        running.step = None

    def _write_gradient(self, running: Running) -> None:
        """The write into `.grad`, once per step, in its place among the hooks."""
        if running.write is None:
            return
        step, node, how = running.write
        value = None if self.policy == "shapes" or node.grad is None else measure(node.grad.array, self.policy)
        before = running.before_write
        running.write = running.before_write = None
        self.add(self.record.gradient_writes, schema.GradientWrite, step.node.leaf, how, None, step, value, before)

    # The slot: hooks

    def registered(self, kind: str, function: Any, owner: Any, handle: int) -> None:
        """A hook was registered on a tensor or a node."""
        if self.thread.quiet:
            return
        node = tensor = None
        if isinstance(owner, Tensor):
            tensor = self.tensor(owner)
        elif owner is not None:
            node = self.node(owner)
            tensor = node.leaf
        order = sum(r.kind == kind and r.tensor is tensor and r.node is node for r in self.record.registrations)
        self._registered[handle] = self.add(
            self.record.registrations, schema.Registration, kind, _name_of(function), self.site(2)[0], order, node, tensor
        )

    def hooked(self, kind: str, node: Any, number: int, function: Any, handle: int | None, before: Any, result: Any) -> None:
        """A hook ran. before: the gradient(s) that it saw; result: what it returned."""
        running = self.thread.running[-1] if self.thread.running else None
        if running is None:
            return
        if kind in ("post_accumulate", "posthook"):
            self._write_gradient(running)
        registration = None if handle is None else self._registered.get(handle)
        line = self.node(node)
        seen = [
            None if x is None else measure(_array(x), self.policy) for x in (before if isinstance(before, tuple) else (before,))
        ]
        went_on = seen
        if result is not None:
            went_on = [
                None if x is None else measure(_array(x), self.policy)
                for x in (result if isinstance(result, tuple) else (result,))
            ]
        tensor = line.leaf or (registration.tensor if registration else None) or _output(line, number)
        hook = self.add(
            self.record.hooks, schema.Hook, kind, _name_of(function), registration.site if registration else None,
            registration.order if registration else 0, running.step, line, tensor, seen, went_on, result is not None,
        )  # fmt: skip
        if running.step is None:
            running.pending_hooks.append(hook)


def _array(x: Any) -> np.ndarray:
    array = getattr(x, "array", x)
    return array if type(array) is np.ndarray else np.asarray(array)


def _saved_arrays(node: Any, saved: Any) -> dict[str, Any]:
    """What a node saved, under PyTorch's names."""
    op = getattr(type(node), "op", None)
    if op is None or saved is None:
        return {}
    result = {
        name: _array(x) for name, x in zip((*op.inputs, "result"), saved) if x is not None and type(x) not in (Packed, tuple)
    }
    result.update(zip(op.parameters, node.parameters[-len(op.parameters) :] if op.parameters else ()))
    return {"self" if name == "input" else name: x for name, x in result.items()}


def _output(node: schema.Node, number: int) -> schema.Tensor | None:
    """The tensor that a node's output is."""
    if node.leaf is not None:
        return node.leaf
    if node.op is None:
        return None
    return next((t for t in node.op.outputs if t.node is node and t.output == number), None)


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__name__


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return len(value) <= 16 and all(map(_is_plain, value))
    return value is None or isinstance(value, (int, float, str, bool))
