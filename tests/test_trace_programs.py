"""What programs do beside layers and losses, while they are recorded: closures, steps that fail, gradients that others clear,
operations that consist of others."""

import subprocess
import sys

import pytest
from both_engines import line_of, only, traced


def kinds(record):
    return [finding.kind for finding in record.findings]


@pytest.mark.parametrize("kind", ["LBFGS", "SGD"])
def test_a_closure_is_recorded_like_the_rest_of_the_program(torch, kind):
    def program(torch):
        model = torch.nn.Linear(2, 1)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(3, 2)).square().mean()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        model.weight.mul(2)

    record, _result, error = traced(torch, program)
    assert error is None
    assert line_of(record.passes[0].steps[0].site) == "loss = model(torch.ones(3, 2)).square().mean()"
    assert {op.module.type for op in record.ops if op.function in ("linear", "addmm")} == {"Linear"}
    assert record.ops[-1].function == "mul"  # and not what the step itself does
    assert not {"add", "div", "dot"} & {op.function for op in record.ops}
    steps = [line for line in record.optimizers if line.call == "step"]
    assert [line.type for line in steps] == [kind, kind]
    assert all(update.gradient is not None and update.after > update.before for line in steps[:1] for update in line.updates)
    assert [w.how for w in record.gradient_writes][:6] == ["created", "created", "cleared", "cleared", "created", "created"]
    assert kinds(record) == []  # zero_grad in the closure: no gradients add up


def test_closures_whose_gradients_add_up(torch):
    def program(torch):
        w = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for _ in range(3):
            (w * torch.ones(4, 2)).square().mean().backward()
        optimizer.step()

    record, _result, _error = traced(torch, program)
    assert only(record, "accumulation-scale").numbers["passes"] == 3


def test_after_a_step_that_failed_everything_is_recorded(torch):
    def program(torch):
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def closure():
            raise KeyError("no data")

        with pytest.raises(KeyError):
            optimizer.step(closure)
        w = torch.ones(2, requires_grad=True)
        (w * 3).sum().backward()

    record, _result, error = traced(torch, program)
    assert error is None
    assert line_of(record.passes[0].steps[0].site) == "(w * 3).sum().backward()"
    assert [op.function for op in record.ops][-2:] in (["mul", "sum"], ["mul_number", "sum_all"], ["mul", "sum_all"])


def adversaries(torch, forgets):
    """A generator that is trained through a discriminator, whose gradients the discriminator's own step clears first."""
    g, d = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    g_step, d_step = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (g, d))
    for _ in range(2):
        if not forgets:
            d_step.zero_grad()
        d(g(torch.ones(4, 2)).detach()).mean().backward()
        d_step.step()
        g_step.zero_grad()
        d(g(torch.ones(4, 2))).mean().backward()
        g_step.step()


@pytest.mark.parametrize("forgets", [False, True])
def test_gradients_that_no_step_uses_are_not_stale(torch, forgets):
    record, _result, _error = traced(torch, lambda torch: adversaries(torch, forgets))
    assert ("stale-gradient" in kinds(record)) is forgets


def test_weights_that_begin_at_zero_are_no_fault(torch):
    def program(torch, steps):
        first, last = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
        torch.nn.init.zeros_(last.weight)
        model = torch.nn.Sequential(first, last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).mean().backward()
            optimizer.step()

    record, _result, _error = traced(torch, lambda torch: program(torch, 1))
    assert only(record, "zero-gradient").severity == "warning"
    record, _result, _error = traced(torch, lambda torch: program(torch, 3))
    found = only(record, "zero-gradient")
    assert found.severity == "note" and "In a later backward pass it was not zero." in found.text


def test_an_operation_that_consists_of_others_is_one(torch):
    def program(torch):
        functional = torch.nn.functional
        image, theta = torch.randn(1, 1, 4, 4, requires_grad=True), torch.randn(1, 2, 3, requires_grad=True)
        grid = functional.affine_grid(theta, (1, 1, 4, 4), align_corners=False)
        functional.grid_sample(image, grid, align_corners=False).sum().backward()

    record, _result, _error = traced(torch, program, "full")
    assert len(record.passes) == 1
    assert [op.function.removesuffix("_all") for op in record.ops if op.function not in ("randn", "linspace")][-1] == "sum"
    assert len(record.ops) <= 5
    names = [step.name for step in record.passes[0].steps if step.node.leaf is None]
    assert names == ["SumBackward0", "GridSampler2DBackward0", "AffineGridGeneratorBackward0"]
    assert record.order().agrees
    assert record.step().compare() == []


def test_lazy_and_parametrized_modules(torch):
    """Modules that change their class, in a call and between calls."""

    def program(torch):
        nn = torch.nn
        model = nn.Sequential(nn.LazyLinear(4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.LazyLinear(1))
        model.append(nn.Sequential())
        model[-1].register_parameter("never", nn.parameter.UninitializedParameter())
        optimizer = None
        for _ in range(2):
            loss = model(torch.ones(3, 2)).square().mean()
            optimizer = optimizer or torch.optim.Adam(model.parameters())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    record, _result, error = traced(torch, program, "full")
    assert error is None and kinds(record) == []
    names = {entry.name for entry in record.passes[-1].gradients}
    assert {"0.weight", "1.parametrizations.weight.original0", "2.bias"} <= names and None not in names
    assert {module.name for module in record.modules if module.type == "Linear"} >= {"0", "2"}
    for number in range(2):
        assert record.order(number).agrees
        assert record.step(number).compare() == []


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_skips_padding_while_recorded(torch):
    """In eval mode PyTorch has a fast way through an encoder, which gives zeros for padding."""

    def program(torch):
        torch.manual_seed(0)
        encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
        mask = torch.tensor([[False, False, True], [False, False, False]])
        with torch.no_grad():
            output = encoder(torch.ones(2, 3, 8), src_key_padding_mask=mask)
        x = torch.ones(2, requires_grad=True)
        (x * output.sum()).sum().backward()
        return output

    expected = program(torch)
    record, output, error = traced(torch, program)
    assert error is None
    assert output.tolist() == expected.tolist() and not output[0, 2].any()
    assert len(record.passes) == 1 and "mul" in [op.function for op in record.ops]
    assert record.order().agrees


PROFILED = """
import backlight as torch
with torch.inspect.record(), torch.profiler.profile() as profile:
    torch.tensor([1.0, 2.0], requires_grad=True).exp().sum().backward()
print(*[event.key for event in profile.key_averages() if event.key.startswith("aten::")])
"""


def test_a_profile_of_operations_that_are_built_while_recorded():
    done = subprocess.run([sys.executable, "-c", PROFILED], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("aten::tensor aten::exp aten::sum\n", "")
