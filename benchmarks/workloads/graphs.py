"""Graphs of small arrays: what a package does around the arithmetic decides."""

from __future__ import annotations

import numpy as np

from .tools import dense, floor, integers, linear, mlp, training, uniform

OPS = 1000  # operations in a chain


def _chain(x, w, ops: int):
    y = x
    for _ in range(ops // 2):
        y = y * w
        y = y + w
    return y


@floor(calls=OPS + OPS // 2)  # the gradient of `+` is passed on
def chain(torch):
    """1,000 `*` and `+` on 8x8, forward and backward"""
    x = torch.from_numpy(uniform(8, 8)).requires_grad_()
    w = torch.from_numpy(uniform(8, 8))

    def forward():
        return _chain(x, w, OPS)

    def backward(y):
        y.backward(w)
        return y

    return forward, backward


@floor(calls=OPS + OPS // 2)
def scalar_chain(torch):
    """1,000 `*` and `+` on 0-d tensors, forward and backward"""
    x = torch.tensor(0.5, requires_grad=True)
    w = torch.tensor(0.5)

    def step():
        y = _chain(x, w, OPS)
        y.backward()
        return y

    return (step,)


@floor(calls=OPS + 8 * OPS // 5)
def scalar_graph(torch):
    """1,000 `+`, `*`, `tanh` and `**` on 0-d tensors in the manner of micrograd, forward and backward"""
    x, w, b = (torch.tensor(value, requires_grad=True) for value in (0.5, 0.8, 0.1))

    def step():
        x.grad = w.grad = b.grad = None
        y = x
        for _ in range(OPS // 5):
            y = ((w * y + b).tanh() + x) ** 2
        y.backward()
        return w.grad

    return (step,)


def numpy_chain(_torch):
    """the arithmetic of the 8x8 chain in plain NumPy, gradient by hand"""
    x = w = uniform(8, 8)

    def forward():
        return _chain(x, w, OPS)

    def backward(_y):
        g = w
        for _ in range(OPS // 2):
            g = g * w
        return g

    def add(_g):
        for _ in range(OPS):
            y = x + w
        return y

    return forward, backward, add


@floor(dense(32, 64, 64, 64, 10), calls=40)
def mlp_step(torch):
    """training step of a small network: 32x64 input, 64-64-10, cross entropy, SGD"""
    model = mlp(torch, 64, 64, 64, 10)
    x = torch.from_numpy(uniform(32, 64))
    labels = torch.from_numpy(np.arange(32) % 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return (training(optimizer, lambda: torch.nn.functional.cross_entropy(model(x), labels)),)


@floor([(1, 32, 64, 64), (1, 32, 64, 64), (1, 32, 64, 10)], calls=8)
def mlp_forward(torch):
    """forward of the small network under no_grad"""
    model = mlp(torch, 64, 64, 64, 10)
    x = torch.from_numpy(uniform(32, 64))

    def forward():
        with torch.no_grad():
            return model(x)

    return (forward,)


@floor([(43 * count, *shape) for count, *shape in dense(32, 64, 64, 10)], calls=43 * 60)
def digits_epoch(torch):
    """epoch of examples/digits.py: 1,347 images in batches of 32, Adam"""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy((images[:1347] / 16).astype(np.float32))
    y = torch.from_numpy(labels[:1347])
    model = mlp(torch, 64, 64, 10)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)

    def epoch():
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss = criterion(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
        return loss

    return (epoch,)


@floor(linear(32, 16, 32, 2) + linear(32, 32, 32, 2) + linear(32, 32, 1, 2), calls=60)
def gradient_penalty(torch):
    """gradient penalty: the gradient of a 16-32-32-1 network is differentiated again"""
    model = mlp(torch, 16, 32, 32, 1, activation="Tanh")
    parameters = list(model.parameters())
    x = torch.from_numpy(uniform(32, 16)).requires_grad_()

    def step():
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
        torch.autograd.grad(penalty, parameters, allow_unused=True)
        return penalty

    return (step,)


@floor(linear(256, 2, 32, 3) + linear(256, 32, 32, 3) + linear(256, 32, 1, 3), calls=150)
def pinn_step(torch):
    """PINN step: 2-32-32-1, Burgers' equation on 256 points with second derivatives, Adam"""
    model = mlp(torch, 2, 32, 32, 1, activation="Tanh")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    points = torch.from_numpy(uniform(256, 2))
    x, t = (points[:, i : i + 1].clone().requires_grad_() for i in (0, 1))

    def derivative(y, by):
        return torch.autograd.grad(y, by, torch.ones_like(y), create_graph=True)[0]

    def loss():
        u = model(torch.cat([x, t], 1))
        u_x = derivative(u, x)
        residual = derivative(u, t) + u * u_x - 0.01 * derivative(u_x, x)
        return (residual**2).mean()

    return (training(optimizer, loss),)


@floor(dense(64, 32, 64, 10), calls=20)
def per_sample_gradients(torch):
    """gradients of each of 64 samples by vmap(grad): 32-64-10, cross entropy"""
    model = mlp(torch, 32, 64, 10)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x = torch.from_numpy(uniform(64, 32))
    labels = torch.from_numpy(integers(10, 64))

    def loss(parameters, x, label):
        scores = torch.func.functional_call(model, parameters, (x.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(scores, label.unsqueeze(0))

    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
    return (lambda: gradients(parameters, x, labels)["0.weight"],)


@floor([(1, 16, 64, 64), (1, 16, 64, 16)], calls=20)
def jacobian(torch):
    """Jacobian of a 16-64-64-16 network by func.jacrev"""
    model = mlp(torch, 16, 64, 64, 16, activation="Tanh")
    x = torch.from_numpy(uniform(16))
    function = torch.func.jacrev(model)
    return (lambda: function(x),)


@floor([(1, 16, 16, 64), (2, 16, 64, 64), (1, 16, 64, 16)], calls=40)
def hessian(torch):
    """Hessian of a 16-64-64-1 network by func.hessian"""
    model = mlp(torch, 16, 64, 64, 1, activation="Tanh")
    x = torch.from_numpy(uniform(16))
    function = torch.func.hessian(lambda x: model(x).sum())
    return (lambda: function(x),)


@floor(calls=50_000)
def deep_backward(torch):
    """backward through a chain of 100,000 nodes (8x8)"""
    x = torch.from_numpy(uniform(8, 8)).requires_grad_()
    w = torch.from_numpy(uniform(8, 8))

    def prepare():
        return _chain(x, w, 100_000)

    def backward(y):
        y.backward(w)
        return y

    return prepare, backward


ROWS = (
    scalar_graph,
    scalar_chain,
    chain,
    deep_backward,
    mlp_step,
    mlp_forward,
    digits_epoch,
    gradient_penalty,
    pinn_step,
    per_sample_gradients,
    jacobian,
    hessian,
)
