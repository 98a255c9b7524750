"""A training that is interrupted, saved and resumed, and prints the numbers of one that never stopped.

He, Zhang, Ren and Sun, "Delving deep into rectifiers", 2015 (the initialisation and the PReLU of the network).
"""

import os
import tempfile

import torch
import torch.nn as nn
from sklearn.datasets import load_diabetes
from torch.utils.data import DataLoader, TensorDataset


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.PReLU(), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.Linear(32, 1))
        nn.init.kaiming_normal_(self.net[0].weight, a=0.25)

    def forward(self, x):
        return self.net(x).squeeze(1)


class Training:
    def __init__(self):
        data = load_diabetes()
        x, y = torch.tensor(data.data, dtype=torch.float32) * 20, torch.tensor(data.target, dtype=torch.float32)
        self.loader = DataLoader(TensorDataset(x[:360], (y[:360] - 150) / 75), batch_size=36, shuffle=True)
        self.test = x[360:], (y[360:] - 150) / 75
        self.model = Regressor()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3, amsgrad=True)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, T_0=5)
        self.criterion = nn.HuberLoss()
        self.epoch = 0

    def run(self, epochs):
        for _ in range(epochs):
            self.epoch += 1
            self.model.train()
            total = 0.0
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
                total += loss.item() / len(self.loader)
            self.scheduler.step()
            yield f"epoch {self.epoch:2d}  loss {total:.7f}  lr {self.scheduler.get_last_lr()[0]:.6f}"

    def save(self, path):
        torch.save(
            {
                "epoch": self.epoch,
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "rng": torch.get_rng_state(),
            },
            path,
        )

    def load(self, path):
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        self.epoch = checkpoint["epoch"]
        print(self.model.load_state_dict(checkpoint["model"]))
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.scheduler.load_state_dict(checkpoint["scheduler"])
        torch.set_rng_state(checkpoint["rng"])


def main():
    torch.manual_seed(30)
    training = Training()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "checkpoint.pt")
        print("\n".join(training.run(6)))
        training.save(path)
        whole = list(training.run(6))

        torch.manual_seed(999)
        resumed = Training()
        resumed.load(path)
        parts = list(resumed.run(6))
    print("\n".join(parts))
    print("the resumed training is the same", parts == whole)
    resumed.model.eval()
    with torch.no_grad():
        x, y = resumed.test
        print(f"test loss {resumed.criterion(resumed.model(x), y).item():.6f}")


if __name__ == "__main__":
    main()
