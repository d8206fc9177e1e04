"""Place in the queue, and events that wake a pod: each event named is sent, and the pod is tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kubesched
from kubesched.api.kinds import NODES, PODS, Kind
from kubesched.api.wire import MERGE_PATCH
from kubesched.explain.report import QueueState
from kubesched.explain.waiting import wake_texts
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, EventResource

Change = Callable[[kubesched.Simulation], Any]

LABELS = {"kubernetes.io/hostname": "n", "zone": "a"}


def node(name: str = "n", **more: Any) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "110", **more.pop("amounts", {})}
    labels = {**LABELS, "kubernetes.io/hostname": name, **more.pop("labels", {})}
    status = {"allocatable": amounts, "capacity": amounts}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": more,
        "status": status,
    }


def pod(
    name: str, cpu: str = "100m", labels: dict[str, str] | None = None, port: int = 0, **spec: Any
) -> dict[str, Any]:
    ports = [{"containerPort": 80, "hostPort": port}] if port else []
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}, "ports": ports}
    meta = {"name": name, "namespace": "default", "labels": labels or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
    }


def patched(kind: Kind, name: str, patch: dict[str, Any], subresource: str = "") -> Change:
    def change(simulation: kubesched.Simulation) -> None:
        namespace = "default" if kind.namespaced else ""
        store = simulation.embedded.store
        store.patch(kind, namespace, name, patch, patch_type=MERGE_PATCH, subresource=subresource)

    return lambda simulation: simulation._do_now(lambda: change(simulation))


def created(*objects: dict[str, Any]) -> Change:
    return lambda simulation: simulation.create(list(objects))


def deleted(kind: str, name: str) -> Change:
    return lambda simulation: simulation.delete(kind, name)


def against(app: str) -> dict[str, Any]:
    rule = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}


BIGGER = node("n2", amounts={"cpu": "64"}, labels={"zone": "b", "disk": "ssd"})
WEB = {"app": "web"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "nodeTaintsPolicy": "Honor",
    "labelSelector": {"matchLabels": WEB},
}


def tolerate(simulation: kubesched.Simulation) -> None:
    store = simulation.embedded.store
    there = store.get(PODS, "default", "new").section("spec").get("tolerations") or []
    patched(PODS, "new", {"spec": {"tolerations": [*there, {"operator": "Exists"}]}})(simulation)


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}

#: Changes that a plugin may wait for without a closer look.
EVERYWHERE = {
    "NodeUpdateNodeTaint": patched(NODES, "n", {"spec": {"taints": [{**TAINT, "effect": "PreferNoSchedule"}]}}),
    "PodUpdatePodToleration": tolerate,
}
#: Plugin that rejects, the cluster, the rejected pod, and for each event a change that brings it.
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], dict[str, Change]]] = {
    "NodeResourcesFit": (
        [node(), pod("big", "1500m")],
        pod("new", "1800m", priority=0),
        {
            "PodDelete": deleted("Pod", "big"),
            "NodeAdd": created(BIGGER),
            "NodeUpdateNodeAllocatable": patched(NODES, "n", {"status": {"allocatable": {"cpu": "4"}}}, "status"),
        },
    ),
    "NodeAffinity": (
        [node()],
        pod("new", nodeSelector={"disk": "ssd"}),
        {
            "NodeAdd": created(BIGGER),
            "NodeUpdateNodeLabel": patched(NODES, "n", {"metadata": {"labels": {"disk": "ssd"}}}),
        },
    ),
    "TaintToleration": (
        [node(taints=[TAINT])],
        pod("new"),
        {
            "NodeAdd": created(BIGGER),
            "NodeUpdateNodeTaint": patched(NODES, "n", {"spec": {"taints": []}}),
            "PodUpdatePodToleration": tolerate,
        },
    ),
    "NodeUnschedulable": (
        [node(unschedulable=True)],
        pod("new"),
        {
            "NodeAdd": created(BIGGER),
            "NodeUpdateNodeTaint": patched(NODES, "n", {"spec": {"unschedulable": False}}),
            "PodUpdatePodToleration": tolerate,
        },
    ),
    "NodePorts": (
        [node(), pod("holder", port=80)],
        pod("new", port=80),
        {"PodDelete": deleted("Pod", "holder"), "NodeAdd": created(BIGGER)},
    ),
    "PodTopologySpread": (
        [node(), node("m", labels={"zone": "c"}, amounts={"cpu": "0"}), pod("one", labels=WEB)],
        pod("new", labels=WEB, topologySpreadConstraints=[SPREAD]),
        {
            "PodAdd": created(pod("another", "0", labels=WEB, nodeSelector={"zone": "c"})),
            "PodDelete": deleted("Pod", "one"),
            "PodUpdatePodLabel": patched(PODS, "one", {"metadata": {"labels": {"app": "db"}}}),
            "NodeAdd": created(BIGGER),
            "NodeDelete": deleted("Node", "m"),
            "NodeUpdateNodeLabel": patched(NODES, "m", {"metadata": {"labels": {"zone": "a"}}}),
            "NodeUpdateNodeTaint": patched(NODES, "m", {"spec": {"taints": [TAINT]}}),
        },
    ),
    "InterPodAffinity": (
        [node(), pod("one", labels=WEB)],
        pod("new", labels={"app": "db"}, affinity={"podAffinity": against("cache"), "podAntiAffinity": against("web")}),
        {
            "PodAdd": created(pod("another", labels={"app": "cache"})),
            "PodDelete": deleted("Pod", "one"),
            "PodUpdatePodLabel": patched(PODS, "one", {"metadata": {"labels": {"app": "cache"}}}),
            "NodeAdd": created(BIGGER),
            "NodeUpdateNodeLabel": patched(NODES, "n", {"metadata": {"labels": {"zone": "z"}}}),
        },
    ),
    "SchedulingGates": (
        [node()],
        pod("new", schedulingGates=[{"name": "example.com/quota"}]),
        {"PodUpdatePodSchedulingGatesEliminated": patched(PODS, "new", {"spec": {"schedulingGates": []}})},
    ),
}


def state_of(simulation: kubesched.Simulation) -> QueueState:
    (group,) = simulation.explain("new").pending
    assert group.queue is not None
    return group.queue


@pytest.mark.parametrize("plugin", CASES)
def test_every_event_that_is_named_wakes_the_pod(plugin: str) -> None:
    cluster, waiting, changes = CASES[plugin]
    changes = {**EVERYWHERE, **changes}
    with kubesched.Simulation([*cluster, waiting]) as simulation:
        state = state_of(simulation)
        assert plugin in state.rejected_by + state.held_by
        named = {wake.event for wake in state.wakes if wake.plugin == plugin}
    assert named, "no event is named"
    assert named - changes.keys() <= UNSENT, "an event is named that no change here brings"
    for event in sorted(named & changes.keys()):
        with kubesched.Simulation([*cluster, waiting]) as simulation:
            simulation.advance(20)
            before = state_of(simulation)
            assert before.place in ("Unschedulable", "Gated")
            changes[event](simulation)
            simulation.advance(20)
            explained = simulation.explain("new")
            tried = explained.placed or (
                explained.pending[0].queue is not None and explained.pending[0].queue.attempts > before.attempts
            )
            assert tried, f"{event} did not wake the pod"


#: Events that the API lets no user bring: requests of a running pod, and classes of devices without devices.
UNSENT = {"PodUpdatePodScaleDown", "resource.k8s.io/DeviceClassAdd", "resource.k8s.io/DeviceClassUpdate"}


def test_the_place_and_times_of_a_waiting_pod_are_those_of_the_queue() -> None:
    with kubesched.Simulation([node(), pod("new", "9")]) as simulation:
        simulation.advance(100)
        state = state_of(simulation)
        assert (state.place, state.attempts, state.ahead, state.backoff) == ("Unschedulable", 1, None, None)
        assert state.waited == pytest.approx(100, abs=1)
        assert state.retry == pytest.approx(200, abs=1)
        simulation.advance(250)
        assert state_of(simulation).attempts == 2


def test_an_action_of_several_kinds_is_told_one_by_one() -> None:
    event = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.DELETE)
    assert [text for _, text in wake_texts(event)] == [
        "a node is added",
        "a node is deleted",
        "the labels of a node change",
    ]
    volume = ClusterEvent(EventResource.PERSISTENT_VOLUME, ActionType.ADD | ActionType.UPDATE)
    assert [(one.label, text) for one, text in wake_texts(volume)] == [
        ("PersistentVolumeAdd", "a PersistentVolume is added"),
        ("PersistentVolumeUpdate", "a PersistentVolume changes"),
    ]
    everything = ClusterEvent(EventResource.POD, ActionType.ALL)
    assert {one.action for one, _ in wake_texts(everything)} >= {
        ActionType.ADD,
        ActionType.DELETE,
        ActionType.UPDATE_POD_LABEL,
    }
