"""The graph of a pass as a tree of groups: module calls within module calls, and repetitions folded into one group.

A run of equal neighbours (twenty times Linear and ReLU, thirty residual blocks, the turns of a loop) becomes a group of kind
"repeat", so that a deep network is as small a picture as a shallow one until somebody opens it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..record import Record
    from ..schema import Module, Node, Pass

LONGEST_PERIOD = 48  # of a repetition, in neighbours
FEWEST_TURNS = 3
MOST_CHILDREN = 150  # of a group; more are cut into parts


@dataclass(eq=False)
class Group:
    """Nodes and groups that belong together, in the order in which the program made them.

    `kind`: "all" (the outermost), "module" (one call of `module`), "repeat" (`children` are equal), "turn" (one turn of a
    repetition that has several parts) or "part" (of very many neighbours without a pattern).
    """

    kind: str
    label: str = ""
    module: Module | None = None
    children: list[Group | Node] = field(default_factory=list)

    def nodes(self) -> Iterator[Node]:
        stack = list(reversed(self.children))
        while stack:
            child = stack.pop()
            if isinstance(child, Group):
                stack.extend(reversed(child.children))
            else:
                yield child


def fold(record: Record, one: Pass | None, repeats: bool = True, newest: int | None = None) -> Group:
    """The nodes of a pass (the `newest` of them, if there are more) in groups; with `repeats=False` by module calls alone."""
    nodes = summary.reached(record, one)[-newest if newest else None :]
    whole = Group("all")
    groups: dict[Module, Group] = {}
    home = {node: _home(node.module, groups, whole) for node in nodes if node.leaf is None}
    leaves: dict[Node, list[Group]] = {}
    for node, group in home.items():
        for edge in node.edges:
            if edge is not None and edge.node.leaf is not None:
                leaves.setdefault(edge.node, []).append(group)
    above = {id(child): group for group in (whole, *groups.values()) for child in group.children}
    for node in nodes:
        if node in home:
            home[node].children.append(node)
        else:
            users = leaves.get(node, [])
            group = _common(users, above) if users else whole
            group.children.append(node)
    for group in (whole, *groups.values()):
        _sort(group, leaves)
    _inline(whole)
    if repeats:
        numbers: dict[tuple, int] = {}
        _fold(whole, numbers)
    return whole


def _home(module: Module | None, groups: dict[Module, Group], whole: Group) -> Group:
    """The group of a module call; it and those around it are made when first asked for."""
    if module is None:
        return whole
    if module not in groups:
        groups[module] = Group("module", module.label, module)
        _home(module.parent, groups, whole).children.append(groups[module])
    return groups[module]


def _common(users: Sequence[Group], above: dict[int, Group]) -> Group:
    """The innermost group that all of these are in."""
    paths = []
    for group in dict.fromkeys(users):
        path = [group]
        while id(path[-1]) in above:
            path.append(above[id(path[-1])])
        paths.append(path[::-1])
    common = paths[0][0]
    for level in zip(*paths):
        if any(group is not level[0] for group in level):
            break
        common = level[0]
    return common


def _sort(group: Group, users: dict[Node, list[Group]]) -> None:
    """Into the order of the program: a group is where its call began, a leaf in front of the first node that uses it, or at the
    front if groups within this one use it, too."""
    at: dict[int, float] = {}
    for child in group.children:
        if isinstance(child, Group):
            at[id(child)] = child.module.at if child.module is not None else 0
        elif child.leaf is None:
            at[id(child)] = child.op.at if child.op is not None else child.sequence
            for edge in child.edges:
                if edge is not None and edge.node.leaf is not None and all(user is group for user in users[edge.node]):
                    at[id(edge.node)] = min(at[id(child)] - 0.5, at.get(id(edge.node), float("inf")))
    group.children.sort(key=lambda child: at.get(id(child), -1.0))


def _inline(group: Group) -> None:
    """A module call that made one node is no group: the node stands for it."""
    stack = [group]
    while stack:
        one = stack.pop()
        for i, child in enumerate(one.children):
            if isinstance(child, Group):
                if len(child.children) == 1 and not isinstance(child.children[0], Group):
                    one.children[i] = child.children[0]
                else:
                    stack.append(child)


def _fold(group: Group, numbers: dict[tuple, int]) -> int:
    """Folds repetitions within a group, innermost first; returns a number that is equal for groups of equal structure.

    Recursive over module calls within module calls, whose nesting the program's own stack bounds.
    """
    signs = []
    for child in group.children:
        sign = ("group", _fold(child, numbers)) if isinstance(child, Group) else _sign(child)
        signs.append(numbers.setdefault(sign, len(numbers)))
    whole = ("module", group.module.type if group.module else group.kind, *signs)
    children, i = [], 0
    while i < len(signs):
        period, turns = _run(signs, i)
        if turns < FEWEST_TURNS:
            children.append(group.children[i])
            i += 1
            continue
        run: list[Group | Node] = group.children[i : i + period * turns]
        names = list(dict.fromkeys(_name(child) for child in run[:period] if not _is_leaf(child)) or ["AccumulateGrad"])
        label = " + ".join(names[:3]) + (" + …" if len(names) > 3 else "")
        if period > 1:
            parts = [run[turn * period : (turn + 1) * period] for turn in range(turns)]
            run = [Group("turn", f"{turn} of {turns}", None, part) for turn, part in enumerate(parts, 1)]
        children.append(Group("repeat", label, None, run))
        i += period * turns
    group.children = _parts(children) if len(children) > MOST_CHILDREN else children
    return numbers.setdefault(whole, len(numbers))


def _parts(children: list[Group | Node]) -> list[Group | Node]:
    """Very many neighbours without a pattern, cut into about as many parts as there are neighbours in a part."""
    size = max(math.isqrt(len(children)), 1)
    cuts = range(0, len(children), size)
    return [Group("part", f"part {i} of {len(cuts)}", None, children[start : start + size]) for i, start in enumerate(cuts, 1)]


def _run(signs: Sequence[int], start: int) -> tuple[int, int]:
    """The repetition that begins here and covers most: its period and how often it occurs."""
    best, covered = (1, 1), 0
    for period in range(1, min(LONGEST_PERIOD, (len(signs) - start) // FEWEST_TURNS) + 1):
        end = start + period
        while end < len(signs) and signs[end] == signs[end - period]:
            end += 1
        turns = (end - start) // period
        if turns >= FEWEST_TURNS and turns * period > covered:
            best, covered = (period, turns), turns * period
    return best


def _sign(node: Node) -> tuple:
    """What must be equal for two nodes to count as repetition."""
    tensor = node.leaf or (node.op.outputs[0] if node.op is not None and node.op.outputs else None)
    module = node.module
    site = node.site if module is None and node.leaf is None else None
    return (node.name, tensor.shape if tensor else None, module.type if module else None, site and (site.file, site.line))


def _is_leaf(child: Group | Node) -> bool:
    return not isinstance(child, Group) and child.leaf is not None


def _name(child: Group | Node) -> str:
    """A short name for what a repetition consists of: the class of a module, or the node without its ending."""
    if isinstance(child, Group):
        return child.module.type if child.module is not None else child.label
    return child.name.split("Backward")[0]
