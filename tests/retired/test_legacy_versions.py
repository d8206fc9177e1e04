"""Older configuration versions: every field they had and what becomes of it, merging, warnings, and bad files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubesched.api.yamltext import to_yaml
from kubesched.retired.config import RETIRED_PLUGINS, SPREAD_GATE, load_any, load_any_file
from kubesched.retired.flags import RETIRED_GATES
from kubesched.scheduler.config import (
    IN_TREE,
    IN_TREE_CAPABILITIES,
    ConfigError,
    Duration,
    FeatureGates,
    KubeSchedulerConfiguration,
    PodTopologySpreadArgs,
    VolumeBindingArgs,
    dump_yaml,
    expand_profiles,
    load_config,
)
from kubesched.scheduler.config.older import Loaded, LoadOptions

JSON = dict[str, Any]
GROUP = "kubescheduler.config.k8s.io"
VERSIONS = ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3")
PER_POINT = VERSIONS[:4]
SPREAD_OFF = LoadOptions(retired_gates={SPREAD_GATE: False})
SPREAD_ON = LoadOptions(retired_gates={SPREAD_GATE: True})


def document(version: str, **fields: Any) -> JSON:
    return {"apiVersion": f"{GROUP}/{version}", "kind": "KubeSchedulerConfiguration", **fields}


def load(version: str, options: LoadOptions | None = None, **fields: Any) -> Loaded:
    return load_any(to_yaml(document(version, **fields)), options or LoadOptions())


def profile_document(version: str, plugins: JSON, plugin_config: list[JSON] | None = None) -> JSON:
    """The fields of a document with one profile, where its version has them."""
    profile: JSON = {"plugins": plugins, "pluginConfig": plugin_config or []}
    return profile if version == "v1alpha1" else {"profiles": [profile]}


def effective(loaded: Loaded | KubeSchedulerConfiguration, profile: int = 0) -> dict[str, list[tuple[str, int]]]:
    """The plugins that would run, with every in-tree and retired plugin registered."""
    config = loaded.config if isinstance(loaded, Loaded) else loaded
    expanded = expand_profiles(config, {**IN_TREE_CAPABILITIES, **RETIRED_PLUGINS})
    return expanded[config.profiles[profile].scheduler_name]


def names(loaded: Loaded, point: str) -> list[str]:
    return [name for name, _ in effective(loaded)[point]]


def refused(version: str, **fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_any(to_yaml(document(version, **fields)), LoadOptions(source="old.yaml"))
    assert caught.value.source == "old.yaml"
    assert caught.value.user_message.startswith("old.yaml: ")
    return caught.value


def said(loaded: Loaded, *parts: str) -> bool:
    """Return True if one warning holds all of these."""
    return any(all(part in warning for part in parts) for warning in loaded.warnings)


# -- the versions ------------------------------------------------------------------------------------------------

REMOVED_IN = {"v1alpha1": "1.19", "v1alpha2": "1.19", "v1beta1": "1.23", "v1beta2": "1.28", "v1beta3": "1.29"}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_document_loads_with_a_warning(version: str) -> None:
    loaded = load_any(to_yaml(document(version)), LoadOptions(source="old.yaml"))
    assert all(warning.startswith("old.yaml: ") for warning in loaded.warnings)
    assert said(loaded, f"{GROUP}/{version}", f"Kubernetes {REMOVED_IN[version]}")
    assert loaded.config.profiles[0].scheduler_name == "default-scheduler"
    assert effective(loaded)["bind"] == [("DefaultBinder", 0)]


def test_v1_is_read_as_before_and_without_warnings() -> None:
    text = to_yaml(document("v1", parallelism=3))
    assert load_any(text) == Loaded(load_config(text))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_strict_reader_still_refuses_what_1_36_refuses(version: str) -> None:
    with pytest.raises(ConfigError, match="no kind"):
        load_config(to_yaml(document(version)))


def test_an_unknown_version_is_refused_in_upstreams_words() -> None:
    error = refused("v1gamma1")
    assert str(error).startswith(f'no kind "KubeSchedulerConfiguration" is registered for version "{GROUP}/v1gamma1"')


COMMON: JSON = {
    "clientConnection": {"kubeconfig": "/k", "qps": 5, "burst": 7},
    "enableProfiling": False,
    "percentageOfNodesToScore": 40,
    "podInitialBackoffSeconds": 2,
    "podMaxBackoffSeconds": 20,
    "leaderElection": {"leaderElect": False, "leaseDuration": "20s"},
}


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_that_v1_has_too_are_kept(version: str) -> None:
    config = load(version, **COMMON).config
    assert (config.client_connection.kubeconfig, config.client_connection.qps) == ("/k", 5.0)
    assert config.enable_profiling is False
    assert config.enable_contention_profiling is False  # its default follows enableProfiling
    assert config.percentage_of_nodes_to_score == 40
    assert (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds) == (2, 20)
    assert config.leader_election.lease_duration == Duration.of_seconds(20)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1beta3"])
def test_parallelism_and_extenders_of_beta_versions_are_those_of_v1(version: str) -> None:
    extender = {"urlPrefix": "http://x", "enableHTTPS": True, "httpTimeout": "30s", "filterVerb": "filter"}
    config = load(version, parallelism=4, extenders=[extender]).config
    assert config.parallelism == 4
    assert config.extenders[0].http_timeout == Duration.of_seconds(30)
    assert config.extenders[0].enable_https


# -- default plugins ---------------------------------------------------------------------------------------------

ALWAYS = ["DynamicResources", "NodeDeclaredFeatures"]
V1BETA1_FILTER = [
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity",
]  # fmt: skip
V1BETA1_SCORE = [
    ("NodeResourcesBalancedAllocation", 1), ("ImageLocality", 1), ("InterPodAffinity", 1),
    ("NodeResourcesLeastAllocated", 1), ("NodeAffinity", 1), ("NodePreferAvoidPods", 10000),
    ("PodTopologySpread", 2), ("TaintToleration", 1),
]  # fmt: skip


@pytest.mark.parametrize("version", PER_POINT)
def test_default_filters_are_those_of_the_version_with_limits_per_cloud_counted_by_node_volume_limits(
    version: str,
) -> None:
    loaded = load(version)
    assert names(loaded, "filter") == ALWAYS + V1BETA1_FILTER
    assert names(loaded, "queueSort") == ["PrioritySort"]
    assert names(loaded, "reserve") == names(loaded, "preBind") == ["DynamicResources", "VolumeBinding"]
    assert "DefaultPreemption" in names(loaded, "postFilter")


@pytest.mark.parametrize("version", PER_POINT)
def test_points_that_plugins_gained_since_are_added(version: str) -> None:
    loaded = load(version)
    assert {"VolumeRestrictions", "NodeVolumeLimits", "VolumeZone"} <= set(names(loaded, "preFilter"))
    assert "NodeResourcesBalancedAllocation" in names(loaded, "preScore")
    assert ("NodeResourcesFit" in names(loaded, "preScore")) == (version == "v1beta2")
    assert names(loaded, "preEnqueue") == ["SchedulingGates", "DynamicResources", "DefaultPreemption"]


def scores(loaded: Loaded) -> list[tuple[str, int]]:
    return [item for item in effective(loaded)["score"] if item[0] != "DynamicResources"]


def test_default_scores_are_those_of_the_version() -> None:
    assert scores(load("v1alpha1")) == scores(load("v1alpha2")) == [*V1BETA1_SCORE, ("SelectorSpread", 1)]
    assert scores(load("v1beta1")) == V1BETA1_SCORE
    assert scores(load("v1beta2")) == [
        ("NodeResourcesBalancedAllocation", 1), ("ImageLocality", 1), ("InterPodAffinity", 1), ("NodeResourcesFit", 1),
        ("NodeAffinity", 1), ("PodTopologySpread", 2), ("TaintToleration", 1),
    ]  # fmt: skip
    assert effective(load("v1beta3")) == effective(load("v1"))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_retired_gate_decides_between_selector_spread_and_default_constraints(version: str) -> None:
    off, on = load(version, SPREAD_OFF), load(version, SPREAD_ON)
    assert ("SelectorSpread", 1) in scores(off)
    assert "SelectorSpread" in names(off, "preScore")
    assert "SelectorSpread" not in dict(scores(on))
    args = [loaded.config.profiles[0].args_for("PodTopologySpread").defaulting_type for loaded in (off, on)]
    assert args == ["List", "System"]
    assert "SelectorSpread" in off.retired
    assert set(RETIRED_GATES) == {SPREAD_GATE}


def test_a_provider_chooses_the_score_plugins() -> None:
    for provider, plugin in (("DefaultProvider", "Least"), ("ClusterAutoscalerProvider", "Most")):
        loaded = load("v1alpha1", algorithmSource={"provider": provider})
        allocation = [name for name, _ in scores(loaded) if name.endswith("Allocated")]
        assert allocation == [f"NodeResources{plugin}Allocated"]
    error = refused("v1alpha1", algorithmSource={"provider": "x"})
    assert str(error) == 'couldn\'t create scheduler using provider "x": algorithm provider "x" is not registered'
    assert "DefaultProvider, ClusterAutoscalerProvider" in error.details[0]


def test_default_plugins_that_are_not_available_are_left_out_with_a_warning_and_named_ones_are_kept() -> None:
    options = LoadOptions(unavailable={"VolumeBinding", "DynamicResources", "NodeVolumeLimits"})
    loaded = load("v1beta1", options)
    assert (
        not {"VolumeBinding", "DynamicResources", "NodeVolumeLimits"}
        & loaded.config.profiles[0].plugins.enabled_names()
    )
    assert said(loaded, "DynamicResources, NodeVolumeLimits, VolumeBinding", "left out")
    named = load("v1beta2", options, profiles=[{"plugins": {"filter": {"enabled": [{"name": "VolumeBinding"}]}}}])
    assert "VolumeBinding" in names(named, "filter")
    assert "VolumeBinding" not in names(named, "reserve")


# -- merging -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1beta1"])
def test_own_plugins_follow_the_defaults_up_to_v1beta1(version: str) -> None:
    plugins = {
        "score": {
            "disabled": [{"name": "ImageLocality"}, {"name": "TaintToleration"}],
            "enabled": [{"name": "TaintToleration", "weight": 9}, {"name": "NodeLabel", "weight": 3}],
        }
    }
    found = scores(load(version, SPREAD_ON, **profile_document(version, plugins)))
    assert "ImageLocality" not in dict(found)
    assert found[-2:] == [("TaintToleration", 9), ("NodeLabel", 3)]


def test_a_default_enabled_again_without_disabling_it_is_an_error_up_to_v1beta1() -> None:
    loaded = load("v1beta1", profiles=[{"plugins": {"filter": {"enabled": [{"name": "NodePorts"}]}}}])
    with pytest.raises(ConfigError, match='plugin "NodePorts" already registered as "FilterPlugin"'):
        effective(loaded)


def test_own_plugins_take_the_place_of_defaults_from_v1beta2() -> None:
    plugins = {"score": {"enabled": [{"name": "InterPodAffinity", "weight": 7}]}}
    found = scores(load("v1beta2", profiles=[{"plugins": plugins}]))
    assert found[2] == ("InterPodAffinity", 7)
    assert [name for name, _ in found].count("InterPodAffinity") == 1


@pytest.mark.parametrize("version", PER_POINT)
def test_a_star_switches_all_defaults_of_a_point_off(version: str) -> None:
    plugins = {"filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeName"}]}}
    loaded = load(version, **profile_document(version, plugins))
    assert names(loaded, "filter") == ["NodeName"]
    assert "NodeAffinity" in names(loaded, "preFilter")


def test_v1beta3_profiles_work_as_in_v1() -> None:
    plugins = {
        "multiPoint": {"disabled": [{"name": "ImageLocality"}], "enabled": [{"name": "TaintToleration", "weight": 8}]},
        "score": {"disabled": [{"name": "NodeAffinity"}]},
    }
    profile = {"schedulerName": "x", "plugins": plugins}
    assert load("v1beta3", profiles=[profile]).config == load("v1", profiles=[profile]).config


LIMITS = ("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("limit", LIMITS)
def test_volume_limits_per_cloud_become_node_volume_limits(version: str, limit: str) -> None:
    plugins = {"filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeName"}, {"name": limit}]}}
    loaded = load(version, **profile_document(version, plugins, [{"name": limit}]))
    assert names(loaded, "filter") == ["NodeName", "NodeVolumeLimits"]
    assert names(loaded, "preFilter").count("NodeVolumeLimits") == 1
    assert said(loaded, limit, "NodeVolumeLimits counts them")
    assert said(loaded, "pluginConfig[0]", "ignored")


KEPT = LoadOptions(keep_limits=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("limit", LIMITS)
def test_volume_limits_per_cloud_that_a_file_names_stay_when_it_is_to_be_run(version: str, limit: str) -> None:
    plugins = {"filter": {"disabled": [{"name": "*"}], "enabled": [{"name": limit}, {"name": "NodeName"}]}}
    loaded = load(version, KEPT, **profile_document(version, plugins, [{"name": limit}]))
    assert names(loaded, "filter") == [limit, "NodeName"]
    assert loaded.retired & set(LIMITS) == {limit}
    assert said(loaded, limit, "run for this file only")
    assert said(loaded, "pluginConfig[0]", "ignored")


@pytest.mark.parametrize("version", VERSIONS)
def test_volume_limits_that_only_the_defaults_of_a_version_had_are_counted_by_node_volume_limits(version: str) -> None:
    assert load(version, KEPT) == load(version)
    assert not load(version, KEPT).retired & set(LIMITS)


def test_v1beta3_keeps_a_limit_for_all_points() -> None:
    plugins = {"multiPoint": {"enabled": [{"name": "EBSLimits"}]}}
    loaded = load("v1beta3", KEPT, profiles=[{"plugins": plugins}])
    found = names(loaded, "filter")
    assert {"EBSLimits", "NodeVolumeLimits"} <= set(found)
    assert loaded.retired == {"EBSLimits"}


def test_v1_refuses_the_limits_whoever_reads_it() -> None:
    plugins = {"filter": {"enabled": [{"name": "EBSLimits"}]}}
    with pytest.raises(ConfigError, match="EBSLimits"):
        load("v1", KEPT, profiles=[{"plugins": plugins}])


def test_v1beta3_names_a_limit_for_all_points() -> None:
    for off in ([], [{"name": "*"}]):
        plugins = {"multiPoint": {"disabled": off, "enabled": [{"name": "EBSLimits"}]}}
        plugins |= {
            "queueSort": {"enabled": [{"name": "PrioritySort"}]},
            "bind": {"enabled": [{"name": "DefaultBinder"}]},
        }
        found = names(load("v1beta3", profiles=[{"plugins": plugins}]), "filter")
        assert found.count("NodeVolumeLimits") == 1
        assert ("NodeName" in found) == (not off)


# -- fields that are gone ----------------------------------------------------------------------------------------


def test_v1alpha1_is_one_profile() -> None:
    loaded = load(
        "v1alpha1",
        schedulerName="mine",
        hardPodAffinitySymmetricWeight=17,
        bindTimeoutSeconds=30,
        plugins={"score": {"enabled": [{"name": "NodeLabel"}]}},
        pluginConfig=[{"name": "NodeLabel", "args": {"presentLabelsPreference": ["ssd"]}}],
    )
    (profile,) = loaded.config.profiles
    assert profile.scheduler_name == "mine"
    assert profile.args_for("InterPodAffinity").hard_pod_affinity_weight == 17
    assert profile.args_for("VolumeBinding").bind_timeout_seconds == 30
    assert profile.args_for("NodeLabel") == {"presentLabelsPreference": ["ssd"]}
    assert "NodeLabel" in loaded.retired


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2"])
def test_fields_of_the_alpha_versions_are_converted(version: str) -> None:
    plugins = {"unreserve": {"enabled": [{"name": "VolumeBinding"}, {"name": "Mine"}]}}
    loaded = load(
        version,
        disablePreemption=True,
        bindTimeoutSeconds=0,
        healthzBindAddress="0.0.0.0:10251",
        metricsBindAddress="0.0.0.0:10251",
        leaderElection={"lockObjectNamespace": "ns", "lockObjectName": "lock", "resourceLock": "endpoints"},
        **profile_document(version, plugins),
    )
    profile, election = loaded.config.profiles[0], loaded.config.leader_election
    assert "DefaultPreemption" not in profile.plugins.enabled_names()
    assert [plugin.name for plugin in profile.plugins.reserve.enabled] == ["VolumeBinding", "Mine"]
    assert profile.args_for("VolumeBinding") == VolumeBindingArgs(bind_timeout_seconds=0)
    assert (election.resource_namespace, election.resource_name, election.resource_lock) == ("ns", "lock", "leases")
    assert said(loaded, "healthzBindAddress", "--secure-port")
    assert said(loaded, "metricsBindAddress", "--secure-port")
    assert said(loaded, "leaderElection.resourceLock endpoints", "leases")
    assert said(loaded, "unreserve", "reserve")


def test_post_filter_of_v1alpha1_is_pre_score() -> None:
    loaded = load("v1alpha1", plugins={"postFilter": {"enabled": [{"name": "Mine"}]}})
    plugins = loaded.config.profiles[0].plugins
    assert "Mine" in [plugin.name for plugin in plugins.pre_score.enabled]
    assert [plugin.name for plugin in plugins.post_filter.enabled] == ["DefaultPreemption"]
    assert said(loaded, "postFilter", "preScore")


def test_default_pod_topology_spread_is_what_selector_spread_was_called() -> None:
    plugins = {"score": {"disabled": [{"name": "DefaultPodTopologySpread"}]}}
    loaded = load("v1alpha2", profiles=[{"plugins": plugins}])
    assert "SelectorSpread" not in dict(scores(loaded))
    assert said(loaded, "DefaultPodTopologySpread", "SelectorSpread")


def test_failure_domains_are_ignored_with_a_warning() -> None:
    assert said(load("v1alpha1", failureDomains="a,b"), "failureDomains")


def test_extenders_of_v1alpha2_are_in_policy_style_and_without_regard_to_case() -> None:
    extender = {
        "URLPrefix": "https://x", "FilterVerb": "filter", "enablehttps": True, "httpTimeout": 30_000_000_000,
        "tlsconfig": {"Insecure": True}, "managedResources": [{"NAME": "example.com/a", "ignoredbyscheduler": True}],
    }  # fmt: skip
    (found,) = load("v1alpha2", extenders=[extender]).config.extenders
    assert (found.url_prefix, found.filter_verb, found.enable_https) == ("https://x", "filter", True)
    assert found.http_timeout == Duration.of_seconds(30)
    assert found.tls_config is not None
    assert found.tls_config.insecure
    assert found.managed_resources[0].ignored_by_scheduler
    error = refused("v1alpha2", extenders=[{"urlPrefix": "a", "URLPREFIX": "b"}])
    assert "extenders[0].urlPrefix: given twice" in str(error)


def test_older_pod_topology_spread_defaults_to_a_list_where_constraints_are_given() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    entry = {"name": "PodTopologySpread", "args": {"defaultConstraints": [constraint]}}

    def args(options: LoadOptions | None, entry: JSON) -> PodTopologySpreadArgs:
        found = load("v1beta1", options, profiles=[{"pluginConfig": [entry]}]).config.profiles[0]
        return found.args_as("PodTopologySpread", PodTopologySpreadArgs)

    assert args(None, entry).defaulting_type == "List"
    assert args(None, {"name": "PodTopologySpread", "args": {}}).defaulting_type == "System"
    assert args(SPREAD_OFF, {"name": "PodTopologySpread", "args": {}}).defaulting_type == "List"
    assert (
        args(SPREAD_OFF, {"name": "PodTopologySpread", "args": {"defaultingType": "System"}}).defaulting_type
        == "System"
    )


def test_storage_scoring_keeps_the_old_slope() -> None:
    options = LoadOptions(gates=FeatureGates.parse("StorageCapacityScoring=true"))
    for version in ("v1beta2", "v1beta3"):
        shape = load(version, options).config.profiles[0].args_for("VolumeBinding").shape
        assert [(point.utilization, point.score) for point in shape] == [(0, 0), (100, 10)]
    today = load("v1", options).config.profiles[0].args_for("VolumeBinding").shape
    assert [(point.utilization, point.score) for point in today] == [(0, 10), (100, 0)]


def test_args_may_name_their_own_version_only() -> None:
    def entry(version: str) -> JSON:
        args = {"apiVersion": f"{GROUP}/{version}", "kind": "InterPodAffinityArgs", "hardPodAffinityWeight": 5}
        return {"profiles": [{"pluginConfig": [{"name": "InterPodAffinity", "args": args}]}]}

    for version in ("v1beta1", "v1beta2", "v1beta3"):
        assert (
            load(version, **entry(version)).config.profiles[0].args_for("InterPodAffinity").hard_pod_affinity_weight
            == 5
        )
    assert "decoding args for plugin InterPodAffinity" in str(refused("v1beta2", **entry("v1")))


def test_retired_plugins_are_known_to_the_versions_that_had_them() -> None:
    plugins = {"filter": {"enabled": [{"name": "NodeLabel"}]}}
    assert load("v1beta1", profiles=[{"plugins": plugins}]).retired >= {"NodeLabel"}
    assert load("v1beta2", profiles=[{"plugins": plugins}]).retired == frozenset()
    spread = {"score": {"enabled": [{"name": "SelectorSpread"}]}}
    assert load("v1beta3", profiles=[{"plugins": spread}]).retired == {"SelectorSpread"}
    assert not RETIRED_PLUGINS.keys() & IN_TREE.keys()
    with pytest.raises(ConfigError, match='"NodeLabel" does not exist'):
        expand_profiles(load("v1", profiles=[{"plugins": plugins}]).config, IN_TREE_CAPABILITIES)


def test_the_arguments_of_retired_plugins_are_completed() -> None:
    entries = [
        {"name": "NodeResourcesMostAllocated", "args": {"resources": [{"name": "cpu"}]}},
        {"name": "NodeResourcesLeastAllocated", "args": {}},
        {"name": "RequestedToCapacityRatio", "args": {"shape": [{"utilization": 0, "score": 10}]}},
        {"name": "ServiceAffinity", "args": {"affinityLabels": ["zone"], "antiAffinityLabelsPreference": []}},
    ]
    profile = load("v1alpha2", profiles=[{"pluginConfig": entries}]).config.profiles[0]
    both = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    assert profile.args_for("NodeResourcesMostAllocated") == {"resources": both[:1]}
    assert profile.args_for("NodeResourcesLeastAllocated") == {"resources": both}
    assert profile.args_for("RequestedToCapacityRatio") == {
        "shape": [{"utilization": 0, "score": 10}],
        "resources": both,
    }
    assert profile.args_for("ServiceAffinity") == {"affinityLabels": ["zone"]}


# -- bad files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_unknown_fields_are_errors_from_v1alpha2(version: str) -> None:
    error = refused(version, parallelismm=3, profiles=[{"schedulerNam": "x"}])
    assert str(error) == 'strict decoding error: unknown field "parallelismm", unknown field "profiles[0].schedulerNam"'
    assert "profiles[0].schedulerNam: no such field; did you mean schedulerName?" in error.details


def test_v1alpha1_is_read_leniently() -> None:
    text = to_yaml(document("v1alpha1", profiles=[])) + "schedulerName: a\nschedulerName: b\n"
    loaded = load_any(text)
    assert loaded.config.profiles[0].scheduler_name == "b"
    assert said(loaded, "profiles: no such field", "ignored")
    assert said(loaded, 'key "schedulerName" already set in map', "ignored")


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta3"])
def test_keys_given_twice_are_errors_elsewhere(version: str) -> None:
    with pytest.raises(ConfigError, match='key "enableProfiling" already set in map'):
        load_any(to_yaml(document(version)) + "enableProfiling: true\nenableProfiling: true\n")


@pytest.mark.parametrize(
    ("version", "fields", "text", "where"),
    [
        ("v1beta1", {"parallelism": "x"}, "KubeSchedulerConfiguration.parallelism of type int32", "parallelism:"),
        ("v1alpha2", {"profiles": [{"plugins": {"score": []}}]}, "array", "profiles[0].plugins.score: a list"),
        ("v1alpha1", {"plugins": {"filter": {"enabled": [{"name": 3}]}}}, "number", "plugins.filter.enabled[0].name:"),
        ("v1alpha2", {"extenders": [{"httpTimeout": "5s"}]}, "string", "extenders[0].httpTimeout:"),
        ("v1beta2", {"extenders": [{"httpTimeout": 5}]}, "number", "extenders[0].httpTimeout:"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_type_are_named_with_their_path(version: str, fields: JSON, text: str, where: str) -> None:
    error = refused(version, **fields)
    assert error.stage == "decode"
    assert text in str(error)
    assert any(detail.startswith(where) for detail in error.details)


def retired_entry(name: str, args: JSON) -> JSON:
    return {"profiles": [{}, {"schedulerName": "b", "pluginConfig": [{"name": name, "args": args}]}]}


@pytest.mark.parametrize(
    ("version", "fields", "error"),
    [
        ("v1alpha1", {"hardPodAffinitySymmetricWeight": 101}, "hardPodAffinitySymmetricWeight: Invalid value: 101: not in valid range [0-100]"),
        ("v1alpha2", {"bindTimeoutSeconds": -1}, "bindTimeoutSeconds: Invalid value: -1: must be zero or a positive number of seconds"),
        ("v1beta2", {"healthzBindAddress": "10251"}, 'healthzBindAddress: Invalid value: "10251": must be an IP address and a port, such as 0.0.0.0:10251'),
        ("v1beta2", {"metricsBindAddress": "0.0.0.0:70000"}, 'metricsBindAddress: Invalid value: "0.0.0.0:70000": must be an IP address and a port, such as 0.0.0.0:10251'),
        ("v1beta3", {"parallelism": -1}, "parallelism: Invalid value: -1: should be an integer value greater than zero"),
        ("v1beta1", retired_entry("NodeLabel", {"presentLabels": ["a"], "absentLabels": ["a", "b"]}), 'profiles[1].pluginConfig[0].args.presentLabels: Invalid value: ["a"]: a label is in both presentLabels and absentLabels; leave it in one of them'),
        ("v1beta1", retired_entry("NodeLabel", {"presentLabelsPreference": ["a"], "absentLabelsPreference": ["a"]}), 'profiles[1].pluginConfig[0].args.presentLabelsPreference: Invalid value: ["a"]: a label is in both presentLabelsPreference and absentLabelsPreference; leave it in one of them'),
        ("v1beta1", retired_entry("ServiceAffinity", {"affinityLabels": [""]}), "profiles[1].pluginConfig[0].args.affinityLabels[0]: Required value: a label's name"),
        ("v1beta1", retired_entry("RequestedToCapacityRatio", {}), "profiles[1].pluginConfig[0].args.shape: Required value: at least one point must be specified"),
        ("v1beta1", retired_entry("NodeResourcesLeastAllocated", {"resources": [{"name": "cpu", "weight": 101}]}), "profiles[1].pluginConfig[0].args.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]"),
        ("v1alpha1", {"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}]}, "pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]"),
        ("v1alpha1", {"leaderElection": {"resourceLock": "odd"}}, 'leaderElection.resourceLock: Invalid value: "odd": resourceLock value must be "leases"'),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_with_the_path_they_have_in_the_file(
    version: str, fields: JSON, error: str
) -> None:
    profiles = fields.get("profiles")
    if profiles:
        fields = {"profiles": [{"schedulerName": "a", **profiles[0]}, *profiles[1:]]}
    caught = refused(version, **fields)
    assert caught.stage == "validate"
    assert str(caught) == error


def test_bad_addresses_were_no_error_before_v1beta2() -> None:
    assert said(load("v1beta1", healthzBindAddress="nonsense"), "healthzBindAddress is ignored")


def test_several_profiles_need_names_as_in_v1() -> None:
    assert str(refused("v1beta1", profiles=[{}, {}])).startswith("[profiles[0].schedulerName: Required value")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: no such file"):
        load_any_file(tmp_path / "gone.yaml")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_convert_writes_is_read_back_as_the_same(version: str) -> None:
    loaded = load(version, **COMMON)
    text = dump_yaml(loaded.config)
    again = load_any(text)
    assert again == Loaded(loaded.config)
    assert effective(again) == effective(loaded)
