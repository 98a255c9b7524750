"""A variational autoencoder of handwritten digits.

Kingma and Welling, "Auto-encoding variational Bayes", 2014.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.distributions import Bernoulli, Independent, Normal, kl_divergence
from torch.utils.data import DataLoader


class VAE(nn.Module):
    def __init__(self, latent=4, hidden=96):
        super().__init__()
        self.fc1 = nn.Linear(64, hidden)
        self.mean = nn.Linear(hidden, latent)
        self.log_std = nn.Linear(hidden, latent)
        self.fc2 = nn.Linear(latent, hidden)
        self.logits = nn.Linear(hidden, 64)
        self.register_buffer("zeros", torch.zeros(latent))

    @property
    def prior(self):
        return Independent(Normal(self.zeros, self.zeros + 1), 1)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return Independent(Normal(self.mean(h), self.log_std(h).exp()), 1)

    def decode(self, z):
        return Independent(Bernoulli(logits=self.logits(F.relu(self.fc2(z)))), 1)

    def elbo(self, x):
        posterior = self.encode(x)
        z = posterior.rsample()
        return self.decode(z).log_prob(x), kl_divergence(posterior, self.prior)


def main():
    torch.manual_seed(4)
    images = (torch.tensor(load_digits().data, dtype=torch.float32) > 7).float()
    train, test = images[:1500], images[1500:]
    loader = DataLoader(train, batch_size=100, shuffle=True)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-3)
    for epoch in range(1, 9):
        likelihood = divergence = 0.0
        for step, x in enumerate(loader):
            log_likelihood, kl = model.elbo(x)
            loss = (kl - log_likelihood).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            likelihood += log_likelihood.sum().item()
            divergence += kl.sum().item()
            if epoch == 1 and step == 0:
                print(f"first loss {loss.item():.7f}")
        if epoch % 2 == 0:
            print(f"epoch {epoch:2d}  log likelihood {likelihood / 1500:.5f}  divergence {divergence / 1500:.5f}")
    with torch.no_grad():
        log_likelihood, kl = model.elbo(test)
        print(f"test elbo {(log_likelihood - kl).mean().item():.5f}")
        # The importance weighted bound of Burda et al., 2016
        posterior = model.encode(test)
        z = posterior.sample((20,))
        weights = model.decode(z).log_prob(test) + model.prior.log_prob(z) - posterior.log_prob(z)
        bound = (weights.logsumexp(0) - torch.log(torch.tensor(20.0))).mean()
        print(f"test bound {bound.item():.5f}")
        samples = model.decode(model.prior.sample((3,))).mean
        print("brightness of samples", [f"{v:.4f}" for v in samples.mean(-1).tolist()])


if __name__ == "__main__":
    main()
