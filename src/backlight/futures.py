"""`torch.futures`: results that aren't there yet, of remote calls or set by hand."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")

_COMPLETE = "Attempting to mark a completed Future as complete again. Note that a Future can only be marked completed once."
_lock = threading.Lock()  # for what takes nanoseconds: no future needs one of its own


class Future(Generic[T]):
    """A value that is set later, by another thread or process: `wait()` for it, or have a function called with it.

    >>> import backlight as torch
    >>> future = torch.futures.Future()
    >>> twice = future.then(lambda done: done.value() * 2)
    >>> future.set_result(21)
    >>> twice.wait()
    42
    """

    __slots__ = ("_callbacks", "_done", "_error", "_help", "_value", "_waiting")

    def __init__(self, *, devices: Any = None) -> None:  # noqa: ARG002  (there are no devices to synchronise)
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future], Any]] = []
        self._waiting: threading.Event | None = None
        self._help: Callable[[Future], None] | None = None  # what a waiting thread does first: it looks for messages itself

    def done(self) -> bool:
        """Whether there is a result or an exception."""
        return self._done

    def wait(self) -> T:
        """The value, when it is there; raises the exception if there is one instead."""
        if not self._done:
            self._await()
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            del self  # or the exception's traceback would lead to the future, which has the exception: a cycle

    def value(self) -> T:
        """The value of a future that is done, or its exception, raised. RuntimeError if it isn't done."""
        if not self._done:
            raise RuntimeError("value() of a Future that isn't done: call wait(), or ask done() first")
        if self._error is None:
            return self._value
        try:
            raise self._error
        finally:
            del self  # see wait

    def _await(self, timeout: float | None = None) -> bool:
        """Waits until it is done, for `timeout` seconds at most. Returns whether it is."""
        if self._help is not None:
            self._help(self)
        if not self._done:
            with _lock:
                if self._waiting is None:
                    self._waiting = threading.Event()
                event = self._waiting
            if not self._done:  # looked at after the event is visible to whoever completes
                event.wait(timeout)
        return self._done

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of what callback(self) returns, called when this one is done (now, if it is)."""
        if not callable(callback):
            raise TypeError(f"then() takes a function of the future, not {type(callback).__name__}")
        following: Future[S] = Future()
        following._help = self._help

        def complete(future: Future[T]) -> None:
            try:
                result = callback(future)
            except Exception as error:  # the following future has it
                text = f"Got the following error when running the callback: {type(error).__name__}: {error}"
                wrapped = RuntimeError(text) if future._error is not error else error
                wrapped.__cause__ = error if wrapped is not error else error.__cause__
                following.set_exception(wrapped)
            else:
                following.set_result(result)

        self._call_when_done(complete)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Calls callback(self) when this one is done (now, if it is). What it raises is printed and goes no further."""

        def guarded(future: Future[T]) -> None:
            try:
                callback(future)
            except Exception as error:
                print(
                    f"Got the following error when running the callback: {type(error).__name__}: {error}\n{traceback.format_exc()}",
                    file=sys.stderr,
                )

        self._call_when_done(guarded)

    def _call_when_done(self, callback: Callable[[Future], Any]) -> None:
        with _lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def set_result(self, result: T) -> None:
        """Gives the value. RuntimeError if there is a value or an exception already."""
        if not self._complete(result, None):
            raise RuntimeError(_COMPLETE)

    def set_exception(self, result: BaseException) -> None:
        """Gives an exception, which `wait` and `value` raise. RuntimeError if there is a value or an exception already."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        if not self._complete(None, result):
            raise RuntimeError(_COMPLETE)

    def _complete(self, value: Any, error: BaseException | None) -> bool:
        """Sets both and wakes who waits; False, and nothing happens, if it was done before."""
        with _lock:
            if self._done:
                return False
            self._value, self._error = value, error
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        if self._waiting is not None:
            self._waiting.set()
        for callback in callbacks:
            callback(self)
        return True


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future of the list itself, done when all of them are. Its exception is the first one among theirs."""
    collected: Future[list[Future]] = Future()
    left = [len(futures)]

    def one_done(future: Future) -> None:
        with _lock:
            left[0] -= 1
        if future._error is not None:
            collected._complete(None, future._error)
        elif not left[0]:
            collected._complete(list(futures), None)

    if not futures:
        collected.set_result([])
    for future in futures:
        collected._help = future._help
        future._call_when_done(one_done)
    return collected


def wait_all(futures: list[Future]) -> list[Any]:
    """The values of all the futures, when they are done; raises the first exception among them."""
    return [future.wait() for future in cast("list[Future]", collect_all(futures).wait())]
