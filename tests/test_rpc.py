"""Remote calls and distributed autograd, each check of tests/distributed/ a test of its own."""

import json
import os
import re
import socket
import subprocess
import sys

import distributed_runs as runs
import pytest
from distributed_runs import SCRIPTS, assert_passed, checks_of

import backlight
from backlight.futures import Future

pytestmark = pytest.mark.processes
AUTOGRAD = re.findall(
    r"^def (only_here_)?check_(\w+)", (SCRIPTS / "dist_autograd.py").read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.parametrize("check", checks_of("remote_calls.py"))
def test_remote_calls(check):
    assert_passed("remote_calls.py", 3, check)


def test_rpc_ends_and_begins_again():
    launched = runs.cached("remote_calls.py", 3, 60)
    assert launched.status == 0 and launched.output.count("ended well") == 3, launched.output[-2000:]


@pytest.mark.parametrize("check", [name for _, name in AUTOGRAD])
def test_distributed_autograd(check):
    assert_passed("dist_autograd.py", 4, check)


@pytest.fixture(scope="module")
def on_pytorch():
    """The same program on PyTorch, in four processes: {check: [failure of each rank]}."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-W", "ignore", str(SCRIPTS / "dist_autograd.py"), "--torch", port]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPTS.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    found = {}
    for line in done.stdout.splitlines():
        if line.startswith(runs.MARK):
            _rank, name, failure = json.loads(line[len(runs.MARK) :])
            found.setdefault(name, []).append(failure)
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("check", [name for only_here, name in AUTOGRAD if not only_here])
def test_the_checks_of_distributed_autograd_hold_on_pytorch(check, on_pytorch):
    assert on_pytorch.get(check) == [""] * 4, on_pytorch.get(check)


# Futures, beside PyTorch's own: everything that needs no other process


def outcomes(torch):
    """What futures do, as text."""
    seen = []

    def show(act):
        try:
            seen.append(repr(act()))
        except BaseException as error:
            seen.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")

    future = torch.futures.Future()
    show(future.done)
    later = future.then(lambda done: done.value() + 1)
    future.add_done_callback(lambda done: seen.append(f"called with {done.value()}"))
    future.set_result(3)
    show(future.done), show(future.wait), show(future.value), show(later.wait)
    show(lambda: future.set_result(4))  # not set_exception: PyTorch refuses it, too, but spoils the value that was there
    future.add_done_callback(lambda done: seen.append(f"late with {done.value()}"))
    failed = torch.futures.Future()
    show(lambda: failed.set_exception(3))
    failed.set_exception(ValueError("x"))
    show(failed.wait), show(failed.value), show(failed.done)
    show(future.then(lambda done: done.value() + "text").wait)
    show(torch.futures.collect_all([]).wait)
    show(lambda: torch.futures.wait_all([future, future]))
    show(lambda: torch.futures.wait_all([future, failed]))
    return seen


def test_futures_do_what_those_of_pytorch_do():
    import torch

    assert outcomes(backlight) == outcomes(torch)


def test_a_callback_that_fails_is_shown(capsys):
    future = Future()
    future.add_done_callback(lambda done: 1 / 0)
    future.set_result(1)
    assert future.wait() == 1
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().err


def test_what_needs_rpc_says_so():
    rpc, autograd = backlight.distributed.rpc, backlight.distributed.autograd
    for act in (rpc.get_worker_info, rpc.shutdown, lambda: rpc.rpc_sync("a", print), lambda: rpc.remote("a", print)):
        with pytest.raises(RuntimeError, match="RPC has not been initialized. Call torch.distributed.rpc.init_rpc first"):
            act()
    with pytest.raises(RuntimeError, match="Need to initialize distributed autograd"):
        autograd.context().__enter__()
    with pytest.raises(ValueError, match="name is ''"):
        rpc.init_rpc("")


def test_importing_rpc_starts_no_mpi():
    code = "import sys, backlight.distributed.rpc, backlight.distributed.autograd; print('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_very_large_message(whole):
    size = (1 << 31) + 12_345 if whole else (1 << 26) + 12_345  # of more bytes than 32 bits can count: 9 GB of memory
    launched = runs.launch("large_message.py", 2, size, timeout=120)
    assert launched.status == 0 and "as it was sent" in launched.output, launched.output[-2000:]


def test_a_failed_future_leaves_no_cycle():
    future = Future()
    before = sys.getrefcount(future)
    future.set_exception(ValueError("x"))
    for read in (Future.wait, Future.value):
        with pytest.raises(ValueError):
            read(future)
    assert sys.getrefcount(future) == before


def test_the_others_go_on_when_a_worker_dies(whole):
    for _ in range(100 if whole else 1):
        launched = runs.launch("survivors.py", 4, timeout=40, options=("--with-ft", "ulfm"))
        ended = sorted(line for line in launched.output.splitlines() if line.endswith("ended well"))
        assert ended == ["worker0 ended well", "worker1 ended well"], launched.output[-3000:]
