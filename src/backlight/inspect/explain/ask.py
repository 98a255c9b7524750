"""`explain`: the findings about one thing: a tensor, a parameter's name, an exception, a module, a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..record import Record
from . import errors, memory, missing, zero
from .contributions import contributions
from .finding import Finding, listed, place, sites
from .flow import Flow

if TYPE_CHECKING:
    from ..recorder import Recorder
    from ..schema import Pass, Tensor


def explain(x: Any, recorder: Recorder | None) -> list[Finding]:
    """See `backlight.inspect.explain`."""
    if isinstance(x, Record):
        return x.findings
    if recorder is None:
        raise RuntimeError(
            'explain() needs a recording: run the program inside `with backlight.inspect.record("norms"):` first'
        )
    if isinstance(x, BaseException):
        return _exception(x, recorder)
    if isinstance(x, str):
        return _tensor(recorder.record.tensor(x), recorder, None)
    if recorder.is_tensor(x):
        line = recorder.known_tensor(x)
        if line is None:
            raise ValueError("this tensor was not seen by the last recording: use it inside the `record()` block")
        return _tensor(line, recorder, x)
    if hasattr(x, "named_parameters"):
        return [
            found for _name, p in x.named_parameters() if recorder.known_tensor(p) is not None for found in explain(p, recorder)
        ]
    raise TypeError(f"explain() takes a tensor, a parameter's name, an exception, a module or a record, not {type(x).__name__}")


def _exception(x: BaseException, recorder: Recorder) -> list[Finding]:
    flow = Flow(recorder.record)
    for error in reversed(recorder.record.errors):
        if error.type == type(x).__name__ and str(x).startswith(error.text[:200]):
            found = errors.of_error(flow, error)
            if found is not None:
                return [found]
            if error.in_pass is not None:
                return list(missing.of_pass(flow, error.in_pass))
    return []


def _tensor(line: Tensor, recorder: Recorder, tensor: Any) -> list[Finding]:
    flow = Flow(recorder.record)
    passes = [one for one in recorder.record.passes if one.parent is None and one.call == "backward" and one.error is None]
    found: list[Finding] = []
    if not line.leaf:
        found.append(missing.not_a_leaf(flow, line))
    elif not line.requires_grad:
        found.append(_frozen(flow, line))
    elif passes:
        found += _gradient(flow, line, passes[-1], recorder.record)
    found += _writes(flow, line)
    if tensor is not None and line.leaf and (cycle := memory.gradient_cycle(tensor, line.label)) is not None:
        found.append(cycle)
    if tensor is not None and tensor.grad_fn is not None:
        found.append(memory.held_graph(tensor, recorder, line.label))
    return found


def _frozen(flow: Flow, line: Tensor) -> Finding:
    switched = [m for m in flow.record.modes if m.tensor is line and m.mode == "requires_grad" and not m.enabled]
    site = switched[-1].site if switched else None
    return Finding(
        "none-frozen",
        "note",
        f"{line.label}: no gradient, because requires_grad is False",
        f"{line.label} is a leaf that doesn't require grad" + (f"; it was switched off at {place(site)}." if site else "."),
        f"call {line.label}.requires_grad_() before the forward pass",
        sites(switched_at=site),
        names=[line.label],
    )


def _gradient(flow: Flow, line: Tensor, one: Pass, record: Record) -> list[Finding]:
    reached = any(step.node.leaf is line for step in one.steps)
    if not reached:
        found = missing.why_none(flow, line, one)
        found.title = found.title.replace("{names}", line.label)
        return [found]
    entry = next((e for e in one.gradients if e.tensor is line), None)
    if entry is not None and entry.value is not None and entry.value.zeros == entry.value.size:
        found = zero.why_zero(flow, entry, one)
        if found is not None:
            found.title = found.title.replace("{names}", line.label)
            return [found]
    table = contributions(record, line.label)
    return [
        Finding(
            "gradient-parts",
            "note",
            f"{line.label}: the gradient is the sum of {len(table.rows)} part{'s' if len(table.rows) != 1 else ''}",
            str(table),
            "",
            sites(**{f"part_{i}": row.site for i, row in enumerate(table.rows)}),
            {"norms": [row.norm for row in table.rows], "complete": table.complete},
            [line.label],
        )
    ]


def _writes(flow: Flow, line: Tensor) -> list[Finding]:
    """Writes to the tensor that no node can notice, since none had saved it."""
    found = []
    for write in flow.record.writes:
        if write.tensor is not line or line.leaf:
            continue
        savers = [
            n
            for n in flow.record.nodes
            if n.op is not None and n.op.at < write.at and any(s.storage == line.storage for s in n.saved)
        ]
        maker = line.op.function if line.op is not None else "its operation"
        if not savers:
            found.append(
                Finding(
                    "inplace-safe",
                    "note",
                    f"{write.op.function}() at {place(write.site)} is safe: nothing had saved {line.label}",
                    f"{line.label}, the result of {maker}, was changed in place at {place(write.site)}. {maker} saves no result, and no operation "
                    "before had saved it, so backward needs none of the old values.",
                    "",
                    sites(changed_by=write.site, made_at=line.op.site if line.op is not None else None),
                    {"savers": 0, "version": write.after},
                    [line.label],
                )
            )
        else:
            names = listed(n.name for n in savers)
            found.append(
                Finding(
                    "inplace-unsafe",
                    "warning",
                    f"{write.op.function}() at {place(write.site)} changed {line.label}, which {names} had saved",
                    f"{names} saved {line.label}; if backward goes through there, it raises an error.",
                    f"use the out-of-place form of {write.op.function.rstrip('_')}",
                    sites(changed_by=write.site, saved_by=savers[0].site),
                    {"savers": len(savers)},
                    [line.label],
                )
            )
    return found
