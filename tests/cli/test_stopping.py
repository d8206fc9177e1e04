"""Signals that end a block of a start, wherever they meet the code."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from kubesched.cli.errors import CliError
from kubesched.cli.stopping import STOPPED, StopSignal


def _signalled() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class _Part:
    """Part of a class, made while a module is imported. A signal comes at this moment."""

    def __set_name__(self, owner: type, name: str) -> None:
        _signalled()


def _importing() -> None:
    class _Whole:
        part = _Part()


def _failing() -> None:
    try:
        _signalled()
    except KeyboardInterrupt:
        raise ImportError("a library has caught the interrupt") from None


@pytest.mark.parametrize("work", [_signalled, _importing, _failing])
def test_a_signal_ends_a_block_wherever_it_comes(work: Callable[[], None]) -> None:
    async def main() -> None:
        stop = StopSignal(asyncio.get_running_loop())
        with pytest.raises(CliError, match="stopped while starting") as caught, stop.interrupts():
            work()
        assert caught.value.code == STOPPED

    before = signal.getsignal(signal.SIGTERM)
    try:
        asyncio.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_error_without_a_signal_is_passed_on() -> None:
    async def main() -> None:
        stop = StopSignal(asyncio.get_running_loop())
        with pytest.raises(ImportError, match="gone"), stop.interrupts():
            raise ImportError("gone")

    asyncio.run(main())
