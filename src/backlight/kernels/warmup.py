"""Compiles kernels ahead of time, by running what uses them on arrays that are just large enough: `backlight warmup`.

Elementwise kernels are called for the kinds of arguments that occur: arrays, single numbers, gradients that were expanded.
Everything else goes the public way, so that argument types are those of programs.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

import numpy as np

from . import CHANNEL, ELEMENTWISE, ENABLED, FUSED, ONE_PASS, compiling

TYPES = ("float32", "float64")


class Result(NamedTuple):
    """How many kernels a task needed, and how many of them were compiled because they weren't there."""

    needed: int
    compiled: int


def tasks(types=TYPES) -> list[tuple[str, str]]:
    """What `run` takes: (a group of kernels, a type)."""
    if not ENABLED:
        raise RuntimeError(
            "kernels are switched off: by BACKLIGHT_KERNELS=numpy or NUMBA_DISABLE_JIT, or because Numba isn't installed"
        )
    return [(group, dtype) for dtype in types for group in _GROUPS if _GROUPS[group] is not _one_type or dtype == types[0]]


def run(task: tuple[str, str]) -> Result:
    """Makes sure that a task's kernels are in the cache."""
    before = _counts()
    group, dtype = task
    _GROUPS[group](np.dtype(dtype))
    needed, compiled = (now - then for now, then in zip(_counts(), before))
    return Result(needed, compiled)


def run_all(jobs: int) -> Iterator[tuple[tuple[str, str], Result]]:
    """Runs all tasks in so many processes; yields each with its result as it is done."""
    compiling.make_kernels_directory()
    if jobs == 1:
        yield from ((task, run(task)) for task in tasks())
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(run, task): task for task in tasks()}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _counts() -> tuple[int, int]:
    """(kernels for types that this process has, those among them that it compiled)."""
    misses = sum(sum(kernel.stats.cache_misses.values()) for kernel in compiling.made)
    return misses + sum(sum(kernel.stats.cache_hits.values()) for kernel in compiling.made), misses


def _random(shape, dtype, **options):
    from .. import tensor

    return tensor(np.random.default_rng(0).standard_normal(shape).astype(dtype), **options)


def _pass(function, *tensors) -> None:
    """The function's result and its gradients for a dense gradient."""
    y = function(*[x.detach().requires_grad_() for x in tensors])
    y.backward(_random(y.shape, y.array.dtype))


def _operations(part: int, parts: int):
    """Every so many'th of the declared operations that have elementwise kernels."""
    from .. import ops
    from ..op import Op

    modules = [importlib.import_module(f"{ops.__name__}.{info.name}") for info in pkgutil.iter_modules(ops.__path__)]
    candidates = (getattr(value, "op", None) for module in modules for value in vars(module).values())
    found = {op.name: op for op in candidates if isinstance(op, Op)}
    for op in [found[name] for name in ELEMENTWISE][part::parts]:
        op.build()
        yield op


def _elementwise(part, parts, dtype):
    x = np.full(64, 0.5, dtype)
    number = x[:1].reshape(())
    for op in _operations(part, parts):
        forms, parameters = op.function.__globals__, (0.5,) * len(op.parameters)
        operands = [pair for pair in itertools.product((x, number), repeat=len(op.inputs)) if any(a.ndim for a in pair)]
        for inputs in operands:
            forms["large"](*inputs, *parameters)
            for i, gradient in itertools.product(range(len(op.formulas)), (x, np.broadcast_to(number, x.shape))):
                if op.formulas[i] is not None:
                    forms[f"f{i}_l"](gradient, *inputs, x, *parameters)


def _rows(dtype):
    from ..nn import functional

    x = _random((FUSED // 64 + 1, 64), dtype)
    _pass(lambda x: x.softmax(-1), x)
    _pass(lambda x: x.log_softmax(-1), x)
    _pass(lambda x, w, b: functional.layer_norm(x, (64,), w, b), x, _random(64, dtype), _random(64, dtype))
    large = _random((ONE_PASS // 64 + 1, 64), dtype)
    large.sum()
    large.sum(-1)


def _optimizers(dtype):
    from .. import nn, optim

    for make in (
        lambda p: optim.Adam(p, amsgrad=True),
        lambda p: optim.SGD(p, lr=0.1),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    ):
        parameter = nn.Parameter(_random(FUSED, dtype))
        optimizer = make([parameter])
        for _ in range(2):  # momentum has its own kernel from the second step on
            parameter.grad = _random(FUSED, dtype)
            optimizer.step()


def _attention(dtype):
    from ..nn import functional

    for causal in (False, True):
        q, k, v = (_random((1, 1, FUSED // 64 + 1, 64), dtype) for _ in range(3))
        _pass(lambda q, k, v, causal=causal: functional.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v)


def _recurrent(layer, dtype):
    from .. import nn
    from ..dtypes import from_array_type

    for options in ({}, {"bias": False}, {"bidirectional": True}):
        _pass(
            lambda x, options=options: getattr(nn, layer)(8, 64, dtype=from_array_type(dtype), **options)(x)[0],
            _random((8, 8, 8), dtype),
        )


def _channels(dtype):
    from ..nn import functional

    x, c = _random((8, 8, CHANNEL, FUSED // 64 // CHANNEL + 1), dtype), _random(8, dtype)
    for train in (True, False):
        _pass(lambda x, w, b, train=train: functional.batch_norm(x, c * 0, c * 0 + 1, w, b, train), x, c, c)
    _pass(lambda x, w, b: functional.group_norm(x, 2, w, b), x, c, c)


def _indexing(dtype):
    from .. import tensor
    from ..nn import functional

    x, index = _random((FUSED // 64 + 1, 64), dtype), tensor(np.arange(FUSED // 64 + 1))
    every = index.reshape(-1, 1) + tensor(np.zeros((1, 64), np.int64))
    _pass(lambda x: functional.embedding(index, x), x)
    _pass(lambda x: x[index], x)
    _pass(lambda x: x.index_add(0, index, x).index_select(0, index), x)
    _pass(lambda x: x.scatter_add(0, every, x).gather(0, every), x)


def _copies(dtype):
    _random((ONE_PASS // 64 + 1, 64), dtype).t().contiguous()


def _one_type(_dtype):
    """Kernels that have no choice of types."""
    from .. import randn
    from . import checksum

    checksum.crc32(np.zeros(1024, np.uint8))
    randn(FUSED).abs().pow(2.5)


def _convolution(dtype):
    from ..nn import functional
    from . import conv

    x, small, wide = _random((4, 4, 24, 24), dtype), _random((6, 4, 3, 3), dtype), _random((32, 32, 3, 3), dtype)
    convolve = lambda x, w, b: functional.conv2d(x, w, b, padding=1)
    for name in ("PRODUCT_TILES", "DOT_TILES"):  # each tile has its kernels
        tiles = getattr(conv, name)
        try:
            for tile in tiles:
                setattr(conv, name, (tile,))
                _forget_plans(conv)
                _pass(convolve, x, small, _random(6, dtype))
        finally:
            setattr(conv, name, tiles)
            _forget_plans(conv)
    _pass(convolve, _random((4, 32, 24, 24), dtype), wide, _random(32, dtype))


def _forget_plans(conv):
    for plan in (conv._forward_plan, conv._input_plan, conv._weight_plan):
        plan.cache_clear()


def _pooling(dtype):
    from ..nn import functional

    for pool in (functional.max_pool2d, functional.avg_pool2d):
        _pass(lambda x, pool=pool: pool(x, 2), _random((8, 8, 48, 48), dtype))


_ELEMENTWISE_PARTS = 6
_GROUPS = {
    "attention": _attention,
    "convolution": _convolution,
    **{
        f"elementwise operations, {part + 1} of {_ELEMENTWISE_PARTS}": lambda dtype, part=part: _elementwise(part, _ELEMENTWISE_PARTS, dtype)
        for part in range(_ELEMENTWISE_PARTS)
    },
    "LSTM": lambda dtype: _recurrent("LSTM", dtype),
    "GRU": lambda dtype: _recurrent("GRU", dtype),
    "rows": _rows,
    "optimizers": _optimizers,
    "channels": _channels,
    "indexing": _indexing,
    "pooling": _pooling,
    "copies": _copies,
    "checksums, random numbers, powers": _one_type,
}  # fmt: skip
