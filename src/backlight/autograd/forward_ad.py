"""Forward mode automatic differentiation with dual tensors: a tensor and its tangent travel through the program together.

>>> import backlight as torch
>>> import backlight.autograd.forward_ad as fwAD
>>> with fwAD.dual_level():
...     x = fwAD.make_dual(torch.tensor(3.), torch.tensor(1.))
...     fwAD.unpack_dual(x * x).tangent
tensor(6.)
"""

from __future__ import annotations

from collections import namedtuple

from ..forward import Level, dual, primal_of, tangent_of
from ..state import modes

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

UnpackedDualTensor = namedtuple("UnpackedDualTensor", ["primal", "tangent"])
UnpackedDualTensor.__doc__ = "The two parts of a dual tensor; `tangent` is None for a tensor that isn't dual."

_entered: list[Level] = []
_current_level = -1  # read by programs that want to know whether a level runs


def enter_dual_level() -> int:
    """Starts a level of forward mode, in which dual tensors can be made, and returns its number (0: levels don't nest)."""
    if _entered:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    global _current_level
    _entered.append(Level().__enter__())
    _current_level = 0
    return 0


def exit_dual_level(*, level=None) -> None:
    """Ends the level. The tensors made in it lose their tangents."""
    if level is None:
        level = len(_entered) - 1
    if level != len(_entered) - 1:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    if not _entered:
        raise RuntimeError("Dual level must be a positive number.")
    global _current_level
    _entered.pop().__exit__()
    _current_level = -1


class dual_level:
    """A context in which dual tensors can be made: `with dual_level():` or `@dual_level()`."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *_exception):
        exit_dual_level()

    def __call__(self, function):
        from .modes import _wrap

        return _wrap(type(self), function)


def make_dual(tensor, tangent, *, level=None):
    """A view of `tensor` that carries `tangent` (of the same shape) as its derivative. Differentiable in both.

    ValueError unless both are floating point or complex; RuntimeError outside a dual level or for other shapes.
    """
    if level is not None and level != len(_entered) - 1:
        raise RuntimeError("Invalid level given to _make_dual")
    if not _entered:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for name, x in (("primal", tensor), ("tangent", tangent)):
        if not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {x.dtype}")
    current = _entered[-1]
    if hasattr(tensor, "write"):  # batched by vmap
        raise RuntimeError(
            "Batching rule not implemented for aten::_make_dual; the fallback path doesn't work on out= or view ops.\nInside vmap, use "
            "func.jvp instead."
        )
    if current not in modes.levels:  # entered by another thread
        raise RuntimeError("Trying to create a dual Tensor in a thread that did not enter the dual level.")
    if tangent_of(tensor, current) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not supported."
        )
    if tangent_of(tangent, current) is not None:
        raise RuntimeError("Setting a forward grad that itself has a forward gradient at the same level0 is not supported.")
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. "
            f"Tensor is of size {list(tensor.shape)} while the given forward gradient is of size {list(tangent.shape)}."
        )
    return dual(tensor, tangent, current)


def unpack_dual(tensor, *, level=None) -> UnpackedDualTensor:
    """The primal (a view without tangent) and the tangent, or None, of a dual tensor."""
    del level  # there is one
    if not _entered:
        return UnpackedDualTensor(tensor, None)
    current = _entered[-1]
    return UnpackedDualTensor(primal_of(tensor, current), tangent_of(tensor, current))


def _is_fwd_grad_enabled() -> bool:
    """Whether tangents are propagated."""
    return modes.forward_grad


class _set_fwd_grad_enabled:
    """Turns the propagation of tangents on or off, at once or for a `with` block."""

    def __init__(self, mode: bool):
        self.before = modes.forward_grad
        modes.forward_grad = mode

    def __enter__(self):
        pass

    def __exit__(self, *_exception):
        modes.forward_grad = self.before
