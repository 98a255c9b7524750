"""Rpc on three workers: calls, references, failures. Beside the checks that hold for PyTorch, too, those of what only Backlight promises."""

import gc
import os
import sys
import threading
import time

import numpy as np
from distributed_runs import raises, run_checks
from mpi4py import MPI

import backlight as torch
from backlight.distributed import mpi, rpc, work
from backlight.distributed.rpc import agent as agents
from backlight.distributed.rpc import rref

comm = MPI.COMM_WORLD.Dup()
RANK, SIZE = comm.rank, comm.size
seen = {}
following = f"worker{(RANK + 1) % SIZE}"
after_that = f"worker{(RANK + 2) % SIZE}"


def barrier():
    request = comm.Ibarrier()
    mpi.wait_for(request.Test, 20, lambda: AssertionError("the others didn't come to the barrier"))


class Counter:
    def __init__(self, start=0):
        self.value = start

    def increase(self, by=1):
        self.value += by
        return self.value

    def __call__(self, x):
        return self.value * x

    def fails(self):
        raise KeyError("inside")


class Unmakeable(Exception):
    def __init__(self, one, other):
        super().__init__(one, other)


def echo(x):
    return x


def kinds(*args, **kwargs):
    return [type(x).__name__ for x in args], {k: type(x).__name__ for k, x in kwargs.items()}


def fail(kind, *args):
    raise kind(*args)


def nap(seconds):
    time.sleep(seconds)
    return seconds


def note(key, value=None):
    seen[key] = value


def relay(names, depth):
    """A call from worker to worker and back, `depth` deep."""
    if not depth:
        return [RANK]
    return [RANK, *rpc.rpc_sync(names[depth % len(names)], relay, args=(names, depth - 1))]


@rpc.functions.async_execution
def add_later(to, x, y, z):
    return rpc.rpc_async(to, torch.add, args=(x, y)).then(lambda future: future.wait() + z)


@rpc.functions.async_execution
def fails_later(to):
    return rpc.rpc_async(to, fail, args=(ValueError, "later"))


@rpc.functions.async_execution
def not_later():
    return 3


def held():
    return len(rref._held)


def value_of(reference):
    return reference.to_here()


def pass_on(reference, to):
    return rpc.rpc_sync(to, value_of, args=(reference,))


def keep(key, reference):
    seen[key] = reference


def increase_twice(reference):
    return reference.rpc_sync().increase() + reference.rpc_sync().increase(by=10)


def wait_until(condition, what, seconds=10):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, what
        gc.collect()
        time.sleep(0.01)


# Calls


def check_values():
    for value in (None, 3, "text", [1, (2, {"a": {3}})], b"bytes" * 9, np.arange(5), 1 + 2j, range(3)):
        got = rpc.rpc_sync(following, echo, args=(value,))
        assert np.array_equal(got, value) if isinstance(value, np.ndarray) else got == value
    assert rpc.rpc_sync((RANK + 1) % SIZE, echo, args=("by rank",)) == "by rank"
    assert rpc.rpc_sync(rpc.get_worker_info(following), echo, kwargs={"x": "by keyword"}) == "by keyword"
    assert rpc.rpc_sync(rpc.get_worker_info().name, os.getpid) == os.getpid()
    assert rpc.rpc_sync(following, os.getpid) != os.getpid()
    assert rpc.rpc_sync(following, kinds, args=(1, "a"), kwargs={"b": 2.0}) == (["int", "str"], {"b": "float"})


def check_tensors():
    dtypes = (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.uint8,
        torch.bool,
        torch.complex64,
    )
    for dtype in dtypes:
        for shape in ((), (0,), (3, 4), (0, 5), (200, 300)):
            x = torch.ones(shape, dtype=dtype)
            y = rpc.rpc_sync(following, echo, args=(x,))
            assert y.dtype == dtype and y.shape == x.shape and torch.equal(x, y)
    x = torch.arange(12.0).reshape(3, 4)
    for view in (x.t(), x[:, 1:3], x[::2], x.expand(2, 3, 4)):
        y = rpc.rpc_sync(following, echo, args=(view,))
        assert torch.equal(view, y)
        y.add_(1)  # its memory is its own, and can be written
    parameter = torch.nn.Parameter(torch.ones(2))
    assert type(rpc.rpc_sync(following, echo, args=(parameter,))) is torch.nn.Parameter
    model = rpc.rpc_sync(following, echo, args=(torch.nn.Linear(2, 3),))
    assert model(torch.ones(2)).shape == (3,)
    x = torch.ones(2, requires_grad=True)
    y = rpc.rpc_sync(following, echo, args=(x,))
    assert y.requires_grad and y.is_leaf


def check_lambdas_and_local_things():
    offset, weights = 5, torch.arange(3.0)

    def local(x):
        return (x + offset) * weights

    class Local:
        def __init__(self, x):
            self.x = x

    assert rpc.rpc_sync(following, lambda x: x * offset, args=(2,)) == 10
    assert torch.equal(rpc.rpc_sync(following, local, args=(1,)), 6 * weights)
    assert rpc.rpc_sync(following, lambda made: made.x, args=(Local(7),)) == 7
    assert rpc.rpc_sync(following, lambda: lambda: 8)() == 8


def check_large_messages():
    """What is larger than INLINE goes straight into the new tensor's memory, and in pieces of at most work.PIECE bytes."""
    x = torch.arange(3_000_001, dtype=torch.int32)
    before = work.PIECE
    for piece in (before, 1 << 20, 77_777):
        barrier()
        work.PIECE = piece
        barrier()
        got = rpc.rpc_sync(following, echo, args=([x, x[::3], x[:5]],))
        assert torch.equal(got[0], x) and torch.equal(got[1], x[::3]) and torch.equal(got[2], x[:5])
    barrier()
    work.PIECE = before


def check_futures():
    futures = [rpc.rpc_async(following, echo, args=(i,)) for i in range(50)]
    assert torch.futures.wait_all(futures) == list(range(50))
    assert all(future.done() for future in futures)
    assert rpc.rpc_async(following, echo, args=(3,)).then(lambda future: future.value() + 1).wait() == 4
    called = threading.Event()
    rpc.rpc_async(following, echo, args=(3,)).add_done_callback(lambda future: called.set())
    assert called.wait(5)
    with rpc._wait_all():
        future = rpc.rpc_async(following, nap, args=(0.2,))
        assert not future.done()
    assert future.done()


def check_async_execution():
    x = torch.ones(2)
    assert torch.equal(rpc.rpc_sync(following, add_later, args=(after_that, x, x, 3)), torch.full((2,), 5.0))
    assert torch.equal(rpc.remote(following, add_later, args=(after_that, x, x, 3)).to_here(), torch.full((2,), 5.0))
    raises(ValueError, "later", rpc.rpc_sync, following, fails_later, args=(after_that,))
    raises(RuntimeError, "must return a torch.futures.Future object", rpc.rpc_sync, following, not_later)


def check_forty_chains_of_calls():
    """Each goes from worker to worker, eight deep and back, all at once: with a fixed number of threads they would wait for each other."""
    names = [f"worker{i}" for i in range(SIZE)]
    futures = [rpc.rpc_async(names[i % SIZE], relay, args=(names, 8)) for i in range(40)]
    for i, future in enumerate(futures):
        assert future.wait() == [i % SIZE, *((8 - depth) % SIZE for depth in range(8))]
    barrier()


def check_threads():
    """Calls from many threads at once, each with its own answers."""
    wrong = []

    def work(start):
        for i in range(start, start + 20):
            x = torch.full((i,), float(i))
            if not torch.equal(rpc.rpc_sync(following, echo, args=(x,)), x):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(100 * (n + 1),)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong and not any(thread.is_alive() for thread in threads)


# References


def check_references():
    reference = rpc.remote(following, Counter, args=(5,))
    assert (
        not reference.is_owner() and reference.owner_name() == following and reference.owner() == rpc.get_worker_info(following)
    )
    assert reference.to_here().value == 5
    assert reference.confirmed_by_owner()
    assert reference.rpc_sync().increase() == 6
    assert reference.rpc_async().increase(by=4).wait() == 10
    assert reference.remote().increase().to_here() == 11
    assert reference.rpc_sync()(2) == 22
    assert rpc.rpc_sync(following, increase_twice, args=(reference,)) == 12 + 22
    assert rpc.rpc_sync(after_that, increase_twice, args=(reference,)) == 23 + 33
    raises(RuntimeError, "can't call localValue() on user", reference.local_value)
    raises(AttributeError, "has no attribute 'missing'", lambda: reference.rpc_sync().missing())
    raises(KeyError, "inside", lambda: reference.rpc_sync().fails())
    assert repr(reference).startswith("UserRRef(RRefId = GloballyUniqueId(created_on=")


def check_own_references():
    value = Counter(3)
    reference = rpc.RRef(value)
    assert reference.is_owner() and reference.to_here() is value and reference.local_value() is value
    assert repr(reference).startswith("OwnerRRef(GloballyUniqueId(created_on=")
    assert reference.rpc_sync().increase() == 4
    assert rpc.rpc_sync(following, increase_twice, args=(reference,)) == 5 + 15 and value.value == 15
    assert rpc.rpc_sync(following, pass_on, args=(reference, after_that)).value == 15
    own = rpc.remote(RANK, Counter, args=(1,))
    assert own.is_owner() and own.to_here() is own.local_value() and own.rpc_sync().increase() == 2


def check_references_cannot_be_pickled_elsewhere():
    import pickle

    raises(RuntimeError, "rref can only be pickled when using RPC", pickle.dumps, rpc.RRef(1))


def check_lifetime():
    """A value lives while a reference to it exists anywhere, and no longer."""
    barrier()
    wait_until(lambda: held() == 0, f"{held()} values are left from before")
    barrier()
    reference = rpc.remote(following, Counter, args=(RANK,))
    assert reference.to_here().value == RANK
    rpc.rpc_sync(after_that, keep, args=(("kept", RANK), reference))
    barrier()
    assert held() == 1
    del reference
    gc.collect()
    time.sleep(0.2)
    barrier()
    assert held() == 1  # the third worker has a reference
    (mine,) = [key for key in seen if key[0] == "kept"]
    assert seen[mine].to_here().value == mine[1]
    barrier()
    del seen[mine]
    wait_until(lambda: held() == 0, "a value outlived its references")
    barrier()
    reference = rpc.RRef(Counter(9))
    for _ in range(100):
        rpc.rpc_sync(following, value_of, args=(reference,))
    wait_until(lambda: held() == 0, "a value that was only lent is still noted")
    barrier()


def check_many_copies_of_copies():
    """A reference that was copied more often than its weight can be halved asks the owner for more."""
    reference = rpc.remote(following, Counter, args=(1,))
    for _ in range(150):
        assert rpc.rpc_sync(after_that, value_of, args=(reference,)).value == 1
    del reference
    barrier()
    wait_until(lambda: held() == 0, "a value outlived its references")
    barrier()


def check_unsent_references():
    """A reference in a message that can't be pickled keeps its weight."""
    reference = rpc.remote(following, Counter)
    reference.to_here()
    raises(TypeError, "", rpc.rpc_sync, after_that, echo, args=((reference, threading.Lock()),))
    del reference
    barrier()
    wait_until(lambda: held() == 0, "a value outlived its references")
    barrier()


# Errors


def check_remote_exceptions():
    error = raises(ValueError, "ValueError('some', 'text')", rpc.rpc_sync, following, fail, args=(ValueError, "some", "text"))
    assert str(error).startswith(f"On WorkerInfo(id={(RANK + 1) % SIZE}, name={following}):") and "in fail" in str(error)
    raises(RuntimeError, "Failed to create original exception type", rpc.rpc_sync, following, fail, args=(Unmakeable, 1, 2))
    raises(ValueError, "x", rpc.rpc_async(following, fail, args=(ValueError, "x")).wait)
    reference = rpc.remote(following, fail, args=(ValueError, "in remote"))
    error = raises(ValueError, "in remote", reference.to_here)
    assert str(error).count("On WorkerInfo") == 1
    own = rpc.remote(RANK, fail, args=(ValueError, "in remote"))
    raises(ValueError, "in remote", own.to_here)
    raises(TypeError, "", rpc.rpc_sync, following, threading.Lock)  # an answer that can't be sent

    class Local(Exception):
        pass

    raises(Exception, "of a local type", rpc.rpc_sync, following, fail, args=(Local, "of a local type"))
    assert rpc.rpc_sync(following, echo, args=(1,)) == 1


class OnlyHere:
    """Can be sent, and can't be made on the other side."""

    def __reduce__(self):
        return int, ("not a number",)


def check_what_cannot_be_unpickled():
    raises(ValueError, "not a number", rpc.rpc_sync, following, echo, args=(OnlyHere(),))
    raises(ValueError, "not a number", rpc.rpc_sync, following, OnlyHere)


def check_bad_arguments():
    raises(RuntimeError, "could not find destination name nobody", rpc.rpc_sync, "nobody", echo, args=(1,))
    raises(RuntimeError, "could not find destination id 9", rpc.rpc_sync, 9, echo, args=(1,))
    raises(ValueError, "Cannot get WorkerInfo from name 1.5", rpc.rpc_sync, 1.5, echo, args=(1,))
    raises(TypeError, "function should be callable.", rpc.rpc_sync, following, 3)
    raises(ValueError, "timeout is -3", rpc.rpc_sync, following, echo, args=(1,), timeout=-3)
    raises(RuntimeError, "already initialized", rpc.init_rpc, "again")


def check_timeouts():
    start = time.time()
    error = raises(
        RuntimeError, "RPC ran for more than set timeout (300 ms)", rpc.rpc_sync, following, nap, args=(1.0,), timeout=0.3
    )
    assert 0.25 < time.time() - start < 0.9 and isinstance(error, TimeoutError)
    assert f"Rank {RANK} (worker{RANK}) called nap on rank {(RANK + 1) % SIZE} ({following})" in str(error)
    future = rpc.rpc_async(following, nap, args=(1.0,), timeout=0.2)
    expired = threading.Event()
    future.add_done_callback(lambda future: expired.set())
    assert expired.wait(0.9)  # although nobody waits for it
    raises(RuntimeError, "set timeout (200 ms)", future.wait)
    reference = rpc.remote(following, nap, args=(0.6,), timeout=0.1)
    time.sleep(0.4)
    raises(RuntimeError, "RRef creation via rpc.remote() timed out", reference.to_here)
    reference = rpc.remote(following, nap, args=(0.6,))
    raises(RuntimeError, "called RRef.to_here on", reference.to_here, timeout=0.1)
    before = rpc.get_rpc_timeout()
    rpc._set_rpc_timeout(0.1)
    raises(RuntimeError, "(100 ms)", rpc.rpc_sync, following, nap, args=(0.5,))
    assert rpc.rpc_sync(following, nap, args=(0.3,), timeout=0) == 0.3
    rpc._set_rpc_timeout(before)
    barrier()


def check_threads_end_when_idle():
    """Threads that many calls at once made don't stay."""
    torch.futures.wait_all([rpc.rpc_async(following, nap, args=(0.2,)) for _ in range(60)])
    barrier()

    def count():
        return sum(thread.name == "backlight rpc" for thread in threading.enumerate())

    wait_until(lambda: count() <= agents.IDLE_THREADS + 2, "threads stay")
    barrier()


if __name__ == "__main__":
    rpc.init_rpc(f"worker{RANK}", rank=RANK, world_size=SIZE)
    for name, function in list(globals().items()):
        if name.startswith("check_"):
            run_checks({name: function})
            barrier()
    rpc.shutdown()
    raised = []
    try:
        rpc.rpc_sync("worker0", echo, args=(1,))
    except RuntimeError as error:
        raised.append("RPC has not been initialized" in str(error))
    rpc.init_rpc(f"again{RANK}")  # and once more
    raised.append(rpc.rpc_sync(f"again{(RANK + 1) % SIZE}", echo, args=(5,)) == 5)
    rpc.shutdown()
    if raised != [True, True]:
        sys.exit(f"after shutdown: {raised}")
    sys.stdout.write("ended well\n")
