"""A sampler that takes one of several equal shares of a dataset."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ... import Generator, randperm
from .sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .dataset import Dataset

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Share `rank` of `num_replicas` of a dataset's indices: every `num_replicas`-th from `rank` on.

    All shares have one length; for that some indices are repeated, or with `drop_last` left out. `set_epoch` before each epoch
    gives another order, the same for all shares. `num_replicas` and `rank` are by default the size of the default process group and
    this process's rank in it: ValueError where there is none.
    """

    def __init__(
        self,
        dataset: Dataset,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from ...distributed.groups import get_rank, get_world_size

            num_replicas = get_world_size() if num_replicas is None else num_replicas
            rank = get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        size: int = len(dataset)  # pyright: ignore[reportArgumentType]
        self.num_samples = size // num_replicas if drop_last else math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        size: int = len(self.dataset)  # pyright: ignore[reportArgumentType]
        if self.shuffle:
            indices = randperm(size, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        else:
            indices = list(range(size))
        repeats = math.ceil(self.total_size / size) if size else 1
        share = (indices * repeats)[self.rank : self.total_size : self.num_replicas]
        if len(share) != self.num_samples:
            raise AssertionError(f"Number of subsampled indices ({len(share)}) does not match num_samples ({self.num_samples})")
        return iter(share)

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration use the order of this epoch."""
        self.epoch = epoch
