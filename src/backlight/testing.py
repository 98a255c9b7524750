"""`assert_close` and `make_tensor`."""

from __future__ import annotations

import cmath
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

# (rtol, atol) by type; exact for all others.
_TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}
_NUMBERS = (int, float, complex)


class _Comparison:
    """One call of `assert_close`: its tolerances and options, and the place in nested values where it is."""

    def __init__(self, allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, msg):
        if (rtol is None) != (atol is None):
            missing = "rtol" if rtol is None else "atol"
            raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
        self.allow_subclasses, self.given, self.equal_nan = allow_subclasses, (rtol, atol), equal_nan
        self.check_dtype, self.check_stride = check_dtype, check_stride
        self.msg = msg
        del check_device, check_layout  # there is one device and one layout
        self.place: list = []

    def fail(self, text: str, kind: type[Exception] = AssertionError) -> None:
        if self.place:
            text += f"\n\nThe failure occurred for item {''.join(f'[{key!r}]' for key in self.place)}"
        if self.msg is not None:
            text = str(self.msg(text)) if callable(self.msg) else self.msg
        raise kind(text)

    def tolerances(self, *types: dtypes.dtype) -> tuple[float, float]:
        if self.given[0] is not None:
            return self.given
        rtols, atols = zip(*(_TOLERANCES.get(t, (0.0, 0.0)) for t in types), strict=True)
        return max(rtols), max(atols)

    def compare(self, actual: Any, expected: Any) -> None:
        if isinstance(actual, Sequence) and isinstance(expected, Sequence) and not isinstance(actual, str):
            self.compare_sequences(actual, expected)
        elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
            self.compare_mappings(actual, expected)
        elif actual is None or expected is None:
            if actual is not expected:
                self.fail(f"None mismatch: {actual} is not {expected}")
        elif isinstance(actual, (bool, np.bool_)) and isinstance(expected, (bool, np.bool_)):
            if bool(actual) is not bool(expected):
                self.fail(f"Booleans mismatch: {actual} is not {expected}")
        elif isinstance(actual, _NUMBERS) and isinstance(expected, _NUMBERS):
            self.compare_numbers(actual, expected)
        elif isinstance(actual, (Tensor, np.ndarray)) and self.related(actual, expected):
            self.compare_tensors(_as_tensor(actual), _as_tensor(expected))
        else:
            self.fail(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.", TypeError)

    def related(self, actual: Any, expected: Any) -> bool:
        if self.allow_subclasses:
            return isinstance(expected, type(actual)) or isinstance(actual, type(expected))
        return type(actual) is type(expected)

    def compare_sequences(self, actual: Sequence, expected: Sequence) -> None:
        if len(actual) != len(expected):
            self.fail(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}")
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            self.place.append(i)
            self.compare(a, b)
            self.place.pop()

    def compare_mappings(self, actual: Mapping, expected: Mapping) -> None:
        missing, additional = set(expected) - set(actual), set(actual) - set(expected)
        if missing or additional:
            self.fail(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(missing)}\n"
                f"Additional keys in the actual mapping: {sorted(additional)}"
            )
        for key in expected:
            self.place.append(key)
            self.compare(actual[key], expected[key])
            self.place.pop()

    def compare_numbers(self, actual: Any, expected: Any) -> None:
        if self.check_dtype and type(actual) is not type(expected):
            self.fail(f"The (d)types do not match: {type(actual)} != {type(expected)}.")
        types = [{int: dtypes.int64, float: dtypes.float64}.get(type(v), dtypes.complex128) for v in (actual, expected)]
        rtol, atol = self.tolerances(*types)
        if actual == expected or (self.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
            return
        difference = abs(actual - expected)
        if cmath.isfinite(actual) and cmath.isfinite(expected) and difference <= atol + rtol * abs(expected):
            return
        self.fail_numbers(actual, expected, difference, rtol, atol)

    def fail_numbers(self, actual, expected, difference, rtol, atol) -> None:
        relative = difference / abs(expected) if expected != 0 else math.inf
        exact = rtol == 0 and atol == 0
        self.fail(
            f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
            f"Absolute difference: {difference}{'' if exact else f' (up to {atol} allowed)'}\n"
            f"Relative difference: {relative}{'' if exact else f' (up to {rtol} allowed)'}"
        )

    def compare_tensors(self, actual: Tensor, expected: Tensor) -> None:
        for name, checked in (("shape", True), ("dtype", self.check_dtype)):
            a, b = getattr(actual, name), getattr(expected, name)
            if checked and a != b:
                self.fail(f"The values for attribute '{name}' do not match: {a} != {b}.")
        if self.check_stride and actual.stride() != expected.stride():
            self.fail(f"The values for attribute 'stride()' do not match: {actual.stride()} != {expected.stride()}.")
        rtol, atol = self.tolerances(actual.dtype, expected.dtype)
        common = dtypes.promote_types(actual.dtype, expected.dtype)
        # PyTorch compares in the common type, and reports differences in it (of half types too).
        a, b = actual.detach().to(common).array, expected.detach().to(common).array
        wide_a, wide_b = (x.astype(np.float32) if common.itemsize == 2 and common.category == 2 else x for x in (a, b))
        with np.errstate(all="ignore"):
            close = (
                np.isclose(wide_a, wide_b, rtol=rtol, atol=atol, equal_nan=self.equal_nan) if common.category > 1 else a == b
            )
            if np.all(close):
                return
            difference = np.abs(a - b) if common.category else np.abs(a.astype(np.int64) - b)
            size = np.abs(b) if common.category else b.astype(np.int64)
            relative = difference / size if common.category > 1 else difference.astype(np.float32) / size.astype(np.float32)
        if not actual.dim():
            self.fail_numbers(actual.item(), expected.item(), difference.item(), rtol, atol)
        exact = rtol == 0 and atol == 0
        wrong = close.size - np.count_nonzero(close)
        lines = [
            f"Tensor-likes are not {'equal' if exact else 'close'}!\n",
            f"Mismatched elements: {wrong} / {close.size} ({wrong / close.size:.1%})",
        ]
        for what, values, allowed in (("absolute", difference, atol), ("relative", relative, rtol)):
            values = np.where(close, np.zeros((), values.dtype), values)
            index = np.unravel_index(int(np.argmax(values.astype(np.float64))), values.shape)
            suffix = "" if exact else f" (up to {allowed} allowed)"
            value, place = values[index].item(), tuple(int(i) for i in index)
            lines.append(f"Greatest {what} difference: {value} at index {place}{suffix}")
        self.fail("\n".join(lines))


def _as_tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor._from(value)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """AssertionError unless |actual - expected| <= atol + rtol * |expected| everywhere.

    actual, expected: tensors, arrays, numbers, None, or sequences and mappings of these. The tolerances follow from the dtype
    (float32: rtol 1.3e-6, atol 1e-5; float64: 1e-7 both; integers: 0). The message says how many elements differ, and where most.

    >>> import backlight as torch
    >>> torch.testing.assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))
    Traceback (most recent call last):
    AssertionError: Tensor-likes are not close!
    <BLANKLINE>
    Mismatched elements: 1 / 2 (50.0%)
    Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)
    Greatest relative difference: 0.20000000298023224 at index (1,) (up to 1.3e-06 allowed)
    """
    comparison = _Comparison(
        allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, msg
    )
    comparison.compare(actual, expected)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Deprecated: `assert_close` without checks of dtype, device and stride."""
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. Please use "
        "`torch.testing.assert_close()` instead. You can find detailed upgrade instructions in "
        "https://github.com/pytorch/pytorch/issues/61844.",
        FutureWarning,
        stacklevel=2,
    )
    a, b = (v if isinstance(v, Tensor) else Tensor._from(np.asarray(v)) for v in (actual, expected))
    if rtol is None and atol is None:
        pairs = [_TOLERANCES.get(v.dtype, (0.0, 0.0)) for v in (a, b)]
        rtol, atol = (max(values) for values in zip(*pairs, strict=True))
    assert_close(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


def make_tensor(
    *shape: Any,
    dtype: dtypes.dtype,
    device: Any = None,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of random numbers in [low, high), by default [-9, 9), or [0, 10) for uint8 and [0, 2) for bool.

    noncontiguous: with gaps in memory. exclude_zero: zeros become the smallest positive number (1 for integers).
    """
    from . import empty, rand, randint

    dtypes.check_device(device)
    del memory_format
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    unsigned = dtype.category == 1 and not dtype.is_signed
    default = (0, 2) if dtype.category == 0 else (0, 10) if unsigned else (-9, 10) if dtype.category == 1 else (-9, 9)
    low, high = default[0] if low is None else low, default[1] if high is None else high
    if low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if dtype.category < 2:
        result = randint(math.floor(low), math.ceil(high), sizes, dtype=dtype)
    else:
        real = rand(*sizes, dtype=dtype)
        scaled = real * (high - low) + (complex(low, low) if dtype.category == 3 else low)
        result = scaled.to(dtype)
    if noncontiguous and result.numel() > 1:
        spread = empty((*sizes, 2), dtype=dtype)
        spread[..., 0] = result
        result = spread[..., 0]
    if exclude_zero:
        result[result == 0] = 1 if dtype.category < 2 else dtypes.finfo(dtype).tiny
    return result.requires_grad_(requires_grad)
