"""What users really run into, on both engines: the record must hold the cause and the line, as data.

Programs are functions of their own: pytest adds calls of locals() to functions with asserts, and such functions are left alone.
"""

import gc

import numpy as np
import pytest
import torch as pytorch
from both_engines import line_of, only, traced

from backlight import inspect

# Order and hooks


def test_a_leaf_lost_by_a_cast(torch):
    def program(torch):
        x = torch.rand(3, requires_grad=True).double()
        (x * 2).sum().backward()
        return x.grad

    record, grad, _error = traced(torch, program)
    assert grad is None
    found = only(record, "none-not-leaf")
    assert found.names == ["x"]
    assert line_of(found.sites["made at"]) == "x = torch.rand(3, requires_grad=True).double()"
    assert line_of(found.sites["read at"]) == "return x.grad"
    assert found.numbers["unnamed"] == 1
    assert found.numbers["min"] == found.numbers["max"] == 2.0
    assert "requires_grad_()" in found.fix


@pytest.mark.parametrize("hook_first", [True, False])
def test_hook_and_retain_grad(torch, hook_first):
    def program(torch):
        a = torch.tensor(1.0, requires_grad=True)
        b = a * 3

        def tenfold(g):
            return g * 10

        if hook_first:
            b.register_hook(tenfold)
            b.retain_grad()
        else:
            b.retain_grad()
            b.register_hook(tenfold)
        (b * 2).backward()
        return a, b

    record, (a, b), _error = traced(torch, program)
    assert (a.grad.item(), b.grad.item()) == (60, 20)
    hooks = [h for h in record.hooks if h.type in ("tensor", "retain_grad")]
    assert [h.type for h in hooks] == ["tensor", "retain_grad"]
    hook, retain = hooks
    assert (hook.before[0].min, hook.after[0].min, hook.changed) == (2, 20, True)
    assert "tenfold" in hook.function
    assert line_of(hook.registered) == "b.register_hook(tenfold)"
    assert hook.order == 0
    assert (retain.before[0].min, retain.changed) == (20, False)
    assert hook.tensor.label == "b"
    (write,) = [w for w in record.gradient_writes if w.tensor.label == "a"]
    assert write.value.min == 60


def test_every_kind_of_hook_on_a_leaf(torch):
    def program(torch):
        p = torch.tensor(2.0, requires_grad=True)
        out = p * p
        node = out.grad_fn.next_functions[0][0]

        def first(g):
            log.append("first")

        def second(g):
            log.append("second")

        def before(grads):
            log.append("before")

        def after(grads, outputs):
            log.append("after")

        def accumulated(p):
            log.append("accumulated")

        handles = [node.register_hook(after), p.register_post_accumulate_grad_hook(accumulated), p.register_hook(first)]
        handles += [node.register_prehook(before), p.register_hook(second)]
        out.backward()
        return handles

    log = []
    record, _handles, _error = traced(torch, program)
    assert log == ["first", "second", "before", "accumulated", "after"]
    events = [e for e in record.events if type(e).__name__ in ("Hook", "GradientWrite")]
    shown = [e.function.rpartition(".")[2] if type(e).__name__ == "Hook" else "write" for e in events]
    assert shown == ["first", "second", "before", "write", "accumulated", "after"]
    assert [e.before[0].min for e in events[:2]] == [4, 4]  # the sum, once, although p is used twice
    assert events[3].value.min == 4
    assert [e.type for e in events if type(e).__name__ == "Hook"] == [
        "tensor",
        "tensor",
        "prehook",
        "post_accumulate",
        "posthook",
    ]


def test_order_of_a_diamond(torch):
    def program(torch):
        a, c = torch.tensor(1.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
        b = a * c
        d = torch.sin(b)
        e = torch.exp(b)
        f = d + e
        loss = f * a
        loss.backward()

    record, _result, _error = traced(torch, program, "shapes")
    names = [step.node.label for step in record.passes[0].steps]
    assert names == [
        "MulBackward0", "AddBackward0", "ExpBackward0", "SinBackward0", "MulBackward0", "AccumulateGrad of a", "AccumulateGrad of c",
    ]  # fmt: skip
    order = record.order(0)
    assert order.agrees
    assert [[n.name for n in step.ready] for step in order.steps[:4]] == [[], [], ["SinBackward0"], []]
    assert [(n.label, count) for n, count in order.steps[1].waiting] == [("AccumulateGrad of a", 1)]
    assert "created after SinBackward0" in order.steps[2].reason
    assert len({step.node.sequence for step in record.passes[0].steps[:5]}) == 5


@pytest.mark.parametrize("needs_grad", [True, False])
def test_module_hooks_and_nesting(torch, needs_grad):
    def program(torch):
        nn = torch.nn
        net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
        log = []
        for name, module in [("root", net), *net.named_children()]:
            module.register_full_backward_pre_hook(lambda _m, _g, name=name: log.append(f"+{name}"))
            module.register_full_backward_hook(lambda _m, _i, _o, name=name: log.append(f"-{name}"))
        x = torch.ones(1, 2, requires_grad=needs_grad)
        net(x).sum().backward()
        return log

    record, log, _error = traced(torch, program)
    if needs_grad:
        assert log == "+root +2 -2 +1 -1 +0 -0 -root".split()
    else:
        assert log == "+root -root +2 -2 +1 -1 +0 -0".split()
    calls = [(m.type, m.name, None if m.parent is None else m.parent.type) for m in record.modules]
    assert calls == [
        ("Sequential", "", None), ("Linear", "0", "Sequential"), ("ReLU", "1", "Sequential"), ("Linear", "2", "Sequential"),
    ]  # fmt: skip
    of_module = {step.name: step.node.module.name for step in record.steps if step.node.module is not None}
    assert of_module["ReluBackward0"] == "1"
    names = [s.node.leaf.name for s in record.steps if s.node.leaf is not None and s.node.leaf.role == "parameter"]
    assert sorted(names) == ["0.bias", "0.weight", "2.bias", "2.weight"]


def test_inplace_relu_is_not_disturbed(torch):
    def program(torch):
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(inplace=True), torch.nn.Linear(3, 1))
        net(torch.randn(4, 3)).sum().backward()
        return [p.grad.numpy().copy() for p in net.parameters()]

    plain = program(torch)
    _record, recorded, error = traced(torch, program)
    assert error is None
    assert all(np.array_equal(a, b) for a, b in zip(plain, recorded, strict=True))


# None, zero, unchanged


def no_grad(torch, v):
    with torch.no_grad():
        return v * 1


CUTS = {
    "detach": lambda torch, v: v.detach(),
    "data": lambda torch, v: v.data,
    "tolist": lambda torch, v: torch.tensor(v.tolist()),
    "numpy": lambda torch, v: torch.from_numpy(v.detach().numpy().copy()),
    "argmax": lambda torch, v: v.argmax().float(),
    "comparison": lambda torch, v: (v > 0).float(),
    "no_grad": no_grad,
}


@pytest.mark.parametrize("cut", CUTS)
def test_hard_cuts(torch, cut):
    def program(torch):
        w = torch.randn(3, requires_grad=True)
        v = w * 2
        y = CUTS[cut](torch, v)
        (y * 3).sum().backward()

    record, _result, error = traced(torch, program)
    assert "does not require grad" in str(error)
    found = only(record, "loss-cut")
    assert found.severity == "error"
    assert found.numbers["cut"] == {"argmax": "integer", "comparison": "integer"}.get(cut, cut)
    assert found.numbers["last"] == ["v"]
    expected = {"no_grad": "return v * 1"}.get(cut) or f'"{cut}": lambda'
    assert line_of(found.sites["cut"]).startswith(expected)
    if cut == "no_grad":
        assert line_of(found.sites["mode switched"]) == "with torch.no_grad():"


ZEROS = {"round": lambda v: v.round(), "sign": lambda v: v.sign(), "clamp": lambda v: v.clamp(50, 60)}


@pytest.mark.parametrize("operation", ZEROS)
def test_zero_derivatives(torch, operation):
    def program(torch):
        w = torch.randn(3, requires_grad=True)
        v = w * 2
        y = ZEROS[operation](v)
        (y * 3).sum().backward()
        return w.grad

    record, grad, _error = traced(torch, program)
    assert grad.tolist() == [0, 0, 0]
    found = only(record, "zero-gradient")
    assert found.names == ["w"]
    assert found.numbers["operation"] == operation
    assert found.numbers["fraction"] == 1
    assert line_of(found.sites["blocked at"]).startswith("ZEROS =")


def test_requires_grad_on_the_loss(torch):
    def program(torch):
        lin = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(lin.parameters(), lr=0.1)
        p = (lin(torch.randn(4, 3)) > 0).float()
        loss = ((p - 1) ** 2).mean()
        loss.requires_grad = True
        loss.backward()
        optimizer.step()
        return lin

    record, lin, error = traced(torch, program)
    assert error is None
    assert lin.weight.grad is None
    found = only(record, "loss-is-leaf")
    assert found.severity == "error"
    assert found.numbers["parameters"] == 0
    assert line_of(found.sites["cut"]).startswith("p = (lin(")
    assert found.sites["cut"].text == "lin(torch.randn(4, 3)) > 0"
    assert line_of(found.sites["switched"]) == "loss.requires_grad = True"


def test_kinds_of_unused_parameters(torch):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = (torch.nn.Linear(3, 3) for _ in range(4))

        def forward(self, x):
            h = self.a(x)
            extra = self.c(h)
            return h + self.d(h) * 0.0, extra

    def program(torch):
        model = Model()
        out, _extra = model(torch.randn(2, 3))
        out.sum().backward()
        return model

    record, model, _error = traced(torch, program)
    assert model.b.weight.grad is model.c.weight.grad is None
    never = only(record, "none-never-used")
    assert never.names == ["b.weight", "b.bias"]
    unused = only(record, "none-not-in-loss")
    assert unused.names == ["c.weight", "c.bias"]
    assert line_of(unused.sites["used at"]) == "extra = self.c(h)"
    zero = only(record, "zero-gradient")
    assert zero.names == ["d.weight", "d.bias"]
    assert line_of(zero.sites["blocked at"]) == "return h + self.d(h) * 0.0, extra"
    assert zero.numbers["reason"] == "it is multiplied by the constant 0"
    assert not any("a.weight" in f.names for f in record.findings)


@pytest.mark.parametrize("variant", ["stale", "cleared", "adamw"])
def test_frozen_but_moving(torch, variant):
    def program(torch):
        nn = torch.nn
        net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        if variant == "adamw":
            optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        else:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        x = torch.randn(8, 3)
        net(x).pow(2).mean().backward()
        optimizer.step()
        if variant == "cleared":
            optimizer.zero_grad()
        for module in net[:2]:
            module.requires_grad_(False)
        before = net[0].weight.detach().clone()
        for _ in range(3):
            for p in net[2].parameters():
                p.grad = None
            net(x).pow(2).mean().backward()
            optimizer.step()
        return (net[0].weight.detach() - before).abs().max().item()

    record, moved, _error = traced(torch, program)
    frozen = [f for f in record.findings if f.kind == "frozen-moved"]
    if variant == "cleared":
        assert moved == 0
        assert frozen == []
    else:
        assert moved > 0
        (found,) = frozen
        assert found.names == ["0.weight", "0.bias", "1.weight", "1.bias"]
        assert found.numbers["steps"] == [2, 3, 4]
        assert found.numbers["age"] == 3
        assert found.numbers["optimizer"] == ("AdamW" if variant == "adamw" else "SGD")
        if variant == "stale":
            assert found.numbers["options"]["momentum"] == 0.9
        assert line_of(found.sites["optimizer step"]) == "optimizer.step()"
    buffers = only(record, "buffer-moved")
    assert "1.running_mean" in buffers.names
    assert line_of(buffers.sites["written at"]) == "net(x).pow(2).mean().backward()"


def test_optimizer_holds_an_old_parameter(torch):
    def program(torch):
        m = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        m.weight = torch.nn.Parameter(m.weight.detach().clone())
        m(torch.randn(2, 3)).sum().backward()
        before = m.weight.detach().clone()
        optimizer.step()
        return (m.weight - before).abs().max().item(), m.weight.grad

    record, (moved, grad), _error = traced(torch, program)
    assert moved == 0
    assert grad is not None
    found = only(record, "not-in-optimizer")
    assert found.names == ["weight"]
    assert found.numbers["orphans"] == 1
    assert found.numbers["shapes"] == [[1, 3]]


# NaN and infinity


def test_nan_from_the_branch_not_taken(torch):
    def program(torch):
        a = torch.tensor(100.0, requires_grad=True)
        y = torch.where(a <= 0, torch.exp(a), 1 + a)
        y.backward()
        return a.grad

    record, grad, _error = traced(torch, program)
    assert np.isnan(grad.item())
    found = only(record, "nonfinite")
    assert found.numbers["node"] == "ExpBackward0"
    assert found.numbers["cause"] == "0 x inf"
    assert (found.numbers["upstream"], found.numbers["saved"]["result"]) == (0, np.inf)
    assert found.numbers["element"] == ()
    assert found.numbers["upstream_reason"] == "Where"
    assert found.sites["origin"].text == "torch.exp(a)"
    assert "mask the input before exp" in found.fix


@pytest.mark.parametrize("clip", [False, True])
def test_infinity_is_not_nan(torch, clip):
    def program(torch):
        w = torch.tensor([0.0, 4.0], requires_grad=True)
        optimizer = torch.optim.Adam([w], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            w.sqrt().sum().backward()
            if clip:
                torch.nn.utils.clip_grad_norm_([w], 1.0)
            optimizer.step()
        return w

    record, w, _error = traced(torch, program)
    assert np.isnan(w.detach().numpy()[0])
    found = only(record, "nonfinite")
    assert found.numbers["node"] == "SqrtBackward0"
    assert found.numbers["cause"] == "singular point"
    assert found.numbers["saved"] == {"result": 0.0}
    assert found.numbers["value"] == np.inf
    assert found.numbers["element"] == (0,)
    assert line_of(found.sites["optimizer step"]) == "optimizer.step()"
    assert any("Adam.step() number 1" in link and "w is not finite" in link for link in found.numbers["chain"])
    assert "next loss" in found.sites
    if clip:
        assert line_of(found.sites["clipped at"]).startswith("torch.nn.utils.clip_grad_norm_")
        assert any("NaN" in link for link in found.numbers["chain"])


def test_indexing_does_not_help(torch):
    def program(torch):
        x = torch.ones(2, requires_grad=True)
        d = torch.tensor([0.0, 1.0])
        y = x / d
        y[d != 0].sum().backward()
        return x.grad

    record, grad, _error = traced(torch, program)
    assert np.isnan(grad.numpy()[0])
    assert grad.numpy()[1] == 1
    found = only(record, "nonfinite")
    assert found.numbers["node"] == "DivBackward0"
    assert (found.numbers["cause"], found.numbers["upstream"], found.numbers["saved"]["other"]) == ("0 x inf", 0, 0)
    assert found.numbers["element"] == (0,)
    assert found.numbers["not_in_loss"]
    assert found.sites["origin"].text == "x / d"


def test_nan_in_the_second_derivative(torch):
    def program(torch):
        q = torch.tensor(0.0, requires_grad=True)
        f = q.abs() ** 1.5
        (first,) = torch.autograd.grad(f, q, create_graph=True)
        (second,) = torch.autograd.grad(first, q)
        return first.item(), second.item()

    record, (first, second), _error = traced(torch, program)
    assert first == 0
    assert np.isnan(second)
    found = only(record, "nonfinite")
    assert found.numbers["node"] == "PowBackward0"
    assert found.numbers["second_level"]
    assert line_of(found.sites["created by"]) == "f = q.abs() ** 1.5"
    assert line_of(found.sites["origin"]).startswith("(first,) =") or line_of(found.sites["origin"]) == "f = q.abs() ** 1.5"


def test_a_norm_written_by_hand(torch):
    def by_hand(torch):
        x = torch.zeros(3, requires_grad=True)
        torch.sqrt((x**2).sum()).backward()
        return x.grad

    def fine(torch):
        x = torch.zeros(3, requires_grad=True)
        x.norm().backward()
        return x.grad

    record, grad, _error = traced(torch, by_hand)
    assert np.isnan(grad.numpy()).all()
    found = only(record, "nonfinite")
    assert found.numbers["node"] == "SqrtBackward0"
    assert "norm()" in found.fix
    record, grad, _error = traced(torch, fine)
    assert grad.tolist() == [0, 0, 0]
    assert not any(f.kind == "nonfinite" for f in record.findings)


# In-place and second backward


def test_a_saved_output_was_modified(torch):
    def program(torch):
        a = torch.randn(2, requires_grad=True)
        b = torch.exp(a)
        c = b * 1
        b.mul_(5)
        c.sum().backward()

    record, _result, error = traced(torch, program)
    assert "modified by an inplace operation" in str(error)
    found = only(record, "inplace-error")
    assert found.names == ["b"]
    assert line_of(found.sites["saved by"]) == "b = torch.exp(a)"
    assert line_of(found.sites["changed by"]) == "b.mul_(5)"
    assert line_of(found.sites["needed by"]) == "c.sum().backward()"
    assert (found.numbers["version_saved"], found.numbers["version_now"]) == (0, 1)
    assert found.numbers["writer"] == "mul_"
    assert [f.kind for f in inspect.explain(error)] == ["inplace-error"]


def test_an_output_that_is_not_saved_may_be_modified(torch):
    def program(torch):
        a = torch.randn(2, requires_grad=True)
        b = a + 1
        b.mul_(5)
        b.sum().backward()
        return a, b

    _record, (a, b), error = traced(torch, program)
    assert error is None
    assert a.grad.tolist() == [5, 5]
    (found,) = [f for f in inspect.explain(b) if f.kind == "inplace-safe"]
    assert line_of(found.sites["changed by"]) == "b.mul_(5)"
    assert "saves no result" in found.text


def test_optimizer_step_between_two_backwards(torch):
    def program(torch):
        nn = torch.nn
        G = nn.Linear(2, 2)
        D = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        optimizer = torch.optim.SGD(D.parameters(), lr=0.1)
        out = D(G(torch.randn(4, 2)))
        d_loss = out.mean()
        g_loss = -out.mean()
        d_loss.backward(retain_graph=True)
        optimizer.step()
        g_loss.backward()

    record, _result, error = traced(torch, program)
    assert "modified by an inplace operation" in str(error)
    found = only(record, "inplace-error")
    assert found.names == ["D.2.weight"]
    assert found.numbers["by_optimizer"]
    assert found.numbers["writer"] == "SGD"
    assert found.numbers["node"] == "AddmmBackward0"
    assert line_of(found.sites["saved by"]) == "out = D(G(torch.randn(4, 2)))"
    assert line_of(found.sites["changed by"]) == "optimizer.step()"
    assert line_of(found.sites["needed by"]) == "g_loss.backward()"


def recurrent(variant):
    def program(torch):
        cell = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
        h = torch.zeros(2, 3)
        for _ in range(4):
            optimizer.zero_grad()
            h = torch.tanh(cell(torch.cat([torch.ones(2, 1), h], 1)))
            h.sum().backward(retain_graph=variant != "plain")
            if variant == "step":
                optimizer.step()

    return program


def test_hidden_state_not_detached(torch):
    record, _result, error = traced(torch, recurrent("plain"))
    assert "second time" in str(error)
    found = only(record, "second-backward")
    assert found.numbers["carried"] == ["h"]
    assert (found.numbers["first_pass"], found.numbers["second_pass"]) == (0, 1)
    assert line_of(found.sites["freed by"]).startswith("h.sum().backward(")


def test_hidden_state_with_retain_graph(torch):
    record, _result, error = traced(torch, recurrent("retain"))
    assert error is None
    found = only(record, "graph-growing")
    assert found.names == ["h"]
    nodes, saved = found.numbers["nodes"], found.numbers["bytes"]
    assert len(nodes) == 4
    assert len({b - a for a, b in zip(nodes, nodes[1:])}) == 1  # the same number of nodes more in every step
    assert saved == sorted(saved)
    assert saved[0] > 0


def test_hidden_state_with_an_optimizer_step(torch):
    record, _result, error = traced(torch, recurrent("step"))
    assert "modified by an inplace operation" in str(error)
    found = only(record, "inplace-error")
    assert found.numbers["by_optimizer"]
    assert found.names == ["weight"]
    assert found.numbers["carried"] == ["h"]
    assert found.fix == "detach h between the steps"
    assert record.errors[0].in_pass.number == 2  # weights are not saved for a gradient that the first h doesn't want


# Memory, accumulation, custom functions


def test_a_total_that_keeps_all_graphs(torch):
    def program(torch, backward=False):
        w = torch.randn(1024, requires_grad=True)
        total = 0.0
        for _ in range(3):
            loss = (w * 2).exp().sum()
            total = total + loss
            if backward:
                loss.backward()
            sizes.append(inspect.held_graph(total).numbers)
        return total

    sizes = []
    traced(torch, program)
    assert [s["bytes"] // 4096 for s in sizes] == [1, 2, 3]  # and a few bytes for the number 2
    assert [b["nodes"] - a["nodes"] for a, b in zip(sizes, sizes[1:])] == [4, 4]
    assert sizes[-1]["holders"] == ["local variable total of program()"]
    assert not sizes[-1]["buffers_freed"]
    ((line, size),) = sizes[-1]["by_line"].items()
    assert line.startswith(__file__)
    assert size == sizes[-1]["bytes"]
    sizes.clear()
    traced(torch, lambda torch: program(torch, True))
    assert [s["bytes"] for s in sizes] == [0, 0, 0]
    assert sizes[-1]["nodes"] > sizes[0]["nodes"]
    assert sizes[-1]["buffers_freed"]


def test_an_output_kept_on_ctx(torch):
    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.y = y
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.y

    class Saved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    def program(function):
        def run(torch):
            x = torch.ones(4, requires_grad=True)
            y = function.apply(x)
            y.sum()

        return run

    gc.collect()
    gc.disable()
    try:
        traced(torch, program(Saved))
        assert inspect.alive() == []
        traced(torch, program(Kept))
        (found,) = inspect.alive()
        assert found.names == ["y"]
        assert any("attribute .y" in link or ".y of" in link for link in found.numbers["holders"])
        assert found.numbers["cycle"]
    finally:
        gc.enable()
    gc.collect()
    assert inspect.alive() == []


def test_backward_with_create_graph_keeps_the_leaf(torch):
    def program(torch):
        x = torch.ones(3, requires_grad=True)
        y = (x**3).sum()
        y.backward(create_graph=True)
        return x

    _record, x, _error = traced(torch, program)
    gc.collect()
    (found,) = [f for f in inspect.explain(x) if f.kind == "gradient-cycle"]
    assert found.numbers["holders"] == ["x.grad", "its grad_fn", "x"]
    x.grad = None
    assert not any(f.kind == "gradient-cycle" for f in inspect.explain(x))


def test_a_hook_that_holds_its_node(torch):
    def program(torch):
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        node = y.sum().grad_fn  # which holds the node that the hook is registered on

        def look(_inputs, _outputs):
            return None if node else None

        y.grad_fn.register_hook(look)

    traced(torch, program)
    gc.collect()
    found = [f for f in inspect.alive() if "SumBackward0" in f.numbers["root"]]
    if torch is pytorch:  # there not even gc.collect() frees it
        assert any("closure of" in link and "look" in link for link in found[0].numbers["holders"])
    else:  # the cycle collector sees the whole cycle
        assert found == []


def test_contributions_of_tied_weights(torch):
    def program(torch):
        E = torch.nn.Embedding(10, 4)
        fired = []
        E.weight.register_hook(lambda g: fired.append(g.norm().item()))
        h = E(torch.tensor([1, 2, 3]))
        logits = h @ E.weight.T
        torch.nn.functional.cross_entropy(logits, torch.tensor([2, 3, 4])).backward()
        return E.weight.grad.numpy(), fired

    record, (grad, fired), _error = traced(torch, program, "full")
    table = inspect.contributions(record, "weight")
    assert len(fired) == 1
    assert [row.site.text for row in table.rows] == ["E.weight.T", "E(torch.tensor([1, 2, 3]))"]
    assert np.allclose(sum(row.values for row in table.rows), grad, atol=1e-6)
    assert table.complete
    assert [row.norm for row in table.rows] == pytest.approx(
        [float(np.linalg.norm(row.values)) for row in table.rows], rel=1e-5
    )
    assert table.cosines[0][1] == pytest.approx(table.cosines[1][0])


def test_contributions_of_micro_batches(torch):
    def program(torch):
        lin = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(lin.parameters(), lr=0.1)
        x, t = torch.randn(6, 3), torch.randn(6, 1)
        for rows in (slice(0, 1), slice(1, 6)):
            (torch.nn.functional.mse_loss(lin(x[rows]), t[rows]) / 2).backward()
        grad = lin.weight.grad.numpy().copy()
        optimizer.step()
        return grad

    record, grad, _error = traced(torch, program, "full")
    table = inspect.contributions(record, "weight")
    assert [row.in_pass for row in table.rows] == [0, 1]
    assert table.complete
    assert np.allclose(table.total, grad, atol=1e-6)
    found = only(record, "accumulation-scale")
    assert found.severity == "warning"
    assert found.numbers["rows"] == [1, 5]


def test_contributions_of_loss_terms(torch):
    trunk, heads = torch.nn.Linear(4, 4), [torch.nn.Linear(4, 1) for _ in range(2)]
    h = trunk(torch.randn(8, 4)).tanh()
    losses = [(head(h) ** 2).mean() for head in heads]
    loss = losses[0] + 100 * losses[1]
    (table,) = inspect.loss_terms(loss, [trunk.weight], ["trunk.weight"])
    assert trunk.weight.grad is None
    loss.backward()
    assert np.allclose(table.total, trunk.weight.grad.numpy(), rtol=1e-4)
    assert len(table.rows) == 2
    alone = [
        float(torch.autograd.grad((head(trunk(torch.ones(1, 4)).tanh()) ** 2).mean(), trunk.weight)[0].norm()) for head in heads
    ]
    assert all(norm > 0 for norm in alone)
    assert table.rows[1].norm > table.rows[0].norm
    assert -1 <= table.cosines[0][1] <= 1


def test_zero_grad_was_forgotten(torch):
    def program(torch):
        lin = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(lin.parameters(), lr=0.0)
        x = torch.randn(4, 3)
        for _ in range(2):
            lin(x).sum().backward()
            optimizer.step()

    record, _result, _error = traced(torch, program, "full")
    found = only(record, "stale-gradient")
    assert found.names == ["weight", "bias"] or sorted(found.names) == ["bias", "weight"]
    assert found.numbers["ratio"] == pytest.approx(2, rel=1e-6)
    table = inspect.contributions(record, "weight")
    assert [row.stale for row in table.rows] == [True, False]
    assert table.complete
