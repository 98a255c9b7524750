"""Matrix products: mm, bmm, matmul, addmm, einsum; and vector norms. Decompositions are in decompositions.py."""

from __future__ import annotations

import numpy as np

from .. import batching, dtypes, views
from ..op import check_broadcast, face, op, public, twin, write_out
from ..tensor import Tensor, dimension
from .arrange import diagonal
from .cast import to
from .check import not_implemented, not_tensor
from .choose import where_zero
from .pointwise import abs, mul, sgn
from .reduce import dims_of, keep_dims, spread, sum
from .shape import _t, _unsafe_view, expand, reshape, squeeze, sum_to_size_, t, transpose, unsqueeze


def _bmm_arrays(a, b):
    if a.ndim == 3 and len(a) == len(b):  # under vmap there are more dimensions
        if a.shape[2] == b.shape[1] == 1:  # products of columns and rows, which np.matmul computes without BLAS
            return np.multiply(a, b, order="C")
        if b.strides[0] == 0 and len(b) > 1:  # one matrix for all of the batch, as of a layer under vmap
            size, n, k = a.shape
            return a.reshape(size * n, k).dot(b[0]).reshape(size, n, b.shape[2])
    return np.matmul(a, b)


# x @ w.t() is how a linear layer uses its weight, so the gradient of a right factor is computed as the transpose of
# a row-major product: its transpose, the weight's gradient, then needs no copy.
# `dot` takes less time than np.matmul before it calls BLAS, and it leaves to BLAS also the product of a column and a row.
mm_ = op("mm", np.ndarray.dot,
    lambda g, _input, mat2, _out: mm_(g, t(mat2)),
    lambda g, input, _mat2, _out: t(mm_(t(g), input)), batch=batching.matmul_rule)  # fmt: skip
bmm_ = op("bmm", _bmm_arrays,
    lambda g, _input, mat2, _out: bmm_(g, transpose(mat2, -2, -1)),
    lambda g, input, _mat2, _out: bmm_(transpose(input, -2, -1), g), batch="leading")  # fmt: skip
mv_ = op("mv", np.ndarray.dot,
    lambda g, _input, vec, _out: mul(unsqueeze(g, 1), vec),
    lambda g, input, _vec, _out: mv_(t(input), g), batch=batching.matmul_rule)  # fmt: skip
dot_ = op("dot", lambda a, b: np.dot(a, b),
    lambda g, _input, tensor, _out: mul(g, tensor),
    lambda g, input, _tensor, _out: mul(g, input), batch=batching.dot_rule)  # fmt: skip


def _addmm_arrays(bias, a, b):
    product = a.dot(b)
    product += bias
    return product


addmm_ = op("addmm", _addmm_arrays,
    lambda g, input_shape, _mat1, _mat2, _out: sum_to_size_(g, input_shape),
    lambda g, _input, _mat1, mat2, _out: mm_(g, t(mat2)),
    lambda g, _input, mat1, _mat2, _out: t(mm_(t(g), mat1)), batch=batching.addmm_rule)  # fmt: skip


def _addmm_arrays(bias, a, b, beta, alpha):
    product = a.dot(b) * a.dtype.type(alpha)
    return product if beta == 0 else product + bias * a.dtype.type(beta)  # a bias that counts zero times may be NaN


_addmm_scaled = op("addmm_scaled", _addmm_arrays,
    lambda g, input_shape, _mat1, _mat2, _out, beta, _alpha: sum_to_size_(g, input_shape) * beta,
    lambda g, _input, _mat1, mat2, _out, _beta, alpha: mm_(g, t(mat2)) * alpha,
    lambda g, _input, mat1, _mat2, _out, _beta, alpha: t(mm_(t(g), mat1)) * alpha,
    node="AddmmBackward0", batch=batching.addmm_rule)  # fmt: skip


def _same_type(a, b):
    if a.array.dtype != b.array.dtype:
        names = [{"Half": "c10::Half", "BFloat16": "c10::BFloat16"}.get(n, n.lower())
                 for n in (dtypes.scalar_type_name(a.dtype), dtypes.scalar_type_name(b.dtype))]  # fmt: skip
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {names[0]} != {names[1]}")


def _check_mm(a, b):
    x, y = a.array, b.array
    if x.ndim != 2 or y.ndim != 2:
        raise RuntimeError(f"{'self' if x.ndim != 2 else 'mat2'} must be a matrix")
    if x.dtype == bool:
        raise not_implemented("addmm_impl_cpu_", a)
    if x.shape[1] != y.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({x.shape[0]}x{x.shape[1]} and {y.shape[0]}x{y.shape[1]})"
        )
    if x.dtype is not y.dtype:
        _same_type(a, b)


@public()
def mm(input, mat2, *, out=None):
    """The matrix product. (M, K), (K, N) -> (M, N). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(mat2, Tensor)):
        raise not_tensor("mm", input=input, mat2=mat2)
    _check_mm(input, mat2)
    result = mm_(input, mat2)
    return result if out is None else write_out(out, result)


@public()
def bmm(input, mat2, *, out=None):
    """Matrix products of a batch. (B, M, K), (B, K, N) -> (B, M, N). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(mat2, Tensor)):
        raise not_tensor("bmm", input=input, mat2=mat2)
    x, y = input.array, mat2.array
    if x.ndim != 3 or y.ndim != 3:
        raise RuntimeError(f"batch{1 if x.ndim != 3 else 2} must be a 3D tensor")
    if x.shape[0] != y.shape[0] or x.shape[2] != y.shape[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{x.shape[0]}, {x.shape[2]}] but got: "
            f"[{y.shape[0]}, {y.shape[1]}]."
        )
    _same_type(input, mat2)
    result = bmm_(input, mat2)
    return result if out is None else write_out(out, result)


@public()
def mv(input, vec, *, out=None):
    """The product of a matrix and a vector. (M, N), (N) -> (M). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(vec, Tensor)):
        raise not_tensor("mv", input=input, vec=vec)
    x, y = input.array, vec.array
    if x.ndim != 2 or y.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {x.ndim}, {y.ndim}")
    if x.shape[1] != y.shape[0]:
        raise RuntimeError(f"size mismatch, got input ({x.shape[0]}), mat ({x.shape[0]}x{x.shape[1]}), vec ({y.shape[0]})")
    _same_type(input, vec)
    result = mv_(input, vec)
    return result if out is None else write_out(out, result)


def check_dot(input, tensor, kernel):
    """RuntimeError unless these are two vectors of one type and length."""
    x, y = input.array, tensor.array
    if x.ndim != 1 or y.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {x.ndim}D and {y.ndim}D tensors")
    if x.dtype == bool:
        raise not_implemented(kernel, input)
    if x.dtype != y.dtype:
        names = [dtypes.scalar_type_name(v.dtype) for v in (input, tensor)]
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {names[0]} and {names[1]}")
    if x.shape != y.shape:
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{x.size}] and src [{y.size}] to have the same number of "
                           f"elements, but got {x.size} and {y.size} elements respectively")  # fmt: skip


@public()
def dot(input, tensor, *, out=None):
    """The sum of the products of two vectors. (N), (N) -> (). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(tensor, Tensor)):
        raise not_tensor("dot", input=input, tensor=tensor)
    check_dot(input, tensor, "dot")
    result = dot_(input, tensor)
    return result if out is None else write_out(out, result)


@public(aliases=("ger",))
def outer(input, vec2, *, out=None):
    """All products of two vectors' elements. (M), (N) -> (M, N). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(vec2, Tensor)):
        raise not_tensor("outer", input=input, vec2=vec2)
    if input.array.ndim != 1 or vec2.array.ndim != 1:
        bad = input if input.array.ndim != 1 else vec2
        raise RuntimeError(f"outer: Expected 1-D argument {'self' if bad is input else 'vec2'}, but got {bad.array.ndim}-D")
    result = mul(reshape(input, -1, 1), vec2)
    return result if out is None else write_out(out, result)


@public()
def matmul(input, other, *, out=None):
    """The matrix product with NumPy's rules: vectors become rows or columns, leading dimensions broadcast.

    (..., M, K), (..., K, N) -> (..., M, N). Differentiable in both.

    >>> import backlight as torch
    >>> (torch.ones(2, 3) @ torch.ones(3)).shape
    torch.Size([2])
    """
    try:
        result = _matmul(input, other)
    except AttributeError:
        raise not_tensor("matmul", input=input, other=other) from None
    return result if out is None else write_out(out, result)


_first_row = op(
    "first_row",
    lambda x: x[0],
    lambda g, _input, _out: unsqueeze(g, 0),
    node="SqueezeBackward4",
    batch=batching.first_row_rule,
)


def _matmul(a, b):
    x, y = a.array, b.array
    m, n = x.ndim, y.ndim
    if m == 2 and n == 2:
        return mm(a, b)
    if m == 0 or n == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {m}D and {n}D")
    if m == 1 and n == 1:
        return dot(a, b)
    if m == 2 and n == 1:
        return mv(a, b)
    if m == 1 and n == 2:
        row = _first_row(mm(unsqueeze(a, 0), b))
        views.bump(row)  # PyTorch squeezes the product in place
        return row
    _same_type(a, b)
    if m == 3 and n == 3 and x.shape[0] != y.shape[0]:  # a batch of one counts as a matrix
        if y.shape[0] == 1 and b.requires_grad:
            b, n = squeeze(b, 0), 2
        elif x.shape[0] == 1 and (a.requires_grad or not b.requires_grad):
            a, m = squeeze(a, 0), 2
    if _is_one_product(a, b):
        return _one_product(a, b) if m >= n else _one_product(transpose(b, -2, -1), a.t() if m == 2 else a, swapped=m == 2)
    left, right = (unsqueeze(a, 0) if m == 1 else a), (unsqueeze(b, 1) if n == 1 else b)
    x, y = left.array, right.array
    check_broadcast(x.shape[:-2], y.shape[:-2])
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    count = int(np.prod(batch))
    if x.shape[-1] != y.shape[-2]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{count}, {x.shape[-1]}] "
            f"but got: [{count}, {y.shape[-2]}]."
        )
    left = reshape(expand(left, (*batch, *x.shape[-2:])), (count, *x.shape[-2:]))
    right = reshape(expand(right, (*batch, *y.shape[-2:])), (count, *y.shape[-2:]))
    product = bmm_(left, right)
    if n == 1:
        return _unsafe_view(squeeze(product, -1), (*batch, x.shape[-2]))
    return _unsafe_view(product, (*batch, *(x.shape[-2:-1] if m > 1 else ()), y.shape[-1]))


def _is_one_product(a, b):
    """Whether many products with one matrix or vector are computed as a single one, as PyTorch decides it."""
    large, small = (a, b) if a.array.ndim >= b.array.ndim else (b, a)
    x = large.array
    if small.array.ndim > 2:
        return False
    if small.requires_grad:
        return True
    if a.array.ndim == 2:
        return False
    if not x.size:
        return True
    if not isinstance(x, np.ndarray):  # under vmap
        return False
    if large is b:  # its transpose is what the product would take
        x = x.swapaxes(-2, -1)
    return all(x.shape[i] == 1 or x.strides[i] == x.strides[i + 1] * x.shape[i + 1] for i in range(x.ndim - 2))


def _one_product(a, b, swapped=False):
    """a @ b for a stack of matrices a and a matrix or vector b, in one product; transposed if `swapped`."""
    x, y = a.array, b.array
    rows = reshape(a, _rows(x), x.shape[-1])
    if y.ndim == 1:
        if x.shape[-1] != y.shape[0]:
            raise RuntimeError(f"size mismatch, got input ({_rows(x)}), mat ({_rows(x)}x{x.shape[-1]}), vec ({y.shape[0]})")
        return _unsafe_view(mv(rows, b), x.shape[:-1])
    product = _unsafe_view(mm(rows, b), (*x.shape[:-1], y.shape[1]))
    return transpose(product, -2, -1).contiguous() if swapped else product


def _rows(x):
    rows = 1
    for n in x.shape[:-1]:
        rows *= n
    return rows


def _operator(self, other):
    return _matmul(self, other) if isinstance(other, Tensor) else NotImplemented


def _reflected(self, other):
    return _matmul(other, self) if isinstance(other, Tensor) else NotImplemented


Tensor.__matmul__, Tensor.__rmatmul__ = _operator, lambda self, other: matmul(other, self)
face(matmul, name="matmul", module="linalg", method=False)


def _scaled(bias, product, beta, alpha):
    """beta * bias + alpha * product; a bias that counts zero times isn't looked at, so its NaN doesn't matter."""
    t = dtypes.promote([bias.array, product.array])
    if t.category < 2:  # the factors count as numbers of the result's type
        alpha, beta = (bool(v) if t is dtypes.bool_ else int(v) for v in (alpha, beta))
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


@public(inplace=True)
def addmm(input, mat1, mat2, *, beta=1, alpha=1, out=None):
    """beta * input + alpha * mat1 @ mat2. (broadcasts to (M, N)), (M, K), (K, N) -> (M, N). Differentiable in all."""
    bias, x, y = input.array, mat1.array, mat2.array
    if (
        beta == 1 == alpha
        and x.ndim == y.ndim == 2
        and bias.dtype is x.dtype is y.dtype
        and x.dtype.kind == "f"
        and out is None
    ):
        try:
            return addmm_(input, mat1, mat2)
        except ValueError:  # shapes that don't fit: said below
            pass
    _same_three(input, mat1, mat2)
    _check_mm(mat1, mat2)
    if beta == 1 and alpha == 1 and input.array.dtype == mat1.array.dtype:
        shape = (mat1.array.shape[0], mat2.array.shape[1])
        if input.array.ndim > 2 or any(n not in (1, m) for n, m in zip(input.array.shape[::-1], shape[::-1], strict=False)):
            raise RuntimeError(
                f"The expanded size of the tensor ({shape[-1]}) must match the existing size ({input.array.shape[-1]}) at "
                f"non-singleton dimension {len(shape) - 1}.  Target sizes: {list(shape)}.  Tensor sizes: "
                f"{list(input.array.shape)}"
            )
        result = addmm_(input, mat1, mat2)
    else:
        result = _addmm_scaled(input, mat1, mat2, beta, alpha) if mat1.dtype.category > 1 else \
            _scaled(input, mm(mat1, mat2), beta, alpha)  # fmt: skip
    return result if out is None else write_out(out, result)


@public(inplace=True)
def addmv(input, mat, vec, *, beta=1, alpha=1, out=None):
    """beta * input + alpha * mat @ vec. Differentiable in all."""
    result = _scaled(input, mv(mat, vec), beta, alpha)
    return result if out is None else write_out(out, result)


@public(inplace=True)
def addr(input, vec1, vec2, *, beta=1, alpha=1, out=None):
    """beta * input + alpha * outer(vec1, vec2). Differentiable in all."""
    result = _scaled(input, outer(vec1, vec2), beta, alpha)
    return result if out is None else write_out(out, result)


@public(inplace=True)
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1, out=None):
    """beta * input + alpha * batch1 @ batch2. Differentiable in all."""
    result = _scaled(input, bmm(batch1, batch2), beta, alpha)
    return result if out is None else write_out(out, result)


@public(method=False, module="nn.functional")
def linear(input, weight, bias=None, *, out=None):
    """input @ weight.T + bias. (..., I), (O, I), (O) -> (..., O). Differentiable in all."""
    if out is not None:
        return write_out(out, linear(input, weight, bias), "linear", exact=True)
    try:
        x, w = input.array, weight.array
    except AttributeError:
        raise not_tensor("linear", input=input, weight=weight) from None
    if bias is not None and x.ndim == 2 and x.dtype is w.dtype:
        try:
            return addmm_(bias, input, _t(weight))
        except ValueError:  # shapes that don't fit: said below
            pass
    if w.ndim == 2 and x.ndim >= 1 and x.shape[-1] != w.shape[1]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({_rows(x)}x{x.shape[-1]} and {w.shape[1]}x{w.shape[0]})"
        )
    if bias is None:
        return _matmul(input, t(weight))
    if x.ndim == 2:
        _same_three(bias, input, weight)
        return addmm(bias, input, t(weight))
    if w.ndim == 1:
        return _matmul(input, weight) + bias
    flat = reshape(input, _rows(x), x.shape[-1])
    _same_three(bias, input, weight)
    return reshape(addmm_(bias, flat, t(weight)), (*x.shape[:-1], w.shape[0]))


def _same_three(bias, mat1, mat2):
    for name, x in (("self", bias), ("mat1", mat1)):
        if x.array.dtype != mat2.array.dtype:
            kinds = [dtypes.scalar_type_name(v.dtype) for v in (x, mat2)]
            raise RuntimeError(f"{name} and mat2 must have the same dtype, but got {kinds[0]} and {kinds[1]}")


# Norms


def _vector_norm_arrays(x, ord, dims, keepdim):
    size = np.abs(x)
    if ord == 2:
        return np.sqrt(np.add.reduce(size * size, dims, keepdims=keepdim))
    if ord == 1:
        return np.add.reduce(size, dims, keepdims=keepdim)
    if ord == float("inf"):
        return np.maximum.reduce(size, dims, keepdims=keepdim)
    if ord == -float("inf"):
        return np.minimum.reduce(size, dims, keepdims=keepdim)
    if ord == 0:
        return np.add.reduce(size != 0, dims, keepdims=keepdim).astype(size.dtype)
    return np.add.reduce(size**ord, dims, keepdims=keepdim) ** (1.0 / ord)


def _vector_norm_gradient(g, input, out, ord, dims, _keepdim):
    """The subgradient that PyTorch chooses: zero where the norm is zero."""
    if ord == 0:
        return input * 0
    whole, g, norm = g, spread(g, input.shape, dims), keep_dims(out, input.shape, dims)
    if ord == 2:
        return g * where_zero(norm == 0, input / norm)
    if ord == 1:
        return g * sgn(input)
    if ord in (float("inf"), -float("inf")):
        hit = as_type(abs(input) == norm, input)
        return g * sgn(input) * (hit / sum(hit, dims, True))
    size = abs(input)
    if ord < 1:
        return sgn(input) * where_zero(size == 0, size ** (ord - 1)) * (g * norm ** (1 - ord))
    scale = where_zero(
        norm == 0, keep_dims(whole, input.shape, dims) / norm ** (ord - 1)
    )  # (so PyTorch's second gradient at 0 is NaN, and ours)
    return sgn(input) * (where_zero(size == 0, size ** (ord - 1)) if ord < 2 else size ** (ord - 1)) * scale


@twin(lambda mask, like: mask.astype(like.real.dtype))
def as_type(mask, like):
    """A bool mask as numbers of the other's real type."""
    return mask.to(like.dtype.to_real())


_vector_norm = op("vector_norm", _vector_norm_arrays, _vector_norm_gradient, node="LinalgVectorNormBackward0",
                  holomorphic=False, batch=batching.some_dims)  # fmt: skip


@public(method=False, module="linalg", name="vector_norm")
def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None, out=None):
    """(sum |x|^ord)^(1/ord) over `dim` (all if None); ord may be inf, -inf or 0. Differentiable (0 at 0)."""
    if dtype is not None:
        x = to(x, dtype)
    if x.array.dtype.kind in "biu":
        raise RuntimeError("linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
                           f"{dtypes.scalar_type_name(x.dtype)}")  # fmt: skip
    dims = dims_of(dim, x.array.ndim)
    if not x.array.size and (ord < 0 or ord == float("inf")) and any(not x.array.shape[d] for d in dims):
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the operation does not have an "
            "identity"
        )
    result = _vector_norm(x, float(ord), dims, keepdim)
    return result if out is None else write_out(out, result)


@public()
def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """The vector norm over `dim`, or a matrix norm ("fro", "nuc"). Differentiable."""
    if dtype is not None:
        input = to(input, dtype)
    if p == "nuc":
        from .matrix_norms import matrix_norm

        n = input.array.ndim
        if dim is None and n != 2:
            raise RuntimeError("linalg.matrix_norm: dim must be a 2-tuple")
        result = matrix_norm(input, "nuc", (0, 1) if dim is None else dim, keepdim)
    else:
        if input.array.dtype.kind in "biu":
            raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
                               f"{dtypes.scalar_type_name(input.dtype)}")  # fmt: skip
        dims = dims_of(dim, input.array.ndim)
        if isinstance(p, str) and p != "fro":
            raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
        if p == "fro" and dim is not None and len(dims) > 2:
            raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(dims)}")
        result = vector_norm(input, 2 if p in ("fro", None) else p, dims, keepdim)
    return result if out is None else write_out(out, result)


# Products of other kinds


@public()
def trace(input):
    """The sum of a matrix's diagonal. Differentiable."""
    if input.array.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.array.ndim}")
    return sum(diagonal(input))


@public()
def kron(input, other):
    """The Kronecker product: every element of input times all of other. Differentiable in both."""
    n = max(input.array.ndim, other.array.ndim)
    a, b = ((1,) * (n - x.array.ndim) + x.array.shape for x in (input, other))
    left = reshape(input, [k for size in a for k in (size, 1)])
    right = reshape(other, [k for size in b for k in (1, size)])
    return reshape(mul(left, right), [p * q for p, q in zip(a, b, strict=True)])


def _cross_arrays(a, b, dim):
    a, b = np.broadcast_arrays(a, b)
    return np.cross(a, b, axis=dim)


_cross = op("linalg_cross", _cross_arrays,
    lambda g, _input, other, _out, dim: _cross(other, g, dim),
    lambda g, input, _other, _out, dim: _cross(g, input, dim), batch="leading")  # fmt: skip


@public(method=False, module="linalg", name="cross")
def _linalg_cross(input, other, *, dim=-1, out=None):
    """The cross product of vectors of 3 elements along `dim`. Differentiable in both."""
    if input.array.ndim != other.array.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    d = dimension(dim, input.array.ndim)
    if input.array.shape[d] != 3 or other.array.shape[d] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.array.shape[d]} and "
                           f"{other.array.shape[d]}")  # fmt: skip
    check_broadcast(input.array.shape, other.array.shape)
    shape = np.broadcast_shapes(input.array.shape, other.array.shape)
    result = _cross(expand(input, shape), expand(other, shape), d)
    return result if out is None else write_out(out, result)


@public()
def cross(input, other, dim=None, *, out=None):
    """The cross product of vectors of 3 elements along `dim` (the first of size 3 if None). Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("cross", input=input, other=other)
    if dim is None:
        if 3 not in input.array.shape:
            raise RuntimeError("no dimension of size 3 in input")
        dim = input.array.shape.index(3)
    return _linalg_cross(input, other, dim=dim, out=out)


@public(inplace=True)
def addbmm(input, batch1, batch2, *, beta=1, alpha=1, out=None):
    """beta * input + alpha * the sum of batch1 @ batch2 over the batch. Differentiable in all."""
    result = _scaled(input, sum(bmm(batch1, batch2), 0), beta, alpha)
    return result if out is None else write_out(out, result)


@public()
def dist(input, other, p=2):
    """The p-norm of input - other. Differentiable in both."""
    if not (isinstance(input, Tensor) and isinstance(other, Tensor)):
        raise not_tensor("dist", input=input, other=other)
    return vector_norm(input - other, p)


@public(method=False)
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The p-norm distances of all pairs of rows. (*, P, M), (*, R, M) -> (*, P, R). Differentiable in both."""
    del compute_mode
    if x1.array.ndim < 2 or x2.array.ndim < 2:
        raise RuntimeError(f"cdist only supports at least 2D tensors, X{1 if x1.array.ndim < 2 else 2} got: "
                           f"{(x1 if x1.array.ndim < 2 else x2).array.ndim}D")  # fmt: skip
    if x1.array.shape[-1] != x2.array.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.array.shape[-1]} X2: {x2.array.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    return vector_norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, -1)
