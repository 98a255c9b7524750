"""PyTorch's CPU random stream over NumPy arrays: the same seed gives the same numbers.

The stream is a Mersenne Twister of 32-bit words. What a distribution yields is decided by how many words it takes per
element and in which order, so each function below states its recipe. Two rules hold for all of them:

* elements are drawn in memory order, so a transposed array receives the numbers along its own memory;
* a formula that PyTorch's compiled code evaluates with a fused multiply-add is rounded once here too.

uniform, randint, randperm, bernoulli, geometric, dropout and the float32, float16 and bfloat16 forms of normal,
exponential and cauchy agree with PyTorch (x86-64, AVX2 or newer) in every bit; in float64 the logarithm and the sine
of NumPy and of PyTorch may differ by an ulp or two. Arrays go in and arrays come out: this module knows no Tensor.
"""

from __future__ import annotations

import math
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray

    Array = NDArray[Any]
    Shape = int | Sequence[int]

_STATE_BYTES = 5056
_WORDS = 624  # of the Mersenne Twister's state
_DEFAULT_SEED = 67280421310721

# PyTorch's and C++'s names of the dtypes, as its error messages use them.
_NAMES = {
    "bool": ("Bool", "bool"),
    "uint8": ("Byte", "unsigned char"),
    "int8": ("Char", "signed char"),
    "int16": ("Short", "short int"),
    "int32": ("Int", "int"),
    "int64": ("Long", "long int"),
    "uint16": ("UInt16", "short unsigned int"),
    "uint32": ("UInt32", "unsigned int"),
    "uint64": ("UInt64", "long unsigned int"),
    "float16": ("Half", "c10::Half"),
    "bfloat16": ("BFloat16", "c10::BFloat16"),
    "float32": ("Float", "float"),
    "float64": ("Double", "double"),
    "complex64": ("ComplexFloat", "c10::complex<float>"),
    "complex128": ("ComplexDouble", "c10::complex<double>"),
}
_FLOAT_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
_FLOAT_MAX = {
    "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float16": 65504.0,
    "float32": (2 - 2.0**-23) * 2.0**127,
    "float64": (2 - 2.0**-52) * 2.0**1023,
}
_REAL = {"complex64": "float32", "complex128": "float64"}
_WIDE_UNSIGNED = ("uint16", "uint32", "uint64")
_name_of: dict[np.dtype, str] = {}  # dtype.name takes NumPy as long as a small draw does


# ------------------------------------------------------------------------------------------------------- the generator


class Generator:
    """A source of random numbers with PyTorch's CPU stream.

    A new generator has PyTorch's fixed default seed. States are NumPy uint8 arrays in PyTorch's own layout:
    `torch.get_rng_state().numpy()` may be set here, and what `get_state` returns may be set there.

    Raises RuntimeError for a device other than the CPU.

    >>> generator = Generator().manual_seed(0)
    >>> uniform(3, generator=generator)
    array([0.4962566 , 0.7682218 , 0.08847743], dtype=float32)
    """

    __slots__ = ("device", "_seed", "_bits", "_untouched", "_spare_normal", "__weakref__")

    def __init__(self, device: Any = "cpu") -> None:
        if str(device).partition(":")[0] != "cpu":
            raise RuntimeError(f"Cannot get a generator for device {device}: only the CPU has one.")
        self.device = device
        self._bits: np.random.MT19937 | None = None
        self.manual_seed(_DEFAULT_SEED)

    def manual_seed(self, seed: int) -> Generator:
        """Restart the stream from `seed`, an int in [-2**63, 2**64), and return the generator.

        Only the low 32 bits select the stream, as in PyTorch.
        Raises RuntimeError for anything but an int, ValueError for one out of range.
        """
        if type(seed) is not int:
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        if not -(2**63) <= seed < 2**64:
            raise ValueError("Overflow when unpacking long long")
        self._seed = seed % 2**64
        self._spare_normal: float | None = None
        self._untouched = True
        if self._bits is not None:
            self._bits._legacy_seeding(self._seed & 0xFFFFFFFF)
        return self

    def seed(self) -> int:
        """Restart the stream from a seed that the operating system picks, and return that seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """The seed that the stream was last started from."""
        return self._seed

    def get_state(self) -> Array:
        """The whole state as a uint8 array of 5056 bytes, in PyTorch's layout."""
        state: Any = self._engine().state["state"]
        data = np.zeros(_STATE_BYTES, np.uint8)
        data[:8].view(np.uint64)[0] = self._seed
        left, seeded = 1 + _WORDS - state["pos"], 1
        data[8:16].view(np.int32)[:] = left, seeded
        # A stream that has only been seeded counts from 0; one that has used up its words stands at 624.
        data[16:24].view(np.uint64)[0] = 0 if self._untouched else state["pos"]
        data[24 : 24 + 8 * _WORDS].view(np.uint64)[:] = state["key"]
        if self._spare_normal is not None:
            data[5024:5032].view(np.float64)[0] = self._spare_normal
            data[5040] = 1
        return data

    def set_state(self, state: Array) -> Generator:
        """Continue from a `state` that `get_state` (here or in PyTorch) returned.

        Raises TypeError unless it is a uint8 array, RuntimeError for one of another size or without a valid state.
        """
        if not isinstance(state, np.ndarray):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(state).__name__}")
        if state.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.size != _STATE_BYTES:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {_STATE_BYTES} but found the input RNG state size to be {state.size}"
            )
        data = np.ascontiguousarray(state).reshape(-1)
        left, seeded = data[8:16].view(np.int32).tolist()
        position = int(data[16:24].view(np.uint64)[0])
        if seeded != 1 or not 0 < left <= _WORDS or position > _WORDS:
            raise RuntimeError("Invalid mt19937 state")
        key = data[24 : 24 + 8 * _WORDS].view(np.uint64).astype(np.uint32)
        self._engine().state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 1 + _WORDS - left}}
        self._seed = int(data[:8].view(np.uint64)[0])
        self._untouched = left == 1 and position == 0
        self._spare_normal = float(data[5024:5032].view(np.float64)[0]) if data[5040] else None
        return self

    def clone_state(self) -> Generator:
        """A new generator that continues from this one's state."""
        return type(self)(self.device).set_state(self.get_state())

    def _engine(self) -> np.random.MT19937:
        """NumPy's Mersenne Twister, made on the first draw: importing numpy.random takes as long as NumPy's core."""
        if self._bits is None:
            self._bits = np.random.MT19937(0)
            self._bits._legacy_seeding(self._seed & 0xFFFFFFFF)
        return self._bits

    def _words(self, count: int) -> Array:
        """The next `count` words of the stream, 32 random bits each, in a uint64 array."""
        if count:
            self._untouched = False
        return (self._bits or self._engine()).random_raw(count)

    def _double_words(self, count: int) -> Array:
        """The next 2 * count words, joined to 64 bits with the earlier word on top."""
        words = self._words(2 * count)
        joined = words[0::2] << np.uint64(32)
        joined |= words[1::2]
        return joined


default_generator = Generator()  # ops/random.py puts one with tensor states here


def manual_seed(seed: int) -> Generator:
    """Restart the default generator from `seed`, an int in [-2**63, 2**64), and return it."""
    return default_generator.manual_seed(int(seed))


def seed() -> int:
    """Restart the default generator from a seed that the operating system picks, and return that seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator was last started from."""
    return default_generator.initial_seed()


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, device_type: str = "cpu") -> Iterator[None]:
    """A block after which the random stream goes on as if the block had drawn nothing.

    devices, device_type: accepted, as there is only the CPU's stream.
    """
    del devices, device_type
    if not enabled:
        yield
        return
    state = default_generator.get_state()
    try:
        yield
    finally:
        default_generator.set_state(state)


def __getattr__(name: str) -> Any:
    """`torch.random.get_rng_state` and `set_rng_state` deal in tensors, which this module doesn't know."""
    if name in ("get_rng_state", "set_rng_state"):
        from importlib import import_module

        return getattr(import_module(__package__ or ""), name)
    raise AttributeError(f"module 'backlight.random' has no attribute '{name}'")


# --------------------------------------------------------------------------------------------------- rounding, storing


def _unit(count: int, dtype: str, generator: Generator) -> Array:
    """`count` numbers in [0, 1): 53 bits of two words for "float64", otherwise float32 with 24 bits of one word."""
    if dtype == "float64":
        bits = generator._double_words(count)
        bits &= np.uint64(2**53 - 1)
        unit = bits.view(np.int64).astype(np.float64)
        unit *= 2.0**-53
    else:
        bits = generator._words(count).astype(np.uint32)
        bits &= np.uint32(2**24 - 1)
        unit = bits.view(np.int32).astype(np.float32)
        unit *= np.float32(2.0**-24)
    return unit


def _two_sum(a: Any, b: Any) -> tuple[Array, Array]:
    """The float64 sum and its rounding error; together they are a + b exactly."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _sum_to_odd(a: Array, b: Any) -> Array:
    """a + b rounded to odd, after which a second rounding to fewer bits is as good as one rounding."""
    total, error = _two_sum(a, b)
    even = (total.view(np.int64) & 1) == 0
    return np.where((error != 0) & even, np.nextafter(total, np.copysign(np.inf, error)), total)


def _split(a: Any) -> tuple[Any, Any]:
    """Two float64 halves of 26 bits with a == high + low, so that products of halves are exact."""
    high = a * 134217729.0
    high = high - (high - a)
    return high, a - high


def _scaled(x: Array, scale: float, shift: float) -> Array:
    """x * scale + shift, rounded once to x's dtype (float32 or float64), as a fused multiply-add does."""
    scalar = x.dtype.type
    scale, shift = float(scalar(scale)), float(scalar(shift))
    if shift == 0:
        return x if scale == 1 else x * scalar(scale)
    if scale == 1:
        return x + scalar(shift)
    if abs(scale) > 1e290:  # splitting would overflow
        return _scaled(x, scale * 2.0**-64, shift * 2.0**-64) * 2.0**64
    if x.dtype == np.float32:
        product = x.astype(np.float64)
        product *= scale
        total = product + shift
        # A second rounding, to float32, goes wrong only from the middle between two float32 numbers.
        middle = np.flatnonzero((total.view(np.int64) & 0x1FFFFFFF) == 0x10000000)
        if middle.size:
            total[middle] = _sum_to_odd(product[middle], shift)
        return total.astype(np.float32)
    product = x * scale
    (x_high, x_low), (scale_high, scale_low) = _split(x), _split(scale)
    product_error = ((x_high * scale_high - product) + x_high * scale_low + x_low * scale_high) + x_low * scale_low
    small, small_error = _two_sum(product_error, shift)
    total, total_error = _two_sum(product, small)
    return total + _sum_to_odd(small_error, total_error)


def _narrow(x: Array, dtype: np.dtype) -> Array:
    """x in `dtype`; PyTorch goes through float32 on the way to the 16-bit floats, and rounds twice."""
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore", invalid="ignore"):
        return (x.astype(np.float32) if _name(dtype) in ("float16", "bfloat16") else x).astype(dtype)


def _store(array: Array, flat: Array) -> Array:
    """Write `flat` into `array` along its memory: the axis with the longest stride is the outermost."""
    if array.flags.c_contiguous:
        array[...] = flat.reshape(array.shape)
    else:
        target = array.transpose(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
        target[...] = flat.reshape(target.shape)
    return array


def _size(shape: Shape) -> int:
    return shape if isinstance(shape, int) else math.prod(shape)


def _name(dtype: np.dtype) -> str:
    name = _name_of.get(dtype)
    if name is None:
        name = _name_of[dtype] = dtype.name
    return name


def _unsupported(kernel: str, dtype: np.dtype) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{_NAMES[_name(dtype)][0]}'")


# ------------------------------------------------------------------------------------------------------------- uniform


def uniform(
    shape: Shape,
    dtype: DTypeLike = np.float32,
    low: float = 0.0,
    high: float = 1.0,
    generator: Generator | None = None,
) -> Array:
    """A new array with numbers uniform in [low, high): torch.rand. See `uniform_` for dtypes and errors."""
    return _uniform_flat(_size(shape), np.dtype(dtype), low, high, generator).reshape(shape)


def uniform_(array: Array, low: float = 0.0, high: float = 1.0, generator: Generator | None = None) -> Array:
    """Fill `array` with numbers uniform in [low, high), and return it.

    Floating and complex dtypes; a complex number takes its real part first. Raises NotImplementedError for others,
    RuntimeError for bounds that are out of order or out of the dtype's range.
    """
    return _store(array, _uniform_flat(array.size, array.dtype, low, high, generator))


def _uniform_flat(count: int, dtype: np.dtype, low: float, high: float, generator: Generator | None) -> Array:
    if dtype.kind == "c":
        real = np.dtype(_REAL[_name(dtype)])
        return _uniform_flat(2 * count, real, low, high, generator).view(dtype)
    if _name(dtype) not in _FLOAT_DIGITS:
        raise _unsupported("check_uniform_bounds", dtype)
    title, cpp = _NAMES[_name(dtype)]
    largest = _FLOAT_MAX[_name(dtype)]
    for name, bound in (("from", low), ("to", high)):
        if not -largest <= bound <= largest:
            raise RuntimeError(f"{name} is out of bounds for {cpp}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if high - low > largest:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{title}>::max(), but found to={high:g} and "
            f"from={low:g} which result in to-from to exceed the limit"
        )
    unit = _unit(count, _name(dtype), generator or default_generator)
    if low == 0 and high == 1 and unit.dtype == dtype:
        return unit
    scalar = unit.dtype.type
    values = _narrow(_scaled(unit, scalar(high) - scalar(low), low), dtype)
    # Rounding may reach the excluded bound; such a number becomes the included one.
    values[values >= _narrow(np.asarray(high), dtype)] = _narrow(np.asarray(low), dtype)
    return values


# -------------------------------------------------------------------------------------------------------------- normal


def normal(
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
    mean: float | Array = 0.0,
    std: float | Array = 1.0,
    generator: Generator | None = None,
) -> Array:
    """A new array of normally distributed numbers: torch.randn, and torch.normal where `mean` or `std` is an array.

    With numbers for both, `shape` is needed and `dtype` defaults to float32. With arrays the result has their
    broadcast shape and the dtype of `mean` (of `std` where `mean` is a number). See `normal_` for dtypes and errors.
    """
    arrays = [x for x in (mean, std) if isinstance(x, np.ndarray)]
    if not arrays:
        if shape is None:
            raise TypeError("normal() needs a shape unless mean or std is an array")
        return _normal_flat(_size(shape), np.dtype(dtype or np.float32), mean, std, generator).reshape(shape)
    if isinstance(std, np.ndarray):
        if std.dtype.kind == "c":
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if not (std >= 0).all():
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    kind = np.dtype(dtype or arrays[0].dtype)
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    noise = _normal_flat(math.prod(shape), kind, 0.0, 1.0, generator).reshape(shape)
    scalar = noise.dtype.type
    noise *= std.astype(kind) if isinstance(std, np.ndarray) else scalar(std)
    noise += mean.astype(kind) if isinstance(mean, np.ndarray) else scalar(mean)
    return noise


def normal_(array: Array, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Array:
    """Fill `array` with numbers of the normal distribution, and return it.

    A contiguous array of 16 elements or more is made of blocks of 16 (see `_normal_blocks`), any other of pairs (see
    `_normal_pairs`). Floating and complex dtypes; each part of a complex number has the mean `mean` and
    the deviation std / sqrt(2).
    Raises NotImplementedError for other dtypes, RuntimeError for a negative `std`.
    """
    contiguous = bool(array.flags.c_contiguous)
    return _store(array, _normal_flat(array.size, array.dtype, mean, std, generator, contiguous))


def _normal_flat(
    count: int, dtype: np.dtype, mean: Any, std: Any, generator: Generator | None, contiguous: bool = True
) -> Array:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if dtype.kind == "c":
        real = np.dtype(_REAL[_name(dtype)])
        return _normal_flat(2 * count, real, mean, std / math.sqrt(2), generator, contiguous).view(dtype)
    if _name(dtype) not in _FLOAT_DIGITS:
        raise _unsupported("normal_kernel_cpu", dtype)
    generator = generator or default_generator
    if contiguous and count >= 16:
        values = _normal_blocks(count, _name(dtype), generator)
    else:
        values = _normal_pairs(count, generator)
    return _narrow(_scaled(values, std, mean), dtype)


def _normal_pairs(count: int, generator: Generator) -> Array:
    """`count` standard normal numbers in float64, two from each pair of uniform float64 numbers.

    An odd one out waits in the generator for the next call.
    """
    spare = generator._spare_normal
    fresh = count - (spare is not None and count > 0)
    pairs = _unit(fresh + fresh % 2, "float64", generator).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log1p(-pairs[:, 1]))
    angle = (2.0 * math.pi) * pairs[:, 0]
    values = np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1).reshape(-1)
    if spare is not None and count:
        values = np.insert(values, 0, spare)
    if count:
        generator._spare_normal = float(values[-1]) if fresh % 2 else None
    return values[:count]


def _normal_blocks(count: int, dtype: str, generator: Generator) -> Array:
    """`count` >= 16 standard normal numbers, in float64 for "float64" and otherwise in float32.

    Each block of 16 uniform numbers becomes 16 normal ones. Where `count` is no multiple of 16, the last 16 elements,
    which overlap the block before them, are made again from 16 further draws.
    """
    whole = count - count % 16
    # The words for an incomplete block are drawn and dropped, but not in the 16-bit dtypes.
    unit = _unit(count if dtype in ("float32", "float64") else whole, dtype, generator)
    transform = _box_muller64 if dtype == "float64" else _box_muller32
    if whole == count:
        return transform(unit)
    values = np.empty(count, unit.dtype)
    values[:whole] = transform(unit[:whole])
    values[-16:] = transform(_unit(16, dtype, generator))
    return values


def _box_muller64(unit: Array) -> Array:
    """Standard normal float64 numbers: in each block of 16, number i and number i + 8 are one Box-Muller pair."""
    first, second = unit.reshape(-1, 2, 8).swapaxes(0, 1)
    radius = np.sqrt(-2.0 * np.log(1.0 - first))
    angle = (2.0 * math.pi) * second
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), 1).reshape(-1)


# ops/random.py puts a function here that computes the same bits faster, or returns None where that doesn't pay.
box_muller_kernel: Callable[[Array], Array | None] | None = None


def _box_muller32(unit: Array) -> Array:
    """`_box_muller64` for float32, with every intermediate rounded as PyTorch's vectorised kernel rounds it."""
    if box_muller_kernel is not None and (found := box_muller_kernel(unit)) is not None:
        return found
    values = np.empty_like(unit)
    unit_blocks, value_blocks = unit.reshape(-1, 2, 8), values.reshape(-1, 2, 8)
    for start in range(0, len(unit_blocks), 2048):  # pieces that stay in the cache over some eighty passes
        piece = unit_blocks[start : start + 2048]
        radius = _log32(np.float32(1) - piece[:, 0].reshape(-1))
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        sine, cosine = _sincos32(piece[:, 1].reshape(-1) * np.float32(2 * math.pi))
        cosine *= radius
        sine *= radius
        value_blocks[start : start + 2048, 0] = cosine.reshape(-1, 8)
        value_blocks[start : start + 2048, 1] = sine.reshape(-1, 8)
    return values


# The float32 logarithm and sine of that kernel are the polynomials of the Cephes library. float64 holds a product of
# two float32 numbers exactly, so "multiply and add in float64, round to float32" is its fused multiply-add.
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1)
_LOG += (-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_QUARTER_PI = (0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8)  # their sum, to subtract in three steps
_LOG, _SIN, _COS, _QUARTER_PI = (tuple(float(np.float32(c)) for c in t) for t in (_LOG, _SIN, _COS, _QUARTER_PI))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Horner's rule for the float64 array x, each step rounded to float32."""
    total = x * coefficients[0]
    rounded = np.empty(x.shape, np.float32)
    for coefficient in coefficients[1:-1]:
        total += coefficient
        rounded[...] = total
        total[...] = rounded
        total *= x
    total += coefficients[-1]
    return total.astype(np.float32)


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float32, rounded once; a is float32, b float64."""
    total = a.astype(np.float64)
    total *= b
    total += c
    return total.astype(np.float32)


def _log32(x: Array) -> Array:
    """The natural logarithm of positive normal float32 numbers."""
    bits = x.view(np.int32)
    exponent = (bits - np.int32(0x3F3504F3)) >> 23  # so that the mantissa lies in [sqrt(1/2), sqrt(2))
    fraction = (bits - (exponent << 23)).view(np.float32)
    fraction -= np.float32(1)
    exponent = exponent.astype(np.float32)
    square = fraction * fraction
    result = _polynomial(_LOG, fraction.astype(np.float64))
    result *= fraction
    result = _multiply_add(result, square.astype(np.float64), exponent * np.float32(-2.12194440e-4))
    square *= np.float32(0.5)
    result -= square
    result += fraction
    exponent *= np.float32(0.693359375)
    result += exponent
    return result


def _sincos32(x: Array) -> tuple[Array, Array]:
    """Sine and cosine of float32 numbers in [0, 2 pi]."""
    octant = (x * np.float32(4 / math.pi)).astype(np.int32)
    octant += 1
    octant &= ~1
    wide_octant, rest = octant.astype(np.float64), x.astype(np.float64)
    for part in _QUARTER_PI:
        rest -= wide_octant * part
        rest = rest.astype(np.float32).astype(np.float64)
    square = (rest * rest).astype(np.float32)
    wide_square = square.astype(np.float64)
    cosine = _polynomial(_COS, wide_square)
    cosine *= square
    cosine = _multiply_add(cosine, wide_square, wide_square * -0.5)
    cosine += np.float32(1)
    sine = _polynomial(_SIN, wide_square)
    sine *= square
    sine = _multiply_add(sine, rest, rest)
    swapped = (octant & 2).astype(bool)
    sine, cosine = np.where(swapped, cosine, sine), np.where(swapped, sine, cosine)
    sine.view(np.int32)[...] ^= (octant & 4) << 29
    cosine.view(np.int32)[...] ^= ((octant + 2) & 4) << 29
    return sine, cosine


# ------------------------------------------------------------------------------------------------------------ integers


def randint(
    low: int,
    high: int,
    shape: Shape,
    dtype: DTypeLike = np.int64,
    generator: Generator | None = None,
) -> Array:
    """A new array of integers in [low, high): torch.randint. See `random_` for dtypes and errors."""
    return _integers_flat(_size(shape), np.dtype(dtype), low, high, generator).reshape(shape)


def random_(array: Array, low: int | None = None, high: int | None = None, generator: Generator | None = None) -> Array:
    """Fill `array` with integers, and return it: all that the dtype holds, or [low, high), or [low, its maximum].

    An integer is low + (random bits) % (high - low), of one word below a span of 2**28 and of two words from there on.
    For a float dtype the maximum is the last integer up to which it holds all. Raises RuntimeError for an empty span
    or bounds out of the dtype's range, NotImplementedError for complex dtypes.
    """
    return _store(array, _integers_flat(array.size, array.dtype, low, high, generator))


def _integers_flat(count: int, dtype: np.dtype, low: int | None, high: int | None, generator: Generator | None) -> Array:
    generator = generator or default_generator
    digits = _FLOAT_DIGITS.get(_name(dtype))
    largest: int
    if digits:
        largest = 2**digits
    elif dtype.kind == "b":
        largest = 1
    else:
        largest = int(np.iinfo(dtype).max) if dtype.kind in "iu" else 0
    if low is None:
        if high is None:
            if dtype.kind == "c" or _name(dtype) in _WIDE_UNSIGNED:
                raise _unsupported("random_kernel_cpu", dtype)
            wide = _name(dtype) in ("int64", "float64")
            bits = generator._double_words(count) if wide else generator._words(count)
            bits %= np.uint64(largest + 1)
            return _integers_to(bits.view(np.int64), dtype)
        low = 0
    if dtype.kind == "c":
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if high is None:
        if low == -(2**63) and _name(dtype) == "int64":
            return generator._double_words(count).view(np.int64)
        high = largest + 1
        _check_bound("from", low, dtype, largest)
    else:
        if not (-(2**63) <= low < 2**63 and -(2**63) <= high < 2**63):
            raise ValueError("Overflow when unpacking long long")
        if low >= high:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
        _check_bound("from", low, dtype, largest)
        _check_bound("to - 1", high - 1, dtype, largest)
        if digits:
            low, high = _representable_span(low, high, dtype, digits)
            if low >= high:
                raise RuntimeError(
                    "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, "
                    f"but got from={low} >= to={high}"
                )
    span = high - low
    if span >= 2**28:
        bits = generator._double_words(count)
        bits %= np.uint64(span)
    else:
        bits = generator._words(count).astype(np.uint32) % np.uint32(span)
    integers = bits.astype(np.int64)
    integers += low
    return _integers_to(integers, dtype)


def _integers_to(integers: Array, dtype: np.dtype) -> Array:
    if _name(dtype) in ("float16", "bfloat16"):
        return _narrow(integers, dtype)
    return integers.astype(dtype, copy=False)


def _check_bound(name: str, bound: int, dtype: np.dtype, largest: int) -> None:
    cpp = _NAMES[_name(dtype)][1]
    digits = _FLOAT_DIGITS.get(_name(dtype))
    if digits:
        if abs(bound) > _FLOAT_MAX[_name(dtype)]:
            raise RuntimeError(f"{name} is out of bounds for {cpp}")
        if abs(bound) > largest:
            warnings.warn(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations {cpp} can support "
                "discrete uniform distribution only within this range. This warning will become an error in version "
                "1.7 release, please fix the code in advance",
                stacklevel=4,
            )
        return
    smallest = -largest - 1 if dtype.kind == "i" else 0
    if not smallest <= bound <= largest:
        raise RuntimeError(f"{name} is out of bounds for {cpp}")


def _representable_span(low: int, high: int, dtype: np.dtype, digits: int) -> tuple[int, int]:
    """Bounds beyond which rounding to the float dtype cannot leave [low, high)."""
    above, below = (int(_narrow(np.asarray(x, np.int64), dtype)) for x in (low + 1, high - 1))
    if above < low:
        low = above + (1 << (abs(low + 1).bit_length() - digits))
    if high <= below < 2**63:
        high = below - (1 << (abs(high - 1).bit_length() - digits))
    return low, high


def randperm(n: int, dtype: DTypeLike = np.int64, generator: Generator | None = None) -> Array:
    """A random permutation of 0 ... n - 1: torch.randperm.

    It is the shuffle that swaps element i with element i + (random word) % (n - i), for i = 0 ... n - 2.
    Raises RuntimeError for a negative n or one too large for the dtype, NotImplementedError for bool and complex.
    """
    kind: np.dtype = np.dtype(dtype)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    digits = _FLOAT_DIGITS.get(_name(kind))
    title = _NAMES[_name(kind)][0]
    if digits and _name(kind) != "bfloat16" and n > 2**digits + 1:
        limit = str(2**digits + 1) if digits == 11 else f"2^{digits}+1"
        raise RuntimeError(f"n cannot be greater than {limit} for {title} type.")
    if not digits:
        if kind.kind not in "iu" or _name(kind) in _WIDE_UNSIGNED:
            raise _unsupported("randperm", kind)
        if n > np.iinfo(kind).max + 1:
            raise RuntimeError(f"value cannot be converted to type {_name(kind)}_t without overflow")
    return _integers_to(_shuffled(n, generator or default_generator), kind)


def _shuffled(n: int, generator: Generator) -> Array:
    """The outcome of the swaps without performing them one by one.

    Step i puts into place i what lies at target[i] >= i, and moves there what lay at i. So what lies at a place p is p
    itself until a step k < p has it as its target, and then what lay at k when step k came: a chain of earlier steps.
    """
    steps = max(n - 1, 0)
    step = np.arange(steps)
    spans = np.arange(n, 1, -1).view(np.uint64)
    words = generator._words(steps) if n < (2**32 - 1) // 20 else generator._double_words(steps)
    target = step + (words % spans).view(np.int64)

    # Sorted by target, then by step: each step's neighbour to the left is the last one before it with its target.
    order = np.sort((target << 32) | step)
    sorted_target, sorted_step = order >> 32, order & 0xFFFFFFFF
    again = sorted_target[1:] == sorted_target[:-1]

    content = np.arange(n)  # content[p]: what lies at p when step p comes; at first, the step that it came from
    earlier = sorted_step < sorted_target
    last = np.ones(steps, bool)  # of the steps k < p with target p
    last[:-1] = ~(again & earlier[1:])
    chosen = earlier & last
    content[sorted_target[chosen]] = sorted_step[chosen]
    moved = sorted_target[chosen]
    while moved.size:  # follow all chains at once, doubling the stride
        source = content[moved]
        root = content[source]
        content[moved] = root
        moved = moved[root != source]

    result = np.empty(n, np.int64)
    result[:steps] = target
    result[steps:] = content[steps:]
    result[sorted_step[1:][again]] = content[sorted_step[:-1][again]]
    return result


# ------------------------------------------------------------------------------------------------ further distributions


def bernoulli(p: Array, generator: Generator | None = None) -> Array:
    """A new array of p's shape and dtype that is 1 with the probability p[i] and 0 otherwise: torch.bernoulli(p).

    One float64 draw an element if `p` is float64, otherwise one of float32. Raises NotImplementedError unless `p` is
    floating, RuntimeError if an element is out of [0, 1].
    """
    if p.dtype.kind == "c" or _name(p.dtype) in _WIDE_UNSIGNED:
        raise _unsupported("bernoulli_tensor_cpu_self_", p.dtype)
    return bernoulli_(np.empty(p.shape, p.dtype), p, generator)


def bernoulli_(array: Array, p: float | Array = 0.5, generator: Generator | None = None) -> Array:
    """Fill `array` with ones of the probability `p` and zeros, and return it.

    A number `p` takes float64 draws whatever the dtype; an array `p` is broadcast to `array` and drawn as in
    `bernoulli`. Raises RuntimeError if `p` is out of [0, 1], NotImplementedError for complex dtypes.
    """
    generator = generator or default_generator
    scalar = not isinstance(p, np.ndarray)
    if scalar and not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    if array.dtype.kind == "c" or _name(array.dtype) in _WIDE_UNSIGNED:
        raise _unsupported("bernoulli_scalar_cpu_" if scalar else "bernoulli_tensor_cpu_self_", array.dtype)
    if isinstance(p, np.ndarray):
        if _name(p.dtype) not in _FLOAT_DIGITS:
            raise _unsupported("bernoulli_tensor_cpu_p_", p.dtype)
        if not ((p >= 0) & (p <= 1)).all():
            raise RuntimeError(
                "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  "
                "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
            )
        unit = np.empty_like(array, np.float64 if p.dtype == np.float64 else np.float32)
        _store(unit, _unit(array.size, _name(p.dtype), generator))
        array[...] = unit < p.astype(unit.dtype)
        return array
    return _store(array, _unit(array.size, "float64", generator) < p)


def dropout_mask(array: Array, p: float, generator: Generator | None = None) -> Array:
    """The factors of torch.dropout for `array`, in its dtype and layout: 0 with the probability p, else 1 / (1 - p).

    p = 0 and p = 1 take no draws. Raises RuntimeError if `p` is out of [0, 1].
    """
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")
    if p == 0 or p == 1:
        return np.full_like(array, 1 - p)
    mask = bernoulli_(np.empty_like(array), 1 - p, generator)
    compute = np.float64 if array.dtype == np.float64 else np.float32
    mask *= (compute(1) / compute(1 - p)).astype(array.dtype)
    return mask


def _continuous(name: str, array: Array, cpp: bool = False) -> None:
    if _name(array.dtype) not in _FLOAT_DIGITS:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. "
            f"dtype must be a floating point but you specified {_NAMES[_name(array.dtype)][cpp]}"
        )


def exponential_(array: Array, lambd: float = 1.0, generator: Generator | None = None) -> Array:
    """Fill `array` with numbers of the exponential distribution of rate `lambd`, and return it.

    One float64 draw an element. Raises RuntimeError unless lambd > 0 and the dtype is floating.
    """
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    _continuous("Exponential", array)
    unit = _unit(array.size, "float64", generator or default_generator)
    return _store(array, _narrow((-1.0 / lambd) * np.log1p(-unit), array.dtype))


def cauchy_(array: Array, median: float = 0.0, sigma: float = 1.0, generator: Generator | None = None) -> Array:
    """Fill `array` with numbers of the Cauchy distribution, and return it.

    One float64 draw an element. Raises RuntimeError unless sigma > 0 and the dtype is floating.
    """
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    _continuous("Cauchy", array, cpp=True)
    unit = _unit(array.size, "float64", generator or default_generator)
    return _store(array, _narrow(median + sigma * np.tan(math.pi * (unit - 0.5)), array.dtype))


def log_normal_(array: Array, mean: float = 1.0, std: float = 2.0, generator: Generator | None = None) -> Array:
    """Fill `array` with exp(x), x normal with `mean` and `std`, and return it.

    The x are drawn in pairs whatever the size. Raises RuntimeError unless std > 0, NotImplementedError unless the
    dtype is floating.
    """
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    if _name(array.dtype) not in _FLOAT_DIGITS:
        raise _unsupported("log_normal_cpu", array.dtype)
    exponent = _scaled(_normal_pairs(array.size, generator or default_generator), std, mean)
    with np.errstate(over="ignore"):
        return _store(array, _narrow(np.exp(exponent), array.dtype))


def geometric_(array: Array, p: float, generator: Generator | None = None) -> Array:
    """Fill `array` with the number of trials up to the first success, each of probability `p`, and return it.

    One float64 draw an element. Raises RuntimeError unless 0 < p < 1, NotImplementedError for bool and complex.
    """
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    if array.dtype.kind in "bc" or _name(array.dtype) in _WIDE_UNSIGNED:
        raise _unsupported("geometric_cpu", array.dtype)
    unit = _unit(array.size, "float64", generator or default_generator)
    with np.errstate(divide="ignore"):
        return _store(array, _narrow(np.ceil(np.log(unit) / math.log1p(-p)), array.dtype))


def multinomial(weights: Array, num_samples: int, replacement: bool = False, generator: Generator | None = None) -> Array:
    """Indices drawn with probabilities proportional to `weights`: torch.multinomial.

    (categories,) -> (num_samples,), (rows, categories) -> (rows, num_samples), int64. Without replacement, or for one
    sample, the largest weights[i] / e[i] win, e exponentially distributed; otherwise a float64 draw is looked up in
    the cumulated weights. Equally large quotients (of zero weights, or in 16-bit dtypes) come in the order of their
    indices, where PyTorch's order is not specified. Raises RuntimeError for other shapes, dtypes that are not
    floating, a sample count that does not fit, and weights that are negative, not finite or all zero.
    """
    if weights.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if _name(weights.dtype) not in _FLOAT_DIGITS:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {_NAMES[_name(weights.dtype)][0]}")
    categories = weights.shape[-1]
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > categories:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if categories > 2**24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    shape = weights.shape[:-1] + (num_samples,)
    if weights.size == 0:
        return np.empty(shape, np.int64)
    generator = generator or default_generator
    if replacement and num_samples > 1:
        return _sample_with_replacement(weights, num_samples, generator).reshape(shape)
    wide = weights.astype(np.float64)
    if not (np.isfinite(wide) & (wide >= 0)).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if (wide.sum(-1) == 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotients = weights / exponential_(np.empty_like(weights), 1.0, generator)
    if num_samples == 1:
        return quotients.argmax(-1, keepdims=True).astype(np.int64)
    return np.argsort(-quotients, -1, kind="stable")[..., :num_samples].astype(np.int64)


def _sample_with_replacement(weights: Array, num_samples: int, generator: Generator) -> Array:
    rows = weights.reshape(-1, weights.shape[-1])
    wide = rows.astype(np.float64)
    if not (wide >= 0).all():
        raise RuntimeError("invalid multinomial distribution (encountering probability entry < 0)")
    if not np.isfinite(wide).all():
        raise RuntimeError("invalid multinomial distribution (encountering probability entry = infinity or NaN)")
    cumulated = np.cumsum(rows, -1, dtype=np.float64 if weights.dtype == np.float64 else np.float32)
    if (cumulated[:, -1] <= 0).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    cumulated = (cumulated / cumulated[:, -1:]).astype(np.float64)
    cumulated[:, -1] = 1
    draws = _unit(len(rows) * num_samples, "float64", generator).reshape(len(rows), num_samples)
    return np.stack([np.searchsorted(row, draw) for row, draw in zip(cumulated, draws, strict=True)])
