"""The table of `inspect.watch`: redrawn in place in a terminal; elsewhere, for example in a log file, a line per sample."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .words import count, number, printable, sparkline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from rich.console import RenderableType

    from ..watch import ModuleSample, Sample

HISTORY = 16  # columns of a sparkline


class LiveTable:
    """Shows samples on a file."""

    def __init__(self, file: TextIO):
        self.console = Console(file=file)
        self.live: Live | None = None

    def write(self, _sample: Sample, samples: Sequence[Sample]) -> None:
        """Shows a new sample, the last of these."""
        if not self.console.is_terminal:
            self.console.print(Text(line(samples[-1])), soft_wrap=True)
            return
        if self.live is None:
            self.live = Live(console=self.console, auto_refresh=False, vertical_overflow="ellipsis")
            self.live.start()
        self.live.update(table(samples, self.console.width), refresh=True)

    def close(self) -> None:
        """Leaves the last table where it is."""
        if self.live is not None:
            self.live.stop()
            self.live = None


def line(sample: Sample) -> str:
    """A sample in one line: the loss, the whole gradient, the largest and the smallest part of it, what is wrong."""
    parts = [f"step {sample.step}", f"loss {number(sample.loss) or 'unknown'}", f"gradient {number(sample.gradient) or 'None'}"]
    norms = {name: m.gradient for name, m in sample.modules.items() if m.gradient is not None and math.isfinite(m.gradient)}
    if norms:
        for word, name in (("largest", max(norms, key=norms.__getitem__)), ("smallest", min(norms, key=norms.__getitem__))):
            parts.append(f"{word} {number(norms[name])} ({name})")
    if sample.nonfinite:
        parts.append(f"{sample.nonfinite:,} not finite")
    return printable("  ".join([*parts, *sample.findings[:1]]))


def table(samples: Sequence[Sample], width: int = 80) -> RenderableType:
    """The last sample, a row per module, with the course of its gradient's norm over the samples."""
    last, wide = samples[-1], width >= 76
    history = HISTORY if wide else HISTORY // 4
    title = f"step {last.step}   loss {number(last.loss) or 'unknown'}   gradient {number(last.gradient) or 'None'}"
    losses = [sample.loss for sample in samples if sample.loss is not None]
    if len(losses) > 1:
        title += f"   loss so far {sparkline(losses, history)}"
    result = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2 if wide else 1, 0, 0),
        pad_edge=False,
        width=width,
    )
    result.add_column("module", no_wrap=True, overflow="ellipsis", ratio=1)
    result.add_column("gradient", justify="right", no_wrap=True)
    result.add_column("so far", no_wrap=True, min_width=history)
    updates = any(module.update is not None for module in last.modules.values())
    for heading in ("zeros", "not finite", *(["update/weight" if wide else "update"] if updates else [])):
        result.add_column(heading, justify="right", no_wrap=True)
    for name, module in last.modules.items():
        norms = [sample.modules[name].gradient if name in sample.modules else None for sample in samples]
        zeros = "" if module.zeros is None else f"{module.zeros:.0%}"
        cells = [printable(name), number(module.gradient) or "None", sparkline(norms, history), zeros, f"{module.nonfinite:,}"]
        if updates:
            cells.append(number(module.update))
        result.add_row(*map(Text, cells), style=_style(module))
    if last.findings:
        more = f" (and {count(len(last.findings) - 1, 'more finding')})" if len(last.findings) > 1 else ""
        result.caption = Text(printable(last.findings[0]) + more, style="yellow")
        result.caption_justify = "left"
    return result


def _style(module: ModuleSample) -> str:
    return "red" if module.nonfinite else "yellow" if not module.gradient else ""
