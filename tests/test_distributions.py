"""torch.distributions against PyTorch: draws, densities, moments, divergences, transforms, constraints, and their gradients."""

import pickle
import re
import warnings
from collections import Counter

import numpy as np
import pytest
import torch

import backlight

BOTH = (torch, backlight)
AGREED = Counter()  # how many results agreed, by test

ROOT = [[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.2, 0.7]]
COVARIANCE = (np.array(ROOT) @ np.array(ROOT).T).tolist()
BATCH_OF_ROOTS = [ROOT, [[0.5, 0.0, 0.0], [1.0, 1.5, 0.0], [0.1, 0.2, 3.0]]]
VECTOR, PROBABILITIES = [0.5, -1.0, 2.0], [0.2, 0.5, 0.3]
PROBABILITY_ROWS = [[0.1, 0.6, 0.3], [1.0, 0.0, 0.0]]

# Lists become tensors of the type under test, numbers stay numbers; a string is an expression.
CASES = [
    ("Bernoulli", {"probs": 0.3}),
    ("Bernoulli", {"probs": [0.2, 0.5, 0.9]}),
    ("Bernoulli", {"logits": [[0.1], [-2.0]]}),
    ("Bernoulli", {"probs": [0.0, 1.0]}),
    ("Geometric", {"probs": [0.7, 0.2]}),
    ("Geometric", {"probs": 0.6}),
    ("Geometric", {"logits": [0.5, -1.0]}),
    ("Beta", {"concentration1": 1.5, "concentration0": 2.5}),
    ("Beta", {"concentration1": [0.5, 7.0, 30.0], "concentration0": [0.8, 9.0, 2.0]}),
    ("Beta", {"concentration1": [[0.5], [12.0]], "concentration0": [1.0, 20.0]}),
    ("Binomial", {"total_count": 10, "probs": [0.1, 0.5, 0.95]}),
    ("Binomial", {"total_count": [3.0, 40.0], "probs": [0.3, 0.6]}),
    ("Binomial", {"total_count": 4, "logits": [[0.3], [-0.2]]}),
    ("Binomial", {"total_count": 4, "probs": [0.0, 1.0]}),
    ("Categorical", {"probs": PROBABILITIES}),
    ("Categorical", {"probs": PROBABILITY_ROWS}),
    ("Categorical", {"logits": [[0.3, -1.0, 2.0, 0.0]]}),
    ("Cauchy", {"loc": 0.0, "scale": 1.0}),
    ("Cauchy", {"loc": [0.5, -1.0], "scale": 2.0}),
    ("Chi2", {"df": [1.0, 5.0, 30.0]}),
    ("Chi2", {"df": 4.0}),
    ("ContinuousBernoulli", {"probs": [0.1, 0.4995, 0.8]}),
    ("ContinuousBernoulli", {"logits": [-2.0, 0.0003, 1.0]}),
    ("ContinuousBernoulli", {"probs": 0.3}),
    ("Dirichlet", {"concentration": [0.5, 1.0, 4.0]}),
    ("Dirichlet", {"concentration": [[0.3, 0.4, 0.5], [10.0, 20.0, 40.0]]}),
    ("Exponential", {"rate": 1.5}),
    ("Exponential", {"rate": [[0.5], [3.0]]}),
    ("FisherSnedecor", {"df1": [1.5, 5.0], "df2": [3.0, 6.0]}),
    ("FisherSnedecor", {"df1": 3.0, "df2": [1.0, 5.0]}),
    ("Gamma", {"concentration": 2.0, "rate": 0.5}),
    ("Gamma", {"concentration": [0.2, 1.0, 9.0, 60.0], "rate": [1.0, 2.0, 0.5, 3.0]}),
    ("Gamma", {"concentration": [[0.5], [3.0]], "rate": [1.0, 0.1]}),
    ("GeneralizedPareto", {"loc": 0.0, "scale": 1.0, "concentration": 0.3}),
    ("GeneralizedPareto", {"loc": [0.5, -1.0, 0.0], "scale": [1.0, 2.0, 0.5], "concentration": [-0.4, 0.0, 1.5]}),
    ("Gumbel", {"loc": 0.5, "scale": 2.0}),
    ("Gumbel", {"loc": [0.5, -1.0], "scale": [[1.0], [0.3]]}),
    ("HalfCauchy", {"scale": [0.5, 2.0]}),
    ("HalfCauchy", {"scale": 1.0}),
    ("HalfNormal", {"scale": [0.5, 2.0]}),
    ("HalfNormal", {"scale": 1.0}),
    ("Independent", {"base_distribution": "lib.distributions.Normal(t([[0.5, 1.0]]), t([[1.0], [2.0]]))",
                     "reinterpreted_batch_ndims": 1}),
    ("Independent", {"base_distribution": "lib.distributions.Bernoulli(t([0.5, 0.25]))", "reinterpreted_batch_ndims": 0}),
    ("InverseGamma", {"concentration": [1.5, 2.5, 8.0], "rate": [1.0, 2.0, 0.5]}),
    ("InverseGamma", {"concentration": 3.0, "rate": 1.0}),
    ("Kumaraswamy", {"concentration1": [0.8, 3.0], "concentration0": [1.5, 2.0]}),
    ("Kumaraswamy", {"concentration1": 2.0, "concentration0": 5.0}),
    ("Laplace", {"loc": [0.5, -1.0], "scale": [[1.0], [3.0]]}),
    ("Laplace", {"loc": 0.0, "scale": 1.0}),
    ("LKJCholesky", {"dim": 3, "concentration": [0.5, 2.0]}),
    ("LKJCholesky", {"dim": 2, "concentration": 1.0}),
    ("LogNormal", {"loc": [0.5, -1.0], "scale": [0.4, 1.0]}),
    ("LogNormal", {"loc": 0.0, "scale": 0.5}),
    ("LogisticNormal", {"loc": [0.5, -1.0], "scale": [0.4, 1.0]}),
    ("LogisticNormal", {"loc": [[0.5, -1.0, 0.3], [0.0, 0.0, 0.0]], "scale": 1.0}),
    ("LowRankMultivariateNormal", {"loc": VECTOR, "cov_factor": [[1.0], [2.0], [-0.5]], "cov_diag": [0.5, 1.0, 2.0]}),
    ("LowRankMultivariateNormal", {"loc": [VECTOR, VECTOR], "cov_factor": [[1.0, 0.3], [2.0, 0.1], [-0.5, 1.0]],
                                   "cov_diag": [0.5, 1.0, 2.0]}),
    ("MixtureSameFamily", {"mixture_distribution": "lib.distributions.Categorical(t([0.2, 0.8]))",
                           "component_distribution": "lib.distributions.Normal(t([-1.0, 2.0]), t([1.0, 0.5]))"}),
    ("MixtureSameFamily", {"mixture_distribution": "lib.distributions.Categorical(t([0.2, 0.8]))",
                           "component_distribution": "lib.distributions.MultivariateNormal(t([[0.0, 1.0], [2.0, 3.0]]), "
                           "scale_tril=t([[1.0, 0.0], [0.5, 2.0]]))"}),
    ("MixtureSameFamily", {"mixture_distribution": "lib.distributions.Categorical(t([[0.2, 0.8], [0.5, 0.5]]))",
                           "component_distribution": "lib.distributions.Gamma(t([[1.0, 2.0], [3.0, 0.5]]), t([1.0, 0.5]))"}),
    ("Multinomial", {"total_count": 6, "probs": PROBABILITIES}),
    ("Multinomial", {"total_count": 3, "probs": PROBABILITY_ROWS}),
    ("Multinomial", {"total_count": 4, "logits": [[0.3, -1.0, 2.0]]}),
    ("MultivariateNormal", {"loc": VECTOR, "covariance_matrix": COVARIANCE}),
    ("MultivariateNormal", {"loc": VECTOR, "precision_matrix": COVARIANCE}),
    ("MultivariateNormal", {"loc": VECTOR, "scale_tril": ROOT}),
    ("MultivariateNormal", {"loc": [VECTOR, VECTOR], "scale_tril": BATCH_OF_ROOTS}),
    ("MultivariateNormal", {"loc": [[VECTOR], [VECTOR]], "scale_tril": BATCH_OF_ROOTS}),
    ("NegativeBinomial", {"total_count": 5, "probs": [0.1, 0.5]}),
    ("NegativeBinomial", {"total_count": [2.0, 0.5], "logits": [[0.3], [-2.0]]}),
    ("Normal", {"loc": 0.5, "scale": 2.0}),
    ("Normal", {"loc": [0.5, -1.0, 0.0], "scale": [[1.0], [3.0]]}),
    ("Normal", {"loc": 1, "scale": [0.1]}),
    ("OneHotCategorical", {"probs": PROBABILITIES}),
    ("OneHotCategorical", {"logits": [[0.3, -1.0], [0.0, 2.0]]}),
    ("OneHotCategoricalStraightThrough", {"probs": [PROBABILITIES, PROBABILITIES]}),
    ("Pareto", {"scale": [1.0, 0.5], "alpha": [0.5, 3.0]}),
    ("Pareto", {"scale": 1.0, "alpha": 4.0}),
    ("Poisson", {"rate": [0.0, 0.5, 3.0, 50.0]}),
    ("Poisson", {"rate": 2.5}),
    ("RelaxedBernoulli", {"temperature": [0.5], "probs": [0.2, 0.9]}),
    ("RelaxedBernoulli", {"temperature": [2.0], "logits": [-1.0, 0.5]}),
    ("RelaxedOneHotCategorical", {"temperature": [0.5], "probs": PROBABILITIES}),
    ("RelaxedOneHotCategorical", {"temperature": [2.0], "logits": [[-1.0, 0.5], [0.0, 1.0]]}),
    ("StudentT", {"df": [0.5, 1.5, 5.0], "loc": [0.5, 0.0, -1.0], "scale": [1.0, 2.0, 0.3]}),
    ("StudentT", {"df": 4.0}),
    ("TransformedDistribution", {"base_distribution": "lib.distributions.Normal(t([0.5, 1.0]), t([1.0]))",
                                 "transforms": "[lib.distributions.AffineTransform(t([1.0, 2.0]), t([-0.5])), "
                                 "lib.distributions.ExpTransform()]"}),
    ("TransformedDistribution", {"base_distribution": "lib.distributions.Normal(t([0.5, 1.0]), t([1.0]))",
                                 "transforms": "lib.distributions.StickBreakingTransform()"}),
    ("TransformedDistribution", {"base_distribution": "lib.distributions.Uniform(t([0.0]), t([1.0]))", "transforms": "[]"}),
    ("Uniform", {"low": 0.0, "high": 2.0}),
    ("Uniform", {"low": [-1.0, 0.0], "high": [[1.0], [3.0]]}),
    ("VonMises", {"loc": [0.5, 2.0], "concentration": [0.3, 5.0]}),
    ("VonMises", {"loc": 0.0, "concentration": 40.0}),
    ("Weibull", {"scale": [0.5, 2.0], "concentration": [1.5, 3.0]}),
    ("Weibull", {"scale": 1.0, "concentration": 2.0}),
    ("Wishart", {"df": 6.5, "covariance_matrix": COVARIANCE}),
    ("Wishart", {"df": [4.5, 7.0], "precision_matrix": COVARIANCE}),
    ("Wishart", {"df": [[6.0], [9.0]], "scale_tril": BATCH_OF_ROOTS}),
]  # fmt: skip
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(CASES)]


class Inputs:
    """Makes a case's distribution for one package, and remembers the tensors that it made for it."""

    def __init__(self, lib, dtype):
        self.lib, self.dtype, self.leaves = lib, getattr(lib, dtype), []

    def tensor(self, values):
        leaf = self.lib.tensor(values, dtype=self.dtype, requires_grad=True)
        self.leaves.append(leaf)
        return leaf

    def value(self, value):
        if isinstance(value, str):
            return eval(value, {"lib": self.lib, "t": self.tensor})
        return self.tensor(value) if isinstance(value, list) else value

    def make(self, case, **options):
        name, parameters = case
        arguments = {k: self.value(v) for k, v in parameters.items()}
        return getattr(self.lib.distributions, name)(**arguments, **options)


def text(value):
    return re.sub(r"backlight\.distributions\.\w+\.|torch\.distributions\.\w+\.", "", str(value)).replace("backlight", "torch")


class Results(dict):
    """What one package computed, by a name: tensors with their gradients, texts and errors."""

    def __init__(self, inputs):
        super().__init__()
        self.inputs = inputs

    def add(self, name, function, *args):
        try:
            value = function(*args)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:  # compared with the other package's
            self[name] = f"{type(error).__name__}: {text(str(error).split(chr(10))[0])}"
            return None
        self[name] = value.detach().numpy().copy() if hasattr(value, "detach") else text(value)
        if hasattr(value, "detach"):
            self[name + " type"] = f"{value.dtype} {tuple(value.shape)} {value.requires_grad}".replace("backlight", "torch")
            if value.requires_grad:
                self.gradients(name, value)
        return value

    def gradients(self, name, value):
        lib, leaves = self.inputs.lib, self.inputs.leaves
        weights = lib.cos(lib.arange(value.numel(), dtype=value.dtype)).reshape(value.shape)
        try:
            found = lib.autograd.grad((value * weights).sum(), leaves, allow_unused=True, retain_graph=True) if leaves else ()
        except Exception as error:
            self[f"{name} gradient"] = f"{type(error).__name__}: {error}"
            return
        for i, g in enumerate(found):
            self[f"{name} gradient {i}"] = str(g) if g is None else g.numpy().copy()


def compare(test, ours, theirs, rtol, atol):
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    wrong = []
    for name, expected in theirs.items():
        found = ours[name]
        if isinstance(expected, np.ndarray):
            same = isinstance(found, np.ndarray) and found.shape == expected.shape
            same = same and np.allclose(found, expected, rtol=rtol, atol=atol, equal_nan=True)
        else:
            same = type(found) is type(expected) and found == expected
        if same:
            AGREED[test] += 1
        else:
            wrong.append(f"{name}: Backlight {found!r}, PyTorch {expected!r}")
    assert not wrong, "\n".join(wrong)


def same(test, program, dtype="float64", rtol=1e-7, atol=1e-9):
    """Runs `program(lib, inputs, results)` under both packages and compares what it adds to the results."""
    found = []
    for lib in BOTH:
        lib.manual_seed(0)
        lib.set_default_dtype(getattr(lib, dtype))  # of numbers, too
        results = Results(Inputs(lib, dtype))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                program(lib, results.inputs, results)
            finally:
                lib.set_default_dtype(lib.float32)
        results["warnings"] = sorted({text(w.message).split("(Triggered")[0].strip() for w in caught})
        results["stream"] = lib.get_rng_state().numpy().copy()
        found.append(results)
    compare(test, found[1], found[0], rtol, atol)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_distribution(case, dtype):
    def program(lib, inputs, out):
        d = inputs.make(case)
        for name in ("batch_shape", "event_shape", "has_rsample", "has_enumerate_support"):
            out.add(name, getattr, d, name)
        out["repr"] = text(d)
        out["arg_constraints"] = [(k, text(v)) for k, v in d.arg_constraints.items()]
        out["support"] = text(d.support), d.support.is_discrete, d.support.event_dim
        for name in ("mean", "mode", "variance", "stddev"):
            out.add(name, getattr, d, name)
        out.add("entropy", d.entropy)
        out.add("perplexity", d.perplexity)
        out.add("one sample", d.sample)
        value = out.add("sample", d.sample, (3, 2))
        out.add("many", d.sample, lib.Size([20]))
        if case[0] != "Wishart":  # PyTorch's can't be differentiated: see test_wishart_gradients
            out.add("rsample", d.rsample, (4,))
        out.add("rsample once", d.rsample)
        out.add("support check", d.support.check, value)
        value = lib.from_numpy(value.detach().numpy().copy())
        out.add("log_prob", d.log_prob, value)
        out.add("cdf", d.cdf, value)
        out.add("log_prob without batch", d.log_prob, value[0, 0])
        quantile = lib.tensor([0.01, 0.3, 0.5, 0.9], dtype=inputs.dtype).reshape(4, *[1] * len(d.batch_shape))
        out.add("icdf", d.icdf, quantile)
        out.add("enumerate_support", d.enumerate_support)
        out.add("enumerate_support(False)", d.enumerate_support, False)
        for name in ("probs", "logits", "param_shape", "covariance_matrix", "precision_matrix", "scale_tril", "df"):
            if hasattr(getattr(torch.distributions, case[0]), name):
                out.add(name, getattr, d, name)
        if isinstance(d, lib.distributions.ExponentialFamily):
            out.add("family entropy", lambda: lib.distributions.ExponentialFamily.entropy(d))
        if dtype == "float64":
            out["repr later"] = text(d)

    tolerance = {"rtol": 1e-7, "atol": 1e-9} if dtype == "float64" else {"rtol": 2e-4, "atol": 2e-5}
    same("distributions", program, dtype, **tolerance)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_expand(case):
    def program(lib, inputs, out):
        d = inputs.make(case)
        shape = (3, *d.batch_shape)
        new = out.add("expand", d.expand, shape)
        if new is None:
            return
        out["repr"] = text(new)
        out["shapes"] = text((new.batch_shape, new.event_shape)), type(new).__name__, new._validate_args
        value = out.add("sample", new.sample, (2,))
        if case[0] != "Wishart":
            out.add("rsample", new.rsample, (2,))
        out.add("log_prob", new.log_prob, lib.from_numpy(value.detach().numpy().copy()))
        out.add("mean", getattr, new, "mean")
        out.add("variance", getattr, new, "variance")
        if case[0] != "Multinomial":  # PyTorch's raises AttributeError
            out.add("entropy", new.entropy)
        out.add("again", lambda: new.expand((2, *shape)).batch_shape)
        kind = type("Own", (type(d),), {})
        d.__class__ = kind
        out.add("subclass", lambda: type(d.expand(shape)).__name__)
        d.__class__ = type("Own", (kind,), {"__init__": lambda self: None})
        out.add("subclass with its own init", lambda: text(type(d.expand(shape))))

    same("expand", program)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_invalid_values(case):
    def program(lib, inputs, out):
        d = inputs.make(case)
        event = tuple(d.event_shape)
        for name, value in {
            "nan": lib.full(event, float("nan"), dtype=inputs.dtype),
            "negative": lib.full(event, -1.5, dtype=inputs.dtype),
            "half": lib.full(event, 0.5, dtype=inputs.dtype),
            "large": lib.full(event, 1e3, dtype=inputs.dtype),
            "batch": lib.zeros((7, 11, *event), dtype=inputs.dtype),
            "event": lib.zeros((*d.batch_shape, *(n + 1 for n in event), 5), dtype=inputs.dtype),
            "number": 0.5,
        }.items():
            if (case[0], name) == ("Wishart", "half"):  # singular: whether it has a Cholesky factor is a matter of rounding
                continue
            out.add(f"log_prob {name}", d.log_prob, value)
            out.add(f"cdf {name}", d.cdf, value)
        free = inputs.make(case, validate_args=False)
        out["not validated"] = free._validate_args
        out.add("not validated", free.log_prob, lib.full(event, 1e3, dtype=inputs.dtype))

    same("invalid values", program, rtol=1e-6)


INVALID = """
Normal(0.0, -1.0)| Normal(t([0.0, float('nan')]), 1.0)| Normal('a', 1.0)| Bernoulli()| Bernoulli(0.5, 0.5)| Bernoulli(1.5)
Bernoulli(t([0.5, -0.1]))| Binomial(-1, t([0.5]))| Binomial(2)| Binomial(1.5, t([0.5]))| Categorical(t(0.5))| Categorical()
Categorical(t([0.5, -0.5]))| Categorical(logits=t(1.0))| Categorical(logits=t([float('nan'), 1.0]))| Geometric(0.0)
Geometric(t([0.5, 0.0]))| Geometric()| Multinomial(t([3.0]), t([0.5, 0.5]))| Multinomial(3)| OneHotCategorical(t([-1.0, 1.0]))
Dirichlet(t(0.5))| Dirichlet(t([0.5, 0.0]))| Beta(0.0, 1.0)| Gamma(-1.0, 1.0)| Gamma(1.0, t([1.0, 0.0]))| Chi2(0.0)| Uniform(1.0, 0.0)
Uniform(t([0.0, 1.0]), t([1.0, 1.0]))| Independent(Normal(0.0, 1.0), 1)| LKJCholesky(1)| LKJCholesky(3, -1.0)| Exponential(0.0)
MultivariateNormal(t(0.0), t([[1.0]]))| MultivariateNormal(t([0.0]))| MultivariateNormal(t([0.0]), t([1.0]))
MultivariateNormal(t([0.0]), scale_tril=t([1.0]))| MultivariateNormal(t([0.0]), precision_matrix=t([1.0]))
MultivariateNormal(t([0.0, 1.0]), t([[1.0, 2.0], [2.0, 1.0]]))| MultivariateNormal(t([0.0]), t([[1.0]]), t([[1.0]]))
MultivariateNormal(t([0.0, 1.0]), scale_tril=t([[1.0, 2.0], [2.0, 1.0]]))| MultivariateNormal(t([0.0, 1.0]), t([[1.0, 2.0], [0.0, 1.0]]))
LowRankMultivariateNormal(t(0.0), t([[1.0]]), t([1.0]))| LowRankMultivariateNormal(t([0.0]), t([1.0]), t([1.0]))
LowRankMultivariateNormal(t([0.0]), t([[1.0], [1.0]]), t([1.0]))| LowRankMultivariateNormal(t([0.0]), t([[1.0]]), t([1.0, 2.0]))
LowRankMultivariateNormal(t([0.0]), t([[1.0]]), t([-1.0]))
LowRankMultivariateNormal(t([[0.0], [1.0]]), t([[[1.0]], [[1.0]], [[1.0]]]), t([1.0]))
MixtureSameFamily(Normal(0.0, 1.0), Normal(0.0, 1.0))| MixtureSameFamily(Categorical(t([1.0])), 3)
MixtureSameFamily(Categorical(t([1.0, 2.0])), Normal(t([1.0, 2.0, 3.0]), 1.0))
MixtureSameFamily(Categorical(t([[1.0], [2.0]])), Normal(t([[1.0], [1.0], [1.0]]), 1.0))
TransformedDistribution(Normal(0.0, 1.0), 3)| TransformedDistribution(Normal(0.0, 1.0), [3])
TransformedDistribution(Normal(0.0, 1.0), StickBreakingTransform())| Wishart(3.0)| Wishart(3.0, t([1.0]))| Wishart(1.0, t([[1.0, 0.0], [0.0, 1.0]]))
Wishart(1.5, t([[1.0, 0.0], [0.0, 1.0]]))| StudentT(-1.0)| VonMises(0.0, -1.0)| RelaxedBernoulli(t([1.0]), 2.0)| Poisson(-1.0)
RelaxedOneHotCategorical(t([1.0]), t([-1.0, 0.5]))| NegativeBinomial(-1, t([0.5]))| NegativeBinomial(1, t([1.0]))| Pareto(0.0, 1.0)
HalfNormal(-1.0)| HalfCauchy(-1.0)| Weibull(1.0, 0.0)| Gumbel(0.0, -1.0)| ContinuousBernoulli(1.5, validate_args=True)
ContinuousBernoulli()| Kumaraswamy(0.0, 1.0)| LogNormal(0.0, 0.0)| InverseGamma(0.0, 1.0)| FisherSnedecor(0.0, 1.0)| Normal(1, 2).variance
Laplace(t([0]), 1.0).sample()| Distribution().mean| Distribution().mode| Distribution().support| Distribution(validate_args=False)
Distribution.set_default_validate_args(3)| Normal(0.0, 1.0).sample_n(3).shape| Normal(0.0, 1.0).enumerate_support()
Independent(Bernoulli(t([0.5])), 1).enumerate_support()| Binomial(t([1.0, 2.0]), t([0.5])).enumerate_support()
Binomial(t([1.0, 2.0]), t([0.5])).entropy()| GeneralizedPareto(0.0, -1.0, 1.0)| Normal(0.0, 1.0).log_prob('a')
kl_divergence(Normal(0.0, 1.0), Poisson(1.0))| kl_divergence(Binomial(1, t([0.5])), Binomial(2, t([0.5])))
kl_divergence(Independent(Normal(t([0.0]), 1.0), 1), Independent(Normal(t([0.0]), 1.0), 0))| register_kl(3, Normal)
kl_divergence(MultivariateNormal(t([0.0]), t([[1.0]])), MultivariateNormal(t([0.0, 0.0]), t([[1.0, 0.0], [0.0, 1.0]])))
kl_divergence(Chi2(1.0), Normal(0.0, 1.0))| kl_divergence(Poisson(1.0), Normal(0.0, 1.0))| kl_divergence(Chi2(t([2.0])), Chi2(t([3.0])))
kl_divergence(LogNormal(0.0, 1.0), HalfNormal(1.0))| kl_divergence(LogNormal(0.0, 1.0), LogNormal(1.0, 2.0))
kl_divergence(MultivariateNormal(t([0.0]), t([[1.0]])), LowRankMultivariateNormal(t([0.0, 1.0]), t([[1.0], [1.0]]), t([1.0, 1.0])))
biject_to(constraints.lower_cholesky)| biject_to(3)| biject_to.register(3, abs)| transform_to.register(int)(abs)
constraints.dependent.check(t([1.0]))| constraints.dependent.event_dim| constraints.dependent.is_discrete
constraints.dependent(event_dim=3).event_dim| constraints.dependent(is_discrete=True).is_discrete| constraints.independent(3, 1)
constraints.independent(constraints.real, -1)| constraints.independent(constraints.real, 1.5)| constraints.independent(constraints.real, 2).check(t([1.0]))
constraints.cat([3])| constraints.cat([constraints.real], lengths=[1, 2])| constraints.stack([3])| constraints.cat([constraints.real], 3).check(t([1.0]))
constraints.stack([constraints.real], 3).check(t([1.0]))| constraints.MixtureSameFamilyConstraint(3)| constraints.Constraint().check(t([1.0]))
ExpTransform(2)| ReshapeTransform((2, 3), (4,))| ReshapeTransform((2,), (2, 1)).forward_shape(lib.Size([3]))| Transform().inv(t([1.0]))
ReshapeTransform((2, 1), (2,)).inverse_shape(lib.Size([]))| CorrCholeskyTransform().forward_shape(lib.Size([2]))
CorrCholeskyTransform().inverse_shape(lib.Size([2, 3]))| CorrCholeskyTransform().inverse_shape(lib.Size([2]))| SoftmaxTransform().forward_shape(lib.Size([]))
IndependentTransform(ExpTransform(), 1)(t(1.0))| IndependentTransform(ExpTransform(), 1).inv(t(1.0))| StickBreakingTransform().inverse_shape(lib.Size([]))
CatTransform([3])| CatTransform([ExpTransform()], lengths=[1, 2])| CatTransform([ExpTransform()], 0, [2])(t([1.0]))| StackTransform([3])
CatTransform([ExpTransform()], 2, [2])(t([1.0]))| StackTransform([ExpTransform()], 0)(t([1.0, 2.0]))| StackTransform([ExpTransform()], 2)(t([1.0]))
StackTransform([ExpTransform()], 0).log_abs_det_jacobian(t([1.0, 2.0]), t([1.0]))| CatTransform([ExpTransform()]).log_abs_det_jacobian(t(1.0), t(1.0))
AbsTransform().sign| StickBreakingTransform().event_dim| ReshapeTransform((1, 2), (2,)).event_dim| utils.broadcast_all('a')| utils.vec_to_tril_matrix(t([1.0, 2.0]))
utils.tril_matrix_to_vec(t([[1.0]]), 2)| utils.broadcast_all(1, 2.5, True)| utils.broadcast_all(1, t([1.0, 2.0]))| utils.probs_to_logits(t([0.0, 1.0]), True)
utils.clamp_probs(t([0.0, 1.0]))| utils.vec_to_tril_matrix(t([1.0, 2.0, 3.0]), -1)| utils.tril_matrix_to_vec(t([[1.0, 2.0], [3.0, 4.0]]), 1)
"""


def test_errors_and_small_results():
    def program(lib, inputs, out):
        names = {**vars(lib.distributions), "t": inputs.tensor, "lib": lib}
        for expression in re.split(r"[|\n]\s*", INVALID.strip()):

            def run(expression=expression):
                result = eval(expression, names)
                return result if hasattr(result, "detach") else text(repr(result))

            out.add(expression, run)

    same("errors", program, "float64")


TRANSFORMS = [
    "AbsTransform()", "AffineTransform(1.0, 2.0)", "AffineTransform(t([1.0, 2.0]), t([[-1.0], [3.0], [2.0]]))",
    "AffineTransform(0, -2, event_dim=1)", "AffineTransform(t([1.0]), t([2.0, 3.0]), event_dim=1)",
    "CatTransform([ExpTransform(), AffineTransform(0.0, 3.0)], dim=-1, lengths=[1, 1])",
    "CatTransform([SoftmaxTransform(), SoftmaxTransform()], dim=0, lengths=[1, 2])",
    "ComposeTransform([AffineTransform(0.0, 0.5), ExpTransform(), PowerTransform(t([2.0]))])",
    "ComposeTransform([ExpTransform(), IndependentTransform(AffineTransform(1.0, 2.0), 1)])",
    "ComposeTransform([StickBreakingTransform(), IndependentTransform(ExpTransform(), 1)])",
    "ComposeTransform([])", "CorrCholeskyTransform()", "CumulativeDistributionTransform(Normal(t([0.5]), 1.0))",
    "ExpTransform()", "ExpTransform().inv", "IndependentTransform(ExpTransform(), 1)", "LowerCholeskyTransform()",
    "PositiveDefiniteTransform()", "PowerTransform(t([0.5, 2.0]))", "PowerTransform(3)", "ReshapeTransform((2,), (1, 2))",
    "SigmoidTransform()", "SoftplusTransform()", "TanhTransform()", "SoftmaxTransform()", "StickBreakingTransform()",
    "StackTransform([ExpTransform(), AffineTransform(1.0, 2.0)], dim=-1)", "identity_transform",
]  # fmt: skip


@pytest.mark.parametrize("expression", TRANSFORMS)
def test_transform(expression):
    def program(lib, inputs, out):
        d = lib.distributions
        make = lambda: eval(expression, {**vars(d), "t": inputs.tensor})
        transform = make()
        shape = (
            (4, 3) if "Corr" in expression else (3, 2, 2) if "Definite" in expression or "LowerChol" in expression else (3, 2)
        )
        values = np.random.default_rng(1).uniform(-1.5, 1.5, shape)
        if "Power" in expression and "Compose" not in expression or ".inv" in expression:
            values = abs(values) + 0.1
        x = inputs.tensor(values.tolist())
        out["repr"], out["inverse"] = text(transform), text(transform.inv)
        out["domain"] = text((transform.domain, transform.domain.event_dim, transform.codomain, transform.codomain.event_dim))
        for name in ("bijective", "sign", "event_dim"):
            out.add(name, getattr, transform, name)
        y = out.add("y", transform, x)
        out.add("x", transform.inv, y)
        out.add("jacobian", transform.log_abs_det_jacobian, x, y)
        out.add("inverse jacobian", transform.inv.log_abs_det_jacobian, y, x)
        out["shapes"] = text(
            (transform.forward_shape(x.shape), transform.inverse_shape(y.shape), transform.inv.forward_shape(y.shape))
        )
        out["codomain"] = text(transform.codomain.check(y).all().item())
        other = make()
        out["equal"] = [
            transform == other,
            transform == d.SigmoidTransform(),
            transform.inv == other.inv,
            transform.inv.inv is transform,
        ]
        cached = transform.with_cache()
        out["cache"] = [cached is transform, cached._cache_size, cached.with_cache(1) is cached]
        y = cached(x)
        out["cached"] = [cached(x) is y, cached.inv(y) is x]
        if not ("t(" in expression or ".inv" in expression):  # PyTorch pickles no results and loses an inverse
            out.add("pickled", pickle.loads(pickle.dumps(transform)), x.detach())

    same("transforms", program)


CONSTRAINTS = """boolean one_hot nonnegative_integer positive_integer real real_vector positive nonnegative unit_interval simplex
lower_triangular lower_cholesky corr_cholesky square symmetric positive_semidefinite positive_definite integer_interval(-1,2)
interval(-1.0,0.5) half_open_interval(-1.0,0.5) greater_than(0.5) greater_than_eq(0.5) less_than(0.5) multinomial(2)
cat([constraints.positive,constraints.real],-1,[2,1]) stack([constraints.positive,constraints.real,constraints.simplex],-2)
independent(constraints.positive,1) MixtureSameFamilyConstraint(constraints.positive) interval(t([0.0]),t([0.5,1.0,2.0]))""".split()


@pytest.mark.parametrize("expression", CONSTRAINTS)
def test_constraint(expression):
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(3, 3))
    values = [
        np.eye(3), matrix, np.tril(matrix), np.tril(abs(matrix)) + np.eye(3), matrix @ matrix.T, -matrix @ matrix.T, matrix + matrix.T,
        np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.5, 0.5, 0.5]]), np.array([[0.0, 1.0, 2.0], [-1.0, np.nan, np.inf], [0.5, 3, 1]]),
        np.linalg.cholesky(np.array([[1.0, 0.3, 0.1], [0.3, 1.0, -0.4], [0.1, -0.4, 1.0]])), np.ones((2, 3)),
    ]  # fmt: skip

    def program(lib, inputs, out):
        constraints = lib.distributions.constraints
        names = {**vars(constraints), "t": inputs.tensor, "constraints": constraints}
        constraint = eval(expression, names)
        out["about"] = text((constraint, constraint.is_discrete, constraint.event_dim, constraints.is_dependent(constraint)))
        for i, value in enumerate(values):
            out.add(f"check {i}", constraint.check, lib.tensor(value.tolist(), dtype=inputs.dtype))
        for name in ("biject_to", "transform_to"):
            registry = getattr(lib.distributions, name)
            transform = out.add(name, registry, constraint)
            if transform is not None and "stack" not in expression:
                x = inputs.tensor(matrix[:, :3].tolist())
                y = out.add(f"{name} y", transform, x)
                out.add(f"{name} valid", lambda y=y: constraint.check(y).all())

    same("constraints", program)


PAIRS = sorted({(p.__name__, q.__name__) for p, q in torch.distributions.kl._KL_REGISTRY})
FAMILIES = {name: [c for c in CASES if c[0] == name] for name, _ in CASES}


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_kl(p, q):
    if p == "ExponentialFamily":
        pairs = [(case, other) for name in ("Chi2", "Wishart") for case, other in zip(FAMILIES[name], FAMILIES[name][::-1])]
    else:
        pairs = [(a, b) for a in FAMILIES[p] for b in FAMILIES[q]]

    def program(lib, inputs, out):
        for i, pair in enumerate(pairs):
            ds = [inputs.make(case) for case in pair]
            out.add(f"kl {i}", lib.distributions.kl_divergence, *ds)

    same("kl", program, rtol=1e-6)


def test_kl_registry():
    def names(lib):
        return [(p.__name__, q.__name__) for p, q in lib.distributions.kl._KL_REGISTRY]

    assert sorted(names(torch)) == sorted(names(backlight))

    def program(lib, inputs, out):
        d = lib.distributions
        A, B, C, D = (type(n, (b,), {}) for n, b in (("A", d.Normal), ("B", d.Normal), ("C", d.Normal), ("D", d.Normal)))
        AB = type("AB", (A,), {})
        register = d.register_kl
        try:
            register(A, d.Normal)(lambda p, q: "A, Normal")
            register(d.Normal, A)(lambda p, q: "Normal, A")
            register(B, B)(lambda p, q: "B, B")
            for p in (A, B, C, AB, D):
                for q in (A, B, C, AB, d.Normal):
                    out.add(f"{p.__name__} {q.__name__}", d.kl_divergence, p(0.0, 1.0), q(1.0, 1.0))
        finally:
            for pair in ((A, d.Normal), (d.Normal, A), (B, B)):
                d.kl._KL_REGISTRY.pop(pair, None)
            d.kl._KL_MEMOIZE.clear()

    same("kl dispatch", program)


def test_own_distributions():
    """Programs write distributions of their own, with as little as they need."""

    def program(lib, inputs, out):
        d = lib.distributions

        class Bare(d.Distribution):
            def log_prob(self, value):
                if self._validate_args:
                    self._validate_sample(value)
                return -value

        class Steps(d.Distribution):
            arg_constraints = {"size": d.constraints.positive}
            has_enumerate_support = True

            def __init__(self, size, validate_args=None):
                (self.size,) = d.utils.broadcast_all(size)
                super().__init__(self.size.shape, validate_args=validate_args)

            @d.constraints.dependent_property(is_discrete=False, event_dim=0)
            def support(self):
                return d.constraints.interval(-self.size, self.size)

            @d.utils.lazy_property
            def half(self):
                return self.size / 2

            def rsample(self, sample_shape=()):
                shape = self._extended_shape(sample_shape)
                return self.size * (2 * lib.rand(shape, dtype=self.size.dtype) - 1)

            def log_prob(self, value):
                if self._validate_args:
                    self._validate_sample(value)
                return -(2 * self.size).log() + 0 * value

        out.add("bare", lambda: Bare(lib.Size([2])).log_prob(lib.ones(2)))
        out.add("bare text", lambda: str(Bare(validate_args=False)))
        s = Steps(inputs.tensor([1.0, 2.0]))
        out["steps"] = text(s), text(Steps.support), Steps.support.event_dim, isinstance(Steps.half, d.utils.lazy_property)
        value = out.add("rsample", s.rsample, (3,))
        out.add("log_prob", s.log_prob, value)
        out.add("half", lambda: s.half)
        out["kept"] = "half" in s.__dict__
        out.add("outside", s.log_prob, value * 100)
        out.add("independent", lambda: d.Independent(s, 1).log_prob(lib.zeros(2, dtype=inputs.dtype)))
        out.add("transformed", lambda: d.TransformedDistribution(s, d.ExpTransform()).log_prob(lib.ones(2, dtype=inputs.dtype)))
        out.add("wrong", Steps, -1.0)
        with lib.no_grad():
            c = d.Categorical(inputs.tensor([1.0, 3.0]))
        out.add("logits without grad mode", lambda: c.logits)
        d.Distribution.set_default_validate_args(False)
        out.add("not validated", lambda: d.Normal(0.0, -1.0))
        d.Distribution.set_default_validate_args(True)

    same("own", program)


DRAWS = np.exp(np.random.default_rng(0).uniform(-4, 5, 3000))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma_draws(dtype):
    """The operations behind gamma, beta and Dirichlet numbers, in all ranges of the parameters."""

    def program(lib, inputs, out):
        a = lib.tensor(DRAWS.tolist(), dtype=inputs.dtype)
        rows = a.reshape(-1, 3)
        x = out.add("gamma", lib._standard_gamma, a)
        shares = out.add("dirichlet", lib._sample_dirichlet, rows)
        if lib is backlight:  # gradients of the same numbers
            x, shares = (lib.from_numpy(n) for n in drawn)
        else:
            drawn.extend((x.numpy(), shares.numpy()))
        out.add("gamma slope", lib._standard_gamma_grad, a, x)
        out.add("dirichlet slope", lib._dirichlet_grad, shares, rows, rows.sum(-1, True).expand_as(rows))
        for name, argument in {"long": a.long(), "half": a.half(), "zeros": a[:3] * 0}.items():
            out.add(f"gamma {name}", lib._standard_gamma, argument)
            out.add(f"dirichlet {name}", lib._sample_dirichlet, argument + 1)
            out.add(f"gamma slope {name}", lib._standard_gamma_grad, argument, argument)
            out.add(f"dirichlet slope {name}", lib._dirichlet_grad, argument + 1, argument, argument)
        leaf = a[:6].reshape(2, 3).detach().requires_grad_()
        g = lib.autograd.grad(lib._standard_gamma(leaf).sum(), leaf, create_graph=True)[0]
        out.add("twice", lib.autograd.grad, g.sum(), leaf)
        out.add("dirichlet gradient", lambda: lib.autograd.grad(lib._sample_dirichlet(leaf)[0, 0], leaf))
        g = lib.autograd.grad(lib.distributions.Dirichlet(leaf).rsample()[0, 0], leaf, create_graph=True)[0]
        out.add("dirichlet twice", lib.autograd.grad, g.sum(), leaf)
        out["nodes"] = [type(lib._standard_gamma(leaf).grad_fn).__name__, type(lib._sample_dirichlet(leaf).grad_fn).__name__]

    drawn = []
    tolerance = (
        {"rtol": 1e-8, "atol": 0} if dtype == "float64" else {"rtol": 1e-3, "atol": 1e-6}
    )  # in part rounded to float32 there
    same("gamma draws", program, dtype, **tolerance)


def test_wishart_gradients():
    """PyTorch's rsample raises in backward, as it overwrites a mask that it saved; here it is compared with differences."""
    values = np.array(COVARIANCE)

    def sample(matrix):
        backlight.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each sample is taken for a singular one, as in PyTorch
            return backlight.distributions.Wishart(6.5, backlight.as_tensor(matrix)).rsample((2,))

    leaf = backlight.tensor(values, requires_grad=True)
    weights = backlight.arange(18.0, dtype=backlight.float64).reshape(2, 3, 3)
    (g,) = backlight.autograd.grad((sample(leaf) * weights).sum(), leaf)
    direction = np.random.default_rng(0).normal(size=(3, 3))
    direction = (direction + direction.T) * 1e-6
    upper, lower = ((sample(values + sign * direction) * weights).sum().item() for sign in (1, -1))
    assert (g.numpy() * direction).sum() == pytest.approx((upper - lower) / 2, rel=1e-6)


def test_names():
    ours, theirs = backlight.distributions, torch.distributions
    assert sorted(ours.__all__) == sorted(theirs.__all__)
    for name in dir(theirs):
        assert name.startswith("_") or hasattr(ours, name), name
    for module in ("constraints", "transforms", "kl", "utils", "constraint_registry"):
        for name in getattr(theirs, module).__all__:
            assert hasattr(getattr(ours, module), name), (module, name)
    for name in ours.__all__:
        kind = getattr(theirs, name)
        if isinstance(kind, type):
            module = __import__(kind.__module__.replace("torch", "backlight"), fromlist=[name])
            assert getattr(module, name) is getattr(ours, name)
            missing = [n for n in vars(kind) if not n.startswith("_") and not hasattr(getattr(ours, name), n)]
            assert not missing, (name, missing)


def test_transforms_and_distributions_that_are_modules():
    """As Pyro's flows: a Transform first, so that its `__init__` must go on to Module's."""
    results = []
    for package in (backlight, torch):
        package.manual_seed(0)
        Transform, Distribution = package.distributions.Transform, package.distributions.Distribution

        class Scale(Transform, package.nn.Module):
            domain = codomain = package.distributions.constraints.real
            bijective, sign = True, 1

            def __init__(self, package):
                super().__init__(cache_size=1)
                self.weight = package.nn.Parameter(package.tensor(0.5))

            def _call(self, x):
                return x * self.weight.exp()

            def _inverse(self, y):
                return y / self.weight.exp()

            def log_abs_det_jacobian(self, x, _y):
                return self.weight.expand(x.shape)

        class Layer(Distribution, package.nn.Module):
            arg_constraints = {}

            def __init__(self, package):
                super().__init__()
                self.weight = package.nn.Parameter(package.ones(1))

        scale, normal = Scale(package), package.distributions.Normal(0.0, 1.0)
        flow = package.distributions.TransformedDistribution(normal, [scale])
        flow.log_prob(flow.sample((3,))).sum().backward()
        results.append((list(scale.state_dict()), scale.weight.grad.item(), list(Layer(package).state_dict())))
    assert results[0][::2] == results[1][::2]
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-5)
