"""`torch.utils`: loading data, checkpoints, TensorBoard, DLPack."""

_LAZY = ("_pytree", "checkpoint", "data", "deterministic", "dlpack", "hooks", "model_zoo", "tensorboard")


def __getattr__(name):
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'backlight.utils' has no attribute '{name}'")


def __dir__():
    return sorted({*globals(), *_LAZY})
