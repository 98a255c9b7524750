"""Version counters: how often, and when, the memory behind a tensor was written in place."""

from __future__ import annotations

from .state import clock, state


class Version:
    """Counts the in-place writes to one piece of memory and remembers when the latest ones happened."""

    __slots__ = ("count", "stamp", "writes")
    REMEMBERED = 64

    def __init__(self):
        self.count = 0
        self.stamp = 0  # the clock at the last write
        self.writes: list[list[int]] = []  # [first tick, last tick, count] of runs of writes without nodes between

    def tick(self) -> None:
        now = self.stamp = next(clock)
        self.count += 1
        writes = self.writes
        if writes and writes[-1][1] == now - 1:
            writes[-1][1] = now
            writes[-1][2] += 1
        else:
            writes.append([now, now, 1])
            if len(writes) > self.REMEMBERED:
                del writes[0]

    def count_at(self, seq) -> int:
        """The count when the clock showed `seq` (as far back as the remembered writes reach)."""
        return self.count - sum(count for first, _last, count in self.writes if first > seq)


class InferenceVersion(Version):
    """The version of tensors made in inference mode: they may be written, but never saved for backward.

    Its stamp lies after every node, so a node that saved such a tensor finds out when it runs."""

    __slots__ = ()

    def __init__(self):
        super().__init__()
        self.stamp = float("inf")

    def tick(self) -> None:
        """Writes to inference tensors aren't counted."""


class Detached(Version):
    """The version of a tensor that `detach_` took out of its graph: nodes that saved it before find it changed.

    The writes are those of the version that it had, which its views still share."""

    __slots__ = ("at", "shared")
    count = property(lambda self: self.shared.count)  # pyright: ignore
    writes = property(lambda self: self.shared.writes)  # pyright: ignore
    stamp = property(lambda self: max(self.at, self.shared.stamp))  # pyright: ignore

    def __init__(self, shared):
        self.shared, self.at = shared, next(clock)

    def tick(self) -> None:
        self.shared.tick()


def version_of(tensor) -> Version:
    """The tensor's version counter; made when something first needs it, since most tensors are never written."""
    version = tensor.version
    if version is None:
        node = getattr(tensor.node, "parent", tensor.node)  # behind a port
        # Of (values, indices) a node saves only the indices, which have no node.
        saves_output = hasattr(type(node), "saves_output") and not node.op.nondifferentiable
        if saves_output and node.output_version is not None:  # made when somebody looked at the saved output
            version = tensor.version = node.output_version[0]
        else:
            version = tensor.version = Version()
            if saves_output:
                node.output_version = (version, 0)
    return version


def bump(tensor) -> None:
    """Tells autograd that `tensor.array` was written: call it after writing to the array directly."""
    version_of(tensor).tick()
    if state.recorder is not None:
        state.recorder.tensor_written(tensor)
