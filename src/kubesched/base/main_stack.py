"""Samples of the main thread's stack, taken by the main thread.

Reading the frames of a running thread has ended in segmentation faults (CPython 3.11). So another thread requests a
sample, and the main thread takes it between two of its instructions, the way it handles a signal. A main thread that
waits, or runs a function written in C, takes the sample when it returns. Used by :mod:`.loop_watch` and by the CPU
profile of the server.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Final

__all__ = ["MainStack"]

#: Callbacks for :func:`_run_next`. Kept here because the interpreter keeps no reference to them.
_requests: Final[deque[Callable[[FrameType], None]]] = deque()


def _run_next(_: object) -> int:
    if _requests:
        _requests.popleft()(sys._getframe(1))
    return 0


_callback: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_run_next)
_address: Final = ctypes.cast(_callback, ctypes.c_void_p)


class MainStack:
    """Sampler of the main thread's stack, for one other thread.

    ``note`` runs in the main thread, with the innermost frame.
    """

    def __init__(self, note: Callable[[FrameType], None]) -> None:
        self._note = note
        self._waiting = self._stopped = False

    def request(self) -> None:
        """Ask the main thread for a sample soon. No effect while the last request is waiting."""
        if self._waiting:
            return
        self._waiting = True
        _requests.append(self._take)
        if ctypes.pythonapi.Py_AddPendingCall(_address, None) != 0:  # the interpreter's queue is full
            _requests.remove(self._take)
            self._waiting = False

    def stop(self) -> None:
        """Stop: ``note`` is not called any more. Call it in the main thread."""
        self._stopped = True

    def _take(self, frame: FrameType) -> None:
        self._waiting = False
        if not self._stopped:
            self._note(frame)
