"""The measurements as text: lines for the terminal, the tables for README.md."""

from __future__ import annotations

from pathlib import Path
from statistics import geometric_mean, quantiles

from . import workloads

README = Path(__file__).parent.parent / "README.md"
PEERS_README = Path(__file__).parent / "README.md"
NAMES = {"backlight": "Backlight", "torch": "PyTorch"}
LEAST_MEMORY = 1_000_000  # bytes: below, pages decide rather than packages


def seconds(value: float) -> str:
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size or unit == "µs":
            return f"{value / size:.3g} {unit}"
    raise AssertionError


def megabytes(value: int) -> str:
    return f"{value / 1e6:,.1f} MB" if value < 1e7 else f"{value / 1e6:,.0f} MB"


def short(value: float) -> str:
    """A ratio in three digits, or two where it is below 1."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ratio(found: dict) -> str:
    low, high = found["spread"]
    return f"{found['ratio']:.2f} ({low:.2f}-{high:.2f})"


def memory_ratio(peaks: dict | None) -> float | None:
    """Backlight's growth over PyTorch's; None if it wasn't measured or neither needs memory worth counting."""
    if not peaks or max(peaks.values()) < LEAST_MEMORY:
        return None
    return peaks["backlight"] / max(peaks["torch"], LEAST_MEMORY / 10)


def mean(values) -> float | None:
    """The geometric mean of the values that were measured; None without any."""
    found = [value for value in values if value]
    return geometric_mean(found) if found else None


def threads(n: str, cores: int) -> str:
    n = str(cores) if n == "all" else n
    return "1 thread" if n == "1" else f"{n} threads"


HEADER = f"{'':21} {'backlight':>9} {'torch':>9}   {'ratio (middle half)':21} {'floor':>24} {'times it':>9} {'memory':>7}"


def line(name: str, found: dict, peaks: dict | None) -> str:
    """One comparison for the terminal."""
    floor = found["floor"]
    memory = memory_ratio(peaks)
    return (
        f"{name:21} {seconds(found['backlight']):>9} {seconds(found['torch']):>9}   {ratio(found):21} "
        f"{seconds(floor['seconds']) + ' ' + floor['binding']:>24} {short(found['backlight'] / floor['seconds']):>9} "
        f"{short(memory) if memory else '':>7}"
    )


def mean_line(timed: dict[str, dict]) -> str:
    """The geometric mean of the ratios, for the terminal."""
    return f"geometric mean of {len(timed)} rows: {mean(row['ratio'] for row in timed.values()):.3f}"


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


def _markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table whose columns but the first are numbers; short rows are filled up."""
    lines = [f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return lines + [f"| {' | '.join(row + [''] * (len(head) - len(row)))} |" for row in rows]


def rows_table(result: dict) -> list[str]:
    """The rows in their groups: times and ratios for each number of threads, ratio of memory, distance to the floor."""
    timed, peaks = result["timed"], result.get("memory", {})
    columns = list(timed)
    head = [""]
    for n in columns:
        head += [f"Backlight, {threads(n, result['machine']['cores'])}", "PyTorch", "ratio"]
    head += ["memory", "times the floor"]
    rows = []
    for group, members in workloads.GROUPS.items():
        members = [member for member in members if any(member.__name__ in timed[n] for n in columns)]
        if members:
            rows.append([f"**{group}**"])
        for member in members:
            name, cells = member.__name__, [member.__doc__]
            for n in columns:
                found = timed[n].get(name)
                cells += [seconds(found["backlight"]), seconds(found["torch"]), short(found["ratio"])] if found else [""] * 3
            memory = memory_ratio(peaks.get(name))
            first = next(timed[n][name] for n in columns if name in timed[n])
            above = first["backlight"] / first["floor"]["seconds"]
            rows.append([*cells, short(memory) if memory else "", f"{short(above)} ({first['floor']['binding']})"])
    cells = ["**geometric mean**"]
    for n in columns:
        total = mean(found["ratio"] for found in timed[n].values())
        cells += ["", "", f"**{total:.2f}**" if total else ""]
    memory = mean(map(memory_ratio, peaks.values()))
    rows.append([*cells, f"**{memory:.2f}**" if memory else ""])
    return _markdown(head, rows)


def costs_table(result: dict) -> list[str]:
    """What a package costs around the arithmetic: per operation, at import, on disk."""
    rows = []
    if "overhead" in result:
        found = result["overhead"]
        for part in ("forward", "backward"):
            title = f"{part} overhead per operation over NumPy, whose own 8x8 add takes {found['add']['us']:.2f} µs"
            rows.append([title, f"{found[part]['us']:.2f} µs"])
    if "tape" in result:
        ours, theirs = (result["tape"][package]["resident"] for package in NAMES)
        rows.append(["memory of the graph per operation", f"{ours:.0f} bytes", f"{theirs:.0f} bytes", short(ours / theirs)])
    if "import" in result:
        found = result["import"]
        times = [seconds(found[package]) for package in NAMES]
        rows.append([f"import (NumPy alone: {seconds(found['numpy'])})", *times, short(found["ratio to torch"])])
    if "size" in result:
        for key, title in (("alone", "size on disk"), ("with dependencies", "size on disk with dependencies")):
            ours, theirs = (result["size"][package][key] for package in NAMES)
            rows.append([title, megabytes(ours), megabytes(theirs), f"{ours / theirs:.3f}"])
    return ["", *_markdown(["", *NAMES.values(), "ratio"], rows)] if rows else []


def recording_table(found: dict) -> list[str]:
    """What a recorded step takes, as a multiple of the plain one."""
    titles = {
        "shapes": 'policy "shapes": order and lines',
        "norms": 'policy "norms"',
        "anomaly": "`detect_anomaly()`, for comparison",
    }
    plain = " and ".join(f"{seconds(found[package]['seconds'])} on {name}" for package, name in NAMES.items())
    title = f"recorded training step of a 20-layer network (256 wide, batch 64; plain: {plain})"
    rows = [[title, *(f"{found[package]['ratios'][way]:.2f}" for package in NAMES)] for way, title in titles.items()]
    return ["", *_markdown([title, *(f"on {name}" for name in NAMES.values())], rows)]


def peers_tables(result: dict) -> str:
    """Times of all libraries on the rows they can do, a table for each number of threads; the least is bold."""
    libraries = [*NAMES, *result["versions"]]
    lines = []
    for n, rows in result["peers"].items():
        cells = []
        for name, times in rows.items():
            least = min(times.values())
            texts = [seconds(times[library]) if library in times else "—" for library in libraries]
            texts = [f"**{text}**" if times.get(library) == least else text for library, text in zip(libraries, texts)]
            cells.append([workloads.ROWS[name].__doc__, *texts])
        head = [threads(n, result["machine"]["cores"]), *(NAMES.get(library, library) for library in libraries)]
        lines += [*_markdown(head, cells), ""]
    machine = result["machine"]
    versions = [f"{library} {version}" for library, version in result["versions"].items() if library != "JAX, jit"]
    versions = ", ".join([f"NumPy {machine['numpy']}", f"PyTorch {machine['torch']}", *versions])
    lines.append(f"{machine['cpu']}, {machine['cores']} cores; {versions}. Medians over {result['rounds']} rounds or fewer.")
    if result["missing"]:
        lines.append(f"Not installed: {', '.join(result['missing'])}.")
    return "\n".join(lines)


def conditions(result: dict) -> list[str]:
    """What was measured where, and how sure the ratios are."""
    machine = result["machine"]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, NumPy {machine['numpy']}, PyTorch "
        f"{machine['torch']}; float32. Ratios are medians over {result['rounds']} rounds (fewer for slow rows)."
    ]
    halves = [
        (found["spread"][1] - found["spread"][0]) / 2 / found["ratio"]
        for rows in result["timed"].values()
        for found in rows.values()
    ]
    if len(halves) > 1:
        widest = quantiles(halves, n=10)[-1]
        lines[0] += f" For nine rows of ten, half of the rounds lie within {widest:.0%} around them."
    lines += [
        "Memory is the ratio of what the process grows by at its peak. The floor is what the row can't do without on this "
        "machine: its matrix products in NumPy's BLAS, a copy of the bytes it must read and write, or NumPy's calls for its "
        "operations, whichever takes longest; the column says how many times as long Backlight takes with "
        f"{threads(next(iter(result['timed']), '1'), machine['cores'])}."
    ]
    return ["", *lines]


def tables(result: dict) -> str:
    """All tables in Markdown; what wasn't measured is left out."""
    lines = rows_table(result) if any(result["timed"].values()) else []
    lines += costs_table(result)
    lines += recording_table(result["recording"]) if "recording" in result else []
    return "\n".join([*lines, *conditions(result)])


def write_readme(result: dict, readme: Path = README) -> None:
    """Puts the chart and the tables between the markers in README.md."""
    chart = "![Backlight's time over PyTorch's, for each row](docs/benchmarks.svg)\n\n"
    _write_between(readme, "benchmarks", chart + tables(result))


def write_peers(result: dict, readme: Path = PEERS_README) -> None:
    """Puts the tables of other libraries between the markers in benchmarks/README.md."""
    _write_between(readme, "peers", peers_tables(result))


def _write_between(file: Path, name: str, text: str) -> None:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = file.read_text(encoding="utf-8").split(begin)
    file.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")
