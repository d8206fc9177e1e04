"""Stopwatch of plugins: the seconds that each takes at each extension point, for metrics, reports and logs.

The two places that call plugins, :class:`~.driver.Driver` and the entries of Filter and Score, ask one stopwatch of the
profile if they are to be timed. Normally that is one attempt in ten. With :class:`PluginTimes` attached, every call is.

Different on purpose: one call for many nodes is one observation at Filter and Score, where kube-scheduler has one for
each node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from .metrics import SchedulerMetrics

__all__ = ["PluginTime", "PluginTimes", "Stopwatch"]

_SUCCESS: Final = "Success"


class PluginTime(NamedTuple):
    """Time of one plugin at one extension point: number of calls, and seconds."""

    plugin: str
    point: str
    calls: int
    total: float
    longest: float
    pod: str
    """The pod of the longest call, ``namespace/name``; empty outside a search."""

    @property
    def mean(self) -> float:
        return self.total / self.calls


class PluginTimes:
    """Sum of the calls of plugins, by plugin and extension point.

    It holds as many rows as there are plugins at extension points.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[int, float, float, str]] = {}

    def add(self, plugin: str, point: str, seconds: float, pod: str) -> None:
        calls, total, longest, slowest = self._rows.get((plugin, point), (0, 0.0, -1.0, ""))
        if seconds > longest:
            longest, slowest = seconds, pod
        self._rows[plugin, point] = (calls + 1, total + seconds, longest, slowest)

    def rows(self) -> list[PluginTime]:
        """Return the sums so far, those with most time first."""
        found = [
            PluginTime(plugin, point, calls, total, longest, pod)
            for (plugin, point), (calls, total, longest, pod) in self._rows.items()
        ]
        return sorted(found, key=lambda one: (-one.total, one.plugin, one.point))

    def take(self) -> list[PluginTime]:
        """Return the sums so far, and begin again."""
        rows = self.rows()
        self._rows.clear()
        return rows

    def attach(self, frameworks: Iterable[Any], *, now: Callable[[], float] | None = None) -> None:
        """Begin to add the calls of these frameworks' plugins.

        With ``now``, which returns seconds, every call is timed by it. Without it only sampled attempts are timed, by
        the scheduler's clock.
        """
        for framework in frameworks:
            framework.stopwatch.report_to(self, now)


class Stopwatch:
    """Stopwatch of one profile.

    Attributes:
        is_on: True while calls of Filter and Score are to be timed.
        times_all: True if every call is to be timed, at every extension point.
        now: function that returns the time in seconds.
        pod: key of the pod for which a node was searched most recently.
    """

    __slots__ = ("_durations", "_metrics", "_spent", "_times", "is_on", "now", "pod", "times_all")

    def __init__(self, metrics: SchedulerMetrics, now: Callable[[], float]) -> None:
        self.now = now
        self.is_on = self.times_all = False
        self.pod = ""
        self._metrics = metrics
        self._times: PluginTimes | None = None
        self._durations: dict[tuple[str, str, str], Any] = {}
        self._spent: dict[str, float] = {}

    def report_to(self, times: PluginTimes, now: Callable[[], float] | None) -> None:
        """Add what is timed to ``times``, too; see :meth:`PluginTimes.attach`."""
        self._times = times
        if now is not None:
            self.now, self.is_on, self.times_all = now, True, True

    def begin(self, pod: str, sampled: bool) -> None:
        """Begin the search for a pod's node."""
        self.pod = pod
        if sampled:
            self.is_on = True
            self._spent.clear()

    def end(self) -> dict[str, float]:
        """End the search of a sampled attempt. Return the seconds of all its calls, by point; Filter and Score only."""
        self.is_on = self.times_all
        return self._spent

    def asked(self, plugin: str, point: str, start: float) -> None:
        """Record a call of Filter or Score that began at ``start`` and ended now."""
        seconds = self.now() - start
        self._spent[point] = self._spent.get(point, 0.0) + seconds
        self.called(plugin, point, seconds)

    def called(self, plugin: str, point: str, seconds: float, status: str = _SUCCESS) -> None:
        """Record the seconds of one call."""
        key = plugin, point, status
        series = self._durations.get(key)
        if series is None:
            series = self._durations[key] = self._metrics.plugin_execution_duration_seconds.labels(*key)
        series.observe(seconds)
        if self._times is not None:
            self._times.add(plugin, point, seconds, self.pod)
