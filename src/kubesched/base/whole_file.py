"""Files that are written as a whole: whatever happens on the way, the old content is there or the new one.

Callers: whatever writes a file for a user: a saved cluster, a kubeconfig, a key, a configuration, a result. What may hold
secrets is ``private``.
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
_PUBLIC: Final = 0o666  # less what the umask forbids


@contextmanager
def whole_file(path: str | Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """A second file next to ``path``, open for writing, which takes its place when the block ends without an exception.

    A link stays a link, and permissions stay as they are. What is no regular file, such as a terminal or a pipe, is
    opened itself. A ``private`` file is readable by its owner only; one that is there keeps its permissions unless
    others may read it.

    The second file is ``.NAME.tmp``. Its writer holds a lock, so what a killed writer leaves is known and goes
    with the next one, or with :func:`remove_leftover`.

    Raises:
        OSError: at the beginning when the file could not be written, or another process is writing it, naming the
            file; later when writing fails.
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
            os.fsync(opened.fileno())  # the name must not get there before the bytes do
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
    """The permissions of a private file that has had ``mode``: its owner's choice, but nothing for others."""
    return _PRIVATE if mode & _OTHERS else stat.S_IMODE(mode)


def remove_leftover(path: str | Path) -> None:
    """Remove what a writer of ``path`` left that was killed.

    Raises:
        BlockingIOError: when a writer is at work.
        OSError: when it cannot be removed.
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
    """A descriptor of a new file that this process holds the lock of."""
    while True:
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            try:
                _lock(descriptor)
                with contextlib.suppress(FileNotFoundError):  # taken for a leftover before it was locked
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
