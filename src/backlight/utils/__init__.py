"""`torch.utils`."""


def __getattr__(name):
    if name in ("checkpoint", "_pytree"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'backlight.utils' has no attribute '{name}'")
