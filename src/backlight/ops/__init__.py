"""The operations: importing this package binds them as functions, methods and operators."""

# In the order in which they build on each other: see README.md.
from . import (  # noqa: F401
    activation,
    arrange,
    cast,
    conv,
    einsum,
    gather,
    index,
    join,
    linalg,
    logic,
    loss,
    nn,
    norm,
    pointwise,
    pool,
    random,
    reduce,
    resample,
    shape,
    sort,
    special,
    statistics,
)
