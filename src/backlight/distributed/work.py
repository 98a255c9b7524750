"""Collectives are executed one at a time, in the order in which they were called, by one thread per process, or by who waits for them.

All ranks must run their collectives in one order, so there is one queue. `async_op=True` wakes the communication thread; a caller who
waits executes what stands in the queue itself, which saves two changes of thread. Before a rank enters MPI's blocking call, which can
be neither interrupted nor given a deadline, it makes sure that all ranks are about to enter the same one (`_arrive`).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import pickle
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from . import mpi

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .groups import ProcessGroup

ARRIVED, GAVE_UP = 0, 1  # kinds of notes
NOTE_AFTER = 1.0  # seconds of waiting after which a rank tells the others that it has arrived
AT_END = 5.0  # seconds for what is left at the end of the process
MANY = 64  # in a larger group only rank 0 is told


class Work:
    """A collective that was called: `wait()` returns when it is done and raises what went wrong."""

    def __init__(
        self, group: ProcessGroup, what: tuple, action: Callable[[], Any] | None, results: list, timeout: float | None
    ):
        self.group, self.what, self.action, self.results, self.timeout = group, what, action, results, timeout
        self.completed = False
        self.error: BaseException | None = None
        self.future: Any = None
        self.number = 0

    def wait(self, timeout: Any = None) -> bool:
        """Waits until this collective is done; True. Raises its error, DistributedTimeoutError after `timeout` seconds."""
        if not self.completed:
            _queue.finish(self, None if timeout is None else mpi.seconds(timeout))
        if self.error is not None:
            raise self.error
        return True

    def is_completed(self) -> bool:
        """Whether it is done, successfully or not."""
        return self.completed

    def is_success(self) -> bool:
        """Whether it is done and nothing went wrong."""
        return self.completed and self.error is None

    def exception(self) -> BaseException | None:
        """What went wrong, None if nothing did (yet)."""
        return self.error

    def result(self) -> list:
        """The tensors that the collective wrote, as a list, when it is done."""
        self.wait()
        return self.results

    def get_future(self) -> Any:
        """A `torch.futures.Future` of the list of tensors that the collective writes."""
        from ..futures import Future

        with _queue.running:
            if self.future is None:
                self.future = Future()
                if self.completed:
                    self._resolve()
        return self.future

    def synchronize(self) -> None:
        """wait()."""
        self.wait()

    def describe(self) -> str:
        """The call in words: "all_reduce #3 of float32 [10] with SUM in the default group"."""
        number = f" #{self.number}" if self.number else ""
        return f"{described(self.what, number)} in {self.group.description}"

    def run(self, hot: bool) -> None:
        """Executes the collective; whoever calls it has the queue to himself."""
        try:
            _arrive(self, hot)
            if self.action is not None:
                self.action()
        except Exception as error:
            self.error = _explained(self, error) if isinstance(error, mpi.library().Exception) else error
        except BaseException as error:  # Ctrl-C: this rank doesn't take part, and its caller must hear of it
            self.error = error
            self.group.broken = f"{self.describe()} was interrupted on rank {self.group.global_rank}"
            raise
        finally:
            self.action = None  # with the memory it holds
            self.completed = True
            if self.future is not None:
                self._resolve()

    def _resolve(self) -> None:
        if self.error is None:
            self.future.set_result(self.results)
        else:
            self.future.set_exception(self.error)


def described(what: tuple, number: str = "") -> str:
    """(operation, dtype, shape, details) in words."""
    operation, dtype, shape, details = what
    subject = f" of {dtype}" if dtype else ""
    if shape is not None:
        subject += f" {list(shape)}"
    return f"{operation}{number}{subject}{' ' if details else ''}{details}"


class _Queue:
    """The calls that wait to be executed, and the thread that executes those for which nobody waits."""

    def __init__(self) -> None:
        self.calls: deque[Work] = deque()
        self.running = threading.RLock()  # held by who executes: calls are popped under it, so their order is kept
        self.wake = threading.Semaphore(0)
        self.thread: threading.Thread | None = None
        self.closed = False

    def start(self) -> None:
        """Starts the communication thread, once per process."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._work, name="backlight communication", daemon=True)
            self.thread.start()
            atexit.register(self.close)

    def submit(self, work: Work, wake: bool) -> None:
        """Adds a call. wake: the thread shall execute it; otherwise the caller will wait soon, and does it."""
        self.calls.append(work)
        if wake:
            self.wake.release()

    def _work(self) -> None:
        while not self.closed:
            self.wake.acquire()
            with self.running:
                if self.calls and not self.closed:  # else a waiting caller was quicker
                    self.calls.popleft().run(hot=False)

    def finish(self, work: Work, timeout: float | None) -> None:
        """Returns when `work` is completed; executes it, and what stands before it, unless the thread is at it."""
        if not self.running.acquire(timeout=-1 if timeout is None else timeout):
            raise mpi.DistributedTimeoutError(
                f"rank {work.group.global_rank} waited {timeout:.1f} s for {work.describe()}, which is not done yet."
            )
        try:
            while not work.completed:
                self.calls.popleft().run(hot=True)
        finally:
            self.running.release()

    def close(self) -> None:
        """At the process's end, before MPI is finalised: executes what was called and is not done, unless an exception ends the process."""
        failed = getattr(sys, "last_type", None) is not None
        if self.running.acquire(timeout=AT_END):
            while self.calls and not failed:
                call = self.calls.popleft()
                call.timeout = AT_END
                call.run(hot=True)
                failed = call.error is not None
            self.closed = True
            self.running.release()


_queue = _Queue()


def _after_fork() -> None:
    global _queue
    _queue = _Queue()  # MPI doesn't work in forked children, but data loading workers must not hang on a lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def execute(
    group: ProcessGroup,
    what: tuple,
    action: Callable[[], Any] | None,
    results: list,
    async_op: bool,
    timeout: float | None = None,
) -> Work | None:
    """Has `action` executed when all ranks of the group have made a call with the same `what`: (operation, dtype, shape, details).

    Returns the Work with async_op, else waits and returns None."""
    work = Work(group, what, action, results, group.timeout if timeout is None else timeout)
    _queue.submit(work, async_op)
    if async_op:
        return work
    work.wait()
    return None


def start_thread() -> None:
    """Starts the communication thread if it doesn't run."""
    _queue.start()


def enqueue(group: ProcessGroup, what: tuple, action: Callable[[], Any] | None, results: list, wake: bool) -> Work:
    """Like `execute`, but without a wake-up where the caller is about to wait."""
    work = Work(group, what, action, results, group.timeout)
    _queue.submit(work, wake)
    return work


# Arrival

_signatures: dict[tuple, int] = {}


def signature(what: tuple) -> int:
    """A number of 62 bits that is the same on all ranks that call the same."""
    found = _signatures.get(what)
    if found is None:
        if len(_signatures) > 10_000:
            _signatures.clear()
        found = int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=8).digest(), "little") >> 2
        _signatures[what] = found
    return found


def _arrive(work: Work, hot: bool) -> None:
    """Returns when all ranks of the group are about to execute the same call as this one; otherwise raises, and no rank is stuck."""
    group = work.group
    if group.broken is not None:
        raise RuntimeError(f"{work.describe()} can't run: the process group is broken since {group.broken}")
    group.calls += 1
    work.number = group.calls
    if group.size() == 1:
        return
    number = signature(work.what)
    mine, least = group.arrival
    mine[0], mine[1] = number, -number
    request = group.communicator.Iallreduce(mine, least, mpi.library().MIN)
    if not request.Test():
        _await(work, request, hot)
    if group.notes.pending(work.number):
        raise _fail(work, f"rank {group.notes.gave_up} had already given up waiting for this rank")
    if least[0] != number or least[1] != -number:
        _raise_difference(work)


def _await(work: Work, request: Any, hot: bool) -> None:
    group, start = work.group, time.perf_counter()
    tell_after = NOTE_AFTER if work.timeout is None else min(NOTE_AFTER, work.timeout / 4)
    told = False

    def ready() -> bool:
        nonlocal told
        if request.Test():
            return True
        waited = time.perf_counter() - start
        if waited > tell_after:
            if not told:
                told = True
                group.notes.tell(ARRIVED, work.number)
            if group.notes.pending(work.number):
                _pending.append((request, group.arrival))
                raise _fail(work, f"rank {group.notes.gave_up} gave up waiting")
        return False

    def late() -> BaseException:
        _pending.append((request, group.arrival))  # MPI may still write there
        group.notes.tell(GAVE_UP, work.number)
        return _fail(
            work, f"rank {group.global_rank} waited {time.perf_counter() - start:.1f} s; {group.notes.missing(work.number)}"
        )

    mpi.wait_for(ready, work.timeout, late, hot=hot)


_pending: list[tuple] = []  # requests that nobody waits for any more, and their memory


def _fail(work: Work, why: str) -> mpi.DistributedTimeoutError:
    text = f"{work.describe()}: not all ranks called it in time: {why}."
    work.group.broken = f"this error: {text}"
    return mpi.DistributedTimeoutError(text)


def _explained(work: Work, error: Exception) -> Exception:
    """What MPI reports, in words: in jobs that survive it, that a rank has died."""
    try:
        dead = mpi.failed_ranks(work.group.communicator)
    except (mpi.library().Exception, NotImplementedError):  # this library doesn't tell
        dead = []
    if dead:
        ranks = [work.group.ranks[rank] for rank in dead]
        text = f"{work.describe()}: {listed_ranks(ranks)} {'has' if len(ranks) == 1 else 'have'} died."
        found: Exception = mpi.WorkerDied(text)
    else:
        text = f"{work.describe()}: MPI reports {error}."
        found = RuntimeError(text)
    found.__cause__ = error
    work.group.broken = f"this error: {text}"
    return found


def _raise_difference(work: Work) -> None:
    """All ranks have arrived, with different calls: they tell each other which, and each raises the same text."""
    texts = all_gather_bytes(work.group.communicator, described(work.what, f" #{work.number}").encode())
    calls: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        calls.setdefault(text.decode(), []).append(work.group.ranks[rank])
    said = ", ".join(f"{listed_ranks(ranks)} called {text}" for text, ranks in calls.items())
    raise RuntimeError(
        f"The ranks of {work.group.description} called different collectives: {said}. All ranks must call the same collectives in the same "
        "order, with tensors of the same shape and dtype."
    )


def listed_ranks(ranks: list[int]) -> str:
    """ "rank 3", "ranks 1, 2 and 5"; the first few of many."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 16:
        return f"ranks {', '.join(map(str, ranks[:15]))} and {len(ranks) - 15} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


class Notes:
    """Small messages between the ranks of a group about calls that not all ranks have made: who arrived at which, who gave up."""

    def __init__(self, communicator: Any, ranks: list[int]) -> None:
        self.communicator, self.ranks = communicator, ranks
        self.arrived = [0] * len(ranks)  # the latest call at which each rank is known to have arrived
        self.given_up = 0  # the latest call for which somebody stopped waiting
        self.gave_up: int | None = None
        self.sent: list[tuple] = []

    def tell(self, kind: int, number: int) -> None:
        """Sends a note to the other ranks; of an arrival at most to rank 0 in a large group."""
        own, size = self.communicator.rank, len(self.ranks)
        note = np.array([kind, number], np.int64)
        receivers = range(size) if size <= MANY or kind == GAVE_UP else range(1)
        self.sent = [(request, memory) for request, memory in self.sent if not request.Test()]
        self.sent += [(self.communicator.Isend(note, to), note) for to in receivers if to != own]

    def read(self) -> None:
        """Takes in what arrived."""
        MPI = mpi.library()
        status, note = MPI.Status(), np.empty(2, np.int64)
        while self.communicator.Iprobe(status=status):
            self.communicator.Recv(note, status.Get_source())
            source, number = status.Get_source(), int(note[1])
            self.arrived[source] = max(self.arrived[source], number)
            if note[0] == GAVE_UP:
                self.given_up, self.gave_up = max(self.given_up, number), self.ranks[source]

    def pending(self, number: int) -> bool:
        """Whether somebody has stopped waiting for call `number`."""
        if self.communicator.Iprobe():
            self.read()
        return self.given_up >= number

    def missing(self, number: int) -> str:
        """Which ranks haven't arrived at call `number`, in words."""
        self.read()
        own = self.communicator.rank
        if len(self.ranks) > MANY and own != 0:
            return f"rank {self.ranks[0]} knows which ranks are missing"
        silent = [rank for i, rank in enumerate(self.ranks) if i != own and self.arrived[i] < number]
        if not silent:
            return "the others have arrived in the meantime"
        return f"{listed_ranks(silent)} {'has' if len(silent) == 1 else 'have'} not arrived"


# Bytes of different lengths

PIECE = 1 << 30  # bytes per MPI call: its counts have 32 bits


def pieces(flat: Any, size: int | None = None) -> list:
    """Parts of a 1-d array or memoryview, each of at most `size` bytes (by default PIECE)."""
    step = max(1, (size or PIECE) // flat.itemsize)
    return [flat[i : i + step] for i in range(0, len(flat), step)]


def send_bytes(communicator: Any, flat: np.ndarray, to: int) -> None:
    """Sends a flat contiguous array of any size, to `receive_bytes`."""
    for piece in pieces(flat.view(np.uint8)):
        communicator.Send(piece, to)


def receive_bytes(communicator: Any, flat: np.ndarray, source: int) -> None:
    """Receives what `send_bytes` sends into a flat contiguous array of the same size."""
    for piece in pieces(flat.view(np.uint8)):
        communicator.Recv(piece, source)


def gather_bytes(communicator: Any, flat: np.ndarray, rows: Sequence[np.ndarray] | None, root: int) -> None:
    """On rank `root`, receives the flat arrays of all other ranks into `rows`; the others send theirs."""
    if rows is None:
        send_bytes(communicator, flat, root)
    for rank, row in enumerate(rows or ()):
        if rank != root:
            receive_bytes(communicator, row, rank)


def scatter_bytes(communicator: Any, flat: np.ndarray | None, rows: Sequence[np.ndarray] | None, root: int) -> None:
    """Rank `root` sends each other rank its row; the others receive theirs into `flat`."""
    if flat is not None:
        receive_bytes(communicator, flat, root)
    for rank, row in enumerate(rows or ()):
        if rank != root:
            send_bytes(communicator, row, rank)


def broadcast_bytes(communicator: Any, flat: np.ndarray, root: int) -> None:
    """Bcast of a flat contiguous array of any size."""
    raw = flat.view(np.uint8)
    for piece in pieces(raw):
        communicator.Bcast([piece, mpi.library().BYTE], root)


def all_gather_bytes(communicator: Any, payload: bytes) -> list[bytes]:
    """Every rank's bytes, on every rank."""
    sizes = np.empty(communicator.size, np.int64)
    communicator.Allgather(np.array([len(payload)], np.int64), sizes)
    found = []
    for rank, size in enumerate(sizes):
        flat = np.frombuffer(payload, np.uint8).copy() if rank == communicator.rank else np.empty(int(size), np.uint8)
        broadcast_bytes(communicator, flat, rank)
        found.append(flat.tobytes())
    return found


def all_gather_pickled(communicator: Any, value: Any) -> list:
    """Every rank's object, on every rank."""
    return [pickle.loads(text) for text in all_gather_bytes(communicator, pickle.dumps(value))]
