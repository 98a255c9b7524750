"""x[index] and x[index] = value against PyTorch, over generated indices: values, gradients, views, versions."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import backlight

BOTH = (torch, backlight)
SHAPE = (3, 4, 5)
INDICES = """
0|-1|2|None|...|slice(None)|slice(1, 3)|slice(None, None, 2)|slice(-2, None)|slice(5, 9)|slice(2, 1)|True|False
(0,)|(0, 1)|(0, 1, 2)|(-1, -2)|(..., 0)|(0, ...)|(0, ..., 1)|(slice(None), 1)|(slice(1, None), slice(None, 2))|(None, 0)
(0, None)|(None, ..., None)|(slice(None), None, 1)|(..., slice(1, 3))|(0, slice(None), 2)|()
I([0, 2])|I([0, 0, 1])|I([[0, 1], [2, 0]])|I(1)|I([-1, 1])|[0, 2]|[[0, 1], [2, 0]]|I([])|[]
(I([0, 1]), I([1, 2]))|(I([0, 1]), I([1, 2]), I([3, 4]))|(I([[0], [2]]), I([1, 3]))|(slice(None), I([1, 3]))|(..., I([0, 4]))
(I([0, 1]), slice(None), I([3, 4]))|(slice(None), I([0, 1]), I([3, 4]))|(I([0, 1]), slice(1, 3))|(0, I([1, 2]))|(I([0, 1]), 2)
(0, slice(None), I([1, 2]))|(None, I([0, 1]))|(I([0, 1]), None)|(I([0, 1]), ..., 3)|(I([0, 1]), 0, I([1, 2]))|([0, 1], [1, 2])
(I([0, 1]), None, I([1, 2]))|(slice(None), [0, 1], 2)|(I(1), I([0, 2]))|(I(1), I(2))|(I(1), slice(None), I(2))
B((3,))|B((3, 4))|B((3, 4, 5))|(B((3,)), 1)|(slice(None), B((4,)))|(0, B((4, 5)))|(..., B((5,)))|(B((3,)), slice(1, 3))|(B((3,)), None)
(B((3,)), I([1, 2]))|(B((3, 4)), 2)|[True, False, True]|I8([0, 2])|I32([0, 2])|N([0, 2])|NB((3,))|(N([0, 1]), N([1, 2]))|P(1)|B(())
"""
INDICES = [i for line in INDICES.strip().splitlines() for i in line.split("|")]


def index_for(package, text):
    def mask(shape):
        array = np.arange(int(np.prod(shape))).reshape(shape) % 2 == 0
        if shape == (3,):
            array = np.array([True, False, True])
        return array

    return eval(text, {
        "I": lambda v: package.tensor(v, dtype=package.int64), "I8": lambda v: package.tensor(v, dtype=package.int8),
        "I32": lambda v: package.tensor(v, dtype=package.int32), "B": lambda s: package.from_numpy(np.array(mask(s))),
        "N": np.array, "NB": mask, "P": np.int64, "slice": slice,
    })  # fmt: skip


def outcome(function):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function()
    except Exception as error:
        return type(error)


def assert_same(theirs, ours):
    if isinstance(theirs, type):
        assert ours is theirs
        return
    assert isinstance(ours, backlight.Tensor), ours
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy())


@pytest.mark.parametrize("text", INDICES)
def test_read(text):
    results = []
    for P in BOTH:
        leaf = P.arange(60, dtype=P.float64).reshape(SHAPE).requires_grad_()
        x = leaf * 1
        picked = outcome(lambda P=P, x=x: x[index_for(P, text)])
        results.append((picked, leaf, x))
    (theirs, their_leaf, _x), (ours, our_leaf, _y) = results
    assert_same(theirs, ours)
    if isinstance(theirs, type):
        return
    assert ours._is_view() == theirs._is_view()
    assert type(ours.grad_fn).__name__ == type(theirs.grad_fn).__name__
    if theirs._is_view() and theirs.numel() and 1 not in theirs.shape:
        assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())
    for picked in (theirs, ours):
        (picked * picked * picked.detach()).sum().backward()
    np.testing.assert_array_equal(our_leaf.grad.numpy(), their_leaf.grad.numpy())


VALUES = ["7.0", "P.tensor(7.0, dtype=P.float64)", "like", "like[..., :1]", "P.ones(5, dtype=P.float64) * 3", "2", "True", "like.float()",
          "P.tensor(3)", "[1.0, 2.0]", "P.ones(7)"]  # fmt: skip


@pytest.mark.parametrize("text", INDICES)
@pytest.mark.parametrize("value", VALUES)
def test_write(text, value):
    results = []
    for P in BOTH:
        leaf = P.arange(60, dtype=P.float64).reshape(SHAPE).requires_grad_()
        x = leaf * 1
        index = index_for(P, text)
        part = outcome(lambda x=x, index=index: x.detach()[index])
        if isinstance(part, type) or (value.startswith("like[") and not part.ndim):
            return
        like = (P.arange(part.numel(), dtype=P.float64) * 0.5).reshape(tuple(part.shape)).requires_grad_()
        written = outcome(lambda P=P, x=x, index=index, like=like: x.__setitem__(index, eval(value, {"P": P, "like": like})))
        results.append((written, leaf, x, like))
    (theirs, their_leaf, their_x, their_like), (ours, our_leaf, our_x, our_like) = results
    assert theirs == ours, f"{text} {value}"
    assert_same(their_x, our_x)
    assert our_x._version == their_x._version
    for x in (their_x, our_x):
        (x * x.detach()).sum().backward()
    for a, b in ((their_leaf, our_leaf), (their_like, our_like)):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            np.testing.assert_array_equal(b.grad.numpy(), a.grad.numpy())


def items(n):
    """What may index a dimension of n elements."""
    whole = st.integers(-n, n - 1)
    cut = st.builds(slice, st.none() | st.integers(-n - 1, n + 1), st.none() | st.integers(-n - 1, n + 1),
                    st.none() | st.integers(1, 3))  # fmt: skip
    some = st.lists(whole, min_size=2, max_size=2)
    mask = st.lists(st.booleans(), min_size=n, max_size=n).map(lambda v: ("mask", v))
    return whole | cut | some | mask | st.none()


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.tuples(items(3), items(4), items(5)), st.integers(0, 3))
def test_any_index(index, length):
    results = []
    for P in BOTH:
        parts = []
        for item in index[:length]:
            if isinstance(item, tuple):
                item = P.tensor(item[1])
            elif isinstance(item, list):
                item = P.tensor(item)
            parts.append(item)
        x = P.arange(60, dtype=P.float64).reshape(SHAPE).requires_grad_()
        results.append((outcome(lambda x=x, parts=parts: x[tuple(parts)]), x))
    (theirs, x), (ours, y) = results
    assert_same(theirs, ours)
    if not isinstance(theirs, type):
        theirs.sum().backward()
        ours.sum().backward()
        np.testing.assert_array_equal(y.grad.numpy(), x.grad.numpy())


def test_views_write_through():
    for P in BOTH:
        x = P.zeros(3, 4)
        x[1][2] = 5
        x[:, 0].add_(1)
        x.t()[3] = 7
        x[0:2][:, 1:3].mul_(2)
        assert x.tolist() == [[1, 0, 0, 7], [1, 0, 10, 7], [1, 0, 0, 7]]


def test_advanced_indexing_copies():
    x = backlight.zeros(3)
    x[[0, 1]].add_(1)
    assert x.tolist() == [0, 0, 0]
    x[[0, 1]] += 1
    assert x.tolist() == [1, 1, 0]


def test_repeated_index_accumulates_gradient():
    x = backlight.ones(3, requires_grad=True)
    x[[0, 0, 2]].sum().backward()
    assert x.grad.tolist() == [2, 0, 1]


def test_iteration_and_unpacking():
    for P in BOTH:
        a, b = P.arange(4).reshape(2, 2)
        assert (a.tolist(), b.tolist()) == ([0, 1], [2, 3])
        assert [int(v) for row in P.arange(4).reshape(2, 2) for v in row] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "value"), [*itertools.product(("float32", "int64", "bool", "uint8", "float16"), (1, 0, True, 2.5))]
)
def test_assigned_numbers_take_the_tensor_type(kind, value):
    results = []
    for P in BOTH:
        x = P.zeros(3).to(getattr(P, kind))
        x[1] = value
        x[[2]] = value
        results.append(x.tolist())
    assert results[0] == results[1]
