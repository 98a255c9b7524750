"""`Recorder`: what the adapters for Backlight and for PyTorch share. They observe; it numbers, names and writes down.

A recorder knows tensors by weak references and nodes by what it left on them (a line of the record, which refers to no
tensor), so that nothing lives longer because it was recorded.
"""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
import weakref
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

from . import schema
from .arithmetic import broken_forward, dead_units, explain_nonfinite
from .record import POLICIES, Record, Table
from .statistics import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType

    import numpy as np

_RECTIFIERS = ("Relu", "Threshold", "Hardtanh")
OWN_CODE = (os.path.dirname(os.path.dirname(__file__)) + os.sep, "<backlight op ", "<frozen ", "<string>")


latest: Recorder | None = None  # the last recorder, for `explain`


class Running:
    """A pass while it runs, in one thread."""

    def __init__(self, to: schema.Pass, incoming: dict[int, int]):
        self.to = to
        self.incoming = incoming  # number of a node -> how many gradients it will receive
        self.received: dict[
            tuple[int, int], schema.Statistics | None
        ] = {}  # (node, output) -> what was measured when it was passed
        self.step: schema.Step | None = None
        self.handled = sys.exc_info()[1]  # an exception that was there before
        self.started = 0.0
        self.saved: Any = None  # what the node that runs has saved
        self.write: Any = None  # the write into `.grad` that is about to happen: (step, node, how)
        self.before_write: schema.Statistics | None = None
        self.pending_hooks: list[schema.Hook] = []  # tensor hooks run before their step begins
        # What only the adapter for PyTorch uses:
        self.pending_ops: list[schema.Op] = []  # the operations of those hooks
        self.nodes: dict[int, Any] = {}  # by their numbers
        self.handles: list[Any] = []  # of hooks that end with the pass
        self.known: dict[
            tuple[int, int], tuple[schema.Statistics, Any]
        ] = {}  # what was passed to (node, output), and where it lies
        self.arguments = 0  # id of the tuple that the next prehook gets


class Thread(threading.local):
    """What happens in one thread."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self.number = next(numbers)
        self.modules: list[schema.Module] = []
        self.running: list[Running | None] = []
        self.quiet = 0  # inside an optimizer's call, whose operations aren't recorded one by one
        self.inside = 0  # inside an operation of the engine that consists of others
        self.last_op: schema.Op | None = None


class Recorder:
    """Writes a record. Adapters call its methods; `self.record` can be read at any time."""

    engine = ""
    module_call: CodeType | None = None  # of the library's function that calls a module's forward
    own_code = OWN_CODE
    wrappers: frozenset[str] = frozenset()  # names of the library's functions that stand around others, such as decorators

    def __init__(
        self, policy: str = "shapes", passes: int | None = None, on_pass: Callable[[schema.Pass], object] | None = None
    ):
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(map(repr, POLICIES))}, got {policy!r}")
        if passes is not None and passes < 1:
            raise ValueError(f"passes must be at least 1, got {passes}")
        global latest
        latest = self
        self.record = Record(self.engine, policy=policy, program=_program())
        self.policy = policy
        self.wanted = passes
        self.begun = 0
        self.on_pass = on_pass
        self.active = False
        self.thread = Thread(itertools.count())
        self.began = perf_counter()
        # By the ids of code objects, which `_codes` keeps alive: computing the hash of one takes longer than the rest of `site`.
        self._user_code: dict[int, bool] = {}
        self._sites: dict[tuple[int, int], schema.Site] = {}
        self._codes: list[CodeType] = []
        self._tensors: dict[int, tuple[weakref.ref, schema.Tensor]] = {}
        self._leaves: list[schema.Tensor] = []  # of the last pass
        self._gradients: dict[int, tuple[weakref.ref, schema.Tensor]] | None = {}  # by id: their `.grad`, and whose it is
        self._last_gradients: tuple[list, list[schema.ParameterGradient]] = [], []
        self._ids: dict[int, int] = {}  # of the tensors of record.tensors: numbers, which the cycle collector needn't look at
        self._module_calls: dict[int, int] = {}
        self._module_names: dict[int, tuple[weakref.ref, str]] = {}
        self._roots: dict[int, weakref.ref] = {}
        self._most_roots = 0  # outermost modules with parameters at a time
        self._root_names: dict[int, str] = {}  # the variables that outermost modules were found in
        self._optimizers: dict[int, tuple[weakref.ref, int]] = {}
        self._unnamed = False  # whether there may be leaves without a name
        self._members: list[list[tuple[weakref.ref, schema.Tensor]]] | None = None  # the parameters of each outermost module

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    # To be provided by the adapters

    def start(self) -> None:
        """Begins to observe."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stops observing; what was observed stays."""
        raise NotImplementedError

    def describe(self, tensor: Any) -> schema.Tensor:
        """A new line for a tensor (its number is set later): shape, dtype, flags, storage, bytes, version."""
        raise NotImplementedError

    def array(self, tensor: Any) -> np.ndarray:
        """A tensor's elements."""
        raise NotImplementedError

    def statistics(self, tensor: Any) -> schema.Statistics:
        """What the policy wants to know about a tensor's elements."""
        return measure(self.array(tensor), self.policy)

    def gradient(self, tensor: Any) -> Any:
        """A tensor's `.grad`, without a warning for tensors that have none."""
        raise NotImplementedError

    def version(self, tensor: Any) -> int | None:
        """How often a tensor was written in place."""
        raise NotImplementedError

    def module_class(self) -> type | None:
        """The class of modules, None while the program hasn't imported it."""
        raise NotImplementedError

    def is_tensor(self, value: Any) -> bool:
        raise NotImplementedError

    def has_shape(self, _parameter: Any) -> bool:
        """Whether a parameter isn't one that a lazy module has yet to make."""
        return True

    def is_node(self, value: Any) -> bool:
        raise NotImplementedError

    def known_node(self, node: Any) -> schema.Node | None:
        """The line of a node, if this recording has one."""
        raise NotImplementedError

    # Events

    def add(self, table: Table, kind: Any, *values: Any) -> Any:
        """A new event of this kind, now."""
        events = self.record.events
        line = kind(next(table.numbers), next(events.numbers), perf_counter() - self.began, self.thread.number, *values)
        table.append(line)
        events.append(line)
        return line

    def site(self, depth: int = 1) -> tuple[schema.Site | None, str | None]:
        """The innermost place outside the library, and the name of the library's function that it called."""
        return self.site_of(sys._getframe(depth))

    def site_of(self, frame: FrameType | None) -> tuple[schema.Site | None, str | None]:
        """The same, for a frame."""
        user_code, modules, via, begins = self._user_code, self.thread.modules, None, False
        module_call = self.module_call
        while frame is not None:
            code = frame.f_code
            try:
                user = user_code[id(code)]
            except KeyError:
                user = self._is_user_code(code)
            if user:
                key = id(code), frame.f_lasti
                found = self._sites.get(key)
                if found is None:
                    found = self._sites[key] = self._new_site(frame)
                return found, None if via is None else via.co_name
            if code is module_call:  # no code of the program since the innermost module's call: the site is the same
                if modules and not begins:
                    return modules[-1].site, None
                begins = False
            elif code is _MODULE_BEGINS:
                begins = True
            elif code.co_name not in self.wrappers:
                via = code
            frame = frame.f_back
        return None, None

    def _is_user_code(self, code: CodeType) -> bool:
        """Whether code is the program's, when it is first seen."""
        self._codes.append(code)
        result = self._user_code[id(code)] = not code.co_filename.startswith(self.own_code) and code not in _THREAD_BEGINS
        return result

    def _new_site(self, frame: FrameType) -> schema.Site:
        code, index = frame.f_code, frame.f_lasti // 2
        position = next(itertools.islice(code.co_positions(), index, None), (None,) * 4)
        line, end_line, column, end_column = position
        sites = self.record.sites
        number = next(sites.numbers)
        site = schema.Site(number, code.co_filename, line or frame.f_lineno, code.co_name, column, end_line, end_column)
        sites.append(site)
        return site

    def definition(self, function: Any) -> schema.Site | None:
        """Where a function was defined."""
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        return None if code is None else self.definition_of(code)

    def definition_of(self, code: CodeType) -> schema.Site:
        """Where the function with this code was defined."""
        key = id(code), -1
        if key not in self._sites:
            sites = self.record.sites
            site = schema.Site(next(sites.numbers), code.co_filename, code.co_firstlineno, code.co_name)
            sites.append(site)
            self._sites[key] = site
            self._codes.append(code)
        return self._sites[key]

    # Tensors

    def tensor(self, tensor: Any) -> schema.Tensor:
        """The line of a tensor, written down when it is first seen."""
        found = self._tensors.get(id(tensor))
        if found is not None and found[0]() is tensor:
            return found[1]
        line = self.describe(tensor)
        self.add_tensor(tensor, line)
        if line.leaf and line.requires_grad:
            self._unnamed, self._members = True, None
        return line

    def add_tensor(self, tensor: Any, line: schema.Tensor) -> None:
        """Numbers a tensor's line and remembers which tensor it is of."""
        tensors = self.record.tensors
        line.number = next(tensors.numbers)
        tensors.append(line)
        self._ids[line.number] = identity = id(tensor)
        self._tensors[identity] = weakref.ref(tensor), line

    def known_tensor(self, tensor: Any) -> schema.Tensor | None:
        """The line of a tensor that was seen before."""
        found = self._tensors.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    def live(self, line: schema.Tensor) -> Any:
        """The tensor of a line, None if it is gone."""
        found = self._tensors.get(self._ids[line.number])
        return found[0]() if found is not None and found[1] is line else None

    def alive(self) -> Iterator[tuple[Any, schema.Tensor]]:
        """The recorded tensors that still exist, with their lines."""
        for reference, line in list(self._tensors.values()):
            tensor = reference()
            if tensor is not None:
                yield tensor, line

    # Operations

    def op(self, function: str, inputs: list[schema.Tensor], arguments: list, grad_enabled: bool, depth: int = 2) -> schema.Op:
        """An operation that ran; the adapter adds its outputs, after which `cut_of` can be asked."""
        thread = self.thread
        site, via = self.site_of(sys._getframe(depth))
        running = thread.running[-1] if thread.running else None
        module = thread.modules[-1] if thread.modules else None
        if via is not None and (via == function or via.startswith("_") or via == "forward"):
            via = None
        op = self.add(
            self.record.ops, schema.Op, function, site, module, inputs, [], arguments, via, grad_enabled, None,
            None if running is None else running.step,
        )  # fmt: skip
        thread.last_op = op
        return op

    @staticmethod
    def cut_of(op: schema.Op) -> str | None:
        """How an operation ended the path of gradients, None if it did not."""
        if any(x.requires_grad for x in op.outputs) or not any(x.requires_grad for x in op.inputs):
            return None
        if not op.outputs or op.function in ("detach", "data", "numpy"):
            return op.function
        if not op.grad_enabled:
            return "no_grad"
        if not op.outputs[0].dtype.startswith(("float", "bfloat", "complex")):
            return "integer"
        return "not differentiable"

    def written(self, tensor: schema.Tensor, op: schema.Op, before: int, after: int) -> schema.Write:
        """An in-place write by an operation."""
        write = self.add(self.record.writes, schema.Write, tensor, op, op.site, before, after)
        live = self.live(tensor)
        owner = None if live is None else self._owner_of_gradient(live)
        if owner is not None:  # a leaf's `.grad` was written: clipped, zeroed
            tensor.role, tensor.name = "gradient", f"{owner.label}.grad"
            how = "zeroed" if op.function == "zero_" else "written"
            self.add(
                self.record.gradient_writes, schema.GradientWrite, owner, how, op.site, None, self.statistics(live), None, op
            )
        return write

    def _owner_of_gradient(self, tensor: Any) -> schema.Tensor | None:
        """The leaf whose `.grad` a tensor is. The leaves of the last pass are looked through when the first write after it comes."""
        if self._gradients is None:
            self._gradients = {}
            for known in self._leaves:
                grad = None if (live := self.live(known)) is None else self.gradient(live)
                if grad is not None:
                    self._gradients[id(grad)] = weakref.ref(grad), known
        found = self._gradients.get(id(tensor))
        return found[1] if found is not None and found[0]() is tensor else None

    # Modules

    def enter_module(self, module: Any, frame: FrameType | None = None) -> None:
        """The forward of a module begins. `frame`: of the code that calls it, where that is known."""
        stack = self.thread.modules
        parent = stack[-1] if stack else None
        if parent is None and id(module) not in self._roots:
            self._roots[id(module)] = weakref.ref(module)
            self._unnamed, self._members = True, None
        name = self._module_name(module, parent)
        call = self._module_calls.get(id(module), 0)
        self._module_calls[id(module)] = call + 1
        site = self.site_of(frame or sys._getframe())[0]
        stack.append(
            self.add(self.record.modules, schema.Module, name, type(module).__name__, parent, call, site, bool(module.training))
        )

    def begin_module(self, module: Any) -> None:
        """As if the module had been called just now: for a recording that begins inside of its call."""
        self.enter_module(module)

    def leave_module(self) -> None:
        """The forward of the innermost module ended."""
        stack = self.thread.modules
        if stack:
            module = stack.pop()
            module.seconds = perf_counter() - self.began - module.time

    def _module_name(self, module: Any, parent: schema.Module | None) -> str:
        found = self._module_names.get(id(module))
        if found is not None and found[0]() is module:
            return found[1]
        roots = (
            [module] if parent is None else [root for reference in self._roots.values() if (root := reference()) is not None]
        )
        for root in roots:
            for name, child in root.named_modules():
                known = self._module_names.get(id(child))
                if known is None or known[0]() is not child:
                    self._module_names[id(child)] = weakref.ref(child), name
        found = self._module_names.get(id(module))
        return found[1] if found is not None and found[0]() is module else type(module).__name__

    # Optimizers

    def optimizer_number(self, optimizer: Any) -> int:
        """Which of the program's optimizers this is."""
        found = self._optimizers.get(id(optimizer))
        if found is None or found[0]() is not optimizer:
            found = self._optimizers[id(optimizer)] = weakref.ref(optimizer), len(self._optimizers)
        return found[1]

    def before_optimizer(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """A step begins: what the optimizer holds, and the versions."""
        site = self.site(2)[0]
        line = self.add(
            self.record.optimizers, schema.Optimizer, self.optimizer_number(optimizer), type(optimizer).__name__, "step", site
        )
        for group in optimizer.param_groups:
            options = {k: v for k, v in group.items() if k != "params" and isinstance(v, (int, float, bool, tuple))}
            line.updates += [self.update_of(parameter, options) for parameter in group["params"]]
        self.thread.quiet += 1
        self.thread.__dict__.setdefault("optimizers", []).append(line)

    def update_of(self, parameter: Any, options: dict[str, Any]) -> schema.Update:
        """What an optimizer is about to do with a parameter."""
        grad, version = self.gradient(parameter), self.version(parameter)
        value = None if grad is None else self.statistics(grad)
        return schema.Update(self.tensor(parameter), bool(parameter.requires_grad), value, version, version, options)

    def after_optimizer(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        """A step ended: which parameters it wrote, and which gradients it read, if it called a closure that computed them."""
        lines = self.thread.__dict__.get("optimizers")
        if not lines:
            return
        line = lines.pop()
        self.thread.quiet -= 1
        line.seconds = perf_counter() - self.began - line.time
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        passes = self.record.passes
        computed = bool(passes) and passes[-1].at > line.at
        for update, parameter in zip(line.updates, parameters):
            if computed and (grad := self.gradient(parameter)) is not None:
                update.gradient = self.statistics(grad)
            update.after = self.version(parameter)
            if update.gradient is not None and update.gradient.nonfinite and update.after != update.before:
                update.value = self.statistics(parameter)

    # Passes

    def begin_pass(
        self, call: str, roots: list, inputs: list, create_graph: bool, retain_graph: bool, depth: int = 2
    ) -> Running | None:
        """A backward pass begins; None if as many as wanted were recorded already."""
        thread = self.thread
        if self.wanted is not None and self.begun >= self.wanted:
            if not any(thread.running):  # enough: what came after the last pass (an optimizer's step) is still in the record
                self.stop()
            thread.running.append(None)
            return None
        self.begun += 1
        parent = thread.running[-1].step if thread.running and thread.running[-1] else None
        module = thread.modules[-1] if thread.modules else None
        line = self.add(
            self.record.passes,
            schema.Pass,
            call,
            self.site(depth + 1)[0],
            roots,
            [],
            inputs,
            create_graph,
            retain_graph,
            parent,
            module,
        )
        running = Running(line, {})
        thread.running.append(running)
        return running

    def begin_step(self, node: schema.Node, arrived: list) -> schema.Step:
        """A node of the innermost pass is about to run. `arrived`: Statistics or None, one per output."""
        thread, record = self.thread, self.record
        running = thread.running[-1]
        assert running is not None
        line, events, now = running.to, record.events, perf_counter()
        step = schema.Step(  # as `add` does, with less to pass on: a step is the most frequent event
            next(record.steps.numbers), next(events.numbers), now - self.began, thread.number, line, len(line.steps) + 1, node,
            arrived, [], None, None, schema.EMPTY,
        )  # fmt: skip
        record.steps.append(step)
        events.append(step)
        line.steps.append(step)
        running.step, running.started = step, perf_counter()
        return step

    def end_pass(self, error: BaseException | None = None, depth: int = 2) -> None:
        """The innermost pass ended."""
        running = self.thread.running.pop() if self.thread.running else None
        if running is None:
            return
        line = running.to
        line.seconds = perf_counter() - self.began - line.time
        if error is not None and error is not running.handled:
            line.error = f"{type(error).__name__}: {error}"
            site = running.step.site if running.step is not None else line.site
            self.add(self.record.errors, schema.Error, type(error).__name__, str(error), site, line, running.step)
        self.name_tensors(sys._getframe(depth))
        if line.call == "backward":
            line.gradients = self._parameter_gradients(line)
        if self.on_pass is not None:
            self.on_pass(line)

    def _parameter_gradients(self, line: schema.Pass) -> list[schema.ParameterGradient]:
        """What lies in `.grad` of the leaves that a pass reached and of the other parameters of their modules."""
        reached = {id(step.node.leaf) for step in line.steps if step.node.leaf is not None}
        if self._members is None:
            members = [
                [(weakref.ref(p), self.tensor(p)) for p in root.parameters() if self.has_shape(p)]
                for root in self._root_modules()
            ]
            self._members = members  # only now: a parameter seen for the first time resets it
        tensors: dict[int, tuple[Any, schema.Tensor]] = {}
        for parameters in self._members:
            if not reached or any(id(known) in reached for _, known in parameters):
                tensors.update((id(known), (p, known)) for reference, known in parameters if (p := reference()) is not None)
        for tensor, known in self.alive() if any(key not in tensors for key in reached) else ():
            if id(known) in reached:
                tensors.setdefault(id(known), (tensor, known))
        self._leaves, self._gradients = [known for _, known in tensors.values()], None
        grads = [self.gradient(tensor) for tensor, _ in tensors.values()]
        state = [(known.number, tensor.requires_grad, g is None) for (tensor, known), g in zip(tensors.values(), grads)]
        if self.policy == "shapes" and state == self._last_gradients[0]:
            return self._last_gradients[1]  # the same as after the pass before, so the same objects
        result = []
        for (tensor, known), grad in zip(tensors.values(), grads):
            value = None if grad is None else self.statistics(grad)
            result.append(schema.ParameterGradient(known.name or "(unnamed)", known, bool(tensor.requires_grad), value))
        self._last_gradients = state, result
        return result

    @staticmethod
    def is_remarkable(step: schema.Step) -> bool:
        """Whether there can be anything to find for `look_closer`."""
        return step.name.startswith(_RECTIFIERS) or any(x is not None and x.nonfinite for x in step.passed)

    def look_closer(self, step: schema.Step, saved: Callable[[], dict[str, Any]], arrived: list, passed: list) -> None:
        """Called after steps of policy "norms" or "full" that are remarkable, or after all, with their arrays, while what the node
        saved can be read."""
        name = step.node.name
        if name.startswith(_RECTIFIERS) and (found := dead_units(name, saved())) is not None:
            step.details = {"dead": found}
        if any(x is not None and x.nonfinite for x in step.passed) and not any(
            x is not None and x.nonfinite for x in step.arrived
        ):
            found = explain_nonfinite(name, saved(), arrived, passed)
            if found is not None:
                step.details = {**step.details, "nonfinite": found}

    def look_at_losses(self, line: schema.Pass, saved: Callable[[], list[tuple[schema.Node, dict[str, Any]]]]) -> None:
        """Called when a pass of policy "norms" or "full" begins: finds what made a loss that is not finite."""
        if any(loss is not None and loss.nonfinite for loss in line.losses) and (found := broken_forward(saved())) is not None:
            line.broken_by, line.broken = found

    # Names

    def _root_modules(self) -> list[Any]:
        return [module for reference in self._roots.values() if (module := reference()) is not None]

    def watch_module(self, module: Any) -> None:
        """Names this module's parameters although it wasn't called yet."""
        self._roots.setdefault(id(module), weakref.ref(module))
        self._unnamed, self._members = True, None

    def name_tensors(self, frame: FrameType | None, final: bool = False) -> None:
        """Gives names to leaves that have none: a parameter has that of its outermost module, another leaf the variable's."""
        if not (self._unnamed or final):
            return
        self._unnamed = False
        if self.module_class() is not None:
            modules = self._root_modules()
            unknown = [t for t, line in self.alive() if line.role == "parameter" and line.name is None]
            owned = {id(p) for m in modules for p in m.parameters()}
            if any(id(t) not in owned for t in unknown):  # a module that nobody called: only then is memory searched
                ids = {id(t) for t in unknown}
                for module in self._search_modules():
                    if any(id(p) in ids for p in module.parameters()):
                        self._roots.setdefault(id(module), weakref.ref(module))
            children = {id(c) for m in self._root_modules() for c in m.modules() if c is not m}
            modules = [m for m in self._root_modules() if id(m) not in children and next(m.parameters(), None) is not None]
        else:
            modules = []
        variables = _variables(frame, self) if frame is not None else {}
        self._most_roots = max(self._most_roots, len(modules))
        for module in modules:
            if id(module) in variables:
                self._root_names.setdefault(id(module), variables[id(module)])
            prefix = f"{self._root_names.get(id(module), type(module).__name__)}." if self._most_roots > 1 else ""
            for role, named in (("parameter", module.named_parameters()), ("buffer", module.named_buffers())):
                for name, tensor in named:
                    line = self.known_tensor(tensor)
                    if line is None and role == "parameter" and self.has_shape(tensor):
                        line = self.tensor(tensor)
                    if line is not None:
                        line.name, line.role = prefix + name, role
        self._unnamed = False
        for tensor, line in self.alive():
            if line.name is None and line.op is None and id(tensor) in variables:
                line.name = variables[id(tensor)]

    def _search_modules(self) -> list[Any]:
        """The modules alive that are no part of another. The cycle collector knows every object with attributes, so a module
        is found wherever the program keeps it."""
        kind = self.module_class()
        if kind is None:
            return []
        modules = [x for x in gc.get_objects() if issubclass(type(x), kind) and "training" in vars(x)]
        children = {id(child) for module in modules for child in module.children()}
        return [module for module in modules if id(module) not in children]


_MODULE_BEGINS = Recorder.enter_module.__code__
_THREAD_BEGINS = {getattr(threading.Thread, name).__code__ for name in ("run", "_bootstrap", "_bootstrap_inner")}


PLAIN_TYPES = frozenset({int, float, bool, str, type(None)})


def is_plain(value: Any) -> bool:
    """Whether a value consists of numbers, texts and None, and isn't long."""
    if isinstance(value, (tuple, list)):
        return len(value) <= 16 and (PLAIN_TYPES.issuperset(map(type, value)) or all(map(is_plain, value)))
    return type(value) in PLAIN_TYPES or isinstance(value, (int, float, str))


def name_of_hook(function: Any) -> str:
    """What a hook is called."""
    return getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__name__


def _program() -> str:
    return os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""


def _variables(frame: FrameType, recorder: Recorder) -> dict[int, str]:
    """The names of tensors and modules in the program's frames, innermost first, by id: "w", "weights[1]", "self.w"."""
    names: dict[int, str] = {}
    seen = set()
    current: FrameType | None = frame
    while current is not None:
        if not current.f_code.co_filename.startswith(recorder.own_code):
            if current.f_code.co_flags & 1:  # CO_OPTIMIZED: a function
                _add_names(names, locals_of(current), recorder)
            if id(current.f_globals) not in seen:
                seen.add(id(current.f_globals))
                _add_names(names, list(current.f_globals.items()), recorder)
        current = current.f_back
    return names


def locals_of(frame: FrameType) -> list[tuple[str, Any]]:
    """The local variables of a function. Before Python 3.13 reading them leaves a dictionary at the frame that would
    keep old values alive, so it is emptied again, and functions that may use that dictionary are left alone."""
    if not {"locals", "vars", "dir", "eval", "exec"}.isdisjoint(frame.f_code.co_names):
        return []
    local = frame.f_locals
    items = list(local.items())
    if sys.version_info < (3, 13):
        local.clear()
    return items


def _add_names(names: dict[int, str], variables: Iterable[tuple[str, Any]], recorder: Recorder) -> None:
    for name, value in variables:
        names.setdefault(id(value), name)
        if name == "self":
            items = ((f"self.{key}", x) for key, x in getattr(value, "__dict__", {}).items())
        elif type(value) in (list, tuple) and len(value) <= 1000:
            items = ((f"{name}[{i}]", x) for i, x in enumerate(value))
        elif type(value) is dict and len(value) <= 1000 and not name.startswith("__"):
            items = ((f"{name}[{key!r}]", x) for key, x in value.items() if type(key) in (str, int))
        else:
            continue
        for key, x in items:
            if recorder.is_tensor(x):
                names.setdefault(id(x), key)
