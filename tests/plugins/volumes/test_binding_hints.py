"""Events that bring back a pod that VolumeBinding rejected."""

from __future__ import annotations

from typing import Any

import pytest
from binding_kit import Binding, capacity, claim, driver, storage_class
from limits_kit import EPHEMERAL, JSON, a_csi_node, claims, with_volumes

from kubesched.api.decode import from_builtins
from kubesched.api.kinds import kind_of
from kubesched.api.types import Pod
from kubesched.scheduler.framework.events import ActionType, QueueingHint
from kubesched.scheduler.nodes.podinfo import PodInfo

POD = with_volumes("p", *claims("c"), {"csi": {"driver": "csi"}}, EPHEMERAL)
ZONE = "topology.kubernetes.io/zone"


def typed(obj: JSON) -> Any:
    kind = kind_of(obj["apiVersion"], obj["kind"])
    assert kind is not None
    assert kind.type is not None
    return from_builtins(obj, kind.type)


def hint(old: JSON | None, new: JSON, pod: Pod = POD) -> bool:
    """Return True if the pod is tried again after this event."""
    for registered in Binding().binding.plugin.events_to_register():
        if registered.event.resource.rpartition("/")[2] == new["kind"]:
            assert registered.hint is not None
            found = registered.hint(PodInfo(pod), None if old is None else typed(old), typed(new))
            return found is QueueingHint.QUEUE
    raise AssertionError(f"no event of {new['kind']}")


def migrated(plugins: str) -> JSON:
    return a_csi_node("n", {"storage.alpha.kubernetes.io/migrated-plugins": plugins})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, storage_class(), True),
        (storage_class(), storage_class(topologies=[{ZONE: "a"}]), True),
        (storage_class(topologies=[{ZONE: "a"}]), storage_class(topologies=[{ZONE: "a"}]), False),
        (storage_class(mode="Immediate"), storage_class(), False),
        (None, claim("c"), True),
        (claim("c"), claim("c", volume="v"), True),
        (None, claim("p-v2"), True),
        (None, claim("p-v1"), False),
        (None, claim("d"), False),
        (None, claim("c", namespace="other"), False),
        (None, migrated(""), True),
        (migrated("a"), migrated("a,b"), True),
        (migrated("a"), migrated("a"), False),
        (driver(), driver(capacity=False), True),
        (driver(), driver(capacity=None), True),
        (driver(capacity=False), driver(), False),
        (driver(), driver(), False),
        (driver("other"), driver("other", capacity=False), False),
        (None, capacity("s"), True),
        (capacity("s", free="1Gi"), capacity("s", free="2Gi"), True),
        (capacity("s", free="2Gi"), capacity("s", free="1Gi"), False),
        (capacity("s", free="1Gi"), capacity("s", free="1024Mi"), False),
        (capacity("s"), capacity("s", free="0"), True),
        (capacity("s", free="1Gi"), capacity("s"), False),
        (capacity("s", free="9Gi", largest="1Gi"), capacity("s", free="1Gi", largest="2Gi"), True),
        (capacity("s", free="1Gi", largest="9Gi"), capacity("s", free="8Gi", largest="9Gi"), False),
    ],
)
def test_what_an_event_is_worth(old: JSON | None, new: JSON, *, expected: bool) -> None:
    assert hint(old, new) is expected


def test_every_volume_and_every_node_may_help() -> None:
    found = {str(one.event.resource): one for one in Binding().binding.plugin.events_to_register()}
    assert found["PersistentVolume"].hint is None
    assert found["PersistentVolume"].event.action == ActionType.ADD | ActionType.UPDATE
    assert found["Node"].hint is None
    assert found["Node"].event.action == ActionType.ADD | ActionType.UPDATE_NODE_LABEL
