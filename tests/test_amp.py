"""autocast and GradScaler, compared with PyTorch."""

import threading
import warnings

import numpy as np
import pytest
import torch

import backlight

F = "nn.functional"
x, y = "t.ones(2, 3)", "t.ones(3, 2)"
# What autocast changes, and what it leaves: the dtypes must be PyTorch's. `b` is a bfloat16 tensor, `t` the package.
EXPRESSIONS = f"""{x} @ {y}
t.mm({x}, {y})
t.matmul({x}, {y})
t.bmm(t.ones(1, 2, 3), t.ones(1, 3, 2))
t.addmm(t.ones(2), {x}, {y})
t.baddbmm(t.ones(1, 2, 2), t.ones(1, 2, 3), t.ones(1, 3, 2))
t.addbmm(t.ones(2, 2), t.ones(1, 2, 3), t.ones(1, 3, 2))
t.einsum("ij,jk->ik", {x}, {y})
t.{F}.linear({x}, t.ones(4, 3), t.ones(4))
t.{F}.conv1d(t.ones(1, 1, 4), t.ones(1, 1, 2))
t.{F}.conv2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 2, 2))
t.{F}.conv_transpose2d(t.ones(1, 1, 4, 4), t.ones(1, 1, 2, 2))
t.{F}.scaled_dot_product_attention(t.ones(1, 2, 3), t.ones(1, 2, 3), t.ones(1, 2, 3))
t.{F}.prelu({x}, t.ones(1))
t.linalg.vecdot({x}, {x})
{x}.double() @ {y}.double()
b @ b.t()
b + {x}
b * 2
b.exp()
b.sum()
b.softmax(-1)
b.log_softmax(-1)
b.prod()
b.mean()
t.{F}.gelu(b)
t.{F}.relu(b)
t.{F}.layer_norm(b, (3,))
t.{F}.cross_entropy(b, t.tensor([0, 1]))
t.{F}.nll_loss(b, t.tensor([0, 1]))
t.{F}.mse_loss(b, {x})
t.{F}.l1_loss(b, b)
t.{F}.smooth_l1_loss(b, b)
t.{F}.huber_loss(b, b)
t.{F}.binary_cross_entropy_with_logits(b, b)
t.{F}.kl_div(b, b, reduction="sum")
t.cat([b, {x}])
t.stack([b, {x}])
t.cdist(b, b)
t.quantile(b, 0.5)
t.trace(b)
t.linalg.inv(t.eye(2, dtype=t.bfloat16))
t.linalg.qr(b)[0]
t.fft.fft(b)
t.polar(b, b)
t.nn.Linear(3, 2)({x})
t.nn.LSTM(3, 2)(t.ones(4, 1, 3))[0]
t.nn.Conv2d(1, 1, 2)(t.ones(1, 1, 3, 3))
t.nn.BatchNorm1d(3)(b.float())""".splitlines()


# PyTorch raises for these where both half types meet, or oneDNN has no kernel.
BFLOAT16_ONLY = ("t.cat(", "t.stack(", "t.nn.LSTM(")
CASES = [(e, d) for e in EXPRESSIONS for d in ("bfloat16", "float16") if d == "bfloat16" or not e.startswith(BFLOAT16_ONLY)]


@pytest.mark.parametrize(("expression", "dtype"), CASES)
def test_types_under_autocast(expression, dtype):
    results = []
    for t in (backlight, torch):
        b = t.tensor([[0.3, 0.5, 0.1], [0.2, 0.7, 0.4]], dtype=t.bfloat16)
        with t.autocast("cpu", dtype=getattr(t, dtype)):
            results.append(eval(expression, {"t": t, "b": b}).dtype)
    assert str(results[0]) == str(results[1])


def training(t, dtype=None):
    """Losses, gradients and types of a few steps."""
    t.manual_seed(0)
    net = t.nn.Sequential(t.nn.Linear(8, 16), t.nn.ReLU(), t.nn.Linear(16, 3))
    optimizer = t.optim.SGD(net.parameters(), lr=0.1)
    data, target = t.randn(32, 8), t.randint(0, 3, (32,))
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with t.autocast("cpu", dtype=dtype and getattr(t, dtype)):
            output = net(data)
            loss = t.nn.functional.cross_entropy(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.grad for p in net.parameters()], output, loss


def test_a_model_trains_under_autocast_as_in_pytorch():
    ours, theirs = training(backlight), training(torch)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=5e-3)
    for a, b in zip(ours[1], theirs[1], strict=True):
        assert str(a.dtype) == str(b.dtype) == "torch.float32"
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=2e-2)
    assert [str(t.dtype) for t in ours[2:]] == [str(t.dtype) for t in theirs[2:]]


def test_the_graph_has_the_casts_and_a_weight_is_cast_once():
    for t in (backlight, torch):
        weight, x = t.ones(2, 2, requires_grad=True), t.ones(1, 2)
        with t.autocast("cpu"):
            first, second = x @ weight, x @ weight
        casts = [[n for n, _ in y.grad_fn.next_functions if n is not None][0] for y in (first, second)]
        assert casts[0] is casts[1] and casts[0].name() == "ToCopyBackward0"
        (first + second).sum().backward()
        assert str(weight.grad.dtype) == "torch.float32"
        with t.autocast("cpu", cache_enabled=False):
            first, second = x @ weight, x @ weight
        casts = [[n for n, _ in y.grad_fn.next_functions if n is not None][0] for y in (first, second)]
        assert casts[0] is not casts[1]


def questions(t):
    return [
        t.is_autocast_enabled("cpu"), t.is_autocast_enabled(), str(t.get_autocast_dtype("cpu")), t.is_autocast_cache_enabled(),
        t.amp.is_autocast_available("cpu"),
    ]  # fmt: skip


CONTEXTS = {
    "plain": lambda t: t.autocast("cpu"),
    "half": lambda t: t.autocast("cpu", dtype=t.float16),
    "float32": lambda t: t.autocast("cpu", dtype=t.float32),
    "off": lambda t: t.autocast("cpu", enabled=False),
    "cuda": lambda t: t.autocast("cuda"),
    "cuda off": lambda t: t.autocast("cuda", enabled=False),
    "no cache": lambda t: t.autocast("cpu", cache_enabled=False),
    "amp": lambda t: t.amp.autocast(device_type="cpu", dtype=t.bfloat16),
    "unknown": lambda t: t.autocast("xyz"),
    "number": lambda t: t.autocast(3),
    "old": lambda t: t.cuda.amp.autocast(),
}


def outcome(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function()
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
    return result, [(w.category.__name__, str(w.message)) for w in caught]


@pytest.mark.parametrize("name", CONTEXTS)
def test_what_autocast_says_of_itself(name):
    def run(t):
        with CONTEXTS[name](t):
            inside = questions(t)
        return inside, questions(t)

    assert outcome(lambda: run(backlight)) == outcome(lambda: run(torch))


def test_autocast_nests_decorates_and_is_per_thread():
    for t in (backlight, torch):
        seen, x = [], t.ones(2, 2)

        @t.autocast("cpu")
        def product(a, t=t, seen=seen):
            seen.append((a @ a).dtype)
            with t.autocast("cpu", enabled=False):
                seen.append((a @ a).dtype)
            seen.append((a @ a).dtype)

        product(x)
        seen.append((x @ x).dtype)
        with t.autocast("cpu"):
            thread = threading.Thread(target=lambda t=t, seen=seen, x=x: seen.append((x @ x).dtype))
            thread.start()
            thread.join()
        try:
            with t.autocast("cpu"):
                raise KeyError
        except KeyError:
            seen.append((x @ x).dtype)
        assert [str(s) for s in seen] == [f"torch.{n}" for n in ("bfloat16", "float32", "bfloat16", *["float32"] * 3)]


def test_functions_are_themselves_again_after_autocast():
    linear = backlight.nn.functional.linear
    before = linear.__code__, linear.__defaults__, linear.__kwdefaults__
    with backlight.autocast("cpu"):
        assert linear.__code__ is not before[0]
    assert (linear.__code__, linear.__defaults__, linear.__kwdefaults__) == before


def test_custom_functions_under_autocast():
    for t in (backlight, torch):
        seen = []

        class Product(t.autograd.Function):
            @staticmethod
            @t.amp.custom_fwd(device_type="cpu", cast_inputs=t.float32)
            def forward(ctx, a, b, t=t, seen=seen):
                ctx.save_for_backward(a, b)
                seen.append((a.dtype, (a @ b).dtype, t.is_autocast_enabled("cpu")))
                return a @ b

            @staticmethod
            @t.amp.custom_bwd(device_type="cpu")
            def backward(ctx, g, t=t, seen=seen):
                a, b = ctx.saved_tensors
                seen.append((g.dtype, t.is_autocast_enabled("cpu")))
                return g @ b.t(), a.t() @ g

        a = t.ones(2, 2, requires_grad=True)
        with t.autocast("cpu"):
            Product.apply(a.bfloat16(), a).sum().backward()
        assert str(seen) == "[(torch.float32, torch.float32, False), (torch.float32, False)]"


def scaled(t):
    """A scaler through steps with and without infinities."""
    weight, out = t.ones(2, requires_grad=True), []
    optimizer = t.optim.SGD([weight], lr=0.1)
    scaler = t.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for factor in (1.0, float("inf"), 2.0, 3.0, 1.0):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        out.append((scaler.get_scale(), weight.tolist(), scaler.state_dict()))
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    out += [weight.grad.tolist(), outcome(lambda: scaler.unscale_(optimizer))]
    scaler.step(optimizer)
    out += [outcome(lambda: scaler.step(optimizer)), outcome(lambda: scaler.unscale_(optimizer))]
    scaler.update(4.0)
    scaler.set_growth_factor(3.0)
    scaler.set_backoff_factor(0.1)
    scaler.set_growth_interval(5)
    out += [scaler.get_scale(), scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()]
    other = t.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    out += [other.state_dict(), outcome(lambda: other.load_state_dict({})), other.is_enabled()]
    out += [[s.tolist() for s in scaler.scale([t.ones(1), t.ones(2)])], outcome(lambda: scaler.scale(3))]
    fresh = t.amp.GradScaler("cpu")
    out += [outcome(lambda: fresh.step(optimizer)), outcome(fresh.update)]
    out += [
        outcome(lambda: t.amp.GradScaler("cpu", growth_factor=1.0)),
        outcome(lambda: t.amp.GradScaler("cpu", backoff_factor=1.0)),
    ]
    return out


def test_grad_scaler():
    assert scaled(backlight) == scaled(torch)


def disabled(t, make):
    scaler = make(t)
    weight = t.ones(2, requires_grad=True)
    optimizer = t.optim.SGD([weight], lr=0.5)
    loss = scaler.scale(weight.sum())
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return loss.item(), weight.tolist(), scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()


@pytest.mark.parametrize(
    "make",
    [lambda t: t.amp.GradScaler(), lambda t: t.cuda.amp.GradScaler(), lambda t: t.amp.GradScaler("cpu", enabled=False)],
)
def test_a_disabled_grad_scaler_does_nothing(make):
    assert outcome(lambda: disabled(backlight, make)) == outcome(lambda: disabled(torch, make))
