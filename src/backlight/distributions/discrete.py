"""Discrete distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import (
    Size,
    Tensor,
    arange,
    bernoulli,
    binomial,
    broadcast_tensors,
    empty,
    eye,
    finfo,
    full,
    inf,
    int64,
    multinomial,
    nan,
    ones_like,
    poisson,
    tensor,
    zeros,
    zeros_like,
)
from ..autograd.modes import no_grad
from ..ops.activation import logsigmoid
from ..ops.gather import one_hot
from ..ops.loss import binary_cross_entropy_with_logits
from . import constraints
from .distribution import Distribution, ExponentialFamily
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Geometric",
    "Multinomial",
    "NegativeBinomial",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Poisson",
]


def check_one_given(probs: Any, logits: Any) -> None:
    """ValueError unless exactly one of them is given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class ProbsOrLogits(Distribution):
    """What distributions of a probability have in common: it is given as probs or as log odds, the other follows."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    _param: Tensor

    def _set_parameter(self, probs: Tensor | float | None, logits: Tensor | float | None, *others: Any) -> tuple:
        """Sets `probs` or `logits`, and `_param` to the one that is given. Returns `others`, broadcast with it."""
        check_one_given(probs, logits)
        name, given = ("probs", probs) if probs is not None else ("logits", logits)
        *others, self._param = broadcast_all(*others, given)  # pyright: ignore
        setattr(self, name, self._param)
        return tuple(others)

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new(*args, **kwargs)

    @lazy_property
    def logits(self) -> Tensor:
        """The log odds log(probs / (1 - probs))."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.size()

    def _counts(self, count: int, expand: bool) -> Tensor:
        """0, 1, ... count - 1 in front of the batch."""
        values = arange(count, dtype=self._param.dtype).view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


def negative_cross_entropy(logits: Tensor, value: Tensor) -> Tensor:
    """value log(p) + (1 - value) log(1 - p) for the p with these log odds."""
    return -binary_cross_entropy_with_logits(logits, value, reduction="none")


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """1 with the probability probs, otherwise 0.

    >>> import backlight as torch
    >>> torch.distributions.Bernoulli(probs=torch.tensor([0.3])).log_prob(torch.tensor(1.0))
    tensor([-1.2040])
    """

    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_parameter(probs, logits)
        super().__init__(self._param.size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand(Bernoulli, batch_shape, _instance, "probs", "logits", "_param")

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, nan)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return negative_cross_entropy(*broadcast_all(self.logits, value))

    def entropy(self) -> Tensor:
        return -negative_cross_entropy(self.logits, self.probs)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._counts(2, expand)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.probs.logit(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.exp().log1p()


class Geometric(ProbsOrLogits):
    """The number of failures before the first success, which has the probability probs."""

    support = constraints.nonnegative_integer

    def __init__(
        self,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_parameter(probs, logits)
        super().__init__(self._param.size(), validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            value = self.probs
            raise ValueError(
                f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} "
                f"to be positive but found invalid values:\n{value.data[~(value > 0)]}"
            )

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand(Geometric, batch_shape, _instance, "probs", "logits", "_param")

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            u = empty(self._extended_shape(sample_shape), dtype=self.probs.dtype)
            u.uniform_(finfo(self.probs.dtype).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        certain = (probs == 1) & (value == 0)
        return value * (-probs.masked_fill(certain, 0)).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return -negative_cross_entropy(self.logits, self.probs) / self.probs


def _clamp_by_zero(x: Tensor) -> Tensor:
    """max(x, 0), with the gradient 1/2 at 0."""
    return (x.clamp(min=0) + x - x.clamp(max=0)) / 2


class Binomial(ProbsOrLogits):
    """The number of successes in total_count trials, each with the probability probs."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, **ProbsOrLogits.arg_constraints}
    has_enumerate_support = True

    def __init__(
        self,
        total_count: Tensor | int = 1,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set_parameter(probs, logits, total_count)
        self.total_count: Any = count.type_as(self._param)
        super().__init__(self._param.size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand(Binomial, batch_shape, _instance, "total_count", "probs", "logits", "_param")

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        log_choices = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        # log(1 - probs) = -max(logits, 0) - log(1 + exp(-|logits|))
        return value * logits + log_choices - n * _clamp_by_zero(logits) - n * (-logits.abs()).exp().log1p()

    def _single_count(self, method: str) -> int:
        count = int(self.total_count.max())
        if not self.total_count.min() == count:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{method}`.")
        return count

    def entropy(self) -> Tensor:
        self._single_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._counts(1 + self._single_count("enumerate_support"), expand)


class NegativeBinomial(ProbsOrLogits):
    """The number of successes, each with the probability probs, before total_count failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self,
        total_count: Tensor | float,
        probs: Tensor | float | None = None,
        logits: Tensor | float | None = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._set_parameter(probs, logits, total_count)
        self.total_count: Any = count.type_as(self._param)
        super().__init__(self._param.size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand(NegativeBinomial, batch_shape, _instance, "total_count", "probs", "logits", "_param")

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()

    @lazy_property
    def _gamma(self) -> Any:
        from .continuous import Gamma

        return Gamma(concentration=self.total_count, rate=(-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            return poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        power = n * logsigmoid(-logits) + value * logsigmoid(logits)
        normalizer = -(n + value).lgamma() + (1.0 + value).lgamma() + n.lgamma()
        return power - normalizer.masked_fill(n + value == 0.0, 0.0)


class Poisson(ExponentialFamily):
    """The number of events when `rate` are expected."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Tensor | float, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand(Poisson, batch_shape, _instance, "rate")

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        rate, value = broadcast_all(self.rate, value)
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return x.exp()


class Categorical(Distribution):
    """A number from 0 to K - 1, with the K probabilities in the last dimension of probs (or unnormalised logs in logits).

    >>> import backlight as torch
    >>> d = torch.distributions.Categorical(logits=torch.zeros(4))
    >>> d.entropy(), d.log_prob(torch.tensor(2))
    (tensor(1.3863), tensor(-1.3863))
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None) -> None:
        check_one_given(probs, logits)
        if probs is not None:
            if probs.dim() < 1:
                raise ValueError("`probs` parameter must be at least one-dimensional.")
            self.probs = self._param = probs / probs.sum(-1, keepdim=True)  # pyright: ignore[reportAttributeAccessIssue]
        elif logits is not None:
            if logits.dim() < 1:
                raise ValueError("`logits` parameter must be at least one-dimensional.")
            self.logits = self._param = logits - logits.logsumexp(dim=-1, keepdim=True)  # pyright: ignore[reportAttributeAccessIssue]
        self._num_events = self._param.size()[-1]
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._get_checked_instance(Categorical, _instance)
        for name in ("probs", "logits", "_param"):
            if name in self.__dict__:
                setattr(new, name, self.__dict__[name].expand((*batch_shape, self._num_events)))
        new._num_events = self._num_events
        return self._initialize(new, Size(batch_shape))

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new(*args, **kwargs)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """The log probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.size()

    @property
    def mean(self) -> Tensor:
        return full(self._extended_shape(), nan, dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return full(self._extended_shape(), nan, dtype=self.probs.dtype)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        rows = self.probs.reshape(-1, self._num_events)
        drawn = multinomial(rows, Size(sample_shape).numel(), True).T
        return drawn.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index, log_probs = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return log_probs.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)  # -inf * 0 would be nan
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = arange(self._num_events, dtype=int64).view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values


class OfCategorical(Distribution):
    """What distributions made of a Categorical's parameters have in common."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _categorical: Categorical

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._categorical._new(*args, **kwargs)

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The log probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._categorical.param_shape


class OneHotCategorical(OfCategorical):
    """A Categorical's number as a vector of K elements, with a one in its place."""

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        return self._expand(OneHotCategorical, batch_shape, _instance, "_categorical")

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self._categorical.mode, self.event_shape[0]).to(self.probs)  # pyright: ignore[reportArgumentType]

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return one_hot(self._categorical.sample(Size(sample_shape)), self.event_shape[0]).to(self.probs)  # pyright: ignore[reportArgumentType]

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        values = eye(n, dtype=self._param.dtype).view((n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose rsample passes gradients on to the probabilities as they are (Bengio et al., 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(OfCategorical):
    """How often each of K results came in total_count draws with the probabilities in the last dimension of probs."""

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._expand(Multinomial, batch_shape, _instance, "_categorical")
        new.total_count, new._binomial = self.total_count, self._binomial
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        drawn = self._categorical.sample(Size((self.total_count, *sample_shape))).movedim(0, -1)
        counts = zeros(self._extended_shape(sample_shape), dtype=int64)
        return counts.scatter_add_(-1, drawn, ones_like(drawn)).type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -inf), 0)
        log_choices = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return log_choices + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = tensor(self.total_count)
        counts = self._binomial.enumerate_support(expand=False)[1:]
        expected = (self._binomial.log_prob(counts).exp() * (counts + 1).lgamma()).sum([0, -1])
        return n * self._categorical.entropy() - (n + 1).lgamma() + expected
