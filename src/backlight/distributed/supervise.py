"""Runs a job's mpirun: passes on what it prints, says at the end which rank failed first and how, and leaves nothing running.

The ranks' stderr comes through here, so that the user reads the cause last, below everything that other ranks or mpirun still print when a
job falls apart; launched.py sends reports among it, and mpirun its own account of what it saw, of which only what it knows is kept.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

from .launched import MARK
from .mpi import PR_SET_PDEATHSIG

PATIENCE = 5.0  # seconds that mpirun has to end a job before it is killed
HELD = 1.0  # seconds for which the beginning of something that isn't to be shown waits for the rest
_MARK = MARK.encode()
_RULE = b"-" * 74  # the line that Open MPI puts before and after what it has to say (MPICH says it on stdout)
_BANNER = re.compile(rb"prterun|mpirun|mpiexec|MPI_ABORT was|Primary job")
_LONGEST_BANNER = 40  # lines

# What Open MPI says of a rank, with what it knows as groups; and how to say what it means.
_ACCOUNTS = (
    (re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal (?P<signal>\d+)"), ""),
    (re.compile(r"Process name: \[\S*,(?P<rank>\d+)\] Exit code: +(?P<code>\d+)"), ""),
    (re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+) .*Errorcode: (?P<code>\d+)"), "it called MPI_Abort"),
    (re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exiting improperly"), "it ended without MPI_Finalize"),
)
_KILLED = "Somebody sent it, or the machine had no memory left.\n"


@dataclass
class Failure:
    """How a rank failed."""

    rank: int
    code: int
    error: str = ""  # "ValueError: no such batch", empty where nothing is known but the code
    traceback: str = ""
    signal: int = 0

    def __str__(self) -> str:
        if self.signal:
            try:
                name = signal.Signals(self.signal).name
            except ValueError:
                name = "unknown"
            return f"was killed by signal {self.signal} ({name})"
        return f"failed: {self.error} (exit code {self.code})" if self.error else f"failed with exit code {self.code}"


@dataclass
class Watch:
    """Reads stderr of a job: what `feed` returns is for the user, what the launcher has to know is in the other attributes."""

    failures: list[Failure] = field(default_factory=list)
    started: dict[int, tuple[int, str]] = field(default_factory=dict)  # rank: process, machine
    finished: set[int] = field(default_factory=set)
    _buffer: bytes = b""
    _banner: list[bytes] = field(default_factory=list)
    _pieces: dict[str, list[str]] = field(default_factory=dict)

    def feed(self, data: bytes) -> bytes:
        """Takes what was read; returns what is to be shown of it now."""
        self._buffer += data.replace(b"\0", b"")  # Open MPI writes one when a rank calls MPI_Abort
        shown = []
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if not newline:
                break
            self._buffer = rest
            shown.append(self._line(line + newline))
        if _MARK not in self._buffer and not self._banner:  # a prompt, a progress bar
            start = len(self._buffer.rstrip(b"-"))  # what may become a rule waits
            shown.append(self._buffer[:start])
            self._buffer = self._buffer[start:]
        return b"".join(shown)

    def flush(self) -> bytes:
        """What was held back and is to be shown after all, because nothing more comes for now."""
        held = self._take_banner()
        if _MARK not in self._buffer:
            held += self._buffer
            self._buffer = b""
        return held

    def _line(self, line: bytes) -> bytes:
        before, mark, report = line.partition(_MARK)
        if mark:
            self._piece(report.decode(errors="replace"))
            return before
        if self._banner:
            self._banner.append(line)
            if len(self._banner) == 2 and not _BANNER.match(line) or len(self._banner) > _LONGEST_BANNER:
                return self._take_banner()
            if len(self._banner) > 2 and line.rstrip() == _RULE:
                banner = self._take_banner()
                known = self._account(" ".join(banner.decode(errors="replace").split()))
                return b"" if known else banner
            return b""
        before, rule, end = line.rpartition(_RULE)
        if not rule or end.strip():
            return line
        self._banner.append(rule + end)
        return before

    def _take_banner(self) -> bytes:
        banner = b"".join(self._banner)
        self._banner.clear()
        return banner

    def _piece(self, text: str) -> None:
        """One line of a report; after the last one the report is taken in."""
        try:
            rank, number, count, piece = text.rstrip("\n").split(" ", 3)
            pieces = self._pieces.setdefault(rank, [])
            pieces.append(piece)
            if int(number) < int(count):
                return
            del self._pieces[rank]
            self._report(int(rank), json.loads("".join(pieces)))
        except (ValueError, KeyError):  # lines of two ranks were mixed; mpirun's own account is left
            return

    def _report(self, rank: int, report: dict) -> None:
        if report["event"] == "started":
            self.started[rank] = report["pid"], report["host"]
        elif report["event"] == "finished":
            self.finished.add(rank)
        else:
            self._add(Failure(rank, report["code"], report["error"], report["traceback"]))

    def _account(self, text: str) -> bool:
        """Takes in what mpirun says of a rank. Whether it needn't be shown."""
        for pattern, reason in _ACCOUNTS:
            match = pattern.search(text)
            if match:
                found = match.groupdict()
                number = int(found.get("signal") or 0)
                code = 128 + number if number else int(found.get("code") or 1)
                self._add(Failure(int(found["rank"]), code, reason, signal=number))
                return True
        return 'calling "abort"' in text or "Primary job" in text  # which other lines say better

    def _add(self, failure: Failure) -> None:
        if failure.rank not in [other.rank for other in self.failures]:
            self.failures.append(failure)


def run(command: list[str], environment: dict[str, str], timeout: float | None, survive: bool) -> int:
    """Runs mpirun's command and returns the exit code of the job: that of the rank which failed first, never 0 if one did.

    After `timeout` seconds the job is ended and the code is 124; after Ctrl-C 130, after SIGTERM 143. With `survive` the job goes on when a
    rank is killed, and the code is 0 if the others finish."""
    start = time.monotonic()
    launcher = os.getpid()
    with _stops() as stops:
        mpirun = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, preexec_fn=lambda: _end_with(launcher))
        assert mpirun.stderr is not None
        watch, pipe = Watch(), mpirun.stderr.fileno()
        deadline, reported, stopped, last = None, 0, "", start
        while True:
            readable = select.select([pipe], [], [], 0.1)[0]
            data = os.read(pipe, 65536) if readable else b""
            if data:
                last = time.monotonic()
                _write(watch.feed(data))
            elif readable or time.monotonic() - last > HELD:
                _write(watch.flush())
            if survive and len(watch.failures) > reported:  # the job goes on: the end may be far
                reported = len(watch.failures)
                _say(_account_of(watch.failures[-1], watch))
            if not stopped:
                if stops:
                    stopped = f"stopped by {signal.Signals(stops[0]).name}"
                elif timeout is not None and time.monotonic() - start > timeout:
                    stopped = f"ended after {timeout:g} seconds (--timeout)"
                if stopped:
                    deadline = time.monotonic() + PATIENCE
                    mpirun.terminate()
            if deadline is not None and time.monotonic() > deadline:
                mpirun.kill()
            if (readable and not data) or (not readable and mpirun.poll() is not None):
                break
        _write(watch.flush())
        code = mpirun.wait()
    if code:
        _end_groups(watch)
    return _conclude(watch, code, stopped, stops[0] if stops else 0, survive)


def _conclude(watch: Watch, code: int, stopped: str, number: int, survive: bool) -> int:
    """Prints what there is to say at the end, and returns the exit code."""
    if stopped:
        _say(f"backlight launch: {stopped}\n")
        return 128 + number if number else 124
    failed = next((failure.code for failure in watch.failures if failure.code), 0)
    told = [failure.rank for failure in watch.failures] + [*watch.finished]
    silent = (
        [rank for rank in watch.started if rank not in told] if survive else []
    )  # Open MPI says nothing of those that were killed
    for rank in silent:
        _say(f"backlight launch: rank {rank} of {len(watch.started)} was killed; with --with-ft ulfm the others go on\n")
    if watch.failures and not survive:
        first, *others = watch.failures
        _say(_account_of(first, watch))
        if others:
            _say("after that: " + ", ".join(f"rank {other.rank} {other}" for other in others) + "\n")
    elif code and not told and not silent:
        _say(f"backlight launch: mpirun {f'was killed by signal {-code}' if code < 0 else f'ended with exit code {code}'}\n")
    if silent and not watch.finished:  # mpirun's code is 0 even then
        failed = failed or 128 + signal.SIGKILL
    return failed or (128 - code if code < 0 else code)


def _account_of(failure: Failure, watch: Watch) -> str:
    """The failure as the user reads it: in one line what happened, then the traceback."""
    rank = f"rank {failure.rank} of {len(watch.started)}"
    machine = watch.started.get(failure.rank, (0, ""))[1]
    where = f" on {machine}" if machine and len({host for _, host in watch.started.values()}) > 1 else ""
    return f"backlight launch: {rank}{where} {failure}\n{failure.traceback or _KILLED * (failure.signal == 9)}"


def _say(text: str) -> None:
    _write(text.encode(errors="replace"))


def _write(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:  # nobody reads any more: the job goes on all the same
        return


# Ending


def _end_with(launcher: int) -> None:
    """In the child that becomes mpirun: the kernel shall end it when the launcher dies, and mpirun then ends the ranks."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != launcher:
            os._exit(1)


def _end_groups(watch: Watch) -> None:
    """Kills what ranks on this machine started and left: mpirun made each rank the leader of a process group."""
    for pid, machine in watch.started.values():
        if machine == socket.gethostname():
            try:
                os.killpg(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


@contextmanager
def _stops():
    """The signals that ask the launcher to end, as they come in: it ends the job first."""
    received: list[int] = []
    previous = {}
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        previous[number] = signal.signal(number, lambda number, _frame: received.append(number))
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
