"""MixtureSameFamily: a mixture whose components are a batch of one distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import Size, Tensor
from ..autograd.modes import no_grad
from . import constraints
from .discrete import Categorical
from .distribution import Distribution

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A value of one of the components, which the Categorical `mixture_distribution` chooses.

    The components are the last batch dimension of `component_distribution`.

    >>> import backlight as torch
    >>> d = torch.distributions
    >>> m = d.MixtureSameFamily(d.Categorical(torch.ones(2)), d.Normal(torch.tensor([-1.0, 1.0]), 1.0))
    >>> m.mean, m.variance, m.log_prob(torch.tensor(0.0))
    (tensor(0.), tensor(2.), tensor(-1.4189))
    """

    arg_constraints = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        chosen, components = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        if any(1 not in pair and pair[0] != pair[1] for pair in zip(reversed(chosen), reversed(components))):
            raise ValueError(
                f"`mixture_distribution.batch_shape` ({chosen}) is not compatible with "
                f"`component_distribution.batch_shape`({components})"
            )
        count, last = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if count != last:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal `component_distribution.batch_shape[-1]` ({last})"
            )
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component = count
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(components, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        new = self._expand(MixtureSameFamily, batch_shape, _instance, "_mixture_distribution")
        new._component_distribution = self._component_distribution.expand(Size(batch_shape) + (self._num_component,))
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        return new

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """Which component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    def _average(self, values: Tensor) -> Tensor:
        """The components' values, weighted by their probabilities and summed."""
        probs, own = self.mixture_distribution.probs, len(self.mixture_distribution.batch_shape)
        missing = 0 if own == 1 else len(self.batch_shape) - own
        probs = probs.reshape(*probs.shape[:-1], *missing * [1], probs.shape[-1], *self._event_ndims * [1])
        return (probs * values).sum(-1 - self._event_ndims)

    def _pad(self, x: Tensor) -> Tensor:
        """x with a dimension for the components."""
        return x.unsqueeze(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        return self._average(self.component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        components = self.component_distribution
        return self._average(components.variance) + self._average((components.mean - self._pad(self.mean)).pow(2.0))

    def cdf(self, value: Tensor) -> Tensor:
        return (self.component_distribution.cdf(self._pad(value)) * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        log_probs = self.component_distribution.log_prob(self._pad(value))
        return (log_probs + self.mixture_distribution.logits.log_softmax(-1)).logsumexp(-1)

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        with no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            index = chosen.reshape(*chosen.shape, 1, *self._event_ndims * [1])
            index = index.repeat(*chosen.dim() * [1], 1, *self.event_shape)
            return drawn.gather(dim, index).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
