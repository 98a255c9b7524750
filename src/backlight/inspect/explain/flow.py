"""How values flowed through the operations of a record: what consumed a tensor, what produced it, where a path was cut."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..record import Record
    from ..schema import Mode, Op, Pass, Step, Tensor


class Flow:
    """Questions about one record, each answered by a walk without recursion."""

    def __init__(self, record: Record):
        self.record = record
        self.consumers: dict[int, list[Op]] = defaultdict(list)
        self.producers: dict[int, list[Op]] = defaultdict(list)
        for op in record.ops:
            for tensor in op.inputs:
                self.consumers[tensor.number].append(op)
            for tensor in op.outputs:
                self.producers[tensor.number].append(op)
        self.grad_off = [mode for mode in record.modes if mode.mode == "grad"]
        self._sources: dict[int, dict[int, list[tuple[Step, int]]]] = {}

    def start_of(self, one: Pass) -> int:
        """Since when the forward of a pass may have run: the last optimizer call before it, else the beginning."""
        return max((x.at for x in self.record.optimizers if x.at < one.at), default=-1)

    def uses(self, tensor: Tensor, one: Pass) -> list[Op]:
        """The operations before a pass that read the tensor, without those that only write it (initialisation)."""
        start = self.start_of(one)
        return [
            op
            for op in self.consumers[tensor.number]
            if start < op.at < one.at and tensor not in op.outputs and op.function != "grad"
        ]

    def after(self, tensor: Tensor, one: Pass, uses: Iterable[Op], along_gradients: bool = False) -> tuple[list[Op], set[int]]:
        """(operations, numbers of tensors) that these uses of a tensor flowed into, before the pass. along_gradients: as far as no
        cut lies between."""
        todo, ops, reached = list(uses), {}, {tensor.number}
        for op in todo:  # grows while it is walked
            if op.number in ops or op.at > one.at:
                continue
            ops[op.number] = op
            if along_gradients and op.cut is not None:
                continue
            for output in op.outputs:
                for one_of in (output, *([output.base] if output.base is not None and op.function.endswith("_") else ())):
                    if one_of.number not in reached and not (along_gradients and not one_of.requires_grad):
                        reached.add(one_of.number)
                        todo += [x for x in self.consumers[one_of.number] if x.at > op.at]
        return sorted(ops.values(), key=lambda x: x.at), reached

    def before(self, tensors: Iterable[Tensor], one: Pass) -> tuple[list[Op], set[int]]:
        """(operations, numbers of tensors) whose values flowed into these tensors, before the pass."""
        todo, ops, seen = list(tensors), {}, set()
        for tensor in todo:  # grows while it is walked
            if tensor.number in seen:
                continue
            seen.add(tensor.number)
            if tensor.base is not None:
                todo.append(tensor.base)
            for op in self.producers[tensor.number]:
                if op.at < one.at and op.number not in ops:
                    ops[op.number] = op
                    todo += op.inputs
        return sorted(ops.values(), key=lambda x: x.at), seen

    def switched_off(self, op: Op) -> Mode | None:
        """What had switched grad mode off when an operation ran."""
        last = None
        for mode in self.grad_off:
            if mode.at > op.at:
                break
            if mode.thread == op.thread:
                last = mode
        return last if last is not None and not last.enabled else None

    def sources(self, one: Pass) -> dict[int, list[tuple[Step, int]]]:
        """For each node of a pass by number: the steps that passed it a gradient, and along which of their edges."""
        found = self._sources.get(one.number)
        if found is None:
            found = self._sources[one.number] = defaultdict(list)
            for step in one.steps:
                for i, edge in enumerate(step.node.edges):
                    if edge is not None and i < len(step.passed) and step.passed[i] is not None:
                        found[edge.node.number].append((step, i))
        return found
