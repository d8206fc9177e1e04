"""Writing: the default's exact form, and that reading what was written changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubesched.api.yamltext import to_yaml
from kubesched.scheduler.config import (
    IN_TREE,
    IN_TREE_CAPABILITIES,
    POINTS,
    ConfigError,
    FeatureGates,
    default_config,
    dump_config,
    dump_yaml,
    expand_profiles,
    load_config,
    load_config_data,
)
from kubesched.scheduler.config.decode import parse_document

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}

DEFAULT_HEAD = """\
apiVersion: kubescheduler.config.k8s.io/v1
clientConnection:
  acceptContentTypes: ""
  burst: 100
  contentType: application/vnd.kubernetes.protobuf
  kubeconfig: ""
  qps: 50
enableContentionProfiling: true
enableProfiling: true
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  resourceLock: leases
  resourceName: kube-scheduler
  resourceNamespace: kube-system
  retryPeriod: 2s
parallelism: 16
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- pluginConfig:
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: DefaultPreemptionArgs
      minCandidateNodesAbsolute: 100
      minCandidateNodesPercentage: 10
    name: DefaultPreemption
  - args:
      apiVersion: kubescheduler.config.k8s.io/v1
      bindingTimeout: 10m0s
      filterTimeout: 10s
      kind: DynamicResourcesArgs
    name: DynamicResources
"""


def test_the_default_is_written_as_upstream_writes_it() -> None:
    text = dump_yaml(default_config())
    assert text.startswith(DEFAULT_HEAD)
    assert (
        "  plugins:\n    bind: {}\n    filter: {}\n    multiPoint:\n      enabled:\n      - name: SchedulingGates\n"
        in text
    )
    assert text.endswith("    score: {}\n  schedulerName: default-scheduler\n")


def test_the_written_form_keeps_enabled_registered_plugins_sorted_by_name() -> None:
    profile = {
        "plugins": {"multiPoint": {"disabled": [{"name": "VolumeBinding"}], "enabled": [{"name": "Mine"}]}},
        "pluginConfig": [
            {"name": name, "args": {}}
            for name in ("VolumeBinding", "PodTopologySpread", "Mine", "Absent", "NodeAffinity")
        ],
    }
    config = load_config_data({**HEAD, "profiles": [profile]})
    written = dump_config(config, registered={*IN_TREE, "Mine"})["profiles"][0]["pluginConfig"]
    listed = [entry["name"] for entry in written]
    assert listed == sorted(listed)
    assert {"Mine", "PodTopologySpread", "NodeAffinity"} <= set(listed)
    assert not {"VolumeBinding", "Absent"} & set(listed)
    assert {"VolumeBinding", "Absent"} <= {
        entry["name"] for entry in dump_config(config)["profiles"][0]["pluginConfig"]
    }


def test_gated_fields_are_written_when_their_gate_is_on() -> None:
    gates = FeatureGates.parse("StorageCapacityScoring=true,DRASchedulerFilterTimeout=false")
    entries = dump_config(default_config(gates=gates))["profiles"][0]["pluginConfig"]
    args = {entry["name"]: entry["args"] for entry in entries}
    assert args["VolumeBinding"]["shape"] == [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
    assert "filterTimeout" not in args["DynamicResources"]
    assert args["DynamicResources"]["bindingTimeout"] == "10m0s"


def test_an_empty_shape_is_left_out() -> None:
    strategy = {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": []}}
    fit = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    written = dump_config(load_config_data({**HEAD, "profiles": [{"pluginConfig": [fit]}]}))
    args = {entry["name"]: entry["args"] for entry in written["profiles"][0]["pluginConfig"]}
    assert args["NodeResourcesFit"]["scoringStrategy"]["requestedToCapacityRatio"] == {}


# -- generated configurations --------------------------------------------------------------------------------

label = st.from_regex(r"[A-Za-z0-9]([-_.]?[A-Za-z0-9]){0,8}", fullmatch=True)
resource = label.map(lambda name: f"example.com/{name}")
duration = st.integers(1, 10**12).map(lambda number: f"{number}us")
percent = st.integers(0, 100)
words = st.text(max_size=12)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object in which every field may be missing."""
    return st.fixed_dictionaries({}, optional=fields)


def always(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(fields)


expression = st.one_of(
    always(key=label, operator=st.sampled_from(["In", "NotIn"]), values=st.lists(label, min_size=1, max_size=3)),
    always(key=label, operator=st.sampled_from(["Exists", "DoesNotExist"])),
    always(key=label, operator=st.sampled_from(["Gt", "Lt"]), values=st.integers(0, 99).map(lambda n: [str(n)])),
)
term = optional(
    matchExpressions=st.lists(expression, max_size=2),
    matchFields=st.lists(
        always(key=st.just("metadata.name"), operator=st.just("In"), values=st.just(["a"])), max_size=1
    ),
)
added_affinity = optional(
    requiredDuringSchedulingIgnoredDuringExecution=always(nodeSelectorTerms=st.lists(term, max_size=2)),
    preferredDuringSchedulingIgnoredDuringExecution=st.lists(always(weight=percent, preference=term), max_size=2),
)
shape = st.lists(st.tuples(percent, st.integers(0, 10)), min_size=1, max_size=4, unique_by=lambda point: point[0]).map(
    lambda points: [{"utilization": utilization, "score": score} for utilization, score in sorted(points)]
)
resources = st.lists(always(name=resource, weight=percent), max_size=3)
constraint = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 9),
        "topologyKey": label,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    },
    optional={"minDomains": st.integers(0, 5), "nodeTaintsPolicy": st.just("Honor"), "matchLabelKeys": st.lists(label)},
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
ARGS: dict[str, st.SearchStrategy[Any]] = {
    "NodeResourcesFit": optional(
        ignoredResources=st.lists(resource, max_size=2),
        ignoredResourceGroups=st.lists(st.just("example.com"), max_size=1),
        scoringStrategy=st.one_of(
            always(type=st.sampled_from(["LeastAllocated", "MostAllocated"]), resources=resources),
            always(type=st.just("RequestedToCapacityRatio"), requestedToCapacityRatio=always(shape=shape)),
        ),
    ),
    "NodeResourcesBalancedAllocation": optional(
        resources=st.lists(resource, unique=True, max_size=3).map(lambda names: [{"name": name} for name in names])
    ),
    "NodeAffinity": optional(addedAffinity=added_affinity),
    "InterPodAffinity": optional(hardPodAffinityWeight=percent, ignorePreferredTermsOfExistingPods=st.booleans()),
    "PodTopologySpread": always(
        defaultingType=st.just("List"),
        defaultConstraints=st.lists(
            constraint, max_size=3, unique_by=lambda item: (item["topologyKey"], item["whenUnsatisfiable"])
        ),
    ),
    "DefaultPreemption": optional(minCandidateNodesPercentage=st.integers(1, 100), minCandidateNodesAbsolute=percent),
    "VolumeBinding": optional(bindTimeoutSeconds=st.integers(0, 2**63 - 1)),
    "DynamicResources": optional(filterTimeout=duration, bindingTimeout=st.just("1s")),
    "Mine": plain,
}
plugin = st.builds(
    lambda name, weight: {"name": name} | ({"weight": weight} if weight else {}),
    st.sampled_from([*IN_TREE, "Mine"]),
    st.integers(0, 100),
)
plugin_set = optional(
    enabled=st.lists(plugin, max_size=3),
    disabled=st.lists(plugin | st.just({"name": "*"}), max_size=2),
)
profile = optional(
    percentageOfNodesToScore=percent,
    plugins=optional(**dict.fromkeys([point for point in POINTS if point != "queueSort"] + ["multiPoint"], plugin_set)),
    pluginConfig=optional(**ARGS).map(lambda args: [{"name": name, "args": value} for name, value in args.items()]),
)
extender = optional(
    urlPrefix=words,
    filterVerb=words,
    weight=st.integers(1, 2**63 - 1),
    enableHTTPS=st.booleans(),
    tlsConfig=optional(insecure=st.booleans(), serverName=words, caData=st.sampled_from(["", "AQID", "////"])),
    httpTimeout=duration,
    nodeCacheCapable=st.booleans(),
    ignorable=st.booleans(),
)
documents = optional(
    parallelism=st.integers(1, 2**31 - 1),
    leaderElection=optional(leaderElect=st.booleans(), retryPeriod=duration, resourceName=words),
    clientConnection=optional(
        kubeconfig=words, qps=st.floats(-1, 1e6, width=32) | st.integers(-1, 1000), burst=st.integers(0, 2**31 - 1)
    ),
    enableProfiling=st.booleans(),
    enableContentionProfiling=st.booleans(),
    percentageOfNodesToScore=percent,
    podMaxBackoffSeconds=st.integers(1, 2**63 - 1),
    delayCacheUntilActive=st.booleans(),
    profiles=st.lists(profile, max_size=2).map(
        lambda items: [{"schedulerName": f"s{index}", **item} for index, item in enumerate(items)]
    ),
    extenders=st.lists(extender, max_size=2),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents)
def test_reading_what_was_written_changes_nothing(fields: dict[str, Any]) -> None:
    config = load_config_data({**HEAD, **fields})
    written = dump_config(config)
    assert load_config_data(written) == config
    text = dump_yaml(config)
    again = load_config(text)
    assert again == config
    assert dump_yaml(again) == text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(documents)
def test_a_valid_configuration_expands_or_says_why_not(fields: dict[str, Any]) -> None:
    config = load_config_data({**HEAD, **fields})
    capabilities = {**IN_TREE_CAPABILITIES, "Mine": frozenset({"filter", "score"})}
    expanded, failure = {}, None
    try:
        expanded = expand_profiles(config, capabilities)
    except ConfigError as error:
        failure = error
    if failure:
        assert failure.stage == "framework"
        assert str(failure).startswith("initializing profiles: creating profile for scheduler name ")
        return
    assert list(expanded) == [profile.scheduler_name for profile in config.profiles]
    for points in expanded.values():
        assert len(points["queueSort"]) == 1
        assert points["bind"]
        for point, listed in points.items():
            names = [name for name, _ in listed]
            assert len(names) == len(set(names))
            assert all(point in capabilities[name] for name in names)
            assert all((weight > 0) == (point in ("score", "placementScore")) for _, weight in listed)


@settings(max_examples=100, deadline=None)
@given(plain)
def test_plain_data_survives_yaml(data: Any) -> None:
    _, document = parse_document(to_yaml(data))
    assert document.data == data
    assert document.duplicates == []


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=60) | st.text(max_size=60) | st.text(alphabet="[]{}:,-&*!|>'\"%@`#?~ \n\tab01<.", max_size=60)
)
def test_no_text_whatever_raises_anything_but_a_config_error(text: str | bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(text)
    assert caught.value.stage == "decode"
    assert caught.value.user_message


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*POINTS, "profiles", "extenders", "leaderElection", "parallelism"]), plain)
def test_no_value_whatever_raises_anything_but_a_config_error(name: str, value: Any) -> None:
    fields = {"profiles": [{"plugins": {name: value}, "pluginConfig": value}]} if name in POINTS else {name: value}
    stage = ""
    try:
        config = load_config_data({**HEAD, **fields})
    except ConfigError as error:
        stage = error.stage
    else:
        assert load_config_data(dump_config(config)) == config
    assert stage in ("", "decode", "validate")


def test_other_readers_agree_about_what_we_write() -> None:
    config = load_config_data({**HEAD, "clientConnection": {"kubeconfig": "1e3", "contentType": "yes\nno"}})
    assert yaml.safe_load(dump_yaml(config)) == dump_config(config)
