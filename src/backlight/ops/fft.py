"""Discrete Fourier transforms: three primitives (complex to complex, real to complex, complex to real) and their faces."""

from __future__ import annotations

import math

import numpy as np

from .. import dtypes
from ..codegen import named
from ..creation import _finish
from ..op import op, public, twin, write_out
from ..tensor import Tensor, dimension
from .arrange import roll
from .cast import conj, real, to
from .check import not_tensor
from .shape import constant_pad, narrow

# NumPy's norm="backward" and "forward" name the direction that is scaled; here the other one is asked for, and the scale
# is applied as a number, because a gradient is the transform in the other direction with the same scale.


def _scaled(x, scale):
    return x if scale == 1 else x * x.real.dtype.type(scale)


def _c2c_arrays(x, dims, scale, forward):
    transform, norm = (np.fft.fftn, "backward") if forward else (np.fft.ifftn, "forward")
    return _scaled(transform(x, axes=dims, norm=norm), scale)


fft_c2c = op("fft_c2c", _c2c_arrays, lambda g, _input, _out, dim, normalization, forward: fft_c2c(g, dim, normalization, not forward),
             node="FftC2CBackward0", holomorphic=False, batch="leading")  # fmt: skip


def _r2c_arrays(x, dims, scale, onesided):
    transform = np.fft.rfftn if onesided else np.fft.fftn
    return _scaled(transform(x, axes=dims), scale)


def r2c_gradient(g, shape, dims, scale, onesided):
    """The real part of the transform back; coefficients that weren't computed count as zero."""
    if onesided:
        g = resized(g, dims[-1:], (shape[dims[-1]],))
    return real(fft_c2c(g, dims, scale, False))


fft_r2c = op("fft_r2c", _r2c_arrays,
    lambda g, input_shape, _out, dim, normalization, onesided: r2c_gradient(g, input_shape, dim, normalization, onesided),
    node="FftR2CBackward0", holomorphic=False, batch="leading")  # fmt: skip


def _c2r_arrays(x, dims, scale, last_size):
    sizes = [x.shape[d] for d in dims[:-1]] + [last_size]
    return _scaled(np.fft.irfftn(x, sizes, dims, norm="forward"), scale)


def c2r_gradient(g, dims, scale, last_size):
    """The transform back; coefficients that stand also for their mirror image count twice."""
    g = fft_r2c(g, dims, scale, True)
    mirrored = np.ones(g.shape[dims[-1]])
    mirrored[1 : 1 + last_size - len(mirrored)] = 2
    return g * _along(g, mirrored, dims[-1])


def _along_arrays(like, values, dim):
    return values.reshape((-1,) + (1,) * (-1 - dim)).astype(like.real.dtype)


@twin(_along_arrays)
def _along(like, values, dim):
    return Tensor._from(_along_arrays(like.array, values, dim))


fft_c2r = op("fft_c2r", _c2r_arrays,
    lambda g, _input, _out, dim, normalization, last_dim_size: c2r_gradient(g, dim, normalization, last_dim_size),
    node="FftC2RBackward0", holomorphic=False, batch="leading")  # fmt: skip


def _resized_arrays(x, dims, sizes):
    grow = [(0, 0)] * x.ndim
    for d, n in zip(dims, sizes, strict=True):
        x = x[(..., slice(n)) + (slice(None),) * (-1 - d)]
        grow[d] = (0, n - x.shape[d])
    return np.pad(x, grow)


@twin(_resized_arrays)
def resized(x, dims, sizes):
    """x cut, or padded with zeros at the end, to these sizes."""
    pad = [0] * (2 * x.array.ndim)
    for d, n in zip(dims, sizes, strict=True):
        if n < x.array.shape[d]:
            x = narrow(x, d, 0, n)
        pad[-2 * d - 1] = n - x.array.shape[d]
    return constant_pad(x, tuple(pad), 0) if any(pad) else x


# Arguments


def _input(input, name, kind):
    """The input as floating point ("real" must be, "complex" becomes complex)."""
    if not isinstance(input, Tensor):
        raise not_tensor(f"fft_{name}", input=input)
    if input.dtype in (dtypes.float16, dtypes.bfloat16):
        raise RuntimeError(f"Unsupported dtype {dtypes.scalar_type_name(input.dtype)}")
    if kind == "real" and input.dtype.is_complex:
        found = dtypes.scalar_type_name(input.dtype)
        if name.startswith("ihfft") and name != "ihfft":
            raise RuntimeError(f"Only supports floating-point dtypes, but found: {found}")
        expects = "rfftn expects a real-valued" if name in ("rfft2", "rfftn") else f"{name} expects a real"
        raise RuntimeError(f"{expects} input tensor, but got {found}")
    if input.dtype.category < 2:
        input = to(input, dtypes.get_default_dtype())
    if kind == "complex" and not input.dtype.is_complex:
        input = to(input, input.dtype.to_complex())
    return input


def _scale(norm, forward, sizes):
    """The factor that a normalization mode means for one direction."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return 1 / math.sqrt(math.prod(sizes))
    return 1 / math.prod(sizes) if (norm == "forward") == forward else 1


def _size(n):
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def _one_dim(dim, x):
    if not x.array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return dimension(dim, x.array.ndim) - x.array.ndim


def _dims_and_sizes(x, s, dim):
    """The dimensions to transform and their sizes, from the arguments `s` and `dim`."""
    ndim = x.array.ndim
    dim, s = ((v,) if isinstance(v, int) else v for v in (dim, s))
    if dim is not None:
        dims = tuple(_one_dim(d, x) for d in dim)
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
    if s is not None:
        if dim is not None and len(dim) != len(s):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
        if len(s) > ndim:
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {ndim} dimensions.")
        dims = tuple(range(-len(s), 0)) if dim is None else dims
        return dims, [x.array.shape[d] if n == -1 else n for d, n in zip(dims, s, strict=True)]
    dims = tuple(range(-ndim, 0)) if dim is None else dims
    return dims, [x.array.shape[d] for d in dims]


# The transforms by kind: one dimension and several


def _complex(name, forward, input, n, dim, norm):
    x = _input(input, name, "float")
    d = _one_dim(dim, x)
    n = _size(x.array.shape[d] if n is None else n)
    x, scale = resized(x, (d,), (n,)), _scale(norm, forward, (n,))
    if x.dtype.is_complex:
        return fft_c2c(x, (d,), scale, forward)
    return fft_r2c(x, (d,), scale, False) if forward else conj(fft_r2c(x, (d,), scale, False))


def _from_real(name, forward, input, n, dim, norm):
    x = _input(input, name, "real")
    d = _one_dim(dim, x)
    n = _size(x.array.shape[d] if n is None else n)
    result = fft_r2c(resized(x, (d,), (n,)), (d,), _scale(norm, forward, (n,)), True)
    return result if forward else conj(result)


def _to_real(name, forward, input, n, dim, norm):
    x = _input(input, name, "complex")
    d = _one_dim(dim, x)
    n = _size(2 * (x.array.shape[d] - 1) if n is None else n)
    x = resized(x, (d,), (n // 2 + 1,))
    return fft_c2r(conj(x) if forward else x, (d,), _scale(norm, forward, (n,)), n)


def _complex_n(name, forward, input, s, dim, norm):
    x = _input(input, name, "complex")
    dims, sizes = _dims_and_sizes(x, s, dim)
    sizes, scale = [_size(n) for n in sizes], _scale(norm, forward, sizes)
    return fft_c2c(resized(x, dims, sizes), dims, scale, forward) if dims else x.clone()


def _from_real_n(name, forward, input, s, dim, norm):
    x = _input(input, name, "real")
    dims, sizes = _dims_and_sizes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    x = resized(x, dims, [_size(n) for n in sizes])
    if forward:
        return fft_r2c(x, dims, _scale(norm, True, sizes), True)
    result = conj(fft_r2c(x, dims[-1:], _scale(norm, False, sizes[-1:]), True))
    return fft_c2c(result, dims[:-1], _scale(norm, False, sizes[:-1]), False) if dims[:-1] else result


def _to_real_n(name, forward, input, s, dim, norm):
    x = _input(input, name, "complex")
    dims, sizes = _dims_and_sizes(x, s, dim)
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")
    sizes = [_size(n) for n in sizes]
    if s is None or (s if isinstance(s, int) else s[-1]) == -1:
        sizes[-1] = 2 * (sizes[-1] - 1)
    _size(sizes[-1])
    x = resized(x, dims, [*sizes[:-1], sizes[-1] // 2 + 1])
    if not forward:
        return fft_c2r(x, dims, _scale(norm, False, sizes), sizes[-1])
    if dims[:-1]:
        x = fft_c2c(x, dims[:-1], _scale(norm, True, sizes[:-1]), True)
    return fft_c2r(conj(x), dims[-1:], _scale(norm, True, sizes[-1:]), sizes[-1])


KINDS = {  # the last name's ending -> (one dimension, several, what it computes)
    "fft": (_complex, _complex_n, True, "The discrete Fourier transform"),
    "ifft": (_complex, _complex_n, False, "The inverse of the discrete Fourier transform"),
    "rfft": (_from_real, _from_real_n, True, "The first half (N // 2 + 1) of the Fourier transform of real numbers"),
    "irfft": (_to_real, _to_real_n, False, "The inverse of rfft: real numbers from the first half of their transform"),
    "hfft": (_to_real, _to_real_n, True, "The (real) Fourier transform of a Hermitian signal, given by its first half"),
    "ihfft": (_from_real, _from_real_n, False, "The inverse of hfft: the first half of a Hermitian signal"),
}
_SCALING = (
    '`norm`: "backward" (1/n on the inverse, the default), "ortho" (1/sqrt(n) on both) or "forward" (1/n on the forward one).'
)


def _transforms(base, one, several, forward, words):
    def transform(input, n=None, dim=-1, norm=None, *, out=None):
        result = one(base, forward, input, n, dim, norm)
        return result if out is None else write_out(out, result, f"fft_{base}")

    def transform_2(input, s=None, dim=(-2, -1), norm=None, *, out=None):
        result = several(f"{base}2", forward, input, s, dim, norm)
        return result if out is None else write_out(out, result, f"fft_{base}2")

    def transform_n(input, s=None, dim=None, norm=None, *, out=None):
        result = several(f"{base}n", forward, input, s, dim, norm)
        return result if out is None else write_out(out, result, f"fft_{base}n")

    transform.__doc__ = f"{words} along `dim`, cut or padded to n elements first. Differentiable.\n\n    {_SCALING}"
    transform_2.__doc__ = (
        f"{words} over the two dimensions `dim`, cut or padded to sizes `s`. Differentiable.\n\n    {_SCALING}"
    )
    transform_n.__doc__ = f"{words} over the dimensions `dim` (all if None). Differentiable.\n\n    {_SCALING}"
    for suffix, function in (("", transform), ("2", transform_2), ("n", transform_n)):
        named(function, f"fft_{base}{suffix}")
        public(method=False, module="fft", name=base + suffix)(function)


for _base, (_one, _several, _forward, _words) in KINDS.items():
    _transforms(_base, _one, _several, _forward, _words)


# Frequencies and their order


def _frequencies(name, indices, n, d, dtype, out, options):
    t = dtype or (out.dtype if out is not None else dtypes.get_default_dtype())
    if t.category < 2:
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    values = (indices * (1.0 / (n * d))).astype(t.array_type) if n else indices.astype(t.array_type)
    return _finish(values, None, options.get("device"), options.get("requires_grad", False), out)


@public(method=False, module="fft")
def fftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies that belong to the elements of fft(x) for n samples at distance d. -> (n).

    >>> import backlight as torch
    >>> torch.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    del layout
    indices = np.fft.ifftshift(np.arange(-(n // 2), n - n // 2))
    return _frequencies("fftfreq", indices, n, d, dtype, out, {"device": device, "requires_grad": requires_grad})


@public(method=False, module="fft")
def rfftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False):
    """The frequencies that belong to the elements of rfft(x) for n samples at distance d. -> (n // 2 + 1)."""
    del layout
    indices = np.arange(n // 2 + 1)
    return _frequencies("rfftfreq", indices, n, d, dtype, out, {"device": device, "requires_grad": requires_grad})


def _shift(input, dim, shift):
    n = input.array.ndim
    dims = tuple(range(n)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    dims = tuple(dimension(d, n) for d in dims)
    return roll(input, tuple(shift(input.array.shape[d]) for d in dims), dims)


@public(method=False, module="fft")
def fftshift(input, dim=None):
    """Moves the frequency 0 from the front to the middle of the dimensions (all if None). Differentiable.

    >>> import backlight as torch
    >>> torch.fft.fftshift(torch.arange(4))
    tensor([2, 3, 0, 1])
    """
    return _shift(input, dim, lambda n: n // 2)


@public(method=False, module="fft")
def ifftshift(input, dim=None):
    """The inverse of fftshift: moves the middle of the dimensions (all if None) to the front. Differentiable."""
    return _shift(input, dim, lambda n: (n + 1) // 2)
