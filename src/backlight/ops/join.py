"""Joining and splitting: cat, stack, split, chunk, unbind, and the like; meshgrid."""

from __future__ import annotations

import builtins

import numpy as np

from .. import dtypes
from ..op import face, op, public, twin, write_out
from ..state import modes, state
from ..tensor import Tensor, dimension
from ..views import view_of
from .gather import _index_select
from .shape import constant_pad, expand, narrow, reshape, select, transpose, unseen, unsqueeze


def variadic(name, arrays, gradients, node):
    """Declares an operation on a sequence of tensors: `gradients(g, shapes, *parameters)` gives one for each."""

    def make(tensors, *parameters):
        return _VARIADIC[name](len(tensors))(*tensors, *parameters)

    made: dict = {}

    def of(count):
        if count not in made:
            inputs = ", ".join(f"x{i}_shape" for i in range(count))
            scope = {"gradients": gradients}
            names = ", ".join(parameters)
            joint = eval(  # the text is ours: it spells out `count` inputs
                f"lambda g, {inputs}, _out, {names}: gradients(g, ({inputs},), {names})", scope
            )
            plain = eval(
                f"lambda {inputs.replace('_shape', '')}, {names}: arrays(({inputs.replace('_shape', '')},), {names})",
                {"arrays": arrays},
            )
            made[count] = op(f"{name}_{count}", plain, joint=joint, node=node, promote="keep", batch="leading")
        return made[count]

    parameters = arrays.__code__.co_varnames[1 : arrays.__code__.co_argcount]
    _VARIADIC[name] = of
    return make


_VARIADIC: dict = {}


@twin(lambda g, shapes, dim: _pieces(g, [s[dim] for s in shapes], dim))
def _uncat(g, shapes, dim):
    out, start = [], 0
    for s in shapes:
        out.append(narrow(g, dim, start, s[dim]))
        start += s[dim]
    return out


@twin(lambda g, shapes, dim: [g[(slice(None),) * dim + (i, ...)] for i in range(len(shapes))])
def _unstack(g, shapes, dim):
    return [select(g, dim, i) for i in range(len(shapes))]


_cat = variadic("cat", lambda tensors, dim: np.concatenate(tensors, dim), _uncat, "CatBackward0")
_stack = variadic("stack", lambda tensors, dim: np.stack(tensors, dim), _unstack, "StackBackward0")


def _promoted(tensors, name):
    if not isinstance(tensors, (tuple, list)):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    if not tensors:
        raise (ValueError("torch.cat(): expected a non-empty list of Tensors") if name == "cat"
               else RuntimeError(f"{name} expects a non-empty TensorList"))  # fmt: skip
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(x).__name__}")
    t = dtypes.promote([x.array for x in tensors])
    return [x if x.dtype is t else x.to(t) for x in tensors]


def _alike(tensors):
    """The arrays of tensors that nobody needs to know of: of one type, without gradients, modes or recorders. None for others."""
    if type(tensors) not in (list, tuple) or not tensors or state.unusual or modes.levels or state.recorder is not None:
        return None
    arrays, kind = [], None
    for x in tensors:
        if type(x) is not Tensor or x.node is not None or x.base is not None:
            return None
        array = x.array
        if array.dtype is not kind:
            if kind is not None:
                return None
            kind = array.dtype
        arrays.append(array)
    return arrays


@public(method=False, aliases=("concat", "concatenate"))
def cat(tensors, dim=0, *, out=None):
    """Joins tensors along an existing dimension. Differentiable in all.

    >>> import backlight as torch
    >>> torch.cat([torch.ones(2), torch.zeros(1)])
    tensor([1., 1., 0.])
    """
    arrays = None if out is not None else _alike(tensors)
    if arrays is not None and arrays[0].ndim:
        try:
            return Tensor._from(np.concatenate(arrays, dim))
        except (ValueError, TypeError):
            pass  # said below, in PyTorch's words
    tensors = _promoted(tensors, "cat")
    for i, x in enumerate(tensors):
        if not x.array.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    first = next((x for x in tensors if x.array.shape != (0,)), tensors[0])
    d = dimension(dim, first.array.ndim)
    used = [x for x in tensors if x.array.shape != (0,)] or tensors
    for i, x in enumerate(used):
        if x.array.ndim != first.array.ndim:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.array.ndim} and {x.array.ndim}")
        for k, (a, b) in enumerate(zip(first.array.shape, x.array.shape, strict=True)):
            if a != b and k != d:
                raise RuntimeError(f"Sizes of tensors must match except in dimension {d}. Expected size {a} but got size {b} "
                                   f"for tensor number {i} in the list.")  # fmt: skip
    result = _cat(used, d)
    return result if out is None else write_out(out, result)


@public(method=False)
def stack(tensors, dim=0, *, out=None):
    """Joins tensors of the same shape along a new dimension. Differentiable in all."""
    arrays = None if out is not None else _alike(tensors)
    if arrays is not None:
        try:
            if dim == 0:
                array = np.array(arrays)  # a third of np.stack's time
                if array.shape[1:] == arrays[0].shape:
                    return Tensor._from(array)
            return Tensor._from(np.stack(arrays, dim))
        except (ValueError, TypeError):
            pass  # said below, in PyTorch's words
    tensors = _promoted(tensors, "stack")
    for i, x in enumerate(tensors):
        if x.array.shape != tensors[0].array.shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(tensors[0].array.shape)} at entry 0 "
                               f"and {list(x.array.shape)} at entry {i}")  # fmt: skip
    result = _stack(tensors, dimension(dim, tensors[0].array.ndim + 1))
    return result if out is None else write_out(out, result)


def _pieces(x, lengths, dim):
    """Views of these lengths, one after the other along `dim`."""
    before, out, start = (slice(None),) * dim, [], 0
    for length in lengths:
        out.append(x[(*before, slice(start, start + length))])
        start += length
    return tuple(out)


def _views(primitive, x, lengths, dim):
    """primitive(x, lengths, dim); at once where nobody needs to know of it."""
    if not unseen(x):
        return primitive(x, lengths, dim)
    out = []
    for piece in _pieces(x.array, lengths, dim):
        result = Tensor._from(piece)
        view_of(result, x, "multiple outputs")
        out.append(result)
    return tuple(out)


@twin(lambda g, shape, lengths, dim: np.concatenate(_filled(g, shape, lengths, dim), dim))
def _unsplit(g, shape, lengths, dim):
    kind = next(p.array.dtype for p in g if p is not None)
    parts = [Tensor._from(np.zeros(shape[:dim] + (n,) + shape[dim + 1 :], kind)) if p is None else p
             for p, n in zip(g, lengths, strict=True)]  # fmt: skip
    return cat(parts, dim)


def _filled(g, shape, lengths, dim):
    kind = next(p.dtype for p in g if p is not None)
    return [np.zeros(shape[:dim] + (n,) + shape[dim + 1 :], kind) if p is None else p
            for p, n in zip(g, lengths, strict=True)]  # fmt: skip


_split = op("split", _pieces, lambda g, input_shape, _out, lengths, dim: _unsplit(g, input_shape, lengths, dim),
            outputs=-1, view=True, batch="leading")  # fmt: skip
_split_with_sizes = op("split_with_sizes", _pieces,
    lambda g, input_shape, _out, lengths, dim: _unsplit(g, input_shape, lengths, dim), outputs=-1, view=True, batch="leading")  # fmt: skip


@public()
def split(input, split_size_or_sections, dim=0):
    """Views of the tensor, each `split_size` long in `dim` (the last may be shorter), or of the given lengths."""
    d = dimension(dim, input.array.ndim)
    if not input.array.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    n = input.array.shape[d]
    if isinstance(split_size_or_sections, (tuple, list)):
        return split_with_sizes(input, split_size_or_sections, dim)
    step = split_size_or_sections
    if step < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={step}")
    if step == 0:
        if n:
            raise RuntimeError("split_size can only be 0 if dimension size is 0, but got dimension size of " + str(n))
        return _split(input, (0,), d)
    before = max(len(range(0, n, step)) - 1, 0)
    return _views(_split, input, (step,) * before + (n - step * before,), d)


@public()
def split_with_sizes(input, split_sizes, dim=0):
    """Views of the tensor with the given lengths in `dim`."""
    d = dimension(dim, input.array.ndim)
    n = input.array.shape[d]
    if builtins.sum(split_sizes) != n or builtins.any(s < 0 for s in split_sizes):
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {d}), "
                           f"but got split_sizes={list(split_sizes)}")  # fmt: skip
    return _split_with_sizes(input, tuple(split_sizes), d)


@public()
def chunk(input, chunks, dim=0):
    """Up to `chunks` views of equal length along `dim`."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if not input.array.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    n = input.array.shape[dimension(dim, input.array.ndim)]
    step = -(-n // chunks)
    return split(input, step, dim) if step else split_with_sizes(input, (0,) * chunks, dim)


def _ununbind_arrays(g, shape, dim):
    whole = _slices_of_one(g, dim)
    if whole is not None:
        return whole
    zero = None if all_given(g) else np.zeros(shape[:dim] + shape[dim + 1 :], next(p.dtype for p in g if p is not None))
    return np.stack([zero if p is None else p for p in g], dim)


def all_given(g):
    return not builtins.any(p is None for p in g)


def _slices_of_one(arrays, dim):
    """The array of which these are the slices along `dim`, in their order; None if there is none."""
    first = arrays[0]
    if not all_given(arrays) or len(arrays) < 2 or type(first.base) is not np.ndarray or not first.base.flags.c_contiguous:
        return None
    if builtins.any(
        a.base is not first.base or a.shape != first.shape or a.strides != first.strides or a.dtype is not first.dtype
        for a in arrays
    ):
        return None
    begin, *starts = [a.__array_interface__["data"][0] for a in (first.base, *arrays)]
    step = starts[1] - starts[0]
    if step <= 0 or builtins.any(b - a != step for a, b in zip(starts, starts[1:])):
        return None
    shape, strides = list(first.shape), list(first.strides)
    shape.insert(dim, len(arrays))
    strides.insert(dim, step)
    return np.ndarray(shape, first.dtype, first.base, starts[0] - begin, strides)


@twin(_ununbind_arrays)
def _ununbind(g, shape, dim):
    kind = next(p.array.dtype for p in g if p is not None)
    zero = Tensor._from(np.zeros(shape[:dim] + shape[dim + 1 :], kind))
    return stack([zero if p is None else p for p in g], dim)


_unbind = op("unbind", lambda x, dim: tuple(x[(slice(None),) * dim + (i, ...)]
                                            for i in range(x.shape[dim])),
             lambda g, input_shape, _out, dim: _ununbind(g, input_shape, dim), outputs=-1, view=True, batch="leading")  # fmt: skip


@public()
def unbind(input, dim=0):
    """A tuple of views, one for each index of `dim`."""
    if not input.array.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return _unbind(input, dimension(dim, input.array.ndim))


def _iterate(self):
    if not self.array.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(unbind(self))


Tensor.__iter__ = _iterate


# Grids


@public(method=False)
def meshgrid(*tensors, indexing=None):
    """Grids of coordinates from vectors; indexing "ij" (default) or "xy". Differentiable."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    for v in tensors:
        if v.array.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {v}")
    shape = tuple(v.array.size for v in tensors)
    grids = [expand(reshape(v, (1,) * i + (-1,) + (1,) * (len(shape) - i - 1)), shape) for i, v in enumerate(tensors)]
    if indexing == "xy" and len(tensors) > 1:
        grids = [transpose(x, 0, 1) for x in grids]
    return tuple(grids)


def _stacking(name, lift, dim):
    def function(tensors):
        if not isinstance(tensors, (tuple, list)):
            raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
        if not tensors:
            raise RuntimeError(f"{name} expects a non-empty TensorList")
        return cat([lift(x) for x in tensors], dim(tensors) if callable(dim) else dim)

    function.__doc__ = f"Joins tensors as numpy.{name} does. Differentiable."
    return face(function, name=name, method=False)


def _at_least(name, lift):
    def function(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
            return tuple(map(lift, tensors[0]))
        return lift(tensors[0]) if len(tensors) == 1 else tuple(map(lift, tensors))

    function.__doc__ = f"The tensors with dimensions of size 1 added as numpy.{name} does, as views. Differentiable."
    return face(function, name=name, method=False)


def _one(x):
    return reshape(x, 1) if not x.array.ndim else x


def _two(x):
    return reshape(x, 1, 1) if not x.array.ndim else unsqueeze(x, 0) if x.array.ndim == 1 else x


def _three(x):
    return unsqueeze(_two(x), -1) if x.array.ndim < 3 else x


atleast_1d, atleast_2d, atleast_3d = (
    _at_least("atleast_1d", _one),
    _at_least("atleast_2d", _two),
    _at_least("atleast_3d", _three),
)
_stacking("hstack", _one, lambda tensors: 0 if tensors[0].array.ndim < 2 else 1)
_stacking("vstack", _two, 0)
_stacking("row_stack", _two, 0)
_stacking("dstack", _three, 2)
_stacking("column_stack", lambda x: reshape(x, -1, 1) if x.array.ndim < 2 else x, 1)


@public()
def tensor_split(input, indices_or_sections, dim=0):
    """Views of the tensor: a number of nearly equal parts, or parts that end at the given indices."""
    if not input.array.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    d = dimension(dim, input.array.ndim)
    n = input.array.shape[d]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        parts = indices_or_sections
        if parts <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {parts}")
        ends = [
            (n // parts + 1) * builtins.min(i, n % parts) + n // parts * builtins.max(i - n % parts, 0) for i in range(1, parts)
        ]
    else:
        ends = [builtins.min(builtins.max(i + n if i < 0 else i, 0), n) for i in indices_or_sections]
    starts = [0, *ends]
    return tuple(narrow(input, d, a, builtins.max(b - a, 0)) for a, b in zip(starts, [*ends, n], strict=True))


def _directed_split(name, least, direction):
    def function(input, indices_or_sections):
        n = input.array.ndim
        if n < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {n} dimensions!"
            )
        dim = 0 if n == 1 else direction
        if isinstance(indices_or_sections, int) and (indices_or_sections == 0 or input.array.shape[dim] % indices_or_sections):
            raise RuntimeError(f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
                               f"{input.array.shape[dim]} is not divisible by the split_size {indices_or_sections}!")  # fmt: skip
        return tensor_split(input, indices_or_sections, dim)

    function.__doc__ = f"Views of the tensor, split along a dimension as numpy.{name} does. Differentiable."
    return face(function, name=name)


hsplit = _directed_split("hsplit", 1, 1)
vsplit = _directed_split("vsplit", 2, 0)
dsplit = _directed_split("dsplit", 3, 2)


@public(method=False)
def block_diag(*tensors):
    """A matrix with the given matrices on its diagonal, zeros elsewhere. Differentiable in all."""
    blocks = [_two(x) for x in _promoted(tensors, "block_diag")]
    width, left, rows = builtins.sum(x.array.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(constant_pad(x, (left, width - left - x.array.shape[1]), 0))
        left += x.array.shape[1]
    return cat(rows, 0)


@public(method=False)
def cartesian_prod(*tensors):
    """All combinations of one element of each vector: (N), (M) -> (N * M, 2). Differentiable in all."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(grid, -1) for grid in meshgrid(*tensors, indexing="ij")], 1)


@public()
def combinations(input, r=2, with_replacement=False):
    """The combinations of r elements of a vector, one a row. Differentiable."""
    from itertools import combinations, combinations_with_replacement

    if input.array.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.array.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return Tensor._from(np.empty(0, input.array.dtype))
    choose = combinations_with_replacement if with_replacement else combinations
    rows = np.array(list(choose(range(input.array.size), r)), np.int64).reshape(-1, r)
    return reshape(_index_select(input, Tensor._from(rows.reshape(-1)), 0), rows.shape)
