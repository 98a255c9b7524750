"""Numbers about a tensor's elements, in one pass over its memory."""

from __future__ import annotations

import math

import numpy as np

from .schema import Statistics

BLOCK = 65536  # elements: what is read for the second time comes from the second-level cache


def measure(array: np.ndarray, policy: str) -> Statistics:
    """What `policy` wants to know of an array: its shape only ("shapes"), numbers ("norms"), or also a copy of its elements ("full")."""
    if policy == "shapes":
        return shape_only(array.shape, array.dtype)
    result = Statistics(array.shape, _type_name(array.dtype))
    fill(result, array)
    if policy == "full":
        result.values = array.copy()
    return result


def shape_only(shape: tuple[int, ...], array_type: np.dtype) -> Statistics:
    """Statistics without numbers: one object for all arrays of a shape and type."""
    key = shape, array_type
    found = _shapes.get(key)
    if found is None:
        if len(_shapes) >= 10_000:
            _shapes.clear()
        found = _shapes[key] = Statistics(shape, _type_name(array_type))
    return found


_shapes: dict[tuple, Statistics] = {}


def fill(result: Statistics, array: np.ndarray) -> None:
    """Computes the numbers of `result`. The elements are read block by block, so memory is passed over once."""
    flat = array.reshape(-1) if array.flags.c_contiguous else array.ravel("K")  # "K": no copy of a transposed one
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    elif flat.dtype.kind != "f" or flat.dtype.itemsize == 2:
        flat = flat.astype(np.float64 if flat.dtype.kind in "iub" else np.float32)
    squares, low, high, zeros = 0.0, math.inf, -math.inf, 0
    for block in (flat,) if 0 < flat.size <= BLOCK else (flat[i : i + BLOCK] for i in range(0, flat.size, BLOCK)):
        if block.size <= 64:  # exact to the last digit where it costs nothing
            block = block.astype(np.float64)
        squares += float(np.dot(block, block))
        if not math.isfinite(squares):
            return _fill_carefully(result, array, flat)
        low, high = min(low, float(np.minimum.reduce(block))), max(high, float(np.maximum.reduce(block)))
        zeros += int(np.count_nonzero(block == 0))
    if squares < 1e-30 and zeros < flat.size:
        return _fill_carefully(result, array, flat)
    result.norm, result.zeros, result.nonfinite = math.sqrt(squares), zeros, 0
    if flat.size:
        result.min, result.max = low, high


def _fill_carefully(result: Statistics, array: np.ndarray, flat: np.ndarray) -> None:
    """The same for elements that are NaN or infinite, or whose squares are, or are too small for their type."""
    wide = flat.astype(np.float64)
    finite = np.isfinite(wide)
    result.nonfinite = int(finite.size - np.count_nonzero(finite))
    result.zeros = int(np.count_nonzero(wide == 0))
    rest = wide[finite]
    if rest.size:
        result.min, result.max = float(rest.min()), float(rest.max())
    if result.nonfinite:
        result.bad = first_false(np.isfinite(array))
        result.norm = math.nan if np.isnan(wide).any() else math.inf
    else:
        largest = float(np.abs(wide).max())
        result.norm = largest * float(np.linalg.norm(wide / largest))


def first_false(mask: np.ndarray) -> tuple[int, ...]:
    """The index of the first False element."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmin(mask)), mask.shape))


def _type_name(array_type: np.dtype) -> str:
    name = _names.get(array_type)
    if name is None:
        from ..dtypes import from_array_type

        name = _names[array_type] = from_array_type(array_type).name
    return name


_names: dict[np.dtype, str] = {}
