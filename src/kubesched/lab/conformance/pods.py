"""Vectors with pods to place: each alone (``independent``), or one after the other (``sequential``)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cmp_to_key
from typing import Any

from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

from .compare import compare_attempt
from .comparison import Comparison
from .devices import Allocations, store_allocations
from .members import RecordError
from .preemption import apply_deallocation, compare_effects
from .reserving import reserved
from .wording import without_wording
from .world import World
from .written_attempt import nominated, status_of

__all__ = ["Change", "replay_independent", "replay_sequential", "unchanged"]

JSON = dict[str, Any]

#: Change of an incoming pod for the time of its attempt; see :mod:`.variants`.
Change = Callable[[PodInfo], PodInfo]


def unchanged(pod: PodInfo) -> PodInfo:
    """Return the pod as it is."""
    return pod


def replay_independent(comparison: Comparison, world: World, vector: JSON, change: Change = unchanged) -> None:
    """Attempt every pending pod against the same state.

    Raises:
        RecordError: when the records are not those of the pending pods.
    """
    records = vector["expected"]["pods"]
    if [record["pod"] for record in records] != [pod.key for pod in world.pending]:
        raise RecordError("expected.pods: not the pods of scenario.pending")
    for pod, record in zip(world.pending, records, strict=True):
        compare_attempt(comparison, world, change(pod), record, f"pod {pod.key}")


def replay_sequential(comparison: Comparison, world: World, vector: JSON, change: Change = unchanged) -> None:
    """Attempt the pods one after another. Effects are taken from the record, so that later steps stay comparable.

    Raises:
        RecordError: when a record is of a pod that is not pending.
    """
    steps = vector["expected"]["steps"]
    sequence = _Sequence(world)
    _compare_order(comparison, world, steps)
    for number, step in enumerate(steps, 1):
        if step["pod"] not in sequence.pending:
            raise RecordError(f"expected.steps[{number - 1}].pod: {step['pod']} is not in scenario.pending")
        pod = sequence.pending[step["pod"]]
        where = f"step {number}, pod {pod.key}"
        answer = compare_attempt(comparison, world, change(pod), step, where)
        if answer is not None and "node" in step:
            if step["outcome"] == "scheduled":
                comparison.check("node", f"{where}: node", step["node"], min(answer["best"], default=None))
            else:
                compare_effects(comparison, world, change(pod), step, where)
        allocations = answer["allocations"] if answer is not None and "allocations" in answer else {}
        sequence.follow(comparison, step, number, where, allocations)


def _compare_order(comparison: Comparison, world: World, steps: list[JSON]) -> None:
    """Compare the order in which the queue of the first profile would pop the pods."""
    framework = next(iter(world.frameworks.values()))

    def compared(one: QueuedPodInfo, other: QueuedPodInfo) -> int:
        return framework.less(other, one) - framework.less(one, other)

    queued = [QueuedPodInfo(pod, timestamp=_seconds(pod.metadata.creation_timestamp)) for pod in world.pending]
    recorded = [step["pod"] for step in steps if step["pass"] == 1]
    ordered = [each.pod_info.key for each in sorted(queued, key=cmp_to_key(compared))]
    comparison.check("order", "order of attempts", recorded, ordered)


def _seconds(time: str | None) -> float:
    return datetime.fromisoformat(time).timestamp() if time else 0.0


class _Sequence:
    """Effects of the attempts of a sequence."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.pending = {pod.key: pod for pod in world.pending}

    def follow(self, comparison: Comparison, step: JSON, number: int, where: str, allocations: Allocations) -> None:
        """Apply the recorded effects of an attempt: placement, preemption, nominations that end.

        ``allocations``: the devices that the attempt would allocate.

        Raises:
            RecordError: when a nomination ends that does not exist.
        """
        preemption = step.get("preemption", {})
        if preemption and self.pending[step["pod"]].has_device_requests:
            apply_deallocation(self._world, self.pending[step["pod"]])
        for key in step.get("clearedNominations", ()):
            if not self._clear(key):
                raise RecordError(f"expected.steps[{number - 1}].clearedNominations: {key} is not nominated")
        if step["outcome"] == "scheduled" and self._reserve(comparison, step, where):
            store_allocations(
                self._world, self.pending[step["pod"]], step["node"], allocations, step.get("devices", {})
            )
            start = f"2030-01-01T00:{number // 60:02}:{number % 60:02}Z"
            self._world.place(self.pending[step["pod"]], step["node"], start)
        elif preemption.get("nominated"):
            self._preempt(step, min(preemption["nominated"]))
        elif preemption.get("cleared"):
            self._clear(step["pod"])

    def _reserve(self, comparison: Comparison, step: JSON, where: str) -> bool:
        """Reserve the pod's resources on its node, and compare the result with the record.

        Returns False when the record says that Reserve failed, so that the pod is not placed.
        """
        pod, recorded = self.pending[step["pod"]], step.get("reserve")
        status = reserved(self._world, pod, step["node"])
        if recorded is not None or status is not None:
            got = None if status is None else {**status_of(status), "plugin": status.plugin}
            wanted = None if recorded is None else {"reasons": [], "plugin": "", **recorded}
            if wanted is not None and got is not None:
                # If an error's text names extension point and plugin, the record leaves the plugin out.
                got["plugin"] = got["plugin"] if wanted["plugin"] else ""
                wanted, got = without_wording(wanted), without_wording(got)
            comparison.check("reserve", f"{where}: reserve", wanted, got)
        return recorded is None

    def _preempt(self, step: JSON, node: str) -> None:
        for key in step["preemption"].get("candidates", {}).get(node, {}).get("victims", ()):
            self._world.remove(key)
        pod = nominated(self.pending[step["pod"]], node)
        self.pending[pod.key] = pod
        self._world.nominations.add(pod, node)

    def _clear(self, key: str) -> bool:
        """End a pod's nomination, if it has one. The pod may be waiting without being in the scenario's pending
        list.
        """
        if key in self.pending:
            self.pending[key] = nominated(self.pending[key], "")
        return self._world.nominations.remove_key(key)
