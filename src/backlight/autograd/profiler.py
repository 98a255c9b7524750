"""Which operations and backward steps take how long: profile, record_function.

A profile watches Python's calls (`sys.setprofile`): functions of this library, generated operations, and the steps of
backward are recognised by their code. So nothing in the engine knows of it, and nothing costs anything while it is off.

>>> import backlight as torch
>>> from backlight.autograd.profiler import profile, record_function
>>> x = torch.ones(3, requires_grad=True)
>>> with profile() as prof:
...     with record_function("mine"):
...         y = (x * 2).sum()
>>> [event.name for event in prof.function_events]
['mine', 'aten::mul', 'aten::sum']
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import threading
from time import perf_counter_ns

from ..engine import AccumulateGrad, Node
from ..op import REGISTRY
from ..tensor import Tensor
from ..utils._pytree import tree_leaves
from .profiler_util import EventList, FunctionEvent

__all__ = ["emit_itt", "emit_nvtx", "kineto_available", "profile", "record_function"]

_VARIADIC = 4  # the flag of code that takes *args

_active: list = []  # the profile that runs


def kineto_available() -> bool:
    """False: profiles are made here, without the Kineto library."""
    return False


def _profiler_enabled() -> bool:
    """Whether a profile runs."""
    return bool(_active)


def _faces() -> dict:
    """code object -> "aten::name" of the public functions."""
    from ..ops import later, neural  # noqa: F401  (they declare further ones)

    later.load()
    faces = [(name.removeprefix("nn.functional.").replace(".", "_"), REGISTRY[name]) for name in sorted(REGISTRY, key=_depth)]
    for name, function in vars(Tensor).items():
        if not name.startswith("_") and getattr(function, "__module__", "").startswith(("backlight.ops", "backlight.creation")):
            faces.append((name, function))
    found = {}
    for name, function in faces:
        code = getattr(function, "__code__", None)
        if code is not None and code.co_name != "_call_stub":
            found.setdefault(code, f"aten::{name}")
    passes = sys.modules.get("backlight.distributed.autograd.passes")
    if passes is not None:
        found[passes.backward.__code__] = "torch::distributed::autograd::backward"
    return found


def _depth(name: str) -> int:
    return name.count(".")  # of torch.erf and special.erf, one function, the shorter name shows


def _operation_name(op) -> str:
    """PyTorch's name of a primitive: "mul" from MulBackward0."""
    name = re.sub(r"Backwards?\d*$", "", op.node_name)
    return "aten::" + re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class profile:
    """A block whose operations are timed. Afterwards `function_events` has them; `table()` and `str()` show them.

    enabled: False makes the block an ordinary one. record_shapes: keep the shapes of inputs. The other options of PyTorch
    (use_device, profile_memory, with_stack, with_flops, with_modules, use_kineto, ...) are accepted and change nothing.
    """

    def __init__(self, enabled=True, *, record_shapes=False, use_device=None, use_cuda=False, **_options):
        if use_cuda or use_device not in (None, "cpu"):
            raise RuntimeError(f"profile(use_device={use_device or 'cuda'!r}): Backlight runs on the CPU only")
        self.enabled, self.record_shapes = enabled, record_shapes
        self.function_events = None
        self.entered = False
        self._events: list = []

    def __enter__(self):
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        if _active:
            raise RuntimeError("Can't enter a profile while another one runs")
        self.entered = True
        self._ids, self._faces, self._start = itertools.count(1), _faces(), perf_counter_ns()
        self._threads, self._local = itertools.count(1), threading.local()
        _active.append(self)
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)
        return self

    def __exit__(self, *_exception):
        if not self.enabled:
            return
        sys.setprofile(None)
        threading.setprofile(None)
        _active.remove(self)
        for event in self._stack():  # blocks that are still open
            event.time_range.end = self._now()
        self._events.sort(key=lambda event: event.id)
        self.function_events = EventList(self._events)
        self.function_events._populate_cpu_children()

    def _now(self) -> float:
        return (perf_counter_ns() - self._start) / 1000

    def _stack(self) -> list:
        """The open events of this thread; None for calls that are not shown."""
        if not hasattr(self._local, "stack"):
            self._local.stack, self._local.thread, self._local.frames = [], next(self._threads), []
        return self._local.stack

    def begin(self, name, shapes=None, sequence_nr=-1, fwd_thread=0):
        stack = self._stack()
        now = self._now()
        event = FunctionEvent(next(self._ids), name, self._local.thread, now, now, input_shapes=shapes if self.record_shapes else None,
                              sequence_nr=sequence_nr, fwd_thread=fwd_thread)  # fmt: skip
        self._events.append(event)
        stack.append(event)
        return event

    def end(self, event) -> None:
        event.time_range.end = self._now()
        stack = self._stack()
        if event in stack:
            stack.remove(event)

    def _watch(self, frame, what, argument):
        if what == "call":
            events = self._called(frame)
            if events:
                self._stack()
                self._local.frames.append((frame, events))
        elif what == "return":
            self._stack()
            frames = self._local.frames
            if frames and frames[-1][0] is frame:
                events = frames.pop()[1]
                result = argument[0] if isinstance(argument, tuple) and argument else argument
                node = result.node if type(result) is Tensor else None
                for event in reversed(events):
                    if node is not None and event.name.startswith("aten::"):
                        event.sequence_nr = int(node.seq)
                    self.end(event)

    def _called(self, frame):
        """The events that begin with a call: none, an operation, or a step of backward."""
        code = frame.f_code
        name = self._faces.get(code)
        if name is None and code.co_filename.startswith("<backlight op "):
            if code.co_name == "<module>":  # the operation is built
                return None
            if code.co_name in ("run", "record"):
                return self._step(frame)
            name = _operation_name(frame.f_globals["op"])
        elif (
            name is None
            and code.co_name in ("run", "record")
            and isinstance(frame.f_locals.get("node", frame.f_locals.get("self")), Node)
        ):
            return self._step(frame)
        elif code.co_name == "_call_stub" and "__op__" in frame.f_globals:
            name = _operation_name(frame.f_globals["__op__"])
        if name is None:
            return None
        stack = self._stack()
        if stack and stack[-1].name == name:  # the primitive within its public function
            return None
        names = [n for n in code.co_varnames[: code.co_argcount + bool(code.co_flags & _VARIADIC)] if n != "out"]
        values = [frame.f_locals.get(n) for n in names]
        return [self.begin(name, [list(x.shape) if isinstance(x, Tensor) else [] for x in tree_leaves(values)])]

    def _step(self, frame):
        node = frame.f_locals.get("node", frame.f_locals.get("self"))
        stack = self._stack()
        if stack and stack[-1].name == node.name():
            return None
        number = -1 if type(node) is AccumulateGrad else int(node.seq)
        return [
            self.begin(f"autograd::engine::evaluate_function: {node.name()}", [], number, 1),
            self.begin(node.name(), [], number, 1),
        ]

    # What came out

    def _finished(self) -> EventList:
        return EventList() if self.function_events is None else self.function_events

    def __repr__(self) -> str:
        return repr(self.function_events) if self.function_events is not None else "<unfinished torch.autograd.profile>"

    def __str__(self) -> str:
        return str(self.function_events) if self.function_events is not None else "<unfinished torch.autograd.profile>"

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55, max_shapes_column_width=80,
              header=None, top_level_events_only=False):  # fmt: skip
        """The events as text; see `EventList.table`."""
        return self._finished().table(
            sort_by,
            row_limit,
            max_src_column_width,
            max_name_column_width,
            max_shapes_column_width,
            header,
            top_level_events_only,
        )

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0):
        """The events of each name, added up."""
        return self._finished().key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self):
        """All events, added up."""
        return self._finished().total_average()

    def export_chrome_trace(self, path) -> None:
        """Writes a Chrome trace; see `EventList.export_chrome_trace`."""
        self._finished().export_chrome_trace(path)

    @property
    def self_cpu_time_total(self) -> float:
        return self._finished().self_cpu_time_total


class record_function(contextlib.ContextDecorator):
    """A block (or function) that appears under its own name in a profile. Costs next to nothing outside of one."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self.event = None

    def __enter__(self):
        self.event = _active[-1].begin(self.name, []) if _active else None
        return self

    def __exit__(self, *_exception):
        if self.event is not None and _active:
            _active[-1].end(self.event)
        self.event = None


class emit_nvtx:
    """Not available: it annotates CUDA traces. RuntimeError unless enabled=False."""

    def __init__(self, enabled=True, record_shapes=False):
        del record_shapes
        if enabled:
            raise RuntimeError(
                f"{type(self).__name__} annotates the traces of tools that aren't for the CPU; use profile() instead"
            )

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        pass


class emit_itt(emit_nvtx):
    """Not available: it annotates VTune traces. RuntimeError unless enabled=False."""
