"""Identity maps of images: places at pixels' centres, where rounding decides which neighbour's slope a gradient takes."""

import numpy as np
import pytest
import torch

import backlight


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(5, 8), (12, 16), (28, 28), (2, 7), (7, 8, 12)])
@pytest.mark.parametrize("align_corners", [False, True])
def test_identity(shape, align_corners, dtype):
    n = len(shape)
    size = (1, 2, *shape)
    image = np.random.default_rng(0).normal(size=size).astype(dtype)
    found = []
    for lib in (torch, backlight):
        F = lib.nn.functional
        theta = lib.eye(n, n + 1, dtype=getattr(lib, dtype)).unsqueeze(0)
        grid = F.affine_grid(theta, size, align_corners=align_corners).requires_grad_()
        y = F.grid_sample(lib.from_numpy(image), grid, align_corners=align_corners)
        (g,) = lib.autograd.grad((y * y).sum(), grid)
        found.append((grid.detach().numpy(), g.numpy()))
    (their_grid, theirs), (our_grid, ours) = found
    assert (their_grid == our_grid).all()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
