"""Options of the tests, and one thread each for NumPy and PyTorch: more would only compete for the processors."""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import pytest  # noqa: E402
import torch  # noqa: E402

collect_ignore = ["distributed"]  # programs for several processes

torch.set_num_threads(1)
torch.set_warn_always(True)  # or what a test sees would depend on which tests ran before


def pytest_addoption(parser):
    parser.addoption("--programs", type=int, default=300, help="how many random programs test_random_programs.py runs")
    parser.addoption(
        "--recorded",
        choices=("backlight", "torch"),
        help="run every test with the inspector recording this engine: what a test compares must not change (but for tests of memory and cost)",
    )
    parser.addoption("--whole", action="store_true", help="run the sweeps over all their cases, not over a sample")


@pytest.fixture(scope="session")
def whole(request) -> bool:
    """Whether sweeps run over all their cases."""
    return request.config.getoption("--whole")


@pytest.fixture(autouse=True)
def recorded(request):
    """A recording around the test, with the option --recorded."""
    engine = request.config.getoption("--recorded")
    if engine is None:
        yield
        return
    from backlight import inspect

    with inspect.record("full", engine=engine) as record:
        yield
    assert record.findings is not None
    assert record.to_jsonl()


@pytest.fixture(name="torch", params=["backlight", "torch"])
def engine(request):
    """Backlight and PyTorch in turn, with a seed."""
    if request.param == "torch":
        module = torch
    else:
        import backlight as module
    module.manual_seed(0)
    return module
