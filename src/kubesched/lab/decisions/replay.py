"""Replay of recorded decisions against another configuration: which would differ, and why.

The file's objects go through a scheduler's own handlers into its cache, in the order in which they were delivered. At
each decision the scheduler's search evaluates the pod by the other configuration. Then the recorded decision is applied,
whatever the outcome: a difference has no consequences for later decisions.

    file ──▶ Put, Change, Gone ──▶ ReplayPort's informers ──▶ handlers ──▶ cache, queue, plugins
         ──▶ Decided ──▶ Search.evaluate ──▶ difference?      then assume and Reserve on the recorded node
         ──▶ Record  ──▶ bound: keep; else Unreserve and forget, and the nomination

Caller: ``kubesched decisions replay``.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from kubesched.api.quantity import QuantityError
from kubesched.api.types import Pod
from kubesched.explain.records.lines import LEFT_OUT
from kubesched.explain.records.reading import DecisionsError, read_lines
from kubesched.explain.records.schema import Change, Decided, Gone, Header, Nominated, Put, Record
from kubesched.scheduler.cache import CacheError
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration
from kubesched.scheduler.core.profiles import Profile
from kubesched.scheduler.core.search import prepared
from kubesched.scheduler.extenders.interface import Extender, is_involved
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.scheduler import Scheduler

from .differences import Difference, difference
from .objects import BadLineError, Objects
from .port import ReplayPort

__all__ = ["Replayed", "replay"]

_log = logging.getLogger("kubesched.decisions")

#: Differences that are kept with their details; the others are counted.
_MOST: Final = 10_000


@dataclass
class Replayed:
    """Result of a replay.

    Attributes:
        decisions: number of recorded decisions that were made again.
        differences: the first that differ, in order.
        counts: number of differences by (kind, plugin).
        skipped: number of decisions that were not made again, by reason.
        warnings: remarks about the file and the configuration.
    """

    decisions: int = 0
    differences: list[Difference] = field(default_factory=list)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def differing(self) -> int:
        return sum(self.counts.values())

    def skip(self, why: str) -> None:
        self.skipped[why] = self.skipped.get(why, 0) + 1


async def replay(
    path: str | Path,
    config: KubeSchedulerConfiguration,
    registry: Registry,
    *,
    gates: FeatureGates = DEFAULT_GATES,
    wanted: Callable[[Decided], bool] = lambda decided: True,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Replayed:
    """Make the decisions of a file again by another configuration. Await it on a loop with virtual time.

    ``wanted`` chooses decisions; all the others only count for the state.

    Raises:
        DecisionsError: if the file is no file of decisions or is damaged; the text names the line.
        ConfigError: when a profile cannot be built.
        OSError: if the file cannot be read.
    """
    run = _Replay(config, registry, gates, wanted)
    try:
        for number, line in read_lines(path, on_torn=run.found.warnings.append):
            try:
                run.take(line)
            except BadLineError as error:
                raise DecisionsError(f"{path}: line {number}: {error}") from None
            if isinstance(line, Decided):
                on_progress(run.found.decisions)
    finally:
        await run.scheduler.stop()
    return run.found


@dataclass(slots=True)
class _Placed:
    """Pod that was decided: what Reserve left, until the pod is bound or given back."""

    profile: Profile
    state: CycleState
    info: PodInfo
    node: str
    bound: bool = False


class _RecordedClock:
    """Clock that shows the time of the decision that is made again."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


class _Replay:
    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        registry: Registry,
        gates: FeatureGates,
        wanted: Callable[[Decided], bool],
    ) -> None:
        self._clock = _RecordedClock()
        self._port = ReplayPort()
        self._extenders = _extenders(config)
        self.scheduler = Scheduler(
            config,
            registry,
            self._port,
            clock=self._clock,
            rng=random.Random(0),
            gates=gates,
            extenders=self._extenders,
        )
        self._objects = Objects(self._port)
        self._wanted = wanted
        self.found = Replayed()
        #: Pods between decision and end, by UID; and differences whose record has not come, by number.
        self._placed: dict[str, _Placed] = {}
        self._open: dict[int, Difference] = {}

    def take(self, line: Any) -> None:
        """Take the next line.

        Raises:
            BadLineError: if it cannot belong there.
        """
        match line:
            case Put() | Change() | Gone():
                self._objects.take(line)
                if isinstance(line, Change) and line.node and line.kind == "pods":
                    self._shown(line.key)
            case Decided():
                self._clock.seconds = line.at
                self._decided(line)
            case Record():
                self._ended(line)
            case Nominated():
                pod = self._pod(line.key)
                if pod is not None:
                    self.scheduler.queue.nominator.add(pod, NominatingInfo.override(line.node))
            case Header():
                self._header(line)

    def _header(self, line: Header) -> None:
        missing = self._port.informers.keys() - set(line.kinds) - LEFT_OUT
        if missing:
            text = "the file has none of these objects, which the configuration's plugins read: "
            self.found.warnings.append(text + ", ".join(sorted(missing)))
        unknown = [name for name in line.profiles if name not in self.scheduler.profiles]
        if unknown:
            self.found.warnings.append(f"the configuration has no profile {', '.join(unknown)}")

    def _pod(self, key: str) -> Pod | None:
        pod: Pod | None = self._port.informers["pods"].get_by_key(key)
        return pod

    # -- decisions -------------------------------------------------------------------------------------

    def _decided(self, line: Decided) -> None:
        pod = self._pod(line.key)
        if pod is None or pod.uid != line.uid:
            self._skip(line, "the pod is not in the file")
            return
        profile = self.scheduler.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            self._skip(line, "the configuration has no profile of this name")
            return
        try:
            info = PodInfo(pod)
        except QuantityError:
            self._skip(line, "the pod cannot be read")
            return
        state = prepared(CycleState(), record_plugin_metrics=False)
        if self._extenders and is_involved(self._extenders, info):
            self._skip(line, "an extender takes part")
        elif line.seq and self._wanted(line):
            self._evaluate(line, profile, state, info)
        elif line.node:
            self._try(lambda: profile.search.evaluate(state, info))
        if line.node:
            self._place(line, profile, state, info)

    def _skip(self, line: Decided, why: str) -> None:
        if line.seq and self._wanted(line):
            self.found.skip(why)

    def _evaluate(self, line: Decided, profile: Profile, state: CycleState, info: PodInfo) -> None:
        search = profile.search
        if line.start is not None:
            search.scan.start_at(line.start)
        self.found.decisions += 1
        try:
            found = difference(line, search.evaluate(state, info), search.table)
        except Exception as error:  # a plugin's, or the configuration's: it is the difference
            found = Difference(seq=line.seq, at=line.at, pod=line.key, kind="error", recorded=line.node, why=str(error))
        if found is None:
            return
        key = (found.kind, found.plugin)
        self.found.counts[key] = self.found.counts.get(key, 0) + 1
        if len(self.found.differences) < _MOST:
            self.found.differences.append(found)
            self._open[line.seq] = found

    @staticmethod
    def _try(call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            _log.debug("replay: %s", error)

    # -- the recorded decision stands ------------------------------------------------------------------

    def _place(self, line: Decided, profile: Profile, state: CycleState, info: PodInfo) -> None:
        assumed = info.on_node(line.node)
        try:
            self.scheduler.cache.assume_pod(assumed)
        except CacheError:
            return  # it is on its node already
        self.scheduler.queue.nominator.delete(info.pod)
        self._try(lambda: profile.framework.reserve(state, assumed, line.node))
        self._placed[line.uid] = _Placed(profile, state, assumed, line.node)

    def _ended(self, line: Record) -> None:
        open_ = self._open.pop(line.seq, None)
        if open_ is not None:
            open_.remember(line)
        placed = self._placed.get(line.pod.uid)
        if line.outcome == "bound":
            if placed is not None:
                placed.bound = True
                self._shown(line.pod.key)
            return
        if placed is not None:
            del self._placed[line.pod.uid]
            placed.profile.framework.unreserve(placed.state, placed.info, placed.node)
            self._try(lambda: self.scheduler.cache.forget_pod(placed.info.pod))
        pod = self._pod(line.pod.key)
        if pod is not None and pod.uid == line.pod.uid:
            self.scheduler.queue.nominator.add(pod, NominatingInfo.override(line.nominated_node))

    def _shown(self, key: str) -> None:
        """Forget a pod that is bound and shown on its node: what plugins kept until PreBind wrote it is written now.

        Plugins without PreBind keep what they reserved, as they do in a scheduler.
        """
        pod = self._pod(key)
        placed = self._placed.get(pod.uid) if pod is not None else None
        if pod is None or placed is None or not placed.bound or not pod.spec.node_name:
            return
        del self._placed[pod.uid]
        plugins = placed.profile.framework.concerned(placed.state.absent)
        for plugin in plugins.unreserve:
            if plugin in plugins.pre_bind:
                self._try(partial(plugin.unreserve, placed.state, placed.info, placed.node))


def _extenders(config: KubeSchedulerConfiguration) -> Sequence[Extender]:
    """Return the extenders of a configuration. They are only asked if they are interested in a pod."""
    if not config.extenders:
        return ()
    from kubesched.scheduler.extenders.http import http_extenders  # noqa: PLC0415 - the HTTP client is an extra

    return http_extenders(config.extenders)
