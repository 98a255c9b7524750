"""Function transforms: functions that turn a function into its gradient, its Jacobian, or its version for whole batches.

>>> import backlight as torch
>>> from backlight.func import grad, vmap
>>> vmap(grad(torch.sin))(torch.zeros(3))
tensor([1., 1., 1.])
"""

from .calls import functional_call, replace_all_batch_norm_modules_, stack_module_state
from .transforms import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .vmap import vmap

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def __getattr__(name):
    if name in ("functionalize", "debug_unwrap"):
        raise AttributeError(f"backlight.func.{name}: Backlight has no functionalisation, because it runs eagerly")
    raise AttributeError(f"module 'backlight.func' has no attribute '{name}'")
