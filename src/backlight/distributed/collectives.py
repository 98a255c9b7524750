"""Collectives on tensors: every rank of a group calls one with tensors of the same shape and dtype, and all get what they have together.

A collective writes into the memory of the tensors that it is given, of any dtype and layout, and counts as a write in place: a graph
that saved the old contents refuses to run backward. With `async_op=True` it returns a `Work` at once; otherwise it returns when it is
done. Wrong arguments raise at once. A rank that calls something else, or nothing, makes all ranks raise (see work.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from ..versions import bump
from . import mpi, reduction, work
from .groups import ProcessGroup, is_outside, resolve, root_in
from .reduction import ReduceOp
from .work import Work, execute

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def check_tensor(value: Any, name: str) -> None:
    """TypeError, with PyTorch's text, for what isn't a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n             but got {type(value)} instead."
        )


def check_tensors(values: Any, name: str) -> list[Tensor]:
    """The tensors as a list; TypeError for what isn't a list of tensors."""
    if not isinstance(values, (list, tuple)) or not all(isinstance(x, Tensor) for x in values):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n             but got {type(values)} instead."
        )
    return list(values)


def _check_same_dtype(*tensors: Tensor) -> None:
    for tensor in tensors[1:]:
        if tensor.array.dtype != tensors[0].array.dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes. Found {tensors[0].dtype} and {tensor.dtype}")


def _check_count(tensors: Sequence, group: ProcessGroup, name: str) -> None:
    if len(tensors) != group.size():
        raise ValueError(
            f"{name} has {len(tensors)} tensors; it needs one for each of the {group.size()} ranks of {group.description}"
        )


def _check_shapes(tensors: Sequence[Tensor], shape: tuple, name: str) -> None:
    for i, tensor in enumerate(tensors):
        if tensor.array.shape != shape:
            raise ValueError(f"{name}[{i}] has shape {list(tensor.array.shape)}, expected {list(shape)}")


def check_list_at_root(values: Any, name: str, place: str, here: bool) -> None:
    """ValueError for a list that is missing on the root, the "destination" or "source" rank, or given elsewhere."""
    if here and values is None:
        raise ValueError(f"Argument ``{name}`` must be specified on {place} rank.")
    if not here and values:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{place} ranks.")


def _tensors_at_root(values: Any, name: str, place: str, tensor: Tensor, group: ProcessGroup, here: bool) -> list[Tensor]:
    """The root's tensors, one like `tensor` for each rank; none elsewhere."""
    check_list_at_root(values, name, place, here)
    tensors = check_tensors(values or [], name)
    if here:
        _check_count(tensors, group, name)
        _check_same_dtype(tensor, *tensors)
        _check_shapes(tensors, tensor.array.shape, name)
    return tensors


def what(operation: str, tensor: Tensor | np.ndarray, details: str = "", shape: bool = True) -> tuple:
    """What all ranks must agree on."""
    array = tensor.array if isinstance(tensor, Tensor) else tensor
    return operation, dtypes.from_array_type(array.dtype).name, array.shape if shape else None, details


def is_flat(array: np.ndarray) -> bool:
    """Whether MPI can read and write the array's memory as it is."""
    return array.flags.c_contiguous and array.flags.writeable


def flattened(array: np.ndarray) -> np.ndarray:
    """The array's elements in one row: its own memory if that is in order, else a copy."""
    return array.reshape(-1) if is_flat(array) else np.array(array, order="C").reshape(-1)


def in_place(array: np.ndarray, action: Callable[[np.ndarray], Any]) -> Callable[[], None]:
    """Runs `action` on the array's elements in one row, and writes them back if that was a copy."""

    def run() -> None:
        flat = flattened(array)
        action(flat)
        if not is_flat(array):
            array[...] = flat.reshape(array.shape)

    return run


def written(*tensors: Tensor) -> list[Tensor]:
    """Notes that these tensors are written."""
    for tensor in tensors:
        bump(tensor)
    return list(tensors)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Writes into `tensor` the sum (or what `op` says) of the tensors of all ranks, element by element.

    Of float16 and bfloat16 the sum is computed in float32 and rounded once.

        t = torch.tensor([1.0, 2.0]) * (dist.get_rank() + 1)
        dist.all_reduce(t)  # on 2 ranks: tensor([3., 6.])
    """
    check_tensor(tensor, "tensor")
    if is_outside(group, "all_reduce"):
        return None
    group = resolve(group)
    array = tensor.array
    op = reduction.check_type("all_reduce", op, array)
    action = in_place(array, lambda flat: reduction.all_reduce(group.communicator, flat, op))
    return execute(group, what("all_reduce", array, f"with {op.name}"), action, written(tensor), async_op)


def all_reduce_coalesced(tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """all_reduce of each tensor of a list, in one call."""
    tensors = check_tensors(tensors, "tensors")
    if is_outside(group, "all_reduce_coalesced"):
        return None
    group = resolve(group)
    if not tensors:
        raise ValueError("all_reduce_coalesced needs at least one tensor")
    arrays = [tensor.array for tensor in tensors]
    op = [reduction.check_type("all_reduce_coalesced", op, array) for array in arrays][0]
    actions = [in_place(array, lambda flat: reduction.all_reduce(group.communicator, flat, op)) for array in arrays]
    shapes = ", ".join(f"{x.array.dtype} {list(x.array.shape)}" for x in tensors)

    def run() -> None:
        for action in actions:
            action()

    return execute(group, ("all_reduce_coalesced", "", None, f"of {shapes} with {op.name}"), run, written(*tensors), async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Writes the tensor of rank `src` into that of every rank.

    src: a global rank; or group_src: a rank in the group."""
    check_tensor(tensor, "tensor")
    if is_outside(group, "broadcast"):
        return None
    group = resolve(group)
    root = root_in(group, "src", src, group_src)
    action = in_place(tensor.array, lambda flat: work.broadcast_bytes(group.communicator, flat, root))
    results = [tensor] if group.rank() == root else written(tensor)
    return execute(group, what("broadcast", tensor, f"from rank {group.ranks[root]}"), action, results, async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Writes into the tensor of rank `dst` the sum (or what `op` says) of the tensors of all ranks. Those of other ranks stay."""
    check_tensor(tensor, "tensor")
    if is_outside(group, "reduce"):
        return None
    group = resolve(group)
    root, array = root_in(group, "dst", dst, group_dst), tensor.array
    op = reduction.check_type("reduce", op, array)

    def run() -> None:
        flat = flattened(array)
        reduced = reduction.reduce(group.communicator, flat, op, root)
        if group.rank() == root and not (reduced is flat and is_flat(array)):
            array[...] = reduced.reshape(array.shape)

    results = written(tensor) if group.rank() == root else [tensor]
    return execute(group, what("reduce", array, f"with {op.name} to rank {group.ranks[root]}"), run, results, async_op)


def all_gather(tensor_list: list, tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Writes the tensor of rank i into `tensor_list[i]`, on every rank. All have one shape and dtype.

    ValueError if the list hasn't one tensor for each rank, or they differ in shape or dtype."""
    tensors = check_tensors(tensor_list, "tensor_list")
    check_tensor(tensor, "tensor")
    if is_outside(group, "all_gather"):
        return None
    group = resolve(group)
    _check_count(tensors, group, "tensor_list")
    _check_same_dtype(tensor, *tensors)
    array, outputs = tensor.array, [x.array for x in tensors]
    _check_shapes(tensors, array.shape, "tensor_list")

    def run() -> None:
        gathered = _gathered(group.communicator, flattened(array))
        for output, part in zip(outputs, gathered):
            output[...] = part.reshape(output.shape)

    return execute(group, what("all_gather", array), run, written(*tensors), async_op)


def _gathered(communicator: Any, flat: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
    """The rows of all ranks, as the rows of a matrix (`into`, if given: contiguous)."""
    result = (
        np.empty((communicator.size, flat.size), flat.dtype) if into is None else into.reshape(communicator.size, flat.size)
    )
    if result.nbytes <= work.PIECE:
        BYTE = mpi.library().BYTE
        communicator.Allgather([flat.view(np.uint8), BYTE], [result.reshape(-1).view(np.uint8), BYTE])
        return result
    result[communicator.rank] = flat
    for rank in range(communicator.size):
        work.broadcast_bytes(communicator, result[rank], rank)
    return result


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Writes the tensors of all ranks into `output_tensor`, one after the other: concatenated along dimension 0, or stacked.

    (N, *) -> (ranks * N, *) or (ranks, N, *). ValueError for other shapes."""
    check_tensor(input_tensor, "input_tensor")
    check_tensor(output_tensor, "output_tensor")
    if is_outside(group, "all_gather_into_tensor"):
        return None
    group = resolve(group)
    _check_same_dtype(output_tensor, input_tensor)
    array, output = input_tensor.array, output_tensor.array
    if output.size != array.size * group.size():
        raise ValueError(
            f"output tensor size must be equal to world_size times input tensor size: {list(output.shape)} for {group.size()} times {list(array.shape)}"
        )
    action = in_place(output, lambda flat: _gathered(group.communicator, flattened(array), flat))
    return execute(group, what("all_gather_into_tensor", array), action, written(output_tensor), async_op)


def reduce_scatter(
    output: Tensor, input_list: list, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Writes into `output` of rank i the sum (or what `op` says) of the tensors `input_list[i]` of all ranks."""
    check_tensor(output, "output")
    inputs = check_tensors(input_list, "input_list")
    if is_outside(group, "reduce_scatter"):
        return None
    group = resolve(group)
    _check_count(inputs, group, "input_list")
    _check_same_dtype(output, *inputs)
    _check_shapes(inputs, output.array.shape, "input_list")
    arrays, target = [x.array for x in inputs], output.array
    op = reduction.check_type("reduce_scatter", op, target)

    def run() -> None:
        flat = np.concatenate([x.reshape(-1) for x in arrays])
        target[...] = reduction.reduce_scatter(group.communicator, flat, op).reshape(target.shape)

    return execute(group, what("reduce_scatter", target, f"with {op.name}"), run, written(output), async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Writes into `output` of rank i share i of the sum (or what `op` says) of the tensors `input` of all ranks.

    (ranks * N, *) or (ranks, N, *) -> (N, *). ValueError for other shapes."""
    check_tensor(output, "output")
    check_tensor(input, "input")
    if is_outside(group, "reduce_scatter_tensor"):
        return None
    group = resolve(group)
    _check_same_dtype(output, input)
    array, target = input.array, output.array
    if array.size != target.size * group.size():
        raise ValueError(
            f"input tensor must be the same size as output size times world size: {list(array.shape)} for {group.size()} times {list(target.shape)}"
        )
    op = reduction.check_type("reduce_scatter_tensor", op, target)

    def run() -> None:
        target[...] = reduction.reduce_scatter(group.communicator, flattened(array), op).reshape(target.shape)

    return execute(group, what("reduce_scatter_tensor", target, f"with {op.name}"), run, written(output), async_op)


def gather(
    tensor: Tensor,
    gather_list: list | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Writes the tensor of rank i into `gather_list[i]` on rank `dst` (by default 0). Other ranks give no list.

    ValueError for a list that is missing there or given elsewhere."""
    check_tensor(tensor, "tensor")
    if is_outside(group, "gather"):
        return None
    group = resolve(group)
    root, array = root_in(group, "dst", dst, group_dst, default=0), tensor.array
    here = group.rank() == root
    tensors = _tensors_at_root(gather_list, "gather_list", "destination", tensor, group, here)
    outputs = [x.array for x in tensors]

    def run() -> None:
        flat = flattened(array).view(np.uint8)
        rows = np.empty((group.size(), flat.size), np.uint8) if here else None
        if array.nbytes * group.size() <= work.PIECE:
            BYTE = mpi.library().BYTE
            group.communicator.Gather([flat, BYTE], None if rows is None else [rows, BYTE], root)
        else:
            work.gather_bytes(group.communicator, flat, None if rows is None else list(rows), root)
            if rows is not None:
                rows[root] = flat
        for output, row in zip(outputs, () if rows is None else rows):
            output[...] = row.view(array.dtype).reshape(output.shape)

    return execute(group, what("gather", array, f"to rank {group.ranks[root]}"), run, written(*tensors), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Writes `scatter_list[i]` of rank `src` (by default 0) into the tensor of rank i. Other ranks give no list.

    ValueError for a list that is missing there or given elsewhere."""
    check_tensor(tensor, "tensor")
    if is_outside(group, "scatter"):
        return None
    group = resolve(group)
    root, array = root_in(group, "src", src, group_src, default=0), tensor.array
    here = group.rank() == root
    tensors = _tensors_at_root(scatter_list, "scatter_list", "source", tensor, group, here)
    inputs = [x.array for x in tensors]

    def run() -> None:
        communicator = group.communicator
        own = np.empty(array.size, array.dtype)
        rows = [flattened(x) for x in inputs]
        if array.nbytes * group.size() <= work.PIECE:
            BYTE = mpi.library().BYTE
            communicator.Scatter([np.stack(rows).view(np.uint8), BYTE] if here else None, [own.view(np.uint8), BYTE], root)
        else:
            work.scatter_bytes(communicator, None if here else own, rows, root)
            own = rows[root] if here else own
        array[...] = own.reshape(array.shape)

    return execute(group, what("scatter", array, f"from rank {group.ranks[root]}"), run, written(tensor), async_op)


def all_to_all(output_tensor_list: list, input_tensor_list: list, group: Any = None, async_op: bool = False) -> Work | None:
    """Sends `input_tensor_list[i]` to rank i and writes what comes from rank i into `output_tensor_list[i]`. Sizes may differ.

    RuntimeError on all ranks if a tensor hasn't the size of the one that comes for it."""
    outputs = check_tensors(output_tensor_list, "output_tensor_list")
    inputs = check_tensors(input_tensor_list, "input_tensor_list")
    if is_outside(group, "all_to_all"):
        return None
    group = resolve(group)
    _check_count(outputs, group, "output_tensor_list")
    _check_count(inputs, group, "input_tensor_list")
    _check_same_dtype(*outputs, *inputs)
    sources, targets = [x.array for x in inputs], [x.array for x in outputs]

    def run() -> None:
        received = _exchanged(group, [flattened(x) for x in sources], [x.size for x in targets])
        for target, row in zip(targets, received):
            target[...] = row.reshape(target.shape)

    return execute(group, what("all_to_all", inputs[0], shape=False), run, written(*outputs), async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Splits `input` along dimension 0, sends part i to rank i, and concatenates what comes into `output`.

    Parts are equal, or as long as `input_split_sizes` and `output_split_sizes` say. ValueError where a dimension doesn't fit."""
    check_tensor(output, "output")
    check_tensor(input, "input")
    if is_outside(group, "all_to_all_single"):
        return None
    group = resolve(group)
    _check_same_dtype(output, input)
    source, target = input.array, output.array
    starts = [
        _splits(group, x, sizes, name)
        for x, sizes, name in ((source, input_split_sizes, "input"), (target, output_split_sizes, "output"))
    ]

    def run() -> None:
        parts = [flattened(source[a:b]) for a, b in zip(starts[0], starts[0][1:])]
        places = [target[a:b] for a, b in zip(starts[1], starts[1][1:])]
        for place, row in zip(places, _exchanged(group, parts, [x.size for x in places])):
            place[...] = row.reshape(place.shape)

    return execute(group, what("all_to_all_single", source, shape=False), run, written(output), async_op)


def _splits(group: ProcessGroup, array: np.ndarray, sizes: list[int] | None, name: str) -> list[int]:
    """Where the parts begin and end."""
    if array.ndim == 0:
        raise ValueError(f"all_to_all_single: {name} must have at least one dimension")
    n, ranks = array.shape[0], group.size()
    if not sizes:
        if n % ranks:
            raise ValueError(
                f"all_to_all_single: {name} has {n} rows, which {ranks} ranks can't share equally; give {name}_split_sizes"
            )
        sizes = [n // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != n:
        raise ValueError(f"Split sizes don't match: {name}_split_sizes is {list(sizes)}, for {ranks} ranks and {n} rows")
    return [0, *np.cumsum(sizes).tolist()]


def _exchanged(group: ProcessGroup, parts: list[np.ndarray], expected: list[int]) -> list[np.ndarray]:
    """What the other ranks send, given what this one sends to each and how many elements it expects from each."""
    communicator, size = group.communicator, group.size()
    table = np.empty((size, 2, size), np.int64)
    communicator.Allgather(np.array([[x.size for x in parts], expected], np.int64), table)
    sent, wanted = table[:, 0], table[:, 1].T
    if (sent != wanted).any():
        sender, receiver = np.argwhere(sent != wanted)[0].tolist()
        raise RuntimeError(
            f"Sizes don't match: rank {group.ranks[sender]} sends {sent[sender, receiver]} elements to rank {group.ranks[receiver]}, which "
            f"expects {wanted[sender, receiver]}"
        )
    received = [np.empty(n, parts[0].dtype) for n in expected]
    own = communicator.rank
    received[own][...] = parts[own]
    for shift in range(1, size):
        to, source = (own + shift) % size, (own - shift) % size
        outgoing, incoming = work.pieces(parts[to].view(np.uint8)), work.pieces(received[source].view(np.uint8))
        requests = [communicator.Irecv(piece, source) for piece in incoming] + [
            communicator.Isend(piece, to) for piece in outgoing
        ]
        mpi.library().Request.Waitall(requests)
    return received


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Returns when all ranks of the group have called it."""
    del device_ids
    if is_outside(group, "barrier"):
        return None
    return execute(resolve(group), ("barrier", "", None, ""), None, [], async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """A barrier with a timeout of its own. The error names the ranks that didn't come (all of them, whatever `wait_all_ranks`)."""
    del wait_all_ranks
    if is_outside(group, "monitored_barrier"):
        return
    group = resolve(group)
    execute(
        group, ("monitored_barrier", "", None, ""), None, [], False, group.timeout if timeout is None else mpi.seconds(timeout)
    )
