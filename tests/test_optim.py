"""Optimizers against PyTorch: the same updates, state, text and errors."""

import copy
import importlib
import pickle
import warnings

import numpy as np
import pytest
import torch

import backlight

BOTH = (torch, backlight)
OPTIONS = [
    ("SGD", "lr=0.1"),
    ("SGD", "lr=0.1, momentum=0.9"),
    ("SGD", "lr=0.1, momentum=0.9, dampening=0.3"),
    ("SGD", "lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01"),
    ("SGD", "lr=0.01, maximize=True, weight_decay=0.1, momentum=0.5, foreach=False"),
    ("SGD", "lr=torch.tensor(0.1), weight_decay=0.2"),
    ("Adam", ""),
    ("Adam", "lr=0.1, betas=(0.5, 0.9), eps=1e-3"),
    ("Adam", "amsgrad=True, weight_decay=0.1"),
    ("Adam", "lr=torch.tensor(0.01), maximize=True"),
    ("Adam", "lr=0.01, weight_decay=0.1, decoupled_weight_decay=True"),
    ("AdamW", "lr=0.01"),
    ("AdamW", "lr=0.01, weight_decay=0.3, amsgrad=True, maximize=True"),
]


def make(lib, name, options, params):
    return eval(f"optim.{name}(params, {options})", {"optim": lib.optim, "params": params, "torch": lib})


def train(lib, name, options, dtype, steps=30):
    """Weights, losses and the optimizer's state_dict after some steps on a small problem."""
    rng = np.random.default_rng(0)

    def draw(*shape):
        values = rng.standard_normal(shape)
        if dtype.startswith("complex"):
            values = values + 1j * rng.standard_normal(shape)
        return lib.tensor(values.tolist(), dtype=getattr(lib, dtype))

    data = draw(20, 7)
    weight, bias = lib.nn.Parameter(draw(7, 5)), lib.nn.Parameter(draw())
    unused = lib.nn.Parameter(draw(2))
    optimizer = make(lib, name, options, [weight, unused, bias])
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((data @ weight).abs() ** 2).mean() + ((bias - 1).abs() ** 2)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [weight, unused, bias], losses, optimizer.state_dict()


def assert_same_state(ours, theirs, tolerance):
    assert list(ours) == list(theirs)
    assert list(ours["state"]) == list(theirs["state"])
    for key, state in theirs["state"].items():
        assert list(ours["state"][key]) == list(state)
        for name, value in state.items():
            mine = ours["state"][key][name]
            assert str(mine.dtype) == str(value.dtype)
            np.testing.assert_allclose(mine.numpy(), value.numpy(), rtol=tolerance, atol=tolerance)
    for mine, yours in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        assert list(mine) == list(yours)
        assert str(mine) == str(yours)


@pytest.mark.parametrize(("name", "options"), OPTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16"])
def test_updates(name, options, dtype):
    (their_weights, their_losses, theirs), (our_weights, our_losses, ours) = (
        train(lib, name, options, dtype, steps=5 if dtype == "float16" else 30) for lib in BOTH
    )
    tolerance = {"float64": 1e-12, "float16": 1e-2, "float32": 1e-5, "complex64": 1e-4}[dtype]
    if "tensor" in options:  # PyTorch computes the step size in the precision of that tensor
        tolerance = max(tolerance, 1e-7)
    np.testing.assert_allclose(our_losses, their_losses, rtol=tolerance, atol=tolerance)
    for mine, yours in zip(our_weights, their_weights, strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), yours.detach().numpy(), rtol=tolerance, atol=tolerance)
    assert_same_state(ours, theirs, tolerance)


def attempt(out, action):
    try:
        out(action())
    except Exception as error:
        out(f"{type(error).__name__}: {error}")


def same_text(program):
    texts = []
    for lib in BOTH:
        lines = []
        lib.manual_seed(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program(lib, lambda *values, lines=lines: lines.append(" ".join(map(str, values))))
        texts.append(lines + [f"{w.category.__name__}: {w.message}" for w in caught])
    assert texts[1] == texts[0]


def test_constructors():
    texts = """SGD(p)| SGD([])| SGD([3])| SGD([p * 2])| SGD([p, p])| SGD([{'params': [p]}, {'params': [p]}])| SGD({p})
        SGD([{'params': {p}}])| SGD([p]).add_param_group(3)| SGD([p], lr=-1)| SGD([p], momentum=-1)
        SGD([p], weight_decay=-1)| SGD([p], nesterov=True)| SGD([p], lr=torch.tensor([1., 2.]))
        SGD([p], fused=True, foreach=True)| SGD([p], fused=True, differentiable=True)| SGD([p])| SGD([p], lr='a')
        Adam([p])| AdamW([p])| Adam([p], lr=-1)| Adam([p], eps=-1)| Adam([p], betas=(1, .9))| Adam([p], betas=(.9, 1))
        Adam([p], betas=(-.1, .9))| Adam([p], weight_decay=-1)| Adam([p], lr=torch.tensor(.1), foreach=True)
        Adam([p], betas=(torch.tensor(.9), .9))| SGD([('a', p), ('b', q)])| SGD([('a', p), q])| SGD([p, ('b', q)])
        SGD([{'params': [('a', p)]}])| Optimizer([p], {})| SGD(iter([p]))| SGD([{'x': 3}])| SGD(3)| SGD(None)| SGD('ab')
        SGD([p], 1e-3, 0.9, 0, 0, False)| SGD([p], 1e-3, 0.9, 0, 0, False, True)| Adam([p], lr=torch.tensor([.1, .2]))
        SGD([p, q]).add_param_group({'params': p})| SGD([p]).add_param_group({'params': torch.zeros(2)})
        SGD([{'params': p}, {'params': [q], 'lr': 7, 'extra': 'x'}], momentum=0.5)| Optimizer([p], {}).step()"""

    def program(torch, out):
        p, q = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))
        names = {**vars(torch.optim), "p": p, "q": q, "torch": torch}
        for text in texts.replace("\n", "|").split("|"):
            attempt(out, lambda text=text: eval(text.strip(), names))

    same_text(program)


def test_foreach_and_fused_make_no_difference():
    results = []
    for options in ({}, {"foreach": True}, {"fused": True}):
        p = backlight.nn.Parameter(backlight.arange(4.0))
        p.grad = backlight.ones(4)
        backlight.optim.AdamW([p], **options).step()
        results.append(p.tolist())
    assert results[0] == results[1] == results[2]


def test_what_is_not_supported_is_refused():
    p = backlight.nn.Parameter(backlight.zeros(2))
    for make_optimizer in (
        lambda: backlight.optim.SGD([p], differentiable=True),
        lambda: backlight.optim.Adam([p], differentiable=True),
        lambda: backlight.optim.AdamW([p], capturable=True),
    ):
        with pytest.raises(NotImplementedError):
            make_optimizer()


def test_step_and_closure():
    def program(torch, out):
        p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        never = torch.nn.Parameter(torch.tensor([1.0]))
        optimizer = torch.optim.SGD([p, never], lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        out(optimizer.step(), p)
        with torch.no_grad():
            out(optimizer.step(closure), p, p.grad, never)
        version = p._version
        optimizer.step()
        out(p._version - version, p.requires_grad, p.is_leaf)
        optimizer.zero_grad(set_to_none=False)
        out(p.grad, never.grad)
        optimizer.zero_grad()
        out(p.grad)
        y = p.exp().sum() + (p * p).sum()
        p.grad = torch.ones(2)
        optimizer.step()
        try:
            y.backward()
        except RuntimeError as error:
            out("modified by an inplace operation" in str(error))

    same_text(program)


def test_state_dict():
    def program(torch, out):
        p, q = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))
        sgd = torch.optim.SGD([p, q], lr=0.1, momentum=0.9)
        (p.sum() + q.sum()).backward()
        sgd.step()
        out(sgd.state_dict(), sgd.state)
        for action in (
            lambda: sgd.load_state_dict({}),
            lambda: sgd.load_state_dict({"state": {}, "param_groups": []}),
            lambda: sgd.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]}),
        ):
            attempt(out, action)
        other = torch.optim.SGD([p, q], lr=0.5)
        other.load_state_dict(sgd.state_dict())
        out(other.state_dict(), other)
        named = torch.optim.Adam([("a", p), ("b", q)], amsgrad=True)
        named.step()
        out(named.state_dict(), named.param_groups)
        plain = torch.optim.Adam([p, q])
        out(plain.load_state_dict(named.state_dict()), plain.param_groups)
        out(named.load_state_dict(torch.optim.Adam([p, q]).state_dict()), named.param_groups)
        p64 = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        q64 = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
        wide = torch.optim.Adam([p64, q64])
        wide.load_state_dict(plain.state_dict())
        out([{k: v.dtype for k, v in state.items()} for state in wide.state.values()])
        twin = copy.deepcopy(sgd)
        out(twin, len(twin.state), twin.param_groups[0]["params"][0] is p)
        again = pickle.loads(pickle.dumps(sgd))
        out(again, again.state_dict(), sorted(sgd.__getstate__()))
        adamw = torch.optim.AdamW([p, q])
        adamw.load_state_dict(plain.state_dict())
        out(adamw)

    same_text(program)


def test_hooks():
    def program(torch, out):
        p = torch.nn.Parameter(torch.zeros(2))
        p.grad = torch.ones(2)
        optimizer = torch.optim.SGD([p], lr=0.1)
        pre = optimizer.register_step_pre_hook(lambda o, args, kwargs: out("pre", o is args[0], len(args), sorted(kwargs), p))
        optimizer.register_step_post_hook(lambda o, args, kwargs: out("post", o is args[0], len(args), sorted(kwargs), p))
        optimizer.step()
        optimizer.step(closure=None)
        optimizer.step(lambda: None)
        pre.remove()
        optimizer.register_step_pre_hook(lambda _o, args, _kwargs: (args, {"closure": lambda: out("given")}))
        optimizer.step()
        optimizer.register_step_pre_hook(lambda *_args: 3)
        try:
            optimizer.step()
        except RuntimeError as error:
            out(str(error).split(" must ")[1])
        optimizer.register_state_dict_pre_hook(lambda o: out("state pre", type(o).__name__))
        optimizer.register_state_dict_post_hook(lambda _o, state: {**state, "more": 1})
        optimizer.register_load_state_dict_pre_hook(lambda _o, state: out("load", sorted(state)))
        optimizer.register_load_state_dict_post_hook(lambda o: out("loaded", type(o).__name__))
        optimizer.load_state_dict(optimizer.state_dict())

        class Mine(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {"lr": 1.0})

            def step(self, closure=None):
                out("mine", closure)

        mine = Mine([p])
        mine.register_step_post_hook(lambda *_args: out("after"))
        mine.step()
        optimizer_module = importlib.import_module(f"{torch.__name__}.optim.optimizer")
        everywhere = optimizer_module.register_optimizer_step_pre_hook(lambda *_args: out("everywhere"))
        mine.step(closure=3)
        everywhere.remove()
        mine.step()

    same_text(program)


def test_a_parameter_that_is_not_contiguous():
    for name in ("SGD", "Adam"):
        results = []
        for lib in BOTH:
            p = lib.arange(6.0).view(2, 3).t().requires_grad_()
            optimizer = getattr(lib.optim, name)([p], lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                (p * p).sum().backward()
                optimizer.step()
            results.append(p.detach().numpy())
        np.testing.assert_allclose(results[1], results[0], rtol=1e-6, atol=1e-6)


def test_bfloat16():
    for name in ("SGD", "AdamW"):
        results = []
        for lib in BOTH:
            p = lib.nn.Parameter(lib.tensor([1.0, -2.0, 3.0], dtype=lib.bfloat16))
            optimizer = getattr(lib.optim, name)([p], lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                (p * p).sum().backward()
                optimizer.step()
            results.append(p.detach().float().tolist())
        np.testing.assert_allclose(results[1], results[0], rtol=2e-2)


def test_optimizers_are_found_by_name_in_the_modules_dict():
    """As older programs choose them by an argument, and Pyro wraps each."""
    found = [
        {
            name
            for name, value in vars(package.optim).items()
            if isinstance(value, type) and issubclass(value, package.optim.Optimizer)
        }
        for package in (backlight, torch)
    ]
    assert found[0] == found[1]
