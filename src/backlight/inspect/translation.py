"""What PyTorch's nodes save, in the terms of Backlight's operations, so that `replay` can run Backlight's formulas on it.

PyTorch and Backlight mostly save the same under the same names. `TRANSLATIONS` has the nodes for which they don't: a function per
node, which adds to what is known under Backlight's names, or raises `Unknown` and says what is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ops import pool, resample
from ..ops.ctc import _rows_of
from ..ops.join import _VARIADIC
from ..ops.reduce import dims_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .schema import Node, Statistics

REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


class Unknown(Exception):
    """Something that a formula needs is not in the record."""


@dataclass(slots=True)
class Known:
    """What is known of a recorded node: its name, the tensors that it saved, its parameters and results by the names of Backlight's
    operations, and the gradients that arrived and that it passed on. `operation`: the name of Backlight's operation, if it is decided."""

    node: str
    tensors: dict[str, np.ndarray | None]
    parameters: dict[str, Any]
    result: tuple[Any, ...]
    arrived: list[Statistics | None]
    passed: list[Statistics | None]
    operation: str | None = None
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of inputs
    joined: list[tuple[int, ...]] = field(
        default_factory=list
    )  # the shapes of the tensors that `cat` or `stack` was called with

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first input."""
        if "input" in self.sizes:
            return self.sizes["input"]
        tensor, gradient = self.tensors.get("input"), self.passed[0] if self.passed else None
        if tensor is not None:
            return tensor.shape
        if gradient is not None:
            return tuple(gradient.shape)
        raise Unknown("the shape of its input is not known")

    @property
    def dtype(self) -> np.dtype:
        """The type of the gradient that arrived."""
        for gradient in self.arrived:
            if gradient is not None and gradient.values is not None:
                return gradient.values.dtype
        raise Unknown("no gradient arrived")

    def tensor(self, name: str) -> np.ndarray:
        found = self.tensors.get(name)
        if found is None:
            raise Unknown(f"it saved no {name}")
        return found

    def rename(self, **names: str) -> None:
        """Gives parameters and tensors Backlight's names: `rename(low="min_val")`."""
        for ours, theirs in names.items():
            for values in (self.parameters, self.tensors):
                if theirs in values:
                    values[ours] = values[theirs]

    def set(self, operation: str | None = None, **parameters: Any) -> None:
        """Says which operation of Backlight it is, and parameters of that."""
        self.operation = operation or self.operation
        self.parameters.update(parameters)


def known_of(line: Node, arrived: list[Statistics | None], passed: list[Statistics | None], engine: str) -> Known:
    """What a record of an engine ("backlight" or "torch") says about a node that ran. `Unknown` says why it is not enough."""
    tensors = {"input" if s.name == "self" else s.name: s.values for s in line.saved}
    result = tuple(s.values for s in line.saved if s.name == "result")
    parameters = {("input" + k[4:] if k.startswith("self") else k): _signed(v) for k, v in line.parameters.items()}
    sizes = {
        k.removesuffix("_sym_sizes"): tuple(v) for k, v in parameters.items() if k.endswith("_sym_sizes") and v is not None
    }
    known = Known(line.name, tensors, parameters, result, arrived, passed, sizes=sizes)
    if engine == "torch":
        if line.op is not None and line.op.function in ("cat", "concat", "concatenate", "stack"):
            known.joined = [x.shape for x in line.op.inputs]
        _translate(known)
    elif line.op is not None:
        known.operation = line.op.function  # Backlight's recorder calls operations by the names of their declarations
    return known


def _translate(known: Known) -> None:
    parameters = known.parameters
    if "reduction" in parameters:
        parameters["reduction"] = REDUCTIONS.get(parameters["reduction"], parameters["reduction"])
    known.node = _SAME.get(known.node, known.node)
    name = known.node.partition("Backward")[0]
    translation = _upsample if name.startswith("Upsample") else TRANSLATIONS.get(name)
    if translation is not None:
        translation(known)
    _count_dimensions(known)
    if "dims" not in parameters and known.node.startswith(_REDUCES):
        parameters["dims"] = dims_of(parameters.get("dim"), len(known.shape))
        parameters.setdefault("keepdim", False)


_INSERTS = ("UnsqueezeBackward0", "StackBackward0", "DiagEmbedBackward0")  # whose dimensions are those of the result


def _count_dimensions(known: Known) -> None:
    """Counts dimensions from the front, as Backlight's operations do."""
    for key in ("dim", "dimension"):
        dim = known.parameters.get(key)
        if type(dim) is int and dim < 0:
            shape = known.arrived[0] if known.node in _INSERTS else known
            if shape is None:
                raise Unknown("no gradient arrived")
            known.parameters[key] = dim % max(len(shape.shape), 1)


def _signed(value: Any) -> Any:
    """PyTorch shows negative numbers as unsigned ones."""
    if type(value) is int and value >= 1 << 63:
        return value - (1 << 64)
    return tuple(map(_signed, value)) if isinstance(value, (list, tuple)) else value


# Nodes that pass on what others do
_SAME = {
    "UnsafeSplitBackward0": "SplitBackward0", "UnsafeSplitWithSizesBackward0": "SplitWithSizesBackward0",
    "SafeSoftmaxBackward0": "SoftmaxBackward0", "TransposeBackward1": "TransposeBackward0",
}  # fmt: skip


# One function per node of PyTorch whose saved values differ from Backlight's

_REDUCES = ("Sum", "Mean", "LinalgVectorNorm", "Logsumexp", "Var", "Std", "Amax", "Amin", "MaxBackward1", "MinBackward1")


def _renamed(operation: str | None = None, **names: str) -> Callable[[Known], None]:
    def translate(known: Known) -> None:
        known.rename(**names)
        known.set(operation)

    return translate


def _with_number(known: Known) -> None:
    """`x * 2`: Backlight's operation takes the number as a tensor."""
    if known.node.endswith("1"):
        known.node = known.node[:-1] + "0"
        if "other" in known.parameters:
            known.tensors["other"] = np.asarray(known.parameters["other"], known.dtype)


def _number_to_the_power(known: Known) -> None:
    if known.node == "PowBackward2":
        known.tensors["input"], known.parameters["base"] = known.tensors.get("exponent"), known.parameters.get("input")


def _picked(known: Known) -> None:
    """Values that were picked along a dimension: the result is a pair of values, which no formula reads, and indices."""
    if "indices" in known.tensors:
        known.result = None, known.tensor("indices")


def _index(known: Known) -> None:
    given = {int(name.split()[1]): array for name, array in known.tensors.items() if name.startswith("indices ")}
    known.set(index=tuple(given.get(i, slice(None)) for i in range(max(given, default=-1) + 1)))


def _slice(known: Known) -> None:
    p = known.parameters
    known.set(index=(slice(None),) * (p["dim"] % len(known.shape)) + (slice(p["start"], p["end"], p["step"]),))


def _select(known: Known) -> None:
    p = known.parameters
    known.set(index=(slice(None),) * (p["dim"] % len(known.shape)) + (p["index"], Ellipsis))


def _joined(name: str) -> Callable[[Known], None]:
    def translate(known: Known) -> None:
        known.operation = _VARIADIC[name](len(known.passed)).op.name
        for i, gradient in enumerate(known.passed):
            if gradient is not None:
                known.sizes[f"x{i}"] = tuple(gradient.shape)
            elif len(known.joined) == len(known.passed):
                known.sizes[f"x{i}"] = known.joined[i]
            else:
                raise Unknown("the shapes of inputs that need no gradient are not known")

    return translate


def _split(known: Known) -> None:
    p = known.parameters
    if "split_sizes" in p:
        known.set(lengths=p["split_sizes"])
    else:
        length, step = known.shape[p["dim"]], p["split_size"]
        known.set(lengths=tuple(min(step, length - start) for start in range(0, max(length, 1), step or 1)))


def _variance(known: Known) -> None:
    if known.parameters.get("correction") is None:
        known.set(correction=1)


def _gelu(known: Known) -> None:
    known.set("gelu_tanh" if known.parameters.get("approximate") == "tanh" else "gelu_erf")


def _celu(known: Known) -> None:
    known.set(scale=1.0, rate=1 / known.parameters["alpha"])


def _cast(known: Known) -> None:
    if known.passed[0] is None or known.passed[0].values is None:
        raise Unknown("the type that it was cast from is not known")
    known.set("to_copy", source=known.passed[0].values.dtype, target=known.dtype)


def _roll(known: Known) -> None:
    known.set(dims=known.parameters["dims"] or None)


def _nll_loss(known: Known) -> None:
    known.rename(ignore="ignore_index")
    known.set("nll_loss2d" if known.node.startswith("NllLoss2D") else "nll_loss")


def _embedding(known: Known) -> None:
    if known.parameters.get("scale_grad_by_freq"):
        raise Unknown("Backlight's formula for scale_grad_by_freq needs numbers that PyTorch doesn't save")
    known.rename(index="indices", padding="padding_idx")
    known.set("embedding")


def _dropout(known: Known) -> None:
    p = known.parameters.get("p") or 0.0
    known.tensors["mask"] = known.tensor("result1")
    known.set(scale=0.0 if p == 1 else 1 / (1 - p))


def _channels(known: Known) -> tuple[int, ...]:
    """The shape in which one value per channel fits the input."""
    return (1, known.shape[1]) + (1,) * (len(known.shape) - 2)


def _batch_norm(known: Known) -> None:
    shape, eps = _channels(known), known.parameters["eps"]
    if known.parameters["training"]:
        known.set("native_batch_norm", dims=tuple(i for i in range(len(shape)) if i != 1), shape=shape, moments=None)
    else:
        known.set("batch_norm_eval", shape=shape)
        known.tensors["mean"] = known.tensor("running_mean").reshape(shape)
        known.tensors["scale"] = (1 / np.sqrt(known.tensor("running_var") + eps)).reshape(shape).astype(known.dtype)


def _layer_norm(known: Known) -> None:
    """PyTorch saves 1 / sqrt(variance + eps) and no eps, which follows from it."""
    normalized = known.parameters["normalized_shape"]
    outer = len(known.shape) - len(normalized)
    dims = tuple(range(outer, len(known.shape)))
    variance = known.tensor("input").astype(np.float64).var(dims, keepdims=True)
    eps = known.tensor("result2").astype(np.float64) ** -2.0 - variance
    known.set(dims=dims, shape=(1,) * outer + tuple(normalized), eps=eps)


def _attention(known: Known) -> None:
    if known.tensors.get("attn_mask") is not None:
        raise Unknown("Backlight's fused attention takes no mask")
    scale = known.parameters.get("scale")
    known.result = known.tensor("output"), known.tensor("logsumexp")
    known.set(scale=1 / math.sqrt(known.shape[-1]) if scale is None else scale, causal=known.parameters["is_causal"])


def _recurrent_layer(_known: Known) -> None:
    raise Unknown("PyTorch keeps the gates in a form of its own")


def _convolution(known: Known) -> None:
    known.set("convolution_input" if known.parameters["transposed"] else "convolution")


def _max_pool(known: Known) -> None:
    known.result = None, known.tensor("result1")
    known.set(sizes=_spatial_result(known, _spatial_dimensions(known)))


def _spatial_dimensions(known: Known) -> int:
    return 3 if "3D" in known.node else 2


def _spatial_result(known: Known, count: int) -> tuple[int, ...]:
    """The last `count` dimensions of the result."""
    gradient = known.arrived[0]
    if gradient is None:
        raise Unknown("no gradient arrived")
    return tuple(gradient.shape[-count:])


def _each(values: Sequence[int], count: int) -> tuple[int, ...]:
    """One value per dimension, where one may be given for all."""
    return tuple(values) * count if len(values) == 1 else tuple(values)


def _average_pool(known: Known) -> None:
    p, count = known.parameters, _spatial_dimensions(known)
    spatial, kernel = known.shape[-count:], _each(p["kernel_size"], count)
    stride, padding = _each(p["stride"] or kernel, count), _each(p["padding"], count)
    table, sizes = pool._table(spatial, kernel, stride, padding, (1,) * count, p["ceil_mode"])
    arguments = spatial, kernel, stride, padding, table, sizes, p["count_include_pad"], p["divisor_override"]
    known.set(table=table, sizes=sizes, divisor=pool._divisor(*arguments))


def _adaptive_average_pool(known: Known) -> None:
    sizes = _spatial_result(known, _spatial_dimensions(known))
    table, _ = pool._adaptive_table(known.shape[-len(sizes) :], sizes)
    known.set(table=table, sizes=sizes, divisor=(table >= 0).sum(1).astype(float))


def _upsample(known: Known) -> None:
    mode, count = next(key for key, function in resample._upsamples.items() if function.op.node_name == known.node)
    p, spatial, sizes = known.parameters, known.shape[-count:], _spatial_result(known, count)
    scales = [p.get("scales")] if count == 1 else [p.get(f"scales_{letter}") for letter in "dhw"[-count:]]
    taps = (resample._taps(mode, *of, p.get("align_corners", False)) for of in zip(spatial, sizes, scales))
    known.set(taps=tuple(taps), sizes=spatial)


def _leaky_relu(known: Known) -> None:
    """The one in place saves its result, whose signs are those of the input."""
    if known.node.endswith("1"):
        known.node = "LeakyReluBackward0"
        known.tensors["input"] = known.tensor("result")
        if known.parameters["negative_slope"] <= 0:
            raise Unknown("it saved the result only, which doesn't tell the input's sign")


def _index_put(known: Known) -> None:
    _index(known)
    known.set("index_put")


def _masked_select(known: Known) -> None:
    known.set(place=known.tensor("mask"))


def _index_add(known: Known) -> None:
    if known.parameters.get("alpha", 1) != 1:
        raise Unknown("Backlight multiplies by alpha in an operation of its own")
    known.rename(src="source")


def _grid_sampler(known: Known) -> None:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    p = known.parameters
    known.set(mode=modes[p["interpolation_mode"]], padding=paddings[p["padding_mode"]])


def _affine_grid(known: Known) -> None:
    gradient = known.passed[0]
    if gradient is None:
        raise Unknown("the shape of theta is not known")
    known.tensors["theta"] = np.zeros(gradient.shape, known.dtype)  # it is linear: only the shape matters
    known.set(sizes=tuple(known.parameters["size"][2:]))


def _embedding_bag(known: Known) -> None:
    p, index = known.parameters, known.tensor("indices")
    mode = ("sum", "mean", "max")[p["mode"]]
    gradient = known.arrived[0]
    if mode == "max" or gradient is None:
        raise Unknown("it saved no weight")
    if "weight" not in known.tensors:  # it is linear in the weight: only the shape matters
        known.tensors["weight"] = np.zeros((p["weight_sym_argsize_0"], gradient.shape[-1]), known.dtype)
    offsets = known.tensor("offsets")[: gradient.shape[0]]
    bags = np.searchsorted(offsets, np.arange(len(index)), "right") - 1
    known.tensors |= {"index": index, "bags": bags, "factors": known.tensors.get("per_sample_weights")}
    known.set(
        "embedding_bag_frequency" if p["scale_grad_by_freq"] else "embedding_bag",
        count=gradient.shape[0], mode=mode, padding=p["padding_idx"],
    )  # fmt: skip


def _ctc_loss(known: Known) -> None:
    p, targets = known.parameters, known.tensor("targets")
    times, lengths = (
        np.asarray(p[name] if name in p else known.tensor(name), np.int64) for name in ("input_lengths", "target_lengths")
    )
    rows = _rows_of(targets, lengths) if targets.ndim == 1 else targets.astype(np.int64)
    rows = np.where(np.arange(rows.shape[1]) < lengths[:, None], rows, p["blank"])
    known.tensors |= {"targets": rows, "times": times, "lengths": lengths}
    known.result = (known.tensor("result0"),)


def _pack(known: Known) -> None:
    sizes, shape = known.tensor("result1"), known.shape
    if known.parameters["batch_first"]:
        raise Unknown("Backlight transposes first")
    known.set(mask=np.arange(shape[1]) < sizes[:, None])


def _weight_norm(known: Known) -> None:
    v, dim = known.tensor("v"), known.parameters["dim"] % known.tensor("v").ndim
    known.tensors |= {"input": v, "other": known.tensor("g")}
    known.set(dims=tuple(i for i in range(v.ndim) if i != dim))


def _pad_by_index(known: Known) -> None:
    """Reflection and replication: which element of the input each of the result is, by dimension, the last first."""
    shape, padding = known.shape, known.parameters["padding"]
    mode = "reflect" if known.node.startswith("Reflection") else "edge"
    places = []
    for i in range(len(padding) // 2):
        dim, (low, high) = len(shape) - 1 - i, padding[2 * i : 2 * i + 2]
        place = np.pad(np.arange(shape[dim]), (max(low, 0), max(high, 0)), mode)  # pyright: ignore[reportArgumentType, reportCallIssue]
        places.append((dim, place[max(-low, 0) : len(place) - max(-high, 0)]))
    known.set(places=tuple(places), shape=shape)


def _statistics(known: Known) -> None:
    _variance(known)
    known.set(dims=dims_of(known.parameters.get("dim"), len(known.shape)))


def _im2col(known: Known) -> None:
    p, gradient = known.parameters, known.arrived[0]
    if gradient is None:
        raise Unknown("no gradient arrived")
    known.rename(kernel="kernel_size")
    spatial = p["input_sym_argsize_minus_2"], p["input_sym_argsize_minus_1"]
    channels = gradient.shape[-2] // int(np.prod(p["kernel_size"]))
    known.sizes["input"] = (*gradient.shape[:-2], channels, *spatial)


def _fourier(known: Known) -> None:
    p = known.parameters
    if known.node.startswith("FftC2R"):
        gradient = known.arrived[0]
        if gradient is None:
            raise Unknown("no gradient arrived")
        shape = tuple(gradient.shape)
        known.set(last_dim_size=shape[p["dim"][-1]])
    else:
        shape = known.shape
    dims = tuple(d % len(shape) - len(shape) for d in p["dim"])
    count = int(np.prod([shape[d] for d in dims]))
    known.set(dim=dims, normalization=(1, count**-0.5, 1 / count)[p["normalization"]])


def _rrelu(known: Known) -> None:
    """In eval mode it is leaky_relu with the mean slope."""
    p = known.parameters
    if not p["training"]:
        known.node = "LeakyReluBackward0"
        known.set("leaky_relu", negative_slope=(p["lower"] + p["upper"]) / 2)


def _named(*names: str) -> Callable[[Known], None]:
    """The results go by names of their own; one without a name is read by no formula."""

    def translate(known: Known) -> None:
        known.result = tuple(known.tensor(name) if name else None for name in names)

    return translate


TRANSLATIONS: dict[str, Callable[[Known], None]] = {
    "Add": _with_number, "Sub": _with_number, "Mul": _with_number, "Div": _with_number,
    "Pow": _number_to_the_power,
    "Max": _picked, "Min": _picked, "Sort": _picked, "Topk": _picked, "Kthvalue": _picked, "Median": _picked,
    "Index": _index, "Slice": _slice, "Select": _select, "Split": _split, "SplitWithSizes": _split, "Roll": _roll,
    "Cat": _joined("cat"), "Stack": _joined("stack"),
    "Squeeze": _renamed(dims="dim"),
    "Var": _variance, "Std": _variance, "ToCopy": _cast,
    "Elu": _renamed(rate="input_scale"), "Celu": _celu, "Gelu": _gelu, "Hardtanh": _renamed(low="min_val", high="max_val"),
    "NllLoss": _nll_loss, "NllLoss2D": _nll_loss, "Embedding": _embedding, "NativeDropout": _dropout,
    "NativeBatchNorm": _batch_norm, "NativeLayerNorm": _layer_norm, "NativeGroupNorm": _renamed(groups="group"),
    "ScaledDotProductFlashAttentionForCpu": _attention, "MkldnnRnnLayer": _recurrent_layer,
    "Convolution": _convolution, "MaxPool2DWithIndices": _max_pool, "MaxPool3DWithIndices": _max_pool,
    "AvgPool2D": _average_pool, "AvgPool3D": _average_pool,
    "LeakyRelu": _leaky_relu, "IndexPut": _index_put, "MaskedSelect": _masked_select,
    "IndexAdd": _index_add, "GridSampler2D": _grid_sampler, "GridSampler3D": _grid_sampler, "AffineGridGenerator": _affine_grid,
    "EmbeddingBag": _embedding_bag, "CtcLoss": _ctc_loss, "PackPaddedSequence": _pack, "WeightNormInterface": _weight_norm,
    **dict.fromkeys([f"{kind}Pad{n}D" for kind in ("Reflection", "Replication") for n in (1, 2, 3)], _pad_by_index),
    "VarMean": _statistics, "StdMean": _statistics, "Nansum": _statistics, "Im2Col": _im2col,
    "Unfold": _renamed(dim="dimension"), "PixelShuffle": _renamed(r="upscale_factor"), "PixelUnshuffle": _renamed(r="downscale_factor"),
    **dict.fromkeys(("Nanmedian", "Mode", "Cummax", "Cummin"), _picked),
    **dict.fromkeys(("FftR2C", "FftC2C", "FftC2R"), _fourier), "RreluWithNoise": _rrelu,
    "LinalgInvEx": _named("inverse", ""), "LinalgCholeskyEx": _named("L", ""), "LinalgEigh": _named("eigenvalues", "eigenvectors"),
    "LinalgQr": _named("Q", "R"),
    "AdaptiveMaxPool2D": _max_pool, "AdaptiveMaxPool3D": _max_pool,
    "AdaptiveAvgPool2D": _adaptive_average_pool, "AdaptiveAvgPool3D": _adaptive_average_pool,
}  # fmt: skip
