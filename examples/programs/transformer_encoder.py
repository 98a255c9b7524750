"""A Transformer encoder that says which of two symbols a sequence has more often after its last marker.

Vaswani et al., "Attention is all you need", 2017.
"""

import math

import torch
import torch.nn as nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=64):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(1, max_len, d_model)
        pe[0, :, 0::2] = torch.sin(position * div_term)
        pe[0, :, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return self.dropout(x + self.pe[:, : x.size(1)])


class Model(nn.Module):
    def __init__(self, tokens=5, d_model=32, heads=4, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(tokens, d_model)
        self.position = PositionalEncoding(d_model, dropout=0.05)
        layer = nn.TransformerEncoderLayer(d_model, heads, dim_feedforward=64, dropout=0.05, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, 1)

    def forward(self, x):
        padding = x == 0
        h = self.encoder(self.position(self.embedding(x) * math.sqrt(32)), src_key_padding_mask=padding)
        h = h.masked_fill(padding.unsqueeze(-1), 0.0)
        return self.head(h.sum(1) / (~padding).sum(1, keepdim=True)).squeeze(1)


def batch(n, length=14):
    """Sequences of 1, 2 (noise), 3 (marker) and 4; 0 is padding. Label: more 1 than 2 after the marker."""
    x = torch.randint(1, 3, (n, length))
    marker = torch.randint(0, length // 2, (n, 1))
    place = torch.arange(length)
    x[place == marker] = 3
    x[place >= torch.randint(length - 4, length + 1, (n, 1))] = 0
    after = place > marker
    balance = ((x == 1) & after).sum(1) - ((x == 2) & after).sum(1)
    return x, (balance > 0).float()


def main():
    torch.manual_seed(11)
    model = Model()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    warmup = 30
    schedule = lambda step: min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    model.train()
    for step in range(1, 121):
        x, y = batch(48)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step == 1:
            print(f"first loss {loss.item():.7f}")
        if step % 20 == 0:
            print(f"step {step:3d}  loss {loss.item():.5f}  lr {scheduler.get_last_lr()[0]:.6f}")
    model.eval()
    with torch.no_grad():
        x, y = batch(500)
        logits = model(x)
    print(f"test loss {criterion(logits, y).item():.5f}")
    print(f"test accuracy {((logits > 0).float() == y).float().mean().item():.2f}")


if __name__ == "__main__":
    main()
