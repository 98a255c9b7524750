"""Backward across processes, shown as one call order: the records of several ranks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import distributed_runs as runs
import pytest

import backlight
from backlight.inspect import Ranks, Record

pytestmark = pytest.mark.processes
EXAMPLES = Path(__file__).parent.parent / "examples"
PROGRAM = str(EXAMPLES / "p1_across_processes.py")


def launch(*arguments, timeout=90):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD_SIZE", "COLUMNS"))}
    result = runs.run([sys.executable, "-W", "ignore", "-m", "backlight", "launch", *arguments], environment, timeout)
    assert result.status == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def traced():
    return launch("-n", "2", "--trace", PROGRAM)


def test_the_program_prints_what_it_prints_on_pytorch(traced):
    on_pytorch = launch("-n", "2", "--engine", "torch", PROGRAM)
    lines = [
        line for line in on_pytorch.splitlines() if "Warning" not in line and "_coll_device" not in line and "[W" not in line
    ]
    assert "\n".join(lines).strip() == traced[: traced.index("\nBackward pass")].strip()
    assert "grad_fn=<RecvRpcBackward>" in traced


def test_the_call_order_goes_from_rank_to_rank_and_back(traced):
    table = traced[traced.index("Backward pass 1 of 5 on 2 ranks: 10 steps") : traced.index("Backward pass 2 of 5")]
    rows = [line.split() for line in table.splitlines() if re.match(r" *\d+ ", line)]
    assert [(int(row[1]), row[2]) for row in rows] == [
        (0, "SumBackward0"), (0, "MulBackward0"), (0, "AccumulateGrad"), (0, "RecvRpcBackward"),
        (1, "SendRpcBackward"), (1, "AddBackward0"), (1, "RecvRpcBackward"),
        (0, "SendRpcBackward"), (0, "AccumulateGrad"), (0, "AccumulateGrad"),
    ]  # fmt: skip
    assert (
        "to 5 on rank 1" in table and "from 4 on rank 0" in table and "to 8 on rank 0" in table and "from 7 on rank 1" in table
    )
    assert re.search(r"AddBackward0 +p1_across_processes.py:\d+", table) and re.search(r"AccumulateGrad +t4", table)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The records of two ranks that trained nothing but ran two backward passes together."""
    folder = tmp_path_factory.mktemp("ranks")
    program = folder / "program.py"
    program.write_text(
        """
import sys
import backlight as torch
from backlight.distributed import autograd, mpi, rpc

def double(x):
    return x * 2

rank = mpi.rank()
with torch.inspect.record("norms") as record:
    rpc.init_rpc(f"worker{rank}")
    if rank:
        x = torch.ones(3, requires_grad=True)
        for _ in range(2):
            with autograd.context() as context:
                here = rpc.rpc_sync("worker0", double, args=(x,))
                there = rpc.rpc_sync("worker0", double, args=(here + 1,))
                autograd.backward(context, [(there * x).sum()])
    rpc.shutdown()
ranks = torch.inspect.gather(record, to=1)
assert (ranks is None) == (rank == 0)
if ranks:
    for rank, record in ranks.records.items():
        record.to_jsonl(f"{sys.argv[1]}/rank{rank}.jsonl")
"""
    )
    launched = runs.launch(program, 2, folder)
    assert launched.status == 0, launched.output
    return [folder / "rank0.jsonl", folder / "rank1.jsonl"]


def test_records_in_files(files):
    ranks = Ranks.read(reversed(files))
    assert repr(ranks) == "<Ranks of 2 records: 2 backward passes>"
    order = ranks.order(1)
    assert [one.index for one in order] == list(range(1, len(order) + 1))
    messages = [(one.rank, one.sends_to.rank, one.index, one.sends_to.index) for one in order if one.sends_to]
    assert [m[:2] for m in messages] == [(1, 0), (0, 1), (1, 0), (0, 1)]
    assert all(sent < arrived for _, _, sent, arrived in messages)
    assert all(one.sends_to.waits_for is one for one in order if one.sends_to)
    for rank, one in ranks.passes[1].items():
        assert [step.step for step in order if step.rank == rank] == one.steps
    assert order[0].rank == 1  # where the loss is
    text = ranks.to_text(100)
    assert text.count("Backward pass") == 2 and max(map(len, text.splitlines())) <= 100
    assert ranks.to_text(100, steps=3, passes=1).count("… and") == 2
    dot = ranks.to_dot()
    assert dot.count("subgraph cluster_rank") == 2 and dot.count("style=dashed, color") == 4
    with pytest.raises(IndexError, match="there is no pass 2: the records have 2"):
        ranks.order(2)
    with pytest.raises(ValueError, match="two of the 2 records are of rank 1"):
        Ranks.read([files[1], files[1]])


def test_a_missing_record_is_no_obstacle(files):
    ranks = Ranks.read([files[1]])
    assert "rank 0, not recorded" in ranks.to_text(120)
    assert len(ranks.order(0)) == len(ranks.records[1].passes[0].steps)


def test_records_of_programs_that_are_alone():
    with backlight.inspect.record() as record:
        backlight.ones(2, requires_grad=True).sum().backward()
    assert "Backward pass 1 of 1 on 1 rank: 2 steps" in Ranks([record]).to_text()
    assert "No backward pass ran on 1 rank." in Ranks([Record()]).to_text()


def test_show(files, tmp_path):
    command = [sys.executable, "-m", "backlight", "show", *map(str, files)]
    done = subprocess.run([*command, "--width", "100", "-o", str(tmp_path / "ranks.dot")], capture_output=True, text=True)
    assert done.returncode == 0 and "Backward pass 2 of 2 on 2 ranks" in done.stdout, done.stderr
    assert (tmp_path / "ranks.dot").read_text().startswith("digraph")
    refused = subprocess.run([*command, "-o", str(tmp_path / "ranks.html")], capture_output=True, text=True)
    assert refused.returncode == 2 and "can be written as .dot" in refused.stderr


def test_tracing_pytorch_across_ranks_is_refused():
    command = [sys.executable, "-m", "backlight", "launch", "-n", "2", "--trace", "--engine", "torch", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "--trace shows backward across ranks on Backlight only" in done.stderr
