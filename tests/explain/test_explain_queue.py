"""Place in the queue, and events that wake a pod: each event named is sent, and the pod is tried again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations, product
from typing import Any

import msgspec
import pytest

import kubesched
from kubesched.api.decode import decode_object
from kubesched.api.kinds import NODES, PODS, Kind
from kubesched.api.resource import DeviceClass
from kubesched.api.storage import CSIDriver, PersistentVolumeClaim
from kubesched.api.types import Node, Pod
from kubesched.api.wire import MERGE_PATCH
from kubesched.explain.report import QueueState
from kubesched.explain.text import explanation_lines
from kubesched.explain.waiting import wake_texts
from kubesched.scheduler.framework.enqueue import registrations
from kubesched.scheduler.framework.events import (
    ActionType,
    ClusterEvent,
    EventResource,
    HintFn,
    QueueingHint,
    pod_events,
)
from kubesched.scheduler.nodes.podinfo import PodInfo

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
        [node(), node("m", taints=[TAINT]), pod("big", "1500m")],
        pod("new", "1800m", priority=0),
        {
            "NodeUpdateNodeTaint": patched(NODES, "m", {"spec": {"taints": []}}),
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


def asks_for(waiting: dict[str, Any], resource: str) -> dict[str, Any]:
    container = waiting["spec"]["containers"][0]
    resources = {"requests": {**container["resources"]["requests"], resource: "1"}, "limits": {resource: "1"}}
    return {**waiting, "spec": {**waiting["spec"], "containers": [{**container, "resources": resources}]}}


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
    assert [text for _, text in wake_texts(everything)] == ["a pod is added", "a pod is deleted", "a pod changes"]


#: Rejected pods, the plugin that rejects, events that cannot wake them, and an alike pod that each of these can wake.
NEVER: list[tuple[str, list[dict[str, Any]], dict[str, Any], set[str], dict[str, Any]]] = [
    (
        "NodeResourcesFit",
        [node()],
        pod("new", "9"),
        {"resource.k8s.io/DeviceClassAdd", "resource.k8s.io/DeviceClassUpdate"},
        asks_for(pod("new", "9"), "example.com/gpu"),
    ),
    (
        "InterPodAffinity",
        [node(), pod("one", labels=WEB)],
        pod("new", affinity={"podAntiAffinity": against("web")}),
        {"PodAdd"},
        pod("new", affinity={"podAffinity": against("cache"), "podAntiAffinity": against("web")}),
    ),
    (
        "InterPodAffinity",
        [node(), pod("one", labels=WEB, affinity={"podAntiAffinity": against("db")})],
        pod("new", labels={"app": "db"}),
        {"PodAdd", "NodeAdd", "NodeUpdateNodeLabel"},
        pod("new", labels={"app": "db"}, affinity={"podAffinity": against("cache")}),
    ),
    (
        "PodTopologySpread",
        [node(), node("m", labels={"zone": "c"}, amounts={"cpu": "0"}), pod("one", labels=WEB)],
        pod("new", labels=WEB, topologySpreadConstraints=[{**SPREAD, "nodeTaintsPolicy": "Ignore"}]),
        {"PodUpdatePodToleration"},
        pod("new", labels=WEB, topologySpreadConstraints=[SPREAD]),
    ),
]


@pytest.mark.parametrize(("plugin", "cluster", "waiting", "never", "alike"), NEVER)
def test_events_that_cannot_wake_the_pod_are_not_named(
    plugin: str, cluster: list[dict[str, Any]], waiting: dict[str, Any], never: set[str], alike: dict[str, Any]
) -> None:
    def named(rejected: dict[str, Any]) -> set[str]:
        with kubesched.Simulation([*cluster, rejected]) as simulation:
            state = state_of(simulation)
            assert plugin in state.rejected_by
            return {wake.event for wake in state.wakes if wake.plugin == plugin}

    assert not named(waiting) & never
    assert named(alike) >= never


def some_pods() -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "v", "csi": {"driver": "csi.example.com"}},
    ]
    claim = {"name": "c", "resourceClaimTemplateName": "t"}
    return [
        pod("new", labels=WEB),
        asks_for(pod("new"), "example.com/gpu"),
        asks_for(pod("new"), "deviceclass.resource.kubernetes.io/gpu"),
        pod("new", resourceClaims=[claim]),
        *(pod("new", volumes=[volume]) for volume in volumes),
        pod("new", labels=WEB, affinity={"podAffinity": against("web")}),
        pod("new", labels=WEB, affinity={"podAntiAffinity": against("web")}),
        pod("new", labels=WEB, topologySpreadConstraints=[SPREAD]),
        pod("new", labels=WEB, topologySpreadConstraints=[{**SPREAD, "nodeTaintsPolicy": "Ignore"}]),
        pod("new", nodeName="n", labels=WEB, affinity={"podAntiAffinity": against("web")}),
        pod("new", nodeName="n", labels={"app": "db"}, tolerations=[{"operator": "Exists"}]),
    ]


def some_objects() -> dict[str, list[Any]]:
    def made(type_: type[Any], *objects: dict[str, Any]) -> list[Any]:
        return [decode_object(msgspec.json.encode(one), type_) for one in objects]

    named = {"metadata": {"name": "gpu"}, "spec": {}}
    claim = {"metadata": {"name": "data", "namespace": "default"}, "spec": {}}
    driver = {"metadata": {"name": "csi.example.com"}, "spec": {"storageCapacity": True}}
    return {
        EventResource.POD: made(Pod, *some_pods()),
        EventResource.NODE: made(Node, node(), node(labels={"zone": "b"}), node("m", taints=[TAINT])),
        EventResource.DEVICE_CLASS: made(
            DeviceClass, named, {**named, "spec": {"extendedResourceName": "example.com/gpu"}}
        ),
        EventResource.PERSISTENT_VOLUME_CLAIM: made(
            PersistentVolumeClaim, claim, {**claim, "metadata": {"name": "new-v", "namespace": "default"}}
        ),
        EventResource.CSI_DRIVER: made(CSIDriver, driver, {**driver, "spec": {}}),
    }


def test_no_event_that_a_hint_lets_pass_is_left_out() -> None:
    """Ask the hints themselves: objects that are added, deleted, and changed into each other, and pods of all kinds."""
    objects, passed, left_out = some_objects(), 0, 0
    waiting = [PodInfo(one) for one in objects[EventResource.POD] if not one.spec.node_name]
    with kubesched.Simulation([node()]) as simulation:
        plugins = simulation.embedded.scheduler.event_plugins("default-scheduler")
        items = [item for each in plugins for item in registrations(each) if item.may_wake is not None]
        for item, one in product(items, waiting):
            assert item.may_wake is not None
            assert item.hint is not None
            known = objects[item.event.resource]
            events = [(ActionType.ADD, None, new) for new in known]
            events += [(ActionType.DELETE, old, None) for old in known]
            events += [(action, old, new) for old, new in permutations(known, 2) for action in changes(old, new)]
            for action, old, new in events:
                if item.event.action & action and _queued(item.hint, one, old, new):
                    passed += 1
                    assert item.may_wake(one) & action, (item.event.label, one.key)
            left_out += item.may_wake(one) != ActionType.ALL
    assert min(passed, left_out) > 20


def changes(old: Any, new: Any) -> list[ActionType]:
    """Return the event of a change; none for a change of two kinds, which has two events."""
    actions = [event.action for event in pod_events(old, new)] if isinstance(new, Pod) else [ActionType.UPDATE]
    return actions if len(actions) == 1 else []


def _queued(hint: HintFn, waiting: PodInfo, old: Any, new: Any) -> bool:
    try:
        return hint(waiting, old, new) is QueueingHint.QUEUE
    except AttributeError:
        return False  # an action that the event does not have


def test_what_plugins_wait_for_is_told_together() -> None:
    with kubesched.Simulation([node(), pod("new", "9", nodeSelector={"disk": "ssd"})]) as simulation:
        lines = [line.text.strip() for line in explanation_lines(simulation.explain("new"))]
    woken = lines[lines.index("tried again before:") + 1 :]
    assert woken[:1] == [
        "when a node is added; the labels of a node change; or the taints of a node change, or it is uncordoned, "
        "if that helps against NodeAffinity"
    ]
