"""All samples of PyTorch's module database (tests/module_sweep.py), and recurrent layers in more ways than it has."""

import itertools
import re

import module_sweep
import numpy as np
import pytest
import torch
from torch.testing._internal.common_modules import ModuleErrorEnum

import backlight


@pytest.mark.parametrize("name", module_sweep.INFOS)
def test_every_sample_agrees_with_pytorch(name):
    total, failures = module_sweep.sweep(module_sweep.INFOS[name])
    assert total > 0
    assert not failures


# Regular expressions of PyTorch that Python warns about
pytestmark = pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")


def error_inputs():
    for name, info in module_sweep.INFOS.items():
        if info.module_error_inputs_func is None:
            continue
        inputs = info.module_error_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=False, training=True)
        for number, sample in enumerate(inputs):
            yield pytest.param(info, sample, id=f"{name}-{number}")


@pytest.mark.parametrize(("info", "sample"), list(error_inputs()))
def test_wrong_input_raises_as_in_pytorch(info, sample):
    given = sample.module_error_input
    arguments = module_sweep.translate([given.constructor_input.args, given.constructor_input.kwargs])
    make = getattr(backlight.nn, info.module_cls.__name__)
    with pytest.raises(sample.error_type, match=sample.error_regex):
        module = make(*arguments[0], **arguments[1])
        if sample.error_on != ModuleErrorEnum.CONSTRUCTION_ERROR:
            forward = module_sweep.translate([given.forward_input.args, given.forward_input.kwargs])
            module(*forward[0], **forward[1])


def recurrent(package, kind, settings, packed):
    """All numbers of a recurrent layer: outputs, states, gradients, and the gradients of these."""
    rnn = package.nn.utils.rnn
    package.manual_seed(0)
    module = getattr(package.nn, kind)(3, 5, dtype=package.float64, **settings)
    x = package.randn(*((3, 4, 3) if settings["batch_first"] else (4, 3, 3)), dtype=package.float64).requires_grad_()
    inputs = x
    if packed:
        inputs = rnn.pack_padded_sequence(x, package.tensor([2, 4, 3]), settings["batch_first"], enforce_sorted=False)
    output, states = module(inputs)
    if packed:
        output, _lengths = rnn.pad_packed_sequence(output)
    states = states if isinstance(states, tuple) else (states,)
    loss = (output * output.cos()).sum() + sum((s * s).sum() for s in states)
    wanted = [x, *module.parameters()]
    first = package.autograd.grad(loss, wanted, create_graph=True)
    second = package.autograd.grad(sum((g * g).sum() for g in first), wanted)
    return [output, *states, *first, *second], repr(module), list(module.state_dict())


@pytest.mark.parametrize(("kind", "packed"), list(itertools.product(("LSTM", "GRU", "RNN"), (False, True))))
def test_recurrent_layers_with_all_settings(kind, packed):
    names = ("num_layers", "bidirectional", "batch_first", "bias", "dropout")
    for values in itertools.product((1, 2), (False, True), (False, True), (False, True), (0.0, 0.5)):
        settings = dict(zip(names, values, strict=True))
        if settings["dropout"] and settings["num_layers"] == 1:
            continue
        for size in (0, 2) if kind == "LSTM" else (0,):
            both = settings | ({"proj_size": size} if size else {})
            expected, *texts = recurrent(torch, kind, both, packed)
            got, *own_texts = recurrent(backlight, kind, both, packed)
            assert own_texts == texts
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-10)


SEQUENCES = {
    "sorted": lambda t, rnn: rnn.pack_padded_sequence(t.arange(12.0).reshape(4, 3), t.tensor([4, 2, 1])),
    "unsorted": lambda t, rnn: rnn.pack_padded_sequence(t.arange(12.0).reshape(4, 3), [1, 4, 2], enforce_sorted=False),
    "batch first": lambda t, rnn: rnn.pack_padded_sequence(t.arange(12.0).reshape(3, 4), [4, 2, 1], batch_first=True),
    "list": lambda t, rnn: rnn.pack_sequence([t.arange(3), t.arange(2), t.arange(1)]),
    "needs grad": lambda t, rnn: rnn.pack_padded_sequence(t.ones(3, 2, requires_grad=True), [3, 2]),
    "padded again": lambda t, rnn: rnn.pad_packed_sequence(rnn.pack_sequence([t.ones(3), t.ones(1)]), True, -1.0, 5),
    "padded": lambda t, rnn: rnn.pad_sequence([t.ones(2, requires_grad=True), t.ones(3)]),
    "padded left": lambda t, rnn: rnn.pad_sequence([t.ones(2, 2), t.ones(3, 2)], True, 7.0, "left"),
    "unpacked": lambda t, rnn: rnn.unpack_sequence(rnn.pack_sequence([t.ones(1), t.ones(3)], enforce_sorted=False)),
    "unpadded": lambda t, rnn: rnn.unpad_sequence(t.ones(3, 2), t.tensor([3, 1])),
    "converted": lambda t, rnn: rnn.pack_sequence([t.arange(3), t.arange(2)]).double(),
    "inverse": lambda t, rnn: rnn.invert_permutation(t.tensor([2, 0, 1])),
    "not falling": lambda t, rnn: rnn.pack_padded_sequence(t.ones(3, 2), t.tensor([1, 3])),
    "zero length": lambda t, rnn: rnn.pack_padded_sequence(t.ones(3, 2), t.tensor([3, 0])),
    "other count": lambda t, rnn: rnn.pack_padded_sequence(t.ones(3, 2), t.tensor([3])),
    "two-dimensional": lambda t, rnn: rnn.pack_padded_sequence(t.ones(3, 2), t.tensor([[3, 2]])),
    "too short": lambda t, rnn: rnn.pad_packed_sequence(rnn.pack_sequence([t.ones(3)]), total_length=2),
    "no sequences": lambda t, rnn: rnn.pad_sequence([]),
    "no iterable": lambda t, rnn: rnn.pad_sequence(3),
    "no side": lambda t, rnn: rnn.pad_sequence([t.ones(2)], padding_side="x"),
}


def outcome(function, package):
    try:
        return repr(function(package, package.nn.utils.rnn))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_print_as_in_pytorch(name):
    assert outcome(SEQUENCES[name], backlight) == outcome(SEQUENCES[name], torch)


WRONG = {
    "dropout of one layer": lambda t: t.nn.LSTM(2, 3, dropout=0.5),
    "dropout": lambda t: t.nn.GRU(2, 3, dropout=2),
    "size": lambda t: t.nn.RNN(2.0, 3),
    "no size": lambda t: t.nn.RNN(2, 0),
    "layers": lambda t: t.nn.LSTM(2, 3, 0),
    "projection": lambda t: t.nn.LSTM(2, 3, proj_size=3),
    "projection of a GRU": lambda t: t.nn.GRU(2, 3, proj_size=1),
    "nonlinearity": lambda t: t.nn.RNN(2, 3, nonlinearity="sin"),
    "bias": lambda t: t.nn.LSTM(2, 3, bias=1),
    "dtype": lambda t: t.nn.LSTM(2, 3)(t.ones(4, 1, 2).double()),
    "features": lambda t: t.nn.LSTM(2, 3)(t.ones(4, 1, 3)),
    "dimensions": lambda t: t.nn.LSTM(2, 3)(t.ones(1, 4, 1, 2)),
    "dimensions of an RNN": lambda t: t.nn.RNN(2, 3)(t.ones(1, 4, 1, 2)),
    "state": lambda t: t.nn.GRU(2, 3)(t.ones(4, 1, 2), t.ones(1, 1, 4)),
    "states": lambda t: t.nn.LSTM(2, 3)(t.ones(4, 1, 2), (t.ones(1, 1, 3), t.ones(1, 1, 4))),
    "state of a batch": lambda t: t.nn.GRU(2, 3)(t.ones(4, 1, 2), t.ones(1, 3)),
    "states of no batch": lambda t: t.nn.LSTM(2, 3)(t.ones(4, 2), (t.ones(1, 1, 3), t.ones(1, 1, 3))),
    "no steps": lambda t: t.nn.LSTM(2, 3)(t.ones(0, 1, 2)),
    "cell": lambda t: t.nn.LSTMCell(2, 3)(t.ones(2, 2, 2)),
    "hidden": lambda t: t.nn.GRUCell(2, 3)(t.ones(2, 2), t.ones(2, 2, 2)),
    "hidden of an LSTM": lambda t: t.nn.LSTMCell(2, 3)(t.ones(2, 2), (t.ones(2, 3), t.ones(1, 2, 3))),
    "heads": lambda t: t.nn.MultiheadAttention(5, 2),
    "embedding": lambda t: t.nn.MultiheadAttention(0, 2),
    "activation": lambda t: t.nn.TransformerEncoderLayer(4, 2, activation="sin"),
    "batches": lambda t: t.nn.Transformer(4, 2, 1, 1, 4)(t.ones(2, 3, 4), t.ones(2, 2, 4)),
    "model size": lambda t: t.nn.Transformer(4, 2, 1, 1, 4)(t.ones(2, 3, 4), t.ones(2, 3, 5)),
    "not initialised": lambda t: t.nn.LazyLinear(3).weight.shape,
    "lazy dimensions": lambda t: t.nn.LazyConv2d(3, 2)(t.ones(2, 2)),
    "lazy groups": lambda t: t.nn.LazyConv1d(4, 1, groups=2)(t.ones(1, 3, 4)),
    "cutoffs": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 3]),
    "targets": lambda t: t.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3])(t.ones(2, 4), t.tensor([1, 10])),
    "pooling": lambda t: t.nn.FractionalMaxPool2d(2),
    "ratio": lambda t: t.nn.FractionalMaxPool2d(2, output_ratio=1.5),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", WRONG)
def test_errors_of_layers_read_as_in_pytorch(name):
    texts = []
    for package in (backlight, torch):
        try:
            texts.append(repr(WRONG[name](package)))
        except Exception as error:
            texts.append(f"{type(error).__name__}: {error}")
    assert re.sub(r"\s+", " ", texts[0]) == re.sub(r"\s+", " ", texts[1])


def padded_encoder(package, nested):
    package.manual_seed(0)
    layer = package.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = package.nn.TransformerEncoder(layer, 2, package.nn.LayerNorm(8), enable_nested_tensor=nested).eval()
    x = package.randn(2, 4, 8)
    padding = package.tensor([[False, False, True, True], [False, False, False, True]])
    with package.no_grad():
        return encoder(x, src_key_padding_mask=padding)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("nested", (True, False))
def test_an_encoder_skips_padding_as_in_pytorch(nested):
    got, expected = padded_encoder(backlight, nested), padded_encoder(torch, nested)
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_lazy_modules_go_through_state_dicts_copies_and_optimizers(tmp_path):
    import copy
    import pickle

    lazy, plain = backlight.nn.LazyLinear(3), backlight.nn.Linear(2, 3)
    optimizer = backlight.optim.SGD(lazy.parameters(), 0.1)
    assert repr(copy.deepcopy(lazy)) == repr(pickle.loads(pickle.dumps(lazy))) == repr(torch.nn.LazyLinear(3))
    lazy.load_state_dict(plain.state_dict())
    assert lazy.weight.shape == (3, 2)
    lazy(backlight.ones(1, 2)).sum().backward()
    optimizer.step()
    assert type(lazy) is backlight.nn.Linear
    assert (lazy.weight != plain.weight).all()
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        backlight.nn.LazyLinear(3).weight + 1
    assert backlight.nn.LazyConv2d(3, 2).double().weight.dtype is backlight.float64


def test_sync_batch_norm_takes_the_place_of_batch_norm():
    models = [t.nn.Sequential(t.nn.Linear(2, 3), t.nn.BatchNorm1d(3)) for t in (backlight, torch)]
    texts = [repr(type(m[1]).__mro__[0].__name__) for m in models]
    assert texts[0] == texts[1]
    converted = backlight.nn.SyncBatchNorm.convert_sync_batchnorm(models[0])
    assert repr(converted) == repr(torch.nn.SyncBatchNorm.convert_sync_batchnorm(models[1]))
    assert converted[1].weight is models[0][1].weight
