"""New tensors against PyTorch: types, values, sharing of memory, strides, copies, and what Size, dtype and device are."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
import torch

import backlight

BOTH = (torch, backlight)
KINDS = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)

MADE = """
torch.tensor(1)|torch.tensor(1.5)|torch.tensor(True)|torch.tensor(2j)|torch.tensor([])|torch.tensor([[]])|torch.tensor([1, 2])
torch.tensor([1, 2.5])|torch.tensor([True, False])|torch.tensor([True, 2])|torch.tensor([1, 2j])|torch.tensor([[1, 2], [3, 4]])
torch.tensor((1, 2))|torch.tensor([(1, 2), [3, 4]])|torch.tensor([1, 2], dtype=torch.float64)|torch.tensor([1.7, 2.2], dtype=torch.int32)
torch.tensor(range(3))|torch.tensor([torch.tensor(1), torch.tensor(2)])|torch.tensor(np.arange(3))|torch.tensor(np.float32(2))
torch.tensor([np.float64(1), np.float64(2)])|torch.tensor(np.array([1.0, 2.0]))|torch.tensor([np.int32(1), 2])|torch.tensor(np.bool_(True))
torch.tensor(3, dtype=torch.bool)|torch.tensor([2**40])|torch.tensor([-1], dtype=torch.int8)|torch.tensor([1.0], dtype=float)
torch.as_tensor([1, 2])|torch.as_tensor(np.arange(3.0))|torch.as_tensor(2.5, dtype=torch.float64)|torch.asarray([1, 2])
torch.zeros(2, 3)|torch.zeros((2, 3))|torch.zeros([2])|torch.zeros(())|torch.zeros(0, 3)|torch.zeros(2, dtype=torch.int32)|torch.zeros(size=(2,))
torch.ones(2, 3)|torch.ones(2, dtype=torch.bool)|torch.ones(torch.Size([2, 1]))|torch.full((2, 3), 7)|torch.full((2,), 2.5)|torch.full((), True)
torch.full((2,), 1, dtype=torch.float16)|torch.full((2,), 2j)|torch.empty(2, 3).shape|torch.eye(3)|torch.eye(2, 4)|torch.eye(2, dtype=torch.int64)
torch.arange(5)|torch.arange(2, 7)|torch.arange(2, 10, 3)|torch.arange(0.5, 3)|torch.arange(5, 0, -2)|torch.arange(0, 1, 0.25)|torch.arange(3.0)
torch.arange(3, dtype=torch.float64)|torch.arange(end=4)|torch.arange(1, end=4)|torch.arange(torch.tensor(3))|torch.arange(0)
torch.linspace(0, 1, 5)|torch.linspace(0, 10, 4, dtype=torch.int64)|torch.linspace(1, 1, 1)|torch.linspace(3, -3, 7, dtype=torch.float64)
torch.logspace(0, 2, 3)|torch.logspace(0, 3, 4, base=2)|torch.linspace(0, 1j, 3)|torch.tril_indices(3, 3)|torch.triu_indices(2, 4, 1)
torch.zeros_like(x)|torch.ones_like(x, dtype=torch.int64)|torch.full_like(x, 3)|torch.empty_like(x).shape|x.new_zeros(2)|x.new_ones((2, 2))
x.new_full((2,), 5)|x.new_tensor([1, 2])|x.new_empty(3).shape|torch.scalar_tensor(2)|torch.complex(x, x)|torch.zeros_like(x.t()).stride()
torch.Tensor(2, 3).shape|torch.Tensor([1, 2])|torch.Tensor()|torch.Tensor([[1], [2]])|torch.FloatTensor([1, 2])|torch.LongTensor([1, 2])
torch.BoolTensor([True])|torch.DoubleTensor(2).shape|torch.IntTensor([1])|torch.ByteTensor([255])|torch.HalfTensor([1])|torch.LongTensor
isinstance(x, torch.FloatTensor)|isinstance(x, torch.DoubleTensor)|isinstance(torch.arange(2), torch.LongTensor)|x.type()|x.int().type()
torch.result_type(x, 2)|torch.result_type(x.int(), 2.5)|torch.promote_types(torch.int8, torch.uint8)|torch.can_cast(torch.float64, torch.int32)
torch.is_tensor(x)|torch.is_tensor(3)|torch.numel(x)|torch.is_floating_point(x)|torch.is_complex(x)|x.is_signed()|x.element_size()|x.nbytes
torch.finfo(torch.float32)|torch.finfo(torch.float16).eps|torch.finfo(torch.bfloat16).max|torch.finfo(torch.float64).tiny|torch.finfo().bits
torch.iinfo(torch.int8)|torch.iinfo(torch.uint8).max|torch.iinfo(torch.int64).min|torch.float32.is_floating_point|torch.int8.itemsize
torch.float32.to_complex()|torch.complex128.to_real()|torch.half|torch.long|torch.cdouble|torch.get_default_dtype()|torch.strided
torch.device('cpu')|torch.device('cuda:1')|torch.device('cuda', 1).index|torch.device('cpu') == torch.device('cpu')|str(torch.device('cuda:0'))
hash(torch.device('cpu')) == hash(torch.device('cpu'))|x.device|x.layout|x.is_cuda|x.get_device()|x.cpu() is x|x.to('cpu') is x|x.to(x.dtype) is x
torch.Size([2, 3])|torch.Size([2, 3]).numel()|torch.Size([2, 3])[0]|torch.Size([2, 3, 4])[1:]|torch.Size([2]) + (3,)|(1,) + torch.Size([2])
torch.Size([2]) * 2|torch.Size([2, 3]) == (2, 3)|hash(torch.Size([2, 3])) == hash((2, 3))|torch.Size()|x.shape|x.size()|x.size(0)|x.size(-1)
x.stride()|x.t().stride()|x.stride(0)|x.dim()|x.ndim|x.numel()|x.nelement()|x[:, 1:].storage_offset()|x.expand(2, 2, 3).stride()|x[0:0].shape
x.is_contiguous()|x.t().is_contiguous()|x.tolist()|x[0, 0].item()|x.int().tolist()|float(x[0, 0])|int(x[0, 1])|bool(x[0, 1])|complex(x[0, 0])
len(x)|x.is_same_size(x)|x.data_ptr() == x[0].data_ptr()|x.view(3, 2).data_ptr() == x.data_ptr()|x is x|x.__index__ is not None
"""
MADE = [e for line in MADE.strip().splitlines() for e in line.split("|")]


def text_of(package, value):
    if isinstance(value, package.Tensor):
        value = value.detach()
        value = value.float() if "16" in str(value.dtype) else value
        return (str(value.dtype), tuple(value.shape), value.tolist())
    return repr(value).replace("backlight", "torch")


@pytest.mark.parametrize("expression", MADE)
def test_made(expression):
    results = []
    for P in BOTH:
        x = P.arange(6.0).reshape(2, 3)
        results.append(text_of(P, eval(expression, {"torch": P, "x": x, "np": np})))
    assert results[1] == results[0]


@pytest.mark.parametrize("kind", KINDS)
def test_filled_types(kind):
    for make in (
        "zeros(2, 3",
        "ones(2",
        "full((2,), 1",
        "arange(3" if kind != "bool" else "eye(2",
        "eye(2",
        "tensor([0, 1, 1]",
    ):
        results = []
        for P in BOTH:
            try:
                results.append(text_of(P, eval(f"P.{make}, dtype=P.{kind})", {"P": P})))
            except Exception as error:
                results.append(type(error))
        assert results[1] == results[0], make


def test_default_dtype():
    for P in BOTH:
        P.set_default_dtype(P.float64)
        try:
            made = [
                P.tensor(1.5),
                P.zeros(1),
                P.arange(1.0),
                P.tensor(1) / 2,
                P.tensor(1) + 1.5,
                P.tensor(2j),
                P.linspace(0, 1, 2),
            ]
            assert [str(t.dtype) for t in made] == ["torch.float64"] * 5 + ["torch.complex128", "torch.float64"]
        finally:
            P.set_default_dtype(P.float32)


# Sharing


def test_from_numpy_shares_memory():
    array = np.arange(6.0).reshape(2, 3)
    x = backlight.from_numpy(array)
    array[0, 0] = 9
    assert x[0, 0] == 9
    x[1, 1] = 8
    assert array[1, 1] == 8
    assert x.numpy() is array
    assert np.shares_memory(x.t().numpy(), array)
    assert np.shares_memory(np.asarray(x), array)
    assert np.shares_memory(backlight.as_tensor(array).numpy(), array)
    assert not np.shares_memory(backlight.tensor(array).numpy(), array)
    assert x.numpy().dtype == np.float64


def test_read_only_arrays_warn():
    array = np.broadcast_to(np.zeros(1), (3,))
    with pytest.warns(UserWarning, match="not writable"):
        backlight.from_numpy(array)


def test_array_protocol():
    x = backlight.arange(3.0)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.array(x) is not x.numpy()
    assert isinstance(np.sin(x), (np.ndarray, backlight.Tensor))
    assert (np.ones(3, np.float32) + x.numpy()).tolist() == [1, 2, 3]


def test_dlpack_both_ways():
    x = backlight.arange(6.0).reshape(2, 3)
    theirs = torch.from_dlpack(x)
    theirs[0, 0] = 5
    assert x[0, 0] == 5
    ours = backlight.from_dlpack(torch.arange(3))
    assert (str(ours.dtype), ours.tolist()) == ("torch.int64", [0, 1, 2])
    assert np.shares_memory(np.from_dlpack(x), x.numpy())
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        backlight.ones(1, requires_grad=True).__dlpack__()


# Copies


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("kind", KINDS)
def test_copies(clone, kind):
    x = backlight.arange(3).to(getattr(backlight, kind)) if kind != "bool" else backlight.tensor([True, False, True])
    if x.dtype.is_floating_point:
        x.requires_grad_()
    y = clone(x)
    assert y is not x
    assert (y.dtype, y.requires_grad, y.is_leaf) == (x.dtype, x.requires_grad, True)
    assert y.float().tolist() == x.float().tolist()


def test_deepcopy_keeps_identity_and_grad():
    x = backlight.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    a, b = copy.deepcopy([x, x])
    assert a is b
    assert a is not x
    assert a.grad.tolist() == [3, 3]
    a.grad.zero_()
    assert x.grad.tolist() == [3, 3]


def test_dtypes_and_sizes_survive_pickling():
    for value in (backlight.float32, backlight.bfloat16, backlight.Size([2, 3]), backlight.device("cuda:1"), backlight.strided):
        again = pickle.loads(pickle.dumps(value))
        assert again == value
    assert pickle.loads(pickle.dumps(backlight.float32)) is backlight.float32
    assert copy.deepcopy(backlight.float32) is backlight.float32


def test_hash_is_by_identity():
    x, y = backlight.ones(1), backlight.ones(1)
    assert len({x, y, x}) == 2
    assert {x: 1}[x] == 1
    assert bool(x == y)


def test_requires_grad_of_new_tensors():
    for make in ("P.zeros(2, requires_grad=True)", "P.tensor([1.0], requires_grad=True)", "P.ones_like(x, requires_grad=True)",
                 "P.rand(2, requires_grad=True)", "x.new_ones(2, requires_grad=True)", "P.full((2,), 1.0, requires_grad=True)",
                 "P.eye(2, requires_grad=True)", "P.linspace(0, 1, 2, requires_grad=True)"):  # fmt: skip
        for P in BOTH:
            made = eval(make, {"P": P, "x": P.ones(2)})
            assert (made.requires_grad, made.is_leaf, made.grad_fn) == (True, True, None)


def test_tensor_of_tensor_warns():
    with pytest.warns(UserWarning, match="To copy construct from a tensor"):
        backlight.tensor(backlight.ones(1))


# Promotion: every pair of types, with and without dimensions, and numbers


@pytest.mark.parametrize("a", KINDS)
def test_promotion(a):
    for b, (x, y) in itertools.product(KINDS, itertools.product(((2,), ()), repeat=2)):
        if "float16" in (a, b) and ("complex64" in (a, b) or "complex128" in (a, b)):
            continue  # complex32, which Backlight lacks
        results = []
        for P in BOTH:
            first, second = P.ones(x, dtype=getattr(P, a)), P.ones(y, dtype=getattr(P, b))
            results.append([str(P.result_type(first, second)), str((first * second).dtype),
                            str(P.promote_types(getattr(P, a), getattr(P, b))), P.can_cast(getattr(P, a), getattr(P, b))])  # fmt: skip
        assert results[1] == results[0], (a, x, b, y)
    for number, shape in itertools.product((True, 2, 2.5, 2j), ((2,), ())):
        if a == "float16" and number == 2j:
            continue
        assert str((backlight.ones(shape, dtype=getattr(backlight, a)) * number).dtype) == str(
            (torch.ones(shape, dtype=getattr(torch, a)) * number).dtype
        ), (a, number, shape)


@pytest.mark.parametrize(("a", "b"), [*itertools.product(KINDS, KINDS)])
def test_casts(a, b):
    values = [0, 1, 2, 100]
    results = []
    for P in BOTH:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = P.tensor(values, dtype=getattr(P, a)).to(getattr(P, b))
        results.append(text_of(P, x))
    assert results[1] == results[0]


STRIDED = ["x", "x.t()", "x.permute(2, 0, 1)", "x[:, 1:, ::2]", "x.transpose(0, 2)[1]", "x.expand(2, 2, 3, 4)", "x[..., None].squeeze(0)",
           "x.unfold(2, 2, 1)", "x.diagonal(0, 1, 2)", "x.as_strided((2, 2), (1, 3), 2)", "x.view(4, 6)", "x.flatten(1).t()", "x.mT"]  # fmt: skip


@pytest.mark.parametrize("expression", STRIDED)
def test_strides_in_elements(expression):
    results = []
    for P in BOTH:
        y = eval(expression, {"x": P.arange(24.0).reshape(2, 3, 4) if expression != "x.t()" else P.ones(2, 3)})
        results.append(
            (tuple(y.shape), tuple(y.stride()), y.storage_offset(), y.is_contiguous(), y.contiguous().stride(), y.tolist())
        )
    assert results[1] == results[0]
