"""A training script with four mistakes that PyTorch doesn't mention. `backlight trace --passes all examples/why.py` names them."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.gate = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)
        self.spare = nn.Linear(8, 8)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        open_gates = (self.gate(hidden) > 0).float()
        return self.head(hidden * open_gates)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model.head.weight = nn.Parameter(torch.zeros(1, 8) + 0.1)
for _ in range(3):
    x = torch.randn(16, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean().sqrt()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3f}")
