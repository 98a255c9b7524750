"""Forward mode with dual tensors, compared with PyTorch."""

from __future__ import annotations

import importlib

import pytest
from both_packages import Programs, assert_same_log, attempt

program = Programs()


def forward_ad(T):
    return importlib.import_module(f"{T.__name__}.autograd.forward_ad")


def numbers(T, *shape, seed=0, dtype=None):
    return T.randn(*shape, generator=T.Generator().manual_seed(seed), dtype=dtype or T.float64)


@program
def dual_tensors(T, log):
    fwd = forward_ad(T)
    x, t = numbers(T, 3), numbers(T, 3, seed=1)
    with fwd.dual_level() as level:
        log.append(level)
        dual = fwd.make_dual(x, t)
        primal, tangent = fwd.unpack_dual(dual)
        log += [primal, tangent, tangent is t, dual is x, dual, dual._is_view(), type(fwd.unpack_dual(dual)).__name__]
        log += [fwd.unpack_dual(x), fwd.unpack_dual(dual.detach()), fwd.unpack_dual(dual.clone()), fwd.unpack_dual(dual + 1)]
        y = dual * 2
        with T.no_grad():
            log.append(fwd.unpack_dual(dual.sin()))
        log += [fwd.unpack_dual(dual.data), repr(dual), fwd._is_fwd_grad_enabled()]
        with fwd._set_fwd_grad_enabled(False):
            log += [fwd._is_fwd_grad_enabled(), fwd.unpack_dual(dual * 3).tangent]
        log.append(fwd.unpack_dual(dual * 3))
    log += [fwd.unpack_dual(y), fwd.unpack_dual(dual), fwd._current_level]

    @fwd.dual_level()
    def decorated(x):
        return fwd.unpack_dual(fwd.make_dual(x, t).exp()).tangent

    attempt(log, decorated, x)
    log += [fwd.enter_dual_level(), fwd._current_level, fwd.exit_dual_level()]


@program
def errors(T, log):
    fwd = forward_ad(T)
    x, t = T.ones(2), T.ones(2)
    attempt(log, fwd.make_dual, x, t)
    attempt(log, fwd.exit_dual_level)
    attempt(log, fwd.exit_dual_level, level=3)
    with fwd.dual_level():
        attempt(log, fwd.enter_dual_level)
        attempt(log, fwd.make_dual, x, T.ones(3))
        attempt(log, fwd.make_dual, x.int(), t)
        attempt(log, fwd.make_dual, x, t.int())
        attempt(log, fwd.make_dual, fwd.make_dual(x, t), t)
        attempt(log, fwd.make_dual, x, fwd.make_dual(x, t))
        attempt(log, fwd.make_dual, x, t, level=1)
        attempt(log, lambda: fwd.unpack_dual(fwd.make_dual(x, t.double())))
        attempt(log, lambda: T.add(fwd.make_dual(x, t), 1, out=T.ones(2)))
        attempt(log, lambda: T.add(x, 1, out=fwd.make_dual(x.clone(), t)))
    log.append(fwd._current_level)


@program
def formulas_of_every_kind(T, log):
    fwd, F = forward_ad(T), T.nn.functional
    x, y, m = numbers(T, 3), numbers(T, 3, seed=1), numbers(T, 3, 3, seed=2)
    functions = [
        lambda x, y, m: x * y + x / y, lambda x, y, m: x.sin().exp(), lambda x, y, m: x.pow(3) + y.abs().pow(x), lambda x, y, m: m @ x,
        lambda x, y, m: m.mm(m.t()), lambda x, y, m: x.sum() * y, lambda x, y, m: m.prod(0), lambda x, y, m: x.softmax(0),
        lambda x, y, m: m.logsumexp(1), lambda x, y, m: m.max(0).values, lambda x, y, m: m.sort(1).values, lambda x, y, m: m[1:, [0, 2]],
        lambda x, y, m: T.cat([x, y]), lambda x, y, m: T.stack([x, y], 1).flip(0), lambda x, y, m: T.linalg.inv(m),
        lambda x, y, m: T.linalg.det(m), lambda x, y, m: m.cumsum(1), lambda x, y, m: m.norm(), lambda x, y, m: m.std(0),
        lambda x, y, m: F.layer_norm(m, (3,), x, y), lambda x, y, m: F.conv1d(m[None], m[:, :, None]), lambda x, y, m: F.mse_loss(x, y),
        lambda x, y, m: F.cross_entropy(m, T.tensor([0, 1, 2])), lambda x, y, m: T.where(x > 0, x, y), lambda x, y, m: x.clamp(-0.5, 0.5),
        lambda x, y, m: T.einsum("ij,i,j", m, x, y), lambda x, y, m: F.linear(x, m, y), lambda x, y, m: m.gather(1, T.tensor([[0], [2], [1]])),
        lambda x, y, m: x.relu() + F.gelu(y), lambda x, y, m: T.linalg.eigvalsh(m + m.t()), lambda x, y, m: T.linalg.solve(m, x),
        lambda x, y, m: F.batch_norm(m, None, None, x, y, training=True), lambda x, y, m: T.fft.rfft(x).abs(), lambda x, y, m: x.repeat(2),
        lambda x, y, m: T.outer(x, y).diagonal(), lambda x, y, m: F.max_pool1d(m, 2), lambda x, y, m: m.tril().trace(),
    ]  # fmt: skip
    tangents = [numbers(T, *v.shape, seed=5 + i) for i, v in enumerate((x, y, m))]
    with fwd.dual_level():
        for function in functions:
            duals = [fwd.make_dual(v, t) for v, t in zip((x, y, m), tangents)]
            log.append(fwd.unpack_dual(function(*duals)))
            log.append(fwd.unpack_dual(function(duals[0], y, m)))
            log.append(fwd.unpack_dual(function(x, y, duals[2])))


@program
def types(T, log):
    fwd = forward_ad(T)
    with fwd.dual_level():
        x = fwd.make_dual(T.tensor([1.0, -2.0]), T.tensor([1.0, 3.0]))
        for y in (
            x.double(),
            x.half(),
            x.long(),
            x > 0,
            x.argmax(),
            x * T.ones(2, dtype=T.float64),
            x * T.arange(2),
            x + 1j,
            x.round(),
            x.sign(),
        ):
            log.append(fwd.unpack_dual(y))
        z = fwd.make_dual(T.complex(T.ones(2), T.ones(2)), T.complex(T.ones(2), -T.ones(2)))
        for y in (z * z, z.abs(), z.real, z.imag, z.conj() * 2, z.exp(), z.angle(), T.view_as_real(z), z.pow(2), (z * x).sum()):
            log.append(fwd.unpack_dual(y))


@program
def views_and_writes(T, log):
    fwd = forward_ad(T)
    x, t = numbers(T, 2, 3), numbers(T, 2, 3, seed=1)
    with fwd.dual_level():
        dual = fwd.make_dual(x.clone(), t.clone())
        view = dual[0]
        log.append(fwd.unpack_dual(view))
        view.mul_(2)
        log += [fwd.unpack_dual(dual), fwd.unpack_dual(view)]
        dual.t()[1:].copy_(T.zeros(2, 2))
        log += [fwd.unpack_dual(dual), fwd.unpack_dual(view)]
        for same in (
            dual.clone(),
            dual + 0,
            dual.double(),
            dual.contiguous(),
            dual.relu(),
            T.cat([dual]),
            dual.flatten(),
            dual.neg().neg(),
        ):
            same.add_(1).mul_(2)
            log += [fwd.unpack_dual(same).tangent, fwd.unpack_dual(dual).tangent]
        base = T.zeros(2, 3, dtype=T.float64)
        first = base[0]
        first.copy_(dual[1])
        log += [fwd.unpack_dual(base), fwd.unpack_dual(first), fwd.unpack_dual(base[1])]
        base = x.clone()
        base.add_(dual).sin_()
        log.append(fwd.unpack_dual(base))
        base[:, 1] = dual[:, 0] * 3
        log.append(fwd.unpack_dual(base))
        base.zero_()
        log.append(fwd.unpack_dual(base))
        dual = fwd.make_dual(x.clone(), t.clone())
        dual.detach().zero_()
        log.append(fwd.unpack_dual(dual))
        with T.no_grad():
            dual.add_(1)
        log.append(fwd.unpack_dual(dual))
        dual = fwd.make_dual(x.clone(), t.clone())
        primal = fwd.unpack_dual(dual).primal
        primal.mul_(3)
        log += [fwd.unpack_dual(dual), fwd.unpack_dual(dual.view(-1)[2:])]
        noncontiguous = fwd.make_dual(x.clone().t(), t.t().contiguous())
        part = noncontiguous[1]
        part.mul_(10)
        log.append(fwd.unpack_dual(noncontiguous))


@program
def over_reverse_mode(T, log):
    fwd = forward_ad(T)
    x, t = numbers(T, 3).requires_grad_(), numbers(T, 3, seed=1).requires_grad_()
    with fwd.dual_level():
        dual = fwd.make_dual(x, t)
        out = fwd.unpack_dual((dual**3).sum())
        log += [out.primal.requires_grad, out.tangent.requires_grad]
        log += [T.autograd.grad(out.tangent, (x, t), retain_graph=True), T.autograd.grad(out.primal, x)]
        y = fwd.make_dual(x.detach().requires_grad_(), t.detach())
        (g,) = T.autograd.grad((y**3).sum(), y, create_graph=True)
        log.append(fwd.unpack_dual(g))  # a Hessian-vector product, forward over reverse
        (g,) = T.autograd.grad((y**3).sum(), y)
        log.append(fwd.unpack_dual(g))
        w = T.ones(3, dtype=T.float64, requires_grad=True)
        (w * y).sum().backward()
        log.append(fwd.unpack_dual(w.grad))


@program
def modules(T, log):
    fwd = forward_ad(T)
    T.manual_seed(0)
    model = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.Tanh(), T.nn.BatchNorm1d(4), T.nn.Linear(4, 2))
    x, t = T.randn(5, 3), T.randn(5, 3)
    with fwd.dual_level():
        log.append(fwd.unpack_dual(model(fwd.make_dual(x, t))))
        params = {name: fwd.make_dual(p, T.ones_like(p)) for name, p in model.named_parameters()}
        log.append(fwd.unpack_dual(T.func.functional_call(model, params, (x,))))
    T.manual_seed(0)
    with fwd.dual_level():
        log.append(fwd.unpack_dual(T.nn.functional.dropout(fwd.make_dual(x, t), 0.5)))


@program
def linear_inside_functions(T, log):
    """Tangents that nobody gave are zero, and outputs without a tangent have none."""
    fwd = forward_ad(T)
    with fwd.dual_level():
        x = fwd.make_dual(T.ones(2), T.ones(2))
        a, b = T.ones(2), T.ones(2)
        log += [
            fwd.unpack_dual(a + b).tangent,
            fwd.unpack_dual(T.ones_like(x)).tangent,
            fwd.unpack_dual(x.new_zeros(2)).tangent,
        ]
        values, indices = x.sort()
        log += [fwd.unpack_dual(values), fwd.unpack_dual(indices).tangent]
        log += [fwd.unpack_dual(each).tangent for each in (T.zeros_like(x) * x, x.detach() * 2, x * 0)]
        log += [fwd.unpack_dual(each).tangent for each in (*x.split(1), *x.unbind(), x.expand(2, 2), x.view(2, 1))]


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])


def test_a_level_keeps_nothing_alive():
    import weakref

    import backlight as T

    fwd = forward_ad(T)
    with fwd.dual_level():
        x = fwd.make_dual(T.ones(3), T.ones(3))
        y = x * 2
        tangent = weakref.ref(fwd.unpack_dual(y).tangent)
        del y
        assert tangent() is None
        tangent = weakref.ref(fwd.unpack_dual(x).tangent)
    assert tangent() is None  # taken away when the level ended
