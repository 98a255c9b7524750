"""Probability distributions: samples, densities, entropies and divergences, with gradients in their parameters.

>>> import backlight as torch
>>> loc = torch.tensor(0.5, requires_grad=True)
>>> d = torch.distributions.Normal(loc, 1.0)
>>> d.log_prob(torch.tensor(2.0)).backward()
>>> loc.grad
tensor(1.5000)

The classes lie in files by their kind; PyTorch's module paths (`torch.distributions.normal`) are aliases of these.
"""

# ruff: noqa: F401, F403, F405

import sys as _sys

from . import constraints, continuous, discrete, distribution, kl, mixture, multivariate, transformed, transforms, utils
from .constraint_registry import biject_to, transform_to
from .continuous import *
from .discrete import *
from .distribution import *
from .kl import kl_divergence, register_kl
from .mixture import *
from .multivariate import *
from .transformed import *
from .transforms import *

_PATHS = {
    continuous: """beta cauchy chi2 continuous_bernoulli dirichlet exponential fishersnedecor gamma generalized_pareto laplace
        normal studentT uniform von_mises""",
    discrete: "bernoulli binomial categorical geometric multinomial negative_binomial one_hot_categorical poisson",
    distribution: "exp_family independent",
    mixture: "mixture_same_family",
    multivariate: "lkj_cholesky lowrank_multivariate_normal multivariate_normal wishart",
    transformed: """gumbel half_cauchy half_normal inverse_gamma kumaraswamy log_normal logistic_normal pareto relaxed_bernoulli
        relaxed_categorical transformed_distribution weibull""",
}
for _module, _names in _PATHS.items():
    for _name in _names.split():
        globals()[_name] = _sys.modules[f"{__name__}.{_name}"] = _module

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ContinuousBernoulli",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "StudentT",
    "Poisson",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "TransformedDistribution",
    "biject_to",
    "kl_divergence",
    "register_kl",
    "transform_to",
    *transforms.__all__,
]
