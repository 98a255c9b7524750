"""What the recorder for PyTorch notes about nodes, and which operation or custom Function made them."""

from __future__ import annotations

import itertools
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from .. import schema
from ..recorder import PLAIN_TYPES, is_plain
from .torch_names import NodeType, node_type
from .torch_tensors import TensorRecorder, grad_fn_of

if TYPE_CHECKING:
    from types import FrameType

_recorders = itertools.count()
COMPILED = "what happens inside of functions that torch.compile compiled: each is one node, CompiledFunctionBackward"
_APPLY = torch.autograd.Function.apply.__func__.__code__  # pyright: ignore[reportFunctionMemberAccess]


class NodeRecorder(TensorRecorder):
    """The part of `TorchRecorder` that knows nodes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.key = f"backlight {next(_recorders)}"  # under which a node's line lies in its metadata
        self.first_sequence = 0  # of the nodes that were made since the recording began
        self._inner: set[int] = set()  # numbers of tensors that operations inside of custom Functions' forward made
        self._node_types: dict[type, NodeType] = {}

    def _before(self, line: schema.Node, gradients: Any) -> None:
        """The prehook of a node (see `PassRecorder`)."""
        raise NotImplementedError

    def _after(self, line: schema.Node, passed: Any, arrived: Any) -> None:
        """The hook of a node (see `PassRecorder`)."""
        raise NotImplementedError

    # Nodes

    def known_node(self, node: Any) -> schema.Node | None:
        """The line of a node, if this recording has one."""
        return node.metadata.get(self.key)

    def node(self, node: Any, op: schema.Op | None = None) -> schema.Node:
        """The line of a node. Those behind it that are unknown are written down, too: `op` made them all."""
        key = self.key
        line = node.metadata.get(key)
        if line is not None:
            return line
        line = self._new_node(node, op)
        todo = [(node, line)]
        for current, its_line in todo:  # grows while it is walked: no recursion
            edges = its_line.edges
            for parent, number in current.next_functions:
                if parent is None:
                    edges.append(None)
                    continue
                parent_line = parent.metadata.get(key)
                if parent_line is None:
                    parent_line = self._new_node(parent, op)
                    if parent_line.leaf is None:
                        todo.append((parent, parent_line))
                edges.append(schema.Edge(parent_line, number))
            if op is None and self._node_types[type(current)].custom:
                self._find_custom_function(current, its_line)
        return line

    def _new_node(self, node: Any, op: schema.Op | None) -> schema.Node:
        kind = self._node_types.get(type(node))
        if kind is None:
            kind = self._node_types[type(node)] = node_type(node)
            if kind.name == "CompiledFunctionBackward" and COMPILED not in self.record.not_observable:
                self.record.not_observable.append(COMPILED)
        nodes = self.record.nodes
        number, sequence = next(nodes.numbers), node._sequence_nr()
        if kind.leaf:
            line = schema.Node(number, kind.name, sequence, None, [], self.tensor(node.variable), [], schema.EMPTY)
        else:
            name = kind.name or node.name().rpartition("::")[2]
            line = schema.Node(number, name, sequence, op, [], None, [], schema.EMPTY)
            if kind.has_saved:
                self._add_saved(line, node, kind)
            running = self.thread.running
            if running and running[-1] is not None:
                line.made_by = running[-1].step
            if self.policy != "shapes":
                node.register_hook(partial(self._after, line))
        node.register_prehook(partial(self._before, line))
        nodes.append(line)
        node.metadata[self.key] = line
        return line

    def _add_saved(self, line: schema.Node, node: Any, kind: Any) -> None:
        if kind.parameters and self.policy == "full":  # only replay needs them, and each costs half a microsecond
            line.parameters = parameters = {}
            for name, attribute in kind.parameters:
                value = getattr(node, attribute)
                if type(value) in PLAIN_TYPES:
                    parameters[name] = value
                elif is_plain(value):
                    parameters[name] = list(value)
        for name, tensor in kind.saved_tensors(node) if kind.tensors else ():
            found, version = self._tensors.get(id(tensor)), self.version(tensor)
            if found is not None and found[0]() is tensor:
                known = found[1]
                saved = schema.Saved(name, known, known.shape, known.dtype, known.bytes, known.storage, version)
            else:
                storage = self.storage(tensor)
                size = 0 if storage is None else tensor.nbytes
                known = self._saved_line(line.op, storage)
                saved = schema.Saved(name, known, tuple(tensor.shape), self._type_name(tensor.dtype), size, storage, version)
            if self.policy == "full":
                values = self._array_if_any(tensor)
                saved.values = None if values is None else values.copy()
            line.saved.append(saved)

    def _saved_line(self, op: schema.Op | None, storage: int | None) -> schema.Tensor | None:
        """The line of a saved tensor that isn't one of the program's: instead of an input a node can save a view of it."""
        for line in op.inputs if op is not None and storage is not None else ():
            if line.storage == storage:
                return line
        return None

    # Custom Functions

    def _custom_function(self) -> schema.Op | None:
        """The call of a custom Function whose forward runs now. PyTorch shows no such call: it is found from inside of it."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code is not _APPLY:
            frame = frame.f_back
        if frame is None or frame.f_back is None:
            return None
        local = dict(frame.f_locals)
        tensors: list = []
        arguments: list = []
        self._flatten((*local.get("args", ()), *local.get("kwargs", {}).values()), tensors, arguments)
        inputs = [self.tensor(t) for t in tensors]
        function, (site, via) = local["cls"], self.site_of(frame.f_back)
        calls = self.thread.custom_calls.setdefault(function, [])
        for op in reversed(calls[-4:]):
            if op.site is site and op.inputs == inputs and not op.outputs:
                return op
        op = self.op(function.__name__, inputs, arguments, True)
        op.site, op.via = site, via
        if not (self.thread.grad_off or any(x.requires_grad for x in inputs)):  # no node will pass on what happens inside
            self.add(self.record.modes, schema.Mode, "grad", False, site)
        calls.append(op)
        del calls[:-64]
        return op

    def _used(self, tensor: Any) -> schema.Tensor:
        """The line of a tensor that the program uses now."""
        line = self.tensor(tensor)
        if line.number in self._inner:
            self._settle(tensor, line)
        return line

    def _settle(self, tensor: Any, line: schema.Tensor) -> None:
        """A tensor that was made inside of a custom Function's forward, and is used: if that returned it, it has a node by now."""
        grad_fn = grad_fn_of(tensor)
        if grad_fn is None:
            return
        self._inner.discard(line.number)
        node = line.node = self.node(grad_fn)
        line.output, line.requires_grad, line.leaf, line.role = tensor.output_nr, True, False, "result"
        if node.op is not None:
            line.op = node.op
            node.op.outputs.append(line)

    def _find_custom_function(self, node: Any, line: schema.Node) -> None:
        """Finds the call that made a custom Function's node."""
        if line.sequence < self.first_sequence:
            return
        for op in reversed(self.thread.custom_calls.get(node._forward_cls, ())):
            if all(edge is None or any(edge.node is x.node or edge.node.leaf is x for x in op.inputs) for edge in line.edges):
                line.op = op
                return
        self.thread.adopted.append(line)

    def _adopt_custom_nodes(self, op: schema.Op) -> None:
        """Nodes of custom Functions whose forward used no operation belong to the operation that first used their result."""
        for line in self.thread.adopted:
            line.op = op
        self.thread.adopted.clear()
