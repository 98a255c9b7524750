"""DataParallel, which without GPUs calls its module, and DistributedDataParallel, which averages gradients over processes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..state import modes
from .module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """Calls `module`: as in PyTorch on a machine without GPUs. Its parameters are named `module.*`."""

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0) -> None:  # noqa: ARG002
        super().__init__()
        self.module = module
        self.device_ids: list = []

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(Module):
    """Calls `module`, and averages its gradients over the ranks of a process group in every backward pass.

    Each rank has the whole model and a share of the batch. At the start all get the parameters and buffers of rank 0; as all then
    take the same optimizer steps, they stay equal. Gradients are sent in buckets while backward still runs. Its state dict has
    names `module.*`.

    process_group: by default that of all ranks. bucket_cap_mb: bytes per bucket in MiB, by default 1 for the first and 25 for the
    others. broadcast_buffers: before each forward all ranks get the buffers of rank 0. find_unused_parameters: allows parameters
    that a backward pass doesn't reach, by a walk through the graph after each forward. static_graph: the program promises that every
    pass uses the same parameters, which the first one finds out. init_sync=False: leaves parameters as they are.

    RuntimeError if the ranks' models differ, or no parameter requires a gradient; ValueError without a process group. If a parameter
    got no gradient and find_unused_parameters is off, the next forward raises RuntimeError and says which and why.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,  # noqa: ARG002  (PyTorch ignores it, too)
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        from ..distributed import groups
        from ..distributed.reducer import BUCKET, FIRST_BUCKET, Reducer
        from ..distributed.replicas import broadcast_state, check_same_model

        for name, value in options.items():
            if value not in (None, False):
                raise NotImplementedError(f"DistributedDataParallel: {name} isn't there in Backlight")
        self.process_group = groups.resolve(process_group)
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named: list[tuple[str, Any]] = [(name, p) for name, p in module.named_parameters() if name not in ignored]
        trained = [(name, p) for name, p in named if p.requires_grad]
        if not trained:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
            )
        if device_ids or output_device is not None:
            raise ValueError(
                "DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU modules "
                f"or CPU modules, but got device_ids {device_ids}, output_device {output_device}, and module parameters "
                "{device(type='cpu')}."
            )
        self.module, self.dim, self.device_ids, self.output_device = module, dim, None, None
        self.broadcast_buffers = True if broadcast_buffers is None else broadcast_buffers
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.modules_buffers = [buffer for name, buffer in module.named_buffers() if name not in ignored]
        check_same_model(self.process_group, named, list(module.named_buffers()))
        if init_sync:
            broadcast_state(self.process_group, [p for _, p in named] + self.modules_buffers, "parameters and buffers")
        limits = [FIRST_BUCKET, BUCKET] if bucket_cap_mb is None else [int(bucket_cap_mb * 1024 * 1024)]
        parameters, names = [p for _, p in trained], [name for name, _ in trained]
        self.reducer = Reducer(parameters, names, self.process_group, limits, find_unused_parameters, static_graph)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        synchronises = modes.grad and self.require_backward_grad_sync
        reducer = self.reducer
        if synchronises and reducer.running:
            from ..distributed.unused import raise_unfinished

            raise_unfinished(self.module, reducer, inputs, kwargs)
        if self.will_sync_module_buffers():
            from ..distributed.replicas import broadcast_state

            broadcast_state(self.process_group, self.modules_buffers, "buffers")
        output = self.module(*inputs, **kwargs)
        self.require_forward_param_sync = synchronises
        if synchronises:
            reducer.prepare(_tensors_in(output) if self.find_unused_parameters else ())
        return output

    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward first takes over the buffers of rank 0."""
        return self.require_forward_param_sync and self.broadcast_buffers and bool(self.modules_buffers)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside the block, forward and the backward of what it computes leave gradients to this rank alone: they accumulate.

        with model.no_sync():
            for x, y in parts[:-1]:
                loss_of(model(x), y).backward()
        loss_of(model(parts[-1][0]), parts[-1][1]).backward()  # averages the sum of all
        """
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable) -> None:
        """Has `hook(state, bucket)` average each bucket instead: it returns a Future of the flat tensor of averaged gradients.

        bucket: a `torch.distributed.GradBucket` with the gradients of this rank, not divided. See
        `torch.distributed.algorithms.ddp_comm_hooks.default_hooks`. RuntimeError if there is a hook already."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook, self.reducer.hook_state = hook, state

    def _set_static_graph(self) -> None:
        """Same as static_graph=True; call it before the first forward."""
        self.static_graph = self.reducer.static = True

    def join(self, *_args: Any, **_options: Any) -> Any:
        """Raises: give all ranks the same number of batches, as DistributedSampler does."""
        raise NotImplementedError(
            "DistributedDataParallel.join isn't there in Backlight: give all ranks the same number of batches, as DistributedSampler does"
        )


def _tensors_in(output: Any) -> list:
    from ..tensor import Tensor
    from ..utils._pytree import tree_leaves

    if isinstance(output, Tensor):
        return [output]
    found = []
    for leaf in tree_leaves(output):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dataclass_fields__"):
            found += _tensors_in(list(vars(leaf).values()))
    return found
