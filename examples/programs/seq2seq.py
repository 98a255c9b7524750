"""An encoder and a decoder with attention that translate numbers into words.

Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and translate", 2015.
"""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
ONES += "sixteen seventeen eighteen nineteen".split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def spell(n):
    if n < 20:
        return [ONES[n]]
    if n < 100:
        return [TENS[n // 10]] + ([ONES[n % 10]] if n % 10 else [])
    return [ONES[n // 100], "hundred"] + (spell(n % 100) if n % 100 else [])


WORDS = ["<pad>", "<start>", "<end>", *ONES, *TENS[2:], "hundred"]
INDEX = {word: i for i, word in enumerate(WORDS)}


def encode(numbers):
    """Digits from right to left, with 10 for padding, and words with start and end."""
    source = torch.tensor([[n % 10, n // 10 % 10 if n > 9 else 10, n // 100 if n > 99 else 10] for n in numbers])
    words = [[INDEX[w] for w in ["<start>", *spell(n), "<end>"]] for n in numbers]
    target = nn.utils.rnn.pad_sequence([torch.tensor(w) for w in words], batch_first=True)
    return source, target


class Attention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(2 * hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, state, memory):
        energy = self.score(torch.tanh(self.query(state).unsqueeze(1) + self.key(memory)))
        weights = F.softmax(energy.squeeze(2), dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights


class Seq2Seq(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.source = nn.Embedding(11, hidden)
        self.encoder = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * hidden, hidden)
        self.target = nn.Embedding(len(WORDS), hidden, padding_idx=0)
        self.attention = Attention(hidden)
        self.cell = nn.GRUCell(3 * hidden, hidden)
        self.out = nn.Linear(3 * hidden, len(WORDS))

    def encode(self, source):
        memory, last = self.encoder(self.source(source))
        return memory, torch.tanh(self.bridge(torch.cat([last[0], last[1]], 1)))

    def step(self, word, state, memory):
        context, weights = self.attention(state, memory)
        state = self.cell(torch.cat([self.target(word), context], 1), state)
        return self.out(torch.cat([state, context], 1)), state, weights

    def forward(self, source, target, teacher_forcing):
        memory, state = self.encode(source)
        word, logits = target[:, 0], []
        for t in range(1, target.size(1)):
            scores, state, _ = self.step(word, state, memory)
            logits.append(scores)
            word = target[:, t] if random.random() < teacher_forcing else scores.argmax(1)
        return torch.stack(logits, 1)

    @torch.no_grad()
    def translate(self, number):
        memory, state = self.encode(encode([number])[0])
        word, words = torch.tensor([INDEX["<start>"]]), []
        for _ in range(6):
            scores, state, _ = self.step(word, state, memory)
            word = scores.argmax(1)
            if word.item() == INDEX["<end>"]:
                break
            words.append(WORDS[word.item()])
        return words


def main():
    torch.manual_seed(10)
    random.seed(10)
    numbers = list(range(1000))
    random.shuffle(numbers)
    train, test = numbers[:800], numbers[800:]
    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for epoch in range(1, 7):
        random.shuffle(train)
        total = 0.0
        for i in range(0, 800, 50):
            source, target = encode(train[i : i + 50])
            logits = model(source, target, teacher_forcing=0.9)
            loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            total += loss.item() / 16
            if epoch == 1 and i == 0:
                print(f"first loss {loss.item():.7f}")
        print(f"epoch {epoch}  loss {total:.5f}")
    right = sum(model.translate(n) == spell(n) for n in test[:60])
    print(f"translated {right}/60")
    for n in (7, 42, 219):
        print(n, " ".join(model.translate(n)))


if __name__ == "__main__":
    main()
