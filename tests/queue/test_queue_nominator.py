"""Nominations: rules/queue §12."""

from __future__ import annotations

import pytest
from queue_kit import Bench, a_pod, changed

from kubesched.api.types import Pod
from kubesched.scheduler.queue import NominatingInfo, NominatingMode, Nominator


def names(nominator: Nominator, node: str) -> list[str]:
    return [info.name for info in nominator.nominated_pods_for_node(node)]


@pytest.mark.parametrize(
    ("status", "info", "want"),
    [
        ("", None, None),
        ("n1", None, "n1"),
        ("n1", NominatingInfo(), "n1"),
        ("n1", NominatingInfo(NominatingMode.NOOP, "n2"), "n1"),
        ("n1", NominatingInfo.override("n2"), "n2"),
        ("", NominatingInfo.override("n2"), "n2"),
        ("n1", NominatingInfo.clear(), None),
    ],
)
def test_override_beats_status(status: str, info: NominatingInfo | None, want: str | None) -> None:
    nominator = Nominator()
    pod = a_pod(nominated=status)
    nominator.add(pod, NominatingInfo.override("before"))
    nominator.add(pod, info)
    assert nominator.node_of(pod.uid) == want
    assert set(nominator.nominated_nodes()) == ({want} if want else set())
    assert nominator.check() == []


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [("", "", "kept"), ("", "n1", "n1"), ("n1", "n2", "n2"), ("n1", "", None), ("n1", "n1", "n1")],
)
def test_update_follows_the_status_and_keeps_what_only_memory_knows(old: str, new: str, want: str | None) -> None:
    nominator = Nominator()
    before, after = a_pod(nominated=old), a_pod(nominated=new)
    nominator.add(before, NominatingInfo.override("kept"))
    nominator.update(before, after)
    assert nominator.node_of(after.uid) == want
    assert nominator.check() == []


def test_update_without_any_nomination_adds_none() -> None:
    nominator = Nominator()
    nominator.update(a_pod(), a_pod(labels={"a": "b"}))
    assert not nominator.nominated_nodes()


@pytest.mark.parametrize("live", [None, a_pod(node="n9")])
def test_a_pod_that_is_gone_or_bound_loses_its_nomination(live: Pod | None) -> None:
    nominator = Nominator(lambda namespace, name: live)
    pod = a_pod(nominated="n1")
    nominator.add(pod)
    assert nominator.node_of(pod.uid) is None
    alive = Nominator(lambda namespace, name: pod if (namespace, name) == ("ns", "p") else None)
    alive.add(pod)
    assert alive.node_of(pod.uid) == "n1"


def test_pods_are_listed_in_the_order_of_nomination_and_deleted_by_uid() -> None:
    nominator = Nominator()
    for name in "abc":
        nominator.add(a_pod(name, nominated="n1"))
    nominator.delete(a_pod("renamed", uid="b-uid"))
    nominator.delete(a_pod("b"))
    assert names(nominator, "n1") == ["a", "c"]
    assert names(nominator, "n2") == []


def test_pods_queued_or_in_flight_are_given_in_full_and_others_as_stubs() -> None:
    bench = Bench()
    pods = {name: a_pod(name, nominated="n1", priority=7) for name in ("active", "waiting", "resting", "flying")}
    bench.in_backoff(pods["resting"])
    bench.rejected(pods["waiting"], "Spread")
    bench.queue.add(pods["flying"])
    bench.pop()
    bench.queue.add(pods["active"])
    bench.queue.nominator.add(a_pod("elsewhere", nominated="n1", priority=7))
    found = {info.name: info for info in bench.queue.nominator.nominated_pods_for_node("n1")}
    assert set(found) == {*pods, "elsewhere"}
    for name, waiting in pods.items():
        assert found[name].pod is waiting
    stub = found["elsewhere"]
    assert (stub.priority, stub.uid, stub.spec.node_name) == (0, "elsewhere-uid", "")
    # What was handed out does not change when the queue's pod does.
    bench.queue.update(pods["active"], changed(pods["active"], priority=1, nominated="n1"))
    assert found["active"].priority == 7


def test_the_queue_keeps_the_nominator_up_to_date() -> None:
    bench = Bench()
    pod = a_pod(nominated="n1")
    nominator = bench.queue.nominator
    bench.gate.closed.add("p")
    bench.queue.add(pod)
    assert nominator.node_of(pod.uid) is None  # gated: not in the active queue yet
    bench.gate.closed.clear()
    bench.queue.delete(pod)
    bench.queue.add(pod)
    assert nominator.node_of(pod.uid) == "n1"
    moved = changed(pod, nominated="n2")
    bench.queue.update(pod, moved)
    assert nominator.node_of(pod.uid) == "n2"
    record = bench.pop()
    assert nominator.node_of(pod.uid) == "n2"
    bench.fail(record, "Fit")
    nominator.add(moved, NominatingInfo.clear())
    assert nominator.node_of(pod.uid) is None
    bench.queue.update(moved, changed(moved, nominated="n3"))
    assert nominator.node_of(pod.uid) == "n3"
    bench.queue.delete(moved)
    assert not nominator.nominated_nodes()
