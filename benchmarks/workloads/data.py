"""Data on the way in and out: batches, and files."""

from __future__ import annotations

import os
import tempfile

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
    """Ten tensors, and a folder in memory where there is one: the disk isn't what is measured."""
    tensors = {f"layer{i}.weight": torch.from_numpy(normal(2500, 1000)) for i in range(10)}
    folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    return tensors, folder


@floor(arrays=2 * 25_000_000)
def save(torch):
    """`save` of 100 MB in ten tensors"""
    tensors, folder = _hundred_megabytes(torch)

    def write():
        path = os.path.join(folder.name, "tensors.pt")
        torch.save(tensors, path)
        return os.path.getsize(path) // 1_000_000

    return (write,)


@floor(arrays=2 * 25_000_000)
def load(torch):
    """`load` of 100 MB in ten tensors"""
    tensors, folder = _hundred_megabytes(torch)
    torch.save(tensors, os.path.join(folder.name, "tensors.pt"))

    def read():
        return torch.load(os.path.join(folder.name, "tensors.pt"))["layer9.weight"]

    return (read,)


ROWS = (loader_epoch, save, load)
