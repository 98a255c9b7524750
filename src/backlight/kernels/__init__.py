"""Compiled loops for large arrays: one pass over memory where NumPy takes several, on all threads.

NumPy runs everything; a kernel takes over where an array is large enough that it pays (the sizes below, from
`python -m benchmarks`). Numba compiles a kernel when it is first needed and keeps it on disk, so a program compiles what it
uses, once. Nothing here is imported before: this file only holds the sizes and finds the rest.

    compiling.py    Numba's compiler, and the cache on disk
    threads.py      the threads that share a kernel's work
    scalar.py       exp, log, tanh, erf, ... of one number
    elementwise.py  elementwise operations and their gradients, made from the operations' own formulas
    rows.py, channels.py, optim.py, ...    kernels that are written by hand, each with its NumPy twin in ops/ or optim/

`BACKLIGHT_KERNELS=numpy` in the environment switches all of it off, `BACKLIGHT_KERNELS=always` uses kernels for arrays of
any size, which is for testing them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

NEVER = sys.maxsize
CHOICE = os.environ.get("BACKLIGHT_KERNELS", "")
if CHOICE not in ("", "numpy", "always"):
    raise ImportError(f"BACKLIGHT_KERNELS is {CHOICE!r}: expected 'numpy', 'always', or nothing")
COMPILES = importlib.util.find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
ENABLED = CHOICE != "numpy" and COMPILES


def _from(size: int) -> int:
    return (1 if CHOICE == "always" else size) if ENABLED else NEVER


# From how many elements on a kernel is faster. Where NumPy takes one vectorised pass, threads alone have to pay for
# themselves; where it takes several, or one that isn't vectorised, a kernel pays soon.
ONE_PASS = _from(1 << 19)
FUSED = _from(1 << 13)
ROWS = _from(64)  # rows that an index names
CHANNEL = 16  # numbers of one channel in a sample: with fewer, kernels don't fill vectors

# The elementwise operations that have kernels, by the names of their declarations. scalar.py computes them.
ELEMENTWISE = {
    **dict.fromkeys(("mul", "add", "sub", "div", "neg", "sqrt", "rsub", "rsub_tensor"), ONE_PASS),
    **dict.fromkeys(("abs", "reciprocal", "square"), ONE_PASS),
    **dict.fromkeys(("relu", "clamp_min", "clamp_max"), _from(1 << 15)),  # their gradients take NumPy several passes
    **dict.fromkeys(("exp", "log", "tanh", "sigmoid", "erf", "gelu_erf", "gelu_tanh", "silu", "log_sigmoid"), FUSED),
    **dict.fromkeys(("leaky_relu", "elu", "celu", "softplus", "mish", "hardtanh", "log1p"), FUSED),
}


def compute(size: int, *arrays) -> bool:
    """Whether kernels compute with these arrays (None: one that isn't there): the first has `size` elements, all have one type."""
    first = arrays[0].dtype
    return arrays[0].size >= size and first.char in "fd" and all(a is None or a.dtype is first for a in arrays)


def elementwise_forms(op) -> dict:
    """What an operation's generated code calls for large arrays: `large`, and `f0_l`, `f1_l`, ... for the gradients.

    Each is made when it is first called."""
    forms = {"large": _made_when_called(lambda: _elementwise().forward(op))}
    for i, formula in enumerate(op.formulas):
        if formula is not None:
            forms[f"f{i}_l"] = _made_when_called(lambda i=i: _elementwise().gradient(op, i))
    return forms


def fused(name: str, plain, arrays: int):
    """plain, an elementwise function of so many arrays and then of numbers, computed by scalar.py's `name` where arrays are large."""
    large = _made_when_called(lambda: _elementwise().fused(name, plain, arrays))

    def function(*arguments):
        return plain(*arguments) if max([a.size for a in arguments[:arrays]]) < FUSED else large(*arguments)

    return function


def _elementwise():
    from . import elementwise

    return elementwise


def _made_when_called(make):
    made = None

    def call(*arguments):
        nonlocal made
        if made is None:
            made = make()
        return made(*arguments)

    return call


def __getattr__(name: str):
    """The kernels' modules, imported when first used: they import Numba."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
