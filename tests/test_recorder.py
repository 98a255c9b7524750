"""The record of Backlight: what is in it, that it can be read back, and that recording disturbs nothing."""

import gc
import json
import threading
import weakref
from dataclasses import fields

import numpy as np
import pytest

import backlight as torch
from backlight import inspect, nn
from backlight.inspect import Record, schema
from backlight.utils.checkpoint import checkpoint


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


# Ten programs: each returns tensors whose gradients are compared, and results.


def mlp():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(5, 4)), torch.tensor([0, 1, 2, 0, 1])).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return list(net.parameters())


def convolution():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
    net(torch.randn(2, 1, 8, 8)).pow(2).mean().backward()
    return [*net.parameters(), *net.buffers()]


def attention():
    q, w = leaf(2, 4, 8), leaf(8, 8)
    k = q @ w
    ((q @ k.transpose(1, 2) / 8**0.5).softmax(-1) @ k).square().sum().backward()
    return [q, w]


def hooks():
    x = leaf(3)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    x.register_post_accumulate_grad_hook(lambda p: None if p.grad.mul_(2) is p else None)
    y.grad_fn.register_prehook(lambda grads: (grads[0] + 1,))
    y.grad_fn.register_hook(lambda inputs, _outputs: (inputs[0] * 3, *inputs[1:]))
    y.sin().sum().backward()
    return [x, y]


def writes_and_views():
    x = leaf(4, 3)
    y = x.clone()
    y[1:].mul_(5)
    y[:, 0] = y[:, 1].exp()
    y.add_(1).tanh_()
    a, b = y.chunk(2)
    (a * b).sum().backward()
    return [x, y.detach()]


def custom_functions():
    x = leaf(3)
    (Cube.apply(x) * Cube.apply(x * 2)).sum().backward()
    return [x]


def checkpoints():
    x = leaf(3)
    y = checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False)
    z = checkpoint(lambda t: t.cos() * 2, y, use_reentrant=True)
    z.sum().backward()
    return [x]


def double_backward():
    x = leaf(3)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (g**2).sum().backward()
    return [x, g.detach()]


def accumulated():
    lin = nn.Linear(3, 2)
    for rows in (1, 4):
        (lin(torch.randn(rows, 3)).sum() / 2).backward()
    with torch.no_grad():
        lin.weight.add_(lin.weight.grad, alpha=-0.1)
    return list(lin.parameters())


def nested_passes():
    x, y = leaf(2), leaf(2)

    def hook(_g):
        with torch.enable_grad():
            (y * y).sum().backward()

    z = x * 2
    z.register_hook(hook)
    z.sum().backward()
    return [x, y]


def threads():
    x = [leaf(3) for _ in range(3)]
    workers = [threading.Thread(target=lambda t=t: (t.exp() * 2).sum().backward()) for t in x]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return x


PROGRAMS = [
    mlp, convolution, attention, hooks, writes_and_views, custom_functions, checkpoints, double_backward, accumulated, nested_passes, threads,
]  # fmt: skip


def results(program):
    torch.manual_seed(0)
    tensors = program()
    return [t.detach().numpy().copy() for t in tensors] + [
        t.grad.numpy().copy() for t in tensors if t.is_leaf and t.grad is not None
    ]


@pytest.mark.parametrize("policy", ["shapes", "norms", "full"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_recording_changes_nothing(program, policy):
    plain = results(program)
    with inspect.record(policy) as record:
        recorded = results(program)
    assert len(plain) == len(recorded)
    assert all(np.array_equal(a, b) for a, b in zip(plain, recorded))
    assert record.steps
    assert all(record.order(i).agrees for i, one in enumerate(record.passes) if not one.inputs)
    again = Record.from_jsonl(record.to_jsonl())
    assert list(again.lines()) == list(record.lines())
    assert [str(f) for f in again.findings] == [str(f) for f in record.findings]


@pytest.mark.parametrize("policy", ["shapes", "norms", "full"])
@pytest.mark.parametrize("backward", [True, False])
def test_graphs_are_freed_without_the_collector(policy, backward):
    gc.collect()
    gc.disable()
    try:
        with inspect.record(policy):
            x = leaf(3)
            hidden = x.exp()
            loss = (hidden * 2).sum()
            alive = [weakref.ref(loss.grad_fn), weakref.ref(hidden.grad_fn), weakref.ref(hidden), weakref.ref(loss)]
            if backward:
                loss.backward()
            del hidden, loss
            assert [reference() for reference in alive] == [None] * 4
    finally:
        gc.enable()


def test_every_table_and_reference():
    with inspect.record("full") as record:
        mlp()
        hooks()
    for name, kind in schema.TABLES.items():
        table = getattr(record, name)
        assert [line.number for line in table] == list(range(len(table))), name
        assert all(type(line) is kind for line in table)
    assert [event.at for event in record.events] == list(range(len(record.events)))
    assert {type(event) for event in record.events} >= {
        schema.Module, schema.Op, schema.Write, schema.Mode, schema.Pass, schema.Step, schema.Hook, schema.Registration,
        schema.GradientWrite, schema.Optimizer,
    }  # fmt: skip
    first = record.passes[0]
    assert (first.nodes, len(first.steps)) == (11, 11)
    assert first.bytes == sum({saved.storage: saved.bytes for step in first.steps for saved in step.node.saved}.values())
    addmm = next(step for step in first.steps if step.name == "AddmmBackward0")
    assert addmm.node.module.label == "2"
    assert addmm.node.module.parent.type == "Sequential"
    assert {saved.name for saved in addmm.node.saved} == {"mat1", "mat2"}
    assert addmm.node.saved[1].tensor.base.name == "net.2.weight" or addmm.node.saved[1].tensor.base.name == "2.weight"
    assert addmm.node.freed_by is addmm
    relu = next(op for op in record.ops if op.function == "relu_")
    assert [write.tensor for write in record.writes if write.op is relu] == [relu.outputs[0]]
    step = next(line for line in record.optimizers if line.call == "step")
    assert [update.after - update.before for update in step.updates] == [1] * 4
    assert step.updates[0].options["momentum"] == 0.9


def test_second_level_nodes_know_who_made_them():
    with inspect.record("shapes") as record:
        double_backward()
    made = [node for node in record.nodes if node.made_by is not None]
    assert made
    assert all(node.made_by.in_pass is record.passes[0] for node in made)
    assert all(op.during is not None for op in {node.op for node in made})


def test_modes_and_gradient_writes():
    with inspect.record("norms") as record:
        x = leaf(2)
        x.sum().backward()
        x.sum().backward()
        x.grad.zero_()
        x.grad = None
        with torch.no_grad():
            x * 2
        with torch.inference_mode():
            pass
        with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
            pass
    switched = [(mode.mode, mode.enabled) for mode in record.modes if mode.mode != "requires_grad"]
    assert switched == [
        ("grad", False), ("grad", True), ("inference", True), ("inference", False), ("anomaly", True), ("anomaly", False),
    ]  # fmt: skip
    assert [write.how for write in record.gradient_writes] == ["created", "added to", "zeroed", "cleared"]
    assert [write.value and write.value.norm for write in record.gradient_writes] == [
        pytest.approx(2**0.5), pytest.approx(8**0.5), 0, None,
    ]  # fmt: skip
    assert [mode.enabled for mode in record.modes if mode.mode == "grad"] == [False, True]
    assert record.ops[-1].cut == "no_grad"


def test_numbers_are_arguments():
    with inspect.record() as record:
        x = leaf(3)
        (2 * x + 1).clamp(-1, 0.5).sum(0, keepdim=True)
    found = {op.function: op.arguments for op in record.ops}
    assert found["mul"] == [2]
    assert found["add"][0] == 1
    assert found["clamp"] == [-1, 0.5]


def test_sites_are_expressions():
    def program():
        x = leaf(3)
        y = x.exp() + x.sin()
        z, w = y * 2, y * 3
        z.mul_(w)

    with inspect.record() as record:
        program()
    for site in record.sites:
        site.read_source()
    found = {op.function: (op.site.text, op.site.variable) for op in record.ops}
    assert found["exp"] == ("x.exp()", None)
    assert found["add"] == ("x.exp() + x.sin()", "y")
    assert found["mul_"] == ("z.mul_(w)", "z")
    assert [op.site.variable for op in record.ops if op.function == "mul"] == ["z", "w"]


# Files


def small():
    with inspect.record("full") as record:
        x = leaf(3)
        (x / 0).sum().backward()
    return record


def test_files_are_json_lines(tmp_path):
    record = small()
    path = tmp_path / "record.jsonl"
    record.to_jsonl(path)
    lines = [
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        for line in path.read_text().splitlines()
    ]
    assert lines[0]["kind"] == "Record"
    assert lines[0]["schema"] == schema.VERSION
    again = Record.read(path)
    assert list(again.lines()) == list(record.lines())
    assert again.steps[-1].arrived[0].values.dtype == np.float32
    assert [p.name for p in tmp_path.iterdir()] == ["record.jsonl"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: lines[1:], "the first line must be a record's header"),
        (lambda lines: [], "header"),
        (lambda lines: [*lines, "{"], "line .*: not JSON"),
        (lambda lines: [*lines, "[1]"], "expected an object with a 'kind'"),
        (lambda lines: [*lines, '{"kind": "Nothing"}'], "there is no kind 'Nothing'"),
        (lambda lines: [lines[0].replace('"schema": 1', '"schema": 99'), *lines[1:]], "a record of schema 99"),
        (lambda lines: [*lines[:2], lines[2].replace('"number": 1', '"number": 7'), *lines[3:]], "line 3: expected .* number"),
        (lambda lines: [line.replace('"in_pass": 0', '"in_pass": 5') for line in lines], "there is no Pass with number 5"),
        (lambda lines: [line.replace('"in_pass": 0', '"owner": 0') for line in lines], "Step has no field 'owner'"),
    ],
)
def test_files_that_do_not_fit(change, problem):
    lines = small().to_jsonl().splitlines()
    with pytest.raises(ValueError, match=problem):
        Record.from_jsonl("\n".join(change(lines)))


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(OSError):
        small().to_jsonl(tmp_path / "missing" / "record.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_the_schema_is_documented():
    from pathlib import Path

    text = (Path(__file__).parent.parent / "docs" / "record.md").read_text(encoding="utf-8")
    kinds = [*schema.TABLES.values(), schema.Statistics, schema.Edge, schema.Saved, schema.Update]
    for kind in kinds:
        assert f"**{kind.__name__}**" in text, kind.__name__
        for field in fields(kind):
            assert f"`{field.name}`" in text, f"{kind.__name__}.{field.name}"


def test_wrong_arguments():
    with (
        pytest.raises(ValueError, match="policy must be one of 'shapes', 'norms', 'full', got 'everything'"),
        inspect.record("everything"),
    ):
        pass
    with pytest.raises(ValueError, match="engine must be 'backlight' or 'torch', got 'jax'"), inspect.record(engine="jax"):
        pass
    with inspect.record() as record:
        pass
    with pytest.raises(IndexError, match="there is no pass 0"):
        record.order()
