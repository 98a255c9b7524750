"""Word vectors by skip-gram with negative sampling.

Mikolov et al., "Distributed representations of words and phrases and their compositionality", 2013.
"""

import random
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

ANIMALS, FOODS, PLACES = (
    ["cat", "dog", "mouse", "horse"],
    ["bread", "cheese", "fish", "corn"],
    ["house", "barn", "field", "river"],
)
EATING, GOING = ["eats", "likes", "wants"], ["runs", "walks", "goes"]


def corpus(sentences):
    """Sentences like "the cat eats fish in the barn"."""
    for _ in range(sentences):
        if random.random() < 0.5:
            yield f"the {random.choice(ANIMALS)} {random.choice(EATING)} the {random.choice(FOODS)}"
        else:
            yield f"a {random.choice(ANIMALS)} {random.choice(GOING)} to the {random.choice(PLACES)}"


class SkipGram(nn.Module):
    def __init__(self, words, size=16):
        super().__init__()
        self.center = nn.Embedding(words, size)
        self.context = nn.Embedding(words, size)
        nn.init.uniform_(self.center.weight, -0.5 / size, 0.5 / size)
        nn.init.zeros_(self.context.weight)

    def forward(self, center, context, negative):
        v = self.center(center)
        positive = F.logsigmoid((v * self.context(context)).sum(1))
        others = torch.bmm(self.context(negative), v.unsqueeze(2)).squeeze(2)
        return -(positive + F.logsigmoid(-others).sum(1)).mean()


def main():
    torch.manual_seed(13)
    random.seed(13)
    texts = [s.split() for s in corpus(400)]
    counts = Counter(w for s in texts for w in s)
    words = sorted(counts)
    index = {w: i for i, w in enumerate(words)}
    noise = torch.tensor([counts[w] for w in words], dtype=torch.float32) ** 0.75
    noise /= noise.sum()
    pairs = torch.tensor(
        [
            (index[s[i]], index[s[j]])
            for s in texts
            for i in range(len(s))
            for j in range(max(0, i - 2), min(len(s), i + 3))
            if i != j
        ]
    )
    print("words", len(words), "pairs", len(pairs))
    model = SkipGram(len(words))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.2)
    for epoch in range(1, 6):
        total, batches = 0.0, pairs[torch.randperm(len(pairs))].split(128)
        for step, batch in enumerate(batches):
            negative = torch.multinomial(noise, len(batch) * 5, replacement=True).view(-1, 5)
            loss = model(batch[:, 0], batch[:, 1], negative)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            if epoch == 1 and step == 0:
                print(f"first loss {loss.item():.7f}")
        print(f"epoch {epoch}  loss {total / len(batches):.6f}")
    vectors = F.normalize(model.center.weight.detach(), dim=1)
    for word in ("cat", "bread", "barn", "runs"):
        near = (vectors @ vectors[index[word]]).topk(4)
        print(word, "->", " ".join(words[i] for i in sorted(near.indices.tolist()[1:])))
    print(f"cat, dog {(vectors[index['cat']] @ vectors[index['dog']]).item():.4f}")


if __name__ == "__main__":
    main()
