"""Assertions about gradients for a project's tests. The pytest fixture `backlight` is a `Checks`; docs/testing.md shows them.

They need no pytest: with unittest, make a `Checks` of your own.
"""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

from ..files import replacing
from . import start
from .engines import engine_of, imported_engines
from .explain import findings
from .explain.ask import explain
from .explain.finding import Finding, listed, place, size_of
from .explain.functions import check_function
from .explain.memory import alive
from .render import summary
from .render.words import count, places, source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from .record import Record
    from .recorder import Recorder
    from .schema import Pass, Site

LINES = 10  # of the program, in a message


class Checks:
    """Assertions about what autograd does, for models of Backlight and of PyTorch: which one is found from the tensors.

    folder: where the files of `check_order` are. update: write those files instead of comparing with them.

    >>> import backlight as torch
    >>> from backlight.inspect.testing import Checks
    >>> model = torch.nn.Linear(2, 1)
    >>> Checks().check_gradients(model, lambda: model(torch.ones(1, 2)).sum())
    """

    def __init__(self, folder: str | os.PathLike[str] = ".", update: bool = False):
        self.folder = Path(folder)
        self.update = update

    def check_gradients(
        self, model: Any, loss: Any, *, allow_none: Collection[str] = (), allow_zero: Collection[str] = ()
    ) -> None:
        """Runs forward and backward, and asserts that every parameter gets a gradient that is finite and not all zeros.

        loss: a function without arguments that computes the loss, or the loss; only a function's run can be recorded, so that
        the cause of a missing gradient is known. allow_none, allow_zero: names of parameters that may go without, or patterns
        such as "encoder.*". Parameters that don't require grad aren't looked at. `.grad` is cleared before.
        """
        __tracebackhide__ = True
        parameters = _parameters(model)
        _check_patterns("allow_none", allow_none, parameters)
        _check_patterns("allow_zero", allow_zero, parameters)
        if not callable(loss) and not hasattr(loss, "backward"):
            raise TypeError(
                f"check_gradients() takes the loss or a function without arguments that computes it, not {type(loss).__name__}"
            )
        wanted = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
        if not wanted:
            raise ValueError("none of the model's parameters requires grad: there is nothing to check")
        for parameter in wanted.values():
            parameter.grad = None
        with _recording("norms", engine_of(next(iter(wanted.values())))) as recorder:
            recorder.watch_module(model)
            value: Any = loss() if callable(loss) else loss
            if not hasattr(value, "backward"):
                raise TypeError(f"the function must return the loss, a tensor, and it returned {type(value).__name__}")
            value.backward()
        bad: dict[str, list[str]] = {"none": [], "zero": [], "nonfinite": []}
        for name, parameter in wanted.items():
            if parameter.grad is None:
                if not _matches(name, allow_none):
                    bad["none"].append(name)
                continue
            gradient = recorder.statistics(parameter.grad)
            if gradient.nonfinite:
                bad["nonfinite"].append(name)
            elif gradient.size and gradient.zeros == gradient.size and not _matches(name, allow_zero):
                bad["zero"].append(name)
        if any(bad.values()):
            labels = {name: recorder.tensor(parameter).label for name, parameter in wanted.items()}
            raise AssertionError(_bad_gradients(bad, labels, recorder.record, callable(loss)))

    def check_no_growth(self, step: Callable[[], object], steps: int = 5, *, allow_alive: bool = False) -> None:
        """Runs a training step several times, and asserts that its graph doesn't grow and that nothing of it stays alive.

        step: a function without arguments that runs forward and backward, on batches of the same size. The first call is not
        compared: a model may build things in it. allow_alive: don't look for graphs that are still there afterwards.
        """
        __tracebackhide__ = True
        if steps < 3:
            raise ValueError(f"growth shows after 3 steps at the earliest, got steps={steps}")
        ends = [0]
        with _recordings("shapes") as recorders:
            for _ in range(steps):
                step()
                ends.append(max(len(recorder.record.passes) for recorder in recorders))
        recorder = _used(recorders)
        per_step = [_outermost(recorder.record.passes[a:b]) for a, b in zip(ends, ends[1:])]
        nodes = [sum(one.nodes or 0 for one in passes) for passes in per_step]
        saved = [sum(one.bytes or 0 for one in passes) for passes in per_step]
        if _grows(nodes) or _grows(saved):
            growing = [finding for finding in findings(recorder.record) if finding.kind == "graph-growing"]
            raise AssertionError(
                f"the graph grows from step to step: {', '.join(map(str, nodes))} nodes, which saved "
                f"{', '.join(map(size_of, saved))}\n{_indented(growing)}".rstrip()
            )
        if not allow_alive:
            gc.collect()  # what only cycles hold is no leak
            if held := alive(recorder):
                raise AssertionError(f"graphs that still exist after {steps} steps: {len(held)}\n{_indented(held)}")

    def check_saved_bytes(self, step: Callable[[], object], budget: int) -> int:
        """Runs a training step, and asserts that what its graph has saved when backward begins takes at most `budget` bytes.

        Returns the bytes: of the pass with the most, if there are several. Memory that several nodes saved counts once; that of a
        parameter that a node saved counts, too.
        """
        __tracebackhide__ = True
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 0:
            raise ValueError(f"budget must be a number of bytes, such as 64 * 2**20, got {budget!r}")
        record = _run(step).record
        largest = max(_outermost(record.passes), key=lambda one: one.bytes or 0)
        total = largest.bytes or 0
        if total > budget:
            raise AssertionError(
                f"the graph had saved {_exactly(total)} when {largest.call}() began at {place(largest.site)}; "
                f"the budget is {_exactly(budget)}\n{_saved_by_line(record, largest)}"
            )
        return total

    def check_order(self, step: Callable[[], object], file: str | os.PathLike[str]) -> None:
        """Runs a training step, and asserts that its backward steps are those in a text file, in the same order.

        file: beside the test, unless it is an absolute path. `pytest --backlight-update` writes it.
        """
        __tracebackhide__ = True
        path = self.folder / file
        record = _run(step).record
        actual = list(_order(record))
        if self.update:
            with replacing(path) as written:
                written.writelines(f"{line}\n" for line, _site in actual)
            return
        try:
            expected = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            raise AssertionError(f"{path} is not there yet: run pytest with --backlight-update to write it") from None
        for number, (line, known) in enumerate(zip_longest(actual, expected), 1):
            got, site = line or (None, None)
            if got != known:
                where = f", of {place(site)}" if site is not None else ""
                raise AssertionError(
                    f"the order of backward steps has changed. The first difference is line {number} of {path.name}:\n"
                    f"  expected: {known or 'the end'}\n"
                    f"  got:      {got or 'the end'}{where}\n"
                    f"({len(expected)} lines expected, {len(actual)} got.) If it is meant to be so, run pytest with --backlight-update"
                )

    def check_function(self, function: Callable[..., Any], *inputs: Any) -> None:
        """Asserts that a custom Function's backward agrees with its forward: with finite differences, and by the engine's gradcheck.

        function: `MyFunction.apply`, or any function of tensors. inputs: of which those that require grad are checked. gradcheck
        needs them in float64; with others only finite differences are looked at, less exactly.
        """
        __tracebackhide__ = True
        finding = check_function(function, *inputs)
        if finding is not None:
            raise AssertionError(str(finding))
        checked = [x for x in inputs if getattr(x, "requires_grad", False)]
        if all(str(x.dtype).endswith(("float64", "complex128")) for x in checked):
            gradcheck = import_module(f"{engine_of(checked[0])}.autograd.gradcheck")
            try:
                gradcheck.gradcheck(function, inputs)
            except gradcheck.GradcheckError as error:
                raise AssertionError(f"gradcheck: {error}") from None

    def record(self, policy: str = "norms", *, engine: str | None = None, allow: Collection[str] = ()) -> _Recording:
        """Records a `with` block, and asserts that it has no findings of severity "error".

        policy: as of `inspect.record`. engine: "backlight" or "torch"; by default "torch" where that is imported. allow: kinds of
        findings that are no failure here, such as "none-cut". `as` gives the record.
        """
        return _Recording(policy, engine, allow)


class _Recording:
    """The block of `Checks.record`. A class, so that a failure's traceback ends at the block."""

    def __init__(self, policy: str, engine: str | None, allow: Collection[str]):
        if isinstance(allow, str):
            raise TypeError(f"allow must be a tuple of kinds, such as ({allow!r},), not the text {allow!r}")
        self.policy, self.allow, self.guessed = policy, allow, engine is None
        self.engine = engine or imported_engines()[-1]

    def __enter__(self) -> Record:
        self.recorder = start(self.policy, self.engine)
        return self.recorder.record

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        __tracebackhide__ = True
        self.recorder.stop()
        if error is not None:
            _explain(error, self.recorder)
            return
        record = self.recorder.record
        if self.guessed and not record.events:
            other = "backlight" if self.engine == "torch" else "torch"
            raise AssertionError(f"nothing of {self.engine} ran in this block; for a program on {other}, pass engine={other!r}")
        errors = [one for one in findings(record) if one.severity == "error" and one.kind not in self.allow]
        if errors:
            kinds = ", ".join(dict.fromkeys(repr(one.kind) for one in errors))
            raise AssertionError(f"{count(len(errors), 'error')} in what was recorded ({kinds})\n{_indented(errors)}")


# Recording


@contextmanager
def _recording(policy: str, engine: str) -> Iterator[Recorder]:
    recorder = start(policy, engine)
    try:
        yield recorder
    except Exception as error:
        recorder.stop()
        _explain(error, recorder)
        raise
    finally:
        recorder.stop()


@contextmanager
def _recordings(policy: str) -> Iterator[list[Recorder]]:
    """Of all engines that can be the one: a function can't be asked which it uses before it has run."""
    first, *others = imported_engines()
    with _recording(policy, first) as one:
        if not others:
            yield [one]
            return
        with _recording(policy, others[0]) as other:
            yield [one, other]


def _used(recorders: list[Recorder]) -> Recorder:
    """The one that saw backward passes."""
    used = [recorder for recorder in recorders if recorder.record.passes]
    if not used:
        engines = " or ".join(recorder.engine for recorder in recorders)
        raise ValueError(
            f"the step ran no backward pass of {engines}: it must compute a loss and call backward() or autograd.grad()"
        )
    if len(used) > 1:
        raise ValueError("the step ran backward passes of both Backlight and PyTorch: check them in two tests")
    return used[0]


def _run(step: Callable[[], object]) -> Recorder:
    with _recordings("shapes") as recorders:
        step()
    return _used(recorders)


def _explain(error: BaseException, recorder: Recorder) -> None:
    """Adds what led to an exception to its text, as Backlight's engine does with its own."""
    notes = getattr(error, "__notes__", [])
    for finding in explain(error, recorder):
        if f"\n{finding}" not in notes:
            error.add_note(f"\n{finding}")


def _outermost(passes: list[Pass]) -> list[Pass]:
    return [one for one in passes if one.parent is None]


def _grows(values: list[int]) -> bool:
    """Whether a series never falls and ends higher than it began; its first value is left out."""
    values = values[1:]
    return values[-1] > values[0] and all(a <= b for a, b in zip(values, values[1:]))


# Arguments


def _parameters(model: Any) -> dict[str, Any]:
    if not hasattr(model, "named_parameters"):
        raise TypeError(f"check_gradients() takes a module of Backlight's or PyTorch's nn, not {type(model).__name__}")
    return dict(model.named_parameters())


def _check_patterns(argument: str, patterns: Collection[str], parameters: dict[str, Any]) -> None:
    if isinstance(patterns, str):
        raise TypeError(f"{argument} must be a tuple of names, such as ({patterns!r},), not the text {patterns!r}")
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in parameters):
            raise ValueError(f"{argument}: the model has no parameter {pattern!r}; it has {listed(parameters)}")


def _matches(name: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# Messages


def _bad_gradients(bad: dict[str, list[str]], labels: dict[str, str], record: Record, forward_recorded: bool) -> str:
    """What is wrong with which parameters, and what the inspector found out about it. Kinds of findings begin with the keys of `bad`."""
    every = findings(record)
    parts = []
    for kind, what in (("none", "got no gradient"), ("zero", "got a gradient of zeros"), ("nonfinite", "got NaN or infinity")):
        names = bad[kind]
        if not names:
            continue
        parts.append(f"{len(names)} of {count(len(labels), 'parameter')} {what}: {listed(names, LINES)}")
        known = {labels[name] for name in names}
        causes = [one for one in every if one.kind.startswith(kind) and (kind == "nonfinite" or known & set(one.names))]
        if causes and (forward_recorded or kind != "none"):
            parts.append(_indented(causes))
    if not forward_recorded:
        parts.append("The loss was computed before the check: pass a function that computes it to see the cause and the line")
    return "\n".join(parts)


def _indented(found: list[Finding]) -> str:
    """Each finding once (a loop makes equal ones), not more than a page of them."""
    texts = list(dict.fromkeys(map(str, found)))
    more = [f"and {len(texts) - LINES} more"] if len(texts) > LINES else []
    return indent("\n".join(texts[:LINES] + more), "  ")


def _exactly(bytes_: int) -> str:
    return f"{bytes_:,} bytes" if bytes_ < 1024 else f"{bytes_:,} bytes ({size_of(bytes_)})"


def _saved_by_line(record: Record, one: Pass) -> str:
    """What the lines of the program had saved when a pass began, the largest first."""
    by_line: dict[str, int] = {}
    example: dict[str, Site | None] = {}
    seen: set[int | None] = set()
    where = places(record.sites)
    for node in summary.reached(record, one):
        if node.freed_by is not None and node.freed_by.in_pass.number < one.number:
            continue
        for saved in node.saved:
            if saved.storage not in seen:
                seen.add(saved.storage)
                key = where(node.site) or "a line that was not recorded"
                by_line[key] = by_line.get(key, 0) + saved.bytes
                example.setdefault(key, node.site)
    rows = sorted(by_line.items(), key=lambda row: row[1], reverse=True)
    lines = [f"  {bytes_:>12,}  {key}  {source(example[key])}".rstrip() for key, bytes_ in rows[:LINES]]
    if len(rows) > LINES:
        lines.append(f"  and {count(len(rows) - LINES, 'more line')}")
    return "\n".join(lines)


def _order(record: Record) -> Iterator[tuple[str, Site | None]]:
    """The lines of an order file, each with the place in the program that it is about."""
    passes = _outermost(record.passes)
    for number, one in enumerate(passes, 1):
        if len(passes) > 1:
            yield f"{one.call} {number}:", one.site
        for step in one.steps:
            yield step.node.label, step.site
