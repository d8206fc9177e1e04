"""Retired flags: the table, the documents they amount to, and what is said about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubesched.retired.config import load_any
from kubesched.retired.flags import RETIRED_FLAGS, document_from_flags, flag_warnings
from kubesched.scheduler.config import ConfigError, load_config_data

GROUP = "kubescheduler.config.k8s.io"
HEAD_V1 = {"apiVersion": f"{GROUP}/v1", "kind": "KubeSchedulerConfiguration"}
HEAD_ALPHA = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "KubeSchedulerConfiguration"}


def test_the_table_has_every_flag_of_the_specification_with_its_default() -> None:
    assert {flag.name: flag.default for flag in RETIRED_FLAGS} == {
        "address": "0.0.0.0",
        "port": 10251,
        "algorithm-provider": "DefaultProvider",
        "policy-config-file": "",
        "policy-configmap": "",
        "policy-configmap-namespace": "kube-system",
        "use-legacy-policy-config": False,
        "lock-object-namespace": "kube-system",
        "lock-object-name": "kube-scheduler",
        "hard-pod-affinity-symmetric-weight": 1,
        "scheduler-name": "default-scheduler",
    }
    assert [flag.name for flag in RETIRED_FLAGS] == sorted(flag.name for flag in RETIRED_FLAGS)
    types = {"string": str, "int": int, "bool": bool}
    assert all(type(flag.default) is types[flag.type] for flag in RETIRED_FLAGS)


FILE, MAP = {"policy-config-file": "/p"}, {"policy-configmap": "m"}
LEGACY = {"use-legacy-policy-config": True}
FROM_FILE = {"policy": {"file": {"path": "/p"}}}
FROM_MAP = {"policy": {"configMap": {"namespace": "kube-system", "name": "m"}}}


@pytest.mark.parametrize(
    ("given", "source"),
    [
        (FILE, FROM_FILE),
        (MAP, FROM_MAP),
        ({**FILE, **MAP}, FROM_MAP),
        ({**FILE, **MAP, **LEGACY}, FROM_FILE),
        ({**MAP, "policy-configmap-namespace": "n"}, {"policy": {"configMap": {"namespace": "n", "name": "m"}}}),
        ({"algorithm-provider": "P"}, {"provider": "P"}),
        ({**FILE, "algorithm-provider": "P"}, FROM_FILE),
    ],
)  # fmt: skip
def test_a_file_comes_before_a_config_map_comes_before_a_provider(given: dict[str, Any], source: object) -> None:
    assert document_from_flags(given) == {**HEAD_ALPHA, "algorithmSource": source}


def test_the_legacy_policy_needs_a_file() -> None:
    with pytest.raises(ConfigError) as caught:
        document_from_flags({**MAP, **LEGACY})
    assert str(caught.value) == "policyConfigFile: Required value: required when --use-legacy-policy-config is true"
    assert caught.value.details


def test_other_flags_change_todays_configuration() -> None:
    given = {
        "lock-object-namespace": "ns",
        "lock-object-name": "lock",
        "hard-pod-affinity-symmetric-weight": 0,
        "scheduler-name": "mine",
    }
    document = document_from_flags(given)
    assert document is not None
    assert document["apiVersion"] == f"{GROUP}/v1"
    config = load_config_data(document)
    assert (config.leader_election.resource_namespace, config.leader_election.resource_name) == ("ns", "lock")
    assert config.profiles[0].scheduler_name == "mine"
    assert config.profiles[0].args_for("InterPodAffinity").hard_pod_affinity_weight == 0
    assert config.profiles[0].plugins == load_config_data(dict(HEAD_V1)).profiles[0].plugins


def test_with_a_provider_they_go_into_the_same_document() -> None:
    given = {
        "algorithm-provider": "ClusterAutoscalerProvider",
        "lock-object-name": "lock",
        "hard-pod-affinity-symmetric-weight": 5,
        "scheduler-name": "mine",
    }
    document = document_from_flags(given)
    assert document is not None
    loaded = load_any(document)
    profile = loaded.config.profiles[0]
    assert (profile.scheduler_name, loaded.config.leader_election.resource_name) == ("mine", "lock")
    assert profile.args_for("InterPodAffinity").hard_pod_affinity_weight == 5
    assert "NodeResourcesMostAllocated" in profile.plugins.enabled_names()


def test_a_policy_file_named_by_a_flag_is_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Policy", "priorities": []}))
    document = document_from_flags({"policy-config-file": str(path)})
    assert document is not None
    assert load_any(document).config.profiles[0].plugins.score.enabled == ()


@pytest.mark.parametrize("given", [{}, {"port": 0, "address": "1.2.3.4"}])
def test_flags_that_are_ignored_make_no_document(given: dict[str, Any]) -> None:
    assert document_from_flags(given) is None


def test_a_weight_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range"):
        document_from_flags({"hard-pod-affinity-symmetric-weight": 101})


def test_every_flag_that_is_set_gives_a_warning_but_port_0() -> None:
    given = {flag.name: flag.default for flag in RETIRED_FLAGS}
    warnings = flag_warnings(given)
    assert [warning.split()[1] for warning in warnings] == [f"--{flag.name}" for flag in RETIRED_FLAGS]
    assert "removed in Kubernetes 1.22" in warnings[1]
    assert "removed after Kubernetes 1.19" in warnings[0]
    assert flag_warnings({"port": 0}) == []
