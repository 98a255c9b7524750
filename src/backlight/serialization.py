"""`save` and `load`: PyTorch's files, both ways, without ever running what a file says.

A file is a zip archive: `data.pkl` is the object with numbers in the place of memory, `data/0`, `data/1`, ... are the pieces of
memory, so tensors that share memory still do afterwards. Loading reads the pickle with `unpickling.Unpickler`.

>>> import io
>>> import backlight as torch
>>> file = io.BytesIO()
>>> torch.save({"weight": torch.ones(2), "epoch": 3}, file)
>>> _ = file.seek(0)
>>> torch.load(file)
{'weight': tensor([1., 1.]), 'epoch': 3}
"""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import sys
import zipfile
import zlib
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from . import dtypes, kernels
from .dtypes import Size
from .dtypes import device as Device
from .files import replacing
from .storage import UntypedStorage, owner_of
from .tensor import Parameter, Tensor, as_subclass
from .unpickling import CALLABLES, DATA, Rules, Unpickler, UnpicklingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    File = str | os.PathLike[str] | IO[bytes]

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

MAP_LOCATION: TypeAlias = "Callable[[Any, str], Any] | Device | str | dict[str, str] | None"

DEFAULT_PROTOCOL = 2
_ALIGNMENT = 64  # bytes: pieces of memory begin at multiples, so that they can be mapped
LARGE_FILE = 16 << 20  # bytes
PIECE = 1 << 18  # bytes
_MAGIC = 0x1950A86A20F9469CFC6C  # begins a file of PyTorch before 1.6, which was a row of pickles


class StorageType:
    """`torch.FloatStorage` and its like, as files name them: memory of one element type (None: bytes)."""

    def __init__(self, name: str, dtype: dtypes.dtype | None) -> None:
        self.name, self.dtype = name, dtype


_STORAGE_TYPES = {
    dtype: StorageType(f"{name}Storage", dtype)
    for name, dtype in {
        "Double": dtypes.float64,
        "Float": dtypes.float32,
        "Half": dtypes.float16,
        "BFloat16": dtypes.bfloat16,
        "Long": dtypes.int64,
        "Int": dtypes.int32,
        "Short": dtypes.int16,
        "Char": dtypes.int8,
        "Byte": dtypes.uint8,
        "Bool": dtypes.bool_,
        "ComplexDouble": dtypes.complex128,
        "ComplexFloat": dtypes.complex64,
    }.items()
}
_BYTES = StorageType("UntypedStorage", None)

# -- what a file may call: each rebuilds one kind of object -------------------------------------------------------------


class _Memory:
    """A piece of memory of a file: its bytes, and the element type that the file gives it (None: none)."""

    def __init__(self, data: np.ndarray, dtype: dtypes.dtype | None) -> None:
        self.data, self.dtype = data, dtype


def _tensor(memory: _Memory, dtype: dtypes.dtype | None, offset: int, size: tuple, stride: tuple) -> Tensor:
    """A tensor over a piece of memory. Everything is checked: the numbers come from the file."""
    if not isinstance(memory, _Memory) or not isinstance(dtype, dtypes.dtype):
        raise UnpicklingError("a tensor without memory or type")
    array_type, numbers = dtype.array_type, (offset, *size, *stride)
    if len(size) != len(stride) or not all(type(n) is int and n >= 0 for n in numbers):
        raise UnpicklingError(f"a tensor of size {size} with strides {stride} at {offset}")
    end = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if 0 not in size else offset
    if end * array_type.itemsize > len(memory.data):
        raise UnpicklingError(f"a tensor of {end} elements over memory of {len(memory.data)} bytes")
    steps = tuple(step * array_type.itemsize for step in stride)
    if 0 in size:
        return Tensor._from(np.empty(size, array_type))
    return Tensor._from(np.ndarray(size, array_type, memory.data, offset * array_type.itemsize, steps))


def _with_flags(tensor: Tensor, requires_grad: bool, metadata: dict | None) -> Tensor:
    if metadata and metadata.get("conj"):
        tensor = tensor.conj()
    if metadata and metadata.get("neg"):
        tensor = -tensor
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_tensor(storage, storage_offset, size, stride):
    return _tensor(storage, storage.dtype, storage_offset, size, stride)


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, _backward_hooks, metadata=None):
    return _with_flags(_tensor(storage, storage.dtype, storage_offset, size, stride), requires_grad, metadata)


def _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, _backward_hooks, dtype, metadata=None):
    return _with_flags(_tensor(storage, dtype, storage_offset, size, stride), requires_grad, metadata)


def _rebuild_parameter(data, requires_grad, _backward_hooks):
    return Parameter(data, bool(requires_grad))


def _rebuild_parameter_with_state(data, requires_grad, _backward_hooks, state):
    return _with_attributes(Parameter(data, bool(requires_grad)), state)


def _rebuild_from_type_v2(func, new_type, args, state):
    if func not in _REBUILD.values() or func is _rebuild_from_type_v2:
        raise UnpicklingError("a tensor made in an unknown way")
    if not (isinstance(new_type, type) and issubclass(new_type, Tensor)):
        raise UnpicklingError(f"a tensor of type {new_type!r}")
    result = func(*args)
    return _with_attributes(result if type(result) is new_type else as_subclass(result, new_type), state)


def _with_attributes(tensor: Tensor, state: Any) -> Tensor:
    attributes, _slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for name in attributes or {}:
        if not isinstance(name, str) or hasattr(Tensor, name):
            raise UnpicklingError(f"a tensor's attribute may not be called {name!r}")
    tensor.__dict__.update(attributes or {})
    return tensor


def _get_layout(name):
    if name != "torch.strided":
        raise UnpicklingError(f"tensors of layout {name} aren't supported: Backlight has dense tensors only")
    return dtypes.strided


_REBUILD: dict[str, Callable] = {
    f.__name__: f
    for f in (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter, _rebuild_parameter_with_state)
}
_REBUILD["_rebuild_from_type_v2"] = _rebuild_from_type_v2

# PyTorch's name for each object that files refer to: (object, module, name).
_TORCH: list[tuple[Any, str, str]] = [
    *((f, "torch._utils" if f is not _rebuild_from_type_v2 else "torch._tensor", name) for name, f in _REBUILD.items()),
    (_get_layout, "torch.serialization", "_get_layout"),
    (Size, "torch", "Size"),
    (Device, "torch", "device"),
    (Tensor, "torch", "Tensor"),
    (Parameter, "torch.nn.parameter", "Parameter"),
    (_BYTES, "torch.storage", "UntypedStorage"),
    *((storage, "torch", storage.name) for storage in _STORAGE_TYPES.values()),
    *((dtype, "torch", dtype.name) for dtype in dtypes.ALL),
]
_NAME_OF = {id(value): (module, name) for value, module, name in _TORCH}

# -- saving -------------------------------------------------------------------------------------------------------------


_PythonPickler: Any = pickle._Pickler  # pyright: ignore[reportAttributeAccessIssue]


class _Pickler(_PythonPickler):
    """Python's own pickler in Python: the one in C can't be told to write PyTorch's names."""

    def __init__(self, file, protocol: int) -> None:
        super().__init__(file, protocol)
        self.memory: dict[tuple, tuple[str, np.ndarray, StorageType]] = {}

    def save_global(self, obj, name=None):
        known = _NAME_OF.get(id(obj))
        if known is None:
            return super().save_global(obj, name)
        self.write(b"c%s\n%s\n" % (known[0].encode(), known[1].encode()))
        self.memoize(obj)

    def persistent_id(self, obj):
        return obj.pid if isinstance(obj, _Reference) else None

    def reducer_override(self, obj):
        if isinstance(obj, Tensor):
            return self._reduce_tensor(obj)
        if id(obj) in _NAME_OF:
            return _NAME_OF[id(obj)][1]
        if isinstance(obj, Device):
            return Device, ((obj.type,) if obj.index is None else (obj.type, obj.index))
        if isinstance(obj, dtypes.layout):
            return _get_layout, (repr(obj),)
        return NotImplemented

    def _reduce_tensor(self, tensor: Tensor):
        kind = type(tensor) if type(tensor).__module__ != Tensor.__module__ else None
        is_parameter = isinstance(tensor, Parameter)
        attributes = {k: v for k, v in tensor.__dict__.items() if k not in ("_leaf", "_grad")}
        function, arguments = self._reduce_data(tensor, False if is_parameter else tensor.requires_grad)
        if is_parameter and kind is None:
            data = _Reduced(function, arguments)
            if attributes:
                return _rebuild_parameter_with_state, (data, tensor.requires_grad, OrderedDict(), attributes)
            return _rebuild_parameter, (data, tensor.requires_grad, OrderedDict())
        if attributes or kind is not None:
            return _rebuild_from_type_v2, (function, kind or Tensor, arguments, attributes)
        return function, arguments

    def _reduce_data(self, tensor: Tensor, requires_grad: bool):
        array = tensor.array
        owner = owner_of(array)
        if min(array.strides, default=0) < 0 or not _is_dense(owner):
            array = owner = array.copy()
        offset, rest = divmod(_address(array) - _address(owner), array.itemsize)
        if rest or any(step % array.itemsize for step in array.strides):
            array = owner = array.copy()
            offset = 0
        storage = _STORAGE_TYPES.get(tensor.dtype, _BYTES)
        pid = self._memory_id(owner, storage)
        stride = tensor.stride() if array is tensor.array else Tensor._from(array).stride()
        arguments = (
            _Reference(pid),
            offset if array.size else 0,
            tuple(array.shape),
            tuple(stride),
            requires_grad,
            OrderedDict(),
        )
        if storage is _BYTES:
            return _rebuild_tensor_v3, (*arguments, tensor.dtype)
        return _rebuild_tensor_v2, arguments

    def _memory_id(self, owner: np.ndarray, storage: StorageType) -> tuple:
        key = (_address(owner), owner.nbytes)
        if key not in self.memory:
            self.memory[key] = (str(len(self.memory)), owner, storage)
        number, _owner, first = self.memory[key]
        if first is not storage:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types")
        itemsize = 1 if storage.dtype is None else storage.dtype.itemsize
        return ("storage", storage, number, "cpu", owner.nbytes // itemsize)


class _Reference:
    """Stands for a piece of memory, which the pickle refers to by its number."""

    def __init__(self, pid: tuple) -> None:
        self.pid = pid


class _Reduced:
    """Stands for the data of a parameter: what a call of `function` makes."""

    def __init__(self, function, arguments) -> None:
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _is_dense(array: np.ndarray) -> bool:
    """Whether the array fills its memory, in whatever order of dimensions."""
    step = array.itemsize
    for stride, n in sorted(zip(array.strides, array.shape, strict=True)):
        if n > 1 and stride != step:
            return False
        step *= n if n > 1 else 1
    return True


def _bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a dense array, from its first byte to its last, without a copy."""
    order = sorted(range(array.ndim), key=lambda i: -array.strides[i])
    return array.transpose(order).reshape(-1).view(np.uint8).data


def save(
    obj: Any,
    f: File,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Writes an object with tensors in it to a file, which PyTorch reads too.

    f: a path, or a file open for writing bytes. A path appears when all is written: an error leaves an older file as it was.
    """
    if not _use_new_zipfile_serialization:
        raise NotImplementedError(
            "the format before PyTorch 1.6 can be loaded, not saved: leave _use_new_zipfile_serialization"
        )
    if pickle_module is not pickle:
        raise NotImplementedError("save() pickles with Python's own pickle only")
    if not 2 <= pickle_protocol <= 5:
        raise ValueError(f"pickle_protocol must be 2 to 5, but got {pickle_protocol}")
    if isinstance(f, (str, os.PathLike)):
        path = Path(f)
        if not path.parent.is_dir():
            raise RuntimeError(f"Parent directory {path.parent} does not exist.")
        with replacing(path, "wb") as file:
            _write(obj, file, path.stem if path.suffix else path.name, pickle_protocol)
    elif hasattr(f, "write"):
        _write(obj, f, "archive", pickle_protocol)
    else:
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")


def _write(obj: Any, file: IO[bytes], root: str, protocol: int) -> None:
    text = io.BytesIO()
    pickler = _Pickler(text, protocol)
    pickler.dump(obj)
    fast = kernels.ENABLED and sum(owner.nbytes for _number, owner, _storage in pickler.memory.values()) >= LARGE_FILE
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, data: bytes | memoryview) -> None:
            info = zipfile.ZipInfo(f"{root}/{name}")
            large = len(data) >= 2**31
            begin = archive.start_dir + 30 + len(info.filename.encode()) + (20 if large else 0)
            padding = -(begin + 4) % _ALIGNMENT
            info.extra = b"FB" + struct.pack("<H", padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=large) as entry:
                if fast and len(data) >= PIECE:  # zipfile takes a third of the time for checksums (benchmarks: save)
                    archive.fp.write(data)  # pyright: ignore[reportOptionalMemberAccess]
                    entry._file_size, entry._crc = len(data), kernels.checksum.crc32(np.frombuffer(data, np.uint8))  # pyright: ignore
                else:
                    entry.write(data)

        add("data.pkl", text.getvalue())
        add(".format_version", b"1")
        add(".storage_alignment", str(_ALIGNMENT).encode())
        add("byteorder", sys.byteorder.encode())
        for number, owner, _storage in pickler.memory.values():
            add(f"data/{number}", _bytes_of(owner))
        add("version", b"3\n")


# -- loading ------------------------------------------------------------------------------------------------------------

_safe_globals: dict[str, Any] = {}


def _named(entry: Any) -> tuple[str, Any]:
    value, name = entry if isinstance(entry, tuple) else (entry, None)
    return name or f"{value.__module__}.{value.__qualname__}", value


def add_safe_globals(safe_globals: list) -> None:
    """Lets files that are loaded with `weights_only` name, make and call these classes and functions (or pairs with a name)."""
    _safe_globals.update(map(_named, safe_globals))


def get_safe_globals() -> list:
    """What `add_safe_globals` added."""
    return list(_safe_globals.values())


def clear_safe_globals() -> None:
    """Forgets what `add_safe_globals` added."""
    _safe_globals.clear()


@contextmanager
def safe_globals(safe_globals: list) -> Iterator[None]:
    """`add_safe_globals` inside the block only."""
    before = dict(_safe_globals)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe_globals.clear()
        _safe_globals.update(before)


class _FileRules(Rules):
    """What PyTorch's files may name. `torch.nn.modules.linear.Linear` and its like are found here under the same path."""

    def __init__(self, weights_only: bool) -> None:
        names = {f"{module}.{name}": value for value, module, name in _TORCH}
        names |= {"torch._utils._rebuild_from_type_v2": _rebuild_from_type_v2, **DATA, **_safe_globals}
        callables = {*CALLABLES.values(), *_REBUILD.values(), _get_layout, Size, Device, *_safe_globals.values()}
        if not weights_only:
            for path in _PLAIN_CLASSES:
                module, name = path.rsplit(".", 1)
                names[path] = getattr(import_module(module), name)
                callables.add(names[path])
            names |= {"copyreg._reconstructor": _reconstructor}
            callables.add(_reconstructor)
        super().__init__(names, callables, own_classes=not weights_only)

    def find(self, module: str, name: str) -> Any:
        if self.own_classes and f"{module}.{name}" not in self.names and module.partition(".")[0] == "torch":
            own = __package__ + module[len("torch") :] if __package__ else module
            try:
                import_module(own)
            except ImportError:
                raise UnpicklingError(f"the file needs {module}.{name}, which isn't there in Backlight") from None
            return super().find(own, name)
        return super().find(module, name)


# Plain data of the standard library that pickles make by a call.
_PLAIN_CLASSES = """argparse.Namespace collections.deque datetime.date datetime.datetime datetime.time datetime.timedelta
datetime.timezone decimal.Decimal fractions.Fraction functools.partial pathlib.Path pathlib.PosixPath pathlib.PurePosixPath
types.SimpleNamespace uuid.UUID""".split()


def _reconstructor(cls: Any, base: Any, state: Any) -> Any:
    """How pickle makes instances of classes that it doesn't know: without calling them."""
    if base is object:
        return object.__new__(cls)
    if base not in (dict, list, tuple, set, str, int, float) or not issubclass(cls, base):
        raise UnpicklingError(f"an instance of {cls!r} by way of {base!r}")
    make: Any = base.__new__
    return make(cls, state)


def load(
    f: File,
    map_location: MAP_LOCATION = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,  # noqa: ARG001
) -> Any:
    """Reads what `save`, here or in PyTorch, wrote.

    f: a path, or a file open for reading bytes that can be seeked. map_location: only the CPU can be the target; it is needed for
    tensors that were on a GPU. mmap: the file's pages are read when they are used (f must be a path). weights_only (the default):
    tensors, numbers, text and containers are all that a file may have. With False it may also have instances of classes of the
    program and of packages, whose modules must have been imported; but functions that a file names are not called in any case.

    Raises pickle.UnpicklingError for what isn't allowed, RuntimeError for a file that is damaged, or of another kind.
    """
    if pickle_module is not None:
        raise NotImplementedError("load() reads pickles itself, safely; it can't use another pickle_module")
    weights_only = weights_only is None or weights_only
    path = f if isinstance(f, (str, os.PathLike)) else None
    if mmap and path is None:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if path is not None:
        with open(path, "rb") as file:
            return _load(file, Path(path), map_location, weights_only, bool(mmap))
    for attribute in ("read", "readline", "tell", "seek"):
        if not hasattr(f, attribute):
            raise AttributeError(
                f"'{type(f).__name__}' object has no attribute '{attribute}'. You can only torch.load from a file that is "
                "seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
            )
    if not hasattr(f, "readinto"):
        f = io.BytesIO(f.read())  # pyright: ignore[reportAttributeAccessIssue]
    return _load(f, None, map_location, weights_only, False)  # pyright: ignore[reportArgumentType]


def _load(file: IO[bytes], path: Path | None, map_location: Any, weights_only: bool, mmap: bool) -> Any:
    begin = file.tell()
    head = file.read(265)
    file.seek(begin)
    rules = _FileRules(weights_only)
    try:
        if head[:4] == b"PK\x03\x04":
            with _damage("zip archive"), zipfile.ZipFile(file) as archive:
                return _read_archive(archive, file, path if mmap else None, map_location, rules)
        if not head:
            raise EOFError("Ran out of input: the file is empty")
        if head[257:262] == b"ustar":
            raise RuntimeError(
                "this is a tar file of PyTorch before 0.4, which Backlight doesn't read: load it with PyTorch and save it again"
            )
        if head[0] != 0x80:
            raise RuntimeError(
                f"this is no file of torch.save: it begins with {head[:8]!r}. Was it cut, converted, or is it another format "
                "(safetensors files are read by the safetensors library)?"
            )
        if mmap:
            raise RuntimeError(
                "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True), please torch.save "
                "your checkpoint with this option in order to use mmap."
            )
        with _damage("a row of pickles"):
            return _load_pickles(file.read(), map_location, rules)
    except UnpicklingError as error:
        if not weights_only:
            raise
        raise UnpicklingError(
            f"Weights only load failed. {error}\n"
            "A file may only have tensors, numbers, text and containers of these. If you know the classes in it, allow them with "
            "torch.serialization.add_safe_globals([...]); with weights_only=False instances of your program's own classes are made "
            "too, without calling any function that the file names."
        ) from None


class _Memories:
    """The pieces of memory of a file, each made when the pickle first refers to it."""

    def __init__(self, map_location: Any, read: Callable[[str, StorageType, int], np.ndarray]) -> None:
        self.map_location, self.read = map_location, read
        self.known: dict[str, _Memory] = {}

    def __call__(self, pid: Any) -> _Memory:
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            raise UnpicklingError(f"Unknown typename for persistent_load: {pid!r}")
        kind, key, location, count = pid[1:5]
        if not isinstance(kind, StorageType) or type(count) is not int or count < 0 or not isinstance(key, str):
            raise UnpicklingError(f"a reference to memory that makes no sense: {pid!r}")
        if key not in self.known:
            itemsize = 1 if kind.dtype is None else kind.dtype.itemsize
            memory = _Memory(self.read(key, kind, count * itemsize), kind.dtype)
            _check_location(memory, location, self.map_location)
            self.known[key] = memory
        return self.known[key]


def _check_location(memory: _Memory, location: Any, target: Any) -> None:
    """RuntimeError if the memory is to be on another device than the CPU."""
    if callable(target):
        target(UntypedStorage(memory.data), location)
        return
    where = location if target is None else target.get(location, location) if isinstance(target, dict) else target
    if str(where).startswith("cuda"):
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a "
            "CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
        )
    if str(where) != "cpu":
        raise RuntimeError(f"tensors can't be loaded to {where!r}: Backlight has the CPU only (use map_location='cpu')")


@contextmanager
def _damage(where: str) -> Iterator[None]:
    """Turns what reading a damaged file raises, of many kinds, into one clear RuntimeError."""
    try:
        yield
    except (UnpicklingError, RuntimeError, MemoryError):
        raise
    except Exception as error:
        raise RuntimeError(
            f"PytorchStreamReader failed reading {where}: {type(error).__name__}: {error}. There is a high likelihood that your "
            "checkpoint file is corrupted. This can happen if the checkpoint was not saved properly, was transferred "
            "incorrectly, or the file was modified after saving."
        ) from error


def _read_archive(archive, file, mapped: Path | None, map_location: Any, rules: Rules) -> Any:
    entries = archive.infolist()
    size = file.seek(0, os.SEEK_END)
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise RuntimeError("the archive is compressed, which torch.save never does; unpack it and zip it without compression")
    if sum(entry.file_size for entry in entries) > size:
        raise RuntimeError("the archive's entries overlap: it claims to hold more than its size")
    by_name = {entry.filename: entry for entry in entries}
    pickles = [name for name in by_name if re.fullmatch(r"[^/]*/data\.pkl", name)]
    if len(by_name) != len(entries) or len(pickles) != 1:
        raise RuntimeError(f"a file of torch.save has one data.pkl; this archive has {len(pickles)}")
    root = pickles[0][: -len("data.pkl")]
    if f"{root}constants.pkl" in by_name:
        raise RuntimeError("this is a TorchScript archive, which holds a program: Backlight doesn't run those")
    order = archive.read(f"{root}byteorder").decode() if f"{root}byteorder" in by_name else "little"

    def read(key: str, kind: StorageType, nbytes: int) -> np.ndarray:
        entry = by_name.get(f"{root}data/{key}")
        if entry is None or entry.file_size != nbytes:
            raise UnpicklingError(f"memory {key!r} of {nbytes} bytes isn't in the archive")
        if mapped is not None and nbytes:
            return np.memmap(mapped, np.uint8, "c", _data_offset(file, entry), (nbytes,))
        data = np.empty(nbytes, np.uint8)
        file.seek(_data_offset(file, entry))
        if file.readinto(data.data) != nbytes:  # pyright: ignore[reportAttributeAccessIssue]
            raise RuntimeError(f"the file is damaged: memory {key!r} is cut")
        checksums.compare(key, data, entry.CRC)
        if order != sys.byteorder and kind.dtype is not None:
            data = data.view(kind.dtype.array_type).byteswap().view(np.uint8)
        return data

    with _Checksums(size) as checksums:
        return Unpickler(archive.read(pickles[0]), rules, _Memories(map_location, read)).load()


class _Checksums:
    """Compares checksums; those of a large file are computed by a kernel in another thread, while the file is read on."""

    def __init__(self, size: int):
        self.large = size >= LARGE_FILE and kernels.ENABLED
        self.waiting: list[tuple[str, Future[int], int]] = []

    def __enter__(self) -> _Checksums:
        if self.large:
            kernels.memory.keep_freed_memory()
            self.executor = ThreadPoolExecutor(1)
        return self

    def compare(self, key: str, data: np.ndarray, expected: int) -> None:
        if self.large:
            self.waiting.append((key, self.executor.submit(kernels.checksum.crc32, data), expected))
        else:
            _check(key, zlib.crc32(data.data), expected)

    def __exit__(self, kind, _error, _traceback) -> None:
        if self.large:
            self.executor.shutdown()
            for key, found, expected in self.waiting if kind is None else ():
                _check(key, found.result(), expected)


def _check(key: str, found: int, expected: int) -> None:
    if found != expected:
        raise RuntimeError(f"the file is damaged: memory {key!r} has another checksum (CRC-32)")


def _data_offset(file: IO[bytes], entry: zipfile.ZipInfo) -> int:
    """Where an entry's bytes begin: behind its header, whose length it says itself."""
    file.seek(entry.header_offset)
    header = file.read(30)
    name, extra = struct.unpack("<HH", header[26:30])
    return entry.header_offset + 30 + name + extra


def _load_pickles(data: bytes, map_location: Any, rules: Rules) -> Any:
    """The format before PyTorch 1.6: pickles of a number, a version, the machine, the object, the keys; then the memory."""
    wanted: dict[str, tuple[np.ndarray, int]] = {}

    def read(key: str, kind: StorageType, nbytes: int) -> np.ndarray:
        if nbytes > len(data):
            raise UnpicklingError(f"memory of {nbytes} bytes in a file of {len(data)}")
        wanted[key] = np.zeros(nbytes, np.uint8), 1 if kind.dtype is None else kind.dtype.itemsize
        return wanted[key][0]

    memories, position = _Memories(map_location, read), 0

    def next_pickle() -> Any:
        nonlocal position
        unpickler = Unpickler(data, rules, memories, position)
        value = unpickler.load()
        position = unpickler.position
        return value

    if next_pickle() != _MAGIC:
        raise RuntimeError("Invalid magic number; corrupt file?")
    if next_pickle() != 1001:
        raise RuntimeError("Invalid protocol version")
    next_pickle()
    result, keys = next_pickle(), next_pickle()
    for key in keys:
        memory, itemsize = wanted[key]
        (count,) = struct.unpack_from("<q", data, position)
        position += 8
        piece = data[position : position + count * itemsize]
        if count * itemsize != len(memory) or len(piece) != len(memory):
            raise RuntimeError("the file's memory is cut or has another size than its tensors")
        memory[:] = np.frombuffer(piece, np.uint8)
        position += len(piece)
    return result
