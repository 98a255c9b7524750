"""What a profile found: events, their averages, and tables of them. Times are in microseconds."""

from __future__ import annotations

import json
import os
from collections import defaultdict

from ..files import replacing

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]


def _format_time(time_us) -> str:
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if time_us >= scale:
            return f"{time_us / scale:.3f}{unit}"
    return f"{time_us:.3f}us"


def _format_time_share(time_us, total_time_us) -> str:
    return f"{time_us * 100.0 / total_time_us:.2f}%" if total_time_us else "NaN"


class Interval:
    """From `start` to `end`."""

    __slots__ = ("end", "start")

    def __init__(self, start, end):
        self.start, self.end = start, end

    def elapsed_us(self):
        return self.end - self.start


class _Times:
    """What events and averages have in common: times as text, and averages over `count`."""

    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    device_time_total = self_device_time_total = device_time = cuda_time_total = cuda_time = 0

    @property
    def cpu_time(self) -> float:
        return 0.0 if self.count == 0 else 1.0 * self.cpu_time_total / self.count

    cpu_time_str = property(lambda self: _format_time(self.cpu_time))
    cpu_time_total_str = property(lambda self: _format_time(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: _format_time(self.self_cpu_time_total))


class FunctionEvent(_Times):
    """One call of an operation, a backward node, or a `record_function` block."""

    def __init__(self, id, name, thread, start_us, end_us, node_id=-1, input_shapes=None, sequence_nr=-1, fwd_thread=None, stack=None,
                 scope=0):  # fmt: skip
        self.id, self.name, self.trace_name, self.thread, self.node_id = id, name, name, thread, node_id
        self.time_range = Interval(start_us, end_us)
        self.input_shapes, self.sequence_nr, self.fwd_thread = input_shapes, sequence_nr, fwd_thread
        self.stack, self.scope, self.count = stack or [], scope, 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent = None
        self.is_async = self.is_remote = self.is_legacy = False

    @property
    def key(self) -> str:
        return self.name

    def append_cpu_child(self, child) -> None:
        self.cpu_children.append(child)
        child.cpu_parent = self

    @property
    def cpu_time_total(self) -> float:
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} node_id={self.node_id} cpu_time={self.cpu_time_str} "
            f"start_us={self.time_range.start:.3f} end_us={self.time_range.end:.3f} "
            f"cpu_children={[child.id for child in self.cpu_children]} thread={self.thread} input_shapes={self.input_shapes} "
            f"seq_nr={self.sequence_nr}>"
        )


class FunctionEventAvg(_Times):
    """Events with one name (and input shapes, if grouped by them), added up."""

    def __init__(self):
        self.key = None
        self.count = self.node_id = 0
        self.cpu_time_total = self.self_cpu_time_total = 0
        self.input_shapes = None
        self.stack, self.scope, self.cpu_parent = [], None, None

    def add(self, other):
        """Adds an event or another average."""
        if self.key is None:
            self.key, self.node_id, self.input_shapes = other.key, other.node_id, other.input_shapes
            self.stack, self.scope, self.cpu_parent = other.stack, other.scope, other.cpu_parent
        if other.key != self.key:
            raise ValueError(f"can't add events of {other.key!r} to those of {self.key!r}")
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.count += other.count
        return self

    def __iadd__(self, other):
        return self.add(other)

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
            f"input_shapes={self.input_shapes}>"
        )


class EventList(list):
    """Events in the order in which they began; `table()` and `str()` show them.

    >>> events = EventList([FunctionEvent(0, "mine", 1, 0.0, 2.0), FunctionEvent(1, "mine", 1, 2.0, 6.0)])
    >>> events.key_averages()[0].cpu_time_total
    6.0
    """

    def _populate_cpu_children(self) -> None:
        """Makes each event the child of the innermost event of its thread that encloses it."""
        threads = defaultdict(list)
        for event in self:
            threads[(event.thread, event.node_id)].append(event)
        for events in threads.values():
            running: list[FunctionEvent] = []
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end)):
                while running and (
                    event.time_range.start >= running[-1].time_range.end or event.time_range.end > running[-1].time_range.end
                ):
                    running.pop()
                if running:
                    running[-1].append_cpu_child(event)
                running.append(event)

    @property
    def self_cpu_time_total(self) -> float:
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shape=False, group_by_stack_n=0):
        """The events of each name (and input shapes) added up, in order of first appearance."""
        del group_by_stack_n  # accepted: there are no stacks to group by unless with_stack
        groups: dict = {}
        for event in self:
            key = (event.key, event.node_id, str(event.input_shapes) if group_by_input_shape else "")
            if key not in groups:
                groups[key] = FunctionEventAvg()
            groups[key].add(event)
        averages = EventList(groups.values())
        for average in averages:
            if not group_by_input_shape:
                average.input_shapes = None
        return averages

    def total_average(self):
        """All events added up, under the key "Total"."""
        total = FunctionEventAvg()
        for event in self:
            total.key = event.key
            total.add(event)
        total.key = "Total"
        return total

    def __str__(self) -> str:
        return self.table()

    def table(self, sort_by=None, row_limit=100, max_src_column_width=75, max_name_column_width=55, max_shapes_column_width=80,
              header=None, top_level_events_only=False):  # fmt: skip
        """The events as text. sort_by: a time or "count", largest first; row_limit: -1 for all rows."""
        del max_src_column_width
        events = list(self)
        if sort_by is not None:
            events.sort(key=lambda e: getattr(e, sort_by), reverse=True)
        if not events:
            return ""
        total = sum(e.self_cpu_time_total for e in events)
        has_shapes = any(e.input_shapes is not None for e in events)
        has_nodes = any(e.node_id != -1 for e in events)
        name_width = min(max(len(e.key) for e in events) + 4, max_name_column_width)
        columns = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls"]
        columns += ["Node ID"] * has_nodes + ["Input Shapes"] * has_shapes
        widths = [name_width] + [12] * (6 + has_nodes)
        if has_shapes:
            longest = max(len(str(e.input_shapes)) for e in events) + 4
            widths.append(max(12, min(longest, max_shapes_column_width)))
        line = "".join("-" * w + "  " for w in widths)
        rows = ["".join(f"{c:>{w}}  " for c, w in zip(columns, widths))]
        shown = 0
        for event in events:
            if top_level_events_only and event.cpu_parent is not None:
                continue
            if shown == row_limit:
                break
            shown += 1
            cells = [
                _shortened(event.key, name_width),
                _format_time_share(event.self_cpu_time_total, total),
                event.self_cpu_time_total_str,
                _format_time_share(event.cpu_time_total, total),
                event.cpu_time_total_str,
                event.cpu_time_str,
                event.count,
            ]
            cells += [event.node_id] * has_nodes + [_shortened(str(event.input_shapes), widths[-1])] * has_shapes
            rows.append("".join(f"{c:>{w}}  " for c, w in zip(cells, widths)))
        head = (
            ["=" * len(line), header, *(["This report only display top-level ops statistics"] * top_level_events_only)]
            if header
            else []
        )
        return "\n".join([*head, line, rows[0], line, *rows[1:], line, f"Self CPU time total: {_format_time(total)}", ""])

    def export_chrome_trace(self, path) -> None:
        """Writes the events as a Chrome trace (JSON), to be opened in chrome://tracing or Perfetto."""
        trace = [
            {
                "ph": "X", "cat": "user_annotation" if not e.name.startswith(("aten::", "autograd::")) and "Backward" not in e.name
                else "cpu_op", "name": e.name, "pid": os.getpid(), "tid": e.thread, "ts": e.time_range.start,
                "dur": e.time_range.elapsed_us(),
                "args": {"Input Dims": e.input_shapes or [], "Sequence number": e.sequence_nr},
            }
            for e in self
        ]  # fmt: skip
        with replacing(path) as file:
            json.dump({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": trace}, file)


def _shortened(text, width) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
