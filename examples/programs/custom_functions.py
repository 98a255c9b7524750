"""A quantised network with operations whose gradients are written by hand: rounding, reversal, a linear layer, a norm.

Bengio, Leonard and Courville, "Estimating or propagating gradients through stochastic neurons", 2013 (straight through);
Ganin and Lempitsky, "Unsupervised domain adaptation by backpropagation", 2015 (gradient reversal).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable


class Round(Function):
    """Rounds to a grid; the gradient passes where the input was inside the range."""

    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        return torch.round(x.clamp(0, 1) * levels) / levels

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * ((x >= 0) & (x <= 1)), None


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.weight * grad_output, None


class Linear(Function):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        return output if bias is None else output + bias

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


class Standardize(Function):
    """Rows with mean 0 and variance 1, and, not differentiable, the index of the largest element."""

    @staticmethod
    def forward(x, eps):
        centred = x - x.mean(1, keepdim=True)
        scale = (centred.square().mean(1, keepdim=True) + eps).rsqrt()
        return centred * scale, scale, x.argmax(1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.eps = inputs
        y, scale, index = output
        ctx.mark_non_differentiable(scale, index)
        ctx.save_for_backward(y, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y, _grad_scale, _grad_index):
        y, scale = ctx.saved_tensors
        g = grad_y - grad_y.mean(1, keepdim=True) - y * (grad_y * y).mean(1, keepdim=True)
        return g * scale, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight1 = nn.Parameter(torch.empty(48, 64))
        self.bias1 = nn.Parameter(torch.zeros(48))
        self.weight2 = nn.Parameter(torch.empty(10, 48))
        self.domain = nn.Linear(48, 2)
        for weight in (self.weight1, self.weight2):
            nn.init.kaiming_uniform_(weight, a=5**0.5)

    def forward(self, x):
        h, _, largest = Standardize.apply(Linear.apply(x, self.weight1, self.bias1), 1e-5)
        h = Round.apply(h * 0.25 + 0.5, 7)
        return Linear.apply(h, self.weight2), self.domain(Reverse.apply(h, 0.1)), largest


def main():
    torch.manual_seed(29)
    a, b, c = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 3), (5, 3), (5,)))
    print("linear", gradcheck(Linear.apply, (a, b, c)), gradgradcheck(Linear.apply, (a, b, c)))
    print("standardize", gradcheck(lambda x: Standardize.apply(x, 1e-3)[0], (a,)))

    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    domain = (torch.arange(len(x)) % 2).long()
    x[domain == 1] = x[domain == 1].flip(1) * 0.8  # the second domain: upside down, and paler
    train, test = torch.arange(1400), torch.arange(1400, len(x))
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, 13):
        total = 0.0
        for step, index in enumerate(train[torch.randperm(1400)].split(70)):
            scores, domains, _ = model(x[index])
            loss = F.cross_entropy(scores, y[index]) + F.cross_entropy(domains, domain[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / 20
            if epoch == 1 and step == 0:
                print(f"first loss {loss.item():.7f}")
        if epoch % 4 == 0:
            print(f"epoch {epoch:2d}  loss {total:.4f}")
    with torch.no_grad():
        scores, domains, _ = model(x[test])
    print(f"test accuracy {(scores.argmax(1) == y[test]).float().mean().item():.1f}")


if __name__ == "__main__":
    main()
