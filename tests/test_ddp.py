"""DistributedDataParallel, on several processes: see tests/distributed/ddp.py for the checks."""

from __future__ import annotations

import distributed_runs
import pytest

SCRIPT = "ddp.py"


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("check", distributed_runs.checks_of(SCRIPT))
def test_ddp(check, ranks):
    distributed_runs.assert_passed(SCRIPT, ranks, check)
