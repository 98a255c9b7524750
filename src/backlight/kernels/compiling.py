"""Numba's compiler as the kernels use it: without the interpreter's lock, kept on disk, arithmetic as it is written."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from pathlib import Path
from types import FunctionType

import numba
from llvmlite import ir
from numba import types
from numba.core import caching
from numba.extending import intrinsic

from .memory import keep_freed_memory

keep_freed_memory()

# Multiply-adds may be contracted and the sign of zero in sums ignored; NaN, infinity and the order of operations stay.
FLOATING_POINT = {"contract"}
INLINED = {"fastmath": FLOATING_POINT, "error_model": "numpy", "forceinline": True}  # a loop with a call isn't vectorised


def kernel(function, name: str = ""):
    """Compiles a function when it is first called, for the types it is called with."""
    if name:
        function.__name__ = function.__qualname__ = name
    compiled = numba.njit(nogil=True, fastmath=FLOATING_POINT, error_model="numpy")(function)
    if _cache_is_writable():
        compiled._cache = _KernelCache(function)
    return compiled


def specialized(function, name: str, **names):
    """A kernel from a function's text, with some of its global names (sizes, tiles) bound to given values."""
    return kernel(FunctionType(function.__code__, {**function.__globals__, **names}, name), name)


def inlined(function):
    """A function of numbers for use in kernels."""
    return numba.njit(**INLINED)(function)


def called(function):
    """A function for kernels that stays a function in them: large, and called once for many numbers."""
    return numba.njit(fastmath=FLOATING_POINT, error_model="numpy", no_cpython_wrapper=True)(function)


def summing(function):
    """Like `inlined`, for loops that add up: they may do so in any order, or vector lanes couldn't be used."""
    return numba.njit(**{**INLINED, "fastmath": {"contract", "reassoc", "nsz"}})(function)


@intrinsic
def larger(_typing, x, y):
    """The larger of two numbers, in loops that become vector code; anything if one is NaN."""

    def code(_context, builder, _signature, arguments):
        kind = arguments[0].type
        maximum = builder.module.declare_intrinsic("llvm.maxnum", [kind], ir.FunctionType(kind, [kind, kind]))
        return builder.call(maximum, arguments, fastmath=("nnan", "nsz", "reassoc"))

    return x(x, y), code


@intrinsic
def take(_typing, queue):
    """The next number of a queue (an int64 array of one element) that several threads share: 0, 1, 2, ..."""

    def code(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.atomic_rmw("add", array.data, context.get_constant(types.int64, 1), "monotonic")

    return types.int64(queue), code


def _bitcast(source, target, made):
    """An intrinsic that reinterprets bits. Its types are fixed: Numba's integers would grow to 64 bits."""

    def function(_typing, _x):
        def code(_context, builder, _signature, arguments):
            return builder.bitcast(arguments[0], made)

        return target(source), code

    return intrinsic(function)


single_from_bits = _bitcast(types.int32, types.float32, ir.FloatType())
single_bits = _bitcast(types.float32, types.int32, ir.IntType(32))
double_from_bits = _bitcast(types.int64, types.float64, ir.DoubleType())
double_bits = _bitcast(types.float64, types.int64, ir.IntType(64))


# The cache on disk. Numba's own one goes by the file's date, and a kernel here consists of several files' functions and of
# formulas from ops/; so entries are stamped with the contents of this folder, and names of generated kernels hold their formulas.


def cache_directory() -> Path:
    """Where compiled kernels are kept: BACKLIGHT_CACHE, or a folder in the user's cache directory."""
    given = os.environ.get("BACKLIGHT_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache") / "backlight"


_writable: bool | None = None


def _cache_is_writable() -> bool:
    global _writable
    if _writable is None:
        try:
            directory = cache_directory()
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = directory / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
            _writable = True
        except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
            _writable = False
            warnings.warn(
                f"backlight: compiled kernels can't be kept ({error}), so every process compiles them anew. "
                "Set BACKLIGHT_CACHE to a folder that can be written, or BACKLIGHT_KERNELS=numpy to do without kernels.",
                stacklevel=2,
            )
    return _writable


def _stamp() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _KernelLocator(caching._CacheLocator):
    stamp = _stamp()

    def __init__(self, py_file):
        self._py_file = py_file

    def get_cache_path(self):
        return str(cache_directory())

    def get_source_stamp(self):
        return self.stamp

    def get_disambiguator(self):
        return None

    @classmethod
    def from_function(cls, py_func, py_file):
        del py_func
        return cls(py_file)


class _KernelCacheImplementation(caching.CompileResultCacheImpl):
    _locator_classes = [_KernelLocator]


class _KernelCache(caching.FunctionCache):
    _impl_class = _KernelCacheImplementation
