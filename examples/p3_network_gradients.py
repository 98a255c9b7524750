"""Printing the gradients of a network while it trains, and of a few expressions one can check by hand."""

import torch
from torch import nn
from torch.autograd import Variable

torch.manual_seed(3)

print("# A training loop")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = nn.MSELoss()
inputs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], device=device)
targets = inputs.sum(dim=1, keepdim=True)
for epoch in range(2):
    optimizer.zero_grad()
    loss = criterion(net(inputs), targets)
    loss.backward()
    print(f"epoch {epoch}, loss {loss.item():.4f}")
    for name, parameter in net.named_parameters():
        print(name, parameter.requires_grad)
        print(parameter.grad)
    optimizer.step()

print("\n# A scalar at the end: backward() needs no argument")
x = Variable(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), requires_grad=True)  # Variable is the old name of Tensor
y = x + 2
z = 3 * y * y
out = z.mean()
print(y)
print(z)
print(out)
out.backward()
print(x.grad)

print("\n# No scalar: backward() wants the gradient of something with respect to z")
x = Variable(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), requires_grad=True)
y = x + 2
z = 3 * y * y
try:
    z.backward()
except RuntimeError as error:
    print("RuntimeError:", error)
z.backward(gradient=torch.tensor([[2.0, 1.0, 1.0], [1.0, 1.0, 1.0]]))
print(x.grad)

print("\n# A product of matrices")
x1 = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
x2 = Variable(torch.ones(2, 2), requires_grad=True)
product = x2.mm(x1)
print(product)
product.backward(torch.ones(2, 3))
print(x2.grad)  # the sums of x1's rows, 6 and 15, in each row
