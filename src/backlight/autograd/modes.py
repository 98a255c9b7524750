"""Grad modes: no_grad, enable_grad, set_grad_enabled, inference_mode, as context managers and decorators."""

from __future__ import annotations

from typing import Any, Self

from ..state import modes, set_grad_mode, set_inference, state


def _is_generator(function) -> bool:
    return bool(getattr(getattr(function, "__code__", None), "co_flags", 0) & 0x20)


def _wrap(make, function) -> Any:
    """`function` run under a fresh `make()`; a generator is resumed under it each time."""
    import functools

    if isinstance(function, type):
        import warnings

        warnings.warn(
            "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or "
            "methods. To preserve the current behavior of class decoration, you can directly decorate the `__init__` method and "
            "nothing else.",
            FutureWarning,
            stacklevel=3,
        )
        function.__init__ = _wrap(make, function.__init__)  # pyright: ignore[reportAttributeAccessIssue]
        return function
    if not _is_generator(function):

        @functools.wraps(function)
        def inside(*args, **kwargs):
            with make():
                return function(*args, **kwargs)

        return inside

    @functools.wraps(function)
    def steps(*args, **kwargs):
        generator = function(*args, **kwargs)
        try:
            with make():
                value = generator.send(None)
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    with make():
                        generator.close()
                    raise
                except BaseException as error:
                    with make():
                        value = generator.throw(error)
                else:
                    with make():
                        value = generator.send(sent)
        except StopIteration as stop:
            return stop.value

    return steps


def _set(on: bool) -> None:
    set_grad_mode(on)
    if state.recorder is not None:
        state.recorder.switched("grad", on)


class _GradMode:
    """A context manager and decorator that sets grad mode and puts back what was there."""

    def __init__(self, on: bool):
        self.on = on
        self.before: list = []

    def __enter__(self):
        self.before.append(modes.grad)
        _set(self.on)

    def __exit__(self, *_exception):
        _set(self.before.pop())

    def clone(self):
        return type(self)()  # pyright: ignore[reportCallIssue]  (subclasses take no argument)

    def __call__(self, function):
        return _wrap(self.clone, function)


class no_grad(_GradMode):
    """Nothing is recorded inside: `with no_grad():` or `@no_grad()`.

    >>> import backlight as torch
    >>> x = torch.ones(1, requires_grad=True)
    >>> with torch.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    def __new__(cls, function=None) -> Self:
        self = object.__new__(cls)
        if function is not None:  # @no_grad without parentheses
            self.__init__()
            return self(function)  # pyright: ignore[reportReturnType]
        return self

    def __init__(self, function=None):
        super().__init__(False)


class enable_grad(no_grad):
    """Everything is recorded inside, also within `no_grad`: `with enable_grad():` or `@enable_grad()`."""

    def __init__(self, function=None):
        _GradMode.__init__(self, True)


class set_grad_enabled(_GradMode):
    """Sets grad mode at once; as a context manager it puts the old mode back at the end."""

    def __init__(self, mode: bool):
        if not isinstance(mode, bool):
            raise TypeError(f"set_grad_enabled(): argument 'enabled' (position 1) must be bool, not {type(mode).__name__}")
        self.on = mode
        self.before = [modes.grad]
        _set(self.on)

    def __enter__(self):
        _set(self.on)

    def __call__(self, function):
        _set(self.before.pop())
        return super().__call__(function)

    def clone(self):
        return set_grad_enabled(self.on)


class inference_mode(_GradMode):
    """Like no_grad, and the tensors made inside can't take part in a graph later."""

    def __new__(cls, mode=True) -> Self:
        self = object.__new__(cls)
        if callable(mode):
            self.__init__()
            return self(mode)  # pyright: ignore[reportReturnType]
        return self

    def __init__(self, mode=True):
        super().__init__(False)
        self.mode = mode

    def __enter__(self):
        self.before.append((modes.grad, modes.inference))
        set_inference(self.mode)
        set_grad_mode(modes.grad and not self.mode)

    def __exit__(self, *_exception):
        grad_before, inference_before = self.before.pop()
        set_inference(inference_before)
        set_grad_mode(grad_before)

    def clone(self):
        return inference_mode(self.mode)


class _unsafe_preserve_version_counter:
    """Writes inside don't count in the version counters of `tensors` (a tensor or a tuple): autograd doesn't notice them."""

    def __init__(self, tensors):
        from ..versions import version_of

        found = [version_of(x) for x in (tensors if isinstance(tensors, tuple) else (tensors,))]
        self.versions = [getattr(v, "shared", v) for v in found]
        self.before = [(v.count, v.stamp, [list(run) for run in v.writes]) for v in self.versions]

    def __enter__(self):
        pass

    def __exit__(self, *_exception):
        for version, before in zip(self.versions, self.before):
            version.count, version.stamp, version.writes = before


def is_inference_mode_enabled() -> bool:
    return modes.inference


def is_multithreading_enabled() -> bool:
    return modes.multithreading


class set_multithreading_enabled(_GradMode):
    """Kept for PyTorch's sake: a sweep always runs in the thread that called backward."""

    def __init__(self, mode: bool):
        self.on = mode
        self.before = [modes.multithreading]
        modes.multithreading = mode

    def __enter__(self):
        modes.multithreading = self.on

    def __exit__(self, *_exception):
        modes.multithreading = self.before[0]

    def __call__(self, function):
        modes.multithreading = self.before[0]
        return super().__call__(function)

    def clone(self):
        return set_multithreading_enabled(self.on)
