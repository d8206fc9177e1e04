"""Log lines about plugins that take much of a running scheduler's time. Callers: ``kubesched run`` and ``kubesched up``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from kubesched.scheduler.framework.metrics import PLUGIN_METRICS_SAMPLE
from kubesched.scheduler.framework.plugin_times import PluginTime, PluginTimes

__all__ = ["busy", "watch_busy_plugins"]

#: Seconds between two lines.
_EVERY: Final = 60.0
#: Share of the time that a plugin takes at an extension point, from which it is named.
_SHARE: Final = 0.2
#: Most plugins named in one line.
_MOST: Final = 3


async def watch_busy_plugins(frameworks: Iterable[Any], report: Callable[[str], None]) -> None:
    """Report the plugins that took much of the last minute, every minute, until cancelled."""
    times = PluginTimes()
    times.attach(frameworks)
    while True:
        await asyncio.sleep(_EVERY)
        if text := busy(times.take(), _EVERY):
            report(text)


def busy(rows: Iterable[PluginTime], seconds: float) -> str:
    """Return a line about plugins that took at least ``_SHARE`` of this many seconds; empty if none did.

    ``rows`` are of sampled attempts, the slowest first; the share is estimated from them.
    """
    said = []
    for row in rows:
        share = row.total / PLUGIN_METRICS_SAMPLE / seconds
        if share >= _SHARE:
            pod = f", for pod {row.pod}" if row.pod else ""
            said.append(
                f"{row.plugin} at {row.point} {share:.0%} (mean call {row.mean:.2g} s, longest {row.longest:.2g} s{pod})"
            )
    if not said:
        return ""
    return f"plugins that took much of the last {seconds:g} s, estimated from samples: {'; '.join(said[:_MOST])}"
