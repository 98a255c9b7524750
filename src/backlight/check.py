"""`backlight check`: which of PyTorch's names a program uses, and which of them are missing here. The program isn't run.

>>> from backlight.check import check_source
>>> for finding in check_source("import torch\\ntorch.ones(2).to_sparse()\\n"):
...     print(finding.name, "-", finding.kind, "-", finding.reason)
torch.Tensor.to_sparse - missing - sparse layouts: Backlight has dense arrays only
"""

from __future__ import annotations

import ast
import importlib
from dataclasses import dataclass, field
from types import ModuleType

from .compatibility import LEFT_OUT, MODULES, PARTLY

__all__ = ["Finding", "check_source"]

_PACKAGE = __package__ or "backlight"
_MISSING = object()
# Packages that import PyTorch themselves; under the alias they get Backlight, and need what it has not.
_BUILT_ON_TORCH = frozenset(
    """torchvision torchaudio torchtext torchdata torch_geometric torch_scatter torch_sparse torchmetrics transformers accelerate
    datasets diffusers timm lightning pytorch_lightning fastai ignite kornia gpytorch botorch pyro functorch deepspeed apex""".split()
)


@dataclass
class Finding:
    """A name of PyTorch's that a program uses and Backlight lacks, or has in part.

    kind: "missing", "in part", or "other package". sure: False for an attribute that is one of a tensor's, if its owner is a tensor.
    """

    name: str
    kind: str
    reason: str
    lines: list[int] = field(default_factory=list)
    sure: bool = True


def check_source(source: str, filename: str = "<string>") -> list[Finding]:
    """What is missing, in the order of the lines. SyntaxError if the source isn't Python."""
    reader = _Reader()
    reader.visit(ast.parse(source, filename))
    return sorted(reader.findings.values(), key=lambda finding: finding.lines[0])


class _Reader(ast.NodeVisitor):
    """Goes through a program, following what its imports call PyTorch's modules."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}  # a name of the program: the dotted path in PyTorch
        self.findings: dict[str, Finding] = {}

    # Imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            if root == "torch":
                self.look_up(alias.name, node.lineno)
                self.names[alias.asname or root] = alias.name if alias.asname else root
            self.other_package(root, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            return
        if module.partition(".")[0] == "torch":
            for alias in node.names:
                path = module if alias.name == "*" else f"{module}.{alias.name}"
                self.look_up(path, node.lineno)
                if alias.name != "*":
                    self.names[alias.asname or alias.name] = path
        self.other_package(module.partition(".")[0], node.lineno)

    def other_package(self, name: str, line: int) -> None:
        if name in _BUILT_ON_TORCH:
            self.add(name, "other package", "it is built on PyTorch, and may need more of it than Backlight has", line)

    # Uses

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self.path_of(node)
        if path is not None:
            self.look_up(path, node.lineno)
            return
        reason = LEFT_OUT["torch.Tensor"].get(node.attr) if node.attr not in _ORDINARY else None
        if reason is not None:
            self.add(f"torch.Tensor.{node.attr}", "missing", reason, node.lineno, sure=False)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        path = self.path_of(node.func)
        if path is not None:
            self.look_up(path, node.lineno, frozenset(keyword.arg for keyword in node.keywords))
        self.generic_visit(node)

    def path_of(self, node: ast.expr) -> str | None:
        """PyTorch's path of an expression such as `F.relu`, None if it isn't one."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.names:
            return ".".join([self.names[node.id], *reversed(parts)])
        return None

    def look_up(self, path: str, line: int, keywords: frozenset[str | None] = frozenset()) -> None:
        """Notes a path that Backlight has not, up to the part that is missing, or has in part."""
        owner = importlib.import_module(_PACKAGE)
        known = "torch"
        for part in path.split(".")[1:]:
            if not isinstance(owner, (ModuleType, type)):
                return  # an attribute of a function or a value
            value = _member(owner, part)
            place = "torch.Tensor" if known in ("torch.Tensor", "torch.nn.Parameter") else known
            if value is _MISSING:
                name = f"{known}.{part}"
                self.add(name, "missing", LEFT_OUT.get(place, {}).get(part) or _reason(name), line)
                return
            partly = PARTLY.get(place, {}).get(part)
            if partly is not None and (not partly.keywords or keywords.intersection(partly.keywords)):
                self.add(f"{known}.{part}", "in part", partly.text, line)
            owner, known = value, f"{known}.{part}"

    def add(self, name: str, kind: str, reason: str, line: int, sure: bool = True) -> None:
        finding = self.findings.setdefault(name, Finding(name, kind, reason, sure=sure))
        finding.sure |= sure
        if line not in finding.lines:
            finding.lines.append(line)


# Attributes that lists, dicts and many other objects have as well.
_ORDINARY = frozenset(("index", "values", "indices", "solve"))


def _reason(path: str) -> str:
    """Why the module is missing that the path leads into."""
    known = [begin for begin in MODULES if f"{path}.".startswith(f"{begin}.")]
    return MODULES[max(known, key=len)] if known else "not there yet"


def _member(owner: ModuleType | type, name: str) -> object:
    value = getattr(owner, name, _MISSING)
    if value is _MISSING and isinstance(owner, ModuleType) and hasattr(owner, "__path__"):
        try:
            return importlib.import_module(f"{owner.__name__}.{name}")
        except ImportError:
            return _MISSING
    return value
