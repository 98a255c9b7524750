"""What keeps the models of all ranks equal: a check that they are built alike, and broadcasts of parameters and buffers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from . import work
from .collectives import in_place, written

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .groups import ProcessGroup


def _description(named: list[tuple[str, Tensor]]) -> list[tuple]:
    return [(name, str(tensor.dtype), tuple(tensor.array.shape), tensor.requires_grad) for name, tensor in named]


def check_same_model(group: ProcessGroup, parameters: list[tuple[str, Tensor]], buffers: list[tuple[str, Tensor]]) -> None:
    """RuntimeError on all ranks, naming the first parameter or buffer that differs, if they haven't the same ones in the same order."""
    mine = [("parameter", *entry) for entry in _description(parameters)] + [
        ("buffer", *entry) for entry in _description(buffers)
    ]
    digest = hashlib.blake2b(repr(mine).encode(), digest_size=8).digest()
    texts: list[bytes] = []
    described: list = []

    def compare() -> None:
        texts.extend(work.all_gather_bytes(group.communicator, digest))
        if len(set(texts)) > 1:
            described.extend(work.all_gather_pickled(group.communicator, mine))

    work.execute(group, ("DistributedDataParallel's check of the model", "", None, ""), compare, [], False)
    if described:
        raise RuntimeError(difference(described, group.ranks))


def difference(described: list[list[tuple]], ranks: list[int]) -> str:
    """In words, the first difference between the models of some ranks."""
    first = described[0]
    lengths = [len(entries) for entries in described]
    for i in range(max(lengths)):
        entries = [entries[i] if i < len(entries) else None for entries in described]
        groups: dict = {}
        for rank, entry in zip(ranks, entries):
            groups.setdefault(entry, []).append(rank)
        if len(groups) == 1:
            continue
        said = "; ".join(f"{work.listed_ranks(members)} {_said(entry)}" for entry, members in groups.items())
        counts = [sum(entry[0] == "parameter" for entry in entries) for entries in described]
        other = next((k for k, n in enumerate(counts) if n != counts[0]), None)
        begin = "DDP expects same model across all ranks"
        if other is not None:
            begin += f", but Rank {ranks[0]} has {counts[0]} params, while rank {ranks[other]} has inconsistent {counts[other]} params"
        elif (entry := first[i] if i < len(first) else None) is not None:
            begin += f": params[{i}] appears not to match the same param in other processes" if entry[0] == "parameter" else ""
        return f"{begin}. The first difference: {said}."
    return "DDP expects same model across all ranks, and they differ."


def _said(entry: tuple | None) -> str:
    if entry is None:
        return "has no more"
    kind, name, dtype, shape, requires_grad = entry
    frozen = "" if requires_grad or kind == "buffer" else ", which doesn't require grad"
    return f"has {kind} {name!r} of {dtype.removeprefix('torch.')} {list(shape)}{frozen}"


def broadcast_state(group: ProcessGroup, tensors: list[Tensor], name: str) -> None:
    """Overwrites these tensors of all ranks with those of the group's rank 0."""
    if group.size() == 1:
        return
    actions = [in_place(tensor.array, lambda flat: work.broadcast_bytes(group.communicator, flat, 0)) for tensor in tensors]

    def run() -> None:
        for action in actions:
            action()

    if group.rank() != 0:
        written(*tensors)
    size = int(np.sum([tensor.array.nbytes for tensor in tensors]))
    work.execute(group, ("broadcast of DistributedDataParallel's", "", None, f"{name}, {size} bytes"), run, [], False)
