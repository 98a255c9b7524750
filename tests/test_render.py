"""What a record looks like: as text, as graphs, as files for other programs, as a figure. test_page.py has the HTML page."""

import csv
import io
import json
import math
import re
import shutil
import subprocess
import sys

import pytest
from rich.cells import cell_len
from sample_records import Finding, Program, deep, mlp, nasty, plain, repeated

import backlight as torch
from backlight import inspect, nn
from backlight.inspect.record import Record
from backlight.inspect.render import summary, terminal, words
from backlight.inspect.render.fold import Group, fold

WIDTHS = (24, 40, 60, 80, 100, 200)


def test_words():
    assert [words.shape(s) for s in ((), (3,), (2, 0))] == ["scalar", "3", "2x0"]
    assert [words.number(x) for x in (None, 0.0, 1.0, 123456.0, 1e-9, math.nan, -math.inf)] == [
        "", "0", "1", "1.23e+05", "1e-09", "nan", "-inf",
    ]  # fmt: skip
    assert [words.duration(x) for x in (None, 0, 9.94e-6, 12e-6, 1.2e-3, 0.9999, 3.44)] == [
        "", "0.0 µs", "9.9 µs", "12 µs", "1.2 ms", "1.0 s", "3.4 s",
    ]  # fmt: skip
    assert [words.size(x) for x in (None, 0, 512, 1536, 200 * 2**20, 3 * 2**30)] == [
        "", "0", "512 B", "1.5 KiB", "200 MiB", "3 GiB",
    ]  # fmt: skip
    assert [words.count(1, "step"), words.count(2000, "step"), words.count(2, "pass")] == ["1 step", "2,000 steps", "2 passes"]
    assert words.printable("a\nb\x1b[31mc\t名") == "a b?[31mc 名"


def test_sparkline():
    assert words.sparkline([1e-4, 1e-2, 1.0], 10) == "▁▅█"
    assert words.sparkline([0.0, None, math.nan, 1.0], 10) == "· !▁"
    assert words.sparkline([], 10) == ""
    assert words.sparkline([float(2**i) for i in range(100)], 10) == "▁▂▃▃▄▅▆▆▇█"
    assert words.sparkline([1.0] * 50 + [math.inf] + [1.0] * 49, 10).count("!") == 1


# Text


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "make",
    [mlp, nasty, lambda: deep(8), lambda: mlp("shapes"), lambda: plain((10**9, 10**9), 1e300), lambda: plain((), math.nan)],
)
def test_text_fits(make, width):
    text = make().to_text(width)
    for line in text.splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip()
    assert "\x1b" not in text


def test_text_of_a_network():
    text = mlp().to_text(80)
    assert text.startswith("train.py on backlight 0.2.0: 1 backward pass, 7 operations, 4 module calls\n")
    assert "Backward pass 1 of 1: 11 steps in 33 µs\ntrain.py:10  loss.backward()" in text
    assert re.search(r"^ 3 AddmmBackward0 +train.py:8 +16x10 +0.25 +10 +0.125 +4 3.0 µs$", text, re.M)
    assert re.search(r"^unused.weight +3x3 +True +None$", text, re.M)
    assert re.search(r"^  0 +Linear +2 +12 KiB", text, re.M)
    order = ["error: none.unused", "Backward pass", "Call tree", "Gradients after the pass", "Modules", "Gradient norms"]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)


def test_findings_are_panels():
    text = mlp().to_text(60)
    lines = [line.strip("│ ") for line in text.splitlines()]
    assert "╭─ error: none.unused ─" in text
    assert "unused.weight has no gradient: it was never used" in lines
    assert "created: train.py:5" in lines
    assert lines[lines.index("created: train.py:5") + 1] == "unused = nn.Linear(3, 3)"
    assert "Fix: Use it in forward(), or take it out of the" in lines
    assert "gone: missing.py:2" in lines  # a file that can't be read has no source line


def test_shapes_have_no_norms():
    text = mlp("shapes").to_text(120)
    assert "norm" not in text.split("Backward pass")[1]
    assert re.search(r"^0.weight +32x64 +True +there$", text, re.M)
    assert re.search(r"^unused.weight +3x3 +True +None$", text, re.M)


def test_alarms():
    broken = mlp(norm_factor=lambda node: math.nan if node.name == "ReluBackward0" else 0.5)
    assert "step 7 made inf or nan: ReluBackward0  train.py:8" in broken.to_text()
    stopped = mlp(error_at=5).to_text(120)
    assert "ended in step 5 by RuntimeError: something went wrong" in stopped
    assert "in two lines" not in stopped
    assert re.search(r"5 +TBackward0 .*raised$", stopped, re.M)


def test_long_records_are_cut():
    text = deep().to_text(80, steps=10)
    assert len(text.splitlines()) < 100
    assert "… and 2,998 more steps" in text
    assert "more parameters" in text
    assert "more calls" in text
    outputs = next(line for line in text.splitlines() if line.startswith("outputs"))
    assert "▁" in outputs
    assert "█" in outputs


def test_parameters_in_trouble_are_not_cut():
    record = mlp()
    assert "unused.weight" in record.to_text(80, steps=1)


def test_empty_records():
    with inspect.record() as record:
        pass
    assert record.to_text(40) == "No backward pass ran.\n"
    assert record.to_csv().count("\n") == 1
    assert json.loads(record.to_chrome_trace())["traceEvents"]
    assert record.to_dot().startswith("digraph")
    assert record.to_mermaid().startswith("flowchart TD")
    assert "No backward pass ran" in record._repr_html_()
    with pytest.raises(IndexError, match="there is no pass 0"):
        record.figure()


def test_forward_alone():
    x = torch.ones(3, requires_grad=True)
    with inspect.record() as record:
        nn.Sequential(nn.Tanh())(x * 2)
    text = record.to_text()
    assert "No backward pass ran." in text
    assert "TanhBackward0" in record.to_dot()
    assert "Tanh" in text


def test_write_colours_only_terminals(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    file = Terminal()
    terminal.write(mlp(), file, 80)
    assert "\x1b[" in file.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    file = Terminal()
    terminal.write(mlp(), file, 80)
    assert "\x1b[3" not in file.getvalue()


def test_write_to_other_encodings():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    terminal.write(mlp(), file, 80)
    file.seek(0)
    assert " us\n" in file.read()


# Folding


def kinds(group):
    return [
        (child.kind, child.label, len(child.children)) if isinstance(child, Group) else child.name for child in group.children
    ]


def test_repeated_blocks_are_folded():
    record = deep(20)
    whole = fold(record, record.passes[0])
    assert kinds(whole) == [("module", "Network", 1), "SumBackward0"]
    (blocks,) = whole.children[0].children
    assert kinds(blocks) == ["AccumulateGrad", ("repeat", "Block + Add", 20)]
    turns = blocks.children[1].children
    assert kinds(turns[0])[-1] == "AddBackward0"
    assert len(list(whole.nodes())) == len(record.passes[0].steps)


def test_loops_are_folded_and_differences_are_not():
    record = repeated(["ExpBackward0", "SinBackward0"] * 6 + ["TanhBackward0"])
    whole = fold(record, record.passes[0])
    assert kinds(whole)[1:3] == [("repeat", "Exp + Sin", 6), "TanhBackward0"]
    record = repeated(["ExpBackward0", "SinBackward0"])
    assert not any(isinstance(child, Group) for child in fold(record, record.passes[0]).children)


def test_module_calls_alone():
    record = mlp()
    whole = fold(record, record.passes[0], repeats=False)
    assert kinds(whole) == [("module", "Sequential", 3), "LogSoftmaxBackward0", "NllLossBackward0"]
    assert kinds(whole.children[0]) == [("module", "0", 4), "ReluBackward0", ("module", "2", 4)]


def test_flow_keeps_the_turns_of_a_loop_apart():
    record = repeated(["ExpBackward0"] * 5)
    assert len(summary.flow(record, record.passes[0])) == 6


def test_saved_memory_is_counted_once():
    record = mlp()
    relu = next(node for node in record.nodes if node.name == "ReluBackward0")
    addmm = next(node for node in record.nodes if node.name == "AddmmBackward0" and node.module.name == "2")
    shared = {s.storage for s in relu.saved} & {s.storage for s in addmm.saved}
    assert not shared  # ReLU saved its result, the layer its input: the same tensor here
    both = [relu, relu]
    assert summary.saved_bytes(both) == summary.saved_bytes([relu])


# Graphs


@pytest.mark.parametrize("make", [mlp, nasty, lambda: deep(3)])
@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz's `dot`, which reads the graph back, isn't installed")
def test_dot_is_valid(make):
    record = make()
    svg = subprocess.run(["dot", "-Tsvg"], input=record.to_dot().encode(), capture_output=True, check=True)
    assert not svg.stderr
    assert svg.stdout.count(b'class="node"') == len(record.passes[0].steps)


def test_dot_and_mermaid_have_all_nodes_and_edges():
    record = mlp(norm_factor=lambda node: {"ReluBackward0": math.nan, "TBackward0": 0.0}.get(node.name, 0.5))
    dot, mermaid = record.to_dot(), record.to_mermaid()
    edges = sum(edge is not None for step in record.passes[0].steps for edge in step.node.edges)
    assert dot.count(" -> ") == edges
    assert len(re.findall("-->|==>|-.->", mermaid)) == edges
    assert dot.count("subgraph cluster_") == mermaid.count("subgraph ") == 3
    assert mermaid.count("subgraph ") == mermaid.count("    end\n") + mermaid.count("  end\n") - mermaid.count("    end\n")
    assert "==>" in mermaid
    assert "-.->" in mermaid
    assert '"AddmmBackward0\\n3. train.py:8 16x10"' in dot
    with pytest.raises(IndexError, match="there is no pass 1"):
        record.to_dot(1)


def test_labels_are_escaped():
    record = nasty()
    assert "<b>" not in record.to_mermaid().replace("<br>", "")
    for line in record.to_dot().splitlines():
        assert len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 0


# Other programs


def test_csv():
    rows = list(csv.DictReader(io.StringIO(mlp().to_csv())))
    assert len(rows) == 11
    assert rows[2] | {"source": "scores = model(x)", "to": "4 7 5", "line": "8", "module": "2", "norm_in": "0.25"} == rows[2]
    assert rows[3]["leaf"] == "2.bias"
    bad = list(csv.DictReader(io.StringIO(plain((), math.nan).to_csv())))
    assert bad[1]["norm_in"] == "nan"
    shapes = list(csv.DictReader(io.StringIO(mlp("shapes").to_csv())))
    assert shapes[0]["norm_in"] == ""


def spans_nest(spans):
    """Whether spans of a thread lie within or beside each other, as the trace format demands."""
    for thread in {span["tid"] for span in spans}:
        open_until = []
        for start, length in sorted((s["ts"], -s["dur"]) for s in spans if s["tid"] == thread):
            while open_until and open_until[-1] <= start + 1e-3:
                open_until.pop()
            if open_until and start - length > open_until[-1] + 1e-2:
                return False
            open_until.append(start - length)
    return True


def test_chrome_trace():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with inspect.record("norms") as record:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(5, 4)).sum().backward()
            optimizer.step()
    events = json.loads(record.to_chrome_trace())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {"Sequential", "0 (Linear)", "1 (ReLU)", "backward", "AddmmBackward0", "SGD.step"} <= {
        span["name"] for span in spans
    }
    assert all(span["dur"] >= 0 and span["ts"] >= 0 for span in spans)
    assert spans_nest(spans)
    counter = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert max(counter) > 0
    assert counter[-1] == 0
    json.loads(nasty().to_chrome_trace())
    json.loads(plain((), math.nan).to_chrome_trace())


def test_figure():
    pytest.importorskip("matplotlib", reason="matplotlib isn't installed (extra 'plot')")
    figure = mlp(norm_factor=lambda node: {"ReluBackward0": math.nan, "TBackward0": 0.0}.get(node.name, 0.5)).figure()
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "2", "train.py:9"]
    assert len(axes.lines) >= 3
    figure.canvas.draw()
    assert mlp("shapes").figure().axes[0].texts[0].get_text() == "no gradient was measured"


def test_figure_names_the_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'backlight\[plot\]'"):
        mlp().figure()


# Jupyter


def test_notebook():
    text = mlp()._repr_html_()
    assert "unused.weight has no gradient" in text
    assert "&lt;b&gt;&amp;" in text
    assert "<script" not in text
    assert "<style" not in text  # a style sheet would change the notebook around it
    assert text.count("<div") == text.count("</div>")
    assert len(deep()._repr_html_()) < 100_000
    assert "<b>&quot;x" not in nasty()._repr_html_()
    assert "</script" not in nasty()._repr_html_()


def test_read_back_records_look_the_same():
    record = mlp()
    again = Record.from_jsonl(record.to_jsonl())
    again.__dict__["findings"] = record.findings
    assert again.to_text() == record.to_text()
    assert again.to_dot() == record.to_dot()
    assert again.to_html() == record.to_html()


def test_findings_without_anything():
    program = Program("empty.py", "")
    program.record.findings.append(Finding("kind", "note", "Only a title"))
    assert "Only a title" in program.record.to_text()
    assert "Only a title" in program.record.to_html()
