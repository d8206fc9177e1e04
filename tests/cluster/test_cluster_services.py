"""Cluster IPs and node ports: who gets which, what may be asked for, and what happens to them afterwards."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from cluster_world import FakeClock, a_store

from kubesched.api.kinds import SERVICES
from kubesched.api.wire import ApiError
from kubesched.cluster.files import read, save
from kubesched.cluster.store import Store

PORTS = [{"port": 80}]


def create(store: Store, name: str, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = store.create(
        SERVICES, "default", {"metadata": {"name": name}, "spec": {"ports": PORTS, **spec}}
    ).data()["spec"]
    return found


def patch(store: Store, name: str, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = store.patch(SERVICES, "default", name, {"spec": spec}).data()["spec"]
    return found


def test_each_service_gets_an_address_of_its_own() -> None:
    store = a_store()
    first, second = create(store, "a"), create(store, "b")
    assert (first["clusterIP"], second["clusterIP"]) == ("10.96.1.1", "10.96.1.2")
    assert first["clusterIPs"] == ["10.96.1.1"]
    assert (first["ipFamilies"], first["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert first["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert create(store, "none", clusterIP="None", ports=[])["clusterIPs"] == ["None"]
    assert "clusterIP" not in create(store, "name", type="ExternalName", externalName="a.b")


def test_an_address_asked_for_is_free_again_when_its_service_is_deleted() -> None:
    store = a_store()
    assert create(store, "dns", clusterIP="10.96.0.10")["clusterIPs"] == ["10.96.0.10"]
    with pytest.raises(
        ApiError, match=r"failed to allocate IP 10\.96\.0\.10: provided IP is already allocated"
    ) as caught:
        create(store, "other", clusterIP="10.96.0.10")
    assert caught.value.code == 422
    store.delete(SERVICES, "default", "dns")
    store.create(
        SERVICES,
        "default",
        {"metadata": {"name": "dry"}, "spec": {"ports": PORTS, "clusterIP": "10.96.0.10"}},
        dry_run=True,
    )
    assert create(store, "other", clusterIP="10.96.0.10")["clusterIP"] == "10.96.0.10"


def test_addresses_and_ports_stay_with_an_object_that_is_put_without_them() -> None:
    store = a_store()
    before = create(store, "a", type="NodePort")
    store.update(SERVICES, "default", "a", {"metadata": {"name": "a"}, "spec": {"ports": PORTS, "type": "NodePort"}})
    assert store.get(SERVICES, "default", "a").data()["spec"] == before
    assert before["ports"][0]["nodePort"] == 30_000


def test_changing_the_type_brings_and_frees_addresses() -> None:
    store = a_store()
    ip = create(store, "a")["clusterIP"]
    with_port = patch(store, "a", type="NodePort")
    assert (with_port["clusterIP"], with_port["ports"][0]["nodePort"]) == (ip, 30_000)
    balanced = patch(store, "a", type="LoadBalancer")
    assert (balanced["ports"][0]["nodePort"], balanced["allocateLoadBalancerNodePorts"]) == (30_000, True)
    plain = patch(store, "a", type="ClusterIP")
    assert (plain["clusterIP"], "nodePort" in plain["ports"][0], "externalTrafficPolicy" in plain) == (ip, False, False)
    assert "clusterIP" not in patch(store, "a", type="ExternalName", externalName="a.b")
    assert create(store, "b", clusterIP=ip)["clusterIP"] == ip
    assert patch(store, "a", type="ClusterIP")["clusterIP"] not in ("", ip)
    assert (
        create(store, "c", type="NodePort", ports=[{"port": 1, "nodePort": 30_000}])["ports"][0]["nodePort"] == 30_000
    )


def test_a_full_range_is_said() -> None:
    store = a_store()
    ports = [{"port": number, "name": f"p{number}"} for number in range(1, 2769)]
    create(store, "all", type="NodePort", ports=ports)
    with pytest.raises(ApiError, match="failed to allocate a nodePort: range is full") as caught:
        create(store, "more", type="NodePort")
    assert caught.value.code == 500


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"clusterIP": "x"}, r"spec.clusterIPs\[0\]: Invalid value: \"x\": must be a valid IP address"),
        ({"clusterIP": "1.2.3.4"}, r"the provided IP \(1.2.3.4\) is not in the valid range"),
        ({"clusterIP": "10.96.0.0"}, "is not in the valid range"),
        ({"clusterIP": "fd00::1"}, "expected an IPv4 value"),
        ({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.2"]}, "first value must match `clusterIP`"),
        ({"clusterIPs": ["10.96.0.1", "fd00::1"]}, "may only hold one value"),
        ({"type": "Foo"}, 'spec.type: Unsupported value: "Foo"'),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        ({"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.96.0.1"}, "spec.clusterIPs: Forbidden"),
        ({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}, "The range of valid ports is 30000-32767"),
        ({"ports": [{"port": 80, "nodePort": 30000}]}, r"spec.ports\[0\].nodePort: Forbidden: may not be used"),
        ({"externalTrafficPolicy": "Local"}, "may only be set for externally-accessible services"),
        ({"ports": None}, "spec.ports: Required value"),
        ({"ports": [{"port": 0}]}, r"spec.ports\[0\].port: Invalid value: 0: must be between 1 and 65535"),
        ({"ports": [{"port": 1}, {"port": 2}]}, r"spec.ports\[0\].name: Required value"),
        ({"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]}, r"spec.ports\[1\].name: Duplicate value"),
        ({"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}, r"spec.ports\[1\]: Duplicate value"),
        ({"ports": [{"port": 1, "protocol": "X"}]}, r"spec.ports\[0\].protocol: Unsupported value"),
    ],
)
def test_what_cannot_be_had_is_refused(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(ApiError, match=why) as caught:
        create(a_store(), "a", **spec)
    assert caught.value.code == 422


def test_an_address_may_not_change() -> None:
    store = a_store()
    create(store, "a")
    with pytest.raises(ApiError, match="may not change once set"):
        patch(store, "a", clusterIP="10.96.0.77")


def test_a_restored_cluster_gives_no_address_twice(tmp_path: Path) -> None:
    store = a_store()
    create(store, "a", type="NodePort")
    imported = {"metadata": {"name": "old"}, "spec": {"ports": PORTS, "clusterIP": "172.20.0.1", "type": "ClusterIP"}}
    store.create(SERVICES, "default", imported, restore=True)
    save(store, tmp_path / "c.jsonl")
    again = Store(FakeClock(), random=Random(7))
    read(tmp_path / "c.jsonl").load_into(again)
    made = create(again, "b", type="NodePort")
    assert (made["clusterIP"], made["ports"][0]["nodePort"]) == ("10.96.1.2", 30_001)
    # An address of another cluster's range is kept.
    assert patch(again, "old", sessionAffinity="ClientIP")["clusterIP"] == "172.20.0.1"
