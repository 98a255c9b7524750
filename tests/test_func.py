"""torch.func: grad, vjp, jvp, Jacobians, Hessians, linearize, functional_call, and how they nest, compared with PyTorch."""

from __future__ import annotations

import pytest
from both_packages import Programs, assert_same_log, attempt

program = Programs()


def numbers(T, *shape, seed=0):
    return T.randn(*shape, generator=T.Generator().manual_seed(seed), dtype=T.float64)


@program
def gradients(T, log):
    x, y = T.tensor(0.5), T.tensor(2.0)
    f = lambda x, y: x.sin() * y
    log += [T.func.grad(f)(x, y), T.func.grad(f, 1)(x, y), T.func.grad(f, (0, 1))(x, y), T.func.grad(f, (1,))(x, y)]
    log += [T.func.grad(f, -1)(x, y), T.func.grad_and_value(f)(x, y), T.func.grad(f)(x, y=y)]
    log.append(T.func.grad(T.func.grad(T.func.grad(T.sin)))(x))
    log.append(T.func.grad(lambda x: (x**2, x * 3), has_aux=True)(x))
    log.append(T.func.grad_and_value(lambda x: (x**2, {"a": x * 3, "b": [x]}), has_aux=True)(x))
    log.append(T.func.grad(lambda tree: (tree["a"][0] * tree["b"]).sum())({"a": [x], "b": y}))
    log.append(T.func.grad(lambda x: T.tensor(3.0))(x))
    log.append(T.func.grad(lambda x, n: x**n, 0)(x, 3))
    log.append(T.func.grad(gradients).__name__)


@program
def gradient_errors(T, log):
    x = T.ones(2)
    attempt(log, T.func.grad(T.sin), x)
    attempt(log, T.func.grad(lambda x: 3.0), x)
    attempt(log, T.func.grad(lambda x: x.sum(), 1), x)
    attempt(log, T.func.grad(lambda x: x.sum(), -2), x)
    attempt(log, T.func.grad(lambda x, y: x.sum(), (0, 0)), x, x)
    attempt(log, T.func.grad(lambda x, y: x.sum(), ()), x, x)
    attempt(log, T.func.grad(lambda x, y: x.sum(), "0"), x, x)
    attempt(log, T.func.grad(lambda x: x), 3.0)
    attempt(log, T.func.grad(lambda x: x.sum()), T.ones(2, dtype=T.int64))
    attempt(log, T.func.grad(lambda x: x.sum(), has_aux=True), x)
    attempt(log, T.func.grad(lambda x: (x.sum(), x, x), has_aux=True), x)
    attempt(log, T.func.grad(lambda x: (x.sum(), x)), x)
    attempt(log, T.func.grad(lambda x: x.sum()), [x, "a"])
    attempt(log, T.func.grad(lambda x: (x.sum(), "a"), has_aux=True), x)


@program
def what_transforms_return_belongs_to_the_graph_outside(T, log):
    x = T.tensor(0.5, requires_grad=True)
    inside = T.func.grad(T.sin)(x)
    log += [inside, T.autograd.grad(inside, x)]
    w = T.tensor(2.0, requires_grad=True)
    g, value = T.func.grad_and_value(lambda x: x**2 * w)(T.tensor(3.0))
    log += [g, value, T.autograd.grad(g, w), T.autograd.grad(value, w)]
    log.append(T.func.grad(T.sin)(T.tensor(0.5)))
    with T.no_grad():
        log.append(T.func.grad(T.sin)(x))

    def with_no_grad(x):
        with T.no_grad():
            shift = x**2
        return x**2 - shift

    log += [T.func.grad(with_no_grad)(T.tensor(3.0)), T.func.grad(lambda x: x.detach() * x)(T.tensor(3.0))]
    log.append(T.func.grad(lambda x: T.autograd.grad((x * x).sin(), x, create_graph=True)[0])(T.tensor(0.5)))


@program
def inputs_may_be_written(T, log):
    def f(x):
        y = x.clone()
        y.mul_(x)
        y[0] = 0
        return y.sum()

    log += [T.func.grad(f)(T.tensor([2.0, 3.0])), T.func.jvp(f, (T.tensor([2.0, 3.0]),), (T.ones(2),))]

    x = T.ones(2)
    log += [T.func.jvp(lambda x: x.mul_(2) * x, (x,), (T.ones(2),)), x]


@program
def vjps(T, log):
    x, y = numbers(T, 3), numbers(T, 3, seed=1)
    out, pull = T.func.vjp(lambda x, y: (x * y, x.exp()), x, y)
    log += [out, pull((T.ones(3).double(), y)), pull((x, x))]
    out, pull, aux = T.func.vjp(lambda x: (x * 2, [x, {"a": x}]), x, has_aux=True)
    log += [out, pull(y), aux]
    out, pull = T.func.vjp(lambda t: {"a": t[0] * t[1], "b": t[0]}, (x, y))
    log += [out, pull({"a": x, "b": y})]
    attempt(log, pull, (x, y))
    out, pull = T.func.vjp(T.sin, x)
    attempt(log, pull, T.ones(2).double())
    attempt(log, T.func.vjp, lambda x: 3.0, x)
    attempt(log, T.func.vjp, lambda x: x, 3.0)
    attempt(log, T.func.vjp, lambda x: x * 2, x, has_aux=True)
    _, pull = T.func.vjp(lambda x: T.ones(2).double(), x)
    log.append(pull(T.ones(2).double()))
    _, pull = T.func.vjp(T.sin, x)
    log.append(T.func.vmap(pull)(T.eye(3).double()))
    log.append(T.func.grad(lambda x: T.func.vjp(T.sin, x)[1](x)[0].sum())(x))


@program
def jvps(T, log):
    x, t = numbers(T, 3), numbers(T, 3, seed=1)
    log.append(T.func.jvp(T.sin, (x,), (t,)))
    log.append(T.func.jvp(lambda x, y: {"p": x * y, "s": [x + y]}, (x, t), (t, x)))
    log.append(T.func.jvp(lambda x: (x * 2, x), (x,), (t,), has_aux=True))
    log.append(T.func.jvp(lambda x: T.ones(2), (x,), (t,)))
    attempt(log, T.func.jvp, lambda x: T.ones(2), (x,), (t,), strict=True)
    attempt(log, T.func.jvp, T.sin, x, t)
    attempt(log, T.func.jvp, T.sin, (x,), t)
    attempt(log, T.func.jvp, T.sin, (x,), (t, t))
    attempt(log, T.func.jvp, T.sin, (x,), (numbers(T, 2),))
    attempt(log, T.func.jvp, T.sin, (3.0,), (t,))
    attempt(log, T.func.jvp, T.sin, (), ())
    attempt(log, T.func.jvp, lambda x: 3.0, (x,), (t,))
    attempt(log, T.func.jvp, lambda x: x * 2, (x,), (t,), has_aux=True)
    second = lambda x: T.func.jvp(lambda y: T.func.jvp(lambda z: z**3, (y,), (t,))[1], (x,), (t,))[1]
    log += [second(x), T.func.jvp(second, (x,), (t,))]
    constant = lambda x: T.func.jvp(lambda y: x + y, (T.tensor(1.0),), (T.tensor(1.0),))[1] * x
    log.append(T.func.jvp(constant, (T.tensor(1.0),), (T.tensor(1.0),)))  # no confusion of perturbations


@program
def jacobians(T, log):
    x, y = numbers(T, 3), numbers(T, 2, seed=1)
    f = lambda x, y: (x[:2] * y, {"z": x.outer(y)})
    for jacobian in (T.func.jacrev, T.func.jacfwd):
        log += [jacobian(f)(x, y), jacobian(f, 1)(x, y), jacobian(f, (0, 1))(x, y), jacobian(f, (1,))(x, y)]
        log.append(jacobian(lambda x: (x.exp(), [x]), has_aux=True)(x))
        log.append(jacobian(jacobian(T.sin))(x))
        log.append(T.func.vmap(jacobian(T.sin))(x.outer(y)))
        log.append(jacobian(lambda x: T.ones(2).double())(x))
        log.append(jacobian(lambda x: x.sum())(x))
        log.append(jacobian(lambda x: x.sin())(x[0]))
        attempt(log, jacobian(T.sin, 1), x)
        attempt(log, jacobian(lambda x: 3.0), x)
        attempt(log, jacobian(lambda x: x, ()), x)
        attempt(log, jacobian(lambda x: x * 2, has_aux=True), x)
        attempt(log, jacobian(lambda x: x * 2), x + 1j)
        attempt(log, jacobian(lambda x: {"a": x, "b": x + 1j}), x)
    log += [T.func.jacrev(f, (0, 1), chunk_size=n)(x, y) for n in (1, 2, 100)]
    attempt(log, T.func.jacrev, T.sin, chunk_size=0)
    log.append(T.func.jacrev(lambda d: d["a"] ** 2)({"a": x}))


@program
def jacobians_of_empty_and_mixed_types(T, log):
    for jacobian in (T.func.jacrev, T.func.jacfwd):
        attempt(log, jacobian(lambda x: x[:0]), T.ones(3))
        attempt(log, jacobian(lambda x: x.double()), T.ones(3))
        attempt(log, jacobian(lambda x: x.sum()), T.ones(2, 0))
        attempt(log, jacobian(lambda x: x * 2), T.ones(2, dtype=T.int64))


@program
def hessians(T, log):
    x, y = numbers(T, 3), numbers(T, 3, seed=1)
    f = lambda x, y: (x**3 * y).sum()
    log += [T.func.hessian(f)(x, y), T.func.hessian(f, (0, 1))(x, y)]
    for outer in (T.func.jacrev, T.func.jacfwd):
        for inner in (T.func.jacrev, T.func.jacfwd):
            log.append(outer(inner(lambda x: (x.sin() * x.sum()).prod()))(x))
    log.append(T.func.vmap(T.func.hessian(lambda x: (x**3).sum()))(T.stack([x, y])))
    log.append(T.func.grad(lambda x: T.func.hessian(lambda x: (x**4).sum())(x).sum())(x))
    hvp = lambda f, x, v: T.func.jvp(T.func.grad(f), (x,), (v,))[1]
    log.append(hvp(lambda x: (x**3).prod(), x, y))


@program
def linearized(T, log):
    x, t = numbers(T, 3), numbers(T, 3, seed=1)
    out, push = T.func.linearize(lambda x: x.sin() * 2, x)
    log += [out, push(t), push(x)]
    out, push = T.func.linearize(lambda x, y: (x * y, x.sum()), x, t)
    log += [out, push(t, x)]
    attempt(log, push, t)
    attempt(log, push, t, numbers(T, 2))
    attempt(log, push, t, T.ones(3))
    out, push = T.func.linearize(lambda d: {"o": d["a"] * d["b"]}, {"a": x, "b": t})
    log += [out, push({"a": t, "b": t})]
    log.append(T.func.vmap(T.func.linearize(T.sin, x)[1])(T.eye(3).double()))
    _, push = T.func.linearize(lambda x: (x, T.ones(2).double()), x)
    log.append(push(t))


@program
def every_pair_nests(T, log):
    x, v = numbers(T, 4), numbers(T, 4, seed=1)
    transforms = {
        "grad": lambda f: lambda x: T.func.grad(lambda x: f(x).sum())(x),
        "vjp": lambda f: lambda x: T.func.vjp(f, x)[1](v)[0],
        "jvp": lambda f: lambda x: T.func.jvp(f, (x,), (v,))[1],
        "jacrev": lambda f: lambda x: T.func.jacrev(f)(x).sum(0),
        "jacfwd": lambda f: lambda x: T.func.jacfwd(f)(x).sum(0),
        "vmap": lambda f: lambda x: T.func.vmap(f)(T.stack([x, x * 2])).sum(0),
    }
    f = lambda x: x.sin() * x.roll(1, 0) + x.cumsum(0).tanh()
    for a in transforms.values():
        for b in transforms.values():
            log.append(a(b(f))(x))
    for a, b, c in (
        ("grad", "jvp", "vmap"),
        ("jvp", "vmap", "grad"),
        ("vmap", "grad", "jvp"),
        ("jvp", "grad", "grad"),
        ("vmap", "vmap", "grad"),
    ):
        log.append(transforms[a](transforms[b](transforms[c](f)))(x))


@program
def with_modules(T, log):
    T.manual_seed(0)
    model = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.Tanh(), T.nn.Linear(4, 2))
    x, labels = T.randn(5, 3), T.tensor([0, 1, 1, 0, 1])
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params, x, labels):
        return T.nn.functional.cross_entropy(T.func.functional_call(model, params, (x,)), labels)

    log.append(T.func.grad(loss)(params, x, labels))
    log.append(T.func.jacrev(loss, 1)(params, x, labels))
    zeros = {name: T.ones_like(p) for name, p in params.items()}
    log.append(T.func.jvp(lambda p: loss(p, x, labels), (params,), (zeros,)))
    log.append([p.grad for p in model.parameters()])
    log.append(T.func.hessian(lambda w: loss({**params, "2.bias": w}, x, labels))(params["2.bias"]))


@program
def functional_calls(T, log):
    T.manual_seed(0)
    call = T.func.functional_call
    layer = T.nn.Linear(2, 1)
    x, weight = T.ones(2), T.zeros(1, 2)
    log += [call(layer, {"weight": weight}, x), call(layer, {"weight": weight}, (x,)), call(layer, {}, x)]
    log += [call(layer, ({"weight": weight}, {"bias": T.ones(1)}), x), call(layer, {"weight": weight}, kwargs={"input": x})]
    log.append(call(layer, {"weight": weight}, (), {"input": x}))
    attempt(log, call, layer, ({"weight": weight}, {"weight": weight}), x)
    attempt(log, call, layer, [1], x)
    attempt(log, call, layer, 3, x)
    attempt(log, call, layer, {"weight": 3}, x)
    attempt(log, call, layer, {"weight": weight}, x, strict=True)
    attempt(log, call, layer, {"weight": weight, "bias": T.ones(1), "more": x}, x, strict=True)
    attempt(log, call, layer, {"wrong": weight}, x)
    attempt(log, call, layer, {"wrong.name": weight}, x)
    attempt(log, call, layer, {"in_features": weight}, x)
    log.append(layer.weight.requires_grad)

    class Tied(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = T.nn.Linear(2, 2), T.nn.Linear(2, 2)
            self.b.weight = self.a.weight
            self.register_buffer("count", T.zeros(()))

        def forward(self, x):
            self.count.add_(1)
            return self.b(self.a(x)) * self.count

    tied = Tied()
    ones = T.ones(2, 2)
    log += [call(tied, {"a.weight": ones}, x), call(tied, {"b.weight": ones}, x), tied.count]
    attempt(log, call, tied, {"a.weight": ones, "b.weight": T.zeros(2, 2)}, x)
    count = T.zeros(())
    log += [call(tied, {"count": count}, x), count, tied.count]
    attempt(log, call, tied, {"a.weight": T.ones(3, 3)}, x)
    log.append(tied.a.weight is tied.b.weight)
    log.append(call(tied, {"a.weight": ones}, x, tie_weights=False))


@program
def stacked_models(T, log):
    T.manual_seed(0)
    models = [T.nn.Linear(2, 3) for _ in range(4)]
    params, buffers = T.func.stack_module_state(models)
    log += [params, buffers, [p.is_leaf for p in params.values()]]
    x = T.randn(4, 5, 2)
    out = T.func.vmap(lambda p, x: T.func.functional_call(models[0], p, x))(params, x)
    log.append(out)
    out.sum().backward()
    log += [params["weight"].grad, models[0].weight.grad]
    attempt(log, T.func.stack_module_state, [])
    attempt(log, T.func.stack_module_state, [models[0], T.nn.Linear(2, 3).eval()])
    attempt(log, T.func.stack_module_state, [models[0], T.nn.ReLU()])
    models[0].weight.requires_grad_(False)
    attempt(log, T.func.stack_module_state, models)


@program
def views_and_hooks_inside(T, log):
    def f(x):
        a, b = x.chunk(2)
        a = a.clone()
        a.view(-1)[0] = b[1] * 2
        return (a * b.t() if b.dim() == 2 else a * b).sum()

    x = numbers(T, 6)
    log += [T.func.grad(f)(x), T.func.jvp(f, (x,), (x,)), T.func.vmap(T.func.grad(f))(T.stack([x, -x]))]

    def hooked(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return y.sum()

    log.append(T.func.grad(hooked)(x))


@program
def complex_functions(T, log):
    z = T.complex(numbers(T, 3), numbers(T, 3, seed=1))
    log.append(T.func.grad(lambda z: (z * z).abs().sum())(z))
    log.append(T.func.vjp(lambda z: z.exp(), z)[1](z))
    log.append(T.func.jvp(lambda z: z.exp() * z.conj(), (z,), (z,)))


@program
def written_inputs(T, log):
    """Inputs of a function that is differentiated are leaves; in forward mode they can be written."""
    x = numbers(T, 2, 2)
    first_row = lambda x: x[0].mul_(2).sum()
    attempt(log, T.func.grad(lambda x: x.mul_(2).sum()), x)
    attempt(log, T.func.grad(first_row), x)
    attempt(log, T.func.vjp, lambda x: x.mul_(2), x)
    attempt(log, T.vmap(T.func.grad(lambda x: x.mul_(2).sum())), x)
    attempt(log, T.func.grad(lambda x: T.vmap(lambda y: y.mul_(2))(x).sum()), x)
    log.append(x)
    attempt(log, T.func.jvp, lambda x: x.mul_(2), (x,), (x.clone(),))
    log.append(x)
    attempt(log, T.func.grad(lambda x: (x * 1).mul_(2).sum()), x)
    attempt(log, T.func.grad(lambda x, c: (c.mul_(2) * x).sum()), x, T.ones(2, 2))

    def unrecorded(x):
        with T.no_grad():
            x.mul_(2)
        return (x * x).sum()

    log += [T.func.grad(unrecorded)(x), x]


@program
def captured_tensors(T, log):
    """What a function has from outside can't be written in it."""
    x, c = numbers(T, 2), T.ones(2, dtype=T.float64)
    computed = c.clone().requires_grad_() * 1

    def unrecorded(x):
        with T.no_grad():
            c.mul_(2)
        return (c * x).sum()

    def assigned(x):
        c[0] = 3.0
        return (c * x).sum()

    functions = [
        lambda x: c.mul_(x).sum(), lambda x: (c.add_(2) * x).sum(), lambda x: (c[:1].mul_(2) * x).sum(), unrecorded, assigned,
        lambda x: (c.zero_() * x).sum(), lambda x: (c.normal_() * x).sum(), lambda x: (c.detach().mul_(2) * x).sum(),
        lambda x: (computed.mul_(2) * x).sum(), lambda x: T.vmap(lambda y: c.mul_(2) * y)(x.view(1, 2)).sum(),
        lambda x: T.func.grad(lambda y: (c.mul_(2) * y).sum())(x).sum(),
    ]  # fmt: skip
    for f in functions:
        attempt(log, T.func.grad(f), x)
        attempt(log, T.func.jvp, f, (x,), (x,))
    for transform in (T.func.jacrev, T.func.jacfwd):
        attempt(log, transform(lambda x: c.mul_(2) * x), x)
    attempt(log, T.vmap(lambda c: T.func.grad(lambda x: (c.mul_(2) * x).sum())(x)), T.ones(3, 2))
    attempt(log, T.func.grad(lambda x: T.vmap(lambda c, x: c.mul_(2) * x)(c, x).sum()), x)
    log += [c, T.vmap(lambda x: c.mul_(2) * x)(x), c]

    def own(x):
        z = T.zeros(2, dtype=T.float64)
        z[0] = x[0]
        return z.add_(x).sum()

    log.append(T.func.grad(own)(x))


@program
def captured_modules(T, log):
    norm = T.nn.BatchNorm1d(2)
    x = numbers(T, 3, 2).float()
    attempt(log, T.func.grad(lambda x: norm(x).sum()), x)
    buffers = dict(norm.named_buffers())
    called = lambda x, buffers: T.func.functional_call(norm, buffers, (x,)).square().sum().detach() + x.sum()
    attempt(log, T.func.grad(called), x, buffers)
    copies = lambda x: called(x, {name: b.clone() for name, b in buffers.items()})
    attempt(log, T.func.grad(copies), x)
    log.append(norm.running_mean)


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])


def test_batch_norm_without_running_statistics_runs_under_vmap():
    import numpy as np
    import torch

    import backlight

    results = []
    for t in (torch, backlight):
        t.manual_seed(0)
        net = t.func.replace_all_batch_norm_modules_(t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4)))
        x = t.randn(5, 6, 3)
        results.append((repr(net), list(net.state_dict()), t.func.vmap(net)(x).detach().numpy()))
    assert results[0][:2] == results[1][:2]
    np.testing.assert_allclose(results[1][2], results[0][2], rtol=1e-4, atol=1e-5)
