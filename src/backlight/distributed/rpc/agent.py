"""The agent: this process's part in rpc. It sends calls, executes those of others, and completes the futures of answers.

One thread leads: it looks for messages, and when a call has come, it hands the lead to another thread and executes the call itself. Threads
are started when there is no follower left, so calls that wait for calls that wait ... never run out of threads. A thread that waits for
an answer looks for messages itself while it does so hot, which saves waking it up.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...futures import Future
from .. import mpi
from .messages import Channel, Message, pickled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALL, ANSWER, FAILURE, NOTE, DELIVERY = range(5)  # kinds of messages
# A note is a call that wants no answer and takes no time. A delivery is a call that takes no time if somebody waits for it: see `delivered_by`.
IDLE_THREADS = 8  # threads that stay for the next call
EAGER = 3e-4  # seconds for which a thread looks without any sleep, which keeps other threads from the interpreter
NAP = 2e-5  # seconds between two looks after that, until mpi.HOT is over


class WorkerInfo(NamedTuple):
    """A worker's name and its rank, which is its id."""

    name: str
    id: int

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


class RemoteError(Exception):
    """What travels in place of an exception: its type, its text, the worker's traceback."""

    def __init__(self, kind: type, text: str):
        super().__init__(kind, text)
        self.kind, self.text = kind, text

    def as_exception(self) -> BaseException:
        """An exception of the type that was raised over there. RuntimeError if that type can't be made from a text."""
        try:
            return self.kind(self.text)
        except Exception as error:
            return RuntimeError(
                f"Failed to create original exception type. Error msg was {error} Original exception on remote side was {self.text}"
            )


class Agent:
    """Rpc in this process, from init_rpc to shutdown."""

    def __init__(self, name: str, timeout: float) -> None:
        self.channel = Channel()
        self.rank, self.size = self.channel.rank, self.channel.size
        self.timeout = timeout
        names = self.channel.headers.allgather(name)
        for other in names:
            if names.count(other) > 1:
                ranks = [rank for rank, x in enumerate(names) if x == other]
                raise RuntimeError(f"RPC worker name '{other}' isn't unique: ranks {ranks} have it. Give every worker its own.")
        self.workers = [WorkerInfo(x, rank) for rank, x in enumerate(names)]
        self.by_name = {worker.name: worker for worker in self.workers}
        self.running = True
        self.numbers = itertools.count(1)
        self.calls: dict[int, tuple[Future, int, str]] = {}  # those that wait for an answer: future, worker, what
        self.deadlines: list[tuple[float, int, float]] = []  # a heap of (when, number, seconds)
        self.received: deque[Message] = deque()  # calls that a waiting thread met: the leader executes them
        self.dead: set[int] = set()  # workers that died, where MPI tells
        self._later: deque[tuple] = deque()  # notes to send: from where nothing may be sent (finalizers)
        self._lock = threading.Lock()
        self._leading = threading.Lock()
        self._polling = threading.Lock()
        self._napping = threading.Lock()  # held but for a moment, when the leader's nap is to end
        self._napping.acquire()
        self._executing = self._followers = 0
        self._hot_until = 0.0
        self._ending = self.channel.headers.Dup()
        self.reports: dict[tuple[int, int], int] = {}  # what others reported in a round of shutdown: see _sum_of_living
        self.all_idle = False
        self.activity = 0  # calls that were made or executed

    # Calls

    def worker(self, to: Any) -> WorkerInfo:
        """The worker that a name, rank or WorkerInfo means."""
        if isinstance(to, WorkerInfo):
            return to
        me = f"name:{self.workers[self.rank].name},rank:{self.rank}"
        if isinstance(to, str):
            if to not in self.by_name:
                known = ", ".join(self.by_name)
                raise RuntimeError(f"{me} could not find destination name {to}\nThe workers are {known}.")
            return self.by_name[to]
        if isinstance(to, int):
            if not 0 <= to < self.size:
                raise RuntimeError(f"{me} could not find destination id {to}\nThe workers have ids 0 to {self.size - 1}.")
            return self.workers[to]
        raise ValueError(f"Cannot get WorkerInfo from name {to}")

    def call(
        self,
        to: WorkerInfo,
        function: Callable,
        args: tuple,
        kwargs: dict | None = None,
        timeout: float | None = None,
        in_context: bool = True,
        what: str = "",
        kind: int = CALL,
    ) -> Future:
        """A future of what function(*args, **kwargs) gives on a worker.

        timeout: seconds, 0 for none, None for the agent's. in_context: the call is part of this thread's autograd context.
        what: what errors call it, if not by the function's name."""
        seconds = self.timeout if timeout is None else timeout
        what = what or name_of(function)
        future: Future = Future()
        future._help = self.help
        number = next(self.numbers)
        message = Message(kind, number, (function, args, kwargs or {}))
        packed = self._pack(message, to.id, what) if in_context else pickled(message.content)
        self.calls[number] = (future, to.id, what)
        self.activity += 1
        if seconds:
            with self._lock:
                heapq.heappush(self.deadlines, (time.monotonic() + seconds, number, seconds))
        try:
            self._send(to.id, message, packed, seconds or None, what)
        except Exception as error:  # the worker has died, say
            self._answered(number, None, error)
        if not self.running:
            self._answered(number, None, RuntimeError("RPC has been shut down in this process."))
        return future

    def note(self, to: int, function: Callable, *args: Any) -> None:
        """Calls a function on a worker without waiting for it to be done. Errors there are that worker's."""
        message = Message(NOTE, 0, (function, args, {}))
        self._send(to, message, pickled(message.content), self.timeout, name_of(function))

    def note_later(self, to: int, function: Callable, *args: Any) -> None:
        """The same, sent by the leading thread: may be called in a finalizer, whatever locks its thread holds."""
        self._later.append((to, function, args))

    def _pack(self, message: Message, to: int, what: str) -> tuple:
        """The message as bytes, noted in this thread's autograd context."""
        from ..autograd import graph

        packed = pickled(message.content)
        graph.sending(message, packed[2], to, what)
        return packed

    def _send(self, to: int, message: Message, packed: tuple, timeout: float | None, what: str) -> None:
        if to in self.dead:
            raise mpi.WorkerDied(self._death(to, what))
        try:
            self.channel.send(to, message, packed, timeout, what)
        except self.channel.MPI.Exception as error:
            self._look_for_the_dead()
            if to in self.dead:
                raise mpi.WorkerDied(self._death(to, what)) from None
            raise RuntimeError(f"rank {self.rank}: sending to {self.workers[to].name} failed: {error}") from error

    # Waiting

    def help(self, future: Future) -> None:
        """Looks for messages in a thread that waits for a future, hot: for a few milliseconds, and if no other thread does."""
        if not self._polling.acquire(blocking=False):
            return
        try:
            start = time.perf_counter()
            while not future._done and self.running:
                self._look(execute=False)
                if future._done:
                    break
                waited = time.perf_counter() - start
                if waited > mpi.HOT or (waited > EAGER and self._executing):
                    break
                if waited < EAGER and not self._executing:
                    mpi.give_way()
                else:
                    time.sleep(NAP)
        finally:
            self._polling.release()
            self._hot_until = time.perf_counter() + mpi.HOT

    # The threads

    def start_follower(self) -> None:
        """Starts a thread, which leads if none does."""
        with self._lock:
            self._followers += 1
        threading.Thread(target=self._follow, name="backlight rpc", daemon=True).start()

    def _follow(self) -> None:
        """A thread's life: wait for the lead, lead until a call comes, hand over the lead, execute the call."""
        while self.running:
            with self._leading:
                message = self._lead()
                with self._lock:
                    self._followers -= 1
                    alone = self._followers == 0
                    self._executing += message is not None
                    self.activity += message is not None and message.kind == CALL
            if message is None:
                return
            if alone:
                self.start_follower()
            try:
                self._execute(message)
            finally:
                with self._lock:
                    self._executing -= 1
                    stays = self._followers < IDLE_THREADS
                    self._followers += stays
                if not self._executing:
                    self._wake_leader()  # it may look hot again: a caller that got its answer often calls again
            if not stays:
                return

    def _wake_leader(self) -> None:
        with suppress(RuntimeError):  # somebody else has done it
            self._napping.release()

    def _lead(self) -> Message | None:
        """Looks for messages until a call has come: that call. None when rpc ends."""
        nap = NAP
        started = time.perf_counter()
        last_look = 0.0
        while self.running:
            if self.received:
                return self.received.popleft()
            looks = self._polling.acquire(blocking=False)
            if looks:
                try:
                    met = self._look(execute=True)
                except BaseException:
                    if not self.running:
                        return None
                    raise
                finally:
                    self._polling.release()
                if isinstance(met, Message):
                    return met
                if met:
                    started, nap = time.perf_counter(), NAP
                    continue
            now = time.perf_counter()
            if now - last_look > 0.1:
                last_look = now
                self._expire()
                if mpi.survives:
                    self._look_for_the_dead()
            while self._later:
                self._send_later(*self._later.popleft())
            if not looks:  # a thread that waits for an answer does, hot
                self._napping.acquire(timeout=mpi.LONGEST_NAP)
            elif now - started < EAGER and not self._executing:
                mpi.give_way()
            else:
                if now - started > mpi.HOT and now > self._hot_until:
                    nap = min(mpi.LONGEST_NAP, nap * 1.5)
                self._napping.acquire(timeout=nap)
        return None

    def _look(self, execute: bool) -> Message | bool:
        """Takes one message, if there is one. Answers complete their futures; a call is returned, or put aside for the leader."""
        try:
            message = self.channel.receive()
        except self.channel.MPI.Exception:  # a process has died: MPI says so until it is acknowledged
            if not mpi.survives:
                raise
            self._look_for_the_dead()
            return False
        if message is None:
            return False
        if message.kind in (ANSWER, FAILURE):
            self._take_answer(message)
            return True
        if message.kind in (NOTE, DELIVERY) and message.whole and self._take_at_once(message):
            return True
        if execute:
            return message
        self.received.append(message)
        self._wake_leader()
        return True

    def _take_at_once(self, message: Message) -> bool:
        """Does what a note or a delivery asks for. False for a delivery that nobody waits for yet: it needs a thread."""
        try:
            self.channel.open(message, self.timeout)
            function, args, kwargs = message.content
            if message.kind == NOTE:
                function(*args, **kwargs)
            elif _DELIVERED_BY[function](*args, **kwargs):
                self._answer(message, None)
            else:
                return False
        except Exception as error:
            self._answer_error(message, error)
        return True

    def _take_answer(self, message: Message) -> None:
        from ..autograd import graph

        try:
            self.channel.open(message, self.timeout)
        except Exception as error:  # it can't be unpickled here
            self._answered(message.number, None, error)
            return
        if message.number not in self.calls:  # it came too late
            return
        if message.kind == FAILURE:
            self._answered(message.number, None, message.content.as_exception())
        else:
            graph.received(message)
            self._answered(message.number, message.content, None)

    def _answered(self, number: int, value: Any, error: BaseException | None) -> None:
        waiting = self.calls.pop(number, None)
        if waiting is not None:
            waiting[0]._complete(value, error)

    def _expire(self) -> None:
        """Fails the calls whose time is over."""
        while self.deadlines and self.deadlines[0][0] < time.monotonic():
            with self._lock:
                _when, number, seconds = heapq.heappop(self.deadlines)
            waiting = self.calls.get(number)
            if waiting is not None:
                _future, to, what = waiting
                me, other = self.workers[self.rank], self.workers[to]
                text = (
                    f"RPCErr:1:RPC ran for more than set timeout ({seconds * 1e3:.0f} ms) and will now be marked with an error\n"
                    f"Rank {self.rank} ({me.name}) called {what} on rank {to} ({other.name}) and got no answer in {seconds:g} s. "
                    "The call may still run there. `timeout=` gives it more time; 0 sets no limit."
                )
                self._answered(number, None, mpi.DistributedTimeoutError(text))
        if len(self.deadlines) > 64 and len(self.deadlines) > 4 * len(self.calls):  # most were answered long before
            with self._lock:
                self.deadlines = [entry for entry in self.deadlines if entry[1] in self.calls]
                heapq.heapify(self.deadlines)

    def _send_later(self, to: int, function: Callable, args: tuple) -> None:
        with suppress(mpi.WorkerDied, mpi.DistributedTimeoutError):  # then it has nothing left to be told
            self.note(to, function, *args)

    # Executing

    def _execute(self, message: Message) -> None:
        """Runs a call that came, in its autograd context, and sends the answer when it is there."""
        from ..autograd import graph

        try:
            self.channel.open(message, self.timeout)
            graph.received(message)
            with graph.in_context(message.context):
                (function, args, kwargs), message.content = message.content, None
                result = function(*args, **kwargs)
        except BaseException as error:
            self._answer_error(message, error)
            return
        if message.kind == NOTE:
            return
        if not is_asynchronous(function):
            del args, kwargs
            self._answer(message, result)
        elif isinstance(result, Future):
            result._call_when_done(lambda future: self._answer_future(message, future))
        else:
            text = f"Functions decorated with @rpc.async_function must return a torch.futures.Future object, but got {type(result)}"
            self._answer_error(message, RuntimeError(text))

    def _answer(self, message: Message, result: Any) -> None:
        """Sends what a call gave, in the call's context."""
        from ..autograd import graph

        try:
            with graph.in_context(message.context):
                answer = Message(ANSWER, message.number, result)
                packed = self._pack(answer, message.source, "an answer")
            self._send(message.source, answer, packed, self.timeout, "an answer")
        except mpi.WorkerDied:
            pass
        except BaseException as error:
            self._answer_error(message, error)

    def _answer_future(self, message: Message, future: Future) -> None:
        if future._error is not None:
            self._answer_error(message, future._error)
        else:
            self._answer(message, future._value)

    def _answer_error(self, message: Message, error: BaseException) -> None:
        """Sends what a call raised. That of a note, for which nobody waits, is shown here."""
        if message.kind == NOTE:
            if self.running:
                traceback.print_exception(error)
            return
        if isinstance(error, mpi.WorkerDied) and message.source in self.dead:
            return
        content = remote_error(error, self.workers[self.rank])
        try:
            packed = pickled(content)
        except Exception:  # the exception's type can't be sent
            content = RemoteError(RuntimeError, content.text)
            packed = pickled(content)
        with suppress(mpi.WorkerDied, mpi.DistributedTimeoutError):
            self._send(message.source, Message(FAILURE, message.number, content), packed, self.timeout, "an answer")

    # Deaths

    def _look_for_the_dead(self) -> None:
        """Fails the calls to workers that died. MPI tells of them only in jobs that survive it (`--with-ft ulfm`)."""
        for rank in mpi.failed_ranks(self.channel.headers):
            if rank not in self.dead:
                self.dead.add(rank)
                self.channel.headers.Ack_failed()
                for number, (_future, to, what) in list(self.calls.items()):
                    if to == rank:
                        self._answered(number, None, mpi.WorkerDied(self._death(rank, what)))

    def _death(self, rank: int, what: str) -> str:
        me, other = self.workers[self.rank].name, self.workers[rank].name
        return f"Rank {self.rank} ({me}) called {what} on rank {rank} ({other}), which has died."

    # The end

    def join(self, timeout: float) -> None:
        """Serves the others until nobody has anything left to do: nothing was called between two rounds in which all were idle."""
        before = None
        add_up = self._sum_of_living if mpi.survives else self._sum
        for number in itertools.count():
            self._wait(lambda: not (self.calls or self._executing or self.received or self._later), timeout)
            total = add_up(number, timeout)
            if total == before or self.all_idle:
                break
            before = total
        if mpi.survives:
            self._tell_the_living(_all_idle)

    def _wait(self, ready: Callable[[], Any], timeout: float) -> None:
        """Waits for something that shutdown needs."""
        me = f"rank {self.rank} ({self.workers[self.rank].name})"
        text = f"{me}: shutdown waited {timeout:g} s for the other workers to call it and for all calls to end"
        mpi.wait_for(ready, timeout or None, lambda: mpi.DistributedTimeoutError(text))

    def _sum(self, _number: int, timeout: float) -> int:
        """How many calls all workers have made and executed."""
        activity = np.array([self.activity])
        request = self._ending.Iallreduce(self.channel.MPI.IN_PLACE, activity)
        self._wait(request.Test, timeout)
        return int(activity[0])

    def _sum_of_living(self, number: int, timeout: float) -> int:
        """The same among those that haven't died, by messages: MPI's collectives fail when a process has died."""
        mine = self.activity
        self._tell_the_living(_report, number, mine)
        others = [rank for rank in range(self.size) if rank != self.rank]
        self._wait(
            lambda: self.all_idle or all(rank in self.dead or (number, rank) in self.reports for rank in others), timeout
        )
        return mine + sum(self.reports.get((number, rank), 0) for rank in others)

    def _tell_the_living(self, function: Callable, *args: Any) -> None:
        for rank in range(self.size):
            if rank != self.rank and rank not in self.dead:
                with suppress(mpi.WorkerDied, mpi.DistributedTimeoutError):
                    self.note(rank, function, self.rank, *args)

    def stop(self) -> None:
        """Ends the threads. Calls that wait for answers fail."""
        self.running = False
        self._wake_leader()
        with self._leading:  # the leader has left
            pass
        for number in list(self.calls):
            self._answered(number, None, RuntimeError("RPC was shut down before the call was answered."))


_DELIVERED_BY: dict[Any, Callable[..., bool]] = {}


def delivered_by(function: Callable, deliver: Callable[..., bool]) -> None:
    """When a call of `function` comes as a delivery, deliver(*args) is tried first, in the thread that looks for messages. It must not wait; False
    if it can't do what is asked for."""
    _DELIVERED_BY[function] = deliver


_ASYNCHRONOUS: set = set()  # internal functions that return futures of their results


def asynchronous(function: Callable) -> Callable:
    """Marks an internal function whose future is answered when it is done."""
    _ASYNCHRONOUS.add(function)
    return function


def remote_error(error: BaseException, worker: WorkerInfo) -> RemoteError:
    """What an exception becomes on its way to the caller."""
    if isinstance(error, RemoteError):
        return error
    shown = "".join(traceback.format_exception(type(error), error, _without_own_frames(error.__traceback__)))
    return RemoteError(type(error), f"On {worker}:\n{error!r}\n{shown}")


def _without_own_frames(trace: Any) -> Any:
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def is_asynchronous(function: Any) -> bool:
    """Whether a function returns a future of its result."""
    return getattr(function, "_wrapped_async_rpc_function", None) is not None or function in _ASYNCHRONOUS


def name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)


def _report(rank: int, number: int, activity: int) -> None:
    current().reports[number, rank] = activity


def _all_idle(_rank: int) -> None:
    """Another worker knows that nobody has anything left to do."""
    current().all_idle = True


# The agent of this process

_agent: Agent | None = None


def current() -> Agent:
    """The agent. RuntimeError before init_rpc and after shutdown."""
    if _agent is None:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return _agent


def is_set() -> bool:
    return _agent is not None


def start(name: str, timeout: float) -> Agent:
    """Makes this process's agent, when all processes of the job do."""
    from ... import nn, optim  # noqa: F401  (now: two threads that import parts of them at once can get in each other's way)

    mpi.barrier(timeout or None, f"({name}): init_rpc")
    agent = Agent(name, timeout)
    set_current(agent)
    agent.start_follower()
    return agent


def set_current(agent: Agent | None) -> None:
    global _agent
    _agent = agent


@contextmanager
def collected_calls() -> Iterator[list[Future]]:
    """The futures that this thread's calls make meanwhile."""
    futures: list[Future] = []
    _this_thread.futures = futures
    try:
        yield futures
    finally:
        del _this_thread.futures


_this_thread = threading.local()


def collect(future: Future) -> None:
    """Adds a future to those that `collected_calls` collects in this thread."""
    futures = getattr(_this_thread, "futures", None)
    if futures is not None:
        futures.append(future)
