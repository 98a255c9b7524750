"""In which order does backward visit the tensors, and what gradients pass?

A chain of four tensors, x0 -> x1 -> x2 -> loss. Each has a hook that prints its name when its gradient arrives, and
each keeps that gradient in `.grad`, which only leaves do by themselves.
"""

import torch

torch.manual_seed(20200910)

arrived = []


def watch(name, tensor):
    """Prints the name and collects the gradient when backward reaches this tensor."""

    def hook(grad):
        print(f"gradient of {name:4} arrives, shape {tuple(grad.shape)}")
        arrived.append(grad)

    tensor.register_hook(hook)
    tensor.retain_grad()  # does nothing for x0, a leaf


# Forward: from 5,040 numbers to one.
x0 = torch.randn(2, 3, 4, 5, 6, 7, requires_grad=True)
x1 = (4 * x0 + 18).sum(dim=(0, 1))
x2 = x1.sum(dim=(1, 2)) * 10
loss = x2.mean()

tensors = {"x0": x0, "x1": x1, "x2": x2, "loss": loss}
for name, tensor in tensors.items():
    watch(name, tensor)
    print(f"{name:4} leaf {tensor.is_leaf!s:5}  shape {tuple(tensor.shape)}")
print(loss)

# Backward: the hooks fire in the reverse of the forward order.
print("\nbackward")
loss.backward()

# What the hooks saw is what `.grad` holds.
print("\nhook against .grad")
for (name, tensor), grad in zip(tensors.items(), reversed(arrived)):
    same = torch.equal(grad, tensor.grad)
    print(f"{name:4} equal {same}, shapes {tuple(grad.shape)} and {tuple(tensor.grad.shape)}, all {grad.flatten()[0]:.6f}")
