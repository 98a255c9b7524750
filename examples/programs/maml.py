"""Model-agnostic meta-learning of sines: the gradient of a loss after a gradient step.

Finn, Abbeel and Levine, "Model-agnostic meta-learning for fast adaptation of deep networks", 2017.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call


def sine_task():
    amplitude, phase = 0.5 + 2 * torch.rand(()), math.pi * torch.rand(())

    def draw(n):
        x = 6 * torch.rand(n, 1) - 3
        return x, amplitude * torch.sin(x + phase)

    return draw


class Net(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.layers(x)


def adapt(model, parameters, x, y, lr=0.03, steps=1, create_graph=True):
    for _ in range(steps):
        loss = F.mse_loss(functional_call(model, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=create_graph)
        parameters = {name: p - lr * g for (name, p), g in zip(parameters.items(), gradients)}
    return parameters


def main():
    torch.manual_seed(23)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for iteration in range(1, 151):
        outer = 0.0
        for _ in range(4):
            draw = sine_task()
            fast = adapt(model, dict(model.named_parameters()), *draw(10))
            x, y = draw(10)
            outer = outer + F.mse_loss(functional_call(model, fast, (x,)), y) / 4
        optimizer.zero_grad()
        outer.backward()
        optimizer.step()
        if iteration == 1:
            print(f"first loss {outer.item():.7f}")
        if iteration % 30 == 0:
            print(f"iteration {iteration:3d}  loss after adaptation {outer.item():.5f}")

    before = after = 0.0
    for _ in range(50):
        draw = sine_task()
        support, (x, y) = draw(10), draw(50)
        parameters = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
        fast = adapt(model, parameters, *support, steps=5, create_graph=False)
        with torch.no_grad():
            before += F.mse_loss(model(x), y).item() / 50
            after += F.mse_loss(functional_call(model, fast, (x,)), y).item() / 50
    print(f"new tasks: before adaptation {before:.4f}, after five steps {after:.4f}")


if __name__ == "__main__":
    main()
