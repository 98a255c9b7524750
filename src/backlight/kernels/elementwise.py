"""Kernels of elementwise operations, made from what the operations declare.

The forward loop calls the operation's function in scalar.py. A gradient's loop calls the formula itself: the same code
object once more, with the names of operations bound to scalar.py's functions and its numbers in the arrays' type. So a
formula has three uses (tensors, arrays, numbers) and one text.

Kernels run where all arrays have one type and one dense layout; 0-d and broadcast single numbers are passed as numbers.
Everything else is left to NumPy.
"""

from __future__ import annotations

import builtins
import hashlib
from types import CodeType, FunctionType

import numpy as np

from . import scalar, threads
from .compiling import inlined, kernel, take

CHUNK = 1 << 14  # elements: an array's part fits into the first-level cache together with another one's
WIDE = frozenset(("power",))  # functions whose numbers stay float64
TYPES = {np.dtype(np.float32): np.float32, np.dtype(np.float64): np.float64}


def forward(op):
    """The array function of an operation for large arrays."""
    function = getattr(scalar, op.name, None) or getattr(scalar, op.name + "_")
    return _fused(op.name, function, op.arrays, len(op.inputs))


def fused(name, plain, arrays):
    """The same as `plain`, in one pass by scalar.py's function of this name."""
    return _fused(name, getattr(scalar, name), plain, arrays)


def gradient(op, number):
    """The array form of an operation's gradient formula `number` for large arrays; None if there is none."""
    formula = op.formulas[number]
    if formula is None:
        return None
    names = formula.__code__.co_varnames[: formula.__code__.co_argcount]
    plain = op.function.__globals__[f"f{number}_a"]
    used = tuple(not name.startswith("_") and not name.endswith("_shape") for name in names[: len(op.inputs) + 2])
    return _fused(f"{op.name}_gradient{number}", formula, plain, len(used), used)


def _fused(name, function, plain, arrays, used=None):
    """plain's twin: computes in one pass where the arrays allow it. The first `arrays` arguments are arrays.

    used: which of them the function looks at; the others are None or come in anyway."""
    used = (True,) * arrays if used is None else used
    kernels: dict = {}

    def fused(*arguments):
        layout, kinds = None, ""
        for array, wanted in zip(arguments[:arrays], used):
            if not wanted:
                kinds += "-"
            elif array.ndim and any(array.strides):
                if layout is None:
                    layout = array
                elif array.strides != layout.strides or array.shape != layout.shape or array.dtype is not layout.dtype:
                    return plain(*arguments)
                kinds += "a"
            else:
                kinds += "n"
        if layout is None or layout.dtype not in TYPES or not layout.size:
            return plain(*arguments)
        order = "C" if layout.flags.c_contiguous else "F" if layout.flags.f_contiguous else None
        if order is None:
            return plain(*arguments)
        flat = []
        for array, kind in zip(arguments, kinds):
            if kind == "a":
                flat.append(array.reshape(-1, order=order))
            elif kind == "n":
                if array.dtype is not layout.dtype or array.shape not in ((), layout.shape):
                    return plain(*arguments)
                flat.append(array[(0,) * array.ndim])
        key = kinds, layout.dtype
        if key not in kernels:
            kernels[key] = _loop(name, function, kinds, layout.dtype, len(arguments) - arrays)
        out = np.empty(layout.shape, layout.dtype, order)
        number = float if name in WIDE else layout.dtype.type
        parameters = [number(value) for value in arguments[arrays:]]
        threads.run(kernels[key], -(-out.size // CHUNK), *flat, *parameters, out.reshape(-1, order=order))
        return out

    fused.__name__ = name
    return fused


def _loop(name, function, kinds, dtype, parameters):
    """The compiled loop over chunks for inputs that are arrays (a), numbers (n) or left out (-)."""
    body = scalar_form(function, dtype)
    given = [f"x{i}" for i, kind in enumerate(kinds) if kind != "-"] + [f"p{i}" for i in range(parameters)]
    arrays = [f"x{i}" for i, kind in enumerate(kinds) if kind == "a"]
    values = ["0.0" if kind == "-" else f"x{i}" + "c[i]" * (kind == "a") for i, kind in enumerate(kinds)]
    values += [f"p{i}" for i in range(parameters)]
    text = [f"def loop({', '.join(given)}, out, queue):", "    while True:", f"        start = take(queue) * {CHUNK}"]
    text += ["        if start >= out.size:", "            return"]
    text += [f"        {x}c = {x}[start:start + {CHUNK}]" for x in [*arrays, "out"]]
    text += ["        for i in range(outc.size):", f"            outc[i] = f({', '.join(values)})"]
    scope = {"__name__": __name__, "take": take, "f": body}
    exec(compile("\n".join(text), f"<backlight kernel {name}>", "exec"), scope)
    return kernel(scope["loop"], f"{name}_{kinds.replace('-', '_')}_{dtype}_{_fingerprint(function)}")


def scalar_form(function, dtype, made=None):
    """A formula over numbers of one type: its code, with operations bound to scalar.py's and its constants converted."""
    if not isinstance(function, FunctionType) or hasattr(function, "overloaded"):
        return function
    made = {} if made is None else made
    if function in made:
        return made[function]
    scope = {"__name__": __name__, "__builtins__": builtins}
    for key in function.__code__.co_names:
        value = function.__globals__.get(key)
        found = getattr(scalar, key, None) or getattr(scalar, key + "_", None)
        if found is not None:
            scope[key] = found
        elif isinstance(value, FunctionType):
            scope[key] = scalar_form(value, dtype, made)
        elif value is not None:
            scope[key] = value
    convert = TYPES[dtype]
    constants = tuple(convert(c) if type(c) in (int, float) else c for c in function.__code__.co_consts)
    made[function] = form = inlined(FunctionType(function.__code__.replace(co_consts=constants), scope, function.__name__))
    return form


def _fingerprint(function) -> str:
    """A short hash of a formula and the formulas it calls, for the name under which its kernel is kept."""
    digest, seen = hashlib.sha256(), set()

    def add(function):
        if isinstance(function, FunctionType) and function not in seen:
            seen.add(function)
            code = function.__code__
            digest.update(code.co_code)
            digest.update(repr([c for c in code.co_consts if not isinstance(c, CodeType)]).encode())
            digest.update(repr(code.co_names).encode())
            for key in code.co_names:
                value = function.__globals__.get(key)
                if isinstance(value, (int, float)):
                    digest.update(repr(value).encode())
                elif not hasattr(scalar, key):
                    add(value)

    add(function)
    return digest.hexdigest()[:12]
