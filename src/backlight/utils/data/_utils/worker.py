"""What runs in a worker process."""

from __future__ import annotations

import os
import pickle
import random
import select
import signal
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .... import manual_seed
from ....state import set_recorder, state
from . import transfer
from .fetch import fetcher_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from typing import Any


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What `get_worker_info` tells a worker: its number, how many there are, its seed, its copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str | None = "multiprocessing"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process of a `DataLoader` its `WorkerInfo`, elsewhere None.

    An `IterableDataset` uses it to yield its share only: every `num_workers`-th sample from `id` on, say.
    """
    return _worker_info


class Ended:
    """A worker's answer: its iterable dataset has no more samples."""


class Resume:
    """A task: begin a new epoch. The answer is a `Resume`, too."""


class Failure:
    """A worker's answer: the exception that is being handled, as a type and a text."""

    def __init__(self, worker_id: int, index: Any = None) -> None:
        kind, error, frames = sys.exc_info()
        text = "".join(traceback.format_exception(kind, error, frames))
        self.kind = kind
        self.text = f"Caught {kind.__name__} in DataLoader worker process {worker_id}.\nOriginal {text}"  # pyright: ignore[reportOptionalMemberAccess]
        if index is not None:
            self.text += f"It was raised for sample {index!r} of the dataset.\n"
        try:
            pickle.dumps(kind)
        except Exception:  # a class that the program can't import
            self.kind = RuntimeError

    def reraise(self) -> None:
        """Raises an exception of the original's type with the text, or RuntimeError where it takes no text."""
        error = self._error()
        try:
            raise error
        finally:
            del error  # or the exception would hold this frame, and with it the iterator, in a cycle

    def _error(self) -> BaseException:
        kind: Any = self.kind
        if kind is KeyError:
            return KeyError(_Text(self.text))
        try:
            return kind(message=self.text) if getattr(kind, "message", None) else kind(self.text)
        except Exception:
            return RuntimeError(self.text)


class _Text(str):
    """A text that KeyError, which shows the repr of its argument, shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass
class Duties:
    """What a worker process is told when it starts."""

    iterable: bool
    dataset: Any
    auto_collation: bool
    collate_fn: Callable
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], None] | None
    worker_id: int
    num_workers: int


def work(connection: Connection, parent: int, duties: Duties) -> None:
    """Answers tasks until the program wants no more, or is gone.

    A task is (number, indices) or (number, `Resume`), the answer (number, batch), or in place of the batch an `Ended`, a `Resume` or a
    `Failure`.
    """
    try:
        _prepare(duties)
        _answer_tasks(connection, parent, duties)
    except (KeyboardInterrupt, BrokenPipeError, ConnectionResetError, EOFError):
        pass  # the program was interrupted, too, or doesn't listen any more


def _prepare(duties: Duties) -> None:
    """Seeds all random streams as PyTorch does. The process is for this only: no handlers, no recorder."""
    global _worker_info
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if state.recorder is not None:
        set_recorder(None)
    seed = duties.base_seed + duties.worker_id
    random.seed(seed)
    manual_seed(seed)
    entropy = [duties.worker_id, duties.base_seed & 0xFFFFFFFF, duties.base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(entropy).generate_state(4))
    _worker_info = WorkerInfo(duties.worker_id, duties.num_workers, seed, duties.dataset)


def _new_fetcher(duties: Duties):
    return fetcher_for(duties.iterable, duties.dataset, duties.auto_collation, duties.collate_fn, duties.drop_last)


def _answer_tasks(connection: Connection, parent: int, duties: Duties) -> None:
    fetcher: Any = None
    failed = None  # at the start: the answer to every task
    try:
        if duties.init_fn is not None:
            duties.init_fn(duties.worker_id)
        fetcher = _new_fetcher(duties)
    except Exception:
        failed = Failure(duties.worker_id)
    ended = False
    while _task_arrived(connection, parent):
        number, task = pickle.loads(connection.recv_bytes())
        if task is Resume:
            ended = False
            answer = Resume()
            try:
                fetcher = _new_fetcher(duties)
            except Exception:
                failed = Failure(duties.worker_id)
        elif ended:
            continue
        elif failed is not None:
            answer = failed
        else:
            try:
                answer = fetcher.fetch(task)
            except StopIteration:
                ended = duties.iterable
                answer = Ended() if ended else Failure(duties.worker_id, fetcher.index)
            except Exception:
                answer = Failure(duties.worker_id, fetcher.index)
        try:
            transfer.send(connection, (number, answer))
        except OSError:
            raise
        except Exception:  # a batch that can't be pickled
            transfer.send(connection, (number, Failure(duties.worker_id)))
        del answer, task


def _task_arrived(connection: Connection, parent: int) -> bool:
    """Waits for the next task. False where the program shut the socket down (even with tasks still in it) or is gone."""
    hung_up = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | hung_up)
    while not (events := poll.poll(1000)):
        if os.getppid() != parent:
            return False
    return not events[0][1] & hung_up
