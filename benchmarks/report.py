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
    return f"{name:18} {seconds(found['backlight']):>9} {seconds(found['torch']):>9}   {ratio(found)}"


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


def table(result: dict) -> str:
    """The Markdown table; rows that weren't measured are left out."""
    lines = ["| | Backlight | PyTorch | ratio |", "|---|---:|---:|---:|"]
    timed = result["timed"]
    for threads in timed:
        label = {"1": "one thread", "all": f"all {result['machine']['cores']} cores"}.get(threads, f"{threads} threads")
        for row in workloads.ROWS:
            found = timed[threads].get(row.__name__)
            if found:
                title = f"{row.__doc__}, {label}"
                lines.append(f"| {title} | {seconds(found['backlight'])} | {seconds(found['torch'])} | {ratio(found)} |")
    if "overhead" in result:
        found = result["overhead"]
        for part in ("forward", "backward"):
            title = f"{part} overhead per op over NumPy, whose own 8x8 add takes {found['add']['us']:.2f} µs"
            lines.append(f"| {title} | {found[part]['us']:.2f} µs | | |")
    if "tape" in result:
        ours, theirs = result["tape"]["backlight"]["resident"], result["tape"]["torch"]["resident"]
        lines.append(f"| memory of the graph per op | {ours:.0f} bytes | {theirs:.0f} bytes | {ours / theirs:.2f} |")
    if "import" in result:
        found = result["import"]
        low, high = found["spread to torch"]
        lines.append(
            f"| import (NumPy alone: {seconds(found['numpy'])}) | {seconds(found['backlight'])} | {seconds(found['torch'])} "
            f"| {found['ratio to torch']:.2f} ({low:.2f}-{high:.2f}) |"
        )
    if "size" in result:
        for key, title in (("alone", "size on disk"), ("with dependencies", "size on disk with dependencies")):
            ours, theirs = result["size"]["backlight"][key], result["size"]["torch"][key]
            lines.append(f"| {title} | {megabytes(ours)} | {megabytes(theirs)} | {ours / theirs:.3f} |")
    machine = result["machine"]
    lines += [
        "",
        f"{machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, NumPy {machine['numpy']}, PyTorch "
        f"{machine['torch']}; {result['rounds']} rounds. Ratios are medians over the rounds, with their middle half.",
    ]
    return "\n".join(lines)


def write_readme(result: dict) -> None:
    """Puts the table between the markers in README.md."""
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{table(result)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
