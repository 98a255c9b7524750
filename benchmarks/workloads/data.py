"""Data on the way in and out: batches, and files."""

from __future__ import annotations

import os
import tempfile
import weakref

from .tools import floor, integers, normal, uniform

SAMPLES = 6_400


@floor(arrays=2 * SAMPLES * 64, calls=SAMPLES // 64 * 2)
def loader_epoch(torch):
    """epoch of a DataLoader over 6,400 samples in memory: shuffled, batches of 64"""
    torch.manual_seed(0)
    images, labels = torch.from_numpy(uniform(SAMPLES, 64)), torch.from_numpy(integers(10, SAMPLES))
    dataset = torch.utils.data.TensorDataset(images, labels)
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True)

    def epoch():
        for images, _labels in loader:
            last = images
        return last

    return (epoch,)


def _hundred_megabytes(torch):
    """Ten tensors, and the name of a file in memory where there is a folder for it: the disk isn't what is measured."""
    tensors = {f"layer{i}.weight": torch.from_numpy(normal(2500, 1000)) for i in range(10)}
    descriptor, path = tempfile.mkstemp(".pt", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    os.close(descriptor)
    return tensors, path


@floor(arrays=2 * 25_000_000)
def save(torch):
    """`save` of 100 MB in ten tensors"""
    tensors, path = _hundred_megabytes(torch)

    def write():
        torch.save(tensors, path)
        return os.path.getsize(path) // 1_000_000

    weakref.finalize(write, os.remove, path)
    return (write,)


@floor(arrays=2 * 25_000_000)
def load(torch):
    """`load` of 100 MB in ten tensors"""
    tensors, path = _hundred_megabytes(torch)
    torch.save(tensors, path)

    def read():
        return torch.load(path)["layer9.weight"]

    weakref.finalize(read, os.remove, path)
    return (read,)


ROWS = (loader_epoch, save, load)
