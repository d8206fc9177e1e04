"""Kinds that are only stored: created, read, listed in discovery, and approved in the case of certificates."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from http_world import run, served

GROUPS = {"admissionregistration.k8s.io", "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io"}
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("apiregistration.k8s.io/v1", "apiservices", {"group": "a", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}),
    ("flowcontrol.apiserver.k8s.io/v1", "flowschemas", {"priorityLevelConfiguration": {"name": "a"}, "matchingPrecedence": 1}),
    ("flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", {"type": "Exempt"}),
    ("networking.k8s.io/v1", "servicecidrs", {"cidrs": ["10.0.0.0/8"]}),
    ("networking.k8s.io/v1", "ipaddresses", {"parentRef": {"resource": "services", "name": "s"}}),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", {"matchConstraints": {"resourceRules": [RULE]}}),
    ("admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", {"policyName": "p", "validationActions": ["Deny"]}),
    ("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies", {"matchConstraints": {"resourceRules": [RULE]}}),
    ("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings", {"policyName": "p"}),
]  # fmt: skip


@pytest.mark.parametrize(("version", "plural", "spec"), KINDS, ids=[plural for _, plural, _ in KINDS])
def test_a_kind_without_behaviour_is_stored_and_discovered(version: str, plural: str, spec: dict[str, Any]) -> None:
    async def main() -> None:
        async with served() as api:
            entries = {one["name"]: one for one in (await api.get(f"/apis/{version}")).data["resources"]}
            body = {"apiVersion": version, "kind": entries[plural]["kind"], "metadata": {"name": "x"}, "spec": spec}
            made = await api.post(f"/apis/{version}/{plural}", body, fieldValidation="Strict")
            assert made.status == 201, made.raw
            read = (await api.get(f"/apis/{version}/{plural}/x")).data
            assert spec.items() <= read["spec"].items()
            wrong = {**body, "metadata": {"name": "y"}, "spec": {**spec, "speck": 1}}
            assert (await api.post(f"/apis/{version}/{plural}", wrong, fieldValidation="Strict")).status == 400

    run(main())


CONDITIONAL: list[tuple[str, str, dict[str, Any]]] = [
    *(one for one in KINDS if one[0].startswith(("admission", "apireg"))),
    ("coordination.k8s.io/v1", "leases", {"holderIdentity": "me"}),
    ("policy/v1", "poddisruptionbudgets", {"minAvailable": 1}),
    ("storage.k8s.io/v1", "csidrivers", {"attachRequired": False}),
    ("storage.k8s.io/v1", "csinodes", {"drivers": []}),
]


@pytest.mark.parametrize(("version", "plural", "spec"), CONDITIONAL, ids=[plural for _, plural, _ in CONDITIONAL])
def test_an_update_of_some_kinds_names_the_version_that_it_replaces(
    version: str, plural: str, spec: dict[str, Any]
) -> None:
    async def main() -> None:
        async with served() as api:
            entries = {one["name"]: one for one in (await api.get(f"/apis/{version}")).data["resources"]}
            space = "/namespaces/default" if entries[plural]["namespaced"] else ""
            path = f"/apis/{version}{space}/{plural}"
            made = await api.post(path, {"metadata": {"name": "x"}, "spec": spec})
            assert made.status == 201, made.raw
            answer = await api.put(f"{path}/x", {**made.data, "metadata": {"name": "x"}})
            why = "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
            assert (answer.status, answer.message) == (
                422,
                f'{plural}.{version.partition("/")[0]} "x" is invalid: {why}',
            )
            assert (await api.put(f"{path}/x", made.data)).status == 200
            assert (await api.patch(f"{path}/x", {"metadata": {"labels": {"a": "b"}}})).status == 200

    run(main())


def test_a_put_creates_a_runtime_class_and_a_lease_candidate() -> None:
    bodies: dict[str, dict[str, Any]] = {
        "/apis/node.k8s.io/v1/runtimeclasses/x": {"handler": "h"},
        "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates/x": {
            "spec": {
                "leaseName": "l",
                "strategy": "OldestEmulationVersion",
                "binaryVersion": "1.36.0",
                "emulationVersion": "1.36.0",
            }
        },
    }

    async def main() -> None:
        async with served() as api:
            for path, body in bodies.items():
                assert [(await api.put(path, {"metadata": {"name": "x"}, **body})).status for _ in range(2)] == [
                    201,
                    422,
                ]

    run(main())


def test_discovery_lists_the_groups_of_stored_kinds_and_reviews() -> None:
    async def main() -> None:
        async with served() as api:
            listed = {one["name"] for one in (await api.get("/apis")).data["groups"]}
            assert listed >= GROUPS | {"authentication.k8s.io", "authorization.k8s.io", "certificates.k8s.io"}
            for one in (await api.get("/apis")).data["groups"]:
                for version in one["versions"]:
                    assert (await api.get(f"/apis/{version['groupVersion']}")).status == 200

    run(main())


def test_a_certificate_request_is_approved_by_its_subresource_alone() -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

    async def main() -> None:
        async with served() as api:
            spec = {
                "request": base64.b64encode(b"x").decode(),
                "signerName": "example.com/a",
                "usages": ["client auth"],
            }
            body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
            made = (await api.post(path, {**body, "metadata": {"name": "c"}, "spec": spec})).data
            approved = [{"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "by hand"}]
            wanted = {**made, "status": {"conditions": approved, "certificate": "eA=="}}
            answer = await api.put(f"{path}/c/approval", wanted)
            assert answer.status == 200, answer.raw
            found = (await api.get(f"{path}/c/approval")).data["status"]
            assert found == {"conditions": approved}, "a signer writes the certificate, by the status"

    run(main())
