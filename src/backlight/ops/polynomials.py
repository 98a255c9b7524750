"""Orthogonal polynomials: Chebyshev's four kinds (and shifted), Hermite's two, Laguerre's, Legendre's.

Each follows a recurrence of three terms (DLMF 18.9.1) in its degree n, which is an integer at each element. The Chebyshev
polynomials of high degree between -1 and 1 are quotients of trigonometric functions (DLMF 18.5.1-4).
"""

from __future__ import annotations

import numpy as np

from ..op import face, op
from ..tensor import Tensor
from .bessel import only_wide
from .check import not_tensor

HIGH = 8  # from this degree on by trigonometric functions
MOST_HERMITE = {np.dtype(np.float32): 128, np.dtype(np.float64): 512}


def _recurrence(x, n, first, step):
    """The polynomial of degree n at x, from p_0 = 1, p_1 = first(x), p_(k+1) = step(k, x, p_k, p_(k-1)); 0 for n < 0."""
    before, now = np.ones_like(x), first(x)
    result = np.where(n < 0, 0, np.where(n == 0, before, now))
    for k in range(1, int(n.max(initial=0))):
        before, now = now, step(k, x, now, before)
        result[n == k + 1] = now[n == k + 1]
    return result


def _trigonometric(kind, x, n):
    """Chebyshev's polynomials inside (-1, 1), from the angle whose cosine is x."""
    angle = np.arccos(x)
    if kind == "t":
        return np.cos(n * angle)
    if kind == "u":
        return np.sin((n + 1) * angle) / np.sin(angle)
    if kind == "v":
        return np.cos((n + 0.5) * angle) / np.cos(angle / 2)
    return np.sin((n + 0.5) * angle) / np.sin(angle / 2)


def _at_the_ends(kind, right, n):
    """Chebyshev's polynomials at 1 (where `right`) and -1."""
    sign = np.where(n % 2 == 0, 1, -1)
    at_one, at_minus_one = {"t": (1, sign), "u": (n + 1, sign * (n + 1)), "v": (1, sign * (2 * n + 1)), "w": (2 * n + 1, sign)}[
        kind
    ]
    return np.where(right, at_one, at_minus_one)


CHEBYSHEV_FIRST = {"t": lambda x: x, "u": lambda x: 2 * x, "v": lambda x: 2 * x - 1, "w": lambda x: 2 * x + 1}


def _chebyshev(kind, shifted):
    def values(x, n):
        x = 2 * x - 1 if shifted else x
        ends = np.abs(x) == 1
        direct = (n > HIGH) & (np.abs(x) < 1)
        other = ~(ends | direct)
        result = np.where(n < 0, 0, _at_the_ends(kind, x > 0, n).astype(x.dtype))
        result[direct] = _trigonometric(kind, x[direct], n[direct])
        result[other] = _recurrence(x[other], n[other], CHEBYSHEV_FIRST[kind], lambda _k, y, now, before: 2 * y * now - before)
        return result

    return values


def _hermite(first, factor):
    def values(x, n):
        most = MOST_HERMITE[x.dtype]
        result = _recurrence(x, np.minimum(n, most), first, lambda k, y, now, before: factor * (y * now - k * before))
        return np.where(n > most, np.nan, result)

    return values


def _laguerre(x, n):
    return _recurrence(x, n, lambda y: 1 - y, lambda k, y, now, before: ((2 * k + 1 - y) * now - k * before) / (k + 1))


def _legendre(x, n):
    return _recurrence(x, n, lambda y: y, lambda k, y, now, before: ((2 * k + 1) * y * now - k * before) / (k + 1))


def _declare(name, values, words):
    def arrays(x, n):
        x, n = np.broadcast_arrays(x, np.trunc(n).astype(np.int64))
        shape = x.shape
        return values(np.array(x).reshape(-1), np.array(n).reshape(-1)).reshape(shape).astype(x.dtype, copy=False)

    def check(*inputs):
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        if not tensors:
            raise not_tensor(f"special_{name}", input=inputs[0])
        only_wide(f"{name}_cpu")(*tensors)

    function = op(f"special_{name}", arrays, None, None, promote="float", check=check, batch="elementwise",
                  doc=f"{words} of degree n at input. (*S), (*T) -> broadcast. No gradient.")  # fmt: skip
    face(function, name=name, module="special", method=False)


for _kind, _order in (("t", "first"), ("u", "second"), ("v", "third"), ("w", "fourth")):
    _declare(f"chebyshev_polynomial_{_kind}", _chebyshev(_kind, False), f"Chebyshev's polynomial of the {_order} kind")
    _declare(f"shifted_chebyshev_polynomial_{_kind}", _chebyshev(_kind, True),
             f"Chebyshev's polynomial of the {_order} kind, shifted from [-1, 1] to [0, 1],")  # fmt: skip
_declare("hermite_polynomial_h", _hermite(lambda x: 2 * x, 2), "The physicist's Hermite polynomial")
_declare("hermite_polynomial_he", _hermite(lambda x: x, 1), "The probabilist's Hermite polynomial")
_declare("laguerre_polynomial_l", _laguerre, "Laguerre's polynomial")
_declare("legendre_polynomial_p", _legendre, "Legendre's polynomial")
