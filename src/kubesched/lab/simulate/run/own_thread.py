"""Thread for work that needs an event loop of its own, where one runs already, as in notebooks.

Callers: :mod:`..entry` and :mod:`..stepping`.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["outside_any_loop"]

T = TypeVar("T")


def outside_any_loop(work: Callable[[], T]) -> T:
    """Return or raise the result of ``work``. If an event loop runs in this thread, work runs in a thread of its own.

    This thread waits meanwhile. An interrupt here (Ctrl-C, a notebook's stop button) is raised in the other thread, in
    whatever Python code it is, and here once the other thread has ended. A second interrupt does not wait for the other
    thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again in the thread that waits
            errors.append(error)

    # A daemon thread: code that cannot be interrupted must not keep the program from ending.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="simulation", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        if thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt)
            )
        thread.join()
        raise
    if errors:
        raise errors[0]
    return results[0]
