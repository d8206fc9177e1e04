"""Cluster events: the events of an update, the registrations that match it, and what is registered per plugin."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from framework_kit import make_plugin, profile, say

from builders import a_container, a_node, a_pod, a_taint, a_toleration, an_image, info
from kubesched.api.types import (
    ContainerStatus,
    ExtendedResourceClaimStatus,
    Node,
    Pod,
    PodResourceClaimStatus,
    PodStatus,
    ResourceRequirements,
)
from kubesched.scheduler.framework.enqueue import queueing_hints, registrations, watched_actions
from kubesched.scheduler.framework.events import (
    FORCE_ACTIVATE,
    UNSCHEDULABLE_TIMEOUT,
    ActionType,
    ClusterEvent,
    ClusterEventWithHint,
    EventResource,
    QueueingHint,
    node_events,
    pod_events,
)
from kubesched.scheduler.framework.question import Question
from kubesched.scheduler.framework.registry import PluginError

R, A = EventResource, ActionType
ANY = ClusterEvent(R.WILDCARD, A.ALL)

MATCHING: list[tuple[str, ClusterEvent, ClusterEvent, bool]] = [
    ("the same", ClusterEvent(R.NODE, A.ADD), ClusterEvent(R.NODE, A.ADD), True),
    ("another resource", ClusterEvent(R.NODE, A.ADD), ClusterEvent(R.CSI_NODE, A.ADD), False),
    ("another action", ClusterEvent(R.NODE, A.ADD), ClusterEvent(R.NODE, A.DELETE), False),
    ("Update matches labels", ClusterEvent(R.NODE, A.UPDATE), ClusterEvent(R.NODE, A.UPDATE_NODE_LABEL), True),
    ("labels do not match Update", ClusterEvent(R.NODE, A.UPDATE_NODE_LABEL), ClusterEvent(R.NODE, A.UPDATE), False),
    ("one of several", ClusterEvent(R.NODE, A.ADD | A.UPDATE_NODE_TAINT), ClusterEvent(R.NODE, A.UPDATE_NODE_TAINT), True),
    ("Pod matches assigned pods", ClusterEvent(R.POD, A.ADD), ClusterEvent(R.ASSIGNED_POD, A.ADD), True),
    ("Pod matches unscheduled pods", ClusterEvent(R.POD, A.ADD), ClusterEvent(R.UNSCHEDULABLE_POD, A.ADD), True),
    ("assigned pods are not unscheduled ones", ClusterEvent(R.ASSIGNED_POD, A.ADD), ClusterEvent(R.UNSCHEDULABLE_POD, A.ADD), False),
    ("assigned pods do not match Pod", ClusterEvent(R.ASSIGNED_POD, A.ADD), ClusterEvent(R.POD, A.ADD), False),
    ("the wildcard matches everything", ANY, ClusterEvent(R.NODE, A.UPDATE_NODE_LABEL), True),
    ("the wildcard matches the wildcard", ANY, UNSCHEDULABLE_TIMEOUT, True),
    ("no other resource matches the wildcard", ClusterEvent(R.NODE, A.ALL), UNSCHEDULABLE_TIMEOUT, False),
    ("any resource, one action", ClusterEvent(R.WILDCARD, A.ADD), ClusterEvent(R.NODE, A.ADD), True),
    ("any resource, another action", ClusterEvent(R.WILDCARD, A.ADD), ClusterEvent(R.NODE, A.DELETE), False),
    ("a resource of one's own", ClusterEvent("foos.v1.example.com", A.ALL), ClusterEvent("foos.v1.example.com", A.UPDATE), True),
    # Compared as numbers: taint (16) is above label (8).
    ("a mask above the registered one is too broad", ClusterEvent(R.NODE, A.ADD | A.UPDATE_NODE_LABEL), ClusterEvent(R.NODE, A.ADD | A.UPDATE_NODE_TAINT), False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "registered", "incoming", "want"), MATCHING)
def test_matching(name: str, registered: ClusterEvent, incoming: ClusterEvent, want: bool) -> None:
    assert registered.matches(incoming) is want, name


def test_labels_of_events() -> None:
    assert ClusterEvent(R.NODE, A.UPDATE_NODE_LABEL).label == "NodeUpdateNodeLabel"
    assert ClusterEvent(R.ASSIGNED_POD, A.DELETE).label == "AssignedPodDelete"
    assert UNSCHEDULABLE_TIMEOUT.label == "UnschedulableTimeout"
    assert FORCE_ACTIVATE.label == "ForceActivate"
    assert ClusterEvent(R.NODE, A.ADD | A.DELETE).label == "Node"
    assert ClusterEvent(R.POD, A.DELETE | A.UPDATE_POD_SCALE_DOWN).describe() == "Pod/Delete|UpdatePodScaleDown"


def test_the_masks_are_upstreams() -> None:
    updates = [action for action in A if action.name and action.name.startswith("UPDATE_")]
    assert sum(updates) == int(A.UPDATE) == 8188
    assert A.UPDATE | A.ADD | A.DELETE == int(A.ALL) == 8191


# -- updates of pods ---------------------------------------------------------------------------------------

plain = a_pod(cpu="2", memory="1Gi", tolerations=[a_toleration("a")])


def with_status(pod: Pod, **status: Any) -> Pod:
    return msgspec.structs.replace(pod, status=PodStatus(**status))


resized = ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "2"}))
shrunk = ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "1"}))

POD_UPDATES: list[tuple[str, Pod, Pod, list[ActionType]]] = [
    ("nothing", plain, plain, [A.UPDATE]),
    ("annotations", plain, msgspec.structs.replace(plain, metadata=msgspec.structs.replace(plain.metadata, annotations={"a": "b"})), [A.UPDATE]),
    ("labels", plain, a_pod(cpu="2", memory="1Gi", labels={"a": "b"}, tolerations=[a_toleration("a")]), [A.UPDATE_POD_LABEL]),
    ("less cpu", a_pod(cpu="2"), a_pod(cpu="1999m"), [A.UPDATE_POD_SCALE_DOWN]),
    ("more cpu", a_pod(cpu="1"), a_pod(cpu="2"), [A.UPDATE]),
    ("written otherwise", a_pod(cpu="1"), a_pod(cpu="1000m"), [A.UPDATE]),
    ("more cpu but less memory", a_pod(cpu="1", memory="2"), a_pod(cpu="2", memory="1"), [A.UPDATE_POD_SCALE_DOWN]),
    ("a request went", a_pod(requests={"cpu": "1", "x.io/gpu": 0}), a_pod(cpu="1"), [A.UPDATE_POD_SCALE_DOWN]),
    ("a container went", a_pod(containers=[a_container("a", {"cpu": "1"}), a_container("b", {"cpu": "1"})]), a_pod(cpu="1"), [A.UPDATE_POD_SCALE_DOWN]),
    ("less at pod level", a_pod(pod_level={"cpu": "3"}), a_pod(pod_level={"cpu": "2"}), [A.UPDATE_POD_SCALE_DOWN]),
    ("a resize is over", with_status(a_pod(cpu="1"), container_statuses=(resized,)), with_status(a_pod(cpu="1"), container_statuses=(shrunk,)), [A.UPDATE_POD_SCALE_DOWN]),
    ("gates went", a_pod(gates=["g"]), a_pod(), [A.UPDATE_POD_SCHEDULING_GATES_ELIMINATED]),
    ("one of two gates went", a_pod(gates=["g", "h"]), a_pod(gates=["h"]), [A.UPDATE]),
    ("one more toleration", a_pod(), plain_tolerant := a_pod(tolerations=[a_toleration("a")]), [A.UPDATE_POD_TOLERATION]),
    ("another toleration", plain_tolerant, a_pod(tolerations=[a_toleration("b")]), [A.UPDATE]),
    ("a claim was made", a_pod(), with_status(a_pod(), resource_claim_statuses=(PodResourceClaimStatus(name="c", resource_claim_name="x"),)), [A.UPDATE_POD_GENERATED_RESOURCE_CLAIM]),
    ("an extended resource claim was made", a_pod(), with_status(a_pod(), extended_resource_claim_status=ExtendedResourceClaimStatus(resource_claim_name="x")), [A.UPDATE_POD_GENERATED_RESOURCE_CLAIM]),
    ("everything at once, in order", a_pod(cpu="2", gates=["g"]), with_status(a_pod(cpu="1", labels={"a": "b"}, tolerations=[a_toleration("a")]), resource_claim_statuses=(PodResourceClaimStatus(name="c"),)),
     [A.UPDATE_POD_LABEL, A.UPDATE_POD_SCALE_DOWN, A.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, A.UPDATE_POD_TOLERATION, A.UPDATE_POD_GENERATED_RESOURCE_CLAIM]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "actions"), POD_UPDATES)
def test_pod_update(name: str, old: Pod, new: Pod, actions: list[ActionType]) -> None:
    assert pod_events(old, new) == [ClusterEvent(R.UNSCHEDULABLE_POD, action) for action in actions], name
    assert pod_events(old.on_node("n"), new.on_node("n")) == [
        ClusterEvent(R.ASSIGNED_POD, action) for action in actions
    ]


def test_a_version_with_the_same_spec_and_another_status_has_the_events_of_the_status() -> None:
    old = a_pod()
    status = msgspec.structs.replace(old.status, resource_claim_statuses=(PodResourceClaimStatus(name="c"),))
    new = msgspec.structs.replace(old, status=status)
    assert new.spec is old.spec
    assert pod_events(old, new) == [ClusterEvent(R.UNSCHEDULABLE_POD, A.UPDATE_POD_GENERATED_RESOURCE_CLAIM)]


# -- updates of nodes --------------------------------------------------------------------------------------

node = a_node(labels={"a": "b"}, conditions={"Ready": "True"})
NODE_UPDATES: list[tuple[str, Node, Node, list[ActionType]]] = [
    ("nothing", node, node, []),
    ("images", a_node(), a_node(images=[an_image("a:1", 1)]), []),
    ("cordoned", a_node(), a_node(unschedulable=True), []),
    ("uncordoned", a_node(unschedulable=True), a_node(), [A.UPDATE_NODE_TAINT]),
    ("more cpu", a_node(cpu="4"), a_node(cpu="5"), [A.UPDATE_NODE_ALLOCATABLE]),
    ("less cpu", a_node(cpu="4"), a_node(cpu="3"), [A.UPDATE_NODE_ALLOCATABLE]),
    ("cpu written otherwise", a_node(cpu="4"), a_node(cpu="4000m"), []),
    ("a new resource of zero", a_node(), a_node(allocatable={"x.io/gpu": 0}), [A.UPDATE_NODE_ALLOCATABLE]),
    ("labels", a_node(labels={"a": "b"}), a_node(labels={"a": "c"}), [A.UPDATE_NODE_LABEL]),
    ("a taint", a_node(), a_node(taints=[a_taint("k:NoSchedule")]), [A.UPDATE_NODE_TAINT]),
    ("taints in another order", a_node(taints=[a_taint("k:NoSchedule"), a_taint("l:NoSchedule")]), a_node(taints=[a_taint("l:NoSchedule"), a_taint("k:NoSchedule")]), [A.UPDATE_NODE_TAINT]),
    ("a condition", a_node(conditions={"Ready": "True"}), a_node(conditions={"Ready": "False"}), [A.UPDATE_NODE_CONDITION]),
    ("annotations", a_node(), a_node(annotations={"a": "b"}), [A.UPDATE_NODE_ANNOTATION]),
    ("features", a_node(), a_node(features=["X"]), [A.UPDATE_NODE_DECLARED_FEATURE]),
    ("uncordoned and tainted: two events", a_node(unschedulable=True), a_node(taints=[a_taint("k:NoSchedule")]), [A.UPDATE_NODE_TAINT, A.UPDATE_NODE_TAINT]),
    ("everything at once, in order", a_node(unschedulable=True), a_node(cpu="9", labels={"a": "b"}, taints=[a_taint("k:NoSchedule")], conditions={"Ready": "True"}, annotations={"a": "b"}, features=["X"]),
     [A.UPDATE_NODE_TAINT, A.UPDATE_NODE_ALLOCATABLE, A.UPDATE_NODE_LABEL, A.UPDATE_NODE_TAINT, A.UPDATE_NODE_CONDITION, A.UPDATE_NODE_ANNOTATION, A.UPDATE_NODE_DECLARED_FEATURE]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "actions"), NODE_UPDATES)
def test_node_update(name: str, old: Node, new: Node, actions: list[ActionType]) -> None:
    assert node_events(old, new) == [ClusterEvent(R.NODE, action) for action in actions], name


def test_a_heartbeat_is_no_event() -> None:
    status = node.status.conditions[0]
    later = msgspec.structs.replace(status, reason="StillReady")
    beaten = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=(later,)))
    assert node_events(node, beaten) == []


# -- registrations -----------------------------------------------------------------------------------------


def listing(*events: ClusterEvent, hint: Any = None) -> type:
    return make_plugin(
        "Listing",
        filter=say(None),
        events_to_register=lambda self: [ClusterEventWithHint(event, hint) for event in events],
    )


def registered(plugin: type) -> list[str]:
    return [item.event.describe() for item in registrations(plugin(None, None))]


TAINT = "Node/UpdateNodeTaint"
IMPLICIT: list[tuple[str, list[ClusterEvent], list[str]]] = [
    ("no event at all", [], []),
    ("nodes added: taints too", [ClusterEvent(R.NODE, A.ADD)], ["Node/Add", TAINT]),
    ("with labels: taints too", [ClusterEvent(R.NODE, A.ADD | A.UPDATE_NODE_LABEL)], ["Node/Add|UpdateNodeLabel", TAINT]),
    ("taints are there", [ClusterEvent(R.NODE, A.ADD | A.UPDATE_NODE_TAINT)], ["Node/Add|UpdateNodeTaint"]),
    ("taints are there in another entry", [ClusterEvent(R.NODE, A.ADD), ClusterEvent(R.NODE, A.UPDATE_NODE_TAINT)], ["Node/Add", TAINT]),
    ("no nodes added", [ClusterEvent(R.NODE, A.UPDATE_NODE_LABEL)], ["Node/UpdateNodeLabel"]),
    ("another resource added", [ClusterEvent(R.POD, A.ADD)], ["Pod/Add"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "events", "want"), IMPLICIT)
def test_taint_updates_are_received_where_added_nodes_are(
    name: str, events: list[ClusterEvent], want: list[str]
) -> None:
    assert registered(listing(*events)) == want, name


def test_the_implied_registration_has_no_hint() -> None:
    items = registrations(listing(ClusterEvent(R.NODE, A.ADD), hint=say(QueueingHint.SKIP))(None, None))
    assert [item.hint is None for item in items] == [False, True]


def test_a_plugin_without_registrations_receives_nearly_everything() -> None:
    items = registrations(make_plugin("NoEvents", filter=say(None))(None, None))
    assert [str(item.event.resource) for item in items] == [
        "Pod", "Node", "PersistentVolume", "PersistentVolumeClaim", "storage.k8s.io/CSINode", "storage.k8s.io/CSIDriver",
        "storage.k8s.io/CSIStorageCapacity", "storage.k8s.io/StorageClass", "resource.k8s.io/ResourceClaim",
        "resource.k8s.io/DeviceClass",
    ]  # fmt: skip
    assert all(item.event.action == A.ALL for item in items)


def test_but_not_of_what_the_scheduler_writes_into_the_pod_itself() -> None:
    (item,) = [
        item
        for item in registrations(make_plugin("NoEvents", filter=say(None))(None, None))
        if item.event.resource == R.POD
    ]
    assert item.hint is not None
    me = a_pod("me")
    assert item.hint(info(me), me, with_status(me, phase="Pending")) is QueueingHint.SKIP
    assert item.hint(info(me), me, a_pod("me", labels={"a": "b"})) is QueueingHint.QUEUE
    assert item.hint(info(me), a_pod("o"), with_status(a_pod("o"), phase="Running")) is QueueingHint.QUEUE
    assert item.hint(info(me), None, a_pod("o")) is QueueingHint.QUEUE
    assert item.hint(info(me), a_pod("o"), None) is QueueingHint.QUEUE


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (say(ValueError("boom")), 'plugin "Bad" cannot list its events: boom'),
        (say(None), 'plugin "Bad" cannot list its events: '),
        (say(["Node/Add"]), "plugin \"Bad\": events_to_register returned 'Node/Add'; expected ClusterEventWithHint objects"),
    ],
)  # fmt: skip
def test_a_list_of_events_that_is_none_is_refused(method: Any, text: str) -> None:
    with pytest.raises(PluginError) as caught:
        registrations(make_plugin("Bad", filter=say(None), events_to_register=method)(None, None))
    assert str(caught.value).startswith(text)


def test_hints_are_kept_by_event_and_watched_actions_by_resource() -> None:
    node_add = ClusterEvent(R.NODE, A.ADD | A.UPDATE_NODE_TAINT)
    hint = say(QueueingHint.SKIP)

    def one(name: str, *events: ClusterEvent) -> Any:
        listed = [ClusterEventWithHint(event, hint) for event in events]
        return make_plugin(name, filter=say(None), events_to_register=lambda self: listed)(None, None)

    hints = queueing_hints([one("A", node_add), one("B", node_add, ClusterEvent(R.POD, A.DELETE))])
    assert hints == {node_add: [("A", hint), ("B", hint)], ClusterEvent(R.POD, A.DELETE): [("B", hint)]}
    more = [*hints, ClusterEvent(R.NODE, A.DELETE)]
    assert watched_actions(more) == {R.NODE: A.ADD | A.UPDATE_NODE_TAINT | A.DELETE, R.POD: A.DELETE}


def test_only_plugins_of_five_points_are_asked_for_events() -> None:
    def one(name: str, *methods: str) -> type:
        return make_plugin(name, **dict.fromkeys(methods, say(None)))

    framework = profile(
        one("Enqueue", "pre_enqueue"), one("PreFilter", "pre_filter"), one("Filter", "filter"), one("Score", "score"),
        one("Reserve", "reserve"), one("Permit", "permit"), one("Bind", "bind"), one("Both", "filter", "permit"),
        make_plugin("Asks", asks=type("Asked", (Question,), {"verdicts": say(None)}), ask=say(None), reserve=say(None)),
    )  # fmt: skip
    assert [plugin.name for plugin in framework.event_plugins()] == [
        "Enqueue", "PreFilter", "Filter", "Both", "Asks", "Reserve", "Permit",
    ]  # fmt: skip
