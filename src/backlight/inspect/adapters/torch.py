"""Records a program that runs on PyTorch, unmodified, through what PyTorch offers to everybody.

* A `TorchFunctionMode` sees every function that the program calls on tensors, also `backward` and `register_hook`.
* Each node that comes up gets a prehook, which sees the order of a backward pass and the gradients that arrive; with
  policy "norms" or "full" it gets a hook, too, which sees the gradients that it passes on.
* Global hooks of modules and optimizers see their calls.

A node remembers its line of the record in its `metadata`; a hook on it refers to the recorder and to that line, never to
the node or a tensor, so graphs are freed as if nobody had looked. After `stop` such hooks do nothing.

Two things a program can notice: a warning that PyTorch issues in C++ names a line of this file, and calling a module that
torch.compile compiled warns of global module hooks.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from .. import schema
from ..recorder import OWN_CODE
from .torch_names import CONVERSIONS, UNINTERESTING, name_of
from .torch_passes import PassRecorder
from .torch_tensors import count_modes, grad_fn_of, unobserved

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

NOT_OBSERVABLE = [
    "operations that run in other threads, outside of modules' forward",
    "operations inside a function of torch.nn.functional or of C++ that consists of several: they are one operation",
    "hooks that were registered on tensors before the recording began; the calls of hooks on nodes are seen once the program read a grad_fn",
    "where hooks of nodes were registered (where they are defined is known once they are called)",
    "an optimizer's zero_grad when all its gradients are None already",
    "operations after an optimizer's step that raised, until the next call of a module",
    "operations inside of TransformerEncoder and MultiheadAttention in eval mode, where no gradient is wanted",
    "inference mode and anomaly mode; train() and eval() (each call of a module notes which was on)",
    "what saved-tensor hooks made of a saved tensor (checkpoint, offloading), and the calls of such hooks",
    "the ready queue of the engine (record.order() predicts it)",
]
NOT_OBSERVABLE_SHAPES = "gradients that a step passed on (policy 'shapes'); its seconds last until the next step begins"

# They have another way to compute without gradients, which PyTorch doesn't take while a function mode is on; it zeroes padding.
_FAST_WITHOUT_MODES = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)

is_compiling = torch.compiler.is_compiling
_OPTIMIZERS = os.path.dirname(sys.modules[Optimizer.__module__].__file__ or "") + os.sep


class FunctionMode(TorchFunctionMode):
    """Hands every function that the program calls on tensors to the recorder."""

    def __init__(self, recorder: TorchRecorder):
        self.recorder = recorder
        self.observers: dict[Any, Callable | None] = {}  # what observes a function, None if it needs no observation

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_compiling() and self.recorder.active:  # torch.compile traces this function: it must find nothing to do
            try:
                observe = self.observers[func]
            except KeyError:
                observe = self.observers[func] = self.recorder.observer(func)
            if observe is not None:
                return observe(func, args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)


class TorchRecorder(PassRecorder):
    """Fills a record from a PyTorch program."""

    engine = "torch"
    module_call = torch.nn.Module._call_impl.__code__
    own_code = (*OWN_CODE, os.path.dirname(torch.__file__) + os.sep, "<eval_with_key>")
    wrappers = frozenset({"_no_grad_wrapper", "decorate_context", "inner", "wrapper", "wrapped", "_fn"})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.record.engine_version = torch.__version__
        self.record.not_observable += NOT_OBSERVABLE
        if self.policy == "shapes":
            self.record.not_observable.append(NOT_OBSERVABLE_SHAPES)
        self.mode = FunctionMode(self)
        self.home = 0  # the thread in which the recording began
        self._handles: list[Any] = []

    # Beginning and end

    def start(self) -> None:
        if self.active:
            raise RuntimeError("this recorder records already")
        modes = [torch._C._get_function_stack_at(i) for i in range(count_modes())]
        for other in [mode.recorder for mode in modes if isinstance(mode, FunctionMode)]:
            if other.active:
                raise RuntimeError("another recording is going on in this thread")
            other._take_mode_away()  # it was stopped while a function of PyTorch ran
        self.active = True
        self.home = threading.get_ident()
        self.first_sequence = _next_sequence_number()
        self._handles = [
            register_module_forward_pre_hook(self._module_begins),
            register_module_forward_hook(self._module_ended, always_call=True),
            register_optimizer_step_pre_hook(self.before_optimizer),
            register_optimizer_step_post_hook(self.after_optimizer),
        ]
        self.mode.__enter__()

    def stop(self) -> None:
        """Stops observing. Called while a function of PyTorch runs it leaves a mode behind that does nothing, until called again."""
        if self.active:
            self.active = False
            for handle in self._handles:
                handle.remove()
            self._handles = []
            self.thread.modules.clear()
            self.thread.paused = False
            with unobserved():
                self.name_tensors(sys._getframe(1), final=True)
        if threading.get_ident() == self.home:
            self._take_mode_away()

    # Operations

    def observer(self, func: Any) -> Callable | None:
        """What observes calls of a function, None if nothing has to."""
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            return self._observer_of_attribute(getattr(func.__self__, "__name__", ""), name == "__set__")
        special = {
            torch.Tensor.backward: self._tensor_backward,
            torch.autograd.backward: self._autograd_backward,
            torch.autograd.grad: self._autograd_grad,
            torch._C._set_grad_enabled: self._grad_mode,
            torch.Tensor.requires_grad_: self._requires_grad,
            torch.Tensor.register_hook: partial(self._register, "tensor"),
            torch.Tensor.register_post_accumulate_grad_hook: partial(self._register, "post_accumulate"),
            torch.Tensor.retain_grad: self._retain_grad,
        }.get(func)
        if special is not None:
            return special
        name = name_of(name)
        return None if name in UNINTERESTING else partial(self._operation, name)

    def _observer_of_attribute(self, name: str, set_it: bool) -> Callable | None:
        if set_it:
            return {
                "grad": self._grad_set,
                "requires_grad": self._requires_grad,
                "data": partial(self._operation, "set_data"),
            }.get(name)
        if name == "grad_fn":
            return self._grad_fn_read
        if name == "grad":
            return self._grad_read
        return partial(self._operation, name) if name in ("data", "T", "H", "mT", "mH", "real", "imag") else None

    def _operation(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operation and records it, if it has anything to do with tensors."""
        thread = self.thread
        if thread.quiet and self._is_quiet():
            return func(*args, **kwargs)
        tensors: list = []
        arguments: list = []
        self._flatten(args, tensors, arguments)
        if kwargs:
            self._flatten(kwargs.values(), tensors, arguments)
        if not tensors:
            return func(*args, **kwargs)
        if count_modes():  # the program has a mode, too
            with unobserved():
                before = self._before_operation(name, tensors)
        else:
            before = self._before_operation(name, tensors)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            self._failed(error)
            raise
        if self.active:
            outputs: list = []
            self._flatten((result,), outputs, None)
            if count_modes():
                with unobserved():
                    self._after_operation(name, tensors, arguments, outputs, *before)
            else:
                self._after_operation(name, tensors, arguments, outputs, *before)
        return result

    def _before_operation(self, name: str, tensors: list) -> tuple:
        """What there is to know before an operation runs: it can change its inputs."""
        known, inner = self._tensors, self._inner
        lines = []
        for t in tensors:
            found = known.get(id(t))
            line = found[1] if found is not None and found[0]() is t else self.tensor(t)
            lines.append(line)
            if inner and line.number in inner:
                self._settle(t, line)
        try:
            versions = [t._version for t in tensors]
        except RuntimeError:  # an inference tensor
            versions = [self.version(t) for t in tensors]
        grad_enabled = torch.is_grad_enabled()
        custom = None if grad_enabled else self._custom_function()
        detached = name == "detach_" and lines[0].requires_grad
        return lines, versions, grad_enabled, detached, custom

    def _after_operation(
        self, name: str, tensors: list, arguments: list, outputs: list, inputs: list, versions: list, grad_enabled: bool,
        detached: bool, custom: schema.Op | None,
    ) -> None:  # fmt: skip
        """Records an operation that ran: `inputs` are the lines of `tensors`."""
        changed = [i for i, version in enumerate(versions) if version is not None and tensors[i]._version != version]
        if not changed and name not in CONVERSIONS and not _any_new(outputs, tensors):
            return  # a question, or `x.contiguous()` of what is contiguous
        op = self.op(name, inputs, arguments, grad_enabled, 4)  # above the caller and __torch_function__
        if self.thread.adopted:
            self._adopt_custom_nodes(op)
        node = None
        for position, output in enumerate(outputs or [tensors[i] for i in changed]):
            grad_fn = grad_fn_of(output) if grad_enabled else None  # nothing gets a node while grad mode is off
            node = None if grad_fn is None else self.node(grad_fn, op)
            line = self.known_tensor(output)
            if line is None:
                line = self._new_tensor(output, node)
                line.op = op
                if node is None:
                    line.output = position
                    if line.role != "parameter":
                        line.role = "result"
                elif node.saved:
                    self._find_saved(line, node)
            elif node is not None and changed:
                line.node, line.output, line.requires_grad, line.leaf = node, output.output_nr, True, False
            op.outputs.append(line)
            if custom is not None:
                self._inner.add(line.number)
        if name in ("detach_", "set_data"):
            self._rewired(op, tensors, inputs, detached)
        elif node is None and not changed and (grad_enabled or op.during is None) and not self._has_node(custom):
            op.cut = self.cut_of(op)
        if name in ("data", "numpy"):  # somebody can write unseen
            for t in tensors:
                self._measured[id(t)] = weakref.ref(t), -1, schema.Statistics(())
        for i in changed:
            self._written(tensors[i], op, versions[i])

    @staticmethod
    def _has_node(custom: schema.Op | None) -> bool:
        """Whether a custom Function will have a node, which passes on the gradients of what happens inside."""
        return custom is not None and any(x.requires_grad for x in custom.inputs)

    @staticmethod
    def _find_saved(line: schema.Tensor, node: schema.Node) -> None:
        """The node of a result may have saved it, as another tensor of the same memory."""
        for saved in node.saved:
            if saved.tensor is None and saved.storage == line.storage and saved.shape == line.shape:
                saved.tensor = line

    def _written(self, tensor: Any, op: schema.Op, before: int) -> None:
        """An operation wrote to a tensor: that has a new node, and the tensor that it is a view of, too."""
        line = self.tensor(tensor)
        base = tensor._base
        for one in (tensor,) if base is None else (tensor, base):
            grad_fn = grad_fn_of(one)
            if grad_fn is not None:
                known = self.tensor(one)
                known.node, known.output = self.node(grad_fn, op), one.output_nr
                known.requires_grad, known.leaf = True, False
        self.written(line, op, before, tensor._version)

    def _rewired(self, op: schema.Op, tensors: list, inputs: list, detached: bool) -> None:
        """`detach_()` and `x.data = y` change what a tensor is."""
        line, tensor = inputs[0], tensors[0]
        if op.function == "detach_":
            op.cut = "detach" if detached else None
        line.requires_grad, line.leaf, line.storage = tensor.requires_grad, tensor.is_leaf, self.storage(tensor)
        if line.leaf:
            line.node = None

    def _failed(self, error: Exception) -> None:
        """An operation raised."""
        if type(error).__module__ != "torch.utils.checkpoint":  # by which a recomputation stops early
            running = self.thread.running[-1] if self.thread.running else None
            self.add(
                self.record.errors, schema.Error, type(error).__name__, str(error), self.site(2)[0],
                running and running.to, running and running.step,
            )  # fmt: skip

    # Modes and `.grad`

    def _grad_mode(self, func: Any, args: Any, kwargs: Any) -> Any:
        before = torch.is_grad_enabled()
        result = func(*args, **kwargs)
        if args and bool(args[0]) != before and not (self.thread.quiet and self._is_quiet()):
            self.thread.grad_off = not args[0]
            self.add(self.record.modes, schema.Mode, "grad", bool(args[0]), self.site(2)[0])
        return result

    def _requires_grad(self, func: Any, args: Any, kwargs: Any) -> Any:
        """`x.requires_grad = True` and `x.requires_grad_()`."""
        tensor = args[0]
        with unobserved():
            line, before = self.tensor(tensor), tensor.requires_grad
        result = func(*args, **kwargs)
        with unobserved():
            after = tensor.requires_grad
        if after != before:
            line.requires_grad = after
            if line.role in ("constant", "leaf"):
                line.role = "leaf" if after else "constant"
            self._unnamed = True
            self.add(self.record.modes, schema.Mode, "requires_grad", after, self.site(2)[0], line)
        return result

    def _grad_read(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The program reads `.grad`: worth noting at a tensor that never has one."""
        result = func(*args, **kwargs)
        if result is None and not self.thread.quiet:
            tensor = args[0]
            with unobserved():
                if grad_fn_of(tensor) is not None and not tensor.retains_grad:
                    self.op("grad", [self._used(tensor)], [], torch.is_grad_enabled())
        return result

    def _grad_set(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The program assigns to `.grad`."""
        result = func(*args, **kwargs)
        if self.thread.quiet and self._is_quiet():
            return result
        tensor, value = args
        if value is None:
            line, measured = self.known_tensor(tensor), None
        else:
            line = None
        if line is None:
            with unobserved():
                line, measured = self.tensor(tensor), None if value is None else self.statistics(value)
        site, via = self.site(3)  # above the caller and __torch_function__
        if via == "zero_grad":
            self._zero_grad_call(line, site)
        how = "cleared" if value is None else "assigned"
        self.add(self.record.gradient_writes, schema.GradientWrite, line, how, site, None, measured)
        return result

    def _zero_grad_call(self, line: schema.Tensor, site: schema.Site | None) -> None:
        """Records a call of an optimizer's zero_grad at the first of its tensors."""
        seen, last = self.thread.cleared, self.record.events[-1] if self.record.events else None
        if isinstance(last, schema.GradientWrite) and last.site is site and seen and line.number not in seen:
            seen.add(line.number)
            return
        frame: FrameType | None = sys._getframe(3)  # above this and the observer and __torch_function__
        optimizer = frame.f_locals.get("self") if frame is not None and frame.f_code.co_name == "zero_grad" else None
        if isinstance(optimizer, Optimizer):
            self.thread.cleared = {line.number}
            self.add(
                self.record.optimizers,
                schema.Optimizer,
                self.optimizer_number(optimizer),
                type(optimizer).__name__,
                "zero_grad",
                site,
            )

    # Modules and optimizers

    def begin_module(self, module: Any) -> None:
        self._module_begins(module, ())

    def _module_begins(self, module: Any, args: Any) -> None:
        if not is_compiling() and self.active:
            thread = self.thread
            if thread.paused:
                self._resume()
            if not thread.modules and threading.get_ident() != self.home:
                thread.pushed = self._push_mode()  # until this call ends
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code is not self.module_call:
                frame = frame.f_back
            self.enter_module(module, None if frame is None else frame.f_back)
            thread.module_ids.append(id(module))
            if isinstance(module, _FAST_WITHOUT_MODES) and not module.training and thread.aside is None:
                with unobserved():
                    if not _wants_gradients(module, args) and self._has_mode():
                        self._take_mode_away()
                        thread.aside = id(module)

    def _module_ended(self, module: Any, *_args: Any) -> None:
        if is_compiling():
            return
        thread = self.thread
        ids = thread.module_ids
        if thread.aside == id(module):
            thread.aside = None
            self._push_mode()
        if id(module) in ids:
            while ids.pop() != id(module):  # a call that was interrupted didn't end
                self.leave_module()
            self.leave_module()
        if thread.pushed and not ids:
            thread.pushed = False
            self._take_mode_away()

    def before_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        thread = self.thread
        with unobserved():
            super().before_optimizer(optimizer, args, kwargs)
        thread.modules_at_step = len(thread.modules)
        closure = kwargs.get("closure") or (len(args) > 1 and args[1])
        simple = not closure and type(optimizer).__module__.startswith("torch.optim.")
        if simple and count_modes() and torch._C._get_function_stack_at(count_modes() - 1) is self.mode:
            torch._C._pop_torch_function_stack()  # nothing of what follows would be recorded
            thread.paused = True

    def after_optimizer(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._resume()
        with unobserved():
            super().after_optimizer(optimizer, args, kwargs)

    def _resume(self) -> None:
        """Turns the mode on again after an optimizer's step, or when a module is called although that step raised."""
        if self.thread.paused:
            self.thread.paused = False
            self._push_mode()

    def _is_quiet(self) -> bool:
        """Whether the function that is observed is a part of an optimizer's step, and not of a closure that it calls."""
        thread = self.thread
        frame: FrameType | None = sys._getframe(2)
        called_by_program = False
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(_OPTIMIZERS) and code.co_name != "zero_grad":  # that the program calls, in a closure
                # A closure is called by PyTorch's step; a step that the program wrote is called by PyTorch's wrapper around it.
                closure = called_by_program and code.co_name != "wrapper"
                return not closure and len(thread.modules) <= thread.modules_at_step
            called_by_program = called_by_program or not code.co_filename.startswith(self.own_code)
            frame = frame.f_back
        thread.quiet = 0  # a step that raised
        thread.__dict__.pop("optimizers", None)
        return False


def _wants_gradients(module: Any, args: Any) -> bool:
    """Whether gradients can flow through a call of a module."""
    tensors = (*module.parameters(), *(x for x in args if isinstance(x, torch.Tensor)))
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _any_new(outputs: list, tensors: list) -> bool:
    """Whether an operation returned tensors that it didn't get."""
    for output in outputs:
        for tensor in tensors:
            if output is tensor:
                break
        else:
            return True
    return False


def _next_sequence_number() -> int:
    """The sequence number that the next node gets; 0 where PyTorch doesn't tell."""
    number = getattr(torch.autograd, "_get_sequence_nr", None)
    return 0 if number is None else number()
