"""Recording backward passes, and what a record looks like as text.

Programs whose variables are to be named are functions of their own: pytest adds calls of locals() to those with asserts.
"""

import gc
import linecache
import re
import threading
import weakref

import numpy as np
import pytest

import backlight as torch
from backlight import engine, inspect, nn


def line_of(site) -> str:
    return linecache.getline(site.file, site.line).strip()


def small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def backward_of(net):
    loss = net(torch.ones(5, 4)).sum()
    loss.backward()


def test_steps_of_a_network():
    net = small_net()
    with inspect.record() as record:
        backward_of(net)
    (one,) = record.passes
    assert one.call == "backward"
    assert line_of(one.site) == "loss.backward()"
    assert one.error is None
    names = [step.name for step in one.steps]
    linear = ["AddmmBackward0", "AccumulateGrad", "TBackward0", "AccumulateGrad"]
    assert names == ["SumBackward0", *linear[:2], *linear[2:], "ReluBackward0", *linear]
    assert [step.index for step in one.steps] == list(range(1, len(names) + 1))
    assert [step.variable for step in one.steps if step.variable] == ["2.bias", "2.weight", "0.bias", "0.weight"]
    for step in one.steps:
        assert step.seconds > 0
        assert (step.site is None) == (step.name == "AccumulateGrad")
        if step.site:
            assert line_of(step.site) == "loss = net(torch.ones(5, 4)).sum()"
            assert step.site.function == "backward_of"


def test_gradients_along_the_edges():
    def program():
        w = torch.tensor([3.0, 4.0], requires_grad=True)
        (w * 2).sum().backward()

    with inspect.record("norms") as record:
        program()
    total, times, leaf = record.passes[0].steps
    assert [(g.shape, g.norm, g.nonfinite) for g in total.arrived] == [((), 1.0, 0)]
    assert total.passed[0].norm == pytest.approx(2**0.5)
    assert total.node.edges[0].node is times.node
    assert [g and g.norm for g in times.passed] == [pytest.approx(8**0.5), None]  # 2 is a number
    assert times.node.edges[0].node is leaf.node
    assert leaf.arrived[0] is times.passed[0]  # measured once
    assert leaf.passed == []
    assert leaf.variable == "w"


def test_several_outputs():
    x = torch.arange(4.0, requires_grad=True)
    with inspect.record() as record:
        first, second = x.chunk(2)
        (first * 3).sum().backward()
        second.detach()
    split = record.passes[0].steps[2]
    assert split.name == "SplitBackward0"
    assert [g and g.shape for g in split.arrived] == [(2,), None]
    edge = record.passes[0].steps[1].node.edges[0]
    assert (edge.node, edge.output) == (split.node, 0)


def test_function_and_write_to_a_view_have_sites():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x * 2

        @staticmethod
        def backward(_ctx, g):
            return g * 2

    x = torch.ones(3, requires_grad=True)
    with inspect.record() as record:
        y = Double.apply(x)
        z = y.clone()
        z[1:].mul_(5)
        z.sum().backward()
    lines = {step.name: line_of(step.site) for step in record.passes[0].steps if step.site}
    assert lines == {
        "SumBackward0": "z.sum().backward()",
        "CopySlices": "z[1:].mul_(5)",
        "CloneBackward0": "z = y.clone()",
        "DoubleBackward": "y = Double.apply(x)",
    }


def test_parameter_table():
    def program():
        net = small_net()
        net[0].weight.requires_grad_(False)
        scale = torch.zeros(2, requires_grad=True)
        (net(torch.ones(5, 4)) * scale).sum().backward()
        return scale

    unrelated = nn.Linear(1, 1)
    with inspect.record("norms") as record:
        scale = program()
    rows = {row.name: row for row in record.passes[0].gradients}
    assert list(rows) == ["0.weight", "0.bias", "2.weight", "2.bias", "scale"]
    assert rows["0.weight"].requires_grad is False
    assert rows["0.weight"].value is None
    assert rows["2.bias"].value.zeros == rows["2.bias"].value.size == 2
    grad = scale.grad.numpy()
    assert rows["scale"].value.norm == pytest.approx(float(np.linalg.norm(grad)))
    assert (rows["scale"].value.min, rows["scale"].value.max) == (grad.min(), grad.max())
    assert rows["scale"].value.nonfinite == 0
    assert unrelated.weight.grad is None


def test_two_networks_are_told_apart():
    def program():
        generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
        critic(generator(torch.ones(1, 2))).sum().backward()

    with inspect.record() as record:
        program()
    names = [row.name for row in record.passes[0].gradients]
    assert sorted(names) == ["critic.bias", "critic.weight", "generator.bias", "generator.weight"]


def test_names_of_plain_tensors():
    class Model:
        def __init__(self):
            self.scale = torch.ones(1, requires_grad=True)

        def train(self):
            weights = [torch.ones(1, requires_grad=True) for _ in range(2)]
            table = {"a": torch.ones(1, requires_grad=True)}
            total = self.scale * weights[1] * table["a"] * torch.ones(1, requires_grad=True)
            total.backward()

    with inspect.record() as record:
        Model().train()
    names = [step.variable for step in record.passes[0].steps if step.name == "AccumulateGrad"]
    assert sorted(names, key=str) == [None, "self.scale", "table['a']", "weights[1]"]


def test_nonfinite_gradients_are_found():
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    with inspect.record("norms") as record:
        (x.sqrt() * 2).sum().backward()
    (row,) = record.passes[0].gradients
    assert (row.value.nonfinite, row.value.min, row.value.max) == (1, 0.5, 0.5)
    assert re.search(r"^step 3 made inf or nan: SqrtBackward0", record.to_text(), re.M)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.complex64])
def test_other_types(dtype):
    x = torch.ones(3, dtype=dtype, requires_grad=True)
    with inspect.record("norms") as record:
        (x * x).sum().backward(torch.ones((), dtype=dtype))
    assert record.passes[0].gradients[0].value.norm == pytest.approx(12**0.5)


def test_recording_changes_nothing():
    def train():
        net = small_net()
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            (net(torch.randn(5, 4)) ** 2).mean().backward()
            optimizer.step()
        return [p.detach().numpy().copy() for p in net.parameters()] + [p.grad.numpy() for p in net.parameters()]

    plain = train()
    with inspect.record(passes=2):
        recorded = train()
    for a, b in zip(plain, recorded, strict=True):
        assert np.array_equal(a, b)


def test_no_graph_is_kept_and_the_slot_is_emptied():
    x = torch.ones(3, requires_grad=True)
    before = engine.state.unusual
    gc.disable()
    try:
        with inspect.record(passes=1) as record:
            hidden = x * 2
            loss = hidden.sum()
            nodes = [weakref.ref(loss.grad_fn), weakref.ref(hidden.grad_fn), weakref.ref(hidden)]
            loss.backward()
            del hidden, loss
            assert [node() for node in nodes] == [None] * 3
            x.exp().sum().backward()
            assert engine.state.recorder is None  # one pass was asked for, and another began
            assert engine.state.unusual == before
    finally:
        gc.enable()
    assert len(record.passes) == 1


def test_locals_can_still_be_asked_for():
    x = torch.ones(3, requires_grad=True)
    known = locals()
    with inspect.record() as record:
        later = x.sum()
        later.backward()
    assert known["x"] is x
    assert "later" not in known
    assert record.passes[0].steps[-1].variable is None  # a function that calls locals() is left alone


def test_passes_are_counted_and_end():
    x = torch.ones(3, requires_grad=True)
    ended = []
    with inspect.record(passes=2, on_pass=ended.append) as record:
        for _ in range(4):
            x.sum().backward()
        assert engine.state.recorder is None
    assert ended == record.passes
    assert len(ended) == 2
    with inspect.record(passes=5) as record:
        x.sum().backward()
    assert len(record.passes) == 1
    assert engine.state.recorder is None


def test_autograd_grad():
    x = torch.ones(3, requires_grad=True)
    with inspect.record() as record:
        torch.autograd.grad((x * 2).sum(), x)
    (one,) = record.passes
    assert one.call == "grad"
    assert one.gradients == []
    assert "none: autograd.grad returns them" in record.to_text()


def test_backward_inside_a_hook_is_a_pass_of_its_own():
    def hook(_grad):
        with torch.enable_grad():
            (y * y).backward()

    x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    z = x * 2
    with inspect.record(passes=2) as record:
        z.register_hook(hook)
        (z * 3).backward()
    outer, inner = record.passes
    assert [step.name for step in outer.steps] == ["MulBackward0", "MulBackward0", "AccumulateGrad"]
    assert [step.name for step in inner.steps] == ["MulBackward0", "AccumulateGrad"]
    assert line_of(inner.site) == "(y * y).backward()"
    assert y.grad.item() == 2


def test_double_backward():
    x = torch.tensor(2.0, requires_grad=True)
    with inspect.record(passes=2) as record:
        (first,) = torch.autograd.grad(x**3, x, create_graph=True)
        first.backward()
    assert x.grad.item() == 12
    first_pass, second_pass = record.passes
    assert "x**3" in line_of(first_pass.steps[0].site)
    assert second_pass.steps[-1].name == "AccumulateGrad"


def test_passes_in_several_threads():
    def work():
        x = torch.ones(2, requires_grad=True)
        (x * 2).sum().backward()

    with inspect.record(passes=4) as record:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(one.steps) for one in record.passes] == [3] * 4


def test_a_pass_that_fails():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x.clone()

        @staticmethod
        def backward(_ctx, _g):
            raise ValueError("oh no\nreally")

    x = torch.ones(2, requires_grad=True)
    with inspect.record(passes=2) as record:
        with pytest.raises(ValueError):
            Broken.apply(x).sum().backward()
        try:
            raise KeyError
        except KeyError:
            x.sum().backward()
    failed, fine = record.passes
    assert failed.error == "ValueError: oh no\nreally"
    assert failed.steps[-1].seconds is None
    assert "ended in step 2 by ValueError: oh no" in record.to_text()
    assert fine.error is None


def test_one_recording_at_a_time():
    with inspect.record(), pytest.raises(RuntimeError, match="another recording"), inspect.record():
        pass
    assert engine.state.recorder is None
    with pytest.raises(ValueError, match="at least 1"), inspect.record(passes=0):
        pass


# As text


@pytest.fixture(scope="module")
def record():
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    a_rather_long_name_for_a_tensor = torch.ones(1, requires_grad=True)
    with inspect.record("norms", passes=2) as result:
        for _ in range(2):
            (net(torch.ones(5, 4)) * a_rather_long_name_for_a_tensor).sum().backward()
    return result


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 200])
def test_text_fits(record, width):
    lines = record.to_text(width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in record.to_text(width)


def test_text_at_40_columns(record):
    text = record.to_text(40)
    assert re.search(r"^ 4 AddmmBackward0 +test_trace\.py:\d+$", text, re.M)
    assert re.search(r"^ 5 AccumulateGrad +1\.bias$", text, re.M)
    assert "(too narrow for: grad in, norm, grad" in text
    assert "…" in text


def test_text_when_all_fits(record):
    text = record.to_text(200)
    assert "too narrow" not in text
    assert re.search("# +node +line or leaf +grad in +norm +grad out +norm +to +time", text)
    assert re.search(r"4  AddmmBackward0  +test_trace.py:\d+  +5x2  +\S+  +2  +\S+  +5  +\S+ [µm]s$", text, re.M)
    assert re.search(r"^0\.weight +3x4 +True +\S+ +\S+ +\S+ +\S+ +0$", text, re.M)
    assert text.index("Backward pass 1 of 2") < text.index("Call tree") < text.index("Backward pass 2 of 2")


def test_tree_is_shallow_and_complete():
    x = torch.ones(1, requires_grad=True)
    y = x
    for _ in range(50):
        y = y + y * 0.5  # a chain with a side branch at every link
    with inspect.record() as record:
        y.backward()
    text = record.to_text(80)
    tree = text[text.index("Call tree") : text.index("Gradients after")]
    assert [int(n) for n in sorted(re.findall(r"── (\d+) ", tree), key=int)] == list(range(1, 101))[
        : len(record.passes[0].steps)
    ]
    assert max(line.find("──") for line in tree.splitlines()) < 20
    assert "… and 1 more step" in text


def test_long_passes_are_cut(record):
    from backlight.inspect.render import terminal

    text = terminal.to_text(record, 80, steps=3)
    assert text.count("… and 8 more steps") == 2
    assert "TBackward0" not in text


def test_empty_record():
    with inspect.record() as record:
        pass
    assert record.to_text(40).startswith("No backward pass ran")
    assert len(record.to_text(40).splitlines()) == 1
