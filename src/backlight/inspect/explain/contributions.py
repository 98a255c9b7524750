"""Where a gradient comes from: per use, per backward pass, per term of the loss. The rows sum to `.grad`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines import package_of
from .finding import Finding, place, sites

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..record import Record
    from ..schema import Pass, Site, Statistics, Tensor
    from .flow import Flow


@dataclass(slots=True)
class Contribution:
    """One part of a gradient. `source`: in words; `norm`; `values` (policy "full"); `cosine` to the whole gradient."""

    source: str
    site: Site | None
    norm: float | None
    values: np.ndarray | None = None
    cosine: float | None = None
    in_pass: int | None = None
    stale: bool = False


@dataclass(slots=True)
class Contributions:
    """The parts of a parameter's gradient. `total` is their sum, `complete` whether it equals what lies in `.grad`.

    `cosines[i][j]`: between parts i and j (policy "full").
    """

    name: str
    rows: list[Contribution]
    total: np.ndarray | None = None
    complete: bool | None = None
    cosines: list[list[float]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"The gradient of {self.name} is the sum of"]
        for row in self.rows:
            norm = "?" if row.norm is None else f"{row.norm:.4g}"
            cosine = "" if row.cosine is None else f"  cosine {row.cosine:+.3f}"
            lines.append(f"  norm {norm:>10}{cosine}  {row.source}{' (stale)' if row.stale else ''}")
        return "\n".join(lines)


def contributions(record: Record, name: str) -> Contributions:
    """The parts of the gradient of the leaf called `name`: one row per use in each backward pass since `.grad` was last cleared.

    A row is stale if an optimizer step already used it. With policy "full" rows have values and cosines, and their sum is compared
    with `.grad`.
    """
    tensor = record.tensor(name)
    writes = [w for w in record.gradient_writes if w.tensor is tensor]
    last = max((w.at for w in writes if w.step is not None), default=-1)
    start = max((w.at for w in writes if w.how in ("cleared", "assigned") and w.at < last), default=-1)
    rows = []
    for one in record.passes:
        if one.at <= start:
            continue
        used = any(o.call == "step" and o.at > one.at and any(p.at > o.at for p in record.passes) for o in record.optimizers)
        for row in in_pass(one, tensor):
            row.stale = used
            rows.append(row)
    written = [w for w in writes if w.value is not None and w.step is not None]
    return _summed(name, rows, written[-1].value if written else None)


def in_pass(one: Pass, tensor: Tensor) -> Iterator[Contribution]:
    """One row per edge that leads to the leaf in this pass."""
    for step in one.steps:
        for i, edge in enumerate(step.node.edges):
            if edge is None or edge.node.leaf is not tensor or i >= len(step.passed) or step.passed[i] is None:
                continue
            value = step.passed[i]
            assert value is not None
            yield Contribution(
                f"{step.name} at {place(step.site)}, pass {one.number}", step.site, value.norm, value.values, None, one.number
            )
    for edge, loss in zip(one.root_edges, one.steps[:1]):
        if edge.node.leaf is tensor and loss.arrived and loss.arrived[0] is not None:
            yield Contribution(
                "backward() was called on it", one.site, loss.arrived[0].norm, loss.arrived[0].values, None, one.number
            )


def _summed(name: str, rows: list[Contribution], written: Statistics | None) -> Contributions:
    result = Contributions(name, rows)
    values = [row.values for row in rows]
    if rows and all(v is not None for v in values):
        arrays: list[np.ndarray] = [np.asarray(v, np.float64) for v in values]
        result.total = np.sum(arrays, axis=0)
        for row, array in zip(rows, arrays):
            row.cosine = cosine(array, result.total)
        result.cosines = [[cosine(a, b) for b in arrays] for a in arrays]
        if written is not None and written.values is not None:
            rounding = 1e-6 * max(1.0, float(np.abs(np.asarray(result.total)).max(initial=0)))
            result.complete = bool(np.allclose(np.asarray(result.total), written.values, rtol=1e-4, atol=rounding))
    return result


def cosine(a: Any, b: Any) -> float:
    """The cosine of the angle between two arrays, NaN if one is zero."""
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    size = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    return float(a @ b) / size if size else math.nan


def loss_terms(loss: Any, parameters: Sequence[Any], names: Sequence[str] | None = None) -> list[Contributions]:
    """The gradient of each parameter by the terms that were added up to `loss` (before backward() frees the graph).

    Works on both engines through `autograd.grad`; nothing is accumulated. Terms are the inputs of the additions at the end of the graph.

    >>> import backlight as torch
    >>> w = torch.tensor(2., requires_grad=True)
    >>> [table] = torch.inspect.loss_terms(w * 3 + w * w, [w], ["w"])
    >>> [row.norm for row in table.rows]
    [3.0, 4.0]
    """
    engine = package_of(loss)
    terms = _terms(loss.grad_fn)
    tables = [Contributions(name, []) for name in (names or [f"parameter {i}" for i in range(len(parameters))])]
    for edge_node, number, sign in terms:
        edge = engine.autograd.graph.GradientEdge(edge_node, number)
        seed = engine.ones_like(loss) * sign
        grads = engine.autograd.grad([edge], list(parameters), [seed], retain_graph=True, allow_unused=True)
        for table, g in zip(tables, grads):
            if g is not None:
                value = g.detach().cpu().numpy().astype(np.float64)
                table.rows.append(Contribution(f"term {edge_node.name()}", None, float(np.linalg.norm(value)), value))
    return [_summed(table.name, table.rows, None) for table in tables]


def _terms(node: Any) -> list[tuple[Any, int, float]]:
    """The nodes whose results were added up to the loss: (node, output number, sign)."""
    if node is None:
        return []
    if not node.name().startswith(("AddBackward", "SubBackward")) or getattr(node, "_saved_alpha", 1) != 1:
        return [(node, 0, 1.0)]
    result: list[tuple[Any, int, float]] = []
    todo = [(node, 1.0)]
    while todo:
        one, sign = todo.pop(0)
        for i, (parent, number) in enumerate(one.next_functions):
            if parent is None:
                continue
            its_sign = -sign if one.name().startswith("SubBackward") and i == 1 else sign
            if parent.name().startswith(("AddBackward", "SubBackward")) and getattr(parent, "_saved_alpha", 1) == 1:
                todo.append((parent, its_sign))
            else:
                result.append((parent, number, its_sign))
    return result


def findings(flow: Flow) -> Iterator[Finding]:
    """Notes about micro-batches: gradients of several passes that one optimizer step uses."""
    record = flow.record
    steps = [o for o in record.optimizers if o.call == "step"]
    clears = [w for w in record.gradient_writes if w.how in ("cleared", "zeroed", "assigned")]
    for before, line in zip([None, *steps], steps):
        start = before.at if before is not None else -1
        passes = [
            p for p in record.passes if start < p.at < line.at and p.call == "backward" and p.parent is None and p.error is None
        ]
        passes = [
            p
            for p in passes
            if not p.inputs
            and any(s.node.leaf is not None and any(u.tensor is s.node.leaf for u in line.updates) for s in p.steps)
        ]
        if len(passes) > 1:  # those whose gradients were still there
            held = {u.tensor.number for u in line.updates}
            since = max((w.at for w in clears if w.at < line.at and w.tensor.number in held), default=-1)
            passes = [p for p in passes if p.at > since]
        lines = {str(p.site) for p in passes}
        if len(passes) < 2 or len(lines) != 1:
            continue
        batches = [_batch_size(flow, p) for p in passes]
        unequal = len({b for b in batches if b is not None}) > 1
        yield Finding(
            "accumulation-scale",
            "warning" if unequal else "note",
            f"{len(passes)} backward passes per optimizer step: gradients add up",
            f"{line.type}.step() at {place(line.site)} uses the sum of the gradients of {len(passes)} backward passes at {place(passes[0].site)}."
            + (
                f" The micro-batches have {', '.join(str(b) for b in batches)} rows: if each loss is a mean over its own rows, rows of small "
                "batches count more than others."
                if unequal
                else " If each loss is a mean, the sum is that many times the mean over the whole batch."
            ),
            "weight each loss by its number of rows divided by that of the whole batch"
            if unequal
            else f"divide each loss by {len(passes)}",
            sites(backward=passes[0].site, optimizer_step=line.site),
            {"passes": len(passes), "rows": batches},
            [],
        )
        return


def _batch_size(flow: Flow, one: Pass) -> int | None:
    """The first dimension of the data that a pass's forward used: of the first tensor without gradient that met one with."""
    ops, _ = flow.before(one.roots, one)
    for op in ops:
        if any(x.requires_grad for x in op.inputs):
            for tensor in op.inputs:
                if not tensor.requires_grad and tensor.shape:
                    return tensor.shape[0]
    return None
