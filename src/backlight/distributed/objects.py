"""Collectives on Python objects, which travel pickled: what arrives from another rank is executed like code, as in PyTorch."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from . import messages, work
from .collectives import check_list_at_root
from .groups import is_outside, resolve, root_in
from .work import execute


def _tensor(data: bytes) -> Tensor:
    return Tensor._from(np.frombuffer(data, np.uint8).copy())


def all_gather_object(object_list: list, obj: Any, group: Any = None) -> None:
    """Puts the object of rank i into `object_list[i]`, on every rank. Objects are pickled."""
    if is_outside(group, "all_gather_object"):
        return
    group = resolve(group)
    if len(object_list) < group.size():
        raise ValueError(f"object_list has {len(object_list)} elements; it needs one for each of the {group.size()} ranks")
    payload, gathered = pickle.dumps(obj), []
    action = lambda: gathered.extend(work.all_gather_bytes(group.communicator, payload))
    execute(group, ("all_gather_object", "", None, ""), action, [], False)
    for i, text in enumerate(gathered if group.size() > 1 else [payload]):
        object_list[i] = pickle.loads(text)


def broadcast_object_list(
    object_list: list, src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    """Replaces the objects of the list by those of rank `src` (by default 0). All ranks give lists of one length."""
    dtypes.check_device(device)
    if is_outside(group, "broadcast_object_list"):
        return
    group = resolve(group)
    root = root_in(group, "src", src, group_src, default=0)
    here = group.rank() == root
    payload = pickle.dumps(list(object_list)) if here else b""
    received = [payload]

    def run() -> None:
        received[0] = _broadcast(group.communicator, payload, root)

    execute(group, ("broadcast_object_list", "", None, f"of {len(object_list)} from rank {group.ranks[root]}"), run, [], False)
    if not here:
        object_list[:] = pickle.loads(received[0])


def _broadcast(communicator: Any, payload: bytes, root: int) -> bytes:
    size = np.array([len(payload)], np.int64)
    communicator.Bcast(size, root)
    flat = np.frombuffer(payload, np.uint8).copy() if communicator.rank == root else np.empty(int(size[0]), np.uint8)
    work.broadcast_bytes(communicator, flat, root)
    return flat.tobytes()


def gather_object(
    obj: Any, object_gather_list: list | None = None, dst: int | None = None, group: Any = None, group_dst: int | None = None
) -> None:
    """Puts the object of rank i into `object_gather_list[i]` on rank `dst` (by default 0). Other ranks give no list."""
    if is_outside(group, "gather_object"):
        return
    group = resolve(group)
    root = root_in(group, "dst", dst, group_dst, default=0)
    here = group.rank() == root
    check_list_at_root(object_gather_list, "gather_list", "destination", here)
    payload, gathered = pickle.dumps(obj), []
    action = lambda: gathered.extend(_gather(group.communicator, payload, root))
    execute(group, ("gather_object", "", None, f"to rank {group.ranks[root]}"), action, [], False)
    for i, text in enumerate(gathered if here else ()):
        object_gather_list[i] = pickle.loads(text)  # pyright: ignore[reportOptionalSubscript]


def _gather(communicator: Any, payload: bytes, root: int) -> list[bytes]:
    sizes = np.empty(communicator.size, np.int64) if communicator.rank == root else None
    communicator.Gather(np.array([len(payload)], np.int64), sizes, root)
    own = np.frombuffer(payload, np.uint8)
    rows = None if sizes is None else [own if rank == root else np.empty(int(n), np.uint8) for rank, n in enumerate(sizes)]
    work.gather_bytes(communicator, own, rows, root)
    return [row.tobytes() for row in rows or ()]


def scatter_object_list(
    scatter_object_output_list: list,
    scatter_object_input_list: list | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Puts object i of rank `src`'s input list (by default rank 0) into `scatter_object_output_list[0]` of rank i."""
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    if is_outside(group, "scatter_object_list"):
        return
    group = resolve(group)
    root = root_in(group, "src", src, group_src, default=0)
    here = group.rank() == root
    if here and (scatter_object_input_list is None or len(scatter_object_input_list) != group.size()):
        raise ValueError(
            f"Argument ``scatter_object_input_list`` must be a list with one object for each of the {group.size()} ranks on source rank."
        )
    payloads = [pickle.dumps(obj) for obj in scatter_object_input_list or ()] if here else []
    received = [payloads[root]] if here else [b""]

    def run() -> None:
        communicator = group.communicator
        size = np.empty(1, np.int64)
        communicator.Scatter(np.array([len(x) for x in payloads], np.int64) if here else None, size, root)
        flat = None if here else np.empty(int(size[0]), np.uint8)
        work.scatter_bytes(communicator, flat, [np.frombuffer(payload, np.uint8) for payload in payloads], root)
        if flat is not None:
            received[0] = flat.tobytes()

    execute(group, ("scatter_object_list", "", None, f"from rank {group.ranks[root]}"), run, [], False)
    scatter_object_output_list[0] = pickle.loads(received[0])


def send_object_list(
    object_list: list,
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Sends a list of objects to rank `dst`, which calls `recv_object_list` with a list of the same length."""
    del use_batch
    dtypes.check_device(device)
    payload = pickle.dumps(list(object_list))
    messages.send(Tensor._from(np.array([len(object_list), len(payload)], np.int64)), dst, group, 0, group_dst)
    messages.send(_tensor(payload), dst, group, 0, group_dst)


def recv_object_list(
    object_list: list,
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Replaces the objects of the list by those that rank `src` sends (by default any rank); returns the sender's rank."""
    del use_batch
    dtypes.check_device(device)
    sizes = Tensor._from(np.zeros(2, np.int64))
    source = messages.recv(sizes, src, group, 0, group_src)
    if source < 0:
        return source
    count, length = sizes.array.tolist()
    if count != len(object_list):
        raise ValueError(f"rank {source} sends {count} objects, and object_list has {len(object_list)} elements")
    data = Tensor._from(np.empty(length, np.uint8))
    messages.recv(data, source, group)
    object_list[:] = pickle.loads(data.array.tobytes())
    return source
