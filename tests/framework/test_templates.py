"""Values that a PodInfo shares with the first pod of its template are those it would have on its own."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builders import a_pod
from kubesched.api.types import ContainerStatus, Pod, PodStatus, ResourceRequirements
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.nodes.templates import PodTemplates

DERIVED = (
    "requests", "nonzero_cpu", "nonzero_memory", "ports", "storage", "pvcs",
    "fit_requests", "score_requests", "affinity_terms",
)  # fmt: skip


def renamed(pod: Pod, name: str, **metadata: Any) -> Pod:
    """Another pod with the same spec object."""
    meta = msgspec.structs.replace(pod.metadata, name=name, uid=f"{name}-uid", **metadata)
    return msgspec.structs.replace(pod, metadata=meta)


def derived(info: PodInfo) -> list[Any]:
    return [getattr(info, name) for name in DERIVED]


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("one", cpu="1"),
        a_pod("one", claims=("data",)),
        a_pod("one", overhead={"cpu": "1"}, pod_level={"cpu": "2"}),
    ],
)
def test_pods_with_one_spec_share_what_is_derived(pod: Pod) -> None:
    templates = PodTemplates()
    model, twin = templates.info(pod), templates.info(renamed(pod, "two"))
    assert twin.model is model
    assert twin.requests is model.requests
    assert twin.uid == "two-uid"
    assert derived(twin) == derived(PodInfo(twin.pod))


def test_pods_of_another_namespace_have_a_model_of_their_own() -> None:
    templates, pod = PodTemplates(), a_pod("one", claims=("data",))
    templates.info(pod)
    other = templates.info(renamed(pod, "two", namespace="elsewhere"))
    assert other.model is None
    assert other.pvcs == ("elsewhere/data",)


def test_a_pod_with_resources_in_its_status_counts_on_its_own() -> None:
    templates, pod = PodTemplates(), a_pod("one", cpu="1")
    templates.info(pod)
    status = PodStatus(
        container_statuses=(ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "3"})),)
    )
    resized = templates.info(msgspec.structs.replace(renamed(pod, "two"), status=status))
    assert resized.model is None
    assert resized.requests.milli_cpu == 3000
