"""docs/benchmarks.svg: the ratio of each row as a bar, faster than PyTorch to the left, slower to the right."""

from __future__ import annotations

from pathlib import Path

from . import report, workloads

CHART = Path(__file__).parent.parent / "docs" / "benchmarks.svg"
FASTER, SLOWER = ("#1a7f64", "#7cc4ae"), ("#c2561a", "#edae84")  # for the first number of threads, and the second
WORDS = {"faster": FASTER, "slower": SLOWER}


def write(result: dict, path: Path = CHART) -> None:
    """Draws the ratios of all rows, in their groups. The format is the one of the file's suffix."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    # The same measurements give the same file; the background is white, whatever theme the page has.
    style = {"svg.hashsalt": "benchmarks", "font.family": "DejaVu Sans", "font.size": 9, "figure.facecolor": "white"}
    with plt.rc_context(style):
        figure = _draw(plt, result)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, facecolor="white", bbox_inches="tight", metadata=metadata)
        plt.close(figure)


def _draw(plt, result: dict):
    timed = result["timed"]
    columns = list(timed)[:2]
    labels = [report.threads(n, result["machine"]["cores"]) for n in columns]
    places: dict[str, int] = {}
    groups: dict[str, int] = {}
    for group, members in workloads.GROUPS.items():
        groups[group] = len(places) + len(groups)
        for member in members:
            places[member.__name__] = len(places) + len(groups)
    total = len(places) + len(groups)
    figure, axes = plt.subplots(figsize=(9, 0.27 * total + 1.2))
    height = 0.8 / len(columns)
    for i, n in enumerate(columns):
        for name, found in timed[n].items():
            value, y = found["ratio"], places[name] - 0.4 + (i + 0.5) * height
            axes.barh(y, value - 1, left=1, height=height, color=(FASTER if value <= 1 else SLOWER)[i])
            offset, side = ((-3, -0.5), "right") if value <= 1 else ((3, -0.5), "left")
            axes.annotate(
                report.short(value), (value, y), offset, textcoords="offset points", ha=side, va="center", fontsize=6.5
            )
    for group, y in groups.items():
        beside = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points"}
        axes.annotate(group, (0, y), (-110, 0), va="center", weight="bold", **beside)

    ratios = [found["ratio"] for n in columns for found in timed[n].values()]
    low, high = min(*ratios, 0.5) / 1.5, max(*ratios, 2) * 1.5
    ticks = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= t <= high]
    axes.set(xscale="log", xlim=(low, high), ylim=(total - 0.4, -0.6))
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(list(places.values()), list(places), family="DejaVu Sans Mono", fontsize=8)
    axes.tick_params(length=0)
    axes.grid(axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.axvline(1, color="black", linewidth=1)

    means = [report.mean(found["ratio"] for found in timed[n].values()) for n in columns]
    summary = ", ".join(f"{mean:.2f} with {label}" for mean, label in zip(means, labels) if mean)
    axes.set_title(f"Backlight's time over PyTorch's (left of 1: Backlight is faster)\ngeometric mean {summary}", fontsize=10)
    keys = {f"{word}, {label}": colors[i] for i, label in enumerate(labels) for word, colors in WORDS.items()}
    patches = [plt.Rectangle((0, 0), 1, 1, color=color) for color in keys.values()]
    axes.legend(patches, keys, loc="lower left", bbox_to_anchor=(0, -0.055), ncols=4, fontsize=8, frameon=False)
    return figure
