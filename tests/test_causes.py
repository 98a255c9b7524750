"""Findings beyond the scenarios, on both engines, and the questions one can ask."""

import warnings
import weakref

import numpy as np
import pytest
import torch as pytorch
from both_engines import line_of, only, traced

import backlight
from backlight import inspect


@pytest.mark.parametrize(("scale", "kind"), [(0.02, "vanishing-gradient"), (20.0, "exploding-gradient")])
def test_gradients_over_depth(torch, scale, kind):
    def program(torch):
        layers = [torch.nn.Linear(8, 8) for _ in range(6)]
        with torch.no_grad():
            for layer in layers:
                layer.weight.copy_(torch.eye(8) * scale)
        net = torch.nn.Sequential(*layers)
        net(torch.ones(2, 8)).sum().backward()

    record, _result, _error = traced(torch, program)
    found = only(record, kind)
    assert found.names == [str(i) for i in range(6)]
    assert found.numbers["per_layer"] == pytest.approx(1 / scale if scale < 1 else scale, rel=0.5)
    assert len(found.numbers["activations"]) == 6  # not only the weights'


def test_dead_units_have_indices(torch):
    def program(torch):
        first, second = torch.nn.Linear(2, 4), torch.nn.Linear(4, 1)
        with torch.no_grad():
            first.bias.copy_(torch.tensor([5.0, -50.0, 5.0, -50.0]))
        net = torch.nn.Sequential(first, torch.nn.ReLU(), second)
        for _ in range(2):
            net(torch.rand(8, 2)).sum().backward()

    record, _result, _error = traced(torch, program)
    found = only(record, "dead-relu")
    assert found.numbers["units"] == [1, 3]
    assert (found.numbers["of"], found.numbers["passes"]) == (4, 2)
    assert found.names == ["1"]


def test_a_forward_pass_that_breaks(torch):
    def program(torch):
        x = torch.tensor([1.0, 0.0, 2.0], requires_grad=True)
        w = torch.ones(3, requires_grad=True)
        y = x.log()
        z = y * w
        z.sum().backward()

    record, _result, _error = traced(torch, program)
    found = only(record, "nonfinite")
    assert (found.numbers["cause"], found.numbers["operation"], found.names) == ("forward", "log", ["y"])
    assert (found.numbers["value"], found.numbers["element"], found.numbers["inputs"]) == (-np.inf, (1,), {"self": 0})
    assert line_of(found.sites["origin"]) == "y = x.log()"
    assert [str(f) for f in type(record).from_jsonl(record.to_jsonl()).findings if f.kind == "nonfinite"] == [str(found)]


def test_data_that_is_not_finite(torch):
    def program(torch):
        x = torch.tensor([1.0, np.nan])
        w = torch.ones(2, requires_grad=True)
        (w * x).sum().backward()

    record, _result, _error = traced(torch, program)
    found = only(record, "nonfinite")
    assert (found.numbers["cause"], found.numbers["given"]) == ("given", "x")
    assert found.sites["origin"].text == "w * x"


def test_hooks_that_never_ran(torch):
    def program(torch):
        x = torch.ones(2, requires_grad=True)
        used, unused = x * 2, x * 3
        unused.register_hook(print)
        used.sum().backward()
        used.register_hook(print)

    record, _result, _error = traced(torch, program)
    found = [f for f in record.findings if f.kind == "hook-never-ran"]
    assert sorted(f.names[0] for f in found) == ["unused", "used"]
    late = next(f for f in found if f.names == ["used"])
    assert "after the last backward pass" in late.text
    assert line_of(late.sites["registered"]) == "used.register_hook(print)"


def test_frozen_parameter_is_explained(torch):
    def program(torch):
        lin = torch.nn.Linear(2, 1)
        lin.weight.requires_grad_(False)
        lin(torch.ones(1, 2)).sum().backward()
        return lin

    _record, lin, _error = traced(torch, program)
    (found,) = inspect.explain(lin.weight)
    assert found.kind == "none-frozen"
    assert line_of(found.sites["switched at"]) == "lin.weight.requires_grad_(False)"


@pytest.mark.parametrize("cut", ["detach", "no_grad", "integer"])
def test_a_parameter_behind_a_cut(torch, cut):
    def program(torch):
        a, b = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        h = a(torch.ones(1, 2))
        if cut == "detach":
            h = h.detach()
        elif cut == "no_grad":
            with torch.no_grad():
                h = h * 2
        else:
            h = h.argmax(1, keepdim=True) + torch.zeros(1, 2)
        b(h).sum().backward()
        return a

    record, a, _error = traced(torch, program)
    found = only(record, "none-cut")
    assert found.numbers["cut"] == cut
    assert found.names == ["a.weight", "a.bias"]
    assert [f.kind for f in inspect.explain(a.weight)] == ["none-cut"]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_a_reentrant_checkpoint(torch):
    def program(torch):
        from importlib import import_module

        checkpoint = import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
        lin, out = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        h = checkpoint(lin, torch.ones(1, 2), use_reentrant=True)
        out(h).sum().backward()

    record, _result, _error = traced(torch, program)
    found = only(record, "none-checkpoint")
    assert found.names == ["lin.weight", "lin.bias"]
    assert "use_reentrant=False" in found.fix


def test_no_findings_about_a_sound_program(torch):
    def program(torch):
        nn = torch.nn
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(torch.randn(8, 4)), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]))
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            loss.item()

    record, _result, error = traced(torch, program)
    assert error is None
    assert [str(f) for f in record.findings] == []


def test_contributions_agree_between_engines():
    def program(torch):
        w = torch.tensor([1.0, 2.0], requires_grad=True)
        ((w * 3).sum() + (w * w).sum()).backward()

    tables = [inspect.contributions(traced(module, program, "full")[0], "w") for module in (backlight, pytorch)]
    assert all(table.complete for table in tables)
    for a, b in zip(tables[0].rows, tables[1].rows, strict=True):
        assert np.allclose(a.values, b.values)
        assert a.cosine == pytest.approx(b.cosine)


def test_asking_what_keeps_a_graph_alive_does_not(torch):
    def program():
        total = torch.ones(3, requires_grad=True).exp().sum()
        found = inspect.held_graph(total)
        reference = weakref.ref(total)
        total = None
        return found, reference

    found, reference = program()
    assert found.numbers["holders"] == ["local variable total of program()"]
    assert reference() is None

    def still_running():
        total = torch.ones(3, requires_grad=True).exp().sum()
        inspect.held_graph(total)
        reference = weakref.ref(total)
        total = None
        return reference()

    assert still_running() is None


def test_a_wrong_function(torch):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0] ** 2

    class Right(Wrong):
        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    x = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    found = inspect.check_function(Wrong.apply, x)
    assert found.kind == "wrong-function"
    assert found.numbers["ratio"] == 3
    assert "def backward" in line_of(found.sites["backward"]) or "@staticmethod" in line_of(found.sites["backward"])
    assert inspect.check_function(Right.apply, x) is None
    with pytest.raises(ValueError, match="at least one input that requires grad"):
        inspect.check_function(Right.apply, x.detach())


def mlp(torch):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    torch.nn.functional.mse_loss(net(torch.randn(5, 4)), torch.zeros(5, 2)).backward()


def test_records_of_both_engines_are_equal():
    ours, theirs = (traced(module, mlp, "full")[0] for module in (backlight, pytorch))
    assert inspect.diff(ours, theirs) is None


def test_the_first_difference():
    def program(torch, factor):
        x = torch.ones(3, requires_grad=True)
        y = x.exp() * factor
        y.sum().backward()

    a = traced(backlight, lambda torch: program(torch, 2), "full")[0]
    b = traced(pytorch, lambda torch: program(torch, 3), "full")[0]
    found = inspect.diff(a, b)
    assert (found.what, found.a.name, found.a.index) == ("gradient", "ExpBackward0", 3)
    other = traced(pytorch, lambda torch: torch.ones(3, requires_grad=True).sin().sum().backward(), "full")[0]
    assert inspect.diff(a, other).what == "node"
    assert inspect.diff(a, a) is None


def test_exceptions_carry_the_finding():
    a = backlight.ones(2, requires_grad=True)
    with inspect.record(), pytest.raises(RuntimeError) as raised:
        b = a.exp()
        b.mul_(2)
        b.sum().backward()
    assert "saved by" in raised.value.__notes__[0]
    with inspect.record(), pytest.raises(RuntimeError) as raised:
        a.detach().sum().backward()
    assert "the path is cut" in raised.value.__notes__[0]


def test_explain_says_what_it_takes():
    with pytest.raises(TypeError, match="a tensor, a parameter's name, an exception, a module or a record, not int"):
        inspect.explain(3)
    with inspect.record():
        pass
    with pytest.raises(ValueError, match="not seen by the last recording"):
        inspect.explain(backlight.ones(1))
    with pytest.raises(KeyError, match="no tensor is called 'w'"):
        inspect.explain("w")


def test_attach(torch):
    model = torch.nn.Linear(2, 1)
    with inspect.attach(model, policy="shapes") as recorder:
        model(torch.ones(1, 2)).sum().backward()
    assert [entry.name for entry in recorder.record.passes[0].gradients] == ["weight", "bias"]
    assert recorder.record.engine == torch.__name__
    with pytest.raises(TypeError, match="takes a module, not int"):
        inspect.attach(3)


@pytest.mark.parametrize("policy", ["shapes", "norms", "full"])
def test_explaining_keeps_nothing_alive(torch, policy):
    def program(torch):
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.sum().backward()
        return weakref.ref(y)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record, reference, _error = traced(torch, program, policy)
    assert record.findings is not None
    assert reference() is None
