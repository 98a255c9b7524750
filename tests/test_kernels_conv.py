"""Convolution's and pooling's kernels against PyTorch: values and gradients, shapes off the beaten track, accuracy."""

import numpy as np
import pytest
import torch

import backlight
from backlight import kernels

# (batch, groups, channels and outputs of a group, kernel, stride, dilation, padding, sizes)
SHAPES = {
    "plain": (2, 1, 3, 8, (3, 3), (1, 1), (1, 1), (1, 1), (9, 11)),
    "no padding": (3, 1, 5, 7, (3, 3), (1, 1), (1, 1), (0, 0), (8, 21)),
    "1x1": (2, 1, 9, 17, (1, 1), (1, 1), (1, 1), (0, 0), (7, 13)),
    "1x1 strided": (2, 1, 9, 4, (1, 1), (2, 3), (1, 1), (0, 0), (7, 13)),
    "depthwise": (2, 13, 1, 1, (3, 3), (1, 1), (1, 1), (1, 1), (10, 12)),
    "depthwise multiplied": (2, 5, 1, 3, (5, 3), (2, 1), (1, 1), (2, 0), (10, 12)),
    "groups": (2, 3, 4, 5, (3, 2), (1, 2), (1, 1), (1, 2), (10, 12)),
    "strided": (2, 1, 6, 9, (3, 3), (2, 2), (1, 1), (1, 1), (15, 14)),
    "stride beyond the kernel": (2, 1, 3, 4, (2, 2), (3, 4), (1, 1), (1, 0), (13, 14)),
    "dilated": (2, 1, 4, 6, (3, 3), (1, 1), (2, 3), (2, 3), (12, 16)),
    "dilated and strided": (2, 2, 4, 3, (3, 4), (2, 3), (3, 2), (4, 1), (17, 23)),
    "padding beyond the kernel": (2, 1, 3, 5, (2, 1), (1, 1), (1, 1), (4, 3), (5, 6)),
    "kernel as large as the input": (5, 1, 6, 16, (5, 5), (1, 1), (1, 1), (0, 0), (5, 5)),
    "one row": (1, 1, 3, 4, (1, 7), (1, 2), (1, 1), (0, 3), (1, 50)),
    "long rows": (1, 1, 2, 3, (3, 3), (1, 1), (1, 1), (1, 1), (3, 5000)),
    "many rows": (1, 1, 40, 3, (3, 3), (1, 1), (1, 1), (1, 1), (300, 50)),
    "many images": (37, 1, 3, 5, (3, 3), (1, 1), (1, 1), (1, 1), (4, 4)),
    "many channels": (3, 1, 130, 70, (3, 3), (1, 1), (1, 1), (1, 1), (7, 7)),
    "even tiles": (2, 1, 32, 32, (3, 3), (1, 1), (1, 1), (1, 1), (12, 16)),
    "odd tiles": (3, 1, 33, 35, (3, 3), (1, 1), (1, 1), (0, 2), (13, 17)),
    "wide tiles": (2, 1, 70, 20, (3, 3), (1, 1), (1, 1), (3, 1), (6, 401)),
    "many tiles": (9, 1, 17, 150, (3, 3), (1, 1), (1, 1), (2, 0), (9, 8)),
    "one dimension": (4, 1, 6, 9, (5,), (1,), (1,), (2,), (100,)),
    "one dimension, all else": (4, 2, 3, 5, (4,), (3,), (2,), (5,), (61,)),
}


def _random(shape, dtype, seed=0):
    """Numbers that float32 has, whatever the type."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32).astype(dtype)


def _arrays(shape, dtype):
    n, groups, channels, outputs, sizes, *_geometry, spatial = shape
    return (
        _random((n, groups * channels, *spatial), dtype),
        _random((groups * outputs, channels, *sizes), dtype, 1),
        _random((groups * outputs,), dtype, 2),
    )


def _results(library, arrays, shape):
    """The output, and the gradients for some gradient of the output."""
    _n, groups, _channels, _outputs, sizes, stride, dilation, padding, _spatial = shape
    tensors = [library.tensor(a, requires_grad=True) for a in arrays]
    function = getattr(library.nn.functional, f"conv{len(sizes)}d")
    out = function(*tensors, stride, padding, dilation, groups)
    out.backward(library.tensor(_random(tuple(out.shape), arrays[0].dtype, 3)))
    return [out.detach().numpy(), *(t.grad.numpy() for t in tensors)]


@pytest.fixture(autouse=True)
def every_size(monkeypatch):
    """Kernels for arrays of any size; switched off, the same holds for NumPy."""
    if kernels.ENABLED:
        monkeypatch.setattr("backlight.ops.conv.KERNEL_FROM", 0)
        monkeypatch.setattr("backlight.ops.pool.KERNEL_FROM", 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients_are_pytorchs(name, dtype):
    arrays = _arrays(SHAPES[name], dtype)
    limit = 1e-5 if dtype == np.float32 else 1e-13
    for ours, theirs in zip(_results(backlight, arrays, SHAPES[name]), _results(torch, arrays, SHAPES[name])):
        assert ours.dtype == dtype and ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= limit * max(np.abs(theirs).max(), 1)


@pytest.mark.parametrize("seed", range(12))
def test_random_geometry(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 3))
    sizes, stride, dilation, padding = (
        tuple(map(int, rng.integers(*limits, d))) for limits in ((1, 5), (1, 4), (1, 4), (0, 4))
    )
    spatial = tuple(int(t * (k - 1) + 1 + rng.integers(0, 20)) for k, t in zip(sizes, dilation))
    n, groups, channels, outputs = (int(rng.integers(1, high)) for high in (12, 4, 9, 11))
    shape = (n, groups, channels, outputs, sizes, stride, dilation, padding, spatial)
    arrays = _arrays(shape, np.float64)
    for ours, theirs in zip(_results(backlight, arrays, shape), _results(torch, arrays, shape)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["many channels", "even tiles", "odd tiles", "strided"])
def test_errors_are_about_pytorchs(name):
    """Root mean square errors against float64 are at most twice those of PyTorch's float32."""
    arrays = _arrays(SHAPES[name], np.float32)
    exact = _results(torch, [a.astype(np.float64) for a in arrays], SHAPES[name])

    def errors(results):
        return [np.sqrt(np.mean((a - b) ** 2)) / np.sqrt(np.mean(b**2)) for a, b in zip(results, exact)]

    for ours, theirs in zip(errors(_results(backlight, arrays, SHAPES[name])), errors(_results(torch, arrays, SHAPES[name]))):
        assert ours <= 2 * theirs + 1e-7


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["plain", "1x1", "strided", "depthwise", "many channels", "even tiles"])
def test_values_that_are_not_finite(name, value):
    arrays = _arrays(SHAPES[name], np.float64)
    arrays[0][0, 0, 3, 2] = arrays[0][-1, -1, -1, -1] = value
    for ours, theirs in zip(_results(backlight, arrays, SHAPES[name]), _results(torch, arrays, SHAPES[name])):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


def test_arrays_in_any_layout():
    results = []
    for library in (backlight, torch):
        x = library.tensor(_random((3, 9, 12, 20), np.float32), requires_grad=True)
        weight = library.tensor(_random((3, 3, 8, 20), np.float32), requires_grad=True)
        y = library.nn.functional.conv2d(x.permute(0, 3, 1, 2)[:, ::2, :, 1:], weight.permute(2, 3, 1, 0)[:, :10], padding=1)
        (y.transpose(2, 3) * y.flip(0).transpose(2, 3)).sum().backward()
        results.append([y.detach().numpy(), x.grad.numpy(), weight.grad.numpy()])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def test_derivatives_of_derivatives():
    results = []
    for library in (backlight, torch):
        x = library.tensor(_random((2, 4, 9, 8), np.float64), requires_grad=True)
        weight = library.tensor(_random((6, 2, 3, 3), np.float64), requires_grad=True)
        y = library.nn.functional.conv2d(x, weight, None, 2, 1, 1, 2)
        grads = library.autograd.grad((y**3).sum(), (x, weight), create_graph=True)
        sum((g**2).sum() for g in grads).backward()
        results.append([x.grad.numpy(), weight.grad.numpy()])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.skipif(not kernels.ENABLED, reason="kernels are switched off")
def test_sums_do_not_depend_on_threads():
    from backlight.kernels import threads

    arrays, results, before = (
        _arrays((16, 1, 24, 40, (3, 3), (1, 1), (1, 1), (1, 1), (12, 12)), np.float32),
        [],
        threads.get_threads(),
    )
    try:
        for number in (1, 3):
            threads.set_threads(number)
            results.append([_results(backlight, arrays, SHAPES["plain"])[2] for _ in range(3)])
    finally:
        threads.set_threads(before)
    for other in (*results[0], *results[1]):
        np.testing.assert_array_equal(other, results[0][0])


# Pooling

POOLS = {
    "halves": ((2, 3, 8, 12), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "odd sizes": ((2, 3, 9, 13), (2, 2), (2, 2), (0, 0), (1, 1), True),
    "overlapping": ((2, 3, 9, 40), (3, 3), (2, 2), (1, 1), (1, 1), False),
    "stride 1": ((1, 5, 7, 37), (3, 2), (1, 1), (1, 1), (1, 1), True),
    "dilated": ((1, 5, 17, 19), (3, 2), (2, 3), (1, 1), (2, 3), True),
    "unbatched": ((5, 7, 9), (3, 3), (3, 4), (0, 1), (1, 1), False),
    "one dimension": ((3, 4, 50), (3,), (2,), (1,), (1,), True),
    "three dimensions": ((2, 3, 6, 7, 8), (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 1, 1), False),
}


def _pooled(library, name, x, *arguments, **options):
    x = library.tensor(x, requires_grad=True)
    result = getattr(library.nn.functional, name)(x, *arguments, **options)
    values, *indices = result if isinstance(result, tuple) else (result,)
    values.backward(library.tensor(_random(tuple(values.shape), x.detach().numpy().dtype, 1)))
    return [values.detach().numpy(), x.grad.numpy(), *(i.numpy() for i in indices)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_max_pool(name, special, dtype):
    """special: many equal values, NaN, infinities. The first of equals and the last NaN is the maximum, as in PyTorch."""
    shape, kernel, stride, padding, dilation, ceil_mode = POOLS[name]
    x = _random(shape, dtype)
    if special:
        x = np.round(x)
        x.reshape(-1)[::7], x.reshape(-1)[3::19], x.reshape(-1)[5::23] = -np.inf, np.nan, np.inf
    function = f"max_pool{len(kernel)}d"
    ours, theirs = (_pooled(library, function, x, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
                    for library in (backlight, torch))  # fmt: skip
    np.testing.assert_array_equal(ours[2], theirs[2])
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_avg_pool(name, include, dtype):
    shape, kernel, stride, padding, _dilation, ceil_mode = POOLS[name]
    x = _random(shape, dtype)
    x.reshape(-1)[0] = np.inf  # what padding would read
    function = f"avg_pool{len(kernel)}d"
    ours, theirs = (
        _pooled(library, function, x, kernel, stride, padding, ceil_mode, include) for library in (backlight, torch)
    )
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["adaptive_max_pool2d", "adaptive_avg_pool2d"])
@pytest.mark.parametrize("sizes", [(3, 5), (1, 1), (4, 7), (11, 16)])
def test_adaptive_pool(name, sizes):
    ours, theirs = (_pooled(library, name, _random((2, 3, 11, 13), np.float32), sizes) for library in (backlight, torch))
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
