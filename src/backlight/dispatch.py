"""The slow path: everything that the generated call of an operation leaves to it.

Numbers, type promotion, half and complex types, subclasses, several outputs, `out=`, errors, inference mode.
"""

from __future__ import annotations

import numpy as np

from . import dtypes, views
from .batching import Batched, run
from .engine import Port
from .errors import INFERENCE_SAVED
from .inplace import write_out
from .state import clock, modes, state
from .tensor import PLAIN, InferenceTensor, Tensor, as_subclass


def saved_output(node, array, number=0):
    """A node's saved output as a tensor: made from the array and the node, because the node can't hold the tensor."""
    if isinstance(array, tuple):
        return tuple(saved_output(node, a, i) for i, a in enumerate(array))
    tensor = Tensor._from(array)
    if array.dtype.kind not in "biu":
        origin = (getattr(node, "extra", None) or {}).get("output_node", node)
        tensor.node = origin if node.outputs == 1 else Port(origin, number)
    if modes.levels and getattr(node, "extra", None):
        tensor.__dict__.update((("tangents", t) for i, t in node.extra.get("tangents", {}).items() if i == number))
    if node.output_version is None:
        node.output_version = (views.Version(), 0)
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
    if found is None or (value == 0 and type(value) is float):  # 0.0 and -0.0 are one key
        with np.errstate(all="ignore"):
            found = Tensor._from(np.array(value, array_type))
        found.__dict__["number"] = value  # for a recorder
        if len(op.constants) < 64:
            op.constants[key] = found
    return found


def slow(op, inputs, parameters, out=None):
    """Runs an operation in full generality. The order below is the order in which PyTorch looks at things."""
    if len(inputs) == 2 and out is None and not state.unusual and op.promote in ("arith", "float", "compare"):
        a, b = inputs
        if type(b) in (float, int) and _is_wide(a):
            return op.function(a, constant(op, b, a.array.dtype), *parameters)
        if type(a) in (float, int) and _is_wide(b) and op.name not in _TENSOR_FIRST:
            return op.function(constant(op, a, b.array.dtype), b, *parameters)
    for v in inputs:
        if type(v) is Batched:  # at once: every operation on samples leaves here (benchmarks: jacobian)
            return run(op, inputs, parameters)
        if isinstance(v, Tensor) and type(v) not in PLAIN:
            break
    special = [type(v) for v in inputs if isinstance(v, Tensor) and type(v) not in PLAIN and type(v) is not InferenceTensor]
    for kind in special:
        if "__torch_function__" in vars(kind):
            return kind.__torch_function__(op.function, tuple({type(v) for v in inputs}), (*inputs, *parameters), {})  # pyright: ignore[reportAttributeAccessIssue]
    _check_inputs(op, inputs)
    if modes.grad:  # before any error about shapes, as PyTorch does: views fetch new nodes, or say that they can't
        for v in inputs:
            if isinstance(v, Tensor) and v.base is not None:
                views.current_node(v)
    if op.check is not None:
        op.check(*inputs)
    arrays = _promoted(op, [v.array if isinstance(v, Tensor) else v for v in inputs])
    result = attach(op, _compute(op, arrays, parameters), inputs, arrays, parameters)
    if out is not None:
        return write_out(out, result, op.name)
    return as_subclass(result, special[-1]) if special else result


def slow_operator(op, inputs, parameters, out=None):
    """slow() for operators: NotImplemented where an operand is neither a tensor nor a number. == takes arrays."""
    if op.name == "eq":
        inputs = tuple(Tensor._from(v) if isinstance(v, np.ndarray) else v for v in inputs)
    if all(isinstance(v, Tensor) or dtypes.number_type(v) is not None for v in inputs):
        return slow(op, inputs, parameters, out)
    return NotImplemented


def _is_wide(tensor) -> bool:
    """Whether a number beside this tensor can simply take its type."""
    return type(tensor) in PLAIN and tensor.array.dtype.kind == "f" and tensor.array.dtype.itemsize > 2


_TENSOR_FIRST = frozenset(("copysign", "eq", "ge", "gt", "le", "lt", "ne"))  # whose numbers come second
_WIDE_NUMBERS = frozenset(("mul", "div"))
_NUMBERS_ONLY = frozenset(("add", "sub", "mul", "div", "floor_divide"))  # which take two numbers


def _check_inputs(op, inputs) -> None:
    """TypeError for inputs that are neither tensors nor, where the operation takes them, numbers."""
    takes_numbers = len(inputs) == 2 and op.promote not in ("same", "keep")
    first, second = (isinstance(v, Tensor) for v in inputs) if takes_numbers else (True, True)
    if not first and (op.name in _TENSOR_FIRST or not (second or op.name in _NUMBERS_ONLY)):
        kinds = ", ".join("Tensor" if isinstance(v, Tensor) else type(v).__name__ for v in inputs)
        raise TypeError(f"{op.name.strip('_')}() received an invalid combination of arguments - got ({kinds})")
    for i, (name, value) in enumerate(zip(op.inputs, inputs)):
        fine = isinstance(value, Tensor) or (value is None and name in op.optional)
        if not fine and not (takes_numbers and dtypes.number_type(value) is not None):
            kind = type(value).__name__
            raise TypeError(f"{op.name.strip('_')}(): argument '{name}' (position {i + 1}) must be Tensor, not {kind}")


def _promoted(op, arrays):
    """The arrays in the type that the operation computes in; RuntimeError where types or shapes don't fit."""
    if op.promote == "keep":
        return arrays
    if op.promote == "same":
        found = {a.dtype for a, f in zip(arrays, op.formulas or arrays) if f is not None and a is not None}
        if len(found) > 1:
            names = " and ".join(str(dtypes.from_array_type(d)) for d in found)
            raise RuntimeError(f"{op.name.strip('_')}: expected all inputs to have the same dtype, but got {names}")
        return arrays
    tensors = [a for a in arrays if isinstance(a, np.ndarray)]
    t = dtypes.promote(tensors, [a for a in arrays if not isinstance(a, np.ndarray)])
    if op.promote == "float" and t.category < 2:
        t = dtypes.get_default_dtype()
    if len(tensors) == 2:
        check_broadcast(tensors[0].shape, tensors[1].shape)
    types = [t.array_type] * len(arrays)
    if t.itemsize == 2 and t.category == 2 and op.name in _WIDE_NUMBERS and not np.ndim(arrays[-1]):
        types[-1] = np.dtype(np.float32)  # a number isn't rounded to half precision before it is used
    return [a if getattr(a, "dtype", None) is kind else np.asarray(a, kind) for a, kind in zip(arrays, types, strict=True)]


def _compute(op, arrays, parameters):
    """The output array(s). Half types are computed in float32 and rounded once, as PyTorch does."""
    half = next((a.dtype for a in arrays if a is not None and a.dtype.itemsize == 2 and a.dtype.kind in "fV"), None)
    if half is None or op.view or op.promote in ("keep", "compare"):
        return op.arrays(*arrays, *parameters)
    wide = [a.astype(np.float32) if a is not None and a.dtype == half else a for a in arrays]
    results = op.arrays(*wide, *parameters)
    if isinstance(results, tuple):
        return tuple(r.astype(half) if r.dtype == np.float32 else r for r in results)
    return results.astype(half) if results.dtype == np.float32 else results


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
    op.build()
    several = isinstance(results, (tuple, list))
    outputs = [np.asarray(r) for r in results] if several else [np.asarray(results)]
    differentiable = [outputs[i].dtype.kind not in "biu" and i not in op.nondifferentiable for i in range(len(outputs))]
    edges, nowhere = [None] * len(inputs), set()
    if modes.grad and any(differentiable) and not (op.view and type(inputs[0].version) is views.InferenceVersion):
        edges, nowhere = views.edges_of(inputs, op.formulas if op.joint is None else None)
    node = None
    if nowhere or any(e is not None for e in edges):
        is_complex = any(a.dtype.kind == "c" for a in [*outputs, *arrays] if a is not None)
        node = object.__new__(_complex_class(op) if is_complex else op.node_class)
        node.edges, node.seq, node.hooks = tuple(edges), next(clock), None
        if op.outputs < 0:
            node.extra = {"outputs": len(outputs)}
        saved, sizes = [], []
        for i, (users, shape_users) in enumerate(op.saves):
            value = inputs[i]
            if shape_users:
                sizes.append(None if value is None else value.array.shape)
            unused = op.joint is None and all(edges[j] is None for j in users)
            if unused and nowhere:  # PyTorch looks at what a formula's gradient leads to where it is one of several
                unused = len(users) == 1 and sum(f is not None for f in op.formulas) > 1
            if value is None or not users or unused:
                saved.append(None)
                continue
            if not isinstance(value, Tensor) or (value.array.dtype.kind in "biu" and arrays[i].dtype.kind not in "biu"):
                value = Tensor._from(np.asarray(arrays[i]))  # as it was computed with, or gradients would be float64
            if type(value.version) is views.InferenceVersion:
                raise RuntimeError(INFERENCE_SAVED)
            saved.append(value)
        if op.frees:
            node.saved = (*saved, (tuple(outputs) if several else outputs[0]) if op.saves_output else None)
            if nowhere and any(users for users, _ in op.saves) and all(x is None for x in node.saved):
                node.__class__ = _unsaved_class(type(node))
        if sizes or parameters:
            node.parameters = (*sizes, *parameters)
        if op.saves_output:
            node.output_version = None
        if op.broadcasts:
            given = [v.array if isinstance(v, Tensor) else a for v, a in zip(inputs, arrays, strict=True)]
            node.shapes = shapes(edges, outputs[0], given)
    tensors = []
    for i, array in enumerate(outputs):
        tensor = Tensor._from(array)
        if modes.inference:
            tensor.version, tensor.__class__ = views.InferenceVersion(), InferenceTensor
        if node is not None and differentiable[i]:
            tensor.node = node if op.outputs == 1 else Port(node, i)
        if op.view:
            views.view_of(tensor, inputs[0], "multiple outputs" if several else "")
        tensors.append(tensor)
    if modes.forward:
        from .forward import propagate

        propagate(op, tensors, inputs, parameters)
        if op.saves_output and node is not None:  # a node can't hold its output: the output's tangents stay with it
            node._extra("tangents", dict).update(
                (i, t.__dict__["tangents"]) for i, t in enumerate(tensors) if "tangents" in t.__dict__
            )
    if node is not None and modes.saved_hooks and op.frees:
        from .saved import pack_node

        pack_node(node, inputs, modes.saved_hooks[-1])
    if node is not None and state.anomaly is not None:
        state.anomaly(node, created=True)
    if state.recorder is not None:
        state.recorder.operation(op.name, node, tensors, inputs, parameters)
    return tuple(tensors) if several else tensors[0]


def _unsaved_class(plain):
    """The node class for a node that saved nothing, because its gradients lead nowhere: it has nothing to free."""
    if plain not in _unsaved:
        members = {
            "__slots__": (),
            "run": lambda node, g, edges, _keep: plain.run(node, g, edges, True),
            "record": lambda node, g, edges, _keep: plain.record(node, g, edges, True),
        }
        _unsaved[plain] = type(plain.__name__, (plain,), members)
    return _unsaved[plain]


_unsaved: dict = {}


def _complex_class(op):
    """The node class for complex numbers. PyTorch's gradient is the conjugate of the derivative's, so a formula of a
    holomorphic operation runs between two conjugations: conj(f(conj(g))) = g * conj(f')."""
    if not op.holomorphic:
        return op.node_class
    if "complex" not in op.constants:
        plain = op.node_class

        def run(node, g, edges, keep):
            return [x if x is None else _conj(x) for x in plain.run(node, _conj_all(g, _conj), edges, keep)]

        def record(node, g, edges, keep):
            from .ops.pointwise import conj

            return [x if x is None else conj(x) for x in plain.record(node, _conj_all(g, conj), edges, keep)]

        op.constants["complex"] = type(plain.__name__, (plain,), {"__slots__": (), "run": run, "record": record})
    return op.constants["complex"]


def _conj(x):
    return np.asarray(np.conj(x))


def _conj_all(g, conj):
    return [x if x is None else conj(x) for x in g] if isinstance(g, list) else conj(g)
