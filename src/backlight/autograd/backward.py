"""The public face of the engine: `backward` and `grad`, which check their arguments as PyTorch does and start a sweep."""

from __future__ import annotations

import warnings

import numpy as np

from .. import dtypes
from ..codegen import named
from ..engine import Port, node_and_number, sweep
from ..hooks import as_tensor
from ..state import modes, state
from ..tensor import Tensor
from ..views import current_node
from .graph import GradientEdge

CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient which can cause a "
    "memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you have to use this function, make "
    "sure to reset the .grad fields of your parameters to None after use to break the cycle and avoid the leak."
)


def _implicit_gradient(tensor):
    if tensor.array.size != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if tensor.array.dtype.kind == "c":
        raise RuntimeError(
            f"grad can be implicitly created only for real scalar outputs but got {dtypes.from_array_type(tensor.array.dtype)}"
        )
    gradient = np.empty(tensor.array.shape, tensor.array.dtype)
    gradient.fill(1)
    return gradient


def _check_gradient(i, g, like):
    """RuntimeError unless the gradient has the shape, and is real or complex, as the output's array."""
    if g.array.shape != like.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of "
            f"{dtypes.Size(like.shape)}."
        )
    if (g.array.dtype.kind == "c") != (like.dtype.kind == "c"):
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
            f"dtype: grad_output[{i}] has a dtype of {g.dtype} and output[{i}] has a dtype of "
            f"{dtypes.from_array_type(like.dtype)}."
        )


def _roots(tensors, gradients, create_graph):
    """The nodes and gradients that a sweep starts from, checked as PyTorch checks them."""
    as_tensors = create_graph or bool(modes.levels)
    if len(tensors) > len(gradients):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    nodes, seeds = [], []
    for i, (tensor, g) in enumerate(zip(tensors, gradients)):
        if isinstance(tensor, GradientEdge):
            like = tensor.like
            if g is None:
                if like is None:
                    raise RuntimeError("grad can be implicitly created only for scalar outputs")
                g = Tensor._from(_implicit_gradient(Tensor._from(like)))
            elif like is not None:
                _check_gradient(i, g, like)
            nodes.append(edge_target(tensor))
            seeds.append(g if as_tensors else g.array)
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(tensor).__name__}")
        node = current_node(tensor)
        if g is None and node is not None:
            g = _implicit_gradient(tensor)
            if as_tensors:
                g = Tensor._from(g)
        elif g is not None:
            if not isinstance(g, Tensor):
                raise TypeError(
                    f"gradients can be either Tensors or None, but got {type(g).__module__}.{type(g).__name__}"
                    if type(g).__module__ != "builtins"
                    else f"gradients can be either Tensors or None, but got {type(g).__name__}"
                )
            _check_gradient(i, g, tensor.array)
            if g.array.dtype != tensor.array.dtype:
                g = g.to(tensor.dtype)
            if not as_tensors:
                g = g.array
        if node is None:
            error = RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
            if state.recorder is not None:
                state.recorder.refused(error, tensor)
            raise error
        nodes.append(node)
        seeds.append(g)
    return nodes, seeds


def edge_target(edge):
    """The node, or the port of a node with several outputs, at which a GradientEdge arrives."""
    return edge.node if edge.node.outputs == 1 else Port(edge.node, edge.output_nr)


def _targets(inputs):
    """{node: {output number: positions}} of what gradients are wanted for."""
    targets: dict = {}
    for position, tensor in enumerate(inputs):
        if isinstance(tensor, GradientEdge):
            node, number = tensor.node, tensor.output_nr
        else:
            node = current_node(tensor)
            if node is None and tensor.requires_grad:
                continue  # a view whose gradient goes nowhere
            if node is None:
                raise RuntimeError("One of the differentiated Tensors does not require grad")
            node, number = node_and_number(node)
        targets.setdefault(node, {}).setdefault(number, []).append(position)
    return targets


def _as_sequence(value):
    return (value,) if isinstance(value, (Tensor, GradientEdge)) else tuple(value)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Adds the gradients of `tensors` with respect to the graph's leaves to their `.grad`.

    grad_tensors: the gradient of each tensor, of its shape (None: 1.0 for a tensor with one element).
    retain_graph: keep the saved tensors, so that backward can run again (default: as create_graph).
    create_graph: record the backward pass itself, for derivatives of higher order.
    inputs: accumulate into these tensors only.

    >>> import backlight as torch
    >>> x = torch.tensor([1., 2.], requires_grad=True)
    >>> torch.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only "
                "use `grad_tensors`."
            )
        grad_tensors = grad_variables
    tensors = _as_sequence(tensors)
    gradients = (None,) * len(tensors) if grad_tensors is None else _as_sequence(grad_tensors)
    nodes, seeds = _roots(tensors, gradients, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    if create_graph:
        warnings.warn(CYCLE, UserWarning, stacklevel=3)
    if inputs is None:
        sweep(nodes, seeds, keep, create_graph)
        return
    inputs = _as_sequence(inputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    targets = _targets(inputs)
    for tensor in inputs:
        if isinstance(tensor, Tensor):
            tensor.retain_grad()  # nothing for a leaf
    sweep(nodes, seeds, keep, create_graph, targets)


def _backward_method(self, gradient=None, retain_graph=None, create_graph=False, inputs=None):
    """Computes the gradients of this tensor with respect to the graph's leaves, into their `.grad`.

    gradient: the gradient of something with respect to this tensor, of its shape; may be left out for a scalar.
    See `backlight.autograd.backward` for the other arguments.
    """
    backward((self,), None if gradient is None else (gradient,), retain_graph, create_graph, inputs=inputs)


Tensor.backward = named(_backward_method, "backward")


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
) -> tuple:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; no `.grad` is touched.

    allow_unused: None instead of an error for an input that the outputs don't depend on.
    materialize_grads: zeros instead of None for such an input.

    >>> import backlight as torch
    >>> x = torch.tensor(3., requires_grad=True)
    >>> torch.autograd.grad(x ** 2, x)
    (tensor(6.),)
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    del only_inputs  # accepted and ignored, as in PyTorch
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    outputs, inputs = _as_sequence(outputs), _as_sequence(inputs)
    gradients = (None,) * len(outputs) if grad_outputs is None else _as_sequence(grad_outputs)
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    if is_grads_batched:
        return _batched_grad(outputs, inputs, gradients, retain_graph, create_graph, allow_unused, materialize_grads)
    nodes, seeds = _roots(outputs, gradients, create_graph)
    targets = _targets(inputs)
    keep = create_graph if retain_graph is None else retain_graph
    found = sweep(nodes, seeds, keep, create_graph, targets, capture=True)
    results = []
    for position, tensor in enumerate(inputs):
        g = as_tensor(found.get(position))
        if g is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {position} appears to not have been used in the graph. Set allow_unused=True "
                "if this is the desired behavior."
            )
        if g is None and materialize_grads:
            if not isinstance(tensor, Tensor):
                raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
            g = Tensor._from(np.zeros_like(tensor.array)).requires_grad_(create_graph)
        elif g is not None and not create_graph and not g.array.flags.writeable:  # an expanded gradient
            g = Tensor._from(g.array.copy())
        results.append(g)
    return tuple(results)


def _batched_grad(outputs, inputs, gradients, retain_graph, create_graph, allow_unused, materialize_grads):
    """grad for a batch of cotangents at once: their first dimension, and that of the results, is the batch."""
    from ..batching import VmapLevel
    from ..func.vmap import _outputs, _samples

    for i, (y, g) in enumerate(zip(outputs, gradients)):
        if g is not None and g.shape[1:] != y.shape or g is not None and not g.dim():
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. The sizes of "
                f"the remaining dimensions are expected to match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {y.shape}. If you only want some tensors in "
                "`grad_output` to be considered batched, consider using vmap."
            )
    size, samples = _samples(gradients)
    with VmapLevel(size) as level:
        level.functional = False
        found = grad(outputs, inputs, samples(level), retain_graph, create_graph, allow_unused=True)
        if not allow_unused and any(g is None for g in found):
            position = next(i for i, g in enumerate(found) if g is None)
            raise RuntimeError(
                f"The differentiated Tensor at index {position} appears to not have been used in the graph. Set allow_unused=True "
                "if this is the desired behavior."
            )
        whole = [None if g is None else _outputs(g, level, 0, grad) for g in found]
    if materialize_grads:
        whole = [Tensor._from(np.zeros((size, *x.shape), x.array.dtype)) if g is None else g for g, x in zip(whole, inputs)]
    return tuple(whole)
