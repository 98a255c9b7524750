"""Checks a custom Function's backward against its forward, at one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines import package_of
from ..schema import Site
from .finding import Finding, listed

if TYPE_CHECKING:
    from collections.abc import Callable


def check_function(
    function: Callable[..., Any], *inputs: Any, step: float | None = None, tolerance: float | None = None
) -> Finding | None:
    """Compares the gradient that `function` computes with finite differences; None if they agree, else what differs.

    function: `MyFunction.apply` or any function of tensors (both engines); inputs: tensors, of which those that require grad are
    checked, in float64 if they are. One output element after the other is differentiated numerically with central differences.

    >>> import backlight as torch
    >>> class Square(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         return g * ctx.saved_tensors[0]
    >>> x = torch.tensor([1., 2.], dtype=torch.float64, requires_grad=True)
    >>> torch.inspect.check_function(Square.apply, x).numbers["ratio"]
    2.0
    """
    positions = [i for i, x in enumerate(inputs) if getattr(x, "requires_grad", False)]
    if not positions:
        raise ValueError("check_function needs at least one input that requires grad")
    engine = package_of(inputs[positions[0]])
    double = all(str(inputs[i].dtype).endswith("float64") for i in positions)
    step = step or (1e-6 if double else 1e-2)
    tolerance = tolerance or (1e-5 if double else 2e-2)
    fresh = [x.detach().clone().requires_grad_(x.requires_grad) if hasattr(x, "detach") else x for x in inputs]
    outputs = function(*fresh)
    outputs = [y for y in (outputs if isinstance(outputs, tuple) else (outputs,)) if getattr(y, "requires_grad", False)]
    if not outputs:
        raise ValueError("the function's outputs don't require grad: there is nothing to check")
    generator = np.random.default_rng(0)
    weights = [generator.standard_normal(tuple(y.shape)) for y in outputs]
    seeds = [engine.tensor(w.astype(np.float64)).to(y.dtype).reshape(tuple(y.shape)) for w, y in zip(weights, outputs)]
    analytic = engine.autograd.grad(outputs, [fresh[i] for i in positions], seeds, allow_unused=True)
    wrong = []
    for position, g in zip(positions, analytic):
        numeric = _numeric(engine, function, fresh, position, weights, step)
        given = np.zeros_like(numeric) if g is None else g.detach().numpy().astype(np.float64)
        error = np.abs(given - numeric)
        scale = max(float(np.abs(numeric).max(initial=0)), float(np.abs(given).max(initial=0)), 1e-12)
        if float(error.max(initial=0)) > tolerance * scale:
            wrong.append((position, given, numeric, error))
    return _report(function, wrong) if wrong else None


def _numeric(engine: Any, function: Any, inputs: list, position: int, weights: list, step: float) -> np.ndarray:
    """The gradient of the weighted sum of the outputs with respect to one input, by central differences."""
    base = inputs[position].detach().numpy().astype(np.float64)
    result = np.zeros(base.size)
    flat = base.ravel()
    for i in range(base.size):
        values = []
        for sign in (1, -1):
            moved = flat.copy()
            moved[i] += sign * step
            replaced = engine.tensor(moved.reshape(base.shape)).to(inputs[position].dtype)
            with engine.no_grad():
                out = function(*[replaced if j == position else x for j, x in enumerate(inputs)])
            out = out if isinstance(out, tuple) else (out,)
            out = [y for y in out if str(y.dtype).rpartition(".")[2].startswith(("float", "bfloat"))]
            values.append(sum(float((y.detach().numpy().astype(np.float64) * w).sum()) for y, w in zip(out, weights)))
        result[i] = (values[0] - values[1]) / (2 * step)
    return result.reshape(base.shape)


def _report(function: Any, wrong: list) -> Finding:
    position, given, numeric, error = wrong[0]
    element = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
    ratios = numeric[np.abs(given) > 1e-12] / given[np.abs(given) > 1e-12] if given.size else np.empty(0)
    ratio = float(np.median(ratios)) if ratios.size and float(np.ptp(ratios)) < 1e-3 * abs(float(np.median(ratios))) else None
    owner = getattr(function, "__self__", None)
    backward = getattr(owner, "backward", None)
    code = getattr(backward, "__code__", None)
    name = getattr(owner, "__name__", None) or getattr(function, "__name__", "the function")
    constant = f" It is off by the constant factor {ratio:.6g}." if ratio is not None else ""
    return Finding(
        "wrong-function",
        "error",
        f"{name}.backward disagrees with its forward for input {listed(str(p) for p, *_ in wrong)}",
        f"At element {list(element)} of input {position} backward gives {given[element]:.6g}, but finite differences of forward give "
        f"{numeric[element]:.6g}.{constant}",
        f"multiply what backward returns for input {position} by {ratio:.6g}" if ratio is not None else "derive backward again, and check it with gradcheck",
        {} if code is None else {"backward": Site(0, code.co_filename, code.co_firstlineno, code.co_name)},
        {
            "input": position, "inputs": [p for p, *_ in wrong], "element": element, "analytic": float(given[element]), "numeric": float(numeric[element]),
            "ratio": None if ratio is None else round(ratio, 6), "largest_error": float(error.max()),
        },
        [name],
    )  # fmt: skip
