"""Choosing between elements: clamp, maximum, where, masked_fill, nan_to_num, and the like."""

from __future__ import annotations

import numpy as np

from .. import batching, dtypes, views
from ..creation import no_gradient
from ..op import binary, check_broadcast, inplace, op, public, twin, write_out
from ..state import modes
from ..tensor import Tensor
from .cast import to
from .check import invalid_combination, not_tensor, scalar_name
from .gather import nonzero
from .shape import expand, sum_to_size_


@public(inplace=True, aliases=("clip",))
def clamp(input, min=None, max=None, *, out=None):
    """Limits values to [min, max] (numbers or tensors). Differentiable; the gradient passes where nothing was cut.

    >>> import backlight as torch
    >>> torch.clamp(torch.tensor([-2., 0.5, 3.]), -1, 1)
    tensor([-1.0000,  0.5000,  1.0000])
    """
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if input.array.dtype.kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        result = _clamp_with_tensors(input, min, max)
    elif input.array.dtype.kind == "f" and type(min) in _NUMBERS and type(max) in _NUMBERS:
        result = _clamp(input, min, max)
    else:
        limits = [v for v in (min, max) if v is not None]
        if any(dtypes.number_type(v) is None for v in limits):
            raise invalid_combination("clamp", input, *limits)
        t = dtypes.promote([input.array], limits)
        result = _clamp(input if t is input.dtype else to(input, t), min, max)
    return result if out is None else write_out(out, result)


_NUMBERS = (float, int, type(None))


def clamp_arrays(x, min, max):
    if min is None or max is None:
        if x.dtype.kind == "f" and x.size >= 4096:  # with two limits clip is vectorised, minimum and maximum aren't
            return np.clip(x, -np.inf if min is None else min, np.inf if max is None else max)
        return np.maximum(min, x) if max is None else np.minimum(max, x)  # in this order -0. stays
    return x.clip(min, max) if min <= max else np.full_like(x, max)


def _inside_arrays(x, min, max):
    inside = True
    if min is not None:
        inside = x >= min
    return inside if max is None else inside & (x <= max)


@twin(_inside_arrays)
def _inside(x, min, max):
    return Tensor._from(np.asarray(_inside_arrays(x.array, min, max)))


_clamp = op("clamp", clamp_arrays, lambda g, input, _out, min, max: kept_where(g, _inside(input, min, max)),
            node="ClampBackward1", batch="leading")  # fmt: skip


def _inside_tensors(x, min, max):
    if min is None:
        return x <= max
    return x >= min if max is None else (x >= min) & (x <= max)


def _clamp_tensor_arrays(x, min, max):
    low = x if min is None else np.maximum(x, min)
    return low if max is None else np.minimum(low, max)


_clamp_tensors = op("clamp_tensors", _clamp_tensor_arrays,
    lambda g, input, min, max, _out: kept_where(g, _inside_tensors(input, min, max)),
    lambda g, input, min, max, _out: kept_where(g, input < min if max is None else (input < min) & (min < max)),
    lambda g, input, min, max, _out: kept_where(g, input > max if min is None else (input > max) | (max < min)),
    optional=("min", "max"), node="ClampBackward0", batch="elementwise")  # fmt: skip


def _clamp_with_tensors(input, min, max):
    """clamp where a limit is a tensor: all three in one type and shape."""
    given = [v for v in (input, min, max) if v is not None]
    t = dtypes.promote([v.array for v in given if isinstance(v, Tensor)], [v for v in given if not isinstance(v, Tensor)])
    shape = ()
    for v in given:
        if isinstance(v, Tensor):
            check_broadcast(shape, v.array.shape)
            shape = np.broadcast_shapes(shape, v.array.shape)

    def fitted(v):
        if v is None:
            return None
        v = to(v, t) if isinstance(v, Tensor) else Tensor._from(np.array(v, t.array_type))
        return v if v.array.shape == shape else expand(v, shape)

    return _clamp_tensors(fitted(input), fitted(min), fitted(max))


_clamp_min = op("clamp_min", lambda x, min: np.maximum(x, x.dtype.type(min)),
    lambda g, input, _out, min: kept_where(g, input >= min), batch="elementwise")  # fmt: skip
_clamp_max = op("clamp_max", lambda x, max: np.minimum(x, x.dtype.type(max)),
    lambda g, input, _out, max: kept_where(g, input <= max), batch="elementwise")  # fmt: skip
_clamp_min_tensor = op("clamp_min_tensor", np.maximum,
    lambda g, input, min, _out: kept_where(g, input >= min),
    lambda g, input, min, _out: kept_where(g, input < min), promote="arith", node="ClampMinBackward1", batch="elementwise")  # fmt: skip
_clamp_max_tensor = op("clamp_max_tensor", np.minimum,
    lambda g, input, max, _out: kept_where(g, input <= max),
    lambda g, input, max, _out: kept_where(g, input > max), promote="arith", node="ClampMaxBackward1", batch="elementwise")  # fmt: skip


def _limited(name, by_number, by_tensor, input, limit):
    if not isinstance(input, Tensor) or not (isinstance(limit, Tensor) or dtypes.number_type(limit) is not None):
        raise invalid_combination(name, input, limit)
    if input.array.dtype.kind == "c":
        raise NotImplementedError("clamp is not supported for complex types")
    if isinstance(limit, Tensor):
        return by_tensor(input, limit)
    t = dtypes.promote([input.array], [limit])
    return by_number(input if t is input.dtype else to(input, t), limit)


@public(inplace=True)
def clamp_min(input, min):
    """clamp with a lower limit only. Differentiable in both."""
    return _limited("clamp_min", _clamp_min, _clamp_min_tensor, input, min)


@public(inplace=True)
def clamp_max(input, max):
    """clamp with an upper limit only. Differentiable in both."""
    return _limited("clamp_max", _clamp_max, _clamp_max_tensor, input, max)


_maximum = binary("maximum", np.maximum,
    lambda g, input, other, _out: where_zero(input < other, share_ties(g, input, other)),
    lambda g, input, other, _out: where_zero(input > other, share_ties(g, input, other)),
    public=False)  # fmt: skip
_minimum = binary("minimum", np.minimum,
    lambda g, input, other, _out: where_zero(input > other, share_ties(g, input, other)),
    lambda g, input, other, _out: where_zero(input < other, share_ties(g, input, other)),
    public=False)  # fmt: skip


@public()
def maximum(input, other, *, out=None):
    """The larger of two elements; NaN wins. Differentiable in both (equal elements share the gradient)."""
    return _extreme("maximum", _maximum, input, other, out)


@public()
def minimum(input, other, *, out=None):
    """The smaller of two elements; NaN wins. Differentiable in both (equal elements share the gradient)."""
    return _extreme("minimum", _minimum, input, other, out)


def _extreme(name, primitive, input, other, out):
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor(name, input=input, other=other)
    if input.array.dtype.kind == "c" or other.array.dtype.kind == "c":
        raise RuntimeError(f"{name} not implemented for complex tensors.")
    return primitive(input, other, out)


@twin(lambda g, a, b: np.where(a == b, g / 2, g))
def share_ties(g, a, b):
    """Half of g where a equals b."""
    return where(a == b, g / 2, g)


# np.where and copyto branch for each element, which takes 10 times as long where the mask is random (benchmarks: select). As
# an integer an element times True or False is itself or zero, NaN and infinity included.

_INTEGERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def _kept_where(x, mask):
    integer = _INTEGERS.get(x.dtype.itemsize)
    if integer is None:
        return np.where(mask, x, np.zeros((), x.dtype))
    return (x.view(integer) * mask).view(x.dtype)


def select(condition, a, b):
    """np.where(condition, a, b) for arrays of one type."""
    integer, shape = _INTEGERS.get(a.dtype.itemsize), condition.shape
    if (integer is None or condition.size < 4096 or a.dtype is not b.dtype
            or a.shape not in (shape, ()) or b.shape not in (shape, ())):  # fmt: skip
        return np.where(condition, a, b)
    b = b.view(integer)
    bits = (a.view(integer) ^ b) * condition
    bits ^= b
    return bits.view(a.dtype)


def _masked_fill_arrays(x, mask, value):
    if value == 0 and x.dtype.kind in "fc" and (x.size >= 4096 or x.shape == mask.shape):
        return _kept_where(x, ~mask)
    if x.shape != mask.shape:
        x = np.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape))
    out = np.array(x, order="C")
    np.copyto(out, value, "unsafe", mask)
    return out


_where = op("where", select,
    None,
    lambda g, condition, input_shape, _other, _out: sum_to_size_(masked_fill(g, ~condition, 0), input_shape),
    lambda g, condition, _input, other_shape, _out: sum_to_size_(masked_fill(g, condition, 0), other_shape),
    promote="keep", batch="elementwise")  # fmt: skip


@public(method=False)
def where(condition, input=None, other=None, *, out=None):
    """input where condition holds, else other, with broadcasting; where(condition) is nonzero(as_tuple=True).

    condition: bool. Differentiable in input and other.
    """
    if input is None and other is None:
        batching.refuse_samples("where", condition)
        return nonzero(condition, as_tuple=True)
    if (input.__class__ is Tensor and other.__class__ is Tensor and condition.__class__ is Tensor and out is None
            and input.array.dtype is other.array.dtype and condition.array.dtype == bool
            and input.array.shape == other.array.shape == condition.array.shape):  # fmt: skip
        return _where(condition, input, other)
    if not isinstance(condition, Tensor) or input is None or other is None:
        raise invalid_combination("where", *(v for v in (condition, input, other) if v is not None))
    if condition.dtype is not dtypes.bool_ and condition.dtype is not dtypes.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype {dtypes.scalar_type_name(condition.dtype)}"
        )
    tensors = [v for v in (input, other) if isinstance(v, Tensor)]
    t = dtypes.promote([v.array for v in tensors], [v for v in (input, other) if not isinstance(v, Tensor)])
    input, other = (to(v, t) if isinstance(v, Tensor) else Tensor._from(np.array(v, t.array_type)) for v in (input, other))
    for a, b in ((condition, input), (condition, other), (input, other)):
        check_broadcast(a.array.shape, b.array.shape)
    if condition.dtype is dtypes.uint8:
        condition = condition.bool()
    result = _where(condition, input, other)
    return result if out is None else write_out(out, result, exact=True)


Tensor.where = lambda self, condition, other: where(condition, self, other)


_masked_fill = op("masked_fill", _masked_fill_arrays,
    lambda g, _input, mask, _out, _value: masked_fill(g, mask, 0),
    None,
    promote="keep", batch="elementwise")  # fmt: skip
_masked_fill_tensor = op("masked_fill_tensor", _masked_fill_arrays,
    lambda g, _input, mask, _value, _out: masked_fill(g, mask, 0),
    None,
    lambda g, _input, mask, _value, _out: sum_all(g * mask),
    promote="keep", node="MaskedFillBackward1", batch=batching.masked_fill_rule)  # fmt: skip


@twin(lambda x: np.add.reduce(x, None))
def sum_all(x):
    """The sum of all elements."""
    return x.sum()


@public()
def masked_fill(input, mask, value):
    """input with `value` (a number or 0-d tensor) where the bool mask holds; shapes broadcast. Differentiable."""
    if (
        type(value) in (int, float)
        and input.array.dtype.kind == "f"
        and mask.array.dtype == bool
        and mask.array.shape == input.array.shape
    ):
        return _masked_fill(input, mask, value)
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {scalar_name(mask)}")
    check_broadcast(mask.array.shape, input.array.shape)
    if input.array.shape != (shape := np.broadcast_shapes(input.array.shape, mask.array.shape)):
        input = expand(input, shape)
    if isinstance(value, Tensor):
        if value.array.ndim:
            raise RuntimeError(
                f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.array.ndim} dimension(s)."
            )
        if value.node is not None or modes.levels:
            return _masked_fill_tensor(input, mask, value)
        value = value.array.item()
    t = dtypes.number_type(value)
    if t is None:
        raise invalid_combination("masked_fill", mask, value)
    if t.category == 3 and input.dtype.category < 3:
        raise RuntimeError(f"value cannot be converted to type {scalar_name(input)} without overflow")
    return _masked_fill(input, mask, value)


masked_fill.arrays = _masked_fill_arrays


def _masked_fill_in_place(self, mask, value):
    """Writes `value` where the bool mask holds: see masked_fill."""
    if isinstance(mask, Tensor):
        views.check_writable(self)
        check_broadcast(self.array.shape, mask.array.shape)
    return inplace(masked_fill, self, (mask, value))


Tensor.masked_fill_ = _masked_fill_in_place


# Parts of gradient formulas


@twin(_kept_where)
def kept_where(g, mask):
    """g where the mask holds, else 0: also where g is NaN or infinite, which a product with the mask would pass on."""
    return masked_fill(g, ~mask, 0)


@twin(lambda condition, x: _kept_where(x, ~condition))
def where_zero(condition, x):
    """x with zeros where the condition holds."""
    return masked_fill(x, condition, 0)


@twin(lambda x: np.where(x == 0, np.ones((), x.dtype), x))
def where_one(x):
    """x with ones in place of zeros."""
    return masked_fill(x, x == 0, 1)


# Choices by sign and by NaN

fmax = binary("fmax", np.fmax,
    lambda g, input, other, _out: where_zero(~((input >= other) | (other != other)), g),
    lambda g, input, other, _out: where_zero((input >= other) | (other != other), g),
    inplace=False, doc="The larger of two elements; a number wins over NaN. Differentiable in both.")  # fmt: skip
fmin = binary("fmin", np.fmin,
    lambda g, input, other, _out: where_zero(~((input <= other) | (other != other)), g),
    lambda g, input, other, _out: where_zero((input <= other) | (other != other), g),
    inplace=False, doc="The smaller of two elements; a number wins over NaN. Differentiable in both.")  # fmt: skip
copysign = binary("copysign", np.copysign,
    lambda g, input, _other, out: g * where_zero(input == 0, out / where_one(input)),
    lambda g, _input, _other, _out: no_gradient(g),
    promote="float", doc="The size of input with the sign of other. Differentiable in input.")  # fmt: skip
heaviside = binary("heaviside", lambda x, values: np.where(x == 0, values, x > 0).astype(x.dtype), None, None,
    doc="0 where input < 0, 1 where input > 0, `values` where it is 0. No gradient.")  # fmt: skip


def _nan_to_num_arrays(x, nan, posinf, neginf):
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf) if x.dtype.kind in "fc" else x.copy()


_nan_to_num = op("nan_to_num", _nan_to_num_arrays,
    lambda g, input, _out, _nan, _posinf, _neginf: where_zero(not_finite(input), g), promote="keep", batch="leading")  # fmt: skip


@twin(lambda x: ~np.isfinite(x))
def not_finite(x):
    """Where x is NaN or infinite."""
    return Tensor._from(np.asarray(~np.isfinite(x.array)))


@public(inplace=True)
def nan_to_num(input, nan=0.0, posinf=None, neginf=None, *, out=None):
    """NaN replaced by `nan`, infinities by `posinf` and `neginf` (the type's limits if None). Differentiable."""
    result = _nan_to_num(input, nan or 0.0, posinf, neginf)
    return result if out is None else write_out(out, result, exact=True)
