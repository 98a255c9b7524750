"""Sequences of different lengths: padded to one tensor, or packed step by step for recurrent layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ... import arange, as_tensor, dtypes, empty_like, full, sort
from ...ops.recurrent import pack, unpack
from ...tensor import Tensor

if TYPE_CHECKING:
    from typing import Any, Self

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


_Fields.__name__ = "PackedSequence"


class PackedSequence(_Fields):
    """Sequences of different lengths, packed: all first steps, then all second steps, and so on.

    `data` (sum of lengths, *) are the steps, `batch_sizes` says how many sequences have each step. `sorted_indices` is how the
    sequences were put into the order of falling lengths, `unsorted_indices` its inverse. `pack_padded_sequence` makes them.

    >>> import backlight as torch
    >>> torch.nn.utils.rnn.pack_sequence([torch.tensor([1, 2]), torch.tensor([3])])
    PackedSequence(data=tensor([1, 3, 2]), batch_sizes=tensor([2, 1]), sorted_indices=None, unsorted_indices=None)
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None) -> Self:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """The same with other `data.to(...)`."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def cpu(self) -> Self:
        """Itself: everything is on the CPU."""
        return self

    def cuda(self, *args: Any, **kwargs: Any) -> Self:
        """Raises, as there is no CUDA."""
        return self.to(*args, **{"device": "cuda", **kwargs})

    def pin_memory(self) -> Self:
        """Itself: there is no GPU to copy to."""
        return self

    @property
    def is_cuda(self) -> bool:
        return False

    def is_pinned(self) -> bool:
        """False."""
        return False

    def double(self) -> Self:
        """With float64 data."""
        return self.to(dtypes.float64)

    def float(self) -> Self:
        """With float32 data."""
        return self.to(dtypes.float32)

    def half(self) -> Self:
        """With float16 data."""
        return self.to(dtypes.float16)

    def long(self) -> Self:
        """With int64 data."""
        return self.to(dtypes.int64)

    def int(self) -> Self:
        """With int32 data."""
        return self.to(dtypes.int32)

    def short(self) -> Self:
        """With int16 data."""
        return self.to(dtypes.int16)

    def char(self) -> Self:
        """With int8 data."""
        return self.to(dtypes.int8)

    def byte(self) -> Self:
        """With uint8 data."""
        return self.to(dtypes.uint8)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes this one: (N,) -> (N,)."""
    if permutation is None:
        return None
    output = empty_like(permutation)
    output.scatter_(0, permutation, arange(0, permutation.numel()))
    return output


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | list[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """The first `lengths[i]` steps of each sequence i, packed: (L, N, *), or (N, L, *) with `batch_first`. Differentiable.

    With `enforce_sorted` the lengths must fall; without it the sequences are sorted first. RuntimeError for other lengths, and
    for lengths that aren't positive.
    """
    lengths = lengths.to(dtypes.int64) if isinstance(lengths, Tensor) else as_tensor(lengths, dtype=dtypes.int64)
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = sort(lengths, descending=True)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if lengths.dim() != 1:
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} Long tensor"
        )
    if batch_first:
        input = input.transpose(0, 1)
    n = lengths.array
    if len(n) != input.size(1):
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(n)} (batch_size={input.size(1)})")
    if (n <= 0).any():
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if (np.diff(n) > 0).any():
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not "
            "need ONNX exportability."
        )
    if n[0] > input.size(0):
        raise RuntimeError(f"a length of {n[0]} is more than the {input.size(0)} steps that the input has")
    exists = np.arange(n[0])[:, None] < n
    data = pack(input[: n[0]] if n[0] < input.size(0) else input, exists)
    return PackedSequence(data, as_tensor(exists.sum(1)), sorted_indices, None)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """(padded, lengths): (L, N, *), or (N, L, *) with `batch_first`, in the order before packing. Differentiable.

    L is the longest length or `total_length`; ValueError if that is shorter.
    """
    sizes = sequence.batch_sizes.array
    steps = len(sizes)
    if total_length is not None and total_length < steps:
        raise ValueError(
            "Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {steps}"
        )
    exists = np.arange(sizes[0]) < np.append(sizes, np.zeros((total_length or steps) - steps, sizes.dtype))[:, None]
    padded, lengths = unpack(sequence.data, exists, padding_value), as_tensor(exists.sum(0))
    if batch_first:
        padded = padded.transpose(0, 1)
    order = sequence.unsorted_indices
    if order is not None:
        return padded.index_select(0 if batch_first else 1, order), lengths[order]
    return padded, lengths


def pad_sequence(
    sequences: Iterable[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Tensors (L_i, *) in one tensor (max L, N, *), or (N, max L, *) with `batch_first`. Differentiable.

    >>> import backlight as torch
    >>> torch.nn.utils.rnn.pad_sequence([torch.ones(2), torch.ones(3)], batch_first=True)
    tensor([[1., 1., 0.],
            [1., 1., 1.]])
    """
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    tensors = tuple(sequences)
    if not tensors:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    longest = max(x.size(0) for x in tensors)
    shape = (len(tensors), longest) if batch_first else (longest, len(tensors))
    output = full((*shape, *tensors[0].shape[1:]), padding_value, dtype=tensors[0].dtype)
    for i, x in enumerate(tensors):
        steps = slice(longest - x.size(0), None) if padding_side == "left" else slice(x.size(0))
        (output[i, steps] if batch_first else output[steps, i]).copy_(x)
    return output


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences without their padding: (L, N, *), or (N, L, *) with `batch_first` -> N of (L_i, *). Differentiable."""
    if not batch_first:
        padded_sequences.transpose_(0, 1)
    index = arange(padded_sequences.size(1))
    return [sequence[index < length] for sequence, length in zip(padded_sequences, lengths, strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors (L_i, *) packed: `pad_sequence`, then `pack_padded_sequence`. Differentiable."""
    lengths = as_tensor([x.size(0) for x in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a PackedSequence: tensors (L_i, *). Differentiable."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
