"""What is timed. One text serves both packages: a workload is made with the package under the name `torch`.

A workload returns a function that runs it once and returns the seconds of its parts. What is left out of the parts
(building the graph of the deep backward, say) isn't measured.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

OPS = 1000  # operations in a chain


def _array(*shape):
    return np.random.default_rng(0).random(shape, np.float32)


def _chain(torch, *shape):
    x = torch.from_numpy(_array(*shape)).requires_grad_()
    w = torch.from_numpy(_array(*shape))

    def run():
        start = perf_counter()
        y = x
        for _ in range(OPS // 2):
            y = y * w
            y = y + w
        middle = perf_counter()
        y.backward(w)
        return {"forward": middle - start, "backward": perf_counter() - middle}

    return run


def chain(torch):
    """1,000 `*` and `+` on 8x8, forward and backward"""
    return _chain(torch, 8, 8)


def scalar_chain(torch):
    """1,000 `*` and `+` on 0-d tensors, forward and backward"""
    x = torch.tensor(0.5, requires_grad=True)
    w = torch.tensor(0.5)

    def run():
        start = perf_counter()
        y = x
        for _ in range(OPS // 2):
            y = y * w
            y = y + w
        y.backward()
        return {"both": perf_counter() - start}

    return run


def numpy_chain(_torch):
    """the arithmetic of the 8x8 chain in plain NumPy, gradient by hand"""
    x = w = _array(8, 8)

    def run():
        start = perf_counter()
        y = x
        for _ in range(OPS // 2):
            y = y * w
            y = y + w
        middle = perf_counter()
        g = w
        for _ in range(OPS // 2):
            g = g * w
        end = perf_counter()
        for _ in range(OPS):
            y = x + w
        return {"forward": middle - start, "backward": end - middle, "add": perf_counter() - end}

    return run


def _mlp(torch, *sizes):
    torch.manual_seed(0)
    layers = []
    for n, m in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(n, m), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def mlp_step(torch):
    """training step of a small network: 32x64 input, 64-64-10, cross entropy, SGD"""
    model = _mlp(torch, 64, 64, 64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.from_numpy(_array(32, 64))
    labels = torch.from_numpy(np.arange(32) % 10)

    def run():
        start = perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return {"step": perf_counter() - start}

    return run


def mlp_forward(torch):
    """forward of the small network under no_grad"""
    model = _mlp(torch, 64, 64, 64, 10)
    x = torch.from_numpy(_array(32, 64))

    def run():
        start = perf_counter()
        with torch.no_grad():
            model(x)
        return {"forward": perf_counter() - start}

    return run


def digits_epoch(torch):
    """epoch of examples/digits.py: 1,347 images in batches of 32, Adam"""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x = torch.from_numpy((images[:1347] / 16).astype(np.float32))
    y = torch.from_numpy(labels[:1347])
    model = _mlp(torch, 64, 64, 10)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)

    def run():
        start = perf_counter()
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss = criterion(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
        return {"epoch": perf_counter() - start}

    return run


def gradient_penalty(torch):
    """gradient penalty: the gradient of a 16-32-32-1 network is differentiated again"""
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    parameters = list(model.parameters())
    x = torch.from_numpy(_array(32, 16)).requires_grad_()

    def run():
        start = perf_counter()
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        penalty = ((g.norm(2, dim=1) - 1) ** 2).mean()
        torch.autograd.grad(penalty, parameters, allow_unused=True)
        return {"both": perf_counter() - start}

    return run


def per_sample_gradients(torch):
    """gradients of each of 64 samples by vmap(grad): 32-64-10, cross entropy"""
    model = _mlp(torch, 32, 64, 10)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x = torch.from_numpy(_array(64, 32))
    labels = torch.from_numpy(np.arange(64) % 10)

    def loss(parameters, x, label):
        scores = torch.func.functional_call(model, parameters, (x.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(scores, label.unsqueeze(0))

    gradients = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))

    def run():
        start = perf_counter()
        gradients(parameters, x, labels)
        return {"gradients": perf_counter() - start}

    return run


def select(torch):
    """where by a random mask, 1,000 x 1,000, forward and backward"""
    values = np.random.default_rng(0).standard_normal((2, 1000, 1000)).astype(np.float32)
    x, y = (torch.from_numpy(v).requires_grad_() for v in values)
    mask, g = torch.from_numpy(values[0] > 0.1), torch.from_numpy(values[1])

    def run():
        start = perf_counter()
        torch.autograd.grad(torch.where(mask, x, y), (x, y), g)
        return {"both": perf_counter() - start}

    return run


def deep_backward(torch):
    """backward through a chain of 100,000 nodes (8x8)"""
    x = torch.from_numpy(_array(8, 8)).requires_grad_()
    w = torch.from_numpy(_array(8, 8))

    def run():
        y = x
        for _ in range(50_000):
            y = y * w
            y = y + w
        start = perf_counter()
        y.backward(w)
        return {"backward": perf_counter() - start}

    return run


def tape(torch, ops=100_000):
    """Bytes that the graph of the 8x8 chain holds per operation: the growth of the process, and what Python allocated."""
    import gc
    import tracemalloc

    x = torch.from_numpy(_array(8, 8)).requires_grad_()
    w = torch.from_numpy(_array(8, 8))

    def graph(n):
        y = x
        for _ in range(n // 2):
            y = y * w
            y = y + w
        return y

    graph(100)
    gc.collect()
    before = _resident_bytes()
    kept = graph(ops)
    resident = (_resident_bytes() - before) / ops
    del kept
    tracemalloc.start()
    kept = graph(1000)  # noqa: F841  (held while it is measured)
    traced = tracemalloc.get_traced_memory()[0] / 1000
    tracemalloc.stop()
    return {"resident": resident, "traced": traced}


def _resident_bytes() -> int:
    import os

    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# In the order of the table. `numpy_chain` and `tape` are measured too, but aren't rows of it.
ROWS = (chain, scalar_chain, mlp_step, digits_epoch, mlp_forward, gradient_penalty, per_sample_gradients, select, deep_backward)
