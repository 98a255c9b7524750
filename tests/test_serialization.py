"""save and load: files from and to PyTorch, damaged and hostile files."""

import argparse
import collections
import copy
import datetime
import enum
import io
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

import backlight

DTYPES = (
    """bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128""".split()
)


def file_of(package, value, **options):
    file = io.BytesIO()
    package.save(value, file, **options)
    file.seek(0)
    return file


def loaded(package, value, source, **options):
    """`value` written by one package and read by the other."""
    return package.load(file_of(source, value), **options)


def same(a, b):
    """Whether two values, of any of the packages, are alike in every respect that a file keeps."""
    if isinstance(a, (torch.Tensor, backlight.Tensor)):
        assert type(a).__name__ == type(b).__name__
        assert (tuple(a.shape), tuple(a.stride()), a.storage_offset()) == (
            tuple(b.shape),
            tuple(b.stride()),
            b.storage_offset(),
        )
        assert (str(a.dtype), a.requires_grad) == (str(b.dtype), b.requires_grad)
        assert str(a) == str(b)
        return True
    assert type(a).__name__ == type(b).__name__, (type(a), type(b))
    if isinstance(a, dict):
        assert list(a) == list(b)
        same(getattr(a, "_metadata", 0), getattr(b, "_metadata", 0))
        return all(same(x, y) for x, y in zip(a.values(), b.values(), strict=True))
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    assert repr(a) == repr(b)
    return True


def values(t):
    """Everything that programs save, in one package's types."""
    base = t.arange(12.0).reshape(3, 4)
    marked = t.ones(2)
    marked.note = "kept"
    net = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.BatchNorm1d(3), t.nn.LSTM(3, 2))
    optimizer = t.optim.Adam(net.parameters(), lr=0.1)
    net[0](t.ones(4, 2)).sum().backward()
    optimizer.step()
    return {
        "dtypes": [t.ones(3).to(getattr(t, name)) for name in DTYPES],
        "views": [base, base.t(), base[1:, ::2], base[:, 1], base[2, 3], base.expand(2, 3, 4), base.detach()],
        "empty": [t.empty(0), t.empty(2, 0, 3), t.tensor(1.5)],
        "values": [t.tensor([float("nan"), float("inf"), -0.0]), t.tensor([1 + 2j])],
        "parameters": [t.nn.Parameter(t.ones(2)), t.nn.Parameter(t.ones(2), requires_grad=False)],
        "requires grad": t.ones(2, requires_grad=True),
        "attributes": marked,
        "buffer": t.nn.Buffer(t.ones(2)),
        "state_dict": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": t.get_rng_state(),
        "types": [t.float32, t.bfloat16, t.Size([2, 3]), t.device("cpu"), t.strided],
        "numbers": [1, -1, 2**40, -(2**70), 0.1, True, None, 1j],
        "text": ["", "ünïcode", "x" * 300, b"bytes", bytearray(b"more")],
        "containers": [
            (),
            (1,),
            (1, 2, 3, 4),
            [],
            {},
            {1: {"a": []}},
            {1, 2},
            collections.OrderedDict(a=1),
            collections.Counter("aab"),
        ],
    }


@pytest.mark.parametrize("name", values(backlight))
def test_what_pytorch_saves_loads_here_and_back(name):
    torch.manual_seed(0)
    value = values(torch)[name]
    ours = loaded(backlight, value, torch)
    assert same(ours, value)
    assert same(loaded(torch, ours, backlight), value)
    assert same(loaded(backlight, ours, backlight), value)


def test_tensors_that_share_memory_share_it_after_loading():
    base = torch.zeros(4)
    for read in (loaded(backlight, [base, base[1:]], torch), loaded(torch, [backlight.zeros(4)] * 2, backlight)):
        read[0][1] = 5.0
        assert read[1].max() == 5.0
    a, b = (loaded(p, [b, b[1:]], q) for p, q, b in ((backlight, torch, base), (torch, backlight, backlight.zeros(4))))
    a[0][1], b[0][1] = 3.0, 3.0
    assert float(a[1][0]) == float(b[1][0]) == 3.0


def random_module(rng, package):
    """A module with random layers; the same for both packages from the same state of `rng`."""
    nn, n = package.nn, rng.randint(1, 6)
    layers = []
    for _ in range(n):
        a, b = rng.randint(1, 9), rng.randint(1, 9)
        layers.append(
            rng.choice(
                [
                    lambda a=a, b=b: nn.Linear(a, b, bias=a > b),
                    lambda a=a, b=b: nn.Conv2d(a, b, 2, dtype=package.float64),
                    lambda a=a, b=b: nn.BatchNorm2d(b, affine=a > 4),
                    lambda a=a, b=b: nn.LSTM(a, b, num_layers=1 + (a > 4), bidirectional=b > 4),
                    lambda a=a, b=b: nn.Embedding(a, b),
                    lambda a=a, b=b: nn.GRUCell(a, b).bfloat16(),
                    lambda a=a, b=b: nn.MultiheadAttention(2 * a, 2),
                    lambda a=a, b=b: nn.ParameterDict({"x": nn.Parameter(package.ones(a, b).t())}),
                    lambda a=a, b=b: nn.TransformerEncoderLayer(2 * a, 2, b).half(),
                    lambda a=a, b=b: nn.InstanceNorm1d(b, affine=True, track_running_stats=True),
                ]
            )()
        )
    return nn.Sequential(*layers)


def test_200_state_dicts_go_to_backlight_and_back_unchanged():
    for seed in range(200):
        torch.manual_seed(seed)
        module = random_module(random.Random(seed), torch)
        state = module.state_dict()
        ours = random_module(random.Random(seed), backlight)
        ours.load_state_dict(loaded(backlight, state, torch))
        back = loaded(torch, ours.state_dict(), backlight)
        assert list(back) == list(state) and back._metadata == state._metadata
        for name, tensor in state.items():
            assert back[name].dtype is tensor.dtype
            assert torch.equal(back[name], tensor)
            assert (
                back[name].contiguous().numpy(force=True).tobytes() == tensor.contiguous().numpy().tobytes()
                if (tensor.dtype is not torch.bfloat16)
                else back[name].view(torch.int16).equal(tensor.view(torch.int16))
            )


def test_a_resumed_run_goes_on_as_the_uninterrupted_one():
    def run(package, steps, resume=None):
        package.manual_seed(0)
        net = package.nn.Linear(3, 1)
        optimizer = package.optim.Adam(net.parameters(), lr=0.1)
        start = 0
        if resume is not None:
            checkpoint = package.load(resume)
            net.load_state_dict(checkpoint["net"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            package.set_rng_state(checkpoint["rng"])
            start = checkpoint["step"]
        for _ in range(start, steps):
            optimizer.zero_grad()
            net(package.randn(8, 3)).square().mean().backward()
            optimizer.step()
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "rng": package.get_rng_state(), "step": steps}
        return net.weight.detach().numpy(), file_of(package, state)

    for package, other in ((backlight, torch), (torch, backlight), (backlight, backlight)):
        whole, _ = run(package, 8)
        _, half = run(other, 4)
        np.testing.assert_allclose(run(package, 8, half)[0], whole, rtol=1e-5)


# -- damaged files ------------------------------------------------------------------------------------------------------

CLEAR = (RuntimeError, pickle.UnpicklingError, EOFError)


class Harmful:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def mutated(data, rng):
    data = bytearray(data)
    kind = rng.randrange(5)
    if kind == 0:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 1:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        start = rng.randrange(len(data))
        data[start : start + rng.randint(1, 60)] = rng.randbytes(rng.randint(0, 60))
    elif kind == 3:
        a, b = sorted(rng.randrange(len(data)) for _ in range(2))
        data[a:b] = data[a:b][::-1]
    else:
        data[rng.randrange(len(data))] = rng.choice(b"\x00\xff(RcbQ\x80\x93\x81.")
    return bytes(data)


def repacked(data, rng):
    """A valid archive whose pickle is damaged: the checksums don't catch that."""
    source, target = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            content = source.read(name)
            archive.writestr(name, mutated(content, rng) if name.endswith("data.pkl") else content)
    return target.getvalue()


def test_2000_mutated_files_give_clear_errors_and_run_nothing(tmp_path):
    rng, target = random.Random(5), tmp_path / "made"
    numbers = {"a": torch.arange(6.0).reshape(2, 3).t(), "b": [torch.nn.Parameter(torch.ones(2)), np.ones(2)], "c": (1, {2})}
    originals = [
        file_of(torch, torch.nn.LSTM(2, 3).state_dict()).getvalue(),
        file_of(torch, numbers).getvalue(),
        file_of(backlight, {"harm": Harmful(str(target)), "weight": backlight.ones(2)}).getvalue(),
        file_of(torch, numbers, _use_new_zipfile_serialization=False).getvalue(),
    ]
    outcomes = collections.Counter()

    def too_long(*_):
        raise TimeoutError("loading hangs")

    signal.signal(signal.SIGALRM, too_long)
    for number in range(2000):
        data = originals[number % 4]
        data = repacked(data, rng) if number % 3 == 0 and data[:2] == b"PK" else mutated(data, rng)
        signal.alarm(20)
        try:
            value = backlight.load(io.BytesIO(data), weights_only=bool(number % 2))
            repr(value)
            outcomes["loaded"] += 1
        except CLEAR:
            outcomes["error"] += 1
        finally:
            signal.alarm(0)
    assert not target.exists()
    assert outcomes["error"] > 1000, outcomes
    assert outcomes["loaded"] > 20, outcomes


class Colour(enum.Enum):
    RED = 1


class Settings:
    def __init__(self, rate):
        self.rate = rate


Pair = collections.namedtuple("Pair", ["a", "b"])


class Slow:
    """An object whose constructor must not run."""

    def __new__(cls, *_args):
        return object.__new__(cls)

    def __init__(self, *_args):
        raise AssertionError("called by a file")


class CallsConstructor:
    def __reduce__(self):
        return Slow, (1,)


class CallsMethod:
    def __reduce__(self):
        return getattr, (Settings, "__init__")


@pytest.mark.parametrize("weights_only", (True, False))
def test_a_hostile_file_runs_nothing(tmp_path, weights_only):
    hostile = [Harmful(str(tmp_path / "made")), CallsConstructor(), CallsMethod()]
    for value in hostile:
        for file in (file_of(torch, [value]), file_of(backlight, [value])):
            with pytest.raises(pickle.UnpicklingError):
                backlight.load(file, weights_only=weights_only)
    assert not (tmp_path / "made").exists()


def archive_with(pickled, **more):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, content in more.items():
            archive.writestr(f"archive/{name}", content)
    file.seek(0)
    return file


ATTACKS = {
    "changes what it didn't make": b"\x80\x02cos\nenviron\nX\x01\x00\x00\x00aX\x01\x00\x00\x00bs.",
    "changes a class": b"\x80\x02ccollections\nOrderedDict\n}X\x05\x00\x00\x00itemsK\x01sb.",
    "huge memory": b"\x80\x02]r\xff\xff\xff\x7f.",
    "huge text": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "huge bytes": b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x10\x85R.",
    "nested keys": b"\x80\x02}" + b"(" * 0 + b")" + b"2\x86" * 60 + b"K\x01s.",
    "nested set": b"\x80\x02cbuiltins\nset\n])" + b"2\x86" * 60 + b"a\x85R.",
    "no operands": b"\x80\x02R.",
    "no mark": b"\x80\x02t.",
    "text protocol": b"cos\nsystem\n(S'true'\ntR.",
    "by attribute": b"\x80\x04\x8c\x02os\x8c\x0bpath.abspath\x93)R.",
    "getattr": b"\x80\x02cbuiltins\ngetattr\ncos\nenviron\nX\x05\x00\x00\x00clear\x86R.",
    "bytecode": b"\x80\x02ctypes\nCodeType\n)\x81.",
    "a function of the standard library": b"\x80\x02cos\nsystem\n.",
    "a memory map": b"\x80\x02cmmap\nmmap\nJ\xff\xff\xff\xffM\x00\x10\x86\x81.",
    "eval": b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.",
    "an extension": b"\x80\x02\x82\x01.",
    "unknown memory": b"\x80\x02K\x07Q.",
    "memory of others": b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x02\x00\x00\x00..X\x03\x00\x00\x00cpuK\x01tQ.",
    "bytes of a type": b"\x80\x02cnumpy\nndarray\n)\x81(K\x01K\x02cnumpy\ndtype\nX\x01\x00\x00\x00O\x85RK\x00C\x00tb.",
}


@pytest.mark.parametrize("weights_only", (True, False))
@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_by_pickle_end_in_a_clear_error(name, weights_only):
    before = dict(os.environ)
    with pytest.raises(CLEAR):
        backlight.load(archive_with(ATTACKS[name]), weights_only=weights_only)
    assert dict(os.environ) == before


def tensor_pickle(offset=0, size=(2,), stride=(1,), numel=2):
    """A pickle of one tensor with these numbers, whatever they are."""
    file = io.BytesIO()
    pickler = backlight.serialization._Pickler(file, 2)
    storage = backlight.serialization._STORAGE_TYPES[backlight.float32]
    reference = backlight.serialization._Reference(("storage", storage, "0", "cpu", numel))
    function = backlight.serialization._rebuild_tensor_v2
    pickler.dump(backlight.serialization._Reduced(function, (reference, offset, size, stride, False, {})))
    return file.getvalue()


def test_a_tensor_must_lie_within_its_memory():
    memory = {"data/0": np.ones(2, "f4").tobytes()}
    assert backlight.load(archive_with(tensor_pickle(), **memory)).tolist() == [1, 1]
    for wrong in (
        {"size": (3,)},
        {"offset": 1},
        {"offset": -1},
        {"stride": (2,)},
        {"stride": (-1,)},
        {"size": (-2,)},
        {"size": (2, 2)},
        {"numel": 3},
        {"size": (2**62, 2**62), "stride": (1, 1)},
        {"size": (1.0,)},
        {"offset": 2**70},
    ):
        with pytest.raises(CLEAR):
            backlight.load(archive_with(tensor_pickle(**wrong), **memory))


def test_archives_that_are_no_files_of_torch_save():
    good = file_of(torch, torch.ones(1000))
    compressed, source = io.BytesIO(), zipfile.ZipFile(good)
    with zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
    compressed.seek(0)
    with pytest.raises(RuntimeError, match="compressed"):
        backlight.load(compressed)
    script = archive_with(b"\x80\x02].", **{"constants.pkl": b""})
    with pytest.raises(RuntimeError, match="TorchScript"):
        backlight.load(script)
    with pytest.raises(RuntimeError, match="has one data.pkl; this archive has 0"):
        empty = io.BytesIO()
        with zipfile.ZipFile(empty, "w") as archive:
            archive.writestr("x", b"1")
        empty.seek(0)
        backlight.load(empty)
    overlapping = bytearray(good.getvalue())
    entry = overlapping.rfind(b"PK\x01\x02")
    overlapping[entry + 20 : entry + 28] = struct.pack("<II", 2**31, 2**31)  # claims 2 GiB
    with pytest.raises(RuntimeError, match="more than its size"):
        backlight.load(io.BytesIO(overlapping))
    flipped = bytearray(good.getvalue())
    flipped[flipped.find(np.ones(4, "f4").tobytes())] ^= 1
    with pytest.raises(RuntimeError, match="CRC"):
        backlight.load(io.BytesIO(flipped))
    tar = bytes(257) + b"ustar" + bytes(300)
    with pytest.raises(RuntimeError, match="tar file"):
        backlight.load(io.BytesIO(tar))
    with pytest.raises(RuntimeError, match="no file of torch.save"):
        backlight.load(io.BytesIO(b"hello world"))
    with pytest.raises(EOFError):
        backlight.load(io.BytesIO())


# -- weights_only=False: the program's own classes, and still no calls ---------------------------------------------------


def test_own_classes_load_without_weights_only():
    value = {
        "settings": Settings(0.1),
        "arguments": argparse.Namespace(lr=1),
        "colour": Colour.RED,
        "pair": Pair(1, 2),
        "when": datetime.datetime(2020, 1, 2),
        "array": np.arange(6, dtype=">i2").reshape(2, 3),
        "number": np.float64(2.5),
        "function": same,
        "default": collections.defaultdict(list, a=[1]),
    }
    for package in (torch, backlight):
        got = backlight.load(file_of(package, value), weights_only=False)
        assert got["settings"].rate == 0.1
        assert {k: v for k, v in got.items() if k not in ("settings", "array")} == {
            k: v for k, v in value.items() if k not in ("settings", "array")
        }
        np.testing.assert_array_equal(got["array"], value["array"])
    with pytest.raises(pickle.UnpicklingError, match="Unsupported global: GLOBAL test_serialization.Settings"):
        backlight.load(file_of(torch, value))


def test_whole_modules_of_both_packages_load():
    torch.manual_seed(0)
    nn = torch.nn
    layers = (nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.TransformerEncoderLayer(4, 2, 8), nn.LSTM(4, 2))
    net = nn.Sequential(*layers).eval()
    ours = backlight.load(file_of(torch, net), weights_only=False)
    assert repr(ours) == repr(net)
    assert not ours.training
    expected, got = net(torch.ones(2, 3)), ours(backlight.ones(2, 3))
    np.testing.assert_allclose(got[0].detach().numpy(), expected[0].detach().numpy(), rtol=1e-4, atol=1e-6)
    again = backlight.load(file_of(backlight, ours), weights_only=False)
    assert again(backlight.ones(2, 3))[0].tolist() == got[0].tolist()
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals"):
        backlight.load(file_of(torch, net))


def test_safe_globals_may_be_named_and_called():
    file = file_of(backlight, Settings(3)).getvalue()
    with backlight.serialization.safe_globals([Settings]):
        assert backlight.load(io.BytesIO(file)).rate == 3
        assert backlight.serialization.get_safe_globals() == [Settings]
    with pytest.raises(pickle.UnpicklingError):
        backlight.load(io.BytesIO(file))
    backlight.serialization.add_safe_globals([Settings])
    assert backlight.load(io.BytesIO(file)).rate == 3
    backlight.serialization.clear_safe_globals()
    assert not backlight.serialization.get_safe_globals()


# -- paths --------------------------------------------------------------------------------------------------------------


def test_saving_is_atomic(tmp_path):
    path = tmp_path / "checkpoint.pt"
    backlight.save({"a": 1}, path)
    assert zipfile.ZipFile(path).namelist()[0] == "checkpoint/data.pkl"
    os.chmod(path, 0o600)
    with pytest.raises(Exception, match="pickle"):
        backlight.save({"a": lambda: 0}, path)
    assert backlight.load(str(path)) == torch.load(path) == {"a": 1}
    backlight.save({"a": 2}, path)
    assert backlight.load(path) == {"a": 2}
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["checkpoint.pt"]
    with pytest.raises(RuntimeError, match="Parent directory .*missing does not exist"):
        backlight.save(1, tmp_path / "missing" / "x.pt")


def test_mapped_files_are_read_when_used(tmp_path):
    path = tmp_path / "big.pt"
    for source, reader in ((torch, backlight), (backlight, torch), (backlight, backlight)):
        source.save({"a": source.arange(1000.0), "b": source.ones(3, dtype=source.int16)}, path)
        got = reader.load(path, mmap=True)
        assert got["a"].sum().item() == 499500.0
        assert got["b"].tolist() == [1, 1, 1]
        got["a"][0] = 7.0  # the file stays as it is
        assert source.load(path)["a"][0] == 0.0
    del got
    for info in zipfile.ZipFile(path).infolist():
        if "/data/" in info.filename:
            with open(path, "rb") as file:
                assert backlight.serialization._data_offset(file, info) % 64 == 0
    with pytest.raises(ValueError, match="must be a file path"):
        backlight.load(io.BytesIO(), mmap=True)


def test_where_tensors_go(tmp_path):
    path = tmp_path / "x.pt"
    backlight.save(backlight.ones(2), path)
    seen = []
    for where in ("cpu", backlight.device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: seen.append(place) or storage):
        assert backlight.load(path, map_location=where).tolist() == [1, 1]
    assert seen == ["cpu"]
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        backlight.load(path, map_location="cuda")
    data = file_of(torch, torch.ones(2)).getvalue()
    source, moved = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(moved, "w") as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name).replace(b"\x03\x00\x00\x00cpu", b"\x06\x00\x00\x00cuda:0"))
    moved.seek(0)
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on a CUDA device"):
        backlight.load(moved)
    moved.seek(0)
    assert backlight.load(moved, map_location="cpu").tolist() == [1, 1]


def test_bad_arguments():
    with pytest.raises(AttributeError, match="expected 'f' to be string, path, or a file-like object"):
        backlight.save(1, 3)
    with pytest.raises(AttributeError, match="You can only torch.load from a file that is seekable"):
        backlight.load(3)
    with pytest.raises(FileNotFoundError):
        backlight.load("/nowhere.pt")
    with pytest.raises(NotImplementedError):
        backlight.save(1, io.BytesIO(), _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        x = backlight.ones(2)
        backlight.save([x, x.view(backlight.int32)], io.BytesIO())


def test_big_endian_files_are_turned_around():
    data = np.arange(4, dtype=">f4")
    file = archive_with(tensor_pickle(0, (4,), (1,), 4), **{"data/0": data.tobytes(), "byteorder": b"big"})
    assert backlight.load(file).tolist() == [0, 1, 2, 3]


def test_files_read_by_path_under_the_alias(tmp_path):
    """An unedited program saves and loads, in another process."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = torch.nn.Linear(2, 2)\n"
        "torch.save(Net(), 'net.pt')\n"
        "torch.save(Net().state_dict(), 'state.pt')\n"
        "print(torch.load('net.pt', weights_only=False), torch.load('state.pt').keys())\n"
    )
    outputs = [
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for command in ([sys.executable, str(script)], [sys.executable, "-m", "backlight", "run", str(script)])
    ]
    assert outputs[0] == outputs[1]


def test_copies_of_loaded_values_are_independent():
    value = backlight.load(file_of(torch, [torch.ones(2)]))
    copied = copy.deepcopy(value)
    value[0][0] = 5.0
    assert copied[0].tolist() == [1, 1]


SAFETENSORS = """
import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model, save_file, save_model

net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
torch.nn.init.ones_(net[0].weight)
save_file(net.state_dict(), "net.safetensors", metadata={"made": "here"})
print(sorted(load_file("net.safetensors").items())[1])
save_model(net, "model.safetensors")
print(load_model(net, "model.safetensors"))
tensors = {name: torch.ones(3, dtype=getattr(torch, name)) for name in ("bfloat16", "float16", "int64", "bool", "uint16")}
save_file(tensors, "types.safetensors")
print(sorted((name, str(t.dtype), t.tolist()) for name, t in load_file("types.safetensors").items()))
with safe_open("net.safetensors", framework="pt") as file:
    print(sorted(file.keys()), file.metadata(), file.get_slice("0.weight")[:1])
for wrong in ({"a": torch.ones(2, 3).t()}, dict.fromkeys("ab", torch.ones(2))):
    try:
        save_file(wrong, "wrong.safetensors")
    except (ValueError, RuntimeError) as error:
        print(type(error).__name__, str(error).split()[:8])
"""


def test_safetensors_through_its_library(tmp_path):
    pytest.importorskip("safetensors")
    script = tmp_path / "program.py"
    script.write_text(SAFETENSORS)
    outputs = [
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for command in ([sys.executable, str(script)], [sys.executable, "-m", "backlight", "run", str(script)])
    ]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("name", [d.name for d in backlight.dtypes.ALL])
def test_dtypes_can_be_pickled(name):
    dtype = getattr(backlight, name)
    assert pickle.loads(pickle.dumps(dtype)) is dtype
