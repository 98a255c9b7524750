"""Why a parameter doesn't move, or moves although it is frozen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .finding import Finding, labels, listed, place, sites

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..schema import GradientWrite, Optimizer, Tensor
    from .flow import Flow


def findings(flow: Flow) -> Iterator[Finding]:
    steps = [line for line in flow.record.optimizers if line.call == "step"]
    if not steps:
        return
    yield from _not_in_optimizer(flow, steps)
    yield from _frozen_but_moved(flow, steps)
    yield from _buffers(flow, steps)
    yield from _stale(flow, steps)


def _not_in_optimizer(flow: Flow, steps: list[Optimizer]) -> Iterator[Finding]:
    held = {u.tensor.number: u.tensor for line in steps for u in line.updates}
    with_gradient: dict[int, Tensor] = {}
    members: set[int] = set()
    for one in flow.record.passes:
        if one.at < steps[-1].at:
            for entry in one.gradients:
                members.add(entry.tensor.number)
                if entry.value is not None and entry.tensor.role == "parameter":
                    with_gradient[entry.tensor.number] = entry.tensor
    left_out = [tensor for number, tensor in with_gradient.items() if number not in held]
    if not left_out:
        return
    orphans = [t for n, t in held.items() if n not in members and any(t.shape == x.shape for x in left_out)]
    line = steps[0]
    names = labels(left_out)
    yield Finding(
        "not-in-optimizer",
        "error" if orphans else "warning",
        f"{listed(names)}: has a gradient, but no optimizer holds it, so it never moves",
        f"Backward fills .grad of {listed(names)}, but {line.type}, which stepped at {place(line.site)}, has other tensors in its parameter groups."
        + (
            f" It holds {len(orphans)} orphan tensor{'s' if len(orphans) != 1 else ''} of the same shape that "
            f"{'are' if len(orphans) != 1 else 'is'} no part of the model any more: the parameter was replaced after the optimizer was made."
            if orphans
            else ""
        ),
        "make the optimizer after replacing parameters, or copy into them: with torch.no_grad(): p.copy_(new)",
        sites(optimizer_step=line.site),
        {"orphans": len(orphans), "shapes": [list(t.shape) for t in left_out]},
        names,
    )


def _frozen_but_moved(flow: Flow, steps: list[Optimizer]) -> Iterator[Finding]:
    moved: dict[int, list[tuple[int, Optimizer]]] = {}
    updates: dict[int, tuple] = {}
    for k, line in enumerate(steps, 1):
        for update in line.updates:
            if not update.requires_grad and update.before != update.after:
                moved.setdefault(update.tensor.number, []).append((k, line))
                updates[update.tensor.number] = update, line
    if not moved:
        return
    names, ages, options = [], {}, {}
    for number, changes in moved.items():
        update, line = updates[number]
        name = update.tensor.label
        names.append(name)
        ages[name] = _age(flow, update.tensor, steps, line)
        options[name] = {k: v for k, v in update.options.items() if k in ("lr", "momentum", "weight_decay", "betas") and v}
        del changes
    all_changes = [k for changes in moved.values() for k, _ in changes]
    first, last = min(all_changes), max(all_changes)
    line = steps[last - 1]
    used = options[names[0]]
    why = [f"{key} {value}" for key, value in used.items() if key in ("momentum", "weight_decay")]
    yield Finding(
        "frozen-moved",
        "warning",
        f"{listed(names)}: requires_grad is False, but {line.type}.step() changed {'it' if len(names) == 1 else 'them'}",
        f"requires_grad=False only stops new gradients. {listed(names)} still had a .grad from {max(ages.values())} optimizer steps earlier, and the optimizer "
        f"applies it again in every step{' (' + ', '.join(why) + ')' if why else ''}: steps {first} to {last} changed "
        f"{'it' if len(names) == 1 else 'them'}.",
        "set .grad to None before freezing (optimizer.zero_grad()), or leave frozen parameters out of the optimizer",
        sites(optimizer_step=line.site),
        {"steps": sorted(set(all_changes)), "age": max(ages.values()), "options": used, "optimizer": line.type},
        names,
    )


def _age(flow: Flow, tensor: Tensor, steps: list[Optimizer], line: Optimizer) -> int:
    """How many optimizer steps ago the gradient of a tensor was last written by a backward pass."""
    written = [w.at for w in flow.record.gradient_writes if w.tensor is tensor and w.step is not None and w.at < line.at]
    since = written[-1] if written else -1
    return sum(since < s.at < line.at for s in steps)


def _buffers(flow: Flow, steps: list[Optimizer]) -> Iterator[Finding]:
    frozen = {u.tensor.number for line in steps for u in line.updates if not u.requires_grad}
    frozen |= {e.tensor.number for one in flow.record.passes for e in one.gradients if not e.requires_grad}
    if not frozen:
        return
    prefixes = {t.name.rpartition(".")[0] for t in flow.record.tensors if t.number in frozen and t.name}
    since = min((m.at for m in flow.record.modes if m.mode == "requires_grad" and not m.enabled), default=-1)
    changed: dict[str, list] = {}
    for write in flow.record.writes:
        tensor = write.tensor
        if tensor.role == "buffer" and tensor.name and write.at > since and tensor.name.rpartition(".")[0] in prefixes:
            changed.setdefault(tensor.name, []).append(write)
    for op in flow.record.ops:  # PyTorch's batch_norm writes its running statistics without a new version
        if op.function in ("batch_norm", "instance_norm") and op.module is not None and op.module.training and op.at > since:
            for tensor in op.inputs:
                if tensor.role == "buffer" and tensor.name and tensor.name.rpartition(".")[0] in prefixes:
                    changed.setdefault(tensor.name, []).append(op)
    if not changed:
        return
    names = [name for name in changed if not name.endswith("num_batches_tracked")] or list(changed)
    first = changed[names[0]][0]
    yield Finding(
        "buffer-moved",
        "warning",
        f"{listed(names)}: changed by the forward pass, although the module's parameters are frozen",
        f"A module in train mode updates its buffers in every forward pass, whether or not its parameters require grad: {listed(names)} "
        f"{'was' if len(names) == 1 else 'were'} written {len(changed[names[0]])} times, first at {place(first.site)}.",
        "call eval() on the frozen modules",
        sites(written_at=first.site),
        {"writes": {name: len(changed[name]) for name in names}},
        names,
    )


def _stale(flow: Flow, steps: list[Optimizer]) -> Iterator[Finding]:
    """Gradients that were added to over an optimizer step: zero_grad was forgotten."""
    by_tensor: dict[int, list[GradientWrite]] = {}
    for write in flow.record.gradient_writes:
        by_tensor.setdefault(write.tensor.number, []).append(write)
    stale: dict[int, tuple[Tensor, GradientWrite, float | None]] = {}
    for number, writes in by_tensor.items():
        for before, write in zip(writes, writes[1:]):
            if write.how != "added to" or before.how not in ("created", "added to"):
                continue
            used = [line.at for line in steps if any(u.tensor.number == number for u in line.updates)]
            cleared = next(
                (w.at for w in writes if w.at > write.at and w.how in ("cleared", "zeroed", "assigned")), float("inf")
            )
            if any(before.at < at < write.at for at in used) and any(write.at < at < cleared for at in used):
                ratio = None
                if write.value is not None and write.before is not None and write.before.norm and write.value.norm is not None:
                    ratio = write.value.norm / write.before.norm
                stale.setdefault(number, (write.tensor, write, ratio))
    stale = {n: x for n, x in stale.items() if x[0].requires_grad}
    if not stale:
        return
    names = labels(tensor for tensor, _, _ in stale.values())
    _tensor, write, ratio = next(iter(stale.values()))
    one = write.step.in_pass if write.step is not None else None
    line = steps[-1]
    yield Finding(
        "stale-gradient",
        "warning",
        f"{listed(names)}: gradients of earlier steps are still in .grad",
        f"The backward pass at {place(one.site if one else None)} added to a .grad that an optimizer step at {place(line.site)} had already used: nothing "
        "cleared it in between, so every step applies the sum of all gradients so far."
        + (f" The norm is {ratio:.3g} times that of what was there before." if ratio is not None else ""),
        "call optimizer.zero_grad() once per step",
        sites(backward=one.site if one else None, optimizer_step=line.site),
        {"ratio": ratio, "parameters": len(names)},
        names,
    )
