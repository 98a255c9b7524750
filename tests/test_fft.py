"""Fourier transforms and window functions against PyTorch: values, two gradients, nodes, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch as pytorch

import backlight as torch

RANDOM = np.random.default_rng(0)
REAL, COMPLEX = RANDOM.normal(size=(3, 4, 5)), RANDOM.normal(size=(3, 4, 5)) + 1j * RANDOM.normal(size=(3, 4, 5))
NAMES = [base + suffix for base in "fft ifft rfft irfft hfft ihfft".split() for suffix in ("", "2", "n")]
NORMS = ("backward", "ortho", "forward")


def number(package, x):
    """A real number with different weights for all elements."""
    flat = x.reshape(-1)
    weights = package.tensor(np.cos(np.arange(flat.numel())))
    return (flat * weights).sum() if not x.is_complex() else ((flat.real + 0.5 * flat.imag) * weights).sum()


def gradients(package, function, values):
    x = package.tensor(values, requires_grad=True)
    y = function(package, x)
    (g,) = package.autograd.grad(number(package, y * y), x, create_graph=True)
    (second,) = package.autograd.grad(number(package, g), x)
    return [t.detach().resolve_conj().numpy() for t in (y, g, second)], y.grad_fn.name()


def compare(function, values):
    (ours, our_name), (theirs, their_name) = (gradients(p, function, values) for p in (torch, pytorch))
    assert our_name == their_name
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=1e-10)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", NAMES)
def test_transforms(name, norm):
    real_only = name.startswith(("rfft", "ihfft"))
    for values in (REAL,) if real_only else (REAL, COMPLEX):
        options = {"n": 6, "dim": 1} if name[-1] == "t" else {"s": (3, 6), "dim": (0, 2)}
        compare(lambda p, x: getattr(p.fft, name)(x, norm=norm), values)
        compare(lambda p, x: getattr(p.fft, name)(x, norm=norm, **options), values)  # noqa: B023


def test_integers_and_half_types():
    for package in (torch, pytorch):
        assert package.fft.fft(package.arange(4)).dtype is package.complex64
        with pytest.raises(RuntimeError, match="Unsupported dtype Half"):
            package.fft.fft(package.ones(4, dtype=package.float16))


def test_order_and_frequencies():
    for n in (4, 5):
        for name in ("fftfreq", "rfftfreq"):
            ours, theirs = (getattr(p.fft, name)(n, 0.5) for p in (torch, pytorch))
            assert repr(ours) == repr(theirs)
    for dim in (None, 1, (0, 2)):
        compare(lambda p, x: p.fft.fftshift(x, dim), REAL)  # noqa: B023
        compare(lambda p, x: p.fft.ifftshift(x, dim), REAL)  # noqa: B023


@pytest.mark.parametrize(
    "call",
    "fft(x,n=0) fft(x,norm='x') fft(x,dim=5) rfft(x.cfloat()) fft2(x,s=(1,)) fftn(x,s=(1,2,3)) fftn(x,dim=(0,0)) fft(s) irfft(x[:,:0]) "
    "ihfft2(x.cfloat()) rfftn(x.cfloat()) fftfreq(-1) fftfreq(3,dtype=p.int64) fft(2)".split(),
)
def test_errors_are_pytorchs(call):
    raised = []
    for package in (torch, pytorch):
        with pytest.raises(Exception) as error:
            eval(f"p.fft.{call}", {"p": package, "x": package.ones(3, 4), "s": package.tensor(1.0)})
        raised.append((error.type.__name__, str(error.value)))
    assert raised[0] == raised[1]


SHORT_TIME = [{}, {"center": False}, {"hop_length": 3, "win_length": 6}, {"normalized": True}, {"onesided": False}]


@pytest.mark.parametrize("options", SHORT_TIME)
def test_short_time_transform(options):
    values = RANDOM.normal(size=(2, 30))
    results = []
    for package in (torch, pytorch):
        x = package.tensor(values, requires_grad=True)
        window = package.tensor(np.hanning(10)[1:][: options.get("win_length", 8)] + 0.1, requires_grad=True)
        spectrum = package.stft(x, 8, window=window, return_complex=True, **options)
        back = package.istft(spectrum * 2, 8, window=window, **options)
        g = package.autograd.grad(number(package, spectrum) + number(package, back), (x, window))
        results.append([t.detach().resolve_conj().numpy() for t in (spectrum, back, *g)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_istft_inverts_stft():
    x = torch.randn(50, dtype=torch.float64)
    window = torch.hann_window(16, dtype=torch.float64)
    spectrum = torch.stft(x, 16, window=window, return_complex=True)
    assert torch.allclose(torch.istft(spectrum, 16, window=window, length=50), x)


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("name", pytorch.signal.windows.__all__)
def test_windows(name, sym):
    options = {"a": [0.4, 0.3, 0.2, 0.1]} if name == "general_cosine" else {}
    for m in (0, 1, 2, 7, 8):
        ours, theirs = (
            getattr(p.signal.windows, name)(m, sym=sym, dtype=p.float64, **options).numpy() for p in (torch, pytorch)
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("name", "hann hamming blackman bartlett kaiser".split())
def test_older_windows(name):
    for arguments in ((1,), (6,), (7, False)):
        ours, theirs = (getattr(p, f"{name}_window")(*arguments).numpy() for p in (torch, pytorch))
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    with pytest.raises(RuntimeError, match=f"{name}_window requires non-negative window_length, got window_length=-1"):
        getattr(torch, f"{name}_window")(-1)
