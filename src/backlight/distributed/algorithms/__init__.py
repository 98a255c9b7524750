"""`torch.distributed.algorithms`: the communication hooks of DistributedDataParallel."""

from . import ddp_comm_hooks

__all__ = ["ddp_comm_hooks"]
