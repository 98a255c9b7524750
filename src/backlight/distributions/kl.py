"""The Kullback-Leibler divergence of two distributions: closed forms by the pair of their classes.

Classes are looked up with their subclasses, so that a pair that nobody registered is served by the closest one above it.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import backlight  # for `backlight.linalg`, which loads when it is first used

from .. import Tensor, broadcast_shapes, full_like, inf, where
from ..ops.activation import softplus
from .continuous import Beta, Cauchy, ContinuousBernoulli, Dirichlet, Exponential, Gamma, Laplace, Normal, Uniform
from .discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from .distribution import Distribution, ExponentialFamily, Independent
from .multivariate import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    log_diagonal,
    low_rank_logdet,
    low_rank_mahalanobis,
    mahalanobis,
)
from .transformed import Gumbel, HalfNormal, Pareto, TransformedDistribution
from .utils import euler_constant, sum_rightmost

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["register_kl", "kl_divergence"]

_KL_REGISTRY: dict[tuple[type, type], Callable] = {}
_KL_MEMOIZE: dict[tuple[type, type], Callable] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable], Callable]:
    """Decorates the function that computes kl_divergence(p, q) for these classes and those below them.

    If a pair of classes has several registered pairs above it, the one with the closest class for p is taken, and of these the
    one with the closest class for q. If the closest for q first is another one, a RuntimeWarning says so.
    """
    if not isinstance(type_p, type) and issubclass(type_p, Distribution):
        raise TypeError(f"Expected type_p to be a Distribution subclass but got {type_p}")
    if not isinstance(type_q, type) and issubclass(type_q, Distribution):
        raise TypeError(f"Expected type_q to be a Distribution subclass but got {type_q}")

    def decorate(function):
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return decorate


def _closest(pairs: list[tuple[type, type]]) -> tuple[type, type]:
    """The pair with the lowest class in front, and of these the lowest behind. All classes have one common subclass."""
    best = pairs[0]
    for pair in pairs[1:]:
        first, second = (issubclass(new, old) for new, old in zip(pair, best))
        if first and (pair[0] is not best[0] or second):
            best = pair
    return best


def _dispatch_kl(type_p: type, type_q: type) -> Callable:
    matches = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return NotImplemented
    left = _closest(matches)
    right = _closest([(q, p) for p, q in matches])[::-1]
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:  # pyright: ignore[reportArgumentType]
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), the mean of log p(x) - log q(x) over x from p. -> (*batch_shape). Differentiable in the parameters.

    NotImplementedError if there is no closed form for the two classes.

    >>> import backlight as torch
    >>> d = torch.distributions
    >>> d.kl_divergence(d.Normal(0.0, 1.0), d.Normal(1.0, 1.0))
    tensor(0.5000)
    """
    pair = type(p), type(q)
    if pair not in _KL_MEMOIZE:
        _KL_MEMOIZE[pair] = _dispatch_kl(*pair)
    function = _KL_MEMOIZE[pair]
    if function is NotImplemented:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}"
        )
    return function(p, q)


def _infinite_where(result: Tensor, *masks: Tensor) -> Tensor:
    """`result` with inf where one of the masks holds. As in PyTorch, a mask of fewer dimensions counts in the first ones."""
    for mask in masks:
        result[mask] = inf
    return result


# Families with themselves


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    def term(p_probs, q_probs, p_logits, q_logits):
        """p log(p / q) of one of the two results."""
        t = _infinite_where(p_probs * (softplus(-q_logits) - softplus(-p_logits)), q_probs == 0)  # pyright: ignore[reportOperatorIssue]
        t[p_probs == 0] = 0
        return t

    return term(p.probs, q.probs, p.logits, q.logits) + term(1 - p.probs, 1 - q.probs, -p.logits, -q.logits)


@register_kl(Beta, Beta)
def _beta(p, q):
    p_total, q_total = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    t1 = q.concentration1.lgamma() + q.concentration0.lgamma() + p_total.lgamma()
    t2 = p.concentration1.lgamma() + p.concentration0.lgamma() + q_total.lgamma()
    t3 = (p.concentration1 - q.concentration1) * p.concentration1.digamma()
    t4 = (p.concentration0 - q.concentration0) * p.concentration0.digamma()
    return t1 - t2 + t3 + t4 + (q_total - p_total) * p_total.digamma()


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return _infinite_where(kl, p.total_count > q.total_count)


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    t = p.probs * (p.logits - q.logits)
    return t.masked_fill(q.probs == 0, inf).masked_fill(p.probs == 0, 0).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_categorical(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p, q):
    t1 = p.mean * (p.logits - q.logits)
    return t1 + p._cont_bern_log_norm() + (-p.probs).log1p() - q._cont_bern_log_norm() - (-q.probs).log1p()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    p_total, q_total = p.concentration.sum(-1), q.concentration.sum(-1)
    t1 = p_total.lgamma() - q_total.lgamma()
    t2 = (p.concentration.lgamma() - q.concentration.lgamma()).sum(-1)
    slope = p.concentration.digamma() - p_total.digamma().unsqueeze(-1)
    return t1 - t2 + ((p.concentration - q.concentration) * slope).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    """The Bregman divergence of the log normalizer, where one class meets itself."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot                             "
            "be computed using Bregman divergences"
        )
    parameters, normalizer, gradients = p._slopes()
    result = q._log_normalizer(*q._natural_params) - normalizer
    for p_parameter, q_parameter, g in zip(parameters, q._natural_params, gradients):
        result = result - sum_rightmost((q_parameter - p_parameter) * g, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    t1 = q.concentration * (p.rate / q.rate).log()
    t2 = q.concentration.lgamma() - p.concentration.lgamma()
    t3 = (p.concentration - q.concentration) * p.concentration.digamma()
    return t1 + t2 + t3 + (q.rate - p.rate) * (p.concentration / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, q_loc, p_loc = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    t1 = -ratio.log() - q_loc + p_loc
    t2 = (q_loc + (1 + ratio).lgamma() - p_loc).exp()
    return t1 + ratio * euler_constant + t2 - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Pareto, Pareto)
def _pareto(p, q):
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _infinite_where(result, p.scale < q.scale)


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return _infinite_where(result, (q.low > p.low) | (q.high < p.high))


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    """That of the base distributions: it doesn't change under one and the same bijective function."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


# Multivariate normal distributions


def _squares(matrix):
    """The sum of a matrix's squared elements."""
    return matrix.pow(2).sum((-2, -1))


def _check_event_shapes(p, q, words):
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {words} with                          different event shapes cannot be computed"
        )


def _solve(factor, matrix):
    """L⁻¹ M for lower triangular L, with broadcasting of the batches."""
    batch = broadcast_shapes(factor.shape[:-2], matrix.shape[:-2])
    factor, matrix = (m.expand((*batch, *m.shape[-2:])) for m in (factor, matrix))
    return backlight.linalg.solve_triangular(factor, matrix, upper=False)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate_normal(p, q):
    _check_event_shapes(p, q, "Multivariate Normals")
    p_factor, q_factor = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    logdet = log_diagonal(q_factor) - log_diagonal(p_factor)
    trace = _squares(_solve(q_factor, p_factor))
    return logdet + 0.5 * (trace + mahalanobis(q_factor, q.loc - p.loc) - p.event_shape[0])


def _low_rank_parts(q, p):
    """q's log determinant, the distance of the means, and q's factors for traces."""
    factor, diagonal = q._matrices
    logdet = low_rank_logdet(diagonal, q._capacitance_tril)
    distance = low_rank_mahalanobis(factor, diagonal, q.loc - p.loc, q._capacitance_tril)
    solved = backlight.linalg.solve_triangular(q._capacitance_tril, factor.mT / diagonal.unsqueeze(-2), upper=False)
    return logdet, distance, solved, diagonal


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p, q):
    _check_event_shapes(p, q, "Low Rank Multivariate Normals")
    logdet, distance, solved, diagonal = _low_rank_parts(q, p)
    p_factor, p_diagonal = p._matrices
    logdet = logdet - low_rank_logdet(p_diagonal, p._capacitance_tril)
    trace = (
        (p_diagonal / diagonal).sum(-1)
        + _squares(p_factor * diagonal.rsqrt().unsqueeze(-1))
        - _squares(solved * p_diagonal.sqrt().unsqueeze(-2))
        - _squares(solved @ p_factor)
    )
    return 0.5 * (logdet + trace + distance - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _full_to_low_rank(p, q):
    _check_event_shapes(p, q, "(Low Rank) Multivariate Normals")
    logdet, distance, solved, diagonal = _low_rank_parts(q, p)
    p_factor = p._unbroadcasted_scale_tril
    logdet = logdet - 2 * log_diagonal(p_factor)
    trace = _squares(p_factor * diagonal.rsqrt().unsqueeze(-1)) - _squares(solved @ p_factor)
    return 0.5 * (logdet + trace + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_to_full(p, q):
    _check_event_shapes(p, q, "(Low Rank) Multivariate Normals")
    q_factor = q._unbroadcasted_scale_tril
    p_factor, p_diagonal = p._matrices
    logdet = 2 * log_diagonal(q_factor) - low_rank_logdet(p_diagonal, p._capacitance_tril)
    trace = _squares(_solve(q_factor, p_factor)) + _squares(_solve(q_factor, p_diagonal.sqrt().diag_embed()))
    return 0.5 * (logdet + trace + mahalanobis(q_factor, q.loc - p.loc) - p.event_shape[0])


# Different families. Where p reaches beyond the support of q, the divergence is infinite.


def _infinite(parameter: str, p: type, *others: type) -> None:
    """Registers inf, in the shape of this parameter of p."""
    for q in others:
        register_kl(p, q)(lambda p, _q: full_like(getattr(p, parameter), inf))


_infinite("concentration1", Beta, Pareto)
_infinite("probs", ContinuousBernoulli, Pareto)
_infinite("rate", Exponential, Beta, ContinuousBernoulli, Pareto, Uniform)
_infinite("concentration", Gamma, Beta, ContinuousBernoulli, Pareto, Uniform)
_infinite("loc", Gumbel, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("loc", Laplace, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("loc", Normal, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("scale", Pareto, Beta, ContinuousBernoulli, Uniform)
_infinite("rate", Poisson, Bernoulli, Binomial)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p, q):
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


@register_kl(Beta, Exponential)
def _beta_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Beta, Gamma)
def _beta_gamma(p, q):
    t1 = q.concentration.lgamma() - q.concentration * q.rate.log()
    mean_log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    t2 = (q.concentration - 1) * mean_log
    return -p.entropy() + t1 - t2 + q.rate * p.mean


@register_kl(Beta, Normal)
def _beta_normal(p, q):
    mean, variance = p.mean, q.scale.pow(2)
    second = mean * (1 - mean) / (p.concentration1 + p.concentration0 + 1) + mean.pow(2)
    quadratic = 0.5 * second - q.loc * mean + 0.5 * q.loc.pow(2)
    return -p.entropy() + 0.5 * (variance * 2 * math.pi).log() + quadratic / variance


@register_kl(Beta, Uniform)
def _beta_uniform(p, q):
    result = -p.entropy() + (q.high - q.low).log()
    return _infinite_where(result, (q.low > 0) | (q.high < 1))


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoulli_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoulli_normal(p, q):
    t1 = 0.5 * (math.log(2.0 * math.pi) + (q.loc / q.scale).square()) + q.scale.log()
    second = p.variance + p.mean.square()
    return -p.entropy() + t1 + (second - 2.0 * q.loc * p.mean) / (2.0 * q.scale.square())


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p, q):
    result = -p.entropy() + (q.high - q.low).log()
    return where((q.low >= 0) | (q.high <= 1), inf, result)  # PyTorch's conditions, [0, 1] itself among them


@register_kl(Exponential, Gamma)
def _exponential_gamma(p, q):
    ratio = q.rate / p.rate
    t1 = -q.concentration * ratio.log()
    return t1 + ratio + q.concentration.lgamma() + q.concentration * euler_constant - (1 + euler_constant)


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p, q):
    product, loc = p.rate * q.scale, q.loc / q.scale
    return product.log() - 1 - loc + loc.exp() * product / (product + 1) + product.reciprocal()


@register_kl(Exponential, Normal)
def _exponential_normal(p, q):
    variance, square = q.scale.pow(2), p.rate.pow(2)
    quadratic = square.reciprocal() - q.loc / p.rate + 0.5 * q.loc.pow(2)
    return 0.5 * (square * variance * 2 * math.pi).log() - 1 + quadratic / variance


@register_kl(Gamma, Exponential)
def _gamma_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p, q):
    product, loc, a = p.rate * q.scale, q.loc / q.scale, p.concentration
    t1 = (a - 1) * a.digamma() - a.lgamma() - a
    t2 = product.log() + a / product
    return t1 + t2 + loc.exp() * (1 + product.reciprocal()).pow(-a) - loc


@register_kl(Gamma, Normal)
def _gamma_normal(p, q):
    variance, square, a = q.scale.pow(2), p.rate.pow(2), p.concentration
    t1 = 0.5 * (square * variance * 2 * math.pi).log() - a - a.lgamma()
    quadratic = 0.5 * (a.pow(2) + a) / square - q.loc * a / p.rate + 0.5 * q.loc.pow(2)
    return t1 + (a - 1) * a.digamma() + quadratic / variance


@register_kl(Gumbel, Normal)
def _gumbel_normal(p, q):
    ratio = p.scale / q.scale
    t1 = (ratio / math.sqrt(2 * math.pi)).log()
    t2 = (math.pi * ratio * 0.5).pow(2) / 3
    t3 = 0.5 * ((p.loc + p.scale * euler_constant - q.loc) / q.scale).pow(2)
    return -t1 + t2 + t3 - (euler_constant + 1)


@register_kl(Laplace, Normal)
def _laplace_normal(p, q):
    variance = q.scale.pow(2)
    ratio = p.scale.pow(2) / variance
    quadratic = 0.5 * p.loc.pow(2) - p.loc * q.loc + 0.5 * q.loc.pow(2)
    return -0.5 * (2 * ratio / math.pi).log() + ratio + quadratic / variance - 1


@register_kl(Normal, Gumbel)
def _normal_gumbel(p, q):
    mean, variance, loc = p.loc / q.scale, (p.scale / q.scale).pow(2), q.loc / q.scale
    t1 = mean - loc + (-mean + 0.5 * variance + loc).exp()
    return -0.5 * variance.log() + t1 - 0.5 * (1 + math.log(2 * math.pi))


@register_kl(Normal, Laplace)
def _normal_laplace(p, q):
    distance = p.loc - q.loc
    scaled = distance / p.scale
    t1 = math.sqrt(2 / math.pi) * p.scale * (-0.5 * scaled.pow(2)).exp()
    t2 = distance * (math.sqrt(0.5) * scaled).erf()
    return -(p.scale / q.scale).log() + (t1 + t2) / q.scale - 0.5 * (1 + math.log(0.5 * math.pi))


@register_kl(Pareto, Exponential)
def _pareto_exponential(p, q):
    product = p.scale * q.rate
    result = (p.alpha / product).log() - p.alpha.reciprocal() + p.alpha * product / (p.alpha - 1) - 1
    return _infinite_where(result, p.alpha <= 1)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p, q):
    mean_log = p.scale.log() + p.alpha.reciprocal()
    t1 = p.alpha.log() - mean_log
    t2 = q.concentration.lgamma() - q.concentration * q.rate.log()
    t3 = (1 - q.concentration) * mean_log + q.rate * p.alpha * p.scale / (p.alpha - 1)
    return _infinite_where(t1 + t2 + t3 - 1, p.alpha <= 1)


@register_kl(Pareto, Normal)
def _pareto_normal(p, q):
    common = p.scale / (p.alpha - 1)
    t1 = (math.sqrt(2 * math.pi) * q.scale * p.alpha / p.scale).log() - p.alpha.reciprocal()
    spread = p.alpha * common.pow(2) / (p.alpha - 2) + (p.alpha * common - q.loc).pow(2)
    return _infinite_where(t1 + spread / (2 * q.scale.pow(2)) - 1, p.alpha <= 2)


def _x_log_x(x):
    return x.xlogy(x)


def _mean_log(p):
    """The mean of log(x) for x from the uniform distribution p on positive numbers."""
    width = p.high - p.low
    return (_x_log_x(p.high) - _x_log_x(p.low) - width) / width


@register_kl(Uniform, Beta)
def _uniform_beta(p, q):
    width = p.high - p.low
    t1 = (q.concentration1 - 1) * _mean_log(p)
    t2 = (q.concentration0 - 1) * (_x_log_x(1 - p.high) - _x_log_x(1 - p.low) + width) / width
    t3 = q.concentration1.lgamma() + q.concentration0.lgamma() - (q.concentration1 + q.concentration0).lgamma()
    return _infinite_where(t2 + t3 - width.log() - t1, (p.high > 1) | (p.low < 0))


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p, q):
    result = -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()
    return where((p.high >= 1) | (p.low <= 0), inf, result)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p, q):
    result = q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log()
    return _infinite_where(result, p.low < 0)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p, q):
    t1 = q.concentration.lgamma() - q.concentration * q.rate.log()
    t2 = (1 - q.concentration) * _mean_log(p) + q.rate * (p.high + p.low) / 2
    return _infinite_where(-(p.high - p.low).log() + t1 + t2, p.low < 0)


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p, q):
    width = q.scale / (p.high - p.low)
    high, low = (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return width.log() + 0.5 * (high + low) - width * ((-high).exp() - (-low).exp())


@register_kl(Uniform, Normal)
def _uniform_normal(p, q):
    width = p.high - p.low
    t1 = (math.sqrt(math.pi * 2) * q.scale / width).log()
    spread = width.pow(2) / 12 + ((p.high + p.low - 2 * q.loc) / 2).pow(2)
    return t1 + 0.5 * spread / q.scale.pow(2)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p, q):
    t1 = (q.alpha * q.scale.pow(q.alpha) * (p.high - p.low)).log()
    return _infinite_where(_mean_log(p) * (q.alpha + 1) - t1, p.low < q.scale)
