"""resource.k8s.io over HTTP: every served version, defaults, checks, and what a claim's status allows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_world import MERGE, STRATEGIC, a_store, served

GROUP = "/apis/resource.k8s.io"
CLAIMS = "namespaces/default/resourceclaims"

FLAT = {"name": "gpu", "deviceClassName": "gpu", "selectors": [{"cel": {"expression": "true"}}], "count": 2}
EXACT = {
    "name": "gpu",
    "exactly": {
        "deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": "true"}}],
        "count": 2,
        "allocationMode": "ExactCount",
    },
}
RESULT = {"request": "gpu", "driver": "d.example.com", "pool": "n1", "device": "gpu-0"}
ALLOCATION = {"devices": {"results": [RESULT]}}


def _claim(request: dict[str, Any], version: str = "v1", name: str = "c") -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def _slice(device: dict[str, Any], version: str = "v1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n1",
            "devices": [device],
            **spec,
        },
    }


def test_one_claim_is_read_and_written_in_every_version() -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            made = await api.post(f"{GROUP}/v1beta1/{CLAIMS}", _claim(FLAT, "v1beta1"))
            assert made.status == 201
            assert made.warnings == []
            assert made.data["apiVersion"] == "resource.k8s.io/v1beta1"
            assert made.data["spec"]["devices"]["requests"] == [{**FLAT, "allocationMode": "ExactCount"}]
            for version in ("v1", "v1beta2"):
                shown = (await api.get(f"{GROUP}/{version}/{CLAIMS}/c")).data
                assert shown["apiVersion"] == f"resource.k8s.io/{version}"
                assert shown["spec"]["devices"]["requests"] == [EXACT]
            listed = (await api.get(f"{GROUP}/v1beta1/{CLAIMS}")).data
            assert listed["items"][0]["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu"
            async with api.watch(f"{GROUP}/v1beta1/{CLAIMS}") as events:
                event = await events.next()
            assert event["object"]["spec"]["devices"]["requests"][0]["count"] == 2

    asyncio.run(main())


def test_an_older_version_may_patch_and_apply() -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            path = f"{GROUP}/v1beta1/{CLAIMS}/c"
            applied = await api.apply(path, _claim(FLAT, "v1beta1"))
            assert applied.status == 201
            again = await api.apply(path, _claim(FLAT, "v1beta1"))
            assert again.status == 200
            assert again.data["metadata"]["resourceVersion"] == applied.data["metadata"]["resourceVersion"]
            labels = {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [FLAT]}}}
            patched = await api.patch(path, labels, type=MERGE)
            assert patched.data["metadata"]["labels"] == {"a": "b"}
            more = {"spec": {"devices": {"requests": [{**FLAT, "count": 3}]}}}
            assert (await api.patch(path, more, type=MERGE)).status == 422

    asyncio.run(main())


def test_devices_of_the_first_beta_sit_in_basic() -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            basic = {"name": "gpu-0", "basic": {"attributes": {"model": {"string": "a"}}}}
            made = await api.post(f"{GROUP}/v1beta1/resourceslices", _slice(basic, "v1beta1"))
            assert (made.status, made.warnings) == (201, [])
            flat = (await api.get(f"{GROUP}/v1/resourceslices/s")).data["spec"]["devices"]
            assert flat == [{"name": "gpu-0", "attributes": {"model": {"string": "a"}}}]
            back = (await api.get(f"{GROUP}/v1beta1/resourceslices/s")).data["spec"]["devices"]
            assert back == [basic]
            wrong = {"name": "gpu-0", "attributes": {}}
            strict = await api.post(
                f"{GROUP}/v1beta1/resourceslices", _slice(wrong, "v1beta1"), fieldValidation="Strict"
            )
            assert strict.status == 400
            assert 'unknown field "spec.devices[0].attributes"' in strict.message

    asyncio.run(main())


def test_every_version_is_discovered_and_described() -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            group = (await api.get(GROUP)).data
            assert [one["version"] for one in group["versions"]] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
            assert group["preferredVersion"]["version"] == "v1"
            names = [one["name"] for one in (await api.get(f"{GROUP}/v1alpha3")).data["resources"]]
            assert names == ["devicetaintrules", "devicetaintrules/status"]
            document = (await api.get("/openapi/v3/apis/resource.k8s.io/v1beta1")).data
            schemas = document["components"]["schemas"]
            request = schemas["io.k8s.api.resource.v1beta1.V1beta1DeviceRequest"]["properties"]
            assert "deviceClassName" in request
            assert "exactly" not in request
            shared = schemas["io.k8s.api.resource.v1.DeviceClass"]["x-kubernetes-group-version-kind"]
            assert [one["version"] for one in shared] == ["v1beta1"]
            swagger = (await api.get("/openapi/v2")).data["definitions"]
            shared = swagger["io.k8s.api.resource.v1.DeviceClass"]["x-kubernetes-group-version-kind"]
            assert [one["version"] for one in shared] == ["v1", "v1beta2", "v1beta1"]

    asyncio.run(main())


def test_a_taint_rule_of_the_alpha_is_dated_and_has_a_status() -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            rule = {
                "apiVersion": "resource.k8s.io/v1alpha3",
                "kind": "DeviceTaintRule",
                "metadata": {"name": "r"},
                "spec": {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "NoExecute"}},
            }
            made = (await api.post(f"{GROUP}/v1alpha3/devicetaintrules", rule)).data
            assert made["spec"]["taint"]["timeAdded"] == made["metadata"]["creationTimestamp"]
            body = {"status": {"conditions": [{"type": "EvictionInProgress", "status": "True"}]}, "spec": {}}
            shown = await api.patch(f"{GROUP}/v1beta2/devicetaintrules/r/status", body, type=MERGE)
            assert shown.data["status"]["conditions"][0]["status"] == "True"
            assert shown.data["spec"] == made["spec"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "cause"),
    [
        ({"name": "gpu"}, "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable`"),
        ({"name": "Gpu", "exactly": {"deviceClassName": "a"}}, "spec.devices.requests[0].name: Invalid value"),
        ({"name": "a", "exactly": {}}, "spec.devices.requests[0].exactly.deviceClassName: Required value"),
        (
            {"name": "a", "exactly": {"deviceClassName": "c", "count": -1}},
            "exactly.count: Invalid value: -1: must be greater than zero",
        ),
        (
            {"name": "a", "exactly": {"deviceClassName": "c", "count": 1, "allocationMode": "All"}},
            "must not be specified when allocationMode is 'All'",
        ),
        (
            {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "Some"}},
            'exactly.allocationMode: Unsupported value: "Some"',
        ),
        (
            {"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "c"}] * 2},
            'firstAvailable[1].name: Duplicate value: "b"',
        ),
        (
            {"name": "a", "exactly": {"deviceClassName": "c", "tolerations": [{"operator": "Exists", "value": "x"}]}},
            "tolerations[0].value: Invalid value",
        ),
    ],
)
def test_claims_are_checked(request_: dict[str, Any], cause: str) -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            refused = await api.post(f"{GROUP}/v1/{CLAIMS}", _claim(request_))
            assert refused.status == 422
            assert cause in refused.message
            template = {"metadata": {"name": "t"}, "spec": {"spec": _claim(request_)["spec"]}}
            path = f"{GROUP}/v1/namespaces/default/resourceclaimtemplates"
            refused = await api.post(path, template)
            assert refused.status == 422
            assert "spec.spec.devices.requests[0]" in refused.message

    asyncio.run(main())


@pytest.mark.parametrize(
    ("device", "spec", "cause"),
    [
        ({"name": "a"}, {"driver": ""}, "spec.driver: Required value"),
        ({"name": "a"}, {"allNodes": True}, "exactly one of `nodeName`, `nodeSelector`, `allNodes`"),
        (
            {"name": "a"},
            {"sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}]},
            "only one of `devices`",
        ),
        ({"name": "a", "attributes": {"x": {}}}, {}, "attributes[x]: Required value: exactly one value"),
        ({"name": "a", "attributes": {"x": {"int": 1, "bool": True}}}, {}, "exactly one value must be specified"),
        ({"name": "a", "nodeName": "n1"}, {}, "must not be set unless `perDeviceNodeSelection`"),
        ({"name": "a", "taints": [{"key": "k", "effect": "Maybe"}]}, {}, 'effect: Unsupported value: "Maybe"'),
        ({"name": "a", "bindingConditions": ["Ready"]}, {}, "bindingFailureConditions"),
        ({"name": "a"}, {"pool": {"name": "n1", "generation": 1, "resourceSliceCount": 0}}, "resourceSliceCount"),
        ({"name": "a"}, {"devices": [{"name": "a"}, {"name": "a"}]}, 'spec.devices[1].name: Duplicate value: "a"'),
    ],
)
def test_slices_are_checked(device: dict[str, Any], spec: dict[str, Any], cause: str) -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            refused = await api.post(f"{GROUP}/v1/resourceslices", _slice(device, **spec))
            assert refused.status == 422
            assert cause in refused.message

    asyncio.run(main())


def test_a_claim_is_reserved_while_it_is_allocated_and_allocated_once() -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            path = f"{GROUP}/v1/{CLAIMS}/c"
            await api.post(f"{GROUP}/v1/{CLAIMS}", _claim(EXACT))
            user = {"resource": "pods", "name": "p", "uid": "u1"}

            async def status(**status: Any) -> Any:
                return await api.patch(f"{path}/status", {"status": status}, type=MERGE)

            early = await status(reservedFor=[user])
            assert early.status == 422
            assert "may not be specified when `allocated` is not set" in early.message
            assert (await status(allocation=ALLOCATION, reservedFor=[user])).status == 200
            other = {"devices": {"results": [{**RESULT, "device": "gpu-1"}]}}
            changed = await status(allocation=other)
            assert changed.status == 422
            assert "status.allocation: Invalid value" in changed.message
            assert "field is immutable" in changed.message
            foreign = await status(devices=[{"driver": "d.example.com", "pool": "n1", "device": "gpu-7"}])
            assert foreign.status == 422
            own = {"driver": "d.example.com", "pool": "n1", "device": "gpu-0"}
            assert (await status(devices=[own])).data["status"]["devices"] == [own]
            released = await api.patch(
                f"{path}/status",
                {"status": {"reservedFor": [{"$patch": "delete", "uid": "u1"}]}},
                type=STRATEGIC,
            )
            assert not released.data["status"].get("reservedFor")
            freed = await status(allocation=None)
            assert freed.status == 200
            assert "devices" not in freed.data["status"]

    asyncio.run(main())


def test_the_identity_of_a_slice_is_fixed() -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            await api.post(f"{GROUP}/v1/resourceslices", _slice({"name": "a"}))
            moved = await api.patch(f"{GROUP}/v1/resourceslices/s", {"spec": {"nodeName": "n2"}}, type=MERGE)
            assert moved.status == 422
            assert "spec.nodeName" in moved.message
            assert "field is immutable" in moved.message
            found = (await api.get(f"{GROUP}/v1/resourceslices", fieldSelector="spec.nodeName=n1")).data["items"]
            assert [one["metadata"]["name"] for one in found] == ["s"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("expression", "cause"),
    [
        ("", "cel.expression: Required value"),
        ("device.drivr == 'a'", "compilation failed: ERROR: <input>:1:7: undefined field 'drivr'"),
        ("device.driver", "must evaluate to bool or the unknown type, not string"),
        (f"device.driver == '{'x' * 10_240}'", "may not be more than 10240 bytes"),
    ],
)
def test_selectors_that_do_not_compile_are_refused(expression: str, cause: str) -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            selectors = [{"cel": {"expression": expression}}]
            refused = await api.post(
                f"{GROUP}/v1/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}
            )
            assert refused.status == 422
            assert "spec.selectors[0]" in refused.message
            assert cause in refused.message
            request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}
            refused = await api.post(f"{GROUP}/v1/{CLAIMS}", _claim(request))
            assert refused.status == 422
            assert cause in refused.message

    asyncio.run(main())


def test_the_selectors_of_an_object_are_short_together() -> None:
    """Each takes milliseconds to compile, and the server does nothing else meanwhile."""

    def claim(name: str, count: int) -> dict[str, Any]:
        selectors = [{"cel": {"expression": f"device.driver != '{'x' * 2000}{number:02}'"}} for number in range(count)]
        claimed = _claim({}, name=name)
        claimed["spec"]["devices"]["requests"] = [
            {"name": f"r{at}", "exactly": {"deviceClassName": "gpu", "selectors": selectors[at : at + 8]}}
            for at in range(0, count, 8)
        ]
        return claimed

    async def main() -> None:
        async with served(a_store()) as api:
            assert (await api.post(f"{GROUP}/v1/{CLAIMS}", claim("short", 24))).status == 201
            refused = await api.post(f"{GROUP}/v1/{CLAIMS}", claim("long", 64))
            assert refused.status == 413
            assert "the expressions have more than 65536 characters together" in refused.message

    asyncio.run(main())


@pytest.mark.parametrize(
    ("claims", "used", "cause"),
    [
        ([{"name": "a"}], [], "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
        (
            [{"name": "a", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}],
            [],
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        ),
        (
            [{"name": "a", "resourceClaimName": "c"}],
            [{"name": "b"}],
            'spec.containers[0].resources.claims[0].name: Not found: "b"',
        ),
        ([{"name": "a", "resourceClaimName": "c"}], [{"name": "a"}], ""),
    ],
)
def test_the_claims_of_a_pod_are_checked(claims: list[Any], used: list[Any], cause: str) -> None:
    async def main() -> None:
        async with served(a_store()) as api:
            container = {"name": "main", "image": "pause", "resources": {"claims": used}}
            pod = {"metadata": {"name": "p"}, "spec": {"containers": [container], "resourceClaims": claims}}
            answer = await api.post("/api/v1/namespaces/default/pods", pod)
            assert answer.status == (422 if cause else 201)
            if cause:
                assert cause in answer.message

    asyncio.run(main())
