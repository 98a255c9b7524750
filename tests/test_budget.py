"""What is exact about cost: Python frames per operation, lines of the engine, what importing loads, bytes on the tape.

Times belong to `python -m benchmarks`; nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import backlight as torch

SOURCE = Path(torch.__file__).parent


def frames(function) -> list[str]:
    """The Python functions called while `function` runs, without `function` itself."""
    called = []

    def watch(frame, event, _argument):
        if event == "call":
            called.append(frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return called


@pytest.fixture
def pair():
    x, y = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    (x * y + x - y).tanh().sum().backward()  # operations write their code when first called
    return x, y


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("mul", lambda x, y: x * y),
        ("add", lambda x, y: x + y),
        ("div", lambda x, y: x / y),
        ("tanh", lambda x, _y: x.tanh()),
        ("exp", lambda x, _y: x.exp()),
        ("torch.mul", lambda x, y: torch.mul(x, y)),
    ],
)
def test_an_operation_is_one_frame(pair, name, function):
    function(*pair)
    called = frames(lambda: function(*pair))
    assert len(called) == 3, (name, called)  # the two lambdas above, and the operation


def test_frames_of_a_backward_step(pair):
    x, y = pair
    node, g = (x * y).grad_fn, x.array
    called = frames(lambda: node.run(g, node.edges, True))
    assert called[1:] == ["run", "<lambda>", "<lambda>"]  # the node, and one formula for each input
    node = (x + y).grad_fn
    called = frames(lambda: node.run(g, node.edges, True))
    assert called[1:] == ["run"]  # a formula that passes its gradient through needs no call


def test_frames_of_a_linear_layer_and_a_module_call():
    layer, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    layer(x)
    called = frames(lambda: layer(x))[1:]
    assert called[:3] == ["__call__", "forward", "linear"]  # what the user's call costs before the first operation
    assert called[3:] == ["t", "view_of", "addmm", "edge_of", "_addmm_arrays"]


def test_the_engine_reads_in_one_sitting():
    files = ["tensor.py", "engine.py", "views.py", "op.py"]
    assert sum(len((SOURCE / name).read_text().splitlines()) for name in files) < 1200


def test_what_importing_loads():
    code = (
        "import sys, json, numpy; before = set(sys.modules); import backlight; "
        "print(json.dumps(sorted(m for m in set(sys.modules) - before if not m.startswith('backlight'))))"
    )
    extra = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    heavy = {"numba", "rich", "jinja2", "ml_dtypes", "torch", "scipy", "logging", "dataclasses", "asyncio", "numpy.random"}
    assert not heavy & {m.split(".")[0] for m in extra} and "numpy.random" not in extra
    assert len(extra) < 15, extra


def test_importing_leaves_nn_and_optim_alone():
    code = "import sys, backlight; print([m for m in ('nn', 'optim', 'inspect', 'cli') if 'backlight.' + m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def tape_bytes(step, count=2000):
    """Bytes that one more operation keeps alive, without the array it computed."""
    x = torch.ones((), requires_grad=True)
    y = step(x)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(count):
        y = step(y)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / count


def test_bytes_on_the_tape():
    one = torch.tensor(1.0)
    assert tape_bytes(lambda y: y + one) < 170  # node and edges; the sum itself is not kept
    assert tape_bytes(lambda y: y * one) < 190  # the other factor is shared, but what is saved needs a tuple
    assert tape_bytes(lambda y: y.tanh()) < 290  # the result's array is kept


def test_a_node_has_no_dictionary(pair):
    node = (pair[0] * pair[1]).grad_fn
    assert not hasattr(node, "__dict__")
    assert sys.getsizeof(node) <= 120


def test_recording_is_paid_for_while_it_lasts(pair):
    from backlight import inspect

    x, y = pair
    plain = torch.mul.__code__
    with inspect.record():
        torch.mul(x, y)
        assert torch.mul.__code__ is not plain
        called = frames(lambda: torch.mul(x, y))
    assert torch.mul.__code__ is plain
    assert len(called) - 2 <= 32, called  # the lambda and the operation apart
    assert frames(lambda: torch.mul(x, y))[1:] == ["mul"]


def test_the_inspector_imports_little():
    program = "import sys, backlight.inspect; print([m for m in ('torch', 'rich', 'jinja2', 'matplotlib', 'tensorboardX') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
    program = "import sys, backlight; print([m for m in sys.modules if m.startswith('backlight.inspect')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
