"""Short-time Fourier transforms: stft and its inverse."""

from __future__ import annotations

import warnings

import numpy as np

from .. import batching, dtypes
from ..op import public
from ..tensor import Tensor
from .arrange import pad
from .cast import view_as_real
from .fft import fft_c2c, fft_c2r, fft_r2c
from .gather import _refold, unfold
from .shape import expand, narrow, reshape, squeeze, transpose, unsqueeze


def _flag(value):
    return "None" if value is None else int(value)


def _window_text(window):
    return "None" if window is None else f"torch.{dtypes.scalar_type_name(window.dtype)}Tensor{{{list(window.array.shape)}}}"


def _centred(window, win_length, n_fft, like):
    """The window with zeros on both sides up to n_fft elements (ones if there is none)."""
    if window is None:
        window = Tensor._from(np.ones(win_length, np.empty(0, like.array.dtype).real.dtype))
    left = (n_fft - win_length) // 2
    return pad(window, (left, n_fft - win_length - left)) if win_length < n_fft else window


@public()
def stft(input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False,
         onesided=None, return_complex=None, align_to_window=None):  # fmt: skip
    """The Fourier transforms of overlapping windows of a signal. (T) or (B, T) -> (*, frequencies, frames). Differentiable.

    Frames of n_fft samples every hop_length (n_fft // 4); `window` has win_length (n_fft) elements, ones if None. center pads
    the signal so that frame t is centred at sample t * hop_length. Real signals give n_fft // 2 + 1 frequencies (onesided).
    RuntimeError for sizes that don't fit, and if return_complex isn't given for a real signal.
    """
    if align_to_window is not None and center:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    is_complex = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    if return_complex is None and not is_complex:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs, and will further require that "
                           "return_complex=True in a future PyTorch release.")  # fmt: skip
    x = input
    if center:
        shape = input.array.shape
        x = reshape(input, (1,) * (3 - len(shape)) + shape)
        x = pad(x, (n_fft // 2,) * 2, pad_mode)
        x = reshape(x, x.array.shape[x.array.ndim - len(shape) :])
    described = (
        f"stft(torch.{dtypes.scalar_type_name(x.dtype)}Tensor{list(x.array.shape)}, n_fft={n_fft}, hop_length={hop}, win_length="
        f"{width}, window={_window_text(window)}, normalized={int(normalized)}, onesided={_flag(onesided)}, return_complex="
        f"{_flag(return_complex)}, align_to_window={_flag(align_to_window)})"
    )

    def fail(text):
        raise RuntimeError(f"{described} : {text}")

    if x.dtype.category < 2:
        fail("expected a tensor of floating point or complex values")
    if not 1 <= x.array.ndim <= 2:
        fail("expected a 1D or 2D tensor")
    batch = x if x.array.ndim == 2 else unsqueeze(x, 0)
    if align_to_window:
        left = (n_fft - width) // 2
        batch = pad(batch, (left, n_fft - width - left))
    length = batch.array.shape[1]
    if not 0 < n_fft <= length:
        fail(f"expected 0 < n_fft < {length}, but got n_fft={n_fft}")
    if hop <= 0:
        fail(f"expected hop_length > 0, but got hop_length={hop}")
    if not 0 < width <= n_fft:
        fail(f"expected 0 < win_length <= n_fft, but got win_length={width}")
    if window is not None and window.array.shape != (width,):
        fail(f"expected a 1D window tensor of size equal to win_length={width}, but got window with size "
             f"{list(window.array.shape)}")  # fmt: skip
    if onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    frames = unfold(batch, 1, n_fft, hop)
    if window is not None or width < n_fft:
        frames = frames * _centred(window, width, n_fft, x)
    scale = n_fft**-0.5 if normalized else 1
    if frames.dtype.is_complex:
        result = fft_c2c(frames, (-1,), scale, True)
    else:
        result = fft_r2c(frames, (-1,), scale, True if onesided is None else onesided)
    result = transpose(result, 1, 2)
    if x.array.ndim == 1:
        result = squeeze(result, 0)
    if return_complex or (return_complex is None and is_complex):
        return result
    warnings.warn("stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex tensors for "
                  "all inputs, and return_complex=False will raise an error.", UserWarning, 2)  # fmt: skip
    return view_as_real(result)


@public()
def istft(input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None,
          return_complex=False):  # fmt: skip
    """The signal from its stft: overlapping frames are added and divided by the sum of squared windows. Differentiable.

    (frequencies, frames) or (B, frequencies, frames), complex -> (T) or (B, T), cut or padded to `length`. RuntimeError where the
    windows don't overlap enough to divide by.
    """
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    described = (
        f"istft(CPU{dtypes.scalar_type_name(input.dtype)}Type{list(input.array.shape)}, n_fft={n_fft}, hop_length={hop}, win_length="
        f"{width}, window={_window_text(window)}, center={int(center)}, normalized={int(normalized)}, onesided={_flag(onesided)}, "
        f"length={length}, return_complex={int(return_complex)})"
    )

    def fail(text, joint=" : "):
        raise RuntimeError(f"{described}{joint}{text}")

    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    ndim = input.array.ndim
    if not input.array.size:
        fail("input tensor cannot be empty.")
    if ndim < 2:
        raise IndexError("Dimension out of range (expected to be in range of [-2, 1], but got -3)")
    if ndim > 3:
        fail(f"expected a tensor with 3 or 4 dimensions, but got {ndim + 1}")
    frequencies = input.array.shape[-2]
    one = frequencies != n_fft if onesided is None else onesided
    if one and frequencies != n_fft // 2 + 1:
        fail("expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 when onesided=True, but "
             f"got {frequencies}")  # fmt: skip
    if not one and frequencies != n_fft:
        fail(
            f"expected the frequency dimension (3rd to the last) of the input tensor to match n_fft when onesided=False, but got {frequencies}"
        )
    if not 0 < hop <= width:
        fail("expected 0 < hop_length <= win_length")
    if not 0 < width <= n_fft:
        fail("expected 0 < win_length <= n_fft")
    if window is not None and window.array.shape != (width,):
        fail("Invalid window shape. window has to be 1D and length of `win_length`")
    if not return_complex and window is not None and window.dtype.is_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    if return_complex and one:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    x = input if ndim == 3 else unsqueeze(input, 0)
    window = _centred(window, width, n_fft, x)
    x = transpose(x, 1, 2)
    scale = n_fft**-0.5 if normalized else 1 / n_fft
    if return_complex:
        frames = fft_c2c(x, (-1,), scale, False)
    else:
        x = x if one else narrow(x, 2, 0, n_fft // 2 + 1)
        frames = fft_c2r(x, (-1,), scale, n_fft)
    frames = frames * reshape(window, (1, 1, n_fft))
    count = frames.array.shape[1]
    whole = n_fft + hop * (count - 1)
    signal = _refold(frames, (frames.array.shape[0], whole), 1, n_fft, hop)
    squares = expand(reshape(window * window, (1, 1, n_fft)), (1, count, n_fft))
    envelope = _refold(squares, (1, whole), 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else whole - n_fft // 2 if center else whole
    inside = max(min(end, whole) - start, 0)
    signal, envelope = narrow(signal, 1, start, inside), narrow(envelope, 1, start, inside)
    least = np.abs(batching.all_values(envelope)).min(initial=np.inf)
    if not least > 1e-11:
        fail("window overlap add min: 1\n[ CPUBoolType{} ]", " ")
    signal = signal / envelope
    if ndim == 2:
        signal = squeeze(signal, 0)
    if end > whole:
        warnings.warn("The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. "
                      "Please check your center and hop_length settings.", UserWarning, 2)  # fmt: skip
        signal = pad(signal, (0, end - whole))
    return signal
