"""`watch`: looks at every N-th step of a long training, in a live table, TensorBoard or a file, with bounded memory."""

from __future__ import annotations

import json
import math
import os
import sys
import weakref
from collections import deque
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from .engines import engine_of_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from .record import Record
    from .recorder import Recorder
    from .schema import ParameterGradient, Pass

KEPT = 60  # samples that a Watch remembers


@dataclass
class ModuleSample:
    """The gradients of a module's own parameters: their norm together (None where there was none), the share of zeros, how many
    elements aren't finite, and how far the optimizer moved the parameters, as a share of their norm."""

    gradient: float | None = None
    zeros: float | None = None
    nonfinite: int = 0
    update: float | None = None


@dataclass
class Sample:
    """What was seen at one step: `step` counts the calls of the model, `gradient` is the norm of all gradients together."""

    step: int
    loss: float | None = None
    gradient: float | None = None
    nonfinite: int = 0
    seconds: float | None = None
    modules: dict[str, ModuleSample] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def watch(model: Any, every: int = 100, to: Any = None, optimizer: Any = None) -> Watch:
    """Records every N-th step of a training: a call of the model in grad mode, the backward pass that follows, and the step of the
    optimizer if one is given. All other steps run at full speed.

    model: a module of Backlight's or PyTorch's `nn`. every: how many calls of the model one sample stands for; the first call is
    sampled. to: where samples go, or a list of such: None or "table" (a live table; lines, where there is no terminal), a path
    that ends with ".jsonl" (a line of JSON per sample), the path of a folder (TensorBoard, with the extra `tensorboard`), a writer
    that has `add_scalar`, or a function of the sample. optimizer: adds how far each module's parameters moved.

    The result has `samples` (the last 60), `record` (of the last sample) and `close()`; as a block it closes itself.

    >>> import backlight as torch
    >>> model = torch.nn.Linear(2, 1)
    >>> with torch.inspect.watch(model, every=5, to=lambda sample: None) as watching:
    ...     for _ in range(10):
    ...         model(torch.ones(1, 2)).sum().backward()
    >>> [sample.step for sample in watching.samples]
    [1, 6]
    """
    return Watch(model, every, to, optimizer)


class Watch:
    """A training that is being watched; see `watch`. It holds the last samples and the last record, and nothing of other steps."""

    def __init__(self, model: Any, every: int, to: Any, optimizer: Any):
        if not hasattr(model, "register_forward_pre_hook"):
            raise TypeError(f"watch() takes a module, not {type(model).__name__}")
        if type(every) is not int or every < 1:
            raise ValueError(f"every must be a positive whole number, got {every!r}")
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.record: Record | None = None
        self.every = every
        self.calls = 0
        self._model = weakref.ref(model)
        self._engine = engine_of_model(model)
        self._library = import_module(self._engine)
        self._recorder: Recorder | None = None
        self._sample: Sample | None = None
        self._before: dict[str, np.ndarray] = {}
        self._sinks = [_sink(one) for one in (to if isinstance(to, (list, tuple)) else [to])]
        self._optimizer = optimizer
        self._handles = [model.register_forward_pre_hook(_ModelHook(self))]
        if optimizer is not None:
            self._handles.append(optimizer.register_step_pre_hook(lambda *_: self._before_update()))
            self._handles.append(optimizer.register_step_post_hook(lambda *_: self._after_update()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops watching and closes what `to` opened."""
        self._finish()
        for handle in self._handles:
            handle.remove()
        self._handles = []
        for sink in self._sinks:
            sink.close()
        self._sinks = []

    # A step: the model is called, backward runs, the optimizer moves the parameters

    def _model_called(self, model: Any) -> None:
        if not self._library.is_grad_enabled():  # an evaluation
            return
        self._finish()  # what no backward pass or no optimizer followed
        self.calls += 1
        if (self.calls - 1) % self.every:
            return
        from . import start

        try:
            recorder = start("norms", self._engine, 1, self._passed)
        except RuntimeError:  # the program records something itself, and there can be one recording: this step isn't sampled
            return
        self._recorder, self._sample = recorder, None
        recorder.watch_module(model)
        # The call of the model began before the recording: only what is inside it would be known.
        recorder.begin_module(model)

    def _passed(self, one: Pass) -> None:
        if one.call != "backward" or self._sample is not None:
            return
        self._sample = _sample(self.calls, one)
        if self._optimizer is None:
            self._finish()

    def _before_update(self) -> None:
        if self._recorder is not None and self._sample is not None:
            self._before = {name: np.array(array) for name, array in self._parameters()}

    def _after_update(self) -> None:
        if self._recorder is None or self._sample is None:
            return
        moved: dict[str, list[tuple[float, float]]] = {}
        for name, array in self._parameters():
            before = self._before.get(name)
            if before is not None:
                moved.setdefault(_owner(name), []).append((_norm(array - before), _norm(before)))
        for name, norms in moved.items():
            distance, size = (math.hypot(*values) for values in zip(*norms))
            sample = self._sample.modules.setdefault(name, ModuleSample())
            sample.update = distance / size if size else None
        self._before = {}
        self._finish()

    def _parameters(self) -> list[tuple[str, np.ndarray]]:
        model, recorder = self._model(), self._recorder
        if model is None or recorder is None:
            return []
        return [(name, recorder.array(p.detach())) for name, p in model.named_parameters() if p.requires_grad]

    def _finish(self) -> None:
        """Ends the recording of a step, if there is one, and hands its sample on, if a backward pass ran."""
        recorder, sample = self._recorder, self._sample
        if recorder is None:
            return
        self._recorder = self._sample = None
        recorder.stop()
        if sample is None:
            return
        self.record = recorder.record
        sample.findings = [finding.title for finding in self.record.findings if finding.severity in ("error", "warning")]
        self.samples.append(sample)
        for sink in self._sinks:
            sink.write(sample, self.samples)


class _ModelHook:
    """Called before the model's forward. A copy of the model is not watched, and a model in a file has no hook."""

    def __init__(self, watching: Watch):
        self.watching = weakref.ref(watching)

    def __call__(self, model: Any, _arguments: Any) -> None:
        watching = self.watching()
        if watching is not None:
            watching._model_called(model)

    def __reduce__(self) -> tuple[Any, tuple]:
        return _NoHook, ()


class _NoHook:
    """What remains of a hook in a copy of its model."""

    def __call__(self, _model: Any, _arguments: Any) -> None:
        pass


def _sample(step: int, one: Pass) -> Sample:
    losses = [loss for loss in one.losses if loss is not None and loss.size == 1]
    loss = None
    if len(losses) == 1:
        loss = losses[0].min if losses[0].min is not None else losses[0].norm
    by_module: dict[str, list[ParameterGradient]] = {}
    for row in one.gradients:
        if row.requires_grad:
            by_module.setdefault(_owner(row.name), []).append(row)
    modules = {name: _module_sample(rows) for name, rows in by_module.items()}
    norms = [module.gradient for module in modules.values() if module.gradient is not None]
    bad = sum(module.nonfinite for module in modules.values())
    return Sample(step, loss, math.hypot(*norms) if norms else None, bad, one.seconds, modules)


def _module_sample(rows: Sequence[ParameterGradient]) -> ModuleSample:
    values = [row.value for row in rows if row.value is not None]
    norms = [value.norm for value in values if value.norm is not None]
    elements = sum(value.size for value in values)
    return ModuleSample(
        math.hypot(*norms) if norms else None,
        sum(value.zeros or 0 for value in values) / elements if elements else None,
        sum(value.nonfinite or 0 for value in values),
    )


def _owner(parameter: str) -> str:
    """The module that a parameter belongs to, by its name."""
    return parameter.rpartition(".")[0] or parameter


def _norm(array: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(array, np.complex128 if array.dtype.kind == "c" else np.float64)))


# Where samples go


def _sink(to: Any) -> Any:
    if to is None or to == "table":
        from .render.live import LiveTable

        return LiveTable(sys.stdout)
    if isinstance(to, (str, os.PathLike)):
        return _Lines(to) if os.fspath(to).endswith(".jsonl") else _TensorBoard(_writer(os.fspath(to)), close=True)
    if hasattr(to, "add_scalar"):
        return _TensorBoard(to, close=False)
    if callable(to):
        return _Function(to)
    raise TypeError(f"to must be None, 'table', a path, a writer with add_scalar, a function, or a list of these; got {to!r}")


class _Function:
    def __init__(self, function: Callable[[Sample], object]):
        self.function = function

    def write(self, sample: Sample, _samples: Sequence[Sample]) -> None:
        self.function(sample)

    def close(self) -> None:
        pass


class _Lines:
    """A file of JSON Lines, one per sample. What isn't finite is written as "nan", "inf" or "-inf"."""

    def __init__(self, path: str | os.PathLike[str]):
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def write(self, sample: Sample, _samples: Sequence[Sample]) -> None:
        self.file.write(json.dumps(_finite(asdict(sample)), allow_nan=False) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(x) for key, x in value.items()}
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


class _TensorBoard:
    """Scalars `loss`, `gradient`, and per module `gradient/NAME`, `zeros/NAME`, `nonfinite/NAME`, `update/NAME`."""

    def __init__(self, writer: Any, close: bool):
        self.writer, self.owned = writer, close

    def write(self, sample: Sample, _samples: Sequence[Sample]) -> None:
        scalars = {"loss": sample.loss, "gradient": sample.gradient, "nonfinite": sample.nonfinite}
        for name, module in sample.modules.items():
            scalars |= {f"{kind}/{name}": value for kind, value in asdict(module).items()}
        for name, value in scalars.items():
            if value is not None:
                self.writer.add_scalar(name, value, sample.step)

    def close(self) -> None:
        if self.owned:
            self.writer.close()


def _writer(folder: str) -> Any:
    try:
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ImportError("writing for TensorBoard needs tensorboardX: pip install 'backlight[tensorboard]'") from None
    return SummaryWriter(folder)
