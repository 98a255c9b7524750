"""Elementwise operations: arithmetic, powers, exponentials, trigonometry, rounding, clamping, choosing."""

from __future__ import annotations

import builtins
import math

import numpy as np

from .. import batching, dtypes, kernels
from ..creation import no_gradient
from ..op import binary, check_broadcast, face, op, public, twin, unary, write_out
from ..tensor import Tensor
from .cast import conj, real, to
from .check import invalid_combination, not_implemented, not_tensor, scalar_name
from .choose import masked_fill, where_one, where_zero
from .gather import not_differentiable
from .shape import sum_to_size_

# Arithmetic

mul = binary("mul", np.multiply,
    lambda g, _input, other, _out: g * other,
    lambda g, input, _other, _out: g * input,
    doc="input * other with broadcasting. (*S), (*T) -> (*broadcast(S, T)). Differentiable in both.")  # fmt: skip

_add = binary("add", np.add,
    lambda g, _input, _other, _out: g,
    lambda g, _input, _other, _out: g,
    public=False)  # fmt: skip


def _check_subtract(a, b):
    kinds = [x.dtype is dtypes.bool_ if isinstance(x, Tensor) else isinstance(x, bool) for x in (a, b)]
    if all(kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead."
        )
    if any(kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead."
        )


_sub = binary("sub", np.subtract,
    lambda g, _input, _other, _out: g,
    lambda g, _input, _other, _out: -g,
    public=False, check=_check_subtract)  # fmt: skip

_add_alpha = op("add_alpha", lambda a, b, alpha: a + a.dtype.type(alpha) * b,
    lambda g, _input, _other, _out, _alpha: g,
    lambda g, _input, _other, _out, alpha: g * alpha,
    promote="arith", node="AddBackward0", batch="elementwise")  # fmt: skip
_sub_alpha = op("sub_alpha", lambda a, b, alpha: a - a.dtype.type(alpha) * b,
    lambda g, _input, _other, _out, _alpha: g,
    lambda g, _input, _other, _out, alpha: -g * alpha,
    promote="arith", node="SubBackward0", check=_check_subtract, batch="elementwise")  # fmt: skip
_rsub = binary("rsub", lambda input, other: np.subtract(other, input),
    lambda g, _input, _other, _out: -g, None,  # `other` is a number
    public=False, node="RsubBackward1", check=_check_subtract)  # fmt: skip
_rsub_tensor = binary("rsub_tensor", lambda input, other: np.subtract(other, input),
    lambda g, _input, _other, _out: -g,
    lambda g, _input, _other, _out: g,
    public=False, node="RsubBackward0", check=_check_subtract)  # fmt: skip
_rsub_alpha = op("rsub_alpha", lambda a, b, alpha: b - a.dtype.type(alpha) * a,
    lambda g, _input, _other, _out, alpha: -g * alpha,
    lambda g, _input, _other, _out, _alpha: g,
    promote="arith", node="RsubBackward0", check=_check_subtract, batch="elementwise")  # fmt: skip

_true_divide = binary("div", np.true_divide,
    lambda g, _input, other, _out: g / other,
    lambda g, input, other, _out: -g * ((input / other) / other),
    promote="float", public=False)  # fmt: skip


def _rounded(name, arrays):
    return binary(name, arrays, lambda g, _input, _other, _out: no_gradient(g), lambda g, _input, _other, _out: no_gradient(g),
                  public=False, node="DivBackward2")  # fmt: skip


def _trunc_divide(a, b):
    if a.dtype.kind in "bc":
        raise NotImplementedError(f"\"div_trunc_cpu\" not implemented for '{_scalar_type(a)}'")
    if a.dtype.kind in "iu":
        _check_zero_division(b)
        q = np.floor_divide(a, b)
        return q + ((q < 0) & (q * b != a)).astype(q.dtype)
    return np.trunc(np.true_divide(a, b)).astype(a.dtype, copy=False)


def _floor_divide(a, b):
    if a.dtype.kind in "bc":
        raise NotImplementedError(f"\"div_floor_cpu\" not implemented for '{_scalar_type(a)}'")
    if a.dtype.kind in "iu":
        _check_zero_division(b)
        return np.floor_divide(a, b)
    with np.errstate(all="ignore"):
        q = np.floor_divide(a, b)
        return np.where(b == 0, np.true_divide(a, b), q).astype(a.dtype, copy=False)


def _scalar_type(array):
    return dtypes.scalar_type_name(dtypes.from_array_type(array.dtype))


def _check_zero_division(b):
    if b.dtype.kind in "iu" and not np.all(b):
        raise RuntimeError("ZeroDivisionError")


_div_trunc = _rounded("div_trunc", _trunc_divide)
_div_floor = _rounded("div_floor", _floor_divide)
_floordiv = binary("floor_divide", _floor_divide,
    lambda _g, _input, _other, _out: not_differentiable("floor_divide"),
    lambda _g, _input, _other, _out: not_differentiable("floor_divide"),
    public=False, node="NotImplemented")  # fmt: skip


def _modulo(f, name, a, b):
    if a.dtype.kind in "cb":
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{_scalar_type(a)}'")
    _check_zero_division(b)
    return f(a, b)


# PyTorch names the nodes for a number and for a tensor as divisor apart.
_remainder_gradients = (
    lambda g, _input, _other, _out: g,
    lambda g, input, other, _out: -g * _div_floor(input, other),
)
_fmod_gradients = (
    lambda g, _input, _other, _out: g,
    lambda g, input, other, _out: -g * trunc(input / other),
)
_remainder = binary("remainder", lambda a, b: _modulo(np.mod, "remainder", a, b), *_remainder_gradients, public=False)
_remainder_tensor = binary("remainder_tensor", lambda a, b: _modulo(np.mod, "remainder", a, b), *_remainder_gradients,
                           public=False, node="RemainderBackward1")  # fmt: skip
_fmod = binary("fmod", lambda a, b: _modulo(np.fmod, "fmod", a, b), *_fmod_gradients, public=False)
_fmod_tensor = binary("fmod_tensor", lambda a, b: _modulo(np.fmod, "fmod", a, b), *_fmod_gradients, public=False,
                      node="FmodBackward1")  # fmt: skip


def _with_alpha(function, input, other, alpha, out):
    if dtypes.number_type(alpha) is None:
        raise TypeError(
            f"{function.op.name.removesuffix('_alpha')}(): argument 'alpha' must be Number, not {type(alpha).__name__}"
        )
    if isinstance(alpha, bool) and not all(
        (v.dtype if isinstance(v, Tensor) else dtypes.number_type(v)) is dtypes.bool_ for v in (input, other)
    ):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    tensors = [v.array for v in (input, other) if isinstance(v, Tensor)]
    t = dtypes.promote(tensors, [v for v in (input, other) if not isinstance(v, Tensor)])
    if t.category < 2 and isinstance(alpha, float):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if t.category < 3 and isinstance(alpha, complex):
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    input, other = (v if isinstance(v, Tensor) else Tensor._from(np.array(v, t.array_type)) for v in (input, other))
    result = function(input, other, alpha)
    return result if out is None else write_out(out, result)


@public(inplace=True)
def add(input, other, *, alpha=1, out=None):
    """input + alpha * other with broadcasting. (*S), (*T) -> (*broadcast(S, T)). Differentiable in both.

    >>> import backlight as torch
    >>> torch.add(torch.tensor([1., 2.]), torch.tensor([10., 20.]), alpha=2)
    tensor([21., 42.])
    """
    if alpha != 1 or alpha is True:
        return _with_alpha(_add_alpha, input, other, alpha, out)
    return _add(input, other, out)


@public(inplace=True, aliases=("subtract",))
def sub(input, other, *, alpha=1, out=None):
    """input - alpha * other with broadcasting. (*S), (*T) -> (*broadcast(S, T)). Differentiable in both."""
    if alpha != 1 or alpha is True:
        return _with_alpha(_sub_alpha, input, other, alpha, out)
    return _sub(input, other, out)


@public()
def rsub(input, other, *, alpha=1):
    """other - alpha * input. (*S), (*T) -> (*broadcast(S, T)). Differentiable in both."""
    if alpha != 1:
        return _with_alpha(_rsub_alpha, input, other, alpha, None)
    if not isinstance(input, Tensor):
        raise invalid_combination("rsub", input, other)
    return (_rsub_tensor if isinstance(other, Tensor) else _rsub)(input, other)


@public(inplace=True, aliases=("divide",))
def div(input, other, *, rounding_mode=None, out=None):
    """input / other; rounding_mode "trunc" or "floor" rounds the quotient. Differentiable in both (zero if rounded).

    (*S), (*T) -> (*broadcast(S, T)); integers become floating point unless rounded.
    """
    if rounding_mode is None:
        return _true_divide(input, other, out)
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{rounding_mode}'")
    return (_div_trunc if rounding_mode == "trunc" else _div_floor)(input, other, out)


@public(inplace=True)
def true_divide(input, other, *, out=None):
    """input / other, always as floating point. Differentiable in both."""
    return _true_divide(input, other, out)


@public(inplace=True)
def floor_divide(input, other, *, out=None):
    """The quotient rounded towards minus infinity. Not differentiable: see div(rounding_mode="floor")."""
    return _floordiv(input, other, out)


@public(inplace=True)
def remainder(input, other, *, out=None):
    """Python's modulus: the result has the sign of `other`. Differentiable in both."""
    return (_remainder_tensor if isinstance(other, Tensor) else _remainder)(input, other, out)


@public(inplace=True)
def fmod(input, other, *, out=None):
    """C's modulus: the result has the sign of `input`. Differentiable in both."""
    if not isinstance(input, Tensor):
        raise invalid_combination("fmod", input, other)
    return (_fmod_tensor if isinstance(other, Tensor) else _fmod)(input, other, out)


face(mul, name="multiply", inplace=True)

# Powers. PyTorch treats a number as exponent apart: no logarithm is needed, and x ** 0 has gradient zero everywhere.


def _pow_arrays(a, b):
    if a.dtype == bool:
        raise NotImplementedError("\"pow\" not implemented for 'Bool'")
    if a.dtype.kind == "i" and np.any(b < 0):  # 1 / a ** -b, rounded to zero
        with np.errstate(all="ignore"):
            unit = np.where(b % 2, a, a * a)
            return np.where(b < 0, np.where(np.abs(a) == 1, unit, 0), np.power(a, np.maximum(b, 0))).astype(a.dtype)
    return np.power(a, b)


@twin(lambda x, out: x if x.dtype == out.dtype else x.astype(out.dtype))
def like(x, out):
    """x in the type of out."""
    return to(x, out.dtype)


_pow_tensor = binary("pow_tensor", _pow_arrays,
    lambda g, input, exponent, _out: where_zero(exponent == 0, g * (exponent * input ** (exponent - 1))),
    lambda g, input, exponent, out: g * where_zero((input == 0) & (real(exponent) >= 0), out * log(like(input, out))),
    public=False, node="PowBackward1")  # fmt: skip


_power = kernels.fused("power", np.power, 1)


def _pow_number_arrays(x, exponent):
    if exponent == 2:
        return np.multiply(x, x)
    if exponent == 0.5:
        return np.sqrt(x)
    if exponent == -1:
        return np.reciprocal(x)
    if exponent == 3:
        return x * x * x
    if exponent in (-0.5, -2):
        return np.reciprocal(np.sqrt(x) if exponent == -0.5 else x * x)
    if x.dtype.char == "f" and type(exponent) in (int, float):  # a scalar of float64 would make the result one, too
        return _power(x, exponent)
    return np.power(x, exponent)


@twin(lambda x, exponent: x * x.dtype.type(2) if exponent == 2 else exponent * _pow_number_arrays(x, exponent - 1))
def number_power_slope(x, exponent):
    """The derivative of x ** exponent."""
    return exponent * x ** (exponent - 1)


_pow_number = op("pow_number", _pow_number_arrays,
    lambda g, input, _out, exponent: no_gradient(g) if exponent == 0 else g * number_power_slope(input, exponent),
    node="PowBackward0", batch="elementwise")  # fmt: skip


_rpow = op("pow_of_number", lambda x, base: np.power(x.dtype.type(base), x),
    lambda g, input, out, base: g * power_slope(input, out, base), node="PowBackward2", batch="elementwise")  # fmt: skip


@twin(lambda x, out, base: out * np.log(x.dtype.type(base)) if base else np.where(x < 0, out * -np.inf, np.zeros((), x.dtype)))
def power_slope(x, out, base):
    """The derivative of base ** x in x."""
    return out * (math.log(base) if base > 0 else math.nan) if base else masked_fill(out * -math.inf, x >= 0, 0)


@public(inplace=True)
def pow(input, exponent, *, out=None):
    """input ** exponent with broadcasting. (*S), (*T) -> (*broadcast(S, T)). Differentiable in both."""
    if isinstance(exponent, Tensor):
        return _pow_tensor(input, exponent, out)
    t = dtypes.number_type(exponent)
    if t is None or not isinstance(input, Tensor):
        raise invalid_combination("pow", input, exponent)
    if input.array.dtype.kind == "c" or (input.array.dtype.kind in "fV" and t.category < 3):
        result = _pow_number(input, exponent)
    else:
        if t.category == 1 and exponent < 0 and input.dtype.category == 1:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        result = _pow_tensor(input, exponent)
    return result if out is None else write_out(out, result)


# Signs, squares, roots


def _neg_arrays(x):
    if x.dtype == bool:
        raise RuntimeError(
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
            "`logical_not()` operator instead."
        )
    return np.negative(x)


neg = unary("neg", _neg_arrays, lambda g, _input, _out: -g, promote="arith", doc="-input. (*S) -> (*S). Differentiable.")
face(neg, name="negative", inplace=True)


def _abs_arrays(x):
    if x.dtype == bool:
        raise NotImplementedError("\"abs_cpu\" not implemented for 'Bool'")
    return np.absolute(x)


abs = unary("abs", _abs_arrays, lambda g, input, _out: g * sgn(input), promote="arith", holomorphic=False,
            doc="The absolute value; of complex numbers the modulus. (*S) -> (*S). Differentiable (0 at 0).")  # fmt: skip
face(abs, name="absolute", inplace=True)


def _sign(x):
    """1, 0 or -1; 0 for NaN, where np.sign gives NaN."""
    if x.dtype.kind in "biu":
        return np.sign(x) if x.dtype != bool else x.copy()
    return np.subtract((x > 0).view(np.int8), (x < 0).view(np.int8), dtype=x.dtype)


def _sign_arrays(x):
    if x.dtype.kind == "c":
        raise NotImplementedError(
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead."
        )
    return _sign(x)


sign = unary("sign", _sign_arrays, lambda g, _input, _out: no_gradient(g), promote="arith",
             doc="-1, 0 or 1. (*S) -> (*S). Its gradient is zero.")  # fmt: skip


def _sgn(x):
    if x.dtype.kind != "c":
        return _sign(x)
    size = np.abs(x)
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size)).astype(x.dtype)


_sgn_complex = op("sgn", _sgn,
    lambda g, input, out: (g - real(g * conj(out)) * out) / where_one(abs(input)), holomorphic=False, batch="elementwise")  # fmt: skip


# It saves its input, as PyTorch's does, although the gradient is zero whatever it is: writing to the input is an error.
_sgn_real = op(
    "sgn_real", _sgn, lambda g, input, out: constant(g, input, out), promote="arith", node="SgnBackward0", batch="elementwise"
)


@twin(lambda g, _input, _out: np.zeros_like(g))
def constant(g, _input, _out):
    """The gradient of a step function: zeros."""
    return no_gradient(g)


@public(inplace=True)
def sgn(input, *, out=None):
    """The sign of real numbers; complex numbers divided by their modulus (0 at 0). Differentiable."""
    result = _sgn_complex(input) if input.dtype.is_complex else _sgn_real(input)
    return result if out is None else write_out(out, result)


sgn.arrays = _sgn


@public()
def positive(input):
    """The input itself. RuntimeError for bool tensors."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


square = unary("square", lambda x: np.multiply(x, x) if x.dtype != bool else x.astype(np.int64), lambda g, input, _out: g * (2 * input), promote="arith", node="PowBackward0",
               doc="input ** 2. (*S) -> (*S). Differentiable.")  # fmt: skip
sqrt = unary("sqrt", np.sqrt, lambda g, _input, out: g / (2 * out), doc="The square root. (*S) -> (*S). Differentiable.")
rsqrt = unary("rsqrt", lambda x: 1 / np.sqrt(x), lambda g, _input, out: -0.5 * g * out**3,
              doc="1 / sqrt(input). (*S) -> (*S). Differentiable.")  # fmt: skip
reciprocal = unary("reciprocal", lambda x: 1 / x, lambda g, _input, out: -g * (out * out),
                   doc="1 / input. (*S) -> (*S). Differentiable.")  # fmt: skip

# Exponentials and logarithms

exp = unary("exp", np.exp, lambda g, _input, out: g * out, doc="e ** input. (*S) -> (*S). Differentiable.")
exp2 = unary("exp2", np.exp2, lambda g, _input, out: g * out * 0.6931471805599453, doc="2 ** input. Differentiable.")
expm1 = unary("expm1", np.expm1, lambda g, _input, out: g * (out + 1), doc="exp(input) - 1, exact near 0. Differentiable.")
log = unary("log", np.log, lambda g, input, _out: g / input, doc="The natural logarithm. (*S) -> (*S). Differentiable.")
log2 = unary("log2", np.log2, lambda g, input, _out: g / (input * 0.6931471805599453),
             doc="The logarithm to base 2. Differentiable.")  # fmt: skip
log10 = unary("log10", np.log10, lambda g, input, _out: g / (input * 2.3025850929940456),
              doc="The logarithm to base 10. Differentiable.")  # fmt: skip
log1p = unary(
    "log1p",
    np.log1p,
    lambda g, input, _out: g / (input + 1),
    node="Log1PBackward0",
    doc="log(1 + input), exact near 0. Differentiable.",
)

# Trigonometry

sin = unary("sin", np.sin, lambda g, input, _out: g * cos(input), doc="The sine (radians). Differentiable.")
cos = unary("cos", np.cos, lambda g, input, _out: -(g * sin(input)), doc="The cosine (radians). Differentiable.")
tan = unary("tan", np.tan, lambda g, _input, out: g * (1 + out * out), doc="The tangent (radians). Differentiable.")
asin = unary("asin", np.arcsin, lambda g, input, _out: g * rsqrt(1 - input * input), doc="The inverse sine. Differentiable.")
acos = unary("acos", np.arccos, lambda g, input, _out: -g * rsqrt(1 - input * input), doc="The inverse cosine.")
atan = unary("atan", np.arctan, lambda g, input, _out: g / (input * input + 1), doc="The inverse tangent. Differentiable.")
sinh = unary("sinh", np.sinh, lambda g, input, _out: g * cosh(input), doc="The hyperbolic sine. Differentiable.")
cosh = unary("cosh", np.cosh, lambda g, input, _out: g * sinh(input), doc="The hyperbolic cosine. Differentiable.")
tanh = unary("tanh", np.tanh, lambda g, _input, out: g * (1 - out * out), doc="The hyperbolic tangent. Differentiable.")
asinh = unary("asinh", np.arcsinh, lambda g, input, _out: g * rsqrt(input * input + 1), doc="The inverse of sinh.")
acosh = unary("acosh", np.arccosh, lambda g, input, _out: g * rsqrt(input * input - 1), doc="The inverse of cosh.")
atanh = unary("atanh", np.arctanh, lambda g, input, _out: g / (1 - input * input), doc="The inverse of tanh.")
_atan2 = binary("atan2", np.arctan2,
    lambda g, input, other, _out: g * other / where_one(input * input + other * other),
    lambda g, input, other, _out: -g * input / where_one(input * input + other * other),
    promote="float", public=False)  # fmt: skip


@public(inplace=True, aliases=("arctan2",))
def atan2(input, other, *, out=None):
    """The angle of the point (other, input), in radians. Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("atan2", input=input, other=other)
    for x in (input, other):
        if x.dtype.is_complex:
            raise not_implemented("atan2_cpu", x)
    return _atan2(input, other, out)


for _name, _function in (("arcsin", asin), ("arccos", acos), ("arctan", atan)):
    face(_function, name=_name, inplace=True)


def _sigmoid(x):
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    y = np.exp(-x)
    y += 1
    return np.reciprocal(y)


sigmoid = unary("sigmoid", _sigmoid, lambda g, _input, out: g * (out * (1 - out)),
                doc="1 / (1 + exp(-input)). (*S) -> (*S). Differentiable.")  # fmt: skip


# Rounding: the gradient exists and is zero


def _no_complex(name, ufunc):
    def arrays(x):
        if x.dtype == bool:
            raise NotImplementedError(f"\"{name}_vml_cpu\" not implemented for 'Bool'")
        if x.dtype.kind == "c":
            raise NotImplementedError(f"{name} is not supported for complex inputs")
        return ufunc(x)

    return arrays


def _rounding(name, ufunc, doc):
    return unary(
        name,
        _no_complex(name, ufunc),
        lambda g, _input, _out: no_gradient(g),
        promote="arith",
        doc=f"{doc} Its gradient is zero.",
    )


ceil = _rounding("ceil", np.ceil, "Rounds up.")
floor = _rounding("floor", np.floor, "Rounds down.")
trunc = _rounding("trunc", np.trunc, "Rounds to zero.")
face(trunc, name="fix", inplace=True)
frac = unary("frac", lambda x: x - np.trunc(x), lambda g, _input, _out: g, promote="arith", doc="input - trunc(input).")


def _round_arrays(x, decimals):
    if x.dtype.kind in "bc":
        raise NotImplementedError(f"\"round_vml_cpu\" not implemented for '{_scalar_type(x)}'")
    if x.dtype.kind in "iu":
        return x.copy()
    if not decimals:
        return np.rint(x)
    scale = x.dtype.type(10.0 ** builtins.abs(decimals))
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


_round = op("round", _round_arrays, lambda g, _input, _out, _decimals: no_gradient(g), promote="arith", batch="elementwise")
_round_decimals = op("round_decimals", _round_arrays, lambda g, _input, _out, _decimals: no_gradient(g), promote="arith",
                     node="RoundBackward1", batch="elementwise")  # fmt: skip


@public(inplace=True)
def round(input, *, decimals=0, out=None):
    """Rounds half to even, to `decimals` places. Its gradient is zero."""
    result = _round_decimals(input, decimals) if decimals else _round(input, 0)
    return result if out is None else write_out(out, result)


# Combinations


def _lerp_arrays(a, b, weight):
    # From the nearer end, so that the ends are met exactly.
    near = a + weight * (b - a)
    return np.asarray(np.where(np.abs(weight) < 0.5, near, b - (b - a) * (1 - weight)), a.dtype)


_lerp = op("lerp", _lerp_arrays,
    lambda g, _input, _end, _out, weight: g * (1 - weight),
    lambda g, _input, _end, _out, weight: g * weight,
    promote="arith", node="LerpBackward0", batch="elementwise")  # fmt: skip
_lerp_tensor = op("lerp_tensor", _lerp_arrays,
    lambda g, input_shape, _end, weight, _out: sum_to_size_(g * (1 - conj(weight)), input_shape),
    lambda g, _input, end_shape, weight, _out: sum_to_size_(g * conj(weight), end_shape),
    lambda g, input, end, weight_shape, _out: sum_to_size_(g * conj(end - input), weight_shape),
    node="LerpBackward1", holomorphic=False, batch="elementwise")  # fmt: skip


@public(inplace=True)
def lerp(input, end, weight, *, out=None):
    """input + weight * (end - input), weight a number or a tensor. Differentiable in all."""
    if input.dtype is not end.dtype:
        raise RuntimeError(f"expected dtype {scalar_name(input)} for `end` but got dtype {scalar_name(end)}")
    if not isinstance(weight, Tensor):
        result = _lerp(input, end, weight)
    else:
        if weight.dtype is not input.dtype and weight.array.ndim:
            raise RuntimeError(f"expected dtype {scalar_name(input)} for `weight` but got dtype {scalar_name(weight)}")
        result = _lerp_tensor(input, end, to(weight, input.dtype))
    return result if out is None else write_out(out, result, exact=isinstance(weight, Tensor))


def _times(x, value):
    return x if value == 1 else x * x.dtype.type(value)


_addcmul = op("addcmul", lambda a, b, c, value: a + _times(b * c, value),
    lambda g, input_shape, _tensor1, _tensor2, _out, _value: sum_to_size_(g, input_shape),
    lambda g, _input, tensor1_shape, tensor2, _out, value: sum_to_size_(g * tensor2 * value, tensor1_shape),
    lambda g, _input, tensor1, tensor2_shape, _out, value: sum_to_size_(g * tensor1 * value, tensor2_shape),
    batch=batching.elementwise_rule)  # fmt: skip
_addcdiv = op("addcdiv", lambda a, b, c, value: a + _times(b / c, value),
    lambda g, input_shape, _tensor1, _tensor2, _out, _value: sum_to_size_(g, input_shape),
    lambda g, _input, tensor1_shape, tensor2, _out, value: sum_to_size_(g * value / tensor2, tensor1_shape),
    lambda g, _input, tensor1, tensor2, _out, value:
        sum_to_size_(-g * (value * (tensor1 / tensor2) / tensor2), tensor2.shape), batch=batching.elementwise_rule)  # fmt: skip


def _combined(function, input, tensor1, tensor2, value, out):
    tensors = (input, tensor1, tensor2)
    if not builtins.all(isinstance(v, Tensor) for v in tensors):
        raise invalid_combination(function.op.name, *tensors)
    t = dtypes.promote([v.array for v in tensors])
    if t.category < 2 and dtypes.number_type(value) is not None and dtypes.number_type(value).category > t.category:
        raise RuntimeError(f"value cannot be converted to type {dtypes.scalar_type_name(t).lower()} without overflow")
    for a, b in ((tensor1, tensor2), (input, tensor1), (input, tensor2)):
        check_broadcast(a.array.shape, b.array.shape)
    if isinstance(value, Tensor):
        value = value.item()
    result = function(*(v if v.dtype is t else to(v, t) for v in tensors), value)
    return result if out is None else write_out(out, result)


@public(inplace=True)
def addcmul(input, tensor1, tensor2, *, value=1, out=None):
    """input + value * tensor1 * tensor2. Differentiable in all."""
    return _combined(_addcmul, input, tensor1, tensor2, value, out)


@public(inplace=True)
def addcdiv(input, tensor1, tensor2, *, value=1, out=None):
    """input + value * tensor1 / tensor2. Differentiable in all. RuntimeError for integers."""
    if tensor1.array.dtype.kind in "biu" and tensor2.array.dtype.kind in "biu":
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a true "
            "division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value * "
            "torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / tensor2) "
            "for float inputs. The future addcdiv behavior is just the latter implementation: (input + value * tensor1 / "
            "tensor2), for all dtypes."
        )
    return _combined(_addcdiv, input, tensor1, tensor2, value, out)


hypot = binary("hypot", np.hypot,
    lambda g, input, _other, out: g * (input / out),
    lambda g, _input, other, out: g * (other / out),
    doc="sqrt(input^2 + other^2) without overflow. Differentiable in both.")  # fmt: skip


def _logaddexp_arrays(a, b):
    if a.dtype.kind != "c":
        return np.logaddexp(a, b)
    swap = a.real < b.real
    low, high = np.where(swap, a, b), np.where(swap, b, a)
    return high + np.log1p(np.exp(low - high))


logaddexp = binary("logaddexp", _logaddexp_arrays,
    lambda g, input, other, _out: g / (1 + exp(other - input)),
    lambda g, input, other, _out: g / (1 + exp(input - other)),
    inplace=False, doc="log(exp(input) + exp(other)) without overflow. Differentiable in both.")  # fmt: skip
logaddexp2 = binary("logaddexp2", np.logaddexp2,
    lambda g, input, other, _out: g / (1 + exp2(other - input)),
    lambda g, input, other, _out: g / (1 + exp2(input - other)),
    inplace=False, doc="log2(2^input + 2^other) without overflow. Differentiable in both.")  # fmt: skip
deg2rad = unary("deg2rad", lambda x: x * x.dtype.type(0.017453292519943295), lambda g, _input, _out: g * 0.017453292519943295,
                node="Deg2RadBackward0", doc="Degrees as radians. Differentiable.")  # fmt: skip
rad2deg = unary("rad2deg", lambda x: x * x.dtype.type(57.29577951308232), lambda g, _input, _out: g * 57.29577951308232,
                node="Rad2DegBackward0", doc="Radians as degrees. Differentiable.")  # fmt: skip


@public(inplace=True)
def float_power(input, exponent, *, out=None):
    """input ** exponent computed in float64 (or complex128). Differentiable in both."""
    if builtins.any(v.dtype.is_complex if isinstance(v, Tensor) else isinstance(v, complex) for v in (input, exponent)):
        t = dtypes.complex128
    else:
        t = dtypes.float64
    if not isinstance(input, Tensor) and (not isinstance(exponent, Tensor) or dtypes.number_type(input) is None):
        raise invalid_combination("float_power", input, exponent)
    base, power = (to(v, t) if isinstance(v, Tensor) else v for v in (input, exponent))
    if not isinstance(base, Tensor):
        base = Tensor._from(np.array(base, t.array_type))
    result = pow(base, power)
    return result if out is None else write_out(out, result, exact=True)
