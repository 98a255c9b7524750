"""A recurrent network that writes text, character by character.

Elman, "Finding structure in time", 1990; Karpathy, "The unreasonable effectiveness of recurrent neural networks", 2015.
"""

import torch
import torch.nn as nn

TEXT = """the cat sat on the mat and the dog lay on the log. the rain ran down the lane and the sun shone on the stone.
a man with a pan made jam and ham. a fish in a dish made a wish. the mouse in the house saw the cat and the dog,
and the cat and the dog saw the mouse. so the mouse ran from the house to the lane, and the cat sat on the mat.
""".replace("\n", " ")


class CharRNN(nn.Module):
    def __init__(self, vocabulary, hidden=64):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 24)
        self.rnn = nn.RNN(24, hidden, num_layers=1, batch_first=True)
        self.decoder = nn.Linear(hidden, vocabulary)

    def forward(self, x, state=None):
        out, state = self.rnn(self.embedding(x), state)
        return self.decoder(out), state


@torch.no_grad()
def generate(model, stoi, itos, prompt, length):
    model.eval()
    x = torch.tensor([[stoi[c] for c in prompt]])
    text, state = prompt, None
    for _ in range(length):
        logits, state = model(x, state)
        x = logits[:, -1].argmax(-1, keepdim=True)
        text += itos[x.item()]
    return text


def main():
    torch.manual_seed(7)
    characters = sorted(set(TEXT))
    stoi = {c: i for i, c in enumerate(characters)}
    data = torch.tensor([stoi[c] for c in TEXT])
    model = CharRNN(len(characters))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
    length, batch = 25, 16
    for step in range(1, 251):
        starts = torch.randint(0, len(data) - length - 1, (batch,))
        x = torch.stack([data[s : s + length] for s in starts])
        y = torch.stack([data[s + 1 : s + length + 1] for s in starts])
        logits, _ = model(x)
        loss = criterion(logits.reshape(-1, len(characters)), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        if step == 1:
            print(f"first loss {loss.item():.7f}")
        if step % 50 == 0:
            print(f"step {step:3d}  loss {loss.item():.5f}")
    print(repr(generate(model, stoi, characters, "the ", 60)))


if __name__ == "__main__":
    main()
