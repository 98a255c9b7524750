"""The graph of a pass in Graphviz' and in Mermaid's language: module calls as frames, gradients flowing down to the leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .fold import Group, fold
from .words import number, places, printable, shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..record import Record
    from ..schema import Node, Pass, Statistics, Step


def to_dot(record: Record, number: int = 0) -> str:
    """A digraph: nodes with their lines and steps, leaves as green pills, red edges where a gradient isn't finite."""
    picture = _Picture(record, number)
    lines = [
        "digraph backward {",
        f"  label={_quoted(picture.title)};",
        '  labelloc=t; fontname="Helvetica"; compound=true;',
        '  node [shape=box, style="rounded,filled", fillcolor="#fbfaf7", color="#8d8779", fontname="Helvetica", fontsize=10];',
        '  edge [color="#8d8779", fontname="Helvetica", fontsize=9];',
        *_dot_group(picture, picture.whole, "  "),
    ]
    for source, target, text, kind in picture.edges():
        style = {"bad": ', color="#c22b2b", penwidth=2', "zero": ", style=dashed"}.get(kind, "")
        lines.append(f"  {source} -> {target} [label={_quoted(text)}{style}];")
    return "\n".join([*lines, "}", ""])


def _dot_group(picture: _Picture, group: Group, indent: str) -> Iterator[str]:
    for child in group.children:
        if not isinstance(child, Group):
            leaf = ', style="rounded,filled", shape=box, fillcolor="#eaf6ee", color="#1f7a48"' if child.leaf is not None else ""
            bad = ', color="#c22b2b", penwidth=2' if picture.bad(child) else ""
            yield f"{indent}{picture.names[child]} [label={_quoted(picture.label(child))}{leaf}{bad}];"
            continue
        yield f"{indent}subgraph cluster_{picture.frame()} {{"
        yield f'{indent}  label={_quoted(picture.heading(child))}; labeljust=l; style=rounded; color="#dfdad0"; fontsize=10;'
        yield from _dot_group(picture, child, indent + "  ")
        yield f"{indent}}}"


def _quoted(text: str) -> str:
    """A string of the DOT language: a backslash and a quotation mark would end or change it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def to_mermaid(record: Record, number: int = 0) -> str:
    """A flowchart with the same nodes and frames."""
    picture = _Picture(record, number)
    lines = ["flowchart TD", *_mermaid_group(picture, picture.whole, "  ")]
    for source, target, text, kind in picture.edges():
        arrow = {"bad": "==>", "zero": "-.->"}.get(kind, "-->")
        lines.append(f"  {source} {arrow}{f'|{_entities(text)}|' if text else ''} {target}")
    lines += [
        "  classDef leaf fill:#eaf6ee,stroke:#1f7a48,color:#14532d",
        "  classDef bad stroke:#c22b2b,stroke-width:3px",
    ]
    for kind, wanted in (("leaf", lambda node: node.leaf is not None), ("bad", picture.bad)):
        names = [name for node, name in picture.names.items() if wanted(node)]
        if names:
            lines.append(f"  class {','.join(names)} {kind}")
    return "\n".join([*lines, ""])


def _mermaid_group(picture: _Picture, group: Group, indent: str) -> Iterator[str]:
    for child in group.children:
        if not isinstance(child, Group):
            brackets = ("([", "])") if child.leaf is not None else ("[", "]")
            yield f"{indent}{picture.names[child]}{brackets[0]}{_entities(picture.label(child))}{brackets[1]}"
            continue
        yield f"{indent}subgraph frame{picture.frame()}[{_entities(picture.heading(child))}]"
        yield from _mermaid_group(picture, child, indent + "  ")
        yield f"{indent}end"


def _entities(text: str) -> str:
    """A quoted label of Mermaid: what could be markup or end the label is written as a character's number."""
    return '"' + "".join(c if c.isalnum() or c in " .,:/_-+()=" else "<br>" if c == "\n" else f"#{ord(c)};" for c in text) + '"'


class _Picture:
    """What both languages write: nodes with names and labels, edges with labels."""

    def __init__(self, record: Record, number: int):
        if record.passes and not 0 <= number < len(record.passes):
            raise IndexError(f"there is no pass {number}: the record has {len(record.passes)}")
        self.one: Pass | None = record.passes[number] if record.passes else None
        self.whole = fold(record, self.one, repeats=False)
        self.names: dict[Node, str] = {node: f"n{i}" for i, node in enumerate(self.whole.nodes())}
        self.steps: dict[Node, Step] = {step.node: step for step in self.one.steps} if self.one is not None else {}
        self.place: Callable = places(record.sites)
        self.title = f"{self.one.call} at {self.place(self.one.site)}" if self.one is not None else "no backward pass"
        self.frames = 0

    def frame(self) -> int:
        self.frames += 1
        return self.frames

    def heading(self, group: Group) -> str:
        kind = group.module.type if group.module is not None and group.module.name else ""
        return printable(f"{group.label} {kind}".strip())

    def label(self, node: Node) -> str:
        """The name of a node or leaf, then its step, line and shape."""
        step = self.steps.get(node)
        if node.leaf is not None:
            first, tensor, second = printable(node.leaf.label), node.leaf, ""
        else:
            tensor = node.op.outputs[0] if node.op is not None and node.op.outputs else None
            first, second = printable(node.name), self.place(node.site)
        parts = [f"{step.index}." if step else "", second, shape(tensor.shape) if tensor is not None else ""]
        return f"{first}\n{' '.join(filter(None, parts))}".rstrip()

    def bad(self, node: Node) -> bool:
        step = self.steps.get(node)
        return step is not None and any(g is not None and g.nonfinite for g in step.arrived)

    def edges(self) -> Iterator[tuple[str, str, str, str]]:
        """Source, target, the norm of the gradient, and "bad" if it isn't finite, "zero" if it is zero."""
        for node, name in self.names.items():
            step = self.steps.get(node)
            for i, edge in enumerate(node.edges):
                if edge is not None and edge.node in self.names:
                    passed = step.passed[i] if step is not None and i < len(step.passed) else None
                    yield name, self.names[edge.node], number(passed.norm) if passed is not None else "", _kind(passed)


def _kind(passed: Statistics | None) -> str:
    if passed is None:
        return ""
    return "bad" if passed.nonfinite else "zero" if passed.norm == 0 else ""
