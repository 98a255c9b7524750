"""Distributions of vectors and matrices: multivariate normal, Wishart, and LKJ's of correlation matrices."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import backlight  # for `backlight.linalg`, which loads when it is first used

from .. import (
    Size,
    Tensor,
    arange,
    broadcast_shapes,
    broadcast_tensors,
    cat,
    einsum,
    eye,
    finfo,
    nan,
    randn,
    tensor,
    tril_indices,
)
from ..autograd.modes import no_grad
from . import constraints
from .continuous import Beta, Chi2
from .distribution import Distribution, ExponentialFamily
from .utils import NUMBER, broadcast_all, lazy_property, standard_normal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["LKJCholesky", "LowRankMultivariateNormal", "MultivariateNormal", "Wishart"]


def matrix_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """The product, with broadcasting of the batches."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """xᵀ (L Lᵀ)⁻¹ x for lower triangular L, (*T, n, n), and x, (*S, n), where *S ends like *T or broadcasts it. -> (*S)."""
    n, batch = x.size(-1), factor.shape[:-2]
    outer = x.dim() - 1 - len(batch)
    # Each batch dimension of x is split into a part that L lacks and one that it has, and x is made (rest, L's batch, n)
    split = [part for size, own in zip(x.shape[outer:-1], batch) for part in (size // own, own)]
    x = x.reshape(*x.shape[:outer], *split, n)
    rest, own = range(outer, x.dim() - 1, 2), range(outer + 1, x.dim() - 1, 2)
    order = [*range(outer), *rest, *own, x.dim() - 1]
    moved = x.permute(order)
    flat = moved.reshape(-1, math.prod(batch), n)
    solved = backlight.linalg.solve_triangular(factor.reshape(-1, n, n), flat.permute(1, 2, 0), upper=False)
    squares = solved.pow(2).sum(-2).t().reshape(moved.shape[:-1])
    inverse = sorted(range(len(order) - 1), key=order.__getitem__)
    result = squares.permute(inverse)
    return result.reshape([*x.shape[:outer], *(split[i] * split[i + 1] for i in range(0, len(split), 2))])


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse: that of the matrix turned around, turned back, is an inverse factor's transpose."""
    turned = backlight.linalg.cholesky(precision.flip((-2, -1)))
    inverse = turned.flip((-2, -1)).transpose(-2, -1)
    return backlight.linalg.solve_triangular(inverse, eye(precision.shape[-1], dtype=precision.dtype), upper=False)


def log_diagonal(factor: Tensor) -> Tensor:
    """The logarithm of a triangular matrix's determinant."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _factor_of(covariance_matrix: Tensor | None, precision_matrix: Tensor | None, scale_tril: Tensor | None) -> Tensor:
    """The Cholesky factor of the covariance, from the one that is given."""
    if scale_tril is not None:
        return scale_tril
    if covariance_matrix is not None:
        return backlight.linalg.cholesky(covariance_matrix)
    return precision_to_scale_tril(precision_matrix)  # pyright: ignore[reportArgumentType]


class MultivariateNormal(Distribution):
    """The normal distribution of vectors with mean loc, and a covariance matrix, its inverse, or its Cholesky factor.

    >>> import backlight as torch
    >>> d = torch.distributions.MultivariateNormal(torch.zeros(2), torch.tensor([[2.0, 1.0], [1.0, 2.0]]))
    >>> d.log_prob(torch.tensor([1.0, 0.0]))
    tensor(-2.7205)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {
            "scale_tril": scale_tril,
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
        }
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given
        if matrix.dim() < 2:
            words = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(f"{words} must be at least two-dimensional, with optional leading batch dimensions")
        batch_shape = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand(batch_shape + (-1, -1)))
        self.loc = loc.expand(batch_shape + (-1,))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        self._unbroadcasted_scale_tril = _factor_of(covariance_matrix, precision_matrix, scale_tril)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(MultivariateNormal, _instance)
        shape = Size(batch_shape) + self.event_shape
        new.loc = self.loc.expand(shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                setattr(new, name, self.__dict__[name].expand(shape + self.event_shape))
        return self._initialize(new, Size(batch_shape))

    def _expanded(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)  # pyright: ignore

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance matrix."""
        return self._expanded(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix."""
        return self._expanded(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        return self._expanded(self._unbroadcasted_scale_tril.cholesky_inverse())

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._extended_shape())

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        noise = standard_normal(self._extended_shape(sample_shape), self.loc.dtype)
        return self.loc + matrix_vector(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + distance) - log_diagonal(self._unbroadcasted_scale_tril)

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        entropy = constant + log_diagonal(self._unbroadcasted_scale_tril)
        return entropy.expand(self._batch_shape) if self._batch_shape else entropy


def _capacitance_tril(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The Cholesky factor of I + Wᵀ D⁻¹ W."""
    matrix = (factor.mT / diagonal.unsqueeze(-2)) @ factor
    return backlight.linalg.cholesky(matrix + eye(matrix.size(-1), dtype=matrix.dtype))


def low_rank_logdet(diagonal: Tensor, capacitance_tril: Tensor) -> Tensor:
    """log det(W Wᵀ + D), by the matrix determinant lemma."""
    return 2 * log_diagonal(capacitance_tril) + diagonal.log().sum(-1)


def low_rank_mahalanobis(factor: Tensor, diagonal: Tensor, x: Tensor, capacitance_tril: Tensor) -> Tensor:
    """xᵀ (W Wᵀ + D)⁻¹ x, by Woodbury's identity."""
    inner = matrix_vector(factor.mT / diagonal.unsqueeze(-2), x)
    return (x.pow(2) / diagonal).sum(-1) - mahalanobis(capacitance_tril, inner)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with covariance W Wᵀ + D, W of a few columns (cov_factor), D diagonal (cov_diag).

    All is computed with matrices of W's few columns.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            columns, self.cov_factor, diagonals = broadcast_tensors(loc.unsqueeze(-1), cov_factor, cov_diag.unsqueeze(-1))
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from error
        self.loc, self.cov_diag = columns[..., 0], diagonals[..., 0]
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = _capacitance_tril(cov_factor, cov_diag)
        super().__init__(self.loc.shape[:-1], event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(LowRankMultivariateNormal, _instance)
        shape = Size(batch_shape) + self.event_shape
        new.loc, new.cov_diag = self.loc.expand(shape), self.cov_diag.expand(shape)
        new.cov_factor = self.cov_factor.expand(shape + self.cov_factor.shape[-1:])
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return self._initialize(new, Size(batch_shape))

    @property
    def _matrices(self) -> tuple[Tensor, Tensor]:
        return self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag

    def _expanded(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)  # pyright: ignore

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        factor, diagonal = self._matrices
        return (factor.pow(2).sum(-1) + diagonal).expand(self._extended_shape())

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance matrix."""
        factor, diagonal = self._matrices
        root = diagonal.sqrt().unsqueeze(-1)
        scaled = factor / root
        matrix = scaled @ scaled.mT + eye(self._event_shape[0], dtype=factor.dtype)
        return self._expanded(root * backlight.linalg.cholesky(matrix))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix."""
        factor, diagonal = self._matrices
        return self._expanded(factor @ factor.mT + diagonal.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix, by Woodbury's identity."""
        factor, diagonal = self._matrices
        scaled = factor.mT / diagonal.unsqueeze(-2)
        a = backlight.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._expanded(diagonal.reciprocal().diag_embed() - a.mT @ a)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        factor, diagonal = self._matrices
        shape = self._extended_shape(sample_shape)
        low = standard_normal(shape[:-1] + factor.shape[-1:], self.loc.dtype)
        noise = standard_normal(shape, self.loc.dtype)
        return self.loc + matrix_vector(factor, low) + diagonal.sqrt() * noise

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = low_rank_mahalanobis(*self._matrices, value - self.loc, self._capacitance_tril)
        logdet = low_rank_logdet(self._unbroadcasted_cov_diag, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + logdet + distance)

    def entropy(self) -> Tensor:
        logdet = low_rank_logdet(self._unbroadcasted_cov_diag, self._capacitance_tril)
        entropy = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + logdet)
        return entropy.expand(self._batch_shape) if self._batch_shape else entropy


class LKJCholesky(Distribution):
    """Cholesky factors L of random (dim, dim) correlation matrices, whose density is proportional to det(L Lᵀ)^(concentration - 1).

    Drawn by the onion method: row by row, a random direction times a radius that is a root of a beta variable
    (D. Lewandowski, D. Kurowicka and H. Joe, "Generating random correlation matrices based on vines and extended onion
    method", 2009).
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        row = arange(dim - 1, dtype=self.concentration.dtype)
        row = cat([row.new_zeros((1,)), row])
        self._beta = Beta(row + 0.5, (self.concentration + 0.5 * (dim - 2)).unsqueeze(-1) - 0.5 * row)
        super().__init__(self.concentration.size(), Size((dim, dim)), validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._expand(LKJCholesky, batch_shape, _instance, "concentration")
        new.dim = self.dim
        new._beta = self._beta.expand(Size(batch_shape) + (self.dim,))
        return new

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        radius = self._beta.sample(sample_shape).unsqueeze(-1)
        with no_grad():
            direction = randn(self._extended_shape(sample_shape), dtype=radius.dtype).tril(-1)
            direction = direction / direction.norm(dim=-1, keepdim=True)
            direction[..., 0, :].fill_(0.0)  # the first row has none
            below = radius.sqrt() * direction
            diagonal = (1 - (below**2).sum(-1)).clamp(min=finfo(below.dtype).tiny).sqrt()
            return below + diagonal.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - arange(2, self.dim + 1)
        m = self.dim - 1
        alpha = self.concentration + 0.5 * m
        normalizer = 0.5 * m * math.log(math.pi) + (alpha - 0.5).mvlgamma(m) - alpha.lgamma() * m
        return (order * diagonal.log()).sum(-1) - normalizer


def _multivariate_digamma(x: Tensor, p: int) -> Tensor:
    if not (x > (p - 1) / 2).all():
        raise AssertionError("Wrong domain for multivariate digamma function.")
    return (x.unsqueeze(-1) - arange(p, dtype=x.dtype) / 2).digamma().sum(-1)


class Wishart(ExponentialFamily):
    """The Wishart distribution of the scatter matrix of df normal vectors, whose covariance is given as in MultivariateNormal.

    Drawn by Bartlett's decomposition. A warning says when a sample is singular; it is drawn again, ten times at most.
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Tensor | float,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        matrices = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        if isinstance(df, NUMBER):
            batch_shape = Size(matrix.shape[:-2])
            self.df = tensor(df, dtype=matrix.dtype)
        else:
            batch_shape = broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch_shape)
        event_shape = matrix.shape[-2:]
        n = event_shape[-1]
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        setattr(self, name, matrix.expand(batch_shape + (-1, -1)))
        if (self.df < n).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        self._unbroadcasted_scale_tril = _factor_of(covariance_matrix, precision_matrix, scale_tril)
        self._dist_chi2 = self._diagonal()

    def _diagonal(self) -> Chi2:
        """The squares of Bartlett's diagonal."""
        row = arange(self._event_shape[-1], dtype=self._unbroadcasted_scale_tril.dtype)
        return Chi2(df=self.df.unsqueeze(-1) - row.expand(self._batch_shape + (-1,)))  # pyright: ignore

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(Wishart, _instance)
        shape = Size(batch_shape) + self.event_shape
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril.expand(shape)
        new.df = self.df.expand(batch_shape)
        for name in ("covariance_matrix", "scale_tril", "precision_matrix"):
            if name in self.__dict__:
                setattr(new, name, self.__dict__[name].expand(shape))
        self._initialize(new, Size(batch_shape))
        new._dist_chi2 = Wishart._diagonal(new)
        return new

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The Cholesky factor of the covariance matrix."""
        return self._unbroadcasted_scale_tril.expand(self._extended_shape())

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance matrix of the normal vectors."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.transpose(-2, -1)).expand(self._extended_shape())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance matrix."""
        identity = eye(self._event_shape[-1], dtype=self._unbroadcasted_scale_tril.dtype)
        return identity.cholesky_solve(self._unbroadcasted_scale_tril).expand(self._extended_shape())

    def _as_matrix(self, number: Tensor) -> Tensor:
        return number.view(self._batch_shape + (1, 1))  # pyright: ignore[reportOperatorIssue]

    @property
    def mean(self) -> Tensor:
        return self._as_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        return self._as_matrix(factor.masked_fill(factor <= 0, nan)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        covariance = self.covariance_matrix
        diagonal = covariance.diagonal(dim1=-2, dim2=-1)
        return self._as_matrix(self.df) * (covariance.pow(2) + einsum("...i,...j->...ij", diagonal, diagonal))

    def _bartlett_sampling(self, sample_shape: Sequence[int]) -> Tensor:
        p = self._event_shape[-1]
        diagonal = self._dist_chi2.rsample(sample_shape).sqrt()
        noise = diagonal.clamp(min=finfo(diagonal.dtype).eps).diag_embed(dim1=-2, dim2=-1)
        i, j = tril_indices(p, p, offset=-1)
        noise[..., i, j] = randn(Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,), dtype=noise.dtype)  # pyright: ignore
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.transpose(-2, -1)

    def _over_batch(self, flags: Tensor) -> Tensor:
        return flags.amax([-(i + 1) for i in range(len(self._batch_shape))]) if self._batch_shape else flags

    def rsample(self, sample_shape: Sequence[int] = Size(), max_try_correction: int | None = None) -> Tensor:
        sample = self._bartlett_sampling(Size(sample_shape))
        # As in PyTorch, the first test takes the regular samples for singular ones, so that all are drawn again.
        again = self._over_batch(self.support.check(sample))
        if again.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
            for _ in range(10 if max_try_correction is None else max_try_correction):
                new = self._bartlett_sampling(again[again].shape)
                drawn = again.clone()
                sample[drawn] = new
                again[drawn] = self._over_batch(~self.support.check(new))
                if not again.any():
                    break
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        df, p = self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        normalizer = df * (p * math.log(2) / 2 + log_diagonal(factor)) + (df / 2).mvlgamma(p)
        trace = value.cholesky_solve(factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (df - p - 1) / 2 * value.slogdet().logabsdet - trace / 2 - normalizer

    def entropy(self) -> Tensor:
        df, p = self.df, self._event_shape[-1]
        return (
            (p + 1) * (p * math.log(2) / 2 + log_diagonal(self._unbroadcasted_scale_tril))
            + (df / 2).mvlgamma(p)
            - (df - p - 1) / 2 * _multivariate_digamma(df / 2, p)
            + df * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        return half * (-(-2 * x).slogdet().logabsdet + math.log(2) * p) + half.mvlgamma(p)
