"""`Ranks`: the records of several processes that ran one backward pass together, as one call order.

Clocks of processes don't agree, messages do: a gradient is sent (by a `RecvRpcBackward`) before it arrives (at the `SendRpcBackward` that
sent the tensor). The order here is one that the messages allow: it follows a gradient to the rank that it is sent to, and stays there until that
rank waits or sends one in turn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .schema import Pass, Step

SENDS, WAITS = "RecvRpcBackward", "SendRpcBackward"


@dataclass(slots=True, eq=False)
class RankStep:
    """Step `step` of rank `rank`, as number `index` (from 1) of all. `sends_to`: the step that gets its gradient on another rank, `waits_for`:
    the one that sent it; None if there is none."""

    index: int
    rank: int
    step: Step
    sends_to: RankStep | None = None
    waits_for: RankStep | None = None


class Ranks:
    """The records of several ranks. `passes`: for each backward pass that they ran together, {rank: its part}.

    records: those that `gather` collected, or that `Ranks.read` read from files. ValueError if two are of the same rank.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records: dict[int, Record] = {}
        for i, record in enumerate(records):
            rank = i if record.rank is None else record.rank
            if rank in self.records:
                raise ValueError(f"two of the {len(records)} records are of rank {rank}")
            self.records[rank] = record
        self.passes: list[dict[int, Pass]] = []
        together: dict[Any, dict[int, Pass]] = {}
        for rank, record in sorted(self.records.items()):
            for one in record.passes:
                key = tuple(one.distributed["number"]) if one.distributed else (rank, "alone", one.number)
                if key not in together:
                    together[key] = {}
                    self.passes.append(together[key])
                together[key][rank] = one

    @classmethod
    def read(cls, paths: Iterable[str | os.PathLike[str]]) -> Ranks:
        """The records in files that `Record.to_jsonl` wrote, one for each rank."""
        return cls([Record.read(path) for path in paths])

    def __repr__(self) -> str:
        return f"<Ranks of {len(self.records)} records: {len(self.passes)} backward passes>"

    def order(self, number: int = 0) -> list[RankStep]:
        """The steps of a pass on all ranks, in an order that the messages between them allow."""
        if not 0 <= number < len(self.passes):
            raise IndexError(f"there is no pass {number}: the records have {len(self.passes)}")
        left = {rank: list(reversed(one.steps)) for rank, one in self.passes[number].items()}
        sent: dict[Any, RankStep] = {}  # by message
        result: list[RankStep] = []
        here = self._first_rank(number)
        while True:
            here = self._ready(left, sent, here)
            if here is None:
                return result
            step = left[here].pop()
            one = RankStep(len(result) + 1, here, step)
            result.append(one)
            message: Any = step.node.parameters.get("message")
            if step.node.name == SENDS:
                sent[message] = one
                here = step.node.parameters["rank"]
            elif step.node.name == WAITS and message in sent:
                one.waits_for = sent[message]
                one.waits_for.sends_to = one

    def _first_rank(self, number: int) -> int:
        """The rank whose part has roots."""
        parts = self.passes[number]
        return next((rank for rank, one in parts.items() if one.roots or one.root_edges), next(iter(parts)))

    @staticmethod
    def _ready(left: dict[int, list[Step]], sent: dict[Any, RankStep], here: int | None) -> int | None:
        """`here` if its next step can run, else the first rank whose next step can. Where a message isn't in the records, nobody waits."""

        def can_run(rank: int) -> bool:
            node = left[rank][-1].node
            return node.name != WAITS or node.parameters.get("message") in sent or node.parameters.get("rank") not in left

        ranks = [rank for rank in [here, *left] if rank is not None and left.get(rank)]
        return next((rank for rank in ranks if can_run(rank)), ranks[0] if ranks else None)

    def to_text(self, width: int = 80, steps: int = 100, passes: int = 3) -> str:
        """Tables with a column for the rank, as plain text that is at most `width` columns wide: of the first `passes` the first `steps`."""
        from .render import ranks

        return ranks.to_text(self, width, steps, passes)

    def to_dot(self, number: int = 0, *, path: str | os.PathLike[str] | None = None) -> str:
        """The graph of a pass in Graphviz' language, with a frame for each rank and edges between them where gradients are sent."""
        from .render import ranks

        return Record._written(ranks.to_dot(self, number), path)


def gather(record: Record, to: int = 0) -> Ranks | None:
    """The records of all ranks of an MPI job, on rank `to`; None on the others. All ranks must call it, after their recordings.

    with torch.inspect.record("norms") as record:
        ...  # on every rank, with rpc.shutdown() inside, so that all record until the end
    ranks = torch.inspect.gather(record)
    if ranks:
        print(ranks.to_text())
    """
    from ..distributed import mpi

    world = mpi.library().COMM_WORLD
    record.rank = world.rank
    mpi.barrier(mpi.DEFAULT_TIMEOUT, "in inspect.gather")
    texts = world.gather(record.to_jsonl(), root=to)
    return None if texts is None else Ranks([Record.from_jsonl(text) for text in texts])
