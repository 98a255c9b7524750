"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..tensor import Parameter, Tensor
from .module import Module, block, indented

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

__all__ = [
    "Container",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "ParameterList",
    "Sequential",
]


def _position(index, length: int) -> int:
    """`index` counted from the start. IndexError if it is out of range."""
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range")
    return index % length


class _Numbered(Module):
    """What Sequential and ModuleList share: children in a row, reached by position."""

    def _key(self, index) -> str:
        return list(self._module_names)[_position(index, len(self))]

    def _replace_all(self, modules: Iterable[Module]) -> None:
        """Makes `modules` the children, numbered from 0."""
        entries = self._modules
        entries.clear()
        for number, module in enumerate(modules):
            entries[str(number)] = module

    def __len__(self) -> int:
        return len(self._module_names)

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        keys = list(self._module_names)[index] if isinstance(index, slice) else [self._key(index)]
        for key in keys:
            delattr(self, key)
        self._replace_all(list(self._modules.values()))

    def append(self, module: Module) -> Self:
        """Adds a module at the end and returns self."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: int | slice) -> Module:
        """Removes the module (or the slice of modules) and returns it."""
        module = self[key]  # pyright: ignore[reportIndexIssue]
        del self[key]
        return module

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)


class Sequential(_Numbered):
    """Modules in a row: each is called with the output of the one before.

    Takes modules, or one OrderedDict of named modules.

    >>> import backlight as torch
    >>> torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
    )
    """

    def __init__(self, *args: Module | OrderedDict[str, Module]) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            named = args[0].items()
        else:
            named = ((str(number), module) for number, module in enumerate(args))
        for name, module in named:
            self.add_module(name, module)  # pyright: ignore[reportArgumentType]

    def forward(self, input):
        attributes = self.__dict__
        for name in attributes["_module_names"]:
            input = attributes[name](input)
        return input

    def __getitem__(self, index: int | slice) -> Module:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return getattr(self, self._key(index))

    def insert(self, index: int, module: Module) -> Self:
        """Inserts a module before position `index`; all are numbered anew."""
        assert isinstance(module, Module), f"module should be of type: {Module}"
        length = len(self)
        if not -length <= index <= length:
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        self._replace_all(modules)
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Appends every module of `sequential`."""
        for module in list(sequential):
            self.append(module)
        return self

    def _check_sequential(self, other) -> None:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")

    def __add__(self, other: Sequential) -> Sequential:
        self._check_sequential(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Sequential) -> Self:
        self._check_sequential(other)
        return self.extend(other)

    def _check_factor(self, factor) -> None:
        if not isinstance(factor, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(factor)}")
        if factor <= 0:
            raise ValueError(f"Non-positive multiplication factor {factor} for {type(self)}")

    def __mul__(self, factor: int) -> Sequential:
        self._check_factor(factor)
        return Sequential(*(list(self) * factor))

    __rmul__ = __mul__

    def __imul__(self, factor: int) -> Self:
        self._check_factor(factor)
        return self.extend(list(self) * (factor - 1))


class ModuleList(_Numbered):
    """A list whose modules are registered as children. It has no `forward`."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index: int | slice) -> Module | ModuleList:
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, self._key(index))

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def insert(self, index: int, module: Module) -> None:
        """Inserts a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._replace_all(modules)

    def extend(self, modules: Iterable[Module]) -> Self:
        """Appends every module of an iterable."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def __repr__(self) -> str:
        runs: list[list] = []  # [first, last, text] of neighbours that print alike
        for number, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1][1] = number
            else:
                runs.append([number, number, text])
        lines = []
        for first, last, text in runs:
            label = f"({first})" if first == last else f"({first}-{last})"
            times = "" if first == last else f"{last - first + 1} x "
            lines.append(f"{label}: {times}{indented(text)}")
        return block(self._get_name(), lines)


def _pairs(entries, name: str, method: str):
    """The (key, value) pairs of an iterable of pairs. TypeError or ValueError where it is none."""
    if not isinstance(entries, Iterable):
        raise TypeError(
            f"{method}.update should be called with an iterable of key/value pairs, but got {type(entries).__name__}"
        )
    for number, pair in enumerate(entries):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{name} update sequence element #{number} should be Iterable; is{type(pair).__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(f"{name} update sequence element #{number} has length {len(pair)}; 2 is required")
        yield pair


class ModuleDict(Module):
    """A dict whose modules are registered as children, in the order of insertion. It has no `forward`."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._module_names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._module_names)

    def __contains__(self, key: str) -> bool:
        return key in self._module_names

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Removes a module and returns it."""
        return self._modules.pop(key)

    def keys(self):
        """The names."""
        return self._modules.keys()

    def items(self):
        """(name, module) pairs."""
        return self._modules.items()

    def values(self):
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Adds all modules of a mapping or of an iterable of pairs, replacing those of the same name."""
        if isinstance(modules, (Mapping, ModuleDict)):
            pairs = list(modules.items())
        else:
            pairs = _pairs(modules, "ModuleDict", "ModuleDict")
        for key, module in pairs:
            self[key] = module  # pyright: ignore[reportArgumentType]


def _entry_text(key, value, type_text: str) -> str:
    if isinstance(value, Tensor):
        kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
        return f"  ({key}): {kind} containing: [{type_text} of size {'x'.join(map(str, value.shape))}]"
    if isinstance(value, Module):
        return f"  ({key}): Module containing: {type(value).__name__}"
    return f"  ({key}): Object of type: {type(value).__name__}"


class ParameterList(Module):
    """A list whose tensors are registered as parameters (a plain tensor becomes one); it may hold other objects."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)(getattr(self, str(i)) for i in range(*index.indices(len(self))))
        return getattr(self, str(_position(index, len(self))))

    def __setitem__(self, index: int, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(_position(index, len(self))), value)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def append(self, value: Any) -> Self:
        """Adds a value at the end and returns self."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Appends every value of an iterable (which may not be a tensor)."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(
            _entry_text(i, value, str(value.dtype) if isinstance(value, Tensor) else "") for i, value in enumerate(self)
        )

    def __call__(self, *_args, **_kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict whose tensors are registered as parameters (a plain tensor becomes one); it may hold other objects."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _attribute(self, key: str) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'). Open an issue on github if you need non-string keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._attribute(key))

    def __setitem__(self, key: str, value: Any) -> None:
        attribute = self._attribute(key)
        self._keys[key] = None
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, attribute, value)

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._attribute(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """A new ParameterDict of the same objects."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value at `key`, which is set to `default` first if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Removes everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Removes a value and returns it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Removes the newest (key, value) and returns it."""
        key = next(reversed(self))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value at `key`, or `default`."""
        return self[key] if key in self else default  # noqa: SIM401  (this is `get`)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new ParameterDict with `default` at every key."""
        return ParameterDict(OrderedDict((key, default) for key in keys))

    def keys(self):
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """(key, value) pairs."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Adds all entries; those of a plain mapping come in the order of their keys."""
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs = list(parameters.items())
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items(), key=lambda pair: pair[0])
        else:
            pairs = _pairs(parameters, "ParameterDict", "ParametersDict")
        for key, value in pairs:
            self[key] = value  # pyright: ignore[reportArgumentType]

    def extra_repr(self) -> str:
        return "\n".join(
            _entry_text(key, value, value.type() if isinstance(value, Tensor) else "") for key, value in self.items()
        )

    def __call__(self, _input):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        result = self.copy()
        result.update(other)  # pyright: ignore[reportArgumentType]
        return result

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        result = ParameterDict(OrderedDict(other.items()))
        result.update(self)  # pyright: ignore[reportArgumentType]
        return result

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)  # pyright: ignore[reportArgumentType]
        return self


class Container(Module):
    """Deprecated in PyTorch: a Module whose children are given by name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warnings.warn(
            "nn.Container is deprecated. All of it's functionality is now implemented in nn.Module. Subclass that instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        for name, module in kwargs.items():
            self.add_module(name, module)
