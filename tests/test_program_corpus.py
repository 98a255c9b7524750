"""The programs in examples/programs print the same text and numbers under PyTorch and under `backlight run`.

Text and whole numbers must be equal. Other numbers may differ by 1e-5 of their size up to the first line that has one (that of the
first step), and by 1e-3 later, as rounding errors grow in training; and by one unit of the last digit that is printed.

As a script this file measures the programs and writes the table of examples/programs/README.md.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "cartpole")  # that is a module of some
COMMANDS = (), ("-m", "backlight", "run")
NUMBER = re.compile(r"-?\d+\.?\d*")


def run(program: str, *command: str) -> str:
    """What a program prints."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, *command, str(FOLDER / f"{program}.py")], capture_output=True, text=True, env=env, timeout=240
    )
    assert done.returncode == 0, f"{' '.join(command) or 'python'} {program}.py\n{done.stdout}{done.stderr}"
    return done.stdout


def differences(expected: str, found: str) -> list[str]:
    """The lines that don't agree."""
    theirs, ours, wrong, tolerance = expected.splitlines(), found.splitlines(), [], 1e-5
    for a, b in zip(theirs, ours):
        numbers, same_text = NUMBER.findall(a), NUMBER.sub("#", a) == NUMBER.sub("#", b)
        if not same_text or not all(close(x, y, tolerance) for x, y in zip(numbers, NUMBER.findall(b))):
            wrong.append(f"PyTorch:   {a}\nBacklight: {b}")
        if any("." in n for n in numbers):
            tolerance = 1e-3
    if len(theirs) != len(ours):
        wrong.append(f"PyTorch prints {len(theirs)} lines, Backlight {len(ours)}")
    return wrong


def close(expected: str, found: str, tolerance: float) -> bool:
    digits = len(expected.partition(".")[2])
    if not digits:
        return expected == found
    return abs(float(found) - float(expected)) <= max(tolerance * abs(float(expected)), 1e-6) + 1.01 * 10**-digits


@pytest.mark.parametrize("program", PROGRAMS)
def test_same_numbers(program):
    with ThreadPoolExecutor(2) as pool:
        expected, found = pool.map(lambda command: run(program, *command), COMMANDS)
    wrong = differences(expected, found)
    assert not wrong, "\n".join(wrong)


def test_differences():
    assert not differences("loss 0.123456\nstep 3  loss 1.00000", "loss 0.123457\nstep 3  loss 1.00099")
    assert differences("loss 0.123456", "loss 0.123460")
    assert differences("step 3", "step 4")
    assert differences("a 1.5\nloss 1.00000", "a 1.5\nloss 1.00200")
    assert differences("loss 1.5 x", "loss 1.5 y")
    assert differences("a\nb", "a")


def seconds(program: str, *command: str) -> float:
    """The processor time that a program takes, with its imports."""
    before = os.times()
    run(program, *command)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def write_table() -> None:
    readme = FOLDER / "README.md"
    for program in PROGRAMS:
        theirs, ours = (seconds(program, *command) for command in COMMANDS)
        print(f"{program:20s} {theirs:5.1f} {ours:5.1f}", flush=True)
        row = rf"(?m)^(\| \[{program}\.py\].*\|)[^|]*\|[^|]*\|$"
        readme.write_text(re.sub(row, rf"\1 {theirs:.1f} | {ours:.1f} |", readme.read_text()))


if __name__ == "__main__":
    write_table()
