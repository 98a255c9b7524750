"""What a record consists of: plain data, one dataclass per kind of line, and its canonical form, JSON Lines.

Every object of a record belongs to a table (`record.sites`, `record.nodes`, ...) and has a `number`, its place there. In
memory objects refer to each other directly (`step.node.op.site.line`); in a file a reference is the number. What
happened at a time (`Event`) has `at`, its place in `record.events`, and `time`, seconds since the record began.

docs/record.md documents every field. A record holds no tensor and no node, so it keeps no graph alive.
"""

from __future__ import annotations

import ast
import base64
import linecache
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

VERSION = 1
EMPTY: Mapping[str, Any] = types.MappingProxyType({})  # what most nodes and steps have to add: one object for all


def _empty() -> Mapping[str, Any]:
    return EMPTY


# Values: parts of other objects


@dataclass(slots=True)
class Statistics:
    """The shape of a tensor's value and, where the policy measured it, numbers about its elements.

    `norm`: Euclidean. `min` and `max`: of the finite elements (of their magnitudes, for complex numbers), None if there are
    none. `zeros` and `nonfinite`: how many. `bad`: the index of the first NaN or infinity. `values`: all elements (policy "full").
    """

    shape: tuple[int, ...]
    dtype: str = ""
    norm: float | None = None
    min: float | None = None
    max: float | None = None
    zeros: int | None = None
    nonfinite: int | None = None
    bad: tuple[int, ...] | None = None
    values: np.ndarray | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(slots=True)
class Edge:
    """Where a node passes a gradient: to the node that made its input, as the gradient of that node's output `output`."""

    node: Node
    output: int = 0


@dataclass(slots=True)
class Saved:
    """A tensor that a node saved for backward, under PyTorch's name (`self`, `other`, `result`). Tensors that share memory have
    the same `storage`; `version` is the version that was saved."""

    name: str
    tensor: Tensor | None
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    storage: int | None = None
    version: int | None = None
    values: np.ndarray | None = None


@dataclass(slots=True)
class Update:
    """What an optimizer's call did with one of its tensors. `before` and `after` are versions: they differ if it was written.

    `gradient`: of the `.grad` that it read. `value`: of the tensor afterwards, measured where the gradient was not finite.
    """

    tensor: Tensor
    requires_grad: bool
    gradient: Statistics | None
    before: int | None
    after: int | None
    options: dict[str, Any] = field(default_factory=dict)
    value: Statistics | None = None


# Objects without a time


@dataclass(slots=True, eq=False, repr=False)
class Line:
    """What has a number: its place in its table."""

    number: int

    def __repr__(self) -> str:
        shown = [
            f"{f.name}={value!r}" for f in fields(self) if isinstance(value := getattr(self, f.name), (str, int, float, bool))
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(slots=True, eq=False, repr=False)
class Site(Line):
    """A place in the program: the expression `text` at `line`, column `column`. `variable` is what a statement that consists of
    this expression assigns ("y" in `y = x.exp()`), or what a method or operator writes to ("b" in `b.mul_(2)`)."""

    file: str
    line: int
    function: str
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    text: str | None = None
    variable: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def read_source(self) -> None:
        """Fills in `text` and `variable` from the file. Done when recording ends: it costs more than an operation."""
        if self.text is None:
            self.text, self.variable = _expression(self)


@dataclass(slots=True, eq=False, repr=False)
class Tensor(Line):
    """A tensor that the program used, as it was when first seen.

    `role`: "parameter", "buffer", "leaf" (a leaf that requires grad), "result" (of a recorded operation), "gradient" or "constant".
    `name`: a parameter's qualified name, or a variable's. `op` made it as its output number `output`; `node` is its grad_fn.
    `base`: the tensor that it is a view of. Tensors of the same `storage` share memory.
    """

    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool
    leaf: bool
    role: str
    name: str | None = None
    op: Op | None = None
    output: int = 0
    node: Node | None = None
    base: Tensor | None = None
    storage: int | None = None
    bytes: int = 0
    version: int | None = None

    @property
    def label(self) -> str:
        """The best name there is: its own, or the variable that its operation was assigned to, or the expression."""
        if self.name:
            return self.name
        site = self.op.site if self.op is not None else None
        if site is not None:
            site.read_source()
            if site.variable and len(self.op.outputs) == 1:  # pyright: ignore[reportOptionalMemberAccess]
                return site.variable
            if site.text and len(site.text) <= 40:
                return site.text
        return f"tensor {'x'.join(map(str, self.shape)) or 'scalar'}"


@dataclass(slots=True, eq=False, repr=False)
class Node(Line):
    """A node of the graph. `edges` has one entry per input that can have a gradient, None where none is wanted. At an
    AccumulateGrad `leaf` is its tensor. `made_by`: the step of a backward pass that created it (second-level graphs).

    `parameters`: what it saved that is no tensor. `freed_by`: the step after which its saved tensors were gone.
    """

    name: str
    sequence: int
    op: Op | None = None
    edges: list[Edge | None] = field(default_factory=list)
    leaf: Tensor | None = None
    saved: list[Saved] = field(default_factory=list)
    parameters: Mapping[str, Any] = field(default_factory=_empty)
    made_by: Step | None = None
    freed_by: Step | None = None

    @property
    def site(self) -> Site | None:
        """The line of the operation that made the node."""
        return None if self.op is None else self.op.site

    @property
    def module(self) -> Module | None:
        return None if self.op is None else self.op.module

    @property
    def label(self) -> str:
        """Its name, and at an AccumulateGrad its leaf's."""
        return self.name if self.leaf is None else f"{self.name} of {self.leaf.label}"


# Events


@dataclass(slots=True, eq=False, repr=False)
class Event(Line):
    """What happened at a time."""

    at: int
    time: float
    thread: int


@dataclass(slots=True, eq=False, repr=False)
class Module(Event):
    """One call of a module: the `call`-th of the module `name` ("" for the outermost), of class `type`, from within `parent`."""

    name: str
    type: str
    parent: Module | None
    call: int
    site: Site | None = None
    training: bool = True
    seconds: float | None = None

    @property
    def label(self) -> str:
        return self.name or self.type

    @property
    def depth(self) -> int:
        depth, parent = 0, self.parent
        while parent is not None:
            depth, parent = depth + 1, parent.parent
        return depth


@dataclass(slots=True, eq=False, repr=False)
class Op(Event):
    """One call of an operation. `via`: the library function through which the program called it ("cross_entropy", "clip_grad_norm_").

    `arguments`: those that are numbers, texts or None. `grad_enabled`: whether grad mode was on. `during`: the step of a backward
    pass in which it ran (in a hook, in a custom Function's backward, in a recomputation, with create_graph).
    `cut`: how it ended the path from inputs that require grad, if it did: "detach", "data", "numpy", "item", "no_grad",
    "integer" (a result whose type can't have a gradient: argmax, comparison, cast), "requires_grad" (switched off), "not differentiable".
    """

    function: str
    site: Site | None = None
    module: Module | None = None
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)
    via: str | None = None
    grad_enabled: bool = True
    cut: str | None = None
    during: Step | None = None


@dataclass(slots=True, eq=False, repr=False)
class Write(Event):
    """An in-place write by an operation: `tensor` went from version `before` to `after`. What optimizers write is in their `updates`."""

    tensor: Tensor
    op: Op
    site: Site | None
    before: int
    after: int


@dataclass(slots=True, eq=False, repr=False)
class Mode(Event):
    """A mode was switched: "grad", "inference", "anomaly" or "requires_grad" (of `tensor`). Each call of a module has `training`."""

    mode: str
    enabled: bool
    site: Site | None = None
    tensor: Tensor | None = None


@dataclass(slots=True, eq=False, repr=False)
class Pass(Event):
    """One run of the backward engine: `call` ("backward" or "grad") at `site` from `roots`. `steps` are in the order in which they ran.

    `losses`: the values of the roots (not with policy "shapes").
    `broken_by`: where a root's value is not finite, the first operation whose result is not finite, of those that nodes saved; `broken`: about
    it: "value", "element", "count", "size", "inputs" (what it had saved there), or "given" (the number of a tensor that was not finite to begin with).
    `inputs`: the tensors that `grad` (or `backward(inputs=)`) was asked for, empty if it was all leaves. `parent`: the step in which a
    nested pass ran. `gradients`: what lies in the parameters' `.grad` afterwards. `error`: the text of the exception that
    ended it early. `bytes`: what the graph had saved when the pass began; `nodes`: how many it reaches. `distributed`: of a rank's part of a pass
    across ranks, its "context" and the pass's "number" [root's rank, count].
    """

    call: str
    site: Site | None
    roots: list[Tensor] = field(default_factory=list)
    root_edges: list[Edge] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    create_graph: bool = False
    retain_graph: bool = False
    parent: Step | None = None
    module: Module | None = None
    seconds: float | None = None
    error: str | None = None
    nodes: int | None = None
    bytes: int | None = None
    losses: list[Statistics | None] = field(default_factory=list)
    broken_by: Op | None = None
    broken: Mapping[str, Any] = field(default_factory=_empty)
    gradients: list[ParameterGradient] = field(default_factory=list)
    distributed: Mapping[str, Any] = field(default_factory=_empty)
    steps: list[Step] = field(default_factory=list, metadata={"table": True})


@dataclass(slots=True, eq=False, repr=False)
class Step(Event):
    """One node that ran as step `index` (from 1) of `in_pass`: gradients of its outputs `arrived`, it `passed` on those of its
    inputs (one per edge; None: no gradient). `seconds` is None if it raised, or where it can't be observed.

    `freed`: bytes of saved tensors that were freed. `details`: what was found out while the node's saved tensors could be read, about
    the first non-finite element ("nonfinite") and about units of a ReLU that passed nothing ("dead").
    """

    in_pass: Pass
    index: int
    node: Node
    arrived: list[Statistics | None] = field(default_factory=list)
    passed: list[Statistics | None] = field(default_factory=list)
    seconds: float | None = None
    freed: int | None = None
    details: Mapping[str, Any] = field(default_factory=_empty)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def site(self) -> Site | None:
        return self.node.site

    @property
    def variable(self) -> str | None:
        """At an AccumulateGrad: the name of the leaf, if it has one."""
        return None if self.node.leaf is None else self.node.leaf.name


@dataclass(slots=True, eq=False, repr=False)
class Hook(Event):
    """One call of a hook. `type`: "tensor", "retain_grad", "prehook", "post_accumulate", "posthook", "module_forward",
    "module_backward", "saved" or "optimizer". `registered`: where; `order`: as which of its type on its tensor or node.

    `before` and `after`: the gradient that it saw and the one that went on; `changed` if the hook replaced it.
    """

    type: str
    function: str
    registered: Site | None
    order: int
    step: Step | None
    node: Node | None
    tensor: Tensor | None
    before: list[Statistics | None] = field(default_factory=list)
    after: list[Statistics | None] = field(default_factory=list)
    changed: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Registration(Event):
    """A hook was registered, and whether it ever ran can be told from `record.hooks`."""

    type: str
    function: str
    site: Site | None
    order: int
    node: Node | None
    tensor: Tensor | None


@dataclass(slots=True, eq=False, repr=False)
class GradientWrite(Event):
    """`.grad` of a leaf changed: `how` is "created" or "added to" (by a step), "assigned" or "cleared" (by the program), or "written"
    (in place, by `op`: clipping, `grad.zero_()`)."""

    tensor: Tensor
    how: str
    site: Site | None = None
    step: Step | None = None
    value: Statistics | None = None
    before: Statistics | None = None
    op: Op | None = None


@dataclass(slots=True, eq=False, repr=False)
class Optimizer(Event):
    """A call of an optimizer's `call` ("step" or "zero_grad"). `optimizer` numbers the optimizers of the program, `type` is the class."""

    optimizer: int
    type: str
    call: str
    site: Site | None
    updates: list[Update] = field(default_factory=list)
    seconds: float | None = None


@dataclass(slots=True, eq=False, repr=False)
class Error(Event):
    """An exception that left an operation or a pass."""

    type: str
    text: str
    site: Site | None
    in_pass: Pass | None = None
    step: Step | None = None


@dataclass(slots=True)
class ParameterGradient:
    """What lies in a parameter's `.grad` after a pass: `value` is None where `.grad` is None."""

    name: str
    tensor: Tensor
    requires_grad: bool
    value: Statistics | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape


TABLES: dict[str, type[Line]] = {
    "sites": Site, "tensors": Tensor, "nodes": Node, "modules": Module, "ops": Op, "writes": Write, "modes": Mode, "passes": Pass,
    "steps": Step, "hooks": Hook, "registrations": Registration, "gradient_writes": GradientWrite, "optimizers": Optimizer,
    "errors": Error,
}  # fmt: skip


# JSON


def encode(line: Line) -> dict[str, Any]:
    """A line as a dictionary of plain values; references become numbers. Fields that have their default are left out."""
    result: dict[str, Any] = {"kind": type(line).__name__}
    for f in _fields(type(line)):
        value = getattr(line, f.name)
        if value is None or (value == [] or value == EMPTY) or f.metadata.get("table"):
            continue
        result[f.name] = _plain(value)
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, Line):
        return value.number
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, np.ndarray):
        text = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": value.dtype.str, "shape": list(value.shape), "base64": text}
    if hasattr(type(value), "__dataclass_fields__"):
        return {f.name: _plain(x) for f in _fields(type(value)) if (x := getattr(value, f.name)) is not None}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return repr(value)


def empty(kind: type[Line]) -> Any:
    """An object of this kind whose fields are all at their defaults or None, to be filled by `decode`."""
    result = object.__new__(kind)
    for f in _fields(kind):
        factory = f.default_factory
        default = None if f.default is MISSING else f.default
        setattr(result, f.name, factory() if callable(factory) else default)
    return result


def decode(line: Line, data: dict[str, Any], tables: dict[type, list]) -> None:
    """Fills `line` from what `encode` returned. ValueError names what doesn't fit."""
    hints = _hints(type(line))
    for key, value in data.items():
        if key == "kind":
            continue
        if key not in hints:
            raise ValueError(f"{type(line).__name__} has no field {key!r}")
        setattr(line, key, _rich(value, hints[key], tables))


def _rich(value: Any, hint: Any, tables: dict[type, list]) -> Any:
    if isinstance(value, dict):
        if "float" in value and len(value) == 1:
            return float(value["float"])
        if "base64" in value:
            array = np.frombuffer(base64.b64decode(value["base64"]), np.dtype(value["array"]))
            return array.reshape(value["shape"])
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return _rich(value, next(x for x in get_args(hint) if x is not type(None)), tables)
    if origin is list:
        return [_rich(x, get_args(hint)[0], tables) for x in value]
    if origin is tuple:
        return tuple(value)
    if origin in (dict, Mapping):
        return {key: _rich(x, Any, tables) for key, x in value.items()}
    if isinstance(hint, type) and issubclass(hint, Line):
        if type(value) is not int or not 0 <= value < len(tables[hint]):
            raise ValueError(f"there is no {hint.__name__} with number {value!r}")
        return tables[hint][value]
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        hints = _hints(hint)
        return hint(**{key: _rich(x, hints[key], tables) for key, x in value.items()} | _missing(hint, value))
    if isinstance(value, list):
        return [_rich(x, Any, tables) for x in value]
    if isinstance(value, dict):
        return {key: _rich(x, Any, tables) for key, x in value.items()}
    return value


def _missing(kind: type, value: dict) -> dict[str, None]:
    """Required fields that were None, and so were left out."""
    required = [f.name for f in _fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    return {name: None for name in required if name not in value}


@cache
def _fields(kind: type) -> tuple:
    return fields(kind)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, globals())


# Source text


def _expression(site: Site) -> tuple[str, str | None]:
    """The text of a site's expression, and the variable that it is assigned to or that it writes to."""
    lines = linecache.getlines(site.file)
    whole = lines[site.line - 1].strip() if 0 < site.line <= len(lines) else ""
    if site.column is None or site.end_line is None or site.end_column is None or not whole:
        return whole, None
    node = _expressions(site.file).get((site.line, site.column, site.end_line, site.end_column))
    if node is None:
        return whole, None
    source = [line.encode() for line in lines[site.line - 1 : site.end_line]]
    source[-1] = source[-1][: site.end_column]
    source[0] = source[0][site.column :]
    return " ".join(b"".join(source).decode(errors="replace").split()), _variable(node)


@cache
def _expressions(file: str) -> dict[tuple, ast.AST]:
    """The expressions of a file by their positions; each knows the statement around it."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return {}
    found: dict[tuple, ast.AST] = {}
    for statement in ast.walk(tree):
        for child in ast.iter_child_nodes(statement):
            child.parent = statement  # pyright: ignore[reportAttributeAccessIssue]
        if isinstance(statement, (ast.expr, ast.stmt)):
            key = statement.lineno, statement.col_offset, statement.end_lineno, statement.end_col_offset
            if key not in found or isinstance(found[key], ast.stmt):  # the expression, where it is the whole statement
                found[key] = statement
    return found


def _variable(node: ast.AST) -> str | None:
    parent = getattr(node, "parent", None)
    if isinstance(parent, ast.Assign) and parent.value is node and len(parent.targets) == 1:
        return _name(parent.targets[0])
    if isinstance(parent, ast.Tuple):  # a, b = x, y
        statement = getattr(parent, "parent", None)
        if isinstance(statement, ast.Assign) and statement.value is parent and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) == len(parent.elts):
                return _name(target.elts[parent.elts.index(node)])  # pyright: ignore[reportArgumentType]
    if isinstance(parent, (ast.AnnAssign, ast.NamedExpr)) and parent.value is node:
        return _name(parent.target)
    if isinstance(node, ast.AugAssign):
        return _name(node.target)
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return _name(node.targets[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        return _name(node.func.value)
    return None


def _name(node: ast.AST) -> str | None:
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else None
