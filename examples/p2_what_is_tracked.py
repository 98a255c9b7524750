"""Which tensors does autograd follow?

Those that require grad and what is computed from them, unless somebody detaches a tensor or works under `no_grad`.
"""

import torch

torch.manual_seed(1)


def describe(name, tensor):
    print(f"{name}: device={tensor.device} requires_grad={tensor.requires_grad} is_leaf={tensor.is_leaf}")
    print(f"   grad_fn={tensor.grad_fn}")
    if tensor.is_leaf:
        print(f"   grad={tensor.grad}")


print("# Only y asks for a gradient")
x = torch.arange(9, dtype=torch.float32).view(3, 3)
y = torch.randn(3, 3, requires_grad=True)
z = torch.sum(torch.mm(x, y))
z.backward()
describe("x", x)
describe("y", y)
describe("z", z)

print("\n# A detached tensor is outside the graph, the original stays in it")
y.grad = None
outside = y.detach()
total = torch.sum(torch.mm(x, y)) + torch.sum(outside * 100)
total.backward()
describe("outside", outside)
print(y.grad)
print(outside.data_ptr() == y.data_ptr())  # the same memory

print("\n# Nothing is followed under no_grad")
with torch.no_grad():
    quiet = torch.sum(torch.mm(x, y))
describe("quiet", quiet)
try:
    quiet.backward()
except RuntimeError as error:
    print("RuntimeError:", error)
print(torch.sum(torch.mm(x, y)).requires_grad)

print("\n# And then the optimizer uses .grad")
optimizer = torch.optim.SGD([y], lr=0.01)
print(y)
optimizer.step()
print(y)
optimizer.zero_grad()
print(y.grad)
