"""Kernels against PyTorch: accuracy, special values, gradients, all memory layouts. tests/test_kernels_conv.py has convolution's.

`ran` lists the kernels that ran, so that no test passes because NumPy computed after all.
"""

import math
import zlib

import numpy as np
import pytest
import torch

import backlight
from backlight import kernels, nn, optim
from backlight.kernels import FUSED, ONE_PASS, threads

pytestmark = pytest.mark.skipif(not kernels.ENABLED, reason="kernels are switched off")
F32, F64 = np.float32, np.float64
BOTH = (backlight, torch)


@pytest.fixture
def ran(monkeypatch):
    """The names of the kernels that have run since the test began."""
    names, run = [], threads.run

    def noting(kernel, *arguments):
        names.append(kernel.py_func.__name__)
        run(kernel, *arguments)

    monkeypatch.setattr(threads, "run", noting)
    return names


def random(shape, dtype=F32, seed=0):
    """Numbers that float32 has, whatever the type."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(F32).astype(dtype)


def outcome(library, program, *inputs):
    """[what the program returns, the gradients of its inputs for some gradient of each result], as arrays."""
    tensors = [library.tensor(x, requires_grad=x.dtype.kind == "f") if isinstance(x, np.ndarray) else x for x in inputs]
    results = program(library, *tensors)
    results = results if isinstance(results, tuple) else (results,)
    targets = [r for r in results if r.requires_grad]
    if targets:
        numbers = [r.detach().numpy().dtype for r in targets]
        gradients = [library.tensor(random(tuple(r.shape), d, i + 1)) for i, (r, d) in enumerate(zip(targets, numbers))]
        library.autograd.backward(targets, gradients)
    grads = [x.grad for x in tensors if isinstance(x, library.Tensor)]
    return [x.detach().numpy() for x in (*results, *grads) if x is not None]


def assert_agrees(program, *inputs, rtol=None, atol=None):
    """The program's results and gradients are PyTorch's, up to a tolerance that follows from the type."""
    for number, (ours, theirs) in enumerate(zip(*[outcome(library, program, *inputs) for library in BOTH], strict=True)):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, number
        single = ours.dtype == F32
        default = 1e-5 if single else 1e-12
        scale = np.max(np.abs(theirs), initial=0, where=np.isfinite(theirs))
        np.testing.assert_allclose(
            ours, theirs, rtol or default, default * max(scale, 1) if atol is None else atol, err_msg=f"result {number}"
        )


# Elementwise operations


def functional(name, *arguments, **options):
    return lambda library, x, _y: getattr(library.nn.functional, name)(x, *arguments, **options)


def method(name, *arguments):
    return lambda _library, x, _y: getattr(x, name)(*arguments)


ELEMENTWISE = {
    "mul": lambda _library, x, y: x * y,
    "add": lambda _library, x, y: x + y,
    "sub": lambda _library, x, y: x - y,
    "div": lambda _library, x, y: x / y,
    "rsub": lambda _library, x, _y: 1.5 - x,
    "rsub_tensor": lambda library, x, y: library.rsub(x, y),
    "neg": method("neg"),
    "sqrt": method("sqrt"),
    "relu": method("relu"),
    "clamp_min": method("clamp_min", 0.3),
    "clamp_max": method("clamp_max", -0.2),
    "abs": method("abs"),
    "reciprocal": method("reciprocal"),
    "square": method("square"),
    "exp": method("exp"),
    "log": method("log"),
    "log1p": method("log1p"),
    "tanh": method("tanh"),
    "sigmoid": method("sigmoid"),
    "erf": method("erf"),
    "gelu_erf": functional("gelu"),
    "gelu_tanh": functional("gelu", approximate="tanh"),
    "silu": functional("silu"),
    "log_sigmoid": functional("logsigmoid"),
    "leaky_relu": functional("leaky_relu", 0.2),
    "elu": functional("elu", 1.3),
    "celu": functional("celu", 2.0),
    "softplus": functional("softplus", 1.5, 10),
    "mish": functional("mish"),
    "hardtanh": functional("hardtanh", -0.7, 0.9),
}
BINARY = ("mul", "add", "sub", "div", "rsub_tensor")
NEITHER_NOR = ("neg", "add", "sub", "rsub", "rsub_tensor")  # their gradients need no formula, or are left to neg


def shape_for(name):
    """A shape just large enough for the operation's kernel, of odd sizes."""
    side = math.isqrt(kernels.ELEMENTWISE[name]) + 2
    return side + 1 - side % 2, side | 1


def values(name, shape, dtype=F32, seed=0):
    x = random(shape, dtype, seed)
    return np.abs(x) + dtype(0.01) if name in ("log", "log1p", "sqrt", "div", "reciprocal") else x


def test_every_elementwise_kernel_is_tested():
    assert set(ELEMENTWISE) == set(kernels.ELEMENTWISE)


def changed(x, layout):
    """The tensor in another layout, by operations that pass gradients on."""
    if layout == "transposed":
        return x.t()
    if layout == "slice":
        return x[1:-1, 2:]
    if layout == "permuted":
        return x.reshape(x.shape[0], 1, x.shape[1]).permute(2, 0, 1)
    return x


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "permuted", "slice"])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name, layout, dtype, ran):
    def program(library, x, y):
        return ELEMENTWISE[name](library, changed(x, layout), changed(y, layout))

    shape = shape_for(name)
    shape = (shape[0] + 2, shape[1] + 2)
    assert_agrees(program, values(name, shape, dtype), values(name, shape, dtype, 1))
    assert layout == "slice" or any(kernel.startswith(f"{name}_") for kernel in ran)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_with_an_expanded_gradient(name, ran):
    """The gradient of a sum is one number in every place."""
    assert_agrees(
        lambda library, x, y: ELEMENTWISE[name](library, x, y).sum(), *(values(name, shape_for(name), F32, i) for i in (0, 1))
    )
    if name not in NEITHER_NOR:
        assert any(kernel.startswith(f"{name}_gradient") for kernel in ran)


@pytest.mark.parametrize("kind", ["number", "0-d", "0-d first", "row", "column", "mixed types", "expanded", "size 0"])
@pytest.mark.parametrize("name", BINARY)
def test_binary_operations_of_unlike_operands(name, kind):
    shape = shape_for(name)
    x, y = values(name, shape), values(name, shape, F32, 1)
    operation = ELEMENTWISE[name]
    if kind == "number":
        assert_agrees(lambda library, x: operation(library, x, 1.7), x)
    elif kind == "0-d":
        assert_agrees(operation, x, np.asarray(y[0, 0]))
    elif kind == "0-d first":
        assert_agrees(operation, np.asarray(y[0, 0]), x)
    elif kind == "row":
        assert_agrees(operation, x, y[0], rtol=1e-4)
    elif kind == "column":
        assert_agrees(operation, y[:, :1], x, rtol=1e-4)
    elif kind == "mixed types":
        assert_agrees(operation, x, y.astype(F64))
    elif kind == "expanded":
        assert_agrees(lambda library, x, y: operation(library, x, y.reshape(1, 1).expand(*x.shape)), x, np.asarray(y[0, 0]))
    else:
        assert_agrees(operation, x[:0], y[:0])


@pytest.mark.parametrize("name", ["tanh", "mul", "gelu_erf", "silu", "softplus"])
def test_second_derivatives(name):
    def program(library, x, y):
        (g,) = library.autograd.grad(ELEMENTWISE[name](library, x, y).sum(), x, create_graph=True)
        return g * y

    assert_agrees(program, *(values(name, shape_for(name), F64, i) for i in (0, 1)), rtol=1e-9)


# Where a number is special: NaN, infinities, signed zeros, denormals, the ends of ranges
SPECIAL = [
    0.0,
    1e-40,
    1e-45,
    1.2e-38,
    1e-20,
    1e-8,
    1e-3,
    0.5,
    1.0,
    4.0,
    9.99,
    20.0,
    87.3,
    88.7,
    88.8,
    103.9,
    104.1,
    1e7,
    3e38,
    np.inf,
]
SPECIAL_DOUBLE = [*SPECIAL, 5e-324, 1e-310, 2.3e-308, 708.4, 709.7, 709.8, 744.4, 745.2, 1e17, 1.7e308]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_special_values(name, dtype, ran):
    numbers = np.array(SPECIAL if dtype is F32 else SPECIAL_DOUBLE, dtype)
    numbers = np.concatenate([numbers, -numbers, [dtype(np.nan)]])
    size = kernels.ELEMENTWISE[name] + 333
    x = np.resize(numbers, size)
    y = np.resize(np.repeat(numbers, len(numbers)), size)  # each with each
    theirs = outcome(torch, ELEMENTWISE[name], *(a.astype(F64) if name == "gelu_erf" else a for a in (x, y)))  # NaN at infinity
    for number, (ours, expected) in enumerate(zip(outcome(backlight, ELEMENTWISE[name], x, y), theirs, strict=True)):
        atol = (1e-42 if dtype is F32 else 1e-320) if number == 0 else np.finfo(dtype).smallest_normal
        if name == "gelu_erf":  # 1 + erf(x) near -1
            atol = 1e-7 if dtype is F32 else 1e-15
        np.testing.assert_allclose(
            ours, expected.astype(dtype), 2e-6 if dtype is F32 else 1e-14, atol, err_msg=f"result {number}"
        )
        zeros = (ours == 0) & (expected == 0)
        np.testing.assert_array_equal(np.signbit(ours[zeros]), np.signbit(expected[zeros]), err_msg=f"zeros of result {number}")
    assert ran


# Accuracy, in units of the last place: (float32, float64) as scalar.py states it
ULPS = {
    "exp": (1.0, 1.0),
    "log": (1.0, 1.0),
    "log1p": (1.5, 1.5),
    "tanh": (2.5, 3.0),
    "sigmoid": (2.5, 4.0),
    "erf": (1.5, 3.0),
    "softplus": (2.0, 3.0),
    "log_sigmoid": (2.0, 3.0),
    "silu": (2.5, 4.0),
    "elu": (1.5, 2.0),
    "sqrt": (0.5, 0.5),
    "reciprocal": (0.5, 0.5),
}


def exact(name, x):
    import mpmath

    mpmath.mp.prec = 120
    functions = {
        "exp": mpmath.exp,
        "log": mpmath.log,
        "log1p": mpmath.log1p,
        "tanh": mpmath.tanh,
        "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
        "erf": mpmath.erf,
        "softplus": lambda v: mpmath.log1p(mpmath.exp(v)),
        "log_sigmoid": lambda v: -mpmath.log1p(mpmath.exp(-v)),
        "silu": lambda v: v / (1 + mpmath.exp(-v)),
        "elu": lambda v: v if v > 0 else mpmath.expm1(v),
        "sqrt": mpmath.sqrt,
        "reciprocal": lambda v: 1 / v,
    }
    return [functions[name](mpmath.mpf(float(v))) for v in x]


def probes(name, dtype, count=2000):
    """Numbers of all magnitudes for which the function's result is a normal number."""
    rng = np.random.default_rng(0)
    most = {F32: 87.0, F64: 700.0}[dtype]
    sizes = np.exp(rng.uniform(np.log(1e-30), np.log(most), count))
    x = np.concatenate(
        [sizes * rng.choice([-1, 1], count), rng.uniform(-10, 10, count), 1 + rng.uniform(-0.3, 0.3, count)]
    ).astype(dtype)
    if name in ("log", "sqrt"):
        x = np.abs(x)
    if name == "log1p":
        x = x[x > -1]
    return x


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ULPS)
def test_accuracy(name, dtype, ran):
    x = probes(name, dtype)
    programs = {"elu": functional("elu"), "softplus": functional("softplus", 1, 1000)}
    size = max(len(x), kernels.ELEMENTWISE[name])
    y = programs.get(name, ELEMENTWISE[name])(backlight, backlight.tensor(np.resize(x, size)), None).numpy()[: len(x)]
    errors = [abs(float((float(a) - b) / float(np.spacing(abs(dtype(float(b))))))) for a, b in zip(y, exact(name, x))]
    assert max(errors) <= ULPS[name][dtype is F64], (max(errors), x[np.argmax(errors)])
    assert ran
