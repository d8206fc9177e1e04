"""Files that are written as a whole: after any failure the file has either its old content or its new one.

Callers: all that write a file for a user: a saved cluster, a kubeconfig, a key, a configuration, a result. A file that
may hold secrets is ``private``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["private_mode", "remove_leftover", "whole_file", "write_file"]

_PRIVATE: Final = 0o600
_OTHERS: Final = 0o007
_PUBLIC: Final = 0o666  # less the bits of the umask


@contextmanager
def whole_file(path: str | Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """Open a second file next to ``path`` for writing. It replaces ``path`` if the block ends without an exception.

    A link stays a link, and permissions stay as they are. A path that is no regular file, such as a terminal or a pipe,
    is opened itself. A new ``private`` file is readable by its owner only; an existing one keeps its permissions unless
    others may read it.

    The second file is ``.NAME.tmp``. Its writer holds a lock on it. So the file of a killed writer can be recognised;
    the next writer or :func:`remove_leftover` removes it.

    Raises:
        OSError: at the beginning if the file cannot be written or another process is writing it (the error names the
            file); later if writing fails.
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
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    temporary = _temporary(place)
    try:
        descriptor = _created(temporary, _PUBLIC if mode is None and not private else _PRIVATE)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        with os.fdopen(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            if mode is not None:
                os.fchmod(opened.fileno(), private_mode(mode) if private else stat.S_IMODE(mode))
            os.fsync(opened.fileno())  # the bytes must be on disk before the new name is
            temporary.replace(place)  # while it is locked
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_file(path: str | Path, content: bytes, *, private: bool = False) -> None:
    """Write a whole file in one call; see :func:`whole_file`."""
    with whole_file(path, private=private) as file:
        file.write(content)


def private_mode(mode: int) -> int:
    """Return the permissions of a private file that has had ``mode``: the owner's choice, unless others had access."""
    return _PRIVATE if mode & _OTHERS else stat.S_IMODE(mode)


def remove_leftover(path: str | Path) -> None:
    """Remove the temporary file of a killed writer of ``path``.

    Raises:
        BlockingIOError: if a writer is at work.
        OSError: if the file cannot be removed.
    """
    _remove_unlocked(_temporary(Path(os.path.realpath(path))))


def _remove_unlocked(temporary: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _lock(descriptor)
            temporary.unlink()
        finally:
            os.close(descriptor)


def _temporary(place: Path) -> Path:
    return place.with_name(f".{place.name}.tmp")


def _created(temporary: Path, mode: int) -> int:
    """Create a new file, lock it and return its descriptor."""
    while True:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                _lock(descriptor)
                with contextlib.suppress(FileNotFoundError):  # removed as a leftover before it was locked
                    if os.fstat(descriptor).st_ino == temporary.stat().st_ino:
                        return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        _remove_unlocked(temporary)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BlockingIOError(errno.EAGAIN, "is being written by another process") from None
