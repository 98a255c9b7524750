"""gradcheck and gradgradcheck: what they accept, and how they say what is wrong, compared with PyTorch."""

from __future__ import annotations

import pytest
import torch
from both_packages import Programs, assert_same_log, attempt

import backlight

program = Programs()


def numbers(T, *shape, seed=0, dtype=None):
    return T.randn(*shape, generator=T.Generator().manual_seed(seed), dtype=dtype or T.float64).requires_grad_()


def wrong(T, factor=2.0, forward_factor=1.0):
    """sin with a gradient that is wrong by a factor."""

    class Wrong(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos() * factor

        @staticmethod
        def jvp(ctx, t):
            (x,) = ctx.saved_tensors
            return t * x.cos() * forward_factor

    return Wrong.apply


def whole(log, function, *args, **kwargs):
    """Logs the result or all lines of the error."""
    try:
        log.append(function(*args, **kwargs))
    except Exception as error:
        log += [type(error).__name__, *(line.strip() for line in str(error).split("\n"))]


@program
def right_gradients(T, log):
    check, again = T.autograd.gradcheck, T.autograd.gradgradcheck
    x, y, m = numbers(T, 3), numbers(T, 3, seed=1), numbers(T, 2, 3, seed=2)
    for options in (
        {},
        {"fast_mode": True},
        {"check_forward_ad": True},
        {"check_batched_grad": True},
        {"check_undefined_grad": False},
    ):
        log += [
            check(T.exp, x, **options),
            check(lambda x, y: (x * y, x.sum()), (x, y), **options),
            check(T.mm, (m, m.detach().t().clone()), **options),
        ]
    log += [
        again(T.exp, x),
        again(lambda x, y: (x * y, x.sin()), (x, y)),
        again(T.exp, (x,), (y,)),
        again(T.exp, x, check_fwd_over_rev=True),
    ]
    log += [
        again(T.exp, x, fast_mode=True),
        again(T.exp, x, gen_non_contig_grad_outputs=True),
        again(T.exp, x, check_batched_grad=True),
    ]
    z = numbers(T, 2, dtype=T.complex128)
    for options in ({}, {"fast_mode": True}, {"check_forward_ad": True}):
        log += [check(lambda z: z * z, z, **options), check(T.abs, z, **options), check(lambda x: x * (1 + 2j), x, **options)]
        log.append(check(lambda z: (z.real, z.exp()), z, **options))
    log += [check(lambda x: x, T.ones(0, dtype=T.float64, requires_grad=True)), check(lambda n, x: x * n, (3, x))]
    log.append(check(T.exp, x, check_forward_ad=True, check_batched_forward_grad=True))


@program
def wrong_gradients(T, log):
    check = T.autograd.gradcheck
    x = T.tensor([0.0, 1.0], dtype=T.float64, requires_grad=True)
    whole(log, check, wrong(T), x)
    log.append(check(wrong(T), x, raise_exception=False))
    attempt(log, check, wrong(T), x, fast_mode=True)
    whole(log, check, wrong(T, 1.0, 2.0), x, check_forward_ad=True)
    attempt(log, check, wrong(T, 1.0, 2.0), x, check_forward_ad=True, check_backward_ad=False, fast_mode=True)
    log.append(check(wrong(T, 5.0), x, check_forward_ad=True, check_backward_ad=False))
    attempt(log, check, lambda x, y: (x, wrong(T)(y)), (x, x.detach().clone().requires_grad_()))
    z = T.tensor([1 + 1j], dtype=T.complex128, requires_grad=True)
    whole(log, check, lambda z: wrong(T)(z.real) + 1j * z.imag, z)
    attempt(log, check, lambda z: z.real + 1j * wrong(T)(z.imag), z)
    attempt(log, check, wrong(T), x, atol=10)
    attempt(log, check, wrong(T), x, rtol=10)


@program
def bad_backward(T, log):
    check = T.autograd.gradcheck
    x = T.tensor([0.5, 1.0], dtype=T.float64, requires_grad=True)
    state = [0.0]

    def function(backward):
        class F(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, g):
                return backward(g)

        return F.apply

    def unsteady(g):
        state[0] += 1e-7
        return g + state[0]

    attempt(log, check, function(unsteady), x)
    attempt(log, check, function(lambda g: g * 0 + 1), x)
    attempt(log, check, function(lambda g: g.detach()), x)
    attempt(log, T.autograd.gradgradcheck, function(lambda g: g.detach() ** 1), x)

    class Undefined(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g * 1

    attempt(log, check, Undefined.apply, x)

    class Constant(Undefined):
        @staticmethod
        def backward(ctx, g):
            return T.ones(2, dtype=T.float64) if g is None else g

    attempt(log, check, Constant.apply, x)

    class Confused(Undefined):
        @staticmethod
        def backward(ctx, g):
            if g is None:
                raise RuntimeError("no gradient")
            return g

    attempt(log, check, Confused.apply, x)
    log.append(check(Undefined.apply, x, check_undefined_grad=False))


@program
def inputs(T, log):
    check = T.autograd.gradcheck
    attempt(log, check, T.exp, T.ones(2))
    attempt(log, check, T.exp, T.ones(2, dtype=T.float64))
    attempt(log, check, T.exp, T.tensor([0.5], requires_grad=True))
    attempt(log, check, T.exp, T.tensor([0.5], dtype=T.float64, requires_grad=True).expand(3))
    x = numbers(T, 2)
    attempt(log, check, T.exp, x, check_backward_ad=False)
    attempt(log, check, T.exp, x, check_backward_ad=False, check_forward_ad=True, check_batched_grad=True)
    attempt(log, check, T.exp, x, check_batched_forward_grad=True)
    attempt(log, T.autograd.gradgradcheck, T.exp, x, check_rev_over_rev=False)
    attempt(log, T.autograd.gradgradcheck, T.exp, x, check_rev_over_rev=False, check_fwd_over_rev=True)
    attempt(log, check, lambda x: x.detach() * 2, x)
    attempt(log, check, lambda x: x.detach() * 0 + 1, x)
    attempt(log, check, lambda x: x.float() * 2, x)


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])


@pytest.mark.parametrize("noncontiguous", [False, True])
def test_gradgradcheck_draws_as_pytorch_does(noncontiguous):
    states = []
    for lib in (torch, backlight):
        lib.manual_seed(0)
        x = lib.ones(9, 2, dtype=lib.float64, requires_grad=True)
        w = lib.tensor([[3.0, 4.0], [0.5, 1.0]], dtype=lib.float64, requires_grad=True)
        both = lambda x, w, pair=lib.complex: (x @ w, pair(x, x))
        assert lib.autograd.gradgradcheck(both, (x, w), gen_non_contig_grad_outputs=noncontiguous)
        states.append(lib.get_rng_state().numpy())
    assert (states[0] == states[1]).all()
