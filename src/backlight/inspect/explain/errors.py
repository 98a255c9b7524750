"""In-place and second-backward errors: who saved, who wrote, who read, who freed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .finding import Finding, labels, listed, place, sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..schema import Error, Node, Op, Optimizer, Saved, Site, Tensor
    from .flow import Flow


@dataclass(slots=True)
class Change:
    """A write to a tensor, by an operation or by an optimizer."""

    tensor: Tensor
    site: Site | None
    before: int
    after: int
    op: Op | None = None
    optimizer: Optimizer | None = None


def findings(flow: Flow) -> Iterator[Finding]:
    for error in flow.record.errors:
        found = of_error(flow, error)
        if found is not None:
            yield found


def of_error(flow: Flow, error: Error) -> Finding | None:
    """What led to an exception that left a backward pass."""
    if "modified by an inplace operation" in error.text:
        return modified(flow, error)
    if "backward through the graph a second time" in error.text or "already been freed" in error.text:
        return second_time(flow, error)
    return None


def modified(flow: Flow, error: Error) -> Finding | None:
    """The three sites of an in-place error."""
    node = error.step.node if error.step is not None else None
    if node is None:
        return None
    culprit = _culprit(flow, node, error)
    one = error.in_pass
    if culprit is None:
        return None
    saved, writes = culprit
    write = writes[0]
    optimizer = write.optimizer
    tensor = _owner(saved.tensor) or _owner(write.tensor)
    name = tensor.label if tensor is not None else f"the saved {saved.name}"
    writer = (
        f"{optimizer.type}.step()" if optimizer is not None else f"{write.op.function}()" if write.op is not None else "a write"
    )
    carried = carried_over(flow, error)
    text = (
        f"{node.name}, made at {place(node.site)}, saved {name} at version {saved.version} because its gradient formula needs it. "
        f"{writer} at {place(write.site)} changed it in place ({write.before} -> {writes[-1].after}), and then the backward pass at "
        f"{place(one.site if one else None)} needed the old values."
    )
    if carried:
        text += f" The graph reaches back over an earlier step through {listed(labels(carried))}."
    if optimizer is not None:
        fix = f"call {optimizer.type}.step() after all backward passes that use {name}, or compute the second loss again after the step"
        if carried:
            fix = f"detach {listed(labels(carried))} between the steps"
    elif write.op is not None:
        plain = write.op.function.rstrip("_")
        fix = f"use the out-of-place form ({plain} instead of {write.op.function}), or write before {node.name.partition('Backward')[0]} saves it"
    else:
        fix = f"don't write to {name} between forward and backward"
    return Finding(
        "inplace-error",
        "error",
        f"{name} was changed by {writer} at {place(write.site)} after {node.name.partition('Backward')[0]} had saved it",
        text,
        fix,
        sites(saved_by=node.site, changed_by=write.site, needed_by=one.site if one else None),
        {
            "node": node.name, "saved": saved.name, "version_saved": saved.version, "version_now": writes[-1].after, "writes": len(writes),
            "writer": optimizer.type if optimizer is not None else write.op.function if write.op is not None else None,
            "by_optimizer": optimizer is not None, "shape": list(saved.shape), "carried": labels(carried),
        },
        [name],
    )  # fmt: skip


def _culprit(flow: Flow, node: Node, error: Error) -> tuple[Saved, list[Change]] | None:
    """The saved tensor of the node that was written since, and those writes."""
    since = node.op.at if node.op is not None else -1
    record = flow.record
    changes = [(w.at, Change(w.tensor, w.site, w.before, w.after, w.op)) for w in record.writes if w.op is not node.op]
    changes += [
        (line.at, Change(u.tensor, line.site, u.before, u.after, None, line))
        for line in record.optimizers
        for u in line.updates
        if u.before is not None and u.after is not None and u.before != u.after
    ]
    changes = sorted(((at, c) for at, c in changes if since <= at < error.at), key=lambda x: x[0])
    for saved in node.saved:
        found = [
            c
            for _, c in changes
            if (c.tensor.storage == saved.storage if saved.storage is not None else c.tensor is saved.tensor)
            and (saved.version is None or c.after > saved.version)
        ]
        if found:
            return saved, found
    return None


def _owner(tensor: Tensor | None) -> Tensor | None:
    """The tensor that a view shows, which has the better name."""
    while tensor is not None and tensor.name is None and tensor.base is not None:
        tensor = tensor.base
    return tensor


def second_time(flow: Flow, error: Error) -> Finding | None:
    """Which pass freed what a second one needs."""
    node = error.step.node if error.step is not None else None
    one = error.in_pass
    if node is None or one is None:
        return None
    first = node.freed_by.in_pass if node.freed_by is not None else None
    carried = carried_over(flow, error)
    names = labels(carried)
    text = (
        f"{node.name}, made at {place(node.site)}, ran in the backward pass at {place(first.site if first else None)}, which freed what it had "
        f"saved. The backward pass at {place(one.site)} reaches it again."
    )
    if names:
        text += f" The new graph still contains the old one because {listed(names)}, computed before the first pass, was used again after it."
    return Finding(
        "second-backward",
        "error",
        f"the graph behind {node.name} was freed by the backward pass at {place(first.site if first else None)}",
        text,
        f"detach {listed(names)} between the steps"
        if names
        else "pass retain_graph=True to the first backward, or add the losses and call backward once",
        sites(made_at=node.site, freed_by=first.site if first else None, needed_by=one.site),
        {"node": node.name, "first_pass": first.number if first else None, "second_pass": one.number, "carried": names},
        names or labels(one.roots),
    )


def carried_over(flow: Flow, error: Error) -> list[Tensor]:
    """Tensors that were computed before the previous pass and used after it by what this pass goes through."""
    one = error.in_pass
    if one is None:
        return []
    return carried_into(flow, one.number)


def carried_into(flow: Flow, number: int) -> list[Tensor]:
    """The non-leaf tensors that connect the graph of this pass with what ran before the pass before it."""
    record = flow.record
    one = record.passes[number]
    earlier = [p for p in record.passes if p.at < one.at and p.parent is None and p.steps]
    if not earlier:
        return []
    border = earlier[-1].at
    ops, _ = flow.before(one.roots, one)
    found = []
    for op in ops:
        if op.at > border:
            for tensor in op.inputs:
                if (
                    tensor.requires_grad
                    and not tensor.leaf
                    and tensor.op is not None
                    and tensor.op.at < border
                    and tensor not in found
                ):
                    found.append(tensor)
    return found
