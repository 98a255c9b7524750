"""Messages between workers: how objects become bytes, and bytes travel.

A message is one header, which holds the pickled object, and the memory of its tensors, which is never pickled. Small messages are one
piece; what is larger than INLINE is received straight into the memory of the new tensors, in pieces that MPI can count.
"""

from __future__ import annotations

import io
import itertools
import pickle
import struct
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import dtypes
from ...tensor import Parameter, Tensor
from .. import mpi
from ..work import pieces

INLINE = 256 * 1024  # bytes of tensors that travel in the header's message: copying them costs less than a message of their own
_ALIGNMENT = 16
_HEADER = struct.Struct("<BqqqqI")  # kind, number, context, autograd number, buffers' first tag, number of buffers

_this_thread = threading.local()


@dataclass(slots=True)
class Message:
    """What one worker sends another. `number` names the call that it makes or answers; `context` and `autograd` are -1 for none.

    kind: what to do with it. content: any object. tensors: those in it, in the order in which they were met. `unopened`: of a message that has
    been received, what its content is to be made of: the header's memory, the first tag of what follows (-1: nothing does), how many buffers."""

    kind: int
    number: int
    content: Any
    context: int = -1
    autograd: int = -1
    source: int = -1
    tensors: list[Any] = field(default_factory=list)
    unopened: tuple[bytearray, int, int] | None = None

    @property
    def whole(self) -> bool:
        """Whether all of it is here: none of its memory follows."""
        return self.unopened is None or self.unopened[1] < 0


# Objects and bytes


def _reduce_tensor(tensor: Any, tensors: list) -> Any:
    """How a tensor is pickled: dtype and shape here, its memory out of band."""
    if type(tensor) is Parameter:
        data = Tensor._from(tensor.array)
        tensors.append(data)
        return _parameter, (*_memory(tensor.array), tensor.requires_grad)
    tensors.append(tensor)
    return _tensor, (*_memory(tensor.array), tensor.requires_grad)


def _memory(array: np.ndarray) -> tuple:
    contiguous = np.ascontiguousarray(array)
    data: Any = contiguous.reshape(-1).view(np.uint8)
    return pickle.PickleBuffer(data), dtypes.from_array_type(array.dtype), array.shape


def _array(buffer: Any, dtype: Any, shape: tuple) -> np.ndarray:
    return np.ndarray(shape, dtype.array_type, buffer)


def _tensor(buffer: Any, dtype: Any, shape: tuple, requires_grad: bool) -> Any:
    tensor = Tensor._from(_array(buffer, dtype, shape))
    if requires_grad:
        tensor.requires_grad_()
    _this_thread.tensors.append(tensor)
    return tensor


def _parameter(buffer: Any, dtype: Any, shape: tuple, requires_grad: bool) -> Any:
    data = Tensor._from(_array(buffer, dtype, shape))
    _this_thread.tensors.append(data)
    return Parameter(data, requires_grad)


class _Pickler(pickle.Pickler):
    """Pickles with tensors out of band. What only cloudpickle can do (lambdas, local functions and classes) raises."""

    def __init__(self, file: Any, buffers: list, tensors: list):
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.tensors = tensors

    def reducer_override(self, obj: Any) -> Any:
        return _reduce_tensor(obj, self.tensors) if type(obj) in (Tensor, Parameter) else NotImplemented


def _cloud_pickler(file: Any, buffers: list, tensors: list) -> Any:
    try:
        import cloudpickle
    except ImportError:
        raise ImportError(
            "Sending a lambda, or a function or class that is defined inside another, needs cloudpickle: pip install 'backlight[distributed]'"
        ) from None

    class CloudPickler(cloudpickle.Pickler):
        def reducer_override(self, obj: Any) -> Any:
            return _reduce_tensor(obj, tensors) if type(obj) in (Tensor, Parameter) else super().reducer_override(obj)

    return CloudPickler(file, protocol=5, buffer_callback=buffers.append)


def pickled(content: Any) -> tuple[bytes, list[memoryview], list[Any]]:
    """An object as bytes, the memory that they refer to, and the tensors in it. Lambdas and local functions travel by value."""
    try:
        return _pickled(content, _Pickler)
    except (pickle.PicklingError, AttributeError, TypeError):  # what a lambda or a local class gives differs between Pythons
        return _pickled(content, _cloud_pickler)


def _pickled(content: Any, pickler: Any) -> tuple[bytes, list[memoryview], list[Any]]:
    outer = getattr(_this_thread, "undo", None)
    _this_thread.undo = undo = []
    try:
        file, buffers, tensors = io.BytesIO(), [], []
        pickler(file, buffers, tensors).dump(content)
        return file.getvalue(), [buffer.raw() for buffer in buffers], tensors
    except BaseException:
        for act in undo:
            act()
        raise
    finally:
        _this_thread.undo = outer


def sending() -> bool:
    """Whether this thread is pickling a message: what must not be pickled for other purposes asks."""
    return getattr(_this_thread, "undo", None) is not None


def when_not_sent(act: Any) -> None:
    """Has a function called if the message that this thread is pickling can't be pickled."""
    _this_thread.undo.append(act)


def unpickled(data: Any, buffers: list) -> tuple[Any, list[Any]]:
    """The object, and the tensors in it in the order in which they were pickled."""
    outer = getattr(_this_thread, "tensors", None)
    _this_thread.tensors = tensors = []
    try:
        return pickle.loads(data, buffers=buffers), tensors
    finally:
        _this_thread.tensors = outer


# Bytes on their way


class Channel:
    """Sends and receives messages among all processes of the job, from any thread."""

    def __init__(self) -> None:
        self.MPI = mpi.library()
        self.headers = self.MPI.COMM_WORLD.Dup()
        self.memory = self.MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.headers.rank, self.headers.size
        largest = self.headers.Get_attr(self.MPI.TAG_UB)
        self._tags = itertools.cycle(range(0, largest - 4096, 64))
        self._status = self.MPI.Status()

    def send(self, to: int, message: Message, packed: tuple, timeout: float | None, what: str) -> None:
        """Returns when the memory of the message may be written again, which for small ones is at once."""
        data, buffers, _tensors = packed
        sizes = [len(data), *(buffer.nbytes for buffer in buffers)]
        inline = sum(sizes) <= INLINE
        following = [] if inline else _pieces([memoryview(data), *buffers])
        tag = -1 if inline else next(self._tags)
        parts = [
            _HEADER.pack(message.kind, message.number, message.context, message.autograd, tag, len(sizes)),
            struct.pack(f"<{len(sizes)}q", *sizes),
        ]
        if inline:
            position = sum(map(len, parts))
            for part in (data, *buffers):
                padding = -position % _ALIGNMENT
                parts += (bytes(padding), part)
                position += padding + len(part)
        header = b"".join(parts)
        requests = [self.headers.Isend(header, to, 0)]
        requests += [self.memory.Isend([piece, self.MPI.BYTE], to, tag + i % 64) for i, piece in enumerate(following)]
        self._complete(requests, timeout, f"worker {to} hasn't taken the message ({sum(sizes):,} bytes): {what}")

    def receive(self) -> Message | None:
        """What came, not yet unpickled (see `open`), or None."""
        message = self.headers.Improbe(self.MPI.ANY_SOURCE, 0, self._status)
        if message is None:
            return None
        source, count = self._status.Get_source(), self._status.Get_count(self.MPI.BYTE)
        header = bytearray(count)
        message.Recv([header, self.MPI.BYTE])
        kind, number, context, autograd, tag, count = _HEADER.unpack_from(header)
        return Message(kind, number, None, context, autograd, source, unopened=(header, tag, count))

    def open(self, message: Message, timeout: float | None) -> None:
        """Makes a message's content and tensors of what came, once. Waits for what is still on its way."""
        if message.unopened is None:
            return
        (header, tag, count), message.unopened = message.unopened, None
        sizes = struct.unpack_from(f"<{count}q", header, _HEADER.size)
        if tag < 0:
            view, position, buffers = memoryview(header), _HEADER.size + 8 * count, []
            for size in sizes:
                position += -position % _ALIGNMENT
                buffers.append(view[position : position + size])
                position += size
        else:
            memory: list[Any] = [np.empty(size, np.uint8) for size in sizes]
            buffers = [memoryview(array) for array in memory]
            parts = enumerate(_pieces(buffers))
            requests = [self.memory.Irecv([piece, self.MPI.BYTE], message.source, tag + i % 64) for i, piece in parts]
            what = f"the rest of a message from worker {message.source} ({sum(sizes):,} bytes) didn't come"
            self._complete(requests, timeout, what)
        message.content, message.tensors = unpickled(buffers[0], buffers[1:])

    def _complete(self, requests: list, timeout: float | None, what: str) -> None:
        Request = self.MPI.Request

        def late() -> BaseException:
            for request in requests:
                request.Cancel()
            return mpi.DistributedTimeoutError(f"rank {self.rank}: {what} in {timeout:g} s")

        mpi.wait_for(lambda: Request.Testall(requests), timeout, late)


def _pieces(buffers: list) -> list:
    return [piece for buffer in buffers for piece in pieces(buffer)]
