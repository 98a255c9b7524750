"""PyTorch's own op database: every operation through both packages, as tests/op_sweep.py does it.

By default two samples of each operation in float64 and one in one more of its types; `pytest --whole` runs all samples in
all types, and then what `KNOWN` lists must really differ.
"""

from __future__ import annotations

import itertools

import op_sweep
import pytest


def pytest_generate_tests(metafunc):
    if "kind_of_number" in metafunc.fixturenames:
        whole = metafunc.config.getoption("--whole")
        cases = []
        for i, name in enumerate(op_sweep.NAMES):
            types = op_sweep.types_of(name, op_sweep.TYPES + (op_sweep.HALVES if whole else ()))
            others = [t for t in types if t != "float64"]
            picked = types if whole else [t for t in types if t == "float64"] + others[i % max(1, len(others)) :][:1]
            cases += [(name, t) for t in picked]
        metafunc.parametrize(("name", "kind_of_number"), cases)


def spread(n):
    """Picks n samples among the first 24, evenly."""

    def choose(samples):
        samples = list(itertools.islice(samples, 24))
        return (
            [samples[i] for i in sorted({round(k * (len(samples) - 1) / max(n - 1, 1)) for k in range(n)})] if samples else []
        )

    return choose


def check(tally, name, kind_of_number, whole):
    """Fails for what differs and isn't listed; with all samples also for what is listed and doesn't differ."""
    known = {kind for op, kind, t in op_sweep.KNOWN if op == name and t == kind_of_number}
    new = [f"{kind}, {failure}" for kind, failures in tally.failures.items() if kind not in known for failure in failures]
    assert not new, "\n".join(new)
    if whole:
        assert sorted(known - tally.failures.keys()) == [], "listed in KNOWN, but agrees"


@pytest.mark.sweep
def test_samples(name, kind_of_number, whole):
    choose = list if whole else spread(2 if kind_of_number == "float64" else 1)
    check(op_sweep.sweep(name, kind_of_number, choose), name, kind_of_number, whole)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [n for n in op_sweep.NAMES if op_sweep.DATABASE[n].error_inputs_func])
def test_errors(name):
    check(op_sweep.sweep_errors(name), name, "", True)


def test_known_names_what_exists():
    for name, kind, kind_of_number in op_sweep.KNOWN:
        assert kind in op_sweep.KINDS
        assert kind_of_number in (
            op_sweep.types_of(name, op_sweep.TYPES + op_sweep.HALVES) if kind != op_sweep.ERRORS else ("",)
        )


def test_every_operation_has_a_tier():
    assert op_sweep.DATABASE.keys() <= op_sweep.TIERS.keys()
