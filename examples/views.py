"""All views of one training step: text here, and a page, graphs, a trace and tables as files in a folder.

python examples/views.py [FOLDER]
"""

import sys
from pathlib import Path

import backlight as torch
from backlight import inspect, nn


class Block(nn.Module):
    """Two layers with a path around them."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        hidden = nn.functional.gelu(self.up(self.norm(x)))
        return x + self.down(hidden)


class Network(nn.Module):
    """Equal blocks between an embedding and a head, and a layer that somebody forgot."""

    def __init__(self, width=32, blocks=12):
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)
        self.spare = nn.Linear(4, 4)

    def forward(self, x):
        x = torch.tanh(self.embed(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train_step():
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 8), torch.arange(16) % 10
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    with inspect.record("norms") as record:
        train_step()
    print(record.to_text(80, steps=6))
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "views")
    folder.mkdir(exist_ok=True)
    record.to_html(folder / "page.html")
    record.to_dot(path=folder / "graph.dot")
    record.to_mermaid(path=folder / "graph.mmd")
    record.to_chrome_trace(folder / "trace.json")
    record.to_csv(folder / "steps.csv")
    record.to_jsonl(folder / "record.jsonl")
    print(f"Written to {folder}/: {', '.join(sorted(file.name for file in folder.iterdir()))}")
