"""Logistic regression by a quasi-Newton method with a line search, on measurements of tumours.

Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", 1989.
"""

import torch
import torch.nn as nn
from sklearn.datasets import load_breast_cancer

torch.set_default_dtype(torch.float64)


def main():
    torch.manual_seed(24)
    data = load_breast_cancer()
    x, y = torch.tensor(data.data), torch.tensor(data.target, dtype=torch.float64)
    order = torch.randperm(len(x))
    train, test = order[:400], order[400:]
    mean, std = x[train].mean(0), x[train].std(0)
    x = (x - mean) / std

    model = nn.Linear(30, 1)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=4, history_size=8, line_search_fn="strong_wolfe")
    evaluations = 0

    def objective():
        penalty = 0.01 * model.weight.square().sum()
        return criterion(model(x[train]).squeeze(1), y[train]) + penalty

    def closure():
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        loss = objective()
        loss.backward()
        return loss

    for step in range(1, 6):
        loss = optimizer.step(closure)
        print(f"step {step}  loss {loss.item():.9f}  evaluations {evaluations}")
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    print(f"gradient is below 1e-4: {bool(gradient.abs().max() < 1e-4)}")

    # Newton's method from there, with the exact Hessian
    parameters = torch.cat([model.weight.detach().flatten(), model.bias.detach()])

    def at(p):
        logits = x[train] @ p[:30] + p[30]
        return criterion(logits, y[train]) + 0.01 * p[:30].square().sum()

    for _ in range(2):
        gradient = torch.autograd.functional.jacobian(at, parameters)
        hessian = torch.autograd.functional.hessian(at, parameters)
        parameters = parameters - torch.linalg.solve(hessian, gradient)
    print(f"minimum {at(parameters).item():.9f}")
    with torch.no_grad():
        right = ((model(x[test]).squeeze(1) > 0) == (y[test] > 0.5)).double().mean()
        largest = model.weight[0].abs().topk(3).indices.tolist()
    print(f"test accuracy {right.item():.4f}")
    print("largest weights:", ", ".join(data.feature_names[i] for i in sorted(largest)))


if __name__ == "__main__":
    main()
