"""Ctrl-C ends the program, whatever it is doing: also in a plugin that does not return, or that catches the interrupt.

Callers: :mod:`.main` for commands that run in virtual time or without an event loop, and the commands that serve, whose loop
handles signals in good order as long as it comes round to it. What comes before is in :mod:`.quiet`.
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

from .quiet import end_quietly

__all__ = ["add_signal_handler", "interruptible", "run_loop"]

T = TypeVar("T")

#: So many signals end the process at once, with nothing cleaned up.
_AT_ONCE: Final = 3
_INTERRUPTED: Final = 130
#: A loop that does not come round to a signal for so long is held up.
_HELD_UP_SECONDS: Final = 1.0
_HELD_UP: Final = b"kubesched: stopping, but something that does not return, such as a plugin, holds it up; Ctrl-C again interrupts that\n"
#: What asks a command to end. A closed terminal and a service manager mean the same as Ctrl-C.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end_at_once() -> None:
    os.write(2, b"kubesched: ended at once\n")
    os._exit(_INTERRUPTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal raise KeyboardInterrupt wherever the program is; the third ends the process.

    asyncio, left to itself, would only cancel its main task at the first, which code that does not return never notices.
    A signal that is ignored, or that the program which calls this handles, is left alone.
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

    replaced = (signal.SIG_DFL, signal.default_int_handler, end_quietly)
    own = [number for number in _SIGNALS if signal.getsignal(number) in replaced]
    before = {number: signal.signal(number, interrupt) for number in own}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_loop(main: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """``asyncio.run`` for a command: what tasks raise while they are cancelled after Ctrl-C is not reported, because the
    interrupt itself is one of those errors, and signals that come while the loop is closed are not either.
    """
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            return runner.run(main)
        except KeyboardInterrupt:
            from kubesched.lab.simulate.run.virtual_time import cancel_all  # noqa: PLC0415 - the help loads nothing heavy

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
    """As the loop's own method; but for a loop that does not come round to a signal for a second, what holds it up is named.

    A second signal then calls ``held_up`` in whatever the program is doing, which is to interrupt it; one that came during that
    second counts. If that does not help for a second, the next one ends the process at once.
    """
    waiting = _Waiting(number, held_up)

    def come_round() -> None:
        waiting.over()
        callback()

    loop.add_signal_handler(number, come_round)  # it has the signal wake the loop up
    signal.signal(number, waiting.signalled)


class _Waiting:
    """Signals that the loop has not come round to."""

    def __init__(self, number: int, held_up: Callable[[], None]) -> None:
        self._number = number
        self._held_up = held_up
        self._count = 0
        self._since = 0.0
        self._interrupted = False
        self._timer: threading.Timer | None = None

    def over(self) -> None:
        """The loop has come round."""
        self._count, self._interrupted = 0, False
        if self._timer is not None:
            self._timer.cancel()

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """Called in the main thread, between two steps of whatever runs there."""
        now = time.monotonic()
        if not self._count:
            self._count, self._since = 1, now
            self._timer = threading.Timer(_HELD_UP_SECONDS, self._late, (threading.get_ident(),))
            self._timer.daemon = True
            self._timer.start()
        elif now - self._since < _HELD_UP_SECONDS:
            self._count = 2
        elif self._interrupted:
            _end_at_once()
        else:
            self._since, self._interrupted = now, True
            self._held_up()

    def _late(self, thread: int) -> None:
        """The second is over; in a thread of its own, as the main one is busy."""
        if self._count == 1:
            os.write(2, _HELD_UP)
        elif self._count:
            signal.pthread_kill(thread, self._number)
