"""The reducer of DistributedDataParallel: gradients fill flat buckets while backward runs, and full buckets are averaged over the ranks.

Parameters are in buckets in the reverse of their order, which is about the order in which their gradients come. A hook on each leaf
writes its gradient, divided by the number of ranks, into its place in the bucket. A full bucket goes to the communication thread, while
backward goes on; the last one is left to the backward pass itself, which then waits for all. The places in the buckets become the
parameters' gradients: nothing is copied back. Each pass has buckets of its own, so a gradient that the program kept stays as it was.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..autograd.hooks import add_hook
from ..engine import AccumulateGrad
from ..hooks import hooks_of
from ..state import modes
from ..sweeps import running_sweeps
from ..tensor import Tensor
from ..versions import bump
from . import reduction, work
from .reduction import ReduceOp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .groups import ProcessGroup

FIRST_BUCKET = 1 << 20  # bytes after which the first bucket is closed: communication shall begin early
BUCKET = 25 << 20  # and the others

SUM = ReduceOp.SUM
# Of which the unfinished pass's error begins, in PyTorch's words.
UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has "
    "parameters that were not used in producing loss. You can enable unused parameter detection by passing the keyword argument "
    "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by making sure all `forward` function outputs "
    "participate in calculating loss."
)


class Bucket:
    """Parameters whose gradients are averaged together, and the flat array in which they lie."""

    def __init__(self, index: int, members: list[int], shapes: list[tuple], array_type: np.dtype) -> None:
        # Sizes that would shift what follows off the boundaries of vector registers come last.
        order = sorted(range(len(members)), key=lambda k: int(np.prod(shapes[k])) % 16 != 0)
        self.index, self.array_type = index, array_type
        self.members = [members[k] for k in order]
        self.shapes = [shapes[k] for k in order]
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes]).tolist()
        self.places = list(zip([0, *ends], ends, self.shapes))
        self.size = ends[-1]
        self.what = (
            "all_reduce of DistributedDataParallel's bucket",
            dtypes.from_array_type(array_type).name,
            (self.size,),
            str(index),
        )
        self.reset()

    def reset(self) -> None:
        """Empties it for the next pass."""
        self.missing = len(self.members)  # parameters whose gradients haven't come yet
        self.flat: Any = None
        self.slots: list[np.ndarray] = []
        self.work: Any = None

    def open(self) -> None:
        """Makes the array."""
        flat = self.flat = np.empty(self.size, self.array_type)
        self.slots = [flat[a:b].reshape(shape) for a, b, shape in self.places]


def assigned(sizes: list[int], types: list[np.dtype], limits: list[int]) -> list[list[int]]:
    """Parameters' indices in buckets: in the given order, by type, closed when they reach the next limit (bytes; the last one stays)."""
    buckets: list[list[int]] = []
    open_ones: dict[np.dtype, tuple[list[int], int, int]] = {}  # (members, bytes, which limit)
    for index, (size, array_type) in enumerate(zip(sizes, types)):
        members, total, limit = open_ones.pop(array_type, ([], 0, 0))
        members.append(index)
        if total + size >= limits[limit]:
            buckets.append(members)
            open_ones[array_type] = [], 0, min(limit + 1, len(limits) - 1)
        else:
            open_ones[array_type] = members, total + size, limit
    return buckets + [members for members, _, _ in open_ones.values() if members]


class GradBucket:
    """What a communication hook gets: the gradients of one bucket as one flat tensor."""

    def __init__(self, bucket: Bucket, parameters: list[Tensor], last: bool) -> None:
        self._bucket, self._parameters, self._last = bucket, parameters, last
        self._tensor = Tensor._from(bucket.flat)

    def buffer(self) -> Tensor:
        """The gradients of all its parameters, one after the other, in one dimension."""
        return self._tensor

    def set_buffer(self, tensor: Tensor) -> None:
        """Puts another tensor in the place of `buffer()`."""
        self._tensor = tensor

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of `buffer()` in the shapes of the parameters."""
        return [self._tensor[a:b].view(shape) for a, b, shape in self._bucket.places]

    def parameters(self) -> list[Tensor]:
        """The parameters, in the same order."""
        return list(self._parameters)

    def index(self) -> int:
        """The bucket's number."""
        return self._bucket.index

    def is_last(self) -> bool:
        """Whether it is the last bucket of the backward pass."""
        return self._last


class _Arrival:
    """The hook on a parameter's leaf. It doesn't keep the reducer, and with it the parameters, alive."""

    __slots__ = ("index", "reducer")

    def __init__(self, reducer: Reducer, index: int) -> None:
        self.reducer, self.index = weakref.ref(reducer), index

    def __call__(self, _inputs: Any, _outputs: Any) -> None:
        reducer = self.reducer()
        if reducer is not None and reducer.expecting:
            reducer.arrived(self.index)


class Reducer:
    """Averages the gradients of `parameters` (of names `names`) over a group in each backward pass for which `prepare` was called."""

    def __init__(
        self,
        parameters: list[Tensor],
        names: list[str],
        group: ProcessGroup,
        limits: list[int],
        find_unused: bool = False,
        static: bool = False,
    ) -> None:
        self.parameters, self.names, self.group = parameters, names, group
        self.find_unused, self.static = find_unused, static
        self.leaves: list[AccumulateGrad] = [parameter.node for parameter in parameters]
        self.index_of = {leaf: i for i, leaf in enumerate(self.leaves)}
        self.hook: Callable | None = None
        self.hook_state: Any = None
        self.make_buckets(limits)
        self.expecting = False  # whether gradients of the next backward pass are to be averaged
        self.running = False  # whether a pass has begun and not ended
        self.done: set[int] = set()  # parameters that are ready in this pass
        self.unused: list[int] = []  # what the graph of the last forward doesn't reach
        self.firings: list[int] | None = (
            None  # static graph: how often each parameter's hook runs in a pass, once that is known
        )
        self.left: list[int] = []
        self.factor = 1 / group.size()
        self.handles = [add_hook(hooks_of(leaf).post, _Arrival(self, i)) for i, leaf in enumerate(self.leaves)]

    def make_buckets(self, limits: list[int]) -> None:
        """Distributes the parameters over buckets."""
        order = list(reversed(range(len(self.parameters))))
        arrays = [self.parameters[i].array for i in order]
        grouped = assigned([array.nbytes for array in arrays], [array.dtype for array in arrays], limits)
        # In the order in which they are complete: by their last member.
        members = sorted(([order[k] for k in ones] for ones in grouped), key=lambda ones: -ones[-1])
        self.buckets = [
            Bucket(i, ones, [self.parameters[k].array.shape for k in ones], self.parameters[ones[0]].array.dtype)
            for i, ones in enumerate(members)
        ]
        self.place_of = {i: (bucket, k) for bucket in self.buckets for k, i in enumerate(bucket.members)}

    def prepare(self, outputs: Iterable[Tensor]) -> None:
        """After a forward whose backward pass is to be averaged."""
        self.expecting, self.running = True, False
        self.done.clear()
        self.next = 0
        for bucket in self.buckets:
            bucket.reset()
        if self.find_unused and not self.static:
            reached = _leaves_behind(outputs)
            self.unused = [i for i, leaf in enumerate(self.leaves) if leaf not in reached]
            if len(self.unused) == len(self.leaves):  # no output requires grad: there will be no backward
                self.unused = []

    def unfinished(self) -> list[int]:
        """The parameters that got no gradient in a backward pass which began and didn't end; empty if there is none."""
        return [i for i in range(len(self.leaves)) if i not in self.done] if self.running else []

    # During backward

    def arrived(self, index: int) -> None:
        """A gradient was accumulated."""
        if not self.running:
            self._begin()
        if self.static:
            self.left[index] -= 1
            if self.firings is None or self.left[index]:
                return  # in the first pass all buckets wait for its end: only then is known how often each hook runs
        self._ready(index)

    def _begin(self) -> None:
        self.running = True
        running_sweeps()[0].callbacks.append(self._finish)
        if self.static:
            self.left = [0] * len(self.leaves) if self.firings is None else list(self.firings)
        for index in self.unused:
            self._ready(index)

    def _ready(self, index: int) -> None:
        if index in self.done:
            raise RuntimeError(
                "Expected to mark a variable ready only once. This error is caused by one of the following reasons: 1) Use of a module "
                "parameter outside the `forward` function. Please make sure model parameters are not shared across multiple concurrent "
                "forward-backward passes, or try to use _set_static_graph() as a workaround if this module graph does not change during "
                "training loop. 2) Reused parameters in multiple reentrant backward passes. For example, if you use multiple `checkpoint` "
                "functions to wrap the same part of your model, it would result in the same set of parameters been used by different "
                f"reentrant backward passes multiple times.\nIt is the parameter {self.names[index]}, at index {index}."
            )
        self.done.add(index)
        bucket, k = self.place_of[index]
        if bucket.flat is None:
            bucket.open()
        grad, slot = _owner(self.leaves[index]).grad, bucket.slots[k]
        if grad is None:
            slot[...] = 0
        elif self.hook is None and self.factor != 1:
            np.multiply(grad.array, self.array_factor(slot), out=slot)
        else:
            slot[...] = grad.array
        bucket.missing -= 1
        while self.next < len(self.buckets) and not self.buckets[self.next].missing:
            self.next += 1
            self._launch(self.buckets[self.next - 1])

    def array_factor(self, slot: np.ndarray) -> Any:
        """One over the number of ranks, in the type of an array."""
        return slot.dtype.type(self.factor)

    def _launch(self, bucket: Bucket) -> None:
        last = self.next == len(self.buckets)
        if self.hook is not None:
            members = [self.parameters[i] for i in bucket.members]
            bucket.work = self.hook(self.hook_state, GradBucket(bucket, members, last))
        elif self.group.size() > 1:
            communicator, flat = self.group.communicator, bucket.flat
            action = lambda: reduction.all_reduce(communicator, flat, SUM)
            bucket.work = work.enqueue(self.group, bucket.what, action, [], wake=not last)

    # After backward

    def _finish(self) -> None:
        if self.static and self.firings is None:
            self.firings = [-n for n in self.left]
            self.unused = [i for i, n in enumerate(self.firings) if not n]
            for index in range(len(self.leaves)):
                self._ready(index)
        if self.next < len(self.buckets):
            return  # the next forward says which gradients are missing
        used = self._used_somewhere()
        for bucket in self.buckets:
            if bucket.work is not None:
                result = bucket.work.wait()
                if self.hook is not None:
                    self._take(bucket, result)
            for i, slot in zip(bucket.members, bucket.slots):
                if used[i]:
                    _replace(_owner(self.leaves[i]), slot)
            bucket.reset()  # the gradients alone keep the memory
        self.expecting = self.running = False

    def _used_somewhere(self) -> list:
        """For each parameter whether any rank used it in this pass: the others keep what they have."""
        if not (self.find_unused or self.static):
            return [True] * len(self.leaves)
        used = np.ones(len(self.leaves), np.uint8)
        used[self.unused] = 0
        what = ("all_reduce of DistributedDataParallel's used parameters", "uint8", used.shape, "")
        action = lambda: reduction.all_reduce(self.group.communicator, used, ReduceOp.MAX)
        work.enqueue(self.group, what, action, [], wake=False).wait()
        return used.tolist()

    def _take(self, bucket: Bucket, result: Any) -> None:
        """Uses what a communication hook returned."""
        tensor = result[0] if isinstance(result, (list, tuple)) else result
        if not isinstance(tensor, Tensor) or tensor.array.size != bucket.size:
            raise RuntimeError(
                f"Communication hook: expected the result of the future to be a tensor of {bucket.size} elements, got "
                f"{list(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__}"
            )
        flat = tensor.array.reshape(-1)
        if flat.dtype != bucket.array_type or not flat.flags.c_contiguous:
            flat = flat.astype(bucket.array_type, order="C")
        bucket.slots = [flat[a:b].reshape(shape) for a, b, shape in bucket.places]


def _owner(leaf: AccumulateGrad) -> Any:
    """What has the leaf's gradient in `grad`: the leaf, or in a pass across workers the context."""
    return leaf if modes.distributed is None else modes.distributed.gradient(leaf)


def _replace(owner: Any, array: np.ndarray) -> None:
    """Makes an array the contents of a gradient: its memory if nobody else sees the old one, else its values."""
    grad = owner.grad
    if grad is None:
        owner.grad = Tensor._from(array)
        return
    if _is_private(grad.array):
        grad.array = array
    else:
        grad.array[...] = array
    bump(grad)


def _is_private(array: np.ndarray) -> bool:
    """Whether only a gradient tensor refers to this array, and only the array to its memory. Called as `_is_private(grad.array)`."""
    base = array.base
    return sys.getrefcount(array) <= _seen[0] and (
        base is None or (base.size == array.size and sys.getrefcount(base) <= _seen[1])
    )


_seen = [1 << 30, 1 << 30]  # the reference counts that a private array and its base show here, which depends on the interpreter


def _measure() -> None:
    class Probe:
        array: Any = None

    def look(array: np.ndarray) -> list[int]:
        base = array.base
        return [sys.getrefcount(array), sys.getrefcount(base)]

    probe = Probe()
    probe.array = np.ones((2, 3)).T
    _seen[:] = look(probe.array)


_measure()


def _leaves_behind(outputs: Iterable[Tensor]) -> set:
    """The leaves that the graph of these tensors reaches."""
    nodes: list[Any] = [tensor.node for tensor in outputs if tensor.requires_grad and tensor.node is not None]
    seen: set = set(nodes)
    for node in nodes:  # grows while it is walked
        for edge in node.edges:
            if edge is not None and edge not in seen:
                seen.add(edge)
                nodes.append(edge)
    return {node for node in seen if type(node) is AccumulateGrad}
