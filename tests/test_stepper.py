"""`backlight step`: a recorded pass in a terminal, by lines through a pipe and by keys."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios

import pytest
import torch as pytorch

import backlight
from backlight import inspect
from backlight.inspect.render.stepper import Stepper, step_through

PROGRAM = """\
import torch
torch.manual_seed(0)
w = torch.tensor([1., 2.], requires_grad=True)
a = w * 2
b = w.exp()
loss = (a + b).sum()
loss.backward()
print("w.grad", w.grad)
"""


def diamond(torch):
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    a = w * 2
    b = w.exp()
    loss = (a + b).sum()
    loss.backward()


FIRST = diamond.__code__.co_firstlineno + 1


def recorded(program, torch=backlight):
    with inspect.record("full", engine="torch" if torch is pytorch else "backlight") as record:
        program(torch)
    return record.step()


@pytest.fixture(params=["backlight", "torch"])
def stepper(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return Stepper(recorded(diamond, backlight if request.param == "backlight" else pytorch), io.StringIO())


def shown(stepper, *commands):
    """What the last of these commands shows."""
    for command in commands:
        stepper.file.seek(0)
        stepper.file.truncate()
        assert stepper.execute(command)
    return stepper.file.getvalue()


def test_a_step(stepper):
    lines = shown(stepper, "4").splitlines()
    assert lines[1:6] == [
        "Step 4 of 5: MulBackward0",
        f"test_stepper.py:{FIRST + 1}",
        f"  {FIRST}  w = torch.tensor([1.0, 2.0], requires_grad=True)",
        f"> {FIRST + 1}  a = w * 2",
        f"  {FIRST + 2}  b = w.exp()",
    ]
    table = [re.sub(" +", " ", line).strip() for line in lines[7:11]]
    assert table[:3] == ["name norm shape min max values", "arrived 1.41 2 1 1 1 1", "passed to 5 w 2.83 2 2 2 2 2"]
    assert "why now: the only one that was ready" in lines
    assert "waiting: w (for 1 more)" in lines


def test_ready_and_gradients(stepper):
    text = shown(stepper, "3")
    assert "Step 3 of 5: ExpBackward0\n" in text
    assert "also ready: MulBackward0\n" in text
    assert "why now: created after MulBackward0" in text
    assert "gradients so far" not in text
    text = shown(stepper, "c")
    assert text.startswith("ran 3 steps, to the end\n\nThe end: 5 steps ran\n\ngradients so far\n")
    assert re.search(r"^w +10\.5 +2 +4\.72 +9\.39 +4\.72 9\.39$", text, re.M)


def test_there_and_back(stepper):
    def at(command):
        return re.search(r"^(?:Step (\d)|The end)", shown(stepper, command), re.M)[1]

    assert [at(c) for c in ["n", "", "next", "b", "back", "b", "b", "5", "n", "n", "b", "r"]] == [
        "2", "3", "4", "3", "2", "1", "1", "5", None, None, "5", "1",
    ]  # fmt: skip
    assert shown(stepper, "n").startswith("step 1 ran: SumBackward0")


@pytest.mark.parametrize(
    ("command", "answer", "stops"),
    [
        ("break exp", "breakpoint 1: node exp, before step 3", [3]),
        (f"break line {FIRST + 1}", f"breakpoint 1: line {FIRST + 1}, before step 4", [4]),
        (f"break test_stepper.py:{FIRST + 3}", f"breakpoint 1: line test_stepper.py:{FIRST + 3}, before steps 1 and 2", [2]),
        ("break AccumulateGrad", "breakpoint 1: node AccumulateGrad, before step 5", [5]),
    ],
)
def test_breakpoints(stepper, command, answer, stops):
    assert shown(stepper, command).strip() == answer
    assert shown(stepper, "breaks").startswith("1  ")
    for stop in stops:
        text = shown(stepper, "c")
        assert f"stopped by breakpoint: {answer[14:].partition(', before')[0]}\n" in text
        assert f"Step {stop} of 5" in text
    assert "The end: 5 steps ran" in shown(stepper, "c")
    assert shown(stepper, "clear").strip() == "removed 1 breakpoint"
    assert shown(stepper, "breaks").strip() == "no breakpoints"


def test_breakpoints_at_modules_and_nan(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def program(torch):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sigmoid())
        (model(torch.ones(1, 2)) * 0).sqrt().sum().backward()

    stepper = Stepper(recorded(program), io.StringIO())
    assert shown(stepper, "break module 1").strip() == "breakpoint 1: module 1, before step 4"
    assert "breakpoint 2: first non-finite gradient, before steps 2, " in shown(stepper, "break nan")
    text = shown(stepper, "c")
    assert "Step 2 of" in text and "nonfinite" in text and re.search(r"^passed +to 3 MulBackward0 .* inf inf$", text, re.M)
    text = shown(stepper, "clear", "break module 1", "c")
    assert "in module 1 (Sigmoid)\n" in text


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("jump", "there is no command 'jump'; ? shows those there are"),
        ("0", "the pass has steps 1 to 5, not 0"),
        ("99", "the pass has steps 1 to 5, not 99"),
        ("break", "break where? For example: break relu, break line 12, break net.py:12, break"),
        ("break line x", "break line needs the number of a line, such as 12, not 'x'"),
        ("break relu", "no step of this pass is at node relu; there are 'SumBackward0', 'AddBackward0',"),
        ("break line 7", "no step of this pass is at line 7; there are 'test_stepper.py:"),
        ("break module a", "no step of this pass is at module a"),
        ("break nan", "no step of this pass passes on NaN or infinity"),
        ("v", "v needs a name; there are arrived and passed"),
        ("v zz", "nothing here is called 'zz'; there are arrived and passed"),
        ("v \x1b[2J", "nothing here is called '?[2J'; there are arrived and passed"),
    ],
)
def test_what_can_not_be_done(stepper, command, problem):
    assert shown(stepper, command).startswith(problem)
    assert stepper.replay.breakpoints == []


def test_values(stepper):
    assert re.fullmatch(r"result: 2 float32\n\[2.71828\d+ +7.38905\d+ *\]\n", shown(stepper, "3", "v result"))
    assert re.fullmatch(r"w: 2 float32\n\[4.71828\d+ +9.38905\d+ *\]\n", shown(stepper, "6", "v w"))


def test_help_and_quit(stepper):
    assert "break nan       ... that pass on NaN or infinity\n" in shown(stepper, "?")
    assert not stepper.execute("q")


def test_40_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")

    def program(torch):
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
        torch.nn.functional.mse_loss(model(torch.ones(4, 2)), torch.zeros(4, 1)).backward()

    stepper = Stepper(recorded(program), io.StringIO())
    for command in ["?", "break line 1", "break nothing", "v", "v mat1", *"2nnnnnn", "c"]:
        assert max(map(len, shown(stepper, command).splitlines())) <= 40


def test_a_step_that_backlight_computes_otherwise(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    replay = recorded(diamond)
    replay.of.steps[2].passed[0].values[0] += 5
    replay.of.steps[3].node.name = "StrangeBackward0"
    stepper = Stepper(replay, io.StringIO())
    assert shown(stepper, "3", "n").startswith(
        "step 3 ran: ExpBackward0; Backlight's result differs from what was recorded by 0.6"
    )
    expected = (
        "step 4 ran: StrangeBackward0; shown is what was recorded, since Backlight can't run it: Backlight has no operation"
    )
    assert shown(stepper, "n").startswith(expected)


def test_end_of_input_and_interruption():
    output = io.StringIO()
    step_through(recorded(diamond), io.StringIO("n\n"), output)
    assert output.getvalue().count("Step ") == 2
    assert output.getvalue().endswith("> \n")

    class Interrupted(io.StringIO):
        def readline(self, *_args):
            raise KeyboardInterrupt

    step_through(recorded(diamond), Interrupted(), output)


# The command


@pytest.fixture
def step(tmp_path):
    """Runs the command on a script with this text, with these lines as input."""

    def step(text, lines, *options):
        (tmp_path / "script.py").write_text(text)
        words = [sys.executable, "-m", "backlight", "step", *options, "script.py"]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
        return subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60)

    return step


@pytest.mark.parametrize("engine", ["backlight", "torch"])
def test_the_command(step, engine):
    result = step(PROGRAM, ["n", "q"], "--engine", engine)
    assert (result.returncode, result.stderr) == (0, "")
    assert re.match(r"w.grad tensor\(\[4.7183, 9.3891\]\)\n\nStep 1 of 5: SumBackward0\nscript.py:6\n", result.stdout)
    assert re.search(r"> n\nstep 1 ran: SumBackward0[^>]*\n\nStep 2 of 5: AddBackward0\n", result.stdout)
    assert result.stdout.endswith("> q\n")


def test_a_script_that_fails(step):
    result = step(PROGRAM + "raise ValueError('after')", ["c"])
    assert result.returncode == 1
    assert result.stderr.endswith("line 9, in <module>\n    raise ValueError('after')\nValueError: after\n")
    assert "The end: 5 steps ran" in result.stdout
    assert step(PROGRAM + "raise SystemExit(5)", ["c"]).returncode == 5


def test_a_pass_that_fails(step):
    result = step(PROGRAM.replace("loss.b", "b.zero_()\nloss.b"), ["c"])
    assert result.returncode == 1
    assert "modified by an inplace operation" in result.stderr
    assert "The pass ended with RuntimeError: one of the variables needed for gradient" in result.stdout


def test_another_pass(step):
    text = "import torch\nw = torch.ones(1, requires_grad=True)\nw.exp().sum().backward()\nw.sin().backward()"
    assert "Step 1 of 2: SinBackward0" in step(text, [], "--pass", "1").stdout
    result = step(text, [], "--pass", "2")
    assert (result.returncode, result.stderr) == (0, "backlight: there is no pass 2: the script ran 2, the first is 0\n")
    assert step("print('hello')", []).stderr == "backlight: no backward pass ran\n"
    result = step(text, [], "--pass", "first")
    assert result.returncode == 2
    assert "argument --pass: must be a whole number, at least 0, not 'first'" in result.stderr


class Terminal:
    """A process in a terminal of its own."""

    def __init__(self, path):
        self.screen, terminal = pty.openpty()
        self.terminal = terminal  # kept open: its state is looked at when the process has ended
        self.before = termios.tcgetattr(terminal)
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
        command = [sys.executable, "-m", "backlight", "step", str(path)]
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=env, start_new_session=True
        )

    def press(self, keys=""):
        """What the terminal shows after these keys, up to the next prompt or the end."""
        os.write(self.screen, keys.encode())
        text = b""
        while not text.endswith(b"quit > "):
            running = self.process.poll() is None
            if select.select([self.screen], [], [], 0.1)[0]:
                text += os.read(self.screen, 65536)
            elif not running:
                break
        return text.decode().replace("\r\n", "\n")

    def wait(self):
        """The exit code; the terminal must be as it was."""
        code = self.process.wait(20)
        assert termios.tcgetattr(self.terminal) == self.before
        os.close(self.screen)
        os.close(self.terminal)
        return code


@pytest.fixture
def terminal(tmp_path):
    (tmp_path / "script.py").write_text(PROGRAM)
    return Terminal(tmp_path / "script.py")


def test_keys_in_a_terminal(terminal):
    assert "Step 1 of 5: SumBackward0" in terminal.press()
    assert terminal.press("n").startswith("n\nstep 1 ran: SumBackward0\n\nStep 2 of 5")
    assert "Step 3 of 5" in terminal.press("\x1b[C")
    assert "Step 2 of 5" in terminal.press("\x1b[D")
    assert terminal.press(":break acc\x7fcu\n").startswith("break acc\b \bcu\nbreakpoint 1: node accu, before step 5\n")
    assert "Step 5 of 5" in terminal.press("c")
    assert "Step 3 of 5: ExpBackward0" in terminal.press("x3\n")  # x is no key
    assert "v result\nresult: 2 float32\n[2.7" in terminal.press("vresult\n")
    assert "q               quit" in terminal.press("?")
    assert terminal.press("q").startswith("q\n")
    assert terminal.wait() == 0


@pytest.mark.parametrize("keys", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_leaving_a_terminal(terminal, keys):
    terminal.press()
    if keys == "\x03":
        os.killpg(terminal.process.pid, signal.SIGINT)  # as the terminal does, if it is the controlling one
    else:
        os.write(terminal.screen, keys.encode())
    assert terminal.wait() == 0


def test_terminated_in_a_terminal(terminal):
    terminal.press()
    terminal.process.terminate()
    terminal.wait()
