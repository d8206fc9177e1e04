"""Dashboard of a live scheduler, for ``--ui`` of ``kubesched up`` and ``kubesched run``. Imported only with that option."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from kubesched.base.extras import needing
from kubesched.explain.watchers import Watchers
from kubesched.scheduler.scheduler import Scheduler

with needing("--ui", "server"):
    from kubesched.dashboard.listener import Listener
    from kubesched.dashboard.live import Live
    from kubesched.dashboard.server import Site

__all__ = ["LiveDashboard"]


class LiveDashboard:
    """Source over a live scheduler, its site, and its listener on loopback.

    Attributes:
        live: the source; its observer belongs to the scheduler.
        site: everything under ``/ui/``.
    """

    def __init__(
        self,
        live: Live,
        address: tuple[str, int],
        *,
        announce: Callable[[str], None],
        warn: Callable[[str], None],
        speed: float = 1.0,
    ) -> None:
        self.live, self.site = live, Site([live])
        self._listener = Listener(self.site, address, announce=announce, warn=warn, speed=speed)

    def attach(
        self,
        scheduler: Callable[[], Scheduler],
        watchers: Watchers,
        ready: Callable[[], bool] = lambda: True,
        replaced: Callable[[Scheduler], None] = lambda scheduler: None,
    ) -> None:
        """Show the scheduler that ``scheduler`` returns; see :meth:`kubesched.dashboard.live.Live.attach`."""
        self.live.attach(scheduler, watchers, ready, replaced)

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Yield the tasks that the process has to run."""
        return self.live.tasks()

    async def start(self) -> None:
        """Listen; :meth:`announce` tells the link.

        Raises:
            OSError: when the address cannot be used.
        """
        await self._listener.start(announce=False)

    def announce(self) -> None:
        """Announce the link."""
        self._listener.announce()

    async def stop(self) -> None:
        """End all streams and answers, and stop listening."""
        self.live.close()
        await self._listener.stop()
