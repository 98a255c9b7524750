"""backlight.printing against PyTorch: the same tensor must have the same text."""

import importlib.util
import pathlib
import time

import ml_dtypes
import numpy as np
import pytest
import torch

PATH = pathlib.Path(__file__).parents[1] / "src" / "backlight" / "printing.py"
spec = importlib.util.spec_from_file_location("backlight_printing_arrays", PATH)
printing = importlib.util.module_from_spec(spec)
spec.loader.exec_module(printing)

OPTIONS = [
    {},
    {"precision": 2},
    {"precision": 8, "linewidth": 60},
    {"precision": 0},
    {"threshold": 10},
    {"threshold": 10, "edgeitems": 1},
    {"threshold": 5, "edgeitems": 2, "linewidth": 40},
    {"threshold": 3, "edgeitems": 0},
    {"linewidth": 200},
    {"linewidth": 10},
    {"sci_mode": True},
    {"sci_mode": False},
    {"profile": "short"},
    {"profile": "full"},
    {"profile": "FULL"},
    {"profile": "short", "precision": 6, "sci_mode": True},
]
SMALL = [(), (1,), (3,), (30,), (2, 3), (3, 40), (2, 3, 4), (2, 1, 3, 2), (1, 1, 1, 1, 1)]
EMPTY = [(0,), (0, 3), (4, 0), (0, 0), (2, 0, 3)]
LARGE = [(999,), (1000,), (1001,), (40, 40), (1, 2000), (2000, 1), (11, 12, 13), (7, 7, 30), (5, 5, 5, 5, 5)]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]


KINDS = ["normal", "positive", "constant", "large", "small", "mild", "mixed", "integers", "large integers", "zeros"]
KINDS += ["negative zeros", "not finite", "some not finite", "integers and nan"]


def numbers(kind, shape, random):
    normal = random.standard_normal(shape)
    chance = random.random(shape)
    with_nan = np.where(chance < 0.2, np.nan, np.where(chance < 0.4, np.inf, np.where(chance < 0.6, -np.inf, normal)))
    kinds = {
        "normal": normal,
        "positive": abs(normal),
        "constant": np.full(shape, 1 / 3),
        "large": normal * 1e9,
        "small": normal * 1e-6,
        "mild": normal * 10.0 ** random.integers(-2, 2, shape),
        "mixed": normal * 10.0 ** random.integers(-30, 30, shape),
        "integers": np.round(normal * 100),
        "large integers": np.round(normal * 1e6),
        "zeros": np.zeros(shape),
        "negative zeros": np.negative(np.zeros(shape)),
        "not finite": np.where(chance < 0.5, np.nan, -np.inf),
        "some not finite": with_nan,
        "integers and nan": np.where(chance < 0.3, np.nan, np.round(normal * 10)),
    }
    return kinds[kind]


@pytest.fixture(autouse=True)
def default_options():
    reset()
    yield
    reset()


def reset(**options):
    torch.set_printoptions(profile="default")
    printing.set_printoptions(profile="default")
    torch.set_printoptions(**options)
    printing.set_printoptions(**options)


def text(tensor, **more):
    array = tensor.detach()
    array = array.float().numpy().astype(ml_dtypes.bfloat16) if array.dtype is torch.bfloat16 else array.numpy()
    return printing.tensor_repr(
        array,
        str(tensor.dtype).removeprefix("torch."),
        default_dtype_name=str(torch.get_default_dtype()).removeprefix("torch."),
        requires_grad=tensor.requires_grad,
        grad_fn_name=tensor.grad_fn and tensor.grad_fn.name(),
        **more,
    )


def make(kind, shape, dtype, random):
    values = torch.from_numpy(np.asarray(numbers(kind, shape, random)))
    if dtype.is_complex:
        values = torch.complex(values, torch.from_numpy(np.asarray(numbers(kind, shape, random))))
    return values.to(dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_numbers(kind, options):
    reset(**options)
    random = np.random.default_rng(0)
    for shape in SMALL:
        for dtype in [*FLOATS, torch.complex64, torch.complex128]:
            tensor = make(kind, shape, dtype, random)
            assert text(tensor) == repr(tensor)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", SMALL + EMPTY + LARGE, ids=str)
def test_shapes(shape, options):
    reset(**options)
    random = np.random.default_rng(1)
    for kind in ("normal", "mixed", "integers"):
        for dtype in (torch.float32, torch.float64, torch.complex64):
            tensor = make(kind, shape, dtype, random)
            assert text(tensor) == repr(tensor)
    for dtype in INTEGERS:
        tensor = torch.from_numpy(np.asarray(random.integers(-200, 300, shape))).to(dtype)
        assert text(tensor) == repr(tensor)
    leaf = make("normal", shape, torch.float32, random).requires_grad_()
    for tensor in (leaf, leaf * 2, leaf.double().tanh()):
        assert text(tensor) == repr(tensor)


def test_layouts():
    tensor = torch.arange(24.0).reshape(2, 3, 4) / 7
    for view in (tensor.permute(2, 0, 1), tensor[:, ::2], tensor[..., 1], tensor.expand(2, 2, 3, 4)):
        assert text(view) == repr(view)


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.float16])
def test_default_dtype(default):
    try:
        torch.set_default_dtype(default)
        for dtype in [*FLOATS, *INTEGERS, torch.complex64, torch.complex128]:
            for shape in ((), (2,), (0,), (0, 2)):
                tensor = torch.zeros(shape, dtype=dtype)
                assert text(tensor) == repr(tensor)
    finally:
        torch.set_default_dtype(torch.float32)


def test_lines_break_where_pytorch_breaks_them():
    for size in range(1, 20):
        for value in (1.0, 1.5, 123456.75):
            leaf = torch.full((size,), value, dtype=torch.float64, requires_grad=True)
            for tensor in (leaf, leaf + 1, leaf.reshape(1, size) * 2):
                assert text(tensor) == repr(tensor)


@pytest.mark.parametrize(
    "values",
    [
        [1e8],
        [1.0000001e8],
        [1.0, 1000.0],
        [1.0, 1001.0],
        [0.5, 500.0],
        [0.5, 500.5],
        [1e-4],
        [9.99e-5],
        [1e-4, 1e-1],
        [2.0**63],
        [1e308, 1e-308],
        [5e-324],
        [float("nan")],
        [float("-inf"), 0.0],
        [float("inf"), 1e10],
        [-0.0, 0.99999],
        [0.99995, 9.99995],
        [1e15, 1e15 + 1],
    ],
)
def test_where_notations_change(values):
    for options in ({}, {"sci_mode": True}, {"sci_mode": False}, {"precision": 1}):
        reset(**options)
        for tensor in (torch.tensor(values, dtype=torch.float64), torch.tensor(values), torch.tensor(values[0])):
            assert text(tensor) == repr(tensor)
        tensor = torch.complex(*(torch.tensor(x, dtype=torch.float64) for x in (values, values[::-1])))
        assert text(tensor) == repr(tensor)


def test_large_integers():
    for dtype, value in ((torch.int64, -(2**63)), (torch.int64, 2**63 - 1), (torch.uint64, 2**64 - 1)):
        tensor = torch.tensor([value, 0], dtype=dtype)
        assert text(tensor) == repr(tensor)


def test_prefix_and_contents():
    tensor = torch.randn(40)
    ours = text(torch.nn.Parameter(tensor), prefix="tensor(")
    assert "Parameter containing:\n" + ours == repr(torch.nn.Parameter(tensor))
    assert text(tensor, prefix="f(", tensor_contents="...") == "f(...)"
    assert text(tensor.double(), prefix="f(", tensor_contents="x" * 76) == "f(" + "x" * 76 + ",\n  dtype=torch.float64)"


def test_options():
    from torch._tensor_str import get_printoptions

    for options in OPTIONS + [{"profile": "unknown"}]:
        reset(**options)
        assert printing.get_printoptions() == get_printoptions()
    printing.set_printoptions(sci_mode=True)
    printing.set_printoptions()
    assert printing.get_printoptions()["sci_mode"] is None


def test_a_large_array_is_summarised_first():
    array = np.zeros((4000, 4000), np.float32)
    start = time.perf_counter()
    printing.tensor_repr(array, "float32")
    assert time.perf_counter() - start < 0.5
