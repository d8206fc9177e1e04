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
