"""DistributedDataParallel, on several processes: see tests/distributed/ddp.py for the checks."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import distributed_runs
import pytest

pytestmark = pytest.mark.processes
SCRIPT = "ddp.py"


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("check", distributed_runs.checks_of(SCRIPT))
def test_ddp(check, ranks):
    distributed_runs.assert_passed(SCRIPT, ranks, check)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_program_in_the_documentation(tmp_path, ranks):
    page = Path(__file__).parents[1] / "docs" / "distributed_training.md"
    (program,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    script = tmp_path / "train.py"
    script.write_text(program.replace('"model.pt"', repr(str(tmp_path / "model.pt"))), encoding="utf-8")
    if ranks == 1:  # without a launcher
        outcome = distributed_runs.run([sys.executable, str(script)], {**os.environ}, timeout=40)
    else:
        outcome = distributed_runs.launch(script, ranks, timeout=40)
    loss = re.search(rf"^loss (\d\.\d+) on {ranks} ranks$", outcome.output, re.M)
    assert loss is not None, outcome.output[-4000:]
    assert float(loss[1]) < 0.5
    assert (tmp_path / "model.pt").exists()
