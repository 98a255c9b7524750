"""Batch norm and group norm of (N, C, S): statistics, normalised values and gradients. A thread takes a channel, or a group, at a time."""

from __future__ import annotations

import numpy as np

from . import threads
from .compiling import inlined, kernel, summing, take
from .rows import row_deviation, row_sum
from .scalar import like


def as_channels(x):
    """x as a dense (N, C, S)."""
    return np.ascontiguousarray(x).reshape(x.shape[0], x.shape[1], -1)


@kernel
def _moments(x, means, variances, queue):
    samples, channels, places = x.shape
    count = samples * places
    while True:
        c = take(queue)
        if c >= channels:
            return
        total = 0.0
        for n in range(samples):
            total += row_sum(x[n, c])
        mean = like(x[0, 0, 0], total / count)
        total = 0.0
        for n in range(samples):
            total += row_deviation(x[n, c], mean)
        means[c], variances[c] = mean, total / count


@kernel
def _normalize(x, means, scales, weight, bias, out, queue):
    samples, channels, _places = x.shape
    while True:
        c = take(queue)
        if c >= channels:
            return
        mean, scale, w, b = means[c], scales[c], weight[c], bias[c]
        for n in range(samples):
            row, result = x[n, c], out[n, c]
            for i in range(result.size):
                result[i] = (row[i] - mean) * scale * w + b


@summing
def _gradient_sums(gradient, row, mean, scale):
    """The sums of g, and of g times the normalised row."""
    plain, along = like(mean, 0), like(mean, 0)
    for i in range(row.size):
        plain += gradient[i]
        along += gradient[i] * ((row[i] - mean) * scale)
    return plain, along


@kernel
def _gradient(g, x, means, scales, weight, out, of_weight, of_bias, queue):
    samples, channels, places = x.shape
    count = samples * places
    while True:
        c = take(queue)
        if c >= channels:
            return
        mean, scale = means[c], scales[c]
        plain, along = 0.0, 0.0
        for n in range(samples):
            a, b = _gradient_sums(g[n, c], x[n, c], mean, scale)
            plain += a
            along += b
        of_bias[c], of_weight[c] = plain, along
        factor = scale * weight[c]
        mean_g, mean_along = like(mean, plain / count), like(mean, along / count)
        for n in range(samples):
            row, gradient, result = x[n, c], g[n, c], out[n, c]
            for i in range(result.size):
                result[i] = (gradient[i] - mean_g - (row[i] - mean) * scale * mean_along) * factor


def moments(x):
    """The mean and the variance (of the population) of each channel, each (C)."""
    x = as_channels(x)
    means, variances = np.empty(x.shape[1], x.dtype), np.empty(x.shape[1], x.dtype)
    threads.run(_moments, x.shape[1], x, means, variances)
    return means, variances


def _or(value, neutral, means):
    return np.full_like(means, neutral) if value is None else np.ascontiguousarray(value)


def normalize(x, means, scales, weight, bias):
    """(x - mean) * scale * weight + bias for each channel."""
    out = np.empty(x.shape, x.dtype)
    threads.run(
        _normalize, x.shape[1], as_channels(x), means, scales, _or(weight, 1, means), _or(bias, 0, means), as_channels(out)
    )
    return out


def gradient(g, x, means, scales, weight):
    """The gradients of x, weight and bias, where means and scales are those of x and change with it."""
    out, of_weight, of_bias = np.empty(x.shape, x.dtype), np.empty_like(means), np.empty_like(means)
    arguments = as_channels(g), as_channels(x), means, scales, _or(weight, 1, means), as_channels(out)
    threads.run(_gradient, x.shape[1], *arguments, of_weight, of_bias)
    return out, of_weight, of_bias


# Group norm: statistics of each sample's groups of channels


@inlined
def _group_moments(x, n, first, size, count, eps):
    """The mean and 1 / sqrt(variance + eps) of a sample's channels from `first` on, which have `count` numbers."""
    total = 0.0
    for c in range(first, first + size):
        total += row_sum(x[n, c])
    mean = like(eps, total / count)
    total = 0.0
    for c in range(first, first + size):
        total += row_deviation(x[n, c], mean)
    return mean, like(eps, 1) / np.sqrt(like(eps, total / count) + eps)


@kernel
def _group_norm(x, groups, eps, weight, bias, out, queue):
    samples, channels, places = x.shape
    size = channels // groups
    count = like(eps, size * places)
    while True:
        chunk = take(queue)
        if chunk >= samples * groups:
            return
        n, first = chunk // groups, chunk % groups * size
        mean, scale = _group_moments(x, n, first, size, count, eps)
        for c in range(first, first + size):
            row, result, w, b = x[n, c], out[n, c], weight[c], bias[c]
            for i in range(result.size):
                result[i] = (row[i] - mean) * scale * w + b


@kernel
def _group_norm_gradient(g, x, groups, eps, weight, out, sums, queue):
    """sums (2, N, C) take each sample's part of the gradients of weight and bias."""
    samples, channels, places = x.shape
    size = channels // groups
    count = like(eps, size * places)
    while True:
        chunk = take(queue)
        if chunk >= samples * groups:
            return
        n, first = chunk // groups, chunk % groups * size
        mean, scale = _group_moments(x, n, first, size, count, eps)
        plain, along = 0.0, 0.0
        for c in range(first, first + size):
            a, b = _gradient_sums(g[n, c], x[n, c], mean, scale)
            sums[0, n, c], sums[1, n, c] = b, a
            plain += a * weight[c]
            along += b * weight[c]
        mean_g, mean_along = like(eps, plain / count), like(eps, along / count)
        for c in range(first, first + size):
            row, gradient, result, w = x[n, c], g[n, c], out[n, c], weight[c]
            for i in range(result.size):
                result[i] = (gradient[i] * w - mean_g - (row[i] - mean) * scale * mean_along) * scale


def group_norm(x, weight, bias, groups, eps):
    """The array function of native_group_norm."""
    out, ones = np.empty(x.shape, x.dtype), np.empty(x.shape[1], x.dtype)
    arguments = as_channels(x), groups, x.dtype.type(eps), _or(weight, 1, ones), _or(bias, 0, ones), as_channels(out)
    threads.run(_group_norm, x.shape[0] * groups, *arguments)
    return out


def group_norm_gradient(g, x, weight, groups, eps):
    """The gradients of x, weight and bias."""
    out, sums = np.empty(x.shape, x.dtype), np.empty((2, *x.shape[:2]), x.dtype)
    weight = _or(weight, 1, sums[0, 0])
    threads.run(
        _group_norm_gradient,
        x.shape[0] * groups,
        as_channels(g),
        as_channels(x),
        groups,
        x.dtype.type(eps),
        weight,
        as_channels(out),
        sums,
    )
    return out, *np.add.reduce(sums, 1)
