"""The operations: importing this package binds them as functions, methods and operators (those of neural.py later)."""

# In the order in which they build on each other: see README.md.
from . import (  # noqa: F401
    activation,
    arrange,
    cast,
    einsum,
    gather,
    index,
    join,
    linalg,
    logic,
    pointwise,
    random,
    reduce,
    shape,
    sort,
    special,
    statistics,
)
