"""What numbers are made of: frexp, ldexp, nextafter, gcd, lcm."""

from __future__ import annotations

import numpy as np

from .. import batching, dtypes
from ..creation import no_gradient
from ..op import binary, check_broadcast, face, op, public, twin, write_out
from ..return_types import return_type
from ..tensor import Tensor
from .cast import to
from .check import not_implemented, not_tensor
from .choose import where_zero
from .pointwise import exp2
from .shape import expand

# Mantissa and exponent


@twin(lambda exponent, like: np.ldexp(np.ones((), like.dtype), -exponent))
def _two_to_minus(exponent, like):
    return Tensor._from(np.ldexp(np.ones((), like.array.dtype), -exponent.array))


_frexp = op("frexp", lambda x: np.frexp(x), lambda g, _input, out: g * _two_to_minus(out[1], g),
            nondifferentiable=(1,), promote="keep", batch=batching.elementwise_rule)  # fmt: skip
_ldexp = binary("ldexp", lambda x, other: x * np.exp2(other),
    lambda g, _input, other, _out: g * exp2(other),
    lambda g, _input, _other, out: g * out * 0.6931471805599453,
    promote="float", public=False)  # fmt: skip
FREXP = return_type("frexp", "mantissa", "exponent")


@public()
def frexp(input, *, out=None):
    """(mantissa, exponent) with input = mantissa * 2^exponent and 0.5 <= |mantissa| < 1. Differentiable in the mantissa.

    >>> import backlight as torch
    >>> torch.frexp(torch.tensor(12.))
    torch.return_types.frexp(
    mantissa=tensor(0.7500),
    exponent=tensor(4, dtype=torch.int32))
    """
    if not input.dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    mantissa, exponent = _frexp(input)
    if out is not None:
        mantissa, exponent = write_out(out, (mantissa, exponent), exact=True)
    return FREXP(mantissa, exponent)


@public(inplace=True)
def ldexp(input, other, *, out=None):
    """input * 2^other with broadcasting. (*S), (*T) -> (*broadcast(S, T)). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("ldexp", input=input, other=other)
    return _ldexp(input, other, out)


# Neighbours

_nextafter = op("nextafter", np.nextafter,
    lambda g, input, other, _out: where_zero(input == other, g),
    lambda g, _input, _other, _out: no_gradient(g), promote="keep", batch="elementwise")  # fmt: skip


@public(inplace=True)
def nextafter(input, other, *, out=None):
    """The next floating point number after each element towards `other`. Differentiable in input."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("nextafter", input=input, other=other)
    t = dtypes.promote([input.array, other.array])
    if t.category != 2:
        raise NotImplementedError(f"\"nextafter_cpu\" not implemented for '{dtypes.scalar_type_name(t)}'")
    check_broadcast(input.array.shape, other.array.shape)
    shape = np.broadcast_shapes(input.array.shape, other.array.shape)
    result = _nextafter(*(v if v.array.shape == shape else expand(v, shape) for v in (to(input, t), to(other, t))))
    return result if out is None else write_out(out, result)


# Integers


def _integer(name, ufunc, doc):
    def arrays(input, other):
        if input.dtype.kind not in "iu":
            raise not_implemented(f"{name}_cpu", Tensor._from(input))
        return ufunc(input, other)

    return face(op(name, arrays, None, None, promote="arith", batch="elementwise", doc=doc), name=name, inplace=True)


gcd = _integer("gcd", np.gcd, "The greatest common divisor, elementwise with broadcasting: integers only.")
lcm = _integer("lcm", np.lcm, "The least common multiple, elementwise with broadcasting: integers only.")
