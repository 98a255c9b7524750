"""`python -m backlight` is the `backlight` command."""

import sys

from .cli import main

if __name__ == "__main__":  # processes that `backlight warmup` starts import this file, too
    sys.exit(main())
