"""What all distributions have in common, exponential families, and Independent."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from .. import Size, Tensor
from ..autograd.modes import no_grad
from . import constraints
from .utils import lazy_property, sum_rightmost

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .constraints import Constraint

__all__ = ["Distribution", "ExponentialFamily", "Independent"]


class Distribution:
    """A probability distribution, or a batch of them.

    A sample has the shape `sample_shape + batch_shape + event_shape`: `event_shape` is that of one value of the distribution,
    `batch_shape` that of the parameters, one for each distribution of the batch; `sample_shape` is what the caller of `sample`
    asks for. Parameters are checked against `arg_constraints` and values against `support`, unless validate_args=False.

    `rsample` draws numbers through which gradients reach the parameters, if `has_rsample`; `sample` doesn't.

    >>> import backlight as torch
    >>> d = torch.distributions.Normal(torch.zeros(3), 1.0)
    >>> d.batch_shape, d.event_shape, d.log_prob(torch.tensor(1.0))
    (torch.Size([3]), torch.Size([]), tensor([-1.4189, -1.4189, -1.4189]))
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions that aren't told check parameters and values; so they do, unless Python runs with -O."""
        if value not in (True, False):
            raise ValueError
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Sequence[int] = Size(),
        event_shape: Sequence[int] = Size(),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = batch_shape
        self._event_shape = event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. "
                "Please set `arg_constraints = {}` or initialize the distribution "
                "with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # it would be computed from another parameter
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} to satisfy the constraint {constraint!r}, "
                    f"but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """This distribution with the parameters expanded to `batch_shape`, without a copy or checks.

        `_instance`: the object of a subclass to fill, where one with an `__init__` of its own calls its parent's `expand`.
        """
        raise NotImplementedError

    def _expand(self, owner: type, batch_shape: Sequence[int], instance: Any, *names: str) -> Any:
        """`expand` for an `owner` whose parameters (or distributions) of these names have the shape of the batch.

        Names of attributes that this instance doesn't have are left out.
        """
        new = self._get_checked_instance(owner, instance)
        batch_shape = Size(batch_shape)
        for name in names:
            if name in self.__dict__:
                setattr(new, name, self.__dict__[name].expand(batch_shape))
        return self._initialize(new, batch_shape)

    def _initialize(self, new: Any, batch_shape: Sequence[int]) -> Any:
        """Gives `new`, made by `expand`, the shapes and the validation of a distribution."""
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self) -> Size:
        """The shape of the parameters."""
        return self._batch_shape  # pyright: ignore[reportReturnType]

    @property
    def event_shape(self) -> Size:
        """The shape of one value."""
        return self._event_shape  # pyright: ignore[reportReturnType]

    if TYPE_CHECKING:  # properties, or attributes of the class
        arg_constraints: Any
        support: Any
    else:

        @property
        def arg_constraints(self) -> dict[str, Constraint]:
            """The constraint of each parameter by its name."""
            raise NotImplementedError

        @property
        def support(self) -> Constraint:
            """The constraint that values meet."""
            raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        """Random values, without gradients. -> (*sample_shape, *batch_shape, *event_shape)."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        """Random values that are differentiable in the parameters. -> (*sample_shape, *batch_shape, *event_shape)."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Tensor:
        """sample((n,)). Deprecated."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`. -> its shape without the event's."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability to be at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """Where the cdf is `value`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution along a new first dimension; the batch has size 1 unless `expand`."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy. -> (*batch_shape)."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy). -> (*batch_shape)."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Sequence[int] = Size()) -> Size:
        """The shape of a sample."""
        return Size(Size(sample_shape) + self._batch_shape + self._event_shape)  # pyright: ignore[reportOperatorIssue]

    def _validate_sample(self, value: Tensor) -> None:
        """ValueError if the shape of `value` doesn't fit, or if it isn't in the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        size = value.size()
        if size[len(size) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {size} vs {self._event_shape}.")
        expected = self._batch_shape + self._event_shape  # pyright: ignore[reportOperatorIssue]
        if any(1 not in pair and pair[0] != pair[1] for pair in zip(reversed(size), reversed(expected))):
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {size} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable "
                "sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=2,
            )
            return
        if support is None:
            raise AssertionError("support is unexpectedly None")
        if not support.check(value).all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) "
                f"to be within the support ({support!r}) of the distribution {self!r}, "
                f"but found invalid values:\n{value}"
            )

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """`_instance`, or a new object to fill. NotImplementedError for a subclass whose `__init__` `cls` can't know."""
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method "
                "must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        given = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        texts = [f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in given.items()]
        return f"{self.__class__.__name__}({', '.join(texts)})"


class ExponentialFamily(Distribution):
    """A density exp(<t(x), theta> - F(theta) + k(x)) with natural parameters theta.

    Subclasses define `_natural_params`, the log normalizer F as `_log_normalizer(*natural_params)`, and the mean of k as
    `_mean_carrier_measure`. Entropy and KL divergence follow from the derivative of F (F. Nielsen and R. Nock, "Entropies and
    cross-entropies of exponential families", 2010).
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    if TYPE_CHECKING:
        _mean_carrier_measure: Any
    else:

        @property
        def _mean_carrier_measure(self) -> float:
            raise NotImplementedError

    def _slopes(self) -> tuple[list[Tensor], Tensor, Sequence[Tensor]]:
        """The natural parameters as leaves, F there, and its gradients."""
        from ..autograd import grad

        parameters = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*parameters)
        return parameters, normalizer, grad(normalizer.sum(), parameters, create_graph=True)  # pyright: ignore

    def entropy(self) -> Tensor:
        """The entropy. -> (*batch_shape). Its gradient doesn't reach the parameters, as in PyTorch."""
        result = -self._mean_carrier_measure
        parameters, normalizer, gradients = self._slopes()
        result = result + normalizer
        for parameter, g in zip(parameters, gradients):
            result = result - (parameter * g).reshape(self._batch_shape + (-1,)).sum(-1)  # pyright: ignore
        return result


class Independent(Distribution):
    """`base_distribution` with the last `reinterpreted_batch_ndims` batch dimensions made part of the event.

    >>> import backlight as torch
    >>> d = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(3), torch.ones(3)), 1)
    >>> d.event_shape, d.log_prob(torch.zeros(3))
    (torch.Size([3]), tensor(-2.7568))
    """

    arg_constraints = {}

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        if reinterpreted_batch_ndims > len(base_distribution.batch_shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {len(base_distribution.batch_shape)}"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        cut = len(base_distribution.batch_shape) - reinterpreted_batch_ndims
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Independent:
        new = self._get_checked_instance(Independent, _instance)
        batch_shape = Size(batch_shape)
        new.base_dist = self.base_dist.expand(batch_shape + self.event_shape[: self.reinterpreted_batch_ndims])
        new.reinterpreted_batch_ndims = self.reinterpreted_batch_ndims
        return self._initialize(new, batch_shape)

    @property
    def has_rsample(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Constraint:
        support = self.base_dist.support
        ndims = self.reinterpreted_batch_ndims
        return constraints.independent(support, ndims) if ndims else support

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = Size()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
