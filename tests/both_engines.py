"""Programs under the inspector on either engine, for tests that take the fixture `torch`."""

import linecache
import warnings

import torch as pytorch

from backlight import inspect


def traced(torch, program, policy="norms"):
    """(the record of a program, what it returned, what it raised)."""
    result = error = None
    with inspect.record(policy, engine="torch" if torch is pytorch else "backlight") as record:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = program(torch)
        except Exception as raised:
            error = raised
    return record, result, error


def line_of(site) -> str:
    return linecache.getline(site.file, site.line).strip()


def only(record, kind):
    """The one finding of this kind."""
    found = [finding for finding in record.findings if finding.kind == kind]
    assert len(found) == 1, [str(x) for x in record.findings]
    return found[0]
