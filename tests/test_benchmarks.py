"""The benchmarks' rows compute the same under both packages, and what was measured becomes tables and a chart."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import backlight

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import chart, floors, report, workloads


def result(package, name: str) -> np.ndarray:
    """What the last part of a workload returns after one run."""
    parts = workloads.ROWS[name](package)
    value = parts[0]()
    for part in parts[1:]:
        value = part(value)
    return np.asarray(value.detach().numpy() if hasattr(value, "detach") else value)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # PyTorch's own, in forward mode
@pytest.mark.parametrize("name", [name for name in workloads.ROWS if not name.endswith("_4m")])
def test_both_packages_agree(name):
    ours, theirs = result(backlight, name), result(torch, name)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4 * abs(theirs).max())


@pytest.mark.parametrize("name", workloads.ROWS)
def test_rows_declare_what_they_cannot_do_without(name):
    row = workloads.ROWS[name]
    assert row.__doc__
    assert any(row.floor)


def test_floor_is_its_longest_part():
    found = floors.measure(floors.Floor(gemms=((2, 8, 8, 8),), moved=1000, calls=1_000_000))
    assert found["binding"] == "calls"
    assert found["seconds"] == found["all"]["calls"] > found["all"]["matrix products"] > 0


@pytest.fixture
def measured() -> dict:
    """Measurements of two rows, made up."""

    def row(ours, theirs):
        floor = {"seconds": 0.001, "binding": "memory"}
        spread = [0.9 * ours / theirs, 1.1 * ours / theirs]
        return {"backlight": ours, "torch": theirs, "ratio": ours / theirs, "spread": spread, "floor": floor}

    timed = {"chain": row(0.002, 0.004), "gelu_4m": row(0.004, 0.002)}
    return {
        "machine": {"cpu": "CPU", "cores": 2, "python": "3", "numpy": "2", "torch": "2"},
        "rounds": 3,
        "timed": {"1": timed, "all": {"chain": row(0.001, 0.004)}},
        "memory": {"chain": {"backlight": 10, "torch": 20}, "gelu_4m": {"backlight": 6_000_000, "torch": 2_000_000}},
    }


def test_tables(measured, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- benchmarks: begin -->\nold\n<!-- benchmarks: end -->\nafter\n")
    report.write_readme(measured, readme)
    text = readme.read_text()
    assert text.startswith("before\n<!-- benchmarks: begin -->\n![")
    assert text.endswith("\n<!-- benchmarks: end -->\nafter\n")
    assert "old" not in text
    assert "| 2 ms | 4 ms | 0.50 | 1 ms | 4 ms | 0.25 |  | 2.00 (memory) |" in text
    assert "| 4 ms | 2 ms | 2.00 |  |  |  | 3.00 | 4.00 (memory) |" in text
    assert "| **geometric mean** |  |  | **1.00** |  |  | **0.25** | **3.00** |" in text


def test_chart(measured, tmp_path):
    pytest.importorskip("matplotlib")
    chart.write(measured, tmp_path / "first.svg")
    chart.write(measured, tmp_path / "second.svg")
    assert (tmp_path / "first.svg").read_text() == (tmp_path / "second.svg").read_text()
