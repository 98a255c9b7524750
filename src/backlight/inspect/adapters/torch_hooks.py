"""How the recorder for PyTorch sees calls of the program's hooks.

Hooks of tensors are seen when they are registered, and wrapped. Those of nodes, and of modules' backward, can be registered
unseen, but nobody can register one without reading a `grad_fn`: once the program did that, backward passes run under a
Python profile function, unless there is one already, and it sees the calls.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import _engine_run_backward

from .. import schema
from ..recorder import Running, name_of_hook
from .torch_nodes import NodeRecorder
from .torch_tensors import grad_fn_of, unobserved

if TYPE_CHECKING:
    from types import FrameType

_ENGINE = _engine_run_backward.__code__
_MODULE_HOOKS = os.path.join(os.path.dirname(torch.__file__), "utils", "hooks.py")


class HookRecorder(NodeRecorder):
    """The part of `TorchRecorder` that records hooks."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.profile_wanted = False
        self._orders: dict[tuple, int] = {}  # how many hooks of a kind a tensor has
        self._retainers: dict[
            int, list[tuple[schema.Registration, int]]
        ] = {}  # number of a node -> its outputs that retain grad

    def _finish_step(self, running: Running) -> None:
        """A step and its hooks have run (see `PassRecorder`)."""
        raise NotImplementedError

    def _write_gradient(self, running: Running) -> None:
        """The write into `.grad`, once per step (see `PassRecorder`)."""
        raise NotImplementedError

    # Registration

    def _registration(self, kind: str, function: str, tensor: Any) -> schema.Registration:
        with unobserved():
            line = self.tensor(tensor)
            node = None if (grad_fn := grad_fn_of(tensor)) is None else self.node(grad_fn)
        order = self._orders[kind, line.number] = self._orders.get((kind, line.number), -1) + 1
        return self.add(self.record.registrations, schema.Registration, kind, function, self.site(3)[0], order, node, line)

    def _register(self, kind: str, func: Any, args: Any, kwargs: Any) -> Any:
        """`register_hook` and `register_post_accumulate_grad_hook`: registers a function that calls the program's."""
        tensor, hook = args[0], args[1] if len(args) > 1 else kwargs.get("hook")
        registration: list[schema.Registration] = []

        @functools.wraps(hook)
        def observed(value: Any) -> Any:
            return self._call_hook(registration[0], hook, value) if self.active else hook(value)

        result = func(tensor, observed)
        registration.append(self._registration(kind, name_of_hook(hook), tensor))
        return result

    def _retain_grad(self, func: Any, args: Any, kwargs: Any) -> Any:
        tensor = args[0]
        with unobserved():
            retained = tensor.is_leaf or tensor.retains_grad
        result = func(*args, **kwargs)
        if not retained:
            registration = self._registration("retain_grad", "retain_grad", tensor)
            with unobserved():
                self._retainers.setdefault(registration.node.number, []).append((registration, tensor.output_nr))  # pyright: ignore
        return result

    def _grad_fn_read(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.profile_wanted = True
        return func(*args, **kwargs)

    # Calls of tensors' hooks

    def _call_hook(self, registration: schema.Registration, hook: Any, value: Any) -> Any:
        """Runs a hook of a tensor. The hooks of a gradient run before the step of its node begins."""
        running = self.thread.running[-1] if self.thread.running else None
        of_gradient = registration.type == "tensor"
        first_op = len(self.record.ops)
        with unobserved():
            if running is not None:
                if of_gradient:
                    self._finish_step(running)
                else:
                    self._write_gradient(running)
            seen = value if of_gradient else value.grad
            before, version = None if seen is None else self._measure(seen), None if seen is None else seen._version
        pushed = self._push_mode()
        try:
            result = hook(value)
        finally:
            if pushed:
                self._take_mode_away()
        with unobserved():
            went_on = (
                result if of_gradient and isinstance(result, torch.Tensor) else seen
            )  # anything else: PyTorch raises, or ignores it
            changed = went_on is not seen or (seen is not None and seen._version != version)
            after = self._measure(went_on) if changed else before
            tensor = self.live(registration.tensor) if registration.tensor is not None else None
            grad_fn = None if tensor is None else grad_fn_of(tensor)
            node = None if grad_fn is None else self.node(grad_fn)
        step = None if running is None or of_gradient else running.step
        call = self.add(
            self.record.hooks, schema.Hook, registration.type, registration.function, registration.site, registration.order, step,
            step.node if step is not None else node, registration.tensor, [before], [after], changed,
        )  # fmt: skip
        if running is not None and of_gradient:
            running.pending_hooks.append(call)
            ops = self.record.ops[first_op:]
            running.pending_ops += [op for op in ops if op.during is None and op.thread == self.thread.number]
        return result

    def _hooks_before_step(self, running: Running, step: schema.Step) -> None:
        """Hooks of the gradient that arrived ran before: now it is known for which step."""
        for call in running.pending_hooks:
            if call.node is step.node or (call.node is None and call.tensor is step.node.leaf):
                call.step, call.node = step, step.node
                for op in running.pending_ops:
                    op.during = step
        running.pending_hooks.clear()
        running.pending_ops.clear()

    def _retained(self, running: Running, line: schema.Node, arrived: list) -> None:
        """`retain_grad` stored the gradient as it was after the tensor's hooks."""
        for registration, output in self._retainers.get(line.number, ()):
            value = arrived[output] if output < len(arrived) else None
            call = self.add(
                self.record.hooks, schema.Hook, "retain_grad", "retain_grad", registration.site, registration.order, None, line,
                registration.tensor, [value], [value],
            )  # fmt: skip
            running.pending_hooks.append(call)

    # Calls of nodes' and modules' hooks

    def _begin_profile(self) -> bool:
        """Whether a profile function sees this pass from now on: only where the program may have hooks that nothing else sees."""
        if not self.profile_wanted or sys.getprofile() is not None:
            return False
        self.thread.calls.clear()
        sys.setprofile(self._profile)
        return True

    def _profile(self, frame: FrameType, event: str, result: Any) -> None:
        """Python calls this whenever a function begins or returns."""
        if event not in ("call", "return") or frame.f_back is None:
            return
        if event == "call":
            caller = frame.f_back.f_code
            if caller is _ENGINE or caller.co_filename == _MODULE_HOOKS:
                self._hook_begins(frame, caller is _ENGINE)
            return
        calls = self.thread.calls
        if calls and calls[-1][0] == id(frame):
            _, call, running = calls.pop()
            if result is not None:
                with unobserved():
                    self._hook_changed(call, running, result)

    def _hook_begins(self, frame: FrameType, of_node: bool) -> None:
        running = self.thread.running[-1] if self.thread.running else None
        code = frame.f_code
        if running is None or not self.active or code.co_filename.startswith(self.own_code):
            return
        arguments = _arguments(frame)
        tuples = [x for x in arguments if isinstance(x, tuple)]
        step = running.step
        if not of_node:
            if not arguments or not isinstance(arguments[0], torch.nn.Module):
                return
            kind, gradients = "module_backward", tuples[-1] if tuples else ()
        elif any(id(x) == running.arguments for x in tuples):
            kind, gradients = "prehook", tuples[-1]
        elif len(tuples) >= 2:
            kind, gradients = "posthook", tuples[-2]
        else:
            return  # a hook of another kind: it was wrapped, or packs or unpacks saved tensors
        with unobserved():
            if kind == "posthook":
                self._write_gradient(running)
            values: list = [self._measure(x) if isinstance(x, torch.Tensor) else None for x in gradients]
        order = sum(hook.type == kind and hook.step is step for hook in self.record.hooks[-32:])
        node = None if step is None else step.node
        call = self.add(
            self.record.hooks, schema.Hook, kind, getattr(code, "co_qualname", code.co_name), self.definition_of(code), order, step, node,
            None if node is None else node.leaf, values, values,
        )  # fmt: skip
        self.thread.calls.append((id(frame), call, running))

    def _hook_changed(self, call: schema.Hook, running: Running, result: Any) -> None:
        gradients = result if isinstance(result, tuple) else (result,)
        if all(x is None or isinstance(x, torch.Tensor) for x in gradients):
            call.after = [None if x is None else self._measure(x) for x in gradients]
            call.changed = True
            if call.type == "prehook" and call.step is not None:  # what the node itself receives
                call.step.arrived = list(call.after)
                running.arguments = id(result)


def _arguments(frame: FrameType) -> list:
    """The values that a function was called with."""
    code, local = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    values = [local[name] for name in names if name in local]
    if code.co_flags & 4:  # *args
        rest = local.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
        values += rest
    return values
