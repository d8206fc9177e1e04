"""What the main thread executes, seen by itself.

Another thread that reads the frames of a thread which runs on meanwhile has ended in segmentation faults (CPython 3.11). So a thread that
wants to know asks, and the main thread looks at its own stack between two of its instructions, as for a signal. One that waits,
or is in a function written in C, answers when it is back. Callers: :mod:`.loop_watch`, and the CPU profile of the server.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Final

__all__ = ["MainStack"]

#: What is to be called, by :func:`_answer`. It is kept here, as the interpreter does not keep it.
_asked: Final[deque[Callable[[FrameType], None]]] = deque()


def _answer(_: object) -> int:
    if _asked:
        _asked.popleft()(sys._getframe(1))
    return 0


_callback: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_answer)
_address: Final = ctypes.cast(_callback, ctypes.c_void_p)


class MainStack:
    """Samples of the main thread's stack. Used by one thread; ``note`` receives the innermost frame, in the main thread."""

    def __init__(self, note: Callable[[FrameType], None]) -> None:
        self._note = note
        self._waiting = False

    def ask(self) -> None:
        """Have the main thread look, soon; no effect while it has not answered the last time."""
        if self._waiting:
            return
        self._waiting = True
        _asked.append(self._look)
        if ctypes.pythonapi.Py_AddPendingCall(_address, None) != 0:  # too many others ask
            _asked.remove(self._look)
            self._waiting = False

    def _look(self, frame: FrameType) -> None:
        self._waiting = False
        self._note(frame)
