"""How an operation is declared: one statement holds what it computes and its gradients.

    mul = binary("mul", np.multiply,
        lambda g, _input, other, _out: g * other,
        lambda g, input, _other, _out: g * input)

A formula receives `g` (the gradient of the output), the inputs, the output and the parameters by position. Its
parameter names say what is saved: `_other` is not needed, so it is not saved and arrives as None; `input_shape`
wants only the shape; anything else is saved.

One text, two uses. A formula names public operations. `arrays_form` rebinds those names to their NumPy twins, which
is what a plain backward runs; the formula as written takes tensors and is recorded, for double backward.

The function that a declaration returns starts as a stub. The first call writes the Python that one would write by hand
for this operation (codegen.py) and puts it in the stub's place, so a call costs one Python frame, and
importing the library compiles nothing. Whatever is unusual (numbers, mixed types, ...) leaves by `slow`.
"""

from __future__ import annotations

from types import FunctionType

import numpy as np

from . import codegen, engine, errors, views
from .dispatch import attach, check_broadcast, saved_output, shapes, slow, slow_operator
from .engine import Node
from .inplace import inplace, inplace_method, write_out
from .state import clock, modes, state
from .tensor import PLAIN, Tensor

__all__ = ["attach", "binary", "check_broadcast", "face", "inplace", "op", "operator", "public", "twin", "unary", "write_out"]

REGISTRY: dict = {}  # every public function by its name, "nn.functional.relu" included
OPS: dict[str, Op] = {}  # every differentiable primitive
OPS_PACKAGE = __name__.rpartition(".")[0] + ".ops"


class Op:
    """A declared operation. `arrays` computes on arrays; `formulas` has one gradient per input (None: no gradient)."""

    __slots__ = ("arrays", "batch", "broadcasts", "check", "codes", "constants", "copies", "doc", "formulas", "frees", "function", "inputs", "joint",
                 "name", "node_class", "node_name", "nondifferentiable", "optional", "outputs", "parameters", "promote", "saves",
                 "saves_output", "view", "holomorphic")  # fmt: skip

    def build(self):
        build(self)

    def __repr__(self):
        return f"<op {self.name}({', '.join(self.inputs + self.parameters)})>"


def _argument_names(f):
    return f.__code__.co_varnames[: f.__code__.co_argcount]


def op(name, arrays, *formulas, joint=None, node=None, promote="same", view=False, outputs=1, nondifferentiable=(),
       optional=(), holomorphic=True, frees=False, check=None, batch=None, doc=""):  # fmt: skip
    """Declares an operation and returns its function.

    arrays: computes the output array(s) from the input arrays and parameters. formulas: one for each input tensor.
    joint: in place of formulas, one function that returns all gradients as a tuple.
    promote: what happens to inputs of different types: "same" (must agree), "arith" (PyTorch's promotion), "float"
    (also integers become floating point), "compare" (promote, the result is bool), "keep" (each as it is).
    outputs: how many outputs (-1: it varies); nondifferentiable: the numbers of outputs without gradient. optional:
    inputs that may be None. holomorphic: whether complex gradients follow from the formula by conjugation. frees: whether
    backward may run only once although no input is saved (parameters stand for tensors that PyTorch saves). check: called
    with the inputs of a call off the fast path, to raise for types that the operation refuses. batch: how it runs under
    vmap: "leading" (unchanged, if every input gets one more dimension in front), "elementwise", or a rule.
    """
    self = Op()
    self.name, self.arrays, self.joint, self.doc = name, arrays, joint, doc
    self.formulas = formulas
    self.node_name = node or "".join(part.capitalize() for part in name.strip("_").split("_")) + "Backward0"
    self.promote, self.view, self.outputs, self.optional = promote, view, outputs, optional
    self.nondifferentiable, self.holomorphic = nondifferentiable, holomorphic
    self.node_class, self.check, self.batch = None, check, batch
    self.constants, self.codes, self.copies = {}, None, []
    signature = next((f for f in (joint, *formulas) if f is not None), None)
    if signature is None:  # nothing differentiable: the names come from `arrays`
        names = ("g", *_argument_names(arrays)[: len(formulas)], "_out", *_argument_names(arrays)[len(formulas) :])
    else:
        names = _argument_names(signature)
    n = len(formulas) if joint is None else names.index(next(a for a in names if a.strip("_") == "out")) - 1
    clean = [a.strip("_").removesuffix("_shape") for a in names]
    self.inputs, self.parameters = tuple(clean[1 : n + 1]), tuple(clean[n + 2 :])
    self.saves = []
    for i in range(n):  # for each input: the formulas that need the tensor, and those that need its shape
        users: tuple[list, list] = ([], [])
        for j, f in enumerate(formulas if joint is None else (joint,) * n):
            if f is not None and (wanted := _argument_names(f)[i + 1])[0] != "_":
                users[wanted.endswith("_shape")].append(j)
        self.saves.append(users)
    needing = [f for f in (joint, *formulas) if f is not None and _argument_names(f)[n + 1][0] != "_"]
    self.saves_output = bool(needing)
    self.frees = frees or self.saves_output or any(users for users, _shape_users in self.saves)
    self.broadcasts = promote in ("arith", "float")
    OPS[name] = self
    self.function = _stub(self)
    return self.function


def unary(name, arrays, formula, *, promote="float", public=True, **options):
    """Declares an elementwise operation of one tensor and makes it a function and a method."""
    function = op(name, arrays, formula, promote=promote, **{"batch": "elementwise", **options})
    return face(function, name=name, inplace=True) if public else function


def binary(name, arrays, formula, other_formula, *, promote="arith", public=True, inplace=True, **options):
    """Declares an elementwise operation of two tensors (or numbers) with broadcasting."""
    function = op(name, arrays, formula, other_formula, promote=promote, **{"batch": "elementwise", **options})
    return face(function, name=name, inplace=inplace) if public else function


def face(function, *, name=None, method=True, inplace=False, module="torch", aliases=()):
    """Makes a function public: in `module` ("" for a method only), as a Tensor method, and as `name_` if inplace."""
    if name and (function.__qualname__ != function.__name__ or function.__name__ == "<lambda>"):  # made by another function
        codegen.named(function, name)
    for each in (name or function.__name__, *aliases):
        if module:
            REGISTRY[each if module == "torch" else f"{module}.{each}"] = function
        if method:
            setattr(Tensor, each, function)
        if inplace:
            setattr(Tensor, each + "_", inplace_method(function, each + "_"))
    return function


def public(method=True, inplace=False, module="torch", aliases=(), name=None):
    """`face` as a decorator, for functions that normalise their arguments before a primitive."""
    return lambda f: face(f, name=name, method=method, inplace=inplace, module=module, aliases=aliases)


def twin(arrays):
    """Gives a function over tensors its form over arrays, for use inside formulas."""

    def mark(function):
        function.arrays = arrays
        return function

    return mark


def arrays_form(formula, made=None):
    """The formula over arrays: the same code, with the names of operations bound to their array forms.

    Functions of ops/ that a formula calls and that have no array form of their own are rebound in the same way.
    """
    made = {} if made is None else made
    if formula in made:
        return made[formula]
    scope: dict = {"__builtins__": __builtins__}
    form = FunctionType(formula.__code__, scope, formula.__name__, formula.__defaults__, formula.__closure__)
    form.__kwdefaults__ = formula.__kwdefaults__
    made[formula] = form
    names, codes = set(), [formula.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    for key in names:
        if key in formula.__globals__:
            value = formula.__globals__[key]
            if type(value) is FunctionType:
                if hasattr(value, "arrays"):
                    value = value.arrays
                elif value.__module__.startswith(OPS_PACKAGE):
                    value = arrays_form(value, made)
            scope[key] = value
    return form


def _stub(op):
    """A function that, when first called, replaces its own code by the code written for the operation."""
    scope = {"__op__": op, "__build__": build, "__name__": __name__}
    function = FunctionType(_call_stub.__code__, scope, op.name, None, None)
    function.__qualname__ = op.name
    function.__doc__ = op.doc
    function.__module__ = "backlight"
    function.arrays = op.arrays
    function.op = op
    return function


def operator(function):
    """A primitive for use as an operator: NotImplemented in place of TypeError lets Python try the other operand."""
    scope = {"__op__": function.op, "__name__": __name__}
    method = FunctionType(_call_stub.__code__, scope, function.op.name, None, None)

    def fill_in(op):
        scope.update(build(op).__globals__, slow=slow_operator)
        method.__code__, method.__defaults__ = op.function.__code__, op.function.__defaults__
        op.copies.append(method)
        return method

    scope["__build__"] = fill_in
    return method


def _call_stub(*args, **kwargs):
    return __build__(__op__)(*args, **kwargs)  # noqa: F821  # pyright: ignore  (both are in the stub's own globals)


def build(op):
    """Compiles the operation's source, makes its node class, and fills in its stub."""
    function = op.function
    if op.node_class is not None:
        return function
    scope = function.__globals__
    scope.update(
        f=op.arrays, op=op, this=function, numbers=op.constants, plain=PLAIN, state=state, modes=modes, new=object.__new__, Tensor=Tensor, asarray=np.asarray,
        ndarray=np.ndarray, float32=np.dtype("f4"), float64=np.dtype("f8"), clock=clock, slow=slow, shapes=shapes,
        edge_of=views.edge_of, Nowhere=views.Nowhere, view_of=views.view_of, freed=errors.freed, modified=errors.modified,
        modified_output=errors.modified_output, saved_output=saved_output, unbroadcast=engine.unbroadcast,
    )  # fmt: skip
    for i, formula in enumerate(op.formulas):
        if formula is not None:
            scope[f"f{i}_t"], scope[f"f{i}_a"] = formula, arrays_form(formula)
    if op.joint is not None:
        scope["joint_t"], scope["joint_a"] = op.joint, arrays_form(op.joint)
    compiled = codegen.compiled_source(op, scope)
    wanted = {"saved": op.frees, "output_version": op.saves_output, "shapes": op.broadcasts}
    wanted["parameters"] = bool(op.parameters) or any(shape_users for _users, shape_users in op.saves)
    slots = tuple(name for name, needed in wanted.items() if needed)
    members = {"__slots__": slots, "run": compiled["run"], "record": compiled["record"], "op": op, "outputs": op.outputs}
    if op.node_name in ("CopyBackwards", "NotImplemented"):
        members["name"] = lambda _node, name=op.node_name: f"torch::autograd::{name}"
    if op.outputs < 0:
        members["outputs"] = property(lambda node: node.extra["outputs"])
    if op.saves_output:
        members["saves_output"] = True
    shape_names = [f"{name}_sym_sizes" for name, (_users, shape_users) in zip(op.inputs, op.saves) if shape_users]
    for i, (name, users) in enumerate(zip((*op.inputs, "result"), (*(users for users, _ in op.saves), op.saves_output))):
        if users:
            members["_saved_" + name.replace("input", "self")] = property(codegen.saved_tensor_getter(i))
            members["_raw_saved_" + name.replace("input", "self")] = property(codegen.raw_saved_getter(i))
    for i, name in enumerate((*shape_names, *op.parameters)):
        members["_saved_" + name.replace("input", "self")] = property(codegen.parameter_getter(i))
    if op.joint is None and None in op.formulas:
        members["differentiable"] = [f is not None for f in op.formulas]
    scope["node_class"] = op.node_class = type(op.node_name, (Node,), members)
    codegen.large_class(op, scope, compiled)
    function.__code__ = compiled[op.name].__code__
    function.__defaults__ = compiled[op.name].__defaults__
    if state.recorder is not None:
        codegen.show_to_recorder(op, True)
    return function
