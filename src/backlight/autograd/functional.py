"""Derivatives of a function at a point: vjp, jvp, jacobian, hessian, vhp, hvp.

Functions take a tensor or a tuple of tensors and return the same; so do the results. strict: an output that doesn't
depend on an input is an error instead of a zero. create_graph: the results can be differentiated again.
"""

from __future__ import annotations

import numpy as np

from ..state import modes
from ..tensor import Tensor
from .backward import grad
from .modes import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

STRICT = "This is not allowed in strict mode."


def _as_tuple(value, function, what):
    """A tensor or tuple of tensors as (tuple, whether it was one). TypeError for anything else."""
    several = isinstance(value, tuple)
    for i, x in enumerate(value if several else (value,)):
        if not isinstance(x, Tensor):
            found = f"the value at index {i}" if several else f"the given {what}"
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but {found} has type {type(x)}."
            )
    return (value if several else (value,)), several


def _as_given(values, several):
    return tuple(values) if several else values[0]


def _inputs(inputs, function, create_graph):
    """The inputs as the function gets them: part of the caller's graph with create_graph, else leaves of their own."""
    inputs, several = _as_tuple(inputs, function, "inputs")
    return _entered(inputs, create_graph), several


def _entered(tensors, create_graph):
    return tuple([x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_() for x in tensors])


def _outputs(func, inputs, function, strict):
    outputs, several = _as_tuple(func(*inputs), function, "outputs of the user-provided function")
    _check_requires_grad(
        outputs,
        strict,
        "Output {} of the user-provided function does not require gradients. The outputs must be computed in a differentiable manner "
        "from the input when running in strict mode.",
    )
    return outputs, several


def _scalar_output(func, inputs, function, strict):
    outputs, several = _outputs(func, inputs, function, strict)
    if several:
        raise RuntimeError(f"The function given to {function} should return a single Tensor")
    if outputs[0].nelement() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {function} should contain a single element")
    return outputs


def _check_requires_grad(tensors, strict, text) -> None:
    for i, x in enumerate(tensors):
        if strict and (x is None or not x.requires_grad):
            raise RuntimeError(text.format(i))


JACOBIAN_CONSTANT = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is independent of the "
    "input. This is not allowed in strict mode. You should ensure that your function is twice differentiable and that the jacobian "
    "depends on the inputs (this would be violated by a linear function for example)."
)


def _check_jacobian(jac, strict) -> None:
    for i, g in enumerate(jac):
        if strict and g is None:
            raise RuntimeError(OUTPUT_MISSING.format(i) + " " + STRICT)
        if strict and not g.requires_grad:
            raise RuntimeError(JACOBIAN_CONSTANT.format(i))


def _vectors(v, like, function, what):
    """The vectors that multiply a derivative, of the shapes of `like`; ones for a single number where none are given."""
    if v is None:
        if len(like) != 1 or like[0].nelement() != 1:
            raise RuntimeError(f"The vector v can only be None if {what} a single Tensor with a single element.")
        return (Tensor._from(np.ones_like(like[0].array)),)
    v, _ = _as_tuple(v, function, "v")
    if len(v) != len(like):
        if len(like) == 1:
            raise RuntimeError("The given v should contain a single Tensor.")
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(v)}.")
    for i, (x, y) in enumerate(zip(v, like)):
        if x.shape != y.shape:
            place = f"Entry {i} in v" if len(like) > 1 else "v"
            raise RuntimeError(f"{place} has invalid size: should be {y.shape} but got {x.shape}.")
    return v


def _gradients(outputs, inputs, cotangents, create_graph):
    """grad() where an output without gradient gives None."""
    pairs = [(y, g) for y, g in zip(outputs, cotangents or (None,) * len(outputs)) if y is not None and y.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    ys, gs = zip(*pairs)
    return grad(ys, inputs, gs, allow_unused=True, create_graph=create_graph, retain_graph=True)


def _filled(found, like, strict, create_graph, missing, constant):
    """The derivatives with zeros for None; in strict mode an error (`constant`: that a derivative has none itself)."""
    result = []
    for i, (g, x) in enumerate(zip(found, like, strict=True)):
        if g is None:
            if strict:
                raise RuntimeError(missing.format(i) + " " + STRICT)
            g = Tensor._from(np.zeros_like(x.array))
        elif strict and create_graph and not g.requires_grad:
            raise RuntimeError(
                f"{constant.format(i)} is independent of input {i}. This is not allowed in strict mode when create_graph=True."
            )
        result.append(g)
    return result


JACOBIAN, HESSIAN = "The jacobian of the user-provided function", "The hessian of the user-provided function"
OUTPUT_MISSING = "The output of the user-provided function is independent of input {}."
JACOBIAN_MISSING = JACOBIAN + " is independent of input {}."
VECTOR_INPUT = "the input to the user-provided function is"


def _finished(tensors, several, create_graph):
    return _as_given([x if create_graph else x.detach() for x in tensors], several)


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), v^T J): the product of a vector with the Jacobian, in the shapes of the inputs.

    v: the shapes of the outputs; may be left out for a single number.

    >>> import backlight as torch
    >>> torch.autograd.functional.vjp(torch.exp, torch.zeros(2), torch.ones(2))
    (tensor([1., 1.]), tensor([1., 1.]))
    """
    with enable_grad():
        inputs, several = _inputs(inputs, "vjp", create_graph)
        outputs, several_outputs = _outputs(func, inputs, "vjp", strict)
        v = _vectors(v, outputs, "vjp", "the user-provided function returns")
    with _mode(create_graph):
        found = _gradients(outputs, inputs, v, create_graph)
        found = _filled(found, inputs, strict, create_graph, OUTPUT_MISSING, JACOBIAN)
    return _finished(outputs, several_outputs, create_graph), _finished(found, several, create_graph)


def _mode(create_graph):
    from .modes import set_grad_enabled

    return set_grad_enabled(True if create_graph else modes.grad)


def _dummies(outputs):
    return tuple([Tensor._from(np.zeros_like(y.array)).requires_grad_() for y in outputs])


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), J v): the product of the Jacobian with a vector, in the shapes of the outputs.

    v: the shapes of the inputs; may be left out for a single number. Computed by differentiating the vjp, so that it
    works for all operations; `func.jvp` and `forward_ad` do it in one forward pass.

    >>> import backlight as torch
    >>> torch.autograd.functional.jvp(torch.exp, torch.zeros(2), torch.ones(2))
    (tensor([1., 1.]), tensor([1., 1.]))
    """
    with enable_grad():
        inputs, _several = _as_tuple(inputs, "jvp", "inputs")
        v = _vectors(v, inputs, "jvp", VECTOR_INPUT)
        inputs = _entered(inputs, create_graph)
        outputs, several_outputs = _outputs(func, inputs, "jvp", strict)
        dummies = _dummies(outputs)
        grads = _gradients(outputs, inputs, dummies, True)
        for i, g in enumerate(grads):
            if strict and g is None:
                raise RuntimeError(OUTPUT_MISSING.format(i) + " " + STRICT)
    with _mode(create_graph):
        found = _gradients(grads, dummies, v, create_graph)
        found = _filled(
            found,
            outputs,
            strict,
            create_graph,
            "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double backward trick "
            "to compute forward mode gradients.",
            JACOBIAN,
        )
    return _finished(outputs, several_outputs, create_graph), _finished(found, several_outputs, create_graph)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The Jacobian of `func`: for an output (*O) and an input (*I) a tensor (*O, *I); tuples where there are several.

    vectorize: all rows at once (by vmap) instead of one backward pass a row. strategy: "reverse-mode", or "forward-mode"
    (with vectorize), which is cheaper where there are more outputs than inputs.

    >>> import backlight as torch
    >>> torch.autograd.functional.jacobian(torch.exp, torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs than inputs, '
            '"forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported together (yet). '
                'Please either set `create_graph=False` or `strategy="reverse-mode"`.'
            )
        return _forward_jacobian(func, inputs, strict, vectorize)
    with enable_grad():
        inputs, several = _inputs(inputs, "jacobian", create_graph)
        outputs, several_outputs = _outputs(func, inputs, "jacobian", strict)
        if vectorize:
            if strict:
                raise RuntimeError(
                    "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please either "
                    "set `strict=False` or `vectorize=False`."
                )
            rows = [_vectorized_rows(y, inputs, create_graph) for y in outputs]
        else:
            rows = [_rows(i, y, inputs, create_graph, strict) for i, y in enumerate(outputs)]
        result = [
            _as_given([block.view((*y.shape, *x.shape)) for block, x in zip(blocks, inputs)], several)
            for y, blocks in zip(outputs, rows)
        ]
    if not create_graph:
        detach = lambda each: tuple(map(detach, each)) if isinstance(each, tuple) else each.detach()
        result = [detach(each) for each in result]
    return _as_given(result, several_outputs)


def _construct_standard_basis_for(tensors, tensor_numels):
    """One-hot tensors (N, numel), together the identity of size N = all elements."""
    from ..func.transforms import _basis

    if len(tensors) != len(tensor_numels):
        raise AssertionError("len(tensors) != len(tensor_numels)")
    return tuple(_basis([(n,) for n in tensor_numels], [x.array.dtype for x in tensors])[0])


def _rows(i, y, inputs, create_graph, strict):
    """The Jacobian rows of one output, one backward pass each: for each input (elements of y, *I)."""
    from ..ops.join import stack

    rows = [[] for _ in inputs]
    for element in y.reshape(-1):
        found = _gradients((element,), inputs, None, create_graph)
        for k, (g, x) in enumerate(zip(found, inputs)):
            if g is not None and strict and create_graph and not g.requires_grad:
                raise RuntimeError(
                    f"{JACOBIAN} is independent of input {k}. This is not allowed in strict mode when create_graph=True."
                )
            if g is None and strict:
                raise RuntimeError(f"Output {i} of the user-provided function is independent of input {k}. {STRICT}")
            rows[k].append(Tensor._from(np.zeros_like(x.array)) if g is None else g)
    return [stack(r) if r else x.new_zeros((0, *x.shape)) for r, x in zip(rows, inputs)]


def _vectorized_rows(y, inputs, create_graph):
    n = y.numel()
    if not y.requires_grad:
        return [x.new_zeros((n, *x.shape)) for x in inputs]
    basis = Tensor._from(np.eye(n, dtype=y.array.dtype).reshape((n, *y.shape)))
    found = grad(y, inputs, basis, retain_graph=True, create_graph=create_graph, allow_unused=True, is_grads_batched=True)
    return [x.new_zeros((n, *x.shape)) if g is None else g for g, x in zip(found, inputs)]


def _forward_jacobian(func, inputs, strict, vectorize):
    if strict:
        raise RuntimeError('torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not supported together '
                           '(yet). Please either set `strict=False` or `strategy="reverse-mode"`.')  # fmt: skip
    if not vectorize:
        raise NotImplementedError("Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for "
                                  "`vectorize=True`.")  # fmt: skip
    from ..func.transforms import forward_jacobian

    inputs, several = _as_tuple(inputs, "jacobian", "inputs")

    def checked(*inputs):
        outputs = func(*inputs)
        _as_tuple(outputs, None, "outputs")
        return outputs

    return forward_jacobian(checked, tuple(range(len(inputs))) if several else 0)(*inputs)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The Hessian of `func`, which returns a single number: for inputs (*I) and (*K) a tensor (*I, *K).

    vectorize, outer_jacobian_strategy: see `jacobian`; "forward-mode" is forward over reverse.

    >>> import backlight as torch
    >>> torch.autograd.functional.hessian(lambda x: (x ** 3).sum(), torch.ones(2))
    tensor([[6., 0.],
            [0., 6.]])
    """
    inputs, several = _as_tuple(inputs, "hessian", "inputs")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def checked(*xs):
        output, more = _as_tuple(func(*xs), "hessian", "outputs of the user-provided function")
        _check_requires_grad(
            output,
            strict,
            "Output {} of the user-provided function does not require gradients. The outputs must be computed in a differentiable manner "
            "from the input when running in strict mode.",
        )
        if more:
            raise RuntimeError("The function given to hessian should return a single Tensor")
        if output[0].nelement() != 1:
            raise RuntimeError("The Tensor returned by the function given to hessian should contain a single element")
        return output[0].squeeze()

    def gradient(*xs):
        if outer_jacobian_strategy == "forward-mode":
            xs = tuple([x if x.requires_grad else x.requires_grad_() for x in xs])
        found = jacobian(checked, xs, create_graph=True)
        _check_requires_grad(found, strict, JACOBIAN_CONSTANT)
        return found

    found = jacobian(
        gradient, inputs, create_graph=create_graph, strict=strict, vectorize=vectorize, strategy=outer_jacobian_strategy
    )
    return found if several else found[0][0]


def _gradient_to_differentiate(func, inputs, v, name, strict, create_graph):
    """For vhp and hvp: (inputs, whether they were several, v, outputs, their gradient as a part of the graph)."""
    inputs, several = _inputs(inputs, name, create_graph)
    v = _vectors(v, inputs, name, VECTOR_INPUT)
    outputs = _scalar_output(func, inputs, name, strict)
    jac = _gradients(outputs, inputs, None, True)
    _check_jacobian(jac, strict)
    return inputs, several, v, outputs, jac


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), v^T H): the product of a vector with the Hessian of a function that returns a single number.

    >>> import backlight as torch
    >>> torch.autograd.functional.vhp(lambda x: (x ** 3).sum(), torch.ones(2), torch.ones(2))
    (tensor(2.), tensor([6., 6.]))
    """
    with enable_grad():
        inputs, several, v, outputs, jac = _gradient_to_differentiate(func, inputs, v, "vhp", strict, create_graph)
    with _mode(create_graph):
        found = _gradients(jac, inputs, v, create_graph)
        found = _filled(found, inputs, strict, create_graph, JACOBIAN_MISSING, HESSIAN)
    return _finished(outputs, False, create_graph), _finished(found, several, create_graph)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), H v), by the double backward trick; vhp is cheaper and the same for twice differentiable functions.

    >>> import backlight as torch
    >>> torch.autograd.functional.hvp(lambda x: (x ** 3).sum(), torch.ones(2), torch.ones(2))
    (tensor(2.), tensor([6., 6.]))
    """
    with enable_grad():
        inputs, several, v, outputs, jac = _gradient_to_differentiate(func, inputs, v, "hvp", strict, create_graph)
        dummies = _dummies(inputs)
        double = _gradients(jac, inputs, dummies, True)
        for i, g in enumerate(double):
            if strict and (g is None or not g.requires_grad):
                raise RuntimeError(JACOBIAN_MISSING.format(i) + " " + STRICT)
    with _mode(create_graph):
        found = _gradients(double, dummies, v, create_graph)
        found = _filled(
            found,
            inputs,
            strict,
            create_graph,
            HESSIAN
            + " is independent of entry {} in the grad_jacobian. This is not allowed in strict mode as it prevents from using the "
            "double backward trick to replace forward mode AD.",
            HESSIAN,
        )
    return _finished(outputs, False, create_graph), _finished(found, several, create_graph)
