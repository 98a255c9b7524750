"""How much memory a workload needs: the growth of the process while it runs. Linux only."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import traceback
import tracemalloc

AVAILABLE = os.path.exists("/proc/self/clear_refs")


def peak_growth(make, run) -> int:
    """Bytes by which the peak of resident memory exceeds what was resident before, in a run after a first one.

    It is measured in a fork, which ends: what other workloads freed would hide the growth.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            parts = make()
            run(parts)
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # the first run's freed memory may still be resident
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the peak is what is resident now
            before = _status("VmRSS")
            run(parts)
            os.write(writing, json.dumps(_status("VmHWM") - before).encode())
            del parts  # and its files
            gc.collect()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        raise RuntimeError("the process whose memory was measured failed")
    return json.loads(answer)


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{name}:")) * 1024


def tape(torch, ops: int = 100_000) -> dict[str, float]:
    """Bytes that the graph of the 8x8 chain holds per operation: the growth of the process, and what Python allocated."""
    x = torch.full((8, 8), 0.5, requires_grad=True)
    w = torch.full((8, 8), 0.5)

    def graph(n):
        y = x
        for _ in range(n // 2):
            y = y * w
            y = y + w
        return y

    graph(100)
    gc.collect()
    before = _status("VmRSS")
    kept = graph(ops)
    resident = (_status("VmRSS") - before) / ops
    del kept
    tracemalloc.start()
    kept = graph(1000)  # noqa: F841  (held while it is measured)
    traced = tracemalloc.get_traced_memory()[0] / 1000
    tracemalloc.stop()
    return {"resident": resident, "traced": traced}
