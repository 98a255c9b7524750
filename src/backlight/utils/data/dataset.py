"""Datasets: of samples by index, of samples one after another, and combinations of them."""

from __future__ import annotations

import itertools
import math
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from ... import randperm
from ...tensor import Tensor

if TYPE_CHECKING:
    from typing import Any

    from ... import Generator

__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Dataset(Generic[_T_co]):
    """Base class of datasets: `dataset[index]` is a sample. Most have a length, too.

    A `__getitems__` that takes a list of indices and returns a list of samples is used where there is one.
    """

    def __getitem__(self, index) -> _T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset) -> Dataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[_T_co], Iterable[_T_co]):
    """Base class of datasets that only yield their samples one after another, through `__iter__`.

    Every worker of a loader iterates over a copy: `get_worker_info` tells a copy which share is its own.
    """

    def __add__(self, other: Dataset) -> Dataset:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample `i` is the tuple of `tensor[i]` for all tensors. AssertionError unless their first sizes agree.

    >>> import backlight as torch
    >>> from backlight.utils.data import TensorDataset
    >>> dataset = TensorDataset(torch.arange(6.0).view(3, 2), torch.tensor([7, 8, 9]))
    >>> len(dataset), dataset[1]
    (3, (tensor([2., 3.]), tensor(8)))
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensor.size(0) != tensors[0].size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset):
    """Sample `i` is the tuple of sample `i` of all datasets, or a dict of them where they were given by name."""

    datasets: tuple | dict

    def __init__(self, *args: Dataset, **kwargs: Dataset) -> None:
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or``dict``- (via ``kwargs``) like input/output, but both types are "
                "given."
            )
        self.datasets = args or kwargs
        if not self.datasets:
            raise ValueError("At least one dataset should be passed")
        lengths = [len(dataset) for dataset in self._members()]  # pyright: ignore[reportArgumentType]
        if any(length != lengths[0] for length in lengths):
            raise ValueError("Size mismatch between datasets")
        self._length = lengths[0]

    def _members(self) -> list[Dataset]:
        return list(self.datasets.values() if isinstance(self.datasets, dict) else self.datasets)

    def _sample(self, values: Iterable) -> tuple | dict:
        return dict(zip(self.datasets, values, strict=True)) if isinstance(self.datasets, dict) else tuple(values)

    def __getitem__(self, index) -> tuple | dict:
        return self._sample(dataset[index] for dataset in self._members())

    def __getitems__(self, indices: list) -> list:
        """The samples at several indices."""
        columns = []
        for dataset in self._members():
            together: Any = getattr(dataset, "__getitems__", None)
            items: Any = together(indices) if callable(together) else [dataset[index] for index in indices]
            if len(items) != len(indices):
                raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}")
            columns.append(items)
        return [self._sample(values) for values in zip(*columns, strict=True)]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[_T_co]):
    """The samples of several datasets, one dataset after the other. AssertionError for none, or for iterable ones."""

    datasets: list[Dataset[_T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable) -> list[int]:
        """The lengths of the entries, added up."""
        return list(itertools.accumulate(len(entry) for entry in sequence))

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx) -> _T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            idx = len(self) + idx
        number = bisect_right(self.cumulative_sizes, idx)
        before = self.cumulative_sizes[number - 1] if number else 0
        return self.datasets[number][idx - before]

    @property
    def cummulative_sizes(self) -> list[int]:
        """The misspelt name of `cumulative_sizes`, deprecated."""
        warnings.warn("`cummulative_sizes` attribute is renamed to `cumulative_sizes`", category=FutureWarning, stacklevel=2)
        return self.cumulative_sizes


class ChainDataset(IterableDataset):
    """The samples of several iterable datasets, one dataset after the other."""

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = datasets

    def _checked(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield dataset

    def __iter__(self) -> Iterator:
        for dataset in self._checked():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._checked())


class Subset(Dataset[_T_co]):
    """Sample `i` is `dataset[indices[i]]`."""

    dataset: Dataset[_T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[_T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices
        own = type(self)
        if own.__getitem__ is not Subset.__getitem__ and own.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{own.__name__} overrides __getitem__ but not __getitems__. When subclassing Subset and overriding "
                "__getitem__, you must also override __getitems__ to ensure DataLoader works correctly with your custom logic. "
                "A simple implementation:\n\ndef __getitems__(self, indices):\n    return [self.__getitem__(idx) for idx in indices]"
            )

    def __getitem__(self, idx) -> _T_co:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[_T_co]:
        """The samples at several indices."""
        inner = [self.indices[index] for index in indices]
        together: Any = getattr(self.dataset, "__getitems__", None)
        if callable(together):
            return together(inner)  # pyright: ignore[reportReturnType]
        return [self.dataset[index] for index in inner]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset[_T], lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset[_T]]:
    """Subsets of a random permutation of the dataset, of the given lengths or fractions.

    Fractions add up to 1; of what is left by rounding down, the first subsets get one sample more each. ValueError
    where lengths don't add up to the dataset's.

    >>> import backlight as torch
    >>> from backlight.utils.data import random_split
    >>> parts = random_split(range(10), [0.7, 0.3], generator=torch.Generator().manual_seed(42))
    >>> [list(part) for part in parts]
    [[2, 6, 1, 8, 4, 5, 0], [9, 3, 7]]
    """
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        counts = []
        for index, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {index} is not between 0 and 1")
            counts.append(math.floor(len(dataset) * fraction))  # pyright: ignore[reportArgumentType]
        for index in range(len(dataset) - sum(counts)):  # pyright: ignore[reportArgumentType]
            counts[index % len(counts)] += 1
        for index, count in enumerate(counts):
            if count == 0:
                warnings.warn(f"Length of split at index {index} is 0. This might result in an empty dataset.", stacklevel=2)
        lengths = counts
    if sum(lengths) != len(dataset):  # pyright: ignore[reportArgumentType]
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = iter(randperm(sum(lengths), generator=generator).tolist())
    return [Subset(dataset, list(itertools.islice(order, int(length)))) for length in lengths]
