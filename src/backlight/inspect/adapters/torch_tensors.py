"""What the recorder for PyTorch notes about tensors, and how it keeps out of sight while it looks at them."""

from __future__ import annotations

import weakref
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes

from .. import schema
from ..recorder import Recorder, Running, Thread, is_plain
from ..statistics import measure
from .torch_names import DTYPE, PARAMETER, PLAIN, SEQUENCE, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

unobserved = torch._C.DisableTorchFunction  # what runs inside is seen by no mode: not by ours, and not by one of the program
_NO_DISPATCH: Any = torch.Tensor.__torch_dispatch__  # pyright: ignore[reportAttributeAccessIssue]
count_modes = torch._C._len_torch_function_stack
push_mode = torch._C._push_on_torch_function_stack  # what a mode's `__enter__` does


def place_of(tensor: Any) -> tuple[int, int] | None:
    """Where a tensor's elements lie, and how often they were written. None if they lie nowhere."""
    try:
        return tensor.data_ptr(), tensor._version
    except RuntimeError:
        return None


def grad_fn_of(tensor: Any) -> Any:
    """A tensor's node. None at a view that became invalid because another view of the same tensor was written.

    Looking makes a view that is out of date fetch a new node. With grad mode off the program would not have caused that, and the
    node would be another, so then views that may have been written aren't asked.
    """
    try:
        if not torch.is_grad_enabled() and tensor._is_view() and tensor._version:
            return None
        return tensor.grad_fn
    except RuntimeError:
        return None


class TorchThread(Thread):
    """What happens in one thread of a PyTorch program."""

    def __init__(self, numbers: Iterator[int]) -> None:
        super().__init__(numbers)
        self.module_ids: list[int] = []
        self.pushed = False  # whether the mode was turned on for the outermost module's call
        self.paused = False  # whether the mode was turned off while an optimizer's step runs
        self.modules_at_step = 0  # how many modules' forward ran when the optimizer's step began
        self.aside: int | None = None  # the id of a module during whose call the mode is off
        self.grad_off = False  # whether the program switched grad mode off
        self.cleared: set[int] = set()  # tensors whose `.grad` the last call of zero_grad cleared
        self.custom_calls: dict[type, list[schema.Op]] = {}  # of custom Functions, the latest
        self.adopted: list[schema.Node] = []  # nodes of custom Functions whose call wasn't seen
        self.calls: list[tuple[int, schema.Hook, Running]] = []  # hooks that run now, by the id of their frame


class TensorRecorder(Recorder):
    """The part of `TorchRecorder` that knows tensors."""

    thread: TorchThread
    mode: Any  # the function mode through which the program's calls are seen

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.thread = TorchThread(count())
        self._types: dict[type, int] = {}  # what kind of value objects of a class are
        self._type_names: dict[torch.dtype, str] = {}
        self._storages: dict[int, tuple[weakref.ref, int]] = {}
        self._storage_count = 0
        self._shapes: dict[tuple, schema.Statistics] = {}
        self._measured: dict[int, tuple[weakref.ref, int, schema.Statistics]] = {}  # of leaves' `.grad`

    def node(self, node: Any, op: schema.Op | None = None) -> schema.Node:
        """The line of a node (see `NodeRecorder`)."""
        raise NotImplementedError

    # The mode

    def _has_mode(self) -> bool:
        """Whether the mode is on in this thread now."""
        at = torch._C._get_function_stack_at
        return any(at(i) is self.mode for i in range(count_modes()))

    def _push_mode(self) -> bool:
        """Turns the mode on in this thread, and says whether it was off. PyTorch calls hooks without the modes of the program."""
        if count_modes() and self._has_mode():
            return False
        push_mode(self.mode)
        return True

    def _take_mode_away(self) -> None:
        """Turns the mode off, wherever it lies among other modes."""
        if self._has_mode():
            above = []
            while (top := torch._C._pop_torch_function_stack()) is not self.mode:
                above.append(top)
            for mode in reversed(above):
                push_mode(mode)

    # Tensors

    def is_tensor(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def has_shape(self, parameter: Any) -> bool:
        return not is_lazy(parameter)

    def is_node(self, value: Any) -> bool:
        return issubclass(type(value), torch.autograd.graph.Node)  # isinstance would ask the value

    def array(self, tensor: Any) -> np.ndarray:
        tensor = tensor.detach() if tensor.requires_grad else tensor
        try:
            return tensor.numpy()
        except (TypeError, RuntimeError):  # on another device, of a type that NumPy lacks, sparse, conjugated
            dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
            dense = dense.float() if dense.dtype.is_floating_point else dense
            return dense.cpu().resolve_conj().resolve_neg().numpy()

    def statistics(self, tensor: Any) -> schema.Statistics:
        if self.policy == "shapes":
            return self._shape(tensor)
        found = self._measured.get(id(tensor))
        if found is None or found[0]() is not tensor:
            return self._measure(tensor)
        if found[1] != tensor._version:
            self._remember(tensor, self._measure(tensor))
            found = self._measured[id(tensor)]
        return found[2] if found[1] >= 0 else self._measure(tensor)

    def _shape(self, tensor: Any) -> schema.Statistics:
        """Statistics without numbers: one object for all tensors of a shape and type."""
        try:
            key = tensor.shape, tensor.dtype
        except RuntimeError:  # a nested tensor
            key = (), tensor.dtype
        try:
            return self._shapes[key]
        except KeyError:
            found = self._shapes[key] = schema.Statistics(tuple(key[0]), self._type_name(key[1]))
            return found

    def _measure(self, tensor: Any) -> schema.Statistics:
        if self.policy == "shapes":
            return self._shape(tensor)
        array = self._array_if_any(tensor)
        if array is None:  # it has no memory: a meta tensor, one of vmap
            return self._shape(tensor)
        result = measure(array, self.policy)
        result.dtype = self._type_name(tensor.dtype)
        return result

    def _array_if_any(self, tensor: Any) -> np.ndarray | None:
        if type(tensor).__torch_dispatch__ is not _NO_DISPATCH:  # a class that imitates a tensor
            return None
        try:
            if torch._C._len_torch_dispatch_stack():  # a mode of the program that would see what we do
                with _disable_current_modes():
                    return self.array(tensor)
            return self.array(tensor)
        except (TypeError, RuntimeError, NotImplementedError):
            return None

    def _remember(self, gradient: Any, value: schema.Statistics) -> None:
        """Keeps what is known of a leaf's `.grad`, as long as nobody writes to it or can do so unseen."""
        found = self._measured.get(id(gradient))
        if found is None or found[0]() is not gradient or found[1] >= 0:
            self._measured[id(gradient)] = weakref.ref(gradient), gradient._version, value

    def _type_name(self, dtype: torch.dtype) -> str:
        name = self._type_names.get(dtype)
        if name is None:
            name = self._type_names[dtype] = str(dtype).removeprefix("torch.")
        return name

    def gradient(self, tensor: Any) -> Any:
        return tensor.grad if tensor.is_leaf or tensor.retains_grad else None

    def version(self, tensor: Any) -> int | None:
        try:
            return tensor._version
        except RuntimeError:  # an inference tensor
            return None

    def module_class(self) -> type | None:
        return torch.nn.Module

    def describe(self, tensor: Any) -> schema.Tensor:
        grad_fn = grad_fn_of(tensor)
        node = None if grad_fn is None else self.node(grad_fn)
        line = self._describe(tensor, node)
        if node is not None and node.op is not None:  # of a custom Function: its call was seen, but not what it returned
            line.op = node.op
            node.op.outputs.append(line)
        return line

    def _new_tensor(self, tensor: Any, node: schema.Node | None) -> schema.Tensor:
        """The line of a tensor that wasn't seen before, and whose node is known."""
        line = self._describe(tensor, node)
        self.add_tensor(tensor, line)
        return line

    def _describe(self, tensor: Any, node: schema.Node | None) -> schema.Tensor:
        kind, requires_grad = self._types.get(type(tensor)), node is not None or tensor.requires_grad
        if kind is None:
            kind = self._types[type(tensor)] = kind_of(type(tensor))
        if kind == PARAMETER:
            role = "parameter"
        else:
            role = "result" if node is not None else "leaf" if requires_grad else "constant"
        base, number, known = tensor._base, 0 if node is None else tensor.output_nr, self._shape(tensor)
        try:
            size, version = tensor.nbytes, tensor._version
        except (RuntimeError, NotImplementedError):  # nested, sparse, or an inference tensor
            size, version = 0, self.version(tensor)
        return schema.Tensor(
            0, known.shape, known.dtype, requires_grad,
            node is None, role, None, None, number, node, None if base is None else self.tensor(base), self.storage(tensor),
            size, version,
        )  # fmt: skip

    def storage(self, tensor: Any) -> int | None:
        """A number for the memory of a tensor; tensors that share memory have the same."""
        try:
            memory = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # sparse, or a wrapper of functorch
            return None
        found = self._storages.get(id(memory))
        if found is None or found[0]() is not memory:
            self._storage_count += 1
            found = self._storages[id(memory)] = weakref.ref(memory), self._storage_count
        return found[1]

    # Arguments

    def _flatten(self, values: Any, tensors: list, arguments: list | None) -> None:
        """Sorts values into tensors, also those in lists, and plain arguments."""
        types = self._types
        for value in values:
            kind = types.get(type(value))
            if kind is None:
                kind = types[type(value)] = kind_of(type(value))
            if kind <= PARAMETER:
                tensors.append(value)
            elif kind == SEQUENCE:
                before = len(tensors)
                self._flatten(value, tensors, None)
                if len(tensors) == before and arguments is not None and is_plain(value):
                    arguments.append(list(value))
            elif arguments is not None:
                if kind == PLAIN:
                    arguments.append(value)
                elif kind == DTYPE:
                    arguments.append(self._type_name(value))
