"""Pods as they look under feature gates that turn fields off."""

from __future__ import annotations

from typing import Any

import pytest

from kubesched.api.decode import from_builtins, to_builtins
from kubesched.api.types import Pod
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates
from kubesched.scheduler.framework.gated_fields import POD_FIELD_GATES, pod_view
from kubesched.scheduler.nodes.podinfo import PodInfo

CPU = {"requests": {"cpu": "2"}}
FULL: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "default", "labels": {"revision": "1"}},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "resources": CPU,
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["revision"]}
        ],
    },
    "status": {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}},
}


def seen(pod: Pod, **gates: bool) -> Pod:
    view = pod_view(FeatureGates({**DEFAULT_GATES.values, **gates}))
    assert view is not None
    return view(pod)


def test_by_default_pods_are_what_they_are() -> None:
    assert pod_view(DEFAULT_GATES) is None


@pytest.mark.parametrize(
    ("gate", "where", "fields", "cpu"),
    [
        ("PodLevelResources", "spec", {"resources"}, 1000),
        ("InPlacePodLevelResourcesVerticalScaling", "status", {"resources", "allocatedResources"}, 2000),
        ("MatchLabelKeysInPodTopologySpread", "spec", {"topologySpreadConstraints"}, 4000),
    ],
)
def test_a_gate_takes_its_fields_away_and_nothing_else(gate: str, where: str, fields: set[str], cpu: int) -> None:
    pod = from_builtins(FULL, Pod)
    found = seen(pod, **{gate: False})
    before, after = to_builtins(pod), to_builtins(found)
    assert {name for name in ("metadata", "spec", "status") if before.get(name) != after.get(name)} == {where}
    old, new = before[where], after.get(where, {})
    assert {name for name in old if old[name] != new.get(name)} == fields
    assert PodInfo(found).requests.milli_cpu == cpu


@pytest.mark.parametrize("gate", POD_FIELD_GATES)
def test_a_pod_without_the_fields_is_the_same_object(gate: str) -> None:
    pod = from_builtins({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}, Pod)
    assert seen(pod, **{gate: False}) is pod
