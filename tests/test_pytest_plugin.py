"""The pytest fixture `backlight`: each check passes where it should, fails where it should, and says why; on both engines."""

import linecache
import re
import subprocess
import sys

import pytest
import torch as pytorch

import backlight
import backlight.nn  # pytester forgets the modules that are first imported inside of it: there would be two of nn
from backlight.inspect.testing import Checks

pytest_plugins = ["pytester"]
ARGUMENTS = ["-p", "no:cacheprovider", "-p", "pytest_backlight"]


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch):
    """Nor this one twice, where it is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture(params=["backlight", "torch"])
def run(request, pytester):
    """Runs a file of tests with the plugin, where warnings are errors."""
    pytester.makeini("[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error")

    def run(text, *arguments, passed=0, failed=0):
        linecache.clearcache()  # the file has another text than in the run before
        pytester.makepyfile(test_it=f"import {request.param} as torch\n\n\n{text}")
        result = pytester.runpytest_inprocess(*ARGUMENTS, *arguments)
        result.assert_outcomes(passed=passed, failed=failed)
        lines = (line.removeprefix("E").strip() for line in result.outlines if line.startswith("E "))
        return re.sub(r"test_it.py:\d+", "test_it.py:LINE", "\n".join(line for line in lines if line))

    return run


# check_gradients

NETWORK = """
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 3)
        self.spare = torch.nn.Linear(2, 2)
        self.last = torch.nn.Linear(3, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Cut(Network):
    def forward(self, x):
        hidden = self.first(x).detach()
        return self.last(torch.tanh(hidden))

x = torch.ones(4, 2)
"""


def test_gradients_pass(run):
    text = """
def test_all(backlight):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))  # what is left from before doesn't count
    backlight.check_gradients(model, lambda: model(x).sum())
    assert model[0].weight.grad is not None
    backlight.check_gradients(model, model(x).sum())
    model[0].requires_grad_(False)
    backlight.check_gradients(model, lambda: model(x).sum())

def test_allowed(backlight):
    model = Network()
    backlight.check_gradients(model, lambda: model(x).sum(), allow_none=("spare.*",))
    backlight.check_gradients(model, lambda: model(x).sum() + 0 * model.spare(x).sum(), allow_zero=("spare.weight", "spare.bias"))
"""
    run(NETWORK + text, passed=2)


def test_gradients_missing(run):
    text = """
def test(backlight):
    model = Cut()
    backlight.check_gradients(model, lambda: model(x).sum())
"""
    message = run(NETWORK + text, failed=1)
    assert (
        "AssertionError: 4 of 6 parameters got no gradient: first.weight, first.bias, spare.weight and spare.bias\n" in message
    )
    assert (
        "first.weight and first.bias: no gradient, because the path to the loss is cut at test_it.py:LINE `self.first"
        in message
    )
    assert "fix: leave out `.detach()`" in message
    assert "spare.weight and spare.bias: no gradient, because nothing used it" in message


def test_gradients_missing_of_a_loss(run):
    text = """
def test(backlight):
    model = Cut()
    backlight.check_gradients(model, model(x).sum(), allow_none=["spare.*"])
"""
    message = run(NETWORK + text, failed=1)
    assert "2 of 6 parameters got no gradient: first.weight and first.bias\nThe loss was computed before the check" in message
    assert "nothing used it" not in message  # what wasn't recorded is not guessed


def test_gradients_zero_and_not_finite(run):
    text = """
def test_zero(backlight):
    model = torch.nn.Linear(2, 1)
    backlight.check_gradients(model, lambda: model(x).round().sum())

def test_nonfinite(backlight):
    model = torch.nn.Linear(2, 1)
    backlight.check_gradients(model, lambda: (model(x) * 0).sqrt().sum(), allow_zero=("*",), allow_none=("*",))
"""
    message = run(NETWORK + text, failed=2)
    assert "2 of 2 parameters got a gradient of zeros: weight and bias\n" in message
    assert "because RoundBackward0 at test_it.py:LINE `model(x).round()` passed none on" in message
    assert "2 of 2 parameters got NaN or infinity: weight and bias\n" in message
    assert "first non-finite gradient: singular point in SqrtBackward0 at test_it.py:LINE" in message


def test_an_exception_has_its_cause(run):
    text = """
def test_inplace(backlight):
    model = torch.nn.Linear(2, 1)
    def loss():
        y = model(x).exp()
        total = y.sum()
        y.zero_()
        return total
    backlight.check_gradients(model, loss)

def test_no_graph(backlight):
    model = torch.nn.Linear(2, 1)
    backlight.check_gradients(model, lambda: model(x).sum().detach())
"""
    message = run(NETWORK + text, failed=2)
    assert "modified by an inplace operation" in message
    assert message.count("y was changed by zero_() at test_it.py:LINE `y.zero_()` after Exp had saved it") == 1
    assert "element 0 of tensors does not require grad" in message
    assert "the loss has no graph: the path is cut at test_it.py:LINE" in message


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("3, lambda: x.sum()", "TypeError: check_gradients() takes a module of Backlight's or PyTorch's nn, not int"),
        ("model, 3", "TypeError: check_gradients() takes the loss or a function without arguments that computes it, not int"),
        ("model, lambda: 3", "TypeError: the function must return the loss, a tensor, and it returned int"),
        ("model, loss, allow_none=('spair.*',)", "ValueError: allow_none: the model has no parameter 'spair.*'; it has first.weight"),
        ("model, loss, allow_zero='spare.*'", "TypeError: allow_zero must be a tuple of names, such as ('spare.*',), not the text"),
        ("model.requires_grad_(False), loss", "ValueError: none of the model's parameters requires grad"),
    ],
)  # fmt: skip
def test_gradients_of_what(run, call, problem):
    text = f"""
def test(backlight):
    model = Network()
    loss = lambda: model(x).sum()
    backlight.check_gradients({call})
"""
    assert problem in run(NETWORK + text, failed=1)


# check_no_growth


def test_no_growth_pass(run):
    text = """
def test(backlight):
    model = torch.nn.Linear(2, 1)
    calls = []
    def step():
        model.zero_grad()
        loss = model(torch.ones(4, 2)).square().mean()
        if not calls:
            loss = loss.exp()  # the first step may be another
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        calls.append(loss.item())
        return loss
    backlight.check_no_growth(step)
    assert len(calls) == 5
    backlight.check_no_growth(step, steps=3)
"""
    run(text, passed=1)


def test_growth(run):
    text = """
def test(backlight):
    w = torch.ones(2, requires_grad=True)
    total = torch.zeros(())
    def step():
        nonlocal total
        total = total + (w * w).sum()
        total.backward(retain_graph=True)
    backlight.check_no_growth(step, steps=4)
"""
    message = run(text, failed=1)
    assert "the graph grows from step to step: 4, 7, 10, 13 nodes" in message
    assert "total carries the graph of earlier steps into the next one" in message
    assert "fix: detach total between the steps" in message


def test_growth_of_what_is_saved(run):
    text = """
def test(backlight):
    w = torch.ones(2, requires_grad=True)
    n = 0
    def step():
        nonlocal n
        n += 1
        (torch.ones(n, 2) * w).exp().sum().backward()
    backlight.check_no_growth(step)
"""
    assert "nodes, which saved 16 B, 32 B, 48 B, 64 B, 80 B" in run(text, failed=1)


def test_graphs_that_stay_alive(run):
    text = """
def train(backlight, **options):
    w = torch.ones(2, requires_grad=True)
    losses = []
    def step():
        loss = (w * w).sum()
        loss.backward()
        losses.append(loss)
    backlight.check_no_growth(step, **options)

def test_allowed(backlight):
    train(backlight, allow_alive=True)

def test(backlight):
    train(backlight)
"""
    message = run(text, passed=1, failed=1)
    assert "graphs that still exist after 5 steps: 5\n" in message
    assert (
        message.count("loss holds 2 nodes with 0 B of saved tensors. Held by: a list of 5 <- local variable losses of train()")
        == 1
    )
    assert "use loss.detach() or .item() where only the value is needed" in message


def test_steps_of_nothing(run):
    text = """
def test_nothing(backlight):
    backlight.check_no_growth(lambda: None)

def test_few(backlight):
    backlight.check_no_growth(lambda: None, steps=2)

def test_raises(backlight):
    def step():
        y = torch.ones(2, requires_grad=True).exp()
        z = y.sum()
        y.zero_()
        z.backward()
    backlight.check_no_growth(step)
"""
    message = run(text, failed=3)
    assert (
        "ValueError: the step ran no backward pass of backlight or torch: it must compute a loss and call backward()" in message
    )
    assert "ValueError: growth shows after 3 steps at the earliest, got steps=2" in message
    assert message.count("y was changed by zero_() at test_it.py:LINE `y.zero_()` after Exp had saved it") == 1


# check_saved_bytes


def test_saved_bytes(run):
    text = """
def step():
    w = torch.ones(1000, requires_grad=True)
    y = w.exp()
    z = y.tanh()
    z.sum().backward()

def test_within(backlight):
    assert backlight.check_saved_bytes(step, 8000) == 8000

def test_exceeded(backlight):
    backlight.check_saved_bytes(step, 7999)

def test_several_passes(backlight):
    def several():
        step()
        torch.ones(3, requires_grad=True).exp().sum().backward()
    assert backlight.check_saved_bytes(several, 10**6) == 8000

def test_what(backlight):
    backlight.check_saved_bytes(step, "8 KiB")
"""
    message = run(text, passed=2, failed=2)
    assert (
        "the graph had saved 8,000 bytes (7.8 KiB) when backward() began at test_it.py:LINE `z.sum().backward()`; " in message
    )
    assert (
        "the budget is 7,999 bytes (7.8 KiB)\n4,000  test_it.py:LINE  y = w.exp()\n4,000  test_it.py:LINE  z = y.tanh()\n"
        in message
    )
    assert "ValueError: budget must be a number of bytes, such as 64 * 2**20, got '8 KiB'" in message


# check_order

ORDER = """
def test(backlight):
    w = torch.ones(2, requires_grad=True)
    def step():
        (w.{operation}() * 2).sum().backward()
        {second}
    backlight.check_order(step, "order.txt")
"""


def test_order(run, pytester):
    path = pytester.path / "order.txt"
    text = ORDER.format(operation="exp", second="")
    assert f"{path} is not there yet: run pytest with --backlight-update to write it" in run(text, failed=1)
    run(text, "--backlight-update", passed=1)
    assert path.read_text() == "SumBackward0\nMulBackward0\nExpBackward0\nAccumulateGrad of w\n"
    run(text, passed=1)
    message = run(ORDER.format(operation="sin", second=""), failed=1)
    assert (
        "The first difference is line 3 of order.txt:\nexpected: ExpBackward0\ngot:      SinBackward0, of test_it.py:LINE `w.sin()`"
        in message
    )
    run(ORDER.format(operation="sin", second=""), "--backlight-update", passed=1)
    assert path.read_text() == "SumBackward0\nMulBackward0\nSinBackward0\nAccumulateGrad of w\n"
    assert list(pytester.path.glob(".order.txt*")) == []


def test_order_of_several_passes(run, pytester):
    text = ORDER.format(operation="exp", second="w.sum().backward()")
    run(text, "--backlight-update", passed=1)
    lines = (pytester.path / "order.txt").read_text().splitlines()
    assert lines == [
        "backward 1:",
        "SumBackward0",
        "MulBackward0",
        "ExpBackward0",
        "AccumulateGrad of w",
        "backward 2:",
        *lines[-2:],
    ]
    path = pytester.path / "order.txt"
    path.write_text("\n".join(lines[:-1]))
    message = run(text, failed=1)
    assert "expected: the end\ngot:      AccumulateGrad of w\n(7 lines expected, 8 got.)" in message


# check_function

SQUARE = """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x{factor}
"""


def test_function(run):
    text = """
def test_exactly(backlight):
    backlight.check_function(Square.apply, torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True))

def test_float32(backlight):
    backlight.check_function(Square.apply, torch.tensor([1.0, 2.0], requires_grad=True))
"""
    run(SQUARE.format(factor=" * 2") + text, passed=2)
    message = run(SQUARE.format(factor="") + text, failed=2)
    assert message.count("Square.backward disagrees with its forward for input 0") == 2
    assert "multiply what backward returns for input 0 by 2" in message


def test_function_that_only_gradcheck_sees_through(run):
    text = """
class Noisy(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        Noisy.calls += 1
        return gradient * (2 if Noisy.calls == 1 else 3)

def test(backlight):
    backlight.check_function(Noisy.apply, torch.ones(2, dtype=torch.float64, requires_grad=True))
"""
    assert "AssertionError: gradcheck: " in run(text, failed=1)


# record


def test_record(run):
    text = """
def program():
    model = Cut()
    model(x).sum().backward()

def test_good(backlight):
    with backlight.record(engine=torch.__name__) as record:
        model = Network()
        model(x).sum().backward()
    assert len(record.passes) == 1 and record.policy == "norms"

def test_bad(backlight):
    with backlight.record("shapes", engine=torch.__name__):
        program()

def test_allowed(backlight):
    with backlight.record(engine=torch.__name__, allow=("none-cut",)):
        program()

def test_findings_are_those_at_the_end(backlight):
    with backlight.record(engine=torch.__name__) as record:
        assert record.findings == []
        program()

def test_raises(backlight):
    with backlight.record(engine=torch.__name__):
        y = torch.ones(2, requires_grad=True).exp()
        z = y.sum()
        y.zero_()
        z.backward()

def test_what(backlight):
    with backlight.record(engine=torch.__name__, allow="none-cut"):
        pass
"""
    message = run(NETWORK + text, passed=2, failed=4)
    assert message.count("1 error in what was recorded ('none-cut')\n") == 2
    assert "the path to the loss is cut at test_it.py:LINE" in message
    assert message.count("y was changed by zero_() at test_it.py:LINE") == 1
    assert "allow must be a tuple of kinds, such as ('none-cut',), not the text 'none-cut'" in message


def test_record_takes_the_engine_that_is_imported(pytester, monkeypatch):
    text = """
import backlight as torch

def test(backlight):
    with backlight.record() as record:
        torch.ones(2, requires_grad=True).sum().backward()
    assert record.engine == "backlight"
"""
    pytester.makepyfile(text)
    result = pytester.runpytest_inprocess(*ARGUMENTS)  # with PyTorch loaded
    result.stdout.fnmatch_lines(
        ["*nothing of torch ran in this block; for a program on backlight, pass engine='backlight'", "*1 failed*"]
    )
    monkeypatch.delitem(sys.modules, "torch")
    pytester.runpytest_inprocess(*ARGUMENTS).assert_outcomes(passed=1)


# The plugin itself


def test_the_plugin_imports_nothing_heavy():
    program = "import pytest_backlight, sys; print({'backlight', 'numpy', 'torch', 'rich'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("set()\n", "")


def test_without_pytest(tmp_path):
    checks = Checks(tmp_path)
    for torch in (backlight, pytorch):
        model = torch.nn.Linear(2, 1)
        checks.check_gradients(model, lambda torch=torch, model=model: model(torch.ones(1, 2)).sum())
    with pytest.raises(ValueError, match="backward passes of both Backlight and PyTorch"):
        checks.check_saved_bytes(lambda: [t.ones(1, requires_grad=True).exp().backward() for t in (backlight, pytorch)], 100)


def test_nothing_goes_on_after_a_failure():
    """A step that raises doesn't leave a recording behind."""
    checks = Checks()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            checks.check_saved_bytes(lambda: 1 / 0, 100)
    with pytest.raises(ZeroDivisionError), checks.record(engine="backlight"):
        raise ZeroDivisionError
    with backlight.inspect.record() as record:
        pass
    assert record.passes == []
