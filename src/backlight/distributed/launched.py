"""What every rank of `backlight launch` runs first: `python -m mpi4py .../launched.py ENGINE [-m] SCRIPT ...`.

It is started by its path, not imported: the number of threads has to be in the environment before NumPy is loaded, so nothing of Backlight
may be imported until then. It tells the launcher how this rank fares, in lines on stderr which begin with a byte that no text has; stderr
is what MPI brings to the launcher from every machine.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path[0] = ""  # this folder, whose modules must not hide others; `backlight run` puts the script's in its place

import faulthandler
import io
import json
import os
import signal
import socket
import time
import traceback

MARK = "\x1e"
TRACE = "BACKLIGHT_TRACE"  # the variable that has ranks record what autograd does
PIECE = (
    3000  # characters of a line to the launcher: what is shorter than a pipe's 4096 bytes isn't mixed with other ranks' lines
)
GRACE = 3  # seconds that a failed rank has for its exit functions; the others wait in the meantime

# What each MPI library tells a process: its rank, how many there are, its rank on this machine, how many there are here.
_VARIABLES = {
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "MPICH, Intel MPI": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


def place() -> tuple[str, ...]:
    """Rank, size, rank on this machine and size on this machine, as MPI's launcher left them in the environment."""
    for names in _VARIABLES.values():
        if all(name in os.environ for name in names):
            return tuple(os.environ[name] for name in names)
    raise SystemExit("backlight launch: this process wasn't started by the mpirun of Open MPI, MPICH or Intel MPI")


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tell(rank: str, event: str, **details: object) -> None:
    """Sends the launcher a report, in lines that it keeps from the terminal."""
    text = json.dumps({"event": event, **details})
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
    for number, piece in enumerate(pieces, 1):
        if event != "started":
            time.sleep(0.01)  # until what stderr held before was fetched: a line that has it for itself arrives in one piece
        os.write(2, f"{MARK}{rank} {number} {len(pieces)} {piece}\n".encode())


def _first_line(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _exit_code(error: SystemExit) -> int:
    """What Python makes of sys.exit's argument."""
    if error.code is None:
        return 0
    return error.code & 255 if isinstance(error.code, int) else 1


def _where(error: BaseException, own: tuple[str, ...]) -> str:
    """The script's line from which the interpreter was left."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(own)]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


class _Traced:
    """A recording of this rank, which begins here."""

    def __init__(self) -> None:
        from backlight import inspect

        self.recorder = inspect.start("norms")

    def show(self) -> None:
        """Ends it; rank 0 prints the call order across all ranks."""
        from backlight import inspect
        from backlight.inspect.render import terminal

        self.recorder.stop()
        ranks = inspect.gather(self.recorder.record)
        if ranks is not None:
            terminal.write_text("\n" + ranks.to_text(width=100), sys.stdout)


def main(engine: str, arguments: list[str]) -> int:
    """Prepares this process as torchrun does, runs the script as `backlight run` does, and reports how it ended."""
    found = place()
    rank = found[0]
    os.environ.update(zip(_TORCHRUN, found))
    if not os.environ.get("OMP_NUM_THREADS"):
        os.environ["OMP_NUM_THREADS"] = str(max(1, processors() // int(found[3])))
    tell(rank, "started", pid=os.getpid(), host=socket.gethostname())
    faulthandler.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a line is seen when it is printed, and not lost where the job is ended

    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.dirname(package) not in sys.path:
        sys.path.append(os.path.dirname(package))
    from backlight import cli
    from backlight.distributed import mpi

    mpi.end_with_parent()
    if mpi.job_survives():
        mpi.library()  # before a script imports mpi4py.MPI by itself: a job that survives deaths ends in another way
    reported = False

    def failed(code: int, error: str, text: str) -> None:
        nonlocal reported
        if not reported:
            reported = True
            sys.stdout.flush()
            tell(rank, "failed", code=code, error=error, traceback=text)

    def show(kind, error, entries):
        failed(
            130 if issubclass(kind, KeyboardInterrupt) else 1,
            _first_line(error),
            "".join(traceback.format_exception(kind, error, entries)),
        )

    sys.excepthook = show
    traced = _Traced() if os.environ.get(TRACE) else None
    try:
        code = cli.main(["run", "--engine", engine, *arguments])
        if code:
            failed(code, "", "")  # the script has an excepthook of its own, which has printed what it wanted
    except SystemExit as error:
        code = _exit_code(error)
        if code:
            if not isinstance(error.code, int):
                print(error.code, file=sys.stderr)
            message = f"sys.exit({error.code!r})"
            failed(code, message, f"{message} in {_where(error, (package, '<frozen runpy>'))}\n")
    if not code:
        if traced is not None:
            traced.show()
        tell(rank, "finished")
    elif hasattr(signal, "alarm"):
        # Python now waits for the script's threads, calls its exit functions and finalizes MPI; any of these may wait for a rank that waits for this one.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(GRACE)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))  # python -m mpi4py ends the whole job where the code isn't 0
