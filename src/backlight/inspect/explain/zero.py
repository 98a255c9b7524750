"""Why a gradient is zero, and which units of a ReLU are dead (needs measured gradients: policy "norms" or "full")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arithmetic import base_name
from .finding import Finding, labels, listed, place, sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..schema import ParameterGradient, Pass, Statistics, Step
    from .flow import Flow

# What blocks a gradient: (reason, fix) by the operation in the node's name.
FLAT = (
    "its derivative is zero everywhere",
    "use a differentiable stand-in, or pass the gradient straight through a custom Function",
)
RANGE = ("the values lie outside of its range, where it is flat", "widen the range, or scale the values before")
REASONS = {
    **dict.fromkeys(("Round", "Floor", "Ceil", "Trunc", "Sign", "Sgn", "FloorDivide", "Heaviside"), FLAT),
    **dict.fromkeys(("Clamp", "ClampMin", "ClampMax", "Hardtanh", "Relu6", "Hardsigmoid"), RANGE),
    **dict.fromkeys(
        ("Relu", "Threshold", "Hardshrink", "Softshrink"),
        ("no unit is active", "check initialisation and learning rate, or use leaky_relu"),
    ),
    **dict.fromkeys(
        ("Where", "MaskedFill", "Index", "Gather", "Select", "Slice", "MaskedSelect", "MaskedScatter"),
        ("a mask or index selects none of it", "check the mask"),
    ),
    **dict.fromkeys(("Sigmoid", "Tanh", "Softmax", "LogSoftmax"), ("it is saturated", "scale its input down")),
    "Mul": ("it is multiplied by zero", "leave the zero factor out, or don't compute the term"),
    "Mm": ("it is multiplied by zeros", "check for inputs or weights that are all zero"),
    "Addmm": ("it is multiplied by zeros", "check for inputs or weights that are all zero"),
    "Bmm": ("it is multiplied by zeros", "check for inputs or weights that are all zero"),
}


def findings(flow: Flow) -> Iterator[Finding]:
    reported: set[tuple] = set()
    moving = {}  # the last pass in which a leaf's gradient was not zero
    for one in flow.record.passes:
        moving.update((e.tensor.number, one.number) for e in one.gradients if e.value is not None and not _all_zero(e.value))
    for one in flow.record.passes:
        grouped: dict[tuple, list[tuple[ParameterGradient, Finding]]] = {}
        for entry in one.gradients:
            if entry.value is not None and entry.value.size and entry.value.zeros == entry.value.size:
                found = why_zero(flow, entry, one)
                if found is not None:
                    key = found.kind, tuple(str(site) for site in found.sites.values())
                    grouped.setdefault(key, []).append((entry, found))
        for key, group in grouped.items():
            found = group[0][1]
            found.names = [entry.name for entry, _ in group]
            found.title = found.title.replace("{names}", listed(found.names))
            if all(
                moving.get(entry.tensor.number, -1) > one.number for entry, _ in group
            ):  # as behind weights that begin at zero
                found.severity = "note"
                found.text += " In a later backward pass it was not zero."
            if (key, tuple(found.names)) not in reported:
                reported.add((key, tuple(found.names)))
                yield found
    yield from _dead(flow)


def why_zero(flow: Flow, entry: ParameterGradient, one: Pass) -> Finding | None:
    """Which step of the pass made the gradient of this leaf zero."""
    blockers = blocking_steps(flow, entry, one)
    if not blockers:
        return None
    step, edge = blockers[0]
    reason, fix = _reason(step)
    passed = step.passed[edge]
    assert passed is not None
    last = [step.node.edges[edge].node] if edge < len(step.node.edges) and step.node.edges[edge] is not None else []  # pyright: ignore[reportOptionalMemberAccess]
    return Finding(
        "zero-gradient",
        "warning",
        f"{{names}}: the gradient is zero, because {step.name} at {place(step.site)} passed none on",
        f"A gradient reached {step.name} (norm {step.arrived[0].norm:.4g}), made at {place(step.site)}, but {reason}, so all "  # pyright: ignore[reportOptionalMemberAccess]
        f"{passed.size} elements that it passed on are zero. The edge exists: autograd did run here, and .grad is zeros, not None.",
        fix,
        sites(blocked_at=step.site, backward=one.site),
        {
            "operation": base_name(step.name).lower(), "node": step.name, "fraction": (passed.zeros or 0) / max(passed.size, 1),
            "reason": reason, "blockers": len(blockers), "last": [node.label for node in last],
        },
        [entry.name],
    )  # fmt: skip


def blocking_steps(flow: Flow, entry: ParameterGradient, one: Pass) -> list[tuple[Step, int]]:
    """The steps that received something and passed on nothing but zeros on the way to a leaf, with their edges."""
    sources = flow.sources(one)
    start = next((step.node for step in one.steps if step.node.leaf is entry.tensor), None)
    if start is None:
        return []
    todo, seen, found = [start.number], {start.number}, []
    for number in todo:  # grows while it is walked
        for step, edge in sources.get(number, ()):
            if not _all_zero(step.passed[edge]):
                continue
            if any(x is not None and not _all_zero(x) for x in step.arrived):
                found.append((step, edge))
            elif step.node.number not in seen:
                seen.add(step.node.number)
                todo.append(step.node.number)
    return found


def _all_zero(value: Statistics | None) -> bool:
    return value is None or (value.zeros is not None and value.zeros == value.size)


def _reason(step: Step) -> tuple[str, str]:
    name = base_name(step.name)
    if name == "Mul" and step.node.op is not None and any(x == 0 for x in step.node.op.arguments if type(x) in (int, float)):
        return "it is multiplied by the constant 0", REASONS["Mul"][1]
    return REASONS.get(name, ("its local derivative is zero here", "look at the values that this operation gets"))


def _dead(flow: Flow) -> Iterator[Finding]:
    """Units of a ReLU that were off for the whole batch in every recorded pass."""
    seen: dict[tuple, tuple[set[int], Step, int, int]] = {}
    for step in flow.record.steps:
        dead: dict[str, Any] | None = step.details.get("dead")
        if dead is None:
            continue
        module = step.node.module
        key = (module.name if module is not None else None, str(step.site), step.name)
        units = set(dead["units"])
        if key in seen:
            before, first, of, count = seen[key]
            seen[key] = before & units, first, of, count + 1
        else:
            seen[key] = units, step, dead["of"], 1
    for (module_name, _site, _node), (units, step, of, count) in seen.items():
        if not units or (count == 1 and len(units) <= of / 2):  # one batch doesn't tell a dead unit from one that was off
            continue
        where = module_name or place(step.site)
        shown = sorted(units)
        yield Finding(
            "dead-relu",
            "warning" if len(units) > of / 2 else "note",
            f"{len(units)} of {of} units of {where} are dead",
            f"In {count} recorded backward pass{'es' if count != 1 else ''} these units were off for every example, so nothing flows "
            f"back through them and the weights in front of them get no gradient: {listed(map(str, shown), 20)}.",
            "lower the learning rate, change the initialisation or the bias, or use leaky_relu",
            sites(made_at=step.site),
            {"units": shown, "of": of, "passes": count, "fraction": len(units) / of},
            [module_name] if module_name else labels(step.node.op.outputs if step.node.op else []),
        )
