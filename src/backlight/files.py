"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to under a temporary name; it becomes `path` when the block ends, and vanishes if the block raises.

    What is no ordinary file (a pipe, /dev/stdout) is written to directly.
    """
    target, encoding = Path(path), None if "b" in mode else "utf-8"
    if target.exists() and not target.is_file():
        with open(target, mode, encoding=encoding) as file:
            yield file
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, mode, encoding=encoding) as file:
            yield file
        os.chmod(temporary, target.stat().st_mode if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target.resolve() if target.is_symlink() else target)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
