"""Replays a recorded backward pass on Backlight's engine, node by node, forwards and back.

Every node is rebuilt from what the record knows (policy "full": what it saved, what arrived) and run by Backlight's own formula; what it
passes on is compared with what the recorded engine passed on. So a record of PyTorch gets a second opinion for every node.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine import Node as EngineNode
from ..op import OPS, Op
from ..tensor import Tensor
from .statistics import measure

if TYPE_CHECKING:
    from .record import Record
    from .schema import Node, Statistics, Step


@dataclass(slots=True)
class ReplayedStep:
    """A step as Backlight computed it: `passed` along each edge; `error`: the largest difference to what was recorded, relative to
    the gradient's largest element. `reason`: why the node could not be rebuilt (`passed` then is what was recorded)."""

    step: Step
    passed: list[np.ndarray | None]
    error: float | None = None
    reason: str | None = None

    @property
    def replayed(self) -> bool:
        return self.reason is None

    def __str__(self) -> str:
        outcome = f"not replayed: {self.reason}" if self.reason else f"differs by {self.error:.2g}" if self.error is not None else "as recorded"
        return f"{self.step.index}  {self.step.node.label}  {outcome}"


@dataclass(slots=True)
class Breakpoint:
    """Where `Replay.run` stops: before a step for which all that is given holds."""

    node: str | None = None
    module: str | None = None
    file: str | None = None
    line: int | None = None
    nonfinite: bool = False

    def holds(self, step: Step) -> bool:
        if self.node is not None and not step.name.lower().startswith(self.node.lower()):
            return False
        if self.module is not None and (step.node.module is None or step.node.module.name != self.module):
            return False
        site = step.site
        if self.line is not None and (site is None or site.line != self.line):
            return False
        if self.file is not None and (site is None or os.path.basename(site.file) != os.path.basename(self.file)):
            return False
        return not self.nonfinite or any(x is not None and bool(x.nonfinite) for x in step.passed)

    def __str__(self) -> str:
        parts = [f"node {self.node}" if self.node else "", f"module {self.module}" if self.module is not None else ""]
        if self.line is not None:
            parts.append(f"line {os.path.basename(self.file) + ':' if self.file else ''}{self.line}")
        parts.append("first non-finite gradient" if self.nonfinite else "")
        return " and ".join(part for part in parts if part)


class Replay:
    """A recorded pass that can be stepped through.

    `position` is the number of steps that have run. ValueError for a record that isn't of policy "full".

    >>> import backlight as torch
    >>> w = torch.tensor(3., requires_grad=True)
    >>> with torch.inspect.record("full") as record:
    ...     (w.exp() * 2).backward()
    >>> replay = record.step()
    >>> print(replay.next())
    1  MulBackward0  differs by 0
    >>> replay.break_at(node="Accumulate")
    >>> replay.run().step.name
    'ExpBackward0'
    >>> replay.position, replay.gradients
    (2, {})
    >>> _ = replay.next()
    >>> replay.gradients["w"].item() == w.grad.item()
    True
    >>> replay.back().position
    2
    """

    def __init__(self, record: Record, number: int = 0):
        if record.policy != "full":
            raise ValueError(f'replay needs a record of policy "full", and this one has {record.policy!r}: use record("full")')
        if not 0 <= number < len(record.passes):
            raise IndexError(f"there is no pass {number}: the record has {len(record.passes)}")
        self.record = record
        self.of = record.passes[number]
        self.position = 0
        self.breakpoints: list[Breakpoint] = []
        self._done: list[ReplayedStep] = []

    def __len__(self) -> int:
        return len(self.of.steps)

    @property
    def steps(self) -> list[ReplayedStep]:
        """The steps that have run."""
        return self._done[: self.position]

    @property
    def current(self) -> Step | None:
        """The step that runs next; None at the end."""
        return self.of.steps[self.position] if self.position < len(self) else None

    @property
    def gradients(self) -> dict[str, np.ndarray]:
        """What the steps so far have added to the leaves' `.grad`, by name."""
        result: dict[str, np.ndarray] = {}
        for done in self.steps:
            leaf, arrived = done.step.node.leaf, done.step.arrived[0] if done.step.arrived else None
            if leaf is not None and arrived is not None and arrived.values is not None:
                result[leaf.label] = result[leaf.label] + arrived.values if leaf.label in result else arrived.values
        return result

    def next(self) -> ReplayedStep | None:
        """Runs one step; None at the end."""
        step = self.current
        if step is None:
            return None
        if self.position == len(self._done):
            self._done.append(replay_step(step))
        self.position += 1
        return self._done[self.position - 1]

    def back(self) -> Replay:
        """Goes back one step."""
        self.position = max(self.position - 1, 0)
        return self

    def go_to(self, index: int) -> Replay:
        """Goes to the place before the step with this index (from 1)."""
        if not 1 <= index <= len(self) + 1:
            raise IndexError(f"the pass has steps 1 to {len(self)}, not {index}")
        self.position = min(self.position, index - 1)
        while self.position < index - 1:
            self.next()
        return self

    def break_at(
        self, node: str | None = None, *, module: str | None = None, line: int | None = None, file: str | None = None, nonfinite: bool = False
    ) -> None:
        """Adds a breakpoint: before nodes whose name begins with `node`, of a `module`, made at a `line` (of `file`), or the first one that
        passes on NaN or infinity. What is given must hold together."""
        if node is None and module is None and line is None and not nonfinite:
            raise ValueError("a breakpoint needs a node, a module, a line, or nonfinite=True")
        self.breakpoints.append(Breakpoint(node, module, file, line, nonfinite))

    def run(self) -> ReplayedStep | None:
        """Runs to the next breakpoint or to the end; returns the last step that ran."""
        last = None
        while (step := self.current) is not None:
            if last is not None and any(b.holds(step) for b in self.breakpoints):
                break
            last = self.next()
        return last

    def compare(self, tolerance: float = 1e-4) -> list[ReplayedStep]:
        """Runs all steps and returns those whose gradients differ from the recorded ones by more than `tolerance`."""
        self.position = 0
        while self.next() is not None:
            pass
        return [done for done in self._done if done.error is not None and not done.error <= tolerance]


def replay_step(step: Step) -> ReplayedStep:
    """One step, computed anew from what was recorded of it."""
    recorded = [None if x is None else x.values for x in step.passed]
    if step.node.leaf is not None:
        return ReplayedStep(step, [], 0.0)
    arrived = [None if x is None else x.values for x in step.arrived]
    if any(x is not None and x.values is None for x in step.arrived):
        return ReplayedStep(step, recorded, None, "the gradients that arrived were not kept")
    rebuilt = rebuild(step.node, step.passed)
    if isinstance(rebuilt, str):
        return ReplayedStep(step, recorded, None, rebuilt)
    node, kept = rebuilt
    several = node.op.outputs != 1
    try:
        grads = node.run(list(arrived) if several else arrived[0], node.edges, True)
    except Exception as error:  # a formula of ours that the recorded values don't fit
        return ReplayedStep(step, recorded, None, f"{type(error).__name__}: {error}")
    passed = [None if g is None else np.asarray(g) for g, k in zip(grads, kept) if k]
    errors = [_error(a, b) for a, b in zip(passed, recorded) if b is not None]
    return ReplayedStep(step, passed, max(errors, default=None))


def _error(a: np.ndarray | None, b: np.ndarray) -> float:
    """The largest difference, relative to the largest element; infinite where one is finite and the other isn't."""
    if a is None or a.shape != b.shape:
        return float("inf")
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    with np.errstate(all="ignore"):
        difference = np.abs(np.where(same, 0, a) - np.where(same, 0, b))
        largest = float(np.abs(b[np.isfinite(b)]).max(initial=0))
    if not np.isfinite(difference).all():
        return float("inf")
    return float(difference.max()) / largest if largest else float(difference.max())


# Rebuilding a node


@dataclass(slots=True)
class _Names:
    """The operations of Backlight by the names of their nodes."""

    ops: dict[str, list[Op]] = field(default_factory=dict)

    def of(self, node: str) -> list[Op]:
        if not self.ops:
            for op in OPS.values():
                self.ops.setdefault(op.node_name, []).append(op)
        return self.ops.get(node, [])


_names = _Names()


def rebuild(line: Node, passed: list[Statistics | None]) -> tuple[Any, list[bool]] | str:
    """(a node of Backlight's engine with what the recorded one had saved, which inputs can have a gradient); a text that says why not."""
    candidates = _names.of(line.name)
    if not candidates:
        return f"Backlight has no operation whose node is {line.name}"
    reasons = []
    for op in candidates:
        found = _rebuild_as(op, line, passed)
        if not isinstance(found, str):
            return found
        reasons.append(found)
    return reasons[0]


def _rebuild_as(op: Op, line: Node, passed: list[Statistics | None]) -> tuple[Any, list[bool]] | str:
    op.build()
    saved = {s.name: s for s in line.saved}
    values = []
    for name, (users, _shapes) in zip(op.inputs, op.saves):
        known = saved.get("self" if name == "input" else name)
        if users and known is None and any(p is not None for p in passed):
            values.append(None)
        elif not users or known is None:
            values.append(None)
        elif known.values is None:
            return f"the values of saved {known.name} were not kept"
        else:
            values.append(Tensor._from(known.values))
    formulas = op.formulas if op.joint is None else (op.joint,) * len(op.inputs)
    kept = [f is not None for f in formulas]
    edges: list[Any] = []
    targets = iter(zip(line.edges, passed))
    for keep in kept:
        edge, value = next(targets, (None, None)) if keep else (None, None)
        edges.append(EngineNode() if edge is not None and value is not None else None)
    for i, (users, _shapes) in enumerate(op.saves):
        needed = [j for j in users if edges[j] is not None]
        if needed and values[i] is None and op.inputs[i] not in op.optional:
            return f"it saved no {op.inputs[i]}"
    result = None
    if op.saves_output:
        known = [s for s in line.saved if s.name == "result" or s.name.startswith("result")]
        if not known or any(s.values is None for s in known):
            return "it saved no result"
        arrays = tuple(s.values for s in known)
        result = arrays[0] if op.outputs == 1 else arrays
    node = object.__new__(op.node_class)
    node.edges, node.seq, node.hooks = tuple(edges), float("inf"), None
    if op.frees:
        node.saved = (*values, result)
    if op.saves_output:
        node.output_version = None
    shape_names = [name for name, (_users, shapes) in zip(op.inputs, op.saves) if shapes]
    parameters = []
    for name in shape_names:
        key = f"{'self' if name == 'input' else name}_sym_sizes"
        if key not in line.parameters:
            size = next((s.shape for s in line.saved if s.name == ("self" if name == "input" else name)), None)
            if size is None:
                size = next((p.shape for p, i in zip(passed, op.inputs) if i == name and p is not None), None)
            if size is None:
                return f"the shape of {name} is not known"
            parameters.append(tuple(size))
        else:
            size = line.parameters[key]
            parameters.append(None if size is None else tuple(size))
    for name in op.parameters:
        key = "self" + name[5:] if name.startswith("input") else name
        if key not in line.parameters:
            return f"its parameter {name} is not known"
        parameters.append(_signed(line.parameters[key]))
    if shape_names or op.parameters:
        node.parameters = tuple(parameters)
    if op.broadcasts:
        given = iter(passed)
        shapes = [next(given, None) if keep else None for keep in kept]
        node.shapes = tuple(None if s is None else (tuple(s.shape), s.values.dtype if s.values is not None else None) for s in shapes)
        if any(s is not None and s[1] is None for s in node.shapes):
            return "the gradients that it passed on were not kept"
    return node, kept


def _signed(value: Any) -> Any:
    """PyTorch shows negative dimensions as unsigned numbers."""
    if type(value) is int and value >= 1 << 63:
        return value - (1 << 64)
    if isinstance(value, (list, tuple)):
        return tuple(_signed(x) for x in value)
    return value


def statistics_of(array: np.ndarray | None) -> Statistics | None:
    """The numbers about a replayed gradient, for display."""
    return None if array is None else measure(array, "norms")
