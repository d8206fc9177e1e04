"""Stopping a cluster: Ctrl-C, SIGTERM and a closed terminal mean the same, at any time.

While a cluster starts, a signal ends the start. While it runs, a signal ends the run in good order. While it is being
stopped and saved, a signal changes nothing. If a plugin holds the loop up, a second signal interrupts it; see
:mod:`.interrupts`. Callers: :mod:`.up_command`, :mod:`.kubelets_command`.
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

__all__ = ["STOPPED", "StopSignal"]

T = TypeVar("T")

#: Exit code of a command that was stopped while it started.
STOPPED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignal:
    """Event that the first signal sets. Make it inside the event loop of the program to be stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._event = asyncio.Event()
        # SIGHUP stays ignored if nohup made it so. A shell ignores SIGINT for programs in the background, but kill -INT
        # must work.
        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._signals = [one for one in _SIGNALS if not (nohup and one is signal.SIGHUP)]
        for number in self._signals:
            add_signal_handler(loop, number, self._event.set)

    async def wait(self) -> None:
        """Return when it is time to stop."""
        await self._event.wait()

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """Let a signal end this block at once. The block must not await.

        Python turns an interrupt in ``__set_name__``, as of a class that is just imported, into a RuntimeError (before 3.12).
        So any error after a signal counts as its effect.

        Raises:
            CliError: if a signal ended it.
        """
        has_come = False

        def interrupt(number: int, frame: FrameType | None) -> NoReturn:
            nonlocal has_come
            has_come = True
            raise KeyboardInterrupt

        before = {number: signal.signal(number, interrupt) for number in self._signals}
        try:
            yield
        except KeyboardInterrupt:
            raise _stopped() from None
        except Exception:
            if has_come:
                raise _stopped() from None
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self.check()

    def check(self) -> None:
        """Raise CliError if a signal has come."""
        if self._event.is_set():
            raise _stopped()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``work``. A signal cancels it.

        Raises:
            CliError: if it was cancelled.
        """
        try:
            return await unless(self._event, work, "start")
        except EndedFirstError:
            raise _stopped() from None


def _stopped() -> CliError:
    return CliError("stopped while starting; nothing was saved and no file was changed", code=STOPPED)
