"""benchmarks/scaling: the simulation without stragglers is the formula, and docs/scaling.md shows what the program prints."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scaling import chart, costs, measure, report, simulation

NETWORK = costs.Network("a network", latency=25e-6, byte=0.8e-9, addition=0.1e-9)
WORK = costs.Workload("a model", forward=0.1, backward=0.2, gradients=100e6)


@pytest.mark.parametrize("ranks", [2, 8, 128])
@pytest.mark.parametrize("size", [8, 1e6])
@pytest.mark.parametrize("name", ["ring", "recursive_doubling", "rabenseifner"])
def test_allreduce_message_by_message(name, size, ranks):
    """All at once: the formula's time. One after the other: that time after the last one, and nobody is done before the last has begun."""
    expected = getattr(costs, name)(ranks, size, NETWORK)
    done = getattr(simulation, name)(np.zeros(ranks), size, NETWORK)
    np.testing.assert_allclose(done, expected, rtol=1e-9)
    ready = np.random.default_rng(0).random(ranks)
    done = getattr(simulation, name)(ready, size, NETWORK)
    assert done.max() == pytest.approx(ready.max() + expected)
    assert done.min() > ready.max()


def test_the_best_algorithm_is_chosen():
    assert costs.allreduce(1, 1e6, NETWORK) == 0
    assert costs.allreduce(64, 8, NETWORK) == costs.recursive_doubling(64, 8, NETWORK) < costs.rabenseifner(64, 8, NETWORK)
    assert costs.allreduce(64, 1e6, NETWORK) == costs.rabenseifner(64, 1e6, NETWORK) < costs.ring(64, 1e6, NETWORK)


@pytest.mark.parametrize("ranks", [1, 8, 1000])
@pytest.mark.parametrize("bucket", [1e5, 1e6, 25e6, 1e9])
def test_ddp_without_stragglers(ranks, bucket):
    for algorithm in ("best", "ring"):
        expected = costs.ddp_step(ranks, WORK, NETWORK, bucket, algorithm)
        assert simulation.ddp_step(ranks, WORK, NETWORK, bucket, 0.0, 2, algorithm) == pytest.approx(expected)


@pytest.mark.parametrize("workers", [1, 2, 10, 100])
def test_server_without_stragglers(workers):
    expected = costs.server_step(workers, 0.3, 1e6, NETWORK)
    assert simulation.server_step(workers, 0.3, 1e6, NETWORK, 0.0, 10) == pytest.approx(expected)
    assert (workers > costs.server_limit(0.3, 1e6, NETWORK)) == (expected == workers * 1.7e-3)


@pytest.mark.parametrize("stages", [1, 4, 64])
def test_pipeline_without_stragglers(stages):
    expected = costs.pipeline_step(stages, 16, WORK, 1e6, NETWORK)
    assert simulation.pipeline_step(stages, 16, WORK, 1e6, NETWORK, 0.0, 2) == pytest.approx(expected)


def test_pipeline_limit_is_the_fewest_seconds():
    limit = costs.pipeline_limit(16, WORK, 1e6, NETWORK)
    times = {stages: costs.pipeline_step(stages, 16, WORK, 1e6, NETWORK) for stages in range(1, 200)}
    assert min(times, key=times.__getitem__) == pytest.approx(limit, abs=1)


def test_stragglers_cost_the_expected_maximum():
    """With one bucket, nothing to send and no forward, a step is the slowest rank's time."""
    work = costs.Workload("backward only", forward=0.0, backward=1.0, gradients=1.0)
    free = costs.Network("none", 0.0, 0.0, 0.0)
    for ranks in (1, 10, 1000):
        found = simulation.ddp_step(ranks, work, free, 1.0, 0.05, 400)
        assert found - 1 == pytest.approx(0.05 * costs.expected_maximum(ranks), abs=0.005)
    assert costs.expected_maximum(2) == pytest.approx(1 / np.sqrt(np.pi), abs=1e-5)


def test_ranks_that_share_processors():
    here = costs.Network("here", latency=1e-6, byte=1e-10, addition=0.0, processors=2, switch=5e-6)
    assert here.shared_by(2) == here
    crowded = here.shared_by(3)
    assert (crowded.latency, crowded.byte) == pytest.approx((6e-6, 2e-10))
    work = costs.Workload("w", 0.1, 0.2, 1e6)
    assert costs.crowded_step(4, work, here, 1e6) == pytest.approx(0.6 + costs.allreduce(4, 1e6, here))


def test_the_page_shows_what_the_program_prints():
    page = report.PAGE.read_text(encoding="utf-8")
    assert report.filled(page, measure.load()) == page, "run python -m benchmarks.scaling"
    with pytest.raises(ValueError, match="has 0 places for the table 'constants'"):
        report.filled("", measure.load())


def test_the_chart_is_drawn(tmp_path):
    chart.write(measure.load(), tmp_path / "chart.svg")
    drawn = (tmp_path / "chart.svg").read_text(encoding="utf-8")
    assert all(f"axes_{i}" in drawn for i in (1, 2, 3, 4))
    assert chart.CHART.read_text(encoding="utf-8").startswith("<?xml")
