"""Nested containers as a flat list of leaves and a `TreeSpec` that puts them back: dicts, lists, tuples, named tuples.

>>> leaves, spec = tree_flatten({"a": 1, "b": (2, 3)})
>>> leaves
[1, 2, 3]
>>> tree_unflatten([10, 20, 30], spec)
{'a': 10, 'b': (20, 30)}
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any


class TreeSpec:
    """The shape of a tree: the container type, its context (keys, for dicts) and the specs of its children."""

    __slots__ = ("children", "context", "num_leaves", "type")

    def __init__(self, type, context, children):
        self.type, self.context, self.children = type, context, children
        self.num_leaves = sum([child.num_leaves for child in children]) if type is not None else 1

    def __eq__(self, other) -> bool:
        if not isinstance(other, TreeSpec):
            return NotImplemented
        mine, theirs = (self.type, self.context, self.children), (other.type, other.context, other.children)
        return mine == theirs

    def __hash__(self):
        return hash((self.type, str(self.context), tuple(self.children)))

    def is_leaf(self) -> bool:
        return self.type is None

    def __repr__(self) -> str:
        return self._text(0)

    def _text(self, indent) -> str:
        if self.type is None:
            return "*"
        start = f"TreeSpec({self.type.__name__}, {self.context!r}, ["
        children = [child._text(indent + 2) for child in self.children]
        return start + (",\n" + " " * (indent + 2)).join(children) + "])"


LEAF = TreeSpec(None, None, ())


_CONTAINERS = frozenset((dict, OrderedDict, defaultdict, list, tuple, deque))


def _children(tree) -> tuple[Any, list] | None:
    """(context, children) of a container, None for a leaf."""
    kind = type(tree)
    if kind in (dict, OrderedDict):
        return list(tree), list(tree.values())
    if kind is defaultdict:
        return [tree.default_factory, list(tree)], list(tree.values())
    if kind in (list, tuple):
        return None, list(tree)
    if kind is deque:
        return tree.maxlen, list(tree)
    if isinstance(tree, tuple) and (hasattr(tree, "_fields") or hasattr(kind, "n_sequence_fields")):
        return kind, list(tree)
    return None


def tree_flatten(tree, is_leaf=None) -> tuple[list, TreeSpec]:
    """The leaves of a tree, in order, and its spec. is_leaf(node): containers that count as leaves."""
    leaves: list = []
    return leaves, _flatten(tree, is_leaf, leaves)


def _flatten(tree, is_leaf, leaves) -> TreeSpec:
    """Appends the leaves of a tree to `leaves`."""
    found = None
    if (type(tree) in _CONTAINERS or isinstance(tree, tuple)) and not (is_leaf is not None and is_leaf(tree)):
        found = _children(tree)
    if found is None:
        leaves.append(tree)
        return LEAF
    context, children = found
    return TreeSpec(type(tree), context, [_flatten(child, is_leaf, leaves) for child in children])


def tree_unflatten(leaves, treespec):
    """The tree with these leaves."""
    iterator = iter(leaves)
    leaves = None
    return _build(treespec, iterator)


def _build(spec, leaves):
    if spec.type is None:
        return next(leaves)
    children = [_build(child, leaves) for child in spec.children]
    if spec.type in (dict, OrderedDict):
        return spec.type(zip(spec.context, children))
    if spec.type is defaultdict:
        return defaultdict(spec.context[0], zip(spec.context[1], children))
    if spec.type is deque:
        return deque(children, maxlen=spec.context)
    if hasattr(spec.type, "_fields"):
        return spec.type(*children)
    return spec.type(children)


class _Star:
    def __repr__(self):
        return "*"


def treespec_pprint(treespec) -> str:
    """The tree with * for every leaf, as text."""
    return repr(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


def tree_leaves(tree, is_leaf=None) -> list:
    """The leaves of a tree, in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(function, tree, *others, is_leaf=None):
    """The tree with `function` applied to each leaf (with those of `others` at the same place)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    rest = [tree_flatten(other, is_leaf)[0] for other in others]
    return tree_unflatten([function(*each) for each in zip(leaves, *rest, strict=True)], spec)


def tree_map_only(kind, function, tree):
    """tree_map over the leaves of a type (or of several); the others stay as they are."""
    return tree_map(lambda x: function(x) if isinstance(x, kind) else x, tree)


def broadcast_to_and_flatten(tree, treespec):
    """The leaves of `tree` repeated to fit `treespec`, of which it is a prefix; None where it isn't one."""
    if treespec.type is None:
        return [tree] if _children(tree) is None else None
    found = _children(tree)
    if found is None:
        return [tree] * treespec.num_leaves
    context, children = found
    if type(tree) is not treespec.type or context != treespec.context or len(children) != len(treespec.children):
        return None
    result = []
    for child, spec in zip(children, treespec.children, strict=True):
        leaves = broadcast_to_and_flatten(child, spec)
        if leaves is None:
            return None
        result += leaves
    return result


_broadcast_to_and_flatten = broadcast_to_and_flatten
