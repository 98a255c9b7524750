"""What PyTorch's functions, values and nodes are called in a record."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import UninitializedTensorMixin  # pyright: ignore[reportAttributeAccessIssue]

from ..recorder import PLAIN_TYPES

# Functions that say something about a tensor, or copy it whole: they are no operations.
UNINTERESTING = frozenset(
    """size dim ndimension numel nelement stride storage_offset element_size data_ptr storage untyped_storage is_contiguous
    is_floating_point is_complex is_signed is_inference is_conj is_neg is_pinned is_shared is_set_to is_same_size get_device type_as_
    len hash repr str format bool contains dir reduce_ex reduce setstate deepcopy is_nonzero equal allclose is_tensor is_storage
    has_names is_coalesced dense_dim sparse_dim numpy_T result_type can_cast is_grad_enabled get_default_dtype _has_compatible_shallow_copy_type
    _record_function_enter_new _record_function_exit register_hook _is_view __dlpack_device__ _typed_storage share_memory_ is_distributed""".split()
)

# Functions that hand a tensor's elements to Python or NumPy.
CONVERSIONS = frozenset({"item", "tolist", "numpy"})

_NAMES = {
    "float": "item", "int": "item", "index": "item", "complex": "item", "array": "numpy", "rdiv": "div", "truediv": "div",
    "rtruediv": "div", "radd": "add", "rmul": "mul", "rpow": "pow", "rmatmul": "matmul", "rmod": "remainder", "mod": "remainder",
    "floordiv": "floor_divide", "rfloordiv": "floor_divide", "iadd": "add_", "isub": "sub_", "imul": "mul_", "idiv": "div_",
    "itruediv": "div_", "ipow": "pow_", "ifloordiv": "floor_divide_", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "invert": "bitwise_not", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "iter": "unbind",
}  # fmt: skip


def name_of(name: str) -> str:
    """PyTorch's plain name of a function: "add" for `__radd__` and for `add.Tensor`."""
    name = name.partition(".")[0]
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
        return _NAMES.get(name, name)
    return name


# What a value is for the record:
TENSOR, PARAMETER, SEQUENCE, PLAIN, DTYPE, OTHER = range(6)


def kind_of(kind: type) -> int:
    """What objects of a class are."""
    if issubclass(kind, UninitializedTensorMixin):  # of a lazy module: it refuses to be looked at, until it becomes a parameter
        return OTHER
    if issubclass(kind, torch.Tensor):
        return PARAMETER if issubclass(kind, torch.nn.Parameter) else TENSOR
    if issubclass(kind, (tuple, list)):
        return SEQUENCE
    if kind in PLAIN_TYPES:
        return PLAIN
    return DTYPE if kind is torch.dtype else OTHER


class NodeType:
    """What is the same for all nodes of a class: its name, and which of its attributes are what it saved."""

    def __init__(
        self, name: str, tensors: list[tuple[str, str, str]], parameters: list[tuple[str, str]], leaf=False, custom=False
    ):
        self.name = name  # empty if each node has its own
        self.leaf = leaf
        self.custom = custom
        self.tensors = tensors  # name, attribute with the tensor, attribute with PyTorch's SavedTensor
        self.parameters = parameters  # name, attribute
        self.has_saved = bool(tensors or parameters)

    def saved_tensors(self, node: Any) -> list[tuple[str, Any]]:
        """The tensors that a node saved, with their names. None of those that were freed, or that saved-tensor hooks packed:
        unpacking them would call the program's hooks."""
        result = []
        for name, attribute, raw_attribute in self.tensors:
            try:
                raw = getattr(node, raw_attribute)
                if type(raw) is not tuple:
                    if getattr(raw, "unpack_hook", None) is None and (value := getattr(node, attribute)) is not None:
                        result.append((name, value))
                elif all(getattr(one, "unpack_hook", None) is None for one in raw):
                    values = enumerate(getattr(node, attribute))
                    result += [(f"{name} {i}", tensor) for i, tensor in values if tensor is not None]
            except RuntimeError:  # freed, or modified since: backward will say so
                continue
        return result


def node_type(node: Any) -> NodeType:
    """What is the same for all nodes of this node's class."""
    kind = type(node)
    attributes = dir(kind)
    raw = [a for a in attributes if a.startswith("_raw_saved_")]
    if "_raw_saved_tensors" in raw:  # a custom Function
        return NodeType(
            kind.__name__, [("tensor", "saved_tensors", "_raw_saved_tensors")], [], custom=hasattr(kind, "_forward_cls")
        )
    tensors = [(a[11:], a[4:], a) for a in raw]
    # The sizes and strides of what it saved say nothing new.
    known = ("_sym_strides", "_sym_sizes") if raw else ("_sym_strides",)
    plain = [a for a in attributes if a.startswith("_saved_") and f"_raw{a}" not in raw and not a.endswith(known)]
    name = "" if kind.__name__ == "CppFunction" else kind.__name__
    return NodeType(name, tensors, [(a[7:], a) for a in plain], leaf=name == "AccumulateGrad")
