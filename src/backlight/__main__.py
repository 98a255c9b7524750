"""`python -m backlight` is the `backlight` command."""

import sys

from .cli import main

sys.exit(main())
