"""One layer of an LSTM or a GRU over a whole sequence, and its gradients.

The samples of a batch don't meet, so each thread takes some of them through all time steps: no thread waits for another, and a
step's product with the hidden states happens in the same loop as the cell. The input's share of the gates and the gradients of
the weights are matrix products over all steps at once, before and after.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from . import threads
from .compiling import bound, called, specialized, take
from .scalar import like, sigmoid, tanh
from .tiles import lanes, product_tile, spaced

PANEL = 8  # samples that a thread takes at once

# What the loops are compiled for: a tile's size and function
WIDTH = 0
TILE: Any = None
PRODUCTS = TILE


def _products(rows, start, distance, count, places, matrix, offsets, terms, columns, out):
    """out (count, columns) = rows (count, terms) times a matrix (terms, columns)."""
    for p in range(0, columns, WIDTH):
        TILE(rows, start, distance, count, places, matrix, p, offsets, 0, terms, out, p, columns)


def _lstm_forward(gates, bias, w, h0, c0, reverse, out, cells, queue):
    """gates (L, N, 4H) has the input's share and receives the gates themselves; w (H, 4H) is transposed."""
    length, batch, n = out.shape
    places, offsets, product = spaced(n, 1), spaced(n, 4 * n), np.empty(PANEL * 4 * n, out.dtype)
    flat_out, flat_h0, flat_w = out.reshape(-1), h0.reshape(-1), w.reshape(-1)
    while True:
        first = take(queue) * PANEL
        if first >= batch:
            return
        count = min(PANEL, batch - first)
        for step in range(length):
            t, before = (length - 1 - step, length - step) if reverse else (step, step - 1)
            if step:
                PRODUCTS(flat_out, (before * batch + first) * n, n, count, places, flat_w, offsets, n, 4 * n, product)
            else:
                PRODUCTS(flat_h0, first * n, n, count, places, flat_w, offsets, n, 4 * n, product)
            for r in range(count):
                row, hidden = gates[t, first + r], product[r * 4 * n : (r + 1) * 4 * n]
                for j in range(row.size):
                    row[j] += hidden[j] + bias[j]
                i, f, g, o = row[:n], row[n : 2 * n], row[2 * n : 3 * n], row[3 * n :]
                c, h = cells[t, first + r], out[t, first + r]
                old = cells[before, first + r] if step else c0[first + r]
                for j in range(n):
                    i[j], f[j] = sigmoid(i[j]), sigmoid(f[j])
                for j in range(n):
                    g[j], o[j] = tanh(g[j]), sigmoid(o[j])
                for j in range(c.size):
                    c[j] = f[j] * old[j] + i[j] * g[j]
                for j in range(h.size):
                    h[j] = o[j] * tanh(c[j])


def _lstm_backward(grad, grad_h, grad_c, gates, cells, c0, w, reverse, slopes, queue):
    """slopes (L, N, 4H) receives the gates' gradients. grad_h, grad_c (N, H): those of the last states in, those of the first ones out."""
    length, batch, n = grad.shape
    places, offsets, product = spaced(4 * n, 1), spaced(4 * n, n), np.zeros(PANEL * n, grad.dtype)
    flat_slopes, flat_w, one = slopes.reshape(-1), w.reshape(-1), like(w[0, 0], 1)
    while True:
        first = take(queue) * PANEL
        if first >= batch:
            return
        count = min(PANEL, batch - first)
        for r in range(count):
            product[r * n : (r + 1) * n] = grad_h[first + r]
        for step in range(length):
            t, before = (step, step + 1) if reverse else (length - 1 - step, length - 2 - step)
            for r in range(count):
                row, dh, dc = gates[t, first + r], product[r * n : (r + 1) * n], grad_c[first + r]
                i, f, g, o = row[:n], row[n : 2 * n], row[2 * n : 3 * n], row[3 * n :]
                slope = slopes[t, first + r]
                slope_i, slope_f, slope_g, slope_o = slope[:n], slope[n : 2 * n], slope[2 * n : 3 * n], slope[3 * n :]
                c, arrived = cells[t, first + r], grad[t, first + r]
                old = cells[before, first + r] if step < length - 1 else c0[first + r]
                for j in range(dh.size):
                    h, y = dh[j] + arrived[j], tanh(c[j])
                    through = dc[j] + h * o[j] * (one - y * y)
                    dh[j], dc[j] = h * y, through
                for j in range(dh.size):
                    through, i_, f_, g_, o_ = dc[j], i[j], f[j], g[j], o[j]
                    slope_i[j] = through * g_ * i_ * (one - i_)
                    slope_f[j] = through * old[j] * f_ * (one - f_)
                    slope_g[j] = through * i_ * (one - g_ * g_)
                    slope_o[j] = dh[j] * o_ * (one - o_)
                    dc[j] = through * f_
            PRODUCTS(flat_slopes, (t * batch + first) * 4 * n, 4 * n, count, places, flat_w, offsets, 4 * n, n, product)
        for r in range(count):
            grad_h[first + r] = product[r * n : (r + 1) * n]


def _gru_forward(gates, bias, w, h0, hidden_bias, reverse, out, hidden_new, queue):
    """gates (L, N, 3H) has the input's share and receives the gates themselves; hidden_new the hidden state's share of the new one."""
    length, batch, n = out.shape
    places, offsets, product = spaced(n, 1), spaced(n, 3 * n), np.empty(PANEL * 3 * n, out.dtype)
    flat_out, flat_h0, flat_w = out.reshape(-1), h0.reshape(-1), w.reshape(-1)
    while True:
        first = take(queue) * PANEL
        if first >= batch:
            return
        count = min(PANEL, batch - first)
        for step in range(length):
            t, before = (length - 1 - step, length - step) if reverse else (step, step - 1)
            if step:
                PRODUCTS(flat_out, (before * batch + first) * n, n, count, places, flat_w, offsets, n, 3 * n, product)
            else:
                PRODUCTS(flat_h0, first * n, n, count, places, flat_w, offsets, n, 3 * n, product)
            for s in range(count):
                row, hidden = gates[t, first + s], product[s * 3 * n : (s + 1) * 3 * n]
                r, z, new, share = row[:n], row[n : 2 * n], row[2 * n :], hidden_new[t, first + s]
                h, old = out[t, first + s], out[before, first + s] if step else h0[first + s]
                hidden_r, hidden_z, hidden_n = hidden[:n], hidden[n : 2 * n], hidden[2 * n :]
                for j in range(n):
                    r[j] = sigmoid(r[j] + hidden_r[j] + bias[j] + hidden_bias[j])
                for j in range(n):
                    z[j] = sigmoid(z[j] + hidden_z[j] + bias[n + j] + hidden_bias[n + j])
                for j in range(n):
                    x = hidden_n[j] + hidden_bias[2 * n + j]
                    share[j] = x
                    new[j] = tanh(new[j] + bias[2 * n + j] + r[j] * x)
                for j in range(n):
                    h[j] = new[j] + z[j] * (old[j] - new[j])


def _gru_backward(grad, grad_h, gates, hidden_new, out, h0, w, hidden_gates, reverse, queue):
    """Turns the gates into the gradients of the input's share; hidden_gates (L, N, 3H) receives those of the hidden state's."""
    length, batch, n = grad.shape
    places, offsets, product = spaced(3 * n, 1), spaced(3 * n, n), np.zeros(PANEL * n, grad.dtype)
    flat_gates, flat_w, one = hidden_gates.reshape(-1), w.reshape(-1), like(w[0, 0], 1)
    while True:
        first = take(queue) * PANEL
        if first >= batch:
            return
        count = min(PANEL, batch - first)
        for step in range(length):
            t, before = (step, step + 1) if reverse else (length - 1 - step, length - 2 - step)
            for s in range(count):
                row, other, dh = gates[t, first + s], hidden_gates[t, first + s], grad_h[first + s]
                r, z, new, share = row[:n], row[n : 2 * n], row[2 * n :], hidden_new[t, first + s]
                other_r, other_z, other_n = other[:n], other[n : 2 * n], other[2 * n :]
                arrived, old = grad[t, first + s], out[before, first + s] if step < length - 1 else h0[first + s]
                for j in range(dh.size):
                    h, r_, z_, new_ = dh[j] + arrived[j], r[j], z[j], new[j]
                    through_new = h * (one - z_) * (one - new_ * new_)
                    through_r = through_new * share[j] * r_ * (one - r_)
                    through_z = h * (old[j] - new_) * z_ * (one - z_)
                    r[j], z[j], new[j] = through_r, through_z, through_new
                    other_r[j], other_z[j], other_n[j] = through_r, through_z, through_new * r_
                    dh[j] = h * z_
            PRODUCTS(flat_gates, (t * batch + first) * 3 * n, 3 * n, count, places, flat_w, offsets, 3 * n, n, product)
            for s in range(count):
                dh, more = grad_h[first + s], product[s * n : (s + 1) * n]
                for j in range(dh.size):
                    dh[j] += more[j]


@cache
def _compiled(function, dtype):
    names = {"WIDTH": 2 * lanes(dtype), "TILE": product_tile(PANEL, 2)}
    names["PRODUCTS"] = called(bound(_products, **names))
    return specialized(function, f"{function.__name__.strip('_')}_{dtype}", **names)


def _run(function, batch, dtype, *arguments):
    threads.run(_compiled(function, dtype), -(-batch // PANEL), *arguments, least=1)


def has_kernel(hidden: int, dtype) -> bool:
    """Whether a hidden state fills whole tiles."""
    return hidden % (2 * lanes(dtype)) == 0


def _shares(x, w):
    """The input's share of the gates: (L, N, I), (G, I) -> (L, N, G)."""
    return np.matmul(x.reshape(-1, x.shape[2]), w.T).reshape(*x.shape[:2], len(w))


def _dense(*arrays):
    return [np.ascontiguousarray(a) for a in arrays]


def _bias(b, n, dtype):
    return np.zeros(n, dtype) if b is None else np.ascontiguousarray(b)


def _before(out, first, reverse):
    """The hidden state before each step: (L, N, H), (N, H) -> (L, N, H)."""
    return np.concatenate([out[1:], first[None]] if reverse else [first[None], out[:-1]])


def _weight_gradients(gates, inputs):
    """(L, N, G), (L, N, I) -> (G, I)."""
    return np.matmul(gates.reshape(-1, gates.shape[2]).T, inputs.reshape(-1, inputs.shape[2]))


def _input_gradient(gates, w):
    return np.matmul(gates.reshape(-1, gates.shape[2]), w).reshape(*gates.shape[:2], w.shape[1])


def lstm(x, w_ih, w_hh, b_ih, b_hh, h, c, reverse):
    """(output, h_n, c_n, gates, cells) of one layer in one direction: (L, N, I), (4H, I), (4H, H), two of (N, H)."""
    (length, batch, _), n, dtype = x.shape, h.shape[1], x.dtype
    gates, (h, c, w) = _shares(x, w_ih), _dense(h, c, w_hh.T)
    bias = _bias(b_ih, 4 * n, dtype) + _bias(b_hh, 4 * n, dtype)
    out, cells = np.empty((length, batch, n), dtype), np.empty((length, batch, n), dtype)
    _run(_lstm_forward, batch, dtype, gates, bias, w, h, c, reverse, out, cells)
    last = 0 if reverse else length - 1
    return out, out[last].copy(), cells[last].copy(), gates, cells


def lstm_gradient(g, g_h, g_c, x, w_ih, w_hh, has_bias, h, c, out, gates, cells, reverse):
    """The gradients of (x, w_ih, w_hh, b_ih, b_hh, h, c). Gradients of outputs may be None."""
    batch, dtype = x.shape[1], x.dtype
    h, c, w = _dense(h, c, w_hh)
    g = np.zeros_like(out) if g is None else np.ascontiguousarray(g)
    g_h, g_c = (np.zeros_like(state) if each is None else np.array(each, order="C") for each, state in ((g_h, h), (g_c, c)))
    slopes = np.empty_like(gates)
    _run(_lstm_backward, batch, dtype, g, g_h, g_c, gates, cells, c, w, reverse, slopes)
    bias = np.add.reduce(slopes, (0, 1)) if has_bias else None
    return (
        _input_gradient(slopes, w_ih),
        _weight_gradients(slopes, x),
        _weight_gradients(slopes, _before(out, h, reverse)),
        bias,
        None if bias is None else bias.copy(),
        g_h,
        g_c,
    )


def gru(x, w_ih, w_hh, b_ih, b_hh, h, reverse):
    """(output, h_n, gates, hidden state's share of the new one) of one layer in one direction."""
    (length, batch, _), n, dtype = x.shape, h.shape[1], x.dtype
    gates, (h, w) = _shares(x, w_ih), _dense(h, w_hh.T)
    out, hidden_new = np.empty((length, batch, n), dtype), np.empty((length, batch, n), dtype)
    biases = _bias(b_ih, 3 * n, dtype), _bias(b_hh, 3 * n, dtype)
    _run(_gru_forward, batch, dtype, gates, biases[0], w, h, biases[1], reverse, out, hidden_new)
    return out, out[0 if reverse else length - 1].copy(), gates, hidden_new


def gru_gradient(g, g_h, x, w_ih, w_hh, has_bias, h, out, gates, hidden_new, reverse):
    """The gradients of (x, w_ih, w_hh, b_ih, b_hh, h)."""
    batch, dtype = x.shape[1], x.dtype
    h, w = _dense(h, w_hh)
    g = np.zeros_like(out) if g is None else np.ascontiguousarray(g)
    g_h = np.zeros_like(h) if g_h is None else np.array(g_h, order="C")
    gates, hidden_gates = gates.copy(), np.empty_like(gates)
    _run(_gru_backward, batch, dtype, g, g_h, gates, hidden_new, out, h, w, hidden_gates, reverse)
    biases = [np.add.reduce(each, (0, 1)) if has_bias else None for each in (gates, hidden_gates)]
    weights = _weight_gradients(gates, x), _weight_gradients(hidden_gates, _before(out, h, reverse))
    return (_input_gradient(gates, w_ih), *weights, *biases, g_h)
