"""The call order of several ranks as a table, and their graphs in one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from .graph import _dot_group, _Picture, _quoted
from .terminal import Column, _cells, plain_console, render, table
from .words import count, places, source

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..ranks import Ranks, RankStep


def to_text(ranks: Ranks, width: int, limit: int, passes: int) -> str:
    """A table for each pass."""
    parts: list[RenderableType] = []
    for number in range(len(ranks.passes))[:passes]:
        parts += ["" for _ in parts[:1]] + _pass(ranks, number, width, limit)
    if len(ranks.passes) > passes:
        parts += ["", Text(f"… and {count(len(ranks.passes) - passes, 'more backward pass')}", "dim")]
    if not ranks.passes:
        parts.append(f"No backward pass ran on {count(len(ranks.records), 'rank')}.")
    return render(parts, plain_console(width))


def _pass(ranks: Ranks, number: int, width: int, limit: int) -> list[RenderableType]:
    order, shares = ranks.order(number), ranks.passes[number]
    place = places([site for record in ranks.records.values() for site in record.sites])
    rows = [_row(one, place) for one in order[:limit]]
    index, rank, node, where, shape_in, norm_in, message = zip(*rows) if rows else ((),) * 7
    columns = [
        Column("#", index, right=True),
        Column("rank", rank, right=True),
        Column("node", node),
        Column("line or leaf", where, keep_end=True),
        Column("message", message),
        Column("grad in", shape_in, 2),
        Column("norm", norm_in, 1),
    ]
    styles = [
        "green" if one.step.node.leaf is not None else "cyan" if one.sends_to or one.waits_for else "" for one in order[:limit]
    ]
    title = f"Backward pass {number + 1} of {len(ranks.passes)} on {count(len(shares), 'rank')}: {count(len(order), 'step')}"
    parts: list[RenderableType] = [Text(title, "bold")]
    parts += [Text(f"rank {r}: {place(one.site)}  {source(one.site)}") for r, one in shares.items() if one.site is not None]
    parts += ["", table(columns, width, styles)]
    if len(order) > limit:
        parts.append(Text(f"… and {count(len(order) - limit, 'more step')}", "dim"))
    return parts


def _row(one: RankStep, place) -> tuple[str, ...]:
    step = one.step
    where = (step.variable or "(unnamed)") if step.node.leaf is not None else place(step.site)
    arrived = [_cells(g) for g in step.arrived if g is not None]
    first = arrived[0] if arrived else ("", "")
    message = ""
    if one.sends_to is not None:
        message = f"to {one.sends_to.index} on rank {one.sends_to.rank}"
    elif one.waits_for is not None:
        message = f"from {one.waits_for.index} on rank {one.waits_for.rank}"
    elif "message" in step.node.parameters:
        message = f"rank {step.node.parameters['rank']}, not recorded"
    return str(one.index), str(one.rank), step.name, where, *first, message


def to_dot(ranks: Ranks, number: int) -> str:
    """A digraph with a cluster for each rank; the dashed edges between them are messages."""
    order = ranks.order(number)
    lines = [
        "digraph backward {",
        '  fontname="Helvetica"; compound=true;',
        '  node [shape=box, style="rounded,filled", fillcolor="#fbfaf7", color="#8d8779", fontname="Helvetica", fontsize=10];',
        '  edge [color="#8d8779", fontname="Helvetica", fontsize=9];',
    ]
    names = {}
    for rank, one in ranks.passes[number].items():
        picture = _Picture(ranks.records[rank], one.number)
        picture.names = {node: f"r{rank}{name}" for node, name in picture.names.items()}
        picture.frames = 1000 * (rank + 1)
        names |= picture.names
        lines.append(f"  subgraph cluster_rank{rank} {{")
        lines.append(f'    label={_quoted(f"rank {rank}")}; labeljust=l; style=rounded; color="#8d8779"; fontsize=12;')
        lines += _dot_group(picture, picture.whole, "    ")
        lines += [f"    {a} -> {b} [label={_quoted(text)}];" for a, b, text, _kind in picture.edges()]
        lines.append("  }")
    for step in order:
        if step.sends_to is not None:
            a, b = names.get(step.step.node), names.get(step.sends_to.step.node)
            if a and b:
                lines.append(f'  {a} -> {b} [style=dashed, color="#2b6cb0", constraint=true];')
    return "\n".join([*lines, "}", ""])
