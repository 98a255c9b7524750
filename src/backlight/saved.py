"""Saved tensors under hooks: what `autograd.graph.saved_tensors_hooks` and `_raw_saved_*` put in their place.

A node of the usual kind knows nothing of this. When hooks are on, its class is exchanged for `packed_class(...)`, whose
`run` and `record` unpack what was packed before they do their work.
"""

from __future__ import annotations

from .errors import FREED, freed
from .state import modes, set_grad_mode
from .tensor import Tensor
from .versions import version_of
from .views import current_node

IN_PLACE = (
    "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be modified by in-place "
    "operations as this can lead to unexpected side-effects. Please open an issue if you need to perform in-place operations on the "
    "input to a pack hook."
)


class Packed:
    """What a pack hook made of a saved tensor, and what is needed to make a tensor of it again."""

    __slots__ = ("edge", "own", "packed", "same", "unpack_hook")
    version = None

    def __init__(self, tensor, pack_hook, unpack_hook, own=False):
        count = version_of(tensor).count
        was_enabled = modes.grad
        set_grad_mode(False)
        try:
            self.packed = pack_hook(tensor)
        finally:
            set_grad_mode(was_enabled)
        if version_of(tensor).count != count:
            raise RuntimeError(IN_PLACE)
        self.same = own and self.packed is tensor
        if self.same:  # the node would hold its own output: a cycle
            self.packed = tensor.array
        self.unpack_hook = unpack_hook
        self.own = own  # whether it is an output of the node that saved it
        self.edge = None if own else current_node(tensor)

    def moved(self, before, after) -> None:
        """The output that was packed as it is was written into another array."""
        if self.same and self.packed is before:
            self.packed = after

    def unpack(self, node=None):
        """The tensor, with the place in the graph that the saved one had."""
        packed = self.packed
        if self.same:
            packed = Tensor._from(packed)
            packed.node = node
        result = self.unpack_hook(packed)
        if not isinstance(result, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(result).__name__}"
            )
        edge = node if self.own else self.edge
        if result.node is None and edge is None:
            return result
        restored = result.detach() if type(result) is not Tensor else Tensor._from(result.array)
        restored.node = edge
        return restored


def pack_node(node, inputs, hooks) -> None:
    """Packs the tensors that a node saved (not numbers), in the order in which its formulas need them."""
    from .dispatch import saved_output

    op, saved = node.op, list(node.saved)
    count = len(op.inputs)
    first_use = [min(users, default=count) for users, _ in op.saves]
    for i in sorted(range(count), key=lambda i: (first_use[i], i)):
        if isinstance(saved[i], Tensor) and isinstance(inputs[i], Tensor):
            saved[i] = Packed(saved[i], *hooks)
    if saved[count] is not None:
        outputs = saved_output(node, saved[count])
        several = isinstance(outputs, tuple)
        made = [Packed(x, *hooks, own=True) for x in (outputs if several else (outputs,))]
        saved[count] = tuple(made) if several else made[0]
    node.saved = tuple(saved)
    node.__class__ = packed_class(type(node))


_classes: dict = {}


def packed_class(plain):
    """The node class `plain` for nodes of which something saved is packed."""
    if plain in _classes or plain in _classes.values():
        return _classes.get(plain, plain)

    checks_output = hasattr(plain, "saves_output")

    def unpacked(node):
        order = sorted(range(len(node.saved) - 1), key=lambda i: (min(node.op.saves[i][0], default=99), i))
        values = list(node.saved)
        for i in order:
            if type(values[i]) is Packed:
                values[i] = values[i].unpack()
                if values[i].version is not None:  # what a hook returns may have been written since it was saved
                    fresh = Tensor._from(values[i].array)
                    fresh.node, values[i] = values[i].node, fresh
        out = values[-1]
        if isinstance(out, tuple):
            values[-1] = tuple(x.unpack(node).array if type(x) is Packed else x for x in out)
        elif type(out) is Packed:
            values[-1] = out.unpack(node).array
        return tuple(values)

    def stepping(step):
        def run(node, g, edges, keep):
            if node.saved is None:
                raise freed(node)
            packed = node.saved
            node.saved = unpacked(node)
            if checks_output:
                node.output_version = None  # what hooks do between packing and unpacking can't be followed
            try:
                return step(node, g, edges, True)
            finally:
                node.saved = packed if keep else None

        return run

    members = {"__slots__": (), "run": stepping(plain.run), "record": stepping(plain.record)}
    _classes[plain] = type(plain.__name__, (plain,), members)
    return _classes[plain]


class SavedTensor:
    """A place in a node where a tensor is saved: `node._raw_saved_self`, for hooks on this one tensor."""

    __slots__ = ("node", "place")

    def __init__(self, node=None, place=None):
        if node is None:
            raise RuntimeError(
                "Trying to create a SavedTensor object from Python is forbidden.\nNodes make them: node._raw_saved_*."
            )
        self.node, self.place = node, place

    def _value(self):
        entries = _entries(self.node)
        if entries is None:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values of the graph are freed when "
                "you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second "
                "time or if you need to access saved variables after calling backward."
            )
        return entries[self.place]

    @property
    def data(self):
        """What the node holds: the tensor, or what the pack hook made of it."""
        value = self._value()
        return value.packed if type(value) is Packed else value

    def register_hooks(self, pack_hook=None, unpack_hook=None):
        """Packs the saved tensor with `pack_hook` now; `unpack_hook` makes it a tensor again when backward needs it."""
        if not callable(pack_hook) or not callable(unpack_hook):
            raise TypeError(
                "register_hooks(): incompatible function arguments. The following argument types are supported:\n    1. (self: "
                "torch._C._autograd.SavedTensor, arg0: collections.abc.Callable, arg1: collections.abc.Callable) -> None"
            )
        value = self._value()
        if type(value) is Packed:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of hooks is allowed at a "
                "time."
            )
        node = self.node
        if value is None:
            raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
        if hasattr(node, "_pack_saved"):  # a custom Function
            node._pack_saved(self.place, pack_hook, unpack_hook)
            return
        assert self.place is not None
        saved = list(node.saved)
        own = self.place == len(node.op.inputs)
        if own:
            from .dispatch import saved_output

            value = saved_output(node, value)
        saved[self.place] = Packed(value, pack_hook, unpack_hook, own)
        node.saved = tuple(saved)
        node.__class__ = packed_class(type(node))


def _entries(node):
    return node._saved_entries() if hasattr(node, "_saved_entries") else node.saved


def saved_value(node, i):
    """The tensor (or None) that a node saved at place `i`, unpacked."""
    from .dispatch import saved_output

    if node.saved is None:
        raise RuntimeError(FREED)
    value = node.saved[i]
    own = i == len(node.op.inputs)
    if isinstance(value, tuple):
        return tuple(
            x.unpack(node) if type(x) is Packed else x
            for x in (saved_output(node, value) if own and type(value[0]) is not Packed else value)
        )
    if type(value) is Packed:
        return value.unpack(node)
    return saved_output(node, value) if own and value is not None else value
