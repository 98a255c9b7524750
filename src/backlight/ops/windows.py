"""Window functions: those of signal.windows, and hann_window and its relatives as PyTorch has them since long."""

from __future__ import annotations

import numpy as np

from .. import dtypes
from ..creation import _finish
from ..op import public
from ..tensor import Tensor
from .bessel import _i0_arrays

# signal.windows: `sym` windows are symmetric; the others have the period M, which is a symmetric one without its last element


def _points(M, sym):
    """0, 1, ..., M - 1, and the length of the interval that they divide."""
    return np.arange(M, dtype=np.float64), max(M - 1 if sym else M, 1)


def _window(name, doc):
    """Declares signal.windows.`name` from a function (M, sym, *parameters) -> array; checks what PyTorch checks."""

    def declare(values):
        defaults = values.__kwdefaults__ or {}

        def function(M, *, sym=True, dtype=None, layout=dtypes.strided, device=None, requires_grad=False, **given):
            for parameter in given:
                if parameter not in values.__code__.co_varnames[2 : 2 + values.__code__.co_kwonlyargcount]:
                    raise TypeError(f"{name}() got an unexpected keyword argument '{parameter}'")
            t = dtypes.get_default_dtype() if dtype is None else dtype
            shown = "general_cosine" if name in ("hann", "hamming", "nuttall", "general_hamming") else name
            if isinstance(M, bool) or not isinstance(M, int):
                raise TypeError(f"{name}(): argument 'M' (position 1) must be int, not {type(M).__name__}")
            if M < 0:
                raise ValueError(f"{shown} requires non-negative window length, got M={M}")
            if layout is not dtypes.strided:
                raise ValueError(f"{shown} is implemented for strided tensors only, got: {layout}")
            if t not in (dtypes.float32, dtypes.float64):
                raise ValueError(f"{shown} expects float32 or float64 dtypes, got: {t}")
            if "a" in values.__code__.co_varnames[2:3] and "a" not in given:
                raise TypeError(f"{name}() missing 1 required keyword-only argument: 'a'")
            array = values(M, sym, **{**defaults, **given})
            array = array if M > 1 else np.ones(M)
            return _finish(array.astype(t.array_type), None, device, requires_grad)

        function.__name__, function.__doc__ = name, doc
        return public(method=False, module="signal.windows")(function)

    return declare


def _cosines(M, sym, coefficients):
    n, length = _points(M, sym)
    return sum((-1) ** i * c * np.cos(2 * np.pi * i * n / length) for i, c in enumerate(coefficients))


@_window("general_cosine", "The sum of (-1)^i a[i] cos(2 pi i n / (M - 1)): most windows are one of these. -> (M).")
def _general_cosine(M, sym, *, a):
    if not isinstance(a, (list, tuple)):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _cosines(M, sym, a)


@_window("general_hamming", "alpha - (1 - alpha) cos(2 pi n / (M - 1)). -> (M).")
def _general_hamming(M, sym, *, alpha=0.54):
    return _cosines(M, sym, (alpha, 1 - alpha))


@_window("hamming", "Hamming's window, 0.54 - 0.46 cos(2 pi n / (M - 1)). -> (M).")
def _hamming(M, sym):
    return _cosines(M, sym, (0.54, 0.46))


@_window("hann", "Hann's window, 0.5 - 0.5 cos(2 pi n / (M - 1)). -> (M).")
def _hann(M, sym):
    return _cosines(M, sym, (0.5, 0.5))


@_window("blackman", "Blackman's window, 0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1)). -> (M).")
def _blackman(M, sym):
    return _cosines(M, sym, (0.42, 0.5, 0.08))


@_window("nuttall", "Nuttall's window with minimal side lobes, four cosine terms. -> (M).")
def _nuttall(M, sym):
    return _cosines(M, sym, (0.3635819, 0.4891775, 0.1365995, 0.0106411))


@_window("bartlett", "Bartlett's window, a triangle from 0 over 1 to 0. -> (M).")
def _bartlett(M, sym):
    n, length = _points(M, sym)
    return 1 - np.abs(2 * n / length - 1)


@_window("cosine", "Half a period of a sine. -> (M).")
def _cosine(M, sym):
    n, _length = _points(M, sym)
    return np.sin(np.pi * (n + 0.5) / (M if sym else M + 1))


@_window("exponential", "exp(-|n - center| / tau). -> (M).")
def _exponential(M, sym, *, center=None, tau=1.0):
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    n, length = _points(M, sym)
    return np.exp(-np.abs(n - (length / 2 if center is None else center)) / tau)


@_window("gaussian", "exp(-(n - center)^2 / (2 std^2)). -> (M).")
def _gaussian(M, sym, *, std=1.0):
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    n, length = _points(M, sym)
    return np.exp(-(((n - length / 2) / std) ** 2) / 2)


def _kaisers(n, length, beta):
    return _i0_arrays(beta * np.sqrt(np.maximum(1 - (2 * n / length - 1) ** 2, 0))) / _i0_arrays(np.asarray(float(beta)))


@_window("kaiser", "Kaiser's window, I0(beta sqrt(1 - (2 n / (M - 1) - 1)^2)) / I0(beta). -> (M).")
def _kaiser(M, sym, *, beta=12.0):
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _kaisers(*_points(M, sym), beta)


# The older functions


def _older(name, formula, parameters, doc):
    def function(window_length, periodic=True, *given, dtype=None, layout=None, device=None, pin_memory=False,
                 requires_grad=False, **named):  # fmt: skip
        if isinstance(window_length, Tensor) or not isinstance(window_length, int):
            raise TypeError(f"{name}(): argument 'window_length' (position 1) must be int, not {type(window_length).__name__}")
        values = {**parameters, **dict(zip(parameters, given, strict=False)), **named}
        if len(given) > len(parameters) or set(values) != set(parameters):
            raise TypeError(f"{name}() received an invalid combination of arguments")
        t = dtypes.get_default_dtype() if dtype is None else dtype
        if t.is_complex:
            raise NotImplementedError(f"\"arange_cpu\" not implemented for '{dtypes.scalar_type_name(t)}'")
        if t.category != 2:
            described = f"TensorOptions(dtype={_CPP.get(t.name, t.name)}, device=cpu, layout=Strided (default), " \
                        "requires_grad=false (default), pinned_memory=false, memory_format=(nullopt))"  # fmt: skip
            raise RuntimeError(f"{name} expects floating point dtypes, got: {described}")
        if layout is not None and layout is not dtypes.strided:
            raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
        if window_length < 0:
            raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
        n, length = _points(window_length, not periodic)
        array = formula(n, length, **values) if window_length > 1 else np.ones(window_length)
        return _finish(array.astype(t.array_type), None, device, requires_grad, None, layout, pin_memory)

    function.__name__, function.__doc__ = (
        name,
        f"{doc} -> (window_length). `periodic` leaves out the last element of a symmetric one.",
    )
    public(method=False)(function)


_CPP = {"int64": "long int", "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char"}


def _two_cosines(n, length, alpha, beta):
    return alpha - beta * np.cos(2 * np.pi * n / length)


def _blackmans(n, length):
    return 0.42 - 0.5 * np.cos(2 * np.pi * n / length) + 0.08 * np.cos(4 * np.pi * n / length)


_older("hann_window", lambda n, length: _two_cosines(n, length, 0.5, 0.5), {}, "Hann's window.")
_older("hamming_window", _two_cosines, {"alpha": 0.54, "beta": 0.46}, "Hamming's window, alpha - beta cos(2 pi n / N).")
_older("blackman_window", _blackmans, {}, "Blackman's window.")
_older("bartlett_window", lambda n, length: 1 - np.abs(2 * n / length - 1), {}, "Bartlett's window, a triangle.")
_older("kaiser_window", _kaisers, {"beta": 12.0}, "Kaiser's window.")
