"""The example programs print the same text under PyTorch and under Backlight."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def output(*command: str, said: bool = False) -> str:
    """What a command prints; it must say nothing on stderr, unless `said`."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    result = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env, timeout=120)
    assert result.returncode == 0, result.stderr
    assert said or not result.stderr, result.stderr
    return re.sub("0x[0-9a-f]+", "0x...", result.stdout)


ELSEWHERE = ("views.py", "p1_across_processes.py")  # of Backlight only; of two processes: test_ranks.py


@pytest.mark.parametrize("program", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in ELSEWHERE))
def test_same_text(program):
    path = str(EXAMPLES / program)
    text = output("-m", "backlight", "run", path)
    assert text == output(path)
    for fact in FACTS[program]:
        assert fact in text


# What the write-ups behind the programs say.
FACTS = {
    "p0_call_order.py": ["tensor(32403.7363, grad_fn=<MeanBackward0>)", "x0   equal True", "loss equal True"],
    "p1_graph_walk.py": [
        "MseLossBackward0 -> ['ReluBackward0', 'NoneType']",
        "AddmmBackward0 -> ['AccumulateGrad', 'NoneType', 'TBackward0']",
        "AccumulateGrad () (tensor([ 6., 12.]),)",
        "<RepeatBackward0 object at",
        "<SliceBackward0 object at",
        "<PowBackward0 object at",
    ],
    "p2_what_is_tracked.py": [
        "x: device=cpu requires_grad=False is_leaf=True\n   grad_fn=None\n   grad=None",
        "grad=tensor([[ 9.,  9.,  9.],\n        [12., 12., 12.],\n        [15., 15., 15.]])",
        "quiet: device=cpu requires_grad=False",
    ],
    "p3_network_gradients.py": [
        "0.weight True\ntensor(",
        "tensor(99.5000, grad_fn=<MeanBackward0>)",
        "tensor([[ 27.,  48.,  75.],\n        [108., 147., 192.]], grad_fn=<MulBackward0>)",
        "tensor([[36., 24., 30.],\n        [36., 42., 48.]])",
        "grad can be implicitly created only for scalar outputs",
        "tensor([[ 6., 15.],\n        [ 6., 15.]])",
    ],
    "p4_inner_gradients.py": ["tensor([[4.5000, 4.5000],\n        [4.5000, 4.5000]])", "True False"],
    "digits.py": ["epoch 15  loss 0."],
    "why.py": ["loss 2.8"],
}


@pytest.mark.parametrize("engine", ["backlight", "torch"])
def test_mistakes_are_named(engine):
    text = output(
        "-m", "backlight", "trace", "--engine", engine, "--passes", "all", "--width", "100", str(EXAMPLES / "why.py"), said=True
    )
    kinds = re.findall(r"^╭─ (?:error|warning|note): ([\w-]+)", text, re.M)
    assert kinds == ["none-cut", "not-in-optimizer", "none-never-used", "stale-gradient"]


def test_views_are_written(tmp_path):
    text = output(str(EXAMPLES / "views.py"), str(tmp_path))
    assert "none-never-used" in text
    assert {path.suffix for path in tmp_path.iterdir()} == {".html", ".dot", ".mmd", ".json", ".csv", ".jsonl"}


def test_digits_learns():
    last = output("-m", "backlight", "run", str(EXAMPLES / "digits.py")).splitlines()[-1]
    assert float(re.search(r"accuracy ([\d.]+)%", last)[1]) > 95


def test_digits_without_scikit_learn(tmp_path):
    (tmp_path / "sklearn.py").write_text("raise ImportError('No module named sklearn', name='sklearn')")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "backlight", "run", str(EXAMPLES / "digits.py")]
    result = subprocess.run(command, capture_output=True, text=True, env=env)
    assert result.returncode == 1
    assert "pip install 'backlight[examples]'" in result.stderr
    assert "Traceback" not in result.stderr
