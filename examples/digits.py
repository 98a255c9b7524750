"""A small network learns to read handwritten digits: 8x8 images from scikit-learn, a plain PyTorch training loop."""

import torch
from torch import nn

try:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
except ImportError as error:
    raise SystemExit(f"{error}; the images come with scikit-learn: pip install 'backlight[examples]'") from None

torch.manual_seed(0)

# 1,797 images of 64 pixels with values 0 to 16; a quarter of them is kept for the test.
images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(images / 16, labels, test_size=0.25, random_state=0, stratify=labels)
train_x, test_x = torch.tensor(train_x, dtype=torch.float32), torch.tensor(test_x, dtype=torch.float32)
train_y, test_y = torch.tensor(train_y), torch.tensor(test_y)

model = nn.Sequential(
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)

for epoch in range(1, 16):
    total = 0.0
    for batch in torch.randperm(len(train_x)).split(32):
        optimizer.zero_grad()
        scores = model(train_x[batch])
        loss = criterion(scores, train_y[batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    with torch.no_grad():
        correct = (model(test_x).argmax(dim=1) == test_y).sum().item()
    print(f"epoch {epoch:2}  loss {total / len(train_x):.4f}  test accuracy {correct / len(test_x):.1%}")
