"""Modules and layers against PyTorch: the same program runs under both, and what it prints is compared."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch

import backlight

BOTH = (torch, backlight)


def numpy_of(tensor):
    return tensor.detach().numpy()


def assert_close(ours, theirs, tolerance=1e-5):
    np.testing.assert_allclose(numpy_of(ours), numpy_of(theirs), rtol=tolerance, atol=tolerance)


def tensors_in(output):
    if isinstance(output, (tuple, list)):
        return [tensor for part in output for tensor in tensors_in(part)]
    return [output]


# -- layers -----------------------------------------------------------------------------------------------------

F32, INT = "float32", "int64"
LAYERS = [
    # constructor, shapes of the inputs (an upper bound after a shape makes it an integer input)
    ("Identity(3, a=4)", [(2, 3)]),
    ("Linear(3, 4)", [(2, 3)]),
    ("Linear(3, 4, bias=False)", [(2, 5, 3)]),
    ("Linear(3, 4, dtype=torch.float64)", [(3,)]),
    ("Bilinear(2, 3, 4)", [(5, 2), (5, 3)]),
    ("Conv1d(2, 3, 3)", [(2, 2, 7)]),
    ("Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2)", [(2, 4, 11)]),
    ("Conv1d(2, 3, 4, padding='same')", [(2, 2, 7)]),
    ("Conv1d(2, 3, 3, padding=2, padding_mode='circular')", [(2, 2, 7)]),
    ("Conv2d(2, 3, 3)", [(2, 2, 6, 5)]),
    ("Conv2d(2, 3, 3)", [(2, 6, 5)]),
    ("Conv2d(2, 4, (3, 2), (1, 2), (1, 0), bias=False)", [(2, 2, 6, 5)]),
    ("Conv2d(2, 4, 3, padding=1, padding_mode='reflect')", [(2, 2, 6, 5)]),
    ("Conv2d(2, 4, 3, padding='same', padding_mode='replicate')", [(2, 2, 6, 5)]),
    ("Conv2d(2, 4, 3, padding='valid', groups=2)", [(2, 2, 6, 5)]),
    ("Conv3d(2, 3, 2)", [(1, 2, 4, 4, 3)]),
    ("ConvTranspose1d(3, 2, 3, stride=2)", [(2, 3, 5)]),
    ("ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, groups=2)", [(2, 4, 4, 3)]),
    ("ConvTranspose2d(3, 2, 2, dilation=2, bias=False)", [(2, 3, 4, 3)]),
    ("MaxPool1d(2)", [(2, 3, 7)]),
    ("MaxPool2d(2)", [(2, 3, 6, 4)]),
    ("MaxPool2d((3, 2), stride=2, padding=1, ceil_mode=True)", [(2, 3, 6, 5)]),
    ("MaxPool2d(2, dilation=2, return_indices=True)", [(2, 3, 6, 5)]),
    ("AvgPool1d(2)", [(2, 3, 7)]),
    ("AvgPool2d(3, 2, 1)", [(2, 3, 6, 5)]),
    ("AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False)", [(2, 3, 6, 5)]),
    ("AvgPool2d(2, divisor_override=3)", [(2, 3, 6, 5)]),
    ("AdaptiveAvgPool1d(3)", [(2, 3, 7)]),
    ("AdaptiveAvgPool2d((3, 2))", [(2, 3, 7, 5)]),
    ("AdaptiveAvgPool2d((None, 2))", [(2, 3, 7, 5)]),
    ("AdaptiveMaxPool2d((3, 2))", [(2, 3, 7, 5)]),
    ("BatchNorm1d(3)", [(4, 3)]),
    ("BatchNorm1d(3)", [(4, 3, 5)]),
    ("BatchNorm2d(3)", [(4, 3, 2, 2)]),
    ("BatchNorm2d(3, momentum=None)", [(4, 3, 2, 2)]),
    ("BatchNorm2d(3, affine=False)", [(4, 3, 2, 2)]),
    ("BatchNorm2d(3, track_running_stats=False)", [(4, 3, 2, 2)]),
    ("BatchNorm3d(3, eps=0.1, momentum=0.3)", [(4, 3, 2, 2, 2)]),
    ("LayerNorm(4)", [(2, 3, 4)]),
    ("LayerNorm((3, 4), eps=0.1)", [(2, 3, 4)]),
    ("LayerNorm(4, elementwise_affine=False)", [(2, 4)]),
    ("LayerNorm(4, bias=False)", [(2, 4)]),
    ("GroupNorm(2, 4)", [(2, 4, 3)]),
    ("GroupNorm(1, 4, affine=False)", [(2, 4, 3, 2)]),
    ("RMSNorm(4)", [(2, 3, 4)]),
    ("RMSNorm((3, 4), eps=0.1, elementwise_affine=False)", [(2, 3, 4)]),
    ("InstanceNorm1d(3)", [(2, 3, 5)]),
    ("InstanceNorm1d(3)", [(3, 5)]),
    ("InstanceNorm2d(3, affine=True, track_running_stats=True)", [(2, 3, 4, 5)]),
    ("LocalResponseNorm(2)", [(2, 4, 3)]),
    ("Dropout(0.4)", [(5, 7)]),
    ("Dropout1d(0.4)", [(3, 5, 4)]),
    ("Dropout2d(0.4)", [(3, 5, 4, 2)]),
    ("Dropout3d(0.4)", [(3, 5, 4, 2, 2)]),
    ("AlphaDropout(0.4)", [(5, 7)]),
    ("Embedding(5, 3)", [((2, 4), 5)]),
    ("Embedding(5, 3, padding_idx=1)", [((2, 4), 5)]),
    ("Embedding(5, 3, max_norm=1.0)", [((2, 4), 5)]),
    ("Embedding(5, 3, scale_grad_by_freq=True)", [((2, 4), 5)]),
    ("Flatten()", [(2, 3, 4)]),
    ("Flatten(0, 1)", [(2, 3, 4)]),
    ("Unflatten(1, (2, 3))", [(2, 6)]),
    ("Upsample(scale_factor=2)", [(1, 2, 3, 4)]),
    ("Upsample(size=(5, 6), mode='bilinear', align_corners=True)", [(1, 2, 3, 4)]),
    ("UpsamplingNearest2d(scale_factor=2)", [(1, 2, 3, 4)]),
    ("UpsamplingBilinear2d(scale_factor=2)", [(1, 2, 3, 4)]),
    ("PixelShuffle(2)", [(1, 8, 3, 2)]),
    ("PixelUnshuffle(2)", [(1, 2, 4, 6)]),
    ("Unfold(2)", [(1, 2, 4, 3)]),
    ("Fold((4, 3), 2)", [(1, 8, 6)]),
    ("MaxPool3d(2)", [(1, 2, 4, 4, 5)]),
    ("AvgPool3d(2, padding=1)", [(1, 2, 4, 4, 5)]),
    ("AdaptiveAvgPool3d((2, None, 3))", [(1, 2, 4, 4, 5)]),
    ("AdaptiveMaxPool1d(3)", [(1, 2, 7)]),
    ("AdaptiveMaxPool3d(2)", [(1, 2, 4, 4, 5)]),
    ("ConvTranspose3d(2, 3, 2, stride=2)", [(1, 2, 3, 2, 2)]),
    ("InstanceNorm3d(2, affine=True)", [(1, 2, 3, 2, 2)]),
    ("ReflectionPad3d(1)", [(1, 2, 3, 2, 2)]),
    ("ReplicationPad3d((1, 2, 0, 1, 2, 0))", [(1, 2, 3, 2, 2)]),
    ("CircularPad1d(2)", [(1, 2, 4)]),
    ("CircularPad3d(1)", [(1, 2, 3, 2, 2)]),
    ("ZeroPad3d(1)", [(1, 2, 3, 2, 2)]),
    ("Conv3d(2, 4, 2, padding='same', groups=2)", [(1, 2, 3, 2, 2)]),
    ("GroupNorm(2, 4, bias=False)", [(2, 4, 3)]),
    ("BatchNorm1d(3, bias=False)", [(4, 3)]),
    ("GaussianNLLLoss()", [(5, 4), (5, 4), ((5, 4), 3, "positive")]),
    ("ZeroPad1d(1)", [(1, 2, 4)]),
    ("ZeroPad2d((1, 2, 3, 0))", [(1, 2, 4, 3)]),
    ("ConstantPad1d((1, 2), 3.5)", [(1, 2, 4)]),
    ("ConstantPad2d(1, 3.5)", [(1, 2, 4, 3)]),
    ("ConstantPad3d(1, 3.5)", [(1, 2, 4, 3, 2)]),
    ("ReflectionPad1d(2)", [(1, 2, 4)]),
    ("ReflectionPad2d(1)", [(1, 2, 4, 3)]),
    ("ReplicationPad1d(2)", [(1, 2, 4)]),
    ("ReplicationPad2d(2)", [(1, 2, 4, 3)]),
    ("CircularPad2d(1)", [(1, 2, 4, 3)]),
    ("CosineSimilarity()", [(3, 4), (3, 4)]),
    ("PairwiseDistance()", [(3, 4), (3, 4)]),
    ("ReLU()", [(3, 4)]),
    ("ReLU6()", [(3, 4)]),
    ("LeakyReLU(0.2)", [(3, 4)]),
    ("PReLU()", [(3, 4)]),
    ("PReLU(4, 0.1)", [(3, 4)]),
    ("ELU(0.5)", [(3, 4)]),
    ("SELU()", [(3, 4)]),
    ("CELU(0.5)", [(3, 4)]),
    ("GELU()", [(3, 4)]),
    ("GELU('tanh')", [(3, 4)]),
    ("SiLU()", [(3, 4)]),
    ("Mish()", [(3, 4)]),
    ("Sigmoid()", [(3, 4)]),
    ("Tanh()", [(3, 4)]),
    ("LogSigmoid()", [(3, 4)]),
    ("Softplus(2, 3)", [(3, 4)]),
    ("Softsign()", [(3, 4)]),
    ("Tanhshrink()", [(3, 4)]),
    ("Hardshrink(0.3)", [(3, 4)]),
    ("Softshrink(0.3)", [(3, 4)]),
    ("Hardtanh(-0.5, 0.3)", [(3, 4)]),
    ("Hardsigmoid()", [(3, 4)]),
    ("Hardswish()", [(3, 4)]),
    ("Threshold(0.1, 5)", [(3, 4)]),
    ("Softmax(1)", [(3, 4)]),
    ("LogSoftmax(-1)", [(3, 4)]),
    ("Softmin(0)", [(3, 4)]),
    ("Softmax2d()", [(2, 3, 4, 2)]),
    ("GLU()", [(3, 4)]),
    ("MSELoss()", [(3, 4), (3, 4)]),
    ("MSELoss(reduction='sum')", [(3, 4), (3, 4)]),
    ("MSELoss(reduction='none')", [(3, 4), (3, 4)]),
    ("L1Loss()", [(3, 4), (3, 4)]),
    ("SmoothL1Loss(beta=0.5)", [(3, 4), (3, 4)]),
    ("HuberLoss(delta=0.5)", [(3, 4), (3, 4)]),
    ("KLDivLoss(reduction='batchmean', log_target=True)", [(3, 4), (3, 4)]),
    ("CrossEntropyLoss()", [(5, 4), ((5,), 4)]),
    ("CrossEntropyLoss(label_smoothing=0.1, ignore_index=1)", [(5, 4), ((5,), 4)]),
    ("CrossEntropyLoss(torch.tensor([1.0, 2.0, 0.5, 3.0]))", [(5, 4, 2), ((5, 2), 4)]),
    ("NLLLoss(reduction='sum')", [(5, 4), ((5,), 4)]),
    ("BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 0.5, 3.0]))", [(5, 4), ((5, 4), 2, "float")]),
    ("PoissonNLLLoss()", [(5, 4), ((5, 4), 9, "float")]),
    ("HingeEmbeddingLoss()", [(5, 4), ((5, 4), 2, "sign")]),
    ("MarginRankingLoss(0.2)", [(5,), (5,), ((5,), 2, "sign")]),
    ("CosineEmbeddingLoss(0.1)", [(5, 4), (5, 4), ((5,), 2, "sign")]),
    ("SoftMarginLoss()", [(5, 4), ((5, 4), 2, "sign")]),
    ("MultiMarginLoss(p=2)", [(5, 4), ((5,), 4)]),
    ("TripletMarginLoss()", [(5, 4), (5, 4), (5, 4)]),
]


def make_inputs(specs, dtype):
    rng = np.random.default_rng(0)
    for spec in specs:
        if isinstance(spec[0], tuple):
            shape, bound, *kind = spec
            array = rng.integers(0, bound, shape)
            if kind == ["float"]:
                array = array.astype("float32")
            elif kind == ["positive"]:
                array = (array + 0.5).astype("float32")
            elif kind == ["sign"]:
                array = (2 * array - 1).astype("float32")
            yield array, False
        else:
            yield rng.standard_normal(spec).astype(dtype), True


def outputs_and_grads(lib, layer, inputs):
    tensors = []
    for array, differentiable in inputs:
        tensor = lib.tensor(array)
        tensors.append(tensor.requires_grad_() if differentiable else tensor)
    lib.manual_seed(3)
    outputs = [t for t in tensors_in(layer(*tensors)) if t.is_floating_point()]
    outputs[0].square().sum().backward()
    return outputs, [t.grad for t in (*tensors, *layer.parameters()) if t.requires_grad]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("text", "specs"), LAYERS, ids=[f"{i}-{text}" for i, (text, _specs) in enumerate(LAYERS)])
def test_layer(text, specs):
    layers = []
    for lib in BOTH:
        lib.manual_seed(1)
        layers.append(eval(f"nn.{text}", {"nn": lib.nn, "torch": lib}))
    theirs, ours = layers
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, tensor in theirs.state_dict().items():
        assert str(ours.state_dict()[name].dtype).split(".")[-1] == str(tensor.dtype).split(".")[-1]
        assert_close(ours.state_dict()[name], tensor, 1e-6)
    inputs = list(make_inputs(specs, "float64" if "float64" in text else "float32"))
    for training in (True, False):
        for layer in layers:
            layer.train(training)
            layer.zero_grad()
        (their_outputs, their_grads), (our_outputs, our_grads) = (
            outputs_and_grads(lib, layer, inputs) for lib, layer in zip(BOTH, layers, strict=True)
        )
        for mine, yours in zip(our_outputs, their_outputs, strict=True):
            assert mine.shape == yours.shape
            assert_close(mine, yours)
        for mine, yours in zip(our_grads, their_grads, strict=True):
            assert (mine is None) == (yours is None)
            if mine is not None:
                assert_close(mine, yours, 1e-4)
        for name, tensor in theirs.state_dict().items():
            assert_close(ours.state_dict()[name], tensor)


# -- the same text from both ------------------------------------------------------------------------------------


def attempt(out, action):
    try:
        out(action())
    except Exception as error:
        out(f"{type(error).__name__}: {error}")


def in_pytorch_paths(line):
    """Class names print with their module, which is the one thing that differs."""
    line = line.replace("backlight.nn.containers.", "torch.nn.modules.container.")
    return line.replace("backlight.nn.", "torch.nn.modules.")


def same_text(program):
    texts = []
    for lib in BOTH:
        lines = []
        lib.manual_seed(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            program(lib, lambda *values, lines=lines: lines.append(" ".join(map(str, values))))
        lines += [f"{w.category.__name__}: {w.message}" for w in caught]
        texts.append([in_pytorch_paths(line) for line in lines])
    assert texts[1] == texts[0]


def test_printing():
    def program(torch, out):
        nn = torch.nn
        out(nn.Module(), nn.Sequential(), nn.ModuleList(), nn.ModuleDict(), nn.ParameterList(), nn.ParameterDict())
        block = nn.Sequential(nn.Linear(2, 3), nn.ReLU(True), nn.Sequential(nn.Tanh(), nn.Sequential()))
        out(block)
        out(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), block, block, nn.Linear(2, 2)]))
        out(nn.ModuleDict({"b": nn.ReLU(), "a": nn.ModuleList([block, block])}))
        out(nn.ParameterList([torch.zeros(2, 3), 3, "a"]), nn.ParameterList([torch.zeros(())]))
        out(nn.ParameterDict({"b": torch.zeros(2, 3), "a": 3}), nn.ParameterDict({"a": torch.zeros(1)}))

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = block
                self.missing = None
                self.register_module("none", None)

            def extra_repr(self):
                return "a=1\nb=2"

        out(Net())
        out([name for name in dir(nn.Sequential(nn.ReLU())) if name[0].isdigit()])

    same_text(program)


def test_printed_layers():
    texts = """Linear(0, 3); Conv2d(4, 4, (3, 5), (1, 2), 1, 2, 2, False, 'reflect'); Conv2d(4, 4, (1, 2, 3))
        Conv2d(4, 4, 3, padding='same', padding_mode='circular'); Conv1d(4, 4, 3, padding='valid')
        ConvTranspose1d(4, 3, 3); ConvTranspose2d(4, 3, 3, 2, 1, 1, 1, False, 2); MaxPool2d((2, 3), padding=1)
        AvgPool1d((2,), 3); AvgPool2d(2); AdaptiveAvgPool2d((None, 3))
        BatchNorm2d(3, momentum=None, affine=False, track_running_stats=False); BatchNorm2d(3, bias=False)
        LayerNorm((2, 3), elementwise_affine=False); GroupNorm(2, 4); RMSNorm(3); InstanceNorm2d(3)
        Dropout(0.2, True); Embedding(3, 4)
        Embedding(3, 4, padding_idx=-1, max_norm=1., norm_type=3, scale_grad_by_freq=True, sparse=True)
        Embedding.from_pretrained(torch.zeros(2, 3)); Embedding.from_pretrained(torch.zeros(2, 3)).weight
        Unflatten(1, [2, 3]); Upsample(scale_factor=2); Upsample(size=(2, 3), mode='bilinear')
        Upsample(scale_factor=(2, 3)); ZeroPad2d(2); ConstantPad2d(2, 3.5); ReflectionPad2d((1, 2))
        Hardtanh(-2, 2, True); Hardtanh(min_value=-3, max_value=2); Softmax(); Hardsigmoid(True); Hardswish(True)
        Threshold(1, 2, True); MSELoss(size_average=False); MSELoss(reduce=False)
        list(nn.CrossEntropyLoss(weight=torch.ones(2)).state_dict()); ELU(2, True)
        CELU(2., True); SELU(True); Mish(True); ReLU6(True); LocalResponseNorm(2); Fold(2, 3); Unfold(3)
        GELU('tanh'); GLU(); PReLU(3); Softplus(2, 3); LeakyReLU(.2, True)"""

    def program(torch, out):
        for text in texts.replace("\n", ";").split(";"):
            text = text.strip()
            out(eval(text if text.startswith("list") else f"nn.{text}", {"nn": torch.nn, "torch": torch}))

    same_text(program)


def test_layer_errors():
    texts = """Conv2d(3, 4, 3, groups=2)| Conv2d(4, 3, 3, groups=2)| Conv2d(4, 3, 3, groups=0)
        Conv2d(4, 3, 3, padding='same', stride=2)| ConvTranspose2d(4, 3, 3, padding_mode='reflect')| Bilinear(0, 3, 4)
        GroupNorm(2, 5)| Dropout(2)| Dropout(-.1)| Embedding(3, 4, padding_idx=3)| Embedding(3, 4, padding_idx=-4)
        Embedding(3, 4, _weight=torch.zeros(2, 2))| Embedding.from_pretrained(torch.zeros(2))
        Unflatten(1, 5)| Unflatten(1, (2, 'a'))| Hardtanh(2, 1)| TripletMarginLoss(margin=-1)| MultiMarginLoss(p=3)
        MultiMarginLoss(weight=torch.ones(2, 2))| Softmax2d()(torch.zeros(2, 3))| BatchNorm1d(3)(torch.zeros(3))
        BatchNorm2d(3)(torch.zeros(3, 3))| BatchNorm3d(3)(torch.zeros(3, 3))| BatchNorm1d(3)(torch.zeros(1, 3))
        InstanceNorm2d(3)(torch.zeros(2, 3))| InstanceNorm1d(3, affine=True)(torch.zeros(2, 4, 5))
        ConvTranspose2d(1, 2, 3)(torch.zeros(1, 1, 3, 3), output_size=(9, 9))
        ConvTranspose2d(1, 2, 3)(torch.zeros(1, 1, 3, 3), output_size=(9,))
        ConvTranspose2d(1, 2, 3, 2)(torch.zeros(1, 1, 3, 3), output_size=(8, 8)).shape"""

    def program(torch, out):
        for text in texts.replace("\n", "|").split("|"):
            attempt(out, lambda text=text: eval(f"nn.{text.strip()}", {"nn": torch.nn, "torch": torch}))

    same_text(program)


def test_options_that_list_a_set_in_their_error():
    # PyTorch prints a set, whose order changes from run to run.
    for text in ("nn.Conv2d(4, 3, 3, padding='foo')", "nn.Conv2d(4, 3, 3, padding_mode='foo')"):
        messages = []
        for lib in BOTH:
            with pytest.raises(ValueError) as error:
                eval(text, {"nn": lib.nn})
            messages.append(sorted(str(error.value)))
        assert messages[0] == messages[1]


# -- Module -----------------------------------------------------------------------------------------------------


def test_registration_errors():
    def program(torch, out):
        nn = torch.nn

        class EarlyParameter(nn.Module):
            def __init__(self):
                self.w = nn.Parameter(torch.zeros(1))

        class EarlyModule(nn.Module):
            def __init__(self):
                self.w = nn.ReLU()

        class EarlyBuffer(nn.Module):
            def __init__(self):
                self.register_buffer("x", torch.zeros(1))

        class EarlyRegistration(nn.Module):
            def __init__(self):
                self.register_parameter("x", None)

        for early in (EarlyParameter, EarlyModule, EarlyBuffer, EarlyRegistration):
            attempt(out, early)
        m = nn.Linear(2, 3)
        m.register_buffer("buf", torch.zeros(1))
        m.add_module("child", nn.ReLU())
        for action in (
            lambda: m.missing,
            lambda: setattr(m, "weight", 3),
            lambda: setattr(m, "weight", torch.zeros(2)),
            lambda: m.register_parameter(3, None),
            lambda: m.register_parameter("a.b", None),
            lambda: m.register_parameter("", None),
            lambda: m.register_parameter("forward", None),
            lambda: m.register_parameter("q", torch.zeros(1)),
            lambda: m.register_buffer(3, None),
            lambda: m.register_buffer("a.b", None),
            lambda: m.register_buffer("", None),
            lambda: m.register_buffer("weight", None),
            lambda: m.register_buffer("q", 3),
            lambda: setattr(m, "buf", 3),
            lambda: setattr(m, "buf", None),
            lambda: m.register_module("a.b", nn.ReLU()),
            lambda: m.add_module("", nn.ReLU()),
            lambda: m.add_module("weight", nn.ReLU()),
            lambda: m.add_module("x", 3),
            lambda: m.add_module(3, None),
            lambda: setattr(m, "child", 3),
            lambda: m.get_parameter("w"),
            lambda: m.get_parameter("child.w"),
            lambda: m.get_parameter("buf"),
            lambda: m.get_submodule("child.z"),
            lambda: m.get_submodule("weight"),
            lambda: m.get_buffer("weight"),
            lambda: m.get_buffer("zz"),
            lambda: m.get_submodule("") is m,
            lambda: m.set_submodule("a.b", nn.ReLU()),
            lambda: m.set_submodule("", nn.ReLU()),
            lambda: m.set_submodule("child", 3),
            lambda: m.set_submodule("new", nn.ReLU(), strict=True),
            lambda: m.to(torch.int64),
            lambda: m.train(1),
            lambda: nn.Module()(1),
            lambda: nn.Module(3),
            lambda: nn.Module(a=3),
            lambda: delattr(m, "zz"),
            lambda: m.set_submodule("child", nn.Tanh()),
            lambda: m,
        ):
            attempt(out, action)

    same_text(program)


def test_members():
    def program(torch, out):
        nn = torch.nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.plain = 3
                self.l = nn.Linear(1, 1)
                self.same = self.l
                self.p = self.l.weight
                self.register_buffer("kept", torch.ones(1))
                self.register_buffer("dropped", torch.ones(1), persistent=False)
                self.register_buffer("none", None)
                self.no_child = None
                self.bn = nn.BatchNorm1d(2)

        m = Net()
        out([name for name, _ in m.named_parameters()], [name for name, _ in m.named_parameters("x", recurse=False)])
        out([name for name, _ in m.named_parameters(remove_duplicate=False)])
        out([name for name, _ in m.named_modules()], [name for name, _ in m.named_modules(remove_duplicate=False)])
        out([name for name, _ in m.named_children()], [name for name, _ in m.named_buffers()])
        out(list(m.state_dict()), list(m.state_dict(prefix="q.")), m.state_dict()._metadata)
        out(m._buffers, list(m._parameters), list(m._modules), m._non_persistent_buffers_set, len(list(m.children())))
        out(m.state_dict()["l.weight"].requires_grad, m.state_dict(keep_vars=True)["l.weight"] is m.l.weight)
        m.plain = nn.Linear(1, 1)
        out(list(m._modules), "plain" in dir(m))
        m.l = None
        out(m, list(m.state_dict()))
        del m.p, m.kept, m.same
        out(list(m.state_dict()))
        m.p = torch.ones(1)
        out("p" in m.__dict__, list(m._parameters))
        m.buf = nn.Buffer(torch.ones(1), persistent=False)
        m.buf = torch.zeros(2)
        out(m.buf, list(m.state_dict()), isinstance(nn.Buffer(torch.ones(1)), nn.Buffer), isinstance(m.bn, nn.Buffer))
        m._parameters["direct"] = nn.Parameter(torch.ones(1))
        m._modules["bn"] = nn.ReLU()
        out(m.direct, m.bn, m)
        out(m.apply(lambda module: out(type(module).__name__)) is m)

    same_text(program)


def test_conversion():
    def program(torch, out):
        nn = torch.nn
        m = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
        weight = m[0].weight
        m(torch.ones(2, 1)).sum().backward()
        for convert in (
            lambda: m.double(),
            lambda: m.half(),
            lambda: m.bfloat16(),
            lambda: m.float(),
            lambda: m.to("cpu", torch.float64),
            lambda: m.to(torch.ones(1)),
            lambda: m.to(dtype=torch.float64),
            lambda: m.to("cpu"),
            lambda: m.to(torch.float32, non_blocking=True),
            lambda: m.cpu(),
            lambda: m.type(torch.float64),
        ):
            out(convert() is m, m[0].weight is weight, weight.dtype, weight.grad.dtype, m[1].running_mean.dtype)
        out(m[1].num_batches_tracked.dtype, weight.requires_grad, weight.is_leaf)
        m.requires_grad_(False)
        out([p.requires_grad for p in m.parameters()])
        m.requires_grad_()
        m.zero_grad(set_to_none=False)
        out(m[0].weight.grad)
        m.zero_grad()
        out(m[0].weight.grad, m.training, m.eval()[1].training, m.train()[1].training)

    same_text(program)


def test_state_dict():
    def program(torch, out):
        nn = torch.nn
        m = nn.Linear(2, 3)
        full = m.state_dict()
        out(full, type(full).__name__)
        for action in (
            lambda: m.load_state_dict(3),
            lambda: m.load_state_dict({}),
            lambda: m.load_state_dict({"weight": torch.zeros(1), "x": torch.zeros(1)}),
            lambda: m.load_state_dict({"weight": torch.zeros(1), "x": torch.zeros(1)}, strict=False),
            lambda: m.load_state_dict({"weight": 3, "bias": torch.zeros(3)}),
            lambda: m.load_state_dict({"x": torch.zeros(1)}, strict=False),
            lambda: m.load_state_dict(nn.Linear(2, 3).state_dict()),
            lambda: m.load_state_dict({k: v + 1 for k, v in full.items()}, assign=True),
            lambda: m.weight,
            lambda: m.load_state_dict({"_extra_state": 1, **full}),
            lambda: nn.Sequential(nn.Linear(1, 1)).load_state_dict(
                {"0.weight": torch.ones(1, 1), "0.bias.x": 1, "zz.a": 1, "0": 2, "0.bias": torch.ones(1), "0.q": 3}
            ),
            lambda: nn.BatchNorm1d(2).load_state_dict(
                {name: torch.ones(2) for name in ("weight", "bias", "running_mean", "running_var")}
            ),
        ):
            attempt(out, action)

        class Extra(nn.Module):
            def get_extra_state(self):
                return 5

            def set_extra_state(self, state):
                out("set", state)

        attempt(out, lambda: Extra().load_state_dict({}))
        attempt(out, lambda: Extra().load_state_dict(Extra().state_dict()))
        m = nn.Sequential(nn.Linear(1, 1))
        m[0].register_state_dict_pre_hook(lambda *args: out("pre", args[1:]))
        m[0].register_load_state_dict_pre_hook(lambda *args: out("load", len(args), args[2:4], sorted(args[1])))
        m.register_load_state_dict_post_hook(lambda _module, keys: keys.missing_keys.clear())
        out(list(m.state_dict()), m.load_state_dict({}))
        m.register_state_dict_post_hook(lambda *_args: 3)
        attempt(out, m.state_dict)
        m = nn.Linear(1, 1)
        m._register_state_dict_hook(lambda *_args: {"x": 1})
        out(m.state_dict())
        m.register_load_state_dict_post_hook(lambda *_args: 3)
        attempt(out, lambda: m.load_state_dict({}, strict=False))

    same_text(program)


def test_copies():
    def program(torch, out):
        m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.ReLU())
        for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
            out(twin, twin[0].weight, twin[0].weight is m[0].weight, list(twin.state_dict()))
            out(
                twin(torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.3]])),
                twin[1].num_batches_tracked,
                m[1].num_batches_tracked,
            )
        shallow = copy.copy(m[0])
        out(shallow.weight is m[0].weight)
        m.share_memory()

    same_text(program)


def test_compile_returns_the_module():
    m = backlight.nn.Linear(1, 1)
    assert m.compile(fullgraph=True) is m


# -- hooks ------------------------------------------------------------------------------------------------------


def test_forward_hooks():
    def program(torch, out):
        class Twice(torch.nn.Module):
            def forward(self, x, y=None):  # noqa: ARG002
                return x * 2

        class Broken(torch.nn.Module):
            def forward(self, _x):
                raise ValueError("boo")

        x = torch.ones(1, 2)
        m = Twice()
        handle = m.register_forward_pre_hook(lambda _m, args: out("pre", args))
        m.register_forward_pre_hook(lambda _m, args: out("first", args), prepend=True)
        m.register_forward_pre_hook(lambda _m, args: args[0] + 1)
        m.register_forward_pre_hook(lambda _m, args, kw: (args, {**kw, "y": 7}), with_kwargs=True)
        m.register_forward_hook(lambda _m, args, output: out("post", args, output))
        m.register_forward_hook(lambda _m, args, kw, output: out("kw", args, kw, output), with_kwargs=True)
        m.register_forward_hook(lambda _m, _args, output: out("before post", output), prepend=True)
        m.register_forward_hook(lambda _m, _args, output: output + 100)
        out(m(x, y=3))
        handle.remove()
        out(m(x))
        m = Twice()
        m.register_forward_pre_hook(lambda *_args: 3, with_kwargs=True)
        attempt(out, lambda: m(x))
        m = Broken()
        m.register_forward_hook(lambda _m, _a, output: out("always", output), always_call=True)
        m.register_forward_hook(lambda _m, _a, output: out("never", output))
        m.register_forward_hook(lambda *_args: 1 / 0, always_call=True)
        attempt(out, lambda: m(x))
        m = Twice()
        with m.register_forward_hook(lambda *_args: 7):
            out(m(x))
        out(m(x), len(m._forward_hooks))

    same_text(program)


def test_hooks_on_all_modules():
    def program(torch, out):
        module = torch.nn.modules.module
        m = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
        m[0].register_forward_hook(lambda *_args: out("own"))
        handles = [
            module.register_module_forward_pre_hook(lambda m, _args: out("pre", type(m).__name__)),
            module.register_module_forward_hook(lambda m, _args, _output: out("post", type(m).__name__)),
            module.register_module_full_backward_hook(lambda m, _i, _o: out("backward", type(m).__name__)),
            module.register_module_full_backward_pre_hook(lambda m, _o: out("backward pre", type(m).__name__)),
            module.register_module_parameter_registration_hook(lambda _m, name, _p: out("parameter", name)),
            module.register_module_module_registration_hook(lambda _m, name, _c: out("child", name)),
            module.register_module_buffer_registration_hook(lambda _m, name, _b: out("buffer", name)),
        ]
        m(torch.ones(2, 1, requires_grad=True)).sum().backward()
        torch.nn.Sequential(torch.nn.BatchNorm1d(2))
        for handle in handles:
            handle.remove()
        m(torch.ones(2, 1)).sum().backward()

    same_text(program)
    m = backlight.nn.ReLU()
    m(backlight.ones(1))
    assert not m._hooked  # the call that found no hooks left made calls fast again
    assert not backlight.nn.Module._hooked


@pytest.mark.parametrize("input_needs_grad", [True, False])
def test_order_of_backward_hooks(input_needs_grad):
    def program(torch, out):
        m = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
        for name, module in m.named_modules():
            name = name or "root"
            module.register_full_backward_pre_hook(lambda _m, _g, name=name: out("+" + name))
            module.register_full_backward_hook(lambda _m, _i, _o, name=name: out("-" + name))
        m(torch.ones(4, 2, requires_grad=input_needs_grad)).sum().backward()

    same_text(program)


def test_backward_hooks():
    def program(torch, out):
        nn = torch.nn
        plain = torch.ones(1, 2)
        x = torch.ones(1, 2, requires_grad=True)

        class Many(nn.Module):
            def forward(self, x, y=None):  # noqa: ARG002
                return x.detach().requires_grad_() * 2, 3, x * 2

        def linear(hook=None, pre_hook=None):
            m = nn.Linear(2, 2)
            if hook:
                m.register_full_backward_hook(hook)
            if pre_hook:
                m.register_full_backward_pre_hook(pre_hook)
            return m

        m = linear(lambda _m, grad_input, grad_output: out("grads", grad_input, grad_output))
        m(x).sum().backward()
        m(plain).sum().backward()
        out(m(x).grad_fn.name())
        for m, inputs in (
            (linear(lambda *_a: (1, 2)), x),
            (linear(lambda _m, i, _o: (i[0],)), plain),
            (linear(None, lambda *_a: (1, 2)), x),
            (linear(lambda *_a: (None,)), x),
        ):
            attempt(out, lambda m=m, inputs=inputs: m(inputs).sum().backward())
        x.grad = None
        linear(lambda _m, i, _o: (i[0] * 0 + 5,), lambda _m, o: (o[0] * 3,))(x).sum().backward()
        out(x.grad)
        m = Many()
        m.register_full_backward_hook(lambda _m, i, o: out("many", i, o))
        m.register_full_backward_pre_hook(lambda _m, o: out("many pre", o))
        m(x, plain)[2].sum().backward()
        m(x, 3)[2].sum().backward()
        m(y=3, x=x)[2].sum().backward()
        with torch.no_grad():
            out(m(x))
        m = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
        for module in m.modules():
            module.register_full_backward_hook(lambda *_args: None)
        attempt(out, lambda: m(x))

        class Dict(nn.Module):
            def forward(self, x):
                return {"a": x * 2}

        m = Dict()
        m.register_full_backward_hook(lambda *_args: out("never"))
        m(x)["a"].sum().backward()

    same_text(program)


def older_hooks(package, make):
    """What `register_backward_hook` sees of a module, and the warnings."""
    calls, module = [], make(package)

    def hook(module, grad_input, grad_output):
        calls.append(
            (type(module).__name__, *([g if g is None else g.tolist() for g in gs] for gs in (grad_input, grad_output)))
        )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        handle = module.register_backward_hook(hook)
        for _ in range(2):
            result = module(package.ones(4, 2, requires_grad=True))
            result = (
                list(result.values())[0] if isinstance(result, dict) else result[0] if isinstance(result, tuple) else result
            )
            result.sum().backward()
            handle.remove()
    return calls, [str(w.message) for w in caught], [w.category for w in caught]


def returning(package, function):
    return type("Own", (package.nn.Module,), {"forward": lambda _self, x: function(x)})()


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.nn.ReLU(),
        lambda t: t.nn.Sequential(t.nn.ReLU(), t.nn.Sigmoid()),
        lambda t: returning(t, lambda x: (x * 2, x * 3)),
        lambda t: returning(t, lambda x: {"a": x * 2}),
        lambda t: returning(t, lambda x: x.unbind(0)),
    ],
)
def test_older_backward_hooks(make):
    assert older_hooks(backlight, make) == older_hooks(torch, make)


def test_older_and_full_backward_hooks_exclude_each_other():
    for package in (backlight, torch):
        first, second = package.nn.ReLU(), package.nn.ReLU()
        first.register_backward_hook(print)
        second.register_full_backward_hook(print)
        for register in (first.register_full_backward_hook, second.register_backward_hook):
            with pytest.raises(
                RuntimeError, match="Cannot use both regular backward hooks and full backward hooks on a single Module"
            ):
                register(print)


def test_handles():
    from collections import OrderedDict

    from backlight.autograd.hooks import RemovableHandle

    table, facts = OrderedDict(), OrderedDict()
    handle = RemovableHandle(table, extra_dict=facts)
    table[handle.id], facts[handle.id] = "hook", True
    handle.remove()
    handle.remove()
    assert not table and not facts
    with RemovableHandle(table) as handle:
        table[handle.id] = "hook"
    assert not table
    both = table, RemovableHandle(table)
    both[0][both[1].id] = "hook"
    table2, handle2 = pickle.loads(pickle.dumps(both))
    handle2.remove()
    assert len(table) == 1 and not table2
    del table
    both[1].remove()


# -- containers -------------------------------------------------------------------------------------------------


def test_sequential():
    def program(torch, out):
        nn = torch.nn
        from collections import OrderedDict

        s = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh(), c=nn.Sigmoid()))
        out(s[1:], s[-1], s.a, len(s), list(s))
        s[1] = nn.GELU()
        double = s + s
        out(s, double, s * 2, 2 * s)
        del s[0]
        out(s)
        s *= 2
        s += double
        out(s, s.insert(-1, nn.ELU()), s.append(nn.Softsign()), s.extend([nn.Mish()]), s.pop(0))
        del s[2:]
        out(s, s(torch.tensor([0.5, -0.5])))
        for action in (
            lambda: nn.Sequential(3),
            lambda: s[30],
            lambda: s["a"],
            lambda: s.insert(50, nn.ReLU()),
            lambda: s + 3,
            lambda: s * 0,
            lambda: s * 1.5,
            lambda: s.append(3),
            lambda: s.extend(3),
            lambda: s.__iadd__(3),
            lambda: s.__setitem__(20, nn.ReLU()),
            lambda: s.__delitem__(20),
            lambda: s.insert(0, 3),
        ):
            attempt(out, action)

    same_text(program)


def test_module_list_and_dict():
    def program(torch, out):
        nn = torch.nn
        m = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.ELU()])
        del m[0]
        out(m, m[-1], m[:1], [name for name in dir(m) if name[0].isdigit()])
        m[0] = nn.SELU()
        m += [nn.ReLU()]
        m.insert(1, nn.Mish())
        out(m, m.pop(0), len(m), m + [nn.Tanh()], m.append(nn.Tanh()), m.extend([nn.ELU()]), nn.ReLU() in list(m))
        d = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
        d["c"] = nn.ELU()
        d.update({"b": nn.Mish()})
        d.update([["d", nn.ELU()]])
        d.update(nn.ModuleDict({"e": nn.ReLU()}))
        out(d, list(d.items()), list(d.keys()), list(d.values()), list(d), "a" in d, len(d), d.pop("a"), d["b"])
        del d["b"]
        out(d)
        d.clear()
        out(d)
        for action in (
            lambda: nn.ModuleList(3),
            lambda: m[30],
            lambda: m.extend(3),
            lambda: m(2),
            lambda: m.append(3),
            lambda: m + [3],
            lambda: m["0"],
            lambda: m.__setitem__(9, nn.ReLU()),
            lambda: nn.ModuleDict([3]),
            lambda: nn.ModuleDict([[3]]),
            lambda: nn.ModuleDict([[3, nn.ReLU()]]),
            lambda: nn.ModuleDict(3),
            lambda: nn.ModuleDict({"keys": nn.ReLU()}),
            lambda: nn.ModuleDict({"a.b": nn.ReLU()}),
            lambda: nn.ModuleDict({"a": 3}),
            lambda: d["b"],
            lambda: d(1),
            lambda: nn.ModuleDict([["a", nn.ReLU(), 2]]),
        ):
            attempt(out, action)

    same_text(program)


def test_parameter_list_and_dict():
    def program(torch, out):
        nn = torch.nn
        p = nn.ParameterList([torch.zeros(2), 3, "a", nn.Parameter(torch.zeros(2, 3))])
        out(p, p[1:], p[0], p[-1], len(p), list(p.state_dict()), [type(v).__name__ for v in p])
        p[0] = torch.ones(1)
        p += [torch.zeros(3)]
        out(p, p.append(4), p.extend([5]))
        d = nn.ParameterDict({"b": torch.zeros(1), "a": torch.zeros(2)})
        d.update([("z", torch.ones(1)), ("y", 2)])
        out(list(d), list(d.keys()), list(d.items()), list(d.values()), d.get("q"), d.setdefault("n", 3), d.pop("n"))
        out(d.copy()["a"] is d["a"], list(reversed(d)), d.fromkeys(["q"], torch.ones(1)), "a" in d, len(d), d.popitem())
        out(d | {"w": torch.ones(2)}, list({"w": torch.ones(1), "a": 1} | d), d["a"], d)
        d |= {"k": torch.ones(1)}
        del d["a"]
        out(d)
        d.clear()
        out(d)
        for action in (
            lambda: nn.ParameterList(3),
            lambda: p[30],
            lambda: p(3),
            lambda: p.extend(3),
            lambda: p.extend(torch.zeros(2)),
            lambda: p.__setitem__(0, 3),
            lambda: nn.ParameterDict(3),
            lambda: nn.ParameterDict([["a", torch.zeros(2), 3]]),
            lambda: d(1),
            lambda: nn.ParameterDict({3: torch.zeros(2)}),
            lambda: d["b"],
        ):
            attempt(out, action)

    same_text(program)


# -- init and utils ---------------------------------------------------------------------------------------------


INITS = [
    ("uniform_(x, -1, 2)", (3, 4)),
    ("normal_(x, 1, 2)", (3, 4)),
    ("normal_(x, 1, 2)", (30, 4)),
    ("constant_(x, 3)", (3, 4)),
    ("ones_(x)", (3,)),
    ("zeros_(x)", (3,)),
    ("eye_(x)", (3, 4)),
    ("dirac_(x)", (4, 2, 3)),
    ("dirac_(x, 2)", (4, 2, 3, 3)),
    ("xavier_uniform_(x, 2)", (3, 4)),
    ("xavier_normal_(x)", (3, 4, 2)),
    ("kaiming_uniform_(x, nonlinearity='relu')", (3, 4)),
    ("kaiming_normal_(x, 0.1, 'fan_out')", (3, 4, 2, 2)),
    ("kaiming_normal_(x)", (0, 4)),
    ("orthogonal_(x)", (3, 5)),
    ("orthogonal_(x, 2)", (5, 3)),
    ("orthogonal_(x)", (3, 2, 2)),
    ("sparse_(x, 0.4)", (5, 3)),
    ("trunc_normal_(x)", (3,)),
    ("trunc_normal_(x, std=0.02)", (40,)),
    ("trunc_normal_(x, 0, 1, -1, 0.5)", (100,)),
    ("trunc_normal_(x, 0, 1, -0.1, 0.1)", (100,)),
    ("trunc_normal_(x, 0, 1, 1, 3)", (100,)),
    ("trunc_normal_(x, 5, 1)", (20,)),
]


@pytest.mark.parametrize(("text", "shape"), INITS, ids=[f"{i}-{text}" for i, (text, _shape) in enumerate(INITS)])
@pytest.mark.filterwarnings("ignore:mean is more than 2 std", "ignore:Initializing zero-element")
def test_init(text, shape):
    results = []
    for lib in BOTH:
        lib.manual_seed(5)
        parameter = lib.nn.Parameter(lib.full(shape, 9.0))
        result = eval(f"init.{text}", {"init": lib.nn.init, "x": parameter})
        assert result is parameter
        results += [parameter, lib.rand(1)]
    assert_close(results[2], results[0], 1e-6)
    assert results[3].item() == results[1].item()  # both drew as many random numbers


def test_init_takes_a_generator():
    for text in ("uniform_(x, 0, 1, generator=g)", "kaiming_normal_(x, generator=g)", "trunc_normal_(x, generator=g)"):
        results = []
        for lib in BOTH:
            generator = lib.Generator().manual_seed(11)
            names = {"init": lib.nn.init, "x": lib.empty(3, 4), "g": generator}
            results.append(eval(f"init.{text}", names))
        assert_close(results[1], results[0], 1e-6)


def test_init_errors():
    texts = """eye_(torch.empty(3)); dirac_(torch.empty(3, 2)); dirac_(torch.empty(3, 2, 3), 2)
        sparse_(torch.empty(3), .1); sparse_(torch.empty(3, 2, 2), .1); orthogonal_(torch.empty(3))
        xavier_uniform_(torch.empty(3)); kaiming_uniform_(torch.empty(3, 2), mode='x'); calculate_gain('foo')
        calculate_gain('leaky_relu', 'a'); calculate_gain('leaky_relu', True); calculate_gain('leaky_relu', 0.2)
        calculate_gain('leaky_relu'); calculate_gain('tanh'); calculate_gain('selu'); calculate_gain('conv_transpose3d')
        calculate_gain('relu'); uniform(torch.empty(2)); constant(torch.empty(2), 3); trunc_normal_(torch.empty(3), 5)
        kaiming_uniform_(torch.empty(0, 2)); orthogonal_(torch.empty(0, 3))"""

    def program(torch, out):
        for text in texts.replace("\n", ";").split(";"):
            attempt(out, lambda text=text: eval(f"init.{text.strip()}", {"init": torch.nn.init, "torch": torch}))

    same_text(program)


def test_utils():
    def program(torch, out):
        utils = torch.nn.utils
        x, y = torch.nn.Parameter(torch.tensor([3.0, 4.0])), torch.nn.Parameter(torch.tensor([1.0]))

        def give_grads():
            x.grad, y.grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])

        for norm in (2, 1, float("inf"), -float("inf"), 0, 3, "inf", 2.5, -2):
            give_grads()
            out(norm, utils.clip_grad_norm_([x, y], 1.0, norm), x.grad, y.grad)
        give_grads()
        x.grad[0] = float("nan")
        attempt(out, lambda: utils.clip_grad_norm_([x, y], 1.0, error_if_nonfinite=True))
        x.grad[0] = float("inf")
        out(utils.clip_grad_norm_(x, 1.0), x.grad)
        give_grads()
        utils.clip_grad_value_([x, y], 3.5)
        out(x.grad, y.grad)
        x.grad = y.grad = None
        out(utils.clip_grad_norm_([x, y], 1.0), utils.clip_grad_norm_(iter([]), 1.0))
        give_grads()
        out(utils.get_total_norm([x.grad, y.grad]), utils.get_total_norm(x.grad), utils.get_total_norm([]))
        out(utils.clip_grads_with_norm_((p for p in (x, y)), 1.0, torch.tensor(26.0)), x.grad)
        out(utils.clip_grad_norm([x, y], 100.0, foreach=True), x.grad)
        attempt(out, lambda: utils.clip_grad_norm_([x, y], "a"))
        for dtypes in (["float16"], ["float16"] * 2, ["float64", "float32"], ["complex64"] * 2):
            total = utils.get_total_norm([torch.ones(3, dtype=getattr(torch, dtype)) for dtype in dtypes])
            out(dtypes, total, total.dtype)
        vector = utils.parameters_to_vector([x, y])
        out(vector.requires_grad, vector.detach(), type(vector.grad_fn).__name__)
        vector = torch.tensor([1.0, 2.0, 3.0])
        utils.vector_to_parameters(vector, [x, y])
        vector[0] = 9
        out(x, y, x.grad)
        attempt(out, lambda: utils.vector_to_parameters(3, [x]))

    same_text(program)


# -- paths and speed --------------------------------------------------------------------------------------------


def test_module_paths():
    import backlight.nn.modules.loss
    import backlight.nn.modules.module

    import backlight.nn.modules
    import backlight.nn.parameter

    nn = backlight.nn
    assert nn.modules.loss.MSELoss is nn.MSELoss is nn.modules.MSELoss
    assert nn.modules.module.Module is nn.Module
    assert nn.parameter.Parameter is nn.Parameter
    assert nn.modules.container.Sequential is nn.Sequential
    assert nn.modules.batchnorm.BatchNorm2d is nn.BatchNorm2d


def test_a_call_without_hooks_goes_straight_to_forward():
    import sys

    frames = []

    class Net(backlight.nn.Module):
        def forward(self):
            frame = sys._getframe()
            while frame.f_code.co_name != "test_a_call_without_hooks_goes_straight_to_forward":
                frames.append(frame.f_code.co_name)
                frame = frame.f_back

    Net()()
    assert frames == ["forward", "__call__"]


def test_modules_are_freed_without_the_garbage_collector():
    import gc
    import weakref

    gc.disable()
    try:
        nn = backlight.nn
        module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.ReLU()))
        module[0].register_full_backward_hook(lambda *_args: None)
        module[0].register_forward_hook(lambda *_args: None)
        optimizer = backlight.optim.Adam(module.parameters())
        module(backlight.ones(2, 2, requires_grad=True)).sum().backward()
        optimizer.step()
        references = [weakref.ref(m) for m in module.modules()]
        del module, optimizer
        assert [reference() for reference in references] == [None] * 5
    finally:
        gc.enable()


def getattr_programs(torch):
    """What modules with a `__getattr__` of their own say: PyTorch asks it for parameters, buffers and children."""
    nn, seen, said = torch.nn, [], []

    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module
            self.scale = nn.Parameter(torch.ones(2))
            self.register_buffer("shift", torch.zeros(2))
            self.register_parameter("none", None)
            self.plain = 3

        def __getattr__(self, name):
            seen.append(name)
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("module"), name)

        def forward(self, x):
            return self.module(x) * self.scale + self.shift

    class Mixin:
        def __getattr__(self, name):
            return 5 if name == "magic" else super().__getattr__(name)

    class Mixed(Mixin, nn.Linear):
        pass

    class Doubled(Mixed):
        @property
        def twice(self):
            return self.weight * 2

    def ask(owner, name):
        try:
            said.append(f"{getattr(owner, name)!r}")
        except AttributeError as error:
            said.append(f"{error}")

    torch.manual_seed(0)
    wrapper, mixed = Wrapper(nn.Linear(2, 2)), Doubled(1, 1)
    seen.clear()
    wrapper(torch.ones(2))
    for name in ("plain", "none", "weight", "in_features", "nosuch"):
        ask(wrapper, name)
    for name in ("magic", "weight", "bias", "twice", "nosuch"):
        ask(mixed, name)
    for name in ("bias", "in_features"):
        ask(type("Direct", (), {"value": property(lambda _: nn.Module.__getattr__(mixed, name))})(), "value")  # noqa: B023
    said.append(list(wrapper.to(torch.float64).state_dict()))
    del wrapper.scale
    ask(wrapper, "scale")
    return seen, said


def test_a_getattr_of_their_own_is_asked_for_what_is_registered():
    assert getattr_programs(backlight) == getattr_programs(torch)
