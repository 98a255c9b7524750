"""PyTorch's own database of optimizers as the yardstick: every optimizer on every one of its inputs, in both packages.

The same parameters and gradients go to both for some steps; then parameters, state, options and text must agree. Run this
file as a program to see the counts.
"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch

import backlight

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_optimizers import optim_db

BOTH = (torch, backlight)
DATABASE = {info.optim_cls.__name__: info for info in optim_db}
TYPES = ("float32", "float64", "complex64", "complex128", "float16", "bfloat16")
TOLERANCE = {"float32": 2e-5, "float64": 1e-10, "complex64": 5e-5, "complex128": 1e-10, "float16": 1e-2, "bfloat16": 5e-2}
MATRICES = ((3, 4), (5, 2), (4, 4))
SHAPES = (*MATRICES, (6,), (), (2, 3, 4))
REFUSED = ("differentiable", "capturable")
STEPS = 5


def supports(name: str, dtype: str) -> bool:
    if dtype.startswith("complex"):
        return DATABASE[name].supports_complex and name != "Muon"  # Muon refuses complex parameters in PyTorch, too
    return name not in ("SparseAdam",) and not (name == "LBFGS" and dtype.endswith("16"))


def samples(name: str, dtype: str) -> list[tuple[str, dict]]:
    """All inputs, each as it is, with foreach and, where the optimizer has it, with fused."""
    info = DATABASE[name]
    found = []
    for sample in info.optim_inputs_func(device="cpu", dtype=getattr(torch, dtype)):
        found.append((sample.desc, sample.kwargs))
        for option in {"foreach", "fused"}.intersection(info.supported_impls):
            if option in sample.kwargs or (option == "fused" and dtype not in ("float32", "float64")):
                continue  # PyTorch's fused SGD is wrong in half precision from 16 elements on; complex it refuses
            found.append((f"{sample.desc}, {option}", {**sample.kwargs, option: True}))
    return found


CASES = [
    pytest.param(name, dtype, number, id=f"{name}-{dtype}-{number}-{description.replace(' ', '_')}")
    for name in DATABASE
    for dtype in TYPES
    if supports(name, dtype)
    for number, (description, _options) in enumerate(samples(name, dtype))
]


def translated(lib, value):
    """An option that holds tensors of PyTorch, for `lib`."""
    if isinstance(value, torch.Tensor):
        return lib.tensor(value.tolist(), dtype=getattr(lib, str(value.dtype).removeprefix("torch.")))
    if isinstance(value, (tuple, list)):
        return type(value)(translated(lib, entry) for entry in value)
    return value


class Run:
    """An optimizer of one package at work on parameters and gradients that are the same for both."""

    def __init__(self, lib, name: str, dtype: str, options: dict) -> None:
        self.lib, self.name, self.dtype, self.options = lib, name, dtype, options
        self.rng = np.random.default_rng(0)
        shapes = MATRICES if name == "Muon" else SHAPES
        self.params = [lib.nn.Parameter(self.draw(shape)) for shape in shapes]
        self.unused = lib.nn.Parameter(self.draw((2, 2)))
        self.optimizer = self.make(self.params)

    def draw(self, shape):
        values = self.rng.standard_normal(shape)
        if self.dtype.startswith("complex"):
            values = values + 1j * self.rng.standard_normal(shape)
        return self.lib.tensor(values.tolist(), dtype=getattr(self.lib, self.dtype))

    def make(self, params):
        options = {key: translated(self.lib, value) for key, value in self.options.items()}
        if self.name == "LBFGS":
            options["max_iter"] = 2 if self.dtype in ("float32", "complex64") else 5  # more would multiply rounding errors
            return self.lib.optim.LBFGS([*params, self.unused], **options)
        groups = [{"params": [params[0], self.unused]}, {"params": params[1:], "weight_decay": 0.03}]
        if self.name == "Rprop":
            groups[1] = {"params": params[1:], "step_sizes": (1e-3, 0.02)}
        return getattr(self.lib.optim, self.name)(groups, **options)

    def closure(self):
        self.optimizer.zero_grad()
        loss = sum((((p - 0.5 - i).abs() ** 2) * (1 + i)).sum() + (p.abs() ** 4).sum() for i, p in enumerate(self.params))
        loss.backward()
        return loss

    def steps(self, count: int) -> None:
        for _ in range(count):
            if self.name == "LBFGS":
                self.optimizer.step(self.closure)
                continue
            for p in self.params:
                p.grad = self.draw(p.shape)
            self.optimizer.step()

    def restart(self) -> None:
        """Goes on with new parameters and a new optimizer, which loads the old one's state."""
        saved = copy.deepcopy(self.optimizer.state_dict())
        self.params = [self.lib.nn.Parameter(p.detach().clone()) for p in self.params]
        self.optimizer = self.make(self.params)
        self.optimizer.load_state_dict(saved)


def assert_same(mine, theirs, tolerance: float, where: str) -> None:
    """The same containers of the same types of the same values; tensors of the same dtype and shape."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(mine, backlight.Tensor), where
        assert (str(mine.dtype), tuple(mine.shape)) == (str(theirs.dtype), tuple(theirs.shape)), where
        mine, theirs = (
            value.detach().to(lib.complex128 if value.is_complex() else lib.float64).numpy()
            for value, lib in ((mine, backlight), (theirs, torch))
        )
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=where)
        return
    assert type(mine) is type(theirs), where
    if isinstance(theirs, dict):
        assert list(mine) == list(theirs), where
        for key in theirs:
            assert_same(mine[key], theirs[key], tolerance, f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs), where
        for i, pair in enumerate(zip(mine, theirs, strict=True)):
            assert_same(*pair, tolerance, f"{where}[{i}]")
    elif isinstance(theirs, float):
        assert mine == pytest.approx(theirs, rel=tolerance, abs=tolerance), where
    else:
        assert mine == theirs, where


def check(name: str, dtype: str, options: dict) -> None:
    """AssertionError where the two packages differ, after some steps in one go or with a restart among them."""
    tolerance = TOLERANCE[dtype]
    if any(isinstance(value, torch.Tensor) for value in options.values()):
        tolerance = max(tolerance, 1e-6)  # PyTorch computes step sizes in the precision of that tensor
    if name == "ASGD":
        tolerance = max(tolerance, 1e-7)  # foreach keeps step sizes in another precision than PyTorch's plain loop
    if name == "LBFGS":
        tolerance = max(1e3 * tolerance, 1e-6)  # it differs rounding errors and divides by the differences
    if name == "Muon":
        tolerance = max(tolerance, 1e-4)  # orthogonalised in bfloat16, where a sum in another order rounds another way
    theirs, ours = (Run(lib, name, dtype, options) for lib in BOTH)
    assert list(ours.optimizer.defaults) == list(theirs.optimizer.defaults)
    for run in (theirs, ours):
        run.steps(STEPS)
    assert_same(ours.params, theirs.params, tolerance, "params")
    assert_same(ours.optimizer.state_dict(), theirs.optimizer.state_dict(), tolerance, "state_dict()")
    assert repr(ours.optimizer) == repr(theirs.optimizer)
    theirs, ours = (Run(lib, name, dtype, options) for lib in BOTH)
    for run in (theirs, ours):
        run.steps(3)
        run.restart()
        run.steps(STEPS - 3)
    assert_same(ours.params, theirs.params, tolerance, "params after a restart")
    assert_same(ours.optimizer.state_dict(), theirs.optimizer.state_dict(), tolerance, "state_dict() after a restart")


@pytest.mark.parametrize(("name", "dtype", "number"), CASES)
def test_optimizer(name, dtype, number):
    _description, options = samples(name, dtype)[number]
    if any(options.get(option) for option in REFUSED):
        with pytest.raises(NotImplementedError):
            Run(backlight, name, dtype, options)
        return
    check(name, dtype, options)


@pytest.mark.parametrize("name", [name for name in DATABASE if name not in ("SparseAdam", "LBFGS")])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_changes_on_the_way(name, dtype):
    """Parameters that join later, learning rates that change, steps that were saved as plain numbers, odd gradients."""
    runs = [Run(lib, name, dtype, {"lr": 0.05}) for lib in BOTH]
    for run in runs:
        lib = run.lib
        late = run.params.pop(1)
        run.steps(2)
        run.params.insert(1, late)
        run.steps(1)
        run.optimizer.param_groups[0]["lr"] = 0.02
        run.optimizer.param_groups[1]["lr"] = lib.tensor(0.125)
        run.steps(1)
        transposed = lib.nn.Parameter(lib.arange(6.0, dtype=getattr(lib, dtype)).view(2, 3).t())
        run.params.append(transposed)
        run.optimizer.add_param_group({"params": [transposed]})
        state = copy.deepcopy(run.optimizer.state_dict())
        for own in state["state"].values():
            for key in {"step", "eta", "mu", "mu_product"}.intersection(own):
                own[key] = own[key].item()
        run.optimizer.load_state_dict(state)
        run.steps(1)
        for number, value in enumerate((0.0, float("inf"), float("nan"))):
            run.params[0].grad[number, 0] = value
        if name != "Adafactor":  # one bad number spoils the whole parameter, but not in the same elements
            run.optimizer.step()
    theirs, ours = runs
    tolerance = 1e-3 if name == "Muon" else 2e-5 if dtype == "float32" else 1e-7
    assert_same(ours.params, theirs.params, tolerance, "params")
    assert_same(ours.optimizer.state_dict(), theirs.optimizer.state_dict(), tolerance, "state_dict()")


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.01},
        {"line_search_fn": "strong_wolfe"},
        {"line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 7},
        {"line_search_fn": "strong_wolfe", "lr": 20.0, "max_iter": 6},
        {"line_search_fn": "strong_wolfe", "lr": 1e-4, "max_iter": 6, "max_eval": 5},
        {"line_search_fn": "strong_wolfe", "max_eval": 1},
        {"lr": 0.005, "max_eval": 3},
        {"lr": 0.01, "tolerance_change": 1e-2, "max_iter": 50},
        {"line_search_fn": "strong_wolfe", "tolerance_grad": 1e-1},
        {"line_search_fn": "weak_wolfe"},
        {"max_iter": 0},
    ],
)
def test_lbfgs_in_a_narrow_valley(options):
    """Rosenbrock's function: the same values at every call of the closure."""
    logs = []
    for lib in BOTH:
        x = lib.nn.Parameter(lib.tensor([-1.2, 1.0], dtype=lib.float64))
        optimizer, log = lib.optim.LBFGS([x], **options), []

        def closure(x=x, optimizer=optimizer, log=log):
            optimizer.zero_grad()
            loss = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
            loss.backward()
            log.append(loss.item())
            return loss

        try:
            for _ in range(3):
                log.append(optimizer.step(closure).item())
            state = optimizer.state_dict()["state"][0]
            log += [state["func_evals"], state["n_iter"], *x.tolist()]
        except RuntimeError as error:
            log.append(str(error))
        logs.append(log)
    assert len(logs[1]) == len(logs[0])
    for mine, yours in zip(*reversed(logs), strict=True):
        assert mine == (yours if isinstance(yours, str) else pytest.approx(yours, rel=1e-6, abs=1e-9))


def outcome(lib, name, error_input, original_params):
    """What constructing the optimizer and one step raise or warn about."""
    sample = error_input.optimizer_error_input

    def own(value):
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided:
                return value
            if id(value) not in copies:
                copies[id(value)] = tensor = translated(lib, value.detach()).requires_grad_(value.requires_grad)
                if value.grad is not None:
                    tensor.grad = translated(lib, value.grad)
            return copies[id(value)]
        if isinstance(value, dict):
            return {key: own(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(own(entry) for entry in value)
        return value

    copies: dict = {}
    params = own(original_params if sample.params is None else sample.params)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            optimizer = getattr(lib.optim, name)(params, **own(sample.kwargs))
            optimizer.step()
        except Exception as error:
            return type(error).__name__, str(error)
    return [(w.category.__name__, str(w.message)) for w in caught]


@pytest.mark.parametrize("name", [name for name in DATABASE if name != "SparseAdam"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors(name, dtype):
    params = [torch.nn.Parameter(torch.randn(2, 3, dtype=getattr(torch, dtype))) for _ in range(2)]
    for error_input in DATABASE[name].optim_error_inputs_func("cpu", getattr(torch, dtype)):
        theirs, ours = (outcome(lib, name, error_input, params) for lib in BOTH)
        if isinstance(theirs, tuple) and any(error_input.optimizer_error_input.kwargs.get(option) for option in REFUSED):
            assert isinstance(ours, tuple)
            continue
        assert ours == theirs, error_input.optimizer_error_input.desc


def test_sparse_adam_is_refused():
    with pytest.raises(NotImplementedError, match="Use Adam"):
        backlight.optim.SparseAdam([backlight.nn.Parameter(backlight.zeros(2))])


def test_names_and_modules():
    """Every public name of PyTorch's package is there, and its module paths can be imported."""
    import importlib

    for name in torch.optim.__all__:
        assert hasattr(backlight.optim, name), name
    assert set(torch.optim.__all__) <= set(dir(backlight.optim))
    for name in DATABASE:
        module = getattr(torch.optim, name).__module__.replace("torch", "backlight", 1)
        assert getattr(importlib.import_module(module), name) is getattr(backlight.optim, name)
    for module in ("_adafactor", "_muon", "adamw", "lr_scheduler", "swa_utils", "sparse_adam"):
        importlib.import_module(f"backlight.optim.{module}")


if __name__ == "__main__":
    for name in DATABASE:
        for dtype in TYPES:
            counts = {"agree": 0, "refused": 0, "differ": 0}
            for description, options in samples(name, dtype) if supports(name, dtype) else ():
                if any(options.get(option) for option in REFUSED):
                    counts["refused"] += 1
                    continue
                try:
                    check(name, dtype, options)
                    counts["agree"] += 1
                except Exception as error:
                    counts["differ"] += 1
                    print(name, dtype, description, options, repr(error)[:1200])
            print(name, dtype, counts)
