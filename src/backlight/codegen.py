"""The Python text of an operation: the function that a caller reaches and the node's two backward methods.

`backlight.codegen.source(backlight.mul.op)` shows it. Specialising the text to what the formulas need (which inputs are
saved, whether shapes can broadcast, whether inputs are optional) is what makes a call cost one frame and no tests in vain.
"""

from __future__ import annotations

import numpy as np

from .kernels import ELEMENTWISE, NEVER, elementwise_forms

# Whether NumPy's functions take `out=...`, by which they return arrays also where there are no dimensions.
ELLIPSIS = np.lib.NumpyVersion(np.__version__) >= "2.3.0"


def named(function, name):
    """Gives a function that was made by another one its public name: `__name__`, tracebacks and profiles show it."""
    function.__name__ = function.__qualname__ = name
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    return function


def source(op, recorded=False) -> str:
    """The Python text of an operation: the call, and the node's `run` (arrays) and `record` (tensors).

    recorded: the call also tells `state.recorder` what it did."""
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
        found = f"{name}.node if {name}.base is None else edge_of({name})"
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
    leave = f"slow(op, ({', '.join(op.inputs)},), ({''.join(p + ', ' for p in op.parameters)})" + (
        ", out)" if takes_out else ")"
    )
    lines = [f"def {op.name}({values}{', out=None' if takes_out else ''}):"]
    if op.outputs != 1 or op.nondifferentiable:  # several outputs are built in one place, off the fast path
        lines += [f"    return {leave}"]
    else:
        same_type = "".join(f" and a{i}.dtype is d" for i in required[1:]) + "".join(
            f" and (a{i} is None or a{i}.dtype is d)" for i in with_edges if op.inputs[i] in op.optional
        )
        call = f"f({', '.join([f'a{i}' for i in ids] + list(op.parameters))})"
        arrays_only = ELLIPSIS and isinstance(op.arrays, np.ufunc)
        if arrays_only:
            call = f"{call[:-1]}, out=...)"
        made = "node_class"
        if has_kernel(op):
            call = f"{call} if small else large{call[1:].replace(', out=...', '')}"
            made = "(node_class if small else large_class)"
        lines += [
            f"    if {' and '.join(map(known, ids))} and not state.unusual:",
            *[f"        a{i} = {array(i)}" for i in ids],
            f"        d = a{required[0]}.dtype",
            f"        if (d is float32 or d is float64){same_type}{' and out is None' if takes_out else ''}:",
        ]
        if has_kernel(op):
            lines += [f"            small = a0.size < {ELEMENTWISE[op.name]}"]
        if with_edges:  # before computing: what is left to `slow` must not have drawn random numbers already
            lines += [
                "            try:",
                *[f"                e{i} = {edge(i)}" for i in ids],
                "            except Nowhere:",
                f"                return {leave}",
            ]
        lines += [
            "            try:",
            f"                array = {call}",
            "            except (ValueError, TypeError, IndexError):",
            f"                return {leave}",
            *([] if arrays_only else ["            if type(array) is not ndarray:", "                array = asarray(array)"]),
            "            result = new(Tensor)",
            "            result.array = array",
            "            result.node = result.version = result.base = None",
        ]
        if with_edges:
            wanted = " or ".join(f"e{i} is not None" for i in with_edges)
            lines += [
                f"            if ({wanted}) and not (state.grad_off and not modes.grad):",
                f"                result.node = node = {made}()",
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
        if recorded:
            given = f"({', '.join(op.inputs)},), ({''.join(p + ', ' for p in op.parameters)})"
            lines += [
                "            if state.recorder is not None:",
                f"                state.recorder.operation({op.name!r}, result.node, (result,), {given})",
            ]
        lines += ["            return result"]
        if len(ids) == 2 and op.promote in ("arith", "float", "compare") and not op.parameters:
            first, second = op.inputs
            lines += [
                # a number that was met before: `slow` keeps it as a tensor (but for 0.0 and -0.0, which look the same)
                f"    if (type({second}) is int or (type({second}) is float and {second})) and out is None and type({first}) is Tensor and not state.unusual:",
                f"        number = numbers.get((type({second}), {second}, {first}.array.dtype.char))",
                "        if number is not None:",
                f"            return this({first}, number)",
            ]
        lines += [f"    return {leave}"]
    for method, suffix in (("run", "a"), ("record", "t"), *((("run", "l"),) if has_kernel(op) else ())):
        lines += _backward_source(op, method, suffix)
    return "\n".join(lines)


def has_kernel(op) -> bool:
    """Whether large arrays are left to compiled loops (kernels/elementwise.py)."""
    return ELEMENTWISE.get(op.name, NEVER) < NEVER


def large_class(op, scope, compiled) -> None:
    """The class of nodes whose gradients are computed by compiled loops: op.node_class, run in another way."""
    if has_kernel(op):
        members = {"__slots__": (), "run": compiled["run_large"]}
        scope.update(elementwise_forms(op), large_class=type(op.node_name, (op.node_class,), members))


def compiled_source(op, scope, recorded=False) -> dict:
    """What the text of `source` defines, by name."""
    compiled: dict = {}
    exec(compile(source(op, recorded), f"<backlight op {op.name}>", "exec"), scope, compiled)
    return compiled


def show_to_recorder(op, on: bool) -> None:
    """Puts the text that tells the recorder into a built operation's function (and its operators'), or the plain one back.

    So a recording costs nothing while there is none, and little while there is."""
    if op.codes is None:
        op.codes = op.function.__code__, compiled_source(op, {}, recorded=True)[op.name].__code__
    for function in (op.function, *op.copies):
        function.__code__ = op.codes[on]


def _backward_source(op, method, suffix):
    ids = range(len(op.inputs))
    lines = [f"def {method}{'_large' * (suffix == 'l')}(node, g, edges, keep):"]
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
    # In PyTorch's order, that of the names: it decides which of several written tensors the error is about.
    for i in sorted(ids, key=lambda i: "self" if op.inputs[i] == "input" else op.inputs[i]):
        if op.saves[i][0]:
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
    if op.frees:  # after the checks: a node that fails keeps what it saved
        lines += ["    if not keep:", "        node.saved = None"]
    out = "out" if op.saves_output else "None"

    def call(j):
        arguments = [f"z{i}" if j in op.saves[i][1] else f"s{i}" if j in op.saves[i][0] else "None" for i in ids]
        return f"({', '.join(['g', *arguments, out, *op.parameters])})"

    if op.joint is not None:
        lines += [f"    grads = joint_{suffix}{call(0)}"]
    else:
        lines += [f"    {''.join(f'e{i}, ' for i in ids)}= edges"]
        grads: list[str] = []
        for i, f in enumerate(op.formulas):
            value = "None" if f is None else "g" if _is_identity(f) else f"f{i}_{suffix}{call(i)}"
            grads.append(value if value == "None" else f"{value} if e{i} is not None else None")
        lines += [f"    grads = ({''.join(f'{g}, ' for g in grads)})"]
    return [
        *lines,
        "    return grads if node.shapes is None else unbroadcast(node, grads)" if op.broadcasts else "    return grads",
    ]


def _is_identity(formula) -> bool:
    """Whether a formula passes its gradient through, as those of a sum do: then no call is needed."""
    code = formula.__code__
    return code.co_code == _IDENTITY.co_code and not code.co_freevars


_IDENTITY = (lambda g: g).__code__


# Attributes of node classes


def saved_tensor_getter(i):
    def get(node):
        from .saved import saved_value

        return saved_value(node, i)

    return get


def raw_saved_getter(i):
    def get(node):
        from .saved import SavedTensor

        return SavedTensor(node, i)

    return get


def parameter_getter(i):
    return lambda node: node.parameters[i]
