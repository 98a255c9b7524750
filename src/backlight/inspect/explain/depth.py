"""Gradients over depth and time: vanishing, exploding, graphs that grow, hooks that never ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import carried_into
from .finding import Finding, labels, listed, place, sites, size_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..schema import Pass
    from .flow import Flow

FACTOR = 1e3  # between the largest and the smallest gradient norm from which on the depth is remarkable


def findings(flow: Flow) -> Iterator[Finding]:
    for one in flow.record.passes[:1]:
        yield from _over_depth(one)
    yield from _growing(flow)
    yield from _silent_hooks(flow)


def by_module(one: Pass) -> list[tuple[str, float | None, float | None]]:
    """Per module with weights, in the order of the forward pass: (name, norm of its weights' gradients, norm of the gradient of its
    result)."""
    weights: dict[str, float] = {}
    results: dict[str, float] = {}
    order: dict[str, int] = {}
    for step in one.steps:
        leaf = step.node.leaf
        if leaf is not None and leaf.role == "parameter" and leaf.name and step.arrived and step.arrived[0] is not None:
            name = leaf.name.rpartition(".")[0]
            if step.arrived[0].norm is not None:
                weights[name] = (weights.get(name, 0.0) ** 2 + step.arrived[0].norm ** 2) ** 0.5
        module = step.node.module
        if module is not None and step.arrived and step.arrived[0] is not None and step.arrived[0].norm is not None:
            if module.name not in results:  # the first step of a module in backward is its last operation
                results[module.name] = step.arrived[0].norm
            order[module.name] = module.at
    names = [name for name in sorted(order, key=lambda n: order[n]) if name in weights]
    return [(name, weights.get(name), results.get(name)) for name in names]


def _over_depth(one: Pass) -> Iterator[Finding]:
    rows = by_module(one)
    if len(rows) < 4:
        return
    for index, of in ((1, "weights"), (2, "activations")):
        norms: list[float] = [norm for row in rows if isinstance(norm := row[index], float)]
        if len(norms) < 4 or not 0 < min(norms) <= max(norms) < float("inf"):
            continue
        first, last = norms[0], norms[-1]
        for kind, ratio in (("vanishing", last / first), ("exploding", first / last)):
            if ratio >= FACTOR:
                yield _depth_finding(one, rows, kind, of, ratio)
                return


def _depth_finding(one: Pass, rows: list, kind: str, of: str, ratio: float) -> Finding:
    shrinks = kind == "vanishing"
    weights, activations = ([row[i] for row in rows] for i in (1, 2))
    per_layer = ratio ** (1 / (len(rows) - 1))
    first, last = rows[0][0], rows[-1][0]

    def course(norms: list) -> str:
        known = [n for n in norms if n is not None]
        return f"from {known[-1]:.3g} to {known[0]:.3g}" if known else "unknown"

    return Finding(
        f"{kind}-gradient",
        "warning",
        f"gradients {'vanish' if shrinks else 'explode'} over depth: that of the first layer's {of} is {ratio:.1e} times "
        f"{'smaller' if shrinks else 'larger'} than the last's",
        f"From {last} back to {first} the norm of the weights' gradient goes {course(weights)}, that of the activations' gradient "
        f"{course(activations)}: a factor of {per_layer:.3g} per layer for the {of}.",
        "use normalisation or residual connections, another activation, or an initialisation that keeps the scale"
        if shrinks
        else "clip the gradient norm, lower the learning rate, or use an initialisation that keeps the scale",
        sites(backward=one.site),
        {"of": of, "ratio": ratio, "per_layer": per_layer, "weights": weights, "activations": activations},
        [row[0] for row in rows],
    )


def _growing(flow: Flow) -> Iterator[Finding]:
    """The graph of a pass gets larger from step to step: something computed earlier is carried on without detach."""
    series: dict[str, list[Pass]] = {}
    for one in flow.record.passes:
        if one.parent is None and one.nodes:
            series.setdefault(str(one.site), []).append(one)
    for passes in series.values():
        nodes = [one.nodes or 0 for one in passes]
        if len(nodes) < 3 or any(b <= a for a, b in zip(nodes, nodes[1:])):
            continue
        carried = carried_into(flow, passes[-1].number)
        names = labels(carried)
        saved = [one.bytes or 0 for one in passes]
        yield Finding(
            "graph-growing",
            "warning",
            f"the graph grows from step to step: {nodes[0]} to {nodes[-1]} nodes in {len(nodes)} backward passes",
            f"Each backward pass at {place(passes[0].site)} goes through more nodes than the one before: {listed(map(str, nodes), 12)}; what they saved "
            f"takes {listed(map(size_of, saved), 12)}."
            + (f" {listed(names)} carries the graph of earlier steps into the next one." if names else ""),
            f"detach {listed(names)} between the steps" if names else "detach what is kept from one step to the next",
            sites(backward=passes[0].site, carried_from=carried[0].op.site if carried and carried[0].op is not None else None),
            {"nodes": nodes, "bytes": saved, "carried": names},
            names,
        )


def _silent_hooks(flow: Flow) -> Iterator[Finding]:
    """Hooks that were registered, and never ran although a pass came after."""
    record = flow.record
    ran = {(h.type, h.order, h.tensor.number if h.tensor else None, h.node.number if h.node else None) for h in record.hooks}
    for one in record.registrations:
        tensor = one.tensor.number if one.tensor is not None else None
        if any(kind == one.type and order == one.order and (t == tensor if tensor is not None else n == (one.node.number if one.node else None))
               for kind, order, t, n in ran):  # fmt: skip
            continue
        later = [p for p in record.passes if p.at > one.at]
        earlier = [p for p in record.passes if p.at < one.at]
        if not later and not earlier:
            continue
        name = one.tensor.label if one.tensor is not None else one.node.label if one.node is not None else "a node"
        if not later:
            why, fix = "it was registered after the last backward pass", "register the hook before backward()"
        elif one.tensor is not None and any(w.tensor is one.tensor and w.at > one.at for w in record.writes):
            why = f"{name} was written in place after the hook was registered, and then had another node"
            fix = "register the hook after the in-place operation"
        else:
            why, fix = f"no backward pass went through {name}", "check that it is part of the loss"
        yield Finding(
            "hook-never-ran",
            "warning",
            f"the {one.type.replace('_', ' ')} hook {one.function} on {name} never ran",
            f"{one.function} was registered at {place(one.site)}, and {why}.",
            fix,
            sites(registered=one.site, backward=later[0].site if later else earlier[-1].site),
            {"hook": one.type, "passes_after": len(later)},
            [name],
        )
