"""How numbers, shapes, times, sizes and lines of the program are written, in every view."""

from __future__ import annotations

import linecache
import math
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..schema import Site

_BARS = "▁▂▃▄▅▆▇█"


def shape(sizes: Sequence[int]) -> str:
    """ "32x64"; "scalar" for no dimensions."""
    return "x".join(map(str, sizes)) or "scalar"


def number(value: float | None) -> str:
    """Three significant digits; nothing for None."""
    return "" if value is None else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """ "12 µs", "1.2 ms", "3.4 s"; nothing for None."""
    if seconds is None:
        return ""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 999.5:
            value = seconds * factor
            return f"{value:.0f} {unit}" if value >= 9.95 else f"{value:.1f} {unit}"
    return f"{seconds:.1f} s"


def size(count: int | None) -> str:
    """ "0", "512 B", "1.5 KiB", "3 GiB"; nothing for None."""
    if count is None:
        return ""
    if count < 1024:
        return f"{count} B" if count else "0"
    power = min(int(math.log(count, 1024)), 4)
    value = count / 1024**power
    return f"{value:.0f} {'KMGT'[power - 1]}iB" if value >= 99.5 else f"{value:.3g} {'KMGT'[power - 1]}iB"


def count(n: int, what: str) -> str:
    """ "1 step", "2 steps", "2 passes"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}{'es' if what.endswith('s') else 's'}"


def printable(text: str) -> str:
    """One line in which nothing moves a terminal's cursor: control characters become blanks or question marks."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def source(site: Site | None) -> str:
    """The line of the program, without its indentation; what the record knows of it if the file can't be read."""
    if site is None:
        return ""
    return printable(linecache.getline(site.file, site.line).strip() or site.text or "")


def places(sites: Iterable[Site | None]) -> Callable[[Site | None], str]:
    """How to write a line of the program: with the file's name alone, or its path where two files share a name."""
    files = {site.file for site in sites if site}
    names = [os.path.basename(file) for file in files]
    short = {file: name if names.count(name) == 1 else _relative(file) for file, name in zip(files, names)}
    return lambda site: f"{printable(short[site.file])}:{site.line}" if site else ""


def _relative(file: str) -> str:
    try:
        return os.path.relpath(file)
    except ValueError:  # on another drive
        return file


def sparkline(values: Sequence[float | None], width: int) -> str:
    """A bar per value, on a logarithmic scale: "·" is zero, "!" not finite, a blank unknown. More than `width` values are
    put together, several to a bar: what isn't finite is shown if any is, else the largest."""
    if len(values) > width:
        edges = [i * len(values) // width for i in range(width + 1)]
        values = [_largest(values[a:b]) for a, b in zip(edges, edges[1:])]
    logs = [math.log10(v) for v in values if v and math.isfinite(v)]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    scale = (len(_BARS) - 1) / max(high - low, 1.0)  # less than a decade does not fill the height

    def bar(value: float | None) -> str:
        if value is None:
            return " "
        if not math.isfinite(value):
            return "!"
        return _BARS[round((math.log10(value) - low) * scale)] if value else "·"

    return "".join(map(bar, values))


def _largest(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    bad = [v for v in known if not math.isfinite(v)]
    return bad[0] if bad else max(known, default=None)
