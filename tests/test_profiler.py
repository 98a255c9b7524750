"""autograd.profiler, compared with PyTorch where times aside the answers can be the same."""

from __future__ import annotations

import json
import sys

import pytest
from both_packages import Programs, assert_same_log, attempt

program = Programs()


def profiler(T):
    return T.autograd.profiler


def names(prof, *wanted):
    """The names of the events (of those wanted): PyTorch's also show what its operations call inside."""
    return [e.name for e in prof.function_events if e.name in wanted]


@program
def names_of_events(T, log):
    x, w = T.ones(2, 3, requires_grad=True), T.ones(3, 2, requires_grad=True)
    with profiler(T).profile() as prof:
        y = ((x @ w) * 2).exp().sum()
        y.backward()
    steps = ["SumBackward0", "ExpBackward0", "MulBackward0", "MmBackward0"]
    log.append(names(prof, "aten::mm", "aten::mul", "aten::exp", "aten::sum")[:4])
    log.append(names(prof, *steps))
    log.append(names(prof, *[f"autograd::engine::evaluate_function: {s}" for s in steps]))
    numbers = {e.name: e.sequence_nr for e in prof.function_events if e.name in ("aten::exp", "ExpBackward0")}
    log.append(numbers["aten::exp"] == numbers["ExpBackward0"])


@program
def blocks(T, log):
    module = profiler(T)
    x = T.ones(3)
    with module.profile() as prof:
        with module.record_function("outer"):
            x.sin()
            with module.record_function("inner"):
                x.cos()

        @module.record_function("decorated")
        def f():
            return x.tan()

        f()
        f()
    log.append(names(prof, "outer", "inner", "decorated", "aten::sin", "aten::cos", "aten::tan"))
    by_name = {e.name: e for e in prof.function_events}
    log += [by_name["aten::cos"].cpu_parent.name, by_name["inner"].cpu_parent.name, by_name["outer"].cpu_parent is None]
    log.append([c.name for c in by_name["outer"].cpu_children])
    averages = {e.key: e.count for e in prof.key_averages()}
    log += [averages["decorated"], averages["outer"]]
    with module.record_function("outside"):
        pass


@program
def shapes(T, log):
    x, y = T.ones(2, 3), T.ones(3)
    with profiler(T).profile(record_shapes=True) as prof:
        (x * y).neg()
        (y * y).neg()
    log += [e.input_shapes for e in prof.function_events if e.name in ("aten::mul", "aten::neg")]
    log.append([e.count for e in prof.key_averages(group_by_input_shape=True) if e.key == "aten::mul"])
    log.append([e.count for e in prof.key_averages() if e.key == "aten::mul"])


@program
def switched_off_and_misused(T, log):
    module = profiler(T)
    with module.profile(enabled=False) as prof:
        T.ones(2).sin()
    log.append(prof)
    prof = module.profile()
    log.append(str(prof))
    attempt(log, prof.key_averages)
    attempt(log, prof.table)
    log += [T.autograd._profiler_enabled()]


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])


def test_times_and_tables(tmp_path):
    import backlight as T

    x = T.ones(200, 200)
    with T.autograd.profiler.profile() as prof:
        for _ in range(3):
            x @ x
        x.sin()
    mm, sin = (next(e for e in prof.key_averages() if e.key == key) for key in ("aten::mm", "aten::sin"))
    assert (mm.count, sin.count) == (3, 1)
    assert mm.cpu_time_total >= mm.self_cpu_time_total >= 0
    assert abs(mm.cpu_time - mm.cpu_time_total / 3) < 1e-6
    assert prof.self_cpu_time_total <= sum(e.cpu_time_total for e in prof.function_events)
    table = prof.table(sort_by="cpu_time_total", row_limit=1)
    assert "aten::mm" in table and "aten::sin" not in table and "# of Calls" in table
    assert prof.total_average().count == len(prof.function_events)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["name"] for e in events].count("aten::mm") == 3
    assert all(e["dur"] >= 0 for e in events)


def test_leaves_no_trace():
    import backlight as T

    with pytest.raises(ValueError), T.autograd.profiler.profile():
        raise ValueError
    assert sys.getprofile() is None
    assert not T.autograd._profiler_enabled()
    with T.autograd.profiler.profile() as prof, pytest.raises(RuntimeError, match="another one runs"):
        T.autograd.profiler.profile().__enter__()
    with pytest.raises(RuntimeError, match="not reentrant"):
        prof.__enter__()


CALLS = """s*s; s.sqrt(); T.sinh(s); s.max(0); s.min(0); s.std(0); s.var(0); s.cumprod(0); T.triu(m); T.tril(m); F.log_softmax(s, 0)
F.softmax(s, 0); T.randn(2); T.rand(2); T.ones_like(s); T.ones(2); T.zeros(2); T.empty(2); s.tanh_(); s.exp_(); F.conv2d(x, x); F.conv1d(x[0], x[0])
s.any(); s.all(); s.argmin(); s.argmax(); s.amin(); T.fft.rfft(s); T.fft.fft(s); T.logaddexp(s, s); T.fmax(s, s); F.relu_(s); F.max_pool2d(x, 2)
F.avg_pool2d(x, 2); T.linalg.inv(m); s.new_zeros(2); T.hsplit(m, 3); s.cummax(0); T.std_mean(s); T.kron(s, s); F.dropout(s); s.clamp_(0.1, 0.9)"""


def test_each_operation_is_named_as_in_pytorch():
    """Functions that are made in one place share their code, which a profile is told of."""
    import torch

    import backlight

    outermost = {}
    for T in (backlight, torch):
        scope = {"T": T, "F": T.nn.functional, "s": T.tensor([0.2, 0.4]), "x": T.ones(2, 3, 4, 4), "m": T.eye(3)}
        for call in CALLS.replace("\n", ";").split(";"):
            with profiler(T).profile() as prof:
                eval(call.strip(), scope)
            outermost.setdefault(call.strip(), []).append(prof.function_events[0].name)
    assert {call: names for call, names in outermost.items() if names[0] != names[1]} == {}
