"""A neural ordinary differential equation, whose gradients come from the adjoint equation, solved backwards in time.

Chen, Rubanova, Bettencourt and Duvenaud, "Neural ordinary differential equations", 2018.
"""

import torch
import torch.nn as nn

torch.set_default_dtype(torch.float64)


def rk4_step(f, t, h, y):
    k1 = f(t, y)
    k2 = f(t + h / 2, tuple(a + h / 2 * b for a, b in zip(y, k1)))
    k3 = f(t + h / 2, tuple(a + h / 2 * b for a, b in zip(y, k2)))
    k4 = f(t + h, tuple(a + h * b for a, b in zip(y, k3)))
    return tuple(a + h / 6 * (p + 2 * q + 2 * r + s) for a, p, q, r, s in zip(y, k1, k2, k3, k4))


def integrate(f, y, t0, t1, steps=4):
    h = (t1 - t0) / steps
    for i in range(steps):
        y = rk4_step(f, t0 + i * h, h, y)
    return y


class ODEAdjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, func, y0, times, *parameters):
        ctx.func, ctx.times = func, times
        with torch.no_grad():
            ys = [y0]
            for t0, t1 in zip(times, times[1:]):
                ys += integrate(lambda t, y: (func(t, y[0]),), (ys[-1],), t0, t1)
            ys = torch.stack(ys)
        ctx.save_for_backward(ys, *parameters)
        return ys

    @staticmethod
    def backward(ctx, grad_ys):
        ys, *parameters = ctx.saved_tensors
        func, times = ctx.func, ctx.times

        def augmented(t, state):
            """dy/dt, and the adjoints of y and of the parameters."""
            y, a = state[0].detach().requires_grad_(), state[1]
            with torch.enable_grad():
                dy = func(t, y)
                grads = torch.autograd.grad(dy, (y, *parameters), -a, allow_unused=True)
            return (dy.detach(), *(torch.zeros_like(p) if g is None else g for g, p in zip(grads, (y, *parameters))))

        adjoint, gradients = grad_ys[-1], [torch.zeros_like(p) for p in parameters]
        for i in range(len(times) - 1, 0, -1):
            state = integrate(augmented, (ys[i], adjoint, *gradients), times[i], times[i - 1])
            adjoint, gradients = state[1] + grad_ys[i - 1], list(state[2:])
        return (None, adjoint, None, *gradients)


class Field(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        nn.init.normal_(self.net[0].weight, std=0.5)
        nn.init.normal_(self.net[2].weight, std=0.1)

    def forward(self, t, y):  # noqa: ARG002
        return self.net(y**3)


def spiral(y0, times):
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    ys = [y0]
    for t0, t1 in zip(times, times[1:]):
        ys += integrate(lambda _t, y: (y[0] ** 3 @ matrix,), (ys[-1],), t0, t1, steps=10)
    return torch.stack(ys)


def main():
    torch.manual_seed(19)
    times = [0.15 * i for i in range(8)]
    field = Field()
    optimizer = torch.optim.RMSprop(field.parameters(), lr=3e-3)

    y0 = torch.tensor([[1.5, 0.0]])
    by_adjoint = torch.autograd.grad(ODEAdjoint.apply(field, y0, times, *field.parameters()).sum(), list(field.parameters()))
    y = (y0,)
    total = y0.sum()
    for t0, t1 in zip(times, times[1:]):
        y = integrate(lambda t, y: (field(t, y[0]),), y, t0, t1)
        total = total + y[0].sum()
    through_solver = torch.autograd.grad(total, list(field.parameters()))
    difference = max((a - b).abs().max().item() for a, b in zip(by_adjoint, through_solver))
    print("adjoint and backpropagation agree", difference < 1e-3)

    for step in range(1, 61):
        y0 = 2 * torch.rand(24, 2) - 1 + torch.tensor([0.5, 0.0])
        predicted = ODEAdjoint.apply(field, y0, times, *field.parameters())
        loss = (predicted - spiral(y0, times)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1 or step % 12 == 0:
            print(f"step {step:2d}  loss {loss.item():.8f}")
    y0 = torch.tensor([[1.2, 0.3]])
    with torch.no_grad():
        end = ODEAdjoint.apply(field, y0, times, *field.parameters())[-1, 0]
    print("end", [f"{v:.4f}" for v in end.tolist()], "truth", [f"{v:.4f}" for v in spiral(y0, times)[-1, 0].tolist()])


if __name__ == "__main__":
    main()
