"""`torch.profiler`: profiles of some of a program's steps. What is measured, and how, says `autograd.profiler`.

>>> import backlight as torch
>>> from backlight.profiler import ProfilerActivity, profile
>>> with profile(activities=[ProfilerActivity.CPU]) as prof:
...     _ = (torch.ones(3) * 2).sum()
>>> [event.key for event in prof.key_averages()][-2:]
['aten::mul', 'aten::sum']
"""

from __future__ import annotations

import enum
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .autograd import profiler as _profiler
from .autograd.profiler import record_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

kineto_available = _profiler.kineto_available


class ProfilerActivity(enum.Enum):
    """What can be profiled; here the CPU only."""

    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The CPU."""
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Which steps to profile: after `skip_first`, cycles of `wait` idle, `warmup` discarded and `active` recorded steps.

    repeat: how many cycles (0: for ever). skip_first_wait: 1 leaves out the idle steps of the first cycle.
    """
    if not (wait >= 0 and warmup >= 0 and active > 0 and repeat >= 0 and skip_first >= 0):
        raise AssertionError("Invalid profiler schedule arguments")

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        cycle, place = divmod(step, wait + warmup + active)
        if (repeat > 0 and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if place < wait + warmup + active - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """A handler for `on_trace_ready` that writes `<worker>.<time>.pt.trace.json` files into a folder."""
    worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"

    def write(prof: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        prof.export_chrome_trace(folder / f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}")

    return write


class profile:
    """A block that is profiled: as a whole, or with `schedule` in some of its steps, which `step()` separates.

    on_trace_ready: called with the profile at the end of each recorded part. record_shapes: keep the shapes of inputs. Memory,
    stacks, modules and flops aren't measured; these options are accepted.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,  # noqa: ARG002
        execution_trace_observer: Any = None,  # noqa: ARG002
        acc_events: bool = False,  # noqa: ARG002
        use_cuda: bool | None = None,  # noqa: ARG002
        custom_trace_id_callback: Any = None,  # noqa: ARG002
    ) -> None:
        self.activities = set(activities) if activities is not None else supported_activities()
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        self.schedule = schedule or (lambda _step: ProfilerAction.RECORD)
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules = with_flops, with_modules
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self.profiler: _profiler.profile | None = None
        self._running = False
        self._step: record_function | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_error: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begins with step 0."""
        self.current_action = self.schedule(self.step_num)
        self._begin()

    def stop(self) -> None:
        """Ends the profile; what is being recorded is handed to `on_trace_ready`."""
        recorded = self.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        self._end()
        if recorded and self.on_trace_ready is not None:
            self.on_trace_ready(self)
        self.current_action = ProfilerAction.NONE

    def step(self) -> None:
        """Says that the next step of the program begins."""
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        if before is ProfilerAction.RECORD_AND_SAVE or (
            before is ProfilerAction.RECORD and self.current_action in (ProfilerAction.NONE, ProfilerAction.WARMUP)
        ):
            self._end()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)
        self._begin()

    def _begin(self) -> None:
        if self.current_action not in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            return
        if not self._running:
            self.profiler = _profiler.profile(record_shapes=self.record_shapes)
            self.profiler.__enter__()
            self._running = True
        if self.record_steps:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _end(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        if self._running and self.profiler is not None:
            self.profiler.__exit__(None, None, None)
            self._running = False

    def _finished(self) -> _profiler.profile:
        if self.profiler is None:
            raise AssertionError("Profiler must be initialized before using it: nothing was recorded")
        return self.profiler

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> Any:
        """The events of each name, added up."""
        return self._finished().key_averages(group_by_input_shape, group_by_stack_n)

    def events(self) -> Any:
        """All events in order."""
        return self._finished().function_events

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a Chrome trace (compressed, if the name ends in .gz)."""
        if not str(path).endswith(".gz"):
            self._finished().export_chrome_trace(path)
            return
        import gzip
        import tempfile

        from .files import replacing

        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder) / "trace.json"
            self._finished().export_chrome_trace(plain)
            with replacing(path, "wb") as file:
                file.write(gzip.compress(plain.read_bytes()))

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity]) -> None:
        """Does nothing: a profile that runs records all."""

    def add_metadata(self, key: str, value: str) -> None:
        """Accepts a remark; it isn't written."""

    add_metadata_json = preset_metadata_json = add_metadata
