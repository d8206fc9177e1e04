"""Saving, restoring and importing clusters."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from random import Random

import pytest
from controllers_world import (
    BUDGETS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    QUOTAS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Data,
    World,
    daemon_set,
    job,
    kind,
    play,
    workload,
)

from kubesched.api.kinds import DEVICE_TAINT_RULES, NAMESPACES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Kind
from kubesched.api.wire import ApiError
from kubesched.cluster.files import ManifestError, SnapshotError, import_dump, read, save
from kubesched.cluster.store import Store


class FixedClock:
    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time


def a_store(seed: int = 1, now: float = 1_750_000_000.0) -> Store:
    return Store(FixedClock(now), random=Random(seed))


def everything(store: Store) -> dict[str, bytes]:
    return {f"{table.kind} {item.key}": item.raw for table in store.tables.values() for item in table.items()}


def busy_world(world: World) -> None:
    world.create(DEPLOYMENTS, workload("web", 5))
    world.create(STATEFUL_SETS, workload("db", 2))
    world.create(DAEMON_SETS, daemon_set("agent"))
    world.create(JOBS, job("sum", "10s", completions=2))
    selector = {"matchLabels": {"app": "web"}}
    world.create(BUDGETS, {"metadata": {"name": "web"}, "spec": {"selector": selector, "minAvailable": 3}})
    world.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "20"}}})


@pytest.mark.parametrize("name", ["cluster.jsonl", "cluster.jsonl.gz"])
def test_a_saved_cluster_comes_back_as_it_was_byte_for_byte(tmp_path: Path, name: str) -> None:
    first, second = tmp_path / name, tmp_path / f"second-{name}"

    async def scenario(world: World) -> None:
        busy_world(world)
        await asyncio.sleep(3.2)
        count = save(world.store, first)
        store = a_store(seed=9, now=world.store.clock.now())
        snapshot = read(first)
        snapshot.load_into(store)
        assert len(snapshot.items) == count
        assert everything(store) == everything(world.store)
        assert store.resource_version == world.store.resource_version
        save(store, second)

    play(scenario)
    assert first.read_bytes() == second.read_bytes()
    assert list(tmp_path.glob(".*")) == []
    assert (first.read_bytes()[:2] == b"\x1f\x8b") is name.endswith(".gz")


def test_life_goes_on_after_a_restore(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    before: dict[str, str] = {}

    async def save_it(world: World) -> None:
        busy_world(world)
        await world.settle()
        before.update({pod.metadata.uid: pod.spec.node_name for pod in world.pods()})
        save(world.store, path)

    async def go_on(world: World) -> None:
        await world.settle()
        assert {pod.metadata.uid: pod.spec.node_name for pod in world.pods()} == before, "nothing had to be done"
        world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 9}})
        await world.settle()
        assert len(world.pods(app="web")) == 9
        assert len({pod.metadata.uid for pod in world.pods()}) == len(before) + 4, "no UID is given out twice"
        world.store.delete(DEPLOYMENTS, "default", "web")
        await world.settle()
        assert world.pods(app="web") == []
        assert world.names(REPLICA_SETS) == []

    play(save_it)

    play(go_on, nodes=0, restore_from=path)


def test_a_restored_store_knows_deletions_that_had_begun(tmp_path: Path) -> None:
    store = a_store()
    store.create(NAMESPACES, "", {"metadata": {"name": "old"}})
    pod: Data = {
        "metadata": {"name": "p", "finalizers": ["a/b"]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    store.create(PODS, "old", pod)
    store.delete(NAMESPACES, "", "old")
    path = tmp_path / "c.jsonl"
    save(store, path)
    other = a_store()
    read(path).load_into(other)
    with pytest.raises(ApiError, match="because it is being terminated"):
        other.create(PODS, "old", {**pod, "metadata": {"name": "q"}})
    change = {"metadata": {"finalizers": None}}
    other.patch(PODS, "old", "p", change, patch_type="application/merge-patch+json")
    assert ("", "old") not in other.table(NAMESPACES).objects


def test_older_versions_are_gone_and_quotas_count_on(tmp_path: Path) -> None:
    store = a_store()
    store.create(QUOTAS, "default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    pod: Data = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    store.create(PODS, "default", pod)
    path = tmp_path / "c.jsonl"
    save(store, path)
    other = a_store()
    read(path).load_into(other)
    with pytest.raises(ApiError) as caught:
        other.watch(PODS, resource_version="1")
    assert caught.value.code == 410
    with pytest.raises(ApiError, match="exceeded quota"):
        other.create(PODS, "default", {**pod, "metadata": {"name": "p2"}})
    watch = other.watch(PODS, resource_version=str(other.resource_version))
    with pytest.raises(RuntimeError, match="without watches"):
        read(path).load_into(other)
    watch.close()


def test_quotas_that_count_each_other_count_as_much_after_a_restore() -> None:
    store, other = a_store(1), a_store(2)
    for name in ("a", "b", "c"):
        store.create(QUOTAS, "default", {"metadata": {"name": name}, "spec": {"hard": {"resourcequotas": "4"}}})
    tables = [table for kind, table in store.tables.items() if kind == table.kind]
    other.load([item for table in tables for item in table.items()], store.resource_version)
    other.create(QUOTAS, "default", {"metadata": {"name": "d"}, "spec": {"hard": {"pods": "1"}}})
    for quota in other.list(QUOTAS).items[:3]:
        assert quota.data()["status"]["used"] == {"resourcequotas": "4"}
    with pytest.raises(ApiError, match="exceeded quota: a"):
        other.create(QUOTAS, "default", {"metadata": {"name": "e"}})


def test_custom_kinds_come_along(tmp_path: Path) -> None:
    custom = Kind("example.com", "v1", "Widget", "widgets", True, "widget", ("wd",), custom=True)
    store = a_store()
    store.register(custom)
    store.status_kinds.add(custom.group_resource)
    store.create(custom, "default", {"metadata": {"name": "w"}, "spec": {"size": 3}})
    path = tmp_path / "c.jsonl"
    save(store, path)
    other = a_store()
    read(path).load_into(other)
    assert other.get(custom, "default", "w").data()["spec"] == {"size": 3}
    assert custom.group_resource in other.status_kinds


@pytest.mark.parametrize(
    ("case", "text", "want"),
    [
        ("no header", b"hello\n", "is not a saved cluster: the first line is no header"),
        ("another format", b'{"format":"x","version":1,"resourceVersion":1,"objects":0}\n', "format 'x'"),
        (
            "a later version",
            b'{"format":"kubesched.io/cluster","version":9,"resourceVersion":1,"objects":0}\n',
            "this program reads up to 1",
        ),
        (
            "cut short",
            b'{"format":"kubesched.io/cluster","version":1,"resourceVersion":1,"objects":2}\n',
            "is cut short: 2 objects were saved, 0 are there",
        ),
        (
            "damaged",
            b'{"format":"kubesched.io/cluster","version":1,"resourceVersion":1,"objects":1}\n{"api\n',
            "line 2 is damaged",
        ),
        (
            "an unknown kind",
            b'{"format":"kubesched.io/cluster","version":1,"resourceVersion":1,"objects":1}\n{"apiVersion":"v9","kind":"X"}\n',
            "line 2: v9 X is not known here",
        ),
    ],
)
def test_files_that_cannot_be_restored_are_refused_and_leave_the_store_alone(
    tmp_path: Path, case: str, text: bytes, want: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(text)
    store = a_store()
    before = everything(store)
    with pytest.raises(SnapshotError) as caught:
        read(path).load_into(store)
    assert want in str(caught.value), case
    assert everything(store) == before
    packed = tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(text)[:-9])
    with pytest.raises(SnapshotError):
        read(packed).load_into(store)


# -- import ------------------------------------------------------------------------------------------------


def dump(*items: Data) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


POD: Data = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "shop",
        "uid": "uid-p",
        "resourceVersion": "999",
        "generation": 4,
        "managedFields": [{"manager": "kubectl"}],
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{password}",
            "a": "hunter2",
            "kubesched.io/duration": "1h",
        },
        "finalizers": ["example.com/forever"],
    },
    "spec": {
        "nodeName": "n1",
        "priority": 7,
        "containers": [
            {
                "name": "c",
                "image": "i",
                "env": [{"name": "PASSWORD", "value": "hunter2"}],
                "args": ["--token=hunter2"],
                "command": ["sh", "-c", "hunter2"],
                "livenessProbe": {"exec": {"command": ["hunter2"]}},
                "resources": {"requests": {"cpu": "1"}},
            }
        ],
    },
    "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
}
NODE: Data = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "uid": "uid-n"},
    "status": {"allocatable": {"cpu": "4", "pods": "110"}},
}
SECRET: Data = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "namespace": "shop"},
    "data": {"x": "aHVudGVyMg=="},
}
QUOTA: Data = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q", "namespace": "shop"},
    "spec": {"hard": {"pods": "0"}},
}


def test_a_dump_brings_what_scheduling_needs_and_no_secrets(tmp_path: Path) -> None:
    going = {**POD, "metadata": {"name": "going", "namespace": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    (tmp_path / "a.json").write_text(dump(POD, SECRET, QUOTA, going))
    (tmp_path / "b.yaml").write_text(dump(NODE, POD))
    found = import_dump([tmp_path])
    assert [manifest.kind.plural for manifest in found.objects] == ["namespaces", "nodes", "pods"]
    assert found.left_out == {"secrets": 1, "resourcequotas": 1, "pods being deleted": 1}
    assert "hunter2" not in json.dumps([manifest.data for manifest in found.objects])
    assert "password" not in json.dumps([manifest.data for manifest in found.objects])
    store = a_store()
    assert found.store_in(store) == []
    pod = store.get(PODS, "shop", "p").data()
    assert (pod["metadata"]["uid"], pod["spec"]["nodeName"], pod["spec"]["priority"]) == ("uid-p", "n1", 7)
    assert pod["status"]["phase"] == "Running"
    assert pod["metadata"]["annotations"] == {"kubesched.io/duration": "1h"}
    assert "finalizers" not in pod["metadata"]
    assert store.get(NODES, "", "n1").uid == "uid-n"


def test_driver_parameters_and_foreign_annotations_are_left_out(tmp_path: Path) -> None:
    foreign = {"a": "hunter2", "example.io/b": "hunter2", "evilkubernetes.io/c": "hunter2"}
    notes = {**foreign, "scheduler.alpha.kubernetes.io/kept": "yes"}
    csi = {"driver": "d", "volumeAttributes": {"password": "hunter2"}, "nodePublishSecretRef": {"name": "named"}}
    inline = {"name": "v", "csi": csi}
    ephemeral = {"name": "e", "ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": notes}, "spec": {}}}}
    template = {"metadata": {"annotations": notes}, "spec": {"containers": [], "volumes": [inline, ephemeral]}}
    claim = {"metadata": {"name": "data", "annotations": notes}, "spec": {}}
    metadata = {"name": "x", "annotations": notes}
    objects: list[Data] = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": {"csi": csi}},
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": metadata,
            "provisioner": "d",
            "parameters": {"key": "hunter2"},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {**metadata, "namespace": "shop"},
            "spec": {"template": template, "volumeClaimTemplates": [claim]},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {**metadata, "namespace": "shop"},
            "spec": {"jobTemplate": {"metadata": {"annotations": notes}, "spec": {"template": template}}},
        },
    ]
    (tmp_path / "a.json").write_text(dump(*objects))
    text = json.dumps([manifest.data for manifest in import_dump([tmp_path]).objects])
    assert "hunter2" not in text
    # Four objects, two pod templates, two claims of theirs, one claim template, one job template.
    assert (text.count('"scheduler.alpha.kubernetes.io/kept"'), text.count('"named"')) == (10, 3)


def test_claims_and_devices_come_along_without_what_their_drivers_are_told(tmp_path: Path) -> None:
    opaque = {"opaque": {"driver": "d", "parameters": {"token": "hunter2"}}}
    result = {"request": "r", "driver": "d", "pool": "n1", "device": "a"}
    status = {
        "allocation": {"devices": {"results": [result], "config": [{"source": "FromClass", **opaque}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
        "devices": [{"driver": "d", "pool": "n1", "device": "a", "data": {"key": "hunter2"}}],
    }
    finalizers = ["resource.kubernetes.io/delete-protection", "example.com/forever"]
    metadata = {"name": "c", "namespace": "shop", "uid": "uid-c", "finalizers": finalizers, "labels": {"data": "kept"}}
    request = {"name": "r", "deviceClassName": "gpu"}
    pool = {"name": "n1", "generation": 4, "resourceSliceCount": 1}
    device = {"name": "a", "basic": {"attributes": {"model": {"string": "m"}}}}
    objects: list[Data] = [
        {
            "apiVersion": "resource.k8s.io/v1beta1",
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": {"devices": {"requests": [request], "config": [opaque]}},
            "status": status,
        },
        {
            "apiVersion": "resource.k8s.io/v1beta2",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"config": [opaque]},
        },
        {
            "apiVersion": "resource.k8s.io/v1beta1",
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {"driver": "d", "nodeName": "n1", "pool": pool, "devices": [device]},
        },
        {
            "apiVersion": "resource.k8s.io/v1alpha3",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "r"},
            "spec": {"taint": {"key": "k", "effect": "NoSchedule"}},
        },
    ]
    (tmp_path / "a.json").write_text(dump(*objects))
    found = import_dump([tmp_path])
    assert "hunter2" not in json.dumps([manifest.data for manifest in found.objects])
    store = a_store()
    assert found.store_in(store) == []
    claim = store.get(RESOURCE_CLAIMS, "shop", "c").data()
    assert claim["metadata"]["finalizers"] == finalizers[:1]
    assert claim["metadata"]["labels"] == {"data": "kept"}
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
    assert claim["status"]["allocation"]["devices"]["results"] == [result]
    assert claim["status"]["reservedFor"] == status["reservedFor"]
    assert store.get(RESOURCE_SLICES, "", "s").data()["spec"]["devices"][0]["name"] == "a"
    assert store.get(DEVICE_TAINT_RULES, "", "r").data()["spec"]["taint"]["key"] == "k"


def test_an_exported_cluster_is_imported_without_a_single_pod_moving(tmp_path: Path) -> None:
    path = tmp_path / "all.json.gz"
    before: dict[str, str] = {}

    async def export(world: World) -> None:
        busy_world(world)
        await world.settle()
        before.update({pod.metadata.uid: pod.spec.node_name for pod in world.pods()})
        tables = [table for one, table in world.store.tables.items() if one == table.kind]
        items = [item.data() for table in tables for item in table.items()]
        path.write_bytes(gzip.compress(dump(*items).encode()))

    async def go_on(world: World) -> None:
        assert import_dump([path]).store_in(world.store) == []
        await world.settle()
        assert {pod.metadata.uid: pod.spec.node_name for pod in world.pods()} == before
        assert world.get(STATEFUL_SETS, "db")["status"]["readyReplicas"] == 2
        assert not world.exists(kind("resourcequotas"), "q")

    play(export)
    play(go_on, nodes=0)


def test_an_import_without_its_revisions_moves_no_stateful_pod_either(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    before: set[str] = set()

    async def export(world: World) -> None:
        world.create(STATEFUL_SETS, workload("db", 3))
        await world.settle()
        before.update(pod.metadata.uid for pod in world.pods())
        wanted = (NODES, STATEFUL_SETS, PODS)
        path.write_text(dump(*(item.data() for kind_ in wanted for item in world.store.table(kind_).items())))

    async def go_on(world: World) -> None:
        assert import_dump([path]).store_in(world.store) == []
        await world.settle()
        assert {pod.metadata.uid for pod in world.pods()} == before

    play(export)
    play(go_on, nodes=0)


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [("a.json", "{", "not valid JSON"), ("a.yaml", "kind: Pod", "apiVersion is missing")],
)
def test_dumps_that_cannot_be_read_are_explained(tmp_path: Path, name: str, text: str, want: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ManifestError, match=want):
        import_dump([path])
    with pytest.raises(ManifestError, match="there is no such file"):
        import_dump([tmp_path / "none.yaml"])
