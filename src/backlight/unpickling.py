"""Reading pickles without running them.

Python's own unpickler imports and calls whatever a file names. This one builds data: numbers, text, containers, and the
objects that a `Rules` knows. A file can name functions, and then it gets an error; it can never have one called that isn't in
the rules. What it can ask of memory and time is bounded by the size of the file.
"""

from __future__ import annotations

import enum
import struct
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict, defaultdict, deque
from pickle import UnpicklingError
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Rules", "Unpickler", "UnpicklingError"]

_PLAIN_NEW = [base.__new__ for base in (object, dict, list, tuple, set, frozenset, str, bytes, int, float, complex, bytearray)]
_PLAIN_NEW += [OrderedDict.__new__, defaultdict.__new__, deque.__new__]
_PLAIN_KEYS = (str, bytes, int, float, complex, bool, type(None))


class Rules:
    """What a pickle may name, call and build.

    names: {"module.name": object} that may be named. callables: those of them that may be called with the file's arguments. With
    `own_classes`, what modules outside of the standard library have, if the program has imported them, may be named as well: instances
    of classes are made without calling `__init__`, functions may be named, not called.
    """

    def __init__(self, names: dict[str, Any], callables: set[Any], own_classes: bool = False) -> None:
        self.names, self.callables, self.own_classes = names, callables, own_classes

    def find(self, module: str, name: str) -> Any:
        """What `module.name` stands for. UnpicklingError if it may not be named."""
        path = f"{module}.{name}"
        if path in self.names:
            return self.names[path]
        if not self.own_classes:
            raise UnpicklingError(f"Unsupported global: GLOBAL {path} was not an allowed global by default.")
        if module.partition(".")[0] in sys.stdlib_module_names and module != "__main__":
            raise UnpicklingError(f"the file names {path}; of the standard library only plain data may be loaded")
        value = sys.modules.get(module)
        if value is None:
            raise UnpicklingError(f"the file needs {path}: import {module} before loading it")
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is None:
            raise UnpicklingError(f"the file needs {path}, which doesn't exist here")
        return value

    def may_call(self, function: Any) -> bool:
        """Whether a file may call this with arguments of its own."""
        try:
            if function in self.callables:
                return True
        except TypeError:  # not hashable
            return False
        return self.own_classes and isinstance(function, type) and issubclass(function, enum.Enum)

    def may_make(self, cls: Any) -> bool:
        """Whether a file may have an instance of this class, made by `cls.__new__`, and fill it."""
        if not isinstance(cls, type) or issubclass(cls, type):
            return False
        if cls in (OrderedDict, Counter, defaultdict) or self.may_call(cls):
            return True
        # A class written in Python on top of plain data: not of functions, code, files or memory maps.
        return self.own_classes and (isinstance(cls.__new__, FunctionType) or cls.__new__ in _PLAIN_NEW)


def _check_key(key: Any) -> Any:
    """A key for a dict or set: hashing nested tuples could take for ever, so only flat ones are taken."""
    if isinstance(key, tuple) and not isinstance(key, enum.Enum):
        if not all(isinstance(part, _PLAIN_KEYS) for part in key):
            raise UnpicklingError("a key that is a tuple may only contain numbers and text")
    elif isinstance(key, frozenset):
        raise UnpicklingError("a set as a key isn't supported")
    return key


class Unpickler:
    """Reads one pickle of protocol 2 to 5 from bytes.

    >>> import pickle
    >>> Unpickler(pickle.dumps({"a": [1, 2.5, None]}), Rules({}, set())).load()
    {'a': [1, 2.5, None]}
    >>> Unpickler(pickle.dumps(print), Rules({}, set())).load()
    Traceback (most recent call last):
    _pickle.UnpicklingError: Unsupported global: GLOBAL builtins.print was not an allowed global by default.
    """

    def __init__(self, data: bytes, rules: Rules, persistent_load: Callable[[Any], Any] | None = None, start: int = 0) -> None:
        self.data, self.position, self.rules, self.persistent_load = data, start, rules, persistent_load
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.made: dict[int, Any] = {}  # what this pickle built, and so may fill; by id, kept alive

    def load(self) -> Any:
        """The object. UnpicklingError for what isn't a pickle, or asks for what the rules don't allow."""
        try:
            while True:
                code = self._take(1)[0]
                if code == 0x2E:  # STOP
                    return self.stack.pop()
                step = _STEPS.get(code)
                if step is None:
                    raise UnpicklingError(f"the instruction {bytes([code])!r} isn't supported")
                step(self)
        except RecursionError:
            raise UnpicklingError("the pickle is nested too deeply") from None
        except (UnpicklingError, RuntimeError):
            raise
        except Exception as error:  # nonsense in the file: too few operands, text that isn't UTF-8, ...
            raise UnpicklingError(f"the pickle is damaged at byte {self.position}: {type(error).__name__}: {error}") from error

    # Reading

    def _take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if count < 0 or self.position > len(self.data):
            raise UnpicklingError("pickle data was truncated")
        return self.data[start : self.position]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _line(self) -> str:
        end = self.data.find(b"\n", self.position)
        if end < 0:
            raise UnpicklingError("pickle data was truncated")
        line = self.data[self.position : end]
        self.position = end + 1
        return line.decode()

    def _pop_mark(self) -> list:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _pop(self) -> Any:
        if self.marks and self.marks[-1] >= len(self.stack):
            raise UnpicklingError("the pickle takes more than there is")
        return self.stack.pop()

    # Building

    def _make(self, value: Any) -> None:
        """Pushes an object that this pickle may fill later."""
        if not isinstance(value, (type, enum.Enum)):
            self.made[id(value)] = value
        self.stack.append(value)

    def _mine(self, *kinds: type) -> Any:
        """The object on top, if this pickle made it."""
        value = self.stack[-1]
        if id(value) not in self.made or (kinds and not isinstance(value, kinds)):
            raise UnpicklingError(f"the pickle changes a {type(value).__name__} that it didn't make")
        return value

    def _find(self, module: str, name: str) -> None:
        if (module, name) in NAME_MAPPING:  # protocol 2 writes the names of Python 2
            module, name = NAME_MAPPING[module, name]
        module = IMPORT_MAPPING.get(module, module)
        self.stack.append(self.rules.find(module, name))

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(arguments, tuple) or not self.rules.may_call(function):
            name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', function)}"
            raise UnpicklingError(
                f"the file calls {name}, and loading never calls what isn't known to be safe. If you trust it, name it with "
                "torch.serialization.add_safe_globals"
            )
        self._make(function(*arguments))

    def _new(self, keywords: dict[str, Any]) -> None:
        arguments, cls = self._pop(), self._pop()
        if not isinstance(arguments, tuple) or not self.rules.may_make(cls):
            raise UnpicklingError(f"the file makes an instance of {cls!r}, which isn't allowed")
        self._make(cls.__new__(cls, *arguments, **keywords))

    def _build(self) -> None:
        state, value = self._pop(), self._mine()
        if isinstance(value, np.ndarray):
            value.__setstate__(_checked_array_state(state))
            return
        if isinstance(value, np.dtype):
            value.__setstate__(_checked_dtype_state(state))  # pyright: ignore[reportAttributeAccessIssue]
            return
        if not self.rules.may_make(type(value)):
            raise UnpicklingError(f"the pickle changes a {type(value).__name__}")
        set_state = getattr(value, "__setstate__", None)
        if set_state is not None:
            set_state(state)
            return
        slots = {}
        if isinstance(state, tuple) and len(state) == 2:
            state, slots = state
        for name, item in [*dict(state or {}).items(), *dict(slots or {}).items()]:
            if not isinstance(name, str) or (name.startswith("__") and name.endswith("__")):
                raise UnpicklingError(f"an attribute may not be called {name!r}")
            object.__setattr__(value, name, item)

    def _append(self, items: list) -> None:
        target = self._mine(list, deque)
        target.extend(items)

    def _set_items(self, items: list) -> None:
        target = self._mine(dict)
        if len(items) % 2:
            raise UnpicklingError("a key without a value")
        for i in range(0, len(items), 2):
            target[_check_key(items[i])] = items[i + 1]

    def _remember(self, number: int) -> None:
        if number > len(self.data):  # there can't be that many objects
            raise UnpicklingError("the pickle's memory is numbered beyond its size")
        self.memo[number] = self.stack[-1]

    def _recall(self, number: int) -> None:
        if number not in self.memo:
            raise UnpicklingError(f"Memo value not found at index {number}")
        self.stack.append(self.memo[number])

    def _persistent(self) -> None:
        if self.persistent_load is None:
            raise UnpicklingError("the pickle refers to data that isn't there")
        self.stack.append(self.persistent_load(self._pop()))

    def _protocol(self) -> None:
        version = self._take(1)[0]
        if not 2 <= version <= 5:
            raise UnpicklingError(f"pickles of protocol {version} aren't supported")

    def _global_of_stack(self) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise UnpicklingError("STACK_GLOBAL requires str")
        self._find(module, name)


def _push(read):
    return lambda u: u.stack.append(read(u))


def _tuple(count):
    def step(u):
        items = [u._pop() for _ in range(count)]
        u.stack.append(tuple(reversed(items)))

    return step


_STEPS = {
    ord("("): lambda u: u.marks.append(len(u.stack)),
    ord("0"): lambda u: u._pop(),
    ord("1"): lambda u: u._pop_mark(),
    ord("2"): lambda u: u.stack.append(u.stack[-1]),
    ord("N"): _push(lambda _u: None),
    0x88: _push(lambda _u: True),
    0x89: _push(lambda _u: False),
    ord("J"): _push(lambda u: u._number("<i")),
    ord("K"): _push(lambda u: u._number("<B")),
    ord("M"): _push(lambda u: u._number("<H")),
    0x8A: _push(lambda u: int.from_bytes(u._take(u._number("<B")), "little", signed=True)),
    0x8B: _push(lambda u: int.from_bytes(u._take(u._number("<i")), "little", signed=True)),
    ord("G"): _push(lambda u: u._number(">d")),
    ord("X"): _push(lambda u: u._take(u._number("<I")).decode("utf-8", "surrogatepass")),
    0x8C: _push(lambda u: u._take(u._number("<B")).decode("utf-8", "surrogatepass")),
    0x8D: _push(lambda u: u._take(u._number("<Q")).decode("utf-8", "surrogatepass")),
    ord("B"): _push(lambda u: u._take(u._number("<I"))),
    ord("C"): _push(lambda u: u._take(u._number("<B"))),
    0x8E: _push(lambda u: u._take(u._number("<Q"))),
    ord("U"): _push(lambda u: u._take(u._number("<B")).decode("latin1")),
    ord("T"): _push(lambda u: u._take(u._number("<i")).decode("latin1")),
    0x96: lambda u: u._make(bytearray(u._take(u._number("<Q")))),
    ord(")"): _push(lambda _u: ()),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("t"): lambda u: u.stack.append(tuple(u._pop_mark())),
    ord("]"): lambda u: u._make([]),
    ord("}"): lambda u: u._make({}),
    0x8F: lambda u: u._make(set()),
    0x91: lambda u: u.stack.append(frozenset(map(_check_key, u._pop_mark()))),
    0x90: lambda u: _add(u._pop_mark(), u),
    ord("a"): lambda u: u._append([u._pop()]),
    ord("e"): lambda u: u._append(u._pop_mark()),
    ord("s"): lambda u: u._set_items([u._pop(), u._pop()][::-1]),
    ord("u"): lambda u: u._set_items(u._pop_mark()),
    ord("c"): lambda u: u._find(u._line(), u._line()),
    0x93: Unpickler._global_of_stack,
    ord("R"): Unpickler._reduce,
    0x81: lambda u: u._new({}),
    0x92: lambda u: u._new(u._pop()),
    ord("b"): Unpickler._build,
    ord("Q"): Unpickler._persistent,
    ord("q"): lambda u: u._remember(u._number("<B")),
    ord("r"): lambda u: u._remember(u._number("<I")),
    0x94: lambda u: u._remember(len(u.memo)),
    ord("h"): lambda u: u._recall(u._number("<B")),
    ord("j"): lambda u: u._recall(u._number("<I")),
    0x80: Unpickler._protocol,
    0x95: lambda u: u._take(8),  # FRAME: where the next part ends, which bytes in memory needn't know
}


def _add(items: list, unpickler: Unpickler) -> None:
    unpickler._mine(set).update(map(_check_key, items))


# What counts as data, in the standard library and NumPy. Each function takes only what pickles of such data contain.


def _encode(text: str, encoding: str) -> bytes:
    """How protocol 2 writes bytes."""
    if encoding != "latin1":
        raise UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


def _bytearray(data: str | bytes = b"", encoding: str = "latin-1") -> bytearray:
    if isinstance(data, str):
        return bytearray(data, "ascii" if encoding == "ascii" else "latin-1")
    if not isinstance(data, bytes):
        raise UnpicklingError("a bytearray is made from bytes")
    return bytearray(data)


def _set(items: list = ()) -> set:  # pyright: ignore[reportArgumentType]
    return set(map(_check_key, items))


def _frozenset(items: list = ()) -> frozenset:  # pyright: ignore[reportArgumentType]
    return frozenset(map(_check_key, items))


def _ordered_dict(items: list = ()) -> OrderedDict:  # pyright: ignore[reportArgumentType]
    return OrderedDict((_check_key(key), value) for key, value in items)


def _counter(counts: dict | None = None) -> Counter:
    if not isinstance(counts, (dict, type(None))):
        raise UnpicklingError("a Counter is made from a dict")
    return Counter(counts)


def _default_dict(factory: Any = None) -> defaultdict:
    if factory not in (None, *TYPES.values()):
        raise UnpicklingError(f"a defaultdict with {factory!r}")
    return defaultdict(factory)


def _new_array(_cls: Any, _shape: Any, _code: Any) -> np.ndarray:
    return np.empty(0, "b")


def _new_dtype(code: str, _align: Any = False, _copy: Any = True) -> np.dtype:
    dtype = np.dtype(code, copy=True) if isinstance(code, str) else None
    if dtype is None or dtype.hasobject or dtype.subdtype is not None or dtype.names:
        raise UnpicklingError(f"an array of type {code!r}")
    return dtype


def _scalar(dtype: np.dtype, data: bytes) -> np.generic:
    if not isinstance(dtype, np.dtype) or dtype.hasobject or len(data) != dtype.itemsize:
        raise UnpicklingError("a NumPy number with other bytes than its type has")
    return np.frombuffer(data, dtype)[0]


def _checked_dtype_state(state: tuple) -> tuple:
    _version, order, *rest = state
    if order not in ("<", ">", "|", "=") or rest[:3] != [None, None, None] or rest[3:5] != [-1, -1]:
        raise UnpicklingError("only plain NumPy types are supported")
    return state


def _checked_array_state(state: tuple) -> tuple:
    _version, shape, dtype, _fortran, data = state
    count = 1
    for n in shape:
        count *= n
    if not isinstance(dtype, np.dtype) or dtype.hasobject or min(shape, default=0) < 0 or len(data) != count * dtype.itemsize:
        raise UnpicklingError("a NumPy array whose bytes don't fit its shape and type")
    return state


TYPES: dict[str, Any] = {f"builtins.{t.__name__}": t for t in (dict, list, int, float, str, bool, tuple)}
CALLABLES: dict[str, Any] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "collections.defaultdict": _default_dict,
    "collections.deque": deque,
    "_codecs.encode": _encode,
    "builtins.bytearray": _bytearray,
    "builtins.set": _set,
    "builtins.frozenset": _frozenset,
    "builtins.complex": complex,
    **{f"numpy.{core}.multiarray._reconstruct": _new_array for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": _scalar for core in ("core", "_core")},
    "numpy.dtype": _new_dtype,
}
# All that may be named: the types as a defaultdict's factory, ndarray as an argument.
DATA: dict[str, Any] = {**CALLABLES, **TYPES, "numpy.ndarray": np.ndarray}
