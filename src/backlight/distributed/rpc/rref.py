"""`RRef`: a value that lives on one worker, its owner, and can be named on others.

The owner keeps the value as long as a reference exists anywhere. Who counts them is the references themselves: each carries a weight, one that
is copied to another worker gives away half of it, one that ends returns its weight to the owner, and the value may go when
all weights are back (weighted reference counting: Bevan 1987, Watson and Watson 1987). So a copy needs no message to the owner,
and no message can come too early or too late.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...futures import Future
from .. import mpi
from . import agent as rpc
from . import messages

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

WHOLE = 1 << 60  # the weight of a first reference: 60 generations of copies of copies until the owner is asked for more

_numbers = itertools.count()
_lock = threading.RLock()


class _Held:
    """A value on its owner. `weight`: what is out; negative while a reference has come back before the first was noted."""

    def __init__(self, number: tuple):
        self.number = number
        self.value: Future = Future()
        self.weight = 0
        self.made = False
        if rpc.is_set():
            self.value._help = rpc.current().help


_held: dict[tuple, _Held] = {}  # what others refer to; the owner's own references hold their value themselves


def _look_up(number: tuple) -> _Held:
    """The value with a number, which may be one whose making hasn't begun."""
    with _lock:
        if number not in _held:
            _held[number] = _Held(number)
        return _held[number]


def _weigh(held: _Held, weight: int) -> None:
    with _lock:
        held.weight += weight
        if held.made and held.weight == 0:
            _held.pop(held.number, None)
        else:
            _held[held.number] = held


class RRef(Generic[T]):
    """A reference to a value on a worker: `RRef(value)` to one of this worker, `rpc.remote` makes those to others'.

    It can be an argument or a result of calls. `to_here()` copies the value; `rpc_sync()`, `rpc_async()` and `remote()` give proxies whose
    methods run where the value is: `rref.rpc_sync().forward(x)`.
    """

    __slots__ = ("__weakref__", "_created", "_fork", "_held", "_number", "_owner", "_weight")

    def __init__(self, value: T, type_hint: Any = None) -> None:  # noqa: ARG002
        agent = rpc.current()
        held = _Held((agent.rank, next(_numbers)))
        held.made = True
        held.value.set_result(value)
        self._own(held)

    def _own(self, held: _Held) -> None:
        self._owner, self._number, self._held = rpc.current().rank, held.number, held
        self._fork, self._weight = None, 0
        self._created: Future | None = None

    @classmethod
    def _of(cls, held: _Held) -> RRef:
        self = object.__new__(cls)
        self._own(held)
        return self

    @classmethod
    def _user(cls, owner: int, number: tuple, weight: int) -> RRef:
        self = object.__new__(cls)
        self._owner, self._number, self._weight, self._held = owner, number, weight, None
        self._fork, self._created = (rpc.current().rank, next(_numbers)), None
        return self

    def __del__(self) -> None:
        if getattr(self, "_weight", 0) and rpc.is_set():
            rpc.current().note_later(self._owner, _returned, self._number, self._weight)

    def __repr__(self) -> str:
        if self._held is not None:
            return f"OwnerRRef({_id(self._number)})"
        return f"UserRRef(RRefId = {_id(self._number)}, ForkId = {_id(self._fork)})"

    def __reduce__(self) -> tuple:
        if not messages.sending():
            raise RuntimeError("Can not pickle rref in python pickler, rref can only be pickled when using RPC")
        if self._held is not None:
            weight = WHOLE
            _weigh(self._held, weight)
        else:
            if self._weight < 2:
                rpc.current().call(self.owner(), _granted, (self._number,), in_context=False).wait()
                with _lock:
                    self._weight += WHOLE
            with _lock:
                weight = self._weight // 2
                self._weight -= weight
        messages.when_not_sent(lambda: self._take_back(weight))
        return _arrived, (self._owner, self._number, weight)

    def _take_back(self, weight: int) -> None:
        """The message that carried a copy of this reference wasn't sent."""
        if self._held is not None:
            _weigh(self._held, -weight)
        else:
            with _lock:
                self._weight += weight

    # Where it is

    def is_owner(self) -> bool:
        """Whether this worker has the value."""
        return self._held is not None

    def owner(self) -> rpc.WorkerInfo:
        """The worker that has the value."""
        return rpc.current().workers[self._owner]

    def owner_name(self) -> str:
        """Its name."""
        return self.owner().name

    def confirmed_by_owner(self) -> bool:
        """Whether the owner is known to have the value, or to be making it."""
        return self._created is None or (self._created.done() and self._created._error is None)

    # The value

    def to_here(self, timeout: float | None = None) -> T:
        """The value: on its owner the value itself, elsewhere a copy. Waits until it is there. timeout: seconds, 0 for none.

        Raises what the function that makes the value raised, DistributedTimeoutError when the value didn't come in time."""
        if self._held is not None:
            return self._wait(timeout)
        self._check_creation()
        agent = rpc.current()
        value = agent.call(self.owner(), _fetched, (self._number,), timeout=_seconds(timeout), what="RRef.to_here").wait()
        self._created = None  # the owner has it: that its making was acknowledged needn't be waited for
        return value

    def local_value(self) -> T:
        """The value itself. RuntimeError on workers that don't own it."""
        if self._held is None:
            agent = rpc.current()
            raise RuntimeError(
                f"For UserRRef(rref_id={_id(self._number)}, fork_id={_id(self._fork)}), can't call localValue() on user "
                f"{agent.workers[agent.rank]}. Call it on owner {self.owner()}"
            )
        return self._wait(None)

    def _wait(self, timeout: float | None) -> Any:
        assert self._held is not None
        seconds = rpc.current().timeout if timeout is None else _seconds(timeout)
        if not self._held.value._await(seconds or None):
            raise mpi.DistributedTimeoutError(f"rank {self._owner}: the value of {self!r} wasn't made within {seconds:g} s")
        try:
            return self._held.value.value()
        except rpc.RemoteError as error:
            raise error.as_exception() from None

    def _check_creation(self) -> None:
        if self._created is not None and self._created.done() and self._created._error is not None:
            if isinstance(self._created._error, mpi.DistributedTimeoutError):
                raise RuntimeError(
                    "RRef creation via rpc.remote() timed out, and it is possible that the RRef on the owner node does not exist.\n"
                    f"{self._created._error}"
                )
            raise self._created._error

    def rpc_sync(self, timeout: float | None = None) -> RRefProxy:
        """A proxy whose methods run on the owner; a call waits for the result."""
        return RRefProxy(self, "rpc_sync", timeout)

    def rpc_async(self, timeout: float | None = None) -> RRefProxy:
        """A proxy whose methods run on the owner; a call returns a future of the result."""
        return RRefProxy(self, "rpc_async", timeout)

    def remote(self, timeout: float | None = None) -> RRefProxy:
        """A proxy whose methods run on the owner; a call returns an RRef of the result, which stays there."""
        return RRefProxy(self, "remote", timeout)

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Runs backward from the value, a scalar tensor, on its owner; with a context's id, a distributed one in that context."""
        if self._held is not None:
            _backward(self._number, dist_autograd_ctx_id, retain_graph, self._held)
        else:
            rpc.current().call(self.owner(), _backward, (self._number, dist_autograd_ctx_id, retain_graph)).wait()

    def _get_future(self) -> Future | None:
        return self._created


class RRefProxy:
    """Calls methods of an RRef's value on its owner, by one of rpc_sync, rpc_async and remote."""

    def __init__(self, rref: RRef, way: str, timeout: float | None) -> None:
        self.rref, self.rpc_api, self.rpc_timeout = rref, way, timeout

    def __getattr__(self, name: str) -> Callable:
        from . import remote, rpc_async, rpc_sync

        if name.startswith("__") and name.endswith("__") and name not in ("__call__", "__len__", "__getitem__", "__setitem__"):
            raise AttributeError(name)
        ways: dict[str, Callable] = {"rpc_sync": rpc_sync, "rpc_async": rpc_async, "remote": remote}
        way = ways[self.rpc_api]
        rref, timeout = self.rref, -1.0 if self.rpc_timeout is None else self.rpc_timeout

        def method(*args: Any, **kwargs: Any) -> Any:
            return way(rref.owner(), _call_method, args=(rref, name, args, kwargs), timeout=timeout)

        return method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__getattr__("__call__")(*args, **kwargs)


def remote_reference(to: rpc.WorkerInfo, function: Callable, args: tuple, kwargs: dict, timeout: float | None) -> RRef:
    """An RRef of function(*args, **kwargs), which runs on a worker and stays there."""
    agent = rpc.current()
    number = (agent.rank, next(_numbers))
    if to.id == agent.rank:
        held = _look_up(number)
        reference, weight = RRef._of(held), 0
    else:
        reference, weight = RRef._user(to.id, number, WHOLE), WHOLE
    what = f"remote({rpc.name_of(function)})"
    reference._created = agent.call(to, _make, (number, weight, function, args, kwargs), timeout=timeout, what=what)
    rpc.collect(reference._created)
    return reference


# What workers ask of each other


@rpc.asynchronous
def _make(number: tuple, weight: int, function: Callable, args: tuple, kwargs: dict) -> Future:
    """Makes a value here, of which the caller has a reference. Done when the value is there, or couldn't be made."""
    held = _look_up(number)
    try:
        result = function(*args, **kwargs)
        if rpc.is_asynchronous(function):
            result._call_when_done(lambda future: held.value._complete(future._value, future._error))
        else:
            held.value._complete(result, None)
    except BaseException as error:
        agent = rpc.current()
        held.value._complete(None, rpc.remote_error(error, agent.workers[agent.rank]))
    held.made = True
    _weigh(held, weight)
    done: Future = Future()
    held.value._call_when_done(lambda _future: done.set_result(None))
    return done


@rpc.asynchronous
def _fetched(number: tuple) -> Future:
    """The value, when it is there."""
    return _look_up(number).value


def _returned(number: tuple, weight: int) -> None:
    """A reference has ended elsewhere."""
    _weigh(_look_up(number), -weight)


def _granted(number: tuple) -> None:
    """A reference elsewhere has no weight left to share."""
    _weigh(_look_up(number), WHOLE)


def _arrived(owner: int, number: tuple, weight: int) -> RRef:
    """The reference that a message carried: on the owner the value's own, elsewhere a user's."""
    if owner != rpc.current().rank:
        return RRef._user(owner, number, weight)
    held = _look_up(number)
    reference = RRef._of(held)
    _weigh(held, -weight)
    return reference


def _call_method(rref: RRef, name: str, args: tuple, kwargs: dict) -> Any:
    value = rref.local_value()
    if not hasattr(value, name):
        raise AttributeError(f"type object '{type(value).__name__}' has no attribute '{name}'")
    return getattr(value, name)(*args, **kwargs)


def _backward(number: tuple, context_id: int, retain_graph: bool, held: _Held | None = None) -> None:
    from ...tensor import Tensor
    from .. import autograd

    value = (held or _look_up(number)).value.wait()
    if not isinstance(value, Tensor):
        raise RuntimeError(f"RRef should contain a tensor for .backward(), it contains a {type(value).__name__}")
    if context_id == -1:
        value.backward(retain_graph=retain_graph)
    else:
        autograd.backward(context_id, [value], retain_graph)


def _id(pair: tuple | None) -> str:
    return "GloballyUniqueId(created_on={}, local_id={})".format(*(pair or (-1, -1)))


def _seconds(timeout: float | None) -> float | None:
    return None if timeout is None or timeout == -1 else timeout


def debug_info() -> dict[str, str]:
    """How many values others refer to."""
    return {"num_owner_rrefs": str(len(_held))}


def forget_all() -> None:
    """Drops what others referred to: rpc has ended."""
    with _lock:
        _held.clear()
