"""A small decoder-only Transformer that is trained on characters and then writes some.

Radford et al., "Improving language understanding by generative pre-training", 2018; in the manner of Karpathy's nanoGPT.
"""

import math

import torch
import torch.nn as nn
from torch.nn import functional as F

TEXT = """In the beginning was the list, and the list was empty. And one came and appended to it, and it had one element.
And another came and appended to it, and it had two elements. And they said: let us sort the list, that we may search it.
And the list was sorted, and they searched it, and they found what they sought, for it was in the list. And one came who
sought what was not in the list, and he searched it, and he found it not. And he said: let us append to the list what we
seek, that we may find it. And it was appended, and the list was not sorted. And they sorted it again, and it was good.
"""


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=False)
        self.n_head = n_head

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention(n_embd, n_head)
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(approximate="tanh"), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size=32, n_layer=2, n_head=4, n_embd=64):
        super().__init__()
        self.block_size = block_size
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, n_embd),
                "wpe": nn.Embedding(block_size, n_embd),
                "h": nn.ModuleList([Block(n_embd, n_head) for _ in range(n_layer)]),
                "ln_f": nn.LayerNorm(n_embd),
            }
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight  # weight tying
        self.apply(self._init_weights)
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * n_layer))

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def configure_optimizer(self, weight_decay, learning_rate, betas):
        params = {name: p for name, p in self.named_parameters() if p.requires_grad}
        decay = [p for p in params.values() if p.dim() >= 2]
        rest = [p for p in params.values() if p.dim() < 2]
        print(f"decayed {sum(p.numel() for p in decay)}, not decayed {sum(p.numel() for p in rest)}")
        groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas)

    def forward(self, idx, targets=None):
        pos = torch.arange(idx.size(1), device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -self.block_size :])
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            probs = F.softmax(logits, dim=-1)
            idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
        return idx


def get_lr(it, peak=3e-3, warmup=10, last=120):
    if it < warmup:
        return peak * (it + 1) / (warmup + 1)
    return 0.1 * peak + 0.5 * (1.0 + math.cos(math.pi * (it - warmup) / (last - warmup))) * 0.9 * peak


def main():
    torch.manual_seed(1337)
    chars = sorted(set(TEXT))
    stoi = {ch: i for i, ch in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in TEXT], dtype=torch.long)
    model = GPT(len(chars))
    optimizer = model.configure_optimizer(weight_decay=0.1, learning_rate=1e-3, betas=(0.9, 0.95))
    for it in range(121):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        ix = torch.randint(len(data) - model.block_size, (12,))
        x = torch.stack([data[i : i + model.block_size] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + model.block_size] for i in ix])
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if it % 20 == 0:
            print(f"iter {it:3d}: loss {loss.item():.7f}")
    model.eval()
    out = model.generate(torch.tensor([[stoi["A"]]]), 80, temperature=0.8, top_k=5)[0].tolist()
    print(repr("".join(chars[i] for i in out)))


if __name__ == "__main__":
    main()
