"""A batch's indices to the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ....state import state
from ....tensor import Tensor
from ..dataset import Subset, TensorDataset
from .collate import default_collate

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Fetcher:
    """`fetch(indices)` gives the batch of these samples; without batching, `fetch(index)` gives one sample."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.index: Any = None  # of the sample that is being loaded, for an error's text

    def fetch(self, indices) -> Any:
        """The batch."""
        raise NotImplementedError


class MapFetcher(Fetcher):
    """For datasets whose samples have indices."""

    def fetch(self, indices) -> Any:
        """The batch."""
        dataset = self.dataset
        if not self.auto_collation:
            self.index = indices
            data = dataset[indices]
        elif getattr(dataset, "__getitems__", None):
            data = dataset.__getitems__(indices)
        else:
            data = []
            for self.index in indices:
                data.append(dataset[self.index])
        self.index = None
        return self.collate_fn(data)


class IterableFetcher(Fetcher):
    """For datasets that yield their samples. StopIteration after the last."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, indices) -> Any:
        """The next batch, as long as the list of indices, which say nothing else."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        data = []
        for _ in indices:
            try:
                data.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not data or (self.drop_last and len(data) < len(indices)):
            raise StopIteration
        return self.collate_fn(data)


class TensorFetcher(MapFetcher):
    """For a `TensorDataset`, or a `Subset` of one, with the default collate function: one index operation per tensor.

    The result is what collating sample by sample gives. Where it could differ (tensors that require grad or are
    no plain tensors, indices that aren't ints, transforms and recorders at work) the general way is taken.
    """

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.subsets = []
        while type(dataset) is Subset:
            self.subsets.append(dataset.indices)
            dataset = dataset.dataset
        self.tensors = dataset.tensors

    def fetch(self, indices) -> Any:
        """The batch: a list of one tensor per tensor of the dataset."""
        plain = all(type(tensor) is Tensor and not tensor.requires_grad for tensor in self.tensors)
        if not plain or state.unusual or state.recorder is not None:
            return super().fetch(indices)
        inner = indices
        try:
            for mapping in self.subsets:
                inner = [mapping[index] for index in inner]
            if set(map(type, inner)) != {int}:
                return super().fetch(indices)
            return [Tensor._from(np.take(tensor.array, inner, axis=0)) for tensor in self.tensors]
        except IndexError:
            return super().fetch(indices)  # which says which sample


def is_of_tensors(dataset: Any) -> bool:
    """Whether the dataset is exactly a `TensorDataset`, or a `Subset` of one."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset


def fetcher_for(iterable: bool, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> Fetcher:
    """The fetcher that suits the dataset."""
    if iterable:
        kind = IterableFetcher
    elif auto_collation and collate_fn is default_collate and is_of_tensors(dataset):
        kind = TensorFetcher
    else:
        kind = MapFetcher
    return kind(dataset, auto_collation, collate_fn, drop_last)
