"""Preemptors that wait for their victims: asking which deletions may help them changes nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from builders import a_pod, info
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.plugins.preemption.hold import VictimsAwaited


def test_a_pod_whose_nomination_is_not_there_for_a_moment_waits_for_its_victims_afterwards() -> None:
    node_of = {"pod-uid": "n1"}
    handle: Any = SimpleNamespace(
        framework=SimpleNamespace(filters=[SimpleNamespace(name="Fit")]),
        nominations=SimpleNamespace(node_of=lambda uid: node_of.get(uid, "")),
    )
    awaited = VictimsAwaited("Preemption", handle, lambda uid: True)
    pod = info(a_pod("preemptor", uid="pod-uid"))
    question: Any = SimpleNamespace(pod=pod, amounts=((0, 100),), state=CycleState())
    awaited.add(question, "n1")
    key = awaited.key(pod, {"Fit"})
    assert key is not None
    node_of.clear()
    assert awaited.key(pod, {"Fit"}) is None
    node_of["pod-uid"] = "n1"
    assert awaited.key(pod, {"Fit"}) == key
    assert awaited.key(pod, {"Fit", "Other"}) is None
