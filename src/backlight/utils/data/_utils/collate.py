"""Samples to a batch."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .... import as_tensor, float64, stack, tensor
from ....state import state
from ....tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    Collate = Callable[..., Any]

default_collate_err_msg_format = "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
np_str_obj_array_pattern = re.compile(r"[SaUO]")


def default_convert(data):
    """Turns NumPy arrays and numbers into tensors, also inside of containers; leaves everything else as it is."""
    kind = type(data)
    if isinstance(data, Tensor):
        return data
    if kind.__module__ == "numpy" and kind.__name__ not in ("str_", "string_"):
        if kind is np.ndarray and np_str_obj_array_pattern.search(data.dtype.str):
            return data
        return as_tensor(data)
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return kind(*(default_convert(entry) for entry in data))
    if isinstance(data, tuple):
        return [default_convert(entry) for entry in data]
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like_sequence(data, [default_convert(entry) for entry in data])
    return data


def _like_mapping(original: Mapping, values: dict):
    """A mapping of the original's type (a changed copy, so that extra attributes stay), or a dict where that fails."""
    try:
        if not isinstance(original, MutableMapping):
            return type(original)(values)  # pyright: ignore[reportCallIssue]
        twin = copy.copy(original)
        twin.update(values)
        return twin
    except TypeError:
        return values


def _like_sequence(original: Sequence, values: list):
    """A sequence of the original's type (a changed copy, so that extra attributes stay), or a list where that fails."""
    try:
        if not isinstance(original, MutableSequence):
            return type(original)(values)  # pyright: ignore[reportCallIssue]
        twin = copy.copy(original)
        for index, value in enumerate(values):
            twin[index] = value
        return twin
    except TypeError:
        return values


def collate(batch, *, collate_fn_map: dict[type | tuple[type, ...], Collate] | None = None):
    """Collates samples by the function that `collate_fn_map` has for the type of the first one, else by its container.

    A function is called as `function(samples, collate_fn_map=collate_fn_map)`. Mappings, named tuples, tuples and sequences
    are collated entry by entry. TypeError for other types, RuntimeError for sequences of different lengths.
    """
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for key, function in collate_fn_map.items():
            if isinstance(first, key):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        values = {key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map) for key in first}
        return _like_mapping(first, values)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return kind(*(collate(entries, collate_fn_map=collate_fn_map) for entries in zip(*batch, strict=False)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        values = [collate(entries, collate_fn_map=collate_fn_map) for entries in zip(*batch, strict=False)]
        return values if isinstance(first, tuple) else _like_sequence(first, values)
    raise TypeError(default_collate_err_msg_format.format(kind))


def collate_tensor_fn(batch, *, collate_fn_map: dict | None = None):
    """Tensors of one shape to a tensor with one more dimension in front."""
    del collate_fn_map
    nothing_to_tell = not state.unusual and state.recorder is None
    if nothing_to_tell and all(type(sample) is Tensor and not sample.requires_grad for sample in batch):
        arrays = [sample.array for sample in batch]
        shape, dtype = arrays[0].shape, arrays[0].dtype
        if all(array.shape == shape and array.dtype == dtype for array in arrays):
            return Tensor._from(np.array(arrays, dtype))  # what stack gives, several times as fast
    return stack(batch, 0)


def collate_numpy_array_fn(batch, *, collate_fn_map: dict | None = None):
    """NumPy arrays as tensors. TypeError for texts and objects."""
    shape, dtype = batch[0].shape, batch[0].dtype
    if np_str_obj_array_pattern.search(dtype.str):
        raise TypeError(default_collate_err_msg_format.format(dtype))
    if all(
        type(array) is np.ndarray and array.shape == shape and array.dtype == dtype and array.flags.carray for array in batch
    ):
        return as_tensor(np.array(batch, dtype))  # the same in one step
    return collate([as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch, *, collate_fn_map: dict | None = None):
    """NumPy's numbers to a tensor of their type."""
    del collate_fn_map
    return as_tensor(batch)


def collate_float_fn(batch, *, collate_fn_map: dict | None = None):
    """Floats to a tensor in double precision."""
    del collate_fn_map
    return tensor(batch, dtype=float64)


def collate_int_fn(batch, *, collate_fn_map: dict | None = None):
    """Ints to an int64 tensor, bools to a bool tensor."""
    del collate_fn_map
    return tensor(batch)


def collate_str_fn(batch, *, collate_fn_map: dict | None = None):
    """Texts stay as they are."""
    del collate_fn_map
    return batch


default_collate_fn_map: dict[type | tuple[type, ...], Collate] = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch):
    """A batch of samples: tensors, arrays and numbers get one more dimension in front, containers keep their structure.

    Tuples become lists, texts stay lists of texts. To collate further types, add them to `default_collate_fn_map`.

    >>> from backlight.utils.data import default_collate
    >>> default_collate([(1, "a"), (2, "b")])
    [tensor([1, 2]), ('a', 'b')]
    >>> default_collate([{"x": 0.5}, {"x": 1.5}])
    {'x': tensor([0.5000, 1.5000], dtype=torch.float64)}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
