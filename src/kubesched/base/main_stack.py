"""Samples of the main thread's stack, taken by the main thread.

Reading the frames of a thread that is running has ended in segmentation faults (CPython 3.11). So another thread requests a
sample, and the main thread takes it between two of its instructions, as it handles a signal. A thread that waits, or is in
a function written in C, takes it when it is back. Used by :mod:`.loop_watch` and by the CPU profile of the server.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Final

__all__ = ["MainStack"]

#: What is to be called by :func:`_run_next`. Kept here, as the interpreter keeps no reference.
_requests: Final[deque[Callable[[FrameType], None]]] = deque()


def _run_next(_: object) -> int:
    if _requests:
        _requests.popleft()(sys._getframe(1))
    return 0


_callback: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_next)
_address: Final = ctypes.cast(_callback, ctypes.c_void_p)


class MainStack:
    """Samples of the main thread's stack. Used by one thread; ``note`` receives the innermost frame, in the main thread."""

    def __init__(self, note: Callable[[FrameType], None]) -> None:
        self._note = note
        self._waiting = self._stopped = False

    def request(self) -> None:
        """Have the main thread take a sample soon; no effect while the last request waits."""
        if self._waiting:
            return
        self._waiting = True
        _requests.append(self._take)
        if ctypes.pythonapi.Py_AddPendingCall(_address, None) != 0:  # its queue is full
            _requests.remove(self._take)
            self._waiting = False

    def stop(self) -> None:
        """``note`` is not called any more. To be called in the main thread."""
        self._stopped = True

    def _take(self, frame: FrameType) -> None:
        self._waiting = False
        if not self._stopped:
            self._note(frame)
