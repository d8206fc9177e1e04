"""Vectors with pods to place: each alone (``independent``), or one after the other (``sequential``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubesched.framework.podinfo import PodInfo

from .attempts import nominated
from .compare import compare_attempt
from .comparison import Comparison
from .members import RecordError
from .world import World

__all__ = ["Change", "replay_independent", "replay_sequential", "unchanged"]

JSON = dict[str, Any]

#: What an incoming pod looks like while it is attempted; see :mod:`.variants`.
Change = Callable[[PodInfo], PodInfo]


def unchanged(pod: PodInfo) -> PodInfo:
    """The pod as it is."""
    return pod


def replay_independent(comparison: Comparison, world: World, vector: JSON, change: Change = unchanged) -> None:
    """Every pending pod against the same state.

    Raises:
        RecordError: when the records are not those of the pending pods.
    """
    records = vector["expected"]["pods"]
    if [record["pod"] for record in records] != [pod.key for pod in world.pending]:
        raise RecordError("expected.pods: not the pods of scenario.pending")
    for pod, record in zip(world.pending, records, strict=True):
        compare_attempt(comparison, world, change(pod), record, f"pod {pod.key}")


def replay_sequential(comparison: Comparison, world: World, vector: JSON, change: Change = unchanged) -> None:
    """Attempt after attempt. What follows an attempt is taken from the record, so that later steps stay comparable.

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
        compare_attempt(comparison, world, change(pod), step, where)
        sequence.follow(comparison, step, number, where)


def _compare_order(comparison: Comparison, world: World, steps: list[JSON]) -> None:
    ordered = sorted(
        enumerate(world.pending),
        key=lambda item: (-item[1].priority, item[1].metadata.creation_timestamp or "", item[0]),
    )
    recorded = [step["pod"] for step in steps if step["pass"] == 1]
    comparison.check("order", "order of attempts", recorded, [pod.key for _, pod in ordered])


class _Sequence:
    """What the attempts lead to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.pending = {pod.key: pod for pod in world.pending}

    def follow(self, comparison: Comparison, step: JSON, number: int, where: str) -> None:
        """Carry out what the record says of an attempt: placement, preemption, nominations that end."""
        preemption = step.get("preemption", {})
        if step["outcome"] == "scheduled":
            comparison.check("node", f"{where}: node", step["node"], min(step["best"], default=None))
            self._world.place(
                self.pending[step["pod"]], step["node"], f"2030-01-01T00:{number // 60:02}:{number % 60:02}Z"
            )
        elif preemption.get("nominated"):
            self._preempt(comparison, step, min(preemption["nominated"]), where)
        elif preemption.get("cleared"):
            self._clear(step["pod"])

    def _preempt(self, comparison: Comparison, step: JSON, node: str, where: str) -> None:
        comparison.check("node", f"{where}: node", step["node"], node)
        pod = self.pending[step["pod"]]
        cleared = sorted(
            other.key
            for other in self._world.nominations.nominated_pods_for_node(node)
            if other.priority < pod.priority and other.uid != pod.uid
        )
        if "clearedNominations" in step or cleared:
            recorded = sorted(step.get("clearedNominations", []))
            comparison.check("clearedNominations", f"{where}: clearedNominations", recorded, cleared)
        for key in step["preemption"].get("candidates", {}).get(node, {}).get("victims", ()):
            self._world.remove(key)
        for key in step.get("clearedNominations", ()):
            self._clear(key)
        self.pending[pod.key] = nominated(pod, node)
        self._world.nominations.add(self.pending[pod.key], node)

    def _clear(self, key: str) -> None:
        """End a pod's nomination; the pod may be one that waits outside the scenario's pending list."""
        self._world.nominations.remove_key(key)
        if key in self.pending:
            self.pending[key] = nominated(self.pending[key], "")
