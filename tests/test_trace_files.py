"""`backlight trace` in all the ways in which a script can end: what was recorded is written, and the end is the script's own."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from backlight.inspect import Record

HEAD = "import torch\nx = torch.ones(3, requires_grad=True)\n(x * 2).sum().backward()\n"
ENDS = {
    "normal": ("", 0, ""),
    "raises": ("raise ValueError('own')", 1, "ValueError: own"),
    "exits": ("import sys; sys.exit(7)", 7, ""),
    "exits with a text": ("raise SystemExit('own text')", 1, "own text"),
    "interrupted": ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
    "backward fails": ("x.detach().sum().backward()", 1, "does not require grad"),
    "forks": ("import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)", 0, ""),
    "forks and the child ends": ("import os\npid = os.fork()\nif not pid:\n    raise SystemExit(3)\nos.waitpid(pid, 0)", 0, ""),
    "changes the folder": ("import os; os.chdir('/')", 0, ""),
    "asks for its own arguments": ("import sys; assert sys.argv[1:] == ['-o', 'x']", 0, ""),
}


def trace(folder, text, *options, arguments=()):
    (folder / "script.py").write_text(HEAD + text)
    command = [sys.executable, "-m", "backlight", "trace", *options, "script.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("engine", ["backlight", "torch"])
@pytest.mark.parametrize("end", ENDS)
def test_every_end(tmp_path, engine, end):
    text, code, said = ENDS[end]
    arguments = ("-o", "x") if "own arguments" in end else ()
    result = trace(tmp_path, text, "--engine", engine, "--passes", "all", "-o", "record.jsonl", arguments=arguments)
    assert result.returncode == code, result.stderr
    assert said in result.stderr
    assert 'File "/' not in result.stderr or "script.py" in result.stderr
    assert "backlight/inspect" not in result.stderr
    record = Record.read(tmp_path / "record.jsonl")
    assert record.engine == engine
    assert [step.name for step in record.passes[0].steps] == ["SumBackward0", "MulBackward0", "AccumulateGrad"]
    assert result.stdout.count("Backward pass 1 of") == 1  # a child that was forked writes nothing
    assert sorted(p.name for p in tmp_path.iterdir()) == ["record.jsonl", "script.py"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals(tmp_path, number):
    (tmp_path / "script.py").write_text(HEAD + "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "backlight", "trace", "-o", "record.jsonl", "script.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGTERM else 130)
    assert len(Record.read(tmp_path / "record.jsonl").passes) == 1


def test_a_scripts_own_signal_handler_stays(tmp_path):
    text = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: print('own handler'))\nos.kill(os.getpid(), signal.SIGTERM)\n"
    result = trace(tmp_path, text)
    assert result.returncode == 0
    assert "own handler" in result.stdout


def test_every_kind_of_file(tmp_path):
    names = ["a.jsonl", "a.html", "a.dot", "a.mmd", "a.json", "a.csv"]
    result = trace(tmp_path, "", *(word for name in names for word in ("-o", name)))
    assert result.returncode == 0, result.stderr
    assert "<!doctype html>" in (tmp_path / "a.html").read_text().lower()
    assert (tmp_path / "a.dot").read_text().startswith("digraph")
    assert json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    assert "MulBackward0" in (tmp_path / "a.csv").read_text()
    assert all(os.path.getsize(tmp_path / name) for name in names)


def test_show(tmp_path):
    traced = trace(tmp_path, "", "--width", "80", "-o", "record.jsonl")
    command = [sys.executable, "-m", "backlight", "show", "--width", "80", "-o", "page.html", "record.jsonl"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.strip() == traced.stdout.strip()
    assert (tmp_path / "page.html").exists()
    (tmp_path / "record.jsonl").write_text("nonsense")
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "line 1: not JSON" in shown.stderr


def test_a_place_that_cannot_be_written(tmp_path):
    result = trace(tmp_path, "print('done')", "-o", "missing/record.jsonl")
    assert (result.returncode, result.stdout) == (2, "")  # before the script runs
    assert "there is no folder 'missing'" in result.stderr
    result = trace(tmp_path, "import os; os.rmdir('gone'); print('done')", "-o", "gone/record.jsonl")
    assert result.returncode == 2
    (tmp_path / "gone").mkdir()
    result = trace(tmp_path, "import os; os.rmdir('gone'); print('done')", "-o", "gone/record.jsonl", "-o", "a.csv")
    assert result.returncode == 0
    assert "can't write" in result.stderr
    assert "Backward pass 1" in result.stdout  # the record is shown all the same
    assert (tmp_path / "a.csv").exists()
