"""The `backlight` command: `run` runs a PyTorch script on Backlight, `launch` runs it as several processes, `trace` also shows its backward
passes, `step` steps through one, `check` lists what a script needs and doesn't find here, `warmup` compiles kernels ahead of time.

A script runs as Python would run it: as `__main__`, with its own `sys.argv` and `sys.path[0]`, its exit code and, when
it fails, its traceback. Only `import torch` gives Backlight.
"""

from __future__ import annotations

import argparse
import builtins
import io
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

from . import alias
from .version import __version__, torch_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from .inspect.ranks import Ranks
    from .inspect.record import Record
    from .inspect.schema import Pass

_OWN_CODE = (os.path.dirname(__file__) + os.sep, "<backlight op ")
_LAUNCHING = (__file__, alias.__file__, "<frozen runpy>", "<frozen importlib")

# What a record can be written as, by the end of the file's name.
_WRITERS = {
    ".jsonl": "to_jsonl", ".html": "to_html", ".dot": "to_dot", ".mmd": "to_mermaid", ".json": "to_chrome_trace", ".csv": "to_csv",
}  # fmt: skip
_SUFFIXES = ", ".join(_WRITERS)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code; SystemExit of a script passes through."""
    arguments = _parser().parse_args(argv)
    if arguments.command == "show":
        return _show_record(arguments)
    if arguments.command == "launch":
        return _launch(arguments)
    if arguments.command == "check":
        return _check(arguments.scripts)
    if arguments.command == "warmup":
        return _warm_up(arguments.jobs)
    try:
        script = _module_runner(arguments.script) if arguments.module else _script_runner(arguments.script)
    except OSError as error:
        print(f"backlight: can't open file '{os.path.abspath(arguments.script)}': {error.strerror}", file=sys.stderr)
        return 2
    if arguments.engine == "backlight":
        alias.install()
    sys.argv = [arguments.script, *arguments.args]
    if arguments.command == "step":
        return _step(script, arguments)
    tracing = _tracing(arguments) if arguments.command == "trace" else nullcontext()
    return _run(script, arguments, tracing)


def _run(script: Callable[[], object], arguments: argparse.Namespace, context: AbstractContextManager) -> int:
    """Runs the script, shows its traceback if it fails, and returns its exit code."""
    try:
        with context:
            script()
    except SystemExit:
        raise
    except BaseException as error:
        _show(error, arguments.full_traceback)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="backlight",
        description="Runs PyTorch scripts on Backlight, PyTorch's autograd rebuilt in readable Python, and shows what it did.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"backlight {__version__} (follows PyTorch {torch_version})")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run a PyTorch script on Backlight", allow_abbrev=False)
    trace = commands.add_parser("trace", help="run it and show the call order of its backward passes", allow_abbrev=False)
    step = commands.add_parser("step", help="run it and step through a backward pass", allow_abbrev=False)
    for command in (run, trace, step):
        command.add_argument("--full-traceback", action="store_true", help="show frames inside Backlight in tracebacks, too")
        command.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as in python -m")
        command.add_argument("script", metavar="SCRIPT", help="the script; options for backlight come before it")
        command.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="the script's own arguments")
    _add_launch(commands)
    trace.add_argument(
        "--passes", type=_passes_wanted, default=1, metavar="N", help="how many backward passes to record, or 'all' (1)"
    )
    trace.add_argument("--policy", choices=("shapes", "norms", "full"), default="norms", help="what to measure (norms)")
    trace.add_argument(
        "-o", "--output", action="append", default=[], type=_output, metavar="FILE", help=f"also write the record: {_SUFFIXES}"
    )
    trace.add_argument("--steps", type=_positive, default=100, metavar="N", help="how many steps to show of each (100)")
    trace.add_argument("--width", type=_positive, metavar="W", help="columns to use (the terminal's width)")
    for command in (run, trace, step):
        command.add_argument(
            "--engine",
            type=_engine,
            default="backlight",
            metavar="E",
            help="what runs the script: backlight or torch (backlight)",
        )
    step.add_argument(
        "--pass", dest="number", type=_number, default=0, metavar="N", help="which backward pass, counted from 0 (0, the first)"
    )
    show = commands.add_parser(
        "show", help="show a record that trace wrote as .jsonl, or those of several ranks", allow_abbrev=False
    )
    show.add_argument("record", metavar="RECORD", nargs="+", help="the file; of a job's ranks, one for each")
    check = commands.add_parser("check", help="list what a script uses of PyTorch that is missing here, without running it")
    check.add_argument("scripts", metavar="SCRIPT", nargs="+", help="the script, or several")
    warmup = commands.add_parser("warmup", help="compile the kernels for large arrays now, rather than in the first runs")
    warmup.add_argument(
        "--jobs",
        type=_positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="how many processes compile (one per processor)",
    )
    for command in (show,):
        command.add_argument(
            "--steps", type=_positive, default=100, metavar="N", help="how many steps to show of each pass (100)"
        )
        command.add_argument("--width", type=_positive, metavar="W", help="columns to use (the terminal's width)")
        command.add_argument(
            "-o", "--output", action="append", default=[], type=_output, metavar="FILE", help=f"write it as {_SUFFIXES}"
        )
    return parser


def _add_launch(commands: argparse._SubParsersAction) -> None:
    launch = commands.add_parser("launch", help="run it as several processes, which MPI connects", allow_abbrev=False)
    launch.add_argument(
        "-n", "--ranks", type=_positive, metavar="N", help="how many processes (one per processor, or per slot of the hosts)"
    )
    places = launch.add_mutually_exclusive_group()
    places.add_argument("--hosts", metavar="A,B:4", help="the machines, with how many processes each (1)")
    places.add_argument("--hostfile", metavar="FILE", help="a file that lists them, as mpirun reads it")
    launch.add_argument("--threads", type=_positive, metavar="T", help="threads of each process (its share of the processors)")
    launch.add_argument("--trace", action="store_true", help="also show the call order of backward across all ranks")
    launch.add_argument("--with-ft", choices=("ulfm",), help="the others go on when a process is killed (Open MPI 5)")
    launch.add_argument("--engine", type=_engine, default="backlight", metavar="E", help="backlight or torch (backlight)")
    launch.add_argument("--mpirun", metavar="PATH", help="the mpirun to use (that of this environment, else the first in PATH)")
    launch.add_argument("--timeout", type=_seconds, metavar="S", help="end the job after S seconds")
    launch.add_argument("--dry-run", action="store_true", help="print the command, run nothing")
    launch.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module, as in python -m")
    launch.add_argument("script", metavar="SCRIPT", help="the script; options for backlight come before it")
    launch.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="the script's own arguments")


def _launch(arguments: argparse.Namespace) -> int:
    from .distributed.launch import Job, LaunchError, launch

    given = vars(arguments)
    dry_run, survive = given.pop("dry_run"), given.pop("with_ft") is not None
    del given["command"]
    try:
        return launch(Job(**{**given, "args": tuple(arguments.args)}, survive=survive), dry_run)
    except (LaunchError, OSError) as error:
        print(f"backlight launch: {error}", file=sys.stderr)
        return 2


def _check(scripts: Sequence[str]) -> int:
    """Lists what the scripts use and Backlight lacks. 0: nothing is missing; 1: something is; 2: a script can't be read."""
    import tokenize

    from .check import check_source

    code = 0
    for script in scripts:
        try:
            with tokenize.open(script) as file:
                findings = check_source(file.read(), script)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            print(f"backlight: can't read {script}: {error}", file=sys.stderr)
            code = 2
            continue
        missing = [finding for finding in findings if finding.kind == "missing"]
        code = max(code, 1 if missing else 0)
        print(f"{script}: {len(missing)} missing" if missing else f"{script}: nothing is missing")
        for finding in findings:
            lines = "line" + ("s " if len(finding.lines) > 1 else " ") + ", ".join(map(str, finding.lines[:8]))
            lines += ", ..." if len(finding.lines) > 8 else ""
            unsure = "" if finding.sure else ", if that is a tensor"
            print(f"  {lines}: {finding.name} ({finding.kind}{unsure}): {finding.reason}")
    return code


def _warm_up(jobs: int) -> int:
    """Compiles what isn't in the cache yet. 1: kernels are switched off; 2: the cache can't be written."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from .kernels import warmup
    from .kernels.compiling import kernels_directory

    start, needed, compiled = time.monotonic(), 0, 0
    console = Console(stderr=True)
    columns = TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            bar = progress.add_task("", total=len(warmup.tasks()))
            for (group, dtype), result in warmup.run_all(jobs):
                needed, compiled = needed + result.needed, compiled + result.compiled
                progress.update(bar, advance=1, description=f"{group}, {dtype}")
    except RuntimeError as error:
        print(f"backlight: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"backlight: compiled kernels can't be kept: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("backlight: interrupted; what was compiled is kept", file=sys.stderr)
        return 130
    seconds, folder = time.monotonic() - start, kernels_directory()
    if compiled:
        there = f", {needed - compiled} were there" if compiled < needed else ""
        print(f"compiled {compiled} kernels in {seconds:.0f} s{there}: {folder}")
    else:
        print(f"all {needed} kernels were there: {folder}")
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1, not '{text}'")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of seconds, more than 0, not '{text}'")
    return seconds


def _number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 0, not '{text}'")
    return int(text)


def _passes_wanted(text: str) -> int | None:
    return None if text == "all" else _positive(text)


def _engine(text: str) -> str:
    if text not in ("backlight", "torch"):
        raise argparse.ArgumentTypeError(f"must be 'backlight' or 'torch', not '{text}'")
    if text == "torch" and find_spec("torch") is None:
        raise argparse.ArgumentTypeError("PyTorch is not installed here; 'backlight' runs the script on Backlight")
    return text


def _output(text: str) -> str:
    if os.path.splitext(text)[1] not in _WRITERS:
        raise argparse.ArgumentTypeError(f"the name must end with one of {_SUFFIXES}, not '{text}'")
    path = os.path.abspath(text)  # the script may change the folder
    if not os.path.isdir(os.path.dirname(path)):
        raise argparse.ArgumentTypeError(f"there is no folder '{os.path.dirname(text)}'")
    return path


# Running


def _script_runner(script: str) -> Callable[[], object]:
    """Reads the script (OSError if that fails); the function that is returned runs it."""
    path = os.path.abspath(script)
    with io.open_code(path) as file:
        source = file.read()

    def run():
        main_module = ModuleType("__main__")
        vars(main_module).update(__file__=path, __builtins__=builtins)
        sys.modules["__main__"] = main_module
        _import_from(os.path.dirname(os.path.realpath(path)))
        exec(compile(source, path, "exec", dont_inherit=True), vars(main_module))

    return run


def _module_runner(name: str) -> Callable[[], object]:
    def run():
        import runpy

        _import_from(os.getcwd())
        runpy.run_module(name, run_name="__main__", alter_sys=True)

    return run


def _import_from(folder: str) -> None:
    """Puts the script's folder in the place of that of the `backlight` command."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


# Failing


def _show(error: BaseException, full: bool) -> None:
    """Prints a traceback through `sys.excepthook`, as Python does, but one that starts at the script."""
    name = alias.missing(error)
    if name is not None:
        error.add_note(f"{name} is not there yet in Backlight {__version__}")
    _strip(error, _LAUNCHING if full else (*_LAUNCHING, *_OWN_CODE), set())
    sys.stdout.flush()
    sys.excepthook(type(error), error, error.__traceback__)


def _strip(error: BaseException | None, files: tuple[str, ...], seen: set[int]) -> None:
    """Takes the frames of these files out of an exception's traceback, and of those it came from."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    frames, entry = [], error.__traceback__
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(files):
            frames.append(entry)
        entry = entry.tb_next
    kept = None
    for entry in reversed(frames):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = kept
    group = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for other in (error.__cause__, error.__context__, *group):
        _strip(other, files, seen)
    if error.__context__ is not None and error.__context__.__traceback__ is None:
        error.__context__ = None  # an exception that Backlight handled within itself


# Tracing


@contextmanager
def _tracing(arguments: argparse.Namespace):
    """Records while the script runs; at its end, however it ends, the record goes to stdout and to the files asked for."""
    from .inspect import start

    if arguments.engine == "torch":
        import torch  # noqa: F401  # pyright: ignore[reportMissingImports]

    def progress(one: Pass) -> None:
        if one.parent is None and len(record.passes) == arguments.passes:
            say("recorded, the script goes on at full speed from its next backward pass on")

    process = os.getpid()
    say(f"running {arguments.script} on {arguments.engine}, recording {_passes(arguments.passes)}")
    recorder = start(arguments.policy, arguments.engine, arguments.passes, progress)
    record = recorder.record
    record.program = os.path.basename(arguments.script)

    def finish() -> None:
        recorder.stop()
        if os.getpid() == process:  # not in a child that the script forked
            _write(record, arguments)

    try:
        with _terminated(finish):
            yield
    finally:
        finish()


@contextmanager
def _terminated(finish: Callable[[], None]):
    """Lets SIGTERM end the process as ever, but after `finish`. A handler of the script's own is left alone."""

    def handle(number, _frame):
        finish()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        if ours and signal.getsignal(signal.SIGTERM) is handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


# Stepping


def _step(script: Callable[[], object], arguments: argparse.Namespace) -> int:
    """Records while the script runs; however it ends, the pass asked for is stepped through, and its exit code is returned."""
    from .inspect import start

    if arguments.engine == "torch":
        import torch  # noqa: F401  # pyright: ignore[reportMissingImports]
    process = os.getpid()
    recorder = start("full", arguments.engine, arguments.number + 1)
    try:
        return _run(script, arguments, nullcontext())
    finally:
        recorder.stop()
        if os.getpid() == process:  # not in a child that the script forked
            _step_through(recorder.record, arguments.number)


def _step_through(record: Record, number: int) -> None:
    from .inspect.render.stepper import step_through

    if number >= len(record.passes):
        ran = len(record.passes)
        return say("no backward pass ran" if not ran else f"there is no pass {number}: the script ran {ran}, the first is 0")
    if not record.passes[number].steps:
        return say(f"backward pass {number} ended before its first step: {record.passes[number].error or 'nothing to do'}")
    sys.stdout.flush()
    with _terminated(lambda: sys.exit(128 + signal.SIGTERM)):  # an exception, so that the terminal's state is restored
        step_through(record.step(number), sys.stdin, sys.stdout)


def _write(record: Record, arguments: argparse.Namespace) -> None:
    """The record on stdout, and in the files."""
    from shutil import get_terminal_size

    from .inspect.render import terminal

    for path in arguments.output:
        try:
            getattr(record, _WRITERS[os.path.splitext(path)[1]])(path=path)
            say(f"wrote {path}")
        except OSError as error:  # the others are written all the same
            say(f"can't write {path}: {error.strerror}")
    width = arguments.width or get_terminal_size((80, 24)).columns
    try:
        terminal.write(record, sys.stdout, width, arguments.steps, getattr(arguments, "passes", None) or 3)
    except BrokenPipeError:  # `backlight trace ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_record(arguments: argparse.Namespace) -> int:
    from .inspect import Ranks, Record

    try:
        if len(arguments.record) == 1:
            _write(Record.read(arguments.record[0]), arguments)
        else:
            _write_ranks(Ranks.read(arguments.record), arguments)
    except (OSError, ValueError) as error:
        print(f"backlight: {error}", file=sys.stderr)
        return 2
    return 0


def _write_ranks(ranks: Ranks, arguments: argparse.Namespace) -> None:
    from shutil import get_terminal_size

    from .inspect.render import terminal

    for path in arguments.output:
        if not path.endswith(".dot"):
            raise ValueError(
                f"can't write {path}: the records of several ranks can be written as .dot; one record as {_SUFFIXES}"
            )
        ranks.to_dot(path=path)
        say(f"wrote {path}")
    width = arguments.width or get_terminal_size((80, 24)).columns
    terminal.write_text(ranks.to_text(width, arguments.steps), sys.stdout)


def say(text: str) -> None:
    print(f"backlight: {text}", file=sys.stderr, flush=True)


def _passes(n: int | None) -> str:
    if n is None:
        return "all its backward passes"
    return "its first backward pass" if n == 1 else f"its first {n} backward passes"
