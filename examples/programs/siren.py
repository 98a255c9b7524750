"""A network of sines that represents an image, and its derivatives: fitted to values, then to gradients only.

Sitzmann et al., "Implicit neural representations with periodic activation functions", 2020.
"""

import math

import torch
import torch.nn as nn
from sklearn.datasets import load_digits


class SineLayer(nn.Module):
    def __init__(self, inputs, outputs, is_first=False, omega_0=12.0):
        super().__init__()
        self.omega_0 = omega_0
        self.linear = nn.Linear(inputs, outputs)
        with torch.no_grad():
            bound = 1 / inputs if is_first else math.sqrt(6 / inputs) / omega_0
            self.linear.weight.uniform_(-bound, bound)

    def forward(self, x):
        return torch.sin(self.omega_0 * self.linear(x))


class Siren(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(SineLayer(2, hidden, is_first=True), SineLayer(hidden, hidden), nn.Linear(hidden, 1))

    def forward(self, coordinates):
        coordinates = coordinates.clone().detach().requires_grad_(True)
        return self.net(coordinates), coordinates


def gradient(y, x):
    return torch.autograd.grad(y, [x], grad_outputs=torch.ones_like(y), create_graph=True)[0]


def laplace(y, x):
    g = gradient(y, x)
    return sum(torch.autograd.grad(g[..., i], x, torch.ones_like(g[..., i]), create_graph=True)[0][..., i] for i in range(2))


def main():
    torch.manual_seed(22)
    image = torch.tensor(load_digits().images[3], dtype=torch.float32)[None, None] / 8 - 1
    image = torch.nn.functional.interpolate(image, size=16, mode="bicubic", align_corners=True)[0, 0]
    side = torch.linspace(-1, 1, 16)
    coordinates = torch.stack(torch.meshgrid(side, side, indexing="ij"), dim=-1).reshape(-1, 2)
    target = image.reshape(-1, 1)

    model = Siren()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, 301):
        output, _ = model(coordinates)
        loss = ((output - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1:
            print(f"first loss {loss.item():.7f}")
        if step % 60 == 0:
            print(f"step {step:3d}  loss {loss.item():.6f}")
    output, x = model(coordinates)
    slope, curvature = gradient(output, x), laplace(output, x)
    print(f"slope {slope.norm(dim=1).mean().item():.4f}  curvature {curvature.abs().mean().item():.2f}")

    spacing = (2 / 15,)
    slopes = torch.stack(torch.gradient(image, spacing=spacing * 2), dim=-1).reshape(-1, 2)
    poisson = Siren()
    optimizer = torch.optim.Adam(poisson.parameters(), lr=1e-3)
    for step in range(1, 101):
        output, x = poisson(coordinates)
        loss = ((gradient(output, x) - slopes) ** 2).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"from gradients, step {step:3d}  loss {loss.item():.5f}")
    with torch.no_grad():
        restored = poisson(coordinates)[0]
        restored, target = restored - restored.mean(), target - target.mean()
        correlation = (restored * target).sum() / (restored.norm() * target.norm())
    print(f"correlation of the image restored from gradients {correlation.item():.3f}")


if __name__ == "__main__":
    main()
