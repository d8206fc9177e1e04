"""Compressed file that grows: one gzip stream, ended with a whole block at each write, so that readers get all of it.

A process that is killed leaves a stream without an end. Everything up to the last write can be read.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from pathlib import Path
from typing import Final

__all__ = ["CompressedFile"]

#: Fastest compression: records repeat themselves, and CPU time is the scheduler's.
_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS


class CompressedFile:
    """New compressed file, readable by its owner only.

    Attributes:
        size: bytes written so far.
    """

    def __init__(self, path: Path) -> None:
        """Create the file; an existing one is emptied.

        Raises:
            OSError: if it cannot be written, or is no regular file.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(None, "is no regular file; give the name of a file", str(path))
        os.ftruncate(descriptor, 0)
        self._descriptor: int | None = descriptor
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self.size = 0

    def write(self, content: bytes) -> None:
        """Append content; readers see all of it.

        Raises:
            OSError: if it cannot be written. The file then ends with the content before, and must be closed.
        """
        self._append(self._packer.compress(content) + self._packer.flush(zlib.Z_SYNC_FLUSH))

    def _append(self, packed: bytes) -> None:
        descriptor = self._descriptor
        if descriptor is None:
            return
        left = memoryview(packed)
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError:
            self._descriptor = None
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self.size)
            os.close(descriptor)
            raise
        self.size += len(packed)

    def close(self) -> None:
        """End the stream and close the file.

        Raises:
            OSError: if the end cannot be written.
        """
        if self._descriptor is None:
            return
        self._append(self._packer.flush(zlib.Z_FINISH))
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
