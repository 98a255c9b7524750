"""PyTorch's public names, and which of them Backlight lacks."""

PLACES = """torch torch.Tensor torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.nn.utils.rnn torch.nn.utils.parametrize
torch.nn.utils.parametrizations torch.nn.utils.prune torch.optim torch.optim.lr_scheduler torch.optim.swa_utils torch.autograd torch.func
torch.linalg torch.fft torch.special torch.distributions torch.utils.data torch.amp torch.testing""".split()


def names_of(place):
    """(PyTorch's public names of a place such as "torch.nn", those of them that Backlight lacks)."""
    import importlib
    import types

    import torch

    import backlight

    for name in ("nn.utils.prune", "nn.utils.rnn", "optim.swa_utils", "utils.data", "distributions"):
        importlib.import_module(f"torch.{name}")
    theirs, ours = torch, backlight
    for part in place.split(".")[1:]:
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    listed = None if theirs is torch else getattr(theirs, "__all__", None)
    public = set(listed) if listed else {name for name in dir(theirs) if not name.startswith("_")}
    public = {name for name in public if not isinstance(getattr(theirs, name, None), types.ModuleType)}
    return public, {name for name in public if not hasattr(ours, name)}
