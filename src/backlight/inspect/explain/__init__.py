"""Causes: why a gradient is None, zero, NaN or an error, why a parameter doesn't move, what keeps a graph alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import contributions, depth, errors, missing, nonfinite, parameters, zero
from .finding import SEVERITIES, Finding
from .flow import Flow

if TYPE_CHECKING:
    from ..record import Record

__all__ = ["Finding", "findings"]

CAUSES = (errors, missing, nonfinite, parameters, zero, depth, contributions)


def findings(record: Record) -> list[Finding]:
    """Everything remarkable about a record, the most severe first."""
    flow = Flow(record)
    found = [finding for cause in CAUSES for finding in cause.findings(flow)]
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))
