"""The graph that backward will walk, walked by hand.

Every tensor that was computed knows the node that computes its gradient, `grad_fn`. Every node knows the nodes behind
it, `next_functions`: one pair (node, number of its output) per input, or (None, 0) where no gradient flows. The walk
ends at AccumulateGrad nodes, whose `variable` is a leaf.
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def name(node):
    return type(node).__name__


def walk(node, depth=0):
    """Prints the nodes below this one, indented: backward is a recursion over these edges."""
    if node is None:
        print("  " * depth + "(no gradient)")
        return
    leaf = f" of a leaf of shape {tuple(node.variable.shape)}" if hasattr(node, "variable") else ""
    print("  " * depth + name(node) + leaf)
    for next_node, _ in node.next_functions:
        walk(next_node, depth + 1)


print("# Leaves and results")
w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
b = torch.ones(3, requires_grad=True)
y = w + b
print(w.is_leaf, w.grad_fn)
print(y.is_leaf, y.grad_fn)
print(y.grad_fn.next_functions)
print(y.grad_fn.next_functions[0][0].variable is w)
print((w * 2).grad_fn.next_functions)  # the number 2 gets no gradient

print("\n# Other operations")
for made in (w.repeat(2), w[:2], w**2, (w**2).sum(), w.exp() * b):
    print(made.grad_fn)

print("\n# A loss, down to the leaves")
layer = nn.Linear(3, 2)
hidden = torch.relu(layer(torch.randn(4, 3)))
loss = F.mse_loss(hidden, torch.zeros(4, 2))
node = loss.grad_fn
while not hasattr(node, "variable"):  # always the first edge: to the bias
    print(name(node), "->", [name(next_node) for next_node, _ in node.next_functions])
    node = node.next_functions[0][0]
print(node.variable is layer.bias)
walk(loss.grad_fn)

print("\n# Hooks on nodes")
x = torch.tensor([1.0, 2.0], requires_grad=True)
z = (x * x).sum()
multiply = z.grad_fn.next_functions[0][0]
accumulate = multiply.next_functions[0][0]
x.register_hook(lambda grad: grad * 3)  # a tensor hook may replace the gradient ...
multiply.register_hook(lambda grad_inputs, grad_outputs: print(name(multiply), grad_inputs, grad_outputs))
accumulate.register_hook(lambda grad_inputs, grad_outputs: print(name(accumulate), grad_inputs, grad_outputs))
z.backward()  # ... and the hook of the AccumulateGrad node sees the new one
print(x.grad)

print("\n# Gradients add up in .grad")
for _ in range(2):
    (w * b).sum().backward()
    print(w.grad, b.grad)
