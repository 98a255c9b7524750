"""`backlight step`: a recorded backward pass in a terminal, step by step, forwards and back.

A terminal gives single keys; where there is none (a pipe, Windows), commands are lines. Both lead to `Stepper.execute`.
"""

from __future__ import annotations

import codecs
import linecache
import os
import re
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.text import Text

from ..explain.finding import listed
from ..replay import Breakpoint, statistics_of
from . import summary
from .terminal import Column, render, table, write_text
from .words import count, number, places, printable, shape, source

try:
    import select
    import termios
    import tty
except ImportError:  # Windows
    termios = None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TextIO

    from rich.console import RenderableType

    from ..order import OrderedStep
    from ..replay import Replay, ReplayedStep
    from ..schema import Node, Saved, Site, Statistics, Step

SMALL = 4  # a tensor of so many elements is shown whole
ROWS = 8  # of a table or list that may be long
TOLERANCE = 1e-4  # a larger difference to what was recorded is shown

HELP = """\
n, →, space     next step
b, ←            back one step
c               continue to the next breakpoint, or to the end
r               restart
7               go to step 7
break relu      stop before nodes whose names begin with "relu"
break line 12   ... that were made at line 12
break net.py:12 ... at line 12 of net.py
break module 0  ... by the module called "0"
break nan       ... that pass on NaN or infinity
breaks, clear   list the breakpoints, remove them
v NAME          the values of a saved tensor or gradient
?               this help
q               quit
In a terminal a key acts at once; ':' begins a command of several letters, as do 'v' and digits."""

KEYS = {"n": "n", "b": "b", "c": "c", "r": "r", "q": "q", "?": "?", "h": "?", " ": "n", "\n": "n", "\r": "n", "\x04": "q",
        "\x1b[C": "n", "\x1b[B": "n", "\x1b[D": "b", "\x1b[A": "b", "\x1bOC": "n", "\x1bOD": "b"}  # fmt: skip


def step_through(replay: Replay, stdin: TextIO, stdout: TextIO) -> None:
    """Shows the pass and reads commands until "q", Ctrl-C or the end of input."""
    stepper = Stepper(replay, stdout)
    try:
        with _reader(stdin, stdout) as read:
            stepper.show(stepper.view())
            while (command := read()) is not None:
                if not stepper.execute(command):
                    break
    except KeyboardInterrupt:
        stdout.write("\n")
    except BrokenPipeError:  # `backlight step ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())


class Stepper:
    """A replay and how it is shown. `execute` takes a command."""

    def __init__(self, replay: Replay, file: TextIO):
        self.replay = replay
        self.file = file
        self.place = places([*replay.record.sites])
        self.targets = summary.targets(replay.of)
        self.order: dict[int, OrderedStep] = {one.node.number: one for one in replay.record.order(replay.of.number).steps}

    def show(self, parts: Sequence[RenderableType]) -> None:
        """Writes to the terminal, in colour if that wants it (see NO_COLOR)."""
        colours = None if os.environ.get("NO_COLOR") else "auto"
        console = Console(file=self.file, width=get_terminal_size((80, 24)).columns, color_system=colours)
        write_text(render(parts, console), self.file)

    # Commands

    def execute(self, command: str) -> bool:
        """Does what a command says and shows the result; False if it is "quit"."""
        word, _, rest = command.strip().partition(" ")
        rest = rest.strip()
        if word in ("q", "quit", "exit"):
            return False
        try:
            self.show(self._result(word, rest))
        except ValueError as error:
            self.show([*_wrapped(str(error), "bold red")])
        return True

    def _result(self, word: str, rest: str) -> Sequence[RenderableType]:
        replay = self.replay
        if word in ("", "n", "next"):
            done = replay.next()
            return self._after(_outcome(done) if done is not None else "")
        if word in ("b", "back"):
            replay.back()
            return self.view()
        if word in ("c", "continue"):
            return self._continue()
        if word in ("r", "restart"):
            replay.go_to(1)
            return self.view()
        if word.isdecimal() and not rest:
            try:
                replay.go_to(int(word))
            except IndexError as error:
                raise ValueError(str(error)) from None
            return self.view()
        if word == "break":
            return self._break(rest)
        if word == "breaks":
            return [_line(f"{i}  {one}") for i, one in enumerate(replay.breakpoints, 1)] or [_line("no breakpoints")]
        if word == "clear":
            gone = count(len(replay.breakpoints), "breakpoint")
            replay.breakpoints.clear()
            return [_line(f"removed {gone}")]
        if word in ("v", "values"):
            return self._values(rest)
        if word in ("?", "h", "help"):
            return [part for line in HELP.splitlines() for part in _wrapped(line)]
        raise ValueError(f"there is no command {printable(word)!r}; ? shows those there are")

    def _continue(self) -> list[RenderableType]:
        before = self.replay.position
        self.replay.run()
        step = self.replay.current
        reached = [] if step is None else [str(one) for one in self.replay.breakpoints if one.holds(step)]
        ran = count(self.replay.position - before, "step")
        return self._after(f"ran {ran}; stopped by breakpoint: {listed(reached)}" if reached else f"ran {ran}, to the end")

    def _after(self, news: str) -> list[RenderableType]:
        return [*(_wrapped(news, "cyan") if news else []), *self.view()]

    def _break(self, text: str) -> list[RenderableType]:
        kind, _, name = text.partition(" ")
        place = re.fullmatch(r"(.+):(\d+)", text)
        if not text:
            raise ValueError("break where? For example: break relu, break line 12, break net.py:12, break module 0, break nan")
        if text == "nan":
            one = Breakpoint(nonfinite=True)
        elif kind == "line":
            if not name.strip().isdecimal():
                raise ValueError(f"break line needs the number of a line, such as 12, not {printable(name)!r}")
            one = Breakpoint(line=int(name))
        elif kind == "module":
            one = Breakpoint(module=name.strip())
        elif place is not None:
            one = Breakpoint(file=place[1], line=int(place[2]))
        else:
            one = Breakpoint(node=text)
        steps = [step.index for step in self.replay.of.steps if one.holds(step)]
        if not steps:
            raise ValueError(self._nowhere(one))
        self.replay.breakpoints.append(one)
        return [_line(f"breakpoint {len(self.replay.breakpoints)}: {one}, before {_numbered(steps)}")]

    def _nowhere(self, one: Breakpoint) -> str:
        """What is wrong with a breakpoint that holds at no step: what there is instead."""
        steps = self.replay.of.steps
        if one.nonfinite:
            return "no step of this pass passes on NaN or infinity"
        if one.module is not None:
            known = [step.node.module.name for step in steps if step.node.module is not None]
        elif one.line is not None:
            known = [self.place(step.site) for step in steps if step.site is not None]
        else:
            known = [step.name for step in steps]
        there_are = f"; there are {listed(map(repr, map(printable, dict.fromkeys(known))), ROWS)}" if known else ""
        return f"no step of this pass is at {one}{there_are}"

    def _values(self, name: str) -> list[RenderableType]:
        known = self._arrays()
        if name not in known:
            what = f"nothing here is called {printable(name)!r}" if name else "v needs a name"
            raise ValueError(f"{what}; there are {listed(map(printable, known), 20) if known else 'no values here'}")
        array = known[name]
        text = np.array2string(array, max_line_width=get_terminal_size((80, 24)).columns, threshold=400)
        return [_line(f"{printable(name)}: {shape(array.shape)} {array.dtype}"), *map(_line, text.splitlines())]

    def _arrays(self) -> dict[str, np.ndarray]:
        """What has values here, by the names that `v` takes."""
        found: dict[str, np.ndarray | None] = {}
        step = self.replay.current
        if step is not None:
            for what, gradients in (("arrived", step.arrived), ("passed", step.passed)):
                for i, gradient in enumerate(gradients):
                    name = what if len(gradients) == 1 else f"{what} {i}"
                    found[name] = None if gradient is None else gradient.values
            found.update((saved.name, saved.values) for saved in step.node.saved)
        found.update(self.replay.gradients)
        return {name: values for name, values in found.items() if values is not None}

    # The view

    def view(self) -> list[RenderableType]:
        """The step that runs next: what it is, what it gets and passes on, why it is its turn, and the gradients so far."""
        replay, step = self.replay, self.replay.current
        parts: list[RenderableType] = [""]
        if step is None:
            parts.append(_line(f"The end: {count(len(replay), 'step')} ran", "bold"))
            if replay.of.error is not None:
                parts.append(_line(f"The pass ended with {replay.of.error.splitlines()[0]}", "bold red"))
        else:
            parts.append(_line(f"Step {step.index} of {len(replay)}: {step.node.label}", "bold"))
            module = step.node.module
            if module is not None:
                parts.append(_line(f"in module {module.label}" + (f" ({module.type})" if module.name else "")))
            parts += [*self._source(step.site), *self._tensors(step), *self._turn(step)]
        parts += self._gradients()
        return parts

    def _source(self, site: Site | None) -> list[RenderableType]:
        """A line of the program between its neighbours."""
        if site is None:
            return []
        lines = [(n, linecache.getline(site.file, n).rstrip()) for n in range(max(site.line - 1, 1), site.line + 2)]
        if not any(text for _n, text in lines):  # the file can't be read
            lines = [(site.line, source(site))]
        blank = min((len(text) - len(text.lstrip()) for _n, text in lines if text), default=0)
        width = len(str(site.line + 1))
        shown = [(n, f"{'>' if n == site.line else ' '} {n:{width}}  {text[blank:]}") for n, text in lines]
        return [_line(self.place(site), "dim"), *(_line(text, "bold" if n == site.line else "dim") for n, text in shown)]

    def _tensors(self, step: Step) -> list[RenderableType]:
        """A table of what arrives, what is passed on and what was saved."""
        rows: list[tuple[str, str, Statistics | None]] = [("arrived", "", g) for g in step.arrived if g is not None]
        for i, (edge, passed) in enumerate(zip(step.node.edges, step.passed)):
            if passed is not None and edge is not None:
                target = self.targets.get((step.index, i))
                rows.append(("passed", f"to {target or '-'} {_name(edge.node)}", passed))
        rows += [("saved", _saved_name(saved), _measured(saved.values)) for saved in step.node.saved]
        hidden = len(rows) - 2 * ROWS
        rows = rows[: 2 * ROWS]
        if not rows:
            return []
        known = [(what if i == 0 or rows[i - 1][0] != what else "", name, g) for i, (what, name, g) in enumerate(rows)]
        more = [_line(f"… and {count(hidden, 'more tensor')}", "dim")] if hidden > 0 else []
        return ["", self._statistics(known), *more]

    def _statistics(self, rows: Sequence[tuple[str, str, Statistics | None]]) -> RenderableType:
        def cells(text: Callable[[Statistics], str]) -> list[str]:
            return ["" if g is None else text(g) for _what, _name, g in rows]

        columns = [
            Column("", [what for what, _name, _g in rows], 7),
            Column("name", [name for _what, name, _g in rows]),
            Column("norm", cells(lambda g: number(g.norm)), 6),
            Column("shape", cells(lambda g: shape(g.shape)), 5),
            Column("min", cells(lambda g: number(g.min)), 3),
            Column("max", cells(lambda g: number(g.max)), 3),
            Column("nonfinite", cells(lambda g: str(g.nonfinite) if g.nonfinite else ""), 4, right=True),
            Column("values", cells(_small), 2),
        ]
        styles = ["red" if g is not None and g.nonfinite else "" for _what, _name, g in rows]
        return table(columns, get_terminal_size((80, 24)).columns, styles)

    def _turn(self, step: Step) -> list[RenderableType]:
        """Why this step is next, and who else is ready or waits."""
        turn = self.order.get(step.node.number)
        if turn is None:
            return []
        ready = listed((_name(node) for node in turn.ready), ROWS)
        waiting = listed((f"{_name(node)} (for {missing} more)" for node, missing in turn.waiting), ROWS)
        return [
            "",
            *_wrapped(f"why now: {turn.reason}"),
            *(_wrapped(f"also ready: {ready}") if turn.ready else []),
            *(_wrapped(f"waiting: {waiting}") if turn.waiting else []),
        ]

    def _gradients(self) -> list[RenderableType]:
        """What the leaves have got so far, the last ones first where there are many."""
        found = [(name, _measured(array)) for name, array in self.replay.gradients.items()]
        if not found:
            return []
        rows = [("", name, g) for name, g in found[: -ROWS - 1 : -1]]
        more = [_line(f"… and {len(found) - len(rows)} more", "dim")] if len(found) > len(rows) else []
        return ["", _line("gradients so far", "bold"), self._statistics(rows), *more]


def _small(g: Statistics) -> str:
    """The elements of a small tensor."""
    if g.values is None or g.size > SMALL:
        return ""
    return " ".join(number(x) if isinstance(x, float) else str(x) for x in g.values.ravel().tolist())


def _measured(array: np.ndarray | None) -> Statistics | None:
    """The numbers about an array, and its elements."""
    result = statistics_of(array)
    if result is not None:
        result.values = array
    return result


def _outcome(done: ReplayedStep) -> str:
    """What came of running a step again."""
    what = f"step {done.step.index} ran: {done.step.node.label}"
    if done.reason is not None:
        return f"{what}; shown is what was recorded, since Backlight can't run it: {done.reason}"
    if done.error is not None and not done.error <= TOLERANCE:
        return f"{what}; Backlight's result differs from what was recorded by {done.error:.2g}, relative to the largest element"
    return what


def _saved_name(saved: Saved) -> str:
    """The node's name for what it saved, and the program's where there is one: "mat2, view of 0.weight"."""
    tensor = saved.tensor
    if tensor is not None and tensor.name:
        return f"{saved.name}, {tensor.name}"
    if tensor is not None and tensor.base is not None and tensor.base.name:
        return f"{saved.name}, view of {tensor.base.name}"
    return saved.name


def _name(node: Node) -> str:
    """A node's name, or that of its leaf."""
    return node.name if node.leaf is None else node.leaf.label


def _numbered(steps: list[int]) -> str:
    return f"step{'s' if len(steps) > 1 else ''} {listed(map(str, steps), ROWS)}"


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _wrapped(text: str, style: str = "") -> list[Text]:
    """Text as lines that fit the terminal."""
    width = get_terminal_size((80, 24)).columns
    console = Console(width=width, color_system=None)
    return [Text(line.plain.rstrip(), style) for line in Text(printable(text)).wrap(console, width)]


# Input


@contextmanager
def _reader(stdin: TextIO, stdout: TextIO) -> Iterator[Callable[[], str | None]]:
    """A function that gives the next command, None at the end."""
    if termios is None or not stdin.isatty():
        yield lambda: _read_line(stdin, stdout)
        return
    keyboard = Keyboard(stdin.fileno(), stdout)
    before = termios.tcgetattr(keyboard.terminal)
    try:
        tty.setcbreak(keyboard.terminal)
        yield keyboard.command
    finally:
        termios.tcsetattr(keyboard.terminal, termios.TCSADRAIN, before)


def _read_line(stdin: TextIO, stdout: TextIO) -> str | None:
    stdout.write("> ")
    stdout.flush()
    line = stdin.readline()
    if not stdin.isatty():  # a terminal has shown it
        stdout.write(line if line.endswith("\n") else f"{line}\n")
    return line.strip() if line else None


class Keyboard:
    """Commands from a terminal that gives every key at once (cbreak mode; Ctrl-C still interrupts)."""

    def __init__(self, terminal: int, stdout: TextIO):
        self.terminal = terminal
        self.stdout = stdout
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def command(self) -> str | None:
        """The next command, None at the end."""
        wide = get_terminal_size((80, 24)).columns >= 60
        self._echo("n next, b back, c continue, ? help, q quit > " if wide else "n b c ? q > ")
        while True:
            key = self._key()
            if key is None:
                return None
            if key in KEYS:
                self._echo(f"{KEYS[key]}\n")
                return KEYS[key]
            if key == ":":
                command = self._line("")
            elif key == "v":
                command = self._line("v ")
            elif key.isdecimal():
                command = self._line(key)
            else:
                continue
            if command is not None:
                return command

    def _line(self, text: str) -> str | None:
        """A command of several letters, up to Enter; None if Escape ends it."""
        self._echo(text)
        while True:
            key = self._key()
            if key in ("\n", "\r"):
                self._echo("\n")
                return text or None
            if key is None or key in ("\x04", "\x1b"):
                self._echo("\b \b" * len(text))
                return None
            if key in ("\x7f", "\b"):
                if text:
                    text = text[:-1]
                    self._echo("\b \b")
            elif key.isprintable():
                text += key
                self._echo(key)

    def _key(self) -> str | None:
        """One character, or the sequence that an arrow key sends; None at the end."""
        character = self._character()
        if character == "\x1b":
            while select.select([self.terminal], [], [], 0.05)[0] and (more := self._character()) is not None:
                character += more
                if more.isalpha() and more != "O" or more == "~":
                    break
        return character

    def _character(self) -> str | None:
        text = ""
        while not text:
            try:
                byte = os.read(self.terminal, 1)
            except OSError:  # the terminal is gone
                return None
            if not byte:
                return None
            text = self.decoder.decode(byte)
        return text

    def _echo(self, text: str) -> None:
        write_text(text, self.stdout)
