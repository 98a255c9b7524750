"""nn.utils: parametrizations, weight and spectral norm, pruning, fusion, compared with PyTorch."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
import torch.nn.utils.stateless

import backlight


def numbers(value):
    """Nested results as arrays and plain values."""
    if isinstance(value, (torch.Tensor, backlight.Tensor)):
        return value.detach().numpy()
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(item) for item in value]
    return value


def check(got, expected, rtol=1e-6):
    if isinstance(expected, dict):
        assert list(got) == list(expected)
        got, expected = list(got.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            check(a, b, rtol)
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=2e-6)
    else:
        assert got == expected


def both(function, rtol=1e-6):
    """Runs a function of a package under both, from the same seed, and compares all it returns."""
    results = []
    for package in (backlight, torch):
        package.manual_seed(0)
        try:
            results.append(numbers(function(package)))
        except Exception as error:
            results.append(f"{type(error).__name__}: {error}".replace("backlight.", "torch."))
    check(*results, rtol)
    return results[0]


def trained(t, module, shape=(4, 3), steps=3):
    """Text, outputs, state and gradients through a few training steps and one evaluation."""
    texts, outputs = [repr(module), list(module.state_dict())], []
    optimizer = t.optim.SGD(module.parameters(), lr=0.1)
    x = t.randn(*shape)
    for _ in range(steps):
        optimizer.zero_grad()
        output = module(x)
        output.square().sum().backward()
        optimizer.step()
        outputs.append(output)
    outputs += [p.grad for p in module.parameters()]
    module.eval()
    return [texts, outputs, module(x), module.state_dict()]


def made(t, kind):
    return {
        "linear": lambda: t.nn.Linear(3, 5),
        "wide": lambda: t.nn.Linear(5, 3),
        "square": lambda: t.nn.Linear(4, 4),
        "conv": lambda: t.nn.Conv1d(3, 4, 2),
        "transposed": lambda: t.nn.ConvTranspose1d(3, 4, 2),
        "embedding": lambda: t.nn.Embedding(3, 4),
    }[kind]()


SHAPES = {"linear": (4, 3), "wide": (4, 5), "square": (2, 4), "conv": (2, 3, 6), "transposed": (2, 3, 6)}
WRAPPED = {
    "weight_norm": lambda t, m: t.nn.utils.parametrizations.weight_norm(m),
    "weight_norm over all": lambda t, m: t.nn.utils.parametrizations.weight_norm(m, dim=None),
    "weight_norm of dimension 1": lambda t, m: t.nn.utils.parametrizations.weight_norm(m, dim=1),
    "spectral_norm": lambda t, m: t.nn.utils.parametrizations.spectral_norm(m),
    "spectral_norm, 3 iterations": lambda t, m: t.nn.utils.parametrizations.spectral_norm(m, n_power_iterations=3, dim=1),
    "spectral_norm of a bias": lambda t, m: t.nn.utils.parametrizations.spectral_norm(m, "bias"),
    "older weight_norm": lambda t, m: t.nn.utils.weight_norm(m),
    "older weight_norm over all": lambda t, m: t.nn.utils.weight_norm(m, dim=None),
    "older spectral_norm": lambda t, m: t.nn.utils.spectral_norm(m),
    "l1_unstructured": lambda t, m: t.nn.utils.prune.l1_unstructured(m, "weight", 0.4),
    "random_unstructured": lambda t, m: t.nn.utils.prune.random_unstructured(m, "weight", 4),
    "random_structured": lambda t, m: t.nn.utils.prune.random_structured(m, "weight", 0.4, 0),
    "ln_structured": lambda t, m: t.nn.utils.prune.ln_structured(m, "weight", 0.5, n=2, dim=1),
    "identity": lambda t, m: t.nn.utils.prune.identity(m, "bias"),
    "custom_from_mask": lambda t, m: t.nn.utils.prune.custom_from_mask(m, "bias", (t.arange(len(m.bias)) % 2)),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped_layers_train_as_in_pytorch(name, kind):
    both(lambda t: trained(t, WRAPPED[name](t, made(t, kind)), SHAPES[kind]), rtol=2e-5)


@pytest.mark.parametrize("kind", ("linear", "wide", "square", "conv"))
@pytest.mark.parametrize("how", (None, "matrix_exp", "cayley", "householder"))
@pytest.mark.parametrize("trivial", (True, False))
def test_orthogonal_layers(kind, how, trivial):
    def run(t):
        layer = made(t, kind).double()
        t.nn.utils.parametrizations.orthogonal(layer, "weight", how, use_trivialization=trivial)
        weight = layer.weight
        weight.square().mul(t.arange(weight.numel(), dtype=t.float64).reshape(weight.shape)).sum().backward()
        return [repr(layer), list(layer.state_dict()), weight, [p.grad for p in layer.parameters()]]

    both(run, rtol=1e-6)


class Twice:
    """A parametrization with a right inverse, for either package."""

    @staticmethod
    def of(t, name="Doubled", inverse=True, several=False):
        def forward(_self, x, y=None):
            return 2 * x if y is None else x + y

        members = {"forward": forward}
        if inverse:
            members["right_inverse"] = lambda _self, x: (x / 4, x * 3 / 4) if several else x / 2
        return type(name, (t.nn.Module,), members)()


def parametrized(t):
    layer, p = t.nn.Linear(2, 3), t.nn.utils.parametrize
    p.register_parametrization(layer, "weight", Twice.of(t))
    p.register_parametrization(layer, "weight", Twice.of(t, "Other"))
    p.register_parametrization(layer, "bias", Twice.of(t, "Sum", several=True))
    return layer, p


STEPS = {
    "text": lambda t, layer, _p: [repr(layer), type(layer).__name__, list(layer.state_dict())],
    "assignment": lambda t, layer, _p: [setattr(layer, "weight", t.ones(3, 2)), layer.weight, layer.state_dict()],
    "assignment of several": lambda t, layer, _p: [setattr(layer, "bias", t.ones(3)), layer.bias, layer.state_dict()],
    "removal": lambda t, layer, p: [p.remove_parametrizations(layer, "weight"), repr(layer), layer.state_dict()][1:],
    "removal of the value": lambda t, layer, p: [repr(p.remove_parametrizations(layer, "weight", False)), layer.weight],
    "removal of all": lambda t, layer, p: [
        repr(p.remove_parametrizations(p.remove_parametrizations(layer, "weight"), "bias")),
        type(layer).__name__,
        layer(t.ones(1, 2)),
    ],
    "removal of several": lambda t, layer, p: p.remove_parametrizations(layer, "bias", False),
    "questions": lambda t, layer, p: [
        p.is_parametrized(layer),
        p.is_parametrized(layer, "weight"),
        p.is_parametrized(layer, "x"),
        p.is_parametrized(t.nn.Linear(1, 1)),
        p.type_before_parametrizations(layer).__name__,
    ],
    "copy": lambda t, layer, _p: [repr(copy.deepcopy(layer)), copy.deepcopy(layer)(t.ones(1, 2))],
    "pickle": lambda t, layer, _p: pickle.dumps(layer),
    "transfer": lambda t, layer, p: [
        repr(p.transfer_parametrizations_and_params(layer, t.nn.Linear(2, 3))),
        p.transfer_parametrizations_and_params(layer, t.nn.Linear(2, 3), "weight").weight,
    ],
    "missing": lambda t, layer, p: p.register_parametrization(layer, "nothing", Twice.of(t)),
    "not removable": lambda t, layer, p: p.remove_parametrizations(t.nn.Linear(1, 2), "weight"),
    "other dtype": lambda t, layer, p: p.register_parametrization(layer, "weight", t.nn.Linear(2, 2).double()),
    "other shape": lambda t, layer, p: p.register_parametrization(layer, "weight", t.nn.Linear(2, 5)),
    "other shape first": lambda t, layer, p: p.register_parametrization(t.nn.Linear(2, 3), "weight", t.nn.Linear(2, 5)),
    "unsafe": lambda t, layer, p: p.register_parametrization(layer, "weight", t.nn.Linear(2, 5), unsafe=True).weight,
    "no inverse": lambda t, layer, p: setattr(
        p.register_parametrization(t.nn.Linear(2, 3), "weight", Twice.of(t, inverse=False)), "weight", t.ones(3, 2)
    ),
    "load": lambda t, layer, p: [layer.load_state_dict(parametrized(t)[0].state_dict()), layer.weight][1:],
}


@pytest.mark.parametrize("name", STEPS)
def test_parametrize(name):
    both(lambda t: STEPS[name](t, *parametrized(t)))


def test_a_cached_tensor_is_computed_once():
    calls = []

    class Counted(backlight.nn.Module):
        def forward(self, x):
            calls.append(1)
            return x * 2

    layer = backlight.nn.Linear(2, 2)
    backlight.nn.utils.parametrize.register_parametrization(layer, "weight", Counted())
    calls.clear()
    with backlight.nn.utils.parametrize.cached():
        assert layer.weight is layer.weight
    assert len(calls) == 1
    assert layer.weight is not layer.weight


def repeated_pruning(t):
    layer, prune = t.nn.Linear(6, 4), t.nn.utils.prune
    prune.l1_unstructured(layer, "weight", 5)
    prune.random_unstructured(layer, "weight", 0.3)
    prune.ln_structured(layer, "weight", 1, n=1, dim=0)
    masks = [layer.weight_mask, layer.weight, prune.is_pruned(layer), len(list(layer._forward_pre_hooks.values())[0])]
    out = layer(t.ones(2, 6))
    prune.remove(layer, "weight")
    return [masks, out, layer.state_dict(), prune.is_pruned(layer), repr(layer)]


def global_pruning(t):
    net, prune = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Linear(4, 2)), t.nn.utils.prune
    pairs = ((net[0], "weight"), (net[1], "weight"), (net[0], "bias"))
    scores = {(net[1], "weight"): t.ones(2, 4) * 9}
    prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.3)
    first = net.state_dict()
    prune.global_unstructured(pairs, prune.L1Unstructured, scores, amount=4)
    return [first, net.state_dict()]


PRUNING = {
    "repeated": repeated_pruning,
    "global": global_pruning,
    "by scores": lambda t: (
        t.nn.utils.prune.l1_unstructured(t.nn.Linear(2, 2), "weight", 1, t.tensor([[4.0, 1.0], [2.0, 3.0]])).weight_mask
    ),
    "of a tensor": lambda t: t.nn.utils.prune.L1Unstructured(0.5).prune(t.arange(6.0)),
    "nothing": lambda t: t.nn.utils.prune.random_structured(t.nn.Linear(2, 2), "weight", 0.0, 0).weight_mask,
    "amount": lambda t: t.nn.utils.prune.l1_unstructured(t.nn.Linear(2, 2), "weight", "a"),
    "share": lambda t: t.nn.utils.prune.l1_unstructured(t.nn.Linear(2, 2), "weight", 1.5),
    "too many": lambda t: t.nn.utils.prune.l1_unstructured(t.nn.Linear(2, 2), "weight", 5),
    "vector": lambda t: t.nn.utils.prune.random_structured(t.nn.Linear(2, 2), "bias", 1, 0),
    "dimension": lambda t: t.nn.utils.prune.ln_structured(t.nn.Linear(2, 2), "weight", 1, 2, 2),
    "scores": lambda t: t.nn.utils.prune.l1_unstructured(t.nn.Linear(2, 2), "bias", 1, t.ones(3)),
    "not pruned": lambda t: t.nn.utils.prune.remove(t.nn.Linear(2, 2), "weight"),
    "no parameters": lambda t: t.nn.utils.prune.global_unstructured(3, t.nn.utils.prune.L1Unstructured, amount=1),
    "structured": lambda t: t.nn.utils.prune.global_unstructured(
        ((t.nn.Linear(2, 2), "weight"),), t.nn.utils.prune.LnStructured, amount=1, n=2
    ),
    "a failed pruning leaves the module": lambda t: unpruned_after_an_error(t),
}


def unpruned_after_an_error(t):
    layer = t.nn.Linear(2, 2)
    with pytest.raises(ValueError):
        t.nn.utils.prune.l1_unstructured(layer, "weight", 5)
    return layer.state_dict()


@pytest.mark.parametrize("name", PRUNING)
def test_pruning(name):
    both(PRUNING[name])


OTHERS = {
    "conv": lambda t: t.nn.utils.fuse_conv_bn_eval(t.nn.Conv2d(2, 3, 2).eval(), ready(t, t.nn.BatchNorm2d(3))).state_dict(),
    "conv without bias": lambda t: t.nn.utils.fuse_conv_bn_eval(
        t.nn.Conv2d(2, 3, 2, bias=False).eval(), ready(t, t.nn.BatchNorm2d(3, affine=False))
    ).state_dict(),
    "transposed": lambda t: t.nn.utils.fuse_conv_bn_eval(
        t.nn.ConvTranspose2d(2, 3, 2).eval(), ready(t, t.nn.BatchNorm2d(3)), transpose=True
    ).state_dict(),
    "linear": lambda t: t.nn.utils.fuse_linear_bn_eval(t.nn.Linear(2, 3).eval(), ready(t, t.nn.BatchNorm1d(3))).state_dict(),
    "in training": lambda t: t.nn.utils.fuse_linear_bn_eval(t.nn.Linear(2, 3), t.nn.BatchNorm1d(3)),
    "skip_init": lambda t: [repr(t.nn.utils.skip_init(t.nn.Linear, 2, 3)), t.rand(2)],
    "skip_init of a function": lambda t: t.nn.utils.skip_init(t.nn.ReLU),
    "removed weight_norm": lambda t: [
        m := t.nn.utils.remove_weight_norm(t.nn.utils.weight_norm(t.nn.Linear(2, 3))),
        repr(m),
        m.state_dict(),
    ][1:],
    "removed spectral_norm": lambda t: [
        m := t.nn.utils.remove_spectral_norm(t.nn.utils.spectral_norm(t.nn.Linear(2, 3))),
        repr(m),
        m.state_dict(),
        len(m._state_dict_hooks) + len(m._forward_pre_hooks),
    ][1:],
    "weight_norm twice": lambda t: t.nn.utils.weight_norm(t.nn.utils.weight_norm(t.nn.Linear(2, 3))),
    "spectral_norm twice": lambda t: t.nn.utils.spectral_norm(t.nn.utils.spectral_norm(t.nn.Linear(2, 3))),
    "no weight_norm": lambda t: t.nn.utils.remove_weight_norm(t.nn.Linear(2, 3)),
    "no spectral_norm": lambda t: t.nn.utils.remove_spectral_norm(t.nn.Linear(2, 3)),
    "iterations": lambda t: t.nn.utils.spectral_norm(t.nn.Linear(2, 3), n_power_iterations=0),
    "older names load": lambda t: [
        m := t.nn.utils.parametrizations.weight_norm(t.nn.Linear(2, 3)),
        m.load_state_dict(t.nn.utils.weight_norm(t.nn.Linear(2, 3)).state_dict()),
        m.state_dict(),
    ][2],
    "spectral versions": lambda t: [
        m := t.nn.utils.spectral_norm(t.nn.Linear(2, 3)),
        dict(m.state_dict()._metadata),
        m.load_state_dict(t.nn.utils.spectral_norm(t.nn.Linear(2, 3)).state_dict()),
        m.state_dict(),
    ][1::2],
    "orthogonal of a vector": lambda t: t.nn.utils.parametrizations.orthogonal(t.nn.Linear(2, 3), "bias"),
    "orthogonal by nothing": lambda t: t.nn.utils.parametrizations.orthogonal(t.nn.Linear(2, 3), "weight", "x"),
    "no tensor": lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(2, 3), "x"),
    "dim": lambda t: t.nn.utils.parametrizations.spectral_norm(t.nn.Linear(2, 3), dim=3),
    "stateless": lambda t: t.nn.utils.stateless.functional_call(t.nn.Linear(2, 1), {"weight": t.ones(1, 2)}, t.ones(1, 2)),
}


def ready(t, norm):
    norm(t.randn(8, 3, 4, 4) if isinstance(norm, t.nn.BatchNorm2d) else t.randn(8, 3))
    return norm.eval()


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name):
    both(OTHERS[name], rtol=1e-5)


def test_a_parametrized_model_goes_through_a_file():
    layer, _ = parametrized(backlight)
    file = io.BytesIO()
    backlight.save(layer.state_dict(), file)
    file.seek(0)
    theirs, _ = parametrized(torch)
    theirs.load_state_dict(torch.load(file))
    np.testing.assert_allclose(theirs.weight.detach().numpy(), layer.weight.detach().numpy())


@pytest.mark.parametrize("n", (1, 2, 3))
def test_gradients_of_convolutions(n):

    def run(t):
        x, w = t.randn(2, 4, *[6] * n), t.randn(6, 2, *[3] * n)
        settings = {"stride": 2, "padding": 1, "groups": 2}
        g = t.randn_like(getattr(t.nn.functional, f"conv{n}d")(x, w, **settings))
        of_input, of_weight = (getattr(t.nn.grad, f"conv{n}d_{what}") for what in ("input", "weight"))
        return [of_input(x.shape, w, g, **settings), of_weight(x, w.shape, g, **settings)]

    both(run, rtol=1e-4)
