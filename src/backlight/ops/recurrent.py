"""Recurrent networks: the cells, lstm, gru and rnn over whole sequences, and packed sequences.

The input's share of all gates is one matrix product for the whole sequence; a step then is one product with the hidden
state and one operation for the cell. Where kernels can do it, all steps of a layer are one operation.
"""

from __future__ import annotations

import numpy as np

from .. import kernels
from ..kernels import FUSED
from ..op import arrays_form, op, public, twin
from ..state import modes
from .join import cat, stack, unbind
from .linalg import linear
from .matrix import join
from .nn import dropout
from .pointwise import sigmoid, tanh
from .shape import narrow, transpose

# The cells: a step from the input's share of the gates and the hidden state's


def lstm_step(input_gates, hidden_gates, cx):
    """(h, c) of one step. Gates (*, 4H) are input, forget, cell and output; cx (*, H). Hochreiter, Schmidhuber 1997."""
    i, f, g, o = lstm_gates(input_gates, hidden_gates)
    c = f * cx + i * g
    return o * tanh(c), c


def lstm_gates(input_gates, hidden_gates):
    gates = input_gates + hidden_gates
    n = gates.shape[-1] // 4
    return (sigmoid(gates[..., :n]), sigmoid(gates[..., n : 2 * n]),
            tanh(gates[..., 2 * n : 3 * n]), sigmoid(gates[..., 3 * n :]))  # fmt: skip


def lstm_gradient(g, input_gates, hidden_gates, cx):
    gh, gc = g
    i, f, z, o = lstm_gates(input_gates, hidden_gates)
    t = tanh(f * cx + i * z)
    through_o = 0 * t if gh is None else gh * t
    if gh is not None:
        through_c = gh * o * (1 - t * t)
        gc = through_c if gc is None else gc + through_c
    parts = [gc * z * i * (1 - i), gc * cx * f * (1 - f), gc * i * (1 - z * z), through_o * o * (1 - o)]
    gates = join(parts, -1)
    return gates, gates, gc * f


_lstm_step = op("_thnn_fused_lstm_cell", arrays_form(lstm_step), outputs=2, batch="leading",
    joint=lambda g, input_gates, hidden_gates, cx, _out: lstm_gradient(g, input_gates, hidden_gates, cx))  # fmt: skip


def gru_step(input_gates, hidden_gates, hx):
    """h of one step. Gates (*, 3H) are reset, update and new; hx (*, H). Cho et al. 2014, in cuDNN's form."""
    _r, z, new, _hidden = gru_gates(input_gates, hidden_gates)
    return new + z * (hx - new)


def gru_gates(input_gates, hidden_gates):
    n = hidden_gates.shape[-1] // 3
    r = sigmoid(input_gates[..., :n] + hidden_gates[..., :n])
    z = sigmoid(input_gates[..., n : 2 * n] + hidden_gates[..., n : 2 * n])
    hidden = hidden_gates[..., 2 * n :]
    return r, z, tanh(input_gates[..., 2 * n :] + r * hidden), hidden


def gru_gradient(g, input_gates, hidden_gates, hx):
    r, z, new, hidden = gru_gates(input_gates, hidden_gates)
    through_new = g * (1 - z) * (1 - new * new)
    through_r = through_new * hidden * r * (1 - r)
    through_z = g * (hx - new) * z * (1 - z)
    return join([through_r, through_z, through_new], -1), join([through_r, through_z, through_new * r], -1), g * z


_gru_step = op("_thnn_fused_gru_cell", arrays_form(gru_step), batch="leading",
    joint=lambda g, input_gates, hidden_gates, hx, _out: gru_gradient(g, input_gates, hidden_gates, hx))  # fmt: skip


def _lstm(gates, state, w_hh, b_hh, w_hr=None):
    h, c = _lstm_step(gates, linear(state[0], w_hh, b_hh), state[1])
    return (h if w_hr is None else linear(h, w_hr)), c


def _gru(gates, state, w_hh, b_hh):
    return (_gru_step(gates, linear(state[0], w_hh, b_hh), state[0]),)


def _tanh(gates, state, w_hh, b_hh):
    return (tanh(linear(state[0], w_hh, b_hh) + gates),)


def _relu(gates, state, w_hh, b_hh):
    return ((linear(state[0], w_hh, b_hh) + gates).relu(),)


# One step, as a function


def _check_cell(input, hidden, w_ih, w_hh, gates):
    """RuntimeError where the sizes of a cell's arguments don't fit."""
    for i, h in enumerate(hidden):
        if input.shape[0] != h.shape[0]:
            raise RuntimeError(f"Input batch size {input.shape[0]} doesn't match hidden{i} batch size {h.shape[0]}")
        if h.shape[1] != w_hh.shape[0] // gates:
            raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {h.shape[1]}, expected {w_hh.shape[0] // gates}")
    if input.shape[1] != w_ih.shape[1]:
        raise RuntimeError(f"input has inconsistent input_size: got {input.shape[1]} expected {w_ih.shape[1]}")


@public(method=False)
def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """(h, c) after one step of an LSTM. (N, I), two of (N, H), (4H, I), (4H, H) -> two of (N, H). Differentiable."""
    _check_cell(input, hx, w_ih, w_hh, 4)
    return _lstm(linear(input, w_ih, b_ih), hx, w_hh, b_hh)


@public(method=False)
def gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """The hidden state after one step of a GRU. (N, I), (N, H), (3H, I), (3H, H) -> (N, H). Differentiable."""
    _check_cell(input, (hx,), w_ih, w_hh, 3)
    return _gru(linear(input, w_ih, b_ih), (hx,), w_hh, b_hh)[0]


@public(method=False)
def rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """tanh(w_ih @ input + w_hh @ hx + biases). (N, I), (N, H), (H, I), (H, H) -> (N, H). Differentiable."""
    _check_cell(input, (hx,), w_ih, w_hh, 1)
    return _tanh(linear(input, w_ih, b_ih), (hx,), w_hh, b_hh)[0]


@public(method=False)
def rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """relu(w_ih @ input + w_hh @ hx + biases). (N, I), (N, H), (H, I), (H, H) -> (N, H). Differentiable."""
    _check_cell(input, (hx,), w_ih, w_hh, 1)
    return _relu(linear(input, w_ih, b_ih), (hx,), w_hh, b_hh)[0]


# A layer in one direction as one operation, where kernels compute it: otherwise it is a scan of steps, and so are its second
# derivatives.


def _scanned(cell, g, inputs, reverse):
    """The gradients of a layer's inputs, as operations: those of the same layer step by step."""
    from .. import autograd

    x, w_ih, w_hh, b_ih, b_hh, *initial = inputs = [
        x if x is None or x.requires_grad else x.detach().requires_grad_() for x in inputs
    ]
    outputs, state = _scan(cell, list(unbind(linear(x, w_ih, b_ih), 0)), tuple(initial), (w_hh, b_hh), reverse)
    pairs = [(result, each) for result, each in zip((stack(outputs, 0), *state), g) if each is not None]
    given = [x for x in inputs if x is not None]
    found = iter(autograd.grad([y for y, _ in pairs], given, [each for _, each in pairs], create_graph=True))
    return tuple([None if x is None else next(found) for x in inputs])


def _lstm_layer_gradient_arrays(g, x, w_ih, w_hh, b_ih, _b_hh, h, c, outputs, reverse):
    out, _h, _c, gates, cells = outputs
    return kernels.recurrent.lstm_gradient(g[0], g[1], g[2], x, w_ih, w_hh, b_ih is not None, h, c, out, gates, cells, reverse)


@twin(_lstm_layer_gradient_arrays)
def lstm_layer_gradient(g, x, w_ih, w_hh, b_ih, b_hh, h, c, _outputs, reverse):
    """The gradients of an LSTM's layer, as operations."""
    return _scanned(_lstm, g, (x, w_ih, w_hh, b_ih, b_hh, h, c), reverse)


def _gru_layer_gradient_arrays(g, x, w_ih, w_hh, b_ih, _b_hh, h, outputs, reverse):
    out, _h, gates, hidden_new = outputs
    return kernels.recurrent.gru_gradient(g[0], g[1], x, w_ih, w_hh, b_ih is not None, h, out, gates, hidden_new, reverse)


@twin(_gru_layer_gradient_arrays)
def gru_layer_gradient(g, x, w_ih, w_hh, b_ih, b_hh, h, _outputs, reverse):
    """The gradients of a GRU's layer, as operations."""
    return _scanned(_gru, g, (x, w_ih, w_hh, b_ih, b_hh, h), reverse)


_lstm_layer = op("lstm_layer", lambda *inputs: kernels.recurrent.lstm(*inputs), node="MkldnnRnnLayerBackward0",
    joint=lambda g, input, w_ih, w_hh, b_ih, b_hh, hx, cx, out, reverse:
        lstm_layer_gradient(g, input, w_ih, w_hh, b_ih, b_hh, hx, cx, out, reverse),
    outputs=5, nondifferentiable=(3, 4), optional=("b_ih", "b_hh"))  # fmt: skip
_gru_layer = op("gru_layer", lambda *inputs: kernels.recurrent.gru(*inputs),
    joint=lambda g, input, w_ih, w_hh, b_ih, b_hh, hx, out, reverse:
        gru_layer_gradient(g, input, w_ih, w_hh, b_ih, b_hh, hx, out, reverse),
    outputs=4, nondifferentiable=(2, 3), optional=("b_ih", "b_hh"))  # fmt: skip


def _layer_of(cell, input, w_ih, w_hh, biases, initial):
    """The operation that computes this layer, or None."""
    layer = _LAYERS.get(cell)
    if layer is None or modes.levels or len(initial[0].shape) != 2 or w_hh.array.shape[1] != initial[0].array.shape[1]:
        return None
    arrays = [None if x is None else x.array for x in (input, w_ih, w_hh, *biases, *initial)]
    hidden = w_hh.array.shape[1]
    fits = input.array.shape[1] == initial[0].array.shape[0] and kernels.compute(1, *arrays)
    if not fits or input.array.shape[0] * input.array.shape[1] * len(w_hh.array) < FUSED:
        return None
    return layer if kernels.recurrent.has_kernel(hidden, w_hh.array.dtype) else None


_LAYERS = {_lstm: _lstm_layer, _gru: _gru_layer}


# Whole sequences


def _rows(state, start, stop):
    return tuple(narrow(s, 0, start, stop - start) for s in state)


def _joined(states):
    return tuple(cat(list(parts), 0) for parts in zip(*states, strict=True))


def _scan(cell, steps, initial, weights, reverse):
    """(outputs, last state) of one layer in one direction.

    The steps may get shorter, as in a packed sequence: a row that ends leaves the state, or, backwards, enters it.
    """
    outputs, ended, state = [], [], initial
    if reverse:
        steps = steps[::-1]
        if steps[0].shape[0] < initial[0].shape[0]:
            state = _rows(initial, 0, steps[0].shape[0])
    for gates in steps:
        n, rows = gates.shape[0], state[0].shape[0]
        if n < rows:
            ended.append(_rows(state, n, rows))
            state = _rows(state, 0, n)
        elif n > rows:
            state = _joined([state, _rows(initial, rows, n)])
        state = cell(gates, state, *weights)
        outputs.append(state[0])
    if ended:
        state = _joined([state, *ended[::-1]])
    return (outputs[::-1] if reverse else outputs), state


def _recurrent(cell, states, input, batch_sizes, params, has_biases, num_layers, p, train, bidirectional, batch_first=False):
    """(output, *last states): layers over directions over time; `states` holds one (layers * directions, N, H) each."""
    packed = batch_sizes is not None
    if packed:
        sizes = [int(n) for n in batch_sizes.array]
    elif batch_first:
        input = transpose(input, 0, 1)
    if not input.shape[0]:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    directions = 2 if bidirectional else 1
    count = len(params) // (num_layers * directions)
    initial = list(zip(*(unbind(s, 0) for s in states), strict=True))
    last = []
    for layer in range(num_layers):
        results = []
        for direction in range(directions):
            i = layer * directions + direction
            w_ih, w_hh, *more = params[i * count : (i + 1) * count]
            b_ih, b_hh = more[:2] if has_biases else (None, None)
            one = None if packed or len(more) > 2 else _layer_of(cell, input, w_ih, w_hh, (b_ih, b_hh), initial[i])
            if one is not None:
                output, *state = one(input, w_ih, w_hh, b_ih, b_hh, *initial[i], bool(direction))
                results.append(output)
                last.append(tuple(state[: len(states)]))
                continue
            gates = linear(input, w_ih, b_ih)
            steps = list(gates.split(sizes, 0) if packed else unbind(gates, 0))
            weights = (w_hh, b_hh, *more[2 * bool(has_biases) :])
            outputs, state = _scan(cell, steps, initial[i], weights, bool(direction))
            results.append(cat(outputs, 0) if packed else stack(outputs, 0))
            last.append(state)
        input = cat(results, -1) if bidirectional else results[0]
        if p and train and layer < num_layers - 1:
            input = dropout(input, p, True)
    output = transpose(input, 0, 1) if batch_first and not packed else input
    return (output, *(stack(list(parts), 0) for parts in zip(*last, strict=True)))


def _arguments(input, second, third, rest):
    """The two ways to call: (input, hx, params, ...) and (data, batch_sizes, hx, params, ...) as (input, sizes, hx, ...)."""
    if isinstance(third, (list, tuple)) and not isinstance(second, (list, tuple)) and hasattr(rest[0], "__len__"):
        return input, second, third, *rest
    if isinstance(rest[0], (list, tuple)):
        return input, second, third, *rest
    return input, None, second, third, *rest


@public(method=False)
def lstm(input, hx, params, *options):
    """(output, h_n, c_n) of an LSTM over sequences, as nn.LSTM calls it. Differentiable in all tensors.

    lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) with input (L, N, I), or for a
    packed sequence lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional).
    """
    input, sizes, hx, params, *options = _arguments(input, hx, params, options)
    return _recurrent(_lstm, hx, input, sizes, params, *options)


def _single_state(name, cell, formula):
    def function(input, hx, params, *options):
        input, sizes, hx, params, *options = _arguments(input, hx, params, options)
        return _recurrent(cell, (hx,), input, sizes, params, *options)

    function.__doc__ = (
        f"""(output, h_n) of {formula} over sequences, called as lstm() is, with one state. Differentiable in all tensors."""
    )
    return public(method=False, name=name)(function)


gru = _single_state("gru", _gru, "a GRU")
rnn_tanh = _single_state("rnn_tanh", _tanh, "an RNN with tanh")
rnn_relu = _single_state("rnn_relu", _relu, "an RNN with relu")


# Packed sequences: the elements that exist, step by step


def _unpacked(data, mask, padding):
    out = np.full(mask.shape + data.shape[1:], padding, data.dtype)
    out[mask] = data
    return out


pack = op("_pack_padded_sequence", lambda x, mask: x[mask], lambda g, _input, _out, mask: unpack(g, mask, 0))
unpack = op("_pad_packed_sequence", _unpacked, lambda g, _input, _out, mask, _padding: pack(g, mask))
