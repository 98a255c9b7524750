"""Writes docs/compatibility.md: every operation of PyTorch's op database through both packages (tests/op_sweep.py).

python scripts/compatibility.py [--jobs 2] [-k REGEX]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
sys.path.insert(0, str(ROOT / "tests"))


def measure(case):
    """One operation in one type ("" for its error inputs), in a worker process."""
    import op_sweep
    import torch

    torch.set_num_threads(1)
    name, kind_of_number = case
    tally = op_sweep.sweep(name, kind_of_number) if kind_of_number else op_sweep.sweep_errors(name)
    return case, (tally.total, tally.passed, dict(tally.failures), tally.loops)


def measure_all(names, jobs):
    """{(name, type): (total, passed, failures, loops)}"""
    import op_sweep

    cases = [(name, t) for name in names for t in (*op_sweep.types_of(name), "")]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return dict(pool.imap_unordered(measure, cases, chunksize=4))


def table(head, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines)


def share(passed, total):
    return f"{passed} / {total} ({100 * passed / total:.2f} %)" if total else "-"


def summary(results):
    """Per tier and kind how many samples agree: in float64, and in all types."""
    from op_sweep import KINDS, TIERS

    parts = []
    for title, wanted in (("float64", ("float64", "")), ("all types", None)):
        total, passed = defaultdict(Counter), defaultdict(Counter)
        for (name, t), (t_total, t_passed, _failures, _loops) in results.items():
            if wanted is None or t in wanted:
                total[TIERS[name]].update(t_total)
                passed[TIERS[name]].update(t_passed)
        rows = [[tier, *(share(passed[tier][k], total[tier][k]) for k in KINDS)] for tier in sorted(total)]
        parts.append(f"**{title}**\n\n" + table(["tier", *KINDS], rows))
    return "\n\n".join(parts)


def namespace(name):
    if name.startswith("__"):
        return "operators"
    return "torch." + name.partition(":")[0].rpartition(".")[0] if "." in name else "torch"


def operations(names, results):
    """Every operation by namespace: what agrees, over all its types."""
    from op_sweep import KINDS, TIERS, VMAP

    groups = defaultdict(list)
    for name in sorted(names):
        total, passed, loops = Counter(), Counter(), set()
        for (other, _t), (t_total, t_passed, _failures, t_loops) in results.items():
            if other == name:
                total.update(t_total)
                passed.update(t_passed)
                loops |= t_loops
        cells = []
        for kind in KINDS:
            n, p = total[kind], passed[kind]
            cells.append("-" if not n else f"{p} of {n}" if p < n else "loop" if kind == VMAP and loops else "ok")
        groups[namespace(name)].append([f"`{name.removeprefix(namespace(name)[6:] + '.')}`", TIERS[name], *cells])
    parts = [f"### {group}\n\n" + table(["operation", "tier", *KINDS], rows) for group, rows in sorted(groups.items())]
    return "\n\n".join(parts)


def differences(results):
    """The failures by reason; those without one first."""
    from op_sweep import KNOWN

    groups = defaultdict(list)
    for (name, t), (total, passed, failures, _loops) in sorted(results.items()):
        for kind, texts in failures.items():
            what = f"`{name}`, {kind}{', ' + t if t else ''}: {passed[kind]} of {total[kind]} agree"
            reason = KNOWN.get((name, kind, t))
            groups[reason].append(what if reason else f"{what} ({texts[0]})")
    parts = []
    for reason, lines in sorted(groups.items(), key=lambda item: item[0] or ""):
        parts.append(
            f"**{reason[0].upper() + reason[1:] if reason else 'Not explained yet'}.**\n\n"
            + "\n".join(f"- {line}" for line in lines)
        )
    return "\n\n".join(parts) or "None.", len(groups[None])


def loops(results):
    found = sorted({name for (name, _t), (*_rest, names) in results.items() if names})
    return ", ".join(f"`{name}`" for name in found) + "." if found else "None."


def by_reason(reasons):
    groups = defaultdict(list)
    for name, reason in reasons.items():
        groups[reason].append(f"`{name}`")
    return "\n".join(
        f"- {reason[0].upper() + reason[1:]}: {', '.join(sorted(names))}." for reason, names in sorted(groups.items())
    )


def left_out():
    import op_sweep

    return f"### Of the op database\n\n{by_reason(op_sweep.LEFT_OUT)}"


def public_names():
    """How many public names of each place are there, which only in part, and which aren't planned."""
    from public_names import PLACES, names_of

    from backlight.compatibility import LEFT_OUT, PARTLY

    rows, parts = [], []
    for place in PLACES:
        public, missing = names_of(place)
        partly, absent = PARTLY.get(place, {}), LEFT_OUT.get(place, {})
        there = len(public) - len(missing)
        rows.append([f"`{place}`", len(public), share(there, len(public)), len(partly), len(missing)])
        lines = [f"### {place}"]
        names = ", ".join(f"`{name}`" for name in sorted(public - missing - partly.keys()))
        lines.append(f"**There** ({there - len(partly)}): {names}.")
        if partly:
            lines.append("**Partly**:\n" + by_reason({name: part.text for name, part in partly.items()}))
        if absent:
            lines.append("**Not planned**:\n" + by_reason(absent))
        parts.append("\n\n".join(lines))
    summary = table(["place", "public names", "there", "of these in part", "not planned"], rows)
    return summary + "\n\n" + "\n\n".join(parts)


def modules(jobs):
    """The samples of PyTorch's module and optimizer databases."""
    import module_sweep

    rows = []
    for name, info in module_sweep.INFOS.items():
        total, failures = module_sweep.sweep(info)
        rows.append((name, total, total - sum(failures.values())))
    del jobs
    total, passed = sum(r[1] for r in rows), sum(r[2] for r in rows)
    differing = ", ".join(f"`{name}` ({passed} of {total})" for name, total, passed in rows if passed < total)
    return (
        f"{len(rows)} modules and criteria: {share(passed, total)} samples agree{' but for ' + differing if differing else ''}."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("-k", default="", metavar="REGEX", help="only these operations; prints the page in place of writing it")
    options = parser.parse_args()

    import op_sweep
    import torch

    names = [name for name in op_sweep.NAMES if re.search(options.k, name)]
    start = time.time()
    results = measure_all(names, options.jobs)
    remaining, unexplained = differences(results)
    text = f"""# Compatibility with PyTorch {torch.__version__.partition("+")[0]}

Written by `python scripts/compatibility.py` from tests/op_sweep.py; don't edit. Every sample input of PyTorch's own op database
(`torch.testing._internal`) goes through both packages, in {", ".join(op_sweep.TYPES)} where PyTorch has the operation for the type.

| kind | what must agree |
| --- | --- |
| values | the outputs: values, types, shapes, and whether they require grad |
| gradients, double | the gradients of all inputs for random cotangents, and the gradients of these |
| forward | the tangents of the outputs for random tangents of all inputs (`autograd.forward_ad`) |
| in-place, out | `name_` and `inplace=True`: values and gradients; `out=` |
| strided | values and gradients for inputs whose memory has gaps |
| errors | the type of the exception for wrong inputs |
| vmap | `func.vmap` over two samples, with all tensors or some of them mapped, against a loop: values and gradients |

A sample counts where PyTorch itself supports the kind. Tiers: A what every program uses, B what many use, C what few use, D what
stands behind public operations.

## Summary

{summary(results)}

## What differs

{remaining}

## What runs in a loop under vmap

These operations give the right results under `vmap`, but run once for each sample (with a warning), for some arguments at least:
{loops(results)}

## Operations

ok: all samples agree. loop: they do, some in a loop. -: nothing to compare.

{operations(names, results)}

## Operations that are left out

{left_out()}

## Modules and optimizers

Every sample input of PyTorch's module database, in training and in evaluation, in float32 and float64: the printed text, the initial
parameters from one seed, outputs, gradients and state_dicts (tests/module_sweep.py). {modules(options.jobs)}

Every sample of its optimizer database, for 5 steps, and loaded again after 3: tests/test_optimizer_sweep.py.

## Public names

`backlight check SCRIPT` lists those that a script uses and that are missing or there in part.

{public_names()}
"""
    if options.k:
        print(text)
    else:
        PAGE.write_text(text)
    print(
        f"{len(names)} operations in {time.time() - start:.0f} s; {unexplained} differences without a reason", file=sys.stderr
    )
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
