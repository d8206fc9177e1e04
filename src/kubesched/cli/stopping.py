"""Stopping: Ctrl-C, SIGTERM and a closed terminal mean the same, at any time.

While a cluster starts they end the start; while it runs they end the run in good order; while it is being stopped
and saved they change nothing. When a plugin holds the loop up, a second one interrupts it; see :mod:`.interrupts`.
Caller: :mod:`.up_command`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from kubesched.base.tasks import EndedFirstError, unless

from .errors import CliError
from .interrupts import add_signal_handler

__all__ = ["StopSignal"]

T = TypeVar("T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal:
    """Set by the first signal. Make it inside the event loop whose program is to be stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._event = asyncio.Event()
        # nohup has a closed terminal ignored; a shell has Ctrl-C ignored in the background, but kill -INT is meant.
        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._signals = [one for one in _SIGNALS if not (nohup and one is signal.SIGHUP)]
        for number in self._signals:
            add_signal_handler(loop, number, self._event.set)

    async def wait(self) -> None:
        """Return when it is time to stop."""
        await self._event.wait()

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """A signal ends this block at once, as it awaits nothing.

        Raises:
            CliError: when it was ended.
        """
        before = {number: signal.signal(number, _interrupt) for number in self._signals}
        try:
            yield
        except KeyboardInterrupt:
            raise _stopped() from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self.check()

    def check(self) -> None:
        """Raise CliError when a signal has come."""
        if self._event.is_set():
            raise _stopped()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """What some work returns; a signal cancels it.

        Raises:
            CliError: when it was cancelled.
        """
        try:
            return await unless(self._event, work, "start")
        except EndedFirstError:
            raise _stopped() from None


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _stopped() -> CliError:
    return CliError("stopped while starting; nothing was saved and no file was changed", code=130)
