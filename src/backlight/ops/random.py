"""Random tensors on PyTorch's stream: rand, randn, randint, randperm, normal, and the in-place fills."""

from __future__ import annotations

import math
import operator
import sys

import numpy as np

from .. import batching, dtypes, kernels, random, views
from ..codegen import named
from ..creation import _finish, _shape, no_gradient
from ..inplace import VMAPPED, check_captured
from ..op import inplace, op, public, write_out
from ..state import modes
from ..tensor import Tensor
from .cast import to
from .check import invalid_combination
from .shape import expand


class Generator(random.Generator):
    """A random stream of its own, for the `generator=` argument. Its state is a uint8 tensor, interchangeable with PyTorch's.

    >>> import backlight as torch
    >>> torch.rand(1, generator=torch.Generator().manual_seed(0))
    tensor([0.4963])
    """

    def get_state(self):
        return Tensor._from(super().get_state())

    def set_state(self, state):
        return super().set_state(state.array if isinstance(state, Tensor) else state)


random.default_generator = Generator()


def _box_muller_kernel(unit):
    """The kernel computes the same bits, so it may also take over small arrays wherever Numba is there already."""
    if not kernels.ENABLED or unit.dtype != np.float32 or (unit.size < kernels.FUSED and "numba" not in sys.modules):
        return None
    return kernels.normal.box_muller(unit)


random.box_muller_kernel = _box_muller_kernel
random.default_generator.seed()


def _random(draw, shape, device, requires_grad, out=None):
    """A tensor of what `draw(shape)` draws; inside vmap one for each sample, if its randomness says so."""
    if modes.levels:
        return batching.sampled(draw, shape)
    return _finish(draw(shape), None, device, requires_grad, out)


def _random_like(input, draw, fill, device, requires_grad):
    """A tensor of what `draw(shape)` draws for the shape of `input`. One with another layout is filled along its memory."""
    if modes.levels or input.array.flags.c_contiguous:
        return _random(draw, input.array.shape, device, requires_grad)
    return _random(lambda _shape: fill(input.array), input.array.shape, device, requires_grad)


def _creating(name, draw, fill, words):
    def function(
        *size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, **kwargs
    ):
        del layout, pin_memory
        size = _shape(name, size or (kwargs.pop("size", ()),))
        if kwargs:
            raise invalid_combination(name, *size, **kwargs)
        t = dtype or (out.dtype if out is not None else dtypes.get_default_dtype())
        return _random(lambda shape: draw(shape, t.array_type, generator=generator), size, device, requires_grad, out)

    named(function, name)
    function.__doc__ = f"A tensor of {words}. -> (*size)."

    def like(input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None):
        del layout, memory_format
        t = (dtype or input.dtype).array_type
        return _random_like(
            input,
            lambda shape: draw(shape, t, generator=generator),
            lambda array: fill(np.empty_like(array, t), generator=generator),
            device,
            requires_grad,
        )

    named(like, f"{name}_like")
    like.__doc__ = f"A tensor of {words}, with the shape and type of `input`."
    public(method=False)(function)
    public(method=False)(like)


_creating("rand", random.uniform, random.uniform_, "uniform random numbers from [0, 1)")
_creating("randn", random.normal, random.normal_, "standard normal random numbers")


@public(method=False)
def randint(low=None, high=None, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
            pin_memory=False):  # fmt: skip
    """Random integers from [low, high): randint(high, size) or randint(low, high, size). -> (*size), int64."""
    del layout, pin_memory
    if low is None and high is not None:
        low = 0
    if size is None or low is None:
        if low is None or high is None or isinstance(high, int):
            raise invalid_combination("randint", *(v for v in (low, high) if v is not None))
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    t = dtype or (out.dtype if out is not None else dtypes.int64)
    shape = _shape("randint", (size,))
    return _random(lambda s: random.randint(low, high, s, t.array_type, generator=generator), shape, device, requires_grad, out)


@public(method=False)
def randint_like(input, low, high=None, *, dtype=None, device=None, requires_grad=False, layout=None, memory_format=None,
                 generator=None):  # fmt: skip
    """Random integers from [low, high) with the shape and type of `input`."""
    del layout, memory_format
    if high is None:
        low, high = 0, low
    t = (dtype or input.dtype).array_type
    low, high = (int(v) if isinstance(v, Tensor) else v for v in (low, high))
    return _random_like(
        input,
        lambda shape: random.randint(low, high, shape, t, generator=generator),
        lambda array: random.random_(np.empty_like(array, t), low, high, generator=generator),
        device,
        requires_grad,
    )


@public(method=False)
def randperm(n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A random permutation of 0..n-1. -> (n), int64."""
    del layout, pin_memory
    t = dtype or dtypes.int64
    return _random(lambda shape: _permutations(shape, n, t, generator), (), device, requires_grad, out)


def _permutations(shape, n, t, generator):
    """Independent permutations: (*shape, n)."""
    found = [random.randperm(n, t.array_type, generator=generator) for _ in range(math.prod(shape))]
    return np.reshape(found, (*shape, n)) if shape else found[0]


_bernoulli = op("bernoulli", lambda x, p, generator: _bernoulli_arrays(x, p, generator),
    lambda g, _input, _out, _p, _generator: no_gradient(g), batch=batching.random_rule)  # fmt: skip
_normal = op("normal", lambda x, mean, std, generator: random.normal(x.shape, x.dtype, mean, std, generator=generator),
    lambda g, _input, _out, _mean, _std, _generator: no_gradient(g), batch=batching.random_rule)  # fmt: skip


def _bernoulli_arrays(x, p, generator):
    if p is not None:
        return random.bernoulli_(np.empty_like(x), p, generator=generator)
    return random.bernoulli(x, generator=generator)


@public(method=False)
def normal(mean, std=1.0, size=None, *, generator=None, out=None, dtype=None, device=None, requires_grad=False, layout=None):
    """Normal random numbers; mean and std are numbers (with a size) or tensors that broadcast."""
    del layout
    if size is not None:
        t = dtype or dtypes.get_default_dtype()
        shape = _shape("normal", (size,))
        return _random(
            lambda s: random.normal(s, t.array_type, mean, std, generator=generator), shape, device, requires_grad, out
        )
    if modes.levels:
        mean, std = (batching.drawn_from(v) if isinstance(v, Tensor) else v for v in (mean, std))
    arrays = [v.array for v in (mean, std) if isinstance(v, Tensor)]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    t = dtypes.promote(arrays)
    like = mean if isinstance(mean, Tensor) else std  # its gradient exists, and is zero
    if any(isinstance(v, batching.Batched) for v in (mean, std)):
        noise = batching.sampled(lambda s: random.normal(s, t.array_type, generator=generator), shape)
        return noise * (std.detach() if isinstance(std, Tensor) else std) + (
            mean.detach() if isinstance(mean, Tensor) else mean
        )
    mean, std = (v.array if isinstance(v, Tensor) else v for v in (mean, std))
    result = _normal(expand(to(like, t), shape), mean, std, generator)
    return result if out is None else write_out(out, result)


@public()
def bernoulli(input, p=None, *, generator=None, out=None):
    """Zeros and ones, one with the probability that the element gives (or p for all). No gradient."""
    result = _bernoulli(batching.drawn_from(input) if modes.levels else input, p, generator)
    return result if out is None else write_out(out, to(result, out.dtype))


@public()
def multinomial(input, num_samples, replacement=False, *, generator=None, out=None):
    """Indices drawn with the probabilities (weights) in the rows of `input`. (N, C) or (C) -> (N, num_samples) int64."""
    if input.array.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if out is not None and out.dtype is not dtypes.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {dtypes.scalar_type_name(out.dtype)}")
    input = batching.drawn_from(input.detach()) if modes.levels else input.detach()
    result = _multinomial(input, num_samples, replacement, generator)
    return result if out is None else write_out(out, result)


def _multinomial_arrays(x, num_samples, replacement, generator):
    if x.ndim < 3:
        return random.multinomial(x, num_samples, replacement, generator=generator)
    rows = random.multinomial(x.reshape(-1, x.shape[-1]), num_samples, replacement, generator=generator)  # under vmap
    return rows.reshape(*x.shape[:-1], num_samples)


_multinomial = op("multinomial", _multinomial_arrays, None, promote="keep", batch=batching.random_rule)


def _samples(name, fill, tensor, args, **kwargs):
    """What a random fill writes into a tensor under vmap."""
    levels, shape, kind = batching.vmap_levels(), tensor.array.shape, tensor.array.dtype
    if any(level.randomness == "error" for level in levels):
        batching.sampled(None, ())
    for level in levels:
        if level.randomness == "different" and not batching.depends(tensor, level):
            if any(batching.depends(a, level) for a in args):
                raise RuntimeError(VMAPPED.replace("arithmetic", name.strip("_")))
            raise RuntimeError(
                "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. "
                "If this is necessary for your usage, please file an issue with functorch."
            )
    args = [batching.all_values(batching.drawn_from(expand(a, shape))) if isinstance(a, Tensor) else a for a in args]
    return batching.sampled(lambda whole: fill(np.empty(whole, kind), *args, **kwargs), shape)


def _random_integers(array, *bounds, generator=None, **named):
    """random_(): all that the type holds; random_(to): from 0; random_(from, to)."""
    bounds = (*bounds, *[named.pop(k) for k in ("from", "to") if k in named])
    if len(bounds) > 2:
        raise TypeError(f"random_() takes 2 positional arguments but {len(bounds)} were given")
    if named or any(isinstance(b, (bool, float)) for b in bounds):
        raise invalid_combination("random_", *bounds, **named)
    bounds = [b if b is None else operator.index(b) for b in bounds]
    return random.random_(array, *([0] if len(bounds) == 1 else []), *bounds, generator=generator)


def _filling(name, fill, words):
    def method(self, *args, generator=None, **kwargs):
        if modes.captured:
            check_captured(self, name)
        if modes.levels and batching.vmap_levels():
            samples = _samples(name, fill, self, args, generator=generator, **kwargs)
            if hasattr(self, "write"):
                return self.write(samples)
            return inplace(lambda old: old * 0 + samples, self)
        args = [a.array if isinstance(a, Tensor) else a for a in args]
        views.check_writable(self)
        fill(self.array, *args, generator=generator, **kwargs)
        views.bump(self)
        if self.requires_grad and views.modes.grad:
            inplace(lambda old: old * 0 + Tensor._from(self.array.copy()), self)
        return self

    named(method, name)
    method.__doc__ = f"Fills this tensor with {words}."
    setattr(Tensor, name, method)


_filling("uniform_", random.uniform_, "uniform random numbers from [low, high)")
_filling("normal_", random.normal_, "normal random numbers")
_filling("bernoulli_", random.bernoulli_, "zeros and ones")
_filling("random_", _random_integers, "random integers: of its whole type, from [0, to) or from [from, to)")
_filling("exponential_", random.exponential_, "exponential random numbers")
_filling("geometric_", random.geometric_, "geometric random numbers")
_filling("cauchy_", random.cauchy_, "Cauchy random numbers")
_filling("log_normal_", random.log_normal_, "log-normal random numbers")


@public(method=False)
def manual_seed(seed):
    """Seeds the random stream; the same seed gives PyTorch's numbers. Returns the generator."""
    return random.manual_seed(seed)


@public(method=False)
def seed() -> int:
    """Seeds the random stream from the system's entropy and returns the seed."""
    return random.seed()


@public(method=False)
def initial_seed() -> int:
    """The seed of the random stream."""
    return random.initial_seed()


@public(method=False)
def get_rng_state():
    """The state of the random stream as a uint8 tensor, in PyTorch's layout."""
    return random.default_generator.get_state()


@public(method=False)
def set_rng_state(new_state) -> None:
    """Puts the random stream into a state from get_rng_state (or from PyTorch's)."""
    random.default_generator.set_state(new_state)
