"""A graph convolutional network that finds the communities of a random graph from a few labels.

Kipf and Welling, "Semi-supervised classification with graph convolutional networks", 2017.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class GCNConv(nn.Module):
    """Sums over neighbours by index_add, as message passing libraries do."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.lin = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.lin.weight)

    def forward(self, x, edge_index):
        n = x.size(0)
        loops = torch.arange(n)
        source, target = torch.cat([edge_index, torch.stack([loops, loops])], dim=1)
        degree = torch.zeros(n).index_add_(0, target, torch.ones(len(target)))
        norm = degree.rsqrt()[source] * degree.rsqrt()[target]
        messages = norm.unsqueeze(1) * self.lin(x)[source]
        return torch.zeros(n, messages.size(1)).index_add(0, target, messages) + self.bias


class GCN(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.conv1 = GCNConv(features, hidden)
        self.conv2 = GCNConv(hidden, classes)

    def forward(self, x, edge_index):
        x = F.dropout(x, 0.4, training=self.training)
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, 0.4, training=self.training)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


def stochastic_block_model(communities=4, size=50, inside=0.15, across=0.01):
    labels = torch.arange(communities).repeat_interleave(size)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    chance = torch.where(same, inside, across)
    adjacency = torch.triu(torch.bernoulli(chance), diagonal=1)
    i, j = adjacency.nonzero(as_tuple=True)
    return torch.cat([torch.stack([i, j]), torch.stack([j, i])], dim=1), labels


def main():
    torch.manual_seed(14)
    edge_index, y = stochastic_block_model()
    x = torch.randn(len(y), 24) + 0.6 * F.one_hot(y, 24)
    train_mask = torch.zeros(len(y), dtype=torch.bool)
    for c in range(4):
        members = (y == c).nonzero().squeeze(1)
        train_mask[members[torch.randperm(len(members))[:6]]] = True
    print("edges", edge_index.size(1), "labels", int(train_mask.sum()))

    model = GCN(24, 16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(1, 201):
        model.train()
        optimizer.zero_grad()
        out = model(x, edge_index)
        loss = F.nll_loss(out[train_mask], y[train_mask])
        loss.backward()
        optimizer.step()
        if epoch == 1:
            print(f"first loss {loss.item():.7f}")
        if epoch % 40 == 0:
            model.eval()
            with torch.no_grad():
                right = (model(x, edge_index).argmax(1) == y)[~train_mask].float().mean()
            print(f"epoch {epoch:3d}  loss {loss.item():.5f}  accuracy {right.item():.2f}")


if __name__ == "__main__":
    main()
