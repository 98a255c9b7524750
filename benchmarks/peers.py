"""Other libraries with automatic differentiation, each in its own idiom, on the rows they can do.

A library is a function that imports it and returns its rows by name: functions that make the parts of a workload. `None`
in place of one says that the library can't do the row. The arithmetic is that of the row in `workloads`.
"""

from __future__ import annotations

import numpy as np

from .workloads.graphs import OPS
from .workloads.tools import integers, normal, uniform

ROWS = ("scalar_graph", "chain", "mlp_step", "mlp_adam", "gelu_4m", "softmax_4m")


def _weights(*sizes: int) -> list[np.ndarray]:
    """Weights and biases of linear layers in turn."""
    arrays = []
    for n, m in zip(sizes, sizes[1:]):
        arrays += [normal(n, m) / np.float32(n) ** 0.5, np.zeros(m, np.float32)]
    return arrays


def _small():
    """Input, labels and weights of `mlp_step`."""
    return uniform(32, 64), np.arange(32) % 10, _weights(64, 64, 64, 10)


def _large():
    """Input, labels and weights of `mlp_adam`."""
    return uniform(128, 784), integers(10, 128), _weights(784, 512, 256, 10)


def _scalar_graph(x, w, b, tanh):
    y = x
    for _ in range(OPS // 5):
        y = (tanh(w * y + b) + x) ** 2
    return y


def _chain(x, w):
    y = x
    for _ in range(OPS // 2):
        y = y * w
        y = y + w
    return y


def _numpy_sgd(arrays):
    """Moves arrays in place against their gradients."""

    def update(gradients):
        for array, gradient in zip(arrays, gradients):
            array -= 0.1 * gradient

    return update


def _numpy_adam(arrays):
    """Moves arrays in place as Adam does."""
    means, squares = ([np.zeros_like(a) for a in arrays] for _ in range(2))
    steps = 0

    def update(gradients):
        nonlocal steps
        steps += 1
        rate, unbias = 1e-3 / (1 - 0.9**steps), (1 - 0.999**steps) ** -0.5
        for array, gradient, mean, square in zip(arrays, gradients, means, squares):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient * gradient - square)
            array -= rate * mean / (np.sqrt(square) * unbias + 1e-8)

    return update


def hips_autograd():
    """HIPS autograd: functions of NumPy arrays, differentiated by `value_and_grad` and `make_vjp`."""
    import autograd.numpy as anp
    from autograd import make_vjp, value_and_grad
    from autograd.scipy.special import erf, logsumexp

    def scalar_graph():
        function = value_and_grad(lambda args: _scalar_graph(*args, anp.tanh))
        args = tuple(np.array(value, np.float32) for value in (0.5, 0.8, 0.1))
        return (lambda: function(args),)

    def pulled_back(function, x, g):
        def step():
            backward, _y = make_vjp(function)(x)
            return backward(g)

        return (step,)

    def chain():
        w = uniform(8, 8)
        return pulled_back(lambda x: _chain(x, w), w, w)

    def training(problem, optimizer):
        x, labels, arrays = problem
        rows = np.arange(len(x))
        update = optimizer(arrays)

        def loss(arrays):
            h = x
            for i in range(0, len(arrays), 2):
                h = anp.dot(h, arrays[i]) + arrays[i + 1]
                if i + 2 < len(arrays):
                    h = anp.maximum(h, 0)
            return anp.mean(logsumexp(h, axis=1) - h[rows, labels])

        function = value_and_grad(loss)

        def step():
            value, gradients = function(arrays)
            update(gradients)
            return value

        return (step,)

    def gelu_4m():
        root = np.float32(0.5**0.5)
        return pulled_back(lambda x: x * (erf(x * root) + 1) * np.float32(0.5), normal(4096, 1024), normal(4096, 1024))

    def softmax_4m():
        return pulled_back(lambda x: anp.exp(x - logsumexp(x, axis=1, keepdims=True)), normal(4096, 1024), normal(4096, 1024))

    return {
        "scalar_graph": scalar_graph,
        "chain": chain,
        "mlp_step": lambda: training(_small(), _numpy_sgd),
        "mlp_adam": lambda: training(_large(), _numpy_adam),
        "gelu_4m": gelu_4m,
        "softmax_4m": softmax_4m,
    }


def mygrad():
    """MyGrad: tensors over NumPy arrays with `backward`."""
    import mygrad as mg
    from mygrad.nnet import softmax_crossentropy
    from mygrad.nnet.activations import relu, softmax

    def scalar_graph():
        x, w, b = (mg.tensor(np.float32(value)) for value in (0.5, 0.8, 0.1))

        def step():
            _scalar_graph(x, w, b, mg.tanh).backward()
            return w.grad

        return (step,)

    def chain():
        x, w = mg.tensor(uniform(8, 8)), uniform(8, 8)

        def step():
            _chain(x, w).backward(w)
            return x.grad

        return (step,)

    def training(problem, optimizer):
        x, labels, arrays = problem
        parameters = [mg.tensor(array, copy=False) for array in arrays]

        def step():
            h = x
            for i in range(0, len(parameters), 2):
                h = mg.matmul(h, parameters[i]) + parameters[i + 1]
                if i + 2 < len(parameters):
                    h = relu(h)
            loss = softmax_crossentropy(h, labels)
            loss.backward()
            update([parameter.grad for parameter in parameters])
            return loss

        update = optimizer([parameter.data for parameter in parameters])
        return (step,)

    def softmax_4m():
        x, g = mg.tensor(normal(4096, 1024)), normal(4096, 1024)

        def step():
            softmax(x, axis=1).backward(g)
            return x.grad

        return (step,)

    return {
        "scalar_graph": scalar_graph,
        "chain": chain,
        "mlp_step": lambda: training(_small(), _numpy_sgd),
        "mlp_adam": lambda: training(_large(), _numpy_adam),
        "gelu_4m": None,  # no erf
        "softmax_4m": softmax_4m,
    }


def jax(compiled: bool = False):
    """JAX: functions differentiated by `value_and_grad` and `vjp`, operation by operation or as one compiled step."""
    import jax
    from jax import numpy as jnp

    compile = jax.jit if compiled else lambda function: function

    def run(function, *args):
        """A part that waits for the result, since JAX computes in the background."""
        return (lambda: jax.block_until_ready(function(*args)),)

    def scalar_graph():
        function = jax.value_and_grad(lambda args: _scalar_graph(*args, jnp.tanh))
        return run(compile(function), tuple(jnp.float32(value) for value in (0.5, 0.8, 0.1)))

    def pulled_back(function, x, g, *others):
        """Value and gradient by x. The others are arguments, since what is constant would be computed at compile time."""

        @compile
        def step(x, g, *others):
            value, backward = jax.vjp(lambda x: function(x, *others), x)
            return value, backward(g)[0]

        return run(step, *map(jnp.asarray, (x, g, *others)))

    def chain():
        w = uniform(8, 8)
        return pulled_back(_chain, w, w, w)

    def training(problem, adam: bool):
        x, labels, arrays = map(jax.tree_util.Partial(jax.tree.map, jnp.asarray), problem)

        def loss(arrays, x, labels):
            h = x
            for i in range(0, len(arrays), 2):
                h = h @ arrays[i] + arrays[i + 1]
                if i + 2 < len(arrays):
                    h = jax.nn.relu(h)
            return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(h), labels[:, None], 1))

        @compile
        def step(state, x, labels):
            arrays, means, squares, steps = state
            value, gradients = jax.value_and_grad(loss)(arrays, x, labels)
            if not adam:
                return value, (jax.tree.map(lambda a, g: a - 0.1 * g, arrays, gradients), means, squares, steps)
            steps = steps + 1
            means = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means, gradients)
            squares = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, squares, gradients)
            rate, unbias = 1e-3 / (1 - 0.9**steps), (1 - 0.999**steps) ** -0.5
            arrays = jax.tree.map(lambda a, m, s: a - rate * m / (jnp.sqrt(s) * unbias + 1e-8), arrays, means, squares)
            return value, (arrays, means, squares, steps)

        zeros = jax.tree.map(jnp.zeros_like, arrays)
        state = arrays, zeros, zeros, 0.0

        def train():
            nonlocal state
            value, state = jax.block_until_ready(step(state, x, labels))
            return value

        return (train,)

    return {
        "scalar_graph": scalar_graph,
        "chain": chain,
        "mlp_step": lambda: training(_small(), adam=False),
        "mlp_adam": lambda: training(_large(), adam=True),
        "gelu_4m": lambda: pulled_back(lambda x: jax.nn.gelu(x, approximate=False), normal(4096, 1024), normal(4096, 1024)),
        "softmax_4m": lambda: pulled_back(lambda x: jax.nn.softmax(x, 1), normal(4096, 1024), normal(4096, 1024)),
    }


def tinygrad():
    """tinygrad: lazy tensors, steps captured by `TinyJit`."""
    from tinygrad import Device, Tensor, TinyJit, nn

    def gradient(function, x, g):
        x, g = Tensor(x, requires_grad=True).realize(), Tensor(g).realize()

        @TinyJit
        def both():
            y = function(x)
            (gradient,) = y.gradient(x, gradient=g)
            Tensor.realize(y, gradient)
            return gradient

        def step():
            found = both()
            Device[Device.DEFAULT].synchronize()
            return found

        return (step,)

    def training(problem, optimizer, **options):
        x, labels, arrays = problem
        x, labels = Tensor(x).realize(), Tensor(labels).realize()
        parameters = [Tensor(array, requires_grad=True).realize() for array in arrays]
        optimizer = optimizer(parameters, **options)

        @TinyJit
        def step():
            optimizer.zero_grad()
            h = x
            for i in range(0, len(parameters), 2):
                h = h @ parameters[i] + parameters[i + 1]
                if i + 2 < len(parameters):
                    h = h.relu()
            loss = h.sparse_categorical_crossentropy(labels)
            loss.backward()
            optimizer.step()
            return loss.realize()

        def train():
            with Tensor.train():
                return step().item()

        return (train,)

    def gelu(x):
        return x * ((x * 0.5**0.5).erf() + 1) * 0.5  # Tensor.gelu is the approximation by tanh

    return {
        # Each is one expression, too deep for the C compiler that it calls.
        "scalar_graph": None,
        "chain": None,
        "mlp_step": lambda: training(_small(), nn.optim.SGD, lr=0.1),
        "mlp_adam": lambda: training(_large(), nn.optim.Adam),
        "gelu_4m": lambda: gradient(gelu, normal(4096, 1024), normal(4096, 1024)),
        "softmax_4m": lambda: gradient(lambda x: x.softmax(1), normal(4096, 1024), normal(4096, 1024)),
    }


LIBRARIES = {
    "HIPS autograd": hips_autograd,
    "MyGrad": mygrad,
    "JAX": jax,
    "JAX, jit": lambda: jax(compiled=True),
    "tinygrad": tinygrad,
}
MODULES = {"HIPS autograd": "autograd", "MyGrad": "mygrad", "JAX": "jax", "JAX, jit": "jax", "tinygrad": "tinygrad"}
