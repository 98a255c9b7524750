"""A physics-informed neural network for Burgers' equation u_t + u u_x = 0.1 u_xx.

Raissi, Perdikaris and Karniadakis, "Physics-informed neural networks", 2019.
"""

import math

import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)

VISCOSITY = 0.1


class PINN(nn.Module):
    def __init__(self, hidden=24, depth=3):
        super().__init__()
        sizes = [2] + [hidden] * depth
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(hidden, 1))
        for module in self.net:
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x, t):
        return self.net(torch.stack([x, t], dim=1)).squeeze(1)


def grad(outputs, inputs):
    return torch.autograd.grad(outputs, inputs, torch.ones_like(outputs), create_graph=True)[0]


def residual(model, x, t):
    u = model(x, t)
    u_x, u_t = grad(u, x), grad(u, t)
    return u_t + u * u_x - VISCOSITY * grad(u_x, x)


def reference(x, t, terms=2000):
    """The solution by Cole and Hopf's transformation: a quotient of two integrals."""
    y = torch.linspace(-4, 4, terms)
    potential = (torch.cos(math.pi * y) - 1) / math.pi
    exponent = -((x.unsqueeze(1) - y) ** 2) / (4 * VISCOSITY * t) - potential / (2 * VISCOSITY)
    weights = torch.softmax(exponent, dim=1)
    return ((x.unsqueeze(1) - y) / t * weights).sum(1)


def main():
    torch.manual_seed(18)
    model = PINN()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[150, 250], gamma=0.3)
    x0 = torch.linspace(-1, 1, 50)
    u0 = -torch.sin(math.pi * x0)
    for step in range(1, 301):
        x = (2 * torch.rand(200) - 1).requires_grad_()
        t = torch.rand(200).requires_grad_()
        edge = torch.rand(25)
        physics = residual(model, x, t).square().mean()
        initial = (model(x0, torch.zeros(50)) - u0).square().mean()
        boundary = model(torch.ones(25), edge).square().mean() + model(-torch.ones(25), edge).square().mean()
        loss = physics + 10 * initial + boundary
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step == 1 or step % 60 == 0:
            print(f"step {step:3d}  loss {loss.item():.8f}  physics {physics.item():.8f}  initial {initial.item():.8f}")
    with torch.no_grad():
        x = torch.linspace(-0.9, 0.9, 19)
        u = model(x, torch.full_like(x, 0.5))
        error = (u - reference(x, 0.5)).abs().max()
    print(f"u(-0.5, 0.5) = {u[4].item():.4f}, largest error {error.item():.4f}")


if __name__ == "__main__":
    main()
