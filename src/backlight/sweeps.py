"""What surrounds a sweep: the sweeps that run, a thread for deeply nested ones, and PyTorch's order of tied leaves."""

from __future__ import annotations

import threading
from itertools import count
from operator import attrgetter, methodcaller

from .state import modes, set_grad_mode, set_levels, state


class Sweep:
    """A running sweep, for hooks and checkpoints that ask about it."""

    __slots__ = ("buffers", "callbacks", "capture", "keep", "number", "steps", "targets")
    numbers = count()

    def __init__(self, buffers, steps, targets, keep, capture):
        self.number, self.callbacks = next(self.numbers), []
        self.buffers, self.steps, self.targets, self.keep, self.capture = buffers, steps, targets, keep, capture


_this_thread = threading.local()


def running_sweeps() -> list[Sweep]:
    """The sweeps of this thread, the innermost last."""
    return _this_thread.__dict__.setdefault("sweeps", [])


def current_sweep() -> Sweep | None:
    """This thread's innermost sweep, None outside of backward."""
    running = running_sweeps()
    return running[-1] if running else None


def in_thread(function, *args):
    """function(*args) in a thread of its own, in this thread's modes."""
    outcome: dict = {}
    enabled, levels = modes.grad, modes.levels

    def work():
        set_grad_mode(enabled)
        set_levels(levels)
        try:
            outcome["result"] = function(*args)
        except BaseException as error:  # handed to the caller
            outcome["error"] = error
        finally:
            set_grad_mode(True)  # the thread ends: it must not count as one with grad mode off
            set_levels(())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]


class ReadyQueue:
    """PyTorch's ready queue, a binary heap by sequence number whose ties (several leaves ready at once) fall as the C++ library's
    heap lets them fall."""

    def __init__(self, number):
        self.number = number  # a function: the sequence number of a node
        self.heap: list = []

    def push(self, node) -> None:
        self.heap.append(node)
        self._sift_up(len(self.heap) - 1, node)

    def pop(self):
        heap, number = self.heap, self.number
        top, node = heap[0], heap.pop()
        if heap:
            hole, child = 0, 2
            while child < len(heap):
                if number(heap[child]) < number(heap[child - 1]):
                    child -= 1
                heap[hole] = heap[child]
                hole, child = child, 2 * child + 2
            if child == len(heap):
                heap[hole] = heap[child - 1]
                hole = child - 1
            self._sift_up(hole, node)
        return top

    def _sift_up(self, i, node) -> None:
        heap, number = self.heap, self.number
        while i and number(heap[(i - 1) // 2]) < number(node):
            heap[i] = heap[(i - 1) // 2]
            i = (i - 1) // 2
        heap[i] = node


def ready_queue_order(start, nodes):
    """The order of PyTorch's ready queue. The sorted order is the same but for three or more tied leaves."""
    waiting = dict.fromkeys(nodes, 0)
    for node in nodes:
        for parent in node.edges:
            if parent is not None:
                waiting[parent] = waiting.get(parent, 0) + 1
    order = []
    queue = ReadyQueue(methodcaller("_sequence_nr") if state.renumbered else attrgetter("seq"))
    queue.push(start)
    while queue.heap:
        node = queue.pop()
        order.append(node)
        for parent in node.edges:
            if parent is not None:
                waiting[parent] -= 1
                if not waiting[parent]:
                    queue.push(parent)
    return order[1:]
