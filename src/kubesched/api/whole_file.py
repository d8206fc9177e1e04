"""Files that are written as a whole: whatever happens on the way, the old content is there or the new one.

Callers: whatever saves a cluster, a configuration or a result.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["whole_file"]


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A second file next to ``path``, open for writing, which takes its place when the block ends without an exception.

    A link stays a link, and permissions stay as they are. What is no regular file, such as a terminal or a pipe, is
    opened itself.

    Raises:
        OSError: at the beginning when the file could not be written, naming it; later when that fails.
    """
    place = Path(os.path.realpath(path))
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = place.stat().st_mode
    if mode is not None and not stat.S_ISREG(mode):
        with place.open("wb") as file:
            yield file
        return
    if mode is not None and not os.access(place, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        opened = temporary.open("wb")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())  # the name must not get there before the bytes do
        if mode is not None:
            temporary.chmod(stat.S_IMODE(mode))
        temporary.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
