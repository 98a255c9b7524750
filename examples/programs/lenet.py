"""LeNet-5, a convolutional network, on handwritten digits.

LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition", 1998.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """scikit-learn's 8 x 8 digits, enlarged to 16 x 16."""

    def __init__(self, train):
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        images = F.interpolate(images, scale_factor=2, mode="bilinear", align_corners=False)
        part = slice(0, 1400) if train else slice(1400, None)
        self.images, self.labels = (images[part] - 0.3) / 0.35, torch.tensor(digits.target[part])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 2 * 2, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(torch.tanh(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = torch.tanh(self.fc1(x))
        x = torch.tanh(self.fc2(x))
        return self.fc3(x)


def main():
    torch.manual_seed(1)
    train_loader = DataLoader(Digits(train=True), batch_size=50, shuffle=True)
    test_loader = DataLoader(Digits(train=False), batch_size=100)
    model = LeNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    first = True
    for epoch in range(1, 6):
        model.train()
        running = 0.0
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
            if first:
                print(f"first loss {loss.item():.7f}")
                first = False
        print(f"epoch {epoch}  loss {running / len(train_loader):.6f}")
    model.eval()
    with torch.no_grad():
        predictions = torch.cat([model(images).argmax(1) for images, _ in test_loader])
    labels = test_loader.dataset.labels
    confusion = torch.zeros(10, 10, dtype=torch.long)
    confusion.index_put_((labels, predictions), torch.ones_like(labels), accumulate=True)
    print("correct by digit", confusion.diag().tolist())
    print("test accuracy", f"{(predictions == labels).float().mean().item():.4f}")


if __name__ == "__main__":
    main()
