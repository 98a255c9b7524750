"""Anomaly mode: backward names the forward line behind an error, and NaN in a gradient is an error.

>>> import warnings
>>> import backlight as torch
>>> x = torch.tensor(0., requires_grad=True)
>>> with warnings.catch_warnings():
...     warnings.simplefilter("ignore")
...     with torch.autograd.detect_anomaly():
...         torch.autograd.grad(torch.sqrt(x) * 0, x)
Traceback (most recent call last):
    ...
RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
"""

from __future__ import annotations

import sys
import traceback
import warnings

import numpy as np

from ..errors import short_name
from ..state import modes, set_anomaly, state
from ..tensor import Tensor
from .modes import _wrap

__all__ = ["detect_anomaly", "set_detect_anomaly"]

TRACEBACK, PARENT = "traceback_", "parent_"


def _anomaly_step(node, step=None, g=None, edges=(), keep=False, *, created=False):
    """Remembers where a node was made, or runs its backward step and explains what goes wrong in it."""
    if created:
        node.metadata[TRACEBACK] = _user_stack()
        parent = getattr(modes, "evaluating", None)
        if parent is not None:
            node.metadata[PARENT] = parent
        return None
    before, modes.evaluating = getattr(modes, "evaluating", None), node
    try:
        grads = step(g, edges, keep)  # pyright: ignore[reportOptionalCall]
        if _check_nan[0]:
            _raise_for_nan(node, grads)
        return grads
    except Exception:
        _warn_where(node)
        raise
    finally:
        modes.evaluating = before


_check_nan = [True]


def _user_stack():
    """The lines of the program that led here, without those of this package."""
    frames = traceback.extract_stack()
    package = __file__.rsplit("/autograd/", 1)[0] + "/"
    while frames and (frames[-1].filename.startswith(package) or frames[-1].filename.startswith("<backlight op")):
        frames.pop()
    return traceback.format_list(frames)


def _raise_for_nan(node, grads) -> None:
    for i, g in enumerate(grads if isinstance(grads, (tuple, list)) else (grads,)):
        array = g.array if isinstance(g, Tensor) else g
        if array is not None and getattr(array, "dtype", np.dtype(bool)).kind in "fc" and np.isnan(array).any():
            name = short_name(node) + "Backward" + type(node).__name__.rpartition("Backward")[2]
            name = type(node).__name__ if "Backward" in type(node).__name__ else name
            raise RuntimeError(f"Function '{name}' returned nan values in its {i}th output.")


def _warn(text) -> None:
    """A warning that is printed where warnings are errors: the error that it explains must come through."""
    try:
        warnings.warn(text, UserWarning, stacklevel=7)
    except UserWarning as warning:
        print(f"UserWarning: {warning}", file=sys.stderr)


def _warn_where(node) -> None:
    stack = node.metadata.get(TRACEBACK)
    missing = "No forward pass information available. Enable detect anomaly during forward pass for more information."
    if stack is None:
        _warn(f"Error detected in {node.name()}. {missing}")
        return
    _warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{''.join(stack)}")
    while (node := node.metadata.get(PARENT)) is not None:
        stack = node.metadata.get(TRACEBACK)
        found = f"Traceback of forward call that induced the previous calculation:\n{''.join(stack)}" if stack else missing
        _warn(f"\n\nPrevious calculation was induced by {node.name()}. {found}")


class set_detect_anomaly:
    """Turns anomaly mode on or off, at once or for a `with` block. check_nan: whether NaN gradients are errors."""

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = state.anomaly is not None, _check_nan[0]
        set_anomaly(_anomaly_step if mode else None)
        _check_nan[0] = check_nan

    def __enter__(self):
        pass

    def __exit__(self, *_exception):
        mode, _check_nan[0] = self.before
        set_anomaly(_anomaly_step if mode else None)


class detect_anomaly:
    """A block in anomaly mode: errors in backward come with the forward traceback of their node, NaN gradients raise.

    check_nan: whether NaN gradients are errors. For debugging only: every operation records its traceback.
    """

    def __init__(self, check_nan=True):
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self):
        self.before = state.anomaly is not None, _check_nan[0]
        set_anomaly(_anomaly_step)
        _check_nan[0] = self.check_nan

    def __exit__(self, *_exception):
        mode, _check_nan[0] = self.before
        set_anomaly(_anomaly_step if mode else None)

    def __call__(self, function):
        return _wrap(lambda: detect_anomaly(self.check_nan), function)


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return state.anomaly is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether NaN gradients are errors in anomaly mode."""
    return _check_nan[0]
