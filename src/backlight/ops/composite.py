"""Operations that PyTorch shows as one node although their gradient is that of other operations put together."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from ..op import op, twin
from ..state import state
from ..tensor import Tensor
from .choose import where_zero
from .shape import alias


def composite(name, function, inputs=1, **options):
    """Declares a function of tensors as one operation with one node.

    The first `inputs` arguments of the function are tensors (or None), the others parameters. No formula is written: when
    a gradient is wanted, the function is recorded again and differentiated. That costs a second forward pass, so it is
    for operations that programs rarely use.
    """

    def arrays(*values):
        tensors = [v if v is None else Tensor._from(np.asarray(v)) for v in values[:inputs]]
        with unseen():
            result = function(*tensors, *values[inputs:])
        return tuple(r.array for r in result) if isinstance(result, tuple) else result.array

    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    tensors, parameters = ", ".join(names[:inputs]), "".join(f"{name}, " for name in names[inputs:])
    text = f"lambda function: lambda g, {tensors}, _out, {parameters}: gradients(function, g, ({tensors},), ({parameters}))"
    joint = eval(text, {"gradients": gradients})(function)  # the text is ours: it spells out the arguments
    return op(name, arrays, joint=joint, holomorphic=False, **options)


@contextmanager
def unseen():
    """Inside, a recorder is told nothing: for the program it is one operation that runs."""
    recorder = state.recorder
    if recorder is None:
        yield
        return
    recorder.inside(True)
    try:
        yield
    finally:
        recorder.inside(False)


def _gradients_arrays(function, g, inputs, parameters):
    from ..autograd import enable_grad, grad

    tensors = [x if x is None else Tensor._from(x).requires_grad_(x.dtype.kind in "fcV") for x in inputs]
    with unseen(), enable_grad():
        outputs = function(*tensors, *parameters)
        pairs = _pairs(outputs, g, Tensor._from)
        wanted = [x for x in tensors if x is not None and x.requires_grad]
        found = iter(grad([o for o, _ in pairs], wanted, [h for _, h in pairs], allow_unused=True))
    found = [next(found) if x is not None and x.requires_grad else None for x in tensors]
    return [h.array if h is not None else None if x is None else np.zeros_like(x.array) for x, h in zip(tensors, found)]


@twin(_gradients_arrays)
def gradients(function, g, inputs, parameters):
    """The gradients of `function(*inputs, *parameters)`, as recorded operations."""
    from ..autograd import grad

    # Stand-ins, so that the sweep ends there and the inputs' own hooks aren't called. (Forward mode asks for all gradients.)
    tensors = [
        x if x is None or x.dtype.category < 2 else alias(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs
    ]
    pairs = _pairs(function(*tensors, *parameters), g, lambda h: h)
    wanted = [x for x in tensors if x is not None and x.requires_grad]
    if not wanted:
        return [None] * len(tensors)
    found = iter(grad([o for o, _ in pairs], wanted, [h for _, h in pairs], create_graph=True, allow_unused=True))
    return [_or_zero(next(found), x) if x is not None and x.requires_grad else None for x in tensors]


def _or_zero(g, x):
    """The gradient; zeros that depend on x where the outputs didn't."""
    return where_zero(Tensor._from(np.ones(x.array.shape, bool)), x) if g is None else g


def _pairs(outputs, g, wrap):
    """The outputs that a gradient arrived for, each with that gradient."""
    if not isinstance(outputs, tuple):
        return [(outputs, wrap(g))]
    return [(o, wrap(h)) for o, h in zip(outputs, g, strict=True) if h is not None and o.requires_grad]
