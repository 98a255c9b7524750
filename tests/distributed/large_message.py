"""A message of as many bytes as the argument says: with over 2 GiB it is larger than MPI can count in 32 bits."""

import sys

from mpi4py import MPI

import backlight as torch
from backlight.distributed import rpc

SIZE = int(sys.argv[1])
MARKS = (0, SIZE // 3, SIZE - 12_346, SIZE - 1)


def at_marks(x):
    return x.numel(), [x[i].item() for i in MARKS]


rank = MPI.COMM_WORLD.rank
rpc.init_rpc(f"worker{rank}")
if not rank:
    sent = torch.zeros(SIZE, dtype=torch.uint8)
    for number, i in enumerate(MARKS):
        sent[i] = number + 1
    assert rpc.rpc_sync("worker1", at_marks, args=(sent,)) == (SIZE, [1, 2, 3, 4])
    print("as it was sent")
rpc.shutdown()
