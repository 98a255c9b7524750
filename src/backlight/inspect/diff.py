"""The first node at which two records differ: another graph, another order, other numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .explain.finding import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .record import Record
    from .schema import Pass, Statistics, Step


@dataclass(slots=True)
class Difference:
    """Where two records part. `what`: "passes", "node", "shape", "gradient" or "length"; `a` and `b`: the steps, if there are such."""

    what: str
    text: str
    a: Step | None = None
    b: Step | None = None

    def __str__(self) -> str:
        return self.text


def diff(a: Record, b: Record, tolerance: float = 1e-4) -> Difference | None:
    """The first difference between the backward passes of two records, also of different engines; None if there is none.

    Steps are compared in the order in which they ran: the node, the leaf's name, the shapes of the gradients that arrived, and as
    far as both policies measured them the gradients (values with policy "full", else norms), relative to `tolerance`.
    """
    for one, other in zip(a.passes, b.passes):
        found = _passes(one, other, tolerance)
        if found is not None:
            return found
    if len(a.passes) != len(b.passes):
        return Difference("passes", f"the first record has {len(a.passes)} backward passes, the second {len(b.passes)}")
    return None


def _passes(one: Pass, other: Pass, tolerance: float) -> Difference | None:
    for x, y in zip(one.steps, other.steps):
        where = f"pass {one.number}, step {x.index}"
        if x.name != y.name:
            text = f"{where}: {x.name} at {place(x.site)} against {y.name} at {place(y.site)}"
            return Difference("node", text, x, y)
        if x.node.leaf is not None and y.node.leaf is not None and x.variable != y.variable and x.variable and y.variable:
            return Difference("node", f"{where}: AccumulateGrad of {x.variable} against that of {y.variable}", x, y)
        found = _gradients(x.arrived, y.arrived, tolerance)
        if found is not None:
            what, text = found
            return Difference(what, f"{where}, {x.node.label} at {place(x.site)}: the gradient that arrived {text}", x, y)
    if len(one.steps) != len(other.steps):
        longer = max(one, other, key=lambda p: len(p.steps))
        extra = longer.steps[min(len(one.steps), len(other.steps))]
        text = f"pass {one.number}: {len(one.steps)} steps against {len(other.steps)}; the first extra one is {extra.node.label} at {place(extra.site)}"
        return Difference("length", text, extra if longer is one else None, extra if longer is other else None)
    return None


def _gradients(xs: Sequence[Statistics | None], ys: Sequence[Statistics | None], tolerance: float) -> tuple[str, str] | None:
    for x, y in zip(xs, ys):
        if x is None or y is None:
            if x is not y:
                return "gradient", "is missing in one of them"
            continue
        if tuple(x.shape) != tuple(y.shape):
            return "shape", f"has shape {list(x.shape)} against {list(y.shape)}"
        if x.values is not None and y.values is not None:
            if not np.allclose(
                x.values, y.values, rtol=tolerance, atol=tolerance * (y.norm or 0) / max(math.sqrt(y.size), 1), equal_nan=True
            ):
                worst = float(np.nanmax(np.abs(np.asarray(x.values, np.float64) - np.asarray(y.values, np.float64))))
                return "gradient", f"differs by up to {worst:.4g} (norms {x.norm:.6g} and {y.norm:.6g})"
        elif x.norm is not None and y.norm is not None and not _close(x.norm, y.norm, tolerance):
            return "gradient", f"has norm {x.norm:.6g} against {y.norm:.6g}"
    return None


def _close(x: float, y: float, tolerance: float) -> bool:
    return x == y or (math.isnan(x) and math.isnan(y)) or abs(x - y) <= tolerance * max(abs(x), abs(y))
