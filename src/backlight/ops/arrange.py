"""Diagonals, triangles, flips, rolls and padding."""

from __future__ import annotations

import builtins

import numpy as np
from numpy.lib.stride_tricks import as_strided as _strides

from .. import batching
from ..op import face, op, public, twin, write_out
from ..tensor import Tensor, dimension
from .gather import _index_select
from .shape import constant_pad, flatten, narrow, sizes

# Diagonals and triangles


def _diagonal_arrays(x, offset, dim1, dim2):
    result = np.diagonal(x, offset, dim1, dim2)
    if not result.flags.writeable:  # NumPy marks it read-only; it shows the same memory
        step = x.strides[dim1] + x.strides[dim2]
        rest = [i for i in range(x.ndim) if i not in (dim1, dim2)]
        start = (
            x[(slice(None),) * dim2 + (slice(offset, None),)]
            if offset > 0
            else x[(slice(None),) * dim1 + (slice(-offset, None),)]
        )
        result = _strides(start, result.shape, [x.strides[i] for i in rest] + [step])
    return result


@twin(lambda g, shape, *where: _undiagonal_arrays(g, shape, *where))
def _undiagonal(g, shape, offset, dim1, dim2):
    return _diagonal_put(g, shape, offset, dim1, dim2)


def _undiagonal_arrays(g, shape, offset, dim1, dim2):
    out = np.zeros(shape, g.dtype)
    _diagonal_arrays(out, offset, dim1, dim2)[...] = g
    return out


_diagonal = op("diagonal", _diagonal_arrays,
    lambda g, input_shape, _out, offset, dim1, dim2: _undiagonal(g, input_shape, offset, dim1, dim2), view=True, batch="leading")  # fmt: skip
_diagonal_copy = op("diagonal_copy", lambda x, offset, dim1, dim2: np.diagonal(x, offset, dim1, dim2).copy(),
    lambda g, input_shape, _out, offset, dim1, dim2: _undiagonal(g, input_shape, offset, dim1, dim2),
    node="DiagonalBackward0_copy", batch="leading")  # fmt: skip
_diagonal_put = op("diagonal_put", _undiagonal_arrays,
    lambda g, _input, _out, _shape, offset, dim1, dim2: _diagonal(g, offset, dim1, dim2),
    node="DiagEmbedBackward0", batch="leading")  # fmt: skip


@public()
def diagonal(input, offset=0, dim1=0, dim2=1):
    """The diagonal of two dimensions, appended as the last one; a view. Differentiable."""
    n = input.array.ndim
    dim1, dim2 = dimension(dim1, n), dimension(dim2, n)
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return _diagonal(input, offset, dim1, dim2)


@public()
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Matrices with the last dimension of `input` on their diagonals. Differentiable."""
    n = input.array.ndim + 1
    dim1, dim2 = dimension(dim1, n), dimension(dim2, n)
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if not input.array.ndim:
        raise IndexError("Dimension specified as -1 but tensor has no dimensions")
    size = input.array.shape[-1] + builtins.abs(offset)
    shape = list(input.array.shape[:-1])
    for d in sorted((dim1, dim2)):
        shape.insert(d, size)
    return _diagonal_put(input, tuple(shape), offset, dim1, dim2)


@public()
def diag(input, diagonal=0):
    """The diagonal of a matrix, or the matrix with a vector on its diagonal. Differentiable."""
    if input.array.ndim == 1:
        return diag_embed(input, diagonal)
    if input.array.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.array.ndim}D")
    return _diagonal_copy(input, diagonal, 0, 1)


tril = op(
    "tril", lambda x, diagonal=0: np.tril(x, diagonal), lambda g, _input, _out, diagonal: tril(g, diagonal), batch="leading"
)
triu = op(
    "triu", lambda x, diagonal=0: np.triu(x, diagonal), lambda g, _input, _out, diagonal: triu(g, diagonal), batch="leading"
)


def _triangle(name, primitive, words):
    def function(input, diagonal=0, *, out=None):
        if input.array.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        result = primitive(input, diagonal)
        return result if out is None else write_out(out, result, exact=True)

    function.__doc__ = f"The {words} triangle of the last two dimensions, zeros elsewhere. Differentiable."
    face(function, name=name, inplace=True)


_triangle("tril", tril, "lower")
_triangle("triu", triu, "upper")

# Order

_flip = op("flip", lambda x, dims: np.flip(x, dims).copy(), lambda g, _input, _out, dims: _flip(g, dims), batch="leading")
_roll = op("roll", lambda x, shifts, dims: np.roll(x, shifts if dims is not None else shifts[0], dims),
    lambda g, _input, _out, shifts, dims: _roll(g, tuple([-s for s in shifts]), dims), batch=batching.roll_rule)  # fmt: skip


@public()
def flip(input, *args, dims=()):
    """Reverses dimensions, with a copy. Differentiable."""
    found = tuple(dimension(d, input.array.ndim) for d in sizes(args or (dims,)))
    if len(set(found)) < len(found):
        raise RuntimeError(f"dim {next(d for d in found if found.count(d) > 1)} appears multiple times in the list of dims")
    return _flip(input, found if input.array.ndim else ())


@public()
def roll(input, shifts, dims=None):
    """Shifts elements along dimensions, around the end. Differentiable."""
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if not shifts:
        raise RuntimeError("`shifts` required")
    if dims is None or dims == ():
        return _roll(input, shifts[:1], None)
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if not input.array.ndim:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    return _roll(input, shifts, tuple(dimension(d, input.array.ndim) for d in dims))


# Padding


@public(method=False, module="nn.functional")
def pad(input, pad, mode="constant", value=None):
    """Pads the last dimensions: `pad` = (left, right, top, bottom, ...), negative cuts. Differentiable.

    mode: "constant", "reflect", "replicate" or "circular".
    """
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) // 2 > input.array.ndim:
        raise RuntimeError(f"Padding length should be less than or equal to two times the input dimension but got padding "
                           f"length {len(pad)} and input of dimension {input.array.ndim}")  # fmt: skip
    if mode == "constant":
        return constant_pad(input, tuple(pad), 0 if value is None else value)
    if input.array.ndim not in (len(pad) // 2 + 1, len(pad) // 2 + 2) or len(pad) > 6:
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {input.array.ndim}D input tensor.\n"
            "Supported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    return pad_by_index(input, tuple(pad), mode)


def pad_by_index(x, pad, mode):
    """Pads by repeating elements of x: "reflect", "replicate" or "circular"."""
    n, places = x.array.ndim, []
    for i in range(len(pad) // 2):
        dim, (left, right) = n - 1 - i, pad[2 * i : 2 * i + 2]
        if mode == "circular" and (left < 0 or right < 0):
            x = narrow(x, dim, max(-left, 0), x.array.shape[dim] + min(left, 0) + min(right, 0))
            left, right = max(left, 0), max(right, 0)
        size = x.array.shape[dim]
        if mode == "reflect" and (left >= size or right >= size):
            raise RuntimeError(
                f"Argument #4: Padding size should be less than the corresponding input dimension, but got: padding ({left}, "
                f"{right}) at dimension {dim} of input {list(x.array.shape)}"
            )
        if mode == "circular" and (left > size or right > size):
            raise RuntimeError("Padding value causes wrapping around more than once.")
        place = np.arange(-left, size + right)
        if mode == "reflect":
            place = np.abs(place)
            place = np.where(place >= size, 2 * (size - 1) - place, place)
        elif mode == "replicate":
            place = np.clip(place, 0, size - 1)
        elif mode == "circular":
            place = place % size
        else:
            raise NotImplementedError(f"Unrecognised padding mode {mode}")
        places.append((dim, place))
    if mode == "circular":
        for dim, place in places:
            x = _index_select(x, Tensor._from(place), dim)
        return x
    return _pads[mode, len(places)](x, tuple(places), x.array.shape)


def _pad_by_index_arrays(x, places, _shape):
    for dim, place in places:
        x = np.take(x, place, dim)
    return x


def _unpad_arrays(g, places, shape):
    for dim, place in reversed(places):
        out = np.zeros((*g.shape[:dim], shape[dim], *g.shape[dim + 1 :]), g.dtype)
        np.add.at(out, (slice(None),) * dim + (place,), g)
        g = out
    return g


def _pad_op(name, node):
    return op(name, _pad_by_index_arrays, lambda g, _input, _out, places, shape: _unpad(g, places, shape), node=node,
              batch=batching.pad_rule)  # fmt: skip


_pads = {
    (mode, n): _pad_op(f"{name}_pad{n}d", f"{name.capitalize()}Pad{n}DBackward0")
    for mode, name in (("reflect", "reflection"), ("replicate", "replication"))
    for n in (1, 2, 3)
}
_pad_again = _pads["reflect", 1]
_unpad = op("unpad", _unpad_arrays, lambda g, _input, _out, places, shape: _pad_again(g, places, shape),
            batch=batching.pad_rule)  # fmt: skip


# Turning, and diagonals of what is flat


@public()
def fliplr(input):
    """Reverses the second dimension. Differentiable."""
    if input.array.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return flip(input, 1)


@public()
def flipud(input):
    """Reverses the first dimension. Differentiable."""
    if input.array.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return flip(input, 0)


_rot90 = op("rot90", lambda x, k, dims: np.rot90(x, k, dims).copy(), lambda g, _input, _out, k, dims: _rot90(g, -k % 4, dims),
            batch="leading")  # fmt: skip


@public()
def rot90(input, k=1, dims=(0, 1)):
    """Turns by k times 90 degrees in the plane of two dimensions. Differentiable."""
    n = input.array.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if n < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {n}")
    if dims[0] == dims[1] or builtins.abs(dims[0] - dims[1]) == n:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    a, b = dimension(dims[0], n), dimension(dims[1], n)
    return _rot90(input, k % 4, (a, b))


@public()
def diagflat(input, offset=0):
    """A matrix with the elements of the input on its diagonal. Differentiable."""
    return diag_embed(flatten(input) if input.array.ndim != 1 else input, offset)
