"""The engine's error texts: PyTorch's wording, since users search for it, then what we know and PyTorch does not say."""

from __future__ import annotations

from . import dtypes
from .state import state

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved "
    "tensors after calling backward."
)


def freed(node) -> RuntimeError:
    """The error for a second backward through a node whose saved tensors are gone."""
    return RuntimeError(f"{FREED}\nThe saved tensors of {node.name()} were freed by an earlier backward pass.")


def check_grad(tensor, value) -> None:
    """The errors for what can't be assigned to a tensor's `.grad`."""
    if not hasattr(value, "array"):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}")
    if value is tensor:
        raise RuntimeError("can't assign Variable as its own grad")
    if value.array.dtype != tensor.array.dtype:
        kind = {"float32": "float", "float64": "double"}.get(value.dtype.name, value.dtype.name)
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{kind}' to a tensor with grad_dtype "
            f"'{dtypes.scalar_type_name(tensor.dtype)}'. The gradient must match the tensor's grad_dtype (defaults to the "
            "tensor's dtype)."
        )
    if value.array.shape != tensor.array.shape:
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size '{list(tensor.shape)}'. "
            "Please ensure that the gradient and the tensor are the same size"
        )


_MOVE = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view "
    "and the inplace either both inside the {0} block (if you don't want the inplace to be tracked) or both outside (if you want "
    "the inplace to be tracked)."
)
_WHY = {
    "no_grad": _MOVE.format("no_grad"),
    "inference": _MOVE.format("inference_mode"),
    "multiple outputs": "This view is the output of a function that returns multiple views. Such functions do not allow the output "
    "views to be modified inplace. You should replace the inplace operation by an out-of-place one.",
    "custom function": "This view was created inside a custom Function (or because an input was returned as-is) and the autograd "
    "logic to handle view+inplace would override the custom backward associated with the custom Function, leading to incorrect "
    "gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function.",
}


def ambiguous(view, node, what) -> RuntimeError:
    """The error for a write through a view (or to the root of one) whose gradient PyTorch leaves undefined."""
    mode = {"no_grad": "no_grad", "inference": "inference"}.get(view.made, None if node is not None else "no_grad")
    start = f"A view was created in {mode} mode and" if mode else "A view"
    if node is not None and type(node).__name__ != "AccumulateGrad":
        node, number = _real(node)
        start = (
            f"Output {number} of {short_name(node)} is a view"
            + (f" of a view which was created in {mode} mode" if mode else "")
            + " and"
        )
    where = {"no_grad": " with grad mode enabled", "inference": " in normal mode"}.get(mode or "", "")
    return RuntimeError(f"{start} {what}{where}. {_WHY[view.made]}")


INFERENCE_UPDATE = (
    "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a normal tensor before "
    "doing inplace update.See https://github.com/pytorch/rfcs/pull/17 for more details."
)
INFERENCE_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation "
    "tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use "
    "`torch.no_grad()` instead of `torch.inference_mode()`."
)


def _real(node):
    """The node and output number behind a port."""
    return (node.parent, node.number) if hasattr(node, "parent") else (node, 0)


def short_name(node) -> str:
    """A node's name as PyTorch's error texts have it: "Mul" for MulBackward0."""
    name = type(node).__name__
    if "::" in node.name():
        return node.name()
    start, backward, digit = name.rpartition("Backward")
    return start + digit.removeprefix("0") if backward else name


def modified(node, position, tensor) -> RuntimeError:
    """The error for a saved input that was written after it was saved."""
    version = tensor.version
    if version.stamp == float("inf"):
        return RuntimeError(INFERENCE_SAVED)
    expected = version.count_at(node.seq)
    if getattr(version, "at", 0) > node.seq:
        return RuntimeError(
            "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, please use "
            "out-of-place `.detach()` instead"
        )
    del position
    from .views import current_node

    try:
        producer = current_node(tensor)
    except RuntimeError as error:  # a view that autograd can't follow: then this is what PyTorch says
        return error
    return modified_text(node, tensor.array, producer, version.count, expected)


def modified_output(node, array) -> RuntimeError:
    """The error for a saved output that was written after it was saved."""
    version, expected = node.output_version
    array = array[0] if isinstance(array, tuple) else array
    written = (getattr(node, "extra", None) or {}).get("output_of", lambda: None)()  # a view's node, while it is alive
    return modified_text(node, array, written or node, version.count, expected)


_HINT = (
    "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
_HINT_IN_ANOMALY_MODE = (
    "Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in question was "
    "changed in there or anywhere later. Good luck!"
)


def modified_text(node, array, producer, count, expected):
    kind = dtypes.scalar_type_name(dtypes.from_array_type(array.dtype))
    producer, number = _real(producer)
    if producer is None or producer.__class__.__name__ == "AccumulateGrad":
        origin = " is"
    else:
        origin = f", which is output {number} of {short_name(producer)}, is"
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[torch.{kind}Tensor {list(array.shape)}]{origin} at version {count}; expected version {expected} instead. "
        f"{_HINT if state.anomaly is None else _HINT_IN_ANOMALY_MODE}\n"
        f"{type(node).__name__} saved it at version {expected}; {count - expected} in-place "
        f"write{'s' if count - expected != 1 else ''} followed before its backward ran."
    )
