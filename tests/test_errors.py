"""Bad input raises what PyTorch raises: the same type, the same text (after which we may add a line of our own)."""

from __future__ import annotations

import copy
import re
import warnings

import numpy as np
import pytest
import torch

import backlight

CREATION = r"""
torch.tensor([[1], [2, 3]])
torch.tensor([1, [2]])
torch.tensor('a')
torch.tensor(['a'])
torch.tensor(None)
torch.tensor([None])
torch.tensor(object())
torch.tensor([1], requires_grad=True)
torch.tensor([1.0], dtype='float')
torch.tensor([1.0], dtype=float).foo
torch.tensor([1.0], device='foo')
torch.tensor()
torch.ones(2, dtype=torch.int, requires_grad=True)
torch.zeros(2, dtype=torch.bool, requires_grad=True)
torch.full((2,), 1, requires_grad=True)
torch.arange(3, requires_grad=True)
torch.zeros(-1)
torch.ones(2, -3)
torch.empty((-1,))
torch.zeros('a')
torch.zeros(2.5)
torch.zeros((2, 2.5))
torch.zeros(2, dtype=3)
torch.zeros(2, foo=3)
torch.randn('a')
torch.randn(-2)
torch.rand(2, 3, foo=1)
torch.ones(2, device='cuda')
torch.ones(2).to('cuda')
torch.ones(2).cuda()
torch.device('foo')
torch.device('cpu:x')
torch.full((2,), 'a')
torch.full(2, 1)
torch.eye(-1)
torch.eye(2, -1)
torch.arange(5, 0)
torch.arange(0, 5, 0)
torch.arange(0, 5, -1)
torch.arange(0, float('inf'))
torch.arange()
torch.linspace(0, 1)
torch.linspace(0, 1, -1)
torch.linspace(torch.ones(2), 1, 3)
torch.randint(5, 3, (2,))
torch.randint(3)
torch.multinomial(torch.ones(2), 5)
torch.multinomial(torch.zeros(2), 1)
torch.multinomial(-torch.ones(2), 1)
torch.multinomial(torch.ones(2, 2, 2), 1)
torch.multinomial(torch.ones(()), 1)
torch.zeros(3).random_(0)
torch.zeros(3).random_(3, 3)
torch.zeros(3).random_(True)
torch.zeros(3).random_(1.5)
torch.zeros(3).random_(1, 2, 3)
torch.cumsum(torch.ones(3), 0, dtype=torch.float64, out=torch.empty(3))
torch.cumsum(torch.ones(3).int(), 0, dtype=torch.int32, out=torch.empty(3).long())
torch.cumsum(torch.ones(3), 0, out=torch.empty(3).bool())
torch.cumsum(torch.tensor([0.5, 0.5, 2.0]), 0, out=torch.empty(3).int())
torch.cumsum(torch.tensor([100, 100]).to(torch.int8), 0, out=torch.empty(2).to(torch.int8))
torch.cumprod(torch.tensor([0.5, 4.0]), 0, out=torch.empty(2).int())
torch.sum(torch.tensor([0.5, 0.5]), 0, out=torch.empty(()).int())
torch.prod(torch.tensor([0.5, 4.0]), 0, out=torch.empty(()).int())
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(4), out=torch.empty(2, 4))
torch.sum(torch.ones(3), 0, dtype=torch.float64, out=torch.empty(()))
torch.diff(torch.arange(4.0), out=torch.empty(3).int())
torch.diff(torch.arange(4.0, requires_grad=True), out=torch.empty(3))
torch.nn.functional.avg_pool1d(torch.ones(1, 2), 2, out=torch.empty(0))
torch.nn.functional.avg_pool3d(torch.ones(1, 2, 2, 2), 2, out=torch.empty(0).double())
torch.nn.functional.avg_pool3d(torch.ones(1, 2, 2, 2, requires_grad=True), 2, out=torch.empty(0))
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), out=torch.empty(2, 4).double())
torch.nn.functional.linear(torch.ones(2, 3, requires_grad=True), torch.ones(4, 3), out=torch.empty(2, 4))
torch.bernoulli(torch.tensor([2.]))
torch.from_numpy([1])
torch.from_numpy(np.array(['a']))
torch.from_numpy(np.array([object()]))
torch.from_numpy(np.ones(3)[::-1])
torch.as_tensor('a')
torch.manual_seed('a')
torch.set_default_dtype(torch.int)
torch.set_default_dtype('a')
torch.finfo(torch.int)
torch.finfo(torch.bool)
torch.iinfo(torch.float)
torch.iinfo(torch.bool)
torch.iinfo()
torch.Size(['a'])
torch.Size(3)
torch.promote_types(torch.uint16, torch.int8)
torch.FloatTensor('a')
torch.LongTensor([1.5, 'a'])
torch.Tensor('a')
torch.Tensor(2, 'a')
torch.zeros_like(3)
torch.ones_like([1])
torch.full_like(torch.ones(2), 'a')
torch.complex(torch.ones(2), torch.ones(2).double())
torch.polar(torch.ones(2), torch.ones(2).double())
torch.ones(2).new_zeros('a')
torch.tril_indices(-1, 2)
"""

ARITHMETIC = r"""
torch.ones(2) + torch.ones(3)
torch.ones(2, 3) * torch.ones(3, 2)
torch.ones(2) + 'a'
torch.ones(2) + None
torch.ones(2) - [1]
'a' * torch.ones(2)
torch.ones(2) < 'a'
torch.add(torch.ones(2))
torch.add(torch.ones(2), out=torch.ones(2))
torch.add(1, 2)
torch.add(torch.ones(2), 'a')
torch.add(torch.ones(2), 1, alpha='a')
torch.add(torch.ones(2).int(), 1, alpha=1.5)
torch.add(torch.ones(2).bool(), True, alpha=2.5)
torch.add(torch.ones(2), 1, alpha=1j)
torch.add(torch.ones(2), 1, alpha=True)
torch.mul(torch.ones(2))
torch.mul(torch.ones(2), 'a')
torch.exp()
torch.exp(3)
torch.exp('a')
torch.exp(torch.ones(2, requires_grad=True), out=torch.ones(2))
torch.exp(torch.ones(2), out=torch.ones(2).int())
torch.add(torch.ones(2), 1, out=torch.ones(2).int())
torch.exp(torch.ones(2), 3)
torch.ones(3).sqrt(3)
torch.sqrt(torch.ones(2), foo=1)
torch.ones(2).exp(foo=1)
torch.div(torch.ones(2), 2, rounding_mode='a')
torch.ones(2, dtype=torch.int) // 0
torch.ones(2, dtype=torch.int) % 0
torch.div(torch.ones(2).int(), 0, rounding_mode='trunc')
torch.fmod(torch.ones(2).int(), 0)
-torch.ones(2).bool()
torch.neg(torch.ones(2).bool())
torch.ones(2).bool() - torch.ones(2).bool()
torch.ones(2).bool() - 1
1 - torch.ones(2).bool()
torch.ones(2).bool() - True
torch.rsub(torch.ones(2).bool(), 1)
~torch.ones(2)
torch.bitwise_not(torch.ones(2))
torch.ones(2) & torch.ones(2)
torch.ones(2) | 1
torch.ones(2) ^ torch.ones(2)
torch.ones(2) << 1
torch.bitwise_and(torch.ones(2), 1)
torch.ones(2).int() ** -1
torch.pow(torch.ones(2).int(), -1)
torch.pow(2, 3)
torch.pow(torch.ones(2), 'a')
torch.pow(torch.ones(2))
torch.clamp(torch.ones(2))
torch.clamp(torch.ones(2), 'a')
torch.clamp(torch.ones(2) * 1j, 0, 1)
torch.ones(2).clamp_(torch.ones(3))
torch.clamp(torch.ones(2), torch.ones(3), torch.ones(2))
torch.ones(2).add_(torch.ones(3))
torch.ones(2).add_(torch.ones(3, 2))
torch.ones(2).int().add_(1.5)
torch.ones(2).int().mul_(torch.ones(2))
torch.ones(2).int().div_(2)
torch.ones(2).bool().add_(2)
torch.ones(1).expand(3).add_(1)
torch.ones(2).int().exp_()
torch.ones(2).mul_(1j)
torch.maximum(torch.ones(2), torch.ones(3))
torch.maximum(torch.ones(2), 1)
torch.maximum(torch.ones(2) * 1j, torch.ones(2) * 1j)
torch.atan2(torch.ones(2), 1)
torch.lerp(torch.ones(2), torch.ones(2).double(), 0.5)
torch.addcdiv(torch.ones(2).int(), torch.ones(2).int(), torch.ones(2).int())
torch.where(torch.ones(3), 1, 2)
torch.where(torch.ones(3).bool(), torch.ones(2), 2)
torch.where(torch.ones(3).int(), 1, 2)
torch.where(3, 1, 2)
torch.where(torch.ones(3).bool(), 1)
torch.ones(3).masked_fill(torch.ones(3), 1)
torch.ones(3).masked_fill(torch.ones(3).int(), 1)
torch.ones(3).masked_fill(torch.ones(2).bool(), 1)
torch.ones(3).masked_fill(torch.ones(3).bool(), torch.ones(2))
torch.ones(3).masked_fill(torch.ones(3).bool(), 'a')
torch.ones(3).int().masked_fill(torch.ones(3).bool(), 1.5)
torch.floor(torch.ones(2) * 1j)
torch.sign(torch.ones(2) * 1j)
torch.ones(2) * 1j > 0
torch.ones(2) * 1j % 2
torch.real(3)
torch.imag(torch.ones(2))
torch.isclose(torch.ones(2), torch.ones(2).double())
torch.allclose(torch.ones(2), torch.ones(2).double())
torch.equal(torch.ones(2), 1)
torch.sigmoid(3)
torch.polygamma(-1, torch.ones(2))
torch.logical_not(3)
torch.isnan(3)
"""

SHAPES = r"""
torch.ones(2, 3).reshape(7)
torch.ones(2, 3).reshape(-1, -1)
torch.ones(2, 3).reshape(-2)
torch.ones(2, 3).reshape(4, -1)
torch.ones(0).reshape(-1, 0)
torch.ones(2, 3).reshape('a')
torch.ones(2, 3).view(5)
torch.ones(2, 3).view(2.5)
torch.ones(2, 3).t().view(-1)
torch.ones(2, 3).view()
torch.ones(3).view(torch.float64)
torch.tensor(1.).view(torch.float64)
torch.ones(2, 3).expand(3, 3)
torch.ones(2, 3).expand(3)
torch.ones(2).expand(-1, 2)
torch.ones(2).permute(1, 0)
torch.ones(2, 3).permute(0, 0)
torch.ones(2, 3).permute(0, 5)
torch.ones(2, 3).transpose(0, 4)
torch.ones(2, 3).transpose(0)
torch.ones(2, 3, 4).t()
torch.ones(2).mT
torch.ones(2, 3).squeeze(4)
torch.ones(2, 3).squeeze((0, 0))
torch.ones(2, 3).unsqueeze(4)
torch.ones(2, 3).unsqueeze()
torch.ones(2, 3).flatten(1, 0)
torch.ones(2, 3).flatten(3)
torch.ones(2, 3).unflatten(1, (2, 2))
torch.ones(2, 3).movedim(0, (0, 1))
torch.ones(2, 3).movedim((0, 0), (0, 1))
torch.ones(2, 3).repeat(2)
torch.ones(2).repeat(-1)
torch.ones(2, 3).diagonal(0, 0, 0)
torch.ones(2).diagonal()
torch.diag(torch.ones(2, 2, 2))
torch.tril(torch.ones(2))
torch.triu(torch.ones(2))
torch.flip(torch.ones(2), (0, 0))
torch.flip(torch.ones(2), (3,))
torch.roll(torch.ones(2), (1, 2), (0,))
torch.rot90(torch.ones(2, 2), 1, (0, 0))
torch.ones(2, 3).narrow(0, 1, 5)
torch.ones(2, 3).narrow(0, 5, 1)
torch.ones(2, 3).narrow(4, 0, 1)
torch.ones(2, 3).select(0, 5)
torch.tensor(1.).select(0, 0)
torch.ones(4).as_strided((2,), (1, 1))
torch.ones(4).as_strided((5,), (1,))
torch.cat([])
torch.cat([torch.ones(2), torch.ones(2, 2)])
torch.cat([torch.ones(2, 3), torch.ones(2, 2)])
torch.cat([torch.tensor(1.), torch.ones(1)])
torch.cat([torch.ones(2)], 3)
torch.cat([torch.ones(2), 3])
torch.cat(torch.ones(2))
torch.cat(3)
torch.stack([])
torch.stack([torch.ones(2), torch.ones(3)])
torch.stack([torch.ones(2)], 4)
torch.stack([torch.ones(2), 3])
torch.ones(2, 3).split([1, 2])
torch.ones(2, 3).split(-1)
torch.ones(2, 3).split(0)
torch.tensor(1.).split(1)
torch.ones(2, 3).chunk(0)
torch.ones(2, 3).chunk(2, 5)
torch.tensor(1.).unbind()
torch.tensor_split(torch.ones(3), 0)
torch.meshgrid(torch.ones(2, 2), indexing='ij')
torch.meshgrid(torch.ones(2), indexing='a')
torch.broadcast_tensors(torch.ones(2), torch.ones(3))
torch.broadcast_shapes((2,), (3,))
torch.nn.functional.pad(torch.ones(2), (1, 2, 3))
torch.nn.functional.pad(torch.ones(2), (1, 2, 3, 4))
torch.nn.functional.pad(torch.ones(1, 2), (3, 3), mode='reflect')
torch.nn.functional.pad(torch.ones(1, 2), (1, 1), mode='foo')
torch.ones(3).unfold(0, 5, 1)
torch.ones(2).foo
torch.foo
torch.nn.functional.foo
torch.ones(2).view_as(torch.ones(3))
"""

REDUCTIONS = r"""
torch.ones(2).sum(dim=3)
torch.ones(2).sum(foo=3)
torch.ones(2).sum('a')
torch.ones(2).sum((0, 0))
torch.sum(3)
torch.sum(torch.ones(2), dtype='a')
torch.sum(torch.ones(2), dtype=3)
torch.mean(torch.ones(2).int())
torch.mean(torch.ones(2).bool())
torch.mean(torch.ones(2), 4)
torch.std(torch.ones(2).int())
torch.var(torch.ones(2).int())
torch.var(torch.ones(2), 3)
torch.ones(2, 2).max(5)
torch.ones(0).max()
torch.ones(0, 2).max(0)
torch.max(torch.ones(2), torch.ones(3))
(torch.ones(2) * 1j).max()
torch.ones(0).amax()
torch.ones(0).amax(0)
torch.ones(0).argmax()
torch.ones(0, 2).argmax(0)
torch.ones(2).bool().argmax()
(torch.ones(2) * 1j).argmax()
torch.ones(2).prod(4)
torch.ones(2).cumsum(3)
torch.ones(2).cumsum()
torch.ones(2).logsumexp(4)
torch.softmax(torch.ones(2).int(), 0)
torch.softmax(torch.ones(2), 3)
torch.softmax(torch.ones(2))
torch.log_softmax(torch.ones(2).int(), 0)
torch.norm(torch.ones(2).int())
torch.norm(torch.ones(2), p='foo')
torch.topk(torch.ones(3), 5)
torch.topk(torch.ones(3), -1)
torch.topk(torch.ones(3), 1, 4)
torch.sort(torch.ones(3), 4)
torch.sort(torch.ones(3) * 1j)
torch.kthvalue(torch.ones(3), 5)
torch.median(torch.ones(3), 4)
torch.quantile(torch.ones(3), 2.0)
torch.quantile(torch.ones(3).int(), 0.5)
torch.histc(torch.ones(3), 0)
torch.bincount(torch.ones(3))
torch.bincount(torch.tensor([-1]))
torch.any(torch.ones(2), 4)
torch.diff(torch.tensor(1.))
torch.linalg.vector_norm(torch.ones(2).int())
torch.linalg.cross(torch.ones(2), torch.ones(2))
"""

MATRICES = r"""
torch.ones(2, 3) @ torch.ones(4, 5)
torch.ones(2) @ torch.ones(3)
torch.ones(2, 3) @ torch.ones(4)
torch.ones(2) @ torch.ones(3, 4)
torch.ones(2, 2, 3) @ torch.ones(4, 5)
torch.ones(2, 2, 3) @ torch.ones(2, 4, 5)
torch.ones(2, 2, 3) @ torch.ones(3, 3, 5)
torch.ones(2, 2, 3) @ torch.ones(4)
torch.tensor(1.) @ torch.ones(2)
torch.ones(2, 3) @ torch.ones(3, 4).double()
torch.ones(2) @ 3
torch.ones(2) @ 'a'
torch.matmul(torch.ones(2), 3)
torch.matmul(torch.ones(2))
torch.ones(3, 4).mm(torch.ones(3))
torch.ones(3).mm(torch.ones(3, 3))
torch.ones(3, 4).mm(torch.ones(3, 4))
torch.mm(torch.ones(2, 2), torch.ones(2, 2).int())
torch.mm(torch.ones(2, 2), 3)
torch.bmm(torch.ones(2, 3), torch.ones(2, 3))
torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 3))
torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 3, 4))
torch.bmm(torch.ones(2, 3, 4), torch.ones(3, 4, 4))
torch.mv(torch.ones(2, 3), torch.ones(2))
torch.mv(torch.ones(2), torch.ones(2))
torch.dot(torch.ones(2), torch.ones(3))
torch.dot(torch.ones(2, 2), torch.ones(2))
torch.dot(torch.ones(2), torch.ones(2).double())
torch.outer(torch.ones(2, 2), torch.ones(2))
torch.addmm(torch.ones(5), torch.ones(2, 3), torch.ones(3, 4))
torch.addmm(torch.ones(4), torch.ones(2, 3), torch.ones(4, 4))
torch.addmm(torch.ones(4), torch.ones(2, 3), torch.ones(3, 4).double())
torch.addmm(torch.ones(4).double(), torch.ones(2, 3), torch.ones(3, 4))
torch.einsum('ij,jk', torch.ones(2, 3))
torch.einsum('ij', torch.ones(2, 3), torch.ones(2, 3))
torch.einsum('ij->k', torch.ones(2, 3))
torch.einsum('i1', torch.ones(2, 3))
torch.einsum('ij->i1', torch.ones(2, 3))
torch.einsum('ij->ii', torch.ones(2, 3))
torch.einsum('i', torch.ones(2, 3))
torch.einsum('ijk', torch.ones(2, 3))
torch.einsum('ii', torch.ones(2, 3))
torch.einsum('ij,jk', torch.ones(2, 3), torch.ones(4, 3))
torch.einsum('ij')
torch.einsum()
torch.tensordot(torch.ones(2), torch.ones(3), 1)
torch.trace(torch.ones(2))
torch.inner(torch.ones(2), torch.ones(3))
torch.cross(torch.ones(2), torch.ones(2), dim=0)
torch.cdist(torch.ones(2), torch.ones(2))
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 5))
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3), torch.ones(5))
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3).double(), torch.ones(4))
torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 3).double())
torch.nn.functional.linear(torch.ones(2, 3).double(), torch.ones(4, 3), torch.ones(4))
torch.nn.functional.linear(3, torch.ones(4, 3))
torch.nn.functional.linear(torch.ones(3), 3)
torch.nn.functional.linear([1], torch.ones(4, 3), torch.ones(4))
torch.nn.functional.linear(None, torch.ones(4, 3))
"""

INDEXING = r"""
torch.ones(2, 3)[torch.tensor([5])]
torch.ones(2, 3)[5]
torch.ones(2, 3)[0, 7]
torch.ones(2, 3)[0, 0, 0]
torch.ones(2, 3)[:, :, :]
torch.tensor(1.)[0]
torch.tensor(1.)[0:1]
torch.zeros(3)[1.5]
torch.zeros(3)['a']
torch.zeros(3)[::-1]
torch.zeros(3)[::0]
torch.zeros(3)[torch.ones(3)]
torch.zeros(3)[torch.ones(2).bool()]
torch.zeros(3, 3)[torch.ones(3, 2).bool()]
torch.zeros(3)[[0, 5]]
torch.zeros(3, 3)[[0, 1], [0, 1, 2]]
torch.zeros(3)[object()]
torch.zeros(2).__setitem__(0, torch.ones(3))
torch.zeros(2).__setitem__(0, 'a')
torch.zeros(2).__setitem__(5, 1)
torch.zeros(2).__setitem__(slice(None), torch.ones(3))
torch.zeros(3).__setitem__([0, 1], torch.ones(3))
torch.zeros(3, 2).__setitem__(torch.ones(3).bool(), torch.ones(5))
torch.zeros(2).copy_(torch.ones(3))
torch.zeros(2).copy_(torch.ones(2, 2))
torch.zeros(2).copy_(3)
torch.zeros(2).fill_(torch.ones(2))
torch.zeros(2).fill_('a')
torch.ones(3).gather(0, torch.tensor([5]))
torch.ones(3).gather(0, torch.tensor([-1]))
torch.ones(3).gather(0, torch.tensor([0.5]))
torch.ones(3).gather(0, torch.tensor([[0]]))
torch.ones(3).gather(2, torch.tensor([0]))
torch.ones(2, 3).gather(0, torch.zeros(1, 5).long())
torch.zeros(3).scatter(0, torch.tensor([5]), 1.)
torch.zeros(3).scatter(0, torch.tensor([0]), torch.ones(1).double())
torch.zeros(3).scatter_add(0, torch.tensor([5]), torch.ones(1))
torch.zeros(3).scatter_add(0, torch.tensor([0]), torch.ones(1).double())
torch.zeros(2).index_select(0, torch.tensor([3]))
torch.zeros(2).index_select(0, torch.tensor([0.5]))
torch.zeros(2).index_select(0, torch.tensor([[0]]))
torch.zeros(2).index_select(3, torch.tensor([0]))
torch.zeros(2).index_add(0, torch.tensor([0, 1]), torch.ones(1))
torch.zeros(2).index_add(0, torch.tensor([0]), torch.ones(1).double())
torch.zeros(2).index_fill(0, torch.tensor([5]), 1)
torch.zeros(2).masked_select(torch.ones(2))
torch.zeros(2).masked_select(torch.ones(3).bool())
torch.zeros(2).masked_scatter(torch.ones(2), torch.ones(2))
torch.zeros(2).masked_scatter(torch.ones(2).bool(), torch.ones(1))
torch.zeros(2).take(torch.tensor([5]))
torch.zeros(2).index_put((torch.tensor([5]),), torch.tensor(1.))
torch.searchsorted(torch.ones(2), torch.ones(2), side='a')
torch.bucketize(torch.ones(2), torch.ones(2, 2))
torch.repeat_interleave(torch.ones(2), torch.tensor([1, 2, 3]))
torch.repeat_interleave(torch.ones(2), -1)
"""

CONVERSIONS = r"""
len(torch.tensor(1))
list(torch.tensor(1))
torch.tensor(1.5).__index__()
[1, 2][torch.tensor([0, 1])]
'a' in torch.ones(2)
bool(torch.ones(2))
bool(torch.ones(0))
float(torch.ones(2))
int(torch.ones(2))
torch.ones(2).item()
torch.ones(0).item()
torch.ones(2).to('foo')
torch.ones(2).to(torch.float33)
torch.ones(2).to([1])
torch.ones(2).type('foo')
torch.ones(2, requires_grad=True).numpy()
torch.ones(2, requires_grad=True).exp().numpy()
torch.ones(2).bfloat16().numpy()
torch.ones(2, requires_grad=True).__dlpack__()
torch.from_dlpack(3)
torch.ones(2).size(4)
torch.ones(2).resize_(-1)
torch.ones(2, requires_grad=True).resize_(3)
torch.ones(2).stride(4)
copy.deepcopy(torch.ones(2, requires_grad=True) * 2)
torch.ones(2).int().requires_grad_()
"""

LAYERS = r"""
torch.nn.functional.relu(3)
torch.nn.functional.relu(torch.ones(2).bool())
torch.nn.functional.relu('a')
torch.nn.functional.gelu(torch.ones(2), approximate='a')
torch.nn.functional.gelu(torch.ones(2).int())
torch.nn.functional.silu(torch.ones(2).int())
torch.nn.functional.elu(torch.ones(2).int())
torch.nn.functional.softplus(torch.ones(2).int())
torch.nn.functional.softshrink(torch.ones(2), -1)
torch.nn.functional.hardtanh(torch.ones(2), 1, -1)
torch.nn.functional.glu(torch.ones(3))
torch.nn.functional.glu(torch.tensor(1.))
torch.nn.functional.prelu(torch.ones(2, 3), torch.ones(2))
torch.nn.functional.threshold(torch.ones(2).bool(), 1, 1)
torch.nn.functional.dropout(torch.ones(2), 1.5)
torch.nn.functional.dropout(torch.ones(2), -1)
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 5]))
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0., 1.]))
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1]).int())
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.zeros(3).long())
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.zeros(2).long(), reduction='a')
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.zeros(2).long(), weight=torch.ones(2))
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.zeros(2).long(), label_smoothing=2.)
torch.nn.functional.cross_entropy(torch.ones(2, 3, 4), torch.zeros(2, 5).long())
torch.nn.functional.cross_entropy(torch.tensor(1.), torch.tensor(0))
torch.nn.functional.cross_entropy(torch.ones(2, 3).int(), torch.zeros(2).long())
torch.nn.functional.cross_entropy(torch.ones(2, 3), 3)
torch.nn.functional.nll_loss(torch.ones(2, 3), torch.tensor([0, 5]))
torch.nn.functional.nll_loss(torch.ones(2, 3), torch.tensor([0., 1.]))
torch.nn.functional.nll_loss(torch.ones(2, 3), torch.zeros(2, 2).long())
torch.nn.functional.mse_loss(torch.ones(2), torch.ones(3))
torch.nn.functional.mse_loss(torch.ones(2), torch.ones(2), reduction='a')
torch.nn.functional.mse_loss(torch.ones(2).int(), torch.ones(2).int())
torch.nn.functional.mse_loss(torch.ones(2), 3)
torch.nn.functional.l1_loss(torch.ones(2), torch.ones(3))
torch.nn.functional.smooth_l1_loss(torch.ones(2), torch.ones(2), beta=-1)
torch.nn.functional.huber_loss(torch.ones(2), torch.ones(2), delta=-1)
torch.nn.functional.binary_cross_entropy(torch.tensor([2.]), torch.ones(1))
torch.nn.functional.binary_cross_entropy(torch.ones(2), torch.ones(3))
torch.nn.functional.binary_cross_entropy(torch.ones(2), torch.ones(2).double())
torch.nn.functional.binary_cross_entropy_with_logits(torch.ones(2), torch.ones(3))
torch.nn.functional.kl_div(torch.ones(2), torch.ones(3))
torch.nn.functional.layer_norm(torch.ones(2, 3), (2,))
torch.nn.functional.layer_norm(torch.ones(2, 3), ())
torch.nn.functional.layer_norm(torch.ones(2, 3), (3,), torch.ones(2))
torch.nn.functional.group_norm(torch.ones(2, 3), 2)
torch.nn.functional.group_norm(torch.ones(2, 4), 2, torch.ones(3))
torch.nn.functional.batch_norm(torch.ones(1, 3), None, None, training=True)
torch.nn.functional.batch_norm(torch.ones(2, 3), None, None)
torch.nn.functional.batch_norm(torch.ones(2, 3), torch.ones(2), torch.ones(2))
torch.nn.functional.batch_norm(torch.ones(2, 3), torch.ones(3), torch.ones(3), torch.ones(2))
torch.nn.functional.instance_norm(torch.ones(2, 3, 1))
torch.nn.functional.rms_norm(torch.ones(2, 3), (2,))
torch.nn.functional.normalize(torch.ones(2, 3), dim=4)
torch.nn.functional.embedding(torch.tensor([5]), torch.ones(3, 2))
torch.nn.functional.embedding(torch.tensor([0.5]), torch.ones(3, 2))
torch.nn.functional.embedding(torch.tensor([0]), torch.ones(3))
torch.nn.functional.embedding(torch.tensor([0]), torch.ones(3, 2), padding_idx=5)
torch.nn.functional.one_hot(torch.tensor([5]), 3)
torch.nn.functional.one_hot(torch.tensor([-1]))
torch.nn.functional.one_hot(torch.tensor([0.5]))
torch.nn.functional.one_hot(torch.tensor([]).long())
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 2, 3, 3))
torch.nn.functional.conv2d(torch.ones(1, 3, 4), torch.ones(2, 2, 3, 3))
torch.nn.functional.conv2d(torch.ones(3, 4), torch.ones(2, 2, 3, 3))
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 5, 5))
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3).double())
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3), torch.ones(3))
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3), stride=0)
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3), padding=-1)
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3), dilation=0)
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3), groups=2)
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3), padding='foo')
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3), padding='same', stride=2)
torch.nn.functional.conv2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3), stride=(1, 1, 1))
torch.nn.functional.conv_transpose2d(torch.ones(1, 3, 4, 4), torch.ones(2, 3, 3, 3))
torch.nn.functional.max_pool2d(torch.ones(1, 3, 4, 4), 5)
torch.nn.functional.max_pool2d(torch.ones(1, 3, 4, 4), 2, padding=2)
torch.nn.functional.max_pool2d(torch.ones(3, 4), 2)
torch.nn.functional.max_pool2d(torch.ones(1, 3, 4, 4), 2, stride=0)
torch.nn.functional.max_pool2d(torch.ones(1, 3, 4, 4), 0)
torch.nn.functional.max_pool1d(torch.ones(1, 3, 4), 5)
torch.nn.functional.avg_pool2d(torch.ones(1, 3, 4, 4), 5)
torch.nn.functional.avg_pool2d(torch.ones(3, 4), 2)
torch.nn.functional.avg_pool2d(torch.ones(1, 3, 4, 4), 2, divisor_override=0)
torch.nn.functional.adaptive_avg_pool2d(torch.ones(3, 4), 2)
torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2))
torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), size=2, scale_factor=2)
torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), size=2, mode='linear')
torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), size=2, mode='nearest', align_corners=True)
torch.nn.functional.interpolate(torch.ones(1, 1, 2, 2), scale_factor=(2, 2, 2))
torch.nn.functional.scaled_dot_product_attention(torch.ones(1, 2, 3), torch.ones(1, 2, 4), torch.ones(1, 2, 3))
torch.nn.functional.scaled_dot_product_attention(torch.ones(1, 2, 3), torch.ones(1, 2, 3), torch.ones(1, 2, 3), torch.ones(2, 2), is_causal=True)
torch.nn.functional.pixel_shuffle(torch.ones(1, 3, 2, 2), 2)
torch.nn.functional.cosine_similarity(torch.ones(2), torch.ones(3))
torch.nn.functional.bilinear(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 4, 3))
"""

# Where only the exception's type is the same.
OPERATOR = "an operator of Tensor is the operation itself: one Python frame, and no second one to translate its errors"
INTERNAL = "PyTorch's text tells of its internals"
TYPE_ONLY = {
    "torch.ones(2) + 'a'": OPERATOR,
    "torch.ones(2) + None": OPERATOR,
    "'a' * torch.ones(2)": OPERATOR,
    "torch.exp(torch.ones(2), 3)": OPERATOR,
    "torch.ones(3).sqrt(3)": OPERATOR,
    "torch.exp(torch.ones(2, requires_grad=True), out=torch.ones(2))": OPERATOR,
    "torch.meshgrid(torch.ones(2, 2), indexing='ij')": INTERNAL,
    "torch.nn.functional.mse_loss(torch.ones(2), 3)": INTERNAL,
    "torch.ones(2).resize_(-1)": INTERNAL,
    "torch.ones(2).sum('a')": "PyTorch lists the forms of sum()",
    "torch.sum(torch.ones(2), dtype='a')": "PyTorch lists the forms of sum()",
    "torch.sum(torch.ones(2), dtype=3)": "PyTorch lists the forms of sum()",
}
# A call that Python itself refuses: it says so in its own words, PyTorch in others.
WRONG_CALL = re.compile(r"missing \d+ required|unexpected keyword argument|takes .* positional argument")


def lines(text):
    return [line for line in text.strip().splitlines() if line]


def outcome(package, expression):
    """(type, text) of what the expression raises in the package; (None, text) of its result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = eval(expression, {"torch": package, "np": np, "copy": copy})
        except Exception as error:
            return type(error), str(error)
    return None, repr(result)


def expected_part(text):
    """What has to be equal of PyTorch's text: nothing after the list of its C++ overloads starts."""
    first = text.split(", but expected one of:")[0]
    first = first.split("\nDidn't match because")[0]
    return first.strip().replace("backlight", "torch")


ALL = [*map(lines, (CREATION, ARITHMETIC, SHAPES, REDUCTIONS, MATRICES, INDEXING, CONVERSIONS, LAYERS))]


@pytest.mark.parametrize("expression", [line for part in ALL for line in part])
def test_error(expression):
    kind, text = outcome(torch, expression)
    our_kind, our_text = outcome(backlight, expression)
    if kind is None:
        assert our_kind is None, f"PyTorch gives {text}; we raise {our_kind.__name__}: {our_text}"
        assert our_text.replace("backlight", "torch") == text
        return
    assert our_kind is kind, f"PyTorch raises {kind.__name__}: {text}\nours: {our_kind and our_kind.__name__}: {our_text}"
    if expression not in TYPE_ONLY and not (kind is TypeError and WRONG_CALL.search(our_text)):
        assert our_text.replace("backlight", "torch").startswith(expected_part(text)), f"{our_text}\nPyTorch: {text}"


# What indexes along a dimension, with all ranks of the input, the index and the source
MOVERS = {
    "gather": "torch.gather(x, 0, i)",
    "index_select": "torch.index_select(x, 0, i)",
    "take_along_dim": "torch.take_along_dim(x, i, 0)",
    "repeat_interleave": "torch.repeat_interleave(x, i, 0)",
    "scatter a number": "x.scatter{}(0, i, 2.0)",
    "scatter": "x.scatter{}(0, i, s)",
    "scatter and multiply": "x.scatter{}(0, i, s, reduce='multiply')",
    "scatter_add": "x.scatter_add{}(0, i, s)",
    "scatter_reduce": "x.scatter_reduce{}(0, i, s, 'sum')",
    "index_add": "x.index_add{}(0, i, s)",
    "index_copy": "x.index_copy{}(0, i, s)",
    "index_reduce": "x.index_reduce{}(0, i, s, 'prod')",
    "index_fill": "x.index_fill{}(0, i, 2.0)",
    "index_fill by a tensor": "x.index_fill{}(0, i, s)",
    "put": "x.put{}(i, s)",
}
RANKS = ((), (1,), (2,), (3,), (2, 2), (1, 2), (2, 3), (0,), (2, 1, 2))


def moved(package, call, shapes, **types):
    """What a call gives: (type, text) of its error, or its result; and what is then in the tensor that it was called on."""
    x, s = (package.ones(shape) * k for shape, k in zip((shapes[0], shapes[2]), (2, 3), strict=True))
    i = package.full(shapes[1], types.pop("index", 0), dtype=getattr(package, types.pop("index_type", "int64")))
    s = s.to(getattr(package, types.pop("source_type", "float32")))
    try:
        result = eval(call, {"torch": package, "x": x, "i": i, "s": s})
    except Exception as error:
        return type(error), str(error).split("\n")[0], x.tolist()
    return list(result.shape), result.tolist(), x.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", MOVERS.values(), ids=MOVERS)
def test_shapes_of_what_indexes_along_a_dimension(call):
    sources = RANKS if "s)" in call or "s," in call else [()]
    for shapes in ((a, b, c) for a in RANKS for b in RANKS for c in sources):
        if 0 in shapes[0] and 0 not in shapes[1]:
            continue  # an index into nothing: PyTorch's texts tell of its internals
        for types in ({}, {"index_type": "int32"}, {"source_type": "float64"}, {"index_type": "float32"}):
            for form in ("", "_") if "{}" in call else ("",):
                expected, found = (moved(p, call.format(form), shapes, **types) for p in (torch, backlight))
                assert found == expected, (call.format(form), shapes, types)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [c for n, c in MOVERS.items() if n not in ("put", "take_along_dim", "repeat_interleave")])
def test_places_out_of_bounds(call):
    for shapes in ((), (), ()), ((2,), (2,), (2,)), ((2, 2), (2,), (2, 2)), ((2, 2), (2, 2), (2, 2)):
        for index in (-1, 2, 5):
            expected, found = (moved(p, call.format("_"), shapes, index=index) for p in (torch, backlight))
            assert found == expected, (call, shapes, index)


@pytest.mark.parametrize("call", ["torch.scatter(x, 0, i, s)", "torch.scatter_add(x, 0, i, s)", "torch.scatter(x, 0, i, 2.0)",
                                  "torch.gather(x, 0, i)", "torch.index_fill(x, 0, i, 2.0)", "torch.index_add(x, 0, i, s[:1])"])  # fmt: skip
def test_a_number_as_index_under_vmap(call):
    def outcome(package):
        x, i, s = package.arange(6.0).reshape(3, 2), package.tensor([0, 1, 0]), package.ones(3, 2) * 5
        return package.func.vmap(lambda x, i, s: eval(call, {"torch": package, "x": x, "i": i, "s": s}))(x, i, s).tolist()

    assert outcome(backlight) == outcome(torch)


@pytest.mark.parametrize("shapes", [((), (), (2,)), ((2,), (), (2,)), ((2,), (1,), ()), ((), (1,), ()), ((), (0,), ())])
@pytest.mark.parametrize("call", ["torch.scatter(x, 0, i, s)", "torch.scatter_add(x, 0, i, s)", "torch.index_copy(x, 0, i, s)"])
def test_gradients_where_some_are_numbers(call, shapes):
    def outcome(package):
        x, s = (package.ones(shape, requires_grad=True) for shape in (shapes[0], shapes[2]))
        i = package.zeros(shapes[1], dtype=package.int64)
        try:
            y = eval(call, {"torch": package, "x": x, "i": i, "s": s})
            (y * y * 3).sum().backward()
        except Exception as error:
            return "invalid gradient" if "invalid gradient" in str(error) else (type(error), str(error))
        return y.tolist(), x.grad.tolist(), s.grad.tolist()

    expected = outcome(torch)
    assert expected == "invalid gradient" or outcome(backlight) == expected  # ours is zero where the index doesn't reach


NO_TENSOR = """
torch.abs_({})
torch.exp_({})
torch.index_add({}, 0, torch.tensor([0]), torch.ones(2))
torch.scatter({}, 0, torch.tensor([0]), torch.ones(2))
torch.scatter_add(torch.ones(2), 0, torch.tensor([0]), {})
torch.take_along_dim({}, torch.tensor([0]))
torch.transpose_copy({}, 0, 1)
torch.unsafe_chunk({}, 2)
torch.mm({}, torch.ones(2, 2))
torch.mm(torch.ones(2, 2), {})
torch.bmm({}, torch.ones(2, 2, 2))
torch.mv(torch.ones(2, 2), {})
torch.dot({}, torch.ones(2))
torch.dot(torch.ones(2), {})
torch.outer({}, torch.ones(2))
torch.outer(torch.ones(2), {})
torch.dist({}, torch.ones(2))
torch.dist(torch.ones(2), {})
torch.cross({}, torch.ones(3))
torch.allclose({}, torch.ones(2))
torch.allclose(torch.ones(2), {})
torch.equal({}, torch.ones(2))
torch.heaviside(torch.ones(2), {})
torch.polygamma(torch.ones(2), {})
torch.is_nonzero({})
torch.fmod({}, torch.ones(2))
torch.rsub({}, torch.ones(2))
torch.nn.functional.conv1d({}, torch.ones(1, 1, 1))
torch.nn.functional.max_pool2d({}, 2)
torch.nn.functional.adaptive_avg_pool1d({}, 2)
"""


@pytest.mark.parametrize("value", ["2", "None", "'a'", "[1.0, 2.0]"])
@pytest.mark.parametrize("call", lines(NO_TENSOR))
def test_what_is_no_tensor(call, value):
    kind, text = outcome(torch, call.format(value))
    our_kind, our_text = outcome(backlight, call.format(value))
    assert our_kind is kind is TypeError, f"{our_text}\nPyTorch: {text}"


# What must not change anything when it fails
FAILING = [
    "x.add_(torch.ones(5))",
    "x.mul_('a')",
    "x.div_(torch.ones(4, 2, 3))",
    "x.copy_(torch.ones(5))",
    "x.copy_('a')",
    "x.fill_('a')",
    "x.fill_(torch.ones(2))",
    "x.clamp_(torch.ones(5))",
    "x.masked_fill_(torch.ones(2, 3), 1)",
    "x.__setitem__(5, 1)",
    "x.__setitem__(0, torch.ones(5))",
    "x.__setitem__((0, 0), 'a')",
    "x.scatter_(0, torch.tensor([[9]]), 1.0)",
    "x.index_add_(0, torch.tensor([9]), torch.ones(1, 3))",
    "x.addmm_(torch.ones(2, 2), torch.ones(3, 3))",
    "x.add_(torch.ones(2, 3).double() * 1j)",
    "x.squeeze_(5)",
    "x.transpose_(0, 7)",
    "x.exp_(3)",
    "torch.add(x, torch.ones(5), out=x)",
    "torch.nn.functional.relu(x.bool(), inplace=True)",
]


@pytest.mark.parametrize("call", FAILING)
@pytest.mark.parametrize("make", ["leaf * 1", "(leaf * 1)[0:2]", "leaf.detach().clone()"])
def test_failure_changes_nothing(make, call):
    leaf = backlight.arange(6.0).reshape(2, 3).requires_grad_()
    x = eval(make, {"leaf": leaf})
    values, version, grad_fn, root = x.detach().numpy().copy(), x._version, x.grad_fn, x._base
    with pytest.raises(Exception):  # noqa: B017  (which one is the other test's matter)
        eval(call, {"torch": backlight, "x": x})
    np.testing.assert_array_equal(x.detach().numpy(), values)
    assert (x._version, x.grad_fn, x._base, x.shape) == (version, grad_fn, root, (2, 3))
    if x.requires_grad:
        x.sum().backward()
        np.testing.assert_array_equal(leaf.grad.numpy(), np.ones((2, 3)))
