"""Reading of small files that others name: tokens, certificates. Neither endless files nor pipes hold up the program."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["MOST_BYTES", "check_small_files", "read_small_file"]

#: Most bytes of a small file.
MOST_BYTES: Final = 4 << 20


def read_small_file(path: str | Path) -> bytes:
    """Return the bytes of a regular file, or of the one that a link leads to.

    Raises:
        OSError: if it cannot be read, is no regular file (a device, a pipe, a directory), or is larger than 4 MiB.
    """
    # Without O_NONBLOCK opening a pipe waits for a writer.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", os.fspath(path))
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"is larger than {MOST_BYTES} bytes", os.fspath(path))
    return data


def check_small_files(paths: Iterable[str | Path | None]) -> None:
    """Check files that a library is about to read; None and "" are skipped.

    Raises:
        OSError: as :func:`read_small_file` does, for the first file that it cannot read.
    """
    for path in paths:
        if path:
            read_small_file(path)
