"""TLS contexts that follow their files: certificates, keys and authorities are read again when they change.

    files ──unchanged──▶ the current context
      └─────changed────▶ a new context; if it cannot be made, an error is logged and the current one stays

A certificate and its key are replaced one file after the other, so for a moment they may not belong together.
Callers: the API client, extenders, and the listener of the embedded cluster.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from .small_file import read_small_file

__all__ = ["FOLLOW_SECONDS", "FollowedContext"]

_log = logging.getLogger("kubesched.tls")

#: Seconds between two readings of the files. They are read only when connections are made.
FOLLOW_SECONDS: Final = 10.0

_Contents = tuple[tuple[str, bytes | None], ...]


class FollowedContext:
    """TLS context for new connections, rebuilt when its files change.

    ``make`` reads the files and builds a context. It reads them as small files before OpenSSL does, which would wait for
    the end of a pipe or a device. ``files`` returns their present names; None and "" are skipped.
    Without files the first context stays.

    Raises:
        OSError, ValueError: any error of ``make`` for the first context.
    """

    def __init__(
        self, make: Callable[[], ssl.SSLContext], files: Callable[[], Iterable[str | Path | None]] = lambda: ()
    ) -> None:
        self._make = make
        self._files = files
        self._seen = self._contents()
        self._context = make()
        self._next = float("-inf")

    def current(self) -> ssl.SSLContext:
        """Return the context for a connection that is made now. Call it on the event loop."""
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + FOLLOW_SECONDS
            self._follow()
        return self._context

    def refused(self) -> None:
        """Have the files read again before the next connection: one failed or was refused."""
        self._next = float("-inf")

    def _follow(self) -> None:
        seen = self._contents()
        if seen == self._seen:
            return
        self._seen = seen
        names = ", ".join(name for name, _ in seen)
        try:
            self._context = self._make()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            _log.error("%s changed and cannot be used: %s; what was read before stays in use", names, _reason(error))
        else:
            _log.info("certificates read again: %s", names)

    def _contents(self) -> _Contents:
        return tuple((str(file), _content(Path(file))) for file in self._files() if file)


def _content(file: Path) -> bytes | None:
    try:
        return read_small_file(file)
    except OSError:
        return None  # the error follows when a context is made from the file


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the certificate and the key do not belong together"
    return str(error)
