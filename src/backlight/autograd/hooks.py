"""How hooks are added and removed: tensors, nodes, modules and optimizers share it."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict

_ids = itertools.count()


class RemovableHandle:
    """Takes a hook out of its table again: by `remove()`, or at the end of a `with` block.

    The hook lies under `handle.id` in `hooks`, and perhaps in `extra_dict` (one table, or a list of them) that holds
    facts about hooks. The tables are held weakly, so a handle keeps no tensor and no module alive.
    """

    __slots__ = ("__weakref__", "_tables", "id")

    def __init__(self, hooks: OrderedDict, *, extra_dict: OrderedDict | list[OrderedDict] | None = None) -> None:
        if extra_dict is None:
            extra_dict = []
        elif not isinstance(extra_dict, list):
            extra_dict = [extra_dict]
        self._tables = [weakref.ref(table) for table in (hooks, *extra_dict)]
        self.id = next(_ids)

    def remove(self) -> None:
        """Remove the hook. Doing it twice is harmless."""
        for reference in self._tables:
            table = reference()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self):
        return [reference() for reference in self._tables], self.id

    def __setstate__(self, state) -> None:
        tables, self.id = state
        # A table that is gone is replaced by a fresh empty one: its reference is dead at once, as it was before.
        self._tables = [weakref.ref(OrderedDict() if table is None else table) for table in tables]

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_exception) -> None:
        self.remove()


def add_hook(table: OrderedDict, hook, *, prepend: bool = False, flags=()) -> RemovableHandle:
    """Adds `hook` to `table`; each of `flags`, a table of facts, gets an entry True for it."""
    handle = RemovableHandle(table, extra_dict=list(flags))
    table[handle.id] = hook
    for flag in flags:
        flag[handle.id] = True
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle
