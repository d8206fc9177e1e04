"""Ctrl-C ends the program in any state, even in a plugin that does not return or that catches the interrupt.

Callers: :mod:`.main`, for commands that run in virtual time or without an event loop; and commands that serve. The
event loop of a command that serves handles signals in good order, as long as no callback holds it. :mod:`.quiet`
handles signals before this module is imported.
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

#: Number of the signal that ends the process at once, with nothing cleaned up.
_AT_ONCE: Final = 3
_INTERRUPTED: Final = 130
#: Seconds that a loop may leave a signal unhandled before it counts as held up.
_HELD_UP_SECONDS: Final = 1.0
_HELD_UP: Final = (
    b"kubesched: stopping is held up by code that does not return, such as a plugin; Ctrl-C again interrupts it\n"
)
#: Signals that ask a command to end: Ctrl-C, a closed terminal, and a service manager's SIGTERM.
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end_at_once() -> None:
    os.write(2, b"kubesched: ended at once\n")
    os._exit(_INTERRUPTED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Make Ctrl-C, SIGTERM and a closed terminal raise KeyboardInterrupt anywhere. The third signal ends the process.

    At the first signal asyncio alone would only cancel its main task, and code that does not return would never notice.
    Signals that are ignored, or that the calling program handles, are left alone.
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
    """Run a command's coroutine as ``asyncio.run`` does, but report nothing that happens after Ctrl-C.

    Errors that tasks raise while they are cancelled are not reported, because the interrupt is one of them. Signals
    that come while the loop is closed are not reported either.
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
                signal.set_wakeup_fd(-1)  # the loop closes the socket of that descriptor before it gives up the signals


def _interrupt() -> None:
    raise KeyboardInterrupt


def add_signal_handler(
    loop: asyncio.AbstractEventLoop,
    number: int,
    callback: Callable[[], object],
    *,
    held_up: Callable[[], None] = _interrupt,
) -> None:
    """Add a signal handler as the loop's own method does, with a way out for a loop that is held up.

    If the loop has not handled the signal for a second, a message says that it is held up. A second signal then calls
    ``held_up`` in whatever code is running, to interrupt it; a second signal during that first second counts, too. If
    the loop is still held up a second later, the next signal ends the process at once.
    """
    waiting = _Waiting(number, held_up)

    def come_round() -> None:
        waiting.over()
        callback()

    loop.add_signal_handler(number, come_round)  # makes the signal wake the loop
    signal.signal(number, waiting.signalled)


class _Waiting:
    """Signals that the loop has not handled yet."""

    def __init__(self, number: int, held_up: Callable[[], None]) -> None:
        self._number = number
        self._held_up = held_up
        self._count = 0
        self._since = 0.0
        self._interrupted = False
        self._timer: threading.Timer | None = None

    def over(self) -> None:
        """Note that the loop has handled the signals."""
        self._count, self._interrupted = 0, False
        if self._timer is not None:
            self._timer.cancel()

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """Take a signal. Called in the main thread, between two steps of the code that runs there."""
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
        """Act if the loop has not handled the signal within a second. Runs in a thread, as the main thread is busy."""
        if self._count == 1:
            os.write(2, _HELD_UP)
        elif self._count:
            signal.pthread_kill(thread, self._number)
