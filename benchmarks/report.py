"""The measurements as text: lines for the terminal, the table for README.md."""

from __future__ import annotations

from pathlib import Path

from . import workloads

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


def seconds(value: float) -> str:
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size or unit == "µs":
            return f"{value / size:.3g} {unit}"
    raise AssertionError


def megabytes(value: int) -> str:
    return f"{value / 1e6:,.1f} MB" if value < 1e7 else f"{value / 1e6:,.0f} MB"


def ratio(found: dict) -> str:
    low, high = found["spread"]
    return f"{found['ratio']:.2f} ({low:.2f}-{high:.2f})"


def line(name: str, found: dict) -> str:
    """One comparison for the terminal."""
    floor = found["floor"]
    above = f"{found['backlight'] / floor['seconds']:.1f} ({floor['binding']})"
    return f"{name:21} {seconds(found['backlight']):>9} {seconds(found['torch']):>9}   {ratio(found):21} {above}"


def overhead_lines(found: dict) -> list[str]:
    add = found["add"]["us"]
    return [
        f"NumPy's own add of 8x8: {add:.2f} µs",
        *[
            f"{part} overhead over NumPy: {found[part]['us']:.2f} µs per op "
            f"({found[part]['spread'][0]:.2f}-{found[part]['spread'][1]:.2f}), "
            f"{found[part]['us'] / add:.2f} times NumPy's add"
            for part in ("forward", "backward")
        ],
    ]


def tape_lines(found: dict) -> list[str]:
    ours, theirs = found["backlight"], found["torch"]
    return [
        f"graph per op: {ours['resident']:.0f} bytes of memory, PyTorch {theirs['resident']:.0f} "
        f"(Python allocated {ours['traced']:.0f} for ours)"
    ]


def import_lines(found: dict) -> list[str]:
    lines = [
        f"import: backlight {seconds(found['backlight'])}, numpy {seconds(found['numpy'])}, torch {seconds(found['torch'])}"
    ]
    for other in ("numpy", "torch"):
        low, high = found[f"spread to {other}"]
        lines.append(f"import backlight / import {other}: {found[f'ratio to {other}']:.3f} ({low:.3f}-{high:.3f})")
    return lines


def size_lines(found: dict) -> list[str]:
    return [
        f"on disk: {name} {megabytes(size['alone'])}, with dependencies {megabytes(size['with dependencies'])}"
        for name, size in found.items()
    ]


def recording_lines(found: dict) -> list[str]:
    return [
        f"recording on {package}: {way} {ratio:.2f} of the plain step ({seconds(one['seconds'])})"
        for package, one in found.items()
        for way, ratio in one["ratios"].items()
        if way != "plain"
    ]


def recording_table(found: dict) -> list[str]:
    """What a recorded step takes, as a multiple of the plain one."""
    titles = {
        "shapes": 'policy "shapes": order and lines',
        "norms": 'policy "norms"',
        "anomaly": "`detect_anomaly()`, for comparison",
    }
    plain = " and ".join(
        f"{seconds(found[p]['seconds'])} on {n}" for p, n in (("backlight", "Backlight"), ("torch", "PyTorch"))
    )
    return [
        "",
        f"| recorded training step of a 20-layer network (256 wide, batch 64; plain: {plain}) | on Backlight | on PyTorch |",
        "|---|---:|---:|",
        *(
            f"| {title} | {found['backlight']['ratios'][way]:.2f} | {found['torch']['ratios'][way]:.2f} |"
            for way, title in titles.items()
        ),
    ]


def table(result: dict) -> str:
    """The Markdown table; what wasn't measured is left out."""
    columns = list(result["timed"])
    labels = {"1": "one thread", "all": "all threads"}
    lines = [
        "| " + "".join(f"| Backlight, {labels.get(n, f'{n} threads')} | PyTorch | ratio " for n in columns) + "|",
        "|---" + "|---:|---:|---:" * len(columns) + "|",
    ]

    def row(title, *cells):
        cells = (*cells, *("",) * (3 * len(columns) - len(cells)))
        lines.append(f"| {title} | {' | '.join(cells)} |")

    for workload in workloads.ROWS.values():
        cells = []
        for n in columns:
            found = result["timed"][n].get(workload.__name__)
            cells += [seconds(found["backlight"]), seconds(found["torch"]), ratio(found)] if found else ["", "", ""]
        row(workload.__doc__, *cells)
    if "overhead" in result:
        found = result["overhead"]
        for part in ("forward", "backward"):
            title = f"{part} overhead per operation over NumPy, whose own 8x8 add takes {found['add']['us']:.2f} µs"
            row(title, f"{found[part]['us']:.2f} µs")
    if "tape" in result:
        ours, theirs = result["tape"]["backlight"]["resident"], result["tape"]["torch"]["resident"]
        row("memory of the graph per operation", f"{ours:.0f} bytes", f"{theirs:.0f} bytes", f"{ours / theirs:.2f}")
    if "import" in result:
        found = result["import"]
        low, high = found["spread to torch"]
        times = seconds(found["backlight"]), seconds(found["torch"])
        row(f"import (NumPy alone: {seconds(found['numpy'])})", *times, f"{found['ratio to torch']:.2f} ({low:.2f}-{high:.2f})")
    if "size" in result:
        for key, title in (("alone", "size on disk"), ("with dependencies", "size on disk with dependencies")):
            ours, theirs = result["size"]["backlight"][key], result["size"]["torch"][key]
            row(title, megabytes(ours), megabytes(theirs), f"{ours / theirs:.3f}")
    machine = result["machine"]
    return "\n".join(
        [
            *lines,
            *(recording_table(result["recording"]) if "recording" in result else ()),
            "",
            f"{machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, NumPy {machine['numpy']}, PyTorch "
            f"{machine['torch']}. Ratios are medians over {result['rounds']} rounds, with their middle half.",
        ]
    )


def write_readme(result: dict) -> None:
    """Puts the table between the markers in README.md."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{table(result)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
