"""From a constraint to a transform onto its set: `biject_to` one that is bijective, `transform_to` one that is cheap.

>>> import backlight as torch
>>> torch.distributions.transform_to(torch.distributions.constraints.positive)(torch.tensor([-1.0, 1.0]))
tensor([0.3679, 2.7183])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import constraints, transforms
from .utils import NUMBER

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Factories of transforms by the class of a constraint. Called with a constraint, it makes the transform."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable] = {}

    def register(self, constraint: Any, factory: Callable | None = None) -> Callable:
        """Registers `factory(constraint)` for a class of constraints, or that of an instance. Also a decorator.

        TypeError for anything else.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {kind}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: constraints.Constraint) -> transforms.Transform:
        """A transform onto the constraint's set. NotImplementedError if there is none."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(*kinds: Any) -> Callable:
    """Registers a factory for these constraints in both registries."""

    def decorate(factory):
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return decorate


@_both(constraints.real)
def _to_real(_constraint):
    return transforms.identity_transform


@_both(constraints.greater_than, constraints.greater_than_eq)  # `positive` and `nonnegative` among them
def _to_greater_than(constraint):
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)])


@_both(constraints.less_than)
def _to_less_than(constraint):
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)])


@_both(constraints.interval, constraints.half_open_interval)
def _to_interval(constraint):
    lower, upper = constraint.lower_bound, constraint.upper_bound
    if isinstance(lower, NUMBER) and lower == 0 and isinstance(upper, NUMBER) and upper == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(lower, upper - lower)])


@_both(constraints.corr_cholesky)
def _to_corr_cholesky(_constraint):
    return transforms.CorrCholeskyTransform()


@biject_to.register(constraints.simplex)
def _biject_to_simplex(_constraint):
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _transform_to_simplex(_constraint):
    return transforms.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _transform_to_lower_cholesky(_constraint):
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
@transform_to.register(constraints.positive_semidefinite)
def _transform_to_positive_definite(_constraint):
    return transforms.PositiveDefiniteTransform()


def _register_compound(registry: ConstraintRegistry) -> None:
    """The constraints that are made of others."""

    @registry.register(constraints.independent)
    def _to_independent(constraint):
        return transforms.IndependentTransform(registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims)

    @registry.register(constraints.cat)
    def _to_cat(constraint):
        return transforms.CatTransform([registry(c) for c in constraint.cseq], constraint.dim, constraint.lengths)

    @registry.register(constraints.stack)
    def _to_stack(constraint):
        return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)


_register_compound(biject_to)
_register_compound(transform_to)
