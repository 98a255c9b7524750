"""Forward mode: the tangents of an operation's outputs, from those of its inputs.

A dual tensor carries its tangents in `__dict__["tangents"]`, one for each running level (`forward_ad.dual_level` and
`func.jvp` each enter one). No operation declares a derivative for forward mode: its gradient formulas suffice.

* A view's tangent is the same view of the tangent; an elementwise formula g * f'(x) applied to the tangent is the answer.
* Any other formula v(g) is linear in g, and the derivative that forward mode needs is its transpose. Running the formula on
  a dummy g under autograd and differentiating the result with respect to g applies that transpose.
"""

from __future__ import annotations

import numpy as np

from . import dtypes
from .state import modes, set_grad_mode, set_levels
from .tensor import Tensor


class Level:
    """A running `dual_level` or `jvp`: what tangents belong to. Leaving it takes them away from its tensors."""

    kind = "forward"
    functional = False  # whether it belongs to func.jvp rather than to forward_ad

    def __init__(self):
        self.number = len(modes.levels) + modes.recordings + 1
        self.duals: list = []  # weak references to the tensors that have a tangent

    def __enter__(self):
        set_levels((*modes.levels, self))
        return self

    def __exit__(self, *_exception):
        set_levels(tuple(level for level in modes.levels if level is not self))
        for reference in self.duals:
            tensor = reference()
            if tensor is not None:
                tensor.__dict__.get("tangents", {}).pop(self, None)


class below:
    """Hides a level and those entered after it: what computes one level's tangents sees only the outer levels."""

    def __init__(self, level):
        self.level = level

    def __enter__(self):
        self.before = modes.levels
        hidden = self.before[self.before.index(self.level) :] if self.level in self.before else ()
        set_levels(tuple(x for x in self.before if x not in hidden or x.kind != "forward"))

    def __exit__(self, *_exception):
        set_levels(self.before)


def forward_levels():
    """The levels of forward mode that run in this thread, outermost first."""
    return [level for level in modes.levels if level.kind == "forward"] if modes.forward_grad else []


def tangent_of(tensor, level):
    """The tangent of a tensor at a level, or None. A view without one of its own shows its part of its root's."""
    own = tensor.__dict__.get("tangents")
    if own is not None and level in own:
        return own[level]
    if tensor.base is None:
        return None
    whole = tangent_of(tensor.base.root, level)
    if whole is None:
        return None
    part = _same_view(tensor.base.root, tensor, whole)
    set_tangent(tensor, level, part)
    return part


def set_tangent(tensor, level, tangent):
    import weakref

    tensor.__dict__.setdefault("tangents", {})[level] = tangent
    level.duals.append(weakref.ref(tensor))


def carry_tangents(tensor, other) -> None:
    """Gives `other` the tangents of `tensor` (copies: the tensor is about to be written)."""
    for level in forward_levels():
        tangent = tangent_of(tensor, level)
        if tangent is not None:
            with below(level):
                set_tangent(other, level, tangent.clone())


def dual(primal, tangent, level):
    """A view of `primal` that carries `tangent` at `level`."""
    from .ops.shape import view

    with below(level):
        tangent = in_layout_of(primal, tangent)
    result = view(primal, primal.array.shape) if primal.array.flags.c_contiguous else primal[...]
    set_tangent(result, level, tangent)
    return result


def primal_of(tensor, level):
    """The same memory without a tangent at `level`."""
    from .ops.shape import alias

    result = alias(tensor)
    set_tangent(result, level, None)
    return result


def in_layout_of(primal, tangent):
    """The tangent, copied if its strides are not the primal's: views of both must fall on the same elements."""
    if type(tangent) is not Tensor or tangent.array.strides == primal.array.strides or primal.array.size <= 1:
        return tangent  # a batch of tangents is laid out by its first use
    result = Tensor._from(np.zeros_like(primal.array, tangent.array.dtype))
    return result.copy_(tangent)


def _same_view(root, view, whole):
    shape, strides = view.array.shape, view.array.strides
    start = view.array.__array_interface__["data"][0] - root.array.__array_interface__["data"][0]
    size = root.array.itemsize
    return whole.as_strided(shape, tuple(s // size for s in strides), start // size)


def propagate(op, outputs, inputs, parameters):
    """Gives the outputs of an operation their tangents at every running level."""
    for level in forward_levels():
        tangents = [tangent_of(x, level) if isinstance(x, Tensor) else None for x in inputs]
        if all(t is None for t in tangents):
            if op.view and level in inputs[0].__dict__.get("tangents", {}):
                for output in outputs:
                    set_tangent(output, level, None)
            continue
        with below(level):
            found = _tangents(op, outputs, inputs, parameters, tangents)
            if not op.view:
                found = [t.clone() if t is not None and _is_shared(t, tangents) else t for t in found]
        for output, tangent in zip(outputs, found, strict=True):
            if tangent is not None:
                set_tangent(output, level, tangent)


def _is_shared(tangent, others) -> bool:
    """Whether writing this tangent, which happens when its tensor is written, would write another one."""
    if type(tangent) is not Tensor:
        return any(tangent is t for t in others)
    return any(type(t) is Tensor and np.may_share_memory(tangent.array, t.array) for t in others)


def forbid_out(out, result, name) -> None:
    """NotImplementedError for `out=` where a tangent would get lost."""
    for level in forward_levels():
        if tangent_of(out, level) is not None or tangent_of(result, level) is not None:
            raise NotImplementedError(
                f"Trying to use forward AD with {name}_out that does not support it because it is an out= function"
            )


def _tangents(op, outputs, inputs, parameters, tangents):
    if op.view:
        found = op.function(in_layout_of(inputs[0], tangents[0]), *parameters)
        return list(found) if isinstance(found, tuple) else [found]
    is_complex = any(x.array.dtype.kind == "c" for x in [*outputs, *inputs] if isinstance(x, Tensor))
    try:
        if op.batch == "elementwise" and op.joint is None and (op.holomorphic or not is_complex):
            return [_elementwise(op, outputs[0], inputs, parameters, tangents)]
        return _transposed(op, outputs, inputs, parameters, tangents, is_complex and op.holomorphic)
    except NotImplementedError:
        raise NotImplementedError(
            f"Trying to use forward AD with {op.name} that does not support it because it has not been implemented yet.\nPlease file an "
            "issue to PyTorch at https://github.com/pytorch/pytorch/issues/new?template=feature-request.yml so that we can prioritize its "
            "implementation or submit a PR adding the implementation to derivatives.yaml"
        ) from None


def _arguments(formula, inputs, output, parameters, shape=None):
    """What a formula wants after g: inputs (or their shapes, or in their place `shape`), output and parameters."""
    names = formula.__code__.co_varnames[1 : len(inputs) + 1]
    given = [
        (shape or x.array.shape) if isinstance(x, Tensor) and name.endswith("_shape") else x for x, name in zip(inputs, names)
    ]
    return [*given, output, *parameters]


def _as_tensors(op, inputs, output):
    """Numbers among the inputs as tensors: formulas may call methods on them."""
    if op.promote in ("same", "keep"):
        return inputs
    return [
        x if isinstance(x, Tensor) or x is None else Tensor._from(np.array(x, output.array.dtype))  # pyright: ignore
        for x in inputs
    ]


def _elementwise(op, output, inputs, parameters, tangents):
    inputs, total = _as_tensors(op, inputs, output), None
    for formula, tangent in zip(op.formulas, tangents):
        if formula is None or tangent is None:
            continue
        if tangent.array.dtype != output.array.dtype:
            tangent = tangent.to(output.dtype)
        if tangent.array.shape != output.array.shape:
            tangent = tangent.expand(output.array.shape)
        # a formula that sums its gradient to an input's shape must leave a tangent as it is
        part = formula(tangent, *_arguments(formula, inputs, output, parameters, output.array.shape))
        if part is not None:
            total = part if total is None else total + part
    if total is not None and total.array.shape != output.array.shape:
        total = total.expand(output.array.shape)
    return total


def _transposed(op, outputs, inputs, parameters, tangents, conjugated):
    from .autograd.backward import grad

    recording = modes.grad
    set_grad_mode(True)
    try:
        dummies = [
            Tensor._from(np.zeros_like(x.array)).requires_grad_()
            if x.array.dtype.kind in "fcV" and i not in op.nondifferentiable
            else None
            for i, x in enumerate(outputs)
        ]
        gs = [g.conj().resolve_conj() if conjugated and g is not None else g for g in dummies]
        g = gs[0] if op.outputs == 1 else gs
        output = outputs[0] if len(outputs) == 1 and op.outputs == 1 else tuple(outputs)
        inputs = _as_tensors(op, inputs, outputs[0])
        if op.joint is not None:
            grads = op.joint(g, *_arguments(op.joint, inputs, output, parameters))
        else:
            grads = [
                None if f is None or t is None else f(g, *_arguments(f, inputs, output, parameters))
                for f, t in zip(op.formulas, tangents)
            ]
        pairs = []
        for x, t in zip(grads, tangents):
            if x is not None and t is not None and x.requires_grad:
                x = x.conj().resolve_conj() if conjugated else x
                t = t if t.array.dtype == x.array.dtype else t.to(dtypes.from_array_type(x.array.dtype))
                pairs.append((x, t if t.array.shape == x.array.shape else t.expand(x.array.shape)))
        if not pairs:
            return [None] * len(outputs)
        wanted = [d for d in dummies if d is not None]
        found = grad([x for x, _ in pairs], wanted, [t for _, t in pairs], create_graph=recording, allow_unused=True)
    finally:
        set_grad_mode(recording)
    by_dummy = iter(found)
    results = [next(by_dummy) if d is not None else None for d in dummies]
    return [t if t is None or t.array.dtype == x.array.dtype else t.to(x.dtype) for t, x in zip(results, outputs)]


def write_tangents(tensor, result) -> None:
    """After `result` was written into `tensor`: the same for their tangents."""
    for level in forward_levels():
        new, old = tangent_of(result, level), tangent_of(tensor, level)
        if new is None and old is None:
            continue
        with below(level):
            if old is None:
                root = tensor if tensor.base is None else tensor.base.root
                zeros = Tensor._from(np.zeros_like(root.array))
                old = zeros if root is tensor else _same_view(root, tensor, zeros)
                set_tangent(root, level, zeros)
                set_tangent(tensor, level, old)
            if new is not None and type(new) is not Tensor and type(old) is Tensor:
                _replace_tangent(tensor, level, new)
                continue
            if new is None:
                old.zero_()
            else:
                old.copy_(new)


def _replace_tangent(tensor, level, tangent) -> None:
    """A tangent that is batched by vmap in place of one that isn't: nothing can be written into the latter."""
    root = tensor if tensor.base is None else tensor.base.root
    if (root.array.shape, root.array.strides) != (tensor.array.shape, tensor.array.strides):
        raise RuntimeError("vmap: a tangent that is batched can't be written into a part of a tensor whose tangent isn't")
    set_tangent(root, level, tangent)
    set_tangent(tensor, level, tangent)
