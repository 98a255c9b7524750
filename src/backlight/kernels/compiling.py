"""Numba's compiler as the kernels use it: without the interpreter's lock, kept on disk, arithmetic as it is written."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import shutil
import sys
import time
import uuid
import warnings
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numba.extending
from llvmlite import ir
from numba import types
from numba.core import caching, serialize
from numba.core.compiler_lock import global_compiler_lock

from .memory import keep_freed_memory

keep_freed_memory()
if hasattr(os, "register_at_fork"):  # a child whose parent was compiling in another thread could never compile
    _release = global_compiler_lock.release
    os.register_at_fork(before=global_compiler_lock.acquire, after_in_parent=_release, after_in_child=_release)

# Multiply-adds may be contracted and the sign of zero in sums ignored; NaN, infinity and the order of operations stay.
FLOATING_POINT = {"contract"}
# A loop with a call isn't vectorised
INLINED: dict[str, Any] = {"fastmath": FLOATING_POINT, "error_model": "numpy", "forceinline": True}

# By its types, what Numba decorates is called with the arguments that its text has; so it has none here.
jit: Any = numba.njit
intrinsic: Any = numba.extending.intrinsic
overload: Any = numba.extending.overload

made: list = []  # the kernels of this process


def kernel(function, name: str = "", exact: bool = False):
    """Compiles a function when it is first called, for the types it is called with. exact: rounds wherever the text does."""
    if name:
        function.__name__ = function.__qualname__ = name
    compiled = jit(nogil=True, fastmath=False if exact else FLOATING_POINT, error_model="numpy")(function)
    try:
        compiled._cache = _KernelCache(function)
    except (OSError, RuntimeError) as error:  # there is no home directory, say
        _warn(error)
    compile_for = compiled._compile_for_args
    compiled._compile_for_args = lambda *arguments: _compiled_for(compiled, arguments) or compile_for(*arguments)
    made.append(compiled)
    return compiled


def _compiled_for(compiled, arguments):
    """The machine code for arguments some of which are arrays that can't be written: that for arrays that can. Else None.

    To Numba they have another type, for which it would compile the same once more."""
    kinds = [numba.typeof(argument) for argument in arguments]
    if all(kind.mutable for kind in kinds if isinstance(kind, types.Array)):
        return None
    return compiled.compile(tuple([kind.copy(readonly=False) if isinstance(kind, types.Array) else kind for kind in kinds]))


def bound(function, **names):
    """The function with some of its global names (sizes, tiles) bound to given values."""
    return FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__)


def specialized(function, name: str, **names):
    """A kernel from a function's text, for given values of some of its global names."""
    return kernel(bound(function, **names), name)


def inlined(function):
    """A function of numbers for use in kernels."""
    return jit(**INLINED)(function)


def called(function):
    """A function for kernels that stays a function in them: large, and called once for many numbers."""
    return jit(fastmath=FLOATING_POINT, error_model="numpy", no_cpython_wrapper=True)(function)


def summing(function):
    """Like `inlined`, for loops that add up: they may do so in any order, or vector lanes couldn't be used."""
    return jit(**{**INLINED, "fastmath": {"contract", "reassoc", "nsz"}})(function)


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


@intrinsic
def multiply_add(_typing, a, b, c):
    """a * b + c, rounded once."""

    def code(_context, builder, _signature, arguments):
        return builder.fma(*arguments)

    return a(a, b, c), code


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


# The cache on disk. Numba's own one goes by a file's date, and a kernel here consists of several files' functions and of formulas
# from ops/. So kernels lie in a folder that is named after the contents of this one, and names of generated kernels hold a hash
# of their formulas. Each kernel has one file for each list of argument types, and no index: processes that write at once don't meet.

OLD = 60 * 24 * 3600  # seconds after which another version's folder is removed


def cache_directory() -> Path:
    """Where compiled kernels are kept: BACKLIGHT_CACHE, or a folder in the user's cache directory."""
    given = os.environ.get("BACKLIGHT_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return Path(base or Path.home() / ".cache") / "backlight"


def kernels_directory() -> Path:
    """The folder there of this version's kernels: two versions that are used in turn keep their own."""
    return cache_directory() / f"kernels-{_STAMP}"


def _stamp() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


_STAMP = _stamp()
_warned = False


def _warn(error: Exception) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"backlight: compiled kernels can't be kept ({error}), so every process compiles them anew. "
            "Set BACKLIGHT_CACHE to a folder that can be written, or BACKLIGHT_KERNELS=numpy to do without kernels.",
            stacklevel=2,
        )


def make_kernels_directory() -> None:
    """Makes the folder, and removes those that other versions left long ago."""
    folder = kernels_directory()
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is read from there is run
    folder.mkdir(mode=0o700, exist_ok=True)
    for other in folder.parent.iterdir():
        if re.fullmatch("kernels-[0-9a-f]{16}", other.name) and other.stat().st_mtime < time.time() - OLD:
            shutil.rmtree(other, ignore_errors=True)


class _Files:
    """The files of one kernel, in place of Numba's IndexDataCacheFile."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name

    def _path(self, key) -> Path:
        return self.folder / f"{self.name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"

    def load(self, key):
        """What was saved under the key; None if nothing was."""
        try:
            saved_key, data = pickle.loads(self._path(key).read_bytes())
        except FileNotFoundError:
            return None
        return data if saved_key == repr(key) else None

    def save(self, key, data) -> None:
        if not self.folder.exists():
            make_kernels_directory()
        path = self._path(key)
        written = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            written.write_bytes(serialize.dumps((repr(key), data)))
            os.replace(written, path)
        finally:
            written.unlink(missing_ok=True)


class _KernelLocator(caching._CacheLocator):
    """Where Numba thinks that it writes."""

    def __init__(self, folder: Path):
        self.folder = folder

    def get_cache_path(self):
        return str(self.folder)

    def get_source_stamp(self):
        return _STAMP

    def get_disambiguator(self):
        return ""

    def ensure_cache_path(self):
        pass

    @classmethod
    def from_function(cls, _py_func, _py_file):
        return cls(kernels_directory())


class _KernelCacheImplementation(caching.CompileResultCacheImpl):
    _locator_classes = [_KernelLocator]


class _KernelCache(caching.FunctionCache):
    _impl_class = _KernelCacheImplementation

    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _Files(Path(self.cache_path), self._impl.filename_base)

    def load_overload(self, sig, target_context):
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # the file can't be read, or is damaged: the kernel is compiled and written once more
            return None

    def save_overload(self, sig, data):
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(error)
