"""The slow path: everything that the generated call of an operation leaves to it.

Numbers, type promotion, half and complex types, subclasses, several outputs, `out=`, errors, recorders, inference mode.
"""

from __future__ import annotations

import numpy as np

from . import dtypes, views
from .engine import Port
from .errors import INFERENCE_SAVED
from .inplace import write_out
from .state import clock, modes, state
from .tensor import PLAIN, Tensor, as_subclass


def saved_output(node, array):
    """A node's saved output as a tensor: made from the array and the node, because the node can't hold the tensor."""
    if isinstance(array, tuple):
        return tuple(saved_output(node, a) for a in array)
    tensor = Tensor._from(array)
    tensor.node = node
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
            raise RuntimeError(
                f"{op.name.strip('_')}: expected all inputs to have the same dtype, but got {' and '.join(map(str, names))}"
            )
    elif op.promote != "keep":
        t = dtypes.promote(tensors, numbers)
        if op.promote == "float" and t.category < 2:
            t = dtypes.get_default_dtype()
        if len(inputs) == 2 and len(tensors) == 2:
            check_broadcast(tensors[0].shape, tensors[1].shape)
        arrays = [a if getattr(a, "dtype", None) is t.array_type else np.asarray(a, t.array_type)
                  if not (isinstance(a, np.ndarray) and a.dtype.kind == "c" and t.category < 3) else a.real for a in arrays]  # fmt: skip
    half = (
        not op.view
        and op.promote != "keep"
        and next((a.dtype for a in arrays if a is not None and a.dtype.itemsize == 2 and a.dtype.kind in "fV"), None)
    )
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
    op.build()
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
        node = object.__new__(
            _complex_class(op)
            if any(a.dtype.kind == "c" for a in [*outputs, *(x for x in arrays if x is not None)])
            else op.node_class
        )
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
                raise RuntimeError(INFERENCE_SAVED)
            saved.append(value)
        if op.frees:
            node.saved = (*saved, (tuple(outputs) if several else outputs[0]) if op.saves_output else None)
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

        def run(node, g, edges, keep):
            return [x if x is None else np.conj(x) for x in plain.run(node, _conj_all(g, np.conj), edges, keep)]

        def record(node, g, edges, keep):
            from .ops.pointwise import conj

            return [x if x is None else conj(x) for x in plain.record(node, _conj_all(g, conj), edges, keep)]

        op.constants["complex"] = type(plain.__name__, (plain,), {"__slots__": (), "run": run, "record": record})
    return op.constants["complex"]


def _conj_all(g, conj):
    return [x if x is None else conj(x) for x in g] if isinstance(g, list) else conj(g)
