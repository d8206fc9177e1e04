"""Policies: every name, argument and error of the API, from a text, a file and a ConfigMap."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubesched.api.yamltext import to_yaml
from kubesched.retired.config import RETIRED_PLUGINS, SPREAD_GATE, load_any, load_any_with_api
from kubesched.scheduler.config import (
    IN_TREE_CAPABILITIES,
    ConfigError,
    Duration,
    dump_yaml,
    expand_profiles,
    load_config,
)
from kubesched.scheduler.config.older import Loaded, LoadOptions

JSON = dict[str, Any]
GROUP = "kubescheduler.config.k8s.io"


def policy(**fields: Any) -> JSON:
    return {"apiVersion": "v1", "kind": "Policy", **fields}


def load(options: LoadOptions | None = None, **fields: Any) -> Loaded:
    return load_any(json.dumps(policy(**fields)), options or LoadOptions())


def effective(loaded: Loaded) -> dict[str, dict[str, int]]:
    """Point to plugin and weight, without the plugins that every converted profile gets through multiPoint."""
    config = loaded.config
    expanded = expand_profiles(config, {**IN_TREE_CAPABILITIES, **RETIRED_PLUGINS})[config.profiles[0].scheduler_name]
    since = {plugin.name for plugin in config.profiles[0].plugins.multi_point.enabled}
    return {point: {name: weight for name, weight in found if name not in since} for point, found in expanded.items()}


def refused(**fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(LoadOptions(source="policy.json"), **fields)
    assert caught.value.source == "policy.json"
    return caught.value


def said(loaded: Loaded, *parts: str) -> bool:
    return any(all(part in warning for part in parts) for warning in loaded.warnings)


# -- predicates --------------------------------------------------------------------------------------------------

MANDATORY = {"NodeUnschedulable", "TaintToleration"}

#: Predicate to plugin and points besides Filter.
PREDICATES = {
    "PodFitsResources": ("NodeResourcesFit", {"preFilter"}),
    "HostName": ("NodeName", set()),
    "PodToleratesNodeTaints": ("TaintToleration", set()),
    "CheckNodeUnschedulable": ("NodeUnschedulable", set()),
    "NoDiskConflict": ("VolumeRestrictions", {"preFilter"}),  # a point it gained since
    "NoVolumeZoneConflict": ("VolumeZone", {"preFilter"}),
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits", {"preFilter"}),
    "PodFitsHostPorts": ("NodePorts", {"preFilter"}),
    "PodFitsPorts": ("NodePorts", {"preFilter"}),
    "MatchNodeSelector": ("NodeAffinity", {"preFilter"}),
    "CheckVolumeBinding": ("VolumeBinding", {"preFilter", "reserve", "preBind"}),
    "MaxEBSVolumeCount": ("NodeVolumeLimits", {"preFilter"}),
    "MaxGCEPDVolumeCount": ("NodeVolumeLimits", {"preFilter"}),
    "MaxAzureDiskVolumeCount": ("NodeVolumeLimits", {"preFilter"}),
    "MaxCinderVolumeCount": ("NodeVolumeLimits", {"preFilter"}),
    "MatchInterPodAffinity": ("InterPodAffinity", {"preFilter"}),
    "EvenPodsSpread": ("PodTopologySpread", {"preFilter"}),
}


@pytest.mark.parametrize("name", PREDICATES)
def test_a_predicate_is_a_plugin(name: str) -> None:
    plugin, points = PREDICATES[name]
    found = effective(load(predicates=[{"name": name}], priorities=[]))
    assert set(found["filter"]) == MANDATORY | {plugin}
    for point in ("preFilter", "reserve", "preBind"):
        assert (plugin in found[point]) == (point in points)
    assert found["queueSort"].keys() == {"PrioritySort"}
    assert found["bind"].keys() == {"DefaultBinder"}
    assert found["postFilter"].keys() == {"DefaultPreemption"}
    assert found["score"] == {}


@pytest.mark.parametrize(
    ("predicate", "plugin"),
    [
        ("MaxEBSVolumeCount", "EBSLimits"),
        ("MaxGCEPDVolumeCount", "GCEPDLimits"),
        ("MaxAzureDiskVolumeCount", "AzureDiskLimits"),
        ("MaxCinderVolumeCount", "CinderLimits"),
    ],
)
def test_a_volume_limit_that_a_policy_names_stays_when_it_is_to_be_run(predicate: str, plugin: str) -> None:
    loaded = load(LoadOptions(keep_limits=True), predicates=[{"name": predicate}], priorities=[])
    assert set(effective(loaded)["filter"]) == MANDATORY | {plugin}
    assert loaded.retired == {plugin}


def test_default_predicates_have_no_volume_limits_per_cloud() -> None:
    assert effective(load(LoadOptions(keep_limits=True))) == effective(load())


def test_general_predicates_are_four_plugins() -> None:
    found = effective(load(predicates=[{"name": "GeneralPredicates"}], priorities=[]))
    assert set(found["filter"]) == MANDATORY | {"NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"}
    assert set(found["preFilter"]) == {"NodeResourcesFit", "NodePorts", "NodeAffinity"}


def test_absent_predicates_are_the_default_set_in_the_fixed_order() -> None:
    assert list(effective(load())["filter"]) == [
        "NodeUnschedulable", "NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity", "VolumeRestrictions",
        "TaintToleration", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity",
    ]  # fmt: skip


def test_empty_predicates_are_the_mandatory_ones() -> None:
    assert list(effective(load(predicates=[]))["filter"]) == ["NodeUnschedulable", "TaintToleration"]


def test_filters_run_in_the_fixed_order_whatever_the_policy_has() -> None:
    given = ["MatchInterPodAffinity", "EvenPodsSpread", "PodFitsResources", "HostName"]
    found = effective(load(predicates=[{"name": name} for name in given]))
    assert list(found["filter"]) == [
        "NodeUnschedulable", "NodeName", "NodeResourcesFit", "TaintToleration", "PodTopologySpread", "InterPodAffinity",
    ]  # fmt: skip


def test_custom_predicates_accumulate_their_labels_under_any_name() -> None:
    loaded = load(
        predicates=[
            {"name": "a", "argument": {"labelsPresence": {"labels": ["x", "y"], "presence": True}}},
            {"name": "b", "argument": {"labelsPresence": {"labels": ["z"], "presence": False}}},
            {"name": "c", "argument": {"serviceAffinity": {"labels": ["zone"]}}},
            {"name": "d", "argument": {"serviceAffinity": {"labels": ["rack"]}}},
        ],
        priorities=[],
    )
    found, profile = effective(loaded), loaded.config.profiles[0]
    assert set(found["filter"]) == MANDATORY | {"NodeLabel", "ServiceAffinity"}
    assert "ServiceAffinity" in found["preFilter"]
    assert profile.args_for("NodeLabel") == {"presentLabels": ["x", "y"], "absentLabels": ["z"]}
    assert profile.args_for("ServiceAffinity") == {"affinityLabels": ["zone", "rack"]}
    assert loaded.retired == {"NodeLabel", "ServiceAffinity"}


# -- priorities --------------------------------------------------------------------------------------------------

#: Priority to plugin and whether it runs at PreScore.
PRIORITIES = {
    "SelectorSpreadPriority": ("SelectorSpread", True),
    "ServiceSpreadingPriority": ("SelectorSpread", True),
    "TaintTolerationPriority": ("TaintToleration", True),
    "NodeAffinityPriority": ("NodeAffinity", True),
    "InterPodAffinityPriority": ("InterPodAffinity", True),
    "ImageLocalityPriority": ("ImageLocality", False),
    "NodePreferAvoidPodsPriority": ("NodePreferAvoidPods", False),
    "LeastRequestedPriority": ("NodeResourcesLeastAllocated", False),
    "MostRequestedPriority": ("NodeResourcesMostAllocated", False),
    "BalancedResourceAllocation": ("NodeResourcesBalancedAllocation", True),  # a point it gained since
    "EvenPodsSpreadPriority": ("PodTopologySpread", True),
}


@pytest.mark.parametrize("name", PRIORITIES)
def test_a_priority_is_a_plugin_with_its_weight(name: str) -> None:
    plugin, pre_score = PRIORITIES[name]
    found = effective(load(predicates=[], priorities=[{"name": name, "weight": 7}]))
    assert found["score"] == {plugin: 7}
    assert set(found["preScore"]) == ({plugin} if pre_score else set())


def test_absent_priorities_are_the_default_set_and_empty_ones_are_none() -> None:
    assert effective(load())["score"] == {
        "SelectorSpread": 1, "InterPodAffinity": 1, "NodeResourcesLeastAllocated": 1, "NodePreferAvoidPods": 10000,
        "NodeResourcesBalancedAllocation": 1, "NodeAffinity": 1, "TaintToleration": 1, "ImageLocality": 1,
        "PodTopologySpread": 2,
    }  # fmt: skip
    assert effective(load(priorities=[]))["score"] == {}


def test_equal_priority_is_skipped() -> None:
    assert effective(load(priorities=[{"name": "EqualPriority", "weight": 1}]))["score"] == {}


def test_priorities_are_processed_by_name() -> None:
    given = ["TaintTolerationPriority", "ImageLocalityPriority", "BalancedResourceAllocation"]
    found = effective(load(priorities=[{"name": name, "weight": 1} for name in given]))
    assert list(found["score"]) == ["NodeResourcesBalancedAllocation", "ImageLocality", "TaintToleration"]


def test_custom_priorities_accumulate_and_their_weight_counts_each_time() -> None:
    loaded = load(
        priorities=[
            {"name": "a", "weight": 3, "argument": {"labelPreference": {"label": "x", "presence": True}}},
            {"name": "b", "weight": 3, "argument": {"labelPreference": {"label": "y", "presence": False}}},
            {"name": "c", "weight": 5, "argument": {"serviceAntiAffinity": {"label": "zone"}}},
            {
                "name": "d",
                "weight": 2,
                "argument": {
                    "requestedToCapacityRatioArguments": {
                        "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
                        "resources": [{"name": "example.com/gpu", "weight": 4}],
                    }
                },
            },
        ]
    )
    profile = loaded.config.profiles[0]
    assert effective(loaded)["score"] == {"NodeLabel": 6, "ServiceAffinity": 5, "RequestedToCapacityRatio": 2}
    assert profile.args_for("NodeLabel") == {"presentLabelsPreference": ["x"], "absentLabelsPreference": ["y"]}
    assert profile.args_for("ServiceAffinity") == {"antiAffinityLabelsPreference": ["zone"]}
    assert profile.args_for("RequestedToCapacityRatio")["resources"] == [{"name": "example.com/gpu", "weight": 4}]


def test_selector_spread_is_pod_topology_spread_where_its_gate_is_on() -> None:
    loaded = load(
        LoadOptions(retired_gates={SPREAD_GATE: True}), priorities=[{"name": "SelectorSpreadPriority", "weight": 4}]
    )
    assert effective(loaded)["score"] == {"PodTopologySpread": 4}
    assert loaded.config.profiles[0].args_for("PodTopologySpread").defaulting_type == "System"
    assert load().config.profiles[0].args_for("PodTopologySpread").defaulting_type == "List"


# -- other fields ------------------------------------------------------------------------------------------------


def test_hard_affinity_weight_and_extenders() -> None:
    extender = {"urlPrefix": "http://x", "filterVerb": "f", "httpTimeout": 1_500_000_000, "enableHttps": True}
    config = load(hardPodAffinitySymmetricWeight=9, extenders=[extender]).config
    assert config.profiles[0].args_for("InterPodAffinity").hard_pod_affinity_weight == 9
    assert (config.extenders[0].http_timeout, config.extenders[0].enable_https) == (Duration.of_seconds(1.5), True)


def test_names_are_read_without_regard_to_case_in_yaml_and_json() -> None:
    text = "APIVERSION: v1\nKind: Policy\nPREDICATES:\n- Name: HostName\nPriorities: []\n"
    loaded = load_any(text)
    assert set(effective(loaded)["filter"]) == MANDATORY | {"NodeName"}
    assert effective(loaded)["score"] == {}


def test_what_is_ignored_is_said() -> None:
    loaded = load(alwaysCheckAllPredicates=True, colour="red")
    assert said(loaded, "alwaysCheckAllPredicates is ignored")
    assert said(loaded, "colour: no such field", "ignored")
    assert said(loaded, "Policy API was removed in Kubernetes 1.23")
    assert said(
        load_any('{"apiVersion": "v1", "kind": "Policy", "priorities": [], "PRIORITIES": []}'),
        "priorities: given twice",
    )


def test_a_converted_policy_is_written_as_v1_and_read_back_as_the_same() -> None:
    loaded = load(predicates=[{"name": "a", "argument": {"labelsPresence": {"labels": ["x"], "presence": True}}}])
    assert load_config(dump_yaml(loaded.config)) == loaded.config


# -- errors ------------------------------------------------------------------------------------------------------

PREFIX = "couldn't create scheduler from policy: "
OVERFLOWN = "should have a positive weight applied to it or it has overflown"


def preference(name: str, weight: int) -> JSON:
    return {"name": name, "weight": weight, "argument": {"labelPreference": {"label": name, "presence": True}}}


def anti_affinity(name: str, weight: int) -> JSON:
    return {"name": name, "weight": weight, "argument": {"serviceAntiAffinity": {"label": name}}}


def ratio(name: str) -> JSON:
    shape = [{"utilization": 0, "score": 0}]
    return {"name": name, "weight": 1, "argument": {"requestedToCapacityRatioArguments": {"shape": shape}}}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"predicates": [{"name": "x"}]}, 'predicate type not found for "x"'),
        ({"predicates": [{"name": "CheckServiceAffinity"}]}, 'predicate type not found for "CheckServiceAffinity"'),
        ({"priorities": [{"name": "x", "weight": 1}]}, 'priority type not found for "x"'),
        ({"predicates": [{"name": "x", "argument": {}}]}, "exactly 1 predicate argument is required, numArgs: 0, predicate x"),
        ({"predicates": [{"name": "x", "argument": {"serviceAffinity": {}, "labelsPresence": {}}}]}, "exactly 1 predicate argument is required, numArgs: 2, predicate x"),
        ({"priorities": [{"name": "x", "weight": 1, "argument": {}}]}, "exactly 1 priority argument is required, numArgs: 0, priority x"),
        ({"priorities": [{"name": "EqualPriority"}]}, f"Priority EqualPriority {OVERFLOWN}"),
        ({"priorities": [{"name": "EqualPriority", "weight": -1}]}, f"Priority EqualPriority {OVERFLOWN}"),
        ({"priorities": [{"name": "ImageLocalityPriority", "weight": (2**63 - 1) // 10}]}, f"Priority ImageLocalityPriority {OVERFLOWN}"),
        ({"priorities": [{"name": "ImageLocalityPriority", "weight": 2**31}]}, f"Priority ImageLocalityPriority {OVERFLOWN}"),
        ({"priorities": [ratio("y"), ratio("x")]}, 'Priority "x" redeclares custom priority "RequestedToCapacityRatio", from:"y"'),
        ({"priorities": [preference("y", 1), preference("x", 2)]}, 'LabelPreference  priority "x" has a different weight with "y"'),
        ({"priorities": [anti_affinity("y", 1), anti_affinity("x", 2)]}, 'ServiceAntiAffinity  priority "x" has a different weight with "y"'),
    ],
)  # fmt: skip
def test_a_policy_that_contradicts_itself_is_refused_in_upstreams_words(fields: JSON, text: str) -> None:
    error = refused(**fields)
    assert str(error) == PREFIX + text
    assert error.details


def test_the_nearest_name_is_proposed() -> None:
    assert refused(predicates=[{"name": "PodFitsResource"}]).details == ["did you mean PodFitsResources?"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"hardPodAffinitySymmetricWeight": 101}, "hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range [0-100]"),
        ({"priorities": [{**ratio("x"), "argument": {"requestedToCapacityRatioArguments": {}}}]}, "priorities[0].argument.requestedToCapacityRatioArguments.shape: Required value: at least one point must be specified"),
        ({"extenders": [{"prioritizeVerb": "p"}]}, "extenders[0].weight: Invalid value: 0: must have a positive weight applied to it"),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(fields: JSON, text: str) -> None:
    assert str(refused(**fields)) == text


def test_a_value_of_the_wrong_type_is_named_with_its_path() -> None:
    error = refused(priorities=[{"name": "x", "weight": "heavy"}])
    assert error.stage == "decode"
    assert error.details == [
        'priorities[0].weight: the text "heavy" is not a whole number from -9223372036854775808 to 9223372036854775807'
    ]


def test_the_documented_policy_has_the_documented_plugins() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    block = page.partition("```json\n")[2].partition("```")[0]
    found = effective(load_any(block))
    sentence = page.partition("filters with ")[2].partition(".")[0]
    assert set(found["filter"]) == {
        name.strip(" ,")
        for name in sentence.partition(", and scores")[0].replace(" and ", ", ").replace("\n", " ").split(", ")
    }
    assert found["score"] == {"NodeResourcesMostAllocated": 5}


# -- where a v1alpha1 configuration finds it ---------------------------------------------------------------------


def alpha(source: JSON, **fields: Any) -> str:
    document = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "KubeSchedulerConfiguration", "algorithmSource": source}
    return to_yaml({**document, **fields})


def from_file(path: Path | str) -> JSON:
    return {"policy": {"file": {"path": str(path)}}}


def test_a_policy_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy(predicates=[{"name": "HostName"}], priorities=[], colour="red")))
    loaded = load_any(
        alpha(
            from_file(path),
            schedulerName="mine",
            hardPodAffinitySymmetricWeight=3,
            bindTimeoutSeconds=5,
            disablePreemption=True,
        )
    )
    (profile,) = loaded.config.profiles
    assert profile.scheduler_name == "mine"
    assert set(effective(loaded)["filter"]) == MANDATORY | {"NodeName"}
    assert effective(loaded)["postFilter"] == {}
    assert profile.args_for("InterPodAffinity").hard_pod_affinity_weight == 3
    assert profile.args_for("VolumeBinding").bind_timeout_seconds == 5
    assert said(loaded, f"{path}: colour")


def test_the_policys_own_affinity_weight_wins(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy(hardPodAffinitySymmetricWeight=8)))
    loaded = load_any(alpha(from_file(path), hardPodAffinitySymmetricWeight=3))
    assert loaded.config.profiles[0].args_for("InterPodAffinity").hard_pod_affinity_weight == 8


def test_policy_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^missing policy config file /nowhere/policy$"):
        load_any(alpha(from_file("/nowhere/policy")))
    with pytest.raises(ConfigError, match=f"^couldn't read policy config: {tmp_path}: "):
        load_any(alpha(from_file(tmp_path)))
    path = tmp_path / "policy"
    for text, reason in (
        ("predicates: 3", "invalid policy: Object 'Kind' is missing"),
        ("[", "invalid policy: yaml: line"),
        ("apiVersion: v1\nkind: Pod\n", 'invalid policy: no kind "Pod" is registered'),
        ("apiVersion: v1\nkind: Policy\npredicates: 3\n", "invalid policy: json: cannot unmarshal number"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load_any(alpha(from_file(path)), LoadOptions(source="sched.yaml"))
        assert caught.value.source == str(path)
        assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(("field", "word"), [("plugins", "Plugins"), ("pluginConfig", "PluginConfig")])
def test_a_policy_excludes_plugins(tmp_path: Path, field: str, word: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy()))
    with pytest.raises(ConfigError, match=f"^using {word} and Policy simultaneously is not supported$"):
        load_any(alpha(from_file(path), **{field: {} if field == "plugins" else []}))


def test_a_policy_source_without_a_place_is_refused() -> None:
    with pytest.raises(ConfigError, match="names neither a file nor a ConfigMap"):
        load_any(alpha({"policy": {}}))


# -- ConfigMaps --------------------------------------------------------------------------------------------------


class FakeApi:
    """ConfigMaps by namespace and name; everything else is missing."""

    def __init__(self, **data: str) -> None:
        self.maps: dict[tuple[str, str], Mapping[str, Any]] = {("kube-system", "p"): data}
        self.reads: list[tuple[str, str]] = []

    async def get(self, namespace: str, name: str) -> Mapping[str, Any]:
        self.reads.append((namespace, name))
        await asyncio.sleep(0)
        if (namespace, name) not in self.maps:
            raise LookupError(f'configmaps "{name}" not found')
        return self.maps[namespace, name]


def read(api: FakeApi, text: str, source: str = "sched.yaml") -> Loaded:
    return asyncio.run(load_any_with_api(text, api.get, LoadOptions(source=source)))


def test_a_policy_is_read_from_a_config_map() -> None:
    api = FakeApi(**{"policy.cfg": json.dumps(policy(predicates=[{"name": "HostName"}], priorities=[]))})
    loaded = read(api, alpha({"policy": {"configMap": {"name": "p"}}}))
    assert api.reads == [("kube-system", "p")]
    assert set(effective(loaded)["filter"]) == MANDATORY | {"NodeName"}


@pytest.mark.parametrize(
    ("data", "source", "error"),
    [
        ({}, {"name": "q", "namespace": "n"}, 'couldn\'t get policy config map n/q: configmaps "q" not found'),
        ({"other": "x"}, {"name": "p"}, 'missing policy config map value at key "policy.cfg"'),
        ({"policy.cfg": "[]"}, {"name": "p"}, "invalid policy: couldn't get version/kind"),
    ],
)  # fmt: skip
def test_config_maps_that_are_no_policy_are_refused(data: dict[str, str], source: JSON, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(FakeApi(**data), alpha({"policy": {"configMap": source}}))
    assert str(caught.value).startswith(error)
    assert caught.value.source == "sched.yaml"


def test_documents_that_need_no_config_map_are_read_without_the_api(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(policy()))
    api = FakeApi()
    for text in (
        alpha(from_file(path)),
        alpha({}),
        to_yaml(policy()),
        f"apiVersion: {GROUP}/v1\nkind: KubeSchedulerConfiguration\n",
    ):
        assert read(api, text, "") == load_any(text)
    with pytest.raises(ConfigError, match="parallelism"):
        read(api, f"apiVersion: {GROUP}/v1\nkind: KubeSchedulerConfiguration\nparallelism: x\n")
    assert api.reads == []


def test_without_an_api_a_config_map_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError) as caught:
        load_any(alpha({"policy": {"configMap": {"name": "p"}}}))
    assert "kube-system/p" in str(caught.value)
    assert "file.path" in caught.value.details[0]
