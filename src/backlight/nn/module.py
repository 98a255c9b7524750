"""Module: a tree of parameters, buffers and child modules around a `forward` method.

Everything a module owns lies in its `__dict__`, so `self.weight` and `self.layer` are ordinary attribute reads. Three
small tables per module remember which names are parameters, buffers and children, and in which order they came;
`_parameters`, `_buffers` and `_modules` are live views of one kind each. Hook tables come into being at their first
use, and `_hooked` says whether any may exist: a call without hooks costs one attribute test.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from .. import empty_like, no_grad
from ..autograd.hooks import RemovableHandle, add_hook
from ..dtypes import device as Device
from ..dtypes import dtype as Dtype
from ..state import state
from ..tensor import Parameter, Tensor
from .hooks import BackwardCrossing, hook_last_node
from .parameter import Buffer, clear_grads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Self

__all__ = ["Module"]

# The hook tables a call looks at, and all of them.
_CALL_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks", "_last_node_hooks")
_TABLES = frozenset(
    {
        *_CALL_TABLES,
        "_forward_pre_hooks_with_kwargs",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_state_dict_pre_hooks",
        "_state_dict_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    }
)

_global_forward_pre_hooks: OrderedDict = OrderedDict()
_global_forward_hooks: OrderedDict = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict = OrderedDict()
_global_forward_hooks_always_called: OrderedDict = OrderedDict()
_global_backward_pre_hooks: OrderedDict = OrderedDict()
_global_backward_hooks: OrderedDict = OrderedDict()
_global_last_node_hooks: OrderedDict = OrderedDict()
_global_call_hooks = (
    _global_forward_pre_hooks,
    _global_forward_hooks,
    _global_backward_pre_hooks,
    _global_backward_hooks,
    _global_last_node_hooks,
)
_global_parameter_registration_hooks: OrderedDict = OrderedDict()
_global_buffer_registration_hooks: OrderedDict = OrderedDict()
_global_module_registration_hooks: OrderedDict = OrderedDict()


class _Entries(MutableMapping):
    """The parameters, the buffers or the children of one module: a live view, in order of registration."""

    __slots__ = ("attributes", "names")

    def __init__(self, names: dict, attributes: dict) -> None:
        self.names = names
        self.attributes = attributes

    def __getitem__(self, name):
        if name in self.names:
            return self.attributes[name]
        raise KeyError(name)

    def __setitem__(self, name, value):
        self.names.setdefault(name, True)
        self.attributes[name] = value

    def __delitem__(self, name):
        del self.names[name]
        del self.attributes[name]

    def __iter__(self):
        return iter(self.names)

    def __reversed__(self):
        return reversed(self.names)

    def __len__(self):
        return len(self.names)

    def keys(self):
        return self.names.keys()

    def values(self) -> list:
        attributes = self.attributes
        return [attributes[name] for name in self.names]

    def items(self) -> list[tuple]:
        attributes = self.attributes
        return [(name, attributes[name]) for name in self.names]

    def __repr__(self):
        return repr(dict(self))

    def copy(self) -> dict:
        return dict(self)


class _IncompatibleKeys(namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def _type_name(value) -> str:
    return value.type() if isinstance(value, Tensor) else type(value).__name__


def _check_one_kind(where: str, others: OrderedDict) -> None:
    """RuntimeError if there are hooks of the other kind, `others`."""
    if others:
        raise RuntimeError(
            f"Cannot use both regular backward hooks and full backward hooks {where}. Please use only one of them."
        )


def _is_registered(attributes: dict[str, Any], name: str) -> bool:
    """Whether `name` is a parameter, buffer or child of the module with these attributes."""
    return any(name in attributes.get(table, ()) for table in ("_parameter_names", "_buffer_names", "_module_names"))


def _ask_getattr(self: Module, name: str) -> Any:
    """`__getattribute__` of modules with a `__getattr__` of their own: PyTorch asks it for what is registered.

    Other modules find that among their attributes, without a call.
    """
    if not name.startswith("__"):
        attributes = object.__getattribute__(self, "__dict__")
        if name in _TABLES and name not in attributes:
            return Module.__getattr__(self, name)
        if _is_registered(attributes, name) and not hasattr(type(self), name):
            return type(self).__getattr__(self, name)
    return object.__getattribute__(self, name)


class Module:
    """Base class of all layers and networks.

    A subclass calls `super().__init__()`, assigns its parts to attributes and defines `forward`. Assigning a
    `Parameter` or a `Module` registers it: `parameters()`, `state_dict()`, `to()` and `train()` then see it.

    >>> import backlight as torch
    >>> class Line(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.slope = torch.nn.Parameter(torch.tensor(2.0))
    ...     def forward(self, x):
    ...         return self.slope * x
    >>> Line()(torch.tensor(3.0))
    tensor(6., grad_fn=<MulBackward0>)
    """

    training: bool
    _version: int = 1
    call_super_init: bool = False
    dump_patches: bool = False
    # True on a module once a hook was registered on it, and on this class once a global hook was.
    _hooked: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            name = f"{type(self).__name__}.__init__()"
            if kwargs:
                raise TypeError(f"{name} got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{name} takes 1 positional argument but {len(args) + 1} were given")
        self.__dict__.update(training=True, _parameter_names={}, _buffer_names={}, _module_names={})
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- calling ------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooked:
            return self._call_hooked(args, kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, *_input: Any) -> Any:
        """Computes the module's output. Every subclass defines it."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def _call_hooked(self, args, kwargs):
        recorder = state.recorder
        if recorder is None:
            return self._call_with_hooks(args, kwargs)
        recorder.enter_module(self)
        try:
            if "_hooked" not in self.__dict__ and not any(_global_call_hooks):
                return self.forward(*args, **kwargs)
            return self._call_with_hooks(args, kwargs)
        finally:
            recorder.leave_module()

    def _call_with_hooks(self, args, kwargs):
        if not any(_global_call_hooks) and not any(map(self.__dict__.get, _CALL_TABLES)):
            if state.recorder is None:
                Module._hooked = False  # all hooks were removed
                self.__dict__.pop("_hooked", None)
            return self.forward(*args, **kwargs)
        result, called = None, set()
        try:
            args, kwargs = self._run_forward_pre_hooks(args, kwargs)
            backward_pre_hooks = [*_global_backward_pre_hooks.values(), *self._backward_pre_hooks.values()]
            backward_hooks = [*_global_backward_hooks.values(), *self._backward_hooks.values()]
            crossing = None
            if backward_pre_hooks or backward_hooks:
                crossing = BackwardCrossing(self, backward_pre_hooks, backward_hooks)
                args = crossing.enter(args)
            result = self.forward(*args, **kwargs)
            for key, hook, with_kwargs, _always in self._all_forward_hooks():
                called.add(key)
                new = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                if new is not None:
                    result = new
            if crossing is not None:
                result = crossing.leave(result)
            last_node_hooks = [*_global_last_node_hooks.values(), *self._last_node_hooks.values()]
            if last_node_hooks:
                hook_last_node(self, last_node_hooks, args, result)
            return result
        except Exception:
            for key, hook, with_kwargs, always in self._all_forward_hooks():
                if not always or key in called:
                    continue
                try:
                    new = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                    if new is not None:
                        result = new
                except Exception as error:
                    warnings.warn(
                        "module forward hook with ``always_call=True`` raised an exception that was silenced as "
                        f"another error was raised in forward: {error}",
                        stacklevel=3,
                    )
            raise

    def _run_forward_pre_hooks(self, args, kwargs):
        for hook in _global_forward_pre_hooks.values():
            new = hook(self, args)
            if new is not None:
                args = new if isinstance(new, tuple) else (new,)
        with_kwargs = self._forward_pre_hooks_with_kwargs
        for key, hook in list(self._forward_pre_hooks.items()):
            if key in with_kwargs:
                new = hook(self, args, kwargs)
                if new is not None:
                    if not (isinstance(new, tuple) and len(new) == 2):
                        raise RuntimeError(
                            f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {new}."
                        )
                    args, kwargs = new
            else:
                new = hook(self, args)
                if new is not None:
                    args = new if isinstance(new, tuple) else (new,)
        return args, kwargs

    def _all_forward_hooks(self):
        """(key, hook, takes kwargs, is called even after an error), the global hooks first."""
        for hooks, with_kwargs, always in (
            (_global_forward_hooks, _global_forward_hooks_with_kwargs, _global_forward_hooks_always_called),
            (self._forward_hooks, self._forward_hooks_with_kwargs, self._forward_hooks_always_called),
        ):
            for key, hook in list(hooks.items()):
                yield key, hook, key in with_kwargs, key in always

    # -- hooks --------------------------------------------------------------------------------------------------

    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """`hook(module, args)` runs before `forward` and may return new arguments.

        With `with_kwargs` it is `hook(module, args, kwargs)`, and it may return `(args, kwargs)`.
        """
        self._hooked = True
        flags = [self._forward_pre_hooks_with_kwargs] if with_kwargs else ()
        return add_hook(self._forward_pre_hooks, hook, prepend=prepend, flags=flags)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """`hook(module, args, output)` runs after `forward` and may return a new output.

        With `with_kwargs` it is `hook(module, args, kwargs, output)`. With `always_call` it runs even where `forward`
        or an earlier hook raised.
        """
        self._hooked = True
        flags = []
        if with_kwargs:
            flags.append(self._forward_hooks_with_kwargs)
        if always_call:
            flags.append(self._forward_hooks_always_called)
        return add_hook(self._forward_hooks, hook, prepend=prepend, flags=flags)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(module, grad_output)` runs when the gradients of the outputs are known; it may return new ones."""
        self._hooked = True
        return add_hook(self._backward_pre_hooks, hook, prepend=prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """`hook(module, grad_input, grad_output)` runs when the gradients of the inputs are known.

        It may return new `grad_input`s. Where no input requires grad it runs as soon as the output's are known.
        Inputs and outputs of such a module must not be modified in place.
        """
        _check_one_kind("on a single Module", self._last_node_hooks)
        self._hooked = True
        return add_hook(self._backward_hooks, hook, prepend=prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, grad_input, grad_output)` sees the gradients of the node that made the output, not the module's.

        Deprecated: use `register_full_backward_hook`. A FutureWarning says where gradients are missing.
        """
        _check_one_kind("on a single Module", self._backward_hooks)
        self._hooked = True
        return add_hook(self._last_node_hooks, hook)

    # -- attributes ---------------------------------------------------------------------------------------------

    @property
    def _parameters(self) -> _Entries:
        return _Entries(self._parameter_names, self.__dict__)

    @property
    def _buffers(self) -> _Entries:
        return _Entries(self._buffer_names, self.__dict__)

    @property
    def _modules(self) -> _Entries:
        return _Entries(self._module_names, self.__dict__)

    @property
    def _non_persistent_buffers_set(self) -> set[str]:
        return {name for name, persistent in self._buffer_names.items() if not persistent}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__getattr__ is not Module.__getattr__ and cls.__getattribute__ is object.__getattribute__:
            cls.__getattribute__ = _ask_getattr

    def __getattr__(self, name: str) -> Any:
        if name in _TABLES:
            table = self.__dict__[name] = OrderedDict()
            return table
        if _is_registered(self.__dict__, name):  # a subclass's method asks for it
            return self.__dict__[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or isinstance(value, (Tensor, Module)):
            self._assign(name, value)
        else:
            object.__setattr__(self, name, value)

    def _assign(self, name: str, value: Any) -> None:
        """Assigns where `name` or `value` may need registration: a parameter, child or buffer, old or new."""
        parameters = self.__dict__.get("_parameter_names")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, parameters)
            self.register_parameter(name, value)
            return
        if parameters is None:
            if isinstance(value, Module):
                raise AttributeError("cannot assign module before Module.__init__() call")
            if isinstance(value, Buffer):
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            object.__setattr__(self, name, value)
            return
        if name in parameters:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, value)
            return
        modules, buffers = self._module_names, self._buffer_names
        if isinstance(value, Module):
            self._forget(name, modules)
            self._store_module(name, value)
        elif name in modules:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as child module '{name}' (torch.nn.Module or None expected)"
                )
            self._store_module(name, value)
        elif name in buffers or isinstance(value, Buffer):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"cannot assign '{_type_name(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)"
                )
            persistent = value.persistent if isinstance(value, Buffer) else buffers[name]  # pyright: ignore[reportAttributeAccessIssue]
            self._forget(name, buffers)
            self.register_buffer(name, value, persistent)
        else:
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        self._forget(name, keep=None)
        object.__delattr__(self, name)

    def _forget(self, name: str, keep: dict | None) -> None:
        """Takes `name` out of all the tables but `keep`; if it was not in `keep`, out of the attributes as well."""
        for table in (self._parameter_names, self._buffer_names, self._module_names):
            if table is not keep:
                table.pop(name, None)
        if keep is not None and name not in keep:
            self.__dict__.pop(name, None)

    def _check_name(self, name: str, kind: str, names: dict) -> None:
        if "." in name:
            got = f", got: {name}" if kind == "module" else ""
            raise KeyError(f'{kind} name can\'t contain "."{got}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if name not in names and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")

    def _names(self, kind: str) -> dict:
        names = self.__dict__.get(f"_{kind}_names")
        if names is None:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        return names

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter (or None: a parameter that this module does without) under `name`."""
        names = self._names("parameter")
        if not isinstance(name, str):
            raise TypeError(f"parameter name should be a string. Got {_type_name(name)}")
        self._check_name(name, "parameter", names)
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_type_name(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                    f"explicitly. To express '{name}' as a function of another Tensor, compute the value in the "
                    "forward() method."
                )
            for hook in _global_parameter_registration_hooks.values():
                new = hook(self, name, param)
                if new is not None:
                    param = new
        names[name] = True
        self.__dict__[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a tensor that is state but not a parameter; `persistent=False` keeps it out of the state_dict."""
        names = self._names("buffer")
        if not isinstance(name, str):
            raise TypeError(f"buffer name should be a string. Got {_type_name(name)}")
        self._check_name(name, "buffer", names)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        for hook in _global_buffer_registration_hooks.values():
            new = hook(self, name, tensor)
            if new is not None:
                tensor = new
        names[name] = persistent
        self.__dict__[name] = tensor

    def register_module(self, name: str, module: Module | None) -> None:
        """Adds a child module under `name`."""
        self.add_module(name, module)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a child module under `name`."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {_type_name(name)}")
        self._check_name(name, "module", self._names("module"))
        self._store_module(name, module)

    def _store_module(self, name: str, module: Module | None) -> None:
        for hook in _global_module_registration_hooks.values():
            new = hook(self, name, module)
            if new is not None:
                module = new
        self._module_names[name] = True
        self.__dict__[name] = module

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path below this one ("" is this one). AttributeError if there is none."""
        module = self
        for name in target.split(".") if target else ():
            if not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts `module` at a dotted path below this one; with `strict` something must be there already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_tensor(self, target: str) -> tuple[Module, str, Any]:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return module, name, getattr(module, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path. AttributeError if there is none."""
        _module, name, value = self._get_tensor(target)
        if not isinstance(value, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return value

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path. AttributeError if there is none."""
        module, name, value = self._get_tensor(target)
        if name not in module._buffer_names:
            raise AttributeError(f"`{name}` is not a buffer")
        return value

    # -- walking ------------------------------------------------------------------------------------------------

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module and all below it, each module once unless `remove_duplicate=False`."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        attributes = self.__dict__
        for name in self._module_names:
            module = attributes[name]
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below it."""
        for _name, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the direct children, each child once."""
        memo = set()
        for name, module in self._modules.items():
            if module is not None and module not in memo:
                memo.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The direct children, each once."""
        for _name, module in self.named_children():
            yield module

    def _named_members(self, get_members_fn, prefix="", recurse=True, remove_duplicate=True):
        memo = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in memo:
                    continue
                if remove_duplicate:
                    memo.add(value)
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter), each parameter once unless `remove_duplicate=False`."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters of this module and, with `recurse`, of all below it."""
        for _name, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer), each buffer once unless `remove_duplicate=False`."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers of this module and, with `recurse`, of all below it."""
        for _name, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # -- modes and conversion -----------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Sets training mode here and below; dropout and batch norm behave accordingly."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Sets evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Switches the recording of gradients on or off for every parameter."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradient of every parameter: to None, or to zeros in place."""
        clear_grads(self.parameters(), set_to_none)

    def apply(self, fn: Callable[[Module], None]) -> Self:
        """Calls `fn` on every module below this one, then on this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replaces the data of every parameter, gradient and buffer by `fn` of it. Parameters stay the same objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            with no_grad():
                parameter.data = fn(parameter)
                grad = parameter.grad
                if grad is not None:
                    grad.data = fn(grad)
        buffers = self._buffers
        for name, buffer in buffers.items():
            if buffer is not None:
                buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Converts parameters and buffers in place: `to(dtype)`, `to(device)`, `to(device, dtype)`, `to(tensor)`.

        Only floating point and complex tensors change their dtype. TypeError for an integer dtype.
        """
        where, dtype = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")

        def convert(tensor):
            if where is not None:
                tensor = tensor.to(where)
            if dtype is not None and (tensor.is_floating_point() or tensor.is_complex()):
                tensor = tensor.to(dtype)
            return tensor

        return self._apply(convert)

    def type(self, dst_type: Dtype | str) -> Self:
        """Converts all parameters and buffers, integer ones as well, to `dst_type`."""
        return self._apply(lambda tensor: tensor.type(dst_type))

    def float(self) -> Self:
        """Converts floating point parameters and buffers to float32."""
        return self._apply(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)

    def double(self) -> Self:
        """Converts floating point parameters and buffers to float64."""
        return self._apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)

    def half(self) -> Self:
        """Converts floating point parameters and buffers to float16."""
        return self._apply(lambda tensor: tensor.half() if tensor.is_floating_point() else tensor)

    def bfloat16(self) -> Self:
        """Converts floating point parameters and buffers to bfloat16."""
        return self._apply(lambda tensor: tensor.bfloat16() if tensor.is_floating_point() else tensor)

    def cpu(self) -> Self:
        """Moves parameters and buffers to the CPU."""
        return self._apply(lambda tensor: tensor.cpu())

    def cuda(self, device: int | Device | None = None) -> Self:
        """Moves parameters and buffers to a GPU, where there is one."""
        return self._apply(lambda tensor: tensor.cuda(device))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Gives parameters and buffers new memory on `device`, with undefined values."""
        return self._apply(lambda tensor: empty_like(tensor, device=device), recurse=recurse)

    def share_memory(self) -> Self:
        """Moves parameters and buffers to memory that processes forked from now on share with this one."""
        return self._apply(lambda tensor: tensor.share_memory_())

    def compile(self, *_args: Any, **_kwargs: Any) -> Self:
        """Returns self: there is nothing to compile."""
        return self

    # -- state --------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> Any:
        """What a subclass wants stored in the state_dict besides tensors; it then defines `set_extra_state` too."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:  # noqa: ARG002
        """Restores what `get_extra_state` returned."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def state_dict(self, *args, destination=None, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """An OrderedDict of all parameters and persistent buffers by dotted name.

        The tensors share memory with the module's and are detached unless `keep_vars`. `_metadata` holds versions.
        """
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead.", FutureWarning, stacklevel=2)
            given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
            destination = given.get("destination", destination)
            prefix = given.get("prefix", prefix)
            keep_vars = given.get("keep_vars", keep_vars)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()  # pyright: ignore[reportAttributeAccessIssue]
        local_metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata  # pyright: ignore[reportAttributeAccessIssue]
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            new = hook(self, destination, prefix, local_metadata)
            if new is not None:
                destination = new
        return destination

    def _save_to_state_dict(self, destination, prefix: str, keep_vars: bool) -> None:
        """Adds this module's own entries, not those of its children."""
        for name, value in self._persistent():
            destination[prefix + name] = value if keep_vars else value.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[f"{prefix}_extra_state"] = self.get_extra_state()

    def _persistent(self):
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and self._buffer_names[name]:
                yield name, buffer

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False):
        """Copies a state_dict into this module's parameters and buffers (or with `assign` puts its tensors in place).

        Returns `(missing_keys, unexpected_keys)`. RuntimeError if there are any and `strict`, or if shapes differ.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata  # pyright: ignore[reportAttributeAccessIssue]
        missing, unexpected, errors = [], [], []

        def load(module, local_state_dict, prefix):
            local_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
            if assign:
                local_metadata = {**local_metadata, "assign_to_params_buffers": True}
            module._load_from_state_dict(local_state_dict, prefix, local_metadata, True, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    path = f"{prefix}{name}."
                    load(child, {key: value for key, value in local_state_dict.items() if key.startswith(path)}, path)
            for hook in module._load_state_dict_post_hooks.values():
                result = hook(module, _IncompatibleKeys(missing, unexpected))
                assert result is None, (
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new "
                    "values, if incompatible_keys need to be modified, it should be done inplace."
                )

        load(self, state_dict, "")
        if strict:
            for keys, what in ((unexpected, "Unexpected"), (missing, "Missing")):
                if keys:
                    names = ", ".join(f'"{key}"' for key in keys)
                    errors.insert(0, f"{what} key(s) in state_dict: {names}. ")
        if errors:
            lines = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{lines}")
        return _IncompatibleKeys(missing, unexpected)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:
        """Loads this module's own entries, not those of its children, and reports what does not fit."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = dict(self._persistent())
        for name, current in own.items():
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            value = state_dict[key]
            if not isinstance(value, Tensor):
                error_msgs.append(
                    f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from '
                    f"checkpoint but received {type(value)}"
                )
                continue
            if current.dim() == 0 and value.dim() == 1:
                value = value[0]
            if value.shape != current.shape:
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in "
                    f"current model is {current.shape}."
                )
                continue
            try:
                with no_grad():
                    if local_metadata.get("assign_to_params_buffers", False):
                        if isinstance(current, Parameter):
                            if isinstance(value, Parameter):
                                value.requires_grad_(current.requires_grad)
                            else:
                                value = Parameter(value, requires_grad=current.requires_grad)
                        setattr(self, name, value)
                    else:
                        current.copy_(value)
            except Exception as error:
                error_msgs.append(
                    f'While copying the parameter named "{key}", whose dimensions in the model are {current.size()} '
                    f"and whose dimensions in the checkpoint are {value.size()}, an exception occurred : {error.args}."
                )
        extra = f"{prefix}_extra_state"
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if not key.startswith(prefix) or key == extra:
                    continue
                name, *rest = key[len(prefix) :].split(".", 1)
                if name not in (self._module_names if rest else own):
                    unexpected_keys.append(key)

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, prefix, keep_vars)` runs before this module's `state_dict` is taken."""
        return add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata)` runs afterwards and may change `state_dict` in place."""

        def checked(*args):
            if hook(*args) is not None:
                raise RuntimeError("state_dict post-hook must return None")

        return add_hook(self._state_dict_hooks, checked)

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        """As `register_state_dict_post_hook`, but `hook` may return another dict."""
        return add_hook(self._state_dict_hooks, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        return add_hook(self._load_state_dict_pre_hooks, _WithModule(self, hook) if with_module else hook)

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """`hook(module, incompatible_keys)` runs after loading and may change the two lists in place."""
        return add_hook(self._load_state_dict_post_hooks, hook)

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_parameters" not in state:
            self.__dict__.update(state)
            return
        # a module that PyTorch saved: it keeps parameters, buffers and children in dicts of their own
        state = dict(state)
        parts = {kind: state.pop(f"_{kind}s") for kind in ("parameter", "buffer", "module")}
        transient = state.pop("_non_persistent_buffers_set", set())
        hooks = {name: state.pop(name) for name in [*state] if name.endswith("_hooks") or "_hooks_" in name}
        hooks.pop("_is_full_backward_hook", None)
        self.__dict__.update(training=state.pop("training", True))
        for kind, values in parts.items():
            self.__dict__[f"_{kind}_names"] = {name: name not in transient for name in values}
            self.__dict__.update(values)
        self.__dict__.update(state)
        self.__dict__.update((name, hook) for name, hook in hooks.items() if hook and name in _TABLES)
        if any(map(self.__dict__.get, _CALL_TABLES)):
            self._hooked = True

    # -- text ---------------------------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What to print between the parentheses, besides the children; lines separated by newlines."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indented(repr(module))}" for name, module in self._modules.items()]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({lines[0]})"
        return block(self._get_name(), lines + children)

    def __dir__(self) -> list[str]:
        return sorted(name for name in {*dir(type(self)), *self.__dict__} if not name[0].isdigit())


def indented(text: str) -> str:
    """`text` with all lines but the first indented by two spaces."""
    return text.replace("\n", "\n  ")


def block(name: str, lines: list[str]) -> str:
    """`name(...)` around indented lines."""
    return f"{name}(\n  " + "\n  ".join(lines) + "\n)" if lines else f"{name}()"


def _parse_to(*args, device=None, dtype=None, non_blocking=False, memory_format=None, tensor=None):  # noqa: ARG001
    """The arguments of `Module.to` as (device or None, dtype or None)."""
    for argument in args[:2]:
        if isinstance(argument, Tensor):
            tensor = argument
        elif isinstance(argument, Dtype):
            dtype = argument
        elif isinstance(argument, (str, int, Device)) and not isinstance(argument, bool):
            device = argument
        elif argument is not None and not isinstance(argument, bool):
            raise TypeError(f"to() received an invalid argument of type {type(argument).__name__}: {argument!r}")
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    return (None if device is None else Device(device)), dtype  # pyright: ignore[reportArgumentType]


class _WithModule:
    """A hook that is given its module first, without keeping the module alive."""

    def __init__(self, module, hook):
        import weakref

        self.module = weakref.ref(module)
        self.hook = hook

    def __call__(self, *args):
        return self.hook(self.module(), *args)

    def __getstate__(self):
        return self.module(), self.hook

    def __setstate__(self, state):
        self.__init__(*state)


# -- hooks on all modules ---------------------------------------------------------------------------------------


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, args)` runs before the `forward` of every module, before the module's own hooks."""
    Module._hooked = True
    return add_hook(_global_forward_pre_hooks, hook)


def register_module_forward_hook(hook: Callable, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """`hook(module, args, output)` runs after the `forward` of every module, before the module's own hooks."""
    Module._hooked = True
    flags = []
    if with_kwargs:
        flags.append(_global_forward_hooks_with_kwargs)
    if always_call:
        flags.append(_global_forward_hooks_always_called)
    return add_hook(_global_forward_hooks, hook, flags=flags)


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, grad_output)` runs in the backward of every module, before the module's own hooks."""
    Module._hooked = True
    return add_hook(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, grad_input, grad_output)` runs in the backward of every module, before the module's own hooks."""
    _check_one_kind("as a global Module hook", _global_last_node_hooks)
    Module._hooked = True
    return add_hook(_global_backward_hooks, hook)


def register_module_backward_hook(hook: Callable) -> RemovableHandle:
    """`Module.register_backward_hook` on every module. Deprecated: use `register_module_full_backward_hook`."""
    _check_one_kind("as a global Module hook", _global_backward_hooks)
    Module._hooked = True
    return add_hook(_global_last_node_hooks, hook)


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, name, parameter)` runs whenever a parameter is registered; it may return another one."""
    return add_hook(_global_parameter_registration_hooks, hook)


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, name, buffer)` runs whenever a buffer is registered; it may return another one."""
    return add_hook(_global_buffer_registration_hooks, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """`hook(module, name, child)` runs whenever a child module is registered; it may return another one."""
    return add_hook(_global_module_registration_hooks, hook)
