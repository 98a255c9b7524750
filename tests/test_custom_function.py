"""autograd.Function under forward mode and function transforms, compared with PyTorch."""

from __future__ import annotations

import pytest
from both_packages import Programs, assert_same_log, attempt

program = Programs()


def numbers(T, *shape, seed=0):
    return T.randn(*shape, generator=T.Generator().manual_seed(seed), dtype=T.float64)


def jvp_of(T, function, primals, tangents):
    """Through forward_ad."""
    fwd = T.autograd.forward_ad
    with fwd.dual_level():
        duals = [x if t is None else fwd.make_dual(x, t) for x, t in zip(primals, tangents)]
        out = function(*duals)
        outs = out if isinstance(out, tuple) else (out,)
        return [tuple(fwd.unpack_dual(y)) if isinstance(y, T.Tensor) else y for y in outs]


def make(T, **members):
    return type("Custom", (T.autograd.Function,), {name: staticmethod(f) if callable(f) else f for name, f in members.items()})


def multiply(T, **members):
    """x * y * scale with everything."""

    def setup(ctx, inputs, output):
        x, y, ctx.scale = inputs
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)

    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * ctx.scale, g * x * ctx.scale, None

    def jvp(ctx, tx, ty, _scale):
        x, y = ctx.saved_tensors
        return (tx * y + x * ty) * ctx.scale

    given = {"forward": lambda x, y, scale: x * y * scale, "setup_context": setup, "backward": backward, "jvp": jvp}
    return make(T, **{**given, **members})


@program
def forward_mode(T, log):
    x, y, t, u = (numbers(T, 3, seed=i) for i in range(4))
    f = multiply(T).apply
    log += [
        jvp_of(T, f, (x, y, 2), (t, u, None)),
        jvp_of(T, f, (x, y, 2), (t, None, None)),
        jvp_of(T, f, (x, y, 2), (None, None, None)),
    ]
    log.append(T.func.jvp(lambda x, y: f(x, y, 3), (x, y), (t, u)))
    log.append(T.func.jvp(lambda x: f(x, x, 3), (x,), (t,)))
    seen = []

    def without_zeros(ctx, tx, ty, scale):
        seen.append([tx is None, ty is None, scale])
        return tx

    def setup(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    g = multiply(T, jvp=without_zeros, setup_context=setup).apply
    log += [jvp_of(T, g, (x, y, 2), (t, None, None)), seen]
    two = make(
        T,
        forward=lambda ctx, x: (x * 2, x * 3),
        backward=lambda ctx, a, b: a * 2 + b * 3,
        jvp=lambda ctx, t: (t * 2, t * 3),
    )
    log += [jvp_of(T, two.apply, (x,), (t,))]


@program
def wrong_jvps(T, log):
    x, t = numbers(T, 3), numbers(T, 3, seed=1)
    forward = lambda ctx, x: x * 2
    for jvp in (
        None, lambda ctx, t: (t, t), lambda ctx, t: t[:1], lambda ctx, t: 3, lambda ctx, t, u: t, lambda ctx, t: t.float(),
    ):  # fmt: skip
        f = make(T, forward=forward, **({} if jvp is None else {"jvp": jvp}))
        attempt(log, jvp_of, T, f.apply, (x,), (t,))
    f = make(T, forward=lambda ctx, x: x.argmax(), jvp=lambda ctx, t: t.sum())
    attempt(log, jvp_of, T, f.apply, (x,), (t,))
    f = make(T, forward=lambda ctx, x: x.view(3, 1), jvp=lambda ctx, t: t.view(3, 1) * 2)
    attempt(log, jvp_of, T, f.apply, (x,), (t,))
    f = make(T, forward=lambda ctx, x: x.view(3, 1), jvp=lambda ctx, t: t.view(3, 1))
    attempt(log, jvp_of, T, f.apply, (x,), (t,))
    f = make(T, forward=lambda ctx, x: x, jvp=lambda ctx, t: t.clone())
    attempt(log, jvp_of, T, f.apply, (x,), (t,))

    def in_place(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    for jvp in (lambda ctx, t: t.mul_(2), lambda ctx, t: t * 2):
        f = make(T, forward=in_place, jvp=jvp)
        attempt(log, jvp_of, T, lambda x, f=f: f.apply(x.clone()), (x,), (t,))
    f = make(T, forward=forward, save=None)

    def save(ctx, x):
        ctx.save_for_forward(3)
        return x

    attempt(log, make(T, forward=save).apply, x)


@program
def transforms(T, log):
    x, y, t = numbers(T, 3), numbers(T, 3, seed=1), numbers(T, 3, seed=2)
    f = lambda x, y: multiply(T).apply(x, y, 2)
    log += [T.func.grad(lambda x: f(x, y).sum())(x), T.func.vjp(f, x, y)[1](t), T.func.grad(lambda x: f(x, x).sin().sum())(x)]
    log.append(T.func.grad(lambda x: T.func.grad(lambda x: f(x, x).sin().sum())(x).sum())(x))
    log.append(T.func.jvp(T.func.grad(lambda x: f(x, x).sum()), (x,), (t,)))
    plain = make(T, forward=lambda ctx, x: x * 2, backward=lambda ctx, g: g * 2)
    attempt(log, T.func.grad(lambda x: plain.apply(x).sum()), x)
    attempt(log, T.func.vmap(plain.apply), x)
    attempt(log, T.func.jvp, plain.apply, (x,), (t,))
    no_backward = make(T, forward=lambda x: x * 2, setup_context=lambda ctx, inputs, output: None)
    attempt(log, T.func.grad(lambda x: no_backward.apply(x).sum()), x)
    attempt(log, T.func.jvp, no_backward.apply, (x,), (t,))
    attempt(log, T.func.vmap(no_backward.apply), x)
    attempt(log, lambda: no_backward.apply(x.requires_grad_()).sum().backward())


@program
def generated_vmap_rules(T, log):
    x, y = numbers(T, 4, 3), numbers(T, 4, 3, seed=1)
    f = multiply(T, generate_vmap_rule=True).apply
    vmap = T.func.vmap
    log += [
        vmap(lambda x, y: f(x, y, 2))(x, y),
        vmap(lambda x, y: f(x, y, 2), (0, None))(x, y[0]),
        vmap(lambda x: f(x, x, 2), 1, 1)(x),
    ]
    log.append(vmap(T.func.grad(lambda x, y: f(x, y, 2).sin().sum(), (0, 1)))(x, y))
    log.append(vmap(T.func.grad(lambda x, y: f(x, y, 2).sin().sum(), (0, 1)), (0, None))(x, y[0]))
    log.append(vmap(lambda x, y: T.func.jvp(lambda x: f(x, y, 2), (x,), (y,)))(x, y))
    log += [T.func.jacrev(lambda x: f(x, y, 2))(x), T.func.jacfwd(lambda x: f(x, y, 2))(x)]
    log.append(T.func.hessian(lambda x: f(x, x, 2).sum())(x[0]))
    log.append(vmap(vmap(lambda x, y: f(x, y, 2)), (None, 0))(x, y[None].expand(2, 4, 3)))
    x.requires_grad_()
    vmap(lambda x, y: f(x, y, 2))(x, y).sum().backward()
    log.append(x.grad)

    def forward(x):
        return x * 2, x.sum()

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs, *output)
        ctx.mark_non_differentiable(output[1])

    def backward(ctx, g, _):
        x, out, total = ctx.saved_tensors
        return g * 2 + out * total + x * 0

    two = make(T, forward=forward, setup_context=setup, backward=backward, generate_vmap_rule=True)
    log.append(vmap(two.apply)(y))
    log.append(vmap(T.func.grad(lambda x: two.apply(x)[0].sum()))(y))
    seen = []

    def see(x):
        seen.append(tuple(x.shape))
        return x * 2

    once = make(T, forward=see, setup_context=lambda ctx, i, o: None, backward=lambda ctx, g: g * 2, generate_vmap_rule=True)
    log += [vmap(once.apply)(y), seen]


@program
def vmap_staticmethods(T, log):
    x, y = numbers(T, 4, 3), numbers(T, 4, 3, seed=1)
    seen = []

    def rule(info, in_dims, x, y, scale):
        seen.append((info.batch_size, info.randomness, in_dims))
        x = x if in_dims[0] is None else x.movedim(in_dims[0], -1)
        y = y if in_dims[1] is None else y.movedim(in_dims[1], -1)
        if in_dims[0] is None:
            x = x.unsqueeze(-1)
        if in_dims[1] is None:
            y = y.unsqueeze(-1)
        return F.apply(x, y, scale), x.dim() - 1

    F = multiply(T, vmap=rule)
    vmap = T.func.vmap
    log += [vmap(lambda x, y: F.apply(x, y, 2))(x, y), vmap(lambda x, y: F.apply(x, y, 2), (0, None))(x, y[0])]
    log.append(vmap(T.func.grad(lambda x, y: F.apply(x, y, 2).sum()), (0, 0))(x, y))
    log.append(vmap(lambda x, y: F.apply(x, y, 2), randomness="same")(x, y))
    log.append([entry[:2] for entry in seen])
    log.append(vmap(lambda x: F.apply(T.ones(3).double(), T.ones(3).double(), 2) * x)(x))
    for result in (
        lambda info, dims, x: x,
        lambda info, dims, x: (x, 0, 0),
        lambda info, dims, x: (x, (0, 0)),
        lambda info, dims, x: ((x, x), 0),
    ):
        wrong = make(T, forward=lambda x: x, setup_context=lambda ctx, i, o: None, vmap=result)
        attempt(log, vmap(wrong.apply), x)
    both = multiply(T, vmap=rule, generate_vmap_rule=True)
    attempt(log, vmap(lambda x, y: both.apply(x, y, 2)), x, y)
    structured = make(
        T, forward=lambda x: (x, x * 2), setup_context=lambda ctx, i, o: None, vmap=lambda info, dims, x: ((x, x[0] * 2), (0, None)),
    )  # fmt: skip
    log.append(vmap(structured.apply)(x))
    log.append(vmap(lambda x: structured.apply(x)[0])(x))


@program
def needs_input_grad_under_transforms(T, log):
    seen = []

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, g):
        seen.append(tuple(ctx.needs_input_grad))
        x, y = ctx.saved_tensors
        return g * y, g * x

    f = make(T, forward=lambda x, y: x * y, setup_context=setup, backward=backward, generate_vmap_rule=True).apply
    x, y = numbers(T, 3), numbers(T, 3, seed=1)
    log.append(T.func.grad(lambda x: f(x, y).sum())(x))
    log.append(T.func.vmap(T.func.grad(lambda x, y: f(x, y).sum()))(x, y))
    f(x, y.requires_grad_()).sum().backward()
    log.append(seen)


@program
def vjp_as_a_name_for_backward(T, log):
    x = numbers(T, 3).requires_grad_()
    f = make(T, forward=lambda ctx, x: x * 2, vjp=lambda ctx, g: g * 5)
    log.append(T.autograd.grad(f.apply(x).sum(), x))
    both = make(T, forward=lambda ctx, x: x * 2, vjp=lambda ctx, g: g * 5, backward=lambda ctx, g: g)
    attempt(log, lambda: T.autograd.grad(both.apply(x).sum(), x))
    neither = make(T, forward=lambda ctx, x: x * 2)
    attempt(log, lambda: T.autograd.grad(neither.apply(x).sum(), x))
    attempt(log, make(T).apply, x)


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])
