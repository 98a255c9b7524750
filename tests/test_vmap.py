"""vmap, compared with PyTorch: dimensions, structures, nesting, randomness, in-place writes, indexing, errors, models."""

from __future__ import annotations

import pytest
from both_packages import Programs, assert_same_log, attempt

program = Programs()


def numbers(T, *shape, seed=0):
    return T.randn(*shape, generator=T.Generator().manual_seed(seed), dtype=T.float64)


@program
def dimensions(T, log):
    vmap = T.func.vmap
    x, y = numbers(T, 2, 3, 4), numbers(T, 3, 2, seed=1)
    log += [vmap(T.sum)(x), vmap(T.sum, 1)(x), vmap(T.sum, -1)(x), vmap(lambda x: x * 2, 1, 2)(x), vmap(lambda x: x, 2, -1)(x)]
    log += [vmap(lambda x, y: x.sum(0) * y[0], (0, 1))(x, y), vmap(lambda x, y: x @ x.t() + y.sum(), (0, None))(x, y)]
    log += [
        vmap(lambda x: (x, x.sum()), out_dims=(1, 0))(x),
        vmap(lambda x: {"a": x, "b": [x.sum(1)]}, out_dims={"a": 1, "b": [-1]})(x),
    ]
    log += [
        vmap(lambda t: t[0] * t[1]["k"], ((0, {"k": 1}),))((x[0], {"k": x[1].t()})),
        vmap(lambda x, n: x * n, (0, None))(x, 3),
    ]
    log += [vmap(lambda x: (x, 5), out_dims=(0, None))(x), vmap(lambda x: T.ones(2))(x), vmap(lambda x, y: y, (0, None))(x, y)]
    shapes = []
    vmap(lambda x: shapes.append((tuple(x.shape), x.dim(), x.numel(), x.is_contiguous(), x.dtype == T.float64)) or x)(x)
    log += [shapes, vmap(lambda x, scale=1: x * scale)(x, scale=2), T.vmap(T.cos)(x)]
    log.append(vmap(lambda *xs: sum(xs))(x, x, x))
    log.append(vmap(T.sum).__name__)


@program
def dimension_errors(T, log):
    vmap, x = T.func.vmap, T.ones(2, 3)
    f = lambda x: x
    f.__name__ = "f"
    g = lambda x, y: x
    g.__name__ = "g"
    attempt(log, vmap(f))
    attempt(log, vmap(f), 3)
    attempt(log, vmap(f, 2), x)
    attempt(log, vmap(f, -3), x)
    attempt(log, vmap(f, None), x)
    attempt(log, vmap(f, "a"), x)
    attempt(log, vmap(f, [0]), x)
    attempt(log, vmap(f, (0, 0)), x)
    attempt(log, vmap(f, ({"a": 0},)), [x])
    attempt(log, vmap(f, ("a",)), x)
    attempt(log, vmap(f, (0.5,)), x)
    attempt(log, vmap(g), x, T.ones(3))
    attempt(log, vmap(g, (0, None)), x)
    attempt(log, vmap(f), T.tensor(3.0))
    attempt(log, vmap(f), T.ones(0, 3))
    for out_dims in (2, -3, "a", 0.5, (0, 0), [0], {"a": 0}, None):
        attempt(log, vmap(f, out_dims=out_dims), x)
    pair = lambda x: (x, x)
    pair.__name__ = "pair"
    for out_dims in ((0,), (0, 0, 0), (0, "a"), (0, None), {"a": 0}):
        attempt(log, vmap(pair, out_dims=out_dims), x)
    number = lambda x: 3
    number.__name__ = "number"
    attempt(log, vmap(number), x)
    nothing = lambda x: None
    nothing.__name__ = "nothing"
    attempt(log, vmap(nothing), x)
    attempt(log, vmap, f, randomness="some")
    attempt(log, vmap, f, chunk_size=0)
    attempt(log, vmap, f, chunk_size=-1)


@program
def values_are_out_of_reach(T, log):
    vmap, x = T.func.vmap, T.ones(2)
    attempt(log, vmap(lambda x: x if x > 0 else -x), x)
    attempt(log, vmap(lambda x: x.item()), x)
    attempt(log, vmap(lambda x: T.ones(3) * float(x)), x)
    attempt(log, vmap(lambda x: x.numpy()), x)
    attempt(log, vmap(lambda x: x.tolist()), x)
    attempt(log, vmap(lambda x: x[x > 0]), T.ones(2, 3))
    attempt(log, vmap(lambda x: T.tensor([1.0])[x > 0]), T.ones(2, 1))


@program
def chunks(T, log):
    x, y = numbers(T, 5, 3), numbers(T, 3, 5, seed=1)
    f = lambda x, y, z: (x * y, {"s": (x * z).sum()})
    whole = T.func.vmap(f, (0, 1, None), (1, 0))(x, y, y[:, 0])
    for size in (1, 2, 5, 9):
        log.append(T.func.vmap(f, (0, 1, None), (1, 0), chunk_size=size)(x, y, y[:, 0]))
    log.append(whole)
    seen = []
    T.func.vmap(lambda x: seen.append(1) or x, chunk_size=2)(x)
    log.append(len(seen))
    T.manual_seed(0)
    log.append(T.func.vmap(lambda x: x + T.rand(()), randomness="different", chunk_size=2)(x))
    T.manual_seed(0)
    log.append(T.func.vmap(lambda x: x + T.rand(()), randomness="same", chunk_size=2)(x))


@program
def nested(T, log):
    vmap = T.func.vmap
    x, y, z = numbers(T, 2), numbers(T, 3, seed=1), numbers(T, 4, seed=2)
    outer = vmap(vmap(vmap(lambda x, y, z: x * y + z, (None, None, 0)), (None, 0, None)), (0, None, None))
    log.append(outer(x, y, z))
    a = numbers(T, 2, 3, 4)
    log += [vmap(vmap(T.sum))(a), vmap(vmap(T.sum, 1), 2)(a), vmap(vmap(lambda x: x, 1, 1), 2, 0)(a)]
    log.append(vmap(lambda a: vmap(lambda b: a.t() @ b, 1)(a))(a))
    log.append(vmap(lambda a: vmap(T.func.grad(lambda b: (b.sin() * a.sum()).sum()))(a))(a))
    log.append(vmap(lambda i: vmap(lambda j: i * 10 + j)(T.arange(3)))(T.arange(2)))


@program
def randomness(T, log):
    vmap, x = T.func.vmap, T.zeros(3, 2)
    functions = [
        lambda x: x + T.rand(2), lambda x: x + T.randn(2), T.rand_like, T.randn_like, T.bernoulli,
        lambda x: T.nn.functional.dropout(x + 1, 0.5), lambda x: T.randint(0, 9, (2,)) + x, lambda x: T.randperm(4),
        lambda x: x.clone().normal_(), lambda x: x.clone().uniform_(), lambda x: T.multinomial(x + 1, 2),
        lambda x: x.clone().bernoulli_(0.5), lambda x: x.clone().exponential_(), lambda x: T.nn.functional.alpha_dropout(x + 1, 0.5, True),
        lambda x: T.nn.functional.dropout2d(x.expand(1, 2, 2, 2) + 1, 0.5),
    ]  # fmt: skip
    for function in functions:
        for mode in ("error", "same", "different"):
            T.manual_seed(0)
            attempt(log, vmap(function, randomness=mode), x)
    T.manual_seed(0)
    log.append(vmap(vmap(lambda x: x + T.rand(()), randomness="same"), randomness="different")(x))
    log.append(vmap(vmap(lambda x: x + T.rand(()), randomness="different"), randomness="same")(x))
    log.append(vmap(vmap(lambda x: x + T.rand(()), randomness="different"), randomness="different")(x))
    attempt(log, vmap(vmap(lambda x: x + T.rand(()), randomness="same")), x)
    attempt(log, vmap(lambda x: x + T.rand(2, generator=T.Generator().manual_seed(1)), randomness="different"), x)


@program
def in_place(T, log):
    vmap = T.func.vmap
    x, y = numbers(T, 3, 2), numbers(T, 3, 2, seed=1)
    a = x.clone()
    log += [vmap(lambda a, y: a.mul_(y))(a, y), a]
    a = x.clone()
    log += [vmap(lambda a: a.add_(1).sin_().zero_(), 1)(a), a]
    a = x.clone()

    def part(a, y):
        a[0] = y[1]
        a[1:] *= 2
        a.view(2)[1] += y[0]
        return a

    log += [vmap(part)(a, y), a]
    attempt(log, vmap(lambda a, y: a.mul_(y), (None, 0)), x[0].clone(), y)
    attempt(log, vmap(lambda a, y: a.copy_(y), (None, 0)), x[0].clone(), y)
    attempt(log, vmap(vmap(lambda a, y: a.mul_(y), (None, 0)), (0, None)), x.clone(), y)
    log.append(vmap(lambda a, y: y.mul_(a), (None, 0))(x[0].clone(), y.clone()))
    log.append(vmap(lambda y: T.zeros(2, dtype=T.float64) + y.clone().fill_(3))(y))
    log.append(vmap(lambda y: y.new_zeros(2).add_(y))(y))
    log.append(vmap(lambda a, y: a.clone().masked_fill_(y > 0, 0.5))(x, y))
    log.append(vmap(lambda a, y: a.clone().clamp_(min=0).sub_(y, alpha=2))(x, y))
    leaf = numbers(T, 3, 2).requires_grad_()
    out = vmap(lambda a: a.clone().mul_(2).exp_())(leaf)
    out.sum().backward()
    log.append(leaf.grad)


@program
def indexing(T, log):
    vmap = T.func.vmap
    x = numbers(T, 2, 3, 4)
    i, j = T.tensor([2, 0]), T.tensor([[0, 1], [3, 3]])
    log += [vmap(lambda x: x[1])(x), vmap(lambda x: x[:, 1:3])(x), vmap(lambda x: x[..., -1])(x), vmap(lambda x: x[None, 0])(x)]
    log += [
        vmap(lambda x: x[[0, 2]])(x),
        vmap(lambda x: x[:, [0, 2]])(x),
        vmap(lambda x: x[T.tensor([0, 1]), T.tensor([1, 2])])(x),
    ]
    log += [vmap(lambda x, i: x[i])(x, i), vmap(lambda x, j: x[:, j])(x, j), vmap(lambda x, i, j: x[i, j])(x, i, j)]
    log += [vmap(lambda x, j: x[[0, 2], j])(x, j), vmap(lambda x, j: x[j[0] % 3, :, None][None])(x, j)]
    log += [vmap(lambda x, j: x[1:, j], (None, 0))(x[0], j), vmap(lambda x, j: x[j % 3, 1], (0, None))(x, j)]
    log.append(vmap(lambda x: x[T.tensor([True, False, True])])(x))
    log += [vmap(lambda x, j: x.gather(1, j[None].expand(3, 2)))(x, j), vmap(lambda x, j: x.index_select(1, j))(x, j)]
    log += [vmap(lambda x, j: x.take(j))(x, j), vmap(lambda x, j: T.take_along_dim(x, j[None], 1))(x, j)]

    def write(x, j):
        x = x.clone()
        x[0, j] = x[1, :2]
        x[:, 0] = 7.0
        return x

    log += [vmap(write)(x, T.tensor([[0, 1], [3, 2]])), vmap(T.func.grad(lambda x, j: x[0, j].sin().sum()))(x, j)]
    log.append(vmap(lambda x, j: x.index_put((j % 3, j), T.ones(2, dtype=T.float64), accumulate=True))(x, j))
    log.append(vmap(lambda x, j: x.index_add(1, j, x[:, :2]))(x, j))
    log.append(vmap(lambda x, j: x.scatter_add(1, j[None].expand(3, 2), x))(x, j))
    log.append(vmap(lambda j: T.nn.functional.one_hot(j, 4))(j))
    log.append(vmap(lambda w, j: T.nn.functional.embedding(j, w))(x.transpose(1, 2), j))


@program
def operations(T, log):
    """Some of each kind: elementwise with promotion, reductions, shapes, products, sorting, norms, linalg."""
    F, vmap = T.nn.functional, T.func.vmap
    x, y, v = numbers(T, 2, 3, 3), numbers(T, 2, 3, seed=1), numbers(T, 3, seed=2)
    scalars = T.tensor([1.5, 2.5], dtype=T.float64)
    functions = [
        lambda x, y: x * y, lambda x, y: x + v, lambda x, y: v / y, lambda x, y: T.where(x > 0, x, y), lambda x, y: x.sum(0).max(),
        lambda x, y: x.sum((0, 1)), lambda x, y: x.mean(-1, keepdim=True), lambda x, y: x.std(0), lambda x, y: x.prod(),
        lambda x, y: x.var(), lambda x, y: x.norm(), lambda x, y: x.norm(dim=1), lambda x, y: x.argmax(), lambda x, y: x.argmin(1),
        lambda x, y: x.max(1).values, lambda x, y: x.sort(0).indices, lambda x, y: x.topk(2, 1).values, lambda x, y: x.cumsum(0),
        lambda x, y: x.logsumexp(0), lambda x, y: x.softmax(1), lambda x, y: x.t(), lambda x, y: x.transpose(0, 1).reshape(-1),
        lambda x, y: x.permute(1, 0).contiguous(), lambda x, y: x.unsqueeze(1).squeeze(1), lambda x, y: x.flatten(),
        lambda x, y: x.expand(2, 3, 3), lambda x, y: y.repeat(2, 2), lambda x, y: T.cat([x, y[None]], 0), lambda x, y: T.stack([y, v], 1),
        lambda x, y: x.chunk(2)[1], lambda x, y: x.split([1, 2], 1)[1], lambda x, y: x.unbind(1)[0], lambda x, y: x.flip(0),
        lambda x, y: x.roll(1), lambda x, y: x.roll(1, 0), lambda x, y: x.diagonal(), lambda x, y: x.tril(), lambda x, y: y.diag(),
        lambda x, y: x.trace(), lambda x, y: x @ y, lambda x, y: y @ x, lambda x, y: x @ v, lambda x, y: v @ x, lambda x, y: y.dot(v),
        lambda x, y: x.mm(x), lambda x, y: y.outer(v), lambda x, y: T.einsum("ij,j->i", x, v), lambda x, y: x.addmm(x, x, beta=2),
        lambda x, y: F.linear(y, x, v), lambda x, y: F.layer_norm(x, (3,), y, v), lambda x, y: F.gelu(x), lambda x, y: F.mse_loss(y, v),
        lambda x, y: F.cross_entropy(x, T.tensor([0, 2, 1])), lambda x, y: F.cross_entropy(y, T.tensor(1)), lambda x, y: F.pad(x, (1, 0)),
        lambda x, y: T.linalg.inv(x), lambda x, y: T.linalg.det(x), lambda x, y: T.linalg.solve(x, y), lambda x, y: T.linalg.svdvals(x),
        lambda x, y: F.avg_pool2d(x[None], 2), lambda x, y: F.max_pool1d(x, 2), lambda x, y: F.conv1d(x[None], x[:, :, None]),
        lambda x, y: F.conv1d(x[None], T.ones(2, 3, 2).double()), lambda x, y: x.to(T.float32), lambda x, y: x.long() % 2,
        lambda x, y: x.clamp(-0.5, 0.5), lambda x, y: T.ones_like(x), lambda x, y: x.new_full((2,), 3.0), lambda x, y: x.isnan().any(),
        lambda x, y: (x > 0).all(1), lambda x, y: T.tensordot(x, x, 1),
        lambda x, y: T.logical_and(x > 0, y > 0), lambda x, y: T.searchsorted(v.sort().values, y), lambda x, y: T.cdist(x, x),
        lambda x, y: F.cosine_similarity(x, y[None], 1), lambda x, y: F.normalize(x), lambda x, y: T.meshgrid(y, v, indexing="ij")[0],
    ]  # fmt: skip
    for function in functions:
        log.append(vmap(function)(x, y))
        log.append(vmap(T.func.grad(lambda x, y, f=function: (f(x, y).double() * 2).sum().sin()))(x, y))
    f = T.tensor([1.0, 2.0])
    log += [
        vmap(lambda s, f: s * f)(scalars, f),
        vmap(lambda s: s * T.ones(3))(scalars),
        vmap(lambda s: T.ones(3).int() * s)(f),
    ]
    log += [vmap(lambda s, x: x * s)(scalars, T.ones(2, 3)), vmap(lambda s: s + 1j)(f), vmap(lambda i: i / 2)(T.arange(3))]


@program
def gradients_through(T, log):
    x, w = numbers(T, 3, 2).requires_grad_(), numbers(T, 2, seed=1).requires_grad_()
    out = T.func.vmap(lambda x: (x * w).sin().sum())(x)
    log.append(T.autograd.grad(out.sum(), (x, w), create_graph=True))
    out = T.func.vmap(lambda x, w: x.dot(w), (0, None))(x, w)
    out.sum().backward()
    log += [x.grad, w.grad]
    with T.no_grad():
        log.append(T.func.vmap(lambda x: x * 2)(x))


@program
def per_sample_gradients(T, log):
    F, func = T.nn.functional, T.func
    T.manual_seed(0)
    nn = T.nn
    mlp = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
    cnn = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip
    labels = T.tensor([0, 2, 1, 1])
    weight = T.tensor([1.0, 2.0, 0.5])
    for model, x in ((mlp, T.randn(4, 6)), (cnn, T.randn(4, 1, 8, 8))):
        params = {name: p.detach() for name, p in model.named_parameters()}
        for options in ({}, {"weight": weight}, {"reduction": "sum", "ignore_index": 2}):

            def loss(params, x, label, model=model, options=options):
                logits = func.functional_call(model, params, (x.unsqueeze(0),))
                return F.cross_entropy(logits, label.unsqueeze(0), **options)

            grads, values = func.vmap(func.grad_and_value(loss), (None, 0, 0))(params, x, labels)
            log += [grads, values]
        log.append(func.vmap(func.grad(loss), (None, 0, 0), chunk_size=3)(params, x, labels))


@program
def ensembles(T, log):
    T.manual_seed(0)
    nn, func = T.nn, T.func

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, x):
            return self.last(self.norm(self.first(x)).relu().mean(-1))

    models = [Model() for _ in range(3)]
    for m in models:
        m.norm.running_mean.uniform_()
    x = T.randn(3, 5, 2, 6)
    for training in (False,):
        for m in models:
            m.train(training)
        params, buffers = func.stack_module_state(models)
        call = lambda p, b, x: func.functional_call(models[0], (p, b), (x,))
        out = func.vmap(call)(params, buffers, x)
        log += [out, func.vmap(call, (0, 0, None))(params, buffers, x[0]), T.stack([m(x[i]) for i, m in enumerate(models)])]
        out.sum().backward()
        log.append({name: p.grad for name, p in params.items()})


@program
def batch_norm(T, log):
    F, vmap = T.nn.functional, T.func.vmap
    x, w, b = numbers(T, 3, 4, 2, 5), numbers(T, 3, 2, seed=1), numbers(T, 3, 2, seed=2)
    mean, var = T.zeros(3, 2, dtype=T.float64), T.ones(3, 2, dtype=T.float64)
    log.append(vmap(lambda x: F.batch_norm(x, None, None, training=True))(x))
    log.append(vmap(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True))(x, w, b))
    log.append(vmap(lambda x, w: F.batch_norm(x, None, None, w, None, training=True), (None, 0))(x[0], w))
    log += [vmap(lambda x, m, v: F.batch_norm(x, m, v, training=True))(x, mean, var), mean, var]
    log += [vmap(lambda x, m, v: F.batch_norm(x, m, v, training=False))(x, mean, var)]
    attempt(log, vmap(lambda x: F.batch_norm(x, T.zeros(2).double(), T.ones(2).double(), training=True)), x)
    log.append(vmap(T.func.grad(lambda x, w: (F.batch_norm(x, None, None, w, training=True) ** 3).sum(), (0, 1)))(x, w))
    log.append(vmap(lambda x: F.instance_norm(x))(x))
    module = T.nn.BatchNorm1d(2).double()
    attempt(log, vmap(module), x)
    log.append(vmap(module.eval())(x))


@program
def jacobian_rows(T, log):
    """Batched gradients of graphs recorded outside."""
    x = numbers(T, 3).requires_grad_()
    y = (x**3 * x.sum()).cumsum(0)
    log.append(T.func.vmap(lambda g: T.autograd.grad(y, x, g, retain_graph=True)[0])(T.eye(3).double()))
    log.append(T.autograd.grad(y, x, T.eye(3).double(), retain_graph=True, is_grads_batched=True))
    (g,) = T.autograd.grad(y, x, T.eye(3).double(), is_grads_batched=True, create_graph=True)
    log.append(T.autograd.grad(g.sum(), x))
    z = (x * 2).sum()
    attempt(log, T.autograd.grad, z, x, T.ones(3).double(), is_grads_batched=True)


@program
def forward_mode_inside(T, log):
    fwd = T.autograd.forward_ad
    x, t = numbers(T, 3, 2), numbers(T, 3, 2, seed=1)
    f = lambda x: x.prod().exp()
    jvp = lambda x, t: T.func.jvp(f, (x,), (t,))[1]
    log += [T.func.vmap(jvp)(x, t), T.func.vmap(jvp, (None, 0))(x[0], t), T.func.vmap(jvp, (0, None))(x, t[0])]

    def dual(x, t):
        with fwd.dual_level():
            return fwd.make_dual(x, t)

    attempt(log, T.func.vmap(dual), x, t)
    with fwd.dual_level():
        log.append(fwd.unpack_dual(T.func.vmap(f)(fwd.make_dual(x, t))))
        log.append(fwd.unpack_dual(T.func.vmap(T.func.grad(f))(fwd.make_dual(x, t))))


@program
def printing(T, log):
    seen = []
    T.func.vmap(lambda x: seen.append(repr(x)) or x)(T.arange(6.0).view(2, 3))
    T.func.vmap(T.func.vmap(lambda x: seen.append(repr(x)) or x))(T.ones(2, 3))
    log += seen


@program
def written_with_what_samples_share(T, log):
    x = numbers(T, 3, 2)
    log.append(T.vmap(lambda a, y: y.mul_(a), (None, 0))(x[0], T.ones(3, 2, dtype=T.float64)))


@program
def random_fills(T, log):
    x = T.full((3, 2), 0.5)
    functions = [
        lambda x: T.empty(2).normal_() + x,
        lambda x: x.clone().uniform_(),
        lambda x: x.clone().bernoulli_(x),
        lambda x: x.clone().bernoulli_(T.tensor([0.5, 1.0])),
        lambda x: T.zeros(2).bernoulli_(x),
        lambda x: x.clone().random_(5),
        lambda x: x.bernoulli(0.5),
        lambda x: T.bernoulli(T.full((2,), 0.5)) + x,
        lambda x: T.bernoulli(T.ones(2), 0.5) + x,
        lambda x: T.multinomial(T.ones(2), 1) + x,
        lambda x: T.normal(x, 1.0),
        lambda x: T.normal(1.0, x),
        lambda x: T.normal(T.ones(2), T.ones(2)) + x,
        lambda x: T.poisson(x),
        lambda x: T.nn.functional.rrelu(x, training=True),
        lambda x: T.nn.functional.gumbel_softmax(x),
        lambda x: T.nn.functional.gumbel_softmax(x, hard=True),
        lambda x: T.vmap(lambda y: y.clone().normal_(), randomness="different")(x),
    ]
    for f in functions:
        for randomness in ("error", "same", "different"):
            T.manual_seed(0)
            attempt(log, T.vmap(f, randomness=randomness), x)


@program
def smoothed_losses(T, log):
    x, y, weight = numbers(T, 2, 3, 4), T.tensor([[0, 1, 2], [1, 1, 0]]), T.tensor([1.0, 2.0, 3.0, 4.0], dtype=T.float64)
    for options in ({}, {"ignore_index": 1}, {"reduction": "none"}, {"reduction": "sum", "ignore_index": 1}):
        smoothed = lambda x, y, options=options: T.nn.functional.cross_entropy(x, y, label_smoothing=0.1, **options)
        log += [T.vmap(smoothed)(x, y), smoothed(x.flatten(0, 1), y.flatten())]
        log.append(T.nn.functional.cross_entropy(x.flatten(0, 1), y.flatten(), weight, label_smoothing=0.1, **options))


@program
def hessians_of_losses(T, log):
    x, y, weight = numbers(T, 2, 3, 4), T.tensor([[0, 1, 2], [1, 1, 0]]), T.tensor([1.0, 2.0, 3.0, 4.0], dtype=T.float64)
    for options in ({}, {"weight": weight}, {"ignore_index": 1}, {"reduction": "sum"}, {"weight": weight, "ignore_index": 1}):
        loss = lambda x, y, options=options: T.nn.functional.cross_entropy(x, y, **options)
        log.append(T.vmap(T.func.hessian(loss))(x, y))
        log.append(T.vmap(lambda y, loss=loss: T.func.hessian(loss)(x[0], y))(y))


@program
def shapes_that_depend_on_values(T, log):
    x, F = T.ones(3, 2), T.nn.functional
    functions = [
        T.nonzero, lambda x: x.nonzero(as_tuple=True), T.where, T.unique, lambda x: x.unique(dim=0), T.unique_consecutive,
        lambda x: T.masked_select(x, x > 0), lambda x: T.masked_select(T.ones(2), x > 0), lambda x: T.equal(x, x),
        lambda x: T.equal(x, T.ones(2)), lambda x: T.allclose(x, x), lambda x: F.one_hot(x.long()), lambda x: F.one_hot(x.long(), 2),
    ]  # fmt: skip
    for f in functions:
        attempt(log, T.vmap(f), x)


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])
