"""grad, vjp, jvp and what is made of them: jacrev, jacfwd, hessian, linearize.

A transform gives the function new tensors for its inputs, each with an `Entry` node where its gradient is caught, and
records what the function does. Inside vmap the entries hold the whole batch: the gradient of a batch of independent
samples is the batch of their gradients. What a transform returns is taken out of its graph unless something outside
(an enclosing transform, or a leaf that requires grad) still depends on it.
"""

from __future__ import annotations

import contextlib
import functools
import math
from typing import Any

import numpy as np

from ..autograd.backward import grad as autograd_grad
from ..batching import Batched, VmapLevel, explicit, implicit, vmap_levels
from ..engine import AccumulateGrad, Node
from ..forward import Level, below, dual, primal_of, set_tangent, tangent_of
from ..state import clock, modes, set_grad_mode
from ..tensor import Tensor
from ..utils._pytree import tree_flatten, tree_map, tree_unflatten, treespec_pprint
from ..views import LEAVES, current_node, version_of
from .captured import captured


class Entry(Node):
    """Where a transform catches the gradient of one of its inputs; an identity for the graph outside."""

    __slots__ = ("running",)

    def run(self, g, edges, keep):  # noqa: ARG002
        return (g,)

    record = run


LEAVES.add(Entry)  # for writes in place


def _levels():
    """The vmaps on whose samples the values of a function may depend: only tangents do on jacfwd's directions."""
    return [level for level in vmap_levels() if not (level.of_tangents and level.randomness == "error")]


class _Recording:
    """While a transform runs its function: grad mode on, and the vmaps around it remembered."""

    def __init__(self):
        self.levels, self.entries = _levels(), []

    def __enter__(self):
        self.before = modes.grad
        set_grad_mode(True)
        modes.recordings += 1
        return self

    def __exit__(self, *_exception):
        set_grad_mode(self.before)
        modes.recordings -= 1
        for node in self.entries:
            node.running = False

    def enter(self, x):
        """The input as the function receives it."""
        x = self.explicit(x)
        if x.array.dtype.kind not in "fcV":
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        entry = Tensor._from(x.array)
        if "tangents" in x.__dict__ or x.base is not None:
            for level in modes.levels:
                if level.kind == "forward" and (tangent := tangent_of(x, level)) is not None:
                    set_tangent(entry, level, tangent)
        node = Entry()
        node.edges, node.seq, node.hooks = (current_node(x) if self.before else None,), next(clock), None
        node.running = True
        entry.node, entry.version = node, version_of(x)
        self.entries.append(node)
        return entry

    def explicit(self, x):
        """The tensor with the batches of all vmaps around as its first dimensions."""
        for level in reversed(self.levels):
            x = explicit(x, level)
        return x

    def implicit(self, x):
        for level in self.levels:
            x = implicit(x, level)
        return x


def cut(x):
    """The tensor, taken out of its graph if nothing there is alive any more."""
    if type(x) is Batched:
        return Batched(cut(x.value), x.level)
    node = current_node(x)
    if node is None or _alive(node):
        return x
    result = Tensor._from(x.array)
    result.version = x.version
    if "tangents" in x.__dict__:
        for level, tangent in x.__dict__["tangents"].items():
            if level in modes.levels and tangent is not None:
                set_tangent(result, level, cut(tangent))
    return result


def _alive(node, entries=()) -> bool:
    """Whether a graph leads to a leaf, or to the input of a transform that is still running (apart from these entries)."""
    seen, stack = {node}, [node]
    while stack:
        node = stack.pop()
        if type(node) is AccumulateGrad or (type(node) is Entry and node.running and node not in entries):
            return True
        for parent in node.edges:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return False


def _cut_all(tree):
    for x in tree_flatten(tree)[0]:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(x)}")
    return tree_map(cut, tree)


# Reverse mode


def _check_tensors(tree, what="Thing passed to transform API must be Tensor, got {}"):
    leaves, spec = tree_flatten(tree)
    for x in leaves:
        if not isinstance(x, Tensor):
            raise ValueError(what.format(type(x)))
    return leaves, spec


def _selected(args, argnums):
    """The arguments to differentiate, and a function that puts others in their place."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if isinstance(argnums, tuple) and not argnums:
        raise RuntimeError("argnums must be non-empty")
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnum={n}, but only {len(args)} positional inputs")
    numbers = tuple([n % len(args) for n in numbers])
    if len(set(numbers)) != len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")

    def replaced(values):
        new = list(args)
        for n, value in zip(numbers, values, strict=True):
            new[n] = value
        return new

    chosen = tuple(args[n] for n in numbers)
    return chosen, replaced


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that returns (gradient, value) of `func`, which must return a scalar tensor.

    argnums: the positional argument(s) to differentiate with respect to. has_aux: func returns (scalar, anything).
    The result for a tuple of argnums is a tuple. Nests with every other transform.

    >>> import backlight as torch
    >>> torch.func.grad_and_value(lambda x: x ** 2)(torch.tensor(3.))
    (tensor(6.), tensor(9.))
    """

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen, replaced = _selected(args, argnums)
        leaves, spec = _check_tensors(chosen)
        with _Recording() as recording:
            entries = [recording.enter(x) for x in leaves]
            given = tree_unflatten([recording.implicit(x) for x in entries], spec)
            with captured(func, tree_flatten((args, kwargs))[0]):
                output = func(*replaced(given), **kwargs)
            aux = None
            if has_aux:
                if not (isinstance(output, tuple) and len(output) == 2):
                    raise RuntimeError(
                        "grad_and_value(f)(*args): output of function f should be a tuple: (output, aux) if has_aux is True"
                    )
                output, aux = output
            if not isinstance(output, Tensor):
                raise RuntimeError(f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(output)}")
            if output.dim():
                raise RuntimeError(
                    f"grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with {output.dim()} dims. "
                    "Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            whole = recording.explicit(output)
            grads = _pull_back([whole], entries, [Tensor._from(np.ones_like(whole.array))])
            grads = [recording.implicit(g) for g in grads]
        grads = tree_unflatten([cut(g) for g in grads], spec)
        grads = grads[0] if isinstance(argnums, int) else grads
        return (grads, (cut(output), _cut_all(aux))) if has_aux else (grads, cut(output))

    return wrapper


def _pull_back(outputs, entries, cotangents):
    """The gradients of the entries, zero where the outputs don't depend on them."""
    connected = [(y, g) for y, g in zip(outputs, cotangents) if current_node(y) is not None]
    if not connected:
        return [Tensor._from(np.zeros_like(x.array)) for x in entries]
    ys, gs = zip(*connected)
    own = [x.node for x in entries]
    nodes = [node for x in (*ys, *gs) if (node := current_node(x)) is not None]
    differentiated_again = modes.forward or any(_alive(node, own) for node in nodes)
    found = autograd_grad(ys, entries, gs, retain_graph=True, create_graph=differentiated_again, allow_unused=True)
    return [_zeros_like(x) if g is None else g for x, g in zip(entries, found)]


def _zeros_like(x):
    if type(x) is Batched:
        return Batched(_zeros_like(x.value), x.level)
    return Tensor._from(np.zeros_like(x.array))


def grad(func, argnums=0, has_aux=False):
    """A function that computes the gradient of `func`, which must return a scalar tensor. See `grad_and_value`.

    >>> import backlight as torch
    >>> cosine = torch.func.grad(torch.sin)
    >>> torch.func.grad(cosine)(torch.tensor(0.))
    tensor(-0.)
    """

    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapper


def vjp(func, *primals, has_aux=False) -> Any:
    """(func(*primals), vjp_fn): vjp_fn maps cotangents of the output to those of the primals, as often as one likes.

    Primals and output are tensors or containers of them. With has_aux, func returns (output, aux) and the result is
    (output, vjp_fn, aux).

    >>> import backlight as torch
    >>> y, vjp_fn = torch.func.vjp(torch.sin, torch.tensor(0.))
    >>> vjp_fn(torch.tensor(2.))
    (tensor(2.),)
    """
    leaves, spec = _check_tensors(primals)
    with _Recording() as recording:
        entries = [recording.enter(x) for x in leaves]
        with captured(func, leaves):
            output = func(*tree_unflatten([recording.implicit(x) for x in entries], spec))
        aux = None
        if has_aux:
            if not (isinstance(output, tuple) and len(output) == 2):
                raise RuntimeError("vjp(f, *primals): output of function f should be a tuple: (output, aux) if has_aux is True")
            output, aux = output
        outputs, output_spec = tree_flatten(output)
        for x in outputs:
            if not isinstance(x, Tensor):
                raise RuntimeError(
                    f"vjp(f, *primals): expected f(*primals) to return only tensors, got unsupported type {type(x)}"
                )
        wholes = [recording.explicit(x) for x in outputs]

    def vjp_fn(*cotangents, retain_graph=True, create_graph=None):
        del retain_graph, create_graph
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        flat, given_spec = tree_flatten(given)
        if given_spec != output_spec:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                f"cotangents: {treespec_pprint(given_spec)}, primal output: {treespec_pprint(output_spec)}"
            )
        for i, (y, g) in enumerate(zip(outputs, flat)):
            if y.shape != g.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {y.shape}."
                )
        was_enabled = modes.grad
        set_grad_mode(True)
        try:
            found = _pull_back(wholes, entries, [recording.explicit(g) for g in flat])
            found = [cut(recording.implicit(g)) for g in found]
        finally:
            set_grad_mode(was_enabled)
        return tree_unflatten(found, spec)

    result = (tree_unflatten([cut(x) for x in outputs], output_spec), vjp_fn)
    return (*result, _cut_all(aux)) if has_aux else result


# Forward mode


def _check_floating(x, what):
    if x.array.dtype.kind not in "fcV":
        raise ValueError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """(func(*primals), the directional derivative along `tangents`), by forward mode.

    primals and tangents: tuples of tensors (or containers) of the same structure and shapes. strict: RuntimeError if an
    output doesn't depend on the primals. has_aux: func returns (output, aux), the result is (output, tangent, aux).

    >>> import backlight as torch
    >>> torch.func.jvp(torch.sin, (torch.tensor(0.),), (torch.tensor(2.),))
    (tensor(0.), tensor(2.))
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call f(*primals)."
        )
    flat, spec = tree_flatten(primals)
    flat_tangents, tangent_spec = tree_flatten(tangents)
    if spec != tangent_spec:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals and tangents to have the same python structure. For example, if primals is "
            f"a tuple of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure "
            f"{tangent_spec}"
        )
    for what, leaves in (("primals", flat), ("tangents", flat_tangents)):
        if not leaves:
            raise RuntimeError(f"jvp(f, primals, tangents): Expected {what} to contain at least one Tensor.")
        for x in leaves:
            if not isinstance(x, Tensor):
                raise RuntimeError(f"jvp(f, primals, tangents): Expected {what} to only contain Tensors, got {type(x)}")
            _check_floating(x, what.removesuffix("s"))
    levels = _levels()
    with Level() as level:
        level.functional = True
        duals = []
        for x, t in zip(flat, flat_tangents):
            if x.shape != t.shape:
                raise RuntimeError(
                    "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
                    f"supported. Tensor is of size {list(x.shape)} while the given forward gradient is of size {list(t.shape)}."
                )
            duals.append(_hidden(dual(_shown(x, levels), _shown(t, levels), level), levels))
        with captured(func, flat):
            output = func(*tree_unflatten(duals, spec))
        return _unpacked(output, level, levels, strict, has_aux)


def _shown(x, levels):
    for level in reversed(levels):
        x = explicit(x, level)
    return x


def _hidden(x, levels):
    for level in levels:
        x = implicit(x, level)
    return x


def _unpacked(output, level, levels, strict, has_aux):
    """The outputs of a function that ran on dual tensors, as (primal output, tangent output)."""
    aux = None
    if has_aux:
        if not (isinstance(output, tuple) and len(output) == 2):
            raise RuntimeError(
                "jvp(f, primals, tangents): output of function f should be a tuple: (output, aux) if has_aux is True"
            )
        output, aux = output
        aux = tree_map(lambda x: _hidden(_plain(_shown(x, levels), level), levels) if isinstance(x, Tensor) else x, aux)
    outputs, spec = tree_flatten(output)
    primals, tangents = [], []
    for y in outputs:
        if not isinstance(y, Tensor):
            raise RuntimeError(
                f"jvp(f, primals, tangents): expected f(*primals) to return only tensors, got unsupported type {type(y)}"
            )
        whole = _shown(y, levels)
        tangent = _tangent_within(whole, level)
        if tangent is None:
            if strict:
                raise RuntimeError(
                    "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with "
                    "strict=True."
                )
            tangent = _zeros_like(whole)
        primals.append(_hidden(_plain(whole, level), levels))
        tangents.append(_hidden(tangent, levels))
    result = (tree_unflatten(primals, spec), tree_unflatten(tangents, spec))
    return (*result, aux) if has_aux else result


def _tangent_within(x, level):
    """The tangent of a tensor that may be batched by a vmap over tangents (whose random numbers made it so)."""
    if type(x) is not Batched:
        return tangent_of(x, level)
    tangent = _tangent_within(x.value, level)  # whose batch, if it has one, belongs to the same samples as that of x
    if tangent is None:
        return None
    if type(tangent) is Batched and tangent.level is x.level:
        tangent = tangent.value.diagonal(0, 0, 1).movedim(-1, 0)
    return Batched(tangent, x.level)


def _plain(x, level):
    """The tensor without its tangent at the level."""
    if type(x) is Batched:
        return Batched(_plain(x.value, level), x.level)
    if tangent_of(x, level) is None:
        return x
    with below(level):
        return primal_of(x, level)


def linearize(func, *primals):
    """(func(*primals), jvp_fn): the function runs once, jvp_fn then applies its derivative to any tangents.

    The derivative is kept as the transpose of the recorded backward pass, so calling jvp_fn doesn't run func again.

    >>> import backlight as torch
    >>> y, jvp_fn = torch.func.linearize(torch.sin, torch.tensor(0.))
    >>> jvp_fn(torch.tensor(2.))
    tensor(2.)
    """
    output, vjp_fn = vjp(func, *primals)
    flat, spec = tree_flatten(output)
    dummies = tree_unflatten([_zeros_like(x) if type(x) is Tensor else x * 0 for x in flat], spec)
    _, transposed = vjp(lambda g: vjp_fn(g), dummies)
    expected, tangent_spec = tree_flatten(primals)

    def jvp_fn(*tangents):
        given, given_spec = tree_flatten(tangents)
        if given_spec != tangent_spec:
            raise RuntimeError(f"Expected the tangents {given_spec} to have the same argspec as the primals {tangent_spec}")
        for i, (x, t) in enumerate(zip(expected, given)):
            for what in ("shape", "dtype"):
                if getattr(x, what) != getattr(t, what):
                    raise RuntimeError(
                        f"tangent:{i} with {what} {getattr(t, what)} in flattened pytree doesn't match the {what} {getattr(x, what)} of "
                        "the corresponding primal."
                    )
        return transposed(tangents)[0]

    return output, jvp_fn


# Jacobians


def _basis(shapes, dtypes_):
    """For tensors of these shapes: one-hot tensors (N, *shape), together the identity of size N = total elements."""
    sizes = [math.prod(shape) for shape in shapes]
    total, start, out = sum(sizes), 0, []
    for shape, size, dtype in zip(shapes, sizes, dtypes_):
        block = np.eye(total, size, -start, dtype)
        out.append(Tensor._from(block.reshape((total, *shape))))
        start += size
    return out, sizes


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """A function that computes the Jacobian of `func` by reverse mode, a row at a time in one vmap.

    For an output (*O) and an input (*I) the Jacobian is (*O, *I). argnums: an int, or a tuple for a tuple of Jacobians.
    chunk_size: how many rows at once (less memory). Cheaper than jacfwd where there are fewer outputs than inputs.

    >>> import backlight as torch
    >>> torch.func.jacrev(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    del _preallocate_and_copy

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen, replaced = _selected(args, argnums)
        _check_real(chosen, "jacrev", "inputs")
        found = vjp(lambda *xs: func(*replaced(xs), **kwargs), *chosen, has_aux=has_aux)
        output, vjp_fn = found[:2]
        _check_real(output, "jacrev", "outputs")
        outputs, output_spec = tree_flatten(output)
        inputs, input_spec = tree_flatten(chosen)
        basis, sizes = _basis([y.shape for y in outputs], [y.array.dtype for y in outputs])
        total = sum(sizes)
        step = chunk_size or total or 1
        rows: list[list] = [[] for _ in inputs]
        for start in range(0, total, step):
            count = min(step, total - start)
            with VmapLevel(count) as level:
                cotangents = [Batched(g if count == total else g[start : start + count], level) for g in basis]
                gs = vjp_fn(tree_unflatten(cotangents, output_spec))
                for k, g in enumerate(tree_flatten(gs)[0]):
                    rows[k].append(explicit(g, level))
        blocks = [_joined(r) if r else x.new_zeros((0, *x.shape)) for r, x in zip(rows, inputs)]
        result = _by_output(blocks, sizes, outputs, inputs)
        tree = tree_unflatten([_chosen(tree_unflatten(js, input_spec), argnums) for js in result], output_spec)
        return (tree, found[2]) if has_aux else tree

    return wrapper


def _check_real(tree, function, what):
    for i, x in enumerate(tree_flatten(tree)[0]):
        if isinstance(x, Tensor) and x.is_complex():
            raise RuntimeError(
                f"{function}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}"
            )


def _joined(parts):
    from ..ops.join import cat

    return parts[0] if len(parts) == 1 else cat(parts)


def _chosen(values, argnums):
    return values[0] if isinstance(argnums, int) else values


def _by_output(blocks, sizes, outputs, inputs):
    """Jacobian rows (N, *I), for each input, as [[(*O, *I) for each input] for each output]."""
    result, start = [], 0
    for y, size in zip(outputs, sizes):
        result.append([b[start : start + size].reshape((*y.shape, *x.shape)) for b, x in zip(blocks, inputs)])
        start += size
    return result


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """A function that computes the Jacobian of `func` by forward mode: the function runs once with all directions.

    As jacrev, but cheaper where there are fewer inputs than outputs.

    >>> import backlight as torch
    >>> torch.func.jacfwd(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    return forward_jacobian(func, argnums, has_aux, randomness, real=True)


def forward_jacobian(func, argnums, has_aux=False, randomness="error", real=False):
    """jacfwd, also of complex functions unless `real`."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        chosen, replaced = _selected(args, argnums)
        if real:
            _check_real(chosen, "jacfwd", "inputs")
        inputs, input_spec = _check_tensors(chosen, "jacfwd: Expected all inputs to be Tensors, got {}")
        for x in inputs:
            _check_floating(x, "primal")
        levels = _levels()
        basis, sizes = _basis([x.shape for x in inputs], [x.array.dtype for x in inputs])
        directions = VmapLevel(sum(sizes), randomness)
        directions.of_tangents = True
        with Level() as level, directions:
            level.functional = True
            duals = []
            for x, t in zip(inputs, basis):
                whole = _shown(x, levels)
                duals.append(_hidden(dual(whole, Batched(t, directions).expand(whole.shape), level), levels))
            with captured(func, tree_flatten((args, kwargs))[0]) if real else contextlib.nullcontext():
                output = func(*replaced(tree_unflatten(duals, input_spec)), **kwargs)
            found: Any = _unpacked(output, level, levels, False, has_aux)
            blocks = [explicit(t, directions) for t in tree_flatten(found[1])[0]]
        if real:
            _check_real(found[0], "jacfwd", "outputs")
        outputs, output_spec = tree_flatten(found[0])
        result = []
        for y, block in zip(outputs, blocks):
            start, row = 0, []
            for x, size in zip(inputs, sizes):
                part = block[start : start + size]
                row.append(part.movedim(0, -1).reshape((*y.shape, *x.shape)))
                start += size
            result.append(_chosen(tree_unflatten(row, input_spec), argnums))
        tree = tree_unflatten(result, output_spec)
        return (tree, found[2]) if has_aux else tree

    return wrapper


def hessian(func, argnums=0):
    """A function that computes the Hessian of `func`: reverse mode over reverse mode. For an input (*I): (*O, *I, *I).

    PyTorch goes forward over reverse, with the same results; here that takes twice as long (benchmarks: hessian).

    >>> import backlight as torch
    >>> torch.func.hessian(lambda x: (x ** 3).sum())(torch.ones(2))
    tensor([[6., 0.],
            [0., 6.]])
    """
    return jacrev(jacrev(func, argnums), argnums)
