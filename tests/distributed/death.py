"""Rank 1 is killed; the others, started with `--with-ft ulfm`, hear of it from the collective that they are in."""

from __future__ import annotations

import os
import signal
import sys
import time

import backlight as torch
import backlight.distributed as dist

dist.init_process_group(timeout=20)
dist.barrier()
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
for call in (dist.all_reduce, dist.all_reduce):  # the second one is refused at once
    try:
        call(torch.ones(100_000))
    except (dist.WorkerDied, RuntimeError) as error:
        sys.stdout.write(f"rank {dist.get_rank()}: {type(error).__name__}: {error}\n")
        sys.stdout.flush()
time.sleep(1)  # or a slower rank hears of two deaths
os._exit(0)
