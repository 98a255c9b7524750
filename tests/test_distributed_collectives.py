"""torch.distributed's collectives, on several processes: see tests/distributed/collectives.py for the checks."""

from __future__ import annotations

import distributed_runs
import pytest

pytestmark = pytest.mark.processes
SCRIPT = "collectives.py"


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("check", distributed_runs.checks_of(SCRIPT))
def test_collectives(check, ranks):
    distributed_runs.assert_passed(SCRIPT, ranks, check)


def test_a_rank_that_dies_is_named():
    outcome = distributed_runs.launch("death.py", 3, timeout=30, options=("--with-ft", "ulfm"))
    for rank in (0, 2):
        text = f"rank {rank}: WorkerDied: all_reduce #2 of float32 [100000] with SUM in the default group: rank 1 has died."
        assert text in outcome.output, outcome.output[-4000:]
        assert (
            f"rank {rank}: RuntimeError: all_reduce of float32 [100000] with SUM in the default group can't run"
            in outcome.output
        )
