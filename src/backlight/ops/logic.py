"""Comparisons, logic and bits: nothing here has a gradient. At the end, the operators of Tensor."""

from __future__ import annotations

import numpy as np

from .. import batching, dtypes
from ..codegen import named
from ..op import face, op, operator, public, write_out
from ..state import modes
from ..tensor import Tensor
from .check import not_implemented, not_tensor
from .pointwise import (
    _add,
    _pow_tensor,
    _rsub,
    _rsub_tensor,
    _sub,
    _true_divide,
    abs,
    floor_divide,
    mul,
    neg,
    positive,
    pow,
    reciprocal,
    remainder,
)
from .pointwise import (
    _rpow as _number_to_the,
)

# Comparisons and logic: no gradient


def _ordered(name, ufunc):
    def arrays(input, other):
        if input.dtype.kind == "c":
            raise not_implemented(f"{name}_cpu", Tensor._from(input))
        return ufunc(input, other)

    return arrays


def _compare(name, ufunc, aliases=()):
    arrays = ufunc_of_two(ufunc) if name in ("eq", "ne") or name.startswith("logical") else _ordered(name, ufunc)
    function = op(name, arrays, None, None, promote="compare", batch="elementwise",
                  doc=f"Elementwise {name} with broadcasting: a bool tensor.")  # fmt: skip
    for alias in (name, *aliases):
        face(function, name=alias, inplace=True)
        if not name.startswith("logical"):  # in place, those leave the graph as it is, as PyTorch's do
            setattr(Tensor, f"{alias}_", _written(function, alias))
    return function


def _written(function, name):
    """The in-place form of what has no gradient: its result is copied, so what was there before gets none either."""

    def method(self, *args):
        result = function(self, *args)
        if result.array.shape != self.array.shape:
            raise RuntimeError(f"output with shape {list(self.array.shape)} doesn't match the broadcast shape "
                               f"{list(result.array.shape)}")  # fmt: skip
        return self.copy_(result)

    named(method, f"{name}_")
    method.__doc__ = f"In-place form of {name}: writes zeros and ones."
    return method


def ufunc_of_two(ufunc):
    def arrays(input, other):
        return ufunc(input, other)

    return arrays


def ufunc_of_one(ufunc):
    def arrays(input):
        return ufunc(input)

    return arrays


eq = _compare("eq", np.equal)
ne = _compare("ne", np.not_equal, ("not_equal",))
lt = _compare("lt", np.less, ("less",))
le = _compare("le", np.less_equal, ("less_equal",))
gt = _compare("gt", np.greater, ("greater",))
ge = _compare("ge", np.greater_equal, ("greater_equal",))
logical_and = _compare("logical_and", np.logical_and)
logical_or = _compare("logical_or", np.logical_or)
logical_xor = _compare("logical_xor", np.logical_xor)


def _bitwise(name, ufunc):
    def arrays(input, other):
        if input.dtype.kind not in "biu":
            kernel = name.replace("bitwise_left_shift", "lshift").replace("bitwise_right_shift", "rshift")
            raise not_implemented(f"{kernel}_cpu", Tensor._from(input))
        return ufunc(input, other)

    return face(op(name, arrays, None, None, promote="arith", batch="elementwise"), name=name, inplace=True)


bitwise_and = _bitwise("bitwise_and", np.bitwise_and)
bitwise_or = _bitwise("bitwise_or", np.bitwise_or)
bitwise_xor = _bitwise("bitwise_xor", np.bitwise_xor)
bitwise_left_shift = _bitwise("bitwise_left_shift", np.left_shift)
bitwise_right_shift = _bitwise("bitwise_right_shift", np.right_shift)


def _not_arrays(input):
    if input.dtype.kind not in "biu":
        raise not_implemented("bitwise_not_cpu", Tensor._from(input))
    return np.invert(input)


bitwise_not = face(op("bitwise_not", _not_arrays, None, promote="keep", batch="leading"), name="bitwise_not", inplace=True)


def _test(name, ufunc, doc):
    return face(op(name, ufunc_of_one(ufunc), None, promote="keep", batch="leading", doc=doc), name=name)


_logical_not = op("logical_not", ufunc_of_one(np.logical_not), None, promote="keep", batch="leading")


@public()
def logical_not(input, *, out=None):
    """Whether each element is zero: a bool tensor."""
    result = _logical_not(input)
    return result if out is None else write_out(out, result)


Tensor.logical_not_ = _written(logical_not, "logical_not")


isnan = _test("isnan", np.isnan, "Whether each element is NaN.")
isinf = _test("isinf", np.isinf, "Whether each element is infinite.")
isfinite = _test("isfinite", np.isfinite, "Whether each element is finite.")
_signbit = op("signbit", ufunc_of_one(np.signbit), None, promote="keep", batch="leading")


@public()
def signbit(input, *, out=None):
    """Whether the sign bit of each element is set: a bool tensor."""
    result = _signbit(input)
    return result if out is None else write_out(out, result, exact=True)


isposinf = _test("isposinf", np.isposinf, "Whether each element is +inf.")
isneginf = _test("isneginf", np.isneginf, "Whether each element is -inf.")


_isreal = op("isreal", lambda x: np.isreal(x), None, promote="keep", batch="elementwise")
_isclose = op("isclose", lambda a, b, rtol, atol, equal_nan: np.isclose(a, b, rtol, atol, equal_nan), None, None, promote="keep",
              batch="elementwise")  # fmt: skip


@public()
def isreal(input):
    """Whether the imaginary part of each element is zero: a bool tensor."""
    return _isreal(input)


def _same_dtype(input, other):
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{dtypes.scalar_type_name(input.dtype)} did not match {dtypes.scalar_type_name(other.dtype)}")


@public()
def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |input - other| <= atol + rtol * |other|, elementwise."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("isclose", input=input, other=other)
    _same_dtype(input, other)
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    return _isclose(input, other, rtol, atol, equal_nan)


@public()
def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False) -> bool:
    """Whether all elements are close: see isclose."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("allclose", input=input, other=other)
    _same_dtype(input, other)
    if modes.levels and batching.level_of([input, other]) is not None:
        raise RuntimeError(
            "vmap over torch.allclose isn't supported yet. Please file an issue at https://github.com/pytorch/pytorch/issues if you need this "
            "feature."
        )
    return bool(np.allclose(input.array, other.array, rtol, atol, equal_nan))


@public()
def equal(input, other) -> bool:
    """Whether both tensors have the same size and elements."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("equal", input=input, other=other)
    batching.refuse_fallback("equal", input, other)
    return input.array.shape == other.array.shape and bool(np.array_equal(input.array, other.array))


# Operators


def _operator(function):
    """The function for use as an operator: NotImplemented in place of TypeError lets Python try the other operand."""

    def method(self, other):
        if isinstance(other, (Tensor, float, int, complex, np.number, np.bool_)):
            return function(self, other)
        return NotImplemented

    method.__name__ = function.__name__
    return method


def _reflected(function):
    def method(self, other):
        if isinstance(other, (Tensor, float, int, complex, np.number, np.bool_)):
            return function(other, self)
        return NotImplemented

    return method


def _inplace_operator(function):
    """`x += y` and its like: NotImplemented for a NumPy array lets Python make it `x = x + y`."""

    def method(self, other):
        return NotImplemented if isinstance(other, np.ndarray) else function(self, other)

    return method


def _rpow(self, base):
    """base ** self."""
    if isinstance(base, Tensor):
        return _pow_tensor(base, self)
    if self.array.dtype.kind in "fV" and type(base) in (int, float):
        return _number_to_the(self, base)
    t = dtypes.promote([self.array], [base])
    return _pow_tensor(Tensor._from(np.array(base, t.array_type)), self)


def _rdiv(self, other):
    return reciprocal(self) * other if self.array.dtype.kind in "fV" else _true_divide(other, self)


_divide_number = _operator(_rdiv)
for _name, _function in (
    ("__add__", _add), ("__radd__", _add), ("__sub__", _sub), ("__mul__", mul), ("__rmul__", mul),
    ("__truediv__", _true_divide), ("__eq__", eq), ("__ne__", ne), ("__lt__", lt), ("__le__", le), ("__gt__", gt), ("__ge__", ge),
):  # fmt: skip
    setattr(Tensor, _name, operator(_function))  # primitives: one Python frame per operation
_from_number = operator(_rsub)


def _reflected_sub(self, other):
    return _rsub_tensor(self, other) if isinstance(other, Tensor) else _from_number(self, other)


Tensor.__rsub__ = _reflected_sub
Tensor.__rtruediv__ = Tensor.__rdiv__ = lambda self, other: (
    reciprocal(self) * other if isinstance(other, np.ndarray) else _divide_number(self, other)
)
Tensor.__floordiv__ = _operator(floor_divide)
Tensor.__rfloordiv__ = _reflected(floor_divide)
Tensor.__mod__ = _operator(remainder)
Tensor.__rmod__ = _reflected(remainder)
Tensor.__pow__ = _operator(pow)
Tensor.__rpow__ = _operator(_rpow)
Tensor.__neg__ = neg
Tensor.__pos__ = positive
Tensor.__abs__ = abs


def _invert(self):
    if self.array.dtype.kind not in "biu":
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return bitwise_not(self)


Tensor.__invert__ = _invert
for _name, _function in (
    ("and", bitwise_and), ("or", bitwise_or), ("xor", bitwise_xor), ("lshift", bitwise_left_shift),
    ("rshift", bitwise_right_shift),
):  # fmt: skip
    setattr(Tensor, f"__{_name}__", _operator(_function))
    setattr(Tensor, f"__r{_name}__", _reflected(_function))
for _name in ("add", "sub", "mul", "pow", "and", "or", "xor", "lshift", "rshift"):
    _target = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "bitwise_left_shift",
               "rshift": "bitwise_right_shift"}.get(_name, _name)  # fmt: skip
    setattr(Tensor, f"__i{_name}__", _inplace_operator(getattr(Tensor, _target + "_")))
Tensor.__itruediv__ = _inplace_operator(Tensor.div_)
Tensor.__ifloordiv__ = _inplace_operator(Tensor.floor_divide_)
Tensor.__imod__ = _inplace_operator(Tensor.remainder_)


_isin = op("isin", lambda x, tests, assume_unique, invert: np.isin(x, tests, assume_unique=assume_unique, invert=invert), None, None,
           promote="keep", batch=batching.isin_rule)  # fmt: skip


@public(method=False)
def isin(elements, test_elements, *, assume_unique=False, invert=False, out=None):
    """Whether each element is one of the test elements: a bool tensor."""
    elements, tests = (v if isinstance(v, Tensor) else Tensor._from(np.asarray(v)) for v in (elements, test_elements))
    result = _isin(elements, tests, assume_unique, invert)
    return result if out is None else write_out(out, result, exact=True)
