"""Requests that ask for much work: each is answered or refused before it has held the event loop for long.

Bounds are on the time of the CPU, and many times what is needed: work that grows by the square of a body takes minutes.
"""

from __future__ import annotations

import asyncio
import time
from itertools import islice
from typing import Any

import msgspec
import pytest
from cpu_turns import timed_turns
from http_world import JSON_PATCH, MERGE, PODS, STRATEGIC, Api, a_definition, a_pod, a_store, run, served

from kubesched.api.jsontext import parse_json
from kubesched.api.kinds import PODS as PODS_KIND
from kubesched.api.selectors import MOST_REQUIREMENTS, SelectorError, parse_selector_text
from kubesched.api.wire import ApiError
from kubesched.api.yamltext import parsing_single
from kubesched.cluster.admission.validation import MOST_CAUSES
from kubesched.cluster.http.bodies import MAX_VALUES
from kubesched.cluster.schema import apply_strategic_patch
from kubesched.cluster.store.records import MOST_BYTES

#: Seconds of the CPU for one turn of the event loop: the worst below takes a quarter of it on a busy machine.
LONGEST = 2.0
MAPS = "/api/v1/namespaces/default/configmaps"
EXPRESSION = {"cel": {"expression": "device.driver == 'a'"}}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NETWORK = "/apis/networking.k8s.io/v1/namespaces/default"


def definition(versions: int) -> dict[str, Any]:
    given = {"served": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    listed = [{**given, "name": f"v{number}", "storage": number == 0} for number in range(versions)]
    names = {"plural": "frogs", "kind": "Frog"}
    spec = {"group": "a.b", "scope": "Cluster", "names": names, "versions": listed}
    return {"metadata": {"name": "frogs.a.b"}, "spec": spec}


def policy(exceptions: int) -> dict[str, Any]:
    block = {"cidr": "10.0.0.0/8", "except": [f"10.{one >> 8}.{one & 255}.0/24" for one in range(exceptions)]}
    return {"metadata": {"name": "a"}, "spec": {"podSelector": {}, "ingress": [{"from": [{"ipBlock": block}]}]}}


def ingress(paths: int) -> dict[str, Any]:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    listed = [{"path": f"/{number}", "pathType": "Prefix", "backend": backend} for number in range(paths)]
    return {"metadata": {"name": "a"}, "spec": {"rules": [{"http": {"paths": listed}}]}}


def containers(count: int) -> list[dict[str, Any]]:
    return [{"name": f"c{index}", "image": "x"} for index in range(count)]


def yaml_list(unit: bytes) -> bytes:
    return b"a:\n" + unit * ((3 << 20) // len(unit) - 2)


POSTED: list[tuple[str, str, bytes, str, int]] = [
    ("a million empty lists", PODS, b'{"a":[' + b",".join([b"[]"] * 1_000_000) + b"]}", "application/json", 413),
    ("a million numbers", PODS, b'{"a":[' + b",".join([b"1"] * 1_500_000) + b"]}", "application/json", 413),
    ("300,000 invalid containers", PODS, msgspec.json.encode(a_pod(containers=[{}] * 300_000)), "application/json", 413),
    ("invalid containers", PODS, msgspec.json.encode(a_pod(containers=[{}] * (MAX_VALUES - 50))), "application/json", 422),
    ("valid containers", PODS, msgspec.json.encode(a_pod(containers=containers(1_000))), "application/json", 201),
    ("YAML of 700,000 lines", PODS, yaml_list(b"- a\n"), "application/yaml", 413),
    ("YAML of brackets", PODS, b"a: [" + b"[]," * 900_000 + b"]", "application/yaml", 413),
    ("a long name above many", PODS, msgspec.json.encode({"x" * 1_000_000: {str(one): {} for one in range(20_000)}}), "application/json", 413),
    ("versions of a definition", DEFINITIONS, msgspec.json.encode(definition(2_000)), "application/json", 201),
    ("exceptions of a block", f"{NETWORK}/networkpolicies", msgspec.json.encode(policy(20_000)), "application/json", 201),
    ("paths of an ingress", f"{NETWORK}/ingresses", msgspec.json.encode(ingress(5_000)), "application/json", 201),
    ("many expressions", "/apis/resource.k8s.io/v1/deviceclasses", msgspec.json.encode({"metadata": {"name": "a"}, "spec": {"selectors": [EXPRESSION] * 10_000}}), "application/json", 422),
]  # fmt: skip


@pytest.mark.parametrize(("path", "raw", "type_", "code"), [c[1:] for c in POSTED], ids=[c[0] for c in POSTED])
def test_a_body_is_refused_before_it_takes_long(path: str, raw: bytes, type_: str, code: int) -> None:
    async def main() -> None:
        async with served() as api:
            with timed_turns() as turns:
                answer = await api("POST", path, raw=raw, type=type_)
            assert answer.status == code, answer.raw[:300]
            assert len(answer.raw) < 2 << 20
            assert turns.longest < LONGEST

    run(main())


def test_long_yaml_lets_others_have_their_turn() -> None:
    async def main() -> None:
        async with served() as api:
            body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n"
            body += b"".join(b"  k%d: v\n" % index for index in range(20_000))
            posted = asyncio.create_task(api("POST", MAPS, raw=body, type="application/yaml"))
            others = 0
            while not posted.done():
                assert (await api.get("/readyz")).status == 200
                others += 1
            assert (await posted).status == 201
            assert others > 5  # one alone would mean that the body was read in one go

    run(main())


def test_yaml_is_counted_as_it_is_read() -> None:
    """Not afterwards: an unread rest costs nothing."""
    steps = parsing_single("- a\n" * 500_000, most_nodes=5_000)
    with pytest.raises(ValueError, match="line 5000: more than 5000 values"):
        assert list(islice(steps, 10))


async def _with_pod(api: Api, **spec: Any) -> None:
    gate = [{"name": "a"}]
    assert (await api.post(PODS, a_pod("t", schedulingGates=gate, **spec))).status == 201


PATCHES: list[tuple[str, Any, str]] = [
    ("deletes", {"spec": {"containers": [{"$patch": "delete", "name": f"c{one}"} for one in range(10_000)]}}, STRATEGIC),
    ("an order", {"spec": {"$setElementOrder/containers": [{"name": f"c{one}"} for one in range(20_000)]}}, STRATEGIC),
    ("names that stay", {"metadata": {"annotations": {"$retainKeys": [f"q{one}" for one in range(40_000)]}}}, STRATEGIC),
    ("tolerations", {"spec": {"tolerations": [{"key": f"x{one}", "operator": "Exists"} for one in range(3_000)]}}, STRATEGIC),
    ("moves", [{"op": "move", "from": "/spec/containers/0", "path": "/spec/containers/-"}] * 9_000, JSON_PATCH),
    ("additions", [{"op": "add", "path": f"/metadata/annotations/k{one}", "value": "x"} for one in range(9_000)], JSON_PATCH),
    ("replacements", [{"op": "replace", "path": "/spec", "value": {}}] * 9_000, JSON_PATCH),
    ("labels", {"metadata": {"labels": {f"k{one}": "v" for one in range(45_000)}}}, MERGE),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "type_"), [c[1:] for c in PATCHES], ids=[c[0] for c in PATCHES])
def test_a_patch_takes_time_by_its_length(patch: Any, type_: str) -> None:
    async def main() -> None:
        async with served() as api:
            tolerations = [{"key": f"k{index}", "operator": "Exists"} for index in range(1_000)]
            await _with_pod(api, containers=containers(1_000), annotations={"a": "b"}, tolerations=tolerations)
            with timed_turns() as turns:
                answer = await api.patch(f"{PODS}/t", patch, type=type_)
            assert answer.status in (200, 413, 422), answer.raw[:300]
            assert turns.longest < LONGEST

    run(main())


def test_a_list_of_keyed_items_is_indexed_once() -> None:
    """Comparisons are counted by the time that 40,000 deletions take: one pass for each would be 800 million."""
    items: list[dict[str, Any]] = [{"name": f"c{index}"} for index in range(40_000)]
    deletions = [{"$patch": "delete", "name": f"c{index}"} for index in range(0, 40_000, 2)]
    again = [{"name": "c0", "image": "new"}, {"$patch": "delete", "name": "c1"}, {"name": "c1", "image": "new"}]
    begun = time.thread_time()
    made = apply_strategic_patch({"spec": {"containers": items}}, {"spec": {"containers": [*deletions, *again]}})
    assert time.thread_time() - begun < LONGEST
    found = made["spec"]["containers"]
    assert len(found) == 20_001
    assert found[:2] == [{"name": "c0", "image": "new"}, {"name": "c1", "image": "new"}]
    assert found[2:4] == [{"name": "c3"}, {"name": "c5"}]


def test_ownership_takes_time_by_the_number_of_fields() -> None:
    async def main() -> None:
        async with served() as api:

            def body(count: int, address: str) -> dict[str, Any]:
                ports = [{"containerPort": one + 1, "hostIP": address} for one in range(count)]
                return {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": "a"},
                    "spec": {
                        "replicas": 0,
                        "selector": {"matchLabels": {"a": "b"}},
                        "template": {
                            "metadata": {"labels": {"a": "b"}},
                            "spec": {"containers": [{"name": "c", "image": "x", "ports": ports}]},
                        },
                    },
                }

            path = "/apis/apps/v1/namespaces/default/deployments/a"
            with timed_turns() as turns:
                assert (await api.apply(path, body(3_000, "10.0.0.1"))).status == 201
                assert (await api.apply(path, body(3_000, "10.0.0.2"), manager="you", force="true")).status == 200
                assert (await api.apply(path, body(1, "10.0.0.1"), force="true")).status == 200
                answer = await api.apply(path, body(1, "10.0.0.2"), manager="you", force="true")
            assert len(answer.data["spec"]["template"]["spec"]["containers"][0]["ports"]) == 1
            assert turns.longest < LONGEST

    run(main())


# -- sizes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (MAPS, {"data": {"a": "x" * (1 << 19), "b": "y" * (1 << 19) + "z"}}, "[]"),
        (MAPS, {"data": {"a": "é" * (1 << 19) + "z"}}, "[]"),
        (MAPS, {"binaryData": {"a": "YWFh" * 349_526}}, "[]"),
        ("/api/v1/namespaces/default/secrets", {"data": {"a": "YWFh" * 349_526}}, "data"),
        ("/api/v1/namespaces/default/secrets", {"stringData": {"a": "a" * ((1 << 20) + 1)}}, "data"),
    ],
)
def test_data_is_limited_to_a_mebibyte(path: str, body: dict[str, Any], field: str) -> None:
    async def main() -> None:
        async with served() as api:
            answer = await api.post(path, {"metadata": {"name": "a"}, **body})
            assert answer.status == 422, answer.raw[:200]
            assert f"{field}: Too long: may not be more than 1048576 bytes" in answer.message
            small = {"metadata": {"name": "a"}, "data": {"a": "YWFh"}}
            assert (await api.post(path, small)).status == 201
            assert (await api.put(f"{path}/a", {"metadata": {"name": "a"}, **body})).status == 422

    run(main())


def test_just_a_mebibyte_is_stored() -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.post(MAPS, {"metadata": {"name": "a"}, "data": {"a": "x" * (1 << 20)}})).status == 201

    run(main())


def test_annotations_are_limited_together() -> None:
    async def main() -> None:
        async with served() as api:
            half = "x" * (128 * 1024 - 1)
            good = {"metadata": {"name": "a", "annotations": {"a": half, "b": half}}}
            assert (await api.post(MAPS, good)).status == 201
            answer = await api.patch(f"{MAPS}/a", {"metadata": {"annotations": {"c": ""}}})
            assert answer.status == 422
            assert "metadata.annotations: Too long: may not be more than 262144 bytes" in answer.message

    run(main())


def test_many_small_patches_do_not_make_an_object_of_any_size() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
            path = "/apis/example.com/v1/namespaces/default/widgets"
            body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "status": {}}
            assert (await api.post(path, body)).status == 201
            patches = [{"status": {f"k{number}": "x" * 400_000}} for number in range(6)]
            codes = [(await api.patch(f"{path}/w", patch)).status for patch in patches]
            assert codes == [200, 200, 200, 413, 413, 413]
            assert len((await api.get(f"{path}/w")).raw) < MOST_BYTES
            assert (await api.patch(f"{path}/w", {"status": {"k0": None}})).status == 200

    run(main())


def test_the_server_writes_what_a_large_object_leads_to() -> None:
    """A quota's own status may be as long as its specification."""

    async def main() -> None:
        async with served() as api:
            hard = {f"example.com/{'x' * 40}{number}": "1" for number in range(17_000)}
            path = "/api/v1/namespaces/default/resourcequotas"
            assert (await api.post(path, {"metadata": {"name": "a"}, "spec": {"hard": hard}})).status == 201
            await asyncio.sleep(0.1)
            found = (await api.get(f"{path}/a")).data
            assert found["status"]["hard"] == found["spec"]["hard"]

    run(main())


# -- errors and queries -----------------------------------------------------------------------------------------


def test_checks_end_when_enough_is_wrong() -> None:
    store = a_store()
    with pytest.raises(ApiError) as refusal:
        store.create(PODS_KIND, "default", a_pod(containers=[{}] * 20_000))
    assert refusal.value.code == 422
    assert len(refusal.value.details["causes"]) == MOST_CAUSES + 1
    assert f"there may be more: after {MOST_CAUSES} errors the checks end" in refusal.value.message


@pytest.mark.parametrize("text", ["a" + " " * 30_000 + "!", "a" + " " * 30_000 + "in x", "a =" + " " * 30_000 + "("])
def test_blanks_in_a_selector_are_read_once(text: str) -> None:
    begun = time.thread_time()
    with pytest.raises(SelectorError):
        parse_selector_text(text)
    assert time.thread_time() - begun < LONGEST


def test_a_selector_has_a_number_of_requirements() -> None:
    async def main() -> None:
        async with served() as api:
            most = ",".join(["a!=b"] * MOST_REQUIREMENTS)
            assert (await api.get(PODS, labelSelector=most)).status == 200
            answer = await api.get(PODS, labelSelector=f"{most},a!=b")
            assert answer.status == 400
            assert f"more than {MOST_REQUIREMENTS} requirements; write key in (a,b)" in answer.message
            terms = ",".join(["metadata.name!=b"] * (MOST_REQUIREMENTS + 1))
            assert f"more than {MOST_REQUIREMENTS} terms" in (await api.get(PODS, fieldSelector=terms)).message

    run(main())


# -- what fuzzing found ----------------------------------------------------------------------------------------


def test_a_custom_resource_may_have_a_field_without_a_name() -> None:
    async def main() -> None:
        async with served() as api:
            await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", a_definition())
            path = "/apis/example.com/v1/namespaces/default/widgets"
            body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"": 1}}
            answer = await api.post(path, body)
            assert answer.status == 201
            assert answer.warnings == ['299 - "unknown field \\"spec.\\""']

    run(main())


def test_nulls_that_a_patch_leaves_anywhere_are_absent() -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.post(MAPS, {"metadata": {"name": "a"}, "data": {"a": "b"}})).status == 201
            change: list[dict[str, Any]] = [{"op": "replace", "path": "/data/a", "value": None}]
            change += [{"op": "add", "path": "/binaryData", "value": {"b": None}}]
            answer = await api.patch(f"{MAPS}/a", change, type=JSON_PATCH)
            assert answer.status == 200
            assert not answer.data.get("data")

    run(main())


@pytest.mark.parametrize("grace", [2**31, 2**63 - 1])
def test_a_grace_period_of_any_length_ends_before_time_does(grace: int) -> None:
    async def main() -> None:
        async with served() as api:
            await api.post("/api/v1/nodes", {"metadata": {"name": "n"}})
            await api.post(PODS, a_pod("a", nodeName="n"))
            answer = await api("DELETE", f"{PODS}/a", {"gracePeriodSeconds": grace})
            assert answer.status == 200
            assert answer.data["metadata"]["deletionGracePeriodSeconds"] == 2**31 - 1
            hurried = await api("DELETE", f"{PODS}/a", {"gracePeriodSeconds": 5})
            assert hurried.data["metadata"]["deletionTimestamp"] == "2025-06-15T15:06:45Z"

    run(main())


def test_brackets_in_texts_are_no_lists() -> None:
    raw = msgspec.json.encode({"a": "[{" * 100_000 + '\\"', "b": ["[" * 10]})
    assert parse_json(raw, most_values=10).data["b"] == ["[[[[[[[[[["]
