"""autograd.graph: hooks on saved tensors, mutation of them, edges, hooks on several tensors; compared with PyTorch."""

from __future__ import annotations

import gc
import weakref

import pytest
from both_packages import Programs, assert_same_log, attempt

program = Programs()


@program
def saved_tensors_hooks(T, log):
    hooks = T.autograd.graph.saved_tensors_hooks
    x, w = T.tensor([1.0, 2.0], requires_grad=True), T.tensor([3.0, 4.0], requires_grad=True)
    packed, unpacked = [], []

    def pack(t):
        packed.append(t.detach().clone())
        return len(packed) - 1

    def unpack(i):
        unpacked.append(i)
        return packed[i]

    for function in (
        lambda: x * w, lambda: x.exp(), lambda: (x * 2).sin() + w, lambda: x / w, lambda: T.mm(x[None], w[:, None]), lambda: x**3,
        lambda: x.sum() * w, lambda: T.nn.functional.mse_loss(x, w), lambda: x.max() + w.softmax(0), lambda: x.clone().mul_(w),
        lambda: T.where(x > 1, x, w), lambda: x.sigmoid() * x.tanh(),
    ):  # fmt: skip
        packed.clear(), unpacked.clear()
        with hooks(pack, unpack):
            y = function()
        log += [list(packed), T.autograd.grad(y.sum(), (x, w), retain_graph=True, allow_unused=True), list(unpacked)]
        log += [T.autograd.grad(y.sum(), (x, w), create_graph=True, allow_unused=True), list(unpacked)]


@program
def packed_values_count(T, log):
    hooks = T.autograd.graph.saved_tensors_hooks
    x = T.tensor([1.0, 2.0], requires_grad=True)
    with hooks(lambda t: t, lambda t: t * 10):
        y = x * x
    log += [T.autograd.grad(y.sum(), x), y.grad_fn is not None]
    a = x.clone()
    with hooks(lambda t: t, lambda t: t):
        y, z = a * a, a.exp()
        a.add_(1), z.zero_()
    log += [T.autograd.grad(y.sum(), x), T.autograd.grad(z.sum(), x)]
    with hooks(lambda t: t * 2, lambda t: t):
        y = x.exp()
    log += [y.grad_fn._saved_result, y.grad_fn._raw_saved_result.data if hasattr(y.grad_fn._raw_saved_result, "data") else None]
    with hooks(lambda t: t, lambda t: t):
        with hooks(lambda t: t + 1, lambda t: t):
            y = x * x
        z = x * x
    log += [T.autograd.grad(y.sum(), x), T.autograd.grad(z.sum(), x)]
    with hooks(lambda t: 5, lambda t: t):
        y = x * x
    attempt(log, lambda: y.sum().backward())
    with hooks(lambda t: t, lambda t: None):
        y = x * x
    attempt(log, lambda: y.sum().backward())
    attempt(log, hooks(1, 2).__enter__)
    with hooks(lambda t: t.mul_(2), lambda t: t):
        attempt(log, lambda: x.clone() * x.clone())

    def failing(t):
        raise ValueError("pack")

    with hooks(failing, lambda t: t):
        attempt(log, lambda: x * x)
    with hooks(lambda t: t, failing):
        y = x * x
    attempt(log, lambda: y.sum().backward())
    modes = []
    with hooks(lambda t: modes.append(T.is_grad_enabled()) or t, lambda t: modes.append(T.is_grad_enabled()) or t):
        (x * x).sum().backward()
    log.append(modes)


@program
def second_derivatives_through_hooks(T, log):
    hooks = T.autograd.graph.saved_tensors_hooks
    x = T.tensor([1.0, 2.0], dtype=T.float64, requires_grad=True)
    with hooks(lambda t: t.detach().numpy().copy(), T.from_numpy):
        y = (x**3).sum() * x.exp().sum()
        (g,) = T.autograd.grad(y, x, create_graph=True)
    log += [g, T.autograd.grad(g.sum(), x)]


@program
def hooks_on_one_saved_tensor(T, log):
    x, w = T.tensor([1.0, 2.0], requires_grad=True), T.tensor([3.0, 4.0], requires_grad=True)
    y = x * w
    raw = y.grad_fn._raw_saved_self
    log.append(type(raw).__name__)
    raw.register_hooks(lambda t: t.detach() * 2, lambda t: t)
    log += [y.grad_fn._saved_self, y.grad_fn._saved_other, T.autograd.grad(y.sum(), (x, w), retain_graph=True)]
    attempt(log, raw.register_hooks, lambda t: t, lambda t: t)
    y.sum().backward()
    attempt(log, raw.register_hooks, lambda t: t, lambda t: t)
    attempt(log, lambda: y.grad_fn._saved_self)
    e = x.exp()
    e.grad_fn._raw_saved_result.register_hooks(lambda t: t.detach() + 1, lambda t: t - 1)
    log.append(T.autograd.grad(e.sum(), x))
    y = x * w
    attempt(log, y.grad_fn._raw_saved_self.register_hooks, lambda t: t)
    attempt(log, y.grad_fn._raw_saved_self.register_hooks, 1, 2)
    attempt(log, y.grad_fn._raw_saved_self.register_hooks, lambda t: t.add_(1), lambda t: t)
    log.append([(T.stack([x, w]).norm()).grad_fn.next_functions[0][0].name()])
    attempt(log, T._C._autograd.SavedTensor)

    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * 2 * ctx.saved_tensors[0]

    y = Square.apply(x)
    first, second = y.grad_fn._raw_saved_tensors
    first.register_hooks(lambda t: t.detach() * 10, lambda t: t)
    attempt(log, second.register_hooks, lambda t: t, lambda t: t)
    log += [y.grad_fn.saved_tensors, T.autograd.grad(y.sum(), x)]
    attempt(log, lambda: y.grad_fn._raw_saved_tensors)
    with T.autograd.graph.saved_tensors_hooks(lambda t: t.detach() * 3, lambda t: t):
        y = Square.apply(x)
    log += [y.grad_fn.saved_tensors, T.autograd.grad(y.sum(), x)]


@program
def save_on_cpu(T, log):
    x = T.tensor([1.0, 2.0], requires_grad=True)
    with T.autograd.graph.save_on_cpu():
        a = x * 2
        y = a * a
    log += [T.autograd.grad(y.sum(), x)]
    with T.autograd.graph.save_on_cpu(pin_memory=False):
        y = x.exp() * x
    log += [y.grad_fn._saved_self, T.autograd.grad(y.sum(), x)]


@program
def disabled_hooks(T, log):
    graph = T.autograd.graph
    x = T.ones(2, requires_grad=True)
    identity = lambda t: t
    with graph.disable_saved_tensors_hooks("not here"):
        attempt(log, graph.saved_tensors_hooks(identity, identity).__enter__)
        with graph.disable_saved_tensors_hooks("deeper"):
            attempt(log, graph.saved_tensors_hooks(identity, identity).__enter__)
        attempt(log, graph.saved_tensors_hooks(identity, identity).__enter__)
        log.append(T._C._autograd._saved_tensors_hooks_is_enabled())
    log.append(T._C._autograd._saved_tensors_hooks_is_enabled())
    with graph.saved_tensors_hooks(identity, identity):
        attempt(log, graph.disable_saved_tensors_hooks("too late").__enter__)

    @graph.disable_saved_tensors_hooks("in a function")
    def decorated():
        with graph.saved_tensors_hooks(identity, identity):
            return x * x

    attempt(log, decorated)
    attempt(log, T.func.grad(lambda x: x.sum()), x)


@program
def mutation_of_saved_tensors(T, log):
    allow = T.autograd.graph.allow_mutation_on_saved_tensors
    x = T.tensor([1.0, 2.0], requires_grad=True)
    with allow() as context:
        a = x.clone()
        y = (a**2).sum()
        a.sin_()
        log.append(len(context.cloned))
        z = a.exp()
        b = z * a
        a.zero_()
        z.add_(1)
        log += [y, T.autograd.grad(y, x, retain_graph=True), T.autograd.grad(b.sum(), x)]
        v = x.clone()
        out = v * v
        v[0].mul_(3)
        log.append(T.autograd.grad(out.sum(), x))
        c = x.clone()
        d = c.view(2, 1)
        out = d * d
        c.add_(1)
        log.append(T.autograd.grad(out.sum(), x))
    log.append(len(context.cloned))
    with allow():
        y = (x.clone() ** 2).sum()
        attempt(log, allow().__enter__)
    attempt(log, y.backward)
    a = x.clone()
    y = (a**2).sum()
    a.sin_()
    attempt(log, y.backward)


@program
def edges(T, log):
    graph = T.autograd.graph
    x = T.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    edge = graph.get_gradient_edge(y)
    leaf = graph.get_gradient_edge(x)
    log += [
        type(edge).__name__,
        edge.node is y.grad_fn,
        edge.output_nr,
        leaf.node,
        leaf.output_nr,
        isinstance(edge.node, graph.Node),
    ]
    a, b = (y * y).split(1)
    log += [graph.get_gradient_edge(b).output_nr, graph.get_gradient_edge(a).node is graph.get_gradient_edge(b).node]
    loss = (y**2).sum()
    log += [T.autograd.grad(loss, edge, retain_graph=True), T.autograd.grad(loss, (leaf, edge), retain_graph=True)]
    log.append(T.autograd.grad(edge, x, T.ones(2), retain_graph=True))
    attempt(log, graph.get_gradient_edge, T.ones(2))
    attempt(log, lambda: T.autograd.grad(edge, x, retain_graph=True))
    scalar = graph.get_gradient_edge(loss)
    del loss
    log.append(T.autograd.grad(scalar, leaf))
    T.autograd.backward((graph.get_gradient_edge((x * 3).sum()),), inputs=(leaf,))
    log.append(x.grad)


@program
def hooks_on_several_tensors(T, log):
    register = T.autograd.graph.register_multi_grad_hook
    a, b, c = (T.tensor([float(i)], requires_grad=True) for i in range(1, 4))
    seen = []
    handle = register((a, b, c), lambda grads: seen.append(list(grads)))
    (a * b).sum().backward()
    (a * b * c).sum().backward()
    (c * 1).sum().backward()
    log += [list(seen), len(seen)]
    handle.remove()
    (a * b).sum().backward()
    log.append(len(seen))
    seen.clear()
    handle = register((a, b), lambda g: seen.append(g), mode="any")
    ((a * 2) * b).sum().backward()
    c.sum().backward()
    (b * 1).sum().backward()
    log += [list(seen)]
    handle.remove()
    y = a * b
    inner = register((y, a), lambda grads: seen.append(list(grads)))
    (y * y).sum().backward(inputs=[a])
    log += [seen[-1], len(seen)]
    inner.remove()
    attempt(log, register, (a, b), print, mode="some")
    attempt(log, register, (T.ones(1),), print)

    def failing(grads):
        raise ValueError("in the hook")

    handle = register((a, b), failing)
    attempt(log, lambda: (a * b).sum().backward())
    handle.remove()


@program
def versions(T, log):
    increment = T.autograd.graph.increment_version
    x = T.ones(2)
    log.append(x._version)
    increment(x)
    increment((x, x.view(2)))
    log.append(x._version)
    w = T.ones(2, requires_grad=True)
    y = w * x
    increment(x)
    attempt(log, y.sum().backward)
    with T.inference_mode():
        inference = T.ones(2)
    attempt(log, increment, inference)


@program
def preserved_version_counters(T, log):
    x = T.ones(2)
    with T.autograd._unsafe_preserve_version_counter(x):
        x.mul_(2)
        log.append(x._version)
    log.append(x._version)
    x.add_(1)
    w = T.ones(2, requires_grad=True) * 2
    z = w * w
    with T.autograd._unsafe_preserve_version_counter((w, x)), T.no_grad():
        w.mul_(3)
        x.mul_(3)
    log += [x._version, w._version, T.autograd.grad(z.sum(), w, retain_graph=True)]
    with T.no_grad():
        w.mul_(3)
    attempt(log, T.autograd.grad, z.sum(), w)


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])


def test_hooks_make_no_cycles():
    import backlight as T

    gc.disable()
    try:
        x = T.ones(3, requires_grad=True)
        with T.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            y = x.exp().sigmoid() * x
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_mutated_tensors_are_freed_with_the_graph():
    import backlight as T

    with T.autograd.graph.allow_mutation_on_saved_tensors() as context:
        a = T.ones(3, requires_grad=True).clone()
        y = a * a
        a.zero_()
        assert len(context.cloned) == 1
        del y
        assert len(context.cloned) == 0


@program
def sequence_numbers(T, log):
    x, y, z = (T.ones(3, requires_grad=True) for _ in range(3))
    for numbers in ((100, 99, 98), (3, 10**6, 5)):
        a, b = x + y, y + z
        c = a * b
        for tensor, number in zip((a, b, c), numbers):
            tensor.grad_fn._set_sequence_nr(number)
            log.append(tensor.grad_fn._sequence_nr())
        for name, tensor in zip("abcxyz", (a, b, c, x, y, z)):
            tensor.register_hook(lambda g, name=name: log.append(name))
        c.sum().backward()
        log.append(x.grad)


@program
def gradients_with_a_history(T, log):
    def show(grad):
        log.extend([grad, grad._version, grad.grad_fn and grad.grad_fn.name()])
        log.append([node and node.name() for node, _ in grad.grad_fn.next_functions] if grad.grad_fn else None)

    for x in (T.ones(2), T.ones(2, 3).t(), T.ones(1).expand(3)):
        x = x.detach().requires_grad_()
        for _ in range(2):
            (x * x * x).sum().backward(create_graph=True)
            show(x.grad)
        y = x * 1
        y.retain_grad()
        for _ in range(2):
            (y * y).sum().backward(create_graph=True)
            show(y.grad)


@program
def what_may_not_be_deleted(T, log):
    x = T.ones(2, requires_grad=True)
    log.append(x._backward_hooks)
    x.register_hook(lambda g: g)
    log.append(len(x._backward_hooks))
    for name in ("_backward_hooks", "_grad_fn", "data", "requires_grad"):
        attempt(log, lambda name=name: delattr(x, name))


@program
def identity_of_saved_tensors(T, log):
    class Saves(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, y, z):
            ctx.save_for_backward(x, y, z)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            log.append([p is q for p, q in zip(ctx.saved_tensors, (a, b, c))])
            return g, None, None

    a, b, c = T.tensor(1.0, requires_grad=True), T.tensor(1.0), T.ones(2) * 1
    packed = []
    with T.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        y, z = Saves.apply(a, b, c), a * b
    log.append([any(x is p for p in packed) for x in (b, c)])
    log.append(z.grad_fn._saved_other is b)
    y.backward()
    b.add_(1)  # the hooks hand on the tensor itself
    log.append(T.autograd.grad(z, a))
    T.utils.checkpoint.checkpoint(Saves.apply, a, b, c, use_reentrant=False).backward()


@program
def without_a_derivative(T, log):
    T.manual_seed(0)
    x = T.tensor([1.0, 2.0, 1.0, float("nan")], requires_grad=True)
    for function in (
        lambda: T.unique(x), lambda: T.unique(x, return_inverse=True, return_counts=True), lambda: T.unique(x, dim=0),
        lambda: T.unique_consecutive(x, return_counts=True), lambda: x // 2, lambda: T.binomial(x.nan_to_num(), x.nan_to_num() / 3),
    ):  # fmt: skip
        outputs = function()
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        log += [list(outputs), outputs[0].grad_fn.name()]
        attempt(log, outputs[0].sum().backward)
