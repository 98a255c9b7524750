"""Views and other rearrangements: reshape, transpose, expand, slices of the memory, cat, stack, split, pad, repeat."""

from __future__ import annotations

import builtins

import numpy as np
from numpy.lib.stride_tricks import as_strided as _strides

from .. import dtypes, views
from ..dtypes import Size
from ..engine import Node, clock, modes, sum_to
from ..op import OPS, build, face, op, public, twin
from ..tensor import Tensor, dimension


def sizes(args):
    """A shape given as `f(2, 3)` or `f((2, 3))`, as a tuple of ints."""
    if len(args) == 1 and not hasattr(args[0], "__index__"):
        args = args[0]
    elif len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    try:
        return tuple([n.__index__() for n in args])
    except (AttributeError, TypeError):
        raise TypeError(f"expected a shape of ints, but got {args!r}") from None


def _infer(shape, count):
    """The shape with its -1 replaced by what `count` elements need."""
    known = 1
    for n in shape:
        if n < -1:
            raise RuntimeError(f"invalid shape dimension {n}")
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
    view=True, node="ViewBackward0")  # fmt: skip
_unsafe_view = op("unsafe_view", lambda x, shape: x.reshape(shape),
    lambda g, input_shape, _out, _shape: reshape(g, input_shape))  # fmt: skip


def _strided_view(array, shape):
    """array.reshape(shape) without a copy, or None where that needs one."""
    result = array.reshape(shape)
    return result if not array.size or np.may_share_memory(result, array) else None


def _view_dtype(input, dtype):
    old, new = input.array.itemsize, dtype.array_type.itemsize
    if old != new and not input.array.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 to view {input.dtype} as {dtype} (different element sizes)")
    result = Tensor._from(input.array.view(dtype.array_type))
    views.view_of(result, input)
    return result


@public(module="")
def view(input, *shape):
    """The same memory with another shape (or `view(dtype)`). RuntimeError where that needs a copy. Differentiable.

    (*S) -> shape, in which one size may be -1.
    """
    if len(shape) == 1 and isinstance(shape[0], dtypes.dtype):
        return _view_dtype(input, shape[0]) if shape[0] is not input.dtype else alias(input)
    shape = _infer(sizes(shape), input.array.size)
    if not input.array.flags.c_contiguous and _strided_view(input.array, shape) is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return _view(input, shape)


@public()
def reshape(input, *shape):
    """The tensor with another shape: a view where possible, else a copy. (*S) -> shape; one size may be -1."""
    shape = _infer(sizes(shape), input.array.size)
    if input.array.flags.c_contiguous or _strided_view(input.array, shape) is not None:
        return _view(input, shape)
    from .pointwise import clone

    return _unsafe_view(clone(input, memory_format=dtypes.contiguous_format), shape)


reshape.arrays = lambda x, *shape: np.reshape(x, shape[0] if len(shape) == 1 else shape)
alias = op("alias", lambda x: x[...], lambda g, _input, _out: g, view=True)


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
    from .pointwise import clone

    return clone(input, memory_format=dtypes.contiguous_format)


# Transposing

_t = op("t", lambda x: x.T, lambda g, _input, _out: _t(g), view=True, node="TBackward0")
_transpose = op("transpose", lambda x, a, b: x.swapaxes(a, b), lambda g, _input, _out, dim0, dim1: _transpose(g, dim0, dim1),
                view=True)  # fmt: skip
_permute = op("permute", lambda x, dims: x.transpose(dims),
    lambda g, _input, _out, dims: _permute(g, inverse_permutation(dims)), view=True)  # fmt: skip


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


t.arrays = np.transpose


@public(aliases=("swapaxes", "swapdims"))
def transpose(input, dim0, dim1):
    """The tensor with two dimensions exchanged, a view. Differentiable."""
    n = input.array.ndim
    dim0, dim1 = dimension(dim0, n), dimension(dim1, n)
    return _transpose(input, dim0, dim1) if n else alias(input)


transpose.arrays = np.swapaxes


@public()
def permute(input, *dims):
    """The tensor with its dimensions in another order, a view. Differentiable."""
    dims = sizes(dims)
    n = input.array.ndim
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
    from .pointwise import conj

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

_squeeze = op("squeeze", lambda x, dims: np.squeeze(x, dims),
    lambda g, input_shape, _out, _dims: reshape(g, input_shape), view=True, node="SqueezeBackward0")  # fmt: skip
_squeeze_dim = op("squeeze_dim", lambda x, dims: np.squeeze(x, dims),
    lambda g, input_shape, _out, _dims: reshape(g, input_shape), view=True, node="SqueezeBackward1")  # fmt: skip
_squeeze_dims = op("squeeze_dims", lambda x, dims: np.squeeze(x, dims),
    lambda g, input_shape, _out, _dims: reshape(g, input_shape), view=True, node="SqueezeBackward2")  # fmt: skip
_unsqueeze = op("unsqueeze", lambda x, dim: np.expand_dims(x, dim),
    lambda g, input_shape, _out, _dim: reshape(g, input_shape), view=True)  # fmt: skip


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


squeeze.arrays = lambda x, dim=None: np.squeeze(x, dim)


@public()
def unsqueeze(input, dim):
    """Inserts a dimension of size 1, as a view. Differentiable."""
    return _unsqueeze(input, dimension(dim, input.array.ndim + 1))


unsqueeze.arrays = np.expand_dims


def _inplace_view(function, name):
    def method(self, *args):
        result = function(Tensor._from(self.array), *args)
        views.check_writable(self)
        if self.node is not None and modes.grad:
            self.node = function(self, *args).node
        self.array = result.array
        return self

    method.__name__ = name
    setattr(Tensor, name, method)


for _function, _name in (
    (squeeze, "squeeze_"), (unsqueeze, "unsqueeze_"), (t, "t_"), (transpose, "transpose_"), (transpose, "swapaxes_"),
    (transpose, "swapdims_"),
):  # fmt: skip
    _inplace_view(_function, _name)

# Repeating


def _expand_arrays(x, shape):
    return np.broadcast_to(x, shape)


@twin(sum_to)
def sum_to_size_(g, shape):
    """Sums g over the dimensions that broadcasting to g's shape added or stretched."""
    return sum_to_size(g, shape)


_expand = op("expand", _expand_arrays, lambda g, input_shape, _out, _shape: sum_to_size_(g, input_shape), view=True)


@public(module="")
def expand(input, *shape, implicit=False):
    """Repeats dimensions of size 1 without copying (-1 keeps a size); a view. Differentiable."""
    del implicit
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
                raise RuntimeError(f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {i}")
            n = have
        elif have is not None and have != n and have != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton dimension {i}.  "
                f"Target sizes: {list(shape)}.  Tensor sizes: {list(old)}"
            )
        result.append(n)
    return _expand(input, tuple(result))


expand.arrays = lambda x, *shape: np.broadcast_to(x, shape[0] if len(shape) == 1 else shape)
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
    shape = broadcast_shapes(*(x.array.shape for x in tensors))
    return tuple(expand(x, shape) for x in tensors)


@public(method=False)
def broadcast_shapes(*shapes):
    """The shape to which all the shapes broadcast."""
    try:
        return Size(np.broadcast_shapes(*((s,) if isinstance(s, int) else tuple(s) for s in shapes)))
    except ValueError:
        raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape") from None


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
    lambda g, input_shape, _out, repeats: _unrepeat(g, input_shape, repeats))  # fmt: skip


@public(module="")
def repeat(input, *repeats):
    """Repeats the tensor along each dimension, with a copy. Differentiable."""
    repeats = sizes(repeats)
    if len(repeats) < input.array.ndim:
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor"
        )
    if any(n < 0 for n in repeats):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(repeats)}")
    return _repeat(input, repeats)


@public()
def tile(input, *dims):
    """repeat, where missing leading counts are 1."""
    dims = sizes(dims)
    return _repeat(input, (1,) * (input.array.ndim - len(dims)) + dims)


# Memory geometry: as_strided, and what writes through views need


def geometry(root, view):
    """(root shape, root strides, view shape, view strides, offset), in elements: where a view lies in its root."""
    a, b = root.array, view.array
    offset = (b.__array_interface__["data"][0] - a.__array_interface__["data"][0]) // a.itemsize
    return (a.shape, _element_strides(a), b.shape, _element_strides(b), offset)


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
_as_strided = op("as_strided",
    lambda x, _root_shape, _root_strides, shape, strides, offset:
        _strides(x[...].reshape(-1)[offset:] if offset else x, shape, [s * x.itemsize for s in strides]),
    lambda g, _input, _out, root_shape, root_strides, shape, strides, offset:
        strided_put(g, root_shape, root_strides, shape, strides, offset),
    view=True)  # fmt: skip


def as_strided_node(root, view) -> Node:
    """The node that makes `view` from its root as the root is now."""
    build(OPS["as_strided"])
    node = object.__new__(OPS["as_strided"].node_class)
    node.edges, node.seq, node.hooks = (root.node,), next(clock), None
    node.parameters = geometry(root, view)
    return node


@public()
def as_strided(input, size, stride, storage_offset=None):
    """A view with any sizes and strides (in elements) of the memory of `input`. Differentiable.

    RuntimeError where the view would leave that memory.
    """
    size, stride = sizes((size,)), sizes((stride,))
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
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


# Joining and splitting


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
            joint = eval(  # noqa: S307  (the text is ours: it spells out `count` inputs)
                f"lambda g, {inputs}, _out, {names}: gradients(g, ({inputs},), {names})", scope
            )
            plain = eval(  # noqa: S307
                f"lambda {inputs.replace('_shape', '')}, {names}: arrays(({inputs.replace('_shape', '')},), {names})",
                {"arrays": arrays},
            )
            made[count] = op(f"{name}_{count}", plain, joint=joint, node=node, promote="keep")
        return made[count]

    parameters = arrays.__code__.co_varnames[1 : arrays.__code__.co_argcount]
    _VARIADIC[name] = of
    return make


_VARIADIC: dict = {}


@twin(lambda g, shapes, dim: np.split(g, np.cumsum([s[dim] for s in shapes])[:-1], dim))
def _uncat(g, shapes, dim):
    out, start = [], 0
    for s in shapes:
        out.append(narrow(g, dim, start, s[dim]))
        start += s[dim]
    return out


@twin(lambda g, shapes, dim: list(np.moveaxis(g, dim, 0)))
def _unstack(g, shapes, dim):
    return [select(g, dim, i) for i in range(len(shapes))]


_cat = variadic("cat", lambda tensors, dim: np.concatenate(tensors, dim), _uncat, "CatBackward0")
_stack = variadic("stack", lambda tensors, dim: np.stack(tensors, dim), _unstack, "StackBackward0")


def _promoted(tensors, name):
    tensors = list(tensors)
    if not tensors:
        raise (ValueError("torch.cat(): expected a non-empty list of Tensors") if name == "cat"
               else RuntimeError(f"{name} expects a non-empty TensorList"))  # fmt: skip
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(x).__name__}")
    t = dtypes.promote([x.array for x in tensors])
    return [x if x.dtype is t else x.to(t) for x in tensors]


@public(method=False, aliases=("concat", "concatenate"))
def cat(tensors, dim=0, *, out=None):
    """Joins tensors along an existing dimension. Differentiable in all.

    >>> import backlight as torch
    >>> torch.cat([torch.ones(2), torch.zeros(1)])
    tensor([1., 1., 0.])
    """
    from ..op import write_out

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
    from ..op import write_out

    tensors = _promoted(tensors, "stack")
    for i, x in enumerate(tensors):
        if x.array.shape != tensors[0].array.shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(tensors[0].array.shape)} at entry 0 "
                               f"and {list(x.array.shape)} at entry {i}")  # fmt: skip
    result = _stack(tensors, dimension(dim, tensors[0].array.ndim + 1))
    return result if out is None else write_out(out, result)


def _pieces(x, lengths, dim):
    ends = np.cumsum(lengths).tolist()
    index = [slice(None)] * x.ndim
    out = []
    for end, length in zip(ends, lengths, strict=True):
        index[dim] = slice(end - length, end)
        out.append(x[tuple(index)])
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
            outputs=-1, view=True)  # fmt: skip
_split_with_sizes = op("split_with_sizes", _pieces,
    lambda g, input_shape, _out, lengths, dim: _unsplit(g, input_shape, lengths, dim), outputs=-1, view=True)  # fmt: skip


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
    return _split(input, tuple(min_(step, n - i) for i in range(0, n, step)) or (0,), d)


min_ = builtins.min


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


@twin(lambda g, shape, dim: np.stack([np.zeros(shape[:dim] + shape[dim + 1 :], next(p.dtype for p in g if p is not None))
                                     if p is None else p for p in g], dim))  # fmt: skip
def _ununbind(g, shape, dim):
    kind = next(p.array.dtype for p in g if p is not None)
    zero = Tensor._from(np.zeros(shape[:dim] + shape[dim + 1 :], kind))
    return stack([zero if p is None else p for p in g], dim)


_unbind = op("unbind", lambda x, dim: tuple(x[(slice(None),) * dim + (i, ...)]
                                            for i in range(x.shape[dim])),
             lambda g, input_shape, _out, dim: _ununbind(g, input_shape, dim), outputs=-1, view=True)  # fmt: skip


@public()
def unbind(input, dim=0):
    """A tuple of views, one for each index of `dim`."""
    if not input.array.ndim:
        raise RuntimeError("Dimension specified as 0 but tensor has no dimensions")
    return _unbind(input, dimension(dim, input.array.ndim))


def _iterate(self):
    if not self.array.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(unbind(self))


Tensor.__iter__ = _iterate


# Slices (see index.py for indexing)


@twin(lambda g, shape, index: _scatter_slice(g, shape, index))
def _unslice(g, shape, index):
    return _slice_scatter(g, shape, index)


def _scatter_slice(g, shape, index):
    out = np.zeros(shape, g.dtype)
    out[index] = g
    return out


_slice_scatter = op("slice_scatter_zero", _scatter_slice, lambda g, _input, _out, _shape, index: _slice(g, index))
_slice = op("slice", lambda x, index: x[index], lambda g, input_shape, _out, index: _unslice(g, input_shape, index),
            view=True)  # fmt: skip
_select = op("select", lambda x, index: x[index], lambda g, input_shape, _out, index: _unslice(g, input_shape, index),
             view=True)  # fmt: skip


@public()
def narrow(input, dim, start, length):
    """A view of `length` elements of a dimension from `start` on. Differentiable."""
    d, start = dimension(dim, input.array.ndim), int(start)
    n = input.array.shape[d] if input.array.ndim else 0
    if not input.array.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if not -n <= start <= n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n}], but got {start})")
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


# Diagonals and triangles


def _diagonal_arrays(x, offset, dim1, dim2):
    result = np.diagonal(x, offset, dim1, dim2)
    if not result.flags.writeable:  # NumPy marks it read-only; it shows the same memory
        step = x.strides[dim1] + x.strides[dim2]
        rest = [i for i in range(x.ndim) if i not in (dim1, dim2)]
        start = x[(slice(None),) * dim2 + (slice(offset, None),)] if offset > 0 else x[(slice(None),) * dim1 + (slice(-offset, None),)]
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
    lambda g, input_shape, _out, offset, dim1, dim2: _undiagonal(g, input_shape, offset, dim1, dim2), view=True)  # fmt: skip
_diagonal_put = op("diagonal_put", _undiagonal_arrays,
    lambda g, _input, _out, _shape, offset, dim1, dim2: _diagonal(g, offset, dim1, dim2))  # fmt: skip


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
    return _diagonal(input, diagonal, 0, 1).clone()


tril = op("tril", lambda x, diagonal=0: np.tril(x, diagonal), lambda g, _input, _out, diagonal: tril(g, diagonal))
triu = op("triu", lambda x, diagonal=0: np.triu(x, diagonal), lambda g, _input, _out, diagonal: triu(g, diagonal))


def _triangle(name, primitive, words):
    def function(input, diagonal=0, *, out=None):
        from ..op import write_out

        if input.array.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        result = primitive(input, diagonal)
        return result if out is None else write_out(out, result)

    function.__doc__ = f"The {words} triangle of the last two dimensions, zeros elsewhere. Differentiable."
    face(function, name=name, inplace=True)


_triangle("tril", tril, "lower")
_triangle("triu", triu, "upper")

# Order

_flip = op("flip", lambda x, dims: np.flip(x, dims).copy(), lambda g, _input, _out, dims: _flip(g, dims))
_roll = op("roll", lambda x, shifts, dims: np.roll(x, shifts, dims),
    lambda g, _input, _out, shifts, dims: _roll(g, tuple([-s for s in shifts]), dims))  # fmt: skip


@public()
def flip(input, *dims):
    """Reverses dimensions, with a copy. Differentiable."""
    return _flip(input, tuple(dimension(d, input.array.ndim) for d in sizes(dims)))


@public()
def roll(input, shifts, dims=None):
    """Shifts elements along dimensions, around the end. Differentiable."""
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if dims is None or dims == ():
        return reshape(_roll(flatten(input), shifts, (0,)), input.array.shape)
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    return _roll(input, shifts, tuple(dimension(d, input.array.ndim) for d in dims))


# Padding with a constant


def _pad_arrays(x, pad, value):
    widths = [(0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    cut = tuple(slice(-a if a < 0 else 0, n + b if b < 0 else n) for (a, b), n in zip(widths, x.shape, strict=True))
    grow = [(a if a > 0 else 0, b if b > 0 else 0) for a, b in widths]
    return np.pad(x[cut], grow, constant_values=value) if any(a or b for a, b in grow) else x[cut].copy()


constant_pad = op("constant_pad_nd", _pad_arrays, lambda g, _input, _out, pad, _value: constant_pad(g, opposite(pad), 0))


def opposite(pad):
    return tuple([-p for p in pad])


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
    from .index import pad_by_index

    return pad_by_index(input, tuple(pad), mode)


# Grids


@public(method=False)
def meshgrid(*tensors, indexing=None):
    """Grids of coordinates from vectors; indexing "ij" (default) or "xy". Differentiable."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    swap = indexing == "xy" and len(tensors) > 1
    vectors = [tensors[1], tensors[0], *tensors[2:]] if swap else list(tensors)
    shape = tuple(v.array.size for v in vectors)
    grids = [expand(reshape(v, (1,) * i + (-1,) + (1,) * (len(shape) - i - 1)), shape) for i, v in enumerate(vectors)]
    if swap:
        grids = [transpose(x, 0, 1) for x in grids]
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def _stacking(name, lift, dim):
    def function(tensors):
        return cat([lift(x) for x in tensors], dim(tensors) if callable(dim) else dim)

    function.__doc__ = f"Joins tensors as numpy.{name} does. Differentiable."
    return face(function, name=name, method=False)


def atleast_1d(x):
    return reshape(x, 1) if not x.array.ndim else x


def atleast_2d(x):
    return reshape(x, 1, 1) if not x.array.ndim else unsqueeze(x, 0) if x.array.ndim == 1 else x


_stacking("hstack", atleast_1d, lambda tensors: 0 if tensors[0].array.ndim < 2 else 1)
_stacking("vstack", atleast_2d, 0)
_stacking("column_stack", lambda x: reshape(x, -1, 1) if x.array.ndim < 2 else x, 1)
