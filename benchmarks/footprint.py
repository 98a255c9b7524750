"""What a package costs before it computes: the time of its import, and its size on disk."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import Distribution, distribution
from pathlib import Path
from statistics import median

from .compare import spread


def import_times(rounds: int) -> dict:
    """Seconds of `import X` in fresh processes, by turns, with compiled bytecode: medians, and ratios over the rounds."""
    names = ("numpy", "backlight", "torch")
    times: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for i in range(rounds + 1):
            for name in names:
                code = f"from time import perf_counter as t; a = t(); import {name}; print(t() - a)"
                result = subprocess.run(
                    [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
                )
                if i:  # the first round compiles
                    times[name].append(float(result.stdout))
    found: dict = {name: median(values) for name, values in times.items()}
    for other in ("numpy", "torch"):
        ratios = [ours / theirs for ours, theirs in zip(times["backlight"], times[other])]
        found[f"ratio to {other}"] = median(ratios)
        found[f"spread to {other}"] = spread(ratios)
    return found


def install_sizes() -> dict:
    """Bytes on disk (without bytecode): the package alone, and with everything that it requires."""
    found = {}
    for name in ("backlight", "torch"):
        own = _package_size(name)
        required = _required(name) - {name}
        found[name] = {"alone": own, "with dependencies": own + sum(_distribution_size(distribution(d)) for d in required)}
    return found


def _package_size(name: str) -> int:
    """By its folder, since an editable installation lists no files of its own."""
    folder = Path(importlib.import_module(name).__file__).parent
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc")


def _distribution_size(found: Distribution) -> int:
    files = {Path(str(found.locate_file(file))) for file in found.files or () if file.suffix != ".pyc"}
    return sum(path.stat().st_size for path in files if path.is_file())


def _required(name: str) -> set[str]:
    """The installed distributions that `name` needs, directly or not, without extras."""
    from packaging.requirements import Requirement

    seen, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return seen
