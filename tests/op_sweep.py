"""PyTorch's own op database as the yardstick: every operation on every sample input, through both packages.

`sweep` runs one operation in one type and counts, for each of `KINDS`, how many samples agree. tests/test_sweep.py asserts
that all do but those in `KNOWN`; scripts/compatibility.py writes docs/compatibility.md from the same counts.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import re
import signal
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
import torch.autograd.forward_ad
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import backlight
import backlight.autograd.forward_ad
import backlight.func

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

VALUES, GRADIENTS, DOUBLE, FORWARD = "values", "gradients", "double", "forward"
IN_PLACE, OUT, STRIDED, ERRORS, VMAP = "in-place", "out", "strided", "errors", "vmap"
KINDS = (VALUES, GRADIENTS, DOUBLE, FORWARD, IN_PLACE, OUT, STRIDED, ERRORS, VMAP)
TYPES = ("float64", "float32", "complex128", "int64", "bool")
HALVES = ("float16", "bfloat16")  # values only: each package rounds its gradients in other places
SECONDS = 30  # for one sample, against hanging

DATABASE = {f"{o.name}:{o.variant_test_name}".rstrip(":"): o for o in op_db}
# {"name" or "name:variant": tier}. A: what every program uses, B: what many do, C: rare, D: internals of PyTorch.
TIERS = {
    ":".join(line.split("\t")[:2]).rstrip(":"): line.split("\t")[2]
    for line in Path(__file__).with_name("op_tiers.tsv").read_text().splitlines()[1:]
}

SPARSE = "sparse layouts: Backlight has dense arrays only"
CUDA = "runs on CUDA only, or is one of its kernels"
INTERNAL = "an internal of PyTorch behind public operations, which are here"
NO_TYPE = "NumPy has no such element type"
PROTOTYPE = "a prototype in PyTorch, subject to change"
SLOW = "its samples take minutes; nn.functional.grid_sample covers it"
# Operations of the database that the sweep leaves out.
LEFT_OUT = {
    name: reason
    for reason, names in {
        SPARSE: "sparse.sampled_addmm sparse.mm:reduce to_sparse",
        CUDA: """jiterator_unary jiterator_binary jiterator_4inputs_with_extra_args jiterator_binary_return_by_ref
        jiterator_2inputs_2outputs torch._scaled_mm torch._scaled_mm_v2 bmm:triton_optimized
        torch.ops.aten._flash_attention_forward torch.ops.aten._efficient_attention_forward""",
        INTERNAL: """_softmax_backward_data native_group_norm native_layer_norm native_batch_norm _native_batch_norm_legit
        _batch_norm_with_update _upsample_bilinear2d_aa max_pool2d_with_indices_backward torch.ops.aten._safe_softmax.default
        slice _unsafe_masked_index _unsafe_masked_index_put_accumulate _chunk_cat native_dropout_backward""",
        NO_TYPE: "chalf",
        PROTOTYPE: "hash_tensor _segment_reduce:lengths _segment_reduce:offsets",
        SLOW: "grid_sampler_3d",
    }.items()
    for name in names.split()
}
NAMES = [name for name in TIERS if name not in LEFT_OUT]


def known(reason, kinds, types, names):
    """Entries for KNOWN: all combinations of the words."""
    return {(name, kind, t): reason for name in names.split() for kind in kinds.split() for t in types.split() or [""]}


REAL, FLOATING = "float64 float32", "float64 float32 complex128"
ORDER = "PyTorch doesn't define the order of equal elements; ours is stable"
NUMBER = "PyTorch refuses a number in the place of the first tensor; Backlight computes with it"
OVERLAP = "an `out=` may share memory with inputs here: a result is complete before it is written"
MEMORY = (
    "these samples read memory around the tensor: NumPy hands over an array that begins at its first element, without the gaps"
)
RESTRIDED = "as_strided_ on tensors that require grad isn't supported; as_strided is"
RESIZED = "PyTorch resizes the tensor to the result's shape; here that is an error, as for other in-place operations"
OVERWRITTEN = "PyTorch's gradient keeps what was overwritten and drops other elements; ours is that of the values"
UNREAD = "PyTorch's tangent also counts elements of the input that the operation doesn't read"
REPEATED = "where an index repeats, PyTorch's tangent contradicts its gradient; ours is the gradient's transpose"
ROUNDING = "ill-conditioned samples: both results are rounding errors of large terms"
INACCURATE = "PyTorch's values are off by up to 8e-7 here; ours agree with SciPy's to 1e-15"
INFINITE = "at single points (infinities, exact zeros) one of both formulas gives NaN, or another of the possible values"
ONCE = "PyTorch gives no second gradient where it computes in chunks; ours is the same with and without"
NO_OUT = "`out=` would cost time in every call of the most common layer"
WINDOW = "PyTorch has no gradient for a complex window here"
WHOLE_BATCH = "resize_ of one sample would resize the batch"
OWN_CHECK = "another exception, from a check that comes earlier"
HALF = "both round to half precision, at different places of the formula"
OVERFLOW = "PyTorch computes in half precision throughout, and overflows"
VECTOR = "PyTorch's vectorised code rounds once per register, so its numbers depend on the processor"
STREAM = "from 16 elements on PyTorch draws half-precision normal numbers in another way"
# What differs from PyTorch, and why it stays: {(operation, kind, type): reason}.
KNOWN: dict[tuple[str, str, str], str] = {
    **known(ORDER, "values out", "int64", "kthvalue topk mode"),
    **known(ORDER, "values out", "bool", "mode sort"),
    **known(ORDER, "values", "bool", "argsort"),
    **known(NUMBER, "errors", "", "__radd__ __rand__ __rmul__ __ror__ __rxor__"),
    **known(OVERLAP, "errors", "", "cat gather index_select kthvalue masked_select take"),
    **known(OWN_CHECK, "errors", "", "narrow_copy"),
    **known(MEMORY, "strided", FLOATING, "as_strided as_strided_copy as_strided_scatter"),
    **known(MEMORY, "values gradients double forward strided", FLOATING, "as_strided:partial_views"),
    **known(MEMORY, "values", "int64 bool", "as_strided:partial_views"),
    **known(RESTRIDED, "in-place", FLOATING, "as_strided as_strided:partial_views"),
    **known(RESIZED, "in-place", FLOATING + " int64", "addbmm"),
    **known(OVERWRITTEN, "gradients double", FLOATING, "as_strided_scatter"),
    **known(UNREAD, "forward", FLOATING, "triangular_solve"),
    **known(UNREAD, "forward", "float64 complex128", "cholesky_inverse"),
    **known(REPEATED, "forward", REAL, "nn.functional.max_unpool1d nn.functional.max_unpool2d nn.functional.max_unpool3d"),
    **known(ROUNDING, "double forward", "float64 complex128", "cov"),
    **known(ROUNDING, "double", "float32", "cov"),
    **known(ROUNDING, "double", "float32", "linalg.householder_product nn.functional.normalize special.log_ndtr svd_lowrank"),
    **known(ROUNDING, "double", "complex128", "svd_lowrank"),
    **known(INFINITE, "values strided", "complex128", "cov"),
    **known(INACCURATE, "values out", "float64", """special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0
            special.bessel_y1"""),
    **known(INFINITE, "forward", FLOATING, "linalg.norm linalg.norm:subgradients_at_zero logcumsumexp"),
    **known(INFINITE, "double", "complex128", "linalg.norm:subgradients_at_zero"),
    **known(INFINITE, "gradients double strided", "float32", "logcumsumexp"),
    **known(ONCE, "double", REAL, "nn.functional.linear_cross_entropy:chunked"),
    **known(NO_OUT, "out", FLOATING + " int64", "nn.functional.linear"),
    **known(WINDOW, "gradients double strided", "complex128", "istft"),
    **known(WHOLE_BATCH, "vmap", FLOATING + " int64 bool", "resize_"),
    **known(ORDER, "values", "float16 bfloat16", "mode sort argsort"),
    **known(MEMORY, "values", "float16 bfloat16", "as_strided:partial_views"),
    **known(NO_TYPE, "values", "float16", "view_as_complex complex"),
    **known(VECTOR, "values", "bfloat16", "logspace logspace:tensor_overload"),
    **known(OVERFLOW, "values", "float16 bfloat16", "matrix_exp"),
    **known(OVERFLOW, "values", "float16", "nn.functional.soft_margin_loss"),
    **known(STREAM, "values", "float16 bfloat16", "normal"),
    **known(HALF, "values", "float16 bfloat16", """histc grid_sampler_2d nn.functional.adaptive_avg_pool3d
            nn.functional.binary_cross_entropy_with_logits nn.functional.conv_transpose3d nn.functional.grid_sample
            nn.functional.interpolate:trilinear nn.functional.multi_head_attention_forward nn.functional.nll_loss
            nn.functional.scaled_dot_product_attention"""),
    **known(HALF, "values", "float16", """addbmm nn.functional.conv_transpose2d nn.functional.interpolate:area
            nn.functional.interpolate:linear nn.functional.poisson_nll_loss"""),
    **known(HALF, "values", "bfloat16", "div:trunc_rounding"),
}  # fmt: skip

# How a sample is written as a call, where the database's own entry isn't the function of that name.
CALLS = {
    "einsum": lambda P, operands, equation: P.einsum(equation, operands),
    "where": lambda P, x, condition, other, **k: P.where(condition, x, other, **k),
    "polygamma": lambda P, x, n, **k: P.polygamma(n, x, **k),
    "special.polygamma": lambda P, x, n, **k: P.special.polygamma(n, x, **k),
    "nn.functional.embedding": lambda P, weight, index, **k: P.nn.functional.embedding(index, weight, **k),
    "nn.functional.embedding_bag": lambda P, weight, index, **k: P.nn.functional.embedding_bag(index, weight, **k),
    "svd_lowrank": lambda P, a, b, **k: P.svd_lowrank(a @ b.mT, **k),
    "pca_lowrank": lambda P, a, b, **k: P.pca_lowrank(a @ b.mT, **k),
    "linalg.pinv:singular": lambda P, a, b: P.linalg.pinv(a @ b.mT),
    "linalg.lstsq:grad_oriented": lambda P, a, b, driver: P.linalg.lstsq(a, b, driver=driver)[:2],
    "normal:number_mean": lambda P, std, mean, *a, **k: P.normal(mean, std, *a, **k),
    "normal:in_place": lambda _P, x, *a, **k: x.clone().normal_(*a, **k),
    "resize_": lambda _P, x, shape: x.clone().resize_(shape),
    "resize_as_": lambda _P, x, other: x.clone().resize_as_(other),
    "zero_": lambda _P, x: x.clone().zero_(),
    "rand_like": lambda P, x, **k: P.randn_like(x, **k),  # so it is in the database
    **{name: lambda _P, x, name=name: getattr(x, name) for name in ("T", "H", "mT", "mH")},
    **{
        name: lambda _P, x, *a, name=name, **k: getattr(x.clone(), name + "_")(*a, **k)
        for name in ("cauchy", "exponential", "geometric", "log_normal", "uniform")
    },
}
RANDOM = {"bernoulli", "multinomial", "normal", "randn", "randn_like", "rand_like", "randint", "randint_like", "cauchy", "exponential",
          "geometric", "log_normal", "uniform", "svd_lowrank", "pca_lowrank", "nn.functional.dropout", "nn.functional.dropout2d",
          "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu",
          "nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"}  # fmt: skip
UNINITIALISED = {
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
    "resize_",
    "resize_as_",
}
# Whose input stands for a Hermitian matrix; only a Hermitian tangent makes sense for it.
HERMITIAN = {"linalg.cholesky", "linalg.cholesky_ex", "linalg.eigh"}
# Relative and absolute, the absolute in proportion to the largest value of a result.
TOLERANCE = {"float64": 1e-7, "complex128": 1e-7, "float32": 2e-4, "complex64": 2e-4, "float16": 2e-3, "bfloat16": 2e-2}


def our_function(name):
    """What in Backlight takes the arguments of a sample of this operation of the database."""
    bare = name.partition(":")[0]
    call = CALLS.get(name) or CALLS.get(bare)
    if call is not None:
        return lambda *args, **kwargs: call(backlight, *args, **kwargs)
    module, _dot, last = bare.rpartition(".")
    if module:
        return getattr(importlib.import_module(f"backlight.{module}"), last)
    if callable(getattr(torch, last, None)):
        return getattr(backlight, last)
    return lambda x, *args, **kwargs: getattr(x, last)(*args, **kwargs)


# From PyTorch's values to ours


class Unconvertible(Exception):
    """What Backlight has no counterpart of."""


class Converter:
    """Makes our value of a value of PyTorch. The same tensor stays the same; `leaves` pairs those that require grad."""

    def __init__(self):
        self.made = {}
        self.leaves = []

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) not in self.made:
                self.made[id(value)] = (value, self.tensor(value))
            return self.made[id(value)][1]
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return getattr(backlight, str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, torch.nn.Module):
            return getattr(backlight.nn, type(value).__name__)()
        if isinstance(value, torch.Generator):
            return backlight.Generator().manual_seed(value.initial_seed())
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        if isinstance(value, torch.Size):
            return backlight.Size(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self, value))
        return value

    def tensor(self, value):
        if value.layout is not torch.strided or value.device.type != "cpu":
            raise Unconvertible(f"a tensor of layout {value.layout} on {value.device}")
        plain = value.detach().resolve_conj().resolve_neg()
        extent = 1 + sum(s * (n - 1) for s, n in zip(plain.stride(), plain.shape)) if plain.numel() else 0
        if plain.ndim > 64:
            raise Unconvertible("more dimensions than NumPy's arrays have")
        memory = plain.as_strided((extent,), (1,)).clone()  # the same strides over memory of our own
        if value.dtype is torch.bfloat16:
            memory = memory.float()  # NumPy has no bfloat16
        made = backlight.from_numpy(memory.as_strided(plain.shape, plain.stride()).numpy())
        if value.dtype is torch.bfloat16:
            made = made.bfloat16()
        if value.requires_grad:
            self.leaves.append((value, made.requires_grad_()))
        return made


def flat(value):
    """The leaves of nested lists and tuples (of a Size: the Size)."""
    if isinstance(value, (list, tuple)) and not isinstance(value, (torch.Size, backlight.Size)):
        return [x for part in value for x in flat(part)]
    return [value]


def tensors(values, package):
    return [v for v in flat(values) if isinstance(v, package.Tensor)]


def differentiable(values, package):
    return [v for v in tensors(values, package) if v.requires_grad]


def as_array(tensor):
    tensor = tensor.detach()
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.resolve_conj().resolve_neg()
    if "bfloat16" in str(tensor.dtype):
        tensor = tensor.float()
    return np.asarray(tensor.numpy(force=True))


def random_like(theirs, rng):
    """Random tensors like these of PyTorch, and the same as ours."""
    arrays = []
    for x in theirs:
        array = np.asarray(rng.standard_normal(tuple(x.shape)))
        arrays.append(np.asarray(array + 1j * rng.standard_normal(array.shape)) if x.dtype.is_complex else array)
    names = [str(x.dtype).removeprefix("torch.") for x in theirs]
    return [
        [package.from_numpy(array.copy()).to(getattr(package, name)) for array, name in zip(arrays, names)]
        for package in (torch, backlight)
    ]


# Comparisons


class Differs(AssertionError):
    """How our result differs from PyTorch's."""


def compare(theirs, ours, what, values=True):
    """Raises Differs unless both tensors (or numbers) are equal: type, shape, values within the tolerance."""
    if not isinstance(theirs, (torch.Tensor, backlight.Tensor)):
        if theirs is None or isinstance(theirs, (tuple, str)):
            if theirs != ours:
                raise Differs(f"{what}: {ours}, not {theirs}")
            return
        theirs, ours = torch.tensor(theirs), backlight.tensor(ours)
    if not isinstance(ours, backlight.Tensor):
        raise Differs(f"{what}: {type(ours).__name__}, not a tensor")
    kind, our_kind = (str(x.dtype).removeprefix("torch.") for x in (theirs, ours))
    if our_kind != kind:
        raise Differs(f"{what}: {our_kind}, not {kind}")
    a, b = as_array(theirs), as_array(ours)
    if a.shape != b.shape:
        raise Differs(f"{what}: shape {b.shape}, not {a.shape}")
    if not values:
        return
    with np.errstate(all="ignore"):
        if kind in TOLERANCE:
            size = np.abs(a[np.isfinite(a)]).max(initial=0)
            same = np.isclose(b, a, TOLERANCE[kind], TOLERANCE[kind] * 0.1 * (size + 1), equal_nan=True)
        else:
            same = a == b
        if not same.all():
            largest = np.abs(np.where(same, 0, a.astype(complex) - b)).max()
            raise Differs(f"{what}: {np.count_nonzero(~same)} of {same.size} values differ, by up to {largest:.3g}")


def compare_all(theirs, ours, what, values=True, grad=False):
    a, b = flat(theirs), flat(ours)
    if len(a) != len(b):
        raise Differs(f"{len(b)} outputs, not {len(a)}")
    for i, (x, y) in enumerate(zip(a, b)):
        compare(x, y, f"{what} {i}", values)
        if grad and isinstance(y, backlight.Tensor) and x.requires_grad != y.requires_grad:
            raise Differs(f"{what} {i}: requires_grad is {y.requires_grad}")


def compare_gradients(theirs, ours, what):
    for i, (x, y) in enumerate(zip(theirs, ours)):
        if (x is None) != (y is None):  # no gradient and a gradient of zeros are as good as each other
            if as_array(y if x is None else x).any():
                raise Differs(f"{what} {i}: {'a value, not None' if x is None else 'None, not a value'}")
        elif x is not None:
            compare(x, y, f"{what} {i}")


def interchangeable(a, b):
    """Whether one leaf can take the other's place in a batch."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and (a.shape, a.dtype, a.requires_grad) == (b.shape, b.dtype, b.requires_grad)
    return a is b or a == b


# One operation


class Tally:
    """How many samples agreed, by kind; what was wrong with the others; and what ran in a loop under vmap."""

    def __init__(self):
        self.total, self.passed = Counter(), Counter()
        self.failures, self.loops = defaultdict(list), set()

    @contextlib.contextmanager
    def case(self, kind, number):
        self.total[kind] += 1
        try:
            yield
        except Exception as error:
            name = "" if isinstance(error, Differs) else f"{type(error).__name__}: "
            text = " ".join(f"{name}{error}".split())
            self.failures[kind].append(f"sample {number}: {text[:300]}")
            if isinstance(error, OutOfTime):
                raise
        else:
            self.passed[kind] += 1


class OutOfTime(Exception):
    """A sample hangs."""


@contextlib.contextmanager
def time_limit(seconds):
    def stop(*_):
        raise OutOfTime(f"more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seed():
    """The same random numbers for both; the database seeds its own entries for random operations with 42."""
    torch.default_generator.manual_seed(42)  # torch.manual_seed also looks for other devices, which takes long
    backlight.manual_seed(42)


def types_of(name, types=TYPES):
    """Those of the types that PyTorch has for this operation."""
    supported = DATABASE[name].supported_dtypes("cpu")
    return [t for t in types if getattr(torch, t) in supported]


def samples_of(op, dtype, grad, seed):
    """The samples of an operation; another seed gives others, of the same shapes."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    return op.sample_inputs("cpu", dtype, requires_grad=grad, set_seed=False)


def sweep(name, kind_of_number, choose=list):
    """Runs the chosen samples of an operation in a type through everything but its error inputs."""
    op, dtype = DATABASE[name], getattr(torch, kind_of_number)
    half = kind_of_number in HALVES
    grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu") and not half
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples, others = (choose(samples_of(op, dtype, grad, seed)) for seed in (0, 1))
        function = our_function(name)
        for number, (sample, other) in enumerate(zip(samples, others)):
            try:
                with time_limit(SECONDS):
                    case = Sample(op, name, function, sample, tally, number)
                    case.autograd() if half else case.run(other)
            except OutOfTime as error:
                tally.total[VALUES] += 1
                tally.failures[VALUES].append(f"sample {number}: {error}")
    return tally


def sweep_errors(name):
    """Runs the error inputs of an operation: both packages must raise the same type of exception."""
    op, tally = DATABASE[name], Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function = our_function(name)
        for number, wrong in enumerate(op.error_inputs("cpu", set_seed=False) if op.error_inputs_func else ()):
            sample = wrong.sample_input
            args, kwargs = (sample.input, *sample.args), sample.kwargs
            theirs = raised_by(op.op, args, kwargs)
            if theirs is None:
                continue
            convert = Converter()
            try:
                our_args, our_kwargs = convert(args), convert(kwargs)
            except Unconvertible:
                continue
            with tally.case(ERRORS, number):
                ours = raised_by(function, our_args, our_kwargs)
                if type(ours).__name__ != type(theirs).__name__:
                    raise Differs(f"{type(ours).__name__} ({ours}), not {type(theirs).__name__} ({theirs})")
    return tally


def raised_by(function, args, kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    return None


class Sample:
    """One sample input of an operation; each method compares something else."""

    def __init__(self, op, name, function, sample, tally, number):
        self.op, self.name, self.function, self.sample = op, name, function, sample
        self.tally, self.number = tally, number
        self.has_values = op.name not in UNINITIALISED

    def case(self, kind):
        return self.tally.case(kind, self.number)

    def run(self, other):
        if self.autograd():
            self.forward()
            self.strided()
        self.in_place()
        self.out()
        self.vmap(other)

    def theirs(self, args, kwargs):
        seed()
        return self.sample.output_process_fn_grad(self.op.op(*args, **kwargs))

    def ours(self, args, kwargs):
        seed()
        return self.sample.output_process_fn_grad(self.function(*args, **kwargs))

    def autograd(self):
        """Values, gradients and gradients of gradients. Returns whether PyTorch has gradients."""
        args, kwargs = (self.sample.input, *self.sample.args), self.sample.kwargs
        theirs = self.theirs(args, kwargs)
        convert = Converter()
        our_args, our_kwargs = convert(args), convert(kwargs)
        ours = None
        with self.case(VALUES):
            ours = self.ours(our_args, our_kwargs)
            if theirs is not NotImplemented or ours is not NotImplemented:
                compare_all(theirs, ours, "output", self.has_values, grad=True)
        outs = differentiable(theirs, torch)
        if not convert.leaves or not outs:
            return False
        leaves, our_leaves = zip(*convert.leaves)
        our_outs = differentiable(ours, backlight)
        rng = np.random.default_rng(0)
        g, our_g = random_like(outs, rng)
        second = self.op.supports_gradgrad
        for x in (*g, *our_g):
            x.requires_grad_(second)
        try:
            first = torch.autograd.grad(outs, leaves, g, allow_unused=True, create_graph=second)
        except RuntimeError:  # PyTorch has no second derivative here
            if not second:
                raise
            second, outs = False, differentiable(self.theirs(args, kwargs), torch)
            first = torch.autograd.grad(outs, leaves, g, allow_unused=True)
        our_first = [None] * len(first)
        with self.case(GRADIENTS):
            our_first = backlight.autograd.grad(our_outs, our_leaves, our_g, allow_unused=True, create_graph=second)
            compare_gradients(first, our_first, "gradient")
        graphs = [i for i, x in enumerate(first) if second and x is not None and x.requires_grad]
        if not graphs:
            return True
        first, our_first = ([each[i] for i in graphs] for each in (first, our_first))
        g2, our_g2 = random_like(first, rng)
        try:
            twice = torch.autograd.grad(first, [*leaves, *g], g2, allow_unused=True)
        except RuntimeError:
            return True
        with self.case(DOUBLE):
            if any(x is None or not x.requires_grad for x in our_first):
                raise Differs("a gradient has no graph")
            our_twice = backlight.autograd.grad(our_first, [*our_leaves, *our_g], our_g2, allow_unused=True)
            compare_gradients(twice, our_twice, "second gradient")
        return True

    def forward(self):
        """The tangents of the outputs for random tangents of all inputs that require grad."""
        if not self.op.supports_forward_ad:
            return
        args = ((self.sample.input, *self.sample.args), self.sample.kwargs)
        leaves, spec = tree_flatten(args)
        convert = Converter()
        both = [(x.detach(), convert(x.detach())) if isinstance(x, torch.Tensor) else (x, convert(x)) for x in leaves]
        places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.requires_grad]
        tangents, our_tangents = random_like([leaves[i] for i in places], np.random.default_rng(0))
        if self.op.name in HERMITIAN:
            tangents, our_tangents = ([t + t.mH for t in each] for each in (tangents, our_tangents))

        def run(package, call, side, tangents):
            ad = package.autograd.forward_ad
            values = [pair[side] for pair in both]
            with ad.dual_level():
                for i, tangent in zip(places, tangents):
                    values[i] = ad.make_dual(values[i], tangent)
                args, kwargs = tree_unflatten(values, spec)
                return [ad.unpack_dual(x).tangent for x in tensors(call(args, kwargs), package)]

        try:
            theirs = run(torch, self.theirs, 0, tangents)
        except RuntimeError:  # PyTorch has no forward mode here
            return
        with self.case(FORWARD):
            compare_gradients(theirs, run(backlight, self.ours, 1, our_tangents), "tangent")

    def strided(self):
        """Values and gradients of the same sample in memory with gaps."""
        sample = self.sample.noncontiguous()
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        try:
            theirs = self.theirs(args, kwargs)
        except RuntimeError:  # PyTorch wants contiguous memory here
            return
        convert = Converter()
        our_args, our_kwargs = convert(args), convert(kwargs)
        outs = differentiable(theirs, torch)
        with self.case(STRIDED):
            ours = self.ours(our_args, our_kwargs)
            compare_all(theirs, ours, "output", self.has_values)
            if convert.leaves and outs:
                leaves, our_leaves = zip(*convert.leaves)
                our_outs = differentiable(ours, backlight)
                g, our_g = random_like(outs, np.random.default_rng(0))
                first = torch.autograd.grad(outs, leaves, g, allow_unused=True)
                our_first = backlight.autograd.grad(our_outs, our_leaves, our_g, allow_unused=True)
                compare_gradients(first, our_first, "gradient")

    def in_place(self):
        """The in-place form on a copy of the input: the values it leaves, and the gradients through it."""
        theirs = self.op.inplace_variant
        if theirs is None:
            return
        module, _dot, last = self.op.name.rpartition(".")
        if not module:
            ours = getattr(backlight.Tensor, last.rstrip("_") + "_", None)
        elif hasattr(backlight.nn.functional, last + "_"):
            ours = getattr(backlight.nn.functional, last + "_")
        else:
            ours = lambda *args, **kwargs: self.function(*args, inplace=True, **kwargs)
        args, kwargs = (self.sample.input, *self.sample.args), self.sample.kwargs
        convert = Converter()
        our_args, our_kwargs = convert(args), convert(kwargs)

        def run(function, args, kwargs):
            seed()
            x = args[0].clone()
            result = function(x, *args[1:], **kwargs)
            if result is not x:
                raise Differs("what returns isn't the tensor itself")
            return x

        first = None
        try:
            result = run(theirs, args, kwargs)
            if convert.leaves and result.requires_grad:
                leaves, our_leaves = zip(*convert.leaves)
                g, our_g = random_like([result], np.random.default_rng(0))
                first = torch.autograd.grad(result, leaves, g, allow_unused=True)
        except NotImplementedError:  # PyTorch has no gradient here
            pass
        except Exception:  # this sample has no in-place form
            return
        with self.case(IN_PLACE):
            our_result = run(ours, our_args, our_kwargs)
            compare(result, our_result, "output")
            if first is not None:
                compare_gradients(first, backlight.autograd.grad(our_result, our_leaves, our_g, allow_unused=True), "gradient")

    def out(self):
        """`out=`: tensors of the right shape are filled and returned."""
        if not self.op.supports_out or "out" in self.sample.kwargs:
            return
        args, kwargs = (self.sample.input, *self.sample.args), self.sample.kwargs
        with torch.no_grad():
            try:
                seed()
                expected = self.op.op(*args, **kwargs)
                out = tree_map(torch.empty_like, expected)
                seed()
                self.op.op(*args, **kwargs, out=out)
            except Exception:  # this sample has no out=
                return
        with self.case(OUT), backlight.no_grad():
            convert = Converter()
            our_out = convert(tree_map(torch.zeros_like, expected))
            seed()
            result = self.function(*convert(args), **convert(kwargs), out=our_out)
            if any(x is not y for x, y in zip(flat(result), flat(our_out))):
                raise Differs("what returns isn't the tensor given as out=")
            process = self.sample.output_process_fn_grad
            compare_all(process(expected), process(our_out), "output", self.has_values)

    def vmap(self, other):
        """vmap over this sample and another of the same shapes against a loop: values, and gradients through it."""
        leaves, spec = tree_flatten(((self.sample.input, *self.sample.args), self.sample.kwargs))
        others, other_spec = tree_flatten(((other.input, *other.args), other.kwargs))
        if other_spec != spec or not all(map(interchangeable, leaves, others)):
            others = leaves
        places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        for mapped in {tuple(places), tuple(places[:1]), tuple(places[1:])} - {()}:  # all tensors, the first, all but the first
            self.vmap_over(mapped, leaves, others, spec)

    def vmap_over(self, mapped, leaves, others, spec):
        first, second = Converter(), Converter()
        ours = [first(x) for x in leaves]
        our_others = [second(y) if i in mapped else x for i, (x, y) in enumerate(zip(ours, others))]

        def run(function, leaves):
            args, kwargs = tree_unflatten(leaves, spec)
            return tuple(flat(self.sample.output_process_fn_grad(function(*args, **kwargs))))

        def run_mapped(package, function, leaves, others):
            leaves = list(leaves)

            def of_one(*samples):
                for i, x in zip(mapped, samples):
                    leaves[i] = x
                return run(function, leaves)

            batch = [package.stack([leaves[i], others[i]]) for i in mapped]
            randomness = "different" if self.op.name in RANDOM else "error"
            return package.func.vmap(of_one, randomness=randomness)(*batch)

        try:
            expected = [backlight.stack(pair) for pair in zip(run(self.function, ours), run(self.function, our_others))]
        except Exception:  # what is wrong counts elsewhere, and vmap can't return anything but tensors of one shape
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = run_mapped(backlight, self.function, ours, our_others)
            except Exception as error:
                result = error
        if isinstance(result, Exception):
            try:
                run_mapped(torch, self.op.op, leaves, others)
            except Exception:  # PyTorch can't either
                return
        with self.case(VMAP):
            if isinstance(result, Exception):
                raise result
            self.tally.loops.update(m[1] for w in caught if (m := re.search(r"batching rule for (\w+)", str(w.message))))
            fixed = self.has_values and self.op.name not in RANDOM
            compare_all(expected, list(result), "output", fixed, grad=fixed)
            inputs = [x for each in (first, second) for _theirs, x in each.leaves]
            pairs = [(x, y) for x, y in zip(expected, result) if x.requires_grad and y.requires_grad]
            if fixed and inputs and pairs:
                g = [backlight.randn(x.shape, dtype=x.dtype) for x, _y in pairs]
                gradients = [backlight.autograd.grad(each, inputs, g, allow_unused=True) for each in zip(*pairs)]
                compare_gradients(*gradients, "gradient")
