"""Gradient clipping, parameters as one vector, reparametrised weights, pruning, sequences of different lengths."""

from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

# What few programs need is imported when it is asked for: {name: file}, "" for a file itself.
_LAZY = {
    "convert_conv2d_weight_memory_format": "memory_format",
    "convert_conv3d_weight_memory_format": "memory_format",
    "fuse_conv_bn_eval": "fusion",
    "fuse_conv_bn_weights": "fusion",
    "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion",
    "parametrizations": "",
    "parametrize": "",
    "prune": "",
    "remove_spectral_norm": "weight_hooks",
    "remove_weight_norm": "weight_hooks",
    "rnn": "",
    "skip_init": "init",
    "spectral_norm": "weight_hooks",
    "stateless": "",
    "weight_norm": "weight_hooks",
}
__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "vector_to_parameters",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'backlight.nn.utils' has no attribute '{name}'")
    from importlib import import_module

    module = import_module(f"{__name__}.{_LAZY[name] or name}")
    value = getattr(module, name) if _LAZY[name] else module
    globals()[name] = value
    return value
