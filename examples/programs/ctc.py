"""Connectionist temporal classification: a recurrent network reads a row of digits of which nobody says where they are.

Graves, Fernandez, Gomez and Schmidhuber, "Connectionist temporal classification", 2006.
"""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits

torch.set_default_dtype(torch.float64)  # the loss falls steeply once it starts to

BLANK = 10


class Reader(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(8, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2))
        self.rnn = nn.GRU(32, hidden, bidirectional=True)
        self.out = nn.Linear(2 * hidden, 11)

    def forward(self, x):  # (N, 8, W) -> (W / 2, N, 11)
        h = self.features(x).permute(2, 0, 1)
        return self.out(self.rnn(h)[0]).log_softmax(2)


class Strips:
    """Images of one to three digits side by side, with random gaps."""

    def __init__(self):
        digits = load_digits()
        keep = digits.target < 4  # the digits 0 to 3
        self.images, self.labels = (
            torch.tensor(digits.images[keep], dtype=torch.float64) / 16,
            torch.tensor(digits.target[keep]),
        )

    def batch(self, n, width=36):
        x, targets, lengths = torch.zeros(n, 8, width), [], []
        for i in range(n):
            count, place = int(torch.randint(1, 4, ())), int(torch.randint(0, 3, ()))
            for _ in range(count):
                k = int(torch.randint(len(self.labels), ()))
                x[i, :, place : place + 8] = self.images[k]
                targets.append(self.labels[k])
                place += 8 + int(torch.randint(1, 4, ()))
            lengths.append(count)
        return x, torch.stack(targets), torch.tensor(lengths)


def decode(log_probs):
    """The best path, without repetitions and blanks."""
    texts = []
    for path in log_probs.argmax(2).T:
        path = torch.unique_consecutive(path)
        texts.append(path[path != BLANK].tolist())
    return texts


def main():
    torch.manual_seed(26)
    strips, model = Strips(), Reader()
    criterion = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    for step in range(1, 281):
        x, targets, lengths = strips.batch(16)
        log_probs = model(x)
        input_lengths = torch.full((16,), log_probs.size(0), dtype=torch.long)
        loss = criterion(log_probs, targets, input_lengths, lengths)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step == 1:
            print(f"first loss {loss.item():.7f}")
        if step % 40 == 0:
            print(f"step {step:3d}  loss {loss.item():.5f}")
    with torch.no_grad():
        x, targets, lengths = strips.batch(100)
        read = decode(model(x))
    truth = [t.tolist() for t in targets.split(lengths.tolist())]
    print("read correctly", sum(a == b for a, b in zip(read, truth)), "of 100")
    for a, b in list(zip(read, truth))[:3]:
        print("read", a, "truth", b)


if __name__ == "__main__":
    main()
