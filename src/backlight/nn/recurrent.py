"""Recurrent layers and cells: RNN, LSTM, GRU."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import TYPE_CHECKING

from .. import empty, zeros
from ..ops import recurrent as ops
from ..tensor import Parameter
from . import init
from .module import Module
from .utils.rnn import PackedSequence

if TYPE_CHECKING:
    from typing import Any

    from ..tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_FUNCTIONS = {"LSTM": ops.lstm, "GRU": ops.gru, "RNN_TANH": ops.rnn_tanh, "RNN_RELU": ops.rnn_relu}


def _check_settings(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size) -> None:
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:  # pyright: ignore
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
    if dropout > 0 and num_layers == 1:  # pyright: ignore
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater "
            f"than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    for name, value, kind in (
        ("bias", bias, bool),
        ("batch_first", batch_first, bool),
        ("input_size", input_size, int),
        ("hidden_size", hidden_size, int),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
        if kind is int and value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNNBase(Module):
    """What RNN, LSTM and GRU share: their parameters, the checks of their inputs, and the call."""

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__()
        _check_settings(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        gates, output_size = _GATES[mode] * hidden_size, proj_size or hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: 1 + bidirectional]:
                layer_input = input_size if layer == 0 else output_size * (1 + bidirectional)
                shapes = {"weight_ih": (gates, layer_input), "weight_hh": (gates, output_size)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    parameter = Parameter(empty(shape, device=device, dtype=dtype))
                    self.register_parameter(f"{name}_l{layer}{suffix}", parameter)
                self._all_weights.append([f"{name}_l{layer}{suffix}" for name in shapes])
        self.reset_parameters()

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name) for names in self._all_weights for name in names]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Does nothing: it is for GPUs."""

    def reset_parameters(self) -> None:
        """Draws new parameters, uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        for name, default in (("bias", True), ("batch_first", False), ("dropout", 0), ("bidirectional", False)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raises where the input doesn't fit the parameters."""
        dtype = self._flat_weights[0].dtype
        if input.dtype is not dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). Convert input: input.to({dtype}), or "
                f"convert model: model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}")

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Raises RuntimeError where a state has another shape than expected."""
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Tensor, hidden: tuple[Tensor, ...], batch_sizes: Tensor | None) -> None:
        """Raises where the input or the states don't fit."""
        self.check_input(input, batch_sizes)
        expected = self._state_shapes(input, batch_sizes)
        if len(expected) == 1:
            self.check_hidden_size(hidden[0], expected[0])
            return
        for state, shape, number in zip(hidden, expected, (0, 1), strict=True):
            self.check_hidden_size(state, shape, f"Expected hidden[{number}] size {{}}, got {{}}")

    def _state_shapes(self, input: Tensor, batch_sizes: Tensor | None) -> list[tuple[int, int, int]]:
        """The shapes of the states: (layers * directions, N, H), for an LSTM also that of the cells."""
        n = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        rows = self.num_layers * (1 + self.bidirectional)
        shapes = [(rows, n, self.proj_size or self.hidden_size)]
        return [*shapes, (rows, n, self.hidden_size)] if self.mode == "LSTM" else shapes

    def _check_state_dims(self, states: tuple[Tensor, ...], batched: bool) -> None:
        dims = [state.dim() for state in states]
        if all(n == (3 if batched else 2) for n in dims):
            return
        kind, n = ("batched 3-D", 3) if batched else ("unbatched 2-D", 2)
        if len(states) == 1:
            raise RuntimeError(f"For {kind} input, hx should also be {n}-D but got {dims[0]}-D tensor")
        raise RuntimeError(f"For {kind} input, hx and cx should also be {n}-D but got ({dims[0]}-D, {dims[1]}-D) tensors")

    def _run(self, sequence: Tensor | PackedSequence, states: tuple[Tensor, ...] | None) -> tuple[Any, list[Tensor]]:
        """(output, states) for a sequence, batched or not, or a packed one."""
        input: Any = sequence
        packed = sequence if isinstance(sequence, PackedSequence) else None
        batched, batch_sizes = True, None
        if packed is not None:
            input, batch_sizes = packed.data, packed.batch_sizes
            if states is not None and packed.sorted_indices is not None:
                states = tuple(state.index_select(1, packed.sorted_indices) for state in states)
        else:
            if input.dim() not in (2, 3):
                after = " tensor instead" if self.mode.startswith("RNN") else " instead"
                name = "RNN" if self.mode.startswith("RNN") else self.mode
                raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D{after}")
            batched = input.dim() == 3
            if states is not None:
                self._check_state_dims(states, batched)
            if not batched:
                input = input.unsqueeze(0 if self.batch_first else 1)
                states = None if states is None else tuple(state.unsqueeze(1) for state in states)
        if states is None:
            states = tuple(zeros(shape, dtype=input.dtype) for shape in self._state_shapes(input, batch_sizes))
        self.check_forward_args(input, states, batch_sizes)
        settings = (self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        hx = states if self.mode == "LSTM" else states[0]
        function: Any = _FUNCTIONS[self.mode]
        if packed is not None:
            output, *last = function(input, batch_sizes, hx, *settings)
            if packed.unsorted_indices is not None:
                last = [state.index_select(1, packed.unsorted_indices) for state in last]
            return PackedSequence(output, batch_sizes, packed.sorted_indices, packed.unsorted_indices), last
        output, *last = function(input, hx, *settings, self.batch_first)
        if not batched:
            return output.squeeze(0 if self.batch_first else 1), [state.squeeze(1) for state in last]
        return output, last


class _OneState(RNNBase):
    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None):
        output, states = self._run(input, None if hx is None else (hx,))
        return output, states[0]


class RNN(_OneState):
    """h_t = tanh(W_ih x_t + b_ih + W_hh h_(t-1) + b_hh), in `num_layers` layers (Elman 1990).

    (L, N, I), or (N, L, I) with `batch_first`, (L, I), or a PackedSequence -> the outputs of the last layer at every time, and
    the last hidden states (layers * directions, N, H). Differentiable in input, state and parameters.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory in `num_layers` layers (Hochreiter, Schmidhuber 1997).

    (L, N, I), or (N, L, I) with `batch_first`, (L, I), or a PackedSequence -> the outputs of the last layer at every time, and
    `(h_n, c_n)`, the last states (layers * directions, N, H). With `proj_size` the hidden state is a projection of that size
    (Sak et al. 2014). Differentiable in input, states and parameters.

    >>> import backlight as torch
    >>> output, (h, c) = torch.nn.LSTM(3, 5, num_layers=2)(torch.ones(7, 4, 3))
    >>> output.shape, h.shape
    (torch.Size([7, 4, 5]), torch.Size([2, 4, 5]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device=None,
        dtype=None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device, dtype
        )

    def forward(self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None):
        output, states = self._run(input, hx)
        return output, tuple(states)


class GRU(_OneState):
    """Gated recurrent units in `num_layers` layers (Cho et al. 2014).

    (L, N, I), or (N, L, I) with `batch_first`, (L, I), or a PackedSequence -> the outputs of the last layer at every time, and
    the last hidden states (layers * directions, N, H). Differentiable in input, state and parameters.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device=None,
        dtype=None,
        **kwargs,
    ) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype, **kwargs
        )


class RNNCellBase(Module):
    """What the cells share: two weights and two biases for `num_chunks` gates."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device=None, dtype=None) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(empty((gates, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(empty((gates, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(gates, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters, uniform in +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, function, input: Tensor, states: tuple[Tensor, ...] | None) -> list[Tensor]:
        """The new states, after checks; an unbatched input and its states get a batch of one on the way."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for number, state in enumerate(states or ()):
            if state.dim() not in (1, 2):
                which = f"hx[{number}]" if isinstance(self, LSTMCell) else "hidden"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {state.dim()}D instead")
        single = input.dim() == 1
        if single:
            input = input.unsqueeze(0)
            states = None if states is None else tuple(state.unsqueeze(0) for state in states)
        if states is None:
            state = zeros(input.size(0), self.hidden_size, dtype=input.dtype)
            states = (state, state)
        hx = states if isinstance(self, LSTMCell) else states[0]
        result = function(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        result = result if isinstance(result, tuple) else (result,)
        return [state.squeeze(0) for state in result] if single else list(result)


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu: (N, I), (N, H) -> (N, H). Also without N."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device=None, dtype=None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        function = {"tanh": ops.rnn_tanh_cell, "relu": ops.rnn_relu_cell}.get(self.nonlinearity)
        if function is None:
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(function, input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (N, I), ((N, H), (N, H)) -> ((N, H), (N, H)). Also without N."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        h, c = self._step(ops.lstm_cell, input, hx)
        return h, c


class GRUCell(RNNCellBase):
    """One step of a GRU: (N, I), (N, H) -> (N, H). Also without N."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device=None, dtype=None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(ops.gru_cell, input, None if hx is None else (hx,))[0]
