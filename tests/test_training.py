"""Whole training runs against PyTorch: the losses are equal to six digits."""

import numpy as np
import pytest
import torch

import backlight

BOTH = (torch, backlight)


def losses_of(lib, build, optimizer_of, loss_name, data, target, steps):
    """The printed loss of every step, with the same seed and the same data."""
    lib.manual_seed(0)
    nn = lib.nn
    model = build(nn)
    optimizer = optimizer_of(lib.optim, model.parameters())
    loss_fn = getattr(nn, loss_name)()
    x, y = lib.tensor(data), lib.tensor(target)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_same_losses(*args):
    theirs, ours = (losses_of(lib, *args) for lib in BOTH)
    assert theirs[-1] < theirs[0]
    np.testing.assert_allclose(ours, theirs, rtol=5e-6, atol=1e-6)


def mlp(nn):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))


OPTIMIZERS = {
    "sgd": lambda optim, params: optim.SGD(params, lr=0.1),
    "nesterov": lambda optim, params: optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda optim, params: optim.Adam(params, lr=0.01),
    "amsgrad": lambda optim, params: optim.Adam(params, lr=0.01, amsgrad=True, weight_decay=1e-3),
    "adamw": lambda optim, params: optim.AdamW(params, lr=0.01, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("loss_name", ["MSELoss", "CrossEntropyLoss"])
def test_mlp(name, loss_name):
    rng = np.random.default_rng(1)
    data = rng.standard_normal((32, 8)).astype("float32")
    of_mse = loss_name == "MSELoss"
    target = rng.standard_normal((32, 3)).astype("float32") if of_mse else rng.integers(0, 3, 32)
    assert_same_losses(mlp, OPTIMIZERS[name], loss_name, data, target, 100)


def convnet(nn):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32, 5),
    )


@pytest.mark.parametrize("name", ["nesterov", "adam", "adamw"])
def test_convnet(name):
    rng = np.random.default_rng(2)
    data = rng.standard_normal((16, 1, 10, 10)).astype("float32")
    target = rng.integers(0, 5, 16)
    assert_same_losses(convnet, OPTIMIZERS[name], "CrossEntropyLoss", data, target, 100)


def test_embedding_and_layer_norm():
    def build(nn):
        return nn.Sequential(
            nn.Embedding(11, 6, padding_idx=0),
            nn.LayerNorm(6),
            nn.Linear(6, 12),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Flatten(),
            nn.Linear(48, 4),
        )

    rng = np.random.default_rng(3)
    assert_same_losses(build, OPTIMIZERS["adamw"], "CrossEntropyLoss", rng.integers(0, 11, (24, 4)), rng.integers(0, 4, 24), 50)


def test_clipping_and_evaluation():
    rng = np.random.default_rng(4)
    data = rng.standard_normal((32, 8)).astype("float32")
    target = (rng.standard_normal((32, 3)) > 0).astype("float32")
    results = []
    for lib in BOTH:
        lib.manual_seed(7)
        model = lib.nn.Sequential(
            lib.nn.Linear(8, 16), lib.nn.BatchNorm1d(16), lib.nn.SiLU(), lib.nn.Dropout(), lib.nn.Linear(16, 3)
        )
        optimizer = lib.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        loss_fn = lib.nn.BCEWithLogitsLoss()
        x, y = lib.tensor(data), lib.tensor(target)
        history = []
        for _ in range(30):
            model.train()
            model.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            model.eval()
            with lib.no_grad():
                history.append([loss.item(), norm.item(), loss_fn(model(x), y).item()])
        results.append(history)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_scheme_of_a_gan():
    """Two networks, two optimizers, a detached tensor and gradients that are left over."""
    rng = np.random.default_rng(5)
    real = rng.standard_normal((16, 2)).astype("float32") + 2
    results = []
    for lib in BOTH:
        lib.manual_seed(3)
        nn = lib.nn
        generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        judge = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1), nn.Sigmoid())
        by_generator = lib.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.999))
        by_judge = lib.optim.Adam(judge.parameters(), lr=0.01, betas=(0.5, 0.999))
        loss_fn = nn.BCELoss()
        truth = lib.tensor(real)
        history = []
        for _ in range(20):
            fake = generator(lib.randn(16, 4))
            by_judge.zero_grad()
            loss = loss_fn(judge(truth), lib.ones(16, 1)) + loss_fn(judge(fake.detach()), lib.zeros(16, 1))
            loss.backward()
            by_judge.step()
            by_generator.zero_grad()
            fooled = loss_fn(judge(fake), lib.ones(16, 1))
            fooled.backward()
            by_generator.step()
            history.append([loss.item(), fooled.item()])
        results.append(history)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)
