"""Networks of ordinary size: a training step, or forward and backward of a part."""

from __future__ import annotations

from .tools import dense, floor, integers, linear, mlp, normal, training, uniform


@floor(dense(128, 784, 512, 256, 10), arrays=7 * (784 * 512 + 512 * 256 + 256 * 10), calls=100)
def mlp_adam(torch, wrap=lambda model: model):
    """training step of 784-512-256-10: batch 128, cross entropy, Adam"""
    model = wrap(mlp(torch, 784, 512, 256, 10))
    x = torch.from_numpy(uniform(128, 784))
    labels = torch.from_numpy(integers(10, 128))
    optimizer = torch.optim.Adam(model.parameters())
    return (training(optimizer, lambda: torch.nn.functional.cross_entropy(model(x), labels)),)


@floor(
    linear(64 * 28 * 28, 25, 6, input_gradient=False)
    + linear(64 * 10 * 10, 150, 16)
    + dense(64, 400, 120, 84, 10, input_gradient=True),
    calls=80,
)
def lenet(torch):
    """training step of LeNet: batch 64 of 1x28x28, SGD with momentum"""
    nn = torch.nn
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *mlp(torch, 400, 120, 84, 10),
    )
    images = torch.from_numpy(normal(64, 1, 28, 28))
    labels = torch.from_numpy(integers(10, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return (training(optimizer, lambda: nn.functional.cross_entropy(model(images), labels)),)


@floor(linear(32 * 28 * 28, 9 * 64, 64), arrays=13 * 32 * 64 * 28 * 28)
def conv_block(torch):
    """block of a ResNet: 3x3 convolution of 64 channels, batch norm, ReLU on 32x64x28x28, forward and backward"""
    nn = torch.nn
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    x = torch.from_numpy(normal(32, 64, 28, 28)).requires_grad_()
    g = torch.from_numpy(uniform(32, 64, 28, 28))
    return _forward_backward(torch, block, x, g)


def _forward_backward(torch, module, x, g):
    inputs = (x, *module.parameters())

    def forward():
        return module(x)

    def backward(y):
        return torch.autograd.grad(y, inputs, g)[0]

    return forward, backward


def _recurrent_floor(gates: int):
    return floor(linear(64 * 32, 128, gates * 128) + linear(32, 128, gates * 128, 63), calls=64 * 15)


def _recurrent(torch, name):
    torch.manual_seed(0)
    module = getattr(torch.nn, name)(128, 128)
    x = torch.from_numpy(normal(64, 32, 128)).requires_grad_()
    g = torch.from_numpy(uniform(64, 32, 128))
    inputs = (x, *module.parameters())

    def forward():
        return module(x)[0]

    def backward(y):
        return torch.autograd.grad(y, inputs, g)[0]

    return forward, backward


@_recurrent_floor(4)
def lstm(torch):
    """LSTM: 128 hidden, 64 steps, batch 32, forward and backward"""
    return _recurrent(torch, "LSTM")


@_recurrent_floor(3)
def gru(torch):
    """GRU: 128 hidden, 64 steps, batch 32, forward and backward"""
    return _recurrent(torch, "GRU")


VOCABULARY, TOKENS, WIDTH, HEADS, LAYERS, BATCH = 65, 128, 128, 4, 4, 16
_ROWS = BATCH * TOKENS


@floor(
    linear(_ROWS, WIDTH, 3 * WIDTH, LAYERS)
    + linear(_ROWS, WIDTH, WIDTH, LAYERS)
    + linear(_ROWS, WIDTH, 4 * WIDTH, LAYERS)
    + linear(_ROWS, 4 * WIDTH, WIDTH, LAYERS)
    + linear(TOKENS, WIDTH // HEADS, TOKENS, LAYERS * BATCH * HEADS)
    + linear(TOKENS, TOKENS, WIDTH // HEADS, LAYERS * BATCH * HEADS)
    + linear(_ROWS, WIDTH, VOCABULARY),
)
def gpt_step(torch, wrap=lambda model: model):
    """training step of a small GPT: 4 layers, 128 wide, 4 heads, 16x128 tokens, AdamW"""
    nn = torch.nn
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
            self.project = nn.Linear(WIDTH, WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x):
            heads = self.qkv(self.norms[0](x)).view(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(attended.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
            return x + self.mlp(self.norms[1](x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Embedding(VOCABULARY, WIDTH)
            self.position = nn.Embedding(TOKENS, WIDTH)
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, tokens):
            x = self.token(tokens) + self.position(torch.arange(TOKENS))
            return self.head(self.norm(self.blocks(x)))

    model = wrap(GPT())
    text = torch.from_numpy(integers(VOCABULARY, BATCH, TOKENS + 1))
    tokens, targets = text[:, :-1], text[:, 1:].reshape(-1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    return (training(optimizer, lambda: nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets)),)


@floor(
    dense(128, 784, 400, 20) + linear(128, 400, 20) + linear(128, 20, 400) + linear(128, 400, 784),
    arrays=7 * (2 * 784 * 400 + 3 * 400 * 20),
    calls=150,
)
def vae_step(torch):
    """training step of a VAE: 784-400-20, batch 128, Adam"""
    nn, functional = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(784, 400)
            self.mean = nn.Linear(400, 20)
            self.log_variance = nn.Linear(400, 20)
            self.decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())

        def forward(self, x):
            hidden = torch.relu(self.hidden(x))
            mean, log_variance = self.mean(hidden), self.log_variance(hidden)
            deviation = torch.exp(0.5 * log_variance)
            return self.decoder(mean + torch.randn_like(deviation) * deviation), mean, log_variance

    torch.manual_seed(0)
    model = VAE()
    images = torch.from_numpy(uniform(128, 784))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss():
        decoded, mean, log_variance = model(images)
        reconstruction = functional.binary_cross_entropy(decoded, images, reduction="sum")
        return reconstruction - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())

    return (training(optimizer, loss),)


@floor(arrays=7 * 10_000_000)
def adam_step(torch):
    """Adam step over 10 million parameters in 20 tensors"""
    parameters = [torch.from_numpy(uniform(500, 1000)).requires_grad_() for _ in range(20)]
    for parameter in parameters:
        parameter.grad = torch.from_numpy(normal(500, 1000))
    optimizer = torch.optim.Adam(parameters)

    def step():
        optimizer.step()
        return parameters[0]

    return (step,)


ROWS = (mlp_adam, lenet, conv_block, lstm, gru, gpt_step, vae_step, adam_step)
