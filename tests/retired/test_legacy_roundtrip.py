"""Whatever an older file says: it is refused with a reason, or converted to v1 text that reads back as the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from kubesched.api.yamltext import to_yaml
from kubesched.retired.config import RETIRED_PLUGINS, SPREAD_GATE, load_any
from kubesched.scheduler.config import (
    IN_TREE,
    IN_TREE_CAPABILITIES,
    ConfigError,
    dump_yaml,
    expand_profiles,
    load_config,
)
from kubesched.scheduler.config.older import LoadOptions

JSON = dict[str, Any]
PER_POINT = (
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
CAPABILITIES = {**IN_TREE_CAPABILITIES, **RETIRED_PLUGINS}

label = st.sampled_from(["zone", "rack", "disk"])
labels = st.lists(label, max_size=2, unique=True)
resources = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["cpu", "memory", "example.com/gpu"])}, optional={"weight": st.integers(0, 100)}),
    max_size=2,
)  # fmt: skip
shape = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=3, unique_by=lambda p: p[0]).map(
    lambda points: [{"utilization": utilization, "score": score} for utilization, score in sorted(points)]
)  # fmt: skip


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[JSON]:
    return st.fixed_dictionaries({}, optional=fields)


RETIRED: dict[str, st.SearchStrategy[JSON]] = {
    "NodeLabel": st.builds(
        lambda present, absent, liked: {"presentLabels": present, "absentLabels": [item for item in absent if item not in present],
                                        "presentLabelsPreference": liked},
        labels, labels, labels,
    ),
    "ServiceAffinity": optional(affinityLabels=labels, antiAffinityLabelsPreference=labels),
    "NodeResourcesLeastAllocated": optional(resources=resources),
    "NodeResourcesMostAllocated": optional(resources=resources),
    "RequestedToCapacityRatio": st.fixed_dictionaries({"shape": shape}, optional={"resources": resources}),
}  # fmt: skip
TODAY: dict[str, st.SearchStrategy[JSON]] = {
    "InterPodAffinity": optional(hardPodAffinityWeight=st.integers(0, 100)),
    "PodTopologySpread": optional(defaultingType=st.just("List"), defaultConstraints=st.just([])),
    "VolumeBinding": optional(bindTimeoutSeconds=st.integers(0, 9)),
    "Mine": optional(some=st.integers()),
}
plugin = st.builds(
    lambda name, weight: {"name": name, "weight": weight},
    st.sampled_from([*IN_TREE, *RETIRED_PLUGINS, "EBSLimits", "CinderLimits", "Mine"]),
    st.integers(0, 100),
)
plugin_set = optional(
    enabled=st.lists(plugin, max_size=3), disabled=st.lists(plugin | st.just({"name": "*"}), max_size=2)
)


def plugin_config(version: str) -> st.SearchStrategy[list[JSON]]:
    known = {**TODAY, **({} if version in ("v1beta2", "v1beta3") else RETIRED)}
    return optional(**known).map(lambda args: [{"name": name, "args": value} for name, value in args.items()])


@st.composite
def documents(draw: st.DrawFn) -> JSON:
    version = draw(st.sampled_from(["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3"]))
    points = [
        *PER_POINT,
        *(["unreserve"] if "alpha" in version else []),
        *(["multiPoint"] if version == "v1beta3" else []),
    ]
    plugins = optional(**dict.fromkeys([point for point in points if point != "queueSort"], plugin_set))
    profile = optional(plugins=plugins, pluginConfig=plugin_config(version))
    common = optional(
        percentageOfNodesToScore=st.integers(0, 100),
        leaderElection=optional(resourceLock=st.sampled_from(["leases", "endpoints"]), retryPeriod=st.just("3s")),
        enableProfiling=st.booleans(),
    )
    document: JSON = {
        "apiVersion": f"kubescheduler.config.k8s.io/{version}",
        "kind": "KubeSchedulerConfiguration",
        **draw(common),
    }
    if "alpha" in version:
        document |= draw(optional(disablePreemption=st.booleans(), bindTimeoutSeconds=st.integers(0, 9)))
    if version == "v1alpha1":
        more = optional(
            schedulerName=st.sampled_from(["a", "b"]),
            hardPodAffinitySymmetricWeight=st.integers(0, 100),
            algorithmSource=st.sampled_from([{}, {"provider": "ClusterAutoscalerProvider"}]),
        )
        return {**document, **draw(profile), **draw(more)}
    profiles = draw(st.lists(profile, max_size=2))
    document["profiles"] = [{"schedulerName": f"s{index}", **item} for index, item in enumerate(profiles)]
    if version == "v1alpha2":
        extender = optional(
            urlPrefix=st.just("http://x"), enableHttps=st.booleans(), httpTimeout=st.integers(0, 10**11)
        )
    else:
        extender = optional(urlPrefix=st.just("http://x"), enableHTTPS=st.booleans(), httpTimeout=st.just("7s"))
    return {**document, "extenders": draw(st.lists(extender, max_size=2))}


def outcome(config: Any) -> object:
    """The plugins that would run, or why none would."""
    try:
        return expand_profiles(config, CAPABILITIES)
    except ConfigError as error:
        return str(error)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents(), st.none() | st.booleans())
def test_a_converted_file_reads_back_as_the_same_configuration(document: JSON, spread: bool | None) -> None:
    gates = {} if spread is None else {SPREAD_GATE: spread}
    loaded = load_any(to_yaml(document), LoadOptions(retired_gates=gates))
    again = load_config(dump_yaml(loaded.config))
    assert again == loaded.config
    found = outcome(again)
    assert found == outcome(loaded.config)
    event("refused when built" if isinstance(found, str) else "built")
    assert load_any(document, LoadOptions(retired_gates=gates)) == loaded


predicates = st.one_of(
    st.sampled_from(["HostName", "GeneralPredicates", "MaxEBSVolumeCount", "CheckVolumeBinding"]).map(lambda name: {"name": name}),
    st.builds(lambda names: {"name": "a", "argument": {"serviceAffinity": {"labels": names}}}, labels),
    st.builds(lambda names: {"name": "b", "argument": {"labelsPresence": {"labels": names, "presence": True}}}, labels),
)  # fmt: skip
priorities = st.one_of(
    st.builds(lambda name, weight: {"name": name, "weight": weight},
              st.sampled_from(["MostRequestedPriority", "SelectorSpreadPriority", "EqualPriority"]), st.integers(1, 99)),
    st.builds(lambda key: {"name": key, "weight": 2, "argument": {"labelPreference": {"label": key, "presence": False}}}, label),
)  # fmt: skip
policies = optional(
    predicates=st.lists(predicates, max_size=3),
    priorities=st.lists(priorities, max_size=3),
    hardPodAffinitySymmetricWeight=st.integers(0, 100),
)


@settings(max_examples=60, deadline=None)
@given(policies)
def test_a_converted_policy_reads_back_as_the_same_configuration_and_can_be_built(fields: JSON) -> None:
    loaded = load_any(to_yaml({"apiVersion": "v1", "kind": "Policy", **fields}))
    again = load_config(dump_yaml(loaded.config))
    assert again == loaded.config
    assert isinstance(outcome(again), dict)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**63) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "file", "args", "x"]), inner, max_size=2),
    max_leaves=6,
)  # fmt: skip
FIELDS = ("profiles", "plugins", "pluginConfig", "extenders", "algorithmSource", "leaderElection", "predicates", "priorities",
          "failureDomains", "healthzBindAddress", "bindTimeoutSeconds", "hardPodAffinitySymmetricWeight")  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(
    st.sampled_from(["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3", "Policy"]), st.sampled_from(FIELDS), plain
)
def test_no_value_whatever_raises_anything_but_a_config_error(version: str, name: str, value: Any) -> None:
    group = {"apiVersion": f"kubescheduler.config.k8s.io/{version}", "kind": "KubeSchedulerConfiguration"}
    head = {"apiVersion": "v1", "kind": "Policy"} if version == "Policy" else group
    stage = ""
    try:
        loaded = load_any(to_yaml({**head, name: value}))
    except ConfigError as error:
        stage = error.stage if error.user_message else "says nothing"
    else:
        assert load_config(dump_yaml(loaded.config)) == loaded.config
    assert stage in ("", "decode", "validate", "framework")


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="[]{}:,-&*!|>'\"%@`#?~ \n\tab01<.", max_size=60) | st.binary(max_size=40))
def test_no_text_whatever_raises_anything_but_a_config_error(text: str | bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        load_any(text)
    assert caught.value.stage == "decode"
