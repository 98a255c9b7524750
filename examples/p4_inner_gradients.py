"""The gradients of inner tensors: `.grad` is kept for leaves only. Three ways to see the others."""

import warnings

import torch


def forward():
    x = torch.ones(2, 2, requires_grad=True)
    y = x + 2
    z = 3 * y**2
    return x, y, z, z.mean()


print("# By default they pass and are gone")
x, y, z, out = forward()
out.backward()
print(x.grad)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(y.grad)
print(f"{caught[0].category.__name__}: {str(caught[0].message).partition('. ')[0]}")

print("\n# register_hook: seen while they pass, nothing is kept")
x, y, z, out = forward()
z.register_hook(lambda grad: print("z", grad))
y.register_hook(lambda grad: print("y", grad))
out.backward()
print(x.grad)

print("\n# A hook may also replace what passes")
x, y, z, out = forward()
y.register_hook(lambda grad: grad * 2)
out.backward()
print(x.grad)

print("\n# retain_grad: kept in .grad, as for a leaf")
x, y, z, out = forward()
for inner in (y, z, out):
    inner.retain_grad()
print(y.retains_grad, x.retains_grad)
out.backward()
for tensor in (out, z, y, x):
    print(tensor.grad)

print("\n# autograd.grad: asked for, nothing else is touched")
x, y, z, out = forward()
print(torch.autograd.grad(out, [y, z]))
print(x.grad)
