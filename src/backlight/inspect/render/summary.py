"""What several views show and no table has: totals per module call and per line of the program, the flow of gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..record import Record
    from ..schema import Module, Node, Pass, Site, Statistics, Step


@dataclass
class Part:
    """A part of the program during a pass: a module call with all that it called, or a line.

    `weights`: the norm of the gradients of the parameters that it used; `activations`: of the gradient that arrived at the last
    node that it made, that is, at its output. None where nothing was measured. `forward` and `backward` are seconds.
    """

    module: Module | None = None
    site: Site | None = None
    nodes: list[Node] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    leaves: list[Step] = field(default_factory=list)
    bytes: int = 0
    forward: float | None = None
    backward: float | None = None
    weights: float | None = None
    activations: float | None = None
    zeros: float | None = None
    nonfinite: int = 0

    @property
    def label(self) -> str:
        return self.module.label if self.module is not None else ""


def norm(gradients: Iterable[Statistics | None]) -> float | None:
    """The Euclidean norm of several gradients together; None if none was measured."""
    norms = [g.norm for g in gradients if g is not None and g.norm is not None]
    return math.hypot(*norms) if norms else None


def targets(one: Pass) -> dict[tuple[int, int], int]:
    """By step and place among its node's edges: the index of the step that the gradient was passed to, if that ran."""
    index = {step.node: step.index for step in one.steps}
    return {
        (step.index, i): index[edge.node]
        for step in one.steps
        for i, (edge, passed) in enumerate(zip(step.node.edges, step.passed))
        if edge is not None and passed is not None and edge.node in index
    }


def reached(record: Record, one: Pass | None) -> list[Node]:
    """The nodes of a pass, whether or not they ran, oldest first, leaves where they are first used; all nodes if there is no pass."""
    if one is None:
        return record.nodes
    stack = [edge.node for edge in one.root_edges] + [step.node for step in one.steps]
    found = dict.fromkeys(stack)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge.node not in found:
                found[edge.node] = None
                stack.append(edge.node)
    inner = sorted((node for node in found if node.leaf is None), key=lambda node: node.sequence)
    ordered: dict[Node, None] = {}
    for node in inner:
        ordered.update(dict.fromkeys(edge.node for edge in node.edges if edge is not None and edge.node.leaf is not None))
        ordered[node] = None
    return list(ordered | found)


def saved_bytes(nodes: Iterable[Node]) -> int:
    """What these nodes saved for backward; memory that several saved is counted once."""
    sizes: dict[object, int] = {}
    for node in nodes:
        for i, saved in enumerate(node.saved):
            key = (node.number, i) if saved.storage is None else saved.storage
            sizes[key] = max(sizes.get(key, 0), saved.bytes)
    return sum(sizes.values())


def modules(record: Record, one: Pass | None) -> list[Part]:
    """The module calls that made nodes of this pass, in the order of the calls; a call counts what it called."""
    parts: dict[Module, Part] = {}
    step_of = _steps(one)
    for node in reached(record, one):
        module = node.module
        while module is not None:
            part = parts.setdefault(module, Part(module, module.site, forward=module.seconds))
            part.nodes.append(node)
            module = module.parent
    for part in parts.values():
        _fill(part, step_of)
    return sorted(parts.values(), key=lambda part: part.module.number)  # pyright: ignore[reportOptionalMemberAccess]


def lines(record: Record, one: Pass | None) -> list[Part]:
    """The lines of the program that made nodes of this pass."""
    parts: dict[tuple[str, int], Part] = {}
    step_of = _steps(one)
    for node in reached(record, one):
        if node.site is not None:
            parts.setdefault((node.site.file, node.site.line), Part(site=node.site)).nodes.append(node)
    for part in parts.values():
        _fill(part, step_of)
    return list(parts.values())


def flow(record: Record, one: Pass | None) -> list[Part]:
    """The depths of the network, first to last: what a module call did at one line, once (the turns of a loop are apart)."""
    parts: list[Part] = []
    step_of = _steps(one)
    begins = None
    for node in reached(record, one):
        if node.leaf is not None:
            continue
        module, site = node.module, node.site
        last = parts[-1] if parts else None
        begin = (node.name, site)
        if last is None or last.module is not module or _line(last.site) != _line(site) or begin == begins:
            last = Part(module, site)
            parts.append(last)
            begins = begin
        last.nodes.append(node)
    for part in parts:
        _fill(part, step_of)
    return parts


def _line(site: Site | None) -> tuple[str, int] | None:
    return None if site is None else (site.file, site.line)


def _steps(one: Pass | None) -> dict[Node, Step]:
    return {step.node: step for step in one.steps} if one is not None else {}


def _fill(part: Part, step_of: dict[Node, Step]) -> None:
    """Fills in the totals of a part whose nodes are known."""
    leaves = {edge.node: None for node in part.nodes for edge in node.edges if edge is not None and edge.node.leaf is not None}
    part.leaves = [step_of[leaf] for leaf in leaves if leaf in step_of]
    part.steps = [step_of[node] for node in part.nodes if node in step_of]
    part.bytes = saved_bytes(part.nodes)
    part.weights = norm(g for step in part.leaves for g in step.arrived)
    if part.nodes:
        last = step_of.get(max(part.nodes, key=lambda node: node.sequence))
        part.activations = norm(last.arrived) if last is not None else None
    times = [step.seconds for step in part.steps if step.seconds is not None]
    part.backward = sum(times) if times else None
    gradients = [g for step in part.leaves for g in step.arrived if g is not None]
    sizes = sum(g.size for g in gradients if g.zeros is not None)
    part.zeros = sum(g.zeros or 0 for g in gradients) / sizes if sizes else None
    part.nonfinite = sum(_bad(g) for step in [*part.steps, *part.leaves] for g in step.arrived)


def _bad(g: Statistics | None) -> int:
    return (g.nonfinite or 0) if g is not None else 0


def alarms(one: Pass) -> Iterator[tuple[str, Step | None]]:
    """What a reader should see first: what ended the pass early, the first step that made inf or nan."""
    if one.error is not None:
        last = one.steps[-1] if one.steps else None
        raised = last is not None and last.seconds is None
        reason = (one.error.splitlines() or [""])[0]
        yield f"ended {f'in step {last.index}' if last and raised else f'after step {len(one.steps)}'} by {reason}", last
    for step in one.steps:
        if any(map(_bad, step.passed)) and not any(map(_bad, step.arrived)):
            yield f"step {step.index} made inf or nan: {step.name}", step
            return


def numbers(parts: Sequence[Part], what: str) -> list[float | None]:
    """The weights' or activations' norms of these parts, without those that have none."""
    return [value for part in parts if (value := getattr(part, what)) is not None]
