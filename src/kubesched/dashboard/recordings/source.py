"""Port of the dashboard over a time line: a simulation's result, or recorded decisions.

Everything is computed from the time line when it is asked for; nothing is kept between two questions.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubesched.base.pages import Answer

from ..schema import (
    Binding,
    Change,
    Eviction,
    LabelColumn,
    NodeChange,
    NodeColumns,
    NodePage,
    Played,
    PodList,
    PodPage,
    Queues,
    ResourceColumn,
    RunInfo,
    Sample,
    Series,
    State,
    TextColumn,
    Verdicts,
)
from ..schema_what_if import Applied, Choices, Outcome, WhatIf
from ..source import PodQuery, Refused
from .lives import Lives
from .queue import Waiting, queue_counts, queues_at
from .recording import Recording, key_of
from .timeline import Rows, Whole

__all__ = ["RecordingSource"]

#: Most changes of one answer, and cells (rows times resources) that they have together.
_MOST_CHANGES: Final = 2_000
_MOST_CELLS: Final = 2_000_000
#: Most looks at pods and cells for one answer, which takes some seconds.
_MOST_WORK: Final = 100_000_000
#: Most bindings and preemptions that one change lists, and victims of one.
_MOST_LISTED: Final = 200
_MOST_VICTIMS: Final = 20
#: Samples of a series that is computed.
_SAMPLES: Final = 240


class RecordingSource:
    """Source of the dashboard over a recording; ``number`` is the number of the run."""

    def __init__(self, recording: Recording, number: int) -> None:
        self._recording = recording
        self._line = recording.line
        self._number = number
        self._lives = Lives(recording)

    @property
    def info(self) -> RunInfo:
        return RunInfo(
            id=self._number,
            name=self._recording.name,
            mode="recording",
            start=self._line.start,
            end=self._line.end,
            explains=self._recording.explains,
            remarks=self._recording.remarks,
        )

    def _moment(self, at: float | None) -> float:
        """Return a moment within the recording.

        Raises:
            Refused: for what is no time.
        """
        if at is None:
            return self._line.end
        if not math.isfinite(at):
            raise Refused(
                400, f"at: {at!r} is no time; expected seconds from {self._line.start:g} to {self._line.end:g}"
            )
        return min(max(at, self._line.start), self._line.end)

    # -- the map -----------------------------------------------------------------------------------------

    async def state(self, at: float | None) -> State:
        return await asyncio.to_thread(self._state, self._moment(at))

    def _state(self, at: float) -> State:
        line = self._line
        states, requested = line.states(at), line.requested(at)
        return State(
            version=0,
            at=at,
            nodes=self._columns(states, requested),
            sample=self._sample(at, states, requested),
            profiles=self._recording.profiles,
        )

    def _columns(self, states: Rows, requested: Whole) -> NodeColumns:
        line = self._line
        allocatable = line.allocatable(states)
        there = states >= 0
        names = [name if there[row] else "" for row, name in enumerate(line.names)]
        shown = np.where(there, requested, 0)
        return NodeColumns(
            names=names,
            resources=[
                ResourceColumn(
                    name=name,
                    unit=_unit(name),
                    allocatable=allocatable[index].tolist(),
                    requested=shown[index].tolist(),
                )
                for index, name in enumerate(line.resources)
            ],
            labels=[
                LabelColumn(key=key, values=values, index=line.indexes(index, states))
                for key, (values, index) in line.labels.items()
            ],
            taints=TextColumn(values=line.taints, index=line.indexes(line.taint_index, states)),
            status=TextColumn(values=line.statuses, index=line.indexes(line.status_index, states)),
        )

    def _sample(self, at: float, states: Rows, requested: Whole, since: float | None = None) -> Sample:
        """Return the figures at a moment, with the attempts after ``since``."""
        line, recording = self._line, self._recording
        counting = line.counting(states)
        totals = line.allocatable(states)[:, counting].sum(axis=1).tolist()
        used = requested[:, counting].sum(axis=1).tolist()
        known = self._known_sample(at)
        bound, p50, p99, failed = self._attempts(at, since)
        return Sample(
            at=at,
            queue=known.queue if known is not None else queue_counts(Waiting.of(line, recording.told, at)),
            on_nodes=line.count_on_nodes(at),
            bound=bound,
            failed=failed,
            wait_p50=p50,
            wait_p99=p99,
            utilisation={
                name: round(one / total, 6)
                for name, one, total in zip(line.resources, used, totals, strict=True)
                if total
            },
            fragmentation=known.fragmentation if known is not None else {},
            cost=known.cost if known is not None else None,
        )

    def _known_sample(self, at: float) -> Sample | None:
        """Return the last recorded figures up to a moment."""
        index = int(np.searchsorted(self._recording.sample_times, at, "right")) - 1
        return self._recording.samples[index] if index >= 0 else None

    def _attempts(self, at: float, since: float | None) -> tuple[int, float | None, float | None, int]:
        """Return the number of bindings after ``since``, two percentiles of their waits, and the failed attempts."""
        if since is None:
            return 0, None, None, 0
        line, told = self._line, self._recording.told
        pods = line.bound_between(since, at)
        waits = line.bound[pods] - line.queued[pods]
        waits = waits[np.isfinite(waits)]
        p50, p99 = (round(float(one), 6) for one in np.percentile(waits, (50, 99))) if len(waits) else (None, None)
        first, last = np.searchsorted(told.times, (since, at), "right")
        return len(pods), p50, p99, int(last - first) if told.every else 0

    # -- changes -----------------------------------------------------------------------------------------

    def changes(self, since: int | None) -> AsyncIterator[bytes]:
        raise Refused(404, f"{self._recording.name}: a recording does not change; ask for parts of it with played")

    async def played(self, start: float, end: float, most: int) -> Played:
        first, last = self._moment(start), self._moment(end)
        if first > last:
            raise Refused(
                400, f"from {start:g} to {end:g}: the first moment is the later one; ask for the state to go back"
            )
        if start < self._line.start:  # so the first moment is part of it, at which a simulation may bind everything
            first = math.nextafter(first, -math.inf)
        if most < 1:
            raise Refused(400, f"most: {most} changes; expected 1 to {_MOST_CHANGES}")
        return await asyncio.to_thread(self._played, first, last, min(most, _MOST_CHANGES))

    def _played(self, start: float, end: float, most: int) -> Played:
        line = self._line
        size = max(1, len(line.resources))
        most = max(1, min(most, _MOST_WORK // (len(line.pods) + size * len(line.names) + 1)))
        if line.events_between(start, end) * size > _MOST_CELLS:
            most = max(1, min(most, _MOST_CELLS // (size * max(1, len(line.names)))))
        moments = self._moments(start, end)
        if len(moments) > most:
            grid = start + (end - start) * np.arange(1, most + 1) / most
            places = np.unique(np.searchsorted(moments, grid, "right")) - 1
            moments = moments[places[places >= 0]]  # the last moment of each step
        requested, states, before, changes = line.requested(start), line.states(max(start, line.start)), start, []
        for version, at in enumerate(moments.tolist(), 1):
            nodes = line.changed_nodes(max(before, line.start), at)  # those of the first moment are no change
            states = line.states(at) if len(nodes) else states
            changes.append(self._change(version, before, at, requested, states, nodes))
            before = at
        return Played(changes=changes)

    def _moments(self, start: float, end: float) -> NDArray[np.float64]:
        """Return the times after ``start`` and up to ``end`` at which anything is to be shown."""
        more = [
            times[(times > start) & (times <= end)]
            for times in (self._recording.preempting_times, self._recording.sample_times, self._recording.told.times)
        ]
        return np.unique(np.concatenate([self._line.moments(start, end), *more]))

    def _change(self, version: int, before: float, at: float, requested: Whole, states: Rows, nodes: Rows) -> Change:
        """Return the change from one moment to the next, at which nodes have ``states``; ``nodes`` are rows whose state changed.

        ``requested`` are the sums before, and afterwards those at the end.
        """
        line, recording = self._line, self._recording
        rows = line.advance(requested, before, at)
        rows = rows[states[rows] >= 0]
        bound = line.bound_between(before, at)
        bound = bound[line.node_of[bound] >= 0]
        first, last = np.searchsorted(recording.preempting_times, (before, at), "right").tolist()
        preempted = [one for one in recording.preemptions[first:last] if one.node in line.rows]
        return Change(
            version=version,
            at=at,
            rows=rows.tolist(),
            requested={name: requested[index, rows].tolist() for index, name in enumerate(line.resources)}
            if len(rows)
            else {},
            nodes=[self._node_change(int(row), int(states[row]), requested) for row in nodes],
            bound=[Binding(pod=key_of(line.pods[pod]), row=int(line.node_of[pod])) for pod in bound[:_MOST_LISTED]],
            bound_count=len(bound),
            preempted=[
                Eviction(pod=one.pod, row=line.rows[one.node], victims=list(one.victims[:_MOST_VICTIMS]))
                for one in preempted[:_MOST_LISTED]
            ],
            preempted_count=len(preempted),
            sample=self._sample(at, states, requested, before),
        )

    def _node_change(self, row: int, state: int, requested: Whole) -> NodeChange:
        if state < 0:
            return NodeChange(row=row, name="")
        line = self._line
        node = line.nodes[state]
        return NodeChange(
            row=row,
            name=node.name,
            allocatable={name: node.allocatable.get(name, 0) for name in line.resources},
            requested=dict(zip(line.resources, requested[:, row].tolist(), strict=True)),
            labels=node.labels,
            taints=", ".join(node.taints),
            status=line.statuses[line.status_index[state]],
        )

    async def series(self) -> Series:
        return await asyncio.to_thread(self._series)

    def _series(self) -> Series:
        recording, line = self._recording, self._line
        times = [one.at for one in recording.samples] or np.unique(np.linspace(line.start, line.end, _SAMPLES)).tolist()
        found: list[Sample] = []
        before = line.start - 1.0
        requested = line.requested(before)
        for at in times:
            line.advance(requested, before, at)
            found.append(self._sample(at, line.states(at), requested, before))
            before = at
        return Series(samples=found)

    # -- queues and pods ---------------------------------------------------------------------------------

    async def queues(self, at: float | None) -> Queues:
        moment = self._moment(at)
        return await asyncio.to_thread(queues_at, self._line, self._recording.told, self._recording.workloads, moment)

    async def pods(self, query: PodQuery, at: float | None) -> PodList:
        return await asyncio.to_thread(self._lives.pods, query, self._moment(at))

    async def pod(self, namespace: str, name: str, at: float | None) -> PodPage:
        return await asyncio.to_thread(self._lives.pod, namespace, name, self._moment(at))

    async def node(self, name: str, at: float | None) -> NodePage:
        return await asyncio.to_thread(self._lives.node, name, self._moment(at))

    # -- reasons -----------------------------------------------------------------------------------------

    async def verdicts(self, namespace: str, name: str, at: float | None) -> Verdicts:
        return await self._recording.reasons.verdicts(namespace, name, self._moment(at), self._line)

    async def explain(self, path: str, query: Mapping[str, Sequence[str]], at: float | None) -> Answer:
        return await self._recording.reasons.explain(path, query, self._moment(at))

    # -- what if -----------------------------------------------------------------------------------------

    async def choices(self) -> Choices:
        return Choices(kinds=[], applicable=[], workloads=[], profiles=self._recording.profiles)

    async def what_if(self, question: WhatIf) -> Outcome:
        raise Refused(409, self._no_trial())

    async def apply(self, question: WhatIf) -> Applied:
        raise Refused(409, self._no_trial())

    def _no_trial(self) -> str:
        return (
            f"{self._recording.name}: a recording has no objects to try changes on; save the cluster "
            "(kubesched simulate --save-cluster FILE) and view that file"
        )


# -- small things ------------------------------------------------------------------------------------------


def _unit(name: str) -> Literal["millicores", "bytes", "units"]:
    if name == CPU:
        return "millicores"
    return "bytes" if name in (MEMORY, EPHEMERAL_STORAGE) or name.startswith("hugepages-") else "units"
