"""Ctrl-C ends the program, whatever it is doing: also in a plugin that does not return, or that catches the interrupt.

Callers: :mod:`.main` for commands that run in virtual time or without an event loop, and the commands that serve, whose
loop handles signals in good order as long as it comes round to it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

__all__ = ["add_signal_handler", "interruptible", "run_loop"]

T = TypeVar("T")

#: So many signals end the process at once, with nothing cleaned up.
_AT_ONCE: Final = 3
_INTERRUPTED: Final = 130
#: A loop that does not come round to a signal for so long is held up.
_HELD_UP_SECONDS: Final = 1.0


def _end_at_once() -> None:
    os.write(2, b"kubesched: ended at once\n")
    os._exit(_INTERRUPTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt wherever the program is; the third one ends the process.

    asyncio, left to itself, would only cancel its main task at the first, which code that does not return never notices.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    count = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count >= _AT_ONCE:
            _end_at_once()
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored in the background, or a program's own
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_loop(main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """``asyncio.run`` for a command: what tasks raise while they are cancelled after Ctrl-C is not reported, because the
    interrupt itself is one of those errors, and signals that come while the loop is closed are not either.
    """
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            return runner.run(main)
        except KeyboardInterrupt:
            from kubesched.simulate.virtual_time import cancel_all  # noqa: PLC0415 - the help loads nothing heavy

            cancel_all(runner.get_loop())
            raise
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.set_wakeup_fd(-1)  # the loop closes the socket behind it before it gives up the signals


def _interrupt() -> None:
    raise KeyboardInterrupt


def add_signal_handler(
    loop: asyncio.AbstractEventLoop,
    number: int,
    callback: Callable[[], object],
    *,
    held_up: Callable[[], None] = _interrupt,
) -> None:
    """As the loop's own method; but a signal that comes while the loop has not come round to the one before for a second
    calls ``held_up`` in whatever the program is doing, which is to interrupt it. The next one ends the process.
    """
    waiting = 0
    since = 0.0

    def come_round() -> None:
        nonlocal waiting
        waiting = 0
        callback()

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal waiting, since
        now = time.monotonic()
        if waiting and now - since < _HELD_UP_SECONDS:
            return
        waiting, since = waiting + 1, now
        if waiting >= _AT_ONCE:
            _end_at_once()
        if waiting > 1:
            held_up()

    loop.add_signal_handler(number, come_round)  # it has the signal wake the loop up
    signal.signal(number, count)
