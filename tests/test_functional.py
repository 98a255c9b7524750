"""autograd.functional: vjp, jvp, jacobian, hessian, vhp, hvp, compared with PyTorch."""

from __future__ import annotations

import pytest
from both_packages import Programs, assert_same_log, attempt

program = Programs()
PRODUCTS = ("vjp", "jvp", "vhp", "hvp")


def numbers(T, *shape, seed=0):
    return T.randn(*shape, generator=T.Generator().manual_seed(seed), dtype=T.float64)


@program
def products(T, log):
    functional = T.autograd.functional
    x, y, v = numbers(T, 3), numbers(T, 3, seed=1), numbers(T, 3, seed=2)
    one = lambda x: (x**3).sum()
    two = lambda x, y: (x**3 * y.sin()).sum()
    pair = lambda x, y: (x * y, (x**2).sum())
    for name in PRODUCTS:
        product = getattr(functional, name)
        for strict in (False, True):
            log.append(product(one, x, T.tensor(2.0, dtype=T.float64) if name == "vjp" else v, strict=strict))
            log.append(product(two, (x, y), T.tensor(2.0, dtype=T.float64) if name == "vjp" else (v, x), strict=strict))
        log.append(product(lambda x: (x**3).sum(), x[:1]))
    log.append(functional.vjp(pair, (x, y), (v, v.sum())))
    log.append(functional.jvp(pair, (x, y), (v, v)))
    log.append(functional.vjp(lambda x: x * 2, x, v))
    log.append(functional.jvp(lambda x: (x * 2, x[0]), x, v))


@program
def differentiated_again(T, log):
    functional = T.autograd.functional
    for name in PRODUCTS:
        x, v = numbers(T, 3).requires_grad_(), numbers(T, 3, seed=2).requires_grad_()
        f = (lambda x: x.exp() * x.sum()) if name in ("vjp", "jvp") else (lambda x: (x.exp() * x.sum()).sum())
        out, product = getattr(functional, name)(f, x, v, create_graph=True)
        log += [out, product, T.autograd.grad(product.sum(), (x, v), retain_graph=True), T.autograd.grad(out.sum(), x)]
        out, product = getattr(functional, name)(f, x, v)
        log += [out, product]
    for vectorize in (False, True):
        x = numbers(T, 3).requires_grad_()
        j = functional.jacobian(lambda x: x.exp() * x.sum(), x, create_graph=True, vectorize=vectorize)
        log += [j, T.autograd.grad(j.sum(), x)]
        h = functional.hessian(lambda x: (x.exp() * x.sum()).sum(), x, create_graph=True, vectorize=vectorize)
        log += [h, T.autograd.grad(h.sum(), x)]
        with T.no_grad():
            log.append(functional.jacobian(lambda x: x**2, x, vectorize=vectorize))


@program
def jacobians(T, log):
    jacobian = T.autograd.functional.jacobian
    x, y = numbers(T, 2), numbers(T, 3, seed=1)
    pair = lambda x, y: (x.outer(y), x.sum() * y.sum())
    settings = [{}, {"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}]
    for options in settings:
        log += [
            jacobian(T.sin, x, **options),
            jacobian(lambda x, y: x.outer(y), (x, y), **options),
            jacobian(pair, (x, y), **options),
        ]
        log += [
            jacobian(lambda x: (x * 2,), x, **options),
            jacobian(T.sin, (x,), **options),
            jacobian(lambda x: x.sum(), x, **options),
        ]
        attempt(log, jacobian, lambda x: T.ones(2, dtype=T.float64), x, **options)
        attempt(log, jacobian, lambda x, y: x * 2, (x, y), **options)
        attempt(log, jacobian, lambda x: (x, T.ones(2)), x, **options)
        attempt(log, jacobian, lambda x: x.float() * 2, x, **options)
        attempt(log, jacobian, lambda x: 3, x, **options)
        attempt(log, jacobian, lambda x: [x], x, **options)
        attempt(log, jacobian, T.sin, [x], **options)
        attempt(log, jacobian, T.sin, (x, 3), **options)
        attempt(log, jacobian, T.sin, x, strict=True, **options)
        attempt(log, jacobian, T.sin, x, create_graph=True, **options)
        attempt(log, jacobian, lambda x: x * (1 + 1j), x, **options)
    attempt(log, jacobian, T.sin, x, strategy="sideways")
    attempt(log, jacobian, T.sin, x, strategy="forward-mode")


@program
def hessians(T, log):
    hessian = T.autograd.functional.hessian
    x, y = numbers(T, 2), numbers(T, 3, seed=1)
    settings = [{}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}]
    for options in settings:
        log += [hessian(lambda x: (x**3).sum(), x, **options), hessian(lambda x, y: (x.outer(y) ** 2).sum(), (x, y), **options)]
        log += [hessian(lambda x: (x**3).sum()[None, None], x, **options), hessian(lambda x: (x**3).sum(), (x,), **options)]
        attempt(log, hessian, lambda x: x.sum(), x, **options)
        attempt(log, hessian, lambda x: x, x, **options)
        attempt(log, hessian, lambda x: (x.sum(), x.sum()), x, **options)
        attempt(log, hessian, lambda x: 3, x, **options)
        attempt(log, hessian, lambda x: T.ones(()), x, **options)
        attempt(log, hessian, lambda x: (x**2).sum(), x, strict=True, **options)
        attempt(log, hessian, lambda x: (x**2).sum(), x, create_graph=True, **options)
    attempt(log, hessian, lambda x: x.sum(), x, strict=True)
    attempt(log, hessian, lambda x, y: (x**2).sum(), (x, y), strict=True)
    attempt(log, hessian, lambda x: (x**2).sum(), x, outer_jacobian_strategy="forward-mode")
    attempt(log, hessian, lambda x: (x**2).sum(), x, outer_jacobian_strategy="sideways")


@program
def wrong_arguments(T, log):
    functional = T.autograd.functional
    x = numbers(T, 3)
    for name in PRODUCTS:
        product = getattr(functional, name)
        reduced = (lambda x: x.sum()) if name in ("vhp", "hvp") else (lambda x: x * 2)
        attempt(log, product, reduced, x)
        attempt(log, product, reduced, 3, x)
        attempt(log, product, reduced, (x, 3), x)
        attempt(log, product, reduced, x, 3)
        attempt(log, product, reduced, x, (x, x))
        attempt(log, product, reduced, x, T.ones(2))
        attempt(log, product, lambda x, y: reduced(x * y), (x, x), (x,))  # noqa: B023
        attempt(log, product, lambda x, y: (reduced(x), reduced(y)), (x, x), (x, T.ones(2)))  # noqa: B023
        attempt(log, product, lambda x: 3, x, x)
        attempt(log, product, lambda x: [x], x, x)
        attempt(log, product, lambda x: (x, 3), x, x)
        attempt(log, product, lambda x: x.sum(), x, x)
        attempt(log, product, lambda x: (x.sum(), x.sum()), x, (x, x))


@program
def strict_mode(T, log):
    """Outputs and derivatives that don't depend on an input: zeros, or an error."""
    functional = T.autograd.functional
    x, y, v = numbers(T, 3), numbers(T, 3, seed=1), numbers(T, 3, seed=2)
    constant = lambda x: T.ones(3, dtype=T.float64)
    one_of_two = lambda x, y: x * 2
    linear = lambda x: x * 2
    for strict in (False, True):
        for create_graph in (False, True):
            options = {"strict": strict, "create_graph": create_graph}
            for f, inputs, vectors in ((constant, x, v), (one_of_two, (x, y), (v, v)), (linear, x, v)):
                attempt(log, functional.vjp, f, inputs, v, **options)
                attempt(log, functional.jvp, f, inputs, vectors, **options)
                attempt(log, functional.jacobian, f, inputs, **options)
                for name in ("vhp", "hvp"):
                    attempt(log, getattr(functional, name), lambda *xs, f=f: f(*xs).sum(), inputs, vectors, **options)
                    attempt(log, getattr(functional, name), lambda *xs, f=f: (f(*xs) ** 2).sum(), inputs, vectors, **options)
                attempt(log, functional.hessian, lambda *xs, f=f: (f(*xs) ** 2).sum(), inputs, **options)
            leaf = x.clone().requires_grad_()
            attempt(log, functional.vjp, lambda x: (x, T.ones(2)), leaf, (v, T.ones(2)), **options)
            attempt(log, functional.jvp, lambda x: (x, T.ones(2)), leaf, v, **options)


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])
