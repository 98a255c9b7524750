"""Hooks on tensors and nodes: where they are kept and how the engine calls them.

Per node, in PyTorch's order: tensor hooks as they were registered, then retain_grad (which sees what they made of the
gradient), then the node's pre-hooks; after the node ran, post-accumulate hooks and the node's hooks.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from . import engine
from .state import state


class Hooks:
    """The hooks of one node. `tensor` and `retain` are keyed by output number."""

    __slots__ = ("post", "post_accumulate", "pre", "retain", "tensor")

    def __init__(self):
        self.tensor: dict[int, OrderedDict] = {}
        self.retain: dict = {}
        self.pre = OrderedDict()
        self.post = OrderedDict()
        self.post_accumulate = OrderedDict()


def hooks_of(node) -> Hooks:
    state.hooked = True
    if node.hooks is None:
        node.hooks = Hooks()
    return node.hooks


def register(hooks: OrderedDict, hook, kind: str = "", owner=None):
    """Adds a hook to a table. kind and owner (its tensor or node) are for a recorder."""
    from .autograd.hooks import add_hook

    handle = add_hook(hooks, hook)
    if state.recorder is not None:
        state.recorder.registered(kind, hook, owner, handle.id)
    return handle


def _observe(kind: str, node, number: int, hook, handle, before, result) -> None:
    """Tells a recorder of a hook that ran."""
    if state.recorder is not None:
        state.recorder.hooked(kind, node, number, hook, handle, before, result)


def as_tensor(g):
    return g if g is None or isinstance(g, engine.Tensor) else engine.Tensor._from(np.asarray(g))


def _like(g, before):
    """A gradient that a hook returned, as this sweep passes them (an array, unless gradients are recorded)."""
    if before is not None and not isinstance(before, engine.Tensor):
        return g.array
    return g


def _checked(result, g, hook):
    if not isinstance(result, engine.Tensor):
        raise TypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
    if g is not None and result.array.shape != g.array.shape:
        raise RuntimeError(f"hook '{getattr(hook, '__name__', 'hook')}' has changed the size of value")
    return result


def _all_checked(results, before, hook):
    if not isinstance(results, tuple):
        if not isinstance(results, engine.Tensor):
            raise TypeError(f"expected tuple, but hook returned '{type(results).__name__}'")
        results = (results,)
    if len(results) != len(before):
        name = getattr(hook, "__name__", "hook")
        raise RuntimeError(
            f"hook '{name}' has returned an incorrect number of values (got {len(results)}, but expected {len(before)})"
        )
    return [None if r is None else _checked(r, as_tensor(b), hook) for r, b in zip(results, before)]


def _gradients_of(node, g):
    """A node's incoming gradients as a list, and one that shows whether they are arrays or tensors."""
    grads = list(g) if type(g) is list else [g] if g is not None else [None] * node.outputs
    return grads, next((x for x in grads if x is not None), None)


def _joined(g, grads):
    """The gradients in the form of g: alone, or as the list that nodes behind ports get."""
    if type(g) is list or len(grads) > 1:
        return None if all(x is None for x in grads) else grads
    return grads[0]


def run_tensor_hooks(node, g):
    grads, sample = _gradients_of(node, g)
    for number, hooks in list(node.hooks.tensor.items()):
        value = as_tensor(grads[number])
        for key, hook in list(hooks.items()):
            result = hook(value)
            _observe("tensor", node, number, hook, key, value, result)
            if result is not None:
                value = _checked(result, value, hook)
                grads[number] = _like(value, sample)
    return _joined(g, grads)


def run_retain_grad(node, g) -> None:
    """retain_grad, which sees what tensor hooks made of the gradient."""
    if not node.hooks.retain:
        return
    grads, _sample = _gradients_of(node, g)
    for number, reference in list(node.hooks.retain.items()):
        tensor = reference()
        if tensor is not None and grads[number] is not None:
            value, before = as_tensor(grads[number]), tensor.__dict__.get("_grad")
            tensor.__dict__["_grad"] = value.clone() if before is None else before + value  # pyright: ignore[reportOptionalMemberAccess]
            _observe("retain_grad", node, number, engine.Tensor.retain_grad, None, value, None)


def run_pre_hooks(node, g):
    """The node's own pre-hooks."""
    if not node.hooks.pre:
        return g
    grads, sample = _gradients_of(node, g)
    for key, hook in list(node.hooks.pre.items()):
        seen = tuple(map(as_tensor, grads))
        result = hook(seen)
        _observe("prehook", node, 0, hook, key, seen, result)
        if result is not None:
            grads = [None if r is None else _like(r, sample) for r in _all_checked(result, grads, hook)]
    return _joined(g, grads)


def run_post_hooks(node, grads, g):
    hooks = node.hooks
    leaf = type(node) is engine.AccumulateGrad
    for key, hook in list(hooks.post_accumulate.items()):
        result = hook(node.variable)
        _observe("post_accumulate", node, 0, hook, key, node.grad, None)
        if result is not None:
            _checked(result, None, hook)
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")
    sample = next((x for x in (g if type(g) is list else [g]) if x is not None), None)
    kept = node.differentiable
    if hooks.post and kept is not None:
        hidden, grads = grads, [g for g, k in zip(grads, kept) if k]
    for key, hook in list(hooks.post.items()):
        outputs = tuple(map(as_tensor, g)) if type(g) is list else (as_tensor(g),)
        inputs = () if leaf else tuple(map(as_tensor, grads))
        result = hook(inputs, outputs)
        _observe("posthook", node, 0, hook, key, inputs, None if leaf else result)
        if result is not None and not leaf:
            grads = [None if r is None else _like(r, sample) for r in _all_checked(result, inputs, hook)]
    if hooks.post and kept is not None:
        shown = iter(grads)
        grads = [next(shown) if k else g for g, k in zip(hidden, kept)]
    return grads
