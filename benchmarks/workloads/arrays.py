"""Operations on large arrays, forward and backward: memory and arithmetic decide."""

from __future__ import annotations

from .tools import floor, integers, normal

SIZES = {"4M": 4096, "256K": 256}  # rows of 1024 elements


def _operation(name: str, title: str, arrays: int, make):
    """A row for each size; `make(torch, rows)` returns the operation and its inputs, `arrays` counts what it must read and write."""

    def of_size(size: str, rows: int):
        @floor(arrays=arrays * rows * 1024)
        def workload(torch):
            operation, inputs = make(torch, rows)
            g = None

            def forward():
                return operation(*inputs)

            def backward(y):
                nonlocal g
                if g is None:
                    g = torch.from_numpy(normal(*y.shape))
                return torch.autograd.grad(y, inputs, g)[0]

            return forward, backward

        workload.__name__ = workload.__qualname__ = f"{name}_{size.lower()}"
        workload.__doc__ = f"{title}, {size[:-1]} {size[-1]} elements"
        return workload

    return [of_size(size, rows) for size, rows in SIZES.items()]


def _inputs(torch, rows: int, count: int = 1):
    values = normal(count, rows, 1024)
    return [torch.from_numpy(v).requires_grad_() for v in values]


def _layer_norm(torch, rows):
    weight, bias = (torch.from_numpy(normal(1024)).requires_grad_() for _ in range(2))
    return lambda x, w, b: torch.nn.functional.layer_norm(x, (1024,), w, b), [*_inputs(torch, rows), weight, bias]


def _cross_entropy(torch, rows):
    labels = torch.from_numpy(integers(1024, rows))
    return lambda x: torch.nn.functional.cross_entropy(x, labels), _inputs(torch, rows)


# Forward reads the inputs and writes the result; backward reads it (or the inputs) and the gradient, and writes gradients.
OPERATIONS = (
    *_operation("exp", "`exp`", 5, lambda torch, rows: (torch.exp, _inputs(torch, rows))),
    *_operation("tanh", "`tanh`", 5, lambda torch, rows: (torch.tanh, _inputs(torch, rows))),
    *_operation("sigmoid", "`sigmoid`", 5, lambda torch, rows: (torch.sigmoid, _inputs(torch, rows))),
    *_operation("multiply_add", "`a * b + c`", 9, lambda torch, rows: (lambda a, b, c: a * b + c, _inputs(torch, rows, 3))),
    *_operation("gelu", "`gelu`", 5, lambda torch, rows: (torch.nn.functional.gelu, _inputs(torch, rows))),
    *_operation("softmax", "`softmax` of rows of 1,024", 5, lambda torch, rows: (lambda x: x.softmax(1), _inputs(torch, rows))),
    *_operation("layer_norm", "`layer_norm` of rows of 1,024", 5, _layer_norm),
    *_operation("cross_entropy", "`cross_entropy` with 1,024 classes", 3, _cross_entropy),
)


@floor(arrays=6_500_000)  # the mask has a byte per element
def select(torch):
    """`where` by a random mask, 1,000x1,000"""
    values = normal(2, 1000, 1000)
    x, y = (torch.from_numpy(v).requires_grad_() for v in values)
    mask, g = torch.from_numpy(values[0] > 0.1), torch.from_numpy(values[1])

    def forward():
        return torch.where(mask, x, y)

    def backward(selected):
        return torch.autograd.grad(selected, (x, y), g)[0]

    return forward, backward


@floor(arrays=4 * 8192 * 256 + 10_000 * 256)
def embedding(torch):
    """`embedding`: 8,192 indices into 10,000x256"""
    weight = torch.from_numpy(normal(10_000, 256)).requires_grad_()
    indices = torch.from_numpy(integers(10_000, 8192))
    g = torch.from_numpy(normal(8192, 256))

    def forward():
        return torch.nn.functional.embedding(indices, weight)

    def backward(y):
        return torch.autograd.grad(y, weight, g)[0]

    return forward, backward


def _sum_by_index(torch, add):
    """What messages along 50,000 edges add up to in 10,000 nodes: `add(nodes, edges, messages)`."""
    nodes = torch.from_numpy(normal(10_000, 64)).requires_grad_()
    messages = torch.from_numpy(normal(50_000, 64)).requires_grad_()
    edges = torch.from_numpy(integers(10_000, 50_000))
    g = torch.from_numpy(normal(10_000, 64))

    def forward():
        return add(nodes, edges, messages)

    def backward(y):
        return torch.autograd.grad(y, (nodes, messages), g)[1]

    return forward, backward


@floor(arrays=3 * 50_000 * 64 + 2 * 10_000 * 64)
def index_add(torch):
    """`index_add`: 50,000 rows of 64 into 10,000"""
    return _sum_by_index(torch, lambda nodes, edges, messages: nodes.index_add(0, edges, messages))


@floor(arrays=3 * 50_000 * 64 + 2 * 10_000 * 64)
def scatter_add(torch):
    """`scatter_add`: 50,000x64 into 10,000x64"""
    return _sum_by_index(torch, lambda nodes, edges, messages: nodes.scatter_add(0, edges[:, None].expand(-1, 64), messages))


ROWS = (*OPERATIONS, select, embedding, index_add, scatter_add)
