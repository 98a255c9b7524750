"""MPI as the rest of `distributed` uses it: imported when it is first needed, waited for with a deadline, ended when a rank fails.

`import mpi4py.MPI` initialises MPI, so nothing here does it before a program asks for a process group or for rpc. Waiting is polite: MPI
itself spins on a processor until a message is there; `wait_for` looks hot for HOT seconds and then ever more rarely.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HOT = 5e-3  # seconds for which a waiting thread looks without sleeping
LONGEST_NAP = 1e-3  # seconds between two looks of one that has waited for long
DEFAULT_TIMEOUT = 60.0  # seconds

PR_SET_PDEATHSIG = 1  # prctl: the signal that the kernel sends to this process when its parent dies

LAUNCH = "start the program with `backlight launch -n 4 script.py`, or `mpirun -n 4 python -m mpi4py script.py`"

_mpi: Any = None
survives = False  # whether the job goes on when a process dies: mpirun's --with-ft ulfm
_loading = threading.Lock()


class DistributedTimeoutError(RuntimeError, TimeoutError):
    """Something in another process didn't happen in time; the text names the rank, the call and what it waited for."""


class WorkerDied(RuntimeError):
    """The process that a call waited for has died; only jobs started with `--with-ft ulfm` live to see it."""


def job_survives() -> bool:
    """Whether mpirun was started with --with-ft ulfm. Initialises nothing."""
    return os.environ.get("OMPI_MCA_mpi_ft_enable") == "1"  # noqa: SIM112


def is_available() -> bool:
    """Whether mpi4py is installed. Doesn't import it."""
    from importlib.util import find_spec

    return find_spec("mpi4py") is not None


def library() -> Any:
    """The module mpi4py.MPI, initialised with support for calls from several threads.

    Raises ImportError with what to install, RuntimeError where the MPI library can't be used from threads."""
    global _mpi, survives
    with _loading:
        if _mpi is None:
            survives = job_survives()
            _mpi = _load()
    return _mpi


def _load() -> Any:
    try:
        import mpi4py
    except ImportError:
        raise ImportError(
            "torch.distributed in Backlight runs on MPI, which isn't installed.\nInstall it: pip install 'backlight[distributed]', or, where "
            "the site has an MPI library of its own, pip install 'backlight[mpi]'."
        ) from None
    mpi4py.rc.thread_level = "multiple"
    # Open MPI, waiting, lets others have the processor: on a busy machine a training step takes a third of the time.
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    if survives:
        mpi4py.rc.finalize = False  # see _finalize_when_all_live
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # mpi4py is there and finds no libmpi
        raise ImportError(
            f"mpi4py finds no MPI library ({error}).\nInstall one beside it: pip install 'backlight[distributed]', or use the "
            "site's (often `module load openmpi`)."
        ) from error
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError(
            "This MPI library can't be called from several threads (MPI_THREAD_MULTIPLE), which torch.distributed needs."
        )
    if survives:
        _finalize_when_all_live(MPI)
    if MPI.COMM_WORLD.size > 1:
        _end_job_on_exceptions(MPI)
        end_with_parent()
        _hide_from_children()
    return MPI


def _finalize_when_all_live(MPI: Any) -> None:
    """Ends MPI at this process's end, in a job that survives deaths. After one, Open MPI's own end may wait for the dead, so there is none.

    `python -m mpi4py` notes the exit code of a program that failed, and mpi4py's own end, which isn't used then, ends the job with it."""
    failed: list[int] = []
    MPI._set_abort_status = failed.append

    def finalize() -> None:
        if failed:
            sys.stdout.flush()
            sys.stderr.flush()
            MPI.COMM_WORLD.Abort(failed[-1])
        if not MPI.Is_finalized() and _all_came(MPI):
            MPI.Finalize()

    atexit.register(finalize)


def _all_came(MPI: Any) -> bool:
    """Waits until all ranks have come to their end, or one has died: whether all have come."""
    world = MPI.COMM_WORLD
    try:
        arrived = None if world.Get_failed().size else world.Ibarrier()
        while arrived is not None and not arrived.Test():
            if world.Get_failed().size:
                return False
            time.sleep(0.01)
        return arrived is not None
    except MPI.Exception:  # one has died, or the program has revoked the communicator because one had
        return False


def rank() -> int:
    """This process's number in the job."""
    return library().COMM_WORLD.rank


def size() -> int:
    """How many processes the job has."""
    return library().COMM_WORLD.size


def check_world(given_rank: int, given_size: int) -> None:
    """Raises if a program gives (not -1) a rank or a size that isn't what MPI says."""
    MPI = library()
    world = MPI.COMM_WORLD
    if given_size not in (-1, world.size):
        hint = f" To have {given_size}, {LAUNCH}." if world.size == 1 else ""
        raise ValueError(f"world_size is {given_size}, but this job has {world.size} process{'es' * (world.size > 1)}.{hint}")
    if given_rank not in (-1, world.rank):
        raise ValueError(
            f"rank is {given_rank}, but MPI gave this process rank {world.rank}. Leave the argument out: MPI knows it."
        )


def _end_job_on_exceptions(MPI: Any) -> None:
    """An exception that nobody catches ends all ranks, not only this one, for which the others would wait forever."""
    show = sys.excepthook

    def hook(kind, error, traceback):
        show(kind, error, traceback)
        if "mpi4py.run" in sys.modules:  # `python -m mpi4py` does the same when the interpreter ends, after atexit functions
            return
        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(130 if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = hook


def wait_for(ready: Callable[[], Any], timeout: float | None, late: Callable[[], BaseException], hot: bool = True) -> Any:
    """Calls ready() until it returns something true, and returns that. After `timeout` seconds (None: never) raises late().

    hot=False: with naps from the start, for a thread beside one that computes."""
    result = ready()
    if result:
        return result
    start = time.perf_counter()
    nap = 0.0
    while True:
        if nap:
            time.sleep(nap)
        else:
            give_way()
        result = ready()
        if result:
            return result
        waited = time.perf_counter() - start
        if timeout is not None and waited > timeout:
            raise late()
        if waited > HOT or not hot:
            nap = min(LONGEST_NAP, nap * 1.5 or 2e-5)


def barrier(timeout: float | None, what: str) -> None:
    """Returns when all processes of the job have come here; DistributedTimeoutError says that this rank's `what` waited."""
    world = library().COMM_WORLD
    others = f"the other {world.size - 1} processes of the job to call it"
    late = lambda: DistributedTimeoutError(f"rank {world.rank} {what} waited {timeout:g} s for {others}")
    wait_for(world.Ibarrier().Test, timeout, late)


def failed_ranks(communicator: Any) -> list[int]:
    """The ranks of a communicator whose processes have died, where MPI tells (see `survives`)."""
    failed = communicator.Get_failed()
    return library().Group.Translate_ranks(failed, list(range(failed.size)), communicator.group)


def give_way() -> None:
    """Lets other threads have the interpreter and other processes the processor, if they want it. time.sleep(0) would take 70 us."""
    select.select((), (), (), 0)
    os.sched_yield()


def seconds(timeout: Any) -> float | None:
    """A timeout as a number of seconds, None for none: PyTorch takes numbers and timedeltas."""
    if timeout is None:
        return DEFAULT_TIMEOUT
    value = timeout.total_seconds() if hasattr(timeout, "total_seconds") else float(timeout)
    if value < 0:
        raise ValueError(f"timeout is {timeout!r}; it must be 0 or more seconds")
    return value


def end_with_parent() -> None:
    """Ends this process when the one that started it is gone: a launcher that is killed leaves no ranks behind."""
    parent = os.getppid()
    if sys.platform == "linux":  # the kernel does it, also while this process is somewhere in C and no thread of Python runs
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it went in the meantime
            os.kill(os.getpid(), signal.SIGKILL)
        return

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="backlight parent watch", daemon=True).start()


def _hide_from_children() -> None:
    """Takes from the environment what a child process would use to join the job, in the place of this rank.

    A process that multiprocessing spawns inherits the environment; if it imported MPI, both would answer for one rank, and crash."""
    for name in [name for name in os.environ if name.startswith(("PMIX_", "PMI_"))]:
        del os.environ[name]
