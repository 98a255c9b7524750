"""Hooks that average a bucket of gradients: as they are, or in fewer bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import bfloat16, float16
from ...collectives import all_reduce
from ...groups import ProcessGroup, resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....futures import Future
    from ....tensor import Tensor
    from ...reducer import GradBucket

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]


def _averaged(group: Any, tensor: Tensor) -> Future:
    """A future of the mean of the ranks' tensors, which overwrites this one."""
    group = resolve(group)
    tensor.div_(group.size())
    work = all_reduce(tensor, group=group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda future: future.value()[0])


def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The mean of the ranks' gradients: what DistributedDataParallel does without a hook."""
    return _averaged(process_group, bucket.buffer())


def _compressed(group: Any, bucket: GradBucket, dtype: Any) -> Future:
    buffer = bucket.buffer()
    return _averaged(group, buffer.to(dtype)).then(lambda future: buffer.copy_(future.value()))


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The mean of the ranks' gradients, which travel as float16: half the bytes, and less accuracy."""
    return _compressed(process_group, bucket, float16)


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future:
    """The mean of the ranks' gradients, which travel as bfloat16: half the bytes, and less accuracy."""
    return _compressed(process_group, bucket, bfloat16)


def _wrapper(hook: Callable, dtype: Any) -> Callable:
    def compressed(state: Any, bucket: GradBucket) -> Future:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))
        return hook(state, bucket).then(lambda future: buffer.copy_(future.value()))

    return compressed


def fp16_compress_wrapper(hook: Callable) -> Callable:
    """`hook` on buckets in float16; the result is float32 again."""
    return _wrapper(hook, float16)


def bf16_compress_wrapper(hook: Callable) -> Callable:
    """`hook` on buckets in bfloat16; the result is float32 again."""
    return _wrapper(hook, bfloat16)
