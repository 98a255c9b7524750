"""A graph that spans two processes, walked by hand and run backward.

Start it with `backlight launch -n 2 examples/p1_across_processes.py`. Worker 0 has worker 1 add two tensors; the sum arrives with a `grad_fn` that
leads back to worker 1, and on worker 1 the sum's graph leads back to worker 0. Inside a context, backward follows both, and each worker keeps the
gradients of its own leaves for this context, not in `.grad`.
"""

import os

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
scale = torch.tensor([1.0, 10.0, 100.0], requires_grad=True)  # on worker 1 it is a leaf of the same graph


def add(a, b):
    return torch.add(a, b)


def add_and_scale(a, b):
    return (a + b) * scale


def what_is_sent(context_id):
    """The nodes of this worker's messages in a context, and what is behind them."""
    sends = dist_autograd._retrieve_context(context_id)._send_functions().values()
    return [(node.name(), [following.name() for following, _ in node.next_functions]) for node in sends]


def gradients(context_id):
    return [(leaf.tolist(), grad.tolist()) for leaf, grad in dist_autograd.get_gradients(context_id).items()]


rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
if rank == 0:
    t1 = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    t2 = torch.tensor([4.0, 5.0, 6.0], requires_grad=True)
    t4 = torch.tensor([7.0, 8.0, 9.0], requires_grad=True)

    print("# A sum that was made elsewhere")
    with dist_autograd.context() as context_id:
        t3 = rpc.rpc_sync("worker1", add, args=(t1, t2))
        t5 = t3 * t4
        loss = t5.sum()
        print(t3, t5)
        print("worker 0 sent", what_is_sent(context_id))
        print("worker 1 sent", rpc.rpc_sync("worker1", what_is_sent, args=(context_id,)))
        dist_autograd.backward(context_id, [loss])
        print("worker 0 has", gradients(context_id))
        print("worker 1 has", rpc.rpc_sync("worker1", gradients, args=(context_id,)))
        print(t1.grad, t2.grad, t4.grad)

    print("# A leaf elsewhere")
    with dist_autograd.context() as context_id:
        loss = (rpc.rpc_sync("worker1", add_and_scale, args=(t1, t2)) * t4).sum()
        dist_autograd.backward(context_id, [loss])
        print("worker 0 has", gradients(context_id))
        print("worker 1 has", rpc.rpc_sync("worker1", gradients, args=(context_id,)))

    print("# Two passes in one context add up, two contexts don't")
    for passes in (1, 2):
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync("worker1", add, args=(t1, t2)).sum()
            for _ in range(passes):
                dist_autograd.backward(context_id, [loss], retain_graph=True)
            print(gradients(context_id))
rpc.shutdown()
