"""send and recv: tensors from one rank to another.

They don't pass through the queue of collectives: MPI matches them by sender, tag and order alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tensor import Tensor
from ..versions import bump
from . import mpi, work
from .collectives import check_tensor, flattened, is_flat
from .groups import ProcessGroup, is_outside, resolve, root_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Message(work.Work):
    """A tensor that is being sent or received: `wait()` returns when it is done."""

    def __init__(self, group: ProcessGroup, direction: str, tensor: Tensor, peer: int, tag: int) -> None:
        super().__init__(
            group, (direction, str(tensor.dtype).removeprefix("torch."), tensor.array.shape, ""), None, [tensor], group.timeout
        )
        self.array, self.peer, self.tag = tensor.array, peer, tag
        self.source = peer  # the group rank from which a message came
        self.flat = flattened(self.array)
        self.requests: list[Any] = []
        MPI = mpi.library()
        parts = work.pieces(self.flat.view(np.uint8)) or [self.flat.view(np.uint8)]
        for part in parts:
            start = group.messages.Isend if direction == "send" else group.messages.Irecv
            self.requests.append(start([part, MPI.BYTE], peer, tag))

    def describe(self) -> str:
        """The message in words: "recv of float32 [10] from rank 1 with tag 0 in the default group"."""
        direction = self.what[0]
        peer = "any rank" if self.peer < 0 else f"rank {self.group.ranks[self.peer]}"
        return f"{work.described(self.what)} {'to' if direction == 'send' else 'from'} {peer} with tag {self.tag} in {self.group.description}"

    def is_completed(self) -> bool:
        """Whether it is done. A message makes progress while somebody asks or waits."""
        while self.requests:
            status = mpi.library().Status()
            if not self.requests[0].Test(status):
                return False
            self.requests.pop(0)
            if self.what[0] == "recv":
                self._check(status)
        if not self.completed:
            self.completed = True
            if self.what[0] == "recv" and not is_flat(self.array):
                self.array[...] = self.flat.reshape(self.array.shape)
            if self.future is not None:
                self._resolve()
        return True

    def _check(self, status: Any) -> None:
        self.source = status.Get_source()
        expected, came = min(self.flat.nbytes, work.PIECE), status.Get_count(mpi.library().BYTE)
        if not self.requests and len(self.flat) and self.flat.nbytes > work.PIECE:
            expected = self.flat.nbytes % work.PIECE or work.PIECE
        if came != expected and self.error is None:
            self.error = RuntimeError(f"{self.describe()}: a message of {came} bytes came, and the tensor has {expected}")

    def wait(self, timeout: Any = None) -> bool:
        """Waits until the tensor was sent or has arrived; True. DistributedTimeoutError after `timeout` seconds (or the group's)."""
        start = time.perf_counter()
        limit = self.timeout if timeout is None else mpi.seconds(timeout)

        def late() -> BaseException:
            if self.what[0] == "recv":
                for request in self.requests:
                    request.Cancel()
            own = self.group.global_rank
            return mpi.DistributedTimeoutError(
                f"rank {own} waited {time.perf_counter() - start:.1f} s for its {self.describe()}."
            )

        try:
            mpi.wait_for(self.is_completed, limit, late)
        except mpi.library().Exception as error:  # the message is longer than the tensor
            raise RuntimeError(f"{self.describe()}: {error}: a message came that is larger than the tensor") from error
        if self.error is not None:
            raise self.error
        return True

    def _source_rank(self) -> int:
        return self.group.ranks[self.source]


def _message(direction: str, tensor: Any, group: Any, rank: int | None, tag: int, group_rank: int | None) -> Message | None:
    check_tensor(tensor, "tensor")
    if is_outside(group, direction):
        return None
    group = resolve(group)
    name = "dst" if direction == "send" else "src"
    anyone = direction == "recv" and rank is None and group_rank is None
    peer = mpi.library().ANY_SOURCE if anyone else root_in(group, name, rank, group_rank)
    if peer == group.rank():
        word = "destination" if direction == "send" else "source"
        raise ValueError(f"Invalid {word} rank: {word} rank should not be the same as the rank of the current process.")
    if anyone and tensor.array.nbytes > work.PIECE:
        raise ValueError("A tensor of more than 1 GiB can't be received from any rank: give src")
    if not isinstance(tag, int) or tag < 0:
        raise ValueError(f"tag must be an integer of 0 or more, got {tag!r}")
    if direction == "recv":
        bump(tensor)
    return Message(group, direction, tensor, peer, tag)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends a tensor to rank `dst`, whose `recv` gives a tensor of the same size and dtype. May wait until that was called."""
    message = _message("send", tensor, group, dst, tag, group_dst)
    if message is not None:
        message.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Writes the tensor that rank `src` sends (by default any rank) into `tensor`, and returns the sender's rank.

    RuntimeError if the sizes differ, DistributedTimeoutError if nothing comes within the group's timeout."""
    message = _message("recv", tensor, group, src, tag, group_src)
    if message is None:
        return -1
    message.wait()
    return message._source_rank()


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Message | None:
    """send that returns at once; don't write to the tensor before the result's `wait()` has returned."""
    return _message("send", tensor, group, dst, tag, group_dst)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Message | None:
    """recv that returns at once; the tensor has its new contents when the result's `wait()` has returned."""
    return _message("recv", tensor, group, src, tag, group_src)


class P2POp:
    """One of the messages of `batch_isend_irecv`. op: `torch.distributed.isend` or `irecv`; peer: a global rank."""

    def __init__(
        self,
        op: Callable,
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``."
            )
        check_tensor(tensor, "tensor")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list:
    """Starts all these messages and returns their Works."""
    if not p2p_op_list or not all(isinstance(one, P2POp) for one in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to be of type ``torch.distributed.P2POp``.")
    started = [one.op(one.tensor, one.peer, one.group, one.tag, one.group_peer) for one in p2p_op_list]
    return [message for message in started if message is not None]
