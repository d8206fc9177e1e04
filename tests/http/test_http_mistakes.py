"""Objects that a real server refuses by a rule of their kind, and objects with the same members that it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from http_world import a_deployment, run, served

TABLE = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text(encoding="utf-8"))


def test_mistakes_are_refused_at_their_place() -> None:
    async def main() -> None:
        async with served() as api:
            for path, rows in TABLE.items():
                for place, body in rows["refused"]:
                    answer = await api.post(path, body, dryRun="All")
                    assert (answer.status, place in answer.message) == (422, True), (body, answer.raw)

    run(main())


def test_what_is_right_is_taken() -> None:
    async def main() -> None:
        async with served() as api:
            for path, rows in TABLE.items():
                for body in rows["taken"]:
                    answer = await api.post(path, body, dryRun="All", fieldValidation="Strict")
                    assert answer.status == 201, (body, answer.message)

    run(main())


JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
BOTH = {"conditions": [{"type": "Complete", "status": "True"}, {"type": "Failed", "status": "True"}]}
STATUSES = [
    ("/apis/apps/v1/namespaces/default/deployments", a_deployment("x"), {"replicas": 1, "readyReplicas": 2}),
    ("/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "x"}, "spec": JOB}, {"succeeded": -1}),
    ("/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "x"}, "spec": JOB}, {"terminating": -1}),
    ("/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "x"}, "spec": JOB}, BOTH),
    ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {"metadata": {"name": "x"}}, {"expectedPods": -1}),
]


@pytest.mark.parametrize(
    ("path", "body", "status"), STATUSES, ids=["ready", "succeeded", "terminating", "ends", "budget"]
)
def test_counts_and_conditions_of_a_status_are_checked(path: str, body: Any, status: Any) -> None:
    async def main() -> None:
        async with served() as api:
            assert (await api.post(path, body)).status == 201
            answer = await api.patch(f"{path}/x/status", {"status": status})
            assert (answer.status, f"status.{list(status)[-1]}: Invalid value" in answer.message) == (422, True)

    run(main())


def test_a_scale_needs_its_name() -> None:
    async def main() -> None:
        async with served() as api:
            path = "/apis/apps/v1/namespaces/default/deployments"
            assert (await api.post(path, a_deployment("x"))).status == 201
            scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 2}}
            answer = await api.put(f"{path}/x/scale", scale)
            assert (answer.status, "(x based on URL) was undeterminable" in answer.message) == (400, True)
            assert (await api.put(f"{path}/x/scale", {**scale, "metadata": {"name": "x"}})).status == 200

    run(main())


def test_the_fields_of_a_scale_are_checked() -> None:
    async def main() -> None:
        async with served() as api:
            path = "/apis/apps/v1/namespaces/default/deployments"
            assert (await api.post(path, a_deployment("x"))).status == 201
            scale = {"metadata": {"name": "x"}, "spec": {"replicas": 2, "frog": 1}}
            text = (
                'Scale in version "v1" cannot be handled as a Scale: strict decoding error: unknown field "spec.frog"'
            )
            answer = await api.put(f"{path}/x/scale", scale, fieldValidation="Strict")
            assert (answer.status, answer.message) == (400, text)
            for answer in (await api.put(f"{path}/x/scale", scale), await api.patch(f"{path}/x/scale", scale)):
                assert (answer.status, ["spec.frog" in one for one in answer.warnings]) == (200, [True])
            for wrong in ("2", 2.5, True, 2**40):
                answer = await api.patch(f"{path}/x/scale", {"spec": {"replicas": wrong}})
                assert (answer.status, "spec.replicas" in answer.message) == (400, True), answer.raw

    run(main())


def test_a_review_cannot_be_a_table() -> None:
    async def main() -> None:
        async with served() as api:
            path, table = (
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "application/json;as=Table;v=v1;g=meta.k8s.io",
            )
            assert (await api.post(path, {"spec": {}}, accept=table)).status == 406
            assert (await api.post(path, {"spec": {}}, accept=f"{table},application/json")).status == 201

    run(main())


EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"metadata": {"type": "object"}}}


def test_metadata_of_embedded_objects_is_checked_as_that_of_all_objects() -> None:
    spec = {"type": "object", "properties": {"template": EMBEDDED}}
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    names = {"plural": "frogs", "kind": "Frog"}
    body = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

    async def main() -> None:
        async with served() as api:
            assert (await api.post(path, {"metadata": {"name": "frogs.example.com"}, "spec": body})).status == 201
            inner = {"metadata": {"name": "x", "labels": {"a": "b"}, "frog": 1}}
            frog = {"apiVersion": "example.com/v1", "kind": "Frog", "metadata": {"name": "f", "frog": 1}}
            made = await api.post("/apis/example.com/v1/frogs", {**frog, "spec": {"template": inner}})
            assert made.data["spec"]["template"]["metadata"] == {"name": "x", "labels": {"a": "b"}}
            assert [text.split('"')[2] for text in made.warnings] == [
                "metadata.frog\\",
                "spec.template.metadata.frog\\",
            ]

    run(main())
