"""The inspector's recorder for real PyTorch: what it sees of programs, and that it doesn't change them."""

import gc
import threading
import warnings
import weakref
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy, relu
from torch.utils.checkpoint import checkpoint

from backlight.inspect.adapters.torch import TorchRecorder
from backlight.inspect.record import Record


@contextmanager
def recording(policy="shapes", **options):
    """Records a block; afterwards nothing of the recorder is left."""
    recorder = TorchRecorder(policy, **options)
    recorder.start()
    try:
        yield recorder.record
    finally:
        recorder.stop()
        assert torch._C._len_torch_function_stack() == 0
        assert not recorder.thread.running
        assert not nn.modules.module._global_forward_hooks
        assert not nn.modules.module._global_forward_pre_hooks


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def names(record, number=0):
    return [step.name for step in record.passes[number].steps]


def functions(record):
    return [op.function for op in record.ops]


def text(site):
    site.read_source()
    return site.text


# What is recorded


def test_training_step():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
    with recording("full") as record:
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert functions(record) == ["linear", "relu", "linear", "cross_entropy"]
    assert [(m.name, m.type, m.depth, m.training) for m in record.modules] == [
        ("", "Sequential", 0, True),
        ("0", "Linear", 1, True),
        ("1", "ReLU", 1, True),
        ("2", "Linear", 1, True),
    ]
    assert [op.module.name if op.module else None for op in record.ops] == ["0", "1", "2", None]
    assert [text(op.site) for op in record.ops] == ["model(x)"] * 3 + ["cross_entropy(model(x), y)"]
    assert record.ops[3].outputs[0].label == "loss"
    assert record.writes[0].op is record.ops[1] and record.writes[0].after == record.writes[0].before + 1
    backward = record.passes[0]
    assert (
        backward.call == "backward" and text(backward.site) == "loss.backward()" and backward.nodes == len(backward.steps) == 11
    )
    assert names(record) == [
        "NllLossBackward0", "LogSoftmaxBackward0", "AddmmBackward0", "AccumulateGrad", "TBackward0", "AccumulateGrad",
        "ReluBackward0", "AddmmBackward0", "AccumulateGrad", "TBackward0", "AccumulateGrad",
    ]  # fmt: skip
    assert [step.variable for step in backward.steps if step.variable] == ["2.bias", "2.weight", "0.bias", "0.weight"]
    assert [step.index for step in backward.steps] == list(range(1, 12))
    assert backward.steps[1].arrived[0] is backward.steps[0].passed[0], "measured once"
    assert backward.steps[0].arrived[0].norm == 1 and backward.losses[0].norm == pytest.approx(loss.item())
    assert all(step.seconds is not None for step in backward.steps)
    assert [(w.tensor.name, w.how) for w in record.gradient_writes] == [
        ("2.bias", "created"), ("2.weight", "created"), ("0.bias", "created"), ("0.weight", "created"),
        ("0.weight", "cleared"), ("0.bias", "cleared"), ("2.weight", "cleared"), ("2.bias", "cleared"),
    ]  # fmt: skip
    assert {g.name: g.shape for g in backward.gradients} == {
        "0.weight": (4, 3),
        "0.bias": (4,),
        "2.weight": (2, 4),
        "2.bias": (2,),
    }
    step, zero_grad = record.optimizers
    assert (step.call, step.type, zero_grad.call, zero_grad.optimizer) == ("step", "SGD", "zero_grad", step.optimizer)
    assert [u.tensor.name for u in step.updates] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert all(u.after == u.before + 1 and u.gradient.norm > 0 for u in step.updates)
    node = backward.steps[2].node
    assert node.op is record.ops[2] and node.module.name == "2" and node.parameters == {"alpha": 1, "beta": 1}
    assert [(s.name, s.shape, s.tensor.name or s.tensor.op) for s in node.saved] == [
        ("mat1", (5, 4), record.ops[0]),
        ("mat2", (4, 2), "2.weight"),
    ]
    assert node.freed_by is backward.steps[2] and backward.steps[2].freed == 5 * 4 * 4 + 4 * 2 * 4
    assert node.saved[1].storage == record.tensor("2.weight").storage


@pytest.mark.parametrize("policy", ["shapes", "norms", "full"])
def test_round_trip(policy):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with recording(policy) as record:
        loss = model(torch.randn(5, 3)).pow(2).mean()
        (loss * float("inf")).backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    again = Record.from_jsonl(record.to_jsonl())
    assert list(again.lines()) == list(record.lines())


def test_names_of_functions():
    x = leaf(1.0, 2.0)
    with recording() as record:
        2 + x, 1 - x, 2 / x, x / 2, x**2, x @ x, x[0], -x, x > 0, ~(x > 0), abs(x), x[None].T
        y = x + 0
        y += 1
        y[0] = 3.0
        torch.add(x, 1), x.contiguous(), x.to(torch.float64), x.size(), len(x), repr(x), x.shape
        for _ in x:
            pass
    assert functions(record) == (
        "add rsub div div pow matmul getitem neg gt gt bitwise_not abs getitem T add add_ setitem add to unbind".split()
    )
    assert record.ops[0].arguments == [2] and record.ops[-2].arguments == ["float64"]
    assert [w.op.function for w in record.writes] == ["add_", "setitem"]


CUTS = {
    "detach": (lambda v: v.detach(), "detach"),
    "data": (lambda v: v.data, "data"),
    "tolist": (lambda v: torch.tensor(v.tolist()), "tolist"),
    "item": (lambda v: torch.tensor(v.sum().item()), "item"),
    "float": (lambda v: torch.tensor(float(v.sum())), "item"),
    "numpy": (lambda v: torch.from_numpy(v.detach().numpy()), "detach"),
    "argmax": (lambda v: v.argmax().float(), "integer"),
    "comparison": (lambda v: (v > 0).float(), "integer"),
    "no_grad": (lambda v: torch.no_grad()(lambda: v * 1)(), "no_grad"),
    "round": (lambda v: v.round(), None),
    "sign": (lambda v: v.sign(), None),
    "clamp": (lambda v: v.clamp(5, 6), None),
}


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar")
@pytest.mark.parametrize("name", CUTS)
def test_cuts(name):
    function, cut = CUTS[name]
    w = torch.randn(3, requires_grad=True)
    with recording() as record:
        y = function(w * 2)
        if cut is None:
            (y * 3).sum().backward()
        else:
            with pytest.raises(RuntimeError, match="does not require grad"):
                (y * 3).sum().backward()
            assert record.passes[0].error.startswith("RuntimeError: element 0")
    assert [op.cut for op in record.ops if op.cut] == ([] if cut is None else [cut])
    assert record.ops[0].outputs[0].op is record.ops[0] and record.ops[0].inputs[0].name == "w"


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class Silent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


def test_custom_function():
    def program():  # without asserts: where pytest writes `locals()` into a function, the recorder leaves its variables alone
        x, z = leaf(1.0, 2.0), leaf(3.0, 4.0)
        a = Cube.apply(x)
        b = Same.apply(z)
        c, d = (Cube.apply(t) for t in (a, b))
        (c + d).sum().backward()

    with recording("norms") as record:
        program()
    cubes = [node for node in record.nodes if node.name == "CubeBackward"]
    assert [text(node.site) for node in cubes] == ["Cube.apply(x)", "Cube.apply(t)", "Cube.apply(t)"]
    same = next(node for node in record.nodes if node.name == "SameBackward")
    assert text(same.site) == "Same.apply(z)" and same.op.function == "Same"
    assert cubes[0].op.inputs[0].name == "x" and cubes[0].op.outputs[0].label == "a"
    assert cubes[1].op.inputs == cubes[0].op.outputs and cubes[2].op.inputs == same.op.outputs
    assert [s.name for s in cubes[0].saved] == ["tensor 0"] and cubes[0].saved[0].tensor.name == "x"
    assert not [op for op in record.ops if op.cut], "the operations of a forward don't cut anything"
    in_backward = [op for op in record.ops if op.during is not None]
    assert [op.during.name for op in in_backward].count("CubeBackward") == 9 and len(in_backward) == 10


def test_custom_function_that_captures_a_parameter():
    w = leaf(2.0)

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * w

    with recording() as record:
        Scale.apply(torch.ones(1))
        with torch.no_grad():
            Scale.apply(torch.ones(1))
        Scale.apply(leaf(1.0))
    cuts = [op.cut for op in record.ops if op.function == "mul"]
    assert cuts == ["no_grad", "no_grad", None]  # the last one has a node, whose backward may deal with w
    assert [mode.enabled for mode in record.modes] == [False, False, True]
    assert text(record.modes[0].site) == "Scale.apply(torch.ones(1))"  # and in no_grad it was off already


def test_custom_function_without_operations():
    x = leaf(1.0)
    with recording() as record:
        y = x + 0
        y = Silent.apply(y)
        (y * 2).sum().backward()
    assert names(record) == ["SumBackward0", "MulBackward0", "SilentBackward", "AddBackward0", "AccumulateGrad"]
    node = next(node for node in record.nodes if node.name == "SilentBackward")
    assert node.op.function == "mul", "the first operation that used it"


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant):
    layer = nn.Linear(3, 3)
    x = torch.randn(2, 3, requires_grad=True)

    def program():
        y = checkpoint(lambda t: relu(layer(t)).exp(), x, use_reentrant=reentrant)
        y.sum().backward()
        result = x.grad, layer.weight.grad
        x.grad = layer.weight.grad = layer.bias.grad = None
        return result

    expected = program()
    with recording("full") as record:
        result = program()
    assert all(torch.equal(a, b) for a, b in zip(expected, result))
    again = [op for op in record.ops if op.during is not None]
    assert [op.function for op in again][-3:] == ["linear", "relu", "exp"][:3] if reentrant else again
    assert not record.errors
    if reentrant:
        assert len(record.passes) == 2 and record.passes[1].parent.name == "CheckpointFunctionBackward"
        assert names(record, 0) == ["SumBackward0", "CheckpointFunctionBackward", "AccumulateGrad"]
        assert text(record.passes[0].steps[1].site).startswith("checkpoint(")
    else:
        assert len(record.passes) == 1 and {op.during.name for op in again} == {"ExpBackward0"}


def test_second_derivative():
    def program():
        q = leaf(0.0)
        (first,) = torch.autograd.grad((q.abs() ** 1.5).sum(), q, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), q)
        return q, second

    with recording("norms") as record:
        q, second = program()
    assert second.isnan()
    one, two = record.passes
    assert (one.call, one.create_graph, one.retain_graph, two.create_graph) == ("grad", True, True, False)
    assert [t.name for t in one.inputs] == ["q"]
    made = [step.node for step in two.steps if step.node.made_by is not None]
    assert made and {node.made_by.name for node in made} <= {"PowBackward0", "AbsBackward0", "SumBackward0"}
    bad = next(
        s for s in two.steps if any(p and p.nonfinite for p in s.passed) and not any(a and a.nonfinite for a in s.arrived)
    )
    assert bad.node.made_by.name == "PowBackward0" and text(bad.node.made_by.site) == "q.abs() ** 1.5"
    with recording("shapes") as record:
        (first,) = torch.autograd.grad((q.abs() ** 1.5).sum(), q, create_graph=True)
        first.sum().backward()
    assert any(step.node.made_by is not None for step in record.passes[1].steps)


def test_in_place_error():
    a = leaf(1.0, 2.0)
    with recording() as record:
        b = torch.exp(a)
        c = b * 1
        b.mul_(5)
        with pytest.raises(RuntimeError, match="is at version 1; expected version 0"):
            c.sum().backward()
    assert "at version 1" in record.passes[0].error and record.errors[0].in_pass is record.passes[0]
    step = record.passes[0].steps[-1]
    assert step.name == "ExpBackward0" and step.seconds is None
    (saved,) = step.node.saved
    assert (saved.name, saved.version, saved.tensor.label) == ("result", 0, "b")
    (write,) = record.writes
    assert write.tensor is saved.tensor and (write.before, write.after) == (0, 1) and text(write.site) == "b.mul_(5)"


def test_second_backward():
    a = leaf(1.0, 2.0)
    with recording() as record:
        loss = a.exp().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    exp = next(node for node in record.nodes if node.name == "ExpBackward0")
    assert exp.freed_by.in_pass is record.passes[0]
    assert record.passes[1].error.startswith("RuntimeError: Trying to backward through the graph a second time")
    assert record.passes[0].bytes == 8 and record.passes[1].bytes == 0


def test_error_in_operation():
    with recording() as record, pytest.raises(RuntimeError, match="size of tensor"):
        torch.ones(2) + torch.ones(3)
    assert [(e.type, text(e.site)) for e in record.errors] == [("RuntimeError", "torch.ones(2) + torch.ones(3)")]


# Hooks


@pytest.mark.parametrize("hook_first", [True, False])
@pytest.mark.parametrize("policy", ["shapes", "norms"])
def test_tensor_hook_and_retain_grad(hook_first, policy):
    a = leaf(1.0)
    with recording(policy) as record:
        b = a * 3
        if hook_first:
            b.register_hook(lambda g: g * 10)
        b.retain_grad()
        if not hook_first:
            b.register_hook(lambda g: g * 10)
        (b * 2).sum().backward()
    assert (b.grad.item(), a.grad.item()) == (20, 60)
    hook, retain = record.hooks
    assert (hook.type, hook.changed, retain.type, retain.changed) == ("tensor", True, "retain_grad", False)
    assert hook.step is retain.step is record.passes[0].steps[2] and hook.tensor is retain.tensor is record.ops[0].outputs[0]
    assert text(hook.registered).startswith("b.register_hook") and hook.at < hook.step.at
    (multiplied,) = [op for op in record.ops if op.during is not None]
    assert multiplied.function == "mul" and multiplied.during is hook.step
    assert len(record.registrations) == 2
    if policy == "norms":
        assert (hook.before[0].norm, hook.after[0].norm, retain.after[0].norm, hook.step.arrived[0].norm) == (2, 20, 20, 20)


def test_every_hook_of_a_leaf():
    p = leaf(2.0)
    seen = []
    with recording("norms") as record:
        out = p * p
        node = out.grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: seen.append("post hook"))
        p.register_post_accumulate_grad_hook(lambda p: seen.append(("post accumulate", p.grad.item())))
        p.register_hook(lambda g: seen.append(("hook", g.item())))
        node.register_prehook(lambda g: seen.append("prehook"))
        p.register_hook(lambda g: seen.append(("hook 2", g.item())))
        del node
        out.sum().backward()
    assert seen == [("hook", 4), ("hook 2", 4), "prehook", ("post accumulate", 4), "post hook"]
    step = record.passes[0].steps[-1]
    events = [(type(e).__name__, getattr(e, "type", None)) for e in record.events if getattr(e, "step", None) is step]
    assert events == [
        ("Hook", "tensor"), ("Hook", "tensor"), ("Hook", "prehook"), ("GradientWrite", None), ("Hook", "post_accumulate"), ("Hook", "posthook"),
    ]  # fmt: skip
    assert [(h.type, h.order, [x.norm for x in h.before]) for h in record.hooks] == [
        ("tensor", 0, [4]), ("tensor", 1, [4]), ("prehook", 0, [4]), ("post_accumulate", 0, [4]), ("posthook", 0, []),
    ]  # fmt: skip
    assert all("<lambda>" in h.function and h.registered.line for h in record.hooks)
    assert not any(h.changed for h in record.hooks)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_hooks_of_modules(requires_grad):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    order = []
    for name, module in [("root", model), *model.named_children()]:
        module.register_full_backward_pre_hook(lambda *_, name=name: order.append(f"+{name}"))
        module.register_full_backward_hook(lambda *_, name=name: order.append(f"-{name}"))
    x = torch.randn(5, 3, requires_grad=requires_grad)
    with warnings.catch_warnings(), recording() as record:
        warnings.simplefilter("ignore")
        model(x).sum().backward()
    expected = "+root +2 -2 +1 -1 +0 -0 -root" if requires_grad else "+root -root +2 -2 +1 -1 +0 -0"
    assert order == expected.split()
    hooks = [h for h in record.hooks if h.type == "module_backward"]
    assert len(hooks) == 8 and all("<lambda>" in h.function for h in hooks)
    signs = "".join(
        "+" if "pre_hook" in text(h.registered) or h.registered.line == hooks[0].registered.line else "-" for h in hooks
    )
    assert signs == "".join(word[0] for word in expected.split())
    assert [m.name for m in record.modules] == ["", "0", "1", "2"] and [m.depth for m in record.modules] == [0, 1, 1, 1]


def test_hooks_that_change_a_node():
    x = leaf(1.0)
    with recording("norms") as record:
        y = x * 3
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        y.grad_fn.register_hook(lambda passed, arrived: (passed[0] * 5, None))
        y.sum().backward()
    assert x.grad.item() == 30
    before, after = record.hooks
    assert (before.type, before.changed, before.before[0].norm, before.after[0].norm) == ("prehook", True, 1, 2)
    assert (after.type, after.changed, after.before[0].norm, after.after[0].norm) == ("posthook", True, 6, 30)
    assert record.passes[0].steps[1].arrived[0].norm == 2 and record.passes[0].steps[2].arrived[0].norm == 30


def test_in_place_relu_in_every_module():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    x = torch.randn(4, 3)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with recording("full") as record:
        model(x).sum().backward()
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected))
    assert [m.type for m in record.modules] == ["Sequential", "Linear", "ReLU"]


# Modes, `.grad`, optimizers


def test_modes():
    x = torch.ones(2)
    with recording() as record:
        x.requires_grad = True
        with torch.no_grad():
            x * 2
        x.requires_grad_(False)
    assert [(m.mode, m.enabled, text(m.site)) for m in record.modes] == [
        ("requires_grad", True, "x.requires_grad"),
        ("grad", False, "with torch.no_grad(): x * 2"),
        ("grad", True, "with torch.no_grad(): x * 2"),
        ("requires_grad", False, "x.requires_grad_(False)"),
    ]
    assert record.ops[0].cut == "no_grad" and not record.ops[0].grad_enabled


def test_gradient_writes():
    model = nn.Linear(2, 1)
    x = torch.ones(1, 2)
    with recording("norms") as record:
        for _ in range(2):
            model(x).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        model.weight.grad.zero_()
        model.weight.grad = None
        model.zero_grad(set_to_none=True)
    hows = [(w.tensor.name, w.how) for w in record.gradient_writes]
    assert hows == [
        ("bias", "created"), ("weight", "created"), ("bias", "added to"), ("weight", "added to"),
        ("weight", "written"), ("bias", "written"), ("weight", "zeroed"), ("weight", "cleared"), ("bias", "cleared"),
    ]  # fmt: skip
    added = record.gradient_writes[3]
    assert (added.before.norm, added.value.norm) == (pytest.approx(2**0.5), pytest.approx(8**0.5))
    assert record.gradient_writes[6].value.norm == 0
    assert {op.via for op in record.ops if op.function.startswith("_foreach")} == {"clip_grad_norm_"}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_reading_the_gradient_of_a_result():
    x = leaf(1.0, 2.0)
    with recording() as record:
        y, kept = x * 2, x * 3
        kept.retain_grad()
        (y + kept).sum().backward()
        assert (x.grad is not None, y.grad, kept.grad is not None) == (True, None, True)
    (read,) = [op for op in record.ops if op.function == "grad"]
    assert (read.inputs, read.outputs, read.cut) == ([record.ops[0].outputs[0]], [], None)
    assert text(read.site) == "y.grad"


def test_operations_of_optimizers():
    p = nn.Parameter(torch.ones(2))
    with recording() as record:
        optimizer = torch.optim.LBFGS([p], max_iter=2)

        def closure():
            optimizer.zero_grad()
            loss = (p**2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
    assert set(functions(record)) == {"pow", "sum"} and len(record.passes) == 2 and record.optimizers[0].type == "LBFGS"

    class Plain(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.sub_(p.grad)
            raise_here()

    def raise_here():
        raise KeyError("here")

    with recording() as record:
        (p * 2).sum().backward()
        with pytest.raises(KeyError, match="here"):
            Plain([p]).step()
        p + 1
    assert functions(record) == ["mul", "sum", "add"]


def test_passes_and_threads():
    layer = nn.Linear(2, 2)
    with recording() as record:
        thread = threading.Thread(target=lambda: layer(torch.ones(1, 2)).sum().backward())
        thread.start()
        thread.join()
        (layer.weight * 2).sum().backward()
    assert [p.call for p in record.passes] == ["backward", "backward"] and len({p.thread for p in record.passes}) == 2
    assert names(record) == ["AddmmBackward0", "AccumulateGrad", "TBackward0", "AccumulateGrad"], "sum ran outside of a module"
    assert record.passes[0].seconds is not None and record.passes[0].site.function == "<lambda>"
    with recording(passes=1) as record:
        for _ in range(3):
            (layer.weight * 2).sum().backward()
    assert len(record.passes) == 1 and len(record.ops) == 4, "what follows the pass is recorded until the next one begins"


def test_inside_other_modes():
    class Counting(torch.overrides.TorchFunctionMode):
        def __init__(self):
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    def program():
        x = leaf(1.0, 2.0)
        (x * 2).sum().backward()
        return x.grad

    with Counting() as plain:
        program()
    with Counting() as outer:
        recorder = TorchRecorder("norms")
        recorder.start()
        with Counting() as inner:
            program()
            recorder.stop()
    assert plain.seen == outer.seen == inner.seen
    assert functions(recorder.record) == ["mul", "sum"]


@pytest.mark.parametrize("policy", ["shapes", "norms"])
def test_what_is_not_observable_is_said(policy):
    with recording(policy) as record:
        pass
    said = " ".join(record.not_observable)
    for limit in ("hooks of nodes were registered", "zero_grad when all", "optimizer's step that raised", "ready queue"):
        assert limit in said
    assert ("gradients that a step passed on" in said) == (policy == "shapes")


def test_one_recording_at_a_time():
    with recording(), pytest.raises(RuntimeError, match="another recording"):
        TorchRecorder("shapes").start()
    with pytest.raises(ValueError, match="policy must be one of"):
        TorchRecorder("everything")


@pytest.mark.parametrize("size", [3, 1000, 200_000])
@pytest.mark.parametrize("value", [1e-25, 1.0, 1e30, 0.0])
def test_norms_of_tiny_and_huge_gradients(value, size):
    w = torch.zeros(size, requires_grad=True)
    with recording("norms") as record:
        (w * value).sum().backward()
    found = record.passes[0].gradients[0].value
    assert found.norm == pytest.approx(value * size**0.5, rel=1e-5, abs=0)
    assert found.min == found.max == pytest.approx(value, rel=1e-6, abs=0)
    assert (found.zeros, found.nonfinite) == (size if value == 0 else 0, 0)


def test_leaf_that_is_the_loss():
    x = leaf(2.0)
    with recording("norms") as record:
        loss = (x > 0).float().sum()
        loss.requires_grad = True
        loss.backward()
        torch.autograd.backward([x.exp().sum()], inputs=[x])
        torch.autograd.grad([x * 2, x * 3], [x], grad_outputs=[torch.ones(1)] * 2)
        with pytest.raises(TypeError, match="unexpected keyword"):
            loss.backward(nothing=1)
    assert [(p.call, len(p.steps), p.nodes) for p in record.passes] == [("backward", 1, 1), ("backward", 3, 3), ("grad", 2, 3)]
    assert record.gradient_writes[0].tensor.label == "loss" and record.passes[0].steps[0].arrived[0].norm == 1
    assert loss.grad == 1


@pytest.mark.filterwarnings("ignore:.*nested tensors", "ignore:.*NestedTensor")
@pytest.mark.parametrize("policy", ["shapes", "norms", "full"])
def test_unusual_tensors(policy):
    with recording(policy) as record:
        a, b = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
        torch.nested.to_padded_tensor(torch.nested.as_nested_tensor([a, b]) * 2, 0.0).sum().backward()
        with FakeTensorMode():
            (torch.randn(3, requires_grad=True) * 2).exp().sum().backward()
        (torch.randn(3, device="meta", requires_grad=True) * 2).exp().sum().backward()
        z = torch.randn(3, dtype=torch.complex64, requires_grad=True)
        (z * z.conj()).real.sum().backward()
        embedding = nn.Embedding(5, 3, sparse=True)
        embedding(torch.tensor([1, 2])).sum().backward()
        torch.optim.SGD(embedding.parameters(), lr=0.1).step()
        with torch.inference_mode():
            torch.ones(3).mul(2).add_(1)
        x = torch.randn(3, requires_grad=True)
        torch.autograd.grad(x.exp(), x, grad_outputs=torch.eye(3), is_grads_batched=True)
        with torch.autograd.graph.save_on_cpu():
            (x * x).sum().backward()
    assert (a.grad == 2).all() and len(record.passes) == 7 and not record.errors
    assert list(Record.from_jsonl(record.to_jsonl()).lines()) == list(record.lines())


# Recording doesn't change the program


def mlp():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(model(torch.randn(6, 4)), torch.tensor([0, 1, 2, 0, 1, 2])).backward()
        optimizer.step()
    return list(model.parameters())


def convolution():
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 2))
    model(torch.randn(3, 2, 8, 8)).logsumexp(1).mean().backward()
    return [p.grad for p in model.parameters()]


def recurrent():
    model, h = nn.GRU(3, 5, batch_first=True), None
    out, h = model(torch.randn(2, 4, 3), h)
    (out.sum() + h.pow(2).sum()).backward()
    return [p.grad for p in model.parameters()]


def attention():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model(torch.randn(2, 5, 8)).square().mean().backward()
    return [p.grad for p in model.parameters()]


def checkpointed():
    layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
    x = torch.randn(2, 3, requires_grad=True)
    y = x
    for i, layer in enumerate(layers):
        y = checkpoint(lambda t, layer=layer: layer(t).tanh(), y, use_reentrant=i == 1)
    y.sum().backward()
    return [x.grad, *(p.grad for p in layers.parameters())]


def custom():
    x = torch.randn(4, requires_grad=True)
    (Cube.apply(x).sin() * Same.apply(x)).sum().backward()
    return [x.grad]


def double(parameter):
    parameter.grad.mul_(2)


def hooks():
    x = torch.randn(4, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda g: g.clamp(-1, 1))
    y.retain_grad()
    x.register_post_accumulate_grad_hook(double)
    z = y.sin()
    z.grad_fn.register_prehook(lambda g: (g[0] * 3,))
    z.sum().backward()
    return [x.grad, y.grad]


def double_backward():
    x = torch.randn(4, requires_grad=True)
    w = torch.randn(4, 4, requires_grad=True)
    y = (x @ w).tanh().sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (g.square().sum() + y).backward()
    result = [x.grad.clone(), w.grad.clone()]
    hessian = torch.autograd.functional.hessian(lambda t: (t @ w.detach()).tanh().sum(), x.detach())
    return [*result, hessian]


def views_and_writes():
    x = torch.randn(4, 4, requires_grad=True)
    y = x * 1
    y[1:3, :2].mul_(3)
    a, b = y[:, 0], y[:, 1]
    y.t()[0] = b.detach()
    z = torch.where(y > 0, y, y.exp() - 1)
    torch.stack([z.sum(0), z.cumsum(1)[:, -1], a.clone()]).norm().backward()
    return [x.grad]


def functional():
    x = torch.randn(3, 3)
    gradient = torch.func.vmap(torch.func.grad(lambda t: t.sin().prod()))(x)
    x.requires_grad_()
    s = torch.sparse_coo_tensor([[0, 1], [1, 2]], [1.0, 2.0], (3, 3), check_invariants=True)
    (torch.sparse.mm(s, x).sum() + x.to(torch.bfloat16).float().sum() + torch.complex(x, x).abs().sum()).backward()
    return [gradient, x.grad]


def accumulated():
    model = nn.Linear(3, 2)
    for _ in range(3):
        (model(torch.randn(4, 3)) ** 2).mean().backward(retain_graph=True)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    return list(model.parameters())


PROGRAMS = [
    mlp, convolution, recurrent, attention, checkpointed, custom, hooks, double_backward, views_and_writes, functional, accumulated,
]  # fmt: skip


@pytest.mark.parametrize("policy", ["shapes", "norms", "full"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_same_results(program, policy):
    torch.manual_seed(0)
    expected = program()
    torch.manual_seed(0)
    with recording(policy) as record:
        result = program()
    assert len(result) == len(expected) and all(torch.equal(a, b) for a, b in zip(result, expected))
    assert record.ops and record.passes and all(p.error is None and p.steps for p in record.passes)
    again = Record.from_jsonl(record.to_jsonl())
    assert list(again.lines()) == list(record.lines())


class Token:
    """Dies with the node that it is an attribute of."""


class Keeps(torch.autograd.Function):
    tokens: list = []

    @staticmethod
    def forward(ctx, x):
        ctx.token = Token()
        Keeps.tokens.append(weakref.ref(ctx.token))
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("policy", ["shapes", "norms", "full"])
@pytest.mark.parametrize("backward", [True, False])
def test_graph_is_freed(policy, backward):
    Keeps.tokens.clear()
    gc.collect()
    gc.disable()
    try:
        with recording(policy):
            x = torch.randn(3, requires_grad=True)
            y = x.exp()
            y.register_hook(lambda g: g * 2)
            y.grad_fn.register_hook(lambda *_: None)
            z = Keeps.apply(y).sum()
            assert z.grad_fn.metadata
            alive = [weakref.ref(t) for t in (x, y, z)] + Keeps.tokens
            if backward:
                z.backward(retain_graph=True)
            del x, y, z
            assert [reference() for reference in alive] == [None] * 4
    finally:
        gc.enable()


def test_hooks_that_are_left_do_nothing():
    x = leaf(1.0)
    with recording("norms") as record:
        y = (x * 2).exp()
        y.register_hook(lambda g: g * 3)
    count = len(record.events)
    y.sum().backward()
    assert x.grad.item() == pytest.approx(6 * 2.718281828**2) and len(record.events) == count
    with recording("norms") as record:
        (x * 2).exp().sum().backward()
    assert names(record) == ["SumBackward0", "ExpBackward0", "MulBackward0", "AccumulateGrad"]


@pytest.mark.filterwarnings("ignore")
def test_compiled_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled, x = torch.compile(model, backend="aot_eager"), torch.randn(5, 3)

    def program():
        compiled(x).sum().backward()
        result = [p.grad for p in model.parameters()]
        model.zero_grad()
        return result

    expected = program()
    with recording("norms") as record:
        result = program()
    assert all(torch.equal(a, b) for a, b in zip(result, expected))
    assert names(record) == ["SumBackward0", "CompiledFunctionBackward"] + ["AccumulateGrad"] * 4
    assert record.passes[0].steps[1].site.function == "program"
    assert any("torch.compile" in line for line in record.not_observable)
