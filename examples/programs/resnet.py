"""A small residual network with batch normalisation on handwritten digits.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2016;
Ioffe and Szegedy, "Batch normalization", 2015; Loshchilov and Hutter, "SGDR", 2017.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.set_default_dtype(torch.float64)  # batch normalisation amplifies rounding errors


def conv3x3(in_planes, out_planes, stride=1):
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = conv3x3(in_planes, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or in_planes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, layers=(1, 1, 1), width=8, num_classes=10):
        super().__init__()
        self.in_planes = width
        self.stem = nn.Sequential(conv3x3(1, width), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        stages = [self._make_layer(width * 2**i, n, stride=1 if i == 0 else 2) for i, n in enumerate(layers)]
        self.layers = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.in_planes, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)

    def _make_layer(self, planes, blocks, stride):
        layers = []
        for i in range(blocks):
            layers.append(BasicBlock(self.in_planes, planes, stride if i == 0 else 1))
            self.in_planes = planes
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.layers(self.stem(x))
        return self.fc(torch.flatten(self.pool(x), 1))


def augment(images):
    """Shifts each batch by up to one pixel."""
    dy, dx = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(images, shifts=(dy, dx), dims=(2, 3))


def main():
    torch.manual_seed(2)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float64).unsqueeze(1) / 8 - 1
    labels = torch.tensor(digits.target)
    train_x, train_y, test_x, test_y = images[:1200], labels[:1200], images[1200:], labels[1200:]

    model = ResNet()
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.SGD(
        [{"params": decay, "weight_decay": 1e-3}, {"params": rest, "weight_decay": 0.0}], lr=0.05, momentum=0.9
    )
    epochs, batch = 4, 60
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * (len(train_x) // batch))
    for epoch in range(1, epochs + 1):
        model.train()
        total = 0.0
        for i, index in enumerate(torch.randperm(len(train_x)).split(batch)):
            loss = F.cross_entropy(model(augment(train_x[index])), train_y[index], label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            total += loss.item()
            if epoch == 1 and i == 0:
                print(f"first loss {loss.item():.7f}")
        print(f"epoch {epoch}  loss {total / 20:.5f}  lr {optimizer.param_groups[0]['lr']:.5f}")
    model.eval()
    with torch.no_grad():
        logits = model(test_x)
    print(f"test loss {F.cross_entropy(logits, test_y).item():.5f}")
    print(f"test accuracy {(logits.argmax(1) == test_y).float().mean().item():.2f}")
    print("batches seen", model.stem[1].num_batches_tracked.item())


if __name__ == "__main__":
    main()
