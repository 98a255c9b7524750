"""`torch.__config__`: what computes."""

from __future__ import annotations

import os

import numpy as np

__all__ = ["parallel_info", "show"]


def show() -> str:
    """The versions that compute: Backlight, and NumPy with its BLAS."""
    from .version import __version__

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # pyright: ignore
    return f"Backlight {__version__}\n  - NumPy {np.__version__}\n  - BLAS: {blas.get('name')} {blas.get('version')}\n"


def parallel_info() -> str:
    """How many threads compute."""
    from . import get_num_threads

    return (
        f"torch.get_num_threads() : {get_num_threads()}\nOMP_NUM_THREADS : {os.environ.get('OMP_NUM_THREADS', '[not set]')}\n"
    )
