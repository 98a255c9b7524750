"""A normalising flow of affine coupling layers (RealNVP) that learns the density of two moons.

Dinh, Sohl-Dickstein and Bengio, "Density estimation using Real NVP", 2017.
"""

import math

import torch
import torch.nn as nn
from torch.distributions import (
    AffineTransform,
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
    constraints,
)
from torch.distributions.transforms import Transform


class Coupling(Transform, nn.Module):
    """One coordinate is scaled and shifted by functions of the other."""

    domain = codomain = constraints.real_vector
    bijective = True

    def __init__(self, flip, hidden=32):
        nn.Module.__init__(self)
        Transform.__init__(self, cache_size=1)
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    __call__ = Transform.__call__
    __hash__ = nn.Module.__hash__

    def _parameters_for(self, kept):
        log_scale, shift = self.net(kept).chunk(2, dim=-1)
        return torch.tanh(log_scale), shift

    def _halves(self, v):
        a, b = v[..., :1], v[..., 1:]
        return (b, a) if self.flip else (a, b)

    def _join(self, kept, changed):
        return torch.cat([changed, kept] if self.flip else [kept, changed], dim=-1)

    def _call(self, x):
        kept, changed = self._halves(x)
        log_scale, shift = self._parameters_for(kept)
        return self._join(kept, changed * log_scale.exp() + shift)

    def _inverse(self, y):
        kept, changed = self._halves(y)
        log_scale, shift = self._parameters_for(kept)
        return self._join(kept, (changed - shift) * (-log_scale).exp())

    def log_abs_det_jacobian(self, x, y):  # noqa: ARG002
        return self._parameters_for(self._halves(x)[0])[0].sum(-1)


def two_moons(n):
    angle = math.pi * torch.rand(n)
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return torch.stack([x, y], dim=1) + 0.1 * torch.randn(n, 2)


def main():
    torch.manual_seed(20)
    layers = nn.ModuleList(Coupling(flip=i % 2 == 1) for i in range(5))
    loc, log_scale = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))

    def flow():
        base = MultivariateNormal(torch.zeros(2), torch.eye(2))
        return TransformedDistribution(base, [*layers, AffineTransform(loc, log_scale.exp(), event_dim=1)])

    optimizer = torch.optim.Adam([*layers.parameters(), loc, log_scale], lr=5e-3)
    for step in range(1, 201):
        loss = -flow().log_prob(two_moons(128)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1:
            print(f"first loss {loss.item():.7f}")
        if step % 40 == 0:
            print(f"step {step:3d}  loss {loss.item():.5f}")
    with torch.no_grad():
        model, test = flow(), two_moons(1000)
        print(f"test likelihood {model.log_prob(test).mean().item():.5f}")
        for name, simple in {
            "normal": MultivariateNormal(test.mean(0), torch.cov(test.T)),
            "independent": Independent(Normal(test.mean(0), test.std(0)), 1),
            "low rank": LowRankMultivariateNormal(test.mean(0), torch.tensor([[0.5], [-0.2]]), torch.tensor([0.5, 0.2])),
        }.items():
            print(f"{name} likelihood {simple.log_prob(test).mean().item():.5f}")
        sample = model.sample((1000,))
        print("sample mean", [f"{v:.3f}" for v in sample.mean(0).tolist()])


if __name__ == "__main__":
    main()
