"""vmap: a function of one sample as a function of a batch, without a loop."""

from __future__ import annotations

import functools
from typing import Any

from ..batching import Batched, VmapLevel, explicit
from ..random import default_generator
from ..tensor import Tensor, dimension
from ..utils._pytree import broadcast_to_and_flatten, tree_flatten, tree_unflatten


def vmap(func, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None):
    """A function that maps `func` over a dimension of its inputs; `func` sees one sample, and operations run on the batch.

    in_dims: for each input the dimension to map over, None for an input that all samples share; an int or a structure
    like the inputs'. out_dims: where the batch dimension goes in the outputs. randomness: what random operations do:
    "error", "same" for all samples, or "different". chunk_size: how many samples at once.

    >>> import backlight as torch
    >>> torch.func.vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3))
    tensor([3., 3.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        size, dims, flat, spec = _checked_inputs(in_dims, func, args)
        if chunk_size is None or chunk_size >= size:
            return _run(func, flat, dims, spec, size, out_dims, randomness, kwargs)
        parts = []
        generator = default_generator.get_state() if randomness == "same" else None
        for start in range(0, size, chunk_size):
            if generator is not None:
                default_generator.set_state(generator)
            count = min(chunk_size, size - start)
            chunk = [x if d is None else x.narrow(d, start, count) for x, d in zip(flat, dims)]
            parts.append(_run(func, chunk, dims, spec, count, out_dims, randomness, kwargs))
        return _concatenated(parts, out_dims, func)

    return wrapped


def _name(func):
    return getattr(func, "__name__", repr(func))


def _checked_inputs(in_dims, func, args):
    """The batch size, the flat in_dims and inputs, and the structure of the inputs."""
    name = _name(func)
    if not isinstance(in_dims, (int, tuple)) or isinstance(in_dims, bool):
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a (potentially nested) tuple matching "
            f"the structure of inputs, got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a function with "
            "no inputs. The latter is unsupported."
        )
    flat, spec = tree_flatten(args)
    dims = broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the structure of `inputs`. in_dims has "
            f"structure {tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    sizes = []
    for i, (x, d) in enumerate(zip(flat, dims)):
        start = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d}"
        if d is not None and not isinstance(d, int):
            raise ValueError(f"{start} for an input but in_dim must be either an integer dimension or None.")
        if isinstance(d, int) and not isinstance(x, Tensor):
            raise ValueError(
                f"{start} for an input but the input is of type {type(x)}. We cannot vmap over non-Tensor arguments, please use None "
                "as the respective in_dim"
            )
        if d is None:
            continue
        if not -x.dim() <= d < x.dim():
            raise ValueError(
                f"{start} for some input, but that input is a Tensor of dimensionality {x.dim()} so expected in_dim to satisfy "
                f"-{x.dim()} <= in_dim < {x.dim()}."
            )
        dims[i] = d % x.dim()
        sizes.append(x.shape[dims[i]])
    if not sizes:
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): at least one Tensor must be mapped over. "
                         "Got in_dims=None for all inputs.")  # fmt: skip
    if len(set(sizes)) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} for the "
                         "mapped dimension")  # fmt: skip
    return sizes[0], dims, flat, spec


def _samples(tensors):
    """The batch size of tensors (or None) that share a first dimension, and what makes samples of them at a level."""
    size, dims, _flat, _spec = _checked_inputs(tuple([None if x is None else 0 for x in tensors]), _vjp, tuple(tensors))
    return size, lambda level: tuple([x if d is None else Batched(x, level) for x, d in zip(tensors, dims)])


def _vjp():
    """What the mapped function is called in errors about batched gradients."""


_vjp.__name__ = "vjp"


def _run(func, flat, dims, spec, size, out_dims, randomness, kwargs):
    with VmapLevel(size, randomness) as level:
        samples = [x if d is None else Batched(x.movedim(d, 0) if d else x, level) for x, d in zip(flat, dims)]
        output = func(*tree_unflatten(samples, spec), **kwargs)
        return _outputs(output, level, out_dims, func)


def _outputs(output, level, out_dims, func):
    outputs, spec = tree_flatten(output)
    dims = _flat_out_dims(outputs, spec, out_dims, func)
    out = []
    for x, d in zip(outputs, dims):
        if not isinstance(x, Tensor):
            if d is not None:
                raise ValueError(
                    f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(x)}. Did you mean to set "
                    "out_dims= to None for output?"
                )
            out.append(x)
        elif d is None:
            if type(x) is Batched and x.level is level:
                raise ValueError(
                    f"vmap({_name(func)}, ...): `{_name(func)}` can not return a BatchedTensor when out_dim is None"
                )
            out.append(x)
        else:
            whole = explicit(x, level)
            d = dimension(d, whole.dim())
            out.append(whole.movedim(0, d) if d else whole)
    return tree_unflatten(out, spec)


def _flat_out_dims(outputs, spec, out_dims, func):
    name = _name(func)

    def complain():
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection of ints representing "
            "where in the outputs the vmapped dimension should appear."
        )

    if isinstance(outputs, list) and spec.is_leaf():
        if isinstance(out_dims, (int, type(None))):
            return [out_dims]
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            return [out_dims[0]]
        if not isinstance(out_dims, (tuple, list, dict)):
            complain()
        flat = None
    else:
        flat = broadcast_to_and_flatten(out_dims, spec)
    if flat is None:
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims "
            f"has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    if not all(d is None or isinstance(d, int) for d in flat):
        complain()
    return flat


def _concatenated(parts, out_dims, func):
    """The outputs of chunks, joined where the batch dimension is."""
    from ..ops.join import cat

    flat = [tree_flatten(part) for part in parts]
    spec = flat[0][1]
    dims = _flat_out_dims(flat[0][0], spec, out_dims, func)
    columns = zip(*[leaves for leaves, _ in flat], strict=True)
    return tree_unflatten([each[0] if d is None else cat(each, d) for each, d in zip(columns, dims)], spec)
