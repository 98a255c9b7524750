"""A generative adversarial network of points on a ring.

Goodfellow et al., "Generative adversarial nets", 2014; Radford, Metz and Chintala, "Unsupervised representation
learning with deep convolutional generative adversarial networks", 2016 (its optimizer and initialisation).
"""

import math

import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)


def weights_init(module):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0.0, 0.2)
        nn.init.zeros_(module.bias)


class Generator(nn.Module):
    def __init__(self, noise=4, hidden=64):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(noise, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(True),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(True),
            nn.Linear(hidden, 2),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(2, hidden),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(hidden, 1),
        )

    def forward(self, x):
        return self.main(x).squeeze(1)


def real_batch(n):
    angle = 2 * math.pi * torch.rand(n)
    ring = torch.stack([angle.cos(), angle.sin()], 1)
    return ring + 0.05 * torch.randn(n, 2)


def main():
    torch.manual_seed(5)
    generator, discriminator = Generator(), Discriminator()
    generator.apply(weights_init)
    discriminator.apply(weights_init)
    criterion = nn.BCEWithLogitsLoss()
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    n = 128
    ones, zeros = torch.ones(n), torch.zeros(n)
    for step in range(401):
        fake = generator(torch.randn(n, 4))
        optimizer_d.zero_grad()
        loss_d = criterion(discriminator(real_batch(n)), ones) + criterion(discriminator(fake.detach()), zeros)
        loss_d.backward()
        optimizer_d.step()

        optimizer_g.zero_grad()
        loss_g = criterion(discriminator(fake), ones)
        loss_g.backward()
        optimizer_g.step()
        if step % 80 == 0:
            radius = fake.detach().norm(dim=1)
            print(f"step {step:3d}  D {loss_d.item():.7f}  G {loss_g.item():.7f}  radius {radius.mean().item():.5f}")
    generator.eval()
    with torch.no_grad():
        radius = generator(torch.randn(1000, 4)).norm(dim=1)
    print(f"radius of samples {radius.mean().item():.4f} +- {radius.std().item():.4f}")


if __name__ == "__main__":
    main()
