"""Checkpointing: saves memory by not keeping what a part of the forward pass saved, and computing it again in backward.

>>> import backlight as torch
>>> from backlight.utils.checkpoint import checkpoint
>>> x = torch.tensor(2., requires_grad=True)
>>> checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False).backward()
>>> torch.allclose(x.grad, (x.sin().exp() * x.cos()).detach())
True
"""

from __future__ import annotations

import contextlib
import itertools
import traceback
import warnings
from weakref import WeakKeyDictionary, ref

import numpy as np

from ..autograd.function import Function
from ..autograd.graph import saved_tensors_hooks
from ..autograd.modes import enable_grad, no_grad
from ..engine import current_sweep
from ..random import default_generator
from ..state import modes
from ..tensor import Tensor

__all__ = [
    "CheckpointError", "CheckpointFunction", "checkpoint", "checkpoint_sequential", "noop_context_fn", "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]  # fmt: skip


class CheckpointError(RuntimeError):
    """The recomputation in backward did something else than the forward pass."""


def noop_context_fn():
    """The contexts in which forward and recomputation run: none."""
    return contextlib.nullcontext(), contextlib.nullcontext()


_settings = {"early_stop": True, "debug": None}


class _Setting:
    """Changes a setting for a block."""

    name = ""

    def __init__(self, value):
        self.value = value

    def __enter__(self):
        self.before = _settings[self.name]
        _settings[self.name] = self.value

    def __exit__(self, *_exception):
        _settings[self.name] = self.before


class set_checkpoint_early_stop(_Setting):
    """A block whose checkpoints do (the default) or don't stop recomputing as soon as they have all that backward needs."""

    name = "early_stop"

    def __init__(self, enable: bool):
        super().__init__(enable)


class set_checkpoint_debug_enabled(_Setting):
    """A block whose checkpoints have this `debug`, whatever they were called with (None: as they were called)."""

    name = "debug"

    def __init__(self, enabled: bool | None):
        super().__init__(enabled)


_ADVICE = (
    "use_reentrant=False is recommended, but if you need to preserve the current default behavior, you can pass use_reentrant=True. Refer to "
    "docs for more details on the differences between the two variants."
)
_NOT_EXPLICIT = (
    "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, calling checkpoint without "
    f"use_reentrant will raise an exception. {_ADVICE}"
)
_NOT_EXPLICIT_SEQUENTIAL = (
    "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. In version 2.9 we will raise an "
    f"exception if use_reentrant is not passed. {_ADVICE}"
)


def checkpoint(function, *args, use_reentrant=None, context_fn=noop_context_fn, determinism_check="default", debug=False,
               early_stop=True, **kwargs):  # fmt: skip
    """Runs `function(*args, **kwargs)` without keeping what it saves for backward, which runs it again instead.

    use_reentrant: pass False. (True is the older way: an own backward pass inside backward, which has restrictions: at
    least one input must require grad, no keywords, no autograd.grad.) preserve_rng_state (default True): the second run
    draws the same random numbers. context_fn: returns the contexts for the first and the second run. determinism_check:
    "default" compares shapes and types of what is saved, "none" doesn't. debug: an error tells what both runs saved, where.
    early_stop: the second run stops as soon as it has everything. CheckpointError when the runs differ.
    """
    if use_reentrant is None:
        warnings.warn(_NOT_EXPLICIT, stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in _CHECKS:
        raise ValueError(f"determinism_check should be one of {list(_CHECKS)}, but got {determinism_check}")
    if not modes.grad:
        return function(*args, **kwargs)
    first, second = context_fn()
    frame = _Frame(function, preserve, second, _settings["early_stop"] and early_stop, determinism_check, debug)
    frame.save_inputs(args, kwargs)
    with frame.hooks(), first:
        result = function(*args, **kwargs)
    frame.completed = True
    return result


# Without reentrance: saved tensors are replaced by holders; the first one that backward unpacks recomputes them all.


class _Handle:
    """Identifies a recomputed tensor; whoever holds it keeps the tensor alive."""

    __slots__ = ("__weakref__",)


class _Holder:
    """What a node keeps in place of a tensor: for each backward pass a handle of the recomputed one."""

    __slots__ = ("__weakref__", "handles")

    def __init__(self):
        self.handles: dict = {}


class _Stop(Exception):
    """Ends a recomputation that has everything."""


class _SaveInputs(Function):
    """Saves the inputs of a checkpoint as a node saves tensors, so that an outer checkpoint can drop them, too."""

    @staticmethod
    def forward(ctx, dummy, *tensors):
        ctx.save_for_backward(*tensors)
        return dummy.clone()

    @staticmethod
    def backward(ctx, *_grads):  # noqa: ARG004
        raise AssertionError("Did not expect to backward on this graph")


_outside = itertools.count(-1, -1)  # stands for a backward pass when saved tensors are looked at outside of one


class _Frame:
    def __init__(self, function, preserve, context, early_stop, determinism_check, debug):
        self.function, self.context, self.early_stop = function, context, early_stop
        self.metadata_of = _CHECKS[determinism_check]
        self.debug = _settings["debug"] if _settings["debug"] is not None else debug
        self.state = default_generator.get_state() if preserve else None
        self.holders: list = []  # weak references, in the order in which tensors were saved
        self.metadata: list = []
        self.lines: list = []
        self.completed = False  # whether the first run has ended
        self.recomputed: dict = {}  # number of the backward pass -> handle -> tensor

    def save_inputs(self, args, kwargs):
        leaves = [*args, *kwargs.values()]
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
        self.plain = [None if isinstance(x, Tensor) else x for x in leaves]
        self.names = list(kwargs)
        dummy = Tensor._from(np.zeros((), np.float32)).requires_grad_()
        with enable_grad():
            self.saver = _SaveInputs.apply(dummy, *[leaves[i] for i in self.places]).grad_fn  # pyright: ignore[reportAttributeAccessIssue]

    def inputs(self):
        leaves = list(self.plain)
        for i, x in zip(self.places, self.saver.saved_tensors):
            leaves[i] = x
        count = len(leaves) - len(self.names)
        return leaves[:count], dict(zip(self.names, leaves[count:]))

    def hooks(self):
        """The hooks of the first run."""

        def pack(tensor):
            holder = _Holder()
            self.holders.append(ref(holder))
            self.metadata.append(self.metadata_of(tensor))
            if self.debug:
                self.lines.append(_user_line())
            return holder

        def unpack(holder):
            sweep = current_sweep()
            number = next(_outside) if sweep is None else sweep.number
            if number not in self.recomputed:
                self.recompute(number)
            if number not in holder.handles:
                raise CheckpointError(
                    "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked once. If you are calling "
                    "ctx.saved_tensors in backward, make sure to do so only once. Otherwise please open an issue with details on your use "
                    "case."
                )
            handle = holder.handles.pop(number)
            return self.recomputed[number].pop(handle)

        return saved_tensors_hooks(pack, unpack)

    def recompute(self, number) -> None:
        """Runs the function again and puts what it saves where the holders of the first run find it."""
        store = self.recomputed[number] = WeakKeyDictionary()
        position = itertools.count()
        lines, mismatches, saved = [], [], [0]

        def pack(tensor):
            i = next(position)
            saved[0] = i + 1
            if self.debug:
                lines.append(_user_line())
            if i >= len(self.holders):
                if not self.completed:  # the function itself runs a backward pass, in which this is called, and will go on
                    return tensor.detach()
                raise self.error(
                    "trying to save more tensors during recomputation than during the original forward pass.", lines
                )
            holder = self.holders[i]()
            if holder is not None:
                if (found := self.metadata_of(tensor)) != self.metadata[i]:
                    mismatches.append((i, self.metadata[i], found))
                handle = _Handle()
                holder.handles[number] = handle
                store[handle] = tensor.detach() if tensor.requires_grad else tensor
            if self.early_stop and i + 1 == len(self.holders):
                raise _Stop
            return tensor.detach()

        args, kwargs = self.inputs()
        with (
            contextlib.suppress(_Stop), _rng(self.state), enable_grad(), self.context, saved_tensors_hooks(pack, lambda tensor: tensor)
        ):  # fmt: skip
            self.function(*args, **kwargs)
        if self.completed and saved[0] != len(self.holders):
            raise self.error(
                "A different number of tensors was saved during the original forward and recomputation.\nNumber of tensors saved during "
                f"forward: {len(self.holders)}\nNumber of tensors saved during recomputation: {saved[0]}.",
                lines,
            )
        if mismatches:
            details = "\n".join(
                f"tensor at position {i}:\nsaved metadata: {a}\nrecomputed metadata: {b}" for i, a, b in mismatches
            )
            raise self.error(
                f"Recomputed values for the following tensors have different metadata than during the forward pass.\n{details}",
                lines,
            )

    def error(self, text, lines):
        text = f"torch.utils.checkpoint: {text}"
        if self.debug:
            text += (
                "\nYou are seeing this error because you passed `debug=True` to checkpoint and tensors to be saved during the original "
                "forward and differ between those saved during recomputation. These lines saved tensors in the original run:\n"
                + "\n".join(self.lines) + "\nand these in the recomputation:\n" + "\n".join(lines)
            )  # fmt: skip
        elif "metadata" in text:
            text += (
                "\nTip: To see a more detailed error message, either pass `debug=True` to `torch.utils.checkpoint.checkpoint(...)` or wrap the "
                "code block with `with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` before the first checkpoint call."
            )
        return CheckpointError(text)


def _user_line() -> str:
    """The line of the program that led here."""
    package = __file__.rsplit("/utils/", 1)[0] + "/"
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith(package) and not frame.filename.startswith("<"):
            return f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    return "  (no line of the program)"


def _metadata(tensor):
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


_CHECKS = {"default": _metadata, "none": lambda _tensor: None}


@contextlib.contextmanager
def _rng(state):
    """Draws from the random stream as it was at `state`, and puts it back afterwards."""
    if state is None:
        yield
        return
    before = default_generator.get_state()
    default_generator.set_state(state)
    try:
        yield
    finally:
        default_generator.set_state(before)


# With reentrance


def detach_variable(inputs):
    """The inputs as leaves of their own that require grad where the inputs do."""
    return tuple([x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs])


class CheckpointFunction(Function):
    """checkpoint with use_reentrant=True: forward without recording, backward runs an own backward pass."""

    @staticmethod
    def forward(ctx, function, preserve, *args):
        ctx.function = function
        ctx.state = default_generator.get_state() if preserve else None
        ctx.tensor_places = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.plain = [None if isinstance(x, Tensor) else x for x in args]
        if not any(isinstance(x, Tensor) and x.requires_grad for x in args):
            warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=4)
        ctx.save_for_backward(*[args[i] for i in ctx.tensor_places])
        with no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx, *grads):
        sweep = current_sweep()
        if sweep is not None and sweep.targets is not None:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` parameter to "
                ".backward(). To resolve this error, you can either set use_reentrant=False, or call .backward() without passing the "
                "`inputs` argument."
            )
        inputs = list(ctx.plain)
        for i, x in zip(ctx.tensor_places, ctx.saved_tensors):
            inputs[i] = x
        inputs = detach_variable(inputs)
        with _rng(ctx.state), enable_grad():
            outputs = ctx.function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        wanted = [(y, g) for y, g in zip(outputs, grads) if isinstance(y, Tensor) and y.requires_grad]
        if not wanted:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        from ..autograd.backward import backward

        backward([y for y, _ in wanted], [g for _, g in wanted])
        return (None, None, *[x.grad if isinstance(x, Tensor) else None for x in inputs])


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Runs modules or functions one after the other as `segments` checkpoints; the last segment is not checkpointed.

    >>> import backlight as torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> torch.utils.checkpoint.checkpoint_sequential([torch.sin, torch.exp, torch.sin], 2, x, use_reentrant=False).shape
    torch.Size([2])
    """
    if use_reentrant is None:
        warnings.warn(_NOT_EXPLICIT_SEQUENTIAL, stacklevel=2)
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))

    def run(start, end):
        def forward(x):
            for function in functions[start:end]:
                x = function(x)
            return x

        return forward

    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = len(functions) // segments
    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(run(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run(end, len(functions))(input)
