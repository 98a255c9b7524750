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
for this operation (`source(op)` shows it) and puts it in the stub's place, so a call costs one Python frame, and
importing the library compiles nothing. Whatever is unusual (numbers, mixed types, recorders, ...) leaves by `slow`.
"""

from __future__ import annotations

from types import FunctionType

import numpy as np

from . import dtypes, engine, views
from .engine import Node, Port, clock, modes, state
from .tensor import Parameter, Tensor

REGISTRY: dict[str, object] = {}  # every public function by its name, "nn.functional.relu" included
OPS: dict[str, Op] = {}  # every differentiable primitive
OPS_PACKAGE = __name__.rpartition(".")[0] + ".ops"
PLAIN = frozenset((Tensor, Parameter))  # the types without __torch_function__


class Op:
    """A declared operation. `arrays` computes on arrays; `formulas` has one gradient per input (None: no gradient)."""

    __slots__ = ("arrays", "broadcasts", "constants", "doc", "formulas", "frees", "function", "inputs", "joint", "name", "node_class",
                 "node_name", "nondifferentiable", "optional", "outputs", "parameters", "promote", "samples", "saves",
                 "saves_output", "view", "holomorphic")  # fmt: skip

    def __repr__(self):
        return f"<op {self.name}({', '.join(self.inputs + self.parameters)})>"


def _argument_names(f):
    return f.__code__.co_varnames[: f.__code__.co_argcount]


def op(name, arrays, *formulas, joint=None, node=None, promote="same", view=False, outputs=1, nondifferentiable=(),
       optional=(), holomorphic=True, doc="", samples=None):  # fmt: skip
    """Declares an operation and returns its function.

    arrays: computes the output array(s) from the input arrays and parameters. formulas: one for each input tensor.
    joint: in place of formulas, one function that returns all gradients as a tuple.
    promote: what happens to inputs of different types: "same" (must agree), "arith" (PyTorch's promotion), "float"
    (also integers become floating point), "compare" (promote, the result is bool), "keep" (each as it is).
    outputs: how many differentiable outputs; nondifferentiable: the numbers of outputs without gradient.
    """
    self = Op()
    self.name, self.arrays, self.joint, self.doc, self.samples = name, arrays, joint, doc, samples
    self.formulas = formulas
    self.node_name = node or "".join(part.capitalize() for part in name.strip("_").split("_")) + "Backward0"
    self.promote, self.view, self.outputs, self.optional = promote, view, outputs, optional
    self.nondifferentiable, self.holomorphic = nondifferentiable, holomorphic
    self.node_class = None
    self.constants = {}
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
    self.frees = self.saves_output or any(users for users, _shape_users in self.saves)
    self.broadcasts = promote in ("arith", "float")
    OPS[name] = self
    self.function = _stub(self)
    return self.function


def unary(name, arrays, formula, *, promote="float", public=True, **options):
    """Declares an elementwise operation of one tensor and makes it a function and a method."""
    function = op(name, arrays, formula, promote=promote, **options)
    return face(function, name=name, inplace=True) if public else function


def binary(name, arrays, formula, other_formula, *, promote="arith", public=True, inplace=True, **options):
    """Declares an elementwise operation of two tensors (or numbers) with broadcasting."""
    function = op(name, arrays, formula, other_formula, promote=promote, **options)
    return face(function, name=name, inplace=inplace) if public else function


def face(function, *, name=None, method=True, inplace=False, module="torch", aliases=()):
    """Makes a function public: in `module` ("" for a method only), as a Tensor method, and as `name_` if inplace."""
    for name in (name or function.__name__, *aliases):
        if module:
            REGISTRY[name if module == "torch" else f"{module}.{name}"] = function
        if method:
            setattr(Tensor, name, function)
        if inplace:
            setattr(Tensor, name + "_", _inplace_method(function, name + "_"))
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


def source(op: Op) -> str:
    """The Python text of an operation: the call, and the node's `run` (arrays) and `record` (tensors)."""
    formulas = op.formulas if op.joint is None else (op.joint,) * len(op.inputs)
    ids = range(len(op.inputs))
    with_edges = [i for i in ids if formulas[i] is not None]
    required = [i for i in with_edges or ids if op.inputs[i] not in op.optional]
    takes_out = op.promote not in ("same", "keep") and not op.parameters

    def known(i):
        test = f"(type({op.inputs[i]}) is Tensor or type({op.inputs[i]}) in plain)"
        return f"({op.inputs[i]} is None or {test})" if op.inputs[i] in op.optional else test

    def array(i):
        name = op.inputs[i]
        return f"None if {name} is None else {name}.array" if name in op.optional else f"{name}.array"

    def edge(i):
        name = op.inputs[i]
        if i not in with_edges:
            return "None"
        found = f"{name}.node if {name}.base is None else current_node({name})"
        return f"None if {name} is None else {found}" if name in op.optional else found

    def when(users, value, i):
        """The value, if one of the formulas that need it will run."""
        if op.inputs[i] in op.optional and value.endswith(".shape"):
            value = f"None if a{i} is None else {value}"
        if op.joint is not None or with_edges == users:
            return value
        return f"{value} if {' or '.join(f'e{j} is not None' for j in users)} else None"

    def tensor(i):
        return when(op.saves[i][0], op.inputs[i], i) if op.saves[i][0] else "None"

    values = ", ".join((*op.inputs, *op.parameters))
    leave = f"slow(op, ({', '.join(op.inputs)},), ({''.join(p + ', ' for p in op.parameters)})" + (", out)" if takes_out else ")")
    lines = [f"def {op.name}({values}{', out=None' if takes_out else ''}):"]
    if op.outputs != 1 or op.nondifferentiable:  # several outputs are built in one place, off the fast path
        lines += [f"    return {leave}"]
    else:
        same_type = "".join(f" and a{i}.dtype is d" for i in required[1:]) + "".join(
            f" and (a{i} is None or a{i}.dtype is d)" for i in with_edges if op.inputs[i] in op.optional
        )
        lines += [
            f"    if {' and '.join(map(known, ids))} and not state.unusual:",
            *[f"        a{i} = {array(i)}" for i in ids],
            f"        d = a{required[0]}.dtype",
            f"        if (d is float32 or d is float64){same_type}{' and out is None' if takes_out else ''}:",
            "            try:",
            f"                array = f({', '.join([f'a{i}' for i in ids] + list(op.parameters))})",
            "            except (ValueError, TypeError, IndexError):",
            f"                return {leave}",
            "            if type(array) is not ndarray:",
            "                array = asarray(array)",
            "            result = new(Tensor)",
            "            result.array = array",
            "            result.node = result.version = result.base = None",
        ]
        if with_edges:
            lines += [f"            e{i} = {edge(i)}" for i in ids]
            wanted = " or ".join(f"e{i} is not None" for i in with_edges)
            lines += [
                f"            if ({wanted}) and not (state.grad_off and not modes.grad):",
                "                result.node = node = new(node_class)",
                f"                node.edges = ({''.join(f'e{i}, ' for i in ids)})",
                "                node.seq = next(clock)",
                "                node.hooks = None",
            ]
            if op.frees:
                out = "array" if op.saves_output else "None"
                lines += [f"                node.saved = ({''.join(f'{tensor(i)}, ' for i in ids)}{out},)"]
            sizes = [when(op.saves[i][1], f"a{i}.shape", i) for i in ids if op.saves[i][1]]
            parameters = "".join(f"{p}, " for p in (*sizes, *op.parameters))
            if parameters:
                lines += [f"                node.parameters = ({parameters})"]
            if op.saves_output:
                lines += ["                node.output_version = None"]
            if op.broadcasts and len(required) == 2:
                lines += [
                    "                node.shapes = None if a0.shape == a1.shape or ("
                    "(e0 is None or a0.shape == array.shape) and (e1 is None or a1.shape == array.shape)"
                    ") else shapes((e0, e1), array, (a0, a1))"
                ]
            elif op.broadcasts:
                lines += ["                node.shapes = None"]
        if op.view:
            lines += [f"            view_of(result, {op.inputs[0]})"]
        lines += ["            return result", f"    return {leave}"]
    for method, suffix in (("run", "a"), ("record", "t")):
        lines += _backward_source(op, method, suffix)
    return "\n".join(lines)


def _backward_source(op, method, suffix):
    ids = range(len(op.inputs))
    lines = [f"def {method}(node, g, edges):"]
    if op.frees:
        lines += [
            "    saved = node.saved",
            "    if saved is None:",
            "        raise freed(node)",
            f"    {''.join(f's{i}, ' for i in ids)}out, = saved",
        ]
    given = [f"z{i}" for i in ids if op.saves[i][1]] + list(op.parameters)
    if given:
        lines += [f"    {', '.join(given)}, = node.parameters"]
    for i, (users, _shape_users) in enumerate(op.saves):
        if users:
            lines += [
                f"    if s{i} is not None:",
                f"        if s{i}.version is not None and s{i}.version.stamp > node.seq:",
                f"            raise modified(node, {i}, s{i})",
            ]
            if method == "run":
                lines += [f"        s{i} = s{i}.array"]
    if op.saves_output:
        lines += [
            "    if node.output_version is not None and node.output_version[0].count != node.output_version[1]:",
            "        raise modified_output(node, out)",
        ]
        if method == "record":
            lines += ["    out = saved_output(node, out)"]
    out = "out" if op.saves_output else "None"

    def call(j):
        arguments = [f"z{i}" if j in op.saves[i][1] else f"s{i}" if j in op.saves[i][0] else "None" for i in ids]
        return f"({', '.join(['g', *arguments, out, *op.parameters])})"

    if op.joint is not None:
        lines += [f"    grads = joint_{suffix}{call(0)}"]
    else:
        lines += [f"    {''.join(f'e{i}, ' for i in ids)}= edges"]
        grads = [f and f"f{i}_{suffix}{call(i)} if e{i} is not None else None" for i, f in enumerate(
            [f is not None for f in op.formulas])]  # fmt: skip
        lines += [f"    grads = ({''.join(f'{g or None}, ' for g in grads)})"]
    return [*lines, "    return grads if node.shapes is None else unbroadcast(node, grads)" if op.broadcasts else "    return grads"]


def _stub(op):
    """A function that, when first called, replaces its own code by the code written for the operation."""
    scope = {"__op__": op, "__build__": build, "__name__": __name__}
    function = FunctionType(_call_stub.__code__, scope, op.name, None, None)
    function.__doc__ = op.doc
    function.__module__ = "backlight"
    function.arrays = op.arrays
    function.op = op
    return function


def _call_stub(*args, **kwargs):
    return __build__(__op__)(*args, **kwargs)  # noqa: F821  (both are in the stub's own globals)


def build(op):
    """Compiles the operation's source, makes its node class, and fills in its stub."""
    function = op.function
    if op.node_class is not None:
        return function
    scope = function.__globals__
    scope.update(
        f=op.arrays, op=op, plain=PLAIN, state=state, modes=modes, new=object.__new__, Tensor=Tensor, asarray=np.asarray,
        ndarray=np.ndarray, float32=np.dtype("f4"), float64=np.dtype("f8"), clock=clock, slow=slow, shapes=shapes,
        current_node=views.current_node, view_of=views.view_of, freed=engine.freed, modified=views.modified,
        modified_output=views.modified_output, saved_output=saved_output, unbroadcast=engine.unbroadcast,
    )  # fmt: skip
    for i, formula in enumerate(op.formulas):
        if formula is not None:
            scope[f"f{i}_t"], scope[f"f{i}_a"] = formula, arrays_form(formula)
    if op.joint is not None:
        scope["joint_t"], scope["joint_a"] = op.joint, arrays_form(op.joint)
    compiled: dict = {}
    exec(compile(source(op), f"<backlight op {op.name}>", "exec"), scope, compiled)
    members = {"__slots__": (), "run": compiled["run"], "record": compiled["record"], "op": op, "outputs": op.outputs}
    if op.outputs < 0:
        members["outputs"] = property(lambda node: node.extra["outputs"])
    if op.saves_output:
        members["saves_output"] = True
    shape_names = [f"{name}_sym_sizes" for name, (_users, shape_users) in zip(op.inputs, op.saves) if shape_users]
    for i, (name, users) in enumerate(zip((*op.inputs, "result"), (*(users for users, _ in op.saves), op.saves_output))):
        if users:
            members["_saved_" + name.replace("input", "self")] = property(_saved_tensor_getter(i))
    for i, name in enumerate((*shape_names, *op.parameters)):
        members["_saved_" + name.replace("input", "self")] = property(_parameter_getter(i))
    scope["node_class"] = op.node_class = type(op.node_name, (Node,), members)
    function.__code__ = compiled[op.name].__code__
    function.__defaults__ = compiled[op.name].__defaults__
    return function


def _saved_tensor_getter(i):
    def get(node):
        if node.saved is None:
            raise RuntimeError(engine.FREED)
        value = node.saved[i]
        return saved_output(node, value) if i == len(node.op.inputs) and value is not None else value

    return get


def _parameter_getter(i):
    return lambda node: node.parameters[i]


def saved_output(node, array):
    """A node's saved output as a tensor: made from the array and the node, because the node can't hold the tensor."""
    if isinstance(array, tuple):
        return tuple(saved_output(node, a) for a in array)
    tensor = Tensor._from(array)
    tensor.node = node
    if node.output_version is not None:
        tensor.version = node.output_version[0]
    return tensor


def shapes(edges, array, arrays):
    """What `unbroadcast` has to restore for each input: (shape, type), or None; None if nothing at all."""
    found = tuple(
        None if e is None or (a.shape == array.shape and a.dtype is array.dtype) else (a.shape, a.dtype)
        for e, a in zip(edges, arrays, strict=True)
    )
    return found if any(f is not None for f in found) else None


def constant(op, value, array_type):
    """A Python number as a 0-d tensor of the other operand's type, remembered: NumPy converts a number in 300 ns."""
    key = (type(value), value, array_type.char)
    found = op.constants.get(key)
    if found is None or value == 0:  # 0.0 and -0.0 are one key
        with np.errstate(all="ignore"):
            found = Tensor._from(np.array(value, array_type))
        if len(op.constants) < 64:
            op.constants[key] = found
    return found


def slow(op, inputs, parameters, out=None):
    """Everything the generated call leaves: subclasses, numbers, type promotion, half and complex types, several
    outputs, `out=`, errors, and features that are on (recorders, inference mode)."""
    first = inputs[0]
    if len(inputs) == 2 and op.promote in ("arith", "float", "compare") and out is None and not state.unusual:
        a, b = inputs
        if type(b) in (float, int) and type(a) in PLAIN and a.array.dtype.kind == "f" and a.array.dtype.itemsize > 2:
            return op.function(a, constant(op, b, a.array.dtype))
        if type(a) in (float, int) and type(b) in PLAIN and b.array.dtype.kind == "f" and b.array.dtype.itemsize > 2:
            return op.function(constant(op, a, b.array.dtype), b)
    subclass = None
    for value in inputs:
        if type(value) not in PLAIN and isinstance(value, Tensor):
            if "__torch_function__" in type(value).__dict__:
                return type(value).__torch_function__(op.function, tuple({type(v) for v in inputs}), (*inputs, *parameters), {})
            subclass = type(value)
    numbers = [v for v in inputs if v is not None and not isinstance(v, Tensor)]
    for i, value in enumerate(inputs):
        if value is None and op.inputs[i] in op.optional:
            continue
        if not isinstance(value, Tensor) and (
            dtypes.number_type(value) is None or op.promote in ("same", "keep") or len(inputs) == 1
        ):
            kind = type(value).__name__
            raise TypeError(f"{op.name.strip('_')}(): argument '{op.inputs[i]}' (position {i + 1}) must be Tensor, not {kind}")
    arrays = [v.array if isinstance(v, Tensor) else v for v in inputs]
    tensors = [a for a in arrays if isinstance(a, np.ndarray)]
    if op.promote == "same":
        found = {a.dtype for a, f in zip(arrays, op.formulas or arrays, strict=True) if f is not None and a is not None}
        if len(found) > 1:
            names = [dtypes.from_array_type(d) for d in found]
            raise RuntimeError(f"{op.name.strip('_')}: expected all inputs to have the same dtype, but got {' and '.join(map(str, names))}")
    elif op.promote != "keep":
        t = dtypes.promote(tensors, numbers)
        if op.promote == "float" and t.category < 2:
            t = dtypes.get_default_dtype()
        if len(inputs) == 2 and len(tensors) == 2:
            check_broadcast(tensors[0].shape, tensors[1].shape)
        arrays = [a if getattr(a, "dtype", None) is t.array_type else np.asarray(a, t.array_type)
                  if not (isinstance(a, np.ndarray) and a.dtype.kind == "c" and t.category < 3) else a.real for a in arrays]  # fmt: skip
    half = not op.view and op.promote != "keep" and next((a.dtype for a in arrays if a is not None and a.dtype.itemsize == 2 and a.dtype.kind in "fV"), None)
    if half and op.promote in ("same", "arith", "float"):  # computed in float32 and rounded once, as PyTorch does
        wide = [a.astype(np.float32) if a is not None and a.dtype == half else a for a in arrays]
        results = op.arrays(*wide, *parameters)
        narrow = lambda r: r.astype(half) if isinstance(r, (np.ndarray, np.generic)) and r.dtype == np.float32 else r  # noqa: E731
        results = tuple(map(narrow, results)) if isinstance(results, tuple) else narrow(results)
    else:
        results = op.arrays(*arrays, *parameters)
    result = attach(op, results, inputs, arrays, parameters)
    if out is not None:
        return write_out(out, result)
    if subclass is not None:
        from .tensor import as_subclass

        return as_subclass(result, subclass)
    return result


def check_broadcast(a, b) -> None:
    """RuntimeError unless the two shapes broadcast."""
    for i in range(1, min(len(a), len(b)) + 1):
        if a[-i] != b[-i] and a[-i] != 1 and b[-i] != 1:
            raise RuntimeError(
                f"The size of tensor a ({a[-i]}) must match the size of tensor b ({b[-i]}) at non-singleton dimension "
                f"{max(len(a), len(b)) - i}"
            )


def attach(op, results, inputs, arrays, parameters):
    """Wraps the output array(s) in tensors with a node, if gradients are wanted."""
    build(op)
    several = isinstance(results, (tuple, list))
    outputs = [np.asarray(r) for r in results] if several else [np.asarray(results)]
    differentiable = [outputs[i].dtype.kind not in "biu" and i not in op.nondifferentiable for i in range(len(outputs))]
    edges = [None] * len(inputs)
    if modes.grad and any(differentiable):
        for i, value in enumerate(inputs):
            wanted = op.joint is not None or op.formulas[i] is not None
            if wanted and isinstance(value, Tensor):
                edges[i] = views.current_node(value)
    node = None
    if any(e is not None for e in edges):
        node = object.__new__(_complex_class(op) if any(a.dtype.kind == "c" for a in [*outputs, *(x for x in arrays if x is not None)]) else op.node_class)
        node.edges, node.seq, node.hooks = tuple(edges), next(clock), None
        if op.outputs < 0:
            node.extra = {"outputs": len(outputs)}
        saved, sizes = [], []
        for i, (users, shape_users) in enumerate(op.saves):
            value = inputs[i]
            if shape_users:
                sizes.append(None if value is None else value.array.shape)
            if value is None or not users or (op.joint is None and all(edges[j] is None for j in users)):
                saved.append(None)
                continue
            if not isinstance(value, Tensor):
                value = Tensor._from(np.asarray(arrays[i]))
            if type(value.version) is views.InferenceVersion:
                raise RuntimeError(views.INFERENCE_SAVED)
            saved.append(value)
        node.saved = (*saved, (tuple(outputs) if several else outputs[0]) if op.saves_output else None)
        node.parameters = (*sizes, *parameters)
        if op.saves_output:
            node.output_version = None
        node.shapes = None
        if op.broadcasts:
            given = [v.array if isinstance(v, Tensor) else a for v, a in zip(inputs, arrays, strict=True)]
            node.shapes = shapes(edges, outputs[0], given)
    tensors = []
    for i, array in enumerate(outputs):
        tensor = Tensor._from(array)
        if modes.inference:
            tensor.version = views.InferenceVersion()
        if node is not None and differentiable[i]:
            tensor.node = node if op.outputs == 1 else Port(node, i)
        if op.view:
            views.view_of(tensor, inputs[0], "multiple outputs" if several else "")
        tensors.append(tensor)
    if state.recorder is not None and node is not None:
        state.recorder.created(op, node, tensors, inputs)
    return tuple(tensors) if several else tensors[0]


def _complex_class(op):
    """The node class for complex numbers. PyTorch's gradient is the conjugate of the derivative's, so a formula of a
    holomorphic operation runs between two conjugations: conj(f(conj(g))) = g * conj(f')."""
    if not op.holomorphic:
        return op.node_class
    if "complex" not in op.constants:
        plain = op.node_class

        def run(node, g, edges):
            return [x if x is None else np.conj(x) for x in plain.run(node, _conj_all(g, np.conj), edges)]

        def record(node, g, edges):
            from .ops.pointwise import conj

            return [x if x is None else conj(x) for x in plain.record(node, _conj_all(g, conj), edges)]

        op.constants["complex"] = type(plain.__name__, (plain,), {"__slots__": (), "run": run, "record": record})
    return op.constants["complex"]


def _conj_all(g, conj):
    return [x if x is None else conj(x) for x in g] if isinstance(g, list) else conj(g)


def write_out(out, result):
    """Stores a result in the tensor given as `out=`, resizing it if needed."""
    if isinstance(out, (tuple, list)):
        return type(out)([write_out(o, r) for o, r in zip(out, result, strict=True)])
    if not isinstance(out, Tensor):
        raise TypeError(f"argument 'out' must be Tensor, not {type(out).__name__}")
    if modes.grad and (result.node is not None or out.node is not None):
        raise RuntimeError("out=... arguments don't support automatic differentiation, but one of the arguments requires grad.")
    if not dtypes.can_cast(result.dtype, out.dtype):
        names = dtypes.scalar_type_name(result.dtype), dtypes.scalar_type_name(out.dtype)
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    if out.array.shape == result.array.shape:
        out.array[...] = result.array
    else:
        out.array = result.array.astype(out.array.dtype)
    views.bump(out)
    return out


def _inplace_method(function, name):
    def method(self, *args, **kwargs):
        return inplace(function, name, self, args, kwargs)

    method.__name__ = name
    method.__doc__ = f"In-place form of {name[:-1]}: writes the result into this tensor and returns it."
    return method


def inplace(function, name, tensor, args, kwargs):
    """Runs `function`, writes its result into `tensor`, and makes the result's node the origin of the new contents."""
    views.check_writable(tensor)
    stand_in = Tensor._from(tensor.array)  # enters the graph in the tensor's place, and keeps the old contents if saved
    stand_in.node = views.current_node(tensor)
    result = function(stand_in, *args, **kwargs)
    array = tensor.array
    if result.array.shape != array.shape:
        raise RuntimeError(
            f"output with shape {list(array.shape)} doesn't match the broadcast shape {list(result.array.shape)}"
        )
    if not dtypes.can_cast(result.dtype, tensor.dtype):
        names = dtypes.scalar_type_name(result.dtype), dtypes.scalar_type_name(tensor.dtype)
        raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
    if not array.flags.writeable or 0 in array.strides and any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )
    node = result.node if type(result.node) is not engine.AccumulateGrad else None
    if node is not None and getattr(node, "saved", None) is not None and any(s is stand_in for s in node.saved):
        stand_in.array = array.copy()
    with np.errstate(all="ignore"):
        array[...] = result.array
    if node is not None and hasattr(type(node), "saves_output"):
        node.saved = tuple(array if s is result.array else s for s in node.saved)
    views.rebase(tensor, node)
    if node is not None and hasattr(type(node), "saves_output"):
        node.output_version = (tensor.version, tensor.version.count)
    return tensor
