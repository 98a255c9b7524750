"""Where the first NaN or infinity came from, by which arithmetic, and what became of it (policy "norms" or "full")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arithmetic import base_name
from .finding import Finding, labels, listed, place, sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..schema import Pass, Site, Step
    from .flow import Flow

SELECTING = {
    "Where": "where() did not select this element",
    "MaskedFill": "masked_fill() replaced this element",
    "Index": "indexing did not pick this element: it is not in the loss at all",
    "Gather": "gather() did not pick this element: it is not in the loss at all",
    "Select": "indexing did not pick this element: it is not in the loss at all",
    "Slice": "slicing left this element out: it is not in the loss at all",
    "MaskedSelect": "the mask left this element out: it is not in the loss at all",
    "Mul": "it was multiplied by zero",
}
FIXES = {
    "0 x inf": "mask the input before {operation}, not its result: the derivative at this value is infinite, and 0 x inf is NaN",
    "0 / 0": "add a small epsilon inside {operation}, or use a function whose derivative is defined here",
    "division by zero": "keep the divisor away from zero: clamp it or add an epsilon",
    "singular point": "keep the argument of {operation} away from its singular point: add an epsilon before it",
    "overflow": "scale the values down, or use a stable form (logsumexp, log_softmax)",
    "non-finite saved value": "the forward pass already had a non-finite value here: look for it before {operation}",
    "unknown": "look at the values that {operation} gets",
}


def findings(flow: Flow) -> Iterator[Finding]:
    origin = first(flow)
    if origin is not None:
        yield origin


def first(flow: Flow) -> Finding | None:
    """The origin of the first non-finite gradient of the record, and the chain of what followed."""
    for one in flow.record.passes:
        for step in one.steps:
            if one.broken_by is not None and _is_earlier(one, step):
                return _forward(flow, one, step)
            if "nonfinite" in step.details:
                return _origin(flow, one, step)
            if any(x is not None and x.nonfinite for x in step.arrived):
                return _arrived(flow, one, step)
    return None


def _origin(flow: Flow, one: Pass, step: Step) -> Finding:
    found: dict[str, Any] = dict(step.details["nonfinite"])
    operation = base_name(step.name).lower()
    cause, element = found["cause"], tuple(found.get("element", ()))
    upstream = _why_zero_upstream(flow, one, step) if found.get("upstream") == 0 else None
    chain, by_role = consequences(flow, one, step)
    edge = step.node.edges[found["edge"]] if found["edge"] < len(step.node.edges) else None
    values = ", ".join(f"{name} = {value:.6g}" for name, value in found.get("saved", {}).items())
    arithmetic = ""
    if "derivative" in found:
        arithmetic = (
            f" At {f'element {list(element)}' if element else 'its only element'} the gradient that arrived is {found['upstream']:.6g} and the derivative {found['derivative']:.6g}"
            f" ({found['rule']}{', saved ' + values if values else ''}), so it passed on {found['value']:.6g}."
        )
    text = f"{step.name}, made at {place(step.site)}, received finite gradients and passed on {found['count']} of {found['size']} elements "
    text += f"that are not finite: {cause}.{arithmetic}"
    if upstream is not None:
        text += f" The gradient that arrived is 0 because {SELECTING[upstream[0]]} ({place(upstream[1])})."
    hint = ""
    if operation in ("sqrt", "pow") and _is_norm(step):
        hint = "; or, since this is a norm written by hand, use x.norm(), whose subgradient at 0 is 0"
    made = step.node.made_by
    if made is not None:
        text += f" The node is part of the graph of the gradient itself: {made.name} at {place(made.site)} created it when it ran with create_graph=True."
    if chain:
        text += " What followed: " + "; ".join(chain) + "."
    return Finding(
        "nonfinite",
        "error",
        f"first non-finite gradient: {cause} in {step.name} at {place(step.site)}",
        text,
        FIXES[cause].format(operation=operation) + hint,
        sites(
            origin=step.site or (made.site if made is not None else None), upstream_zero=upstream[1] if upstream else None, created_by=made.site if made is not None else None,
            backward=one.site,
        ) | by_role,
        {
            **found, "node": step.name, "step": step.index, "pass": one.number, "chain": chain, "upstream_reason": upstream[0] if upstream else None,
            "not_in_loss": upstream is not None and "not in the loss" in SELECTING[upstream[0]], "second_level": made is not None,
        },
        labels([edge.node.leaf] if edge is not None and edge.node.leaf is not None else step.node.op.inputs if step.node.op else []),
    )  # fmt: skip


def _is_earlier(one: Pass, step: Step) -> bool:
    """Whether the operation that broke the forward pass tells more than this step, the first that could be to blame."""
    found = step.details.get("nonfinite")
    if found is None:
        return any(x is not None and x.nonfinite for x in step.arrived)
    return found["cause"] in ("non-finite saved value", "unknown") or one.broken_by is not step.node.op


def _forward(flow: Flow, one: Pass, step: Step) -> Finding:
    """The forward pass made the first non-finite value."""
    op, found = one.broken_by, dict(one.broken)
    assert op is not None
    if type(found.get("given")) is int:
        found["given"] = flow.record.tensors[found["given"]].label
    chain, by_role = consequences(flow, one, step)
    element = f"element {list(found['element'])}" if found["element"] else "its only element"
    if "given" in found:
        title = f"{found['given']} was not finite when {op.function} read it at {place(op.site)}"
        text = f"{found['given']} has {found['count']} of {found['size']} elements that are not finite, first at {element}: {found['value']:.6g}. "
        text += "No recorded operation made it, so it came into the program so: from the data, or from an earlier step."
        fix = f"check {found['given']} where it comes from"
    else:
        title = f"first non-finite value: the forward pass made {found['value']:.6g} in {op.function} at {place(op.site)}"
        values = ", ".join(f"{name} = {value:.6g}" for name, value in found.get("inputs", {}).items())
        text = f"The result of {op.function} at {place(op.site)} has {found['count']} of {found['size']} elements that are not finite. At {element} "
        text += f"it is {found['value']:.6g}{' for ' + values if values else ''}."
        fix = f"look at the values that {op.function} gets here: keep them inside of its domain, or use a stable form"
    text += " The loss is not finite because of it." + (" What followed: " + "; ".join(chain) + "." if chain else "")
    return Finding(
        "nonfinite",
        "error",
        title,
        text,
        fix,
        sites(origin=op.site, backward=one.site) | by_role,
        {
            **found,
            "cause": "given" if "given" in found else "forward",
            "operation": op.function,
            "pass": one.number,
            "chain": chain,
        },
        [found["given"]] if "given" in found else labels(op.outputs),
    )


def _arrived(flow: Flow, one: Pass, step: Step) -> Finding:
    """A gradient was not finite when it arrived: at the root the loss itself, or its gradient, was not finite."""
    chain, by_role = consequences(flow, one, step)
    loss = one.losses[0] if one.losses else None
    broken = loss is not None and loss.nonfinite
    return Finding(
        "nonfinite",
        "error",
        f"{'the loss' if broken else 'the gradient that ' + step.name + ' received'} is not finite",
        f"The first non-finite gradient of the record is the one that arrived at step {step.index}, {step.name}, made at {place(step.site)}. "
        + (
            "The loss was not finite either, so the forward pass made it."
            if broken
            else "No recorded step made it: a hook or the caller did."
        )
        + (" What followed: " + "; ".join(chain) + "." if chain else ""),
        "look for the first non-finite value of the forward pass",
        sites(origin=step.site, backward=one.site) | by_role,
        {"cause": "loss" if broken else "given", "node": step.name, "step": step.index, "pass": one.number, "chain": chain},
        labels(one.roots),
    )


def _why_zero_upstream(flow: Flow, one: Pass, step: Step) -> tuple[str, Site | None] | None:
    """The selecting operation between a step and the loss, if one explains that the gradient is 0 here."""
    sources = flow.sources(one)
    current = step
    for _ in range(8):
        before = sources.get(current.node.number, [])
        if len(before) != 1:
            return None
        current = before[0][0]
        if base_name(current.name) in SELECTING:
            return base_name(current.name), current.site
    return None


def _is_norm(step: Step) -> bool:
    """Whether the operation is a root of a sum of squares."""
    edge = step.node.edges[0] if step.node.edges else None
    behind = edge.node if edge is not None else None
    return (
        behind is not None
        and base_name(behind.name) in ("Sum", "Mean")
        and any(e is not None and base_name(e.node.name) in ("Pow", "Mul") for e in behind.edges)
    )


def consequences(flow: Flow, one: Pass, step: Step) -> tuple[list[str], dict[str, Site]]:
    """What the non-finite value did next: which parameters' gradients, clipping, the optimizer's step, the next loss."""
    record, chain = flow.record, []
    by_role: dict[str, Site | None] = {}
    reached = [e.name for e in one.gradients if e.value is not None and e.value.nonfinite]
    if reached:
        chain.append(f"it reached the gradient of {listed(reached)}")
    for write in record.gradient_writes:
        if write.at > step.at and write.op is not None and write.value is not None and write.value.nonfinite:
            kind = "NaN" if write.value.norm != write.value.norm else "infinite"
            chain.append(f"{write.op.via or write.op.function} at {place(write.site)} left {write.tensor.label}.grad {kind}")
            by_role["clipped at"] = write.site
            break
    for line in record.optimizers:
        bad = [u for u in line.updates if u.gradient is not None and u.gradient.nonfinite and u.after != u.before]
        if line.at > step.at and line.call == "step" and bad:
            number = sum(x.call == "step" and x.at <= line.at for x in record.optimizers)
            broken = [u.tensor.label for u in bad if u.value is not None and u.value.nonfinite]
            where = f" ({listed(broken)} {'is' if len(broken) == 1 else 'are'} not finite now)" if broken else ""
            chain.append(f"{line.type}.step() number {number} at {place(line.site)} applied it to the parameters{where}")
            by_role["optimizer step"] = line.site
            break
    for later in record.passes:
        if (
            later.at > step.at
            and later is not one
            and later.losses
            and later.losses[0] is not None
            and later.losses[0].nonfinite
        ):
            chain.append(f"the next loss, at {place(later.site)}, is not finite")
            by_role["next loss"] = later.site
            break
    return chain, {role: site for role, site in by_role.items() if site is not None}
