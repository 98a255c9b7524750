"""utils.checkpoint, both modes, compared with PyTorch."""

from __future__ import annotations

import contextlib
import importlib
import tracemalloc

import pytest
from both_packages import Programs, assert_same_log, attempt

program = Programs()


def parts(T):
    return importlib.import_module(f"{T.__name__}.utils.checkpoint")


@program
def gradients(T, log):
    checkpoint = parts(T).checkpoint
    for reentrant in (False, True):
        x, w = T.tensor([1.0, 2.0], requires_grad=True), T.tensor([3.0, 4.0], requires_grad=True)
        calls = []

        def f(x, w=w, calls=calls):
            calls.append((T.is_grad_enabled(), x.requires_grad))
            return (x * w).sin() * x

        y = checkpoint(f, x, use_reentrant=reentrant)
        log += [y, type(y.grad_fn).__name__, list(calls)]
        y.sum().backward()
        log += [x.grad, w.grad, list(calls)]
        y = checkpoint(lambda a, b: (a * 2, b, 3), x, w, use_reentrant=reentrant)
        log.append(y)
        (y[0] * y[1]).sum().backward()
        log += [x.grad, w.grad]
        attempt(log, lambda x=x, f=f, r=reentrant: T.autograd.grad(checkpoint(f, x, use_reentrant=r).sum(), x))
        attempt(log, lambda x=x, f=f, r=reentrant: checkpoint(f, x, use_reentrant=r).sum().backward(inputs=[x]))
        attempt(log, lambda f=f, r=reentrant: checkpoint(f, T.ones(2), use_reentrant=r).sum().backward())
        with T.no_grad():
            log.append(checkpoint(f, x, use_reentrant=reentrant))
        y = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=reentrant).sum()
        y.backward(retain_graph=True)
        attempt(log, y.backward)
        attempt(log, y.backward)
        log.append(x.grad)


@program
def arguments(T, log):
    module = parts(T)
    checkpoint, x = module.checkpoint, T.ones(2, requires_grad=True)
    attempt(log, checkpoint, T.sin, x)
    attempt(log, checkpoint, lambda x, s: x * s, x, use_reentrant=True, s=2)
    attempt(log, checkpoint, lambda x, s: x.sin() * s, x, use_reentrant=False, s=2)
    attempt(log, checkpoint, T.sin, x, use_reentrant=True, debug=True)
    attempt(log, checkpoint, T.sin, x, use_reentrant=False, determinism_check="some")
    attempt(log, checkpoint, T.sin, x, use_reentrant=False, wrong=1)
    y = checkpoint(lambda d, n: (d["a"] * n).sin(), {"a": x}, 3, use_reentrant=False)
    log.append(T.autograd.grad(y.sum(), x))
    attempt(log, lambda: checkpoint(lambda x: x.detach(), x, use_reentrant=True).sum().backward())
    log.append(module.checkpoint(lambda x: None, x, use_reentrant=False))


@program
def random_numbers(T, log):
    checkpoint = parts(T).checkpoint
    for reentrant in (False, True):
        for preserve in (True, False):
            T.manual_seed(0)
            x = T.ones(100, requires_grad=True)
            y = checkpoint(
                lambda x: T.nn.functional.dropout(x * 2, 0.5).sin(), x, use_reentrant=reentrant, preserve_rng_state=preserve
            )
            between = T.rand(1)
            y.sum().backward()
            log += [y.sum(), between, x.grad.sum(), T.rand(1)]


@program
def nested(T, log):
    checkpoint = parts(T).checkpoint
    for early_stop in (True, False):
        calls = []

        def counted(name, f, calls=calls):
            def g(*args):
                calls.append(name)
                return f(*args)

            return g  # noqa: B023

        x = T.tensor([0.3, 0.5], requires_grad=True)
        inner = counted("inner", lambda x: x.sin().exp())
        middle = counted("middle", lambda x: checkpoint(inner, x.cos(), use_reentrant=False).tanh())  # noqa: B023
        outer = counted("outer", lambda x: checkpoint(middle, x * x, use_reentrant=False).sigmoid())  # noqa: B023
        with parts(T).set_checkpoint_early_stop(early_stop):
            y = checkpoint(outer, x, use_reentrant=False)
        log.append(list(calls))
        y.sum().backward()
        log += [x.grad, list(calls)]
        (g,) = T.autograd.grad(checkpoint(outer, x, use_reentrant=False).sum(), x, create_graph=True)
        log += [g, T.autograd.grad(g.sum(), x)]


@program
def early_stop(T, log):
    module = parts(T)
    for stop in (True, False):
        calls = []

        def f(x, calls=calls):
            y = x.sin().exp()
            calls.append("saved")
            y = y + 1
            calls.append("end")
            return y

        x = T.ones(2, requires_grad=True)
        with module.set_checkpoint_early_stop(stop):
            y = module.checkpoint(f, x, use_reentrant=False)
        y.sum().backward()
        log += [list(calls), x.grad]
        calls.clear()
        module.checkpoint(f, x, use_reentrant=False, early_stop=stop).sum().backward()
        log.append(list(calls))


@program
def different_runs(T, log):
    """A recomputation that does something else than the forward pass."""
    module = parts(T)
    for forward, again in (
        (lambda x: x.sin().exp(), lambda x: x.sin()),
        (lambda x: x.sin(), lambda x: x.sin().exp() * x),
        (lambda x: x.sin(), lambda x: x[:1].sin()),
        (lambda x: x.sin(), lambda x: x.double().sin()),
        (lambda x: x.sin(), lambda x: x),
    ):
        for check in ("default", "none"):
            for stop in (True, False):
                calls = []

                def f(x, forward=forward, again=again, calls=calls):
                    calls.append(1)
                    return (forward if len(calls) == 1 else again)(x)

                x = T.ones(2, requires_grad=True)
                with module.set_checkpoint_early_stop(stop):
                    y = module.checkpoint(f, x, use_reentrant=False, determinism_check=check)
                attempt(log, lambda y=y: y.sum().backward())


@program
def contexts(T, log):
    module = parts(T)
    entered = []

    @contextlib.contextmanager
    def named(name):
        entered.append(name)
        yield
        entered.append(f"end of {name}")

    x = T.ones(2, requires_grad=True)
    y = module.checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False, context_fn=lambda: (named("first"), named("second")))
    log.append(list(entered))
    y.sum().backward()
    log += [list(entered), x.grad]
    attempt(log, module.checkpoint, T.sin, x, use_reentrant=True, context_fn=lambda: (named("a"), named("b")))
    log.append(len(module.noop_context_fn()))


@program
def sequential(T, log):
    run = parts(T).checkpoint_sequential
    T.manual_seed(0)
    model = T.nn.Sequential(*[layer for _ in range(3) for layer in (T.nn.Linear(3, 3), T.nn.Tanh())])
    x = T.randn(2, 3)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    for segments in (1, 2, 3, 6):
        for reentrant in (False, True):
            model.zero_grad()
            run(model, segments, x.clone().requires_grad_(), use_reentrant=reentrant).sum().backward()
            log.append(all(T.allclose(p.grad, g) for p, g in zip(model.parameters(), expected)))
    attempt(log, run, model, 2, x.clone().requires_grad_())
    attempt(log, run, model, 2, x, use_reentrant=False, wrong=1)
    log.append(run([T.sin, T.exp], 2, T.ones(2), use_reentrant=False))


@program
def in_hooks_and_with_views(T, log):
    checkpoint = parts(T).checkpoint
    x = T.tensor([1.0, 2.0], requires_grad=True)

    def f(x):
        a = x.clone()
        a[0] = x[1] * 2
        a.mul_(x)
        return a.sin(), a

    y, a = checkpoint(f, x, use_reentrant=False)
    log.append(T.autograd.grad((y * a).sum(), x))
    y = checkpoint(lambda x: x.exp(), x, use_reentrant=False)
    y.register_hook(lambda g: g * 2)
    log.append(T.autograd.grad(y.sum(), x))
    y = checkpoint(lambda x: x.exp().sin(), x, use_reentrant=False)
    log += [y.grad_fn._saved_self, y.grad_fn._saved_self]
    log.append(T.autograd.grad(y.sum(), x))
    w = T.ones(2, requires_grad=True)

    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x

    checkpoint(lambda x: Square.apply(x * w), x, use_reentrant=False).sum().backward()
    log += [w.grad, x.grad]


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])


@pytest.mark.parametrize("reentrant", [False, True])
def test_memory_is_freed(reentrant):
    import backlight as T

    checkpoint = parts(T).checkpoint
    n = 10

    def block(x):
        for _ in range(n):
            x = x.sin()
        return x

    def held(run):
        x = T.ones(100_000, requires_grad=True)
        tracemalloc.start()
        y = run(x)
        size = tracemalloc.get_traced_memory()[0]
        y.sum().backward()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert x.grad is not None
        return size / x.nbytes, after / x.nbytes

    plain, _ = held(block)
    saved, after = held(lambda x: checkpoint(block, x, use_reentrant=reentrant))
    assert plain > n - 1
    assert saved < 1.5  # the output
    assert after < 2.5  # the output and the gradient


def test_debug_names_the_lines():
    import backlight as T

    module = parts(T)
    calls = []

    def f(x):
        calls.append(1)
        y = x.sin()
        return y.exp() if len(calls) == 1 else y

    y = module.checkpoint(f, T.ones(2, requires_grad=True), use_reentrant=False, debug=True)
    with pytest.raises(module.CheckpointError, match="(?s)test_checkpoint.py.*y = x.sin.*recomputation.*y = x.sin"):
        y.sum().backward()
