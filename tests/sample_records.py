"""Records made by hand, without an engine: what the renderers are tested with."""

import linecache
import math
from contextlib import contextmanager

from backlight.inspect import schema
from backlight.inspect.record import Record

TABLE_OF = {kind: name for name, kind in schema.TABLES.items()}


class Finding:
    """Stands in for `explain.Finding`."""

    def __init__(self, kind, severity, title, text="", fix="", sites=None, numbers=None, names=()):
        self.kind, self.severity, self.title, self.text, self.fix = kind, severity, title, text, fix
        self.sites, self.numbers, self.names = sites or {}, numbers or {}, list(names)


class Program:
    """Writes a record as if a program ran: `op` calls operations, `module` modules, `backward` simulates a pass."""

    def __init__(self, file="train.py", text="", policy="norms"):
        linecache.cache[file] = (len(text), None, [line + "\n" for line in text.splitlines()], file)
        self.record = Record("backlight", "0.2.0", policy, file)
        self.record.__dict__["findings"] = []
        self.file, self.norms = file, policy != "shapes"
        self.clock, self.modules, self.sites = 0.0, [], {}

    def event(self, kind, **values):
        """Appends an event to its table and to the record."""
        self.clock += 2e-6
        table = getattr(self.record, TABLE_OF[kind])
        event = kind(number=len(table), at=len(self.record.events), time=self.clock, thread=0, **values)
        table.append(event)
        self.record.events.append(event)
        return event

    def line(self, kind, **values):
        """Appends what has no time to its table."""
        table = getattr(self.record, TABLE_OF[kind])
        table.append(kind(number=len(table), **values))
        return table[-1]

    def site(self, line, file=None):
        key = file or self.file, line
        if key not in self.sites:
            self.sites[key] = self.line(schema.Site, file=key[0], line=line, function="forward")
        return self.sites[key]

    def tensor(self, shape, role="constant", name=None, requires_grad=None, **values):
        requires_grad = role in ("parameter", "leaf", "result") if requires_grad is None else requires_grad
        tensor = self.line(
            schema.Tensor, shape=shape, dtype="float32", requires_grad=requires_grad, leaf=role != "result", role=role,
            name=name, bytes=4 * math.prod(shape), storage=len(self.record.tensors), **values,
        )  # fmt: skip
        if tensor.leaf and requires_grad:
            tensor.node = self.line(schema.Node, name="AccumulateGrad", sequence=2**64 - 1, leaf=tensor)
        return tensor

    @contextmanager
    def module(self, type, name, line=1):
        parent = self.modules[-1] if self.modules else None
        call = sum(one.name == name for one in self.record.modules)
        module = self.event(schema.Module, name=name, type=type, parent=parent, call=call, site=self.site(line))
        self.modules.append(module)
        yield module
        self.modules.pop()
        module.seconds = self.clock - module.time + 1e-6

    def op(self, function, node, inputs, shape, line=1, saved=()):
        """Runs an operation; the result's node is called `node`. `saved`: (name, tensor) pairs."""
        module = self.modules[-1] if self.modules else None
        op = self.event(schema.Op, function=function, site=self.site(line), module=module, inputs=list(inputs))
        result = self.tensor(shape, "result", op=op)
        edges = [schema.Edge(x.node) if x.node is not None else None for x in inputs]
        result.node = self.line(schema.Node, name=node, sequence=op.number, op=op, edges=edges)
        result.node.saved = [schema.Saved(name, x, x.shape, x.dtype, x.bytes, x.storage, 0) for name, x in saved]
        op.outputs.append(result)
        return result

    def statistics(self, shape, norm):
        if not self.norms:
            return schema.Statistics(shape, "float32")
        bad = 0 if math.isfinite(norm) else max(1, math.prod(shape) // 2)
        return schema.Statistics(shape, "float32", norm, -norm / 3, norm / 2, 0 if norm else math.prod(shape), bad)

    def backward(self, loss, line, factor=lambda node: 0.9, error_at=None):
        """The steps of a pass from `loss`, newest node first. `factor(node)`: how a node changes the norm of a gradient."""
        one = self.event(schema.Pass, call="backward", site=self.site(line), roots=[loss], root_edges=[schema.Edge(loss.node)])
        needed, stack = {}, [loss.node]
        while stack:
            node = stack.pop()
            for edge in node.edges:
                if edge is not None:
                    if edge.node not in needed:
                        stack.append(edge.node)
                    needed[edge.node] = needed.get(edge.node, 0) + 1
        shape_of = {x.node: x.shape for x in self.record.tensors if x.node is not None}
        arrived, ready = {loss.node: 1.0}, [loss.node]
        while ready:
            node = ready.pop(max(range(len(ready)), key=lambda i: ready[i].sequence))
            norm = arrived[node]
            step = self.event(schema.Step, in_pass=one, index=len(one.steps) + 1, node=node, seconds=3e-6)
            one.steps.append(step)
            step.arrived.append(self.statistics(shape_of[node], norm))
            if len(one.steps) == error_at:
                step.seconds, one.error = None, "RuntimeError: something went wrong\nin two lines"
                break
            for edge in node.edges:
                if edge is None:
                    step.passed.append(None)
                    continue
                passed = norm * factor(node)
                step.passed.append(self.statistics(shape_of[edge.node], passed))
                arrived[edge.node] = math.hypot(arrived.get(edge.node, 0.0), passed)
                needed[edge.node] -= 1
                if not needed[edge.node]:
                    ready.append(edge.node)
            if node.leaf is not None:
                value = self.statistics(node.leaf.shape, norm)
                self.event(schema.GradientWrite, tensor=node.leaf, how="created", step=step, value=value)
            node.freed_by = step
            self.clock += 3e-6
        one.seconds, one.nodes = self.clock - one.time, len(needed) + 1
        for tensor in self.record.tensors:
            if tensor.role == "parameter" and tensor.name:
                value = self.statistics(tensor.shape, arrived[tensor.node]) if tensor.node in arrived else None
                one.gradients.append(schema.ParameterGradient(tensor.name, tensor, tensor.requires_grad, value))
        return one

    def linear(self, name, x, size, line):
        """A call of nn.Linear."""
        with self.module("Linear", name, line):
            weight = self.tensor((size, x.shape[1]), "parameter", f"{name}.weight")
            bias = self.tensor((size,), "parameter", f"{name}.bias")
            turned = self.op("t", "TBackward0", [weight], weight.shape[::-1], line)
            return self.op(
                "addmm", "AddmmBackward0", [bias, x, turned], (x.shape[0], size), line, [("mat1", x), ("mat2", turned)]
            )


MLP = """import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
unused = nn.Linear(3, 3)
x, y = torch.randn(16, 64), torch.arange(16) % 10

scores = model(x)
loss = nn.functional.cross_entropy(scores, y)  # </script><b>not markup</b> & "quotes"
loss.backward()
"""


def mlp(policy="norms", norm_factor=lambda node: 0.5, error_at=None):
    """A small network after one backward pass, with two findings."""
    program = Program("train.py", MLP, policy)
    x = program.tensor((16, 64), name="x")
    with program.module("Sequential", "", 8):
        hidden = program.linear("0", x, 32, 8)
        with program.module("ReLU", "1", 8):
            hidden = program.op("relu", "ReluBackward0", [hidden], hidden.shape, 8, [("result", hidden)])
        scores = program.linear("2", hidden, 10, 8)
    unused = program.tensor((3, 3), "parameter", "unused.weight")
    spread = program.op("log_softmax", "LogSoftmaxBackward0", [scores], scores.shape, 9, [("result", scores)])
    loss = program.op("nll_loss", "NllLossBackward0", [spread], (), 9, [("self", spread)])
    program.backward(loss, 10, norm_factor, error_at=error_at)
    used, made = program.site(8), program.site(5)
    program.record.__dict__["findings"] = [
        Finding(
            "none.unused", "error", "unused.weight has no gradient: it was never used",
            "The parameter unused.weight of shape 3x3 took part in no operation of the forward pass, so backward has nothing to "
            "pass to it and its .grad stays None. An optimizer leaves such a parameter as it is.",
            "Use it in forward(), or take it out of the optimizer.", {"created": made}, {"shape": unused.shape}, ["unused.weight"],
        ),
        Finding(
            "flow.vanishing", "warning", "Gradients shrink 40-fold from the last layer to the first <b>&",
            "The norm falls at every layer.", "Normalise the inputs.", {"shrinks": used, "gone": program.site(2, "missing.py")},
            {"ratio": 0.025, "bad": float("nan"), "huge": float("inf")}, ["0.weight"],
        ),
    ]  # fmt: skip
    return program.record


DEEP = """def forward(self, x):
    for block in self.blocks:
        x = x + block(x)
    return x

loss = model(x).sum()
loss.backward()
"""


def deep(blocks=334, policy="norms"):
    """A residual network of equal blocks; 9 nodes each, 3,008 in all with 334 of them."""
    program = Program("deep.py", DEEP, policy)
    x = program.tensor((8, 16), "leaf", "x")
    with program.module("Network", "", 6), program.module("Blocks", "blocks", 2):
        for i in range(blocks):
            with program.module("Block", f"blocks.{i}", 3):
                hidden = program.linear(f"blocks.{i}.linear", x, 16, 3)
                with program.module("GELU", f"blocks.{i}.act", 3):
                    hidden = program.op("gelu", "GeluBackward0", [hidden], hidden.shape, 3, [("self", hidden)])
                scale = program.tensor((16,), "parameter", f"blocks.{i}.scale")
                hidden = program.op(
                    "mul", "MulBackward0", [hidden, scale], hidden.shape, 3, [("self", hidden), ("other", scale)]
                )
                hidden = program.op("neg", "NegBackward0", [hidden], hidden.shape, 3)
            x = program.op("add", "AddBackward0", [x, hidden], x.shape, 3)
    loss = program.op("sum", "SumBackward0", [x], (), 6)
    program.backward(loss, 7, lambda node: 0.97 if node.name == "AddBackward0" else 0.6)
    return program.record


def plain(shape=(3,), norm=1.0, policy="norms"):
    """Two operations on a leaf, without modules: for shapes and norms at the edges."""
    program = Program("plain.py", "y = (x * 2).sum()\ny.backward()\n", policy)
    x = program.tensor(shape, "leaf", "x")
    y = program.op("mul", "MulBackward0", [x], shape, 1)
    loss = program.op("sum", "SumBackward0", [y], (), 1)
    program.backward(loss, 2, lambda node: norm)
    return program.record


def repeated(names):
    """Operations whose nodes have these names, one after the other, as in a loop: all but the last at line 2."""
    program = Program("loop.py", "for f in functions:\n    x = f(x)\nx.sum().backward()\n")
    x = program.tensor((4,), "leaf", "x")
    for name in names:
        x = program.op(name.lower(), name, [x], (4,), 2)
    program.backward(program.op("sum", "SumBackward0", [x], (), 3), 3)
    return program.record


NASTY = '</script><b>"x"</b>\\ `#;[]{}()|end\n\x1b[31m名前🦊 %% --> graph <!-- ]]>'


def nasty():
    """A record all of whose names and texts try to be markup."""
    program = Program(NASTY, f"{NASTY}\n{NASTY}\n")
    x = program.tensor((2, 3), "parameter", NASTY)
    with program.module(NASTY, NASTY):
        y = program.op(NASTY, NASTY, [x, x], (2, 3), 1, [(NASTY, x)])
        y = program.op(NASTY, NASTY, [y], (2, 3), 1, [(NASTY, x)])
    program.backward(program.op("sum", "SumBackward0", [y], (), 1), 2)
    finding = Finding("kind", "error", NASTY, NASTY, NASTY, {NASTY: program.site(1)}, {NASTY: NASTY}, [NASTY])
    program.record.findings.append(finding)
    return program.record
