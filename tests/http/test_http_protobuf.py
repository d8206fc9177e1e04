"""Request bodies in protobuf, as typed Go clients send them, and the schema table behind it."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest
from http_world import DEPLOYMENTS, PODS, a_pod, run, served
from protobuf_kit import envelope, pb

from kubesched.api.kinds import KINDS
from kubesched.api.wire import ApiError
from kubesched.cluster.http.bodies import PROTOBUF
from kubesched.cluster.http.protobuf import decode_protobuf
from kubesched.cluster.schema import descriptions, root_type, types


def _metadata(name: str) -> bytes:
    # As Go writes it: members without a pointer are there even when empty.
    return pb(1, name) + pb(2, "") + pb(3, "") + pb(5, "") + pb(8, b"") + pb(11, pb(1, "a") + pb(2, "b"))


CONTAINER = (
    pb(1, "c") + pb(2, "nginx") + pb(6, pb(3, 80) + pb(4, "TCP")) + pb(8, pb(2, pb(1, "cpu") + pb(2, pb(1, "100m"))))
)
PROBE = pb(10, pb(1, pb(2, pb(1, "/ok") + pb(2, pb(1, 0) + pb(2, 8080)))) + pb(2, 5))
VOLUME = pb(1, "v") + pb(2, pb(2, b""))
POD_SPEC = pb(1, VOLUME) + pb(2, CONTAINER + PROBE) + pb(4, 0) + pb(22, pb(1, "k") + pb(2, "Exists"))
MESSAGES: list[tuple[str, bytes, dict[str, Any]]] = [
    (
        "a pod with a volume, a probe and requests",
        envelope("v1", "Pod", pb(1, _metadata("p")) + pb(2, POD_SPEC) + pb(3, b"")),
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": "p", "labels": {"a": "b"}},
            "spec": {
                "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [
                    {
                        "name": "c",
                        "image": "nginx",
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "resources": {"requests": {"cpu": "100m"}},
                        "livenessProbe": {"httpGet": {"path": "/ok", "port": 8080}, "initialDelaySeconds": 5},
                    }
                ],
                "terminationGracePeriodSeconds": 0,
                "tolerations": [{"key": "k", "operator": "Exists"}],
            },
            "status": {},
        },
    ),
    (
        "a binding",
        envelope("v1", "Binding", pb(1, pb(1, "p") + pb(5, "uid")) + pb(2, pb(1, "Node") + pb(3, "n1"))),
        {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": "p", "uid": "uid"},
            "target": {"kind": "Node", "name": "n1"},
        },
    ),
    (
        "a secret, whose values are bytes",
        envelope("v1", "Secret", pb(1, pb(1, "s")) + pb(2, pb(1, "k") + pb(2, b"\xff\x00")) + pb(3, "Opaque")),
        {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "data": {"k": "/wA="}, "type": "Opaque"},
    ),
    (
        "options of a deletion, which every group has",
        envelope("apps/v1", "DeleteOptions", pb(1, 0) + pb(2, pb(1, "u")) + pb(4, "Orphan")),
        {
            "kind": "DeleteOptions",
            "apiVersion": "apps/v1",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": "u"},
            "propagationPolicy": "Orphan",
        },
    ),
    (
        "an eviction of an older client",
        envelope("policy/v1beta1", "Eviction", pb(1, pb(1, "p")) + pb(2, pb(1, 0))),
        {
            "kind": "Eviction",
            "apiVersion": "policy/v1beta1",
            "metadata": {"name": "p"},
            "deleteOptions": {"gracePeriodSeconds": 0},
        },
    ),
    (
        "a lease with its times",
        envelope(
            "coordination.k8s.io/v1",
            "Lease",
            pb(1, pb(1, "l")) + pb(2, pb(1, "") + pb(2, 15) + pb(4, pb(1, 1_750_000_000) + pb(2, 5000)) + pb(5, 0)),
        ),
        {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": "l"},
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": 15,
                "renewTime": "2025-06-15T15:06:40.000005Z",
                "leaseTransitions": 0,
            },
        },
    ),
]  # fmt: skip


def _job(spec: bytes) -> bytes:
    return envelope("batch/v1", "Job", pb(1, pb(1, "j")) + pb(2, spec) + pb(3, b""))


def _pod(spec: bytes, status: bytes = b"") -> bytes:
    return envelope("v1", "Pod", pb(1, pb(1, "p")) + pb(2, spec) + pb(3, status))


def _claim(spec: bytes) -> bytes:
    return envelope("v1", "PersistentVolumeClaim", pb(1, pb(1, "c")) + pb(2, spec))


#: What an explicit zero is: something where Go has a pointer, nothing elsewhere.
ZEROS: list[tuple[str, bytes, tuple[str, ...], dict[str, Any]]] = [
    (
        "pointers to 0 and false",
        _job(pb(1, 0) + pb(2, 0) + pb(7, 0) + pb(8, 0) + pb(10, 0) + pb(12, 0) + pb(13, 0) + pb(5, 0)),
        ("spec",),
        {
            "parallelism": 0,
            "completions": 0,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": 0,
            "suspend": False,
            "backoffLimitPerIndex": 0,
            "maxFailedIndexes": 0,
            "manualSelector": False,
        },
    ),
    (
        "numbers and switches that are no pointers",
        envelope("apps/v1", "Deployment", pb(1, pb(1, "d")) + pb(2, pb(5, 0) + pb(7, 0) + pb(9, 0))),
        ("spec",),
        {"progressDeadlineSeconds": 0},
    ),
    ("a pointer to an empty text", _claim(pb(5, "") + pb(3, "")), ("spec",), {"storageClassName": ""}),
    ("pointers to empty messages", _pod(pb(14, b"") + pb(1, pb(1, "v") + pb(2, pb(2, b"")))), ("spec",), {"securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}]}),
    (
        "members that JSON has even when they are zero",
        _pod(b"", pb(8, pb(1, "c") + pb(4, 0) + pb(5, 0) + pb(6, "") + pb(7, "") + pb(8, "") + pb(9, 0))),
        ("status", "containerStatuses", "0"),
        {"name": "c", "ready": False, "restartCount": 0, "image": "", "imageID": "", "started": False},
    ),
    (
        "a priority of zero",
        envelope("scheduling.k8s.io/v1", "PriorityClass", pb(1, pb(1, "p")) + pb(2, 0) + pb(3, 0) + pb(4, "")),
        (),
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": 0},
    ),
    (
        "the fields a manager owns, JSON in bytes",
        envelope("v1", "Pod", pb(1, pb(1, "p") + pb(17, pb(1, "m") + pb(7, pb(1, b'{"f:spec":{"f:x":{}}}'))))),
        ("metadata", "managedFields", "0"),
        {"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}},
    ),
    (
        "an ephemeral container, whose members are in a message of their own",
        _pod(pb(34, pb(1, pb(1, "e") + pb(16, 1)) + pb(2, "c"))),
        ("spec", "ephemeralContainers", "0"),
        {"name": "e", "stdin": True, "targetContainerName": "c"},
    ),
]  # fmt: skip


STRING = pb(5, "string")
#: What may be one of two things in the schema of a custom resource.
SCHEMAS: list[tuple[str, bytes, dict[str, Any]]] = [
    ("a schema of all items", pb(24, pb(1, STRING)), {"items": {"type": "string"}}),
    ("a schema for each item", pb(24, pb(2, STRING) + pb(2, b"")), {"items": [{"type": "string"}, {}]}),
    ("nothing else allowed", pb(30, pb(1, 0)), {"additionalProperties": False}),
    ("anything else allowed", pb(30, pb(1, 1)), {"additionalProperties": True}),
    ("else a schema", pb(30, pb(1, 1) + pb(2, STRING)), {"additionalProperties": {"type": "string"}}),
    ("dependencies by name", pb(32, pb(1, "a") + pb(2, pb(2, "b") + pb(2, "c"))), {"dependencies": {"a": ["b", "c"]}}),
    ("a schema as dependency", pb(32, pb(1, "a") + pb(2, pb(1, STRING))), {"dependencies": {"a": {"type": "string"}}}),
    ("JSON", pb(8, pb(1, '{"a":[1]}')) + pb(20, pb(1, "0")), {"default": {"a": [1]}, "enum": [0]}),
    ("odd names", pb(3, "#/a") + pb(40, 1), {"$ref": "#/a", "x-kubernetes-int-or-string": True}),
    ("bounds", pb(9, 0.0) + pb(11, -0.5) + pb(14, 0), {"maximum": 0.0, "minimum": -0.5, "minLength": 0}),
]


@pytest.mark.parametrize(("raw", "want"), [case[1:] for case in SCHEMAS], ids=[case[0] for case in SCHEMAS])
def test_schemas_of_custom_resources(raw: bytes, want: dict[str, Any]) -> None:
    versions = pb(7, pb(1, "v1") + pb(2, 1) + pb(3, 0) + pb(4, pb(1, raw)))
    found = decode_protobuf(envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", pb(2, versions)))
    version = {"name": "v1", "served": True, "storage": False, "schema": {"openAPIV3Schema": want}}
    assert json.dumps(found["spec"]["versions"], sort_keys=True) == json.dumps([version], sort_keys=True)


@pytest.mark.parametrize(("raw", "path", "want"), [case[1:] for case in ZEROS], ids=[case[0] for case in ZEROS])
def test_zeros_count_where_go_has_a_pointer(raw: bytes, path: tuple[str, ...], want: dict[str, Any]) -> None:
    found: Any = decode_protobuf(raw)
    for part in path:
        found = found[int(part)] if isinstance(found, list) else found[part]
    assert json.dumps(found, sort_keys=True) == json.dumps(want, sort_keys=True)


@pytest.mark.parametrize(("raw", "want"), [case[1:] for case in MESSAGES], ids=[case[0] for case in MESSAGES])
def test_protobuf_reads_as_the_json_it_represents(raw: bytes, want: dict[str, Any]) -> None:
    assert decode_protobuf(raw) == want


def _nested(levels: int) -> bytes:
    """A definition whose schema is the negation of the negation of ..."""
    schema = b""
    for _ in range(levels):
        schema = pb(28, schema)
    return pb(2, pb(7, pb(4, pb(1, schema))))


DEEP = _nested(150)
REFUSED = [
    ("an unknown type", envelope("v1", "Frog", b""), 415),
    ("an unknown field", envelope("v1", "Pod", pb(99, "x")), 415),
    ("cut short", envelope("v1", "Pod", pb(1, _metadata("p")))[:-30], 400),
    ("JSON inside that is none", envelope("v1", "Pod", pb(1, pb(17, pb(7, pb(1, "{"))))), 400),
    ("JSON inside that is nested deeply", envelope("v1", "Pod", pb(1, pb(17, pb(7, pb(1, "[" * 100_000))))), 400),
    ("a time beyond all clocks", envelope("v1", "Pod", pb(1, pb(8, pb(1, 2**62)))), 400),
    ("compressed", envelope("v1", "Pod", b"").removesuffix(pb(3, "") + pb(4, "")) + pb(3, "gzip"), 415),
    ("text that is not UTF-8", envelope("v1", "Pod", pb(1, pb(1, b"\xff"))), 400),
    ("nested deeper than any object", envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", DEEP), 400),
    ("a number where a message belongs", envelope("v1", "Pod", pb(1, 7)), 400),
]


@pytest.mark.parametrize(("raw", "code"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_protobuf_that_is_refused(raw: bytes, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        decode_protobuf(raw)
    assert caught.value.code == code


def test_an_old_client_writes_a_member_that_has_been_removed() -> None:
    for name, held in (("", {}), ("x", {"clusterName": "x"})):
        raw = envelope("v1", "Pod", pb(1, pb(1, "p") + pb(15, name)))
        assert decode_protobuf(raw)["metadata"] == {"name": "p", **held}


INSIDE: list[tuple[bytes, str]] = [
    (envelope("v1", "Pod", pb(99, "x")), "field 99 of Pod"),
    (_pod(pb(2, pb(1, "c") + pb(99, 1))), "field 99 of Container"),
    (_pod(pb(1, pb(1, "v") + pb(2, pb(99, b"")))), "field 99 of VolumeSource"),
    (_pod(pb(2, pb(8, pb(1, pb(1, "cpu") + pb(2, pb(1, "1") + pb(2, 1)))))), "field 2 of Quantity"),
    (envelope("v1", "Frog", b""), "type Frog"),
    (envelope("example.com/v1", "Service", b""), "type Service"),
]


@pytest.mark.parametrize(("raw", "named"), INSIDE, ids=[case[1] for case in INSIDE])
def test_what_is_not_known_is_named(raw: bytes, named: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_protobuf(raw)
    assert caught.value.code == 415
    assert str(caught.value).startswith(f"{named} is not known here in protobuf")


def test_a_number_where_a_message_belongs_is_named() -> None:
    with pytest.raises(ApiError, match="spec has another type"):
        decode_protobuf(envelope("v1", "Pod", pb(2, 7)))


def test_a_pod_of_a_go_client_is_created() -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api("POST", PODS, raw=_pod(pb(2, CONTAINER) + pb(4, 0)), type=PROTOBUF)
            assert answer.status == 201, answer.raw
            spec = answer.data["spec"]
            assert spec["terminationGracePeriodSeconds"] == 0
            assert spec["containers"][0]["resources"] == {"requests": {"cpu": "100m"}}

    run(main())


def test_a_go_scheduler_may_bind_in_protobuf() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            answer = await api("POST", f"{PODS}/p/binding", raw=MESSAGES[1][1].replace(b"uid", b"uid"), type=PROTOBUF)
            assert answer.status == 409  # another UID: the body was understood
            raw = envelope("v1", "Binding", pb(1, pb(1, "p")) + pb(2, pb(1, "Node") + pb(3, "n1")))
            assert (await api("POST", f"{PODS}/p/binding", raw=raw, type=PROTOBUF)).status == 201

    run(main())


def test_a_deployment_in_protobuf() -> None:
    async def main() -> None:
        async with served() as api:
            labels = pb(1, pb(1, "app") + pb(2, "w"))
            template = pb(1, pb(11, pb(1, "app") + pb(2, "w"))) + pb(2, pb(2, CONTAINER))
            strategy = pb(1, "RollingUpdate") + pb(2, pb(1, pb(1, 1) + pb(2, 0) + pb(3, "25%")))
            spec = pb(1, 0) + pb(2, labels) + pb(3, template) + pb(4, strategy)
            raw = envelope("apps/v1", "Deployment", pb(1, pb(1, "w")) + pb(2, spec) + pb(3, pb(1, 0)))
            answer = await api("POST", DEPLOYMENTS, raw=raw, type=PROTOBUF)
            assert answer.status == 201, answer.raw
            assert answer.data["spec"]["replicas"] == 0
            assert answer.data["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == "25%"

    run(main())


# -- the schema table --------------------------------------------------------------------------------------


def test_every_kind_has_a_schema_and_every_reference_resolves() -> None:
    scalars = {"any", "bool", "int", "int32", "intstr", "num", "quantity", "str", "time"}
    for kind in KINDS:
        if kind.custom:
            continue
        root = root_type(kind.group, kind.kind)
        assert root is not None, kind
        assert {"apiVersion", "kind", "metadata"} <= set(root.fields)
    for type_ in types().values():
        for field in type_.fields.values():
            assert field.type in types() or field.type in scalars


def test_descriptions_are_of_fields_that_exist() -> None:
    for name in descriptions():
        owner, _, member = name.partition(".")
        if owner != "*":
            assert owner in types(), name
            assert not member or member in types()[owner].fields, name


def test_the_schema_table_is_that_of_the_published_models() -> None:
    client = pytest.importorskip("kubernetes.client", reason="the official client's models are what is compared with")
    models = {re.sub("^V1(?=[A-Z])", "", name): value for name, value in vars(client).items() if inspect.isclass(value)}
    compared = 0
    for type_ in types().values():
        model = models.get(type_.name)
        if model is not None and hasattr(model, "attribute_map"):
            assert set(model.attribute_map.values()) == set(type_.fields), type_.name
            compared += 1
    assert compared > 400
