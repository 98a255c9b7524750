"""A long short-term memory that forecasts a sum of two oscillations.

Hochreiter and Schmidhuber, "Long short-term memory", 1997.
"""

import math

import torch
import torch.nn as nn


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.lstm = nn.LSTM(input_size=1, hidden_size=hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, state=None):
        out, state = self.lstm(x, state)
        return self.head(out), state

    @torch.no_grad()
    def continue_from(self, x, steps):
        """Feeds the network its own forecasts."""
        y, state = self(x)
        last, values = y[:, -1:], []
        for _ in range(steps):
            values.append(last)
            last, state = self(last, state)
        return torch.cat(values, 1)


def series(count, length):
    phase = 2 * math.pi * torch.rand(count, 1)
    t = torch.arange(length) / 5
    return (torch.sin(t + phase) + 0.5 * torch.sin(2.3 * t + 2 * phase)).unsqueeze(-1)


def main():
    torch.manual_seed(8)
    train, test = series(64, 41), series(16, 61)
    model = Forecaster()
    print("parameters", [tuple(p.shape) for p in model.lstm.parameters()][:4])
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=3)
    criterion = nn.MSELoss()
    for epoch in range(1, 26):
        model.train()
        total = 0.0
        for x in train[torch.randperm(64)].split(16):
            prediction, _ = model(x[:, :-1])
            loss = criterion(prediction, x[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            total += loss.item() / 4
            if epoch == 1 and total == loss.item() / 4:
                print(f"first loss {loss.item():.7f}")
        scheduler.step(total)
        if epoch % 5 == 0:
            print(f"epoch {epoch:2d}  loss {total:.6f}  lr {scheduler.get_last_lr()[0]}")
    model.eval()
    forecast = model.continue_from(test[:, :41], 20)
    print(f"error of 20 steps ahead {criterion(forecast, test[:, 41:]).item():.5f}")


if __name__ == "__main__":
    main()
