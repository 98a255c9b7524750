"""`backlight run` and `backlight trace`: scripts run as Python runs them, and the record follows their output."""

import os
import pty
import re
import subprocess
import sys

import pytest

import backlight
from backlight import cli, version


@pytest.fixture
def run(tmp_path):
    """Runs the command on a script with this text, in its folder."""

    def run(command, text="", *args, name="script.py", **env):
        (tmp_path / name).write_text(text)
        words = [sys.executable, "-m", "backlight", *command.split(), *([name] if text else []), *args]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **env}
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60)

    return run


PROGRAM = """\
import torch
w = torch.tensor([1., 2.], requires_grad=True)
loss = (w * w).sum()
loss.backward()
print("w.grad", w.grad)
"""


# run


def test_run_is_like_python(run, tmp_path):
    text = "import sys, torch; print(__name__, __file__, sys.argv, sys.path[0], torch.__version__, sys.modules['__main__'].sys.argv)"
    result = run("run", text, "--passes", "3", "-x", "--", "y")
    path, argv = str(tmp_path / "script.py"), ["script.py", "--passes", "3", "-x", "--", "y"]
    assert result.stdout == f"__main__ {path} {argv} {tmp_path} 2.13.0+backlight {argv}\n"
    assert (result.returncode, result.stderr) == (0, "")


def test_run_a_module(run, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "tool.py").write_text(
        "import sys, torch; print(__name__, __package__, sys.argv[1:], torch.__version__)"
    )
    result = run("run -m package.tool --a b")
    assert result.stdout == "__main__ package ['--a', 'b'] 2.13.0+backlight\n", result.stderr


@pytest.mark.parametrize(
    ("text", "code", "error"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('bye')", 1, "bye\n"),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt\n"),
    ],
)
def test_exit_codes(run, text, code, error):
    result = run("run", text)
    assert result.returncode == code
    assert result.stderr.endswith(error)


def test_traceback_shows_the_script_only(run):
    text = """import torch
def product(a, b):
    return a @ b
try:
    [][0]
except IndexError:
    product(torch.ones(2, 3), torch.ones(4, 5))
"""
    result = run("run", text)
    assert result.returncode == 1
    frames = re.findall(r'File ".*?([^/]+)", line (\d+), in (\S+)', result.stderr)
    assert frames == [("script.py", "5", "<module>"), ("script.py", "7", "<module>"), ("script.py", "3", "product")]
    assert result.stderr.endswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)\n")
    full = run("run --full-traceback", text).stderr
    assert "/ops/linalg.py" in full
    assert "cli.py" not in full


def test_syntax_error(run):
    result = run("run", "x = (\n")
    assert result.returncode == 1
    assert re.fullmatch(r'  File ".*script\.py", line 1\n    x = \(\n +\^\nSyntaxError: .*\n', result.stderr)


def test_own_excepthook_is_called(run):
    result = run("run", "import sys\nsys.excepthook = lambda kind, *_: print('caught', kind.__name__)\n1 / 0")
    assert (result.returncode, result.stdout, result.stderr) == (1, "caught ZeroDivisionError\n", "")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch.fx", "torch.fx"),
        ("import torch; torch.fx.symbolic_trace", "torch.fx"),
        ("from torch.nn import Nosuch", "torch.nn.Nosuch"),
        ("import torch; torch.ones(1).nosuch()", "torch.Tensor.nosuch"),
    ],
)
def test_what_is_missing_is_named(run, text, name):
    result = run("run", text)
    assert result.returncode == 1
    assert f"{name} is not there yet in Backlight" in result.stderr.splitlines()[-1]
    assert result.stderr.count("File ") == 1


def test_no_script(run):
    for command, problem in [("run nosuch.py", "nosuch.py': No such file"), ("trace .", "Is a directory")]:
        result = run(command)
        assert result.returncode == 2
        assert result.stderr.startswith("backlight: can't open file '/")
        assert problem in result.stderr
        assert result.stderr.count("\n") == 1


# Arguments that end before anything runs


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["trace", "--engine", "jax", "x.py"], "must be 'backlight' or 'torch', not 'jax'"),
        (["trace", "-o", "x.pdf", "x.py"], "the name must end with one of .jsonl, .html, .dot, .mmd, .json, .csv, not 'x.pdf'"),
        (["trace", "--passes", "0", "x.py"], "argument --passes: must be a whole number, at least 1, not '0'"),
        (["trace", "--width", "wide", "x.py"], "argument --width: must be a whole number, at least 1, not 'wide'"),
        (["run"], "the following arguments are required: SCRIPT"),
        ([], "COMMAND"),
    ],
)
def test_wrong_arguments(capsys, arguments, problem):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert problem in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"backlight {version.__version__} (follows PyTorch {backlight.__version__})\n"


# trace


def test_trace(run):
    result = run("trace", PROGRAM)
    assert result.returncode == 0
    output, _, trace = result.stdout.partition("\n\n")
    assert output == "w.grad tensor([2., 4.])"
    assert re.search(r"^Backward pass 1 of 1: 3 steps in .* [µm]s\nscript\.py:4  loss\.backward\(\)\n", trace, re.M)
    assert re.search(r"^2  MulBackward0 +script\.py:3 +2 +1\.41 +2 +2\.24 +3 ", trace, re.M)
    assert re.search(r"^3  AccumulateGrad  w ", trace, re.M)
    assert re.search(r"^w     2      True           4\.47  2    4        0          0$", trace, re.M)
    assert "\x1b" not in result.stdout
    assert all(line.startswith("backlight: ") for line in result.stderr.splitlines())


def test_trace_of_several_passes_at_40_columns(run):
    text = "import torch\nx = torch.ones(1, requires_grad=True)\nfor _ in range(3):\n    (x * 2).exp().sum().backward()"
    result = run("trace --passes 2 --width 40", text)
    assert re.findall(r"^Backward pass (\d) of 2", result.stdout, re.M) == ["1", "2"]
    assert max(map(len, result.stdout.splitlines())) <= 40
    assert run("trace --passes 9", text, COLUMNS="40").stdout.count("of 3: ") == 3


def test_trace_comes_before_the_failure(run):
    result = run("trace", PROGRAM + "raise ValueError('after')")
    assert result.returncode == 1
    assert "MulBackward0" in result.stdout
    assert result.stderr.endswith("line 6, in <module>\n    raise ValueError('after')\nValueError: after\n")
    result = run("trace", PROGRAM + "raise SystemExit(5)")
    assert result.returncode == 5
    assert "MulBackward0" in result.stdout


def test_trace_without_backward(run):
    result = run("trace", "print('hello')")
    assert result.stdout == "hello\n\nNo backward pass ran.\n"
    assert "recorded" not in result.stderr


def test_trace_in_ascii(run):
    result = run("trace --width 40", PROGRAM, PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()
    assert " us" in result.stdout
    assert "2 MulBackward0" in result.stdout


def in_a_terminal(path, **env) -> str:
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "backlight", "trace", str(path)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **env}
    with subprocess.Popen(command, stdout=terminal, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(terminal)
        chunks = []
        try:
            while chunk := os.read(reader, 65536):
                chunks.append(chunk)
        except OSError:  # the other end is closed: that is how Linux says so
            pass
        os.close(reader)
    assert process.returncode == 0
    return b"".join(chunks).decode()


def test_colour_in_a_terminal_unless_told_otherwise(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(PROGRAM)
    coloured, plain = in_a_terminal(path, NO_COLOR=""), in_a_terminal(path, NO_COLOR="1")
    assert "\x1b[32m" in coloured
    assert "\x1b" not in plain

    def text(output):
        output = re.sub(r"\x1b\[[\d;]*m", "", output)
        output = re.sub(r"(?<=  to) +time(?=\r)", "  time", output)  # the times differ, and with them the width of their column
        return re.sub(r"( *[\d.]+ [µm]s)? *(?=\r)", "", output)

    assert text(coloured) == text(plain)


def test_reader_that_leaves_early(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(PROGRAM.rpartition("print")[0])
    command = f"'{sys.executable}' -m backlight trace '{path}' | true"
    result = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert result.returncode == 0
    assert "BrokenPipe" not in result.stderr


CHECKED = """
import torch
import torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, IterDataPipe
from torchvision import datasets

x = torch.sparse_coo_tensor(1)
y = x.to_sparse().values()
m = torch.compile(nn.Linear(2, 2))
nn.quantized.Linear
F.relu(x).anything
embedding = nn.Embedding(2, 3)
embedding = nn.Embedding(2, 3, sparse=True)
torch.optim.Adam(m.parameters(), differentiable=False)
torch.Tensor.to_sparse
raise SystemExit("never run")
"""


def test_check_lists_what_is_missing_without_running(run):
    result = run("check", CHECKED)
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "script.py: 4 missing"
    assert [line.partition(":")[2].partition(":")[0].strip() for line in lines[1:]] == [
        "torch.utils.data.IterDataPipe (missing)",
        "torchvision (other package)",
        "torch.sparse_coo_tensor (missing)",
        "torch.Tensor.to_sparse (missing)",
        "torch.compile (in part)",
        "torch.nn.quantized (missing)",
        "torch.nn.Embedding (in part)",
        "torch.optim.Adam (in part)",
    ]
    assert "  lines 8, 15: torch.Tensor.to_sparse" in result.stdout and "  line 13: torch.nn.Embedding" in result.stdout


def test_check_of_good_and_unreadable_scripts(run, tmp_path):
    (tmp_path / "good.py").write_text("import torch\ntorch.ones(2).sum()\n")
    (tmp_path / "bad.py").write_text("import torch(\n")
    good = run("check good.py")
    assert (good.returncode, good.stdout) == (0, "good.py: nothing is missing\n")
    bad = run("check good.py bad.py none.py")
    assert bad.returncode == 2
    assert "can't read bad.py" in bad.stderr and "can't read none.py" in bad.stderr
