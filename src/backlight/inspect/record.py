"""The record of backward passes, and the recorder that fills it from the engine's slot.

A record is plain data: numbers, shapes, names, lines of the program. It holds no tensor and no node, so recording
keeps no graph alive; the line of a forward operation is noted on its node and goes away with it.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from .. import engine
from ..engine import AccumulateGrad, Port
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType
    from typing import Any

# Where Backlight's own code lives: its files, and the functions it writes for operations.
_OWN_CODE = (os.path.dirname(engine.__file__) + os.sep, "<backlight op ")


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Gradient:
    """A gradient that passed along an edge; `step` is the number of the step it was passed to, if that ran."""

    shape: tuple[int, ...]
    norm: float
    finite: bool
    step: int | None = None


@dataclass(slots=True)
class Step:
    """One node that ran: the gradients of its outputs arrived, it passed on those of its inputs (None: no gradient).

    `site` is the line whose operation made the node. At an AccumulateGrad `variable` names the leaf, if it has a name.
    `seconds` is None if the step raised.
    """

    number: int
    node: str
    site: Site | None = None
    variable: str | None = None
    arrived: list[Gradient | None] = field(default_factory=list)
    passed: list[Gradient | None] = field(default_factory=list)
    seconds: float | None = None


@dataclass(slots=True)
class ParameterGradient:
    """What lies in a parameter's `.grad` after a pass: `norm` and the rest are None where `.grad` is None.

    `min` and `max` are those of the finite elements (of their magnitudes, for complex numbers).
    """

    name: str
    shape: tuple[int, ...]
    requires_grad: bool
    size: int
    norm: float | None = None
    min: float | None = None
    max: float | None = None
    zeros: int | None = None
    nonfinite: int | None = None


@dataclass(slots=True)
class Pass:
    """One run of the backward engine: `call` ("backward" or "grad") at `site`, its steps in the order they ran.

    `error` is the text of the exception that ended it early, if one did.
    """

    call: str
    site: Site | None
    steps: list[Step] = field(default_factory=list)
    gradients: list[ParameterGradient] = field(default_factory=list)
    error: str | None = None


@dataclass(slots=True)
class Record:
    """The backward passes that were recorded, in the order in which they began."""

    passes: list[Pass] = field(default_factory=list)

    def to_text(self, width: int = 80) -> str:
        """Tables and trees as plain text that is at most `width` columns wide."""
        from .render import terminal

        return terminal.to_text(self, width)


@contextmanager
def record(passes: int = 1, on_pass: Callable[[Pass], object] | None = None) -> Iterator[Record]:
    """Records the first backward passes that run inside the block; afterwards everything runs at full speed.

    on_pass: called with each pass when it has ended. RuntimeError inside another recording.

    >>> import backlight as torch
    >>> w = torch.tensor(3., requires_grad=True)
    >>> with torch.inspect.record() as record:
    ...     w.exp().backward()
    >>> record.passes[0].steps[1].variable
    'w'
    """
    if passes < 1:
        raise ValueError(f"passes must be at least 1, got {passes}")
    if engine.state.recorder is not None:
        raise RuntimeError("another recording is going on, and the engine has room for one")
    recorder = _Recorder(passes, on_pass)
    engine.set_recorder(recorder)
    try:
        yield recorder.record
    finally:
        recorder.unplug()


class _Running:
    """A pass while it runs; what refers to nodes lives here and is dropped at its end."""

    def __init__(self, to: Pass):
        self.to = to
        self.handled = sys.exc_info()[1]  # an exception that was there before
        self.steps: dict[int, Step] = {}  # by id(node): the sweep keeps its nodes alive
        self.targets: list[tuple[Gradient, int]] = []
        self.leaves: list[tuple[Step, AccumulateGrad]] = []
        self.started = 0.0


class _Recorder:
    """What sits in the engine's slot (the protocol is at `engine.set_recorder`)."""

    def __init__(self, passes: int, on_pass: Callable[[Pass], object] | None):
        self.record = Record()
        self.wanted = passes
        self.finished = 0
        self.on_pass = on_pass
        self.sites: dict[tuple[CodeType, int], Site] = {}
        self.thread = threading.local()  # each thread nests its own passes

    def unplug(self) -> None:
        if engine.state.recorder is self:
            engine.set_recorder(None)

    def created(self, _op, node, _results, _inputs) -> None:
        node._extra("site", self._site)

    def written(self, tensor) -> None:
        """A write to a view made a new node for the whole; a write to anything else was `created`."""
        node = tensor.node if tensor.base is None else tensor.base.root.node
        if node is not None and type(node) is not AccumulateGrad:
            engine.node_and_number(node)[0]._extra("site", self._site)

    def sweep(self, begin: bool) -> None:
        running = self.thread.__dict__.setdefault("running", [])
        if not begin:
            ended = running.pop() if running else None
            if ended is not None:
                self._end(ended)
        elif len(self.record.passes) < self.wanted:
            caller = sys._getframe(2).f_code.co_name
            self.record.passes.append(Pass(caller, self._site()))
            running.append(_Running(self.record.passes[-1]))
        else:
            running.append(None)

    def _running(self) -> _Running | None:
        """This thread's innermost pass; None if it isn't recorded, or began before the recorder was plugged in."""
        running = self.thread.__dict__.get("running")
        return running[-1] if running else None

    def before(self, node, g) -> None:
        running = self._running()
        if running is None:
            return
        leaf = type(node) is AccumulateGrad
        site = None if leaf else (getattr(node, "extra", None) or {}).get("site")
        step = Step(len(running.to.steps) + 1, type(node).__name__, site)
        step.arrived = [_gradient(x) for x in (g if type(g) is list else [g])]
        running.to.steps.append(step)
        running.steps[id(node)] = step
        if leaf:
            running.leaves.append((step, node))
        running.started = perf_counter()

    def after(self, node, _g, grads) -> None:
        now = perf_counter()
        running = self._running()
        if running is None:
            return
        step = running.steps[id(node)]
        step.seconds = now - running.started
        if type(node) is AccumulateGrad:
            return
        for edge, g in zip(node.edges, grads):
            gradient = None if edge is None else _gradient(g)
            step.passed.append(gradient)
            if gradient is not None:
                running.targets.append((gradient, id(edge.parent if type(edge) is Port else edge)))

    def _end(self, running: _Running) -> None:
        result = running.to
        for gradient, node in running.targets:
            if node in running.steps:
                gradient.step = running.steps[node].number
        error = sys.exc_info()[1]
        if error is not None and error is not running.handled:
            result.error = f"{type(error).__name__}: {error}"
        result.gradients = _name_leaves(running.leaves, sys._getframe(2))
        self.finished += 1
        if self.finished == self.wanted:
            self.unplug()
        if self.on_pass is not None:
            self.on_pass(result)

    def _site(self) -> Site | None:
        """The innermost line outside Backlight."""
        frame = next(_user_frames(sys._getframe(1)), None)
        if frame is None:
            return None
        key = frame.f_code, frame.f_lineno
        site = self.sites.get(key)
        if site is None:
            site = self.sites[key] = Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        return site


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_OWN_CODE):
            yield frame
        frame = frame.f_back


def _values(array) -> np.ndarray:
    """The elements of an array or tensor, flat, in double precision."""
    array = np.asarray(getattr(array, "array", array))
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64).ravel()


def _norm(values) -> float:
    return float(np.sqrt(np.vdot(values, values).real))


def _gradient(g) -> Gradient | None:
    if g is None:
        return None
    norm = _norm(_values(g))
    return Gradient(np.shape(getattr(g, "array", g)), norm, bool(np.isfinite(norm)))


def _parameter_gradient(name: str, tensor) -> ParameterGradient:
    result = ParameterGradient(name, tuple(tensor.shape), tensor.requires_grad, tensor.numel())
    if tensor.is_leaf and tensor.grad is not None:
        values = _values(tensor.grad)
        result.norm, result.zeros = _norm(values), int(values.size - np.count_nonzero(values))
        finite = values[np.isfinite(values)]
        result.nonfinite = values.size - finite.size
        if finite.size:
            finite = np.abs(finite) if finite.dtype.kind == "c" else finite
            result.min, result.max = float(finite.min()), float(finite.max())
    return result


def _name_leaves(leaves: list[tuple[Step, AccumulateGrad]], frame: FrameType) -> list[ParameterGradient]:
    """Names the leaves at which a pass arrived, and reports on them and on the other parameters of their modules.

    A parameter has the name that its outermost module gives it, another leaf that of the program's variable.
    """
    tensors = {id(tensor): tensor for _, leaf in leaves if (tensor := leaf.variable_ref()) is not None}
    variables = _variables(frame)
    modules = [m for m in _root_modules() if any(id(p) in tensors for p in m.parameters())] if tensors else []
    rows: dict[int, tuple[str, object]] = {}
    for module in modules:
        prefix = f"{variables.get(id(module), type(module).__name__)}." if len(modules) > 1 else ""
        for name, parameter in module.named_parameters():
            rows.setdefault(id(parameter), (prefix + name, parameter))
    for key, tensor in tensors.items():
        rows.setdefault(key, (variables.get(key, ""), tensor))
    for step, leaf in leaves:
        step.variable = rows[id(tensor)][0] or None if (tensor := leaf.variable_ref()) is not None else None
    return [_parameter_gradient(name or "(unnamed)", tensor) for name, tensor in rows.values()]


def _root_modules() -> list:
    """The modules alive that are no part of another module. The cycle collector knows every object with attributes,
    so a module is found wherever the program keeps it, and modules need no registry that each pays for."""
    nn = sys.modules.get(f"{engine.__package__}.nn.module")
    if nn is None:
        return []
    modules = [x for x in gc.get_objects() if issubclass(type(x), nn.Module) and "training" in vars(x)]
    children = {id(child) for module in modules for child in module.children()}
    return [module for module in modules if id(module) not in children]


def _variables(innermost: FrameType) -> dict[int, str]:
    """The names of tensors and modules in the program's frames, innermost first, by id: "w", "weights[1]", "self.w"."""
    names: dict[int, str] = {}
    seen = set()
    for frame in _user_frames(innermost):
        if frame.f_code.co_flags & 1:  # CO_OPTIMIZED: a function
            _add_names(names, _locals(frame))
        if id(frame.f_globals) not in seen:
            seen.add(id(frame.f_globals))
            _add_names(names, list(frame.f_globals.items()))
    return names


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """The local variables of a function. Before Python 3.13 reading them leaves a dictionary at the frame that would
    keep old values alive, so it is emptied again, and functions that may use that dictionary are left alone."""
    if not {"locals", "vars", "dir", "eval", "exec"}.isdisjoint(frame.f_code.co_names):
        return []
    local = frame.f_locals
    items = list(local.items())
    if sys.version_info < (3, 13):
        local.clear()
    return items


def _add_names(names: dict[int, str], variables: Iterable[tuple[str, Any]]) -> None:
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
            if isinstance(x, Tensor):
                names.setdefault(id(x), key)
