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
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Helper:
    """A thread that waits for a job: (kernel, arguments)."""

    def __init__(self):
        self.jobs: list[tuple] = []  # at most one; who pops it has it
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
            kernel(*arguments)
            self.done.release()


class _Pool:
    def __init__(self):
        self.threads = _default()
        self.helpers: list[_Helper] = []
        self.busy = threading.Lock()


_pool = _Pool()


def set_threads(number: int) -> None:
    """How many threads, the calling one among them, work on a kernel."""
    _pool.threads = number


def get_threads() -> int:
    """How many threads work on a kernel."""
    return _pool.threads


def _after_fork():
    global _pool
    threads = _pool.threads
    _pool = _Pool()  # the child has none of the parent's threads, and its locks may be held
    _pool.threads = threads


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run(kernel, chunks: int, *arguments) -> None:
    """Calls kernel(*arguments, queue) in as many threads as there are, each with four chunks or more.

    The kernel must be compiled for these arguments in the calling thread, so the first call of a kernel runs in one.
    If another Python thread is using the helpers, this one works alone: it never waits for them.
    """
    queue = np.zeros(1, np.int64)
    arguments = (*arguments, queue)
    pool = _pool
    wanted = min(pool.threads, chunks // 4) - 1  # fewer chunks are done before another thread has woken up
    if wanted <= 0 or not kernel.signatures or not pool.busy.acquire(blocking=False):
        kernel(*arguments)
        return
    try:
        while len(pool.helpers) < wanted:
            pool.helpers.append(_Helper())
        helpers = pool.helpers[:wanted]
        for helper in helpers:
            helper.jobs.append((kernel, arguments))
            if helper.wake.locked():  # it isn't when the helper hasn't yet noticed an earlier, empty, call
                helper.wake.release()
        try:
            kernel(*arguments)
        finally:
            for helper in helpers:
                try:
                    helper.jobs.pop()  # it hasn't woken up: there is nothing to wait for
                except IndexError:
                    helper.done.acquire()
    finally:
        pool.busy.release()
