"""Checks of DistributedDataParallel; run by tests/test_ddp.py on 2 and on 4 ranks."""

from __future__ import annotations

import gc
import weakref

import numpy as np
from distributed_runs import raises, run_checks

import backlight as torch
import backlight.distributed as dist
from backlight import nn
from backlight.distributed import reducer
from backlight.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group(timeout=20)
RANK, SIZE = dist.get_rank(), dist.get_world_size()
RANKS = range(SIZE)


def close(found, expected, tolerance=1e-6):
    assert found.shape == expected.shape
    scale = max(1.0, float(expected.abs().max()))
    assert float((found - expected).abs().max()) <= tolerance * scale, (found, expected)


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 33), nn.Tanh(), nn.Linear(33, 7))


class Branches(nn.Module):
    """Uses its parts as it is told."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.left, self.right, self.never = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x, path="left"):
        x = self.first(x)
        if path == "detached":
            return self.left(self.right(x).detach()) + x
        if path == "two":
            return {"left": self.left(x), "right": [self.right(x)]}
        return getattr(self, path)(x)


def batch(n=24, width=20, seed=1):
    torch.manual_seed(seed)
    return torch.randn(n, width)


def share(x):
    return x.chunk(SIZE)[RANK]


def one(rank=None):
    """Rows that differ from rank to rank: full of rank + 1."""
    return torch.full((2, 4), float((RANK if rank is None else rank) + 1))


def gradients(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def expected_of(model, x):
    """The gradients of the mean of squares over the whole batch, in one process."""
    model.zero_grad()
    model(x).square().mean().backward()
    return gradients(model)


def check_gradients_equal_those_of_the_whole_batch():
    x = batch()
    expected = expected_of(mlp(), x)
    for options in ({}, {"bucket_cap_mb": 0.002}, {"find_unused_parameters": True}, {"static_graph": True}, {"gradient_as_bucket_view": True}):  # fmt: skip
        model = DDP(mlp(seed=RANK), **options)  # whatever rank 0 has
        for _ in range(3):
            model.zero_grad()
            model(share(x)).square().mean().backward()
            for found, wanted in zip(gradients(model), expected):
                close(found, wanted)


def check_training_keeps_replicas_equal():
    x = batch()
    alone, model = mlp(), DDP(mlp(), bucket_cap_mb=0.005)
    for part in ("SGD", "Adam"):
        one_, two = (getattr(torch.optim, part)(m.parameters(), lr=0.01) for m in (alone, model))
        for step in range(4):
            one_.zero_grad(set_to_none=step % 2 == 0)
            two.zero_grad(set_to_none=step % 2 == 0)
            alone(x).square().mean().backward()
            model(share(x)).square().mean().backward()
            one_.step()
            two.step()
    for a, b in zip(alone.parameters(), model.parameters()):
        close(b.detach(), a.detach(), 2e-5)
        found = [torch.zeros_like(b) for _ in RANKS]
        dist.all_gather(found, b.detach())
        assert all(torch.equal(found[0], other) for other in found)


def check_types():
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        model = nn.Linear(4, 1, bias=False).to(dtype)
        wrapped = DDP(model)
        wrapped(one().to(dtype)).sum().backward()
        assert model.weight.grad.dtype is dtype
        assert model.weight.grad.tolist() == [[2 * sum(r + 1 for r in RANKS) / SIZE] * 4]
    mixed = nn.Sequential(nn.Linear(4, 3).double(), nn.Linear(4, 3))
    wrapped = DDP(mixed)
    assert [bucket.array_type.name for bucket in wrapped.reducer.buckets] == ["float32", "float64"]


def check_buckets_are_those_of_pytorch():
    sizes = [400, 100, 900, 300, 2000, 10]
    kind = [np.dtype("f4")] * 6
    assert reducer.assigned(sizes, kind, [500, 1000]) == [[0, 1], [2, 3], [4], [5]]
    assert reducer.assigned(sizes, [np.dtype(t) for t in ("f4", "f8", "f4", "f4", "f8", "f4")], [500, 1000]) == [
        [0, 2],
        [1, 4],
        [3, 5],
    ]


def check_kept_gradients_stay():
    model = DDP(nn.Linear(4, 1, bias=False))
    model(one()).sum().backward()
    kept, values = model.module.weight.grad, model.module.weight.grad.clone()
    memory = kept.detach()
    model.zero_grad()
    model(one() * 5).sum().backward()
    assert torch.equal(kept, values)
    assert torch.equal(memory, values)
    flat = torch.zeros(4)  # a gradient that the program placed in memory of its own stays there
    model.module.weight.grad = flat.view(1, 4)
    model(one()).sum().backward()
    assert torch.equal(flat, values[0])


def check_no_sync():
    mean, own = 2 * sum(r + 1 for r in RANKS) / SIZE, 2.0 * (RANK + 1)

    def after(*steps):
        """The gradient after passes whose forward and backward are, or aren't, in no_sync."""
        model = DDP(nn.Linear(4, 1, bias=False))
        for forward, backward in steps:
            if forward:
                with model.no_sync():
                    y = model(one()).sum()
            else:
                y = model(one()).sum()
            if backward:
                with model.no_sync():
                    y.backward()
            else:
                y.backward()
        return model.module.weight.grad[0, 0].item()

    assert after((True, True)) == own
    assert after((True, True), (False, False)) == 2 * mean
    assert after((True, False)) == own  # the forward decides, as in PyTorch
    assert after((False, True)) == mean
    assert after((False, False), (False, False)) == 2 * mean
    model = DDP(nn.Linear(4, 1, bias=False))
    y = model(one()).sum()
    y.backward(retain_graph=True)
    y.backward()  # the second pass of one forward isn't averaged, as in PyTorch
    assert model.module.weight.grad[0, 0].item() == mean + own


def check_several_forwards():
    model = DDP(nn.Linear(4, 1, bias=False))
    (model(one()).sum() + model(3 * one()).sum()).backward()
    assert model.module.weight.grad[0, 0].item() == 8 * sum(r + 1 for r in RANKS) / SIZE
    with torch.no_grad():
        model(one())
    model(one())
    model(one()).sum().backward()
    assert torch.autograd.grad(model(one()).sum(), model.module.weight)[0][0, 0].item() == 2 * (RANK + 1)


def check_unused_parameters_found():
    model = Branches()
    wrapped = DDP(model, find_unused_parameters=True)
    for _ in range(2):
        model.zero_grad()
        wrapped(one(), "left" if RANK == 0 else "right").sum().backward()
        copy = Branches()
        copy(one(0), "left").sum().backward()
        close(model.left.weight.grad, copy.left.weight.grad / SIZE)  # only rank 0 used it
        assert model.never.weight.grad is None  # nobody did
    model.never.weight.grad = torch.full((4, 4), float(RANK))
    wrapped(one(), "left").sum().backward()
    assert model.never.weight.grad[0, 0].item() == RANK
    outputs = wrapped(one(), "two")
    (outputs["left"] + outputs["right"][0]).sum().backward()


def check_unused_parameters_explained():
    start = ["Expected to have finished reduction in the prior iteration", f"did not receive grad for rank {RANK}: 2 3 4 5 6 7"]

    def second(path):
        wrapped = DDP(Branches())
        wrapped(one(), path).sum().backward()
        wrapped(one(), path)

    raises(
        RuntimeError,
        [
            f"did not receive grad for rank {RANK}: 4 5 6 7",
            "right.weight, right.bias: no gradient, because its module right (Linear) was not called in forward",
            "never.weight, never.bias: no gradient, because its module never (Linear) was not called in forward",
        ],
        second,
        "left",
    )
    raises(
        RuntimeError,
        ["right.weight, right.bias: no gradient, because the path to the loss is cut at ddp.py", ".detach()"],
        second,
        "detached",
    )
    wrapped = DDP(Branches())
    wrapped(one(), "two")["left"].sum().backward()
    raises(
        RuntimeError,
        "right.weight, right.bias: it flows into what forward returns, but the loss didn't use",
        wrapped,
        one(),
        "two",
    )
    wrapped(one(), "two")  # the error is raised once
    wrapped = DDP(Branches())
    model = wrapped.module
    random, version = torch.get_rng_state(), model.first.weight._version
    for p in (model.left, model.right, model.never):
        p.requires_grad_(False)
    wrapped(one(), "left").sum().backward()
    grad = model.first.weight.grad
    raises(RuntimeError, [*start, "right.bias, never.weight, never.bias: requires_grad was switched off after"], wrapped, one())
    assert model.first.weight.grad is grad
    assert torch.equal(torch.get_rng_state(), random)
    assert model.first.weight._version == version
    assert torch.distributed.group.WORLD.broken is None


def check_models_that_differ():
    raises(
        RuntimeError,
        [
            "DDP expects same model across all ranks",
            "rank 0 has parameter 'weight' of float32 [2, 2]",
            "has parameter 'weight' of float32 [3, 2]",
        ],
        lambda: DDP(nn.Linear(2, 3 if RANK else 2)),
    )
    raises(
        RuntimeError,
        ["but Rank 0 has 2 params, while rank 1 has inconsistent 4 params", "rank 0 has no more", "has parameter '1.weight'"],
        lambda: DDP(nn.Sequential(*(nn.Linear(2, 2) for _ in range(2 if RANK else 1)))),
    )
    raises(RuntimeError, "of float64", lambda: DDP(nn.Linear(2, 2).to(torch.float64 if RANK else torch.float32)))


def check_buffers():
    model = DDP(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    norm = model.module[1]
    x = batch(6, 4, seed=RANK) + RANK
    model(x).square().sum().backward()
    local = norm.running_mean.clone()
    means = [torch.zeros(3) for _ in RANKS]
    dist.all_gather(means, local)
    assert not torch.equal(means[0], means[1])
    model.eval()
    model(x)  # takes over those of rank 0
    assert torch.equal(norm.running_mean, means[0])
    assert norm.num_batches_tracked.item() == 1
    free = DDP(nn.BatchNorm1d(4), broadcast_buffers=False)
    for _ in range(2):
        free(x).square().sum().backward()
    dist.all_gather(means, free.module.running_mean[:3].clone())
    assert not torch.equal(means[0], means[1])


def check_sync_batch_norm():
    def net():
        torch.manual_seed(5)
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 4, 2))

    torch.manual_seed(1)
    x = torch.randn(4 * SIZE, 2, 4, 4) * (1 + torch.arange(4.0 * SIZE)).view(-1, 1, 1, 1) + 3
    alone, model = net(), DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net()))
    mine = share(x).clone().requires_grad_()
    x.requires_grad_()
    alone(x).square().mean().backward()
    output = model(mine)
    output.square().mean().backward()
    close(output.detach(), alone(x).chunk(SIZE)[RANK].detach(), 1e-5)
    for a, b in zip(alone.parameters(), model.parameters()):
        close(b.grad, a.grad, 2e-5)
    close(mine.grad / SIZE, share(x.grad), 2e-5)
    alone_, synced = net(), nn.SyncBatchNorm.convert_sync_batchnorm(net())
    alone_(x)
    synced(mine)
    close(synced[1].running_mean, alone_[1].running_mean)
    close(synced[1].running_var, alone_[1].running_var)
    synced.eval()
    close(synced(mine).detach(), alone_.eval()(mine).detach(), 1e-5)  # each rank for itself
    one_value = nn.SyncBatchNorm(2)
    assert one_value(torch.ones(1, 2) * RANK).shape == (1, 2)  # enough with those of the others


def check_state_and_names():
    model = DDP(mlp())
    assert next(iter(model.state_dict())) == "module.0.weight"
    assert repr(model).startswith("DistributedDataParallel(\n  (module): Sequential(")
    other = DDP(mlp(seed=9))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.module[0].weight, model.module[0].weight)


def check_communication_hooks():
    from backlight.distributed.algorithms.ddp_comm_hooks import default_hooks

    x = batch()
    expected = expected_of(mlp(), x)
    for hook, tolerance in ((default_hooks.allreduce_hook, 1e-6), (default_hooks.fp16_compress_hook, 2e-3), (default_hooks.bf16_compress_hook, 2e-2)):  # fmt: skip
        model = DDP(mlp(), bucket_cap_mb=0.005)
        model.register_comm_hook(None, hook)
        raises(RuntimeError, "can only be called once", model.register_comm_hook, None, hook)
        for _ in range(2):
            model.zero_grad()
            model(share(x)).square().mean().backward()
            for found, wanted in zip(gradients(model), expected):
                close(found, wanted, tolerance)
    seen = []

    def sevens(state, bucket):
        seen.append((bucket.index(), bucket.is_last(), [tuple(p.shape) for p in bucket.parameters()], [tuple(g.shape) for g in bucket.gradients()]))  # fmt: skip
        future = torch.futures.Future()
        future.set_result(torch.full_like(bucket.buffer(), 7.0))
        return future

    model = DDP(nn.Linear(4, 3))
    model.register_comm_hook(None, sevens)
    model(one()).sum().backward()
    assert seen[0][:2] == (0, True)
    assert seen[0][2] == seen[0][3]
    assert model.module.weight.grad.unique().tolist() == [7.0]


def check_checkpoint():
    from backlight.utils.checkpoint import checkpoint

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return checkpoint(self.layer, checkpoint(self.layer, x, use_reentrant=True), use_reentrant=True)

    x = one().requires_grad_()
    model = DDP(Twice())
    raises(RuntimeError, ["Expected to mark a variable ready only once", "parameter layer."], model(x).sum().backward)
    model = DDP(Twice(), static_graph=True)
    plain = Twice()
    sum(plain(one(rank).requires_grad_()).sum() for rank in RANKS).backward()
    for _ in range(3):
        model.zero_grad()
        model(x).sum().backward()
        close(model.module.layer.weight.grad, plain.layer.weight.grad / SIZE)


def check_static_graph_with_unused_parameters():
    model = Branches()
    wrapped = DDP(model, static_graph=True)
    for _ in range(3):
        model.zero_grad()
        wrapped(one()).sum().backward()
        found = [torch.zeros(4, 4) for _ in RANKS]
        dist.all_gather(found, model.left.weight.grad)
        assert all(torch.equal(found[0], other) for other in found)
        assert model.right.weight.grad is None


def check_bad_input():
    raises(RuntimeError, "is not needed when a module doesn't have any parameter that requires a gradient", DDP, nn.ReLU())
    raises(ValueError, "device_ids and output_device arguments only work with", DDP, mlp(), device_ids=[0])
    raises(NotImplementedError, "mixed_precision isn't there", DDP, mlp(), mixed_precision=object())
    raises(TypeError, "Communication hook must be callable", DDP(mlp()).register_comm_hook, None, 3)


def check_group():
    group = dist.new_group([0, 1])
    if RANK < 2:
        model = DDP(nn.Linear(4, 1, bias=False), process_group=group)
        model(one()).sum().backward()
        assert model.module.weight.grad[0, 0].item() == 3
    dist.barrier()


def check_no_cycle_keeps_a_model():
    model = DDP(nn.Linear(4, 1))
    model(one()).sum().backward()
    reference = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert reference() is None
    finally:
        gc.enable()


def check_zero_optimizer():
    from backlight.distributed.optim import ZeroRedundancyOptimizer

    x = batch()
    for kind, options in (("Adam", {"lr": 0.01}), ("SGD", {"lr": 0.05, "momentum": 0.9})):
        alone, model = mlp(), DDP(mlp())
        plain = getattr(torch.optim, kind)(alone.parameters(), **options)
        shared = ZeroRedundancyOptimizer(model.parameters(), getattr(torch.optim, kind), **options)
        schedulers = [torch.optim.lr_scheduler.StepLR(one_, 2, 0.5) for one_ in (plain, shared)]
        for _ in range(5):
            plain.zero_grad()
            shared.zero_grad()
            alone(x).square().mean().backward()
            model(share(x)).square().mean().backward()
            plain.step()
            shared.step()
            for scheduler in schedulers:
                scheduler.step()
        for a, b in zip(alone.parameters(), model.parameters()):
            close(b.detach(), a.detach(), 2e-5)
        assert sum(p.numel() for p in shared.optim.state) < sum(p.numel() for p in model.parameters())
        assert shared.param_groups[0]["lr"] == plain.param_groups[0]["lr"]
        raises(RuntimeError, "has not been consolidated on this rank", shared.state_dict)
        shared.consolidate_state_dict(to=1)
        states = [shared.state_dict() if RANK == 1 else None]
        raises(RuntimeError, f"consolidate_state_dict(to={RANK})", shared.state_dict) if RANK != 1 else None
        dist.broadcast_object_list(states, src=1)
        (state,), expected = states, plain.state_dict()
        assert state["param_groups"] == expected["param_groups"]
        assert list(state["state"]) == list(expected["state"])
        for number, values in expected["state"].items():
            for name, value in values.items():
                close(torch.as_tensor(state["state"][number][name]), torch.as_tensor(value), 2e-5)
        again = ZeroRedundancyOptimizer(model.parameters(), getattr(torch.optim, kind), **options)
        again.load_state_dict(expected)
        assert len(again.optim.state) == len(shared.optim.state)
        assert again.param_groups[0]["lr"] == plain.param_groups[0]["lr"]


def check_zero_partition_is_that_of_pytorch():
    from backlight.distributed.optim import ZeroRedundancyOptimizer

    parameters = [nn.Parameter(torch.full((n,), float(i))) for i, n in enumerate([3, 7, 7, 2, 10, 1])]
    group = dist.new_group([0, 1])
    if RANK < 2:
        numbers = lambda optimizer: [[[int(p[0]) for p in part] for part in parts] for parts in optimizer.parts]
        one_ = ZeroRedundancyOptimizer(parameters, torch.optim.SGD, group, lr=0.1)
        assert numbers(one_) == [[[4, 0, 3]], [[1, 2, 5]]]
        two = ZeroRedundancyOptimizer(
            [{"params": parameters[:3], "lr": 0.5}, {"params": parameters[3:]}], torch.optim.SGD, group, lr=0.1
        )
        two.add_param_group({"params": [nn.Parameter(torch.full((n,), 50.0 + i)) for i, n in enumerate([4, 5])], "lr": 0.9})
        assert numbers(two) == [[[1, 0], [3, 5], [51]], [[2], [4], [50]]]
        assert [g["lr"] for g in two.optim.param_groups] == [0.5, 0.1, 0.9]
        raises(
            NotImplementedError,
            "overlap_with_ddp",
            ZeroRedundancyOptimizer,
            parameters,
            torch.optim.SGD,
            overlap_with_ddp=True,
            lr=1,
        )
        raises(ValueError, "empty parameter list", ZeroRedundancyOptimizer, [], torch.optim.SGD, lr=1)
        raises(
            TypeError,
            "iterable of Tensors, but got torch.FloatTensor",
            ZeroRedundancyOptimizer,
            parameters[0],
            torch.optim.SGD,
            lr=1,
        )
        mixed = [parameters[0], nn.Parameter(torch.zeros(1).double())]
        raises(ValueError, "torch.FloatTensor and torch.DoubleTensor", ZeroRedundancyOptimizer, mixed, torch.optim.SGD, lr=1)
    dist.barrier()


def check_in_a_pass_across_workers():
    from backlight.distributed import autograd as dist_autograd
    from backlight.distributed import rpc

    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=SIZE)
    model = DDP(nn.Linear(4, 1, bias=False))
    weight = model.module.weight
    with dist_autograd.context() as context:
        other = rpc.rpc_sync(f"worker{(RANK + 1) % SIZE}", torch.mul, args=(model(one()), 2))
        dist_autograd.backward(context, [other.sum()])
        found = dist_autograd.get_gradients(context)[weight]
    assert found.tolist() == [[4 * sum(r + 1 for r in RANKS) / SIZE] * 4]
    assert weight.grad is None
    rpc.shutdown()


def check_recording_shows_the_average():
    model = DDP(nn.Linear(4, 1, bias=False))
    with torch.inspect.record("full") as record:
        model(one()).sum().backward()
    (entry,) = record.passes[0].gradients
    assert entry.name.endswith("weight")
    assert entry.value.max == 2 * sum(r + 1 for r in RANKS) / SIZE


def check_sampler():
    from backlight.utils.data import DataLoader, DistributedSampler, TensorDataset

    sampler = DistributedSampler(range(10), shuffle=True, seed=5)
    assert (sampler.num_replicas, sampler.rank) == (SIZE, RANK)
    sampler.set_epoch(2)
    everything = [None] * SIZE
    dist.all_gather_object(everything, list(sampler))
    assert set().union(*everything) == set(range(10))
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2, sampler=DistributedSampler(range(8), shuffle=False))
    assert torch.cat([x for (x,) in loader]).tolist() == list(range(RANK, 8, SIZE))


run_checks(globals())
