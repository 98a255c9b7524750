"""A denoising convolutional autoencoder of handwritten digits.

Hinton and Salakhutdinov, "Reducing the dimensionality of data with neural networks", 2006;
Vincent et al., "Extracting and composing robust features with denoising autoencoders", 2008.
"""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Autoencoder(nn.Module):
    def __init__(self, code_size=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(64, code_size),
        )
        self.decoder = nn.Sequential(
            nn.Linear(code_size, 64),
            nn.LeakyReLU(0.1),
            nn.Unflatten(1, (16, 2, 2)),
            nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    torch.manual_seed(3)
    images = torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 16
    train, test = images[:1500], images[1500:]
    loader = DataLoader(TensorDataset(train), batch_size=100, shuffle=True, drop_last=True)
    model = Autoencoder()
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-5)
    for epoch in range(1, 13):
        total = 0.0
        for step, (clean,) in enumerate(loader):
            noisy = (clean + 0.2 * torch.randn_like(clean)).clamp(0, 1)
            loss = criterion(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if epoch == 1 and step == 0:
                print(f"first loss {loss.item():.7f}")
        if epoch % 3 == 0:
            print(f"epoch {epoch:2d}  loss {total / len(loader):.6f}")
    with torch.no_grad():
        restored = model(test)
        print(f"test error {criterion(restored, test).item():.6f}")
        print(f"mean of codes {model.encoder(test).abs().mean().item():.4f}")
        best = (restored - test).square().mean((1, 2, 3)).argmin().item()
    print("best restored image", best)
    for row in (restored[best, 0] * 9).round().int().tolist():
        print(" ".join(map(str, row)))


if __name__ == "__main__":
    main()
