"""The text of an array, character for character as PyTorch prints a tensor.

All shown numbers of an array share one format, chosen from those numbers alone, so a large array costs no more to
print than its corners. Arrays and names go in, text comes out: this module knows no Tensor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


class PrintOptions:
    """How arrays are printed; `set_printoptions` says what each option means."""

    __slots__ = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")

    def __init__(self) -> None:
        self.precision: int = 4
        self.threshold: float = 1000
        self.edgeitems: int = 3
        self.linewidth: int = 80
        self.sci_mode: bool | None = None


_options = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors are printed. What is None stays as it is, but for `sci_mode`, where None means automatic.

    Args:
        precision: digits after the decimal point (4).
        threshold: the number of elements beyond which only the corners are shown (1000).
        edgeitems: how many elements are shown at each end of a dimension then (3).
        linewidth: the number of characters at which lines are broken (80).
        profile: "default", "short" or "full": values for the four above, which those given override.
        sci_mode: scientific notation always (True), never (False) or where the numbers call for it (None).
    """
    for name, value in _PROFILES.get(profile or "", {}).items():
        setattr(_options, name, value)
    for name, value in (
        ("precision", precision),
        ("threshold", threshold),
        ("edgeitems", edgeitems),
        ("linewidth", linewidth),
    ):
        if value is not None:
            setattr(_options, name, value)
    _options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options in force, by name."""
    return {name: getattr(_options, name) for name in PrintOptions.__slots__}


# ------------------------------------------------------------------------------------------------------------- numbers


class _Format:
    """One format for all of `values`, and the width of the widest of them."""

    def __init__(self, values: Array) -> None:
        self.template: str | None = None  # None: Python's own text of ints and bools
        self.point = ""  # what follows a finite number
        self.width = 1
        if values.dtype.kind != "f":
            self.width = max((len(str(value)) for value in values.ravel().tolist()), default=1)
            return
        values = values.astype(np.float64, copy=False)
        values = values[np.isfinite(values) & (values != 0)]
        self._choose(whole=True, sci=False)
        if values.size:
            magnitudes = np.abs(values)
            largest, smallest = float(magnitudes.max()), float(magnitudes.min())
            whole = bool((values == np.ceil(values)).all())
            sci = _options.sci_mode
            if sci is None:
                sci = largest / smallest > 1000.0 or largest > 1.0e8 or (not whole and smallest < 1.0e-4)
            self._choose(whole, sci)
            self.width = max(map(len, map(self, values.tolist())))

    def _choose(self, whole: bool, sci: bool) -> None:
        precision = _options.precision
        self.template = f"%.{precision}e" if sci else "%.0f" if whole else f"%.{precision}f"
        self.point = "." if whole and not sci else ""

    def __call__(self, value: Any) -> str:
        if self.template is None:
            text = str(value)
        elif math.isfinite(value):
            text = self.template % value + self.point
        else:
            text = str(value)
        return text.rjust(self.width)


class _ComplexFormat:
    """One format for the real parts and one for the imaginary parts of `values`."""

    def __init__(self, values: Array) -> None:
        self.real, self.imag = _Format(np.real(values)), _Format(np.imag(values))
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: complex) -> str:
        imag = self.imag(value.imag).lstrip() + "j"
        return self.real(value.real) + (imag if imag[0] in "+-" else "+" + imag)


# -------------------------------------------------------------------------------------------------------------- arrays


def _corners(array: Array) -> Array:
    """The elements of `array` that are shown when it is summarised."""
    edge = _options.edgeitems
    for axis in range(array.ndim):
        if array.shape[axis] > 2 * edge:
            ends = np.r_[:edge, array.shape[axis] - edge : array.shape[axis]]
            array = array.take(ends, axis)
    return array


def format_array(array: Array, indent: int = 0) -> str:
    """The text of an array's elements: brackets, commas and line breaks; `indent` columns stand to the left of it.

    >>> print(format_array(np.array([[1.0, 2.5], [3.0, 4.0]])))
    [[1.0000, 2.5000],
     [3.0000, 4.0000]]
    """
    if array.size == 0:
        return "[]"
    summarise = array.size > _options.threshold
    shown = _corners(array) if summarise else array
    if shown.dtype.kind not in "biufc":  # bfloat16 and the other small floats of ml_dtypes
        shown = shown.astype(np.float32)
    form = _ComplexFormat(shown) if shown.dtype.kind == "c" else _Format(shown)
    return _nested(shown.tolist(), array.shape, indent, summarise, form)


def _nested(shown: Any, shape: tuple[int, ...], indent: int, summarise: bool, form: _Format | _ComplexFormat) -> str:
    """The text of nested lists of the shown elements of an array of `shape`."""
    if not shape:
        return form(shown)
    edge = _options.edgeitems
    cut = summarise and shape[0] > 2 * edge
    innermost = len(shape) == 1
    if innermost:
        parts = [form(value) for value in shown]
    else:
        parts = [_nested(row, shape[1:], indent + 1, summarise, form) for row in shown]
    if cut:
        parts.insert(edge, " ..." if innermost and edge else "...")
    margin = " " * (indent + 1)
    if not innermost:
        return "[" + ("," + "\n" * (len(shape) - 1) + margin).join(parts) + "]"
    per_line = max(1, (_options.linewidth - indent) // (form.width + 2))
    lines = [", ".join(parts[start : start + per_line]) for start in range(0, len(parts), per_line)]
    return "[" + (",\n" + margin).join(lines) + "]"


def tensor_repr(
    array: Array,
    dtype_name: str,
    *,
    default_dtype_name: str = "float32",
    requires_grad: bool = False,
    grad_fn_name: str | None = None,
    prefix: str = "tensor(",
    tensor_contents: str | None = None,
    tangent: str | None = None,
) -> str:
    """The whole text of a tensor: `prefix`, elements, and what is out of the ordinary about it.

    The dtype is named unless it is the default one, its complex twin, int64 or bool; an empty tensor names every dtype
    but the default one, and its size unless it is one-dimensional. Without edge items the size of every other tensor
    is named. `grad_fn_name` stands for `requires_grad`.
    `tensor_contents` replaces the text of the elements. `tangent`: the text of a dual tensor's tangent.

    >>> tensor_repr(np.array([1.0, 2.0]), "float64", grad_fn_name="MulBackward0")
    'tensor([1., 2.], dtype=torch.float64, grad_fn=<MulBackward0>)'
    """
    indent = len(prefix)
    suffixes = []
    complex_name = "complex128" if default_dtype_name == "float64" else "complex64"
    ordinary = [default_dtype_name]
    if array.size:
        ordinary += ["int64", "bool", complex_name]
    if array.ndim != 1 if array.size == 0 else _options.edgeitems == 0:
        suffixes.append(f"size={array.shape}")
    if dtype_name not in ordinary:
        suffixes.append(f"dtype=torch.{dtype_name}")
    if grad_fn_name is not None:
        suffixes.append(f"grad_fn=<{grad_fn_name}>")
    elif requires_grad:
        suffixes.append("requires_grad=True")
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")

    text = prefix + (format_array(array, indent) if tensor_contents is None else tensor_contents)
    column = len(text) - text.rfind("\n") + 1  # two more than there are: PyTorch counts the same way
    for suffix in suffixes:
        if column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"
