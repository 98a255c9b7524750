"""What a backward step computed at one element: how a NaN, an infinity, or a dead unit came about.

Runs right after a step, while what the node saved can still be read. The names of saved tensors are PyTorch's
(`node._saved_result` is "result"), so the same rules serve both engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .statistics import first_false

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Rule(NamedTuple):
    """The derivative of an elementwise operation with respect to one input."""

    text: str  # of the gradient, for people
    derivative: Callable[[Mapping[str, Any]], Any]  # from what was saved
    singular: str  # what an infinite derivative means: "division by zero", "singular point" or "overflow"


def _power(saved: Mapping[str, Any]) -> Any:
    exponent = np.asarray(saved["exponent"], dtype=np.float64)
    return exponent * np.power(saved["self"], exponent - 1)


def _radius(saved: Mapping[str, Any]) -> Any:
    return saved["self"] ** 2 + saved["other"] ** 2


# One entry per edge; None: nothing to say about that input.
RULES: dict[str, list[Rule | None]] = {
    "Exp": [Rule("grad * exp(x)", lambda s: s["result"], "overflow")],
    "Exp2": [Rule("grad * 2**x * log(2)", lambda s: s["result"] * np.log(2), "overflow")],
    "Expm1": [Rule("grad * (expm1(x) + 1)", lambda s: s["result"] + 1, "overflow")],
    "Sinh": [Rule("grad * cosh(x)", lambda s: np.cosh(s["self"]), "overflow")],
    "Cosh": [Rule("grad * sinh(x)", lambda s: np.sinh(s["self"]), "overflow")],
    "Log": [Rule("grad / x", lambda s: 1 / s["self"], "division by zero")],
    "Log2": [Rule("grad / (x * log(2))", lambda s: 1 / (s["self"] * np.log(2)), "division by zero")],
    "Log10": [Rule("grad / (x * log(10))", lambda s: 1 / (s["self"] * np.log(10)), "division by zero")],
    "Log1P": [Rule("grad / (x + 1)", lambda s: 1 / (s["self"] + 1), "division by zero")],
    "Reciprocal": [Rule("-grad / x**2", lambda s: -(s["result"] ** 2), "division by zero")],
    "Div": [
        Rule("grad / other", lambda s: 1 / s["other"], "division by zero"),
        Rule("-grad * x / other**2", lambda s: -s["self"] / s["other"] ** 2, "division by zero"),
    ],
    "Sqrt": [Rule("grad / (2 * sqrt(x))", lambda s: 1 / (2 * s["result"]), "singular point")],
    "Rsqrt": [Rule("-grad / (2 * x**1.5)", lambda s: -0.5 * s["result"] ** 3, "singular point")],
    "Pow": [Rule("grad * n * x**(n - 1)", _power, "singular point")],
    "Acos": [Rule("-grad / sqrt(1 - x**2)", lambda s: -1 / np.sqrt(1 - s["self"] ** 2), "singular point")],
    "Asin": [Rule("grad / sqrt(1 - x**2)", lambda s: 1 / np.sqrt(1 - s["self"] ** 2), "singular point")],
    "Acosh": [Rule("grad / sqrt(x**2 - 1)", lambda s: 1 / np.sqrt(s["self"] ** 2 - 1), "singular point")],
    "Atanh": [Rule("grad / (1 - x**2)", lambda s: 1 / (1 - s["self"] ** 2), "singular point")],
    "Atan2": [
        Rule("grad * x / (y**2 + x**2)", lambda s: s["other"] / _radius(s), "singular point"),
        Rule("-grad * y / (y**2 + x**2)", lambda s: -s["self"] / _radius(s), "singular point"),
    ],
    "LinalgVectorNorm": [Rule("grad * x / norm(x)", lambda s: s["self"] / s["result"], "singular point")],
    "Norm": [Rule("grad * x / norm(x)", lambda s: s["self"] / s["result"], "singular point")],
    "Mul": [
        Rule("grad * other", lambda s: s["other"], "overflow"),
        Rule("grad * x", lambda s: s["self"], "overflow"),
    ],
}  # fmt: skip


def base_name(node: str) -> str:
    """The operation in a node's name: "Exp" for "ExpBackward0"."""
    return node.partition("Backward")[0]


def explain_nonfinite(
    node: str, saved: Mapping[str, Any], arrived: Sequence[Any], passed: Sequence[Any]
) -> dict[str, Any] | None:
    """How a step that received finite gradients passed on NaN or infinity; None if it did not.

    The result: `edge`, `element` (of the operation's result), `value`, `count` and `size`, `upstream` (the gradient at the
    element), `derivative`, `saved` (values there), `rule`, and `cause`: "0 x inf", "0 / 0", "division by zero", "singular point",
    "overflow", "non-finite saved value" or "unknown".
    """
    upstream = next((g for g in arrived if g is not None), None)
    if upstream is None or any(g is not None and not np.isfinite(g).all() for g in arrived):
        return None
    for edge, g in enumerate(passed):
        if g is None or np.isfinite(g).all():
            continue
        finite = np.isfinite(g)
        found: dict[str, Any] = {"edge": edge, "count": int(finite.size - np.count_nonzero(finite)), "size": int(finite.size)}
        rules = RULES.get(base_name(node), [])
        rule = rules[edge] if edge < len(rules) else None
        with np.errstate(all="ignore"):
            found.update(_by_rule(rule, saved, upstream, g) or _by_inspection(saved, g, finite))
        return found
    return None


def _by_rule(rule: Rule | None, saved: Mapping[str, Any], upstream: Any, g: Any) -> dict[str, Any] | None:
    if rule is None:
        return None
    wide = {key: np.asarray(x, np.float64) if _is_real(x) else x for key, x in saved.items()}
    try:
        derivative = np.asarray(rule.derivative(wide))
        derivative, slope = np.broadcast_arrays(derivative.astype(g.dtype), np.asarray(upstream))
    except (KeyError, ValueError, TypeError):  # not saved here, or of a shape that this rule doesn't know
        return None
    product = slope * derivative
    finite = np.isfinite(product)
    if finite.all():
        return None
    element = first_false(finite)
    slope_here, derivative_here = float(slope[element]), float(derivative[element])
    values = {key: float(np.broadcast_to(x, product.shape)[element]) for key, x in wide.items() if _fits(x, product.shape)}
    if np.isnan(derivative_here):
        cause = "0 / 0" if 0.0 in values.values() else "non-finite saved value"
    elif np.isinf(derivative_here):
        cause = "0 x inf" if slope_here == 0 else rule.singular
    else:
        cause = "overflow"
    return {
        "element": element, "value": float(product[element]), "upstream": slope_here, "derivative": derivative_here, "saved": values,
        "rule": rule.text, "cause": cause, "singular": rule.singular,
    }  # fmt: skip


def _by_inspection(saved: Mapping[str, Any], g: Any, finite: Any) -> dict[str, Any]:
    """Without a rule: where it is, and whether a saved tensor was already not finite."""
    element = first_false(finite)
    value = g[element]
    bad = {key: int(x.size - np.count_nonzero(np.isfinite(x))) for key, x in saved.items() if _is_real(x)}
    bad = {f"non-finite in {key}": n for key, n in bad.items() if n}
    return {
        "element": element, "value": abs(value) if g.dtype.kind == "c" else float(value), "saved": bad,
        "cause": "non-finite saved value" if bad else "unknown",
    }  # fmt: skip


def _is_real(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"


def _fits(x: Any, shape: tuple[int, ...]) -> bool:
    if isinstance(x, (int, float)):
        return True
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "fiub":
        return False
    try:
        np.broadcast_to(x, shape)
    except ValueError:
        return False
    return True


def broken_forward(saved: Sequence[tuple[Any, Mapping[str, Any]]]) -> tuple[Any, dict[str, Any]] | None:
    """The first operation of a forward pass whose result is not finite: (its line, what is known of it); None if no node saved such a value.

    saved: the lines of a pass's nodes with what they saved. See `schema.Pass.broken` for what is known.
    """
    arrays = {node.number: {key: x for key, x in values.items() if _is_real(x)} for node, values in saved}
    first: tuple[int, Any, dict[str, Any]] | None = None
    for node, _values in saved:
        for name, array in arrays[node.number].items():
            if np.isfinite(array).all():
                continue
            tensor = next((s.tensor for s in node.saved if s.name == name), None)
            made = node.op if name.startswith("result") else tensor.op if tensor is not None else None
            op = made if made is not None else node.op
            if op is None or (first is not None and first[0] <= op.at):
                continue
            finite = np.isfinite(array)
            element = first_false(finite)
            found: dict[str, Any] = {
                "value": float(array[element]), "element": element, "count": int(finite.size - np.count_nonzero(finite)), "size": int(finite.size),
            }  # fmt: skip
            if made is None:
                found["given"] = name if tensor is None else tensor.number
            else:
                makers = {output.node.number for output in made.outputs if output.node is not None}
                inputs = [
                    (key, x) for number in makers for key, x in arrays.get(number, {}).items() if not key.startswith("result")
                ]
                found["inputs"] = {key: float(x[element]) for key, x in inputs if x.shape == array.shape}
            first = op.at, op, found
    return None if first is None else first[1:]


def dead_units(node: str, saved: Mapping[str, Any]) -> dict[str, Any] | None:
    """Units of a ReLU that were off for the whole batch: dimension 1 of (N, C, ...), their indices and how many there are."""
    if base_name(node) not in ("Relu", "Threshold", "Relu6", "Hardtanh") or "result" not in saved and "self" not in saved:
        return None
    result = saved.get("result", saved.get("self"))
    if not _is_real(result) or result.ndim < 2 or not result.size:
        return None
    largest = np.maximum.reduce(result, axis=0 if result.ndim == 2 else (0, *range(2, result.ndim)))
    return {"units": np.flatnonzero(largest <= 0).tolist(), "of": result.shape[1]}
