"""Merging plugin sets, expanding multiPoint, and each error of building a profile."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubesched.scheduler.config import (
    DEFAULT_GATES,
    IN_TREE,
    IN_TREE_CAPABILITIES,
    POINTS,
    ConfigError,
    FeatureGates,
    KubeSchedulerConfiguration,
    NodeResourcesFitArgs,
    Plugin,
    PluginConfig,
    PluginSet,
    ProfileConfig,
    default_config,
    dump_yaml,
    expand_profile,
    expand_profiles,
    ignore_extender_resources,
    load_config,
    load_config_data,
    plugin_type,
)
from kubesched.scheduler.config.args import ARGS_TYPES
from kubesched.scheduler.config.defaults import merge_plugin_set
from kubesched.scheduler.config.profiles import Expanded

MINE = {
    "Sorter": frozenset({"queueSort"}),
    "Binder": frozenset({"bind"}),
    "N": frozenset({"score"}),
    "T": frozenset({"filter", "score"}),
    "S": frozenset({"score"}),
    "W": frozenset({"score"}),
}
BASE = [{"name": "Sorter"}, {"name": "Binder"}]


def names(*given: str | tuple[str, int]) -> list[dict[str, Any]]:
    pairs = [item if isinstance(item, tuple) else (item, 0) for item in given]
    return [{"name": name, "weight": weight} for name, weight in pairs]


def configured(*profiles: dict[str, Any], **fields: Any) -> KubeSchedulerConfiguration:
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return load_config_data({**head, "profiles": list(profiles), **fields})


def profile_of(**plugins: Any) -> ProfileConfig:
    return configured({"plugins": plugins}).profiles[0]


def only(*multi: str | tuple[str, int], **points: Any) -> ProfileConfig:
    """A profile without the defaults: a sorter, a binder and these multiPoint plugins, and points as given."""
    multi_point = {"disabled": [{"name": "*"}], "enabled": BASE + names(*multi)}
    return profile_of(multiPoint=multi_point, **points)


def plugins(expanded: Expanded, point: str) -> list[str]:
    return [name for name, _ in expanded[point]]


def test_the_default_profile_runs_upstreams_plugins() -> None:
    expanded = expand_profile(default_config().profiles[0], IN_TREE_CAPABILITIES)
    assert tuple(expanded) == POINTS
    assert expanded["score"] == [
        ("TaintToleration", 3),
        ("NodeAffinity", 2),
        ("NodeResourcesFit", 1),
        ("VolumeBinding", 1),
        ("PodTopologySpread", 2),
        ("InterPodAffinity", 2),
        ("DynamicResources", 2),
        ("NodeResourcesBalancedAllocation", 1),
        ("ImageLocality", 1),
    ]
    assert plugins(expanded, "preEnqueue") == ["SchedulingGates", "DynamicResources", "DefaultPreemption"]
    assert plugins(expanded, "postFilter") == ["DynamicResources", "DefaultPreemption"]
    assert expanded["placementScore"] == [("NodeResourcesFit", 1)]
    assert not expanded["permit"]
    assert not expanded["placementGenerate"]


def test_alpha_gates_append_their_plugins() -> None:
    gates = FeatureGates(
        {
            **DEFAULT_GATES.values,
            **dict.fromkeys(("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling"), True),
        }
    )
    expanded = expand_profile(default_config(gates=gates).profiles[0], IN_TREE_CAPABILITIES, gates=gates)
    assert plugins(expanded, "permit") == ["GangScheduling"]
    assert plugins(expanded, "preEnqueue")[-1] == "GangScheduling"
    assert plugins(expanded, "placementGenerate") == ["TopologyPlacementGenerator"]
    assert expanded["placementScore"] == [("NodeResourcesFit", 1), ("PodGroupPodsCount", 1)]


def test_a_gate_that_is_off_takes_its_plugin_away() -> None:
    gates = FeatureGates.parse("NodeDeclaredFeatures=false,InPlacePodLevelResourcesVerticalScaling=false")
    expanded = expand_profile(default_config(gates=gates).profiles[0], IN_TREE_CAPABILITIES)
    assert "NodeDeclaredFeatures" not in plugins(expanded, "filter")


def test_the_in_tree_table_holds_23_plugins_with_known_points() -> None:
    assert len(IN_TREE) == 23
    assert set().union(*IN_TREE_CAPABILITIES.values()) == set(POINTS) - {"postBind"}
    assert ARGS_TYPES["NodeResourcesFit"] is NodeResourcesFitArgs
    assert "NodeName" not in ARGS_TYPES


# -- merging -------------------------------------------------------------------------------------------------


def plugin_set(enabled: str = "", disabled: str = "") -> PluginSet:
    """Plugins written like ``A:3 B`` (a weight after the colon)."""

    def parse(text: str) -> tuple[Plugin, ...]:
        pairs = (item.partition(":") for item in text.split())
        return tuple(Plugin(name=name, weight=int(weight or 0)) for name, _, weight in pairs)

    return PluginSet(enabled=parse(enabled), disabled=parse(disabled))


@pytest.mark.parametrize(
    ("default", "custom", "merged"),
    [
        pytest.param(plugin_set("A:1 B"), plugin_set(), plugin_set("A:1 B"), id="nothing given keeps the defaults"),
        pytest.param(plugin_set("A:1 B"), plugin_set("C"), plugin_set("A:1 B C"), id="new plugins come last"),
        pytest.param(plugin_set("A:1 B:2"), plugin_set("C A:7"), plugin_set("A:7 B:2 C"), id="in the default's place"),
        pytest.param(plugin_set("A:3 B"), plugin_set("A"), plugin_set("A B"), id="an omitted weight resets it"),
        pytest.param(plugin_set("A B C"), plugin_set("", "B"), plugin_set("A C", "B"), id="one default switched off"),
        pytest.param(plugin_set("A B"), plugin_set("B C", "*"), plugin_set("B C", "*"), id="all switched off"),
        pytest.param(plugin_set("A B"), plugin_set("A", "A"), plugin_set("B A", "A"), id="off and on again moves last"),
        pytest.param(plugin_set("A B"), plugin_set("C C"), plugin_set("A B C C"), id="duplicates stay"),
        pytest.param(plugin_set("A B"), plugin_set("A:1 A:2"), plugin_set("A:2 B A:1"), id="the last duplicate wins"),
        pytest.param(plugin_set("A B", "A"), plugin_set("", "C"), plugin_set("B", "C A"), id="default disabled counts"),
    ],
)
def test_a_custom_set_is_merged_into_the_default(default: PluginSet, custom: PluginSet, merged: PluginSet) -> None:
    assert merge_plugin_set(default, custom) == merged


# -- expanding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "score"),
    [
        pytest.param(only("N", "T", "S"), [("N", 1), ("T", 1), ("S", 1)], id="multiPoint alone, in its order"),
        pytest.param(
            only("N", "T", "S", score={"enabled": names("S", "T")}),
            [("S", 1), ("T", 1), ("N", 1)],
            id="overrides come first, in the point's order",
        ),
        pytest.param(
            only("T", "S", score={"enabled": names("W", "S", "T")}),
            [("S", 1), ("T", 1), ("W", 1)],
            id="what only the point names comes last",
        ),
        pytest.param(
            only("N", "T", score={"disabled": [{"name": "*"}], "enabled": names("T")}),
            [("T", 1)],
            id="a star at the point leaves its own list",
        ),
        pytest.param(only("N", "T", score={"disabled": names("N")}), [("T", 1)], id="one switched off at the point"),
        pytest.param(
            only(("N", 5), ("T", 6), score={"enabled": names(("T", 3))}),
            [("T", 3), ("N", 5)],
            id="the point's weight wins",
        ),
        pytest.param(
            only(("T", 6), score={"enabled": names("T")}), [("T", 1)], id="an override without weight resets it"
        ),
        pytest.param(
            only("N", score={"enabled": names(("T", 2**31 - 1))}),
            [("N", 1), ("T", 2**31 - 1)],
            id="the greatest weight is accepted",
        ),
        pytest.param(
            only("N", "T", score={"enabled": names("T"), "disabled": names("T")}),
            [("N", 1), ("T", 1)],
            id="on and off at the point stays on, but is no override",
        ),
    ],
)
def test_multi_point_is_expanded(profile: ProfileConfig, score: list[tuple[str, int]]) -> None:
    assert expand_profile(profile, MINE)["score"] == score


def test_only_capable_plugins_join_a_point_through_multi_point() -> None:
    expanded = expand_profile(only("N", "T"), MINE)
    assert expanded["filter"] == [("T", 0)]
    assert plugins(expanded, "queueSort") == ["Sorter"]


def test_without_multi_point_the_points_stand_alone() -> None:
    multi = {"disabled": [{"name": "*"}]}
    profile = profile_of(multiPoint=multi, queueSort={"enabled": names("Sorter")}, bind={"enabled": names("Binder")})
    expanded = expand_profile(profile, MINE)
    assert {point: listed for point, listed in expanded.items() if listed} == {
        "bind": [("Binder", 0)],
        "queueSort": [("Sorter", 0)],
    }


ERRORS = [
    ("an unknown name at multiPoint is missed at the first point", only("Foo"), 'PreFilterPlugin "Foo" does not exist'),
    (
        "an unknown name at a point",
        only(filter={"enabled": names("Foo")}),
        'FilterPlugin "Foo" does not exist',
    ),
    (
        "explicit lists are read before multiPoint",
        only("Foo", score={"enabled": names("Bar")}),
        'ScorePlugin "Bar" does not exist',
    ),
    (
        "points are read in upstream's order",
        only(preEnqueue={"enabled": names("Foo")}, permit={"enabled": names("Bar")}),
        'PermitPlugin "Bar" does not exist',
    ),
    (
        "a plugin that lacks the point",
        only(filter={"enabled": names("S")}),
        'plugin "S" does not extend FilterPlugin plugin',
    ),
    (
        "a plugin listed twice at a point",
        only(score={"enabled": names("S", "S")}),
        'plugin "S" already registered as "ScorePlugin"',
    ),
    ("a plugin listed twice at multiPoint", only("S", "S"), 'plugin "S" already registered as "ScorePlugin"'),
    (
        "no sorter",
        only(queueSort={"disabled": names("Sorter")}),
        'only one queue sort plugin required for profile with scheduler name "default-scheduler", but got 0',
    ),
    (
        "no binder",
        only(bind={"disabled": names("*")}),
        'at least one bind plugin is needed for profile with scheduler name "default-scheduler"',
    ),
    (
        "the sorter is missed before the binder and weights",
        only(("S", -1), bind={"disabled": names("*")}, queueSort={"disabled": names("*")}),
        'only one queue sort plugin required for profile with scheduler name "default-scheduler", but got 0',
    ),
    ("a negative weight", only(("S", -1)), "score plugins: total score of Score plugins could overflow"),
]


@pytest.mark.parametrize(("profile", "text"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_a_profile_that_cannot_be_built(profile: ProfileConfig, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand_profile(profile, MINE)
    assert caught.value.stage == "framework"
    assert str(caught.value) == text


def test_two_sorters_are_one_too_many() -> None:
    capabilities = {**MINE, "Other": frozenset({"queueSort"})}
    with pytest.raises(ConfigError, match="but got 2"):
        expand_profile(only("Other"), capabilities)


def test_one_placement_generator_at_most() -> None:
    capabilities = {**MINE, "P": frozenset({"placementGenerate"}), "Q": frozenset({"placementGenerate"})}
    with pytest.raises(ConfigError, match="at most one placement generate plugin is allowed for profile with"):
        expand_profile(only("P", "Q"), capabilities)


def test_placement_weights_are_checked_under_their_own_name() -> None:
    capabilities = {**MINE, "P": frozenset({"placementScore"})}
    assert expand_profile(only(("P", 4)), capabilities)["placementScore"] == [("P", 4)]
    with pytest.raises(ConfigError, match=r"^placement score plugins: total score of Score plugins could overflow$"):
        expand_profile(only(("P", -1)), capabilities)


def test_weights_that_are_too_many_overflow() -> None:
    huge = replace(only("N", "S"), plugins=replace(only().plugins, multi_point=plugin_set("Sorter Binder N:1 S:1")))
    entries = tuple(replace(plugin, weight=2**62) for plugin in huge.plugins.multi_point.enabled)
    huge = replace(huge, plugins=replace(huge.plugins, multi_point=PluginSet(enabled=entries)))
    with pytest.raises(ConfigError, match="could overflow"):
        expand_profile(huge, MINE)


def test_a_plugin_configured_twice_is_refused() -> None:
    profile = replace(only("N"), plugin_config=(PluginConfig(name="N", args={}), PluginConfig(name="N", args={})))
    with pytest.raises(ConfigError, match=r"^repeated config for plugin N$"):
        expand_profile(profile, MINE)


# -- plugins that upstream has and we lack -------------------------------------------------------------------

LACKING = {name: points for name, points in IN_TREE_CAPABILITIES.items() if name != "DynamicResources"}
UNAVAILABLE = 'plugin "DynamicResources" is part of Kubernetes but not available in this version of kubesched'


def test_a_default_that_we_lack_is_skipped() -> None:
    expanded = expand_profile(default_config().profiles[0], LACKING, known_missing={"DynamicResources"})
    full = expand_profile(default_config().profiles[0], IN_TREE_CAPABILITIES)
    assert expanded == {
        point: [pair for pair in pairs if pair[0] != "DynamicResources"] for point, pairs in full.items()
    }


def test_an_undeclared_missing_default_is_an_error() -> None:
    with pytest.raises(ConfigError, match='PreFilterPlugin "DynamicResources" does not exist'):
        expand_profile(default_config().profiles[0], LACKING)


def test_a_written_configuration_may_list_what_we_lack() -> None:
    profile = load_config(dump_yaml(default_config())).profiles[0]
    assert "DynamicResources" not in plugins(
        expand_profile(profile, LACKING, known_missing={"DynamicResources"}), "score"
    )


@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(profile_of(score={"enabled": names("DynamicResources")}), id="at a point"),
        pytest.param(profile_of(multiPoint={"enabled": names(("DynamicResources", 9))}), id="with a weight of its own"),
        pytest.param(
            profile_of(multiPoint={"enabled": names(("DynamicResources", 2)), "disabled": names("DynamicResources")}),
            id="switched off and on again",
        ),
        pytest.param(
            profile_of(
                multiPoint={
                    "enabled": names("PrioritySort", "DefaultBinder", ("DynamicResources", 2)),
                    "disabled": names("*"),
                }
            ),
            id="in a list of one's own",
        ),
    ],
)
def test_what_we_lack_is_refused_when_named_by_the_user(profile: ProfileConfig) -> None:
    with pytest.raises(ConfigError) as caught:
        expand_profile(profile, LACKING, known_missing={"DynamicResources"})
    assert str(caught.value) == UNAVAILABLE


# -- all profiles --------------------------------------------------------------------------------------------


def test_errors_name_the_profile() -> None:
    config = configured({"schedulerName": "a"}, {"schedulerName": "b", "plugins": {"bind": {"disabled": names("*")}}})
    with pytest.raises(ConfigError) as caught:
        expand_profiles(config, IN_TREE_CAPABILITIES)
    assert str(caught.value) == (
        "initializing profiles: creating profile for scheduler name b: "
        'at least one bind plugin is needed for profile with scheduler name "b"'
    )


def test_arguments_are_checked_before_lists_are_read() -> None:
    config = configured(
        {
            "plugins": {"filter": {"enabled": names("Foo")}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/a", "a/b/c"]}}],
        }
    )
    with pytest.raises(ConfigError) as caught:
        expand_profiles(config, IN_TREE_CAPABILITIES)
    assert str(caught.value).startswith(
        "initializing profiles: creating profile for scheduler name default-scheduler: "
        'initializing plugin "NodeResourcesFit": ignoredResources[1]: Invalid value: "a/b/c": a qualified name must'
    )


def test_arguments_of_a_plugin_that_is_not_enabled_are_not_checked() -> None:
    config = configured(
        {
            "plugins": {"multiPoint": {"disabled": names("NodeResourcesFit")}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["a/b/c"]}}],
        }
    )
    assert "NodeResourcesFit" not in plugins(
        expand_profiles(config, IN_TREE_CAPABILITIES)["default-scheduler"], "filter"
    )


def test_profiles_that_sort_differently_are_refused() -> None:
    capabilities = {**IN_TREE_CAPABILITIES, "Mine": frozenset({"queueSort"})}
    other = {"multiPoint": {"enabled": names("Mine"), "disabled": names("PrioritySort")}}
    config = configured({"schedulerName": "a"}, {"schedulerName": "b", "plugins": other})
    with pytest.raises(ConfigError) as caught:
        expand_profiles(config, capabilities)
    text = 'initializing profiles: different queue sort plugins for profile "b": "Mine", first: "PrioritySort"'
    assert str(caught.value) == text


def test_profiles_that_sort_with_different_arguments_are_refused() -> None:
    config = configured(
        {"schedulerName": "a", "pluginConfig": [{"name": "PrioritySort", "args": {"x": 1}}]}, {"schedulerName": "b"}
    )
    with pytest.raises(ConfigError) as caught:
        expand_profiles(config, IN_TREE_CAPABILITIES)
    assert str(caught.value) == 'initializing profiles: different queue sort plugin args for profile "b"'


# -- extenders' resources ------------------------------------------------------------------------------------


def test_resources_that_extenders_manage_alone_replace_what_fit_ignores() -> None:
    fit = {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/old"]}}
    managed = [{"name": "example.com/a", "ignoredByScheduler": True}, {"name": "example.com/b"}]
    config = configured(
        {"schedulerName": "a", "pluginConfig": [fit]}, {"schedulerName": "b"}, extenders=[{"managedResources": managed}]
    )
    for profile in ignore_extender_resources(config).profiles:
        assert profile.args_as("NodeResourcesFit", NodeResourcesFitArgs).ignored_resources == ("example.com/a",)


def test_extenders_that_leave_nothing_out_change_nothing() -> None:
    config = configured({}, extenders=[{"managedResources": [{"name": "example.com/b"}]}])
    assert ignore_extender_resources(config) is config


def test_ignoring_resources_needs_fit_arguments_in_every_profile() -> None:
    bare = {"plugins": {"multiPoint": {"disabled": names("*"), "enabled": names("PrioritySort", "DefaultBinder")}}}
    managed = [{"name": "example.com/a", "ignoredByScheduler": True}]
    config = configured(bare, extenders=[{"managedResources": managed}])
    text = "^couldn't build extenders: can't find NodeResourcesFitArgs in plugin config$"
    with pytest.raises(ConfigError, match=text):
        ignore_extender_resources(config)
    with pytest.raises(ConfigError, match=text):
        expand_profiles(config, IN_TREE_CAPABILITIES)


def test_point_types_are_spelled_like_upstreams() -> None:
    assert [plugin_type(point) for point in ("preFilter", "bind", "placementGenerate")] == [
        "PreFilterPlugin",
        "BindPlugin",
        "PlacementGeneratePlugin",
    ]


def test_profiles_are_found_by_name() -> None:
    config = configured({"schedulerName": "a"}, {"schedulerName": "b"})
    found = config.profile("b")
    assert found is config.profiles[1]
    assert config.profile("c") is None
    with pytest.raises(KeyError):
        config.profiles[0].plugins.at("sign")
