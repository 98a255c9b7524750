"""vmap by its old private name."""

from .func.vmap import vmap


def _vmap(func, in_dims=0, out_dims=0, allow_none_pass_through=False):
    """`func.vmap`; allow_none_pass_through: outputs that are None stay None."""
    del allow_none_pass_through
    return vmap(func, in_dims, out_dims)
