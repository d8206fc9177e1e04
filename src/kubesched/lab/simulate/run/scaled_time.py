"""Event loop whose time runs faster (or slower) than the clock on the wall, with real sockets.

``kubesched up --speed 60`` runs on it: every timer, timeout and heartbeat of the process passes sixty times as fast,
while network traffic is as fast as the machine allows.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["ScaledClock", "ScaledTimeLoop"]

#: Longest wait in real seconds. Selectors refuse to wait for weeks, and waking early does no harm.
_LONGEST_WAIT: Final = 3600.0


class _ScaledSelector(selectors.BaseSelector):
    """Selector whose timeouts, in loop seconds, are divided by the speed."""

    def __init__(self, speed: float) -> None:
        self._inner = selectors.DefaultSelector()
        self._speed = speed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return self._inner.select(None if timeout is None else min(timeout / self._speed, _LONGEST_WAIT))

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def close(self) -> None:
        self._inner.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()


class ScaledTimeLoop(asyncio.SelectorEventLoop):
    """Event loop whose ``time()`` advances ``speed`` seconds per real second."""

    def __new__(cls, speed: float) -> ScaledTimeLoop:
        """Make a loop; ``speed`` is a positive factor.

        Raises:
            ValueError: when it is not.
        """
        # Checked here, not in __init__: a half-made loop would complain when it is collected.
        if not 0 < speed < float("inf"):
            raise ValueError(f"speed {speed} is not a positive number")
        return super().__new__(cls)

    def __init__(self, speed: float) -> None:
        self._speed = speed
        super().__init__(_ScaledSelector(speed))

    def time(self) -> float:
        return time.monotonic() * self._speed


class ScaledClock:
    """Clock of epoch seconds that passes as fast as a loop's time. It starts at the present."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_epoch: float) -> None:
        self._loop = loop
        self._offset = start_epoch - loop.time()

    def now(self) -> float:
        return self._offset + self._loop.time()
