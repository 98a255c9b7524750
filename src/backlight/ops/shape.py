"""Views: reshape, transpose, expand, slices, diagonals, the memory's geometry; and repeat."""

from __future__ import annotations

import builtins
from operator import attrgetter

import numpy as np
from numpy.lib.stride_tricks import as_strided as _strides

from .. import batching, dtypes, views
from ..codegen import named
from ..dtypes import Size
from ..engine import Node, clock, modes, set_grad_mode, sum_to
from ..op import OPS, build, check_broadcast, face, op, public, twin
from ..state import state
from ..tensor import PLAIN, Tensor, dimension
from .cast import clone, conj, view_as_complex, view_as_real
from .check import invalid_combination


def sizes(args, function="shape"):
    """A shape given as `f(2, 3)` or `f((2, 3))`, as a tuple of ints."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    try:
        return tuple([n.__index__() for n in args])
    except (AttributeError, TypeError):
        raise invalid_combination(function, *args) from None


def _infer(shape, count):
    """The shape with its -1 replaced by what `count` elements need."""
    known = 1
    for n in shape:
        if n < -1:
            raise RuntimeError(f"invalid shape dimension {n} at index {shape.index(n)} of shape {list(shape)}")
        known *= n if n != -1 else 1
    if -1 in shape:
        if shape.count(-1) > 1:
            raise RuntimeError("only one dimension can be inferred")
        if known == 0:
            if count == 0:
                raise RuntimeError(f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified "
                                   "dimension size -1 can be any value and is ambiguous")  # fmt: skip
        elif count % known == 0:
            return tuple(count // known if n == -1 else n for n in shape)
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
    if known != count:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")
    return shape


# Reshaping

_view = op("view", lambda x, shape: x.reshape(shape),
    lambda g, input_shape, _out, _shape: reshape(g, input_shape),
    view=True, node="ViewBackward0", batch="leading")  # fmt: skip
_unsafe_view = op("unsafe_view", lambda x, shape: x.reshape(shape),
    lambda g, input_shape, _out, _shape: reshape(g, input_shape), batch="leading")  # fmt: skip


_reshape_alias = op("reshape_alias", lambda x, shape: x.reshape(shape),
    lambda g, input_shape, _out, _shape: reshape(g, input_shape),
    view=True, batch="leading")  # fmt: skip


def _strided_view(array, shape):
    """array.reshape(shape) without a copy, or None where that needs one."""
    try:
        return np.reshape(array, shape, copy=False)
    except ValueError:
        return None


def _names(a, b):
    return f"{dtypes.scalar_type_name(a)} as {dtypes.scalar_type_name(b)}"


def _view_dtype(input, dtype):
    old, new = input.array.itemsize, dtype.array_type.itemsize
    if old != new and not input.array.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 to view {_names(input.dtype, dtype)} (different element sizes)")
    if new > old and input.array.shape[-1] % (new // old):
        raise RuntimeError(f"self.size(-1) must be divisible by {new // old} to view {_names(input.dtype, dtype)} (different element "
                           f"sizes), but got {input.array.shape[-1]}")  # fmt: skip
    result = Tensor._from(input.array.view(dtype.array_type))
    views.view_of(result, input)
    return result


@public(module="")
def view(input, *shape, size=None, dtype=None):
    """The same memory with another shape (or `view(dtype)`). RuntimeError where that needs a copy. Differentiable.

    (*S) -> shape, in which one size may be -1.
    """
    if size is not None or dtype is not None:
        shape = (size if dtype is None else dtype,)
    known = _plain_shape(shape)
    if known and input.array.flags.c_contiguous:
        try:
            return _view(input, known)
        except (ValueError, TypeError):  # a shape that doesn't fit: said below
            pass
    if len(shape) == 1 and isinstance(shape[0], dtypes.dtype):
        return _view_dtype(input, shape[0]) if shape[0] is not input.dtype else alias(input)
    if not shape:
        raise invalid_combination("view")
    shape = _infer(sizes(shape, "view"), input.array.size)
    if not input.array.flags.c_contiguous and _strided_view(input.array, shape) is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return _view(input, shape)


@public()
def reshape(input, *shape):
    """The tensor with another shape: a view where possible, else a copy. (*S) -> shape; one size may be -1."""
    known = _plain_shape(shape)
    if known is not None and input.array.flags.c_contiguous:
        try:
            return _view(input, known)
        except (ValueError, TypeError):  # a shape that doesn't fit: said below
            pass
    try:
        shape = _infer(sizes(shape, "reshape"), input.array.size)
    except TypeError:
        kind = type(shape[0]).__name__ if shape else "nothing"
        raise TypeError(f"reshape(): argument 'shape' (position 1) must be tuple of ints, not {kind}") from None
    if input.array.flags.c_contiguous:
        return _view(input, shape)
    if _strided_view(input.array, shape) is not None:
        return _reshape_alias(input, shape)
    return _unsafe_view(clone(input, memory_format=dtypes.contiguous_format), shape)


def _plain_shape(shape):
    """The shape, if it is one of ints above -2 (NumPy takes any negative number for "whatever fits")."""
    if len(shape) == 1 and shape[0].__class__ in (tuple, list, Size):
        shape = tuple(shape[0])
    for n in shape:
        if n.__class__ is not int or n < -1:
            return None
    return shape


reshape.arrays = lambda x, *shape: x.reshape(*shape)
alias = op("alias", lambda x: x[...], lambda g, _input, _out: g, view=True, batch="leading")


@public(module="")
def view_as(input, other):
    """view with the shape of `other`."""
    return view(input, other.array.shape)


@public(module="")
def reshape_as(input, other):
    """reshape with the shape of `other`."""
    return reshape(input, other.array.shape)


@public()
def flatten(input, start_dim=0, end_dim=-1):
    """Merges the dimensions start_dim..end_dim into one. (S..., a, b, T...) -> (S..., a*b, T...). Differentiable."""
    shape = input.array.shape
    start, end = dimension(start_dim, len(shape)), dimension(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end and shape:
        return input
    merged = 1
    for n in shape[start : end + 1]:
        merged *= n
    return reshape(input, shape[:start] + (merged,) + shape[end + 1 :])


@public()
def ravel(input):
    """The tensor with one dimension."""
    return reshape(input, -1) if input.array.size else reshape(input, 0)


@public()
def unflatten(input, dim, sizes):
    """Splits a dimension into several; one size may be -1. Differentiable."""
    shape, d = input.array.shape, dimension(dim, input.array.ndim)
    if not len(sizes):
        raise RuntimeError("unflatten: sizes must be non-empty")
    known = 1
    for n in sizes:
        known *= n if n != -1 else 1
    if (-1 not in sizes and known != shape[d]) or (-1 in sizes and shape[d] % known):
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {d} ({shape[d]}) "
                           "in the input tensor")  # fmt: skip
    return view(input, shape[:d] + tuple(sizes) + shape[d + 1 :])


@public(module="")
def contiguous(input, memory_format=None):
    """The tensor itself if its memory is in row-major order, else a copy that is. Differentiable."""
    del memory_format
    if input.array.flags.c_contiguous:
        return input
    return clone(input, memory_format=dtypes.contiguous_format)


# Transposing

_t = op("t", attrgetter("T"), lambda g, _input, _out: _t(g), view=True, node="TBackward0", batch=batching.transpose_rule)
_transpose = op("transpose", lambda x, a, b: x.swapaxes(a, b) if x.ndim else x[...], lambda g, _input, _out, dim0, dim1: _transpose(g, dim0, dim1),
                view=True, batch=batching.swap_rule)  # fmt: skip
_permute = op("permute", lambda x, dims: x.transpose(dims),
    lambda g, _input, _out, dims: _permute(g, inverse_permutation(dims)), view=True, batch=batching.permute_rule)  # fmt: skip


def inverse_permutation(dims):
    out = [0] * len(dims)
    for i, d in enumerate(dims):
        out[d] = i
    return tuple(out)


@public()
def t(input):
    """The transpose of a matrix, a view; vectors and numbers are returned as they are. Differentiable."""
    if input.array.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.array.ndim}D")
    return _t(input)


t.arrays = attrgetter("T")  # as the method below, without a frame of its own (benchmarks: gradient_penalty)


@public(aliases=("swapaxes", "swapdims"))
def transpose(input, dim0, dim1):
    """The tensor with two dimensions exchanged, a view. Differentiable."""
    n = input.array.ndim
    dim0, dim1 = dimension(dim0, n), dimension(dim1, n)
    return _transpose(input, dim0, dim1)


transpose.arrays = np.ndarray.swapaxes


_ALL = [frozenset(range(n)) for n in range(65)]


@public()
def permute(input, *dims):
    """The tensor with its dimensions in another order, a view. Differentiable."""
    n = input.array.ndim
    known = _plain_shape(dims)
    if known and len(known) == n and frozenset(known) == _ALL[n]:  # each once, counted from the front
        return _permute(input, known)
    dims = sizes(dims)
    if len(dims) != n:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {n} is not equal to len(dims) = {len(dims)}"
        )
    dims = tuple([dimension(d, n) for d in dims])
    if len(set(dims)) != n:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return _permute(input, dims)


permute.arrays = lambda x, *dims: x.transpose(*dims)


@public(aliases=("moveaxis",))
def movedim(input, source, destination):
    """Moves dimensions to other places, the rest keep their order; a view. Differentiable."""
    n = input.array.ndim
    if isinstance(source, int) != isinstance(destination, int):
        raise invalid_combination("movedim", source, destination)
    source = [source] if isinstance(source, int) else list(source)
    destination = [destination] if isinstance(destination, int) else list(destination)
    if len(source) != len(destination):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({source} dims) should contain the same "
                           f"number of dims as destination ({destination} dims)")  # fmt: skip
    source, destination = [dimension(d, n) for d in source], [dimension(d, n) for d in destination]
    for what, dims in (("source", source), ("destination", destination)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{what}` ({dims})")
    rest = [d for d in range(n) if d not in source]
    order = [0] * n
    for s, d in zip(source, destination, strict=True):
        order[d] = s
    free = iter(rest)
    for i in range(n):
        if i not in destination:
            order[i] = next(free)
    return _permute(input, tuple(order))


def _matrix_transpose(self):
    if self.array.ndim < 2:
        raise RuntimeError(f"tensor.mT is only supported on matrices or batches of matrices. Got {self.array.ndim}-D tensor.")
    return transpose(self, -2, -1)


def _adjoint(self):
    if self.array.ndim == 0:
        return self
    return conj(transpose(self, -2, -1)) if self.dtype.is_complex else transpose(self, -2, -1)


def _reverse(self):
    return _permute(self, tuple(range(self.array.ndim))[::-1])


Tensor.T = property(_reverse, doc="The tensor with its dimensions reversed, a view.")
Tensor.mT = property(_matrix_transpose, doc="The tensor with its last two dimensions exchanged, a view.")
Tensor.H = property(_adjoint, doc="The conjugate transpose of a matrix.")
Tensor.mH = property(_adjoint, doc="The conjugate transpose of the last two dimensions.")
face(_adjoint, name="adjoint")

# Adding and removing dimensions

_squeeze = op("squeeze", lambda x, dims: x.squeeze(dims),
    lambda g, input_shape, _out, _dims: reshape(g, input_shape), view=True, node="SqueezeBackward0", batch="leading")  # fmt: skip
_squeeze_dim = op("squeeze_dim", lambda x, dims: x.squeeze(dims),
    lambda g, input_shape, _out, _dims: reshape(g, input_shape), view=True, node="SqueezeBackward1", batch="leading")  # fmt: skip
_squeeze_dims = op("squeeze_dims", lambda x, dims: x.squeeze(dims),
    lambda g, input_shape, _out, _dims: reshape(g, input_shape), view=True, node="SqueezeBackward2", batch="leading")  # fmt: skip
_unsqueeze = op("unsqueeze", lambda x, dim: x[(slice(None),) * dim + (None,)],
    lambda g, input_shape, _out, _dim: reshape(g, input_shape), view=True, batch="leading")  # fmt: skip


@public()
def squeeze(input, dim=None):
    """Removes dimensions of size 1 (all, or those named), as a view. Differentiable."""
    shape = input.array.shape
    if dim is None:
        return _squeeze(input, tuple(i for i, n in enumerate(shape) if n == 1))
    if isinstance(dim, (tuple, list)):
        dims = [dimension(d, len(shape)) for d in dim]
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"dim {dims[-1]} appears multiple times in the list of dims")
        return _squeeze_dims(input, tuple(d for d in dims if len(shape) and shape[d] == 1))
    d = dimension(dim, len(shape))
    return _squeeze_dim(input, (d,) if shape and shape[d] == 1 else ())


squeeze.arrays = lambda x, dim=None: x.squeeze(dim)


@public()
def unsqueeze(input, dim):
    """Inserts a dimension of size 1, as a view. Differentiable."""
    return _unsqueeze(input, dimension(dim, input.array.ndim + 1))


unsqueeze.arrays = lambda x, dim: x[(slice(None),) * (dim if dim >= 0 else dim + x.ndim + 1) + (None,)]


def _inplace_view(function, name):
    def method(self, *args):
        result = function(Tensor._from(self.array), *args)
        views.check_writable(self)
        views.bump(self)
        if self.node is not None and modes.grad:
            self.node = function(self, *args).node
        self.array = result.array
        return self

    named(method, name)
    setattr(Tensor, name, method)


for _function, _name in (
    (squeeze, "squeeze_"), (unsqueeze, "unsqueeze_"), (t, "t_"), (transpose, "transpose_"), (transpose, "swapaxes_"),
    (transpose, "swapdims_"),
):  # fmt: skip
    _inplace_view(_function, _name)

# Repeating


def broadcast(x, shape):
    """np.broadcast_to, which takes 1.9 µs because it is written in Python; ValueError where the shapes don't fit."""
    extra = len(shape) - x.ndim
    if not x.flags.c_contiguous or x.dtype.char not in "fd" or not x.size or extra < 0:
        return np.broadcast_to(x, shape)
    strides = x.strides
    if x.shape != shape[extra:]:
        pairs = zip(x.shape, shape[extra:], strides)
        strides = [s if have == n else 0 if have == 1 else _refuse(x.shape, shape) for have, n, s in pairs]
    out = np.ndarray(shape, x.dtype, x, 0, (*(0,) * extra, *strides))
    out.setflags(False)
    return out


def _refuse(have, shape):
    raise ValueError(f"{have} can't be broadcast to {shape}")


@twin(sum_to)
def sum_to_size_(g, shape):
    """Sums g over the dimensions that broadcasting to g's shape added or stretched."""
    return sum_to_size(g, shape)


_expand = op(
    "expand",
    broadcast,
    lambda g, input_shape, _out, _shape: sum_to_size_(g, input_shape),
    view=True,
    batch=batching.expand_rule,
)


@public(module="")
def expand(input, *shape, implicit=False):
    """Repeats dimensions of size 1 without copying (-1 keeps a size); a view. Differentiable."""
    del implicit
    known = _plain_shape(shape)
    if known is not None and type(input) in PLAIN:
        try:
            return _expand(input, known)
        except ValueError:  # a size of -1, or one that doesn't fit: said below
            pass
    shape, old = sizes(shape), input.array.shape
    if len(shape) < len(old):
        raise RuntimeError(
            f"expand({input.type()}{{{list(old)}}}, size={list(shape)}): the number of sizes provided ({len(shape)}) must be "
            f"greater or equal to the number of dimensions in the tensor ({len(old)})"
        )
    extra = len(shape) - len(old)
    result = []
    for i, n in enumerate(shape):
        have = old[i - extra] if i >= extra else None
        if n == -1:
            if have is None:
                raise RuntimeError(
                    f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {i}"
                )
            n = have
        elif have is not None and have != n and have != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton dimension {i}.  "
                f"Target sizes: {list(shape)}.  Tensor sizes: {list(old)}"
            )
        result.append(n)
    return _expand(input, tuple(result))


expand.arrays = lambda x, *shape: broadcast(x, shape[0] if len(shape) == 1 else shape)
face(expand, name="broadcast_to")


@public(module="")
def expand_as(input, other):
    """expand to the shape of `other`."""
    return expand(input, other.array.shape)


@public(module="")
def sum_to_size(input, *shape):
    """Sums over the dimensions that broadcasting from `shape` would add or stretch. Differentiable."""
    shape = sizes(shape)
    have = input.array.shape
    if not shape:
        return input.sum()
    if have == shape:
        return input
    extra = len(have) - len(shape)
    if extra < 0 or any(n not in (1, have[extra + i]) for i, n in enumerate(shape)):
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(have)}}}.")
    dims = tuple(range(extra)) + tuple(extra + i for i, n in enumerate(shape) if n == 1 and have[extra + i] != 1)
    return reshape(input.sum(dims, keepdim=True), shape)


@public(method=False)
def broadcast_tensors(*tensors):
    """The tensors expanded to their common shape."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    shape = ()
    for x in tensors:
        check_broadcast(shape, x.array.shape)
        shape = np.broadcast_shapes(shape, x.array.shape)
    return tuple(x if x.array.shape == shape else expand(x, shape) for x in tensors)


@public(method=False)
def broadcast_shapes(*shapes):
    """The shape to which all the shapes broadcast."""
    result: list = []  # from the last dimension to the first
    for k, shape in enumerate(shapes):
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        result += [1] * (len(shape) - len(result))
        for i, n in enumerate(reversed(shape)):
            if n != 1 and result[i] not in (1, n):
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {n} at {-1 - i}! Mismatching argument at index {k} had {shape}; "
                    f"but expected shape should be broadcastable to {result[::-1]}"
                )
            result[i] = n if n != 1 else result[i]
    return Size(result[::-1])


@twin(lambda g, shape, repeats: _fold_repeats(g, shape, repeats, np))
def _unrepeat(g, shape, repeats):
    return _fold_repeats(g, shape, repeats, None)


def _fold_repeats(g, shape, repeats, np_module):
    padded = (1,) * (len(repeats) - len(shape)) + tuple(shape)
    split = tuple(n for pair in zip(repeats, padded, strict=True) for n in pair)
    dims = tuple(range(0, len(split), 2))
    if 0 in repeats:
        return np.zeros(shape, g.dtype) if np_module else Tensor._from(np.zeros(shape, g.array.dtype))
    if np_module:
        return g.reshape(split).sum(dims).reshape(shape)
    return reshape(reshape(g, split).sum(dims) if dims else g, shape)


_repeat = op("repeat", lambda x, repeats: np.tile(x, repeats),
    lambda g, input_shape, _out, repeats: _unrepeat(g, input_shape, repeats), batch=batching.repeat_rule)  # fmt: skip


@public(module="")
def repeat(input, *repeats):
    """Repeats the tensor along each dimension, with a copy. Differentiable."""
    repeats = sizes(repeats)
    if len(repeats) < input.array.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(n < 0 for n in repeats):
        padded = (1,) * (len(repeats) - input.array.ndim) + input.array.shape
        sizes_ = [a * b for a, b in zip(repeats, padded, strict=True)]
        raise RuntimeError(f"Trying to create tensor with negative dimension {builtins.min(sizes_)}: {sizes_}")
    return _repeat(input, repeats)


@public()
def tile(input, *dims):
    """repeat, where missing leading counts are 1."""
    dims = sizes(dims)
    return _repeat(input, (1,) * (input.array.ndim - len(dims)) + dims)


# Memory geometry: as_strided, and what writes through views need


def geometry(root, view):
    """(root shape, root strides, view shape, view strides, offset), in elements: where a view lies in its root.

    If just one of them is complex, in real numbers, of which a complex number has two in a last dimension."""
    a, b = root.array, view.array
    if kinds(root, view) is not None:
        a, b = _as_reals(a), _as_reals(b)
    offset = (b.__array_interface__["data"][0] - a.__array_interface__["data"][0]) // a.itemsize
    return (a.shape, _element_strides(a), b.shape, _element_strides(b), offset)


def kinds(root, view):
    """Whether root and view are complex, if just one of them is; else None."""
    found = root.array.dtype.kind == "c", view.array.dtype.kind == "c"
    return found if found[0] is not found[1] else None


def _as_reals(x):
    """Complex numbers as pairs of reals in a last dimension, the same memory; other arrays as they are."""
    if x.dtype.kind != "c":
        return x
    half = x.dtype.itemsize // 2
    pairs = _strides(x.real, (*x.shape, 2), (*x.strides, half))
    return pairs


def _part_of_arrays(g, places, kinds):
    if kinds is None:
        return _strided_get(g, *places)
    part = _strided_get(_as_reals(g) if kinds[0] else g, *places)
    return part.view(np.result_type(part.dtype, np.complex64))[..., 0] if kinds[1] else part


def _with_part_arrays(g, part, places, kinds):
    if kinds is None:
        return _strided_set(g, part, *places)
    whole = _strided_set(_as_reals(g) if kinds[0] else g, _as_reals(part), *places)
    return whole.view(g.dtype)[..., 0] if kinds[0] else whole


@twin(_part_of_arrays)
def part_of(g, places, kinds):
    """The part of a root's gradient that belongs to a view at these `places`."""
    if kinds is None:
        return strided_get(g, *places)
    part = strided_get(view_as_real(g) if kinds[0] else g, *places)
    return view_as_complex(part) if kinds[1] else part


@twin(_with_part_arrays)
def with_part(g, part, places, kinds):
    """A root's gradient with another part for the view."""
    if kinds is None:
        return strided_set(g, part, *places)
    whole = strided_set(view_as_real(g) if kinds[0] else g, view_as_real(part) if kinds[1] else part, *places)
    return view_as_complex(whole) if kinds[0] else whole


def _element_strides(array):
    return tuple(s // array.itemsize for s in array.strides)


def _span(shape, strides):
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _in_layout(g, shape, strides, span):
    """A flat buffer whose view with these strides equals g, and that view."""
    buffer = np.zeros(max(span, 1), g.dtype)
    whole = _strides(buffer, shape, [s * g.itemsize for s in strides])
    whole[...] = g
    return buffer, whole


def _spans(root_shape, root_strides, shape, strides, offset):
    return max(_span(root_shape, root_strides), _span(shape, strides) + offset)


def _strided_get(g, root_shape, root_strides, shape, strides, offset):
    span = _spans(root_shape, root_strides, shape, strides, offset)
    buffer, _whole = _in_layout(g, root_shape, root_strides, span)
    return _strides(buffer[offset:], shape, [s * g.itemsize for s in strides]).copy()


def _strided_put(part, root_shape, root_strides, shape, strides, offset):
    span = _spans(root_shape, root_strides, shape, strides, offset)
    buffer = np.zeros(max(span, 1), part.dtype)
    index = _strides(np.arange(max(span, 1))[offset:], shape, [s * 8 for s in strides])
    np.add.at(buffer, index, part)
    return _strides(buffer, root_shape, [s * part.itemsize for s in root_strides]).copy()


def _strided_set(g, part, root_shape, root_strides, shape, strides, offset):
    span = _spans(root_shape, root_strides, shape, strides, offset)
    buffer, whole = _in_layout(g, root_shape, root_strides, span)
    _strides(buffer[offset:], shape, [s * g.itemsize for s in strides])[...] = part
    return whole.copy()


strided_get = op("strided_get", _strided_get,
    lambda g, _input, _out, root_shape, root_strides, shape, strides, offset:
        strided_put(g, root_shape, root_strides, shape, strides, offset))  # fmt: skip
strided_put = op("strided_put", _strided_put,
    lambda g, _input, _out, root_shape, root_strides, shape, strides, offset:
        strided_get(g, root_shape, root_strides, shape, strides, offset))  # fmt: skip
strided_set = op("strided_set", _strided_set,
    lambda g, _input, _part, _out, root_shape, root_strides, shape, strides, offset:
        strided_set(g, strided_get(g, root_shape, root_strides, shape, strides, offset) * 0,
                    root_shape, root_strides, shape, strides, offset),
    lambda g, _input, _part, _out, root_shape, root_strides, shape, strides, offset:
        strided_get(g, root_shape, root_strides, shape, strides, offset))  # fmt: skip


def _shifted(x, offset):
    """A view of the element `offset` places after x's first one in memory."""
    step = x.itemsize if offset > 0 else -x.itemsize
    return _strides(x, (builtins.abs(offset) + 1,), (step,))[-1:]


_as_strided = op("as_strided",
    lambda x, _root_shape, _root_strides, shape, strides, offset:
        _strides(_shifted(x, offset) if offset else x, shape, [s * x.itemsize for s in strides]),
    lambda g, _input, _out, root_shape, root_strides, shape, strides, offset:
        strided_put(g, root_shape, root_strides, shape, strides, offset),
    view=True, batch=batching.as_strided_rule)  # fmt: skip


def as_strided_node(root, view) -> Node:
    """The node that makes `view` from its root as the root is now."""
    return part_node(root.node, geometry(root, view), kinds(root, view))


def part_node(parent, places, kinds) -> Node:
    """The node that makes the view at these places from a root whose node is `parent`."""
    build(OPS["as_strided"])
    if kinds is None:
        node = object.__new__(OPS["as_strided"].node_class)
        node.edges, node.seq, node.hooks, node.parameters = (parent,), next(clock), None, places
        return node
    shape, strides = places[:2]  # the operations need a tensor: one of the same layout, without its values
    reals = _strides(np.zeros(max(_spans(*places), 1)), shape, [s * 8 for s in strides])
    whole = Tensor._from(reals.view(np.complex128)[..., 0] if kinds[0] else reals)
    whole.node = parent
    was_enabled = modes.grad
    set_grad_mode(True)
    part = _as_strided(view_as_real(whole) if kinds[0] else whole, *places)
    result = view_as_complex(part) if kinds[1] else part
    set_grad_mode(was_enabled)
    return result.node


@public()
def as_strided(input, size, stride, storage_offset=None):
    """A view with any sizes and strides (in elements) of the memory of `input`. Differentiable.

    RuntimeError where the view would leave that memory.
    """
    size, stride = sizes((size,)), sizes((stride,))
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if isinstance(input, batching.Batched):
        return _as_strided(input, None, None, size, stride, storage_offset or 0)
    root = input if input.base is None else input.base.root
    base = root.array
    here = (input.array.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // base.itemsize
    offset = here if storage_offset is None else storage_offset
    if _span(size, stride) + offset > _span(base.shape, _element_strides(base)):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {base.itemsize} "
            f"requiring a storage size of {(_span(size, stride) + offset) * base.itemsize} are out of bounds for storage of "
            f"size {_span(base.shape, _element_strides(base)) * base.itemsize}"
        )
    return _as_strided(input, input.array.shape, _element_strides(input.array), size, stride, offset - here)


# Slices (see index.py for indexing)


def unseen(x) -> bool:
    """Whether a view of x needs no operation: no gradient goes through it, and nobody looks at what runs."""
    return (
        type(x) is Tensor
        and x.node is None
        and (x.base is None or x.base.root.node is None)
        and not state.unusual
        and state.recorder is None
    )


@twin(lambda g, shape, index: _scatter_slice(g, shape, index))
def _unslice(g, shape, index):
    return _slice_scatter(g, shape, index)


def _scatter_slice(g, shape, index):
    out = np.zeros(shape, g.dtype)
    out[index] = g
    return out


_slice_scatter = op(
    "slice_scatter_zero", _scatter_slice, lambda g, _input, _out, _shape, index: _slice(g, index), batch=batching.index_rule
)
_slice = op("slice", lambda x, index: x[index], lambda g, input_shape, _out, index: _unslice(g, input_shape, index),
            view=True, batch=batching.index_rule)  # fmt: skip
_select = op("select", lambda x, index: x[index], lambda g, input_shape, _out, index: _unslice(g, input_shape, index),
             view=True, batch=batching.index_rule)  # fmt: skip


@public()
def narrow(input, dim, start, length):
    """A view of `length` elements of a dimension from `start` on. Differentiable."""
    if isinstance(start, Tensor) and (start.array.ndim or start.dtype.category != 1):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    d, start = dimension(dim, input.array.ndim), int(start)
    n = input.array.shape[d] if input.array.ndim else 0
    if not input.array.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start = start % n if start < 0 else start
    if start + length > n or length < 0:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return _slice(input, (slice(None),) * d + (slice(start, start + length),))


@public()
def select(input, dim, index):
    """A view without the dimension `dim`, at one index. Differentiable."""
    if not input.array.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = dimension(dim, input.array.ndim)
    n = input.array.shape[d]
    index = int(index)
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(input.array.shape)} at dimension {d}")
    return _select(input, (slice(None),) * d + (index % n, ...))


# Padding with a constant


def _pad_arrays(x, pad, value):
    widths = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    cut = tuple(slice(-a if a < 0 else 0, n + b if b < 0 else n) for (a, b), n in zip(widths, x.shape, strict=True))
    grow = [(a if a > 0 else 0, b if b > 0 else 0) for a, b in widths]
    return np.pad(x[cut], grow, constant_values=value) if any(a or b for a, b in grow) else x[cut].copy()


constant_pad = op(
    "constant_pad_nd", _pad_arrays, lambda g, _input, _out, pad, _value: constant_pad(g, opposite(pad), 0), batch="leading"
)


def opposite(pad):
    return tuple([-p for p in pad])
