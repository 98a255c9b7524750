"""`torch.distributed.rpc`: calls of functions on other processes, and references to what is there. It runs on MPI.

    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2)
    total = rpc.rpc_sync("worker1", torch.add, args=(x, y))  # from any worker to any other, or itself
    rpc.shutdown()

Whoever can send a worker messages can have it run any code. Nothing listens to a network but what MPI opens for the job's own processes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...futures import Future
from .. import mpi
from . import agent as _agents
from . import functions
from . import rref as _rrefs
from .agent import Agent, WorkerInfo
from .rref import RRef, RRefProxy

__all__ = [
    "BackendType",
    "RRef",
    "RRefProxy",
    "RpcBackendOptions",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "functions",
    "get_worker_info",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]

UNSET_RPC_TIMEOUT = -1.0
PyRRef = RRef


def is_available() -> bool:
    """Whether rpc can be used: mpi4py is installed. Doesn't import it."""
    return mpi.is_available()


class BackendType(enum.Enum):
    """What carries the calls: MPI, whatever a program asks for."""

    TENSORPIPE = "TENSORPIPE"
    MPI = "MPI"


class RpcBackendOptions:
    """`rpc_timeout`: seconds after which a call fails that has no timeout of its own, 0 for never (60). The rest is MPI's."""

    def __init__(self, rpc_timeout: float = mpi.DEFAULT_TIMEOUT, init_method: str = "env://") -> None:
        if rpc_timeout < 0:
            raise ValueError(f"rpc_timeout is {rpc_timeout}; it must be a number of seconds, or 0 for no limit")
        self.rpc_timeout, self.init_method = rpc_timeout, init_method


class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """PyTorch's options for its TensorPipe. There are as many threads as calls need; devices have nothing to map."""

    def __init__(
        self,
        *,
        num_worker_threads: int = 16,
        rpc_timeout: float = mpi.DEFAULT_TIMEOUT,
        init_method: str = "env://",
        device_maps: dict | None = None,
        devices: list | None = None,
        _transports: list | None = None,
        _channels: list | None = None,
    ) -> None:
        super().__init__(rpc_timeout, init_method)
        self.num_worker_threads, self.device_maps, self.devices = num_worker_threads, device_maps or {}, devices or []


def init_rpc(
    name: str,
    backend: Any = None,  # noqa: ARG001
    rank: int = -1,
    world_size: int | None = None,
    rpc_backend_options: RpcBackendOptions | None = None,
) -> None:
    """Starts rpc in this process under a name that no other worker has; returns when all processes of the job have called it.

    rank, world_size: MPI knows them; ValueError if a program gives others. rpc_backend_options: a timeout for all calls."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"init_rpc: name is {name!r}; it must be a string that isn't empty")
    if _agents.is_set():
        raise RuntimeError("RPC is already initialized: call torch.distributed.rpc.shutdown() before init_rpc again")
    mpi.check_world(rank, -1 if world_size is None else world_size)
    timeout = mpi.DEFAULT_TIMEOUT if rpc_backend_options is None else rpc_backend_options.rpc_timeout
    _agents.start(name, timeout)


def shutdown(graceful: bool = True, timeout: float = 0) -> None:
    """Ends rpc. graceful: serves the others until all have called it and no call is left. timeout: seconds for that, 0 for no limit."""
    agent = _agents.current()
    try:
        if graceful:
            agent.join(timeout)
    finally:
        agent.stop()
        _rrefs.forget_all()
        _agents.set_current(None)


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """Name and id of a worker, of this one without a name."""
    agent = _agents.current()
    return agent.workers[agent.rank] if worker_name is None else agent.worker(worker_name)


def rpc_async(
    to: str | int | WorkerInfo, func: Callable, args: Any = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> Future:
    """A future of func(*args, **kwargs) on a worker. timeout: seconds, 0 for no limit; init_rpc's if it isn't given.

    Waiting for it raises what the function raised, with the worker's traceback as its text. Tensors are copied; a function is sent by its
    name, lambdas and local functions by their code."""
    agent, worker = _checked(to, func)
    future = agent.call(worker, func, tuple(args or ()), kwargs or {}, _seconds(timeout))
    _agents.collect(future)
    return future


def rpc_sync(
    to: str | int | WorkerInfo, func: Callable, args: Any = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> Any:
    """What func(*args, **kwargs) gives on a worker: see rpc_async."""
    agent, worker = _checked(to, func)
    return agent.call(worker, func, tuple(args or ()), kwargs or {}, _seconds(timeout)).wait()


def remote(
    to: str | int | WorkerInfo, func: Callable, args: Any = None, kwargs: dict | None = None, timeout: float = UNSET_RPC_TIMEOUT
) -> RRef:
    """An RRef to func(*args, **kwargs), which is made on a worker and stays there. Returns at once."""
    _agent, worker = _checked(to, func)
    return _rrefs.remote_reference(worker, func, tuple(args or ()), kwargs or {}, _seconds(timeout))


def _checked(to: Any, func: Any) -> tuple[Agent, WorkerInfo]:
    agent = _agents.current()
    if not callable(func):
        raise TypeError(f"function should be callable.\nIt is a {type(func).__name__}.")
    return agent, agent.worker(to)


def _seconds(timeout: float) -> float | None:
    if timeout == UNSET_RPC_TIMEOUT:
        return None
    if timeout < 0:
        raise ValueError(f"timeout is {timeout}; it must be a number of seconds, or 0 for no limit")
    return timeout


@contextmanager
def _wait_all() -> Iterator[None]:
    """Waits at the end of the block for all calls that this thread made in it with rpc_async and remote."""
    from ...futures import wait_all

    with _agents.collected_calls() as futures:
        yield
    wait_all(futures)


def get_rpc_timeout() -> float:
    """Seconds after which a call fails that has no timeout of its own."""
    return _agents.current().timeout


def _set_rpc_timeout(seconds: float) -> None:
    _agents.current().timeout = seconds


def _is_current_rpc_agent_set() -> bool:
    return _agents.is_set()


def _get_current_rpc_agent() -> Agent:
    return _agents.current()


_rref_context_get_debug_info = _rrefs.debug_info
