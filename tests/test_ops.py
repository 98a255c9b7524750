"""Every operation against PyTorch, in all the ways it can be called; and the graph that it leaves.

A case is an expression over `torch`, `F` (nn.functional) and the tensors x, y, ...; it runs under both packages.
"""

from __future__ import annotations

import math
import re
import warnings

import numpy as np
import pytest
import torch

import backlight

BOTH = (torch, backlight)

# What x and y hold: every case runs over all kinds whose values its operation takes.
ELEMENTWISE = {  # expression: the interval of the values
    "torch.abs(x)": (-2, 2), "torch.neg(x)": (-2, 2), "torch.sign(x)": (-2, 2), "torch.sgn(x)": (-2, 2),
    "torch.positive(x)": (-2, 2), "torch.square(x)": (-2, 2), "torch.sqrt(x)": (0.1, 2), "torch.rsqrt(x)": (0.1, 2),
    "torch.reciprocal(x)": (0.5, 2), "torch.exp(x)": (-2, 2), "torch.exp2(x)": (-2, 2), "torch.expm1(x)": (-2, 2),
    "torch.log(x)": (0.1, 2), "torch.log2(x)": (0.1, 2), "torch.log10(x)": (0.1, 2), "torch.log1p(x)": (-0.5, 2),
    "torch.sin(x)": (-2, 2), "torch.cos(x)": (-2, 2), "torch.tan(x)": (-1, 1), "torch.asin(x)": (-0.9, 0.9),
    "torch.acos(x)": (-0.9, 0.9), "torch.atan(x)": (-2, 2), "torch.sinh(x)": (-2, 2), "torch.cosh(x)": (-2, 2),
    "torch.tanh(x)": (-2, 2), "torch.asinh(x)": (-2, 2), "torch.acosh(x)": (1.1, 3), "torch.atanh(x)": (-0.9, 0.9),
    "torch.sigmoid(x)": (-3, 3), "torch.erf(x)": (-3, 3), "torch.erfc(x)": (-3, 3), "torch.erfinv(x)": (-0.9, 0.9),
    "torch.lgamma(x)": (0.2, 4), "torch.digamma(x)": (0.2, 4), "torch.polygamma(1, x)": (0.2, 4), "torch.sinc(x)": (-2, 2),
    "torch.logit(x)": (0.1, 0.9), "torch.logit(x, 0.3)": (0.1, 0.9), "torch.ceil(x)": (-2, 2), "torch.floor(x)": (-2, 2),
    "torch.trunc(x)": (-2, 2), "torch.frac(x)": (-2, 2), "torch.round(x)": (-2, 2), "torch.round(x, decimals=1)": (-2, 2),
    "torch.deg2rad(x)": (-90, 90), "torch.rad2deg(x)": (-2, 2), "torch.nan_to_num(x)": (-2, 2), "torch.angle(x)": (-2, 2),
    "x ** 2": (-2, 2), "x ** 3": (-2, 2), "x ** 0": (-2, 2), "x ** 0.5": (0.1, 2), "x ** -1": (0.5, 2), "x ** 2.5": (0.1, 2),
    "2 ** x": (-2, 2), "x + 1": (-2, 2), "1 - x": (-2, 2), "x * 2.5": (-2, 2), "x / 3": (-2, 2), "3 / x": (0.5, 2),
    "x // 2": (-5, 5), "x % 1.5": (-5, 5), "-x": (-2, 2), "+x": (-2, 2), "abs(x)": (-2, 2), "x - True": (-2, 2),
    "torch.clamp(x, -1, 1)": (-2, 2), "torch.clamp(x, min=0.5)": (-2, 2), "torch.clamp(x, max=0.5)": (-2, 2),
    "torch.add(x, 2, alpha=3)": (-2, 2), "torch.sub(x, 2, alpha=3)": (-2, 2), "torch.rsub(x, 2)": (-2, 2),
    "torch.div(x, 2, rounding_mode='floor')": (-5, 5), "torch.div(x, 2, rounding_mode='trunc')": (-5, 5),
    "torch.fmod(x, 1.5)": (-5, 5), "torch.masked_fill(x, x.detach() > 0, 7)": (-2, 2),
    "torch.relu(x)": (-2, 2), "F.relu6(x)": (-2, 8), "F.leaky_relu(x, 0.2)": (-2, 2), "F.elu(x, 1.5)": (-2, 2),
    "F.celu(x, 1.5)": (-2, 2), "F.selu(x)": (-2, 2), "F.gelu(x)": (-2, 2), "F.gelu(x, approximate='tanh')": (-2, 2),
    "F.silu(x)": (-2, 2), "F.mish(x)": (-2, 2), "F.softplus(x, 2, 3)": (-3, 3), "F.softsign(x)": (-2, 2),
    "F.tanhshrink(x)": (-2, 2), "F.hardtanh(x)": (-2, 2), "F.hardsigmoid(x)": (-4, 4), "F.hardswish(x)": (-4, 4),
    "F.hardshrink(x)": (-2, 2), "F.softshrink(x)": (-2, 2), "F.threshold(x, 0.5, 9)": (-2, 2), "F.logsigmoid(x)": (-3, 3),
    "x.clone()": (-2, 2), "x.double()": (-2, 2), "x.float()": (-2, 2), "x.detach()": (-2, 2), "x.contiguous()": (-2, 2),
    "x > 0": (-2, 2), "x == x": (-2, 2), "torch.isnan(x)": (-2, 2), "torch.isfinite(x)": (-2, 2), "torch.signbit(x)": (-2, 2),
    "torch.logical_not(x)": (-2, 2), "torch.zeros_like(x)": (-2, 2), "torch.ones_like(x)": (-2, 2),
}  # fmt: skip
TWO = [  # of x and y, which broadcast; all positive
    "x + y", "x - y", "x * y", "x / y", "x ** y", "x // y", "x % y", "torch.maximum(x, y)", "torch.minimum(x, y)",
    "torch.fmax(x, y)", "torch.fmin(x, y)", "torch.atan2(x, y)", "torch.hypot(x, y)", "torch.logaddexp(x, y)",
    "torch.logaddexp2(x, y)", "torch.xlogy(x, y)", "torch.copysign(x, -y)", "torch.add(x, y, alpha=2)",
    "torch.sub(x, y, alpha=2)", "torch.rsub(x, y)", "torch.div(x, y, rounding_mode='floor')",
    "torch.div(x, y, rounding_mode='trunc')", "torch.fmod(x, y)", "torch.remainder(x, y)", "torch.where(x > y, x, y)",
    "torch.clamp(x, y, 2 * y)", "torch.clamp(x, min=y)", "torch.lerp(x, y, 0.3)", "torch.lerp(x, y, y)",
    "torch.addcmul(x, y, x, value=2)", "torch.addcdiv(x, x, y, value=2)", "torch.float_power(x, y)", "x > y", "x <= y", "x == y",
    "x != y", "torch.logical_and(x, y)", "torch.heaviside(x - 1, y)", "F.mse_loss(x, y, reduction='none')",
    "F.l1_loss(x, y)", "F.smooth_l1_loss(x, y)", "F.huber_loss(x, y, delta=0.3)", "torch.broadcast_tensors(x, y)",
]  # fmt: skip
# Expressions of a matrix x (3, 4) and what else they name; anything differentiable is differentiated.
SHAPES = {"x": (3, 4), "w": (4, 4), "v": (4,), "b": (2, 3, 4), "c": (2, 4, 5), "k": (2, 2, 3, 3), "i": (1, 2, 6, 6), "s": (), "e": (0, 4)}
GENERAL = """
x.sum()|x.sum(0)|x.sum((0, 1))|x.sum(-1, True)|x.sum(dtype=torch.float32)|e.sum()|e.sum(0)|s.sum()|s.sum(0)
x.mean()|x.mean(0)|x.mean((0, 1), keepdim=True)|b.mean((0, 2))|s.mean()|x.var()|x.var(0)|x.std()|x.std(1, unbiased=False)
x.std(1, correction=0)|torch.var_mean(x, 1)|torch.std_mean(x)|x.prod()|x.prod(1)|b.prod(1, True)|s.prod()
x.max()|x.max(1)|x.min()|x.min(0, keepdim=True)|x.amax()|x.amax((0, 1))|x.amin(1, True)|torch.aminmax(x, dim=1)|x.argmax()
x.argmax(1)|x.argmin(0, True)|x.all()|x.any(1)|x.count_nonzero()|x.median()|x.median(1)|torch.nanmedian(x, 1)|torch.mode(x, 1)
torch.kthvalue(x, 2)|torch.quantile(x, 0.3)|torch.quantile(x, 0.3, 1)|x.logsumexp(1)|x.logsumexp((0, 1))|torch.nansum(x)|torch.nanmean(x, 1)
x.norm()|x.norm(1)|x.norm(2, 1)|x.norm(float('inf'))|x.norm(3, 0, True)|torch.linalg.vector_norm(x, 2.5, 1)|torch.norm(x, 'nuc')
x.softmax(1)|x.log_softmax(0)|F.softmin(x, 1)|torch.softmax(s, 0)|x.cumsum(1)|x.cumprod(0)|x.cummax(1)|x.cummin(0)|x.logcumsumexp(1)
torch.diff(x)|torch.diff(x, 2, 0)|x.sort(1)|x.sort(0, descending=True)|x.argsort(1)|x.topk(2)|x.topk(2, 0, largest=False)
x.view(12)|x.view(-1, 2)|x.reshape(4, 3)|x.t().reshape(-1)|x.flatten()|b.flatten(1)|b.unflatten(2, (2, 2))|x.ravel()|x.view_as(w[:3])
x.t()|x.T|x.mT|b.transpose(0, 2)|b.permute(2, 0, 1)|b.movedim(0, 2)|b.swapaxes(0, 1)|x.unsqueeze(1)|x[None].squeeze(0)|x[None].squeeze()
x.unsqueeze(0).squeeze((0,))|x.expand(2, 3, 4)|v.expand(3, -1)|v.expand_as(x)|torch.broadcast_to(v, (2, 4))|x.repeat(2, 1)|x.tile(2)
x.repeat_interleave(2)|x.repeat_interleave(2, 0)|x.sum_to_size(1, 4)|x.as_strided((2, 2), (1, 2))|x.as_strided((2, 2), (4, 1), 1)
x.narrow(1, 1, 2)|x.select(0, 1)|x[1]|x[:, 1]|x[1:, ::2]|x[..., 0]|x[None]|x[[0, 2]]|x[x > 0]|x[torch.tensor([0, 0]), torch.tensor([1, 1])]
torch.cat([x, x], 1)|torch.cat([x, v[None]])|torch.stack([x, x], 1)|torch.hstack([x, x])|torch.vstack([x, v])|torch.dstack([x, x])
torch.column_stack([v, v])|x.split(2, 1)|x.split([1, 3], 1)|x.chunk(3, 1)|torch.tensor_split(x, 3, 1)|x.unbind(1)|torch.block_diag(x, v)
torch.meshgrid(v, v, indexing='ij')|torch.meshgrid(v, v[:2], indexing='xy')|torch.cartesian_prod(v, v)|torch.combinations(v)
x.diagonal()|w.diag()|v.diag()|v.diag_embed()|torch.diagflat(v)|x.tril()|x.triu(1)|x.flip(0)|x.fliplr()|x.rot90()|x.roll(1)|x.roll((1, 1), (0, 1))
F.pad(x, (1, 2))|F.pad(x, (1, -1, 0, 1), value=3.0)|F.pad(x, (1, 2), mode='reflect')|F.pad(x, (1, 2), mode='replicate')|F.pad(x, (1, 2), mode='circular')
x.gather(1, torch.tensor([[0, 1], [3, 3]]))|x.scatter(0, torch.tensor([[0, 1], [2, 0]]), w)|x.scatter(1, torch.tensor([[0], [1]]), 5.0)
x.scatter_add(0, torch.tensor([[0, 0], [2, 0]]), w)|x.index_select(1, torch.tensor([0, 0, 3]))|x.index_add(0, torch.tensor([0, 0]), w[:2])
x.index_fill(1, torch.tensor([0, 2]), 3.0)|x.index_copy(0, torch.tensor([2, 0]), w[:2])|x.index_put((torch.tensor([0, 0]),), v)
x.take(torch.tensor([0, 5, 5]))|x.take_along_dim(torch.tensor([[0], [1], [2]]), 1)|x.masked_select(x > 0)|x.masked_scatter(x > 0, w)
x.unfold(1, 2, 1)|x.nonzero()|torch.where(x > 0)|torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))|x.unique()
x @ w|x @ v|v @ w|v @ v|b @ c|b @ w|w @ b.mT|x.mm(w)|x.mv(v)|v.dot(v)|torch.outer(v, v)|b.bmm(c)|torch.inner(x, w)|torch.kron(v, v)|w.trace()
torch.addmm(v, x, w)|torch.addmm(v, x, w, beta=2, alpha=0.5)|torch.addmv(x[:, 0], x, v)|torch.addr(w, v, v)|torch.baddbmm(c[0, :3], b, c)
torch.addbmm(x[:, :1], b, c)|torch.einsum('ij,jk->ik', x, w)|torch.einsum('bij,bjk->bk', b, c)|torch.einsum('ii', w)|torch.einsum('...j,j', b, v)
torch.einsum('ij,kj->ik', x, x)|torch.tensordot(b, w, 1)|torch.tensordot(b, c, ([0, 2], [0, 1]))|torch.linalg.cross(x[:, :3], w[:3, :3])|torch.cdist(x, w)
F.linear(x, w)|F.linear(x, w, v)|F.linear(b, w, v)|F.linear(v, w, v)|F.bilinear(x, x, c.mT[:, :4, :4].contiguous()[:, :, :4])
F.cross_entropy(x, torch.tensor([0, 3, 1]))|F.cross_entropy(x, torch.tensor([0, -100, 1]), v.abs())|F.cross_entropy(x, x.softmax(1), label_smoothing=0.1)
F.cross_entropy(x, torch.tensor([0, 3, 1]), label_smoothing=0.1, reduction='sum')|F.nll_loss(x, torch.tensor([0, 3, 1]), reduction='none')
F.binary_cross_entropy(x.sigmoid(), w[:3].sigmoid())|F.binary_cross_entropy_with_logits(x, w[:3], pos_weight=v.abs())|F.kl_div(x, w[:3], log_target=True)
F.gaussian_nll_loss(x, w[:3], x.abs() + 1)|F.poisson_nll_loss(x, w[:3].abs())|F.cosine_similarity(x, w[:3])|F.pairwise_distance(x, w[:3])
F.triplet_margin_loss(x, w[:3], w[1:])|F.margin_ranking_loss(x, w[:3], x.sign())|F.soft_margin_loss(x, x.sign())|F.multi_margin_loss(x, torch.tensor([0, 3, 1]))
F.hinge_embedding_loss(x, x.sign())|F.cosine_embedding_loss(x, w[:3], torch.tensor([1, -1, 1]))|F.normalize(x)|F.normalize(x, 1, 0)
F.layer_norm(x, (4,), v, v)|F.layer_norm(b, (3, 4))|F.rms_norm(x, (4,), v)|F.group_norm(i, 2)|F.instance_norm(i)|F.local_response_norm(i, 2)
F.batch_norm(x, None, None, v, v, True)|F.batch_norm(x, v.detach(), v.detach().abs(), v, v)|F.embedding(torch.tensor([[0, 1], [3, 3]]), w)
F.embedding(torch.tensor([0, 3]), w, padding_idx=3)|F.scaled_dot_product_attention(b, b, b)|F.scaled_dot_product_attention(b, b, b, is_causal=True)
F.conv1d(b, b.mT[:, :3, :3])|F.conv2d(i, k)|F.conv2d(i, k, v[:2], 2, 1)|F.conv2d(i, k[:, :1], None, 1, 'same', groups=2)|F.conv2d(i, k, dilation=2)
F.conv_transpose2d(i, k)|F.conv_transpose2d(i, k, v[:2], 2, 1, 1)|F.unfold(i, 2)|F.fold(F.unfold(i, 2), 6, 2)|F.pixel_shuffle(F.pad(i, (0, 0, 0, 0, 1, 1)), 2)
F.max_pool2d(i, 2)|F.max_pool2d(i, 3, 2, 1, return_indices=True)|F.max_pool1d(b, 2)|F.avg_pool2d(i, 2)|F.avg_pool2d(i, 3, 2, 1, count_include_pad=False)
F.adaptive_avg_pool2d(i, (2, 3))|F.adaptive_avg_pool2d(i, 1)|F.adaptive_max_pool2d(i, 2)|F.interpolate(i, scale_factor=2)|F.interpolate(i, 4, mode='bilinear')
F.interpolate(i, 9, mode='bilinear', align_corners=True)|F.interpolate(i, scale_factor=1.5, mode='bicubic')|F.one_hot(torch.tensor([0, 2]))|F.glu(x)
F.prelu(x, v)|F.prelu(x, v[:1])|torch.complex(x, w[:3])|torch.polar(x.abs(), w[:3])|torch.view_as_real(torch.complex(x, x))|torch.cov(x)|torch.corrcoef(x)
x.to(torch.float32)|x.type(torch.float64)|x.half().double()|x.real|x.tolist()|x.numel()|x.size()|x.stride()|x.dim()|s.item()|x.is_contiguous()|x.t().is_contiguous()
"""  # noqa: E501
EXPRESSIONS = [e for line in GENERAL.strip().splitlines() for e in line.split("|")]


def tensors(shapes, kind="float64", low=-2.0, high=2.0, requires_grad=False, layout=""):
    """The same random tensors for both packages: two dictionaries."""
    rng = np.random.default_rng(1)
    result: tuple[dict, dict] = ({}, {})
    for name, shape in shapes.items():
        array = rng.uniform(low, high, shape).astype("float64")
        array = array.astype(kind) if kind != "bool" else array > 0
        if layout == "transposed" and array.ndim > 1:
            array = array.swapaxes(0, -1).copy().swapaxes(0, -1)
        elif layout == "strided" and array.ndim:
            wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
            wide[..., ::2] = array
            array = wide[..., ::2]
        for package, found in zip(BOTH, result):
            whole = array.base if array.base is not None and layout else array
            del whole
            # copy() would lose the layout, and as_strided-like views must not be shared between the two
            own = np.lib.stride_tricks.as_strided(array, array.shape, array.strides)
            if layout:
                buffer = np.empty_like(array.base if array.base is not None else array)
                buffer[...] = array.base if array.base is not None else array
                own = buffer[..., ::2] if layout == "strided" and array.ndim else buffer.swapaxes(0, -1) if array.ndim > 1 else buffer
            else:
                own = array.copy()
            tensor = package.from_numpy(own)
            found[name] = tensor.requires_grad_() if requires_grad and array.dtype.kind in "fc" else tensor
    return result
