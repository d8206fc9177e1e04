"""Fields of the wrong type, in every kind: refused with 400 or harmless, for the server and for all who read the store."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from http_full import living
from http_world import APPLY, JSON_PATCH, MERGE, PODS, STRATEGIC, TABLE, Api, a_node, a_pod, a_store, run, served
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.kinds import KINDS, Kind
from kubesched.cluster.files import read, save
from kubesched.cluster.schema import Type, root_type, types

VALUES: list[Any] = [
    None, True, False, 0, -1, 7, 2**70, 1.5, "", "x", "2026-01-01T00:00:00Z", [], [1], ["x"], [None], [[]], {}, {"a": 1},
    {"a": "b"}, {"a": {}}, [{}], [{"name": "x"}], [{"name": 3}], {"name": "x"}, "10", "1Gi",
]  # fmt: skip
TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SETS = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE, "replicas": 1}
JOB_TEMPLATE = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
BASES: dict[str, dict[str, Any]] = {
    "Pod": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    "Node": {"status": {"capacity": {"cpu": "4", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}},
    "Deployment": {"spec": SETS},
    "ReplicaSet": {"spec": SETS},
    "StatefulSet": {"spec": SETS},
    "DaemonSet": {"spec": {"selector": SETS["selector"], "template": TEMPLATE}},
    "ReplicationController": {"spec": {"replicas": 1, "selector": {"a": "b"}, "template": TEMPLATE}},
    "Job": {"spec": {"template": JOB_TEMPLATE}},
    "CronJob": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}},
    "PersistentVolume": {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}}
    },
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "StorageClass": {"provisioner": "example.com/p"},
    "PriorityClass": {"value": 5},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "Event": {"involvedObject": {"kind": "Pod", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00Z"},
    "PodDisruptionBudget": {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
}
#: What the wide world holds and a cluster of one process has to live with; definitions are checked by their own module.
FUZZED = [
    kind for kind in KINDS if root_type(kind.group, kind.kind) is not None and kind.kind != "CustomResourceDefinition"
]


def _fragment(random: Random, type_: Type, value: Any) -> dict[str, Any]:
    """One field, somewhere below a type, with a value that may not be its."""
    names = [name for name in type_.fields if name not in ("apiVersion", "kind", "name", "resourceVersion", "uid")]
    if not names:
        return {}
    weights = [3 if name in ("spec", "status") else 1 for name in names]
    name = random.choices(names, weights)[0]
    field = type_.fields[name]
    inner = types().get(field.type)
    if inner is None or random.random() < 0.25:
        return {name: value}
    below = _fragment(random, inner, value)
    return {name: [below] if field.shape == "list" else {"a": below} if field.shape == "map" else below}


def _merged(base: Any, change: Any) -> Any:
    if isinstance(base, dict) and isinstance(change, dict):
        return {**base, **{key: _merged(base.get(key), value) for key, value in change.items()}}
    if isinstance(base, list) and isinstance(change, list) and base and change:
        return [_merged(base[0], change[0]), *base[1:]]
    return change


async def _ill_treat(api: Api, random: Random, number: int) -> None:
    """Create an object with an odd field, or else a good one that is then changed in four ways; and list it."""
    kind = random.choice(FUZZED)
    root = root_type(kind.group, kind.kind)
    assert root is not None
    name = f"x{number}"
    base = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **BASES.get(kind.kind, {})}
    odd = _fragment(random, root, random.choice(VALUES))
    whole = _merged(base, odd)
    place = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    path = f"{place}/namespaces/default/{kind.plural}" if kind.namespaced else f"{place}/{kind.plural}"
    answers = [await api.post(path, whole)]
    if answers[0].status != 201:
        answers.append(await api.post(path, base))
    one = f"{path}/{name}"
    answers.append(await api.put(one, whole))
    for sub in ("", "/status"):
        answers.append(await api.patch(one + sub, odd, type=random.choice((MERGE, STRATEGIC))))
        operations = [{"op": "add", "path": f"/{key}", "value": value} for key, value in odd.items()]
        answers.append(await api.patch(one + sub, operations, type=JSON_PATCH))
        answers.append(await api("PATCH", one + sub, whole, type=APPLY, fieldManager="me", force="true"))
    answers.append(await api.get(path, accept=TABLE))
    for answer in answers:
        assert answer.status < 500 or b"field not declared in schema" in answer.raw, (kind.kind, odd, answer.raw)


def _check_restore(api: Api) -> None:
    """Check that what the store accepted can be written again, and that every reader can read it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "c.jsonl"
        save(api.store, file)
        again = a_store()
        read(file).load_into(again)
        for kind, table in api.store.tables.items():
            for key, item in table.objects.items():
                _ = item.typed
                if kind == table.kind:
                    assert again.tables[kind].objects[key].raw == item.raw


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_fields_of_the_wrong_type_never_make_the_server_or_a_restore_fail(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        async with served(a_store()) as api:
            for number in range(8):
                await _ill_treat(api, random, number)
            _check_restore(api)

    run(main())


def test_kubelets_and_controllers_live_on_whatever_was_written(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        random = Random(36)
        async with living(startup_delay=0.01) as cluster, served(cluster.embedded.store) as api:
            for number in range(60):
                await _ill_treat(api, random, number)
            assert (
                await api.post(PODS, a_pod("good", tolerations=[{"operator": "Exists"}], priority=None))
            ).status == 201
            for _ in range(3000):
                if (await api.get(f"{PODS}/good")).data["status"]["phase"] == "Running":
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("the good pod does not run")
            _check_restore(api)

    with caplog.at_level(logging.WARNING):
        run(main())
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


def _a(api_version: str, kind: str, **members: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "bad"}, **members}


VOLUME = BASES["PersistentVolume"]["spec"]
CLAIM = BASES["PersistentVolumeClaim"]["spec"]


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/api/v1/nodes", _a("v1", "Node", status={"images": [{"names": [{}]}]}), "`status.images[0].names[0]`"),
        ("/api/v1/nodes", _a("v1", "Node", spec={"unschedulable": "yes"}), "`spec.unschedulable`"),
        (
            "/api/v1/persistentvolumes",
            _a("v1", "PersistentVolume", spec={**VOLUME, "accessModes": 1.5}),
            "`spec.accessModes`",
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            _a("v1", "PersistentVolumeClaim", spec={**CLAIM, "storageClassName": ["x"]}),
            "`spec.storageClassName`",
        ),
        (
            PODS,
            _merged(a_pod("bad"), {"spec": {"volumes": [{"name": "v", "hostPath": 3}]}}),
            "`spec.volumes[0].hostPath`",
        ),
        (
            PODS,
            _merged(
                a_pod("bad"),
                {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": 3}]}},
            ),
            "`metadata.ownerReferences[0].uid`",
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            _a("apps/v1", "Deployment", spec={**SETS, "minReadySeconds": 2**70}),
            "`spec.minReadySeconds`",
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_refused_by_name_however_it_is_written(
    path: str, body: dict[str, Any], where: str
) -> None:
    async def main() -> None:
        async with served() as api:
            answers = [await api.post(path, body), await api.apply(f"{path}/bad", body)]
            head = {key: body[key] for key in ("apiVersion", "kind")}
            good = {**head, **BASES[body["kind"]], "metadata": {"name": "bad"}}
            assert (await api.post(path, good)).status == 201
            sub = "/status" if "status" in body else ""
            answers += [
                await api.put(f"{path}/bad{sub}", body),
                await api.patch(
                    f"{path}/bad{sub}", {key: body[key] for key in body if key not in ("apiVersion", "kind")}
                ),
            ]
            for answer in answers:
                assert (answer.status, answer.reason) == (400, "BadRequest"), answer.raw
                assert f"cannot be handled as a {body['kind']}: " in answer.message
                assert where in answer.message

    run(main())


def test_a_row_that_cannot_be_made_is_shown_as_such() -> None:
    """As a cluster saved by an earlier version may bring it."""

    async def main() -> None:
        async with served() as api:
            await api.post("/api/v1/nodes", a_node())
            table = next(table for kind, table in api.store.tables.items() if kind.plural == "nodes")
            item = table.objects["", "n1"]
            data = item.data()
            data["metadata"]["labels"] = {"node-role.kubernetes.io/a": "", "kubernetes.io/role": ["x"]}
            item.raw = msgspec.json.encode(data)
            answer = await api.get("/api/v1/nodes", accept=TABLE)
            assert answer.status == 200
            assert answer.data["rows"][0]["cells"][:2] == ["n1", "<invalid>"]

    run(main())


def test_every_kind_has_a_form() -> None:
    without: list[Kind] = [kind for kind in KINDS if not kind.custom and root_type(kind.group, kind.kind) is None]
    assert without == []
