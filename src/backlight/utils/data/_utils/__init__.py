"""The parts of `DataLoader`."""

from . import collate, fetch, worker

__all__ = ["collate", "fetch", "worker"]
