"""What is timed. One text serves both packages: a workload is made with the package under the name `torch`.

A workload returns the parts of one run: functions, each called with what the one before it returned. Their names are the
names of the parts. A part named `prepare` isn't measured. The last result is what the packages must agree on.
"""

from . import arrays, data, graphs, networks
from .graphs import OPS, numpy_chain

GROUPS = {
    "Small graphs": graphs.ROWS,
    "Networks": networks.ROWS,
    "Operations on large arrays, forward and backward": arrays.ROWS,
    "Data": data.ROWS,
}
ROWS = {row.__name__: row for group in GROUPS.values() for row in group}

ALL = {**ROWS, "numpy_chain": numpy_chain}

__all__ = ["ALL", "GROUPS", "OPS", "ROWS"]
