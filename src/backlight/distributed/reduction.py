"""How tensors of every type are reduced by MPI, which knows fewer types and no mean."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from .. import dtypes
from . import mpi, work

HALF_PIECE = 1 << 19  # elements of a half-precision array that are reduced in float32 at a time
AT_ONCE = 2 << 20  # bytes that are reduced at a time: they stay in the cache (64 MB on 2 ranks: 8 ms, in one call 24)


class RedOpType(Enum):
    """The operations of `ReduceOp`."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7

    def __call__(self) -> RedOpType:
        return self


class _ReduceOpMeta(type):
    def __getattr__(cls, name: str) -> RedOpType:
        try:
            return RedOpType[name]
        except KeyError:
            raise AttributeError(f"ReduceOp has no operation {name!r}; it has {', '.join(RedOpType.__members__)}") from None

    def __iter__(cls):
        return iter(RedOpType)


class ReduceOp(metaclass=_ReduceOpMeta):
    """How the values of the ranks are combined: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR.

    AVG is for floating point and complex tensors; the bitwise ones are for integers and bool. Of bool tensors, SUM and MAX are "or",
    PRODUCT and MIN are "and"."""

    RedOpType = RedOpType

    def __new__(cls, op: RedOpType) -> RedOpType:  # pyright: ignore[reportInvalidConstructorReturn]
        return checked_op(op)


_BOOL = {"SUM": "LOR", "MAX": "LOR", "BOR": "LOR", "PRODUCT": "LAND", "MIN": "LAND", "BAND": "LAND", "BXOR": "LXOR"}
_MPI = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PROD", "MIN": "MIN", "MAX": "MAX", "BAND": "BAND", "BOR": "BOR", "BXOR": "BXOR"}


def checked_op(op: Any) -> RedOpType:
    """The operation; TypeError for what isn't one."""
    if not isinstance(op, RedOpType):
        raise TypeError(f"op must be a ReduceOp such as torch.distributed.ReduceOp.SUM, got {op!r}")
    return op


def check_type(operation: str, op: Any, array: np.ndarray) -> RedOpType:
    """The operation, if arrays of this type can be reduced by it. RuntimeError or ValueError as in PyTorch."""
    op = checked_op(op)
    dtype = dtypes.from_array_type(array.dtype)
    if dtype.is_complex and op.name not in ("SUM", "AVG"):
        raise ValueError(f"{operation} does not support {op} on complex tensors")
    if op.name in ("BAND", "BOR", "BXOR") and dtype.category > 1:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
    if op.name == "AVG" and dtype.category < 2:
        name = dtypes.scalar_type_name(dtype)
        raise RuntimeError(f"result type Float can't be cast to the desired output type {name}: use ReduceOp.SUM for integers")
    return op


def mpi_op(op: RedOpType, array_type: np.dtype) -> Any:
    """MPI's operation for arrays of this type."""
    return getattr(mpi.library(), _BOOL[op.name] if array_type.kind == "b" else _MPI[op.name])


def is_half(array: np.ndarray) -> bool:
    """Whether the elements are of a type that MPI can't compute with: float16 and bfloat16 are reduced as float32."""
    return array.itemsize == 2 and array.dtype.kind in "fV"


def all_reduce(communicator: Any, flat: np.ndarray, op: RedOpType) -> None:
    """Reduces a flat contiguous array in place, on all ranks."""
    MPI = mpi.library()
    if communicator.size > 1:
        if is_half(flat):
            for i in range(0, flat.size, HALF_PIECE):
                part = flat[i : i + HALF_PIECE]
                wide = part.astype(np.float32)
                communicator.Allreduce(MPI.IN_PLACE, wide, mpi_op(op, wide.dtype))
                part[...] = _averaged(wide, op, communicator.size)
            return
        for part in work.pieces(flat, AT_ONCE):
            if part.dtype.kind == "b":
                communicator.Allreduce(MPI.IN_PLACE, [part, MPI.C_BOOL], mpi_op(op, part.dtype))
            else:
                communicator.Allreduce(MPI.IN_PLACE, part, mpi_op(op, part.dtype))
    _averaged(flat, op, communicator.size)


def _averaged(array: np.ndarray, op: RedOpType, size: int) -> np.ndarray:
    if op is RedOpType.AVG and size > 1:
        array /= np.asarray(size, array.dtype)
    return array


def reduce(communicator: Any, flat: np.ndarray, op: RedOpType, root: int) -> np.ndarray:
    """The reduced array on rank `root`, which may be `flat` itself; on the others nothing changes, and it is `flat`."""
    MPI = mpi.library()
    kept = flat
    if communicator.size == 1:
        return flat
    if is_half(flat):
        flat = flat.astype(np.float32)
    here = communicator.rank == root
    for part in work.pieces(flat, AT_ONCE):
        spec = [part, MPI.C_BOOL] if part.dtype.kind == "b" else part
        if here:
            communicator.Reduce(MPI.IN_PLACE, spec, mpi_op(op, part.dtype), root)
        else:
            communicator.Reduce(spec, None, mpi_op(op, part.dtype), root)
    return _averaged(flat, op, communicator.size).astype(kept.dtype, copy=False) if here else kept


def reduce_scatter(communicator: Any, flat: np.ndarray, op: RedOpType) -> np.ndarray:
    """Share `rank` of the reduced array, whose size is a multiple of the number of ranks."""
    MPI = mpi.library()
    size, length = communicator.size, flat.size // communicator.size
    if size == 1:
        return flat
    wide = flat.astype(np.float32) if is_half(flat) else flat
    share = np.empty(length, wide.dtype)
    if wide.nbytes <= work.PIECE:
        specs = [[x, MPI.C_BOOL] if x.dtype.kind == "b" else x for x in (wide, share)]
        communicator.Reduce_scatter_block(specs[0], specs[1], mpi_op(op, wide.dtype))
        return _averaged(share, op, size).astype(flat.dtype, copy=False)
    for rank in range(size):
        part = np.ascontiguousarray(wide[rank * length : (rank + 1) * length])
        reduced = reduce(communicator, part.copy(), op, rank)
        if rank == communicator.rank:
            share = reduced
    return share.astype(flat.dtype, copy=False)
