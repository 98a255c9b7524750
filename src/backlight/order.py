"""The order of PyTorch's ready queue where sequence numbers leave it open: leaves that become ready together."""

from __future__ import annotations


def ready_queue_order(start, nodes):
    """The order of PyTorch's ready queue, a binary heap whose ties (several leaves ready at once) fall as the
    C++ library's heap lets them fall. The sorted order is the same but for three or more tied leaves."""
    waiting = dict.fromkeys(nodes, 0)
    for node in nodes:
        for parent in node.edges:
            if parent is not None:
                waiting[parent] = waiting.get(parent, 0) + 1
    heap, order = [], []

    def sift_up(i, node):
        while i and heap[(i - 1) // 2].seq < node.seq:
            heap[i] = heap[(i - 1) // 2]
            i = (i - 1) // 2
        heap[i] = node

    def push(node):
        heap.append(node)
        sift_up(len(heap) - 1, node)

    def pop():
        top, node = heap[0], heap.pop()
        if heap:
            hole, child = 0, 2
            while child < len(heap):
                if heap[child].seq < heap[child - 1].seq:
                    child -= 1
                heap[hole] = heap[child]
                hole, child = child, 2 * child + 2
            if child == len(heap):
                heap[hole] = heap[child - 1]
                hole = child - 1
            sift_up(hole, node)
        return top

    push(start)
    while heap:
        node = pop()
        order.append(node)
        for parent in node.edges:
            if parent is not None:
                waiting[parent] -= 1
                if not waiting[parent]:
                    push(parent)
    return order[1:]
