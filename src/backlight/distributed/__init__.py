"""`torch.distributed`: programs of several processes, which talk through MPI.

Importing it imports neither mpi4py nor anything else; the names come from the files beside it when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_FILES = {
    "groups": """GroupMember ProcessGroup destroy_process_group get_backend get_global_rank get_group_rank get_node_local_rank
        get_process_group_ranks get_rank get_world_size group init_process_group is_initialized new_group new_subgroups
        new_subgroups_by_enumeration""",
    "collectives": """all_gather all_gather_into_tensor all_reduce all_reduce_coalesced all_to_all all_to_all_single barrier broadcast gather
        monitored_barrier reduce reduce_scatter reduce_scatter_tensor scatter""",
    "messages": "P2POp batch_isend_irecv irecv isend recv send",
    "objects": """all_gather_object broadcast_object_list gather_object recv_object_list scatter_object_list send_object_list""",
    "reduction": "ReduceOp",
    "reducer": "GradBucket",
    "work": "Work",
    "mpi": "DistributedTimeoutError WorkerDied",
}
_WHERE = {name: (file, name) for file, names in _FILES.items() for name in names.split()}
_WHERE["all_gather_single"] = "collectives", "all_gather_into_tensor"  # PyTorch's new names
_WHERE["reduce_scatter_single"] = "collectives", "reduce_scatter_tensor"
_MODULES = ("algorithms", "autograd", "optim", "rpc")

__all__ = [*_WHERE, "Backend", "is_available", "is_gloo_available", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched"]  # pyright: ignore[reportUnsupportedDunderAll]  # fmt: skip


def is_available() -> bool:
    """Whether mpi4py, by which the processes talk, is installed."""
    from .mpi import is_available

    return is_available()


is_gloo_available = is_mpi_available = is_available  # MPI serves programs that ask for gloo


def is_nccl_available() -> bool:
    """False: there are no GPUs."""
    return False


def is_torchelastic_launched() -> bool:
    """False: `backlight launch` and mpirun start the processes."""
    return False


class Backend:
    """The names of backends. All that compute on the CPU are MPI."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        file, original = _WHERE[name]
        found = getattr(import_module(f"{__name__}.{file}"), original)
    elif name in _MODULES:
        return import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module 'backlight.distributed' has no attribute '{name}'", name=name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
