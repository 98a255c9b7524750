"""Process groups: which ranks belong together, and the communicator on which they talk."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from . import mpi, work

if TYPE_CHECKING:
    from collections.abc import Sequence

NOT_INITIALIZED = "Default process group has not been initialized, please make sure to call init_process_group."
NON_MEMBER = -100  # stands for a group to which this process doesn't belong, as in PyTorch


class ProcessGroup:
    """Ranks that call collectives together. `new_group` makes one; that of all ranks is made by `init_process_group`.

    `ranks` are the global ranks of its members in order; a member's group rank is its place among them."""

    def __init__(self, communicators: list, ranks: list[int], timeout: float | None, backend: str, name: str) -> None:
        # For collectives, for send and recv, and for notes, whose messages must not be mixed up.
        self.communicator, self.messages, notes = communicators
        self.ranks, self.timeout, self.backend, self.group_name = ranks, timeout, backend, name
        self.description = f"group {name!r}" if name else "the default group"
        self.group_desc = name or "default_pg"
        self.calls = 0  # collectives so far
        self.broken: str | None = None  # why no collective can run any more
        self.arrival = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self.notes = work.Notes(notes, ranks)

    def rank(self) -> int:
        """This process's rank in the group."""
        return self.communicator.rank

    def size(self) -> int:
        """How many ranks the group has."""
        return self.communicator.size

    @property
    def global_rank(self) -> int:
        """This process's rank in the job."""
        return self.ranks[self.communicator.rank]

    def name(self) -> str:
        """The name of the backend."""
        return self.backend

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.description}: {work.listed_ranks(self.ranks)}>"


class _World:
    group: ProcessGroup | None = None
    made = 0  # groups so far, to name them


_world = _World()


class _GroupMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default process group, None before `init_process_group`."""
        return _world.group

    @WORLD.setter
    def WORLD(cls, value: ProcessGroup | None) -> None:
        _world.group = value


class group(metaclass=_GroupMeta):
    """`group.WORLD` is the default process group, None before `init_process_group`."""


class GroupMember(metaclass=_GroupMeta):
    """`GroupMember.WORLD` is the default process group; `NON_GROUP_MEMBER` stands for a group without this process."""

    NON_GROUP_MEMBER = NON_MEMBER


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return _world.group is not None


def _checked_backend(backend: Any) -> str:
    name = str(backend or "mpi").lower()
    parts = {part.rpartition(":")[0] or "cpu": part.rpartition(":")[2] for part in name.split(",")}  # "cpu:gloo,cuda:nccl"
    chosen = parts.get("cpu", next(iter(parts.values())))
    if chosen in ("nccl", "xccl", "ucc", "hccl"):
        raise RuntimeError(
            f"Backend {chosen!r} needs GPUs, and Backlight computes on the CPU: use 'mpi', or 'gloo', which MPI serves as well"
        )
    if chosen not in ("mpi", "gloo", "undefined"):
        raise ValueError(f"Invalid backend: {chosen!r}; Backlight has 'mpi', and takes 'gloo' for it")
    return "mpi" if chosen == "undefined" else chosen


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Joins all processes of the job into the default process group. All ranks must call it.

    backend: "mpi"; "gloo" and None mean the same. MPI knows how many processes there are and which one this is, so `init_method`,
    `store`, `world_size` and `rank` can be left out; a size or rank that isn't MPI's is an error. timeout: seconds or a timedelta
    after which a collective that not all ranks have called raises, by default 60 s.

    Raises ValueError if there is a group already, ImportError without MPI, DistributedTimeoutError if ranks are missing."""
    del store, pg_options, device_id, group_name
    if _world.group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    name = _checked_backend(backend)
    if init_method is not None and not isinstance(init_method, str):
        raise TypeError(f"init_method must be a string, not {type(init_method).__name__}")
    seconds = mpi.seconds(timeout)
    MPI = mpi.library()
    mpi.check_world(rank, world_size)
    expected = os.environ.get("WORLD_SIZE", "")
    if world_size == -1 and expected.isdecimal() and int(expected) != mpi.size():
        raise ValueError(
            f"The environment says WORLD_SIZE={expected}, but MPI has {mpi.size()} process{'es' * (mpi.size() > 1)}: {mpi.LAUNCH}; "
            "torchrun starts no MPI job."
        )
    communicators = [_duplicate(MPI.COMM_WORLD, seconds) for _ in range(3)]
    _world.group = ProcessGroup(communicators, list(range(mpi.size())), seconds, name, "")
    work.start_thread()


def _duplicate(communicator: Any, timeout: float | None) -> Any:
    """A communicator of its own for the same ranks, made without blocking: a missing rank becomes an error."""
    copy, request = communicator.Idup()

    def late() -> BaseException:
        return mpi.DistributedTimeoutError(
            f"init_process_group: rank {communicator.rank} waited {timeout:.1f} s, and not all {communicator.size} ranks have called it."
        )

    mpi.wait_for(request.Test, timeout, late)
    return copy


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Ends a process group, by default the default group and with it distributed training in this process."""
    if _world.group is None and group is None:
        raise AssertionError("Process group cannot be None")
    if group == NON_MEMBER:
        return
    ended = group or _world.group
    if not isinstance(ended, ProcessGroup) or ended.broken == "it was destroyed":
        raise ValueError("Invalid process group specified")
    ended.broken = "it was destroyed"
    if ended is _world.group:
        _world.group = None


def resolve(group: Any) -> ProcessGroup:
    """The group itself, the default group for None. Raises ValueError where there is none."""
    if group is None:
        if _world.group is None:
            raise ValueError(NOT_INITIALIZED)
        return _world.group
    if not isinstance(group, ProcessGroup):
        if group == NON_MEMBER:
            raise ValueError("Invalid process group specified: this process does not belong to the group")
        raise TypeError(f"Invalid process group: expected a ProcessGroup, got {type(group).__name__}")
    return group


def is_outside(group: Any, operation: str) -> bool:
    """Whether this process doesn't belong to the group: then a collective warns and does nothing, as in PyTorch."""
    if isinstance(group, int) and group == NON_MEMBER:
        warnings.warn(
            f"Running {operation} on global rank {get_rank()} which does not belong to the given group.", stacklevel=3
        )
        return True
    return False


def get_rank(group: Any = None) -> int:
    """This process's rank in the group, -1 if it doesn't belong to it."""
    return -1 if isinstance(group, int) and group == NON_MEMBER else resolve(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks the group has, -1 if this process doesn't belong to it."""
    return -1 if isinstance(group, int) and group == NON_MEMBER else resolve(group).size()


def get_backend(group: Any = None) -> str:
    """The name of the group's backend: as it was given, "mpi" if none was."""
    return resolve(group).backend


def get_process_group_ranks(group: Any) -> list[int]:
    """The global ranks of the group's members, in the order of their group ranks."""
    return list(resolve(group).ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in the group of a global rank. ValueError if it isn't a member."""
    members = resolve(group).ranks
    if global_rank not in members:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return members.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The global rank of a member. ValueError if the group has no such rank."""
    members = resolve(group).ranks
    if not 0 <= group_rank < len(members):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return members[group_rank]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number among those on its machine."""
    found = os.environ.get("LOCAL_RANK") or os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK") or os.environ.get("MPI_LOCALRANKID")
    if found is not None:
        return int(found)
    if fallback_rank is None:
        raise RuntimeError(
            "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work"
        )
    return fallback_rank


def root_in(group: ProcessGroup, name: str, rank: int | None, group_rank: int | None, default: int | None = None) -> int:
    """The group rank that a collective's `src` or `dst` (a global rank) or `group_src`, `group_dst` names."""
    if rank is not None and group_rank is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    if group_rank is None and rank is None:
        if default is None:
            raise ValueError("Must specify global_rank or group_rank")
        return default
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(
                f"invalid group_{name}: {group_rank} is not a rank of {group.description}, which has {group.size()} ranks"
            )
        return group_rank
    if rank not in group.ranks:
        raise ValueError(
            f"invalid {name}: global rank {rank} is not part of {group.description}, {work.listed_ranks(group.ranks)}"
        )
    return group.ranks.index(rank)  # pyright: ignore[reportArgumentType]


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """A new group of these global ranks (None: all), sorted. All ranks of the default group must call it with the same ranks.

    Ranks outside get `GroupMember.NON_GROUP_MEMBER`, with which collectives do nothing but warn. timeout: as in
    `init_process_group`, by default that of the default group. ValueError for ranks that don't exist or appear twice."""
    del pg_options, device_id, use_local_synchronization
    world = resolve(None)
    name = _checked_backend(backend or world.backend)
    chosen = list(range(world.size())) if ranks is None else sorted(int(rank) for rank in ranks)
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"ranks list must not contain duplicate entries, got {chosen}")
    for rank in chosen:
        if not 0 <= rank < world.size():
            raise ValueError(
                f"Rank {rank} is out of range. Valid ranks are 0 to {world.size() - 1} (world_size={world.size()})"
            )
    _world.made += 1
    title = group_desc or str(_world.made)
    made: list[Any] = []
    inside = world.rank() in chosen

    def split() -> None:
        MPI = mpi.library()
        communicator = world.communicator.Split(0 if inside else MPI.UNDEFINED, world.rank())
        if inside:
            made.extend((communicator, communicator.Dup(), communicator.Dup()))

    work.execute(
        world, ("new_group", "", None, f"with {work.listed_ranks(chosen) if chosen else 'no ranks'}"), split, [], False
    )
    if not inside:
        return NON_MEMBER
    return ProcessGroup(made, chosen, world.timeout if timeout is None else mpi.seconds(timeout), name, title)


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list]:
    """(this rank's group, all groups): the default group in consecutive groups of `group_size` ranks, by default those of a machine."""
    world = resolve(group)
    if group_size is None:
        group_size = min(world.communicator.Split_type(mpi.library().COMM_TYPE_SHARED).size, world.size())
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if world.size() < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({world.size()})")
    if world.size() % group_size:
        raise ValueError(f"The world size ({world.size()}) must be divisible by 'group_size={group_size}'")
    lists = [world.ranks[i : i + group_size] for i in range(0, world.size(), group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list]:
    """(this rank's group, all groups) for given lists of ranks. ValueError if a rank is in two of them."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen: set[int] = set()
    for ranks in ranks_per_subgroup_list:
        for rank in ranks:
            if rank in seen:
                raise ValueError(f"Rank {rank} has appeared in both subgroups: the lists must not overlap")
            seen.add(rank)
    groups = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    return next((one for one in groups if isinstance(one, ProcessGroup)), None), groups
