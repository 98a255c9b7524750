"""`Finding`: one answer, as data first and text second."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..schema import Site, Tensor

SEVERITIES = ("error", "warning", "note")


@dataclass(slots=True)
class Finding:
    """What was found out about a program.

    kind: stable, for programs ("none-cut", "nonfinite"). severity: "error", "warning" or "note". sites: the lines concerned, by role
    ("saved by", "changed by"). numbers: what was measured. names: the tensors, parameters or modules concerned. fix: the smallest
    change that helps. text: a paragraph that explains it.
    """

    kind: str
    severity: str
    title: str
    text: str
    fix: str = ""
    sites: dict[str, Site] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.title}", self.text]
        lines += [f"  {role}: {place(site)}" for role, site in self.sites.items()]
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


def sites(**by_role: Site | None) -> dict[str, Site]:
    """The sites that are known, by role; underscores in a role become spaces."""
    return {role.replace("_", " "): site for role, site in by_role.items() if site is not None}


def place(site: Site | None) -> str:
    """A site for people: "train.py:12 `y = torch.exp(a)`"."""
    if site is None:
        return "a line that was not recorded"
    site.read_source()
    text = f" `{shortened(site.text)}`" if site.text else ""
    return f"{os.path.basename(site.file)}:{site.line}{text}"


def shortened(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def listed(names: Iterable[str], limit: int = 6) -> str:
    """ "a, b and c", shortened after `limit`."""
    names = list(names)
    if len(names) > limit:
        return f"{', '.join(names[:limit])} and {len(names) - limit} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"


def labels(tensors: Iterable[Tensor]) -> list[str]:
    """The names of tensors, each once."""
    return list(dict.fromkeys(tensor.label for tensor in tensors))


def size_of(bytes_: int) -> str:
    """A number of bytes for people: "16 KiB"."""
    amount, unit = float(bytes_), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
