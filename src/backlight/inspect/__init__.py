"""The inspector: a record of what autograd did, its causes, and ways to show it.

>>> import backlight as torch
>>> x = torch.tensor([1., 2.], requires_grad=True)
>>> with torch.inspect.record() as record:
...     (x * x).sum().backward()
>>> [step.name for step in record.passes[0].steps]
['SumBackward0', 'MulBackward0', 'AccumulateGrad']
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import recorder as _recorder
from .diff import Difference, diff
from .engines import engine_of_model
from .explain.contributions import Contribution, Contributions, contributions, loss_terms
from .explain.finding import Finding
from .explain.functions import check_function
from .ranks import Ranks, gather
from .record import Record
from .watch import Sample, Watch, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .recorder import Recorder
    from .schema import Pass

__all__ = [
    "Contribution", "Contributions", "Difference", "Finding", "Ranks", "Record", "Sample", "Watch", "alive", "attach", "check_function", "contributions", "diff",
    "explain", "gather", "held_graph", "loss_terms", "record", "start", "watch",
]  # fmt: skip


def start(
    policy: str = "shapes",
    engine: str = "backlight",
    passes: int | None = None,
    on_pass: Callable[[Pass], object] | None = None,
) -> Recorder:
    """Begins a recording that ends with the result's `stop()`; `record` is the block form. See there for the arguments."""
    if engine == "torch":
        from .adapters.torch import TorchRecorder as kind
    elif engine == "backlight":
        from .adapters.backlight import BacklightRecorder as kind
    else:
        raise ValueError(f"engine must be 'backlight' or 'torch', got {engine!r}")
    result = kind(policy, passes, on_pass)
    result.start()
    return result


@contextmanager
def record(
    policy: str = "shapes",
    *,
    engine: str = "backlight",
    passes: int | None = None,
    on_pass: Callable[[Pass], object] | None = None,
) -> Iterator[Record]:
    """Records what autograd does inside the block.

    policy: "shapes" records order, lines and shapes; "norms" also measures every gradient; "full" also keeps all values.
    engine: "backlight", or "torch" for a program that runs on PyTorch. passes: stop after so many backward passes.
    on_pass: called with each pass when it has ended. RuntimeError inside another recording.

    >>> import backlight as torch
    >>> w = torch.tensor(3., requires_grad=True)
    >>> with torch.inspect.record("norms") as record:
    ...     w.exp().backward()
    >>> record.passes[0].gradients[0].name
    'w'
    """
    with start(policy, engine, passes, on_pass) as one:
        yield one.record


def attach(model: Any, optimizer: Any = None, policy: str = "norms") -> Recorder:
    """Records what happens around a model from now on: of Backlight's `nn`, or of PyTorch's.

    The result has the growing `record`; `stop()` ends it, as does leaving a `with` block. `optimizer`, if given, is checked against
    the model at once: parameters that it doesn't hold are named by a finding when it steps.

    >>> import backlight as torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with torch.inspect.attach(model) as recorder:
    ...     model(torch.ones(1, 2)).sum().backward()
    >>> [entry.name for entry in recorder.record.passes[0].gradients]
    ['weight', 'bias']
    """
    if not hasattr(model, "named_parameters"):
        raise TypeError(f"attach() takes a module, not {type(model).__name__}")
    result = start(policy, engine_of_model(model))
    result.watch_module(model)
    if optimizer is not None:
        result.optimizer_number(optimizer)
    return result


def explain(x: Any) -> list[Finding]:
    """Why `x` is as it is, according to the last recording.

    x: a tensor or a parameter (why its gradient is None, zero, or what it consists of; what its graph keeps alive), its name, an
    exception that backward raised, a module (all its parameters), or a record (all findings).

    >>> import backlight as torch
    >>> w = torch.tensor(2., requires_grad=True)
    >>> with torch.inspect.record("norms"):
    ...     y = w.detach() * 3 + w.round()
    ...     y.backward()
    >>> torch.inspect.explain(w)[0].kind
    'zero-gradient'
    """
    from .explain.ask import explain as ask

    return ask(x, _recorder.latest)


def held_graph(tensor: Any) -> Finding:
    """How large the graph behind a tensor is, which lines saved how much, whether its buffers were freed, and who holds the tensor.

    tensor: of either engine, with a grad_fn. The lines are known if the last recording saw the graph.

    >>> import backlight as torch
    >>> total = torch.ones(4, requires_grad=True).exp().sum()
    >>> torch.inspect.held_graph(total).numbers["bytes"]
    16
    """
    from .explain.memory import held_graph as measure

    recorder = _recorder.latest
    return measure(tensor, recorder if recorder is not None and recorder.is_tensor(tensor) else None)


def alive() -> list[Finding]:
    """The graphs of the last recorded program that still exist, with the chain from each to the variable, closure or cycle that holds it.

    Searches all of Python's objects, so it takes some time.
    """
    from .explain.memory import alive as search

    if _recorder.latest is None:
        raise RuntimeError("alive() needs a recording: run the program inside `with backlight.inspect.record():` first")
    return search(_recorder.latest)
