"""Workers that die in a job that survives it (mpirun --with-ft ulfm): who called them gets WorkerDied, the others go on."""

import os
import signal
import sys
import time

import backlight as torch
from backlight.distributed import WorkerDied, mpi, rpc
from backlight.distributed import autograd as dist_autograd

RANK = mpi.rank()


def echo(x):
    return x


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def chain(x, y, workers):
    if not workers:
        return x * y
    return rpc.rpc_sync(workers[0], chain, args=(x, y, workers[1:]))


def soon(kind, function, *args, **kwargs):
    """The error, which must come within 5 seconds."""
    start = time.time()
    try:
        function(*args, **kwargs)
    except kind as error:
        assert time.time() - start < 5, f"{error} came after {time.time() - start:.1f} s"
        return str(error)
    raise AssertionError(f"{kind.__name__} wasn't raised")


def main():
    rpc.init_rpc(f"worker{RANK}")
    if RANK == 0:
        x, y = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True)
        with dist_autograd.context() as context_id:
            through_both = rpc.rpc_sync("worker1", chain, args=(x, y, ["worker2"])).sum()
            waiting = rpc.rpc_async("worker2", time.sleep, args=(60,))
            reference = rpc.remote("worker2", echo, args=(3,))
            text = soon(WorkerDied, rpc.rpc_sync, "worker2", die)
            assert text == "Rank 0 (worker0) called die on rank 2 (worker2), which has died.", text
            assert "called sleep on" in soon(WorkerDied, waiting.wait)
            soon(WorkerDied, rpc.rpc_sync, "worker2", echo, args=(1,))
            soon(WorkerDied, reference.to_here)
            assert "has died" in soon(RuntimeError, dist_autograd.backward, context_id, [through_both])
        with dist_autograd.context() as context_id:  # the others go on
            dist_autograd.backward(context_id, [rpc.rpc_sync("worker1", chain, args=(x, y, ["worker3"])).sum()])
            assert torch.equal(dist_autograd.get_gradients(context_id)[x], y)
        with dist_autograd.context() as context_id:
            loss = rpc.rpc_sync("worker3", chain, args=(x, y, [])).sum()
            soon(WorkerDied, rpc.rpc_sync, "worker3", die)
            assert "which has died" in soon(RuntimeError, dist_autograd.backward, context_id, [loss])
        assert rpc.rpc_sync("worker1", echo, args=(5,)) == 5
        del reference
    rpc.shutdown()
    sys.stdout.write(f"worker{RANK} ended well\n")


main()
