"""Every sample input of PyTorch's own op database, through both packages: values, gradients, double gradients.

By default a few samples of each operation in float64 (the core also in complex128); with `pytest --whole` all of them, in all types.
"""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest
import torch

import backlight

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

# "name" or "name:variant", as in the database. These are all supported and must stay so.
CORE_NAMES = """
abs add item arange mul sub bmm chunk clone contiguous clamp cos cumsum div:no_rounding_mode div:trunc_rounding
div:floor_rounding true_divide exp expand expand_as eq ge gt le linspace linspace:tensor_overload log lt masked_fill matmul
max:reduction_with_dim max:reduction_no_dim min:reduction_with_dim min:reduction_no_dim max:binary maximum min:binary minimum
softmax softmax:with_dtype nn.functional.cross_entropy nn.functional.normalize nn.functional.adaptive_avg_pool2d
nn.functional.binary_cross_entropy_with_logits nn.functional.relu nn.functional.conv1d nn.functional.conv2d
nn.functional.layer_norm nn.functional.pad:constant nn.functional.interpolate:nearest nn.functional.interpolate:bilinear
nn.functional.leaky_relu nn.functional.avg_pool2d nn.functional.max_pool2d nn.functional.linear
nn.functional.scaled_dot_product_attention nn.functional.silu nn.functional.silu:complex to topk nn.functional.batch_norm
nn.functional.binary_cross_entropy nn.functional.gelu mm ne neg permute pow sin split split:list_args __radd__ __rdiv__
__rmul__ __rmatmul__ __rpow__ __rsub__ tanh rsqrt sqrt square einsum reshape view flatten gather __getitem__ sort bool double
float int long empty_like zeros_like ones_like randn randn_like rand_like randint full_like ones zeros full empty eye stack cat
repeat squeeze squeeze:multiple unsqueeze transpose T tril triu sigmoid nn.functional.l1_loss log_softmax
log_softmax:with_dtype where norm norm:nuc norm:fro norm:inf t nn.functional.dropout nn.functional.one_hot
nn.functional.embedding nn.functional.mse_loss all any argmax argmin mean std std:unbiased var var:unbiased prod sum
nn.functional.nll_loss
"""
MORE_NAMES = """
acos acosh exponential uniform clamp_max clamp_min addmm addmv addbmm baddbmm dot mv addr addcmul addcdiv asin asinh atan
atan2 atanh allclose broadcast_to broadcast_tensors block_diag bitwise_not combinations cartesian_prod cdist ceil positive
conj resolve_conj view_as_real view_as_complex complex copysign corrcoef cosh cross cumprod cummax cummin deg2rad diff equal
diag diag_embed diagonal fmax fmin fmod remainder frac floor flip fliplr flipud floor_divide log1p imag isin kthvalue
logspace logspace:tensor_overload log10 log2 logaddexp logical_not masked_scatter masked_select median nanmedian var_mean
var_mean:unbiased std_mean std_mean:unbiased meshgrid:variadic_tensors meshgrid:list_of_tensors quantile logical_and
logical_or logical_xor bitwise_and bitwise_or bitwise_xor heaviside isclose nn.functional.softmin
nn.functional.softmin:with_dtype aminmax as_strided nn.functional.cosine_similarity nn.functional.adaptive_avg_pool1d
nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
nn.functional.avg_pool1d nn.functional.avg_pool3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
nn.functional.conv3d nn.functional.group_norm nn.functional.instance_norm nn.functional.rms_norm nn.functional.pad:reflect
nn.functional.pad:replicate nn.functional.pad:replicate_negative nn.functional.pad:circular nn.functional.hardswish
nn.functional.unfold nn.functional.interpolate:nearest-exact nn.functional.interpolate:linear
nn.functional.interpolate:bicubic nn.functional.interpolate:trilinear nn.functional.interpolate:area
nn.functional.soft_margin_loss nn.functional.margin_ranking_loss nn.functional.multi_margin_loss nn.functional.max_pool1d
nn.functional.max_pool3d nn.functional.bilinear nn.functional.glu nn.functional.elu nn.functional.prelu nn.functional.celu
nn.functional.selu nn.functional.hardsigmoid nn.functional.logsigmoid nn.functional.mish nn.functional.softsign
nn.functional.tanhshrink nn.functional.threshold nn.functional.triplet_margin_loss nn.functional.softshrink
nn.functional.hardshrink nn.functional.hardtanh nn.functional.relu6 mode narrow dist outer float_power rad2deg real roll
rot90 round round:decimals_0 round:decimals_3 round:decimals_neg_3 sinc sinh sign sgn split_with_sizes rsub select tan
tensor_split trunc exp2 expm1 nan_to_num reciprocal lerp angle isfinite isinf isnan polar ravel reshape_as view_as
atleast_1d atleast_2d unflatten column_stack index_fill index_copy index_select index_add index_put unique take scatter
bfloat16 byte half short new_zeros new_ones new_empty new_full multinomial normal normal:number_mean bernoulli scatter_add
hstack hypot histc bincount bucketize searchsorted unbind vstack dstack unfold movedim take_along_dim tile xlogy logsumexp
trace mT triu_indices tril_indices kron inner tensordot logcumsumexp digamma erf erfc erfinv nn.functional.smooth_l1_loss
lgamma logit nonzero nn.functional.dropout2d nn.functional.softplus argwhere amax amin count_nonzero nanmean nansum
nn.functional.gaussian_nll_loss nn.functional.hinge_embedding_loss nn.functional.huber_loss nn.functional.poisson_nll_loss
argsort repeat_interleave nn.functional.pairwise_distance nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
nn.functional.kl_div diagflat linalg.cross linalg.vector_norm
"""
RARE_NAMES = """
bitwise_left_shift bitwise_right_shift sum_to_size conj_physical resolve_neg cov diagonal_scatter frexp gradient ldexp
logaddexp2 nanquantile lcm gcd nn.functional.linear_cross_entropy as_strided_scatter nn.functional.adaptive_max_pool3d
nn.functional.conv_transpose3d nn.functional.local_response_norm nn.functional.upsample_bilinear
nn.functional.upsample_nearest nn.functional.multilabel_margin_loss nn.functional.multilabel_soft_margin_loss
nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.max_unpool1d
nn.functional.max_unpool1d:grad nn.functional.max_unpool2d nn.functional.max_unpool2d:grad nn.functional.max_unpool3d
nn.functional.max_unpool3d:grad nn.functional.rrelu nextafter select_scatter slice_scatter signbit hsplit vsplit dsplit
isposinf isneginf isreal unravel_index atleast_3d index_reduce:mean index_reduce:prod index_reduce:amin index_reduce:amax
unique_consecutive put char cdouble cfloat randint_like new_empty_strided empty_strided histogram histogramdd msort renorm
fill trapz trapezoid cumulative_trapezoid nn.functional.dropout3d nn.functional.alpha_dropout
nn.functional.feature_alpha_dropout:with_train nn.functional.feature_alpha_dropout:without_train
nn.functional.embedding_bag nn.functional.multi_head_attention_forward nn.functional.grid_sample nn.functional.ctc_loss
nn.functional.cosine_embedding_loss nn.functional.pdist nn.functional.channel_shuffle scatter_reduce:sum
scatter_reduce:prod scatter_reduce:mean scatter_reduce:amin scatter_reduce:amax masked.sum masked.prod masked.cumsum
masked.cumprod masked.amax masked.amin masked.argmax masked.argmin masked.mean masked.median masked.norm masked.var
masked.std masked.softmax masked.log_softmax masked.softmin masked.normalize masked.logaddexp masked.logsumexp
"""
CORE, MORE = CORE_NAMES.split(), (MORE_NAMES + RARE_NAMES).split()

# What differs, and why it stays.
ORDER = "PyTorch doesn't define the order of equal elements here; ours is stable"
HALF = "both round to half precision, at different places in the formula"
VECTOR = "PyTorch's vectorised code rounds once per vector register, so its numbers depend on the processor"
NO_TYPE = "Backlight has no complex32"
WRONG = "PyTorch's gradient for the input is wrong (its own gradcheck fails)"
CANCELS = "nearly equal numbers are subtracted: what is left differs in float32"
KNOWN = {
    ("logspace", "int64"): VECTOR, ("arange", "bfloat16"): VECTOR, ("kthvalue", "int64"): ORDER, ("topk", "int64"): ORDER,
    **{(name, kind): ORDER for name in ("sort", "argsort", "mode", "topk")
       for kind in ("bool", "float16", "bfloat16")}, ("mode", "int64"): ORDER,
    **{(name, kind): HALF for name in ("div", "nn.functional.binary_cross_entropy_with_logits", "histc",
                                       "nn.functional.scaled_dot_product_attention", "nn.functional.soft_margin_loss")
       for kind in ("float16", "bfloat16")},
    **{("as_strided_scatter", kind): WRONG for kind in ("float64", "float32", "complex128")},
    ("cov", "float32"): CANCELS, ("logcumsumexp", "float32"): CANCELS,
    **{(name, kind): HALF for name in ("nn.functional.embedding_bag", "nn.functional.grid_sample", "nn.functional.multi_head_attention_forward")
       for kind in ("float16", "bfloat16")},
    ("view_as_complex", "float16"): NO_TYPE, ("complex", "float16"): NO_TYPE,
}  # fmt: skip
TYPES = ("float64", "float32", "complex128", "int64", "bool", "float16", "bfloat16")
# relative and absolute
TOLERANCE = {
    "float64": (1e-6, 1e-8), "complex128": (1e-6, 1e-8), "float32": (2e-3, 2e-4), "complex64": (2e-3, 2e-4),
    "float16": (1e-2, 1e-3), "bfloat16": (3e-2, 1e-2),
}  # fmt: skip
RANDOM = {"randn", "randn_like", "rand_like", "randint", "nn.functional.dropout", "bernoulli", "multinomial", "normal",
          "randint_like", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.alpha_dropout",
          "uniform", "exponential", "nn.functional.rrelu", "nn.functional.feature_alpha_dropout"}  # fmt: skip
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
METHODS = {"expand", "view", "unfold", "repeat", "expand_as", "view_as", "reshape_as", "to", "contiguous", "bool", "double",
           "float", "int", "long", "item", "half", "byte", "char", "short", "cfloat", "cdouble", "bfloat16", "new_zeros",
           "new_ones", "new_empty", "new_full", "new_empty_strided", "sum_to_size"}  # fmt: skip
REORDERED = {
    "einsum": lambda P, operands, equation: P.einsum(equation, operands),
    "where": lambda P, x, condition, other: P.where(condition, x, other),
    "nn.functional.embedding": lambda P, weight, index, **k: P.nn.functional.embedding(index, weight, **k),
    "polygamma": lambda P, x, n: P.polygamma(n, x),
    "T": lambda _P, x: x.T, "H": lambda _P, x: x.H, "mT": lambda _P, x: x.mT, "mH": lambda _P, x: x.mH,
    "uniform": lambda _P, x, *a, **k: x.clone().uniform_(*a, **k),
    "exponential": lambda _P, x, *a, **k: x.clone().exponential_(*a, **k),
}  # fmt: skip
DATABASE = {f"{o.name}:{o.variant_test_name}".rstrip(":"): o for o in op_db}


def our_function(name):
    if name in REORDERED:
        return lambda *args, **kwargs: REORDERED[name](backlight, *args, **kwargs)
    if name.startswith("__") or name in METHODS:
        return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)
    module, _dot, last = name.rpartition(".")
    found = importlib.import_module(f"backlight.{module}") if module else backlight
    if not module and not hasattr(found, last):
        return lambda x, *args, **kwargs: getattr(x, last)(*args, **kwargs)
    return getattr(found, last)


def as_array(tensor):
    tensor = tensor.detach()
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.resolve_conj().resolve_neg()
    if "bfloat16" in str(tensor.dtype):
        tensor = tensor.float()
    return np.asarray(tensor.numpy(force=True))


class Ours:
    """Converts a sample's arguments, remembering which of ours belongs to which of PyTorch's leaves."""

    def __init__(self):
        self.theirs, self.ours = [], []

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            array = as_array(value)
            if 0 not in array.strides:
                array = array.copy(order="K")
            tensor = backlight.from_numpy(np.array(array) if 0 in array.strides else array)
            if value.dtype is torch.bfloat16:
                tensor = tensor.bfloat16()
            if value.requires_grad:
                self.theirs.append(value)
                self.ours.append(tensor.requires_grad_())
            return tensor
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return getattr(backlight, str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return tuple(value) if isinstance(value, torch.Size) else type(value)(map(self, value))
        return value


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, (list, tuple)) else [value]


def assert_close(theirs, ours, what):
    if theirs is None and ours is None:
        return
    if theirs is None or ours is None:  # no gradient and a gradient of zeros are as good as each other
        assert not as_array(ours if theirs is None else theirs).any(), f"{what}: one of the two is None"
        return
    kind = str(theirs.dtype).removeprefix("torch.")
    assert str(ours.dtype) == str(theirs.dtype), what
    a, b = as_array(theirs), as_array(ours)
    assert a.shape == b.shape, what
    if kind not in TOLERANCE:
        np.testing.assert_array_equal(b, a, what)
        return
    relative, absolute = TOLERANCE[kind]
    with np.errstate(all="ignore"):
        size = np.abs(a[np.isfinite(a)]).max(initial=0)
    np.testing.assert_allclose(b, a, relative, absolute + 0.1 * relative * size, err_msg=what)


def differentiable(values, package):
    return [v for v in flat(values) if isinstance(v, package.Tensor) and v.requires_grad]


def cotangents(tensors, rng):
    """The same random numbers for both packages."""
    arrays = [rng.standard_normal(t.shape) + (1j * rng.standard_normal(t.shape) if t.dtype.is_complex else 0) for t in tensors]
    arrays = [np.asarray(a) for a in arrays]
    return [[P.from_numpy(a.copy()).to(getattr(P, str(t.dtype).removeprefix("torch."))) for a, t in zip(arrays, tensors)]
            for P in (torch, backlight)]  # fmt: skip


def compare(op, function, sample):
    """One sample: outputs, gradients, gradients of the gradients."""
    convert = Ours()
    if sample.kwargs.get("dropout_p"):
        sample.kwargs["dropout_p"] = 0.0
    args = (sample.input, *sample.args)
    our_args, our_kwargs = convert(args), convert(sample.kwargs)
    torch.manual_seed(42)  # as the database does for operations that draw numbers
    backlight.manual_seed(42)
    theirs = sample.output_process_fn_grad(op.op(*args, **sample.kwargs))
    ours = sample.output_process_fn_grad(function(*our_args, **our_kwargs))
    a, b = flat(theirs), flat(ours)
    assert len(a) == len(b)
    for i, (x, y) in enumerate(zip(a, b)):
        if not isinstance(x, torch.Tensor):
            assert y == pytest.approx(x, nan_ok=True)
        elif op.name in RANDOM | UNINITIALISED:
            assert (tuple(x.shape), str(x.dtype)) == (tuple(y.shape), str(y.dtype))
        else:
            assert_close(x, y, f"output {i}")
            assert x.requires_grad == y.requires_grad
    outs, our_outs = differentiable(theirs, torch), differentiable(ours, backlight)
    if op.name in RANDOM or not convert.theirs or not outs:
        return
    rng = np.random.default_rng(0)
    g, our_g = cotangents(outs, rng)
    second = op.supports_gradgrad
    for tensor in (*g, *our_g):
        tensor.requires_grad_(second)
    options = {"allow_unused": True, "create_graph": second}
    try:
        first = torch.autograd.grad(outs, convert.theirs, g, **options)
    except RuntimeError:  # PyTorch has no second derivative here
        second = options["create_graph"] = False
        outs = differentiable(sample.output_process_fn_grad(op.op(*args, **sample.kwargs)), torch)
        first = torch.autograd.grad(outs, convert.theirs, g, **options)
    our_first = backlight.autograd.grad(our_outs, convert.ours, our_g, **options)
    for i, (x, y) in enumerate(zip(first, our_first)):
        assert_close(x, y, f"gradient of input {i}")
    with_graph = [i for i, x in enumerate(first) if second and x is not None and x.requires_grad]
    if not with_graph:
        return
    g2, our_g2 = cotangents([first[i] for i in with_graph], rng)
    try:
        twice = torch.autograd.grad([first[i] for i in with_graph], [*convert.theirs, *g], g2, allow_unused=True)
    except RuntimeError:
        return
    assert all(our_first[i] is not None and our_first[i].requires_grad for i in with_graph), "no graph of the gradients"
    our_twice = backlight.autograd.grad([our_first[i] for i in with_graph], [*convert.ours, *our_g], our_g2, allow_unused=True)
    for i, (x, y) in enumerate(zip(twice, our_twice)):
        assert_close(x, y, f"second gradient {i}")


def pytest_generate_tests(metafunc):
    """Every operation in every type that PyTorch has for it; without --whole in float64, the core also in complex128."""
    if "kind" in metafunc.fixturenames:
        whole = metafunc.config.getoption("--whole")
        cases = [
            (name, kind)
            for name in CORE + MORE
            for kind in TYPES
            if (whole or kind == "float64" or (kind == "complex128" and name in CORE))
            and getattr(torch, kind) in DATABASE[name].supported_dtypes("cpu")
        ]
        metafunc.parametrize(("name", "kind"), cases)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_samples(name, kind, whole):
    op = DATABASE[name]
    t = getattr(torch, kind)
    grad = op.supports_autograd and t in op.supported_backward_dtypes("cpu")
    if kind in ("float16", "bfloat16"):
        grad = False  # two ways to round a gradient; float32 tests the formulas
    samples = list(op.sample_inputs("cpu", t, requires_grad=grad))
    if not whole:
        samples = samples[:: max(1, len(samples) // 8)]
    function = our_function(op.name)
    failures = []
    for i, sample in enumerate(samples):
        try:
            compare(op, function, sample)
        except Exception as error:
            failures.append(f"sample {i} of {len(samples)}: {type(error).__name__}: {error}")
    if (op.name, kind) not in KNOWN:
        assert not failures, "\n".join(failures)
