"""A message that is larger than MPI can count in 32 bits."""

from mpi4py import MPI

import backlight as torch
from backlight.distributed import rpc


def ends(x):
    return x.numel(), x[0].item(), x[-1].item(), x[1 << 31].item()


rank = MPI.COMM_WORLD.rank
rpc.init_rpc(f"worker{rank}")
if not rank:
    x = torch.zeros((1 << 31) + 12_345, dtype=torch.uint8)
    x[0], x[-1], x[1 << 31] = 1, 2, 3
    assert rpc.rpc_sync("worker1", ends, args=(x,)) == (x.numel(), 1, 2, 3)
    print("as it was sent")
rpc.shutdown()
