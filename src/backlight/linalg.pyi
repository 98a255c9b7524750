"""The functions of `torch.linalg`, as operations declare them.

Written by scripts/stubs.py; don't edit."""

import builtins
from typing import Any

from . import dtypes
from .tensor import Tensor

def cross(input, other, *, dim: Any = -1, out=None) -> Tensor: ...
def matmul(input, other, *, out=None) -> Tensor: ...
def vector_norm(x, ord: Any = 2, dim=None, keepdim=False, *, dtype=None, out=None) -> Tensor: ...
