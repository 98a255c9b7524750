"""`Record`: the tables of what was recorded, the questions one can ask them, and reading and writing them."""

from __future__ import annotations

import json
import os
from functools import cached_property
from itertools import count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from ..files import replacing
from . import schema
from .schema import TABLES, Event, Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .explain import Finding
    from .order import Order
    from .replay import Replay

POLICIES = ("shapes", "norms", "full")
T = TypeVar("T")


class Table(list[T]):
    """The lines of one kind, each at the place that is its number. `numbers` hands the numbers out, to any thread, without a lock."""

    __slots__ = ("numbers",)

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()


class Record:
    """What autograd did while a recording was on, as plain data (docs/record.md documents it).

    The tables: `sites`, `tensors`, `nodes`, and of events `modules` (calls), `ops`, `writes`, `modes`, `passes`, `steps`, `hooks`,
    `registrations`, `gradient_writes`, `optimizers`, `errors`. `events` has all events in the order in which they happened.

    >>> import backlight as torch
    >>> w = torch.tensor(3., requires_grad=True)
    >>> with torch.inspect.record() as record:
    ...     w.exp().backward()
    >>> [step.name for step in record.passes[0].steps]
    ['ExpBackward0', 'AccumulateGrad']
    """

    def __init__(self, engine: str = "backlight", engine_version: str = "", policy: str = "shapes", program: str = ""):
        self.engine = engine
        self.engine_version = engine_version
        self.policy = policy
        self.program = program
        self.rank: int | None = None
        """Which process of a job this is the record of, if `inspect.gather` collected it."""
        self.not_observable: list[str] = []
        """What the engine doesn't expose, in words: such fields are None or empty, never guessed."""
        self.dropped = 0
        """How many events a bounded recording (`inspect.watch`) let go of."""
        self.sites: Table[schema.Site] = Table()
        self.tensors: Table[schema.Tensor] = Table()
        self.nodes: Table[schema.Node] = Table()
        self.modules: Table[schema.Module] = Table()
        self.ops: Table[schema.Op] = Table()
        self.writes: Table[schema.Write] = Table()
        self.modes: Table[schema.Mode] = Table()
        self.passes: Table[schema.Pass] = Table()
        self.steps: Table[schema.Step] = Table()
        self.hooks: Table[schema.Hook] = Table()
        self.registrations: Table[schema.Registration] = Table()
        self.gradient_writes: Table[schema.GradientWrite] = Table()
        self.optimizers: Table[schema.Optimizer] = Table()
        self.errors: Table[schema.Error] = Table()
        self.events: Table[Event] = Table()

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(table)} {name}" for name in TABLES if (table := getattr(self, name)))
        return f"<Record of {self.program or 'a program'} on {self.engine}: {counts or 'nothing happened'}>"

    # Answers

    @cached_property
    def findings(self) -> list[Finding]:
        """What is wrong or remarkable, the most severe first. Each has kind, severity, sites, numbers, fix and text."""
        from .explain import findings

        return findings(self)

    def order(self, number: int = 0) -> Order:
        """Why each step of the pass with this number ran when it did."""
        from .order import order

        return order(self, number)

    def step(self, number: int = 0) -> Replay:
        """Replays the pass with this number on Backlight's engine, step by step, forwards and back (policy "full")."""
        from .replay import Replay

        return Replay(self, number)

    # Views

    def to_text(self, width: int = 80, steps: int = 100, passes: int = 3) -> str:
        """Findings, tables and trees as plain text that is at most `width` columns wide: the first `passes`, and of each the first `steps`."""
        from .render import terminal

        return terminal.to_text(self, width, steps, passes)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One page that works without a network, as text; also written to `path` if given."""
        from .render import html

        return self._written(html.to_html(self), path)

    def to_dot(self, number: int = 0, *, path: str | os.PathLike[str] | None = None) -> str:
        """The graph of a pass in Graphviz' language."""
        from .render import graph

        return self._written(graph.to_dot(self, number), path)

    def to_mermaid(self, number: int = 0, *, path: str | os.PathLike[str] | None = None) -> str:
        """The graph of a pass in Mermaid's language."""
        from .render import graph

        return self._written(graph.to_mermaid(self, number), path)

    def to_chrome_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """The events with their times as Chrome's trace JSON, which Perfetto opens."""
        from .render import chrome

        return self._written(chrome.to_chrome_trace(self), path)

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The backward steps as comma-separated values, one per line."""
        from .render import table

        return self._written(table.to_csv(self), path)

    def figure(self, number: int = 0) -> Any:
        """The gradient flow of a pass as a matplotlib figure (extra "plot")."""
        from .render import plot

        return plot.figure(self, number)

    def _repr_html_(self) -> str:
        from .render import html

        return html.to_notebook(self)

    @staticmethod
    def _written(text: str, path: str | os.PathLike[str] | None) -> str:
        if path is not None:
            with replacing(path) as file:
                file.write(text)
        return text

    # Files

    def lines(self) -> Iterator[dict[str, Any]]:
        """The record as dictionaries of plain values, one per line of its file: the header, what has no time, then the events."""
        for site in self.sites:
            site.read_source()
        yield {
            "kind": "Record", "schema": schema.VERSION, "engine": self.engine, "engine_version": self.engine_version,
            "policy": self.policy, "program": self.program, "not_observable": self.not_observable, "dropped": self.dropped,
            **({} if self.rank is None else {"rank": self.rank}),
        }  # fmt: skip
        for table in ("sites", "tensors", "nodes"):
            yield from map(schema.encode, getattr(self, table))
        yield from map(schema.encode, self.events)

    def to_jsonl(self, path: str | os.PathLike[str] | None = None) -> str:
        """The record in its canonical form, JSON Lines, from which `Record.read` makes an equal one."""
        return self._written("".join(json.dumps(line, allow_nan=False) + "\n" for line in self.lines()), path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Record:
        """The record in a file that `to_jsonl` wrote. ValueError names the line that doesn't fit."""
        with open(path, encoding="utf-8") as file:
            return cls.from_jsonl(file, os.fspath(path))

    @classmethod
    def from_jsonl(cls, text: str | Iterable[str], where: str = "text") -> Record:
        """The record in this text."""
        parsed = []
        for number, line in enumerate(text.splitlines() if isinstance(text, str) else text, 1):
            try:
                data = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{where}, line {number}: not JSON ({error})") from None
            if not isinstance(data, dict) or "kind" not in data:
                raise ValueError(f"{where}, line {number}: expected an object with a 'kind', got {line[:60].strip()!r}")
            parsed.append(data)
        if not parsed or parsed[0]["kind"] != "Record":
            raise ValueError(f'{where}: the first line must be a record\'s header, with "kind": "Record"')
        header = parsed[0]
        if header.get("schema") != schema.VERSION:
            raise ValueError(
                f"{where}: this is a record of schema {header.get('schema')!r}, and this version of Backlight reads {schema.VERSION}"
            )
        result = cls(*(header.get(key, "") for key in ("engine", "engine_version", "policy", "program")))
        result.not_observable, result.dropped = header.get("not_observable", []), header.get("dropped", 0)
        result.rank = header.get("rank")
        result._fill(parsed[1:], where)
        return result

    def _fill(self, parsed: list[dict[str, Any]], where: str) -> None:
        kinds = {kind.__name__: kind for kind in TABLES.values()}
        tables: dict[type, list[Any]] = {kind: getattr(self, name) for name, kind in TABLES.items()}
        lines: list[Line] = []
        for number, data in enumerate(parsed, 2):
            kind = kinds.get(data["kind"])
            if kind is None:
                raise ValueError(f"{where}, line {number}: there is no kind {data['kind']!r}")
            if data.get("number") != len(tables[kind]):
                raise ValueError(
                    f"{where}, line {number}: expected {kind.__name__} number {len(tables[kind])}, got {data.get('number')!r}"
                )
            lines.append(schema.empty(kind))
            tables[kind].append(lines[-1])
        for number, (line, data) in enumerate(zip(lines, parsed), 2):
            try:
                schema.decode(line, data, tables)
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{where}, line {number}: {error}") from None
        self.events.extend(sorted((x for x in lines if isinstance(x, Event)), key=attrgetter("at")))
        for step in self.steps:
            step.in_pass.steps.append(step)

    def put_in_order(self) -> None:
        """Puts every line at the place that is its number: several threads may have added theirs in another order."""
        for name in TABLES:
            getattr(self, name).sort(key=attrgetter("number"))
        self.events.sort(key=attrgetter("at"))

    # Looking things up

    def tensor(self, name: str) -> schema.Tensor:
        """The tensor with this name (the last one, if there were several). KeyError lists the names there are."""
        for tensor in reversed(self.tensors):
            if tensor.name == name or tensor.label == name:
                return tensor
        known = sorted({t.name for t in self.tensors if t.name})
        raise KeyError(f"no tensor is called {name!r}; there are {', '.join(known) or 'no names'}")
