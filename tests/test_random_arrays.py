"""backlight.random against PyTorch: the same seed must give the same numbers and leave the same state behind."""

import copy
import importlib.util
import itertools
import pathlib
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch

PATH = pathlib.Path(__file__).parents[1] / "src" / "backlight" / "random.py"
spec = importlib.util.spec_from_file_location("backlight_random_arrays", PATH)
random = importlib.util.module_from_spec(spec)
spec.loader.exec_module(random)

NUMPY = {torch.bfloat16: np.dtype(ml_dtypes.bfloat16)}
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
COMPLEXES = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SIZES = [*range(71), 100, 623, 624, 625, 1000, 4097]


def numpy_dtype(dtype):
    return NUMPY.get(dtype) or np.dtype(str(dtype).removeprefix("torch."))


def to_numpy(tensor):
    if tensor.dtype is torch.bfloat16:
        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.numpy()


def assert_same(ours, theirs, ulp=0):
    theirs = to_numpy(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ulp == 0 or theirs.dtype.itemsize == 2:
        assert ours.tobytes() == theirs.tobytes()
        return
    if theirs.dtype.kind == "c":
        ours, theirs = (np.stack((x.real, x.imag)) for x in (ours, theirs))
    with np.errstate(invalid="ignore"):
        error = np.abs(ours - theirs)
    assert (error <= ulp * np.spacing(np.abs(theirs)))[np.isfinite(theirs)].all()


def assert_same_state(generator=None):
    state = (generator or random.default_generator).get_state()
    theirs = torch.get_rng_state().numpy()
    # The one float among the state: the spare normal number, which may be off by an ulp.
    assert np.array_equal(np.delete(state, range(5024, 5032)), np.delete(theirs, range(5024, 5032)))
    spare, their_spare = (float(x[5024:5032].view(np.float64)[0]) for x in (state, theirs))
    if state[5040]:
        assert abs(spare - their_spare) <= 2 * np.spacing(abs(their_spare))


def seed_both(seed):
    torch.manual_seed(seed)
    random.manual_seed(seed)


# --------------------------------------------------------------------------------------------------------- generator


@pytest.mark.parametrize("seed", [0, 1, 5, 2**31, 2**32 - 1, 2**32, 2**40 + 3, 2**63, 2**64 - 1, -1, -5, -(2**63)])
def test_seeds(seed):
    seed_both(seed)
    assert random.initial_seed() == torch.initial_seed()
    assert_same_state()
    assert_same(random.uniform(1000), torch.rand(1000))
    assert_same_state()


def test_seed_errors():
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            random.Generator().manual_seed(seed)
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            torch.Generator().manual_seed(seed)
    for seed in (1.5, "a", True):
        with pytest.raises(RuntimeError) as theirs:
            torch.Generator().manual_seed(seed)
        with pytest.raises(RuntimeError) as ours:
            random.Generator().manual_seed(seed)
        assert str(ours.value) == str(theirs.value)
    with pytest.raises(RuntimeError):
        random.Generator("cuda")


def test_new_generators():
    assert random.Generator().initial_seed() == torch.Generator().initial_seed()
    assert np.array_equal(random.Generator().get_state(), torch.Generator().get_state().numpy())
    generator = random.Generator()
    first, second = generator.seed(), generator.seed()
    assert first != second == generator.initial_seed()
    assert generator.manual_seed(3) is generator
    random.uniform(5, generator=generator)
    for twin in (generator.clone_state(), copy.deepcopy(generator)):
        assert np.array_equal(twin.get_state(), generator.get_state())
        assert np.array_equal(random.uniform(5, generator=twin), random.uniform(5, generator=generator.clone_state()))


@pytest.mark.parametrize("draws", [0, 1, 3, 623, 624, 625, 1247, 1248, 5000])
def test_state_moves_between_the_two(draws):
    seed_both(7)
    torch.rand(draws)
    torch.randn(3)
    state = torch.get_rng_state()
    generator = random.Generator().set_state(state.numpy())
    assert np.array_equal(generator.get_state(), state.numpy())
    assert generator.initial_seed() == 7
    assert_same(random.normal(5, generator=generator), torch.randn(5))
    assert_same_state(generator)
    torch.set_rng_state(torch.from_numpy(generator.get_state()))
    assert_same(random.uniform(700, generator=generator), torch.rand(700))
    generator.manual_seed(8)
    torch.manual_seed(8)
    assert_same_state(generator)


@pytest.mark.parametrize("state", [np.zeros(3, np.uint8), np.zeros(5056, np.float32), np.zeros(5056, np.uint8)])
def test_state_errors(state):
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        torch.Generator().set_state(torch.from_numpy(state))
    with pytest.raises(theirs.type) as ours:
        random.Generator().set_state(state)
    assert str(ours.value) == str(theirs.value)
    with pytest.raises(TypeError, match="expected a torch.ByteTensor, but got list"):
        random.Generator().set_state([1])


def test_a_generator_of_its_own_leaves_the_default_alone():
    seed_both(3)
    before = random.default_generator.get_state()
    generator = random.Generator().manual_seed(11)
    their_generator = torch.Generator().manual_seed(11)
    assert_same(random.normal(33, generator=generator), torch.randn(33, generator=their_generator))
    assert_same(random.randperm(33, generator=generator), torch.randperm(33, generator=their_generator))
    assert np.array_equal(random.default_generator.get_state(), before)


# ------------------------------------------------------------------------------------------------------- every size


@pytest.mark.parametrize("dtype", FLOATS + COMPLEXES)
def test_rand_and_randn_of_every_size(dtype):
    """One seed for all sizes: each call starts from the state, and the spare normal, that the last one left."""
    seed_both(12)
    wide = dtype in (torch.float64, torch.complex128)
    for size in SIZES:
        assert_same(random.uniform(size, numpy_dtype(dtype)), torch.rand(size, dtype=dtype))
        assert_same(random.normal(size, numpy_dtype(dtype)), torch.randn(size, dtype=dtype), ulp=3 if wide else 0)
        assert_same_state()


@pytest.mark.parametrize("seed", range(4))
def test_randn_has_the_same_bits(seed):
    seed_both(seed)
    assert_same(random.normal((500, 401)), torch.randn(500, 401))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS + [torch.bool])
def test_integers_of_every_size(dtype):
    seed_both(13)
    kind = numpy_dtype(dtype)
    for size in SIZES:
        assert_same(random.randint(0, 2, size, kind), torch.randint(0, 2, (size,), dtype=dtype))
        assert_same(random.random_(np.empty(size, kind)), torch.empty(size, dtype=dtype).random_())
        if dtype is not torch.bool:
            assert_same(random.randint(3, 100, size, kind), torch.randint(3, 100, (size,), dtype=dtype))
        if dtype is not torch.bool and size < 120:
            assert_same(random.randperm(size, kind), torch.randperm(size, dtype=dtype))
        assert_same_state()


# ---------------------------------------------------------------------------------------------------- uniform, normal


BOUNDS = [(0, 1), (0, 0.3), (-1.7, 3.3), (2.1, 2.2), (-2.2, -2.1), (-1e-3, 1e-7), (0, 1e-7), (2, 2), (1, 1 + 2**-22)]


@pytest.mark.parametrize("dtype", FLOATS + COMPLEXES)
def test_uniform_bounds(dtype):
    seed_both(4)
    for (low, high), size in itertools.product([*BOUNDS, (-1, 1 / 3), (-30000, 30000), (0.1, 7)], (17, 5000)):
        ours = random.uniform_(np.empty(size, numpy_dtype(dtype)), low, high)
        assert_same(ours, torch.empty(size, dtype=dtype).uniform_(low, high))
    assert_same_state()


def test_uniform_of_the_widest_range():
    seed_both(4)
    for bound in (1e300, 8e307):
        ours = random.uniform_(np.empty(50), -bound, bound)
        assert_same(ours, torch.empty(50, dtype=torch.float64).uniform_(-bound, bound))


@pytest.mark.parametrize("dtype", FLOATS + COMPLEXES)
def test_normal_mean_and_std(dtype):
    seed_both(5)
    wide = dtype in (torch.float64, torch.complex128)
    for mean, std in [(0, 1), (0, 0.3), (1.7, 0.3), (-2.1, 3.3), (0.1, 1), (5, 0)]:
        for size in (1, 7, 15, 16, 33, 4099):
            ours = random.normal_(np.empty(size, numpy_dtype(dtype)), mean, std)
            theirs = torch.empty(size, dtype=dtype).normal_(mean, std)
            if wide:  # adding the mean may cancel all but the last bits, where the logarithms differ
                np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-15, atol=1e-15)
            else:
                assert_same(ours, theirs)
    assert_same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_of_arrays(dtype):
    generator = np.random.default_rng(0)
    ulp = 0 if dtype is not torch.float64 else 3
    for size in (5, 40, 1000):
        mean = to_numpy(torch.from_numpy(generator.uniform(1, 2, (3, size))).to(dtype))
        std = to_numpy(torch.from_numpy(generator.uniform(0, 0.1, size)).to(dtype))
        their_mean, their_std = (torch.from_numpy(x.astype(np.float64)).to(dtype) for x in (mean, std))
        seed_both(6)
        assert_same(random.normal(mean=mean, std=std), torch.normal(their_mean, their_std), ulp)
        assert_same(random.normal(mean=mean, std=0.25), torch.normal(their_mean, 0.25), ulp)
        assert_same(random.normal(mean=2.0, std=std), torch.normal(2.0, their_std), ulp)
        assert_same_state()


# ----------------------------------------------------------------------------------------------------------- integers

SPANS = [(0, 1), (-5, 5), (0, 2**24), (0, 2**28 - 1), (0, 2**28), (5, 2**28 + 4), (5, 2**28 + 5), (-(2**27), 2**27)]
SPANS += [(0, 2**31), (0, 2**32 - 1), (0, 2**32), (0, 2**40 + 7), (-(2**63), 2**63 - 1), (0, 2**63 - 1), (-7, -3)]


@pytest.mark.parametrize("span", SPANS)
def test_randint_spans(span):
    seed_both(1)
    for dtype in (torch.int64, torch.int32, torch.float64, torch.int16, torch.uint64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                theirs = torch.randint(*span, (40,), dtype=dtype)
            except RuntimeError as error:
                with pytest.raises(RuntimeError) as ours:
                    random.randint(*span, 40, numpy_dtype(dtype))
                assert str(ours.value) == str(error)
            else:
                assert_same(random.randint(*span, 40, numpy_dtype(dtype)), theirs)
    assert_same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_random_of_floats_beyond_exact_integers(dtype):
    seed_both(2)
    spans = [(0, 5002), (0, 5004), (2049, 5004), (-5001, 5004), (0, 2**15 + 1), (300, 1001), (0, 2**25 + 1)]
    spans += [(-(2**25) - 1, 3), (0, 2**54 + 1), (0, 60001)]
    for low, high in spans:
        if dtype is torch.float16 and max(abs(low), high) > 65504:
            continue
        with warnings.catch_warnings(record=True) as theirs_warned:
            warnings.simplefilter("always")
            theirs = torch.empty(500, dtype=dtype).random_(low, high)
        with warnings.catch_warnings(record=True) as ours_warned:
            warnings.simplefilter("always")
            assert_same(random.random_(np.empty(500, numpy_dtype(dtype)), low, high), theirs)
        texts = [str(x.message).partition(" (Triggered")[0] for x in theirs_warned]
        assert [str(x.message) for x in ours_warned] == texts
    assert_same_state()


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_random_from_a_low_bound_up(dtype):
    seed_both(2)
    for low in (0, 5, 100, *((-5,) if dtype is not torch.uint8 else ())):
        assert_same(random.random_(np.empty(50, numpy_dtype(dtype)), low), torch.empty(50, dtype=dtype).random_(low, None))
    assert_same_state()


def test_random_of_all_bits_and_below_a_bound():
    seed_both(2)
    ours = random.random_(np.empty(50, np.int64), -(2**63))
    assert_same(ours, torch.empty(50, dtype=torch.int64).random_(-(2**63), None))
    ours = random.random_(np.empty(50, np.int32), -(2**31))
    assert_same(ours, torch.empty(50, dtype=torch.int32).random_(-(2**31), None))
    assert_same(random.random_(np.empty(50, np.int64), high=9), torch.empty(50, dtype=torch.int64).random_(9))
    assert_same_state()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 10, 127, 128, 1000, 4097, 100_000])
def test_randperm(n):
    for seed in range(5):
        seed_both(seed)
        assert_same(random.randperm(n), torch.randperm(n))
        assert_same_state()


# ------------------------------------------------------------------------------------------------ further distributions


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [torch.bool])
def test_bernoulli(dtype):
    seed_both(9)
    kind = numpy_dtype(dtype)
    for size in (0, 1, 2, 15, 16, 17, 1001):
        for p in (0.0, 0.3, 0.5, 1.0):
            ours = random.bernoulli_(np.empty(size, kind), p)
            assert_same(ours, torch.empty(size, dtype=dtype).bernoulli_(p))
        for p_dtype in FLOATS:
            p = torch.linspace(0, 1, size, dtype=p_dtype)
            ours = random.bernoulli_(np.empty((2, size), kind), to_numpy(p))
            assert_same(ours, torch.empty(2, size, dtype=dtype).bernoulli_(p))
        p = np.array(0.4, np.float32)
        assert_same(random.bernoulli_(np.empty(size, kind), p), torch.empty(size, dtype=dtype).bernoulli_(torch.tensor(0.4)))
    assert_same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_bernoulli_of_probabilities(dtype):
    seed_both(10)
    for shape in ((), (1,), (17,), (30, 41)):
        p = torch.rand(shape).to(dtype)
        random.uniform(shape)
        assert_same(random.bernoulli(to_numpy(p)), torch.bernoulli(p))
        if p.ndim == 2:
            assert_same(random.bernoulli(to_numpy(p).T), torch.bernoulli(p.T))
    assert_same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_dropout(dtype):
    seed_both(11)
    for size, p in itertools.product((1, 2, 15, 16, 17, 333), (0.0, 0.1, 0.3, 0.5, 0.9, 1.0, 1 / 3)):
        ones = torch.ones(size, dtype=dtype)
        assert_same(random.dropout_mask(to_numpy(ones), p), torch.nn.functional.dropout(ones, p))
    ones = torch.ones(5, 7, dtype=dtype).T
    assert_same(random.dropout_mask(to_numpy(ones), 0.4), torch.nn.functional.dropout(ones, 0.4))
    assert_same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_continuous_distributions(dtype):
    seed_both(14)
    ulp = 3 if dtype is torch.float64 else 0
    kind = numpy_dtype(dtype)
    for size in (0, 1, 3, 15, 16, 17, 2000):
        for lambd in (1.0, 0.2, 3.7, float("inf")):
            ours = random.exponential_(np.empty(size, kind), lambd)
            assert_same(ours, torch.empty(size, dtype=dtype).exponential_(lambd), ulp)
        ours, theirs = random.cauchy_(np.empty(size, kind)), torch.empty(size, dtype=dtype).cauchy_()
        assert_same(ours, theirs, ulp)
        ours, theirs = random.cauchy_(np.empty(size, kind), 1.5, 2.5), torch.empty(size, dtype=dtype).cauchy_(1.5, 2.5)
        if ulp:
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-15, atol=1e-14)
        else:
            assert_same(ours, theirs)
        ours, theirs = random.log_normal_(np.empty(size, kind)), torch.empty(size, dtype=dtype).log_normal_()
        if ulp:
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=4e-15)
        else:
            assert_same(ours, theirs)
        assert_same_state()


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_geometric(dtype):
    seed_both(15)
    for size, p in itertools.product((1, 2, 17, 2000), (0.001, 0.3, 0.9)):
        ours = random.geometric_(np.empty(size, numpy_dtype(dtype)), p)
        assert_same(ours, torch.empty(size, dtype=dtype).geometric_(p))
    assert_same_state()


@pytest.mark.parametrize("dtype", FLOATS)
def test_multinomial(dtype):
    seed_both(16)
    for shape in ((1,), (2,), (5,), (20,), (3, 7), (4, 50), (0, 3)):
        weights = torch.rand(shape, dtype=torch.float32).to(dtype)
        random.uniform(shape)
        array = to_numpy(weights)
        for samples in {1, 2, shape[-1]}:
            if weights.numel() or samples == 1:
                assert_same(random.multinomial(array, samples, True), torch.multinomial(weights, samples, True))
            # In 16 bits quotients tie, and the order of equals is not specified.
            if samples == 1 or (samples <= shape[-1] and dtype in (torch.float32, torch.float64)):
                assert_same(random.multinomial(array, samples), torch.multinomial(weights, samples))
    weights = torch.rand(1000).to(dtype)
    random.uniform(1000)
    assert_same(random.multinomial(to_numpy(weights), 3000, True), torch.multinomial(weights, 3000, True))
    assert_same_state()


# --------------------------------------------------------------------------------------- layouts, sequences, errors

LAYOUTS = {
    "transposed": lambda make: make(5, 7).T if isinstance(make(1), np.ndarray) else make(5, 7).t(),
    "strided": lambda make: make(5, 14)[:, ::2],
    "strided and transposed": lambda make: make(7, 10)[:, ::2].T,
    "permuted": lambda make: getattr(make(2, 3, 4), "permute", make(2, 3, 4).transpose)(2, 0, 1),
    "column": lambda make: make(20, 2)[:, 0],
    "row as column": lambda make: make(1, 20).T,
    "contiguous part": lambda make: make(9, 8)[2:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.int64])
def test_layouts(layout, dtype):
    ours = LAYOUTS[layout](lambda *shape: np.empty(shape, numpy_dtype(dtype)))
    theirs = LAYOUTS[layout](lambda *shape: torch.empty(shape, dtype=dtype))
    names = ["random_", "bernoulli_"]
    if dtype is not torch.int64:
        names = ["uniform_", "normal_"]
        if dtype is not torch.complex64:
            names += ["exponential_", "log_normal_", "cauchy_", "bernoulli_", "random_"]
    seed_both(17)
    for name in names:
        getattr(random, name)(ours)
        getattr(theirs, name)()
        if dtype is torch.float64 and name in ("log_normal_", "cauchy_"):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=4e-15)
        else:
            assert_same(ours, theirs, ulp=3 if dtype is torch.float64 else 0)
        assert_same_state()


@pytest.mark.parametrize("seed", range(6))
def test_sequences_stay_in_step(seed):
    seed_both(seed)
    choose = np.random.default_rng(seed)
    calls = [
        lambda n: (random.uniform(n), torch.rand(n)),
        lambda n: (random.normal(n), torch.randn(n)),
        lambda n: (random.normal(n, np.float16), torch.randn(n, dtype=torch.float16)),
        lambda n: (random.randint(0, 17, n), torch.randint(0, 17, (n,))),
        lambda n: (random.randint(0, 2**40, n), torch.randint(0, 2**40, (n,))),
        lambda n: (random.randperm(n), torch.randperm(n)),
        lambda n: (random.bernoulli_(np.empty(n, np.float32), 0.3), torch.empty(n).bernoulli_(0.3)),
        lambda n: (random.log_normal_(np.empty(n, np.float32)), torch.empty(n).log_normal_()),
        lambda n: (random.normal_(np.empty((n, 2), np.float32)[:, 0]), torch.empty(n, 2)[:, 0].normal_()),
        lambda n: (random.normal(n, np.complex64), torch.randn(n, dtype=torch.complex64)),
    ]
    for _ in range(150):
        assert_same(*calls[choose.integers(len(calls))](int(choose.integers(0, 40))))
        assert_same_state()


def fill(name, dtype, *arguments):
    return (
        lambda: getattr(random, name)(np.empty(2, numpy_dtype(dtype)), *arguments),
        lambda: getattr(torch.empty(2, dtype=dtype), name)(*arguments),
    )


def draw(name, values, *arguments, dtype=torch.float32):
    values = torch.tensor(values, dtype=dtype)
    return lambda: getattr(random, name)(to_numpy(values), *arguments), lambda: getattr(torch, name)(values, *arguments)


def permutation(n, dtype):
    return lambda: random.randperm(n, numpy_dtype(dtype)), lambda: torch.randperm(n, dtype=dtype)


INF, NAN, F16, BF16, C64 = float("inf"), float("nan"), torch.float16, torch.bfloat16, torch.complex64
EVERY_DTYPE = FLOATS + COMPLEXES + INTEGERS + [torch.bool, torch.uint16, torch.uint32, torch.uint64]
ERRORS = [
    *(fill("uniform_", dtype, 0, 1e309) for dtype in EVERY_DTYPE),
    *(fill("random_", dtype, -(2**63), 5) for dtype in EVERY_DTYPE if dtype not in FLOATS + [torch.int64]),
    *(fill("random_", dtype, 0, 2**63 - 1) for dtype in INTEGERS[:4] + [F16, torch.bool, torch.uint16, torch.uint32]),
    *(
        fill(name, dtype)
        for name in ("normal_", "exponential_", "cauchy_", "log_normal_")
        for dtype in EVERY_DTYPE
        if dtype not in FLOATS + (COMPLEXES if name == "normal_" else [])
    ),
    *(
        fill(name, dtype, *arguments)
        for name, arguments in (("random_", ()), ("bernoulli_", (0.5,)), ("geometric_", (0.5,)))
        for dtype in COMPLEXES + [torch.uint16, torch.uint32, torch.uint64]
    ),
    fill("geometric_", torch.bool, 0.5),
    *(
        permutation(n, dtype)
        for n, dtype in [(-1, torch.int64), (257, torch.uint8), (129, torch.int8), (32769, torch.int16), (2050, F16)]
        + [(2**24 + 2, torch.float32), (5, C64), (5, torch.bool), (5, torch.uint16)]
    ),
    *(draw("bernoulli", [1, 0], dtype=dtype) for dtype in INTEGERS + [torch.uint16, C64]),
    *(draw("multinomial", [1, 1], 1, dtype=dtype) for dtype in INTEGERS + [C64]),
    fill("uniform_", torch.float32, 2, 1),
    fill("uniform_", torch.float32, NAN, 1),
    fill("uniform_", torch.float32, -3e38, 3e38),
    fill("uniform_", F16, -6e4, 6e4),
    fill("uniform_", BF16, -1e60, 0),
    fill("uniform_", torch.float64, -1e308, 1.79e308),
    fill("normal_", torch.float32, 0, -1),
    fill("normal_", C64, 0, -1.5),
    fill("exponential_", torch.float32, 0),
    fill("exponential_", torch.float32, NAN),
    fill("geometric_", torch.float32, 0),
    fill("geometric_", torch.float32, 1),
    fill("geometric_", torch.float32, 1.5),
    fill("cauchy_", torch.float32, 0, 0),
    fill("log_normal_", torch.float32, 0, 0),
    fill("bernoulli_", torch.float32, 1.5),
    fill("bernoulli_", torch.float32, NAN),
    fill("random_", torch.int64, 5, 5),
    fill("random_", torch.int64, 0, 2**63),
    draw("bernoulli", [0.5, 1.5]),
    draw("bernoulli", [0.5, NAN]),
    draw("multinomial", [1, -2], 1),
    draw("multinomial", [1, INF], 1),
    draw("multinomial", [1, NAN], 1, True),
    draw("multinomial", [1, -2], 3, True),
    draw("multinomial", [1, NAN], 3, True),
    draw("multinomial", [1, INF], 3, True),
    draw("multinomial", [0, 0], 1),
    draw("multinomial", [[0, 0], [1, 1]], 1),
    draw("multinomial", [0, 0], 2, True),
    draw("multinomial", [1, 0], 3),
    draw("multinomial", [1, 0], 0),
    draw("multinomial", [[[1.0]]], 1),
    draw("multinomial", 1.0, 1),
    (lambda: random.dropout_mask(np.ones(2), -1), lambda: torch.dropout(torch.ones(2), -1.0, True)),
    (lambda: random.dropout_mask(np.ones(2), NAN), lambda: torch.dropout(torch.ones(2), NAN, True)),
    (
        lambda: random.normal(mean=np.zeros(2), std=np.array([1, -1.0])),
        lambda: torch.normal(torch.zeros(2), torch.tensor([1, -1.0])),
    ),
    (
        lambda: random.normal(mean=np.zeros(2), std=np.ones(2, np.complex64)),
        lambda: torch.normal(torch.zeros(2), torch.ones(2, dtype=C64)),
    ),
    (lambda: random.normal(mean=np.zeros(2), std=-1.0), lambda: torch.normal(torch.zeros(2), -1.0)),
    (lambda: random.normal(mean=np.zeros(2, int)), lambda: torch.normal(torch.zeros(2, dtype=torch.int64), 1.0)),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    ours, theirs = ERRORS[number]
    with pytest.raises((RuntimeError, ValueError)) as expected:
        theirs()
    with pytest.raises(expected.type) as raised:
        ours()
    assert str(raised.value) == str(expected.value)
