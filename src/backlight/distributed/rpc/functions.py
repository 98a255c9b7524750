"""`torch.distributed.rpc.functions`: functions that answer later."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def async_execution(fn: F) -> F:
    """A function for rpc that returns a `torch.futures.Future`: the caller gets the future's value, when it is there.

    The thread that runs the function is free as soon as it returns. Above `@staticmethod` and `@classmethod` this decorator goes last, that
    is, nearest the function.

        @rpc.functions.async_execution
        def add_chained(to, x, y, z):
            return rpc.rpc_async(to, torch.add, args=(x, y)).then(lambda future: future.wait() + z)
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # type: ignore[attr-defined]
    return wrapper  # type: ignore[return-value]
