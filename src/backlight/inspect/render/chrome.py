"""The events of a record with their times in Chrome's trace format, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from .words import places, shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..record import Record
    from ..schema import Event, Op, Pass, Site, Statistics

PROCESS = 1


def to_chrome_trace(record: Record) -> str:
    """Module calls, operations, passes with their steps, and optimizer calls as spans on the thread they ran on; in-place writes,
    hooks and errors as marks; and a counter of the bytes that the graph holds. Times are in microseconds."""
    place = places(record.sites)
    threads = {thread: i for i, thread in enumerate(dict.fromkeys(event.thread for event in record.events))}
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": PROCESS, "args": {"name": _name(record)}}]
    for i in threads.values():
        name = "main" if i == 0 else f"thread {i}"
        events.append({"name": "thread_name", "ph": "M", "pid": PROCESS, "tid": i, "args": {"name": name}})
    for event in _events(record, place):
        event["tid"] = threads[event["tid"]]
        events.append(event)
    events.extend(_counter(record))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}, allow_nan=False)


def _name(record: Record) -> str:
    return f"{os.path.basename(record.program) or 'a program'} on {record.engine}"


def _events(record: Record, place: Callable[[Site | None], str]) -> Iterator[dict[str, Any]]:
    for module in record.modules:
        name = f"{module.label} ({module.type})" if module.name else module.type
        yield _span(module, name, "module", module.seconds, line=place(module.site), call=module.call)
    beginnings = _beginnings(record)
    for op in record.ops:
        facts = {
            "line": place(op.site),
            "inputs": [shape(x.shape) for x in op.inputs],
            "outputs": [shape(x.shape) for x in op.outputs],
        }
        began = beginnings[op.number]
        yield _span(op, op.function, "forward" if op.during is None else "backward", op.time - began, began=began, **facts)
    for one in record.passes:
        yield _span(one, one.call, "backward", _length(one), line=place(one.site), nodes=one.nodes, error=one.error)
        for step in one.steps:
            facts = {"step": step.index, "line": place(step.site), "leaf": step.variable}
            facts |= {"in": list(map(_gradient, step.arrived)), "out": list(map(_gradient, step.passed))}
            yield _span(step, step.name, "backward", step.seconds, **facts)
    for call in record.optimizers:
        yield _span(call, f"{call.type}.{call.call}", "optimizer", call.seconds, line=place(call.site))
    for write in record.writes:
        versions = f"{write.before} -> {write.after}"
        yield _mark(write, "in-place write", tensor=write.tensor.label, version=versions, line=place(write.site))
    for hook in record.hooks:
        yield _mark(hook, f"hook {hook.function}", kind=hook.type, registered=place(hook.registered), changed=hook.changed)
    for error in record.errors:
        yield _mark(error, error.type, text=error.text, line=place(error.site))


def _span(
    event: Event, name: str, category: str, seconds: float | None, began: float | None = None, **facts: Any
) -> dict[str, Any]:
    start = event.time if began is None else began
    return {
        "name": name, "cat": category, "ph": "X", "ts": _microseconds(start), "dur": _microseconds(seconds or 0.0), "pid": PROCESS,
        "tid": event.thread, "args": _known(facts),
    }  # fmt: skip


def _mark(event: Event, name: str, **facts: Any) -> dict[str, Any]:
    return {
        "name": name, "cat": "mark", "ph": "i", "s": "t", "ts": _microseconds(event.time), "pid": PROCESS, "tid": event.thread,
        "args": _known(facts),
    }  # fmt: skip


def _known(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in (None, "", [])}


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _gradient(g: Statistics | None) -> str:
    """JSON has no NaN, so numbers of gradients are texts."""
    return "none" if g is None else shape(g.shape) if g.norm is None else f"{shape(g.shape)}, norm {g.norm:.6g}"


def _length(one: Pass) -> float:
    """How long a pass took; up to the end of its last step where that wasn't measured."""
    if one.seconds is not None:
        return one.seconds
    return max((step.time + (step.seconds or 0.0) - one.time for step in one.steps), default=0.0)


def _beginnings(record: Record) -> list[float]:
    """When each operation began: its event is its end, and it began when whatever happened before it on its thread was over."""
    moments: dict[int, list[float]] = {}
    for event in record.events:
        seconds: float | None = getattr(event, "seconds", None)
        moments.setdefault(event.thread, []).extend([event.time] if seconds is None else [event.time, event.time + seconds])
    for times in moments.values():
        times.sort()
    result = []
    for op in record.ops:
        times = moments[op.thread]
        before = bisect_left(times, op.time) - 1
        result.append(times[before] if before >= 0 else op.time)
    return result


def _counter(record: Record) -> Iterator[dict[str, Any]]:
    """The bytes that the graph holds: more with every operation that saves, less when a step frees what its node saved."""
    changes: list[tuple[float, int]] = []
    known: set[int] = set()
    for node in record.nodes:
        fresh = [saved for saved in node.saved if saved.storage is None or saved.storage not in known]
        known.update(saved.storage for saved in node.saved if saved.storage is not None)
        size = sum(saved.bytes for saved in fresh)
        op: Op | None = node.op
        if op is None or not size:
            continue
        changes.append((op.time, size))
        if node.freed_by is not None:
            changes.append((node.freed_by.time + (node.freed_by.seconds or 0.0), -size))
    held = 0
    for time, change in sorted(changes):
        held += change
        yield {"name": "saved bytes", "ph": "C", "ts": _microseconds(time), "pid": PROCESS, "args": {"bytes": held}}
