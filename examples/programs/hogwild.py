"""Processes that train one model in shared memory without locks.

Niu, Recht, Re and Wright, "Hogwild! A lock-free approach to parallelizing stochastic gradient descent", 2011.
"""

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def load():
    digits = load_digits()
    return torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)


def train(rank, model, counter, epochs):
    torch.manual_seed(100 + rank)
    x, y = load()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(epochs):
        for index in torch.randperm(1500).split(50):
            optimizer.zero_grad()
            F.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
    counter[rank] = epochs  # seen by the parent: shared as well


@torch.no_grad()
def evaluate(model):
    x, y = load()
    logits = model(x[1500:])
    return F.cross_entropy(logits, y[1500:]).item(), (logits.argmax(1) == y[1500:]).float().mean().item()


def run(processes, counter):
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    print("exit codes", [p.exitcode for p in processes], "epochs by process", counter.tolist())


def main():
    torch.manual_seed(27)
    torch.set_num_threads(1)
    context = mp.get_context("fork")
    model, counter = Net(), torch.zeros(3, dtype=torch.long)
    model.share_memory()
    counter.share_memory_()
    print("shared", all(p.is_shared() for p in model.parameters()))
    print(f"untrained loss {evaluate(model)[0]:.7f}")

    # One process at a time: the numbers are reproducible
    for rank in range(2):
        run([context.Process(target=train, args=(rank, model, counter, 2))], counter)
        print(f"loss after process {rank}: {evaluate(model)[0]:.6f}")

    # Two processes at once, which overwrite each other's updates: only what does not depend on the race
    before = [p.clone() for p in model.parameters()]
    run([context.Process(target=train, args=(rank, model, counter, 4)) for rank in range(2)], counter)
    print("parameters changed", all(not torch.equal(a, b) for a, b in zip(before, model.parameters())))
    print("accuracy above 0.8", evaluate(model)[1] > 0.8)


if __name__ == "__main__":
    main()
