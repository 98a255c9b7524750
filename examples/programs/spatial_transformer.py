"""A spatial transformer: a network that learns to turn rotated and shifted digits upright by itself.

Jaderberg, Simonyan, Zisserman and Kavukcuoglu, "Spatial transformer networks", 2015.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.set_default_dtype(torch.float64)  # where pixels change places, rounding errors grow fast


class STN(nn.Module):
    def __init__(self):
        super().__init__()
        self.localization = nn.Sequential(
            nn.Conv2d(1, 8, kernel_size=5, padding=2), nn.MaxPool2d(2), nn.ReLU(True), nn.Conv2d(8, 10, kernel_size=3, padding=1),
            nn.MaxPool2d(2), nn.ReLU(True),
        )  # fmt: skip
        self.fc_loc = nn.Sequential(nn.Linear(10 * 9, 32), nn.ReLU(True), nn.Linear(32, 3 * 2))
        self.fc_loc[2].weight.data.zero_()
        self.fc_loc[2].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float64))
        self.conv = nn.Conv2d(1, 12, kernel_size=3, padding=1)
        self.drop = nn.Dropout2d(0.1)
        self.fc1 = nn.Linear(12 * 36, 48)
        self.fc2 = nn.Linear(48, 10)

    def stn(self, x):
        xs = self.localization(x).view(-1, 10 * 9)
        theta = self.fc_loc(xs).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    def forward(self, x):
        x = self.stn(x)
        x = F.relu(F.max_pool2d(self.drop(self.conv(x)), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(x), dim=1)


def distort(images):
    """Digits rotated by up to 50 degrees and shifted, on a larger canvas."""
    n = len(images)
    angle = (torch.rand(n) - 0.5) * (100 / 180 * math.pi)
    shift = (torch.rand(n, 2) - 0.5) * 0.5
    theta = torch.zeros(n, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = 1.4 * angle.cos()
    theta[:, 0, 1], theta[:, 1, 0] = -1.4 * angle.sin(), 1.4 * angle.sin()
    theta[:, :, 2] = shift
    return F.grid_sample(images, F.affine_grid(theta, (n, 1, 12, 12), align_corners=False), align_corners=False)


def main():
    torch.manual_seed(25)
    digits = load_digits()
    images = distort(torch.tensor(digits.images, dtype=torch.float64).unsqueeze(1) / 16)
    labels = torch.tensor(digits.target)
    train_x, train_y, test_x, test_y = images[:1300], labels[:1300], images[1300:], labels[1300:]
    model = STN()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-3)
    for epoch in range(1, 7):
        model.train()
        total = 0.0
        for i, index in enumerate(torch.randperm(1300).split(65)):
            loss = F.nll_loss(model(train_x[index]), train_y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 20
            if epoch == 1 and i == 0:
                print(f"first loss {loss.item():.7f}")
        print(f"epoch {epoch}  loss {total:.5f}")
    model.eval()
    with torch.no_grad():
        log_probs = model(test_x)
        moved = (model.stn(test_x) - test_x).abs().mean()
    print(f"test loss {F.nll_loss(log_probs, test_y).item():.4f}")
    print(
        f"test accuracy {(log_probs.argmax(1) == test_y).float().mean().item():.2f}  change by the transformer {moved.item():.4f}"
    )


if __name__ == "__main__":
    main()
