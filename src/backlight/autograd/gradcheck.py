"""Checks gradients against finite differences: gradcheck, gradgradcheck.

A Jacobian here is a matrix (elements of the input, elements of the output). Complex outputs are checked as two real
functions, their real and imaginary parts; the gradient of a real function of z = x + iy is df/dx + i df/dy.

>>> import backlight as torch
>>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
>>> torch.autograd.gradcheck(torch.exp, x)
True
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..engine import Node
from ..op import REGISTRY
from ..state import clock
from ..tensor import Tensor
from ..utils._pytree import tree_leaves
from ..views import current_node
from . import forward_ad
from .backward import grad
from .modes import enable_grad

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient is wrong."""


def _tuple(value):
    return value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)


def _differentiable(x) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


def _wanted(inputs):
    """The tensors among the inputs (in containers too) whose gradients are checked."""
    return [x for x in tree_leaves(list(inputs)) if _differentiable(x)]


def gradcheck(
    func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0, check_undefined_grad=True,
    check_grad_dtypes=False, check_batched_grad=False, check_batched_forward_grad=False, check_forward_ad=False,
    check_backward_ad=True, fast_mode=False, masked=None,
) -> bool:  # fmt: skip
    """Whether the gradients of `func` at `inputs` agree with finite differences: True, or a GradcheckError (False if not
    raise_exception).

    inputs: a tensor or a tuple; those that require grad (and should be float64 or complex128) are checked, and perturbed
    by eps. atol, rtol: as in allclose. nondet_tol: how far two runs of backward may differ. check_undefined_grad: backward
    must cope with None gradients. check_batched_grad: also under vmap. check_forward_ad: forward mode, too.
    fast_mode: one random direction instead of every element.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    del masked  # there are no sparse tensors here
    check = _Check(func, inputs, eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode)
    try:
        check.run(check_undefined_grad, check_batched_grad, check_batched_forward_grad, check_forward_ad, check_backward_ad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, gen_non_contig_grad_outputs=False, raise_exception=True,
    nondet_tol=0.0, check_undefined_grad=True, check_grad_dtypes=False, check_batched_grad=False, check_fwd_over_rev=False,
    check_rev_over_rev=True, fast_mode=False, masked=False,
) -> bool:  # fmt: skip
    """gradcheck of the gradients of `func`, as functions of its inputs and of grad_outputs (random where not given)."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    if check_undefined_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_undefined_grad=True requires check_rev_over_rev to be True")
    if check_batched_grad and not check_rev_over_rev:
        raise AssertionError("Setting check_batched_grad=True requires check_rev_over_rev to be True")
    inputs = _tuple(inputs)
    if grad_outputs is None:
        outputs = [y for y in _tuple(func(*inputs)) if _differentiable(y)]
        cotangents = tuple(_random_cotangent(y, gen_non_contig_grad_outputs) for y in outputs)
    else:
        cotangents = _tuple(grad_outputs)
    count = len(cotangents)
    differentiable = [_differentiable(x) for x in (*inputs, *cotangents)]

    def gradients(*args):
        # Forward mode gives tensors that don't require grad.
        args = [x.requires_grad_() if wanted and x.is_leaf else x for x, wanted in zip(args, differentiable)]
        given, gs = (args[:-count], args[-count:]) if count else (args, ())
        outputs = [y for y in _tuple(func(*given)) if _differentiable(y)]
        wanted = [x for x in given if _differentiable(x)]
        found = grad(outputs, wanted, gs, create_graph=True, allow_unused=True)
        return tuple([g for g in found if g is not None])

    return gradcheck(
        gradients,
        (*inputs, *cotangents),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        masked=masked,
    )


def _random_like(y):
    return REGISTRY["randn_like"](y.detach()).requires_grad_()  # pyright: ignore[reportCallIssue]


def _random_cotangent(y, noncontiguous):
    """Uniform numbers from [-1, 1), as PyTorch draws them; for a noncontiguous tensor, twice as many."""
    noncontiguous = noncontiguous and y.numel() > 1
    g = y.detach().new_empty((*y.shape[:-1], 2 * y.shape[-1]) if noncontiguous else y.shape)
    (REGISTRY["view_as_real"](g) if g.is_complex() else g).uniform_(-1, 1)  # pyright: ignore[reportCallIssue]
    return (g[..., ::2] if noncontiguous else g).requires_grad_()


class _Undefined(Node):
    """Hands None on in place of the gradient that arrives."""

    __slots__ = ()
    runs_on_none = True

    def run(self, g, edges, keep):
        return (None,)

    record = run


def _without_gradient(y):
    node = _Undefined()
    node.edges, node.seq, node.hooks = (current_node(y),), next(clock), None
    result = Tensor._from(y.array)
    result.node = node
    return result


def _part(name):
    """The function that takes the real or imaginary part of complex outputs, and leaves real ones out."""
    return lambda y: getattr(y, name) if y.is_complex() else None


class _Check:
    def __init__(self, func, inputs, eps, atol, rtol, nondet_tol, check_grad_dtypes, fast):
        self.func, self.inputs = func, _tuple(inputs)
        self.eps, self.atol, self.rtol, self.nondet_tol = eps, atol, rtol, nondet_tol
        self.check_grad_dtypes, self.fast = check_grad_dtypes, fast
        self.wanted = _wanted(self.inputs)
        self._check_inputs()

    def _check_inputs(self):
        for i, x in enumerate(tree_leaves(list(self.inputs))):
            if not _differentiable(x):
                continue
            if x.array.dtype.char not in "dD":
                warnings.warn(
                    f"Input #{i} requires gradient and is not a double precision floating point or complex. This check will likely "
                    "fail if all the inputs are not of double precision floating point or complex. ",
                    stacklevel=5,
                )
            if any(step == 0 and n > 1 for n, step in zip(x.array.shape, x.array.strides)):
                raise RuntimeError(
                    f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be able "
                    "to compute the numerical gradients correctly. You should call .contiguous on the input before passing it to "
                    "gradcheck."
                )
            if not x.is_leaf:
                x.retain_grad()
        if not self.wanted:
            raise ValueError(
                "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
            )

    def run(self, undefined, batched, batched_forward, forward, backward):
        func_out = _tuple(self.func(*self.inputs))
        outputs = [y for y in func_out if _differentiable(y)]
        if not outputs:
            self._expect_zero(func_out)
            return
        is_complex = any(y.is_complex() for y in outputs)
        if backward:
            if is_complex:
                self._compare_parts(self._backward, outputs)
                rest = [i for i, y in enumerate(outputs) if not y.is_complex()]
                if rest:
                    self._backward(lambda y: None if y.is_complex() else y, "")
            else:
                self._backward(lambda y: y, "")
            if batched:
                self._check_batched(outputs)
            self._check_multiplied(outputs)
            if undefined:
                self._check_undefined()
        if forward:
            if any(x.is_complex() for x in self.wanted):
                for name, unit in (("imag", 1j), ("real", 1)):
                    self._forward(unit, f"While considering the {_LONG[name]} part of complex inputs only, ")
            else:
                self._forward(1, "")
            if undefined:
                self._check_undefined_forward()
            if batched_forward:
                self._check_batched_forward()

    def _compare_parts(self, compare, _outputs):
        for name in ("imag", "real"):
            compare(_part(name), f"While considering the {_LONG[name]} part of complex outputs only, ")

    # Finite differences

    def _values(self):
        """The outputs as arrays at the present values of the inputs (None for what has no gradient)."""
        outputs = _tuple(self.func(*self.inputs))
        return [y.array.copy() if isinstance(y, Tensor) and y.array.dtype.kind in "fc" else None for y in outputs]

    def _difference(self, x, direction):
        """The derivatives of the outputs along a direction in one input, by central differences."""
        array, before = x.array, x.array.copy()
        try:
            array[...] = before + self.eps * direction
            high = self._values()
            array[...] = before - self.eps * direction
            low = self._values()
        finally:
            array[...] = before
        for a, b in zip(high, low):
            if a is not None and b is not None:
                if a.shape != b.shape:
                    raise AssertionError(
                        f"Expected `func` to return outputs with the same shape when inputs are perturbed on index ?, but got: {a.shape} and {b.shape}."
                    )
                if a.dtype != b.dtype:
                    raise AssertionError(
                        f"Expected `func` to return outputs with the same dtype when inputs are perturbed on index ?, but got: {a.dtype} and {b.dtype}."
                    )
        return [None if a is None else (a - b) / (2 * self.eps) for a, b in zip(high, low)]

    def _numerical(self, x, units):
        """For every unit (1 and, for complex inputs, 1j): the list over outputs of (elements of x, elements of y)."""
        result = []
        for unit in units:
            rows = []
            for place in np.ndindex(*x.array.shape):
                rows.append(self._difference(x, _one_hot(x.array, place) * unit))
            if rows:
                result.append(
                    [None if column[0] is None else np.stack([c.reshape(-1) for c in column]) for column in zip(*rows)]
                )
            else:
                result.append([None if y is None else np.zeros((0, y.size), y.dtype) for y in self._values()])
        return result

    def _expect_zero(self, func_out):
        for x in self.wanted:
            for block in self._numerical(x, _units(x))[0]:
                if block is not None and not np.allclose(block, 0, self.rtol, self.atol):
                    raise GradcheckError("Numerical gradient for function expected to be zero")
        del func_out

    # Reverse mode

    def _outputs(self, part):
        """The differentiable outputs after `part`, with their numbers among all outputs."""
        found = []
        for number, y in enumerate(_tuple(self.func(*self.inputs))):
            if _differentiable(y):
                y = part(y)
                if y is not None:
                    found.append((number, y))
        return found

    def _backward(self, part, prefix):
        compare = self._backward_fast if self.fast else self._backward_slow
        compare(part, prefix)

    def _backward_slow(self, part, prefix):
        numerical = [self._numerical(x, _units(x)) for x in self.wanted]
        for position, (number, y) in enumerate(self._outputs(part)):
            analytical = self._analytical(y)
            for i, x in enumerate(self.wanted):
                blocks = [_real_part(block[number], prefix) for block in numerical[i]]
                expected = blocks[0] + 1j * blocks[1] if len(blocks) == 2 else blocks[0]
                self._assert_close(analytical[i], expected, prefix, i, position)
                del x

    def _analytical(self, y):
        """The Jacobian of a real output with respect to each input, computed twice to see whether backward repeats itself."""
        first, second = self._rows(y), self._rows(y)
        for a, b in zip(first, second):
            if a.size and np.abs(a - b).max() > self.nondet_tol:
                raise GradcheckError(_NOT_REENTRANT.format(self.nondet_tol))
        return first

    def _rows(self, y):
        columns: list[list] = [[] for _ in self.wanted]
        for place in np.ndindex(*y.array.shape):
            g = np.zeros(y.array.shape, y.array.dtype)
            g[place] = 1
            for i, found in enumerate(self._gradients(y, Tensor._from(g))):
                columns[i].append(found.reshape(-1))
        return [
            np.stack(column, 1) if column else np.zeros((x.array.size, 0), x.array.dtype)
            for column, x in zip(columns, self.wanted)
        ]

    def _gradients(self, y, g):
        found = grad(y, self.wanted, g, retain_graph=True, allow_unused=True)
        out = []
        for x, each in zip(self.wanted, found):
            if each is None:
                out.append(np.zeros_like(x.array))
                continue
            if each.shape != x.shape:
                raise GradcheckError("Analytical gradient has incorrect size")
            if self.check_grad_dtypes and each.dtype is not x.dtype:
                raise GradcheckError("Gradient has dtype mismatch")
            out.append(np.asarray(each.array))
        return out

    def _assert_close(self, analytical, numerical, prefix, i, position, mode="", slow=None):
        if self._close(analytical, numerical):
            return
        what = f"Jacobian {mode}mismatch for output {position} with respect to input {i},"
        raise GradcheckError(f"{prefix}{what}\nnumerical:{_text(numerical)}\nanalytical:{_text(analytical)}\n" + (slow or ""))

    def _close(self, analytical, numerical) -> bool:
        same_nan = np.array_equal(np.isnan(analytical), np.isnan(numerical))
        return same_nan and np.allclose(analytical, numerical, self.rtol, self.atol, equal_nan=True)

    def _directions(self):
        """A random unit vector for every input (two for complex inputs: real and imaginary part), and what makes more."""
        from ..ops.random import Generator

        generator = Generator()

        def vector(array):
            v = REGISTRY["rand"](array.size, generator=generator, dtype=Tensor._from(array.real).dtype).array
            v /= np.sqrt((v * v).sum()) or 1
            return v.reshape(array.shape)

        return [[vector(x.array) for _ in _units(x)] for x in self.wanted], vector

    def _backward_fast(self, part, prefix):
        directions, vector = self._directions()
        outputs = self._outputs(part)
        cotangents = [vector(y.array) for _, y in outputs]
        numerical = [
            [self._difference(x, u * unit) for u, unit in zip(us, _units(x))] for x, us in zip(self.wanted, directions)
        ]
        for position, ((number, y), v) in enumerate(zip(outputs, cotangents)):
            g = Tensor._from(v.astype(y.array.dtype))
            first, second = self._gradients(y, g), self._gradients(y, g)
            for i, x in enumerate(self.wanted):
                if x.array.size and np.abs(first[i] - second[i]).max() > self.nondet_tol:
                    raise GradcheckError(_NOT_REENTRANT.format(self.nondet_tol))
                parts = [(first[i].real * directions[i][0]).sum()]
                if x.is_complex():
                    parts.append((first[i].imag * directions[i][1]).sum())
                expected = [(_real_part(d[number], prefix) * v).sum() for d in numerical[i]]
                a, n = (_number(values) for values in (parts, expected))
                scale = np.sum([u.sum() for u in directions[i]]) * v.sum()
                if abs(a - n) > self.atol * max(scale, 1e-300) + self.rtol * abs(n) or not np.isfinite(a - n):
                    raise GradcheckError(
                        f"{prefix}Jacobian mismatch for output {position} with respect to input {i},\nnumerical:{n}\nanalytical:{a}\n"
                        + self._slow_text(part, prefix, position, number, i)
                    )

    def _slow_text(self, part, prefix, position, number, i):
        numerical = [_real_part(block[number], prefix) for block in self._numerical(self.wanted[i], _units(self.wanted[i]))]
        n = numerical[0] + 1j * numerical[1] if len(numerical) == 2 else numerical[0]
        a = self._rows(self._outputs(part)[position][1])[i]
        return _FAST.format(_text(n), _text(a), np.abs(n - a).max())

    # What else backward must do

    def _check_batched(self, outputs):
        for y in outputs:
            gs = [_random_like(y).detach() for _ in range(2)]
            expected = [self._gradients(y, g) for g in gs]
            try:
                from ..ops.join import stack

                found = grad(y, self.wanted, stack(gs), retain_graph=True, allow_unused=True, is_grads_batched=True)
            except RuntimeError as error:
                raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{_BATCHED}") from error
            for i, g in enumerate(found):
                want = np.stack([e[i] for e in expected])
                have = np.zeros_like(want) if g is None else g.array
                if not np.allclose(have, want):
                    raise GradcheckError(
                        f"For output {i} and input {i}:\n\ngradcheck or gradgradcheck failed while testing batched gradient computation.\n"
                        f"Got:\n{have}\n\nExpected:\n{want}\n\n{_BATCHED}"
                    )

    def _check_multiplied(self, outputs):
        """Zero gradients of the outputs must give zero gradients of the inputs."""
        zeros = [Tensor._from(np.zeros_like(y.array)) for y in outputs]
        found = grad(outputs, self.wanted, zeros, retain_graph=True, allow_unused=True)
        for x, g in zip(self.wanted, found):
            if g is None:
                continue
            if np.any(g.array != 0):
                raise GradcheckError("backward not multiplied by grad_output")
            if g.shape != x.shape:
                raise GradcheckError("grad is incorrect size")
            if g.dtype is not x.dtype:
                raise GradcheckError("grad is incorrect type")

    def _check_undefined(self):
        outputs = [y for y in _tuple(self.func(*self.inputs)) if _differentiable(y)]
        self._expect_undefined([_without_gradient(y) for y in outputs])
        if len(outputs) > 1:  # each output in turn
            for i in range(len(outputs)):
                outputs = [y for y in _tuple(self.func(*self.inputs)) if _differentiable(y)]
                self._expect_undefined([_without_gradient(y) if k == i else y for k, y in enumerate(outputs)])

    def _expect_undefined(self, outputs):
        zeros = [Tensor._from(np.zeros_like(y.array)) for y in outputs]
        try:
            found = grad(outputs, self.wanted, zeros, allow_unused=True)
        except RuntimeError as error:
            _warn_of_undefined()
            raise GradcheckError(
                'Expected backward function to handle undefined output grads. Please look at "Notes about undefined output gradients" '
                'in "tools/autograd/derivatives.yaml"'
            ) from error
        for g in found:
            if g is not None and np.any(g.array != 0):
                _warn_of_undefined()
                raise GradcheckError(
                    "Expected all input grads to be undefined or zero when all output grads are undefined or zero. Please look at "
                    '"Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
                )

    # Forward mode

    def _dual_outputs(self, tangents):
        """The outputs of the function for dual inputs: as (primals, tangents) arrays. tangents: id of input -> tangent."""
        with forward_ad.dual_level():
            duals = {}
            for x in self.wanted:
                plain = x.detach()
                tangent = tangents.get(id(x))
                duals[id(x)] = plain if tangent is None else forward_ad.make_dual(plain, tangent)
            from ..utils._pytree import tree_map

            given = tree_map(lambda x: duals.get(id(x), x) if isinstance(x, Tensor) else x, self.inputs)
            outputs = [y for y in _tuple(self.func(*given)) if isinstance(y, Tensor)]
            return [tuple(forward_ad.unpack_dual(y)) for y in outputs]

    def _forward(self, unit, prefix):
        outputs = [y for y in _tuple(self.func(*self.inputs)) if isinstance(y, Tensor)]
        numbers = [i for i, y in enumerate(outputs) if _differentiable(y)]
        for i, x in enumerate(self.wanted):
            one = unit if x.is_complex() else 1
            one_hot = [_one_hot(x.array, place) * one for place in np.ndindex(*x.array.shape)]
            directions = [self._directions()[0][i][0] * one] if self.fast else one_hot
            if not directions:
                continue
            analytical, numerical = self._along(x, directions)
            for position, number in enumerate(numbers):
                slow = ""
                if self.fast and not self._close(analytical[number], numerical[number]):
                    a, n = (each[number] for each in self._along(x, one_hot))
                    slow = _FAST.format(_text(n), _text(a), np.abs(n - a).max())
                a, n = (each[number][0] if self.fast else each[number] for each in (analytical, numerical))
                self._assert_close(a, n, prefix, i, position, "computed with forward mode ", slow)

    def _along(self, x, directions) -> tuple[list[Any], list[Any]]:
        """Derivatives along directions in x, by forward mode and by differences: for each output (directions, elements)."""
        rows_a, rows_n = [], []
        for direction in directions:
            zeros = {id(y): Tensor._from(np.zeros_like(y.array)) for y in self.wanted}
            found = self._dual_outputs({**zeros, id(x): Tensor._from(direction.astype(x.array.dtype))})
            rows_a.append([(np.zeros_like(p.array) if t is None else t.array).reshape(-1) for p, t in found])
            rows_n.append([None if d is None else d.reshape(-1) for d in self._difference(x, direction)])
        analytical, numerical = ([None if c[0] is None else np.stack(c) for c in zip(*rows)] for rows in (rows_a, rows_n))
        return analytical, numerical

    def _check_undefined_forward(self):
        """Tangents that are zero and tangents that are None must give the same."""
        if len(self.wanted) < 2:
            self._dual_outputs({})
            return
        for k, x in enumerate(self.wanted):
            t = Tensor._from(np.ones_like(x.array))
            zeros = {id(y): Tensor._from(np.zeros_like(y.array)) for y in self.wanted}
            full = self._dual_outputs({**zeros, id(x): t})
            sparse = self._dual_outputs({id(x): t})
            for (p, a), (_, b) in zip(full, sparse):
                a, b = (np.zeros_like(p.array) if v is None else v.array for v in (a, b))
                if not np.allclose(a, b, self.rtol, self.atol):
                    raise GradcheckError(
                        f"Expected tangents to be the same whether the other inputs' tangents are zero or None (input {k})"
                    )

    def _check_batched_forward(self):
        from ..batching import Batched, VmapLevel, explicit
        from ..ops.join import stack

        for x in self.wanted:
            ts = [_random_like(x.detach()).detach() for _ in range(2)]
            loop = [self._dual_outputs({id(x): t}) for t in ts]
            try:
                with VmapLevel(2) as level:
                    level.functional = False
                    found = self._dual_outputs({id(x): Batched(stack(ts), level)})
                    whole = [None if t is None else explicit(t, level).array for _, t in found]
            except RuntimeError as error:
                raise GradcheckError(f"While computing batched gradients, got: {error}\n\n{_BATCHED}") from error
            for k, have in enumerate(whole):
                want = [each[k][1] for each in loop]
                want = np.stack([np.zeros_like(loop[0][k][0].array) if t is None else t.array for t in want])
                if not np.allclose(np.zeros_like(want) if have is None else have, want):
                    raise GradcheckError(
                        f"gradcheck or gradgradcheck failed while testing batched gradient computation.\n\n{_BATCHED}"
                    )


def _warn_of_undefined() -> None:
    warnings.warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may break existing "
        'callers of this function. If this is true for you, you can call this function with "check_undefined_grad=False" to disable '
        "the feature",
        stacklevel=6,
    )


_LONG = {"imag": "imaginary", "real": "real"}


def _units(x):
    return (1, 1j) if x.is_complex() else (1,)


def _real_part(block, prefix):
    if block.dtype.kind != "c":
        return block
    return block.imag if "imaginary part of complex outputs" in prefix else block.real


def _number(parts):
    value = complex(parts[0], parts[1]) if len(parts) == 2 else float(parts[0])
    return value


def _one_hot(array, place):
    result = np.zeros_like(array)
    result[place] = 1
    return result


def _text(array):
    return repr(Tensor._from(np.asarray(array)))


_FAST = """
The above quantities relating the numerical and analytical jacobians are computed\x20
in fast mode. See: https://github.com/pytorch/pytorch/issues/53876 for more background\x20
about fast mode. Below, we recompute numerical and analytical jacobians in slow mode:

Numerical:
 {}
Analytical:
{}

The max per-element difference (slow mode) is: {}.
"""
_NOT_REENTRANT = (
    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives different values, although "
    "analytical gradient matches numerical gradient.The tolerance for nondeterminism was {}.\n\nIf the function is meant to vary, allow for "
    "it with `nondet_tol=<tol>`."
)
_BATCHED = (
    "gradcheck or gradgradcheck failed while testing batched gradient computation.\nIt runs backward under vmap; an operation in the "
    "backward of your function doesn't work there. Call with `check_batched_grad=False` to leave this check out."
)


def _deprecated(name) -> None:
    warnings.warn(f"{name} was part of PyTorch's private API and not meant to be exposed. We are deprecating {name} and it will be removed "
                  "in a future version of PyTorch. If you have a specific use for this or feature request for this to be a stable API, "
                  "please file us an issue at https://github.com/pytorch/pytorch/issues/new", UserWarning, stacklevel=3)  # fmt: skip


def get_numerical_jacobian(fn, inputs, target=None, eps=1e-3, grad_out=1.0):
    """The Jacobians of the first output of `fn(inputs)` by finite differences (deprecated)."""
    _deprecated("get_numerical_jacobian")
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_numerical_jacobian no longer supports values of grad_out != 1.0.")
    check = _Check(lambda *given: fn(given), inputs, eps, 0, 0, 0, False, False)
    wanted = check.wanted if target is None else _wanted((target,))
    return tuple([Tensor._from(check._numerical(x, (1,))[0][0]) for x in wanted])


def get_analytical_jacobian(inputs, output, nondet_tol=0.0, grad_out=1.0):
    """(Jacobians, whether backward repeats itself, sizes fit, types fit) of an output (deprecated)."""
    _deprecated("get_analytical_jacobian")
    if grad_out != 1.0:
        raise ValueError("Expected grad_out to be 1.0. get_analytical_jacobian no longer supports values of grad_out != 1.0.")
    with enable_grad():
        check = _Check(lambda *_given: output, inputs, 1e-6, 0, 0, nondet_tol, True, False)
        first, second = check._rows(output), check._rows(output)
    same = all(not a.size or np.abs(a - b).max() <= nondet_tol for a, b in zip(first, second))
    return tuple(map(Tensor._from, first)), same, True, True
