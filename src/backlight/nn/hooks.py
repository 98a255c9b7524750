"""How a module's full backward hooks see its gradients: identity nodes around its inputs and its outputs."""

from __future__ import annotations

import functools
import warnings

from .. import is_grad_enabled, zeros
from ..tensor import Tensor


class BackwardCrossing:
    """Runs a module's full backward hooks during one pass.

    The inputs and the outputs of `forward` each pass through one identity node. Backward reaches the outputs' node
    first (`leaving`: grad_output is known) and the inputs' node last (`entering`: grad_input is known).
    """

    def __init__(self, module, pre_hooks, hooks):
        self.module = module
        self.pre_hooks = pre_hooks
        self.hooks = hooks
        self.grad_output = None
        self.inputs = None  # positions of the tensors among the arguments, None if none of them requires grad
        self.constants = []  # (position, shape, dtype) of those that don't: their gradient is shown as zeros
        self.input_count = self.output_count = 0

    def enter(self, args: tuple) -> tuple:
        self.input_count = len(args)
        self.constants = [
            (i, arg.shape, arg.dtype) for i, arg in enumerate(args) if isinstance(arg, Tensor) and not arg.requires_grad
        ]
        args, self.inputs, node = through_identity(args)
        if node is not None:
            node.register_hook(self._entering)
        return args

    def leave(self, result):
        values = result if isinstance(result, tuple) else (result,)
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(result)}",
                stacklevel=4,
            )
        self.output_count = len(values)
        values, self.outputs, node = through_identity(values)
        if node is None:
            return result
        node.register_prehook(self._leaving)
        return values if isinstance(result, tuple) else values[0]

    def _leaving(self, grads):
        self.grad_output = tuple(self._spread(grads, self.outputs, self.output_count))
        for hook in self.pre_hooks:
            new = hook(self.module, self.grad_output)
            if new is not None:
                self.grad_output = self._checked(new, self.output_count, "Backward pre hook", "grad_output")
        grad_output = self.grad_output
        if self.inputs is None:
            self._run_without_inputs()
        return tuple(grad_output[i] for i in self.outputs)  # pyright: ignore[reportOptionalIterable]

    def _run_without_inputs(self):
        warnings.warn(
            "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs "
            "require gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
            "#torch.nn.Module.register_full_backward_hook for more details.",
            stacklevel=5,
        )
        for hook in self.hooks:
            result = hook(self.module, (None,) * self.input_count, self.grad_output)
            if result is not None and not (isinstance(result, tuple) and all(part is None for part in result)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients."
                )
        self.grad_output = None

    def _entering(self, grads, _grad_output):
        if self.grad_output is None:  # this pass did not come through the outputs
            return None
        grad_input = self._spread(grads, self.inputs, self.input_count)
        for position, shape, dtype in self.constants:
            grad_input[position] = zeros(shape, dtype=dtype)
        grad_input = tuple(grad_input)
        for hook in self.hooks:
            new = hook(self.module, grad_input, self.grad_output)
            if new is not None:
                grad_input = self._checked(new, self.input_count, "Backward hook", "grad_input")
        self.grad_output = None
        return tuple(grad_input[i] for i in self.inputs)  # pyright: ignore[reportOptionalIterable]

    @staticmethod
    def _spread(grads, positions, count):
        spread = [None] * count
        for position, grad in zip(positions, grads, strict=True):
            spread[position] = grad
        return spread

    @staticmethod
    def _checked(grads, count, who, what):
        if isinstance(grads, Tensor):
            grads = (grads,)
        if len(grads) != count:
            raise RuntimeError(f"{who} returned an invalid number of {what}, got {len(grads)}, but expected {count}")
        return grads


def through_identity(values: tuple):
    """Passes the tensors among `values` through one identity node.

    Returns (the new values, the positions of the tensors, the node), or (values, None, None) where nothing is recorded.
    """
    positions = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    if not is_grad_enabled() or not any(values[i].requires_grad for i in positions):
        return values, None, None
    outputs = _identity_function().apply(*(values[i] for i in positions))
    node = next(output.grad_fn for output in outputs if output.grad_fn is not None)
    new = list(values)
    for position, output in zip(positions, outputs, strict=True):
        new[position] = output
    new = type(values)(*new) if hasattr(values, "_fields") else tuple(new)
    return new, positions, node


_identity = None


def _identity_function():
    """The autograd.Function behind backward hooks, made when a module first needs it."""
    global _identity
    if _identity is None:
        from ..autograd import Function

        class BackwardHookFunction(Function):
            @staticmethod
            def forward(ctx, *tensors):
                ctx.mark_non_differentiable(*(tensor for tensor in tensors if not tensor.requires_grad))
                return tensors

            @staticmethod
            def backward(ctx, *grads):  # noqa: ARG004
                return grads

        _identity = BackwardHookFunction
    return _identity


def hook_last_node(module, hooks, inputs, result) -> None:
    """Registers a module's older backward hooks, which see the gradients of the node that made its output, and nothing else."""
    last = result
    while not isinstance(last, Tensor):
        last = next(value for value in last.values() if isinstance(value, Tensor)) if isinstance(last, dict) else last[0]
    node = last.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(functools.partial(hook, module))
    _warn_what_is_missing(inputs, result, node)


def _warn_what_is_missing(inputs, result, node) -> None:
    """A FutureWarning where such a hook doesn't see all gradients of the module."""
    for values, what, seen in ((result, "return a", "grad_output"), (inputs, "take as input a", "grad_input")):
        if not isinstance(values, Tensor) and not (
            isinstance(values, tuple) and all(isinstance(value, Tensor) for value in values)
        ):
            _deprecated(
                f"Using non-full backward hooks on a Module that does not {what} single Tensor or a tuple of Tensors is deprecated "
                f"and will be removed in future versions. This hook will be missing some of the {seen}. Please use "
                "register_full_backward_hook to get the documented behavior."
            )
            return
    results = result if isinstance(result, tuple) else (result,)
    made = {value.grad_fn for value in results if value.grad_fn is not None}
    taken = {value.grad_fn for value in inputs if value.grad_fn is not None}
    next_nodes = {n for n, _number in node.next_functions}
    if not made or (len(made) == 1 and node not in made):
        _deprecated(
            "Using a non-full backward hook when outputs are nested in python data structure is deprecated and will be removed in "
            "future versions. This hook will be missing some grad_output."
        )
    elif len(made) > 1:
        _deprecated(
            "Using a non-full backward hook when outputs are generated by different autograd Nodes is deprecated and will be "
            "removed in future versions. This hook will be missing some grad_output. Please use register_full_backward_hook to get "
            "the documented behavior."
        )
    elif taken != next_nodes:
        _deprecated(
            "Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and will be removed in "
            "future versions. This hook will be missing some grad_input. Please use register_full_backward_hook to get the "
            "documented behavior."
        )


def _deprecated(text: str) -> None:
    warnings.warn(text, FutureWarning, stacklevel=7)
