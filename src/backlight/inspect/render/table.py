"""The backward steps of a record as comma-separated values, for spreadsheets and pandas."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from . import summary
from .words import shape, source

if TYPE_CHECKING:
    from ..record import Record
    from ..schema import Statistics

COLUMNS = (
    "pass", "step", "thread", "node", "leaf", "file", "line", "source", "module", "to", "shape_in", "norm_in", "min_in", "max_in",
    "zeros_in", "nonfinite_in", "shapes_out", "norms_out", "saved_bytes", "time", "seconds",
)  # fmt: skip


def to_csv(record: Record) -> str:
    """One row per step, of all passes. Where a step has several gradients they are separated by blanks, and what isn't there
    is "-"; numbers have all their digits, "nan" and "inf" included."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for one in record.passes:
        targets = summary.targets(one)
        for step in one.steps:
            arrived = step.arrived[0] if step.arrived else None
            writer.writerow(
                [
                    one.number, step.index, step.thread, step.name, step.variable, step.site and step.site.file,
                    step.site and step.site.line, source(step.site), step.node.module and step.node.module.label,
                    " ".join(str(targets.get((step.index, i), "-")) for i in range(len(step.passed))),
                    _shape(arrived), *(_value(arrived, name) for name in ("norm", "min", "max", "zeros", "nonfinite")),
                    " ".join(map(_shape, step.passed)), " ".join(str(_value(g, "norm")) or "-" for g in step.passed),
                    summary.saved_bytes([step.node]), step.time, step.seconds,
                ]
            )  # fmt: skip
    return text.getvalue()


def _shape(g: Statistics | None) -> str:
    return "-" if g is None else shape(g.shape)


def _value(g: Statistics | None, name: str) -> float | str:
    value = getattr(g, name, None)
    return "" if value is None else value
