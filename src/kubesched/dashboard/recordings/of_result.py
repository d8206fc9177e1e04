"""Recording of a simulation's result (``kubesched simulate -o json``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from kubesched.base.large_json import large_json
from kubesched.base.pages import Answer
from kubesched.explain.report import Explanation
from kubesched.lab.simulate.results.result import NodeTimes, Result
from kubesched.lab.simulate.results.result import Series as ResultSeries

from ..schema import QueueCounts, Sample, Verdicts
from ..source import Refused
from .queue import Told
from .recording import Preempting, Recording
from .timeline import RecordingError, Timeline

__all__ = ["recording_of_result"]

#: Most warnings of a result that are shown.
_MOST_REMARKS: Final = 20
_ZONE: Final = "topology.kubernetes.io/zone"


def recording_of_result(result: Result, name: str) -> Recording:
    """Return the recording of a result; ``name`` is that of its file.

    Raises:
        RecordingError: for a result that cannot be, or is too large.
    """
    line = Timeline(_nodes(result), result.pods, 0.0, result.virtual_seconds)
    return Recording(
        name,
        line,
        _ResultReasons(result, name),
        told=_told(result),
        preemptions=[Preempting(one.at, one.pod, one.node, one.victims) for one in result.preemptions],
        samples=_samples(result.series),
        remarks=result.warnings[:_MOST_REMARKS],
    )


def _nodes(result: Result) -> list[NodeTimes]:
    """Return the states of nodes; of a result of an earlier version, the nodes at the end."""
    if result.node_times:
        return result.node_times
    return [
        NodeTimes(
            name=one.name,
            status=one.status,
            labels={_ZONE: one.zone} if one.zone else {},
            allocatable={use.name: use.allocatable for use in one.resources if not use.name.endswith(" (devices)")},
        )
        for one in result.nodes
    ]


def _told(result: Result) -> Told:
    """Return the reasons that pods have at the end; they are shown as such at any moment."""
    last = {
        f"{one.namespace}/{one.name}": index
        for index, one in enumerate(result.pods)
        if one.bound is None and not one.node and one.removed is None
    }
    texts, pods, reasons = [], [], []
    for group in result.pending:
        plugins = dict.fromkeys(one.plugin for one in group.reasons if one.plugin)
        texts.append((f"at the end: {group.message or group.reason}", tuple(plugins)))
        for pod in group.pods:
            if pod in last:
                pods.append(last[pod])
                reasons.append(len(texts) - 1)
    index = np.array(pods, np.int32)
    return Told(
        times=np.full(len(pods), -np.inf),
        pods=index,
        reasons=np.array(reasons, np.int32),
        attempts=np.array([min(result.pods[one].attempts, 2**31 - 1) for one in pods], np.int32),
        texts=texts,
    )


def _samples(series: ResultSeries) -> list[Sample]:
    """Return the figures of a series.

    Raises:
        RecordingError: if its lists do not belong together.
    """
    count = len(series.times)
    columns = {"active": series.active, "backoff": series.backoff}
    columns |= {"unschedulable": series.unschedulable, "gated": series.gated, "onNodes": series.on_nodes}
    by_name = (series.allocatable, series.requested, series.fragmentation)
    lengths = {f"series.{key}": len(one) for key, one in columns.items()}
    lengths |= {f"series.{name}": len(one) for group in by_name for name, one in group.items()}
    for where, length in lengths.items():
        if length != count:
            raise RecordingError(f"{where}: has {length} entries; series.times has {count}")
    if any(a > b for a, b in zip(series.times, series.times[1:], strict=False)):
        raise RecordingError("series.times: are not ascending")
    return list(_each_sample(series))


def _each_sample(series: ResultSeries) -> Iterator[Sample]:
    has_cost = len(series.cost) == len(series.times)
    for index, at in enumerate(series.times):
        yield Sample(
            at=at,
            queue=QueueCounts(
                active=series.active[index],
                backoff=series.backoff[index],
                unschedulable=series.unschedulable[index],
                gated=series.gated[index],
            ),
            on_nodes=series.on_nodes[index],
            fragmentation={name: one[index] for name, one in series.fragmentation.items()},
            cost=series.cost[index] if has_cost else None,
        )


class _ResultReasons:
    """Explanations that a result has: of pods that are pending at the end, and those that ``--explain`` asked for."""

    def __init__(self, result: Result, name: str) -> None:
        self._result = result
        self._name = name

    async def verdicts(self, namespace: str, name: str, at: float, line: Timeline) -> Verdicts:
        text = f"{self._name}: a result has no verdicts by node; a file of the same run's decisions has them"
        raise Refused(404, f"{text} (kubesched simulate --decisions FILE, then kubesched view FILE)")

    async def explain(self, path: str, query: Mapping[str, Sequence[str]], at: float) -> Answer:
        match path.strip("/").split("/"):
            case ["explain", "pending"]:
                result = self._result
                namespace = next(iter(query.get("namespace", ())), "")
                pending = [one for one in result.pending if not namespace or _namespace(one.pods) == namespace]
                groups = [one.why for one in result.groups if one.why is not None]
                return _answer(Explanation(pending=pending, not_created=result.not_created, pod_groups=groups))
            case ["explain", "pods", namespace, name]:
                return self._pod(f"{namespace}/{name}")
            case ["explain", "podgroups", namespace, name]:
                found = [one.why for one in self._result.groups if (one.namespace, one.name) == (namespace, name)]
                if found and found[0] is not None:
                    return _answer(Explanation(pod_groups=[found[0]]))
                raise Refused(404, f"{self._name}: has no explanation of the pod group {namespace}/{name}")
        raise Refused(404, f"{self._name}: has no such explanation: a result explains pods that are pending at its end")

    def _pod(self, key: str) -> Answer:
        result = self._result
        asked = result.explanation if result.explanation is not None else Explanation()
        evicted = [one for one in result.preemptions if key in one.victims]
        found = Explanation(
            pending=[one for one in (*asked.pending, *result.pending) if key in one.pods][:1],
            placed=[one for one in asked.placed if one.pod == key],
            evicted=evicted,
            notes=["The explanation is about the end of the simulation."],
        )
        if not (found.pending or found.placed or evicted):
            text = f"{self._name}: has no explanation of {key}; a result explains pods that are pending at its end, and those of --explain"
            raise Refused(
                404,
                f"{text}. A file of the same run's decisions explains every pod (kubesched simulate --decisions FILE)",
            )
        return _answer(found)


def _namespace(pods: Sequence[str]) -> str:
    return pods[0].partition("/")[0] if pods else ""


def _answer(document: Explanation) -> Answer:
    return Answer(200, bytes(large_json(msgspec.to_builtins(document))) + b"\n", "application/json")
