"""A record as tables and trees for a terminal, with rich.

Every line fits the width: a table leaves out its least important columns and says which, long names are shortened.
"""

from __future__ import annotations

import io
import linecache
import os
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from ..record import Gradient, ParameterGradient, Pass, Record, Site, Step

NARROWEST = 12  # a name is not shortened further than to this


def to_text(record: Record, width: int = 80, steps: int = 100) -> str:
    """The record as plain text."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    return _render(record, console, steps)


def write(record: Record, file: TextIO, width: int, steps: int = 100) -> None:
    """Writes the record below what a file has already, in colour where that is a terminal that wants it (see NO_COLOR)."""
    colours = None if os.environ.get("NO_COLOR") else "auto"
    text = _render(record, Console(file=file, width=width, color_system=colours), steps)
    encoding = getattr(file, "encoding", None) or "utf-8"
    if not encoding.lower().startswith("utf"):
        text = text.replace("µ", "u").replace("…", "~").encode(encoding, "replace").decode(encoding)
    file.write("\n" + text)
    file.flush()


def _render(record: Record, console: Console, limit: int) -> str:
    with console.capture() as capture:
        if not record.passes:
            console.print("No backward pass ran.")
        for number, one in enumerate(record.passes, 1):
            if number > 1:
                console.print()
            for part in _pass(one, number, len(record.passes), console.width, limit):
                console.print(part, no_wrap=True, overflow="ellipsis")
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def _pass(one: Pass, number: int, total: int, width: int, limit: int) -> list:
    place = _places([one.site, *(step.site for step in one.steps)])
    steps = one.steps[:limit]
    seconds = sum(step.seconds or 0 for step in one.steps)
    parts: list = [
        _line(f"Backward pass {number} of {total}: {_count(len(one.steps), 'step')} in {duration(seconds)}", "bold"),
        _line(f"{place(one.site)}  {_source(one.site)}".strip()),
        *(_line(alarm, "bold red") for alarm in _alarms(one, place)),
        "",
        _call_order(steps, place, width),
    ]
    if len(one.steps) > len(steps):
        parts.append(_line(f"… and {_count(len(one.steps) - len(steps), 'more step')}", "dim"))
    parts += ["", _line("Call tree", "bold"), _tree(steps, one, place)]
    parts += ["", _line("Gradients after the pass", "bold")]
    if one.gradients:
        parts.append(_gradients(one.gradients, width))
    else:
        parts.append(
            _line(
                "none: "
                + ("autograd.grad returns them" if one.call == "grad" else "the program holds no leaf that was reached")
            )
        )
    return parts


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _source(site: Site | None) -> str:
    return linecache.getline(site.file, site.line).strip() if site else ""


def _alarms(one: Pass, place: Callable[[Site | None], str]) -> Iterator[str]:
    """What a reader should see before anything else: what ended the pass early, the first step that made inf or nan."""
    if one.error is not None:
        last = one.steps[-1] if one.steps else None
        when = f"in step {last.number}" if last and last.seconds is None else f"after step {len(one.steps)}"
        yield f"ended {when} by {one.error.splitlines()[0]}"
    for step in one.steps:
        if any(g and not g.finite for g in step.passed) and all(g is None or g.finite for g in step.arrived):
            yield f"step {step.number} made inf or nan: {step.node}  {place(step.site)}"
            return


# Tables


class Column:
    """A column of a table. The higher its rank, the later it is left out; without a rank it is always there, but may
    be shortened: at the end of its cells or, with `keep_end`, at their beginning."""

    def __init__(self, title: str, cells: Sequence[str], rank: int | None = None, right=False, keep_end=False):
        self.title, self.cells, self.rank = title, cells, rank
        self.right, self.keep_end = right, keep_end
        self.width = max(map(len, [title, *cells]))

    def shortened(self, i: int) -> str:
        text = self.cells[i]
        if len(text) <= self.width:
            return text
        return "…" + text[len(text) - self.width + 1 :] if self.keep_end else text[: self.width - 1] + "…"


def table(columns: Sequence[Column], width: int, row_styles: Sequence[str]) -> Group | Table:
    """A table of the most important columns that fit, and of the rows that say something in them."""
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
    left_out = dict.fromkeys(c.title for c in columns if c not in shown and any(c.cells))
    if not left_out:
        return result
    return Group(result, _line(f"(too narrow for: {', '.join(left_out)})", "dim"))


def _call_order(steps: Sequence[Step], place, width: int) -> Group | Table:
    """One row per gradient that a step passed on; the first row of a step also says what arrived, when and where."""
    rows, styles = [], []
    for step in steps:
        arrived = [g for g in step.arrived if g is not None]
        passed = [g for g in step.passed if g is not None]
        time = "raised" if step.seconds is None else duration(step.seconds)
        where = step.variable or "(unnamed)" if step.node == "AccumulateGrad" else place(step.site)
        for i in range(max(len(arrived), len(passed), 1)):
            first = (str(step.number), step.node, where, time) if i == 0 else ("", "", "", "")
            rows.append((*first, *_cells(arrived, i)[:2], *_cells(passed, i)))
            styles.append("green" if step.node == "AccumulateGrad" else "red" if step.seconds is None else "")
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


def _cells(gradients: list[Gradient], i: int) -> tuple[str, str, str]:
    if i >= len(gradients):
        return "", "", ""
    g = gradients[i]
    return shape(g.shape), number(g.norm), str(g.step or "")


def _gradients(rows: Sequence[ParameterGradient], width: int) -> Group | Table:
    def cells(value: Callable[[ParameterGradient], str]) -> list[str]:
        return ["" if row.norm is None else value(row) for row in rows]

    columns = [
        Column("name", [row.name for row in rows], keep_end=True),
        Column("shape", [shape(row.shape) for row in rows], 7),
        Column("requires_grad", [str(row.requires_grad) for row in rows], 2),
        Column("norm", ["None" if row.norm is None else number(row.norm) for row in rows], 8),
        Column("min", cells(lambda row: "" if row.min is None else number(row.min)), 4),
        Column("max", cells(lambda row: "" if row.max is None else number(row.max)), 3),
        Column("zeros", cells(lambda row: f"{row.zeros / max(row.size, 1):.0%}" if row.zeros else "0"), 6, right=True),
        Column("nonfinite", cells(lambda row: str(row.nonfinite)), 5, right=True),
    ]
    return table(columns, width, ["red" if row.nonfinite else "yellow" if not row.norm else "" for row in rows])


# The tree


def _tree(steps: Sequence[Step], one: Pass, place) -> Tree:
    """Each step below the one that made it ready. A chain of steps is drawn straight down and only side branches are
    indented, so the depth stays small."""
    children: dict[int, list[Step]] = {}
    ready_after = {}
    for step in steps:
        for g in step.passed:
            if g is not None and g.step is not None:
                ready_after[g.step] = step.number
    for step in steps:
        children.setdefault(ready_after.get(step.number, 0), []).append(step)
    size = {}
    for step in reversed(steps):
        size[step.number] = 1 + sum(size[child.number] for child in children.get(step.number, ()))

    def grow(tree: Tree, step: Step | None) -> None:
        while step is not None:
            branch = tree.add(_label(step, place))
            below = children.get(step.number, [])
            step = max(below, key=lambda child: size[child.number], default=None)
            if step is not None and (step.node == "AccumulateGrad" or len(below) > 1 and size[step.number] <= 2):
                step = None  # the chain ends here, all that is left are leaves
            for child in below:
                if child is not step:
                    side = branch.add(_label(child, place))
                    for grandchild in children.get(child.number, ()):
                        grow(side, grandchild)

    root = Tree(_line(_source(one.site) or one.call, "bold"), guide_style="dim")
    for step in children.get(0, ()):
        grow(root, step)
    return root


def _label(step: Step, place) -> Text:
    label = Text(no_wrap=True, overflow="ellipsis")
    label.append(f"{step.number} ", "dim")
    if step.node == "AccumulateGrad":
        return label.append(f"{step.node}  {step.variable or '(unnamed)'}", "green")
    return label.append(step.node).append(f"  {place(step.site)}".rstrip(), "dim")


# Words


def _places(sites: Sequence[Site | None]) -> Callable[[Site | None], str]:
    """How to write a line of the program: with the file's name alone, or its path where two files share a name."""
    files = {site.file for site in sites if site}
    names = [os.path.basename(file) for file in files]
    short = {file: name if names.count(name) == 1 else os.path.relpath(file) for file, name in zip(files, names)}
    return lambda site: f"{short[site.file]}:{site.line}" if site else ""


def shape(sizes: Sequence[int]) -> str:
    """ "32x64"; "scalar" for no dimensions."""
    return "x".join(map(str, sizes)) or "scalar"


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """ "12 µs", "1.2 ms", "3.4 s"."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            value = seconds * factor
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return f"{seconds:.1f} s"
