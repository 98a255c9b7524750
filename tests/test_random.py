"""PyTorch's random stream through the public functions: the same seed gives the same numbers, in any order of calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import backlight

CALLS = {
    "rand": lambda T, n: T.rand(n),
    "rand double": lambda T, n: T.rand(n, dtype=T.float64),
    "rand half": lambda T, n: T.rand(n, dtype=T.float16).float(),
    "randn": lambda T, n: T.randn(n),
    "randn double": lambda T, n: T.randn(n, dtype=T.float64),
    "randint": lambda T, n: T.randint(10, (n,)),
    "randint by name": lambda T, n: T.randint(high=10, size=(n,)),
    "randint low high": lambda T, n: T.randint(-5, 1000, (n,), dtype=T.int32),
    "randperm": lambda T, n: T.randperm(n),
    "normal": lambda T, n: T.normal(2.0, 3.0, (n,)),
    "normal tensors": lambda T, n: T.normal(T.arange(float(n)), T.ones(n)),
    "bernoulli": lambda T, n: T.bernoulli(T.full((n,), 0.3)),
    "bernoulli_": lambda T, n: T.empty(n).bernoulli_(0.7),
    "uniform_": lambda T, n: T.empty(n).uniform_(-2, 5),
    "normal_": lambda T, n: T.empty(n).normal_(1, 2),
    "exponential_": lambda T, n: T.empty(n).exponential_(2.0),
    "multinomial": lambda T, n: T.multinomial(T.arange(1.0, 6.0), 3),
    "multinomial replacement": lambda T, n: T.multinomial(T.arange(1.0, 6.0), n + 1, replacement=True),
    "rand_like": lambda T, n: T.rand_like(T.ones(n, 2)),
    "randn_like": lambda T, n: T.randn_like(T.ones(2, n)),
    "rand_like transposed": lambda T, n: T.rand_like(T.ones(n, 3).t()),  # drawn in the order of the memory
    "randn_like transposed": lambda T, n: T.randn_like(T.ones(n, 2, 3).transpose(0, 2)),
    "randint_like transposed": lambda T, n: T.randint_like(T.ones(n, 2, 3).transpose(0, 1), 50),
    "dropout transposed": lambda T, n: T.nn.functional.dropout(T.ones(n, 3).t(), 0.4),
    "dropout strided": lambda T, n: T.nn.functional.dropout(T.ones(n, 6)[:, ::2].t(), 0.4),
    "alpha_dropout transposed": lambda T, n: T.nn.functional.alpha_dropout(T.ones(n, 3).t(), 0.4, training=True),
    "dropout": lambda T, n: T.nn.functional.dropout(T.ones(n), 0.4),
    "dropout2d": lambda T, n: T.nn.functional.dropout2d(T.ones(2, n, 3, 3), 0.4),
    "linear": lambda T, n: T.nn.Linear(n + 1, 3).weight.detach(),
    "conv": lambda T, n: T.nn.Conv2d(1, 2, 3).bias.detach(),
    "embedding": lambda T, n: T.nn.Embedding(5, n + 1).weight.detach(),
    "xavier": lambda T, n: T.nn.init.xavier_normal_(T.empty(n + 1, 4)),
}
WITHIN_2_ULP = {"randn", "normal", "xavier", "embedding", "exponential"}


def assert_same(name, ours, theirs):
    ours, theirs = ours.numpy(), theirs.numpy()
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    if any(word in name for word in WITHIN_2_ULP):
        np.testing.assert_array_max_ulp(ours, theirs, 4)
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("size", [1, 2, 7, 15, 16, 17, 33, 100, 1000])
def test_same_numbers(name, size):
    for seed in (0, 20200910):
        torch.manual_seed(seed)
        backlight.manual_seed(seed)
        assert_same(name, CALLS[name](backlight, size), CALLS[name](torch, size))
        # what follows is in step, too
        assert_same("after", backlight.rand(3), torch.rand(3))


@pytest.mark.parametrize("seed", range(5))
def test_calls_in_any_order(seed):
    order = np.random.default_rng(seed).choice(list(CALLS), 60)
    torch.manual_seed(seed)
    backlight.manual_seed(seed)
    for i, name in enumerate(order):
        size = 1 + (i * 7) % 23
        assert_same(name, CALLS[name](backlight, size), CALLS[name](torch, size))


def test_generators_and_states():
    ours, theirs = backlight.Generator(), torch.Generator()
    assert ours.manual_seed(3) is ours
    theirs.manual_seed(3)
    assert_same("rand", backlight.rand(5, generator=ours), torch.rand(5, generator=theirs))
    assert ours.initial_seed() == theirs.initial_seed() == 3
    state = backlight.get_rng_state()
    first = backlight.rand(4)
    backlight.set_rng_state(state)
    assert (backlight.rand(4) == first).all()
    torch.manual_seed(11)
    backlight.set_rng_state(backlight.from_numpy(torch.get_rng_state().numpy().copy()))
    assert_same("randn", backlight.randn(9), torch.randn(9))
    assert backlight.initial_seed() != backlight.seed()
    for bad in ("a", 2**70):
        with pytest.raises(Exception) as expected:
            torch.manual_seed(bad)
        with pytest.raises(expected.type):
            backlight.manual_seed(bad)
