"""A record as one HTML page that works without a network, and as a short summary for Jupyter.

The page is a template (page/page.html), a style sheet and a few scripts, put together with the record as JSON. Its scripts make
all elements with textContent, and JSON's "<" is escaped, so nothing in a record can become markup.
"""

from __future__ import annotations

import json
import linecache
import math
import os
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from . import summary, terminal
from .fold import Group, fold
from .words import count, duration, number, places, printable, shape, size, source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jinja2 import Template

    from ..explain import Finding
    from ..record import Record
    from ..schema import Hook, Module, Node, ParameterGradient, Pass, Site, Statistics, Step, Tensor

SCRIPTS = ("dom", "model", "layout", "graph", "details", "source", "flow", "search", "main")
MOST_NODES = 20_000  # on one page; older nodes and later passes are left out, and the page says so
MOST_LINES = 4_000  # of one file; of a longer one, those around what the record mentions
AROUND = 30
MOST_REASONS = 4_000  # steps of a pass whose order is explained: for longer passes that takes too long


def to_html(record: Record) -> str:
    """The page, as text."""
    style, script = _file("page.css"), "\n".join(_file(f"{name}.js") for name in SCRIPTS)
    text = json.dumps(page_data(record), allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return _template("page.html").render(
        title=printable(os.path.basename(record.program) or "a program"),
        style=style,
        script=script,
        data=text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        text=terminal.to_text(record, 100, 200),
    )


@cache
def _file(name: str) -> str:
    return (resources.files("backlight.inspect.render") / "page" / name).read_text(encoding="utf-8")


@cache
def _template(name: str) -> Template:
    from jinja2 import Environment

    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(_file(name))


# What the page's scripts read


def page_data(record: Record) -> dict[str, Any]:
    """Everything that the page shows, as plain values; model.js says what is what."""
    sites = _Sites(record)
    passes: list[dict[str, Any]] = []
    left = MOST_NODES
    for one in record.passes or [None]:
        data = _pass(record, one, sites)
        left -= len(data["nodes"])
        if passes and left < 0:
            break
        passes.append(data)
    return {
        "program": printable(os.path.basename(record.program) or "a program"),
        "header": terminal.header(record, 10_000).split(": ", 1)[-1],
        "engine": f"{record.engine} {record.engine_version}".strip(),
        "policy": record.policy,
        "notObservable": record.not_observable,
        "passes": passes,
        "passesLeftOut": len(record.passes) - len(passes) if record.passes else 0,
        "findings": [_finding(finding, sites) for finding in record.findings],
        "files": sites.files(),
    }


class _Sites:
    """The files of the program and their lines; a site is [number of its file, line]."""

    def __init__(self, record: Record):
        self.numbers: dict[str, int] = {}
        self.used: list[set[int]] = []
        self.texts: dict[tuple[int, int], str] = {}
        self.name = places([*record.sites, *(site for finding in record.findings for site in finding.sites.values())])

    def __call__(self, site: Site | None) -> list[int] | None:
        if site is None:
            return None
        file = self.numbers.setdefault(site.file, len(self.numbers))
        if file == len(self.used):
            self.used.append(set())
        if site.line not in self.used[file]:
            self.used[file].add(site.line)
            self.texts[file, site.line] = source(site)
        return [file, site.line]

    def files(self) -> list[dict[str, Any]]:
        """Every file's lines as [number, text], without the parts of a long file that nothing refers to."""
        result = []
        for path, file in self.numbers.items():
            lines = [line.rstrip("\n") for line in linecache.getlines(path)]
            wanted: Iterable[int] = range(1, len(lines) + 1)
            if len(lines) > MOST_LINES:
                wanted = sorted(
                    {n for line in self.used[file] for n in range(line - AROUND, line + AROUND) if 0 < n <= len(lines)}
                )
            shown = [[n, lines[n - 1][:2000]] for n in wanted] or [[n, self.texts[file, n]] for n in sorted(self.used[file])]
            result.append({"path": path, "name": os.path.basename(path), "lines": shown})
        return result


def _pass(record: Record, one: Pass | None, sites: _Sites) -> dict[str, Any]:
    index: dict[Node, int] = {}
    tree = _group(fold(record, one, newest=MOST_NODES), index)
    steps = [step for step in one.steps if step.node in index] if one is not None else []
    running = {step.node: i for i, step in enumerate(steps)}
    callers = {module.parent for module in record.modules}
    data: dict[str, Any] = {
        "nodes": [_node(node, index, running, sites) for node in index],
        "nodesLeftOut": max(len(summary.reached(record, one)) - len(index), 0),
        "tree": tree,
        "steps": _steps(record, steps, index, sites),
        "flow": [_flow(part, callers, index, sites) for part in summary.flow(record, one)],
        "lines": [_line(part, index, sites) for part in summary.lines(record, one)],
        "gradients": [_parameter(row) for row in one.gradients] if one else [],
        "alarms": [],
    }
    if one is None:
        return data
    losses = [loss for loss in one.losses if loss is not None and loss.size == 1]
    alarms = [[alarm, running.get(step.node) if step else None] for alarm, step in summary.alarms(one)]
    return data | {
        "title": f"Pass {one.number + 1}: {one.call}",
        "site": sites(one.site),
        "seconds": sum(step.seconds or 0 for step in one.steps),
        "loss": [_number(loss.norm if loss.min is None else loss.min) for loss in losses],
        "alarms": alarms,
    }


def _group(group: Group, index: dict[Node, int]) -> dict[str, Any]:
    """A group as {kind, label, type, children}; a node is its number."""
    children = []
    for child in group.children:
        if isinstance(child, Group):
            children.append(_group(child, index))
        else:
            children.append(index.setdefault(child, len(index)))
    kind = group.module.type if group.module is not None and group.module.name else ""
    if group.kind == "turn":
        kind = next(
            (child.module.label for child in group.children if isinstance(child, Group) and child.module is not None), ""
        )
    return {"kind": group.kind, "label": printable(group.label), "type": kind, "children": children}


def _node(node: Node, index: dict[Node, int], running: dict[Node, int], sites: _Sites) -> dict[str, Any]:
    output = node.leaf or (node.op.outputs[0] if node.op is not None and node.op.outputs else None)
    module = node.module
    result: dict[str, Any] = {
        "name": node.name,
        "edges": [index[edge.node] if edge is not None and edge.node in index else None for edge in node.edges],
        "sequence": str(node.sequence),
        "bytes": summary.saved_bytes([node]),
    }
    optional = {
        "leaf": printable(node.leaf.label) if node.leaf is not None else None,
        "shape": shape(output.shape) if output is not None else None,
        "site": sites(node.site),
        "module": f"{module.name} · {module.type}" if module and module.name else module.type if module else None,
        "step": running.get(node),
        "saved": [[saved.name, shape(saved.shape), saved.bytes, _name(saved.tensor)] for saved in node.saved] or None,
        "via": node.op.via if node.op is not None else None,
        "madeBy": node.made_by.index if node.made_by is not None else None,
    }
    return result | {key: value for key, value in optional.items() if value is not None}


def _name(tensor: Tensor | None) -> str:
    return printable(tensor.name) if tensor is not None and tensor.name else ""


def _steps(record: Record, steps: Sequence[Step], index: dict[Node, int], sites: _Sites) -> list[dict[str, Any]]:
    """The steps of a pass, each with its hooks, what it did with `.grad`, and why it ran when it did."""
    hooks: dict[Step, list[dict[str, Any]]] = {}
    for hook in record.hooks:
        if hook.step is not None:
            hooks.setdefault(hook.step, []).append(_hook(hook, sites))
    writes = {write.step: write.how for write in record.gradient_writes if write.step is not None}
    reasons = {}
    if steps and len(steps[0].in_pass.steps) <= MOST_REASONS:
        reasons = {ordered.step: ordered.reason for ordered in record.order(steps[0].in_pass.number).steps}
    result = []
    for step in steps:
        known: dict[str, Any] = {
            "node": index[step.node],
            "arrived": list(map(_statistics, step.arrived)),
            "passed": list(map(_statistics, step.passed)),
            "seconds": step.seconds,
        }
        optional = {
            "freed": step.freed or None, "hooks": hooks.get(step), "write": writes.get(step), "reason": reasons.get(step),
        }  # fmt: skip
        result.append(known | {key: value for key, value in optional.items() if value is not None})
    return result


def _hook(hook: Hook, sites: _Sites) -> dict[str, Any]:
    site = sites(hook.registered)
    return {"kind": hook.type, "function": printable(hook.function), "site": site, "changed": hook.changed}


def _statistics(g: Statistics | None) -> dict[str, Any] | None:
    if g is None:
        return None
    result: dict[str, Any] = {"shape": shape(g.shape)}
    if g.norm is not None:
        result["norm"] = _number(g.norm)
    if g.zeros:
        result["zeros"] = g.zeros / max(g.size, 1)
    if g.nonfinite:
        result["bad"] = g.nonfinite
        if g.bad is not None:
            result["at"] = ", ".join(map(str, g.bad))
    return result


def _number(value: float | None) -> float | str | None:
    """A number that JSON can hold; JavaScript's Number() reads the texts back."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _flow(part: summary.Part, callers: set[Module | None], index: dict[Node, int], sites: _Sites) -> dict[str, Any]:
    return {
        "label": printable(part.label or _names(part)),
        "type": "" if part.module is None else _names(part) if part.module in callers else part.module.type,
        "site": sites(part.site),
        "weights": _number(part.weights),
        "activations": _number(part.activations),
        "zeros": part.zeros,
        "nodes": [index[node] for node in part.nodes if node in index],
    }


def _names(part: summary.Part) -> str:
    """What a part without a module did."""
    names = list(dict.fromkeys(node.name.split("Backward")[0] for node in part.nodes))
    return ", ".join(names[:2]) + (", …" if len(names) > 2 else "")


def _line(part: summary.Part, index: dict[Node, int], sites: _Sites) -> dict[str, Any]:
    return {
        "site": sites(part.site),
        "nodes": [index[node] for node in part.nodes if node in index],
        "bytes": part.bytes,
        "seconds": part.backward,
        "bad": part.nonfinite,
    }


def _parameter(row: ParameterGradient) -> dict[str, Any]:
    value = _statistics(row.value)
    return {"name": printable(row.name), "shape": shape(row.shape), "requiresGrad": row.requires_grad, "value": value}


def _finding(finding: Finding, sites: _Sites) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "title": printable(finding.title),
        "text": finding.text,
        "fix": finding.fix,
        "sites": [[role, sites(site), sites.name(site), source(site)] for role, site in finding.sites.items()],
        "numbers": [
            [name.replace("_", " "), _shown(value)] for name, value in finding.numbers.items() if _says_something(value)
        ],
        "names": [printable(name) for name in finding.names],
    }


def _says_something(value: Any) -> bool:
    return value is not None and value is not False and not (isinstance(value, (str, tuple, list, dict)) and not value)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    text = printable(str(value))
    return text if len(text) <= 200 else text[:199] + "…"


# Jupyter


def to_notebook(record: Record) -> str:
    """A short summary with styles of its own and no script, for `_repr_html_`: findings, gradients, the first steps."""
    passes = []
    place = _Sites(record).name
    for one in record.passes[:3]:
        targets = summary.targets(one)
        passes.append(
            {
                "title": f"Backward pass {one.number + 1}: {count(len(one.steps), 'step')} in "
                f"{duration(sum(step.seconds or 0 for step in one.steps))}",
                "place": f"{place(one.site)}  {source(one.site)}".strip(),
                "alarms": [alarm for alarm, _ in summary.alarms(one)],
                "gradients": _bars(one.gradients[:40]),
                "more_gradients": max(len(one.gradients) - 40, 0),
                "steps": [_row(step, targets, place) for step in one.steps[:40]],
                "more_steps": max(len(one.steps) - 40, 0),
            }
        )
    findings = [
        {
            "severity": finding.severity if finding.severity in terminal.SEVERITIES else "note",
            "title": finding.title,
            "text": finding.text,
            "fix": finding.fix,
            "sites": [(role, place(site), source(site)) for role, site in finding.sites.items()],
        }
        for finding in record.findings
    ]
    return _template("notebook.html").render(
        header=terminal.header(record, 10_000), findings=findings, passes=passes, more=max(len(record.passes) - 3, 0)
    )


def _bars(rows: Sequence[ParameterGradient]) -> list[dict[str, Any]]:
    """Parameters with the length of a bar for the norm of their gradient, in percent, on a logarithmic scale."""
    norms = [row.value.norm if row.value is not None else None for row in rows]
    logs = [math.log10(value) for value in norms if value and math.isfinite(value)]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    result = []
    for row, value in zip(rows, norms):
        width = 0.0
        if value and math.isfinite(value):
            width = 10 + 90 * (math.log10(value) - low) / max(high - low, 1.0)
        text = "None" if row.value is None else "there" if value is None else number(value)
        trouble = row.requires_grad and not width and text != "there"
        result.append({"name": row.name, "shape": shape(row.shape), "text": text, "width": round(width), "trouble": trouble})
    return result


def _row(step: Step, targets: dict[tuple[int, int], int], place: Any) -> dict[str, Any]:
    to = [str(targets[step.index, i]) for i in range(len(step.passed)) if (step.index, i) in targets]
    return {
        "index": step.index,
        "node": step.name,
        "where": step.variable or "(unnamed)" if step.node.leaf is not None else place(step.site),
        "leaf": step.node.leaf is not None,
        "norm": number(summary.norm(step.arrived)),
        "to": ", ".join(to),
        "time": duration(step.seconds),
        "saved": size(summary.saved_bytes([step.node])),
    }
