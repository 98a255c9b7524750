"""Averages of weights: stochastic weight averaging with a schedule of its own, and an exponential moving average.

Izmailov et al., "Averaging weights leads to wider optima and better generalization", 2018.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_breast_cancer
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset


def network():
    return nn.Sequential(
        nn.Linear(30, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
    )


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    logits = model(x).squeeze(1)
    return F.binary_cross_entropy_with_logits(logits, y).item(), ((logits > 0) == (y > 0.5)).float().mean().item()


def main():
    torch.manual_seed(28)
    data = load_breast_cancer()
    x, y = torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target, dtype=torch.float32)
    x = (x - x.mean(0)) / x.std(0)
    order = torch.randperm(len(x))
    train, test = order[:400], order[400:]
    loader = DataLoader(TensorDataset(x[train], y[train]), batch_size=40, shuffle=True)

    model = network()
    swa_model = AveragedModel(model)
    ema_model = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95), use_buffers=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    swa_scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=4, anneal_strategy="cos")
    for epoch in range(1, 26):
        model.train()
        total = 0.0
        for step, (inputs, targets) in enumerate(loader):
            loss = F.binary_cross_entropy_with_logits(model(inputs).squeeze(1), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema_model.update_parameters(model)
            total += loss.item() / len(loader)
            if epoch == 1 and step == 0:
                print(f"first loss {loss.item():.7f}")
        if epoch > 12:
            swa_model.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
        if epoch % 5 == 0:
            print(f"epoch {epoch:2d}  loss {total:.5f}  lr {optimizer.param_groups[0]['lr']:.6f}")
    update_bn(loader, swa_model)
    print("models averaged", swa_model.n_averaged.item(), ema_model.n_averaged.item())
    for name, each in (("last", model), ("SWA", swa_model), ("EMA", ema_model)):
        loss, accuracy = evaluate(each, x[test], y[test])
        print(f"{name:4s}  test loss {loss:.5f}  accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
