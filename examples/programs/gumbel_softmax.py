"""A variational autoencoder with categorical codes, relaxed so that gradients pass.

Jang, Gu and Poole, "Categorical reparameterization with Gumbel-softmax", 2017.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.distributions import Categorical, OneHotCategorical, RelaxedOneHotCategorical, kl_divergence

CODES, VALUES = 6, 4


class CategoricalVAE(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ELU(), nn.Linear(hidden, CODES * VALUES))
        self.decoder = nn.Sequential(nn.Linear(CODES * VALUES, hidden), nn.ELU(), nn.Linear(hidden, 64))

    def forward(self, x, temperature):
        logits = self.encoder(x).view(-1, CODES, VALUES)
        code = RelaxedOneHotCategorical(temperature, logits=logits).rsample()
        prior = OneHotCategorical(logits=torch.zeros_like(logits))
        return self.decoder(code.flatten(1)), kl_divergence(OneHotCategorical(logits=logits), prior).sum(1)


def main():
    torch.manual_seed(32)
    x = (torch.tensor(load_digits().data, dtype=torch.float32) > 7).float()
    train, test = x[:1500], x[1500:]
    model = CategoricalVAE()
    optimizer = torch.optim.NAdam(model.parameters(), lr=3e-3)
    for epoch in range(1, 13):
        temperature = torch.tensor(max(0.5, 1.0 * 0.93 ** (epoch - 1)))
        total = 0.0
        for step, batch in enumerate(train[torch.randperm(1500)].split(100)):
            logits, kl = model(batch, temperature)
            likelihood = -F.binary_cross_entropy_with_logits(logits, batch, reduction="none").sum(1)
            loss = (kl - likelihood).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 15
            if epoch == 1 and step == 0:
                print(f"first loss {loss.item():.7f}")
        if epoch % 3 == 0:
            print(f"epoch {epoch:2d}  loss {total:.5f}  temperature {temperature.item():.4f}")
    with torch.no_grad():
        logits = model.encoder(test).view(-1, CODES, VALUES)
        usage = Categorical(probs=F.one_hot(logits.argmax(2), VALUES).float().mean(0))
        hard = F.gumbel_softmax(logits, tau=0.5, hard=True)
        loss = F.binary_cross_entropy_with_logits(model.decoder(hard.flatten(1)), test, reduction="sum") / len(test)
    print(f"test loss with hard codes {loss.item():.4f}")
    print(f"perplexity of the codes {usage.perplexity().mean().item():.4f}")


if __name__ == "__main__":
    main()
