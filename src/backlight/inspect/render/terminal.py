"""A record as tables and trees for a terminal, with rich.

Every line fits the width: a table leaves out its least important columns and says which, long names are shortened.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from . import summary
from .words import count, duration, number, places, printable, shape, size, source, sparkline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TextIO

    from rich.console import RenderableType

    from ..explain import Finding
    from ..record import Record
    from ..schema import ParameterGradient, Pass, Site, Statistics, Step

    Place = Callable[[Site | None], str]

NARROWEST = 12  # a name is not shortened further than to this
SEVERITIES = {"error": "red", "warning": "yellow", "note": "cyan"}
_OTHER_LETTERS = str.maketrans("µ…·−×", "u~.-x")


def to_text(record: Record, width: int = 80, steps: int = 100, passes: int = 3) -> str:
    """The record as plain text."""
    return _render(record, plain_console(width), steps, passes)


def plain_console(width: int) -> Console:
    """A console for text without colours."""
    return Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)


def write(record: Record, file: TextIO, width: int, steps: int = 100, passes: int = 3) -> None:
    """Writes the record below what a file has already, in colour where that is a terminal that wants it (see NO_COLOR)."""
    colours = None if os.environ.get("NO_COLOR") else "auto"
    write_text("\n" + _render(record, Console(file=file, width=width, color_system=colours), steps, passes), file)


def write_text(text: str, file: TextIO) -> None:
    """Writes text to a file or terminal that perhaps doesn't know all of its letters."""
    encoding = getattr(file, "encoding", None) or "utf-8"
    if not encoding.lower().startswith("utf"):
        text = text.translate(_OTHER_LETTERS).encode(encoding, "replace").decode(encoding)
    file.write(text)
    file.flush()


def _render(record: Record, console: Console, limit: int, passes: int) -> str:
    return render(_record(record, console.width, limit, passes), console)


def render(parts: Iterable[RenderableType], console: Console) -> str:
    """What the console would show, as text."""
    with console.capture() as capture:
        for part in parts:
            # Panels wrap their text, everything else is one line or cuts itself.
            wraps = isinstance(part, Panel)
            console.print(part, no_wrap=None if wraps else True, overflow=None if wraps else "ellipsis")
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def _record(record: Record, width: int, limit: int, passes: int) -> list[RenderableType]:
    place = places([*(site for finding in record.findings for site in finding.sites.values()), *record.sites])
    parts: list[RenderableType] = []
    if record.events:
        parts += [_line(header(record, width), "dim"), ""]
    for finding in record.findings:
        parts += [_finding(finding, place), ""]
    if not record.passes:
        parts.append(_line("No backward pass ran."))
        parts += _modules(summary.modules(record, None), width, limit)
    for i, one in enumerate(record.passes[:passes]):
        parts += [""] * bool(i) + _pass(record, one, width, limit, place)
    if len(record.passes) > passes:
        more = count(len(record.passes) - passes, "more backward pass")
        parts += ["", _line(f"… and {more}", "dim")]
    return parts


def header(record: Record, width: int) -> str:
    """One line: what ran on what, and how much was recorded, as far as there is room."""
    engine = f"{record.engine} {record.engine_version}".strip()
    text = printable(f"{os.path.basename(record.program) or 'a program'} on {engine}")
    counts = [count(len(record.passes), "backward pass"), count(len(record.ops), "operation")]
    if record.modules:
        counts.append(count(len(record.modules), "module call"))
    if record.dropped:
        counts.append(f"{record.dropped:,} older events dropped")
    for i, part in enumerate(counts):
        longer = f"{text}{', ' if i else ': '}{part}"
        if cell_len(longer) > width:
            break
        text = longer
    return text


def _pass(record: Record, one: Pass, width: int, limit: int, place: Place) -> list[RenderableType]:
    steps = one.steps[:limit]
    seconds = sum(step.seconds or 0 for step in one.steps)
    title = f"Backward pass {one.number + 1} of {len(record.passes)}: {count(len(one.steps), 'step')} in {duration(seconds)}"
    parts: list[RenderableType] = [
        _line(title, "bold"),
        _line(f"{place(one.site)}  {source(one.site)}".strip()),
    ]
    for alarm, step in summary.alarms(one):
        parts.append(_line(f"{alarm}  {place(step.site) if step else ''}".rstrip(), "bold red"))
    parts += ["", _call_order(one, steps, place, width)]
    if len(one.steps) > len(steps):
        parts.append(_line(f"… and {count(len(one.steps) - len(steps), 'more step')}", "dim"))
    parts += ["", _line("Call tree", "bold"), _tree(one, steps, place)]
    parts += ["", _line("Gradients after the pass", "bold")]
    if one.gradients:
        parts += _gradients(one.gradients, width, limit)
    else:
        reason = "autograd.grad returns them" if one.call == "grad" else "the program holds no leaf that was reached"
        parts.append(_line(f"none: {reason}"))
    parts += _modules(summary.modules(record, one), width, limit)
    parts += _depth(summary.flow(record, one), width)
    return parts


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _finding(finding: Finding, place: Place) -> Panel:
    """A panel: what is wrong, why, what to do, and the lines of the program that it is about."""
    style = SEVERITIES.get(finding.severity, "white")
    parts: list[RenderableType] = [Text(printable(finding.title), style="bold", overflow="fold")]
    if finding.text:
        parts.append(Text("\n".join(map(printable, finding.text.splitlines())), overflow="fold"))
    if finding.fix:
        parts.append(Text(f"Fix: {printable(finding.fix)}", style="green", overflow="fold"))
    for role, site in finding.sites.items():
        parts.append(_line(f"{role}: {place(site)}", style))
        if text := source(site):
            parts.append(_line(f"    {text}"))
    title = Text(f"{finding.severity}: {finding.kind}", style)
    return Panel(Group(*parts), title=title, title_align="left", border_style=style, box=box.ROUNDED)


# Tables


class Column:
    """A column of a table. The higher its rank, the later it is left out; without a rank it is always there, but may
    be shortened: at the end of its cells or, with `keep_end`, at their beginning."""

    def __init__(self, title: str, cells: Sequence[str], rank: int | None = None, right=False, keep_end=False):
        self.title, self.cells, self.rank = title, [printable(cell) for cell in cells], rank
        self.right, self.keep_end = right, keep_end
        self.width = max(map(cell_len, [title, *self.cells]))

    def shortened(self, i: int) -> str:
        text = self.cells[i]
        if cell_len(text) <= self.width:
            return text
        if not self.keep_end:
            return set_cell_size(text, self.width - 1).rstrip() + "…"
        return "…" + set_cell_size(text[::-1], self.width - 1).rstrip()[::-1]


def table(columns: Sequence[Column], width: int, row_styles: Sequence[str]) -> Group | Table:
    """A table of the most important columns that fit, and of the rows that say something in them."""
    columns = [c for c in columns if c.rank is None or any(c.cells)]
    gap = 2 if sum(c.width + 2 for c in columns) - 2 <= width else 1
    shown = [c for c in columns if c.rank is None]
    for column in sorted((c for c in columns if c.rank is not None), key=lambda c: c.rank or 0, reverse=True):
        if sum(c.width + gap for c in shown) + column.width > width:
            break
        shown.append(column)
    shown.sort(key=columns.index)
    for column in reversed(shown):
        if column.rank is None:
            excess = sum(c.width + gap for c in shown) - gap - width
            column.width = min(column.width, max(column.width - excess, NARROWEST))
    result = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="bold")
    for column in shown:
        result.add_column(column.title, justify="right" if column.right else "left", width=column.width, no_wrap=True)
    for i, style in enumerate(row_styles):
        cells = [column.shortened(i) for column in shown]
        if any(cells):
            result.add_row(*map(Text, cells), style=style)
    left_out = dict.fromkeys(c.title for c in columns if c not in shown)
    if not left_out:
        return result
    return Group(result, _line(f"(too narrow for: {', '.join(left_out)})", "dim"))


def _call_order(one: Pass, steps: Sequence[Step], place: Place, width: int) -> Group | Table:
    """One row per gradient that a step passed on; the first row of a step also says what arrived, when and where."""
    targets = summary.targets(one)
    rows, styles = [], []
    for step in steps:
        arrived = [_cells(g) for g in step.arrived if g is not None]
        passed = [(*_cells(g), str(targets.get((step.index, i), ""))) for i, g in enumerate(step.passed) if g is not None]
        time = "raised" if step.seconds is None and one.error is not None and step is one.steps[-1] else duration(step.seconds)
        leaf = step.node.leaf is not None
        where = step.variable or "(unnamed)" if leaf else place(step.site)
        for i in range(max(len(arrived), len(passed), 1)):
            first = (str(step.index), step.name, where, time) if i == 0 else ("",) * 4
            incoming = arrived[i] if i < len(arrived) else ("",) * 2
            outgoing = passed[i] if i < len(passed) else ("",) * 3
            rows.append((*first, *incoming, *outgoing))
            styles.append("green" if leaf else "red" if time == "raised" else "")
    number, node, where, time, shape_in, norm_in, shape_out, norm_out, to = zip(*rows) if rows else ((),) * 9
    columns = [
        Column("#", number, right=True),
        Column("node", node),
        Column("line or leaf", where, keep_end=True),
        Column("grad in", shape_in, 6),
        Column("norm", norm_in, 5),
        Column("grad out", shape_out, 4),
        Column("norm", norm_out, 3),
        Column("to", to, 1, right=True),
        Column("time", time, 2, right=True),
    ]
    return table(columns, width, styles)


def _cells(g: Statistics) -> tuple[str, str]:
    return shape(g.shape), number(g.norm)


def _gradients(every: Sequence[ParameterGradient], width: int, limit: int) -> list[RenderableType]:
    """A row per parameter. Of very many, the first are shown and those with no, zero, infinite or NaN gradient."""
    rows = [row for i, row in enumerate(every) if i < limit or _gradient_style(row) in ("red", "yellow")][: 2 * limit]
    measured = any(row.value is not None and row.value.norm is not None for row in rows)

    def cells(text: Callable[[Statistics], str]) -> list[str]:
        return ["" if row.value is None else text(row.value) for row in rows]

    norms = ["None" if row.value is None else number(row.value.norm) if measured else "there" for row in rows]
    columns = [
        Column("name", [row.name for row in rows], keep_end=True),
        Column("shape", [shape(row.shape) for row in rows], 7),
        Column("requires_grad", [str(row.requires_grad) for row in rows], 2),
        Column("norm" if measured else "gradient", norms, 8),
        Column("min", cells(lambda g: number(g.min)), 4),
        Column("max", cells(lambda g: number(g.max)), 3),
        Column("zeros", cells(lambda g: _percent(g) if g.zeros is not None else ""), 6, right=True),
        Column("nonfinite", cells(lambda g: "" if g.nonfinite is None else str(g.nonfinite)), 5, right=True),
    ]
    result: list[RenderableType] = [table(columns, width, list(map(_gradient_style, rows)))]
    if len(every) > len(rows):
        result.append(_line(f"… and {count(len(every) - len(rows), 'more parameter')}", "dim"))
    return result


def _gradient_style(row: ParameterGradient) -> str:
    if row.value is None or row.value.norm == 0:
        return "yellow" if row.requires_grad else "dim"
    return "red" if row.value.nonfinite else ""


def _percent(g: Statistics) -> str:
    return f"{(g.zeros or 0) / max(g.size, 1):.0%}" if g.zeros else "0"


def _modules(parts: Sequence[summary.Part], width: int, limit: int) -> list[RenderableType]:
    """A row per module call, indented below the one that called it."""
    if not parts:
        return []
    rows = parts[:limit]
    depths = [part.module.depth if part.module else 0 for part in rows]
    columns = [
        Column("module", ["  " * min(depth, 8) + part.label for part, depth in zip(rows, depths)], keep_end=False),
        Column("type", [part.module.type if part.module and part.module.name else "" for part in rows], 4),
        Column("nodes", [str(len(part.nodes)) for part in rows], 1, right=True),
        Column("saved", [size(part.bytes) for part in rows], 2, right=True),
        Column("forward", [duration(part.forward) for part in rows], 6, right=True),
        Column("backward", [duration(part.backward) for part in rows], 5, right=True),
        Column("grad weights", [number(part.weights) for part in rows], 3, right=True),
        Column("grad output", [number(part.activations) for part in rows], 3, right=True),
    ]
    result: list[RenderableType] = ["", _line("Modules", "bold")]
    result.append(table(columns, width, ["red" if part.nonfinite else "" for part in rows]))
    if len(parts) > len(rows):
        result.append(_line(f"… and {count(len(parts) - len(rows), 'more call')}", "dim"))
    return result


def _depth(parts: Sequence[summary.Part], width: int) -> list[RenderableType]:
    """Gradient norms as bars, from the first layer to the last, where there are enough to see a course."""
    result: list[RenderableType] = []
    for what, title in (("activations", "outputs"), ("weights", "weights")):
        norms = summary.numbers(parts, what)
        if len(norms) < 3:
            continue
        text = Text(f"{title:<8} ", no_wrap=True, overflow="ellipsis")
        text.append(sparkline(norms, max(width - 34, 8)), "cyan").append(f" {number(norms[0])} … {number(norms[-1])}", "dim")
        result.append(text)
    return ["", _line("Gradient norms, first layer to last (logarithmic)", "bold"), *result] if result else []


# The tree


def _tree(one: Pass, steps: Sequence[Step], place: Place) -> Tree:
    """Each step below the one that made it ready. A chain of steps is drawn straight down and only side branches are
    indented, so the depth stays small."""
    children: dict[int, list[Step]] = {}
    ready_after: dict[int, int] = {}
    for (index, _), target in summary.targets(one).items():
        ready_after[target] = max(index, ready_after.get(target, 0))
    for step in steps:
        children.setdefault(ready_after.get(step.index, 0), []).append(step)
    total = {}
    for step in reversed(steps):
        total[step.index] = 1 + sum(total[child.index] for child in children.get(step.index, ()))

    def grow(tree: Tree, step: Step | None) -> None:
        while step is not None:
            branch = tree.add(_label(step, place))
            below = children.get(step.index, [])
            step = max(below, key=lambda child: total[child.index], default=None)
            if step is not None and (step.node.leaf is not None or len(below) > 1 and total[step.index] <= 2):
                step = None  # the chain ends here, all that is left are leaves
            for child in below:
                if child is not step:
                    side = branch.add(_label(child, place))
                    for grandchild in children.get(child.index, ()):
                        grow(side, grandchild)

    root = Tree(_line(source(one.site) or one.call, "bold"), guide_style="dim")
    for step in children.get(0, ()):
        grow(root, step)
    return root


def _label(step: Step, place: Place) -> Text:
    label = Text(no_wrap=True, overflow="ellipsis")
    label.append(f"{step.index} ", "dim")
    if step.node.leaf is not None:
        return label.append(printable(f"{step.name}  {step.variable or '(unnamed)'}"), "green")
    return label.append(printable(step.name)).append(f"  {place(step.site)}".rstrip(), "dim")
