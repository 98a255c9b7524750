"""Programs that run under PyTorch and under Backlight: what they log must agree."""

from __future__ import annotations

import re
import warnings

import numpy as np
import torch

import backlight


class Programs(dict):
    """The programs of a test file by name; a decorator that adds one."""

    def __call__(self, program):
        self[program.__name__] = program
        return program


# Warnings about what goes on inside: which operations run in a loop under vmap differs, too.
PYTORCHS_OWN = ("`torch.jit", "Attempted to insert a get_attr Node", "There is a performance drop because")


class Values:
    """A logged tensor; equal to one of the same type and shape whose values are close."""

    def __init__(self, tensor):
        self.about = str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad
        self.array = np.array(tensor.detach().resolve_conj().numpy())

    def __eq__(self, other) -> bool:
        if type(other) is not Values or self.about != other.about:
            return False
        return np.allclose(self.array, other.array, rtol=1e-4, atol=1e-6, equal_nan=True)

    def __repr__(self) -> str:
        return f"{self.about} {np.array2string(self.array, precision=4).replace(chr(10), '')}"


def plain(value):
    """A logged value in a form that both packages share. Of an error's text, the first line: Backlight may add to it."""
    if isinstance(value, (torch.Tensor, backlight.Tensor)):
        return Values(value)
    if isinstance(value, BaseException):
        return type(value).__name__, shared(str(value).strip().split("\n")[0].strip())
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, str):
        return shared(value)
    if value is None or isinstance(value, (int, float, bool)):
        return value
    return type(value).__name__  # nodes


def shared(text: str) -> str:
    """A text without addresses and package names."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text).replace("backlight.tensor.Tensor", "torch.Tensor")
    return re.sub(r" at (?=/).*|<function (\S+) at 0x>", r"<function \1>", text.replace("backlight.", "torch."))


def attempt(log, function, *args, **kwargs):
    """Logs what the call returns or raises."""
    try:
        log.append(function(*args, **kwargs))
    except Exception as error:
        log.append(error)


def chain(node):
    """The class names of a graph, depth first."""
    return node and [type(node).__name__, [chain(parent) for parent, _number in node.next_functions]]


def log_of(program, package) -> list:
    """What a program logs under a package, warnings at the end."""
    log: list = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text in PYTORCHS_OWN:
            warnings.filterwarnings("ignore", text)
        program(package, log)
    log += [(w.category.__name__, str(w.message).split("(Triggered")[0].strip()) for w in caught]
    return [plain(v) for v in log]


def assert_same_log(program) -> None:
    expected, found = log_of(program, torch), log_of(program, backlight)
    for i, (theirs, ours) in enumerate(zip(expected, found)):
        assert ours == theirs, f"entry {i}: Backlight {ours!r}, PyTorch {theirs!r}"
    assert len(found) == len(expected)
