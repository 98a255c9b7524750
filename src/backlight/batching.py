"""vmap's tensors, and how operations run on them.

A `Batched` tensor hides the batch dimension of its `value`: it looks like one sample. Operations on it reach `run`,
which applies the operation once to the values of the whole batch, as the operation's `batch` says:

* "elementwise": inputs are aligned behind the batch dimension, which broadcasts.
* "leading": the operation takes the batch as one more dimension in front. Parameters that name dimensions (`dim`, `dims`,
  `dim0`, ...) are counted up by one; those that name a shape (`shape`) get the batch size in front.
* a function `rule(op, inputs, batched, size, parameters)`: inputs with the batch in front where `batched`.
* None: a loop over the samples, with a warning. docs/compatibility.md lists these operations.

Graphs and tangents belong to the values, so backward and forward mode need nothing of this file.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

from numpy import broadcast_shapes

from .dtypes import from_array_type, promote
from .state import modes, set_levels
from .tensor import Tensor
from .versions import version_of
from .views import current_node


class VmapLevel:
    """A running vmap: the size of its batch, and what random operations do in it."""

    kind = "vmap"
    functional = True  # whether it belongs to func.vmap rather than to batched gradients
    of_tangents = False  # whether it maps over tangents only, as jacfwd does

    def __init__(self, size, randomness="error"):
        self.number = len(modes.levels) + modes.recordings + 1
        self.size, self.randomness = size, randomness

    def __enter__(self):
        set_levels((*modes.levels, self))
        return self

    def __exit__(self, *_exception):
        set_levels(tuple(level for level in modes.levels if level is not self))


def vmap_levels():
    """The vmaps that run in this thread, outermost first."""
    return [level for level in modes.levels if level.kind == "vmap"]


class _Flags:
    c_contiguous = writeable = True
    f_contiguous = False


class Sample:
    """What an array would say of itself that holds one sample; it has no values to give."""

    __slots__ = ("dtype", "ndim", "shape", "whole")
    flags = _Flags
    base = None

    def __init__(self, array):
        self.whole, self.shape, self.dtype, self.ndim = array, array.shape[1:], array.dtype, array.ndim - 1

    itemsize = property(lambda self: self.whole.itemsize)
    size = property(lambda self: math.prod(self.shape))

    @property
    def strides(self):
        steps = [self.itemsize]
        for n in self.shape[:0:-1]:
            steps.append(steps[-1] * n)
        return tuple(reversed(steps)) if self.shape else ()

    def __len__(self) -> int:
        return self.shape[0]

    def item(self):
        raise RuntimeError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please "
            "try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch internals, "
            "please file a bug report."
        )

    def __array__(self, *_args, **_kwargs):
        raise RuntimeError(
            "vmap: this operation reads the values of its input, and under vmap a tensor stands for a whole batch of values. Run it "
            "outside vmap."
        )

    def __getattr__(self, name):
        self.__array__()


class Batched(Tensor):
    """One sample of `value`, standing for all of them: the first dimension of `value` is the batch of `level`."""

    __slots__ = ("level", "value")

    def __new__(cls, value, level):
        self = object.__new__(cls)
        self.value, self.level = value, level
        return self

    def __init__(self, *_arguments):
        pass

    array = property(lambda self: Sample(self.value.array))  # pyright: ignore
    node = property(lambda self: current_node(self.value))  # pyright: ignore
    base = property(lambda self: None)  # noqa: ARG005  # pyright: ignore
    version = property(lambda self: version_of_values(self))  # pyright: ignore

    @classmethod
    def __torch_function__(cls, func, _types, args=(), kwargs=None):
        op = func.op
        n = len(op.inputs)
        return run(op, args[:n], args[n:])

    def requires_grad_(self, requires_grad=True):
        self.value.requires_grad_(requires_grad)
        return self

    def detach(self):
        return Batched(self.value.detach(), self.level)

    @property
    def data(self):
        return Batched(self.value.data, self.level)

    def __bool__(self) -> bool:
        raise RuntimeError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, "
            "please file an issue at https://github.com/pytorch/pytorch/issues ."
        )

    def __repr__(self) -> str:
        text = repr(self.value).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={self.level.number}, bdim=0, value=\n    {text}\n)"

    def mapped(self, function, *size):
        """function(value), or function(value, whole size) for the size of a sample: creates tensors for the whole batch."""
        return Batched(function(self.value, *[(self.level.size, *s) for s in size]), self.level)

    def numpy(self, *, force=False):
        """RuntimeError: there is no array of one sample."""
        del force
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    tolist = numpy

    def write(self, result):
        """Writes a result of in-place work into the values."""
        result = result if isinstance(result, Tensor) else result[0]
        if (inner := level_of([result])) is not None and inner.number > self.level.number:
            from .inplace import VMAPPED

            raise RuntimeError(VMAPPED)
        if result.shape != self.shape:
            raise RuntimeError(f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(result.shape)}")
        self.value.copy_(explicit(result, self.level))
        return self


def version_of_values(tensor):
    """The version counter of a tensor, batched or not."""
    while type(tensor) is Batched:
        tensor = tensor.value
    return version_of(tensor)


def level_of(tensors):
    """The innermost vmap among the tensors' own."""
    found: list[Any] = [x.level for x in tensors if type(x) is Batched]
    return max(found, key=lambda level: level.number) if found else None


def explicit(x, level):
    """The batch of `level` as an ordinary first dimension (expanded if x doesn't depend on it)."""
    if type(x) is Batched:
        if x.level is level:
            return x.value
        if x.level.number > level.number:
            return Batched(explicit(x.value, level).movedim(1, 0), x.level)
    return x.expand((level.size, *x.array.shape))


def implicit(x, level):
    """The inverse of `explicit`: hides the first dimension as the batch of `level`."""
    if type(x) is Batched and x.level.number > level.number:
        return Batched(implicit(x.value.movedim(1, 0), level), x.level)
    return Batched(x, level)


def run(op, inputs, parameters):
    """Applies an operation to inputs of which some are batched."""
    level = None  # loops by hand, because every operation on samples passes here (benchmarks: jacobian)
    for x in inputs:
        if type(x) is Batched and (level is None or x.level.number > level.number):
            level = x.level
    values, batched = [], []
    for x in inputs:
        mine = type(x) is Batched and x.level is level
        values.append(x.value if mine else x)
        batched.append(mine)
    rule = _RULES.get(op.batch, op.batch)
    result = rule(op, values, batched, level.size, parameters)  # pyright: ignore[reportOptionalMemberAccess]
    if isinstance(result, (tuple, list)):
        results = [Batched(x, level) for x in result]
        return results if type(result) is list else tuple(results)
    sample = _new(Batched)
    sample.value, sample.level = result, level
    return sample


_new = object.__new__


def expanded(x, batched, size):
    """The input with the batch in front."""
    return x if batched or not isinstance(x, Tensor) else x.expand((size, *x.array.shape))


def aligned(values, batched):
    """Batched inputs with ones inserted behind the batch, so that all broadcast from the right as the samples do."""
    ndim = 0
    for x, b in zip(values, batched):
        if isinstance(x, Tensor) and (n := x.array.ndim - b) > ndim:
            ndim = n
    out = []
    for x, b in zip(values, batched):
        missing = ndim + 1 - x.array.ndim if b else 0
        if missing == 1:
            x = x.unsqueeze(1)
        elif missing > 0:
            shape = x.array.shape
            x = x.reshape((shape[0],) + (1,) * missing + shape[1:])
        out.append(x)
    return out


def _elementwise(op, values, batched, _size, parameters):
    if len(values) == 1:
        return op.function(values[0], *parameters)
    kind = None
    for x in values:
        if isinstance(x, Tensor):
            if kind is None:
                kind = x.array.dtype
            elif x.array.dtype is not kind and op.promote in ("arith", "float", "compare"):
                values = _promoted(values, batched)
                break
    return op.function(*_broadcast(op, aligned(values, batched)), *parameters)


def _promoted(values, batched):
    """Values such that a sample without dimensions doesn't gain a say in type promotion by its batch dimension."""
    samples = [Sample(x.array) if b else x.array for x, b in zip(values, batched) if isinstance(x, Tensor)]
    t = promote(samples, [x for x in values if not isinstance(x, Tensor)])
    return [
        x.to(t) if b and x.array.ndim == 1 and from_array_type(x.array.dtype) is not t else x for x, b in zip(values, batched)
    ]


def _broadcast(op, values):
    """Inputs expanded to one shape, for operations whose gradients aren't summed over what broadcasts."""
    if op.broadcasts or len(values) == 1:
        return values
    shape = broadcast_shapes(*[x.array.shape for x in values if isinstance(x, Tensor)])
    return [x.expand(shape) if isinstance(x, Tensor) and x.array.shape != shape else x for x in values]


elementwise_rule = _elementwise  # for operations whose formulas don't serve forward mode, as those of "elementwise" do
_DIMS = ("dim", "dims", "dim0", "dim1", "dim2")


def shifted(dim):
    """A dimension (or several) of a sample as that of the batch; those counted from the end stay."""
    if isinstance(dim, (tuple, list)):
        return tuple([shifted(d) for d in dim])
    return dim + 1 if isinstance(dim, int) and dim >= 0 else dim


def _leading(op, values, batched, size, parameters):
    if False in batched:
        values = [expanded(x, b, size) for x, b in zip(values, batched)]
    out = []
    for name, value in zip(op.parameters, parameters, strict=True):
        if name == "shape":
            value = (size, *value)
        elif name in _DIMS:
            value = shifted(value)
        out.append(value)
    return op.function(*values, *out)


def _loop(op, values, batched, size, parameters):
    _warn_of_loop(op.name)
    samples = [op.function(*[x.select(0, i) if b else x for x, b in zip(values, batched)], *parameters) for i in range(size)]
    if isinstance(samples[0], tuple):
        return tuple(_stacked(samples))
    return _stacked([(x,) for x in samples])[0]


_RULES: dict = {"elementwise": _elementwise, "leading": _leading, None: _loop}  # for what `Op.batch` can be but a rule


def in_loop(function):
    """Lets a function that reads the values of its tensors run under vmap: once for each sample, with a warning."""

    @functools.wraps(function)
    def looped(*args, **kwargs):
        if not modes.levels:
            return function(*args, **kwargs)
        from .utils._pytree import tree_flatten, tree_unflatten

        leaves, spec = tree_flatten((args, kwargs))
        level = level_of([x for x in leaves if isinstance(x, Tensor)])
        if level is None:
            return function(*args, **kwargs)
        _warn_of_loop(function.__name__)
        samples = []
        for i in range(level.size):
            args, kwargs = tree_unflatten(
                [x.value.select(0, i) if type(x) is Batched and x.level is level else x for x in leaves], spec
            )
            samples.append(tree_flatten(function(*args, **kwargs)))
        stacked = _stacked([outputs for outputs, _spec in samples])
        return tree_unflatten([Batched(x, level) for x in stacked], samples[0][1])

    return looped


def refuse_samples(name, *tensors):
    """RuntimeError for batched inputs of an operation whose result's shape depends on values. name: PyTorch's own."""
    if modes.levels and level_of(tensors) is not None:
        raise RuntimeError(
            f"vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over aten::{name}. Please file "
            "an issue at https://github.com/pytorch/pytorch/issues if you need this feature."
        )


def refuse_fallback(name, *tensors):
    """RuntimeError for batched inputs of an operation that can't run in a loop over the samples."""
    if modes.levels and level_of(tensors) is not None:
        raise RuntimeError(f"Batching rule not implemented for aten::{name}. We could not generate a fallback.")


def _warn_of_loop(name):
    warnings.warn(
        f"There is a performance drop because we have not yet implemented the batching rule for {name}: it runs once for each "
        "sample. docs/compatibility.md lists such operations.",
        UserWarning,
        stacklevel=5,
    )


def _stacked(samples):
    from .ops.join import stack

    return [stack(each) for each in zip(*samples, strict=True)]


# Rules: rule(op, inputs, batched, size, parameters), with the batch in front of the inputs that are batched


def transpose_rule(_op, inputs, _batched, _size, _parameters):
    (x,) = inputs
    return x.transpose(1, 2) if x.array.ndim == 3 else x[...]


def swap_rule(op, inputs, batched, size, parameters):
    (x,) = inputs
    return _leading(op, inputs, batched, size, parameters) if x.array.ndim > 1 else x[...]


def permute_rule(_op, inputs, _batched, _size, parameters):
    return inputs[0].permute(0, *[d + 1 for d in parameters[0]])


def _padded(x, ndim):
    """The batch, then ones up to `ndim` dimensions of a sample."""
    shape = x.array.shape
    return x if len(shape) > ndim else x.reshape((shape[0],) + (1,) * (ndim + 1 - len(shape)) + shape[1:])


def expand_rule(_op, inputs, _batched, size, parameters):
    (shape,) = parameters
    return _padded(inputs[0], len(shape)).expand((size, *shape))


def pad_rule(op, inputs, _batched, size, parameters):
    places, shape = parameters
    return op.function(inputs[0], tuple([(dim + 1, place) for dim, place in places]), (size, *shape))


def repeat_rule(_op, inputs, _batched, _size, parameters):
    (repeats,) = parameters
    return _padded(inputs[0], len(repeats)).repeat((1, *repeats))


def first_row_rule(_op, inputs, _batched, _size, _parameters):
    return inputs[0].select(1, 0)


def index_rule(op, inputs, batched, size, parameters):
    """Indexing that all samples share: everything of the batch, then the index of a sample."""
    inputs = [expanded(x, b, size) for x, b in zip(inputs, batched)]
    index = parameters[op.parameters.index("index" if "index" in op.parameters else "place")]
    arrays = [i for i, item in enumerate(index) if hasattr(item, "ndim")]
    if arrays and arrays[-1] - arrays[0] + 1 != len(arrays):  # apart from each other: their dimensions come first
        import numpy as np

        ndim = max(index[i].ndim for i in arrays)
        first = np.arange(size).reshape((size,) + (1,) * ndim)
        index = (first, *index)
    else:
        index = (slice(None), *index)
    given = {
        "index": index,
        "place": index,
        "shape": (size, *parameters[op.parameters.index("shape")]) if "shape" in op.parameters else None,
    }
    return op.function(*inputs, *[given.get(name, value) for name, value in zip(op.parameters, parameters)])


def over_all(name):
    """The rule of a reduction over all elements: the primitive `name` over the dimensions of a sample."""

    def rule(op, inputs, _batched, _size, parameters):
        from .op import OPS

        (x,) = inputs
        dims = tuple(range(1, x.array.ndim))
        keepdim = parameters[-1] if op.parameters and op.parameters[-1] == "keepdim" else False
        return OPS[name].function(x, dims, keepdim) if dims else x.clone()

    return rule


def some_dims(op, inputs, batched, size, parameters):
    """The rule of a reduction whose `dims` may be None (or empty) for all."""
    place = op.parameters.index("dims")
    if not parameters[place]:
        parameters = (*parameters[:place], tuple(range(inputs[0].array.ndim - 1)), *parameters[place + 1 :])
    if not parameters[place]:  # samples without dimensions: one of size 1 to reduce over
        parameters = (*parameters[:place], (-1,), *parameters[place + 1 :])
        inputs = [inputs[0].unsqueeze(-1)]
        result = _leading(op, inputs, batched, size, parameters)
        if isinstance(result, tuple):
            return tuple([x.squeeze(-1) if x.array.ndim > 1 else x for x in result])
        return result.squeeze(-1) if result.array.ndim > 1 else result
    return _leading(op, inputs, batched, size, parameters)


def roll_rule(op, inputs, _batched, _size, parameters):
    if parameters[1]:
        return op.function(inputs[0], parameters[0], shifted(parameters[1]))
    (x,) = inputs
    return op.function(x.flatten(1), parameters[0], (1,)).reshape(x.array.shape) if x.array.ndim > 1 else x.clone()


def product(a, b, a_batched, b_batched):
    """Matrix products of (n, k) and (k, m) samples, as few and as large as possible."""
    if a_batched and not b_batched and a.array.ndim == 3:  # one product for the whole batch
        size, n, k = a.array.shape
        return a.reshape(size * n, k).mm(b).reshape((size, n, b.array.shape[1]))
    if a_batched and b_batched and a.array.ndim == 3 and b.array.ndim == 3:
        return a.bmm(b)
    return a.matmul(b)


def matmul_rule(_op, inputs, batched, _size, _parameters):
    a, b = inputs
    if b.array.ndim - batched[1] == 1:
        return product(a, b.unsqueeze(-1), batched[0], batched[1]).squeeze(-1)
    return product(a, b, *batched)


def vdot_rule(_op, inputs, batched, _size, _parameters):
    a, b = aligned(inputs, batched)
    return (a.conj() * b).sum(-1)


def dot_rule(_op, inputs, batched, _size, _parameters):
    a, b = aligned(inputs, batched)
    return (a * b).sum(-1)


def addmm_rule(_op, inputs, batched, _size, parameters):
    beta, alpha = parameters or (1, 1)
    bias, a, b = inputs
    result = product(a, b, *batched[1:])
    bias, result = aligned([bias, result], [batched[0], batched[1] or batched[2]])
    return (bias if beta == 1 else bias * beta) + (result if alpha == 1 else result * alpha)


def masked_fill_rule(_op, inputs, batched, size, _parameters):
    x, mask, value = inputs
    x, mask, value = aligned([expanded(x, batched[0], size), mask, value], [True, *batched[1:]])
    return value.where(mask, x) if value.dtype is x.dtype else value.to(x.dtype).where(mask, x)


def prod_rule(_op, inputs, _batched, _size, _parameters):
    return inputs[0].flatten(1).prod(1) if inputs[0].array.ndim > 1 else inputs[0].clone()


def reduced(op, inputs, batched, _size, parameters):
    """The rule of an elementwise loss: without its reduction on the batch, then the reduction of each sample."""
    place = op.parameters.index("reduction")
    plain = (*parameters[:place], "none", *parameters[place + 1 :])
    loss = op.function(*_broadcast(op, aligned(inputs, batched)), *plain)
    how = parameters[place]
    if how == "none" or loss.array.ndim == 1:
        return loss
    return loss.flatten(1).mean(1) if how == "mean" else loss.flatten(1).sum(1)


def nll_rule(op, inputs, batched, size, parameters):
    """Samples (N, C, *) of all the batch as one; then each sample's (weighted) mean or sum."""
    x, target = (expanded(v, b, size) for v, b in zip(inputs[:2], batched))
    weight = inputs[2] if len(inputs) > 2 else None
    if weight is not None and batched[2]:
        return _loop(op, inputs, batched, size, parameters)
    how, *ignore = parameters
    rest = () if weight is None and len(inputs) == 2 else (weight,)
    merged = op.function(x.flatten(0, 1), target.flatten(0, 1), *rest, "none", *ignore)
    loss = merged.reshape(target.array.shape)
    if how == "none":
        return loss
    total = loss.flatten(1).sum(1)
    if how == "sum":
        return total
    if not ignore:
        return total / loss[0].numel()
    return total / nll_total(target, weight, ignore[0], x.dtype)


def nll_total(target, weight, ignored, dtype):
    """The sum of the weights of each sample's targets."""
    kept = (target != ignored).to(dtype)
    weights = kept if weight is None else weight[target.where(kept != 0, target * 0)] * kept
    return weights.flatten(1).sum(1)


def nll_gradient_rule(op, inputs, batched, size, parameters):
    """The rows of all samples as those of one, each with the gradient of its sample's loss."""
    g, target, *weight = inputs
    shape, how, *ignore = parameters
    if any(batched[2:]):
        return _loop(op, inputs, batched, size, parameters)
    g, target = expanded(g, batched[0], size), expanded(target, batched[1], size)
    if how == "mean":
        g = g / (nll_total(target, weight[0], ignore[0], g.dtype) if ignore else target[0].numel())
    g = _padded(g, target.array.ndim - 1).expand(target.array.shape)
    whole = op.function(g.flatten(0, 1), target.flatten(0, 1), *weight, (size * shape[0], *shape[1:]), "none", *ignore)
    return whole.reshape((size, *shape))


def rows_rule(op, inputs, batched, size, parameters):
    """The rule of a loss of rows (N, C): the rows of all samples without reduction, then the reduction of each sample."""
    if any(batched[2:]):
        return _loop(op, inputs, batched, size, parameters)
    place = op.parameters.index("reduction")
    rows = [expanded(x, b, size).flatten(0, 1) for x, b in zip(inputs[:2], batched)]
    loss = op.function(*rows, *inputs[2:], *parameters[:place], "none", *parameters[place + 1 :]).reshape((size, -1))
    how = parameters[place]
    return loss if how == "none" else loss.mean(1) if how == "mean" else loss.sum(1)


def embedding_rule(op, inputs, batched, size, parameters):
    weight, index = inputs
    if not batched[0]:
        return op.function(weight, index, *parameters)
    if parameters[0] >= 0:
        return _loop(op, inputs, batched, size, parameters)
    from .creation import arange

    count = weight.array.shape[1]
    index = expanded(index, batched[1], size)
    first = (arange(size) * count).reshape((size,) + (1,) * (index.array.ndim - 1))
    return op.function(weight.flatten(0, 1), index + first, *parameters)


def normalise_rule(op, inputs, batched, size, parameters):
    """Layer and batch norm: statistics over each sample's `dims`, then weight and bias (by hand where these are batched)."""
    given = dict(zip(op.parameters, parameters))
    x, weight, bias, *statistics = inputs
    shape = given["shape"] = (1, *given["shape"])
    if "dims" in given:
        given["dims"] = shifted(given["dims"])
    x = expanded(x, batched[0], size)
    in_place = [None if b else v for v, b in zip((weight, bias), batched[1:3])]
    if batched[1]:
        in_place[1] = None  # the bias comes after the weight
    y = op.function(x, *in_place, *statistics, *given.values())
    channels = tuple(n if n != -1 else 1 for n in shape[1:])
    if batched[1]:
        y = y * weight.reshape((size, *channels))
    if bias is not None and in_place[1] is None:
        y = y + bias.reshape((size if batched[2] else 1, *channels))
    return y


def group_norm_rule(op, inputs, batched, size, parameters):
    x, weight, bias = inputs
    x = expanded(x, batched[0], size)
    merged = op.function(
        x.flatten(0, 1), None if batched[1] else weight, None if batched[1] or batched[2] else bias, *parameters
    )
    y = merged.reshape(x.array.shape)
    ones = (1,) * (x.array.ndim - 3)
    if batched[1]:
        y = y * weight.reshape((size, 1, -1, *ones))
    if bias is not None and (batched[1] or batched[2]):
        y = y + bias.reshape((size if batched[2] else 1, 1, -1, *ones))
    return y


def merged_rule(op, inputs, batched, size, parameters):
    """The batch merged into the first dimension of every input, and taken out of the result."""
    inputs = [expanded(x, b, size).flatten(0, 1) for x, b in zip(inputs, batched)]
    out = [(size * v[0], *v[1:]) if name == "shape" else v for name, v in zip(op.parameters, parameters)]
    result = op.function(*inputs, *out)
    return result.reshape((size, result.array.shape[0] // size, *result.array.shape[1:]))


def _into_channels(x, batched, size):
    """(B, N, C, *) -> (N, B*C, *)."""
    return expanded(x, batched, size).movedim(0, 1).flatten(1, 2)


def _out_of_channels(y, size):
    """(N, B*C, *) -> (B, N, C, *)."""
    n, c, *rest = y.array.shape
    return y.reshape((n, size, c // size, *rest)).movedim(1, 0)


def convolution_rule(op, inputs, batched, size, parameters):
    """A batch of images joins the images; a batch of weights becomes groups of channels (Krizhevsky's grouped convolution)."""
    groups = op.parameters.index("groups")
    x, weight, *bias = inputs
    if not batched[1] and not any(batched[2:]):
        y = op.function(expanded(x, batched[0], size).flatten(0, 1), weight, *bias, *parameters)
        return y.reshape((size, y.array.shape[0] // size, *y.array.shape[1:]))
    x = _into_channels(x, batched[0], size)
    weight = expanded(weight, batched[1], size).flatten(0, 1)
    bias = [b if b is None else expanded(b, batched[2], size).flatten() for b in bias]
    parameters = (*parameters[:groups], parameters[groups] * size, *parameters[groups + 1 :])
    return _out_of_channels(op.function(x, weight, *bias, *parameters), size)


def convolution_weight_rule(op, inputs, batched, size, parameters):
    groups = op.parameters.index("groups")
    g, x = (_into_channels(v, b, size) for v, b in zip(inputs, batched))
    y = op.function(g, x, *parameters[:groups], parameters[groups] * size, *parameters[groups + 1 :])
    return y.reshape((size, y.array.shape[0] // size, *y.array.shape[1:]))


def index_select_rule(op, inputs, batched, size, parameters):
    x, index, *source = inputs
    dim = parameters[-1] + 1
    if not batched[1]:
        x, *source = (expanded(v, b, size) for v, b in zip((x, *source), (batched[0], *batched[2:])))
        shape = [(size, *v) if name == "shape" else v for name, v in zip(op.parameters[:-1], parameters[:-1])]
        return op.function(x, index, *source, *shape, dim)
    x = expanded(x, batched[0], size)
    source = [expanded(v, b, size) for v, b in zip(source, batched[2:])]
    like = source[0] if source else x
    along = index.reshape((size,) + tuple(-1 if d == dim else 1 for d in range(1, like.array.ndim)))
    along = along.expand(tuple(along.array.shape[d] if d in (0, dim) else n for d, n in enumerate(like.array.shape)))
    if op.name == "index_add":
        return x.scatter_add(dim, along, source[0])
    if op.name == "index_select":
        return x.gather(dim, along)
    return x.new_zeros((size, *parameters[0])).scatter_add(dim, along, x)


def index_put_rule(op, inputs, batched, size, parameters):
    import numpy as np

    x, value = inputs
    index = parameters[op.parameters.index("index" if "index" in op.parameters else "place")]
    picked = np.broadcast_to(np.int8(0), x.array.shape[1:] if batched[0] else x.array.shape)[index]
    return index_rule(op, [x, _padded(expanded(value, batched[1], size), picked.ndim)], [batched[0], True], size, parameters)


def take_rule(_op, inputs, batched, size, _parameters):
    x, index = (expanded(v, b, size) for v, b in zip(inputs, batched))
    x = x.reshape((size, math.prod(x.array.shape[1:])))
    return x.gather(1, index.reshape((size, math.prod(index.array.shape[1:]))) % max(x.array.shape[1], 1)).reshape(
        index.array.shape
    )


def put_rule(_op, inputs, batched, size, parameters):
    x, index, source = (expanded(v, b, size) for v, b in zip(inputs, batched))
    flat, index, source = (v.reshape((size, -1)) for v in (x, index, source))
    write = flat.scatter_add if parameters[0] else flat.scatter
    return write(1, index % flat.array.shape[1], source).reshape(x.array.shape) if index.array.size else x.clone()


def isin_rule(op, inputs, batched, size, parameters):
    if not batched[1]:
        return op.function(*inputs, *parameters)
    x, tests = (expanded(v, b, size) for v, b in zip(inputs, batched))
    found = (x.reshape((size, -1, 1)) == tests.reshape((size, 1, -1))).any(2).reshape(x.array.shape)
    return ~found if parameters[-1] else found


def as_strided_rule(_op, inputs, _batched, size, parameters):
    """A copy, not a view: of samples whose memory is contiguous, as far as they know."""
    import numpy as np

    from .ops.index import _index

    *_root, shape, strides, offset = parameters
    places = np.asarray(offset)
    for n, step in zip(shape, strides):
        places = places[..., None] + np.arange(n) * step
    return _index(inputs[0].reshape((size, -1)), (slice(None), places))


def copy_rule(_op, inputs, batched, size, parameters):
    array_type, shape, _source = parameters
    source = inputs[1]
    source = _padded(source, len(shape)) if batched[1] else source
    return source.expand((size, *shape)).to(from_array_type(array_type))


# Indexing with batched indices


def indexed(x, advanced, stand_ins, put=None, accumulate=False):
    """x[advanced] (or with `put` the same written) where some index arrays are batched.

    advanced: the index as for arrays; stand_ins: id of an array in it -> the batched tensor that it stands for."""
    import numpy as np

    from .ops.index import _index, _index_put

    items = {i: stand_ins.get(id(item), item) for i, item in enumerate(advanced)}
    level = level_of([x, *items.values(), *([] if put is None else [put])])
    size, whole = level.size, explicit(x, level)  # pyright: ignore[reportOptionalMemberAccess]
    places = [i for i, item in enumerate(advanced) if not isinstance(item, slice)]
    ndim = max(advanced[i].ndim for i in places)
    index: list = [np.arange(size).reshape((size,) + (1,) * ndim)]
    for item in items.values():
        if type(item) is Batched:
            if item.level is not level:
                raise RuntimeError("vmap: an index that is batched by an outer vmap only can't be used inside another vmap yet")
            item = _padded(item.value, ndim).array
            if type(item) is Sample:
                raise RuntimeError("vmap: an index that is batched by several vmaps at once can't be used yet")
        index.append(item)
    adjacent = places[-1] - places[0] + 1 == len(places)
    before = places[0] if adjacent else 0
    scalar = all(type(items[i]) is Batched and not items[i].array.ndim for i in places)  # they stand there with one dimension
    order = [0, *range(ndim + 1, ndim + 1 + before), *range(1, ndim + 1)]  # where the picked dimensions belong
    if put is None:
        result = _index(whole, tuple(index))
        order += range(len(order), result.array.ndim)
        result = result.permute(order) if before else result
        return Batched(result.squeeze(1 + before) if scalar else result, level)
    value = explicit(put, level) if type(put) is Batched else put.expand((size, *put.array.shape))
    shape = np.broadcast_to(np.int8(0), whole.array.shape)[tuple(index)].shape
    order += range(len(order), len(shape))
    if scalar and value.array.ndim - 1 >= len(shape) - 2 - before:
        value = value.unsqueeze(value.array.ndim - (len(shape) - 2 - before))
    value = _padded(value, len(shape) - 1).expand(tuple(shape[d] for d in order))
    inverse = [order.index(d) for d in range(len(order))]
    return Batched(_index_put(whole, value.permute(inverse), tuple(index), accumulate), level)


# Random numbers


def sampled(draw, shape):
    """A tensor of random numbers `draw(shape)`, as the vmaps around say: the same for every sample, or different."""
    different = []
    for level in reversed(vmap_levels()):
        if level.randomness == "error":
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness "
                "flags on vmap or perform the randomness operation out of vmap"
            )
        if level.randomness == "different":
            different.insert(0, level)
    result = draw((*[level.size for level in different], *shape))
    result = result if isinstance(result, Tensor) else Tensor._from(result)
    for level in different:
        result = implicit(result, level)
    return result


def depends(x, level) -> bool:
    """Whether a tensor is batched by a vmap."""
    while type(x) is Batched:
        if x.level is level:
            return True
        x = x.value
    return False


def drawn_from(tensor):
    """The tensor that a random function draws from, with a batch for each vmap whose samples differ.

    RuntimeError where samples that are to get the same numbers have different inputs."""
    for level in reversed(vmap_levels()):
        if level.randomness == "error":
            sampled(None, ())
        if level.randomness == "different":
            tensor = implicit(explicit(tensor, level).contiguous(), level)  # numbers are drawn in the order of memory
        elif depends(tensor, level):
            raise RuntimeError(
                "Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch"
            )
    return tensor


def all_values(tensor):
    """The array of a tensor; of a batched one, that of the whole batch: for checks of its values."""
    while type(tensor) is Batched:
        tensor = tensor.value
    return tensor.array


def random_rule(op, inputs, batched, size, parameters):
    """Random functions of a tensor that went through `drawn_from`: the whole batch at once."""
    return op.function(*[expanded(x, b, size) for x, b in zip(inputs, batched)], *parameters)
