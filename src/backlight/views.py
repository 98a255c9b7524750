"""Shared memory: version counters, views, and the graph's changes under in-place writes.

A view has `base`, a `View` that names the root tensor whose memory it shows. Tensors that share memory share
one `Version`. Writing in place ticks the version with the engine's clock, so a node can tell that what it
saved was written after the node was made. A write with gradient also *rebases* the graph: the written tensor's
node becomes that of the operation; if it is a view, the root gets a `CopySlices` node and the views of that
root fetch new nodes when they are next used (`current_node`).
"""

from __future__ import annotations

from . import dtypes, engine
from .engine import AccumulateGrad, Node, clock, modes, node_and_number, state


class Version:
    """Counts the in-place writes to one piece of memory and remembers when the latest ones happened."""

    __slots__ = ("count", "rebases", "stamp", "writes")
    REMEMBERED = 64

    def __init__(self):
        self.count = 0
        self.rebases = 0  # writes that changed the root's node
        self.stamp = 0  # the clock at the last write
        self.writes: list[list[int]] = []  # [first tick, last tick, count] of runs of writes without nodes between

    def tick(self) -> None:
        now = self.stamp = next(clock)
        self.count += 1
        writes = self.writes
        if writes and writes[-1][1] == now - 1:
            writes[-1][1] = now
            writes[-1][2] += 1
        else:
            writes.append([now, now, 1])
            if len(writes) > self.REMEMBERED:
                del writes[0]

    def count_at(self, seq) -> int:
        """The count when the clock showed `seq` (as far back as the remembered writes reach)."""
        return self.count - sum(count for first, _last, count in self.writes if first > seq)


class InferenceVersion(Version):
    """The version of tensors made in inference mode: they may be written, but never saved for backward."""

    __slots__ = ()


class View:
    """What makes a tensor a view: its root, how far the root's graph had changed, where it was made."""

    __slots__ = ("made", "rebases", "root")

    def __init__(self, root, made):
        self.root = root
        self.made = made  # "", "no_grad", "multiple outputs" or "custom function": decides what in-place may do
        self.rebases = root.version.rebases


def version_of(tensor) -> Version:
    """The tensor's version counter; made when something first needs it, since most tensors are never written."""
    version = tensor.version
    if version is None:
        version = tensor.version = InferenceVersion() if modes.inference else Version()
        node = tensor.node
        if node is not None and hasattr(type(node), "saves_output") and node.output_version is None:
            node.output_version = (version, 0)
    return version


def bump(tensor) -> None:
    """Tells autograd that `tensor.array` was written: call it after writing to the array directly."""
    version_of(tensor).tick()


def view_of(result, source, made="") -> None:
    """Makes `result` a view of `source`'s root. Their arrays already share memory."""
    root = source if source.base is None else source.base.root
    result.version = version_of(root)
    if source.base is not None and source.base.made and not made:
        made = source.base.made
    result.base = View(root, made if modes.grad else made or "no_grad")


def current_node(tensor):
    """The tensor's node; a view whose root was rebased since gets a new one first."""
    view = tensor.base
    if view is None or view.rebases == view.root.version.rebases:
        return tensor.node
    view.rebases = view.root.version.rebases
    if view.root.node is not None:
        from .ops.shape import as_strided_node

        tensor.node = as_strided_node(view.root, tensor)
    return tensor.node


def check_writable(tensor) -> None:
    """RuntimeError where PyTorch forbids an in-place write."""
    if type(tensor.version) is InferenceVersion and not modes.inference:
        if modes.grad and tensor.node is not None:
            raise RuntimeError(INFERENCE_UPDATE)
    if not modes.grad:
        return
    node = current_node(tensor)
    if node is None and (tensor.base is None or tensor.base.root.node is None):
        return
    if type(node) is AccumulateGrad and tensor.base is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    view = tensor.base
    if view is None:
        return
    if view.made:
        _node, number = node_and_number(node) if node is not None else (None, 0)
        name = short_name(_node) if _node is not None else "None"
        why = {
            "no_grad": "This view was created in no_grad mode and its base or another view of its base has been modified "
            "inplace with grad mode enabled. Given that this use case is ambiguous and error-prone, it is forbidden. You "
            "can clarify your code by moving both the view and the inplace either both inside the no_grad block (if you "
            "don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked).",
            "multiple outputs": "This view is the output of a function that returns multiple views. Such functions do not "
            "allow the output views to be modified inplace. You should replace the inplace operation by an out-of-place "
            "one.",
            "custom function": "This view was created inside a custom Function (or because an input was returned as-is) "
            "and the autograd logic to handle view+inplace would override the custom backward associated with the custom "
            "Function, leading to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output "
            "of the custom Function.",
        }[view.made]
        if view.made == "no_grad":
            raise RuntimeError(f"A view was created in no_grad mode and is being modified inplace with grad mode enabled. {why}")
        raise RuntimeError(f"Output {number} of {name} is a view and is being modified inplace. {why}")
    if type(view.root.node) is AccumulateGrad:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")


INFERENCE_UPDATE = (
    "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a normal tensor "
    "before doing inplace update. See https://github.com/pytorch/rfcs/pull/17 for more details."
)
INFERENCE_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation "
    "tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use "
    "`torch.no_grad()` instead of `torch.inference_mode()`."
)


class CopySlices(Node):
    """The node of a root that was written through a view: `fn`'s gradient for the view's part, the rest as it was."""

    __slots__ = ("fn", "geometry")

    def __init__(self, root, view, fn):
        from .ops.shape import geometry

        self.fn = fn
        self.geometry = geometry(root, view)
        self.edges = (root.node, *fn.edges[1:])
        self.seq = fn.seq
        self.hooks = None

    @property
    def saved(self):
        return self.fn.saved

    @saved.setter
    def saved(self, value):
        self.fn.saved = value

    def run(self, g, edges):
        from .ops.shape import strided_get, strided_set

        return self._run(g, edges, strided_get.arrays, strided_set.arrays, self.fn.run)

    def record(self, g, edges):
        from .ops.shape import strided_get, strided_set

        return self._run(g, edges, strided_get, strided_set, self.fn.record)

    def _run(self, g, edges, get, put, run):
        part = get(g, *self.geometry)
        grads = run(part, (edges[0] if edges[0] is not None else self.fn.edges[0], *edges[1:]))
        inner = grads[0] if grads[0] is not None else part * 0
        return (put(g, inner, *self.geometry) if edges[0] is not None else None, *grads[1:])


def rebase(tensor, node) -> None:
    """Makes `node` the origin of `tensor`'s new contents, after an in-place write."""
    view = tensor.base
    version = version_of(tensor)
    version.tick()
    if node is not None:
        if view is None:
            tensor.node = node
        else:
            view.root.node = CopySlices(view.root, tensor, node)
        version.rebases += 1
        if view is not None:
            current_node(tensor)
    if state.recorder is not None:
        state.recorder.written(tensor)


def short_name(node) -> str:
    """A node's name as PyTorch's error texts have it: "Mul" for MulBackward0."""
    name = type(node).__name__
    return name[: name.rindex("Backward")] if "Backward" in name else name


def modified(node, position, tensor) -> RuntimeError:
    """The error for a saved input that was written after it was saved."""
    version = tensor.version
    expected = version.count_at(node.seq)
    producer = node.edges[position] if position < len(node.edges) else None
    return _modified(node, tensor.array, producer, version.count, expected)


def modified_output(node, array) -> RuntimeError:
    """The error for a saved output that was written after it was saved."""
    version, expected = node.output_version
    return _modified(node, array, node, version.count, expected)


def _modified(node, array, producer, count, expected):
    kind = dtypes.scalar_type_name(dtypes.from_array_type(array.dtype))
    producer, number = node_and_number(producer) if producer is not None else (None, 0)
    if producer is None or type(producer) is AccumulateGrad:
        origin = " is"
    else:
        origin = f", which is output {number} of {short_name(producer)}, is"
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[torch.{kind}Tensor {list(array.shape)}]{origin} at version {count}; expected version {expected} instead. "
        "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True, check_nan=False).\n"
        f"{engine.Node.name(node)} saved it at version {expected}; {count - expected} in-place "
        f"write{'s' if count - expected != 1 else ''} followed before its backward ran."
    )
