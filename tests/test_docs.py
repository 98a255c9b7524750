"""The code in docs/ runs, and computes what PyTorch computes; the README says what is so; the type stubs are up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from backlight import kernels

ROOT = Path(__file__).parent.parent


def code(page: str) -> str:
    """The Python blocks of a page as one program, each line where it stands in the page."""
    lines, inside = [], False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        inside = inside and not line.startswith("```")
        lines.append(line if inside else "")
        inside = inside or line.startswith("```python")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def engine() -> dict:
    """The names that docs/engine.md defines."""
    names = {"__name__": "engine_page"}
    exec(compile(code("docs/engine.md"), "docs/engine.md", "exec"), names)
    return names


def test_engine_page_is_short(engine):
    assert 100 <= len([line for line in code("docs/engine.md").splitlines() if line.strip()]) <= 170


def test_engine_page_trains_as_pytorch_does(engine):
    random = np.random.default_rng(0)
    x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    targets = torch.tensor([[0], [1], [1], [0]], dtype=torch.float64)
    values = random.normal(size=(2, 8)), np.zeros(8), random.normal(size=(8, 1)), np.zeros(1)
    w1, b1, w2, b2 = parameters = [torch.tensor(v, requires_grad=True) for v in values]
    for _ in range(100):
        for p in parameters:
            p.grad = None
        error = torch.tanh(x @ w1 + b1) @ w2 + b2 - targets
        loss = (error * error).mean()
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= 0.2 * p.grad
    np.testing.assert_allclose(engine["loss"].array, loss.item(), rtol=1e-6)
    for name, p in zip(("w1", "b1", "w2", "b2"), parameters):
        np.testing.assert_allclose(engine[name].grad.array, p.grad.numpy(), rtol=1e-5, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
def test_engine_page_gives_pytorchs_second_derivatives(engine):
    a, b, c = np.random.default_rng(1).normal(size=(3, 3)), np.full((3, 1), 0.3), np.arange(3.0)  # x @ y + z broadcasts

    def program(tensor, tanh, matmul, total):
        leaves = [tensor(v) for v in (a, b, c)]
        x, y, z = leaves
        total(tanh(matmul(x, y) + z) * (2.0 - z) * x).backward(create_graph=True)
        first = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            if hasattr(leaf, "node"):
                leaf.node.grad = None
            else:
                leaf.grad = None
        loss = total(first[0] * first[0])
        for g in first[1:]:
            loss = loss + total(g * g)
        loss.backward()
        return [leaf.grad for leaf in leaves]

    ours = program(lambda v: engine["Tensor"](v, requires_grad=True), engine["tanh"], engine["matmul"], engine["mean"])
    theirs = program(lambda v: torch.tensor(v, requires_grad=True), torch.tanh, torch.matmul, torch.mean)
    for g, expected in zip(ours, theirs):
        np.testing.assert_allclose(g.array, expected.numpy(), rtol=1e-9, atol=1e-12)


def test_adding_an_op_page():
    """In a process of its own, because the page adds operations."""
    program = code("docs/adding_an_op.md") + (
        "\nimport doctest\n"
        "for name, function in [('softcap', softcap)]:\n"
        "    for test in doctest.DocTestFinder().find(function, name, globs=globals()):\n"
        "        assert doctest.DocTestRunner().run(test).failed == 0\n"
    )
    result = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, cwd=ROOT)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), result.stdout + result.stderr


@pytest.mark.skipif(not kernels.ENABLED, reason="kernels are switched off")
def test_kernels_page():
    names = {"__name__": "kernels_page"}
    exec(compile(code("docs/kernels.md"), "docs/kernels.md", "exec"), names)
    x = np.random.default_rng(0).standard_normal((7, 9, 11)).astype(np.float32)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True))
    for function in (names["scale_rows"], names["_scale_rows_arrays"]):
        assert function(x).dtype == np.float32
        np.testing.assert_allclose(function(x), expected, rtol=1e-6)


@pytest.mark.parametrize("page", ["docs/transforms.md", "docs/causes.md"])
def test_pages_that_run(page):
    exec(compile(code(page), page, "exec"), {})


def test_every_kind_of_finding_is_documented():
    sources = (ROOT / "src" / "backlight" / "inspect" / "explain").glob("*.py")
    kinds = {
        kind for path in sources for kind in re.findall(r'Finding\(\s*f?"([a-z{}-]+)",\s*"', path.read_text(encoding="utf-8"))
    }
    text = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
    assert len(kinds) > 15
    for kind in kinds:
        assert f"`{kind.replace('{kind}', 'vanishing')}`" in text, kind


@pytest.mark.parametrize("engine", ["backlight", "torch"])
def test_testing_page(engine, tmp_path):
    """It passes on both engines; what it says about the test without `allow_none` is what that one prints."""
    program = code("docs/testing.md")
    if engine == "torch":
        program = program.replace("import backlight as torch", "import torch")
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # installed or not, the plugin is there once

    def run(program, *arguments):
        (tmp_path / "test_page.py").write_text(program, encoding="utf-8")
        command = f"{sys.executable} -m pytest -q -W error -p pytest_backlight -p no:cacheprovider"
        return subprocess.run(
            [*command.split(), *arguments], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=120
        )

    for arguments in (["--backlight-update"], []):
        result = run(program, *arguments)
        assert result.returncode == 0, result.stdout + result.stderr
    result = run(program.replace(', allow_none=["spare.*"]', ""), "-k", "test_gradients")
    printed = "\n".join(line[1:].strip() for line in result.stdout.splitlines() if line.startswith("E "))
    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    shown = re.search(r"^```text\n(AssertionError.*?)^```", page, re.M | re.S)[1]

    def without_places(text):
        return [re.sub(r"\.py:\d+ `.*`", ".py", line.strip()) for line in text.splitlines()]

    assert without_places(printed) == without_places(shown)


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def trace(script: str) -> str:
    """What `backlight trace` prints after the script's own output, without numbers."""
    command = [sys.executable, "-m", "backlight", "trace", f"examples/{script}"]
    env = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=True)
    return without_numbers(result.stdout[result.stdout.index("Backward pass 1 of 1") :])


def without_numbers(text: str) -> str:
    """Order, nodes, lines and shapes: without times, values (their last digit depends on the processor) and columns' widths."""
    text = re.sub(r" *[\d.]+ [µm]?s\b", "", text)
    return re.sub(r" +", " ", re.sub(r"-?\d+\.\d+", "#", text)).replace(" \n", "\n").strip()


@pytest.mark.parametrize(
    ("page", "script"), [("README.md", "digits.py"), ("docs/cli.md", "p3_network_gradients.py")], ids=["README", "cli"]
)
def test_the_trace_shown_is_the_one_printed(page, script):
    blocks = re.findall(r"^```text\n(Backward pass.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    assert [without_numbers(block) for block in blocks] == [trace(script)]


def test_the_steps_shown_are_those_printed():
    text = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    shown = re.search(r"^```text\n(Step 1 of.*?)^```", text, re.M | re.S)[1]
    commands = "\n".join(re.findall(r"^> ([a-z].*)$", shown, re.M))
    command = [sys.executable, "-m", "backlight", "step", "examples/p3_network_gradients.py"]
    env = {**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, input=commands, capture_output=True, text=True, cwd=ROOT, env=env, check=True)
    assert without_numbers(result.stdout[result.stdout.index("Step 1 of") :]) == without_numbers(shown)


def test_readme_program():
    program = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)[1]
    result = subprocess.run([sys.executable, "-"], input=program, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == re.search(r"print\(x.grad\)  # (.*)", program)[1]


def test_versions_agree():
    from backlight import version

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"torch=={version.torch_version}" in project["optional-dependencies"]["test"]
    assert torch.__version__.partition("+")[0] == version.torch_version
    assert f"PyTorch {version.torch_version}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_type_stubs_are_up_to_date():
    command = [sys.executable, str(ROOT / "scripts" / "stubs.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, f"run scripts/stubs.py\n{result.stdout}{result.stderr}"
