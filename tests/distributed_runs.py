"""Starts programs on several processes: pytest itself stays outside MPI, each test program runs under mpirun.

A launch takes a second or two, so a program under tests/distributed/ makes many checks, each with a name, and reports them with
`report`; `checks_of` reads their names from the source and `outcome` gives one test per check from one cached launch.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

SCRIPTS = Path(__file__).parent / "distributed"
MARK = "CHECKED "  # starts the line by which a program reports its checks


class Launch:
    """What a launch gave: its exit status, what it printed, whether it had to be killed."""

    def __init__(self, status: int, output: str, timed_out: bool) -> None:
        self.status, self.output, self.timed_out = status, output, timed_out

    @property
    def checks(self) -> dict[str, str]:
        """{check: what failed on which rank, "" if nothing did}, gathered over the ranks."""
        found: dict[str, str] = {}
        for line in self.output.splitlines():
            _, mark, report = line.partition(MARK)
            if mark:
                rank, name, failure = json.loads(report)
                found.setdefault(name, "")
                if failure:
                    found[name] += f"rank {rank}: {failure}\n"
        return found


def launch(script: str | Path, ranks: int, *args: object, timeout: float = 60, options: tuple[str, ...] = ()) -> Launch:
    """Runs a program (a path, or a name in tests/distributed) on `ranks` processes. options: more of mpirun's.

    After `timeout` seconds mpirun and everything that it started is killed."""
    from backlight.distributed.launch import find_mpirun

    path = SCRIPTS / script if not Path(script).is_absolute() else Path(script)
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(SCRIPTS), str(SCRIPTS.parent), environment.get("PYTHONPATH", "")])
    command = [
        find_mpirun(),
        "--oversubscribe",
        "--bind-to",
        "none",
        *options,
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "mpi4py",
        str(path),
    ]
    return run(command + [str(x) for x in args], environment, timeout)


def run(command: list[str], environment: dict[str, str], timeout: float) -> Launch:
    """Runs a command in a session of its own; on timeout the whole session is killed."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
        return Launch(process.returncode, output, False)
    except subprocess.TimeoutExpired:
        _kill(process)
        output, _ = process.communicate()
        return Launch(process.returncode, output, True)


def _kill(process: subprocess.Popen) -> None:
    """mpirun ends its ranks when it is asked to; what is left is killed: ranks have process groups of their own."""
    children = _descendants(process.pid)
    process.terminate()
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        process.kill()
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _descendants(parent: int) -> list[int]:
    """The processes that `parent` and its children started (Linux's /proc, else none)."""
    found, parents = [], {}
    for entry in Path("/proc").glob("[0-9]*/stat") if Path("/proc").exists() else ():
        try:
            text = entry.read_text()
        except OSError:  # it has ended
            continue
        parents.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(entry.parent.name))
    queue = [parent]
    for number in queue:  # grows while it is walked
        found += parents.get(number, ())
        queue += parents.get(number, ())
    return found


def checks_of(script: str) -> list[str]:
    """The names of the functions `check_*` in a program under tests/distributed."""
    return re.findall(r"^def check_(\w+)", (SCRIPTS / script).read_text(encoding="utf-8"), re.MULTILINE)


@functools.cache
def cached(script: str, ranks: int, timeout: float = 60) -> Launch:
    """A launch that all tests of a program share."""
    return launch(script, ranks, timeout=timeout)


def assert_passed(script: str, ranks: int, check: str, timeout: float = 60) -> None:
    """Fails if the check failed on any rank, or wasn't reported by all of them."""
    outcome = cached(script, ranks, timeout)
    assert not outcome.timed_out, f"{script} on {ranks} ranks didn't end within {timeout} s:\n{outcome.output[-4000:]}"
    reported = outcome.output.count(f', "{check}", ')
    assert reported == ranks, f"{reported} of {ranks} ranks reported {check}:\n{outcome.output[-4000:]}"
    assert not outcome.checks[check], outcome.checks[check]


def raises(kind: type[Exception], texts: str | list[str], function: Callable, *args: object, **options: object) -> Exception:
    """For the programs: the exception that the call must raise, with this text, or these, in it."""
    try:
        function(*args, **options)
    except kind as error:
        for text in [texts] if isinstance(texts, str) else texts:
            assert text in str(error), f"{text!r} isn't in {error!r}"
        return error
    raise AssertionError(f"{kind.__name__} {texts!r} wasn't raised by {function}")


def run_checks(names: dict) -> None:
    """For the programs: runs the functions `check_*` among `names` (their globals) in order, on all ranks, and reports each."""
    import traceback

    from mpi4py import MPI

    for name, function in list(names.items()):
        if name.startswith("check_"):
            failure = ""
            try:
                function()
            except Exception:  # reported; the other checks go on
                failure = traceback.format_exc()
            sys.stdout.write(f"{MARK}{json.dumps([MPI.COMM_WORLD.rank, name[len('check_') :], failure])}\n")
            sys.stdout.flush()
