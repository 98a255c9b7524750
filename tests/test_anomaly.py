"""Anomaly mode, compared with PyTorch: NaN gradients, forward tracebacks, nesting."""

from __future__ import annotations

import re
import warnings

import pytest
from both_packages import Programs, assert_same_log

program = Programs()


def failing(T):
    class Failing(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("on purpose")

    return Failing.apply


def shown(function):
    """The error of the call, and for each warning its first line and the lines of this file that it quotes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = [function()]
        except RuntimeError as error:
            found = [str(error).split("\n")[0].split("Hint")[0]]
    for warning in caught:
        text = str(warning.message).split("(Triggered")[0]
        quoted = [line.strip() for line in text.split("\n") if "  # " in line and "type: ignore" not in line]
        found.append((warning.category.__name__, text.strip().split("\n")[0], quoted[-1:]))
    return found


@program
def nan_gradients(T, log):
    x = T.tensor([0.0, 4.0], requires_grad=True)

    def square_root():
        y = T.sqrt(x) * T.tensor([0.0, 1.0])  # the root of 0
        return T.autograd.grad(y.sum(), x)

    log += shown(square_root)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode = T.autograd.detect_anomaly()
        without_nan = T.autograd.detect_anomaly(check_nan=False)
    with mode:
        log += shown(square_root)
        log += shown(lambda: T.autograd.grad((x * 2).sum(), x))
        log += shown(lambda: (x * float("nan")).sum().backward())  # nan
        log.append(x.grad)
    with without_nan:
        log += shown(square_root)
    log += shown(square_root)


@program
def errors_name_their_forward_line(T, log):
    x = T.ones(2, requires_grad=True)
    with T.autograd.set_detect_anomaly(True):
        y = failing(T)(x * 2).sum()  # fails
        log += shown(y.backward)
    outside = failing(T)(x * 2).sum()
    with T.autograd.set_detect_anomaly(True):
        log += shown(outside.backward)
        z = x * 2
        w = z.exp()  # saved
        w.add_(1)
        log += shown(w.sum().backward)
    log += shown(failing(T)(x).sum().backward)


@program
def errors_of_the_second_backward(T, log):
    x = T.ones(2, requires_grad=True)
    with T.autograd.set_detect_anomaly(True):
        y = failing_twice(T)(x)  # first
        (g,) = T.autograd.grad(y.sum(), x, create_graph=True)
        log += shown(g.sum().backward)


def failing_twice(T):
    class Inner(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise RuntimeError("second")

    class Outer(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return Inner.apply(x) * g  # inner

    return Outer.apply


@program
def switches(T, log):
    enabled, check = T.is_anomaly_enabled, T.is_anomaly_check_nan_enabled
    log += [enabled(), check()]
    with T.autograd.set_detect_anomaly(True):
        log += [enabled(), check()]
        with T.autograd.set_detect_anomaly(False):
            log.append(enabled())
        with T.autograd.set_detect_anomaly(True, check_nan=False):
            log += [enabled(), check()]
        log += [enabled(), check()]
    log.append(enabled())
    T.autograd.set_detect_anomaly(True)
    log.append(enabled())
    T.autograd.set_detect_anomaly(False)
    log.append(enabled())
    with T.autograd.detect_anomaly(check_nan=False):
        log += [enabled(), check()]
    log += [enabled(), check()]


@program
def custom_function_gives_nan(T, log):
    class Nan(T.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, g):
            return g, g * float("nan")

    a, b = T.ones(2, requires_grad=True), T.ones(2, requires_grad=True)
    with T.autograd.set_detect_anomaly(True):
        log += shown(lambda: Nan.apply(a, b).sum().backward())  # nan
        log += shown(lambda: Nan.apply(a, b.detach()).sum().backward())
        log.append(a.grad)


@program
def hints_of_modified_tensors(T, log):
    """The hint says to enable anomaly mode, unless it is enabled when backward runs."""
    x = T.ones(2, requires_grad=True)
    for forward, backward in ((False, False), (True, False), (False, True), (True, True)):
        with T.autograd.set_detect_anomaly(forward):
            y = x.exp()
            y.add_(1)
        with T.autograd.set_detect_anomaly(backward):
            try:
                y.sum().backward()
            except RuntimeError as error:
                log.append(str(error).split("\n")[0])


@pytest.mark.parametrize("name", program)
def test_same_log(name):
    assert_same_log(program[name])


def test_where_warnings_are_errors_the_error_still_comes_through(capsys):
    import backlight as T

    x = T.tensor(0.0, requires_grad=True)
    with T.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="returned nan values"):
        (T.sqrt(x) * 0).backward()
    assert re.search(r"Error detected in SqrtBackward0.*test_anomaly.py", capsys.readouterr().err, re.S)
