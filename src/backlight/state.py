"""What every part of the engine looks at: the clock, the switches that hot paths test, and each thread's modes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

# One clock orders everything: a node's sequence number and the time of an in-place write are its ticks,
# so "was this saved tensor written after it was saved?" is one comparison (see views.py).
clock = itertools.count(1)


class State:
    """What hot paths test instead of looking at every feature."""

    __slots__ = ("anomaly", "grad_off", "hooked", "recorder", "renumbered", "unusual")


state = State()
state.grad_off = 0  # threads that have grad mode off
state.unusual = 0  # features that are on and make operations leave by slow()
state.hooked = False  # whether any hook or custom Function ever existed: then sweeps look for them
state.renumbered = False  # whether a node ever got another sequence number
state.anomaly = None  # in anomaly mode: the function that runs a node's step and explains its failure
state.recorder = None  # the one slot for an observer; see set_recorder


class _ThreadModes(threading.local):
    grad = True
    inference = False
    saved_hooks: tuple = ()  # (pack, unpack) pairs, the innermost last
    before_write: Callable | None = None  # called with a tensor about to be written in place
    hooks_disabled: str | None = None  # why saved_tensors_hooks are forbidden, or None
    forward_grad = True  # whether tangents are propagated
    multithreading = True  # what set_multithreading_enabled said
    captured: tuple = ()  # what the functions in running transforms captured, which they mustn't write: {id: tensor} for each
    recordings = 0  # the func.grad and func.vjp that run
    levels: tuple = ()  # the function transforms (forward mode, vmap) that run, outermost first
    distributed: Any = None  # the backward pass across workers that runs: leaves accumulate in its context
    forward = False  # whether one of the levels is forward mode's: then any tensor can carry tangents


modes = _ThreadModes()
lock = threading.RLock()


def is_grad_enabled() -> bool:
    """Whether operations are being recorded in this thread."""
    return modes.grad


def set_grad_mode(on: bool) -> None:
    if modes.grad is not on:
        modes.grad = on
        with lock:
            state.grad_off += -1 if on else 1


def set_inference(on: bool) -> None:
    if modes.inference is not on:
        modes.inference = on
        with lock:
            state.unusual += 1 if on else -1
        if state.recorder is not None:
            state.recorder.switched("inference", on)


def set_levels(levels) -> None:
    # A batched tensor has a type of its own, so vmap alone leaves operations on other tensors as fast as they are.
    forward = any(level.kind == "forward" for level in levels)
    if forward is not modes.forward:
        with lock:
            state.unusual += forward - modes.forward
    modes.levels, modes.forward = levels, forward


def set_saved_hooks(hooks) -> None:
    if modes.saved_hooks is not hooks:
        with lock:
            state.unusual += bool(hooks) - bool(modes.saved_hooks)
        modes.saved_hooks = hooks


def set_anomaly(step) -> None:
    with lock:
        state.unusual += (step is not None) - (state.anomaly is not None)
    state.anomaly = step
    if state.recorder is not None:
        state.recorder.switched("anomaly", step is not None)


def set_recorder(recorder) -> None:
    """Plugs in an observer (None unplugs it). Operations get the code that tells it (`codegen.show_to_recorder`):

    operation(name, node, results, inputs, parameters): after every operation; node is None where no gradient is wanted
    inside(begin): around what an operation does that computes with others
    called(name, tensor, result): detach, data, numpy, item, tolist
    stands_in(stand_in, tensor): an operation in place is about to run on a stand-in for the tensor that it will write
    tensor_written(tensor): after every write in place; gradient_set(tensor, value): after an assignment to `.grad`
    switched(mode, enabled, tensor): grad mode, or a tensor's requires_grad
    sweep(begin): at the start and end of a sweep; before(node, gradients) and after(node, gradients, input_gradients): around its steps
    refused(error, tensor): a sweep can't start from a tensor that requires no grad
    registered(kind, hook, owner, handle) and hooked(kind, node, number, hook, handle, before, result): a hook was registered, it ran
    """
    from .codegen import show_to_recorder
    from .op import OPS

    changed = (recorder is None) != (state.recorder is None)
    state.recorder = recorder
    for op in OPS.values() if changed else ():
        if op.node_class is not None:
            show_to_recorder(op, recorder is not None)
