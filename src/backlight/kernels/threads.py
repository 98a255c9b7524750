"""The threads that share a kernel's work.

A kernel takes numbers of chunks from a queue until none is left. The calling thread starts at once; the others are woken
and join when the operating system lets them run. Whoever comes late finds the queue empty, so a busy machine costs
nothing but the help. Idle threads sleep: nothing spins between calls.
"""

from __future__ import annotations

import _thread
import os
import threading

import numpy as np


def _default() -> int:
    """What the environment allows, or one for each processor that this process may use."""
    given = [os.environ.get(name, "").split(",")[0].strip() for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS")]
    numbers = [int(text) for text in given if text.isdecimal() and int(text) > 0]
    return (
        min(numbers) if numbers else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


class _Helper:
    """A thread that waits for a job: (kernel, arguments)."""

    def __init__(self):
        self.jobs: list[tuple] = []  # at most one; who pops it has it
        self.error: BaseException | None = None
        self.wake, self.done = _thread.allocate_lock(), _thread.allocate_lock()
        self.wake.acquire()
        self.done.acquire()
        threading.Thread(target=self._work, name="backlight kernels", daemon=True).start()

    def _work(self):
        while True:
            self.wake.acquire()
            try:
                kernel, arguments = self.jobs.pop()
            except IndexError:
                continue  # the calling thread was done before
            try:
                kernel(*arguments)
            except BaseException as error:  # there was no memory, say: the calling thread raises it
                self.error = error
            del kernel, arguments  # or they would live until the next job
            self.done.release()


class _Pool:
    def __init__(self, threads: int):
        self.threads = threads
        self.helpers: list[_Helper] = []
        self.busy = threading.Lock()

    def some(self, wanted: int) -> list[_Helper]:
        """So many helpers, or fewer where no more threads can be started: at the process's end, say."""
        try:
            while len(self.helpers) < wanted:
                self.helpers.append(_Helper())
        except RuntimeError:
            pass
        return self.helpers[:wanted]


_pool = _Pool(_default())


def set_threads(number: int) -> None:
    """How many threads, the calling one among them, work on a kernel."""
    _pool.threads = number


def get_threads() -> int:
    """How many threads work on a kernel."""
    return _pool.threads


def _replace() -> None:
    global _pool
    _pool = _Pool(_pool.threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace)  # the child has none of the parent's threads, and its locks may be held


def run(kernel, chunks: int, *arguments, least: int = 4) -> None:
    """Calls kernel(*arguments, queue) in as many threads as there are, each with `least` chunks or more.

    The kernel must be compiled for these arguments in the calling thread, so the first call of a kernel runs in one.
    If another Python thread is using the helpers, this one works alone: it never waits for them.
    """
    queue = np.zeros(1, np.int64)
    arguments = (*arguments, queue)
    pool = _pool
    wanted = min(pool.threads, chunks // least) - 1  # fewer chunks are done before another thread has woken up
    if wanted <= 0 or not kernel.overloads or not pool.busy.acquire(blocking=False):
        kernel(*arguments)
        return
    try:
        helpers = pool.some(wanted)
        for helper in helpers:
            helper.jobs.append((kernel, arguments))
            if helper.wake.locked():  # it isn't when the helper hasn't yet noticed an earlier, empty, call
                helper.wake.release()
        kernel(*arguments)
        for helper in helpers:
            try:
                helper.jobs.pop()  # it hasn't woken up: there is nothing to wait for
            except IndexError:
                helper.done.acquire()
            if helper.error is not None:
                raise helper.error
    except BaseException:
        _replace()  # Ctrl-C, say: who knows what these helpers are doing
        raise
    finally:
        pool.busy.release()
