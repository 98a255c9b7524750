"""A Wasserstein GAN with gradient penalty: the critic's loss contains the gradient of its output (double backward).

Gulrajani et al., "Improved training of Wasserstein GANs", 2017.
"""

import math

import torch
import torch.nn as nn
from torch import autograd

torch.set_default_dtype(torch.float64)


def network(inputs, outputs, hidden=48):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


def eight_gaussians(n):
    angle = torch.randint(0, 8, (n,)) * (2 * math.pi / 8)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def gradient_penalty(critic, real, fake):
    epsilon = torch.rand(len(real), 1)
    mixed = (epsilon * real + (1 - epsilon) * fake).requires_grad_(True)
    scores = critic(mixed)
    (gradients,) = autograd.grad(
        outputs=scores, inputs=mixed, grad_outputs=torch.ones_like(scores), create_graph=True, retain_graph=True
    )
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def main():
    torch.manual_seed(6)
    generator, critic = network(3, 2), network(2, 1)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.0, 0.9))
    optimizer_c = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.0, 0.9))
    n, penalty_weight = 64, 1.0
    for step in range(151):
        for parameter in critic.parameters():
            parameter.requires_grad_(True)
        for _ in range(4):
            real = eight_gaussians(n)
            with torch.no_grad():
                fake = generator(torch.randn(n, 3))
            penalty = gradient_penalty(critic, real, fake)
            distance = critic(real).mean() - critic(fake).mean()
            loss = -distance + penalty_weight * penalty
            optimizer_c.zero_grad()
            loss.backward()
            optimizer_c.step()
        for parameter in critic.parameters():
            parameter.requires_grad_(False)
        optimizer_g.zero_grad()
        loss_g = -critic(generator(torch.randn(n, 3))).mean()
        loss_g.backward()
        optimizer_g.step()
        if step % 25 == 0:
            print(f"step {step:3d}  distance {distance.item():.7f}  penalty {penalty.item():.7f}  G {loss_g.item():.6f}")
    with torch.no_grad():
        samples = generator(torch.randn(2000, 3))
    print(f"mean radius {samples.norm(dim=1).mean().item():.4f}")
    sectors = (torch.atan2(samples[:, 1], samples[:, 0]) / (2 * math.pi / 8)).round().long() % 8
    print("sectors reached", int((torch.bincount(sectors, minlength=8) > 0).sum()))


if __name__ == "__main__":
    main()
