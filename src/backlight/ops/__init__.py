"""The operations: importing this package binds them as functions, methods and operators (those of neural.py later)."""

# In the order in which they build on each other: see README.md.
from . import (  # noqa: F401
    activation,
    arrange,
    bits,
    calculus,
    cast,
    discrete,
    einsum,
    gather,
    histogram,
    index,
    join,
    later,
    linalg,
    logic,
    pointwise,
    random,
    reduce,
    scatter,
    settings,
    shape,
    sort,
    special,
    statistics,
)

from . import names  # noqa: F401  isort: skip  (last: it adds forms to what the others declared)
