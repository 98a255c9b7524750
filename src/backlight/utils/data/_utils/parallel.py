"""The iterator that loads with worker processes."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
import warnings
import weakref
from collections import deque
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from .... import alias
from . import transfer
from .iterator import _BaseDataLoaderIter
from .worker import Duties, Ended, Failure, Resume, work

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext
    from typing import Any

    from ..dataloader import DataLoader

SECONDS_TO_FINISH = 5.0  # that workers get to finish a batch when they are no longer needed
_PACKAGE = __name__.partition(".")[0]
_BYTES_ON_THE_WAY = 32_000  # to a worker that is busy; sending more could block while the worker's answer blocks, too


class _AliasedName(str):
    """A process's name that makes `import torch` give Backlight when it is unpickled.

    That is the first thing a process does that is started anew. Then it imports the program's main module.
    """

    __slots__ = ()

    def __reduce__(self):
        return _aliased, (str(self),)


def _aliased(name: str) -> str:
    alias.install()
    return name


class Worker:
    """A worker process as the program sees it: it takes tasks and gives answers, in the same order."""

    def __init__(self, context: BaseContext, duties: Duties) -> None:
        self.connection, its_end = context.Pipe()
        name = None
        if sys.modules.get("torch") is sys.modules[_PACKAGE]:
            name = _AliasedName(f"DataLoader worker {duties.worker_id}")
            context.set_forkserver_preload([__name__])  # not the program, which that process would import without the alias
        self.process: Any = context.Process(  # pyright: ignore[reportAttributeAccessIssue]
            target=work, args=(its_end, os.getpid(), duties), name=name, daemon=True
        )
        try:
            self.process.start()
        except (TypeError, AttributeError, pickle.PicklingError):
            warnings.warn(
                "Got pickle error when attempting to start a worker Process. This might be because the worker Process "
                "arguments are not picklable. Python 3.14+ changed the multiprocessing start method in non-Mac POSIX platforms "
                "to 'forkserver', which requires the worker Process arguments to be picklable. You can also try "
                "multiprocessing.set_start_method('fork').",
                stacklevel=2,
            )
            raise
        finally:
            its_end.close()
        self.active = True  # False once its iterable dataset has ended
        self.unanswered: deque[int] = deque()  # the sizes of the tasks that were sent
        self.waiting: deque[bytes] = deque()  # tasks that were not sent yet

    @property
    def tasks(self) -> int:
        """How many tasks it has not answered."""
        return len(self.unanswered) + len(self.waiting)

    def give(self, number: int, task: Any) -> None:
        """Gives it a task."""
        self.waiting.append(pickle.dumps((number, task)))
        self._send()

    def _send(self) -> None:
        while self.waiting and (not self.unanswered or sum(self.unanswered) + len(self.waiting[0]) < _BYTES_ON_THE_WAY):
            message = self.waiting.popleft()
            self.unanswered.append(len(message))
            try:
                self.connection.send_bytes(message)
            except OSError:  # it died, as the next wait for an answer will tell
                return

    def answer(self) -> tuple[int, Any]:
        """Its next answer. EOFError or OSError where it died."""
        number, result = transfer.receive(self.connection)
        self.unanswered.popleft()
        self._send()
        return number, result

    def forget(self) -> None:
        """Drops the tasks that an ended dataset leaves unanswered."""
        self.active = False
        self.unanswered.clear()
        self.waiting.clear()

    def hang_up(self) -> None:
        """Tells it to stop: it sees the end of the socket, even if another process has inherited this end of it."""
        with socket.socket(fileno=os.dup(self.connection.fileno())) as end, contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)  # OSError: it died before
        self.connection.close()


def stop(workers: list[Worker], owner: int) -> None:
    """Ends the processes: after the batch they are at, or by force if that takes more than `SECONDS_TO_FINISH`."""
    if os.getpid() != owner:
        return  # a forked copy of the iterator
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + SECONDS_TO_FINISH
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
    for force in ("terminate", "kill"):
        late = [worker for worker in workers if worker.process.is_alive()]
        for worker in late:
            getattr(worker.process, force)()
        for worker in late:
            worker.process.join(1.0)
    workers.clear()


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Loads with worker processes: tasks go to them in turn, `prefetch_factor` per worker ahead of the program.

    Results come in the order of the tasks, or as they are ready (`in_order=False`).
    """

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._prefetch_factor: int = loader.prefetch_factor  # pyright: ignore[reportAttributeAccessIssue]
        self._in_order = loader.in_order
        if self._num_workers <= 0:
            raise AssertionError("num_workers must be greater than 0 for MultiProcessingDataLoaderIter")
        if self._prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self._workers: list[Worker] = []
        self._stop = weakref.finalize(self, stop, self._workers, os.getpid())
        self._stop.atexit = False  # then multiprocessing ends them, without a wait for their batch
        for worker_id in range(self._num_workers):
            duties = Duties(
                iterable=self._iterable,
                dataset=self._dataset,
                auto_collation=self._auto_collation,
                collate_fn=self._collate_fn,
                drop_last=self._drop_last,
                base_seed=self._base_seed,
                init_fn=loader.worker_init_fn,
                worker_id=worker_id,
                num_workers=self._num_workers,
            )
            self._workers.append(Worker(context, duties))
        self._reset(loader, first_iter=True)

    def _reset(self, loader: DataLoader, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        if not first_iter:
            self._resume()
        self._sent = self._due = 0  # numbers of the next task to send, of the next result to return
        self._owners: dict[int, Worker] = {}  # of tasks without a result
        self._turns = itertools.cycle(self._workers)
        for _ in range(self._prefetch_factor * self._num_workers):
            self._give_task()

    def _resume(self) -> None:
        """Begins a new epoch in all workers. Results of the last one that were not asked for are dropped."""
        for worker in self._workers:
            worker.waiting.clear()
            worker.active = True
            worker.give(-1, Resume)
        late = set(self._workers)
        while late:
            worker, _number, result = self._next_answer(list(late))
            if isinstance(result, Resume):
                late.discard(worker)

    def _give_task(self) -> None:
        try:
            index = self._next_index()
        except StopIteration:
            return
        most = self._prefetch_factor * self._num_workers // max(1, sum(worker.active for worker in self._workers))
        for worker in itertools.islice(self._turns, self._num_workers):
            if worker.active and (self._in_order or worker.tasks < most):
                worker.give(self._sent, index)
                self._owners[self._sent] = worker
                self._sent += 1
                return

    def _next_answer(self, candidates: list[Worker]) -> tuple[Worker, int, Any]:
        """The first answer of one of the candidates. RuntimeError where a worker dies, or where the time is up."""
        connections = {worker.connection: worker for worker in candidates}
        ends = {worker.process.sentinel: worker for worker in self._workers if worker.active}
        ready: list[Any] = wait([*connections, *ends], self._timeout or None)
        if not ready:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        for entry in ready:
            if entry in connections:
                with contextlib.suppress(EOFError, OSError):
                    return connections[entry], *connections[entry].answer()
        for entry in ready:
            (connections.get(entry) or ends[entry]).process.join(1.0)  # its exit code comes after the end of its files
        raise self._death()

    def _death(self) -> RuntimeError:
        """An error that names the processes that died, with how the first of them died as its cause."""
        dead = [worker for worker in self._workers if worker.active and not worker.process.is_alive()]
        for worker in dead:
            worker.forget()
        pids = ", ".join(str(worker.process.pid) for worker in dead)
        error = RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly")
        if not dead:
            return error
        process = dead[0].process
        if process.exitcode < 0:
            name = signal.strsignal(-process.exitcode)
            error.__cause__ = RuntimeError(f"DataLoader worker (pid {process.pid}) is killed by signal: {name}. ")
        elif process.exitcode > 0:
            error.__cause__ = RuntimeError(
                f"DataLoader worker (pid {process.pid}) exited unexpectedly with exit code {process.exitcode}. Details are lost "
                "due to multiprocessing. Rerunning with num_workers=0 may give better error trace."
            )
        return error

    def _next_data(self) -> Any:
        while True:
            while self._due < self._sent:
                owner = self._owners.get(self._due)
                if owner is not None and owner.active:
                    break
                self._owners.pop(self._due, None)  # returned before, or its worker's dataset has ended
                self._due += 1
            else:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            candidates = [owner] if self._in_order else [w for w in self._workers if w.active and w.tasks]
            worker, number, result = self._next_answer(candidates)
            if isinstance(result, Ended):
                worker.forget()
                self._give_task()
                continue
            del self._owners[number]
            self._give_task()
            if isinstance(result, Failure):
                result.reraise()
            return result

    def _shutdown_workers(self) -> None:
        self._stop()
