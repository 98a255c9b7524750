"""The operations that only neural networks need: imported with `nn.functional`, or when one of their names is asked for.

They are no tensor methods, so `import backlight` can leave them out (it costs a tenth less so).
"""

from . import attention, bag, conv, ctc, grid, loss, low_level, margin, nn, norm, pool, recurrent, resample, unpool  # noqa: F401
