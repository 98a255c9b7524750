"""The import alias: `import torch`, and every submodule, gives Backlight's modules under PyTorch's names.

    from backlight import alias
    alias.install()
    import torch.nn.functional as F   # backlight.nn.functional itself, the same module object

What Backlight lacks fails as it would with a PyTorch that never had it: an import with ModuleNotFoundError or
ImportError, an attribute with AttributeError. `missing` turns such an error into the name to tell the user.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .version import torch_version

_PACKAGE = __name__.rpartition(".")[0]
_root = sys.modules[_PACKAGE]


class Version(str):
    """A version that compares by its numbers, with text or a tuple: Version("2.13.0+backlight") > "2.4"."""

    __slots__ = ()

    def _against(self, other) -> tuple[list[int], list[int]]:
        mine, theirs = _numbers(self), [*other] if isinstance(other, tuple) else _numbers(other)
        longest = max(len(mine), len(theirs))
        return mine + [0] * (longest - len(mine)), theirs + [0] * (longest - len(theirs))

    def __lt__(self, other) -> bool:
        mine, theirs = self._against(other)
        return mine < theirs

    def __le__(self, other) -> bool:
        mine, theirs = self._against(other)
        return mine <= theirs

    def __gt__(self, other) -> bool:
        return not self <= other

    def __ge__(self, other) -> bool:
        return not self < other


def _numbers(version: str) -> list[int]:
    """[2, 13, 0] for "2.13.0+backlight" and for "2.13.0a1"."""
    numbers = []
    for part in version.partition("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return numbers


class _Alias(MetaPathFinder, Loader):
    """Finds `torch` and `torch.*`: a meta-path finder, and the loader of what it finds."""

    def find_spec(self, name, path=None, target=None):
        del path, target
        if name != "torch" and not name.startswith("torch."):
            return None
        module = _module(name)
        return ModuleSpec(name, self, is_package=hasattr(module, "__path__"))

    def create_module(self, spec):
        module = _module(spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        """The module was executed under its own name; the import system only overwrote its `__spec__`."""
        module.__spec__ = getattr(module.__spec__, "loader_state", None)


_alias = _Alias()


def _module(name: str) -> ModuleType:
    """Backlight's module for PyTorch's `name`; ModuleNotFoundError naming it if there is none."""
    own_name = _PACKAGE + name[len("torch") :]
    parent, _, child = own_name.rpartition(".")
    try:
        if parent and not isinstance(getattr(importlib.import_module(parent), child, _root), ModuleType):
            # `torch.tensor` is a function: a module of ours that has its name must not take its place
            raise ModuleNotFoundError(f"No module named '{name}'; it is no module", name=name)
        return importlib.import_module(own_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (own_name + ".").startswith(error.name + "."):
            raise  # something else is missing: a dependency
    raise ModuleNotFoundError(f"No module named '{name}': {name} is not there yet in Backlight", name=name)


def install() -> None:
    """Makes `import torch` give Backlight from now on. RuntimeError if PyTorch itself was imported before.

    `torch.__name__` is then "torch", and `torch.__version__` that of the PyTorch which Backlight follows, marked:
    "2.13.0+backlight".
    """
    if sys.modules.get("torch", _root) is not _root:
        raise RuntimeError("PyTorch was already imported; install the alias before the first `import torch`")
    if _alias not in sys.meta_path:
        sys.meta_path.insert(0, _alias)
        # packages that patch PyTorch's functions, as Pyro does, compare the name
        vars(_root).update(__name__="torch", __version__=Version(f"{torch_version}+backlight"))


def uninstall() -> None:
    """Takes the alias back: `import torch` gives PyTorch again, where it is installed."""
    if _alias in sys.meta_path:
        sys.meta_path.remove(_alias)
        vars(_root).update(__name__=_PACKAGE, __version__=torch_version)
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        if getattr(sys.modules[name], "__name__", "").partition(".")[0] == _PACKAGE:
            del sys.modules[name]


def missing(error: BaseException) -> str | None:
    """PyTorch's name for what Backlight lacked when it raised this error, None if that wasn't the reason."""
    if isinstance(error, AttributeError) and error.name:
        owner = error.obj
        if isinstance(owner, ModuleType) and _ours(owner.__name__):
            return f"{_public(owner.__name__)}.{error.name}"
        kind = owner if isinstance(owner, type) else type(owner)
        if kind.__module__ == f"{_PACKAGE}.tensor":
            return f"torch.{kind.__name__}.{error.name}"
        if kind.__module__.startswith(f"{_PACKAGE}.") and isinstance(owner, type):
            return f"{_public(kind.__module__)}.{kind.__name__}.{error.name}"
    elif isinstance(error, ImportError) and error.name and _ours(error.name):
        # "cannot import name 'X' from 'backlight.nn' (...)": the attribute is in the text only (before Python 3.12)
        quoted = str(error).split("'")
        return f"{_public(error.name)}.{quoted[1]}" if "cannot import name" in quoted[0] else _public(error.name)
    return None


def _ours(module: str) -> bool:
    return module.partition(".")[0] in (_PACKAGE, _root.__name__)


def _public(module: str) -> str:
    root, dot, rest = module.partition(".")
    return f"torch{dot}{rest}" if _ours(root) else module
