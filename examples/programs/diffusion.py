"""A denoising diffusion model of points on a spiral.

Ho, Jain and Abbeel, "Denoising diffusion probabilistic models", 2020; Nichol and Dhariwal, "Improved denoising
diffusion probabilistic models", 2021 (the cosine schedule).
"""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 40


class TimeEmbedding(nn.Module):
    def __init__(self, size):
        super().__init__()
        frequencies = torch.exp(-math.log(1000.0) * torch.arange(size // 2) / (size // 2))
        self.register_buffer("frequencies", frequencies)

    def forward(self, t):
        angles = t.float().unsqueeze(1) * self.frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class Denoiser(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.time = nn.Sequential(TimeEmbedding(16), nn.Linear(16, hidden), nn.SiLU())
        self.inner = nn.Linear(2, hidden)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU()) for _ in range(2))
        self.outer = nn.Linear(hidden, 2)

    def forward(self, x, t):
        time, h = self.time(t), self.inner(x)
        for block in self.blocks:
            h = h + block(h + time)
        return self.outer(h)


class Diffusion:
    def __init__(self):
        t = torch.linspace(0, 1, STEPS + 1, dtype=torch.float64)
        bar = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        self.betas = (1 - bar[1:] / bar[:-1]).clamp(max=0.999).float()
        self.alphas = 1 - self.betas
        self.alphas_bar = self.alphas.cumprod(0)

    def noise(self, x, t, eps):
        a = self.alphas_bar[t].unsqueeze(1)
        return a.sqrt() * x + (1 - a).sqrt() * eps

    @torch.no_grad()
    def sample(self, model, n):
        x = torch.randn(n, 2)
        for t in reversed(range(STEPS)):
            eps = model(x, torch.full((n,), t))
            x = (x - self.betas[t] / (1 - self.alphas_bar[t]).sqrt() * eps) / self.alphas[t].sqrt()
            if t:
                x = x + self.betas[t].sqrt() * torch.randn_like(x)
        return x


def spiral(n):
    angle = 3 * math.pi * torch.rand(n).sqrt()
    points = torch.stack([angle * angle.cos(), angle * angle.sin()], 1) / 6
    return points + 0.02 * torch.randn(n, 2)


def main():
    torch.manual_seed(21)
    model, diffusion = Denoiser(), Diffusion()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, 401):
        x = spiral(256)
        t, eps = torch.randint(0, STEPS, (256,)), torch.randn(256, 2)
        loss = F.mse_loss(model(diffusion.noise(x, t, eps), t), eps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.lerp_(p, 0.02)
        if step == 1:
            print(f"first loss {loss.item():.7f}")
        if step % 80 == 0:
            print(f"step {step:3d}  loss {loss.item():.6f}")
    samples, data = diffusion.sample(average, 500), spiral(2000)
    nearest = torch.cdist(samples, data).min(dim=1).values
    print(f"distance of samples from the spiral {nearest.mean().item():.4f}")
    print(f"spread of samples {samples.std(0).mean().item():.4f}, of data {data.std(0).mean().item():.4f}")


if __name__ == "__main__":
    main()
