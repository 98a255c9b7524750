"""Distributed autograd on four workers: PyTorch's own scenarios, written anew.

Runs on Backlight under mpirun, and, with `--torch` in four processes that it starts itself, on PyTorch: the same checks must hold there.
"""

import json
import os
import sys
import threading
import time

from distributed_runs import raises

ON_TORCH = "--torch" in sys.argv
if ON_TORCH:
    import torch
else:
    import backlight as torch

dist, rpc, dist_autograd = torch.distributed, None, None
if ON_TORCH:
    import torch.distributed.autograd as dist_autograd
    import torch.distributed.optim
    import torch.distributed.rpc as rpc
else:
    import backlight.distributed.autograd as dist_autograd
    import backlight.distributed.rpc as rpc

SIZE = 4
RANK = -1
seen = {}  # what other workers told this one
error_on = [True]
shared_leaf = torch.ones(3, 3, requires_grad=True)


def worker(rank):
    return f"worker{rank % SIZE}"


def following(distance=1):
    return worker(RANK + distance)


# What workers call


def tell(key, value):
    seen[key] = value


def wait_for(key, seconds=20):
    end = time.time() + seconds
    while key not in seen:
        assert time.time() < end, f"nobody told worker {RANK} of {key}"
        time.sleep(0.005)
    return seen[key]


def add(a, b):
    return torch.add(a, b)


def add_numbers(a, b):
    return a + b


def leaf():
    return torch.ones(3, 3, requires_grad=True)


def get_shared_leaf():
    return shared_leaf


def add_to(rref, b):
    return torch.add(rref.local_value(), b)


def add_to_elsewhere(owner, rref, b):
    return rpc.rpc_sync(owner, add_to, args=(rref, b))


def chain(a, b, to, hops):
    """Adds a and b `hops + 1` workers on."""
    if hops:
        return rpc.rpc_sync(worker(to + 1), chain, args=(a, b, to + 1, hops - 1))
    return rpc.rpc_sync(worker(to + 1), add, args=(a, b))


def product_or_difference(a, b):
    return a - b if b.requires_grad else a * b


def nested(a, b, to):
    c, d = a * b, a + b
    e = rpc.rpc_sync(to, add, args=(c, d))
    return a * b * c * d * e


def three_sums(a, b, c):
    return a + b, [b + c], {"x": a + c}


def complex_structure(a, b):
    return {"sum": a + b, "parts": (a * 2, [b * 3, 7])}


class FailsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        if error_on[0]:
            raise ValueError("it fails in backward")
        return g


def fails_in_backward(a, b):
    return FailsInBackward.apply(torch.add(a, b))


def fails_two_workers_on(a, b, to):
    return rpc.rpc_sync(to, fails_in_backward, args=(a, b)) + a


def slow_leaf(a, b):
    time.sleep(0.3)
    return (a + b).requires_grad_()


def gradient_of(context_id, rref):
    return dist_autograd.get_gradients(context_id)[rref.local_value()]


def train_against(rref, b, owner, key):
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [rpc.rpc_sync(owner, add_to, args=(rref, b)).sum()])
        rpc.rpc_sync(owner, tell, args=((key, "context"), context_id))
        rpc.rpc_sync(owner, wait_for, args=("seen by the owner",))


def embed(rref, indices, offsets, weights):
    return rref.local_value()(indices, offsets, weights)


def weight_gradient(rref, context_id):
    return dist_autograd.get_gradients(context_id)[rref.local_value().weight]


def make_embedding():
    embedding = torch.nn.EmbeddingBag(16, 4, mode="sum")
    embedding.weight.data = torch.arange(64.0).view(16, 4).cos()
    return embedding


# What checks use


def barrier():
    """All workers are here."""
    if ON_TORCH:
        dist.barrier()
        return
    request = comm.Ibarrier()
    end = time.time() + 20
    while not request.Test():
        assert time.time() < end, f"worker {RANK}: the others didn't come to the barrier"
        time.sleep(0.001)


def local(_to, function, *args):
    return function(*args)


def sync(to, function, *args):
    return rpc.rpc_sync(to, function, args=args)


def by_future(to, function, *args):
    return rpc.rpc_async(to, function, args=args).wait()


def by_reference(to, function, *args):
    return rpc.remote(to, function, args=args).to_here()


WAYS = (sync, by_future, by_reference)


def two():
    torch.manual_seed(RANK)
    return torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True)


def same_gradients(compute, *tensors):
    """compute(call) gives a loss; its distributed gradients must be the local ones, whatever the way of calling."""
    expected = torch.autograd.grad(compute(local), [x for x in tensors if x.requires_grad], allow_unused=True)
    expected = dict(zip([id(x) for x in tensors if x.requires_grad], expected))
    for way in WAYS:
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [compute(way)])
            grads = dist_autograd.get_gradients(context_id)
            assert {id(x) for x in grads} == {x for x, g in expected.items() if g is not None}, way.__name__
            for x, g in grads.items():
                torch.testing.assert_close(g, expected[id(x)])
                assert x.grad is None


def names(node):
    return [None if other is None else other.name() for other, _ in node.next_functions]


ACCUMULATE, RECEIVE = "torch::autograd::AccumulateGrad", "torch::distributed::autograd::RecvRpcBackward"


def first(mapping, number=0):
    return list(mapping.values())[number]


# Contexts


def check_context_ids():
    assert dist_autograd._get_max_id() == (1 << 48) - 1 + (RANK << 48)
    ids = []
    for _ in range(200):
        with dist_autograd.context() as context_id:
            assert dist_autograd._retrieve_context(context_id)._context_id() == context_id
            assert context_id >> 48 == RANK
            ids.append(context_id)
    assert len(set(ids)) == 200
    for context_id in ids:
        raises(
            RuntimeError, f"Could not find autograd context with id: {context_id}", dist_autograd._retrieve_context, context_id
        )


def check_contexts_do_not_nest():
    with dist_autograd.context():
        raises(RuntimeError, "Already have an autograd context id for this thread", dist_autograd.context().__enter__)
    raises(RuntimeError, "Current thread doesn't have a valid autograd context", dist_autograd._current_context)


def check_known_workers():
    others = {rank for rank in range(SIZE) if rank != RANK}
    for requires_grad in (False, True):
        x = torch.ones(3, 3, requires_grad=requires_grad)
        with dist_autograd.context():
            for other in others:
                sync(worker(other), add, x, x)
            assert dist_autograd._current_context()._known_worker_ids() == others


def check_contexts_are_forgotten():
    x, y = two()
    z = torch.ones(3, 3)
    for number, (function, args) in enumerate(
        [(add, (x, y)), (add, (z, z)), (add_numbers, (1, 1)), (chain, (x, y, RANK + 1, 0))]
    ):
        with dist_autograd.context() as context_id:
            for distance in (1, 2, 3):
                sync(following(distance), function, *args)
                sync(following(distance), tell, (number, distance), context_id)
        raises(RuntimeError, "Could not find autograd context", dist_autograd._retrieve_context, context_id)
        barrier()
        for distance in (1, 2, 3):
            other, end = wait_for((number, distance)), time.time() + 10
            while time.time() < end:
                try:
                    dist_autograd._retrieve_context(other)
                except RuntimeError:
                    break
                time.sleep(0.005)
            else:
                raise AssertionError(f"context {other} is still there")
        barrier()


def check_debug_info():
    x, y = two()
    with dist_autograd.context() as context_id:
        total = x
        for distance in (1, 2, 3):
            total = sync(following(distance), add, total, y)
        dist_autograd.backward(context_id, [total.sum()])
        info = dist_autograd._get_debug_info()
        assert set(info) == {"num_current_backward_passes", "num_autograd_contexts"}
        assert 1 <= info["num_autograd_contexts"] <= 4
    barrier()
    end = time.time() + 10
    while dist_autograd._get_debug_info() != {"num_current_backward_passes": 0, "num_autograd_contexts": 0}:
        assert time.time() < end, dist_autograd._get_debug_info()
        time.sleep(0.005)
    barrier()


# Graphs


def check_graph_of_a_call():
    for number, (function, way) in enumerate([(f, w) for f in (torch.add, add) for w in (sync, by_reference)]):
        x, y = torch.ones(3, 3, requires_grad=True), torch.zeros(3, 3, requires_grad=True)
        with dist_autograd.context() as context_id:
            result = way(following(), function, x, y)
            sync(following(), tell, ("graph", number), context_id)
            context = dist_autograd._current_context()
            sends, receives = context._send_functions(), context._recv_functions()
            assert len(sends) == len(receives) == 1
            assert names(first(sends)) == [ACCUMULATE, ACCUMULATE]
            assert [node.variable is z for (node, _), z in zip(first(sends).next_functions, (x, y))] == [True, True]
            assert [number for _, number in first(sends).next_functions] == [0, 0]
            assert result.grad_fn.name() == RECEIVE and result.grad_fn == first(receives)
            # and what the worker before this one left here
            context = dist_autograd._retrieve_context(wait_for(("graph", number)))
            (send,) = context._send_functions().values()
            assert names(send) == ["AddBackward0"]
            (added, _), *_ = send.next_functions
            assert names(added) == [RECEIVE, RECEIVE]
            assert added.next_functions[0][0] == added.next_functions[1][0]
            barrier()
        barrier()


def check_graph_of_nested_calls():
    for way in (sync, by_reference):
        x, y = torch.ones(3, 3, requires_grad=True), torch.zeros(3, 3, requires_grad=True)
        with dist_autograd.context() as context_id:
            result = way(following(), chain, x, y, RANK + 1, 1)
            for distance in (1, 2, 3):
                sync(following(distance), tell, ("nested", way.__name__, distance), context_id)
            context = dist_autograd._current_context()
            (send,), (receive,) = context._send_functions().values(), context._recv_functions().values()
            assert names(send) == [ACCUMULATE, ACCUMULATE] and result.grad_fn == receive
            for distance in (1, 2):  # workers that passed it on: one message there, one back
                context = dist_autograd._retrieve_context(wait_for(("nested", way.__name__, distance)))
                onward, back = context._send_functions().values()
                assert names(onward) == [RECEIVE, RECEIVE]
                assert onward.next_functions[0][0] == onward.next_functions[1][0]
                assert names(back) == [RECEIVE]
            context = dist_autograd._retrieve_context(wait_for(("nested", way.__name__, 3)))
            (send,) = context._send_functions().values()
            assert names(send) == ["AddBackward0"]
            barrier()
        barrier()


def check_graph_of_a_call_back():
    for way in (sync, by_reference):
        x, y = torch.ones(3, 3, requires_grad=True), torch.zeros(3, 3, requires_grad=True)
        with dist_autograd.context() as context_id:
            result = way(following(), chain, x, y, RANK - 1 + SIZE, 0)  # which calls this worker
            sync(following(), tell, ("back", way.__name__), context_id)
            context = dist_autograd._current_context()
            there, answered = context._send_functions().values()
            assert len(context._recv_functions()) == 2
            assert names(there) == [ACCUMULATE, ACCUMULATE] and names(answered) == ["AddBackward0"]
            assert result.grad_fn == first(context._recv_functions(), 1)
            context = dist_autograd._retrieve_context(wait_for(("back", way.__name__)))
            onward, back = context._send_functions().values()
            assert names(onward) == [RECEIVE, RECEIVE] and names(back) == [RECEIVE]
            barrier()
        barrier()


def check_no_graph_without_grad():
    for way in (sync, by_reference):
        x = torch.ones(3, 3)
        with dist_autograd.context() as context_id:
            assert not way(following(), torch.add, x, x).requires_grad
            sync(following(), tell, ("no grad", way.__name__), context_id)
            context = dist_autograd._current_context()
            assert not context._send_functions() and not context._recv_functions()
            dist_autograd._retrieve_context(wait_for(("no grad", way.__name__)))
            barrier()
        barrier()


def check_tensors_in_lists():
    for way in (sync, by_reference):
        tensors = [torch.full((3, 3), float(i), requires_grad=i % 2 == 0) for i in range(10)]
        with dist_autograd.context():
            assert torch.equal(way(following(), torch.stack, tensors), torch.stack(tensors))
            context = dist_autograd._current_context()
            send = first(context._send_functions())
            assert [node.variable is x for (node, _), x in zip(send.next_functions, tensors[::2])] == [True] * 5
            assert context._known_worker_ids() == {(RANK + 1) % SIZE}


# Gradients


def check_without_rpc():
    x, y = two()
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [(x + y).sum()])
        grads = dist_autograd.get_gradients(context_id)
        assert len(grads) == 2 and torch.equal(grads[x], torch.ones(3, 3)) and torch.equal(grads[y], torch.ones(3, 3))


def check_simple_calls():
    x, y = two()
    for function in (torch.add, add, torch.mul, torch.matmul):
        same_gradients(lambda call: call(following(), function, x, y).sum(), x, y)  # noqa: B023
        same_gradients(lambda call: call(worker(RANK), function, x, y).sum(), x, y)  # noqa: B023


def check_gradient_of_a_returned_leaf():
    for way in (sync, by_reference):
        with dist_autograd.context() as context_id:
            dist_autograd.backward(context_id, [way(following(), get_shared_leaf).sum()])
            sync(following(), tell, ("returned", way.__name__), context_id)
            grads = dist_autograd.get_gradients(wait_for(("returned", way.__name__)))
            assert len(grads) == 1 and torch.equal(grads[shared_leaf], torch.ones(3, 3))
            barrier()
        barrier()


def check_grad_attribute_is_left_alone():
    x, y = two()
    with dist_autograd.context() as context_id:
        loss = sync(following(), torch.add, x, y).sum()
        dist_autograd.backward(context_id, [loss], retain_graph=True)
        assert x.grad is None and y.grad is None
        torch.add(x, y).sum().backward()
        before = x.grad, x.grad.clone()
        dist_autograd.backward(context_id, [loss])
        assert x.grad is before[0] and torch.equal(x.grad, before[1])


def check_references():
    torch.manual_seed(RANK)
    y = torch.rand(3, 3, requires_grad=True)
    for owner, callee, function in ((1, 1, add_to), (2, 1, add_to_elsewhere)):
        with dist_autograd.context() as context_id:
            x = rpc.remote(following(owner), leaf)
            args = (x, y) if function is add_to else (following(owner), x, y)
            loss = rpc.remote(following(callee), function, args=args).to_here().sum()
            dist_autograd.backward(context_id, [loss])
            grads = dist_autograd.get_gradients(context_id)
            assert set(map(id, grads)) == {id(y)} and torch.equal(grads[y], torch.ones(3, 3))
            assert torch.equal(sync(following(owner), gradient_of, context_id, x), torch.ones(3, 3))


def check_one_owner_many_users():
    if RANK:
        y = torch.rand(3, 3, requires_grad=True)
        with dist_autograd.context() as context_id:
            x = rpc.remote("worker0", leaf)
            dist_autograd.backward(context_id, [rpc.remote("worker0", add_to, args=(x, y)).to_here().sum()])
            assert torch.equal(dist_autograd.get_gradients(context_id)[y], torch.ones(3, 3))
            assert torch.equal(sync("worker0", gradient_of, context_id, x), torch.ones(3, 3))


def check_parameter_server():
    y = torch.zeros(3, 3, requires_grad=True)
    x = rpc.remote(worker(RANK), leaf)
    futures = [rpc.rpc_async(following(d), train_against, args=(x, y, worker(RANK), d)) for d in (1, 2, 3)]
    for distance in (1, 2, 3):
        grads = dist_autograd.get_gradients(wait_for((distance, "context")))
        here = x.to_here()
        assert here is x.local_value() and torch.equal(grads[here], torch.ones(3, 3))
    tell("seen by the owner", True)
    torch.futures.wait_all(futures)


def check_round_trips():
    torch.manual_seed(RANK)
    x1, x2, x3, x4, x5 = (torch.rand(3, 3, requires_grad=i % 2 == 0) for i in range(5))

    def compute(call):
        value = call(following(), torch.add, x1, x2)
        value = call(following(2), torch.mul, x3, value)
        one = call(following(3), torch.stack, (x4, value))
        other = call(following(), torch.stack, (x5, value))
        value = call(following(2), torch.bmm, one, other)
        return call(following(3), torch.matmul, value, value).sum()

    same_gradients(compute, x1, x2, x3, x4, x5)


def check_different_shapes():
    torch.manual_seed(RANK)
    x = [torch.rand(*shape, requires_grad=i % 2 == 0) for i, shape in enumerate([(4, 6), (6, 5), (5, 7), (7, 9)])]

    def compute(call):
        value = call(following(), torch.matmul, x[0], x[1])
        return call(following(2), torch.linalg.multi_dot, (value, x[2], x[3])).sum()

    same_gradients(compute, *x)


def check_different_dtypes():
    x, y = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True, dtype=torch.float64)
    same_gradients(lambda call: call(following(), torch.add, x, y).sum(), x, y)


def check_unused_tensors():
    """Parts of a received tensor that the loss doesn't use get gradients of zero."""
    x, y = two()
    z = torch.rand(3, 3, requires_grad=True)

    def compute(call):
        stacked = call(following(), torch.stack, (x, y, z))
        return call(following(2), torch.matmul, torch.narrow(stacked, 0, 0, 1), torch.narrow(stacked, 0, 2, 1)).sum()

    same_gradients(compute, x, y, z)


def check_several_outputs():
    x = torch.rand(10, 2, requires_grad=True)

    def compute(call):
        parts = call(following(), torch.split, x, 2)
        return call(following(2), torch.linalg.multi_dot, (parts[0], parts[2], parts[4])).sum()

    same_gradients(compute, x)


def check_structures():
    x, y = two()

    def compute(call):
        made = call(following(), complex_structure, x, y)
        assert made["parts"][1][1] == 7
        return made["sum"].sum() + made["parts"][0].sum() * 2 + made["parts"][1][0].sum()

    same_gradients(compute, x, y)
    z = torch.rand(3, 3, requires_grad=True)

    def other(call):
        a, (b,), named = call(following(), three_sums, x, y, z)
        return (a * b * named["x"]).sum()

    same_gradients(other, x, y, z)


def check_several_roots():
    x, y = two()
    with dist_autograd.context() as context_id:
        roots = [sync(following(), f, x, y).sum() for f in (torch.add, torch.mul, torch.sub)]
        dist_autograd.backward(context_id, roots)
        grads = dist_autograd.get_gradients(context_id)
        torch.testing.assert_close(grads[x], 2 + y.detach())
        torch.testing.assert_close(grads[y], x.detach())


def check_nested_functions():
    x, y = two()
    expected = torch.autograd.grad((x * y * (x * y) * (x + y) * (x * y + (x + y))).sum(), [x, y])
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [sync(following(), nested, x, y, following(2)).sum()])
        grads = dist_autograd.get_gradients(context_id)
        torch.testing.assert_close([grads[x], grads[y]], list(expected))


def check_mixed_requires_grad():
    x, y = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3)
    for way in WAYS:
        with dist_autograd.context() as context_id:
            result = way(following(), product_or_difference, x, y)
            torch.testing.assert_close(result, x * y)
            dist_autograd.backward(context_id, [result.sum()])
            grads = dist_autograd.get_gradients(context_id)
            assert set(map(id, grads)) == {id(x)} and torch.equal(grads[x], y)


def check_accumulation():
    x, y = two()
    product = torch.matmul(x, y).sum()
    product.backward(retain_graph=True)
    product.backward()
    with dist_autograd.context() as context_id:
        product = sync(following(), torch.matmul, x, y).sum()
        dist_autograd.backward(context_id, [product], retain_graph=True)
        dist_autograd.backward(context_id, [product])
        grads = dist_autograd.get_gradients(context_id)
        torch.testing.assert_close([grads[x], grads[y]], [x.grad, y.grad])
    with dist_autograd.context() as context_id:
        total = sync(following(), chain, x, y, RANK + 1, 0).sum()
        dist_autograd.backward(context_id, [total], retain_graph=True)
        dist_autograd.backward(context_id, [total])
        assert torch.equal(dist_autograd.get_gradients(context_id)[x], torch.full((3, 3), 2.0))


def check_many_passes():
    x, y = two()
    with dist_autograd.context() as context_id:
        loss = sync(following(), torch.add, x, y).sum()
        for _ in range(300):
            dist_autograd.backward(context_id, [loss], retain_graph=True)
        assert torch.equal(dist_autograd.get_gradients(context_id)[x], torch.full((3, 3), 300.0))


def check_an_embedding_elsewhere():
    local_embedding = make_embedding()
    elsewhere = rpc.remote(following(), make_embedding)
    indices, offsets = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4])
    weights = torch.rand(8, requires_grad=True)
    result = local_embedding(indices, offsets, weights)
    result.sum().backward(retain_graph=True)
    result.sum().backward()
    with dist_autograd.context() as context_id:
        result = sync(following(), embed, elsewhere, indices, offsets, weights)
        dist_autograd.backward(context_id, [result.sum()], retain_graph=True)
        dist_autograd.backward(context_id, [result.sum()])
        torch.testing.assert_close(sync(following(), weight_gradient, elsewhere, context_id), local_embedding.weight.grad)
        torch.testing.assert_close(dist_autograd.get_gradients(context_id)[weights], weights.grad)


# Optimizers


class HalfOfAModel:
    def __init__(self, start):
        self.weight = torch.full((3, 3), start, requires_grad=True)

    def forward(self, x):
        return torch.mm(self.weight, x)

    def get_weight(self):
        return self.weight


def forward_of(reference, x):
    return reference.local_value().forward(x)


def weight_of(reference):
    return rpc.RRef(reference.local_value().weight)


def check_distributed_optimizer():
    """Two halves of a model on two workers are trained as the whole is on one."""
    starts, x = (0.1, 0.2), torch.eye(3) + 0.5
    here = [torch.full((3, 3), start, requires_grad=True) for start in starts]
    kinds = [(torch.optim.SGD, {"lr": 0.05, "momentum": 0.5}), (torch.optim.Adam, {"lr": 0.05})]
    for kind, options in kinds:
        halves = [rpc.remote(following(distance), HalfOfAModel, args=(start,)) for distance, start in zip((1, 2), starts)]
        weights = [rpc.rpc_sync(half.owner(), weight_of, args=(half,)) for half in halves]
        optimizer = torch.distributed.optim.DistributedOptimizer(kind, weights, **options)
        expected = [torch.full((3, 3), start, requires_grad=True) for start in starts]
        local_optimizer = kind(expected, **options)
        for _ in range(4):
            with dist_autograd.context() as context_id:
                output = rpc.rpc_sync(halves[0].owner(), forward_of, args=(halves[0], x))
                output = rpc.rpc_sync(halves[1].owner(), forward_of, args=(halves[1], output))
                dist_autograd.backward(context_id, [(output * output).sum()])
                optimizer.step(context_id)
            local_optimizer.zero_grad()
            output = expected[1] @ (expected[0] @ x)
            (output * output).sum().backward()
            local_optimizer.step()
        for half, weight in zip(halves, expected):
            got = half.rpc_sync().get_weight().detach()
            torch.testing.assert_close(got, weight.detach())
        assert not torch.equal(expected[0], here[0])
        barrier()


# Hooks and threads


def check_hooks():
    x, y = torch.ones(3, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
    x.register_hook(lambda g: g * 2)
    same_gradients(lambda call: call(following(), torch.matmul, x, y).sum(), x, y)


def check_hooks_of_leaves():
    called = []
    x = torch.rand(10, 10, requires_grad=True)
    doubled = x + x
    for node, _ in doubled.grad_fn.next_functions:
        node.register_hook(lambda grad_inputs, grad_outputs: called.append(len(grad_outputs)))
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [doubled.sum()])
        assert called == [1, 1]
        assert set(map(id, dist_autograd.get_gradients(context_id))) == {id(x)}


def check_a_context_that_came_later():
    """The value was made without a context; its leaf's gradient belongs to the context that fetched it."""
    x, y = torch.rand(3, 3), torch.rand(3, 3)
    value = rpc.remote(following(), slow_leaf, args=(x, y))
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [value.to_here().sum()])
        assert torch.equal(sync(following(), gradient_of, context_id, value), torch.ones(3, 3))


def check_many_threads():
    """Every thread has a context of its own; all hammer one worker."""
    problems = []

    def work():
        try:
            x, y = two()
            with dist_autograd.context() as context_id:
                a = sync("worker0", torch.add, x, y)
                b = sync("worker0", torch.mul, y, a)
                c = sync("worker0", torch.matmul, a, b)
                d = sync("worker0", torch.add, b, c)
                dist_autograd.backward(context_id, [d.sum()])
                grads = dist_autograd.get_gradients(context_id)
            expected = torch.autograd.grad((y * (x + y) + (x + y) @ (y * (x + y))).sum(), [x, y])
            torch.testing.assert_close([grads[x], grads[y]], list(expected))
        except Exception as error:
            problems.append(error)

    if RANK:
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems, problems[0]
    barrier()


def check_the_profile():
    x, y = two()
    with dist_autograd.context() as context_id:
        loss = sync(following(), torch.add, x, y).sum()
        with torch.autograd.profiler.profile() as profile:
            dist_autograd.backward(context_id, [loss])
    events = [event for event in profile.function_events if "evaluate_function" not in event.name]
    for name in ("SendRpcBackward", "RecvRpcBackward", "torch::distributed::autograd::backward"):
        assert any(name in event.name for event in events), name
    barrier()


# Errors


def check_errors_in_forward():
    with dist_autograd.context():
        raises(RuntimeError, "", sync, following(), torch.matmul, torch.rand(3, 3, requires_grad=True), torch.rand(6, 6))


def check_no_such_context():
    x, y = two()
    loss = sync(following(), torch.add, x, y).sum()
    raises(RuntimeError, "Could not find autograd context with id: 100", dist_autograd.backward, 100, [loss])
    raises(RuntimeError, "Could not find autograd context with id: 100", dist_autograd.get_gradients, 100)


def check_arguments():
    with dist_autograd.context() as context_id:
        for args in ((context_id, None), (None, None), (context_id, torch.ones(1))):
            raises(TypeError, "incompatible function arguments", dist_autograd.backward, *args)
        x = torch.rand(3, 3, requires_grad=True)
        for text, roots in (
            ("No tensors provided for gradient computation", []),
            ("requires_grad not set on", [torch.rand(3, 3)]),
            ("is not a scalar, all roots need to be scalar", [x]),
            ("does not have a valid gradient function", [torch.rand(1, requires_grad=True)]),
        ):
            raises(RuntimeError, text, dist_autograd.backward, context_id, roots)


def check_an_error_in_this_workers_backward():
    x, y = two()
    with dist_autograd.context() as context_id:
        value = FailsInBackward.apply((x + y) * (x + y))
        for distance, function in ((1, torch.add), (2, torch.mul), (3, torch.matmul), (1, torch.div)):
            value = sync(following(distance), function, value, y)
        raises(RuntimeError, f"Error on Node {RANK}: ", dist_autograd.backward, context_id, [value.sum()])
    barrier()


def check_an_error_in_another_workers_backward():
    x, y = two()
    with dist_autograd.context() as context_id:
        loss = sync(following(), fails_two_workers_on, x, y, following(2)).sum()
        raises(RuntimeError, "it fails in backward", dist_autograd.backward, context_id, [loss])
    barrier()


def check_a_pass_after_a_failed_one():
    x, y = two()
    with dist_autograd.context() as context_id:
        loss = sync(following(), fails_in_backward, x, y).sum()
        for _ in range(20):
            raises(RuntimeError, "it fails in backward", dist_autograd.backward, context_id, [loss], retain_graph=True)
        barrier()
        error_on[0] = False
        barrier()
        for _ in range(20):
            dist_autograd.backward(context_id, [loss], retain_graph=True)
        assert torch.equal(dist_autograd.get_gradients(context_id)[x], torch.full((3, 3), 20.0))
        barrier()
        error_on[0] = True


class ReleasesItsContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, context_id):
        ctx.context_id = context_id
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        dist_autograd._release_context(ctx.context_id)
        return g, None


def check_a_context_released_in_backward():
    """It fails, cleanly: no process crashes and nothing hangs."""
    x = torch.rand(3, 3, requires_grad=True)
    context_id = dist_autograd._new_context()._context_id()
    value = x
    for distance in (1, 2, 3, 1, 2, 3):
        value = sync(following(distance), torch.add, value, value)
    value = ReleasesItsContext.apply(value, context_id)
    raises(RuntimeError, "", dist_autograd.backward, context_id, [value.sum()])
    raises(RuntimeError, "Could not find autograd context", dist_autograd._retrieve_context, context_id)
    barrier()


# What PyTorch doesn't have


def only_here_check_unused_messages():
    """The FAST rule waits for all that was sent, and says so when the time is over; the SMART rule asks first."""
    x, y = two()
    before = rpc.get_rpc_timeout()
    with dist_autograd.context() as context_id:
        sync(following(), torch.add, x, y)
        loss = (sync(following(2), torch.mul, x, y) * sync(following(2), chain, x, y, RANK + 2, 0)).sum()
        dist_autograd.backward(context_id, [loss], retain_graph=True, smart=True)
        expected = torch.autograd.grad((x * y * (x + y)).sum(), [x, y])
        grads = dist_autograd.get_gradients(context_id)
        torch.testing.assert_close([grads[x], grads[y]], list(expected))
        barrier()
        rpc._set_rpc_timeout(0.5)
        barrier()
        error = raises(
            RuntimeError, "waited 0.5 s for the gradients of", dist_autograd.backward, context_id, [loss], retain_graph=True
        )
        assert f"rank {(RANK + 1) % SIZE} ({following()}) with add" in str(error) and f"Rank {RANK}" in str(error)
        rpc._set_rpc_timeout(before)
        barrier()
        dist_autograd.backward(context_id, [loss], smart=True)
    barrier()


def only_here_check_a_local_backward_refuses():
    x, y = two()
    with dist_autograd.context():
        loss = sync(following(), torch.add, x, y).sum()
        raises(RuntimeError, "can only run in torch.distributed.autograd.backward", loss.backward)


def only_here_check_smart_gradients():
    x, y = two()
    expected = torch.autograd.grad((x * y * (x * y) * (x + y) * (x * y + (x + y))).sum(), [x, y])
    with dist_autograd.context() as context_id:
        loss = sync(following(), nested, x, y, following(2)).sum()
        dist_autograd.backward(context_id, [loss], smart=True)
        grads = dist_autograd.get_gradients(context_id)
        torch.testing.assert_close([grads[x], grads[y]], list(expected))


# Running them


def main(rank):
    global RANK
    RANK = rank
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=20)
    rpc.init_rpc(worker(rank), rank=rank, world_size=SIZE, rpc_backend_options=options)
    if ON_TORCH:
        dist.init_process_group("gloo", rank=rank, world_size=SIZE)
    checks = {name: function for name, function in globals().items() if "check_" in name and callable(function)}
    for name, function in checks.items():
        if name.startswith("only_here_") and ON_TORCH:
            continue
        failure = ""
        try:
            barrier()
            function()
        except Exception:
            import traceback

            failure = traceback.format_exc()
        sys.stdout.write(f"CHECKED {json.dumps([rank, name.partition('check_')[2], failure])}\n")
        sys.stdout.flush()
    barrier()
    rpc.shutdown(graceful=not ON_TORCH)
    if ON_TORCH:
        os._exit(0)  # PyTorch's shutdown can wait for references that nobody has any more


if __name__ == "__main__":
    if ON_TORCH:
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=sys.argv[sys.argv.index("--torch") + 1])
        torch.multiprocessing.spawn(main, nprocs=SIZE)
    else:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD.Dup()
        main(comm.rank)
