"""Why each step of a backward pass ran when it did: the ready queue, replayed from the recorded graph."""

from __future__ import annotations

import os
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from ..sweeps import ReadyQueue

if TYPE_CHECKING:
    from .record import Record
    from .schema import Node, Pass, Step


@dataclass(slots=True)
class OrderedStep:
    """One step: which other nodes were `ready`, which had a gradient but were `waiting` for more (and for how many), and the
    `reason` why this one ran."""

    number: int
    node: Node
    ready: list[Node]
    waiting: list[tuple[Node, int]]
    reason: str
    step: Step | None


@dataclass(slots=True)
class Order:
    """The predicted order of a pass. `agrees`: whether the recorded one is the same."""

    of: Pass
    steps: list[OrderedStep]
    agrees: bool

    def __str__(self) -> str:
        lines = [
            f"Order of {self.of.call}() at {os.path.basename(self.of.site.file)}:{self.of.site.line}"
            if self.of.site is not None
            else f"Order of {self.of.call}()"
        ]
        lines[0] += ": as predicted" if self.agrees else ": not as predicted"
        labels = [_label(s.node) for s in self.steps]
        width = max(map(len, labels), default=0)
        for s, label in zip(self.steps, labels):
            lines.append(f"{s.number:4}  {label:{width}}  {s.reason}")
            if s.ready:
                lines.append(f"      {'':{width}}  also ready: {', '.join(map(_label, s.ready))}")
            if s.waiting:
                lines.append(f"      {'':{width}}  waiting: {', '.join(f'{_label(n)} (for {k} more)' for n, k in s.waiting)}")
        return "\n".join(lines)


def _label(node: Node) -> str:
    """A node's name, with the variable or expression that it belongs to."""
    if node.leaf is not None or node.op is None or not node.op.outputs:
        return node.label
    text = node.op.outputs[0].label
    return f"{node.name} of {text}" if len(text) <= 24 else node.name


def order(record: Record, number: int = 0) -> Order:
    """Predicts the order of the pass with this number from its graph and compares it with the recorded one."""
    if not 0 <= number < len(record.passes):
        raise IndexError(f"there is no pass {number}: the record has {len(record.passes)}")
    one = record.passes[number]
    ran = {step.node.number: step for step in one.steps}
    waiting = _reachable(one)
    for edge in one.root_edges:
        waiting[edge.node.number] += 1
    missing = dict(waiting)
    queue = ReadyQueue(attrgetter("sequence"))

    partly: dict[int, Node] = {}  # nodes that have a gradient, and wait for more

    def arrive(node: Node) -> None:
        missing[node.number] -= 1
        if missing[node.number]:
            partly[node.number] = node
        else:
            partly.pop(node.number, None)
            queue.push(node)

    for edge in one.root_edges:
        arrive(edge.node)
    steps: list[OrderedStep] = []
    while queue.heap:
        node = queue.pop()
        ready = [n for n in queue.heap if n.number in ran]
        waits = [(n, missing[k]) for k, n in partly.items() if k in ran]
        if node.number in ran:
            steps.append(OrderedStep(len(steps) + 1, node, ready, waits, _reason(node, ready), ran[node.number]))
        for edge in node.edges:
            if edge is not None:
                arrive(edge.node)
    agrees = [s.node for s in steps] == [s.node for s in one.steps]
    return Order(one, steps, agrees)


def _reachable(one: Pass) -> dict[int, int]:
    """How many edges lead to each node behind the roots of a pass, by the node's number."""
    todo = list({edge.node.number: edge.node for edge in one.root_edges}.values())
    waiting = {node.number: 0 for node in todo}
    for node in todo:  # grows while it is walked
        for edge in node.edges:
            if edge is not None:
                if edge.node.number not in waiting:
                    waiting[edge.node.number] = 0
                    todo.append(edge.node)
                waiting[edge.node.number] += 1
    return waiting


def _reason(node: Node, ready: list[Node]) -> str:
    if not ready:
        return "the only one that was ready"
    others = [n for n in ready if n.leaf is None]
    if node.leaf is not None:
        return "its last gradient arrived, and a leaf runs before everything else that is ready"
    if not others:
        return f"created last of the ready ones (sequence {node.sequence})"
    newest = max(others, key=attrgetter("sequence"))
    return f"created after {newest.label} (sequence {node.sequence} > {newest.sequence}): the newest ready node runs first"
