"""`inspect.watch`: every N-th step of a training, in tables and files."""

import copy
import gc
import io
import json
import math
import pickle
import sys
import weakref

import numpy as np
import pytest
import torch as pytorch
from rich.cells import cell_len
from rich.console import Console

import backlight
from backlight import engine
from backlight.inspect import record
from backlight.inspect.render import live
from backlight.inspect.watch import KEPT, ModuleSample, Sample, watch

BOTH = pytest.mark.parametrize("torch", [backlight, pytorch], ids=["backlight", "pytorch"])


def network(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def train(torch, model, steps, optimizer=None):
    torch.manual_seed(1)
    for _ in range(steps):
        loss = (model(torch.randn(5, 4)) ** 2).mean()
        if optimizer is not None:
            optimizer.zero_grad()
        loss.backward()
        if optimizer is not None:
            optimizer.step()
    return float(loss.detach())


@BOTH
def test_samples(torch):
    model = network(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    with watch(model, every=3, to=seen.append, optimizer=optimizer) as watching:
        train(torch, model, 7, optimizer)
    assert [sample.step for sample in seen] == [1, 4, 7]
    assert list(watching.samples) == seen
    for sample in seen:
        assert sample.loss > 0
        assert list(sample.modules) == ["0", "2"]
        assert sample.gradient == pytest.approx(math.hypot(*(m.gradient for m in sample.modules.values())))
        assert all(0 < m.update < 1 for m in sample.modules.values())
        assert sample.nonfinite == 0
    assert seen[-1].modules["2"].gradient == pytest.approx(
        math.hypot(*(float((p.grad**2).sum()) ** 0.5 for p in model[2].parameters())), rel=1e-5
    )
    names = [m.name for m in watching.record.modules]
    assert names == ["", "0", "1", "2"]
    assert len(watching.record.passes) == 1


@BOTH
def test_update_is_what_the_optimizer_did(torch):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = [p.detach().numpy().copy() for p in model.parameters()]
    with watch(model, to=lambda sample: None, optimizer=optimizer) as watching:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    after = [p.detach().numpy() for p in model.parameters()]
    moved = math.hypot(*(np.linalg.norm(a - b) for a, b in zip(after, before)))
    size = math.hypot(*map(np.linalg.norm, before))
    updates = [m.update for m in watching.samples[0].modules.values()]
    assert math.hypot(*(u * np.linalg.norm(b) for u, b in zip(updates, before))) == pytest.approx(moved, rel=1e-5)
    assert size > 0


@BOTH
def test_watching_changes_nothing(torch):
    plain, watched = network(torch), network(torch)
    train(torch, plain, 6, torch.optim.Adam(plain.parameters()))
    optimizer = torch.optim.Adam(watched.parameters())
    with watch(watched, every=2, to=lambda sample: None, optimizer=optimizer):
        train(torch, watched, 6, optimizer)
    for a, b in zip(plain.parameters(), watched.parameters()):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())
        assert np.array_equal(a.grad.numpy(), b.grad.numpy())
    assert not watched._forward_pre_hooks
    assert engine.state.recorder is None


@BOTH
def test_no_optimizer_evaluations_and_calls_without_backward(torch):
    model = network(torch)
    with watch(model, every=2, to=lambda sample: None) as watching:
        model(torch.ones(1, 4))  # 1: sampled, but no backward pass follows
        with torch.no_grad():
            model(torch.ones(1, 4))
        train(torch, model, 4)  # 2 to 5
    assert [sample.step for sample in watching.samples] == [3, 5]
    assert watching.samples[0].modules["0"].update is None


def test_memory_is_bounded():
    model = network(backlight)
    with watch(model, every=1, to=lambda sample: None) as watching:
        train(backlight, model, KEPT + 20)
        first = weakref.ref(watching.record)
        train(backlight, model, 2)
        gc.collect()
        assert first() is None
    assert len(watching.samples) == KEPT
    assert watching.calls == KEPT + 22
    assert len(watching.record.ops) < 20


def test_a_recording_of_the_program_goes_first():
    model = network(backlight)
    with watch(model, every=1, to=lambda sample: None) as watching:
        with record() as own:
            train(backlight, model, 2)
        train(backlight, model, 1)
    assert len(own.passes) == 2
    assert [sample.step for sample in watching.samples] == [3]


def test_copies_and_files_of_a_watched_model():
    model = network(pytorch)
    with watch(model, to=lambda sample: None) as watching:
        copied = copy.deepcopy(model)
        read = pickle.loads(pickle.dumps(model))
        train(pytorch, copied, 1)
        train(pytorch, read, 1)
        assert watching.calls == 0


def test_nan_and_findings():
    model = network(backlight)
    lines = []
    with watch(model, to=lambda sample: lines.append(live.line(sample))) as watching:
        (model(backlight.ones(2, 4)) * 0).sqrt().sum().backward()
    (sample,) = watching.samples
    assert sample.nonfinite > 0
    assert "not finite" in lines[0]
    assert sample.findings


def test_json_lines(tmp_path):
    model = network(backlight)
    path = tmp_path / "watched.jsonl"
    with watch(model, every=2, to=path):
        train(backlight, model, 4)
    with watch(model, to=[path, lambda sample: None]):
        (model(backlight.ones(2, 4)) * 0).sqrt().sum().backward()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 3, 1]
    assert set(rows[0]["modules"]["0"]) == {"gradient", "zeros", "nonfinite", "update"}
    assert rows[2]["modules"]["0"]["gradient"] == "nan"


def test_tensorboard_scalars(tmp_path):
    class Writer:
        def __init__(self):
            self.scalars = {}

        def add_scalar(self, name, value, step):
            self.scalars[name, step] = value

    writer, model = Writer(), network(backlight)
    with watch(model, every=2, to=writer):
        train(backlight, model, 3)
    assert {("loss", 1), ("gradient", 3), ("gradient/0", 1), ("zeros/2", 3), ("nonfinite/2", 3)} <= set(writer.scalars)


def test_tensorboard_files(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX isn't installed (extra 'tensorboard')")
    model = network(backlight)
    with watch(model, to=tmp_path / "runs"):
        train(backlight, model, 1)
    (file,) = (tmp_path / "runs").iterdir()
    assert b"gradient/0" in file.read_bytes()


def test_tensorboard_names_the_missing_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'backlight\[tensorboard\]'"):
        watch(network(backlight), to=tmp_path)


def test_arguments():
    with pytest.raises(TypeError, match="takes a module"):
        watch([1])
    for every in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="positive whole number"):
            watch(network(backlight), every=every)
    with pytest.raises(TypeError, match="to must be"):
        watch(network(backlight), to=3)


# The table


def samples():
    result = []
    for step in range(1, 200, 10):
        modules = {
            "embedding": ModuleSample(1.0 / step, 0.25, 0, 1e-3),
            "a.module.with.a.very.long.name.that.cannot.fit.in.any.terminal.of.eighty.columns": ModuleSample(
                None, None, 0, None
            ),
            "名前": ModuleSample(math.nan, 0.0, 12345, 0.5),
        }
        result.append(Sample(step, 2.0 / step, 1.0, 12345, 1e-3, modules, ["Something is wrong here", "And here"]))
    return result


@pytest.mark.parametrize("width", [60, 80, 120])
def test_table_fits(width):
    console = Console(file=io.StringIO(), width=width)
    console.print(live.table(samples(), width))
    text = console.file.getvalue()
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert "step 191" in text
    assert "Something is wrong here (and 1 more finding)" in text
    assert "embedding" in text
    assert "None" in text
    assert "12,345" in text


def test_table_in_a_terminal_and_lines_in_a_file():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for file, wanted in (
        (Terminal(), "\x1b["),
        (io.StringIO(), "step 191  loss 0.0105  gradient 1  largest 0.00524 (embedding)"),
    ):
        shown = live.LiveTable(file)
        shown.write(samples()[-1], samples())
        shown.close()
        assert wanted in file.getvalue()
