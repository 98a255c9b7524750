"""The gradient flow of a pass as a figure, with matplotlib (extra "plot")."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from . import summary
from .words import places, printable

if TYPE_CHECKING:
    from ..record import Record

MOST_NAMES = 40  # labels on the axis; of more parts, every second, third, ... is named


def figure(record: Record, number: int = 0) -> Any:
    """A matplotlib figure: gradient norms at the outputs and of the weights, first layer to last, on a logarithmic scale.

    What isn't finite is a red cross at the top, what is zero a mark at the bottom.
    """
    if not 0 <= number < len(record.passes):
        raise IndexError(f"there is no pass {number}: the record has {len(record.passes)}")
    try:
        from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("the figure needs matplotlib: pip install 'backlight[plot]'") from None
    one = record.passes[number]
    parts = [part for part in summary.flow(record, one) if part.weights is not None or part.activations is not None]
    place = places(record.sites)
    result = Figure(figsize=(max(6.0, min(16.0, 2 + 0.28 * len(parts))), 4.2), layout="constrained")
    axes = result.subplots()
    axes.set_title(
        f"{record.engine}: {one.call} at {place(one.site)}" if one.site else f"{record.engine}: {one.call}", parse_math=False
    )
    axes.set_ylabel("gradient norm")
    if not parts:
        axes.text(0.5, 0.5, "no gradient was measured", ha="center", transform=axes.transAxes)
        return result
    axes.set_yscale("log")
    _series(axes, [part.activations for part in parts], "at the output", "tab:blue", "o")
    _series(axes, [part.weights for part in parts], "of the weights", "tab:orange", "s")
    every = math.ceil(len(parts) / MOST_NAMES)
    shown = range(0, len(parts), every)
    names = [printable(parts[i].label or place(parts[i].site)) for i in shown]
    axes.set_xticks(
        list(shown), names, rotation=60 if len(names) > 6 else 0, ha="right" if len(names) > 6 else "center", parse_math=False
    )
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False)
    return result


def _series(axes: Any, values: list[float | None], label: str, colour: str, marker: str) -> None:
    regular = [value if value is not None and value > 0 and math.isfinite(value) else None for value in values]
    places = [i for i, value in enumerate(regular) if value is not None]
    axes.plot(places, [regular[i] for i in places], marker=marker, markersize=4, linewidth=1.2, label=label, color=colour)
    for height, mark, colour_, wanted in ((0.97, "x", "tab:red", _is_bad), (0.03, "v", colour, lambda value: value == 0)):
        special = [i for i, value in enumerate(values) if value is not None and wanted(value)]
        if special:
            axes.plot(
                special, [height] * len(special), mark, color=colour_, transform=axes.get_xaxis_transform(), clip_on=False
            )


def _is_bad(value: float) -> bool:
    return not math.isfinite(value)
