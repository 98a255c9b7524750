"""Kernels against PyTorch: accuracy, special values, gradients, all memory layouts. tests/test_kernels_conv.py has convolution's.

`ran` lists the kernels that ran, so that no test passes because NumPy computed after all.
"""

import importlib
import math
import zlib

import numpy as np
import pytest
import torch

import backlight
from backlight import kernels
from backlight.kernels import NEVER, threads

pytestmark = pytest.mark.skipif(not kernels.ENABLED, reason="kernels are switched off")
F32, F64 = np.float32, np.float64
BOTH = (backlight, torch)


@pytest.fixture
def ran(monkeypatch):
    """The names of the kernels that have run since the test began; of those for a plain sum only if it is large."""
    names, run = [], threads.run

    def noting(kernel, chunks, *arguments, **options):
        if kernel.py_func.__name__ != "_partial_sums" or chunks > 1:
            names.append(kernel.py_func.__name__)
        run(kernel, chunks, *arguments, **options)

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
    size = -(-(kernels.ELEMENTWISE[name] + 300) // 64) * 64  # PyTorch has other NaNs in what is left of a vector
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


POWERS = [0.3, -1.7, 5, 2.5, -3, 0.0, 1, 37.5, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("exponent", POWERS)
def test_powers(exponent, ran):
    numbers = np.array(SPECIAL, F32)
    x = np.resize(np.concatenate([random((999,)), numbers, -numbers, [F32(np.nan)]]), 8999)
    ours, theirs = (np.asarray(library.tensor(x) ** exponent) for library in (backlight, torch))
    exact = np.asarray(torch.tensor(x.astype(F64)) ** exponent).astype(F32)
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    np.testing.assert_allclose(ours, exact, 6e-8, 1e-45)
    np.testing.assert_array_equal(np.signbit(ours[ours == 0]), np.signbit(theirs[ours == 0]))
    assert any(name.startswith("power_") for name in ran)


@pytest.mark.parametrize("shape", [(8199,), (100, 90), (3, 50, 77)])
def test_normal_numbers_are_pytorchs(shape, ran):
    torch.manual_seed(5)
    backlight.manual_seed(5)
    np.testing.assert_array_equal(backlight.randn(shape).numpy(), torch.randn(shape).numpy())
    assert "_box_muller" in ran


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "order", [(1, 0, 2, 3), (0, 2, 1, 3), (3, 2, 1, 0), (0, 3, 1, 2), (1, 2, 3, 0), (0, 1, 3, 2), (2, 3, 0, 1)]
)
def test_copies_of_transposed_arrays(order, dtype):
    x = random((17, 19, 41, 43), dtype)
    for changed in (lambda x: x, lambda x: x[:, ::-1], lambda x: x[..., 1:], lambda x: x[:, 2:]):
        source = changed(x).transpose(order)
        copied = kernels.copies.contiguous(source)
        assert copied.flags.c_contiguous
        np.testing.assert_array_equal(copied, source)
    assert_agrees(lambda _library, x: x.permute(order).contiguous(), random((17, 19, 41, 43), dtype))


# Rows

ROWS = [(123, 77), (5, 3001), (2, 3, 1500), (9001, 1), (1, 9001)]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, shape, dtype, ran):
    assert_agrees(lambda _library, x: getattr(x, name)(-1), 3 * random(shape, dtype))
    assert ran == [f"_{name}", f"_{name}_gradient"]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_other_layouts(name, ran):
    assert_agrees(lambda _library, x: getattr(x.t(), name)(1), random((99, 101)))
    assert_agrees(lambda _library, x: getattr(x[:, ::2], name)(1), random((99, 201)))
    assert_agrees(lambda _library, x: getattr(x, name)(1).sum(), random((99, 101)))
    assert len(ran) == 6
    assert_agrees(lambda _library, x: getattr(x, name)(0), random((99, 101)))
    assert len(ran) == 6  # that isn't along rows


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_special_rows(name, dtype, ran):
    x = random((64, 131), dtype)
    x[3], x[5, 7], x[6, 8], x[7, 9], x[8, 1:], x[9] = -np.inf, np.nan, np.inf, -np.inf, -np.inf, np.inf
    x[10], x[11], x[12], x[13, :2] = 1e30, -1e30, 0, (np.inf, np.nan)
    assert_agrees(lambda _library, x: getattr(x, name)(-1), x)
    assert len(ran) == 2


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("affine", ["weight and bias", "weight", "neither"])
@pytest.mark.parametrize("shape", [(123, 77), (3, 5, 700), (4501, 3)])
def test_layer_norm(shape, affine, dtype, ran):
    given = {"weight and bias": (True, True), "weight": (True, False), "neither": (False, False)}[affine]
    parts = [random(shape[-1:], dtype, i + 1) if wanted else None for i, wanted in enumerate(given)]

    def program(library, x, weight, bias):
        return library.nn.functional.layer_norm(x, shape[-1:], weight, bias)

    assert_agrees(program, random(shape, dtype) + dtype(3), *parts, rtol=2e-4 if dtype is F32 else 1e-10)
    assert ran == ["_layer_norm", "_layer_norm_gradient"]


def test_layer_norm_over_two_dimensions(ran):
    assert_agrees(
        lambda library, x, w: library.nn.functional.layer_norm(x, (7, 50), w), random((40, 7, 50)), random((7, 50)), rtol=1e-4
    )
    assert len(ran) == 2


def test_second_derivatives_of_rows():
    def program(library, x, w):
        y = library.nn.functional.layer_norm(x.log_softmax(-1) * x.softmax(-1), (77,), w)
        (g,) = library.autograd.grad((y**3).sum(), x, create_graph=True)
        return g

    assert_agrees(program, random((123, 77), F64), random((77,), F64), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x * 1000 + 1, np.abs])
def test_accuracy_of_sums(make, ran):
    x = make(random((1031, 1021), F32))
    for program in (lambda x: x.sum(), lambda x: x.sum(-1), lambda x: x.mean()):
        exact = program(torch.tensor(x.astype(F64))).numpy()
        ours, theirs = (np.abs(program(library.tensor(x)).numpy() - exact).max() for library in BOTH)
        assert ours <= theirs + np.spacing(np.abs(exact).max().astype(F32))
    assert ran == ["_partial_sums", "_row_sums", "_partial_sums"]


def test_sums_of_special_values(ran):
    x = random((1031, 1021), F32)
    x[0, 0], x[1, 1], x[2, 2:4] = np.nan, np.inf, (np.inf, -np.inf)
    assert_agrees(lambda _library, x: x.sum(-1), x, atol=1e-3)
    x = x[1:]
    assert_agrees(lambda _library, x: x.sum(), x)
    assert_agrees(lambda _library, x: x.sum(), random((1031, 1021), F64).T)
    assert_agrees(lambda _library, x: x.sum((1, 2)), random((103, 70, 101), F64))
    assert "_row_sums" in ran and "_partial_sums" in ran


# Optimizers

OPTIMIZERS = {
    "Adam": ("Adam", {}),
    "Adam, amsgrad": ("Adam", {"amsgrad": True}),
    "Adam, maximize": ("Adam", {"maximize": True, "betas": (0.8, 0.95)}),
    "Adam, weight decay": ("Adam", {"weight_decay": 0.1, "eps": 1e-4}),
    "Adam, decoupled": ("Adam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    "AdamW": ("AdamW", {}),
    "AdamW, amsgrad": ("AdamW", {"amsgrad": True, "maximize": True}),
    "SGD": ("SGD", {}),
    "SGD, weight decay": ("SGD", {"weight_decay": 0.1, "maximize": True}),
    "SGD, momentum": ("SGD", {"momentum": 0.9}),
    "SGD, dampening": ("SGD", {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    "SGD, nesterov": ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "SGD, maximize": ("SGD", {"momentum": 0.9, "maximize": True}),
}


def trained(library, name, dtype, steps=5):
    """Two parameters, one too small for kernels, after some steps; and their state."""
    kind, options = OPTIMIZERS[name]
    parameters = [library.nn.Parameter(library.tensor(random(shape, dtype))) for shape in ((97, 91), (7, 5))]
    optimizer = getattr(library.optim, kind)(parameters, lr=0.02, **options)
    for step in range(steps):
        for i, parameter in enumerate(parameters):
            parameter.grad = library.tensor(random(tuple(parameter.shape), dtype, 10 * step + i + 1))
        optimizer.step()
    states = [value for p in parameters for value in optimizer.state[p].values() if value is not None]
    return [x.detach().numpy() for x in (*parameters, *states)]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, dtype, ran, monkeypatch):
    ours, theirs = trained(backlight, name, dtype), trained(torch, name, dtype)
    kernels_ran = len(ran)
    assert kernels_ran >= 4
    for module in ("elementwise", "sgd"):
        monkeypatch.setattr(importlib.import_module(f"backlight.optim.{module}"), "FUSED", NEVER)
    plain = trained(backlight, name, dtype)
    assert len(ran) == kernels_ran
    rtol = 2e-6 if dtype is F32 else 1e-13
    for one, twin, other in zip(ours, plain, theirs, strict=True):
        np.testing.assert_allclose(one, twin, rtol, rtol)
        np.testing.assert_allclose(one, other, 5 * rtol, 5 * rtol)


def test_optimizers_of_special_numbers(ran):
    """Infinity without decay isn't touched by it, and NaN stays where it is."""
    results = []
    for library in BOTH:
        x = random((97, 91))
        x[0, :3], x[1, :2] = (np.inf, -np.inf, np.nan), 0
        parameter = library.nn.Parameter(library.tensor(x))
        g = random((97, 91), F32, 1)
        g[2, :3], g[1, :2] = (np.inf, -np.inf, np.nan), 0
        parameter.grad = library.tensor(g)
        for kind in (library.optim.Adam, library.optim.SGD):
            kind([parameter], lr=0.1).step()
        results.append(parameter.detach().numpy())
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)
    assert ran == ["_adam", "_sgd"]


# Attention

ATTENTION = {
    "plain": ((2, 3, 97, 16), 97, False),
    "causal": ((2, 3, 101, 16), 101, True),
    "short and long": ((9, 7, 5, 32), 203, False),
    "long and short": ((1, 2, 203, 32), 9, False),
    "causal, fewer keys": ((1, 2, 130, 32), 70, True),
    "causal, fewer queries": ((2, 2, 70, 32), 130, True),
    "wide": ((1, 1, 65, 128), 65, True),
    "one key": ((3, 2, 130, 16), 1, False),
}


def attention(library, q, k, v, causal, **options):
    return library.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **options)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name, dtype, ran):
    shape, source, causal = ATTENTION[name]
    other = (*shape[:2], source, shape[3])
    arrays = random(shape, dtype), random(other, dtype, 1), random(other, dtype, 2)
    atol = 2e-5 if dtype is F32 else 1e-12
    assert_agrees(lambda library, q, k, v: attention(library, q, k, v, causal), *arrays, atol=atol)
    assert len(ran) == 2 and all(kernel.startswith("attention_") for kernel in ran)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_other_layouts(causal, ran):
    """(N, L, H, E) permuted, as models have it; a scale; an expanded gradient."""

    def program(library, q, k, v):
        heads = [x.reshape(2, 50, 3, 32).permute(0, 2, 1, 3) for x in (q, k, v)]
        y = attention(library, *heads, causal, scale=0.3).permute(0, 2, 1, 3).reshape(2, 50, 96)
        return y, y.sum()

    assert_agrees(program, *(random((2, 50, 96), F32, i) for i in range(3)), atol=1e-4)
    assert len(ran) == 2

    def program(library, q, k, v):
        return attention(library, q.transpose(2, 3), k[..., ::2], v.flip(2), causal)

    assert_agrees(program, random((2, 3, 32, 60)), random((2, 3, 60, 64)), random((2, 3, 60, 32)), atol=1e-4)
    assert len(ran) == 4


def test_attention_to_special_keys(ran):
    """-inf and NaN in queries and keys, where PyTorch has them, too."""
    q, k, v = (random((1, 2, 130, 32), F32, i) for i in range(3))
    k[0, 0, 5], q[0, 1, 7, 3], v[0, 1, 20, 4] = 300, np.nan, np.inf
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert_agrees(lambda library, q, k, v: attention(library, q, k, v, False), q, k, v, atol=1e-3)
    assert len(ran) == 2


@pytest.mark.parametrize("causal", [False, True])
def test_second_derivatives_of_attention(causal, ran):
    def program(library, q, k, v):
        grads = library.autograd.grad((attention(library, q, k, v, causal) ** 2).sum(), (q, k, v), create_graph=True)
        return grads

    arrays = [random((3, 2, 90, 16), F64, i) for i in range(3)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert_agrees(program, *arrays, rtol=1e-8, atol=1e-9)
    assert any(kernel.startswith("attention_forward") for kernel in ran)


# Recurrent layers


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2, "batch_first": True}, {"bias": False}],
                         ids=lambda options: ", ".join(options) or "plain")  # fmt: skip
@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_recurrent_layers(name, states, options, ran):
    length, batch, inputs, hidden = 9, 19, 11, 32
    layers = options.get("num_layers", 1) * (1 + options.get("bidirectional", False))
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(inputs, hidden, **options)
    ours = getattr(backlight.nn, name)(inputs, hidden, **options)
    ours.load_state_dict({key: backlight.tensor(value.numpy()) for key, value in theirs.state_dict().items()})

    def program(library, x, *initial):
        module = ours if library is backlight else theirs
        module.zero_grad()
        given = (initial if name == "LSTM" else initial[0],) if initial else ()
        output, last = module(x, *given)
        last = last if name == "LSTM" else (last,)
        (sum((s * s).sum() for s in last) + (output**2).sum()).backward(retain_graph=True)
        return output, *last, *[p.grad.detach().clone() for p in module.parameters()]

    shape = (batch, length, inputs) if options.get("batch_first") else (length, batch, inputs)
    initial = [random((layers, batch, hidden), F32, i + 1) for i in range(1 + (name == "LSTM"))] if states else []
    assert_agrees(program, random(shape), *initial, rtol=1e-4, atol=3e-4)
    assert any(kernel.startswith(f"{name.lower()}_forward") for kernel in ran)
    assert any(kernel.startswith(f"{name.lower()}_backward") for kernel in ran)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_second_derivatives_of_recurrent_layers(name, ran):
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(5, 32, dtype=torch.float64)
    ours = getattr(backlight.nn, name)(5, 32, dtype=backlight.float64)
    ours.load_state_dict({key: backlight.tensor(value.numpy()) for key, value in theirs.state_dict().items()})

    def program(library, x):
        module = ours if library is backlight else theirs
        module.zero_grad()
        output, _last = module(x)
        grads = library.autograd.grad((output**3).sum(), [x, *module.parameters()], create_graph=True)
        sum((g**2).sum() for g in grads).backward(retain_graph=True)
        return output, *[g.detach() for g in grads], *[p.grad.detach().clone() for p in module.parameters()]

    assert_agrees(program, random((8, 13, 5), F64), rtol=1e-8, atol=1e-9)
    assert any(kernel.startswith(name.lower()) for kernel in ran)


# Channels


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(5, 7, 13, 19), (3, 65, 50), (2, 3, 4, 20, 30)])
def test_batch_norm(shape, affine, train, dtype, ran):
    name = f"BatchNorm{len(shape) - 2}d"

    def program(library, x, weight, bias):
        module = getattr(library.nn, name)(shape[1], affine=affine, dtype=getattr(library, np.dtype(dtype).name))
        module.running_mean.add_(0.25)
        module.train(train)
        y = library.func.functional_call(module, {"weight": weight, "bias": bias}, (x,)) if affine else module(x)
        return y, module.running_mean, module.running_var

    parts = [random(shape[1:2], dtype, i + 1) for i in range(2)] if affine else [None, None]
    assert_agrees(program, 2 * random(shape, dtype) + dtype(3), *parts, rtol=2e-4 if dtype is F32 else 1e-10)
    assert "_normalize" in ran and ("_moments" in ran) == train


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("groups", [1, 3, 6])
@pytest.mark.parametrize("shape", [(5, 6, 13, 23), (3, 12, 250), (2, 6, 4, 10, 20)])
def test_group_norm(shape, groups, affine, dtype, ran):
    parts = [random(shape[1:2], dtype, i + 1) if affine else None for i in range(2)]

    def program(library, x, weight, bias):
        return library.nn.functional.group_norm(x, groups, weight, bias)

    assert_agrees(program, 2 * random(shape, dtype) + dtype(3), *parts, rtol=2e-4 if dtype is F32 else 1e-10)
    assert ran == ["_group_norm", "_group_norm_gradient"]


def test_second_derivatives_of_batch_norm():
    def program(library, x, w):
        y = library.nn.functional.batch_norm(x, None, None, w, None, True)
        return library.autograd.grad((y**3).sum(), (x, w), create_graph=True)

    assert_agrees(program, random((5, 7, 13, 19), F64), random((7,), F64), rtol=1e-7, atol=1e-8)


# Indexing


def indices(shape, high, seed=0):
    return np.random.default_rng([seed, *shape]).integers(0, high, shape)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("padding", [None, 3, -1])
@pytest.mark.parametrize("shape", [(300,), (13, 31), (2, 3, 40)])
def test_embedding(shape, padding, dtype, ran):
    def program(library, weight, index):
        return library.nn.functional.embedding(index, weight, padding)

    assert_agrees(program, random((50, 97), dtype), indices(shape, 50), rtol=1e-5)
    assert ran == ["_take", "_add"]


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_select_and_index_add(dim, ran):
    index = indices((33,), 29, dim)
    assert_agrees(lambda _library, x, i: x.index_select(dim, i), random((29, 29, 29)), index)
    shape = [29, 29, 29]
    shape[dim] = 33
    assert_agrees(
        lambda _library, x, i, y: x.index_add(dim, i, y, alpha=2), random((29, 29, 29)), index, random(tuple(shape)), rtol=1e-4
    )
    assert ran.count("_take") >= 2 and ran.count("_add") >= 2


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("kind", ["full", "expanded", "shorter"])
def test_gather_and_scatter_add(kind, dim, ran):
    shape = [21, 23, 25]
    vector = [1, 1, 1]
    vector[dim] = shape[dim] = 40
    index = indices(tuple(shape), (21, 23, 25)[dim])
    if kind == "expanded":
        index = np.broadcast_to(indices(tuple(vector), (21, 23, 25)[dim]), shape)
    if kind == "shorter":
        index = index[:17, :17, :17]

    def tensors(library, i):
        return i[tuple(slice(0, n) for n in vector)].expand(*shape) if kind == "expanded" else i

    x, y = random((21, 23, 25)), random(tuple(shape))
    assert_agrees(lambda library, x, i: x.gather(dim, tensors(library, i)), x, np.array(index))
    assert_agrees(
        lambda library, x, i, y: x.scatter_add(dim, tensors(library, i), y if kind != "shorter" else y.detach()),
        x,
        np.array(index),
        y,
        rtol=1e-4,
    )
    names = {"full": ("_take_each", "_add_each"), "expanded": ("_take", "_add"), "shorter": ()}[kind]
    assert all(name in ran for name in names) and bool(ran) == bool(names)


@pytest.mark.parametrize("shape", [(100,), (9, 11)])
def test_rows_by_index(shape, ran):
    index = indices(shape, 100) - 50  # some count from the end
    assert_agrees(lambda _library, x, i: x[i], random((50, 97)), index, rtol=1e-5)
    assert ran == ["_take", "_add"]


@pytest.mark.parametrize("place", [-51, 50, 1 << 40, -(1 << 62)])
@pytest.mark.parametrize("name", ["x[i]", "x[i].backward", "index_select", "index_add", "gather", "scatter_add", "embedding"])
def test_indices_out_of_range(name, place):
    index = indices((130,), 50)
    index[77] = place
    programs = {
        "x[i]": lambda library, x, i, y: x[i],
        "x[i].backward": lambda library, x, i, y: x[i].sum().backward(),
        "index_select": lambda library, x, i, y: x.index_select(0, i),
        "index_add": lambda library, x, i, y: x.index_add(0, i, y),
        "gather": lambda library, x, i, y: x.gather(0, i[:, None].expand(130, 97)),
        "scatter_add": lambda library, x, i, y: x.scatter_add(0, i[:, None].expand(130, 97), y),
        "embedding": lambda library, x, i, y: library.nn.functional.embedding(i, x),
    }
    for library in BOTH:
        with pytest.raises((IndexError, RuntimeError)) as raised:
            outcome(library, programs[name], random((50, 97)), index, random((130, 97)))
        if library is backlight:
            ours = raised
    assert type(ours.value) is type(raised.value)


def test_second_derivatives_of_indexing():
    def program(library, x, i):
        picked = x[i] * x.index_select(0, i) + library.nn.functional.embedding(i, x) ** 2
        (g,) = library.autograd.grad((picked**2).sum(), x, create_graph=True)
        return g

    assert_agrees(program, random((50, 97), F64), indices((130,), 50), rtol=1e-9)


# Checksums


def test_checksums_are_those_of_zlib():
    rng = np.random.default_rng(0)
    sizes = [*range(300), 1023, 1024, 1025, 65536, 99991, (1 << 20) + 7]
    for size in sizes:
        data = rng.integers(0, 256, size + 3, np.uint8)[3:]  # not aligned
        assert kernels.checksum.crc32(data) == zlib.crc32(data), size
    assert kernels.checksum.crc32(np.zeros(1 << 16, np.uint8)) == zlib.crc32(bytes(1 << 16))


# Arrays of others

FOREIGN = {
    "elementwise": lambda library, x: (x * 2).exp() + x.tanh(),
    "softmax": lambda library, x: x.softmax(-1),
    "layer norm": lambda library, x: library.nn.functional.layer_norm(x, (32,)),
    "batch norm": lambda library, x: library.nn.functional.batch_norm(x, None, None, None, None, True),
    "attention": lambda library, x: library.nn.functional.scaled_dot_product_attention(x, x, x),
    "attention, expanded gradient": lambda library, x: library.nn.functional.scaled_dot_product_attention(x, x, x).sum(0),
    "convolution": lambda library, x: library.nn.functional.conv2d(x, x[:3, :, :3, :3]),
    "pooling": lambda library, x: library.nn.functional.max_pool2d(x, 2),
    "index": lambda library, x: x.flatten(0, 2)[library.arange(300)],
}


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("kind", ["read-only", "unaligned"])
@pytest.mark.parametrize("name", FOREIGN)
def test_arrays_that_numpy_does_not_own(name, kind, ran):
    array = random((6, 8, 50, 32))
    if kind == "read-only":
        given = array.copy()
        given.flags.writeable = False
    else:
        given = np.frombuffer(b"?" + array.tobytes(), F32, offset=1).reshape(array.shape)
        assert not given.flags.aligned
    results = []
    for library, x in ((backlight, array), (backlight, given), (torch, array)):
        x = library.from_numpy(x).requires_grad_()
        y = FOREIGN[name](library, x)
        (y * y).sum().backward()
        results.append([y.detach().numpy(), x.grad.numpy()])
    for plain, foreign, theirs in zip(*results):
        np.testing.assert_array_equal(foreign, plain)
        np.testing.assert_allclose(foreign, theirs, 1e-4, 1e-4)
    assert ran
    kinds = [kind for kernel in kernels.compiling.made for signature in kernel.signatures for kind in signature]
    assert all(kind.mutable for kind in kinds if hasattr(kind, "layout"))


@pytest.mark.parametrize("operation", ["gather", "scatter_add", "embedding"])
def test_index_changed_behind_autograds_back(operation):
    """NumPy shares the index's memory: what it writes there ticks no version. Kernels may not follow it out of an array."""
    size = (500, 64) if operation != "embedding" else (500,)
    raw = np.random.default_rng(0).integers(0, 100, size)
    index, x, source = (
        backlight.from_numpy(raw),
        backlight.randn(100, 64, requires_grad=True),
        backlight.randn(500, 64, requires_grad=True),
    )
    y = {
        "gather": lambda: x.gather(0, index),
        "scatter_add": lambda: x.scatter_add(0, index, source),
        "embedding": lambda: backlight.nn.functional.embedding(index, x),
    }[operation]()
    raw[...] = 10**9
    with pytest.raises(IndexError, match="changed since"):
        (y**2).sum().backward()
