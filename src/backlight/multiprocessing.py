"""`torch.multiprocessing`: Python's multiprocessing, and tensors in memory that forked processes share.

A tensor whose `share_memory_()` was called, or all of `module.share_memory()`, is seen and changed by the processes that are forked
afterwards, as Hogwild training does. Tensors that go through queues and pipes are copied.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
import traceback
from multiprocessing import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
from multiprocessing import (
    active_children,  # noqa: F401
    current_process,  # noqa: F401
    get_all_start_methods,  # noqa: F401
    parent_process,  # noqa: F401
)
from multiprocessing import connection as _connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    *_multiprocessing.__all__,  # pyright: ignore[reportUnsupportedDunderAll]
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """A process that `spawn` started failed: `error_index` is its number, `error_pid` its process number."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.error_pid, self.pid = msg, error_index, pid, pid


class ProcessRaisedException(ProcessException):
    """A process raised an exception, whose traceback is in the message."""


class ProcessExitedException(ProcessException):
    """A process was ended by a signal, or exited with a code."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _run(function: Callable, number: int, args: tuple, errors: Any) -> None:
    try:
        function(number, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that `spawn(join=False)` started."""

    def __init__(self, processes: list, errors: list) -> None:
        self.processes, self._errors = processes, errors
        self._numbers = {process.sentinel: number for number, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits until one process ended (True if all have). If it failed, the others are ended too, and its error is raised."""
        if not self._numbers:
            return True
        ready = _connection.wait(list(self._numbers), timeout=timeout)
        failed = None
        for sentinel in ready:
            number = self._numbers.pop(sentinel)  # pyright: ignore[reportArgumentType]
            self.processes[number].join()
            if self.processes[number].exitcode != 0:
                failed = number
                break
        if failed is None:
            return not self._numbers
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(30 if grace_period is None else grace_period)
            if process.is_alive():
                process.kill()
        self._raise(failed)
        return False

    def _raise(self, number: int) -> None:
        process, errors = self.processes[number], self._errors[number]
        code = process.exitcode
        try:
            text = errors.recv()
        except EOFError:  # it had no time to say why
            if code < 0:
                name = _signal_name(-code)
                raise ProcessExitedException(
                    f"process {number} terminated with signal {name}", number, process.pid, code, name
                ) from None
            raise ProcessExitedException(
                f"process {number} terminated with exit code {code}", number, process.pid, code
            ) from None
        text = f"\n\n-- Process {number} terminated with the following error:\n{text}"
        raise ProcessRaisedException(text, number, process.pid)


def _signal_name(number: int) -> str:
    import signal

    return signal.Signals(number).name


def start_processes(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """Runs `fn(i, *args)` in `nprocs` processes. With `join` it waits for all, and raises the first error."""
    context = _multiprocessing.get_context(start_method)
    processes, errors = [], []
    for number in range(nprocs):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, number, args, sending), daemon=daemon)  # pyright: ignore
        process.start()
        sending.close()
        processes.append(process)
        errors.append(receiving)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """`start_processes` in fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


def get_all_sharing_strategies() -> set[str]:
    """How tensors can be shared: by memory that a fork inherits."""
    return {"file_system"}


def get_sharing_strategy() -> str:
    """How tensors are shared."""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepts PyTorch's strategies; memory is shared by fork in any case."""
    if new_strategy not in ("file_descriptor", "file_system"):
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")
