"""A bidirectional gated recurrent unit that classifies sequences of different lengths, packed.

Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine translation", 2014.
"""

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset


class Brackets(Dataset):
    """Random strings of brackets, 1 "(" and 2 ")", and whether they are balanced."""

    def __init__(self, count):
        self.items = []
        while len(self.items) < count:
            half = int(torch.randint(2, 9, ()))
            string = torch.tensor([1] * half + [2] * half)[torch.randperm(2 * half)]
            depth = (3 - 2 * string).cumsum(0)
            label = int(depth.min() >= 0)
            if label == len(self.items) % 2:  # as many of each
                self.items.append((string, label))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    strings, labels = zip(*items)
    lengths = torch.tensor([len(s) for s in strings])
    return pad_sequence(strings, batch_first=True), lengths, torch.tensor(labels, dtype=torch.float32)


class Classifier(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.embedding = nn.Embedding(3, 8, padding_idx=0)
        self.gru = nn.GRU(8, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(4 * hidden, 1)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths, batch_first=True, enforce_sorted=False)
        out, last = self.gru(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        mean = out.sum(1) / lengths.unsqueeze(1)
        return self.head(torch.cat([mean, last[0], last[1]], dim=1)).squeeze(1)


def main():
    torch.manual_seed(9)
    train = DataLoader(Brackets(320), batch_size=32, shuffle=True, collate_fn=collate)
    test = DataLoader(Brackets(200), batch_size=50, collate_fn=collate)
    model = Classifier()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95)
    for epoch in range(1, 13):
        model.train()
        total = 0.0
        for step, (x, lengths, y) in enumerate(train):
            loss = criterion(model(x, lengths), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if epoch == 1 and step == 0:
                print(f"first loss {loss.item():.7f}")
        scheduler.step()
        if epoch % 3 == 0:
            print(f"epoch {epoch:2d}  loss {total / len(train):.5f}")
    model.eval()
    with torch.no_grad():
        right = sum(((model(x, lengths) > 0).float() == y).sum().item() for x, lengths, y in test)
    print(f"test accuracy {right / 200:.2f}")


if __name__ == "__main__":
    main()
