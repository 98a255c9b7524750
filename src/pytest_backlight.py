"""The pytest plugin of Backlight: the fixture `backlight`, checks of gradients for a project's tests (docs/testing.md).

pytest imports this file in every run wherever Backlight is installed, so it stands beside the package and not in it: importing
anything of `backlight` imports NumPy, which takes as long as a third of pytest's own start. The checks are imported by the
first test that uses the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from backlight.inspect.testing import Checks


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("backlight").addoption(
        "--backlight-update", action="store_true", help="write the files that backlight.check_order compares with"
    )


@pytest.fixture
def backlight(request: pytest.FixtureRequest) -> Checks:
    """Checks of gradients, for models of Backlight and of PyTorch: check_gradients, check_no_growth, check_saved_bytes,
    check_order, check_function, and record."""
    from backlight.inspect.testing import Checks

    return Checks(request.path.parent, update=bool(request.config.getoption("backlight_update")))
