"""User-defined differentiable operations: `Function`, its context, once_differentiable.

Only here a node keeps a ctx object; built-in operations have none.
"""

from __future__ import annotations

import functools
import warnings
from collections import namedtuple
from typing import Any

import numpy as np

from .. import dtypes, views
from ..batching import Batched, explicit, level_of, version_of_values
from ..engine import AccumulateGrad, Node, Port
from ..errors import FREED, modified_text
from ..hooks import as_tensor
from ..state import clock, modes, set_levels, state
from ..tensor import PLAIN, InferenceTensor, Tensor, as_subclass
from ..utils._pytree import broadcast_to_and_flatten, tree_flatten, tree_unflatten
from .modes import no_grad


class FunctionCtx:
    """What forward leaves for backward: saved tensors, flags, and any attribute the user sets."""

    def save_for_backward(self, *tensors):
        """Keeps inputs or outputs (None is fine) for backward, checked for in-place changes: see saved_tensors."""
        self.to_save = tensors

    def save_for_forward(self, *tensors):
        """Keeps tensors for jvp."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise AssertionError(
                    "save_for_forward expects all arguments to be tensors; you should save non-tensors as attributes on ctx."
                )
        self.saved_for_forward = tensors

    def mark_dirty(self, *tensors):
        """Names the inputs that forward changed in place; they must be among the outputs."""
        self.dirty_tensors = tensors

    def mark_non_differentiable(self, *tensors):
        """Names the outputs that have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value):
        """Whether backward sees zeros (True, the default) or None where no gradient arrived."""
        self.materialize_grads = value


class _FunctionNode(Node, FunctionCtx):
    """The node of a Function call, which is also its ctx."""

    __slots__ = ("__dict__",)
    runs_on_none = True
    materialize_grads = True
    _materialize_non_diff_grads = True
    to_save = ()
    dirty_tensors = ()
    non_differentiable = ()
    saved_for_forward = ()
    _forward_cls: Any
    _output_count: int
    _output_numbers: dict
    _output_shapes: list
    _input_kinds: list

    @property
    def outputs(self):
        return self._output_count

    @property
    def differentiable(self):
        """Only inputs that are tensors count."""
        return [kind is not None for kind in self._input_kinds]

    @property
    def needs_input_grad(self):
        return self.__dict__.get("_needs", ())

    @needs_input_grad.setter
    def needs_input_grad(self, value):
        self.__dict__["_needs"] = value

    @property
    def saved_tensors(self):
        """The tensors given to save_for_backward. RuntimeError if they were written since, or freed."""
        if self.__dict__.get("_in_jvp"):
            return tuple(self.saved_for_forward)
        saved = self.__dict__.get("_saved")
        if saved is None:
            if self.__dict__.get("_freed"):
                raise RuntimeError(FREED)
            return tuple(self.to_save)
        return tuple([self._unpack(*entry) for entry in saved])

    @property
    def saved_variables(self):
        """The old name of saved_tensors."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors

    def _unpack(self, kind, value, version, count):
        if kind == "packed":
            own = self if self._output_count == 1 else Port(self, count)
            return value.unpack(own if value.own else None)
        if version is not None and version.count != count:
            array = value if kind == "output" else value.array
            producer = self if kind == "output" else value.node
            raise modified_text(self, array, producer, version.count, count)
        if kind != "output":
            return value
        tensor = Tensor._from(value)
        tensor.version = version
        tensor.node = self if self._output_count == 1 else Port(self, self._output_numbers[id(value)])
        return tensor

    def _save(self, outputs):
        """Turns what forward saved into entries that hold outputs as arrays, so that no cycle arises."""
        entries = []
        for tensor in self.to_save:
            if tensor is None:
                entries.append(("none", None, None, None))
                continue
            if not isinstance(tensor, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument {len(entries)} is of type "
                                f"{type(tensor).__name__}")  # fmt: skip
            version = version_of_values(tensor)
            own = any(tensor is output for output in outputs) and tensor.node is not None
            own = own and type(tensor.node) is not AccumulateGrad
            entries.append(
                ("output", tensor.array, version, version.count) if own else ("input", tensor, version, version.count)
            )
        self.__dict__["_saved"] = entries
        self.__dict__.pop("to_save", None)
        if modes.saved_hooks:
            for i in range(len(entries)):
                self._pack_saved(i, *modes.saved_hooks[-1])

    def _saved_entries(self):
        saved = self.__dict__.get("_saved")
        return None if saved is None else [entry[1] for entry in saved]

    def _pack_saved(self, i, pack_hook, unpack_hook):
        from ..saved import Packed

        saved = self.__dict__["_saved"]
        kind, value, version, count = saved[i]
        if kind == "none":
            return
        tensor = self._unpack(kind, value, version, count)
        saved[i] = ("packed", Packed(tensor, pack_hook, unpack_hook, kind == "output"), None, self._output_number(value))

    def _output_number(self, value):
        return self._output_numbers.get(id(value), 0)

    @property
    def _raw_saved_tensors(self):
        from ..saved import SavedTensor

        if self.__dict__.get("_saved") is None and self.__dict__.get("_freed"):
            raise RuntimeError(FREED)
        return tuple([SavedTensor(self, i) for i in range(len(self.__dict__.get("_saved") or ()))])

    def run(self, g, edges, keep):
        return [None if x is None else x.array for x in self.record(g, edges, keep)]

    def record(self, g, edges, keep):
        try:
            return self._backward(g if isinstance(g, list) else [g])
        finally:
            if not keep and self.__dict__.get("_saved"):
                self._freed, self._saved = True, None

    def _backward(self, grads):
        if self.__dict__.get("_freed"):
            raise RuntimeError(FREED)
        given = list(map(as_tensor, grads))
        given += [None] * (self._output_count - len(given))
        for i, (x, (shape, array_type, differentiable)) in enumerate(zip(given, self._output_shapes, strict=True)):
            wanted = shape is not None and (differentiable or self._materialize_non_diff_grads)
            if x is None and self.materialize_grads and wanted:
                given[i] = Tensor._from(np.zeros(shape, array_type))  # pyright: ignore[reportArgumentType, reportCallIssue]
            elif x is not None and x.array.dtype != array_type and differentiable:
                given[i] = x.to(dtypes.from_array_type(array_type))
        result = self._call_backward(given)
        result = result if isinstance(result, tuple) else (result,)
        count = len(self._input_kinds)
        if len(result) > count and all(x is None for x in result[count:]):
            result = result[:count]
        name = type(self).__name__
        if len(result) != count:
            raise RuntimeError(
                f"function {name} returned an incorrect number of gradients (expected {count}, got {len(result)})"
            )
        out = []
        for i, (x, kind) in enumerate(zip(result, self._input_kinds, strict=True)):
            if kind is None:
                if x is not None:
                    raise RuntimeError(f"function {name} returned a gradient different from None at position {i + 1}, but the "
                                       "corresponding forward input was not a Variable")  # fmt: skip
                out.append(None)
                continue
            if x is not None and not isinstance(x, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(x).__name__})")
            out.append(None if x is None else self._fitted(i, x, kind))
        return out

    def _fitted(self, i, x, kind):
        shape, array_type = kind
        if x.array.shape != shape:
            try:
                fits = np.broadcast_shapes(shape, x.array.shape) == x.array.shape
            except ValueError:
                fits = False
            if not fits:
                raise RuntimeError(f"Function {type(self).__name__} returned an invalid gradient at index {i} - got "
                                   f"{list(x.array.shape)} but expected shape compatible with {list(shape)}")  # fmt: skip
            x = x.sum_to_size(shape)
        if x.array.dtype != array_type:
            if x.array.dtype.kind == "c" and array_type.kind != "c":
                x = x.real
            x = x.to(dtypes.from_array_type(array_type))
        return x

    def _call_backward(self, given):
        cls = self._forward_cls
        if cls.vjp is Function.vjp:
            return cls.backward(self, *given)
        if cls.backward is not Function.backward:
            raise RuntimeError("Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one "
                               "of them.")  # fmt: skip
        return cls.vjp(self, *given)


class _FunctionType(type):
    """Gives every Function its node class, named as PyTorch names it: MyFunctionBackward."""

    def __init__(cls, name, bases, members):
        super().__init__(name, bases, members)
        cls._backward_cls = type(name + "Backward", (_FunctionNode,), {"__slots__": (), "_forward_cls": cls})


class Function(FunctionCtx, metaclass=_FunctionType):
    """Base class of user-defined differentiable operations: static forward and backward, used through `apply`.

    >>> import backlight as torch
    >>> class Cube(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x ** 3
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         x, = ctx.saved_tensors
    ...         return 3 * x ** 2 * grad
    >>> x = torch.tensor(2., requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    def __init__(self, *args, **kwargs):
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them on "
            "the class itself. Instantiating an autograd function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
                           "function with static forward method. (Example: "
                           "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)")  # fmt: skip

    @staticmethod
    def forward(*args, **kwargs):
        """Computes the outputs: `forward(ctx, *inputs)`, or `forward(*inputs)` beside a setup_context."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Saves for backward what `forward(*inputs)` -> output needs to remember."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grad_outputs):
        """Returns a gradient (or None) for every input of forward."""
        raise NotImplementedError("You must implement either the backward or vjp method for your custom autograd.Function to use "
                                  "it with backward mode AD.")  # fmt: skip

    vjp = backward

    @staticmethod
    def jvp(ctx, *grad_inputs):
        """Returns the tangent of every output of forward, from those of its inputs (None for what isn't a tensor)."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    generate_vmap_rule = False  # whether vmap may run forward and backward on batched tensors

    @staticmethod
    def vmap(info, in_dims, *args):
        """Runs forward on a batch: returns (outputs, out_dims). info has batch_size and randomness."""
        raise NotImplementedError("To use autograd.Function with vmap, you must either override the vmap static method or set "
                                  "generate_vmap_rule=True.")  # fmt: skip

    @classmethod
    def apply(cls, *args, **kwargs):
        """Runs forward on the inputs and connects the outputs to the graph."""
        state.hooked = True  # backward runs user code, which may register hooks
        if modes.levels or modes.recordings:
            return transformed(cls, args, kwargs)
        return cls._run(args, kwargs)

    @classmethod
    def _run(cls, args, kwargs):
        node = object.__new__(cls._backward_cls)
        edges, nowhere = views.edges_of(args)
        node.needs_input_grad = tuple(e is not None for e in edges)
        recording = modes.grad and (bool(nowhere) or any(e is not None for e in edges))
        node.edges = tuple(edges) if recording else ()
        node.seq, node.hooks = next(clock), None
        node._input_kinds = [(x.array.shape, x.array.dtype) if isinstance(x, Tensor) else None for x in args]
        separate = cls.setup_context is not Function.setup_context
        if separate and cls.forward.__defaults__:
            args = _with_defaults(cls.forward, args, kwargs)
        with no_grad(), hidden_tangents():
            if separate:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(node, args, output)
            else:
                output = cls.forward(node, *args, **kwargs)
        single = not isinstance(output, tuple)
        outputs = (output,) if single else output
        results = _connect(node, args, outputs, recording)
        if recording:
            if node.to_save:
                inputs = {id(x) for x in args} - {id(x) for x in node.dirty_tensors}
                replaced = {id(old): new for old, new in zip(outputs, results) if id(old) not in inputs}
                node.to_save = tuple(replaced.get(id(x), x) for x in node.to_save)
                node._save(results)
            if state.anomaly is not None:
                state.anomaly(node, created=True)
        if state.recorder is not None:
            state.recorder.operation(cls.__name__, node if recording else None, results, args)
        if modes.levels:
            _push_forward(cls, node, args, results)
        return results[0] if single else tuple(results)


def _connect(node, args, outputs, recording):
    """The outputs of forward as the outputs of the node: views for inputs returned as they were, rebased for dirty ones."""
    inputs = {id(x): i for i, x in enumerate(args) if isinstance(x, Tensor)}
    dirty, constant = {id(x) for x in node.dirty_tensors}, {id(x) for x in node.non_differentiable}
    if dirty - inputs.keys():
        warnings.warn(
            "Only input Tensors should be given to ctx.mark_dirty(). If a Tensor is not an input, there is no need to pass it to "
            "mark_dirty().",
            UserWarning,
            stacklevel=3,
        )
        dirty &= inputs.keys()
    if dirty - {id(x) for x in outputs}:
        raise RuntimeError(
            "Some elements marked as dirty during the forward method were not returned as output. The inputs that are modified "
            "inplace must all be outputs of the Function."
        )
    node._output_count, node._output_shapes, node._output_numbers = len(outputs), [], {}
    results = []
    for number, x in enumerate(outputs):
        if not isinstance(x, Tensor):
            node._output_shapes.append((None, None, False))
            results.append(x)
            continue
        differentiable = id(x) not in constant and x.array.dtype.kind in "fcV"
        node._output_shapes.append((x.array.shape, x.array.dtype, differentiable))
        node._output_numbers[id(x.array)] = number
        target = (node if len(outputs) == 1 else Port(node, number)) if recording and differentiable else None
        if id(x) in dirty:
            if target is not None:
                _check_dirty(x, node.edges[inputs[id(x)]], len(outputs))
            views.rebase(x, target)
        elif id(x) in inputs:
            x = _alias(x)
            if target is not None:
                x.node = target
        elif target is not None:
            if x.base is not None and x.base.root.node is None:
                x.base = views.View(x.base.root, "custom function")
            x.node = target
        elif id(x) in constant:
            x = x if x.node is None else x.detach()
        elif x.base is not None and x.base.root.node is None and id(x.base.root) in inputs:
            x.base = views.View(x.base.root, "custom function")
        results.append(x)
    return results


def _check_dirty(x, edge, output_count):
    """RuntimeError for an input that forward may not change in place."""
    if x.base is None:
        if type(edge) is AccumulateGrad:
            raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
        return
    if output_count > 1:
        raise RuntimeError(
            "If your Function modifies inplace an input that is a view of another Tensor, your Function cannot return more than one "
            "Tensor. This is not supported by the current autograd engine. You should either make sure the input is not a view "
            "(using .clone() for example) or make your Function only return one Tensor (potentially splitting it into two "
            "Functions: one doing the inplace that returns a single Tensor and a second one that does the other operations)."
        )
    views.check_writable(x)


class hidden_tangents:
    """While a custom forward runs: operations inside don't see the tangents of its inputs, jvp is there for them."""

    def __enter__(self):
        self.before = modes.levels
        if self.before:
            set_levels(tuple([level for level in self.before if level.kind != "forward"]))

    def __exit__(self, *_exception):
        if self.before:
            set_levels(self.before)


def _push_forward(cls, node, args, results):
    """Gives the outputs of a custom Function the tangents that its jvp computes."""
    from ..forward import below, forward_levels, set_tangent, tangent_of

    for level in forward_levels():
        tangents = [tangent_of(x, level) if isinstance(x, Tensor) else None for x in args]
        if all(t is None for t in tangents):
            continue
        if node.materialize_grads:
            tangents = [
                Tensor._from(np.zeros_like(x.array))
                if t is None and isinstance(x, Tensor) and x.array.dtype.kind in "fcV"
                else t
                for x, t in zip(args, tangents)
            ]
        given = {id(x): t for x, t in zip(args, tangents)}
        counts = {id(t): views.version_of(t).count for t in tangents if t is not None}
        node._in_jvp = True
        try:
            with below(level):
                found = cls.jvp(node, *tangents)
        finally:
            node._in_jvp = False
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(results):
            raise RuntimeError(
                f"Function's jvp returned an invalid number of forward gradients (expected {len(results)} but got {len(found)})"
            )
        constant = [results[i] for i, kind in enumerate(node._output_shapes) if kind[0] is not None and not kind[2]]
        for position, (x, t) in enumerate(zip(results, found, strict=True)):
            if t is None:
                continue
            if not isinstance(t, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(t).__name__}) for grad output {position}.")
            if not isinstance(x, Tensor) or x.array.dtype.kind not in "fcV" or any(x is y for y in constant):
                raise RuntimeError(
                    f"Function's jvp returned a gradient at position {position}, but  the corresponding forward output is not a "
                    "differentiable Tensor.You should return None at that position instead."
                )
            if t.array.shape != x.array.shape:
                raise RuntimeError(
                    "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
                    f"Tensor is of size {list(x.array.shape)} while the given forward gradient is of size {list(t.array.shape)}."
                )
            if any(x is dirty for dirty in node.dirty_tensors):
                if views.version_of(given[id(x)]).count == counts[id(given[id(x)])]:
                    raise RuntimeError(
                        "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an "
                        "input inplace, then the jvp function must modify the corresponding gradient inplace."
                    )
                if given.get(id(x)) is not None and t is not given[id(x)]:
                    raise RuntimeError(
                        "An inplace custom Function is not returning the forward mode gradients as-is. If the forward is modifying an input "
                        "inplace, then the jvp function must modify the gradient inplace and return it as-is."
                    )
            elif x.base is not None and _shows_an_input(x, args) and (t.base is None or any(t is g for g in tangents)):
                raise RuntimeError(
                    "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a view."
                )
            set_tangent(x, level, t)


def _shows_an_input(x, args) -> bool:
    """Whether x is a view of one of the inputs (or of what they are views of)."""
    return any(x.base.root is (a if a.base is None else a.base.root) for a in args if isinstance(a, Tensor))


def _with_defaults(forward, args, kwargs):
    import inspect

    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    kwargs.clear()
    return bound.args


def _alias(x):
    """A view of an input that forward returned as it was."""
    result = Tensor._from(x.array)
    views.view_of(result, x, "custom function")
    return result if type(x) in PLAIN or type(x) is InferenceTensor else as_subclass(result, type(x))


def transformed(cls, args, kwargs):
    """A Function inside function transforms: under vmap by its own rule, or on batched tensors if it says that it can."""
    in_func = modes.recordings or any(getattr(level, "functional", True) for level in modes.levels)
    if not in_func:
        return cls._run(args, kwargs)
    name = cls.__name__
    if cls.setup_context is Function.setup_context:
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the "
            "setup_context staticmethod. For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
        )
    level = level_of(args)
    if level is None:
        return cls._run(args, kwargs)
    overridden = cls.vmap is not Function.vmap
    if cls.generate_vmap_rule and overridden:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod. Please set "
            "generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity. For more details, please see "
            "https://pytorch.org/docs/main/notes/extending.func.html"
        )
    if not cls.generate_vmap_rule and not overridden:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement the vmap staticmethod or "
            "set generate_vmap_rule=True. For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
        )
    batched = [type(x) is Batched and x.level is level for x in args]
    values = [x.value if b else x for x, b in zip(args, batched)]
    if cls.generate_vmap_rule:
        return _generated(cls, level, batched, values, kwargs)
    before = modes.levels
    set_levels(tuple([other for other in before if other is not level]))
    try:
        result = cls.vmap(VmapInfo(level.size, level.randomness), tuple([0 if b else None for b in batched]), *values)
        if not isinstance(result, tuple) or len(result) != 2:
            found = f"{len(result)} returns" if isinstance(result, tuple) else f"a {type(result)}"
            raise RuntimeError(
                "Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with the "
                f"output. Got {found} instead"
            )
        output, out_dims = result
        leaves, spec = tree_flatten(output)
        dims = broadcast_to_and_flatten(out_dims, spec)
        if dims is None:
            raise RuntimeError(
                "The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
                f"out_dims={out_dims} to be compatible with the structure of `output`. out_dims has structure {tree_flatten(out_dims)[1]} "
                f"but output has structure {spec}. For more details, please see "
                "https://pytorch.org/docs/main/notes/extending.func.html"
            )
        moved = [x if d is None or d == 0 else x.movedim(d, 0) for x, d in zip(leaves, dims)]
    finally:
        set_levels(before)
    return tree_unflatten([x if d is None else Batched(x, level) for x, d in zip(moved, dims)], spec)


VmapInfo = namedtuple("VmapInfo", ["batch_size", "randomness"])
VmapInfo.__doc__ = "What the vmap staticmethod of a Function learns: the size of the batch, and what random operations do."


def _generated(cls, level, batched, values, kwargs):
    """A Function whose forward, backward and jvp run on batched tensors, while its node takes and gives whole batches."""

    def under_vmap(x, is_batched):
        return Batched(x, level) if is_batched else x

    class Inner(Function):
        @staticmethod
        def forward(ctx, *args):
            samples = [under_vmap(x, b) for x, b in zip(args, batched)]
            output = cls.forward(*samples, **kwargs)
            cls.setup_context(ctx, tuple(samples), output)
            ctx.dirty_tensors = tuple(x.value if type(x) is Batched else x for x in ctx.dirty_tensors)
            single = not isinstance(output, tuple)
            outputs = [explicit(x, level) if isinstance(x, Tensor) else x for x in ((output,) if single else output)]
            plain = {id(x): y for x, y in zip((output,) if single else output, outputs)}
            ctx.non_differentiable = tuple(plain.get(id(x), x) for x in ctx.non_differentiable)
            ctx._user_saved = ctx.to_save
            ctx.to_save = ()
            return outputs[0] if single else tuple(outputs)

        @staticmethod
        def backward(ctx, *grads):
            ctx.to_save = ctx._user_saved
            samples = [None if g is None else Batched(g, level) for g in grads]
            found = (cls.backward if cls.vjp is Function.vjp else cls.vjp)(ctx, *samples)
            found = found if isinstance(found, tuple) else (found,)
            out = []
            for g, b in zip(found, batched):
                whole = g if g is None else explicit(g, level)
                out.append(whole if whole is None or b else whole.sum(0))
            return tuple(out)

        @staticmethod
        def jvp(ctx, *tangents):
            found = cls.jvp(ctx, *[None if t is None else under_vmap(t, b) for t, b in zip(tangents, batched)])
            single = not isinstance(found, tuple)
            whole = [t if t is None else explicit(t, level) for t in ((found,) if single else found)]
            return whole[0] if single else tuple(whole)

    Inner.__name__ = cls.__name__
    result = Inner._run(tuple(values), {})
    single = not isinstance(result, tuple)
    samples = [Batched(x, level) if isinstance(x, Tensor) else x for x in ((result,) if single else result)]
    return samples[0] if single else tuple(samples)


class InplaceFunction(Function):
    """A Function by its old name; `inplace` is remembered only."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """Not supported: nested structures of tensors as inputs and outputs of a legacy Function."""

    @classmethod
    def apply(cls, *args, **kwargs):
        raise RuntimeError("NestedIOFunction is a legacy of PyTorch 0.3; use Function with flat arguments")


def once_differentiable(fn):
    """Marks a backward whose own gradient would be wrong: differentiating it raises an error."""

    @functools.wraps(fn)
    def wrapper(ctx, *args):
        with no_grad():
            outputs = fn(ctx, *args)
        if not modes.grad or not any(isinstance(x, Tensor) and x.requires_grad for x in args):
            return outputs
        single = not isinstance(outputs, tuple)
        results = [x.detach() if isinstance(x, Tensor) else x for x in ((outputs,) if single else outputs)]
        error = _ErrorNode(results)
        for number, x in enumerate(results):
            if isinstance(x, Tensor):
                x.node = error if single else Port(error, number)
        return results[0] if single else tuple(results)

    return wrapper


class _ErrorNode(Node):
    """The node behind the results of a once_differentiable backward: an error, where a leaf would have its gradient."""

    __slots__ = ("outputs",)

    def __init__(self, results):
        self.edges = tuple([AccumulateGrad(x) if isinstance(x, Tensor) else None for x in results])
        self.seq, self.hooks, self.outputs = next(clock), None, len(results)

    def run(self, g, edges, keep):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")

    record = run


_ErrorNode.__name__ = "Error"
