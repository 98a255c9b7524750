"""`Tensor`: an ndarray, the node that made it, and the views it shares memory with.

Operators and operations are bound by the files in ops/. A subclass of ndarray would be 1.9x slower per operation,
so the array is a field: `tensor.array`.
"""

from __future__ import annotations

import warnings
import weakref
from typing import TYPE_CHECKING, Any

from . import dtypes, engine, errors, hooks, versions, views
from .engine import AccumulateGrad, Port
from .state import modes, state


class Tensor:
    """A multi-dimensional array that autograd can follow; `backlight.tensor(data)` makes one from data.

    >>> import backlight as torch
    >>> x = torch.tensor([1., 2., 3.], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4., 6.])
    """

    __slots__ = ("__dict__", "__weakref__", "array", "base", "node", "version")
    if TYPE_CHECKING:
        array: Any
        base: Any
        node: Any
        version: Any
        shape: Any
        dtype: Any

        def __getattr__(self, name: str) -> Any: ...  # the files in ops/ bind the rest

    __array_priority__ = 1000

    def __new__(cls, *data, device=None, dtype=None, requires_grad=False):
        from .creation import legacy_array

        dtypes.check_device(device)
        self = object.__new__(cls)
        self.array = legacy_array(data, dtype)
        self.node = self.version = self.base = None
        if requires_grad:
            self.requires_grad_()
        return self

    def __init__(self, *_data, **_options):
        pass

    @classmethod
    def _from(cls, array):
        self = object.__new__(Tensor)
        self.array = array
        self.node = self.version = self.base = None
        return self

    # Autograd

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are computed for this tensor. Settable on leaves."""
        return self.node is not None or (self.base is not None and self.base.root.node is not None)

    @requires_grad.setter
    def requires_grad(self, value):
        if not isinstance(value, bool):
            raise RuntimeError("requires_grad must be a bool")
        self.requires_grad_(value)

    @requires_grad.deleter
    def requires_grad(self):
        raise RuntimeError("requires_grad must be a bool")

    def requires_grad_(self, requires_grad=True):
        """Starts (or stops) recording operations on this leaf. RuntimeError for tensors that aren't floating point."""
        if not isinstance(requires_grad, bool):
            kind = type(requires_grad).__name__
            raise TypeError(f"requires_grad_(): argument 'requires_grad' (position 1) must be bool, not {kind}")
        node = views.current_node(self)
        if node is not None and type(node) is not AccumulateGrad:
            if not requires_grad:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable "
                    "in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
            return self
        if requires_grad and node is None:
            if self.array.dtype.kind not in "fcV":
                raise RuntimeError("only Tensors of floating point dtype can require gradients")
            if type(self.version) is views.InferenceVersion and not modes.inference:
                raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
            leaf = self.__dict__.get("_leaf")
            if leaf is None:
                leaf = AccumulateGrad(self)
            self.node, leaf.array = leaf, self.array
        elif not requires_grad and node is not None:
            self._retire()
        if state.recorder is not None:
            state.recorder.switched("requires_grad", requires_grad, self)
        return self

    @property
    def grad_fn(self):
        """The node that made this tensor, None for a leaf."""
        node = views.current_node(self)
        if node is None or type(node) is AccumulateGrad:
            return None
        return node.parent if type(node) is Port else node

    @property
    def output_nr(self) -> int:
        return self.node.number if type(self.node) is Port else 0

    @property
    def is_leaf(self) -> bool:
        node = views.current_node(self)
        return node is None or type(node) is AccumulateGrad

    @property
    def grad(self):
        """The accumulated gradient of a leaf (or of a tensor with `retain_grad()`), None before the first backward."""
        node = self.node
        if type(node) is AccumulateGrad:
            return node.grad
        found = self.__dict__.get("_grad")
        if found is None and (leaf := self.__dict__.get("_leaf")) is not None:
            return leaf.grad
        if found is None and node is not None and not self.retains_grad:
            if state.recorder is not None:
                state.recorder.called("grad", self)
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
                "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
                "Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure "
                "you access the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for more informations.",
                UserWarning,
                stacklevel=2,
            )
        return found

    @grad.setter
    def grad(self, value):
        if value is not None:
            errors.check_grad(self, value)
        leaf = self.node if type(self.node) is AccumulateGrad else self.__dict__.get("_leaf")
        if leaf is not None:
            leaf.grad = value
        else:
            self.__dict__["_grad"] = value
        if state.recorder is not None:
            state.recorder.gradient_set(self, value)

    @grad.deleter
    def grad(self):
        self.grad = None

    def detach(self):
        """A tensor for the same memory outside the graph. It shares the version counter: writes to it are noticed."""
        result = Tensor._from(self.array)
        result.version = views.version_of(self)
        if state.recorder is not None:
            state.recorder.called("detach", self, result)
        return result

    def detach_(self):
        """Takes this tensor out of the graph: it becomes a leaf. RuntimeError for views."""
        if self.base is not None:
            raise RuntimeError(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for "
                "training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence "
                "detach_() cannot be called on these gradients. To fix this error, please refer to the "
                "Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
            )
        if type(self.node) is AccumulateGrad:
            self._retire()
        elif self.node is not None:
            self.version = versions.Detached(views.version_of(self))
        self.node = None
        return self

    def _retire(self):
        """Makes this leaf one that doesn't require grad: its node keeps `.grad` and hooks, but accumulates no more."""
        self.__dict__["_leaf"], self.node.array = self.node, None
        self.node = None

    @property
    def data(self):
        """The same memory outside the graph, with its own version counter: writes to it go unnoticed."""
        result = Tensor._from(self.array)
        if state.recorder is not None:
            state.recorder.called("data", self, result)
        return result

    @data.setter
    def data(self, value):
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self.node is not None and value.array.dtype.kind in "biu":
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        self.array = value.array
        if type(self.node) is AccumulateGrad:
            self.node.array = value.array

    @data.deleter
    def data(self):
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    def register_hook(self, hook):
        """Calls `hook(grad)` when this tensor's gradient is complete; a returned tensor replaces the gradient."""
        node = views.current_node(self)
        if node is None:
            if self.requires_grad:  # a view whose gradient goes nowhere
                return hooks.register(hooks.OrderedDict(), hook)
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        node, number = engine.node_and_number(node)
        table = hooks.hooks_of(node).tensor.setdefault(number, hooks.OrderedDict())
        return hooks.register(table, hook, "tensor", self)

    def register_post_accumulate_grad_hook(self, hook):
        """Calls `hook(param)` after a gradient was added to this leaf's `.grad`."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if not self.is_leaf:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        return hooks.register(hooks.hooks_of(self.node).post_accumulate, hook, "post_accumulate", self)

    def retain_grad(self):
        """Keeps this tensor's gradient in `.grad` although it is no leaf."""
        node = views.current_node(self)
        if node is None and not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        if node is None or type(node) is AccumulateGrad:
            return
        node, number = engine.node_and_number(node)
        hooks.hooks_of(node).retain.setdefault(number, weakref.ref(self))

    @property
    def retains_grad(self) -> bool:
        node = self.node
        if node is None or type(node) is AccumulateGrad:
            return False
        node, number = engine.node_and_number(node)
        reference = node.hooks.retain.get(number) if node.hooks is not None else None
        return reference is not None and reference() is self

    @property
    def _version(self) -> int:
        if type(self.version) is views.InferenceVersion:
            raise RuntimeError("Inference tensors do not track version counter.")
        return 0 if self.version is None else self.version.count

    @property
    def _base(self):
        return None if self.base is None else self.base.root

    def _is_view(self) -> bool:
        return self.base is not None

    def is_inference(self) -> bool:
        return type(self.version) is views.InferenceVersion


def dimension(dim, ndim) -> int:
    """A dimension counted from the front; IndexError with PyTorch's text when it is out of range."""
    bound = ndim or 1
    if not -bound <= dim < bound:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")
    return dim % bound


class Parameter(Tensor):
    """A tensor that a Module registers as its parameter when it is assigned to an attribute.

    >>> from backlight import nn, ones
    >>> nn.Parameter(ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    __slots__ = ()

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter data must be a Tensor, not {type(data).__name__}")
        self = object.__new__(cls)
        self.array = data.array
        self.node = self.base = None
        self.version = None if data.version is None else views.version_of(data)
        if requires_grad:
            self.requires_grad_()
        return self

    def __repr__(self) -> str:
        return "Parameter containing:\n" + Tensor.__repr__(self)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(Tensor._from(self.array.copy(order="K")), self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return _rebuild_parameter, (self.array, self.requires_grad)


def _rebuild_parameter(array, requires_grad):
    return Parameter(Tensor._from(array), requires_grad)


def as_subclass(tensor, cls):
    """The same tensor (memory and node) as an object of a subclass of Tensor."""
    result = object.__new__(cls)
    result.array, result.node, result.version, result.base = tensor.array, tensor.node, tensor.version, tensor.base
    return result


class InferenceTensor(Tensor):
    """A tensor made in inference mode. A type of its own, so that the fast path, which could save it, doesn't take it."""

    __slots__ = ()


InferenceTensor.__name__ = InferenceTensor.__qualname__ = "Tensor"

engine.Tensor = Tensor
PLAIN = frozenset((Tensor, Parameter))  # the types without __torch_function__
