"""einsum, tensordot and inner: sums of products by index notation, every pair of operands as one bmm."""

from __future__ import annotations

from .. import dtypes
from ..op import public, write_out
from .arrange import diagonal
from .linalg import bmm_, dot
from .pointwise import mul
from .reduce import sum
from .shape import expand, permute, reshape


def _with_letters(args):
    """The form einsum(a, [0, 1], b, [1, 2], [0, 2]) as an equation and operands."""

    def term(numbers):
        return "".join("..." if n is Ellipsis else chr(ord("A") + n) if n < 26 else chr(ord("a") + n - 26) for n in numbers)

    pairs = len(args) // 2
    equation = ",".join(term(args[2 * i + 1]) for i in range(pairs))
    if len(args) % 2:
        equation += "->" + term(args[-1])
    return equation, [args[2 * i] for i in range(pairs)]


def _labels(equation, operands):
    """Per operand a list of labels (ellipsis dimensions numbered from the right), and those of the result."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        more = "fewer" if len(operands) < len(terms) else "more"
        raise RuntimeError(f"einsum(): {more} operands were provided than specified in the equation")
    widest, parsed = 0, []
    for i, (term, x) in enumerate(zip(terms, operands, strict=True)):
        named = list(term.replace("...", ""))
        if any(not c.isalpha() for c in named):
            bad = next(c for c in named if not c.isalpha())
            raise RuntimeError(f"einsum(): invalid subscript given at index {term.index(bad)} in the equation string, subscripts "
                               "must be in [a-zA-Z]")  # fmt: skip
        extra = x.array.ndim - len(named)
        if extra < 0 or (extra and "..." not in term):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(named)}) "
                + ("is more than" if "..." in term else "does not match")
                + f" the number of dimensions ({x.array.ndim}) for operand {i}"
                + ("" if "..." in term else " and no ellipsis was given")
            )
        before, _dots, after = term.partition("...")
        dots = [f".{k}" for k in range(extra, 0, -1)] if "..." in term else []
        widest = max(widest, len(dots))
        parsed.append([*before, *dots, *after])
    ellipsis = [f".{k}" for k in range(widest, 0, -1)]
    if arrow:
        for c in right.replace("...", ""):
            if not c.isalpha():
                raise RuntimeError(f"einsum(): invalid subscript given at index {len(left) + 2 + right.index(c)} in the equation string, "
                                   "subscripts must be in [a-zA-Z]")  # fmt: skip
        before, dots, after = right.partition("...")
        result = [*before, *(ellipsis if dots else []), *after]
        for c in result:
            if not any(c in labels for labels in parsed):
                raise RuntimeError(f"einsum(): output subscript {c} does not appear in the equation for any input operand")
            if result.count(c) > 1:
                raise RuntimeError(f"einsum(): output subscript {c} appears more than once in the output")
    else:
        flat = [c for labels in parsed for c in labels]
        result = ellipsis + sorted(c for c in set(flat) if flat.count(c) == 1 and c[0] != ".")
    return parsed, result


def _take_diagonals(x, labels):
    """x with one dimension per label: repeated labels pick a diagonal."""
    while len(set(labels)) < len(labels):
        c = next(c for c in labels if labels.count(c) > 1)
        i = labels.index(c)
        j = labels.index(c, i + 1)
        if x.array.shape[i] != x.array.shape[j]:
            raise RuntimeError(f"einsum(): subscript {c} is repeated for operand 0 but the sizes don't match, "
                               f"{x.array.shape[j]} != {x.array.shape[i]}")  # fmt: skip
        x = diagonal(x, 0, i, j)
        labels = [k for n, k in enumerate(labels) if n not in (i, j)] + [c]
    return x, labels


def _contract(x, a, y, b, keep):
    """One pair: (x with labels a, y with labels b) -> (product, labels), summing what `keep` doesn't name."""

    def sum_alone(x, own, other):
        alone = [i for i, c in enumerate(own) if c not in other and c not in keep]
        return (sum(x, tuple(alone)), [c for c in own if c in other or c in keep]) if alone else (x, own)

    x, a = sum_alone(x, a, b)
    y, b = sum_alone(y, b, a)
    sizes: dict = {}
    for labels, shape in ((a, x.array.shape), (b, y.array.shape)):
        for c, n in zip(labels, shape, strict=True):
            sizes[c] = max(sizes.get(c, 1), n) if n != 0 else 0
    shared = [c for c in a if c in b]
    batch, summed = [c for c in shared if c in keep], [c for c in shared if c not in keep]
    left, right = [c for c in a if c not in b], [c for c in b if c not in a]

    def arrange(x, labels, order):
        x = permute(x, [labels.index(c) for c in order]) if labels != order else x
        shape = tuple([sizes[c] for c in order])
        return expand(x, shape) if x.array.shape != shape else x

    def count(labels):
        total = 1
        for c in labels:
            total *= sizes[c]
        return total

    x = reshape(arrange(x, a, batch + left + summed), (count(batch), count(left), count(summed)))
    y = reshape(arrange(y, b, batch + summed + right), (count(batch), count(summed), count(right)))
    labels = batch + left + right
    return reshape(bmm_(x, y), [sizes[c] for c in labels]), labels


@public(method=False)
def einsum(*args):
    """Sums of products by index notation: einsum("ij,jk->ik", a, b) is a matrix product. Differentiable in all.

    Repeated indices take diagonals, "..." stands for any dimensions; products are taken from left to right.
    """
    equation, *operands = args or ("",)
    if len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = operands[0]
    if not operands:
        raise ValueError("einsum(): must specify the equation string and at least one operand, or at least one operand and its "
                         "subscripts list")  # fmt: skip
    if not isinstance(equation, str):
        equation, operands = _with_letters(args)
    t0 = dtypes.promote([x.array for x in operands])
    operands = [x.to(t0) for x in operands]
    parsed, result = _labels(equation, operands)
    seen: dict = {}
    for i, (x, labels) in enumerate(zip(operands, parsed, strict=True)):
        for c, n in zip(labels, x.array.shape, strict=True):
            if n != 1 and seen.setdefault(c, n) != n and labels.count(c) == 1:
                raise RuntimeError(f"einsum(): subscript {c} has size {n} for operand {i} which does not broadcast with previously seen "
                                   f"size {seen[c]}")  # fmt: skip
    x, labels = _take_diagonals(operands[0], parsed[0])
    for i in range(1, len(operands)):
        y, other = _take_diagonals(operands[i], parsed[i])
        later = {c for k in parsed[i + 1 :] for c in k} | set(result)
        x, labels = _contract(x, labels, y, other, later)
    gone = tuple(i for i, c in enumerate(labels) if c not in result)
    if gone:
        x, labels = sum(x, gone), [c for c in labels if c in result]
    return permute(x, [labels.index(c) for c in result]) if labels != result else x


@public()
def tensordot(a, b, dims=2):
    """Sums products over `dims`: a number of trailing/leading dimensions, or two lists. Differentiable in both."""
    if isinstance(dims, int):
        dims = (list(range(-dims, 0)), list(range(dims)))
    given = {d % a.array.ndim: d for d in dims[0]}
    first, second = ([d % x.array.ndim for d in ds] for x, ds in zip((a, b), dims, strict=True))
    names = [f"a{i}" for i in range(a.array.ndim)]
    others = [f"b{i}" for i in range(b.array.ndim)]
    for i, j in zip(first, second, strict=True):
        if a.array.shape[i] == 1 or b.array.shape[j] == 1:
            a = sum(a, i, True) if a.array.shape[i] != 1 else a
            b = sum(b, j, True) if b.array.shape[j] != 1 else b
        elif a.array.shape[i] != b.array.shape[j]:
            raise RuntimeError(f"contracted dimensions need to match, but first has size {a.array.shape[i]} in dim {given[i]} and second "
                               f"has size {b.array.shape[j]} in dim {j}")  # fmt: skip
        others[j] = names[i]
    keep = [c for c in names + others if (c in names) != (c in others)]
    x, labels = _contract(a, names, b, others, set(keep))
    return permute(x, [labels.index(c) for c in keep]) if keep else x


@public()
def inner(input, other, *, out=None):
    """Sums of products over the last dimensions. (*S, K), (*T, K) -> (*S, *T). Differentiable in both."""
    if not input.array.ndim or not other.array.ndim:
        result = mul(input, other)
    else:
        if input.array.shape[-1] != other.array.shape[-1]:
            raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes "
                               f"{list(input.array.shape)} and {list(other.array.shape)}")  # fmt: skip
        vectors = input.array.ndim == 1 and other.array.ndim == 1
        result = dot(input, other) if vectors else tensordot(input, other, ([-1], [-1]))
    return result if out is None else write_out(out, result)
