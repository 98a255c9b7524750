"""Records a program that runs on Backlight: what sits in the engine's slot (the protocol is at `state.set_recorder`)."""

from __future__ import annotations

import sys
import weakref
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import engine
from ...engine import AccumulateGrad, Node, Port, node_and_number
from ...nn.module import Module
from ...nn.parameter import is_lazy
from ...saved import Packed
from ...state import modes, set_recorder, state
from ...sweeps import current_sweep
from ...tensor import PLAIN, Parameter, Tensor
from ...version import __version__
from .. import schema
from ..recorder import Recorder, Running, is_plain, name_of_hook
from ..statistics import _type_name as type_name
from ..statistics import measure, shape_only

if TYPE_CHECKING:
    from types import FrameType

# Nodes whose gradient has the elements of the one that arrived.
_REARRANGING = frozenset(
    f"{name}Backward{i}"
    for name in ("T", "Transpose", "Permute", "View", "Reshape", "UnsafeView", "Unsqueeze", "Squeeze")
    for i in (0, 1, 2)
)


class BacklightRecorder(Recorder):
    """Fills a record from the engine's slot."""

    engine = "backlight"
    module_call = Module._call_hooked.__code__
    wrappers = frozenset(("method", "<lambda>", "with_out", "hooked", "inplace", "bump", "write_out", "rebase"))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record.engine_version = __version__
        self._storages: dict[int, tuple[weakref.ref, int]] = {}
        self._storage_count = 0
        self._key = f"recorded {id(self):x}"  # under which a node's line lies among its `extra` entries
        self._measured: dict[int, tuple[weakref.ref, int | None, schema.Statistics]] = {}  # of gradients
        self._handles: list = []
        self._registered: dict[int, schema.Registration] = {}
        self.step_code: Any = None  # of the function around every optimizer's step

    def start(self) -> None:
        if state.recorder is not None:
            raise RuntimeError("another recording is going on, and the engine has room for one")
        from ...optim.optimizer import _with_hooks, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self.step_code = _with_hooks(Recorder.stop).__code__  # pyright: ignore[reportAttributeAccessIssue]
        self.active = True
        set_recorder(self)
        Module._hooked = True
        self._handles = [
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
        self.record.put_in_order()
        self.name_tensors(sys._getframe(1), final=True)

    # Tensors

    def tensor(self, tensor: Any) -> schema.Tensor:
        found = self._tensors.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else super().tensor(physical(tensor))

    def known_tensor(self, tensor: Any) -> schema.Tensor | None:
        return super().known_tensor(physical(tensor))

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, Tensor)

    def has_shape(self, parameter: Any) -> bool:
        return not is_lazy(parameter)

    def is_node(self, value: Any) -> bool:
        kind = type(value)  # isinstance would ask the value, which may answer with a warning
        return issubclass(kind, Node) and kind is not Port

    def array(self, tensor: Any) -> np.ndarray:
        return tensor.array

    def statistics(self, tensor: Any) -> schema.Statistics:
        """As in the base class; what was measured of a `.grad` when it was written is used again until it is written again."""
        if self.policy == "shapes":
            return measure(tensor.array, "shapes")
        known = self._measured.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == self.version(tensor):
            return known[2]
        return measure(tensor.array, self.policy)

    def update_of(self, parameter: Any, options: dict[str, Any]) -> schema.Update:
        if self.policy != "shapes" or type(parameter.node) is not AccumulateGrad:
            return super().update_of(parameter, options)
        grad, version = parameter.node.grad, 0 if parameter.version is None else parameter.version.count
        value = None if grad is None else _shape_of(grad.array)
        return schema.Update(self.tensor(parameter), True, value, version, version, options)

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
        return None if extra is None else extra.get(self._key)

    def node(self, node: Any, op: schema.Op | None = None) -> schema.Node:
        """The line of a node. Nodes behind it that are still unknown, made before recording began, are written down, too."""
        line = self.known_node(node)
        if line is not None:
            return line
        line = self._new_node(node, op)
        todo = [(node, line)]
        for current, its_line in todo:  # grows while it is walked: no recursion
            kept, edges = current.differentiable, its_line.edges
            for i, edge in enumerate(current.edges):
                if edge is None:
                    if kept is None or i >= len(kept) or kept[i]:
                        edges.append(None)
                    continue
                parent, number = (edge.parent, edge.number) if type(edge) is Port else (edge, 0)
                parent_line = self.known_node(parent)
                if parent_line is None:
                    parent_line = self._new_node(parent, None)
                    todo.append((parent, parent_line))
                edges.append(schema.Edge(parent_line, number))
        return line

    def _new_node(self, node: Any, op: schema.Op | None) -> schema.Node:
        sequence = node._sequence_nr() if state.renumbered else node.seq
        nodes = self.record.nodes
        line = schema.Node(next(nodes.numbers), type(node).__name__, sequence, op)
        nodes.append(line)
        if type(node) is AccumulateGrad:
            line.leaf = self.tensor(node.variable)
            line.leaf.node = None
        else:
            self._add_saved(line, node)
        if op is not None:
            line.made_by = op.during
        if getattr(node, "extra", None) is None:
            node.extra = {self._key: line}
        else:
            node.extra[self._key] = line
        return line

    def _add_saved(self, line: schema.Node, node: Any) -> None:
        op = getattr(type(node), "op", None)
        if op is None:
            for i, value in enumerate(getattr(node, "to_save", None) or ()):
                self._add_one(line, node, f"tensor {i}", value)
            line.parameters = getattr(node, "parameters", schema.EMPTY)
            return
        names, parameters = _names(op)
        if op.frees:
            for name, value in zip(names, node.saved or ()):
                if value is not None:
                    for one in value if type(value) is tuple else (value,):
                        self._add_one(line, node, name, one)
        if parameters:
            full = self.policy == "full"
            line.parameters = {name: value for name, value in zip(parameters, node.parameters) if full or is_plain(value)}

    def _add_one(self, line: schema.Node, node: Any, name: str, value: Any) -> None:
        array = value if type(value) is np.ndarray else getattr(value, "array", None)
        if array is None:  # packed by the program's hooks
            return
        if value is array:
            tensor, version = None, node.output_version[1] if node.output_version else 0
        else:
            found = self._tensors.get(id(value))
            tensor = found[1] if found is not None and found[0]() is value else None
            version = self.version(value)
        storage = self.storage(array) if tensor is None else tensor.storage
        values = array.copy() if self.policy == "full" else None
        line.saved.append(
            schema.Saved(name, tensor, array.shape, type_name(array.dtype), array.nbytes, storage, version, values)
        )

    # Optimizers, and operations that consist of others

    def before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """As in the base class. A closure is the program's: what it does is recorded, unlike the step around it."""
        super().before_optimizer(optimizer, args, kwargs)
        if callable(kwargs.get("closure")):
            return args, kwargs | {"closure": self._heard(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._heard(args[1]), *args[2:]), kwargs
        return None

    def _heard(self, closure: Any) -> Any:
        """A closure, recorded whenever an optimizer's step calls it."""
        thread = self.thread

        def observed() -> Any:
            before, thread.quiet = thread.quiet, 0
            try:
                return closure()
            finally:
                thread.quiet = before

        return observed

    def inside(self, begin: bool) -> None:
        """Until this is called with False, what runs is how an operation computes: nothing of the program's."""
        thread = self.thread
        if begin:
            thread.inside += 1
            thread.quiet += 1
            thread.running.append(None)
        elif thread.inside:
            thread.inside -= 1
            thread.quiet -= 1
            thread.running.pop()

    def _is_quiet(self) -> bool:
        """Whether an optimizer's step runs, or the inside of an operation. A step that raised has ended, although nothing said so."""
        thread = self.thread
        if thread.inside:
            return True
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code is self.step_code:
                return True
            frame = frame.f_back
        thread.quiet = 0
        thread.__dict__.pop("optimizers", None)
        return False

    # The slot: operations

    def operation(self, function: str, node: Any, results: Any, inputs: Any, parameters: Any = ()) -> None:
        """An operation ran. `node` is None where no gradient is wanted, and a Port where it has several outputs."""
        thread = self.thread
        if thread.quiet and self._is_quiet():
            return
        tensors, lines, arguments = self._tensors, [], []
        for x in inputs:
            if type(x) in PLAIN or isinstance(x, Tensor):
                found = tensors.get(id(x))
                if found is not None and found[0]() is x:
                    lines.append(found[1])
                elif x.array.ndim == 0 and "number" in x.__dict__:
                    arguments.append(x.__dict__["number"])
                else:
                    lines.append(self.tensor(x))
            elif isinstance(x, (list, tuple)):
                lines += [self.tensor(y) for y in x if isinstance(y, Tensor)]
            elif is_plain(x):
                arguments.append(x)
        for p in parameters:
            if is_plain(p):
                arguments.append(p)
        op = self.op(function.strip("_"), lines, arguments, modes.grad)
        line = None
        if node is not None:
            line = self.node(node.parent if type(node) is Port else node, op)
        for i, result in enumerate(results):
            if type(result) is Tensor or isinstance(result, Tensor):
                op.outputs.append(self._result(result, op, i, line))
        if node is None:
            op.cut = self.cut_of(op)

    def _result(self, result: Any, op: schema.Op, number: int, node: schema.Node | None) -> schema.Tensor:
        """The line of an operation's result."""
        found = self._tensors.get(id(result))
        if found is not None and found[0]() is result:
            known = found[1]
            if node is not None and known.op is not None and known.role == "result":  # forward of a Function returned it
                known.op, known.output, known.node, known.requires_grad = op, number, node, True
            return known
        array, requires_grad = result.array, result.node is not None
        base = None
        if result.base is not None:
            base = self.tensor(result.base.root)
            requires_grad = requires_grad or base.requires_grad
        line = schema.Tensor(
            0, array.shape, type_name(array.dtype), requires_grad, not requires_grad or result.node is None, "result", None, op, number,
            node if result.node is not None else None, base, self.storage(array), array.nbytes, self.version(result),
        )  # fmt: skip
        self.add_tensor(result, line)
        return line

    def stands_in(self, stand_in: Any, tensor: Any) -> None:
        """An operation in place runs on a stand-in: for the record it is the tensor itself."""
        if not (self.thread.quiet and self._is_quiet()):
            self._tensors[id(stand_in)] = weakref.ref(stand_in), self.tensor(tensor)

    def tensor_written(self, tensor: Any) -> None:
        """A tensor was written in place: by the operation before this, or directly."""
        if self.thread.quiet and self._is_quiet():
            return
        tensor = physical(tensor)
        line, after = self.tensor(tensor), self.version(tensor) or 0
        op = self.thread.last_op
        if op is None or line not in op.inputs or line in op.outputs:
            op = self.op("write", [line], [], modes.grad)
            op.function, op.via = op.via or op.function, None
            op.outputs = [line]
        else:
            op.outputs, op.function, op.cut = [line], op.function + "_", None
        root = tensor if tensor.base is None else tensor.base.root
        for one in (root, tensor):  # the root first: the view's new node leads to it
            if one.node is not None and type(one.node) is not AccumulateGrad:
                real, number = node_and_number(one.node)
                its_line = self.node(real, op)
                known = self.tensor(one)
                known.node, known.output, known.requires_grad = its_line, number, True
        self.written(line, op, after - 1, after)

    def called(self, function: str, tensor: Any, result: Any = None) -> None:
        """A method that takes a tensor out of the graph (detach, data, numpy, tolist, item), or `.grad` of a result was read."""
        if self.thread.quiet and self._is_quiet():
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
        if self.thread.quiet and self._is_quiet():
            return
        line = None if tensor is None else self.tensor(tensor)
        if line is not None:
            line.requires_grad, line.leaf = enabled, True
            if line.role in ("constant", "leaf"):
                line.role = "leaf" if enabled else "constant"
        self.add(self.record.modes, schema.Mode, mode, enabled, self.site(2)[0], line)

    def gradient_set(self, tensor: Any, value: Any) -> None:
        """The program assigned to `.grad`."""
        site, via = self.site_of(sys._getframe(1))
        how = "cleared" if value is None else "assigned"
        if via == "zero_grad" and self._last_optimizer_call() is not site:
            self.add(self.record.optimizers, schema.Optimizer, -1, "", "zero_grad", site)
        measured = None if value is None else measure(value.array, self.policy)
        self.add(self.record.gradient_writes, schema.GradientWrite, self.tensor(tensor), how, site, None, measured)

    def _last_optimizer_call(self) -> schema.Site | None:
        last = self.record.events[-1] if self.record.events else None
        return last.site if isinstance(last, (schema.GradientWrite, schema.Optimizer)) else None

    # The slot: passes

    def refused(self, error: BaseException, tensor: Any) -> None:
        """`backward` or `grad` can't start from this tensor."""
        call = "backward" if modes.distributed is not None else sys._getframe(2).f_code.co_name
        if self.begin_pass(call, [self.tensor(tensor)], [], False, False) is None:
            self.thread.running.pop()
            return
        self._end(error)

    def sweep(self, begin: bool) -> None:
        if self.thread.inside:
            return
        if not begin:
            self._end(sys.exc_info()[1])
            return
        sweep = current_sweep()
        assert sweep is not None
        call = "backward" if modes.distributed is not None else sys._getframe(2).f_code.co_name
        roots = [node for node, g in sweep.buffers.items() if g is not None]
        create_graph = modes.grad
        running = self.begin_pass(call, [], [], create_graph, bool(sweep.keep))
        if running is None:
            return
        line, targets = running.to, sweep.targets
        if modes.distributed is not None:
            line.distributed = modes.distributed.shown
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
        storages: set[int | None] = set()
        lines = [self.node(node) for node in nodes]
        for node, its_line in zip(nodes, lines):
            if its_line.saved and getattr(node, "saved", True) is not None:
                for saved in its_line.saved:
                    if saved.storage not in storages:
                        storages.add(saved.storage)
                        line.bytes += saved.bytes
        if self.policy != "shapes":
            self.look_at_losses(
                line,
                lambda: [(its_line, _saved_arrays(node, getattr(node, "saved", None))) for node, its_line in zip(nodes, lines)],
            )
            incoming = running.incoming
            for edge in [*line.root_edges, *(edge for its_line in lines for edge in its_line.edges if edge is not None)]:
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
        stack = self.thread.running
        running = stack[-1] if stack else None
        if running is None:
            return
        line = self.node(node)
        grads = g if type(g) is list else (g,)
        if self.policy == "shapes":
            arrived = [None if x is None else _shape_of(x) for x in grads]
        else:
            arrived = self._measure_arrived(running, node, line, grads)
        step = self.begin_step(line, arrived)
        if running.pending_hooks:
            for hook in running.pending_hooks:
                hook.step, hook.node = step, hook.node or line
            running.pending_hooks.clear()
        if type(node) is AccumulateGrad:
            running.write = step, node, "created" if node.grad is None else "added to"

    def _measure_arrived(self, running: Running, node: Any, line: schema.Node, grads: Any) -> list:
        """What arrived at a node. What was measured when it was passed on is not measured again, unless hooks may have changed it."""
        arrived = []
        for i, x in enumerate(grads):
            known = running.received.pop((line.number, i), None) if node.hooks is None else None
            arrived.append(None if x is None else known if known is not None else measure(_array(x), self.policy))
        if type(node) is not AccumulateGrad:
            running.saved = getattr(node, "saved", None)
        elif node.grad is not None:
            running.before_write = self.statistics(node.grad)
        return arrived

    def after(self, node: Any, g: Any, grads: Any) -> None:
        now = perf_counter()
        stack = self.thread.running
        running = stack[-1] if stack else None
        if running is None or running.step is None:
            return
        step = running.step
        step.seconds = now - running.started
        if type(node) is AccumulateGrad:
            self._write_gradient(running)
            running.step = None
            return
        line, kept = step.node, node.differentiable
        if kept is not None:
            grads = [x for i, x in enumerate(grads) if i >= len(kept) or kept[i]]
        if self.policy == "shapes":
            step.passed = [None if edge is None or x is None else _shape_of(x) for edge, x in zip(line.edges, grads)]
        else:
            self._measure_passed(running, step, node, g, [None if edge is None else x for edge, x in zip(line.edges, grads)])
        if line.saved and getattr(node, "saved", True) is None:
            step.freed = sum([saved.bytes for saved in line.saved])
            line.freed_by = step
        running.step = None

    def _measure_passed(self, running: Running, step: schema.Step, node: Any, g: Any, passed: list) -> None:
        """What a node passed on, and what there is to find out while its saved tensors can still be read."""
        arrived = step.arrived[0] if self.policy == "norms" and step.name in _REARRANGING else None
        arrays = [None if x is None else _array(x) for x in passed]
        for edge, array in zip(step.node.edges, arrays):
            if edge is None or array is None:
                step.passed.append(None)
                continue
            if arrived is not None and not arrived.nonfinite:  # the same elements in another shape
                value = schema.Statistics(array.shape, arrived.dtype, arrived.norm, arrived.min, arrived.max, arrived.zeros, 0)
            else:
                value = measure(array, self.policy)
            step.passed.append(value)
            if running.incoming.get(edge.node.number) == 1:
                running.received[edge.node.number, edge.output] = value
        if self.is_remarkable(step):
            saved = running.saved
            incoming = [None if x is None else _array(x) for x in (g if type(g) is list else [g])]
            self.look_closer(step, lambda: _saved_arrays(node, saved), incoming, arrays)
        running.saved = None

    def _write_gradient(self, running: Running) -> None:
        """The write into `.grad`, once per step, in its place among the hooks."""
        if running.write is None:
            return
        step, node, how = running.write
        before, running.write, running.before_write = running.before_write, None, None
        value = None
        if self.policy != "shapes" and node.grad is not None:
            value = step.arrived[0] if how == "created" else measure(node.grad.array, self.policy)
            self._measured[id(node.grad)] = weakref.ref(node.grad), self.version(node.grad), value
        self.add(self.record.gradient_writes, schema.GradientWrite, step.node.leaf, how, None, step, value, before)

    # The slot: hooks

    def registered(self, kind: str, function: Any, owner: Any, handle: int) -> None:
        """A hook was registered on a tensor or a node."""
        if self.thread.quiet and self._is_quiet():
            return
        node = tensor = None
        if isinstance(owner, Tensor):
            tensor = self.tensor(owner)
        elif owner is not None:
            node = self.node(owner)
            tensor = node.leaf
        order = sum(r.type == kind and r.tensor is tensor and r.node is node for r in self.record.registrations)
        self._registered[handle] = self.add(
            self.record.registrations, schema.Registration, kind, name_of_hook(function), self.site(2)[0], order, node, tensor
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
            self.record.hooks, schema.Hook, kind, name_of_hook(function), registration.site if registration else None,
            registration.order if registration else 0, running.step, line, tensor, seen, went_on, result is not None,
        )  # fmt: skip
        if running.step is None:
            running.pending_hooks.append(hook)


@cache
def _names(op: Any) -> tuple[list[str], list[str]]:
    """PyTorch's names of what an operation's node saves: of the tensors, and of its parameters, the shapes first."""
    shapes = [f"{name}_sym_sizes" for name, (_users, shape_users) in zip(op.inputs, op.saves) if shape_users]
    parameters = ["self" + name[5:] if name.startswith("input") else name for name in (*shapes, *op.parameters)]
    return ["self" if name == "input" else name for name in (*op.inputs, "result")], parameters


def _shape_of(x: Any) -> schema.Statistics:
    array = x if type(x) is np.ndarray else _array(x)
    return shape_only(array.shape, array.dtype)


def physical(tensor: Any) -> Any:
    """Under vmap: the tensor with all samples, which is what operations compute with and nodes belong to."""
    while type(tensor) not in PLAIN and hasattr(tensor, "write"):  # a Batched
        tensor = tensor.value
    return tensor


def _array(x: Any) -> np.ndarray:
    array = x if type(x) is np.ndarray else getattr(physical(x), "array", x)
    return array if type(array) is np.ndarray else np.asarray(array)


def _saved_arrays(node: Any, saved: Any) -> dict[str, Any]:
    """What a node saved, under PyTorch's names."""
    op = getattr(type(node), "op", None)
    if op is None or saved is None:
        return {}
    names, parameters = _names(op)
    result = {name: _array(x) for name, x in zip(names, saved) if x is not None and type(x) not in (Packed, tuple)}
    return {**result, **dict(zip(parameters, node.parameters if parameters else ()))}


def _output(node: schema.Node, number: int) -> schema.Tensor | None:
    """The tensor that a node's output is."""
    if node.leaf is not None:
        return node.leaf
    if node.op is None:
        return None
    return next((t for t in node.op.outputs if t.node is node and t.output == number), None)
