"""`python -m benchmarks.scaling`: writes the tables and the chart of docs/scaling.md; with --measure after measuring anew, on 1 to 4 ranks."""

from __future__ import annotations

import argparse
import json

from . import chart, measure, report


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure first (a minute or two, and nothing else should run)")
    if parser.parse_args().measure:
        measure.MEASURED.write_text(json.dumps(measure.measure(), indent=1) + "\n", encoding="utf-8")
    measured = measure.load()
    for name, text in report.tables(measured).items():
        print(f"{name}\n{text}\n")
    report.PAGE.write_text(report.filled(report.PAGE.read_text(encoding="utf-8"), measured), encoding="utf-8")
    chart.write(measured)


if __name__ == "__main__":
    main()
