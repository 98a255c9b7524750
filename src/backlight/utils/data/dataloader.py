"""DataLoader: batches of a dataset, in this process or in others."""

from __future__ import annotations

import math
import multiprocessing
import multiprocessing.context
import os
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from ._utils.collate import default_collate, default_convert
from ._utils.fetch import Fetcher, fetcher_for
from ._utils.iterator import _BaseDataLoaderIter, _SingleProcessDataLoaderIter
from ._utils.worker import get_worker_info
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ... import Generator
    from .dataset import Dataset

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T_co = TypeVar("_T_co", covariant=True)


class _DatasetKind:
    """Whether a dataset's samples have indices."""

    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Callable, drop_last: bool) -> Fetcher:
        """The object whose `fetch(indices)` gives a batch."""
        return fetcher_for(kind == _DatasetKind.Iterable, dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler):
    """None, again and again: for datasets without indices."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[_T_co]):
    """Iterates over batches of `dataset`.

    `batch_size` samples make a batch (None: single samples), in the order of the indices, of `sampler`, or in random order
    (`shuffle`); `batch_sampler` yields the indices of whole batches instead. `drop_last` leaves a shorter last batch out.
    `collate_fn` makes a batch of a list of samples, by default `default_collate`. `generator` is where random
    orders and seeds are drawn from.

    With `num_workers`, as many processes load `prefetch_factor` batches each ahead, after calling `worker_init_fn` with their
    number. Each seeds the random streams of Backlight, Python and NumPy. `persistent_workers` stay for
    the next iteration. An exception in a worker is raised here, with the worker's traceback and the sample's index as text; a
    worker that dies, or that takes longer than `timeout` seconds, is a RuntimeError. `multiprocessing_context` says how
    processes start; started by "spawn", the dataset and functions must be picklable. With `in_order=False` batches come as they are ready.
    `pin_memory` is accepted and warns, as there is no accelerator.

    ValueError for arguments that don't go together.

    >>> import backlight as torch
    >>> from backlight.utils.data import DataLoader, TensorDataset
    >>> dataset = TensorDataset(torch.arange(5), torch.arange(5) * 10)
    >>> for x, y in DataLoader(dataset, batch_size=2):
    ...     print(x, y)
    tensor([0, 1]) tensor([ 0, 10])
    tensor([2, 3]) tensor([20, 30])
    tensor([4]) tensor([40])
    """

    _initialized = False
    _fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
    _iterator: _BaseDataLoaderIter | None

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler | Iterable | None = None,
        batch_sampler: Sampler[list] | Iterable[list] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                "multiprocessing, otherwise set prefetch_factor to None."
            )
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        elif prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order

        if isinstance(dataset, IterableDataset):
            self._dataset_kind = _DatasetKind.Iterable
            unexpected = (
                ("shuffle", shuffle, shuffle not in (False, None)),
                ("sampler", sampler, sampler is not None),
                ("batch_sampler", batch_sampler, batch_sampler is not None),
            )
            for name, value, given in unexpected:
                if given:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        else:
            shuffle = bool(shuffle)
            self._dataset_kind = _DatasetKind.Map
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
            drop_last = False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._dataset_kind == _DatasetKind.Iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)  # pyright: ignore[reportArgumentType]
            else:
                sampler = SequentialSampler(dataset)  # pyright: ignore[reportArgumentType]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._initialized = True
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self.check_worker_number_rationality()

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        from ._utils.parallel import _MultiProcessingDataLoaderIter

        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    @property
    def multiprocessing_context(self) -> Any:
        """How worker processes start: None, the name of a start method, or a context of `multiprocessing`."""
        return self._multiprocessing_context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if self.num_workers <= 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                    f"num_workers={self.num_workers}"
                )
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(
                        f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
                        f"multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string specifying the start method, "
                    f"but got multiprocessing_context={context}"
                )
        self._multiprocessing_context = context

    def __setattr__(self, attr: str, val: Any) -> None:
        if self._initialized and attr in self._fixed:
            raise ValueError(f"{attr} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(attr, val)

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.persistent_workers:
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self) -> int:
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)  # pyright: ignore[reportArgumentType]
        # What an iterable dataset says of its length is a guess; the iterators warn if it is exceeded.
        length = self._IterableDataset_len_called = len(self.dataset)  # pyright: ignore[reportArgumentType]
        if self.batch_size is not None:
            length = length // self.batch_size if self.drop_last else math.ceil(length / self.batch_size)
        return length

    def check_worker_number_rationality(self) -> None:
        """Warns where there are to be more workers than processors."""
        if not self.num_workers:
            return
        if hasattr(os, "sched_getaffinity"):
            most, note = len(os.sched_getaffinity(0)), ""
        else:
            most, note = os.cpu_count(), " (`cpuset` is not taken into account)"
        if most is not None and self.num_workers <= most:
            return
        if most is None:
            advice = "DataLoader is not able to compute a suggested max number of worker in current system."
        else:
            advice = (
                f"Our suggested max number of worker in current system is {most}{note}, which is smaller than what this "
                "DataLoader is going to create."
            )
        warnings.warn(
            f"This DataLoader will create {self.num_workers} worker processes in total. {advice} Please be aware that excessive "
            "worker creation might get DataLoader running slow or even freeze, lower the worker number to avoid potential "
            "slowness/freeze if necessary.",
            stacklevel=2,
        )


def __getattr__(name: str):
    if name == "_MultiProcessingDataLoaderIter":  # PyTorch's place for it
        from ._utils.parallel import _MultiProcessingDataLoaderIter

        return _MultiProcessingDataLoaderIter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
