"""Why a gradient is None."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding, labels, listed, place, sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..schema import Op, ParameterGradient, Pass, Tensor
    from .flow import Flow

CUTS = {
    "detach": ("`.detach()`", "leave out `.detach()`, if the gradient should flow through here"),
    "data": ("`.data`", "use the tensor itself in place of its `.data`"),
    "numpy": ("NumPy: autograd can't follow what happens to the array", "stay with tensor operations instead of NumPy's"),
    "tolist": ("Python numbers: autograd can't follow them", "stay with tensors instead of `.tolist()`"),
    "item": ("a Python number: autograd can't follow it", "stay with the tensor instead of `.item()`"),
    "no_grad": ("grad mode was off", "move the operation out of the `no_grad` block"),
    "integer": (
        "the result is of a type that has no gradient",
        "use a differentiable stand-in: sigmoid or softmax for a comparison or argmax",
    ),
    "checkpoint": (
        "a reentrant checkpoint whose inputs don't require grad records nothing",
        "call checkpoint with use_reentrant=False",
    ),
    "requires_grad": ("requires_grad was switched off", "don't switch requires_grad off"),
    "not differentiable": ("the operation has no derivative", "use a differentiable operation"),
}


def findings(flow: Flow) -> Iterator[Finding]:
    """About every backward pass of the record."""
    reported: set[tuple] = set()
    for one in flow.record.passes:
        if one.parent is not None:
            continue
        for finding in of_pass(flow, one):
            key = finding.kind, tuple(finding.names), tuple(str(site) for site in finding.sites.values())
            if key not in reported:  # the same in every step of a training loop: once is enough
                reported.add(key)
                yield finding
    yield from _other_modules(flow)
    yield from _reads(flow)


def _other_modules(flow: Flow) -> Iterator[Finding]:
    """Parameters of modules that no pass of the record reached, although they were used and the loss depends on them: behind a cut.
    That may be deliberate (a generator, while the critic is trained), so it is a warning."""
    record = flow.record
    passes = [one for one in record.passes if one.parent is None and one.call == "backward" and one.steps and one.error is None]
    if not passes:
        return
    listed_ones = {entry.tensor.number for one in passes for entry in one.gradients}
    grouped: dict[tuple, list[tuple[Tensor, Finding]]] = {}
    for tensor in record.tensors:
        if (
            tensor.role == "parameter"
            and tensor.requires_grad
            and tensor.number not in listed_ones
            and flow.consumers[tensor.number]
        ):
            found = why_none(flow, tensor, passes[-1])
            if found.kind in ("none-cut", "none-checkpoint"):
                grouped.setdefault(tuple(map(str, found.sites.values())), []).append((tensor, found))
    for group in grouped.values():
        found = group[0][1]
        found.names, found.severity = labels(tensor for tensor, _ in group), "warning"
        found.title = found.title.replace("{names}", listed(found.names))
        yield found


def of_pass(flow: Flow, one: Pass) -> Iterator[Finding]:
    """What is missing after this pass."""
    root = one.roots[0] if one.roots else None
    if root is not None and not one.steps and one.error is not None and not root.requires_grad:
        yield _cut_loss(flow, one, root)
        return
    if root is not None and root.leaf and len(one.steps) <= 1 and one.call == "backward":
        yield _leaf_loss(flow, one, root)
        return
    if one.call != "backward" or one.inputs or one.error is not None:
        return
    grouped: dict[tuple, list[tuple[ParameterGradient, Finding]]] = {}
    for entry in one.gradients:
        if entry.requires_grad and entry.value is None and entry.tensor.role == "parameter":
            found = why_none(flow, entry.tensor, one)
            key = found.kind, tuple(str(site) for site in found.sites.values())
            grouped.setdefault(key, []).append((entry, found))
    for group in grouped.values():
        found = group[0][1]
        found.names = [entry.name for entry, _ in group]
        found.title = found.title.replace("{names}", listed(found.names)).replace("{is}", "is" if len(group) == 1 else "are")
        yield found


def why_none(flow: Flow, tensor: Tensor, one: Pass) -> Finding:
    """Why this leaf got no gradient in this pass. The title has {names} for the names."""
    uses = flow.uses(tensor, one)
    if not uses:
        return Finding(
            "none-never-used",
            "warning",
            "{names}: no gradient, because nothing used it before the backward pass",
            f"No operation read {tensor.label} between the last optimizer call and the backward pass, so the loss doesn't depend on it "
            "and its .grad stays None.",
            "call the module in forward, or leave its parameters out of the model or the optimizer",
            sites(backward=one.site),
            names=[tensor.label],
        )
    ops, reached = flow.after(tensor, one, uses)
    connected, _ = flow.after(tensor, one, uses, along_gradients=True)
    cuts = [op for op in connected if op.cut is not None]
    if any(root.number in reached for root in one.roots):
        into_loss = {op.number for op in flow.before(one.roots, one)[0]}
        on_path = [op for op in cuts if op.number in into_loss]
        if on_path:
            return _cut(flow, tensor, one, on_path[0], uses)
        return Finding(
            "none-unknown",
            "note",
            "{names}: no gradient, although the loss depends on it",
            f"{tensor.label} flows into the loss, and no cut was recorded on the way. A hook or a custom Function may have returned None.",
            "",
            sites(used_at=uses[0].site, backward=one.site),
            names=[tensor.label],
        )
    opaque = [op for op in cuts if not op.outputs]
    last = ops[-1]
    if (
        opaque
        and len(opaque) == len(cuts)
        and all(not flow.consumers[x.number] for op in ops for x in op.outputs if x.requires_grad)
        and not any(op.outputs and not any(flow.consumers[x.number] for x in op.outputs) for op in connected if op.cut is None)
    ):
        return _cut(flow, tensor, one, opaque[0], uses)
    return Finding(
        "none-not-in-loss",
        "warning",
        "{names}: no gradient, because its result is not part of the loss",
        f"{tensor.label} was used at {place(uses[0].site)}, but what became of it, last at {place(last.site)}, does not "
        "flow into the tensor that backward() was called on. No path leads back, so .grad stays None.",
        "use the result in the loss, or don't compute it",
        sites(used_at=uses[0].site, last_use=last.site, backward=one.site),
        {"operations": len(ops)},
        [tensor.label],
    )


def _cut(flow: Flow, tensor: Tensor, one: Pass, op: Op, uses: list[Op]) -> Finding:
    kind, mode = cut_kind(flow, op)
    what, fix = CUTS[kind]
    before = [x for x in op.inputs if x.requires_grad]
    return Finding(
        "none-checkpoint" if kind == "checkpoint" else "none-cut",
        "error",
        f"{{names}}: no gradient, because the path to the loss is cut at {place(op.site)}",
        f"{tensor.label} flows into the loss, but at {place(op.site)} the path of gradients ends: {what}. The last tensor that still "
        f"had a path to {tensor.label} is {listed(labels(before))}.",
        fix,
        sites(cut=op.site, used_at=uses[0].site, mode_switched=mode, backward=one.site),
        {"cut": kind, "operation": op.function, "last": labels(before)},
        [tensor.label],
    )


def cut_kind(flow: Flow, op: Op) -> tuple:
    """(the kind of a cut, the site where grad mode had been switched off)."""
    kind, mode = op.cut or "not differentiable", None
    if kind == "detach" and any(
        x.function in ("numpy", "tolist") for output in op.outputs for x in flow.consumers[output.number]
    ):
        kind = "numpy"
    if kind == "no_grad":
        switched = flow.switched_off(op)
        mode = None if switched is None else switched.site
        if mode is not None:
            mode.read_source()
            if "checkpoint" in (mode.text or ""):
                kind = "checkpoint"
    return kind, mode


def _cut_loss(flow: Flow, one: Pass, root: Tensor) -> Finding:
    """backward() refused, because the loss has no graph."""
    ops, _seen = flow.before([root], one)
    cuts = [op for op in ops if op.cut is not None]
    if not cuts:  # the values went through NumPy or Python: then only their leaving was seen
        cuts = [
            op
            for op in flow.record.ops
            if op.at < one.at and op.cut is not None and op.cut in ("numpy", "tolist", "item", "detach")
        ][-1:]
    if not cuts:
        off = [op for op in ops if not op.grad_enabled]
        return Finding(
            "loss-without-graph",
            "error",
            "the loss depends on no tensor that requires grad",
            "Nothing that flows into the tensor that backward() was called on requires grad, so there is no graph to go back through."
            + (f" Grad mode was off at {place(off[0].site)}." if off else ""),
            "call requires_grad_() on the leaves, or check that the model's parameters are used",
            sites(backward=one.site, grad_mode_off=off[0].site if off else None),
            names=[root.label],
        )
    op = cuts[-1]
    kind, mode = cut_kind(flow, op)
    what, fix = CUTS[kind]
    before = [x for x in op.inputs if x.requires_grad]
    return Finding(
        "loss-cut",
        "error",
        f"the loss has no graph: the path is cut at {place(op.site)}",
        f"backward() was called on {root.label}, which doesn't require grad. Its values come from {listed(labels(before))}, which does, but "
        f"at {place(op.site)} the path of gradients ends: {what}.",
        fix,
        sites(cut=op.site, mode_switched=mode, backward=one.site),
        {"cut": kind, "operation": op.function, "last": labels(before), "cuts": len(cuts)},
        [root.label],
    )


def _leaf_loss(flow: Flow, one: Pass, root: Tensor) -> Finding:
    """backward() ran on a leaf: somebody set requires_grad on a loss that was cut off."""
    ops, _seen = flow.before([root], one)
    cuts = [op for op in ops if op.cut is not None]
    switched = [m for m in flow.record.modes if m.tensor is root and m.mode == "requires_grad" and m.enabled]
    cut = cuts[-1] if cuts else None
    kind = cut_kind(flow, cut)[0] if cut is not None else None
    where = f" The path was cut at {place(cut.site)}: {CUTS[kind][0]}." if cut is not None and kind is not None else ""
    return Finding(
        "loss-is-leaf",
        "error",
        "backward visited 0 parameters: the loss is a leaf",
        f"{root.label} has no graph behind it; requires_grad was switched on for it"
        + (f" at {place(switched[-1].site)}" if switched else "")
        + f", so backward() only fills its own .grad and nothing is trained.{where}",
        CUTS[kind][1] if kind is not None else "compute the loss from parameters that require grad",
        sites(cut=cut.site if cut is not None else None, switched=switched[-1].site if switched else None, backward=one.site),
        {"parameters": 0, "cut": kind, "steps": len(one.steps)},
        [root.label],
    )


def _reads(flow: Flow) -> Iterator[Finding]:
    """`.grad` of tensors that are no leaves was read, and is None."""
    for op in flow.record.ops:
        if op.function == "grad" and op.inputs and not op.inputs[0].leaf:
            yield not_a_leaf(flow, op.inputs[0], op)


def not_a_leaf(flow: Flow, tensor: Tensor, read: Op | None = None) -> Finding:
    """Why a result has no `.grad`, and what flowed through it."""
    made = tensor.op
    leaves = leaves_behind(tensor)
    unnamed = [leaf for leaf in leaves if leaf.name is None]
    flowed = next((s.arrived[tensor.output] for s in reversed(flow.record.steps)
                   if s.node is tensor.node and tensor.output < len(s.arrived)), None)  # fmt: skip
    numbers = {"operation": made.function if made else None, "leaves": labels(leaves), "unnamed": len(unnamed)}
    amount = ""
    if flowed is not None:
        numbers |= {"norm": flowed.norm, "min": flowed.min, "max": flowed.max}
        if flowed.norm is not None:
            amount = f" A gradient did flow through it (norm {flowed.norm:.4g}, from {flowed.min} to {flowed.max}), but was not kept."
    cast = made is not None and made.function in ("to_copy", "to", "double", "float", "half", "type", "cuda")
    return Finding(
        "none-not-leaf",
        "warning",
        f"{tensor.label} has no .grad, because it is the result of {made.function if made else 'an operation'}, not a leaf",
        f"Only leaves keep their gradient. {tensor.label} was made at {place(made.site if made else None)} from "
        f"{'a leaf that no variable refers to any more' if unnamed else listed(labels(leaves))}.{amount}",
        "cast or move first, then call requires_grad_()" if cast else f"call {tensor.label}.retain_grad() before backward()",
        sites(made_at=made.site if made else None, read_at=read.site if read else None),
        numbers,
        [tensor.label],
    )


def leaves_behind(tensor: Tensor) -> list[Tensor]:
    """The leaves of the graph behind a tensor."""
    if tensor.node is None:
        return [tensor]
    todo, seen, leaves = [tensor.node], {tensor.node.number}, []
    for node in todo:
        if node.leaf is not None:
            leaves.append(node.leaf)
        for edge in node.edges:
            if edge is not None and edge.node.number not in seen:
                seen.add(edge.node.number)
                todo.append(edge.node)
    return leaves
