"""A bidirectional Transformer that is trained to fill in masked tokens, and then fine-tuned for a class.

Devlin, Chang, Lee and Toutanova, "BERT: pre-training of deep bidirectional Transformers", 2019.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)  # the fine-tuning's loss falls steeply once it starts to

PAD, CLS, MASK, FIRST = 0, 1, 2, 3
NUMBERS = 12  # sentences count upwards or downwards, in steps of one or two, around a circle of 12


def sentences(n, length=10):
    start = torch.randint(0, NUMBERS, (n, 1))
    step = torch.tensor([-2, -1, 1, 2])[torch.randint(0, 4, (n, 1))]
    tokens = (start + step * torch.arange(length)) % NUMBERS + FIRST
    cls = torch.full((n, 1), CLS)
    return torch.cat([cls, tokens], 1), (step.squeeze(1) > 0).double()


def mask_tokens(tokens, probability=0.25):
    """Of the chosen tokens 80 % become [MASK], 10 % a random token, and 10 % stay. Labels are -100 elsewhere."""
    labels = tokens.clone()
    chosen = torch.bernoulli(torch.full(tokens.shape, probability)).bool() & (tokens >= FIRST)
    labels[~chosen] = -100
    masked = torch.bernoulli(torch.full(tokens.shape, 0.8)).bool() & chosen
    inputs = tokens.masked_fill(masked, MASK)
    random = torch.bernoulli(torch.full(tokens.shape, 0.5)).bool() & chosen & ~masked
    words = torch.randint(FIRST, FIRST + NUMBERS, tokens.shape)
    inputs[random] = words[random]
    return inputs, labels


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.inner, self.outer = nn.Linear(hidden, 2 * hidden), nn.Linear(2 * hidden, hidden)

    def forward(self, x):
        attended, _ = self.attention(x, x, x, need_weights=False)
        x = self.norm1(x + attended)
        return self.norm2(x + self.outer(F.gelu(self.inner(x))))


class Bert(nn.Module):
    def __init__(self, hidden=48, heads=4, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(FIRST + NUMBERS, hidden, padding_idx=PAD)
        self.positions = nn.Embedding(16, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.transform = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden))
        self.bias = nn.Parameter(torch.zeros(FIRST + NUMBERS))
        self.pooler = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, 1)

    def encode(self, tokens):
        x = self.norm(self.tokens(tokens) + self.positions.weight[: tokens.size(1)])
        for layer in self.layers:
            x = layer(x)
        return x

    def fill_in(self, tokens):
        return self.transform(self.encode(tokens)) @ self.tokens.weight.T + self.bias

    def classify(self, tokens):
        return self.classifier(torch.tanh(self.pooler(self.encode(tokens)[:, 0]))).squeeze(1)


def main():
    torch.manual_seed(12)
    model = Bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=160)
    for step in range(1, 161):
        tokens, _ = sentences(32)
        inputs, labels = mask_tokens(tokens)
        loss = F.cross_entropy(model.fill_in(inputs).transpose(1, 2), labels, ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step == 1:
            print(f"first loss {loss.item():.7f}")
        if step % 40 == 0:
            print(f"pre-training {step:3d}  loss {loss.item():.5f}")

    with torch.no_grad():
        tokens, _ = sentences(200)
        hidden = tokens.clone()
        hidden[:, 5] = MASK
        guesses = model.fill_in(hidden)[:, 5].argmax(1)
    print(f"filled in correctly {(guesses == tokens[:, 5]).double().mean().item():.2f}")

    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith(("pooler", "classifier", "layers"))
    tuned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(tuned, lr=3e-3)
    for step in range(1, 111):
        tokens, direction = sentences(32)
        loss = F.binary_cross_entropy_with_logits(model.classify(tokens), direction)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 22 == 0:
            print(f"fine-tuning {step:3d}  loss {loss.item():.5f}")
    with torch.no_grad():
        tokens, direction = sentences(200)
        right = ((model.classify(tokens) > 0) == (direction > 0.5)).double().mean()
    print(f"direction recognised {right.item():.2f}")


if __name__ == "__main__":
    main()
