"""Request bodies in protobuf, as typed Go clients send them, and the schema table behind it."""

from __future__ import annotations

import inspect
import json
import re
from typing import Any

import pytest
from http_world import DEPLOYMENTS, PODS, a_pod, run, served

from kubesched.api.kinds import KINDS
from kubesched.api.wire import ApiError
from kubesched.cluster.http.protobuf import PROTOBUF, decode_protobuf
from kubesched.cluster.schema import descriptions, root_type, types


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _pb(number: int, value: Any) -> bytes:
    """A field: text, message (bytes) or number."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & (1 << 64) - 1)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _envelope(api_version: str, kind: str, content: bytes) -> bytes:
    head = _pb(1, _pb(1, api_version) + _pb(2, kind))
    return b"k8s\0" + head + _pb(2, content) + _pb(3, "") + _pb(4, "")


def _metadata(name: str) -> bytes:
    # As Go writes it: members without a pointer are there even when empty.
    return _pb(1, name) + _pb(2, "") + _pb(3, "") + _pb(5, "") + _pb(8, b"") + _pb(11, _pb(1, "a") + _pb(2, "b"))


CONTAINER = (
    _pb(1, "c")
    + _pb(2, "nginx")
    + _pb(6, _pb(3, 80) + _pb(4, "TCP"))
    + _pb(8, _pb(2, _pb(1, "cpu") + _pb(2, _pb(1, "100m"))))
)
PROBE = _pb(10, _pb(1, _pb(2, _pb(1, "/ok") + _pb(2, _pb(1, 0) + _pb(2, 8080)))) + _pb(2, 5))
VOLUME = _pb(1, "v") + _pb(2, _pb(2, b""))
POD_SPEC = _pb(1, VOLUME) + _pb(2, CONTAINER + PROBE) + _pb(4, 0) + _pb(22, _pb(1, "k") + _pb(2, "Exists"))
MESSAGES: list[tuple[str, bytes, dict[str, Any]]] = [
    (
        "a pod with a volume, a probe and requests",
        _envelope("v1", "Pod", _pb(1, _metadata("p")) + _pb(2, POD_SPEC) + _pb(3, b"")),
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
        },
    ),
    (
        "a binding",
        _envelope("v1", "Binding", _pb(1, _pb(1, "p") + _pb(5, "uid")) + _pb(2, _pb(1, "Node") + _pb(3, "n1"))),
        {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": "p", "uid": "uid"},
            "target": {"kind": "Node", "name": "n1"},
        },
    ),
    (
        "a secret, whose values are bytes",
        _envelope("v1", "Secret", _pb(1, _pb(1, "s")) + _pb(2, _pb(1, "k") + _pb(2, b"\xff\x00")) + _pb(3, "Opaque")),
        {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "data": {"k": "/wA="}, "type": "Opaque"},
    ),
    (
        "a lease with its times",
        _envelope(
            "coordination.k8s.io/v1",
            "Lease",
            _pb(1, _pb(1, "l")) + _pb(2, _pb(1, "") + _pb(2, 15) + _pb(4, _pb(1, 1_750_000_000) + _pb(2, 5000)) + _pb(5, 0)),
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
    return _envelope("batch/v1", "Job", _pb(1, _pb(1, "j")) + _pb(2, spec) + _pb(3, b""))


def _pod(spec: bytes, status: bytes = b"") -> bytes:
    return _envelope("v1", "Pod", _pb(1, _pb(1, "p")) + _pb(2, spec) + _pb(3, status))


def _claim(spec: bytes) -> bytes:
    return _envelope("v1", "PersistentVolumeClaim", _pb(1, _pb(1, "c")) + _pb(2, spec))


#: What an explicit zero is: something where Go has a pointer, nothing elsewhere.
ZEROS: list[tuple[str, bytes, tuple[str, ...], dict[str, Any]]] = [
    (
        "pointers to 0 and false",
        _job(_pb(1, 0) + _pb(2, 0) + _pb(7, 0) + _pb(8, 0) + _pb(10, 0) + _pb(12, 0) + _pb(13, 0) + _pb(5, 0)),
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
        _envelope("apps/v1", "Deployment", _pb(1, _pb(1, "d")) + _pb(2, _pb(5, 0) + _pb(7, 0) + _pb(9, 0))),
        ("spec",),
        {"progressDeadlineSeconds": 0},
    ),
    ("a pointer to an empty text", _claim(_pb(5, "") + _pb(3, "")), ("spec",), {"storageClassName": ""}),
    ("pointers to empty messages", _pod(_pb(14, b"") + _pb(1, _pb(1, "v") + _pb(2, _pb(2, b"")))), ("spec",), {"securityContext": {}, "volumes": [{"name": "v", "emptyDir": {}}]}),
    (
        "members that JSON has even when they are zero",
        _pod(b"", _pb(8, _pb(1, "c") + _pb(4, 0) + _pb(5, 0) + _pb(6, "") + _pb(7, "") + _pb(8, "") + _pb(9, 0))),
        ("status", "containerStatuses", "0"),
        {"name": "c", "ready": False, "restartCount": 0, "image": "", "imageID": "", "started": False},
    ),
    (
        "the fields a manager owns, JSON in bytes",
        _envelope("v1", "Pod", _pb(1, _pb(1, "p") + _pb(17, _pb(1, "m") + _pb(7, _pb(1, b'{"f:spec":{"f:x":{}}}'))))),
        ("metadata", "managedFields", "0"),
        {"manager": "m", "fieldsV1": {"f:spec": {"f:x": {}}}},
    ),
    (
        "an ephemeral container, whose members are in a message of their own",
        _pod(_pb(34, _pb(1, _pb(1, "e") + _pb(16, 1)) + _pb(2, "c"))),
        ("spec", "ephemeralContainers", "0"),
        {"name": "e", "stdin": True, "targetContainerName": "c"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "path", "want"), [case[1:] for case in ZEROS], ids=[case[0] for case in ZEROS])
def test_zeros_count_where_go_has_a_pointer(raw: bytes, path: tuple[str, ...], want: dict[str, Any]) -> None:
    found: Any = decode_protobuf(raw)
    for part in path:
        found = found[int(part)] if isinstance(found, list) else found[part]
    assert json.dumps(found, sort_keys=True) == json.dumps(want, sort_keys=True)


@pytest.mark.parametrize(("raw", "want"), [case[1:] for case in MESSAGES], ids=[case[0] for case in MESSAGES])
def test_protobuf_reads_as_the_json_it_represents(raw: bytes, want: dict[str, Any]) -> None:
    assert decode_protobuf(raw) == want


REFUSED = [
    ("an unknown type", _envelope("v1", "Frog", b""), 415),
    ("an unknown field", _envelope("v1", "Pod", _pb(99, "x")), 415),
    ("cut short", _envelope("v1", "Pod", _pb(1, _metadata("p")))[:-30], 400),
    ("JSON inside that is none", _envelope("v1", "Pod", _pb(1, _pb(17, _pb(7, _pb(1, "{"))))), 400),
    ("JSON inside that is nested deeply", _envelope("v1", "Pod", _pb(1, _pb(17, _pb(7, _pb(1, "[" * 100_000))))), 400),
    ("a time beyond all clocks", _envelope("v1", "Pod", _pb(1, _pb(8, _pb(1, 2**62)))), 400),
    ("a number where a message belongs", _envelope("v1", "Pod", _pb(1, 7)), 400),
]


@pytest.mark.parametrize(("raw", "code"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_protobuf_that_is_refused(raw: bytes, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        decode_protobuf(raw)
    assert caught.value.code == code


def test_a_go_scheduler_may_bind_in_protobuf() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post(PODS, a_pod())
            answer = await api("POST", f"{PODS}/p/binding", raw=MESSAGES[1][1].replace(b"uid", b"uid"), type=PROTOBUF)
            assert answer.status == 409  # another UID: the body was understood
            raw = _envelope("v1", "Binding", _pb(1, _pb(1, "p")) + _pb(2, _pb(1, "Node") + _pb(3, "n1")))
            assert (await api("POST", f"{PODS}/p/binding", raw=raw, type=PROTOBUF)).status == 201

    run(main())


def test_a_deployment_in_protobuf() -> None:
    async def main() -> None:
        async with served() as api:
            labels = _pb(1, _pb(1, "app") + _pb(2, "w"))
            template = _pb(1, _pb(11, _pb(1, "app") + _pb(2, "w"))) + _pb(2, _pb(2, CONTAINER))
            strategy = _pb(1, "RollingUpdate") + _pb(2, _pb(1, _pb(1, 1) + _pb(2, 0) + _pb(3, "25%")))
            spec = _pb(1, 0) + _pb(2, labels) + _pb(3, template) + _pb(4, strategy)
            raw = _envelope("apps/v1", "Deployment", _pb(1, _pb(1, "w")) + _pb(2, spec) + _pb(3, _pb(1, 0)))
            answer = await api("POST", DEPLOYMENTS, raw=raw, type=PROTOBUF)
            assert answer.status == 201, answer.raw
            assert answer.data["spec"]["replicas"] == 0
            assert answer.data["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == "25%"

    run(main())


# -- the schema table --------------------------------------------------------------------------------------


def test_every_kind_has_a_schema_and_every_reference_resolves() -> None:
    for kind in KINDS:
        root = root_type(kind.group, kind.kind)
        assert root is not None, kind
        assert {"apiVersion", "kind", "metadata"} <= set(root.fields)
    for type_ in types().values():
        for field in type_.fields.values():
            assert field.type in types() or field.type in {"str", "int", "num", "bool", "any", "time"}


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
