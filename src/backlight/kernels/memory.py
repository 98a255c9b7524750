"""Memory that is freed is kept for the next large arrays.

A training step frees its activations and allocates as many in the next step. glibc gives freed memory back to the system, which
hands out zeroed pages again, one fault for each: up to a fifth of a GPT step (benchmarks: gpt_step). So its limits are raised,
for the whole process, when the first kernel is used. Up to KEPT bytes at the end of the heap stay with the process.
`BACKLIGHT_KEPT_MEMORY` in the environment sets another number of bytes; 0 leaves the allocator alone.
"""

from __future__ import annotations

import ctypes
import os

KEPT = 512 << 20
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # names of glibc's mallopt
_LARGEST_IN_HEAP = 32 << 20  # the largest that glibc allows; larger arrays are mapped each time


def _library():
    """glibc, or None where the C library is another one."""
    try:
        if not os.confstr("CS_GNU_LIBC_VERSION"):
            return None
    except (AttributeError, ValueError, OSError):
        return None
    return ctypes.CDLL(None)


def keep_freed_memory() -> bool:
    """Raises the allocator's limits; False where that isn't wanted or can't be done."""
    given = os.environ.get("BACKLIGHT_KEPT_MEMORY", "")
    if given and not given.isdigit():
        raise ImportError(f"BACKLIGHT_KEPT_MEMORY is {given!r}: expected a number of bytes")
    size = min(int(given), (1 << 31) - 1) if given else KEPT
    library = _library()
    if not size or library is None:
        return False
    library.mallopt(_MMAP_THRESHOLD, min(size, _LARGEST_IN_HEAP))
    library.mallopt(_TOP_PAD, min(size, 16 << 20))
    return bool(library.mallopt(_TRIM_THRESHOLD, size))


def release() -> bool:
    """Gives freed memory back to the system. True if there was any."""
    library = _library()
    return library is not None and bool(library.malloc_trim(0))
