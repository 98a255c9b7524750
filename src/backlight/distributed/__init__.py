"""`torch.distributed` in one process without a process group: programs ask whether there is one, and go on alone."""

from __future__ import annotations

from typing import Any, NoReturn

# What needs a process group.
_COLLECTIVES = """all_gather all_gather_into_tensor all_gather_object all_reduce all_to_all all_to_all_single barrier broadcast
broadcast_object_list gather gather_object get_backend get_rank get_world_size irecv isend monitored_barrier new_group recv recv_object_list
reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list send send_object_list""".split()

__all__ = [
    "destroy_process_group",
    "init_process_group",
    "is_available",
    "is_initialized",
    "is_torchelastic_launched",
]


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


is_gloo_available = is_mpi_available = is_nccl_available = is_available


def init_process_group(*_args: Any, **_options: Any) -> NoReturn:
    """Raises: training in several processes isn't there yet."""
    raise NotImplementedError(
        "torch.distributed.init_process_group: training in several processes isn't there yet in Backlight. Run the program as one process, "
        "which programs do that ask `torch.distributed.is_initialized()` or for the launcher's variables such as RANK"
    )


def destroy_process_group(group: Any = None) -> NoReturn:
    """Raises, as in PyTorch without a process group."""
    raise AssertionError("Process group cannot be None" if group is None else "Invalid process group specified")


def needs_process_group(*_args: Any, **_options: Any) -> NoReturn:
    """Raises, as every collective of PyTorch does without a process group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


class group:
    """The default process group: there is none."""

    WORLD = None


def __getattr__(name: str) -> Any:
    if name in _COLLECTIVES:
        return needs_process_group
    raise AttributeError(
        f"module 'backlight.distributed' has no attribute '{name}': training in several processes isn't there yet", name=name
    )
