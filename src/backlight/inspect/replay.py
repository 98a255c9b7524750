"""Replays a recorded backward pass on Backlight's engine, node by node, forwards and back.

Every node is rebuilt from what the record knows (policy "full": what it saved, what arrived) and run by Backlight's own formula; what it
passes on is compared with what the recorded engine passed on. So a record of PyTorch gets a second opinion for every node.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine import Node as EngineNode
from ..engine import sum_to
from ..op import OPS, Op
from ..tensor import Tensor
from .statistics import measure
from .translation import Known, Unknown, known_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .record import Record
    from .schema import Node, Statistics, Step


ROUNDING = 1e-5  # a difference below it needs no explanation
COARSE = {"bfloat16": 2.0**-7, "float16": 2.0**-10}  # how far apart the numbers of a type are, relative to their size


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
        outcome = (
            f"not replayed: {self.reason}"
            if self.reason
            else f"differs by {self.error:.2g}"
            if self.error is not None
            else "as recorded"
        )
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
        leaves: dict[str, Any] = {}
        for done in self.steps:
            leaf, arrived = done.step.node.leaf, done.step.arrived[0] if done.step.arrived else None
            if leaf is not None and arrived is not None and arrived.values is not None:
                name = leaf.label
                if leaves.setdefault(name, leaf) is not leaf:  # another leaf is called so, too
                    name = f"{name} ({leaf.number})"
                result[name] = result[name] + arrived.values if name in result else arrived.values
        return result

    def next(self) -> ReplayedStep | None:
        """Runs one step; None at the end."""
        step = self.current
        if step is None:
            return None
        if self.position == len(self._done):
            self._done.append(replay_step(step, self.record.engine))
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
        self,
        node: str | None = None,
        *,
        module: str | None = None,
        line: int | None = None,
        file: str | None = None,
        nonfinite: bool = False,
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


def replay_step(step: Step, engine: str = "backlight") -> ReplayedStep:
    """One step, computed anew from what a record of `engine` says about it."""
    recorded = [None if x is None else x.values for x in step.passed]
    if step.node.leaf is not None:
        return ReplayedStep(step, [], 0.0)
    try:
        passed = _run(step, engine)
    except Unknown as reason:
        return ReplayedStep(step, recorded, None, str(reason))
    except Exception as error:  # a formula of ours that the recorded values don't fit
        return ReplayedStep(step, recorded, None, f"{type(error).__name__}: {error}")
    errors = [_error(a, b) for a, b in zip(passed, recorded) if b is not None]
    if any(error > ROUNDING for error in errors):  # large where terms cancel: how much of it does rounding explain?
        try:
            exact = _run(step, engine, precise=True)
            errors = [_error(a, b, c) for a, b, c in zip(passed, recorded, exact) if b is not None]
        except Exception:  # it can't be computed in double precision: then the difference stands
            pass
    types = {x.dtype for x in (*step.arrived, *step.passed, *step.node.saved) if x is not None}
    coarse = max((COARSE.get(name, 0.0) for name in types), default=0.0)
    return ReplayedStep(step, passed, max((0.0 if error <= coarse else error for error in errors), default=None))


def _run(step: Step, engine: str, precise: bool = False) -> list[np.ndarray | None]:
    """What the step's node passes on by Backlight's formula. precise: computed in double precision."""
    known = known_of(step.node, step.arrived, step.passed, engine)
    arrived = [None if x is None else x.values for x in step.arrived]
    if any(x is not None and x.values is None for x in step.arrived):
        raise Unknown("the gradients that arrived were not kept")
    if precise:
        arrived = [_precise(x) for x in arrived]
        known.tensors = {name: _precise(x) for name, x in known.tensors.items()}
        known.result = tuple(_precise(x) for x in known.result)
    node, kept = rebuild(step.node, known, precise)
    grads = node.run(arrived if node.op.outputs != 1 else arrived[0], node.edges, True)
    found = [None if g is None else np.asarray(g) for g, k in zip(grads, kept) if k]
    return [g if g is None or x is None else _fitted(g, tuple(x.shape)) for g, x in zip_longest(found, step.passed)]


def _fitted(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A gradient in an input's shape: PyTorch's nodes broadcast inputs that Backlight expands in an operation of its own."""
    if gradient.shape == shape:
        return gradient
    missing = gradient.ndim - len(shape)
    if missing < 0 or any(n not in (1, m) for n, m in zip(shape, gradient.shape[missing:])):
        raise Unknown(f"Backlight's formula for it gives the shape {list(gradient.shape)}")
    return sum_to(gradient, shape)


def _precise(array: Any) -> Any:
    """Floating-point elements in double precision; those that are so already each off by a rounding error, up or down."""
    if array is None or array.dtype.kind not in "fc":
        return array
    if array.dtype in (np.float64, np.complex128):
        signs = np.where(np.arange(array.size) * 7 % 11 < 5, 1, -1).reshape(array.shape)
        return array * (1 + signs * np.finfo(np.float64).eps)
    return array.astype(np.float64 if array.dtype.kind == "f" else np.complex128)


def _error(a: np.ndarray | None, b: np.ndarray, exact: np.ndarray | None = None) -> float:
    """The largest difference, relative to the largest element; infinite where one is finite and the other isn't. What is computed
    exactly tells how far off rounding puts `a`: if `b` isn't much farther off, there is no difference."""
    if a is None or a.shape != b.shape:
        return float("inf")
    if exact is not None and np.isfinite(exact).all() and _distance(b, exact) <= 16 * _distance(a, exact):
        return 0.0
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


def _distance(a: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(a - exact).max(initial=0))


# Rebuilding a node


@dataclass(slots=True)
class _Names:
    """The operations of Backlight by the names of their nodes."""

    ops: dict[str, list[Op]] = field(default_factory=dict)
    count: int = 0

    def of(self, node: str) -> list[Op]:
        from .. import nn  # noqa: F401  (declares the operations of neural networks)
        from ..ops import later

        later.load()
        if self.count != len(OPS):  # some are declared when they are first needed
            self.ops, self.count = {}, len(OPS)
            for op in OPS.values():
                self.ops.setdefault(op.node_name, []).append(op)
        return self.ops.get(node, [])


_names = _Names()


def rebuild(line: Node, known: Known, precise: bool = False) -> tuple[Any, list[bool]]:
    """(a node of Backlight's engine with what the recorded one had saved, which inputs can have a gradient). `Unknown` says why not.
    precise: its gradients are to be of double precision."""
    candidates = _names.of(known.node)
    decided = [op for op in candidates if op.name == known.operation]
    if not candidates:
        raise Unknown(f"Backlight has no operation whose node is {line.name}")
    reasons = []
    for op in decided or sorted(candidates, key=lambda op: -len(op.parameters)):  # the one that most is known for
        try:
            return _rebuild_as(op, line, known, precise)
        except Unknown as reason:
            reasons.append(reason)
    raise reasons[0]


def _rebuild_as(op: Op, line: Node, known: Known, precise: bool) -> tuple[Any, list[bool]]:
    op.build()
    formulas = op.formulas if op.joint is None else (op.joint,) * len(op.inputs)
    kept = [f is not None for f in formulas]
    if len(line.edges) < sum(kept):  # PyTorch's nodes have no edges for indices
        kept = [k and not _is_integer(known.tensors.get(name)) for k, name in zip(kept, op.inputs)]
    targets = zip_longest(line.edges, known.passed)
    passed = [
        gradient if edge is not None else None
        for edge, gradient in (next(targets, (None, None)) if k else (None, None) for k in kept)
    ]
    edges = tuple(None if gradient is None else EngineNode() for gradient in passed)
    node = object.__new__(op.node_class)
    node.edges, node.seq, node.hooks = edges, float("inf"), None
    saved, sizes = [], []
    for name, gradient, (users, shape_users) in zip(op.inputs, passed, op.saves):
        needed, size_needed = (name not in op.optional and any(edges[j] is not None for j in x) for x in (users, shape_users))
        saved.append(_saved(known, name, needed) if users else None)
        if shape_users:
            sizes.append(_size(known, name, gradient, size_needed))
    if op.frees:
        node.saved = (*saved, _result(known) if op.saves_output else None)
    if op.saves_output:
        node.output_version = None
    if sizes or op.parameters:
        node.parameters = (*sizes, *(_parameter(op, formulas, known, name) for name in op.parameters))
    if op.broadcasts:
        if any(gradient is not None and gradient.values is None for gradient in passed):
            raise Unknown("the gradients that it passed on were not kept")
        node.shapes = tuple(
            None if x is None or x.values is None else (tuple(x.shape), _precise(x.values).dtype if precise else x.values.dtype)
            for x in passed
        )
    return node, kept


def _is_integer(array: np.ndarray | None) -> bool:
    return array is not None and array.dtype.kind in "biu"


def _saved(known: Known, name: str, needed: bool) -> Tensor | None:
    """A tensor that the node had saved, as Backlight's nodes save it."""
    values = known.tensors.get(name)
    if values is None and needed:
        raise Unknown(f"the values of saved {name} were not kept" if name in known.tensors else f"it saved no {name}")
    return None if values is None else Tensor._from(values)


def _size(known: Known, name: str, gradient: Statistics | None, needed: bool) -> tuple[int, ...] | None:
    """The shape of an input."""
    if name in known.sizes:
        return known.sizes[name]
    found = gradient if gradient is not None else known.tensors.get(name)
    if found is None and needed:
        raise Unknown(f"the shape of {name} is not known")
    return None if found is None else tuple(found.shape)


def _result(known: Known) -> Any:
    if not known.result or all(x is None for x in known.result):
        raise Unknown("it saved no result")
    return known.result[0] if len(known.result) == 1 else known.result


def _parameter(op: Op, formulas: Sequence[Any], known: Known, name: str) -> Any:
    """A parameter; None if it isn't known and no formula reads it, which a leading underscore says."""
    if name in known.parameters:
        return known.parameters[name]
    position = 2 + len(op.inputs) + op.parameters.index(name)  # behind the gradient, the inputs and the output
    if any(f is not None and not f.__code__.co_varnames[position].startswith("_") for f in formulas):
        raise Unknown(f"its parameter {name} is not known")
    return None


def statistics_of(array: np.ndarray | None) -> Statistics | None:
    """The numbers about a replayed gradient, for display."""
    return None if array is None else measure(array, "norms")
