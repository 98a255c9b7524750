"""`torch.signal`: window functions, in `signal.windows`."""

from . import windows as windows
