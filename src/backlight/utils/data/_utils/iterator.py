"""What both iterators over a loader share, and the one that loads in its own process."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ..sampler import drawn_seed
from .fetch import fetcher_for

if TYPE_CHECKING:
    from typing import Any, Self

    from ..dataloader import DataLoader


class _BaseDataLoaderIter:
    """One run through a loader."""

    def __init__(self, loader: DataLoader) -> None:
        self._dataset = loader.dataset
        self._iterable = bool(loader._dataset_kind)
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        if loader.pin_memory:
            if loader.pin_memory_device:
                warnings.warn(
                    "pin_memory_device is deprecated, the current accelerator will be used as the device,ignore "
                    f"pin_memory_device='{loader.pin_memory_device}'.",
                    stacklevel=2,
                )
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=2,
            )
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = drawn_seed(loader.generator)
        self._persistent_workers = loader.persistent_workers
        self._num_yielded = 0

    def __iter__(self) -> Self:
        return self

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        del first_iter
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next_data()
        self._num_yielded += 1
        length = self._IterableDataset_len_called
        if self._iterable and length is not None and self._num_yielded > length:
            text = (
                f"Length of IterableDataset {self._dataset} was reported to be {length}(when accessing len(dataloader)), but "
                f"{self._num_yielded} samples have been fetched. "
            )
            if self._num_workers > 0:
                text += (
                    "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset "
                    "replica at each worker. Please see https://pytorch.org/docs/stable/data.html#torch.utils.data."
                    "IterableDataset for examples."
                )
            warnings.warn(text, stacklevel=2)
        return data

    def __len__(self) -> int:
        return len(self._index_sampler)  # pyright: ignore[reportArgumentType]

    def __getstate__(self):
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Loads in its own process, when the program asks for a batch."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError("_SingleProcessDataLoaderIter requires timeout == 0")
        self._dataset_fetcher = fetcher_for(
            self._iterable, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        return self._dataset_fetcher.fetch(self._next_index())
