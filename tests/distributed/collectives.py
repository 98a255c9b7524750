"""Checks of torch.distributed's collectives; run by tests/test_distributed_collectives.py on 2 and on 4 ranks."""

from __future__ import annotations

import datetime
import operator
import time
import warnings
from functools import reduce

import numpy as np
from distributed_runs import raises, run_checks

import backlight as torch
import backlight.distributed as dist
from backlight.distributed import reduction, work

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
RANKS = range(SIZE)
TYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.uint8,
    torch.int8,
]
TYPES += [torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64, torch.bool]


def values(rank, dtype, shape=(3,)):
    """Other small numbers on every rank, exact in every type."""
    numbers = (np.arange(np.prod(shape, dtype=int)).reshape(shape) * (rank + 1) + rank) % 5
    return torch.from_numpy(numbers.astype(np.float32)).to(dtype)


def equal(found, expected):
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert torch.equal(found, expected), (found, expected)


def check_all_reduce_of_every_type():
    ops = {"SUM": operator.add, "PRODUCT": operator.mul, "MIN": torch.minimum, "MAX": torch.maximum}
    bits = {"BAND": operator.and_, "BOR": operator.or_, "BXOR": operator.xor}
    for dtype in TYPES:
        known = {"SUM": operator.add} if dtype.is_complex else ops if dtype.is_floating_point else {**ops, **bits}
        for name, function in known.items():
            parts = [values(rank, dtype) for rank in RANKS]
            if dtype is torch.bool:
                function = {"SUM": operator.or_, "PRODUCT": operator.and_, "MIN": operator.and_, "MAX": operator.or_}.get(
                    name, function
                )
            tensor = parts[RANK].clone()
            assert dist.all_reduce(tensor, getattr(dist.ReduceOp, name)) is None
            if dtype.name.startswith("uint") and dtype is not torch.uint8:  # PyTorch has no arithmetic for them
                numbers = [p.numpy() for p in parts]
                arrays = {"MIN": np.minimum, "MAX": np.maximum}.get(name, function)
                assert (tensor.numpy() == reduce(arrays, numbers)).all(), (name, dtype)
            else:
                equal(tensor, reduce(function, parts))
        if dtype.is_floating_point or dtype.is_complex:
            tensor = values(RANK, dtype)
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
            equal(tensor, (reduce(operator.add, [values(rank, torch.complex128) for rank in RANKS]) / SIZE).real.to(dtype)
                  if not dtype.is_complex else (reduce(operator.add, [values(rank, dtype) for rank in RANKS]) / SIZE))  # fmt: skip


def check_half_is_summed_in_float32():
    tensor = torch.full((3_000_000,), 2048.0 if RANK == 0 else 1.0, dtype=torch.float16)
    dist.all_reduce(tensor)
    expected = np.float16(2048 + SIZE - 1)  # one by one, float16 would stay at 2048
    assert (tensor.numpy() == expected).all(), tensor


def check_layouts():
    tensor = values(RANK, torch.float32, (3, 4)).t()
    dist.all_reduce(tensor)
    equal(tensor, reduce(operator.add, [values(rank, torch.float32, (3, 4)).t() for rank in RANKS]))
    base = torch.zeros(6)
    base[::2] = RANK + 1.0
    dist.broadcast(base[::2], 1)
    equal(base, torch.tensor([2.0, 0, 2, 0, 2, 0]))
    outputs = [torch.zeros(4, 3).t() for _ in RANKS]
    dist.all_gather(outputs, values(RANK, torch.float32, (4, 3)).t())
    for rank, output in enumerate(outputs):
        equal(output, values(rank, torch.float32, (4, 3)).t())
    number = torch.tensor(float(RANK))
    dist.all_reduce(number)
    assert number.item() == sum(RANKS)
    assert number.shape == ()


def check_nothing_to_move():
    for call in (dist.all_reduce, lambda t: dist.broadcast(t, 0), lambda t: dist.reduce(t, 0), lambda t: dist.scatter(t, [t] * SIZE if RANK == 0 else None)):  # fmt: skip
        tensor = torch.ones(0, 3)
        call(tensor)
        assert tensor.shape == (0, 3)
    outputs = [torch.ones(0) for _ in RANKS]
    dist.all_gather(outputs, torch.ones(0))
    dist.all_to_all(outputs, outputs)
    dist.gather(torch.ones(0), outputs if RANK == 0 else None)
    assert all(x.shape == (0,) for x in outputs)


def check_data_of_every_type():
    for dtype in TYPES:
        mine = values(RANK, dtype)
        tensor = mine.clone()
        dist.broadcast(tensor, src=SIZE - 1)
        equal(tensor, values(SIZE - 1, dtype))
        outputs = [torch.zeros_like(mine) for _ in RANKS]
        dist.all_gather(outputs, mine)
        for rank, output in enumerate(outputs):
            equal(output, values(rank, dtype))
        for shape in ((SIZE * 3,), (SIZE, 3)):
            together = torch.zeros(shape, dtype=dtype)
            dist.all_gather_into_tensor(together, mine)
            equal(together, torch.stack([values(rank, dtype) for rank in RANKS]).reshape(shape))
        outputs = [torch.zeros_like(mine) for _ in RANKS] if RANK == 1 else None
        dist.gather(mine, outputs, dst=1)
        for rank, output in enumerate(outputs or ()):
            equal(output, values(rank, dtype))
        tensor = torch.zeros_like(mine)
        dist.scatter(tensor, [values(10 + rank, dtype) for rank in RANKS] if RANK == 1 else None, src=1)
        equal(tensor, values(10 + RANK, dtype))


def check_reduce():
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = values(RANK, dtype, (2, 3)).t()
        dist.reduce(tensor, dst=1)
        parts = [values(rank, dtype, (2, 3)).t() for rank in RANKS]
        equal(tensor, reduce(operator.add, parts) if RANK == 1 else parts[RANK])


def check_reduce_scatter():
    for dtype in (torch.float32, torch.float16, torch.int32, torch.bool):
        add = operator.or_ if dtype is torch.bool else operator.add
        total = reduce(add, [values(rank, dtype, (SIZE * 2, 3)) for rank in RANKS])
        output = torch.zeros(2, 3, dtype=dtype)
        dist.reduce_scatter_tensor(output, values(RANK, dtype, (SIZE * 2, 3)))
        equal(output, total[2 * RANK : 2 * RANK + 2])
        output = torch.zeros(2, 3, dtype=dtype)
        dist.reduce_scatter(output, list(values(RANK, dtype, (SIZE * 2, 3)).chunk(SIZE)))
        equal(output, total[2 * RANK : 2 * RANK + 2])
    output = torch.zeros(2)
    dist.reduce_scatter_tensor(output, torch.arange(2.0 * SIZE), dist.ReduceOp.AVG)
    equal(output, torch.arange(2.0) + 2 * RANK)


def check_all_to_all():
    outputs = [torch.zeros(rank + 1) for rank in RANKS]
    dist.all_to_all(outputs, [torch.full((RANK + 1,), 10.0 * RANK + rank) for rank in RANKS])
    for rank, output in enumerate(outputs):
        equal(output, torch.full((rank + 1,), 10.0 * rank + RANK))
    output = torch.zeros(SIZE, 2)
    dist.all_to_all_single(output, torch.arange(2.0 * SIZE).reshape(SIZE, 2) + 100 * RANK)
    equal(output, torch.stack([torch.arange(2.0) + 2 * RANK + 100 * rank for rank in RANKS]))
    sizes = [1] * (SIZE - 1) + [2]  # everybody sends the last rank two rows
    n = SIZE * (2 if RANK == SIZE - 1 else 1)
    output = torch.zeros(n)
    dist.all_to_all_single(output, torch.arange(SIZE + 1.0), [n // SIZE] * SIZE, sizes)
    equal(output, torch.arange(RANK, RANK + n // SIZE).float().repeat(SIZE))
    output = torch.zeros(SIZE)
    raises(
        RuntimeError,
        "Sizes don't match",
        dist.all_to_all_single,
        output,
        torch.zeros(SIZE if RANK else 2 * SIZE),
        None,
        [1 if RANK else 2] * SIZE,
    )


def check_pieces_as_of_large_tensors():
    whole, work.PIECE, reduction.AT_ONCE = (work.PIECE, reduction.AT_ONCE), 64, 64
    try:
        for check in (
            check_data_of_every_type,
            check_reduce,
            check_reduce_scatter,
            check_all_to_all,
            check_objects,
            check_messages,
        ):
            check()
        tensor = values(RANK, torch.float64, (50, 3))
        dist.all_reduce(tensor)
        equal(tensor, reduce(operator.add, [values(rank, torch.float64, (50, 3)) for rank in RANKS]))
        if RANK < 2:
            tensor = torch.arange(50.0) if RANK == 0 else torch.zeros(50)
            dist.send(tensor, 1) if RANK == 0 else dist.recv(tensor, 0)
            equal(tensor, torch.arange(50.0))
    finally:
        work.PIECE, reduction.AT_ONCE = whole


def check_objects():
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK, "tensor": torch.full((2,), float(RANK)), "long": "x" * 100 * RANK})
    assert [x["rank"] for x in found] == list(RANKS)
    assert all(torch.equal(x["tensor"], torch.full((2,), float(i))) and len(x["long"]) == 100 * i for i, x in enumerate(found))
    objects = [1, "two", {3: 4}] if RANK == 1 else [None] * 3
    dist.broadcast_object_list(objects, src=1)
    assert objects == [1, "two", {3: 4}]
    found = [None] * SIZE if RANK == 1 else None
    dist.gather_object(("from", RANK), found, dst=1)
    assert found == ([("from", rank) for rank in RANKS] if RANK == 1 else None)
    found = [None]
    dist.scatter_object_list(found, [f"for {rank}" for rank in RANKS] if RANK == 0 else None)
    assert found == [f"for {RANK}"]
    if RANK == 0:
        dist.send_object_list(["a", 1, None], dst=1)
    elif RANK == 1:
        found = [None] * 3
        assert dist.recv_object_list(found) == 0
        assert found == ["a", 1, None]


def check_messages():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    works = [dist.isend(values(RANK, torch.bfloat16, (4,)), after, tag=7), dist.isend(torch.tensor([RANK]), after, tag=8)]
    number, tensor = torch.zeros(1, dtype=torch.int64), torch.zeros(8, dtype=torch.bfloat16)
    assert dist.recv(number, before, tag=8) == before
    assert number.item() == before
    assert dist.recv(tensor[::2], tag=7) == before
    equal(tensor[::2], values(before, torch.bfloat16, (4,)))
    assert all(one.wait() for one in works)
    incoming = torch.zeros(2)
    ops = [dist.P2POp(dist.isend, torch.full((2,), float(RANK)), after), dist.P2POp(dist.irecv, incoming, before)]
    for one in dist.batch_isend_irecv(ops):
        one.wait()
    equal(incoming, torch.full((2,), float(before)))
    raises(ValueError, "destination rank should not be the same as the rank", dist.send, incoming, RANK)
    started = time.perf_counter()
    message = dist.irecv(torch.zeros(1), before, tag=99)
    raises(dist.DistributedTimeoutError, f"for its recv of float32 [1] from rank {before} with tag 99", message.wait, 0.05)
    assert time.perf_counter() - started < 5


def check_message_of_another_size():
    if RANK == 0:
        dist.send(torch.ones(3), 1)
        dist.send(torch.ones(1), 1)
    elif RANK == 1:
        raises(RuntimeError, "larger than the tensor", dist.recv, torch.zeros(2), 0)
        raises(RuntimeError, "a message of 4 bytes came, and the tensor has 8", dist.recv, torch.zeros(2), 0)
    dist.barrier()


def check_async():
    tensors = [values(RANK, torch.float32, (1000,)) for _ in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    last = torch.tensor([float(RANK)])
    dist.all_reduce(last)  # stands behind the others in the queue
    assert all(one.is_completed() for one in works)
    expected = reduce(operator.add, [values(rank, torch.float32, (1000,)) for rank in RANKS])
    for one, tensor in zip(works, tensors):
        assert one.wait() is True
        assert one.is_success()
        assert one.exception() is None
        assert one.result()[0] is tensor
        equal(tensor, expected)
    assert last.item() == sum(RANKS)
    future = dist.all_reduce(last, async_op=True).get_future()
    assert future.wait()[0].item() == SIZE * sum(RANKS)
    work_ = dist.barrier(async_op=True)
    deadline = time.perf_counter() + 10
    while not work_.is_completed():  # nobody waits: the thread does it
        assert time.perf_counter() < deadline
        time.sleep(0.001)


def check_futures_may_call_collectives():
    def again(future):
        (tensor,) = future.value()
        dist.all_reduce(tensor)
        return tensor

    future = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(again)
    equal(future.wait(), torch.full((2,), float(SIZE * SIZE)))


def check_autograd_notices_writes():
    x = torch.ones(3, requires_grad=True)
    y = x.exp()
    dist.all_reduce(y.detach())
    raises(RuntimeError, "modified by an inplace operation", y.sum().backward)
    parameter = torch.full((2,), float(RANK), requires_grad=True)
    dist.all_reduce(parameter)  # PyTorch lets leaves be written by collectives
    equal(parameter.detach(), torch.full((2,), float(sum(RANKS))))
    assert parameter.is_leaf
    assert parameter._version == 1


def check_groups():
    group = dist.new_group([1, 0])
    assert dist.get_world_size() == SIZE
    if RANK < 2:
        assert dist.get_process_group_ranks(group) == [0, 1]
        assert (dist.get_rank(group), dist.get_world_size(group), dist.get_backend(group)) == (RANK, 2, "gloo")
        tensor = torch.tensor([RANK + 1.0])
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == 3
    else:
        assert group == dist.GroupMember.NON_GROUP_MEMBER
        assert (dist.get_rank(group), dist.get_world_size(group)) == (-1, -1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert dist.all_reduce(torch.ones(1), group=group) is None
        assert f"Running all_reduce on global rank {RANK} which does not belong" in str(caught[0].message)
    last = dist.new_group([SIZE - 1, 0], timeout=5)
    if RANK in (0, SIZE - 1):
        assert dist.get_group_rank(last, SIZE - 1) == 1
        assert dist.get_global_rank(last, 1) == SIZE - 1
        raises(ValueError, "is not part of group", dist.get_group_rank, last, SIZE)
        tensor = torch.tensor([float(RANK)])
        dist.broadcast(tensor, src=SIZE - 1, group=last)
        assert tensor.item() == SIZE - 1
        tensor = torch.tensor([float(RANK)])
        dist.broadcast(tensor, group_src=1, group=last)
        assert tensor.item() == SIZE - 1
        raises(ValueError, "Can't specify both", dist.broadcast, tensor, 0, last, group_src=0)
        if SIZE > 2:
            raises(ValueError, "global rank 1 is not part of group", dist.broadcast, tensor, 1, last)
    mine, everyone = dist.new_subgroups(2)
    assert dist.get_process_group_ranks(mine) == [RANK // 2 * 2, RANK // 2 * 2 + 1]
    assert len(everyone) == SIZE // 2
    raises(ValueError, "must be divisible", dist.new_subgroups, SIZE - 1) if SIZE > 2 else None
    raises(ValueError, "out of range. Valid ranks", dist.new_group, [0, 99])
    raises(ValueError, "must not contain duplicate", dist.new_group, [0, 0])
    assert dist.group.WORLD is dist.GroupMember.WORLD
    dist.destroy_process_group(mine)
    raises(RuntimeError, "it was destroyed", dist.all_reduce, torch.ones(1), group=mine)


def check_bad_input():
    one = torch.ones(2)
    raises(ValueError, "trying to initialize the default process group twice", dist.init_process_group, "mpi")
    raises(TypeError, "Expected parameter `tensor` of type torch.Tensor", dist.all_reduce, [1])
    raises(TypeError, "Expected parameter `tensor_list` of type List[torch.Tensor]", dist.all_gather, one, one)
    raises(TypeError, "op must be a ReduceOp", dist.all_reduce, one, "sum")
    raises(
        ValueError,
        "does not support RedOpType.MAX on complex tensors",
        dist.all_reduce,
        one.to(torch.complex64),
        dist.ReduceOp.MAX,
    )
    raises(RuntimeError, "Cannot use ReduceOp.BAND with non-integral dtype", dist.all_reduce, one, dist.ReduceOp.BAND)
    raises(RuntimeError, "result type Float can't be cast", dist.all_reduce, one.long(), dist.ReduceOp.AVG)
    raises(ValueError, "Must specify global_rank or group_rank", dist.broadcast, one)
    raises(ValueError, "global rank 77 is not part of the default group", dist.broadcast, one, 77)
    raises(ValueError, "tensors with different dtypes", dist.all_gather, [one.double() for _ in RANKS], one)
    raises(ValueError, "tensor_list[0] has shape [3], expected [2]", dist.all_gather, [torch.ones(3) for _ in RANKS], one)
    raises(ValueError, "it needs one for each", dist.all_gather, [one], one)
    raises(ValueError, "world_size times input tensor size", dist.all_gather_into_tensor, torch.ones(3), one)
    if RANK == 0:
        raises(ValueError, "``gather_list`` must be specified on destination rank", dist.gather, one)
        raises(ValueError, "``scatter_list`` must be specified on source rank", dist.scatter, one)
    else:
        raises(ValueError, "``gather_list`` must NOT be specified on non-destination", dist.gather, one, [one])
        raises(ValueError, "``scatter_list`` must NOT be specified on non-source", dist.scatter, one, [one])


def check_different_calls_raise_everywhere():
    group = dist.new_group()
    one = torch.ones(10)
    try:
        if RANK == 0:
            dist.all_reduce(one, group=group)
        else:
            dist.broadcast(one, 0, group=group)
    except RuntimeError as error:
        others = "rank 1" if SIZE == 2 else "ranks 1, 2 and 3"
        assert (
            f"rank 0 called all_reduce #1 of float32 [10] with SUM, {others} called broadcast #1 of float32 [10] from rank 0"
            in str(error)
        )
    else:
        raise AssertionError("no error")
    raises(RuntimeError, "of float32 [11]", dist.all_reduce, torch.ones(11 if RANK else 10), group=group)
    raises(
        RuntimeError, "of int64 [10]", dist.all_reduce, torch.ones(10, dtype=torch.int64 if RANK else torch.int32), group=group
    )
    dist.all_reduce(one, group=group)  # all have seen the errors, so the group still works
    assert one[0].item() == SIZE


def check_a_missing_rank_is_named():
    group = dist.new_group(timeout=0.7)
    start = time.perf_counter()
    if RANK != 1:
        try:
            dist.all_reduce(torch.ones(5), group=group)
        except dist.DistributedTimeoutError as error:
            text = str(error)
            assert text.startswith("all_reduce #1 of float32 [5] with SUM in group"), text
            assert f"rank {RANK} waited 0.7 s; rank 1 has not arrived" in text or "gave up waiting" in text, text
        else:
            raise AssertionError("no error")
        assert 0.5 < time.perf_counter() - start < 5
        raises(RuntimeError, "broken since", dist.all_reduce, torch.ones(5), group=group)
        time.sleep(0.5)
    else:
        time.sleep(1.5)
        raises(
            dist.DistributedTimeoutError,
            "had already given up waiting for this rank",
            dist.all_reduce,
            torch.ones(5),
            group=group,
        )
    if RANK != 0:
        raises(
            dist.DistributedTimeoutError,
            "rank 0 has not arrived" if SIZE == 2 else "in time",
            dist.monitored_barrier,
            timeout=0.5,
        )


def check_new_start():
    """The default group broke in the check before; a new one starts afresh."""
    dist.destroy_process_group()
    assert not dist.is_initialized()
    raises(ValueError, "Default process group has not been initialized", dist.all_reduce, torch.ones(1))
    raises(ValueError, "world_size is 9", dist.init_process_group, world_size=9)
    raises(RuntimeError, "needs GPUs", dist.init_process_group, "nccl")
    dist.init_process_group("cpu:gloo,cuda:nccl", rank=RANK, world_size=SIZE)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == SIZE
    dist.barrier()


run_checks(globals())
