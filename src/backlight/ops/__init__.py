"""The operations: importing this package binds them as functions, methods and operators."""

from . import pointwise, shape, reduce, linalg, index, nn, conv, random  # noqa: F401, I001  (in the order of their dependence)
