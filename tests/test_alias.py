"""`import torch` gives Backlight's modules, and says what is not there yet."""

import importlib
import importlib.util
import pickle
import sys

import pytest

import backlight
import backlight.nn
from backlight import alias


@pytest.fixture
def aliased():
    """The alias installed in a process in which PyTorch itself may have been imported: that is put aside."""
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "torch"}
    alias.install()
    yield
    alias.uninstall()
    assert not [name for name in sys.modules if name.partition(".")[0] == "torch"]
    sys.modules.update(aside)


@pytest.mark.usefixtures("aliased")
@pytest.mark.parametrize(
    "name", ["", ".nn", ".nn.functional", ".nn.init", ".nn.modules.linear", ".autograd", ".autograd.graph", ".optim", ".random"]
)
def test_same_module_objects(name):
    module = importlib.import_module("torch" + name)
    assert module is importlib.import_module("backlight" + name)
    assert sys.modules["torch" + name] is module
    assert not module.__spec__.name.startswith("torch")


@pytest.mark.usefixtures("aliased")
def test_attributes_and_from_imports():
    import torch
    import torch.nn.functional as F
    from torch.autograd import Variable
    from torch.nn import Linear

    assert torch is backlight
    assert torch.nn is backlight.nn
    assert torch.nn.functional is F is backlight.nn.functional
    assert Linear is backlight.nn.Linear
    assert isinstance(Linear(2, 1).weight, torch.Tensor)
    assert isinstance(Variable(torch.ones(1)), torch.Tensor)
    assert callable(torch.tensor)


@pytest.mark.usefixtures("aliased")
def test_pickles_of_objects_under_pytorch_names():
    from torch import nn

    assert pickle.loads(pickle.dumps(nn.Linear)) is nn.Linear
    assert pickle.loads(b"ctorch.nn.modules.linear\nLinear\n.") is nn.Linear


@pytest.mark.usefixtures("aliased")
def test_importing_twice_and_installing_twice():
    alias.install()
    import torch

    assert sys.meta_path.count(alias._alias) == 1
    assert importlib.import_module("torch") is torch


@pytest.mark.usefixtures("aliased")
@pytest.mark.parametrize("name", ["torch.fx", "torch.nn.nosuch", "torch.utils.nosuch"])
def test_missing_modules_are_named(name):
    with pytest.raises(ModuleNotFoundError, match=f"{name}.* is not there yet in Backlight") as caught:
        importlib.import_module(name)
    assert caught.value.name == name


@pytest.mark.usefixtures("aliased")
def test_a_module_of_ours_does_not_replace_a_function():
    import torch

    with pytest.raises(ModuleNotFoundError, match="No module named 'torch.tensor'"):
        importlib.import_module("torch.tensor")
    assert torch.tensor([1.0]).item() == 1


@pytest.mark.usefixtures("aliased")
def test_a_missing_dependency_is_reported_as_such(monkeypatch):
    def import_module(name):
        if name == "backlight":
            return backlight
        raise ModuleNotFoundError("No module named 'numba'", name="numba")

    monkeypatch.setattr(alias.importlib, "import_module", import_module)
    with pytest.raises(ModuleNotFoundError, match="^No module named 'numba'$"):
        import torch.optim  # noqa: F401


@pytest.mark.usefixtures("aliased")
@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("torch.nosuch", "torch.nosuch"),
        ("torch.nn.Nosuch", "torch.nn.Nosuch"),
        ("torch.nn.functional.nosuch", "torch.nn.functional.nosuch"),
        ("torch.ones(2).nosuch()", "torch.Tensor.nosuch"),
        ("torch.nn.Linear.nosuch", "torch.nn.linear.Linear.nosuch"),
    ],
)
def test_missing_attributes_are_named(code, name):
    import torch

    with pytest.raises(AttributeError) as caught:
        eval(code, {"torch": torch})
    assert alias.missing(caught.value) == name


@pytest.mark.usefixtures("aliased")
def test_missing_from_import_is_named():
    with pytest.raises(ImportError) as caught:
        exec("from torch.nn import Nosuch")
    assert alias.missing(caught.value) == "torch.nn.Nosuch"


@pytest.mark.parametrize("error", [KeyError("torch"), AttributeError("plain"), ImportError("numpy", name="numpy")])
def test_other_errors_are_not_ours(error):
    assert alias.missing(error) is None


def test_attribute_errors_of_the_program_are_not_ours():
    class Net(backlight.nn.Module):
        pass

    for code in ("Net().nosuch", "[].nosuch", "Net.nosuch"):
        with pytest.raises(AttributeError) as caught:
            eval(code, {"Net": Net})
        assert alias.missing(caught.value) is None


@pytest.mark.usefixtures("aliased")
def test_version_and_name():
    import torch

    assert torch.__name__ == "torch"  # as packages compare it that patch functions
    version = torch.__version__
    assert version == "2.13.0+backlight"
    assert version > "2.4" and version >= "2.13.0" and version < "3" and version <= "2.13"
    assert version >= (2, 0) and not version < (2, 13) and version < (2, 14)
    assert not version > "2.13.0a1.dev0"
    assert [int(part) for part in version.split("+")[0].split(".")] == [2, 13, 0]
    alias.uninstall()
    assert (backlight.__version__, backlight.__name__) == ("2.13.0", "backlight")


def test_install_after_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    with pytest.raises(RuntimeError, match="PyTorch was already imported"):
        alias.install()
    assert alias._alias not in sys.meta_path


def test_uninstalled_by_default():
    assert alias._alias not in sys.meta_path
    alias.uninstall()  # harmless
