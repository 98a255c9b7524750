"""Storages: the memory behind tensors, as `tensor.untyped_storage()` shows it. Tensors that share memory share a storage.

>>> import backlight as torch
>>> x = torch.ones(3)
>>> x[1:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
True
"""

from __future__ import annotations

import numpy as np

from . import dtypes

__all__ = ["TypedStorage", "UntypedStorage"]


def owner_of(array):
    """The array that owns the memory."""
    while True:
        base = array.base
        if not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)  # as_strided puts an object in between
        if not isinstance(base, np.ndarray):
            return array
        array = base


def shared_copy(array):
    """A copy in memory that forked processes share."""
    import mmap

    memory = mmap.mmap(-1, max(array.nbytes, 1))
    shared = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    shared[...] = array
    return shared


def is_shared(array) -> bool:
    """Whether `shared_copy` made the array's memory."""
    import mmap

    base = owner_of(array).base
    return isinstance(getattr(base, "obj", base), mmap.mmap)


class UntypedStorage:
    """The bytes behind a tensor."""

    def __init__(self, array):
        self._array = owner_of(array)

    @classmethod
    def from_file(cls, filename, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first `nbytes` bytes of a file, read when they are used. `shared`: what is written goes to the file."""
        storage = cls.__new__(cls)
        storage._array = np.memmap(filename, np.uint8, "r+" if shared else "c", 0, (nbytes,))
        return storage

    @property
    def device(self):
        return dtypes.CPU

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._array.__array_interface__["data"][0]

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._array.nbytes

    size = __len__ = nbytes

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    _untyped = untyped  # the name that safetensors calls

    def __array__(self, dtype=None, copy=None):
        array = np.asarray(self._array.reshape(-1).view(np.uint8), dtype)
        return array.copy() if copy else array

    def __getitem__(self, index):
        picked = self._array.reshape(-1).view(np.uint8)[index]
        if not isinstance(index, slice):
            return picked.item()
        storage = type(self).__new__(type(self))
        storage._array = picked
        return storage

    def tolist(self) -> list:
        """The bytes as numbers."""
        return self._array.reshape(-1).view(np.uint8).tolist()

    def __repr__(self) -> str:
        lines = "".join(f" {byte}\n" for byte in self.tolist())
        return f"{lines}[torch.storage.UntypedStorage(device=cpu) of size {self.nbytes()}]"


class TypedStorage:
    """The memory behind a tensor as elements of its type."""

    def __init__(self, array):
        self._untyped, self._type = UntypedStorage(array), array.dtype

    @property
    def dtype(self):
        return dtypes.from_array_type(self._type)

    @property
    def device(self):
        return dtypes.CPU

    def untyped(self) -> UntypedStorage:
        return self._untyped

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._untyped.data_ptr()

    def nbytes(self) -> int:
        return self._untyped.nbytes()

    def __len__(self) -> int:
        return self.nbytes() // self._type.itemsize

    size = __len__

    def _elements(self):
        return self._untyped._array.reshape(-1).view(self._type)

    def __getitem__(self, index):
        return self._elements()[index].item()

    def tolist(self) -> list:
        """The elements as numbers."""
        return self._elements().tolist()

    def __repr__(self) -> str:
        lines = "".join(f" {value}\n" for value in self.tolist())
        return f"{lines}[torch.storage.TypedStorage(dtype={self.dtype}, device=cpu) of size {len(self)}]"
