"""A Bayesian neural network: each weight is a normal distribution, trained by the reparametrisation trick.

Blundell, Cornebise, Kavukcuoglu and Wierstra, "Weight uncertainty in neural networks", 2015.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_diabetes
from torch.distributions import Gamma, Normal, StudentT, kl_divergence


class BayesianLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.mean = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.rho = nn.Parameter(torch.full((outputs, inputs), -4.0))
        self.bias = nn.Parameter(torch.zeros(outputs))

    @property
    def posterior(self):
        return Normal(self.mean, F.softplus(self.rho))

    def forward(self, x):
        return F.linear(x, self.posterior.rsample(), self.bias)

    def divergence(self):
        return kl_divergence(self.posterior, Normal(torch.zeros_like(self.mean), 0.5)).sum()


class Net(nn.Module):
    """Predicts a Student t distribution, whose precision has a gamma posterior of its own."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([BayesianLinear(10, 16), BayesianLinear(16, 1)])
        self.log_concentration = nn.Parameter(torch.tensor(1.0))
        self.log_rate = nn.Parameter(torch.tensor(1.0))

    @property
    def precision(self):
        return Gamma(self.log_concentration.exp(), self.log_rate.exp())

    def forward(self, x):
        mean = self.layers[1](torch.tanh(self.layers[0](x))).squeeze(1)
        return StudentT(5.0, mean, self.precision.rsample().rsqrt())

    def divergence(self):
        return sum(layer.divergence() for layer in self.layers) + kl_divergence(self.precision, Gamma(2.0, 1.0))


def main():
    torch.manual_seed(31)
    data = load_diabetes()
    x, y = torch.tensor(data.data, dtype=torch.float32) * 20, torch.tensor((data.target - 150) / 75, dtype=torch.float32)
    train_x, train_y, test_x, test_y = x[:340], y[:340], x[340:], y[340:]
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, 251):
        loss = (model.divergence() - model(train_x).log_prob(train_y).sum()) / len(train_x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1:
            print(f"first loss {loss.item():.7f}")
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss.item():.6f}  precision {model.precision.mean.item():.5f}")
    with torch.no_grad():
        log_probs = torch.stack([model(test_x).log_prob(test_y) for _ in range(30)])
        means = torch.stack([model(test_x).mean for _ in range(30)])
    likelihood = (log_probs.logsumexp(0) - torch.log(torch.tensor(30.0))).mean()
    print(f"test likelihood {likelihood.item():.4f}")
    print(f"root mean square error {(means.mean(0) - test_y).square().mean().sqrt().item():.4f}")
    print(f"spread of the predictions {means.std(0).mean().item():.4f}")


if __name__ == "__main__":
    main()
