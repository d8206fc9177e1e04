"""Every row of the validation tables: paths, values and texts as upstream prints them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubesched.scheduler.config import (
    ConfigError,
    Duration,
    FeatureGates,
    InterPodAffinityArgs,
    LeaderElection,
    NodeResourcesFitArgs,
    Plugin,
    PluginConfig,
    PluginSet,
    decode_config,
    default_config,
    load_config,
    load_config_data,
    validate,
    validate_args,
    validation_errors,
)

STORAGE = FeatureGates.parse("StorageCapacityScoring=true")
NO_FILTER_TIMEOUT = FeatureGates.parse("DRASchedulerFilterTimeout=false")
NO_BINDING = FeatureGates.parse("DRADeviceBindingConditions=false")
REMOVED = 'was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def document(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}


def errors_of(gates: FeatureGates | None = None, **fields: Any) -> list[str]:
    """The validation errors of a document with these fields."""
    with pytest.raises(ConfigError) as caught:
        load_config_data(document(**fields), gates=gates or FeatureGates())
    assert caught.value.stage == "validate"
    return caught.value.errors


def sorter(*names: str) -> dict[str, Any]:
    return {"queueSort": {"enabled": [{"name": name} for name in names]}}


TOP_LEVEL = [
    (
        "a burst is not negative",
        {"clientConnection": {"burst": -1}},
        ["clientConnection.burst: Invalid value: -1: must be non-negative"],
    ),
    (
        "lease times are positive",
        {"leaderElection": {"leaseDuration": "-2s", "renewDeadline": "-3s", "retryPeriod": "-500ms"}},
        [
            'leaderElection.leaseDuration: Invalid value: "-2s": must be greater than zero',
            'leaderElection.renewDeadline: Invalid value: "-3s": must be greater than zero',
            'leaderElection.retryPeriod: Invalid value: "-500ms": must be greater than zero',
        ],
    ),
    (
        "a lease outlives its renewal deadline, which is what gets printed",
        {"leaderElection": {"leaseDuration": "5s", "renewDeadline": "7s"}},
        ['leaderElection.leaseDuration: Invalid value: "7s": must be greater than `RenewDeadline`'],
    ),
    (
        "only leases lock",
        {"leaderElection": {"resourceLock": "endpoints"}},
        ['leaderElection.resourceLock: Invalid value: "endpoints": resourceLock value must be "leases"'],
    ),
    (
        "there is at least one worker",
        {"parallelism": 0},
        ["parallelism: Invalid value: 0: should be an integer value greater than zero"],
    ),
    (
        "a percentage has a range, globally and per profile",
        {"percentageOfNodesToScore": 101, "profiles": [{"percentageOfNodesToScore": -1}]},
        [
            "profiles[0].percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ],
    ),
    (
        "backoff starts above zero",
        {"podInitialBackoffSeconds": 0},
        ["podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"],
    ),
    (
        "backoff does not shrink",
        {"podInitialBackoffSeconds": 11},
        ["podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds"],
    ),
    (
        "one of several profiles without a name",
        {"profiles": [{"schedulerName": "a"}, {}]},
        ["profiles[1].schedulerName: Required value"],
    ),
    (
        "two profiles without names are also the same twice",
        {"profiles": [{}, {}]},
        [
            "profiles[0].schedulerName: Required value",
            "profiles[1].schedulerName: Required value",
            "profiles[1].schedulerName: Duplicate value: {}",
        ],
    ),
    (
        "an only profile may not be named the empty string",
        {"profiles": [{"schedulerName": ""}]},
        ["profiles[0].schedulerName: Required value"],
    ),
    (
        "a scheduler name is used once",
        {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
        ["profiles[1].schedulerName: Duplicate value: {}"],
    ),
    (
        "removed plugins are found at points and in the arguments",
        {
            "profiles": [
                {
                    "plugins": {"filter": {"enabled": [{"name": "NodeName"}, {"name": "EBSLimits"}]}},
                    "pluginConfig": [{"name": "CinderLimits", "args": {}}],
                }
            ]
        },
        [
            f'profiles[0].plugins.filter.enabled[1]: Invalid value: "EBSLimits": {REMOVED}',
            f'profiles[0].pluginConfig[0]: Invalid value: "CinderLimits": {REMOVED}',
        ],
    ),
    (
        "a plugin is configured once, and both entries are checked",
        {"profiles": [{"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}] * 2}]},
        [
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
            'profiles[0].pluginConfig[1]: Duplicate value: "InterPodAffinity"',
            "profiles[0].pluginConfig[1].args.hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
        ],
    ),
    (
        "one plugin sorts the queue",
        {"profiles": [{"plugins": sorter("A", "B")}]},
        ["profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled"],
    ),
    (
        "all profiles sort alike",
        {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b", "plugins": sorter("Mine")}]},
        [
            'profiles[1].plugins.queueSort: Invalid value: {"Enabled":[{"Name":"Mine","Weight":0}],"Disabled":null}: '
            "must be the same for all profiles"
        ],
    ),
    (
        "the empty queue sort set is printed with nulls",
        {"profiles": [{"schedulerName": "a", "plugins": sorter("Mine")}, {"schedulerName": "b"}]},
        [
            'profiles[1].plugins.queueSort: Invalid value: {"Enabled":null,"Disabled":null}: '
            "must be the same for all profiles"
        ],
    ),
    (
        "all profiles sort with the same arguments",
        {
            "profiles": [
                {"schedulerName": "a", "plugins": sorter("Mine"), "pluginConfig": [{"name": "Mine", "args": {"x": 1}}]},
                {"schedulerName": "b", "plugins": sorter("Mine"), "pluginConfig": [{"name": "Mine", "args": {"x": 2}}]},
            ]
        },
        ['profiles[1].pluginConfig.args: Invalid value: {"x":2}: queueSort must be the same for all profiles'],
    ),
    (
        "arguments without a name count as those of the sorter, but not in the first profile",
        {
            "profiles": [
                {"schedulerName": "a", "pluginConfig": [{"args": {"x": 1}}]},
                {"schedulerName": "b", "pluginConfig": [{"args": {"x": 1}}]},
                {"schedulerName": "c", "pluginConfig": [{}]},
            ]
        },
        ['profiles[1].pluginConfig.args: Invalid value: {"x":1}: queueSort must be the same for all profiles'],
    ),
    (
        "an extender that scores has a weight",
        {"extenders": [{"urlPrefix": "http://a", "prioritizeVerb": "p"}]},
        ["extenders[0].weight: Invalid value: 0: must have a positive weight applied to it"],
    ),
    (
        "an extender manages extended resources",
        {
            "extenders": [
                {
                    "managedResources": [
                        {"name": "cpu"},
                        {"name": "kubernetes.io/x"},
                        {"name": "requests.example.com/x"},
                        {"name": ""},
                        {"name": "example.com/"},
                    ]
                }
            ]
        },
        [
            'extenders[0].managedResources[0].name: Invalid value: "cpu": is an invalid extended resource name',
            'extenders[0].managedResources[1].name: Invalid value: "kubernetes.io/x": '
            "is an invalid extended resource name",
            'extenders[0].managedResources[2].name: Invalid value: "requests.example.com/x": '
            "is an invalid extended resource name",
            'extenders[0].managedResources[3].name: Invalid value: "": name part must be non-empty',
            f'extenders[0].managedResources[3].name: Invalid value: "": {QUALIFIED}',
            'extenders[0].managedResources[4].name: Invalid value: "example.com/": name part must be non-empty',
            f'extenders[0].managedResources[4].name: Invalid value: "example.com/": {QUALIFIED}',
        ],
    ),
    (
        "a resource is managed once, over all extenders",
        {"extenders": [{"managedResources": [{"name": "a.io/x"}]}, {"managedResources": [{"name": "a.io/x"}]}]},
        ['extenders[1].managedResources[0].name: Invalid value: "a.io/x": duplicate extender managed resource name'],
    ),
    (
        "one extender binds",
        {"extenders": [{"bindVerb": "b"}, {"bindVerb": "b"}]},
        ['extenders: Invalid value: "found 2 extenders implementing bind": only one extender can implement bind'],
    ),
]


@pytest.mark.parametrize(("fields", "errors"), [row[1:] for row in TOP_LEVEL], ids=[row[0] for row in TOP_LEVEL])
def test_top_level_rules(fields: dict[str, Any], errors: list[str]) -> None:
    assert errors_of(**fields) == errors


def shaped(*points: tuple[int, int]) -> list[dict[str, int]]:
    return [{"utilization": utilization, "score": score} for utilization, score in points]


def affinity(key: str, operator: str, *values: str, fields: bool = False) -> dict[str, Any]:
    where = "matchFields" if fields else "matchExpressions"
    return {where: [{"key": key, "operator": operator, "values": list(values)}]}


def required(term: dict[str, Any]) -> dict[str, Any]:
    return {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def preferred(weight: int, term: dict[str, Any]) -> dict[str, Any]:
    item = {"weight": weight, "preference": term}
    return {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [item]}}


REQUIRED = "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
PREFERRED = "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
ZONE = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
BAD_LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

ARGS: list[tuple[str, str, dict[str, Any], FeatureGates | None, list[str]]] = [
    (
        "preemption evaluates some percentage",
        "DefaultPreemption",
        {"minCandidateNodesPercentage": 101, "minCandidateNodesAbsolute": -1},
        None,
        [
            "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
            "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
        ],
    ),
    (
        "preemption evaluates at least one node",
        "DefaultPreemption",
        {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
        None,
        [
            "minCandidateNodesPercentage: Invalid value: 0: "
            "cannot be zero at the same time as minCandidateNodesAbsolute",
            "minCandidateNodesAbsolute: Invalid value: 0: "
            "cannot be zero at the same time as minCandidateNodesPercentage",
        ],
    ),
    (
        "a pod affinity weight has a range",
        "InterPodAffinity",
        {"hardPodAffinityWeight": -1},
        None,
        ["hardPodAffinityWeight: Invalid value: -1: not in valid range [0, 100]"],
    ),
    (
        "balanced resources are distinct and weigh one",
        "NodeResourcesBalancedAllocation",
        {"resources": [{"name": "cpu", "weight": 2}, {"name": "cpu"}]},
        None,
        ["resources[0].weight: Invalid value: 2: must be 1", 'resources[1].name: Duplicate value: "cpu"'],
    ),
    (
        "volumes are waited for",
        "VolumeBinding",
        {"bindTimeoutSeconds": -1},
        None,
        ["bindTimeoutSeconds: Invalid value: -1: invalid BindTimeoutSeconds, should not be a negative value"],
    ),
    (
        "a storage shape needs its gate",
        "VolumeBinding",
        {"shape": shaped((0, 1))},
        None,
        [
            'shape: Invalid value: [{"Utilization":0,"Score":1}]: '
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        ],
    ),
    (
        "an empty storage shape needs its gate too",
        "VolumeBinding",
        {"shape": []},
        None,
        [
            "shape: Invalid value: []: "
            "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring"
        ],
    ),
    (
        "a storage shape rises within its ranges",
        "VolumeBinding",
        {"shape": shaped((50, 11), (50, 0), (101, -1))},
        STORAGE,
        [
            "shape[1].utilization: Invalid value: 50: values must be sorted in increasing order",
            "shape[0].score: Invalid value: 11: not in valid range [0, 10]",
            "shape[2].utilization: Invalid value: 101: not in valid range [0, 100]",
            "shape[2].score: Invalid value: -1: not in valid range [0, 10]",
        ],
    ),
    (
        "device timeouts are long enough",
        "DynamicResources",
        {"filterTimeout": "-1s", "bindingTimeout": "999ms"},
        None,
        [
            'filterTimeout: Invalid value: "-1s": must be zero or positive',
            'bindingTimeout: Invalid value: "999ms": must be at least 1 second',
        ],
    ),
    (
        "a filter timeout needs its gate",
        "DynamicResources",
        {"filterTimeout": "1s"},
        NO_FILTER_TIMEOUT,
        ["filterTimeout: Forbidden: DRASchedulingFilterTimeout feature gate is disabled"],
    ),
    (
        "a binding timeout needs its gates",
        "DynamicResources",
        {"bindingTimeout": "1s"},
        NO_BINDING,
        [
            "bindingTimeout: Forbidden: "
            "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled"
        ],
    ),
    (
        "spread defaulting knows two types",
        "PodTopologySpread",
        {"defaultingType": "Nothing", "defaultConstraints": [ZONE]},
        None,
        ['defaultingType: Unsupported value: "Nothing": supported values: "System", "List"'],
    ),
    (
        "system defaulting takes no constraints",
        "PodTopologySpread",
        {"defaultConstraints": [ZONE]},
        None,
        ['defaultingType: Invalid value: "System": when .defaultConstraints are not empty'],
    ),
    (
        "default constraints are complete",
        "PodTopologySpread",
        {"defaultingType": "List", "defaultConstraints": [{"labelSelector": {}}]},
        None,
        [
            "defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
            "defaultConstraints[0].topologyKey: Required value: can not be empty",
            "defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
            "defaultConstraints[0].labelSelector: Forbidden: "
            "constraint must not define a selector, as they deduced for each pod",
        ],
    ),
    (
        "default constraints are of known kinds and distinct",
        "PodTopologySpread",
        {"defaultingType": "List", "defaultConstraints": [ZONE, {**ZONE, "whenUnsatisfiable": "Whatever"}, ZONE]},
        None,
        [
            'defaultConstraints[1].whenUnsatisfiable: Unsupported value: "Whatever": '
            'supported values: "DoNotSchedule", "ScheduleAnyway"',
            'defaultConstraints[2]: Duplicate value: "{zone, DoNotSchedule}"',
        ],
    ),
    (
        "an added affinity has known operators, and then nothing else is checked",
        "NodeAffinity",
        required(affinity("not a key", "Near", "a b")),
        None,
        [
            f'{REQUIRED}.matchExpressions[0].operator: Unsupported value: "Near": '
            'supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
        ],
    ),
    (
        "an added affinity has values where they are needed",
        "NodeAffinity",
        required(affinity("a", "In")),
        None,
        [
            f"{REQUIRED}.matchExpressions[0].values: Invalid value: []: "
            "for 'in', 'notin' operators, values set can't be empty"
        ],
    ),
    (
        "an added affinity has no values where they are not needed",
        "NodeAffinity",
        preferred(1, affinity("a", "Exists", "x")),
        None,
        [
            f'{PREFERRED}.matchExpressions[0].values: Invalid value: ["x"]: '
            "values set must be empty for exists and does not exist"
        ],
    ),
    (
        "an added affinity compares with one number",
        "NodeAffinity",
        required(affinity("a", "Gt", "1", "2")),
        None,
        [
            f'{REQUIRED}.matchExpressions[0].values: Invalid value: ["1","2"]: '
            "for 'Gt', 'Lt' operators, exactly one value is required"
        ],
    ),
    (
        "an added affinity has labels that could exist",
        "NodeAffinity",
        required(affinity("no key", "Lt", "a b")),
        None,
        [
            f'{REQUIRED}.matchExpressions[0].key: Invalid value: "no key": {QUALIFIED}',
            f'{REQUIRED}.matchExpressions[0].values[0]: Invalid value: "a b": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
            f'{REQUIRED}.matchExpressions[0].values[0][no key]: Invalid value: "a b": {BAD_LABEL}',
        ],
    ),
    (
        "an added affinity matches fields with one value",
        "NodeAffinity",
        required(affinity("metadata.name", "In", "a", "b", fields=True)),
        None,
        [f'{REQUIRED}.matchFields[0].values: Invalid value: ["a","b"]: must have exactly one element'],
    ),
    (
        "an added affinity matches fields by two operators",
        "NodeAffinity",
        required(affinity("metadata.name", "Exists", fields=True)),
        None,
        [f'{REQUIRED}.matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn"'],
    ),
]


@pytest.mark.parametrize(("name", "args", "gates", "errors"), [row[1:] for row in ARGS], ids=[row[0] for row in ARGS])
def test_argument_rules(name: str, args: dict[str, Any], gates: FeatureGates | None, errors: list[str]) -> None:
    found = errors_of(gates, profiles=[{"pluginConfig": [{"name": name, "args": args}]}])
    assert found == [f"profiles[0].pluginConfig[0].args.{error}" for error in errors]


def test_a_preferred_term_of_weight_zero_is_not_read() -> None:
    args = preferred(0, affinity("not a key", "Near"))
    assert load_config_data(document(profiles=[{"pluginConfig": [{"name": "NodeAffinity", "args": args}]}]))


STRATEGY_TYPES = '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
FIT: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "ignored resources have names",
        {"ignoredResources": ["ok", "a b"], "ignoredResourceGroups": ["example.com", "a.io/b"]},
        [
            f'ignoredResources[1]: Invalid value: "a b": {QUALIFIED}',
            "ignoredResourceGroups[1]: Invalid value: \"a.io/b\": resource group name can't contain '/'",
        ],
    ),
    (
        "a strategy has a type",
        {"scoringStrategy": {"resources": [{"name": "cpu"}]}},
        [f'scoringStrategy.type: Unsupported value: "": supported values: {STRATEGY_TYPES}'],
    ),
    (
        "weights have a range",
        {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}]}},
        ["scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range (0, 100]"],
    ),
    (
        "the ratio strategy has its shape",
        {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
        [
            "scoringStrategy.requestedToCapacityRatio: Required value: "
            "must be specified when type is RequestedToCapacityRatio"
        ],
    ),
    (
        "a shape has points",
        {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {}}},
        ["scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified"],
    ),
    (
        "a shape rises",
        {
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": {"shape": shaped((10, 1), (5, 2))},
            }
        },
        [
            "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 5: "
            "values must be sorted in increasing order"
        ],
    ),
    (
        "other strategies have no shape",
        {"scoringStrategy": {"type": "LeastAllocated", "requestedToCapacityRatio": {"shape": shaped((0, 0))}}},
        ["scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio"],
    ),
    (
        "nor has one that is unknown",
        {"scoringStrategy": {"requestedToCapacityRatio": {}}},
        [
            'scoringStrategy.type: Unsupported value: "": supported values: "LeastAllocated", "MostAllocated", '
            '"RequestedToCapacityRatio"',
            "scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not RequestedToCapacityRatio",
        ],
    ),
]


@pytest.mark.parametrize(("args", "errors"), [row[1:] for row in FIT], ids=[row[0] for row in FIT])
def test_fit_arguments_pass_validation_and_fail_when_the_plugin_is_built(
    args: dict[str, Any], errors: list[str]
) -> None:
    config = load_config_data(document(profiles=[{"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}]))
    typed = config.profiles[0].args_as("NodeResourcesFit", NodeResourcesFitArgs)
    assert validate_args("NodeResourcesFit", typed, FeatureGates()) == errors


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("a/b/c", ["a qualified name must consist of alphanumeric characters"]),
        ("/b", ["prefix part must be non-empty"]),
        ("A/b", ["prefix part a lowercase RFC 1123 subdomain must consist of"]),
        ("a" * 254 + "/b", ["prefix part must be no more than 253 bytes"]),
        ("a" * 64, ["name part must be no more than 63 bytes"]),
        ("a\n", ["name part must consist of"]),
    ],
)
def test_a_bad_name_is_explained(name: str, texts: list[str]) -> None:
    args = NodeResourcesFitArgs(ignored_resources=(name,))
    (error,) = validate_args("NodeResourcesFit", args, FeatureGates())
    assert error.startswith("ignoredResources[0]: Invalid value: ")
    parts = error.split(": ", 3)[-1].split("; ")
    assert len(parts) == len(texts)
    assert all(part.startswith(text) for part, text in zip(parts, texts, strict=True))


def test_a_configuration_made_by_hand_is_checked_too() -> None:
    config = default_config()
    blank = LeaderElection(resource_lock="", resource_name="", resource_namespace="")
    assert validation_errors(replace(config, leader_election=blank)) == [
        "leaderElection.resourceLock: Required value",
        "leaderElection.resourceNamespace: Required value",
        "leaderElection.resourceName: Required value",
        'leaderElection.resourceLock: Invalid value: "": resourceLock value must be "leases"',
    ]
    assert validation_errors(replace(config, profiles=())) == ["profiles: Required value"]
    mixed = replace(config.profiles[0], plugin_config=(PluginConfig(name="NodeAffinity", args=InterPodAffinityArgs()),))
    with pytest.raises(ConfigError, match="has to match plugin args") as caught:
        validate(replace(config, profiles=(mixed,)))
    assert str(caught.value).startswith("profiles[0].pluginConfig[0].args: Invalid value: ")


def test_leader_election_that_is_off_is_not_checked() -> None:
    off = LeaderElection(leader_elect=False, lease_duration=Duration(-1), resource_lock="endpoints")
    assert validation_errors(replace(default_config(), leader_election=off)) == []


def test_removed_plugins_are_not_looked_for_in_multi_point() -> None:
    config = default_config()
    plugins = replace(config.profiles[0].plugins, multi_point=PluginSet(enabled=(Plugin(name="EBSLimits"),)))
    assert validation_errors(replace(config, profiles=(replace(config.profiles[0], plugins=plugins),))) == []


def test_one_error_is_bare_and_several_are_in_brackets() -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: -1\n"
    with pytest.raises(ConfigError) as caught:
        load_config(text)
    one = "parallelism: Invalid value: -1: should be an integer value greater than zero"
    assert str(caught.value) == caught.value.user_message == one
    with pytest.raises(ConfigError) as caught:
        load_config(text + "percentageOfNodesToScore: 200\n")
    assert str(caught.value) == f"[{one}, percentageOfNodesToScore: Invalid value: 200: not in valid range [0-100]]"


def test_decoding_alone_does_not_validate() -> None:
    text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: -1\n"
    assert decode_config(text).parallelism == -1
