"""A multilayer perceptron with dropout on handwritten digits.

Rumelhart, Hinton and Williams, "Learning representations by back-propagating errors", 1986;
Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split


class MLP(nn.Module):
    def __init__(self, hidden=128, dropout=0.2):
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 10),
        )

    def forward(self, x):
        return self.net(x)


def train(model, loader, optimizer):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
    return total / len(loader.dataset)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = sum((model(x).argmax(dim=1) == y).sum().item() for x, y in loader)
    return correct, len(loader.dataset)


def main():
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16
    dataset = TensorDataset(images, torch.tensor(digits.target))
    train_set, test_set = random_split(dataset, [1437, 360])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=256)

    model = MLP()
    print("parameters", sum(p.numel() for p in model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)

    x, y = next(iter(test_loader))
    print(f"first loss {F.cross_entropy(model.eval()(x), y).item():.7f}")
    for epoch in range(1, 13):
        loss = train(model, train_loader, optimizer)
        scheduler.step()
        print(f"epoch {epoch:2d}  loss {loss:.6f}  lr {scheduler.get_last_lr()[0]:.4f}")
    correct, count = evaluate(model, test_loader)
    print(f"test accuracy {correct}/{count}")


if __name__ == "__main__":
    main()
